use crate::tests::{load_with, messages};
use crate::{Faults, Input, Loaded, Lookups, reload, reload_with_slo};
use llmscen_core::plan::Plan;
use std::collections::BTreeMap;
use std::path::Path;

/// A scenario with an objective for one kind of GPU, and one for all.
fn scenario(target: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {target}\ndataset: {{kind: prompt, text: x}}\nload: \
         {{concurrency: 1, requests: 1}}\nslo: [error_rate < 50%, {{expr: error_rate < 20%, when: \
         {{hardware.gpu: \"MI3*\"}}}}]\n"
    )
}

const REMOTE: &str = "http://10.0.0.1:8000/v1/chat/completions";

fn load_on(text: &str, find_gpu: fn() -> Option<String>) -> Result<Loaded, Faults> {
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text.to_owned()),
        env: &BTreeMap::new(),
        set: &[],
    };
    let lookups = Lookups {
        figures: |_, _| Err("no runs".to_owned()),
        supports: |_| Ok(()),
        find_gpu,
        pin_data: None,
    };
    crate::load_with(&input, lookups)
}

fn objectives(plan: &Plan) -> Vec<usize> {
    plan.cases.iter().map(|case| case.checks.len()).collect()
}

#[test]
fn an_objective_may_be_for_one_kind_of_gpu() {
    for (gpu, expected) in [
        ("MI300X", 2),
        ("AMD Instinct MI355X", 2),
        ("NVIDIA H200", 1),
        ("none", 1),
    ] {
        let target = format!("{{url: \"{REMOTE}\", model: m, hardware: {{gpu: {gpu}}}}}");
        let loaded = load_with(&scenario(&target), &[], &[]).unwrap();
        assert_eq!(objectives(&loaded.plan), [expected], "{gpu}");
        let notes: Vec<bool> = loaded.warnings.iter().map(|note| note.note).collect();
        assert_eq!(notes, vec![true; 2 - expected], "{:?}", loaded.warnings);
    }
}

#[test]
fn the_gpu_of_this_machine_is_that_of_a_server_on_it() {
    let amd = || Some("AMD Instinct MI300X OAM".to_owned());
    let here = scenario("{url: \"http://127.0.0.1:8000/v1/chat/completions\", model: m}");
    let loaded = load_on(&here, amd).unwrap();
    assert_eq!(objectives(&loaded.plan), [2]);
    // The stored plan has the name, so that a report on another machine judges the same objectives.
    let stored = reload(&Input {
        path: Path::new("plan.yaml"),
        text: Some(loaded.plan.resolved.clone()),
        env: &BTreeMap::new(),
        set: &[],
    });
    assert_eq!(objectives(&stored.unwrap().plan), [2]);
    // The objectives of `report --slo` use the GPUs that the run recorded.
    let slo = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        &slo,
        "- {expr: error_rate < 10%, when: {hardware.gpu: \"H2*\"}}\n",
    )
    .unwrap();
    let again = |gpu: Option<&str>| {
        let input = Input {
            path: Path::new("plan.yaml"),
            text: Some(
                load_with(
                    &here.replace(", when: {hardware.gpu: \"MI3*\"}", ""),
                    &[],
                    &[],
                )
                .unwrap()
                .plan
                .resolved,
            ),
            env: &BTreeMap::new(),
            set: &[],
        };
        reload_with_slo(&input, slo.path(), gpu.map(str::to_owned))
    };
    let judged = again(Some("NVIDIA H200")).unwrap().unwrap();
    assert_eq!(objectives(&judged.plan), [1]);
    let faults = again(None).unwrap_err().render(false, 200);
    assert!(faults.contains("the run recorded none"), "{faults}");
    let unknown = "t.yaml:6:57 the GPUs of the target are not known";
    let without_gpu = load_on(&here, || None).unwrap();
    assert_eq!(objectives(&without_gpu.plan), [1]);
    let warned = without_gpu.warnings.iter().any(|warning| !warning.note);
    assert!(warned, "{:?}", without_gpu.warnings);
    let elsewhere = scenario(&format!("{{url: \"{REMOTE}\", model: m}}"));
    assert_eq!(messages(load_on(&elsewhere, amd)), [unknown]);
    let without = here.replace(
        ", {expr: error_rate < 20%, when: {hardware.gpu: \"MI3*\"}}",
        "",
    );
    let asked: fn() -> Option<String> = || panic!("no condition needs the name");
    assert_eq!(objectives(&load_on(&without, asked).unwrap().plan), [1]);
}

#[test]
fn variants_may_have_different_gpus() {
    let text = scenario(&format!("{{url: \"{REMOTE}\", model: m}}"))
        + "variants: {mi: {target.hardware.gpu: MI300X}, h: {target.hardware.gpu: H200}}\n";
    assert_eq!(
        objectives(&load_with(&text, &[], &[]).unwrap().plan),
        [2, 1]
    );
}

#[test]
fn an_action_for_no_case_is_an_error() {
    let text = scenario(&format!(
        "{{url: \"{REMOTE}\", model: m, hardware: {{gpu: MI300X}}}}"
    ))
    .replace("{concurrency: 1, ", "{")
        + "matrix: {load.concurrency: [1, 2]}\nhooks: {before_case: [{run: a, when: \
           {load.concurrency: 2}}, {run: b, when: {load.concurrency: 4}}]}\nthen: [{run: c, when: \
           {hardware.gpu: H100}}]\n";
    assert_eq!(
        messages(load_with(&text, &[], &[])),
        ["t.yaml:8:77 this `when` matches no case"]
    );
}
