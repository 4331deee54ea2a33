//! Arrivals per second: what the plan asked for, and what was sent.
//!
//! Both are counts over their own length of sending. Where a sender falls behind, its sends take longer than the plan, so
//! the achieved rate falls under the offered one even though every request is sent in the end.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::Round;
use llmscen_core::load::Shape;
use llmscen_core::manifest::Part;
use llmscen_core::metric::Metric;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;

/// A count and the seconds it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    count: f64,
    seconds: f64,
}

/// `rate_offered` of an open loop and `rate_achieved`, where they exist.
pub(super) fn rates(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> BTreeMap<Metric, f64> {
    let shape = &facts.case.load.shape;
    let (offered, achieved): (Vec<_>, Vec<_>) = rounds.iter().map(|round| of_round(round, facts)).unzip();
    let offered = pooled(&offered).filter(|_| !shape.closed() && *shape != Shape::Burst);
    let named = [(Metric::RateOffered, offered), (Metric::RateAchieved, pooled(&achieved))];
    named.into_iter().filter_map(|(metric, rate)| Some((metric, rate?))).collect()
}

fn pooled(rates: &[Rate]) -> Option<f64> {
    let seconds: f64 = rates.iter().map(|rate| rate.seconds).sum();
    (seconds > 0.0).then(|| rates.iter().map(|rate| rate.count).sum::<f64>() / seconds)
}

fn of_round(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> (Rate, Rate) {
    match facts.case.load.shape {
        Shape::Open { .. } | Shape::Replay { .. } | Shape::Rates { .. } => open(round, facts),
        Shape::Closed { .. } | Shape::Burst | Shape::Users { .. } | Shape::Static { .. } => {
            let sent = round.measured().filter(|fact| fact.sent().is_some()).count() as f64;
            (Rate::default(), Rate { count: sent, seconds: round.length() })
        }
    }
}

/// What arrives in an open loop is a session: later turns follow their replies.
fn open(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> (Rate, Rate) {
    let Some((start, until)) = planned(round, facts) else { return Default::default() };
    let sent = arrived(round).filter(|fact| fact.sent().is_some()).count() as f64;
    let planned = arrived(round).filter(|fact| fact.intended() <= until).count();
    let taken = until.max(last_sent(round)) - start;
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    (Rate { count: planned as f64, seconds: seconds(until - start) }, Rate { count: sent, seconds: seconds(taken) })
}

fn arrived<'a, 'f>(round: &Round<'a, 'f>) -> impl Iterator<Item = &'f RequestRow<'a>> + use<'a, 'f> {
    round.measured().filter(|fact| fact.turn() == 0)
}

fn last_sent(round: &Round<'_, '_>) -> u64 {
    arrived(round).filter_map(|fact| fact.sent()).max().unwrap_or_default()
}

/// When the sending of an open loop was over: by its plan, or with its last request where that was late.
pub(super) fn sent_until(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<u64> {
    Some(planned(round, facts)?.1.max(last_sent(round)))
}

/// From when to when an open loop is to send.
fn planned(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<(u64, u64)> {
    let (first, last) = (round.window?.0, arrived(round).map(|fact| fact.intended()).max()?);
    let arrivals = arrived(round).count() as u64;
    // n arrivals span n − 1 gaps; the one after the last belongs to the sending too.
    let by_count = (last - first) as f64 / arrivals.saturating_sub(1).max(1) as f64 * arrivals as f64;
    Some(by_time(round, facts).unwrap_or((first, first + by_count.round() as u64)))
}

/// From when to when a load is to send that ends by time and not by a number of requests.
pub(super) fn by_time(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<(u64, u64)> {
    let (load, first) = (&facts.case.load, round.window?.0);
    let begun = round.part.map_or(first, |part| part.measured_from_ns.min(first));
    let until = facts.until.or(load.until(Some(Nanos(begun))))?;
    // What was discarded as the start was due before the first measured request, and belongs to what the plan asked for.
    let settling = round.rows.iter().filter(|fact| fact.settling() && fact.turn() == 0).count() as u64;
    let counted = load.requests.is_some_and(|most| arrived(round).count() as u64 + settling >= most);
    let start = if settling > 0 { first } else { begun };
    (!counted).then(|| (start, until.0.min(cut(round).unwrap_or(u64::MAX)).max(start)))
}

/// When sending ended, where that was before its plan was done: what was not to be sent any more was not offered.
fn cut(round: &Round<'_, '_>) -> Option<u64> {
    let early =
        |part: &&Part| part.cut_short.is_some() || part.ending.is_some() || part.probe.is_some_and(|probe| probe.hopeless);
    round.part.filter(early)?.sending_until_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failed, stream, table};
    use crate::round::rounds;
    use llmscen_core::load::{Arrival, Load};
    use llmscen_core::outcome::{FailureKind, Outcome};

    fn open_loop(secs: Option<u64>) -> Load {
        let shape = Shape::Open { rate: 100.0, arrival: Arrival::Constant };
        Load { duration: secs.map(|secs| Nanos::from_millis(secs * 1000)), ..case(shape).load }
    }

    fn rates_of(rows: &[Outcome], load: Load, part: Option<Part>) -> (Option<f64>, Option<f64>) {
        let (table, mut case) = (table("a", rows), case(load.shape.clone()));
        case.load = load.clone();
        let parts: Vec<Part> = part.into_iter().collect();
        let rows = table.rows_of_case("a");
        let facts = CaseFacts { case: &case, parts: &parts, until: None };
        let rates = rates(&rounds(&rows, &facts), &facts);
        (rates.get(&Metric::RateOffered).copied(), rates.get(&Metric::RateAchieved).copied())
    }

    /// Due every 10 ms, sent every `step` ms.
    fn arrivals(n: u64, step: u64) -> Vec<Outcome> {
        let sent = |k: u64| {
            let mut row = stream(k, k * step, &[k * step + 5]);
            row.timeline.intended = Nanos::from_millis(k * 10);
            row
        };
        (0..n).map(sent).collect()
    }

    #[test]
    fn a_sender_that_keeps_up_achieves_what_is_offered() {
        assert_eq!(rates_of(&arrivals(100, 10), open_loop(None), None), (Some(100.0), Some(100.0)));
        assert_eq!(rates_of(&arrivals(100, 10), open_loop(Some(1)), None), (Some(100.0), Some(100.0)));
        assert_eq!(rates_of(&arrivals(1, 10), open_loop(None), None), (None, None));
    }

    #[test]
    fn a_mean_gap_of_no_whole_nanoseconds_is_not_cut() {
        let mut rows = arrivals(4, 10);
        rows[3].timeline.intended = Nanos(20_000_002);
        // Three gaps of 6 666 667.33 ns, four of which are 26 666 669.33.
        assert_eq!(rates_of(&rows, open_loop(None), None).0, Some(4.0 / 0.026_666_669));
    }

    #[test]
    fn a_sender_that_falls_behind_shows() {
        let (offered, achieved) = rates_of(&arrivals(101, 20), open_loop(None), None);
        assert_eq!((offered, achieved), (Some(100.0), Some(50.5)));
    }

    #[test]
    fn dropped_arrivals_were_offered_and_not_achieved() {
        let mut rows = arrivals(100, 10);
        for (seq, row) in rows.iter_mut().enumerate().filter(|(seq, _)| seq % 2 == 1) {
            let intended = row.timeline.intended;
            *row = failed(seq as u64, FailureKind::Dropped);
            row.timeline.intended = intended;
        }
        assert_eq!(rates_of(&rows, open_loop(Some(1)), None), (Some(100.0), Some(50.0)));
    }

    #[test]
    fn a_cut_ends_the_plan_there() {
        let part =
            Part { case: "a".into(), cut_short: Some("ctrl-c".into()), sending_until_ns: Some(500_000_000), ..Part::default() };
        assert_eq!(rates_of(&arrivals(50, 10), open_loop(Some(10)), Some(part)), (Some(100.0), Some(100.0)));
    }

    #[test]
    fn a_closed_loop_offers_nothing() {
        let load = case(Shape::Closed { users: 1 }).load;
        assert_eq!(rates_of(&[stream(0, 0, &[500]), stream(1, 500, &[1000])], load, None), (None, Some(2.0)));
    }
}
