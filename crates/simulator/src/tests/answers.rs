//! Successful responses, with one choice and with several.

use super::client::{Answer, Client, fast, serving, simulator};
use crate::truth::End;
use crate::{Truth, start};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::{Faults, Simulator};
use llmscen_core::units::Nanos;
use serde_json::{Value, json};

#[test]
fn a_chat_stream_is_these_frames() {
    let server = simulator(Faults::default());
    let answer = Client::connect(&server)
        .chat(r#","stream":true,"max_tokens":2,"stream_options":{"include_usage":true}"#);
    assert_eq!(
        answer.head,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: \
         chunked\r\nx-request-id: chatcmpl-sim-0\r\n\r\n"
    );
    let open = r#"data: {"id":"chatcmpl-sim-0","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":["#;
    let frames = [
        format!(
            r#"{open}{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}]}}"#
        ),
        format!(
            r#"{open}{{"index":0,"delta":{{"content":" is"}},"logprobs":null,"finish_reason":null}}]}}"#
        ),
        format!(
            r#"{open}{{"index":0,"delta":{{"content":" by"}},"logprobs":null,"finish_reason":"length"}}]}}"#
        ),
        format!(
            r#"{open}],"usage":{{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}}}}"#
        ),
        "data: [DONE]".to_owned(),
    ];
    assert_eq!(answer.chunks, frames.map(|frame| frame + "\n\n"));
}

#[test]
fn a_completion_stream_is_these_frames() {
    let server = simulator(Faults::default());
    let answer = Client::connect(&server).post(
        "/v1/completions?x=1",
        r#"{"prompt":[1,2],"stream":true,"max_tokens":2}"#,
    );
    let open = r#"data: {"id":"cmpl-sim-0","object":"text_completion","created":1700000000,"model":"sim","choices":[{"index":0,"#;
    let frames = [
        format!(r#"{open}"text":" is","logprobs":null,"finish_reason":null}}]}}"#),
        format!(r#"{open}"text":" by","logprobs":null,"finish_reason":"length"}}]}}"#),
        "data: [DONE]".to_owned(),
    ];
    assert_eq!(answer.chunks, frames.map(|frame| frame + "\n\n"));
}

#[test]
fn whole_answers_hold_the_text_that_the_stream_has() {
    let (server, other) = (simulator(Faults::default()), simulator(Faults::default()));
    let whole = Client::connect(&server).chat(r#","max_tokens":20"#);
    let streamed = Client::connect(&other).chat(r#","max_tokens":20,"stream":true"#);
    let text: String = streamed
        .events()
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text.split(' ').count(), 21);
    assert!(whole.head.contains("x-request-id: chatcmpl-sim-0\r\n"));
    let expected = json!({
        "id": "chatcmpl-sim-0", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": text }, "logprobs": null,
            "finish_reason": "length" }],
        "usage": { "prompt_tokens": 3, "total_tokens": 23, "completion_tokens": 20 },
    });
    assert_eq!(whole.json(), expected);
    let completion = Client::connect(&server)
        .post("/v1/completions", r#"{"prompt":"1234","max_tokens":3}"#)
        .json();
    assert_eq!(
        (&completion["id"], &completion["object"]),
        (&json!("cmpl-sim-1"), &json!("text_completion"))
    );
    assert_eq!(
        completion["choices"][0]["text"]
            .as_str()
            .unwrap()
            .split(' ')
            .count(),
        4
    );
}

#[test]
fn without_a_limit_the_default_length_ends_with_stop() {
    let server = simulator(Faults::default());
    let whole = Client::connect(&server).chat("").json();
    assert_eq!(
        (
            &whole["usage"]["completion_tokens"],
            &whole["choices"][0]["finish_reason"]
        ),
        (&json!(64), &json!("stop"))
    );
}

#[test]
fn models_health_and_metrics_answer() {
    let server = simulator(Faults::default());
    let mut client = Client::connect(&server);
    let health = client.get("/health");
    assert_eq!((health.status, health.body()), (200, String::new()));
    assert_eq!(client.get("/v1/models").json()["data"][0]["id"], "sim");
    client.chat(r#","max_tokens":4"#);
    client.chat(r#","max_tokens":2,"stream":true"#);
    let page = client.get("/metrics").body();
    for line in [
        "vllm:num_requests_running{model_name=\"sim\"} 0",
        "vllm:kv_cache_usage_perc{model_name=\"sim\"} 0",
        "vllm:prompt_tokens_total{model_name=\"sim\"} 6",
        "vllm:generation_tokens_total{model_name=\"sim\"} 6",
        "vllm:request_success_total{model_name=\"sim\",finished_reason=\"length\"} 2",
        "vllm:time_to_first_token_seconds_count{model_name=\"sim\"} 2",
        "vllm:inter_token_latency_seconds_count{model_name=\"sim\"} 4",
    ] {
        assert!(
            page.lines().any(|own| own == line),
            "{line} is not in\n{page}"
        );
    }
}

#[test]
fn a_second_server_on_the_port_is_an_error_that_names_the_address() {
    let server = simulator(Faults::default());
    let error = start(&fast(), Seed(1), server.addr(), Truth::off())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(&format!(
            "the simulator cannot listen on {}: ",
            server.addr()
        )),
        "{error}"
    );
    assert!(
        error.ends_with("choose another port, or 0 for a free one"),
        "{error}"
    );
    let addr = server.addr();
    server.stop();
    assert_eq!(
        start(&fast(), Seed(1), addr, Truth::off()).unwrap().addr(),
        addr
    );
}

const TWO: &str = r#","stream":true,"max_tokens":3,"n":2,"stream_options":{"include_usage":true}"#;

/// Index and text of each event with a choice.
fn texts(answer: &Answer) -> Vec<(u64, String)> {
    let choice = |event: &Value| {
        let choice = event["choices"].get(0)?;
        Some((
            choice["index"].as_u64()?,
            choice["delta"]["content"].as_str()?.to_owned(),
        ))
    };
    answer.events().iter().filter_map(choice).collect()
}

#[test]
fn choices_alternate_with_separate_texts_and_ends() {
    let server = simulator(Faults::default());
    let mut client = Client::connect(&server);
    let answer = client.chat(TWO);
    let (order, choices): (Vec<u64>, Vec<String>) = texts(&answer).into_iter().unzip();
    assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(choices[..2], ["", ""]);
    let events = answer.events();
    let ends: Vec<&Value> = events
        .iter()
        .map(|event| &event["choices"][0]["finish_reason"])
        .collect();
    let none = &Value::Null;
    assert_eq!(
        ends,
        [
            none,
            none,
            none,
            none,
            none,
            none,
            &json!("length"),
            &json!("length"),
            none
        ]
    );
    assert_eq!(
        events[8]["usage"],
        json!({ "prompt_tokens": 3, "total_tokens": 9, "completion_tokens": 6 })
    );
    assert_eq!(answer.chunks.last().unwrap(), "data: [DONE]\n\n");
    let text = |index: usize| {
        choices
            .iter()
            .skip(2 + index)
            .step_by(2)
            .map(String::as_str)
            .collect::<String>()
    };
    assert_ne!(text(0), text(1));
    let other = simulator(Faults::default());
    let whole = Client::connect(&other)
        .chat(r#","max_tokens":3,"n":2"#)
        .json();
    for index in [0, 1] {
        assert_eq!(whole["choices"][index]["index"], index);
        assert_eq!(whole["choices"][index]["message"]["content"], text(index));
    }
    assert_eq!(whole["usage"]["completion_tokens"], 6);
    let completion = client
        .post("/v1/completions", r#"{"prompt":"x","n":16,"max_tokens":1}"#)
        .json();
    assert_eq!(completion["choices"].as_array().unwrap().len(), 16);
    assert_eq!(
        completion["usage"],
        json!({ "prompt_tokens": 1, "total_tokens": 17, "completion_tokens": 16 })
    );
}

#[test]
fn each_choice_is_a_separate_sequence() {
    // One runs at a time, so the second choice begins when the first has ended.
    let step = Nanos::from_millis(4);
    let server = serving(&Simulator {
        alpha: step,
        max_num_seqs: 1,
        ..fast()
    });
    let mut client = Client::connect(&server);
    client.chat(TWO);
    let record = server.truth().get(0).unwrap();
    let writes: Vec<(u32, u64)> = record
        .writes
        .iter()
        .map(|write| (write.choice, write.tokens))
        .collect();
    assert_eq!(writes, [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5), (1, 6)]);
    for (steps, write) in (1..).zip(&record.writes) {
        assert!(
            write.at.since(record.received_at) >= Nanos(step.0 * steps),
            "token {steps}"
        );
    }
    assert_eq!(record.end, Some(End::Done));
    // Concurrent choices emit in the same step.
    let server = serving(&Simulator {
        alpha: step,
        ..fast()
    });
    Client::connect(&server).chat(TWO);
    let record = server.truth().get(0).unwrap();
    let writes: Vec<(u32, u64)> = record
        .writes
        .iter()
        .map(|write| (write.choice, write.tokens))
        .collect();
    assert_eq!(writes, [(0, 1), (1, 2), (0, 3), (1, 4), (0, 5), (1, 6)]);
    let page = client.get("/metrics").body();
    for line in [
        "vllm:prompt_tokens_total{model_name=\"sim\"} 6",
        "vllm:generation_tokens_total{model_name=\"sim\"} 6",
        "vllm:time_to_first_token_seconds_count{model_name=\"sim\"} 2",
        "vllm:inter_token_latency_seconds_count{model_name=\"sim\"} 4",
        "vllm:e2e_request_latency_seconds_count{model_name=\"sim\"} 1",
    ] {
        assert!(
            page.lines().any(|own| own == line),
            "{line} is not in\n{page}"
        );
    }
}

#[test]
fn faults_strike_the_answer_as_one() {
    let under = |faults: Faults| {
        let server = simulator(faults);
        let answer = Client::connect(&server).chat(TWO);
        let page = Client::connect(&server).get("/metrics").body();
        assert!(
            page.contains("num_requests_running{model_name=\"sim\"} 0\n"),
            "no choice is left behind: {page}"
        );
        (answer, server.truth().get(0).unwrap())
    };
    let (cut, record) = under(Faults {
        truncate: 1.0,
        ..Faults::default()
    });
    let sent = texts(&cut)
        .iter()
        .filter(|(_, text)| !text.is_empty())
        .count() as u64;
    assert_eq!(
        (record.end, record.writes.last().map(|write| write.tokens)),
        (Some(End::Truncated), Some(sent))
    );
    assert!((1..6).contains(&sent) && !cut.body().contains("[DONE]"));
    let (held, record) = under(Faults {
        slow_headers: Nanos::from_millis(150),
        ..Faults::default()
    });
    let order: Vec<u64> = texts(&held).iter().map(|(index, _)| *index).collect();
    assert_eq!(
        (order, record.writes.len()),
        (vec![0, 1, 0, 1, 0, 1, 0, 1], 1)
    );
    let (thinking, _) = under(Faults {
        reasoning_tokens: 2,
        tokens_per_chunk: 9,
        role_chunk: false,
        ..Faults::default()
    });
    let deltas: Vec<(u64, Vec<String>)> = thinking.events()[..4]
        .iter()
        .map(|event| &event["choices"][0])
        .map(|choice| {
            (
                choice["index"].as_u64().unwrap(),
                choice["delta"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .cloned()
                    .collect(),
            )
        })
        .collect();
    let keys = |index: u64, keys: &[&str]| {
        (
            index,
            keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>(),
        )
    };
    let first = ["role", "reasoning_content"];
    assert_eq!(
        deltas,
        [
            keys(0, &first),
            keys(1, &first),
            keys(0, &["content"]),
            keys(1, &["content"])
        ]
    );
    assert_eq!(
        thinking.events()[4]["usage"]["completion_tokens_details"],
        json!({ "reasoning_tokens": 4 })
    );
}

#[test]
fn continuous_usage_counts_the_choice_of_each_event() {
    let server = simulator(Faults::default());
    let options = r#","stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;
    let answer =
        Client::connect(&server).chat(&format!(r#","stream":true,"max_tokens":2,"n":2{options}"#));
    let counts: Vec<[u64; 3]> = answer
        .events()
        .iter()
        .map(|event| {
            ["prompt_tokens", "total_tokens", "completion_tokens"]
                .map(|key| event["usage"][key].as_u64().unwrap())
        })
        .collect();
    assert_eq!(
        counts,
        [
            [3, 3, 0],
            [3, 3, 0],
            [3, 4, 1],
            [3, 4, 1],
            [3, 5, 2],
            [3, 5, 2],
            [3, 7, 4]
        ]
    );
    let plain = Client::connect(&server)
        .chat(r#","stream":true,"max_tokens":2,"stream_options":{"continuous_usage_stats":true}"#);
    assert!(
        !plain.body().contains("usage"),
        "it needs include_usage beside it"
    );
    let silent = simulator(Faults {
        no_usage: true,
        ..Faults::default()
    });
    assert!(
        !Client::connect(&silent)
            .chat(&format!(r#","stream":true,"max_tokens":2{options}"#))
            .body()
            .contains("usage")
    );
}
