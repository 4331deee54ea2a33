//! A streamed response: events, up to the protocol's end marker or the end of the body.

use crate::error::words_of;
use crate::framing::{Event, Framer, Lines, Sse};
use crate::{Decoder, Events, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish};

/// The largest event that is read, in bytes: hundreds of times a token with all its log probabilities. A server that
/// never ends an event must not fill the memory.
const EVENT_BOUND: usize = 8 << 20;

/// Decodes a stream of events up to the end marker.
pub struct Stream<A> {
    framer: Framer,
    state: State<A>,
}

struct State<A> {
    assembly: A,
    seen: u32,
    done: bool,
    failure: Option<Failure>,
}

impl<A: Assembly> Stream<A> {
    fn new(framer: Framer, assembly: A) -> Stream<A> {
        Stream { framer, state: State { assembly, seen: 0, done: false, failure: None } }
    }
}

impl<A: Assembly> Decoder for Stream<A> {
    fn push(&mut self, bytes: &[u8], events: &mut Events) {
        let Stream { framer, state } = self;
        if state.done {
            return;
        }
        framer.push(bytes, |event| state.take(event, events));
        if framer.over() && !state.done && state.failure.is_none() {
            let message = format!("an event is larger than {} MiB, or not an event at all", EVENT_BOUND >> 20);
            state.fail(Failure::new(FailureKind::Decode, message).at(format!("after {} events", state.seen)));
        }
    }

    fn finish(self: Box<Self>, events: &mut Events, broken: Option<Failure>) -> Reply {
        let Stream { mut framer, mut state } = *self;
        if broken.is_none() && !state.done {
            let earlier = state.failure.take();
            framer.finish(|event| state.take(event, events));
            state.failure = earlier.or(state.failure.take().map(as_cut));
        }
        let end = state.ending(broken);
        let weights = state.assembly.weights();
        if !weights.is_empty() {
            events.weights = weights;
        }
        state.assembly.reply(end)
    }
}

/// A last event that was not closed and cannot be read was cut in the middle.
fn as_cut(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Decode => {
            let message = format!("the stream ended in the middle of an event: {}", failure.message);
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
        self.seen = self.seen.saturating_add(1);
        events.seen = events.seen.saturating_add(1);
        let data = event.data.trim_ascii();
        if event.name == b"error" {
            self.fail_here(Failure::new(FailureKind::StreamError, words_of(data)));
        } else if !data.is_empty() {
            if let Err(failure) = self.assembly.event(Event { data, ..event }, events) {
                self.fail_here(failure);
            }
            self.done = events.done;
        } else {
            self.assembly.bare(event.name, events);
            self.done = events.done;
        }
    }

    fn fail_here(&mut self, failure: Failure) {
        let place = format!("event {}", self.seen);
        self.fail(failure.at(place));
    }

    /// The first failure is the reason.
    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    fn ending(&mut self, broken: Option<Failure>) -> Result<Finish, Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let place = format!("after {} events", self.seen);
        match broken.filter(|_| !self.done) {
            Some(failure) if failure.at.is_empty() => Err(failure.at(place)),
            Some(failure) => Err(failure),
            None => self.assembly.ending(true).map_err(|failure| failure.at(place)),
        }
    }
}

/// Gathers the messages of one response. It never panics, whatever they hold.
pub trait Assembly: Send {
    /// Takes one event of a stream, its data not empty: adds its content to `events`, and sets `events.done` at the
    /// protocol's own end marker. An event named `error` does not come here.
    ///
    /// # Errors
    /// `stream_error` with the server's words where it reports an error; `decode` where this is not the protocol's message.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure>;

    /// Takes an event that has a name and no data; to most protocols it says nothing.
    fn bare(&mut self, _name: &[u8], _events: &mut Events) {}

    /// Takes a whole reply. The errors are those of an event.
    fn whole(&mut self, body: &[u8]) -> Result<(), Failure>;

    /// How a response ended whose body is complete, streamed or whole.
    ///
    /// # Errors
    /// `truncated`, `decode`, `empty` or `stream_error`: what the protocol demands of a complete response and is not there.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure>;

    /// The tokens in each event with content so far, where the server's running count tells them all; otherwise empty.
    fn weights(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The reply, with this end.
    fn reply(self, end: Result<Finish, Failure>) -> Reply;
}

/// The largest document that is buffered, in bytes.
const BODY_BOUND: usize = 64 << 20;

/// Gathers a document and reads it at its end. A finish reason is reported where there is one, and not required.
pub struct Whole<A> {
    bound: usize,
    body: Vec<u8>,
    over: bool,
    assembly: A,
}

impl<A: Assembly> Whole<A> {
    /// A decoder at the beginning of a document.
    pub fn new(assembly: A) -> Whole<A> {
        Whole::bounded(BODY_BOUND, assembly)
    }

    /// A decoder that takes documents of up to `bound` bytes.
    pub fn bounded(bound: usize, assembly: A) -> Whole<A> {
        Whole { bound, body: Vec::new(), over: false, assembly }
    }

    fn ending(&mut self, broken: Option<Failure>) -> Result<Finish, Failure> {
        if self.over {
            let message = format!("the body is larger than {} MiB", self.bound >> 20);
            return Err(Failure::new(FailureKind::Decode, message));
        }
        if let Some(failure) = broken {
            return Err(failure);
        }
        self.assembly.whole(&self.body)?;
        self.assembly.ending(false)
    }
}

impl<A: Assembly> Decoder for Whole<A> {
    fn push(&mut self, bytes: &[u8], _events: &mut Events) {
        if self.over || self.body.len() + bytes.len() > self.bound {
            self.over = true;
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

/// How a response's bytes are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Server-sent events.
    Stream,
    /// A JSON document a line.
    Lines,
    /// One JSON document.
    Whole,
}

impl Shape {
    /// The decoder of a response of this shape.
    pub(crate) fn decoder<A: Assembly + 'static>(self, assembly: A) -> Box<dyn Decoder> {
        match self {
            Shape::Stream => Box::new(Stream::new(Framer::Sse(Sse::new(EVENT_BOUND)), assembly)),
            Shape::Lines => Box::new(Stream::new(Framer::Lines(Lines::new(EVENT_BOUND)), assembly)),
            Shape::Whole => Box::new(Whole::new(assembly)),
        }
    }
}

/// The shape that a successful response's `content-type` announces; without that header, the one that was asked for.
///
/// Any other type is a `decode` failure: a proxy's HTML page under status 200 is no reply.
pub fn shape_of(content_type: Option<&str>, asked_stream: bool) -> Result<Shape, Failure> {
    let Some(given) = content_type else {
        return Ok(if asked_stream { Shape::Stream } else { Shape::Whole });
    };
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/event-stream" => Ok(Shape::Stream),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => Ok(Shape::Lines),
        "application/json" => Ok(Shape::Whole),
        _ => Err(Failure::new(
            FailureKind::Decode,
            format!("the response is `{given}`, not `text/event-stream` or `application/json`; check `target.url`"),
        )),
    }
}

/// The shape of an API that never streams: its `content-type`, if there is one, must be that of JSON.
///
/// # Errors
/// `decode`, as for [`shape_of`].
pub fn whole_only(content_type: Option<&str>) -> Result<Shape, Failure> {
    match shape_of(content_type, false)? {
        Shape::Whole => Ok(Shape::Whole),
        Shape::Stream | Shape::Lines => {
            let message =
                format!("the response is a stream (`{}`), which this API never gives", content_type.unwrap_or_default());
            Err(Failure::new(FailureKind::Decode, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{cut_up, decode};
    use crate::{Shape, protocol};
    use llmscen_core::api::Api;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    const ROLE: &str = "data: {\"id\":\"r\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    const HI: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n";
    const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    fn run(stream: &[&str], broken: Option<Failure>) -> (Events, Reply) {
        let text = stream.concat();
        decode(Api::OpenaiChat, Shape::Stream, [text.as_bytes()], broken)
    }

    /// The end in one line: the finish reason, or kind, place and message.
    fn end(stream: &[&str]) -> String {
        match run(stream, None).1.end {
            Ok(finish) => finish.reason,
            Err(failure) => format!("{} ({}): {}", failure.kind, failure.at, failure.message),
        }
    }

    #[test]
    fn a_stream_is_complete_with_a_reason_and_either_the_marker_or_its_end() {
        assert_eq!(end(&[ROLE, HI, STOP, USAGE, DONE]), "stop");
        assert_eq!(end(&[ROLE, HI, STOP, USAGE]), "stop");
        assert_eq!(end(&[ROLE, HI, STOP, ": ping\n\n", "data:\n\n", DONE]), "stop");
        assert_eq!(end(&[ROLE, HI, STOP, DONE, HI, "data: {\"error\":\"late\"}\n\n"]), "stop");
        let no_reason = "truncated (after 2 events): the stream ended without a finish reason for choice 0";
        assert_eq!(end(&[ROLE, HI]), no_reason);
        assert_eq!(end(&[HI, DONE]), no_reason);
        assert_eq!(end(&[DONE]), "truncated (after 1 events): the stream ended before its first choice");
        assert_eq!(end(&[]), "truncated (after 0 events): the stream ended before its first choice");
        assert_eq!(end(&[ROLE, STOP, USAGE, DONE]), "stop");
    }

    #[test]
    fn an_error_in_band_is_the_reason_and_the_good_part_is_kept() {
        for error in [
            "data: {\"error\":{\"message\":\"died\",\"code\":500}}\n\n",
            "data: {\"error\":\"died\"}\n\n",
            "data: {\"object\":\"error\",\"message\":\"died\",\"code\":500}\n\n",
            "event: error\ndata: {\"message\":\"died\"}\n\n",
            "event: error\ndata: died\n\n",
        ] {
            assert_eq!(end(&[ROLE, HI, error, STOP, DONE]), "stream_error (event 3): died", "{error}");
            let reset = Failure::new(FailureKind::Truncated, "reset");
            let (events, reply) = run(&[ROLE, HI, USAGE, error], Some(reset));
            assert_eq!(reply.end.unwrap_err().kind, FailureKind::StreamError);
            assert_eq!((events.seen, events.content, events.done), (4, 1, false));
            assert_eq!((reply.usage.output, reply.id.as_deref(), reply.text.as_deref()), (Some(1), Some("r"), Some("hi")));
        }
    }

    #[test]
    fn an_unreadable_event_is_named_with_its_beginning() {
        let long = format!("data: oops{}\n\n", "x".repeat(900));
        let failure = run(&[ROLE, &long, HI, STOP, DONE], None).1.end.unwrap_err();
        let start = format!("oops{}", "x".repeat(196));
        assert_eq!((failure.kind, failure.at.as_str()), (FailureKind::Decode, "event 2"));
        assert_eq!(failure.message, format!("the JSON cannot be read (expected value at line 1 column 1): {start}"));
        assert_eq!(run(&[ROLE, &long, HI], None).0.content, 1);
    }

    #[test]
    fn what_broke_the_body_counts_unless_the_marker_was_there() {
        let reset = || Some(Failure::new(FailureKind::TimeoutRead, "silence"));
        let failure = run(&[ROLE, HI, "data: [DO"], reset()).1.end.unwrap_err();
        assert_eq!((failure.kind, failure.at.as_str()), (FailureKind::TimeoutRead, "after 2 events"));
        assert!(run(&[ROLE, HI, STOP], reset()).1.end.is_err());
        assert!(run(&[ROLE, HI, STOP, DONE], reset()).1.end.is_ok());
    }

    #[test]
    fn a_last_event_without_its_blank_line_is_read_or_was_cut() {
        let (events, reply) = run(&[ROLE, HI, STOP, "data: [DONE]"], None);
        assert_eq!((events.seen, events.done, reply.end.is_ok()), (4, true, true));
        let (events, reply) = run(&[ROLE, HI.trim_end()], None);
        assert_eq!((events.content, reply.text.as_deref()), (1, Some("hi")));
        let cut = run(&[ROLE, HI, "data: {\"choices\":[{"], None).1.end.unwrap_err();
        assert_eq!((cut.kind, cut.at.as_str()), (FailureKind::Truncated, "event 3"));
        assert!(cut.message.starts_with("the stream ended in the middle of an event: "), "{}", cut.message);
    }

    #[test]
    fn an_endless_event_is_given_up() {
        let block = vec![b'x'; 1 << 20];
        let pieces = std::iter::once(HI.as_bytes()).chain(std::iter::repeat_n(&block[..], 9));
        let (events, reply) = decode(Api::OpenaiChat, Shape::Stream, pieces, None);
        let failure = reply.end.unwrap_err();
        assert_eq!((failure.kind, failure.at.as_str()), (FailureKind::Decode, "after 1 events"));
        assert_eq!(failure.message, "an event is larger than 8 MiB, or not an event at all");
        assert_eq!((events.seen, reply.text.as_deref()), (1, Some("hi")));
        let late = [[HI, STOP, DONE].concat().as_bytes(), &block.repeat(9)].concat();
        assert!(decode(Api::OpenaiChat, Shape::Stream, [&late[..]], None).1.end.is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_splits_change_nothing(
            parts in prop::collection::vec(prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                select(vec!["data: ", "\n\n", "{\"choices\":[{\"text\":\"", "\"}]}", "{", "\\u", ROLE, HI, STOP, DONE]).prop_map(|text| text.as_bytes().to_vec()),
            ], 0..20),
            cuts in prop::collection::vec(any::<Index>(), 0..10),
            shape in select(vec![Shape::Stream, Shape::Whole]),
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
            let (events, reply) = decode(Api::OpenaiChat, Shape::Stream, cut_up(stream.as_bytes(), &cuts), None);
            prop_assert_eq!(reply.text, Some(texts.concat()));
            prop_assert_eq!(events.content as usize, texts.iter().filter(|text| !text.is_empty()).count());
            prop_assert_eq!(events.seen as usize, texts.len() + 1);
        }
    }

    #[test]
    fn text_is_kept_only_when_asked() {
        let mut decoder = protocol(Api::OpenaiChat, None).unwrap().decoder(Shape::Stream, false);
        let mut events = Events::default();
        decoder.push([HI, STOP].concat().as_bytes(), &mut events);
        assert_eq!(decoder.finish(&mut events, None).text, None);
        assert_eq!(events, Events { seen: 2, content: 1, ..Events::default() });
    }
}

#[cfg(test)]
mod unary_tests {
    use super::*;
    use crate::Shape;
    use crate::replay::decode;
    use llmscen_core::api::Api;

    fn run(body: &str, broken: Option<Failure>) -> Reply {
        let (events, reply) = decode(Api::OpenaiCompletions, Shape::Whole, [body.as_bytes()], broken);
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
        assert_eq!(end(r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#), "stop");
        assert_eq!(end(r#"{"choices":[{"text":"a"}]}"#), "");
        assert_eq!(end(r#"{"choices":[]}"#), "decode: the reply has no choices");
        assert_eq!(end(r#"{"object":"list"}"#), "decode: the reply has no choices");
        assert_eq!(end(r#"{"error":{"message":"no"}}"#), "stream_error: no");
        assert_eq!(end(""), "decode: the JSON cannot be read (EOF while parsing a value at line 1 column 0): ");
        assert_eq!(end("<html>"), "decode: the JSON cannot be read (expected value at line 1 column 1): <html>");
    }

    #[test]
    fn counted_tokens_without_text_and_reason_are_empty_and_the_counts_are_kept() {
        let reply = run(r#"{"choices":[{"text":""}],"usage":{"completion_tokens":4}}"#, None);
        assert_eq!(reply.end.unwrap_err().kind, FailureKind::Empty);
        assert_eq!(reply.usage.output, Some(4));
    }

    #[test]
    fn a_broken_body_is_not_read() {
        let reset = Failure::new(FailureKind::Truncated, "reset");
        assert_eq!(run(r#"{"choices":[{"text":"a"}]}"#, Some(reset.clone())).end, Err(reset));
    }

    #[test]
    fn a_body_past_the_bound_is_dropped() {
        let mut whole = Box::new(Whole::bounded(3 << 20, crate::chat::ChatMessages::new(false)));
        let mut events = Events::default();
        whole.push(&[b' '; 2 << 20], &mut events);
        whole.push(&[b' '; 2 << 20], &mut events);
        assert_eq!(whole.body.capacity(), 0);
        assert_eq!(whole.finish(&mut events, None).end.unwrap_err().message, "the body is larger than 3 MiB");
    }
}

#[cfg(test)]
mod shape_tests {
    use super::*;

    #[test]
    fn the_type_decides_not_what_was_asked() {
        for asked in [true, false] {
            assert_eq!(shape_of(Some("text/event-stream; charset=utf-8"), asked), Ok(Shape::Stream));
            assert_eq!(shape_of(Some("Application/JSON"), asked), Ok(Shape::Whole));
            assert_eq!(shape_of(Some("application/x-ndjson"), asked), Ok(Shape::Lines));
        }
        assert_eq!(shape_of(None, true), Ok(Shape::Stream));
        assert_eq!(shape_of(None, false), Ok(Shape::Whole));
    }

    #[test]
    fn an_api_without_streams_takes_whole_documents_only() {
        assert_eq!(whole_only(None), Ok(Shape::Whole));
        assert_eq!(whole_only(Some("application/json; charset=utf-8")), Ok(Shape::Whole));
        for given in ["text/event-stream", "application/x-ndjson", "text/html"] {
            let failure = whole_only(Some(given)).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Decode);
            assert!(failure.message.contains(&format!("`{given}`")), "{}", failure.message);
        }
    }

    #[test]
    fn any_other_type_is_named() {
        for given in ["text/html; charset=utf-8", "text/plain", ""] {
            let failure = shape_of(Some(given), true).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Decode);
            assert!(failure.message.contains(&format!("`{given}`")), "{}", failure.message);
        }
    }
}
