//! The protocols: the requests and answers of each. A further one is a file here and its line in [`ALL`].

mod anthropic;
mod dashscope;
mod embeddings;
mod ollama;
mod openai;
mod rerank;
mod responses;
#[cfg(test)]
mod tests;
mod tgi;

use crate::generation::{Call, Generation, Refusal};
use crate::http;
use llmscen_core::units::Nanos;
use std::fmt::Debug;

/// `created` of every answer: the simulator does not read the wall clock, and its answers are the same on every run.
const CREATED: u64 = 1_700_000_000;

/// Every protocol.
static ALL: [&dyn Protocol; 9] = [
    &openai::Chat,
    &openai::Completions,
    &responses::Responses,
    &anthropic::Messages,
    &embeddings::Embeddings,
    &rerank::Rerank,
    &dashscope::Dashscope,
    &ollama::Ollama,
    &tgi::Tgi,
];

/// One protocol.
pub(super) trait Protocol: Debug + Sync {
    /// Its endpoints, all of which take POST.
    fn paths(&self) -> &'static [&'static str];

    /// The id of answer `number`.
    fn id(&self, number: u64) -> String;

    /// Reads a request: what it requests, and what forms the answer. Fields that the simulator does not know are ignored.
    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal>;

    /// The body of an answer with an error status; the id is that of the answer, where there is to be one.
    fn error(&self, refusal: &Refusal, id: Option<&str>) -> String;
}

/// What forms the bytes of one answer. Each event of a stream is one HTTP chunk.
///
/// Protocols that never stream leave out all but [`Reply::full_answer`] and [`Reply::broken`].
pub(super) trait Reply: Debug {
    /// The content type of its streams.
    fn content_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    /// What a stream sends as soon as the request is accepted.
    fn open(&mut self, _to: &mut Vec<u8>, _generation: &Generation) {}

    /// An event that carries text, with all that has to surround it.
    fn text(&mut self, _to: &mut Vec<u8>, _generation: &Generation, _piece: &Piece<'_>) {}

    /// A comment, where the protocol knows any.
    fn comment(&self, to: &mut Vec<u8>) {
        http::comment(to);
    }

    /// What follows the last text, the end marker included.
    fn finish(&mut self, _to: &mut Vec<u8>, _generation: &Generation, _times: Times) {}

    /// An error in mid-stream and what the protocol sends behind it.
    fn fail(&mut self, _to: &mut Vec<u8>, _generation: &Generation) {}

    /// A whole answer. Unless numbers were requested there is one [`ChoiceText`] for each choice.
    fn full_answer(&self, generation: &Generation, choices: &[ChoiceText], times: Times) -> String;

    /// A whole answer that reports an error under a status of success.
    fn broken(&self, generation: &Generation) -> String;
}

/// What an event's text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Reasoning text.
    Reasoning,
    /// The answer itself.
    Content,
}

/// Text that one event is to carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'t> {
    /// The choice that it belongs to, below 16.
    pub(super) choice: usize,
    pub(super) part: Part,
    /// It needs no escapes in JSON.
    pub(super) text: &'t str,
    /// Tokens of the choice, these included.
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

/// When things happened to a request, by the engine's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// It was read.
    pub(super) received: Nanos,
    /// Its first token was there.
    pub(super) first: Nanos,
    /// Its newest token was there.
    pub(super) newest: Nanos,
}

/// The protocol of a path, and the path as its own constant.
pub(super) fn protocol_for(path: &str) -> Option<(&'static dyn Protocol, &'static str)> {
    ALL.iter().find_map(|protocol| Some((*protocol, *protocol.paths().iter().find(|own| **own == path)?)))
}

/// All endpoints of all protocols.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    ALL.iter().flat_map(|protocol| protocol.paths()).copied()
}

/// The error of a request that reached no protocol, in OpenAI's shape.
pub(super) fn plain_error(refusal: &Refusal) -> String {
    openai::error(refusal)
}

/// The list of models, in OpenAI's shape: any name is served, this one is shown.
pub(super) fn models() -> String {
    format!(
        "{{\"object\":\"list\",\"data\":[{{\"id\":\"sim\",\"object\":\"model\",\"created\":{CREATED},\"owned_by\":\"llmscen\"}}]}}"
    )
}
