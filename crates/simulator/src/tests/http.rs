//! Valid HTTP/1.1 requests in all forms, and invalid ones.

use super::client::{Client, simulator};
use crate::truth::End;
use llmscen_core::simulator::Faults;
use std::io::Write;
use std::time::Duration;

const CHAT: &str = r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}"#;

#[test]
fn one_connection_takes_130_requests() {
    let server = simulator(Faults::default());
    let mut client = Client::connect(&server);
    for number in 0..130 {
        let stream = if number % 2 == 0 {
            r#","max_tokens":1,"stream":true"#
        } else {
            r#","max_tokens":1"#
        };
        let answer = client.chat(stream);
        assert!(
            answer
                .head
                .contains(&format!("x-request-id: chatcmpl-sim-{number}\r\n")),
            "{}",
            answer.head
        );
        assert_eq!(answer.broken, None);
    }
    assert_eq!(server.truth().all().len(), 130);
}

#[test]
fn bodies_may_come_in_chunks_late_and_after_a_go_ahead() {
    let server = simulator(Faults::default());
    let mut client = Client::connect(&server);
    let (one, two) = CHAT.split_at(20);
    let chunked = format!(
        "{:x};ext=1\r\n{one}\r\n{:X}\r\n{two}\r\n0\r\nTrailer: x\r\n\r\n",
        one.len(),
        two.len()
    );
    let head = "POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n";
    assert_eq!(client.raw(&format!("{head}{chunked}")).status, 200);
    let waits = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        CHAT.len()
    );
    let go_ahead = client.raw(&waits);
    assert_eq!(
        (go_ahead.status, go_ahead.head.as_str()),
        (100, "HTTP/1.1 100 Continue\r\n\r\n")
    );
    assert_eq!(client.raw(CHAT).status, 200);
    for piece in format!(
        "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n{CHAT}",
        CHAT.len()
    )
    .as_bytes()
    .chunks(50)
    {
        client.stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_client_that_wants_to_part_is_let_go() {
    let server = simulator(Faults::default());
    for path in ["/health", "/nowhere", "/v1/models"] {
        let mut client = Client::connect(&server);
        let answer = client.raw(&format!("GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n"));
        assert!(answer.head.contains("connection: close\r\n"));
        assert_eq!(
            client.answer().broken,
            Some(std::io::ErrorKind::UnexpectedEof)
        );
    }
}

#[test]
fn what_is_wrong_gets_its_status() {
    let server = simulator(Faults::default());
    let huge = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(70_000));
    let cases = [
        (
            "POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
            400,
            "invalid_request_error",
            "`prompt` is missing",
        ),
        (
            "GET / HTTP/1.0\r\n\r\n",
            505,
            "server_error",
            "the simulator supports HTTP/1.1 only",
        ),
        (
            "\x16\x03\x01\r\n\r\n",
            400,
            "invalid_request_error",
            "the request is not HTTP/1.1",
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            400,
            "invalid_request_error",
            "the Content-Length is not a number",
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
            413,
            "invalid_request_error",
            "the request's body exceeds 64 MiB",
        ),
        (
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            "invalid_request_error",
            "the body's chunks are malformed",
        ),
        (
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
            413,
            "invalid_request_error",
            "the request's body exceeds 64 MiB",
        ),
        (
            huge.as_str(),
            431,
            "invalid_request_error",
            "the request's headers exceed 64 KiB",
        ),
    ];
    for (request, status, kind, message) in cases {
        let answer = Client::connect(&server).raw(request);
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, error["code"].as_u64()),
            (status, Some(u64::from(status)))
        );
        assert_eq!(
            (error["type"].as_str(), error["message"].as_str()),
            (Some(kind), Some(message))
        );
    }
}

#[test]
fn requests_for_no_endpoint_learn_which_there_are() {
    let server = simulator(Faults::default());
    let known = "; the endpoints are POST /v1/chat/completions, /v1/completions, /v1/responses, \
         /v1/messages, /v1/embeddings, /v1/rerank, /rerank, /v2/rerank, /v1/audio/transcriptions, \
         /v1/audio/translations, /v1/audio/speech, /v1/images/generations, \
         /api/v1/services/aigc/text-generation/generation, /api/chat, /api/generate, \
         /generate_stream, /generate; GET /v1/models, /health, /metrics";
    let cases = [
        ("GET /nowhere?x=/health", 404, "there is no /nowhere"),
        ("POST /v1/chat", 404, "there is no /v1/chat"),
        ("DELETE /health", 405, "/health takes GET, not DELETE"),
        (
            "GET /v1/completions",
            405,
            "/v1/completions takes POST, not GET",
        ),
    ];
    for (line, status, message) in cases {
        let answer = Client::connect(&server).raw(&format!("{line} HTTP/1.1\r\n\r\n"));
        assert_eq!(
            (
                answer.status,
                answer.json()["error"]["message"].as_str().unwrap()
            ),
            (status, &*format!("{message}{known}"))
        );
    }
    let anthropic = Client::connect(&server).raw("GET /v1/messages HTTP/1.1\r\n\r\n");
    assert_eq!(
        (anthropic.status, &anthropic.json()["type"]),
        (405, &"error".into())
    );
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let server = simulator(Faults::default());
    let mut client = Client::connect(&server);
    let body = r#"{"prompt":"x","stream":true,"max_tokens":50000}"#;
    write!(
        client.stream,
        "POST /v1/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    while server
        .truth()
        .get(0)
        .is_none_or(|record| record.writes.is_empty())
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        Client::connect(&server)
            .get("/metrics")
            .body()
            .contains("num_requests_running{model_name=\"sim\"} 1\n")
    );
    drop(client);
    while server
        .truth()
        .get(0)
        .is_none_or(|record| record.end.is_none())
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.truth().get(0).unwrap().end, Some(End::Disconnected));
    assert!(
        Client::connect(&server)
            .get("/metrics")
            .body()
            .contains("num_requests_running{model_name=\"sim\"} 0\n")
    );
}

#[test]
fn a_request_that_can_never_fit_is_refused() {
    let server = simulator(Faults::default());
    let answer = Client::connect(&server).chat(r#","max_tokens":200000"#);
    let message = answer.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(answer.status, 400);
    assert!(
        message.starts_with("the request needs 12501 KV blocks of 16 tokens and there are 8192"),
        "{message}"
    );
    assert_eq!(server.truth().get(0).unwrap().end, Some(End::Status(400)));
}
