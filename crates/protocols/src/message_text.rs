//! What one answer says, part by part, where its text is kept.

use crate::Message;
use crate::chunk::text_of;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The texts of one answer.
#[derive(Debug, Default)]
pub struct Said {
    /// The reasoning in front of it.
    pub reasoning: String,
    /// The answer itself.
    pub content: String,
    /// Why there is no answer.
    pub refusal: String,
    /// Name and arguments of the one function of OpenAI's older protocol.
    pub function: String,
    /// Tool calls, by the number that the events give them.
    pub calls: BTreeMap<u32, Call>,
}

/// One tool call.
#[derive(Debug, Default)]
pub struct Call {
    /// The protocol's word for what it is.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments, as they were generated.
    pub input: String,
}

impl Said {
    /// The latest call.
    pub fn latest_call(&self) -> Option<(u32, &Call)> {
        self.calls.last_key_value().map(|(index, call)| (*index, call))
    }

    /// Adds content: a text, or a list of parts that are text or reasoning.
    pub fn add_content(&mut self, raw: &RawValue) {
        match raw.get().starts_with('[') {
            true => self.add_parts(&serde_json::from_str(raw.get()).unwrap_or_default()),
            false => self.content.push_str(&text_of(raw)),
        }
    }

    fn add_parts(&mut self, parts: &Value) {
        for part in parts.as_array().into_iter().flatten() {
            texts(&part["text"], &mut self.content);
            texts(&part["thinking"], &mut self.reasoning);
        }
    }

    /// All of it, in the order of the fields.
    pub fn tell(&self, text: &mut String) {
        [&self.reasoning, &self.content, &self.refusal, &self.function].into_iter().for_each(|part| text.push_str(part));
        for call in self.calls.values() {
            text.push_str(&call.name);
            text.push_str(&call.input);
        }
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        let calls = self.calls.values().all(|call| call.name.is_empty() && call.input.is_empty());
        calls && [&self.reasoning, &self.content, &self.refusal, &self.function].into_iter().all(|part| part.is_empty())
    }

    /// The text and the message of a reply with one answer, if they are kept.
    pub fn kept(self, keep_text: bool, whole: impl Fn(Call) -> Option<Value>) -> (Option<String>, Option<Message>) {
        let mut text = String::new();
        self.tell(&mut text);
        keep_text.then(|| (text, self.message(whole))).unzip()
    }

    /// The message that the next turn sees; `whole` gives a call the protocol's shape, or nothing where it is not fed back.
    pub fn message(self, whole: impl Fn(Call) -> Option<Value>) -> Message {
        let calls: Vec<Value> = self.calls.into_values().filter_map(whole).collect();
        let tool_calls = if calls.is_empty() { Value::Null } else { Value::Array(calls) };
        let content = if self.content.is_empty() { self.refusal } else { self.content };
        Message { content, reasoning: self.reasoning, tool_calls }
    }
}

/// A text, or the texts of a list of parts.
fn texts(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => into.push_str(text),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).for_each(|text| into.push_str(text)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_in_order_and_a_refusal_stands_for_missing_content() {
        let mut said = Said { content: "a".into(), reasoning: "r".into(), refusal: "no".into(), ..Said::default() };
        said.calls.entry(1).or_default().name = "g".into();
        said.calls.entry(0).or_default().input = "0".into();
        said.calls.entry(1).or_default().input.push('1');
        let mut text = String::new();
        said.tell(&mut text);
        assert_eq!(text, "rano0g1");
        assert_eq!(said.latest_call().map(|(index, call)| (index, call.name.as_str())), Some((1, "g")));
        let message = said.message(|call| (call.name == "g").then_some(Value::String(call.input)));
        assert_eq!((message.content.as_str(), message.reasoning.as_str()), ("a", "r"));
        assert_eq!(message.tool_calls, serde_json::json!(["1"]));
        let refused = Said { refusal: "no".into(), ..Said::default() }.message(|_| None);
        assert_eq!(refused, Message { content: "no".into(), ..Message::default() });
    }

    #[test]
    fn lists_of_parts_are_read() {
        let mut said = Said::default();
        for raw in [
            r#"[{"type":"thinking","thinking":[{"type":"text","text":"r"}]},{"type":"text","text":"a"}]"#,
            r#"[{"type":"text","text":"b"},{"type":"image_url","image_url":{}},7]"#,
            r#""c""#,
        ] {
            said.add_content(serde_json::from_str(raw).unwrap());
        }
        assert_eq!((said.reasoning.as_str(), said.content.as_str()), ("r", "abc"));
    }
}
