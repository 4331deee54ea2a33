//! Datasets of the Hugging Face hub by name, and files by their URL.

use crate::lab::{Lab, Ran, Server};
use serde_json::json;
use std::sync::{Arc, Mutex};

const FIRST: &str = "0123456789abcdef0123456789abcdef01234567";
const SECOND: &str = "89abcdef0123456789abcdef0123456789abcdef";
const TOKEN: &str = "hf_abcdefghij";

/// What the branch `main` has: its commit and the rows of the split `test`.
#[derive(Clone)]
struct Branch {
    commit: &'static str,
    rows: String,
}

fn rows(topics: &[&str]) -> String {
    let row = |topic: &&str| json!({ "question": format!("What is {topic}?"), "topic": topic });
    topics
        .iter()
        .map(|topic| format!("{}\n", row(topic)))
        .collect()
}

/// The dataset `org/qa`.
fn hub(branch: &Arc<Mutex<Branch>>) -> Server {
    let branch = branch.clone();
    Server::start_of_paths(move |path| {
        let Branch { commit, rows } = branch.lock().unwrap().clone();
        let files = [
            json!({ "rfilename": "test.jsonl" }),
            json!({ "rfilename": "train.jsonl" }),
        ];
        let listing = json!({ "sha": commit, "siblings": files });
        match path {
            "/api/datasets/org/qa/revision/main?blobs=true" => {
                Some(listing.to_string().into_bytes())
            }
            _ if path == format!("/datasets/org/qa/resolve/{commit}/test.jsonl") => {
                Some(rows.into_bytes())
            }
            _ => None,
        }
    })
}

fn scenario(dataset: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: simulator, model: m, simulator: {{ alpha: 1ms }} }}\nrequest: {{ max_tokens: 2 }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n\
         dataset: {{ kind: openqa, {dataset} }}\nload: {{ concurrency: 1, requests: 4 }}\n"
    )
}

fn llmscen(lab: &Lab, server: &Server, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = lab.command(args);
    command
        .env("HF_ENDPOINT", format!("http://{}", server.addr))
        .env("HF_TOKEN", TOKEN)
        .envs(env.iter().copied());
    Ran::of(command.output().unwrap())
}

#[test]
fn a_stored_plan_reads_the_same_bytes_or_stops() {
    let branch = Arc::new(Mutex::new(Branch {
        commit: FIRST,
        rows: rows(&["math", "art", "math", "math"]),
    }));
    let server = hub(&branch);
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        scenario("path: hub:org/qa, split: test, group: item.topic"),
    );
    let run = |file: &str, out: &str, env: &[(&str, &str)]| {
        llmscen(
            &lab,
            &server,
            &["run", file, "--output", out, "--force"],
            env,
        )
    };
    run("s.yaml", "out", &[]).expect(0);
    let plan = lab.text("out/plan.yaml");
    assert!(plan.contains("pins:") && plan.contains(FIRST), "{plan}");
    let groups = |out: &str| {
        let results = lab.json(&format!("{out}/results.json"));
        let groups = results["cases"][0]["groups"].as_array().unwrap().clone();
        let count = |group: serde_json::Value| (group["name"].clone(), group["ok"].clone());
        groups.into_iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!(
        groups("out"),
        [(json!("art"), json!(1)), (json!("math"), json!(3))]
    );
    for entry in walk(lab.path()) {
        let bytes = std::fs::read(&entry).unwrap();
        let found = bytes
            .windows(TOKEN.len())
            .any(|part| part == TOKEN.as_bytes());
        assert!(!found, "{}", entry.display());
    }

    // The branch moves on; the plan does not, and the scenario does.
    *branch.lock().unwrap() = Branch {
        commit: SECOND,
        rows: rows(&["history"]),
    };
    run("out/plan.yaml", "again", &[]).expect(0);
    assert_eq!(groups("again"), groups("out"));
    run("s.yaml", "moved", &[]).expect(0);
    assert_eq!(groups("moved"), [(json!("history"), json!(4))]);

    // Another machine, where the hub has other bytes under the name of the commit, and one that has none.
    *branch.lock().unwrap() = Branch {
        commit: FIRST,
        rows: rows(&["forged"]),
    };
    let elsewhere = lab.path().join("elsewhere");
    let cache = [("LLMSCEN_CACHE", elsewhere.to_str().unwrap())];
    let forged = run("out/plan.yaml", "forged", &cache);
    assert_ne!(forged.code, 0);
    assert!(forged.err.contains("but the plan has"), "{}", forged.err);
    let offline = [cache[0], ("HF_HUB_OFFLINE", "1")];
    let offline = run("out/plan.yaml", "offline", &offline);
    assert_ne!(offline.code, 0);
    assert!(
        offline.err.contains("HF_HUB_OFFLINE is set"),
        "{}",
        offline.err
    );
    run("s.yaml", "cached", &[("HF_HUB_OFFLINE", "1")]).expect(0);
    assert_eq!(groups("cached"), groups("moved"), "the last listing");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                walk(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn plan_points_at_what_the_hub_does_not_have() {
    let branch = Arc::new(Mutex::new(Branch {
        commit: FIRST,
        rows: rows(&["math"]),
    }));
    let server = hub(&branch);
    let lab = Lab::new();
    for (dataset, expected) in [
        (
            "path: hub:org/qa, split: tests",
            vec![
                "`hub:org/qa` has no split `tests`",
                "did you mean `test`?",
                "s.yaml:6:",
            ],
        ),
        (
            "path: hub:org/qa",
            vec!["has several splits", "needs `split`", "`test` and `train`"],
        ),
        (
            "path: hub:org/qa/tset.jsonl",
            vec!["has no file `tset.jsonl`", "did you mean `test.jsonl`?"],
        ),
        (
            "path: hub:org/other",
            vec!["has no dataset `org/other`", "s.yaml:6:"],
        ),
    ] {
        lab.file("s.yaml", scenario(dataset));
        llmscen(&lab, &server, &["validate", "s.yaml"], &[]).expect(0);
        let ran = llmscen(&lab, &server, &["plan", "s.yaml"], &[]).expect(2);
        for part in expected {
            assert!(ran.err.contains(part), "{part}\n{}", ran.err);
        }
    }
    lab.file(
        "s.yaml",
        scenario("path: hub:org/qa/test.jsonl, group: item.area"),
    );
    let ran = llmscen(&lab, &server, &["plan", "s.yaml"], &[]);
    assert_ne!(ran.code, 0);
    assert!(
        ran.err.contains("hub:org/qa/test.jsonl:1: the row has no `area`, which `dataset.group` names (fields: question, topic)"),
        "{}",
        ran.err
    );
}

#[test]
fn a_file_by_its_url_is_read_again_only_with_the_same_bytes() {
    let served = Arc::new(Mutex::new(rows(&["math", "art"])));
    let file = served.clone();
    let server = Server::start_of_paths(move |path| {
        (path == "/data/qa.jsonl").then(|| file.lock().unwrap().clone().into_bytes())
    });
    let lab = Lab::new();
    let path = format!("path: \"http://{}/data/qa.jsonl\"", server.addr);
    lab.file("s.yaml", scenario(&path));
    llmscen(&lab, &server, &["validate", "s.yaml"], &[]).expect(0);
    llmscen(&lab, &server, &["run", "s.yaml", "--output", "out"], &[]).expect(0);
    let plan = lab.text("out/plan.yaml");
    assert!(
        plan.contains("pins:") && plan.contains("qa.jsonl: "),
        "{plan}"
    );
    *served.lock().unwrap() = rows(&["history"]);
    let args = ["run", "out/plan.yaml", "--output", "again"];
    llmscen(&lab, &server, &args, &[]).expect(0);
    let elsewhere = lab.path().join("elsewhere");
    let cache = [("LLMSCEN_CACHE", elsewhere.to_str().unwrap())];
    let args = ["run", "out/plan.yaml", "--output", "moved"];
    let moved = llmscen(&lab, &server, &args, &cache);
    assert_ne!(moved.code, 0);
    assert!(moved.err.contains("but the plan has"), "{}", moved.err);
    lab.file("s.yaml", scenario(&format!("{}, group: item.area", path)));
    let wrong = llmscen(&lab, &server, &["plan", "s.yaml"], &[]);
    assert!(
        wrong
            .err
            .contains("/data/qa.jsonl:1: the row has no `area`"),
        "{}",
        wrong.err
    );
}
