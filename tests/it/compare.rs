//! `llmscen compare` on runs against the simulator.

use crate::lab::*;

/// A run against the simulator, with this speed and number of users.
fn simulated(lab: &Lab, folder: &str, alpha: &str, users: u32) {
    let scenario = format!(
        "version: 1\nname: pair\ntarget: {{ api: simulator, simulator: {{ alpha: {alpha}, jitter: 0.1 }} }}\n\
         request: {{ max_tokens: 8 }}\ndataset: {{ kind: random, tokens: {{ uniform: [20, 200] }} }}\n\
         load: {{ concurrency: {users}, requests: 120, warmup: 8 }}\nslo: [ttft.p95 < 10s]\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    );
    let file = format!("{folder}.yaml");
    lab.file(&file, scenario);
    lab.llmscen(&["run", &file, "--output", folder]).expect(0);
}

/// The measures that a busy machine does not touch: the simulator's pace is far over its noise.
const PACE: [&str; 4] = ["--metric", "tpot.p50", "--metric", "output_tps"];

fn finding<'a>(comparison: &'a serde_json::Value, metric: &str) -> &'a str {
    let rows = comparison["comparisons"].as_array().unwrap();
    rows.iter().find(|row| row["metric"] == metric).unwrap()["finding"]
        .as_str()
        .unwrap()
}

#[test]
fn equal_runs_pass_and_a_slowdown_fails() {
    let lab = Lab::new();
    for (folder, alpha) in [("a", "60ms"), ("b", "60ms"), ("slow", "78ms")] {
        simulated(&lab, folder, alpha, 16);
    }
    // A fifth of allowance: whatever else runs on this machine is no regression.
    let same = lab
        .llmscen(&[&["compare", "a", "b", "--max-regression", "20"], &PACE[..]].concat())
        .expect(0);
    assert!(
        same.out.contains("NO REGRESSION: 0 regressions"),
        "{}",
        same.out
    );
    let slower = lab.llmscen(
        &[
            &[
                "compare",
                "a",
                "slow",
                "--max-regression",
                "5",
                "--format",
                "json",
                "--output",
                "cmp",
            ],
            &PACE[..],
        ]
        .concat(),
    );
    let seen: serde_json::Value = serde_json::from_str(&slower.expect(1).out).unwrap();
    assert_eq!(
        (finding(&seen, "tpot.p50"), finding(&seen, "output_tps")),
        ("regression", "regression")
    );
    let ratio = &seen["comparisons"][0]["ratio"];
    assert!(
        (1.1..1.5).contains(&ratio["value"].as_f64().unwrap()),
        "{ratio}"
    );
    assert!(
        seen["notes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|note| note == "plan of B: target.simulator.alpha: 60ms → 78ms"),
        "{seen}"
    );
    assert_eq!(lab.json("cmp/compare.json"), seen);
    let page = lab.text("cmp/compare.md");
    for chart in ["forest_b", "compare_ttft", "compare_itl", "compare_e2e"] {
        assert!(page.contains(&format!("(charts/{chart}.png)")), "{page}");
        assert!(
            std::fs::read(lab.path().join(format!("cmp/charts/{chart}.png")))
                .unwrap()
                .starts_with(b"\x89PNG\r\n")
        );
    }
    let html = lab.text("cmp/compare.html");
    assert!(
        html.contains("<span class=\"badge fail\">REGRESSION</span>")
            && html.matches("<svg ").count() == 4
    );
    let faster = lab
        .llmscen(&[&["compare", "slow", "a", "--format", "csv"], &PACE[..]].concat())
        .expect(0);
    assert!(
        faster
            .out
            .lines()
            .skip(1)
            .all(|line| line.ends_with(",better")),
        "{}",
        faster.out
    );
    let twice = |name: &str| {
        lab.llmscen(&[
            "compare",
            "a",
            "b",
            "slow",
            "--max-regression",
            "1000",
            "--output",
            name,
        ])
        .expect(0);
        (
            lab.text(&format!("{name}/compare.md")),
            std::fs::read(lab.path().join(format!("{name}/charts/forest_c.png"))).unwrap(),
        )
    };
    assert_eq!(
        twice("one"),
        twice("two"),
        "the same runs give the same bytes"
    );
}

#[test]
fn different_plans_are_refused_unless_allowed() {
    let lab = Lab::new();
    simulated(&lab, "a", "1ms", 2);
    simulated(&lab, "b", "1ms", 4);
    let refused = lab.llmscen(&["compare", "a", "b"]).expect(2);
    assert!(
        refused
            .err
            .contains("runs A (a) and B (b) ran different workloads:\n  load.concurrency: 2 → 4\n"),
        "{}",
        refused.err
    );
    assert!(
        refused.err.contains("--allow-different") && refused.out.is_empty(),
        "{}",
        refused.err
    );
    let told = lab
        .llmscen(&[
            "compare",
            "a",
            "b",
            "--allow-different",
            "--max-regression",
            "100000",
        ])
        .expect(0);
    assert!(
        told.err
            .contains("note: plan of B: load.concurrency: 2 → 4\n"),
        "{}",
        told.err
    );
}

#[test]
fn servers_under_management_may_differ_and_their_loads_may_not() {
    let lab = Lab::new();
    let engine = |folder: &str, more: &str, load: &str| {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let scenario = format!(
            "version: 1\nname: pair\ntarget:\n  url: http://127.0.0.1:{port}/v1/chat/completions\n  model: sim\n  server: \
             {{ command: [llmscen, simulate, --listen, '127.0.0.1:{port}'], {more} }}\nrequest: {{ max_tokens: 4 }}\n\
             dataset: {{ kind: prompt, text: hi }}\nload: {{ {load} }}\nreport: {{ formats: [md] }}\n\
             audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
        );
        let file = format!("{folder}.yaml");
        lab.file(&file, scenario);
        lab.llmscen(&["run", &file, "--output", folder]).expect(0);
    };
    engine(
        "a",
        "ready: { log: 'http://' }",
        "concurrency: 1, requests: 20",
    );
    engine(
        "b",
        "ready: { log: listening }, env: { OMP_NUM_THREADS: 2 }, args: { set: target.simulator.alpha=2ms }",
        "concurrency: 1, requests: 20",
    );
    engine(
        "c",
        "ready: { log: listening }",
        "concurrency: 2, requests: 20",
    );
    let told = lab
        .llmscen(&[
            "compare",
            "a",
            "b",
            "--max-regression",
            "100000",
            "--inconclusive",
            "pass",
        ])
        .expect(0);
    for note in [
        "target.server.args: not set → {\"set\":\"target.simulator.alpha=2ms\"}",
        "target.server.ready.log: http:// → listening",
        "target.url: http://127",
    ] {
        assert!(
            told.err.contains(&format!("note: plan of B: {note}")),
            "{}",
            told.err
        );
    }
    let refused = lab.llmscen(&["compare", "b", "c"]).expect(2);
    assert!(
        refused.err.contains("\n  load.concurrency: 1 → 2\n") && !refused.err.contains("target."),
        "{}",
        refused.err
    );
}

#[test]
fn invalid_runs_and_wrong_arguments_have_different_exit_codes() {
    let lab = Lab::new();
    simulated(&lab, "a", "1ms", 2);
    let manifest = lab.text("a/manifest.json");
    for name in ["plan.yaml", "requests.parquet"] {
        lab.file(
            &format!("cut/{name}"),
            std::fs::read(lab.path().join("a").join(name)).unwrap(),
        );
    }
    lab.file(
        "cut/manifest.json",
        manifest.replace("\"interrupted\": false", "\"interrupted\": true"),
    );
    let seen = lab.llmscen(&["compare", "a", "cut"]).expect(4);
    assert!(
        seen.out.contains("INVALID: ") && seen.err.contains("note: B was interrupted"),
        "{}{}",
        seen.out,
        seen.err
    );
    assert!(
        seen.err.contains("note: A and B are the same run"),
        "{}",
        seen.err
    );
    for wrong in [
        &["compare", "a"][..],
        &["compare", "a", "gone"],
        &["compare", "a", "a", "--metric", "ttft"],
        &["compare", "a", "a", "--max-regression", "-1"],
        &["compare", "a", "a", "--correction", "some"],
    ] {
        lab.llmscen(wrong).expect(2);
    }
    lab.llmscen(&["compare", "a", "a"]).expect(0);
    // A folder of a run is not written over.
    lab.llmscen(&["compare", "a", "a", "--output", "a"])
        .expect(3);
}

#[test]
fn runs_with_no_case_in_common_say_nothing() {
    let lab = Lab::new();
    let scenario = "version: 1\nname: t\ntarget: { url: simulator, model: m }\ndataset: { kind: prompt, text: hi }\n\
                    request: { max_tokens: 4 }\nload: { concurrency: 1, requests: 20 }\nmatrix: { load.concurrency: [1, 2] }\n\
                    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\nreport: { formats: [md] }\n";
    lab.file("s.yaml", scenario);
    for (folder, only) in [("one", "concurrency=1"), ("two", "concurrency=2")] {
        lab.llmscen(&["run", "s.yaml", "--only", only, "--output", folder])
            .expect(0);
    }
    let seen = lab.llmscen(&["compare", "one", "two"]).expect(5);
    assert!(seen.out.contains("INCONCLUSIVE: "), "{}", seen.out);
    lab.llmscen(&["compare", "one", "two", "--inconclusive", "pass"])
        .expect(0);
}
