//! Decoding of responses: streams of events up to the end marker, and single JSON documents.

use crate::error::error_text;
use crate::framing::{Beginning, Event, Framer, Lines, Sse, is_first_of_lines, sniff};
use crate::raw_json::is_error_json;
use crate::{Decoder, Events, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish};
use llmscen_core::request::Framing;
use serde_json::Value;

/// Maximum size of an event, bytes: hundreds of times a token with log probabilities. A server that never ends an
/// event must not fill the memory.
const MAX_EVENT_BYTES: usize = 8 << 20;

/// The decoder of a stream of events.
pub struct Stream<A> {
    framer: Framer,
    state: State<A>,
}

struct State<A> {
    assembly: A,
    done: bool,
    progress: u32,
    /// Tokens that the server has counted, and whether it has finished.
    reported: (u64, bool),
    failure: Option<Failure>,
}

impl<A: Assembly> Stream<A> {
    fn new(framer: Framer, assembly: A) -> Stream<A> {
        Stream {
            framer,
            state: State {
                assembly,
                done: false,
                progress: 0,
                reported: (0, false),
                failure: None,
            },
        }
    }
}

impl<A: Assembly> Decoder for Stream<A> {
    fn push(&mut self, bytes: &[u8], events: &mut Events) {
        let Stream { framer, state } = self;
        if state.done {
            return;
        }
        framer.push(bytes, |event| state.take(event, events));
        if framer.overflowed() && !state.done && state.failure.is_none() {
            let message = format!(
                "an event is larger than {} MiB, or not an event at all",
                MAX_EVENT_BYTES >> 20
            );
            state.fail(
                Failure::new(FailureKind::Decode, message)
                    .at(format!("after {} events", events.total)),
            );
        }
    }

    fn has_failed(&self) -> bool {
        self.state.failure.is_some()
    }

    fn progress(&self) -> u32 {
        self.state.progress
    }

    fn finish(self: Box<Self>, events: &mut Events, broken: Option<Failure>) -> Reply {
        let Stream {
            mut framer,
            mut state,
        } = *self;
        match &broken {
            _ if state.done => {}
            Some(_) => framer.finish(|event| state.take_error(event, events.total)),
            None => {
                let earlier = state.failure.take();
                framer.finish(|event| state.take(event, events));
                state.failure = earlier.or(state.failure.take().map(as_truncated));
            }
        }
        let end = state.ending(broken, &framer, events.total);
        state.assembly.close(events);
        state.assembly.reply(end)
    }
}

/// An unreadable last event without its end was truncated.
fn as_truncated(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Decode => {
            let message = format!(
                "the stream ended in the middle of an event: {}",
                failure.message
            );
            Failure::new(FailureKind::Truncated, message).at(failure.at)
        }
        _ => failure,
    }
}

impl<A: Assembly> State<A> {
    fn take(&mut self, event: Event<'_>, events: &mut Events) {
        if self.done {
            return;
        }
        events.total = events.total.saturating_add(1);
        let (content, audio) = (events.content, events.audio.map(|audio| audio.bytes));
        let data = event.data.trim_ascii();
        if event.name == b"error" {
            let failure = Failure::new(FailureKind::StreamError, error_text(data));
            self.fail_here(failure, events.total);
        } else if !data.is_empty() {
            if let Err(failure) = self.assembly.event(Event { data, ..event }, events) {
                self.fail_here(failure, events.total);
            }
            self.done = events.done;
        } else {
            self.assembly.named_event(event.name, events);
            self.done = events.done;
        }
        let is_progress = events.content != content
            || self.done
            || events.audio.map(|audio| audio.bytes) != audio
            || self.has_new_report();
        self.progress = self.progress.saturating_add(is_progress.into());
    }

    /// Reads an event without its end, before a broken connection: only its error counts.
    fn take_error(&mut self, event: Event<'_>, seen: u32) {
        let data = event.data.trim_ascii();
        if event.name == b"error" || is_error_document(data, &["error"]) {
            let failure = Failure::new(FailureKind::StreamError, error_text(data));
            self.fail(failure.at(format!("after {seen} events")));
        }
    }

    /// Whether an event without content changed what the server reports.
    fn has_new_report(&mut self) -> bool {
        let now = (
            self.assembly.counted_tokens(),
            self.assembly.ending(true).is_ok(),
        );
        std::mem::replace(&mut self.reported, now) != now
    }

    fn fail_here(&mut self, failure: Failure, event: u32) {
        let position = format!("event {event}");
        self.fail(failure.at(position));
    }

    /// Keeps the first failure.
    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    fn ending(
        &mut self,
        broken: Option<Failure>,
        framer: &Framer,
        seen: u32,
    ) -> Result<Finish, Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let position = format!("after {seen} events");
        // What follows the end marker is not read.
        let stray = if self.done {
            b""
        } else {
            framer.stray_text().trim_ascii()
        };
        if is_error_document(stray, &["error", "detail", "message"]) {
            let failure = Failure::new(FailureKind::StreamError, error_text(stray));
            return Err(failure.at(position));
        }
        match broken.filter(|_| !self.done) {
            Some(failure) if failure.at.is_empty() => Err(failure.at(position)),
            Some(failure) => Err(failure),
            None => self
                .assembly
                .ending(true)
                .map_err(|failure| quote_stray(failure, stray).at(position)),
        }
    }
}

/// Whether this is a JSON object with an error in one of these fields.
fn is_error_document(text: &[u8], fields: &[&str]) -> bool {
    text.starts_with(b"{")
        && serde_json::from_slice::<Value>(text).is_ok_and(|document| {
            let is_set = |field: &Value| is_error_json(&field.to_string());
            let has = |name: &&str| document.get(*name).is_some_and(is_set);
            fields.iter().any(has) || document["object"] == "error"
        })
}

/// Adds the text outside of events to the failure of a stream that is not complete.
fn quote_stray(failure: Failure, stray: &[u8]) -> Failure {
    match (failure.kind, stray) {
        (_, b"") => failure,
        (FailureKind::Truncated | FailureKind::Empty, stray) => {
            let message = format!(
                "{}; the server sent: {}",
                failure.message,
                error_text(stray)
            );
            Failure::new(failure.kind, message)
        }
        _ => failure,
    }
}

/// Decodes the messages of one response of an API. Never panics.
pub trait Assembly: Send {
    /// Decodes one event of a stream with non-empty data: adds its content to `events`, and sets `events.done` at the
    /// end marker. Events named `error` are handled by the caller.
    ///
    /// # Errors `stream_error` with the server's message for an error; `decode` for a message that the API does not
    /// allow.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure>;

    /// Handles an event with a name and no data, which most APIs ignore.
    fn named_event(&mut self, _name: &[u8], _events: &mut Events) {}

    /// Decodes a reply that is not streamed. Errors are those of an event.
    fn document(&mut self, body: &[u8]) -> Result<(), Failure>;

    /// The end of a response whose body is complete.
    ///
    /// # Errors `truncated`, `decode`, `empty` or `stream_error`, if something required by the API is missing.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure>;

    /// Completes the events of a stream at its end: their tokens and their kinds.
    fn close(&self, _events: &mut Events) {}

    /// The output tokens that the server has reported so far; 0 if it does not report them with every event.
    fn counted_tokens(&self) -> u64 {
        0
    }

    /// The reply, with this end.
    fn reply(self, end: Result<Finish, Failure>) -> Reply;
}

/// Maximum size of a buffered document, bytes.
const MAX_BODY_BYTES: usize = 64 << 20;

/// The decoder of a single JSON document, which is buffered and decoded at its end. A finish reason is optional.
pub struct Unary<A> {
    limit: usize,
    body: Vec<u8>,
    overflowed: bool,
    assembly: A,
}

impl<A: Assembly> Unary<A> {
    /// A decoder for a document of the default maximum size.
    pub fn new(assembly: A) -> Unary<A> {
        Unary::with_limit(MAX_BODY_BYTES, assembly)
    }

    /// A decoder for documents of up to `limit` bytes.
    pub fn with_limit(limit: usize, assembly: A) -> Unary<A> {
        Unary {
            limit,
            body: Vec::new(),
            overflowed: false,
            assembly,
        }
    }

    fn ending(&mut self, broken: Option<Failure>) -> Result<Finish, Failure> {
        if self.overflowed {
            let message = format!("the body is larger than {} MiB", self.limit >> 20);
            return Err(Failure::new(FailureKind::Decode, message));
        }
        if let Some(failure) = broken {
            return Err(failure);
        }
        self.assembly.document(&self.body)?;
        self.assembly.ending(false)
    }
}

impl<A: Assembly> Decoder for Unary<A> {
    fn push(&mut self, bytes: &[u8], _events: &mut Events) {
        if self.overflowed || self.body.len() + bytes.len() > self.limit {
            self.overflowed = true;
            self.body = Vec::new();
            return;
        }
        self.body.extend_from_slice(bytes);
    }

    fn finish(mut self: Box<Self>, _events: &mut Events, broken: Option<Failure>) -> Reply {
        let end = self.ending(broken);
        self.assembly.reply(end)
    }
}

/// A decoder for a response with this framing.
pub(crate) fn decoder_for<A: Assembly + 'static>(
    framing: Framing,
    assembly: A,
) -> Box<dyn Decoder> {
    match framing {
        Framing::Sse => Box::new(Stream::new(
            Framer::Sse(Sse::new(MAX_EVENT_BYTES)),
            assembly,
        )),
        Framing::Ndjson => Box::new(Stream::new(
            Framer::Lines(Lines::new(MAX_EVENT_BYTES)),
            assembly,
        )),
        // Audio is decoded by the API that has it.
        Framing::Json | Framing::Audio { .. } => Box::new(Unary::new(assembly)),
    }
}

/// The framing by the `content-type` of a successful response; without that header, by the request.
///
/// Any other type is a `decode` failure, such as a proxy's HTML page under status 200.
pub fn framing_of_content_type(
    content_type: Option<&str>,
    stream_requested: bool,
) -> Result<Framing, Failure> {
    let Some(given) = content_type else {
        return Ok(if stream_requested {
            Framing::Sse
        } else {
            Framing::Json
        });
    };
    let essence = given
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match essence.as_str() {
        "text/event-stream" => Ok(Framing::Sse),
        "application/x-ndjson"
        | "application/ndjson"
        | "application/jsonl"
        | "application/x-jsonlines" => Ok(Framing::Ndjson),
        "application/json" => Ok(Framing::Json),
        _ => Err(Failure::new(
            FailureKind::Decode,
            format!(
                "the response is `{given}`, not `text/event-stream` or `application/json`; check `target.url`"
            ),
        )),
    }
}

/// The framing of a body by its first bytes, where they show another one than its `content-type`; None if more bytes
/// are needed. `may_be_lines`: the API may stream lines of JSON, so that the first line decides between these and one
/// document.
///
/// # Errors
/// Those of the `content-type`.
pub fn sniff_framing(
    declared: &Result<Framing, Failure>,
    beginning: &[u8],
    may_be_lines: bool,
) -> Option<Result<Framing, Failure>> {
    Some(match (declared, sniff(beginning)?) {
        (Ok(Framing::Json | Framing::Sse) | Err(_), Beginning::Json)
            if may_be_lines && is_first_of_lines(beginning)? =>
        {
            Ok(Framing::Ndjson)
        }
        (Ok(Framing::Json | Framing::Ndjson) | Err(_), Beginning::Events) => Ok(Framing::Sse),
        (Ok(Framing::Sse) | Err(_), Beginning::Json) => Ok(Framing::Json),
        _ => declared.clone(),
    })
}

/// The framing of an API that never streams: the `content-type`, if any, must be JSON.
///
/// # Errors
/// `decode`, as for [`shape_of`].
pub fn require_json(content_type: Option<&str>) -> Result<Framing, Failure> {
    match framing_of_content_type(content_type, false)? {
        Framing::Json => Ok(Framing::Json),
        _ => {
            let message = format!(
                "the response is a stream (`{}`), which this API never gives",
                content_type.unwrap_or_default()
            );
            Err(Failure::new(FailureKind::Decode, message))
        }
    }
}

#[cfg(test)]
mod shape_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unary_tests;
