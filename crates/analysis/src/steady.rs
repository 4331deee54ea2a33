//! Token throughput of the steady state: counted from token events while enough requests were in flight.
//!
//! ```text
//! in flight        ________________            plateau
//!            _____|................|___        90 % of it
//!       ____|     |<--- steady --->|   |____
//! ```
//! Tokens credited when their request ends would count those of before the state in it, and show more than was possible.

use crate::in_flight::Flight;
use crate::request_row::RequestRow;
use crate::round::Round;
use llmscen_core::load::Shape;
use llmscen_core::metric::Metric;
use llmscen_core::stage::Course;
use llmscen_core::stats::joint_trend::Drift;

/// Tokens that arrived in the steady state, and its length in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Steady {
    pub tokens: f64,
    pub seconds: f64,
}

/// The steady state of one round.
pub(super) fn steady(round: &Round<'_, '_>, flight: &Flight, shape: &Shape) -> Steady {
    let spans = spans(round, flight, shape);
    let tokens = round.rows.iter().filter(|fact| fact.ok()).map(|fact| tokens_in(fact, &spans));
    Steady { tokens: tokens.sum(), seconds: spans.iter().map(|(from, to)| (to - from) as f64 / 1e9).sum() }
}

/// From the first to the last instant of the steady state of one round, dips in between among it, up to the end of sending.
/// None where nothing was in flight, where the plan itself changes the load, and where requests in flight and TTFT only grew.
pub(super) fn extent(round: &Round<'_, '_>, flight: &Flight, shape: &Shape) -> Option<(u64, u64)> {
    let (from, to) = round.window.filter(|_| !changes(shape))?;
    let last_sent = || round.rows.iter().filter_map(|fact| fact.sent()).max();
    let until = round.part.and_then(|part| part.sending_until_ns).or_else(last_sent)?;
    let spans = spans_in((from, to.min(until)), flight, shape);
    let extent = spans.first().zip(spans.last()).map(|(first, last)| (first.0, last.1));
    extent.filter(|extent| !grows(round, flight, *extent))
}

/// Whether the plan holds more than one level of the load.
pub(super) fn changes(shape: &Shape) -> bool {
    match shape {
        Shape::Rates { stages, .. } => {
            let first = stages.first().map(|stage| stage.rate).filter(|rate| matches!(rate, Course::Flat(_)));
            stages.iter().any(|stage| Some(stage.rate) != first)
        }
        Shape::Users { stages } => {
            let first = stages.first().map(|stage| stage.from);
            stages.iter().any(|stage| stage.from != stage.to || Some(stage.from) != first)
        }
        Shape::Closed { .. } | Shape::Open { .. } | Shape::Burst | Shape::Replay { .. } | Shape::Static { .. } => false,
    }
}

/// Whether requests in flight and TTFT both only grew in this span, by the test that ends a saturated case.
fn grows(round: &Round<'_, '_>, flight: &Flight, (from, to): (u64, u64)) -> bool {
    let waited = |fact: &RequestRow<'_>| fact.metric(Metric::Ttft).or_else(|| fact.metric(Metric::E2e));
    let within = round.rows.iter().filter(|fact| fact.ok() && (from..=to).contains(&fact.end()));
    let mut seen: Vec<(u64, f64)> = within.filter_map(|fact| Some((fact.end(), waited(fact)?))).collect();
    seen.sort_by_key(|one| one.0);
    let mut drift = Drift::default();
    seen.iter().any(|&(end, waited)| drift.take(end as f64 / 1e9, [f64::from(flight.level(end)), waited]).is_some())
}

/// The spans of the window in which enough was in flight.
fn spans(round: &Round<'_, '_>, flight: &Flight, shape: &Shape) -> Vec<(u64, u64)> {
    round.window.map(|window| spans_in(window, flight, shape)).unwrap_or_default()
}

fn spans_in(window: (u64, u64), flight: &Flight, shape: &Shape) -> Vec<(u64, u64)> {
    let plateau = match shape {
        Shape::Closed { users } | Shape::Static { batch: users } => (*users).min(flight.max(window)),
        Shape::Open { .. } | Shape::Burst | Shape::Replay { .. } | Shape::Rates { .. } | Shape::Users { .. } => {
            flight.median(window)
        }
    };
    let high = flight.spans(window).filter(|span| span.level > 0 && f64::from(span.level) >= 0.9 * f64::from(plateau));
    joined(high.map(|span| (span.from, span.to)))
}

fn joined(spans: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match joined.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Tokens of the events in the spans. What arrives at an instant was made before it: a span holds its end, not its beginning.
fn tokens_in(fact: &RequestRow<'_>, spans: &[(u64, u64)]) -> f64 {
    let (Some(&first), Some(&last)) = (fact.events().first(), fact.events().last()) else { return 0.0 };
    let near = spans.iter().skip(spans.partition_point(|span| span.1 < first)).take_while(|span| span.0 < last);
    let until = |at: u64| fact.events().partition_point(|&event| event <= at);
    near.map(|&(from, to)| fact.tokens_in(until(from)..until(to))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, facts, stream, table};
    use crate::round::rounds;
    use llmscen_core::load::Arrival;
    use llmscen_core::manifest::Part;
    use llmscen_core::outcome::Outcome;
    use llmscen_core::stage::{RateStage, UserStage};
    use llmscen_core::units::Nanos;

    fn steady_of(rows: &[Outcome], shape: Shape) -> Steady {
        let (table, case) = (table("a", rows), case(shape.clone()));
        let rows = table.rows_of_case("a");
        let round = rounds(&rows, &facts(&case))[0];
        steady(&round, &Flight::of(round.rows), &shape)
    }

    #[test]
    fn only_tokens_of_the_plateau_count() {
        // Two users; both in flight from 10 to 40 ms. Events at 10 (made before), 20, 30, 40 of one, 30, 50 of the other.
        let rows = [stream(0, 0, &[10, 20, 30, 40]), stream(1, 10, &[30, 50])];
        let seen = steady_of(&rows, Shape::Closed { users: 2 });
        assert_eq!(seen, Steady { tokens: 4.0, seconds: 0.030 });
    }

    #[test]
    fn the_plateau_begins_with_its_first_span_and_ends_with_its_last() {
        // Two users: both in flight from 10 to 40 and from 60 to 70 ms, one before, between and after.
        let rows = [stream(0, 0, &[20, 40]), stream(1, 10, &[30, 70]), stream(2, 60, &[80, 90])];
        let (table, case) = (table("a", &rows), case(Shape::Closed { users: 2 }));
        let rows = table.rows_of_case("a");
        let round = rounds(&rows, &facts(&case))[0];
        let of =
            |shape: &Shape, part: Option<Part>| extent(&Round { part: part.as_ref(), ..round }, &Flight::of(round.rows), shape);
        let until = |ms: u64| Part { sending_until_ns: Some(ms * 1_000_000), ..Part::default() };
        let (closed, open) = (Shape::Closed { users: 2 }, Shape::Open { rate: 9.0, arrival: Arrival::Poisson });
        assert_eq!(of(&closed, Some(until(80))), Some((10_000_000, 70_000_000)));
        assert_eq!(of(&closed, Some(until(65))), Some((10_000_000, 65_000_000)), "then nothing was sent");
        assert_eq!(of(&closed, None), Some((10_000_000, 40_000_000)), "the last request left at 60 ms");
        // The level is 1 for 50 of 90 ms, so that is an open loop's plateau.
        assert_eq!(of(&open, Some(until(90))), Some((0, 90_000_000)));
        assert_eq!(of(&Shape::Burst, Some(until(0))), None);
        assert_eq!(extent(&round, &Flight(vec![(0, 0)]), &open), None);
    }

    #[test]
    fn a_load_that_changes_by_plan_or_only_piles_up_has_no_steady_state() {
        let of = |shape: &Shape, wait: fn(u64) -> u64| {
            let rows: Vec<_> = (0..2000).map(|seq| stream(seq, 10 * seq, &[10 * seq + wait(seq)])).collect();
            let (table, case) = (table("a", &rows), case(shape.clone()));
            let rows = table.rows_of_case("a");
            extent(&rounds(&rows, &facts(&case))[0], &Flight::of(&rows), shape).is_some()
        };
        let open = Shape::Open { rate: 100.0, arrival: Arrival::Constant };
        assert!(of(&open, |seq| 50 + seq % 7) && !of(&open, |seq| 50 + 5 * seq + seq % 7));
        let span = Nanos::from_millis(9);
        let users = |to| [(5, 5), (5, to)].map(|(from, to)| UserStage { from, to, span }).into();
        assert_eq!([5, 6].map(|to| of(&Shape::Users { stages: users(to) }, |_| 50)), [true, false]);
        let rates = |rate| [Course::Flat(9.0), rate].map(|rate| RateStage { rate, span }).into();
        let staged = |rate| of(&Shape::Rates { stages: rates(rate), arrival: Arrival::Constant }, |_| 50);
        let ramp = Course::Ramp { from: 9.0, to: 20.0 };
        assert_eq!([Course::Flat(9.0), Course::Flat(8.0), ramp].map(staged), [true, false, false]);
    }

    #[test]
    fn fewer_requests_than_users_have_the_plateau_they_reached() {
        let seen = steady_of(&[stream(0, 0, &[10, 20])], Shape::Closed { users: 64 });
        assert_eq!(seen, Steady { tokens: 2.0, seconds: 0.020 });
    }

    #[test]
    fn an_event_weighs_the_tokens_it_carries() {
        let mut rows = [stream(0, 0, &[10, 20])];
        rows[0].usage.output = Some(6);
        assert_eq!(steady_of(&rows, Shape::Closed { users: 1 }).tokens, 6.0);
    }

    #[test]
    fn spans_that_touch_are_one() {
        assert_eq!(joined([(0, 5), (5, 9), (12, 13)].into_iter()), [(0, 9), (12, 13)]);
    }
}
