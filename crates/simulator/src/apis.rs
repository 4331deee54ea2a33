//! The APIs: requests and responses. A new one is a file here and a line in [`ALL`].

mod anthropic;
mod dashscope;
mod embeddings;
mod images;
mod ollama;
mod openai;
mod realtime;
mod rerank;
mod responses;
mod speech;
#[cfg(test)]
mod tests;
mod tgi;
mod transcriptions;

use crate::generation::{Call, Generation, Refusal};
use crate::http;
use llmscen_core::units::Nanos;
pub(super) use realtime::{Session, Step};
use std::fmt::Debug;

/// `created` of every response: a constant, so that responses are the same in every run.
const CREATED: u64 = 1_700_000_000;

/// All APIs.
static ALL: [&dyn Protocol; 13] = [
    &openai::Chat,
    &openai::Completions,
    &responses::Responses,
    &realtime::Realtime,
    &anthropic::Messages,
    &embeddings::Embeddings,
    &rerank::Rerank,
    &transcriptions::Transcriptions,
    &speech::Speech,
    &images::Images,
    &dashscope::Dashscope,
    &ollama::Ollama,
    &tgi::Tgi,
];

/// One API.
pub(super) trait Protocol: Debug + Sync {
    /// Its POST endpoints.
    fn paths(&self) -> &'static [&'static str];

    /// The id of response `number`.
    fn id(&self, number: u64) -> String;

    /// Reads a request; returns the generation and the renderer of the response. Unknown fields are ignored.
    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal>;

    /// Whether a GET opens a WebSocket on which its requests are messages.
    fn has_websocket(&self) -> bool {
        false
    }

    /// The state of a new WebSocket. None: each message is a request.
    fn session(&self) -> Option<Session> {
        None
    }

    /// The body of an error response; `id` is the response id, if any.
    fn error(&self, refusal: &Refusal, id: Option<&str>) -> String;
}

/// Renders the bytes of one response. Each event of a stream is one HTTP chunk, or one message on a WebSocket.
///
/// APIs that never stream implement only [`Reply::full_answer`] and [`Reply::broken`].
pub(super) trait Reply: Debug {
    /// The content type of its streams.
    fn content_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    /// Renders what a stream sends when the request is accepted.
    fn open(&mut self, _to: &mut Vec<u8>, _generation: &Generation) {}

    /// Renders an event with text, and its surrounding events.
    fn text(&mut self, _to: &mut Vec<u8>, _generation: &Generation, _piece: &Piece<'_>) {}

    /// Renders a comment, if the API has comments.
    fn comment(&self, to: &mut Vec<u8>) {
        http::comment(to);
    }

    /// Renders what follows the last text, including the end marker.
    fn finish(&mut self, _to: &mut Vec<u8>, _generation: &Generation, _times: Times) {}

    /// Renders an error in mid-stream and the end of the stream.
    fn fail(&mut self, _to: &mut Vec<u8>, _generation: &Generation) {}

    /// Renders a response without streaming. `choices` is empty for embeddings and scores.
    fn full_answer(&self, generation: &Generation, choices: &[ChoiceText], times: Times) -> String;

    /// Renders a response without streaming that reports an error under a success status.
    fn broken(&self, generation: &Generation) -> String;
}

/// The kind of an event's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Reasoning text.
    Reasoning,
    /// The answer.
    Content,
}

/// The text of one event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'t> {
    /// Choice index, below 16.
    pub(super) choice: usize,
    pub(super) part: Part,
    /// Text without JSON escapes.
    pub(super) text: &'t str,
    /// Tokens of the choice so far, including these.
    pub(super) made: u64,
    /// It is the first of its choice.
    pub(super) first: bool,
    /// It is the first of its part.
    pub(super) opens: bool,
    /// It is the last of its part.
    pub(super) closes: bool,
    /// It is the last of its choice.
    pub(super) last: bool,
}

/// All text of one choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChoiceText {
    pub(super) thoughts: String,
    pub(super) text: String,
}

/// Times of a request, by the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// Receipt of the request.
    pub(super) received: Nanos,
    /// First token.
    pub(super) first: Nanos,
    /// Newest token.
    pub(super) newest: Nanos,
}

/// The API of a path, and the path as a constant.
pub(super) fn protocol_for(path: &str) -> Option<(&'static dyn Protocol, &'static str)> {
    ALL.iter().find_map(|protocol| {
        Some((
            *protocol,
            *protocol.paths().iter().find(|known| **known == path)?,
        ))
    })
}

/// All POST endpoints.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    let posted = ALL.iter().filter(|protocol| protocol.session().is_none());
    posted.flat_map(|protocol| protocol.paths()).copied()
}

/// The error body of a request to an unknown endpoint, in OpenAI's format.
pub(super) fn plain_error(refusal: &Refusal) -> String {
    openai::error(refusal)
}

/// The list of models, in OpenAI's format. Any model name is accepted.
pub(super) fn models() -> String {
    format!(
        "{{\"object\":\"list\",\"data\":[{{\"id\":\"sim\",\"object\":\"model\",\"created\":{CREATED},\"owned_by\":\"llmscen\"}}]}}"
    )
}
