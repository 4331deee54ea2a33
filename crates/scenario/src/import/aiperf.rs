//! `aiperf profile`, after the options of AIPerf 0.13.

mod dataset;
mod flags;
mod load;

pub(super) use flags::FLAGS;

use super::ImportError;
use super::draft::Draft;
use super::text::{endpoint, name};
use serde_json::{Map, Value};

/// Puts the scenario together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let title = draft.texts("--model").first().cloned().unwrap_or_default();
    draft.put("name", name(&format!("aiperf {}", title.rsplit('/').next().unwrap_or_default()), "aiperf"));
    draft.carry_number("--random-seed", "seed")?;
    target(draft)?;
    dataset::dataset(draft)?;
    load::load(draft)?;
    load::limits(draft)?;
    draft.carry("--artifact-dir", "report/dir");
    Ok(())
}

fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let kind = draft.text("--endpoint-type").unwrap_or_else(|| "chat".into());
    let (api, route) = match kind.as_str() {
        "chat" => ("openai-chat", "v1/chat/completions"),
        "completions" => ("openai-completions", "v1/completions"),
        "responses" => ("openai-responses", "v1/responses"),
        "embeddings" | "nim_embeddings" => ("openai-embeddings", "v1/embeddings"),
        "nim_rankings" | "hf_tei_rankings" | "cohere_rankings" | "rankings" => ("rerank", "v1/rerank"),
        "huggingface_generate" => ("tgi", "generate_stream"),
        other => {
            return Err(draft.wrong(
                "--endpoint-type",
                other,
                "chat, completions, responses, embeddings, rankings or huggingface_generate; others are `api: custom`",
            ));
        }
    };
    let urls = draft.texts("--url");
    let base = urls.first().cloned().unwrap_or_else(|| "localhost:8000".into());
    let custom = draft.text("--endpoint");
    let known: &[&str] = &["/completions", "/responses", "/embeddings", "/rerank", "/generate_stream"];
    let base = base.trim_end_matches('/').trim_end_matches("/v1").to_owned();
    draft.put("target/api", api);
    draft.put("target/url", endpoint(&base, custom.as_deref().unwrap_or(route), known));
    draft.account("--endpoint-type", &["target/api"]);
    draft.account("--url", &["target/url"]);
    draft.account("--endpoint", &["target/url"]);
    if urls.len() > 1 {
        draft.note("--url", "the first alone: a scenario has one target");
    }
    let models: Vec<String> =
        draft.texts("--model").iter().flat_map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    match models.as_slice() {
        [] => {}
        [one] => draft.put("target/model", one.as_str()),
        several => draft.put("target/model", several.to_vec()),
    }
    draft.account("--model", &["target/model"]);
    draft.note("--model-selection-strategy", "each request draws one of the models on the seed");
    draft.api_key("--api-key");
    draft.headers("--header")?;
    draft.carry_seconds("--request-timeout-seconds", "target/timeouts/total")?;
    if let Some(strategy) = draft.text("--connection-reuse-strategy") {
        draft.put("target/http/pool", if strategy == "never" { "per-request" } else { "keep-alive" });
        draft.account("--connection-reuse-strategy", &["target/http/pool"]);
    }
    if !matches!(api, "openai-embeddings" | "rerank") {
        draft.put("request/stream", draft.truth("--streaming"));
    }
    draft.account("--streaming", &["request/stream"]);
    extra(draft)
}

/// `--extra-inputs temperature:0.7 ignore_eos:true`, or a JSON object.
fn extra(draft: &mut Draft) -> Result<(), ImportError> {
    for text in draft.texts("--extra-inputs") {
        let fields = match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(fields)) => fields,
            _ => {
                let pair = text.split_once(':').or_else(|| text.split_once('='));
                let (key, value) = pair.ok_or_else(|| draft.wrong("--extra-inputs", &text, "NAME:VALUE or a JSON object"))?;
                let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
                Map::from_iter([(key.to_owned(), value)])
            }
        };
        draft.merge_extra(fields);
        draft.account("--extra-inputs", &["request/extra"]);
    }
    Ok(())
}
