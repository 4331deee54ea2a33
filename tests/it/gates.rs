//! Objectives relative to a baseline: creating it, and judging later runs against it.

use crate::lab::*;
use std::fs;

const SLO: &str = "slo: [\"tpot.mean <= 1.3 * baseline\", \"tpot.p50 <= 1.3 * baseline\", \"goodput(ttft < 10s) >= 0.9 * baseline\"]\n";

/// A gate against a simulator that takes so long for a step.
fn gate(alpha: &str, baseline: &str, slo: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: simulator, simulator: {{ alpha: {alpha} }} }}\nrequest: {{ max_tokens: 6 }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 16, requests: 160 }}\nbaseline: {baseline}\n{slo}\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    )
}

/// A lab with a baseline of a run at 60 ms a step.
fn with_baseline() -> Lab {
    let lab = Lab::new();
    let first = lab.run(&gate("60ms", "none", SLO)).expect(5);
    assert!(first.err.contains("no baseline yet"), "{}", first.err);
    lab.llmscen(&["baseline", "update", "out", "--to", "base/t.json"])
        .expect(0);
    lab
}

fn rulings(lab: &Lab) -> Vec<String> {
    let results = lab.results();
    results["cases"][0]["slo"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slo| slo["verdict"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn an_equal_run_does_not_fail_and_a_slower_one_does() {
    let lab = with_baseline();
    let equal = lab.run(&gate("60ms", "base/t.json", SLO));
    assert!([0, 5].contains(&equal.code), "{}\n{}", equal.out, equal.err);
    assert!(
        !rulings(&lab).contains(&"fail".to_owned()),
        "{:?}",
        rulings(&lab)
    );
    assert!(!equal.err.contains("different scenario"), "{}", equal.err);
    let slow = lab.run(&gate("150ms", "base/t.json", SLO)).expect(1);
    assert_eq!(rulings(&lab)[0], "fail");
    // On a busy machine equal paces drift together, so that few are independent of each other.
    assert!(["fail", "inconclusive"].contains(&&*rulings(&lab)[1]));
    assert!(
        slow.err.contains(
            "recorded with a different scenario: `target.simulator.alpha` was 60ms, is 150ms"
        ),
        "{}",
        slow.err
    );
    assert!(slow.out.contains("1.30 × baseline (6"), "{}", slow.out);
    let slo = &lab.results()["cases"][0]["slo"][0];
    let of = |key: &str| slo["relative"][key].as_f64().unwrap();
    assert!(
        (slo["limit"].as_f64().unwrap() - 1.3 * of("value")).abs() < 1e-6,
        "{slo:#}"
    );
    assert!(
        of("low") <= of("value") && of("value") <= of("high") && of("n") == 160.0,
        "{slo:#}"
    );
    assert!(
        lab.text("out/junit.xml").contains("1.30 × baseline")
            && lab.text("out/report.md").contains("1.30 × baseline")
    );
}

#[test]
fn a_baseline_is_written_byte_for_byte_again_one_statistic_a_line() {
    let lab = with_baseline();
    let first = lab.text("base/t.json");
    lab.llmscen(&["baseline", "update", "out", "--to", "base/t.json"])
        .expect(0);
    assert_eq!(lab.text("base/t.json"), first);
    for name in [
        "tpot.mean",
        "ttft.p95",
        "output_tps",
        "error_rate",
        "goodput(ttft < 10000ms)",
    ] {
        let lines: Vec<&str> = first
            .lines()
            .filter(|line| line.contains(&format!("\"{name}\": {{")))
            .collect();
        assert_eq!(lines.len(), 1, "{name}");
        assert!(
            lines[0].contains("\"low\": [") && lines[0].trim_end_matches(',').ends_with('}'),
            "{}",
            lines[0]
        );
    }
    let shown = lab.llmscen(&["baseline", "show", "base/t.json"]).expect(0);
    assert!(
        shown.out.contains("ttft.p95") && shown.out.contains("goodput(ttft < 10000ms)"),
        "{}",
        shown.out
    );
}

#[test]
fn a_report_keeps_its_baseline_when_the_file_has_gone() {
    let lab = with_baseline();
    lab.run(&gate("90ms", "base/t.json", SLO)).expect(1);
    let (results, file) = (lab.text("out/results.json"), lab.path().join("base/t.json"));
    fs::remove_file(&file).unwrap();
    lab.llmscen(&["report", "out"]).expect(1);
    assert_eq!(
        lab.text("out/results.json"),
        results,
        "the run folder has a copy"
    );
    // An update writes the file that the scenario of the run names.
    lab.llmscen(&["baseline", "update", "out"]).expect(0);
    assert!(file.exists());
    fs::remove_file(&file).unwrap();
    fs::remove_file(lab.path().join("out/baseline.json")).unwrap();
    assert!(
        lab.llmscen(&["report", "out"])
            .expect(2)
            .err
            .contains("baseline.json is damaged: it is missing")
    );
    fs::remove_file(lab.path().join("out/checksums.sha256")).unwrap();
    let gone = lab.llmscen(&["report", "out"]).expect(5);
    assert!(
        gone.err
            .contains("t.json not found; objectives relative to it will be inconclusive"),
        "{}",
        gone.err
    );
    assert_eq!(rulings(&lab), ["inconclusive"; 3]);
    assert!(lab.results()["cases"][0]["slo"][0]["limit"].is_null());
}

#[test]
fn limits_of_another_scenario_are_not_held_against_a_case_that_they_know_nothing_of() {
    let lab = with_baseline();
    let two = gate("60ms", "none", "").replace(
        "load: { concurrency: 16,",
        "matrix: { load.concurrency: [4, 16] }\nload: { concurrency: 16,",
    );
    lab.run(&two.replace("requests: 160", "requests: 8"))
        .expect(0);
    lab.file("judge.yaml", gate("60ms", "base/t.json", SLO));
    let ran = lab
        .llmscen(&["report", "out", "--slo", "judge.yaml"])
        .expect(2);
    assert!(
        ran.err
            .contains("is relative to values of `base` and cannot judge `concurrency=4`"),
        "{}",
        ran.err
    );
    lab.file("none.yaml", gate("60ms", "none", ""));
    let ran = lab
        .llmscen(&["report", "out", "--slo", "none.yaml"])
        .expect(2);
    assert!(ran.err.contains("defines no `slo`"), "{}", ran.err);
}

#[test]
fn a_run_folder_is_a_baseline_too() {
    let lab = Lab::new();
    lab.run(&gate("60ms", "none", SLO)).expect(5);
    fs::rename(lab.path().join("out"), lab.path().join("earlier")).unwrap();
    lab.run(&gate("90ms", "earlier", SLO)).expect(1);
    assert_eq!(rulings(&lab)[0], "fail");
    lab.run(&gate("90ms", "earlier/results.json", SLO))
        .expect(1);
    let bare = lab.llmscen(&["baseline", "update", "out"]);
    assert!(
        bare.code == 2 && bare.err.contains("pass another file with --to FILE"),
        "{}",
        bare.err
    );
}

#[test]
fn a_run_that_is_not_sound_is_no_baseline_unless_forced() {
    let lab = Lab::new();
    let unsound =
        gate("2ms", "none", "slo: [\"output_tps >= 1\"]\n").replace("cpu: 100%", "cpu: 0.001%");
    lab.run(&unsound).expect(4);
    let refused = lab.llmscen(&["baseline", "update", "out", "--to", "b.json"]);
    assert!(
        refused.code == 2 && refused.err.contains("is invalid: "),
        "{}",
        refused.err
    );
    assert!(!lab.path().join("b.json").exists());
    lab.llmscen(&["baseline", "update", "out", "--to", "b.json", "--force"])
        .expect(0);
    assert!(lab.path().join("b.json").exists());
    let nameless = lab.llmscen(&["baseline", "update", "out", "--force"]);
    assert!(
        nameless.code == 2 && nameless.err.contains("--to FILE"),
        "{}",
        nameless.err
    );
}

#[test]
fn a_reference_and_a_preset_are_judged() {
    let slo = "reference: { output_tps: 1000000, tpot.p50: 1s }\nslo: [\"output_tps >= 0.9 * reference\", \"tpot.p50 <= 2 * reference\", { preset: reading/silent, confidence: 0.9 }]\n";
    let lab = Lab::new();
    // Requests of one batch count once: many small batches decide a quantile.
    let small = gate("2ms", "none", slo).replace(
        "concurrency: 16, requests: 160",
        "concurrency: 2, requests: 600",
    );
    lab.run(&small).expect(1);
    assert_eq!(rulings(&lab), ["fail", "pass", "pass", "pass"]);
    assert_eq!(
        lab.results()["cases"][0]["slo"][2]["expr"],
        "tpot.p95 <= 160ms"
    );
    let plan = lab.llmscen(&["plan", "out/plan.yaml"]).expect(0);
    assert!(
        plan.out.contains("tpot.p95 <= 160ms")
            && plan.out.contains("0.90 × reference (1000k tok/s)"),
        "{}",
        plan.out
    );
}

#[test]
fn a_report_is_judged_by_a_list_of_objectives() {
    let lab = Lab::new();
    let scenario = gate("20ms", "none", "slo: [ error_rate < 50% ]\n").replace(
        "load: { concurrency: 16,",
        "matrix: { load.concurrency: [4, 16] }\nload: {",
    );
    lab.run(&scenario.replace("baseline: none\n", "")).expect(0);
    let exprs = |limits: &str| {
        let results = lab.json(&format!("out/slo/{limits}/results.json"));
        let cases = results["cases"].as_array().unwrap().clone();
        let of = |case: &serde_json::Value| {
            let slo = case["slo"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["expr"].as_str().unwrap().to_owned());
            slo.collect::<Vec<_>>()
        };
        cases.iter().map(of).collect::<Vec<_>>()
    };
    lab.file(
        "limits.yaml",
        "- ttft.max < 10ns\n- { expr: error_rate < 60%, when: { load.concurrency: 16 } }\n",
    );
    lab.llmscen(&["report", "out", "--slo", "limits.yaml"])
        .expect(1);
    assert_eq!(
        exprs("limits"),
        [
            vec!["ttft.max < 10ns", "error_rate < 1%"],
            vec!["ttft.max < 10ns", "error_rate < 60%"]
        ]
    );
    lab.file(
        "slo.yaml",
        "presets: { own/all: [ error_rate < 70% ] }\nslo: [ { preset: own/all } ]\n",
    );
    lab.llmscen(&["report", "out", "--slo", "slo.yaml"])
        .expect(0);
    assert_eq!(exprs("slo"), [["error_rate < 70%"], ["error_rate < 70%"]]);
    // Error positions are those of the file, and its objectives replace those of the run only if it is valid.
    lab.file("wrong.yaml", "- ttft.p95 < 5ms\n- ttft.p95 < 500\n");
    let wrong = lab
        .llmscen(&["report", "out", "--slo", "wrong.yaml"])
        .expect(2);
    assert!(
        wrong.err.contains("missing unit") && wrong.err.contains("wrong.yaml:2:14"),
        "{}",
        wrong.err
    );
    lab.file("keys.yaml", "slo: [ error_rate < 1% ]\nrounds: 3\n");
    let wrong = lab
        .llmscen(&["report", "out", "--slo", "keys.yaml"])
        .expect(2);
    assert!(
        wrong.err.contains("unknown key `rounds`") && wrong.err.contains("keys.yaml:2:1"),
        "{}",
        wrong.err
    );
    lab.file("empty.yaml", "");
    let wrong = lab
        .llmscen(&["report", "out", "--slo", "empty.yaml"])
        .expect(2);
    assert!(wrong.err.contains("this file is empty"), "{}", wrong.err);
    let wrong = lab
        .llmscen(&["report", "out", "--slo", "nowhere.yaml"])
        .expect(2);
    assert!(
        wrong
            .err
            .starts_with("error: scenario file not found: nowhere.yaml"),
        "{}",
        wrong.err
    );
}

#[test]
fn a_baseline_may_be_missing_where_the_scenario_allows_it() {
    let lab = Lab::new();
    // The database keeps an objective without a limit, too.
    let stored = "report: { store: [parquet, sqlite] }\n";
    let ran = lab
        .run(
            &(gate(
                "20ms",
                "{ path: base/t.json, if_missing: inconclusive }",
                SLO,
            ) + stored),
        )
        .expect(5);
    assert!(
        ran.err.contains(
            "baseline base/t.json not found; objectives relative to it will be inconclusive"
        ),
        "{}",
        ran.err
    );
    lab.llmscen(&["baseline", "update", "out", "--to", "base/t.json"])
        .expect(0);
    let ran = lab.run(&gate(
        "20ms",
        "{ path: base/t.json, if_missing: inconclusive }",
        SLO,
    ));
    assert!(
        !ran.err.contains("not found") && lab.results()["cases"][0]["slo"][0]["limit"].is_number(),
        "{}",
        ran.err
    );
    lab.run(&gate(
        "20ms",
        "{ path: nowhere.json, if_missing: error }",
        SLO,
    ))
    .expect(2);
    lab.run(&gate(
        "20ms",
        "{ path: base/t.json, if_missing: maybe }",
        SLO,
    ))
    .expect(2);
    lab.run(&gate("20ms", "{ file: base/t.json }", SLO))
        .expect(2);
}

/// Two variants of the simulator: `slow` takes twice the time for a step.
const PAIR: &str = "version: 1\nname: t\ntarget: { url: simulator }\nrequest: { max_tokens: 6 }\n\
    dataset: { kind: prompt, text: hello }\nload: { concurrency: 8, requests: 80 }\n\
    variants:\n  base: { target.simulator: { alpha: 20ms } }\n  slow: { target.simulator: { alpha: 40ms } }\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";

#[test]
fn a_limit_compares_cases_of_one_run() {
    let lab = Lab::new();
    let slo = "slo: [\"tpot.p50 <= 1.5 * case(variant=base)\", \"tpot.p50 >= 1.5 * case(variant=base)\", \
               { expr: \"output_tps >= 1.2 * case(variant=slow)\", when: { variant: base } }, \
               { expr: \"e2e.p50 >= 2 * case(variant=slow).tpot.p50\", when: { variant: base } }]\n";
    let pair = PAIR.replace("requests: 80", "requests: 48");
    let run = lab.run(&format!("{pair}rounds: 5\n{slo}")).expect(1);
    let results = lab.results();
    let verdicts = |case: usize| -> Vec<String> {
        let slo = results["cases"][case]["slo"].as_array().unwrap();
        let verdict = |slo: &serde_json::Value| slo["verdict"].as_str().unwrap().to_owned();
        slo.iter().map(verdict).collect()
    };
    assert_eq!(
        verdicts(0),
        ["pass", "pass", "pass"],
        "limits on base itself do not apply"
    );
    assert_eq!(verdicts(1), ["fail", "pass", "pass"]);
    let slo = &results["cases"][1]["slo"][0];
    assert_eq!(
        (&slo["relative"]["to"], &slo["relative"]["case"]),
        (&serde_json::json!("case"), &serde_json::json!("base"))
    );
    let base = &results["cases"][0]["slo"][1]["observed"];
    assert!(base.is_number());
    assert!(
        run.out.contains("1.50 × case(variant=base) ("),
        "{}",
        run.out
    );
    let table = lab.text("out/report.md");
    assert!(table.contains("1.50 × case(variant=base)"), "{table}");
    // A case that was left out has no value.
    let alone = lab.llmscen(&[
        "run",
        "s.yaml",
        "--output",
        "alone",
        "--only",
        "variant=slow",
    ]);
    assert_eq!(alone.code, 5, "{}", alone.err);
    let note = &lab.json("alone/results.json")["cases"][0]["slo"][0]["note"];
    assert_eq!(
        note,
        "not judged: no case(variant=base) value for this case"
    );
}

#[test]
fn interleaved_cases_are_judged_in_pairs() {
    let lab = Lab::new();
    let slo = "compare: interleave\nrounds: 6\nslo: [\"tpot.mean >= 1.5 * case(variant=base)\"]\n";
    let pair = PAIR.replace("requests: 80", "requests: 16");
    lab.run(&format!("{pair}{slo}")).expect(0);
    let slo = &lab.results()["cases"][1]["slo"][0];
    assert_eq!(
        (&slo["relative"]["replicates"], &slo["relative"]["runs"]),
        (&serde_json::json!("pairs"), &serde_json::json!(6))
    );
    let parts = lab.json("out/manifest.json")["parts"].clone();
    let order: Vec<&str> = parts
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["case"].as_str().unwrap())
        .collect();
    assert_eq!(order[..4], ["base", "slow", "slow", "base"]);
    // t of the logarithms of the pairs, from the rows of the rounds.
    let plan = lab.llmscen(&["plan", "s.yaml"]).expect(0);
    assert!(plan.out.contains("case(variant=base)"), "{}", plan.out);
}

#[test]
fn limits_between_cases_that_make_no_sense_are_errors() {
    let lab = Lab::new();
    for (more, expected) in [
        (
            "slo: [\"ttft.p50 <= case(variant=bose)\"]",
            "no other case for `base`",
        ),
        (
            "slo: [\"ttft.p50 <= case(load.rate=1)\"]",
            "`load.rate` is not swept",
        ),
        (
            "slo: [\"ttft.p50 <= case(variant=*)\"]",
            "several other cases for `base`",
        ),
        (
            "slo: [\"ttft.p50 <= case()\"]",
            "another case is named by a swept value",
        ),
        (
            "slo: [\"ttft.p50 <= 2 * case\"]",
            "`(` is missing after `case`",
        ),
        (
            "slo: [\"ttft.p50 <= 2 * case(variant=)\"]",
            "`variant` has no value",
        ),
        (
            "slo: [\"ttft.p50 <= case(variant=base).output_tps\"]",
            "the two metrics have different units",
        ),
        (
            "slo: [{ expr: \"ttft.p50 <= case(variant=base)\", abort: {} }]",
            "`abort` on a relative limit",
        ),
        (
            "compare: interleave\nrounds: 4",
            "interleaved cases need at least 5 rounds",
        ),
        (
            "compare: interleave\nrounds: 5\nmatrix: { variant: [base] }",
            "there is a single case to interleave",
        ),
    ] {
        lab.file("wrong.yaml", format!("{PAIR}{more}\n"));
        let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
        assert!(refused.err.contains(expected), "{more}: {}", refused.err);
    }
    let single = PAIR.replace("  slow: { target.simulator: { alpha: 40ms } }\n", "");
    lab.file(
        "wrong.yaml",
        format!("{single}slo: [\"ttft.p50 <= case(variant=base)\"]\n"),
    );
    let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
    assert!(
        refused
            .err
            .contains("this limit compares a case with itself"),
        "{}",
        refused.err
    );
    let managed = PAIR
        .replace(
            "url: simulator }",
            "url: 'http://127.0.0.1:1/', model: sim, server: { preset: simulator } }",
        )
        .replace("target.simulator: { alpha", "target.server.args: { alpha");
    lab.file(
        "wrong.yaml",
        format!("{managed}compare: interleave\nrounds: 6\n"),
    );
    let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
    assert!(
        refused
            .err
            .contains("managed servers cannot alternate without a restart"),
        "{}",
        refused.err
    );
}
