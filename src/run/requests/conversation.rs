//! The conversation of a session: the history of each turn so far, and the next prompts.

use crate::run::error::RunError;
use crate::run::requests::tool_results::{ToolResults, answer_calls, messages_in};
use llmscen_core::api::Api;
use llmscen_core::dataset::{
    LaterTurns, PreviousResponse, Prompt, Replies, SentHistory, Session, TurnLinks, Turns,
};
use llmscen_datasets::token::{Tokenizer, text_of};
use llmscen_protocols::Message;
use llmscen_requests::render::spoken;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// The conversation of one session.
#[derive(Debug)]
pub struct Conversation {
    /// The turns, up to the last one whose prompt is known.
    turns: Vec<Turn>,
    /// The turns whose prompts come one by one.
    later: Option<LaterTurns>,
    api: Api,
    replies: Replies,
    history: SentHistory,
    keep_reasoning: bool,
    group: Option<String>,
    /// Of the turns rendered since they were last taken.
    tool_results: ToolResults,
}

/// The reply of the server to a turn.
#[derive(Clone, Debug, Default)]
pub struct TurnReply {
    /// The turn.
    pub turn: u32,
    /// The reply.
    pub message: Message,
    /// The id of the response, if it has one.
    pub response_id: Option<String>,
}

/// One turn of a conversation.
#[derive(Debug, Default)]
struct Turn {
    /// Its prompt, until the turn is rendered.
    prompt: Option<Box<Prompt>>,
    /// The messages of its request, and its reply once it has ended.
    history: History,
    /// Prompt tokens of its request, and the tokens of its reply once it has ended.
    tokens: Option<u64>,
    /// The data has a complete body for it, so its messages have the form of the protocol.
    has_body: bool,
    /// The oldest turn in its history.
    history_from: u32,
    /// Its reply in the data.
    recorded_reply: Vec<Value>,
    /// Another turn contains the text of its reply.
    is_quoted: bool,
    /// Another turn continues its history; that of other turns is not kept.
    is_continued: bool,
    /// That text.
    reply_text: Option<String>,
    /// The id of its response, where later turns send it.
    response_id: Option<String>,
}

/// The messages up to a turn. Turns that continue the same turn share them.
#[derive(Clone, Debug, Default)]
struct History {
    last: Option<Arc<Chunk>>,
    /// The system message that the data sets; it replaces the one among the messages. The template adds that of the
    /// case.
    system: Option<Arc<str>>,
}

#[derive(Debug)]
struct Chunk {
    before: Option<Arc<Chunk>>,
    /// The turn that added it.
    turn: u32,
    /// Shared by the histories that lost earlier turns.
    messages: Arc<Vec<Value>>,
}

impl Drop for Chunk {
    /// Without recursion, whose depth would be the number of turns.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut chunk) = before.and_then(Arc::into_inner) {
            before = chunk.before.take();
        }
    }
}

impl History {
    fn push(&mut self, turn: u32, messages: impl Into<Arc<Vec<Value>>>) {
        let messages = messages.into();
        if !messages.is_empty() {
            let before = self.last.take();
            self.last = Some(Arc::new(Chunk {
                before,
                turn,
                messages,
            }));
        }
    }

    /// The reply to a turn, if it is the last message.
    fn reply_to(&self, turn: u32) -> Option<&Value> {
        let last = self.last.as_ref().filter(|last| last.turn == turn)?;
        let is_reply =
            |message: &&Value| message.get("role").is_some_and(|role| role == "assistant");
        last.messages.last().filter(is_reply)
    }

    /// Replaces the last message. Other histories that have it keep it.
    fn replace_last(&mut self, by: Vec<Value>) {
        let Some(chunk) = self.last.take() else {
            return;
        };
        let kept = chunk.messages.len().saturating_sub(1);
        let messages = chunk.messages.iter().take(kept).cloned().chain(by);
        self.last = Some(Arc::new(Chunk {
            before: chunk.before.clone(),
            turn: chunk.turn,
            messages: Arc::new(messages.collect()),
        }));
    }

    /// Removes the messages of the turns before `oldest`, except a system message at the start.
    fn remove_turns_before(&mut self, oldest: u32) {
        if self.chunks().all(|chunk| chunk.turn >= oldest) {
            return;
        }
        let system = self.first().filter(|first| is_system(first)).cloned();
        let kept: Vec<(u32, Arc<Vec<Value>>)> = self
            .chunks()
            .filter(|chunk| chunk.turn >= oldest)
            .map(|chunk| (chunk.turn, chunk.messages.clone()))
            .collect();
        self.last = None;
        self.push(oldest, Vec::from_iter(system));
        for (turn, messages) in kept.into_iter().rev() {
            self.push(turn, messages);
        }
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        std::iter::successors(self.last.as_deref(), |chunk| chunk.before.as_deref())
    }

    /// The text of the system message; None without one.
    fn system_text(&self) -> Option<String> {
        let first = || self.first().filter(|first| is_system(first));
        self.system
            .as_deref()
            .map(str::to_owned)
            .or_else(|| first().map(text_of))
    }

    fn latest_system(&self) -> Option<&Value> {
        let messages = |chunk: &'_ Chunk| chunk.messages.iter().rposition(is_system);
        self.chunks()
            .find_map(|chunk| chunk.messages.get(messages(chunk)?))
    }

    fn first(&self) -> Option<&Value> {
        self.chunks().last()?.messages.first()
    }

    /// The messages that a turn added.
    fn messages_of_turn(&self, turn: u32) -> Vec<Value> {
        let mut added = self.chunks().filter(|chunk| chunk.turn == turn);
        added
            .next()
            .map_or_else(Vec::new, |chunk| chunk.messages.to_vec())
    }

    /// Number of messages.
    fn count(&self) -> usize {
        let is_inserted = self.system.is_some() && !self.first().is_some_and(is_system);
        let messages = self.chunks().map(|chunk| chunk.messages.len());
        usize::from(is_inserted) + messages.sum::<usize>()
    }

    fn messages(&self) -> Vec<Value> {
        let chunks: Vec<&Chunk> = self.chunks().collect();
        let mut messages: Vec<Value> = chunks
            .into_iter()
            .rev()
            .flat_map(|chunk| chunk.messages.iter())
            .cloned()
            .collect();
        if let Some(system) = &self.system {
            set_system_message(&mut messages, system);
        }
        messages
    }
}

/// The first turn of a session as it is sent: a system message of the dataset becomes its first message. `is_text`:
/// the messages of a conversation are one text.
pub fn prepare_first_turn(mut first: Prompt, is_text: bool) -> Prompt {
    if let Some(system) = first.system.as_deref().filter(|_| first.body.is_none()) {
        let mut messages = messages_of(&first);
        set_system_message(&mut messages, system);
        first.messages = Some(messages);
    }
    if let Some(messages) = first.messages.take_if(|_| is_text) {
        first.text = joined_text(&messages);
    }
    first
}

impl Turn {
    fn new(mut prompt: Prompt) -> Turn {
        Turn {
            recorded_reply: std::mem::take(&mut prompt.recorded_reply),
            tokens: prompt.tokens,
            has_body: prompt.body.is_some(),
            prompt: Some(Box::new(prompt)),
            ..Turn::default()
        }
    }
}

impl Conversation {
    /// A conversation before any turn.
    pub fn new(session: Session, api: Api, settings: Option<&Turns>) -> Conversation {
        let mut quoted: HashSet<u32> = HashSet::new();
        let mut continued: HashSet<u32> = HashSet::new();
        for (index, turn) in (0..).zip(&session.turns) {
            continued.extend(turn.continued_turn(index));
            let links = turn.links.iter();
            quoted.extend(links.flat_map(|links| links.replies.iter().map(|slot| slot.turn)));
        }
        let group = session.turns.first().and_then(|first| first.group.clone());
        let continues = session.later.as_ref().is_some_and(|later| later.continues);
        let turn = |(index, prompt): (u32, Prompt)| Turn {
            is_quoted: quoted.contains(&index),
            is_continued: continues || continued.contains(&index),
            ..Turn::new(prompt)
        };
        Conversation {
            turns: (0..).zip(session.turns).map(turn).collect(),
            later: session.later,
            api,
            replies: settings.map(|turns| turns.replies).unwrap_or_default(),
            history: settings.map(|turns| turns.history).unwrap_or_default(),
            keep_reasoning: settings.is_some_and(|turns| turns.keep_reasoning),
            group,
            tool_results: ToolResults::default(),
        }
    }

    /// The tool results of the turns rendered since the last call.
    pub fn take_tool_results(&mut self) -> ToolResults {
        std::mem::take(&mut self.tool_results)
    }

    /// Adds the turns before `first`, with their replies in the data.
    pub fn skip_to(&mut self, first: u32) {
        for turn in 0..first {
            self.add_messages(turn);
            let reply = TurnReply {
                turn,
                ..TurnReply::default()
            };
            self.end_turn(&reply, None);
        }
    }

    /// Whether the prompt of a turn must be added before the turn is rendered.
    pub fn awaits_prompt(&self, turn: u32) -> bool {
        let known = self.turns.get(turn as usize);
        self.later.is_some() && known.is_none_or(|turn| turn.prompt.is_none())
    }

    /// Adds the prompt of a later turn.
    pub fn add_prompt(&mut self, turn: u32, prompt: Prompt) {
        let turn = turn as usize;
        if self.turns.len() <= turn {
            self.turns.resize_with(turn + 1, Turn::default);
        }
        self.turns[turn] = Turn {
            is_continued: self.later.as_ref().is_some_and(|later| later.continues),
            ..Turn::new(prompt)
        };
    }

    /// The prompt of a turn, with all messages of its history. Each turn is rendered once, after those that it awaits
    /// have ended. None: there is no such turn.
    ///
    /// # Errors
    /// It continues a response without an id.
    pub fn render(&mut self, turn: u32) -> Result<Option<Prompt>, RunError> {
        let previous = self.previous_response(turn)?;
        let mut prompt = self.render_messages(turn);
        if let Some(prompt) = &mut prompt {
            prompt.previous_response = previous;
        }
        Ok(prompt)
    }

    /// The response that a turn continues, where the server has stored it.
    fn previous_response(&self, turn: u32) -> Result<Option<PreviousResponse>, RunError> {
        let stored = self.history == SentHistory::PreviousResponseId;
        let Some(turn) = self.continued(turn).filter(|_| stored) else {
            return Ok(None);
        };
        let no_id = RunError::NoResponseId { turn };
        let Some(before) = self.turns.get(turn as usize) else {
            return Err(no_id);
        };
        Ok(Some(PreviousResponse {
            id: before.response_id.clone().ok_or(no_id)?,
            messages: before.history.count(),
        }))
    }

    /// The turn that a turn continues, until the turn is rendered.
    pub fn continued(&self, turn: u32) -> Option<u32> {
        let prompt = self.turns.get(turn as usize)?.prompt.as_ref()?;
        prompt.continued_turn(turn)
    }

    fn render_messages(&mut self, turn: u32) -> Option<Prompt> {
        let (mut prompt, history) = self.add_messages(turn)?;
        prompt.continues = self.api.keeps_conversation() && turn > 0;
        let messages = if prompt.continues {
            history.messages_of_turn(turn)
        } else {
            history.messages()
        };
        match prompt.body.as_mut() {
            Some(body) => _ = body.insert("messages".to_owned(), Value::Array(messages)),
            None if self.api.continues_text() => {
                prompt.text = joined_text(&messages);
            }
            None => prompt.messages = Some(messages),
        }
        prompt.group = prompt.group.or_else(|| self.group.clone());
        Some(prompt)
    }

    /// Begins at the first turn, whose request is rendered elsewhere.
    pub fn skip_first(&mut self) {
        self.add_messages(0);
    }

    /// Adds the messages of a turn to the history that it continues. Returns the rest of its prompt, and all messages.
    fn add_messages(&mut self, turn: u32) -> Option<(Prompt, History)> {
        let mut prompt = *self.turns.get_mut(turn as usize)?.prompt.take()?;
        let linear = TurnLinks {
            continues: turn.checked_sub(1),
            ..TurnLinks::default()
        };
        let links = prompt.links.take().map_or(linear, |links| *links);
        let mut history = links
            .continues
            .and_then(|before| self.turns.get(before as usize))
            .map(|before| before.history.clone())
            .unwrap_or_default();
        let mut added = take_messages(&mut prompt);
        for slot in &links.replies {
            let text = self
                .turns
                .get(slot.turn as usize)
                .and_then(|turn| turn.reply_text.clone());
            if let Some(Value::Object(message)) = added.get_mut(slot.message) {
                message.insert("content".to_owned(), text.unwrap_or_default().into());
            }
        }
        // A dataset may repeat the system message in every turn.
        if added
            .first()
            .is_some_and(|first| is_system(first) && history.latest_system() == Some(first))
        {
            added.remove(0);
        }
        if let (Some(before), Replies::Live) = (links.continues, self.replies) {
            added = self.answer_calls(turn, before, &mut history, added);
        }
        history.push(turn, added);
        history.remove_turns_before(prompt.history_from);
        if let Some(system) = &prompt.system
            && (links.continues.is_some() || prompt.body.is_none())
        {
            history.system = Some(system.as_str().into());
        }
        let added_to = self.turns.get_mut(turn as usize)?;
        if added_to.is_continued {
            added_to.history = history.clone();
        }
        added_to.history_from = prompt.history_from;
        Some((prompt, history))
    }

    /// The messages that a turn adds after the live reply to turn `before`, which ends the history.
    fn answer_calls(
        &mut self,
        turn: u32,
        before: u32,
        history: &mut History,
        added: Vec<Value>,
    ) -> Vec<Value> {
        let Some(continued) = self.turns.get(before as usize) else {
            return added;
        };
        let keeps_reply =
            self.api.keeps_conversation() || self.history == SentHistory::PreviousResponseId;
        let reply = history.reply_to(before);
        let recorded = &continued.recorded_reply;
        let answered = answer_calls(turn, reply, recorded, added, keeps_reply);
        self.tool_results.add(answered.counts);
        let has_body = self
            .turns
            .get(turn as usize)
            .is_some_and(|turn| turn.has_body);
        if let Some(reply) = answered.reply {
            history.replace_last(self.in_form(has_body, vec![reply]));
        }
        let mut messages = self.in_form(has_body, answered.inserted);
        messages.extend(answered.added);
        messages
    }

    /// The renderer converts a list of messages to the form of the protocol. A complete body must already have that
    /// form.
    fn in_form(&self, has_body: bool, messages: Vec<Value>) -> Vec<Value> {
        match has_body {
            true => spoken(self.api, messages),
            false => messages,
        }
    }

    /// Tokens of the history that a turn continues, which a prefix cache may have; 0 for the first turn of a history.
    /// Without its oldest turns, a prompt shares only the system message with the prompt before. None: not counted,
    /// or the turn is rendered.
    pub fn history_tokens(&self, turn: u32, tokenizer: Option<&Tokenizer>) -> Option<u64> {
        let prompt = self.turns.get(turn as usize)?.prompt.as_ref()?;
        let Some(before) = self.continued(turn) else {
            return Some(0);
        };
        let before = self.turns.get(before as usize)?;
        if prompt.history_from > before.history_from {
            let system = before.history.system_text();
            return system.map_or(Some(0), |system| tokenizer?.count(&system));
        }
        before.tokens
    }

    /// Sets the prompt tokens of a turn.
    pub fn set_tokens(&mut self, turn: u32, tokens: Option<u64>) {
        if let Some(turn) = self.turns.get_mut(turn as usize) {
            turn.tokens = tokens;
        }
    }

    /// Adds the reply of the server to the history of its turn.
    pub fn end_turn(&mut self, reply: &TurnReply, tokenizer: Option<&Tokenizer>) {
        let Some(turn) = self.turns.get_mut(reply.turn as usize) else {
            return;
        };
        turn.response_id.clone_from(&reply.response_id);
        let messages = match self.replies {
            Replies::Live => vec![reply_message(&reply.message, self.keep_reasoning)],
            Replies::Recorded => std::mem::take(&mut turn.recorded_reply),
        };
        let text = messages.iter().map(text_of).collect::<Vec<_>>().join("\n");
        let reply_tokens = tokenizer.and_then(|tokenizer| tokenizer.count(&text));
        turn.tokens = turn
            .tokens
            .zip(reply_tokens)
            .map(|(prompt, reply)| prompt + reply);
        turn.reply_text = turn.is_quoted.then_some(text);
        if !turn.is_continued {
            return;
        }
        let has_body = turn.has_body;
        let messages = self.in_form(has_body, messages);
        if let Some(turn) = self.turns.get_mut(reply.turn as usize) {
            turn.history.push(reply.turn, messages);
        }
    }
}

/// A conversation as one text.
fn joined_text(messages: &[Value]) -> String {
    messages.iter().map(text_of).collect::<Vec<_>>().join("\n")
}

/// Takes the messages that a turn adds to the conversation.
fn take_messages(prompt: &mut Prompt) -> Vec<Value> {
    prompt
        .messages
        .take()
        .unwrap_or_else(|| messages_of(prompt))
}

/// The messages that a turn adds to the conversation.
fn messages_of(prompt: &Prompt) -> Vec<Value> {
    match messages_in(prompt) {
        Some(messages) => messages.clone(),
        None => vec![json!({ "role": "user", "content": prompt.text })],
    }
}

/// A reply as a chat message; tool calls keep the form of their protocol. The content of a reply that only calls
/// tools is null, as in the reply itself.
fn reply_message(reply: &Message, keep_reasoning: bool) -> Value {
    let calls = !reply.tool_calls.is_null();
    let content = if calls && reply.content.is_empty() {
        Value::Null
    } else {
        json!(reply.content)
    };
    let mut message = json!({ "role": "assistant", "content": content });
    if keep_reasoning && !reply.reasoning.is_empty() {
        message["reasoning_content"] = json!(reply.reasoning);
    }
    if calls {
        message["tool_calls"] = reply.tool_calls.clone();
    }
    message
}

fn set_system_message(messages: &mut Vec<Value>, system: &str) {
    let message = json!({ "role": "system", "content": system });
    match messages.first_mut().filter(|first| is_system(first)) {
        Some(first) => *first = message,
        None => messages.insert(0, message),
    }
}

fn is_system(message: &Value) -> bool {
    message.get("role").is_some_and(|role| role == "system")
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::dataset::ReplySlot;

    fn user_turn(text: &str) -> Prompt {
        Prompt {
            text: text.into(),
            ..Prompt::default()
        }
    }

    fn reply(content: &str) -> Message {
        Message {
            content: content.into(),
            reasoning: "hm".into(),
            tool_calls: Value::Null,
        }
    }

    fn ended_turn(turn: u32, message: &Message) -> TurnReply {
        TurnReply {
            turn,
            message: message.clone(),
            response_id: None,
        }
    }

    fn messages(prompt: Option<Prompt>) -> Value {
        prompt.unwrap().messages.unwrap().into()
    }

    /// The conversation of a session after its first turn was rendered.
    fn begun(turns: Vec<Prompt>, api: Api, settings: Turns) -> Conversation {
        let mut conversation = Conversation::new(turns.into(), api, Some(&settings));
        conversation.skip_first();
        conversation
    }

    /// Ends a turn with a reply and renders another one.
    fn next(conversation: &mut Conversation, ended: (u32, &Message), turn: u32) -> Option<Prompt> {
        conversation.end_turn(&ended_turn(ended.0, ended.1), None);
        conversation.render(turn).unwrap()
    }

    fn user(text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    fn assistant(text: &str) -> Value {
        json!({ "role": "assistant", "content": text })
    }

    #[test]
    fn a_turn_has_all_messages_before_it() {
        let tool = json!({ "role": "tool", "tool_call_id": "1", "content": "22 C" });
        let third = Prompt {
            messages: Some(vec![tool.clone()]),
            ..Prompt::default()
        };
        let keep_reasoning = Turns {
            keep_reasoning: true,
            ..Turns::default()
        };
        let mut conversation = begun(
            vec![user_turn("a"), user_turn("b"), third],
            Api::OpenaiChat,
            keep_reasoning,
        );
        let one = json!({ "role": "assistant", "content": "1 \"é\"\n", "reasoning_content": "hm" });
        assert_eq!(
            messages(next(&mut conversation, (0, &reply("1 \"é\"\n")), 1)),
            json!([user("a"), one, user("b")])
        );
        let calls = json!([{ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
        let two = Message {
            tool_calls: calls.clone(),
            ..reply("")
        };
        let assistant = json!({ "role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": calls });
        assert_eq!(
            messages(next(&mut conversation, (1, &two), 2)),
            json!([user("a"), one, user("b"), assistant, tool])
        );
        assert_eq!(next(&mut conversation, (2, &reply("")), 3), None);
    }

    #[test]
    fn a_protocol_without_messages_gets_the_conversation_as_one_text() {
        for api in [Api::OpenaiCompletions, Api::Tgi] {
            let turns = vec![user_turn("a"), user_turn("b"), user_turn("c")];
            let mut conversation = begun(turns, api, Turns::default());
            let second = next(&mut conversation, (0, &reply("1")), 1).unwrap();
            assert_eq!((second.text.as_str(), second.messages), ("a\n1\nb", None));
            let third = next(&mut conversation, (1, &reply("2")), 2).unwrap();
            assert_eq!(third.text, "a\n1\nb\n2\nc");
        }
    }

    #[test]
    fn branches_share_the_history_before_them_and_quote_the_replies_that_they_join() {
        let linked =
            |text: &str, continues: Option<u32>, after: &[u32], replies: &[ReplySlot]| Prompt {
                messages: Some(vec![user(text)]),
                links: Some(Box::new(TurnLinks {
                    continues,
                    after: after.to_vec(),
                    replies: replies.to_vec(),
                })),
                ..Prompt::default()
            };
        let quote = ReplySlot {
            message: 0,
            turn: 2,
        };
        let turns = vec![
            linked("plan", None, &[], &[]),
            linked("branch", Some(0), &[], &[]),
            linked("sub-agent", None, &[0], &[]),
            linked("replaced", Some(1), &[2], &[quote]),
        ];
        let mut conversation = begun(turns, Api::OpenaiChat, Turns::default());
        let plan = [user("plan"), assistant("p")];
        let branch = next(&mut conversation, (0, &reply("p")), 1);
        assert_eq!(messages(branch), json!([plan[0], plan[1], user("branch")]));
        assert_eq!(
            messages(conversation.render(2).unwrap()),
            json!([user("sub-agent")])
        );
        let shared = |turn: usize| conversation.turns[turn].history.chunks().last().unwrap();
        assert!(
            std::ptr::eq(shared(0), shared(1)),
            "a branch copies no message"
        );
        conversation.end_turn(&ended_turn(2, &reply("found")), None);
        assert_eq!(
            messages(next(&mut conversation, (1, &reply("b")), 3)),
            json!([
                plan[0],
                plan[1],
                user("branch"),
                assistant("b"),
                user("found")
            ])
        );
        conversation.end_turn(&ended_turn(3, &reply("r")), None);
        let kept = conversation.turns.iter().map(|turn| turn.history.count());
        assert_eq!(
            kept.collect::<Vec<_>>(),
            [2, 4, 0, 0],
            "what no turn continues is not kept"
        );
    }

    #[test]
    fn turns_that_are_written_later_come_in_any_order() {
        let whole = |text: &str| Prompt {
            links: Some(Box::default()),
            ..user_turn(text)
        };
        let session = Session {
            turns: vec![whole("0")],
            later: Some(LaterTurns {
                count: 4,
                awaited: None,
                continues: false,
            }),
        };
        let mut conversation = Conversation::new(session, Api::OpenaiChat, None);
        conversation.skip_first();
        for turn in [3, 1, 2] {
            assert!(conversation.awaits_prompt(turn));
            conversation.add_prompt(turn, whole(&turn.to_string()));
            assert!(!conversation.awaits_prompt(turn));
            let sent = messages(conversation.render(turn).unwrap());
            assert_eq!(sent, json!([user(&turn.to_string())]));
        }
    }

    #[test]
    fn recorded_replies_are_the_history_whatever_the_server_replies() {
        let call = json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "x" }] });
        let recorded = |text: &str, recorded_reply: &[Value]| Prompt {
            recorded_reply: recorded_reply.to_vec(),
            ..user_turn(text)
        };
        let turns = vec![
            recorded("a", &[assistant("ra"), call.clone()]),
            recorded("b", &[assistant("rb")]),
            recorded("c", &[]),
        ];
        let settings = Turns {
            replies: Replies::Recorded,
            ..Turns::default()
        };
        let mut conversation = begun(turns.clone(), Api::OpenaiChat, settings.clone());
        assert_eq!(
            messages(next(&mut conversation, (0, &reply("live")), 1)),
            json!([user("a"), assistant("ra"), call, user("b")])
        );
        let all = json!([
            user("a"),
            assistant("ra"),
            call,
            user("b"),
            assistant("rb"),
            user("c")
        ]);
        assert_eq!(
            messages(next(&mut conversation, (1, &reply("live")), 2)),
            all
        );
        let mut later = Conversation::new(turns.into(), Api::OpenaiChat, Some(&settings));
        later.skip_to(2);
        assert_eq!(
            messages(later.render(2).unwrap()),
            all,
            "a session that begins at its last turn"
        );
    }

    #[test]
    fn a_truncated_turn_keeps_the_system_message_and_the_latest_turns() {
        let first = Prompt {
            system: Some("be terse".into()),
            ..user_turn("a")
        };
        let later = |text: &str, history_from| Prompt {
            history_from,
            ..user_turn(text)
        };
        let turns = vec![first, later("b", 0), later("c", 1), later("d", 3)];
        let mut conversation = begun(turns, Api::OpenaiChat, Turns::default());
        let mut turn = 0;
        let mut contents = |text: &str| {
            turn += 1;
            let all = messages(next(&mut conversation, (turn - 1, &reply(text)), turn));
            let text = |message: &Value| message["content"].as_str().unwrap().to_owned();
            all.as_array().unwrap().iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(contents("1"), ["be terse", "a", "1", "b"]);
        assert_eq!(contents("2"), ["be terse", "b", "2", "c"]);
        assert_eq!(contents("3"), ["be terse", "d"]);
    }

    #[test]
    fn a_truncated_turn_shares_the_system_message_alone() {
        let tokenizer = Tokenizer::builtin();
        for (system, shared) in [
            (Some("be terse"), tokenizer.count("be terse")),
            (None, Some(0)),
        ] {
            let first = Prompt {
                system: system.map(str::to_owned),
                ..user_turn("a")
            };
            let second = Prompt {
                history_from: 1,
                ..user_turn("b")
            };
            let mut conversation = begun(vec![first, second], Api::OpenaiChat, Turns::default());
            conversation.set_tokens(0, Some(9));
            assert_eq!(conversation.history_tokens(1, Some(&tokenizer)), shared);
            assert_eq!(
                conversation.history_tokens(0, Some(&tokenizer)),
                None,
                "rendered"
            );
        }
    }

    #[test]
    fn a_system_message_of_the_dataset_applies_from_its_turn_on() {
        let with = |text: &str, system: Option<&str>| Prompt {
            system: system.map(str::to_owned),
            ..user_turn(text)
        };
        let turns = vec![
            with("a", Some("one")),
            user_turn("b"),
            with("c", Some("two")),
        ];
        assert_eq!(
            prepare_first_turn(turns[0].clone(), false)
                .messages
                .unwrap()[0],
            json!({ "role": "system", "content": "one" })
        );
        let mut conversation = begun(turns, Api::OpenaiChat, Turns::default());
        let system = |prompt: Option<Prompt>| {
            let all = messages(prompt);
            let count = all
                .as_array()
                .unwrap()
                .iter()
                .filter(|message| message["role"] == "system")
                .count();
            (all[0]["content"].clone(), count)
        };
        assert_eq!(
            system(next(&mut conversation, (0, &reply("x")), 1)),
            (json!("one"), 1)
        );
        assert_eq!(
            system(next(&mut conversation, (1, &reply("y")), 2)),
            (json!("two"), 1)
        );
    }

    #[test]
    fn a_system_message_that_every_turn_repeats_is_sent_once() {
        let system = json!({ "role": "system", "content": "s" });
        let turn = Prompt {
            messages: Some(vec![system.clone(), user("u")]),
            ..Prompt::default()
        };
        let mut conversation = begun(vec![turn.clone(), turn], Api::OpenaiChat, Turns::default());
        assert_eq!(
            messages(next(&mut conversation, (0, &reply("r")), 1)),
            json!([system, user("u"), assistant("r"), user("u")])
        );
    }

    fn body_turn(text: &str) -> Prompt {
        let body = json!({ "top_k": 1, "messages": [user(text)] });
        Prompt {
            body: body.as_object().cloned(),
            ..Prompt::default()
        }
    }

    #[test]
    fn complete_bodies_get_the_messages_and_the_session_keeps_its_group() {
        let first = Prompt {
            model: Some("m".into()),
            group: Some("g".into()),
            ..body_turn("a")
        };
        let mut conversation = begun(
            vec![first, body_turn("b")],
            Api::OpenaiChat,
            Turns::default(),
        );
        let next = next(&mut conversation, (0, &reply("r")), 1).unwrap();
        assert_eq!(
            next.body.as_ref().unwrap()["messages"],
            json!([user("a"), assistant("r"), user("b")])
        );
        assert_eq!(
            (next.model.as_deref(), next.group.as_deref()),
            (None, Some("g")),
            "each turn has the model that its own row has"
        );
    }

    #[test]
    fn a_complete_body_gets_a_reply_in_the_form_of_its_protocol() {
        let used = json!({ "type": "tool_use", "id": "1", "name": "f", "input": {} });
        let called = Message {
            tool_calls: json!([used]),
            ..reply("I ask.")
        };
        let mut conversation = begun(
            ["a", "b", "c"].map(body_turn).to_vec(),
            Api::Anthropic,
            Turns::default(),
        );
        next(&mut conversation, (0, &called), 1).unwrap();
        let assistant =
            json!({ "role": "assistant", "content": [{ "type": "text", "text": "I ask." }, used] });
        let last = next(&mut conversation, (1, &reply("")), 2)
            .unwrap()
            .body
            .unwrap();
        let unanswered = json!({ "type": "tool_result", "tool_use_id": "1",
            "content": "The tool returned no result." });
        let unanswered = json!({ "role": "user", "content": [unanswered] });
        assert_eq!(
            last["messages"],
            json!([user("a"), assistant, unanswered, user("b"), user("c")]),
            "an empty reply adds no message"
        );
    }
}
