//! The responses of `tests/wire/spec`: expected results, and invariants of every decoder.

use crate::recordings::{self, Recording};
use crate::replay::{cut_up, decode, summarize};
use crate::{Events, Reply, framing_of_content_type};
use llmscen_core::api::Api;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::request::Framing;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::{BTreeMap, BTreeSet};

const APIS: [Api; 6] = [
    Api::OpenaiChat,
    Api::OpenaiCompletions,
    Api::OpenaiResponses,
    Api::OpenaiEmbeddings,
    Api::Rerank,
    Api::Anthropic,
];

/// Response; events; events with content; finish reason or failure; prompt, output, reasoning and cached tokens;
/// text. Written by reading the responses, not by running the decoder.
const REPLIES: &[(&str, u32, u32, &str, &str, &str)] = &[
    ("anthropic.error.json", 0, 0, "stream_error", "- - - -", ""),
    (
        "anthropic.error.sse",
        4,
        1,
        "stream_error",
        "25 - - -",
        "Hello",
    ),
    (
        "anthropic.error_unnamed.sse",
        2,
        0,
        "stream_error",
        "25 - - -",
        "",
    ),
    (
        "anthropic.text.sse",
        8,
        2,
        "end_turn",
        "25 15 - -",
        "Hello!",
    ),
    (
        "anthropic.tools.json",
        0,
        0,
        "tool_use",
        "2007 89 - 2000",
        "Let me look.I ask.get_weather{\"city\":\"Paris\"}",
    ),
    (
        "anthropic.tools.sse",
        22,
        7,
        "tool_use",
        "2107 89 - 2000",
        "Let me look.I ask.get_weather{\"city\": \"Paris\"}now",
    ),
    ("openai-chat.audio.sse", 8, 3, "stop", "11 30 0 -", "Hi!"),
    (
        "openai-chat.both_choices.sse",
        5,
        3,
        "stop",
        "- - - -",
        "abc",
    ),
    (
        "openai-chat.reasoner.sse",
        6,
        3,
        "stop",
        "9 12 10 8",
        "Well, 44",
    ),
    (
        "openai-chat.refusal.sse",
        6,
        2,
        "stop",
        "79 11 - -",
        "I cannot do that.",
    ),
    (
        "openai-chat.running_choices.sse",
        10,
        4,
        "stop",
        "5 9 - -",
        "a bdce f g",
    ),
    (
        "openai-chat.running_request.sse",
        9,
        4,
        "stop",
        "5 9 - -",
        "a bdce f g",
    ),
    (
        "openai-chat.tools.sse",
        9,
        5,
        "tool_calls",
        "82 24 0 64",
        "get_weather{\"city\":\"Paris\"}now{}",
    ),
    ("openai-embeddings.base64.json", 0, 0, "", "14 0 - -", ""),
    ("openai-embeddings.batch.json", 0, 0, "", "21 0 - -", ""),
    ("openai-embeddings.single.json", 0, 0, "", "8 0 - -", ""),
    ("openai-embeddings.vllm.json", 0, 0, "", "4 0 - -", ""),
    (
        "openai-responses.error.sse",
        5,
        1,
        "stream_error",
        "- - - -",
        "a",
    ),
    (
        "openai-responses.every_delta.sse",
        23,
        10,
        "max_output_tokens",
        "10 16 2 0",
        "rsabnoshlsask{}x=1",
    ),
    (
        "openai-responses.failed.sse",
        5,
        1,
        "stream_error",
        "- - - -",
        "a",
    ),
    (
        "openai-responses.incomplete.json",
        0,
        0,
        "content_filter",
        "12 3 0 0",
        "I cannot.",
    ),
    (
        "openai-responses.tools.json",
        0,
        0,
        "completed",
        "36 29 8 32",
        "Look up.I ask.get_weather{\"city\":\"Paris\"}",
    ),
    (
        "openai-responses.tools.sse",
        23,
        5,
        "completed",
        "36 29 8 32",
        "Look up.I ask.get_weather{\"city\":\"Paris\"}",
    ),
    ("rerank.cohere.json", 0, 0, "", "- 0 - -", ""),
    ("rerank.cohere_tokens.json", 0, 0, "", "41 0 - -", ""),
    ("rerank.jina.json", 0, 0, "", "815 0 - -", ""),
    ("rerank.tei.json", 0, 0, "", "- 0 - -", ""),
    ("rerank.tei_error.json", 0, 0, "stream_error", "- - - -", ""),
    ("rerank.vllm.json", 0, 0, "", "56 0 - -", ""),
];

fn shape(made: &Recording) -> Framing {
    framing_of_content_type(made.content_type.as_deref(), false).unwrap()
}

fn read<'a>(made: &Recording, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Events, Reply) {
    decode(made.api, shape(made), pieces, None)
}

/// One response of `tests/wire/spec`, decoded.
pub fn reply(name: &str) -> (Events, Reply) {
    let made = &recordings::spec(&APIS)[name];
    read(made, [&made.body[..]])
}

#[test]
fn every_reply_decodes_to_what_its_description_says() {
    let made = recordings::spec(&APIS);
    let expected: BTreeSet<String> = REPLIES.iter().map(|row| row.0.to_owned()).collect();
    assert_eq!(expected, made.keys().cloned().collect());
    for &(name, seen, content, end, usage, text) in REPLIES {
        let (events, reply) = read(&made[name], [&made[name].body[..]]);
        assert_eq!(
            summarize(&events, &reply),
            (seen, content, end.to_owned(), usage.to_owned()),
            "{name}"
        );
        assert_eq!(reply.text.as_deref().unwrap_or_default(), text, "{name}");
        assert_eq!(
            read(&made[name], made[name].body.chunks(1)),
            (events, reply),
            "{name}, byte by byte"
        );
    }
}

#[test]
fn choices_and_weights_are_those_of_the_events() {
    for (name, choices, weights) in [
        ("openai-chat.both_choices.sse", vec![0, 1, 1], vec![]),
        (
            "openai-chat.running_choices.sse",
            vec![0, 1, 0, 1],
            vec![2, 1, 1, 3],
        ),
        (
            "openai-chat.running_request.sse",
            vec![0, 1, 0, 1],
            vec![2, 1, 1, 3],
        ),
        ("openai-chat.tools.sse", vec![], vec![]),
    ] {
        let (events, _) = reply(name);
        assert_eq!(
            (events.choices, events.weights),
            (choices, weights),
            "{name}"
        );
    }
}

#[test]
fn the_inputs_worked_on_are_counted() {
    let made = recordings::spec(&[Api::OpenaiEmbeddings, Api::Rerank]);
    let items: BTreeMap<&str, Option<u64>> = made
        .keys()
        .map(|name| (name.as_str(), reply(name).1.items))
        .collect();
    let expected = [
        ("openai-embeddings.base64.json", Some(2)),
        ("openai-embeddings.batch.json", Some(3)),
        ("openai-embeddings.single.json", Some(1)),
        ("openai-embeddings.vllm.json", Some(1)),
        ("rerank.cohere.json", Some(2)),
        ("rerank.cohere_tokens.json", Some(1)),
        ("rerank.jina.json", Some(2)),
        ("rerank.tei.json", Some(2)),
        ("rerank.tei_error.json", None),
        ("rerank.vllm.json", Some(2)),
    ];
    assert_eq!(items, BTreeMap::from(expected));
    assert_eq!(
        reply("rerank.cohere.json").1.id.as_deref(),
        Some("07734bd2")
    );
    assert_eq!(
        reply("openai-embeddings.vllm.json").1.id.as_deref(),
        Some("embd-5c21")
    );
}

/// A response truncated anywhere, by the end of its body or a reset, has no more content than was sent, and is
/// successful only with its end: the marker, or for chat a finish reason for every choice.
#[test]
fn a_response_cut_anywhere_is_a_failure_that_keeps_its_good_part() {
    for (name, made) in recordings::spec(&APIS) {
        let (all, whole) = read(&made, [&made.body[..]]);
        let size = made.body.trim_ascii_end().len();
        for length in (0..size).step_by(size / 300 + 1) {
            let part = &made.body[..length];
            let broken = Some(Failure::new(FailureKind::Truncated, "reset"));
            let (events, reply) = decode(made.api, shape(&made), [part], broken);
            assert!(
                events.content <= all.content && events.total <= all.total,
                "{name} cut at {length}"
            );
            match events.done {
                true => assert_eq!(reply.end, whole.end, "{name} cut at {length}"),
                false => assert!(reply.end.is_err(), "{name} broken at {length}"),
            }
            let text = reply.text.unwrap_or_default();
            assert!(
                text.len() <= whole.text.as_deref().unwrap_or_default().len(),
                "{name} cut at {length}: {text}"
            );
            let (events, reply) = decode(made.api, shape(&made), [part], None);
            let may_end = events.done || made.api == Api::OpenaiChat;
            assert!(
                may_end || reply.end.is_err(),
                "{name} ended at {length}: {:?}",
                reply.end
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_split_decodes_the_same(cuts in prop::collection::vec(any::<Index>(), 1..40)) {
        for (name, made) in recordings::spec(&APIS) {
            prop_assert_eq!(read(&made, cut_up(&made.body, &cuts)), read(&made, [&made.body[..]]), "{}", name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Bytes, and lines of real responses in any order, with bytes of them changed.
    #[test]
    fn garbage_never_panics_and_its_splits_change_nothing(
        api in select(APIS.to_vec()),
        shape in select(vec![Framing::Sse, Framing::Ndjson, Framing::Json]),
        lines in prop::collection::vec((any::<Index>(), any::<Index>(), any::<u8>(), any::<bool>()), 0..24),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        cuts in prop::collection::vec(any::<Index>(), 0..10),
    ) {
        let source: Vec<u8> = recordings::spec(&[api]).into_values().flat_map(|made| made.body).collect();
        let source: Vec<&[u8]> = source.split_inclusive(|byte| *byte == b'\n').chain([&b"data: {}\n\n"[..]]).collect();
        let mut bytes = noise;
        for (line, place, byte, change) in lines {
            let mut line = line.get(&source).to_vec();
            if change {
                let place = place.index(line.len());
                line[place] = byte;
            }
            bytes.extend(line);
        }
        let whole = decode(api, shape, [&bytes[..]], None);
        prop_assert_eq!(decode(api, shape, cut_up(&bytes, &cuts), None), whole);
    }
}
