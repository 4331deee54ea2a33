//! The search for a capacity: what is looked for, and what was found.

use crate::check::Verdict;
use crate::plan::Labels;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// What makes a load the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The largest load at which every limit holds.
    #[default]
    Slo,
    /// The load at which most requests per second meet every limit.
    Goodput,
}

/// A search, as the scenario has it.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchSpec {
    /// Path of the field that is varied: `load.concurrency`.
    pub vary: String,
    /// Least value, > 0.
    pub low: f64,
    /// Greatest value.
    pub high: f64,
    /// The first value that is tried, within the range.
    pub start: f64,
    /// Only whole numbers will do.
    pub whole: bool,
    /// How near to the truth the answer shall be, as a share of it.
    pub precision: f64,
    /// Probes at the answer before it stands.
    pub confirm: u32,
    /// What is looked for.
    pub goal: Goal,
    /// Rest of the server between two probes.
    pub drain: Nanos,
}

/// Steps of the grid in one precision: the answer's own rounding takes a quarter of what is allowed.
const STEPS: f64 = 4.0;
/// Digits of a value that need not be whole, beyond those that distinguish two neighbours.
const SPARE_DIGITS: f64 = 2.0;

impl SearchSpec {
    /// The values that may be tried, ascending: even steps of the logarithm from the start to both ends, rounded so that they
    /// can be read.
    pub fn grid(&self) -> Vec<f64> {
        let step = self.precision.ln_1p() / STEPS;
        let walk = |end: f64| {
            let count = ((end / self.start).ln().abs() / step).ceil() as i64;
            let sign = if end < self.start { -1.0 } else { 1.0 };
            (1..count).map(move |index| self.start * (sign * index as f64 * step).exp())
        };
        let inner = walk(self.low).chain(walk(self.high)).map(|value| self.rounded(value, step));
        let inside = inner.filter(|value| self.low < *value && *value < self.high);
        let mut grid: Vec<f64> = inside.chain([self.low, self.start, self.high]).collect();
        grid.sort_by(f64::total_cmp);
        grid.dedup();
        grid
    }

    /// How many values [`SearchSpec::grid`] has at most.
    pub fn size(&self) -> f64 {
        (self.high / self.low).ln() * STEPS / self.precision.ln_1p()
    }

    fn rounded(&self, value: f64, step: f64) -> f64 {
        if self.whole {
            return value.round();
        }
        let digits = (SPARE_DIGITS - step.log10()).ceil();
        let scale = 10f64.powf(digits - 1.0 - value.log10().floor());
        (value * scale).round() / scale
    }
}

/// What a probe was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To find a load that holds and one that does not.
    Bracket,
    /// To come nearer.
    Narrow,
    /// To see the answer again.
    Confirm,
}

impl Purpose {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Bracket => "bracket",
            Purpose::Narrow => "narrow",
            Purpose::Confirm => "confirm",
        }
    }
}

/// How a round was a probe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Requests, or time, of the probe over those of the scenario; > 0.
    pub share: f64,
    /// It was stopped early, for nothing could save it.
    pub hopeless: bool,
}

/// What one probe showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// Probability that the goal holds at this load, 0..=1.
    pub holds: f64,
    /// Measured requests behind it.
    pub requests: u64,
    /// Requests per second that met every limit of a good one, and the standard error of that; NaN-free.
    pub goodput: (f64, f64),
}

/// One probe and what it showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probed {
    /// Its load.
    pub load: f64,
    /// Why there.
    pub purpose: Purpose,
    /// What it showed.
    pub evidence: Evidence,
}

/// Where the answer stands in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Within it.
    Within,
    /// The whole range holds: the answer is its end at least.
    AtLeast,
    /// Not even the least load holds.
    Nothing,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The largest load that holds as far as is known; None where none does.
    pub answer: Option<f64>,
    /// The interval that holds the true answer with probability `mass`; its lower end is None where nothing may hold.
    pub interval: (Option<f64>, f64),
    /// Probability of the interval; None where it is what the last comparisons left, as of a goodput's peak.
    pub mass: Option<f64>,
    /// Where the answer stands in the range.
    pub extent: Extent,
    /// Whether the interval is within the precision, and was confirmed.
    pub settled: bool,
    /// Probes at the answer that did not refute it.
    pub confirmed: u32,
    /// A load that fails and a larger one that holds, both beyond doubt: the server is not monotone, and more than one load is
    /// an edge.
    pub contrary: Option<(f64, f64)>,
}

impl Finding {
    /// Whether no probe contradicts the goal holding below the answer and failing above it.
    pub fn monotone(&self) -> bool {
        self.contrary.is_none()
    }
}

/// A search's place in a plan: its probes are cases of the plan, one for each value of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacitySearch {
    /// What is looked for.
    pub spec: SearchSpec,
    /// The matrix values that its cases share; the varied one is not among them.
    pub labels: Labels,
    /// Index in the plan of the case with the least load; the others follow.
    pub first: usize,
    /// The values of its cases, ascending.
    pub grid: Vec<f64>,
}

/// One probe of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeReport {
    /// Its case, and the round of it.
    pub case: String,
    /// Round of the case, from 0.
    pub round: u32,
    /// The value of the varied field.
    pub load: f64,
    /// Why there.
    pub purpose: Purpose,
    /// Probability that the goal holds there by this probe alone, 0..=1; None where its self-audit failed.
    pub holds: Option<f64>,
    /// Requests measured.
    pub requests: u64,
    /// It was stopped early, for nothing could save it.
    pub hopeless: bool,
    /// Rulings by its rows alone.
    pub verdicts: Vec<Verdict>,
    /// Mean decode tokens per second of one user; None where no reply had several tokens.
    pub per_user_tps: Option<f64>,
    /// Output tokens per second over all users.
    pub total_tps: Option<f64>,
    /// Requests per second that meet the limits of `goodput(…)`.
    pub goodput: Option<f64>,
    /// Another probe is as good in both speeds, and better in one.
    pub dominated: bool,
}

/// What one search found, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchReport {
    /// What was looked for.
    pub spec: SearchSpec,
    /// The matrix values that its cases share.
    pub labels: Labels,
    /// What was found.
    pub finding: Finding,
    /// Every probe, in order.
    pub probes: Vec<ProbeReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(low: f64, high: f64, start: f64, whole: bool) -> SearchSpec {
        let vary = "load.rate".to_owned();
        let (goal, drain) = (Goal::Slo, Nanos::ZERO);
        SearchSpec { vary, low, high, start, whole, precision: 0.05, confirm: 2, goal, drain }
    }

    #[test]
    fn small_whole_numbers_are_all_there_and_large_ones_within_the_precision() {
        let grid = spec(1.0, 1024.0, 16.0, true).grid();
        assert_eq!(&grid[..40], (1..=40).map(f64::from).collect::<Vec<_>>());
        assert_eq!(grid.last(), Some(&1024.0));
        assert!(grid.iter().all(|value| value.fract() == 0.0));
        let steps = grid.windows(2).map(|pair| pair[1] / pair[0]);
        assert!(steps.skip(90).all(|step| step < 1.05f64.powf(0.5)));
    }

    #[test]
    fn other_numbers_step_evenly_from_the_start_and_can_be_read() {
        let grid = spec(0.5, 2.0, 1.0, false).grid();
        let middle = grid.iter().position(|value| *value == 1.0).unwrap();
        assert_eq!(&grid[middle - 2..middle + 3], [0.9759, 0.9879, 1.0, 1.012, 1.025]);
        assert_eq!((grid[0], grid[grid.len() - 1]), (0.5, 2.0));
        assert!(grid.len() as f64 <= spec(0.5, 2.0, 1.0, false).size() + 3.0);
        assert_eq!(spec(3.0, 3.0, 3.0, false).grid(), [3.0]);
    }
}
