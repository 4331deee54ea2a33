//! How each protocol breaks: without its end marker, with an error of its own shape, with comments where it knows any.

use super::client::{Answer, Client, simulator};
use crate::truth::{End, Record};
use llmscen_core::simulator::Faults;
use llmscen_core::units::Nanos;
use serde_json::{Value, json};
use std::io::ErrorKind;

const MESSAGE: &str = "the simulator broke this answer on purpose";

/// A protocol's stream of ten tokens: path, headers, body, and what stands only at its proper end.
struct Case {
    path: &'static str,
    headers: &'static str,
    body: &'static str,
    end: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        path: "/v1/responses",
        headers: "",
        body: r#"{"input":"x","stream":true,"max_output_tokens":10}"#,
        end: "event: response.incomplete\n",
    },
    Case {
        path: "/v1/messages",
        headers: "",
        body: r#"{"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":10}"#,
        end: "event: message_stop\n",
    },
    Case {
        path: "/api/v1/services/aigc/text-generation/generation",
        headers: "x-dashscope-sse: enable\r\n",
        body: r#"{"input":{"prompt":"x"},"parameters":{"max_tokens":10,"incremental_output":true}}"#,
        end: "\"finish_reason\":\"length\"",
    },
    Case {
        path: "/api/chat",
        headers: "",
        body: r#"{"messages":[{"role":"user","content":"x"}],"options":{"num_predict":10}}"#,
        end: "\"done\":true",
    },
    Case { path: "/api/generate", headers: "", body: r#"{"prompt":"x","options":{"num_predict":10}}"#, end: "\"done_reason\"" },
    Case {
        path: "/generate_stream",
        headers: "",
        body: r#"{"inputs":"x","parameters":{"max_new_tokens":10}}"#,
        end: "\"generated_text\":\"",
    },
];

fn under(case: &Case, faults: &Faults) -> (Answer, Record) {
    let server = simulator(faults.clone());
    let answer = Client::of(&server).post_with(case.path, case.headers, case.body);
    (answer, server.truth().get(0).unwrap())
}

/// The words in an event, wherever the protocol puts them.
fn words(event: &Value) -> usize {
    let places = ["/delta", "/delta/text", "/output/choices/0/message/content", "/message/content", "/response", "/token/text"];
    let word = |place: &&str| event.pointer(place)?.as_str().map(|text| text.matches(' ').count());
    places.iter().find_map(word).unwrap_or(0)
}

fn heard(answer: &Answer) -> u64 {
    answer.events().iter().map(|event| words(event) as u64).sum()
}

fn sent(record: &Record) -> u64 {
    record.writes.last().map_or(0, |write| write.tokens)
}

#[test]
fn without_faults_every_token_arrives_and_the_end_is_told() {
    for case in &CASES {
        let (answer, record) = under(case, &Faults::default());
        assert_eq!((answer.status, answer.broken, record.end, record.path), (200, None, Some(End::Done), case.path));
        assert_eq!((heard(&answer), sent(&record), record.writes.len()), (10, 10, 10), "{}", case.path);
        assert!(answer.body().contains(case.end), "{}", case.path);
    }
}

#[test]
fn a_truncated_stream_lacks_its_end() {
    for case in &CASES {
        let (answer, record) = under(case, &Faults { truncate: 1.0, ..Faults::default() });
        assert_eq!((answer.status, answer.broken, record.end), (200, None, Some(End::Truncated)), "{}", case.path);
        assert!((1..10).contains(&sent(&record)) && heard(&answer) == sent(&record), "{}", case.path);
        assert!(!answer.body().contains(case.end), "{}", answer.body());
    }
}

#[test]
fn an_error_in_mid_stream_has_the_protocols_shape_and_stands_last() {
    let shapes = [
        json!({ "type": "response.failed", "response": { "status": "failed", "error": { "code": "server_error", "message": MESSAGE } } }),
        json!({ "type": "error", "error": { "type": "api_error", "message": MESSAGE }, "request_id": "msg-sim-0" }),
        json!({ "code": "InternalError", "message": MESSAGE, "request_id": "req-sim-0" }),
        json!({ "error": MESSAGE }),
        json!({ "error": MESSAGE }),
        json!({ "error": MESSAGE, "error_type": "generation" }),
    ];
    for (case, shape) in CASES.iter().zip(shapes) {
        let (answer, record) = under(case, &Faults { stream_error: 1.0, ..Faults::default() });
        assert_eq!((answer.status, answer.broken, record.end), (200, None, Some(End::StreamError)), "{}", case.path);
        let events = answer.events();
        let (last, before) = (events.last().unwrap(), &events[events.len() - 2]);
        if case.path == "/v1/responses" {
            assert_eq!((&last["type"], &last["response"]["status"]), (&shape["type"], &shape["response"]["status"]));
            assert_eq!(last["response"]["error"], shape["response"]["error"]);
            let number = last["sequence_number"].as_u64().unwrap() - 1;
            let error =
                json!({ "type": "error", "sequence_number": number, "code": "server_error", "message": MESSAGE, "param": null });
            assert_eq!(before, &error);
        } else {
            assert_eq!(last, &shape);
        }
        assert!(heard(&answer) == sent(&record) && !answer.body().contains(case.end), "{}", case.path);
    }
}

#[test]
fn whole_answers_break_in_the_same_words() {
    let cases = [
        ("/v1/responses", r#"{"input":"x"}"#, "/error/message"),
        ("/v1/messages", r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":9}"#, "/error/message"),
        ("/api/v1/services/aigc/text-generation/generation", r#"{"input":{"prompt":"x"}}"#, "/message"),
        ("/api/generate", r#"{"prompt":"x","stream":false}"#, "/error"),
        ("/generate", r#"{"inputs":"x"}"#, "/error"),
    ];
    for (path, body, place) in cases {
        let server = simulator(Faults { stream_error: 1.0, ..Faults::default() });
        let answer = Client::of(&server).post(path, body);
        assert_eq!((answer.status, answer.json().pointer(place)), (200, Some(&json!(MESSAGE))), "{path}");
        let server = simulator(Faults { truncate: 1.0, ..Faults::default() });
        assert_eq!(Client::of(&server).post(path, body).broken, Some(ErrorKind::UnexpectedEof), "{path}");
    }
}

#[test]
fn an_error_status_has_the_protocols_shape() {
    let kinds = [
        ("/error/type", "rate_limit_error"),
        ("/error/type", "rate_limit_error"),
        ("/code", "Throttling"),
        ("/error", "the simulator failed this request on purpose"),
        ("/error", "the simulator failed this request on purpose"),
        ("/error_type", "overloaded"),
    ];
    for (case, (place, kind)) in CASES.iter().zip(kinds) {
        let (answer, record) = under(case, &Faults { error: 1.0, error_status: 429, ..Faults::default() });
        assert_eq!((answer.status, record.end), (429, Some(End::Status(429))));
        assert_eq!(answer.json().pointer(place), Some(&json!(kind)), "{}", case.path);
    }
}

#[test]
fn resets_stalls_and_slow_headers_are_no_matter_of_the_protocol() {
    for case in &CASES {
        let (answer, record) = under(case, &Faults { reset: 1.0, ..Faults::default() });
        assert_eq!((answer.broken, record.end), (Some(ErrorKind::ConnectionReset), Some(End::Reset)), "{}", case.path);
        assert_eq!(heard(&answer), sent(&record));
        let stall_for = Nanos::from_millis(30);
        let (answer, record) = under(case, &Faults { stall: 1.0, stall_for, ..Faults::default() });
        let silence = record.writes.windows(2).map(|pair| pair[1].at - pair[0].done).max().unwrap();
        assert!(silence >= stall_for && heard(&answer) == 10, "{}", case.path);
        let slow_headers = Nanos::from_millis(40);
        let (answer, record) = under(case, &Faults { slow_headers, ..Faults::default() });
        assert!(record.headers_at.unwrap().since(record.received_at) >= slow_headers && heard(&answer) == 10, "{}", case.path);
    }
}

#[test]
fn events_share_writes_carry_several_tokens_and_are_split_as_told() {
    for case in &CASES {
        let (answer, record) = under(case, &Faults { coalesce: 4, split: 7, ..Faults::default() });
        assert_eq!(record.writes.iter().map(|write| write.tokens).collect::<Vec<_>>(), [4, 8, 10], "{}", case.path);
        assert_eq!((heard(&answer), answer.broken), (10, None));
        let (answer, record) = under(case, &Faults { tokens_per_chunk: 3, comment_every: 2, ..Faults::default() });
        let counts: Vec<usize> = answer.events().iter().map(words).filter(|count| *count > 0).collect();
        assert_eq!((counts, record.writes.len()), (vec![3, 3, 3, 1], 4), "{}", case.path);
        let comments = answer.chunks.iter().filter(|chunk| *chunk == ": keep-alive\n\n").count();
        assert_eq!(comments, if case.path.starts_with("/api/chat") || case.path == "/api/generate" { 0 } else { 2 });
    }
}
