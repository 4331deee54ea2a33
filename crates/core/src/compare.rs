//! Comparison of runs: what is compared, and the results.

use crate::metric::{Metric, Stat};
use crate::report::{Report, RunVerdict};
use serde::Serialize;
use std::fmt;

/// What is compared: a statistic of a distribution, or a case-level metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// The metric.
    pub metric: Metric,
    /// The statistic; None exactly if the metric has one value per case.
    pub stat: Option<Stat>,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stat {
            Some(stat) => write!(f, "{}.{stat}", self.metric),
            None => write!(f, "{}", self.metric),
        }
    }
}

/// A value with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Span {
    /// The estimate.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// How p-values are adjusted for multiple tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Correction {
    /// Holm: bounds the probability of at least one false alarm.
    Holm,
    /// Benjamini and Hochberg: bounds the expected share of false alarms among the alarms.
    Bh,
    /// No adjustment.
    None,
}

impl Correction {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Correction::Holm => "Holm",
            Correction::Bh => "Benjamini-Hochberg",
            Correction::None => "no correction",
        }
    }
}

/// The result of one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// Statistically significant, and worse by more than the tolerance.
    Regression,
    /// Statistically significant, and within the tolerance, better or worse.
    #[serde(rename = "within_tolerance")]
    Within,
    /// Statistically significant, and better by more than the tolerance.
    Better,
    /// Not statistically significant.
    Noise,
    /// Not tested: too little data.
    Unknown,
}

impl Finding {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Finding::Regression => "REGRESSION",
            Finding::Within => "within tolerance",
            Finding::Better => "better",
            Finding::Noise => "noise",
            Finding::Unknown => "unknown",
        }
    }
}

/// The value of one measure for one side of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The value in the metric's unit; None if it does not exist.
    pub value: Option<f64>,
    /// The bounds, each at the one-sided confidence of the comparison; None: too few samples.
    pub bounds: Option<(f64, f64)>,
    /// A throughput over the whole run, start and drain included, which is no long-run value.
    pub is_of_whole_run: bool,
    /// Sample count.
    pub n: u64,
    /// Design effect: how many correlated values carry the information of one independent value, at least 1.
    pub design: f64,
    /// Number of replicates (runs, or rounds on restarted servers), each of which is one value; 0: the requests of
    /// one run are the samples.
    pub replicates: u32,
}

/// One measure of one case: a candidate compared with the base.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    /// Case id.
    pub case: String,
    /// What is compared.
    pub measure: Measure,
    /// Index of the side in [`Comparison::sides`]; the base is 0.
    pub run: usize,
    /// The base's value.
    pub base: Reading,
    /// The candidate's value.
    pub other: Reading,
    /// other ÷ base; None if a value or a bound is missing or 0.
    pub ratio: Option<Span>,
    /// other − base; for shares only.
    pub difference: Option<Span>,
    /// Two-sided p-value of the difference; None if it was not tested.
    pub p: Option<f64>,
    /// The adjusted p-value.
    pub p_adjusted: Option<f64>,
    /// Effect size, for distributions and shares.
    pub effect: Option<Effect>,
    /// The result.
    pub finding: Finding,
    /// Why it was not tested, or why a difference is not a change of the server.
    pub note: Option<String>,
}

impl Contrast {
    /// By how much the candidate is worse, as a share of the base; negative: better. Infinite if only the base is 0;
    /// None if a value is missing.
    pub fn worsening(&self) -> Option<f64> {
        let (base, other) = self.base.value.zip(self.other.value)?;
        let change = match () {
            () if base == other => 0.0,
            () if base == 0.0 => f64::INFINITY,
            () => other / base - 1.0,
        };
        Some(if self.measure.metric.higher_is_better() {
            -change
        } else {
            change
        })
    }
}

/// A difference between two plans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where: `load.concurrency`, `slo[0].expr`.
    pub path: String,
    /// Value in the base; None: not set.
    pub base: Option<String>,
    /// Value in the candidate; None: not set.
    pub other: Option<String>,
    /// Whether the runs remain comparable.
    pub harmless: bool,
}

impl Difference {
    /// Whether it is in this field, or in a field within it.
    pub fn is_within(&self, field: &str) -> bool {
        let rest = self.path.strip_prefix(field);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// One of the runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// `A` is the base, then `B`, `C`, …; `A1`, `A2` if a side has several runs.
    pub label: String,
    /// Index of the run's side in [`Comparison::sides`].
    pub side: usize,
    /// The run folder, as given by the user.
    pub folder: String,
    /// The report of the run.
    pub report: Report,
}

/// A comparison of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The runs, the base's first.
    pub runs: Vec<Run>,
    /// The labels of the sides, the base first. A side is one run or several replicates.
    pub sides: Vec<String>,
    /// All comparisons, by case, measure and side.
    pub contrasts: Vec<Contrast>,
    /// Differences of the plan from the base's, for each run after the first.
    pub differences: Vec<Vec<Difference>>,
    /// Cases that only one side has, as (label of that side, case id).
    pub unmatched_cases: Vec<(String, String)>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Adjustment of the p-values.
    pub correction: Correction,
    /// Number of tests that were adjusted for.
    pub tests: usize,
    /// Confidence of the intervals, two-sided.
    pub confidence: f64,
    /// Tolerated worsening, as a share.
    pub max_regression: f64,
}

impl Comparison {
    /// The number of comparisons with this result.
    pub fn count(&self, finding: Finding) -> usize {
        self.contrasts
            .iter()
            .filter(|contrast| contrast.finding == finding)
            .count()
    }

    /// Whether too little was tested to conclude that nothing got worse: no test at all, a case of the base that some
    /// run lacks, or a case for which only shares of requests were tested.
    pub fn is_incomplete(&self) -> bool {
        let base = self.sides.first().map_or("", String::as_str);
        let tested = |contrast: &&Contrast| contrast.finding != Finding::Unknown;
        let same = |a: &&Contrast, b: &&Contrast| (&a.case, a.run) == (&b.case, b.run);
        let mut figures: Vec<&Contrast> = self
            .contrasts
            .iter()
            .filter(|contrast| !contrast.measure.metric.is_request_share())
            .collect();
        figures.sort_by(|a, b| (&a.case, a.run).cmp(&(&b.case, b.run)));
        let untested_case = figures
            .chunk_by(|a, b| same(a, b))
            .any(|contrasts| !contrasts.iter().any(tested));
        self.tests == 0 || self.unmatched_cases.iter().any(|(run, _)| run == base) || untested_case
    }

    /// The largest number of replicates on a side: runs, or rounds on restarted servers; 0 if the requests of one run
    /// are the samples.
    pub fn replicates(&self, side: usize) -> u32 {
        let replicates = |contrast: &Contrast| match side {
            0 => contrast.base.replicates,
            side if contrast.run == side => contrast.other.replicates,
            _ => 0,
        };
        self.contrasts.iter().map(replicates).max().unwrap_or(0)
    }

    /// Whether a run is invalid or incomplete.
    pub fn has_invalid_run(&self) -> bool {
        self.runs.iter().any(|run| run.is_invalid())
    }
}

impl Run {
    /// Whether the run was interrupted or failed, or a case of it is invalid.
    pub fn is_invalid(&self) -> bool {
        self.report.manifest.interrupted
            || matches!(self.report.verdict, RunVerdict::Invalid | RunVerdict::Error)
    }
}

/// The magnitude of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Magnitude {
    /// Negligible.
    Negligible,
    /// Small.
    Small,
    /// Medium.
    Medium,
    /// Large.
    Large,
}

impl Magnitude {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Magnitude::Negligible => "negligible",
            Magnitude::Small => "small",
            Magnitude::Medium => "medium",
            Magnitude::Large => "large",
        }
    }
}

/// An effect size; positive where the other run's values are the greater ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Of two distributions: P(other > base) − P(other < base) of a random pair of requests.
    CliffsDelta(f64),
    /// Of two shares.
    CohensH(f64),
}

impl Effect {
    /// The number.
    pub fn value(self) -> f64 {
        match self {
            Effect::CliffsDelta(value) | Effect::CohensH(value) => value,
        }
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Effect::CliffsDelta(_) => "cliffs_delta",
            Effect::CohensH(_) => "cohens_h",
        }
    }

    /// The magnitude, by published thresholds. Delta: Romano, Kromrey, Coraggio and Skowronek, "Appropriate
    /// statistics for ordinal level data" (2006): 0.147, 0.33, 0.474. h: Cohen (1988): 0.2, 0.5, 0.8.
    pub fn magnitude(self) -> Magnitude {
        let [small, medium, large] = match self {
            Effect::CliffsDelta(_) => [0.147, 0.33, 0.474],
            Effect::CohensH(_) => [0.2, 0.5, 0.8],
        };
        match self.value().abs() {
            size if size >= large => Magnitude::Large,
            size if size >= medium => Magnitude::Medium,
            size if size >= small => Magnitude::Small,
            _ => Magnitude::Negligible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_throughput_is_worse() {
        let contrast = |metric, base, other| {
            let reading = |value| Reading {
                value: Some(value),
                bounds: None,
                n: 1,
                design: 1.0,
                ..Reading::default()
            };
            let (base, other) = (reading(base), reading(other));
            let measure = Measure { metric, stat: None };
            let (ratio, difference, p, p_adjusted) = (None, None, None, None);
            Contrast {
                case: String::new(),
                measure,
                run: 1,
                base,
                other,
                ratio,
                difference,
                p,
                p_adjusted,
                effect: None,
                finding: Finding::Noise,
                note: None,
            }
        };
        assert_eq!(
            contrast(Metric::OutputTps, 100.0, 75.0).worsening(),
            Some(0.25)
        );
        assert_eq!(contrast(Metric::E2e, 100.0, 75.0).worsening(), Some(-0.25));
        assert_eq!(
            contrast(Metric::ErrorRate, 0.0, 0.5).worsening(),
            Some(f64::INFINITY)
        );
        assert_eq!(contrast(Metric::ErrorRate, 0.0, 0.0).worsening(), Some(0.0));
    }

    #[test]
    fn magnitudes_begin_at_the_published_sizes() {
        use Magnitude::{Large, Medium, Negligible, Small};
        let delta = [0.146, -0.147, 0.33, -0.474].map(|size| Effect::CliffsDelta(size).magnitude());
        let h = [0.19, -0.2, 0.5, -0.8].map(|size| Effect::CohensH(size).magnitude());
        assert_eq!(
            (delta, h),
            (
                [Negligible, Small, Medium, Large],
                [Negligible, Small, Medium, Large]
            )
        );
    }
}
