//! Requests in flight over time, and the token throughput of the steady state: counted from token events while enough requests
//! were in flight.
//!
//! ```text
//! in flight        ________________            plateau
//!            _____|................|___        90 % of it
//!       ____|     |<--- steady --->|   |____
//! ```
//! Tokens credited when their request ends would count those of before the state in it, and show more than was possible.

use crate::request_row::RequestRow;
use crate::round::Round;
use llmscen_core::load::Shape;
use llmscen_core::metric::Metric;
use llmscen_core::stage::Course;
use llmscen_core::stats::trend::Drift;

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
        let spans = rows.iter().filter_map(|row| row.sent().filter(|&sent| sent < row.end()).map(|sent| (sent, row.end())));
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

// The steady state.

/// Tokens that arrived in the steady state, and its length in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Steady {
    pub tokens: f64,
    pub seconds: f64,
}

/// The steady state of one round.
pub(super) fn steady(round: &Round<'_, '_>, flight: &Flight, shape: &Shape) -> Steady {
    let spans = spans(round, flight, shape);
    let tokens = round.rows.iter().filter(|row| row.ok()).map(|row| tokens_in(row, &spans));
    Steady { tokens: tokens.sum(), seconds: spans.iter().map(|(from, to)| (to - from) as f64 / 1e9).sum() }
}

/// From the first to the last instant of the steady state of one round, dips in between among it, up to the end of sending.
/// None where nothing was in flight, where the plan itself changes the load, and where requests in flight and TTFT only grew.
pub(super) fn extent(round: &Round<'_, '_>, flight: &Flight, shape: &Shape) -> Option<(u64, u64)> {
    let (from, to) = round.window.filter(|_| !changes(shape))?;
    let last_sent = || round.rows.iter().filter_map(|row| row.sent()).max();
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
    let waited = |row: &RequestRow<'_>| row.metric(Metric::Ttft).or_else(|| row.metric(Metric::E2e));
    let within = round.rows.iter().filter(|row| row.ok() && (from..=to).contains(&row.end()));
    let mut seen: Vec<(u64, f64)> = within.filter_map(|row| Some((row.end(), waited(row)?))).collect();
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
fn tokens_in(row: &RequestRow<'_>, spans: &[(u64, u64)]) -> f64 {
    let (Some(&first), Some(&last)) = (row.events().first(), row.events().last()) else { return 0.0 };
    let near = spans.iter().skip(spans.partition_point(|span| span.1 < first)).take_while(|span| span.0 < last);
    let until = |at: u64| row.events().partition_point(|&event| event <= at);
    near.map(|&(from, to)| row.tokens_of_events(until(from)..until(to))).sum()
}

#[cfg(test)]
mod tests;
