//! `evalscope perf`, after the arguments of evalscope 1.14.

mod dataset;
mod flags;
mod load;
mod target;
mod track;

pub(super) use flags::FLAGS;

use super::draft::Draft;
use super::text::{between, name};
use super::{ImportError, number};
use serde_json::Value;

/// Puts the scenario together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let title = draft.text("--name").or_else(|| draft.text("--alias"));
    draft.put("name", name(title.as_deref().unwrap_or_default(), "evalscope-perf"));
    draft.account("--name", &["name"]);
    draft.account("--alias", &["name"]);
    target::target(draft)?;
    request(draft)?;
    dataset::dataset(draft)?;
    match draft.truth("--sla-auto-tune") {
        true => load::search(draft)?,
        false => load::load(draft)?,
    }
    draft.carry("--outputs-dir", "report/dir");
    track::track(draft);
    Ok(())
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
    let api = draft.get("target/api").and_then(Value::as_str).unwrap_or_default().to_owned();
    if matches!(api.as_str(), "openai-embeddings" | "rerank") {
        return ranked(draft, &api);
    }
    draft.fill("--max-tokens", "request/max_tokens", 2048);
    draft.fill("--temperature", "request/temperature", 0);
    match draft.numbers("--max-tokens")?.as_slice() {
        [] => {}
        [one] => draft.put("request/max_tokens", number(*one)),
        [least, most, ..] => draft.put("request/max_tokens", between(*least, *most)),
    }
    draft.account("--max-tokens", &["request/max_tokens"]);
    for (flag, path) in [
        ("--temperature", "request/temperature"),
        ("--top-p", "request/top_p"),
        ("--top-k", "request/top_k"),
        ("--repetition-penalty", "request/repetition_penalty"),
    ] {
        draft.carry_number(flag, path)?;
    }
    if let Some(seed) = draft.number("--seed")? {
        draft.put("seed", number(seed.max(0.0)));
        draft.put("request/seed", number(seed));
        draft.account("--seed", &["seed", "request/seed"]);
    }
    let stops = draft.texts("--stop");
    if !stops.is_empty() {
        draft.put("request/stop", stops);
        draft.account("--stop", &["request/stop"]);
    }
    if api == "local" {
        in_process(draft)?;
    } else {
        served(draft)?;
    }
    draft.extra("--extra-args")
}

/// What only servers take.
fn served(draft: &mut Draft) -> Result<(), ImportError> {
    for (flag, path) in [
        ("--min-tokens", "request/min_tokens"),
        ("--frequency-penalty", "request/frequency_penalty"),
        ("--n-choices", "request/n"),
    ] {
        draft.carry_number(flag, path)?;
    }
    if draft.truth("--logprobs") {
        draft.put("request/logprobs", true);
        draft.account("--logprobs", &["request/logprobs"]);
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
    Ok(())
}

/// What a model inside llmscen takes of it: `--min-tokens` only where it is the maximum.
fn in_process(draft: &mut Draft) -> Result<(), ImportError> {
    let most = draft.numbers("--max-tokens")?.last().copied().unwrap_or(2048.0);
    if draft.number("--min-tokens")?.is_some_and(|least| least >= most) {
        draft.put("request/ignore_eos", true);
        draft.account("--min-tokens", &["request/ignore_eos"]);
    } else {
        draft.note("--min-tokens", "a model inside llmscen does not take it");
    }
    for flag in ["--frequency-penalty", "--n-choices", "--logprobs", "--stop-token-ids"] {
        draft.note(flag, "a model inside llmscen does not take it");
    }
    draft.note("--stream", "every token is reported as it is made");
    draft.note("--no-stream", "every token is reported as it is made");
    Ok(())
}

/// Embeddings and rankings: nothing is generated.
fn ranked(draft: &mut Draft, api: &str) -> Result<(), ImportError> {
    for flag in ["--max-tokens", "--min-tokens", "--temperature", "--top-p", "--top-k", "--stream", "--no-stream", "--seed"] {
        draft.note(flag, "nothing is generated");
    }
    let Some(value) = draft.json("--extra-args")? else { return Ok(()) };
    let Value::Object(mut fields) = value else { return Err(draft.wrong("--extra-args", "", "a JSON object")) };
    if api == "rerank" {
        if let Some(count) = fields.shift_remove("num_documents") {
            draft.put("dataset/documents", count);
            draft.account("--extra-args", &["dataset/documents"]);
        }
        if fields.shift_remove("document_length_ratio").is_some() {
            draft.note("--extra-args", "`document_length_ratio`: the data have lengths of their own");
        }
    }
    if !fields.is_empty() {
        draft.merge_extra(fields);
        draft.account("--extra-args", &["request/extra"]);
    }
    Ok(())
}
