//! Text Generation Inference on the wire.

use super::client::{Client, simulator};
use llmscen_core::simulator::Faults;
use serde_json::{Value, json};

fn event(index: u64, text: &str, generated: Value, details: Value) -> Value {
    let token = json!({ "id": 0, "text": text, "logprob": 0.0, "special": false });
    json!({ "index": index, "token": token, "generated_text": generated, "details": details })
}

#[test]
fn a_stream_ends_with_the_whole_text() {
    let server = simulator(Faults::default());
    let answer = Client::of(&server).post("/generate_stream", r#"{"inputs":"123456789","parameters":{"max_new_tokens":2}}"#);
    let details = json!({ "finish_reason": "length", "generated_tokens": 2, "input_length": 3, "seed": null });
    assert_eq!(answer.events(), [event(1, " is", Value::Null, Value::Null), event(2, " by", json!(" is by"), details)]);
    assert!(answer.chunks.iter().all(|chunk| chunk.starts_with("data:{") && chunk.ends_with("}\n\n")));
}

#[test]
fn a_whole_answer_has_details_when_asked() {
    let server = simulator(Faults::default());
    let mut client = Client::of(&server);
    let plain = client.post("/generate", r#"{"inputs":"x","parameters":{"max_new_tokens":2}}"#).json();
    assert_eq!(plain, json!({ "generated_text": " is by" }));
    let detailed = client.post("/generate", r#"{"inputs":"x","parameters":{"details":true}}"#).json();
    let details = json!({
        "finish_reason": "eos_token", "generated_tokens": 64, "input_length": 1, "seed": null, "prefill": [], "tokens": [],
    });
    assert_eq!(detailed["details"], details);
    let refused = client.post("/generate", r#"{"inputs":7}"#);
    assert_eq!(refused.status, 422);
    assert_eq!(refused.json(), json!({ "error": "`inputs` must be text, not 7", "error_type": "validation" }));
    let silent = simulator(Faults { no_usage: true, ..Faults::default() });
    let answer = Client::of(&silent).post("/generate_stream", r#"{"inputs":"x"}"#);
    assert_eq!(answer.events()[63]["details"], json!({ "finish_reason": "eos_token", "seed": null }));
}
