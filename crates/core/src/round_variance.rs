//! What the rounds of a case say about each other, and neighbouring requests about theirs.

use crate::metric::Metric;

/// A change with time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// From the first to the last of what was compared, as a share of the mean: 0.1 grew by a tenth.
    pub share: f64,
    /// Two-sided probability of an order at least so clear by chance (Mann and Kendall).
    pub p_value: f64,
    /// Rounds, or stretches of all rounds together, that were compared.
    pub n: u64,
}

/// One figure over the rounds of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    /// The figure: the mean of a per-request metric, or a figure that a case has one of.
    pub metric: Metric,
    /// The figure of each round, in their order and the metric's unit; None for a round without it.
    pub rounds: Vec<Option<f64>>,
    /// Standard deviation between the rounds. Of a per-request metric what their own spread does not explain; else of `rounds`
    /// themselves. None for fewer than two rounds.
    pub between_sd: Option<f64>,
    /// Standard deviation within the rounds; None where the figure is not one of requests.
    pub within_sd: Option<f64>,
    /// From round to round; None for fewer than three.
    pub over_rounds: Option<Change>,
    /// From the beginning to the end of a round, over all rounds; None where the requests are too few, where the figure is not one
    /// of requests, or where the load itself changes.
    pub over_time: Option<Change>,
    /// Requests behind it.
    pub n: u64,
    /// Independent requests that these are worth, since neighbours are alike; None where the figure is not one of requests.
    pub effective_n: Option<f64>,
}

impl Repeat {
    /// A change between rounds is reported from this probability on, and one within rounds from half of it on: five rounds in order
    /// have 1/60, and four can never be distinguished from chance.
    pub const SURE: (f64, f64) = (0.02, 0.01);
    /// A change of less than this share is not reported, however sure it is.
    pub const LEAST: f64 = 0.02;
    /// Effective samples under this share of n are reported, from so many requests on: of fewer, chance would too often look so.
    pub const FEW: (f64, u64) = (0.5, 200);

    /// The change from round to round, where it is to be reported.
    pub fn drifts(&self) -> Option<Change> {
        self.over_rounds.filter(|change| change.told(Repeat::SURE.0))
    }

    /// The change within the rounds, where it is to be reported.
    pub fn creeps(&self) -> Option<Change> {
        self.over_time.filter(|change| change.told(Repeat::SURE.1))
    }

    /// What the requests are worth, where that is to be reported.
    pub fn few(&self) -> Option<f64> {
        self.effective_n.filter(|worth| self.n >= Repeat::FEW.1 && *worth < Repeat::FEW.0 * self.n as f64)
    }
}

impl Change {
    fn told(&self, sure: f64) -> bool {
        self.p_value <= sure && self.share.abs() >= Repeat::LEAST
    }
}
