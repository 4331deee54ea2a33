//! Ends a round early: an objective cannot be met any more, or the server is saturated.

#[cfg(test)]
mod tests;
use crate::run::progress::Spans;
use crate::run::sharding::{ObjectiveCounts, RoundCounts};
use llmscen_analysis::{judge, with_live_request};
use llmscen_core::early_stop::{Aborted, EarlyStop, Saturated};
use llmscen_core::load::{Shape, Warmup};
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::plan::Case;
use llmscen_core::schedule::shard::Shard;
use llmscen_core::stats::trend::JointTrend;
use llmscen_core::units::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// The early-stop checks of one round.
pub struct EarlyStopMonitor {
    case: Case,
    round: u32,
    limits: Vec<Limit>,
    /// The counts of the objectives for shard 0, which decides; None for a run of one process.
    counts: Option<Vec<ObjectiveCounts>>,
    order: Order,
    /// Finished measured requests.
    after: u64,
    /// Planned measured requests.
    planned: Option<u64>,
    drift: Option<JointTrend>,
    over: bool,
}

/// A watched objective, and its index among those of the case.
struct Limit {
    place: u32,
    watch: judge::Watch,
}

/// The objectives of a case that can fail early.
fn watched_limits(case: &Case) -> Vec<Limit> {
    let checks = case.checks.iter().enumerate();
    checks
        .filter_map(|(place, check)| {
            Some(Limit {
                place: place as u32,
                watch: judge::Watch::new(check)?,
            })
        })
        .collect()
}

impl Limit {
    /// The early stop of a round whose evidence refutes this objective. `after`: finished measured requests of
    /// `planned`.
    fn abort(&self, at_s: f64, after: u64, planned: Option<u64>) -> Aborted {
        let (check, (n, breaking)) = (self.watch.check(), self.watch.counts());
        Aborted {
            check: self.place,
            expr: check.expr.clone(),
            at_s,
            after,
            planned,
            n,
            breaking,
            allowed: check.allowed().unwrap_or_default(),
            alpha: check.abort.map_or(0.0, |abort| abort.alpha),
        }
    }
}

impl EarlyStopMonitor {
    /// The checks of a shard in a round whose plan has this number of requests, if known; None if nothing can end it
    /// early.
    pub fn over(
        case: &Case,
        round: u32,
        planned: Option<u64>,
        shard: Shard,
    ) -> Option<EarlyStopMonitor> {
        let limits = watched_limits(case);
        // Several shards detect no saturation: that needs the requests in flight of all at one time.
        let is_whole = shard.is_whole();
        let arrives = case.load.shape.constant_rate().is_some()
            || matches!(case.load.shape, Shape::Replay { .. });
        let detects = arrives && is_whole && case.load.stop_when_saturated;
        let drift = detects.then(JointTrend::default);
        let planned = measured(case, planned);
        let idle = limits.is_empty() && drift.is_none();
        (!idle).then(|| EarlyStopMonitor {
            case: case.clone(),
            round,
            counts: (!is_whole).then(|| vec![ObjectiveCounts::default(); limits.len()]),
            limits,
            order: Order::default(),
            after: 0,
            planned,
            drift,
            over: false,
        })
    }

    /// Records an outcome, with the number of requests in flight. Returns the reason to end the round, once.
    pub fn see(&mut self, outcome: &Outcome, in_flight: impl FnOnce() -> u64) -> Option<EarlyStop> {
        if self.over {
            return None;
        }
        let measured = outcome.phase == Phase::Measured;
        self.after += u64::from(measured);
        let saturated = if measured {
            self.saturated(outcome, in_flight)
        } else {
            None
        };
        let ending = self
            .lost(outcome, measured)
            .map(EarlyStop::Aborted)
            .or(saturated.map(EarlyStop::Saturated));
        self.over = ending.is_some();
        ending
    }

    /// The counts of the watched objectives over the requests that have ended, in any order: shard 0 adds those in
    /// flight. Empty for a run of one process.
    pub fn counts(&self) -> Vec<ObjectiveCounts> {
        self.counts.clone().unwrap_or_default()
    }

    fn lost(&mut self, outcome: &Outcome, measured: bool) -> Option<Aborted> {
        if self.limits.is_empty() {
            return None;
        }
        // Requests that the load generator cancelled say nothing about the server.
        let counts = measured
            && outcome
                .end
                .as_ref()
                .err()
                .is_none_or(|failure| failure.kind != FailureKind::Cancelled);
        let requested = self.case.requested_length(outcome.group.as_deref());
        let flags: Flags = match counts {
            true => with_live_request(outcome, self.round, requested, |request| {
                let breaks = |limit: &Limit| limit.watch.breaks(request);
                self.limits.iter().map(breaks).collect()
            }),
            false => vec![None; self.limits.len()],
        };
        if let Some(counts) = &mut self.counts {
            count(counts, flags);
            return None;
        }
        let at_s = outcome.timeline.end.secs();
        let (line, turns) = (&outcome.timeline, outcome.turns);
        let took = line.end.since(line.sent.unwrap_or(line.intended));
        self.order.add(
            (outcome.seq, outcome.turn),
            Ended {
                turns,
                at: line.end,
                flags,
            },
            took,
        );
        while let Some(flags) = self.order.next() {
            for (limit, breaks) in self.limits.iter_mut().zip(flags) {
                if breaks.is_some_and(|breaks| limit.watch.add(breaks)) {
                    return Some(limit.abort(at_s, self.after, self.planned));
                }
            }
        }
        None
    }

    /// Detects saturation from the trends of TTFT (or latency, without a stream) and of requests in flight.
    fn saturated(
        &mut self,
        outcome: &Outcome,
        in_flight: impl FnOnce() -> u64,
    ) -> Option<Saturated> {
        let drift = self.drift.as_mut().filter(|_| outcome.end.is_ok())?;
        let (line, at_s) = (&outcome.timeline, outcome.timeline.end.secs());
        let answered = line
            .tokens
            .first()
            .copied()
            .filter(|_| outcome.streamed)
            .unwrap_or(line.end);
        let grown = drift.observe(
            at_s,
            [in_flight() as f64, answered.since(line.intended).millis()],
        )?;
        let [in_flight_slope, ttft_slope] = grown.slopes;
        Some(Saturated {
            from_s: grown.from,
            at_s,
            in_flight_slope,
            ttft_slope,
        })
    }
}

/// Adds one request.
fn count(counts: &mut [ObjectiveCounts], flags: Flags) {
    for (counts, breaks) in counts.iter_mut().zip(flags) {
        counts.samples += u64::from(breaks.is_some());
        counts.breaking += u64::from(breaks == Some(true));
    }
}

/// Decides on shard 0 whether the counts of all shards end a round.
pub struct GroupDecide {
    limits: Vec<Limit>,
    planned: Option<u64>,
    /// The sums of the batches so far, by objective, and the time of the last one.
    known: Vec<ObjectiveCounts>,
    at: Nanos,
}

/// Least time between two batches: the heartbeats of all shards are in each.
const BATCH: Nanos = Nanos(1_500_000_000);

impl GroupDecide {
    /// The checks of a round whose plan has this number of requests, if known; None if no objective can end it early.
    pub fn new(case: &Case, planned: Option<u64>) -> Option<GroupDecide> {
        let limits = watched_limits(case);
        (!limits.is_empty()).then(|| GroupDecide {
            planned: measured(case, planned),
            known: vec![ObjectiveCounts::default(); limits.len()],
            at: Nanos::ZERO,
            limits,
        })
    }

    /// The reason to end the round, from the newest counts of each shard.
    pub fn decide(&mut self, counts: &BTreeMap<u32, RoundCounts>) -> Option<EarlyStop> {
        let now = counts.values().map(|shard| shard.at).max()?;
        if now.since(self.at) < BATCH {
            return None;
        }
        self.at = now;
        let pending = counts.values().map(|shard| shard.in_flight).sum();
        for (place, limit) in self.limits.iter_mut().enumerate() {
            let sums = counts
                .values()
                .filter_map(|shard| shard.objectives.get(place));
            let sum = sums.fold(ObjectiveCounts::default(), |sum, shard| ObjectiveCounts {
                samples: sum.samples + shard.samples,
                breaking: sum.breaking + shard.breaking,
            });
            let Some(known) = self.known.get_mut(place) else {
                continue;
            };
            let samples = sum.samples.saturating_sub(known.samples);
            let breaking = sum.breaking.saturating_sub(known.breaking);
            *known = sum;
            if limit.watch.add_batch(samples, breaking, pending) {
                let abort = limit.abort(now.secs(), sum.samples, self.planned);
                return Some(EarlyStop::Aborted(abort));
            }
        }
        None
    }
}

/// Number of planned requests that are measured, if known; unknown for conversations.
fn measured(case: &Case, planned: Option<u64>) -> Option<u64> {
    match case.load.warmup {
        _ if case.has_conversations() => None,
        Warmup::Requests(warm) => planned.map(|planned| planned.saturating_sub(warm)),
        Warmup::Span(_) => case.load.requests,
    }
}

/// Puts requests into the order of their numbers. In the order of their ends, fast failures would come first and
/// could end a round by themselves.
///
/// A request that takes very long is passed over: it counts as one that meets every objective, whatever its later
/// result. That only makes an early stop less likely, so the probability of a wrong one does not increase.
#[derive(Default)]
struct Order {
    /// Finished requests by number and turn.
    ended: BTreeMap<(u64, u32), Ended>,
    next: (u64, u32),
    /// Unfinished requests that were passed over.
    passed: BTreeSet<(u64, u32)>,
    /// Durations of requests.
    took: Spans,
    now: Nanos,
}

/// A finished request that waits for those before it.
struct Ended {
    /// Turns of its session.
    turns: u32,
    at: Nanos,
    flags: Flags,
}

/// Whether a request violates each objective; None for objectives that do not apply to it.
type Flags = Vec<Option<bool>>;

/// How long a finished request waits for those before it: a multiple of the median request duration, and a minimum in
/// milliseconds.
const PATIENCE: f64 = 8.0;
const LEAST_PATIENCE: f64 = 1000.0;

impl Order {
    fn add(&mut self, place: (u64, u32), ended: Ended, took: Nanos) {
        self.now = self.now.max(ended.at);
        self.took.record(took);
        if !self.passed.remove(&place) {
            self.ended.insert(place, ended);
        }
    }

    fn next(&mut self) -> Option<Flags> {
        let (&place, first) = self.ended.first_key_value()?;
        // A request that was passed over and ends late is next.
        if place <= self.next {
            let Ended { turns, flags, .. } = self.ended.remove(&place)?;
            if place == self.next {
                self.next = if place.1 + 1 < turns {
                    (place.0, place.1 + 1)
                } else {
                    (place.0 + 1, 0)
                };
            }
            return Some(flags);
        }
        let patience = (PATIENCE * self.took.millis_at(0.5).unwrap_or(0.0)).max(LEAST_PATIENCE);
        let kept = (self.now.since(first.at).millis() > patience)
            .then(|| vec![Some(false); first.flags.len()])?;
        self.passed.insert(self.next);
        self.next = if self.next.0 < place.0 {
            (self.next.0 + 1, 0)
        } else {
            (place.0, self.next.1 + 1)
        };
        Some(kept)
    }
}
