//! Anthropic messages on the wire.

use super::client::{Client, simulator};
use llmscen_core::simulator::Faults;
use serde_json::{Value, json};

const PATH: &str = "/v1/messages";

fn body(fields: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":2,"messages":[{{"role":"user","content":"123456789"}}]{fields}}}"#)
}

fn message(content: Value, reason: Value, output: u64) -> Value {
    json!({
        "id": "msg-sim-0", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": reason,
        "stop_sequence": null, "usage": { "input_tokens": 3, "output_tokens": output },
    })
}

#[test]
fn a_stream_is_these_events() {
    let server = simulator(Faults { reasoning_tokens: 1, ..Faults::default() });
    let answer =
        Client::of(&server).post_with(PATH, "x-api-key: k\r\nanthropic-version: 2023-06-01\r\n", &body(r#","stream":true"#));
    let delta = |index: u64, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let thinking = json!({ "type": "thinking", "thinking": "", "signature": "" });
    let expected = [
        json!({ "type": "message_start", "message": message(json!([]), Value::Null, 0) }),
        json!({ "type": "ping" }),
        json!({ "type": "content_block_start", "index": 0, "content_block": thinking }),
        delta(0, json!({ "type": "thinking_delta", "thinking": " is" })),
        delta(0, json!({ "type": "signature_delta", "signature": "c2ltdWxhdGVk" })),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "text", "text": "" } }),
        delta(1, json!({ "type": "text_delta", "text": " by" })),
        json!({ "type": "content_block_stop", "index": 1 }),
        json!({
            "type": "message_delta", "delta": { "stop_reason": "max_tokens", "stop_sequence": null },
            "usage": { "input_tokens": 3, "output_tokens": 2 },
        }),
        json!({ "type": "message_stop" }),
    ];
    assert_eq!(answer.events(), expected);
    assert_eq!(answer.names(), expected.map(|event| event["type"].as_str().unwrap().to_owned()));
}

#[test]
fn a_whole_answer_holds_its_blocks_and_usage() {
    let server = simulator(Faults { reasoning_tokens: 1, ..Faults::default() });
    let mut client = Client::of(&server);
    let whole = client.post(PATH, &body(r#","system":"12345678","tools":[{"name":"t"}]"#)).json();
    let content =
        json!([{ "type": "thinking", "thinking": " is", "signature": "c2ltdWxhdGVk" }, { "type": "text", "text": " by" }]);
    let mut expected = message(content, json!("max_tokens"), 2);
    expected["usage"]["input_tokens"] = 5.into();
    assert_eq!(whole, expected);
    let silent = simulator(Faults { no_usage: true, ..Faults::default() });
    let answer = Client::of(&silent).post(PATH, &body(r#","stream":true"#));
    assert!(!answer.body().contains("usage") && answer.body().contains("message_stop"));
}

#[test]
fn refusals_have_anthropics_shape() {
    let server = simulator(Faults::default());
    let answer = Client::of(&server).post(PATH, r#"{"messages":[]}"#);
    let error = json!({ "type": "invalid_request_error", "message": "`max_tokens` is missing" });
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json(), json!({ "type": "error", "error": error, "request_id": "msg-sim-0" }));
    let answer = Client::of(&server).post(PATH, "{");
    assert!(answer.json()["error"]["message"].as_str().unwrap().starts_with("the body is not JSON: EOF"));
}
