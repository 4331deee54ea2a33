//! Everything that is counted of one case.

use crate::CaseFacts;
use crate::distribution;
use crate::hardware;
use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::scalars::scalars;
use crate::sending;
use crate::table::Table;
use crate::telemetry;
use llmscen_core::manifest::Part;
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::request::Departure;
use llmscen_core::sample::{Counts, Distribution, Row, Sample, Values};
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
    scalars.extend(hardware::scalars(&rounds, &rows, (facts, &watched)));
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
    metrics.filter_map(|&metric| Some((metric, distribution::of(values(rows, metric))?))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::failures;
    use crate::fixture::{case, facts, failed, outcome, stream, table, warmup};
    use crate::table::Tagged;
    use llmscen_core::dataset::Wait;
    use llmscen_core::early_stop::Ending;
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::Outcome;
    use llmscen_core::request::{Cancel, Quantity};
    use llmscen_core::units::Nanos;

    #[test]
    fn every_scheduled_request_is_counted_once() {
        let rows = [
            warmup(failed(0, FailureKind::Connect)),
            outcome(1),
            failed(2, FailureKind::Dropped),
            failed(3, FailureKind::Cancelled),
            failed(4, FailureKind::Dropped),
        ];
        let seen = sample(&table("a", &rows), &facts(&case(Shape::Closed { users: 1 })));
        let failures = BTreeMap::from([(FailureKind::Cancelled, 1), (FailureKind::Dropped, 2)]);
        let known = Counts { scheduled: 4, ok: 1, failed: 1, dropped: 2, failures, warmup: 1, ..Counts::default() };
        assert_eq!((seen.counts, seen.rows.len()), (known, 4));
    }

    #[test]
    fn what_a_round_that_ended_itself_gave_up_is_no_failure() {
        let rows = [outcome(0), failed(1, FailureKind::Cancelled), failed(2, FailureKind::TimeoutTotal)];
        let (table, case) = (table("a", &rows), case(Shape::Closed { users: 1 }));
        let seen = |ending: Option<Ending>| {
            let parts = [Part { case: "a".into(), ending, ..Part::default() }];
            let facts = CaseFacts { case: &case, parts: &parts, until: None };
            let seen = sample(&table, &facts);
            let kinds: Vec<_> = failures(&table, &facts).iter().map(|one| one.kind).collect();
            (seen.counts.failed, seen.scalars[&Metric::ErrorRate], kinds.len())
        };
        assert_eq!(seen(None), (2, 2.0 / 3.0, 2));
        assert_eq!(seen(Some(Ending::Aborted(Default::default()))), (1, 0.5, 1));
        assert_eq!(seen(Some(Ending::Saturated(Default::default()))), (1, 0.5, 1));
    }

    #[test]
    fn requests_without_a_file_are_told_apart_from_those_that_the_server_refused() {
        let refused =
            |seq, why: &str| Outcome { end: Err(Failure::new(FailureKind::Connect, why)), ..failed(seq, FailureKind::Connect) };
        let why = format!("127.0.0.1:80: {}", Failure::NO_FILES);
        let rows = [warmup(refused(0, &why)), refused(1, &why), refused(2, "connection refused"), outcome(3)];
        let seen = sample(&table("a", &rows), &facts(&case(Shape::Closed { users: 1 })));
        assert_eq!((seen.without_file, seen.counts.failed), (2, 2));
    }

    #[test]
    fn distributions_are_over_what_succeeded() {
        let mut rows = vec![stream(0, 0, &[10, 30]), stream(1, 0, &[20, 60, 60])];
        rows.push(failed(2, FailureKind::Truncated));
        let seen = sample(&table("a", &rows), &facts(&case(Shape::Closed { users: 1 })));
        let of = |metric| &seen.distributions[&metric];
        assert_eq!((of(Metric::Ttft).n, of(Metric::Ttft).min, of(Metric::Ttft).max), (2, 10.0, 20.0));
        assert_eq!((of(Metric::Itl).n, of(Metric::Itl).mean, of(Metric::ScheduleLag).max), (3, 20.0, 0.0));
        assert!(!seen.distributions.contains_key(&Metric::CachedTokens));
    }

    #[test]
    fn users_who_leave_are_counted_apart_and_bias_nothing() {
        let left = Outcome { attempts: 3, end: failed(1, FailureKind::Abandoned).end, ..stream(1, 0, &[30, 40]) };
        let rows = [stream(0, 0, &[10, 20]), left, failed(2, FailureKind::Connect)];
        let seen = |when: Departure| {
            let mut case = case(Shape::Closed { users: 1 });
            case.request.cancel = Some(Cancel { share: 0.5, when });
            sample(&table("a", &rows), &facts(&case))
        };
        let by_tokens = seen(Departure::Tokens(Quantity::Fixed(2)));
        let counts = &by_tokens.counts;
        assert_eq!((counts.scheduled, counts.ok, counts.failed, counts.abandoned), (3, 1, 1, 1));
        assert_eq!((counts.retries, counts.retried, counts.failures.len()), (2, 1, 1));
        assert_eq!(by_tokens.scalars[&Metric::ErrorRate], 0.5);
        let n = |sample: &Sample| [Metric::Ttft, Metric::E2e, Metric::Itl].map(|metric| sample.distributions[&metric].n);
        assert_eq!(n(&by_tokens), [2, 1, 1]);
        assert_eq!(n(&seen(Departure::After(Wait::Fixed(Nanos(1))))), [1, 1, 1]);
    }

    #[test]
    fn cases_do_not_mix_and_a_lost_round_has_no_window() {
        let (a, b) = (outcome(0), outcome(1));
        let rows = [("b", 0, &a), ("a", 2, &b)].map(|(case, round, outcome)| Tagged { case, round, shard: 0, outcome });
        let seen = sample(&Table::build(rows), &facts(&case(Shape::Burst)));
        assert_eq!((seen.windows, seen.rows.len(), seen.rows[0].round), (vec![0.0, 0.0, 0.082], 1, 2));
    }
}
