//! The measured requests of a case, their counts and distributions, and an example of each kind of failure.

use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::scalars::{hardware_scalars, scalars};
use crate::table::Table;
use crate::{CaseFacts, sending, telemetry};
use llmscen_core::manifest::Part;
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::report::FailureExample;
use llmscen_core::request::Departure;
use llmscen_core::sample::{Counts, Distribution, Row, Sample, Values};
use llmscen_core::stats::{moments, quantile};
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// The measured requests of a case and every figure taken from them.
pub fn sample(table: &Table, facts: &CaseFacts<'_>) -> Sample {
    let all: Vec<RequestRow<'_>> = table.rows_of_case(&facts.case.id).into_iter().filter(|fact| !given_up(fact, facts)).collect();
    of(table, &all, facts)
}

/// Whether a request was still in flight when its round, which the tool itself had ended early, was over: it says nothing of
/// the server. Its row stays.
pub(super) fn given_up(fact: &RequestRow<'_>, facts: &CaseFacts<'_>) -> bool {
    let ended = |part: &Part| part.ending.is_some() || part.probe.is_some_and(|probe| probe.hopeless);
    let own = |part: &&Part| part.case == facts.case.id && part.round == fact.round();
    fact.failure() == Some(FailureKind::Cancelled) && facts.parts.iter().find(own).is_some_and(ended)
}

/// The same of one round alone.
pub fn round_sample(table: &Table, facts: &CaseFacts<'_>, round: u32) -> Sample {
    let own = |fact: &RequestRow<'_>| fact.round() == round && !given_up(fact, facts);
    let all: Vec<RequestRow<'_>> = table.rows_of_case(&facts.case.id).into_iter().filter(own).collect();
    of(table, &all, facts)
}

fn of(table: &Table, all: &[RequestRow<'_>], facts: &CaseFacts<'_>) -> Sample {
    let rounds = rounds(all, facts);
    let measured = || all.iter().filter(|fact| fact.measured());
    let mut rows: Vec<Row> = Vec::with_capacity(measured().count());
    for round in &rounds {
        let start = round.window.map_or(0, |(from, _)| from);
        let seconds = |fact: &RequestRow<'_>| fact.intended().saturating_sub(start) as f64 / 1e9;
        rows.extend(round.measured().map(|fact| Row { scheduled_s: seconds(fact), ..row(fact, facts) }));
    }
    // Neighbours are those of one moment: the turns of a session are not.
    rows.sort_by(|a, b| a.round.cmp(&b.round).then(a.scheduled_s.total_cmp(&b.scheduled_s)));
    let watched = telemetry::watched(table, facts, &rounds);
    let (sending, flows) = (sending::lengths(&rounds, facts), sending::flows(&rounds, facts));
    let mut scalars = scalars(&rounds, (&rows, &sending, &flows), facts);
    scalars.extend(hardware_scalars(&rounds, &rows, (facts, &watched)));
    let (windows, distributions, counts) = (windows(&rounds), distributions(&rows), counts(all));
    let signals = telemetry::signals(&watched);
    Sample { windows, sending, flows, scalars, distributions, signals, counts, without_file: without_file(all), rows }
}

/// Requests that this side had no file or port for. In warm-up too: what was not sent then warmed nothing up.
fn without_file(all: &[RequestRow<'_>]) -> u64 {
    let own = |fact: &&RequestRow<'_>| fact.own() && fact.failure() == Some(FailureKind::Connect);
    all.iter()
        .filter(own)
        .filter(|fact| [Failure::NO_FILES, Failure::NO_PORTS].iter().any(|why| fact.message().contains(why)))
        .count() as u64
}

/// A row as it counts. A user who leaves by the clock has seen a first token only where it was early: those that came late are
/// missing, so none of them may count.
fn row(fact: &RequestRow<'_>, facts: &CaseFacts<'_>) -> Row {
    let by_clock = || {
        facts
            .case
            .request_of(fact.group().map(|group| &**group))
            .cancel
            .as_ref()
            .is_some_and(|cancel| matches!(cancel.when, Departure::After(_)))
    };
    match fact.row() {
        row if row.left && by_clock() => Row { values: Values::default(), ..row },
        row => row,
    }
}

/// One per round number; 0 for a round without measured rows.
fn windows(rounds: &[Round<'_, '_>]) -> Vec<f64> {
    let mut windows = vec![0.0; rounds.last().map_or(0, |round| round.number() as usize + 1)];
    for round in rounds {
        if let Some(window) = windows.get_mut(round.number() as usize) {
            *window = round.length();
        }
    }
    windows
}

fn distributions(rows: &[Row]) -> BTreeMap<Metric, Distribution> {
    let metrics = Metric::ALL.iter().filter(|metric| metric.per() != Scope::Case);
    metrics.filter_map(|&metric| Some((metric, distribution(values(rows, metric))?))).collect()
}

/// The values of a metric over ok rows; gaps pool over requests.
pub(super) fn values<R: Borrow<Row>>(rows: &[R], metric: Metric) -> Vec<f64> {
    let ok = rows.iter().map(Borrow::borrow).filter(|row| row.counts(metric));
    match metric.per() {
        Scope::Gap => ok.flat_map(|row| row.gaps.iter().copied()).collect(),
        Scope::Request | Scope::Case => ok.filter_map(|row| row.values.get(&metric).copied()).collect(),
    }
}

fn counts(all: &[RequestRow<'_>]) -> Counts {
    let mut counts = Counts::default();
    for fact in all.iter().filter(|fact| fact.own()) {
        counts.reconnects += u64::from(fact.reconnects());
        if !fact.measured() {
            counts.warmup += 1;
            continue;
        }
        counts.scheduled += 1;
        match fact.failure() {
            None => counts.ok += 1,
            Some(FailureKind::Abandoned) => counts.abandoned += 1,
            Some(FailureKind::Dropped) => counts.dropped += 1,
            Some(_) => counts.failed += 1,
        }
        counts.retries += u64::from(fact.attempts().saturating_sub(1));
        counts.retried += u64::from(fact.attempts() > 1);
        if let Some(kind) = fact.failure().filter(|_| !fact.left()) {
            *counts.failures.entry(kind).or_default() += 1;
        }
    }
    counts
}

/// The distribution of these values; None where there are none. Each column is sorted once, here.
pub(super) fn distribution(mut values: Vec<f64>) -> Option<Distribution> {
    quantile::sort(&mut values);
    Some(Distribution {
        n: values.len() as u64,
        mean: moments::mean(&values)?,
        sd: moments::sd(&values),
        min: *values.first()?,
        max: *values.last()?,
        quantiles: Distribution::SHARES
            .iter()
            .filter_map(|&share| quantile::quantile(&values, share, quantile::Method::NearestRank))
            .collect(),
    })
}

/// The kinds of failure among the measured requests of a case, most frequent first, each with the words of its first one;
/// without what the tool itself gave up when it ended a round early.
pub fn failures(table: &Table, facts: &CaseFacts<'_>) -> Vec<FailureExample> {
    let mut kinds: BTreeMap<FailureKind, FailureExample> = BTreeMap::new();
    let counts = |fact: &&RequestRow<'_>| fact.measured() && !fact.left() && !given_up(fact, facts);
    for fact in table.rows_of_case(&facts.case.id).iter().filter(counts) {
        let Some(kind) = fact.failure() else { continue };
        let status = fact.status().and_then(|status| u16::try_from(status).ok());
        let first = || FailureExample { kind, count: 0, status, message: fact.message().into(), at: fact.at_place().into() };
        kinds.entry(kind).or_insert_with(first).count += 1;
    }
    let mut examples: Vec<_> = kinds.into_values().collect();
    examples.sort_by_key(|example| std::cmp::Reverse(example.count));
    examples
}

#[cfg(test)]
mod tests;
