//! DashScope on the wire.

use super::client::{Client, simulator};
use llmscen_core::simulator::Faults;
use serde_json::{Value, json};

const PATH: &str = "/api/v1/services/aigc/text-generation/generation";
const SSE: &str = "X-DashScope-SSE: enable\r\n";

fn body(parameters: &str) -> String {
    let input = r#"{"messages":[{"role":"user","content":"123456789"}]}"#;
    format!(r#"{{"model":"m","input":{input},"parameters":{{"max_tokens":2{parameters}}}}}"#)
}

fn event(text: &str, reason: &str, output: u64) -> Value {
    json!({
        "output": { "choices": [{ "message": { "role": "assistant", "content": text }, "finish_reason": reason }] },
        "usage": { "total_tokens": 3 + output, "input_tokens": 3, "output_tokens": output }, "request_id": "req-sim-0",
    })
}

#[test]
fn streams_repeat_the_text_or_carry_what_is_new() {
    let server = simulator(Faults::default());
    let answer = Client::of(&server).post_with(PATH, SSE, &body(""));
    assert!(answer.head.contains("content-type: text/event-stream;charset=UTF-8\r\n"), "{}", answer.head);
    assert_eq!(answer.events(), [event(" is", "null", 1), event(" is by", "length", 2)]);
    assert!(answer.chunks[1].starts_with("id:2\nevent:result\n:HTTP_STATUS/200\ndata:{\"output\":"), "{}", answer.chunks[1]);
    let server = simulator(Faults::default());
    let answer = Client::of(&server).post_with(PATH, SSE, &body(r#","incremental_output":true"#));
    assert_eq!(answer.events(), [event(" is", "null", 1), event(" by", "length", 2)]);
}

#[test]
fn whole_answers_come_in_either_format() {
    let server = simulator(Faults::default());
    let mut client = Client::of(&server);
    assert_eq!(client.post(PATH, &body("")).json(), event(" is by", "length", 2));
    let bare = client.post(PATH, &body(r#","result_format":"text""#)).json();
    assert_eq!(bare["output"]["finish_reason"], "length");
    assert_eq!(bare["output"]["text"].as_str().unwrap().matches(' ').count(), 2);
    assert_eq!(bare["request_id"], "req-sim-1");
}

#[test]
fn reasoning_stands_beside_the_content() {
    let server = simulator(Faults { reasoning_tokens: 1, ..Faults::default() });
    let events = Client::of(&server).post_with(PATH, SSE, &body(r#","incremental_output":true"#)).events();
    let messages: Vec<&Value> = events.iter().map(|event| &event["output"]["choices"][0]["message"]).collect();
    let message = |thoughts: &str, text: &str| json!({ "role": "assistant", "content": text, "reasoning_content": thoughts });
    assert_eq!(messages, [&message(" is", ""), &message("", " by")]);
    assert_eq!(events[1]["usage"]["output_tokens_details"], json!({ "reasoning_tokens": 1 }));
    let silent = simulator(Faults { no_usage: true, ..Faults::default() });
    assert!(!Client::of(&silent).post_with(PATH, SSE, &body("")).body().contains("usage"));
}

#[test]
fn refusals_have_dashscopes_shape() {
    let server = simulator(Faults::default());
    let answer = Client::of(&server).post(PATH, r#"{"input":{"prompt":"x"},"parameters":{"n":2}}"#);
    let message = "`parameters.n` must be 1: the simulator gives one choice here";
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json(), json!({ "code": "InvalidParameter", "message": message, "request_id": "req-sim-0" }));
}
