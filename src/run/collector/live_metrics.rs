//! Live metrics of a round, and histograms of spans. Reports never use them; they read the rows.

use crate::run::event::Progress;
use hdrhistogram::Histogram;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
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
pub struct LiveMetrics {
    ttft: Spans,
    itl: Spans,
    e2e: Spans,
    /// Whether a measured request is over: from then on the spans are those of measured ones alone.
    measured: bool,
    /// TTFTs since the last figures.
    latest: Vec<Nanos>,
    totals: LiveTotals,
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

impl LiveMetrics {
    /// A meter for so many sessions or seconds, as far as they are known.
    pub fn new(total: Option<u64>, seconds: Option<f64>) -> LiveMetrics {
        let now = Instant::now();
        LiveMetrics {
            ttft: Spans::default(),
            itl: Spans::default(),
            e2e: Spans::default(),
            measured: false,
            latest: Vec::new(),
            totals: LiveTotals::default(),
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
        let seen = RequestSpans::of(outcome);
        self.totals.record(outcome, &seen);
        self.latest.extend(seen.ttft);
        self.spans(&seen, outcome.phase);
    }

    fn spans(&mut self, seen: &RequestSpans, phase: Phase) {
        if phase == Phase::Measured && !std::mem::replace(&mut self.measured, true) {
            [&mut self.ttft, &mut self.itl, &mut self.e2e].into_iter().for_each(Spans::clear);
        }
        if phase == Phase::Measured || !self.measured {
            seen.ttft.iter().for_each(|span| self.ttft.record(*span));
            seen.gaps.iter().for_each(|span| self.itl.record(*span));
            seen.e2e.iter().for_each(|span| self.e2e.record(*span));
        }
    }

    /// The figures now, with what the workers' gauges say.
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
            totals: LiveTotals { events, ..self.totals.clone() },
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

/// Upper bounds of the buckets, seconds, each among its own; what is beyond the last one is in the count alone.
pub const BOUNDS: [f64; 25] = [
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0, 160.0, 320.0,
];

/// A histogram that adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Buckets {
    counts: [u64; BOUNDS.len()],
    /// Values.
    pub count: u64,
    /// Their sum, seconds.
    pub sum_s: f64,
}

impl Buckets {
    /// Counts a span.
    pub fn record(&mut self, span: Nanos) {
        let secs = span.secs();
        if let Some(own) = self.counts.get_mut(BOUNDS.partition_point(|bound| *bound < secs)) {
            *own += 1;
        }
        self.count += 1;
        self.sum_s += secs;
    }

    /// The bounds in seconds and how many values each bucket holds by itself; the last bound is +∞.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let beyond = self.count - self.counts.iter().sum::<u64>();
        BOUNDS.into_iter().zip(self.counts).chain([(f64::MAX, beyond)]).collect()
    }

    fn add(&mut self, other: &Buckets) {
        self.counts.iter_mut().zip(other.counts).for_each(|(own, other)| *own += other);
        self.count += other.count;
        self.sum_s += other.sum_s;
    }
}

/// LiveTotals of a round, or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveTotals {
    /// Requests that are over, by phase and by how they ended: `ok`, or the kind of the failure.
    pub outcomes: BTreeMap<(Phase, &'static str), u64>,
    /// Content events that arrived, of every request and phase: a lower bound of the tokens, known as they come.
    pub events: u64,
    /// Prompt tokens of measured requests that were ok, where known.
    pub prompt_tokens: u64,
    /// Output tokens of the same.
    pub output_tokens: u64,
    /// TTFT of measured requests, as in the report.
    pub ttft: Buckets,
    /// Gaps between token events, likewise.
    pub itl: Buckets,
    /// E2E latency, likewise.
    pub e2e: Buckets,
}

impl LiveTotals {
    /// Adds those of another round.
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

    /// Counts a request that is over; its spans too, where it is measured.
    pub fn record(&mut self, outcome: &Outcome, spans: &RequestSpans) {
        *self.outcomes.entry((outcome.phase, outcome.word())).or_default() += 1;
        if outcome.phase != Phase::Measured {
            return;
        }
        spans.ttft.iter().for_each(|span| self.ttft.record(*span));
        spans.gaps.iter().for_each(|span| self.itl.record(*span));
        spans.e2e.iter().for_each(|span| self.e2e.record(*span));
        if outcome.end.is_ok() {
            let events =
                (outcome.streamed && !outcome.timeline.tokens.is_empty()).then_some(outcome.timeline.tokens.len() as u64);
            let output = outcome.usage.output.or(outcome.counted.output).or(events).unwrap_or(0);
            let prompt = outcome.usage.prompt.or(outcome.counted.prompt).unwrap_or(0);
            self.prompt_tokens = self.prompt_tokens.saturating_add(prompt);
            self.output_tokens = self.output_tokens.saturating_add(output);
        }
    }
}

/// The spans of one request that live figures are made of; those that the report would leave out are left out here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSpans {
    /// From when it was due to its first token: of a stream that was ok, or that its user left.
    pub ttft: Option<Nanos>,
    /// Between successive token events of one choice: of a stream that was ok.
    pub gaps: Vec<Nanos>,
    /// From when it was due to its end, where it was ok.
    pub e2e: Option<Nanos>,
}

impl RequestSpans {
    /// Those of a finished request.
    pub fn of(outcome: &Outcome) -> RequestSpans {
        let line = &outcome.timeline;
        let left = outcome.end.as_ref().is_err_and(|failure| failure.kind == FailureKind::Abandoned);
        let ok = outcome.end.is_ok();
        let first = line.tokens.first().filter(|_| outcome.streamed && (ok || left));
        RequestSpans {
            ttft: first.map(|first| first.since(line.intended)),
            gaps: if ok && outcome.streamed { gaps(&line.tokens, &line.choices) } else { Vec::new() },
            e2e: ok.then(|| line.end.since(line.intended)),
        }
    }
}

fn gaps(tokens: &[Nanos], choices: &[u32]) -> Vec<Nanos> {
    if choices.is_empty() {
        return tokens.iter().zip(tokens.iter().skip(1)).map(|(earlier, later)| later.since(*earlier)).collect();
    }
    let mut latest: BTreeMap<u32, Nanos> = BTreeMap::new();
    let each = tokens.iter().zip(choices);
    each.filter_map(|(at, choice)| latest.insert(*choice, *at).map(|earlier| at.since(earlier))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_analysis::MeasuredRequests;
    use llmscen_client::http::dropped;
    use llmscen_core::call::Call;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::{Failure, Finish, Phase, Timeline, Usage};

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
        let mut live_metrics = LiveMetrics::new(None, None);
        let span = |ms| RequestSpans { e2e: Some(Nanos::from_millis(ms)), ..RequestSpans::default() };
        let mut p99 = |ms, phase| {
            live_metrics.spans(&span(ms), phase);
            live_metrics.progress(0, 0).e2e_ms_p99.map(f64::round)
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
        let mut live_metrics = LiveMetrics::new(Some(100), Some(60.0));
        live_metrics.sessions = 50;
        assert_eq!(live_metrics.left(10.0), Some(10.0));
        assert_eq!(live_metrics.left(55.0), Some(5.0));
        live_metrics.sessions = 0;
        assert_eq!(live_metrics.left(20.0), Some(40.0));
    }

    #[test]
    fn a_session_is_over_with_its_last_turn_and_every_turn_is_a_request() {
        let mut live_metrics = LiveMetrics::new(Some(2), None);
        for (turn, turns) in [(0, 2), (1, 2), (0, 1)] {
            let call = Call { turn, turns, ..Call::default() };
            live_metrics.record(&dropped(&call, Phase::Measured, Nanos::ZERO, "x"));
        }
        let progress = live_metrics.progress(0, 0);
        assert_eq!((progress.done, progress.total, progress.errors, progress.left_s), (2, Some(2), 3, Some(0.0)));
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
        let usage = Usage { prompt: Some(7), output: Some(3), ..Usage::default() };
        let blank = dropped(&Call::default(), phase, Nanos::ZERO, "x");
        Outcome { phase, timeline, streamed: true, usage, end, ..blank }
    }

    fn left() -> Failure {
        Failure::new(FailureKind::Abandoned, "left")
    }

    #[test]
    fn the_live_spans_are_those_of_the_report() {
        let ok = || Ok(Finish::default());
        let mut choices = request(Phase::Measured, &[30, 32, 35, 39], ok());
        choices.timeline.choices = vec![0, 1, 0, 1];
        let whole = Outcome { streamed: false, ..request(Phase::Measured, &[30, 40], ok()) };
        for outcome in
            [request(Phase::Measured, &[30, 32, 32, 50], ok()), choices, whole, request(Phase::Measured, &[20], Err(left()))]
        {
            let seen = RequestSpans::of(&outcome);
            let requests = MeasuredRequests::of_outcome(&outcome, 0);
            let request = requests.iter().next().unwrap();
            let ms = |span: Option<Nanos>| span.map(Nanos::millis);
            assert_eq!(ms(seen.ttft), request.value(Metric::Ttft));
            assert_eq!(ms(seen.e2e), request.value(Metric::E2e));
            assert_eq!(seen.gaps.iter().map(|gap| gap.millis()).collect::<Vec<_>>(), request.gaps());
        }
    }

    #[test]
    fn warm_up_is_counted_apart_and_has_no_spans() {
        let mut totals = LiveTotals::default();
        for (phase, end) in
            [(Phase::Warmup, Ok(Finish::default())), (Phase::Measured, Ok(Finish::default())), (Phase::Measured, Err(left()))]
        {
            let outcome = request(phase, &[30, 31, 60], end);
            totals.record(&outcome, &RequestSpans::of(&outcome));
        }
        let counts: Vec<_> = totals.outcomes.iter().map(|((phase, word), count)| (*phase, *word, *count)).collect();
        assert_eq!(counts, [(Phase::Warmup, "ok", 1), (Phase::Measured, "abandoned", 1), (Phase::Measured, "ok", 1)]);
        assert_eq!((totals.prompt_tokens, totals.output_tokens), (7, 3));
        assert_eq!((totals.ttft.count, totals.itl.count, totals.e2e.count), (2, 2, 1));
        let mut twice = totals.clone();
        twice.add(&totals);
        assert_eq!((twice.ttft.count, twice.output_tokens, twice.outcomes[&(Phase::Measured, "ok")]), (4, 6, 2));
        assert!((twice.itl.sum_s - 0.06).abs() < 1e-12);
    }

    #[test]
    fn a_value_falls_into_the_bucket_that_it_does_not_exceed() {
        let mut buckets = Buckets::default();
        for ns in [0, 1_000_000, 1_000_001, 320_000_000_000, 320_000_000_001] {
            buckets.record(Nanos(ns));
        }
        let filled: Vec<_> = buckets.buckets().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.001, 2), (0.0025, 1), (320.0, 1), (f64::MAX, 1)]);
        assert_eq!(buckets.count, 5);
    }
}
