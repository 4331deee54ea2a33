//! GuideLLM's metrics of one benchmark, by their names. Rounds of a case are put end to end.

use crate::compat::Measured;
use crate::compat::guidellm::distribution::{Dist, concurrency_over_time, rate_over_time};
use llmscen_analysis::TimedRequest;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::FailureKind;
use llmscen_core::units::Nanos;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What became of requests, in their words.
pub(super) const STATUSES: [&str; 3] = ["successful", "incomplete", "errored"];

/// A summary by status: successful, incomplete, errored, all of them.
pub(super) struct Split(pub [Dist; 4]);

impl Split {
    /// Of what only successful requests have.
    fn of_ok(dist: Dist) -> Split {
        Split([dist.clone(), Dist::default(), Dist::default(), dist])
    }

    /// The summaries as JSON.
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

/// What became of a request: 0 it succeeded, 1 its user left or the run was over, 2 it failed.
pub(super) fn status(row: &TimedRequest<'_>) -> usize {
    match row.failure() {
        None => 0,
        Some(FailureKind::Abandoned | FailureKind::Cancelled) => 1,
        Some(_) => 2,
    }
}

/// Requests by status.
pub(super) fn totals(case: &Measured<'_>) -> [usize; 3] {
    [0, 1, 2].map(|wanted| case.rows.iter().filter(|row| status(row) == wanted).count())
}

/// Requests by status as JSON.
pub(super) fn totals_json(case: &Measured<'_>) -> Value {
    let [successful, incomplete, errored] = totals(case);
    json!({ "successful": successful, "errored": errored, "incomplete": incomplete, "total": case.rows.len() })
}

/// A metric: its key, its group and unit in the table, its summaries.
pub(super) type Named = (&'static str, &'static str, &'static str, Split);

/// Time in which rounds follow one another: from the first sending of each to its last end.
pub(super) struct Clock {
    rounds: BTreeMap<u32, (Nanos, f64)>,
    /// Seconds of all rounds.
    pub length: f64,
}

impl Clock {
    pub(super) fn of(case: &Measured<'_>) -> Clock {
        let mut bounds: BTreeMap<u32, (Nanos, Nanos)> = BTreeMap::new();
        for (row, sent) in case.rows.iter().filter_map(|row| Some((row, row.sent()?))) {
            let (from, to) = bounds.entry(row.round()).or_insert((sent, row.end()));
            (*from, *to) = ((*from).min(sent), (*to).max(row.end()));
        }
        let mut clock = Clock { rounds: BTreeMap::new(), length: 0.0 };
        for (round, (from, to)) in bounds {
            clock.rounds.insert(round, (from, clock.length));
            clock.length += to.since(from).secs();
        }
        clock
    }

    fn at(&self, row: &TimedRequest<'_>, instant: Nanos) -> Option<f64> {
        let (from, before) = self.rounds.get(&row.round())?;
        Some(before + instant.since(*from).secs())
    }
}

/// Every metric, in the order of the table.
pub(super) fn metrics(case: &Measured<'_>) -> Vec<Named> {
    let clock = Clock::of(case);
    let values = |metric: Metric, unit: f64| Split::of_ok(Dist::of(case.values(metric).iter().map(|v| v / unit).collect()));
    let own = |get: fn(&TimedRequest<'_>) -> Option<f64>| Split::of_ok(Dist::of(case.ok().filter_map(get).collect()));
    let rate = |events: fn(&TimedRequest<'_>, &Clock) -> Vec<(f64, f64)>| {
        Split::of_ok(rate_over_time(case.ok().flat_map(|row| events(row, &clock)).collect(), clock.length))
    };
    let mut out: Vec<Named> = vec![("request_latency", "Request Latency", "Sec", values(Metric::E2eService, 1e3))];
    if !case.case.load.shape.closed() {
        out.push(("request_dispatch_delay", "Dispatch Delay", "Sec", values(Metric::ScheduleLag, 1e3)));
        out.push(("request_scheduled_latency", "Scheduled Latency", "Sec", values(Metric::E2e, 1e3)));
    }
    out.extend([
        ("request_streaming_iterations_count", "Streaming Iterations", "Count", own(|row| Some(row.events() as f64))),
        ("time_to_first_token_ms", "Time to First Token", "ms", values(Metric::TtftService, 1.0)),
        ("time_per_output_token_ms", "Time per Output Token", "ms", weighted(case, per_token, 0.0)),
        ("inter_token_latency_ms", "Inter Token Latency", "ms", weighted(case, between_tokens, 1.0)),
        ("requests_per_second", "Server Throughput", "Requests/Sec", requests_per_second(case, &clock)),
        ("request_concurrency", "Server Throughput", "Concurrency", concurrency(case, &clock)),
        ("prompt_token_count", "Token Metrics", "Input Tokens", values(Metric::PromptTokens, 1.0)),
        ("output_token_count", "Token Metrics", "Output Tokens", values(Metric::OutputTokens, 1.0)),
        ("total_token_count", "Token Metrics", "Total Tokens", own(both)),
        ("prompt_tokens_per_second", "Token Throughput", "Input Tokens/Sec", rate(prompt_events)),
        ("output_tokens_per_second", "Token Throughput", "Output Tokens/Sec", rate(output_events)),
        ("tokens_per_second", "Token Throughput", "Total Tokens/Sec", rate(all_events)),
        ("output_tokens_per_iteration", "Token Streaming", "Output Tokens/Iter", iterations(case, true)),
        ("iter_tokens_per_iteration", "Token Streaming", "Iter Tokens/Iter", iterations(case, false)),
    ]);
    out
}

fn both(row: &TimedRequest<'_>) -> Option<f64> {
    let (input, output) = (row.prompt_tokens(), row.output_tokens());
    (input.is_some() || output.is_some()).then(|| input.unwrap_or(0.0) + output.unwrap_or(0.0))
}

/// From the sending to the last token, over all tokens, milliseconds.
pub(super) fn per_token(row: &TimedRequest<'_>) -> Option<f64> {
    row.output_tokens().filter(|&tokens| tokens > 0.0).and_then(|tokens| Some(row.answer_ms()? / tokens))
}

/// From the first to the last token, over the tokens after the first, milliseconds.
pub(super) fn between_tokens(row: &TimedRequest<'_>) -> Option<f64> {
    let steps = row.output_tokens().map(|tokens| tokens - 1.0).filter(|&steps| steps > 0.0)?;
    row.last_token().zip(row.first_token()).filter(|_| row.ok()).map(|(last, first)| last.since(first).millis() / steps)
}

/// A pace weighed by the tokens that it is of, but for so many of each request.
fn weighted(case: &Measured<'_>, pace: fn(&TimedRequest<'_>) -> Option<f64>, less: f64) -> Split {
    let values = case.ok().filter_map(|row| Some((pace(row)?, row.output_tokens()? - less)));
    Split::of_ok(Dist::weighted(values.collect(), None))
}

fn requests_per_second(case: &Measured<'_>, clock: &Clock) -> Split {
    let of = |wanted: Option<usize>| {
        let rows = case.rows.iter().filter(|row| row.sent().is_some() && wanted.is_none_or(|wanted| status(row) == wanted));
        let events: Vec<_> = rows.filter_map(|row| Some((clock.at(row, row.end())?, 1.0))).collect();
        if events.is_empty() { Dist::default() } else { rate_over_time(events, clock.length) }
    };
    Split([of(Some(0)), of(Some(1)), of(Some(2)), of(None)])
}

fn concurrency(case: &Measured<'_>, clock: &Clock) -> Split {
    let of = |wanted: Option<usize>| {
        let rows = case.rows.iter().filter(|row| wanted.is_none_or(|wanted| status(row) == wanted));
        let spans: Vec<_> = rows.filter_map(|row| Some((clock.at(row, row.sent()?)?, clock.at(row, row.end())?))).collect();
        if spans.is_empty() { Dist::default() } else { concurrency_over_time(&spans, clock.length) }
    };
    Split([of(Some(0)), of(Some(1)), of(Some(2)), of(None)])
}

fn prompt_events(row: &TimedRequest<'_>, clock: &Clock) -> Vec<(f64, f64)> {
    let at = clock.at(row, row.first_token().unwrap_or(row.end()));
    at.zip(row.prompt_tokens()).into_iter().collect()
}

/// Tokens per iteration after the first one, where there are several.
fn step(row: &TimedRequest<'_>) -> Option<f64> {
    let tokens = row.output_tokens().filter(|&tokens| tokens > 1.0)?;
    (row.events() > 1).then(|| (tokens - 1.0) / (row.events() - 1) as f64)
}

/// One token at the first event, the rest evenly over evenly spaced others; all at the end where there are none.
fn output_events(row: &TimedRequest<'_>, clock: &Clock) -> Vec<(f64, f64)> {
    let Some(tokens) = row.output_tokens() else { return Vec::new() };
    let ends = row.first_token().zip(row.last_token()).and_then(|(first, last)| clock.at(row, first).zip(clock.at(row, last)));
    let Some((first, last)) = ends.filter(|_| row.events() > 1) else {
        return clock.at(row, row.last_token().unwrap_or(row.end())).map(|at| (at, tokens)).into_iter().collect();
    };
    let steps = row.events() - 1;
    let at = |index: u64| first + (last - first) * index as f64 / steps as f64;
    let rest = step(row).into_iter().flat_map(|each| (1..=steps).map(move |index| (at(index), each)));
    std::iter::once((first, tokens.min(1.0))).chain(rest).collect()
}

fn all_events(row: &TimedRequest<'_>, clock: &Clock) -> Vec<(f64, f64)> {
    let mut events = prompt_events(row, clock);
    events.extend(output_events(row, clock));
    events
}

/// Tokens in each iteration, with the first one or without.
fn iterations(case: &Measured<'_>, with_first: bool) -> Split {
    let mut values = Vec::new();
    for (row, tokens) in case.ok().filter_map(|row| Some((row, row.output_tokens()?))) {
        let several = row.events() > 1;
        if with_first {
            values.push((if several { tokens.min(1.0) } else { tokens }, 1.0));
        }
        values.extend(step(row).map(|each| (each, (row.events() - 1) as f64)));
    }
    Split::of_ok(Dist::weighted(values, None))
}
