//! What can be said of a run before it: how much, how long, what first, and what can never be decided.

use crate::judge;
use crate::model::check::{Check, Subject};
use crate::model::load::{Arrival, Shape, Warmup};
use crate::model::plan::{Case, Plan};
use crate::model::units::Nanos;
use crate::prompts::{self, CacheDir};
use crate::run::bench::{Logs, extent};
use crate::run::error::RunError;
use crate::run::talk::opening;
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

/// The outlook of a plan. Datasets are opened for the first body, and logs for the arrivals in them; nothing is sent.
pub fn forecast(plan: &Plan, cache: &CacheDir) -> Result<Forecast, RunError> {
    if !plan.quests.is_empty() {
        let words = "as many as the search needs";
        let (first_body, undecidable) = (first_body(plan, cache)?, undecidable(plan));
        return Ok(Forecast { requests: words.into(), time: "what the search needs".into(), first_body, undecidable });
    }
    let extents = extents(plan, cache)?;
    Ok(Forecast {
        requests: requests(plan, &extents),
        time: time(plan, &extents),
        first_body: first_body(plan, cache)?,
        undecidable: undecidable(plan),
    })
}

/// How many sessions each case has in a round, and when the last one is due, as far as that is known.
type Extents = Vec<(Option<u64>, Option<Nanos>)>;

fn extents(plan: &Plan, cache: &CacheDir) -> Result<Extents, RunError> {
    let mut logs = Logs::default();
    let extents = plan.cases.iter().map(|case| {
        if !matches!(case.load.shape, Shape::Replay { .. }) {
            return Ok((case.load.planned(), None));
        }
        let log = logs.of(case)?;
        let own = match log {
            Some(_) => None,
            None => prompts::open(&case.dataset, plan.seed, 0, cache, &|_| {})?.prompts.arrivals(),
        };
        let arrivals = log.map(|log| log.arrivals).or(own).ok_or(RunError::NoArrivals)?;
        Ok(extent(case, plan.seed, Some(&arrivals)))
    });
    extents.collect()
}

fn requests(plan: &Plan, extents: &Extents) -> String {
    let known: u64 = extents.iter().filter_map(|(count, _)| *count).sum::<u64>() * u64::from(plan.rounds);
    let open = extents.iter().filter(|(count, _)| count.is_none()).count();
    let conversations = plan.cases.iter().any(Case::talks);
    let counted = if conversations { "warm-up included, a conversation counted once" } else { "warm-up included" };
    match (known, open) {
        (known, 0) if plan.cases.iter().any(by_chance) => format!("about {known} ({counted})"),
        (known, 0) => format!("{known} ({counted})"),
        (0, _) => "as many as the durations allow".into(),
        (known, open) => format!("{known} and as many as the durations of {open} cases allow"),
    }
}

/// Whether random arrivals over a span of time set the number.
fn by_chance(case: &Case) -> bool {
    let random = matches!(
        case.load.shape,
        Shape::Open { arrival, .. } | Shape::Rates { arrival, .. } if arrival != Arrival::Constant
    );
    random && (case.load.lasts().is_some() || matches!(case.load.warmup, Warmup::Span(_)))
}

/// Durations and arrival plans are known; how long a counted closed loop takes is the server's secret.
fn time(plan: &Plan, extents: &Extents) -> String {
    let runs = plan.cases.len() as u32 * plan.rounds;
    let pauses = plan.pause.secs() * f64::from(runs.saturating_sub(1));
    let each: Vec<Option<f64>> = plan.cases.iter().zip(extents).map(|(case, (_, last))| seconds(case, *last)).collect();
    let known: f64 = each.iter().flatten().sum::<f64>() * f64::from(plan.rounds) + pauses;
    match each.iter().filter(|seconds| seconds.is_none()).count() {
        0 => format!("about {}", span(known)),
        open if known > 0.0 => format!("{} and what the server needs for {open} cases", span(known)),
        _ => "what the server needs".into(),
    }
}

/// Seconds of one round; `last` is when the last request of a log is due.
fn seconds(case: &Case, last: Option<Nanos>) -> Option<f64> {
    let warm = match case.load.warmup {
        Warmup::Span(span) => span,
        Warmup::Requests(_) => Nanos::ZERO,
    };
    let by_rate = match case.load.shape {
        Shape::Open { rate, .. } => case.load.planned().map(|n| n as f64 / rate),
        _ => last.map(Nanos::secs),
    };
    by_rate.or(case.load.until(Some(warm)).map(Nanos::secs))
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
    let renderer = Renderer::new(case, |stream| protocol.body(stream))?;
    let seed = plan.seed.child(case.id.as_str()).child(0u64);
    let first = opened.prompts.session(0).and_then(|session| session.turns.into_iter().next()).ok_or(RunError::NothingToSend)?;
    let body = renderer.body(&opening(first), 0, seed)?.bytes;
    let indented = serde_json::from_slice::<serde_json::Value>(&body).map(|value| format!("{value:#}"));
    Ok(indented.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned()))
}

/// One line for each assertion that takes more requests to pass than its case will measure.
pub fn undecidable(plan: &Plan) -> Vec<String> {
    let stages = |case: &Case| case.stages().into_iter().map(|stage| stage.case).collect::<Vec<_>>();
    // The loads of a search have the same limits, and the first one of each speaks for all.
    let spoken = |index: usize| plan.quests.is_empty() || plan.quests.iter().any(|quest| quest.first == index);
    let cases = plan.cases.iter().enumerate().filter(|(index, _)| spoken(*index)).map(|(_, case)| case);
    let cases = cases.flat_map(|case| std::iter::once(case.clone()).chain(stages(case)));
    let lines = cases.flat_map(|case| {
        let line = |check: &Check| {
            let (needed, most) = (judge::needed(check)?, measured_at_most(&case, rounds_of(check, plan.rounds))?);
            (needed > most).then(|| {
                format!(
                    "`{}` can never pass in `{}`: that takes {needed} requests, at most {most} will be measured",
                    check.expr, case.id
                )
            })
        };
        case.checks.iter().filter_map(line).collect::<Vec<_>>()
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
/// standard deviations more than their mean; of a conversation every turn counts, so that its turns must have a bound too.
fn measured_at_most(case: &Case, rounds: u32) -> Option<u64> {
    let load = &case.load;
    let turns = case.dataset.turns.as_ref().map_or(Some(1), |turns| turns.max.map(u64::from))?;
    let by_time = load.lasts().and_then(|span| {
        let (mean, arrival) = match &load.shape {
            Shape::Open { rate, arrival } => (rate * span.secs(), *arrival),
            Shape::Rates { arrival, .. } => (load.shape.expected(span)?, *arrival),
            _ => return None,
        };
        let mean = mean * f64::from(rounds);
        let spread = match arrival {
            Arrival::Constant => 0.0,
            Arrival::Poisson => mean.sqrt(),
            Arrival::Gamma { burstiness } => (mean / burstiness).sqrt(),
        };
        Some((mean + 4.0 * spread).ceil() as u64)
    });
    let by_count = load.requests.map(|count| count * u64::from(rounds));
    by_count.into_iter().chain(by_time).min().map(|sessions| sessions * turns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::dataset::{TraceSpec, Turns};
    use crate::model::plan::TraceFile;
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

    fn said(plan: &Plan) -> (String, String) {
        let extents = extents(plan, &CacheDir { dir: "unused".into(), hub: String::new() }).unwrap();
        (requests(plan, &extents), time(plan, &extents))
    }

    #[test]
    fn a_number_that_chance_decides_is_called_about() {
        let requests = |plan| said(&plan).0;
        assert_eq!(requests(plan("concurrency: 2, requests: 80, warmup: 4", 2, &[])), "168 (warm-up included)");
        assert_eq!(requests(plan("rate: 10/s, duration: 2s", 1, &[])), "about 20 (warm-up included)");
        assert_eq!(requests(plan("rate: 10/s, duration: 2s, arrivals: constant", 1, &[])), "20 (warm-up included)");
        assert_eq!(requests(plan("concurrency: 1, duration: 2s", 1, &[])), "as many as the durations allow");
    }

    #[test]
    fn a_replay_is_as_long_as_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, "Timestamp,Request tokens,Response tokens\n0,1,1\n10,1,1\n60,1,1\n").unwrap();
        let mut plan = plan("concurrency: 1, requests: 9", 2, &[]);
        let path = path.display().to_string();
        plan.cases[0].trace = Some(TraceFile { path, spec: TraceSpec::default() });
        plan.cases[0].load.shape = Shape::Replay { speed: 2.0 };
        assert_eq!(said(&plan), ("6 (warm-up included)".into(), "about 1 min 0 s".into()));
        plan.cases[0].trace = None;
        let none = extents(&plan, &CacheDir { dir: "unused".into(), hub: String::new() });
        assert!(matches!(none, Err(RunError::NoArrivals)));
    }

    #[test]
    fn every_turn_of_a_conversation_is_measured() {
        let mut plan = plan("concurrency: 2, requests: 80", 2, &["ttft.p99 < 1s"]);
        plan.cases[0].dataset.turns = Some(Turns { max: Some(1), ..Turns::default() });
        assert!(undecidable(&plan).concat().ends_with("at most 160 will be measured"));
        plan.cases[0].dataset.turns = Some(Turns { max: Some(2), ..Turns::default() });
        assert_eq!(undecidable(&plan), Vec::<String>::new());
        plan.cases[0].dataset.turns = Some(Turns::default());
        assert_eq!(undecidable(&plan), Vec::<String>::new());
        assert_eq!(said(&plan).0, "160 (warm-up included, a conversation counted once)");
    }

    #[test]
    fn stages_say_how_many_and_how_long_and_each_is_looked_at() {
        let stages = "stages: [{ rate: 1/s, for: 30s }, { rate: 1/s -> 20/s, for: 2m }], warmup: 10s";
        let mut seen = plan(stages, 2, &["ttft.p99 < 1s"]);
        assert_eq!(said(&seen), ("about 2580 (warm-up included)".into(), "about 5 min 0 s".into()));
        let line = "`ttft.p99 < 1s` can never pass in `base/stage=1`: that takes 299 requests, at most 91 will be measured";
        assert_eq!(undecidable(&seen), [line]);
        seen = plan(&format!("{stages}, arrivals: constant, requests: 40"), 1, &[]);
        assert_eq!(said(&seen).0, "50 (warm-up included)");
        seen = plan("stages: [{ concurrency: 1 -> 9, for: 90s }]", 1, &[]);
        assert_eq!(said(&seen), ("as many as the durations allow".into(), "about 1 min 30 s".into()));
        assert_eq!(said(&plan("static: { batch: 16, rounds: 10 }, warmup: 2x", 1, &[])).0, "192 (warm-up included)");
    }
}
