//! The truth log, compared with the engine's times and with the client.

use super::client::{Client, fast};
use crate::truth::{End, Record};
use crate::{Truth, start};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::units::Nanos;
use std::io::Write;
use std::time::{Duration, Instant};

fn served(config: &Simulator, clients: usize, tokens: usize) -> (Vec<Record>, Vec<(Nanos, Nanos)>) {
    let origin = Instant::now();
    let server = start(
        config,
        Seed(7),
        "127.0.0.1:0".parse().unwrap(),
        Truth::since(origin),
    )
    .unwrap();
    let fields = format!(r#","stream":true,"max_tokens":{tokens}"#);
    let generation = || {
        let mut client = Client::connect(&server);
        let sent = Nanos::from(origin.elapsed());
        assert_eq!(client.chat(&fields).events().len(), tokens + 1);
        (sent, Nanos::from(origin.elapsed()))
    };
    let seen = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(generation)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    (server.truth().all(), seen)
}

#[test]
fn stamps_are_in_order_and_lie_within_what_the_client_saw() {
    let (records, seen) = served(&fast(), 1, 40);
    let record = &records[0];
    assert_eq!(
        (record.end, record.writes.len(), record.blocked, record.path),
        (Some(End::Done), 40, 0, "/v1/chat/completions")
    );
    let mut stamps = vec![seen[0].0, record.received_at, record.headers_at.unwrap()];
    stamps.extend(
        record
            .writes
            .iter()
            .flat_map(|write| [write.at, write.done]),
    );
    assert!(stamps.is_sorted(), "{stamps:?}");
    assert_eq!(record.end_at, record.writes.last().map(|write| write.at));
    assert!(record.end_at.unwrap() <= seen[0].1);
    assert!(record.writes.iter().map(|write| write.tokens).eq(1..=40));
}

#[test]
fn no_write_is_early_and_lateness_does_not_add_up() {
    let step = Nanos::from_millis(4);
    let (records, _) = served(
        &Simulator {
            alpha: step,
            ..fast()
        },
        1,
        50,
    );
    let late = |(index, at): (u64, Nanos)| {
        at.0 as i64 - (records[0].received_at.0 + index * step.0) as i64
    };
    let lateness: Vec<i64> = (1..)
        .zip(records[0].writes.iter().map(|write| write.at))
        .map(late)
        .collect();
    assert!(lateness.iter().all(|&late| late >= 0), "{lateness:?}");
    // If each step started at the actual end of the previous one, delays would accumulate.
    assert!(!lateness.is_sorted(), "{lateness:?}");
}

#[test]
fn a_slow_reader_loses_nothing_and_is_logged() {
    // Every event contains the model, so that a long name fills any socket.
    let (tokens, model) = (20_000, "m".repeat(2_000));
    let server = start(
        &Simulator {
            alpha: Nanos::ZERO,
            ..fast()
        },
        Seed(7),
        "127.0.0.1:0".parse().unwrap(),
        Truth::since(Instant::now()),
    )
    .unwrap();
    let body = format!(r#"{{"model":"{model}","prompt":"x","stream":true,"max_tokens":{tokens}}}"#);
    let mut client = Client::connect(&server);
    write!(
        client.stream,
        "POST /v1/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    while server
        .truth()
        .get(0)
        .is_none_or(|record| record.end.is_none())
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    let answer = client.answer();
    let texts = answer
        .chunks
        .iter()
        .filter(|chunk| chunk.contains(r#""text":" "#))
        .count();
    assert_eq!(
        (
            texts,
            answer.broken,
            answer.chunks.last().map(String::as_str)
        ),
        (tokens, None, Some("data: [DONE]\n\n"))
    );
    let record = server.truth().get(0).unwrap();
    assert!(record.blocked > 0 && record.end == Some(End::Done));
}

#[test]
fn many_streams_get_every_token_and_their_writes_are_logged() {
    let (records, seen) = served(
        &Simulator {
            alpha: Nanos::from_millis(10),
            ..fast()
        },
        64,
        30,
    );
    assert_eq!(records.len(), 64);
    let last = seen.iter().map(|(_, end)| *end).max().unwrap();
    for record in records {
        assert_eq!(
            (record.end, record.writes.last().unwrap().tokens),
            (Some(End::Done), 30)
        );
        assert!(record.end_at.unwrap() <= last);
    }
}
