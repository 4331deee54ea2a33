//! Run folders that are damaged, shared by two processes, or left by a killed one.

use crate::lab::*;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const SHORT: &str = "version: 1\nname: t\ntarget: { url: simulator, model: m, simulator: { alpha: 1ms } }\n\
    dataset: { kind: prompt, text: hello }\nload: { concurrency: 2, requests: 20 }\nrequest: { max_tokens: 4 }\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n\
    report: { formats: [md], bodies: all }\n";

const LONG: &str = "version: 1\nname: long\ntarget: { api: simulator, simulator: { alpha: 5ms } }\n\
    request: { max_tokens: 8 }\ndataset: { kind: prompt, text: hello }\n\
    load: { concurrency: 4, duration: 60s, graceful_stop: 5s }\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100% }\nreport: { formats: [md] }\n";

/// Starts the long run in `out`, and waits until its journal has this size.
fn begin(lab: &Lab, bytes: u64) -> Child {
    lab.file("s.yaml", LONG);
    let child = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    let (journal, began) = (lab.path().join("out/journal.bin"), Instant::now());
    while !fs::metadata(&journal).is_ok_and(|file| file.len() > bytes) {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "no journal after a minute"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn every_command_refuses_a_damaged_folder_by_the_file() {
    let lab = Lab::new();
    lab.run(SHORT).expect(0);
    let check = Command::new("sha256sum")
        .args(["-c", "checksums.sha256"])
        .current_dir(lab.path().join("out"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(
        check.status.success()
            && said.contains("requests.parquet: OK")
            && said.contains("requests.db: OK"),
        "{said}"
    );
    let before = lab.text("out/results.json");
    let commands: [&[&str]; 3] = [
        &["report", "out"],
        &["compare", "out", "out"],
        &["baseline", "update", "out", "--to", "b.json"],
    ];
    for name in [
        "requests.parquet",
        "telemetry.parquet",
        "manifest.json",
        "plan.yaml",
    ] {
        let path = lab.path().join("out").join(name);
        flip(&path, 100);
        for command in commands {
            let ran = lab.llmscen(command).expect(2);
            let damaged = format!(
                "out/{name} is damaged: its content does not match checksums.sha256; restore it from a copy, or"
            );
            assert!(ran.err.contains(&damaged), "{command:?}: {}", ran.err);
        }
        flip(&path, 100);
    }
    flip(&lab.path().join("out/requests.db"), 5000);
    let ran = lab.llmscen(&["bodies", "out"]).expect(2);
    assert!(
        ran.err.contains("out/requests.db is damaged"),
        "{}",
        ran.err
    );
    flip(&lab.path().join("out/requests.db"), 5000);
    fs::rename(
        lab.path().join("out/telemetry.parquet"),
        lab.path().join("t.parquet"),
    )
    .unwrap();
    assert!(
        lab.llmscen(commands[0])
            .expect(2)
            .err
            .contains("telemetry.parquet is damaged: it is missing")
    );
    fs::rename(
        lab.path().join("t.parquet"),
        lab.path().join("out/telemetry.parquet"),
    )
    .unwrap();
    lab.file(
        "base.yaml",
        format!("{SHORT}baseline: out\nslo: [\"ttft.p50 <= 9 * baseline\"]\n"),
    );
    flip(&lab.path().join("out/manifest.json"), 100);
    let ran = lab.llmscen(&["plan", "base.yaml"]).expect(2);
    assert!(
        ran.err.contains("out/manifest.json is damaged"),
        "{}",
        ran.err
    );
    flip(&lab.path().join("out/manifest.json"), 100);
    lab.llmscen(commands[0]).expect(0);
    assert_eq!(lab.text("out/results.json"), before);
    lab.llmscen(&["bodies", "out"]).expect(0);
}

#[test]
fn a_folder_of_an_earlier_version_is_read_with_a_note_and_gets_its_checksums() {
    let lab = Lab::new();
    lab.run(SHORT).expect(0);
    let (sums, results) = (
        lab.text("out/checksums.sha256"),
        lab.text("out/results.json"),
    );
    fs::remove_file(lab.path().join("out/checksums.sha256")).unwrap();
    let note = "note: out has no checksums.sha256, so its files are not checked for damage";
    assert!(
        lab.llmscen(&["compare", "out", "out"])
            .expect(0)
            .err
            .contains(note)
    );
    assert!(lab.llmscen(&["report", "out"]).expect(0).err.contains(note));
    assert_eq!(
        (
            lab.text("out/checksums.sha256"),
            lab.text("out/results.json")
        ),
        (sums, results)
    );
    assert!(!lab.llmscen(&["report", "out"]).expect(0).err.contains(note));
}

#[test]
fn the_sample_has_its_checksums() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/reports/sample");
    let check = Command::new("sha256sum")
        .args(["-c", "checksums.sha256"])
        .current_dir(sample)
        .output()
        .unwrap();
    assert!(
        check.status.success(),
        "{}",
        String::from_utf8_lossy(&check.stdout)
    );
    let ran = Lab::new().llmscen(&["compare", sample, sample]);
    assert!(ran.code == 0 && !ran.err.contains("checksums"), "{ran:?}");
}

#[test]
fn a_parquet_file_that_the_decoder_panics_on_is_an_error() {
    let lab = Lab::new();
    lab.run(SHORT).expect(0);
    let rows = fs::read(lab.path().join("out/requests.parquet")).unwrap();
    fs::remove_file(lab.path().join("out/checksums.sha256")).unwrap();
    // The footer of a Parquet file ends 8 bytes before its end, with its length.
    let length =
        u32::from_le_bytes(rows[rows.len() - 8..rows.len() - 4].try_into().unwrap()) as usize;
    for at in (0..12).map(|n| rows.len() - 8 - length + n * length / 12) {
        let mut bytes = rows.clone();
        bytes[at] ^= 0x55;
        lab.file("out/requests.parquet", bytes);
        let ran = lab.llmscen(&["compare", "out", "out"]);
        assert!(
            (0..=5).contains(&ran.code) && !ran.err.contains("panicked"),
            "{ran:?}"
        );
    }
    lab.file("out/requests.parquet", &rows[..rows.len() / 2]);
    let ran = lab.llmscen(&["compare", "out", "out"]).expect(2);
    assert!(
        ran.err.contains("cannot read out/requests.parquet: ")
            && ran.err.contains("; restore the file from a copy"),
        "{ran:?}"
    );
}

#[test]
fn a_journal_that_is_damaged_in_its_middle_is_read_to_its_end() {
    let lab = Lab::new();
    let mut child = begin(&lab, 6000);
    child.kill().unwrap();
    child.wait().unwrap();
    let path = lab.path().join("out/journal.bin");
    let copy = fs::read(&path).unwrap();
    lab.llmscen(&["report", "out"]).expect(130);
    let ok = |lab: &Lab| lab.results()["cases"][0]["counts"]["ok"].as_u64().unwrap();
    let whole = ok(&lab);
    for name in ["requests.parquet", "checksums.sha256"] {
        fs::remove_file(lab.path().join("out").join(name)).unwrap();
    }
    lab.file("out/journal.bin", &copy);
    flip(&path, 3000);
    lab.llmscen(&["report", "out"]).expect(130);
    assert_eq!(
        ok(&lab),
        whole - 1,
        "one request is lost, and none after it"
    );
    let report = lab.text("out/report.md");
    assert!(
        report.contains("journal.bin is damaged in 1 place: "),
        "{report}"
    );
}

#[test]
fn a_folder_takes_one_run_at_a_time_and_no_report_meanwhile() {
    let lab = Lab::new();
    let child = begin(&lab, 2000);
    lab.file("short.yaml", SHORT);
    let in_use = format!(
        "out is in use: another llmscen (process {}) is writing to this folder; wait until it ends",
        child.id()
    );
    for args in [
        &["run", "short.yaml", "--output", "out"][..],
        &["run", "short.yaml", "--output", "out", "--force"],
    ] {
        let ran = lab.llmscen(args).expect(3);
        assert!(ran.err.contains(&in_use), "{}", ran.err);
    }
    assert!(
        lab.llmscen(&["report", "out"])
            .expect(2)
            .err
            .contains(&in_use)
    );
    let compared = lab.llmscen(&["compare", "out", "out"]).expect(4);
    assert!(
        compared.err.contains("the run has not ended yet"),
        "{}",
        compared.err
    );
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    finish(child).expect(130);
    assert_eq!(lab.results()["name"], "long");
    lab.llmscen(&["report", "out"]).expect(130);
    lab.llmscen(&["run", "short.yaml", "--output", "out", "--force"])
        .expect(0);
}

#[test]
fn the_end_of_the_terminal_drains_and_reports() {
    let lab = Lab::new();
    let mut child = begin(&lab, 2000);
    // Nothing reads its further output.
    drop((child.stdout.take(), child.stderr.take()));
    // The system and the shell both send it.
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let counts = lab.results()["cases"][0]["counts"].clone();
    assert_eq!(
        counts["ok"], counts["scheduled"],
        "requests in flight were drained: {counts}"
    );
    assert!(lab.text("out/report.md").contains("nterrupted"));
}

#[test]
fn a_closed_output_pipe_does_not_stop_a_report() {
    let lab = Lab::new();
    lab.file("s.yaml", SHORT);
    let mut child = lab.spawn(&["run", "s.yaml", "--output", "out", "--format", "md"]);
    child.stderr.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(lab.path().join("out/report.md").exists());
}
