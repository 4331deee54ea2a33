//! What can be said of a run before it: how much, how long, what first, and what can never be decided.

use crate::judge;
use crate::model::load::{Shape, Warmup};
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
    /// Assertions that the planned number of requests can never decide.
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
        (known, 0) => format!("{known} (warm-up included)"),
        (0, _) => "as many as the durations allow".into(),
        (known, open) => format!("{known} and as many as the durations of {open} cases allow"),
    }
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
        Shape::Closed { .. } | Shape::Burst => None,
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
    let renderer = Renderer::new(case, &protocol(case.target.api).body(case.request.stream))?;
    let seed = plan.seed.child(case.id.as_str()).child(0u64);
    let prompt = opened.prompts.session(0).and_then(|session| session.turns.into_iter().next()).ok_or(RunError::NothingToSend)?;
    let body = renderer.body(&prompt, 0, seed)?.bytes;
    let indented = serde_json::from_slice::<serde_json::Value>(&body).map(|value| format!("{value:#}"));
    Ok(indented.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned()))
}

/// One line for each assertion that needs more requests than its case will measure.
pub fn undecidable(plan: &Plan) -> Vec<String> {
    let lines = plan.cases.iter().flat_map(|case| {
        let measured = case.load.requests.map(|n| n * u64::from(plan.rounds));
        case.checks.iter().filter_map(move |check| {
            let (needed, measured) = (judge::needed(check)?, measured?);
            (needed > measured).then(|| {
                format!(
                    "`{}` can never be decided in `{}`: it needs {needed} requests, {measured} will be measured",
                    check.expr, case.id
                )
            })
        })
    });
    lines.collect()
}
