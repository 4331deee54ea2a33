//! The first commands of a new user: `doctor`, `init`, `explain`, and the help.

use crate::lab::*;
use std::io::{BufRead, BufReader};
use std::process::Child;

/// `llmscen simulate` on a free port, ended when dropped.
struct Simulator(Child, String);

impl Simulator {
    fn start(lab: &Lab) -> Simulator {
        let mut child = lab.spawn(&["simulate", "--listen", "127.0.0.1:0"]);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Simulator(child, line.trim().to_owned())
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_doctor_describes_machine_and_server() {
    let lab = Lab::new();
    let machine = lab.llmscen(&["doctor"]).expect(0).out;
    for name in [
        "llmscen ",
        "cores ",
        "memory ",
        "open files ",
        "timer ",
        "GPU ",
        "proxies ",
    ] {
        assert!(
            machine.lines().any(|line| line.starts_with(name)),
            "{name}: {machine}"
        );
    }
    let simulator = Simulator::start(&lab);
    let out = lab.llmscen(&["doctor", &simulator.1]).expect(0).out;
    for fact in [
        "models      sim",
        "engine      llmscen",
        "request     ok in ",
        "streaming   yes, first token after ",
        "usage       ",
    ] {
        assert!(out.contains(fact), "{fact}: {out}");
    }
}

#[test]
fn the_doctor_says_why_a_server_does_not_answer() {
    let lab = Lab::new();
    let closed = lab.llmscen(&["doctor", "http://127.0.0.1:1"]).expect(3);
    assert!(
        closed.err.contains("cannot connect to http://127.0.0.1:1"),
        "{}",
        closed.err
    );
    let strict = Server::start(|stream, _| {
        send(
            stream,
            &response("401 Unauthorized", "application/json", "{}"),
        )
    });
    let url = format!("http://{}", strict.addr);
    let unnamed = lab.llmscen(&["doctor", &url]).expect(3);
    assert!(
        unnamed.err.contains("help: name it with --model"),
        "{}",
        unnamed.err
    );
    let named = lab.llmscen(&["doctor", &url, "--model", "m"]).expect(3);
    assert!(
        named.err.contains("401")
            && named
                .err
                .contains("help: the server requires authentication"),
        "{}",
        named.err
    );
}

#[test]
fn init_asks_a_server_for_its_model_and_writes_a_scenario_that_passes() {
    let lab = Lab::new();
    let simulator = Simulator::start(&lab);
    lab.llmscen(&["init", "--url", &simulator.1]).expect(0);
    let text = lab.text("scenario.yaml");
    assert!(
        text.starts_with("# yaml-language-server: $schema=.llmscen/scenario.schema.json\n")
            && text.contains("  model: \"sim\"\n"),
        "{text}"
    );
    assert_eq!(
        lab.text(".llmscen/scenario.schema.json"),
        lab.llmscen(&["schema"]).expect(0).out
    );
    let set = [
        "--set",
        "load.requests=20",
        "--set",
        "slo=[error_rate < 50%]",
    ];
    lab.llmscen(&[["run", "scenario.yaml", "--output", "out"].as_slice(), &set].concat())
        .expect(0);
    let again = lab.llmscen(&["init", "--url", &simulator.1]).expect(2);
    assert!(
        again.err.contains("scenario.yaml already exists"),
        "{}",
        again.err
    );
}

#[test]
fn every_listed_example_is_written_and_valid() {
    let lab = Lab::new();
    let list = lab.llmscen(&["init", "--list"]).expect(0).out;
    let names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 20 && names.contains(&"regression"), "{list}");
    for name in &names {
        lab.llmscen(&["init", "--example", name]).expect(0);
    }
    let files: Vec<String> = names.iter().map(|name| format!("{name}.yaml")).collect();
    // A build without local models, and one without their files, refuses those.
    let remote = files.iter().filter(|file| !file.starts_with("local"));
    for file in remote {
        lab.llmscen(&["validate", file]).expect(0);
    }
    let unknown = lab.llmscen(&["init", "--example", "nothing"]).expect(2);
    assert!(
        unknown.err.contains("help: one of agents, "),
        "{}",
        unknown.err
    );
}

#[test]
fn explain_knows_metrics_verdicts_codes_and_fields() {
    let lab = Lab::new();
    for (topic, part) in [
        ("ttft", "first_token − intended"),
        ("INVALID", "Exit code 4"),
        ("5", "INCONCLUSIVE"),
        ("goodput", "every limit"),
        ("audit.stalled", "`5%`"),
    ] {
        let out = lab.llmscen(&["explain", topic]).expect(0).out;
        assert!(out.contains(part), "{topic}: {out}");
    }
    let unknown = lab.llmscen(&["explain", "tftt"]).expect(2);
    assert!(
        unknown.err.contains("did you mean `ttft`?"),
        "{}",
        unknown.err
    );
}

#[test]
fn the_summary_of_a_second_run_names_what_changed() {
    let lab = Lab::new();
    let scenario = "version: 1\nname: t\ntarget: { url: simulator, simulator: { alpha: 1ms } }\n\
                    request: { max_tokens: 4 }\ndataset: { kind: prompt, text: hi }\n\
                    load: { concurrency: 2, requests: 20 }\nreport: { formats: [json, md] }\n\
                    audit: { lag_p99: 1h, stall_p99: 1h, cpu: 100%, idle: 100% }\n";
    lab.file("s.yaml", scenario);
    let first = lab.llmscen(&["run", "s.yaml"]).expect(0);
    assert!(!first.out.contains("Since the last run"), "{}", first.out);
    // Folders are named by the second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let second = lab.llmscen(&["run", "s.yaml"]).expect(0);
    assert!(
        second.words().contains("Since the last run (2") && second.out.contains("TTFT p50 "),
        "{}",
        second.out
    );
}

#[test]
fn a_job_of_github_actions_gets_annotations() {
    let lab = Lab::new();
    let scenario = "version: 1\nname: ci\ntarget: { url: simulator, simulator: { alpha: 5ms } }\n\
                    request: { max_tokens: 4 }\ndataset: { kind: prompt, text: hi }\n\
                    load: { concurrency: 2, requests: 80 }\nreport: { formats: [json, md] }\n\
                    audit: { lag_p99: 1h, stall_p99: 1h, cpu: 100%, idle: 100%, stalled: 100% }\n\
                    slo: [ttft.max < 1ms, ttft.max < 10m, error_rate < 1%]\n";
    lab.file("s.yaml", scenario);
    let ran = Ran::of(
        lab.command(&["run", "s.yaml", "--quiet", "--output", "out"])
            .env("GITHUB_ACTIONS", "true")
            .output()
            .unwrap(),
    );
    let lines: Vec<&str> = ran
        .err
        .lines()
        .filter(|line| line.starts_with("::"))
        .collect();
    let [failed, undecided] = lines.as_slice() else {
        panic!("{}\n{}", ran.out, ran.err)
    };
    assert!(
        failed.starts_with("::error title=llmscen ci::FAIL: ttft.max < 1ms in base: "),
        "{failed}"
    );
    assert!(
        undecided.starts_with(
            "::warning title=llmscen ci::INCONCLUSIVE: error_rate < 1%25 in base: 0%25"
        ),
        "{undecided}"
    );
}
