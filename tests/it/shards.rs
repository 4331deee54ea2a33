//! Runs of several shards on one machine, through a folder: the union is the plan of one process, and a lost, late or wrong shard
//! is never a lighter load.

use crate::lab::*;
use crate::launch::{is_missing, succeeds};
use crate::moto::Moto;
use crate::numbers;
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A machine busy with other tests is no reason to call a run invalid.
pub const CALM: &str = "audit: { lag_p99: 1h, stall_p99: 1h, cpu: 1, achieved: 0 }\n";
/// Prompts that differ, of a file that comes with the program.
pub const DATA: &str =
    "dataset: { kind: openqa, path: builtin }\nrequest: { max_tokens: { uniform: [2, 6] } }\n";
/// The attempt that the tests run.
pub const KEY: &str = "attempt-1";

/// `llmscen simulate` with the log of its requests, killed when dropped.
pub struct Simulator {
    process: Child,
    log: PathBuf,
    pub url: String,
}

impl Simulator {
    pub fn start(lab: &Lab, config: &str) -> Simulator {
        Simulator::launch(
            lab.command(&simulate("127.0.0.1:0", config)),
            lab.path().join("truth.jsonl"),
        )
    }

    /// Starts the command, which runs `simulate`, and reads its address.
    pub fn launch(mut command: std::process::Command, log: PathBuf) -> Simulator {
        let mut process = command.spawn().expect("the simulator starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("http://"), "no address: {line:?}");
        Simulator {
            process,
            log,
            url: line.trim().to_owned(),
        }
    }

    /// Ends it. The ids of the requests that it received, in their order.
    pub fn received(mut self) -> Vec<String> {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        self.process.wait().unwrap();
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.lines()
            .map(|line| {
                let record: Value = serde_json::from_str(line).unwrap();
                record["request_id"].as_str().expect("an id").to_owned()
            })
            .collect()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The arguments of a simulator with a log.
pub fn simulate<'a>(address: &'a str, config: &'a str) -> Vec<&'a str> {
    let mut args = vec!["simulate", "--quiet", "--listen", address];
    args.extend(["--truth", "truth.jsonl"]);
    for set in config.split_whitespace() {
        args.extend(["--set", set]);
    }
    args
}

/// A scenario against that simulator; `parts` are its other sections.
pub fn scenario(url: &str, parts: &str) -> String {
    format!(
        "version: 1\nname: t\nseed: 11\n\
         target: {{ url: \"{url}/v1/chat/completions\", model: sim, request_id: X-Request-Id }}\n\
         report: {{ formats: [json, md] }}\ntelemetry: {{ gpu: false }}\n{CALM}{parts}"
    )
}

/// The arguments of a shard; shard 0 writes the run folder `out`, the others a temporary one.
pub fn shard_args(lab: &Lab, file: &str, shard: &str, more: &[&str]) -> Vec<String> {
    let via = format!("file://{}", lab.path().join("store").display());
    let mut args: Vec<&str> = vec!["run", file, "--shard", shard, "--via", &via, "--run", KEY];
    if shard.starts_with("0/") {
        args.extend(["--output", "out"]);
    }
    if !more.contains(&"--wait") {
        args.extend(["--wait", "60s"]);
    }
    args.extend(more);
    args.into_iter().map(str::to_owned).collect()
}

/// Starts shard `index` of `count` on a file.
pub fn start(lab: &Lab, file: &str, shard: &str, more: &[&str]) -> Child {
    std::fs::create_dir_all(lab.path().join("store")).unwrap();
    let args = shard_args(lab, file, shard, more);
    lab.spawn(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Starts all shards of a scenario.
pub fn start_all(lab: &Lab, scenario: &str, count: u32) -> Vec<Child> {
    lab.file("s.yaml", scenario);
    let shard = |index| start(lab, "s.yaml", &format!("{index}/{count}"), &[]);
    (0..count).map(shard).collect()
}

pub fn finish_all(shards: Vec<Child>) -> Vec<Ran> {
    shards.into_iter().map(finish).collect()
}

pub fn codes(ran: &[Ran]) -> Vec<i32> {
    ran.iter().map(|ran| ran.code).collect()
}

/// Panics with everything that the shards printed unless these are their exit codes.
#[track_caller]
pub fn expect_codes(ran: &[Ran], expected: &[i32]) {
    assert_eq!(codes(ran), expected, "{ran:#?}");
}

/// Waits until `found` does.
#[track_caller]
pub fn until(what: &str, found: impl Fn() -> bool) {
    let began = Instant::now();
    while !found() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "after 60 s: not {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the shards have the time zero of round 0, and another `after`.
pub fn wait_for_round(lab: &Lab, after: Duration) {
    let go = lab.path().join("store").join(KEY).join("go/0");
    until("started", || go.exists());
    std::thread::sleep(after);
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the shard runs");
}

/// What the plan alone determines of a request.
const PLANNED: [&str; 12] = [
    "turns",
    "group",
    "phase",
    "status",
    "model",
    "streamed",
    "attempts",
    "max_tokens",
    "usage_output",
    "request_id",
    "outcome",
    "choices",
];

/// Place of `phase` in `PLANNED`.
const PHASE: usize = 2;

/// Place of `request_id` in `PLANNED`.
const REQUEST_ID: usize = 9;

/// The requests of a run by case, round, number and turn, with the columns that two runs of the plan must have in common.
pub fn requests(folder: &Path, columns: &[&str]) -> BTreeMap<(String, u64, u64, u64), Vec<String>> {
    let frame = table(folder);
    let cells = |names: &[&str], at| -> Vec<String> {
        let cell = |name: &&str| frame.column(name).unwrap().get(at).unwrap().to_string();
        names.iter().map(cell).collect()
    };
    let number = |text: &str| text.parse().unwrap();
    let row = |at| {
        let mut cells_of_row = cells(&[&PLANNED, columns].concat(), at);
        let id = &mut cells_of_row[REQUEST_ID];
        *id = id.trim_matches('"').to_owned();
        let key = cells(&["case_id", "round", "seq", "turn"], at);
        let key = (
            key[0].clone(),
            number(&key[1]),
            number(&key[2]),
            number(&key[3]),
        );
        (key, cells_of_row)
    };
    let rows: BTreeMap<_, _> = (0..frame.height()).map(row).collect();
    assert_eq!(rows.len(), frame.height(), "a key is there more than once");
    rows
}

fn table(folder: &Path) -> DataFrame {
    let file = std::fs::File::open(folder.join("requests.parquet")).unwrap();
    ParquetReader::new(file).finish().unwrap()
}

/// The shard of each request, by number.
pub fn senders(folder: &Path) -> Vec<(u64, u32)> {
    let frame = table(folder);
    let seq = frame.column("seq").unwrap().u64().unwrap().clone();
    let shard = frame.column("shard").unwrap().u32().unwrap().clone();
    seq.into_no_null_iter()
        .zip(shard.into_no_null_iter())
        .collect()
}

/// Asserts that two runs have the same requests.
#[track_caller]
pub fn assert_same_requests(what: &str, whole: &Path, merged: &Path, columns: &[&str]) {
    // The beginning of an id is that of the run.
    let without_run = |folder| {
        let mut rows = requests(folder, columns);
        // How long the server cools down does, too.
        rows.retain(|_, row| !row[PHASE].contains("cooldown"));
        for row in rows.values_mut() {
            let id = row[REQUEST_ID]
                .split_once('-')
                .expect("an id with a number");
            row[REQUEST_ID] = id.1.to_owned();
            // How long the start is discarded depends on the latencies.
            row[PHASE] = row[PHASE].replace("settling", "measured");
        }
        rows
    };
    let (whole, merged) = (without_run(whole), without_run(merged));
    let keys = |rows: &BTreeMap<(String, u64, u64, u64), Vec<String>>| {
        rows.keys().cloned().collect::<BTreeSet<_>>()
    };
    let odd: Vec<_> = keys(&whole)
        .symmetric_difference(&keys(&merged))
        .cloned()
        .collect();
    assert!(odd.is_empty(), "{what}: only in one of the runs: {odd:?}");
    for (key, row) in &whole {
        assert_eq!(
            row,
            &merged[key],
            "{what}: {key:?}: {:?}",
            [&PLANNED, columns].concat()
        );
    }
}

/// Asserts that the server received each of these once.
#[track_caller]
pub fn assert_received_once(what: &str, mut received: Vec<String>, folder: &Path) {
    received.sort();
    let rows = requests(folder, &[]);
    let ids = rows.values().map(|row| row[REQUEST_ID].clone());
    // Turns that were not sent have none.
    let mut sent: Vec<String> = ids.filter(|id| id != "null").collect();
    sent.sort();
    assert_eq!(received, sent, "{what}: the server's log and the rows");
}

/// What else is equal: in an open loop the send times, and bodies. Those of sessions contain replies, which echo the prompts.
const OPEN: &[&str] = &["intended_ns", "bytes_out", "usage_prompt"];
const CLOSED: &[&str] = &["bytes_out", "usage_prompt"];

/// The server of a load; the replies to sessions depend on the prompts alone.
fn server_of(load: &str) -> &'static str {
    match load.contains("turns:") {
        true => "target.simulator.alpha=5ms target.simulator.answers.kind=echo",
        false => "target.simulator.alpha=5ms",
    }
}

/// Every kind of load, with what its requests have in common with those of one process, and the shards to use.
const LOADS: [(&str, u32, &[&str], &str); 19] = [
    (
        "poisson",
        4,
        OPEN,
        "load: { rate: 60/s, duration: 2s, warmup: 300ms }\n",
    ),
    (
        "constant",
        3,
        OPEN,
        "load: { rate: 50/s, arrivals: constant, requests: 70, warmup: 9 }\n",
    ),
    (
        "gamma",
        3,
        OPEN,
        // Replies of 300 ms: the start, with fewer requests in flight, is discarded.
        "dataset: { kind: openqa, path: builtin }\nrequest: { max_tokens: 60 }\nload: { rate: 60/s, arrivals: { gamma: 0.5 }, duration: 1500ms }\n",
    ),
    ("burst", 4, OPEN, "load: { rate: burst, requests: 41 }\n"),
    (
        "stages of rates",
        3,
        OPEN,
        "load: { stages: [{ rate: 20/s -> 80/s, for: 1s }, { rate: 0/s, for: 200ms }, { rate: 40/s, for: 500ms }] }\n",
    ),
    (
        "trace",
        3,
        OPEN,
        "dataset: { kind: trace, path: builtin, trace: { layout: mooncake } }\nrequest: { max_tokens: 2 }\nload: { trace: { speed: 40 } }\n",
    ),
    (
        "closed loop",
        4,
        CLOSED,
        "load: { concurrency: 7, requests: 80, warmup: 10 }\n",
    ),
    (
        "spread",
        3,
        CLOSED,
        "load: { concurrency: 8, requests: 50, spread: 500ms }\n",
    ),
    (
        "batches without a barrier",
        3,
        CLOSED,
        "load: { static: { batch: 8, rounds: 6, barrier: none } }\n",
    ),
    (
        "sessions",
        3,
        CLOSED,
        "dataset: { kind: sharegpt, path: builtin, turns: { max: 3, think_time: { exponential: 20ms } } }\nrequest: { max_tokens: 4 }\nload: { concurrency: 5, sessions: 20 }\n",
    ),
    (
        "sessions that arrive",
        4,
        CLOSED,
        "dataset: { kind: sharegpt, path: builtin, turns: { max: 3 } }\nrequest: { max_tokens: 4 }\nload: { rate: 10/s, sessions: 16 }\n",
    ),
    (
        "generated sessions",
        3,
        CLOSED,
        "dataset: { kind: random, tokens: { uniform: [10, 40] }, system_tokens: 20, turns: { count: { uniform: [1, 5] }, tokens: { uniform: [5, 20] }, think_time: { exponential: 10ms } } }\nrequest: { max_tokens: { uniform: [2, 6] } }\nload: { concurrency: 5, sessions: 20 }\n",
    ),
    (
        "recorded sessions from the middle",
        4,
        CLOSED,
        "dataset: { kind: sharegpt, path: builtin, turns: { max: 4, replies: recorded, begin: { uniform: [25%, 75%] } } }\nrequest: { max_tokens: 4 }\nload: { rate: 10/s, sessions: 16 }\n",
    ),
    (
        "logged sessions",
        3,
        CLOSED,
        "dataset: { kind: trace, path: builtin, trace: { layout: mooncake }, turns: {} }\nrequest: { max_tokens: 2 }\nload: { trace: { speed: 40 } }\n",
    ),
    (
        "mix by weight",
        3,
        OPEN,
        "mix:\n  - { name: a, weight: 3, request: { max_tokens: 2 }, dataset: { kind: openqa, path: builtin } }\n  - { name: b, request: { max_tokens: { uniform: [3, 9] } }, dataset: { kind: random, tokens: 40 } }\nload: { rate: 50/s, requests: 70 }\n",
    ),
    (
        "mix by rates",
        4,
        OPEN,
        "mix:\n  - { name: a, rate: 30/s, request: { max_tokens: 2 }, dataset: { kind: openqa, path: builtin } }\n  - { name: b, rate: 10/s, request: { max_tokens: 5 }, dataset: { kind: random, tokens: 40 } }\nload: { duration: 2s }\n",
    ),
    (
        "exact lengths",
        3,
        OPEN,
        "dataset: { kind: random, tokens: { uniform: [10, 60] } }\nrequest: { max_tokens: 3 }\nload: { rate: 40/s, requests: 50 }\n",
    ),
    (
        "rounds of cases",
        3,
        CLOSED,
        "rounds: 2\nload: { requests: 24, warmup: 3 }\nmatrix: { load.concurrency: [3, 5] }\n",
    ),
    (
        "cancellation",
        4,
        OPEN,
        "request: { max_tokens: 30, cancel: { share: 30%, after: 100ms } }\ndataset: { kind: openqa, path: builtin }\nload: { rate: 30/s, requests: 40 }\n",
    ),
];

fn with_data(load: &str) -> String {
    if load.contains("dataset:") {
        load.to_owned()
    } else {
        format!("{DATA}{load}")
    }
}

#[test]
fn the_shards_send_each_request_of_one_process_once() {
    let merged_runs = Mutex::new(Vec::new());
    each(&LOADS, |(what, count, columns, load)| {
        let (lab, alone) = (Lab::new(), Lab::new());
        let own = Simulator::start(&alone, server_of(load));
        alone
            .run(&scenario(&own.url, &with_data(load)))
            .expect_of(what, 0);
        let server = Simulator::start(&lab, server_of(load));
        let shards = start_all(&lab, &scenario(&server.url, &with_data(load)), *count);
        let ran = finish_all(shards);
        assert_eq!(codes(&ran), vec![0; *count as usize], "{what}: {ran:#?}");
        let (whole, merged_folder) = (alone.path().join("out"), lab.path().join("out"));
        assert_same_requests(what, &whole, &merged_folder, columns);
        assert_received_once(what, server.received(), &merged_folder);
        assert_received_once(what, own.received(), &whole);
        let senders: BTreeSet<u32> = senders(&merged_folder)
            .iter()
            .map(|(_, shard)| *shard)
            .collect();
        assert_eq!(senders, (0..*count).collect(), "{what}: every shard sends");
        // The discarded start is not scheduled for a figure.
        let scheduled = |folder: &Path, case: &serde_json::Value| {
            let rows = requests(folder, &[]);
            let is_discarded = |(key, row): &(&(String, u64, u64, u64), &Vec<String>)| {
                key.0.trim_matches('"') == case["id"] && row[PHASE].contains("settling")
            };
            let discarded = rows.iter().filter(is_discarded).count() as u64;
            case["counts"]["scheduled"].as_u64().unwrap() + discarded
        };
        let (whole_results, merged_results) = (alone.results(), lab.results());
        let pairs = std::iter::zip(cases(&whole_results), cases(&merged_results));
        for (whole_case, merged) in pairs {
            assert_eq!(
                scheduled(&whole, whole_case),
                scheduled(&merged_folder, merged),
                "{what}"
            );
            // A stage is a case, too, but has no process of its own.
            if merged["id"].as_str().unwrap().contains("/stage=") {
                continue;
            }
            let shards = merged["shards"].as_array().expect("shards of the case");
            let numbers: Vec<u64> = shards
                .iter()
                .map(|shard| shard["index"].as_u64().unwrap())
                .collect();
            assert_eq!(
                numbers,
                (0..u64::from(*count)).collect::<Vec<_>>(),
                "{what}"
            );
            let sum: u64 = shards
                .iter()
                .map(|shard| shard["requests"].as_u64().unwrap())
                .sum();
            assert_eq!(
                sum,
                merged["counts"]["scheduled"].as_u64().unwrap(),
                "{what}"
            );
        }
        let results = lab.results();
        let report = lab.llmscen(&["report", "out"]);
        assert_eq!(report.code, 0, "{what}: {report:?}");
        assert_eq!(
            lab.results(),
            results,
            "{what}: a report of the merged rows"
        );
        // The script has no rates of sessions and no canceled requests, of one process neither.
        let without_script = [
            "sessions that arrive",
            "recorded sessions from the middle",
            "cancellation",
        ];
        if !without_script.contains(what) {
            merged_runs.lock().unwrap().push(lab);
        }
    });
    let labs = merged_runs.into_inner().unwrap();
    let folders: Vec<PathBuf> = labs.iter().map(|lab| lab.path().join("out")).collect();
    numbers::agree(&folders);
}

trait ExpectOf {
    fn expect_of(self, what: &str, code: i32);
}

impl ExpectOf for Ran {
    #[track_caller]
    fn expect_of(self, what: &str, code: i32) {
        assert_eq!(self.code, code, "{what}\n{}\n{}", self.out, self.err);
    }
}

fn cases(results: &Value) -> &[Value] {
    results["cases"].as_array().unwrap()
}

#[test]
fn one_shard_of_one_is_a_plain_run() {
    let (lab, alone) = (Lab::new(), Lab::new());
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let text = scenario(
        &server.url,
        &format!("{DATA}load: {{ rate: 40/s, requests: 30 }}\n"),
    );
    expect_codes(&finish_all(start_all(&lab, &text, 1)), &[0]);
    alone.run(&text).expect(0);
    assert_same_requests(
        "0/1",
        &alone.path().join("out"),
        &lab.path().join("out"),
        OPEN,
    );
}

/// Loads whose set of requests depends on the server, as on one machine: each user's requests stay with its shard.
#[test]
fn users_stay_with_their_shard_when_the_time_is_limited() {
    let loads = [
        ("duration", 7, "load: { concurrency: 7, duration: 2s }\n"),
        (
            "stages of users",
            6,
            "load: { stages: [{ concurrency: 2 -> 6, for: 1s }, { concurrency: 4, for: 1s }] }\n",
        ),
    ];
    each(&loads, |(what, users, load)| {
        let lab = Lab::new();
        let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
        let shards = start_all(&lab, &scenario(&server.url, &with_data(load)), 3);
        expect_codes(&finish_all(shards), &[0, 0, 0]);
        let out = lab.path().join("out");
        assert_received_once(what, server.received(), &out);
        for (seq, shard) in senders(&out) {
            assert_eq!(u64::from(shard), seq % users % 3, "{what}: request {seq}");
        }
    });
}

#[test]
fn a_search_has_one_result() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.gamma=500us");
    let search = "dataset: { kind: prompt, text: hello }\nrequest: { max_tokens: 6 }\n\
        load: { concurrency: 4, requests: 40, warmup: 1x }\n\
        search: { vary: load.concurrency, range: [4, 16], precision: 50%, confirm: 0, drain: 100ms }\n\
        slo: [\"error_rate < 50%\"]\n";
    let ran = finish_all(start_all(&lab, &scenario(&server.url, search), 3));
    expect_codes(&ran, &[0, 0, 0]);
    assert_received_once("search", server.received(), &lab.path().join("out"));
    let results = lab.results();
    let probes = results["search"][0]["probes"]
        .as_array()
        .expect("probes")
        .len();
    assert!(probes >= 2, "{probes}");
}

#[test]
fn the_verdict_is_that_of_shard_0_and_others_deliver() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let load = format!("{DATA}load: {{ rate: 40/s, requests: 40 }}\nslo: [ttft.max < 1us]\n");
    let ran = finish_all(start_all(&lab, &scenario(&server.url, &load), 3));
    expect_codes(&ran, &[1, 0, 0]);
    assert_eq!(lab.results()["verdict"], "fail");
}

#[test]
fn what_cannot_be_split_is_refused_before_the_run() {
    let lab = Lab::new();
    let base = scenario("http://127.0.0.1:9", DATA);
    let with = |load: &str| format!("{base}load: {{ {load} }}\n");
    let local = base.replace(
        "url: \"http://127.0.0.1:9/v1/chat/completions\"",
        "url: simulator",
    );
    for (text, shard, known) in [
        (with("static: { batch: 8, rounds: 2 }"), "0/2", "barrier"),
        (with("concurrency: 2, requests: 9"), "0/3", "concurrency"),
        (
            with("rate: 9/s, requests: 9, max_in_flight: 2"),
            "0/3",
            "max_in_flight",
        ),
        (
            format!("{local}load: {{ concurrency: 4, requests: 9 }}\n"),
            "0/2",
            "simulator",
        ),
        (with("concurrency: 9, requests: 9"), "3/3", "3"),
        (with("concurrency: 9, requests: 9"), "x", "INDEX/COUNT"),
        (with("concurrency: 9, requests: 9"), "auto", "LLMSCEN_SHARD"),
    ] {
        lab.file("s.yaml", &text);
        let ran = finish(start(&lab, "s.yaml", shard, &[])).expect(2);
        assert!(ran.err.contains(known), "{shard}, {known}: {}", ran.err);
    }
    lab.file("s.yaml", with("concurrency: 9, requests: 9"));
    for (args, known) in [
        (
            &["run", "s.yaml", "--shard", "0/2", "--run", "k"][..],
            "--via",
        ),
        (
            &["run", "s.yaml", "--shard", "0/2", "--via", "file:///tmp/x"],
            "--run",
        ),
        (
            &[
                "run",
                "s.yaml",
                "--shard",
                "0/2",
                "--run",
                "k",
                "--via",
                "ftp://x/y",
            ],
            "ftp",
        ),
    ] {
        let ran = lab.llmscen(args).expect(2);
        assert!(ran.err.contains(known), "{known}: {}", ran.err);
    }
    assert!(
        !lab.path().join("store").join(KEY).exists(),
        "nothing was written"
    );
}

/// A plan of a second, which no shard of these tests gets to.
fn short(url: &str) -> String {
    scenario(
        url,
        &format!("{DATA}load: {{ rate: 20/s, requests: 20 }}\n"),
    )
}

#[test]
fn shards_that_differ_send_nothing() {
    let elsewhere = Lab::new();
    let server = Simulator::start(&elsewhere, "target.simulator.alpha=5ms");
    let short = || short(&server.url);
    let other_data = short().replace("max_tokens: { uniform: [2, 6] }", "max_tokens: 7");
    for (what, other, shard) in [
        (
            "another seed",
            short().replace("seed: 11", "seed: 12"),
            "1/2",
        ),
        ("another file", other_data, "1/2"),
        ("another count", short(), "1/3"),
    ] {
        let lab = Lab::new();
        lab.file("s.yaml", short());
        lab.file("other.yaml", other);
        let ran = finish_all(vec![
            start(&lab, "s.yaml", "0/2", &["--wait", "20s"]),
            start(&lab, "other.yaml", shard, &["--wait", "20s"]),
        ]);
        assert_eq!(codes(&ran), [3, 3], "{what}: {ran:#?}");
        assert!(ran[0].err.contains("shard 1"), "{what}: {}", ran[0].err);
    }
}

#[test]
fn a_shard_that_is_started_twice_ends_the_run() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    lab.file("s.yaml", short(&server.url));
    let ran = finish_all(vec![
        start(&lab, "s.yaml", "1/2", &["--wait", "10s"]),
        start(&lab, "s.yaml", "1/2", &["--wait", "10s"]),
        start(&lab, "s.yaml", "0/2", &["--wait", "10s"]),
    ]);
    assert!(
        codes(&ran)[..2].contains(&3),
        "the second one is refused: {ran:#?}"
    );
    let told = ran
        .iter()
        .any(|ran| ran.err.contains("shard 1 was started twice"));
    assert!(told, "{ran:#?}");
}

#[test]
fn a_shard_that_never_starts_ends_the_run_and_is_named() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    lab.file("s.yaml", short(&server.url));
    let ran = finish_all(vec![
        start(&lab, "s.yaml", "0/3", &["--wait", "2s"]),
        start(&lab, "s.yaml", "2/3", &["--wait", "2s"]),
    ]);
    expect_codes(&ran, &[3, 3]);
    for ran in ran {
        assert!(ran.err.contains("2 of 3 shards joined"), "{}", ran.err);
        assert!(ran.err.contains("missing: 1"), "{}", ran.err);
    }
}

/// An open loop of some seconds that is judged by how late its requests were sent.
fn judged(url: &str, seconds: u32) -> String {
    let audit = "audit: { lag_p99: 500ms, stall_p99: 1h, cpu: 1, achieved: 0 }\n";
    scenario(
        url,
        &format!("{DATA}load: {{ rate: 30/s, duration: {seconds}s }}\n"),
    )
    .replace(CALM, audit)
}

#[test]
fn a_shard_that_starts_late_is_waited_for() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let load = format!("{DATA}load: {{ rate: 30/s, requests: 30 }}\n");
    lab.file("s.yaml", scenario(&server.url, &load));
    let mut shards: Vec<Child> = ["0/3", "1/3"]
        .map(|shard| start(&lab, "s.yaml", shard, &[]))
        .into();
    std::thread::sleep(Duration::from_secs(5));
    shards.push(start(&lab, "s.yaml", "2/3", &[]));
    expect_codes(&finish_all(shards), &[0, 0, 0]);
    assert_received_once("late", server.received(), &lab.path().join("out"));
}

#[test]
fn a_shard_that_stops_for_three_seconds_is_invalid_and_named() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let plan = judged(&server.url, 8) + "slo: [ttft.p95 < 1s]\n";
    let shards = start_all(&lab, &plan, 3);
    wait_for_round(&lab, Duration::from_secs(3));
    signal(&shards[1], Signal::STOP);
    std::thread::sleep(Duration::from_secs(3));
    signal(&shards[1], Signal::CONT);
    let ran = finish_all(shards);
    expect_codes(&ran, &[4, 0, 0]);
    let slo = lab.results()["cases"][0]["slo"][0].clone();
    let note = slo["note"].as_str().unwrap_or_default();
    assert_eq!(slo["verdict"], "invalid", "{slo}");
    assert!(note.contains("shard 1"), "{note}");
    assert!(
        !note.contains("shard 0") && !note.contains("shard 2"),
        "{note}"
    );
}

#[test]
fn a_killed_shard_is_lost_and_the_run_is_invalid() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let shards = start_all(&lab, &judged(&server.url, 60), 3);
    wait_for_round(&lab, Duration::from_secs(3));
    let began = Instant::now();
    signal(&shards[2], Signal::KILL);
    let ran = finish_all(shards);
    expect_codes(&ran, &[4, 0, -1]);
    assert!(
        began.elapsed() < Duration::from_secs(45),
        "the others drain within some heartbeats: {:?}",
        began.elapsed()
    );
    let results = lab.results();
    let reasons = results["cases"][0]["audit"]["reasons"].to_string();
    assert!(
        reasons.contains("shard 2") && reasons.contains("lost"),
        "{reasons}"
    );
    assert!(results["cases"][0]["counts"]["ok"].as_u64().unwrap() > 20);
}

#[test]
fn after_shard_0_is_killed_merge_makes_the_report() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let shards = start_all(&lab, &judged(&server.url, 60), 3);
    wait_for_round(&lab, Duration::from_secs(4));
    signal(&shards[0], Signal::KILL);
    let ran = finish_all(shards);
    expect_codes(&ran, &[-1, 3, 3]);
    assert!(ran[1].err.contains("shard 0"), "{}", ran[1].err);
    let url = format!("file://{}/{KEY}", lab.path().join("store").display());
    lab.llmscen(&["merge", &url, "--output", "merged"])
        // As the report of a killed run of one process.
        .expect(130);
    let results = lab.json("merged/results.json");
    let reasons = results["cases"][0]["audit"]["reasons"].to_string();
    assert!(reasons.contains("shard 0"), "{reasons}");
    assert!(results["cases"][0]["counts"]["ok"].as_u64().unwrap() > 20);
    let senders: BTreeSet<u32> = senders(&lab.path().join("merged"))
        .iter()
        .map(|(_, shard)| *shard)
        .collect();
    assert!(senders.contains(&1) && senders.contains(&2), "{senders:?}");
}

#[test]
fn a_signal_to_one_shard_drains_all() {
    for (which, index) in [(Signal::INT, 0), (Signal::TERM, 2)] {
        let lab = Lab::new();
        let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
        let shards = start_all(&lab, &judged(&server.url, 60), 3);
        wait_for_round(&lab, Duration::from_secs(3));
        let began = Instant::now();
        signal(&shards[index], which);
        let ran = finish_all(shards);
        assert_eq!(ran[0].code, 130, "{which:?} to shard {index}: {ran:#?}");
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{:?}",
            began.elapsed()
        );
        let results = lab.results();
        assert_eq!(results["interrupted"], true);
        let counts = &results["cases"][0]["counts"];
        assert_eq!(counts["ok"], counts["scheduled"], "drained: {counts}");
        assert_received_once("interrupted", server.received(), &lab.path().join("out"));
    }
}

#[test]
fn the_merge_may_be_left_to_another_command() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let load = format!("{DATA}load: {{ rate: 30/s, requests: 30 }}\nslo: [ttft.max < 1us]\n");
    lab.file("s.yaml", scenario(&server.url, &load));
    let shard = |shard| start(&lab, "s.yaml", shard, &["--merge", "later"]);
    let ran = finish_all(["0/3", "1/3", "2/3"].map(shard).into());
    expect_codes(&ran, &[0, 0, 0]);
    let url = format!("file://{}/{KEY}", lab.path().join("store").display());
    lab.llmscen(&["merge", &url, "--output", "out", "--force"])
        .expect(1);
    assert_received_once("merge later", server.received(), &lab.path().join("out"));
    // Rows that were damaged in the store are not counted as delivered.
    let rows = lab.path().join("store").join(KEY).join("rows/0/1.parquet");
    let bytes = std::fs::read(&rows).unwrap();
    std::fs::write(&rows, &bytes[..bytes.len() / 2]).unwrap();
    let ran = lab.llmscen(&["merge", &url, "--output", "damaged"]);
    assert!([3, 4].contains(&ran.code), "{ran:?}");
    assert!(
        format!("{}{}", ran.out, ran.err).contains("rows/0/1.parquet"),
        "{ran:?}"
    );
}

#[test]
fn a_merge_with_little_memory_writes_the_same_bytes() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=0ms");
    let load = "dataset: { kind: prompt, text: hello }\nrequest: { max_tokens: 500 }\nload: { concurrency: 32, requests: 300 }\n\
                slo: [itl.p99 < 1s]\n";
    lab.file("s.yaml", scenario(&server.url, load));
    let shard = |shard| start(&lab, "s.yaml", shard, &["--merge", "later"]);
    expect_codes(&finish_all(["0/2", "1/2"].map(shard).into()), &[0, 0]);
    let url = format!("file://{}/{KEY}", lab.path().join("store").display());
    let merge = |output, memory: &[&str]| {
        lab.llmscen(&[&["merge", &url, "--output", output][..], memory].concat())
    };
    let code = merge("whole", &[]).code;
    // 150,000 token events need 117 MB.
    let ran = merge("scratch", &["--memory", "112MB"]);
    assert_eq!(ran.code, code, "{}", ran.err);
    let said = "this process may use 112 MB, so the rest is in a scratch file in scratch";
    assert!(ran.err.contains(said), "{}", ran.err);
    for file in ["results.json", "report.md", "requests.parquet"] {
        let [whole, scratch] = ["whole", "scratch"]
            .map(|folder| std::fs::read(lab.path().join(folder).join(file)).unwrap());
        assert!(whole == scratch, "{file}");
    }
    let refused = merge("small", &["--memory", "20MB"]).expect(3);
    assert!(refused.err.contains("must be in memory"), "{}", refused.err);
    merge("unknown", &["--memory", "4"]).expect(2);
}

/// Starts a shard by a shell that runs `prepare` first.
fn start_after(lab: &Lab, shard: &str, prepare: &str, more: &[&str]) -> Child {
    let args = shard_args(lab, "s.yaml", shard, more);
    let own = lab.command(&[]);
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &format!("{prepare}; exec \"$@\""), "sh"])
        .arg(own.get_program())
        .args(args)
        .current_dir(lab.path())
        .env_clear()
        .env("HOME", lab.path())
        .env("PATH", "/usr/bin:/bin")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    shell.spawn().expect("a shell")
}

#[test]
fn a_shard_that_may_open_no_more_files_is_invalid_and_named() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.admission=3s");
    let load = "load: { rate: 300/s, requests: 600 }\nslo: [error_rate < 5%]\n";
    lab.file("s.yaml", scenario(&server.url, &format!("{DATA}{load}")));
    let run = |limit| {
        let _ = std::fs::remove_dir_all(lab.path().join("store"));
        let [first, last] = ["0/3", "2/3"].map(|shard| start(&lab, "s.yaml", shard, &["--force"]));
        let limited = start_after(&lab, "1/3", &format!("ulimit -n {limit}"), &[]);
        finish_all(vec![first, limited, last])
    };
    let refused = run(60);
    expect_codes(&refused, &[3, 3, 3]);
    assert!(
        refused[0].err.contains("shard 1 (") && refused[0].err.contains("open files"),
        "{refused:?}"
    );
    expect_codes(&run(140), &[4, 0, 0]);
    let shards = lab.results()["cases"][0]["shards"].clone();
    let reasons = [0, 1, 2].map(|shard| shards[shard]["reasons"].to_string());
    assert!(
        reasons[1].contains("shard 1") && reasons[1].contains("may open no more files"),
        "{reasons:?}"
    );
    assert_eq!([&reasons[0], &reasons[2]], ["[]", "[]"]);
}

#[test]
fn a_managed_server_on_loopback_is_refused_for_shards_on_several_hosts() {
    let other = "exec unshare --uts sh -c 'hostname other; exec \"$@\"' sh \"$@\"";
    let renames = succeeds("unshare", &["--uts", "hostname", "other"]);
    if is_missing("a host name of its own (unshare --uts)", renames) {
        return;
    }
    let lab = Lab::new();
    let load = format!("{DATA}load: {{ rate: 30/s, requests: 30 }}\n");
    let managed = scenario("http://127.0.0.1:9", &load).replace(
        "model: sim,",
        "model: sim, server: { command: sleep 60, ready: { url: \"http://127.0.0.1:9/health\" } },",
    );
    lab.file("s.yaml", managed);
    let first = start(&lab, "s.yaml", "0/2", &[]);
    let ran = finish_all(vec![first, start_after(&lab, "1/2", other, &[])]);
    expect_codes(&ran, &[2, 2]);
    for shard in &ran {
        assert!(shard.err.contains("only the host of shard 0"), "{ran:#?}");
    }
}

#[test]
fn a_full_disk_ends_a_shard_with_an_error_and_the_run_is_invalid() {
    let lab = Lab::new();
    let disk = lab.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = [
        "-t",
        "tmpfs",
        "-o",
        "size=64k",
        "disk",
        disk.to_str().unwrap(),
    ];
    if is_missing("a disk of 64 KB (mount)", succeeds("mount", &mount)) {
        return;
    }
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let load = "load: { rate: 300/s, duration: 4s }\nslo: [ttft.p95 < 10s]\n";
    lab.file("s.yaml", scenario(&server.url, &format!("{DATA}{load}")));
    let mut shards = vec![start(&lab, "s.yaml", "0/2", &[])];
    shards.push(start(&lab, "s.yaml", "1/2", &["--output", "disk/out"]));
    let ran = finish_all(shards);
    assert!(succeeds("umount", &["-l", disk.to_str().unwrap()]));
    assert_eq!(ran[1].code, 3, "{ran:#?}");
    assert!(
        ran[1].err.to_lowercase().contains("no space left"),
        "{ran:#?}"
    );
    assert!([3, 4].contains(&ran[0].code), "{ran:#?}");
    assert!(
        format!("{}{}", ran[0].out, ran[0].err).contains("shard 1"),
        "{ran:#?}"
    );
}

#[test]
fn a_limit_that_cannot_be_met_aborts_the_case_of_all_shards() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=20ms");
    let slo = "slo: [{ expr: \"ttft.p90 < 1ms\", abort: { min_samples: 40 } }]\n";
    let load = format!("{DATA}load: {{ rate: 60/s, duration: 120s }}\n{slo}");
    let began = Instant::now();
    let ran = finish_all(start_all(&lab, &scenario(&server.url, &load), 3));
    expect_codes(&ran, &[1, 0, 0]);
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    let case = lab.results()["cases"][0].clone();
    assert_eq!(case["slo"][0]["verdict"], "fail", "{:#}", case["slo"]);
    assert_eq!(case["aborted"]["check"], 0, "{:#}", case["aborted"]);
    assert_received_once("aborted", server.received(), &lab.path().join("out"));
}

#[test]
fn secrets_and_credentials_never_reach_the_store() {
    const SECRET: &str = "sk-very-secret-key";
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let text = scenario(
        &server.url,
        &format!("{DATA}load: {{ rate: 30/s, requests: 20 }}\n"),
    )
    .replace("model: sim,", "model: sim, api_key: \"${KEY}\",");
    lab.file("s.yaml", text);
    std::fs::create_dir_all(lab.path().join("store")).unwrap();
    let shard = |shard| {
        let args = shard_args(&lab, "s.yaml", shard, &["--merge", "later"]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        lab.command(&args).env("KEY", SECRET).spawn().unwrap()
    };
    expect_codes(&finish_all(["0/2", "1/2"].map(shard).into()), &[0, 0]);
    let files = files(&lab.path().join("store"));
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let found = bytes
            .windows(SECRET.len())
            .any(|part| part == SECRET.as_bytes());
        assert!(!found, "{}", file.display());
    }
}

/// The store on a file system of its own, which can be made read-only.
struct OwnFileSystem(PathBuf);

impl OwnFileSystem {
    /// None without root.
    fn mount(lab: &Lab) -> Option<OwnFileSystem> {
        let path = lab.path().join("store");
        std::fs::create_dir_all(&path).unwrap();
        let mounted = succeeds("mount", &["-t", "tmpfs", "store", path.to_str().unwrap()]);
        (!is_missing("root, to mount a file system", mounted)).then_some(OwnFileSystem(path))
    }

    /// `ro` or `rw`; read-only needs a moment without an open file.
    fn make(&self, access: &str) {
        let options = format!("remount,{access}");
        let path = self.0.to_str().unwrap();
        until("remounted", || succeeds("mount", &["-o", &options, path]));
    }
}

impl Drop for OwnFileSystem {
    fn drop(&mut self) {
        succeeds("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

#[test]
fn the_store_is_not_needed_while_requests_are_sent() {
    let lab = Lab::new();
    let Some(store) = OwnFileSystem::mount(&lab) else {
        return;
    };
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let shards = start_all(&lab, &judged(&server.url, 20), 3);
    wait_for_round(&lab, Duration::from_secs(3));
    store.make("ro");
    // Longer than a shard may be silent.
    std::thread::sleep(Duration::from_secs(14));
    store.make("rw");
    expect_codes(&finish_all(shards), &[0, 0, 0]);
    assert_received_once("read-only", server.received(), &lab.path().join("out"));
}

#[test]
fn records_stay_on_the_local_disk_if_the_store_does_not_take_them() {
    let lab = Lab::new();
    let Some(store) = OwnFileSystem::mount(&lab) else {
        return;
    };
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let load = format!("{DATA}load: {{ rate: 30/s, duration: 5s }}\n");
    lab.file("s.yaml", scenario(&server.url, &load));
    let shard = |shard| start(&lab, "s.yaml", shard, &["--wait", "6s"]);
    let shards = ["0/2", "1/2"].map(shard).into();
    wait_for_round(&lab, Duration::from_secs(2));
    store.make("ro");
    let ran = finish_all(shards);
    expect_codes(&ran, &[3, 3]);
    store.make("rw");
    let url = format!("file://{}/{KEY}", lab.path().join("store").display());
    let mut args = vec!["merge".to_owned(), url, "--output".into(), "merged".into()];
    for ran in &ran {
        let (_, folder) = ran
            .err
            .split_once("--rows ")
            .unwrap_or_else(|| panic!("{}", ran.err));
        let folder = folder.split(['`', '\n']).next().unwrap().trim();
        args.extend(["--rows".to_owned(), folder.to_owned()]);
    }
    let merged = lab.llmscen(&args.iter().map(String::as_str).collect::<Vec<_>>());
    // Shard 0 could not store that the run is complete.
    assert!([0, 130].contains(&merged.code), "{merged:?}");
    assert_received_once("--rows", server.received(), &lab.path().join("merged"));
}

/// Starts a shard of `s.yaml` with a bucket as store.
fn start_on(moto: &Moto, lab: &Lab, shard: &str, wait: &str) -> Child {
    let mut args = vec![
        "run",
        "s.yaml",
        "--shard",
        shard,
        "--via",
        "s3://bench/runs",
    ];
    args.extend(["--run", KEY, "--wait", wait]);
    if shard.starts_with("0/") {
        args.extend(["--output", "out"]);
    }
    lab.command(&args).envs(moto.env()).spawn().unwrap()
}

#[test]
fn four_shards_share_a_bucket() {
    let Some(moto) = Moto::start("bench") else {
        return;
    };
    let (lab, alone) = (Lab::new(), Lab::new());
    let load = format!("{DATA}load: {{ rate: 60/s, duration: 3s, warmup: 300ms }}\n");
    let own = Simulator::start(&alone, "target.simulator.alpha=5ms");
    alone.run(&scenario(&own.url, &load)).expect(0);
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    lab.file("s.yaml", scenario(&server.url, &load));
    let shard = |index| start_on(&moto, &lab, &format!("{index}/4"), "60s");
    expect_codes(&finish_all((0..4).map(shard).collect()), &[0; 4]);
    let (whole, merged) = (alone.path().join("out"), lab.path().join("out"));
    assert_same_requests("bucket", &whole, &merged, OPEN);
    assert_received_once("bucket", server.received(), &merged);
    let objects = moto.objects("bench");
    let rows = format!("runs/{KEY}/rows/0/3.parquet");
    assert!(objects.contains_key(&rows), "{:?}", objects.keys());
    for (key, object) in &objects {
        for secret in [&moto.env()["AWS_SECRET_ACCESS_KEY"], "AWS_"] {
            let found = object
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{key} contains {secret}");
        }
    }
    // The report can be made again from the bucket alone.
    let url = format!("s3://bench/runs/{KEY}");
    let mut again = lab.command(&["merge", &url, "--output", "again"]);
    Ran::of(again.envs(moto.env()).output().unwrap()).expect(0);
    let metrics = |results: &Value| results["cases"][0]["metrics"].clone();
    assert_eq!(
        metrics(&lab.json("again/results.json")),
        metrics(&lab.results())
    );
}

#[test]
fn a_shard_that_is_started_twice_on_a_bucket_ends_the_run() {
    let Some(moto) = Moto::start("bench") else {
        return;
    };
    let lab = Lab::new();
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    lab.file("s.yaml", short(&server.url));
    let shards = ["1/2", "1/2", "0/2"].map(|shard| start_on(&moto, &lab, shard, "15s"));
    let ran = finish_all(shards.into());
    assert!(codes(&ran)[..2].contains(&3), "{ran:#?}");
    let told = ran
        .iter()
        .any(|ran| ran.err.contains("shard 1 was started twice"));
    assert!(told, "{ran:#?}");
}

/// All files below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
