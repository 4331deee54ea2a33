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
mod tests {
    use super::*;
    use crate::replay::{cut_up, decode};
    use crate::{DecodeOptions, protocol};
    use llmscen_core::api::Api;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    const ROLE: &str = "data: {\"id\":\"r\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    const HI: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n";
    const STOP: &str =
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    const USAGE: &str =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    fn run(stream: &[&str], broken: Option<Failure>) -> (Events, Reply) {
        let text = stream.concat();
        decode(Api::OpenaiChat, Framing::Sse, [text.as_bytes()], broken)
    }

    /// The end in one line: the finish reason, or failure kind, position and message.
    fn end(stream: &[&str]) -> String {
        match run(stream, None).1.end {
            Ok(finish) => finish.reason,
            Err(failure) => format!("{} ({}): {}", failure.kind, failure.at, failure.message),
        }
    }

    #[test]
    fn a_stream_is_complete_with_a_finish_reason_and_the_marker_or_its_end() {
        assert_eq!(end(&[ROLE, HI, STOP, USAGE, DONE]), "stop");
        assert_eq!(end(&[ROLE, HI, STOP, USAGE]), "stop");
        assert_eq!(
            end(&[ROLE, HI, STOP, ": ping\n\n", "data:\n\n", DONE]),
            "stop"
        );
        assert_eq!(
            end(&[ROLE, HI, STOP, DONE, HI, "data: {\"error\":\"late\"}\n\n"]),
            "stop"
        );
        let no_reason =
            "truncated (after 2 events): the stream ended without a finish reason for choice 0";
        assert_eq!(end(&[ROLE, HI]), no_reason);
        assert_eq!(end(&[HI, DONE]), no_reason);
        assert_eq!(
            end(&[DONE]),
            "truncated (after 1 events): the stream ended before its first choice"
        );
        assert_eq!(
            end(&[]),
            "truncated (after 0 events): the stream ended before its first choice"
        );
        assert_eq!(end(&[ROLE, STOP, USAGE, DONE]), "stop");
    }

    #[test]
    fn an_error_event_is_the_failure_and_earlier_content_is_kept() {
        for error in [
            "data: {\"error\":{\"message\":\"died\",\"code\":500}}\n\n",
            "data: {\"error\":\"died\"}\n\n",
            "data: {\"object\":\"error\",\"message\":\"died\",\"code\":500}\n\n",
            "event: error\ndata: {\"message\":\"died\"}\n\n",
            "event: error\ndata: died\n\n",
        ] {
            assert_eq!(
                end(&[ROLE, HI, error, STOP, DONE]),
                "stream_error (event 3): died",
                "{error}"
            );
            let reset = Failure::new(FailureKind::Truncated, "reset");
            let (events, reply) = run(&[ROLE, HI, USAGE, error], Some(reset));
            assert_eq!(reply.end.unwrap_err().kind, FailureKind::StreamError);
            assert_eq!((events.total, events.content, events.done), (4, 1, false));
            assert_eq!(
                (
                    reply.usage.output,
                    reply.id.as_deref(),
                    reply.text.as_deref()
                ),
                (Some(1), Some("r"), Some("hi"))
            );
        }
    }

    #[test]
    fn the_message_quotes_an_unreadable_event() {
        let long = format!("data: oops{}\n\n", "x".repeat(900));
        let failure = run(&[ROLE, &long, HI, STOP, DONE], None).1.end.unwrap_err();
        let start = format!("oops{}", "x".repeat(196));
        assert_eq!(
            (failure.kind, failure.at.as_str()),
            (FailureKind::Decode, "event 2")
        );
        assert_eq!(
            failure.message,
            format!("the JSON cannot be read (expected value at line 1 column 1): {start}")
        );
        assert_eq!(run(&[ROLE, &long, HI], None).0.content, 1);
    }

    #[test]
    fn an_interruption_is_the_failure_unless_the_marker_was_received() {
        let reset = || Some(Failure::new(FailureKind::TimeoutRead, "silence"));
        let failure = run(&[ROLE, HI, "data: [DO"], reset()).1.end.unwrap_err();
        assert_eq!(
            (failure.kind, failure.at.as_str()),
            (FailureKind::TimeoutRead, "after 2 events")
        );
        assert!(run(&[ROLE, HI, STOP], reset()).1.end.is_err());
        assert!(run(&[ROLE, HI, STOP, DONE], reset()).1.end.is_ok());
    }

    #[test]
    fn a_last_event_without_its_blank_line_is_decoded_or_truncated() {
        let (events, reply) = run(&[ROLE, HI, STOP, "data: [DONE]"], None);
        assert_eq!(
            (events.total, events.done, reply.end.is_ok()),
            (4, true, true)
        );
        let (events, reply) = run(&[ROLE, HI.trim_end()], None);
        assert_eq!((events.content, reply.text.as_deref()), (1, Some("hi")));
        let cut = run(&[ROLE, HI, "data: {\"choices\":[{"], None)
            .1
            .end
            .unwrap_err();
        assert_eq!(
            (cut.kind, cut.at.as_str()),
            (FailureKind::Truncated, "event 3")
        );
        assert!(
            cut.message
                .starts_with("the stream ended in the middle of an event: "),
            "{}",
            cut.message
        );
    }

    #[test]
    fn the_error_before_a_broken_connection_is_the_servers() {
        let reset = || Failure::new(FailureKind::Truncated, "reset");
        let end = |last: &str| {
            let failure = run(&[HI, last], Some(reset())).1.end.unwrap_err();
            format!("{} ({}): {}", failure.kind, failure.at, failure.message)
        };
        let full = "stream_error (after 1 events): full";
        for last in [
            "{\"error\":{\"message\":\"full\"}}",
            "data: {\"error\":{\"message\":\"full\"}}",
            "data: {\"error\":\"full\"}\n",
            "event: error\ndata: full",
        ] {
            assert_eq!(end(last), full, "{last}");
        }
        for last in [
            "data: {\"error\":{\"mess",
            "data: {\"error\":null}",
            HI.trim(),
        ] {
            assert_eq!(end(last), "truncated (after 1 events): reset", "{last}");
        }
        let line = br#"{"message":{"content":"hi"},"done":false}"#;
        let broken = decode(Api::Ollama, Framing::Ndjson, [&line[..]], Some(reset()));
        assert_eq!(broken.1.end.unwrap_err().message, "reset");
    }

    #[test]
    fn lines_of_ollama_are_shown_by_their_first_line() {
        let refused = framing_of_content_type(Some("text/plain"), true);
        let first = b"{\"message\":{\"content\":\"hi\"},\"done\":false}\n";
        let shown = |declared: &Result<Framing, Failure>, bytes: &[u8]| {
            sniff_framing(declared, bytes, true).map(|framing| framing.ok())
        };
        for declared in [&refused, &Ok(Framing::Json), &Ok(Framing::Sse)] {
            assert_eq!(shown(declared, &first[..30]), None);
            assert_eq!(shown(declared, first), Some(Some(Framing::Ndjson)));
            for document in [&b"{\"done\":true}\n"[..], b"{\n\"done\":false}", b"[1]\n"] {
                assert_eq!(shown(declared, document), Some(Some(Framing::Json)));
            }
            let json = sniff_framing(declared, first, false);
            assert_eq!(json, Some(Ok(Framing::Json)), "an API without lines");
        }
        assert_eq!(
            shown(&Ok(Framing::Ndjson), b"{"),
            Some(Some(Framing::Ndjson))
        );
        let long = [&b"{"[..], &vec![b' '; 70_000]].concat();
        assert_eq!(shown(&refused, &long), Some(Some(Framing::Json)));
    }

    #[test]
    fn an_endless_event_is_a_decode_failure() {
        let block = vec![b'x'; 1 << 20];
        let pieces = std::iter::once(HI.as_bytes()).chain(std::iter::repeat_n(&block[..], 9));
        let (events, reply) = decode(Api::OpenaiChat, Framing::Sse, pieces, None);
        let failure = reply.end.unwrap_err();
        assert_eq!(
            (failure.kind, failure.at.as_str()),
            (FailureKind::Decode, "after 1 events")
        );
        assert_eq!(
            failure.message,
            "an event is larger than 8 MiB, or not an event at all"
        );
        assert_eq!((events.total, reply.text.as_deref()), (1, Some("hi")));
        let late = [[HI, STOP, DONE].concat().as_bytes(), &block.repeat(9)].concat();
        assert!(
            decode(Api::OpenaiChat, Framing::Sse, [&late[..]], None)
                .1
                .end
                .is_ok()
        );
    }

    /// Number of events with progress after each piece of a stream.
    fn progress(api: Api, framing: Framing, pieces: &[&str]) -> Vec<u32> {
        let options = DecodeOptions::default();
        let mut decoder = protocol(api, None).unwrap().decoder(framing, &options);
        let mut events = Events::default();
        let after = |piece: &&str| {
            decoder.push(piece.as_bytes(), &mut events);
            decoder.progress()
        };
        pieces.iter().map(after).collect()
    }

    #[test]
    fn heartbeats_are_no_progress() {
        let empty = "data: {\"choices\":[{\"index\":0,\"delta\":{}}],\"usage\":null}\n\n";
        let counted = |tokens: u32| {
            format!(
                "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}}}}],\"usage\":{{\"completion_tokens\":{tokens}}}}}\n\n"
            )
        };
        let chat = [
            (ROLE, 0),
            (HI, 1),
            (": ping\n\n", 1),
            ("data:\n\n", 1),
            ("event: ping\ndata: {}\n\n", 1),
            (empty, 1),
            (&counted(2), 2),
            (&counted(2), 2),
            (&counted(3), 3),
            (STOP, 4),
            (empty, 4),
            (USAGE, 5),
            (DONE, 6),
        ];
        let (pieces, expected): (Vec<&str>, Vec<u32>) = chat.into_iter().unzip();
        assert_eq!(progress(Api::OpenaiChat, Framing::Sse, &pieces), expected);
        let anthropic = [
            (
                "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n",
                1,
            ),
            ("event: ping\ndata: {\"type\": \"ping\"}\n\n", 1),
            (
                "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n",
                2,
            ),
            ("event: ping\ndata: {\"type\": \"ping\"}\n\n", 2),
            ("data: {\"type\":\"message_stop\"}\n\n", 3),
        ];
        let (pieces, expected): (Vec<&str>, Vec<u32>) = anthropic.into_iter().unzip();
        assert_eq!(progress(Api::Anthropic, Framing::Sse, &pieces), expected);
        let realtime = [
            (
                "{\"type\":\"response.output_audio.delta\",\"delta\":\"AAAA\"}\n",
                1,
            ),
            ("{\"type\":\"rate_limits.updated\"}\n", 1),
            ("\n", 1),
            (
                "{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n",
                2,
            ),
        ];
        let (pieces, expected): (Vec<&str>, Vec<u32>) = realtime.into_iter().unzip();
        assert_eq!(
            progress(Api::OpenaiRealtime, Framing::Ndjson, &pieces),
            expected
        );
        let ollama = [
            ("{\"message\":{\"content\":\"hi\"},\"done\":false}\n", 1),
            ("{\"message\":{\"content\":\"\"},\"done\":false}\n\n", 1),
            ("{\"done\":true,\"done_reason\":\"stop\"}\n", 2),
        ];
        let (pieces, expected): (Vec<&str>, Vec<u32>) = ollama.into_iter().unzip();
        assert_eq!(progress(Api::Ollama, Framing::Ndjson, &pieces), expected);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_splits_change_nothing(
            parts in prop::collection::vec(prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                select(vec!["data: ", "\n\n", "{\"choices\":[{\"text\":\"", "\"}]}", "{", "\\u", ROLE,
                    HI, STOP, DONE]).prop_map(|text| text.as_bytes().to_vec()),
            ], 0..20),
            cuts in prop::collection::vec(any::<Index>(), 0..10),
            shape in select(vec![Framing::Sse, Framing::Json]),
        ) {
            let bytes = parts.concat();
            let whole = decode(Api::OpenaiChat, shape, [&bytes[..]], None);
            prop_assert_eq!(decode(Api::OpenaiChat, shape, cut_up(&bytes, &cuts), None), whole);
        }

        #[test]
        fn any_text_arrives_in_any_split(
            texts in prop::collection::vec(any::<String>(), 1..12),
            end in select(vec!["\n", "\r\n", "\r"]),
            cuts in prop::collection::vec(any::<Index>(), 0..20),
        ) {
            let mut stream = String::new();
            for text in &texts {
                let event = serde_json::json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
                stream.push_str(&format!("data: {event}{end}{end}: ping{end}"));
            }
            stream.push_str(STOP);
            let (events, reply) = decode(Api::OpenaiChat, Framing::Sse, cut_up(stream.as_bytes(), &cuts), None);
            prop_assert_eq!(reply.text, Some(texts.concat()));
            prop_assert_eq!(events.content as usize, texts.iter().filter(|text| !text.is_empty()).count());
            prop_assert_eq!(events.total as usize, texts.len() + 1);
        }
    }

    #[test]
    fn text_is_collected_only_on_request() {
        let mut decoder = protocol(Api::OpenaiChat, None)
            .unwrap()
            .decoder(Framing::Sse, &DecodeOptions::default());
        let mut events = Events::default();
        decoder.push([HI, STOP].concat().as_bytes(), &mut events);
        assert_eq!(decoder.finish(&mut events, None).text, None);
        assert_eq!(
            events,
            Events {
                total: 2,
                content: 1,
                ..Events::default()
            }
        );
    }
}

#[cfg(test)]
mod unary_tests {
    use super::*;
    use crate::DecodeOptions;
    use crate::replay::decode;
    use llmscen_core::api::Api;

    fn run(body: &str, broken: Option<Failure>) -> Reply {
        let (events, reply) = decode(
            Api::OpenaiCompletions,
            Framing::Json,
            [body.as_bytes()],
            broken,
        );
        assert_eq!(events, Events::default());
        reply
    }

    fn end(body: &str) -> String {
        match run(body, None).end {
            Ok(finish) => finish.reason,
            Err(failure) => format!("{}: {}", failure.kind, failure.message),
        }
    }

    #[test]
    fn a_reply_needs_choices_and_content_but_no_reason() {
        assert_eq!(
            end(r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#),
            "stop"
        );
        assert_eq!(end(r#"{"choices":[{"text":"a"}]}"#), "");
        assert_eq!(end(r#"{"choices":[]}"#), "decode: the reply has no choices");
        assert_eq!(
            end(r#"{"object":"list"}"#),
            "decode: the reply has no choices"
        );
        assert_eq!(end(r#"{"error":{"message":"no"}}"#), "stream_error: no");
        assert_eq!(
            end(""),
            "decode: the JSON cannot be read (EOF while parsing a value at line 1 column 0): "
        );
        assert_eq!(
            end("<html>"),
            "decode: the JSON cannot be read (expected value at line 1 column 1): <html>"
        );
    }

    #[test]
    fn counted_tokens_without_text_and_reason_are_empty_and_the_counts_are_kept() {
        let reply = run(
            r#"{"choices":[{"text":""}],"usage":{"completion_tokens":4}}"#,
            None,
        );
        assert_eq!(reply.end.unwrap_err().kind, FailureKind::Empty);
        assert_eq!(reply.usage.output, Some(4));
    }

    #[test]
    fn a_broken_body_is_not_read() {
        let reset = Failure::new(FailureKind::Truncated, "reset");
        assert_eq!(
            run(r#"{"choices":[{"text":"a"}]}"#, Some(reset.clone())).end,
            Err(reset)
        );
    }

    #[test]
    fn a_body_past_the_bound_is_dropped() {
        let mut whole = Box::new(Unary::with_limit(
            3 << 20,
            crate::chat::ChatMessages::new(&DecodeOptions::default()),
        ));
        let mut events = Events::default();
        whole.push(&[b' '; 2 << 20], &mut events);
        whole.push(&[b' '; 2 << 20], &mut events);
        assert_eq!(whole.body.capacity(), 0);
        assert_eq!(
            whole.finish(&mut events, None).end.unwrap_err().message,
            "the body is larger than 3 MiB"
        );
    }
}

#[cfg(test)]
mod shape_tests {
    use super::*;

    #[test]
    fn the_content_type_decides() {
        for asked in [true, false] {
            assert_eq!(
                framing_of_content_type(Some("text/event-stream; charset=utf-8"), asked),
                Ok(Framing::Sse)
            );
            assert_eq!(
                framing_of_content_type(Some("Application/JSON"), asked),
                Ok(Framing::Json)
            );
            assert_eq!(
                framing_of_content_type(Some("application/x-ndjson"), asked),
                Ok(Framing::Ndjson)
            );
        }
        assert_eq!(framing_of_content_type(None, true), Ok(Framing::Sse));
        assert_eq!(framing_of_content_type(None, false), Ok(Framing::Json));
    }

    #[test]
    fn an_api_without_streaming_accepts_json_only() {
        assert_eq!(require_json(None), Ok(Framing::Json));
        assert_eq!(
            require_json(Some("application/json; charset=utf-8")),
            Ok(Framing::Json)
        );
        for given in ["text/event-stream", "application/x-ndjson", "text/html"] {
            let failure = require_json(Some(given)).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Decode);
            assert!(
                failure.message.contains(&format!("`{given}`")),
                "{}",
                failure.message
            );
        }
    }

    #[test]
    fn any_other_type_is_named() {
        for given in ["text/html; charset=utf-8", "text/plain", ""] {
            let failure = framing_of_content_type(Some(given), true).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Decode);
            assert!(
                failure.message.contains(&format!("`{given}`")),
                "{}",
                failure.message
            );
        }
    }
}
