use crate::tests::{load_with, messages, plan, reloaded};
use llmscen_core::load::{Arrival, Shape};
use llmscen_core::mix::{EntryLoad, MixEntry};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::quantity::Quantity;

fn text(sections: &str) -> String {
    format!("version: 1\nname: t\ntarget: {{url: simulator}}\n{sections}\n")
}

/// The plan of these sections; its resolved text gives the same plan again.
fn planned(sections: &str) -> Plan {
    let plan = plan(&text(sections));
    assert_eq!(plan, reloaded(&plan, &[]));
    plan
}

fn of<T>(case: &Case, get: impl Fn(&MixEntry) -> T) -> Vec<T> {
    case.mix.iter().map(get).collect()
}

const LOAD: &str = "load: {concurrency: 1, requests: 5}";

#[test]
fn mix_entry_inherits_from_the_scenario() {
    let request = "request: {max_tokens: 5, stream: false, temperature: 0, extra: {a: 1, b: \
    2}}\ndataset: {kind: prompt, text: base}";
    let mix = "mix:\n- {name: a, weight: 3, dataset: {kind: prompt, text: own}}\n- \
               {name: b, request: {max_tokens: 9, temperature: null, extra: {c: 3}, \
               retry: {max: 7}}}";
    let case = planned(&format!("{request}\n{mix}\n{LOAD}"))
        .cases
        .remove(0);
    assert_eq!(
        of(&case, |own| own.load.clone()),
        [EntryLoad::Weight(3.0), EntryLoad::Weight(1.0)]
    );
    assert_eq!(
        of(&case, |own| own.request.max_tokens.clone()),
        [Some(Quantity::fixed(5)), Some(Quantity::fixed(9))]
    );
    assert_eq!(of(&case, |own| own.request.stream), [false, false]);
    assert_eq!(
        of(&case, |own| own
            .request
            .sampling
            .contains_key("temperature")),
        [true, false]
    );
    assert_eq!(
        of(&case, |own| serde_json::json!(own.request.extra)
            .to_string()),
        [r#"{"a":1,"b":2}"#, r#"{"c":3}"#]
    );
    let retry = case.mix[1].request.retry.as_ref().unwrap();
    assert_eq!(
        (
            retry.max,
            retry.statuses.as_slice(),
            &case.mix[0].request.retry
        ),
        (7, &[429, 503][..], &None)
    );
    let texts = of(&case, |own| format!("{:?}", own.dataset.source));
    assert_eq!(texts, [r#"Prompt("own")"#, r#"Prompt("base")"#]);
    assert_eq!(
        (case.request.clone(), case.traffic_classes().len()),
        (case.mix[0].request.clone(), 2)
    );
    assert_eq!(case.describe_load(), "concurrency 1; a 75%, b 25%");
}

#[test]
fn mix_entries_with_datasets_need_no_common_one() {
    let mix = "mix: [{name: a, dataset: openqa}, {name: b, dataset: {kind: random, tokens: 9}}]";
    assert_eq!(planned(&format!("{mix}\n{LOAD}")).cases[0].mix.len(), 2);
    let unused = load_with(&text(&format!("dataset: openqa\n{mix}\n{LOAD}")), &[], &[]).unwrap();
    assert_eq!(unused.warnings.len(), 1, "{:?}", unused.warnings);
}

#[test]
fn rates_of_mix_entries_add_up_to_an_open_loop() {
    let mix = "dataset: openqa\nmix: [{name: a, rate: 5/s}, {name: b, rate: 90/m}]";
    let case = planned(&format!("{mix}\nload: {{duration: 4s, max_in_flight: 3}}"))
        .cases
        .remove(0);
    assert_eq!(
        case.load.shape,
        Shape::Open {
            rate: 6.5,
            arrival: Arrival::Poisson
        }
    );
    assert_eq!(
        (of(&case, |own| own.load.size()), case.describe_load()),
        (vec![5.0, 1.5], "6.5/s poisson; a 5/s, b 1.5/s".into())
    );
    let even = planned(&format!("{mix}\nload: {{requests: 4, arrivals: constant}}"));
    assert_eq!(
        even.cases[0].load.shape,
        Shape::Open {
            rate: 6.5,
            arrival: Arrival::Constant
        }
    );
}

#[test]
fn matrix_and_settings_address_entries_by_name_or_index() {
    let mix =
        format!("dataset: openqa\nmix: [{{name: a, request: {{top_k: 3}}}}, {{name: b}}]\n{LOAD}");
    let swept = planned(&format!(
        "{mix}\nmatrix: {{mix.a.weight: [1, 3], mix.1.request.max_tokens: [8], \
        request.top_k: [4]}}"
    ));
    let ids: Vec<&str> = swept.cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "weight=1,max_tokens=8,top_k=4",
            "weight=3,max_tokens=8,top_k=4"
        ]
    );
    let case = &swept.cases[1];
    assert_eq!(of(case, |own| own.load.size()), [3.0, 1.0]);
    assert_eq!(
        of(case, |own| own.request.max_tokens.clone()),
        [None, Some(Quantity::fixed(8))]
    );
    assert_eq!(
        of(case, |own| own.request.sampling["top_k"].clone()),
        [3, 4],
        "what is swept for all is one's own last"
    );
    let set = load_with(&text(&mix), &[], &[("mix.b.weight", "4")])
        .unwrap()
        .plan;
    assert_eq!(of(&set.cases[0], |own| own.load.size()), [1.0, 4.0]);
    let lost = messages(load_with(&text(&mix), &[], &[("mix.c.weight", "4")]));
    assert_eq!(lost, ["--set:1:1 `mix.c.weight` does not exist"]);
    let none = messages(load_with(
        &text(&format!(
            "dataset: openqa\n{LOAD}\nmatrix: {{mix.a.weight: [1]}}"
        )),
        &[],
        &[],
    ));
    assert_eq!(
        none,
        ["t.yaml:6:1 `mix.a.weight` does not refer to an entry of `mix`"]
    );
    let own =
        format!("mix: [{{name: a, dataset: openqa}}]\n{LOAD}\nmatrix: {{dataset.text: [x, y]}}");
    assert_eq!(planned(&own).cases.len(), 2);
    let bare = messages(load_with(
        &text(&format!(
            "mix: [{{name: a}}]\n{LOAD}\nmatrix: {{dataset.text: [x]}}"
        )),
        &[],
        &[],
    ));
    assert_eq!(bare, ["t.yaml:4:14 `a` has no dataset"]);
    let search = "search: {vary: mix.b.rate, range: [1, 8]}\nslo: [error_rate < 5%]";
    let rated = planned(&format!(
        "dataset: openqa\nmix: [{{name: a, rate: 2/s}}, {{name: b, rate: \
        1/s}}]\nload: {{requests: 9}}\n{search}"
    ));
    assert_eq!(
        (
            rated.searches[0].spec.start,
            of(&rated.cases[0], |own| own.load.size())
        ),
        (1.0, vec![2.0, 1.0])
    );
}

const CLASSES: &str = "dataset: openqa\nmix:\n- {name: chat, rate: 5/s, arrivals: {gamma: 0.5}, \
    headers: {x-priority: high}, slo: [\"ttft.p95 < 200ms\"]}\n- {name: batch, stages: [{rate: \
    2/s, for: 30s}, {rate: 2/s -> 10/s, for: 10s}], slo: [{expr: \"ttft{model=sim}.mean < 3s\", \
    when: {}}]}\n";

#[test]
fn an_entry_has_its_own_arrivals_headers_and_limits() {
    let plan = planned(&format!(
        "{CLASSES}load: {{duration: 60s}}\nslo: [error_rate < 1%]"
    ));
    let case = &plan.cases[0];
    assert_eq!(
        case.describe_load(),
        "arrivals of 2 classes; chat 5/s gamma 0.5, batch 2/s for 30 s, 2/s → 10/s \
        over 10 s, poisson"
    );
    // 60 s of 5/s, 30 s of 2/s and 10 s of 6/s on average.
    assert_eq!(case.load.planned(), Some(300 + 60 + 60));
    assert_eq!(of(case, |own| own.load.size()), [5.0, 3.0]);
    let headers = of(case, |own| own.headers.len());
    assert_eq!(
        (headers, case.mix[0].headers[0].1.expose()),
        (vec![1, 0], "high")
    );
    let limits: Vec<String> = case.checks.iter().map(ToString::to_string).collect();
    assert_eq!(
        limits,
        [
            "error_rate < 1%",
            "ttft{group=chat}.p95 < 200ms",
            "ttft{group=batch,model=sim}.mean < 3000ms"
        ]
    );
}

#[test]
fn errors_in_the_arrivals_and_limits_of_an_entry_are_reported() {
    let reported = |mix: &str, load: &str| {
        let scenario = format!("dataset: openqa\nmix: [{mix}]\nload: {load}");
        messages(load_with(&text(&scenario), &[], &[]))
    };
    let end = "{duration: 9s}";
    let stages = "stages: [{rate: 1/s, for: 9s}]";
    for (mix, load, message) in [
        (
            "{name: a, rate: 1/s}, {name: b}",
            end,
            "a mix needs either weights or arrivals",
        ),
        (
            "{name: a, stages: [{concurrency: 4, for: 9s}]}",
            end,
            "stages of an entry have rates",
        ),
        (
            &*format!("{{name: a, rate: 1/s, {stages}}}"),
            end,
            "`rate` and `stages`",
        ),
        (
            "{name: a, arrivals: constant}",
            "{rate: 1/s, duration: 9s}",
            "`arrivals` needs",
        ),
        (
            &*format!("{{name: a, {stages}}}, {{name: b, rate: 1/s}}"),
            "{}",
            "this load has no end",
        ),
        (
            "{name: a, rate: 1/s, slo: [\"server.waiting.max < 3\"]}",
            end,
            "a limit of an entry needs a metric of its requests",
        ),
        (
            "{name: a, rate: 1/s, slo: [\"ttft{group=a}.p95 < 1s\"]}",
            end,
            "a limit of an entry has its own group",
        ),
        (
            "{name: a, rate: 1/s, slo: [\"nope.p95 < 1s\"]}",
            end,
            "unknown metric `nope`",
        ),
    ] {
        let found = reported(mix, load);
        assert!(
            found.iter().any(|line| line.contains(message)),
            "{mix}: {found:?}"
        );
    }
}

#[test]
fn conversations_in_a_mix_entry_are_counted_as_sessions() {
    let talk = "{kind: sharegpt, path: builtin, turns: {}}";
    let mix = format!("mix: [{{name: a, dataset: openqa}}, {{name: b, dataset: {talk}}}]");
    let case = planned(&format!("{mix}\nload: {{concurrency: 2, sessions: 7}}"))
        .cases
        .remove(0);
    assert_eq!(
        (case.load.requests, case.has_conversations()),
        (Some(7), true)
    );
    let load = planned(&format!("{mix}\nload: {{concurrency: 2, requests: 7}}"))
        .cases
        .remove(0)
        .load;
    assert_eq!((load.requests, load.turn_limit), (None, Some(7)));
    let unused = format!(
        "dataset: {talk}\nmix: [{{name: a, dataset: openqa}}]\nload: {{concurrency: \
        2, requests: 7}}"
    );
    assert!(!planned(&unused).cases[0].has_conversations());
}

#[test]
fn template_of_a_mix_entry_is_inlined_in_the_resolved_plan() {
    let own =
        "{template: ../../templates/openai-completions.json, extra: {user: \"{{ item.who }}\"}}";
    let mix = format!("dataset: openqa\nmix: [{{name: a}}, {{name: b, request: {own}}}]");
    let case = planned(&format!("{mix}\n{LOAD}")).cases.remove(0);
    assert_eq!(
        of(&case, |own| own.request.template.is_some()),
        [false, true]
    );
    let resolved = plan(&text(&format!("{mix}\n{LOAD}"))).resolved;
    assert!(
        !resolved.contains("completions.json")
            && resolved.contains("{{ prompt }}")
            && resolved.contains("{{ item.who }}"),
        "{resolved}"
    );
}
