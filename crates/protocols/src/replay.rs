//! Every recorded response of `tests/wire`, decoded in one piece, byte by byte and in arbitrary splits.

use crate::recordings::{self, Recording};
use crate::{DecodeOptions, Events, Reply, error_message, framing_of_content_type, protocol};
use llmscen_core::api::Api;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::request::Framing;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeSet;

// The expected values were written by reading the recordings, not by running the decoder.

/// Recording; events; events with content; finish reason or failure; prompt, output, reasoning and cached tokens.
const REPLIES: &[(&str, u32, u32, &str, &str)] = &[
    ("llama_server.chat_nonstream", 0, 0, "length", "15 5 - 14"),
    (
        "llama_server.chat_stream_contusage",
        9,
        5,
        "length",
        "15 5 - 14",
    ),
    (
        "llama_server.chat_stream_ignore_eos",
        6,
        3,
        "length",
        "15 3 - 14",
    ),
    (
        "llama_server.chat_stream_logprobs",
        5,
        2,
        "length",
        "15 2 - 14",
    ),
    (
        "llama_server.chat_stream_max_completion_tokens",
        7,
        3,
        "length",
        "15 3 - 14",
    ),
    ("llama_server.chat_stream_n2", 13, 6, "length", "15 6 - 14"),
    (
        "llama_server.chat_stream_nousage",
        7,
        4,
        "length",
        "15 5 - 14",
    ),
    ("llama_server.chat_stream_usage", 9, 5, "length", "15 5 - 0"),
    ("llama_server.completions_stream", 6, 4, "length", "2 4 - 0"),
    (
        "llama_server.completions_tokenids",
        4,
        2,
        "length",
        "3 2 - 0",
    ),
    ("llama_server.err_badmodel", 6, 3, "length", "15 3 - 14"),
    (
        "llama_server.killed_midstream_kill9",
        21,
        20,
        "truncated",
        "- - - -",
    ),
    (
        "llama_server.ping_while_queued",
        5,
        2,
        "length",
        "14 2 - 13",
    ),
    (
        "llama_server.responses_stream",
        12,
        4,
        "completed",
        "15 4 - 14",
    ),
    ("llamacpp_python.chat_nonstream", 0, 0, "length", "15 5 - -"),
    (
        "llamacpp_python.chat_stream_contusage",
        8,
        5,
        "length",
        "- - - -",
    ),
    (
        "llamacpp_python.chat_stream_ignore_eos",
        6,
        3,
        "length",
        "- - - -",
    ),
    (
        "llamacpp_python.chat_stream_logprobs",
        5,
        2,
        "length",
        "- - - -",
    ),
    (
        "llamacpp_python.chat_stream_max_completion_tokens",
        35,
        34,
        "truncated",
        "- - - -",
    ),
    ("llamacpp_python.chat_stream_n2", 6, 3, "length", "- - - -"),
    (
        "llamacpp_python.chat_stream_nousage",
        8,
        5,
        "length",
        "- - - -",
    ),
    (
        "llamacpp_python.chat_stream_usage",
        8,
        5,
        "length",
        "- - - -",
    ),
    (
        "llamacpp_python.completions_stream",
        6,
        3,
        "length",
        "- - - -",
    ),
    ("llamacpp_python.err_badmodel", 6, 3, "length", "- - - -"),
    (
        "llamacpp_python.err_missing_messages",
        6,
        3,
        "length",
        "- - - -",
    ),
    (
        "llamacpp_python.err_negative_max",
        23,
        22,
        "truncated",
        "- - - -",
    ),
    ("llamacpp_python.err_too_long", 0, 0, "truncated", "- - - -"),
    (
        "transformers_serve.chat_nonstream",
        0,
        0,
        "length",
        "15 5 - -",
    ),
    (
        "transformers_serve.chat_stream_contusage",
        7,
        5,
        "length",
        "15 5 - -",
    ),
    (
        "transformers_serve.chat_stream_logprobs",
        4,
        2,
        "length",
        "15 2 - -",
    ),
    (
        "transformers_serve.chat_stream_max_completion_tokens",
        5,
        3,
        "length",
        "15 3 - -",
    ),
    (
        "transformers_serve.chat_stream_n2",
        5,
        3,
        "length",
        "15 3 - -",
    ),
    (
        "transformers_serve.chat_stream_nousage",
        7,
        5,
        "length",
        "15 5 - -",
    ),
    (
        "transformers_serve.chat_stream_usage",
        7,
        5,
        "length",
        "15 5 - -",
    ),
    (
        "transformers_serve.completions_stream",
        5,
        4,
        "length",
        "2 4 - -",
    ),
    (
        "transformers_serve.err_negative_max",
        2,
        0,
        "stream_error",
        "- - - -",
    ),
    (
        "transformers_serve.err_too_long",
        5,
        3,
        "length",
        "24013 3 - -",
    ),
    (
        "transformers_serve.responses_stream",
        12,
        4,
        "completed",
        "15 4 0 0",
    ),
    (
        "transformers_serve_cb.chat_stream",
        1,
        0,
        "truncated",
        "- - - -",
    ),
    ("vllm_cpu.chat_nonstream", 0, 0, "length", "15 5 - -"),
    ("vllm_cpu.chat_stream_contusage", 8, 5, "length", "15 5 - -"),
    ("vllm_cpu.chat_stream_ignore_eos", 5, 3, "length", "- - - -"),
    ("vllm_cpu.chat_stream_logprobs", 4, 2, "length", "- - - -"),
    (
        "vllm_cpu.chat_stream_max_completion_tokens",
        6,
        3,
        "length",
        "15 3 - -",
    ),
    ("vllm_cpu.chat_stream_n2", 10, 6, "length", "15 6 - -"),
    ("vllm_cpu.chat_stream_nousage", 7, 5, "length", "- - - -"),
    ("vllm_cpu.chat_stream_usage", 8, 5, "length", "15 5 - -"),
    ("vllm_cpu.completions_stream", 6, 4, "length", "2 4 - -"),
    ("vllm_cpu.completions_tokenids", 3, 2, "length", "- - - -"),
    (
        "vllm_cpu.killed_midstream_term",
        23,
        19,
        "stream_error",
        "- - - -",
    ),
    ("vllm_cpu.reasoning_nonstream", 0, 0, "length", "15 6 0 -"),
    ("vllm_cpu.reasoning_stream", 9, 6, "length", "15 6 0 -"),
    (
        "vllm_cpu.reasoning_then_content_stream",
        62,
        57,
        "length",
        "15 60 0 -",
    ),
    (
        "vllm_cpu.responses_stream",
        11,
        3,
        "max_output_tokens",
        "15 4 0 0",
    ),
];

/// Recording, status, and the beginning of the server's own words.
const REFUSALS: &[(&str, u16, &str)] = &[
    (
        "llama_server.err_bad_type",
        400,
        "Field 'max_tokens': [json.exception.type_error.302] type must be number, but is string",
    ),
    (
        "llama_server.err_badjson",
        500,
        "[json.exception.parse_error.101] parse error at line 1, column 32: syntax error",
    ),
    ("llama_server.err_get_chat", 404, "File Not Found"),
    (
        "llama_server.err_missing_messages",
        400,
        "'messages' is required",
    ),
    (
        "llama_server.err_negative_max",
        400,
        "Field 'max_tokens': Value must be between -1 <= value <= 2147483647, but got -5",
    ),
    ("llama_server.err_notfound", 404, "File Not Found"),
    (
        "llama_server.err_too_long",
        400,
        "request (24013 tokens) exceeds the available context size (2048 tokens), try increasing it",
    ),
    (
        "llamacpp_python.completions_tokenids",
        500,
        "4 validation errors:\n  {'type': 'string_type', 'loc': ('body', 'prompt', 'str')",
    ),
    (
        "llamacpp_python.err_bad_type",
        500,
        "1 validation error:\n  {'type': 'int_parsing', 'loc': ('body', 'max_tokens')",
    ),
    ("llamacpp_python.err_badjson", 500, "Internal Server Error"),
    ("llamacpp_python.err_get_chat", 405, "Method Not Allowed"),
    ("llamacpp_python.err_notfound", 404, "Not Found"),
    ("llamacpp_python.health", 404, "Not Found"),
    ("llamacpp_python.responses_stream", 404, "Not Found"),
    (
        "transformers_serve.chat_stream_ignore_eos",
        422,
        "Unexpected fields in the request: {'min_tokens', 'ignore_eos'}",
    ),
    (
        "transformers_serve.completions_tokenids",
        400,
        "prompt must be a string.",
    ),
    (
        "transformers_serve.err_bad_type",
        500,
        "Internal Server Error",
    ),
    (
        "transformers_serve.err_badjson",
        422,
        "body.54: JSON decode error",
    ),
    (
        "transformers_serve.err_badmodel",
        400,
        "Server is pinned to '/srv/tests/model/tiny-llama'; requested 'nope'.",
    ),
    ("transformers_serve.err_get_chat", 405, "Method Not Allowed"),
    (
        "transformers_serve.err_missing_messages",
        500,
        "Internal Server Error",
    ),
    ("transformers_serve.err_notfound", 404, "Not Found"),
    ("transformers_serve.models", 500, "Internal Server Error"),
    (
        "vllm_cpu.err_bad_type",
        400,
        "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.max_tokens'",
    ),
    (
        "vllm_cpu.err_badjson",
        400,
        "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.31', 'msg': 'JSON decode error'",
    ),
    (
        "vllm_cpu.err_badmodel",
        404,
        "The model `nope` does not exist. Valid aliases: tiny.",
    ),
    ("vllm_cpu.err_get_chat", 405, "Method Not Allowed"),
    (
        "vllm_cpu.err_missing_messages",
        400,
        "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required'",
    ),
    (
        "vllm_cpu.err_negative_max",
        400,
        "max_tokens must be at least 1, got -5. (parameter=max_tokens, value=-5)",
    ),
    ("vllm_cpu.err_notfound", 404, "Not Found"),
    (
        "vllm_cpu.err_too_long",
        400,
        "This model's maximum context length is 2048 tokens. However, your prompt contains",
    ),
];

/// Successful responses that are not replies, as from a wrong URL, and the message of the chat decoder.
const OTHERS: &[(&str, &str)] = &[
    ("llama_server.health", "the reply has no choices"),
    ("llama_server.models", "the reply has no choices"),
    ("llamacpp_python.models", "the reply has no choices"),
    ("transformers_serve.health", "the reply has no choices"),
    (
        "vllm_cpu.health",
        "the JSON cannot be read (EOF while parsing a value at line 1 column 0): ",
    ),
    ("vllm_cpu.models", "the reply has no choices"),
];

/// Decodes these pieces of one response, keeping the text.
pub fn decode<'a>(
    api: Api,
    shape: Framing,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    broken: Option<Failure>,
) -> (Events, Reply) {
    let options = DecodeOptions {
        keep_text: true,
        ..DecodeOptions::default()
    };
    let (mut decoder, mut events) = (
        protocol(api, None).unwrap().decoder(shape, &options),
        Events::default(),
    );
    for piece in pieces {
        decoder.push(piece, &mut events);
    }
    let reply = decoder.finish(&mut events, broken);
    (events, reply)
}

/// Splits bytes at these positions.
pub fn cut_up<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort();
    cuts.windows(2)
        .map(|pair| &bytes[pair[0]..pair[1]])
        .collect()
}

fn replay<'a>(
    recording: &Recording,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Events, Reply) {
    let broken = recording
        .cut
        .then(|| Failure::new(FailureKind::Truncated, "the connection closed"));
    let shape = framing_of_content_type(recording.content_type.as_deref(), false).unwrap();
    decode(recording.api, shape, pieces, broken)
}

/// Summarizes a reply: events; events with content; finish reason or failure; prompt, output, reasoning and cached
/// tokens.
pub fn summarize(events: &Events, reply: &Reply) -> (u32, u32, String, String) {
    let word = match &reply.end {
        Ok(finish) => finish.reason.clone(),
        Err(failure) => failure.kind.name().to_owned(),
    };
    let counts = [
        reply.usage.prompt,
        reply.usage.output,
        reply.usage.reasoning,
        reply.usage.cached,
    ];
    let counts = counts
        .map(|count| count.map_or("-".to_owned(), |count| count.to_string()))
        .join(" ");
    (events.total, events.content, word, counts)
}

#[test]
fn every_recording_has_its_expectation() {
    let expected = REPLIES
        .iter()
        .map(|row| row.0)
        .chain(REFUSALS.iter().map(|row| row.0))
        .chain(OTHERS.iter().map(|row| row.0));
    assert_eq!(
        expected.map(str::to_owned).collect::<BTreeSet<_>>(),
        recordings::all().into_keys().collect()
    );
}

#[test]
fn every_recorded_reply_decodes_to_its_expectation() {
    let recordings = recordings::all();
    for &(name, seen, content, end, usage) in REPLIES {
        let recording = &recordings[name];
        let (events, reply) = replay(recording, [&recording.body[..]]);
        assert_eq!(
            summarize(&events, &reply),
            (seen, content, end.to_owned(), usage.to_owned()),
            "{name}"
        );
        assert_eq!(
            replay(recording, recording.body.chunks(1)),
            (events, reply),
            "{name}, byte by byte"
        );
    }
}

#[test]
fn a_good_answer_of_another_kind_is_no_reply() {
    let recordings = recordings::all();
    for &(name, words) in OTHERS {
        let (events, reply) = replay(&recordings[name], [&recordings[name].body[..]]);
        let failure = reply.end.unwrap_err();
        assert_eq!(
            (failure.kind, failure.message.as_str()),
            (FailureKind::Decode, words),
            "{name}"
        );
        assert_eq!(
            (recordings[name].status, events),
            (200, Events::default()),
            "{name}"
        );
    }
}

#[test]
fn the_end_marker_is_detected_if_sent() {
    let is_stream = |recording: &Recording| {
        recording
            .content_type
            .as_deref()
            .is_some_and(|kind| kind.contains("event-stream"))
    };
    for (name, recording) in recordings::all()
        .iter()
        .filter(|(_, recording)| is_stream(recording))
    {
        let marker: &[u8] = if recording.api == Api::OpenaiResponses {
            b"\"type\":\"response.completed\""
        } else {
            b"[DONE]"
        };
        let sent = recording
            .body
            .windows(marker.len())
            .any(|window| window == marker);
        assert_eq!(
            replay(recording, [&recording.body[..]]).0.done,
            sent,
            "{name}"
        );
        let chat = recording.api != Api::OpenaiResponses;
        assert!(
            !sent || !chat || !name.starts_with("transformers"),
            "transformers serve never sends it"
        );
    }
}

#[test]
fn events_have_choices_and_token_weights() {
    let recordings = recordings::all();
    let marks = |name: &str| {
        let (events, _) = replay(&recordings[name], [&recordings[name].body[..]]);
        (events.choices, events.weights)
    };
    assert_eq!(
        marks("vllm_cpu.chat_stream_n2"),
        (vec![0, 1, 0, 1, 0, 1], vec![])
    );
    assert_eq!(
        marks("llama_server.chat_stream_n2"),
        (vec![1, 0, 1, 0, 1, 0], vec![])
    );
    assert_eq!(
        marks("vllm_cpu.chat_stream_contusage"),
        (vec![], vec![1; 5])
    );
    for name in ["llama_server", "llamacpp_python", "transformers_serve"] {
        assert_eq!(
            marks(&format!("{name}.chat_stream_contusage")),
            (vec![], vec![]),
            "{name} counts at the end, if at all"
        );
    }
}

#[test]
fn times_of_the_server_are_collected() {
    let recordings = recordings::all();
    let times = |name: &str| {
        let server = replay(&recordings[name], [&recordings[name].body[..]])
            .1
            .server;
        assert_eq!(
            (server.queue, server.load, server.total),
            (None, None, None)
        );
        [server.prefill, server.decode].map(|span| span.map(|span| span.0))
    };
    assert_eq!(
        times("llama_server.chat_stream_usage"),
        [Some(4_045_000), Some(1_184_000)]
    );
    assert_eq!(
        times("llama_server.chat_nonstream"),
        [Some(292_000), Some(1_517_000)]
    );
    assert_eq!(
        times("llama_server.chat_stream_n2"),
        [Some(765_000), Some(3_235_000)],
        "the longer of two choices"
    );
    assert_eq!(
        times("llama_server.completions_stream"),
        [Some(415_000), Some(4_359_000)]
    );
    assert_eq!(
        times("llama_server.responses_stream"),
        [Some(3_552_000), Some(2_587_000)]
    );
    assert_eq!(times("vllm_cpu.chat_stream_usage"), [None, None]);
}

#[test]
fn texts_ids_and_messages_are_the_servers() {
    let recordings = recordings::all();
    let reply = |name: &str| replay(&recordings[name], [&recordings[name].body[..]]).1;
    for (name, text, id) in [
        (
            "llama_server.chat_nonstream",
            "kernel\u{FFFD} binary\n\n           UP",
            "chatcmpl-9UvzJruVpWUjiVrGh2gdIcOUabIXQbvN",
        ),
        (
            "llama_server.chat_stream_n2",
            " SOmro 23 IP weightslatin",
            "chatcmpl-vIjVgq7Pi0xGxygICmlnaU6GwV1FGvUj",
        ),
        (
            "llama_server.chat_stream_nousage",
            " quo vari\u{FFFD} dummySCHEME",
            "chatcmpl-iqQjt7cyPqNXjY7DTEUTIBOst5wTbyXI",
        ),
        (
            "vllm_cpu.chat_stream_n2",
            " than \".       kw sorted cle",
            "chatcmpl-931f971dd639debf",
        ),
        (
            "vllm_cpu.reasoning_nonstream",
            " PRatimHel headersunderOWN",
            "chatcmpl-ac1902cc706a532a",
        ),
        (
            "vllm_cpu.completions_stream",
            " shecsstexuplic",
            "cmpl-a886a329da21cd46",
        ),
        (
            "vllm_cpu.responses_stream",
            " Ber excepticsfunctions",
            "resp_bd47c39b7f2d6082",
        ),
        (
            "llama_server.responses_stream",
            " httpsffixellive",
            "resp_nIZsi1J2n11d5E1FWnoUqMBLUPko7nGA",
        ),
        (
            "transformers_serve.responses_stream",
            " Module;::SCHEME",
            "resp_abbc38e5-6a47-4b2e-a50a-6bd08ddd11dc",
        ),
    ] {
        assert_eq!(
            (reply(name).text.as_deref(), reply(name).id.as_deref()),
            (Some(text), Some(id)),
            "{name}"
        );
    }
    for (name, place, message) in [
        (
            "vllm_cpu.killed_midstream_term",
            "event 22",
            "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        ),
        (
            "transformers_serve.err_negative_max",
            "event 2",
            "`max_new_tokens` must be greater than 0, but is -5.",
        ),
        (
            "llama_server.killed_midstream_kill9",
            "after 21 events",
            "the connection closed",
        ),
        (
            "llamacpp_python.err_too_long",
            "after 0 events",
            "the stream ended before its first choice",
        ),
    ] {
        let failure = reply(name).end.unwrap_err();
        assert_eq!(
            (failure.at.as_str(), failure.message.as_str()),
            (place, message),
            "{name}"
        );
    }
}

#[test]
fn every_error_response_yields_the_message_of_the_server() {
    let recordings = recordings::all();
    for &(name, status, words) in REFUSALS {
        let message = error_message(recordings[name].status, &recordings[name].body);
        assert_eq!(recordings[name].status, status, "{name}");
        assert!(message.starts_with(words), "{name}: {message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_recording_decodes_the_same_in_any_split(cuts in prop::collection::vec(any::<Index>(), 1..60)) {
        for (name, recording) in recordings::all().iter().filter(|(_, recording)| recording.status == 200) {
            let pieces = cut_up(&recording.body, &cuts);
            prop_assert_eq!(replay(recording, pieces), replay(recording, [&recording.body[..]]), "{}", name);
        }
    }
}
