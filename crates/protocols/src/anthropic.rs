//! Anthropic messages.

use crate::accumulator::{ContentKind, MessageText, ToolCallText, finish};
use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{OneOrMany, Raw, decode_failure, decode_string, has_text, parse_count};
use crate::{Decoder, Events, Protocol, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Usage};
use llmscen_core::request::Framing;
use serde::Deserialize;
use serde_json::{Value, json};

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

    fn decoder(&self, shape: Framing, keep_text: bool) -> Box<dyn Decoder> {
        let blocks = Blocks {
            keep_text,
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

/// A block of content, or an addition to one. A signature is not content.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
    /// Redacted reasoning: content without text.
    #[serde(borrow)]
    data: Raw<'a>,
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

/// The latest value of each count: input counts come with the first event, the running output count with the last ones.
#[derive(Debug, Default)]
struct Tokens {
    input: Option<u64>,
    read: Option<u64>,
    written: Option<u64>,
    output: Option<u64>,
}

impl Tokens {
    fn add(&mut self, raw: Raw) {
        let Some(counts) = raw.and_then(|raw| serde_json::from_str::<Counts>(raw.get()).ok())
        else {
            return;
        };
        self.input = parse_count(counts.input_tokens).or(self.input);
        self.read = parse_count(counts.cache_read_input_tokens).or(self.read);
        self.written = parse_count(counts.cache_creation_input_tokens).or(self.written);
        self.output = parse_count(counts.output_tokens).or(self.output);
    }

    /// `input_tokens` excludes tokens read from the cache and written to it.
    fn usage(&self) -> Usage {
        let cache = self
            .read
            .unwrap_or(0)
            .saturating_add(self.written.unwrap_or(0));
        let prompt = self.input.map(|input| input.saturating_add(cache));
        Usage {
            prompt,
            output: self.output,
            reasoning: None,
            cached: self.read,
        }
    }
}

/// The state of one response.
#[derive(Debug, Default)]
struct Blocks {
    keep_text: bool,
    id: Option<String>,
    text: MessageText,
    content: bool,
    reason: Option<String>,
    tokens: Tokens,
    /// The end of the message was received.
    stopped: bool,
}

impl Blocks {
    fn step(&mut self, step: &Step, json: &[u8], events: &mut Events) -> Result<(), Failure> {
        let kind = step.kind.map(decode_string).unwrap_or_default();
        if kind == "error" || step.error.is_some() {
            return Err(Failure::new(FailureKind::StreamError, error_text(json)));
        }
        if let Some(head) = &step.message {
            self.head(head);
            // The output count of the first event does not count generated content.
            self.tokens.output = None;
        }
        self.tokens.add(step.usage);
        let index = parse_count(step.index)
            .and_then(|index| u32::try_from(index).ok())
            .unwrap_or(0);
        for block in step.content_block.iter().chain(&step.delta) {
            match self.block(index, block) {
                None => {}
                Some(ContentKind::Reasoning) => events.reasoning_token(0),
                Some(_) => events.token(0),
            }
        }
        if kind == "message_stop" {
            (self.stopped, events.done) = (true, true);
        }
        Ok(())
    }

    /// Reads a message: its beginning, or a reply.
    fn head(&mut self, head: &Head) {
        if let Some(id) = head.id {
            self.id = Some(decode_string(id).into_owned());
        }
        self.stop(head.stop_reason);
        self.tokens.add(head.usage);
    }

    fn stop(&mut self, reason: Raw) {
        if let Some(reason) = reason {
            self.reason = Some(decode_string(reason).into_owned());
        }
    }

    /// Reads a block or an addition to one; returns the kind of its generated content, if any.
    fn block(&mut self, index: u32, block: &Block) -> Option<ContentKind> {
        self.stop(block.stop_reason);
        let kind = block.kind.map(decode_string).unwrap_or_default();
        let call = kind.ends_with("tool_use");
        // The input of a new block is `{}`.
        let input = block
            .partial_json
            .or(block.input.filter(|raw| call && raw.get().contains('"')));
        let name = block.name.filter(|_| call);
        let full = |raw: Raw| raw.is_some_and(|raw| raw.get().starts_with('{') || has_text(raw));
        let redacted = block.data.filter(|_| kind == "redacted_thinking");
        let thought = [block.thinking, redacted].into_iter().any(full);
        let answer = [block.text, name, input].into_iter().any(full);
        let content = answer
            .then_some(ContentKind::Answer)
            .or(thought.then_some(ContentKind::Reasoning));
        self.content |= content.is_some();
        if self.keep_text {
            self.keep(index, block, input, call.then_some(&kind));
        }
        content
    }

    fn keep(&mut self, index: u32, block: &Block, input: Raw, call: Option<&str>) {
        let text = |raw: Raw| {
            raw.map(|raw| decode_string(raw).into_owned())
                .unwrap_or_default()
        };
        self.text.content.push_str(&text(block.text));
        self.text.reasoning.push_str(&text(block.thinking));
        if let Some(kind) = call {
            let opened = ToolCallText {
                kind: kind.to_owned(),
                id: text(block.id),
                name: text(block.name),
                input: String::new(),
            };
            self.text.calls.insert(index, opened);
        }
        if let Some(raw) = input {
            let call = self.text.calls.entry(index).or_default();
            match raw.get().starts_with('{') {
                true => call.input.push_str(raw.get()),
                false => call.input.push_str(&decode_string(raw)),
            }
        }
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
        self.step(&read(&text, event.data)?, event.data, events)
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let head: Head = read(&text, body)?;
        if head.error.is_some() {
            return Err(Failure::new(FailureKind::StreamError, error_text(body)));
        }
        self.head(&head);
        let blocks = head
            .content
            .ok_or_else(|| Failure::new(FailureKind::Decode, "the reply has no content"))?;
        for (index, block) in (0..).zip(blocks.iter()) {
            self.block(index, block);
        }
        Ok(())
    }

    fn ending(&self, streamed: bool) -> Result<Finish, Failure> {
        let cut = |message| Err(Failure::new(FailureKind::Truncated, message));
        match &self.reason {
            _ if streamed && !self.stopped => cut("the stream ended before `message_stop`"),
            None if streamed => cut("the stream ended without a stop reason"),
            reason => finish(reason.as_deref(), self.content),
        }
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        let (text, message) = self.text.into_kept(self.keep_text, call_json);
        let (usage, server) = (self.tokens.usage(), ServerTimes::default());
        Reply {
            end,
            usage,
            id: self.id,
            text,
            message,
            server,
            items: None,
            silent: !self.content,
        }
    }
}

#[cfg(test)]
mod tests;
