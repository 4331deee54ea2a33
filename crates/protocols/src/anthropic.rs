//! Anthropic messages.

use crate::accumulator::{Accumulator, MessageText, ToolCallText};
use crate::content_kind::ContentKind;
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{
    OneOrMany, Raw, arguments_text, decode_failure, decode_string, is_error, is_filled,
    parse_count, reason_text,
};
use crate::usage::{has_negative_count, latest_count};
use crate::{DecodeOptions, Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{AnomalyKind, Failure, FailureKind, Finish, Usage};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The API version sent in requests.
const VERSION: &str = "2023-06-01";

/// `POST /v1/messages`.
pub struct Anthropic;

impl Protocol for Anthropic {
    /// Token counts need no request field.
    fn body(&self, stream: bool) -> Value {
        json!({ "model": "{{ model }}", "messages": "{{ dialog }}", "system": "{{ system }}", "stream": stream })
    }

    fn headers(&self, key: Option<&str>, _stream: bool) -> Vec<(&'static str, String)> {
        let key = key.map(|key| ("x-api-key", key.to_owned()));
        key.into_iter()
            .chain([("anthropic-version", VERSION.to_owned())])
            .collect()
    }

    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder> {
        let blocks = Blocks {
            accumulator: Accumulator::new(options),
            ..Blocks::default()
        };
        decoder_for(shape, blocks)
    }
}

/// One event.
#[derive(Deserialize)]
struct Step<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    index: Raw<'a>,
    #[serde(borrow)]
    message: Option<Head<'a>>,
    #[serde(borrow)]
    content_block: Option<Block<'a>>,
    #[serde(borrow)]
    delta: Option<Block<'a>>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

/// A message: in its first event, or a reply.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    content: Option<OneOrMany<Block<'a>>>,
    #[serde(borrow)]
    stop_reason: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

/// A block of content, or an addition to one. A signature and redacted reasoning are not content.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    input: Raw<'a>,
    #[serde(borrow)]
    partial_json: Raw<'a>,
    #[serde(borrow)]
    stop_reason: Raw<'a>,
}

#[derive(Deserialize)]
struct Counts<'a> {
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    #[serde(borrow)]
    cache_read_input_tokens: Raw<'a>,
    #[serde(borrow)]
    cache_creation_input_tokens: Raw<'a>,
    #[serde(borrow)]
    output_tokens: Raw<'a>,
}

/// The latest value of each input count.
#[derive(Debug, Default)]
struct InputTokens {
    input: Option<u64>,
    read: Option<u64>,
    written: Option<u64>,
}

impl InputTokens {
    fn add(&mut self, counts: &Counts) {
        let latest = |earlier, later| latest_count(earlier, parse_count(later));
        self.input = latest(self.input, counts.input_tokens);
        self.read = latest(self.read, counts.cache_read_input_tokens);
        self.written = latest(self.written, counts.cache_creation_input_tokens);
    }

    /// `input_tokens` excludes tokens read from the cache and written to it.
    fn usage(&self, output: Option<u64>) -> Usage {
        let cache = self
            .read
            .unwrap_or(0)
            .saturating_add(self.written.unwrap_or(0));
        let prompt = self.input.map(|input| input.saturating_add(cache));
        Usage {
            prompt,
            output,
            reasoning: None,
            cached: self.read,
        }
    }
}

/// The state of one response.
#[derive(Debug, Default)]
struct Blocks {
    accumulator: Accumulator,
    tokens: InputTokens,
    /// The end of the message was received.
    stopped: bool,
}

impl Blocks {
    /// `name`: that of the event, for servers whose messages have no `type`.
    fn step(&mut self, step: &Step, name: &str, json: &[u8]) -> Result<(), Failure> {
        let kind = step.kind.map_or(Cow::Borrowed(name), decode_string);
        if kind == "error" || is_error(step.error) {
            return Err(Failure::new(FailureKind::StreamError, error_text(json)));
        }
        if let Some(head) = &step.message {
            self.head(head, false)?;
        }
        self.count(step.usage, true)?;
        let index = parse_count(step.index)
            .and_then(|index| u32::try_from(index).ok())
            .unwrap_or(0);
        for block in step.content_block.iter().chain(&step.delta) {
            self.block(index, block)?;
        }
        self.stopped |= kind == "message_stop";
        Ok(())
    }

    /// Reads a message: its beginning, or a reply. The output count of a beginning does not count generated content.
    fn head(&mut self, head: &Head, is_whole: bool) -> Result<(), Failure> {
        self.accumulator.set_id(head.id);
        self.stop(head.stop_reason)?;
        self.count(head.usage, is_whole)
    }

    fn count(&mut self, usage: Raw, counts_output: bool) -> Result<(), Failure> {
        let Some(raw) = usage else {
            return Ok(());
        };
        if has_negative_count(raw) {
            self.accumulator.note(AnomalyKind::InvalidCount);
        }
        let Ok(counts) = serde_json::from_str::<Counts>(raw.get()) else {
            return Ok(());
        };
        self.tokens.add(&counts);
        let output = parse_count(counts.output_tokens).filter(|_| counts_output);
        self.accumulator
            .add_usage(Some(0), self.tokens.usage(output))
    }

    fn stop(&mut self, reason: Raw) -> Result<(), Failure> {
        let reason = reason_text(reason);
        self.accumulator.choice(0)?.set_finish_reason(&reason);
        Ok(())
    }

    /// Reads a block or an addition to one.
    fn block(&mut self, index: u32, block: &Block) -> Result<(), Failure> {
        self.stop(block.stop_reason)?;
        let kind = block.kind.map(decode_string).unwrap_or_default();
        let call = kind.ends_with("tool_use");
        // The input of a new block is `{}`.
        let input = block
            .partial_json
            .or(block.input.filter(|raw| call && raw.get().contains('"')));
        let name = block.name.filter(|_| call);
        let account = &mut self.accumulator;
        account.add_text(0, ContentKind::Reasoning, block.thinking)?;
        account.add_text(0, ContentKind::Answer, block.text)?;
        for raw in [name, input].into_iter().flatten() {
            if is_filled(raw) {
                account.mark_call(0, &arguments_text(raw))?;
            }
        }
        if account.keeps_text() {
            let kind = call.then_some(&*kind);
            keep_call(&mut account.choice(0)?.text, index, kind, block, input);
        }
        Ok(())
    }
}

/// Collects a call that a block begins, or an addition to one.
fn keep_call(message: &mut MessageText, index: u32, kind: Option<&str>, block: &Block, input: Raw) {
    let text = |raw: Raw| {
        raw.map(|raw| decode_string(raw).into_owned())
            .unwrap_or_default()
    };
    if let Some(kind) = kind {
        let opened = ToolCallText {
            kind: kind.to_owned(),
            id: text(block.id),
            name: text(block.name),
            input: String::new(),
        };
        message.calls.insert(index, opened);
    }
    if let Some(raw) = input {
        let call = message.calls.entry(index).or_default();
        call.input.push_str(&arguments_text(raw));
    }
}

/// A call as a block of the assistant message for the next turn; calls that the server executed are not sent back.
fn call_json(call: ToolCallText) -> Option<Value> {
    let written = if call.input.is_empty() {
        "{}"
    } else {
        &call.input
    };
    let input: Value =
        serde_json::from_str(written).unwrap_or_else(|_| Value::String(written.to_owned()));
    (call.kind == "tool_use")
        .then(|| json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input }))
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, json: &[u8]) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| decode_failure(&error, json))
}

impl Assembly for Blocks {
    /// `message_stop` is the end marker, which a complete stream needs.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(event.data);
        let name = String::from_utf8_lossy(event.name);
        let added = self.step(&read(&text, event.data)?, &name, event.data);
        self.accumulator.emit_pending(events);
        events.done |= self.stopped;
        added
    }

    /// An end marker may come without data.
    fn named_event(&mut self, name: &[u8], events: &mut Events) {
        self.stopped |= name == b"message_stop";
        events.done |= self.stopped;
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let head: Head = read(&text, body)?;
        if is_error(head.error) {
            return Err(Failure::new(FailureKind::StreamError, error_text(body)));
        }
        self.head(&head, true)?;
        let blocks = head
            .content
            .ok_or_else(|| Failure::new(FailureKind::Decode, "the reply has no content"))?;
        (0..)
            .zip(blocks.iter())
            .try_for_each(|(index, block)| self.block(index, block))
    }

    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        let cut = |message| Err(Failure::new(FailureKind::Truncated, message));
        match self.accumulator.unfinished_choice() {
            _ if streamed && !self.stopped => cut("the stream ended before `message_stop`"),
            Some(_) if streamed => cut("the stream ended without a stop reason"),
            _ => self.accumulator.ending(),
        }
    }

    fn close(&self, events: &mut Events) {
        self.accumulator.close(events);
    }

    fn counted_tokens(&self) -> u64 {
        self.accumulator.counted_tokens()
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        self.accumulator.into_reply(end, call_json)
    }
}

#[cfg(test)]
mod tests;
