//! Live metrics of a round, and histograms of time spans. Reports do not use them; they are computed from the rows.

use crate::run::progress::{LiveTotals, Progress, RequestSpans, Spans};
use crate::run::sharding::RoundCounts;
use llmscen_client::counters::CounterTotals;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::units::Nanos;
use std::time::Instant;

/// Computes the live metrics of one round.
pub struct LiveMetrics {
    ttft: Spans,
    itl: Spans,
    e2e: Spans,
    /// Whether a measured request has finished: from then on the spans are those of measured requests only.
    measured: bool,
    /// TTFTs since the last call of [`LiveMetrics::progress`].
    latest_ttft: Vec<Nanos>,
    totals: LiveTotals,
    /// Finished requests.
    requests: u64,
    /// Finished sessions: each ends with the outcome of its last turn, sent or not.
    sessions: u64,
    errors: u64,
    start: Instant,
    /// Time of the last call of [`LiveMetrics::progress`], and the token events at that time.
    last_progress: (Instant, u64),
    total: Option<u64>,
    duration_s: Option<f64>,
}

impl LiveMetrics {
    /// `total`: number of sessions, `duration_s`: duration in seconds, if known.
    pub fn new(total: Option<u64>, duration_s: Option<f64>) -> LiveMetrics {
        let now = Instant::now();
        LiveMetrics {
            ttft: Spans::default(),
            itl: Spans::default(),
            e2e: Spans::default(),
            measured: false,
            latest_ttft: Vec::new(),
            totals: LiveTotals::default(),
            requests: 0,
            sessions: 0,
            errors: 0,
            start: now,
            last_progress: (now, 0),
            total,
            duration_s,
        }
    }

    /// Records a finished request.
    pub fn record(&mut self, outcome: &Outcome) {
        self.requests += 1;
        // The total has no cool-down, whose last turns are not sent.
        let is_planned = outcome.phase != Phase::Cooldown;
        self.sessions += u64::from(is_planned && outcome.turn + 1 >= outcome.turns);
        let failure = outcome.end.as_ref().err().filter(|_| is_planned);
        let failed = failure.map(|failure| failure.kind);
        self.errors +=
            u64::from(failed.is_some_and(|kind| {
                !matches!(kind, FailureKind::Cancelled | FailureKind::Abandoned)
            }));
        let spans = RequestSpans::new(outcome);
        self.totals.record(outcome, &spans);
        self.latest_ttft.extend(spans.ttft);
        self.record_spans(&spans, outcome.phase);
    }

    fn record_spans(&mut self, spans: &RequestSpans, phase: Phase) {
        if phase == Phase::Measured && !std::mem::replace(&mut self.measured, true) {
            [&mut self.ttft, &mut self.itl, &mut self.e2e]
                .into_iter()
                .for_each(Spans::clear);
        }
        if phase == Phase::Measured || !self.measured {
            spans.ttft.iter().for_each(|span| self.ttft.record(*span));
            spans.gaps.iter().for_each(|span| self.itl.record(*span));
            spans.e2e.iter().for_each(|span| self.e2e.record(*span));
        }
    }

    /// The metrics at this time, with requests in flight and token events as counted by the workers.
    pub fn progress(&mut self, in_flight: u64, events: u64) -> Progress {
        let now = Instant::now();
        let elapsed_s = (now - self.start).as_secs_f64();
        let span = (now - self.last_progress.0).as_secs_f64().max(1e-3);
        let tokens_per_s = events.saturating_sub(self.last_progress.1) as f64 / span;
        self.last_progress = (now, events);
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
            ttft_ms_latest: take_p50_p99(&mut self.latest_ttft),
            itl_ms_p50: self.itl.millis_at(0.50),
            itl_ms_p99: self.itl.millis_at(0.99),
            e2e_ms_p50: self.e2e.millis_at(0.50),
            e2e_ms_p99: self.e2e.millis_at(0.99),
            elapsed_s,
            left_s: self.remaining_s(elapsed_s),
            totals: LiveTotals {
                events,
                ..self.totals.clone()
            },
        }
    }

    /// The counts for a heartbeat.
    pub fn round_counts(&self, totals: &CounterTotals) -> RoundCounts {
        RoundCounts {
            done: self.sessions,
            errors: self.errors,
            in_flight: totals.in_flight,
            events: totals.events,
            at: Nanos::from(self.start.elapsed()),
            ..RoundCounts::default()
        }
    }

    /// Makes the next token rate the average over the round.
    pub fn average_token_rate(&mut self) {
        self.last_progress = (self.start, 0);
    }

    fn remaining_s(&self, elapsed: f64) -> Option<f64> {
        let per_session = elapsed / self.sessions.max(1) as f64;
        let by_count = self
            .total
            .filter(|_| self.sessions > 0)
            .map(|total| total.saturating_sub(self.sessions) as f64 * per_session);
        let by_time = self
            .duration_s
            .map(|duration| (duration - elapsed).max(0.0));
        match (by_count, by_time) {
            (Some(count), Some(time)) => Some(count.min(time)),
            (count, time) => count.or(time),
        }
    }
}

/// The median and the p99 of the spans, by nearest rank, in milliseconds. Removes the spans.
fn take_p50_p99(spans: &mut Vec<Nanos>) -> Option<(f64, f64)> {
    spans.sort_unstable();
    let at = |share: f64| {
        spans
            .get(((share * spans.len() as f64).ceil() as usize).saturating_sub(1))
            .map(|span| span.millis())
    };
    let quantiles = at(0.50).zip(at(0.99));
    spans.clear();
    quantiles
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_client::http::dropped_outcome;
    use llmscen_core::request::PreparedRequest;

    #[test]
    fn warm_up_spans_are_shown_until_a_request_is_measured() {
        let mut live_metrics = LiveMetrics::new(None, None);
        let span = |ms| RequestSpans {
            e2e: Some(Nanos::from_millis(ms)),
            ..RequestSpans::default()
        };
        let mut p99 = |ms, phase| {
            live_metrics.record_spans(&span(ms), phase);
            live_metrics.progress(0, 0).e2e_ms_p99.map(f64::round)
        };
        assert_eq!(p99(900, Phase::Warmup), Some(900.0));
        assert_eq!(p99(20, Phase::Measured), Some(20.0));
        assert_eq!(p99(900, Phase::Warmup), Some(20.0));
    }

    #[test]
    fn the_latest_spans_are_returned_once() {
        let mut spans: Vec<Nanos> = (1..=200).rev().map(Nanos::from_millis).collect();
        assert_eq!(take_p50_p99(&mut spans), Some((100.0, 198.0)));
        assert_eq!(take_p50_p99(&mut spans), None);
    }

    #[test]
    fn time_left_is_the_nearer_of_count_and_duration() {
        let mut live_metrics = LiveMetrics::new(Some(100), Some(60.0));
        live_metrics.sessions = 50;
        assert_eq!(live_metrics.remaining_s(10.0), Some(10.0));
        assert_eq!(live_metrics.remaining_s(55.0), Some(5.0));
        live_metrics.sessions = 0;
        assert_eq!(live_metrics.remaining_s(20.0), Some(40.0));
    }

    #[test]
    fn a_session_is_over_with_its_last_turn_and_every_turn_is_a_request() {
        let mut live_metrics = LiveMetrics::new(Some(2), None);
        for (turn, turns) in [(0, 2), (1, 2), (0, 1)] {
            let call = PreparedRequest {
                turn,
                turns,
                ..PreparedRequest::default()
            };
            live_metrics.record(&dropped_outcome(&call, Phase::Measured, Nanos::ZERO, "x"));
        }
        let progress = live_metrics.progress(0, 0);
        assert_eq!(
            (
                progress.done,
                progress.total,
                progress.errors,
                progress.left_s
            ),
            (2, Some(2), 3, Some(0.0))
        );
    }
}
