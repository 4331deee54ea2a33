//! The load of `evalscope perf`, and its search for the load that a service level allows.

use super::dataset;
use crate::import::draft::Draft;
use crate::import::text::{per_second, seconds};
use crate::import::{ImportError, number};
use serde_json::{Value, json};

/// `--parallel`, `--rate`, `--number` and what bounds them.
pub(super) fn load(draft: &mut Draft) -> Result<(), ImportError> {
    let (rates, users) = (draft.numbers("--rate")?, draft.numbers("--parallel")?);
    if draft.get("dataset/kind").and_then(Value::as_str) == Some("trace") {
        return replay(draft);
    }
    if let Some(wrong) = rates.iter().find(|rate| **rate <= 0.0 && **rate != -1.0) {
        return Err(draft.wrong("--rate", &wrong.to_string(), "a rate above 0, or -1 for no rate limit"));
    }
    let open = draft.truth("--open-loop") || rates.iter().any(|rate| *rate > 0.0);
    let counts = draft.numbers("--number")?;
    let amount = if dataset::talks(draft) { "load.sessions" } else { "load.requests" };
    let (dial, levels): (&str, Vec<Value>) = if open {
        if let Some(wrong) = rates.iter().find(|rate| **rate <= 0.0) {
            return Err(draft.wrong("--rate", &wrong.to_string(), "a rate above 0 for an open loop"));
        }
        ("load.rate", rates.iter().map(|rate| per_second(*rate)).collect())
    } else {
        ("load.concurrency", users.iter().map(|users| number(*users)).collect())
    };
    if open && levels.is_empty() {
        return Err(ImportError::Missing("--rate, which an open loop needs"));
    }
    let levels = if levels.is_empty() { vec![json!(1)] } else { levels };
    let counts: Vec<Value> = counts.into_iter().map(number).collect();
    let several = counts.len() > 1;
    if several && counts.len() != levels.len() {
        return Err(draft.wrong("--number", &counts.len().to_string(), "as many numbers as loads, or one"));
    }
    if several && counts.windows(2).any(|pair| pair.first() != pair.last()) {
        for (path, values) in [(dial, levels), (amount, counts)] {
            draft.put(&path.replace('.', "/"), values.first().cloned().unwrap_or_default());
            draft.put(&format!("matrix/zip/{path}"), values);
        }
    } else {
        draft.one_or_axis(&dial.replace('.', "/"), levels);
        draft.one_or_axis(&amount.replace('.', "/"), counts.into_iter().take(1).collect());
    }
    if draft.has("--scenario") {
        agentx(draft)?;
    } else if amount == "load.sessions" {
        draft.fill("--number", "load/sessions", 1000);
    } else {
        draft.fill("--number", "load/requests", 1000);
    }
    if !open {
        draft.fill("--parallel", "load/concurrency", 1);
    }
    say(draft, open, dial, amount);
    bounds(draft)
}

fn say(draft: &mut Draft, open: bool, dial: &str, amount: &str) {
    draft.account("--number", &[amount]);
    if open {
        draft.account("--rate", &[dial]);
        draft.account("--open-loop", &[dial]);
        draft.note("--parallel", "an open loop sends when a request is due; a cap that holds requests back would hide the wait");
        if !draft.has("--open-loop") {
            draft.note(
                "--rate",
                "an open loop: evalscope holds requests back behind --parallel, and their wait is in no latency of its",
            );
        }
    } else {
        draft.account("--parallel", &[dial]);
        draft.account("--rate", &[dial]);
        draft.note(
            "--rate",
            "no rate limit: evalscope submits all requests at once and keeps --parallel of them in flight, a closed loop",
        );
    }
}

/// `--dataset workload_trace`: requests leave when those of the log did.
fn replay(draft: &mut Draft) -> Result<(), ImportError> {
    draft.put("dataset/trace/layout", "workload");
    if draft.get("load/trace").is_none() {
        draft.put("load/trace", json!({}));
    }
    draft.carry_number("--number", "load/requests")?;
    draft.account("--open-loop", &["load/trace"]);
    for flag in ["--rate", "--parallel"] {
        draft.note(flag, "the log says when its requests arrive");
    }
    bounds(draft)
}

/// AgentX ends a run after half an hour, or a minute in its smoke mode.
fn agentx(draft: &mut Draft) -> Result<(), ImportError> {
    let smoke = draft.text("--scenario").is_some_and(|scenario| scenario.contains("\"smoke\""));
    if !draft.has("--number") {
        draft.fill("--duration", "load/duration", if smoke { "60s" } else { "1800s" });
    }
    Ok(())
}

fn bounds(draft: &mut Draft) -> Result<(), ImportError> {
    draft.carry_seconds("--duration", "load/duration")?;
    match draft.number("--warmup-num")? {
        Some(share) if share > 0.0 && share < 1.0 => {
            let number_of = draft.numbers("--number")?.first().copied().unwrap_or(1000.0);
            draft.put("load/warmup", number((share * number_of).floor().max(1.0)));
            draft.account("--warmup-num", &["load/warmup"]);
            draft.note("--warmup-num", "a share of the first --number");
        }
        Some(count) => {
            draft.put("load/warmup", number(count.max(0.0).floor()));
            draft.account("--warmup-num", &["load/warmup"]);
        }
        None => {}
    }
    draft.fill("--sleep-interval", "pause", "5s");
    draft.carry_seconds("--sleep-interval", "pause")
}

/// `--sla-auto-tune`: a capacity search.
pub(super) fn search(draft: &mut Draft) -> Result<(), ImportError> {
    let rate = draft.text("--sla-variable").is_some_and(|variable| variable == "rate");
    let vary = if rate { "load.rate" } else { "load.concurrency" };
    let start = draft.numbers(if rate { "--rate" } else { "--parallel" })?.first().copied().filter(|start| *start > 0.0);
    let (low, high) = (draft.number("--sla-lower-bound")?.unwrap_or(1.0), draft.number("--sla-upper-bound")?.unwrap_or(65_536.0));
    let start = start.unwrap_or(low).clamp(low, high);
    draft.put(&vary.replace('.', "/"), if rate { per_second(start) } else { number(start) });
    let multiplier = draft.number("--sla-number-multiplier")?.unwrap_or(2.0);
    match rate {
        // So many requests per unit of the rate are so many seconds.
        true => draft.put("load/duration", seconds(multiplier.max(1.0))),
        false => draft.put("load/requests", format!("{}x", multiplier.ceil().max(1.0))),
    }
    draft.account("--sla-number-multiplier", &[if rate { "load/duration" } else { "load/requests" }]);
    draft.put("search/vary", vary);
    draft.fill("--sla-upper-bound", "search/range", json!([number(low), number(high)]));
    draft.put("search/range", json!([number(low), number(high)]));
    draft.fill("--sla-num-runs", "search/confirm", 2);
    draft.put("search/confirm", number((draft.number("--sla-num-runs")?.unwrap_or(3.0) - 1.0).max(0.0)));
    draft.account("--sla-auto-tune", &["search"]);
    draft.account("--sla-variable", &["search/vary"]);
    draft.account(if rate { "--rate" } else { "--parallel" }, &["load"]);
    draft.note(if rate { "--rate" } else { "--parallel" }, "where the search begins");
    draft.note("--number", "a probe's length goes with its load");
    draft.account("--sla-lower-bound", &["search/range"]);
    draft.account("--sla-upper-bound", &["search/range"]);
    draft.account("--sla-num-runs", &["search/confirm"]);
    limits(draft)?;
    bounds(draft)
}

/// The criteria: `[{"p99_ttft": "<=2s"}]`.
fn limits(draft: &mut Draft) -> Result<(), ImportError> {
    let Some(groups) = draft.json("--sla-params")? else {
        return Err(ImportError::Missing("--sla-params, which an SLA search needs"));
    };
    let groups = match groups {
        Value::Array(groups) => groups,
        one => vec![one],
    };
    let many = groups.len() > 1;
    let mut aims = Vec::new();
    for group in groups.iter().take(1) {
        let Value::Object(criteria) = group else {
            return Err(draft.wrong("--sla-params", &group.to_string(), "an object of criteria"));
        };
        for (metric, limit) in criteria {
            let limit = limit.as_str().unwrap_or_default().trim().to_owned();
            match (subject(metric), limit.as_str()) {
                (Some(_), "max" | "min") => aims.push(metric.clone()),
                (Some((subject, unit)), limit) => {
                    draft.limit_point(expression(draft, &subject, unit, limit)?);
                    if unit == "ms" && limit.ends_with(|last: char| last.is_ascii_digit()) {
                        draft.note(
                            "--sla-params",
                            "a bare ttft or tpot is in milliseconds; before evalscope 1.14 it was in seconds",
                        );
                    }
                }
                (None, _) => {
                    return Err(draft.wrong("--sla-params", metric, "avg_ or p99_ of latency, ttft or tpot, or rps or tps"));
                }
            }
        }
    }
    draft.account("--sla-params", &["slo"]);
    if many {
        draft.note("--sla-params", "the first group alone: each further one is a search of its own, in a file of its own");
    } else if !aims.is_empty() {
        draft.note(
            "--sla-params",
            format!("{} has no threshold to search for; the largest load without errors is what is found", aims.join(" and ")),
        );
    }
    // A probe with a failed request is one that does not meet the criteria.
    draft.limit_point("error_rate <= 0%".into());
    Ok(())
}

/// The metric as a limit names it, and the unit of a bare value.
fn subject(metric: &str) -> Option<(String, &'static str)> {
    match metric {
        "rps" => return Some(("request_throughput".into(), "req/s")),
        "tps" => return Some(("output_tps".into(), "tok/s")),
        _ => {}
    }
    let (stat, metric) = metric.split_once('_')?;
    let stat = match stat {
        "avg" => "mean",
        "p50" | "p90" | "p99" => stat,
        _ => return None,
    };
    let (metric, unit) = match metric {
        "latency" => ("e2e", "s"),
        "ttft" => ("ttft", "ms"),
        "tpot" => ("tpot", "ms"),
        _ => return None,
    };
    Some((format!("{metric}.{stat}"), unit))
}

fn expression(draft: &Draft, subject: &str, unit: &str, limit: &str) -> Result<String, ImportError> {
    let op = ["<=", ">=", "<", ">"].into_iter().find(|op| limit.starts_with(op));
    let Some(op) = op else { return Err(draft.wrong("--sla-params", limit, "a limit such as <=2s")) };
    let value = limit.trim_start_matches(op).trim();
    let bare = value.parse::<f64>().is_ok();
    Ok(if bare {
        format!("{subject} {op} {value}{}{unit}", if unit.contains('/') { " " } else { "" })
    } else {
        format!("{subject} {op} {value}")
    })
}
