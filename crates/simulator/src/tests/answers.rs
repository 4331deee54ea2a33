//! What a client reads when nothing goes wrong.

use super::client::{Client, fast, simulator};
use crate::{Truth, start};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Faults;
use serde_json::json;

#[test]
fn a_chat_stream_is_these_frames() {
    let server = simulator(Faults::default());
    let answer = Client::of(&server).chat(r#","stream":true,"max_tokens":2,"stream_options":{"include_usage":true}"#);
    assert_eq!(
        answer.head,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\nx-request-id: \
         chatcmpl-sim-0\r\n\r\n"
    );
    let open = r#"data: {"id":"chatcmpl-sim-0","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":["#;
    let frames = [
        format!(r#"{open}{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}]}}"#),
        format!(r#"{open}{{"index":0,"delta":{{"content":" is"}},"logprobs":null,"finish_reason":null}}]}}"#),
        format!(r#"{open}{{"index":0,"delta":{{"content":" by"}},"logprobs":null,"finish_reason":"length"}}]}}"#),
        format!(r#"{open}],"usage":{{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}}}}"#),
        "data: [DONE]".to_owned(),
    ];
    assert_eq!(answer.chunks, frames.map(|frame| frame + "\n\n"));
}

#[test]
fn a_completion_stream_is_these_frames() {
    let server = simulator(Faults::default());
    let answer = Client::of(&server).post("/v1/completions?x=1", r#"{"prompt":[1,2],"stream":true,"max_tokens":2}"#);
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
    let whole = Client::of(&server).chat(r#","max_tokens":20"#);
    let streamed = Client::of(&other).chat(r#","max_tokens":20,"stream":true"#);
    let text: String = streamed.events().iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text.split(' ').count(), 21);
    assert!(whole.head.contains("x-request-id: chatcmpl-sim-0\r\n"));
    let expected = json!({
        "id": "chatcmpl-sim-0", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": text }, "logprobs": null, "finish_reason": "length" }],
        "usage": { "prompt_tokens": 3, "total_tokens": 23, "completion_tokens": 20 },
    });
    assert_eq!(whole.json(), expected);
    let completion = Client::of(&server).post("/v1/completions", r#"{"prompt":"1234","max_tokens":3}"#).json();
    assert_eq!((&completion["id"], &completion["object"]), (&json!("cmpl-sim-1"), &json!("text_completion")));
    assert_eq!(completion["choices"][0]["text"].as_str().unwrap().split(' ').count(), 4);
}

#[test]
fn without_a_limit_the_default_length_ends_with_stop() {
    let server = simulator(Faults::default());
    let whole = Client::of(&server).chat("").json();
    assert_eq!((&whole["usage"]["completion_tokens"], &whole["choices"][0]["finish_reason"]), (&json!(64), &json!("stop")));
}

#[test]
fn models_health_and_metrics_answer() {
    let server = simulator(Faults::default());
    let mut client = Client::of(&server);
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
        assert!(page.lines().any(|own| own == line), "{line} is not in\n{page}");
    }
}

#[test]
fn a_second_server_on_the_port_is_an_error_that_names_the_address() {
    let server = simulator(Faults::default());
    let error = start(&fast(), Seed(1), server.addr(), Truth::off()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("the simulator cannot listen on {}: ", server.addr())), "{error}");
    assert!(error.ends_with("choose another port, or 0 for a free one"), "{error}");
    let addr = server.addr();
    server.stop();
    assert_eq!(start(&fast(), Seed(1), addr, Truth::off()).unwrap().addr(), addr);
}
