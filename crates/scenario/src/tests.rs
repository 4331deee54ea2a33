//! Tests of the compilation from text to plan.

mod default_limit;
mod faults;
mod limits;
mod plans;
mod remote_data;
mod variants;

use super::*;
use llmscen_core::api::Api;
use llmscen_core::load::{Arrival, Shape, Warmup};
use llmscen_core::target::TargetLocation;
use llmscen_core::units::Nanos;
use proptest::prelude::*;
use serde_json::json;

/// The plan of a valid text.
pub(crate) fn plan(yaml: &str) -> Plan {
    load_with(yaml, &[], &[])
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 100)))
        .plan
}

/// Loads a file in an empty environment.
pub(crate) fn load_file(path: &Path) -> Result<Loaded, Faults> {
    load(&Input {
        path,
        text: None,
        env: &BTreeMap::new(),
        set: &[],
    })
}

fn owned<T: FromIterator<(String, String)>>(pairs: &[(&str, &str)]) -> T {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

pub(crate) fn load_with(
    yaml: &str,
    env: &[(&str, &str)],
    set: &[(&str, &str)],
) -> Result<Loaded, Faults> {
    let set: Vec<_> = owned(set);
    load(&Input {
        path: Path::new("t.yaml"),
        text: Some(yaml.to_owned()),
        env: &owned(env),
        set: &set,
    })
}

pub(crate) fn messages(result: Result<Loaded, Faults>) -> Vec<String> {
    result
        .unwrap_err()
        .iter()
        .map(|fault| {
            format!(
                "{}:{}:{} {fault}",
                fault.file(),
                fault.line(),
                fault.column()
            )
        })
        .collect()
}

const BASE: &str = "version: 1\nname: t\ntarget: {url: simulator}\ndataset: openqa\nload: \
    {concurrency: 8, requests: 10x, warmup: 1x}\n";

#[test]
fn plan_has_all_defaults() {
    let plan = plan(BASE);
    let [case] = plan.cases.as_slice() else {
        panic!("{} cases", plan.cases.len())
    };
    assert_eq!(
        (case.id.as_str(), plan.seed.0, plan.rounds, plan.pause),
        ("base", 42, 1, Nanos::ZERO)
    );
    assert_eq!(
        (case.load.requests, case.load.warmup),
        (Some(80), Warmup::Requests(8))
    );
    assert_eq!(case.load.graceful_stop, Nanos::from_millis(30_000));
    assert_eq!(case.target.timeouts.total, Nanos::from_millis(600_000));
    assert_eq!(
        (case.target.models[0].name.as_str(), case.request.stream),
        ("sim", true)
    );
    assert_eq!(
        (
            plan.report.formats.len(),
            plan.report.dir.as_str(),
            plan.id.len()
        ),
        (6, "reports", 16)
    );
}

#[test]
fn api_simulator_equals_url_simulator() {
    let said = plan(&BASE.replace(
        "{url: simulator}",
        "{api: simulator, simulator: {alpha: 1ms}}",
    ));
    assert!(
        matches!(&said.cases[0].target.location, TargetLocation::Simulator { server,
            .. } if server.alpha == Nanos::from_millis(1))
    );
    assert_eq!(
        said,
        plan(&BASE.replace(
            "{url: simulator}",
            "{url: simulator, simulator: {alpha: 1ms}}"
        ))
    );
}

#[test]
fn variables_get_the_type_of_their_value() {
    let yaml = "version: 1\nname: t\nvars: {n: \"${N:-4}\", host: 'h${PORT}', list: [a, \
    b]}\ntarget: {url: \"http://{{ vars.host }}/v1/chat/completions\", model: \"{{ vars.list \
    }}\"}\ndataset: {kind: prompt, text: \"$${X} {{ \\\"{{\\\" }} {{ target.url }}\"}\nload: \
    {concurrency: \"{{ vars.n }}\", requests: \"${R:-${Q:-7}}\"}\n";
    let plan = load_with(yaml, &[("PORT", "80"), ("R", "")], &[])
        .unwrap()
        .plan;
    let case = &plan.cases[0];
    assert_eq!(
        case.target.location,
        TargetLocation::url("http://h80/v1/chat/completions")
    );
    assert_eq!(case.load.shape, Shape::Closed { users: 4 });
    assert_eq!(case.load.requests, Some(7));
    assert_eq!(
        case.target
            .models
            .iter()
            .map(|model| model.name.as_str())
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(
        case.dataset.source,
        llmscen_core::dataset::Source::Prompt("${X} {{ http://h80/v1/chat/completions".into())
    );
    assert_eq!(plan, reloaded(&plan, &[]));
}

#[test]
fn references_to_swept_fields_are_replaced_per_case() {
    let yaml = format!(
        "{BASE}request: {{extra: {{user: \"{{{{ target.model }}}}-{{{{ prompt }}}}\"}}}}\nmatrix: \
        {{target.model: [a, b], vars.x: [p]}}\ndescription: \"{{{{ vars.x }}}}\"\n"
    );
    let plan = plan(&yaml.replace("description: \"{{ vars.x }}\"\n", ""));
    let users: Vec<_> = plan
        .cases
        .iter()
        .map(|case| case.request.extra["user"].clone())
        .collect();
    assert_eq!(users, [json!("a-{{ prompt }}"), json!("b-{{ prompt }}")]);
    assert_eq!(plan, reloaded(&plan, &[]));
}

#[test]
fn settings_override_the_file_and_the_matrix() {
    let yaml = format!(
        "{BASE}matrix: {{load.concurrency: [1, 2], zip: {{dataset.order: [shuffle, sequential], \
        load.requests: [5, 6]}}}}\nslo: [{{expr: error_rate < 1%, when: {{load.concurrency: \
        2}}}}]\n"
    );
    let set = [
        ("load.concurrency", "4"),
        ("load.requests", "9"),
        ("request.extra.top.k", "[1]"),
        ("dataset", "longalpaca"),
    ];
    let loaded = load_with(&yaml, &[], &set).unwrap();
    let ids: Vec<_> = loaded
        .plan
        .cases
        .iter()
        .map(|case| case.id.as_str())
        .collect();
    assert_eq!(
        ids,
        [
            "concurrency=4,order=shuffle,requests=9",
            "concurrency=4,order=sequential,requests=9"
        ]
    );
    assert_eq!(
        loaded.plan.cases[0].request.extra["top"],
        json!({ "k": [1] })
    );
    assert_eq!(
        loaded.plan.cases[0].dataset.source,
        llmscen_core::dataset::Source::Longalpaca
    );
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
    assert_eq!(
        messages(load_with(
            BASE,
            &[],
            &[("load.concurency", "4"), ("seed", "x"), ("load.rate", "{")]
        )),
        [
            "--set:1:1 unknown path `load.concurency`",
            "--set:1:6 `seed` must be a whole number from 0 to 9223372036854775807, or `run`",
            "--set:1:11 invalid YAML: unclosed bracket `{`"
        ]
    );
}

#[test]
fn extended_files_are_merged_and_resolve_their_own_paths() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    write(
        "sub/body.json",
        r#"{"model": "%m", "tags": ["{{ vars.tag }}"]}"#,
    );
    write(
        "sub/base.yaml",
        &format!("{BASE}request: {{template: body.json, stop: [a, b]}}\nvars: {{tag: base}}\n"),
    );
    write(
        "top.yaml",
        "extends: sub/base.yaml\nname: top\nvars: {tag: top}\nload: {concurrency: null, rate: \
        480/m}\nrequest: {stop: [c]}\nload.x: 1\n",
    );
    let path = folder.path().join("top.yaml");
    let faults = load_file(&path).unwrap_err();
    let places: Vec<_> = faults
        .iter()
        .map(|fault| (fault.line(), fault.column(), fault.message()))
        .collect();
    let multiple = "a multiple of the concurrency, without a concurrency";
    assert_eq!(
        places,
        [
            (6, 1, "unknown key `load.x`"),
            (5, 34, multiple),
            (5, 47, multiple)
        ]
    );
    write(
        "top.yaml",
        "extends: sub/base.yaml\nname: top\nvars: {tag: top}\nload: {concurrency: null, rate: \
        480/m, requests: 5, warmup: 0}\nrequest: {stop: [c]}\n",
    );
    let plan = load_file(&path).unwrap().plan;
    assert_eq!(plan.name, "top");
    assert_eq!(
        plan.cases[0].load.shape,
        Shape::Open {
            rate: 8.0,
            arrival: Arrival::Poisson
        }
    );
    assert_eq!(
        plan.cases[0].request.template,
        Some(json!({ "model": "%m", "tags": ["top"] }))
    );
    assert_eq!(plan.cases[0].request.sampling["stop"], json!(["c"]));
}

/// The plan of a plan's resolved text, read from another folder.
pub(crate) fn reloaded(plan: &Plan, env: &[(&str, &str)]) -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.yaml");
    let input = Input {
        path: &path,
        text: Some(plan.resolved.clone()),
        env: &owned(env),
        set: &[],
    };
    load(&input)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 100)))
        .plan
}

/// The shipped scenarios, by name.
fn shipped() -> Vec<(String, std::path::PathBuf)> {
    let files = std::fs::read_dir("../../scenarios")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let scenarios = files.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let mut named: Vec<_> = scenarios
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    named.retain(|(name, _)| cfg!(feature = "local") || !name.starts_with("local"));
    named.sort();
    named
}

#[test]
fn resolved_plans_of_shipped_scenarios_load_as_the_same_plan() {
    for (name, path) in shipped() {
        let loaded = load_file(&path).unwrap();
        // As text: the limit that depends on another group is NaN.
        let text = |plan: &Plan| format!("{plan:?}");
        assert_eq!(text(&loaded.plan), text(&reloaded(&loaded.plan, &[])));
        assert_eq!(
            (&loaded.plan.name, loaded.plan.description.is_some()),
            (&name, true)
        );
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }
}

#[test]
fn shipped_scenarios_read_the_server_from_the_environment() {
    let without = ["quickstart", "slo-fail", "local", "local-speed"];
    for (name, path) in shipped()
        .iter()
        .filter(|(name, _)| !without.contains(&name.as_str()))
    {
        let env = owned(&[("LLM_URL", "https://example.org/v1/x"), ("LLM_MODEL", "m")]);
        let loaded = load(&Input {
            path,
            text: None,
            env: &env,
            set: &[],
        })
        .unwrap_or_else(|faults| panic!("{name}: {faults}"));
        let target = &loaded.plan.cases[0].target;
        // Realtime names the model in the URL.
        let query = if target.api == Api::OpenaiRealtime {
            "?model=m"
        } else {
            ""
        };
        let url = format!("https://example.org/v1/x{query}");
        assert_eq!(
            (&target.location, target.models[0].name.as_str()),
            (&TargetLocation::url(url), "m")
        );
    }
}

#[test]
fn shipped_scenarios_expand_to_these_cases() {
    let mut lines = Vec::new();
    for (name, path) in shipped() {
        let plan = load_file(&path).unwrap().plan;
        for search in &plan.searches {
            let (spec, loads) = (&search.spec, search.grid.len());
            lines.push(format!(
                "{name} searches {} over {loads} loads, {} to {}, from {}",
                spec.vary, spec.low, spec.high, spec.start
            ));
        }
        // The loads of a search differ in nothing else.
        for case in plan.cases.iter().take(if plan.searches.is_empty() {
            usize::MAX
        } else {
            1
        }) {
            let (load, data) = (&case.load, &case.dataset);
            let checks: Vec<String> = case.checks.iter().map(ToString::to_string).collect();
            let planned = load
                .planned()
                .map_or("open end".to_owned(), |n| n.to_string());
            let more = [
                data.shape.as_ref().map(|shape| format!("{shape:?}")),
                data.turns.as_ref().map(|turns| format!("{turns:?}")),
            ];
            let sources = case
                .traffic_classes()
                .into_iter()
                .map(|line| format!("{:?}", line.dataset.source));
            let data = sources
                .chain(more.into_iter().flatten())
                .collect::<Vec<_>>();
            let (id, api, shape) = (&case.id, case.target.api, case.describe_load());
            let line = format!(
                "{name} {id} | {api} | {} | {shape} | {planned} | {}",
                data.join(", "),
                checks.join("; ")
            );
            lines.push(line.trim_end().to_owned());
        }
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../tests/plans");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("shipped", lines.join("\n")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expansion_does_not_depend_on_key_order(order in Just((0..8usize).collect::<Vec<_>>()).prop_shuffle()) {
        let sections = [
            "version: 1", "name: t", "target: {url: simulator, gpus: 2, model: a}", "dataset: \
            {kind: random, tokens: 5}",
            "load: {requests: 10x, warmup: 1}", "request: {temperature: 0, top_k: 3}", "slo: [error_rate < 1%]",
            "matrix: {load.concurrency: [1, 2], request.max_tokens: [3, 4]}",
        ];
        let mixed: Vec<&str> = order.iter().map(|index| sections[*index]).collect();
        let mixed = mixed.join("\n").replace("{url: simulator, gpus: 2, model: a}",
            if order[0] % 2 == 0 { "{gpus: 2, model: a, url: simulator}" } else { "{model: a, \
            url: simulator, gpus: 2}" });
        prop_assert_eq!(plan(&mixed), plan(&sections.join("\n")));
    }
}

#[test]
fn settings_accept_text_that_is_not_yaml() {
    let base = "version: 1\nname: t\ntarget: {url: simulator}\ndataset: {kind: prompt, text: \
    x}\nload: {concurrency: 1, requests: 1}\n";
    let text = |value: &str| {
        let plan = load_with(base, &[], &[("dataset.text", value)])
            .unwrap_or_else(|faults| panic!("{value}: {faults}"))
            .plan;
        match plan.cases[0].dataset.source.clone() {
            llmscen_core::dataset::Source::Prompt(text) => text,
            other => panic!("{other:?}"),
        }
    };
    for value in [
        "Say: hi", "a #b", "#b", "*x", "&x", "&x y", "!x y", "%x", "a: b: c", "- a", "`x`", "| x",
        "> x", "a, b", "x:",
    ] {
        assert_eq!(text(value), value);
    }
    assert_eq!(
        (text("'a: b'"), text("\"a\\tb\"")),
        ("a: b".to_owned(), "a\tb".to_owned())
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from the file").unwrap();
    assert_eq!(
        text(&format!("@{}", file.path().display())),
        "from the file"
    );
}

#[test]
fn settings_accept_lists_mappings_and_nothing() {
    let base = "version: 1\nname: t\ntarget: {url: simulator}\ndataset: {kind: prompt, text: x, \
    system: s}\nload: {}\n";
    let set = [
        (
            "load.stages",
            "[{ rate: 8/s, for: 30s }, { rate: 0/s, for: 5s }]",
        ),
        ("dataset.system", ""),
        ("request.extra", "a: 1"),
    ];
    let plan = load_with(base, &[], &set)
        .unwrap_or_else(|faults| panic!("{faults}"))
        .plan;
    let case = &plan.cases[0];
    assert_eq!(
        (
            case.load.shape.stages().len(),
            case.dataset.system.as_deref()
        ),
        (2, None)
    );
    assert!(
        plan.resolved.contains("extra:\n    a: 1\n"),
        "{}",
        plan.resolved
    );
    let faults = load_with(base, &[], &[("load.stages", "[{ rate: 8/s")])
        .unwrap_err()
        .to_string();
    assert!(
        faults.contains("unclosed bracket"),
        "a bracket that is open is an error: {faults}"
    );
}
