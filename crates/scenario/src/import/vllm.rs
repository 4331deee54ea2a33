//! `vllm bench serve`, after its arguments of late 2026.

mod dataset;
mod flags;

pub(super) use flags::FLAGS;

use super::draft::Draft;
use super::text::{api_of, join, name};
use super::{ImportError, number, serving};
use serde_json::{Map, json};

/// Puts the scenario together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let label = draft.text("--label").unwrap_or_default();
    draft.put("name", name(&label, "vllm-bench"));
    draft.account("--label", &["name"]);
    draft.put("seed", number(draft.number("--seed")?.unwrap_or(0.0).max(0.0)));
    draft.account("--seed", &["seed"]);
    target(draft)?;
    request(draft)?;
    dataset::translate(draft)?;
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
