//! `custom` protocols compared with the built-in ones.

use crate::lab::*;
use polars::prelude::{AnyValue, ParquetReader, SerReader};
use serde_json::Value;

const RELAXED: &str = "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";

/// The records of a run as text without times: requests, outcomes, and token counts of the server.
fn rows(lab: &Lab) -> Vec<String> {
    let file = std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap();
    let frame = ParquetReader::new(file).finish().unwrap();
    let names = [
        "seq",
        "model",
        "status",
        "outcome",
        "finish_reason",
        "response_id",
        "streamed",
        "max_tokens",
        "prompt_tokens",
        "output_tokens",
        "reasoning_tokens",
        "token_source",
        "choices",
    ];
    let cell = |name: &str, row: usize| frame.column(name).unwrap().get(row).unwrap().to_string();
    let events = |row: usize| match frame.column("token_events_ns").unwrap().get(row).unwrap() {
        AnyValue::List(list) => list.len(),
        other => panic!("{other}"),
    };
    (0..frame.height())
        .map(|row| {
            names
                .iter()
                .map(|name| cell(name, row))
                .collect::<Vec<_>>()
                .join(" ")
                + &format!(" {} events", events(row))
        })
        .collect()
}

/// A run of 12 prompts one after the other, against a simulator with reasoning.
fn asked(target: &str, request: &str) -> Vec<String> {
    let lab = Lab::new();
    let ran = lab.run(&format!(
        "version: 1\nname: t\nseed: 7\ntarget: {{ {target}, model: m, simulator: {{ alpha: 200us, faults: {{ reasoning_tokens: 2 }} }} }}\n\
         dataset: {{ kind: openqa, path: builtin }}\nrequest:\n  max_tokens: {{ uniform: [3, 9] }}\n{request}\
         load: {{ concurrency: 1, requests: 12 }}\n{RELAXED}"
    ));
    ran.expect(0);
    let rows = rows(&lab);
    assert_eq!(rows.len(), 12);
    assert!(
        rows.iter()
            .all(|row| row.contains("\"ok\"") && row.contains("\"usage\"")),
        "{rows:#?}"
    );
    rows
}

#[test]
fn chat_as_a_custom_protocol_gives_the_same_records() {
    let custom = "  template: { model: \"%m\", messages: \"{{ messages }}\", max_tokens: \"{{ case.max_tokens }}\", stream: true, \
                  stream_options: { include_usage: true } }\n  extract:\n    \
                  text: [\"$.choices[*].delta.content\", \"$.choices[*].delta.reasoning_content\"]\n    \
                  usage: { prompt: $.usage.prompt_tokens, output: $.usage.completion_tokens, \
                  reasoning: $.usage.completion_tokens_details.reasoning_tokens }\n    \
                  finish: \"$.choices[0].finish_reason\"\n    id: $.id\n    error: $.error.message\n    done: \"[DONE]\"\n";
    let own = asked("api: custom, url: simulator/v1/chat/completions", custom);
    assert_eq!(own, asked("api: openai-chat, url: simulator", ""));
}

#[test]
fn anthropic_as_a_custom_protocol_gives_the_same_records() {
    let custom = "  template: { model: \"%m\", messages: \"{{ dialog }}\", max_tokens: \"{{ case.max_tokens }}\", stream: true }\n  \
                  extract:\n    text: [$.delta.text, $.delta.thinking]\n    \
                  usage: { prompt: $.message.usage.input_tokens, output: $.usage.output_tokens }\n    \
                  finish: $.delta.stop_reason\n    id: $.message.id\n    error: $.error.message\n    done: { event: message_stop }\n";
    let own = asked("api: custom, url: simulator/v1/messages", custom);
    assert_eq!(own, asked("api: anthropic, url: simulator", ""));
}

#[test]
fn ollama_as_a_custom_protocol_gives_the_same_records() {
    let custom = "  template: { model: \"%m\", messages: \"{{ messages }}\", stream: true, options: { num_predict: \"{{ case.max_tokens }}\" } }\n  \
                  extract:\n    framing: ndjson\n    text: [$.message.content, $.message.thinking]\n    \
                  usage: { prompt: $.prompt_eval_count, output: $.eval_count }\n    \
                  finish: $.done_reason\n    error: $.error\n    done: { path: $.done, equals: true }\n";
    let own = asked("api: custom, url: simulator/api/chat", custom);
    assert_eq!(own, asked("api: ollama, url: simulator", ""));
}

#[test]
fn a_path_that_does_not_parse_is_named_before_anything_is_sent() {
    let lab = Lab::new();
    let text = "version: 1\nname: t\ntarget: { api: custom, url: simulator/v1/chat/completions, model: m }\n\
                dataset: { kind: prompt, text: x }\nload: { concurrency: 1, requests: 1 }\n\
                request: { template: { model: \"%m\" }, extract: { text: \"$.a[?]\" } }\n";
    let ran = lab.run(text);
    assert!(ran.code == 2 || ran.code == 3, "{}: {}", ran.code, ran.err);
    assert!(
        ran.err.contains("extract.text") && ran.err.contains("$.a[?]"),
        "{}",
        ran.err
    );
    assert!(!lab.path().join("out/results.json").exists());
}

#[test]
fn several_choices_are_timed_each_on_its_own() {
    let lab = Lab::new();
    lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ api: simulator, simulator: {{ alpha: 5ms }} }}\ndataset: {{ kind: prompt, text: x }}\n\
         request: {{ n: 3, max_tokens: 4 }}\nload: {{ concurrency: 1, requests: 2 }}\n{RELAXED}"
    ))
    .expect(0);
    let case: Value = lab.results()["cases"][0].clone();
    // Three choices of four tokens: three gaps per choice, none between choices.
    assert_eq!(
        (
            case["metrics"]["output_tokens"]["max"].as_f64(),
            case["metrics"]["itl_ms"]["n"].as_u64()
        ),
        (Some(12.0), Some(18))
    );
    // On a busy machine a step is read late, and the one after it seems short.
    assert!(
        case["metrics"]["itl_ms"]["p50"].as_f64().unwrap() >= 2.5,
        "{}",
        case["metrics"]["itl_ms"]
    );
    assert!(
        case["metrics"]["tpot_ms"]["p50"].as_f64().unwrap() >= 2.5,
        "{}",
        case["metrics"]["tpot_ms"]
    );
}
