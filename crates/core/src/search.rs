//! Capacity search: specification, probes and results.

use crate::check::Verdict;
use crate::label::Labels;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a search maximizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The largest load at which every objective passes.
    #[default]
    Slo,
    /// The load with the highest goodput.
    Goodput,
}

/// A search as the scenario describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchSpec {
    /// Path of the field that is varied: `load.concurrency`.
    pub vary: String,
    /// Minimum value, > 0.
    pub low: f64,
    /// Maximum value.
    pub high: f64,
    /// The first value to probe, within the range.
    pub start: f64,
    /// Probe integers only.
    pub integer: bool,
    /// Required relative precision of the result.
    pub precision: f64,
    /// Number of confirming probes at the result.
    pub confirm: u32,
    /// The goal.
    pub goal: Goal,
    /// Pause between two probes.
    pub drain: Nanos,
}

/// Grid steps per precision, so that rounding to the grid uses a quarter of the tolerance.
const STEPS: f64 = 4.0;
/// Digits of a non-integer value beyond those that distinguish two neighbours.
const SPARE_DIGITS: f64 = 2.0;

impl SearchSpec {
    /// The values that may be probed, ascending: logarithmic steps from the start to both ends, rounded for
    /// readability.
    pub fn grid(&self) -> Vec<f64> {
        let step = self.precision.ln_1p() / STEPS;
        let walk = |end: f64| {
            let count = ((end / self.start).ln().abs() / step).ceil() as i64;
            let sign = if end < self.start { -1.0 } else { 1.0 };
            (1..count).map(move |index| self.start * (sign * index as f64 * step).exp())
        };
        let inner = walk(self.low)
            .chain(walk(self.high))
            .map(|value| self.rounded(value, step));
        let inside = inner.filter(|value| self.low < *value && *value < self.high);
        let mut grid: Vec<f64> = inside.chain([self.low, self.start, self.high]).collect();
        grid.sort_by(f64::total_cmp);
        grid.dedup();
        grid
    }

    /// Upper bound of the number of values in [`SearchSpec::grid`].
    pub fn size(&self) -> f64 {
        (self.high / self.low).ln() * STEPS / self.precision.ln_1p()
    }

    fn rounded(&self, value: f64, step: f64) -> f64 {
        if self.integer {
            return value.round();
        }
        let digits = (SPARE_DIGITS - step.log10()).ceil();
        let scale = 10f64.powf(digits - 1.0 - value.log10().floor());
        (value * scale).round() / scale
    }
}

/// The phase of the search that a probe belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Find one load that passes and one that fails.
    Bracket,
    /// Refine the interval.
    Narrow,
    /// Confirm the result.
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

/// The record of a round that was a probe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Requests or time of the probe ÷ those of the scenario; > 0.
    pub share: f64,
    /// Stopped early for futility.
    pub hopeless: bool,
}

/// The result of one probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// Probability that the load passes, 0..=1.
    pub pass_probability: f64,
    /// Number of measured requests.
    pub requests: u64,
    /// Goodput in requests per second, and its standard error; never NaN.
    pub goodput: (f64, f64),
}

/// One probe and its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probed {
    /// The load.
    pub load: f64,
    /// The phase of the search.
    pub purpose: Purpose,
    /// The result.
    pub evidence: Evidence,
}

/// Where the result lies in the search range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Within the range.
    Within,
    /// The maximum of the range passes: the result is a lower bound.
    AtLeast,
    /// The minimum of the range fails.
    Nothing,
}

/// What the probes of a load show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadVerdict {
    /// The objectives are not met.
    Failed,
    /// Neither.
    Inconclusive,
    /// There was no probe.
    NotMeasured,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A load whose own probes passed: the confirmed one, without convergence the greatest; None if there is none.
    pub answer: Option<f64>,
    /// The next load above it that was probed and does not pass, else the upper end of the interval; without an
    /// answer, the least load that was probed. None if the answer is the end of the range, and for a goodput search.
    pub above: Option<(f64, LoadVerdict)>,
    /// The interval that contains the true maximum with probability `mass`; the lower end is None if possibly no load
    /// passes.
    pub interval: (Option<f64>, f64),
    /// Probability of the interval; None for a goodput search, whose interval is the remaining bracket.
    pub mass: Option<f64>,
    /// Where the result lies in the search range.
    pub extent: Extent,
    /// Whether the search converged: the interval is within the precision and the result was confirmed.
    pub converged: bool,
    /// Number of probes that confirmed the result.
    pub confirmed: u32,
    /// A load that fails and a larger one that passes, both significantly: the server is not monotone, and there are
    /// several pass/fail boundaries.
    pub non_monotone: Option<(f64, f64)>,
}

impl Finding {
    /// Whether the probes are consistent with a single pass/fail boundary.
    pub fn monotone(&self) -> bool {
        self.non_monotone.is_none()
    }
}

/// What the probes of a successive halving may cost in all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// A number of probes.
    Probes(u32),
    /// Their time, without starts of servers and pauses.
    Time(Nanos),
}

impl Budget {
    /// Probes, or seconds.
    pub fn amount(self) -> f64 {
        match self {
            Budget::Probes(count) => f64::from(count),
            Budget::Time(time) => time.secs(),
        }
    }
}

/// Successive halving over the candidates of `search.over`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HalvingSpec {
    /// The budget of one group of candidates.
    pub budget: Budget,
    /// One of so many candidates goes on to the next rung; at least 2.
    pub factor: usize,
}

/// A rung as it is planned: ties may add candidates to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedRung {
    /// Number of candidates.
    pub candidates: usize,
    /// Probes, or seconds, of each candidate.
    pub each: f64,
}

impl HalvingSpec {
    /// The rungs for a number of candidates, each with the same part of the budget. The last has at most `factor`
    /// candidates.
    pub fn rungs(&self, candidates: usize) -> Vec<PlannedRung> {
        let mut counts = vec![candidates];
        while let Some(count) = counts.last().filter(|count| **count > self.factor) {
            counts.push(count.div_ceil(self.factor));
        }
        let part = self.budget.amount() / counts.len() as f64;
        let each = |count: usize| match self.budget {
            Budget::Probes(_) => (part / count as f64).floor(),
            Budget::Time(_) => part / count as f64,
        };
        let rung = |candidates: usize| PlannedRung {
            candidates,
            each: each(candidates.max(1)),
        };
        counts.into_iter().map(rung).collect()
    }
}

/// What is known of a candidate after a rung.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The rung, from 1.
    pub rung: usize,
    /// Its probes in this rung.
    pub probes: usize,
    /// The load that the search has found so far; None if no load passes.
    pub answer: Option<f64>,
    /// The interval of that load.
    pub interval: (Option<f64>, f64),
    /// By what candidates are ranked.
    pub score: Score,
}

/// By what candidates are ranked: the capacity, or the highest goodput; per GPU where that is known of all candidates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Lower end of the interval.
    pub low: f64,
    /// Estimate.
    pub value: f64,
    /// Upper end.
    pub high: f64,
}

/// How a candidate left a successive halving.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// The best of the last rung.
    Best,
    /// In the last rung, and not the best.
    NotBest {
        /// Its interval overlaps that of the best one.
        tied: bool,
    },
    /// Dropped after a rung.
    Dropped {
        /// Its interval overlaps that of the last candidate kept by its rank: the budget forced the decision.
        tied: bool,
        /// The score of the last candidate that was kept by its rank.
        kept: Score,
    },
    /// It could not be measured: its server did not start, or was lost.
    Failed(String),
}

/// The part of one candidate in a successive halving.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidacy {
    /// The group of candidates that it competes in: the matrix values besides `over`.
    pub group: usize,
    /// What was known after each rung that it took part in.
    pub standings: Vec<Standing>,
    /// How it left; None if the run ended before.
    pub fate: Option<Fate>,
    /// The number of GPUs by which its score is divided; None if scores are not per GPU.
    pub gpus: Option<f64>,
}

/// A search within a plan: its possible probes are cases of the plan, one per grid value.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacitySearch {
    /// Searches of one group are candidates of one successive halving. Without `over`, each has its own.
    pub group: usize,
    /// The goal.
    pub spec: SearchSpec,
    /// The labels that its cases share, without the varied field.
    pub labels: Labels,
    /// Index in the plan of the case with the smallest load; the others follow.
    pub first: usize,
    /// The grid values, ascending.
    pub grid: Vec<f64>,
}

/// One probe of a search, for the report.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeReport {
    /// Case id.
    pub case: String,
    /// Round of the case, from 0.
    pub round: u32,
    /// The value of the varied field.
    pub load: f64,
    /// The phase of the search.
    pub purpose: Purpose,
    /// Probability that the load passes, by this probe alone, 0..=1; None if its self-audit failed.
    pub pass_probability: Option<f64>,
    /// Number of measured requests.
    pub requests: u64,
    /// Stopped early for futility.
    pub futile: bool,
    /// Verdicts on its requests alone.
    pub verdicts: Vec<Verdict>,
    /// Mean decode tokens per second of one user; None if no reply had several tokens.
    pub per_user_tps: Option<f64>,
    /// Total output tokens per second.
    pub total_tps: Option<f64>,
    /// Requests per second that meet the limits of `goodput(…)`.
    pub goodput: Option<f64>,
    /// Not on the Pareto front: another probe is at least as good in both throughputs, and better in one.
    pub dominated: bool,
}

/// One search with its result and probes.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchReport {
    /// The search.
    pub spec: SearchSpec,
    /// The matrix values that its cases share.
    pub labels: Labels,
    /// The result.
    pub finding: Finding,
    /// Every probe, in order.
    pub probes: Vec<ProbeReport>,
    /// Its part in a successive halving; None without `over`.
    pub candidacy: Option<Candidacy>,
}

impl SearchReport {
    /// The verdicts on the objectives that more load makes easier to meet, by the longest probe of the result. At any
    /// smaller load they are worse. Empty without a result.
    pub fn easier_objectives(&self) -> Vec<&Verdict> {
        // The throughput of a probe that stopped early is not that of its load.
        let of_result = self.probes.iter().filter(|probe| {
            Some(probe.load) == self.finding.answer
                && probe.pass_probability.is_some()
                && !probe.futile
        });
        let longest = of_result.max_by_key(|probe| probe.requests);
        let verdicts = longest.into_iter().flat_map(|probe| &probe.verdicts);
        verdicts
            .filter(|verdict| verdict.check.is_easier_with_load())
            .collect()
    }

    /// What it is ranked by among candidates, of all of its GPUs together; None without a rung.
    pub fn total_score(&self) -> Option<Score> {
        let candidacy = self.candidacy.as_ref()?;
        let score = candidacy.standings.last()?.score;
        let gpus = candidacy.gpus.unwrap_or(1.0);
        Some(Score {
            low: score.low * gpus,
            value: score.value * gpus,
            high: score.high * gpus,
        })
    }

    /// Whether it is a result of the run: a search without `over`, or the best candidate.
    pub fn is_result(&self) -> bool {
        self.candidacy
            .as_ref()
            .is_none_or(|candidacy| candidacy.fate == Some(Fate::Best))
    }
}

/// The groups of a plan's searches: indexes of the searches of each.
pub fn groups(searches: &[CapacitySearch]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (index, search) in searches.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if searches[group.start].group == search.group => group.end = index + 1,
            _ => groups.push(index..index + 1),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(low: f64, high: f64, start: f64, whole: bool) -> SearchSpec {
        let vary = "load.rate".to_owned();
        let (goal, drain) = (Goal::Slo, Nanos::ZERO);
        SearchSpec {
            vary,
            low,
            high,
            start,
            integer: whole,
            precision: 0.05,
            confirm: 2,
            goal,
            drain,
        }
    }

    #[test]
    fn all_small_integers_and_large_ones_within_the_precision() {
        let grid = spec(1.0, 1024.0, 16.0, true).grid();
        assert_eq!(&grid[..40], (1..=40).map(f64::from).collect::<Vec<_>>());
        assert_eq!(grid.last(), Some(&1024.0));
        assert!(grid.iter().all(|value| value.fract() == 0.0));
        let steps = grid.windows(2).map(|pair| pair[1] / pair[0]);
        assert!(steps.skip(90).all(|step| step < 1.05f64.powf(0.5)));
    }

    #[test]
    fn other_values_have_even_steps_and_few_digits() {
        let grid = spec(0.5, 2.0, 1.0, false).grid();
        let middle = grid.iter().position(|value| *value == 1.0).unwrap();
        assert_eq!(
            &grid[middle - 2..middle + 3],
            [0.9759, 0.9879, 1.0, 1.012, 1.025]
        );
        assert_eq!((grid[0], grid[grid.len() - 1]), (0.5, 2.0));
        assert!(grid.len() as f64 <= spec(0.5, 2.0, 1.0, false).size() + 3.0);
        assert_eq!(spec(3.0, 3.0, 3.0, false).grid(), [3.0]);
    }
}
