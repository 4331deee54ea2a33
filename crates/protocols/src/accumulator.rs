//! The state of one response over its messages: texts, finish reasons and token counts per choice.

use crate::raw_json::{Raw, decode_string, is_text};
use crate::usage::{RunningCounts, max_counts, merge_latest, sum_choices};
use crate::{Events, Message, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Usage};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Maximum number of choices per response, eight times the limit of OpenAI, so that a faulty server cannot fill the memory.
pub const MAX_CHOICES: usize = 1024;
/// Finish reasons of vLLM and SGLang for an aborted generation.
const ABORTED: [&str; 2] = ["abort", "error"];

/// The kind of generated content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// Reasoning before the answer.
    Reasoning,
    /// The answer, or the transcript of its audio.
    Answer,
    /// A refusal to answer.
    Refusal,
    /// The name or the arguments of a tool call.
    ToolCall,
    /// Audio: content, but no text.
    Audio,
}

/// The texts of one choice.
#[derive(Debug, Default)]
pub struct MessageText {
    /// Reasoning before the answer.
    pub reasoning: String,
    /// The answer.
    pub content: String,
    /// A refusal to answer.
    pub refusal: String,
    /// Names and arguments of tool calls that are not in `calls`.
    pub call_text: String,
    /// Tool calls, by their index in the events.
    pub calls: BTreeMap<u32, ToolCallText>,
}

/// One tool call.
#[derive(Debug, Default)]
pub struct ToolCallText {
    /// The API's type of the call.
    pub kind: String,
    /// Call id.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// Arguments, as generated.
    pub input: String,
}

impl MessageText {
    /// The latest call.
    pub fn latest_call(&self) -> Option<(u32, &ToolCallText)> {
        self.calls
            .last_key_value()
            .map(|(index, call)| (*index, call))
    }

    fn push(&mut self, kind: ContentKind, text: &str) {
        match kind {
            ContentKind::Reasoning => self.reasoning.push_str(text),
            ContentKind::Answer => self.content.push_str(text),
            ContentKind::Refusal => self.refusal.push_str(text),
            ContentKind::ToolCall => self.call_text.push_str(text),
            ContentKind::Audio => {}
        }
    }

    /// Adds a JSON string; the answer may be a list of text and reasoning parts.
    pub fn push_json(&mut self, kind: ContentKind, raw: &RawValue) {
        match kind == ContentKind::Answer && raw.get().starts_with('[') {
            true => self.push_parts(&serde_json::from_str(raw.get()).unwrap_or_default()),
            false => self.push(kind, &decode_string(raw)),
        }
    }

    fn push_parts(&mut self, parts: &Value) {
        for part in parts.as_array().into_iter().flatten() {
            push_texts(&part["text"], &mut self.content);
            push_texts(&part["thinking"], &mut self.reasoning);
        }
    }

    /// Appends all texts to `text`, in field order.
    fn append_to(&self, text: &mut String) {
        [
            &self.reasoning,
            &self.content,
            &self.refusal,
            &self.call_text,
        ]
        .into_iter()
        .for_each(|part| text.push_str(part));
        for call in self.calls.values() {
            text.push_str(&call.name);
            text.push_str(&call.input);
        }
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        let calls = self
            .calls
            .values()
            .all(|call| call.name.is_empty() && call.input.is_empty());
        calls
            && [
                &self.reasoning,
                &self.content,
                &self.refusal,
                &self.call_text,
            ]
            .into_iter()
            .all(|part| part.is_empty())
    }

    /// The text and the message of a reply with one choice, if they are collected.
    pub fn into_kept(
        self,
        keep_text: bool,
        call_json: impl Fn(ToolCallText) -> Option<Value>,
    ) -> (Option<String>, Option<Message>) {
        let mut text = String::new();
        self.append_to(&mut text);
        keep_text
            .then(|| (text, self.into_message(call_json)))
            .unzip()
    }

    /// The message for the next turn; `call_json` formats a tool call, or returns None for a call that is not sent back.
    fn into_message(self, call_json: impl Fn(ToolCallText) -> Option<Value>) -> Message {
        let calls: Vec<Value> = self.calls.into_values().filter_map(call_json).collect();
        let tool_calls = if calls.is_empty() {
            Value::Null
        } else {
            Value::Array(calls)
        };
        let content = if self.content.is_empty() {
            self.refusal
        } else {
            self.content
        };
        Message {
            content,
            reasoning: self.reasoning,
            tool_calls,
        }
    }
}

/// Appends a text, or the texts of a list of parts.
fn push_texts(value: &Value, text: &mut String) {
    match value {
        Value::String(value) => text.push_str(value),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .for_each(|part| text.push_str(part)),
        _ => {}
    }
}

/// The state of one choice.
#[derive(Debug, Default)]
pub struct ChoiceState {
    index: u32,
    finish_reason: Option<String>,
    usage: Usage,
    /// Its texts, if they are collected.
    pub text: MessageText,
    /// Its content in the current event; [`ContentKind::Reasoning`] if there is no other.
    pending: Option<ContentKind>,
    /// Its output tokens so far, and at the last content event.
    output_tokens: u64,
    emitted_tokens: u64,
}

impl ChoiceState {
    /// Sets the finish reason unless it is empty; the first one is kept.
    pub fn set_finish_reason(&mut self, reason: &str) {
        if self.finish_reason.is_none() && !reason.is_empty() {
            self.finish_reason = Some(reason.to_owned());
        }
    }
}

/// The state of one response.
#[derive(Debug, Default)]
pub struct Accumulator {
    keep_text: bool,
    id: Option<String>,
    choices: Vec<ChoiceState>,
    has_content: bool,
    /// Usage reports for the whole request: their number, the latest, and their sum.
    usage_reports: usize,
    latest_usage: Usage,
    summed_usage: Usage,
    running_counts: RunningCounts,
    /// What the server measured itself.
    pub server_times: ServerTimes,
}

impl Accumulator {
    /// An accumulator for a new response.
    pub fn new(keep_text: bool) -> Accumulator {
        Accumulator {
            keep_text,
            ..Accumulator::default()
        }
    }

    /// Whether texts are collected.
    pub fn keeps_text(&self) -> bool {
        self.keep_text
    }

    /// Sets the response id; the first non-empty one is kept.
    pub fn set_id(&mut self, raw: Raw<'_>) {
        if let (None, Some(raw)) = (&self.id, raw) {
            self.set_id_text(&decode_string(raw));
        }
    }

    /// Sets the response id; the first non-empty one is kept.
    pub fn set_id_text(&mut self, id: &str) {
        if self.id.is_none() && !id.is_empty() {
            self.id = Some(id.to_owned());
        }
    }

    /// The choice with this index, added if it is new. Choices are sorted by index.
    ///
    /// # Errors
    /// `decode`: there are too many. The same holds for everything else that names a choice.
    pub fn choice(&mut self, index: u32) -> Result<&mut ChoiceState, Failure> {
        let place = self.choices.partition_point(|choice| choice.index < index);
        if self
            .choices
            .get(place)
            .is_none_or(|choice| choice.index != index)
        {
            if self.choices.len() == MAX_CHOICES {
                return Err(Failure::new(
                    FailureKind::Decode,
                    format!("more than {MAX_CHOICES} choices in one response"),
                ));
            }
            self.choices.insert(
                place,
                ChoiceState {
                    index,
                    ..ChoiceState::default()
                },
            );
        }
        Ok(&mut self.choices[place])
    }

    /// Adds a content event of a choice; `count` is its running token count.
    pub fn emit(
        &mut self,
        choice: u32,
        kind: ContentKind,
        count: Option<u64>,
        events: &mut Events,
    ) {
        self.has_content = true;
        self.running_counts.add(choice, count);
        match kind {
            ContentKind::Reasoning => events.reasoning_token(choice),
            _ => events.token(choice),
        }
    }

    /// Marks that the current event has content of this choice; [`Accumulator::emit_pending`] adds it.
    pub fn mark(&mut self, choice: u32, kind: ContentKind) -> Result<(), Failure> {
        let pending = &mut self.choice(choice)?.pending;
        *pending = pending
            .filter(|earlier| *earlier != ContentKind::Reasoning)
            .or(Some(kind));
        self.has_content = true;
        Ok(())
    }

    /// Ends an event: adds a content event for each marked choice, with its tokens if the running count increased.
    pub fn emit_pending(&mut self, events: &mut Events) {
        for place in 0..self.choices.len() {
            let choice = &mut self.choices[place];
            let Some(kind) = choice.pending.take() else {
                continue;
            };
            let count = Some(choice.output_tokens).filter(|tokens| *tokens > choice.emitted_tokens);
            choice.emitted_tokens = choice.output_tokens;
            let index = choice.index;
            self.emit(index, kind, count, events);
        }
    }

    /// Collects the text of marked content.
    pub fn keep(&mut self, choice: u32, kind: ContentKind, text: &str) -> Result<(), Failure> {
        if self.keep_text {
            self.choice(choice)?.text.push(kind, text);
        }
        Ok(())
    }

    /// Marks and collects a non-empty JSON string; ignores anything else. The string is decoded only if it is collected.
    pub fn add_text(
        &mut self,
        choice: u32,
        kind: ContentKind,
        raw: Raw<'_>,
    ) -> Result<(), Failure> {
        let Some(raw) = raw.filter(|raw| is_text(raw)) else {
            return Ok(());
        };
        self.mark(choice, kind)?;
        match self.keep_text {
            true => self.keep(choice, kind, &decode_string(raw)),
            false => Ok(()),
        }
    }

    /// Adds a usage report. With a single choice it is the running count of that choice; otherwise it is for the request.
    pub fn add_usage(&mut self, choice: Option<u32>, usage: Usage) -> Result<(), Failure> {
        if usage == Usage::default() {
            return Ok(());
        }
        let Some(choice) = choice else {
            self.usage_reports += 1;
            self.latest_usage = merge_latest(self.latest_usage, usage);
            self.summed_usage = sum_choices(self.summed_usage, usage);
            return Ok(());
        };
        let choice = self.choice(choice)?;
        choice.usage = merge_latest(choice.usage, usage);
        choice.output_tokens = usage.output.unwrap_or(choice.output_tokens);
        Ok(())
    }

    /// Sets the output tokens of a choice so far, for APIs without running usage.
    pub fn set_output_tokens(&mut self, choice: u32, tokens: u64) -> Result<(), Failure> {
        self.choice(choice)?.output_tokens = tokens;
        Ok(())
    }

    /// Whether there was no choice.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// A choice without a finish reason.
    pub fn unfinished_choice(&self) -> Option<u32> {
        self.choices
            .iter()
            .find(|choice| choice.finish_reason.is_none())
            .map(|choice| choice.index)
    }

    /// The end of a complete response.
    ///
    /// # Errors `stream_error` if the server aborted, `empty` without content and finish reason.
    pub fn ending(&self) -> Result<Finish, Failure> {
        let mut reasons = self
            .choices
            .iter()
            .filter_map(|choice| choice.finish_reason.as_deref());
        if let Some(reason) = reasons.clone().find(|reason| ABORTED.contains(reason)) {
            return Err(Failure::new(
                FailureKind::StreamError,
                format!("the server finished with `{reason}`"),
            ));
        }
        finish(reasons.next(), self.has_content)
    }

    /// The end of a stream that is complete only with a finish reason for every choice.
    ///
    /// # Errors `truncated` if a reason is missing, and those of [`Accumulator::ending`].
    pub fn ending_with_reasons(&self) -> Result<Finish, Failure> {
        let truncated = |message: String| Err(Failure::new(FailureKind::Truncated, message));
        match self.unfinished_choice() {
            _ if self.is_empty() => truncated("the stream ended before its first choice".into()),
            Some(choice) => truncated(format!(
                "the stream ended without a finish reason for choice {choice}"
            )),
            None => self.ending(),
        }
    }

    /// The tokens in each content event, if all have running counts; otherwise empty.
    pub fn weights(&self) -> Vec<u32> {
        self.running_counts.weights(self.latest_usage.output)
    }

    /// The token counts of the request.
    ///
    /// vLLM sends one total after the last choice. llama-server sends one count per choice in separate events, or, for text
    /// completions, with the last text of each choice.
    pub fn usage(&self) -> Usage {
        let join = if self
            .running_counts
            .count_the_request(self.latest_usage.output)
        {
            max_counts
        } else {
            sum_choices
        };
        let choices = self
            .choices
            .iter()
            .map(|choice| choice.usage)
            .fold(Usage::default(), join);
        match self.usage_reports {
            0 => choices,
            reports if reports > 1 && reports == self.choices.len() => {
                merge_latest(choices, self.summed_usage)
            }
            _ => merge_latest(choices, self.latest_usage),
        }
    }

    /// The reply, with this end. `call_json` formats a tool call for the next turn.
    pub fn into_reply(
        self,
        end: Result<Finish, Failure>,
        call_json: impl Fn(ToolCallText) -> Option<Value>,
    ) -> Reply {
        let usage = self.usage();
        let mut text = None;
        let mut message = None;
        if self.keep_text {
            let collected = text.insert(String::new());
            self.choices
                .iter()
                .for_each(|choice| choice.text.append_to(collected));
            message = Some(
                self.choices
                    .into_iter()
                    .next()
                    .unwrap_or_default()
                    .text
                    .into_message(call_json),
            );
        }
        Reply {
            end,
            usage,
            id: self.id,
            text,
            message,
            server: self.server_times,
            items: None,
            silent: !self.has_content,
        }
    }

    /// The reply, with this end and these tool calls of the first choice.
    pub fn into_reply_with_calls(self, end: Result<Finish, Failure>, calls: Vec<Value>) -> Reply {
        let mut reply = self.into_reply(end, |_| None);
        if let Some(message) = reply.message.as_mut().filter(|_| !calls.is_empty()) {
            message.tool_calls = Value::Array(calls);
        }
        reply
    }
}

/// The end of a complete response. A response without content is successful if it has a finish reason.
///
/// # Errors `empty`: no content and no finish reason.
pub fn finish(reason: Option<&str>, has_content: bool) -> Result<Finish, Failure> {
    match reason.filter(|reason| !reason.is_empty()) {
        None if !has_content => Err(Failure::new(
            FailureKind::Empty,
            "the response is complete, but has neither content nor a finish reason",
        )),
        reason => Ok(Finish {
            reason: reason.unwrap_or_default().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events with content of choice 0 and this running count.
    fn weights(counts: &[Option<u64>]) -> Vec<u32> {
        let (mut accumulator, mut events) = (Accumulator::new(false), Events::default());
        for count in counts {
            accumulator.mark(0, ContentKind::Answer).unwrap();
            accumulator
                .add_usage(
                    Some(0),
                    Usage {
                        output: *count,
                        ..Usage::default()
                    },
                )
                .unwrap();
            accumulator.emit_pending(&mut events);
        }
        assert_eq!(events.content as usize, counts.len());
        accumulator.weights()
    }

    #[test]
    fn tokens_of_an_event_are_the_increase_of_the_running_count() {
        assert_eq!(weights(&[Some(1), Some(4), Some(5)]), [1, 3, 1]);
        assert_eq!(weights(&[Some(1), None, Some(5)]), [0u32; 0]);
        assert_eq!(weights(&[Some(1), Some(1)]), [0u32; 0]);
        assert_eq!(weights(&[Some(2), Some(1)]), [0u32; 0]);
        assert_eq!(weights(&[None]), [0u32; 0]);
    }

    #[test]
    fn the_number_of_choices_is_limited() {
        let mut accumulator = Accumulator::new(false);
        (0..1024).for_each(|choice| accumulator.choice(choice).map(drop).unwrap());
        assert!(accumulator.choice(3).is_ok());
        assert_eq!(
            accumulator.choice(1024).unwrap_err().message,
            "more than 1024 choices in one response"
        );
    }

    #[test]
    fn the_text_is_that_of_all_choices_and_the_message_that_of_the_first() {
        let mut accumulator = Accumulator::new(true);
        for (choice, kind, text) in [
            (1, ContentKind::Answer, "x"),
            (0, ContentKind::Answer, "b"),
            (0, ContentKind::Reasoning, "a"),
            (0, ContentKind::ToolCall, "f"),
        ] {
            accumulator.keep(choice, kind, text).unwrap();
        }
        let reply = accumulator.into_reply(Ok(Finish::default()), |_| None);
        assert_eq!(reply.text.as_deref(), Some("abfx"));
        let message = Message {
            content: "b".into(),
            reasoning: "a".into(),
            tool_calls: Value::Null,
        };
        assert_eq!(reply.message, Some(message));
    }

    #[test]
    fn texts_are_joined_in_order_and_a_refusal_replaces_missing_content() {
        let mut text = MessageText {
            content: "a".into(),
            reasoning: "r".into(),
            refusal: "no".into(),
            ..MessageText::default()
        };
        text.calls.entry(1).or_default().name = "g".into();
        text.calls.entry(0).or_default().input = "0".into();
        text.calls.entry(1).or_default().input.push('1');
        let mut all = String::new();
        text.append_to(&mut all);
        assert_eq!(all, "rano0g1");
        assert_eq!(
            text.latest_call()
                .map(|(index, call)| (index, call.name.as_str())),
            Some((1, "g"))
        );
        let message =
            text.into_message(|call| (call.name == "g").then_some(Value::String(call.input)));
        assert_eq!(
            (message.content.as_str(), message.reasoning.as_str()),
            ("a", "r")
        );
        assert_eq!(message.tool_calls, serde_json::json!(["1"]));
        let refused = MessageText {
            refusal: "no".into(),
            ..MessageText::default()
        }
        .into_message(|_| None);
        assert_eq!(
            refused,
            Message {
                content: "no".into(),
                ..Message::default()
            }
        );
    }

    #[test]
    fn lists_of_parts_are_collected() {
        let mut text = MessageText::default();
        for raw in [
            r#"[{"type":"thinking","thinking":[{"type":"text","text":"r"}]},{"type":"text","text":"a"}]"#,
            r#"[{"type":"text","text":"b"},{"type":"image_url","image_url":{}},7]"#,
            r#""c""#,
        ] {
            text.push_json(ContentKind::Answer, serde_json::from_str(raw).unwrap());
        }
        assert_eq!(
            (text.reasoning.as_str(), text.content.as_str()),
            ("r", "abc")
        );
    }
}
