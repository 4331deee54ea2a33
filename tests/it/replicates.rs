//! Replication: rounds on restarted servers, several runs per side, baselines of many runs.

use crate::lab::*;
use serde_json::{Value, json};

/// A short run against a simulator that takes so long for a step.
fn quick(name: &str, alpha: &str, more: &str) -> String {
    format!(
        "version: 1\nname: {name}\ntarget: {{ url: simulator, simulator: {{ alpha: {alpha} }} }}\nrequest: {{ max_tokens: 4 }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 8, requests: 40 }}\nreport: {{ formats: [md] }}\n{more}\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    )
}

fn made(lab: &Lab, folder: &str, scenario: &str) {
    lab.file(&format!("{folder}.yaml"), scenario);
    lab.llmscen(&[
        "run",
        &format!("{folder}.yaml"),
        "--output",
        folder,
        "--quiet",
        "--inconclusive",
        "pass",
    ])
    .expect(0);
}

#[test]
fn rounds_on_restarted_servers_are_marked_and_compared() {
    let lab = Lab::new();
    let port = port();
    let scenario = format!(
        "version: 1\nname: t\ntarget:\n  url: http://127.0.0.1:{port}/v1/chat/completions\n  model: sim\n  server:\n    command: [llmscen, simulate, --listen, '127.0.0.1:{port}']\n    \
         ready: {{ log: 'http://' }}\n    restart: round\nrequest: {{ max_tokens: 4 }}\ndataset: {{ kind: prompt, text: hi }}\nload: {{ requests: 8, warmup: 1 }}\n\
         matrix: {{ load.concurrency: [1, 2] }}\nrounds: 3\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    );
    for folder in ["a", "b"] {
        lab.file("s.yaml", &scenario);
        let ran = lab
            .llmscen(&["run", "s.yaml", "--output", folder])
            .expect(0);
        assert!(
            ran.out.contains("server: 3 starts")
                && ran.out.contains("3 rounds, each on a restarted server."),
            "{}",
            ran.out
        );
    }
    let parts = lab.json("a/manifest.json")["parts"]
        .as_array()
        .unwrap()
        .clone();
    let starts: Vec<(u64, u64)> = parts
        .iter()
        .map(|part| {
            (
                part["round"].as_u64().unwrap(),
                part["server_start"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        starts,
        [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3), (2, 3)],
        "the cases of a round share its start"
    );
    let results = lab.json("a/results.json");
    assert_eq!(
        (
            &results["cases"][0]["restarted"],
            &results["cases"][0]["rounds"]
        ),
        (&json!(true), &json!(3))
    );
    assert!(
        lab.text("a/report.md")
            .contains("3 rounds, each on a restarted server.")
    );
    assert!(
        lab.text("a/report.html")
            .contains("3 rounds, each on a restarted server")
    );
    assert!(
        lab.path().join("a/server-3.log").exists() && !lab.path().join("a/server-4.log").exists()
    );
    let seen = lab
        .llmscen(&[
            "compare",
            "a",
            "b",
            "--max-regression",
            "1000",
            "--format",
            "json",
        ])
        .expect(0);
    let seen: Value = serde_json::from_str(&seen.out).unwrap();
    let row = &seen["comparisons"][0];
    assert_eq!(
        (&row["base"]["replicates"], &row["other"]["replicates"]),
        (&json!(3), &json!(3)),
        "each round is a value"
    );
    assert!(
        !seen["notes"].to_string().contains("one run per side"),
        "{seen}"
    );
}

#[test]
fn several_runs_a_side_are_compared_and_errors_are_clear() {
    let lab = Lab::new();
    for (folder, alpha) in [
        ("a1", "20ms"),
        ("a2", "20ms"),
        ("a3", "20ms"),
        ("b1", "40ms"),
        ("b2", "40ms"),
        ("b3", "40ms"),
    ] {
        made(&lab, folder, &quick("t", alpha, ""));
    }
    let base = ["compare", "--base", "a1", "a2", "a3", "--candidate"];
    let with = |more: &[&str]| lab.llmscen(&[&base[..], more].concat());
    let metrics = [
        "--metric",
        "tpot.p50",
        "--metric",
        "output_tps",
        "--metric",
        "error_rate",
    ];
    let slow = with(
        &[
            &["b1", "b2", "b3", "--format", "json", "--output", "cmp"],
            &metrics[..],
        ]
        .concat(),
    )
    .expect(1);
    let seen: Value = serde_json::from_str(&slow.out).unwrap();
    let rows = seen["comparisons"].as_array().unwrap();
    let of = |metric: &str| rows.iter().find(|row| row["metric"] == metric).unwrap();
    assert_eq!(
        (&of("tpot.p50")["finding"], &of("error_rate")["finding"]),
        (&json!("regression"), &json!("noise"))
    );
    assert_eq!(
        (
            rows.len(),
            &of("tpot.p50")["base"]["replicates"],
            &of("tpot.p50")["run"]
        ),
        (3, &json!(3), &json!("B"))
    );
    assert_eq!(
        seen["sides"],
        json!([{ "label": "A", "runs": ["A1", "A2", "A3"] }, { "label": "B", "runs": ["B1", "B2", "B3"] }])
    );
    let (page, html) = (lab.text("cmp/compare.md"), lab.text("cmp/compare.html"));
    for text in [&page, &html] {
        assert!(
            text.contains("s test on the logarithm of one value per run: A 3, B 3"),
            "{page}"
        );
    }
    assert!(
        page.contains("| A2 | `a2` |")
            && page.contains("(charts/forest_b.png)")
            && !page.contains("one run per side"),
        "{page}"
    );
    let table = with(&["b1", "b2", "b3"]).expect(1);
    assert!(
        table.out.contains("REGRESSION: ") && table.out.contains("B3"),
        "{}",
        table.out
    );
    // One run beside three: one more of them.
    let one = with(&[&["b1"], &metrics[..]].concat());
    assert!(
        one.out.contains(
            "Prediction interval of one more run on the logarithm of one value per run: A 3, B 1"
        ),
        "{}",
        one.out
    );
    let single = lab
        .llmscen(&[&["compare", "a1", "b1"], &metrics[..]].concat())
        .expect(1);
    assert_eq!(
        single
            .err
            .matches(
                "one run per side: differences below about 5 % may come from restarting the server"
            )
            .count(),
        1,
        "{}",
        single.err
    );

    std::fs::create_dir(lab.path().join("copy")).unwrap();
    for file in ["plan.yaml", "manifest.json", "requests.parquet"] {
        std::fs::copy(
            lab.path().join("a1").join(file),
            lab.path().join("copy").join(file),
        )
        .unwrap();
    }
    for (twice, other) in [("a1", "B (a1)"), ("copy", "B (copy)")] {
        let refused = with(&[twice]).expect(2);
        assert!(
            refused
                .err
                .contains(&format!("A1 (a1) and {other} are the same run")),
            "{}",
            refused.err
        );
    }
    made(
        &lab,
        "other",
        &quick("t", "20ms", "").replace("requests: 40", "requests: 41"),
    );
    let refused = with(&["b1", "other"]).expect(2);
    assert!(
        refused.err.contains(
            "runs A1 (a1) and B2 (other) ran different workloads:\n  load.requests: 40 → 41"
        ),
        "{}",
        refused.err
    );
    for wrong in [
        &["compare", "--base", "a1", "a2"][..],
        &["compare", "a1", "b1", "--base", "a2", "--candidate", "b2"],
    ] {
        lab.llmscen(wrong).expect(2);
    }
}

const GATE: &str =
    "baseline: { path: b.json, if_missing: inconclusive }\nslo: [tpot.p50 <= 1.5 * baseline]\n";

#[test]
fn several_runs_become_a_baseline_together_or_not_at_all() {
    let lab = Lab::new();
    for folder in ["r1", "r2", "r3"] {
        made(&lab, folder, &quick("t", "5ms", GATE));
    }
    let refused = lab.llmscen(&["baseline", "update", "r1", "r2", "lost", "--to", "b.json"]);
    assert!(
        refused.code == 2 && refused.err.contains("lost is not a run folder"),
        "{refused:?}"
    );
    assert!(!lab.path().join("b.json").exists());
    let saved = lab
        .llmscen(&["baseline", "update", "r3", "r1", "r2", "--to", "b.json"])
        .expect(0);
    assert!(
        saved.err.contains("of 3 runs; 3 runs in the file"),
        "{}",
        saved.err
    );
    let ids = |name: &str| lab.json(name)["run_id"].as_str().unwrap().to_owned();
    let runs = lab.json("b.json")["runs"].as_array().unwrap().clone();
    let stored: Vec<String> = runs
        .iter()
        .map(|run| run["run_id"].as_str().unwrap().to_owned())
        .collect();
    let expected = ["r1", "r2", "r3"].map(|folder| ids(&format!("{folder}/manifest.json")));
    assert_eq!(stored, expected, "by their start");
}

#[test]
fn the_newest_runs_of_a_folder_are_a_baseline() {
    let lab = Lab::new();
    let of_folder = GATE.replace(
        "{ path: b.json, if_missing: inconclusive }",
        "{ path: nights, runs: 5, of: median }",
    );
    lab.file("first.yaml", quick("t", "5ms", &of_folder));
    std::fs::create_dir(lab.path().join("nights")).unwrap();
    let none = lab.llmscen(&["plan", "first.yaml"]).expect(2);
    assert!(
        none.err.contains("`nights` cannot be used as a baseline")
            && none.err.contains("no run in"),
        "{}",
        none.err
    );
    for number in 1..=6 {
        made(&lab, &format!("nights/r{number}"), &quick("t", "5ms", GATE));
    }
    let other = quick("t", "5ms", GATE).replace("requests: 40", "requests: 41");
    made(&lab, "nights/other/r0", &other);
    std::fs::create_dir(lab.path().join("nights/broken")).unwrap();
    lab.file("nights/broken/manifest.json", "{");
    // The newest run has another plan than the six before, so it is alone.
    let alone = lab.llmscen(&["plan", "first.yaml"]).expect(0);
    assert!(
        alone.err.contains("runs of other plans are left out of the baseline: 6 (first difference: `load.requests` was 41, is 40)")
            && alone.err.contains("broken is left out: "),
        "{}",
        alone.err
    );
    std::fs::remove_dir_all(lab.path().join("nights/other")).unwrap();
    std::fs::remove_dir_all(lab.path().join("nights/broken")).unwrap();
    made(&lab, "out", &quick("t", "5ms", &of_folder));
    let slo = &lab.json("out/results.json")["cases"][0]["slo"][0];
    let mut values: Vec<f64> = (2..=6)
        .map(|number| {
            let results = lab.json(&format!("nights/r{number}/results.json"));
            results["cases"][0]["slo"][0]["observed"].as_f64().unwrap()
        })
        .collect();
    values.sort_by(f64::total_cmp);
    assert_eq!(slo["relative"]["runs"], json!(5), "{slo:#}");
    let value = slo["relative"]["value"].as_f64().unwrap();
    assert!((value / values[2] - 1.0).abs() < 1e-4, "{value} {values:?}");
    // The run folder keeps the baseline.
    std::fs::remove_dir_all(lab.path().join("nights")).unwrap();
    lab.llmscen(&["report", "out"]).expect(0);
    let again = &lab.json("out/results.json")["cases"][0]["slo"][0];
    assert_eq!(again, slo);
    for wrong in ["runs: 0", "runs: 21", "of: mode", "nights: 5"] {
        let text = of_folder.replace("runs: 5", wrong);
        lab.file("wrong.yaml", quick("t", "5ms", &text));
        let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
        assert!(
            refused.err.contains("runs: 10, of: median"),
            "{wrong}: {}",
            refused.err
        );
    }
}

#[test]
fn a_baseline_grows_by_a_run_and_decides_by_how_runs_vary() {
    let lab = Lab::new();
    let update = |folder: &str, more: &[&str]| {
        lab.llmscen(&[&["baseline", "update", folder, "--to", "b.json"], more].concat())
    };
    for number in 1..=5 {
        let folder = format!("r{number}");
        made(&lab, &folder, &quick("t", "20ms", GATE));
        let told = update(&folder, &[]).expect(0);
        if number == 2 {
            assert!(
                told.err
                    .contains("2 runs in the file, objectives use the newest until there are 5"),
                "{}",
                told.err
            );
            let few = lab.llmscen(&["baseline", "doctor", "b.json"]).expect(5);
            assert!(
                few.err
                    .contains("b.json has 2 runs; their variance needs at least 3: add 1 more run"),
                "{}",
                few.err
            );
        }
    }
    let file = lab.json("b.json");
    assert_eq!(
        (&file["schema"], file["runs"].as_array().unwrap().len()),
        (&json!("llmscen/baseline/2"), 5)
    );
    let figure = &file["cases"][0]["metrics"]["tpot.p50"];
    assert_eq!(figure["runs"].as_array().unwrap().len(), 5, "{figure}");
    assert!(
        lab.text("b.json")
            .lines()
            .filter(|line| line.contains("\"run_id\""))
            .count()
            == 5,
        "a run is a line"
    );

    made(&lab, "r6", &quick("t", "20ms", GATE));
    let slo = &lab.json("r6/results.json")["cases"][0]["slo"][0];
    let logs: Vec<f64> = figure["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value.as_f64().unwrap().ln())
        .collect();
    let mean = logs.iter().sum::<f64>() / 5.0;
    let sd = (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / 4.0).sqrt();
    // t(0.95; 4) = 2.131847.
    let reach = 2.131847 * sd * 1.2f64.sqrt();
    let of = |key: &str| slo["relative"][key].as_f64().unwrap();
    assert!(
        (of("value") / mean.exp() - 1.0).abs() < 1e-6 && slo["relative"]["runs"] == json!(5),
        "{slo:#}"
    );
    assert!(
        (of("high") / (mean + reach).exp() - 1.0).abs() < 1e-4,
        "{slo:#}"
    );
    assert!(
        (slo["bound"].as_f64().unwrap() / slo["observed"].as_f64().unwrap() / reach.exp() - 1.0)
            .abs()
            < 1e-4,
        "{slo:#}"
    );
    lab.llmscen(&[
        "run",
        "r6.yaml",
        "--set",
        "target.simulator.alpha=60ms",
        "--output",
        "slow",
    ])
    .expect(1);

    let doctor = lab
        .llmscen(&["baseline", "doctor", "b.json", "--format", "json"])
        .expect(0);
    let doctor: Value = serde_json::from_str(&doctor.out).unwrap();
    let own = doctor["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .find(|own| own["metric"] == "tpot.p50")
        .unwrap();
    assert!(
        (own["sd"].as_f64().unwrap() - sd.exp_m1()).abs() < 1e-4 && own["runs"] == json!(5),
        "{own}"
    );
    let table = lab.llmscen(&["baseline", "doctor", "r6.yaml"]).expect(0);
    assert!(
        table.out.contains("t: 5 runs in ")
            && table.out.contains("RUNS FOR 5%")
            && table.err.contains("SPREAD: "),
        "{}",
        table.out
    );

    // Another plan is refused; the first run again changes nothing.
    let before = lab.text("b.json");
    update("r1", &[]).expect(0);
    assert_eq!(lab.text("b.json"), before);
    made(
        &lab,
        "other",
        &quick("t", "20ms", "").replace("requests: 40", "requests: 41"),
    );
    let refused = update("other", &[]).expect(2);
    assert!(
        refused
            .err
            .contains("b.json contains runs of a different plan (`load.requests` was 40, is 41)"),
        "{}",
        refused.err
    );
    assert!(
        refused.err.contains("replace them with --replace") && lab.text("b.json") == before,
        "{}",
        refused.err
    );
    update("other", &["--replace"]).expect(0);
    assert_eq!(lab.json("b.json")["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_baseline_of_the_old_form_is_read_and_written_on() {
    let lab = Lab::new();
    for folder in ["r1", "r2"] {
        made(&lab, folder, &quick("t", "20ms", GATE));
    }
    lab.llmscen(&["baseline", "update", "r1", "--to", "new.json"])
        .expect(0);
    let mut old = lab.json("new.json");
    let run = old["runs"][0].clone();
    let whole = old.as_object_mut().unwrap();
    whole.remove("runs");
    whole.extend(run.as_object().unwrap().clone());
    whole.insert("schema".into(), json!("llmscen/baseline/1"));
    lab.file("b.json", old.to_string());
    made(&lab, "r3", &quick("t", "20ms", GATE));
    let relative = &lab.json("r3/results.json")["cases"][0]["slo"][0]["relative"];
    assert_eq!(
        (&relative["value"], &relative["runs"]),
        (
            &old["cases"][0]["metrics"]["tpot.p50"]["value"],
            &json!(null)
        )
    );
    lab.llmscen(&["baseline", "show", "b.json"]).expect(0);
    lab.llmscen(&["baseline", "update", "r2", "--to", "b.json"])
        .expect(0);
    let new = lab.json("b.json");
    let ids: Vec<&Value> = new["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| &own["run_id"])
        .collect();
    assert_eq!(
        (&new["schema"], ids[0], ids.len()),
        (&json!("llmscen/baseline/2"), &run["run_id"], 2)
    );
    assert_eq!(
        new["cases"][0]["metrics"]["tpot.p50"]["runs"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}
