//! Protocols that are built in, written as `custom`: the same bytes give the same rows.

use super::*;
use crate::recordings;
use crate::replay::decode;
use crate::spec::{self, Spec};
use crate::{Events, Reply};
use llmscen_core::api::Api;
use llmscen_core::outcome::{FailureKind, Usage};
use llmscen_core::request::{Done, ExtractUsage};

fn some(path: &str) -> Option<String> {
    Some(path.to_owned())
}

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
        usage: ExtractUsage { prompt: some("$.prompt_eval_count"), output: some("$.eval_count"), ..ExtractUsage::default() },
        finish: some("$.done_reason"),
        error: some("$.error"),
        done: Some(Done::Value { path: "$.done".into(), equals: Some(json!(true)) }),
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
        done: Some(Done::Value { path: "$.generated_text".into(), equals: None }),
        ..Extract::default()
    }
}

/// DashScope with `incremental_output`, its text in strings.
fn dashscope() -> Extract {
    Extract {
        text: texts(&["$.output.text", "$.output.choices[*].message['reasoning_content','content']"]),
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

fn read(extract: &Extract, shape: Shape, body: &[u8]) -> (Events, Reply) {
    let (mut decoder, mut events) = (Custom::new(Some(extract)).unwrap().decoder(shape, true), Events::default());
    decoder.push(body, &mut events);
    let reply = decoder.finish(&mut events, None);
    (events, reply)
}

/// What of a response stands in a row, but for the server's own times.
type Row = (u32, u32, bool, Result<String, FailureKind>, Usage, Option<String>, Option<String>);

fn row((events, reply): (Events, Reply)) -> Row {
    let end = reply.end.map(|finish| finish.reason).map_err(|failure| failure.kind);
    (events.seen, events.content, events.done, end, reply.usage, reply.id, reply.text)
}

#[test]
fn openai_as_custom_gives_the_rows_of_openai() {
    let mut told_apart = 0;
    let generated = |name: &str| !name.ends_with(".health") && !name.ends_with(".models") && !name.contains(".responses_");
    for (name, recording) in recordings::all().iter().filter(|(name, recording)| recording.status == 200 && generated(name)) {
        let shape = shape_of(recording.content_type.as_deref(), true).unwrap();
        let own = decode(Api::OpenaiChat, shape, [&recording.body[..]], None);
        let (events, reply) = read(&openai(), shape, &recording.body);
        told_apart += usize::from(!events.choices.is_empty());
        assert!(events.choices.is_empty() || events.choices.len() == events.content as usize, "{name}");
        assert_eq!(row((events, reply)), row(own), "{name}");
    }
    assert_eq!(told_apart, 2, "two servers know `n`");
}

#[test]
fn choices_and_weights_of_recordings_are_told() {
    let recordings = recordings::all();
    let events = |name: &str| read(&openai(), Shape::Stream, &recordings[name].body).0;
    assert_eq!(events("llama_server.chat_stream_n2").choices, [1, 0, 1, 0, 1, 0]);
    assert_eq!(events("vllm_cpu.chat_stream_n2").choices, [0, 1, 0, 1, 0, 1]);
    assert_eq!(events("vllm_cpu.chat_stream_contusage").weights, [1, 1, 1, 1, 1]);
    assert_eq!(events("vllm_cpu.chat_stream_usage").weights, [0u32; 0]);
}

#[test]
fn ollama_tgi_and_dashscope_as_custom_give_the_rows_of_their_own_decoders() {
    for (api, extract) in [("ollama", ollama()), ("tgi", tgi()), ("dashscope", dashscope())] {
        // Lists of parts, texts so far and pieces of tool calls are more than paths can say.
        let beyond = ["dashscope.vision.sse", "dashscope.repeated.sse", "dashscope.tools.sse"];
        let streams = spec::all().into_iter().filter(|spec| spec.name.starts_with(api) && spec.shape != Shape::Whole);
        for Spec { name, api, shape, body } in streams.filter(|spec| !beyond.contains(&spec.name.as_str())) {
            let (own, mut custom) = (decode(api, shape, [&body[..]], None), read(&extract, shape, &body));
            if api != Api::Tgi {
                assert_eq!(custom.0.weights, own.0.weights, "{name}");
            }
            custom.1.text = custom.1.text.filter(|text| !text.is_empty());
            assert_eq!(row(custom), row(own), "{name}");
        }
    }
}
