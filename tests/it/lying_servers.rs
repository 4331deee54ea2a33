//! Servers with implausible or delayed replies: what counts as their failure, and which counts are trusted.

use crate::lab::*;
use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[test]
fn a_pause_of_the_tool_is_not_a_timeout_of_the_server() {
    let (arrived, requests) = mpsc::channel();
    let resumed = Arc::new(AtomicBool::new(false));
    let seen = resumed.clone();
    let server = Server::start(move |s, number| {
        let _ = arrived.send(());
        // Every other reply is in the kernel when the process continues; the rest arrive later.
        if number % 2 == 1 {
            while !seen.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
        } else if !seen.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(300));
        }
        std::thread::sleep(Duration::from_millis(50));
        send(s, &stream(&[TOKEN, FINISH, "[DONE]"], true))
    });
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        plain(&server.url(), 8)
            .replace("concurrency: 1", "concurrency: 4")
            .replace("read: 1s, total: 5s", "read: 1s, total: 3s"),
    );
    let child = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    (0..4).for_each(|_| requests.recv_timeout(Duration::from_secs(60)).unwrap());
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(pid, Signal::CONT).unwrap();
    resumed.store(true, Ordering::SeqCst);
    finish(child).expect(0);
    let counts = &lab.results()["cases"][0]["counts"];
    assert_eq!(
        (counts["ok"].as_u64(), &counts["failures"]),
        (Some(8), &serde_json::json!({})),
        "{counts:#}"
    );
}

#[test]
fn a_head_that_trickles_is_not_silence() {
    let server = Server::start(|s, _| {
        let reply = stream(&[TOKEN, FINISH, "[DONE]"], true);
        let (head, body) = reply.split_at(60);
        for piece in head.chunks(3) {
            std::thread::sleep(Duration::from_millis(100));
            if !send(s, piece) {
                return false;
            }
        }
        send(s, body)
    });
    let lab = Lab::new();
    // The head takes 2 s.
    lab.run(&plain(&server.url(), 1).replace("read: 1s, total: 5s", "read: 1500ms, total: 60s"))
        .expect(0);
    let counts = &lab.results()["cases"][0]["counts"];
    assert_eq!(
        (counts["ok"].as_u64(), &counts["failures"]),
        (Some(1), &serde_json::json!({})),
        "{counts:#}"
    );
}

#[test]
fn counts_that_cannot_be_true_are_not_used_and_noted_once() {
    let server = Server::start(|s, number| {
        let most = if number == 1 {
            "1000000000000000000"
        } else {
            "18446744073709551615"
        };
        let usage = format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":{most},"completion_tokens":{most},"total_tokens":{most},"prompt_tokens_details":{{"cached_tokens":{most}}}}}}}"#
        );
        send(
            s,
            &stream(
                &[TOKEN, TOKEN, TOKEN, TOKEN, TOKEN, FINISH, &usage, "[DONE]"],
                true,
            ),
        )
    });
    let lab = Lab::new();
    lab.run(&format!(
        "{}request: {{ max_tokens: 16 }}\n",
        plain(&server.url(), 4)
    ))
    .expect(0);
    let case = &lab.results()["cases"][0];
    assert_eq!(
        (case["counts"]["ok"].as_u64(), case["token_source"].as_str()),
        (Some(4), Some("events")),
        "{case:#}"
    );
    assert_eq!(case["metrics"]["output_tokens"]["mean"], 5.0, "{case:#}");
    assert!(
        case["metrics"]["prompt_tokens"].is_null() && case["metrics"]["cached_tokens"].is_null(),
        "{case:#}"
    );
    let report = lab.text("out/report.md");
    for counts in [
        "more output tokens than the request allows or the reply can contain, or fewer than its text needs",
        "more prompt tokens than the request can contain",
    ] {
        let note =
            format!("In 4 replies the server reported {counts}, up to 18446744073709551615.");
        assert_eq!(report.matches(&note).count(), 1, "{report}");
    }
}

#[test]
fn a_body_that_is_framed_in_no_supported_way_is_refused() {
    let server = Server::start(|s, number| {
        let framing = [
            "transfer-encoding: gzip",
            "transfer-encoding: chunked\r\ncontent-length: 5",
            "content-length: 5\r\ncontent-length: 6",
        ];
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{}\r\n\r\n",
            framing[number % 3]
        );
        send(s, &[head.as_bytes(), b"data: [DONE]\n\n"].concat());
        false
    });
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 3)).expect(3);
    let case = &lab.results()["cases"][0];
    assert_eq!(
        case["counts"]["failures"],
        serde_json::json!({ "decode": 3 })
    );
    let report = lab.text("out/report.md");
    assert!(
        report.contains(
            "unsupported response framing: `transfer-encoding: gzip`; only `chunked` is supported"
        ),
        "{report}"
    );
}
