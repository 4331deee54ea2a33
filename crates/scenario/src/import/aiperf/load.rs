//! How hard `aiperf profile` pushes, and what it holds the answers against.

use crate::import::draft::Draft;
use crate::import::text::{per_second, seconds};
use crate::import::{ImportError, number};
use serde_json::json;

/// The load.
pub(super) fn load(draft: &mut Draft) -> Result<(), ImportError> {
    let (users, rates) = (draft.numbers("--concurrency")?, draft.numbers("--request-rate")?);
    let replayed = draft.get("dataset/kind").is_some_and(|kind| kind == "trace");
    if draft.truth("--fixed-schedule") || replayed && rates.is_empty() && users.is_empty() {
        replay(draft)?;
    } else if !rates.is_empty() {
        open(draft, rates)?;
        draft.note(
            "--concurrency",
            "an open loop sends when a request is due; a cap that holds requests back would hide the wait",
        );
    } else {
        let users = if users.is_empty() { vec![1.0] } else { users };
        draft.one_or_axis("load/concurrency", users.into_iter().map(number).collect());
        draft.account("--concurrency", &["load/concurrency"]);
        draft.carry_seconds("--concurrency-ramp-duration", "load/spread")?;
        draft.note("--arrival-pattern", "a closed loop has no arrivals of its own");
    }
    ends(draft)?;
    if let Some(rounds) = draft.number("--num-profile-runs")? {
        draft.put("rounds", number(rounds));
        draft.account("--num-profile-runs", &["rounds"]);
    }
    draft.carry_seconds("--profile-run-cooldown-seconds", "pause")?;
    cancel(draft)
}

fn replay(draft: &mut Draft) -> Result<(), ImportError> {
    draft.put("load/trace", json!({}));
    draft.account("--fixed-schedule", &["load/trace"]);
    draft.carry_number("--replay-speedup", "load/trace/speed")?;
    for (flag, path) in
        [("--fixed-schedule-start-offset", "dataset/trace/start"), ("--fixed-schedule-end-offset", "dataset/trace/end")]
    {
        if let Some(offset) = draft.number(flag)? {
            draft.put(path, seconds(offset / 1e3));
            draft.account(flag, &[path]);
        }
    }
    Ok(())
}

fn open(draft: &mut Draft, rates: Vec<f64>) -> Result<(), ImportError> {
    draft.one_or_axis("load/rate", rates.into_iter().map(per_second).collect());
    draft.account("--request-rate", &["load/rate"]);
    let shape = draft.number("--arrival-smoothness")?;
    match draft.text("--arrival-pattern").as_deref() {
        Some("constant") => draft.put("load/arrivals", "constant"),
        Some("gamma") => draft.put("load/arrivals", json!({ "gamma": number(shape.unwrap_or(1.0)) })),
        Some("concurrency_burst") => {
            return Err(draft.wrong("--arrival-pattern", "concurrency_burst", "constant, poisson or gamma with a rate"));
        }
        _ => {}
    }
    draft.account("--arrival-pattern", &["load/arrivals"]);
    draft.account("--arrival-smoothness", &["load/arrivals"]);
    Ok(())
}

fn ends(draft: &mut Draft) -> Result<(), ImportError> {
    draft.carry_seconds("--benchmark-duration", "load/duration")?;
    draft.carry_seconds("--benchmark-grace-period", "load/graceful_stop")?;
    draft.carry_number("--request-count", "load/requests")?;
    if let Some(count) = draft.number("--num-conversations")? {
        let path = if draft.get("dataset/turns").is_some() { "load/sessions" } else { "load/requests" };
        if draft.get("load/requests").is_none() {
            draft.put(path, number(count));
            draft.account("--num-conversations", &[path]);
        }
    }
    let endless = ["load/duration", "load/requests", "load/sessions", "load/trace"].iter().all(|path| draft.get(path).is_none());
    if endless {
        // AIPerf's own: ten requests for each user, and ten at the least.
        let closed = draft.get("load/concurrency").is_some() || draft.get("matrix/load.concurrency").is_some();
        draft.put("load/requests", if closed { json!("10x") } else { json!(10) });
    }
    draft.carry_number("--warmup-request-count", "load/warmup")?;
    draft.carry_seconds("--warmup-duration", "load/warmup")
}

fn cancel(draft: &mut Draft) -> Result<(), ImportError> {
    let Some(share) = draft.number("--request-cancellation-rate")?.filter(|share| *share > 0.0) else { return Ok(()) };
    draft.put("request/cancel/share", format!("{share}%"));
    draft.put("request/cancel/after", seconds(draft.number("--request-cancellation-delay")?.unwrap_or(0.0).max(0.001)));
    draft.account("--request-cancellation-rate", &["request/cancel/share"]);
    draft.account("--request-cancellation-delay", &["request/cancel/after"]);
    Ok(())
}

/// `--goodput`, and the limits of its search recipes.
pub(super) fn limits(draft: &mut Draft) -> Result<(), ImportError> {
    let mut limits = Vec::new();
    for pair in draft.texts("--goodput").iter().flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()) {
        let parsed = pair.split_once(':').and_then(|(metric, value)| Some((metric, value.parse::<f64>().ok()?)));
        limits.push(match parsed {
            Some(("time_to_first_token" | "ttft", value)) => format!("ttft <= {value}ms"),
            Some(("inter_token_latency" | "itl", value)) => format!("tpot <= {value}ms"),
            Some(("request_latency", value)) => format!("e2e <= {value}ms"),
            Some(("output_token_throughput_per_user", value)) => format!("decode_tps >= {value} tok/s"),
            _ => return Err(draft.wrong(
                "--goodput",
                &pair,
                "METRIC:VALUE of time_to_first_token, inter_token_latency, request_latency or output_token_throughput_per_user",
            )),
        });
    }
    if !limits.is_empty() {
        draft.limit(format!("goodput({}) >= 0%", limits.join(", ")));
        draft.account("--goodput", &["slo"]);
        draft.note("--goodput", "AIPerf asks for no share: raise the 0 % to make it a gate; its inter_token_latency is TPOT");
    }
    for (flag, metric) in
        [("--ttft-sla-ms", "ttft.p99"), ("--itl-sla-ms", "tpot.p99"), ("--tpot-sla-ms", "tpot.p99"), ("--e2e-sla-ms", "e2e.p99")]
    {
        if let Some(limit) = draft.number(flag)? {
            draft.limit(format!("{metric} <= {limit}ms"));
            draft.account(flag, &["slo"]);
        }
    }
    if let Some(share) = draft.number("--error-rate-sla")? {
        draft.limit(format!("error_rate <= {}%", share * 100.0));
        draft.account("--error-rate-sla", &["slo"]);
    }
    search(draft)
}

fn search(draft: &mut Draft) -> Result<(), ImportError> {
    if !draft.has("--search-recipe") {
        for flag in ["--concurrency-min", "--concurrency-max"] {
            draft.note(flag, "it belongs to a search recipe");
        }
        return Ok(());
    }
    let low = draft.number("--concurrency-min")?.unwrap_or(1.0);
    let high = draft.number("--concurrency-max")?.unwrap_or(1024.0);
    draft.put("search", json!({ "vary": "load.concurrency", "range": [number(low), number(high)] }));
    draft.put("load/concurrency", number(low));
    draft.account("--search-recipe", &["search"]);
    draft.account("--concurrency-min", &["search/range"]);
    draft.account("--concurrency-max", &["search/range"]);
    draft.note("--search-recipe", "the largest number of users at which every limit of `slo` holds");
    if draft.get("slo").is_none() {
        return Err(ImportError::Missing("limit for its search recipe, such as --ttft-sla-ms"));
    }
    Ok(())
}
