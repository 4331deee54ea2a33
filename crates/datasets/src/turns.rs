//! Conversations as turns.
//!
//! A turn is what is said between two replies: a message of the user, the results of tools, or several of them. Replies of
//! the data are left out, because the server's own take their place. A message of the user or a tool may also have
//! `max_tokens` (of the reply to it), `wait` or `delay` (think time or tool latency before it: seconds, or `2s`) and
//! `system` (the system message from there on).

use super::file::parse_count;
use super::message::last_user;
use crate::token::text_of;
use llmscen_core::prompt::Prompt;
use llmscen_core::units::Nanos;
use llmscen_core::units::parse_duration;
use serde_json::{Map, Value};
use std::sync::Arc;

/// One message, and what the data says of its turn.
#[derive(Debug, PartialEq)]
pub struct Message {
    message: Value,
    max_tokens: Option<u64>,
    wait: Option<Nanos>,
    system: Option<String>,
}

impl Message {
    /// A message with a `role`; what is said of its turn is taken out of it.
    pub fn new(message: &Value) -> Result<Message, String> {
        let Some(mut own) = message.as_object().filter(|own| own.get("role").is_some_and(Value::is_string)).cloned() else {
            return Err("a message without a `role`".into());
        };
        Ok(Message {
            max_tokens: take(&mut own, &["max_tokens", "output_tokens"], "a whole number", parse_count)?,
            wait: take(&mut own, &["wait", "delay"], "a time such as `2s`, or seconds", span)?,
            system: take(&mut own, &["system"], "a text", |value| value.as_str().map(str::to_owned))?,
            message: Value::Object(own),
        })
    }

    fn role(&self) -> &str {
        self.message.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a reply is expected to it.
    fn needs_reply(&self) -> bool {
        matches!(self.role(), "user" | "tool" | "function")
    }

    fn is_reply(&self) -> bool {
        self.role() == "assistant"
    }
}

fn take<T>(own: &mut Map<String, Value>, keys: &[&str], what: &str, read: fn(&Value) -> Option<T>) -> Result<Option<T>, String> {
    let mut found = None;
    for key in keys {
        match own.shift_remove(*key).filter(|value| !value.is_null()) {
            Some(value) => found = Some(read(&value).ok_or_else(|| format!("`{key}` of a message is not {what}"))?),
            None => continue,
        }
    }
    Ok(found)
}

/// Seconds as a number, or a text with its unit.
pub fn span(value: &Value) -> Option<Nanos> {
    match value {
        Value::Number(seconds) => seconds.as_f64().filter(|seconds| *seconds >= 0.0).map(Nanos::from_secs_f64),
        Value::String(text) => match text.trim().parse::<f64>() {
            Ok(seconds) => (seconds >= 0.0).then(|| Nanos::from_secs_f64(seconds)),
            Err(_) => parse_duration(text),
        },
        _ => None,
    }
}

/// One turn.
#[derive(Debug, Default, PartialEq)]
pub struct Turn {
    /// The messages that follow the reply to the turn before.
    pub messages: Vec<Value>,
    /// What the data has for a reply.
    pub reply: Option<String>,
    max_tokens: Option<u64>,
    wait: Option<Nanos>,
    system: Option<String>,
}

impl Turn {
    fn add(&mut self, message: Message) {
        self.messages.push(message.message);
        self.max_tokens = message.max_tokens.or(self.max_tokens);
        self.wait = self.wait.or(message.wait);
        self.system = message.system.or(self.system.take());
    }

    /// As a prompt, with the row that it comes from.
    pub fn prompt(self, fields: Arc<Map<String, Value>>) -> Prompt {
        let Turn { messages, max_tokens, wait, system, .. } = self;
        Prompt { text: last_user(&messages), messages: Some(messages), max_tokens, wait, system, fields, ..Prompt::default() }
    }
}

/// The turns of a conversation. Replies before the first turn are part of it; messages without a reply to come are left out.
pub fn split(messages: Vec<Message>) -> Vec<Turn> {
    let (mut turns, mut turn, mut asked): (Vec<Turn>, Turn, bool) = (Vec::new(), Turn::default(), false);
    for message in messages {
        if message.is_reply() && asked {
            turn.reply = Some(text_of(&message.message));
            turns.push(std::mem::take(&mut turn));
            asked = false;
        } else if !message.is_reply() || turns.is_empty() {
            asked |= message.needs_reply();
            turn.add(message);
        }
    }
    turns.extend(asked.then_some(turn));
    turns
}

/// The conversation up to the last message that wants a reply, as one turn; None where there is none.
pub fn as_one_turn(mut messages: Vec<Message>) -> Option<Turn> {
    let last = messages.iter().rposition(Message::needs_reply)?;
    let mut turn = Turn { reply: messages.get(last + 1).map(|next| text_of(&next.message)), ..Turn::default() };
    messages.truncate(last + 1);
    let wait = messages[last].wait;
    messages.into_iter().for_each(|message| turn.add(message));
    Some(Turn { wait, ..turn })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(list: &Value) -> Vec<Message> {
        list.as_array().unwrap().iter().map(|message| Message::new(message).unwrap()).collect()
    }

    fn messages(turns: &[Turn]) -> Vec<Vec<&str>> {
        turns.iter().map(|turn| turn.messages.iter().map(|message| message["content"].as_str().unwrap()).collect()).collect()
    }

    fn talk() -> Value {
        json!([
            { "role": "system", "content": "s" },
            { "role": "user", "content": "q1", "max_tokens": 5 },
            { "role": "assistant", "content": "a1" },
            { "role": "assistant", "content": "a1, more" },
            { "role": "tool", "content": "t1", "tool_call_id": "x", "wait": "1.5s" },
            { "role": "tool", "content": "t2", "delay": 9 },
            { "role": "assistant", "content": "a2" },
            { "role": "user", "content": "q2", "delay": 2, "system": "s2", "output_tokens": "7" },
            { "role": "system", "content": "late" },
        ])
    }

    #[test]
    fn a_turn_is_what_stands_between_two_replies() {
        let turns = split(read(&talk()));
        assert_eq!(messages(&turns), [vec!["s", "q1"], vec!["t1", "t2"], vec!["q2", "late"]]);
        let replies: Vec<Option<&str>> = turns.iter().map(|turn| turn.reply.as_deref()).collect();
        assert_eq!(replies, [Some("a1"), Some("a2"), None]);
        assert_eq!(turns[1].messages[0], json!({ "role": "tool", "content": "t1", "tool_call_id": "x" }));
        let prompts: Vec<Prompt> = turns.into_iter().map(|turn| turn.prompt(Arc::default())).collect();
        assert_eq!(prompts.iter().map(|prompt| prompt.text.as_str()).collect::<Vec<_>>(), ["q1", "", "q2"]);
        assert_eq!(prompts.iter().map(|prompt| prompt.max_tokens).collect::<Vec<_>>(), [Some(5), None, Some(7)]);
        let waits: Vec<Option<f64>> = prompts.iter().map(|prompt| prompt.wait.map(Nanos::secs)).collect();
        assert_eq!(waits, [None, Some(1.5), Some(2.0)]);
        assert_eq!(prompts[2].system.as_deref(), Some("s2"));
    }

    #[test]
    fn what_stands_before_the_first_question_or_wants_no_reply_makes_no_turn() {
        let list = json!([
            { "role": "assistant", "content": "Hello." },
            { "role": "user", "content": "q" },
            { "role": "assistant", "content": "a" },
            { "role": "system", "content": "late" },
        ]);
        assert_eq!(messages(&split(read(&list))), [["Hello.", "q"]]);
        assert_eq!(split(read(&json!([{ "role": "assistant", "content": "x" }]))), []);
    }

    #[test]
    fn as_one_request_a_conversation_ends_with_its_last_question() {
        let turn = as_one_turn(read(&talk())).unwrap();
        assert_eq!(turn.messages.last().unwrap()["content"], "q2");
        assert_eq!((turn.messages.len(), turn.wait, turn.max_tokens), (8, Some(Nanos::from_millis(2000)), Some(7)));
        assert_eq!(as_one_turn(read(&json!([{ "role": "system", "content": "x" }]))), None);
    }

    #[test]
    fn a_message_that_is_none_is_told() {
        let error = |message: Value| Message::new(&message).unwrap_err();
        assert_eq!(error(json!({ "content": "x" })), "a message without a `role`");
        assert_eq!(
            error(json!({ "role": "user", "wait": "soon" })),
            "`wait` of a message is not a time such as `2s`, or seconds"
        );
        assert_eq!(error(json!({ "role": "user", "max_tokens": 1.5 })), "`max_tokens` of a message is not a whole number");
    }
}
