//! Ctrl-C, SIGTERM, kill -9: what was measured is saved and reported as what it is.

use crate::lab::*;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};

/// A long closed loop on the embedded simulator: 4 users, about 4 × 20 requests a second.
const LONG: &str = "version: 1\nname: long\n\
    target: { api: simulator, simulator: { alpha: 5ms } }\n\
    request: { max_tokens: 8 }\ndataset: { kind: prompt, text: hello }\n\
    load: { concurrency: 4, duration: 60s, graceful_stop: 5s }\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100% }\n";

/// As `LONG`, but no request ever ends by itself.
const HANGING: &str = "version: 1\nname: hanging\n\
    target: { api: simulator, simulator: { alpha: 5ms, faults: { stall: 100%, stall_for: 100s } } }\n\
    request: { max_tokens: 8 }\ndataset: { kind: prompt, text: hello }\n\
    load: { concurrency: 4, duration: 60s, graceful_stop: 40s }\n";

fn start(lab: &Lab, scenario: &str) -> Child {
    lab.file("s.yaml", scenario);
    let child = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    let journal = lab.path().join("out/journal.bin");
    let began = Instant::now();
    while !std::fs::metadata(&journal).is_ok_and(|file| file.len() > 12) {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "no journal after 30 s"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the child is there");
}

#[test]
fn the_first_signal_drains_saves_and_reports() {
    for which in [Signal::INT, Signal::TERM] {
        let lab = Lab::new();
        let child = start(&lab, LONG);
        std::thread::sleep(Duration::from_millis(700));
        signal(&child, which);
        let ran = finish(child).expect(130);
        let results = lab.results();
        assert_eq!(results["interrupted"], true);
        assert_eq!(results["exit_code"], 130);
        let counts = &results["cases"][0]["counts"];
        assert!(counts["ok"].as_u64().unwrap() > 4, "{counts}");
        assert_eq!(
            counts["ok"], counts["scheduled"],
            "in-flight requests were drained: {counts}"
        );
        assert!(
            lab.text("out/report.md").contains("nterrupted"),
            "{}",
            ran.out
        );
        assert!(!lab.path().join("out/journal.bin").exists());
    }
}

#[test]
fn the_second_signal_stops_at_once() {
    let lab = Lab::new();
    let child = start(&lab, HANGING);
    // The journal is there before the first request is: all four must be on their way.
    std::thread::sleep(Duration::from_millis(700));
    signal(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::INT);
    let began = Instant::now();
    finish(child).expect(130);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(
        lab.results()["cases"][0]["counts"]["failures"]["cancelled"],
        4
    );
}

#[test]
fn after_kill_9_the_journal_renders() {
    let lab = Lab::new();
    let child = start(&lab, LONG);
    std::thread::sleep(Duration::from_millis(1500));
    signal(&child, Signal::KILL);
    let died = finish(child);
    assert_eq!(died.code, -1);
    assert!(lab.path().join("out/journal.bin").exists());
    assert!(!lab.path().join("out/results.json").exists());
    lab.llmscen(&["report", "out"]).expect(130);
    let results = lab.results();
    assert_eq!(results["interrupted"], true);
    // Four users at 5 ms a step and 9 steps a request: about 80 a second, of which the last second may be missing.
    assert!(
        results["cases"][0]["counts"]["ok"].as_u64().unwrap() >= 20,
        "{results:#}"
    );
    assert!(lab.path().join("out/requests.parquet").exists());
    lab.llmscen(&["report", "out"]).expect(130);
    assert_eq!(
        lab.results(),
        results,
        "rendering again from the tables says the same"
    );
}

#[test]
fn a_signal_ends_the_search_for_the_target() {
    let lab = Lab::new();
    // Connections are made, but no one ever shakes hands on them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "https://{}/v1/chat/completions",
        silent.local_addr().unwrap()
    );
    lab.file(
        "s.yaml",
        plain(&url, 1).replace("connect: 2s", "connect: 60s"),
    );
    let mut child = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    // It listens for signals before its first output.
    child.stderr.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let began = Instant::now();
    signal(&child, Signal::INT);
    let ran = finish(child).expect(130);
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(
        ran.err.contains("interrupted before the first request"),
        "{}",
        ran.err
    );
}

#[test]
fn the_simulator_serves_where_it_says_until_a_signal_ends_it() {
    let lab = Lab::new();
    let mut child = lab.spawn(&[
        "simulate",
        "--quiet",
        "--listen",
        "127.0.0.1:0",
        "--truth",
        "truth.jsonl",
    ]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("http://").unwrap().to_owned();
    let mut socket = TcpStream::connect(&address).unwrap();
    let body = r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":2}"#;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"completion_tokens\":2"),
        "{answer}"
    );
    signal(&child, Signal::TERM);
    finish(child).expect(0);
    let truth: serde_json::Value =
        serde_json::from_str(lab.text("truth.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!(
        (&truth["number"], &truth["end"]),
        (&0.into(), &"done".into())
    );
}

#[test]
fn a_signal_ends_the_reading_of_a_log() {
    let lab = Lab::new();
    let row = "{\"session_id\": \"s\", \"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [1]}\n";
    lab.file("log.jsonl", row.repeat(400_000));
    lab.file(
        "s.yaml",
        "version: 1\nname: s\ntarget: { url: simulator }\nload: { concurrency: 1, duration: 60s }\n\
         dataset: { kind: trace, path: log.jsonl, tokenizer: builtin, turns: {} }\n",
    );
    let child = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    std::thread::sleep(Duration::from_secs(3));
    signal(&child, Signal::TERM);
    let ran = finish(child).expect(130);
    assert!(ran.err.contains("before the first request"), "{}", ran.err);
    assert!(!lab.path().join("out").exists());
}
