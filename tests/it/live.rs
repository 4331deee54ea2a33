//! Watching a run: progress for programs, the metrics endpoint, the full screen; and the forms that its results are given in.

use crate::lab::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Two cases of two rounds, 30 requests and a warm-up of 4 each, a few of them failing.
const SWEEP: &str = "version: 1\nname: sweep\n\
    target: { api: simulator, simulator: { alpha: 2ms, faults: { error: 10% } } }\n\
    request: { max_tokens: 8 }\ndataset: { kind: prompt, text: hello }\n\
    load: { concurrency: 2, requests: 30, warmup: 4 }\nmatrix: { load.concurrency: [2, 4] }\nrounds: 2\n\
    slo: [ttft.p50 < 10s, error_rate < 100%]\nreport: { formats: [md, junit] }\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100% }\n";

fn lines(err: &str) -> Vec<Value> {
    err.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn progress_as_json_tells_every_event_and_ends_with_the_verdict() {
    let lab = Lab::new();
    lab.file("s.yaml", SWEEP);
    let ran = lab
        .llmscen(&[
            "run",
            "s.yaml",
            "--output",
            "out",
            "--progress",
            "json",
            "--format",
            "json",
        ])
        .expect(0);
    let lines = lines(&ran.err);
    let of = |event: &str| {
        lines
            .iter()
            .filter(|line| line["event"] == event)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (
            &lines[0]["event"],
            &lines[0]["rounds"],
            &lines[0]["scenario"]
        ),
        (&"run_started".into(), &2.into(), &"sweep".into())
    );
    assert_eq!(lines[0]["cases"][1]["id"], "concurrency=4");
    assert_eq!(
        (
            of("case_started").len(),
            of("case_ended").len(),
            of("folder").len()
        ),
        (4, 4, 1)
    );
    assert!(of("progress").len() >= 4, "{}", ran.err);
    let times: Vec<f64> = lines
        .iter()
        .filter_map(|line| line["time_s"].as_f64())
        .collect();
    assert!(times.is_sorted() && !times.is_empty());
    let results = lab.results();
    for case in results["cases"].as_array().unwrap() {
        let own: Vec<_> = of("case_ended")
            .into_iter()
            .filter(|line| line["case"] == case["id"])
            .collect();
        let sum = |phase: &str, outcome: &str| {
            own.iter()
                .filter_map(|line| line["outcomes"][phase][outcome].as_u64())
                .sum::<u64>()
        };
        assert_eq!(
            (own.len(), Some(sum("measured", "ok"))),
            (2, case["counts"]["ok"].as_u64())
        );
        assert_eq!(
            Some(sum("measured", "http_5xx")),
            case["counts"]["failed"].as_u64()
        );
        assert_eq!(
            Some(sum("warmup", "ok") + sum("warmup", "http_5xx")),
            case["counts"]["warmup"].as_u64()
        );
    }
    let ended = of("run_ended")[0];
    assert_eq!(
        (&ended["verdict"], &ended["folder"]),
        (&"pass".into(), &"out".into())
    );
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["event"], &last["verdict"], &last["exit_code"]),
        (&"done".into(), &"pass".into(), &0.into())
    );
    let shown: Value = serde_json::from_str(&ran.out).expect("stdout stays data");
    assert_eq!(
        shown["cases"][0]["ttft_p99_ms"],
        results["cases"][0]["metrics"]["ttft_ms"]["p99"]
    );
}

#[test]
fn progress_as_json_ends_with_done_even_where_nothing_ran() {
    let lab = Lab::new();
    lab.file("s.yaml", SWEEP.replace("max_tokens", "max_tokns"));
    let ran = lab
        .llmscen(&["run", "s.yaml", "--progress", "json"])
        .expect(2);
    let lines = lines(&ran.err);
    assert_eq!(lines[0]["event"], "error");
    assert!(
        lines[0]["message"].as_str().unwrap().contains("max_tokns"),
        "{}",
        ran.err
    );
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["event"], &last["verdict"], &last["exit_code"]),
        (&"done".into(), &Value::Null, &2.into())
    );
}

#[test]
fn progress_may_be_left_out_and_a_full_screen_needs_a_terminal() {
    let lab = Lab::new();
    lab.file("s.yaml", SWEEP);
    let run = |how: &[&str]| {
        lab.llmscen(&[&["run", "s.yaml", "--output", "out", "--force"], how].concat())
    };
    assert!(!run(&["--progress", "none"]).expect(0).err.contains("[1/4]"));
    assert!(
        run(&["--progress", "plain"])
            .expect(0)
            .err
            .contains("[4/4] concurrency=4  34/34")
    );
    let fallen = run(&["--live"]).expect(0).err;
    assert!(
        fallen.contains("note: --live requires a terminal on stderr; using plain progress lines"),
        "{fallen}"
    );
    assert!(fallen.contains("[4/4]"), "{fallen}");
    run(&["--live", "--progress", "json"]).expect(2);
}

/// The binary on a terminal of 100 × 30 that answers no queries; `None` without `script`.
fn on_a_terminal(lab: &Lab, args: &str) -> Option<Child> {
    let line = format!(
        "stty cols 100 rows 30; {} {args}",
        env!("CARGO_BIN_EXE_llmscen")
    );
    let mut script = Command::new("script");
    script
        .args(["-qefc", &line, "/dev/null"])
        .current_dir(lab.path())
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh");
    script.env_remove("NO_COLOR").env_remove("COLUMNS");
    script
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()
}

#[test]
fn the_full_screen_asks_the_terminal_nothing_and_ends_with_q() {
    let lab = Lab::new();
    lab.file("s.yaml", SWEEP.replace("requests: 30", "requests: 3000"));
    let Some(mut child) = on_a_terminal(&lab, "run s.yaml --output out --live") else {
        return;
    };
    let (mut out, mut seen, mut some) = (child.stdout.take().unwrap(), Vec::new(), [0; 4096]);
    let mut keys = child.stdin.take();
    loop {
        let n = out.read(&mut some).unwrap_or(0);
        seen.extend_from_slice(&some[..n]);
        let text = String::from_utf8_lossy(&seen);
        if n == 0 {
            break;
        }
        // The screen is active: q works from here on.
        if keys.is_some() && text.contains("\u{1b}[?1049h") && text.contains("in flight") {
            keys.as_mut().unwrap().write_all(b"q").unwrap();
            let open = keys.take();
            std::thread::spawn(move || (std::thread::sleep(Duration::from_secs(60)), open));
        }
    }
    let text = String::from_utf8_lossy(&seen).into_owned();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    assert!(
        !text.contains("\u{1b}[6n"),
        "it asks where the cursor stands: {text}"
    );
    let (_, after) = text
        .rsplit_once("\u{1b}[?1049l")
        .expect("the screen is given back");
    assert!(
        after.contains("stopping: no new requests") && after.contains("Report: out/report.md"),
        "{after}"
    );
}

#[test]
fn a_run_on_a_terminal_that_is_closed_is_drained_and_reported() {
    for how in ["--live", "--progress bar"] {
        let lab = Lab::new();
        lab.file("s.yaml", SWEEP.replace("requests: 30", "requests: 30000"));
        // The shell receives and forwards the signal, and prints the exit status.
        let line = format!(
            "{} run s.yaml --output out {how} & run=$!",
            env!("CARGO_BIN_EXE_llmscen")
        );
        lab.file(
            "sh",
            format!("{line}; trap 'kill -HUP $run' HUP; wait $run; wait $run; echo $? > code"),
        );
        let mut script = Command::new("script");
        script
            .args(["-qefc", ". ./sh", "/dev/null"])
            .current_dir(lab.path())
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh");
        let Ok(mut terminal) = script
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
        else {
            return;
        };
        let (until, code) = (
            Instant::now() + Duration::from_secs(60),
            lab.path().join("code"),
        );
        let wait = |path: &std::path::Path, bytes: u64| {
            while !std::fs::metadata(path).is_ok_and(|file| file.len() > bytes) {
                assert!(Instant::now() < until, "{how}: no {}", path.display());
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        wait(&lab.path().join("out/journal.bin"), 2000);
        terminal.kill().unwrap();
        terminal.wait().unwrap();
        wait(&code, 1);
        assert_eq!(
            (lab.text("code").trim(), &lab.results()["interrupted"]),
            ("130", &serde_json::json!(true)),
            "{how}"
        );
    }
}

/// The response of a GET request to the endpoint; `None` if it is closed.
pub fn get(addr: SocketAddr, path: &str) -> Option<String> {
    let mut socket = TcpStream::connect(addr).ok()?;
    write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok().map(|_| answer)
}

/// The sum of all series with this prefix that contain this text.
fn sum(text: &str, name: &str, holds: &str) -> u64 {
    let own = text
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(holds));
    own.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[test]
fn metrics_are_scraped_in_mid_run_and_end_as_the_report_has_them() {
    let lab = Lab::new();
    lab.file("s.yaml", SWEEP.replace("alpha: 2ms", "alpha: 10ms"));
    let args = [
        "run",
        "s.yaml",
        "--output",
        "out",
        "--metrics-addr",
        "127.0.0.1:0",
        "--metrics-linger",
        "60",
        "--format",
        "md",
    ];
    let mut child = lab.spawn(&args);
    let mut err = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let told = err.find_map(|line| {
        Some(
            line.strip_prefix("metrics: http://")?
                .strip_suffix("/metrics")?
                .to_owned(),
        )
    });
    let addr: SocketAddr = told.expect("the port is told").parse().unwrap();
    assert!(get(addr, "/").unwrap().starts_with("HTTP/1.1 404 "));
    let began = Instant::now();
    let early = loop {
        let text = get(addr, "/metrics").expect("it serves during the run");
        if sum(&text, "llmscen_requests_total", "phase=\"measured\"") > 0 {
            break text;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{text}");
        std::thread::sleep(Duration::from_millis(30));
    };
    assert!(
        early.contains(
            "\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
        ),
        "{early}"
    );
    assert!(early.ends_with("# EOF\n"));
    assert_eq!(
        sum(&early, "llmscen_parts_ended_total", ""),
        0,
        "this is in the middle of the first round: {early}"
    );
    assert_eq!(sum(&early, "llmscen_case_running", ""), 1);
    err.find(|line| line.starts_with("report: "))
        .expect("the run ends");
    let last = get(addr, "/metrics").expect("it lingers");
    let ended = Instant::now();
    assert!(child.wait().unwrap().success());
    assert!(
        ended.elapsed() < Duration::from_secs(30),
        "one scrape after the run is all that it waits for"
    );
    for case in lab.results()["cases"].as_array().unwrap() {
        let (id, counts, metrics) = (
            format!("case={}", case["id"]),
            &case["counts"],
            &case["metrics"],
        );
        let requests = |label: &str| {
            let own: String = last
                .lines()
                .filter(|line| line.contains(&id))
                .map(|line| format!("{line}\n"))
                .collect();
            sum(&own, "llmscen_requests_total", label)
        };
        assert_eq!(
            Some(requests("phase=\"measured\",outcome=\"ok\"")),
            counts["ok"].as_u64(),
            "{last}"
        );
        assert_eq!(
            Some(requests("phase=\"measured\"")),
            counts["scheduled"].as_u64()
        );
        assert_eq!(
            Some(requests("phase=\"warmup\"")),
            counts["warmup"].as_u64()
        );
        for (name, metric) in [
            ("time_to_first_token", "ttft_ms"),
            ("inter_token_latency", "itl_ms"),
            ("request_latency", "e2e_ms"),
        ] {
            let count = sum(&last, &format!("llmscen_{name}_seconds_count"), &id);
            assert_eq!(Some(count), metrics[metric]["n"].as_u64(), "{name}");
        }
        let tokens = metrics["output_tokens"]["mean"].as_f64().unwrap()
            * metrics["output_tokens"]["n"].as_f64().unwrap();
        let own: String = last
            .lines()
            .filter(|line| line.contains(&id))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(
            sum(&own, "llmscen_tokens_total", "kind=\"output\""),
            tokens.round() as u64
        );
    }
}

#[test]
fn a_port_in_use_is_an_error_before_any_traffic() {
    let lab = Lab::new();
    lab.file("s.yaml", SWEEP);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let ran = lab
        .llmscen(&["run", "s.yaml", "--output", "out", "--metrics-addr", &addr])
        .expect(3);
    assert!(
        ran.err.contains(&format!(
            "cannot serve metrics at {addr} (--metrics-addr): "
        )),
        "{}",
        ran.err
    );
    assert!(!lab.path().join("out").exists());
}

#[test]
fn results_come_in_the_form_that_is_asked_for() {
    let lab = Lab::new();
    lab.run(SWEEP).expect(0);
    let (results, shown) = (lab.results(), |form| {
        lab.llmscen(&["report", "out", "--format", form]).expect(0)
    });
    for (form, delimiter) in [("csv", b','), ("tsv", b'\t')] {
        let ran = shown(form);
        let (cases, limits) = ran.out.split_once("\n\n").unwrap();
        let read = |text: &str| {
            let mut reader = csv::ReaderBuilder::new()
                .delimiter(delimiter)
                .from_reader(text.as_bytes());
            let heads = reader.headers().unwrap().clone();
            let rows = reader.records().map(Result::unwrap);
            rows.map(|row| {
                heads
                    .iter()
                    .map(str::to_owned)
                    .zip(row.iter().map(str::to_owned))
                    .collect()
            })
            .collect::<Vec<std::collections::BTreeMap<_, _>>>()
        };
        let (cases, limits) = (read(cases), read(limits));
        assert_eq!((cases.len(), limits.len()), (2, 4));
        assert_eq!(cases[1]["case"], "concurrency=4");
        let p99: f64 = cases[1]["ttft_p99_ms"].parse().unwrap();
        assert_eq!(
            Some(p99),
            results["cases"][1]["metrics"]["ttft_ms"]["p99"].as_f64()
        );
        assert_eq!(
            (
                limits[0]["slo"].as_str(),
                limits[0]["limit"].as_str(),
                limits[0]["unit"].as_str()
            ),
            ("ttft.p50 < 10s", "10000", "ms")
        );
        assert!(
            ran.err.contains("PASS: all 4 objectives met"),
            "the verdict goes to stderr: {}",
            ran.err
        );
    }
    let table = shown("md").out;
    assert!(
        table.starts_with("| Case | Load |") && table.ends_with("requests succeeded.\n"),
        "{table}"
    );
    let report = lab.text("out/report.md");
    assert!(
        table
            .lines()
            .filter(|line| line.starts_with("| `"))
            .all(|line| report.contains(line)),
        "{table}"
    );
    assert_eq!(
        shown("table").out,
        lab.llmscen(&["report", "out"]).expect(0).out
    );
}

#[test]
fn an_empty_line_parts_the_tables_of_two_scenarios() {
    let lab = Lab::new();
    lab.file("a.yaml", SWEEP);
    lab.file("b.yaml", SWEEP.replace("name: sweep", "name: other"));
    for form in ["csv", "tsv"] {
        let ran = lab
            .llmscen(&["run", "a.yaml", "b.yaml", "--format", form])
            .expect(0);
        let blocks: Vec<&str> = ran.out.split("\n\n").collect();
        assert_eq!(blocks.len(), 4, "cases and limits of each: {}", ran.out);
        assert_eq!(
            [blocks[0], blocks[1]].map(|block| block.lines().next()),
            [blocks[2], blocks[3]].map(|b| b.lines().next())
        );
    }
    let ran = lab
        .llmscen(&["run", "a.yaml", "b.yaml", "--format", "json"])
        .expect(0);
    let stream = serde_json::Deserializer::from_str(&ran.out).into_iter::<Value>();
    let names: Vec<Value> = stream
        .map(|object| object.unwrap()["scenario"].take())
        .collect();
    assert_eq!(names, ["sweep", "other"]);
}

#[test]
fn a_ci_job_gets_a_summary() {
    let lab = Lab::new();
    lab.file("s.yaml", SWEEP);
    let run = |args: &[&str]| {
        let mut command =
            lab.command(&[&["run", "s.yaml", "--output", "out", "--force"], args].concat());
        command.env("GITHUB_STEP_SUMMARY", "step.md");
        Ran::of(command.output().unwrap())
    };
    run(&[]).expect(0);
    let step = lab.text("step.md");
    assert!(
        step.starts_with("## ✅ sweep: PASS\n\nall 4 objectives met: 2 cases"),
        "{step}"
    );
    assert!(
        step.contains("| `concurrency=4` | concurrency 4 |")
            && step.contains("Report: `out/report.md`"),
        "{step}"
    );
    run(&["--summary", "own.md"]).expect(0);
    assert_eq!(
        lab.text("step.md"),
        step,
        "the file that was asked for stands instead"
    );
    lab.llmscen(&["report", "out", "--summary", "own.md"])
        .expect(0);
    assert_eq!(
        lab.text("own.md").matches("## ✅ sweep: PASS").count(),
        2,
        "it is appended to"
    );
    let before = lab.text("out/manifest.json");
    let refused = run(&["--summary", "no/such/folder.md"]).expect(2);
    assert!(
        refused
            .err
            .contains("cannot write the summary no/such/folder.md (--summary)"),
        "{}",
        refused.err
    );
    assert_eq!(lab.text("out/manifest.json"), before, "nothing ran");
    let mut unwritable = lab.command(&["report", "out"]);
    let warned = Ran::of(
        unwritable
            .env("GITHUB_STEP_SUMMARY", "no/such/step.md")
            .output()
            .unwrap(),
    )
    .expect(0);
    assert!(
        warned
            .err
            .contains("warning: the summary no/such/step.md was not written"),
        "{}",
        warned.err
    );
}

#[test]
fn a_stored_run_is_judged_by_another_scenario_and_says_so() {
    let lab = Lab::new();
    let staged = "version: 1\nname: staged\ntarget: { api: simulator, simulator: { alpha: 2ms } }\nrequest: { max_tokens: 4 }\n\
        dataset: { kind: prompt, text: hello }\nload: { stages: [{ concurrency: 2, for: 500ms }, { concurrency: 4, for: 500ms }] }\n\
        slo: [ttft.max < 10s]\nreport: { formats: [md] }\naudit: { lag_p99: 10s, stall_p99: 10s, cpu: 100% }\n";
    lab.run(staged).expect(0);
    let own = lab.results();
    lab.file(
        "strict.yaml",
        "version: 1\nname: strict\ntarget: { api: simulator }\ndataset: { kind: prompt, text: x }\n\
        load: { concurrency: 1, requests: 1 }\nslo: [ttft.max < 1us]\n",
    );
    lab.llmscen(&["report", "out", "--slo", "strict.yaml"])
        .expect(1);
    assert_eq!(lab.results(), own, "the stored verdict stays");
    let judged = lab.json("out/slo/strict/results.json");
    let rulings: Vec<&Value> = judged["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| &case["slo"][0]["verdict"])
        .collect();
    assert_eq!(
        rulings,
        ["fail", "fail", "fail"],
        "the case and both of its stages"
    );
    let note = "judged against `slo` from `strict.yaml` (--slo), not from the original scenario";
    assert!(
        judged["notes"].as_array().unwrap().contains(&note.into())
            && lab.text("out/slo/strict/report.md").contains(note),
        "{judged:#}"
    );
    lab.llmscen(&["report", "out"]).expect(0);
    assert_eq!(lab.results(), own);
    lab.file("other.yaml", SWEEP);
    let ran = lab
        .llmscen(&["report", "out", "--slo", "other.yaml"])
        .expect(2);
    let why = "other.yaml has no case `base` of the run; it has: concurrency=2  concurrency=4.";
    assert!(ran.err.contains(why), "{}", ran.err);
}
