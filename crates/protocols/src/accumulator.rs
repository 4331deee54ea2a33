//! What the messages of one response add up to: texts, finish reasons and token counts, choice by choice.

use crate::raw_json::{Raw, is_text, text_of};
use crate::usage::{RunningCounts, latest, most, together};
use crate::{Events, Message, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Usage};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The most choices of one response, eight times what OpenAI allows: a server that numbers on must not fill the memory.
pub const MAX_CHOICES: usize = 1024;
/// Finish reasons of vLLM and SGLang for a generation that they gave up.
const ABORTED: [&str; 2] = ["abort", "error"];

/// What a piece of generated content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// The reasoning in front of the answer.
    Reasoning,
    /// The answer itself, or the transcript of its audio.
    Answer,
    /// Why there is no answer.
    Refusal,
    /// The name or the arguments of a tool call.
    ToolCall,
    /// Audio: content, but no text.
    Audio,
}

/// The texts of one choice.
#[derive(Debug, Default)]
pub struct MessageText {
    /// The reasoning in front of the answer.
    pub reasoning: String,
    /// The answer itself.
    pub content: String,
    /// Why there is no answer.
    pub refusal: String,
    /// Names and arguments of tool calls that are not among `calls`.
    pub call_text: String,
    /// Tool calls, by the number that the events give them.
    pub calls: BTreeMap<u32, ToolCallText>,
}

/// One tool call.
#[derive(Debug, Default)]
pub struct ToolCallText {
    /// The protocol's word for what it is.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments, as they were generated.
    pub input: String,
}

impl MessageText {
    /// The latest call.
    pub fn latest_call(&self) -> Option<(u32, &ToolCallText)> {
        self.calls.last_key_value().map(|(index, call)| (*index, call))
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

    /// Adds a JSON text; the answer may be a list of parts that are text or reasoning.
    pub fn push_json(&mut self, kind: ContentKind, raw: &RawValue) {
        match kind == ContentKind::Answer && raw.get().starts_with('[') {
            true => self.push_parts(&serde_json::from_str(raw.get()).unwrap_or_default()),
            false => self.push(kind, &text_of(raw)),
        }
    }

    fn push_parts(&mut self, parts: &Value) {
        for part in parts.as_array().into_iter().flatten() {
            push_texts(&part["text"], &mut self.content);
            push_texts(&part["thinking"], &mut self.reasoning);
        }
    }

    /// Appends all of it to `text`, in the order of the fields.
    fn append_to(&self, text: &mut String) {
        [&self.reasoning, &self.content, &self.refusal, &self.call_text].into_iter().for_each(|part| text.push_str(part));
        for call in self.calls.values() {
            text.push_str(&call.name);
            text.push_str(&call.input);
        }
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        let calls = self.calls.values().all(|call| call.name.is_empty() && call.input.is_empty());
        calls && [&self.reasoning, &self.content, &self.refusal, &self.call_text].into_iter().all(|part| part.is_empty())
    }

    /// The text and the message of a reply with one choice, if they are kept.
    pub fn into_kept(
        self,
        keep_text: bool,
        call_json: impl Fn(ToolCallText) -> Option<Value>,
    ) -> (Option<String>, Option<Message>) {
        let mut text = String::new();
        self.append_to(&mut text);
        keep_text.then(|| (text, self.into_message(call_json))).unzip()
    }

    /// The message that the next turn sends; `call_json` gives a call the protocol's form, or None where it is not sent back.
    fn into_message(self, call_json: impl Fn(ToolCallText) -> Option<Value>) -> Message {
        let calls: Vec<Value> = self.calls.into_values().filter_map(call_json).collect();
        let tool_calls = if calls.is_empty() { Value::Null } else { Value::Array(calls) };
        let content = if self.content.is_empty() { self.refusal } else { self.content };
        Message { content, reasoning: self.reasoning, tool_calls }
    }
}

/// Appends a text, or the texts of a list of parts.
fn push_texts(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => into.push_str(text),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).for_each(|text| into.push_str(text)),
        _ => {}
    }
}

/// One choice of the response.
#[derive(Debug, Default)]
pub struct ChoiceState {
    index: u32,
    finish_reason: Option<String>,
    usage: Usage,
    /// Its texts, where they are kept.
    pub text: MessageText,
    /// The content of it in the event that is being read; [`ContentKind::Reasoning`] where there is nothing else.
    pending: Option<ContentKind>,
    /// Its output tokens so far, and those when content last arrived.
    output_tokens: u64,
    emitted_tokens: u64,
}

impl ChoiceState {
    /// Sets why the choice ended; empty: it has not. The first reason stays.
    pub fn set_finish_reason(&mut self, reason: &str) {
        if self.finish_reason.is_none() && !reason.is_empty() {
            self.finish_reason = Some(reason.to_owned());
        }
    }
}

/// What the messages of one response add up to.
#[derive(Debug, Default)]
pub struct Accumulator {
    keep_text: bool,
    id: Option<String>,
    choices: Vec<ChoiceState>,
    has_content: bool,
    /// Reports of usage that belong to no single choice: how many, the latest, and their sum.
    usage_reports: usize,
    latest_usage: Usage,
    summed_usage: Usage,
    running_counts: RunningCounts,
    /// What the server measured itself.
    pub server_times: ServerTimes,
}

impl Accumulator {
    /// An accumulator without any message.
    pub fn new(keep_text: bool) -> Accumulator {
        Accumulator { keep_text, ..Accumulator::default() }
    }

    /// Whether texts are kept.
    pub fn keeps_text(&self) -> bool {
        self.keep_text
    }

    /// Sets the response's id; the first one that is not empty stays.
    pub fn set_id(&mut self, raw: Raw<'_>) {
        if let (None, Some(raw)) = (&self.id, raw) {
            self.set_id_text(&text_of(raw));
        }
    }

    /// Sets the response's id; the first one that is not empty stays.
    pub fn set_id_text(&mut self, id: &str) {
        if self.id.is_none() && !id.is_empty() {
            self.id = Some(id.to_owned());
        }
    }

    /// The choice of this number, added where it is new. Choices stay in the order of their numbers.
    ///
    /// # Errors
    /// `decode`: there are too many. The same holds for everything else that names a choice.
    pub fn choice(&mut self, index: u32) -> Result<&mut ChoiceState, Failure> {
        let place = self.choices.partition_point(|choice| choice.index < index);
        if self.choices.get(place).is_none_or(|choice| choice.index != index) {
            if self.choices.len() == MAX_CHOICES {
                return Err(Failure::new(FailureKind::Decode, format!("more than {MAX_CHOICES} choices in one response")));
            }
            self.choices.insert(place, ChoiceState { index, ..ChoiceState::default() });
        }
        Ok(&mut self.choices[place])
    }

    /// Counts an event with content of this choice; `count` is the running count beside it.
    pub fn emit(&mut self, choice: u32, kind: ContentKind, count: Option<u64>, events: &mut Events) {
        self.has_content = true;
        self.running_counts.add(choice, count);
        match kind {
            ContentKind::Reasoning => events.reasoning_token(choice),
            _ => events.token(choice),
        }
    }

    /// Notes that the event that is being read has content of this choice; [`Accumulator::emit_pending`] counts it.
    pub fn mark(&mut self, choice: u32, kind: ContentKind) -> Result<(), Failure> {
        let pending = &mut self.choice(choice)?.pending;
        *pending = pending.filter(|earlier| *earlier != ContentKind::Reasoning).or(Some(kind));
        self.has_content = true;
        Ok(())
    }

    /// Ends an event: each choice that was marked counts, with its tokens where its running count rose.
    pub fn emit_pending(&mut self, events: &mut Events) {
        for place in 0..self.choices.len() {
            let choice = &mut self.choices[place];
            let Some(kind) = choice.pending.take() else { continue };
            let count = Some(choice.output_tokens).filter(|tokens| *tokens > choice.emitted_tokens);
            choice.emitted_tokens = choice.output_tokens;
            let index = choice.index;
            self.emit(index, kind, count, events);
        }
    }

    /// Keeps a text whose content was marked.
    pub fn keep(&mut self, choice: u32, kind: ContentKind, text: &str) -> Result<(), Failure> {
        if self.keep_text {
            self.choice(choice)?.text.push(kind, text);
        }
        Ok(())
    }

    /// Marks and keeps a JSON string that is not empty; anything else is no text. It is decoded only if it is kept.
    pub fn add_text(&mut self, choice: u32, kind: ContentKind, raw: Raw<'_>) -> Result<(), Failure> {
        let Some(raw) = raw.filter(|raw| is_text(raw)) else {
            return Ok(());
        };
        self.mark(choice, kind)?;
        match self.keep_text {
            true => self.keep(choice, kind, &text_of(raw)),
            false => Ok(()),
        }
    }

    /// Adds a report of usage. Beside a single choice it is its running count; any other counts the request.
    pub fn add_usage(&mut self, choice: Option<u32>, usage: Usage) -> Result<(), Failure> {
        if usage == Usage::default() {
            return Ok(());
        }
        let Some(choice) = choice else {
            self.usage_reports += 1;
            self.latest_usage = latest(self.latest_usage, usage);
            self.summed_usage = together(self.summed_usage, usage);
            return Ok(());
        };
        let choice = self.choice(choice)?;
        choice.usage = latest(choice.usage, usage);
        choice.output_tokens = usage.output.unwrap_or(choice.output_tokens);
        Ok(())
    }

    /// Sets the output tokens of a choice so far, where they are not part of its usage.
    pub fn set_output_tokens(&mut self, choice: u32, tokens: u64) -> Result<(), Failure> {
        self.choice(choice)?.output_tokens = tokens;
        Ok(())
    }

    /// Whether there was no choice at all.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// A choice that has no finish reason.
    pub fn unfinished_choice(&self) -> Option<u32> {
        self.choices.iter().find(|choice| choice.finish_reason.is_none()).map(|choice| choice.index)
    }

    /// How a response ended that is complete in its protocol.
    ///
    /// # Errors
    /// `stream_error` where the server gave up, `empty` where there is neither content nor a finish reason.
    pub fn ending(&self) -> Result<Finish, Failure> {
        let mut reasons = self.choices.iter().filter_map(|choice| choice.finish_reason.as_deref());
        if let Some(reason) = reasons.clone().find(|reason| ABORTED.contains(reason)) {
            return Err(Failure::new(FailureKind::StreamError, format!("the server finished with `{reason}`")));
        }
        finish(reasons.next(), self.has_content)
    }

    /// The ending of a stream that is complete only with a finish reason for every choice.
    ///
    /// # Errors
    /// `truncated` where a reason is missing, and those of [`Accumulator::ending`].
    pub fn ending_with_reasons(&self) -> Result<Finish, Failure> {
        let truncated = |message: String| Err(Failure::new(FailureKind::Truncated, message));
        match self.unfinished_choice() {
            _ if self.is_empty() => truncated("the stream ended before its first choice".into()),
            Some(choice) => truncated(format!("the stream ended without a finish reason for choice {choice}")),
            None => self.ending(),
        }
    }

    /// The tokens in each event with content, where running counts tell them all; otherwise empty.
    pub fn weights(&self) -> Vec<u32> {
        self.running_counts.weights(self.latest_usage.output)
    }

    /// The counts of the whole request.
    ///
    /// vLLM sends one total after the last choice; llama-server sends one count for each choice, each in an event of its own,
    /// and beside the last text of each choice in text completions.
    pub fn usage(&self) -> Usage {
        let join = if self.running_counts.count_the_request(self.latest_usage.output) { most } else { together };
        let choices = self.choices.iter().map(|choice| choice.usage).fold(Usage::default(), join);
        match self.usage_reports {
            0 => choices,
            reports if reports > 1 && reports == self.choices.len() => latest(choices, self.summed_usage),
            _ => latest(choices, self.latest_usage),
        }
    }

    /// The reply, with this end. `call_json` gives a tool call the form in which it is sent back.
    pub fn into_reply(self, end: Result<Finish, Failure>, call_json: impl Fn(ToolCallText) -> Option<Value>) -> Reply {
        let usage = self.usage();
        let mut text = None;
        let mut message = None;
        if self.keep_text {
            let all = text.insert(String::new());
            self.choices.iter().for_each(|choice| choice.text.append_to(all));
            message = Some(self.choices.into_iter().next().unwrap_or_default().text.into_message(call_json));
        }
        Reply { end, usage, id: self.id, text, message, server: self.server_times, items: None, silent: !self.has_content }
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

/// How a complete response ended. A model may stop before its first token: that is no failure where the server gives a reason.
///
/// # Errors
/// `empty`: neither content nor a finish reason.
pub fn finish(reason: Option<&str>, has_content: bool) -> Result<Finish, Failure> {
    match reason.filter(|reason| !reason.is_empty()) {
        None if !has_content => {
            Err(Failure::new(FailureKind::Empty, "the response is complete, but has neither content nor a finish reason"))
        }
        reason => Ok(Finish { reason: reason.unwrap_or_default().to_owned() }),
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
            accumulator.add_usage(Some(0), Usage { output: *count, ..Usage::default() }).unwrap();
            accumulator.emit_pending(&mut events);
        }
        assert_eq!(events.content as usize, counts.len());
        accumulator.weights()
    }

    #[test]
    fn tokens_of_an_event_come_from_rising_counts_or_are_unknown() {
        assert_eq!(weights(&[Some(1), Some(4), Some(5)]), [1, 3, 1]);
        assert_eq!(weights(&[Some(1), None, Some(5)]), [0u32; 0]);
        assert_eq!(weights(&[Some(1), Some(1)]), [0u32; 0]);
        assert_eq!(weights(&[Some(2), Some(1)]), [0u32; 0]);
        assert_eq!(weights(&[None]), [0u32; 0]);
    }

    #[test]
    fn choices_are_bounded() {
        let mut accumulator = Accumulator::new(false);
        (0..1024).for_each(|choice| accumulator.choice(choice).map(drop).unwrap());
        assert!(accumulator.choice(3).is_ok());
        assert_eq!(accumulator.choice(1024).unwrap_err().message, "more than 1024 choices in one response");
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
        let message = Message { content: "b".into(), reasoning: "a".into(), tool_calls: Value::Null };
        assert_eq!(reply.message, Some(message));
    }

    #[test]
    fn texts_are_joined_in_order_and_a_refusal_replaces_missing_content() {
        let mut text = MessageText { content: "a".into(), reasoning: "r".into(), refusal: "no".into(), ..MessageText::default() };
        text.calls.entry(1).or_default().name = "g".into();
        text.calls.entry(0).or_default().input = "0".into();
        text.calls.entry(1).or_default().input.push('1');
        let mut all = String::new();
        text.append_to(&mut all);
        assert_eq!(all, "rano0g1");
        assert_eq!(text.latest_call().map(|(index, call)| (index, call.name.as_str())), Some((1, "g")));
        let message = text.into_message(|call| (call.name == "g").then_some(Value::String(call.input)));
        assert_eq!((message.content.as_str(), message.reasoning.as_str()), ("a", "r"));
        assert_eq!(message.tool_calls, serde_json::json!(["1"]));
        let refused = MessageText { refusal: "no".into(), ..MessageText::default() }.into_message(|_| None);
        assert_eq!(refused, Message { content: "no".into(), ..Message::default() });
    }

    #[test]
    fn lists_of_parts_are_read() {
        let mut text = MessageText::default();
        for raw in [
            r#"[{"type":"thinking","thinking":[{"type":"text","text":"r"}]},{"type":"text","text":"a"}]"#,
            r#"[{"type":"text","text":"b"},{"type":"image_url","image_url":{}},7]"#,
            r#""c""#,
        ] {
            text.push_json(ContentKind::Answer, serde_json::from_str(raw).unwrap());
        }
        assert_eq!((text.reasoning.as_str(), text.content.as_str()), ("r", "abc"));
    }
}
