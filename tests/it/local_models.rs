//! Sources of the model of `api: local`, and errors before it is loaded.

use crate::lab::*;
use flate2::read::ZlibDecoder;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn scenario(model: &str) -> String {
    format!(
        "version: 1\nname: t\nseed: 7\ntarget:\n  api: local\n  model: {model}\n  local: {{ dtype: f32, threads: 1 }}\n\
         request: {{ max_tokens: 2, ignore_eos: true }}\ndataset: {{ kind: random, tokens: 24 }}\n\
         load: {{ concurrency: 1, requests: 2 }}\naudit: {{ lag_p99: 10s, achieved: 1% }}\n\
         report: {{ formats: [md, html], store: [sqlite], bodies: all }}\n"
    )
}

pub fn shipped_model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/local")
        .join(name)
}

/// Copies a shipped model without some files.
fn copy_model(name: &str, to: &Path, without: &[&str]) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(shipped_model(name)).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if !without.contains(&file) {
            std::fs::copy(&path, to.join(file)).unwrap();
        }
    }
}

fn change(file: &Path, changes: &Value) {
    let mut whole: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        whole[key] = value.clone();
    }
    std::fs::write(file, whole.to_string()).unwrap();
}

/// The bodies that were kept, by number.
fn bodies(lab: &Lab) -> Vec<Value> {
    let database = Connection::open(lab.path().join("out/requests.db")).unwrap();
    let mut rows = database
        .prepare("SELECT response FROM bodies ORDER BY seq")
        .unwrap();
    let packed = rows.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
    packed
        .map(|own| {
            serde_json::from_reader::<_, Value>(ZlibDecoder::new(own.unwrap().as_slice())).unwrap()
                ["body"]
                .clone()
        })
        .collect()
}

/// A GGUF file without tensors and with these metadata: numbers as u32, texts as texts.
fn gguf(metadata: &[(&str, Value)]) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut file = [
        &b"GGUF"[..],
        &3u32.to_le_bytes(),
        &0u64.to_le_bytes(),
        &(metadata.len() as u64).to_le_bytes(),
    ]
    .concat();
    for (key, value) in metadata {
        file.extend(text(key));
        match value {
            Value::String(value) => file.extend([&8u32.to_le_bytes()[..], &text(value)].concat()),
            value => file.extend(
                [
                    4u32.to_le_bytes(),
                    (value.as_u64().unwrap() as u32).to_le_bytes(),
                ]
                .concat(),
            ),
        }
    }
    file
}

#[test]
fn what_is_not_computed_is_refused_by_name_in_the_plan() {
    let refused = |lab: &Lab, model: &str, span: &str, why: &str| {
        lab.file("s.yaml", scenario(model));
        let ran = lab.llmscen(&["plan", "s.yaml"]).expect(2);
        // The terminal breaks lines, and marks them.
        let text = ran
            .err
            .replace(['│', '╰', '─', '·', '▲', '┬', '\n'], " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            text.contains(why) && text.contains(span),
            "{why}\n{}",
            ran.err
        );
    };
    let lab = Lab::new();
    let folder = lab.path().join("m");
    copy_model("qwen2", &folder, &[]);
    let config = folder.join("config.json");
    change(
        &config,
        &json!({ "use_sliding_window": true, "sliding_window": 64 }),
    );
    refused(
        &lab,
        "m",
        "s.yaml:6:10",
        "`sliding_window` is 64 of 512 positions, and attention in a sliding window is not supported",
    );
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6 });
    change(
        &config,
        &json!({ "use_sliding_window": false, "rope_parameters": yarn }),
    );
    refused(
        &lab,
        "m",
        "s.yaml:6:10",
        "`rope_parameters` is `yarn`, and this scaling of rotary positions is not supported",
    );
    let keys = [
        ("general.architecture", json!("llama")),
        ("llama.context_length", json!(512)),
        ("llama.embedding_length", json!(32)),
        ("llama.attention.head_count", json!(4)),
    ];
    lab.file(
        "w.gguf",
        gguf(&[&keys[..], &[("llama.attention.sliding_window", json!(128))]].concat()),
    );
    refused(
        &lab,
        "w.gguf",
        "s.yaml:6:10",
        "`llama.attention.sliding_window` is 128 of 512 positions",
    );
    lab.file(
        "y.gguf",
        gguf(&[&keys[..], &[("llama.rope.scaling.type", json!("yarn"))]].concat()),
    );
    refused(
        &lab,
        "y.gguf",
        "s.yaml:6:10",
        "`llama.rope.scaling.type` is `yarn`, and this scaling of rotary positions is not supported",
    );
}

#[test]
fn a_prompt_without_a_chat_template_begins_with_one_bos() {
    let lab = Lab::new();
    copy_model("qwen2", &lab.path().join("m"), &["chat_template.jinja"]);
    lab.run(&scenario("m")).expect(0);
    for body in bodies(&lab) {
        let ids = body["prompt_token_ids"].as_array().unwrap().clone();
        let begins = ids.iter().filter(|id| **id == 0).count();
        assert_eq!(
            (ids.len(), ids[0].as_u64(), begins),
            (24, Some(0), 1),
            "the dataset counts as the model reads"
        );
    }
    let templated = Lab::new();
    templated
        .run(&scenario(&shipped_model("qwen2").display().to_string()))
        .expect(0);
    let ids = bodies(&templated)[0]["prompt_token_ids"]
        .as_array()
        .unwrap()
        .clone();
    // 23 tokens of text (24 with BOS), and 3 of the template, which writes no BOS.
    assert!(ids.len() == 26 && !ids.contains(&json!(0)), "{ids:?}");
}

#[test]
fn memory_and_attention_are_in_every_report() {
    let lab = Lab::new();
    lab.run(&scenario("'random:tiny'")).expect(0);
    let own = &lab.results()["cases"][0]["local"];
    let attention = "matmul + softmax (softmax in f32, keys and values in f32), no flash attention";
    assert_eq!(own["attention"], attention);
    if cfg!(target_os = "linux") {
        let reserved = own["measured"]["memory_reserved_peak"].as_u64().unwrap();
        assert!(reserved >= own["weight_bytes"].as_u64().unwrap(), "{own:#}");
    }
    for report in ["out/report.md", "out/report.html"] {
        let text = lab.text(report);
        assert!(
            text.contains(attention) && text.contains("Reserved memory"),
            "{report}"
        );
    }
}

/// A hub that has one model, in the paths of Hugging Face.
fn hub(name: &'static str) -> Server {
    Server::start_of_paths(move |path| {
        let file = path.strip_prefix("/org/tiny/resolve/main/")?;
        std::fs::read(shipped_model(name).join(file)).ok()
    })
}

fn run_with(lab: &Lab, env: &[(&str, &str)]) -> Ran {
    lab.file("s.yaml", scenario("org/tiny"));
    let mut command = lab.command(&["run", "s.yaml", "--output", "out", "--force"]);
    Ran::of(command.envs(env.iter().copied()).output().unwrap())
}

#[test]
fn a_model_of_the_hub_is_downloaded_once_and_runs_offline_from_then_on() {
    let lab = Lab::new();
    let server = hub("qwen3");
    let address = format!("http://{}/datasets", server.addr);
    run_with(&lab, &[("LLMSCEN_HUB", &address)]).expect(0);
    let (first, plan) = (bodies(&lab), lab.text("out/plan.yaml"));
    assert!(plan.contains("model: org/tiny"), "{plan}");
    assert_eq!(lab.results()["cases"][0]["local"]["model"], "org/tiny");
    let folder = lab.path().join(".cache/llmscen/models/org--tiny");
    for file in [
        "config.json",
        "tokenizer.json",
        "model-00004-of-00004.safetensors",
        "model.safetensors.index.json.sha256",
    ] {
        assert!(folder.join(file).exists(), "{file}");
    }
    let asked = server.requests.load(std::sync::atomic::Ordering::Relaxed);
    run_with(&lab, &[("LLMSCEN_HUB", &address)]).expect(0);
    assert_eq!(
        server.requests.load(std::sync::atomic::Ordering::Relaxed),
        asked,
        "the second run asks for nothing"
    );
    assert_eq!(bodies(&lab), first);
    let folder = Lab::new();
    folder
        .run(&scenario(&shipped_model("qwen3").display().to_string()))
        .expect(0);
    assert_eq!(bodies(&folder), first, "the same model by its folder");
}

#[test]
fn a_model_of_the_hugging_face_cache_needs_no_network() {
    let lab = Lab::new();
    let home = lab.path().join("hf");
    copy_model(
        "qwen2",
        &home.join("hub/models--org--tiny/snapshots/abc"),
        &[],
    );
    lab.file("hf/hub/models--org--tiny/refs/main", "abc");
    run_with(
        &lab,
        &[
            ("LLMSCEN_HUB", "http://127.0.0.1:9/datasets"),
            ("HF_HOME", home.to_str().unwrap()),
        ],
    )
    .expect(0);
    let notes = lab.results()["notes"].to_string();
    assert!(
        notes.contains("hf/hub/models--org--tiny/snapshots/abc"),
        "{notes}"
    );
    assert!(!lab.path().join(".cache/llmscen/models").exists());
}

#[test]
fn offline_says_what_to_do() {
    let lab = Lab::new();
    let ran = run_with(&lab, &[("LLMSCEN_HUB", "http://127.0.0.1:9/datasets")]);
    assert_ne!(ran.code, 0);
    for part in [
        "http://127.0.0.1:9/org/tiny/resolve/main/tokenizer",
        "Connection refused",
        "LLMSCEN_HUB",
    ] {
        assert!(ran.err.contains(part), "{part}\n{}", ran.err);
    }
}
