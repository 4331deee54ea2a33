//! Data that ends, and data that a command prints.

use crate::lab::Lab;
use serde_json::json;

const REST: &str = "version: 1\nname: t\ntarget: { url: simulator, model: m, simulator: { alpha: 1ms } }\nrequest: { max_tokens: 2 }\n\
     audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";

fn scenario(dataset: &str, load: &str, more: &str) -> String {
    format!("{REST}dataset: {{ {dataset} }}\nload: {{ {load} }}\n{more}")
}

#[test]
fn a_dataset_that_ends_early_passes_no_gate_in_silence() {
    let lab = Lab::new();
    lab.file(
        "p.txt",
        (0..9).map(|row| format!("row {row}\n")).collect::<String>(),
    );
    let data = "kind: line_by_line, path: p.txt, on_exhausted: stop";
    let slo = "slo: [e2e.p50 < 10m]\n";
    let ran = lab
        .run(&scenario(data, "concurrency: 2, requests: 100", slo))
        .expect(5);
    assert!(
        ran.words().contains(" INCONCLUSIVE ")
            && ran
                .words()
                .contains("The dataset ended after 9 of 100 requests. Lower `load.requests`"),
        "{}",
        ran.out
    );
    let results = lab.results();
    assert_eq!(
        results["cases"][0]["dataset_end"],
        json!({ "after": 9, "planned": 100 })
    );
    assert_eq!(
        (&results["verdict"], &results["exit_code"]),
        (&json!("inconclusive"), &json!(5))
    );
    let report = lab.text("out/report.md");
    assert!(
        report.contains("The dataset ended after 9 of 100 requests."),
        "{report}"
    );
    lab.llmscen(&["report", "out"]).expect(5);
    let plan = lab.llmscen(&["plan", "s.yaml"]).expect(0);
    assert!(
        plan.err
            .contains("the dataset of `base` has 9 usable rows, `load.requests` is 100"),
        "{}",
        plan.err
    );
    // Without objectives there is no gate; as many requests as rows are all of them.
    let ran = lab
        .run(&scenario(data, "concurrency: 2, requests: 100", ""))
        .expect(0);
    assert!(
        ran.out
            .contains("The dataset ended after 9 of 100 requests."),
        "{}",
        ran.out
    );
    let ran = lab
        .run(&scenario(data, "concurrency: 2, requests: 9", slo))
        .expect(0);
    assert!(!ran.out.contains("dataset ended"), "{}", ran.out);
    assert_eq!(lab.results()["cases"][0]["dataset_end"], json!(null));
    let fails = data.replace("stop", "fail");
    let ran = lab
        .run(&scenario(&fails, "concurrency: 2, requests: 100", slo))
        .expect(3);
    assert!(
        ran.err.contains("the dataset ended after 9 rows"),
        "{}",
        ran.err
    );
}

#[test]
fn a_command_gives_the_prompts_of_a_run_and_of_its_plan() {
    let lab = Lab::new();
    // Without an end; each row names its number and the seed.
    let script = "i=0; while :; do printf '{\"q\": \"row %s of %s\", \"output_tokens\": 2}\\n' $i $LLMSCEN_SEED; i=$((i+1)); done";
    lab.file("sub/make.sh", script);
    let data = "kind: command, command: \"sh make.sh\", columns: { prompt: q }";
    lab.file(
        "sub/s.yaml",
        scenario(
            data,
            "concurrency: 2, requests: 12, warmup: 3",
            "rounds: 2\nreport: { bodies: all }\n",
        ),
    );
    let plan = lab.llmscen(&["plan", "sub/s.yaml"]).expect(0);
    assert!(plan.out.contains("row 0 of 42"), "{}", plan.out);
    let ran = lab
        .llmscen(&["run", "sub/s.yaml", "--output", "out"])
        .expect(0);
    assert!(!ran.out.contains("repeats"), "{}", ran.out);
    let case = &lab.results()["cases"][0];
    assert_eq!(
        (&case["counts"]["ok"], &case["counts"]["warmup"]),
        (&json!(24), &json!(6))
    );
}

#[test]
fn a_slow_command_keeps_no_round_from_its_beginning() {
    let lab = Lab::new();
    // Ten seconds of rows: a round that waits for all of them sends them all in its first second.
    let script =
        "i=0; while [ $i -lt 200 ]; do echo '{\"prompt\": \"a\"}'; i=$((i+1)); sleep 0.05; done";
    lab.file("make.sh", script);
    let data = "kind: command, command: \"sh make.sh\", on_exhausted: stop";
    lab.run(&scenario(data, "concurrency: 4, duration: 1s", ""))
        .expect(0);
    let ok = lab.results()["cases"][0]["counts"]["ok"].as_u64().unwrap();
    assert!((1..150).contains(&ok), "{ok}");
}

#[test]
fn a_command_that_fails_shows_no_secret() {
    let lab = Lab::new();
    let script = r#"sh -c 'echo "{\"prompt\": \"a\"}"; echo token $1 of $2 >&2; exit 4' x ${HF_TOKEN} ${PART}"#;
    lab.file(
        "s.yaml",
        scenario(
            &format!("kind: command, command: {}", json!(script)),
            "concurrency: 1, requests: 5",
            "",
        ),
    );
    let mut child = lab.command(&["run", "s.yaml", "--output", "out"]);
    let output = child
        .env("HF_TOKEN", "hf_abcdefgh")
        .env("PART", "train")
        .output()
        .unwrap();
    let all = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(3), "{all}");
    let files = ["manifest.json", "report.md", "report.html", "results.json"]
        .map(|name| lab.text(&format!("out/{name}")));
    assert!(
        all.contains("token [redacted] of train") && all.contains("x [redacted] train`"),
        "{all}"
    );
    assert!(
        ![all]
            .iter()
            .chain(&files)
            .any(|text| text.contains("hf_abcdefgh"))
    );
}

#[test]
fn a_command_that_fails_stops_the_run_with_its_stderr() {
    let lab = Lab::new();
    let data = r#"kind: command, command: [sh, -c, 'echo "{\"prompt\": \"a\"}"; sleep 0.1; echo no weights >&2; exit 4']"#;
    let ran = lab
        .run(&scenario(data, "concurrency: 1, requests: 5", ""))
        .expect(3);
    assert!(
        ran.err
            .contains("the command of the dataset failed with exit status 4")
            && ran.err.contains("no weights"),
        "{}",
        ran.err
    );
    let ran = lab
        .run(&scenario(
            "kind: command, command: x, order: shuffle",
            "concurrency: 1, requests: 5",
            "",
        ))
        .expect(2);
    assert!(
        ran.err
            .contains("`order: shuffle` cannot be combined with `kind: command`"),
        "{}",
        ran.err
    );
}
