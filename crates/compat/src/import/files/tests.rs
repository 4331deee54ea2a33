use super::*;
use llmscen_scenario::{Input, reload};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn plan(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/imports/plans")
        .join(name)
}

fn imported(name: &str) -> ImportedFile {
    import_file(&plan(name), None, &[]).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The number of cases of a scenario, which is valid.
fn cases(yaml: &str) -> usize {
    let input = Input {
        path: Path::new("x.yaml"),
        text: Some(yaml.to_owned()),
        env: &BTreeMap::new(),
        set: &[],
    };
    match reload(&input) {
        Ok(loaded) => loaded.plan.cases.len(),
        Err(faults) => panic!("{yaml}\n{}", faults.render(false, 120)),
    }
}

/// Each file with its format, and the number of cases of each scenario that it becomes.
const PLANS: [(&str, &str, &[usize]); 14] = [
    ("serving-tests.json", "vllm-serving-tests", &[6]),
    ("serving-tests-rates.json", "vllm-serving-tests", &[8, 4]),
    ("perf-eval.yaml", "vllm-perf-eval", &[4]),
    ("inference-perf.yml", "inference-perf", &[1]),
    ("aiperf.yaml", "aiperf", &[6]),
    ("aiperf-scenarios.yaml", "aiperf", &[2]),
    ("aiperf-trace.yaml", "aiperf", &[1]),
    ("guidellm.json", "guidellm", &[3]),
    ("guidellm-old.yaml", "guidellm", &[2]),
    ("inferencex-master.yaml", "inferencex", &[12, 2]),
    ("workload/experiments/pd.yaml", "llm-d", &[2]),
    ("llm-d-scenario.yaml", "llm-d", &[1]),
    ("llm-d-inference-perf.yaml.in", "llm-d", &[2]),
    ("llm-d-guidellm.yaml.in", "llm-d", &[1]),
];

#[test]
fn plan_files_become_valid_scenarios() {
    for (name, format, expected) in PLANS {
        let imported = imported(name);
        assert_eq!(imported.format, format, "{name}");
        let counts: Vec<usize> = imported
            .scenarios
            .iter()
            .map(|scenario| cases(&scenario.yaml))
            .collect();
        assert_eq!(counts, expected, "{name}");
        let all: Vec<&str> = imported
            .scenarios
            .iter()
            .map(|scenario| scenario.yaml.as_str())
            .collect();
        let snapshot = name.split('.').next().unwrap().replace('/', "-");
        insta::assert_snapshot!(snapshot, all.join("---\n"));
    }
}

#[test]
fn every_field_has_a_key_or_a_reason() {
    for (name, ..) in PLANS {
        for account in imported(name).accounts {
            let explained = account.note.as_deref().is_some_and(|note| !note.is_empty());
            assert!(!account.keys.is_empty() || explained, "{name}: {account:?}");
        }
    }
}

#[test]
fn no_secret_of_a_file_is_written() {
    for (name, ..) in PLANS {
        let seen = imported(name);
        assert!(!format!("{seen:?}").contains("hush"), "{name}: {seen:#?}");
    }
}

#[test]
fn the_tests_of_a_file_can_be_selected() {
    let only = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        import_file(&plan("inferencex-master.yaml"), None, &texts)
    };
    let one = only(&["vllm-tp4", "trt"]).unwrap();
    assert_eq!((one.tests, one.scenarios.len()), (2, 2));
    assert_eq!(cases(&one.scenarios[0].yaml), 5);
    let none = only(&["h100"]).unwrap_err().to_string();
    assert!(
        none.starts_with("no test matches --only h100; the tests are m7b-fp8-h200"),
        "{none}"
    );
}

fn text(content: &str, from: Option<FileFormat>) -> Result<ImportedFile, FileError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.yaml");
    std::fs::write(&path, content).unwrap();
    import_file(&path, from, &[])
}

#[test]
fn an_unknown_format_is_an_error_that_lists_the_known_ones() {
    let error = text("a: 1\n", None).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "unknown format; known are llm-d, inferencex, vllm-serving-tests, vllm-perf-eval, \
            aiperf, inference-perf, guidellm"
        ),
        "{error}"
    );
    // A forced format reports what it misses.
    let error = text("a: 1\n", Some(FileFormat::InferencePerf)).unwrap_err();
    assert!(
        error.to_string().contains("no `data.input_distribution`")
            || error.to_string().contains("no `load.stages`"),
        "{error}"
    );
}

#[test]
fn errors_point_into_the_file() {
    let place = |content: &str, from| match text(content, from).unwrap_err() {
        FileError::Faults(faults) => {
            let first = faults.iter().next().unwrap();
            format!("{}:{} {}", first.line(), first.column(), first.message())
        }
        other => panic!("{other}"),
    };
    let load = "load:\n  type: ramp\n  stages: [{ rate: 1, duration: 2 }]\nserver: { base_url: \"http://h\" }\n";
    assert_eq!(place(load, None), "2:9 `load.type` has no counterpart");
    let tests = "[{ \"test_name\": \"serving_a\", \"client_parameters\": {\n  \"dataset_name\": \"hf\" } }]\n";
    assert_eq!(
        place(tests, None),
        "2:19 `client_parameters.dataset_name` has no counterpart"
    );
    let space = "e:\n  framework: vllm\n  seq-len-configs:\n  - { isl: 8, osl: 8, search-space: [{ tp: 1 }] }\n";
    assert_eq!(
        place(space, None),
        "4:38 a search space without concurrency"
    );
    assert_eq!(
        place("treatments: []\n", None),
        "1:1 no `experiment.harness` and `experiment.profile`"
    );
    let job =
        "benchmark:\n  endpoint: { url: h }\n  phases: { type: user_centric, rate: 1, users: 2 }\n";
    assert_eq!(
        place(job, None),
        "3:19 this type of phase has no counterpart"
    );
    assert!(place("a: [1\n", None).starts_with("1:"), "not YAML");
}

#[test]
fn an_unknown_field_is_listed_with_a_hint() {
    let seen = text(
        "target: http://h\nprofile: constant\nrate: 1\nmax_second: 5\ndata: prompt_tokens=8\n",
        None,
    )
    .unwrap();
    let account = seen
        .accounts
        .iter()
        .find(|account| account.flag.starts_with("max_second"))
        .unwrap();
    assert_eq!(
        account.note.as_deref(),
        Some("not understood; did you mean `max-seconds`?")
    );
}

/// The files of `tests/imports/plans` with one key more in one of their mappings, as JSON, and the path of that
/// mapping.
fn with_unknown_keys(value: &serde_json::Value) -> Vec<(String, serde_json::Value)> {
    fn paths(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                found.push(path.to_owned());
                for (key, value) in fields {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    paths(value, &format!("{path}/{key}"), found);
                }
            }
            serde_json::Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    paths(value, &format!("{path}/{index}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    paths(value, "", &mut found);
    let with = |path: String| {
        let mut changed = value.clone();
        if let Some(serde_json::Value::Object(fields)) = changed.pointer_mut(&path) {
            fields.insert("zz_unknown".to_owned(), serde_json::json!(7));
        }
        (path, changed)
    };
    found.into_iter().map(with).collect()
}

#[test]
fn an_unknown_key_at_any_level_is_named_or_refused() {
    let mut silent = Vec::new();
    let mut count = 0;
    for (name, ..) in PLANS {
        let text = std::fs::read_to_string(plan(name)).unwrap();
        let value: serde_json::Value = serde_yaml::from_str(&text).unwrap();
        let folder = tempfile::tempdir_in(plan(name).parent().unwrap()).unwrap();
        for (level, changed) in with_unknown_keys(&value) {
            count += 1;
            let path = folder.path().join("plan.yaml");
            std::fs::write(&path, changed.to_string()).unwrap();
            if let Ok(imported) = import_file(&path, None, &[]) {
                let named = imported
                    .scenarios
                    .iter()
                    .any(|scenario| scenario.yaml.contains("zz_unknown"));
                // Or the whole block around it has no counterpart.
                let fields: Vec<String> = level.split('/').skip(1).map(str::to_owned).collect();
                let refused = imported.accounts.iter().any(|account| {
                    let last = account.flag.split('.').next_back().unwrap_or_default();
                    account.keys.is_empty() && fields.iter().any(|field| field == last)
                });
                if !named && !refused {
                    silent.push(format!("{name}{level}"));
                }
            }
        }
    }
    assert!(count > 130, "{count} levels");
    assert!(
        silent.is_empty(),
        "{} of {count}: {silent:#?}",
        silent.len()
    );
}

/// A file, texts that its scenarios have, and whether they lack a part of the load.
fn becomes(content: &str, parts: &[&str], cases_of_all: usize, loses_load: bool) {
    let imported = text(content, None).unwrap_or_else(|error| panic!("{content}\n{error}"));
    let all: Vec<&str> = imported
        .scenarios
        .iter()
        .map(|one| one.yaml.as_str())
        .collect();
    let all = all.join("---\n");
    for part in parts {
        assert!(all.contains(part), "`{part}` is not in\n{all}");
    }
    let counts = imported.scenarios.iter().map(|one| cases(&one.yaml));
    assert_eq!(counts.sum::<usize>(), cases_of_all, "{all}");
    let lost: Vec<&Account> = imported
        .accounts
        .iter()
        .filter(|one| one.loses_load)
        .collect();
    assert_eq!(!lost.is_empty(), loses_load, "{lost:#?}");
}

const AIPERF: &str = "benchmark:\n  model: m\n  endpoint: { url: 'http://h:8000', type: chat }\n  \
    dataset: { type: synthetic, prompts: { isl: 100, osl: 10 } }\n";

#[test]
fn every_phase_and_every_point_of_a_sweep_is_a_case() {
    let phases = "  phases:\n  - { name: low, kind: profiling, type: concurrency, concurrency: 2, \
    requests: 20 }\n  - { name: high, kind: profiling, type: concurrency, concurrency: 9, \
    requests: 90 }\n";
    becomes(&format!("{AIPERF}{phases}"), &["10x"], 2, false);
    let phase = "  phases: [{ name: p, kind: profiling, type: concurrency, concurrency: 2, requests: 20 }]\n";
    let sweep = "sweep: { type: grid, variables: { phases.profiling.concurrency: [1, 2, 3], \
    dataset.prompts.osl: [4, 5, 6] } }\n";
    becomes(&format!("{AIPERF}{phase}{sweep}"), &[], 9, false);
    let odd = sweep.replace("type: grid", "type: grid, seeds: [1, 2]");
    becomes(
        &format!("{AIPERF}{phase}{odd}"),
        &["sweep.seeds", "not understood, 2 values"],
        9,
        true,
    );
    let none = text(
        &format!("{AIPERF}{phase}sweep: {{ type: grid, axes: {{ a: [1] }} }}\n"),
        None,
    );
    assert!(
        none.unwrap_err()
            .to_string()
            .contains("a sweep without parameters")
    );
}

#[test]
fn jobs_sweeps_and_older_files_of_aiperf_are_read() {
    let body = AIPERF.replace('\n', "\n  ");
    let phase = "  phases: { profiling: { type: concurrency, concurrency: 2, requests: 20 } }\n";
    becomes(
        &format!(
            "apiVersion: v1\nkind: AIPerfSweep\nspec:\n  {}{phase}  sweep: {{ type: grid, \
            parameters: {{ concurrency: [1, 2] }} }}\n",
            body.trim_end().to_owned() + "\n  "
        ),
        &[],
        2,
        false,
    );
    becomes(
        "kind: AIPerfSweep\nspec:\n  benchmark: { model: m, endpoint: { url: 'http://h:8000', \
        type: chat }, dataset: { type: synthetic, prompts: { isl: 100, osl: 10 } } }\n  \
        failurePolicy: continue\n  sweep: { type: scenarios, runs: [{ name: low, phases: { \
        profiling: { type: concurrency, concurrency: 2, requests: 20 } } }, { name: high, phases: \
        { profiling: { type: concurrency, concurrency: 9, requests: 90 } } }] }\n",
        &["- 2", "- 9", "requests: 10x"],
        2,
        false,
    );
    let older = "model: m\nendpoint: { url: 'http://h:8000', type: chat }\ndataset: { type: \
    synthetic, prompts: { isl: 100, osl: 10 } }\nphases: { profiling: { type: concurrency, \
    concurrency: 2, requests: 20 } }\nserverMetrics: { urls: ['http://h:8000/metrics'] }\n";
    becomes(older, &["concurrency: 2", "requests: 20"], 1, false);
    becomes(
        &format!(
            "{AIPERF}  serverMetrics: {{ urls: ['http://h:8000/metrics'] }}\n  phases: {{ \
            profiling: {{ type: concurrency, concurrency: 2, requests: 20 }} }}\n"
        ),
        &["metrics:", "http://h:8000/metrics"],
        1,
        false,
    );
    // A job that lists every default, in the template of a sweep that has its own fields.
    becomes(
        "kind: AIPerfSweep\nspec:\n  ttlSecondsAfterFinished: 86400\n  failurePolicy: { \
        onChildFailure: continue, maxFailures: 0 }\n  sweep: { type: scenarios, runs: [{ name: \
        low, phases: [{ name: profiling, concurrency: 2 }] }, { name: high, phases: [{ name: \
        profiling, concurrency: 9 }] }] }\n  template:\n    spec:\n      cancel: false\n      \
        keepFailedPods: false\n      benchmark:\n        models: { strategy: weighted, items: [{ \
        name: a, weight: 0.25 }, { name: b, weight: 0.75 }] }\n        endpoint: { url: \
        'http://h:8000', type: chat, readyCheckMode: inference, readyCheckInterval: 5, \
        readyCheckTimeout: 0, useLegacyMaxTokens: false, downloadVideoContent: false, extra: {}, \
        headers: {} }\n        datasets: [{ name: main, type: synthetic, prompts: { isl: 100, \
        osl: 10 } }]\n        phases: [{ name: profiling, type: concurrency, concurrency: 1, \
        requests: 20 }]\n        serverMetrics: { enabled: true, discovery: { mode: auto } }\n",
        &["name: a", "weight: 0.75", "- 2", "- 9"],
        2,
        false,
    );
}

#[test]
fn a_phase_of_aiperf_has_the_dataset_that_it_names() {
    let head = "model: m\nendpoint: { url: 'http://h:8000', type: chat }\n";
    let phase = |name: &str, dataset: &str| {
        format!(
            "- {{ name: {name}, dataset: {dataset}, type: concurrency, concurrency: 2, requests: 20 }}\n"
        )
    };
    let phases = format!("phases:\n{}{}", phase("one", "short"), phase("two", "long"));
    let listed = "datasets: [{ name: short, prompts: { isl: 100, osl: 10 } }, { name: long, \
    prompts: { isl: 900, osl: 10 } }]\n";
    becomes(
        &format!("{head}{listed}{phases}"),
        &["tokens: 100", "tokens: 900"],
        2,
        false,
    );
    let unknown = phases.replace("dataset: long", "dataset: other");
    becomes(
        &format!("{head}{listed}{unknown}"),
        &["names no dataset"],
        2,
        true,
    );
    let named = "datasets: { short: { type: synthetic, prompts: { isl: 100, osl: 10 } } }\n";
    let sweep = "sweep: { type: scenarios, runs: [{ name: a, datasets: { short: { prompts: { isl: \
    7 } } } }, { name: b, datasets: { short: { prompts: { isl: 8 } } } }] }\n";
    becomes(
        &format!("{head}{named}phases:\n{}{sweep}", phase("one", "short")),
        &["tokens: 7", "tokens: 8"],
        2,
        false,
    );
}

#[test]
fn ramps_and_filters_of_aiperf_are_kept() {
    let ramp = "  phases: { profiling: { type: poisson, rate: 50, duration: 300, concurrency: 64, \
    rateRamp: 30s, prefillRamp: 30s } }\n";
    becomes(
        &format!("{AIPERF}{ramp}"),
        &["rate: 0/s -> 50/s", "for: 30s", "for: 270s", "of: 64"],
        1,
        false,
    );
    let log = |synthesis: &str| {
        format!(
            "benchmark:\n  model: m\n  endpoint: {{ url: 'http://h:8000', type: chat }}\n  \
            dataset: {{ type: file, path: t.jsonl, format: mooncake_trace, synthesis: {{ \
            {synthesis} }} }}\n  phases: {{ type: fixed_schedule, concurrency: 200 }}\n"
        )
    };
    let kept = "speedupRatio: 2.0, promptLenMultiplier: 1.0, maxIsl: 8192";
    becomes(&log(kept), &["speed: 2", "max: 8192", "of: 200"], 1, false);
    becomes(&log("promptLenMultiplier: 2.0, maxOsl: 9"), &[], 1, true);
    let phase = "  phases: { profiling: { type: concurrency, concurrency: 2, requests: 20 } }\n";
    let skewed = AIPERF.replace("isl: 100", "isl: { mean: 1024, stddev: 50, median: 904 }");
    becomes(
        &format!("{skewed}{phase}"),
        &["lognormal:", "mean: 1024", "sd: 545"],
        1,
        false,
    );
    let two = "isl: { peaks: [{ mean: 9, weight: 60 }, { mean: 99, weight: 40 }] }";
    becomes(
        &format!("{}{phase}", AIPERF.replace("isl: 100", two)),
        &["mix"],
        1,
        true,
    );
    let audio = "prompts: { isl: 100, osl: 10 }, audio: { batchSize: 1, length: 7 }";
    let audio = AIPERF.replace("prompts: { isl: 100, osl: 10 }", audio);
    becomes(&format!("{audio}{phase}"), &["kind: audio"], 1, true);
}

const INFERENCE_PERF: &str = "api: { type: chat, streaming: true }\nserver: { type: vllm, \
    model_name: m, base_url: 'http://h:8000' }\n";

#[test]
fn workloads_of_inference_perf_keep_their_lengths_and_sessions() {
    let stage = "load: { type: constant, stages: [{ rate: 2, duration: 30 }] }\n";
    becomes(
        &format!(
            "{INFERENCE_PERF}{stage}data: {{ type: shared_prefix, shared_prefix: {{ \
            num_unique_system_prompts: 150, num_users_per_system_prompt: 7, system_prompt_len: \
            100, question_len: 50, output_len: 20 }} }}\n"
        ),
        &["groups: 150", "per_group: 7"],
        1,
        false,
    );
    becomes(
        &format!(
            "{INFERENCE_PERF}{stage}data: {{ type: shareGPT, input_distribution: {{ min: 10, max: 1024 }} }}\n"
        ),
        &[
            "from: item.output_tokens",
            "min: 10",
            "max: 1024",
            "ignore_eos: true",
        ],
        1,
        false,
    );
    let users =
        "load: { type: concurrent, stages: [{ concurrency_level: 4, num_requests: 40 }] }\n";
    becomes(
        &format!(
            "{INFERENCE_PERF}{users}data: {{ type: conversation_replay, conversation_replay: {{ \
            num_conversations: 10, shared_system_prompt_len: 100, turns_per_conversation: {{ \
            type: uniform, min: 2, max: 6 }}, input_tokens_per_turn: {{ type: normal, mean: 50, \
            std_dev: 5, min: 10, max: 90 }}, output_tokens_per_turn: 20, tool_call_latency_sec: \
            2, odd: 1 }} }}\n"
        ),
        &[
            "not understood: odd",
            "turns:",
            "think_time: 2s",
            "shared_prefix: 100",
            "max_tokens: 20",
        ],
        1,
        true,
    );
    becomes(
        &format!(
            "{INFERENCE_PERF}load: {{ type: trace_session_replay, stages: [{{ \
            concurrent_sessions: 4 }}, {{ concurrent_sessions: 8 }}] }}\ndata: {{ type: \
            otel_trace_replay, otel_trace_replay: {{ trace_directory: t, use_static_model: true, \
            static_model_name: own }} }}\n"
        ),
        &["on_exhausted: stop", "model: own"],
        2,
        false,
    );
    let agents = |depth: u32| {
        format!(
            "{INFERENCE_PERF}load: {{ type: trace_session_replay, stages: [{{ \
            concurrent_sessions: 2 }}] }}\ndata: {{ type: synthetic_agentic, synthetic_agentic: \
            {{ num_sessions: 5, seed: 2, theme_mix: {{ generic: 1.0 }}, turns_per_session: {{ \
            type: fixed, mean: 3 }}, fanout_probability: 0.0, tool_loop_depth: {{ type: fixed, \
            mean: {depth} }}, input_tokens_per_turn: {{ type: fixed, mean: 200 }}, \
            output_tokens_per_turn: {{ type: fixed, mean: 60 }}, tool_call_latency_sec: {{ type: \
            fixed, mean: 1 }}, user_think_time_sec: {{ type: fixed, mean: 2 }} }} }}\n"
        )
    };
    let kept = [
        "count: 3",
        "think_time: 2s",
        "max_tokens: 60",
        "sessions: 5",
    ];
    becomes(&agents(0), &kept, 1, false);
    becomes(&agents(2), &["tools and sub-agents"], 1, true);
    let drawn = agents(0).replace("type: fixed, mean: 0", "type: uniform, min: 1, max: 4");
    becomes(&drawn, &["tools and sub-agents"], 1, true);
    for (kind, layout) in [("otel_trace_replay", "otel"), ("weka_trace_replay", "weka")] {
        becomes(
            &format!(
                "{INFERENCE_PERF}{users}data: {{ type: {kind}, {kind}: {{ trace_files: [t.jsonl] }} }}\n"
            ),
            &[
                "kind: trace",
                "path: t.jsonl",
                &format!("layout: {layout}"),
                "requests: ",
            ],
            1,
            false,
        );
    }
    becomes(
        &format!(
            "{INFERENCE_PERF}load: {{ type: trace_replay, trace: {{ file: a.csv, format: \
            AzurePublicDataset }} }}\ndata: {{ type: random, input_distribution: {{ mean: 100, \
            std_dev: 5 }}, output_distribution: {{ mean: 10, std_dev: 1 }} }}\n"
        ),
        &["trace:", "path: a.csv", "layout: azure"],
        1,
        false,
    );
    becomes(
        &format!(
            "{INFERENCE_PERF}load: {{ type: constant, interval: 5, stages: [{{ rate: 2, duration: \
            30, odd: 1 }}, {{ rate: 4, duration: 30 }}] }}\ndata: {{ type: mock }}\n"
        ),
        &["rate: 0/s", "for: 5s", "not understood: odd"],
        1,
        true,
    );
}

#[test]
fn the_lengths_of_published_workloads_are_read() {
    let stage = "load: { type: constant, stages: [{ rate: 2, duration: 30 }] }\n";
    let random = |input: &str, output: &str| {
        format!(
            "{INFERENCE_PERF}{stage}data: {{ type: random, input_distribution: {input}, \
            output_distribution: {output} }}\n"
        )
    };
    becomes(
        &random(
            "{ distribution: lognormal, mean: 100, std_dev: 50, min: 10, max: 900 }",
            "'Min(100, Max(10, Normal(50, 5)))'",
        ),
        &[
            "lognormal:",
            "mean: 100",
            "max: 900",
            "mean: 50",
            "min: 10",
            "max: 100",
        ],
        1,
        false,
    );
    becomes(
        &random(
            "{ type: skew_normal, mean: 100, std_dev: 50, skew: 3 }",
            "{ mean: 10, std_dev: 1 }",
        ),
        &["not understood: skew"],
        1,
        true,
    );
    let error = text(&random("'Zipf(1, 2)'", "'Normal(5, 1)'"), None).unwrap_err();
    let FileError::Faults(faults) = error else {
        panic!("{error}");
    };
    let help = faults.render(false, 200);
    assert!(help.contains("an expression of Normal"), "{help}");
    becomes(
        &format!(
            "{INFERENCE_PERF}{stage}data: {{ type: bimodal, bimodal: {{ mode_a_ratio: 0.7, \
            mode_a_groups: 3, mode_a_system_prompt_len: 100, mode_a_user_prompt_len: 20, \
            mode_a_output_len: 5, mode_b_user_prompt_len: 900, mode_b_output_len: 50 }} }}\n"
        ),
        &[
            "weight: 0.7",
            "groups: 3",
            "prefix_tokens: 100",
            "kind: random",
            "weight: 0.3",
            "tokens: 900",
            "max_tokens: 50",
        ],
        1,
        false,
    );
    let embeddings = INFERENCE_PERF.replace(
        "type: chat, streaming: true",
        "type: embeddings, embeddings: { batch_size: 8 }",
    );
    becomes(
        &format!(
            "{embeddings}{stage}data: {{ type: random, input_distribution: {{ mean: 100, std_dev: 0 }} }}\n"
        ),
        &[
            "openai-embeddings",
            "kind: embeddings",
            "tokens: 100",
            "batch: 8",
        ],
        1,
        false,
    );
    let completion = INFERENCE_PERF.replace("{ type: chat, streaming: true }", "completion");
    becomes(
        &format!("{completion}{stage}data: {{ type: mock }}\n"),
        &["openai-completions"],
        1,
        false,
    );
}

#[test]
fn the_turns_of_guidellm_keep_their_first_prompt_and_their_delay() {
    let spec = |data: &str| {
        format!(
            "spec:\n  backend: {{ kind: openai_http, target: 'http://h:8000', model: m }}\n  \
            profile: {{ kind: concurrent, streams: 4 }}\n  data: {data}\n  seed: {{ kind: static, \
            value: 7 }}\n  constraints: [{{ kind: min_requests, count: 10 }}]\n"
        )
    };
    becomes(
        &spec(
            "{ kind: synthetic_text, prompt_tokens: 100, output_tokens: 10, first_prompt_tokens: \
            3000, turns: 5, delay: 2 }",
        ),
        &["seed: 7", "tokens: 3000", "tokens: 100", "think_time: 2s"],
        1,
        false,
    );
    becomes(
        &spec("{ kind: otel, source: spans.jsonl, max_wait: 3 }"),
        &["layout: otel", "path: spans.jsonl", "max_idle: 3s"],
        1,
        false,
    );
    let hub = text(
        &spec("{ kind: otel, source: { kind: huggingface, name: a/b } }"),
        None,
    );
    let Err(FileError::Faults(faults)) = hub else {
        panic!("{hub:?}");
    };
    let shown = faults.render(false, 200);
    assert!(
        shown.contains("a dataset of the hub is not read"),
        "{shown}"
    );
}

#[test]
fn embeddings_of_vllm_have_no_output_length() {
    let file = "[{ \"test_name\": \"serving_embed\", \"qps_list\": [4], \"client_parameters\": \
    { \"model\": \"m\", \"backend\": \"openai-embeddings\", \"endpoint\": \"/v1/embeddings\", \"dataset_name\": \"random\", \"random_input_len\": 32, \"random_batch_size\": 4, \"num_prompts\": 20 } }]\n";
    becomes(
        file,
        &["kind: embeddings", "tokens: 32", "batch: 4"],
        1,
        false,
    );
    let imported = text(file, None).unwrap();
    assert!(!imported.scenarios[0].yaml.contains("max_tokens"));
}

#[test]
fn agents_and_twins_of_inferencex_are_named() {
    let entry = |name: &str, precision: &str, more: &str| {
        format!(
            "{name}:\n  image: i\n  model: m\n  precision: {precision}\n  framework: vllm\n  \
            runner: h200\n  scenarios:\n    fixed-seq-len: [{{ isl: 1024, osl: 512, search-space: \
            [{{ tp: 4, conc-list: [4, 8] }}] }}]\n{more}"
        )
    };
    becomes(
        &(entry("a", "fp8", "") + &entry("b", "fp4", "")),
        &["a-tp4: {}", "b-tp4: {}"],
        4,
        false,
    );
    becomes(
        &entry(
            "a",
            "fp8",
            "    agentic-coding: [{ duration: 600, search-space: [{ tp: 8, conc-list: [1] }] }]\n",
        ),
        &[
            "agentic-coding",
            "layout: weka",
            "duration: 600s",
            "${AGENTX_LOG}",
            "max_idle: 10s",
        ],
        3,
        false,
    );
}

#[test]
fn overrides_of_guidellm_reach_into_lists() {
    let spec = "spec:\n  backend: { kind: openai_http, target: 'http://h:8000', model: m }\n  \
    profile: { kind: concurrent, streams: 4 }\n  data: { kind: synthetic_text, prompt_tokens: \
    100, output_tokens: 10, turns: 5, prefix_buckets: [{ prefix_count: 3, prefix_tokens: 60, \
    bucket_weight: 100 }] }\n  constraints: [{ kind: max_requests, count: 10 }]\n";
    becomes(
        &format!(
            "{spec}benchmarks: [{{ profile.streams: 4, 'constraints[0].count': 40 }}, {{ \
            profile.streams: 9, 'constraints[0].count': 90 }}]\n"
        ),
        &[
            "kind: prefix",
            "groups: 3",
            "prefix_tokens: 60",
            "count: 5",
            "requests: 10x",
        ],
        2,
        false,
    );
}

#[test]
fn a_test_without_a_load_is_an_error() {
    let error = text(
        "executable: benchmark_serving.py\nmodel: REPLACE_ENV_M\n",
        None,
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("no field of this test says how requests are sent"),
        "{error}"
    );
}

#[test]
fn repetitions_of_perf_eval_are_rounds() {
    let file = "name: default\nvllm: { model: org/m-7b, serve_args: '--max-model-len 4096' \
    }\nvllm_bench:\n  configs:\n  - { name: chat, dataset: random, input_len: 100, output_len: \
    10, num_prompts: 20, max_concurrency: 2, repetitions: 3 }\n";
    becomes(file, &["name: chat", "rounds: 3"], 1, false);
}

#[test]
fn no_secret_of_a_url_a_name_or_a_header_is_written() {
    let phase = "  phases: { profiling: { type: concurrency, concurrency: 2, requests: 20 } }\n";
    let urls = AIPERF.replace(
        "url: 'http://h:8000'",
        "urls: ['http://u:hushpw@a:8000', 'http://b:8000/v1?key=hushkey']",
    );
    let metrics = "  serverMetrics: { urls: ['http://u:hushpage@h/metrics'] }\n";
    let sweep = "sweep: { type: grid, parameters: { endpoint.api_key: [hush1, hush2] } }\n";
    let files = [
        format!("{urls}{metrics}{phase}{sweep}"),
        "spec:\n  backend: { kind: openai_http, target: 'http://u:hush@h:8000', api_key: hush \
        }\n  profile: { kind: concurrent, streams: 4 }\n  data: { kind: synthetic_text, \
        prompt_tokens: 100, output_tokens: 10 }\n  constraints: [{ kind: max_requests, count: 10 \
        }]\nbenchmarks: [{ backend.api_key: hush-a }]\n"
            .to_owned(),
        format!(
            "{INFERENCE_PERF}load: {{ type: constant, stages: [{{ rate: 2, duration: 30 }}] \
        }}\ndata: {{ type: mock }}\nmetrics: {{ prometheus: {{ url: 'http://u:hush@p:9090' }} }}\n"
        )
        .replace(
            "streaming: true",
            "streaming: true, headers: { x-api-key: 4815162342 }",
        ),
        "a:\n  model: m\n  framework: vllm\n  runner: r\n  scenarios: { fixed-seq-len: [{ isl: \
        64, osl: 8, search-space: [{ tp: 4, api_key: hush, conc-list: [4] }] }] }\n"
            .to_owned(),
    ];
    for file in files {
        let imported = text(&file, None).unwrap_or_else(|error| panic!("{file}\n{error}"));
        let all = format!("{imported:?}");
        assert!(
            !all.contains("hush") && !all.contains("4815162342"),
            "{file}\n{imported:#?}"
        );
    }
}

#[test]
fn parts_without_a_place_are_errors_or_named() {
    let spec = "spec:\n  backend: { kind: openai_http, target: 'http://h:8000' }\n  profile: { \
    kind: concurrent, streams: 4 }\n  data: { kind: synthetic_text, prompt_tokens: 100, \
    prompt_tokens_min: 50, prompt_tokens_max: 150, prefix_tokens: 2048, output_tokens: 10, turns: \
    2 }\n  constraints: [{ kind: max_requests, count: 10 }]\n";
    let error = text(
        &format!("{spec}benchmarks: [{{ 'constraints[1].count': 40 }}]\n"),
        None,
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("`constraints[1].count` is not in the file")
    );
    // 50 to 150 after a prefix of 2048; later turns have none.
    becomes(
        spec,
        &["- 2098\n    - 2198", "- 50\n      - 150", "requests: 10"],
        1,
        false,
    );
    let valid = "a:\n  model: m\n  framework: vllm\n  scenarios: { fixed-seq-len: [{ isl: 64, \
    osl: 8, search-space: [{ tp: 4, conc-list: [4] }] }] }\n";
    becomes(
        &format!("{valid}b: {{ framework: vllm, model: m, loads: [1] }}\n"),
        &["no search space"],
        1,
        true,
    );
    let phase =
        "  phases: { profiling: { type: poisson, rate: 5, duration: 60, concurrency: [8, 16] } }\n";
    becomes(
        &format!("{AIPERF}{phase}"),
        &["several limits beside a rate"],
        1,
        true,
    );
    let zip = "  phases: { profiling: { type: concurrency, concurrency: 2, requests: 20 } \
    }\nsweep: { type: zip, parameters: { concurrency: [1, 2, 3], requests: [10, 20] } }\n";
    let error = text(&format!("{AIPERF}{zip}"), None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("different lengths"), "{error}");
    let axis = |name: &str| {
        format!(
            "dataset.prompts.{name}: {:?}",
            (1..=200).collect::<Vec<_>>()
        )
    };
    let grid = zip.replace(
        "zip, parameters: { concurrency: [1, 2, 3], requests: [10, 20] }",
        &format!("grid, parameters: {{ {}, {} }}", axis("isl"), axis("osl")),
    );
    let error = text(&format!("{AIPERF}{grid}"), None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("too many points"), "{error}");
    // Off is no loss.
    becomes(
        &format!(
            "{INFERENCE_PERF}load: {{ type: concurrent, stages: [{{ concurrency_level: 4, \
            num_requests: 40 }}, {{ concurrency_level: 8, num_requests: 80 }}] }}\ndata: {{ type: \
            conversation_replay, conversation_replay: {{ shared_system_prompt_len: 100, \
            turns_per_conversation: 4, input_tokens_per_turn: {{ type: normal, mean: 50, std_dev: \
            5, min: 10, max: 90 }}, output_tokens_per_turn: 20, tool_call_latency_sec: {{ type: \
            normal, mean: 0.3, std_dev: 0.1, min: 0.1, max: 0.5 }} }} }}\n"
        ),
        &["mean: 150", "max: 190", "max: 500ms", "load.requests"],
        2,
        false,
    );
}
