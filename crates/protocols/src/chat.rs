//! OpenAI chat completions and text completions.

use crate::accumulator::{Accumulator, ContentKind, MessageText, ToolCallText};
use crate::chunk::{Choice, Chunk, ToolCall};
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{OneOrMany, Raw, decode_failure, decode_string, is_text};
use crate::usage::{max_times, parse_timings, parse_usage};
use crate::{Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish};
use llmscen_core::request::Framing;
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
            false => {
                json!({ "model": "{{ model }}", "messages": "{{ messages }}", "stream": false })
            }
        }
    }

    fn decoder(&self, shape: Framing, keep_text: bool) -> Box<dyn Decoder> {
        decoder_for(shape, ChatMessages::new(keep_text))
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

    /// The messages differ from chat by one field, `text`, which the chat decoder reads too.
    fn decoder(&self, shape: Framing, keep_text: bool) -> Box<dyn Decoder> {
        Chat.decoder(shape, keep_text)
    }
}

/// The state of one response.
#[derive(Debug, Default)]
pub struct ChatMessages {
    accumulator: Accumulator,
    /// The latest event with a single text, and the choice and kind of that text.
    pattern: EventPattern,
    pattern_text: Option<(u32, ContentKind)>,
}

impl ChatMessages {
    pub fn new(keep_text: bool) -> ChatMessages {
        ChatMessages {
            accumulator: Accumulator::new(keep_text),
            ..ChatMessages::default()
        }
    }

    /// Decodes the JSON of one event or reply, and adds a content event per choice to `events`.
    ///
    /// # Errors `stream_error` with the server's message for an error; `decode` for JSON that the API does not allow.
    fn add_json(&mut self, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        if self.add_by_pattern(json, events) {
            return Ok(());
        }
        match (
            serde_json::from_slice::<Chunk>(json),
            std::str::from_utf8(json),
        ) {
            (Ok(chunk), _) => {
                let added = self.add(&chunk, json, events);
                self.learn_pattern(&chunk, json, added.is_ok());
                added
            }
            (Err(error), Ok(_)) => Err(decode_failure(&error, json)),
            // The SSE standard decodes a stream as UTF-8 with replacement characters.
            (Err(_), Err(_)) => {
                let text = String::from_utf8_lossy(json);
                let chunk = serde_json::from_str::<Chunk>(&text)
                    .map_err(|error| decode_failure(&error, json))?;
                self.add(&chunk, json, events)
            }
        }
    }

    /// Fast path: adds an event that differs from the pattern only in its text; false if it may differ in more.
    fn add_by_pattern(&mut self, json: &[u8], events: &mut Events) -> bool {
        let (Some((index, kind)), Some(text)) = (self.pattern_text, self.pattern.text_in(json))
        else {
            return false;
        };
        let keep_text = self.accumulator.keeps_text();
        if keep_text || !is_plain(text) {
            let Some(raw) = parse_string(text) else {
                return false;
            };
            match self.accumulator.choice(index) {
                Ok(choice) if keep_text => choice.text.push_json(kind, raw),
                _ => {}
            }
        }
        self.accumulator.emit(index, kind, None, events);
        true
    }

    /// Stores an event as the pattern if it has a single text of one choice and nothing else.
    fn learn_pattern(&mut self, chunk: &Chunk, json: &[u8], good: bool) {
        let mut choices = chunk.choices.iter().flat_map(OneOrMany::iter);
        let alone = choices.next().filter(|_| {
            choices.next().is_none() && good && chunk.usage.is_none() && chunk.timings.is_none()
        });
        let pattern = alone
            .filter(|choice| choice.finish_reason.is_none())
            .and_then(|choice| {
                let mut parts = choice.parts();
                let (kind, raw) = parts.next().filter(|_| parts.next().is_none())?;
                let is_pattern = matches!(kind, ContentKind::Answer | ContentKind::Reasoning)
                    && is_text(raw)
                    && !choice.has_calls();
                is_pattern.then(|| (choice_index(choice), kind, raw))
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
        let usage = chunk.usage.map(parse_usage);
        let mut choices = chunk.choices.iter().flat_map(|choices| choices.iter());
        let first = choices.next();
        let second = choices.next();
        let only = first.filter(|_| second.is_none()).map(choice_index);
        for choice in first.into_iter().chain(second).chain(choices) {
            if let Some(kind) = self.add_choice(choice, json)? {
                let count = only.and(usage).and_then(|usage| usage.output);
                self.accumulator
                    .emit(choice_index(choice), kind, count, events);
            }
        }
        if let Some(usage) = usage {
            self.accumulator.add_usage(only, usage)?;
        }
        if let Some(raw) = chunk.timings {
            self.accumulator.server_times =
                max_times(self.accumulator.server_times, parse_timings(raw));
        }
        match chunk.error.is_some()
            || chunk
                .object
                .is_some_and(|object| object.get() == r#""error""#)
        {
            true => Err(Failure::new(FailureKind::StreamError, error_text(json))),
            false => Ok(()),
        }
    }

    /// The generated content of the choice: [`ContentKind::Reasoning`] if there is no other.
    fn add_choice(&mut self, choice: &Choice, json: &[u8]) -> Result<Option<ContentKind>, Failure> {
        let keep_text = self.accumulator.keeps_text();
        let state = self.accumulator.choice(choice_index(choice))?;
        if let Some(reason) = choice.finish_reason {
            state.set_finish_reason(&decode_string(reason));
        }
        let calls = choice
            .calls()
            .map_err(|error| decode_failure(&error, json))?;
        let calls = || calls.iter().flat_map(OneOrMany::iter);
        if keep_text {
            choice
                .parts()
                .for_each(|(kind, raw)| state.text.push_json(kind, raw));
            calls().for_each(|call| keep_call(&mut state.text, call));
        }
        let called = calls()
            .any(|call| call.name().or(call.input()).is_some())
            .then_some(ContentKind::ToolCall);
        let mut kinds = choice.parts().map(|(kind, _)| kind);
        let first = kinds.next();
        Ok(kinds
            .find(|_| first == Some(ContentKind::Reasoning))
            .or(called)
            .or(first))
    }
}

fn choice_index(choice: &Choice) -> u32 {
    choice.index.unwrap_or(0)
}

/// Collects a tool call, or a part of one.
fn keep_call(text: &mut MessageText, piece: &ToolCall) {
    let id = piece.id.map(decode_string).unwrap_or_default();
    let call = text
        .calls
        .entry(piece.index.unwrap_or_else(|| number_call(text, &id)))
        .or_default();
    let set_once = |field: &mut String, raw: Raw| {
        if let (true, Some(raw)) = (field.is_empty(), raw) {
            field.push_str(&decode_string(raw));
        }
    };
    set_once(&mut call.id, piece.id);
    set_once(&mut call.kind, piece.kind);
    set_once(&mut call.name, piece.name());
    call.input
        .push_str(&piece.input().map(decode_string).unwrap_or_default());
}

/// The index of a call without one: a new id starts a new call, anything else continues the latest.
fn number_call(text: &MessageText, id: &str) -> u32 {
    match text.latest_call() {
        Some((latest, call)) if !id.is_empty() && call.id != id => latest.saturating_add(1),
        Some((latest, _)) => latest,
        None => 0,
    }
}

/// A call in the format of a reply, which is also that of the next turn.
fn call_json(call: ToolCallText) -> Option<Value> {
    let kind = if call.kind.is_empty() {
        "function"
    } else {
        &call.kind
    };
    let input = if kind == "custom" {
        "input"
    } else {
        "arguments"
    };
    Some(json!({ "id": call.id, "type": kind, kind: { "name": call.name, input: call.input } }))
}

impl Assembly for ChatMessages {
    /// `transformers serve` never sends `[DONE]`, so a body with a finish reason for every choice is complete without it.
    /// `[DONE]` without these reasons is not.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        if event.data == b"[DONE]" {
            events.done = true;
            return Ok(());
        }
        self.add_json(event.data, events)
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.add_json(body, &mut Events::default())
    }

    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        match streamed {
            true => self.accumulator.ending_with_reasons(),
            false if self.accumulator.is_empty() => Err(Failure::new(
                FailureKind::Decode,
                "the reply has no choices",
            )),
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

/// The bytes of an event before and after its text. Replacing one string in a JSON document changes only that value.
#[derive(Debug, Default)]
struct EventPattern {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl EventPattern {
    /// Stores an event as the pattern; `text` is its variable string, with quotes.
    fn learn(&mut self, json: &[u8], text: &RawValue) {
        self.forget();
        let text = text.get();
        // `text` points into `json`, unless that was copied.
        let start = (text.as_ptr() as usize).checked_sub(json.as_ptr() as usize);
        let parts = start.and_then(|start| {
            Some((
                json.get(..start)?,
                json.get(start..start + text.len())?,
                json.get(start + text.len()..)?,
            ))
        });
        if let Some((before, inside, after)) = parts
            && inside == text.as_bytes()
        {
            self.before.extend_from_slice(before);
            self.after.extend_from_slice(after);
        }
    }

    /// Removes the pattern.
    fn forget(&mut self) {
        self.before.clear();
        self.after.clear();
    }

    /// The bytes in place of the text, if all others match the pattern. They may be anything.
    fn text_in<'a>(&self, json: &'a [u8]) -> Option<&'a [u8]> {
        if self.before.is_empty() {
            return None;
        }
        json.strip_prefix(&self.before[..])?
            .strip_suffix(&self.after[..])
    }
}

/// Parses a non-empty JSON string.
fn parse_string(json: &[u8]) -> Option<&RawValue> {
    let raw: &RawValue = serde_json::from_slice(json).ok()?;
    (is_text(raw) && raw.get().len() == json.len()).then_some(raw)
}

/// Whether this is a non-empty JSON string of printable ASCII without escapes, which needs no parsing.
fn is_plain(json: &[u8]) -> bool {
    let inner = json
        .strip_prefix(b"\"")
        .and_then(|json| json.strip_suffix(b"\""));
    inner.is_some_and(|inner| {
        !inner.is_empty()
            && inner
                .iter()
                .fold(true, |plain, &byte| plain & is_letter(byte))
    })
}

/// Whether a character needs no escape in a JSON string (RFC 8259, section 7).
fn is_letter(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

#[cfg(test)]
mod tests;
