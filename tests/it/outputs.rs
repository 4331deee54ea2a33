//! Files of a run, and output of the other commands.

use crate::lab::*;
use std::path::Path;

/// A shipped scenario, run from the repository as the README does, into a scratch folder.
fn shipped(lab: &Lab, name: &str, more: &[&str]) -> Ran {
    let root = env!("CARGO_MANIFEST_DIR");
    let (file, out) = (format!("{root}/scenarios/{name}"), lab.path().join("out"));
    let mut args = vec!["run", &file, "--output", out.to_str().unwrap(), "--force"];
    // The defaults of the audit are not meant for a debug build on a busy machine.
    for relaxed in [
        "audit.lag_p99=10s",
        "audit.stall_p99=10s",
        "audit.cpu=100%",
        "audit.achieved=1%",
    ] {
        args.extend(["--set", relaxed]);
    }
    args.extend(more);
    lab.llmscen(&args)
}

fn valid(schema: &str, instance: &serde_json::Value) {
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(instance)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn quickstart_passes_and_leaves_every_file() {
    let lab = Lab::new();
    let ran = shipped(&lab, "quickstart.yaml", &[]).expect(0);
    assert!(
        ran.out
            .starts_with("quickstart  PASS  4 of 4 objectives passed · 640 of 640 requests ok  ")
            && ran.out.ends_with("/out/report.html\n"),
        "{}",
        ran.out
    );
    for name in [
        "report.md",
        "junit.xml",
        "results.json",
        "requests.parquet",
        "cases.csv",
        "plan.yaml",
        "manifest.json",
    ] {
        assert!(
            lab.path().join("out").join(name).metadata().unwrap().len() > 100,
            "{name}"
        );
    }
    let charts: Vec<_> = std::fs::read_dir(lab.path().join("out/charts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(charts.len() >= 4, "{charts:?}");
    for chart in charts {
        assert!(
            std::fs::read(&chart).unwrap().starts_with(b"\x89PNG\r\n"),
            "{chart:?}"
        );
        let name = chart.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(
            lab.text("out/report.md")
                .contains(&format!("charts/{name}")),
            "{name} is not shown in the report"
        );
    }
    let results = lab.results();
    assert_eq!(
        (results["verdict"].as_str(), results["exit_code"].as_u64()),
        (Some("pass"), Some(0))
    );
    valid(
        &lab.llmscen(&["schema", "--results"]).expect(0).out,
        &results,
    );
}

#[test]
fn a_report_again_leaves_exactly_its_own_charts() {
    let lab = Lab::new();
    shipped(
        &lab,
        "quickstart.yaml",
        &["--set", "report.formats=[svg, md]"],
    )
    .expect(0);
    let out = lab.path().join("out");
    let names = || {
        let files = std::fs::read_dir(out.join("charts")).unwrap();
        let mut names: Vec<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let own = names();
    assert!(
        own.len() >= 4 && own.iter().all(|name| name.ends_with(".svg")),
        "{own:?}"
    );
    assert!(
        own.iter().all(|name| lab
            .text("out/report.md")
            .contains(&format!("charts/{name}"))),
        "{own:?}"
    );
    for stale in ["charts/search.png", "charts/pareto.svg"] {
        std::fs::write(out.join(stale), "stale").unwrap();
    }
    lab.llmscen(&["report", out.to_str().unwrap()]).expect(0);
    assert_eq!(names(), own);
}

/// The files of the shipped scenarios.
fn scenarios() -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect()
}

#[test]
fn every_shipped_scenario_is_valid_by_the_schema() {
    let lab = Lab::new();
    let schema = lab.llmscen(&["schema"]).expect(0).out;
    assert!(scenarios().len() >= 17, "{:?}", scenarios());
    for path in scenarios() {
        let scenario: serde_json::Value =
            serde_yaml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        valid(&schema, &scenario);
        lab.llmscen(&["validate", path.to_str().unwrap()]).expect(0);
    }
}

#[test]
fn every_shipped_scenario_plans() {
    let lab = Lab::new();
    for path in scenarios() {
        let planned = lab.llmscen(&["plan", path.to_str().unwrap()]).expect(0);
        let bodies = planned.out.split("first request of ").skip(1);
        let bodies: Vec<serde_json::Value> = bodies
            .map(|first| first.split_once('\n').unwrap().1)
            .map(|body| {
                if body.starts_with("content-disposition: form-data") {
                    return serde_json::json!({ "form": body });
                }
                // Over a WebSocket, a request is several messages.
                let mut values = serde_json::Deserializer::from_str(body).into_iter();
                values.next().unwrap().unwrap()
            })
            .collect();
        assert_eq!(
            bodies.len(),
            if ["mixed.yaml", "traffic-classes.yaml"]
                .iter()
                .any(|mix| path.ends_with(mix))
            {
                2
            } else {
                1
            },
            "{}",
            path.display()
        );
        assert!(
            bodies
                .iter()
                .all(|body| body.as_object().is_some_and(|body| !body.is_empty())),
            "{bodies:?}"
        );
    }
}

#[test]
fn the_reference_page_is_what_the_schema_command_prints() {
    let lab = Lab::new();
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/reference/scenario.md"
    ))
    .unwrap();
    assert_eq!(lab.llmscen(&["schema", "--markdown"]).expect(0).out, page);
    lab.llmscen(&["schema", "--markdown", "--results"])
        .expect(2);
}

#[test]
fn the_failing_gate_fails() {
    let lab = Lab::new();
    let ran = shipped(&lab, "slo-fail.yaml", &[]).expect(1);
    assert!(ran.out.contains("FAIL"), "{}", ran.out);
    assert!(lab.text("out/junit.xml").contains("<failure"));
}

#[test]
fn chat_without_a_server_is_answered_by_the_simulator() {
    let lab = Lab::new();
    shipped(&lab, "chat.yaml", &[]).expect(0);
    assert_eq!(lab.results()["name"], "chat");
}

#[test]
fn the_resolved_plan_runs_again_and_asks_the_same() {
    let scenario = "version: 1\nname: again\ntarget: { api: simulator, simulator: { alpha: 1ms } }\n\
        request: { max_tokens: { uniform: [2, 9] } }\ndataset: { kind: random, tokens: { uniform: [5, 40] } }\n\
        load: { concurrency: 2, requests: 30 }\naudit: { lag_p99: 10s, stall_p99: 10s, cpu: 100% }\n";
    let lab = Lab::new();
    lab.run(scenario).expect(0);
    let first = (lab.results(), lab.text("out/plan.yaml"));
    let copy = lab.file("copy.yaml", &first.1);
    lab.llmscen(&["run", copy.to_str().unwrap(), "--output", "out2"])
        .expect(0);
    assert_eq!(lab.text("out2/plan.yaml"), first.1);
    let (one, two) = (
        &first.0["cases"][0],
        &lab.json("out2/results.json")["cases"][0],
    );
    for metric in ["prompt_tokens", "output_tokens"] {
        assert_eq!(
            one["metrics"][metric], two["metrics"][metric],
            "{metric}: the same seed asks the same"
        );
        assert!(
            one["metrics"][metric]["sd"].as_f64().unwrap() > 0.5,
            "{metric} varies"
        );
    }
}

#[test]
fn a_report_from_stored_rows_is_the_same_report() {
    let lab = Lab::new();
    shipped(&lab, "quickstart.yaml", &[]).expect(0);
    let (results, report) = (lab.results(), lab.text("out/report.md"));
    lab.llmscen(&["report", "out"]).expect(0);
    assert_eq!(lab.results(), results);
    assert_eq!(lab.text("out/report.md"), report);
}

#[test]
fn completions_are_measured_streamed_and_whole() {
    for streamed in [true, false] {
        let lab = Lab::new();
        let scenario = format!(
            "version: 1\nname: t\ntarget: {{ api: openai-completions, url: simulator }}\nrequest: {{ max_tokens: 5, stream: {streamed} }}\n\
             dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 2, requests: 10 }}\n\
             audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n"
        );
        lab.run(&scenario).expect(0);
        let metrics = lab.results()["cases"][0]["metrics"].clone();
        assert_eq!(metrics["output_tokens"]["p50"], 5.0);
        assert_eq!(
            metrics["ttft_ms"].is_null(),
            !streamed,
            "a whole reply has no first token"
        );
        assert_eq!(metrics["itl_ms"].is_null(), !streamed);
        assert_eq!(metrics["e2e_ms"]["n"], 10);
    }
}

#[test]
fn bodies_and_messages_of_a_file_are_sent_unchanged() {
    let bodies = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = bodies.clone();
    let server = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                while let Some(body) = read_request(&mut stream) {
                    if !body.is_empty() {
                        seen.lock()
                            .unwrap()
                            .push(serde_json::from_slice::<serde_json::Value>(&body).unwrap());
                    }
                    if !send(
                        &mut stream,
                        &crate::lab::stream(&[TOKEN, FINISH, "[DONE]"], true),
                    ) {
                        break;
                    }
                }
            }
        });
        address
    };
    let lab = Lab::new();
    lab.file("lines.txt", "plain \"text\" {{ x }}\n[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]\n{\"model\":\"own\",\"messages\":[],\"top_k\":3}\n");
    let scenario = plain(&format!("http://{server}/v1/chat/completions"), 3).replace(
        "{ kind: prompt, text: hello }",
        "{ kind: line_by_line, path: lines.txt }",
    );
    lab.run(&scenario).expect(0);
    let bodies = bodies.lock().unwrap();
    assert_eq!(
        bodies[0]["messages"],
        serde_json::json!([{"role": "user", "content": "plain \"text\" {{ x }}"}])
    );
    assert_eq!(bodies[1]["messages"][0]["content"], "s");
    assert_eq!(
        (bodies[2]["model"].as_str(), bodies[2]["top_k"].as_u64()),
        (Some("own"), Some(3))
    );
}

#[test]
fn help_version_and_completions_go_to_stdout() {
    let lab = Lab::new();
    assert!(
        lab.llmscen(&["--help"])
            .expect(0)
            .out
            .contains("Exit codes")
    );
    assert_eq!(
        lab.llmscen(&["--version"]).expect(0).out,
        format!("llmscen {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert!(
        lab.llmscen(&["completions", "bash"])
            .expect(0)
            .out
            .contains("llmscen")
    );
}

#[test]
fn init_writes_a_scenario_that_runs() {
    let lab = Lab::new();
    lab.llmscen(&["init", "mine.yaml"]).expect(0);
    lab.llmscen(&["validate", "mine.yaml"]).expect(0);
    lab.llmscen(&["init", "mine.yaml"]).expect(2);
}

#[test]
fn a_run_that_cannot_go_on_keeps_and_reports_what_was_measured() {
    let lab = Lab::new();
    lab.file("p.txt", "one\ntwo\nthree\nfour\nfive\n");
    let scenario = "version: 1\nname: t\ntarget: { api: simulator, simulator: { alpha: 1ms } }\nrequest: { max_tokens: 2 }\n\
        dataset: { kind: line_by_line, path: p.txt, on_exhausted: error }\nload: { concurrency: 2, requests: 3 }\n\
        matrix: { load.requests: [3, 9, 4] }\naudit: { lag_p99: 10s, stall_p99: 10s, cpu: 100% }\n";
    let why = "the dataset ended after 5 rows";
    let ran = lab.run(scenario).expect(3);
    assert!(ran.err.contains(why), "{}", ran.err);
    let first = lab.results();
    let ok: Vec<u64> = first["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["counts"]["ok"].as_u64().unwrap())
        .collect();
    assert_eq!(
        ok,
        [3, 5, 0],
        "the first case is whole, the second as far as the data went, the third never ran"
    );
    assert_eq!(
        (
            &first["verdict"],
            &first["exit_code"],
            &first["interrupted"]
        ),
        (&"error".into(), &3.into(), &false.into())
    );
    // The data ended, which is not the load generator's fault.
    assert_eq!(
        (
            &first["cases"][0]["audit"]["valid"],
            &first["cases"][1]["audit"]["valid"]
        ),
        (&true.into(), &true.into())
    );
    assert!(lab.text("out/report.md").contains(why));
    lab.llmscen(&["report", "out"]).expect(3);
    assert_eq!(lab.results(), first);
}

#[test]
fn the_simulator_says_at_once_that_its_record_cannot_be_written() {
    let lab = Lab::new();
    let ran = lab
        .llmscen(&[
            "simulate",
            "--listen",
            "127.0.0.1:0",
            "--truth",
            "no/such/folder/truth.jsonl",
        ])
        .expect(2);
    assert!(
        ran.err.contains("cannot write no/such/folder/truth.jsonl"),
        "{}",
        ran.err
    );
}

#[test]
fn a_limit_that_can_never_be_decided_is_named_before_the_traffic() {
    let lab = Lab::new();
    let ran = shipped(&lab, "quickstart.yaml", &["--set", "load.requests=20"]).expect(5);
    let (warning, traffic) = (
        ran.err
            .find("warning: `ttft.p95 < 250ms`, `tpot.p95 < 100ms` cannot pass in `base`"),
        ran.err.find("[1/1]"),
    );
    assert!(warning.is_some() && warning < traffic, "{}", ran.err);
    assert!(ran.out.contains("  INCONCLUSIVE  "), "{}", ran.out);
}

#[test]
fn the_scenario_that_the_readme_shows_is_right_and_decidable() {
    let readme =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let block = readme
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let lab = Lab::new();
    std::fs::write(lab.path().join("readme.yaml"), block).unwrap();
    let ran = lab.llmscen(&["plan", "readme.yaml"]).expect(0);
    assert!(ran.out.contains("concurrency=64"), "{}", ran.out);
    assert!(!ran.err.contains("cannot pass"), "{}", ran.err);
}
