//! Compressed bodies over real sockets, and the headers that ask for them.

use super::server::Act;
use super::*;
use crate::lab::{self, FINISH, Lab, TOKEN, plain};
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use llmscen_core::redact::Secret;
use llmscen_core::target::{Compression, HttpVersion};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

/// The compressed bytes of each event, flushed after it; the last part ends the coding.
fn packed(coding: &str, events: &[&str]) -> Vec<Vec<u8>> {
    let lines = events.iter().map(|event| format!("data: {event}\n\n"));
    let mut parts = Vec::new();
    let mut cut = |bytes: &mut Vec<u8>| parts.push(std::mem::take(bytes));
    match coding {
        "gzip" => {
            let mut packer = GzEncoder::new(Vec::new(), Level::default());
            lines.for_each(|line| {
                packer.write_all(line.as_bytes()).unwrap();
                packer.flush().unwrap();
                cut(packer.get_mut());
            });
            cut(&mut packer.finish().unwrap());
        }
        _ => {
            let mut packer = zstd::stream::write::Encoder::new(Vec::new(), 0).unwrap();
            lines.for_each(|line| {
                packer.write_all(line.as_bytes()).unwrap();
                packer.flush().unwrap();
                cut(packer.get_mut());
            });
            cut(&mut packer.finish().unwrap());
        }
    }
    parts
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn head(coding: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: {coding}\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes()
}

fn pause() {
    std::thread::sleep(Duration::from_millis(PAUSE_MS));
}

const EVENTS: [&str; 6] = [TOKEN, TOKEN, TOKEN, TOKEN, FINISH, "[DONE]"];

#[test]
fn compressed_events_are_stamped_one_by_one_wherever_they_are_cut() {
    for coding in ["gzip", "zstd"] {
        let parts = packed(coding, &EVENTS);
        let bytes: usize = parts.iter().map(Vec::len).sum();
        let server = lab::Server::start(move |stream, number| {
            lab::send(stream, &head(coding));
            for part in &parts {
                // In chunks of three bytes, or in one.
                let chunks: Vec<u8> = match number {
                    0 => part.chunks(3).flat_map(chunk).collect(),
                    _ => chunk(part),
                };
                lab::send(stream, &chunks);
                pause();
            }
            lab::send(stream, b"0\r\n\r\n")
        });
        let outcomes = on_worker(&target(&server.url()), async |engine| {
            [send(&engine, call(0)).await, send(&engine, call(1)).await]
        });
        for CompletedCall {
            outcome,
            text,
            captured: copy,
            ..
        } in outcomes
        {
            let came = String::from_utf8(copy.unwrap().response.bytes).unwrap();
            assert!(
                came.starts_with("data: {") && came.trim_end().ends_with("data: [DONE]"),
                "the body is kept as it was packed: {came}"
            );
            assert_ok(&outcome, 4);
            assert_paced(&outcome);
            assert_eq!(text.as_deref(), Some("hihihihi"));
            // All of it but the end of the coding, and in small chunks of the last flush: both come after the end marker.
            let arrived = bytes - packed(coding, &EVENTS).last().unwrap().len();
            let least = if outcome.seq == 0 {
                arrived - 8
            } else {
                arrived
            };
            assert!(
                (least..=arrived).contains(&(outcome.bytes_in as usize)),
                "{coding}: {} of {arrived}",
                outcome.bytes_in
            );
        }
    }
}

#[test]
fn http_2_and_compression_go_together() {
    let parts = packed("zstd", &EVENTS);
    let server = super::server::Server::start(100, None, move |_| {
        let mut acts = vec![Act::Head("zstd")];
        parts
            .iter()
            .for_each(|part| acts.extend([Act::Data(part.clone()), Act::Wait(PAUSE_MS)]));
        acts.push(Act::End);
        acts
    });
    let target = Target {
        version: HttpVersion::Http2,
        ..target(&server.url())
    };
    let outcomes = on_worker(&target, async |engine| send_all(&engine, 4).await);
    for outcome in &outcomes {
        assert_ok(outcome, 4);
        assert_paced(outcome);
    }
}

/// One call to a server that sends these chunks under this coding, in full or cut off.
fn answered(coding: &'static str, chunks: Vec<Vec<u8>>, end: bool) -> Outcome {
    let server = lab::Server::start(move |stream, _| {
        let body: Vec<u8> = chunks.iter().flat_map(|bytes| chunk(bytes)).collect();
        lab::send(
            stream,
            &[
                &head(coding)[..],
                &body,
                if end { b"0\r\n\r\n" } else { b"" },
            ]
            .concat(),
        ) && end
    });
    send_one(&target(&server.url()))
}

#[test]
fn a_broken_body_keeps_what_was_good() {
    for coding in ["gzip", "zstd"] {
        let parts = packed(coding, &EVENTS);
        let mut spoilt = parts[..3].to_vec();
        spoilt.push(vec![0xff; 40]);
        let outcome = answered(coding, spoilt, true);
        assert_failed(
            &outcome,
            FailureKind::Decode,
            &format!("the {coding} data cannot be read"),
        );
        assert_eq!(
            (outcome.timeline.tokens.len(), outcome.end.unwrap_err().at),
            (3, "after 3 events".to_owned())
        );
        let outcome = answered(coding, parts[..2].to_vec(), true);
        assert_failed(
            &outcome,
            FailureKind::Truncated,
            &format!("in the middle of its {coding} data"),
        );
        assert_eq!(outcome.timeline.tokens.len(), 2);
        let outcome = answered(coding, parts[..2].to_vec(), false);
        assert_failed(&outcome, FailureKind::Truncated, "the connection broke");
        assert_eq!(outcome.timeline.tokens.len(), 2);
    }
}

#[test]
fn an_unknown_coding_is_named() {
    assert_failed(
        &answered("br", vec![b"?".to_vec()], true),
        FailureKind::Decode,
        "compressed with `br`",
    );
}

#[test]
fn words_of_refusal_are_unpacked() {
    let mut packer = GzEncoder::new(Vec::new(), Level::default());
    packer
        .write_all(br#"{"error":{"message":"the very reason"}}"#)
        .unwrap();
    let body = packer.finish().unwrap();
    let server = lab::Server::start(move |stream, number| {
        let coding = if number == 0 { "gzip" } else { "br" };
        let head = format!(
            "HTTP/1.1 503 No\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        lab::send(stream, &[head.as_bytes(), &body].concat())
    });
    let outcomes = on_worker(&target(&server.url()), async |engine| {
        [
            send(&engine, call(0)).await.outcome,
            send(&engine, call(1)).await.outcome,
        ]
    });
    assert_failed(&outcomes[0], FailureKind::Http5xx, "503: the very reason");
    assert_failed(
        &outcomes[1],
        FailureKind::Http5xx,
        "503: the response is compressed with `br`",
    );
}

#[test]
fn a_bomb_does_not_fill_the_memory() {
    let (small, bomb) = (peak_of_response(0), peak_of_response(100));
    assert!(bomb < small + (40 << 20), "{small} and {bomb} bytes");
}

/// The memory of a run with one compressed response that has this number of megabytes and no end.
fn peak_of_response(megabytes: usize) -> u64 {
    let mut packer = GzEncoder::new(Vec::new(), Level::best());
    packer
        .write_all(b"data: {\"choices\":[{\"delta\":{\"content\":\"")
        .unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    (0..megabytes).for_each(|_| packer.write_all(&megabyte).unwrap());
    let packed = packer.finish().unwrap();
    let server = lab::Server::start(move |stream, _| {
        let body: Vec<u8> = packed.chunks(16 << 10).flat_map(chunk).collect();
        lab::send(stream, &[&head("gzip")[..], &body, b"0\r\n\r\n"].concat())
    });
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 1).replace("read: 1s, total: 5s", "read: 20s, total: 40s"))
        .expect(3);
    if megabytes > 0 {
        assert_eq!(lab.results()["cases"][0]["counts"]["failures"]["decode"], 1);
    }
    let manifest = lab.json("out/manifest.json");
    let peak = &manifest["parts"][0]["vitals"]["memory_peak"];
    peak.as_u64().unwrap()
}

/// The head of one request, in lower case; its body is two bytes.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
        head.push(byte[0]);
    }
    stream.read_exact(&mut [0; 2]).unwrap();
    String::from_utf8(head).unwrap().to_lowercase()
}

#[test]
fn requests_send_accept_encoding_and_their_headers_win() {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let kept = heads.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            kept.lock().unwrap().push(read_head(&mut stream));
            lab::send(&mut stream, &lab::stream(&[TOKEN, FINISH, "[DONE]"], true));
        }
    });
    for compression in [
        Compression::None,
        Compression::Gzip,
        Compression::Zstd,
        Compression::Any,
    ] {
        let headers = vec![("X-Tenant".to_owned(), Secret::new("all"))];
        let target = Target {
            compression,
            pool: Pool::PerRequest,
            headers,
            ..target(&url)
        };
        let own = vec![
            ("x-tenant".to_owned(), "mine".to_owned()),
            ("Content-Length".to_owned(), "999".to_owned()),
        ];
        let outcome = on_worker(&target, async |engine| {
            send(
                &engine,
                PreparedRequest {
                    streamed: compression == Compression::None,
                    headers: own,
                    ..call(0)
                },
            )
            .await
            .outcome
        });
        assert_ok(&outcome, 1);
    }
    let heads = heads.lock().unwrap();
    for (head, coding) in heads.iter().zip(["identity", "gzip", "zstd", "zstd, gzip"]) {
        assert!(
            head.contains(&format!("\r\naccept-encoding: {coding}\r\n")),
            "{head}"
        );
        assert!(
            head.contains("\r\nx-tenant: mine\r\n") && head.contains("\r\ncontent-length: 2\r\n"),
            "{head}"
        );
    }
    assert!(
        heads[0]
            .contains("\r\naccept: text/event-stream, application/x-ndjson, application/json\r\n"),
        "{}",
        heads[0]
    );
    assert!(
        heads[1].contains("\r\naccept: application/json\r\n"),
        "{}",
        heads[1]
    );
}

#[test]
fn a_header_that_cannot_be_sent_ends_its_call_alone() {
    let server = lab::Server::start(|stream, _| {
        lab::send(stream, &lab::stream(&[TOKEN, FINISH, "[DONE]"], true))
    });
    let bad = PreparedRequest {
        headers: vec![("x-note".into(), "secret\nnote".into())],
        ..call(0)
    };
    let outcomes = on_worker(&target(&server.url()), async |engine| {
        [
            send(&engine, bad).await.outcome,
            send(&engine, call(1)).await.outcome,
        ]
    });
    assert_failed(
        &outcomes[0],
        FailureKind::Cancelled,
        "the header `x-note` cannot be sent",
    );
    assert!(
        !outcomes[0]
            .end
            .as_ref()
            .unwrap_err()
            .message
            .contains("secret")
    );
    assert_eq!(
        (outcomes[0].timeline.sent, outcomes[0].bytes_out),
        (None, 0)
    );
    assert_ok(&outcomes[1], 1);
    assert_eq!(server.requests.load(std::sync::atomic::Ordering::SeqCst), 1);
}
