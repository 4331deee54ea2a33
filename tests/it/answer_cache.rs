//! A server that answers repeated prompts from a cache: verdicts on latency and throughput are INVALID, unless that is wanted.

use crate::lab::*;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Bodies = Arc<Mutex<BTreeSet<Vec<u8>>>>;

/// Starts a server that generates 5 tokens, 8 ms apart; `caches`: it sends the answer to a known body at once.
fn start(caches: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let known = Bodies::default();
        for connection in listener.incoming().flatten() {
            let known = known.clone();
            std::thread::spawn(move || answer(connection, caches, &known));
        }
    });
    address
}

fn answer(mut connection: TcpStream, caches: bool, known: &Bodies) {
    // Small writes would wait for acknowledgements.
    connection.set_nodelay(true).unwrap();
    while let Some(body) = read_request(&mut connection) {
        let is_cached = !known.lock().unwrap().insert(body) && caches;
        let pause = || std::thread::sleep(Duration::from_millis(if is_cached { 0 } else { 8 }));
        send(&mut connection, &stream(&[], false));
        for event in [TOKEN, TOKEN, TOKEN, TOKEN, TOKEN, FINISH] {
            pause();
            let data = format!("data: {event}\n\n");
            send(
                &mut connection,
                format!("{:x}\r\n{data}\r\n", data.len()).as_bytes(),
            );
        }
        send(&mut connection, b"0\r\n\r\n");
    }
}

/// Runs 12 prompts three times, by one user: one request alone is sent before the first reply. The verdicts on TTFT, throughput and
/// failures.
fn run(caches: bool, settings: &str, code: i32) -> (Lab, Vec<String>) {
    let lab = Lab::new();
    let rows = (0..12).map(|row| format!("{{\"prompt\": \"What is {row} + 1?\"}}\n"));
    lab.file("q.jsonl", rows.collect::<String>());
    lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ url: \"http://{}/v1/chat/completions\", model: m }}\n\
         load: {{ concurrency: 1, requests: 36 }}\n\
         slo: [\"ttft.p50 < 10s\", \"decode_tps.p50 >= 0.001\", \"error_rate < 50%\"]\n{settings}",
        start(caches)
    ))
    .expect(code);
    let verdicts = lab.results()["cases"][0]["slo"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slo| slo["verdict"].as_str().unwrap().to_owned())
        .collect();
    (lab, verdicts)
}

const LIMITS: &str = "lag_p99: 10s, stall_p99: 10s, cpu: 100%, stalled: 100%, idle: 100%";

fn settings(dataset: &str, audit: &str) -> String {
    format!("dataset: {{ kind: rows, path: q.jsonl{dataset} }}\naudit: {{ {LIMITS}{audit} }}\n")
}

#[test]
fn answers_from_a_cache_are_no_latencies_of_the_model() {
    let (lab, verdicts) = run(true, &settings("", ""), 4);
    assert_eq!(verdicts, ["invalid", "invalid", "pass"]);
    let case = lab.results()["cases"][0].clone();
    let reason = case["audit"]["reasons"][0].as_str().unwrap().to_owned();
    let compared = reason
        .strip_prefix("the server answered repeated prompts from a cache: ")
        .and_then(|rest| rest.split(" prompts took at most half of the time").next());
    // The first request is not compared.
    assert_eq!(compared, Some("11 of 11"), "{reason}");
    assert!(reason.contains("`dataset.cache_bust: true`"), "{reason}");
    assert!(case["slo"][0]["note"].as_str().unwrap().contains(&reason));
}

#[test]
fn wanted_repeats_unique_prompts_and_a_server_without_a_cache_are_measured() {
    for (caches, settings) in [
        (true, settings("", ", repeats: wanted")),
        (true, settings(", cache_bust: true", "")),
        (false, settings("", "")),
    ] {
        let (_, verdicts) = run(caches, &settings, 0);
        assert_eq!(verdicts, ["pass", "pass", "pass"], "{settings}");
    }
}
