//! What `aiperf profile` sends.

use crate::import::draft::Draft;
use crate::import::text::{about, seconds};
use crate::import::{ImportError, number};
use serde_json::{Value, json};

/// The prompts and what they ask for.
pub(super) fn dataset(draft: &mut Draft) -> Result<(), ImportError> {
    let kind = kind(draft)?;
    draft.put("dataset/kind", kind);
    draft.carry("--tokenizer", "dataset/tokenizer");
    match kind {
        "random" => random(draft)?,
        "images" => {
            let [width, height] = [draft.number("--image-width-mean")?, draft.number("--image-height-mean")?];
            draft.put("dataset/sizes", json!([format!("{}x{}", width.unwrap_or(512.0), height.unwrap_or(512.0))]));
            draft.account("--image-width-mean", &["dataset/sizes"]);
            draft.account("--image-height-mean", &["dataset/sizes"]);
            draft.carry_number("--image-batch-size", "dataset/count")?;
        }
        "rerank" => draft.carry_number("--rankings-passages-mean", "dataset/documents")?,
        "embeddings" => draft.carry_number("--batch-size", "dataset/batch")?,
        _ => {}
    }
    turns(draft)?;
    if let Some(length) = draft.number("--osl")? {
        draft.put("request/max_tokens", about(length, draft.number("--osl-stddev")?.unwrap_or(0.0)));
        draft.account("--osl", &["request/max_tokens"]);
        draft.account("--osl-stddev", &["request/max_tokens"]);
    } else {
        draft.note("--osl-stddev", "it goes with --osl");
    }
    draft.carry("--system-prompt", "dataset/system");
    match draft.text("--dataset-sampling-strategy").as_deref() {
        None | Some("sequential") => draft.account("--dataset-sampling-strategy", &["dataset/order"]),
        Some(_) => {
            draft.put("dataset/order", "shuffle");
            draft.account("--dataset-sampling-strategy", &["dataset/order"]);
        }
    }
    if draft.truth("--no-allow-dataset-wrap") {
        draft.put("dataset/on_exhausted", "stop");
    }
    draft.account("--no-allow-dataset-wrap", &["dataset/on_exhausted"]);
    draft.account("--allow-dataset-wrap", &["dataset/on_exhausted"]);
    if let Some(place) = draft.text("--cache-bust") {
        if place != "none" {
            draft.put("dataset/cache_bust", true);
        }
        draft.account("--cache-bust", &["dataset/cache_bust"]);
    }
    Ok(())
}

fn kind(draft: &mut Draft) -> Result<&'static str, ImportError> {
    if let Some(name) = draft.text("--public-dataset") {
        if name != "sharegpt" {
            return Err(draft.wrong("--public-dataset", &name, "sharegpt; others come as `kind: rows` of a file"));
        }
        draft.account("--public-dataset", &["dataset/kind"]);
        draft.put("dataset/path", "builtin");
        draft.note("--public-dataset", "a small set that ships with the tool; give `dataset.path` for the whole of it");
        return Ok("sharegpt");
    }
    let endpoint = draft.text("--endpoint-type").unwrap_or_default();
    let Some(path) = draft.text("--input-file") else {
        let pictures = draft.number("--image-width-mean")?.is_some_and(|width| width > 0.0);
        let kind = match () {
            () if endpoint.ends_with("embeddings") => "embeddings",
            () if endpoint.ends_with("rankings") => "rerank",
            () if pictures => "images",
            () => "random",
        };
        if matches!(kind, "embeddings" | "rerank") {
            draft.put("dataset/path", "builtin");
        }
        return Ok(kind);
    };
    draft.put("dataset/path", path);
    draft.account("--input-file", &["dataset/path"]);
    draft.account("--custom-dataset-type", &["dataset/kind"]);
    Ok(match draft.text("--custom-dataset-type").as_deref() {
        Some("mooncake_trace") => {
            draft.put("dataset/trace/layout", "mooncake");
            "trace"
        }
        Some("burst_gpt_trace" | "burstgpt_trace") => {
            draft.put("dataset/trace/layout", "burstgpt");
            "trace"
        }
        Some("multi_turn") => {
            draft.note("--custom-dataset-type", "write each conversation as a message list");
            draft.put("dataset/turns", json!({}));
            "messages"
        }
        Some("raw_payload") => "line_by_line",
        _ if endpoint.ends_with("embeddings") => "embeddings",
        _ if endpoint.ends_with("rankings") => "rerank",
        _ => {
            draft.put("dataset/columns/prompt", "text");
            "rows"
        }
    })
}

fn random(draft: &mut Draft) -> Result<(), ImportError> {
    let (mean, sd) = (draft.number("--isl")?.unwrap_or(550.0), draft.number("--isl-stddev")?.unwrap_or(0.0));
    draft.account("--isl", &["dataset/tokens"]);
    draft.account("--isl-stddev", &["dataset/tokens"]);
    draft.put("dataset/tokens", about(mean, sd));
    let pool = draft.number("--num-prefix-prompts")?.unwrap_or(0.0);
    let shared =
        draft.number("--prefix-prompt-length")?.or(draft.number("--shared-system-prompt-length")?).filter(|shared| *shared > 0.0);
    let Some(shared) = shared else { return Ok(()) };
    if pool > 1.0 {
        draft.put("dataset/kind", "prefix");
        draft.put("dataset/groups", number(pool));
        draft.put("dataset/prefix_tokens", number(shared));
        draft.account("--num-prefix-prompts", &["dataset/groups"]);
        draft.account("--prefix-prompt-length", &["dataset/prefix_tokens"]);
    } else {
        draft.put("dataset/shared_prefix", number(shared));
        draft.put("dataset/tokens", about(mean + shared, sd));
        for flag in ["--prefix-prompt-length", "--shared-system-prompt-length", "--num-prefix-prompts"] {
            draft.account(flag, &["dataset/shared_prefix"]);
        }
    }
    Ok(())
}

/// Conversations: AIPerf makes them up, here they come from data.
fn turns(draft: &mut Draft) -> Result<(), ImportError> {
    let mean = draft.number("--session-turns-mean")?.unwrap_or(1.0);
    let made_up = draft.get("dataset/kind").and_then(Value::as_str) == Some("random");
    if mean > 1.0 && !made_up {
        draft.put("dataset/turns/max", number(mean));
        draft.account("--session-turns-mean", &["dataset/turns/max"]);
    } else {
        draft.note("--session-turns-mean", "conversations come from data: `dataset: { kind: sharegpt, turns: {} }`");
    }
    let wait = draft.number("--session-turn-delay-mean")?.filter(|wait| *wait > 0.0);
    if let Some(wait) = wait.filter(|_| draft.get("dataset/turns").is_some()) {
        // AIPerf counts these in milliseconds.
        draft.put("dataset/turns/think_time", seconds(wait / 1e3));
        draft.account("--session-turn-delay-mean", &["dataset/turns/think_time"]);
    }
    draft.note("--session-turn-delay-stddev", "write a distribution into `dataset.turns.think_time`");
    Ok(())
}
