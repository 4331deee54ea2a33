//! `python -m sglang.bench_serving` and `sglang.bench_one_batch_server`, after their arguments of SGLang 0.5.23.

use crate::import::bench_serving::{self, Script};
use crate::import::draft::{Draft, join, name, number};
use crate::import::flags::ImportError;
use serde_json::{Value, json};

const SCRIPT: Script = Script {
    name: "sglang-bench",
    seed: 42,
    length: Some(1024.0),
};

pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let tag = draft.text("--tag").unwrap_or_default();
    draft.carry_value("--tag", "name", name(&tag, SCRIPT.name));
    bench_serving::target(draft)?;
    bench_serving::request(draft, &SCRIPT)?;
    logprobs(draft)?;
    bench_serving::dataset(draft, &SCRIPT, "--dataset-path")?;
    load(draft)?;
    bench_serving::goodput(draft, "SGLang")
}

fn logprobs(draft: &mut Draft) -> Result<(), ImportError> {
    if draft.has("--return-logprob") {
        match draft
            .number("--top-logprobs-num")?
            .filter(|count| *count > 0.0)
        {
            Some(count) => draft.set("request/logprobs", number(count)),
            None => draft.set("request/logprobs", true),
        }
        draft.account("--return-logprob --top-logprobs-num", &["request/logprobs"]);
    } else {
        draft.note("--top-logprobs-num", "only used with --return-logprob");
    }
    Ok(())
}

fn load(draft: &mut Draft) -> Result<(), ImportError> {
    match draft.get("dataset/kind").and_then(Value::as_str) {
        Some("trace") => {
            draft.carry_number_or("--num-prompts", "load/requests", 1000.0)?;
            draft.note("--request-rate", "the trace determines the arrivals");
            draft.carry_cap("--max-concurrency")?;
        }
        Some("prefix") => {
            bench_serving::load(draft)?;
            let count = |path: &str| draft.get(path).and_then(Value::as_f64).unwrap_or(1.0);
            let prompts = number(count("dataset/groups") * count("dataset/per_group"));
            if draft.get("dataset/turns").is_some() {
                draft.withdraw("--num-prompts", "load", "requests");
                draft.set("load/sessions", prompts);
            } else {
                draft.set("load/requests", prompts);
            }
            draft.note(
                "--num-prompts",
                "this dataset sends groups × prompts per group",
            );
        }
        _ => {
            draft.set_default("--num-prompts", "load/requests", 1000);
            bench_serving::load(draft)?;
        }
    }
    draft.carry_number_or("--warmup-requests", "load/warmup", 1.0)?;
    draft.note(
        "--warmup-requests",
        "the tool limits their replies to 32 tokens",
    );
    Ok(())
}

/// Every batch size × prompt length × output length is a batch that is sent at once.
pub(super) fn translate_batch(draft: &mut Draft) -> Result<(), ImportError> {
    let tag = draft.text("--run-name").unwrap_or_default();
    draft.carry_value("--run-name", "name", name(&tag, "sglang-one-batch"));
    draft.carry_number_or("--seed", "seed", 42.0)?;
    let backend = draft.text("--backend").unwrap_or_else(|| "sglang".into());
    let base = draft
        .text("--base-url")
        .unwrap_or_else(|| "http://127.0.0.1:30000".into());
    draft.set("target/api", "openai-completions");
    draft.account("--backend", &["target/api"]);
    if backend == "sglang" {
        draft.note(
            "--backend",
            "the server's /v1/completions instead of its /generate",
        );
    }
    draft.carry_value("--base-url", "target/url", join(&base, "v1/completions"));
    // With `--model None` the script uses a server that runs.
    match draft.text("--model") {
        Some(_) if draft.has("--lora-name") => {
            draft.note("--model", "overridden by `--lora-name`");
        }
        Some(model) if model != "None" => draft.carry("--model", "target/model"),
        _ => draft.note("--model", "the model of the server at --base-url"),
    }
    draft.carry_number_or("--temperature", "request/temperature", 0.0)?;
    draft.set("request/ignore_eos", !draft.has("--disable-ignore-eos"));
    draft.account("--disable-ignore-eos", &["request/ignore_eos"]);
    batch_dataset(draft)?;
    draft.set("load/static/rounds", 1);
    draft.set(
        "load/warmup",
        if draft.has("--skip-warmup") {
            json!(0)
        } else {
            json!("1x")
        },
    );
    draft.account("--skip-warmup", &["load/warmup"]);
    for (flag, path, default) in [
        ("--batch-size", "load/static/batch", 1.0),
        ("--output-len", "request/max_tokens", 16.0),
    ] {
        axis(draft, flag, path, default)?;
    }
    Ok(())
}

fn axis(
    draft: &mut Draft,
    flag: &str,
    path: &'static str,
    default: f64,
) -> Result<(), ImportError> {
    draft.set_default(flag, path, number(default));
    let values = draft.numbers(flag)?;
    draft.one_or_axis(path, values.into_iter().map(number).collect());
    draft.account(flag, &[path]);
    Ok(())
}

fn batch_dataset(draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(file) = draft.text("--fixed-prompt-file") {
        draft.set("dataset/kind", "prompt");
        draft.carry_value("--fixed-prompt-file", "dataset/text", format!("@{file}"));
        return Ok(());
    }
    let dataset = draft
        .text("--dataset-name")
        .unwrap_or_else(|| "random".into());
    match dataset.as_str() {
        "random" | "random-ids" => {
            draft.set("dataset/kind", "random");
            axis(draft, "--input-len", "dataset/tokens", 1024.0)?;
        }
        "generated-shared-prefix" => {
            draft.set("dataset/kind", "prefix");
            for (flag, path, default) in [
                ("--gsp-num-groups", "dataset/groups", 1.0),
                ("--gsp-system-prompt-len", "dataset/prefix_tokens", 2048.0),
                ("--gsp-question-len", "dataset/tokens", 128.0),
            ] {
                draft.carry_number_or(flag, path, default)?;
            }
            draft.note("--gsp-output-len", "--output-len limits every request");
        }
        "sharegpt" | "custom" => {
            draft.set("dataset/kind", "sharegpt");
            if !draft.has("--dataset-path") {
                return Err(ImportError::Missing("--dataset-path"));
            }
            draft.carry("--dataset-path", "dataset/path");
        }
        other => {
            return Err(draft.invalid(
                "--dataset-name",
                other,
                "random, random-ids, generated-shared-prefix, sharegpt or custom",
            ));
        }
    }
    draft.account("--dataset-name", &["dataset/kind"]);
    Ok(())
}
