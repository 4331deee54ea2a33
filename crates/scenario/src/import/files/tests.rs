use super::*;
use crate::{Input, reload};
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
    ("serving-tests-rates.json", "vllm-serving-tests", &[4, 4]),
    ("perf-eval.yaml", "vllm-perf-eval", &[4]),
    ("inference-perf.yml", "inference-perf", &[1]),
    ("aiperf.yaml", "aiperf", &[6]),
    ("aiperf-scenarios.yaml", "aiperf", &[2]),
    ("aiperf-trace.yaml", "aiperf", &[1]),
    ("guidellm.json", "guidellm", &[3]),
    ("guidellm-old.yaml", "guidellm", &[2]),
    ("inferencex-master.yaml", "inferencex", &[10, 2]),
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
            "unknown format; known are llm-d, inferencex, vllm-serving-tests, vllm-perf-eval, aiperf, inference-perf, guidellm"
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
        Some("unknown field; did you mean `max-seconds`?")
    );
}
