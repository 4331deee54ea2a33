//! `evalscope perf`, after the arguments of evalscope 1.14.

mod flags;
mod load;

pub(super) use flags::FLAGS;

use super::draft::Draft;
use super::text::{api_of, between, endpoint, name};
use super::{ImportError, number};
use serde_json::{Value, json};

/// Puts the scenario together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let title = draft.text("--name").or_else(|| draft.text("--alias"));
    draft.put("name", name(title.as_deref().unwrap_or_default(), "evalscope-perf"));
    draft.account("--name", &["name"]);
    draft.account("--alias", &["name"]);
    target(draft)?;
    request(draft)?;
    dataset(draft)?;
    match draft.truth("--sla-auto-tune") {
        true => load::search(draft)?,
        false => load::load(draft)?,
    }
    draft.carry("--outputs-dir", "report/dir");
    Ok(())
}

fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let api = draft.text("--api").unwrap_or_else(|| "openai".into());
    let ends = ["/chat/completions", "/completions", "/responses", "/embeddings", "/reranks", "/rerank"];
    let url = draft.text("--url").unwrap_or_else(|| "http://127.0.0.1:8877/v1/chat/completions".into());
    let (spoken, url) = match api.as_str() {
        "openai" => {
            let url = endpoint(&url, "chat/completions", &ends);
            (api_of(&url), url)
        }
        "openai_responses" | "openai_response" | "responses" => {
            ("openai-responses", endpoint(&url.replace("/chat/completions", "/responses"), "responses", &ends))
        }
        "openai_embedding" | "embedding" => ("openai-embeddings", endpoint(&url, "embeddings", &ends)),
        "openai_rerank" | "rerank" => ("rerank", endpoint(&url, "reranks", &ends)),
        "dashscope" => ("dashscope", url),
        "custom" => ("custom", url),
        other => {
            return Err(draft.wrong(
                "--api",
                other,
                "a protocol over HTTP: openai, openai_responses, embedding, rerank or dashscope",
            ));
        }
    };
    draft.put("target/api", spoken);
    draft.put("target/url", url);
    draft.account("--api", &["target/api"]);
    draft.account("--url", &["target/url"]);
    if spoken == "custom" {
        draft.note("--api", "say in `request.template` and `request.extract` how it speaks");
    }
    draft.carry("--model", "target/model");
    draft.api_key("--api-key");
    draft.headers("--headers")?;
    draft.carry_seconds("--connect-timeout", "target/timeouts/connect")?;
    draft.carry_seconds("--read-timeout", "target/timeouts/read")?;
    draft.carry_seconds("--total-timeout", "target/timeouts/total")
}

fn request(draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(template) = draft.text("--query-template") {
        match template.strip_prefix('@') {
            Some(file) => draft.put("request/template", file),
            None => match serde_json::from_str::<Value>(&template) {
                Ok(body @ Value::Object(_)) => draft.refer_value("request/template", body),
                _ => return Err(draft.wrong("--query-template", &template, "a JSON object or @FILE")),
            },
        }
        draft.account("--query-template", &["request/template"]);
    }
    // What evalscope asks for without being told.
    draft.put("request/max_tokens", 2048);
    draft.put("request/temperature", 0);
    match draft.numbers("--max-tokens")?.as_slice() {
        [] => {}
        [one] => draft.put("request/max_tokens", number(*one)),
        [least, most, ..] => draft.put("request/max_tokens", between(*least, *most)),
    }
    draft.account("--max-tokens", &["request/max_tokens"]);
    for (flag, path) in [
        ("--min-tokens", "request/min_tokens"),
        ("--temperature", "request/temperature"),
        ("--top-p", "request/top_p"),
        ("--top-k", "request/top_k"),
        ("--frequency-penalty", "request/frequency_penalty"),
        ("--repetition-penalty", "request/repetition_penalty"),
        ("--n-choices", "request/n"),
    ] {
        draft.carry_number(flag, path)?;
    }
    if let Some(seed) = draft.number("--seed")? {
        draft.put("seed", number(seed.max(0.0)));
        draft.put("request/seed", number(seed));
        draft.account("--seed", &["seed", "request/seed"]);
    }
    if draft.truth("--logprobs") {
        draft.put("request/logprobs", true);
        draft.account("--logprobs", &["request/logprobs"]);
    }
    let stops = draft.texts("--stop");
    if !stops.is_empty() {
        draft.put("request/stop", stops);
        draft.account("--stop", &["request/stop"]);
    }
    let ids = draft.numbers("--stop-token-ids")?;
    if !ids.is_empty() {
        draft.put("request/stop_token_ids", ids.into_iter().map(number).collect::<Vec<_>>());
        draft.account("--stop-token-ids", &["request/stop_token_ids"]);
    }
    if draft.has("--stream") || draft.has("--no-stream") {
        draft.put("request/stream", !draft.has("--no-stream"));
        draft.account("--stream", &["request/stream"]);
        draft.account("--no-stream", &["request/stream"]);
    }
    draft.extra("--extra-args")
}

/// evalscope's name of a dataset, and the kind that it is here; None: there is none.
fn kind(dataset: &str) -> Option<&'static str> {
    Some(match dataset {
        "openqa" => "openqa",
        "longalpaca" => "longalpaca",
        "line_by_line" => "line_by_line",
        "random" => "random",
        "random_vl" => "images",
        "share_gpt_zh" | "share_gpt_en" | "share_gpt_zh_multi_turn" | "share_gpt_en_multi_turn" => "sharegpt",
        "custom" | "custom_multi_turn" => "messages",
        "speed_benchmark" => "speed_benchmark",
        "speed_benchmark_long" => "speed_benchmark_long",
        "embedding" | "random_embedding" | "batch_embedding" | "random_batch_embedding" => "embeddings",
        "rerank" | "random_rerank" => "rerank",
        "workload_trace" => "trace",
        _ => return None,
    })
}

fn dataset(draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(prompt) = draft.text("--prompt") {
        draft.put("dataset", json!({ "kind": "prompt" }));
        draft.put("dataset/text", prompt);
        draft.account("--prompt", &["dataset/text"]);
        draft.note("--dataset", "`--prompt` takes its place");
        return Ok(());
    }
    let wanted = draft.text("--dataset").unwrap_or_else(|| "openqa".into());
    let Some(kind) = kind(&wanted) else {
        return Err(draft.wrong("--dataset", &wanted, "a dataset that exists here: openqa, longalpaca, line_by_line, random, random_vl, share_gpt_*, custom, speed_benchmark, speed_benchmark_long, embedding, rerank or workload_trace"));
    };
    draft.put("dataset/kind", kind);
    draft.account("--dataset", &["dataset/kind"]);
    draft.carry("--dataset-path", "dataset/path");
    if matches!(kind, "messages" | "sharegpt" | "embeddings" | "rerank") && !draft.has("--dataset-path") {
        draft.put("dataset/path", "builtin");
        draft.note("--dataset", "a small set that ships with the tool; give `dataset.path` for your own");
    }
    draft.carry("--tokenizer-path", "dataset/tokenizer");
    lengths(draft, kind)?;
    if draft.truth("--multi-turn") || wanted.ends_with("_multi_turn") {
        draft.put("dataset/turns", json!({}));
        draft.carry_number("--max-turns", "dataset/turns/max")?;
        draft.account("--multi-turn", &["dataset/turns"]);
    }
    if kind == "images" {
        let [width, height] = [draft.number("--image-width")?, draft.number("--image-height")?].map(|side| side.unwrap_or(224.0));
        draft.put("dataset/sizes", json!([format!("{width}x{height}")]));
        draft.account("--image-width", &["dataset/sizes"]);
        draft.account("--image-height", &["dataset/sizes"]);
        draft.carry_number("--image-num", "dataset/count")?;
    }
    Ok(())
}

fn lengths(draft: &mut Draft, kind: &str) -> Result<(), ImportError> {
    let (least, most) = (draft.number("--min-prompt-length")?, draft.number("--max-prompt-length")?);
    if kind != "random" {
        draft.carry_number("--min-prompt-length", "dataset/prompt_tokens/min")?;
        draft.carry_number("--max-prompt-length", "dataset/prompt_tokens/max")?;
        for flag in ["--prefix-length", "--prefix-count"] {
            draft.note(flag, "it is about `--dataset random` alone");
        }
        return Ok(());
    }
    let tokens = between(least.unwrap_or(0.0).max(1.0), most.unwrap_or(131_072.0));
    let shared = draft.number("--prefix-length")?.unwrap_or(0.0);
    let prefixes = draft.number("--prefix-count")?.unwrap_or(1.0);
    draft.put("dataset/tokens", tokens);
    draft.account("--min-prompt-length", &["dataset/tokens"]);
    draft.account("--max-prompt-length", &["dataset/tokens"]);
    if prefixes > 1.0 && shared > 0.0 {
        draft.put("dataset/kind", "prefix");
        draft.put("dataset/groups", number(prefixes));
        draft.put("dataset/prefix_tokens", number(shared));
        draft.account("--prefix-count", &["dataset/groups"]);
        draft.account("--prefix-length", &["dataset/prefix_tokens"]);
    } else if shared > 0.0 {
        draft.put("dataset/shared_prefix", number(shared));
        draft.account("--prefix-length", &["dataset/shared_prefix"]);
    }
    Ok(())
}
