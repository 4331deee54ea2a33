//! The queue of an open loop: whether it grows, and whether the run is long enough to show that it does not.

use crate::judge::design_effect::ordered_requests;
use crate::judge::ratio;
use crate::measured_requests::MeasuredRequest;
use crate::sample::Sample;
use llmscen_core::check::{Check, Subject};
use llmscen_core::metric::{Metric, Sensitivity};
use llmscen_core::stats::design::{inflation, is_long};
use llmscen_core::stats::long_run::{self, Arrivals, LongRun};
use llmscen_core::stats::quantile::select_quantile;

/// The share of a round that the correlation of its waits must not reach. It is less than that of [`is_long`]: with a
/// tenth, 5 to 15 % of runs at 1.02 times the capacity would pass.
const MEMORY_SHARE: usize = 12;

/// Whether a check passes only if requests wait little in the server's queue. Gaps between tokens do not contain the
/// queue.
pub(super) fn limits_waits(check: &Check) -> bool {
    let contains_queue = |metric: Metric| {
        matches!(
            metric.sensitivity(),
            Sensitivity::Latency | Sensitivity::Service
        )
    };
    match &check.subject {
        Subject::Metric { metric, .. } => {
            contains_queue(*metric) && check.op.is_ceiling() != metric.higher_is_better()
        }
        Subject::Goodput(limits) => {
            !check.op.is_ceiling() && limits.iter().any(|limit| contains_queue(limit.metric))
        }
        Subject::Finish { .. } | Subject::Signal { .. } | Subject::PageMetric(_) => false,
    }
}

/// Whether waits are correlated over a large part of the run, as those in a queue that grows. It looks at TTFT, or
/// E2E where nothing was streamed: other metrics contain the lengths of replies, which hide the queue.
fn has_long_memory(sample: &Sample) -> bool {
    let streamed = sample.requests.values(Metric::Ttft).next().is_some();
    let metric = if streamed { Metric::Ttft } else { Metric::E2e };
    let wait = |request: &MeasuredRequest<'_>| request.samples(metric).iter().next();
    let rounds: Vec<Vec<f64>> = ordered_requests(sample, &[])
        .chunk_by(|a, b| a.round() == b.round())
        .map(|round| round.iter().filter_map(wait).collect())
        .collect();
    is_long(&inflation(&rounds), &rounds, MEMORY_SHARE)
}

/// What the requests of an open loop show of the server's queue.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Waits are correlated over a large part of the run.
    pub(super) has_long_memory: bool,
    /// The share of the arrivals that the server completed, and ends minus arrivals per second.
    flow: Option<(f64, LongRun)>,
}

impl Queue {
    pub(super) fn of(sample: &Sample) -> Queue {
        Queue {
            has_long_memory: has_long_memory(sample),
            flow: flow(sample),
        }
    }

    /// The share of the arrivals that the server completed, if the requests in the server increase at this confidence.
    fn completed_share(&self, level: f64) -> Option<f64> {
        let (share, growth) = self.flow.as_ref()?;
        (growth.ends(level).1 < 0.0).then_some(*share)
    }

    /// Why a limit on waits cannot pass: the queue grows, so they have no long-run value.
    pub(super) fn overload_note(&self, check: &Check, level: f64) -> Option<String> {
        let share = self
            .completed_share(level)
            .filter(|_| limits_waits(check))?;
        let percent = (share * 100.0).round().min(99.0);
        Some(format!(
            "the server completed {percent} % of the offered rate; its queue grows"
        ))
    }
}

/// The share of the arrivals that the server completed, failed requests included, and ends minus arrivals per second.
/// None with few requests, and for sessions, whose later turns arrive when the server has answered.
fn flow(sample: &Sample) -> Option<(f64, LongRun)> {
    sample.scalars.get(&Metric::RateOffered)?;
    if sample.requests.iter().any(|request| request.turn() > 0) {
        return None;
    }
    let requests = ordered_requests(sample, &[]);
    let rounds = requests.chunk_by(|a, b| a.round() == b.round());
    let flows: Vec<Flow> = rounds.filter_map(flow_of_round).collect();
    let ended: f64 = flows.iter().map(|flow| flow.ended).sum();
    let arrived: f64 = flows.iter().map(|flow| flow.arrived).sum();
    let differences: Vec<Arrivals> = flows.into_iter().map(|flow| flow.difference).collect();
    let growth = long_run::rate(&differences, ratio::request_seconds(sample))
        .filter(|_| ended >= long_run::LEAST as f64)?;
    Some((ended / arrived, growth))
}

/// Requests of the start of a round by whose durations the server fills: at least so many, and at least this part of
/// the round.
const EARLY: usize = 20;
const EARLY_PART: usize = 10;
/// The share of them that has ended when the server is full.
const FILLED: f64 = 0.95;

/// What arrived at a server and what it completed in a round, from the time when the server is full to the last
/// scheduled send: before and after, ends or arrivals are missing.
struct Flow {
    arrived: f64,
    ended: f64,
    /// Ends minus arrivals. Random arrivals change both, so the difference is more exact than either.
    difference: Arrivals,
}

fn flow_of_round(round: &[MeasuredRequest<'_>]) -> Option<Flow> {
    let seconds_of = |request: &MeasuredRequest<'_>| {
        request.value(Metric::E2e).unwrap_or(request.busy_ms()) / 1e3
    };
    let end = |request: &MeasuredRequest<'_>| request.scheduled_s() + seconds_of(request);
    let until = round.last()?.scheduled_s();
    let early = round.iter().take(EARLY.max(round.len() / EARLY_PART));
    let fills = select_quantile(&mut early.map(seconds_of).collect::<Vec<f64>>(), FILLED)?;
    let from = round.first()?.scheduled_s() + fills;
    let seconds = until - from;
    let mut bins = vec![0.0; long_run::BINS];
    let mut count = |at: f64, amount: f64| {
        if at <= from || at > until {
            return 0.0;
        }
        let bin = ((at - from) / seconds * bins.len() as f64).ceil() as usize;
        bins.get_mut(bin.saturating_sub(1))
            .into_iter()
            .for_each(|sum| *sum += amount);
        1.0
    };
    let ended = round.iter().map(|request| count(end(request), 1.0)).sum();
    let arrived = round
        .iter()
        .map(|request| count(request.scheduled_s(), -1.0))
        .sum();
    (seconds > 0.0).then_some(Flow {
        arrived,
        ended,
        difference: Arrivals { seconds, bins },
    })
}

#[cfg(test)]
mod tests;
