//! DashScope's bodies, exactly.

use super::*;
use crate::replay::decode;
use crate::spec::{Spec, end};
use crate::{Message, protocol};
use llmscen_core::api::Api;
use llmscen_core::outcome::Usage;

const ID: Option<&str> = Some("6bf2c2f8-7c62-9d8f-a3a1-5a2b0f6f8b10");

fn run(events: &[&str]) -> (Events, Reply) {
    let stream: String = events
        .iter()
        .map(|event| format!("data:{event}\n\n"))
        .collect();
    decode(Api::Dashscope, Framing::Sse, [stream.as_bytes()], None)
}

#[test]
fn pieces_are_read_with_reasoning_and_running_counts() {
    let (events, reply) = Spec::of("dashscope.incremental.sse").read();
    assert_eq!(
        events,
        Events {
            total: 7,
            content: 5,
            reasoning: 2,
            weights: vec![2, 2, 2, 2, 3],
            ..Events::default()
        }
    );
    assert_eq!((end(&reply).as_str(), reply.id.as_deref()), ("stop", ID));
    let message = Message {
        content: "你好\n你!😊".into(),
        reasoning: "The user greets.".into(),
        tool_calls: Value::Null,
    };
    assert_eq!(
        reply.text,
        Some(format!("{}{}", message.reasoning, message.content))
    );
    assert_eq!(reply.message, Some(message));
    assert_eq!(
        reply.usage,
        Usage {
            prompt: Some(22),
            output: Some(11),
            reasoning: Some(4),
            cached: Some(16)
        }
    );
}

#[test]
fn a_text_so_far_in_every_event_is_new_only_where_it_grew() {
    let (events, reply) = Spec::of("dashscope.repeated.sse").read();
    assert_eq!(
        events,
        Events {
            total: 6,
            content: 4,
            weights: vec![1, 1, 3, 3],
            ..Events::default()
        }
    );
    assert_eq!(end(&reply), "stop");
    assert_eq!(
        (reply.text.as_deref(), reply.usage.output),
        (Some("Spring rain, \"soft\""), Some(9))
    );
}

#[test]
fn the_text_form_and_lists_of_parts_are_read_as_well() {
    let (events, reply) = Spec::of("dashscope.text.sse").read();
    assert_eq!(
        events,
        Events {
            total: 3,
            content: 2,
            weights: vec![1, 1],
            ..Events::default()
        }
    );
    assert_eq!(
        (end(&reply).as_str(), reply.text.as_deref()),
        ("length", Some("Spring"))
    );
    let (events, reply) = Spec::of("dashscope.vision.sse").read();
    assert_eq!(
        events,
        Events {
            total: 4,
            content: 2,
            weights: vec![1, 2],
            ..Events::default()
        }
    );
    assert_eq!(
        (reply.text.as_deref(), reply.usage.prompt),
        (Some("A dog."), Some(1281))
    );
    let picture = r#"{"output":{"choices":[{"message":{"content":[{"image":"https://x/y.png"}]},"finish_reason":"stop"}]}}"#;
    let (events, reply) = decode(Api::Dashscope, Framing::Json, [picture.as_bytes()], None);
    assert_eq!(
        (events.total, end(&reply).as_str(), reply.text.as_deref()),
        (0, "stop", Some(""))
    );
}

#[test]
fn tool_calls_are_put_together() {
    let (events, reply) = Spec::of("dashscope.tools.sse").read();
    assert_eq!(
        events,
        Events {
            total: 4,
            content: 3,
            weights: vec![18, 4, 3],
            ..Events::default()
        }
    );
    assert_eq!(
        (end(&reply).as_str(), reply.text.as_deref()),
        ("tool_calls", Some("get_weather{\"city\": \"Hangzhou\"}"))
    );
    let function = json!({ "name": "get_weather", "arguments": "{\"city\": \"Hangzhou\"}" });
    let calls = json!([{ "index": 0, "id": "call_7f", "type": "function", "function": function }]);
    assert_eq!(reply.message.unwrap().tool_calls, calls);
}

#[test]
fn a_reply_is_decoded() {
    let (events, reply) = Spec::of("dashscope.whole.json").read();
    assert_eq!(
        (events, end(&reply).as_str(), reply.id.as_deref()),
        (Events::default(), "stop", ID)
    );
    assert_eq!(reply.text.as_deref(), Some("A haiku.Spring rain."));
    assert_eq!(
        reply.usage,
        Usage {
            prompt: Some(22),
            output: Some(9),
            reasoning: Some(3),
            cached: Some(0)
        }
    );
    let refused =
        r#"{"code":"InvalidApiKey","message":"Invalid API-key provided.","request_id":"r"}"#;
    let (_, reply) = decode(Api::Dashscope, Framing::Json, [refused.as_bytes()], None);
    assert_eq!(end(&reply), "stream_error (): Invalid API-key provided.");
    let (_, reply) = decode(Api::Dashscope, Framing::Json, [&b"{}"[..]], None);
    assert_eq!(end(&reply), "decode (): the reply has no `output`");
}

#[test]
fn errors_and_missing_ends_are_failures() {
    let (events, reply) = Spec::of("dashscope.error.sse").read();
    assert_eq!((events.content, reply.text.as_deref()), (1, Some("Spring")));
    assert_eq!(
        end(&reply),
        "stream_error (event 2): Requests rate limit exceeded."
    );
    let a =
        r#"{"output":{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"null"}]}}"#;
    let b =
        r#"{"output":{"choices":[{"index":1,"message":{"content":"b"},"finish_reason":"stop"}]}}"#;
    assert_eq!(
        end(&run(&[a, r#"{"code":"DataInspectionFailed","message":"no"}"#]).1),
        "stream_error (event 2): no"
    );
    assert_eq!(
        end(&run(&[a, b]).1),
        "truncated (after 2 events): the stream ended without a finish reason for choice 0"
    );
    assert_eq!(
        end(&run(&[]).1),
        "truncated (after 0 events): the stream ended before its first choice"
    );
    assert_eq!(
        end(&run(&[r#"{"output":{"finish_reason":"stop","text":""}}"#]).1),
        "stop"
    );
    let both = r#"{"output":{"choices":[{"message":{"content":"x"},"finish_reason":"stop"},{"message":{"content":"y"},"finish_reason":"stop"}]}}"#;
    let (events, reply) = run(&[both]);
    assert_eq!(
        (events.content, events.choices, reply.text.as_deref()),
        (2, vec![0, 1], Some("xy"))
    );
}

#[test]
fn a_stream_is_asked_for_by_a_header() {
    let protocol = protocol(Api::Dashscope, None).unwrap();
    let bearer = ("authorization", "Bearer k".to_owned());
    assert_eq!(
        protocol.headers(Some("k"), true),
        [bearer.clone(), ("x-dashscope-sse", "enable".into())]
    );
    assert_eq!(protocol.headers(Some("k"), false), [bearer]);
    let body = r#"{"model":"{{ model }}","input":{"messages":"{{ messages }}"},"parameters":{"result_format":"message","incremental_output":true}}"#;
    assert_eq!(protocol.body(true).to_string(), body);
    assert_eq!(
        protocol.body(false)["parameters"],
        json!({ "result_format": "message" })
    );
}

#[test]
fn a_call_too_many_is_refused() {
    let call = |index: u32| format!(r#"{{"index":{index},"function":{{"name":"f"}}}}"#);
    let calls: Vec<String> = (0..1025).map(call).collect();
    let event = format!(
        r#"{{"output":{{"choices":[{{"message":{{"tool_calls":[{}]}}}}]}}}}"#,
        calls.join(",")
    );
    let (events, reply) = run(&[&event]);
    assert_eq!(
        end(&reply),
        "decode (event 1): more than 1024 tool calls in one response"
    );
    assert_eq!(events.content, 1, "what was good is kept");
}

#[test]
fn calls_without_an_index_are_distinguished_by_their_ids() {
    let call = |id: &str, arguments: &str| {
        json!({ "id": id, "function": { "name": format!("f{id}"),
        "arguments": arguments } })
    };
    let event = |calls: Value, reason: &str| {
        let message = json!({ "content": "", "tool_calls": calls });
        let choice = json!({ "message": message, "finish_reason": reason });
        json!({ "output": { "choices": [choice] } }).to_string()
    };
    let first = event(json!([call("a", "{}")]), "null");
    let both = event(json!([call("a", "{}"), call("b", "[1]")]), "tool_calls");
    let (_, reply) = run(&[&first, &both]);
    let calls = reply.message.unwrap().tool_calls;
    let names: Vec<&str> = calls
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["fa", "fb"]);
}
