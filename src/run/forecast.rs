//! What can be said of a run before it: how much, how long, what first, and what can never be decided.

use crate::judge;
use crate::model::check::{Check, Subject};
use crate::model::load::{Arrival, Load, Shape, Warmup};
use crate::model::plan::{Case, Plan};
use crate::prompts::{self, CacheDir};
use crate::run::error::RunError;
use crate::scenario::render::Renderer;
use crate::wire::protocol;

/// A plan's outlook.
pub struct Forecast {
    /// Requests over all cases and rounds, in words.
    pub requests: String,
    /// Time over all cases, rounds and pauses, in words.
    pub time: String,
    /// The first request's body, indented.
    pub first_body: String,
    /// Assertions that can never pass with the planned number of requests.
    pub undecidable: Vec<String>,
}

/// The outlook of a plan. Datasets are opened for the first body; nothing is sent.
pub fn forecast(plan: &Plan, cache: &CacheDir) -> Result<Forecast, RunError> {
    Ok(Forecast {
        requests: requests(plan),
        time: time(plan),
        first_body: first_body(plan, cache)?,
        undecidable: undecidable(plan),
    })
}

fn requests(plan: &Plan) -> String {
    let known: u64 = plan.cases.iter().filter_map(|case| case.load.planned()).sum::<u64>() * u64::from(plan.rounds);
    let open = plan.cases.iter().filter(|case| case.load.planned().is_none()).count();
    match (known, open) {
        (known, 0) if plan.cases.iter().any(by_chance) => format!("about {known} (warm-up included)"),
        (known, 0) => format!("{known} (warm-up included)"),
        (0, _) => "as many as the durations allow".into(),
        (known, open) => format!("{known} and as many as the durations of {open} cases allow"),
    }
}

/// Whether random arrivals over a span of time set the number.
fn by_chance(case: &Case) -> bool {
    let random = matches!(case.load.shape, Shape::Open { arrival, .. } if arrival != Arrival::Constant);
    random && (case.load.duration.is_some() || matches!(case.load.warmup, Warmup::Span(_)))
}

/// Durations and arrival plans are known; how long a counted closed loop takes is the server's secret.
fn time(plan: &Plan) -> String {
    let runs = plan.cases.len() as u32 * plan.rounds;
    let pauses = plan.pause.secs() * f64::from(runs.saturating_sub(1));
    let known: f64 = plan.cases.iter().filter_map(seconds).sum::<f64>() * f64::from(plan.rounds) + pauses;
    let open = plan.cases.iter().filter(|case| seconds(case).is_none()).count();
    match open {
        0 => format!("about {}", span(known)),
        _ if known > 0.0 => format!("{} and what the server needs for {open} cases", span(known)),
        _ => "what the server needs".into(),
    }
}

fn seconds(case: &Case) -> Option<f64> {
    let warm = match case.load.warmup {
        Warmup::Span(span) => span.secs(),
        Warmup::Requests(_) => 0.0,
    };
    let by_rate = match case.load.shape {
        Shape::Open { rate, .. } => case.load.planned().map(|n| n as f64 / rate),
        Shape::Closed { .. } | Shape::Burst | Shape::Replay { .. } => None,
    };
    by_rate.or(case.load.duration.map(|duration| duration.secs() + warm))
}

fn span(seconds: f64) -> String {
    match seconds.round() as u64 {
        total if total >= 3600 => format!("{} h {} min", total / 3600, total % 3600 / 60),
        total if total >= 60 => format!("{} min {} s", total / 60, total % 60),
        total => format!("{total} s"),
    }
}

fn first_body(plan: &Plan, cache: &CacheDir) -> Result<String, RunError> {
    let Some(case) = plan.cases.first() else { return Err(RunError::NothingToSend) };
    let opened = prompts::open(&case.dataset, plan.seed, 0, cache, &|_| {})?;
    let protocol = protocol(case.target.api, case.request.extract.as_ref()).map_err(RunError::Protocol)?;
    let renderer = Renderer::new(case, &protocol.body(case.request.stream))?;
    let seed = plan.seed.child(case.id.as_str()).child(0u64);
    let prompt = opened.prompts.session(0).and_then(|session| session.turns.into_iter().next()).ok_or(RunError::NothingToSend)?;
    let body = renderer.body(&prompt, 0, seed)?.bytes;
    let indented = serde_json::from_slice::<serde_json::Value>(&body).map(|value| format!("{value:#}"));
    Ok(indented.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned()))
}

/// One line for each assertion that takes more requests to pass than its case will measure.
pub fn undecidable(plan: &Plan) -> Vec<String> {
    let lines = plan.cases.iter().flat_map(|case| {
        case.checks.iter().filter_map(move |check| {
            let (needed, most) = (judge::needed(check)?, measured_at_most(&case.load, rounds_of(check, plan.rounds))?);
            (needed > most).then(|| {
                format!(
                    "`{}` can never pass in `{}`: that takes {needed} requests, at most {most} will be measured",
                    check.expr, case.id
                )
            })
        })
    });
    lines.collect()
}

/// The rounds whose requests a check is about.
fn rounds_of(check: &Check, rounds: u32) -> u32 {
    match &check.subject {
        Subject::Metric { tags, .. } if tags.iter().any(|(tag, _)| tag == "round") => 1,
        Subject::Metric { .. } | Subject::Goodput(_) => rounds,
    }
}

/// Requests that so many rounds measure at the most, where the plan bounds their number. Random arrivals are granted four
/// standard deviations more than their mean.
fn measured_at_most(load: &Load, rounds: u32) -> Option<u64> {
    let by_time = load.duration.and_then(|duration| {
        let Shape::Open { rate, arrival } = load.shape else { return None };
        let mean = rate * duration.secs() * f64::from(rounds);
        let spread = match arrival {
            Arrival::Constant => 0.0,
            Arrival::Poisson => mean.sqrt(),
            Arrival::Gamma { burstiness } => (mean / burstiness).sqrt(),
        };
        Some((mean + 4.0 * spread).ceil() as u64)
    });
    let by_count = load.requests.map(|count| count * u64::from(rounds));
    by_count.into_iter().chain(by_time).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Input, load};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn plan(load_section: &str, rounds: u32, slo: &[&str]) -> Plan {
        let slo: String = slo
            .iter()
            .map(|expr| format!("\n  - {}", if expr.starts_with('{') { expr.to_string() } else { format!("{expr:?}") }))
            .collect();
        let text = format!(
            "version: 1\nname: x\ntarget: {{ url: simulator }}\ndataset: {{ kind: prompt, text: x }}\n\
             load: {{ {load_section} }}\nrounds: {rounds}\nslo:{}",
            if slo.is_empty() { " []" } else { &slo }
        );
        load(&Input { path: Path::new("x.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] }).unwrap().plan
    }

    #[test]
    fn what_cannot_pass_is_said_for_each_kind_of_limit() {
        let limits = [
            "ttft.p99 < 1s",
            "decode_tps.p1 > 5",
            "goodput(ttft < 1s) >= 99%",
            "error_rate < 1%",
            "{ expr: ttft.p95 < 1s, confidence: 0.9999 }",
            "ttft{round=1}.p97 < 1s",
            "ttft.p98 < 1s",
            "{ expr: ttft.p99 < 2s, confidence: point }",
            "ttft.max < 1s",
            "error_rate <= 0%",
            "itl.p99 < 1s",
        ];
        let seen = undecidable(&plan("concurrency: 2, requests: 80", 2, &limits));
        let known = [
            "`ttft.p99 < 1s` can never pass in `base`: that takes 299 requests, at most 160 will be measured",
            "`decode_tps.p1 > 5` can never pass in `base`: that takes 299 requests, at most 160 will be measured",
            "`goodput(ttft < 1s) >= 99%` can never pass in `base`: that takes 299 requests, at most 160 will be measured",
            "`error_rate < 1%` can never pass in `base`: that takes 299 requests, at most 160 will be measured",
            "`ttft.p95 < 1s` can never pass in `base`: that takes 180 requests, at most 160 will be measured",
            "`ttft{round=1}.p97 < 1s` can never pass in `base`: that takes 99 requests, at most 80 will be measured",
        ];
        assert_eq!(seen, known);
    }

    #[test]
    fn arrivals_bound_the_number_too() {
        let count = |load: &str| undecidable(&plan(load, 1, &["ttft.p99 < 1s"])).concat();
        assert!(count("rate: 29/s, duration: 10s, arrivals: constant").ends_with("at most 290 will be measured"));
        assert!(count("rate: 10/s, duration: 10s").ends_with("at most 140 will be measured"));
        assert!(count("rate: 10/s, duration: 10s, arrivals: { gamma: 0.25 }").ends_with("at most 180 will be measured"));
        assert!(count("rate: 100/s, duration: 10s, requests: 50").ends_with("at most 50 will be measured"));
        assert_eq!([count("rate: 29/s, duration: 10s"), count("concurrency: 1, duration: 1s")], ["", ""]);
    }

    #[test]
    fn a_number_that_chance_decides_is_called_about() {
        assert_eq!(requests(&plan("concurrency: 2, requests: 80, warmup: 4", 2, &[])), "168 (warm-up included)");
        assert_eq!(requests(&plan("rate: 10/s, duration: 2s", 1, &[])), "about 20 (warm-up included)");
        assert_eq!(requests(&plan("rate: 10/s, duration: 2s, arrivals: constant", 1, &[])), "20 (warm-up included)");
        assert_eq!(requests(&plan("concurrency: 1, duration: 2s", 1, &[])), "as many as the durations allow");
    }
}
