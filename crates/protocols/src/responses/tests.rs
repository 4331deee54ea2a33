use super::*;
use crate::replay::decode;
use crate::{Message, laws};
use llmscen_core::api::Api;

const CREATED: &str = "event: response.created\ndata: \
    {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"status\":\"in_progress\"}}\n\n";
const HI: &str = "event: response.output_text.delta\ndata: \
    {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n";
const DONE: &str = "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n";

fn run(stream: &[&str]) -> (Events, Reply) {
    decode(
        Api::OpenaiResponses,
        Framing::Sse,
        [stream.concat().as_bytes()],
        None,
    )
}

/// The end in one line: the finish reason, or kind, place and message.
fn end(stream: &[&str]) -> String {
    summarize(run(stream).1)
}

fn whole(body: Value) -> Reply {
    decode(
        Api::OpenaiResponses,
        Framing::Json,
        [body.to_string().as_bytes()],
        None,
    )
    .1
}

fn summarize(reply: Reply) -> String {
    match reply.end {
        Ok(finish) => finish.reason,
        Err(failure) => format!("{} ({}): {}", failure.kind, failure.at, failure.message),
    }
}

#[test]
fn the_messages_are_the_input() {
    let body = |stream: bool| json!({ "model": "{{ model }}", "input": "{{ messages }}", "stream": stream });
    assert_eq!(
        (Responses.body(true), Responses.body(false)),
        (body(true), body(false))
    );
}

#[test]
fn the_final_event_ends_a_stream() {
    assert_eq!(end(&[CREATED, HI, DONE]), "completed");
    assert_eq!(end(&[CREATED, HI, DONE, "data: [DONE]\n\n"]), "completed");
    assert_eq!(
        end(&[CREATED, HI, DONE, "event: error\ndata: late\n\n"]),
        "completed"
    );
    assert_eq!(
        end(&[HI]),
        "truncated (after 1 events): the stream ended before its final event"
    );
    assert_eq!(
        end(&[HI, "data: [DONE]\n\n"]),
        "truncated (after 2 events): the stream ended before its final event"
    );
    assert_eq!(
        end(&[]),
        "truncated (after 0 events): the stream ended before its final event"
    );
    assert_eq!(end(&[CREATED, DONE]), "completed");
    let (events, reply) = run(&[CREATED, HI, DONE]);
    assert_eq!((events.total, events.content, events.done), (3, 1, true));
    assert_eq!(
        (reply.id.as_deref(), reply.usage.output),
        (Some("r"), Some(1))
    );
    assert_eq!(
        run(&[CREATED, HI]).1.id.as_deref(),
        Some("r"),
        "the id of a stream that was cut"
    );
}

#[test]
fn the_status_of_the_response_overrides_the_event_name() {
    let last = |kind: &str, response: Value| {
        let event = json!({ "type": format!("response.{kind}"), "response": response });
        end(&[HI, &format!("data: {event}\n\n")])
    };
    let cut = json!({ "reason": "max_output_tokens" });
    assert_eq!(
        last(
            "completed",
            json!({ "status": "incomplete", "incomplete_details": cut })
        ),
        "max_output_tokens"
    );
    assert_eq!(
        last("incomplete", json!({ "incomplete_details": null })),
        "incomplete"
    );
    assert_eq!(
        last("completed", json!({ "status": "in_progress" })),
        "completed"
    );
    assert_eq!(
        last(
            "completed",
            json!({ "status": "failed", "error": { "message": "died" } })
        ),
        "stream_error (event 2): died"
    );
    assert_eq!(
        last("failed", json!({})),
        "stream_error (event 2): the server finished with `failed`"
    );
    assert_eq!(
        last("cancelled", json!(null)),
        "stream_error (event 2): the server finished with `cancelled`"
    );
}

#[test]
fn an_error_in_band_is_the_reason_and_the_good_part_is_kept() {
    for error in [
        "event: error\ndata: {\"type\":\"error\",\"message\":\"died\"}\n\n",
        "data: {\"type\":\"error\",\"code\":\"x\",\"message\":\"died\"}\n\n",
        "data: {\"error\":{\"message\":\"died\"}}\n\n",
        "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"message\":\"died\"}}}\n\n",
    ] {
        assert_eq!(
            end(&[CREATED, HI, error, DONE]),
            "stream_error (event 3): died",
            "{error}"
        );
        let (events, reply) = run(&[CREATED, HI, error]);
        assert_eq!(
            (events.content, reply.text.as_deref(), reply.id.as_deref()),
            (1, Some("hi"), Some("r"))
        );
    }
    let (_, failed) = laws::reply("openai-responses.failed.sse");
    assert_eq!(
        failed.end.unwrap_err().message,
        "The model failed to generate a response."
    );
    let (_, limited) = laws::reply("openai-responses.error.sse");
    assert_eq!(limited.end.unwrap_err().message, "Rate limit reached.");
    assert_eq!(
        end(&["data: oops\n\n"]),
        "decode (event 1): the JSON cannot be read (expected value at line 1 column 1): oops"
    );
}

#[test]
fn a_message_can_be_fed_back_streamed_or_whole() {
    let call = json!([{ "type": "function_call", "call_id": "call_1", "name": "get_weather",
        "arguments": "{\"city\":\"Paris\"}" }]);
    let expected = Message {
        content: "I ask.".into(),
        reasoning: "Look up.".into(),
        tool_calls: call,
    };
    for name in ["openai-responses.tools.sse", "openai-responses.tools.json"] {
        let text = laws::reply(name).1.text.unwrap_or_default();
        let characters = laws::reply(name).1.facts.characters;
        assert_eq!(characters, text.chars().count() as u64, "{name}");
        let (_, reply) = laws::reply(name);
        assert_eq!(
            (reply.message, reply.id.as_deref()),
            (Some(expected.clone()), Some("resp_67cb")),
            "{name}"
        );
    }
    let tool_calls =
        json!([{ "type": "custom_tool_call", "call_id": "call_2", "name": "sh", "input": "ls" }]);
    let expected = Message {
        content: "ab".into(),
        reasoning: "rs".into(),
        tool_calls,
    };
    assert_eq!(
        laws::reply("openai-responses.every_delta.sse").1.message,
        Some(expected),
        "the server's own calls are left out"
    );
    let refused = laws::reply("openai-responses.incomplete.json")
        .1
        .message
        .unwrap();
    assert_eq!(
        (refused.content.as_str(), refused.tool_calls),
        ("I cannot.", Value::Null)
    );
}

#[test]
fn calls_without_numbers_and_arguments_without_deltas_are_kept() {
    let added = |id: &str| {
        format!(
            r#"{{"type":"response.output_item.added","item":{{"type":"function_call","call_id":"{id}","name":"f"}}}}"#
        )
    };
    let done = |id: &str, input: &str| {
        let item =
            json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": input });
        json!({ "type": "response.output_item.done", "item": item }).to_string()
    };
    let delta = r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#.to_owned();
    let events = [
        added("a"),
        delta,
        done("a", "{}"),
        added("b"),
        done("b", "[1]"),
    ];
    let stream: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let (events, reply) = run(&[&stream, DONE]);
    let call = |id: &str, input: &str| {
        json!({ "type": "function_call", "call_id": id, "name": "f",
        "arguments": input })
    };
    assert_eq!(
        (events.content, reply.text.as_deref()),
        (1, Some("f{}f[1]"))
    );
    assert_eq!(
        reply.message.unwrap().tool_calls,
        json!([call("a", "{}"), call("b", "[1]")])
    );
}

#[test]
fn output_that_no_delta_brought_is_in_the_final_event() {
    let output =
        json!([{ "type": "message", "content": [{ "type": "output_text", "text": "hi" }] }]);
    let last = json!({ "type": "response.completed", "response": { "status": "completed", "output": output } });
    let (events, reply) = run(&[CREATED, &format!("data: {last}\n\n")]);
    assert_eq!(
        (events.content, reply.end.is_ok(), reply.text.as_deref()),
        (1, true, Some("hi")),
        "it arrived with that event"
    );
}

#[test]
fn replies_have_a_status() {
    let picture = json!([{ "type": "image_generation_call", "result": "iVBORw0=" }]);
    assert_eq!(
        summarize(whole(json!({ "status": "completed", "output": picture }))),
        "completed"
    );
    assert_eq!(
        summarize(whole(json!({ "status": "queued", "output": [] }))),
        "truncated (): the response is not complete, but `queued`"
    );
    let failed = json!({ "status": "failed", "output": [], "error": { "code": "server_error", "message": "died" } });
    assert_eq!(summarize(whole(failed)), "stream_error (): died");
    let cancelled = json!({ "status": "cancelled", "output": [] });
    assert_eq!(
        summarize(whole(cancelled)),
        "stream_error (): the server finished with `cancelled`"
    );
    assert_eq!(
        summarize(whole(json!({ "status": "completed", "output": [] }))),
        "completed"
    );
    assert_eq!(
        summarize(whole(json!({ "object": "list" }))),
        "decode (): the reply has no output"
    );
}
