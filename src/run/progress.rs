//! The progress of a round: its live metrics, its totals, and histograms of time spans.

use hdrhistogram::Histogram;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;

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

/// The live metrics of a round. Counts and rates include the warm-up; latencies exclude it once a measured request
/// has finished.
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
    use llmscen_core::outcome::{Failure, Finish, Timeline, Usage};
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
