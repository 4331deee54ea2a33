//! Relative limits and presets, and their values in each case.

use super::{load_file, load_with, messages, plan, reloaded};
use llmscen_core::check::relative::{ReferenceKind, ReferenceValue};
use llmscen_core::check::{Check, Confidence};
use llmscen_core::plan::Plan;

const BASE: &str = "version: 1\nname: t\ntarget: {url: simulator}\ndataset: openqa\nload: \
    {concurrency: 8, requests: 400}\n";

fn exprs(plan: &Plan) -> Vec<String> {
    plan.cases[0]
        .checks
        .iter()
        .filter(|check| !check.is_default)
        .map(|check| check.expr.clone())
        .collect()
}

fn known(check: &Check) -> ReferenceValue {
    check.relative.clone().unwrap().known.unwrap()
}

/// A baseline of two cases.
fn baseline() -> String {
    let case = |users: u32, p95: f64| {
        format!(
            "{{\"id\": \"concurrency={users}\", \"labels\": {{\"load.concurrency\": \
             {users}}}, \"rounds\": 1, \"scheduled\": 400, \"ok\": 400, \"metrics\": \
             {{\"ttft.p95\": {{\"value\": {p95}, \"n\": 400, \"low\": [9, 8, null], \"high\": \
             [11, 12, 13]}}, \"ttft.max\": {{\"value\": 30, \"n\": 400}}}}}}"
        )
    };
    format!(
        "{{\"schema\": \"llmscen/baseline/1\", \"name\": \"t\", \"run_id\": \"r\", \"started_at\": \"\", \"tool_version\": \"\", \"plan_id\": \"p\", \"seed\": 1, \"machine\": \"\", \"plan\": {{\"target.api\": \"openai-completions\"}}, \"confidences\": [0.9, 0.95, 0.99], \"cases\": [{}, {}]}}",
        case(1, 10.0),
        case(8, 10.5)
    )
}

fn folder_with(scenario: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("b.json"), baseline()).unwrap();
    let path = folder.path().join("s.yaml");
    std::fs::write(&path, scenario).unwrap();
    (folder, path)
}

#[test]
fn each_case_is_compared_with_its_counterpart() {
    let text = BASE.replace("concurrency: 8, ", "")
        + "matrix: {load.concurrency: [1, 8]}\nbaseline: b.json\nslo: [ttft.p95 <= 1.10 * \
        baseline, {expr: ttft.p95 <= baseline, confidence: 0.92}, {expr: ttft.max <= 2 * \
        baseline, confidence: point}]\n";
    let (folder, path) = folder_with(&text);
    let loaded = load_file(&path).unwrap();
    let checks: Vec<&[Check]> = loaded
        .plan
        .cases
        .iter()
        .map(|case| case.checks.as_slice())
        .collect();
    let of = |low, high| ReferenceValue {
        value: 10.0,
        low,
        high,
        n: Some(400),
        spread: None,
    };
    assert_eq!(
        (known(&checks[0][0]), checks[0][0].limit, checks[1][0].limit),
        (of(Some(8.0), Some(12.0)), 11.0, 11.55)
    );
    assert_eq!(
        known(&checks[0][1]),
        of(Some(8.0), Some(12.0)),
        "0.92 takes the bounds of 0.95"
    );
    assert_eq!((known(&checks[0][2]).low, checks[0][2].limit), (None, 60.0));
    let warning = &loaded.warnings[0];
    assert!(
        warning.line == 7
            && warning
                .message
                .starts_with("the baseline was recorded with a different scenario: `dataset."),
        "{warning}"
    );
    assert_eq!(loaded.plan, {
        let again = reloaded(&loaded.plan, &[]);
        drop(folder);
        again
    });
}

#[test]
fn baseline_with_drain_in_its_throughput_causes_a_warning() {
    let warned = |figures: &str| {
        let old = "\"ttft.max\": {\"value\": 30, \"n\": 400}";
        let text = BASE.replace("concurrency: 8, ", "")
            + "matrix: {load.concurrency: [8]}\nbaseline: b.json\nslo: [output_tps >= 0.95 * baseline]\n";
        let (folder, path) = folder_with(&text);
        std::fs::write(
            folder.path().join("b.json"),
            baseline().replace(old, figures),
        )
        .unwrap();
        let loaded = load_file(&path).unwrap();
        loaded
            .warnings
            .iter()
            .filter(|own| own.message.contains("includes the drain"))
            .count()
    };
    let tps =
        "\"output_tps\": {\"value\": 30, \"n\": 400, \"low\": [9, 8, 7], \"high\": [41, 42, 43]}";
    let window = "\"throughput_window\": {\"value\": 5, \"n\": 400}";
    assert_eq!((warned(tps), warned(&format!("{tps}, {window}"))), (1, 0));
}

#[test]
fn missing_baseline_must_be_declared() {
    let none = plan(&format!(
        "{BASE}baseline: none\nslo: [ttft.p95 <= 1.10 * baseline]\n"
    ));
    let check = &none.cases[0].checks[0];
    assert!(
        check.limit.is_nan()
            && check.relative.clone().unwrap().known.is_none()
            && none.baseline.is_none()
    );
    assert_eq!(check.relative.clone().unwrap().to, ReferenceKind::Baseline);
    let forgotten = load_with(
        &format!("{BASE}slo: [ttft.p95 <= 1.10 * baseline]\n"),
        &[],
        &[],
    );
    assert_eq!(
        messages(forgotten),
        ["t.yaml:6:26 a limit relative to a baseline, but no `baseline:`"]
    );
}

#[test]
fn references_are_found_by_matrix_values_and_may_be_uncertain() {
    let text = BASE.replace("concurrency: 8, ", "")
        + "matrix: {load.concurrency: [1, 16], request.max_tokens: [8, 9]}\nreference: \
           {output_tps: {load.concurrency=1: 420, \"load.concurrency=16\": {value: 3100, sd: \
           10}, \"load.concurrency=16,request.max_tokens=9\": {value: 3000, low: 2900, high: \
           3050}}, ttft.p95: 0.5s, error_rate: 1%}\nslo: [output_tps >= 0.95 * reference, \
           ttft.p95 < reference, error_rate <= 2 * reference]\n";
    let plan = plan(&text);
    let values: Vec<(f64, f64, f64)> = plan
        .cases
        .iter()
        .map(|case| known(&case.checks[0]))
        .map(|known| {
            (
                known.value,
                known.low.unwrap().round(),
                known.high.unwrap().round(),
            )
        })
        .collect();
    let certain = (420.0, 420.0, 420.0);
    assert_eq!(
        values,
        [
            certain,
            certain,
            (3100.0, 3084.0, 3116.0),
            (3000.0, 2900.0, 3050.0)
        ]
    );
    assert_eq!(
        (plan.cases[0].checks[0].limit, plan.cases[0].checks[1].limit),
        (399.0, 500.0)
    );
    assert_eq!(plan.cases[0].checks[2].limit, 0.02);
    assert_eq!(plan, reloaded(&plan, &[]));
}

#[test]
fn stages_have_their_own_counterparts() {
    let text = BASE.replace(
        "concurrency: 8, requests: 400",
        "stages: [{concurrency: 2, for: 5s}, {concurrency: 4, for: 5s}]",
    ) + "reference: {output_tps: {load.stage=1: 100, load.stage=2: 200, load.stage=all: \
    150}}\nslo: [output_tps >= 0.5 * reference]\n";
    let plan = plan(&text);
    assert_eq!(
        plan.cases[0]
            .checks
            .iter()
            .map(|check| check.limit)
            .collect::<Vec<_>>(),
        [75.0, 0.01]
    );
    let stages: Vec<Vec<f64>> = plan.cases[0]
        .stages()
        .iter()
        .map(|stage| stage.case.checks.iter().map(|check| check.limit).collect())
        .collect();
    assert_eq!(stages, [[50.0, 0.01], [100.0, 0.01]]);
}

#[test]
fn presets_expand_to_their_limits() {
    let of = |slo: &str| exprs(&plan(&format!("{BASE}slo: [{slo}]\n")));
    for (name, ttft, tpot) in [
        ("llama2-70b-server", 2000, 200),
        ("llama2-70b-interactive", 450, 40),
        ("llama3.1-405b-server", 6000, 175),
        ("llama3.1-405b-interactive", 4500, 80),
        ("llama3.1-8b-server", 2000, 100),
        ("llama3.1-8b-interactive", 500, 30),
        ("mixtral-8x7b-server", 2000, 200),
        ("deepseek-r1-server", 2000, 80),
        ("deepseek-r1-interactive", 1500, 15),
        ("gpt-oss-120b-server", 3000, 80),
        ("gpt-oss-120b-interactive", 2000, 15),
    ] {
        let wanted = [
            format!("ttft.p99 <= {ttft}ms"),
            format!("tpot.p99 <= {tpot}ms"),
        ];
        assert_eq!(of(&format!("{{preset: mlperf/{name}}}")), wanted, "{name}");
    }
    for (name, expr) in [
        ("reading/silent", "tpot.p95 <= 160ms"),
        ("reading/listening", "tpot.p95 <= 88.9ms"),
        ("reading/visual", "tpot.p95 <= 57.1ms"),
        (
            "reading/silent, words_per_minute: 300, tokens_per_word: 1.3",
            "tpot.p95 <= 153.8ms",
        ),
    ] {
        assert_eq!(of(&format!("{{preset: {name}}}")), [expr], "{name}");
    }
    let with = plan(&format!(
        "{BASE}slo: [{{preset: mlperf/llama3.1-8b-server, confidence: 0.99, of: scheduled}}, error_rate < 1%]\n"
    ));
    assert_eq!(
        exprs(&with),
        ["ttft.p99 <= 2000ms", "tpot.p99 <= 100ms", "error_rate < 1%"]
    );
    assert!(
        with.cases[0].checks[..2]
            .iter()
            .all(|check| check.confidence == Confidence::Level(0.99))
    );
    assert!(
        !with.resolved.contains("preset") && with.resolved.contains("ttft.p99 <= 2000ms"),
        "{}",
        with.resolved
    );
    assert_eq!(with, reloaded(&with, &[]));
}

#[test]
fn presets_append_limits_to_those_of_the_base_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let own = "presets: {own/chat: [ttft.p95 < 500ms, {expr: tpot.p95 < 40ms, confidence: 0.9}], \
    own/errors: [error_rate < 1%]}\n";
    write(
        "base.yaml",
        &format!("{BASE}{own}slo: [{{preset: own/chat}}]\n"),
    );
    write(
        "top.yaml",
        "extends: base.yaml\npresets: {own/errors: [error_rate < 2%]}\nslo: [{preset: own/chat, \
        of: scheduled}, {preset: own/errors}, e2e.p50 < 9s]\n",
    );
    write("plain.yaml", "extends: base.yaml\nslo: [e2e.p50 < 9s]\n");
    let read = |name: &str| load_file(&folder.path().join(name)).unwrap().plan;
    let top = read("top.yaml");
    assert_eq!(
        exprs(&top),
        [
            "ttft.p95 < 500ms",
            "tpot.p95 < 40ms",
            "error_rate < 2%",
            "e2e.p50 < 9s"
        ]
    );
    let levels: Vec<Confidence> = top.cases[0]
        .checks
        .iter()
        .map(|check| check.confidence)
        .collect();
    assert_eq!(
        levels[..2],
        [Confidence::Level(0.95), Confidence::Level(0.9)]
    );
    assert!(
        top.cases[0].checks[..2]
            .iter()
            .all(|check| check.of == llmscen_core::check::RequestSet::Scheduled)
    );
    assert_eq!(
        exprs(&read("base.yaml")),
        ["ttft.p95 < 500ms", "tpot.p95 < 40ms"]
    );
    assert_eq!(
        exprs(&read("plain.yaml")),
        ["e2e.p50 < 9s"],
        "a list takes the place of a list"
    );
}
