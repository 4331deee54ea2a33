//! Floor 1. Protocols: bytes in, events out.
//!
//! ```text
//! bytes ── sse ── one event ── chunk (its JSON) ── tally (what they add up to) ── Reply
//!                                  └ usage            └ error (the server's own words)
//! ```
//!
//! A protocol is one file that implements [`Protocol`], and one line in [`protocol`]. `stream` and `whole` decode the
//! two shapes of the OpenAI family; a protocol with other messages brings its own [`Decoder`].

mod chat;
mod chunk;
mod completions;
mod error;
mod shape;
mod sse;
mod stream;
mod tally;
mod usage;
mod whole;

#[cfg(test)]
mod recordings;
#[cfg(test)]
mod replay;

pub use error::error_message;
pub use shape::{Shape, shape_of};

use crate::model::outcome::{Failure, Finish, Usage};
use crate::model::target::Api;
use serde_json::Value;

/// What is spoken with a target: how a request looks, and how a response is read.
pub trait Protocol: Send + Sync {
    /// The default request template, with `{{ … }}` in its string leaves. A stream asks for the token counts too.
    fn body(&self, stream: bool) -> Value;

    /// A decoder for one response of this shape. With `keep_text` the generated text is kept.
    fn decoder(&self, shape: Shape, keep_text: bool) -> Box<dyn Decoder>;
}

/// The protocol of an API.
pub fn protocol(api: Api) -> &'static dyn Protocol {
    match api {
        Api::OpenaiChat => &chat::Chat,
        Api::OpenaiCompletions => &completions::Completions,
    }
}

/// Reads one response. However its bytes are split over calls of `push`, the events and the reply are the same.
pub trait Decoder: Send {
    /// Takes the bytes of one socket read and adds what they completed to `events`.
    ///
    /// It never panics, whatever the bytes. Once a stream runs, an event allocates nothing, unless it carries log
    /// probabilities or its text is kept.
    fn push(&mut self, bytes: &[u8], events: &mut Events);

    /// Ends the response. `broken` is what cut it short, such as a reset or a timeout; None: the body came to its end.
    ///
    /// A last event that lacks its blank line is added to `events` if the body came to its end. What the server said
    /// goes before `broken`: a stream that had its end marker is good whatever happened after it, and an error inside
    /// the response, or data that cannot be read, stays the reason.
    fn finish(self: Box<Self>, events: &mut Events, broken: Option<Failure>) -> Reply;
}

/// What was decoded so far; a decoder only adds to it. A whole (not streamed) reply has no events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Events of any kind, role-only ones, usage and the end marker among them. Comments are none.
    pub seen: u32,
    /// Events with generated content that is not empty: text, reasoning, refusal, a tool call's name or arguments.
    pub content: u32,
    /// The protocol's own end marker is here; later bytes change nothing.
    pub done: bool,
}

/// What one response came to. After a failure it still holds what was good before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Why it ended. Failures made here are `stream_error`, `truncated`, `decode` and `empty`.
    ///
    /// `empty` is a complete response without generated content, even where the server counts tokens in it: nothing
    /// arrived that could be timed.
    pub end: Result<Finish, Failure>,
    /// The server's counts, over all choices.
    pub usage: Usage,
    /// The server's id of the response.
    pub id: Option<String>,
    /// All generated text (reasoning, content, refusal, tool calls), one choice after the other; None: not kept.
    pub text: Option<String>,
}
