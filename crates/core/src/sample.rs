//! Summary statistics of a metric over the requests of a case, and their counts.

use crate::outcome::FailureKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Summary statistics of a distribution, in the metric's unit. Quantiles are by nearest rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SummaryStatistics {
    /// Number of values.
    pub n: u64,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation; None for n < 2.
    pub sd: Option<f64>,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Quantiles at [`SummaryStatistics::SHARES`], in that order.
    pub quantiles: Vec<f64>,
}

impl SummaryStatistics {
    /// The shares of [`SummaryStatistics::quantiles`].
    pub const SHARES: [f64; 13] = [
        0.01, 0.05, 0.10, 0.25, 0.50, 0.66, 0.75, 0.80, 0.90, 0.95, 0.98, 0.99, 0.999,
    ];

    /// The quantile of one of [`SummaryStatistics::SHARES`].
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let index = SummaryStatistics::SHARES
            .iter()
            .position(|known| (known - share).abs() < 1e-9)?;
        self.quantiles.get(index).copied()
    }
}

/// Requests by result, without warm-up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Scheduled requests.
    pub scheduled: u64,
    /// Requests that succeeded.
    pub ok: u64,
    /// Requests that were sent and failed, cancelled ones included.
    pub failed: u64,
    /// Requests that the client cancelled because the scenario asked for it; neither ok nor failed.
    pub abandoned: u64,
    /// Requests that were never sent.
    pub dropped: u64,
    /// Requests that waited at `max_in_flight`, sent or not.
    #[serde(default)]
    pub held: u64,
    /// Those that waited until sending ended, and were never sent.
    #[serde(default)]
    pub held_unsent: u64,
    /// Requests that arrive by themselves: those that begin a session.
    #[serde(default)]
    pub arrivals: u64,
    /// Failures by kind, dropped ones included; kinds that did not occur are absent.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Warm-up requests, ok or not.
    pub warmup: u64,
    /// Unmeasured requests that followed the measured ones until the last of these had ended, ok or not.
    #[serde(default)]
    pub cooldown: u64,
    /// Requests sent again on a new connection.
    pub reconnects: u64,
    /// Attempts after the first, over all requests.
    pub retries: u64,
    /// Requests that were tried more than once.
    pub retried: u64,
}
