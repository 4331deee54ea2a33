//! Variants, workloads and what selects their cells.

use super::*;
use llmscen_core::plan::PlannedRound;

const FLEET: &str = "\
    version: 1
name: fleet
target: { url: 'http://127.0.0.1:9/v1/chat/completions', model: m, server: { preset: simulator, args: { alpha: 1ms } } }
variants:
  base:
  mtp3: { target.server.args: { max_num_seqs: 64 }, target: { gpus: 8 }, load.requests: 7 }
workloads:
  chat: { dataset: { kind: openqa, path: builtin }, request: { max_tokens: 16 }, slo: ['ttft.p95 < 2s'] }
  long: { dataset: { kind: random, tokens: 256 }, request.max_tokens: 32 }
load: { requests: 'max(20, 2x)' }
slo:
  - { expr: ttft.p99 < 5s, when: { variant: 'm*', load.concurrency: '>= 16' } }
";

fn dataset_name(case: &llmscen_core::plan::Case) -> &str {
    match case.dataset.source {
        llmscen_core::dataset::Source::Random { .. } => "random",
        _ => "openqa",
    }
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.cases.iter().map(|case| case.id.as_str()).collect()
}

#[test]
fn a_cell_is_the_scenario_with_its_variant_and_workload() {
    let plan = plan(&format!(
        "{FLEET}matrix: {{ load.concurrency: {{ doubling: [8, 16] }} }}\n"
    ));
    assert_eq!(
        ids(&plan),
        [
            "base,chat,concurrency=8",
            "base,chat,concurrency=16",
            "base,long,concurrency=8",
            "base,long,concurrency=16",
            "mtp3,chat,concurrency=8",
            "mtp3,chat,concurrency=16",
            "mtp3,long,concurrency=8",
            "mtp3,long,concurrency=16",
        ]
    );
    let commands: Vec<String> = [0, 4]
        .iter()
        .map(|case| {
            plan.cases[*case]
                .target
                .server
                .as_ref()
                .unwrap()
                .command
                .join(" ")
        })
        .collect();
    let base = "llmscen simulate --listen 127.0.0.1:9 --set target.simulator.alpha=1ms";
    assert_eq!(
        commands,
        [
            base.to_owned(),
            format!("{base} --set target.simulator.max_num_seqs=64")
        ]
    );
    let facts: Vec<_> = plan
        .cases
        .iter()
        .map(|case| {
            (
                case.target.gpus,
                dataset_name(case),
                case.load.requests.unwrap(),
                case.checks.len(),
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            (None, "openqa", 20, 2),
            (None, "openqa", 32, 2),
            (None, "random", 20, 0),
            (None, "random", 32, 0),
            (Some(8), "openqa", 7, 2),
            (Some(8), "openqa", 7, 3),
            (Some(8), "random", 7, 0),
            (Some(8), "random", 7, 2),
        ]
    );
    let again = crate::tests::plan(&plan.resolved);
    assert_eq!(again, plan);
}

#[test]
fn rows_of_only_select_the_cells_of_their_variant() {
    let plan = plan(&format!(
        "{FLEET}matrix:\n  workload: chat\n  load.concurrency: {{ doubling: [4, 64] }}\n  only: \
         [{{ variant: mtp3, load.concurrency: '8..16' }}, {{ variant: mtp3, load.concurrency: 64 }}]\n  \
         exclude: [{{ variant: base, load.concurrency: '> 8' }}]\n"
    ));
    assert_eq!(
        ids(&plan),
        [
            "base,chat,concurrency=4",
            "base,chat,concurrency=8",
            "mtp3,chat,concurrency=8",
            "mtp3,chat,concurrency=16",
            "mtp3,chat,concurrency=64",
        ]
    );
}

#[test]
fn rows_of_names_alone_list_the_pairs_that_are_tested() {
    let plan = plan(&format!(
        "{FLEET}matrix:\n  load.concurrency: [16, 32]\n  only: [{{ variant: base, workload: chat \
         }}, {{ variant: mtp3, workload: long, load.concurrency: 32 }}]\n"
    ));
    assert_eq!(
        ids(&plan),
        [
            "base,chat,concurrency=16",
            "base,chat,concurrency=32",
            "mtp3,long,concurrency=32",
        ]
    );
}

#[test]
fn a_distribution_or_a_template_is_replaced_as_one_value() {
    let plan = plan(
        "version: 1\nname: d\ntarget: { url: simulator }\nload: { concurrency: 1, requests: 10 }\n\
         dataset: { kind: random, tokens: { uniform: [10, 20], max: 15 } }\n\
         request: { max_tokens: { normal: { mean: 8, sd: 2 }, min: 4 }, template: { model: '%m', prompt: '%p' } }\n\
         workloads:\n  other: { dataset: { tokens: { normal: { mean: 12, sd: 2 } } }, \
         request.template: { text: '%p' } }\n",
    );
    let dataset = format!("{:?}", plan.cases[0].dataset);
    assert!(
        dataset.contains("Normal { mean: 12.0, sd: 2.0 }"),
        "{dataset}"
    );
    let request = format!("{:?}", plan.cases[0].request);
    assert!(
        !request.contains("%m") && request.contains("text"),
        "{request}"
    );
}

#[test]
fn one_start_serves_all_rounds_of_a_variant() {
    let order = |restart: &str| {
        let text = FLEET.replace(
            "preset: simulator",
            &format!("preset: simulator, restart: {restart}"),
        );
        let plan = plan(&format!(
            "{text}matrix: {{ workload: chat, load.concurrency: [16, 32] }}\nrounds: 2\n"
        ));
        let rounds: Vec<String> = plan
            .rounds_in_order()
            .iter()
            .map(|PlannedRound { round, case }| format!("{case}{}", ["a", "b"][*round as usize]))
            .collect();
        (rounds.join(" "), *plan.server_starts().end())
    };
    assert_eq!(order("variant"), ("0a 1a 0b 1b 2a 3a 2b 3b".to_owned(), 2));
    assert_eq!(order("round"), ("0a 1a 2a 3a 0b 1b 2b 3b".to_owned(), 4));
    assert_eq!(order("case"), ("0a 1a 2a 3a 0b 1b 2b 3b".to_owned(), 8));
}

#[test]
fn secrets_of_a_variant_are_not_stored() {
    let text = FLEET.replace(
        "  base:\n",
        "  base: { target.api_key: s3cretkey1, target.server.env: { HF_TOKEN: '${TOK}', MY_KEY: s3cretkey2 } }\n",
    );
    let loaded = load_with(
        &format!("{text}matrix: {{ load.concurrency: [16] }}\n"),
        &[("TOK", "s3cretkey3")],
        &[],
    );
    let plan = loaded
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 100)))
        .plan;
    assert!(!plan.resolved.contains("s3cretkey"), "{}", plan.resolved);
    let secrets: Vec<&str> = plan.secrets.iter().map(|secret| secret.expose()).collect();
    for secret in ["s3cretkey1", "s3cretkey2", "s3cretkey3"] {
        assert!(secrets.contains(&secret), "{secrets:?}");
    }
}

#[test]
fn a_variant_may_change_the_target_that_other_keys_refer_to() {
    let text = "version: 1\nname: t\ntarget: { url: 'http://h/v1/chat/completions', server: { \
                command: 'serve {{ target.model }}', ready: { log: up } } }\ndataset: { kind: \
                prompt, text: x }\nload: { concurrency: 1, requests: 1 }\nvariants: { a: { \
                target.model: one }, b: { target: { model: two, url: \
                'http://i/v1/chat/completions' } } }\n";
    let plan = plan(text);
    let facts: Vec<_> = plan
        .cases
        .iter()
        .map(|case| {
            let url = case.target.urls().next().unwrap();
            let server = case.target.server.as_ref().unwrap();
            (case.id.as_str(), url, server.command[1].as_str())
        })
        .collect();
    assert_eq!(
        facts,
        [
            ("a", "http://h/v1/chat/completions", "one"),
            ("b", "http://i/v1/chat/completions", "two"),
        ]
    );
    assert_eq!(crate::tests::plan(&plan.resolved), plan);
}
