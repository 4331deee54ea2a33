//! `guidellm run` with `kind=…,key=value` options, after guidellm 0.8, and the older `guidellm benchmark` with flags.

use crate::import::block::Block;
use crate::import::draft::{
    Draft, about, api_from_path, between, bounded, endpoint, in_seconds, name, number, per_second,
    seconds, sum,
};
use crate::import::flags::ImportError;
use serde_json::{Value, json};

pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    draft.set("name", name("", "guidellm"));
    seed(draft)?;
    target(draft)?;
    dataset(draft)?;
    load(draft)?;
    constraints(draft)
}

fn seed(draft: &mut Draft) -> Result<(), ImportError> {
    let mut fields = Block::from_flag(draft, "--seed", "value")?;
    if let Some(seed) = fields.number(draft, "value")? {
        draft.set("seed", number(seed));
        if fields.is_text("kind", "static") {
            fields.value("kind");
        }
    }
    fields.done(draft, &["seed"]);
    Ok(())
}

fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let mut backend = Block::from_flag(draft, "--backend", "kind")?;
    let kind = backend.text("kind").unwrap_or_else(|| "openai_http".into());
    if !kind.starts_with("openai_http") {
        return Err(draft.invalid(
            "--backend",
            &kind,
            "openai_http: only servers are supported",
        ));
    }
    let base = backend
        .text("target")
        .or_else(|| draft.text("--target"))
        .unwrap_or_else(|| "http://localhost:8000".into());
    let format = backend
        .text("request_format")
        .or_else(|| draft.text("--request-type"))
        .unwrap_or_default();
    let base = base
        .trim_end_matches('/')
        .trim_end_matches("/v1")
        .to_owned();
    let route = match format.as_str() {
        "" | "chat_completions" | "/v1/chat/completions" => "v1/chat/completions",
        "text_completions" | "/v1/completions" => "v1/completions",
        "responses" | "/v1/responses" => "v1/responses",
        "embeddings" | "/v1/embeddings" => "v1/embeddings",
        other => {
            return Err(draft.invalid(
                "--request-type",
                other,
                "chat_completions, text_completions, responses or embeddings",
            ));
        }
    };
    let url = endpoint(&base, route, &["/completions", "/responses", "/embeddings"]);
    draft.set("target/api", api_from_path(&url));
    draft.carry_value("--target", "target/url", url);
    draft.account("--request-type", &["target/url"]);
    match backend.text("model") {
        Some(model) => draft.set("target/model", model),
        None => draft.carry("--model", "target/model"),
    }
    draft.account("--model", &["target/model"]);
    if backend.text("api_key").is_some() {
        draft.set_variable("target/api_key", "${OPENAI_API_KEY}");
        draft.note("--backend", "the key is not stored: set OPENAI_API_KEY");
    }
    for (field, path) in [
        ("timeout", "target/timeouts/total"),
        ("timeout_connect", "target/timeouts/connect"),
    ] {
        if let Some(span) = backend.number(draft, field)? {
            draft.set(path, seconds(span));
        }
    }
    if backend
        .text("verify")
        .is_some_and(|word| word.eq_ignore_ascii_case("false"))
    {
        draft.set("target/tls/insecure", true);
    }
    if let Some(stream) = backend.text("stream") {
        draft.set("request/stream", !stream.eq_ignore_ascii_case("false"));
    }
    if let Some(most) = backend.number(draft, "max_tokens")? {
        draft.set("request/max_tokens", number(most));
    }
    backend.done(draft, &["target"]);
    Ok(())
}

fn dataset(draft: &mut Draft) -> Result<(), ImportError> {
    let mut tokenizer = Block::from_flag(draft, "--tokenizer", "model")?;
    if let Some(model) = tokenizer
        .text("model")
        .or_else(|| draft.text("--processor"))
    {
        draft.set("dataset/tokenizer", model);
    }
    tokenizer.text("kind");
    tokenizer.done(draft, &["dataset/tokenizer"]);
    draft.account("--processor", &["dataset/tokenizer"]);
    let mut data = Block::from_flag(draft, "--data", "source")?;
    let kind = data.text("kind").unwrap_or_else(|| {
        if data.has("prompt_tokens") {
            "synthetic_text".into()
        } else {
            "file".into()
        }
    });
    match kind.as_str() {
        "synthetic_text" => synthetic(draft, &mut data)?,
        layout @ ("mooncake" | "otel") => {
            draft.set("dataset/kind", "trace");
            draft.set("dataset/trace/layout", layout);
            let is_file = data.block("source").is_none();
            match data.text("source").or_else(|| data.text("path")) {
                Some(path) if is_file => draft.set("dataset/path", path),
                _ => {
                    return Err(draft.invalid(
                        "--data",
                        layout,
                        "the file of its log: a dataset of the hub is not read as one",
                    ));
                }
            }
            if layout == "otel" {
                draft.set("dataset/turns", json!({}));
                if let Some(most) = data.number(draft, "max_wait")? {
                    draft.set("dataset/turns/max_idle", seconds(most));
                }
            }
        }
        "synthetic_image" => {
            draft.set("dataset/kind", "images");
            let side = |side: Option<f64>| side.unwrap_or(512.0);
            let width = data.number(draft, "width")?;
            let height = data.number(draft, "height")?;
            draft.set(
                "dataset/sizes",
                json!([format!("{}x{}", side(width), side(height))]),
            );
            let count = data.number(draft, "images_per_request")?.unwrap_or(1.0);
            draft.set("dataset/count", number(count));
        }
        "file" | "json_file" | "csv_file" | "text_file" | "parquet_file" | "jsonl_file" => {
            let Some(path) = data.text("path").or_else(|| data.text("source")) else {
                return Err(ImportError::Missing("data"));
            };
            draft.set("dataset/kind", "rows");
            draft.set("dataset/path", path);
            draft.set("dataset/columns/prompt", "prompt");
            draft.note(
                "--data",
                "set `dataset.columns` to the column of the prompts",
            );
        }
        other => {
            return Err(draft.invalid(
                "--data",
                other,
                "synthetic_text, synthetic_image, mooncake, otel or a file",
            ));
        }
    }
    data.done(draft, &["dataset"]);
    if draft
        .text("--data-sampler")
        .is_some_and(|sampler| sampler == "random" || sampler == "shuffle")
    {
        draft.carry_value("--data-sampler", "dataset/order", "shuffle");
    }
    Ok(())
}

fn synthetic(draft: &mut Draft, data: &mut Block) -> Result<(), ImportError> {
    draft.set("dataset/kind", "random");
    // The size of its dataset: prompts are generated as they are sent.
    data.value("samples");
    let Some(prompt) = length(draft, data, "prompt_tokens")? else {
        return Err(ImportError::Missing("prompt_tokens in its --data"));
    };
    if let Some(output) = length(draft, data, "output_tokens")? {
        draft.set("request/max_tokens", output);
        draft.set("request/ignore_eos", true);
    }
    let first = length(draft, data, "first_prompt_tokens")?.unwrap_or_else(|| prompt.clone());
    draft.set("dataset/tokens", first.clone());
    prefix(draft, data, &first)?;
    if let Some(buckets) = data.value("prefix_buckets") {
        let one = match buckets {
            Value::Array(mut buckets) if buckets.len() == 1 => buckets.pop(),
            _ => None,
        };
        if let Some(Value::Object(fields)) = one {
            let mut bucket = Block::new("--data", fields);
            // One bucket has every prompt.
            bucket.value("bucket_weight");
            prefix(draft, &mut bucket, &first)?;
            bucket.done(draft, &[]);
        } else {
            draft.lose(
                "--data",
                "prefix_buckets: see `mix`, one entry with `kind: prefix` each",
            );
        }
    }
    if let Some(turns) = data.number(draft, "turns")?.filter(|turns| *turns > 1.0) {
        draft.set("dataset/turns/count", number(turns));
        draft.set("dataset/turns/tokens", prompt);
        if let Some(wait) = length(draft, data, "delay")? {
            draft.set("dataset/turns/think_time", in_seconds(wait));
        }
    }
    Ok(())
}

/// The prefix in front of prompts of this length, where there is one.
fn prefix(draft: &mut Draft, data: &mut Block, prompt: &Value) -> Result<(), ImportError> {
    let shared = data.number(draft, "prefix_tokens")?;
    let groups = data.number(draft, "prefix_count")?.unwrap_or(1.0);
    if let Some(shared) = shared.filter(|shared| *shared > 0.0) {
        draft.shared_prefix(groups, shared, sum(prompt.clone(), &number(shared)));
    }
    Ok(())
}

/// A length with `_stdev`, `_min` and `_max`: normal within the bounds, or uniform between them.
fn length(draft: &Draft, data: &mut Block, key: &str) -> Result<Option<Value>, ImportError> {
    let Some(mean) = data.number(draft, key)? else {
        return Ok(None);
    };
    let mut part = |suffix: &str| data.number(draft, &format!("{key}_{suffix}"));
    let (sd, min, max) = (part("stdev")?.unwrap_or(0.0), part("min")?, part("max")?);
    Ok(Some(match (min, max) {
        (Some(min), Some(max)) if sd == 0.0 => between(min, max),
        _ => bounded(about(mean, sd), min, max),
    }))
}

fn load(draft: &mut Draft) -> Result<(), ImportError> {
    let mut profile = Block::from_flag(draft, "--profile", "kind")?;
    let kind = profile
        .text("kind")
        .or_else(|| draft.text("--rate-type"))
        .unwrap_or_else(|| "sweep".into());
    let old = draft.numbers("--rate")?;
    let mut many = |draft: &Draft, field: &str| {
        Ok::<_, ImportError>(
            profile
                .numbers(draft, field)?
                .unwrap_or_else(|| old.clone()),
        )
    };
    match kind.as_str() {
        "synchronous" => draft.set("load/concurrency", 1),
        "concurrent" => {
            let mut levels = many(draft, "streams")?;
            if let [path, values, ..] = draft.texts("--override").as_slice()
                && path == "profile.streams"
            {
                let parsed: Option<Vec<f64>> = values
                    .split(',')
                    .map(|word| word.trim().parse().ok())
                    .collect();
                levels = parsed
                    .ok_or_else(|| draft.invalid("--override", values, "numbers of streams"))?;
                draft.account("--override", &["matrix/load.concurrency"]);
            }
            if levels.is_empty() {
                return Err(ImportError::Missing("streams"));
            }
            draft.one_or_axis("load/concurrency", levels.into_iter().map(number).collect());
        }
        "async" | "constant" | "poisson" => {
            let rates = many(draft, "rate")?;
            if rates.is_empty() {
                return Err(ImportError::Missing("rate"));
            }
            draft.one_or_axis("load/rate", rates.into_iter().map(per_second).collect());
            draft.set(
                "load/arrivals",
                if kind == "poisson" {
                    "poisson"
                } else {
                    "constant"
                },
            );
        }
        "throughput" => {
            let users = profile
                .number(draft, "max_concurrency")?
                .or_else(|| old.first().copied())
                .unwrap_or(512.0);
            draft.set("load/concurrency", number(users));
            draft.note("--profile", "enough users to saturate the server");
        }
        "sweep" => {
            // The number of its rates.
            profile.value("sweep_size");
            sweep(draft);
        }
        "replay" => {
            let scale = profile.number(draft, "time_scale")?.unwrap_or(1.0);
            if scale <= 0.0 {
                return Err(draft.invalid(
                    "--profile",
                    &scale.to_string(),
                    "a `time_scale` above 0",
                ));
            }
            draft.set("load/trace", json!({ "speed": number(1.0 / scale) }));
        }
        "goodput" | "knee" => {
            let high = profile.number(draft, "max_streams")?.unwrap_or(1024.0);
            draft.set("load/concurrency", 1);
            if draft.get("load/requests").is_none() {
                draft.set("load/requests", "10x");
            }
            draft.set(
                "search",
                json!({ "vary": "load.concurrency", "range": [1, number(high)] }),
            );
            draft.add_limit("ttft.p99 < 1s".into());
            draft.note("--profile", "define in `slo` what the load must meet");
        }
        other => {
            return Err(draft.invalid(
                "--profile",
                other,
                "synchronous, concurrent, throughput, constant, poisson, sweep, replay, goodput or knee",
            ));
        }
    }
    if let Some(span) = profile
        .number(draft, "rampup_duration")?
        .or(draft.number("--rampup")?)
        .filter(|span| *span > 0.0)
    {
        if draft.get("load/concurrency").is_some() {
            draft.carry_value("--rampup", "load/spread", seconds(span));
        } else {
            draft.lose(
                "--profile --rampup",
                "see `load.stages` for an increasing rate",
            );
        }
    }
    if kind != "concurrent" {
        draft.note("--override", "see `matrix`");
    }
    draft.account("--profile --rate-type --rate", &["load"]);
    profile.done(draft, &[]);
    Ok(())
}

/// guidellm measures one request at a time, then the maximum throughput, then rates between them; a matrix of users
/// covers the same range.
fn sweep(draft: &mut Draft) {
    draft.set("load/concurrency", 1);
    draft.set(
        "matrix/load.concurrency",
        json!([1, 2, 4, 8, 16, 32, 64, 128]),
    );
    let note = "a matrix of users: the rates of guidellm's sweep depend on measurements, so no \
    two runs have the same plan; `search` finds the maximum load";
    draft.note("--profile", note);
    draft.note("--rate-type", note);
}

const SATURATION: &str = "--over-saturation";

/// The end of a load that the server does not keep up with.
fn saturation(draft: &mut Draft, flag: &str) {
    if draft.get("load/rate").or(draft.get("load/trace")).is_some() {
        draft.carry_value(flag, "load/stop_when_saturated", true);
    } else {
        draft.lose(flag, "`load.stop_when_saturated` is for open loops");
    }
}

fn constraints(draft: &mut Draft) -> Result<(), ImportError> {
    let ended = |draft: &Draft| {
        draft.get("load/duration").is_some() || draft.get("load/requests").is_some()
    };
    for text in draft.texts("--constraint") {
        let mut fields = Block::parse(draft, "--constraint", &text, "kind")?;
        match fields.text("kind").unwrap_or_default().as_str() {
            "max_duration" => {
                if let Some(span) = fields.number(draft, "seconds")? {
                    draft.carry_value("--constraint", "load/duration", seconds(span));
                }
            }
            kind @ ("max_requests" | "min_requests") => {
                if let Some(count) = fields.number(draft, "count")? {
                    draft.carry_value("--constraint", "load/requests", number(count));
                }
                if kind == "min_requests" {
                    draft.note("--constraint", "the run ends after the minimum");
                }
            }
            "over_saturation" => saturation(draft, "--constraint"),
            "max_errors" | "max_error_rate" | "max_global_error_rate" => {
                for key in [
                    "max_errors",
                    "max_error_rate",
                    "count",
                    "rate",
                    "window_size",
                    "min_processed",
                ] {
                    fields.value(key);
                }
                draft.note(
                    "--constraint",
                    "see `slo: [{ expr: \"error_rate < 1%\", abort: {} }]`",
                );
            }
            other => draft.lose("--constraint", format!("not understood: {other}")),
        }
        fields.done(draft, &[]);
    }
    if draft.has(SATURATION) {
        saturation(draft, SATURATION);
    }
    if let Some(share) = draft.number("--warmup")? {
        match draft
            .get("load/duration")
            .and_then(Value::as_str)
            .and_then(|span| span.strip_suffix('s')?.parse::<f64>().ok())
        {
            Some(span) if share < 1.0 => {
                draft.carry_value(
                    "--warmup",
                    "load/warmup",
                    seconds((share * span).max(0.001)),
                );
            }
            _ => {
                draft.carry_value("--warmup", "load/warmup", number(share.ceil()));
            }
        }
    }
    if !ended(draft) {
        draft.set("load/duration", "60s");
        draft.note("--profile", "the command line has no end condition: 60 s");
    }
    Ok(())
}
