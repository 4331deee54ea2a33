//! Telemetry of a run.

use crate::lab::{Lab, Server};
use crate::witness::context;
use llmscen::run::prepare::prepare_cases;
use llmscen::run::requests::traffic_class::RowStride;
use llmscen::run::round::{RoundInput, RoundResult, prepare_round, run_round};
use llmscen::run::stop::Stop;
use llmscen::run::telemetry::Observer;
use llmscen::store::journal::Writer;
use llmscen::store::{RunDir, RunLocation};
use llmscen_core::artifacts::Bodies;
use llmscen_core::outcome::Outcome;
use llmscen_core::seed::Seed;
use llmscen_core::telemetry::{Source, TelemetrySample};
use llmscen_scenario::Input;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

fn round(telemetry: &str, server: Option<u32>) -> (RoundResult, Vec<Outcome>) {
    let text = format!(
        "version: 1\nname: t\ntarget: {{ api: simulator, simulator: {{ alpha: 20ms }} }}\nrequest: {{ max_tokens: 10 }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 2, requests: 4 }}\ntelemetry: {telemetry}\n"
    );
    let input = Input {
        path: Path::new("s.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    let plan = llmscen_scenario::load(&input)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan;
    let folder = tempfile::tempdir().unwrap();
    let context = context(folder.path(), Stop::default());
    let bench = prepare_cases(&plan, &context).unwrap().remove(0);
    let path = folder.path().join("run");
    let run = RunDir::create(&RunLocation {
        explicit: Some(&path),
        dir: folder.path(),
        name: "t",
        started: "",
        force: false,
    })
    .unwrap();
    let input = RoundInput {
        model: None,
        folder: &run,
        case: &plan.cases[0],
        prepared: &bench,
        index: 0,
        round: 3,
        strides: vec![RowStride::default()],
        shard: Default::default(),
        planned: None,
        seed: Seed(1),
        probe: None,
        bodies: Bodies::None,
        observer: Arc::new(Observer::new(&plan, &context)),
        server: None,
        fail_fast: None,
        earlier: Default::default(),
        server_process: server,
    };
    let prepared = prepare_round(&input, context.stop.child(), &context).unwrap();
    let journal = folder.path().join("journal.bin");
    let played = run_round(
        &input,
        prepared,
        Writer::create(&journal).unwrap(),
        None,
        &context,
    )
    .unwrap();
    (played, crate::lab::outcomes(&journal))
}

fn of<'a>(played: &'a RoundResult, name: &str) -> Vec<&'a TelemetrySample> {
    played
        .recorded
        .readings
        .iter()
        .filter(|reading| &*reading.name == name)
        .collect()
}

#[test]
fn a_round_is_sampled_from_before_its_time_zero_until_after_its_last_answer() {
    let (played, outcomes) = round("{ interval: 100ms }", None);
    assert_eq!(
        (played.recorded.case.as_str(), played.recorded.round),
        ("base", 3)
    );
    let last = outcomes
        .iter()
        .map(|outcome| outcome.timeline.end)
        .max()
        .unwrap();
    for name in [
        "tool.memory",
        "tool.disk_read",
        "tool.disk_write",
        "host.memory",
        "host.net_in",
        "host.net_out",
    ] {
        let own = of(&played, name);
        let (Some(first), Some(end)) = (own.first(), own.last()) else {
            panic!("no {name}")
        };
        assert!(
            first.at_ns < 0 && end.at_ns >= last.0 as i64,
            "{name}: {own:?}"
        );
        assert!(own.iter().all(|reading| reading.value >= 0.0
            && reading.labels.is_empty()
            && reading.device.is_none()));
    }
    let cpu = of(&played, "tool.cpu");
    assert!(
        !cpu.is_empty()
            && cpu
                .iter()
                .all(|reading| reading.source == Source::Tool && reading.value > 0.0),
        "{cpu:?}"
    );
    assert!(
        of(&played, "host.cpu")
            .iter()
            .all(|reading| (0.0..=1.0).contains(&reading.value))
    );
    let sources: BTreeSet<Source> = played
        .recorded
        .readings
        .iter()
        .map(|reading| reading.source)
        .collect();
    assert_eq!(
        sources,
        BTreeSet::from([Source::Tool, Source::Host]),
        "the simulator uses no GPU, and nobody else is managed"
    );
    assert_eq!(played.part.missing_telemetry, Vec::<String>::new());
}

#[test]
fn a_managed_server_is_sampled_as_long_as_it_lives() {
    let mut command = std::process::Command::new("sh");
    let mut child = command
        .args(["-c", "cat; :"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // An echo shows that the child of the shell runs.
    child.stdin.as_ref().unwrap().write_all(b"x").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let (played, _) = round("{ interval: 100ms }", Some(child.id()));
    drop(child.stdin.take());
    child.wait().unwrap();
    let memory = of(&played, "process.memory");
    assert!(
        memory.len() >= 2
            && memory
                .iter()
                .all(|own| own.source == Source::Process && own.value > 0.0),
        "{memory:?}"
    );
    assert_eq!(played.part.missing_telemetry, Vec::<String>::new());
    let (late, _) = round("{ interval: 100ms }", Some(child.id()));
    assert_eq!(of(&late, "process.memory"), Vec::<&TelemetrySample>::new());
    let [note] = late.part.missing_telemetry.as_slice() else {
        panic!("{:?}", late.part.missing_telemetry)
    };
    let expected = "samples failed, first error: the managed server exited";
    assert!(
        note.starts_with("telemetry of process: ") && note.ends_with(expected),
        "{note}"
    );
}

#[test]
fn what_is_not_wanted_is_not_sampled() {
    for telemetry in ["{ interval: off }", "{ host: false }"] {
        let (played, _) = round(telemetry, None);
        assert_eq!(
            (
                played.recorded.readings.len(),
                played.part.missing_telemetry.len()
            ),
            (0, 0),
            "{telemetry}"
        );
    }
}

/// A run of two cases in two rounds, and its notes about GPUs on the terminal and in the manifest.
fn gpus(lab: &Lab, telemetry: &str, wanted: &str, path: &str) -> (usize, usize, Vec<String>) {
    let server = Server::start(|stream, _| {
        let body = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).is_ok()
    });
    let scenario = format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m{wanted} }}\nrequest: {{ stream: false }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 1, requests: 1 }}\nrounds: 2\n\
         matrix: {{ request.max_tokens: [4, 5] }}\nreport: {{ formats: [json] }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\ntelemetry: {telemetry}\n",
        server.url()
    );
    lab.file("s.yaml", scenario);
    let mut command = lab.command(&["run", "s.yaml", "--output", "out", "--force"]);
    let output = command
        .env("PATH", path)
        .env("CUDA_VISIBLE_DEVICES", "")
        .env("HIP_VISIBLE_DEVICES", "0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let manifest = lab.json("out/manifest.json");
    let notes = manifest["notes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|note| note.as_str().unwrap().contains("GPU"))
        .count();
    let parts = manifest["parts"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|part| part["untold"].as_array().unwrap());
    (
        said.matches("GPU telemetry is off: ").count(),
        notes,
        parts
            .map(|note| note.as_str().unwrap().to_owned())
            .collect(),
    )
}

#[test]
fn a_machine_without_gpus_says_so_once_and_only_where_one_could_matter() {
    let lab = Lab::new();
    let nowhere = lab.path().join("bin").display().to_string();
    let (said, noted, missing_telemetry) = gpus(&lab, "{}", ", gpus: 1", &nowhere);
    assert_eq!((noted, missing_telemetry), (1, vec![]));
    assert_eq!(said, 1, "on the terminal too");
    let unasked = gpus(&lab, "{}", "", &nowhere);
    assert_eq!(unasked, (0, 0, vec![]), "no metric of the plan needs a GPU");
    for off in ["{ gpu: false }", "{ interval: off }"] {
        assert_eq!(gpus(&lab, off, ", gpus: 1", &nowhere), (0, 0, vec![]));
    }
}

#[test]
fn amd_gpus_are_sampled_by_their_command_and_its_cost_is_noted() {
    let lab = Lab::new();
    let script = "#!/bin/sh\necho '[{\"gpu\":0,\"usage\":{\"gfx_activity\":{\"value\":42,\"unit\":\"%\"}}}]'\n";
    let path = lab.file("bin/amd-smi", script);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let (said, noted, missing_telemetry) =
        gpus(&lab, "{}", "", path.parent().unwrap().to_str().unwrap());
    assert_eq!((said, noted, missing_telemetry.len()), (0, 0, 8));
    let visible = "AMD GPUs: `amd-smi` ran for ";
    assert!(
        missing_telemetry
            .iter()
            .step_by(2)
            .all(|note| note.starts_with(visible)),
        "{missing_telemetry:?}"
    );
}

#[test]
fn any_metric_of_the_page_may_be_limited() {
    let lab = Lab::new();
    let scenario = "version: 1\nname: t\n\
        target: { url: simulator, metrics: { url: simulator, interval: 50ms }, simulator: { alpha: 10ms } }\n\
        request: { max_tokens: 20 }\ndataset: { kind: prompt, text: hi }\nload: { concurrency: 2, requests: 10 }\n\
        audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1%, idle: 100%, stalled: 100% }\n\
        slo:\n\
        \x20 - server[\"vllm:generation_tokens\"].rate > 0\n\
        \x20 - server['vllm:num_requests_running']{model_name=sim}.max <= 2\n\
        \x20 - server[\"vllm:num_preemptions\"].rate > 0\n\
        \x20 - { expr: \"server['nothing'].mean < 1\", no_data: inconclusive }\n";
    lab.file("s.yaml", scenario);
    lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(1);
    let case = &lab.results()["cases"][0];
    let of = |key: &str| [0, 1, 2, 3].map(|at| case["slo"][at][key].clone());
    assert_eq!(of("verdict"), ["pass", "pass", "fail", "inconclusive"]);
    // The same counter, as a signal.
    let [tokens, running, preempted, nothing] = of("observed");
    assert_eq!(tokens, case["telemetry"]["server.output_tps"]["mean"]);
    assert_eq!(running, case["telemetry"]["server.running"]["max"]);
    assert_eq!(preempted.to_string(), "0.0", "no negative zero");
    assert!(nothing.is_null());
    let report = lab.text("out/report.md");
    lab.llmscen(&["report", "out"]).expect(1);
    assert_eq!(lab.text("out/report.md"), report, "computed again");
    lab.file(
        "n.yaml",
        scenario.replace("metrics: { url: simulator, interval: 50ms }, ", ""),
    );
    let refused = lab.llmscen(&["plan", "n.yaml"]).expect(2);
    assert!(
        refused.err.contains(
            "`vllm:generation_tokens` is not available: no metrics endpoint is configured"
        ),
        "{}",
        refused.err
    );
}
