//! Numbers taken from the rows of one case: what judges and charts see.

use crate::check::RequestLimit;
use crate::metric::Metric;
use crate::outcome::FailureKind;
use crate::signal::Signal;
use crate::telemetry::SignalStat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A distribution in numbers. Quantiles by nearest rank; all figures in the metric's unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Values.
    pub n: u64,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation; None for n < 2.
    pub sd: Option<f64>,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
    /// The quantiles of [`Distribution::SHARES`], in that order.
    pub quantiles: Vec<f64>,
}

impl Distribution {
    /// The quantiles that every table carries.
    pub const SHARES: [f64; 13] = [0.01, 0.05, 0.10, 0.25, 0.50, 0.66, 0.75, 0.80, 0.90, 0.95, 0.98, 0.99, 0.999];

    /// The quantile of one of [`Distribution::SHARES`].
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let index = Distribution::SHARES.iter().position(|&own| (own - share).abs() < 1e-9)?;
        self.quantiles.get(index).copied()
    }
}

/// How many requests came to what. Warm-up is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that the plan scheduled.
    pub scheduled: u64,
    /// Requests that succeeded.
    pub ok: u64,
    /// Requests that were sent and failed, cancelled ones among them.
    pub failed: u64,
    /// Requests whose users left, as the scenario says; neither ok nor failed.
    pub abandoned: u64,
    /// Requests that were never sent.
    pub dropped: u64,
    /// Failures by kind, dropped among them; kinds that did not occur are absent.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Warm-up requests, ok or not.
    pub warmup: u64,
    /// Requests sent once more on a new connection.
    pub reconnects: u64,
    /// Attempts after the first, over all requests.
    pub retries: u64,
    /// Requests that were tried more than once.
    pub retried: u64,
}

/// Values of metrics, at most one each: as small as can be, since every request has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// A bit for each metric that has a value.
    known: u64,
    /// Their values, in the order of the metrics.
    values: Box<[f64]>,
}

const _: () = assert!(Metric::ALL.len() <= 64);

impl Values {
    fn bit(metric: Metric) -> u64 {
        1 << metric as u32
    }

    /// The value of a metric.
    pub fn get(&self, metric: &Metric) -> Option<&f64> {
        let bit = Values::bit(*metric);
        let place = (self.known & (bit - 1)).count_ones() as usize;
        self.values.get(place).filter(|_| self.known & bit != 0)
    }

    /// Whether a metric has a value.
    pub fn contains_key(&self, metric: &Metric) -> bool {
        self.get(metric).is_some()
    }
}

impl FromIterator<(Metric, f64)> for Values {
    fn from_iter<I: IntoIterator<Item = (Metric, f64)>>(all: I) -> Values {
        let mut known = 0;
        let mut places = [0.0; 64];
        for (metric, value) in all {
            known |= Values::bit(metric);
            if let Some(place) = places.get_mut(metric as usize) {
                *place = value;
            }
        }
        let values = Metric::ALL.iter().zip(places).filter(|(metric, _)| known & Values::bit(**metric) != 0);
        let mut own = Vec::with_capacity(known.count_ones() as usize);
        own.extend(values.map(|(_, value)| value));
        Values { known, values: own.into_boxed_slice() }
    }
}

impl<const N: usize> From<[(Metric, f64); N]> for Values {
    fn from(all: [(Metric, f64); N]) -> Values {
        all.into_iter().collect()
    }
}

/// One measured request, reduced to what statistics need. NaN never stands in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Round of the case, from 0.
    pub round: u32,
    /// Its session's number, and its turn in it, from 0.
    pub place: (u64, u32),
    /// Turns of its session.
    pub turns: u32,
    /// The part of the dataset that it belongs to, where the data tells parts apart.
    pub group: Option<Arc<str>>,
    /// The model it named.
    pub model: Arc<str>,
    /// Whether it succeeded.
    pub ok: bool,
    /// Whether its user left, as the scenario says: neither a success nor an error.
    pub left: bool,
    /// Output tokens, where known.
    pub output_tokens: Option<f64>,
    /// Prompt tokens, where known.
    pub prompt_tokens: Option<f64>,
    /// Per-request metrics that exist for it.
    pub values: Values,
    /// Gaps between its token events, in milliseconds.
    pub gaps: Vec<f64>,
    /// Its scheduled send, in seconds after the start of its round's window; 0 outside a [`Sample`].
    pub scheduled_s: f64,
    /// How long it kept its user busy, whatever came of it: `end` − `sent` in milliseconds, 0 where it was never sent.
    pub busy_ms: f64,
}

/// What arrived in one part of a round's window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Requests that ended, whatever became of them.
    pub ended: f64,
    /// Those that succeeded.
    pub requests: f64,
    /// Their inputs.
    pub items: f64,
    /// Output tokens.
    pub output: f64,
    /// Prompt and output tokens.
    pub total: f64,
}

impl Amounts {
    /// Adds another one to it.
    pub fn add(&mut self, other: Amounts) {
        self.ended += other.ended;
        self.requests += other.requests;
        self.items += other.items;
        self.output += other.output;
        self.total += other.total;
    }

    /// What counts towards this throughput; 0 for every other metric.
    pub fn of(&self, throughput: Metric) -> f64 {
        match throughput {
            Metric::RequestThroughput => self.requests,
            Metric::ItemThroughput => self.items,
            Metric::OutputTps | Metric::OutputTpsPerGpu => self.output,
            Metric::TotalTps => self.total,
            _ => 0.0,
        }
    }
}

/// What arrived in the window of one round of the requests that share all of their tags, warm-up among them: it loads the
/// server like any other request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// A row with these tags, and nothing else.
    pub like: Row,
    /// By parts of the window, as many as a round is cut into; those in which nothing arrived are absent.
    pub bins: BTreeMap<u16, Amounts>,
}

/// All measured requests of one case, and the windows they ran in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The rows, dropped ones among them, in the order of (round, seq).
    pub rows: Vec<Row>,
    /// Length of the measured window of each round, in seconds.
    pub windows: Vec<f64>,
    /// Length of the window of each round that throughputs are over, in seconds; without the drain.
    pub sending: Vec<f64>,
    /// What arrived in them.
    pub flows: Vec<Flow>,
    /// Case-level metrics that exist, in their units.
    pub scalars: BTreeMap<Metric, f64>,
    /// Distributions of the per-request and per-gap metrics that exist, over ok rows.
    pub distributions: BTreeMap<Metric, Distribution>,
    /// The signals that exist.
    pub signals: BTreeMap<Signal, SignalStat>,
    /// Counts.
    pub counts: Counts,
    /// Requests that failed because this machine had no file or port to open a connection with.
    pub without_file: u64,
}

impl Row {
    /// Whether its value of this metric is one of a distribution's: it succeeded, or its user left having seen what the
    /// metric tells of.
    pub fn counts(&self, metric: Metric) -> bool {
        const SEEN: [Metric; 5] =
            [Metric::Ttft, Metric::TtftService, Metric::TtftFirstTurn, Metric::TtftLaterTurns, Metric::TtftPerPromptToken];
        self.ok || self.left && SEEN.contains(&metric)
    }

    /// What this request adds to a throughput: 1 to requests, its tokens to token rates, nothing where it failed. None where
    /// its tokens are unknown, and for every other metric.
    pub fn credit(&self, throughput: Metric) -> Option<f64> {
        let amount = match throughput {
            Metric::RequestThroughput => Some(1.0),
            Metric::OutputTps | Metric::OutputTpsPerGpu => self.output_tokens,
            Metric::ItemThroughput => self.values.get(&Metric::Items).copied(),
            Metric::TotalTps => self.prompt_tokens.zip(self.output_tokens).map(|(prompt, output)| prompt + output),
            _ => return None,
        };
        if self.ok { amount } else { Some(0.0) }
    }

    /// Output tokens per second of the user's wait, from `intended` to `end`. None where either is unknown.
    pub fn user_tps(&self) -> Option<f64> {
        let wait = self.values.get(&Metric::E2e).filter(|&&wait| wait > 0.0 && self.ok)?;
        self.output_tokens.map(|tokens| tokens * 1e3 / wait)
    }

    /// Whether the request is ok and meets every limit. A value that does not exist meets none; but an ok stream of one
    /// token has no pace that could break a limit on `itl`, `tpot` or `decode_tps`.
    pub fn meets(&self, limits: &[RequestLimit]) -> bool {
        self.ok && limits.iter().all(|limit| self.meets_one(limit))
    }

    fn meets_one(&self, limit: &RequestLimit) -> bool {
        let paceless = self.values.contains_key(&Metric::Ttft);
        match (limit.metric, self.values.get(&limit.metric)) {
            (Metric::Itl, _) if self.gaps.is_empty() => paceless,
            (Metric::Itl, _) => self.gaps.iter().all(|&gap| limit.op.holds(gap, limit.limit)),
            (Metric::Tpot | Metric::DecodeTps, None) => paceless,
            (_, value) => value.is_some_and(|&value| limit.op.holds(value, limit.limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Op;

    fn row(ok: bool, values: &[(Metric, f64)], gaps: &[f64]) -> Row {
        Row { ok, output_tokens: Some(50.0), values: values.iter().copied().collect(), gaps: gaps.to_vec(), ..Row::default() }
    }

    #[test]
    fn values_are_found_by_their_metric_whatever_order_they_came_in() {
        let all: Vec<(Metric, f64)> = Metric::ALL.iter().enumerate().map(|(place, metric)| (*metric, place as f64)).collect();
        let odd: Values = all.iter().rev().copied().filter(|(_, value)| value % 2.0 == 1.0).collect();
        let known = all.iter().map(|(metric, value)| (metric, Some(value).filter(|value| *value % 2.0 == 1.0)));
        assert!(known.into_iter().all(|(metric, value)| odd.get(metric) == value));
        assert_eq!((Values::default().get(&Metric::Ttft), odd == Values::default()), (None, false));
    }

    fn under(metric: Metric, limit: f64) -> [RequestLimit; 1] {
        [RequestLimit { metric, op: Op::Less, limit }]
    }

    #[test]
    fn a_request_meets_a_limit_only_with_a_value() {
        assert!(row(true, &[(Metric::E2e, 4.0)], &[]).meets(&under(Metric::E2e, 5.0)));
        assert!(!row(true, &[(Metric::E2e, 5.0)], &[]).meets(&under(Metric::E2e, 5.0)));
        assert!(!row(false, &[(Metric::E2e, 4.0)], &[]).meets(&under(Metric::E2e, 5.0)));
        assert!(!row(true, &[], &[]).meets(&under(Metric::E2e, 5.0)));
        assert!(row(true, &[], &[]).meets(&[]));
    }

    #[test]
    fn every_gap_counts_and_one_token_has_no_pace() {
        let one_token = row(true, &[(Metric::Ttft, 9.0)], &[]);
        assert!(one_token.meets(&under(Metric::Itl, 5.0)) && one_token.meets(&under(Metric::Tpot, 5.0)));
        assert!(!row(true, &[], &[]).meets(&under(Metric::Itl, 5.0)));
        assert!(row(true, &[], &[4.0, 4.9]).meets(&under(Metric::Itl, 5.0)));
        assert!(!row(true, &[], &[4.0, 5.1]).meets(&under(Metric::Itl, 5.0)));
    }

    #[test]
    fn a_failed_request_adds_nothing() {
        let (good, bad) = (row(true, &[(Metric::E2e, 2000.0)], &[]), row(false, &[], &[]));
        let credits = [&good, &bad].map(|row| (row.credit(Metric::RequestThroughput), row.credit(Metric::OutputTps)));
        assert_eq!(credits, [(Some(1.0), Some(50.0)), (Some(0.0), Some(0.0))]);
        assert_eq!((good.credit(Metric::TotalTps), good.credit(Metric::Window)), (None, None));
        assert_eq!((good.user_tps(), bad.user_tps()), (Some(25.0), None));
    }
}
