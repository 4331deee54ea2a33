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
