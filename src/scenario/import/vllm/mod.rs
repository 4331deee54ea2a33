//! `vllm bench serve`, after its arguments of late 2026.

mod flags;

pub(super) use flags::FLAGS;

use super::draft::Draft;
use super::text::{api_of, between, join, name};
use super::{ImportError, number, serving};
use serde_json::{Map, Value, json};

/// Puts the scenario together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let label = draft.text("--label").unwrap_or_default();
    draft.put("name", name(&label, "vllm-bench"));
    draft.account("--label", &["name"]);
    draft.put("seed", number(draft.number("--seed")?.unwrap_or(0.0).max(0.0)));
    draft.account("--seed", &["seed"]);
    target(draft)?;
    request(draft)?;
    dataset(draft)?;
    load(draft)?;
    serving::goodput(draft, "vLLM")?;
    draft.carry("--result-dir", "report/dir");
    Ok(())
}

fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let base = serving::base(draft, 8000.0)?;
    let endpoint = draft.text("--endpoint").unwrap_or_else(|| "/v1/completions".into());
    let backend = draft.text("--backend").unwrap_or_else(|| "openai".into());
    let url = join(&base, &endpoint);
    let api = match backend.as_str() {
        "vllm" | "openai" | "lmdeploy" | "scalellm" | "sglang" | "openai-chat" | "vllm-chat" | "openai-audio" => api_of(&url),
        "openai-embeddings" | "openai-embeddings-chat" | "infinity-embeddings" => "openai-embeddings",
        "vllm-rerank" => "rerank",
        "tgi" => "tgi",
        other => {
            return Err(draft.wrong(
                "--backend",
                other,
                "openai, openai-chat, vllm, sglang, lmdeploy, tgi, openai-embeddings or vllm-rerank",
            ));
        }
    };
    draft.put("target/api", api);
    draft.put("target/url", url);
    draft.account("--backend", &["target/api"]);
    draft.account("--endpoint", &["target/url"]);
    draft.carry("--model", "target/model");
    draft.carry("--served-model-name", "target/model");
    let modules = draft.texts("--lora-modules");
    if !modules.is_empty() {
        draft.put("target/model", modules);
        draft.account("--lora-modules", &["target/model"]);
        draft.account("--lora-assignment", &["target/model"]);
        draft.note("--lora-assignment", "each request draws one of them on the seed");
    }
    draft.api_key("--api-key");
    draft.headers("--header")?;
    if draft.has("--insecure") {
        draft.put("target/tls/insecure", true);
        draft.account("--insecure", &["target/tls/insecure"]);
    }
    if draft.has("--request-id-prefix") {
        draft.put("target/request_id", "X-Request-Id");
        draft.account("--request-id-prefix", &["target/request_id"]);
        draft.note("--request-id-prefix", "ids are unique by themselves and stand in every row");
    }
    Ok(())
}

fn request(draft: &mut Draft) -> Result<(), ImportError> {
    for (flag, path) in [
        ("--temperature", "request/temperature"),
        ("--top-p", "request/top_p"),
        ("--top-k", "request/top_k"),
        ("--frequency-penalty", "request/frequency_penalty"),
        ("--presence-penalty", "request/presence_penalty"),
        ("--repetition-penalty", "request/repetition_penalty"),
        ("--logprobs", "request/logprobs"),
    ] {
        draft.carry_number(flag, path)?;
    }
    if let Some(share) = draft.number("--min-p")? {
        draft.merge_extra(Map::from_iter([("min_p".to_owned(), number(share))]));
        draft.account("--min-p", &["request/extra"]);
    }
    draft.extra("--extra-body")
}

/// The first of these flags that was given, and its value.
fn first(draft: &mut Draft, flags: &[&str], path: &str) -> Result<Option<f64>, ImportError> {
    for flag in flags {
        if let Some(value) = draft.number(flag)? {
            draft.account(flag, &[path]);
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn dataset(draft: &mut Draft) -> Result<(), ImportError> {
    let wanted = draft.text("--dataset-name").unwrap_or_else(|| "random".into());
    let kind = match wanted.as_str() {
        "random" => "random",
        "random-mm" => "images",
        "random-rerank" => "rerank",
        "prefix_repetition" => "prefix",
        "sharegpt" => "sharegpt",
        "burstgpt" => "trace",
        "custom" => "rows",
        "txt-slices" | "sonnet" => "line_by_line",
        other => return Err(draft.wrong("--dataset-name", other, "random, random-mm, random-rerank, prefix_repetition, sharegpt, burstgpt, custom or sonnet; other data come as `kind: rows` of a file")),
    };
    draft.put("dataset/kind", kind);
    draft.account("--dataset-name", &["dataset/kind"]);
    draft.carry("--dataset-path", "dataset/path");
    draft.carry("--tokenizer", "dataset/tokenizer");
    match kind {
        "random" => random(draft)?,
        "prefix" => prefix(draft)?,
        "images" => draft.put("dataset/sizes", json!(["256x256"])),
        "rows" => draft.put("dataset/columns/prompt", "prompt"),
        _ => {}
    }
    let flags: &[&str] = match kind {
        "random" | "images" => &["--random-output-len", "--output-len"],
        "prefix" => &["--prefix-repetition-output-len", "--output-len"],
        "sharegpt" => &["--sharegpt-output-len", "--output-len"],
        "rows" => &["--custom-output-len", "--output-len"],
        _ => &["--output-len"],
    };
    let unsaid = match (kind, wanted.as_str()) {
        ("random" | "prefix" | "images", _) | (_, "txt-slices") => Some(128.0),
        ("rows", _) => Some(256.0),
        (_, "sonnet") => Some(150.0),
        _ => None,
    };
    if kind == "sharegpt" && !draft.has("--sharegpt-output-len") && !draft.has("--output-len") {
        let differs = "vLLM asks for as many tokens as the row's own reply has, and leaves out rows that are short or long; set `request.max_tokens`, and `dataset.prompt_tokens`";
        draft.note("--dataset-name", differs);
    }
    if kind == "line_by_line" {
        draft.note("--dataset-name", "prompts are the lines of the file; vLLM puts several together until they are long enough");
    }
    if let Some(length) = first(draft, flags, "request/max_tokens")?.or(unsaid) {
        let ratio = if kind == "random" { draft.number("--random-range-ratio")?.unwrap_or(0.0) } else { 0.0 };
        draft.put("request/max_tokens", ranged(length, ratio));
    }
    if matches!(kind, "random" | "images") || draft.has("--ignore-eos") {
        draft.put("request/ignore_eos", true);
        draft.account("--ignore-eos", &["request/ignore_eos"]);
    }
    rows(draft, kind)
}

/// `length` ± `ratio` of it, as vLLM draws lengths.
fn ranged(length: f64, ratio: f64) -> Value {
    between((length * (1.0 - ratio)).floor().max(1.0), (length * (1.0 + ratio)).ceil())
}

fn random(draft: &mut Draft) -> Result<(), ImportError> {
    let ratio = draft.number("--random-range-ratio")?.unwrap_or(0.0);
    let own = first(draft, &["--random-input-len", "--input-len"], "dataset/tokens")?.unwrap_or(1024.0);
    draft.put("dataset/tokens", ranged(own, ratio));
    draft.account("--random-range-ratio", &["dataset/tokens", "request/max_tokens"]);
    if let Some(shared) = draft.number("--random-prefix-len")?.filter(|shared| *shared > 0.0) {
        draft.put("dataset/shared_prefix", number(shared));
        draft.put("dataset/tokens", between((own * (1.0 - ratio)).floor() + shared, (own * (1.0 + ratio)).ceil() + shared));
        draft.account("--random-prefix-len", &["dataset/shared_prefix"]);
    }
    draft.carry_number("--random-batch-size", "dataset/batch")
}

fn prefix(draft: &mut Draft) -> Result<(), ImportError> {
    for (flag, path, unsaid) in [
        ("--prefix-repetition-num-prefixes", "dataset/groups", 10.0),
        ("--prefix-repetition-prefix-len", "dataset/prefix_tokens", 256.0),
        ("--prefix-repetition-suffix-len", "dataset/tokens", 256.0),
    ] {
        draft.put(path, number(draft.number(flag)?.unwrap_or(unsaid)));
        draft.account(flag, &[path]);
    }
    Ok(())
}

/// How the rows of a file are taken.
fn rows(draft: &mut Draft, kind: &str) -> Result<(), ImportError> {
    let file = matches!(kind, "sharegpt" | "rows" | "line_by_line");
    if file && !draft.has("--dataset-path") {
        return Err(ImportError::Missing("--dataset-path"));
    }
    if file && !draft.has("--disable-shuffle") {
        draft.put("dataset/order", "shuffle");
    }
    draft.account("--disable-shuffle", &["dataset/order"]);
    if draft.has("--no-oversample") {
        draft.put("dataset/on_exhausted", "stop");
        draft.account("--no-oversample", &["dataset/on_exhausted"]);
    }
    Ok(())
}

fn load(draft: &mut Draft) -> Result<(), ImportError> {
    match draft.text("--ramp-up-strategy") {
        Some(strategy) => {
            let amount = serving::requests(draft)?;
            ramp(draft, &strategy, amount)?;
            serving::burstiness(draft)?;
        }
        None => serving::load(draft)?,
    }
    if draft.get("load/arrivals").is_none() {
        draft.note("--burstiness", "1 is Poisson, and it shapes a rate alone");
    }
    draft.carry_number("--num-warmups", "load/warmup")
}

fn ramp(draft: &mut Draft, strategy: &str, amount: f64) -> Result<(), ImportError> {
    let ends = (draft.number("--ramp-up-start-rps")?, draft.number("--ramp-up-end-rps")?);
    let (Some(from), Some(to)) = ends else { return Err(ImportError::Missing("--ramp-up-start-rps and --ramp-up-end-rps")) };
    // So long does it take until so many requests have been due on a straight line.
    let span = (2.0 * amount / (from + to).max(1e-9)).ceil();
    draft.put("load/stages", json!([{ "rate": format!("{from}/s -> {to}/s"), "for": format!("{span}s") }]));
    for flag in ["--ramp-up-strategy", "--ramp-up-start-rps", "--ramp-up-end-rps"] {
        draft.account(flag, &["load/stages"]);
    }
    draft.note("--max-concurrency", "an open loop sends when a request is due");
    let differs = match strategy {
        "exponential" => "a straight line; several stages come nearer to the exponential one",
        _ => "a straight line over time; vLLM's is one over the number of requests, which takes longer",
    };
    draft.note("--ramp-up-strategy", differs);
    Ok(())
}
