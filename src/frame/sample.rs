//! Everything that is counted of one case.

use crate::frame::CaseFacts;
use crate::frame::distribution;
use crate::frame::error::FrameError;
use crate::frame::facts::{self, Fact};
use crate::frame::round::{Round, rounds};
use crate::frame::scalars::scalars;
use crate::frame::table::Table;
use crate::model::metric::{Metric, Per};
use crate::model::outcome::FailureKind;
use crate::model::report::Part;
use crate::model::sample::{Counts, Distribution, Row, Sample};
use std::collections::BTreeMap;

/// The measured requests of a case and every figure taken from them.
///
/// # Errors
/// Where the table holds a word that is not one of its column's.
pub fn sample(table: &Table, facts: &CaseFacts<'_>) -> Result<Sample, FrameError> {
    let all: Vec<Fact<'_>> = facts::of(table, &facts.case.id)?.into_iter().filter(|fact| !given_up(fact, facts)).collect();
    of(&all, facts)
}

/// Whether a request was in flight when a hopeless probe was given up: it says nothing of the server. Its row stays.
fn given_up(fact: &Fact<'_>, facts: &CaseFacts<'_>) -> bool {
    let hopeless = |part: &Part| part.probe.is_some_and(|probe| probe.hopeless);
    let own = |part: &&Part| part.case == facts.case.id && part.round == fact.round;
    fact.failure == Some(FailureKind::Cancelled) && facts.parts.iter().find(own).is_some_and(hopeless)
}

/// The same of one round alone.
///
/// # Errors
/// As of [`sample`].
pub fn round_sample(table: &Table, facts: &CaseFacts<'_>, round: u32) -> Result<Sample, FrameError> {
    let own = |fact: &Fact<'_>| fact.round == round && !given_up(fact, facts);
    let all: Vec<Fact<'_>> = facts::of(table, &facts.case.id)?.into_iter().filter(own).collect();
    of(&all, facts)
}

fn of(all: &[Fact<'_>], facts: &CaseFacts<'_>) -> Result<Sample, FrameError> {
    let rounds = rounds(all, facts);
    let rows: Vec<Row> = all.iter().filter(|fact| fact.measured).map(Fact::row).collect();
    let scalars = scalars(&rounds, &rows, facts);
    Ok(Sample { windows: windows(&rounds), scalars, distributions: distributions(&rows), counts: counts(all), rows })
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
    let metrics = Metric::ALL.iter().filter(|metric| metric.per() != Per::Case);
    metrics.filter_map(|&metric| Some((metric, distribution::of(values(rows, metric))?))).collect()
}

/// The values of a metric over ok rows; gaps pool over requests.
pub(super) fn values(rows: &[Row], metric: Metric) -> Vec<f64> {
    let ok = rows.iter().filter(|row| row.ok);
    match metric.per() {
        Per::Gap => ok.flat_map(|row| row.gaps.iter().copied()).collect(),
        Per::Request | Per::Case => ok.filter_map(|row| row.values.get(&metric).copied()).collect(),
    }
}

fn counts(all: &[Fact<'_>]) -> Counts {
    let mut counts = Counts::default();
    for fact in all {
        counts.reconnects += u64::from(fact.reconnects);
        if !fact.measured {
            counts.warmup += 1;
            continue;
        }
        counts.scheduled += 1;
        match fact.failure {
            None => counts.ok += 1,
            Some(FailureKind::Dropped) => counts.dropped += 1,
            Some(_) => counts.failed += 1,
        }
        if let Some(kind) = fact.failure {
            *counts.failures.entry(kind).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::fixture::{case, facts, failed, outcome, stream, table, warmup};
    use crate::frame::table::Tagged;
    use crate::model::load::Shape;

    #[test]
    fn every_scheduled_request_is_counted_once() {
        let rows = [
            warmup(failed(0, FailureKind::Connect)),
            outcome(1),
            failed(2, FailureKind::Dropped),
            failed(3, FailureKind::Cancelled),
            failed(4, FailureKind::Dropped),
        ];
        let seen = sample(&table("a", &rows), &facts(&case(Shape::Closed { users: 1 }))).unwrap();
        let failures = BTreeMap::from([(FailureKind::Cancelled, 1), (FailureKind::Dropped, 2)]);
        let known = Counts { scheduled: 4, ok: 1, failed: 1, dropped: 2, failures, warmup: 1, reconnects: 0 };
        assert_eq!((seen.counts, seen.rows.len()), (known, 4));
    }

    #[test]
    fn distributions_are_over_what_succeeded() {
        let mut rows = vec![stream(0, 0, &[10, 30]), stream(1, 0, &[20, 60, 60])];
        rows.push(failed(2, FailureKind::Truncated));
        let seen = sample(&table("a", &rows), &facts(&case(Shape::Closed { users: 1 }))).unwrap();
        let of = |metric| &seen.distributions[&metric];
        assert_eq!((of(Metric::Ttft).n, of(Metric::Ttft).min, of(Metric::Ttft).max), (2, 10.0, 20.0));
        assert_eq!((of(Metric::Itl).n, of(Metric::Itl).mean, of(Metric::ScheduleLag).max), (3, 20.0, 0.0));
        assert!(!seen.distributions.contains_key(&Metric::CachedTokens));
    }

    #[test]
    fn cases_do_not_mix_and_a_lost_round_has_no_window() {
        let (a, b) = (outcome(0), outcome(1));
        let rows = [("b", 0, &a), ("a", 2, &b)].map(|(case, round, outcome)| Tagged { case, round, shard: 0, outcome });
        let seen = sample(&Table::build(rows).unwrap(), &facts(&case(Shape::Burst))).unwrap();
        assert_eq!((seen.windows, seen.rows.len(), seen.rows[0].round), (vec![0.0, 0.0, 0.082], 1, 2));
    }
}
