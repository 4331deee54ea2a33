//! Responses with injected faults, for each API.

use super::client::{Answer, Client, simulator};
use crate::truth::{End, Record};
use llmscen_core::simulator::Faults;
use llmscen_core::units::Nanos;
use serde_json::{Value, json};
use std::io::ErrorKind;

const STREAM: &str = r#","stream":true,"max_tokens":10,"stream_options":{"include_usage":true}"#;

/// One request with a fault: the response, and the server's record.
fn under(faults: Faults, fields: &str) -> (Answer, Record) {
    let server = simulator(faults);
    let answer = Client::connect(&server).chat(fields);
    (answer, server.truth().get(0).unwrap())
}

/// Events with text.
fn texts(answer: &Answer) -> Vec<String> {
    let text = |event: &serde_json::Value| {
        event["choices"][0]["delta"]["content"]
            .as_str()
            .map(str::to_owned)
    };
    answer
        .events()
        .iter()
        .filter_map(text)
        .filter(|text| !text.is_empty())
        .collect()
}

fn sent(record: &Record) -> u64 {
    record.writes.last().map_or(0, |write| write.tokens)
}

#[test]
fn an_error_status_comes_with_an_error_body_and_the_connection_lives_on() {
    let server = simulator(Faults {
        error: 1.0,
        error_status: 429,
        ..Faults::default()
    });
    let mut client = Client::connect(&server);
    for number in 0..2 {
        let answer = client.chat(STREAM);
        assert_eq!(
            (answer.status, &answer.json()["error"]["type"]),
            (429, &"rate_limit_error".into())
        );
        assert_eq!(
            server.truth().get(number).unwrap().end,
            Some(End::Status(429))
        );
    }
}

#[test]
fn a_reset_breaks_the_connection_in_mid_stream() {
    let faults = Faults {
        reset: 1.0,
        ..Faults::default()
    };
    let (answer, record) = under(faults.clone(), STREAM);
    assert_eq!(
        (answer.status, answer.broken, record.end),
        (200, Some(ErrorKind::ConnectionReset), Some(End::Reset))
    );
    assert_eq!(texts(&answer).len() as u64, sent(&record));
    assert!((1..10).contains(&sent(&record)));
    let (whole, _) = under(faults, r#","max_tokens":10"#);
    assert_eq!(
        (whole.status, whole.broken),
        (200, Some(ErrorKind::ConnectionReset))
    );
}

#[test]
fn a_truncated_stream_is_proper_http_and_lacks_what_the_protocol_demands() {
    let server = simulator(Faults {
        truncate: 1.0,
        ..Faults::default()
    });
    let mut client = Client::connect(&server);
    let answer = client.chat(STREAM);
    assert_eq!(
        (answer.broken, server.truth().get(0).unwrap().end),
        (None, Some(End::Truncated))
    );
    assert!((1..10).contains(&texts(&answer).len()));
    assert!(!answer.body().contains("[DONE]") && !answer.body().contains("\"length\""));
    // The connection can be reused; a response without streaming is truncated in its body.
    let whole = client.chat(r#","max_tokens":10"#);
    assert_eq!(
        (whole.status, whole.broken),
        (200, Some(ErrorKind::UnexpectedEof))
    );
}

#[test]
fn an_error_in_mid_stream_is_followed_by_done() {
    let (answer, record) = under(
        Faults {
            stream_error: 1.0,
            ..Faults::default()
        },
        STREAM,
    );
    let [.., error, done] = answer.chunks.as_slice() else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (answer.status, done.as_str(), record.end),
        (200, "data: [DONE]\n\n", Some(End::StreamError))
    );
    assert_eq!(
        error,
        "data: {\"error\":{\"message\":\"the simulator broke this response on \
         purpose\",\"type\":\"server_error\",\"param\":null,\"code\":500}}\n\n"
    );
    let (whole, _) = under(
        Faults {
            stream_error: 1.0,
            ..Faults::default()
        },
        "",
    );
    assert_eq!(
        (whole.status, &whole.json()["error"]["code"]),
        (200, &500.into())
    );
}

#[test]
fn a_stall_is_a_silence_of_its_length_after_which_all_is_there() {
    let stall_for = Nanos::from_millis(60);
    let (answer, record) = under(
        Faults {
            stall: 1.0,
            stall_for,
            ..Faults::default()
        },
        STREAM,
    );
    assert_eq!(
        (texts(&answer).len(), record.end, sent(&record)),
        (10, Some(End::Done), 10)
    );
    let silence = record
        .writes
        .windows(2)
        .map(|pair| pair[1].at - pair[0].done)
        .max()
        .unwrap();
    assert!(silence >= stall_for, "{silence:?}");
}

#[test]
fn slow_headers_hold_the_head_and_what_comes_behind_it() {
    let slow_headers = Nanos::from_millis(150);
    let (answer, record) = under(
        Faults {
            slow_headers,
            ..Faults::default()
        },
        STREAM,
    );
    assert!(record.headers_at.unwrap().since(record.received_at) >= slow_headers);
    assert_eq!((texts(&answer).len(), answer.broken), (10, None));
    assert_eq!(
        record
            .writes
            .iter()
            .map(|write| write.tokens)
            .collect::<Vec<_>>(),
        [10]
    );
    let (error, record) = under(
        Faults {
            slow_headers,
            error: 1.0,
            ..Faults::default()
        },
        STREAM,
    );
    assert_eq!(error.status, 500);
    assert!(record.headers_at.unwrap().since(record.received_at) >= slow_headers);
}

#[test]
fn split_writes_have_the_same_content() {
    let (answer, record) = under(
        Faults {
            split: 3,
            ..Faults::default()
        },
        STREAM,
    );
    let (plain, _) = under(Faults::default(), STREAM);
    assert_eq!(
        (answer.chunks, answer.broken, record.end),
        (plain.chunks, None, Some(End::Done))
    );
}

#[test]
fn coalesced_events_share_a_write_and_chunked_tokens_an_event() {
    let (answer, record) = under(
        Faults {
            coalesce: 4,
            ..Faults::default()
        },
        STREAM,
    );
    assert_eq!(texts(&answer).len(), 10);
    assert_eq!(
        record
            .writes
            .iter()
            .map(|write| write.tokens)
            .collect::<Vec<_>>(),
        [4, 8, 10]
    );
    let (answer, record) = under(
        Faults {
            tokens_per_chunk: 3,
            ..Faults::default()
        },
        STREAM,
    );
    assert_eq!(
        texts(&answer)
            .iter()
            .map(|text| text.matches(' ').count())
            .collect::<Vec<_>>(),
        [3, 3, 3, 1]
    );
    assert_eq!(
        record
            .writes
            .iter()
            .map(|write| write.tokens)
            .collect::<Vec<_>>(),
        [3, 6, 9, 10]
    );
}

#[test]
fn the_role_may_come_with_the_first_text_and_usage_not_at_all() {
    let (answer, _) = under(
        Faults {
            role_chunk: false,
            no_usage: true,
            ..Faults::default()
        },
        STREAM,
    );
    let events = answer.events();
    assert_eq!(events.len(), 10);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(events[1]["choices"][0]["delta"]["role"].is_null() && !answer.body().contains("usage"));
    let (whole, _) = under(
        Faults {
            no_usage: true,
            ..Faults::default()
        },
        "",
    );
    assert!(whole.json()["usage"].is_null());
}

#[test]
fn reasoning_comes_first_and_comments_in_between() {
    let faults = Faults {
        reasoning_tokens: 4,
        tokens_per_chunk: 3,
        comment_every: 2,
        ..Faults::default()
    };
    let (answer, _) = under(faults.clone(), STREAM);
    let kinds: Vec<(usize, usize)> = answer.events()[1..5]
        .iter()
        .map(|event| {
            ["reasoning_content", "content"]
                .map(|key| event["choices"][0]["delta"][key].as_str().unwrap_or(""))
        })
        .map(|[thought, text]| (thought.matches(' ').count(), text.matches(' ').count()))
        .collect();
    assert_eq!(kinds, [(3, 0), (1, 0), (0, 3), (0, 3)]);
    assert_eq!(
        answer
            .chunks
            .iter()
            .filter(|chunk| *chunk == ": keep-alive\n\n")
            .count(),
        2
    );
    assert_eq!(
        answer.events()[5]["usage"]["completion_tokens_details"]["reasoning_tokens"],
        4
    );
    let (whole, _) = under(faults, r#","max_tokens":10"#);
    let message = &whole.json()["choices"][0]["message"];
    assert_eq!(
        ["reasoning_content", "content"].map(|key| message[key]
            .as_str()
            .unwrap()
            .matches(' ')
            .count()),
        [4, 6]
    );
}

#[test]
fn the_seed_decides_whom_a_fault_strikes() {
    let faults = Faults {
        error: 0.3,
        stream_error: 0.3,
        ..Faults::default()
    };
    let run = || {
        let server = simulator(faults.clone());
        let mut client = Client::connect(&server);
        (0..30).for_each(|_| drop(client.chat(r#","max_tokens":2,"stream":true"#)));
        server
            .truth()
            .all()
            .iter()
            .map(|record| (record.end, sent(record)))
            .collect::<Vec<_>>()
    };
    let first = run();
    assert_eq!(first, run());
    assert!(
        first.iter().any(|(end, _)| *end == Some(End::Done))
            && first.iter().any(|(end, _)| *end != Some(End::Done))
    );
}

const MESSAGE: &str = "the simulator broke this response on purpose";

/// A stream of ten tokens per API: path, headers, body, and text that appears only at its regular end.
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
    Case {
        path: "/api/generate",
        headers: "",
        body: r#"{"prompt":"x","options":{"num_predict":10}}"#,
        end: "\"done_reason\"",
    },
    Case {
        path: "/generate_stream",
        headers: "",
        body: r#"{"inputs":"x","parameters":{"max_new_tokens":10}}"#,
        end: "\"generated_text\":\"",
    },
];

fn protocol_under(case: &Case, faults: &Faults) -> (Answer, Record) {
    let server = simulator(faults.clone());
    let answer = Client::connect(&server).post_with(case.path, case.headers, case.body);
    (answer, server.truth().get(0).unwrap())
}

/// The text of an event, by API.
fn words(event: &Value) -> usize {
    let places = [
        "/delta",
        "/delta/text",
        "/output/choices/0/message/content",
        "/message/content",
        "/response",
        "/token/text",
    ];
    let word = |place: &&str| {
        event
            .pointer(place)?
            .as_str()
            .map(|text| text.matches(' ').count())
    };
    places.iter().find_map(word).unwrap_or(0)
}

fn heard(answer: &Answer) -> u64 {
    answer
        .events()
        .iter()
        .map(|event| words(event) as u64)
        .sum()
}

fn protocol_sent(record: &Record) -> u64 {
    record.writes.last().map_or(0, |write| write.tokens)
}

#[test]
fn without_faults_every_token_and_the_end_arrive() {
    for case in &CASES {
        let (answer, record) = protocol_under(case, &Faults::default());
        assert_eq!(
            (answer.status, answer.broken, record.end, record.path),
            (200, None, Some(End::Done), case.path)
        );
        assert_eq!(
            (heard(&answer), protocol_sent(&record), record.writes.len()),
            (10, 10, 10),
            "{}",
            case.path
        );
        assert!(answer.body().contains(case.end), "{}", case.path);
    }
}

#[test]
fn a_truncated_stream_lacks_its_end() {
    for case in &CASES {
        let (answer, record) = protocol_under(
            case,
            &Faults {
                truncate: 1.0,
                ..Faults::default()
            },
        );
        assert_eq!(
            (answer.status, answer.broken, record.end),
            (200, None, Some(End::Truncated)),
            "{}",
            case.path
        );
        assert!(
            (1..10).contains(&protocol_sent(&record)) && heard(&answer) == protocol_sent(&record),
            "{}",
            case.path
        );
        assert!(!answer.body().contains(case.end), "{}", answer.body());
    }
}

#[test]
fn an_error_in_mid_stream_is_last_and_in_the_format_of_the_api() {
    let shapes = [
        json!({ "type": "response.failed", "response": { "status": "failed",
            "error": { "code": "server_error", "message": MESSAGE } } }),
        json!({ "type": "error", "error": { "type": "api_error", "message": MESSAGE }, "request_id": "msg-sim-0" }),
        json!({ "code": "InternalError", "message": MESSAGE, "request_id": "req-sim-0" }),
        json!({ "error": MESSAGE }),
        json!({ "error": MESSAGE }),
        json!({ "error": MESSAGE, "error_type": "generation" }),
    ];
    for (case, shape) in CASES.iter().zip(shapes) {
        let (answer, record) = protocol_under(
            case,
            &Faults {
                stream_error: 1.0,
                ..Faults::default()
            },
        );
        assert_eq!(
            (answer.status, answer.broken, record.end),
            (200, None, Some(End::StreamError)),
            "{}",
            case.path
        );
        let events = answer.events();
        let (last, before) = (events.last().unwrap(), &events[events.len() - 2]);
        if case.path == "/v1/responses" {
            assert_eq!(
                (&last["type"], &last["response"]["status"]),
                (&shape["type"], &shape["response"]["status"])
            );
            assert_eq!(last["response"]["error"], shape["response"]["error"]);
            let number = last["sequence_number"].as_u64().unwrap() - 1;
            let error = json!({ "type": "error", "sequence_number": number, "code": "server_error",
                "message": MESSAGE, "param": null });
            assert_eq!(before, &error);
        } else {
            assert_eq!(last, &shape);
        }
        assert!(
            heard(&answer) == protocol_sent(&record) && !answer.body().contains(case.end),
            "{}",
            case.path
        );
    }
}

#[test]
fn whole_answers_break_in_the_same_words() {
    let cases = [
        ("/v1/responses", r#"{"input":"x"}"#, "/error/message"),
        (
            "/v1/messages",
            r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":9}"#,
            "/error/message",
        ),
        (
            "/api/v1/services/aigc/text-generation/generation",
            r#"{"input":{"prompt":"x"}}"#,
            "/message",
        ),
        (
            "/api/generate",
            r#"{"prompt":"x","stream":false}"#,
            "/error",
        ),
        ("/generate", r#"{"inputs":"x"}"#, "/error"),
    ];
    for (path, body, place) in cases {
        let server = simulator(Faults {
            stream_error: 1.0,
            ..Faults::default()
        });
        let answer = Client::connect(&server).post(path, body);
        assert_eq!(
            (answer.status, answer.json().pointer(place)),
            (200, Some(&json!(MESSAGE))),
            "{path}"
        );
        let server = simulator(Faults {
            truncate: 1.0,
            ..Faults::default()
        });
        assert_eq!(
            Client::connect(&server).post(path, body).broken,
            Some(ErrorKind::UnexpectedEof),
            "{path}"
        );
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
        let (answer, record) = protocol_under(
            case,
            &Faults {
                error: 1.0,
                error_status: 429,
                ..Faults::default()
            },
        );
        assert_eq!((answer.status, record.end), (429, Some(End::Status(429))));
        assert_eq!(
            answer.json().pointer(place),
            Some(&json!(kind)),
            "{}",
            case.path
        );
    }
}

#[test]
fn resets_stalls_and_slow_headers_are_no_matter_of_the_protocol() {
    for case in &CASES {
        let (answer, record) = protocol_under(
            case,
            &Faults {
                reset: 1.0,
                ..Faults::default()
            },
        );
        assert_eq!(
            (answer.broken, record.end),
            (Some(ErrorKind::ConnectionReset), Some(End::Reset)),
            "{}",
            case.path
        );
        assert_eq!(heard(&answer), protocol_sent(&record));
        let stall_for = Nanos::from_millis(30);
        let (answer, record) = protocol_under(
            case,
            &Faults {
                stall: 1.0,
                stall_for,
                ..Faults::default()
            },
        );
        let silence = record
            .writes
            .windows(2)
            .map(|pair| pair[1].at - pair[0].done)
            .max()
            .unwrap();
        assert!(
            silence >= stall_for && heard(&answer) == 10,
            "{}",
            case.path
        );
        let slow_headers = Nanos::from_millis(40);
        let (answer, record) = protocol_under(
            case,
            &Faults {
                slow_headers,
                ..Faults::default()
            },
        );
        assert!(
            record.headers_at.unwrap().since(record.received_at) >= slow_headers
                && heard(&answer) == 10,
            "{}",
            case.path
        );
    }
}

#[test]
fn coalesce_tokens_per_chunk_and_split_shape_the_writes() {
    for case in &CASES {
        let (answer, record) = protocol_under(
            case,
            &Faults {
                coalesce: 4,
                split: 7,
                ..Faults::default()
            },
        );
        assert_eq!(
            record
                .writes
                .iter()
                .map(|write| write.tokens)
                .collect::<Vec<_>>(),
            [4, 8, 10],
            "{}",
            case.path
        );
        assert_eq!((heard(&answer), answer.broken), (10, None));
        let (answer, record) = protocol_under(
            case,
            &Faults {
                tokens_per_chunk: 3,
                comment_every: 2,
                ..Faults::default()
            },
        );
        let counts: Vec<usize> = answer
            .events()
            .iter()
            .map(words)
            .filter(|count| *count > 0)
            .collect();
        assert_eq!(
            (counts, record.writes.len()),
            (vec![3, 3, 3, 1], 4),
            "{}",
            case.path
        );
        let comments = answer
            .chunks
            .iter()
            .filter(|chunk| *chunk == ": keep-alive\n\n")
            .count();
        assert_eq!(
            comments,
            if case.path.starts_with("/api/chat") || case.path == "/api/generate" {
                0
            } else {
                2
            }
        );
    }
}
