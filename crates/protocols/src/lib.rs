//! Protocols: bytes in, events out.
//!
//! ```text
//! bytes ── framing ── one event ── chunk (its JSON) ── accumulator (what they add up to) ── Reply
//! ```
//!
//! A protocol is one file that implements [`Protocol`], and one line in [`protocol`]. `decoder` turns bytes into messages, the
//! same way for all. Each protocol has an `Assembly` of its messages; `accumulator` keeps texts, reasons and counts by choice.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod accumulator;
mod anthropic;
mod chat;
mod chunk;
mod custom;
mod dashscope;
mod decoder;
mod embeddings;
mod error;
mod framing;
mod ollama;
mod plausible;
mod raw_json;
mod rerank;
mod responses;
mod tgi;
mod usage;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod reasoning;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod silent;
#[cfg(test)]
mod spec;

pub use custom::check_path;
pub use decoder::{Shape, shape_of};
pub use error::error_message;
pub use plausible::without_absurd;

use llmscen_core::api::Api;
use llmscen_core::outcome::{Failure, Finish, ServerTimes, Usage};
use llmscen_core::request::Extract;
use serde_json::Value;
use std::sync::Arc;

/// The API of a target: how a request is written, and how a response is read.
pub trait Protocol: Send + Sync {
    /// The default request template, with `{{ … }}` in its string leaves. A stream asks for the token counts too.
    fn body(&self, stream: bool) -> Value;

    /// The headers that carry the key, and those that the protocol asks for besides.
    fn headers(&self, key: Option<&str>, _stream: bool) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {key}"))).into_iter().collect()
    }

    /// How a good response is framed, by its `content-type`.
    ///
    /// # Errors
    /// A type that is none of the protocol's.
    fn shape(&self, content_type: Option<&str>, asked_stream: bool) -> Result<Shape, Failure> {
        shape_of(content_type, asked_stream)
    }

    /// A decoder for one response of this shape. With `keep_text` the generated text is kept.
    fn decoder(&self, shape: Shape, keep_text: bool) -> Box<dyn Decoder>;
}

/// The protocol of an API; `extract` belongs to [`Api::Custom`].
///
/// # Errors
/// What is wrong with `extract`.
pub fn protocol(api: Api, extract: Option<&Extract>) -> Result<Arc<dyn Protocol>, String> {
    match api {
        // A request to a model in this process has the form of a chat and is not sent.
        Api::OpenaiChat | Api::Local => Ok(Arc::new(chat::Chat)),
        Api::OpenaiCompletions => Ok(Arc::new(chat::Completions)),
        Api::OpenaiResponses => Ok(Arc::new(responses::Responses)),
        Api::OpenaiEmbeddings => Ok(Arc::new(embeddings::Embeddings)),
        Api::Rerank => Ok(Arc::new(rerank::Rerank)),
        Api::Anthropic => Ok(Arc::new(anthropic::Anthropic)),
        Api::Dashscope => Ok(Arc::new(dashscope::Dashscope)),
        Api::Ollama => Ok(Arc::new(ollama::Ollama)),
        Api::Tgi => Ok(Arc::new(tgi::Tgi)),
        Api::Custom => Ok(Arc::new(custom::Custom::new(extract)?)),
    }
}

/// Reads one response. However its bytes are split over calls of `push`, the events and the reply are the same.
pub trait Decoder: Send {
    /// Takes the bytes of one socket read and adds what they completed to `events`.
    ///
    /// It never panics, whatever the bytes. Once a stream runs, an event allocates nothing, unless it carries log
    /// probabilities, its text is kept, or the protocol is `custom`.
    fn push(&mut self, bytes: &[u8], events: &mut Events);

    /// Ends the response. `broken` is what cut it short, such as a reset or a timeout; None: the body came to its end.
    ///
    /// A last event that lacks its blank line is added to `events` if the body came to its end. What the server said
    /// goes before `broken`: a stream that had its end marker is good whatever happened after it, and an error inside
    /// the response, or data that cannot be read, stays the reason.
    fn finish(self: Box<Self>, events: &mut Events, broken: Option<Failure>) -> Reply;
}

/// What was decoded so far; a decoder only adds to it. A whole (not streamed) reply has no events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Events of any kind, role-only ones, usage and the end marker among them. Comments are none.
    pub seen: u32,
    /// Events with generated content that is not empty: text, reasoning, refusal, a tool call's name or arguments. One with
    /// content of several choices counts once for each.
    pub content: u32,
    /// How many of these came before the first one with more than reasoning.
    pub reasoning: u32,
    /// The choice of each of these; empty while all belong to choice 0.
    pub choices: Vec<u32>,
    /// The tokens in each of these, where the server's running count tells them all; otherwise empty. Filled at the end.
    pub weights: Vec<u32>,
    /// The protocol's own end marker is here; later bytes change nothing.
    pub done: bool,
}

impl Events {
    /// Adds an event with content of this choice.
    pub fn token(&mut self, choice: u32) {
        if choice > 0 && self.choices.is_empty() {
            self.choices.resize(self.content as usize, 0);
        }
        if choice > 0 || !self.choices.is_empty() {
            self.choices.push(choice);
        }
        self.content = self.content.saturating_add(1);
    }

    /// Adds an event of this choice with content that is reasoning alone.
    pub fn reasoning_token(&mut self, choice: u32) {
        self.reasoning += u32::from(self.reasoning == self.content);
        self.token(choice);
    }
}

/// What one response came to. After a failure it still holds what was good before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Why it ended. Failures made here are `stream_error`, `truncated`, `decode` and `empty`.
    ///
    /// `empty` is a complete response with neither content nor a finish reason.
    pub end: Result<Finish, Failure>,
    /// The server's counts, over all choices.
    pub usage: Usage,
    /// The server's id of the response.
    pub id: Option<String>,
    /// All generated text (reasoning, content, refusal, tool calls), one choice after the other; None: not kept.
    pub text: Option<String>,
    /// The message of the first choice as it is fed back in the next turn, its reasoning beside it; None: not kept.
    pub message: Option<Message>,
    /// What the server measured itself.
    pub server: ServerTimes,
    /// Inputs worked on, where a request holds several.
    pub items: Option<u64>,
    /// No content was generated, even if the server counts tokens.
    pub silent: bool,
}

/// A reply as the next turn of its conversation sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The answer's text.
    pub content: String,
    /// The reasoning in front of it.
    pub reasoning: String,
    /// The tool calls, as the server's protocol gives them whole; null: none.
    pub tool_calls: Value,
}
