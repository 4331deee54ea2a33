//! Numbers taken from the rows of one case: what judges and charts see.

use crate::model::metric::Metric;
use crate::model::outcome::FailureKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Requests that were never sent.
    pub dropped: u64,
    /// Failures by kind, dropped among them; kinds that did not occur are absent.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Warm-up requests, ok or not.
    pub warmup: u64,
    /// Requests sent once more on a new connection.
    pub reconnects: u64,
}

/// One measured request, reduced to what statistics need. NaN never stands in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Round of the case, from 0.
    pub round: u32,
    /// The model it named.
    pub model: String,
    /// Whether it succeeded.
    pub ok: bool,
    /// Output tokens, where known.
    pub output_tokens: Option<f64>,
    /// Prompt tokens, where known.
    pub prompt_tokens: Option<f64>,
    /// Per-request metrics that exist for it.
    pub values: BTreeMap<Metric, f64>,
    /// Gaps between its token events, in milliseconds.
    pub gaps: Vec<f64>,
}

/// All measured requests of one case, and the windows they ran in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The rows, dropped ones among them, in the order of (round, seq).
    pub rows: Vec<Row>,
    /// Length of the measured window of each round, in seconds.
    pub windows: Vec<f64>,
    /// Case-level metrics that exist, in their units.
    pub scalars: BTreeMap<Metric, f64>,
    /// Distributions of the per-request and per-gap metrics that exist, over ok rows.
    pub distributions: BTreeMap<Metric, Distribution>,
    /// Counts.
    pub counts: Counts,
}
