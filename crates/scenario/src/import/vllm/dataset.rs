//! The data of `vllm bench serve`, and the lengths of its prompts and replies.

use crate::import::draft::Draft;
use crate::import::text::between;
use crate::import::{ImportError, number};
use crate::source::is_hub_name;
use serde_json::{Value, json};

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

/// Puts the data together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
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
    if matches!(kind, "random" | "prefix") {
        tokenizer(draft);
    }
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
        let ratio = if kind == "random" { ratios(draft)?.1 } else { 0.0 };
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

/// `--random-range-ratio` of input and output: one number, or `{"input": 0.3, "output": 0.5}`.
fn ratios(draft: &Draft) -> Result<(f64, f64), ImportError> {
    const FLAG: &str = "--random-range-ratio";
    let text = draft.text(FLAG).unwrap_or_default();
    let own = if text.trim_start().starts_with('{') {
        let both = draft.json(FLAG)?;
        let of = |key: &str| both.as_ref().and_then(|both| both.get(key)?.as_f64());
        of("input").zip(of("output"))
    } else {
        draft.number(FLAG)?.or(Some(0.0)).map(|ratio| (ratio, ratio))
    };
    let fits = |ratio: f64| (0.0..1.0).contains(&ratio);
    own.filter(|(input, output)| fits(*input) && fits(*output))
        .ok_or_else(|| draft.wrong(FLAG, &text, "a number from 0 to below 1, or JSON with `input` and `output`"))
}

/// The tokenizer whose tokens are counted: vLLM takes the model's own.
fn tokenizer(draft: &mut Draft) {
    let model = draft.text("--model").filter(|model| !draft.has("--tokenizer") && is_hub_name(model));
    if let Some(model) = model.filter(|_| !draft.has("--skip-tokenizer-init")) {
        draft.put("dataset/tokenizer", model);
        draft.account("--model", &["target/model", "dataset/tokenizer"]);
    }
}

fn random(draft: &mut Draft) -> Result<(), ImportError> {
    let ratio = ratios(draft)?.0;
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
