//! Memory use: during a run, records are on disk, and a report reads them part by part. Out of memory, the run ends with an
//! error.

use crate::lab::{Lab, Ran};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Requests that are dropped as soon as they are due, but for the one that waits for its first byte: they cost a row and nothing
/// else.
fn dropping(rate: u32, seconds: u32) -> String {
    format!(
        "version: 1\nname: m\ntarget: {{ url: simulator, simulator: {{ alpha: 60s }} }}\ndataset: {{ kind: prompt, text: x }}\n\
         request: {{ max_tokens: 1 }}\nreport: {{ formats: [md] }}\n\
         load: {{ rate: {rate}/s, duration: {seconds}s, max_in_flight: 1, graceful_stop: 0s }}\n"
    )
}

/// Resident memory of a process in bytes: now, and at its highest.
pub fn memory(process: &Child) -> Option<[u64; 2]> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(
            1024 * line
                .trim_matches(|letter: char| !letter.is_ascii_digit())
                .parse::<u64>()
                .ok()?,
        )
    };
    Some([line("VmRSS:")?, line("VmHWM:")?])
}

/// Rows of a run and its resident memory, at each line of its progress.
fn sent(lab: &Lab, (rate, seconds): (u32, u32), out: &str) -> Vec<(u64, u64)> {
    lab.file("s.yaml", dropping(rate, seconds));
    let mut command = lab.command(&["run", "s.yaml", "--output", out, "--progress", "json"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut seen = Vec::new();
    for line in lines {
        let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if let (Some("progress"), Some([now, _])) = (event["event"].as_str(), memory(&child)) {
            seen.push((event["done"].as_u64().unwrap(), now));
        }
    }
    child.wait().unwrap();
    seen
}

/// The most memory that the report of a run takes.
fn reported(lab: &Lab, out: &str) -> u64 {
    let mut command = lab.command(&["report", out]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = memory(&child).map_or(most, |[_, highest]| highest.max(most));
        std::thread::sleep(Duration::from_millis(2));
    }
    most
}

#[test]
fn rows_are_not_kept_in_memory_while_requests_are_sent_and_cost_little_in_a_report() {
    let lab = Lab::new();
    let seen = sent(&lab, (8000, 2), "long");
    // Buffers that are filled once are filled by then.
    let (first, last) = (
        *seen.iter().find(|(rows, _)| *rows >= 4000).unwrap(),
        *seen.last().unwrap(),
    );
    assert!(last.0 > 8_000, "{seen:?}");
    let each = last.1.saturating_sub(first.1) as f64 / (last.0 - first.0) as f64;
    assert!(
        each < 300.0,
        "{each:.0} bytes a request while sending: {seen:?}"
    );

    let rows = [sent(&lab, (1000, 1), "short").last().unwrap().0, last.0];
    let most = ["short", "long"].map(|out| reported(&lab, out));
    let each = most[1].saturating_sub(most[0]) as f64 / (rows[1] - rows[0]) as f64;
    assert!(
        each < 1200.0,
        "{each:.0} bytes a request in the report of {rows:?}: {most:?}"
    );
}

/// A run under a limit of its address space, in KiB. One that does not end is killed.
fn limited(lab: &Lab, kib: u32) -> Ran {
    let began = Instant::now();
    let tool = env!("CARGO_BIN_EXE_llmscen");
    let shell = format!("ulimit -v {kib}; exec '{tool}' run s.yaml --output out-{kib} --quiet");
    let mut command = std::process::Command::new("/bin/sh");
    command
        .args(["-c", &shell])
        .current_dir(lab.path())
        .env_clear()
        .env("HOME", lab.path());
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(90) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    Ran {
        code: child.wait().unwrap().code().unwrap_or(-1),
        out: String::new(),
        err,
    }
}

#[test]
fn a_run_that_memory_does_not_suffice_for_ends_as_an_error() {
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        "version: 1\nname: m\ntarget: { url: simulator }\ndataset: { kind: prompt, text: x }\nrequest: { max_tokens: 2 }\n\
         load: { concurrency: 4, requests: 20 }\n",
    );
    // Limits from almost nothing to enough: different steps fail at each.
    let ran: Vec<(u32, Ran)> = (0..6)
        .map(|step| 170_000 + 35_000 * step)
        .map(|kib| (kib, limited(&lab, kib)))
        .collect();
    for (kib, ran) in &ran {
        // Below some limit the program is not even loaded.
        // With enough memory, a busy machine may still make the measurement invalid (4).
        let unloaded = ran.code == 127
            || ran.err.contains("cannot allocate memory")
            || ran.err.contains("failed to map");
        assert!(
            unloaded || [0, 3, 4].contains(&ran.code),
            "{kib} KiB: {ran:?}"
        );
        assert!(
            ran.code != 3 || ran.err.contains("memory") || ran.err.contains("thread"),
            "{kib} KiB: {ran:?}"
        );
    }
    assert!(ran.iter().any(|(_, ran)| ran.code == 3), "{ran:?}");
}
