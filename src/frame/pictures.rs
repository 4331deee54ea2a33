//! What is drawn of a case beside its course over time.

use crate::frame::CaseFacts;
use crate::frame::error::FrameError;
use crate::frame::facts::{self, Fact};
use crate::frame::round::rounds;
use crate::frame::table::Table;
use crate::model::picture::{Bar, Pictures};

/// Requests in the waterfall at the most.
const BARS: usize = 200;

/// The pictures of a case: of its first round where they are over time, of all rows where they are not.
///
/// # Errors
/// Where the table holds a word that is not one of its column's.
pub fn pictures(table: &Table, facts: &CaseFacts<'_>) -> Result<Pictures, FrameError> {
    let all = facts::of(table, &facts.case.id)?;
    let first = rounds(&all, facts).first().map(|round| round.measured().collect()).unwrap_or_default();
    Ok(Pictures { waterfall: waterfall(first), ..Pictures::default() })
}

/// Evenly picked requests of a round, in the order in which they were due.
fn waterfall(mut due: Vec<&Fact<'_>>) -> Vec<Bar> {
    due.sort_by_key(|fact| (fact.intended, fact.seq, fact.turn));
    let step = due.len().div_ceil(BARS).max(1);
    due.into_iter().step_by(step).map(bar).collect()
}

fn bar(fact: &Fact<'_>) -> Bar {
    let secs = |stamp: u64| stamp as f64 / 1e9;
    Bar {
        seq: fact.seq,
        turn: fact.turn,
        intended: secs(fact.intended),
        sent: fact.sent.map(secs),
        first_token: fact.answered().map(secs),
        end: secs(fact.end),
        failure: fact.failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::fixture::{case, facts, failed, outcome, stream, table, warmup};
    use crate::model::load::Shape;
    use crate::model::outcome::{FailureKind, Outcome};

    fn drawn(rows: &[Outcome]) -> Pictures {
        super::pictures(&table("a", rows), &facts(&case(Shape::Closed { users: 1 }))).unwrap()
    }

    #[test]
    fn measured_requests_stand_in_the_waterfall_in_the_order_in_which_they_were_due() {
        let seen =
            drawn(&[warmup(outcome(0)), stream(2, 200, &[350]), stream(1, 50, &[150, 400]), failed(3, FailureKind::Decode)]);
        assert_eq!(seen.waterfall.iter().map(|bar| bar.seq).collect::<Vec<_>>(), [1, 2, 3]);
        let bar = seen.waterfall[0];
        assert_eq!((bar.intended, bar.first_token, bar.end, bar.failure), (0.05, Some(0.15), 0.4, None));
        assert_eq!(seen.waterfall[2].failure, Some(FailureKind::Decode));
    }

    #[test]
    fn of_many_requests_some_are_picked_evenly() {
        let rows: Vec<Outcome> = (0..1000).map(|k| stream(k, k * 10, &[k * 10 + 5])).collect();
        let seqs: Vec<u64> = drawn(&rows).waterfall.iter().map(|bar| bar.seq).collect();
        assert_eq!(seqs, (0..200).map(|k| k * 5).collect::<Vec<u64>>());
    }
}
