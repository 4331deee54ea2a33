//! Targets with several URLs.

use crate::lab::*;
use polars::prelude::{ParquetReader, SerReader};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Audit limits that a busy machine meets.
const AUDIT: &str =
    "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1%, idle: 100%, stalled: 100% }\n";

/// Simulators in processes of their own, killed when dropped.
struct Fleet {
    ports: Vec<u16>,
    running: Vec<Child>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Fleet {
    /// A simulator for each of these settings, such as `alpha=200ms`.
    fn start(lab: &Lab, settings: &[&str]) -> Fleet {
        let mut fleet = Fleet {
            ports: settings.iter().map(|_| port()).collect(),
            running: Vec::new(),
        };
        for (port, setting) in fleet.ports.iter().zip(settings) {
            let listen = format!("127.0.0.1:{port}");
            let set = format!("target.simulator.{setting}");
            let child = lab.spawn(&["simulate", "--listen", &listen, "--set", &set]);
            fleet.running.push(child);
        }
        let began = Instant::now();
        for port in &fleet.ports {
            while TcpStream::connect(("127.0.0.1", *port)).is_err() {
                assert!(began.elapsed() < Duration::from_secs(60), "not listening");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        fleet
    }

    fn urls(&self) -> String {
        urls(&self.ports)
    }

    fn name(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.ports[index])
    }
}

fn urls(ports: &[u16]) -> String {
    let urls = ports
        .iter()
        .map(|port| format!("\"http://127.0.0.1:{port}\""));
    format!("[{}]", urls.collect::<Vec<_>>().join(", "))
}

fn scenario(urls: &str, load: &str, more: &str) -> String {
    format!(
        "version: 1\nname: t\nseed: 7\ntarget: {{ url: {urls}, model: sim }}\nrequest: {{ max_tokens: 4 }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ {load} }}\n\
         {AUDIT}{more}"
    )
}

/// Waits until requests of a running case are recorded.
fn wait_for_requests(lab: &Lab) {
    let journal = lab.path().join("out/journal.bin");
    let began = Instant::now();
    while !std::fs::metadata(&journal).is_ok_and(|file| file.len() > 3000) {
        assert!(began.elapsed() < Duration::from_secs(60), "no journal");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A row of requests.parquet.
struct Row {
    seq: u64,
    turn: u32,
    endpoint: Option<String>,
    outcome: String,
}

fn rows(lab: &Lab) -> Vec<Row> {
    let file = std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap();
    let frame = ParquetReader::new(file).finish().unwrap();
    let text = |name: &str, row: usize| {
        let column = frame.column(name).unwrap().str().unwrap();
        column.get(row).map(str::to_owned)
    };
    let row = |row: usize| Row {
        seq: frame
            .column("seq")
            .unwrap()
            .u64()
            .unwrap()
            .get(row)
            .unwrap(),
        turn: frame
            .column("turn")
            .unwrap()
            .u32()
            .unwrap()
            .get(row)
            .unwrap(),
        endpoint: text("endpoint", row),
        outcome: text("outcome", row).unwrap(),
    };
    (0..frame.height())
        .filter(|row| text("phase", *row).as_deref() != Some("cooldown"))
        .map(row)
        .collect()
}

/// Number of requests, warm-up included, by endpoint and outcome.
fn counts(lab: &Lab) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for row in rows(lab) {
        let endpoint = row.endpoint.unwrap_or_else(|| "none".to_owned());
        *counts.entry((endpoint, row.outcome)).or_default() += 1;
    }
    counts
}

/// [`counts`] as a test writes them down.
fn expected(counts: &[(&str, &str, usize)]) -> BTreeMap<(String, String), usize> {
    let entry = |(endpoint, outcome, count): &(&str, &str, usize)| {
        (((*endpoint).to_owned(), (*outcome).to_owned()), *count)
    };
    counts.iter().map(entry).collect()
}

fn endpoint(results: &Value, index: usize) -> Value {
    results["cases"][0]["endpoints"][index].clone()
}

#[test]
fn two_servers_get_half_of_the_requests_and_the_slow_one_shows() {
    let lab = Lab::new();
    let fleet = Fleet::start(&lab, &["alpha=1ms", "alpha=300ms"]);
    let (fast, slow) = (fleet.name(0), fleet.name(1));
    let slo = format!(
        "slo:\n- {{ expr: \"ttft{{endpoint={fast}}}.p50 < 300ms\", confidence: point }}\n\
         - {{ expr: \"ttft{{endpoint={slow}}}.min >= 300ms\", confidence: point }}\n\
         - endpoint_imbalance <= 1\n"
    );
    let ran = lab
        .run(&scenario(
            &fleet.urls(),
            "concurrency: 4, requests: 20, warmup: 2",
            &slo,
        ))
        .expect(0);
    assert_eq!(
        counts(&lab),
        expected(&[(&fast, "ok", 11), (&slow, "ok", 11)])
    );
    let results = lab.results();
    for (index, name) in [&fast, &slow].into_iter().enumerate() {
        let endpoint = endpoint(&results, index);
        assert_eq!(endpoint["name"], **name);
        assert_eq!(
            (&endpoint["requests"], &endpoint["ok"]),
            (&10.into(), &10.into())
        );
        assert_eq!(
            (&endpoint["share"], &endpoint["error_rate"]),
            (&0.5.into(), &0.0.into())
        );
    }
    assert_eq!(results["cases"][0]["metrics"]["endpoint_imbalance"], 1.0);
    let targets = results["targets"].as_object().unwrap();
    assert_eq!(targets.len(), 2, "{targets:?}");
    for page in ["out/report.md", "out/report.html"] {
        let page = lab.text(page);
        assert!(page.contains("Endpoints") && page.contains(&slow), "{page}");
    }
    assert!(
        ran.out.contains("ENDPOINT") && ran.out.contains(&slow),
        "{}",
        ran.out
    );
    // The report is made again from requests.parquet.
    let before = lab.results();
    lab.llmscen(&["report", "out"]).expect(0);
    assert_eq!(
        lab.results()["cases"][0]["endpoints"],
        before["cases"][0]["endpoints"]
    );
}

#[test]
fn the_turns_of_a_session_stay_on_one_url() {
    let lab = Lab::new();
    let fleet = Fleet::start(&lab, &["alpha=1ms", "alpha=1ms"]);
    let talk = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]}"#;
    lab.file("talks.jsonl", format!("{talk}\n").repeat(6));
    let scenario = |balance: &str| {
        format!(
            "version: 1\nname: t\ntarget: {{ url: {}, balance: {balance}, model: sim }}\nrequest: {{ max_tokens: 4 }}\n\
             dataset: {{ kind: messages, path: talks.jsonl, turns: {{}} }}\nload: {{ concurrency: 3, sessions: 6 }}\n{AUDIT}",
            fleet.urls()
        )
    };
    let by_session = |lab: &Lab| {
        let mut urls: BTreeMap<u64, Vec<(u32, String)>> = BTreeMap::new();
        for row in rows(lab) {
            let turns = urls.entry(row.seq).or_default();
            turns.push((row.turn, row.endpoint.unwrap()));
        }
        urls
    };
    lab.run(&scenario("session")).expect(0);
    for (session, turns) in by_session(&lab) {
        let name = fleet.name(session as usize % 2);
        let expected = (0..3).map(|turn| (turn, name.clone()));
        assert_eq!(turns, expected.collect::<Vec<_>>());
    }
    lab.run(&scenario("round_robin")).expect(0);
    for (session, turns) in by_session(&lab) {
        let expected =
            (0..3).map(|turn| (turn, fleet.name((session as usize + turn as usize) % 2)));
        assert_eq!(turns, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_url_that_refuses_connections_is_named_before_the_run() {
    let lab = Lab::new();
    let fleet = Fleet::start(&lab, &["alpha=1ms"]);
    let ports = [fleet.ports[0], port()];
    let run = scenario(&urls(&ports), "concurrency: 2, requests: 4", "");
    let ran = lab.run(&run).expect(3);
    let why = format!(
        "cannot connect to http://127.0.0.1:{}/v1/chat/completions",
        ports[1]
    );
    assert!(ran.err.contains(&why), "{}", ran.err);
    let ready = run.replace(
        "model: sim",
        "model: sim, ready: { url: /health, timeout: 1s }",
    );
    let ran = lab.run(&ready).expect(3);
    let missing = format!("GET http://127.0.0.1:{}/health", ports[1]);
    let answers = format!("GET http://127.0.0.1:{}/health", ports[0]);
    assert!(
        ran.err.contains(&missing) && !ran.err.contains(&answers),
        "{}",
        ran.err
    );
}

#[test]
fn a_case_goes_on_as_long_as_one_url_responds() {
    let lab = Lab::new();
    let mut fleet = Fleet::start(&lab, &["alpha=1ms", "alpha=1ms"]);
    // Requests wait for this file, so that the second server ends after the check and before the first request.
    let hook = "hooks: { before_case: [{ run: 'touch ready; while [ ! -e gone ]; do sleep 0.02; done' }] }\n";
    lab.file(
        "s.yaml",
        scenario(
            &fleet.urls(),
            "rate: 20/s, duration: 6s, arrivals: constant",
            hook,
        ),
    );
    let run = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    let began = Instant::now();
    while !lab.path().join("ready").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "no hook");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut second = fleet.running.remove(1);
    second.kill().unwrap();
    second.wait().unwrap();
    lab.file("gone", "");
    let ran = finish(run).expect(0);
    let (alive, gone) = (fleet.name(0), fleet.name(1));
    // Longer than the time after which a target without a response is lost.
    assert_eq!(
        counts(&lab),
        expected(&[(&alive, "ok", 60), (&gone, "connect", 60)])
    );
    let line = format!("Endpoint `{gone}` answered none of its 60 requests successfully");
    let notes = lab.results()["cases"][0]["notes"].to_string();
    assert!(notes.contains(&line), "{notes}");
    assert!(lab.text("out/report.md").contains(&line));
    assert!(ran.out.contains(&gone), "{}", ran.out);
    assert_eq!(endpoint(&lab.results(), 1)["error_rate"], 1.0);
    assert_eq!(
        lab.results()["cases"][0]["metrics"]["endpoint_imbalance"],
        2.0
    );
}

#[test]
fn a_case_ends_when_no_url_responds() {
    let lab = Lab::new();
    let mut fleet = Fleet::start(&lab, &["alpha=1ms", "alpha=1ms"]);
    lab.file(
        "s.yaml",
        scenario(
            &fleet.urls(),
            "concurrency: 2, duration: 100s, graceful_stop: 1s",
            "",
        ),
    );
    let run = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    wait_for_requests(&lab);
    for child in &mut fleet.running {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let ran = finish(run).expect(3);
    assert!(ran.out.contains("Target lost after"), "{}", ran.words());
}

#[test]
fn the_same_seed_sends_the_same_requests_to_the_same_urls() {
    let lab = Lab::new();
    let fleet = Fleet::start(&lab, &["alpha=1ms", "alpha=5ms"]);
    let random = scenario(&fleet.urls(), "concurrency: 3, requests: 12", "")
        .replace("model: sim", "balance: random, model: sim");
    let urls = |lab: &Lab| {
        let rows = rows(lab).into_iter();
        rows.map(|row| (row.seq, row.endpoint)).collect::<Vec<_>>()
    };
    lab.run(&random).expect(0);
    let first = urls(&lab);
    lab.run(&random).expect(0);
    assert_eq!(urls(&lab), first);
    let sent: BTreeSet<_> = first.into_iter().map(|(_, endpoint)| endpoint).collect();
    assert_eq!(sent, (0..2).map(|index| Some(fleet.name(index))).collect());
}

#[test]
fn a_killed_run_is_recovered_with_its_endpoints() {
    let lab = Lab::new();
    let fleet = Fleet::start(&lab, &["alpha=1ms", "alpha=1ms"]);
    lab.file(
        "s.yaml",
        scenario(&fleet.urls(), "concurrency: 2, duration: 100s", ""),
    );
    let mut run = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    wait_for_requests(&lab);
    run.kill().unwrap();
    run.wait().unwrap();
    lab.llmscen(&["report", "out"]);
    let counts = counts(&lab);
    let ok = |index: usize| counts[&(fleet.name(index), "ok".to_owned())];
    assert!(ok(0) > 0 && ok(0).abs_diff(ok(1)) <= 2, "{counts:?}");
}

#[test]
fn each_of_the_first_requests_has_a_connection_to_its_url() {
    let lab = Lab::new();
    let peers = [(); 2].map(|()| Arc::new(Mutex::new(BTreeSet::new())));
    let servers = peers.clone().map(|peers| {
        Server::start(move |socket, number| {
            // After the load, the servers are asked for their versions.
            if number < 3 {
                peers.lock().unwrap().insert(socket.peer_addr().unwrap());
                // A reply before the third request would free a connection for it.
                let wait = Instant::now();
                while peers.lock().unwrap().len() < 3 && wait.elapsed().as_secs() < 20 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            send(socket, &stream(&[TOKEN, FINISH, "[DONE]"], true))
        })
    });
    let urls = servers
        .each_ref()
        .map(|server| format!("\"{}\"", server.url()));
    let urls = format!("[{}]", urls.join(", "));
    lab.run(&scenario(&urls, "concurrency: 6, requests: 6", ""))
        .expect(0);
    assert_eq!(peers.map(|peers| peers.lock().unwrap().len()), [3, 3]);
}

#[test]
fn the_plan_names_the_urls_and_their_balance() {
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        scenario(
            "[http://a:8000, http://b:8000]",
            "concurrency: 1, requests: 1",
            "",
        ),
    );
    let plan = lab
        .llmscen(&["plan", "s.yaml", "--set", "target.balance=session"])
        .expect(0);
    assert!(
        plan.out
            .contains("target: 2 URLs, session: a:8000, b:8000\n"),
        "{}",
        plan.out
    );
    let one = lab
        .llmscen(&["plan", "s.yaml", "--set", "target.url=http://c"])
        .expect(0);
    assert!(!one.out.contains("URLs"), "{}", one.out);
    let list = lab
        .llmscen(&[
            "plan",
            "s.yaml",
            "--set",
            "target.url=[http://c, http://d, http://e]",
        ])
        .expect(0);
    assert!(
        list.out
            .contains("target: 3 URLs, round_robin: c:80, d:80, e:80\n"),
        "{}",
        list.out
    );
}
