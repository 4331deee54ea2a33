//! The measured requests of a case with all figures taken from them, and an example of each kind of failure.

use crate::answer_cache::{RepeatedPrompts, compare_repeated};
use crate::error::TableError;
use crate::measured_requests::{MeasuredRequest, MeasuredRequests, RequestsBuilder};
use crate::planned_load::PlannedLoad;
use crate::request_row::RequestRow;
use crate::round::{Round, cancelled_by_stop, rounds};
use crate::scalars::{hardware_scalars, scalars};
use crate::sending::{Flow, ThroughputWindow, Unit, Windows};
use crate::table::Table;
use crate::telemetry::{EngineTokens, RoundTelemetry, Workers, engine_tokens, page_figure, roles};
use crate::{CaseFacts, output_lengths, sending, telemetry};
use llmscen_core::check::{Check, PageMetric, Subject};
use llmscen_core::load::Shape;
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::outcome::FailureKind;
use llmscen_core::report::FailureExample;
use llmscen_core::request::CancelWhen;
use llmscen_core::sample::{Counts, SummaryStatistics};
use llmscen_core::signal::Signal;
use llmscen_core::stats::{moments, quantile};
use llmscen_core::telemetry::SignalStat;
use std::collections::BTreeMap;

/// All measured requests of one case, and the windows they ran in.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The requests, dropped ones included, in the order of round and scheduled send.
    pub requests: MeasuredRequests,
    /// Length of the measured window of each round, in seconds.
    pub windows: Vec<f64>,
    /// The windows that throughputs of requests and tokens are over.
    pub requests_window: ThroughputWindow,
    /// Those that throughputs of sessions are over.
    pub sessions_window: ThroughputWindow,
    /// What arrived in the throughput windows.
    pub flows: Vec<Flow>,
    /// Case-level metrics that exist, in their units.
    pub scalars: BTreeMap<Metric, f64>,
    /// Distributions of the per-request and per-gap metrics that exist, over ok requests.
    pub distributions: BTreeMap<Metric, SummaryStatistics>,
    /// The signals that exist.
    pub signals: BTreeMap<Signal, SignalStat>,
    /// The metrics of the server's page that objectives limit, each with the number of its values.
    pub page: BTreeMap<PageMetric, (f64, u64)>,
    /// The signals of the workers with a role.
    pub role_signals: BTreeMap<(String, Signal), SignalStat>,
    /// The engines of the target, and the tokens that each generated; empty for a single engine.
    pub engine_tokens: Vec<EngineTokens>,
    /// Counts.
    pub counts: Counts,
    /// Repeated prompts against their first requests; None where no prompt was repeated, or the prompts are not known.
    pub repeated_prompts: Option<RepeatedPrompts>,
    /// Requests that failed because this machine had no file or port to open a connection with.
    pub without_file: u64,
}

impl Sample {
    /// The windows that a throughput is over.
    pub fn throughput_window(&self, metric: Metric) -> &ThroughputWindow {
        match metric.is_session_rate() {
            true => &self.sessions_window,
            false => &self.requests_window,
        }
    }

    /// The same case with other requests.
    pub(super) fn with_requests(&self, requests: MeasuredRequests) -> Sample {
        Sample {
            requests,
            ..self.clone()
        }
    }

    /// A signal of the workers with a role, or of all.
    pub fn signal(&self, signal: Signal, role: Option<&str>) -> Option<&SignalStat> {
        match role {
            None => self.signals.get(&signal),
            Some(role) => self.role_signals.get(&(role.to_owned(), signal)),
        }
    }
}

/// Whether the load does not change with time.
fn is_even(shape: &Shape) -> bool {
    let is_batch = matches!(
        shape,
        Shape::Closed { .. } | Shape::Burst | Shape::Static { .. }
    );
    is_batch || shape.constant_rate().is_some()
}

/// Samples a case over all its rounds.
///
/// # Errors
/// A frame could not be built.
pub fn sample_case(table: &Table, facts: &CaseFacts<'_>) -> Result<Sample, TableError> {
    let rows: Vec<RequestRow<'_>> = table
        .rows_of_case(&facts.case.id)
        .into_iter()
        .filter(|row| !cancelled_by_stop(row, facts))
        .collect();
    sample_rows(table, &rows, facts)
}

/// Samples one round of a case.
///
/// # Errors
/// A frame could not be built.
pub fn sample_round(
    table: &Table,
    facts: &CaseFacts<'_>,
    round: u32,
) -> Result<Sample, TableError> {
    let of_round = |row: &RequestRow<'_>| row.round() == round && !cancelled_by_stop(row, facts);
    let rows: Vec<RequestRow<'_>> = table
        .rows_of_case(&facts.case.id)
        .into_iter()
        .filter(of_round)
        .collect();
    sample_rows(table, &rows, facts)
}

fn sample_rows(
    table: &Table,
    rows: &[RequestRow<'_>],
    facts: &CaseFacts<'_>,
) -> Result<Sample, TableError> {
    let rounds = rounds(rows, facts);
    let requests = measured_requests(&rounds, facts)?;
    let measured: Vec<MeasuredRequest<'_>> = requests.iter().collect();
    let telemetry_of_rounds = telemetry::round_telemetry(table, facts, &rounds);
    let requests_window = ThroughputWindow::of(&rounds, facts, Unit::Request);
    let sessions_window = ThroughputWindow::of(&rounds, facts, Unit::Session);
    let throughput_windows = Windows {
        requests: &requests_window,
        sessions: &sessions_window,
    };
    let flows = sending::flows(&rounds, &throughput_windows, facts);
    let mut scalars = scalars(&rounds, (&measured, &throughput_windows, &flows), facts);
    scalars.extend(hardware_scalars(
        &rounds,
        &measured,
        (facts, &telemetry_of_rounds),
    ));
    Ok(Sample {
        windows: windows(&rounds),
        requests_window,
        sessions_window,
        flows,
        scalars,
        distributions: distributions(&measured),
        signals: telemetry::signals(&telemetry_of_rounds, Workers::All),
        role_signals: role_signals(&telemetry_of_rounds, facts),
        engine_tokens: engine_tokens(&telemetry_of_rounds),
        page: limited_metrics(facts, &telemetry_of_rounds),
        counts: counts(rows),
        // Under a load that changes, repeated prompts may be faster because fewer are in flight.
        repeated_prompts: is_even(&facts.case.load.shape)
            .then(|| compare_repeated(rows))
            .flatten(),
        without_file: without_file(rows),
        requests,
    })
}

fn role_signals(
    rounds: &[RoundTelemetry<'_>],
    facts: &CaseFacts<'_>,
) -> BTreeMap<(String, Signal), SignalStat> {
    let of_role = |role: &str| {
        let signals = telemetry::signals(rounds, Workers::WithRole(Some(role)));
        let key = |(signal, stat)| ((role.to_owned(), signal), stat);
        signals.into_iter().map(key).collect::<Vec<_>>()
    };
    let roles = roles(rounds, &facts.case.target.roles());
    roles.into_iter().flat_map(of_role).collect()
}

fn limited_metrics(
    facts: &CaseFacts<'_>,
    rounds: &[RoundTelemetry<'_>],
) -> BTreeMap<PageMetric, (f64, u64)> {
    let limited = |check: &Check| match &check.subject {
        Subject::PageMetric(metric) => Some((metric.clone(), page_figure(rounds, metric)?)),
        _ => None,
    };
    let checks = facts.case.checks.iter().chain(&facts.case.stage_checks);
    checks.filter_map(limited).collect()
}

/// The measured rows as columns, ordered by round and scheduled send: neighbors are the requests of one moment, which
/// the turns of a session are not.
fn measured_requests(
    rounds: &[Round<'_, '_>],
    facts: &CaseFacts<'_>,
) -> Result<MeasuredRequests, TableError> {
    let load = PlannedLoad::new(facts.case);
    let mut scheduled: Vec<((f64, u32), &RequestRow<'_>)> = Vec::new();
    for round in rounds {
        let start = round.window.map_or(0, |(from, _)| from);
        let first = scheduled.len();
        let place = |row: &RequestRow<'_>| {
            let part = load.part(row.intended(), start, row.group());
            (row.intended().saturating_sub(start) as f64 / 1e9, part)
        };
        scheduled.extend(round.measured().map(|row| (place(row), row)));
        if let Some(of_round) = scheduled.get_mut(first..) {
            of_round.sort_by(|(a, _), (b, _)| a.0.total_cmp(&b.0));
        }
    }
    let gaps = scheduled
        .iter()
        .filter(|(_, row)| row.ok())
        .map(|(_, row)| row.events().len())
        .sum();
    let mut requests = RequestsBuilder::default();
    requests.expect_gaps(gaps);
    for (place, row) in scheduled {
        // A client that cancels after a fixed time has only seen early first tokens: the late ones are missing, so
        // none count.
        let counts = if row.left() && cancels_after_time(row, facts) {
            |metric| matches!(metric, Metric::PromptTokens | Metric::OutputTokens)
        } else {
            |_| true
        };
        let requested = output_lengths::requested(row, facts.case);
        requests.push_row(row, place, |metric| {
            counts(metric) && output_lengths::applies(metric, row, requested)
        });
    }
    requests.finish()
}

fn cancels_after_time(row: &RequestRow<'_>, facts: &CaseFacts<'_>) -> bool {
    let request = facts.case.request_for_group(row.group());
    request
        .cancel
        .as_ref()
        .is_some_and(|cancel| matches!(cancel.when, CancelWhen::After(_)))
}

/// Requests, warm-up included, that this machine had no file or port for.
fn without_file(all: &[RequestRow<'_>]) -> u64 {
    let failed = |row: &&RequestRow<'_>| row.is_of_case() && row.lacked_file();
    all.iter().filter(failed).count() as u64
}

/// Length of each round's measured window in seconds, by round number; 0 for a round without measured rows.
fn windows(rounds: &[Round<'_, '_>]) -> Vec<f64> {
    let mut windows = vec![0.0; rounds.last().map_or(0, |round| round.number() as usize + 1)];
    for round in rounds {
        if let Some(window) = windows.get_mut(round.number() as usize) {
            *window = round.length();
        }
    }
    windows
}

fn distributions(requests: &[MeasuredRequest<'_>]) -> BTreeMap<Metric, SummaryStatistics> {
    let metrics = Metric::ALL
        .iter()
        .filter(|metric| metric.per() != Scope::Case);
    metrics
        .filter_map(|&metric| Some((metric, distribution(values(requests, metric))?)))
        .collect()
}

/// The values of a metric over ok requests; gaps pool over requests.
pub(super) fn values(requests: &[MeasuredRequest<'_>], metric: Metric) -> Vec<f64> {
    requests
        .iter()
        .flat_map(|request| request.samples(metric).iter())
        .collect()
}

fn counts(all: &[RequestRow<'_>]) -> Counts {
    let mut counts = Counts::default();
    for row in all.iter().filter(|row| row.is_of_case()) {
        counts.reconnects += u64::from(row.reconnects());
        if row.cools_down() {
            counts.cooldown += 1;
            continue;
        }
        if !row.measured() {
            counts.warmup += 1;
            continue;
        }
        counts.scheduled += 1;
        counts.arrivals += u64::from(row.turn() == row.first_turn());
        let is_held = row.held_until().is_some_and(|until| until > row.intended());
        counts.held += u64::from(is_held);
        counts.held_unsent += u64::from(is_held && row.sent().is_none());
        match row.failure() {
            None => counts.ok += 1,
            Some(FailureKind::Abandoned) => counts.abandoned += 1,
            Some(FailureKind::Dropped) => counts.dropped += 1,
            Some(_) => counts.failed += 1,
        }
        counts.retries += u64::from(row.attempts().saturating_sub(1));
        counts.retried += u64::from(row.attempts() > 1);
        if let Some(kind) = row.failure().filter(|_| !row.left()) {
            *counts.failures.entry(kind).or_default() += 1;
        }
    }
    counts
}

/// The distribution of values; None without values. Each column is sorted once, here.
pub(super) fn distribution(mut values: Vec<f64>) -> Option<SummaryStatistics> {
    quantile::sort(&mut values);
    Some(SummaryStatistics {
        n: values.len() as u64,
        mean: moments::mean(&values)?,
        sd: moments::sd(&values),
        min: *values.first()?,
        max: *values.last()?,
        quantiles: SummaryStatistics::SHARES
            .iter()
            .filter_map(|&share| quantile::quantile(&values, share, quantile::Method::NearestRank))
            .collect(),
    })
}

/// The kinds of failure among the measured requests of a case, most frequent first, each with the message of its
/// first one.
pub fn failure_examples(table: &Table, facts: &CaseFacts<'_>) -> Vec<FailureExample> {
    let mut kinds: BTreeMap<FailureKind, FailureExample> = BTreeMap::new();
    let counts =
        |row: &&RequestRow<'_>| row.measured() && !row.left() && !cancelled_by_stop(row, facts);
    for row in table.rows_of_case(&facts.case.id).iter().filter(counts) {
        let Some(kind) = row.failure() else { continue };
        let status = row.status().and_then(|status| u16::try_from(status).ok());
        let first = || FailureExample {
            kind,
            count: 0,
            status,
            message: row.message().into(),
            at: row.failed_at().into(),
        };
        kinds.entry(kind).or_insert_with(first).count += 1;
    }
    let mut examples: Vec<_> = kinds.into_values().collect();
    examples.sort_by_key(|example| std::cmp::Reverse(example.count));
    examples
}

#[cfg(test)]
mod tests;
