//! `evalscope perf`, after the arguments of evalscope 1.14.

mod load;

use crate::import::draft::{Draft, api_from_path, between, endpoint, name, number, seconds};
use crate::import::flags::ImportError;
use serde_json::{Value, json};

pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let title = draft.text("--name").or_else(|| draft.text("--alias"));
    draft.carry_value(
        "--name",
        "name",
        name(title.as_deref().unwrap_or_default(), "evalscope-perf"),
    );
    draft.account("--alias", &["name"]);
    target(draft)?;
    request(draft)?;
    load::dataset(draft)?;
    match draft.is_on("--sla-auto-tune") {
        true => load::search(draft)?,
        false => load::load(draft)?,
    }
    track(draft);
    Ok(())
}

fn request(draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(template) = draft.text("--query-template") {
        match template.strip_prefix('@') {
            Some(file) => draft.set("request/template", file),
            None => match serde_json::from_str::<Value>(&template) {
                Ok(body @ Value::Object(_)) => draft.set_unescaped("request/template", body),
                _ => {
                    return Err(draft.invalid(
                        "--query-template",
                        &template,
                        "a JSON object or @FILE",
                    ));
                }
            },
        }
        draft.account("--query-template", &["request/template"]);
    }
    let api = draft
        .get("target/api")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if matches!(api.as_str(), "openai-embeddings" | "rerank") {
        return ranked(draft, &api);
    }
    draft.set_default("--max-tokens", "request/max_tokens", 2048);
    draft.set_default("--temperature", "request/temperature", 0);
    match draft.numbers("--max-tokens")?.as_slice() {
        [] => {}
        [one] => draft.set("request/max_tokens", number(*one)),
        [least, most, ..] => draft.set("request/max_tokens", between(*least, *most)),
    }
    draft.account("--max-tokens", &["request/max_tokens"]);
    draft.carry_numbers(&[
        ("--temperature", "request/temperature"),
        ("--top-p", "request/top_p"),
        ("--top-k", "request/top_k"),
        ("--repetition-penalty", "request/repetition_penalty"),
    ])?;
    if let Some(seed) = draft.number("--seed")? {
        draft.set("seed", number(seed.max(0.0)));
        draft.set("request/seed", number(seed));
        draft.account("--seed", &["seed", "request/seed"]);
    }
    let stops = draft.texts("--stop");
    if !stops.is_empty() {
        draft.carry_value("--stop", "request/stop", stops);
    }
    if api == "local" {
        in_process(draft)?;
    } else {
        served(draft)?;
    }
    draft.extra("--extra-args")
}

/// Parameters that only servers support.
fn served(draft: &mut Draft) -> Result<(), ImportError> {
    draft.carry_numbers(&[
        ("--min-tokens", "request/min_tokens"),
        ("--frequency-penalty", "request/frequency_penalty"),
        ("--n-choices", "request/n"),
    ])?;
    draft.carry_switch("--logprobs", "request/logprobs", true);
    let ids = draft.numbers("--stop-token-ids")?;
    if !ids.is_empty() {
        draft.carry_value(
            "--stop-token-ids",
            "request/stop_token_ids",
            ids.into_iter().map(number).collect::<Vec<_>>(),
        );
    }
    if draft.has("--stream") || draft.has("--no-stream") {
        draft.carry_value("--stream", "request/stream", !draft.has("--no-stream"));
        draft.account("--no-stream", &["request/stream"]);
    }
    Ok(())
}

/// Parameters that a local model supports: `--min-tokens` only where it equals the maximum.
fn in_process(draft: &mut Draft) -> Result<(), ImportError> {
    let most = draft
        .numbers("--max-tokens")?
        .last()
        .copied()
        .unwrap_or(2048.0);
    if draft
        .number("--min-tokens")?
        .is_some_and(|least| least >= most)
    {
        draft.carry_value("--min-tokens", "request/ignore_eos", true);
    } else {
        draft.note("--min-tokens", "not supported for a local model");
    }
    draft.note(
        "--frequency-penalty --n-choices --logprobs --stop-token-ids",
        "not supported for a local model",
    );
    draft.note("--stream", "every token is reported when it is generated");
    draft.note(
        "--no-stream",
        "every token is reported when it is generated",
    );
    Ok(())
}

/// Embeddings and rerank requests.
fn ranked(draft: &mut Draft, api: &str) -> Result<(), ImportError> {
    draft.note(
        "--max-tokens --min-tokens --temperature --top-p --top-k --stream --no-stream --seed",
        "nothing is generated",
    );
    let Some(value) = draft.json("--extra-args")? else {
        return Ok(());
    };
    let Value::Object(mut fields) = value else {
        return Err(draft.invalid("--extra-args", "", "a JSON object"));
    };
    if api == "rerank" {
        if let Some(count) = fields.shift_remove("num_documents") {
            draft.carry_value("--extra-args", "dataset/documents", count);
        }
        if fields.shift_remove("document_length_ratio").is_some() {
            draft.note(
                "--extra-args",
                "`document_length_ratio`: the dataset determines the lengths",
            );
        }
    }
    if !fields.is_empty() {
        draft.merge_extra(fields);
        draft.account("--extra-args", &["request/extra"]);
    }
    Ok(())
}

/// URLs with these paths are used unchanged; others get the path of `--api`.
const ENDS: [&str; 6] = [
    "/chat/completions",
    "/completions",
    "/responses",
    "/embeddings",
    "/reranks",
    "/rerank",
];

const NO_SERVER: &str = "the model runs inside llmscen, without a server";

fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let api = draft.text("--api").unwrap_or_else(|| "openai".into());
    match api.as_str() {
        "local" => in_process_target(draft)?,
        "local_vllm" => managed(draft)?,
        _ => remote(draft, &api)?,
    }
    draft.account("--api", &["target/api"]);
    draft.set_default(
        "--total-timeout",
        "target/timeouts/total",
        seconds(21_600.0),
    );
    if api == "local" {
        return Ok(());
    }
    draft.api_key("--api-key");
    draft.headers("--headers")?;
    draft.carry_seconds("--connect-timeout", "target/timeouts/connect")?;
    draft.set_default("--read-timeout", "target/timeouts/read", seconds(21_600.0));
    draft.carry_seconds("--read-timeout", "target/timeouts/read")
}

/// `--api local`: evalscope serves the model with transformers, one request at a time.
fn in_process_target(draft: &mut Draft) -> Result<(), ImportError> {
    if !draft.has("--model") {
        return Err(ImportError::Missing("--model: the folder of a model"));
    }
    draft.set("target/api", "local");
    draft.carry("--model", "target/model");
    draft.note(
        "--api",
        "llmscen's own implementation of the model, not transformers",
    );
    draft.note(
        "--model",
        "a folder, a .gguf file, or the name of a model on the hub (`org/name`)",
    );
    draft.note(
        "--url --port --api-key --headers --connect-timeout --read-timeout",
        NO_SERVER,
    );
    Ok(())
}

/// `--api local_vllm`: evalscope starts vLLM.
fn managed(draft: &mut Draft) -> Result<(), ImportError> {
    if !draft.has("--model") {
        return Err(ImportError::Missing(
            "--model: the model that vLLM shall serve",
        ));
    }
    let path = if raw(draft) {
        "completions"
    } else {
        "chat/completions"
    };
    let port = draft.number("--port")?.unwrap_or(8877.0);
    draft.set(
        "target/api",
        if raw(draft) {
            "openai-completions"
        } else {
            "openai-chat"
        },
    );
    draft.carry_value(
        "--port",
        "target/url",
        format!("http://127.0.0.1:{port}/v1/{path}"),
    );
    draft.carry("--model", "target/model");
    draft.note("--url", "the run starts a server, at --port");
    draft.set(
        "target/server",
        json!({ "preset": "vllm", "args": { "max_model_len": 32768, "gpu_memory_utilization": 0.9,
            "trust_remote_code": true } }),
    );
    draft.set(
        "target/server/env",
        json!({ "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn" }),
    );
    let gpus = draft
        .variable("CUDA_VISIBLE_DEVICES")
        .map(|list| list.split(',').filter(|id| !id.trim().is_empty()).count());
    match gpus {
        Some(gpus) if gpus > 0 => draft.set(
            "target/server/args/tensor_parallel_size",
            number(gpus as f64),
        ),
        _ => draft.note(
            "--api",
            "evalscope uses every GPU: set \
        `target.server.args.tensor_parallel_size` to their number",
        ),
    }
    draft.account("--api", &["target/server"]);
    Ok(())
}

fn remote(draft: &mut Draft, api: &str) -> Result<(), ImportError> {
    let url = draft
        .text("--url")
        .unwrap_or_else(|| "http://127.0.0.1:8877/v1/chat/completions".into());
    let (spoken, url) = match api {
        "openai" => {
            let mut url = endpoint(&url, "chat/completions", &ENDS);
            if draft.has("--tokenize-prompt") || raw(draft) {
                url = url.replace("/chat/completions", "/completions");
            }
            (api_from_path(&url), url)
        }
        "openai_responses" | "openai_response" | "responses" => (
            "openai-responses",
            endpoint(
                &url.replace("/chat/completions", "/responses"),
                "responses",
                &ENDS,
            ),
        ),
        "openai_embedding" | "embedding" => {
            ("openai-embeddings", endpoint(&url, "embeddings", &ENDS))
        }
        "openai_rerank" | "rerank" => ("rerank", endpoint(&url, "reranks", &ENDS)),
        "dashscope" => ("dashscope", url),
        "custom" => ("custom", url),
        other => {
            return Err(draft.invalid(
                "--api",
                other,
                "openai, openai_responses, embedding, rerank, dashscope, custom, local or local_vllm",
            ));
        }
    };
    draft.set("target/api", spoken);
    draft.set("target/url", url);
    draft.carry("--model", "target/model");
    draft.account("--url", &["target/url"]);
    draft.note("--port", "it is the port of `--api local_vllm`");
    draft.account("--tokenize-prompt", &["target/url"]);
    draft.note(
        "--tokenize-prompt",
        "prompts are sent to /v1/completions as text; those of `random` keep their tokens when \
        they are tokenized again",
    );
    if spoken == "custom" {
        draft.note(
            "--api",
            "define requests and responses in `request.template` and `request.extract`",
        );
    }
    Ok(())
}

/// Whether prompts are sent without a chat template.
fn raw(draft: &Draft) -> bool {
    load::dataset_name(draft).starts_with("speed_benchmark")
}

/// The project name that evalscope uses for every tracker.
const PROJECT: &str = "perf_benchmark";

/// `--visualizer`; in older releases an API key alone selects the tracker.
fn track(draft: &mut Draft) {
    let alone = if draft.has("--wandb-api-key") {
        Some("wandb".to_owned())
    } else {
        None
    };
    match draft.text("--visualizer").or(alone).as_deref() {
        Some("wandb") => {
            draft.set("report/track/wandb/project", PROJECT);
            draft.account("--visualizer", &["report/track/wandb"]);
            if draft.has("--wandb-api-key") {
                draft.set_variable("report/track/wandb/api_key", "${WANDB_API_KEY}");
                draft.account("--wandb-api-key", &["report/track/wandb/api_key"]);
                draft.note(
                    "--wandb-api-key",
                    "the value is not stored: set WANDB_API_KEY",
                );
            }
        }
        Some(other) => {
            let why = format!(
                "llmscen does not support the tracker {other}; `report.track` supports MLflow and Weights & Biases"
            );
            draft.note("--visualizer", why);
            draft.note("--wandb-api-key", "--visualizer names another tracker");
        }
        None => {}
    }
}
