//! Ollama on the wire.

use super::client::{Client, fast, serving, simulator};
use llmscen_core::simulator::{Faults, Simulator};
use llmscen_core::units::Nanos;
use serde_json::{Value, json};

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"123456789"}],"options":{"num_predict":3}"#;

fn line(fields: Value) -> Value {
    let mut line = json!({ "model": "m", "created_at": "2023-11-14T22:13:20Z" });
    line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    line
}

/// Steps of 2 ms, and 1 ms in front of the queue.
fn steps() -> Simulator {
    Simulator { alpha: Nanos::from_millis(2), admission: Nanos::from_millis(1), ..fast() }
}

/// Takes the times out of a last line, which tell that two steps lay between three tokens and the parts fill the whole.
fn durations(line: &mut Value) {
    let line = line.as_object_mut().unwrap();
    let [total, load, prompt, eval] =
        ["total", "load", "prompt_eval", "eval"].map(|name| line.remove(&format!("{name}_duration")).unwrap().as_u64().unwrap());
    assert_eq!((load, eval, load + prompt + eval), (1_000_000, 4_000_000, total));
    // The engine stands idle, so that its first step begins when the request is queued.
    assert_eq!(prompt, 2_000_000);
}

#[test]
fn a_chat_streams_lines_unless_told_not_to() {
    let server = serving(&steps());
    let answer = Client::of(&server).post("/api/chat", &format!("{CHAT}}}"));
    assert!(answer.head.contains("content-type: application/x-ndjson\r\n"), "{}", answer.head);
    assert!(answer.chunks.iter().all(|chunk| chunk.ends_with("}\n") && chunk.lines().count() == 1));
    let mut events = answer.events();
    durations(events.last_mut().unwrap());
    let message = |text: &Value| json!({ "role": "assistant", "content": text });
    let third = events[2]["message"]["content"].clone();
    let expected = [
        line(json!({ "message": message(&json!(" is")), "done": false })),
        line(json!({ "message": message(&json!(" by")), "done": false })),
        line(json!({ "message": message(&third), "done": false })),
        line(json!({
            "message": message(&json!("")), "done": true, "done_reason": "length", "prompt_eval_count": 3, "eval_count": 3,
        })),
    ];
    assert_eq!(events, expected);
    assert_eq!(third.as_str().unwrap().matches(' ').count(), 1);
}

#[test]
fn a_generation_is_the_same_with_a_bare_text() {
    let server = serving(&steps());
    let ask = r#"{"model":"m","prompt":"123456789","options":{"num_predict":3}"#;
    let streamed = Client::of(&server).post("/api/generate", &format!("{ask}}}")).events();
    assert_eq!(streamed[0], line(json!({ "response": " is", "done": false })));
    assert_eq!((&streamed[3]["response"], &streamed[3]["done"]), (&json!(""), &json!(true)));
    let server = serving(&steps());
    let mut whole = Client::of(&server).post("/api/generate", &format!(r#"{ask},"stream":false}}"#)).json();
    durations(&mut whole);
    let text: String = streamed.iter().filter_map(|event| event["response"].as_str()).collect();
    let end = json!({ "response": text, "done": true, "done_reason": "length", "prompt_eval_count": 3, "eval_count": 3 });
    assert_eq!(whole, line(end));
}

#[test]
fn reasoning_is_thinking_and_comments_do_not_exist() {
    let faults = Faults { reasoning_tokens: 1, comment_every: 1, no_usage: true, ..Faults::default() };
    let server = simulator(faults);
    let mut client = Client::of(&server);
    let answer = client.post("/api/chat", &format!("{CHAT}}}"));
    assert_eq!(answer.events()[0]["message"], json!({ "role": "assistant", "content": "", "thinking": " is" }));
    assert_eq!((answer.chunks.len(), answer.body().contains("_count")), (4, false));
    let whole = client.post("/api/chat", &format!(r#"{CHAT},"stream":false}}"#)).json();
    assert_eq!(whole["message"]["thinking"].as_str().unwrap().matches(' ').count(), 1);
    assert_eq!(whole["message"]["content"].as_str().unwrap().matches(' ').count(), 2);
}
