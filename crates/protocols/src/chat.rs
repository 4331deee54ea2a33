//! OpenAI chat completions and text completions.

use crate::accumulator::{Accumulator, ContentKind, MessageText, ToolCallText};
use crate::chunk::{Choice, Chunk, ToolCall};
use crate::decoder::Assembly;
use crate::error::words_of;
use crate::framing::Event;
use crate::raw_json::{OneOrMany, Raw, is_text, text_of, unreadable};
use crate::usage::{longest, timings_of, usage_of};
use crate::{Decoder, Events, Protocol, Reply, Shape};
use llmscen_core::outcome::{Failure, FailureKind, Finish};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// `POST /v1/chat/completions`.
pub struct Chat;

impl Protocol for Chat {
    fn body(&self, stream: bool) -> Value {
        match stream {
            true => json!({
                "model": "{{ model }}",
                "messages": "{{ messages }}",
                "stream": true,
                "stream_options": { "include_usage": true },
            }),
            false => json!({ "model": "{{ model }}", "messages": "{{ messages }}", "stream": false }),
        }
    }

    fn decoder(&self, shape: Shape, keep_text: bool) -> Box<dyn Decoder> {
        shape.decoder(ChatMessages::new(keep_text))
    }
}

/// `POST /v1/completions`.
pub struct Completions;

impl Protocol for Completions {
    fn body(&self, stream: bool) -> Value {
        match stream {
            true => json!({
                "model": "{{ model }}",
                "prompt": "{{ prompt }}",
                "stream": true,
                "stream_options": { "include_usage": true },
            }),
            false => json!({ "model": "{{ model }}", "prompt": "{{ prompt }}", "stream": false }),
        }
    }

    /// The messages differ from chat's by one field, `text`, which the chat decoder reads too.
    fn decoder(&self, shape: Shape, keep_text: bool) -> Box<dyn Decoder> {
        Chat.decoder(shape, keep_text)
    }
}

/// The chunks of one response.
#[derive(Debug, Default)]
pub struct ChatMessages {
    accumulator: Accumulator,
    /// The latest event that was a text and nothing else, and which text it was.
    pattern: EventPattern,
    pattern_text: Option<(u32, ContentKind)>,
}

impl ChatMessages {
    pub fn new(keep_text: bool) -> ChatMessages {
        ChatMessages { accumulator: Accumulator::new(keep_text), ..ChatMessages::default() }
    }

    /// Adds the JSON of one event or of a whole reply, and to `events` each choice that it has generated content of.
    ///
    /// # Errors
    /// `stream_error` with the server's words where it reports an error; `decode` where this is not the protocol's JSON.
    fn add_json(&mut self, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        if self.add_by_pattern(json, events) {
            return Ok(());
        }
        match (serde_json::from_slice::<Chunk>(json), std::str::from_utf8(json)) {
            (Ok(chunk), _) => {
                let added = self.add(&chunk, json, events);
                self.learn_pattern(&chunk, json, added.is_ok());
                added
            }
            (Err(error), Ok(_)) => Err(unreadable(&error, json)),
            // The standard reads a stream as UTF-8 with replacement characters.
            (Err(_), Err(_)) => {
                let text = String::from_utf8_lossy(json);
                let chunk = serde_json::from_str::<Chunk>(&text).map_err(|error| unreadable(&error, json))?;
                self.add(&chunk, json, events)
            }
        }
    }

    /// Adds an event that differs from an earlier one in its text alone; false where it may differ in more.
    fn add_by_pattern(&mut self, json: &[u8], events: &mut Events) -> bool {
        let (Some((index, kind)), Some(text)) = (self.pattern_text, self.pattern.text_in(json)) else { return false };
        let keep_text = self.accumulator.keeps_text();
        if keep_text || !is_plain(text) {
            let Some(raw) = string(text) else { return false };
            match self.accumulator.choice(index) {
                Ok(choice) if keep_text => choice.text.push_json(kind, raw),
                _ => {}
            }
        }
        self.accumulator.emit(index, kind, None, events);
        true
    }

    /// Takes an event as the pattern of those that follow, where it is the text of one choice and nothing else.
    fn learn_pattern(&mut self, chunk: &Chunk, json: &[u8], good: bool) {
        let mut choices = chunk.choices.iter().flat_map(OneOrMany::iter);
        let alone =
            choices.next().filter(|_| choices.next().is_none() && good && chunk.usage.is_none() && chunk.timings.is_none());
        let pattern = alone.filter(|choice| choice.finish_reason.is_none()).and_then(|choice| {
            let mut parts = choice.parts();
            let (kind, raw) = parts.next().filter(|_| parts.next().is_none())?;
            let is_pattern = matches!(kind, ContentKind::Answer | ContentKind::Reasoning) && is_text(raw) && !choice.has_calls();
            is_pattern.then(|| (number_of(choice), kind, raw))
        });
        match pattern {
            Some((choice, kind, raw)) => {
                self.pattern_text = Some((choice, kind));
                self.pattern.learn(json, raw);
            }
            None => self.pattern.forget(),
        }
    }

    fn add(&mut self, chunk: &Chunk, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        self.accumulator.set_id(chunk.id);
        let usage = chunk.usage.map(usage_of);
        let mut choices = chunk.choices.iter().flat_map(|choices| choices.iter());
        let first = choices.next();
        let second = choices.next();
        let alone = first.filter(|_| second.is_none()).map(number_of);
        for choice in first.into_iter().chain(second).chain(choices) {
            if let Some(kind) = self.add_choice(choice, json)? {
                let count = alone.and(usage).and_then(|usage| usage.output);
                self.accumulator.emit(number_of(choice), kind, count, events);
            }
        }
        if let Some(usage) = usage {
            self.accumulator.add_usage(alone, usage)?;
        }
        if let Some(raw) = chunk.timings {
            self.accumulator.server_times = longest(self.accumulator.server_times, timings_of(raw));
        }
        match chunk.error.is_some() || chunk.object.is_some_and(|object| object.get() == r#""error""#) {
            true => Err(Failure::new(FailureKind::StreamError, words_of(json))),
            false => Ok(()),
        }
    }

    /// The generated content of the choice: [`ContentKind::Reasoning`] where there is nothing else.
    fn add_choice(&mut self, choice: &Choice, json: &[u8]) -> Result<Option<ContentKind>, Failure> {
        let keep_text = self.accumulator.keeps_text();
        let state = self.accumulator.choice(number_of(choice))?;
        if let Some(reason) = choice.finish_reason {
            state.set_finish_reason(&text_of(reason));
        }
        let calls = choice.calls().map_err(|error| unreadable(&error, json))?;
        let calls = || calls.iter().flat_map(OneOrMany::iter);
        if keep_text {
            choice.parts().for_each(|(kind, raw)| state.text.push_json(kind, raw));
            calls().for_each(|call| keep_call(&mut state.text, call));
        }
        let called = calls().any(|call| call.name().or(call.input()).is_some()).then_some(ContentKind::ToolCall);
        let mut kinds = choice.parts().map(|(kind, _)| kind);
        let first = kinds.next();
        Ok(kinds.find(|_| first == Some(ContentKind::Reasoning)).or(called).or(first))
    }
}

fn number_of(choice: &Choice) -> u32 {
    choice.index.unwrap_or(0)
}

/// Keeps a tool call, or the part of one that is here.
fn keep_call(text: &mut MessageText, piece: &ToolCall) {
    let id = piece.id.map(text_of).unwrap_or_default();
    let call = text.calls.entry(piece.index.unwrap_or_else(|| number_call(text, &id))).or_default();
    let set_once = |field: &mut String, raw: Raw| {
        if let (true, Some(raw)) = (field.is_empty(), raw) {
            field.push_str(&text_of(raw));
        }
    };
    set_once(&mut call.id, piece.id);
    set_once(&mut call.kind, piece.kind);
    set_once(&mut call.name, piece.name());
    call.input.push_str(&piece.input().map(text_of).unwrap_or_default());
}

/// The number of a call whose server gives none: a new id begins a new call, anything else continues the latest.
fn number_call(text: &MessageText, id: &str) -> u32 {
    match text.latest_call() {
        Some((latest, call)) if !id.is_empty() && call.id != id => latest.saturating_add(1),
        Some((latest, _)) => latest,
        None => 0,
    }
}

/// A call as a whole reply holds it, and as it is sent back.
fn call_json(call: ToolCallText) -> Option<Value> {
    let kind = if call.kind.is_empty() { "function" } else { &call.kind };
    let input = if kind == "custom" { "input" } else { "arguments" };
    Some(json!({ "id": call.id, "type": kind, kind: { "name": call.name, input: call.input } }))
}

impl Assembly for ChatMessages {
    /// `transformers serve` never sends `[DONE]`, so a body that came to its end with a finish reason for every choice is
    /// complete without it. `[DONE]` without these reasons is not.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        if event.data == b"[DONE]" {
            events.done = true;
            return Ok(());
        }
        self.add_json(event.data, events)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.add_json(body, &mut Events::default())
    }

    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        match streamed {
            true => self.accumulator.ending_with_reasons(),
            false if self.accumulator.is_empty() => Err(Failure::new(FailureKind::Decode, "the reply has no choices")),
            false => self.accumulator.ending(),
        }
    }

    fn weights(&self) -> Vec<u32> {
        self.accumulator.weights()
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        self.accumulator.into_reply(end, call_json)
    }
}

/// The bytes of an event around its text. A JSON document in which one string replaces another has the same
/// meaning but for that string.
#[derive(Debug, Default)]
struct EventPattern {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl EventPattern {
    /// Takes an event as the pattern of what follows; `text` is the string in it that changes, with its quotes.
    fn learn(&mut self, json: &[u8], text: &RawValue) {
        self.forget();
        let text = text.get();
        // The text is a part of the document, unless that was copied to be read.
        let place = (text.as_ptr() as usize).checked_sub(json.as_ptr() as usize);
        let parts = place
            .and_then(|place| Some((json.get(..place)?, json.get(place..place + text.len())?, json.get(place + text.len()..)?)));
        if let Some((before, inside, after)) = parts
            && inside == text.as_bytes()
        {
            self.before.extend_from_slice(before);
            self.after.extend_from_slice(after);
        }
    }

    /// Follows no pattern.
    fn forget(&mut self) {
        self.before.clear();
        self.after.clear();
    }

    /// What replaces the text, where all around it is the pattern's. It may be anything.
    fn text_in<'a>(&self, json: &'a [u8]) -> Option<&'a [u8]> {
        if self.before.is_empty() {
            return None;
        }
        json.strip_prefix(&self.before[..])?.strip_suffix(&self.after[..])
    }
}

/// The JSON string that this is, where it is one and not empty.
fn string(json: &[u8]) -> Option<&RawValue> {
    let raw: &RawValue = serde_json::from_slice(json).ok()?;
    (is_text(raw) && raw.get().len() == json.len()).then_some(raw)
}

/// Whether this is a JSON string that is not empty and needs no second look: letters without escapes, all of them ASCII.
fn is_plain(json: &[u8]) -> bool {
    let inner = json.strip_prefix(b"\"").and_then(|json| json.strip_suffix(b"\""));
    inner.is_some_and(|inner| !inner.is_empty() && inner.iter().fold(true, |plain, &byte| plain & is_letter(byte)))
}

/// A character that needs no escape in a JSON string (RFC 8259, section 7).
fn is_letter(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

#[cfg(test)]
mod tests;
