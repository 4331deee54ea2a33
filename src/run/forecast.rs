//! Estimates for `plan`: number of requests, duration, first request bodies, and objectives that cannot be decided.

mod logits;
#[cfg(test)]
mod tests;

use crate::run::error::RunError;
use crate::run::prepare::TraceCache;
use crate::run::requests::conversation::prepare_first_turn;
use crate::run::requests::tool_results::{MAPPING, has_tool_results};
use llmscen_analysis::{PER_USER, judge};
use llmscen_core::check::{Check, RequestSet, Subject};
use llmscen_core::dataset::{DatasetSpec, OnExhausted, Replies, Source};
use llmscen_core::load::{Arrival, Shape, Warmup};
use llmscen_core::metric::Metric;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::schedule::{RoundExtent, mix};
use llmscen_core::search::{Budget, groups};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::{CacheDir, Opened, Progress, PromptError, Prompts};
use llmscen_protocols::protocol;
use llmscen_report::format::millis;
use llmscen_requests::render::{Renderer, describe_form};
pub use logits::describe_logits;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The estimates for a plan.
pub struct Forecast {
    /// Number of requests over all cases and rounds, in words.
    pub requests: String,
    /// Duration of all cases, rounds and pauses, in words.
    pub time: String,
    /// Number of starts of managed servers and how long they took in the latest run, in words; None without a managed
    /// server.
    pub starts: Option<String>,
    /// The body of the first request, indented; with a mix, one per entry and its name.
    pub first_bodies: Vec<(Option<String>, String)>,
    /// Objectives that cannot pass with the planned number of requests.
    pub undecidable: Vec<String>,
    /// Cases whose dataset ends before their load.
    pub short_data: Vec<String>,
    /// Rows of the first case's data that are left out, and why.
    pub data_notes: Vec<String>,
}

/// How datasets are opened.
pub struct DataAccess<'a> {
    pub cache: &'a CacheDir,
    /// Receives the progress of downloads and of counting.
    pub progress: &'a dyn Fn(Progress),
}

impl DataAccess<'_> {
    fn open(&self, spec: &DatasetSpec, seed: Seed) -> Result<Opened, PromptError> {
        llmscen_datasets::open(spec, seed, 0, self.cache, self.progress)
    }
}

/// Estimates a plan. Opens datasets and traces, but sends nothing.
pub fn forecast(plan: &Plan, data: &DataAccess<'_>) -> Result<Forecast, RunError> {
    let mut data_notes = Vec::new();
    let first_bodies = first_bodies(plan, data, &mut data_notes)?;
    if !plan.searches.is_empty() {
        return Ok(Forecast {
            requests: "depends on the search".into(),
            time: match plan.halving.map(|halving| halving.budget) {
                Some(Budget::Time(time)) => {
                    let groups = groups(&plan.searches).len() as f64;
                    let time = format_duration(time.secs() * groups);
                    format!("at most about {time} of probes, and the starts of servers and pauses")
                }
                _ => "depends on the search".into(),
            },
            starts: describe_starts(plan),
            first_bodies,
            undecidable: undecidable(plan),
            short_data: Vec::new(),
            data_notes,
        });
    }
    let extents = extents(plan, data)?;
    Ok(Forecast {
        requests: describe_requests(plan, &extents),
        time: describe_time(plan, &extents),
        starts: describe_starts(plan),
        first_bodies,
        undecidable: undecidable(plan),
        short_data: short_datasets(plan, data)?,
        data_notes,
    })
}

/// The number of starts, with the duration that the starts of the latest run suggest.
fn describe_starts(plan: &Plan) -> Option<String> {
    let (starts, most) = plan.server_starts().into_inner();
    if most == 0 {
        return None;
    }
    let ties = match most > starts {
        true => format!("; up to {most} if candidates tie"),
        false => String::new(),
    };
    let measured = latest_startups(plan);
    Some(match measured.len() {
        0 => format!("{starts}, which take as long as the server needs{ties}"),
        known => {
            let mean = measured.iter().sum::<f64>() / known as f64;
            format!(
                "{starts}, about {} together (mean of the latest run: {}){ties}",
                format_duration(mean * starts as f64),
                millis(mean * 1e3)
            )
        }
    })
}

/// Startup times of the latest run of the scenario, in seconds.
fn latest_startups(plan: &Plan) -> Vec<f64> {
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned();
    let cases = latest_results(plan).and_then(|results| list(&results, "cases"));
    cases
        .unwrap_or_default()
        .iter()
        .flat_map(|case| list(case, "startups").unwrap_or_default())
        .filter_map(|start| start.get("ready_s").and_then(Value::as_f64))
        .collect()
}

/// results.json of the latest run of the scenario.
fn latest_results(plan: &Plan) -> Option<Value> {
    let file = Path::new(&plan.report.dir)
        .join(&plan.name)
        .join("latest/results.json");
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// The extent of a round of each case.
fn extents(plan: &Plan, data: &DataAccess<'_>) -> Result<Vec<RoundExtent>, RunError> {
    let mut traces = TraceCache::default();
    let extents = plan.cases.iter().map(|case| {
        if !matches!(case.load.shape, Shape::Replay { .. }) {
            return Ok(RoundExtent {
                sessions: case.load.planned(),
                last_due: None,
            });
        }
        let arrivals = match traces.open(case)? {
            Some(trace) => Some(trace.arrivals),
            None => data.open(&case.dataset, plan.seed)?.prompts.arrivals(),
        };
        Ok(RoundExtent::new(
            case,
            plan.seed,
            Some(&arrivals.ok_or(RunError::NoArrivals)?),
        ))
    });
    extents.collect()
}

fn describe_requests(plan: &Plan, extents: &[RoundExtent]) -> String {
    let known: u64 = extents
        .iter()
        .filter_map(|extent| extent.sessions)
        .sum::<u64>()
        * u64::from(plan.rounds);
    let unknown = extents
        .iter()
        .filter(|extent| extent.sessions.is_none())
        .count();
    let conversations = plan.cases.iter().any(Case::has_conversations);
    let counted = if conversations {
        "warm-up included, a conversation counted once"
    } else {
        "warm-up included"
    };
    let has_more = |case: &Case| {
        let load = &case.load;
        let is_limited = load.requests.is_some() || load.duration.is_some();
        is_limited && load.cools_down(case.has_conversations())
    };
    let more = match plan.cases.iter().any(has_more) {
        true => ", then more until the last one has ended",
        false => "",
    };
    let described = match (known, unknown) {
        (known, 0) if plan.cases.iter().any(has_random_count) => {
            format!("about {known} ({counted})")
        }
        (known, 0) => format!("{known} ({counted})"),
        (0, _) if plan.cases.iter().all(|case| case.load.turn_limit.is_some()) => {
            "as many as `load.requests` of all sessions".into()
        }
        (0, _) => "as many as the durations allow".into(),
        (known, unknown) => format!(
            "{known} plus as many as the durations of {} allow",
            count_cases(unknown)
        ),
    };
    described + more
}

fn count_cases(n: usize) -> String {
    if n == 1 {
        "1 case".to_owned()
    } else {
        format!("{n} cases")
    }
}

/// Whether random arrivals within a duration determine the number of requests.
fn has_random_count(case: &Case) -> bool {
    // The constant arrivals of several entries do not end at the same time.
    let random = case.load.shape.has_random_arrivals() || case.entry_arrivals().is_some();
    random
        && (case.load.sending_duration().is_some() || matches!(case.load.warmup, Warmup::Span(_)))
}

/// The duration is known for loads with a duration or a schedule. That of a closed loop with a number of requests
/// depends on the server.
fn describe_time(plan: &Plan, extents: &[RoundExtent]) -> String {
    let runs = plan.cases.len() as u32 * plan.rounds;
    let pauses = plan.pause.secs() * f64::from(runs.saturating_sub(1));
    let seconds: Vec<Option<f64>> = plan
        .cases
        .iter()
        .zip(extents)
        .map(|(case, extent)| round_seconds(case, extent.last_due))
        .collect();
    let known: f64 = seconds.iter().flatten().sum::<f64>() * f64::from(plan.rounds) + pauses;
    match seconds.iter().filter(|seconds| seconds.is_none()).count() {
        0 => format!("about {}", format_duration(known)),
        unknown if known > 0.0 => {
            let depend = if unknown == 1 { "depends" } else { "depend" };
            format!(
                "{} plus {} that {depend} on server speed",
                format_duration(known),
                count_cases(unknown)
            )
        }
        _ => "depends on server speed".into(),
    }
}

/// Duration of one round in seconds; `last_due`: send time of the last request of a trace.
fn round_seconds(case: &Case, last_due: Option<Nanos>) -> Option<f64> {
    let warm = match case.load.warmup {
        Warmup::Span(span) => span,
        Warmup::Requests(_) => Nanos::ZERO,
    };
    let by_rate = match case.load.shape.constant_rate() {
        Some(rate) => case.load.planned().map(|n| n as f64 / rate),
        None => last_due.map(Nanos::secs),
    };
    by_rate.or(case.load.sending_end(Some(warm)).map(Nanos::secs))
}

fn format_duration(seconds: f64) -> String {
    match seconds.round() as u64 {
        total if total >= 3600 => format!("{} h {} min", total / 3600, total % 3600 / 60),
        total if total >= 60 => format!("{} min {} s", total / 60, total % 60),
        total => format!("{total} s"),
    }
}

fn first_bodies(
    plan: &Plan,
    data: &DataAccess<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<(Option<String>, String)>, RunError> {
    let Some(case) = plan.cases.first() else {
        return Err(RunError::NothingToSend);
    };
    let round = plan.seed.child(case.id.as_str()).child(0u64);
    let body = |(index, class_case): (usize, &Case)| {
        let entry = case.mix.get(index);
        let seed = entry.map_or(round, |entry| mix::entry_seed(round, &entry.name));
        Ok((
            entry.map(|entry| entry.name.clone()),
            first_body(class_case, plan, seed, data, notes)?,
        ))
    };
    case.traffic_classes()
        .iter()
        .enumerate()
        .map(body)
        .collect()
}

fn first_body(
    case: &Case,
    plan: &Plan,
    seed: Seed,
    data: &DataAccess<'_>,
    notes: &mut Vec<String>,
) -> Result<String, RunError> {
    let opened = data.open(&case.dataset, plan.seed)?;
    let protocol = protocol(case.target.api, Some(&case.request)).map_err(RunError::Protocol)?;
    let renderer = Renderer::new(case, |stream| protocol.body(stream))?;
    let first = opened
        .prompts
        .session(0)
        .and_then(|session| session.turns.into_iter().next())
        .ok_or(RunError::NothingToSend)?;
    if maps_tool_results(&case.dataset, opened.prompts.as_ref()) {
        notes.push(MAPPING.to_owned());
    }
    notes.extend(opened.prompts.problems());
    let is_text = case.dataset.turns.is_some() && case.target.api.continues_text();
    let rendered = renderer.body(&prepare_first_turn(first, is_text), 0, seed)?;
    let body = rendered.bytes;
    let form = rendered.content_type.as_deref();
    if let Some(form) = form.and_then(|content_type| describe_form(content_type, &body)) {
        return Ok(form);
    }
    let text = String::from_utf8_lossy(&body);
    // A body is one JSON value, or one per message of a WebSocket.
    let mut values: Vec<Value> = match serde_json::from_str(&text) {
        Ok(value) => vec![value],
        Err(_) => {
            let lines = text.lines().map(serde_json::from_str);
            lines.collect::<Result<_, _>>().unwrap_or_default()
        }
    };
    values.iter_mut().for_each(shorten_media);
    let hidden = values.len().saturating_sub(SHOWN_MESSAGES);
    values.truncate(SHOWN_MESSAGES);
    let shown: Vec<String> = values.iter().map(|value| format!("{value:#}")).collect();
    Ok(match shown.as_slice() {
        [] => text.into_owned(),
        _ if hidden > 0 => format!("{}\n({hidden} more messages)", shown.join("\n")),
        _ => shown.join("\n"),
    })
}

/// Sessions in which `plan` looks for tool results.
const READ_SESSIONS: u64 = 200;

/// Whether live replies replace those that tool results of the data answer.
fn maps_tool_results(spec: &DatasetSpec, prompts: &dyn Prompts) -> bool {
    let has_messages = match spec.source {
        Source::Messages | Source::Sharegpt | Source::Rows | Source::LineByLine => true,
        // The command may print its next row much later.
        Source::Command(_) => prompts.ready(READ_SESSIONS, Duration::ZERO),
        _ => false,
    };
    let replies = spec.turns.as_ref().map(|turns| turns.replies);
    let count = prompts
        .len()
        .map_or(READ_SESSIONS, |count| count.min(READ_SESSIONS));
    has_messages
        && replies == Some(Replies::Live)
        && (0..count)
            .map_while(|seq| prompts.session(seq))
            .any(|session| has_tool_results(&session))
}

/// Messages of a request that `plan` shows.
const SHOWN_MESSAGES: usize = 4;

/// Replaces the rest of an encoded image or sound by its length.
fn shorten_media(value: &mut Value) {
    const SHOWN: usize = 60;
    match value {
        Value::String(text) if text.len() > 4096 && !text.contains(char::is_whitespace) => {
            let rest = text.len() - text.floor_char_boundary(SHOWN);
            text.truncate(text.floor_char_boundary(SHOWN));
            text.push_str(&format!("… ({rest} more characters)"));
        }
        Value::Array(items) => items.iter_mut().for_each(shorten_media),
        Value::Object(fields) => fields.values_mut().for_each(shorten_media),
        _ => {}
    }
}

const NEVER_PASSES: &str = "cannot pass";

/// One line per reason why objectives cannot pass, or may stay inconclusive, with the objectives and their cases.
pub fn undecidable(plan: &Plan) -> Vec<String> {
    let stages = |case: &Case| {
        case.stages()
            .into_iter()
            .map(|stage| stage.case)
            .collect::<Vec<_>>()
    };
    // All loads of a search have the same objectives, so the first one is enough.
    let is_checked = |index: usize| {
        plan.searches.is_empty() || plan.searches.iter().any(|search| search.first == index)
    };
    let cases = plan
        .cases
        .iter()
        .enumerate()
        .filter(|(index, _)| is_checked(*index))
        .map(|(_, case)| case);
    let cases: Vec<Case> = cases
        .flat_map(|case| std::iter::once(case.clone()).chain(stages(case)))
        .collect();
    let latest = LatestResults::read(plan);
    let undecidable = cases.iter().flat_map(|case| {
        let reason = |check: &Check| {
            let why = why_undecidable(case, check, plan.rounds, &latest)?;
            Some(((why.cause, check.expr.clone()), (case.id.clone(), why.most)))
        };
        case.checks.iter().filter_map(reason).collect::<Vec<_>>()
    });
    // First the cases of each objective, then the objectives with the same cause and the same cases.
    let by_check = group_by_key(undecidable);
    let by_reason = group_by_key(
        by_check
            .into_iter()
            .map(|((cause, expr), cases)| ((cause, cases), expr)),
    );
    let line = |((cause, cases), exprs): ((Cause, Vec<LimitedCase>), Vec<String>)| {
        let (names, most): (Vec<String>, Vec<Option<u64>>) = cases.into_iter().unzip();
        format!(
            "{} {} in {}: {}{}",
            list_names(&exprs, "objectives"),
            cause.consequence,
            list_names(&names, "cases"),
            cause.reason,
            describe_most(&most)
        )
    };
    by_reason
        .into_iter()
        .map(line)
        .chain(check_search_objectives(plan))
        .chain(few_per_user(&cases))
        .collect()
}

/// A line for the closed loops that send too few requests per user for a throughput of steady sending.
fn few_per_user(cases: &[Case]) -> Option<String> {
    let few = |case: &&Case| {
        let Shape::Closed { users } = case.load.shape else {
            return false;
        };
        let is_of_sessions = |check: &Check| {
            let metric = check.subject.metric();
            metric.is_some_and(|metric| {
                metric
                    .cost_basis()
                    .map_or(metric, |(rate, _)| rate)
                    .is_session_rate()
            })
        };
        // Each session is many requests.
        let counts = !case.has_conversations() || case.checks.iter().any(is_of_sessions);
        counts
            && case
                .load
                .requests
                .is_some_and(|most| most < PER_USER * u64::from(users))
    };
    let names: Vec<String> = cases
        .iter()
        .filter(few)
        .map(|case| case.id.clone())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "throughputs in {} may be those of the whole run, start and drain included, and \
             limits on them INCONCLUSIVE: fewer than {PER_USER} requests per user",
            list_names(&names, "cases")
        )
    })
}

/// Why an objective cannot be decided in a case.
struct Undecidable {
    cause: Cause,
    /// Maximum number of measured requests, if that is the reason.
    most: Option<u64>,
}

/// A case and the maximum number of its measured requests.
type LimitedCase = (String, Option<u64>);

/// What cases may share.
#[derive(PartialEq)]
struct Cause {
    consequence: &'static str,
    reason: String,
}

/// `, at most 20 to 64 will be measured`; empty without a number.
fn describe_most(most: &[Option<u64>]) -> String {
    let known = || most.iter().flatten();
    match (known().min(), known().max()) {
        (Some(low), Some(high)) if low == high => format!(", at most {low} will be measured"),
        (Some(low), Some(high)) => format!(", at most {low} to {high} will be measured"),
        _ => String::new(),
    }
}

/// Why an objective cannot pass, or may stay inconclusive; None if it can be decided.
fn why_undecidable(
    case: &Case,
    check: &Check,
    rounds: u32,
    latest: &LatestResults,
) -> Option<Undecidable> {
    if let Some(reason) = judge::never_passes(check) {
        return Some(Undecidable {
            cause: Cause {
                consequence: NEVER_PASSES,
                reason,
            },
            most: None,
        });
    }
    let needed = judge::required_samples(check)?;
    let most = max_requests_of_check(case, check, rounds_of_check(check, rounds))?;
    if needed > most {
        return Some(Undecidable {
            cause: Cause {
                consequence: NEVER_PASSES,
                reason: format!("it needs at least {needed} requests"),
            },
            most: Some(most),
        });
    }
    let (effect, source) = match latest.design_effect(case, check) {
        Some(effect) => (effect, "as in the latest run of this plan"),
        None => (
            judge::usual_design_effect(check, case.load.shape.is_closed_loop()),
            "usual for this metric and load",
        ),
    };
    let correlated = (needed as f64 * effect).ceil() as u64;
    (correlated > most).then(|| {
        let reason = format!(
            "{needed} independent requests are enough, but consecutive requests are correlated \
             (design effect {effect:.1}, {source}); about {correlated} are needed"
        );
        let cause = Cause {
            consequence: "may stay inconclusive",
            reason,
        };
        Undecidable {
            cause,
            most: Some(most),
        }
    })
}

/// Values by key, both in the order of their first occurrence.
fn group_by_key<K: PartialEq, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Maximum number of names in a list; others are counted.
const MAX_NAMES: usize = 4;

/// `` `a`, `b` and 3 more cases ``.
fn list_names(names: &[String], what: &str) -> String {
    // "and 1 more" would not be shorter than the name.
    let shown = if names.len() > MAX_NAMES + 1 {
        MAX_NAMES
    } else {
        names.len()
    };
    let listed: Vec<String> = names
        .iter()
        .take(shown)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len() - shown {
        0 => listed.join(", "),
        more => format!("{} and {more} more {what}", listed.join(", ")),
    }
}

/// Warns of a search without an objective that counts failures: an overloaded server may fail fast and still meet the
/// others.
fn check_search_objectives(plan: &Plan) -> Option<String> {
    let first = plan
        .searches
        .first()
        .and_then(|search| plan.cases.get(search.first))?;
    let counts_failures = |check: &Check| match &check.subject {
        Subject::Goodput(_) => true,
        Subject::Finish { .. } | Subject::Signal { .. } | Subject::PageMetric(_) => false,
        Subject::Metric { metric, .. } => {
            *metric == Metric::ErrorRate || check.of == RequestSet::Scheduled
        }
    };
    let warning = "the search has no error objective, so a server that only returns errors would \
    pass; add `error_rate < 1%`";
    (!first.checks.iter().any(counts_failures)).then(|| warning.to_owned())
}

/// Number of rounds to which an objective applies.
fn rounds_of_check(check: &Check, rounds: u32) -> u32 {
    match check.subject.tag("round") {
        Some(_) => 1,
        None => rounds,
    }
}

/// Maximum number of requests to which an objective applies, over this many rounds. An entry of a mix, or a URL, may
/// exceed its share by four standard deviations.
fn max_requests_of_check(case: &Case, check: &Check, rounds: u32) -> Option<u64> {
    let total = max_measured_requests(case, rounds)?;
    let of_share = |total: u64, share: f64| {
        let n = total as f64;
        let most = n * share + 4.0 * (n * share * (1.0 - share)).sqrt();
        (most.ceil() as u64).min(total)
    };
    let total = match case.entry_for_group(check.group()) {
        Some(entry) => of_share(total, case.expected_share(entry)),
        None => total,
    };
    let urls = case.target.endpoint_names().len() as f64;
    Some(match check.tag("endpoint") {
        Some(_) if urls > 0.0 => of_share(total, 1.0 / urls),
        _ => total,
    })
}

/// Maximum number of measured requests over this many rounds, if the plan bounds it. Random arrivals may exceed their
/// mean by four standard deviations. Every turn of a conversation counts, so the number of turns must be bounded too.
fn max_measured_requests(case: &Case, rounds: u32) -> Option<u64> {
    let load = &case.load;
    let turns = |class_case: &Case| {
        class_case
            .dataset
            .turns
            .as_ref()
            .map_or(Some(1), |turns| turns.max.map(u64::from))
    };
    let all_rounds = |count: Option<u64>| count.map(|count| count * u64::from(rounds));
    let by_turns = all_rounds(load.turn_limit);
    let classes = case.traffic_classes();
    let turns = classes.iter().map(turns);
    let Some(turns) = turns
        .collect::<Option<Vec<u64>>>()
        .and_then(|turns| turns.into_iter().max())
    else {
        return by_turns;
    };
    let by_time = load.sending_duration().and_then(|span| {
        let mean = |shape: &Shape| Some(shape.expected(span)? * f64::from(rounds));
        let variance = |shape: &Shape| match shape {
            Shape::Open { arrival, .. } | Shape::Rates { arrival, .. } => match arrival {
                Arrival::Constant => Some(0.0),
                Arrival::Poisson => mean(shape),
                Arrival::Gamma { burstiness } => Some(mean(shape)? / burstiness),
            },
            _ => None,
        };
        let shapes: Vec<&Shape> = match case.entry_arrivals() {
            Some(classes) => classes.into_iter().map(|(_, shape)| shape).collect(),
            None => vec![&load.shape],
        };
        let variance: Option<f64> = shapes.into_iter().map(variance).sum();
        // Each entry of a mix may have one request more than rate times duration.
        let extra = case.mix.len() as f64 * f64::from(rounds);
        Some((mean(&load.shape)? + extra + 4.0 * variance?.sqrt()).ceil() as u64)
    });
    let sessions = all_rounds(load.requests).into_iter().chain(by_time).min();
    let of_sessions = sessions.map(|sessions| sessions * turns);
    of_sessions.into_iter().chain(by_turns).min()
}

/// One line per case whose dataset ends before its load.
fn short_datasets(plan: &Plan, data: &DataAccess<'_>) -> Result<Vec<String>, RunError> {
    let mut known: Vec<(&DatasetSpec, Option<u64>)> = Vec::new();
    let mut lines = Vec::new();
    // The rows of mix entries with the same dataset are only known during a run.
    let finite = plan
        .cases
        .iter()
        .filter(|case| case.mix.is_empty() && case.dataset.on_exhausted != OnExhausted::Cycle);
    // The output of a command is only known when it ends.
    let finite = finite.filter(|case| !matches!(case.dataset.source, Source::Command(_)));
    for case in finite {
        let Some(requests) = case.load.requests else {
            continue;
        };
        let rows = match known.iter().find(|(spec, _)| *spec == &case.dataset) {
            Some((_, rows)) => *rows,
            None => {
                let rows = data.open(&case.dataset, plan.seed)?.prompts.len();
                known.push((&case.dataset, rows));
                rows
            }
        };
        if let Some(rows) = rows.filter(|rows| *rows < case.load.planned().unwrap_or(requests)) {
            let what = if case.dataset.on_exhausted == OnExhausted::Fail {
                "fails"
            } else {
                "ends"
            };
            lines.push(format!(
                "the dataset of `{}` has {rows} usable rows, `load.requests` is {requests}: the \
                 case {what} after {rows} requests; lower `load.requests`, or set \
                 `dataset.on_exhausted: cycle`",
                case.id
            ));
        }
    }
    Ok(lines)
}

/// The results of the latest run of a plan, if any.
struct LatestResults(Option<Value>);

impl LatestResults {
    fn read(plan: &Plan) -> LatestResults {
        LatestResults(latest_results(plan).filter(|results| {
            results.get("plan_id").and_then(Value::as_str) == Some(plan.id.as_str())
        }))
    }

    /// The design effect of an objective: number of requests over effective sample size.
    fn design_effect(&self, case: &Case, check: &Check) -> Option<f64> {
        let list = |value: &Value, name: &str| {
            value
                .get(name)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let has_name = |value: &Value, key: &str, name: &str| {
            value.get(key).and_then(Value::as_str) == Some(name)
        };
        let case = list(self.0.as_ref()?, "cases")
            .into_iter()
            .find(|value| has_name(value, "id", &case.id))?;
        let slo = list(&case, "slo")
            .into_iter()
            .find(|value| has_name(value, "expr", &check.expr))?;
        let number = |name: &str| {
            slo.get(name)
                .and_then(Value::as_f64)
                .filter(|number| *number > 0.0)
        };
        Some(number("n")? / number("effective_n")?)
    }
}
