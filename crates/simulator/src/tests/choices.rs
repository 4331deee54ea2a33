//! Several choices of one answer, and usage beside every event.

use super::client::{Answer, Client, fast, serving, simulator};
use crate::truth::End;
use llmscen_core::simulator::{Faults, Simulator};
use llmscen_core::units::Nanos;
use serde_json::{Value, json};

const TWO: &str = r#","stream":true,"max_tokens":3,"n":2,"stream_options":{"include_usage":true}"#;

/// Index and text of each event with a choice.
fn texts(answer: &Answer) -> Vec<(u64, String)> {
    let choice = |event: &Value| {
        let choice = event["choices"].get(0)?;
        Some((choice["index"].as_u64()?, choice["delta"]["content"].as_str()?.to_owned()))
    };
    answer.events().iter().filter_map(choice).collect()
}

#[test]
fn choices_take_turns_and_each_has_its_own_text_and_end() {
    let server = simulator(Faults::default());
    let mut client = Client::of(&server);
    let answer = client.chat(TWO);
    let (order, said): (Vec<u64>, Vec<String>) = texts(&answer).into_iter().unzip();
    assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(said[..2], ["", ""]);
    let events = answer.events();
    let ends: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
    let none = &Value::Null;
    assert_eq!(ends, [none, none, none, none, none, none, &json!("length"), &json!("length"), none]);
    assert_eq!(events[8]["usage"], json!({ "prompt_tokens": 3, "total_tokens": 9, "completion_tokens": 6 }));
    assert_eq!(answer.chunks.last().unwrap(), "data: [DONE]\n\n");
    let text = |index: usize| said.iter().skip(2 + index).step_by(2).map(String::as_str).collect::<String>();
    assert_ne!(text(0), text(1));
    let other = simulator(Faults::default());
    let whole = Client::of(&other).chat(r#","max_tokens":3,"n":2"#).json();
    for index in [0, 1] {
        assert_eq!(whole["choices"][index]["index"], index);
        assert_eq!(whole["choices"][index]["message"]["content"], text(index));
    }
    assert_eq!(whole["usage"]["completion_tokens"], 6);
    let completion = client.post("/v1/completions", r#"{"prompt":"x","n":16,"max_tokens":1}"#).json();
    assert_eq!(completion["choices"].as_array().unwrap().len(), 16);
    assert_eq!(completion["usage"], json!({ "prompt_tokens": 1, "total_tokens": 17, "completion_tokens": 16 }));
}

#[test]
fn each_choice_is_a_sequence_of_its_own_in_the_engine() {
    // One runs at a time, so the second choice begins when the first has ended.
    let step = Nanos::from_millis(4);
    let server = serving(&Simulator { alpha: step, max_num_seqs: 1, ..fast() });
    let mut client = Client::of(&server);
    client.chat(TWO);
    let record = server.truth().get(0).unwrap();
    let writes: Vec<(u32, u64)> = record.writes.iter().map(|write| (write.choice, write.tokens)).collect();
    assert_eq!(writes, [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5), (1, 6)]);
    for (steps, write) in (1..).zip(&record.writes) {
        assert!(write.at.since(record.received_at) >= Nanos(step.0 * steps), "token {steps}");
    }
    assert_eq!(record.end, Some(End::Done));
    // Side by side both come with the same step.
    let server = serving(&Simulator { alpha: step, ..fast() });
    Client::of(&server).chat(TWO);
    let record = server.truth().get(0).unwrap();
    let writes: Vec<(u32, u64)> = record.writes.iter().map(|write| (write.choice, write.tokens)).collect();
    assert_eq!(writes, [(0, 1), (1, 2), (0, 3), (1, 4), (0, 5), (1, 6)]);
    let page = client.get("/metrics").body();
    for line in [
        "vllm:prompt_tokens_total{model_name=\"sim\"} 6",
        "vllm:generation_tokens_total{model_name=\"sim\"} 6",
        "vllm:time_to_first_token_seconds_count{model_name=\"sim\"} 2",
        "vllm:inter_token_latency_seconds_count{model_name=\"sim\"} 4",
        "vllm:e2e_request_latency_seconds_count{model_name=\"sim\"} 1",
    ] {
        assert!(page.lines().any(|own| own == line), "{line} is not in\n{page}");
    }
}

#[test]
fn faults_strike_the_answer_as_one() {
    let under = |faults: Faults| {
        let server = simulator(faults);
        let answer = Client::of(&server).chat(TWO);
        let page = Client::of(&server).get("/metrics").body();
        assert!(page.contains("num_requests_running{model_name=\"sim\"} 0\n"), "no choice is left behind: {page}");
        (answer, server.truth().get(0).unwrap())
    };
    let (cut, record) = under(Faults { truncate: 1.0, ..Faults::default() });
    let sent = texts(&cut).iter().filter(|(_, text)| !text.is_empty()).count() as u64;
    assert_eq!((record.end, record.writes.last().map(|write| write.tokens)), (Some(End::Truncated), Some(sent)));
    assert!((1..6).contains(&sent) && !cut.body().contains("[DONE]"));
    let (held, record) = under(Faults { slow_headers: Nanos::from_millis(150), ..Faults::default() });
    let order: Vec<u64> = texts(&held).iter().map(|(index, _)| *index).collect();
    assert_eq!((order, record.writes.len()), (vec![0, 1, 0, 1, 0, 1, 0, 1], 1));
    let (thinking, _) = under(Faults { reasoning_tokens: 2, tokens_per_chunk: 9, role_chunk: false, ..Faults::default() });
    let deltas: Vec<(u64, Vec<String>)> = thinking.events()[..4]
        .iter()
        .map(|event| &event["choices"][0])
        .map(|choice| (choice["index"].as_u64().unwrap(), choice["delta"].as_object().unwrap().keys().cloned().collect()))
        .collect();
    let keys = |index: u64, keys: &[&str]| (index, keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
    let first = ["role", "reasoning_content"];
    assert_eq!(deltas, [keys(0, &first), keys(1, &first), keys(0, &["content"]), keys(1, &["content"])]);
    assert_eq!(thinking.events()[4]["usage"]["completion_tokens_details"], json!({ "reasoning_tokens": 4 }));
}

#[test]
fn continuous_usage_counts_the_choice_of_each_event() {
    let server = simulator(Faults::default());
    let options = r#","stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;
    let answer = Client::of(&server).chat(&format!(r#","stream":true,"max_tokens":2,"n":2{options}"#));
    let counts: Vec<[u64; 3]> = answer
        .events()
        .iter()
        .map(|event| ["prompt_tokens", "total_tokens", "completion_tokens"].map(|key| event["usage"][key].as_u64().unwrap()))
        .collect();
    assert_eq!(counts, [[3, 3, 0], [3, 3, 0], [3, 4, 1], [3, 4, 1], [3, 5, 2], [3, 5, 2], [3, 7, 4]]);
    let plain = Client::of(&server).chat(r#","stream":true,"max_tokens":2,"stream_options":{"continuous_usage_stats":true}"#);
    assert!(!plain.body().contains("usage"), "it needs include_usage beside it");
    let silent = simulator(Faults { no_usage: true, ..Faults::default() });
    assert!(!Client::of(&silent).chat(&format!(r#","stream":true,"max_tokens":2{options}"#)).body().contains("usage"));
}
