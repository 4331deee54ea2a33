//! What `vllm bench serve`, `sglang.bench_serving` and the scripts that descend from them have in common.

use super::draft::Draft;
use super::text::per_second;
use super::{ImportError, number};
use serde_json::json;

/// The URL in front of the endpoint: `--base-url`, or `--host` and `--port`.
pub(super) fn base(draft: &mut Draft, port: f64) -> Result<String, ImportError> {
    let host = draft.text("--host").filter(|host| host != "0.0.0.0").unwrap_or_else(|| "127.0.0.1".into());
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    let port = draft.number("--port")?.unwrap_or(port);
    for flag in ["--base-url", "--host", "--port"] {
        draft.account(flag, &["target/url"]);
    }
    Ok(draft.text("--base-url").unwrap_or_else(|| format!("http://{host}:{port}")))
}

/// `--num-prompts`.
pub(super) fn requests(draft: &mut Draft) -> Result<f64, ImportError> {
    let amount = draft.number("--num-prompts")?.unwrap_or(1000.0);
    draft.put("load/requests", number(amount));
    draft.account("--num-prompts", &["load/requests"]);
    Ok(amount)
}

/// `--num-prompts` at `--request-rate`, by `--max-concurrency` users, or all at once.
pub(super) fn load(draft: &mut Draft) -> Result<(), ImportError> {
    let rate = draft.number("--request-rate")?.filter(|rate| rate.is_finite());
    let users = draft.number("--max-concurrency")?;
    requests(draft)?;
    match (rate, users) {
        (Some(rate), users) => {
            draft.put("load/rate", per_second(rate));
            draft.account("--request-rate", &["load/rate"]);
            burstiness(draft)?;
            if users.is_some() {
                draft.note("--max-concurrency", "an open loop sends when a request is due; a cap that holds requests back would hide the wait from every latency");
            }
        }
        (None, Some(users)) => {
            draft.put("load/concurrency", number(users));
            draft.account("--max-concurrency", &["load/concurrency"]);
            draft.note("--request-rate", "no limit: a closed loop");
        }
        (None, None) => {
            draft.put("load/rate", "burst");
            draft.account("--request-rate", &["load/rate"]);
        }
    }
    Ok(())
}

/// The shape of arrivals: 1 is Poisson.
pub(super) fn burstiness(draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(shape) = draft.number("--burstiness")?.filter(|shape| *shape != 1.0) {
        draft.put("load/arrivals", json!({ "gamma": number(shape) }));
        draft.account("--burstiness", &["load/arrivals"]);
    }
    Ok(())
}

/// `--goodput ttft:500 tpot:40`: reported, and no objective, since these tools require no share.
pub(super) fn goodput(draft: &mut Draft, tool: &str) -> Result<(), ImportError> {
    let pairs = draft.texts("--goodput");
    let mut limits = Vec::new();
    for pair in &pairs {
        let parsed = pair.split_once(':').and_then(|(metric, value)| Some((metric, value.parse::<f64>().ok()?)));
        match parsed {
            Some((metric @ ("ttft" | "tpot"), value)) => limits.push(format!("{metric} <= {value}ms")),
            Some(("e2el", value)) => limits.push(format!("e2e <= {value}ms")),
            _ => return Err(draft.wrong("--goodput", pair, "METRIC:MILLISECONDS of ttft, tpot or e2el")),
        }
    }
    if !limits.is_empty() {
        draft.limit(format!("goodput({}) >= 0%", limits.join(", ")));
        draft.account("--goodput", &["slo"]);
        draft.note("--goodput", format!("{tool} asks for no share: raise the 0 % to make it a gate"));
    }
    Ok(())
}
