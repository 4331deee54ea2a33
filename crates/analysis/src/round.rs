//! The rows of a case by round, and the measured window of each round.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use llmscen_core::manifest::Part;
use llmscen_core::outcome::FailureKind;

/// One round of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round<'a, 'f> {
    /// All its rows, warm-up included.
    pub rows: &'f [RequestRow<'a>],
    /// From the first scheduled send to the last end of the measured rows, in nanoseconds; None without measured rows.
    pub window: Option<(u64, u64)>,
    /// Its entry in the manifest, where there is one.
    pub part: Option<&'f Part>,
}

impl<'a, 'f> Round<'a, 'f> {
    pub(super) fn measured(&self) -> impl Iterator<Item = &'f RequestRow<'a>> + use<'a, 'f> {
        self.rows.iter().filter(|row| row.measured())
    }

    /// Round number, from 0.
    pub(super) fn number(&self) -> u32 {
        self.rows.first().map_or(0, |row| row.round())
    }

    /// The work for the cool-down in the window, which took energy too: tokens that arrived, and requests that ended.
    fn cooldown_work(&self) -> (f64, f64) {
        let Some((_, until)) = self.window else {
            return (0.0, 0.0);
        };
        let rows = self.rows.iter().filter(|row| row.cools_down() && row.ok());
        rows.fold((0.0, 0.0), |(tokens, requests), row| {
            let events = row.events();
            let billed = row.billed_tokens().map_or(0.0, |tokens| tokens as f64);
            let has_ended = f64::from(u8::from(row.end() <= until));
            let arrived = match events.is_empty() {
                true => billed * has_ended,
                false => {
                    let within = events.partition_point(|event| *event <= until);
                    row.event_tokens().sum(0..within)
                }
            };
            (tokens + arrived, requests + has_ended)
        })
    }

    /// Length of the window in seconds.
    pub(super) fn length(&self) -> f64 {
        self.window
            .map_or(0.0, |(from, to)| (to - from) as f64 / 1e9)
    }
}

/// The share of the measured requests in the work in the windows, that of the cool-down included: in the tokens, or
/// where none are known in the requests.
pub(super) fn measured_share(rounds: &[Round<'_, '_>]) -> f64 {
    let own = rounds.iter().flat_map(Round::measured);
    let (mut tokens, mut requests) = (0.0, 0.0);
    for row in own.filter(|row| row.ok()) {
        tokens += row.billed_tokens().map_or(0.0, |tokens| tokens as f64);
        requests += 1.0;
    }
    let others = rounds.iter().map(Round::cooldown_work);
    let others = others.fold((0.0, 0.0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
    let (own, other) = match tokens > 0.0 {
        true => (tokens, others.0),
        false => (requests, others.1),
    };
    if other > 0.0 {
        own / (own + other)
    } else {
        1.0
    }
}

/// Splits the rows of a case, which are ordered by round.
pub(super) fn rounds<'a, 'f>(
    rows: &'f [RequestRow<'a>],
    facts: &CaseFacts<'f>,
) -> Vec<Round<'a, 'f>> {
    let round = |rows: &'f [RequestRow<'a>]| {
        let number = rows.first().map_or(0, |row| row.round());
        let part = facts
            .parts
            .iter()
            .find(|part| part.case == facts.case.id && part.round == number);
        Round {
            rows,
            window: window(rows),
            part,
        }
    };
    rows.chunk_by(|a, b| a.round() == b.round())
        .map(round)
        .collect()
}

fn window(rows: &[RequestRow<'_>]) -> Option<(u64, u64)> {
    let measured = || rows.iter().filter(|row| row.measured());
    let from = measured().map(|row| row.intended()).min()?;
    measured()
        .map(|row| row.end())
        .max()
        .map(|to| (from, to.max(from)))
}

/// Whether a request was cancelled because its round was stopped early: it shows nothing of the server. Its row stays
/// in the table.
pub(super) fn cancelled_by_stop(row: &RequestRow<'_>, facts: &CaseFacts<'_>) -> bool {
    let stopped =
        |part: &Part| part.ending.is_some() || part.probe.is_some_and(|probe| probe.hopeless);
    let of_round = |part: &&Part| part.case == facts.case.id && part.round == row.round();
    row.failure() == Some(FailureKind::Cancelled)
        && facts.parts.iter().find(of_round).is_some_and(stopped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::TaggedOutcome;
    use crate::fixture::{case, outcome, table, warmup};
    use crate::table::Table;
    use llmscen_core::load::Shape;

    #[test]
    fn the_window_is_that_of_the_measured_rows() {
        let table = table("a", &[warmup(outcome(0)), outcome(1), outcome(3)]);
        let rows = table.rows_of_case("a");
        assert_eq!(window(&rows), Some((100_000_000, 382_000_000)));
        assert_eq!(window(&rows[..1]), None);
    }

    #[test]
    fn each_round_has_its_manifest_part() {
        let outcome = outcome(0);
        let rows = [0, 2].map(|round| TaggedOutcome {
            case: "a",
            round,
            shard: 0,
            outcome: &outcome,
        });
        let (table, case) = (Table::build(rows).unwrap(), case(Shape::Burst));
        let rows = table.rows_of_case("a");
        let part = |case: &str, round| Part {
            case: case.into(),
            round,
            ..Part::default()
        };
        let parts = [part("b", 0), part("a", 2)];
        let rounds = rounds(
            &rows,
            &CaseFacts {
                case: &case,
                parts: &parts,
                until: None,
            },
        );
        assert_eq!(rounds.iter().map(Round::number).collect::<Vec<_>>(), [0, 2]);
        assert_eq!((rounds[0].part, rounds[1].part), (None, Some(&parts[1])));
    }
}
