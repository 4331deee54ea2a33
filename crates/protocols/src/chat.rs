//! OpenAI chat completions and text completions.

use crate::accumulator::{Accumulator, MessageText, ToolCallText};
use crate::chunk::{Choice, Chunk, ToolCall};
use crate::content_kind::ContentKind;
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{
    OneOrMany, Raw, arguments_text, decode_failure, decode_string, is_error, is_filled, is_text,
    reason_text,
};
use crate::usage::{max_times, parse_timed_counts, parse_timings, parse_usage_metadata};
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{AnomalyKind, Failure, FailureKind, Finish};
use llmscen_core::request::Framing;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

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

    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        decoder_for(shape, ChatMessages::new(options))
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
    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        Chat.decoder(shape, options)
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
    pub fn new(options: &DecodeOptions) -> ChatMessages {
        ChatMessages {
            accumulator: Accumulator::new(options),
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
        // Checked once, the text needs no check per string. The SSE standard decodes a stream with replacement
        // characters.
        let text =
            str::from_utf8(json).map_or_else(|_| String::from_utf8_lossy(json), Cow::Borrowed);
        let chunk =
            serde_json::from_str::<Chunk>(&text).map_err(|error| decode_failure(&error, json))?;
        let added = self.add(&chunk, json, events);
        match text {
            Cow::Borrowed(_) => self.learn_pattern(&chunk, json, added.is_ok()),
            Cow::Owned(_) => self.pattern.forget(),
        }
        added
    }

    /// Fast path: adds an event that differs from the pattern only in its text; false if it may differ in more.
    fn add_by_pattern(&mut self, json: &[u8], events: &mut Events) -> bool {
        let (Some((index, kind)), Some(text)) = (self.pattern_text, self.pattern.text_in(json))
        else {
            return false;
        };
        let inner = text
            .strip_prefix(b"\"")
            .and_then(|text| text.strip_suffix(b"\""));
        let plain = inner.filter(|inner| !inner.is_empty() && self.accumulator.is_plain(inner));
        if let Some(plain) = plain
            && self.accumulator.add_plain_event(index, kind, plain, events)
        {
            return true;
        }
        let added = match plain.and_then(|plain| str::from_utf8(plain).ok()) {
            Some(plain) => self.accumulator.add_str(index, kind, plain),
            None => match parse_string(text) {
                Some(raw) => self.accumulator.add_text(index, kind, Some(raw)),
                None => return false,
            },
        };
        self.accumulator.emit_pending(events);
        added.is_ok()
    }

    /// Stores an event as the pattern if it has a single text of one choice and nothing else.
    fn learn_pattern(&mut self, chunk: &Chunk, json: &[u8], good: bool) {
        let mut choices = chunk.choices.iter().flat_map(OneOrMany::iter);
        let alone = choices.next().filter(|choice| {
            let has_counts = chunk.usage.is_some()
                || chunk.usage_metadata.is_some()
                || chunk.x_groq.is_some()
                || chunk.timings.is_some();
            choices.next().is_none() && good && !has_counts && choice.finish_reason.is_none()
        });
        let pattern = alone
            .filter(|choice| !choice.has_whole_message())
            .and_then(|choice| Some((choice_index(choice), choice.only_text()?)));
        match pattern {
            Some((choice, (kind, raw))) => {
                self.pattern_text = Some((choice, kind));
                self.pattern.learn(json, raw);
            }
            None => self.pattern.forget(),
        }
    }

    fn add(&mut self, chunk: &Chunk, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        let added = self.add_chunk(chunk, json);
        self.accumulator.emit_pending(events);
        added?;
        let choice_errors = chunk
            .choices
            .iter()
            .flat_map(OneOrMany::iter)
            .map(|choice| choice.error);
        let groq = chunk.x_groq.as_ref().and_then(|groq| groq.error);
        let mut errors = choice_errors.chain([chunk.error, groq]);
        let is_error_object = chunk
            .object
            .is_some_and(|object| object.get() == r#""error""#);
        match errors.find(|error| is_error(*error)) {
            Some(Some(error)) if chunk.error.is_none() => {
                let words = error_text(error.get().as_bytes());
                Err(Failure::new(FailureKind::StreamError, words))
            }
            None if !is_error_object => Ok(()),
            _ => Err(Failure::new(FailureKind::StreamError, error_text(json))),
        }
    }

    fn add_chunk(&mut self, chunk: &Chunk, json: &[u8]) -> Result<(), Failure> {
        self.accumulator.set_id(chunk.id);
        let choices = || chunk.choices.iter().flat_map(OneOrMany::iter);
        let only = choices().next().filter(|_| choices().nth(1).is_none());
        let only = only.map(choice_index);
        choices().try_for_each(|choice| self.add_choice(choice, json))?;
        if let Some(raw) = chunk.timings {
            self.accumulator.server_times =
                max_times(self.accumulator.server_times, parse_timings(raw));
        }
        let groq = chunk.x_groq.as_ref().and_then(|groq| groq.usage);
        let usage = chunk.usage.filter(|raw| is_filled(raw)).or(groq);
        let usage = match (usage, chunk.usage_metadata, chunk.timings) {
            (None, Some(metadata), _) => parse_usage_metadata(metadata),
            (None, None, Some(timings)) => parse_timed_counts(timings),
            (usage, ..) => return self.accumulator.add_usage_json(only, usage),
        };
        self.accumulator.add_usage(only, usage)
    }

    /// Adds the content of a choice. A whole message after parts of it repeats them.
    fn add_choice(&mut self, choice: &Choice, json: &[u8]) -> Result<(), Failure> {
        let index = choice_index(choice);
        let state = self.accumulator.choice(index)?;
        if let Some(reason) = choice.finish_reason {
            state.set_finish_reason(&reason_text(Some(reason)));
        }
        let is_final = choice.finish_reason.is_some();
        let has_calls = state.has_calls();
        let calls = choice
            .calls()
            .map_err(|error| decode_failure(&error, json))?;
        let is_whole = choice.has_whole_message();
        let mut added = Ok(());
        choice.pieces(&mut |piece| {
            if added.is_ok() {
                added = match piece.text {
                    Some(text) if is_whole => self.add_whole_text(index, piece.kind, text),
                    Some(_) => self.accumulator.add_text(index, piece.kind, piece.text),
                    None => self.accumulator.mark(index, piece.kind),
                };
            }
        });
        added?;
        match is_whole && is_final && has_calls {
            true => self.accumulator.note(AnomalyKind::RepeatedMessage),
            false => {
                for call in calls.iter().flat_map(OneOrMany::iter) {
                    self.add_call(index, call)?;
                }
            }
        }
        self.accumulator.add_usage_json(Some(index), choice.usage())
    }

    /// Adds the text of a whole message, of which earlier messages may have the beginning.
    fn add_whole_text(
        &mut self,
        index: u32,
        kind: ContentKind,
        raw: &RawValue,
    ) -> Result<(), Failure> {
        let text = decode_string(raw);
        match self.accumulator.choice(index)?.new_text(kind, &text) {
            Some("") => {
                self.accumulator.note(AnomalyKind::RepeatedMessage);
                Ok(())
            }
            Some(new) => self.accumulator.add_str(index, kind, new),
            None => self.accumulator.add_str(index, kind, &text),
        }
    }

    fn add_call(&mut self, index: u32, call: &ToolCall) -> Result<(), Failure> {
        for text in [call.name(), call.input()].into_iter().flatten() {
            self.accumulator.mark_call(index, &arguments_text(text))?;
        }
        if self.accumulator.keeps_text() {
            keep_call(&mut self.accumulator.choice(index)?.text, call);
        }
        Ok(())
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
        .push_str(&piece.input().map(arguments_text).unwrap_or_default());
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
    /// `transformers serve` never sends `[DONE]`, so a body with a finish reason for every choice is complete without
    /// it. `[DONE]` without these reasons is not.
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

    fn counted_tokens(&self) -> u64 {
        self.accumulator.counted_tokens()
    }

    fn close(&self, events: &mut Events) {
        self.accumulator.close(events);
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

#[cfg(test)]
mod tests;
