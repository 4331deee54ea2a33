//! Experiment trackers: uploads, and unreachable trackers. `tests/real/trackers.py` checks the same with real trackers.

use crate::lab::{Lab, response, send};
use serde_json::{Value, json};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A received request: first line, headers, body.
struct Asked {
    line: String,
    head: String,
    body: Vec<u8>,
}

impl Asked {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Responds as an MLflow server without experiments that proxies artifacts.
fn mlflow() -> (SocketAddr, Receiver<Asked>) {
    let (listener, (told, asked)) = (TcpListener::bind("127.0.0.1:0").unwrap(), channel());
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let told = told.clone();
            std::thread::spawn(move || serve(stream, &told));
        }
    });
    (addr, asked)
}

fn serve(mut stream: TcpStream, told: &Sender<Asked>) {
    let mut runs = 0;
    while let Some(asked) = read(&mut stream) {
        let (status, body) = match asked.line.split(' ').nth(1).unwrap_or_default() {
            path if path.contains("get-by-name") => (
                "404 Not Found",
                json!({ "error_code": "RESOURCE_DOES_NOT_EXIST" }),
            ),
            path if path.ends_with("experiments/create") => {
                ("200 OK", json!({ "experiment_id": "7" }))
            }
            path if path.ends_with("runs/create") => {
                runs += 1;
                let info = json!({ "run_id": format!("r{runs}"), "artifact_uri": format!("mlflow-artifacts:/7/r{runs}/artifacts") });
                ("200 OK", json!({ "run": { "info": info } }))
            }
            _ => ("200 OK", json!({})),
        };
        let _ = told.send(asked);
        if !send(
            &mut stream,
            &response(status, "application/json", &body.to_string()),
        ) {
            return;
        }
    }
}

fn read(stream: &mut TcpStream) -> Option<Asked> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let length = |line: &str| {
        line.to_lowercase()
            .strip_prefix("content-length:")?
            .trim()
            .parse::<usize>()
            .ok()
    };
    let mut body = vec![0; head.lines().find_map(length).unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(Asked {
        line: head.lines().next()?.to_owned(),
        head,
        body,
    })
}

fn plan(track: &str) -> String {
    format!(
        "version: 1\nname: tracked\ntarget: {{ url: simulator, model: m }}\ndataset: {{ kind: prompt, text: hi }}\n\
         request: {{ max_tokens: 4 }}\nload: {{ concurrency: 1, requests: 4 }}\nmatrix: {{ load.concurrency: [1, 2] }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\nreport: {{ formats: [md], track: {{ {track} }} }}\n"
    )
}

#[test]
fn mlflow_gets_the_run_its_cases_and_its_files() {
    let (lab, (addr, asked)) = (Lab::new(), mlflow());
    lab.file(
        "s.yaml",
        plan(&format!(
            "mlflow: {{ url: \"http://{addr}\", token: \"${{TOKEN}}\", tags: {{ team: infra }} }}"
        )),
    );
    let mut command = lab.command(&["run", "s.yaml", "--output", "out"]);
    let output = command.env("TOKEN", "hush-hush").output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(
        err.contains(&format!("tracked: http://{addr}/#/experiments/7/runs/r1")),
        "{err}"
    );
    let asked: Vec<Asked> = asked.try_iter().collect();
    assert!(asked.iter().all(|one| {
        one.head
            .to_lowercase()
            .contains("authorization: bearer hush-hush")
    }));
    let of = |end: &str| {
        asked
            .iter()
            .filter(|one| one.line.contains(end))
            .map(Asked::json)
            .collect::<Vec<_>>()
    };
    let (created, logged, ended) = (of("runs/create"), of("runs/log-batch"), of("runs/update"));
    assert_eq!(created.len(), 3);
    let tags = |run: &Value| {
        run["tags"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tag| tag["key"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        tags(&created[0]),
        ["llmscen.run_id", "llmscen.verdict", "team"]
    );
    assert_eq!(
        created[1]["tags"][3],
        json!({ "key": "mlflow.parentRunId", "value": "r1" })
    );
    assert_eq!(
        (
            created[1]["run_name"].as_str(),
            created[2]["run_name"].as_str()
        ),
        (Some("concurrency=1"), Some("concurrency=2"))
    );
    let results = lab.results();
    let told = logged
        .iter()
        .filter(|batch| batch["run_id"] == "r2")
        .filter_map(|batch| batch["metrics"].as_array())
        .flatten();
    let p50 = told
        .clone()
        .find(|metric| metric["key"] == "ttft_ms_p50")
        .unwrap();
    assert_eq!(
        p50["value"],
        results["cases"][0]["metrics"]["ttft_ms"]["p50"]
    );
    let at = |metric: &Value| (metric["timestamp"].as_u64(), metric["step"].as_u64());
    let end = (ended[0]["end_time"].as_u64(), Some(0));
    assert!(
        end.0 > Some(1_600_000_000_000) && told.clone().all(|metric| at(metric) == end),
        "{end:?}"
    );
    assert!(ended.len() == 3 && ended.iter().all(|run| run["status"] == "FINISHED"));
    let files: Vec<&str> = asked
        .iter()
        .filter_map(|one| one.line.strip_prefix("PUT ")?.split(' ').next())
        .collect();
    let place = "/api/2.0/mlflow-artifacts/artifacts/7/r1/artifacts";
    assert!(
        files.contains(&format!("{place}/report.md").as_str())
            && !files.iter().any(|file| file.contains("parquet")),
        "{files:?}"
    );
    let report = asked
        .iter()
        .find(|one| one.line.contains("/report.md"))
        .unwrap();
    assert_eq!(
        String::from_utf8(report.body.clone()).unwrap(),
        lab.text("out/report.md")
    );
    assert!(!lab.text("out/plan.yaml").contains("hush-hush"));
}

#[test]
fn an_unreachable_tracker_is_a_warning_and_changes_nothing_else() {
    let lab = Lab::new();
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    lab.file(
        "s.yaml",
        plan(&format!(
            "mlflow: \"http://{gone}\", wandb: {{ project: p, python: no-such-python }}"
        )),
    );
    let ran = lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(0);
    assert!(
        ran.err
            .contains(&format!("MLflow at http://{gone} cannot be reached")),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("cannot start `no-such-python`"),
        "{}",
        ran.err
    );
    let again = lab.llmscen(&["report", "out", "--track"]).expect(0);
    assert!(again.err.contains("cannot be reached"), "{}", again.err);
    let quiet = lab.llmscen(&["report", "out"]).expect(0);
    assert!(!quiet.err.contains("cannot be reached"), "{}", quiet.err);
}

#[cfg(unix)]
#[test]
fn the_client_of_wandb_is_given_the_run_as_json() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    let python = lab.file(
        "python",
        "#!/bin/sh\ncat > \"$HOME/told.json\"\nprintf %s \"$WANDB_API_KEY\" > \"$HOME/key\"\necho https://wandb.example/run\n",
    );
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    lab.file(
        "s.yaml",
        plan(&format!(
            "wandb: {{ project: p, mode: offline, python: \"{}\", tags: [nightly], api_key: \"${{KEY}}\" }}",
            python.display()
        )),
    );
    let output = lab
        .command(&["run", "s.yaml", "--output", "out"])
        .env("KEY", "hush-hush")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && err.contains("tracked: wandb: https://wandb.example/run"),
        "{err}"
    );
    // The client finds its key; no file of the run contains it.
    assert_eq!(lab.text("key"), "hush-hush");
    assert!(
        !lab.text("told.json").contains("hush-hush")
            && !lab.text("out/plan.yaml").contains("hush-hush")
    );
    let told = lab.json("told.json");
    assert_eq!(
        (&told["project"], &told["mode"], &told["tags"]),
        (&json!("p"), &json!("offline"), &json!(["nightly"]))
    );
    let cases: Vec<&str> = told["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["name"].as_str().unwrap())
        .collect();
    assert_eq!(cases, ["concurrency=1", "concurrency=2"]);
    let files = told["files"].as_array().unwrap();
    assert!(
        files
            .iter()
            .all(|file| std::path::Path::new(file[1].as_str().unwrap()).is_file()),
        "{files:?}"
    );
}
