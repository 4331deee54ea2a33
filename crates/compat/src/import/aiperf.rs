//! `aiperf profile`, after the options of AIPerf 0.13.

use crate::import::draft::{
    Draft, about, bounded, endpoint, name, number, per_second, seconds, sum, with_scheme,
};
use crate::import::flags::ImportError;
use serde_json::{Map, Value, json};

pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let models = models(draft);
    let first = models
        .first()
        .map(|model| model.get("name").unwrap_or(model));
    let title = first.and_then(Value::as_str).unwrap_or_default();
    let title = title.rsplit('/').next().unwrap_or_default();
    draft.set("name", name(&format!("aiperf {title}"), "aiperf"));
    target(draft, models)?;
    dataset(draft)?;
    load(draft)?;
    limits(draft)
}

/// The models by name; those of a config file that have a weight are objects.
fn models(draft: &Draft) -> Vec<Value> {
    let named = |text: &String| match serde_json::from_str::<Value>(text) {
        Ok(model @ Value::Object(_)) => vec![model],
        _ => text.split(',').map(Value::from).collect(),
    };
    draft.texts("--model").iter().flat_map(named).collect()
}

fn target(draft: &mut Draft, models: Vec<Value>) -> Result<(), ImportError> {
    let kind = draft
        .text("--endpoint-type")
        .unwrap_or_else(|| "chat".into());
    let (api, route) = match kind.as_str() {
        "chat" => ("openai-chat", "v1/chat/completions"),
        "completions" => ("openai-completions", "v1/completions"),
        "responses" => ("openai-responses", "v1/responses"),
        "embeddings" | "nim_embeddings" => ("openai-embeddings", "v1/embeddings"),
        "nim_rankings" | "hf_tei_rankings" | "cohere_rankings" | "rankings" => {
            ("rerank", "v1/rerank")
        }
        "huggingface_generate" => ("tgi", "generate_stream"),
        other => {
            return Err(draft.invalid(
                "--endpoint-type",
                other,
                "chat, completions, responses, embeddings, rankings or huggingface_generate; others are `api: custom`",
            ));
        }
    };
    let urls = draft.texts("--url");
    let base = urls
        .first()
        .cloned()
        .unwrap_or_else(|| "localhost:8000".into());
    let custom = draft.text("--endpoint");
    let known: &[&str] = &[
        "/completions",
        "/responses",
        "/embeddings",
        "/rerank",
        "/generate_stream",
    ];
    let base = base
        .trim_end_matches('/')
        .trim_end_matches("/v1")
        .to_owned();
    draft.carry_value("--endpoint-type", "target/api", api);
    draft.carry_value(
        "--url --endpoint",
        "target/url",
        endpoint(&base, custom.as_deref().unwrap_or(route), known),
    );
    if urls.len() > 1 {
        let whole = |url: &String| {
            let base = url.trim_end_matches('/').trim_end_matches("/v1");
            endpoint(base, custom.as_deref().unwrap_or(route), known)
        };
        draft.set(
            "target/url",
            urls.iter().map(whole).collect::<Vec<String>>(),
        );
    }
    let pages = draft.texts("--server-metrics");
    let pages: Vec<Value> = pages
        .iter()
        .filter(|page| page.contains(['/', ':']))
        .map(|page| json!({ "url": with_scheme(page) }))
        .collect();
    if !pages.is_empty() {
        draft.carry_value("--server-metrics", "target/metrics", pages);
    }
    draft.note("--server-metrics", "see `target.metrics`");
    match models.as_slice() {
        [] => {}
        [one] => draft.set("target/model", one.clone()),
        several => draft.set("target/model", several.to_vec()),
    }
    draft.account("--model", &["target/model"]);
    draft.note(
        "--model-selection-strategy",
        "each request draws a model from the seed",
    );
    if let Some(strategy) = draft.text("--connection-reuse-strategy") {
        draft.carry_value(
            "--connection-reuse-strategy",
            "target/http/pool",
            if strategy == "never" {
                "per-request"
            } else {
                "keep-alive"
            },
        );
    }
    if !matches!(api, "openai-embeddings" | "rerank") {
        draft.set("request/stream", draft.is_on("--streaming"));
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
                let (key, value) = pair.ok_or_else(|| {
                    draft.invalid("--extra-inputs", &text, "NAME:VALUE or a JSON object")
                })?;
                let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
                Map::from_iter([(key.to_owned(), value)])
            }
        };
        draft.merge_extra(fields);
        draft.account("--extra-inputs", &["request/extra"]);
    }
    Ok(())
}

fn load(draft: &mut Draft) -> Result<(), ImportError> {
    let users = draft.numbers("--concurrency")?;
    let rates = draft.numbers("--request-rate")?;
    let replayed = draft
        .get("dataset/kind")
        .is_some_and(|kind| kind == "trace");
    let free = draft.is_on("--no-fixed-schedule") || !rates.is_empty() || !users.is_empty();
    if draft.is_on("--fixed-schedule") || replayed && !free {
        replay(draft)?;
    } else if !rates.is_empty() {
        open(draft, rates)?;
        draft.carry_cap("--concurrency")?;
    } else {
        let users = if users.is_empty() { vec![1.0] } else { users };
        draft.one_or_axis("load/concurrency", users.into_iter().map(number).collect());
        draft.account("--concurrency", &["load/concurrency"]);
        draft.carry_seconds("--concurrency-ramp-duration", "load/spread")?;
        if draft.get("dataset/turns").is_some() {
            draft.carry_seconds("--system-idle-gap-cap-seconds", "load/max_idle")?;
        }
        draft.note("--arrival-pattern", "a closed loop has no arrival process");
    }
    draft.note("--no-fixed-schedule", "see `load`: it has no `trace`");
    if draft.get("load/max_idle").is_none() {
        draft.lose(
            "--system-idle-gap-cap-seconds",
            "`load.max_idle` is for closed loops with `dataset.turns`",
        );
    }
    prefill(draft);
    ends(draft)?;
    cancel(draft)
}

/// A limit of the requests in their prefill, which the server decides.
fn prefill(draft: &mut Draft) {
    const FLAGS: &str = "--prefill-concurrency --prefill-concurrency-ramp-duration";
    if draft.has("--prefill-concurrency") {
        draft.lose(FLAGS, "the server admits requests; see `load.concurrency`");
    } else {
        draft.note(FLAGS, "only used with --prefill-concurrency");
    }
}

fn replay(draft: &mut Draft) -> Result<(), ImportError> {
    draft.carry_value("--fixed-schedule", "load/trace", json!({}));
    for flag in ["--replay-speedup", "--synthesis-speedup-ratio"] {
        draft.carry_number(flag, "load/trace/speed")?;
    }
    draft.carry_cap("--concurrency")?;
    for (flag, path) in [
        ("--fixed-schedule-start-offset", "dataset/trace/start"),
        ("--fixed-schedule-end-offset", "dataset/trace/end"),
    ] {
        if let Some(offset) = draft.number(flag)? {
            draft.carry_value(flag, path, seconds(offset / 1e3));
        }
    }
    Ok(())
}

fn open(draft: &mut Draft, rates: Vec<f64>) -> Result<(), ImportError> {
    match ramp(draft, &rates)? {
        Some(stages) => draft.carry_value("--request-rate", "load/stages", stages),
        None => {
            draft.one_or_axis("load/rate", rates.into_iter().map(per_second).collect());
            draft.account("--request-rate", &["load/rate"]);
        }
    }
    let shape = draft.number("--arrival-smoothness")?;
    match draft.text("--arrival-pattern").as_deref() {
        Some("constant") => draft.set("load/arrivals", "constant"),
        Some("gamma") => draft.set(
            "load/arrivals",
            json!({ "gamma": number(shape.unwrap_or(1.0)) }),
        ),
        Some("concurrency_burst") => {
            return Err(draft.invalid(
                "--arrival-pattern",
                "concurrency_burst",
                "constant, poisson or gamma with a rate",
            ));
        }
        _ => {}
    }
    draft.account("--arrival-pattern --arrival-smoothness", &["load/arrivals"]);
    Ok(())
}

/// A rate that increases from 0 to its value, and keeps it for the rest of the duration.
fn ramp(draft: &mut Draft, rates: &[f64]) -> Result<Option<Value>, ImportError> {
    const FLAG: &str = "--request-rate-ramp-duration";
    let Some(ramp) = draft.number(FLAG)?.filter(|ramp| *ramp > 0.0) else {
        return Ok(None);
    };
    let duration = draft.number("--benchmark-duration")?.unwrap_or(0.0);
    let [rate] = rates else {
        draft.lose(FLAG, "see `load.stages`: one scenario for each rate");
        return Ok(None);
    };
    if duration <= ramp {
        draft.lose(
            FLAG,
            "see `load.stages`: stages end, and this load has no duration beyond its ramp",
        );
        return Ok(None);
    }
    draft.account(FLAG, &["load/stages"]);
    Ok(Some(json!([
        { "rate": format!("0/s -> {rate}/s"), "for": seconds(ramp) },
        { "rate": per_second(*rate), "for": seconds(duration - ramp) },
    ])))
}

fn ends(draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(count) = draft.number("--num-conversations")? {
        let path = if draft.get("dataset/turns").is_some() {
            "load/sessions"
        } else {
            "load/requests"
        };
        if draft.get("load/requests").is_none() {
            draft.carry_value("--num-conversations", path, number(count));
        }
    }
    let endless = [
        "load/duration",
        "load/requests",
        "load/sessions",
        "load/trace",
    ]
    .iter()
    .all(|path| draft.get(path).is_none());
    if endless {
        // AIPerf's default: ten requests per user, at least ten.
        let closed = draft.get("load/concurrency").is_some()
            || draft.get("matrix/load.concurrency").is_some();
        draft.set(
            "load/requests",
            if closed { json!("10x") } else { json!(10) },
        );
    }
    Ok(())
}

fn cancel(draft: &mut Draft) -> Result<(), ImportError> {
    let Some(share) = draft
        .number("--request-cancellation-rate")?
        .filter(|share| *share > 0.0)
    else {
        return Ok(());
    };
    let delay = draft
        .number("--request-cancellation-delay")?
        .unwrap_or(0.0)
        .max(0.001);
    draft.carry_value(
        "--request-cancellation-rate",
        "request/cancel/share",
        format!("{share}%"),
    );
    draft.carry_value(
        "--request-cancellation-delay",
        "request/cancel/after",
        seconds(delay),
    );
    Ok(())
}

/// `--goodput`, and the limits of search recipes.
fn limits(draft: &mut Draft) -> Result<(), ImportError> {
    let mut limits = Vec::new();
    for pair in draft.texts("--goodput").iter().flat_map(|text| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    }) {
        let parsed = pair
            .split_once(':')
            .and_then(|(metric, value)| Some((metric, value.parse::<f64>().ok()?)));
        limits.push(match parsed {
            Some(("time_to_first_token" | "ttft", value)) => format!("ttft <= {value}ms"),
            Some(("inter_token_latency" | "itl", value)) => format!("tpot <= {value}ms"),
            Some(("request_latency", value)) => format!("e2e <= {value}ms"),
            Some(("output_token_throughput_per_user", value)) => {
                format!("decode_tps >= {value} tok/s")
            }
            _ => {
                return Err(draft.invalid(
                    "--goodput",
                    &pair,
                    "METRIC:VALUE of time_to_first_token, inter_token_latency, request_latency or \
                output_token_throughput_per_user",
                ));
            }
        });
    }
    if !limits.is_empty() {
        draft.add_limit(format!("goodput({}) >= 0%", limits.join(", ")));
        draft.account("--goodput", &["slo"]);
        draft.note(
            "--goodput",
            "AIPerf requires no share: raise the 0 % to make it a gate; its \
        inter_token_latency is TPOT",
        );
    }
    for (flag, metric) in [
        ("--ttft-sla-ms", "ttft.p99"),
        ("--itl-sla-ms", "tpot.p99"),
        ("--tpot-sla-ms", "tpot.p99"),
        ("--e2e-sla-ms", "e2e.p99"),
    ] {
        if let Some(limit) = draft.number(flag)? {
            draft.add_limit(format!("{metric} <= {limit}ms"));
            draft.account(flag, &["slo"]);
        }
    }
    if let Some(share) = draft.number("--error-rate-sla")? {
        draft.add_limit(format!("error_rate <= {}%", share * 100.0));
        draft.account("--error-rate-sla", &["slo"]);
    }
    search(draft)
}

fn search(draft: &mut Draft) -> Result<(), ImportError> {
    if !draft.has("--search-recipe") {
        draft.note(
            "--concurrency-min --concurrency-max",
            "only used by a search recipe",
        );
        return Ok(());
    }
    let low = draft.number("--concurrency-min")?.unwrap_or(1.0);
    let high = draft.number("--concurrency-max")?.unwrap_or(1024.0);
    draft.set(
        "search",
        json!({ "vary": "load.concurrency", "range": [number(low), number(high)] }),
    );
    draft.set("load/concurrency", number(low));
    draft.account("--search-recipe", &["search"]);
    draft.account("--concurrency-min --concurrency-max", &["search/range"]);
    draft.note(
        "--search-recipe",
        "the largest number of users that meets all limits of `slo`",
    );
    if draft.get("slo").is_none() {
        return Err(ImportError::Missing(
            "limit for its search recipe, such as --ttft-sla-ms",
        ));
    }
    Ok(())
}

fn dataset(draft: &mut Draft) -> Result<(), ImportError> {
    let kind = kind(draft)?;
    draft.set("dataset/kind", kind);
    match kind {
        "random" => random(draft)?,
        "images" => {
            let [width, height] = [
                draft.number("--image-width-mean")?,
                draft.number("--image-height-mean")?,
            ];
            draft.carry_value(
                "--image-width-mean",
                "dataset/sizes",
                json!([format!(
                    "{}x{}",
                    width.unwrap_or(512.0),
                    height.unwrap_or(512.0)
                )]),
            );
            draft.account("--image-height-mean", &["dataset/sizes"]);
            draft.carry_number("--image-batch-size", "dataset/count")?;
        }
        "rerank" => draft.carry_number("--rankings-passages-mean", "dataset/documents")?,
        "embeddings" => draft.carry_number("--batch-size", "dataset/batch")?,
        _ => {}
    }
    if draft.get("dataset/kind").and_then(Value::as_str) == Some("trace") {
        draft.carry_number("--synthesis-max-isl", "dataset/prompt_tokens/max")?;
        draft.carry_number("--isl-block-size", "dataset/trace/block_tokens")?;
        for flag in [
            "--synthesis-prefix-len-multiplier",
            "--synthesis-prefix-root-multiplier",
            "--synthesis-prompt-len-multiplier",
            "--synthesis-output-len-multiplier",
        ] {
            match draft.number(flag)? {
                Some(1.0) => draft.note(flag, "no change"),
                _ => draft.lose(flag, "a log is not synthesized: change the log itself"),
            }
        }
    }
    turns(draft)?;
    if let Some(length) = length(draft, "osl", "request/max_tokens", None)? {
        draft.set("request/max_tokens", length);
    } else {
        draft.note("--osl-stddev", "only used with --osl");
    }
    match draft.text("--dataset-sampling-strategy").as_deref() {
        None | Some("sequential") => {
            draft.account("--dataset-sampling-strategy", &["dataset/order"])
        }
        Some(_) => {
            draft.carry_value("--dataset-sampling-strategy", "dataset/order", "shuffle");
        }
    }
    if draft.is_on("--no-allow-dataset-wrap") {
        draft.set("dataset/on_exhausted", "stop");
    }
    draft.account(
        "--no-allow-dataset-wrap --allow-dataset-wrap",
        &["dataset/on_exhausted"],
    );
    if let Some(target) = draft.text("--cache-bust") {
        if target != "none" {
            draft.set("dataset/cache_bust", true);
        }
        draft.account("--cache-bust", &["dataset/cache_bust"]);
    }
    Ok(())
}

fn kind(draft: &mut Draft) -> Result<&'static str, ImportError> {
    if let Some(name) = draft.text("--public-dataset") {
        if name != "sharegpt" {
            return Err(draft.invalid(
                "--public-dataset",
                &name,
                "sharegpt; use other datasets as a file with `kind: rows`",
            ));
        }
        draft.account("--public-dataset", &["dataset/kind"]);
        draft.set("dataset/path", "builtin");
        draft.note(
            "--public-dataset",
            "a small sample that ships with llmscen; set `dataset.path` for the full dataset",
        );
        return Ok("sharegpt");
    }
    let endpoint = draft.text("--endpoint-type").unwrap_or_default();
    let Some(path) = draft.text("--input-file") else {
        let pictures = draft
            .number("--image-width-mean")?
            .is_some_and(|width| width > 0.0);
        let kind = match () {
            () if endpoint.ends_with("embeddings") => "embeddings",
            () if endpoint.ends_with("rankings") => "rerank",
            () if pictures => "images",
            () => "random",
        };
        if matches!(kind, "embeddings" | "rerank") {
            draft.set("dataset/path", "builtin");
        }
        return Ok(kind);
    };
    draft.carry_value("--input-file", "dataset/path", path);
    draft.account("--custom-dataset-type", &["dataset/kind"]);
    Ok(match draft.text("--custom-dataset-type").as_deref() {
        Some("mooncake_trace") => {
            draft.set("dataset/trace/layout", "mooncake");
            "trace"
        }
        Some("burst_gpt_trace" | "burstgpt_trace") => {
            draft.set("dataset/trace/layout", "burstgpt");
            "trace"
        }
        Some("multi_turn") => {
            draft.note(
                "--custom-dataset-type",
                "convert each conversation to a message list",
            );
            draft.set("dataset/turns", json!({}));
            "messages"
        }
        Some("raw_payload") => "line_by_line",
        _ if endpoint.ends_with("embeddings") => "embeddings",
        _ if endpoint.ends_with("rankings") => "rerank",
        _ => {
            draft.set("dataset/columns/prompt", "text");
            "rows"
        }
    })
}

/// A length in tokens: fixed, normal, or a distribution of a config file.
fn length(
    draft: &mut Draft,
    name: &str,
    path: &str,
    default: Option<f64>,
) -> Result<Option<Value>, ImportError> {
    let [flag, deviation] = [format!("--{name}"), format!("--{name}-stddev")];
    if draft.text(&flag).is_some_and(|text| text.starts_with('{')) {
        draft.account(&flag, &[path]);
        return draft.json(&flag);
    }
    let Some(mean) = draft.number(&flag)?.or(default) else {
        return Ok(None);
    };
    draft.account(&format!("{flag} {deviation}"), &[path]);
    let sd = draft.number(&deviation)?.unwrap_or(0.0);
    Ok(Some(about(mean, sd)))
}

/// The length of a prompt without a prefix.
fn input(draft: &mut Draft) -> Result<Value, ImportError> {
    Ok(length(draft, "isl", "dataset/tokens", Some(550.0))?.unwrap_or_default())
}

fn random(draft: &mut Draft) -> Result<(), ImportError> {
    let tokens = input(draft)?;
    draft.set("dataset/tokens", tokens.clone());
    let pool = draft.number("--num-prefix-prompts")?.unwrap_or(0.0);
    let shared = draft
        .number("--prefix-prompt-length")?
        .or(draft.number("--shared-system-prompt-length")?)
        .filter(|shared| *shared > 0.0);
    let Some(shared) = shared else { return Ok(()) };
    draft.shared_prefix(pool, shared, sum(tokens, &number(shared)));
    if pool > 1.0 {
        draft.account("--num-prefix-prompts", &["dataset/groups"]);
        draft.account("--prefix-prompt-length", &["dataset/prefix_tokens"]);
    } else {
        draft.account(
            "--prefix-prompt-length --shared-system-prompt-length --num-prefix-prompts",
            &["dataset/shared_prefix"],
        );
    }
    Ok(())
}

/// Where sessions begin, and the longest wait between their turns.
fn beginnings(draft: &mut Draft) -> Result<(), ImportError> {
    const SHARES: [&str; 2] = [
        "--trajectory-start-min-ratio",
        "--trajectory-start-max-ratio",
    ];
    let is_log = draft.get("dataset/kind").and_then(Value::as_str) == Some("trace");
    let [least, most] = SHARES.map(|flag| draft.number(flag));
    let (least, most) = (least?, most?);
    if is_log && least.or(most).is_some() {
        let (least, most) = (least.unwrap_or(0.0), most.unwrap_or(1.0));
        if draft.get("dataset/turns").is_none() {
            draft.set("dataset/turns", json!({}));
        }
        let range = [least, most].map(|share| format!("{}%", (share * 1e6).round() / 1e4));
        draft.set("dataset/turns/begin", json!({ "uniform": range }));
        for flag in SHARES {
            draft.account(flag, &["dataset/turns/begin"]);
        }
    }
    const CAPS: &str =
        "--inter-turn-delay-cap-seconds --max-idle-gap-cap-seconds --trace-idle-gap-cap-seconds";
    if draft.get("dataset/turns").is_none() {
        draft.note(CAPS, "only used between turns");
        return Ok(());
    }
    let caps = CAPS.split(' ').map(|flag| draft.number(flag));
    let caps: Vec<Option<f64>> = caps.collect::<Result<_, _>>()?;
    if let Some(least) = caps.into_iter().flatten().reduce(f64::min) {
        draft.carry_value(CAPS, "dataset/turns/max_idle", seconds(least));
    }
    Ok(())
}

/// Generated conversations, or those of a dataset.
fn turns(draft: &mut Draft) -> Result<(), ImportError> {
    let mean = draft.number("--session-turns-mean")?.unwrap_or(1.0);
    let sd = draft.number("--session-turns-stddev")?.unwrap_or(0.0);
    let kind = draft.get("dataset/kind").and_then(Value::as_str);
    let is_drawn = matches!(kind, Some("random" | "prefix"));
    if mean > 1.0 && is_drawn {
        let count = bounded(about(mean, sd), Some(1.0), None);
        draft.carry_value("--session-turns-mean", "dataset/turns/count", count);
        draft.account("--session-turns-stddev", &["dataset/turns/count"]);
        let tokens = input(draft)?;
        draft.set("dataset/turns/tokens", tokens);
    } else if mean > 1.0 {
        draft.carry_value("--session-turns-mean", "dataset/turns/max", number(mean));
        draft.note(
            "--session-turns-stddev",
            "the dataset determines the number of turns",
        );
    } else {
        draft.note(
            "--session-turns-mean --session-turns-stddev",
            "single turns",
        );
    }
    beginnings(draft)?;
    let flags = "--session-turn-delay-mean --session-turn-delay-stddev";
    let wait = draft.number("--session-turn-delay-mean")?;
    let sd = draft.number("--session-turn-delay-stddev")?.unwrap_or(0.0);
    let has_turns = draft.get("dataset/turns").is_some();
    if let Some(wait) = wait.filter(|wait| *wait > 0.0 && has_turns) {
        // In milliseconds.
        let wait = match sd > 0.0 {
            true => json!({ "normal": { "mean": seconds(wait / 1e3), "sd": seconds(sd / 1e3) } }),
            false => seconds(wait / 1e3),
        };
        draft.carry_value(flags, "dataset/turns/think_time", wait);
    } else {
        draft.note(flags, "only used between turns");
    }
    Ok(())
}
