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
mod tests;
