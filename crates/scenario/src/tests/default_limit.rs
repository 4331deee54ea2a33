//! The default objective: where a limit on failures is added, and where not.

use super::{load_with, messages, plan, reloaded};
use crate::{Input, reload, reload_with_slo};
use llmscen_core::check::{Check, Confidence, NoData};
use llmscen_core::plan::Plan;
use std::collections::BTreeMap;
use std::path::Path;

const BASE: &str = "version: 1\nname: t\ntarget: {url: simulator}\ndataset: openqa\nload: \
    {concurrency: 8, requests: 400}\n";

fn default_exprs(checks: &[Check]) -> Vec<&str> {
    let defaults = checks.iter().filter(|check| check.is_default);
    defaults.map(|check| check.expr.as_str()).collect()
}

/// The default objectives of the single case of the base scenario with this text.
fn added(text: &str) -> Vec<String> {
    let plan = plan(&format!("{BASE}{text}\n"));
    assert_eq!(plan, reloaded(&plan, &[]), "{text}");
    let added = default_exprs(&plan.cases[0].checks);
    added.into_iter().map(str::to_owned).collect()
}

#[test]
fn limits_on_successful_requests_alone_get_a_limit_on_failures() {
    for slo in [
        "ttft.p95 < 500ms",
        "output_tps >= 100",
        "request_throughput >= 1",
        "e2e_service.mean < 1s",
        "itl.p99 < 50ms",
        "output_tokens.mean > 3",
        "'finish{stop}.share >= 95%'",
        "{ preset: reading/silent }",
        // The value of a failed request has no weight among gaps, and none in a minimum or a count.
        "{ expr: itl.p99 < 50ms, of: scheduled }",
        "{ expr: ttft.min < 50ms, of: scheduled }",
        "{ expr: ttft.count > 5, of: scheduled }",
    ] {
        assert_eq!(
            added(&format!("slo: [{slo}]")),
            ["error_rate < 1%"],
            "{slo}"
        );
    }
    let plan = plan(&format!("{BASE}slo: [ttft.p95 < 500ms]\n"));
    let check = &plan.cases[0].checks[1];
    assert_eq!(
        (check.confidence, check.no_data, check.limit),
        (Confidence::Point, NoData::Pass, 0.01)
    );
}

#[test]
fn limits_on_failures_replace_the_default() {
    for slo in [
        "error_rate < 5%",
        "error_rate > 50%",
        "'goodput(ttft < 500ms) >= 90%'",
        "{ expr: ttft.p95 < 500ms, of: scheduled }",
        "{ expr: e2e.mean < 5s, of: scheduled }",
        "{ expr: e2e.max < 5s, of: scheduled }",
    ] {
        let text = format!("slo: [tpot.p95 < 40ms, {slo}]");
        assert_eq!(added(&text), [] as [String; 0], "{slo}");
    }
    // These are about no requests.
    for slo in ["tool.cpu.max < 90", "concurrency_mean > 1", "window < 1h"] {
        assert_eq!(added(&format!("slo: [{slo}]")), [] as [String; 0], "{slo}");
    }
    assert_eq!(added("slo: []"), [] as [String; 0]);
    assert_eq!(added(""), [] as [String; 0]);
}

#[test]
fn one_key_changes_or_removes_the_default() {
    let of = |value: &str| {
        added(&format!(
            "slo: [ttft.p95 < 500ms]\nslo_defaults: {{ error_rate: {value} }}"
        ))
    };
    assert_eq!(of("5%"), ["error_rate < 5%"]);
    assert_eq!(of("0.005"), ["error_rate < 0.5%"]);
    assert_eq!(of("off"), [] as [String; 0]);
    for wrong in ["0%", "none", "101%", "[1%]", "\"< 1%\""] {
        let text =
            format!("{BASE}slo: [ttft.p95 < 500ms]\nslo_defaults: {{ error_rate: {wrong} }}\n");
        let messages = messages(load_with(&text, &[], &[]));
        assert_eq!(messages.len(), 1, "{wrong}: {messages:?}");
    }
}

#[test]
fn a_limit_on_the_failures_of_other_requests_replaces_nothing() {
    let two = "mix: [{ name: chat, slo: [SLO] }, { name: batch, slo: [e2e.p95 < 9s] }]";
    let of = |slo: &str| added(&two.replace("SLO", slo));
    assert_eq!(of("error_rate < 1%"), ["error_rate{group=batch} < 1%"]);
    assert_eq!(of("ttft.p95 < 1s"), ["error_rate < 1%"]);
    let of = |slo: &str| added(&format!("{two}\nslo: [{slo}]").replace("SLO", "error_rate < 2%"));
    assert_eq!(of("error_rate < 1%"), [] as [String; 0]);
    // It is about some requests of the entry.
    assert_eq!(of("'ttft{group=chat}.p95 < 1s'").len(), 1);
    assert_eq!(of("output_tps > 1"), ["error_rate{group=batch} < 1%"]);
}

#[test]
fn each_case_has_the_default_of_its_own_limits() {
    let swept = BASE.replace("concurrency: 8, ", "");
    let plan = plan(&format!(
        "{swept}matrix: {{load.concurrency: [1, 2, 4]}}\nslo:\n\
         - {{expr: ttft.p95 < 1s, when: {{load.concurrency: 1}}}}\n\
         - {{expr: ttft.p95 < 1s, when: {{load.concurrency: 2}}}}\n\
         - {{expr: error_rate < 3%, when: {{load.concurrency: 2}}}}\n"
    ));
    let added: Vec<usize> = plan
        .cases
        .iter()
        .map(|case| default_exprs(&case.checks).len())
        .collect();
    assert_eq!(added, [1, 0, 0]);
}

#[test]
fn stages_have_the_default_of_their_own_limits() {
    let of = |slo: &str| {
        let load = "stages: [{concurrency: 2, for: 5s}, {concurrency: 4, for: 5s}]";
        let text = BASE.replace("concurrency: 8, requests: 400", load) + slo + "\n";
        let plan: Plan = plan(&text);
        assert_eq!(plan, reloaded(&plan, &[]), "{slo}");
        let case = &plan.cases[0];
        let stages = case.stages();
        let all = std::iter::once(&case.checks).chain(stages.iter().map(|it| &it.case.checks));
        let counts = all.map(|checks| default_exprs(checks).len());
        (counts.collect::<Vec<_>>(), case.stage_checks.len())
    };
    assert_eq!(of("slo: [ttft.p95 < 1s]"), (vec![1, 1, 1], 2));
    let second = "slo: [{expr: ttft.p95 < 1s, when: {load.stage: 2}}]";
    assert_eq!(of(second), (vec![0, 0, 1], 2));
    let whole = "slo: [{expr: ttft.p95 < 1s, when: {load.stage: all}}]";
    assert_eq!(of(whole), (vec![1, 0, 0], 0));
}

#[test]
fn a_search_has_the_default_but_needs_a_limit_of_its_own() {
    let search = "search: { vary: load.concurrency, range: [1, 64] }";
    let of = |slo: &str| format!("{BASE}{search}\n{slo}\n");
    let found = plan(&of("slo: [ttft.p95 < 1s]"));
    assert!(
        found
            .cases
            .iter()
            .all(|case| default_exprs(&case.checks) == ["error_rate < 1%"])
    );
    let cost = "slo: [cost_per_million_output_tokens < 3]";
    let text = of(cost).replace("url: simulator", "url: simulator, cost: 20 USD/h");
    let messages = messages(load_with(&text, &[], &[]));
    assert!(
        messages[0].contains("a search with limits on costs alone"),
        "{messages:?}"
    );
}

/// The plan of a stored text, as of an earlier version.
fn stored(text: &str) -> Input<'_> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    Input {
        path: Path::new("plan.yaml"),
        text: Some(text.to_owned()),
        env: &NONE,
        set: &[],
    }
}

#[test]
fn stored_plans_without_the_key_keep_their_objectives() {
    let text = format!("{BASE}slo: [ttft.p95 < 500ms]\n");
    let old = reload(&stored(&text)).unwrap().plan;
    assert_eq!(default_exprs(&old.cases[0].checks), [] as [&str; 0]);
    let new = plan(&text);
    let again = reload(&stored(&new.resolved)).unwrap().plan;
    assert_eq!(default_exprs(&again.cases[0].checks), ["error_rate < 1%"]);
    assert_eq!((again.id, again.resolved), (new.id, new.resolved));
}

#[test]
fn other_objectives_of_a_stored_run_have_the_default() {
    let text = format!("{BASE}slo: [ttft.p95 < 500ms]\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slo.yaml");
    let judged = |slo: &str| {
        std::fs::write(&file, slo).unwrap();
        let plan = reload_with_slo(&stored(&text), &file, None)
            .unwrap()
            .unwrap()
            .plan;
        default_exprs(&plan.cases[0].checks).len()
    };
    assert_eq!(judged("[e2e.p95 < 3s]"), 1);
    assert_eq!(judged("[e2e.p95 < 3s, error_rate < 2%]"), 0);
    let off = "slo: [e2e.p95 < 3s]\nslo_defaults: { error_rate: off }\n";
    assert_eq!(judged(off), 0);
}
