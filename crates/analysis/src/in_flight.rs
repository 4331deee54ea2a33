//! Requests in flight over time, as steps: from `sent` to `end` of every row, warm-up among them.

use crate::request_row::RequestRow;

/// A span of constant level, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub from: u64,
    pub to: u64,
    pub level: u32,
}

/// The steps: the level from each instant on, until the next. The first stands at 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flight(pub(super) Vec<(u64, u32)>);

impl Flight {
    /// Of these rows.
    pub(super) fn of(rows: &[RequestRow<'_>]) -> Flight {
        let spans = rows.iter().filter_map(|fact| fact.sent().filter(|&sent| sent < fact.end()).map(|sent| (sent, fact.end())));
        let mut edges: Vec<(u64, i32)> = spans.flat_map(|(sent, end)| [(sent, 1), (end, -1)]).collect();
        edges.sort_unstable();
        let mut steps = vec![(0, 0)];
        let mut level = 0i32;
        for edges in edges.chunk_by(|a, b| a.0 == b.0) {
            level += edges.iter().map(|edge| edge.1).sum::<i32>();
            let at = edges.first().map_or(0, |edge| edge.0);
            if at == 0 {
                steps.clear();
            }
            steps.push((at, level.max(0).unsigned_abs()));
        }
        steps.dedup_by_key(|step| step.1);
        Flight(steps)
    }

    /// The level from this instant on.
    pub(super) fn level(&self, at: u64) -> u32 {
        let passed = self.0.partition_point(|step| step.0 <= at);
        passed.checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |step| step.1)
    }

    /// The spans within a window, clipped to it.
    pub(super) fn spans(&self, (from, to): (u64, u64)) -> impl Iterator<Item = Span> {
        let ends = self.0.iter().skip(1).map(|step| step.0).chain([u64::MAX]);
        let clipped =
            self.0.iter().zip(ends).map(move |(&(start, level), end)| Span { from: start.max(from), to: end.min(to), level });
        clipped.filter(|span| span.from < span.to)
    }

    /// The time-weighted mean times the window's length, in requests × nanoseconds.
    pub(super) fn area(&self, window: (u64, u64)) -> f64 {
        self.spans(window).map(|span| f64::from(span.level) * (span.to - span.from) as f64).sum()
    }

    /// The highest level; 0 in an empty window.
    pub(super) fn max(&self, window: (u64, u64)) -> u32 {
        self.spans(window).map(|span| span.level).max().unwrap_or(0)
    }

    /// The level at or under which it stands half of the time.
    pub(super) fn median(&self, window: (u64, u64)) -> u32 {
        let mut spans: Vec<(u32, u64)> = self.spans(window).map(|span| (span.level, span.to - span.from)).collect();
        spans.sort_unstable();
        let half = spans.iter().map(|span| span.1).sum::<u64>().div_ceil(2);
        let mut passed = 0;
        let reached = spans.iter().find(|(_, time)| {
            passed += time;
            passed >= half
        });
        reached.map_or(0, |span| span.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed, stream, table};
    use llmscen_core::outcome::FailureKind;

    const MS: u64 = 1_000_000;

    fn flight(rows: &[(u64, u64)]) -> Flight {
        let rows: Vec<_> = rows.iter().enumerate().map(|(seq, &(sent, end))| stream(seq as u64, sent, &[end])).collect();
        Flight::of(&table("a", &rows).rows_of_case("a"))
    }

    #[test]
    fn the_level_steps_with_every_send_and_end() {
        let flight = flight(&[(0, 10), (2, 6), (6, 8)]);
        assert_eq!(flight.0, [(0, 1), (2 * MS, 2), (8 * MS, 1), (10 * MS, 0)]);
        // Over 10 ms: 1 for 4 ms, 2 for 6 ms; a hand-off at 6 ms is no third one.
        let all = (0, 10 * MS);
        assert_eq!((flight.area(all), flight.max(all), flight.median(all)), (16e6, 2, 2));
        assert_eq!([0, 2 * MS - 1, 2 * MS, 10 * MS].map(|at| flight.level(at)), [1, 1, 2, 0]);
        assert_eq!((flight.max((8 * MS, 20 * MS)), flight.median((7 * MS, 20 * MS))), (1, 0));
    }

    #[test]
    fn what_was_never_sent_was_never_in_flight() {
        let table = table("a", &[failed(0, FailureKind::Dropped)]);
        assert_eq!(Flight::of(&table.rows_of_case("a")).0, [(0, 0)]);
    }

    #[test]
    fn spans_are_clipped_to_the_window() {
        let spans: Vec<_> = flight(&[(1, 4)]).spans((2 * MS, 6 * MS)).collect();
        assert_eq!(spans, [Span { from: 2 * MS, to: 4 * MS, level: 1 }, Span { from: 4 * MS, to: 6 * MS, level: 0 }]);
        assert_eq!(flight(&[(1, 4)]).spans((5, 5)).count(), 0);
    }
}
