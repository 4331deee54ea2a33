//! The server of `evalscope perf`, or the model that it runs itself.

use super::dataset;
use crate::import::draft::Draft;
use crate::import::text::{api_of, endpoint, seconds};
use crate::import::{ImportError, number};
use serde_json::json;

/// Paths that evalscope takes as they are; others get the one of `--api`.
const ENDS: [&str; 6] = ["/chat/completions", "/completions", "/responses", "/embeddings", "/reranks", "/rerank"];

const NO_SERVER: &str = "the model runs inside llmscen: no server is asked";

/// The target.
pub(super) fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let api = draft.text("--api").unwrap_or_else(|| "openai".into());
    match api.as_str() {
        "local" => in_process(draft)?,
        "local_vllm" => managed(draft)?,
        _ => remote(draft, &api)?,
    }
    draft.account("--api", &["target/api"]);
    draft.fill("--total-timeout", "target/timeouts/total", seconds(21_600.0));
    draft.carry_seconds("--total-timeout", "target/timeouts/total")?;
    if api == "local" {
        return Ok(());
    }
    draft.api_key("--api-key");
    draft.headers("--headers")?;
    draft.carry_seconds("--connect-timeout", "target/timeouts/connect")?;
    draft.fill("--read-timeout", "target/timeouts/read", seconds(21_600.0));
    draft.carry_seconds("--read-timeout", "target/timeouts/read")
}

/// `--api local`: evalscope serves the model by transformers, one request at a time.
fn in_process(draft: &mut Draft) -> Result<(), ImportError> {
    if !draft.has("--model") {
        return Err(ImportError::Missing("--model: the folder of a model"));
    }
    draft.put("target/api", "local");
    draft.carry("--model", "target/model");
    draft.note("--api", "llmscen's own implementation of the model, not transformers");
    draft.note("--model", "a folder, a .gguf file, or the name of a model on the hub (`org/name`)");
    for flag in ["--url", "--port", "--api-key", "--headers", "--connect-timeout", "--read-timeout"] {
        draft.note(flag, NO_SERVER);
    }
    Ok(())
}

/// `--api local_vllm`: evalscope starts vLLM.
fn managed(draft: &mut Draft) -> Result<(), ImportError> {
    if !draft.has("--model") {
        return Err(ImportError::Missing("--model: the model that vLLM shall serve"));
    }
    let path = if raw(draft) { "completions" } else { "chat/completions" };
    let port = draft.number("--port")?.unwrap_or(8877.0);
    draft.put("target/api", if raw(draft) { "openai-completions" } else { "openai-chat" });
    draft.put("target/url", format!("http://127.0.0.1:{port}/v1/{path}"));
    draft.account("--port", &["target/url"]);
    draft.carry("--model", "target/model");
    draft.note("--url", "the run starts its own server, at --port");
    draft.put(
        "target/server",
        json!({ "preset": "vllm", "args": { "max_model_len": 32768, "gpu_memory_utilization": 0.9, "trust_remote_code": true } }),
    );
    draft.put("target/server/env", json!({ "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn" }));
    let gpus = draft.variable("CUDA_VISIBLE_DEVICES").map(|list| list.split(',').filter(|id| !id.trim().is_empty()).count());
    match gpus {
        Some(gpus) if gpus > 0 => draft.put("target/server/args/tensor_parallel_size", number(gpus as f64)),
        _ => draft.note("--api", "evalscope uses every GPU: set `target.server.args.tensor_parallel_size` to their number"),
    }
    draft.account("--api", &["target/server"]);
    Ok(())
}

fn remote(draft: &mut Draft, api: &str) -> Result<(), ImportError> {
    let url = draft.text("--url").unwrap_or_else(|| "http://127.0.0.1:8877/v1/chat/completions".into());
    let (spoken, url) = match api {
        "openai" => {
            let mut url = endpoint(&url, "chat/completions", &ENDS);
            if draft.has("--tokenize-prompt") || raw(draft) {
                url = url.replace("/chat/completions", "/completions");
            }
            (api_of(&url), url)
        }
        "openai_responses" | "openai_response" | "responses" => {
            ("openai-responses", endpoint(&url.replace("/chat/completions", "/responses"), "responses", &ENDS))
        }
        "openai_embedding" | "embedding" => ("openai-embeddings", endpoint(&url, "embeddings", &ENDS)),
        "openai_rerank" | "rerank" => ("rerank", endpoint(&url, "reranks", &ENDS)),
        "dashscope" => ("dashscope", url),
        "custom" => ("custom", url),
        other => {
            return Err(draft.wrong(
                "--api",
                other,
                "openai, openai_responses, embedding, rerank, dashscope, custom, local or local_vllm",
            ));
        }
    };
    draft.put("target/api", spoken);
    draft.put("target/url", url);
    draft.carry("--model", "target/model");
    draft.account("--url", &["target/url"]);
    draft.note("--port", "it is the port of `--api local_vllm`");
    draft.account("--tokenize-prompt", &["target/url"]);
    draft
        .note("--tokenize-prompt", "prompts go to /v1/completions as text; those of `random` survive the way to tokens and back");
    if spoken == "custom" {
        draft.note("--api", "say in `request.template` and `request.extract` how it speaks");
    }
    Ok(())
}

/// Whether the prompts go to the model without a chat template, whatever the URL is.
fn raw(draft: &Draft) -> bool {
    dataset::wanted(draft).starts_with("speed_benchmark")
}
