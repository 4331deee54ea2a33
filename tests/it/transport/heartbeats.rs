//! The limit on silence between events: heartbeats do not keep a dead reply alive.

use super::*;
use crate::lab::{FINISH, Server, TOKEN, send as write, stream};
use std::time::Duration;

const ROLE: &str = r#"{"id":"r","choices":[{"index":0,"delta":{"role":"assistant"}}]}"#;

/// A server that sends these events, then a piece of a body every 20 ms: `count` times, and then the other events.
fn beating(
    before: &'static [&'static str],
    piece: impl Fn(usize) -> String + Send + Sync + 'static,
    count: usize,
    after: &'static [&'static str],
) -> Server {
    Server::start(move |s, _| {
        let mut is_open = write(s, &stream(before, false));
        for number in 0..count {
            let piece = piece(number);
            is_open = is_open && write(s, format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes());
            std::thread::sleep(Duration::from_millis(20));
        }
        let rest = stream(after, true);
        let body = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        is_open && write(s, &rest[body.unwrap() + 4..])
    })
}

fn limited(server: &Server, event_ms: u64) -> Target {
    let mut target = target(&server.url());
    target.timeouts.event = Some(Nanos::from_millis(event_ms));
    target
}

#[test]
fn heartbeats_do_not_keep_a_dead_reply_alive() {
    for piece in [
        ": keepalive\n\n",
        "data:\n\n",
        "event: ping\ndata: {}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}\n\n",
        "data: {\"choices\":[],\"usage\":null}\n\n",
    ] {
        let server = beating(&[ROLE, TOKEN, TOKEN], |_| piece.to_owned(), 450, &[]);
        let outcome = send_one(&limited(&server, 300));
        let failure = outcome.end.as_ref().unwrap_err();
        assert_eq!(
            (failure.kind, failure.message.as_str()),
            (
                FailureKind::TimeoutRead,
                "no event for 300ms (only heartbeats)"
            ),
            "{piece}"
        );
        assert_eq!(outcome.timeline.tokens.len(), 2, "{piece}");
    }
}

#[test]
fn a_silent_stream_has_no_heartbeats() {
    let server = Server::start(|s, _| {
        write(s, &stream(&[TOKEN], false));
        std::thread::sleep(Duration::from_secs(9));
        false
    });
    let outcome = send_one(&limited(&server, 300));
    let failure = outcome.end.unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str(), failure.at.as_str()),
        (
            FailureKind::TimeoutRead,
            "no event for 300ms",
            "after 1 events"
        )
    );
}

#[test]
fn a_queued_request_may_wait_for_its_first_content() {
    let ping = |_| ": ping\n\n".to_owned();
    let server = beating(&[ROLE], ping, 40, &[TOKEN, FINISH, "[DONE]"]);
    assert_ok(&send_one(&limited(&server, 100)), 1);
}

#[test]
fn a_higher_token_count_is_an_event_without_content() {
    let counted = |number| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}}}}],\"usage\":{{\"completion_tokens\":{}}}}}\n\n",
            number + 2
        )
    };
    let server = beating(&[TOKEN], counted, 100, &[TOKEN, FINISH, "[DONE]"]);
    assert_ok(&send_one(&limited(&server, 1000)), 2);
}
