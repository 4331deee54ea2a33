//! Plans of variants and workloads: their cells, the starts of their servers, and runs that go on.

use crate::lab::*;
use polars::prelude::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::time::{Duration, Instant};

/// Limits of the self-audit that a busy machine keeps.
const LENIENT: &str =
    "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1%, idle: 100%, stalled: 100% }\n";

/// Two workloads on several variants of a managed simulator; `more`: further variants.
fn fleet(more: &str) -> String {
    format!(
        "version: 1\nname: fleet\ntarget: {{ url: 'http://127.0.0.1:{}/v1/chat/completions', model: sim, server: {{ preset: simulator }} }}\n\
         variants:\n  base: {{}}\n  small: {{ target.server.args: {{ max_num_seqs: 2 }} }}\n{more}\
         workloads:\n  chat: {{ dataset: {{ kind: openqa, path: builtin }}, slo: ['error_rate < 50%'] }}\n  \
         long: {{ dataset: {{ kind: random, tokens: 64 }} }}\n\
         request: {{ max_tokens: 4 }}\nload: {{ requests: 10 }}\nmatrix: {{ load.concurrency: [1, 2] }}\nrounds: 2\n\
         {LENIENT}",
        port()
    )
}

#[test]
fn one_start_serves_a_variant_and_a_failed_variant_costs_only_its_cells() {
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        fleet("  broken: { target.server.args: { max_num_seqs: many } }\n"),
    );
    let ran = lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(3);
    let results = lab.results();
    let cases = results["cases"].as_array().unwrap();
    let ok: Vec<(&str, u64)> = cases
        .iter()
        .map(|case| {
            (
                case["id"].as_str().unwrap(),
                case["counts"]["ok"].as_u64().unwrap(),
            )
        })
        .collect();
    let all = ["base", "small", "broken"]
        .iter()
        .flat_map(|variant| ["chat", "long"].map(|workload| format!("{variant},{workload}")))
        .flat_map(|cell| [1, 2].map(|users| format!("{cell},concurrency={users}")));
    let expected: Vec<(String, u64)> = all
        .map(|id| {
            let count = if id.starts_with("broken") { 0 } else { 20 };
            (id, count)
        })
        .collect();
    let found: Vec<(String, u64)> = ok.iter().map(|(id, ok)| ((*id).to_owned(), *ok)).collect();
    assert_eq!(found, expected);
    let logs = |name: &str| lab.path().join("out").join(name).exists();
    assert!(logs("server-3.log") && !logs("server-4.log"), "{ran:?}");
    let failed = lab.json("out/manifest.json")["failed"]
        .as_array()
        .unwrap()
        .clone();
    let reasons: Vec<&str> = failed
        .iter()
        .map(|case| case["why"].as_str().unwrap())
        .collect();
    assert_eq!(reasons.len(), 4, "{failed:?}");
    for why in &reasons {
        assert!(why.contains("its log ends with: 1 error in --set"), "{why}");
    }
    assert!(
        reasons[1].starts_with("not run: the server exited"),
        "{reasons:?}"
    );
}

/// The sent requests of a run: those of its columns that no server speed changes.
fn requests(lab: &Lab, folder: &str) -> DataFrame {
    let file = File::open(lab.path().join(folder).join("requests.parquet")).unwrap();
    let columns = [
        "case_id",
        "round",
        "seq",
        "phase",
        "request_id",
        "bytes_out",
        "prompt_tokens",
        "outcome",
    ];
    ParquetReader::new(file)
        .with_columns(Some(columns.map(str::to_owned).to_vec()))
        .finish()
        .unwrap()
}

fn facts(results: &Value) -> Vec<Value> {
    let cases = results["cases"].as_array().unwrap();
    cases
        .iter()
        .map(|case| {
            let verdicts: Vec<&Value> = case["slo"]
                .as_array()
                .unwrap()
                .iter()
                .map(|slo| &slo["verdict"])
                .collect();
            serde_json::json!([
                case["id"],
                case["labels"],
                case["rounds"],
                case["counts"],
                verdicts
            ])
        })
        .collect()
}

#[test]
fn a_killed_sweep_goes_on_and_reports_what_one_run_reports() {
    let lab = Lab::new();
    lab.file("s.yaml", fleet(""));
    lab.llmscen(&["run", "s.yaml", "--output", "whole"])
        .expect(0);
    let child = lab.spawn(&["run", "s.yaml", "--output", "cut"]);
    let (rounds, began) = (lab.path().join("cut/rounds.jsonl"), Instant::now());
    let finished = || fs::read_to_string(&rounds).map_or(0, |text| text.lines().count());
    while finished() < 5 {
        assert!(began.elapsed() < Duration::from_secs(60), "no five rounds");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    finish(child);
    let kept = finished();
    let ran = lab.llmscen(&["run", "--continue", "cut"]).expect(0);
    assert!(
        requests(&lab, "whole").equals_missing(&requests(&lab, "cut")),
        "{ran:?}"
    );
    let (whole, cut) = (lab.json("whole/results.json"), lab.json("cut/results.json"));
    assert_eq!(facts(&whole), facts(&cut));
    assert_eq!(
        (&whole["verdict"], &whole["plan_id"]),
        (&cut["verdict"], &cut["plan_id"])
    );
    let notes = cut["notes"].to_string();
    assert!(
        notes.contains(&format!("{kept} of its 16 rounds are from before it"))
            || notes.contains(&format!("{} of its 16 rounds are from before it", kept + 1)),
        "{kept}: {notes}"
    );
    for left in ["rounds.jsonl", "earlier.parquet", "journal.bin"] {
        assert!(!lab.path().join("cut").join(left).exists(), "{left}");
    }
    let again = lab.llmscen(&["run", "--continue", "cut"]).expect(2);
    assert!(
        again.err.contains(
            "all its rounds have finished; write its report again with: llmscen report cut"
        ),
        "{again:?}"
    );
}

#[test]
fn a_run_with_a_failed_variant_goes_on_after_its_report() {
    let lab = Lab::new();
    let server = port();
    let scenario = format!(
        "version: 1\nname: t\ntarget: {{ url: 'http://127.0.0.1:{server}/v1/chat/completions', model: sim, \
         server: {{ command: '{{{{ vars.program }}}} simulate --listen 127.0.0.1:{server}', ready: {{ url: 'http://127.0.0.1:{server}/health' }} }} }}\n\
         vars: {{ program: llmscen }}\n\
         variants: {{ base: {{}}, late: {{ target.server.command: './late simulate --listen 127.0.0.1:{server}' }} }}\n\
         dataset: {{ kind: prompt, text: x }}\nrequest: {{ max_tokens: 4 }}\nload: {{ concurrency: 1, requests: 5 }}\n{LENIENT}"
    );
    lab.file("s.yaml", scenario);
    lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(3);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_llmscen"), lab.path().join("late")).unwrap();
    lab.llmscen(&["run", "--continue", "out"]).expect(0);
    let results = lab.results();
    let ok: Vec<u64> = results["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["counts"]["ok"].as_u64().unwrap())
        .collect();
    assert_eq!(ok, [5, 5]);
}

#[test]
fn a_plan_of_hundreds_of_cells_is_a_table_of_ladders() {
    let lab = Lab::new();
    let text = fleet("").replace("[1, 2]", "{ doubling: [1, 512] }, only: [{ variant: small, workload: long, load.concurrency: '4..8' }]");
    lab.file("s.yaml", text);
    let plan = lab.llmscen(&["plan", "s.yaml"]).expect(0);
    assert!(
        plan.out.starts_with(
            "32 cases by load.concurrency, with the number of values:\n\n\
             VARIANT  CHAT         LONG\n\
             base     1..512 (10)  1..512 (10)\n\
             small    1..512 (10)  4, 8\n"
        ),
        "{}",
        plan.out
    );
    assert!(
        plan.out
            .contains("server starts: 2, which take as long as the server needs"),
        "{}",
        plan.out
    );
    let only = [
        "plan",
        "s.yaml",
        "--only",
        "variant=base,concurrency=4..8",
        "--skip",
        "workload=long",
    ];
    let plan = lab.llmscen(&only).expect(0);
    let ids: Vec<&str> = plan
        .out
        .lines()
        .filter_map(|line| {
            line.split_whitespace()
                .next()
                .filter(|word| word.starts_with("base,"))
        })
        .collect();
    assert_eq!(ids, ["base,chat,concurrency=4", "base,chat,concurrency=8"]);
}

#[test]
fn the_plans_of_pipelines_run_as_they_are() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/ci");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 6, "{names:?}");
    let page = include_str!("../../docs/reference/scenarios.md");
    each(&names, |name| {
        assert!(
            page.contains(&format!("scenarios/ci/{name}")),
            "{name} is not in the list"
        );
        let lab = Lab::new();
        let file = folder.join(name);
        let run = |args: &[&str]| {
            let url = format!("http://127.0.0.1:{}/v1/chat/completions", port());
            let mut command = lab.command(args);
            Ran::of(command.env("LLM_URL", url).output().unwrap())
        };
        let file = file.to_str().unwrap();
        run(&["validate", file]).expect(0);
        let plan = run(&["plan", file]).expect(0);
        assert!(!plan.err.contains("warning"), "{name}: {}", plan.err);
        let lenient = [
            "audit.lag_p99=10s",
            "audit.stall_p99=10s",
            "audit.cpu=100%",
            "audit.achieved=1%",
            "audit.idle=100%",
            "audit.stalled=100%",
        ];
        let settings = lenient.iter().flat_map(|setting| ["--set", setting]);
        let args: Vec<&str> = ["run", file, "--output", "out", "--seed", "7"]
            .into_iter()
            .chain(settings)
            .collect();
        let ran = run(&args);
        // On a busy machine, objectives may fail or be inconclusive; nothing else may happen.
        assert!([0, 1, 5].contains(&ran.code), "{name}: {ran:?}");
        let results = lab.results();
        for case in results["cases"].as_array().unwrap() {
            let counts = &case["counts"];
            assert!(counts["ok"].as_u64() > Some(0), "{name}: {case}");
            assert_eq!(counts["ok"], counts["scheduled"], "{name}: {case}");
        }
        let variants: std::collections::BTreeSet<&str> = results["cases"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|case| case["labels"]["variant"].as_str())
            .collect();
        let logs = fs::read_dir(lab.path().join("out"))
            .unwrap()
            .filter(|entry| {
                let name = entry.as_ref().unwrap().file_name();
                name.to_string_lossy().ends_with(".log")
            })
            .count();
        assert_eq!(logs, variants.len().max(1), "{name}: one start per variant");
    });
}

#[test]
fn variants_are_ranked_by_their_capacity_and_cost() {
    let lab = Lab::new();
    // A request takes about 60 ms; with more users than slots, it waits for another one first.
    let scenario = format!(
        "version: 1\nname: t\ntarget: {{ url: simulator, cost: 3.60 USD/h per gpu, simulator: {{ alpha: 10ms }} }}\n\
         variants:\n  big: {{ target: {{ gpus: 4, simulator: {{ max_num_seqs: 8 }} }} }}\n  \
         small: {{ target: {{ gpus: 1, simulator: {{ max_num_seqs: 4 }} }} }}\n\
         matrix: {{ load.concurrency: [2, 4, 8, 16] }}\n\
         request: {{ max_tokens: 6 }}\ndataset: {{ kind: prompt, text: hello }}\nload: {{ requests: 120 }}\n\
         slo: [{{ expr: ttft.p50 < 45ms, confidence: point }}, 'cost_per_million_output_tokens < 1000']\n{LENIENT}"
    );
    let ran = lab.run(&scenario);
    let report = lab.text("out/report.md");
    let start = report.find("## Capacity of each configuration").unwrap();
    let rows: Vec<Vec<&str>> = report[start..]
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2)
        .take(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let known: Vec<_> = rows.iter().map(|row| row[..6].to_vec()).collect();
    assert_eq!(
        known,
        [
            ["1", "small", "4", "8 does not pass", "1", "4"],
            ["2", "big", "8", "16 does not pass", "4", "2"],
        ],
        "{report}"
    );
    assert!(
        ran.out.contains("CONFIGURATION") && ran.out.contains("PER GPU"),
        "{}",
        ran.out
    );
    let results = lab.results();
    let metrics = &results["cases"][0]["metrics"];
    let figure = |name: &str| metrics[name].as_f64().unwrap();
    // 4 GPUs at 3.60 per hour are 0.004 per second.
    let expected = 0.004 * 1e6 / figure("output_tps");
    assert!((figure("cost_per_million_output_tokens") / expected - 1.0).abs() < 1e-9);
    assert!(metrics["cost_per_thousand_sessions"].is_null());
    let cost = &results["cases"][0]["slo"][1];
    assert_eq!(cost["verdict"], "pass", "{cost:#}");
    let (observed, bound) = (
        cost["observed"].as_f64().unwrap(),
        cost["bound"].as_f64().unwrap(),
    );
    assert!(observed < bound && bound < 1000.0, "{cost:#}");
    let notes = results["notes"].to_string();
    assert!(notes.contains("at 3.6 USD per hour and GPU"), "{notes}");
    crate::numbers::agree(&[lab.path().join("out")]);
    for (cost, expected) in [
        ("3.60 USD", "a price such as"),
        ("free", "a price such as"),
        ("-1 USD/h", "a price such as"),
        ("2 USD/h per node", "a price such as"),
    ] {
        lab.file("wrong.yaml", scenario.replace("3.60 USD/h per gpu", cost));
        let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
        assert!(refused.err.contains(expected), "{cost}: {}", refused.err);
    }
    lab.file("wrong.yaml", scenario.replace("gpus: 1, ", ""));
    let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
    assert!(
        refused
            .err
            .contains("a price per GPU, but the number of GPUs is not known"),
        "{}",
        refused.err
    );
    lab.file(
        "wrong.yaml",
        scenario.replace("cost: 3.60 USD/h per gpu, ", ""),
    );
    let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
    assert!(
        refused.err.contains("the price of the target is not known"),
        "{}",
        refused.err
    );
}
