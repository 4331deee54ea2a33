//! Another tool's command line becomes a scenario that runs.

use crate::lab::Lab;

/// A machine busy with other tests is no reason to call the run invalid here.
const CALM: &str = "audit={ lag_p99: 1h, stall_p99: 1h, cpu: 1, achieved: 0 }";

#[test]
fn an_imported_command_line_runs_unchanged() {
    let lab = Lab::new();
    let line = "perf --url http://127.0.0.1:1/v1/chat/completions --model m --prompt hi --parallel 1 2 --number 2 4 --max-tokens 4 --sleep-interval 0 --api-key sk-hush";
    let args: Vec<&str> = ["import", "evalscope", "--to", "s.yaml", "--"]
        .into_iter()
        .chain(line.split(' '))
        .collect();
    let ran = lab.llmscen(&args).expect(0);
    assert!(ran.err.contains("converted all 8 flags"), "{}", ran.err);
    let mut command = lab.command(&[
        "run",
        "s.yaml",
        "--output",
        "out",
        "--set",
        "target.url=simulator",
        "--set",
        CALM,
    ]);
    let output = command.env("OPENAI_API_KEY", "sk-hush").output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let results = lab.results();
    let cases = results["cases"].as_array().unwrap();
    let scheduled: Vec<u64> = cases
        .iter()
        .map(|case| case["counts"]["scheduled"].as_u64().unwrap())
        .collect();
    assert_eq!(scheduled, [2, 4]);
    assert!(
        !std::fs::read_to_string(lab.path().join("s.yaml"))
            .unwrap()
            .contains("sk-hush")
    );
}

#[test]
fn the_scenario_goes_to_stdout_and_never_over_another_file() {
    let lab = Lab::new();
    let line = ["--", "bench", "serve", "--model", "m", "--num-prompts", "5"];
    let ran = lab
        .llmscen(&[&["import", "vllm"], line.as_slice()].concat())
        .expect(0);
    assert!(
        ran.out
            .starts_with("# Converted from a command line of vllm.")
            && ran.out.contains("rate: burst"),
        "{}",
        ran.out
    );
    lab.file("mine.yaml", "precious");
    let ran = lab
        .llmscen(&[&["import", "vllm", "--to", "mine.yaml"], line.as_slice()].concat())
        .expect(2);
    assert!(ran.err.contains("already exists"), "{}", ran.err);
    assert_eq!(
        std::fs::read_to_string(lab.path().join("mine.yaml")).unwrap(),
        "precious"
    );
}

#[test]
fn a_value_with_control_characters_stays_in_its_comment() {
    let lab = Lab::new();
    let model = "m\u{1b}[31m\npause: 9";
    let words = ["import", "vllm", "--", "bench", "serve", "--model", model];
    let yaml = lab.llmscen(&words).expect(0).out;
    assert!(
        !yaml.contains('\u{1b}') && !yaml.contains("\npause"),
        "{yaml}"
    );
    assert!(yaml.contains("\\u{1b}[31m\\npause: 9"), "{yaml}");
}

#[test]
fn an_unknown_flag_is_an_error_with_a_hint() {
    let lab = Lab::new();
    let ran = lab
        .llmscen(&[
            "import",
            "aiperf",
            "--",
            "profile",
            "-m",
            "m",
            "--concurency",
            "4",
        ])
        .expect(2);
    assert!(
        ran.err.contains("did you mean `--concurrency`?") && ran.out.is_empty(),
        "{}",
        ran.err
    );
}

const TESTS: &str = r#"{
  "defaults": {
    "max_concurrency_list": [1, 2],
    "server_parameters": { "model": "m", "tensor_parallel_size": 1 },
    "client_parameters": { "model": "m", "backend": "vllm", "num_prompts": 4, "skip-tokenizer-init": "" }
  },
  "tests": [
    { "test_name": "serving_short", "client_parameters": { "dataset_name": "random", "random-input-len": 8, "random-output-len": 4 } },
    { "test_name": "serving_long", "client_parameters": { "dataset_name": "random", "random-input-len": 16, "random-output-len": 4 } }
  ]
}"#;

#[test]
fn a_plan_file_becomes_one_scenario_that_runs() {
    let lab = Lab::new();
    lab.file("tests.json", TESTS);
    let ran = lab
        .llmscen(&["import", "tests.json", "--to", "s.yaml"])
        .expect(0);
    assert!(
        ran.err.starts_with("converted 10 of 11 fields"),
        "{}",
        ran.err
    );
    lab.llmscen(&["validate", "s.yaml"]).expect(0);
    let text = lab.text("s.yaml");
    let mut plan: serde_json::Value = serde_yaml::from_str(&text).unwrap();
    // The built-in server in place of the managed one.
    plan["target"]
        .as_object_mut()
        .unwrap()
        .shift_remove("server");
    lab.file("short.yaml", serde_yaml::to_string(&plan).unwrap());
    let args = [
        "run",
        "short.yaml",
        "--output",
        "out",
        "--set",
        "target.url=simulator",
    ];
    lab.llmscen(&[args.as_slice(), &["--set", CALM]].concat())
        .expect(0);
    let results = lab.results();
    let ids: Vec<&str> = results["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["id"].as_str().unwrap())
        .collect();
    let known = [
        "serving_short,concurrency=1",
        "serving_short,concurrency=2",
        "serving_long,concurrency=1",
        "serving_long,concurrency=2",
    ];
    assert_eq!(ids, known);
}

#[test]
fn several_scenarios_need_files() {
    let lab = Lab::new();
    let entry = |runner: &str| {
        format!(
            "m7b-{runner}:\n  image: i\n  model: m\n  runner: {runner}\n  framework: vllm\n  seq-len-configs:\n  \
             - {{ isl: 8, osl: 4, search-space: [{{ tp: 1, conc-start: 1, conc-end: 4 }}] }}\n"
        )
    };
    lab.file("master.yaml", format!("{}{}", entry("h200"), entry("b200")));
    let refused = lab.llmscen(&["import", "master.yaml"]).expect(2);
    assert!(
        refused.err.contains("the file becomes 2 scenarios") && refused.err.contains("--to FILE"),
        "{}",
        refused.err
    );
    let ran = lab
        .llmscen(&["import", "master.yaml", "--to", "s.yaml"])
        .expect(0);
    assert!(ran.err.contains("to 2 scenarios"), "{}", ran.err);
    for name in ["s-h200.yaml", "s-b200.yaml"] {
        lab.llmscen(&["validate", name]).expect(0);
    }
    let one = lab
        .llmscen(&["import", "master.yaml", "--only", "h200"])
        .expect(0);
    assert!(one.out.contains("doubling:"), "{}", one.out);
}

#[test]
fn a_file_without_a_known_format_is_refused() {
    let lab = Lab::new();
    lab.file("a.yaml", "a: 1\n");
    let known =
        "llm-d, inferencex, vllm-serving-tests, vllm-perf-eval, aiperf, inference-perf, guidellm";
    let ran = lab.llmscen(&["import", "a.yaml"]).expect(2);
    assert!(
        ran.err
            .contains(&format!("unknown format; known are {known}")),
        "{}",
        ran.err
    );
    let forced = lab
        .llmscen(&["import", "a.yaml", "--from", "inference-perf"])
        .expect(2);
    assert!(forced.err.contains("a.yaml:1:1"), "{}", forced.err);
    let missing = lab.llmscen(&["import", "vllm"]).expect(2);
    assert!(
        missing.err.contains("llmscen import vllm -- "),
        "{}",
        missing.err
    );
    let unknown = lab.llmscen(&["import", "k6", "--", "run"]).expect(2);
    assert!(unknown.err.contains("unknown tool `k6`"), "{}", unknown.err);
}

#[test]
fn a_plan_file_that_would_lose_load_is_written_with_lossy_alone() {
    let lab = Lab::new();
    lab.file(
        "p.yaml",
        "api: { type: chat }\nserver: { base_url: 'http://h:8000' }\nload: { type: constant, stages: [{ rate: 2, duration: 30 }] }\n\
         data: { type: mock }\nagents: [{ name: a }, { name: b }]\n",
    );
    let refused = lab
        .llmscen(&["import", "p.yaml", "--to", "new/s.yaml"])
        .expect(2);
    for part in ["nothing was written", "agents", "not understood", "--lossy"] {
        assert!(
            refused.err.contains(part),
            "`{part}` is not in {}",
            refused.err
        );
    }
    assert!(!lab.path().join("new").exists());
    lab.llmscen(&["import", "p.yaml", "--to", "new/s.yaml", "--lossy"])
        .expect(0);
    let head = lab.text("new/s.yaml");
    assert!(
        head.contains("#   agents") && head.contains("not understood"),
        "{head}"
    );
}
