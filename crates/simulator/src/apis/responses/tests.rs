use crate::tests::client::{Client, simulator};
use llmscen_core::simulator::Faults;
use serde_json::{Value, json};

const PATH: &str = "/v1/responses";

fn response(status: &str, limit: Value, output: Value, usage: Value) -> Value {
    let details = if status == "incomplete" {
        json!({ "reason": "max_output_tokens" })
    } else {
        Value::Null
    };
    json!({
        "id": "resp-sim-0", "object": "response", "created_at": 1_700_000_000, "status": status, "error": null,
        "incomplete_details": details, "max_output_tokens": limit, "model": "m", "output": output, "usage": usage,
    })
}

fn message(status: &str, content: Value) -> Value {
    json!({ "id": "msg-sim-0", "type": "message", "status": status, "role": "assistant", "content": content })
}

fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn usage(output: u64, reasoning: u64) -> Value {
    json!({
        "input_tokens": 3, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": output,
        "output_tokens_details": { "reasoning_tokens": reasoning }, "total_tokens": 3 + output,
    })
}

#[test]
fn a_stream_is_these_events() {
    let server = simulator(Faults::default());
    let answer = Client::connect(&server).post(
        PATH,
        r#"{"model":"m","input":"123456789","stream":true,"max_output_tokens":2}"#,
    );
    assert!(
        answer
            .head
            .contains("content-type: text/event-stream; charset=utf-8\r\n"),
        "{}",
        answer.head
    );
    assert!(answer.head.contains("x-request-id: resp-sim-0\r\n"));
    let begun = response("in_progress", json!(2), json!([]), Value::Null);
    let item = message("incomplete", json!([output_text(" is by")]));
    let place = |kind: &str, fields: Value| {
        let mut event =
            json!({ "type": kind, "item_id": "msg-sim-0", "output_index": 0, "content_index": 0 });
        event
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        event
    };
    let mut expected = vec![
        json!({ "type": "response.created", "response": begun }),
        json!({ "type": "response.in_progress", "response": begun }),
        json!({ "type": "response.output_item.added", "output_index": 0,
            "item": message("in_progress", json!([])) }),
        place(
            "response.content_part.added",
            json!({ "part": output_text("") }),
        ),
        place(
            "response.output_text.delta",
            json!({ "delta": " is", "logprobs": [] }),
        ),
        place(
            "response.output_text.delta",
            json!({ "delta": " by", "logprobs": [] }),
        ),
        place(
            "response.output_text.done",
            json!({ "text": " is by", "logprobs": [] }),
        ),
        place(
            "response.content_part.done",
            json!({ "part": output_text(" is by") }),
        ),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.incomplete", "response": response("incomplete", json!(2),
            json!([item]), usage(2, 0)) }),
    ];
    for (number, event) in expected.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    assert_eq!(answer.events(), expected);
    let types: Vec<&str> = expected
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(answer.names(), types);
}

#[test]
fn a_response_continues_a_stored_one() {
    let server = simulator(Faults::default());
    let mut client = Client::connect(&server);
    let mut post = |fields: &str| {
        let body = format!("{{\"model\":\"m\",\"max_output_tokens\":2,{fields}}}");
        client.post(PATH, &body).json()
    };
    let tokens = |answer: &Value| answer["usage"]["input_tokens"].as_u64().unwrap();
    let first = post(r#""input":"12345678""#);
    assert_eq!((&first["id"], tokens(&first)), (&json!("resp-sim-0"), 2));
    let text = first["output"][0]["content"][0]["text"].as_str().unwrap();
    let bytes = "12345678".len() + text.len() + "1234".len();
    // Two branches, of which the first is not stored.
    let next = post(r#""input":"1234","previous_response_id":"resp-sim-0","store":false"#);
    assert_eq!(tokens(&next), bytes.div_ceil(4) as u64);
    let branch = post(r#""input":"1234","previous_response_id":"resp-sim-0""#);
    assert_eq!(tokens(&branch), tokens(&next));
    let unknown = post(r#""input":"1234","previous_response_id":"resp-sim-1""#);
    let error = json!({ "error": {
        "message": "Previous response with id 'resp-sim-1' not found.",
        "type": "invalid_request_error",
        "param": "previous_response_id",
        "code": "previous_response_not_found",
    } });
    assert_eq!(unknown, error);
}

#[test]
fn reasoning_is_a_separate_item_and_all_items_complete_without_limit() {
    let faults = Faults {
        reasoning_tokens: 2,
        tokens_per_chunk: 62,
        ..Faults::default()
    };
    let server = simulator(faults);
    let mut client = Client::connect(&server);
    let events = client
        .post(PATH, r#"{"model":"m","input":"123456789","stream":true}"#)
        .events();
    let types: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    let items = ["reasoning_text", "output_text"].map(|kind| {
        let text = [
            format!("response.{kind}.delta"),
            format!("response.{kind}.done"),
        ];
        let [delta, done] = text;
        let around =
            ["response.output_item.added", "response.content_part.added"].map(str::to_owned);
        let behind = ["response.content_part.done", "response.output_item.done"].map(str::to_owned);
        [around.to_vec(), vec![delta, done], behind.to_vec()].concat()
    });
    let ends = [
        vec!["response.created".into(), "response.in_progress".into()],
        items.concat(),
        vec!["response.completed".into()],
    ];
    assert_eq!(types, ends.concat());
    let last = &events.last().unwrap()["response"];
    let [thoughts, message] = [&last["output"][0], &last["output"][1]];
    assert_eq!(
        (&thoughts["id"], &thoughts["status"], &message["status"]),
        (&json!("rs-sim-0"), &json!("completed"), &json!("completed"))
    );
    assert_eq!(
        thoughts["content"],
        json!([{ "type": "reasoning_text", "text": " is by" }])
    );
    assert_eq!(
        message["content"][0]["text"]
            .as_str()
            .unwrap()
            .split(' ')
            .count(),
        63
    );
    assert_eq!(
        (&events[5]["item_id"], &events[8]["output_index"]),
        (&json!("rs-sim-0"), &json!(1))
    );
    assert_eq!(
        (&last["status"], &last["usage"]),
        (&json!("completed"), &usage(64, 2))
    );
}

#[test]
fn a_reply_equals_the_final_event_of_a_stream() {
    let server = simulator(Faults::default());
    let whole = Client::connect(&server).post(
        PATH,
        r#"{"model":"m","input":"123456789","max_output_tokens":2}"#,
    );
    let item = message("incomplete", json!([output_text(" is by")]));
    assert_eq!(
        whole.json(),
        response("incomplete", json!(2), json!([item]), usage(2, 0))
    );
    let server = simulator(Faults {
        reasoning_tokens: 9,
        no_usage: true,
        ..Faults::default()
    });
    let whole = Client::connect(&server)
        .post(PATH, r#"{"model":"m","input":"1","max_output_tokens":2}"#)
        .json();
    assert_eq!(
        (whole["output"].as_array().unwrap().len(), &whole["usage"]),
        (1, &Value::Null)
    );
    assert_eq!(
        (&whole["output"][0]["type"], &whole["output"][0]["status"]),
        (&json!("reasoning"), &json!("incomplete"))
    );
}
