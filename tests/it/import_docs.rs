//! Commands from the documentation of other tools: each can be imported, and the scenario runs.

use crate::lab::Lab;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The commands of a page: its paragraphs, without comments.
fn commands(page: &str) -> Vec<String> {
    let text = |paragraph: &str| {
        paragraph
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect::<Vec<_>>()
            .join("\n")
            .trim()
            .to_owned()
    };
    page.split("\n\n")
        .map(text)
        .filter(|command| !command.is_empty())
        .collect()
}

/// The scenario with the built-in server, two requests and few tokens in place of what takes long.
fn shortened(plan: &mut Value) {
    let local = plan["target"]["api"] == "local";
    let target = plan["target"].as_object_mut().unwrap();
    if local {
        target.insert("model".into(), json!("random:tiny"));
    } else {
        target.insert("url".into(), json!("simulator"));
        target.shift_remove("server");
    }
    target.shift_remove("timeouts");
    if let Some(request) = plan["request"].as_object_mut() {
        for key in ["max_tokens", "min_tokens"] {
            request.entry(key).and_modify(|value| *value = json!(4));
        }
    }
    let data = plan["dataset"].as_object_mut().unwrap();
    for key in ["prompt_tokens", "tokenizer"] {
        data.shift_remove(key);
    }
    for (key, value) in [
        ("tokens", json!(16)),
        ("shared_prefix", json!(4)),
        ("prefix_tokens", json!(8)),
        ("sizes", json!(["16x16"])),
    ] {
        data.entry(key).and_modify(|old| *old = value);
    }
    data.entry("shape")
        .and_modify(|shape| shape["tokens"] = json!(24));
    if matches!(
        data["kind"].as_str().unwrap(),
        "openqa" | "messages" | "sharegpt" | "embeddings" | "rerank"
    ) {
        data.insert("path".into(), json!("builtin"));
    }
    let load = plan["load"].as_object_mut().unwrap();
    let counted = ["requests", "sessions", "static"]
        .iter()
        .any(|key| load.contains_key(*key));
    for (key, value) in [
        ("sessions", json!(2)),
        ("rate", json!("50/s")),
        ("warmup", json!(1)),
    ] {
        load.entry(key).and_modify(|old| *old = value);
    }
    load.entry("requests").and_modify(|old| {
        if old.is_number() {
            *old = json!(2);
        }
    });
    load.entry("duration")
        .and_modify(|old| *old = json!(if counted { "60s" } else { "200ms" }));
    load.entry("static")
        .and_modify(|old| *old = json!({ "batch": 2, "rounds": 1 }));
    plan["matrix"]
        .as_object_mut()
        .into_iter()
        .flatten()
        .for_each(|(key, axis)| small(key, axis));
    if plan["matrix"]["load.static.batch"].is_array() {
        plan["load"].as_object_mut().unwrap().shift_remove("warmup");
    }
    if plan["search"].is_object() {
        let range = if plan["search"]["vary"] == "load.rate" {
            json!([50, 60])
        } else {
            json!([1, 2])
        };
        for (key, value) in [
            ("range", range),
            ("confirm", json!(0)),
            ("drain", json!("0s")),
            ("precision", json!("50%")),
        ] {
            plan["search"][key] = value;
        }
    }
    plan.as_object_mut()
        .unwrap()
        .retain(|key, value| key != "pause" && !value.is_null());
    plan["report"] = json!({ "formats": ["json"] });
    plan["telemetry"] = json!({ "interval": "off" });
    plan["audit"] = json!({ "lag_p99": "1h", "stall_p99": "1h", "cpu": 1, "achieved": 0 });
}

/// An axis with as many values as before, each of them small; equal values would be one.
fn small(key: &str, axis: &mut Value) {
    match (key, axis) {
        ("zip", Value::Object(lists)) => lists.iter_mut().for_each(|(key, list)| small(key, list)),
        (key, Value::Array(values)) => {
            for (at, value) in values.iter_mut().enumerate() {
                let n = at + 1;
                *value = if key.ends_with("rate") {
                    json!(format!("{}/s", 50 * n))
                } else {
                    json!(n)
                };
            }
        }
        _ => {}
    }
}

fn run(tool: &str, at: usize, command: &str) {
    let lab = Lab::new();
    lab.file("prompt.txt", "Write a haiku.");
    lab.file(
        "template.json",
        r#"{"model": "%m", "messages": [{"role": "user", "content": "%p"}], "stream": true, "max_tokens": 8}"#,
    );
    lab.file(
        "multi_image.jsonl",
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Compare.\"}]}]\n",
    );
    let logged = r#"{"body": {"model": "gpt-4", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}, "timestamp": 1700000000.0, "response": {"usage": {"completion_tokens": 4}}}"#;
    lab.file(
        "trace.jsonl",
        format!("{logged}\n{}\n", logged.replace("0000.0", "0000.1")),
    );
    let row = r#"{"timestamp": 0, "input_length": 8, "output_length": 4, "hash_ids": [1]}"#;
    lab.file(
        "mooncake.jsonl",
        format!(
            "{row}\n{}\n",
            row.replace("\"timestamp\": 0", "\"timestamp\": 100")
        ),
    );
    let ran = lab.llmscen(&["import", tool, "--to", "s.yaml", "--", command]);
    assert_eq!(ran.code, 0, "{tool} {at}: {command}\n{}", ran.err);
    let mut plan: Value = serde_yaml::from_str(&lab.text("s.yaml")).unwrap();
    shortened(&mut plan);
    lab.file("short.yaml", serde_yaml::to_string(&plan).unwrap());
    let mut child = lab.command(&["run", "short.yaml", "--output", "out"]);
    for name in ["LLM_MODEL", "OPENAI_API_KEY", "WANDB_API_KEY"] {
        child.env(name, "m");
    }
    let output = child.output().unwrap();
    let told = format!(
        "{tool} {at}: {command}\n{}\n{}",
        lab.text("short.yaml"),
        String::from_utf8_lossy(&output.stderr)
    );
    // An objective may fail at the simulator, and a busy machine spoil the measurement; nothing else may.
    assert!(matches!(output.status.code(), Some(0 | 1 | 4)), "{told}");
    let results = lab.results();
    let counts: Vec<&Value> = results["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| &case["counts"])
        .collect();
    let sound = counts
        .iter()
        .all(|counts| counts["failed"] == 0 && counts["ok"].as_u64().is_some_and(|ok| ok > 0));
    assert!(!counts.is_empty() && sound, "{told}\n{counts:?}");
}

fn run_all(tool: &str, page: &str, least: usize) {
    let commands = commands(page);
    assert!(commands.len() >= least, "{} commands", commands.len());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((at, command)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|at| Some((at, commands.get(at)?)))
                {
                    run(tool, at, command);
                }
            });
        }
    });
}

#[test]
fn the_commands_of_evalscopes_pages_import_and_run() {
    run_all(
        "evalscope",
        include_str!("../../crates/compat/tests/imports/evalscope-docs.txt"),
        42,
    );
}

#[test]
fn the_commands_of_sglangs_page_import_and_run() {
    run_all(
        "sglang",
        include_str!("../../crates/compat/tests/imports/sglang-docs.txt"),
        12,
    );
}

#[test]
fn the_commands_of_lmdeploys_pages_import_and_run() {
    run_all(
        "lmdeploy",
        include_str!("../../crates/compat/tests/imports/lmdeploy-docs.txt"),
        6,
    );
}

const PAGE: &str = include_str!("../../docs/how-to/import.md");

fn blocks() -> Vec<&'static str> {
    PAGE.split("```").skip(1).step_by(2).collect()
}

/// The block of the page that shows a text with this beginning.
pub fn shown(start: &str) -> &'static str {
    let text = |block: &&'static str| {
        let text = block.strip_prefix("text\n")?;
        text.starts_with(start).then_some(text)
    };
    let found = blocks().iter().find_map(text);
    found.unwrap_or_else(|| panic!("no block `{start}`"))
}

#[test]
fn the_blocks_of_the_page_are_true() {
    let blocks = blocks();
    let lab = Lab::new();
    lab.file("serving-tests.json", shown("{"));
    let mut seen = 0;
    for block in blocks
        .iter()
        .filter_map(|block| block.strip_prefix("console\n$ "))
    {
        // A backslash at the end of a line continues a command.
        let end = block
            .lines()
            .scan(true, |on, line| {
                std::mem::replace(on, line.ends_with('\\')).then_some(line.len() + 1)
            })
            .sum();
        let (command, printed) = block.split_at(end);
        let words = shell_words::split(command).unwrap();
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let ran = lab.llmscen(&args).expect(0);
        assert_eq!(ran.err, printed, "{command}");
        seen += 1;
    }
    assert_eq!(seen, 6);
    for (file, start) in [
        ("sglang.yaml", "# Defaults of"),
        ("serving.yaml", "variants:"),
    ] {
        let written = lab.text(file);
        assert!(written.contains(shown(start)), "{written}");
    }
    lab.llmscen(&["validate", "serving.yaml"]).expect(0);
}
