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
