//! Live metrics of a round, and histograms of time spans. Reports do not use them; they are computed from the rows.

use crate::run::sharding::RoundCounts;
use hdrhistogram::Histogram;
use llmscen_client::counters::CounterTotals;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::time::Instant;

/// A histogram of time spans from 1 µs to 1 h, with three significant digits.
pub struct Spans(Option<Histogram<u64>>);

impl Default for Spans {
    fn default() -> Spans {
        Spans(Histogram::new_with_bounds(1, 3_600_000_000, 3).ok())
    }
}

impl Spans {
    /// Adds a span; one outside the range counts as its bound.
    pub fn record(&mut self, span: Nanos) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(span.0 / 1000);
        }
    }

    /// Removes all spans.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(Histogram::reset);
    }

    /// Adds the spans of another histogram.
    pub fn merge(&mut self, other: &Spans) {
        if let (Some(histogram), Some(other)) = (&mut self.0, &other.0) {
            // The ranges are equal, so this cannot fail.
            let _ = histogram.add(other);
        }
    }

    /// The quantile at `share`, in milliseconds; None without spans.
    pub fn millis_at(&self, share: f64) -> Option<f64> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(histogram.value_at_quantile(share) as f64 / 1000.0)
    }

    /// Number of spans.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// The span of this rank from the longest one (rank 1), in milliseconds; None without that many spans.
    pub fn millis_from_top(&self, rank_from_top: u64) -> Option<f64> {
        let n = self.count();
        // The middle of the rank, so that rounding does not select its neighbor.
        let rank = (rank_from_top > 0)
            .then(|| n.checked_sub(rank_from_top))
            .flatten()? as f64
            + 0.5;
        self.millis_at(rank / n as f64)
    }
}

/// The live metrics of a round. Counts and rates include the warm-up; latencies exclude it once a measured request has finished.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Finished requests, or sessions for conversations.
    pub done: u64,
    /// Planned requests or sessions, if known.
    pub total: Option<u64>,
    /// Requests in flight.
    pub in_flight: u64,
    /// Failed requests.
    pub errors: u64,
    /// Finished requests per second since the start of the round.
    pub rate: f64,
    /// Token events per second since the previous event; over several shards since the start of the round.
    pub tokens_per_s: f64,
    /// Median TTFT so far, milliseconds.
    pub ttft_ms_p50: Option<f64>,
    /// TTFT p99 so far, milliseconds.
    pub ttft_ms_p99: Option<f64>,
    /// Median and p99 of the TTFTs since the previous event, milliseconds.
    pub ttft_ms_latest: Option<(f64, f64)>,
    /// Median ITL so far, milliseconds.
    pub itl_ms_p50: Option<f64>,
    /// ITL p99 so far, milliseconds.
    pub itl_ms_p99: Option<f64>,
    /// Median end-to-end latency so far, milliseconds.
    pub e2e_ms_p50: Option<f64>,
    /// End-to-end latency p99 so far, milliseconds.
    pub e2e_ms_p99: Option<f64>,
    /// Seconds since the start of the round.
    pub elapsed_s: f64,
    /// Estimated remaining seconds.
    pub left_s: Option<f64>,
    /// Totals of the round, with the warm-up counted separately.
    pub totals: LiveTotals,
}

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

/// Upper bounds of the buckets in seconds, inclusive. Values beyond the last one are only counted.
pub const BOUNDS: [f64; 25] = [
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5,
    2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0,
];

/// A histogram with fixed buckets, for Prometheus.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Buckets {
    counts: [u64; BOUNDS.len()],
    /// Number of values.
    pub count: u64,
    /// Sum of the values, seconds.
    pub sum_s: f64,
}

impl Buckets {
    /// Adds a span.
    pub fn record(&mut self, span: Nanos) {
        let secs = span.secs();
        if let Some(count) = self
            .counts
            .get_mut(BOUNDS.partition_point(|bound| *bound < secs))
        {
            *count += 1;
        }
        self.count += 1;
        self.sum_s += secs;
    }

    /// The bound of each bucket in seconds and its number of values, not cumulative; the last bound stands for +∞.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let beyond = self.count - self.counts.iter().sum::<u64>();
        BOUNDS
            .into_iter()
            .zip(self.counts)
            .chain([(f64::MAX, beyond)])
            .collect()
    }

    fn add(&mut self, other: &Buckets) {
        self.counts
            .iter_mut()
            .zip(other.counts)
            .for_each(|(count, other)| *count += other);
        self.count += other.count;
        self.sum_s += other.sum_s;
    }
}

/// Totals of a round, or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveTotals {
    /// Finished requests by phase and outcome: `ok`, or the kind of failure.
    pub outcomes: BTreeMap<(Phase, &'static str), u64>,
    /// Content events received, over all requests and phases: a lower bound of the output tokens.
    pub events: u64,
    /// Prompt tokens of successful measured requests, if known.
    pub prompt_tokens: u64,
    /// Output tokens of successful measured requests.
    pub output_tokens: u64,
    /// TTFT of measured requests, defined as in the report.
    pub ttft: Buckets,
    /// ITL of measured requests.
    pub itl: Buckets,
    /// End-to-end latency of measured requests.
    pub e2e: Buckets,
}

impl LiveTotals {
    /// Adds the totals of another round.
    pub fn add(&mut self, other: &LiveTotals) {
        for (key, count) in &other.outcomes {
            *self.outcomes.entry(*key).or_default() += count;
        }
        self.events += other.events;
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.ttft.add(&other.ttft);
        self.itl.add(&other.itl);
        self.e2e.add(&other.e2e);
    }

    /// Counts a finished request, and its spans if it is measured.
    pub fn record(&mut self, outcome: &Outcome, spans: &RequestSpans) {
        *self
            .outcomes
            .entry((outcome.phase, outcome.outcome_name()))
            .or_default() += 1;
        if outcome.phase != Phase::Measured {
            return;
        }
        spans.ttft.iter().for_each(|span| self.ttft.record(*span));
        spans.gaps.iter().for_each(|span| self.itl.record(*span));
        spans.e2e.iter().for_each(|span| self.e2e.record(*span));
        if outcome.end.is_ok() {
            let events = (outcome.streamed && !outcome.timeline.tokens.is_empty())
                .then_some(outcome.timeline.tokens.len() as u64);
            let output = outcome
                .usage
                .output
                .or(outcome.counted.output)
                .or(events)
                .unwrap_or(0);
            let prompt = outcome.usage.prompt.or(outcome.counted.prompt).unwrap_or(0);
            self.prompt_tokens = self.prompt_tokens.saturating_add(prompt);
            self.output_tokens = self.output_tokens.saturating_add(output);
        }
    }
}

/// The time spans of one request, with the same exclusions as in the report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSpans {
    /// From the scheduled send time to the first token: of a successful stream, or one cancelled by the client.
    pub ttft: Option<Nanos>,
    /// Between consecutive token events of one choice, of a successful stream.
    pub gaps: Vec<Nanos>,
    /// From the scheduled send time to the end, of a successful request.
    pub e2e: Option<Nanos>,
}

impl RequestSpans {
    /// The spans of a finished request.
    pub fn new(outcome: &Outcome) -> RequestSpans {
        let timeline = &outcome.timeline;
        let cancelled = outcome
            .end
            .as_ref()
            .is_err_and(|failure| failure.kind == FailureKind::Abandoned);
        let ok = outcome.end.is_ok();
        let first = timeline
            .tokens
            .first()
            .filter(|_| outcome.streamed && (ok || cancelled));
        RequestSpans {
            ttft: first.map(|first| first.since(timeline.intended)),
            gaps: if ok && outcome.streamed {
                token_gaps(&timeline.tokens, &timeline.choices)
            } else {
                Vec::new()
            },
            e2e: ok.then(|| timeline.end.since(timeline.intended)),
        }
    }
}

fn token_gaps(tokens: &[Nanos], choices: &[u32]) -> Vec<Nanos> {
    if choices.is_empty() {
        return tokens
            .iter()
            .zip(tokens.iter().skip(1))
            .map(|(earlier, later)| later.since(*earlier))
            .collect();
    }
    let mut latest: BTreeMap<u32, Nanos> = BTreeMap::new();
    let events = tokens.iter().zip(choices);
    events
        .filter_map(|(at, choice)| latest.insert(*choice, *at).map(|earlier| at.since(earlier)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_analysis::with_live_request;
    use llmscen_client::http::dropped_outcome;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::{Failure, Finish, Phase, Timeline, Usage};
    use llmscen_core::request::PreparedRequest;

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
    fn a_value_is_found_by_its_rank_from_the_top() {
        let mut spans = Spans::default();
        (1..=700).for_each(|i| spans.record(Nanos(1000 * i)));
        for rank in [1u64, 2, 300, 699, 700] {
            let millis = spans.millis_from_top(rank).unwrap();
            assert!(
                (millis * 1000.0 - (701 - rank) as f64).abs() < 1e-9,
                "{rank}: {millis}"
            );
        }
        assert_eq!(
            [0, 701].map(|rank| spans.millis_from_top(rank)),
            [None, None]
        );
    }

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

    fn request(phase: Phase, stamps: &[u64], end: Result<Finish, Failure>) -> Outcome {
        let tokens: Vec<Nanos> = stamps.iter().map(|ms| Nanos::from_millis(*ms)).collect();
        let last = tokens.last().copied().unwrap_or_default();
        let timeline = Timeline {
            intended: Nanos::from_millis(10),
            sent: Some(Nanos::from_millis(11)),
            tokens,
            end: last,
            ..Timeline::default()
        };
        let usage = Usage {
            prompt: Some(7),
            output: Some(3),
            ..Usage::default()
        };
        let blank = dropped_outcome(&PreparedRequest::default(), phase, Nanos::ZERO, "x");
        Outcome {
            phase,
            timeline,
            streamed: true,
            usage,
            end,
            ..blank
        }
    }

    fn cancelled() -> Failure {
        Failure::new(FailureKind::Abandoned, "left")
    }

    #[test]
    fn the_live_spans_are_those_of_the_report() {
        let ok = || Ok(Finish::default());
        let mut choices = request(Phase::Measured, &[30, 32, 35, 39], ok());
        choices.timeline.choices = vec![0, 1, 0, 1];
        let unstreamed = Outcome {
            streamed: false,
            ..request(Phase::Measured, &[30, 40], ok())
        };
        for outcome in [
            request(Phase::Measured, &[30, 32, 32, 50], ok()),
            choices,
            unstreamed,
            request(Phase::Measured, &[20], Err(cancelled())),
        ] {
            let spans = RequestSpans::new(&outcome);
            let ms = |span: Option<Nanos>| span.map(Nanos::millis);
            with_live_request(&outcome, 0, None, |request| {
                assert_eq!(ms(spans.ttft), request.value(Metric::Ttft));
                assert_eq!(ms(spans.e2e), request.value(Metric::E2e));
                let gaps: Vec<f64> = spans.gaps.iter().map(|gap| gap.millis()).collect();
                assert_eq!(gaps, request.gaps());
            });
        }
    }

    #[test]
    fn warm_up_is_counted_separately_and_has_no_spans() {
        let mut totals = LiveTotals::default();
        for (phase, end) in [
            (Phase::Warmup, Ok(Finish::default())),
            (Phase::Measured, Ok(Finish::default())),
            (Phase::Measured, Err(cancelled())),
        ] {
            let outcome = request(phase, &[30, 31, 60], end);
            totals.record(&outcome, &RequestSpans::new(&outcome));
        }
        let counts: Vec<_> = totals
            .outcomes
            .iter()
            .map(|((phase, word), count)| (*phase, *word, *count))
            .collect();
        assert_eq!(
            counts,
            [
                (Phase::Warmup, "ok", 1),
                (Phase::Measured, "abandoned", 1),
                (Phase::Measured, "ok", 1)
            ]
        );
        assert_eq!((totals.prompt_tokens, totals.output_tokens), (7, 3));
        assert_eq!(
            (totals.ttft.count, totals.itl.count, totals.e2e.count),
            (2, 2, 1)
        );
        let mut twice = totals.clone();
        twice.add(&totals);
        assert_eq!(
            (
                twice.ttft.count,
                twice.output_tokens,
                twice.outcomes[&(Phase::Measured, "ok")]
            ),
            (4, 6, 2)
        );
        assert!((twice.itl.sum_s - 0.06).abs() < 1e-12);
    }

    #[test]
    fn a_value_falls_into_the_bucket_that_it_does_not_exceed() {
        let mut buckets = Buckets::default();
        for ns in [0, 1_000_000, 1_000_001, 320_000_000_000, 320_000_000_001] {
            buckets.record(Nanos(ns));
        }
        let filled: Vec<_> = buckets
            .buckets()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(filled, [(0.001, 2), (0.0025, 1), (320.0, 1), (f64::MAX, 1)]);
        assert_eq!(buckets.count, 5);
    }
}
