//! The metrics that a case has one value of. Rounds pool: a total over the sum of their windows, never a mean of rates.

use crate::CaseFacts;
use crate::in_flight::Flight;
use crate::rates::rates;
use crate::request_row::RequestRow;
use crate::round::Round;
use crate::sending::sending;
use crate::steady::{Steady, steady};
use llmscen_core::check::{RequestLimit, Subject};
use llmscen_core::manifest::Part;
use llmscen_core::metric::Metric;
use llmscen_core::sample::{Flow, Row};
use llmscen_core::stats::moments;
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// All that exist.
pub(super) fn scalars(
    rounds: &[Round<'_, '_>],
    (rows, sending, flows): (&[Row], &[f64], &[Flow]),
    facts: &CaseFacts<'_>,
) -> BTreeMap<Metric, f64> {
    let seconds: f64 = rounds.iter().map(Round::length).sum();
    let sending: f64 = sending.iter().sum();
    let of = |metric| throughput(rows, flows, metric, sending);
    let mut scalars = rates(rounds, facts);
    let mut put = |metric, value: Option<f64>| {
        if let Some(value) = value {
            scalars.insert(metric, value);
        }
    };
    put(Metric::Window, (seconds > 0.0).then_some(seconds));
    put(Metric::ThroughputWindow, (sending > 0.0).then_some(sending));
    for (metric, with_drain) in [
        (Metric::RequestThroughput, Metric::RequestThroughputWithDrain),
        (Metric::OutputTps, Metric::OutputTpsWithDrain),
        (Metric::TotalTps, Metric::TotalTpsWithDrain),
    ] {
        put(metric, of(metric));
        put(with_drain, over_all(rows, metric, seconds));
    }
    let gpus = facts.case.target.gpus.filter(|&gpus| gpus > 0).map(f64::from);
    put(Metric::OutputTpsPerGpu, of(Metric::OutputTps).zip(gpus).map(|(tps, gpus)| tps / gpus));
    put(Metric::OutputTpsPerUser, moments::mean(&rows.iter().filter_map(Row::user_tps).collect::<Vec<_>>()));
    put(Metric::ItemThroughput, of(Metric::ItemThroughput));
    put(Metric::SessionThroughput, sessions(rounds, facts).filter(|_| sending > 0.0).map(|whole| whole / sending));
    put(Metric::ErrorRate, error_rate(rows));
    put(Metric::Startup, startup(facts.parts));
    put(Metric::GoodputRate, goodput(rounds, rows, facts).filter(|_| sending > 0.0).map(|good| good / sending));
    scalars.extend(in_flight(rounds, facts, seconds));
    scalars
}

/// What arrived in the throughput window by its length. None where the rows hold no such amount; requests need no count of
/// tokens, so theirs may be 0.
pub(super) fn throughput<'f, R: Borrow<Row>>(
    rows: &[R],
    flows: impl IntoIterator<Item = &'f Flow>,
    metric: Metric,
    sending: f64,
) -> Option<f64> {
    let amount = || flows.into_iter().flat_map(|flow| flow.bins.values()).map(|own| own.of(metric)).sum::<f64>();
    known(rows, metric, sending).then(|| amount() / sending)
}

/// The amount of all rows by the length of the measured window, its start and its drain included.
pub(super) fn over_all<R: Borrow<Row>>(rows: &[R], metric: Metric, seconds: f64) -> Option<f64> {
    let amount = || rows.iter().filter_map(|row| row.borrow().credit(metric)).sum::<f64>();
    known(rows, metric, seconds).then(|| amount() / seconds)
}

fn known<R: Borrow<Row>>(rows: &[R], metric: Metric, seconds: f64) -> bool {
    let counted = |row: &R| row.borrow().ok && row.borrow().credit(metric).is_some();
    seconds > 0.0 && (metric == Metric::RequestThroughput || rows.iter().any(counted))
}

/// Conversations of which every turn succeeded, and that ended in the throughput window; None where there are no conversations.
fn sessions(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> Option<f64> {
    let talks = |round: &Round<'_, '_>| round.measured().any(|fact| fact.turns() > 1);
    let whole = |turns: &[RequestRow<'_>]| {
        let expected = turns.first().filter(|fact| fact.turns() > 1).map(|fact| fact.turns() as usize);
        turns.iter().map(RequestRow::end).max().filter(|_| expected == Some(turns.iter().filter(|fact| fact.ok()).count()))
    };
    let count = |round: &Round<'_, '_>| {
        let Some(window) = sending(round, facts) else { return 0 };
        let ends = round.rows.chunk_by(|a, b| a.seq() == b.seq()).filter_map(whole);
        ends.filter(|end| *end > window.start && *end <= window.end).count()
    };
    rounds.iter().any(talks).then(|| rounds.iter().map(count).sum::<usize>() as f64)
}

/// Among the requests whose users stayed.
pub(super) fn error_rate<R: Borrow<Row>>(rows: &[R]) -> Option<f64> {
    let stayed = || rows.iter().map(Borrow::borrow).filter(|row: &&Row| !row.left);
    let errors = stayed().filter(|row| !row.ok).count();
    let stayed = stayed().count();
    (stayed > 0).then(|| errors as f64 / stayed as f64)
}

/// Seconds until the managed server was ready: the mean of the starts for this case, or else of those that it was played on.
fn startup(parts: &[Part]) -> Option<f64> {
    let own: Vec<f64> = parts.iter().filter_map(|part| Some(part.startup.as_ref()?.ready.secs())).collect();
    let served: Vec<f64> = parts.iter().filter_map(|part| Some(part.served_ready?.secs())).collect();
    moments::mean(&own).or_else(|| moments::mean(&served))
}

/// Good requests by the first goodput check of the case, of those that ended in the throughput window.
fn goodput(rounds: &[Round<'_, '_>], rows: &[Row], facts: &CaseFacts<'_>) -> Option<f64> {
    let limits = facts.case.checks.iter().find_map(|check| match &check.subject {
        Subject::Goodput(limits) => Some(limits.as_slice()),
        Subject::Metric { .. } | Subject::Signal { .. } => None,
    });
    let count = |limits: &[RequestLimit]| {
        let mut measured = rows.iter();
        let mut good = 0;
        for round in rounds {
            let window = sending(round, facts).unwrap_or_default();
            for fact in round.rows {
                // Each measured fact is a row, in the same order.
                let row = fact.measured().then(|| measured.next()).flatten();
                let counts = fact.end() > window.start && fact.end() <= window.end;
                good += u32::from(counts && row.map_or_else(|| fact.row().meets(limits), |row| row.meets(limits)));
            }
        }
        f64::from(good)
    };
    limits.map(count)
}

fn in_flight(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>, seconds: f64) -> Vec<(Metric, f64)> {
    let shape = &facts.case.load.shape;
    let (mut area, mut most, mut pooled) = (0.0, 0, Steady::default());
    for (round, window) in rounds.iter().filter_map(|round| round.window.map(|window| (round, window))) {
        let flight = Flight::of(round.rows);
        let state = steady(round, &flight, shape);
        pooled = Steady { tokens: pooled.tokens + state.tokens, seconds: pooled.seconds + state.seconds };
        area += flight.area(window);
        most = most.max(flight.max(window));
    }
    let streamed = rounds.iter().flat_map(|round| round.rows).any(|fact| fact.ok() && !fact.events().is_empty());
    let mut found = Vec::new();
    if seconds > 0.0 {
        found.extend([(Metric::ConcurrencyMean, area / 1e9 / seconds), (Metric::ConcurrencyMax, f64::from(most))]);
    }
    if streamed && pooled.seconds > 0.0 {
        found.push((Metric::OutputTpsSteady, pooled.tokens / pooled.seconds));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::startup;
    use crate::fixture::{case, facts, failed, outcome, stream, table, warmup};
    use crate::sample::sample;
    use crate::table::{Table, Tagged};
    use llmscen_core::check::{Check, Confidence, NoData, Of, Op, RequestLimit, Subject};
    use llmscen_core::labels::Labels;
    use llmscen_core::load::Shape;
    use llmscen_core::manifest::Part;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::FailureKind;
    use llmscen_core::server::Startup;
    use llmscen_core::units::Nanos;

    fn goodput_check() -> Check {
        Check {
            expr: "goodput(ttft < 60ms) >= 50%".into(),
            subject: Subject::Goodput(vec![RequestLimit { metric: Metric::Ttft, op: Op::Less, limit: 60.0 }]),
            op: Op::AtLeast,
            limit: 0.5,
            confidence: Confidence::Point,
            when: Labels::default(),
            of: Of::Ok,
            no_data: NoData::Fail,
            relative: None,
            abort: None,
        }
    }

    #[test]
    fn one_round_in_numbers() {
        // Two users over 0 to 400 ms; the failed row is due at 300 and ends at 382, in the window.
        let rows = [
            stream(0, 0, &[50, 100, 200]),
            stream(1, 0, &[70, 400]),
            stream(2, 200, &[250, 300]),
            failed(3, FailureKind::Decode),
        ];
        let mut case = case(Shape::Closed { users: 2 });
        case.checks.push(goodput_check());
        case.target.gpus = Some(2);
        let seen = sample(&table("a", &rows), &facts(&case)).scalars;
        let of = |metric| seen.get(&metric).copied().map(|value| (value * 1e6_f64).round() / 1e6);
        assert_eq!(of(Metric::Window), Some(0.4));
        assert_eq!(of(Metric::RequestThroughputWithDrain), Some(7.5));
        assert_eq!((of(Metric::OutputTpsWithDrain), of(Metric::TotalTpsWithDrain)), (Some(17.5), Some(92.5)));
        // From the first end, at 200 ms, until a user finds nothing more to send, at 382 ms: the third request.
        assert_eq!((of(Metric::ThroughputWindow), of(Metric::RequestThroughput)), (Some(0.182), Some(5.494505)));
        assert_eq!((of(Metric::OutputTps), of(Metric::OutputTpsPerGpu)), (Some(10.989011), Some(5.494505)));
        assert_eq!(of(Metric::TotalTps), Some(65.934066));
        // 3 / 0.2 s, 2 / 0.4 s, 2 / 0.1 s.
        assert_eq!(of(Metric::OutputTpsPerUser), Some(13.333333));
        assert_eq!((of(Metric::ErrorRate), of(Metric::GoodputRate)), (Some(0.25), Some(5.494505)));
        // 200 + 400 + 100 + 80 ms of flight over 400.
        assert_eq!((of(Metric::ConcurrencyMean), of(Metric::ConcurrencyMax)), (Some(1.95), Some(2.0)));
        assert_eq!((of(Metric::RateOffered), of(Metric::RateAchieved)), (None, Some(10.0)));
    }

    #[test]
    fn rounds_pool_totals_and_windows() {
        let slow = [stream(0, 0, &[100, 300]), stream(1, 300, &[400, 700])];
        let fast = [stream(0, 0, &[50, 100]), stream(1, 100, &[150, 200])];
        let rows = [(0, &slow), (1, &fast)].into_iter().flat_map(|(round, rows)| rows.iter().map(move |own| (round, own)));
        let rows = rows.map(|(round, outcome)| Tagged { case: "a", round, shard: 0, outcome });
        let case = case(Shape::Closed { users: 1 });
        let seen = sample(&Table::build(rows), &facts(&case));
        assert_eq!((seen.windows, seen.sending), (vec![0.7, 0.2], vec![0.4, 0.1]));
        // The second request of each: 2 in 0.5 s; the mean of the rates would be 6.25.
        assert_eq!((seen.scalars[&Metric::RequestThroughput], seen.scalars[&Metric::OutputTps]), (4.0, 8.0));
        assert_eq!(seen.scalars[&Metric::RequestThroughputWithDrain], 4.0 / (0.7 + 0.2));
    }

    #[test]
    fn warmup_fills_the_server_but_not_the_figures() {
        let case = case(Shape::Closed { users: 2 });
        let rows = [warmup(stream(0, 0, &[100, 300])), stream(1, 100, &[200])];
        let seen = sample(&table("a", &rows), &facts(&case));
        assert_eq!((seen.rows.len(), seen.counts.warmup), (1, 1));
        assert_eq!((seen.scalars[&Metric::ConcurrencyMean], seen.scalars[&Metric::Window]), (2.0, 0.1));
        assert_eq!(seen.scalars[&Metric::OutputTpsWithDrain], 10.0);
    }

    #[test]
    fn a_case_without_a_start_of_its_own_has_that_of_its_server() {
        let part = |own: Option<u64>| {
            let startup = own.map(|ready| Startup { ready: Nanos::from_millis(ready), ..Startup::default() });
            Part { startup, served_ready: Some(Nanos::from_millis(own.unwrap_or(900))), ..Part::default() }
        };
        assert_eq!(startup(&[part(None), part(None)]), Some(0.9));
        assert_eq!(startup(&[part(Some(100)), part(None), part(Some(300))]), Some(0.2));
        assert_eq!(startup(&[Part::default()]), None);
    }

    #[test]
    fn what_does_not_exist_is_absent() {
        let case = case(Shape::Closed { users: 1 });
        let none = sample(&table("a", &[]), &facts(&case));
        assert!(none.scalars.is_empty() && none.distributions.is_empty());
        let lost = sample(&table("a", &[failed(0, FailureKind::Connect)]), &facts(&case)).scalars;
        assert_eq!((lost.get(&Metric::ErrorRate), lost.get(&Metric::RequestThroughput)), (Some(&1.0), Some(&0.0)));
        assert_eq!((lost.get(&Metric::OutputTps), lost.get(&Metric::GoodputRate)), (None, None));
        let whole = sample(&table("a", &[outcome(0)]), &facts(&case)).scalars;
        assert_eq!((whole.get(&Metric::OutputTpsSteady), whole.contains_key(&Metric::OutputTpsWithDrain)), (None, true));
        assert!(!whole.contains_key(&Metric::OutputTps), "one request has no time before its drain");
    }
}
