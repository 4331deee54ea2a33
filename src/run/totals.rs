//! What a round has come to so far, in counts that add up over rounds: for whoever keeps totals while a run goes on.

use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;

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

/// Totals of a round, or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
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

impl Totals {
    /// Adds those of another round.
    pub fn add(&mut self, other: &Totals) {
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
    pub fn record(&mut self, outcome: &Outcome, spans: &Seen) {
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
pub struct Seen {
    /// From when it was due to its first token: of a stream that was ok, or that its user left.
    pub ttft: Option<Nanos>,
    /// Between successive token events of one choice: of a stream that was ok.
    pub gaps: Vec<Nanos>,
    /// From when it was due to its end, where it was ok.
    pub e2e: Option<Nanos>,
}

impl Seen {
    /// Those of a finished request.
    pub fn of(outcome: &Outcome) -> Seen {
        let line = &outcome.timeline;
        let left = outcome.end.as_ref().is_err_and(|failure| failure.kind == FailureKind::Abandoned);
        let ok = outcome.end.is_ok();
        let first = line.tokens.first().filter(|_| outcome.streamed && (ok || left));
        Seen {
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
    use llmscen_analysis::row;
    use llmscen_client::http::dropped;
    use llmscen_core::call::Call;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::{Failure, Finish, Timeline, Usage};

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
            let (seen, row) = (Seen::of(&outcome), row(&outcome, 0));
            let ms = |span: Option<Nanos>| span.map(Nanos::millis);
            assert_eq!(ms(seen.ttft), row.values.get(&Metric::Ttft).copied());
            assert_eq!(ms(seen.e2e), row.values.get(&Metric::E2e).copied());
            assert_eq!(seen.gaps.iter().map(|gap| gap.millis()).collect::<Vec<_>>(), row.gaps);
        }
    }

    #[test]
    fn warm_up_is_counted_apart_and_has_no_spans() {
        let mut totals = Totals::default();
        for (phase, end) in
            [(Phase::Warmup, Ok(Finish::default())), (Phase::Measured, Ok(Finish::default())), (Phase::Measured, Err(left()))]
        {
            let outcome = request(phase, &[30, 31, 60], end);
            totals.record(&outcome, &Seen::of(&outcome));
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
