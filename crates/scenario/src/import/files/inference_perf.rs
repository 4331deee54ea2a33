//! Config files of inference-perf (kubernetes-sigs), after its configuration reference of 2026.

use crate::fault::Mistake;
use crate::import::command::Command;
use crate::import::draft::{
    Draft, about, api_from_path, between, endpoint, number, per_second, seconds,
};
use crate::import::files::{Fields, Files, Test, Tests};
use crate::import::flags::{FlagGroup, ImportError, Takes, dropped, translated};
use crate::tree::Node;
use Takes::{Many, One, Secret};
use serde_json::{Value, json};

pub(super) fn recognizes(root: &Node) -> bool {
    let has = |key: &str| root.get(key).is_some();
    let load = has("load.stages") || has("load.sweep") || has("load.trace");
    load && (has("server") || has("data.type") || has("api"))
}

pub(super) fn tests(_: &mut Files<'_>, root: &Node) -> Tests {
    Ok(vec![Test::new(String::new(), test(root)?)])
}

pub(super) fn test(root: &Node) -> Result<Draft, Box<Mistake>> {
    let mut fields = Fields::new(root.at);
    collect(&mut fields, "", root);
    fields.translate(translate)
}

/// Adds the fields that are known, and blocks field by field.
fn collect(fields: &mut Fields, prefix: &str, node: &Node) {
    for entry in node.entries() {
        let path = format!("{prefix}{}", entry.key);
        let known = COMMAND
            .flags()
            .any(|flag| flag.names().any(|name| name == path));
        if !known && !entry.value.entries().is_empty() {
            collect(fields, &format!("{path}."), &entry.value);
        } else {
            fields.own(&COMMAND, &path, &entry.value);
        }
    }
}

fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    target(draft)?;
    dataset(draft)?;
    load(draft)?;
    goodput(draft)
}

fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let route = match draft.text("api.type").as_deref() {
        None | Some("completion") => "v1/completions",
        Some("chat") => "v1/chat/completions",
        Some("anthropic_messages") => "v1/messages",
        Some(other) => {
            return Err(draft.invalid("api.type", other, "completion, chat or anthropic_messages"));
        }
    };
    let base = draft
        .text("server.base_url")
        .unwrap_or_else(|| "http://127.0.0.1:8000".into());
    let url = endpoint(
        base.trim_end_matches('/').trim_end_matches("/v1"),
        route,
        &[],
    );
    draft.set("target/api", api_from_path(&url));
    draft.carry_value("server.base_url", "target/url", url);
    draft.account("api.type", &["target/api"]);
    draft.carry("server.model_name", "target/model");
    draft.api_key("server.api_key");
    draft.carry("server.cert_path", "target/tls/cert");
    draft.carry("server.key_path", "target/tls/key");
    draft.set("request/stream", draft.is_on("api.streaming"));
    draft.account("api.streaming", &["request/stream"]);
    // It asks servers to ignore the end of a text unless told otherwise.
    let ignores = !draft.has("server.ignore_eos") || draft.is_on("server.ignore_eos");
    draft.carry_or_default("server.ignore_eos", "request/ignore_eos", ignores);
    for (name, value) in draft
        .json("api.headers")?
        .iter()
        .filter_map(Value::as_object)
        .flatten()
    {
        let path = format!("target/headers/{name}");
        match value.as_str() {
            Some(_) if crate::import::flags::is_secret(name) => {
                let variable = crate::import::flags::variable(name);
                draft.set_variable(&path, &format!("${{{variable}}}"));
                draft.note(
                    "api.headers",
                    format!("the value is not stored: set {variable}"),
                );
            }
            Some(text) => draft.set(&path, text),
            None => draft.set(&path, value.to_string()),
        }
        draft.account("api.headers", &[&path]);
    }
    draft.carry_seconds("load.request_timeout", "target/timeouts/total")?;
    if let Some(split) = draft
        .json("load.lora_traffic_split")?
        .filter(|split| split.is_array())
        .or_else(|| adapters(draft))
    {
        draft.carry_value("load.lora_traffic_split", "target/model", split);
    }
    Ok(())
}

/// The adapters with their weights.
fn adapters(draft: &Draft) -> Option<Value> {
    let items = draft.texts("load.lora_traffic_split");
    let item = |text: &String| {
        let item: Value = serde_json::from_str(text).ok()?;
        Some(json!({ "name": item.get("name")?, "weight": item.get("split")? }))
    };
    (!items.is_empty()).then(|| items.iter().filter_map(item).collect())
}

fn dataset(draft: &mut Draft) -> Result<(), ImportError> {
    draft.carry(
        "tokenizer.pretrained_model_name_or_path",
        "dataset/tokenizer",
    );
    let kind = draft.text("data.type").unwrap_or_else(|| "mock".into());
    match kind.as_str() {
        "random" | "synthetic" => {
            draft.carry_value("data.type", "dataset/kind", "random");
            length(draft, "data.input_distribution", "dataset/tokens")?;
            length(draft, "data.output_distribution", "request/max_tokens")?;
            if draft.get("dataset/tokens").is_none() {
                return Err(ImportError::Missing("data.input_distribution"));
            }
        }
        "shared_prefix" => {
            draft.carry_value("data.type", "dataset/kind", "prefix");
            for (field, path, default) in [
                ("num_groups", "dataset/groups", 10.0),
                ("num_prompts_per_group", "dataset/per_group", 10.0),
            ] {
                let field = format!("data.shared_prefix.{field}");
                let count = draft.number(&field)?.unwrap_or(default);
                draft.carry_value(&field, path, number(count));
            }
            for (fields, path, default) in [
                (["system_prompt_len", ""], "dataset/prefix_tokens", 100.0),
                (
                    ["question_len", "question_distribution"],
                    "dataset/tokens",
                    50.0,
                ),
                (
                    ["output_len", "output_distribution"],
                    "request/max_tokens",
                    50.0,
                ),
            ] {
                draft.set(path, number(default));
                for field in fields.iter().filter(|field| !field.is_empty()) {
                    length(draft, &format!("data.shared_prefix.{field}"), path)?;
                }
            }
            draft.carry_number("data.shared_prefix.seed", "seed")?;
        }
        "shareGPT" => {
            draft.carry_value("data.type", "dataset/kind", "sharegpt");
            match draft.text("data.path") {
                Some(_) => draft.carry("data.path", "dataset/path"),
                None => {
                    draft.set("dataset/path", "builtin");
                    draft.note(
                        "data.type",
                        "a small sample that ships with llmscen; set `dataset.path`",
                    );
                }
            }
        }
        "mock" => {
            draft.carry_value("data.type", "dataset/kind", "prompt");
            draft.set("dataset/text", "Mock text");
        }
        other => {
            return Err(draft.invalid(
                "data.type",
                other,
                "random, synthetic, shared_prefix, shareGPT or mock; use other datasets as a file with `kind: rows`",
            ));
        }
    }
    draft.carry_number("load.base_seed", "seed")
}

/// A length: a number, or a distribution with `mean`, `std_dev`, `min` and `max`.
fn length(draft: &mut Draft, field: &str, path: &str) -> Result<(), ImportError> {
    let Some(text) = draft.text(field) else {
        return Ok(());
    };
    let expected =
        "a number of tokens, or a distribution of type normal, lognormal, uniform or fixed";
    let given: Value =
        serde_json::from_str(&text).map_err(|_| draft.invalid(field, &text, expected))?;
    if let Some(tokens) = given.as_f64() {
        draft.carry_value(field, path, number(tokens));
        return Ok(());
    }
    let get = |key: &str| given.get(key).and_then(Value::as_f64);
    let mean = get("mean").unwrap_or(512.0);
    let sd = get("std_dev")
        .or(get("std"))
        .or(get("variance").map(f64::sqrt))
        .unwrap_or(200.0);
    let value = match given
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("normal")
    {
        "fixed" => number(mean),
        "normal" => about(mean, sd),
        "lognormal" => json!({ "lognormal": { "mean": number(mean), "sd": number(sd) } }),
        "uniform" => between(get("min").unwrap_or(10.0), get("max").unwrap_or(1024.0)),
        _ => return Err(draft.invalid(field, &text, expected)),
    };
    let drawn = value.get("normal").or(value.get("lognormal")).is_some();
    draft.carry_value(field, path, value);
    if drawn && (get("min").is_some() || get("max").is_some()) {
        draft.note(field, "the distribution is not cut at `min` and `max`");
    }
    Ok(())
}

fn load(draft: &mut Draft) -> Result<(), ImportError> {
    let kind = draft.text("load.type").unwrap_or_else(|| "constant".into());
    let parse = |text: &String| serde_json::from_str::<Value>(text).ok();
    let stages: Vec<Value> = draft
        .texts("load.stages")
        .iter()
        .filter_map(parse)
        .collect();
    let column = |key: &str| -> Option<Vec<f64>> {
        stages
            .iter()
            .map(|stage| stage.get(key)?.as_f64())
            .collect()
    };
    match kind.as_str() {
        "constant" | "poisson" => {
            draft.carry_value("load.type", "load/arrivals", kind.as_str());
            let (Some(rates), Some(spans)) = (column("rate"), column("duration")) else {
                return Err(draft.invalid(
                    "load.stages",
                    "",
                    "a `rate` and a `duration` in every stage",
                ));
            };
            match (rates.as_slice(), spans.as_slice()) {
                ([], _) => sweep(draft)?,
                ([rate], [span]) => {
                    draft.set("load/rate", per_second(*rate));
                    draft.set("load/duration", seconds(*span));
                    draft.account("load.stages", &["load/rate", "load/duration"]);
                }
                _ => {
                    let stage = |(rate, span): (&f64, &f64)| json!({ "rate": per_second(*rate), "for": seconds(*span) });
                    let list: Vec<Value> = rates.iter().zip(&spans).map(stage).collect();
                    draft.carry_value("load.stages", "load/stages", list);
                }
            }
        }
        "concurrent" => {
            let (Some(users), Some(counts)) = (column("concurrency_level"), column("num_requests"))
            else {
                return Err(draft.invalid(
                    "load.stages",
                    "",
                    "a `concurrency_level` and `num_requests` in every stage",
                ));
            };
            if users.is_empty() {
                return Err(ImportError::Missing("load.stages"));
            }
            for (path, values) in [("load.concurrency", users), ("load.requests", counts)] {
                let values: Vec<Value> = values.into_iter().map(number).collect();
                let first = values.first().cloned().unwrap_or_default();
                draft.set(&path.replace('.', "/"), first);
                if values.len() > 1 {
                    draft.set(&format!("matrix/zip/{path}"), values);
                }
            }
            draft.account(
                "load.type load.stages",
                &["load/concurrency", "load/requests"],
            );
        }
        other => {
            return Err(draft.invalid(
                "load.type",
                other,
                "constant, poisson or concurrent; see `load.trace` for recorded traffic",
            ));
        }
    }
    draft.note("load.interval", "stages and cases follow without a pause");
    Ok(())
}

/// inference-perf finds the saturating rate first, so that no two runs have the same plan.
fn sweep(draft: &mut Draft) -> Result<(), ImportError> {
    if !draft.has("load.sweep") {
        return Err(ImportError::Missing("load.stages"));
    }
    draft.set("load/concurrency", 1);
    draft.set(
        "matrix/load.concurrency",
        json!([1, 2, 4, 8, 16, 32, 64, 128]),
    );
    let sweep = draft.json("load.sweep")?.unwrap_or_default();
    let span = sweep.get("stage_duration").and_then(Value::as_f64);
    draft.set("load/duration", seconds(span.unwrap_or(180.0)));
    draft.set_unescaped("load/arrivals", Value::Null);
    draft.account("load.sweep", &["matrix/load.concurrency", "load/duration"]);
    draft.note(
        "load.sweep",
        "a matrix of users: its rates depend on measurements, so no two runs have the same plan; `search` finds the maximum load",
    );
    Ok(())
}

fn goodput(draft: &mut Draft) -> Result<(), ImportError> {
    let mut limits = Vec::new();
    for field in ["report.goodput.constraints", "goodput.constraints"] {
        for (metric, limit) in draft
            .json(field)?
            .iter()
            .filter_map(Value::as_object)
            .flatten()
        {
            let metric = match metric.as_str() {
                "ttft" => "ttft",
                "tpot" => "tpot",
                "request_latency" => "e2e",
                other => {
                    return Err(draft.invalid(field, other, "ttft, tpot or request_latency"));
                }
            };
            let limit = limit.as_f64().unwrap_or_default() * 1e3;
            limits.push(format!("{metric} <= {limit}ms"));
            draft.account(field, &["slo"]);
            draft.note(
                field,
                "no share is required: raise the 0 % to make it a gate",
            );
        }
    }
    if !limits.is_empty() {
        draft.add_limit(format!("goodput({}) >= 0%", limits.join(", ")));
    }
    Ok(())
}

const WORKERS: &str = "internal to its processes; llmscen is a single process";
const SCRAPE: &str = "see `target.metrics`: llmscen reads the server's own page";
const KEPT: &str = "every run has all metrics, per stage and per request; see `report`";
const STORED: &str = "every run is stored in its own folder; see `report.dir`";
const HEADERS: &str = "sent by `target.headers`; gate with `slo`";

static COMMAND: Command = Command::new(&[], FLAGS, translate);

const FLAGS: &[&[FlagGroup]] = &[&[
    translated(
        One,
        "load.type load.interval load.sweep load.request_timeout load.base_seed api.type api.streaming api.headers \
             server.base_url server.model_name server.ignore_eos server.cert_path server.key_path data.type data.path \
             data.input_distribution data.output_distribution data.shared_prefix.num_groups \
             data.shared_prefix.num_prompts_per_group data.shared_prefix.system_prompt_len \
             data.shared_prefix.question_len data.shared_prefix.output_len data.shared_prefix.question_distribution \
             data.shared_prefix.output_distribution data.shared_prefix.seed \
             tokenizer.pretrained_model_name_or_path report.goodput.constraints goodput.constraints",
    ),
    translated(Many, "load.stages load.lora_traffic_split"),
    translated(Secret, "server.api_key"),
    dropped(One, "server.type", "the API defines the requests"),
    dropped(
        One,
        "load.num_workers load.worker_max_concurrency load.worker_max_tcp_connections",
        WORKERS,
    ),
    dropped(
        One,
        "load.request_retries load.request_retry_backoff_sec",
        "see `request.retry`",
    ),
    dropped(
        Many,
        "load.circuit_breakers circuit_breakers",
        "see `slo: [{ expr: \"error_rate < 1%\", abort: {} }]`",
    ),
    dropped(
        One,
        "load.trace data.trace",
        "see `dataset: { kind: trace }`",
    ),
    dropped(
        One,
        "api.slo_unit api.slo_tpot_header api.slo_ttft_header",
        HEADERS,
    ),
    dropped(
        One,
        "api.response_format",
        "set `response_format` in `request.extra`",
    ),
    dropped(
        One,
        "data.shared_prefix.enable_multi_turn_chat data.conversation_replay data.otel_trace_replay",
        "use a dataset with conversations: `dataset: { kind: sharegpt, turns: {} }`",
    ),
    dropped(
        One,
        "data.shared_prefix.max_model_len",
        "see `dataset.prompt_tokens.max`",
    ),
    dropped(
        One,
        "data.multimodal data.shared_prefix.multimodal",
        "see `dataset: { kind: images }`",
    ),
    dropped(
        One,
        "tokenizer.trust_remote_code",
        "code of a model is never executed",
    ),
    dropped(
        Secret,
        "tokenizer.token",
        "the file of `dataset.tokenizer` is read from the cache of Hugging Face",
    ),
    dropped(One, "metrics", SCRAPE),
    dropped(
        One,
        "report.request_lifecycle report.prometheus report.session_lifecycle",
        KEPT,
    ),
    dropped(One, "storage", STORED),
]];
