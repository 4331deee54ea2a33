//! What can be said of a run before it: how much, how long, what first, and what can never be decided.

mod logits;
#[cfg(test)]
mod tests;

use crate::run::error::RunError;
use crate::run::prepare::{Logs, extent};
use crate::run::requests::conversation::opening;
use llmscen_analysis::judge;
use llmscen_core::check::{Check, Of, Subject};
use llmscen_core::dataset::{DatasetSpec, OnExhausted, Source};
use llmscen_core::load::{Arrival, Shape, Warmup};
use llmscen_core::metric::Metric;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::schedule::mix;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::CacheDir;
use llmscen_protocols::protocol;
use llmscen_scenario::render::Renderer;
pub use logits::logits;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A plan's outlook.
pub struct Forecast {
    /// Requests over all cases and rounds, in words.
    pub requests: String,
    /// Time over all cases, rounds and pauses, in words.
    pub time: String,
    /// The first request's body, indented: of a mix, of each entry, by its name.
    pub first_bodies: Vec<(Option<String>, String)>,
    /// Assertions that can never pass with the planned number of requests.
    pub undecidable: Vec<String>,
    /// Cases whose data is known to end before their requests do.
    pub short_data: Vec<String>,
}

/// The outlook of a plan. Datasets are opened for the first body, and logs for the arrivals in them; nothing is sent.
pub fn forecast(plan: &Plan, cache: &CacheDir) -> Result<Forecast, RunError> {
    if !plan.quests.is_empty() {
        let words = "as many as the search needs";
        let (first_bodies, undecidable) = (first_bodies(plan, cache)?, undecidable(plan));
        return Ok(Forecast {
            requests: words.into(),
            time: "what the search needs".into(),
            first_bodies,
            undecidable,
            short_data: Vec::new(),
        });
    }
    let extents = extents(plan, cache)?;
    Ok(Forecast {
        requests: requests(plan, &extents),
        time: time(plan, &extents),
        first_bodies: first_bodies(plan, cache)?,
        undecidable: undecidable(plan),
        short_data: short_datasets(plan, cache)?,
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
            None => llmscen_datasets::open(&case.dataset, plan.seed, 0, cache, &|_| {})?.prompts.arrivals(),
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
    // Equal gaps of several entries do not end together.
    let random = random || case.rates().is_some();
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

fn first_bodies(plan: &Plan, cache: &CacheDir) -> Result<Vec<(Option<String>, String)>, RunError> {
    let Some(case) = plan.cases.first() else { return Err(RunError::NothingToSend) };
    let round = plan.seed.child(case.id.as_str()).child(0u64);
    let body = |(index, line): (usize, &Case)| {
        let entry = case.mix.get(index);
        let seed = entry.map_or(round, |entry| mix::own(round, &entry.name));
        Ok((entry.map(|entry| entry.name.clone()), first_body(line, plan, seed, cache)?))
    };
    case.lines().iter().enumerate().map(body).collect()
}

fn first_body(case: &Case, plan: &Plan, seed: Seed, cache: &CacheDir) -> Result<String, RunError> {
    let opened = llmscen_datasets::open(&case.dataset, plan.seed, 0, cache, &|_| {})?;
    let protocol = protocol(case.target.api, case.request.extract.as_ref()).map_err(RunError::Protocol)?;
    let renderer = Renderer::new(case, |stream| protocol.body(stream))?;
    let first = opened.prompts.session(0).and_then(|session| session.turns.into_iter().next()).ok_or(RunError::NothingToSend)?;
    let body = renderer.body(&opening(first), 0, seed)?.bytes;
    let indented = serde_json::from_slice::<serde_json::Value>(&body).map(|value| format!("{value:#}"));
    Ok(indented.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned()))
}

const NEVER: &str = "can never pass";

/// One line for each reason why assertions can never pass, or may not, with the assertions and the cases that it is about.
pub fn undecidable(plan: &Plan) -> Vec<String> {
    let stages = |case: &Case| case.stages().into_iter().map(|stage| stage.case).collect::<Vec<_>>();
    // The loads of a search have the same limits, and the first one of each speaks for all.
    let spoken = |index: usize| plan.quests.is_empty() || plan.quests.iter().any(|quest| quest.first == index);
    let cases = plan.cases.iter().enumerate().filter(|(index, _)| spoken(*index)).map(|(_, case)| case);
    let cases: Vec<Case> = cases.flat_map(|case| std::iter::once(case.clone()).chain(stages(case))).collect();
    let measured = Measured::of(plan);
    let hopeless = cases.iter().flat_map(|case| {
        let of = |check: &Check| Some((never(case, check, (plan.rounds, &measured))?, check.expr.clone(), case.id.clone()));
        case.checks.iter().filter_map(of).collect::<Vec<_>>()
    });
    // First the cases of each assertion, then the assertions that share a reason and all of their cases.
    let by_check = grouped(hopeless.map(|(why, expr, case)| ((why, expr), case)));
    let by_reason = grouped(by_check.into_iter().map(|((why, expr), about)| ((why, about), expr)));
    let line = |((why, about), exprs): ((Why, Vec<String>), Vec<String>)| {
        format!("{} {} in {}: {}", named(&exprs, "assertions"), why.0, named(&about, "cases"), why.1)
    };
    by_reason.into_iter().map(line).chain(unguarded(plan)).collect()
}

/// How sure it is that a check cannot pass, and why.
type Why = (&'static str, String);

/// Why a check of a case can never pass, or hardly, if so.
fn never(case: &Case, check: &Check, (rounds, measured): (u32, &Measured)) -> Option<Why> {
    if let Some(why) = judge::never_passes(check) {
        return Some((NEVER, why));
    }
    let (needed, most) = (judge::required_samples(check)?, about_at_most(case, check, rounds_of(check, rounds))?);
    if needed > most {
        return Some((NEVER, format!("that takes {needed} requests, at most {most} will be measured")));
    }
    let (effect, source) = match measured.effect(case, check) {
        Some(effect) => (effect, "as in the latest run of this plan"),
        None => (judge::usual_design_effect(check, case.load.shape.closed()), "usual for this metric and load"),
    };
    let correlated = (needed as f64 * effect).ceil() as u64;
    (correlated > most).then(|| {
        let why = format!(
            "{needed} independent requests would do, but consecutive ones are correlated (design effect {effect:.1}, {source}): that \
             takes about {correlated} requests, at most {most} will be measured"
        );
        ("may stay inconclusive", why)
    })
}

/// Values by key, both in the order of their first appearance.
fn grouped<K: PartialEq, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(own, _)| *own == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Names that a line lists before it only counts them.
const NAMED: usize = 4;

/// `` `a`, `b` and 3 more cases ``.
fn named(names: &[String], what: &str) -> String {
    // To name all but one would be no shorter.
    let shown = if names.len() > NAMED + 1 { NAMED } else { names.len() };
    let listed: Vec<String> = names.iter().take(shown).map(|name| format!("`{name}`")).collect();
    match names.len() - shown {
        0 => listed.join(", "),
        more => format!("{} and {more} more {what}", listed.join(", ")),
    }
}

/// A line for a search whose limits would hold beside any number of failures: overload often shows as nothing else.
fn unguarded(plan: &Plan) -> Option<String> {
    let first = plan.quests.first().and_then(|quest| plan.cases.get(quest.first))?;
    let counts = |check: &Check| match &check.subject {
        Subject::Goodput(_) => true,
        Subject::Signal { .. } => false,
        Subject::Metric { metric, .. } => *metric == Metric::ErrorRate || check.of == Of::Scheduled,
    };
    let words = "no limit of the search counts failures: a load that only makes errors would hold; `error_rate < 1%` does";
    (!first.checks.iter().any(counts)).then(|| words.to_owned())
}

/// The rounds whose requests a check is about.
fn rounds_of(check: &Check, rounds: u32) -> u32 {
    match &check.subject {
        Subject::Metric { tags, .. } if tags.iter().any(|(tag, _)| tag == "round") => 1,
        Subject::Metric { .. } | Subject::Goodput(_) | Subject::Signal { .. } => rounds,
    }
}

/// Requests that a check is about at the most, over so many rounds. An entry of a mix is granted four standard deviations more
/// than its share of them.
fn about_at_most(case: &Case, check: &Check, rounds: u32) -> Option<u64> {
    let all = measured_at_most(case, rounds)?;
    let Some(entry) = case.entry_of(check.group()) else { return Some(all) };
    let (share, n) = (case.share_of(entry), all as f64);
    Some(((n * share + 4.0 * (n * share * (1.0 - share)).sqrt()).ceil() as u64).min(all))
}

/// Requests that so many rounds measure at the most, where the plan bounds their number. Random arrivals are granted four
/// standard deviations more than their mean; of a conversation every turn counts, so that its turns must have a bound too.
fn measured_at_most(case: &Case, rounds: u32) -> Option<u64> {
    let load = &case.load;
    let turns = |line: &Case| line.dataset.turns.as_ref().map_or(Some(1), |turns| turns.max.map(u64::from));
    let turns = case.lines().iter().map(turns).collect::<Option<Vec<u64>>>()?.into_iter().max()?;
    let by_time = load.lasts().and_then(|span| {
        let (mean, arrival) = match &load.shape {
            Shape::Open { rate, arrival } => (rate * span.secs(), *arrival),
            Shape::Rates { arrival, .. } => (load.shape.expected(span)?, *arrival),
            _ => return None,
        };
        let mean = mean * f64::from(rounds);
        let spread = match arrival {
            // Each entry of a mix may have one more than its rate makes of the span.
            Arrival::Constant => (case.mix.len() as f64 * f64::from(rounds)) / 4.0,
            Arrival::Poisson => mean.sqrt(),
            Arrival::Gamma { burstiness } => (mean / burstiness).sqrt(),
        };
        Some((mean + 4.0 * spread).ceil() as u64)
    });
    let by_count = load.requests.map(|count| count * u64::from(rounds));
    by_count.into_iter().chain(by_time).min().map(|sessions| sessions * turns)
}

/// One line for each case whose data is known to end before its requests do.
pub(crate) fn short_datasets(plan: &Plan, cache: &CacheDir) -> Result<Vec<String>, RunError> {
    let mut known: Vec<(&DatasetSpec, Option<u64>)> = Vec::new();
    let mut lines = Vec::new();
    // Entries of a mix share rows in a way that only a run can count.
    let ends = plan.cases.iter().filter(|case| case.mix.is_empty() && case.dataset.on_exhausted != OnExhausted::Cycle);
    // How much a command prints is known when it ends.
    let ends = ends.filter(|case| !matches!(case.dataset.source, Source::Command(_)));
    for case in ends {
        let Some(requests) = case.load.requests else { continue };
        let rows = match known.iter().find(|(spec, _)| *spec == &case.dataset) {
            Some((_, rows)) => *rows,
            None => {
                let rows = llmscen_datasets::open(&case.dataset, plan.seed, 0, cache, &|_| {})?.prompts.len();
                known.push((&case.dataset, rows));
                rows
            }
        };
        if let Some(rows) = rows.filter(|rows| *rows < case.load.planned().unwrap_or(requests)) {
            let what = if case.dataset.on_exhausted == OnExhausted::Fail { "fails" } else { "ends" };
            lines.push(format!(
                "the dataset of `{}` has {rows} usable rows, `load.requests` is {requests}: the case {what} after {rows} requests; \
                 lower `load.requests`, or set `dataset.on_exhausted: cycle`",
                case.id
            ));
        }
    }
    Ok(lines)
}

/// The results of that run; none where there was none.
pub(crate) struct Measured(Option<Value>);

impl Measured {
    pub(crate) fn of(plan: &Plan) -> Measured {
        let file = Path::new(&plan.report.dir).join(&plan.name).join("latest/results.json");
        let stored: Option<Value> = fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Measured(stored.filter(|results| results.get("plan_id").and_then(Value::as_str) == Some(plan.id.as_str())))
    }

    /// Requests that carried the information of an independent one, for a check of a case.
    pub(crate) fn effect(&self, case: &Case, check: &Check) -> Option<f64> {
        let list = |of: &Value, name: &str| of.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let named = |of: &Value, key: &str, name: &str| of.get(key).and_then(Value::as_str) == Some(name);
        let case = list(self.0.as_ref()?, "cases").into_iter().find(|own| named(own, "id", &case.id))?;
        let slo = list(&case, "slo").into_iter().find(|own| named(own, "expr", &check.expr))?;
        let number = |name: &str| slo.get(name).and_then(Value::as_f64).filter(|number| *number > 0.0);
        Some(number("n")? / number("effective_n")?)
    }
}
