//! The metrics of GuideLLM by name. The rounds of a case form one continuous time.

use crate::export::Measured;
use crate::export::guidellm::distribution::{Dist, concurrency_over_time, rate_over_time};
use llmscen_analysis::TimedRequest;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::FailureKind;
use llmscen_core::units::Nanos;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The statuses of requests.
pub(super) const STATUSES: [&str; 3] = ["successful", "incomplete", "errored"];

/// The distributions by status: successful, incomplete, errored, total.
pub(super) struct ByStatus(pub [Dist; 4]);

impl ByStatus {
    /// A metric that only successful requests have.
    fn only_ok(dist: Dist) -> ByStatus {
        ByStatus([dist.clone(), Dist::default(), Dist::default(), dist])
    }

    /// The distributions as JSON.
    pub(super) fn json(&self) -> Value {
        let [successful, incomplete, errored, total] = &self.0;
        json!({
            "successful": successful.json(),
            "errored": errored.json(),
            "incomplete": incomplete.json(),
            "total": total.json(),
        })
    }
}

/// The index of a request's status: 0 successful, 1 cancelled, 2 failed.
pub(super) fn status(row: &TimedRequest<'_>) -> usize {
    match row.failure() {
        None => 0,
        Some(FailureKind::Abandoned | FailureKind::Cancelled) => 1,
        Some(_) => 2,
    }
}

/// Requests by status.
pub(in crate::export) fn totals(case: &Measured<'_>) -> [usize; 3] {
    [0, 1, 2].map(|selected| {
        case.rows
            .iter()
            .filter(|row| status(row) == selected)
            .count()
    })
}

/// Requests by status as JSON.
pub(super) fn totals_json(case: &Measured<'_>) -> Value {
    let [successful, incomplete, errored] = totals(case);
    json!({ "successful": successful, "errored": errored, "incomplete": incomplete, "total": case.rows.len() })
}

/// A metric: key, group and unit in the table, distributions.
pub(super) type NamedMetric = (&'static str, &'static str, &'static str, ByStatus);

/// A continuous time of all rounds, each from its first send time to its last end.
pub(super) struct Clock {
    rounds: BTreeMap<u32, (Nanos, f64)>,
    /// Duration of all rounds in seconds.
    pub length: f64,
}

impl Clock {
    pub(super) fn new(case: &Measured<'_>) -> Clock {
        let mut bounds: BTreeMap<u32, (Nanos, Nanos)> = BTreeMap::new();
        for (row, sent) in case.rows.iter().filter_map(|row| Some((row, row.sent()?))) {
            let (from, to) = bounds.entry(row.round()).or_insert((sent, row.end()));
            (*from, *to) = ((*from).min(sent), (*to).max(row.end()));
        }
        let mut clock = Clock {
            rounds: BTreeMap::new(),
            length: 0.0,
        };
        for (round, (from, to)) in bounds {
            clock.rounds.insert(round, (from, clock.length));
            clock.length += to.since(from).secs();
        }
        clock
    }

    /// Seconds since the start of the first round.
    fn at(&self, row: &TimedRequest<'_>, instant: Nanos) -> Option<f64> {
        let (from, before) = self.rounds.get(&row.round())?;
        Some(before + instant.since(*from).secs())
    }
}

/// Every metric, in the order of the table.
pub(super) fn metrics(case: &Measured<'_>) -> Vec<NamedMetric> {
    let clock = Clock::new(case);
    let values = |metric: Metric, unit: f64| {
        ByStatus::only_ok(Dist::new(
            case.values(metric).iter().map(|v| v / unit).collect(),
        ))
    };
    let per_request = |get: fn(&TimedRequest<'_>) -> Option<f64>| {
        ByStatus::only_ok(Dist::new(case.ok().filter_map(get).collect()))
    };
    let rate = |events: fn(&TimedRequest<'_>, &Clock) -> Vec<(f64, f64)>| {
        ByStatus::only_ok(rate_over_time(
            case.ok().flat_map(|row| events(row, &clock)).collect(),
            clock.length,
        ))
    };
    let mut out: Vec<NamedMetric> = vec![(
        "request_latency",
        "Request Latency",
        "Sec",
        values(Metric::E2eService, 1e3),
    )];
    if !case.case.load.shape.is_closed_loop() {
        out.push((
            "request_dispatch_delay",
            "Dispatch Delay",
            "Sec",
            values(Metric::ScheduleLag, 1e3),
        ));
        out.push((
            "request_scheduled_latency",
            "Scheduled Latency",
            "Sec",
            values(Metric::E2e, 1e3),
        ));
    }
    out.extend([
        (
            "request_streaming_iterations_count",
            "Streaming Iterations",
            "Count",
            per_request(|row| Some(row.events() as f64)),
        ),
        (
            "time_to_first_token_ms",
            "Time to First Token",
            "ms",
            values(Metric::TtftService, 1.0),
        ),
        (
            "time_per_output_token_ms",
            "Time per Output Token",
            "ms",
            weighted_by_tokens(case, time_per_token, 0.0),
        ),
        (
            "inter_token_latency_ms",
            "Inter Token Latency",
            "ms",
            weighted_by_tokens(case, inter_token_time, 1.0),
        ),
        (
            "requests_per_second",
            "Server Throughput",
            "Requests/Sec",
            requests_per_second(case, &clock),
        ),
        (
            "request_concurrency",
            "Server Throughput",
            "Concurrency",
            concurrency(case, &clock),
        ),
        (
            "prompt_token_count",
            "Token Metrics",
            "Input Tokens",
            values(Metric::PromptTokens, 1.0),
        ),
        (
            "output_token_count",
            "Token Metrics",
            "Output Tokens",
            values(Metric::BilledTokens, 1.0),
        ),
        (
            "total_token_count",
            "Token Metrics",
            "Total Tokens",
            per_request(total_tokens),
        ),
        (
            "prompt_tokens_per_second",
            "Token Throughput",
            "Input Tokens/Sec",
            rate(prompt_events),
        ),
        (
            "output_tokens_per_second",
            "Token Throughput",
            "Output Tokens/Sec",
            rate(output_events),
        ),
        (
            "tokens_per_second",
            "Token Throughput",
            "Total Tokens/Sec",
            rate(all_events),
        ),
        (
            "output_tokens_per_iteration",
            "Token Streaming",
            "Output Tokens/Iter",
            iterations(case, true),
        ),
        (
            "iter_tokens_per_iteration",
            "Token Streaming",
            "Iter Tokens/Iter",
            iterations(case, false),
        ),
    ]);
    out
}

fn total_tokens(row: &TimedRequest<'_>) -> Option<f64> {
    let (input, output) = (row.prompt_tokens(), row.output_tokens());
    (input.is_some() || output.is_some()).then(|| input.unwrap_or(0.0) + output.unwrap_or(0.0))
}

/// Milliseconds from the send time to the last token, per token.
pub(super) fn time_per_token(row: &TimedRequest<'_>) -> Option<f64> {
    row.output_tokens()
        .filter(|&tokens| tokens > 0.0)
        .and_then(|tokens| Some(row.answer_ms()? / tokens))
}

/// Milliseconds from the first to the last token, per token after the first.
pub(super) fn inter_token_time(row: &TimedRequest<'_>) -> Option<f64> {
    let steps = row
        .output_tokens()
        .map(|tokens| tokens - 1.0)
        .filter(|&steps| steps > 0.0)?;
    row.last_token()
        .zip(row.first_token())
        .filter(|_| row.ok())
        .map(|(last, first)| last.since(first).millis() / steps)
}

/// A time per token weighted by the tokens of its request, less `excluded` tokens.
fn weighted_by_tokens(
    case: &Measured<'_>,
    time: fn(&TimedRequest<'_>) -> Option<f64>,
    excluded: f64,
) -> ByStatus {
    let values = case
        .ok()
        .filter_map(|row| Some((time(row)?, row.output_tokens()? - excluded)));
    ByStatus::only_ok(Dist::weighted(values.collect(), None))
}

fn requests_per_second(case: &Measured<'_>, clock: &Clock) -> ByStatus {
    let with_status = |selected: Option<usize>| {
        let rows = case.rows.iter().filter(|row| {
            row.sent().is_some() && selected.is_none_or(|selected| status(row) == selected)
        });
        let events: Vec<_> = rows
            .filter_map(|row| Some((clock.at(row, row.end())?, 1.0)))
            .collect();
        if events.is_empty() {
            Dist::default()
        } else {
            rate_over_time(events, clock.length)
        }
    };
    ByStatus([
        with_status(Some(0)),
        with_status(Some(1)),
        with_status(Some(2)),
        with_status(None),
    ])
}

fn concurrency(case: &Measured<'_>, clock: &Clock) -> ByStatus {
    let with_status = |selected: Option<usize>| {
        let rows = case
            .rows
            .iter()
            .filter(|row| selected.is_none_or(|selected| status(row) == selected));
        let spans: Vec<_> = rows
            .filter_map(|row| Some((clock.at(row, row.sent()?)?, clock.at(row, row.end())?)))
            .collect();
        if spans.is_empty() {
            Dist::default()
        } else {
            concurrency_over_time(&spans, clock.length)
        }
    };
    ByStatus([
        with_status(Some(0)),
        with_status(Some(1)),
        with_status(Some(2)),
        with_status(None),
    ])
}

fn prompt_events(row: &TimedRequest<'_>, clock: &Clock) -> Vec<(f64, f64)> {
    let at = clock.at(row, row.first_token().unwrap_or(row.end()));
    at.zip(row.prompt_tokens()).into_iter().collect()
}

/// Tokens per iteration after the first one, if there are several.
fn tokens_per_step(row: &TimedRequest<'_>) -> Option<f64> {
    let tokens = row.output_tokens().filter(|&tokens| tokens > 1.0)?;
    (row.events() > 1).then(|| (tokens - 1.0) / (row.events() - 1) as f64)
}

/// One token at the first event, and the rest spread evenly over the others; all tokens at the end of a request with
/// one event.
fn output_events(row: &TimedRequest<'_>, clock: &Clock) -> Vec<(f64, f64)> {
    let Some(tokens) = row.output_tokens() else {
        return Vec::new();
    };
    let ends = row
        .first_token()
        .zip(row.last_token())
        .and_then(|(first, last)| clock.at(row, first).zip(clock.at(row, last)));
    let Some((first, last)) = ends.filter(|_| row.events() > 1) else {
        return clock
            .at(row, row.last_token().unwrap_or(row.end()))
            .map(|at| (at, tokens))
            .into_iter()
            .collect();
    };
    let steps = row.events() - 1;
    let at = |index: u64| first + (last - first) * index as f64 / steps as f64;
    let rest = tokens_per_step(row)
        .into_iter()
        .flat_map(|each| (1..=steps).map(move |index| (at(index), each)));
    std::iter::once((first, tokens.min(1.0)))
        .chain(rest)
        .collect()
}

fn all_events(row: &TimedRequest<'_>, clock: &Clock) -> Vec<(f64, f64)> {
    let mut events = prompt_events(row, clock);
    events.extend(output_events(row, clock));
    events
}

/// Tokens per iteration, with or without the first one.
fn iterations(case: &Measured<'_>, with_first: bool) -> ByStatus {
    let mut values = Vec::new();
    for (row, tokens) in case
        .ok()
        .filter_map(|row| Some((row, row.output_tokens()?)))
    {
        let has_several = row.events() > 1;
        if with_first {
            values.push((if has_several { tokens.min(1.0) } else { tokens }, 1.0));
        }
        values.extend(tokens_per_step(row).map(|each| (each, (row.events() - 1) as f64)));
    }
    ByStatus::only_ok(Dist::weighted(values, None))
}
