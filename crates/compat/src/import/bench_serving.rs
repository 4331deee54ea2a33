//! The common parts of `sglang.bench_serving`, `vllm bench serve` and LMDeploy's `profile_restful_api.py`.

use crate::import::draft::{Draft, between, join, number, per_second, seconds};
use crate::import::flags::ImportError;
use serde_json::{Value, json};

/// What differs between the scripts.
pub(super) struct Script {
    /// Default name of the scenario.
    pub name: &'static str,
    /// The seed without `--seed`.
    pub seed: i64,
    /// Default input and output tokens of `random`; None: the flags are required.
    pub length: Option<f64>,
}

/// The target: `--backend` at `--base-url`, or at its own port.
pub(super) fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let backend = draft.text("--backend").unwrap_or_else(|| "sglang".into());
    let pictures = draft.text("--dataset-name").as_deref() == Some("image");
    let native = matches!(backend.as_str(), "sglang" | "sglang-native");
    let (api, endpoint) = match backend.as_str() {
        "sglang" | "sglang-native" if pictures => ("openai-chat", "v1/chat/completions"),
        "sglang" | "sglang-native" | "sglang-oai" | "vllm" | "lmdeploy" => {
            ("openai-completions", "v1/completions")
        }
        "sglang-oai-chat" | "vllm-chat" | "lmdeploy-chat" => ("openai-chat", "v1/chat/completions"),
        "sglang-embedding" | "vllm-embedding" => ("openai-embeddings", "v1/embeddings"),
        other => {
            return Err(draft.invalid(
                "--backend",
                other,
                "sglang, sglang-oai, vllm or lmdeploy, their -chat forms, or an -embedding form; \
                use others as `api: custom`",
            ));
        }
    };
    let port = match backend.as_str() {
        name if name.starts_with("lmdeploy") => 23_333.0,
        name if name.starts_with("vllm") => 8000.0,
        _ => 30_000.0,
    };
    let base = base(draft, port)?;
    draft.carry_value("--backend", "target/api", api);
    draft.set("target/url", join(&base, endpoint));
    if native {
        draft.note(
            "--backend",
            format!("the server's /{endpoint} instead of its /generate"),
        );
    }
    // The tools wait six hours for a response.
    for path in ["target/timeouts/read", "target/timeouts/total"] {
        draft.set_default("--total-timeout", path, seconds(21_600.0));
    }
    Ok(())
}

pub(super) fn request(draft: &mut Draft, script: &Script) -> Result<(), ImportError> {
    draft.carry_value(
        "--seed",
        "seed",
        number(draft.number("--seed")?.unwrap_or(0.0).max(0.0)),
    );
    draft.set_default("--seed", "seed", script.seed);
    if draft.get("target/api").and_then(Value::as_str) == Some("openai-embeddings") {
        return draft.extra("--extra-request-body");
    }
    draft.carry_number_or("--temperature", "request/temperature", 0.0)?;
    draft.carry_number("--top-p", "request/top_p")?;
    draft.set_default("--disable-ignore-eos", "request/ignore_eos", true);
    draft.account("--disable-ignore-eos", &["request/ignore_eos"]);
    if draft.has("--disable-ignore-eos") {
        draft.set("request/ignore_eos", false);
    }
    draft.carry_switch("--disable-stream", "request/stream", false);
    draft.extra("--extra-request-body")
}

/// The dataset and the output lengths; `source` is the flag of the file.
pub(super) fn dataset(
    draft: &mut Draft,
    script: &Script,
    source: &'static str,
) -> Result<(), ImportError> {
    let dataset = draft
        .text("--dataset-name")
        .unwrap_or_else(|| "sharegpt".into());
    let embeds = draft.get("target/api").and_then(Value::as_str) == Some("openai-embeddings");
    let kind = match dataset.as_str() {
        _ if embeds => "embeddings",
        "sharegpt" | "custom" => "sharegpt",
        "openai" => "line_by_line",
        "random" | "random-ids" => "random",
        "image" => "images",
        "generated-shared-prefix" => "prefix",
        "mooncake" => "trace",
        other => {
            return Err(draft.invalid(
                "--dataset-name",
                other,
                "sharegpt, random, random-ids, custom, openai, image, generated-shared-prefix or \
                mooncake; use other datasets as a file with `kind: rows`",
            ));
        }
    };
    draft.carry_value("--dataset-name", "dataset/kind", kind);
    match kind {
        "random" | "images" => drawn(draft, kind, script)?,
        "prefix" => prefix(draft)?,
        _ => file(draft, kind, source)?,
    }
    match kind {
        "random" | "images" | "prefix" => draft.note(source, "the prompts are drawn from the seed"),
        _ => {}
    }
    if !matches!(kind, "prefix" | "embeddings") {
        draft.carry_number("--sharegpt-output-len", "request/max_tokens")?;
    }
    Ok(())
}

fn file(draft: &mut Draft, kind: &str, source: &'static str) -> Result<(), ImportError> {
    draft.carry(source, "dataset/path");
    if !draft.has(source) {
        if !matches!(kind, "sharegpt" | "embeddings") {
            return Err(ImportError::Missing(source));
        }
        draft.set_default(source, "dataset/path", "builtin");
        draft.note(
            "--dataset-name",
            "a small sample that ships with llmscen; set `dataset.path` for the full dataset",
        );
    }
    match kind {
        "trace" => {
            draft.set("dataset/trace/layout", "mooncake");
            draft.set("load/trace", json!({}));
            if let Some(slower) = draft
                .number("--mooncake-slowdown-factor")?
                .filter(|slower| *slower > 0.0)
            {
                draft.carry_value(
                    "--mooncake-slowdown-factor",
                    "load/trace/speed",
                    number(1.0 / slower),
                );
            }
            draft.account("--use-trace-timestamps", &["load/trace"]);
        }
        "sharegpt" => {
            draft.set("dataset/order", "shuffle");
            if !draft.has("--sharegpt-output-len") {
                // The tools limit each reply to the length of that in the row.
                draft.recorded_output();
            }
            if draft.has("--sharegpt-context-len") {
                draft.carry_number("--sharegpt-context-len", "dataset/prompt_tokens/max")?;
                draft.note(
                    "--sharegpt-context-len",
                    "only the prompt is compared with it, not prompt and reply",
                );
            }
        }
        _ => {}
    }
    Ok(())
}

/// Lengths are uniform from `--random-range-ratio` × length to length.
fn drawn(draft: &mut Draft, kind: &str, script: &Script) -> Result<(), ImportError> {
    let ratio = draft.number("--random-range-ratio")?.unwrap_or(0.0);
    let lengths = [
        ("--random-input-len", "dataset/tokens"),
        ("--random-output-len", "request/max_tokens"),
    ];
    for (flag, path) in lengths
        .into_iter()
        .filter(|(_, path)| kind == "random" || *path == "request/max_tokens")
    {
        let given = draft.number(flag)?;
        let length = given.or(script.length).ok_or(ImportError::Missing(flag))?;
        draft.carry_or_default(flag, path, ranged(length, ratio));
        draft.account("--random-range-ratio", &[path]);
    }
    if kind == "random" {
        draft.note(
            "--random-range-ratio",
            "uniform from that share of the length to the length",
        );
        return Ok(());
    }
    draft.note(
        "--random-input-len",
        "the text next to the images is `dataset.text`",
    );
    let resolution = draft
        .text("--image-resolution")
        .unwrap_or_else(|| "1080p".into());
    let sizes = sizes(&resolution).ok_or_else(|| {
        draft.invalid(
            "--image-resolution",
            &resolution,
            "4k, 1080p, 720p, 360p, HEIGHTxWIDTH or random:HxW-HxW",
        )
    })?;
    draft.set("dataset/sizes", sizes);
    draft.set_default("--image-resolution", "dataset/sizes", json!(["1920x1080"]));
    draft.account("--image-resolution", &["dataset/sizes"]);
    if resolution.starts_with("random:") {
        draft.note("--image-resolution", "the two bounds alternate");
    }
    draft.carry_number("--image-count", "dataset/count")
}

fn ranged(length: f64, ratio: f64) -> Value {
    between((length * ratio).floor().max(1.0), length)
}

/// Sizes as width × height; the tool writes the height first.
fn sizes(resolution: &str) -> Option<Vec<String>> {
    let swapped = |text: &str| {
        let (height, width) = text.split_once('x')?;
        Some(format!(
            "{}x{}",
            width.parse::<u32>().ok()?,
            height.parse::<u32>().ok()?
        ))
    };
    Some(match resolution {
        "4k" => vec!["3840x2160".into()],
        "1080p" => vec!["1920x1080".into()],
        "720p" => vec!["1280x720".into()],
        "360p" => vec!["640x360".into()],
        other => match other
            .strip_prefix("random:")
            .and_then(|bounds| bounds.split_once('-'))
        {
            Some((low, high)) => vec![swapped(low)?, swapped(high)?],
            None => vec![swapped(other)?],
        },
    })
}

/// `generated-shared-prefix`: groups × prompts per group requests.
fn prefix(draft: &mut Draft) -> Result<(), ImportError> {
    for (flag, path, default) in [
        ("--gsp-num-groups", "dataset/groups", 64.0),
        ("--gsp-prompts-per-group", "dataset/per_group", 16.0),
        ("--gsp-system-prompt-len", "dataset/prefix_tokens", 2048.0),
    ] {
        draft.carry_number_or(flag, path, default)?;
    }
    let ratio = draft.number("--gsp-range-ratio")?.unwrap_or(1.0);
    for (flag, path, default) in [
        ("--gsp-question-len", "dataset/tokens", 128.0),
        ("--gsp-output-len", "request/max_tokens", 256.0),
    ] {
        let length = draft.number(flag)?.unwrap_or(default);
        draft.carry_or_default(flag, path, ranged(length, ratio));
        draft.account("--gsp-range-ratio", &[path]);
    }
    if let Some(turns) = draft
        .number("--gsp-num-turns")?
        .filter(|turns| *turns > 1.0)
    {
        let question = draft.get("dataset/tokens").cloned().unwrap_or_default();
        draft.carry_value("--gsp-num-turns", "dataset/turns/count", number(turns));
        draft.set("dataset/turns/tokens", question);
    }
    draft.note("--gsp-num-turns", "a conversation of real replies");
    Ok(())
}

/// The URL in front of the endpoint: `--base-url`, or `--host` and `--port`.
pub(super) fn base(draft: &mut Draft, port: f64) -> Result<String, ImportError> {
    let host = draft
        .text("--host")
        .filter(|host| host != "0.0.0.0")
        .unwrap_or_else(|| "127.0.0.1".into());
    let host = if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host
    };
    let port = draft.number("--port")?.unwrap_or(port);
    draft.account("--base-url --host --port", &["target/url"]);
    Ok(draft
        .text("--base-url")
        .unwrap_or_else(|| format!("http://{host}:{port}")))
}

/// `--num-prompts`.
pub(super) fn requests(draft: &mut Draft) -> Result<f64, ImportError> {
    let amount = draft.number("--num-prompts")?.unwrap_or(1000.0);
    draft.carry_value("--num-prompts", "load/requests", number(amount));
    Ok(amount)
}

/// `--num-prompts` at `--request-rate`, by `--max-concurrency` users, or all at once.
pub(super) fn load(draft: &mut Draft) -> Result<(), ImportError> {
    let rate = draft.finite("--request-rate")?;
    let users = draft.number("--max-concurrency")?;
    requests(draft)?;
    match (rate, users) {
        (Some(rate), _) => {
            draft.carry_value("--request-rate", "load/rate", per_second(rate));
            burstiness(draft)?;
            draft.carry_cap("--max-concurrency")?;
        }
        (None, Some(users)) => {
            draft.carry_value("--max-concurrency", "load/concurrency", number(users));
            draft.note("--request-rate", "no rate limit: a closed loop");
        }
        (None, None) => {
            draft.carry_value("--request-rate", "load/rate", "burst");
        }
    }
    Ok(())
}

/// The shape of the gamma distribution of arrivals; 1 is Poisson.
pub(super) fn burstiness(draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(shape) = draft.number("--burstiness")?.filter(|shape| *shape != 1.0) {
        draft.carry_value(
            "--burstiness",
            "load/arrivals",
            json!({ "gamma": number(shape) }),
        );
    }
    Ok(())
}

/// `--goodput ttft:500 tpot:40`. The tools only report it, so the required share is 0 %.
pub(super) fn goodput(draft: &mut Draft, tool: &str) -> Result<(), ImportError> {
    let pairs = draft.texts("--goodput");
    let mut limits = Vec::new();
    for pair in &pairs {
        let parsed = pair
            .split_once(':')
            .and_then(|(metric, value)| Some((metric, value.parse::<f64>().ok()?)));
        match parsed {
            Some((metric @ ("ttft" | "tpot"), value)) => {
                limits.push(format!("{metric} <= {value}ms"))
            }
            Some(("e2el", value)) => limits.push(format!("e2e <= {value}ms")),
            _ => {
                return Err(draft.invalid(
                    "--goodput",
                    pair,
                    "METRIC:MILLISECONDS of ttft, tpot or e2el",
                ));
            }
        }
    }
    if !limits.is_empty() {
        draft.add_limit(format!("goodput({}) >= 0%", limits.join(", ")));
        draft.account("--goodput", &["slo"]);
        draft.note(
            "--goodput",
            format!("{tool} requires no share: raise the 0 % to make it a gate"),
        );
    }
    Ok(())
}
