//! Calls that are cut short: what had come is kept, and what was complete stays so.

use super::*;
use crate::lab::{FINISH, Server, TOKEN, send as write, stream};
use llmscen_client::counters::CounterTotals;
use llmscen_core::outcome::Usage;
use std::task::Poll;

const OTHER: &str =
    r#"{"id":"r","choices":[{"index":1,"delta":{"content":"ho"},"finish_reason":null}]}"#;
const USAGE: &str = r#"{"id":"r","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}"#;
const SO_FAR: [&str; 4] = [TOKEN, OTHER, OTHER, USAGE];

/// A server that sends these events and then keeps the body open.
fn held(events: &'static [&'static str]) -> Server {
    Server::start(move |s, _| {
        write(s, &stream(events, false));
        std::thread::sleep(std::time::Duration::from_secs(20));
        false
    })
}

/// A call that is cancelled when this many bytes of its body were read and it waits for more.
fn cancelled_after(target: &Target, bytes: u64) -> CompletedCall {
    let gauges = Arc::new(LiveCounters::default());
    on_worker_with(target, gauges.clone(), async |engine| {
        let taken = std::future::poll_fn(|_| {
            match gauges.add_to(CounterTotals::default()).bytes_in >= bytes {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        engine.call(call(0), Nanos(0), Phase::Measured, taken).await
    })
}

/// Bytes of the body that these events come to.
fn length(events: &[&str]) -> u64 {
    events
        .iter()
        .map(|event| "data: \n\n".len() + event.len())
        .sum::<usize>() as u64
}

#[track_caller]
fn assert_kept(finished: &CompletedCall) {
    let outcome = &finished.outcome;
    assert_eq!(outcome.timeline.tokens.len(), 3);
    assert_eq!(outcome.timeline.choices, [0, 1, 1]);
    assert_eq!(
        outcome.usage,
        Usage {
            prompt: Some(7),
            output: Some(3),
            ..Usage::default()
        }
    );
    assert_eq!(outcome.response_id.as_deref(), Some("r"));
    assert_eq!(finished.text.as_deref(), Some("hihoho"));
    assert_eq!(outcome.status, Some(200));
    assert_eq!(outcome.bytes_in, length(&SO_FAR));
    assert_eq!(outcome.end.as_ref().unwrap_err().at, "after 4 events");
}

#[test]
fn a_stream_cut_by_the_total_timeout_keeps_what_had_come() {
    let server = held(&SO_FAR);
    let mut target = target(&server.url());
    target.timeouts.total = Nanos(1_000_000_000);
    let finished = on_worker(&target, async |engine| send(&engine, call(0)).await);
    assert_failed(
        &finished.outcome,
        FailureKind::TimeoutTotal,
        "not done within 1s",
    );
    assert_kept(&finished);
}

#[test]
fn a_stream_that_is_cancelled_keeps_what_had_come() {
    let server = held(&SO_FAR);
    let finished = cancelled_after(&target(&server.url()), length(&SO_FAR));
    assert_failed(
        &finished.outcome,
        FailureKind::Cancelled,
        "cancelled: the run ended",
    );
    assert_kept(&finished);
}

const COMPLETE: [&str; 3] = [TOKEN, FINISH, "[DONE]"];

#[test]
fn an_answer_with_its_end_marker_is_not_cancelled() {
    let server = held(&COMPLETE);
    let finished = cancelled_after(&target(&server.url()), length(&COMPLETE));
    assert_ok(&finished.outcome, 1);
    assert_eq!(finished.outcome.response_id.as_deref(), Some("r"));
}

#[test]
fn an_answer_with_its_end_marker_meets_no_deadline() {
    let server = held(&COMPLETE);
    // Some of these end between the end marker and the end of the wait for the connection.
    for total in [1, 2, 3, 4, 5, 10_000].into_iter().flat_map(|ms| [ms; 5]) {
        let mut target = target(&server.url());
        target.timeouts.total = Nanos(total * 1_000_000);
        let outcome = send_one(&target);
        match outcome.bytes_in == length(&COMPLETE) {
            true => assert_ok(&outcome, 1),
            false => {
                assert_failed(&outcome, FailureKind::TimeoutTotal, "not done within");
                assert!(total < 10_000);
            }
        }
    }
}

#[test]
fn a_call_without_headers_of_an_answer_is_cut_too() {
    let server = held(&[]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut target = target(&format!(
        "http://{}/v1/chat/completions",
        silent.local_addr().unwrap()
    ));
    target.timeouts.total = Nanos(50_000_000);
    let outcome = send_one(&target);
    assert_failed(&outcome, FailureKind::TimeoutTotal, "not done within 50ms");
    assert_eq!(outcome.end.unwrap_err().at, "before the headers");
    target.location = TargetLocation::url(server.url());
    target.timeouts.total = Nanos(1_000_000_000);
    let outcome = send_one(&target);
    assert_failed(&outcome, FailureKind::TimeoutTotal, "not done within 1s");
    assert_eq!(
        (outcome.status, outcome.timeline.tokens.len()),
        (Some(200), 0)
    );
}
