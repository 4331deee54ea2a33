//! The APIs of LLM servers: how requests are written, and how response bytes become events.
//!
//! ```text
//! bytes ── framing ── one event ── its JSON ── accumulator (state of the response) ── Reply
//! ```
//!
//! An API is one file that implements [`Protocol`], and one line in [`protocol()`]. `decoder` turns bytes into
//! messages for all APIs. Each API has an `Assembly` for its messages; `accumulator` collects texts, finish reasons
//! and counts per choice.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod accumulator;
mod anthropic;
mod chat;
mod chunk;
pub mod content_kind;
mod custom;
mod dashscope;
mod decoder;
mod embeddings;
mod error;
mod framing;
mod images;
mod markers;
mod ollama;
mod plausible;
mod raw_json;
mod realtime;
mod rerank;
mod responses;
mod speech;
mod tgi;
mod transcriptions;
mod usage;

#[cfg(test)]
mod every_api;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod spec;

pub use custom::check_path;
use decoder::framing_of_content_type;
pub use decoder::sniff_framing;
pub use error::error_message;
pub use markers::Markers;
pub use plausible::correct_counts;

use llmscen_core::api::Api;
use llmscen_core::outcome::{Failure, Finish, ReplyFacts, ServerTimes, Usage};
use llmscen_core::request::{Framing, RequestSpec};
use llmscen_core::units::Nanos;
use serde_json::Value;
use std::ops::Range;
use std::sync::Arc;

/// One API: how requests are written, and how responses are read.
pub trait Protocol: Send + Sync {
    /// The default request template, with `{{ … }}` in its strings. A streaming request also requests token counts.
    fn body(&self, stream: bool) -> Value;

    /// The headers for the API key, and other headers that the API requires.
    fn headers(&self, key: Option<&str>, _stream: bool) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {key}")))
            .into_iter()
            .collect()
    }

    /// The framing of a successful response, by its `content-type`.
    ///
    /// # Errors The content type is not one of the API.
    fn framing(&self, content_type: Option<&str>, asked_stream: bool) -> Result<Framing, Failure> {
        framing_of_content_type(content_type, asked_stream)
    }

    /// Whether the framing is that of [`Protocol::framing`], whatever the first bytes of a body show.
    fn has_fixed_framing(&self) -> bool {
        false
    }

    /// Whether a stream may be lines of JSON, whatever its `content-type`.
    fn streams_lines(&self) -> bool {
        false
    }

    /// A decoder for one response with this framing.
    fn decoder(&self, shape: Framing, options: &DecodeOptions) -> Box<dyn Decoder>;
}

/// How responses are decoded.
#[derive(Clone, Debug, Default)]
pub struct DecodeOptions {
    /// Collect the generated text.
    pub keep_text: bool,
    /// The markers of reasoning in the text of an answer.
    pub markers: Markers,
}

/// The implementation of an API for requests of this specification; None: its default body.
///
/// # Errors
/// `request.extract` is invalid.
pub fn protocol(api: Api, request: Option<&RequestSpec>) -> Result<Arc<dyn Protocol>, String> {
    match api {
        // A request to a local model has the form of a chat and is not sent.
        Api::OpenaiChat | Api::Local => Ok(Arc::new(chat::Chat)),
        Api::OpenaiCompletions => Ok(Arc::new(chat::Completions)),
        Api::OpenaiResponses => Ok(Arc::new(responses::Responses)),
        Api::OpenaiRealtime => Ok(Arc::new(realtime::Realtime)),
        Api::OpenaiEmbeddings => Ok(Arc::new(embeddings::Embeddings)),
        Api::Rerank => Ok(Arc::new(rerank::Rerank)),
        Api::Anthropic => Ok(Arc::new(anthropic::Anthropic)),
        Api::Dashscope => Ok(Arc::new(dashscope::Dashscope)),
        Api::Ollama => Ok(Arc::new(ollama::Ollama)),
        Api::Tgi => Ok(Arc::new(tgi::Tgi)),
        Api::OpenaiTranscriptions | Api::OpenaiTranslations => {
            Ok(Arc::new(transcriptions::Transcriptions))
        }
        Api::OpenaiSpeech => Ok(Arc::new(speech::Speech::new(request))),
        Api::OpenaiImages => Ok(Arc::new(images::Images)),
        Api::Custom => {
            let extract = request.and_then(|request| request.extract.as_ref());
            Ok(Arc::new(custom::Custom::new(extract)?))
        }
    }
}

/// Decodes one response. The result does not depend on how the bytes are split over calls of `push`.
pub trait Decoder: Send {
    /// Decodes the bytes of one socket read and adds completed events to `events`.
    ///
    /// Never panics. In the steady state of a stream, an event allocates nothing, unless it carries log
    /// probabilities, its text is collected, or the API is `custom`.
    fn push(&mut self, bytes: &[u8], events: &mut Events);

    /// Whether a decoded event was an error, or could not be decoded.
    fn has_failed(&self) -> bool {
        false
    }

    /// Number of events of a stream that advanced the response: content, audio, a finish reason, or a higher token
    /// count. Heartbeats do not.
    fn progress(&self) -> u32 {
        0
    }

    /// Ends the response. `broken` is the failure that interrupted it, such as a reset or a timeout; None: the body
    /// is complete.
    ///
    /// A last event without its blank line is added to `events` if the body is complete. The response takes
    /// precedence over `broken`: a stream with its end marker is successful whatever happened later, and an error
    /// inside the response, or unreadable data, remains the failure.
    fn finish(self: Box<Self>, events: &mut Events, broken: Option<Failure>) -> Reply;
}

/// The events decoded so far; a decoder only adds to them. A reply that is not streamed has no events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Number of all events, including role-only events, usage and the end marker, without comments.
    pub total: u32,
    /// Number of events with non-empty generated content: text, reasoning, refusal, name or arguments of a tool call.
    /// An event with content of several choices counts once per choice.
    pub content: u32,
    /// Number of content events before the first one with non-reasoning content. Set at the end.
    pub reasoning: u32,
    /// The choice of each content event; empty while all belong to choice 0.
    pub choices: Vec<u32>,
    /// The tokens in each content event, if the server reports a running count with every event; otherwise empty.
    /// Filled at the end.
    pub weights: Vec<u32>,
    /// The audio of the response, once any has been decoded.
    pub audio: Option<AudioReceived>,
    /// The end marker was received; later bytes are ignored.
    pub done: bool,
}

/// The audio of a response so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AudioReceived {
    /// Its bytes, without those of a header.
    pub bytes: u64,
    /// Bytes per second of playback; None: the format does not reveal it.
    pub bytes_per_second: Option<u32>,
}

impl AudioReceived {
    /// Its duration, if it is known.
    pub fn duration(self) -> Option<Nanos> {
        let nanos = u128::from(self.bytes) * 1_000_000_000
            / u128::from(self.bytes_per_second.filter(|rate| *rate > 0)?);
        Some(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

impl Events {
    /// Adds a content event of a choice.
    pub fn token(&mut self, choice: u32) {
        if choice > 0 && self.choices.is_empty() {
            self.choices.resize(self.content as usize, 0);
        }
        if choice > 0 || !self.choices.is_empty() {
            self.choices.push(choice);
        }
        self.content = self.content.saturating_add(1);
    }
}

impl Default for Reply {
    /// That of a request without a response.
    fn default() -> Reply {
        Reply::without_text(Ok(Finish::default()), Usage::default())
    }
}

/// The result of one response. After a failure it still has what was received before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Finish reason or failure. Failures of decoding are `stream_error`, `truncated`, `decode` and `empty`.
    ///
    /// `empty` is a complete response without content and without a finish reason.
    pub end: Result<Finish, Failure>,
    /// Token counts of the server, over all choices.
    pub usage: Usage,
    /// Response id.
    pub id: Option<String>,
    /// All generated text (reasoning, content, refusal, tool calls), choice by choice; None: not collected.
    pub text: Option<String>,
    /// The bytes of each token event in `text`; empty if text is not collected, or an event has content that is not
    /// in one place of it.
    pub event_texts: Vec<Range<u32>>,
    /// The message of the first choice, for the next turn of a conversation; None: not collected.
    pub message: Option<Message>,
    /// Times reported by the server.
    pub server: ServerTimes,
    /// Number of inputs or results of a request with several: texts embedded, documents ranked, images generated.
    pub items: Option<u64>,
    /// No content was received, even if the server counts tokens.
    pub silent: bool,
    /// Facts about its text.
    pub facts: ReplyFacts,
}

impl Reply {
    /// The reply of an API that generates no text.
    fn without_text(end: Result<Finish, Failure>, usage: Usage) -> Reply {
        Reply {
            end,
            usage,
            id: None,
            text: None,
            event_texts: Vec::new(),
            message: None,
            server: ServerTimes::default(),
            items: None,
            silent: false,
            facts: ReplyFacts::default(),
        }
    }
}

/// A reply, for the next turn of its conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The answer.
    pub content: String,
    /// The reasoning before the answer.
    pub reasoning: String,
    /// The complete tool calls in the API's format; null: none.
    pub tool_calls: Value,
}
