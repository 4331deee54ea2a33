//! The conversation of a session: its messages so far and the next prompt.

use llmscen_core::api::Api;
use llmscen_core::dataset::{Prompt, Session};
use llmscen_protocols::Message;
use llmscen_scenario::render::spoken;
use serde_json::{Value, json};

/// The conversation of one session up to a turn.
#[derive(Debug)]
pub struct Conversation {
    turns: std::vec::IntoIter<Prompt>,
    /// All messages so far, replies included. The template adds the system message of the case.
    messages: Vec<Value>,
    /// Index of the first message of each turn so far.
    turn_starts: Vec<usize>,
    api: Api,
    model: Option<String>,
    group: Option<String>,
}

/// The first turn of a session as it is sent: a system message of the dataset becomes its first message.
pub fn prepare_first_turn(mut first: Prompt) -> Prompt {
    if let Some(system) = first.system.as_deref().filter(|_| first.body.is_none()) {
        let mut messages = messages_of(&first);
        set_system_message(&mut messages, system);
        first.messages = Some(messages);
    }
    first
}

impl Conversation {
    /// The conversation after the first turn; None if the session has no turn.
    pub fn begin(session: Session, api: Api) -> Option<Conversation> {
        let mut turns = session.turns.into_iter();
        let first = prepare_first_turn(turns.next()?);
        let messages = messages_of(&first);
        Some(Conversation {
            turn_starts: vec![usize::from(messages.first().is_some_and(is_system))],
            messages,
            turns,
            api,
            model: first.model,
            group: first.group,
        })
    }

    /// The next turn as the dataset has it.
    pub fn upcoming(&mut self) -> Option<&mut Prompt> {
        self.turns.as_mut_slice().first_mut()
    }

    /// The next turn, with all messages before it; None after the last turn.
    pub fn next(&mut self, reply: &Message, keep_reasoning: bool) -> Option<Prompt> {
        let mut prompt = self.turns.next()?;
        let reply = reply_message(reply, keep_reasoning);
        // The renderer converts a list of messages to the form of the protocol. A complete body must already have that form.
        match prompt.body {
            Some(_) => self.messages.extend(spoken(self.api, vec![reply])),
            None => self.messages.push(reply),
        }
        let mut added = messages_of(&prompt);
        // A dataset may repeat the system message in every turn.
        if added
            .first()
            .is_some_and(|first| is_system(first) && self.messages.first() == Some(first))
        {
            added.remove(0);
        }
        self.turn_starts.push(self.messages.len());
        self.messages.extend(added);
        self.remove_turns_before(prompt.history_from as usize);
        if let Some(system) = &prompt.system {
            set_system_message(&mut self.messages, system);
        }
        match prompt.body.as_mut() {
            Some(body) => {
                _ = body.insert("messages".to_owned(), Value::Array(self.messages.clone()))
            }
            None => prompt.messages = Some(self.messages.clone()),
        }
        prompt.model = prompt.model.or_else(|| self.model.clone());
        prompt.group = prompt.group.or_else(|| self.group.clone());
        Some(prompt)
    }

    /// Removes the messages of the turns before `oldest`, except the system message.
    fn remove_turns_before(&mut self, oldest: usize) {
        let first = usize::from(self.messages.first().is_some_and(is_system));
        let Some(end) = self
            .turn_starts
            .get(oldest)
            .copied()
            .filter(|end| *end > first)
        else {
            return;
        };
        self.messages.drain(first..end);
        for start in &mut self.turn_starts {
            *start = start.saturating_sub(end - first).max(first);
        }
    }
}

/// The messages that a turn adds to the conversation.
fn messages_of(prompt: &Prompt) -> Vec<Value> {
    let body = prompt
        .body
        .as_ref()
        .and_then(|body| body.get("messages"))
        .and_then(Value::as_array);
    match prompt.messages.as_ref().or(body) {
        Some(messages) => messages.clone(),
        None => vec![json!({ "role": "user", "content": prompt.text })],
    }
}

/// A reply as a chat message; tool calls keep the form of their protocol. The content of a reply that only calls tools is null, as in
/// the reply itself.
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

    fn messages(prompt: Option<Prompt>) -> Value {
        prompt.unwrap().messages.unwrap().into()
    }

    #[test]
    fn a_turn_has_all_messages_before_it() {
        let tool = json!({ "role": "tool", "tool_call_id": "1", "content": "22 C" });
        let third = Prompt {
            messages: Some(vec![tool.clone()]),
            ..Prompt::default()
        };
        let mut conversation = Conversation::begin(
            Session {
                turns: vec![user_turn("a"), user_turn("b"), third],
            },
            Api::OpenaiChat,
        )
        .unwrap();
        let [a, b] = ["a", "b"].map(|text| json!({ "role": "user", "content": text }));
        let one = json!({ "role": "assistant", "content": "1 \"é\"\n" });
        assert_eq!(
            messages(conversation.next(&reply("1 \"é\"\n"), false)),
            json!([a, one, b])
        );
        let calls = json!([{ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
        let two = Message {
            tool_calls: calls.clone(),
            ..reply("")
        };
        let assistant = json!({ "role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": calls });
        assert_eq!(
            messages(conversation.next(&two, true)),
            json!([a, one, b, assistant, tool])
        );
        assert_eq!(conversation.next(&reply(""), false), None);
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
        let mut conversation = Conversation::begin(Session { turns }, Api::OpenaiChat).unwrap();
        let mut contents = |text: &str| {
            let all = messages(conversation.next(&reply(text), false));
            let text = |message: &Value| message["content"].as_str().unwrap().to_owned();
            all.as_array().unwrap().iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(contents("1"), ["be terse", "a", "1", "b"]);
        assert_eq!(contents("2"), ["be terse", "b", "2", "c"]);
        assert_eq!(contents("3"), ["be terse", "d"]);
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
            prepare_first_turn(turns[0].clone()).messages.unwrap()[0],
            json!({ "role": "system", "content": "one" })
        );
        let mut conversation = Conversation::begin(Session { turns }, Api::OpenaiChat).unwrap();
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
            system(conversation.next(&reply("x"), false)),
            (json!("one"), 1)
        );
        assert_eq!(
            system(conversation.next(&reply("y"), false)),
            (json!("two"), 1)
        );
    }

    #[test]
    fn a_system_message_that_every_turn_repeats_is_sent_once() {
        let (system, user) = (
            json!({ "role": "system", "content": "s" }),
            json!({ "role": "user", "content": "u" }),
        );
        let turn = Prompt {
            messages: Some(vec![system.clone(), user.clone()]),
            ..Prompt::default()
        };
        let mut conversation = Conversation::begin(
            Session {
                turns: vec![turn.clone(), turn],
            },
            Api::OpenaiChat,
        )
        .unwrap();
        let assistant = json!({ "role": "assistant", "content": "r" });
        assert_eq!(
            messages(conversation.next(&reply("r"), false)),
            json!([system, user, assistant, user])
        );
    }

    #[test]
    fn complete_bodies_get_the_messages_and_the_session_keeps_its_model() {
        let body = |text: &str| {
            json!({ "top_k": 1, "messages": [{ "role": "user", "content": text }] })
                .as_object()
                .cloned()
        };
        let turn = |text: &str| Prompt {
            body: body(text),
            ..Prompt::default()
        };
        let first = Prompt {
            model: Some("m".into()),
            group: Some("g".into()),
            ..turn("a")
        };
        let mut conversation = Conversation::begin(
            Session {
                turns: vec![first, turn("b")],
            },
            Api::OpenaiChat,
        )
        .unwrap();
        let next = conversation.next(&reply("r"), false).unwrap();
        let texts: Vec<&Value> = next.body.as_ref().unwrap()["messages"]
            .as_array()
            .unwrap()
            .iter()
            .collect();
        assert_eq!(
            texts
                .iter()
                .map(|message| &message["content"])
                .collect::<Vec<_>>(),
            ["a", "r", "b"]
        );
        assert_eq!(
            (next.model.as_deref(), next.group.as_deref()),
            (Some("m"), Some("g"))
        );
    }

    #[test]
    fn a_complete_body_gets_a_reply_in_the_form_of_its_protocol() {
        let body = |text: &str| {
            json!({ "messages": [{ "role": "user", "content": text }] })
                .as_object()
                .cloned()
        };
        let turn = |text: &str| Prompt {
            body: body(text),
            ..Prompt::default()
        };
        let used = json!({ "type": "tool_use", "id": "1", "name": "f", "input": {} });
        let called = Message {
            tool_calls: json!([used]),
            ..reply("I ask.")
        };
        let mut conversation = Conversation::begin(
            Session {
                turns: ["a", "b", "c"].map(turn).to_vec(),
            },
            Api::Anthropic,
        )
        .unwrap();
        conversation.next(&called, false).unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|text| json!({ "role": "user", "content": text }));
        let assistant =
            json!({ "role": "assistant", "content": [{ "type": "text", "text": "I ask." }, used] });
        let last = conversation.next(&reply(""), false).unwrap().body.unwrap();
        assert_eq!(
            last["messages"],
            json!([a, assistant, b, c]),
            "an empty reply adds no message"
        );
    }
}
