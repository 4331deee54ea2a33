//! Histograms: the live figures, and the lateness of the lanes. Reports never use them; they read the rows.

use crate::run::event::Progress;
use crate::run::totals::{Seen, Totals};
use hdrhistogram::Histogram;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::units::Nanos;
use std::time::Instant;

/// A histogram of spans: 1 µs to 1 h at three significant digits.
pub struct Spans(Option<Histogram<u64>>);

impl Default for Spans {
    fn default() -> Spans {
        Spans(Histogram::new_with_bounds(1, 3_600_000_000, 3).ok())
    }
}

impl Spans {
    /// Counts a span; one beyond the bounds counts as the bound.
    pub fn record(&mut self, span: Nanos) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(span.0 / 1000);
        }
    }

    /// Forgets every span.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(Histogram::reset);
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Spans) {
        if let (Some(own), Some(other)) = (&mut self.0, &other.0) {
            // Equal bounds: adding cannot fail.
            let _ = own.add(other);
        }
    }

    /// The quantile at `share`, milliseconds; None without values.
    pub fn millis_at(&self, share: f64) -> Option<f64> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(histogram.value_at_quantile(share) as f64 / 1000.0)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// The value that is so many from the top, the greatest being 1, milliseconds; None without that many values.
    pub fn millis_from_top(&self, place: u64) -> Option<f64> {
        let n = self.count();
        // The middle of the rank: no rounding of the quantile makes its neighbour of it.
        let rank = (place > 0).then(|| n.checked_sub(place)).flatten()? as f64 + 0.5;
        self.millis_at(rank / n as f64)
    }
}

/// The live figures of one round of a case.
pub struct Meter {
    ttft: Spans,
    itl: Spans,
    e2e: Spans,
    /// Whether a measured request is over: from then on the spans are those of measured ones alone.
    measured: bool,
    /// TTFTs since the last figures.
    latest: Vec<Nanos>,
    totals: Totals,
    /// Requests that are over.
    requests: u64,
    /// Sessions that are over: each ends with the row of its last turn, sent or not.
    sessions: u64,
    errors: u64,
    began: Instant,
    last: (Instant, u64),
    total: Option<u64>,
    seconds: Option<f64>,
}

impl Meter {
    /// A meter for so many sessions or seconds, as far as they are known.
    pub fn new(total: Option<u64>, seconds: Option<f64>) -> Meter {
        let now = Instant::now();
        Meter {
            ttft: Spans::default(),
            itl: Spans::default(),
            e2e: Spans::default(),
            measured: false,
            latest: Vec::new(),
            totals: Totals::default(),
            requests: 0,
            sessions: 0,
            errors: 0,
            began: now,
            last: (now, 0),
            total,
            seconds,
        }
    }

    /// Takes in a finished request.
    pub fn record(&mut self, outcome: &Outcome) {
        self.requests += 1;
        self.sessions += u64::from(outcome.turn + 1 >= outcome.turns);
        let failed = outcome.end.as_ref().err().map(|failure| failure.kind);
        self.errors += u64::from(failed.is_some_and(|kind| !matches!(kind, FailureKind::Cancelled | FailureKind::Abandoned)));
        let seen = Seen::of(outcome);
        self.totals.record(outcome, &seen);
        self.latest.extend(seen.ttft);
        self.spans(&seen, outcome.phase);
    }

    fn spans(&mut self, seen: &Seen, phase: Phase) {
        if phase == Phase::Measured && !std::mem::replace(&mut self.measured, true) {
            [&mut self.ttft, &mut self.itl, &mut self.e2e].into_iter().for_each(Spans::clear);
        }
        if phase == Phase::Measured || !self.measured {
            seen.ttft.iter().for_each(|span| self.ttft.record(*span));
            seen.gaps.iter().for_each(|span| self.itl.record(*span));
            seen.e2e.iter().for_each(|span| self.e2e.record(*span));
        }
    }

    /// The figures now, with what the lanes' gauges say.
    pub fn progress(&mut self, in_flight: u64, events: u64) -> Progress {
        let now = Instant::now();
        let elapsed_s = (now - self.began).as_secs_f64();
        let span = (now - self.last.0).as_secs_f64().max(1e-3);
        let tokens_per_s = events.saturating_sub(self.last.1) as f64 / span;
        self.last = (now, events);
        let rate = self.requests as f64 / elapsed_s.max(1e-3);
        Progress {
            done: self.sessions,
            total: self.total,
            in_flight,
            errors: self.errors,
            rate,
            tokens_per_s,
            ttft_ms_p50: self.ttft.millis_at(0.50),
            ttft_ms_p99: self.ttft.millis_at(0.99),
            ttft_ms_latest: latest(&mut self.latest),
            itl_ms_p50: self.itl.millis_at(0.50),
            itl_ms_p99: self.itl.millis_at(0.99),
            e2e_ms_p50: self.e2e.millis_at(0.50),
            e2e_ms_p99: self.e2e.millis_at(0.99),
            elapsed_s,
            left_s: self.left(elapsed_s),
            totals: Totals { events, ..self.totals.clone() },
        }
    }

    /// Makes the next figure's token rate the average over the whole round.
    pub fn average(&mut self) {
        self.last = (self.began, 0);
    }

    fn left(&self, elapsed: f64) -> Option<f64> {
        let each = elapsed / self.sessions.max(1) as f64;
        let by_count = self.total.filter(|_| self.sessions > 0).map(|total| total.saturating_sub(self.sessions) as f64 * each);
        let by_time = self.seconds.map(|seconds| (seconds - elapsed).max(0.0));
        match (by_count, by_time) {
            (Some(count), Some(time)) => Some(count.min(time)),
            (count, time) => count.or(time),
        }
    }
}

/// The median and the p99 of these, by nearest rank, in milliseconds; they are taken out.
fn latest(spans: &mut Vec<Nanos>) -> Option<(f64, f64)> {
    spans.sort_unstable();
    let at = |share: f64| spans.get(((share * spans.len() as f64).ceil() as usize).saturating_sub(1)).map(|span| span.millis());
    let found = at(0.50).zip(at(0.99));
    spans.clear();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_client::http::dropped;
    use llmscen_core::call::Call;
    use llmscen_core::outcome::Phase;

    #[test]
    fn spans_give_their_quantiles_within_a_thousandth() {
        let mut spans = Spans::default();
        assert_eq!(spans.millis_at(0.5), None);
        let mut more = Spans::default();
        (1..=50).for_each(|i| spans.record(Nanos::from_millis(i)));
        (51..=100).for_each(|i| more.record(Nanos::from_millis(i)));
        spans.merge(&more);
        let p99 = spans.millis_at(0.99).unwrap();
        assert!((p99 - 99.0).abs() < 0.1, "{p99}");
    }

    #[test]
    fn a_value_is_found_by_its_place_from_the_top() {
        let mut spans = Spans::default();
        (1..=700).for_each(|i| spans.record(Nanos(1000 * i)));
        for place in [1u64, 2, 300, 699, 700] {
            let seen = spans.millis_from_top(place).unwrap();
            assert!((seen * 1000.0 - (701 - place) as f64).abs() < 1e-9, "{place}: {seen}");
        }
        assert_eq!([0, 701].map(|place| spans.millis_from_top(place)), [None, None]);
    }

    #[test]
    fn warm_up_tells_until_something_is_measured() {
        let mut meter = Meter::new(None, None);
        let span = |ms| Seen { e2e: Some(Nanos::from_millis(ms)), ..Seen::default() };
        let mut p99 = |ms, phase| {
            meter.spans(&span(ms), phase);
            meter.progress(0, 0).e2e_ms_p99.map(f64::round)
        };
        assert_eq!(p99(900, Phase::Warmup), Some(900.0));
        assert_eq!(p99(20, Phase::Measured), Some(20.0));
        assert_eq!(p99(900, Phase::Warmup), Some(20.0));
    }

    #[test]
    fn the_latest_spans_are_told_once() {
        let mut spans: Vec<Nanos> = (1..=200).rev().map(Nanos::from_millis).collect();
        assert_eq!(latest(&mut spans), Some((100.0, 198.0)));
        assert_eq!(latest(&mut spans), None);
    }

    #[test]
    fn time_left_is_the_nearer_of_count_and_duration() {
        let mut meter = Meter::new(Some(100), Some(60.0));
        meter.sessions = 50;
        assert_eq!(meter.left(10.0), Some(10.0));
        assert_eq!(meter.left(55.0), Some(5.0));
        meter.sessions = 0;
        assert_eq!(meter.left(20.0), Some(40.0));
    }

    #[test]
    fn a_session_is_over_with_its_last_turn_and_every_turn_is_a_request() {
        let mut meter = Meter::new(Some(2), None);
        for (turn, turns) in [(0, 2), (1, 2), (0, 1)] {
            let call = Call { turn, turns, ..Call::default() };
            meter.record(&dropped(&call, Phase::Measured, Nanos::ZERO, "x"));
        }
        let progress = meter.progress(0, 0);
        assert_eq!((progress.done, progress.total, progress.errors, progress.left_s), (2, Some(2), 3, Some(0.0)));
    }
}
