//! Requests in flight over time, and the token throughput of the steady state: counted from token events while enough
//! requests were in flight.
//!
//! ```text
//! in flight        ________________            plateau
//!            _____|................|___        90 % of it
//!       ____|     |<--- steady --->|   |____
//! ```
//! Counting tokens at the end of their request would credit the steady state with tokens from before it.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::Round;
use llmscen_core::load::Shape;
use llmscen_core::metric::Metric;
use llmscen_core::stage::RateProfile;
use llmscen_core::stats::trend::JointTrend;

/// A span of constant level, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub from: u64,
    pub to: u64,
    pub level: u32,
}

/// Steps `(time, level)`: each level lasts until the next step. The first step is at 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InFlight(pub(super) Vec<(u64, u32)>);

impl InFlight {
    pub(super) fn count(rows: &[RequestRow<'_>]) -> InFlight {
        InFlight::of_spans(rows.iter().filter_map(|row| Some((row.sent()?, row.end()))))
    }

    /// What is in flight from `from` to `to` of each span.
    pub(super) fn of_spans(spans: impl Iterator<Item = (u64, u64)>) -> InFlight {
        let mut edges: Vec<(u64, i32)> = spans
            .filter(|(from, to)| from < to)
            .flat_map(|(from, to)| [(from, 1), (to, -1)])
            .collect();
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
        InFlight(steps)
    }

    /// The level at an instant.
    pub(super) fn level(&self, at: u64) -> u32 {
        let steps = self.0.partition_point(|step| step.0 <= at);
        steps
            .checked_sub(1)
            .and_then(|last| self.0.get(last))
            .map_or(0, |step| step.1)
    }

    /// The spans within a window, clipped to it.
    pub(super) fn spans(&self, (from, to): (u64, u64)) -> impl Iterator<Item = Span> {
        let ends = self.0.iter().skip(1).map(|step| step.0).chain([u64::MAX]);
        let clipped = self
            .0
            .iter()
            .zip(ends)
            .map(move |(&(start, level), end)| Span {
                from: start.max(from),
                to: end.min(to),
                level,
            });
        clipped.filter(|span| span.from < span.to)
    }

    /// The time-weighted mean times the window's length, in requests × nanoseconds.
    pub(super) fn area(&self, window: (u64, u64)) -> f64 {
        self.spans(window)
            .map(|span| f64::from(span.level) * (span.to - span.from) as f64)
            .sum()
    }

    /// The highest level; 0 in an empty window.
    pub(super) fn max(&self, window: (u64, u64)) -> u32 {
        self.spans(window).map(|span| span.level).max().unwrap_or(0)
    }

    /// The time-weighted median level.
    pub(super) fn median(&self, window: (u64, u64)) -> u32 {
        let mut spans: Vec<(u32, u64)> = self
            .spans(window)
            .map(|span| (span.level, span.to - span.from))
            .collect();
        spans.sort_unstable();
        let half = spans.iter().map(|span| span.1).sum::<u64>().div_ceil(2);
        let mut elapsed = 0;
        let median = spans.iter().find(|(_, time)| {
            elapsed += time;
            elapsed >= half
        });
        median.map_or(0, |span| span.0)
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
pub(super) fn steady_state(round: &Round<'_, '_>, in_flight: &InFlight, shape: &Shape) -> Steady {
    let spans = round
        .window
        .map(|window| steady_spans(window, in_flight, shape))
        .unwrap_or_default();
    let tokens = round
        .rows
        .iter()
        .filter(|row| row.ok())
        .map(|row| tokens_in_spans(row, &spans));
    Steady {
        tokens: tokens.sum(),
        seconds: spans
            .iter()
            .map(|(from, to)| (to - from) as f64 / 1e9)
            .sum(),
    }
}

/// From the start to the end of the steady state of one round, dips included, at most to the end of sending. None
/// where nothing was in flight, where the plan changes the load, and where requests in flight and TTFT only grew.
pub(super) fn steady_extent(
    round: &Round<'_, '_>,
    in_flight: &InFlight,
    facts: &CaseFacts<'_>,
    sending_end: Option<u64>,
) -> Option<(u64, u64)> {
    let shape = &facts.case.load.shape;
    let (from, to) = round.window.filter(|_| !changes_load(shape))?;
    let until = sending_end?;
    let spans = steady_spans((from, to.min(until)), in_flight, shape);
    let extent = spans
        .first()
        .zip(spans.last())
        .map(|(first, last)| (first.0, last.1));
    extent.filter(|extent| !only_grows(round, in_flight, *extent))
}

/// Whether the plan has more than one load level.
pub(super) fn changes_load(shape: &Shape) -> bool {
    match shape {
        Shape::Rates { stages, .. } => {
            let first = stages
                .first()
                .map(|stage| stage.rate)
                .filter(|rate| matches!(rate, RateProfile::Flat(_)));
            stages.iter().any(|stage| Some(stage.rate) != first)
        }
        Shape::Users { stages } => {
            let first = stages.first().map(|stage| stage.from);
            stages
                .iter()
                .any(|stage| stage.from != stage.to || Some(stage.from) != first)
        }
        Shape::Classes { .. } => shape.constant_rate().is_none(),
        Shape::Closed { .. }
        | Shape::Open { .. }
        | Shape::Burst
        | Shape::Replay { .. }
        | Shape::Static { .. } => false,
    }
}

/// Whether requests in flight and TTFT only grew in a span, by the test that stops a saturated case.
fn only_grows(round: &Round<'_, '_>, in_flight: &InFlight, (from, to): (u64, u64)) -> bool {
    let latency =
        |row: &RequestRow<'_>| row.metric(Metric::Ttft).or_else(|| row.metric(Metric::E2e));
    let within = round
        .rows
        .iter()
        .filter(|row| row.ok() && (from..=to).contains(&row.end()));
    let mut latencies: Vec<(u64, f64)> = within
        .filter_map(|row| Some((row.end(), latency(row)?)))
        .collect();
    latencies.sort_by_key(|(end, _)| *end);
    let mut drift = JointTrend::default();
    latencies.iter().any(|&(end, latency)| {
        drift
            .observe(end as f64 / 1e9, [f64::from(in_flight.level(end)), latency])
            .is_some()
    })
}

/// The spans of a window with at least 90 % of the plateau in flight.
fn steady_spans(window: (u64, u64), in_flight: &InFlight, shape: &Shape) -> Vec<(u64, u64)> {
    let plateau = match shape {
        Shape::Closed { users } | Shape::Static { batch: users } => {
            (*users).min(in_flight.max(window))
        }
        Shape::Open { .. }
        | Shape::Burst
        | Shape::Replay { .. }
        | Shape::Rates { .. }
        | Shape::Classes { .. }
        | Shape::Users { .. } => in_flight.median(window),
    };
    let high = in_flight
        .spans(window)
        .filter(|span| span.level > 0 && f64::from(span.level) >= 0.9 * f64::from(plateau));
    merge_adjacent(high.map(|span| (span.from, span.to)))
}

fn merge_adjacent(spans: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Tokens that arrived in the spans. A span includes its end but not its start, since tokens are generated before
/// they arrive.
fn tokens_in_spans(row: &RequestRow<'_>, spans: &[(u64, u64)]) -> f64 {
    let (Some(&first), Some(&last)) = (row.events().first(), row.events().last()) else {
        return 0.0;
    };
    let near = spans
        .iter()
        .skip(spans.partition_point(|span| span.1 < first))
        .take_while(|span| span.0 < last);
    let until = |at: u64| row.events().partition_point(|&event| event <= at);
    let tokens = row.event_tokens();
    near.map(|&(from, to)| tokens.sum(until(from)..until(to)))
        .sum()
}

#[cfg(test)]
mod tests;
