//! Runs side by side: what is compared, and what was found.

use crate::metric::{Metric, Stat};
use crate::report::{Report, RunVerdict};
use serde::Serialize;
use std::fmt;

/// What is compared: a statistic of a distribution, or a figure of the case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// The metric.
    pub metric: Metric,
    /// The statistic; None exactly where the metric has one value per case.
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

/// A value between the bounds of its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Span {
    /// The estimate.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// How probabilities are adjusted for many tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Correction {
    /// Holm's: the chance of even one false alarm.
    Holm,
    /// Benjamini and Hochberg's: the share of false alarms among the alarms.
    Bh,
    /// None.
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

/// What one comparison comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// More than noise, worse, and past what is allowed.
    Regression,
    /// More than noise, and no more than what is allowed, whether better or worse.
    #[serde(rename = "within_tolerance")]
    Within,
    /// More than noise, and better by more than what is allowed.
    Better,
    /// No more than noise.
    Noise,
    /// There is too little to say.
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

/// One figure of one case of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// In the metric's unit; None: it does not exist.
    pub value: Option<f64>,
    /// Its bounds, each at the confidence that the comparison says; None: too few samples.
    pub bounds: Option<(f64, f64)>,
    /// Values behind it.
    pub n: u64,
    /// How many values say as much as one that is independent of all others, at least 1.
    pub design: f64,
    /// Runs, or rounds on restarted servers, behind it, each of which is one value; 0: it is of one run by its requests.
    pub replicates: u32,
}

/// One measure of one case, of one run against the base.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    /// Case id.
    pub case: String,
    /// What is compared.
    pub measure: Measure,
    /// Index of the side in [`Comparison::sides`]; the base is 0.
    pub run: usize,
    /// Of the base.
    pub base: Reading,
    /// Of the run.
    pub other: Reading,
    /// other ÷ base; None where a value or a bound is missing or 0.
    pub ratio: Option<Span>,
    /// other − base, of shares alone.
    pub difference: Option<Span>,
    /// Probability of so great a difference without a cause; None where it cannot be said.
    pub p: Option<f64>,
    /// The same, adjusted.
    pub p_adjusted: Option<f64>,
    /// Effect size, of distributions and shares.
    pub effect: Option<Effect>,
    /// What it comes to.
    pub finding: Finding,
    /// Why it is unknown, or must not be called a change.
    pub note: Option<String>,
}

impl Contrast {
    /// By how much the other run is worse, as a share of the base; negative: better. Infinite where the base is 0 and the
    /// other is not; None where a value is missing.
    pub fn worsening(&self) -> Option<f64> {
        let (base, other) = self.base.value.zip(self.other.value)?;
        let change = match () {
            () if base == other => 0.0,
            () if base == 0.0 => f64::INFINITY,
            () => other / base - 1.0,
        };
        Some(if self.measure.metric.higher_is_better() { -change } else { change })
    }
}

/// A difference between two plans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where: `load.concurrency`, `slo[0].expr`.
    pub path: String,
    /// In the base; None: not there.
    pub base: Option<String>,
    /// In the other run.
    pub other: Option<String>,
    /// Whether the runs can be compared all the same.
    pub harmless: bool,
}

/// One of the runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// `A` is the base, then `B`, `C`, …; `A1`, `A2` where a side has several.
    pub label: String,
    /// Index of its side in [`Comparison::sides`].
    pub side: usize,
    /// Its folder, as it was named.
    pub folder: String,
    /// What it measured: manifest, verdict and cases.
    pub report: Report,
}

/// Runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The runs, those of the base first.
    pub runs: Vec<Run>,
    /// The labels of what is compared, the base first: a run each, or several.
    pub sides: Vec<String>,
    /// What was compared, in the order of cases, measures and sides.
    pub contrasts: Vec<Contrast>,
    /// How the plans differ from the base's, run by run from the second on.
    pub differences: Vec<Vec<Difference>>,
    /// Cases that are not in both, as (label of the side that has it, case id).
    pub alone: Vec<(String, String)>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// How probabilities are adjusted.
    pub correction: Correction,
    /// Tests that were adjusted for.
    pub tests: usize,
    /// Confidence of the intervals, two-sided.
    pub confidence: f64,
    /// Worsening that is allowed, as a share.
    pub max_regression: f64,
}

impl Comparison {
    /// The comparisons that came to this.
    pub fn count(&self, finding: Finding) -> usize {
        self.contrasts.iter().filter(|own| own.finding == finding).count()
    }

    /// Whether too little was compared to say that nothing got worse: nothing could be tested, a case of the base is not in
    /// every run, or of some case nothing but errors could be told.
    pub fn open(&self) -> bool {
        let base = self.sides.first().map_or("", String::as_str);
        let told = |own: &Contrast| own.finding != Finding::Unknown;
        let same = |a: &&Contrast, b: &&Contrast| (&a.case, a.run) == (&b.case, b.run);
        let mut figures: Vec<&Contrast> = self.contrasts.iter().filter(|own| own.measure.metric != Metric::ErrorRate).collect();
        figures.sort_by(|a, b| (&a.case, a.run).cmp(&(&b.case, b.run)));
        let mute = figures.chunk_by(|a, b| same(a, b)).any(|own| !own.iter().any(|one| told(one)));
        self.tests == 0 || self.alone.iter().any(|(run, _)| run == base) || mute
    }

    /// The most replicates that a figure of a side has: runs, or rounds on restarted servers; 0 where it is one run by its requests.
    pub fn replicates(&self, side: usize) -> u32 {
        let of = |own: &Contrast| match side {
            0 => own.base.replicates,
            side if own.run == side => own.other.replicates,
            _ => 0,
        };
        self.contrasts.iter().map(of).max().unwrap_or(0)
    }

    /// Whether a run is not sound, or did not come to its end.
    pub fn invalid(&self) -> bool {
        self.runs.iter().any(|run| run.unsound())
    }
}

impl Run {
    /// Whether it was interrupted or could not be carried out, or a case of it is not sound.
    pub fn unsound(&self) -> bool {
        self.report.manifest.interrupted || matches!(self.report.verdict, RunVerdict::Invalid | RunVerdict::Error)
    }
}

/// How much an effect is, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Magnitude {
    /// Hardly there.
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

    /// In words. Delta by Romano, Kromrey, Coraggio and Skowronek, "Appropriate statistics for ordinal level data" (2006):
    /// 0.147, 0.33, 0.474; h by Cohen (1988): 0.2, 0.5, 0.8.
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
    fn less_of_what_should_be_more_is_worse() {
        let contrast = |metric, base, other| {
            let reading = |value| Reading { value: Some(value), bounds: None, n: 1, design: 1.0, replicates: 0 };
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
        assert_eq!(contrast(Metric::OutputTps, 100.0, 75.0).worsening(), Some(0.25));
        assert_eq!(contrast(Metric::E2e, 100.0, 75.0).worsening(), Some(-0.25));
        assert_eq!(contrast(Metric::ErrorRate, 0.0, 0.5).worsening(), Some(f64::INFINITY));
        assert_eq!(contrast(Metric::ErrorRate, 0.0, 0.0).worsening(), Some(0.0));
    }

    #[test]
    fn words_begin_at_the_published_sizes() {
        use Magnitude::{Large, Medium, Negligible, Small};
        let delta = [0.146, -0.147, 0.33, -0.474].map(|size| Effect::CliffsDelta(size).magnitude());
        let h = [0.19, -0.2, 0.5, -0.8].map(|size| Effect::CohensH(size).magnitude());
        assert_eq!((delta, h), ([Negligible, Small, Medium, Large], [Negligible, Small, Medium, Large]));
    }
}
