//! Baselines: metric values of earlier runs or of a reference table, and the limits relative to them.
//!
//! A baseline file (`llmscen/baseline/2`) holds, for each statistic of each case, its value in every run, and for the
//! newest run the sample count and one-sided bounds at the levels of `confidences`. A check at another level uses the
//! next higher level, which is conservative. `docs/reference/baselines.md` describes the file.

use crate::check::relative::{Answers, ReferenceValue};
use crate::label::Scalar;
use crate::metric::Metric;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Name and version of the format: the value of `schema`.
pub const BASELINE_SCHEMA: &str = "llmscen/baseline/2";

/// The previous format, which holds a single run; still read.
pub const SINGLE_SCHEMA: &str = "llmscen/baseline/1";

/// Maximum number of runs in a baseline; the newest are kept.
pub const MAX_RUNS: usize = 20;

/// Minimum number of runs for deciding an objective by the variation between runs.
pub const MIN_RUNS_FOR_SPREAD: usize = 5;

/// Maximum number of answers in a baseline, so that the file stays small: 170 KB.
pub const MAX_ANSWERS: usize = 10_000;

/// The confidence levels of the stored bounds.
pub const LEVELS: [f64; 3] = [0.90, 0.95, 0.99];

/// A baseline.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Stored")]
pub struct Baseline {
    /// Name of the scenario.
    pub name: String,
    /// The plan's settings for target, requests, data and load: dotted path → value as text.
    pub plan: BTreeMap<String, String>,
    /// Confidence levels of the bounds, ascending.
    pub confidences: Vec<f64>,
    /// The runs, oldest first.
    pub runs: Vec<BaselineRun>,
    /// The cases, in plan order.
    pub cases: Vec<BaselineCase>,
}

/// A run of a baseline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BaselineRun {
    /// Run id.
    pub run_id: String,
    /// Start, RFC 3339.
    pub started_at: String,
    /// Version of llmscen.
    pub tool_version: String,
    /// Digest of the plan.
    pub plan_id: String,
    /// Seed.
    pub seed: u64,
    /// The load generator's machine: host, CPU, cores.
    pub machine: String,
}

/// The file format: version 1 has a single `run`, version 2 a list of `runs`.
#[derive(Deserialize)]
struct Stored {
    name: String,
    #[serde(flatten)]
    run: Option<BaselineRun>,
    plan: BTreeMap<String, String>,
    confidences: Vec<f64>,
    #[serde(default)]
    runs: Vec<BaselineRun>,
    cases: Vec<BaselineCase>,
}

impl From<Stored> for Baseline {
    fn from(stored: Stored) -> Baseline {
        let Stored {
            name,
            run,
            plan,
            confidences,
            runs,
            mut cases,
        } = stored;
        let runs = if runs.is_empty() {
            run.into_iter().collect()
        } else {
            runs
        };
        if runs.len() == 1 {
            let figures = cases
                .iter_mut()
                .flat_map(|case| &mut case.metrics)
                .map(|(_, figure)| figure);
            figures
                .filter(|figure| figure.runs.is_empty())
                .for_each(|figure| figure.runs = vec![Some(figure.value)]);
        }
        Baseline {
            name,
            plan,
            confidences,
            runs,
            cases,
        }
    }
}

/// One case of a baseline.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BaselineCase {
    /// Case id.
    pub id: String,
    /// Swept values.
    pub labels: BTreeMap<String, Scalar>,
    /// Number of rounds.
    pub rounds: u32,
    /// Requests scheduled.
    pub scheduled: u64,
    /// Requests that succeeded.
    pub ok: u64,
    /// Whether the answers of the newest run were the expected ones; None where it has none, or too many.
    #[serde(default)]
    pub answers: Option<Arc<Answers>>,
    /// `ttft.p95`, `output_tps`, `goodput(ttft < 500ms)` → values.
    #[serde(deserialize_with = "in_order")]
    pub metrics: Vec<(String, Figure)>,
}

/// One statistic of one metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The value in the metric's unit; a share is 0..=1. Value, sample count and bounds are those of the newest run
    /// that has the metric.
    pub value: f64,
    /// Sample count.
    pub n: u64,
    /// Lower bounds, one per level of `confidences`; empty for a statistic that never has bounds.
    #[serde(default)]
    pub low: Vec<Option<f64>>,
    /// Upper bounds, in the same form.
    #[serde(default)]
    pub high: Vec<Option<f64>>,
    /// The value in each run of the baseline, oldest first; None for a run without the metric.
    #[serde(default)]
    pub runs: Vec<Option<f64>>,
}

/// Deserializes a mapping in the order of the file.
fn in_order<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Figure)>, D::Error> {
    let map = Map::<String, Value>::deserialize(from)?;
    let figure = |(key, value): (String, Value)| {
        let figure = serde_json::from_value(value)
            .map_err(|why| D::Error::custom(format!("`{key}`: {why}")))?;
        Ok((key, figure))
    };
    map.into_iter().map(figure).collect()
}

impl Baseline {
    /// Index of the lowest level in `confidences` that is at least `level`; None above the highest.
    pub fn level(&self, level: f64) -> Option<usize> {
        self.confidences.iter().position(|own| *own >= level - 1e-9)
    }

    /// An inconsistency that no measured baseline can have, as an error message.
    pub fn find_inconsistency(&self) -> Option<String> {
        let levels = &self.confidences;
        let ascending = levels.windows(2).all(|pair| pair.first() < pair.last());
        if !ascending || !levels.iter().all(|level| 0.0 < *level && *level < 1.0) {
            return Some("its `confidences` are not levels in ascending order".to_owned());
        }
        let twin = self.cases.iter().enumerate().find(|(place, own)| {
            self.cases
                .iter()
                .take(*place)
                .any(|one| one.labels == own.labels)
        });
        if let Some((_, own)) = twin {
            return Some(format!("it has the case `{}` twice", own.id));
        }
        if self.runs.is_empty() {
            return Some("it names no run".to_owned());
        }
        let all = self.cases.iter().flat_map(|case| {
            case.metrics
                .iter()
                .map(move |(name, figure)| (case, name, figure))
        });
        let mut wrong = all.filter_map(|(case, name, figure)| {
            Some((case, name, figure.flaw(levels.len(), self.runs.len())?))
        });
        wrong
            .next()
            .map(|(case, name, why)| format!("`{name}` of `{}` {why}", case.id))
    }
}

impl BaselineCase {
    /// The values of one statistic.
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.metrics
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, figure)| figure)
    }
}

impl Figure {
    /// An inconsistency, given the number of levels and of runs.
    fn flaw(&self, levels: usize, runs: usize) -> Option<&'static str> {
        let fits = |bounds: &[Option<f64>]| bounds.is_empty() || bounds.len() == levels;
        let holds = |bounds: &[Option<f64>], under: bool| {
            bounds.iter().flatten().all(|bound| {
                bound.is_finite()
                    && if under {
                        *bound <= self.value
                    } else {
                        *bound >= self.value
                    }
            })
        };
        match () {
            () if !self.value.is_finite() || self.value < 0.0 => Some("is no measured value"),
            () if self
                .runs
                .iter()
                .flatten()
                .any(|value| !value.is_finite() || *value < 0.0) =>
            {
                Some("is no measured value")
            }
            () if self.runs.len() != runs => Some("has not one value for each of `runs`"),
            () if !fits(&self.low) || !fits(&self.high) => {
                Some("has not one bound for each of `confidences`")
            }
            () if !holds(&self.low, true) || !holds(&self.high, false) => {
                Some("does not lie between its bounds")
            }
            () => None,
        }
    }

    /// Whether the statistic has any bounds.
    pub fn bounded(&self) -> bool {
        !self.low.is_empty() || !self.high.is_empty()
    }

    /// The value with its bounds at an index of `confidences`; None: without bounds.
    pub fn reference_value(&self, place: Option<usize>) -> ReferenceValue {
        let at =
            |bounds: &[Option<f64>]| place.and_then(|place| bounds.get(place).copied().flatten());
        ReferenceValue {
            value: self.value,
            low: at(&self.low),
            high: at(&self.high),
            n: Some(self.n),
            spread: None,
        }
    }
}

/// Statistics that are shown for every case, before those of its objectives.
pub const DEFAULT_STATISTICS: [&str; 9] = [
    "ttft.p50",
    "ttft.p95",
    "ttft.p99",
    "tpot.p50",
    "tpot.p95",
    "e2e.p95",
    "request_throughput",
    "output_tps",
    "error_rate",
];

/// Variation of one statistic of one case between runs. Sizes are relative to the baseline, or absolute shares if the
/// statistic is a share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunVariation {
    /// Case id.
    pub case: String,
    /// `ttft.p95`, `goodput(ttft < 500ms)`.
    #[serde(rename = "metric")]
    pub figure: String,
    /// Whether the statistic is a share, so that sizes are percentage points.
    pub share: bool,
    /// Number of runs that have the statistic.
    pub runs: usize,
    /// Mean over the runs in the metric's unit: geometric, arithmetic for shares.
    pub mean: f64,
    /// Standard deviation between the runs.
    pub sd: f64,
    /// Smallest change that one additional run detects with 80 % power.
    #[serde(rename = "least_change_1_run")]
    pub one: Option<f64>,
    /// The same for three runs per side.
    #[serde(rename = "least_change_3_runs")]
    pub three: Option<f64>,
    /// The same for five runs per side.
    #[serde(rename = "least_change_5_runs")]
    pub five: Option<f64>,
    /// Runs per side that detect a change of 5 %; None: more than 100.
    #[serde(rename = "runs_for_5_percent")]
    pub needed: Option<usize>,
}

/// The only setting in which two runs of one plan may differ.
const SEED: &str = "seed";
/// Maximum number of plan differences in a message; further ones are counted.
const SHOWN: usize = 4;

impl Baseline {
    /// The newest run.
    pub fn newest(&self) -> Option<&BaselineRun> {
        self.runs.last()
    }

    /// The differences to another plan in target, requests, data or load, as text; None if there are none. The seed
    /// may differ: other random draws from the same data are another run of the same plan.
    pub fn describe_plan_differences(&self, plan: &BTreeMap<String, String>) -> Option<String> {
        let paths: BTreeSet<&String> = self
            .plan
            .keys()
            .chain(plan.keys())
            .filter(|path| *path != SEED)
            .collect();
        let said =
            |value: Option<&String>| value.map_or_else(|| "nothing".to_owned(), String::clone);
        let differ = |path: &&String| plan.get(*path) != self.plan.get(*path);
        let line = |path: &String| {
            format!(
                "`{path}` was {}, is {}",
                said(self.plan.get(path)),
                said(plan.get(path))
            )
        };
        let lines: Vec<String> = paths.into_iter().filter(differ).map(line).collect();
        let more = lines.len().saturating_sub(SHOWN);
        let shown = lines.get(..SHOWN.min(lines.len()))?.join("; ");
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        (!lines.is_empty()).then(|| shown + &more)
    }

    /// Adds the runs of `added`, without duplicates, and keeps the newest [`MAX_RUNS`] by start time, oldest first.
    /// The cases are those of `added`, whose plan is the current one.
    pub fn with(&self, added: Baseline) -> Baseline {
        let is_new = |run: &&BaselineRun| added.runs.iter().all(|other| other.run_id != run.run_id);
        let mut runs: Vec<BaselineRun> = self
            .runs
            .iter()
            .filter(is_new)
            .chain(&added.runs)
            .cloned()
            .collect();
        runs.sort_by(|a, b| a.started_at.cmp(&b.started_at));
        runs.drain(..runs.len().saturating_sub(MAX_RUNS));
        let cases = added
            .cases
            .iter()
            .map(|case| self.merge_case(&added, case, &runs))
            .collect();
        Baseline {
            name: added.name.clone(),
            plan: added.plan.clone(),
            confidences: added.confidences.clone(),
            runs,
            cases,
        }
    }

    /// Merges the values of `case`, one of `added`, with those of this baseline, over `runs` and in the order of
    /// `case`.
    fn merge_case(
        &self,
        added: &Baseline,
        case: &BaselineCase,
        runs: &[BaselineRun],
    ) -> BaselineCase {
        let old_case = self.cases.iter().find(|old| old.labels == case.labels);
        let old_window = old_case.and_then(|old| old.figure(Metric::ThroughputWindow.name()));
        let merge = |name: &str, new: Option<&Figure>| {
            let old = old_case.and_then(|case| case.figure(name));
            // Throughputs of earlier versions include the drain and are not comparable.
            let windowed = Metric::WINDOWED.iter().any(|metric| metric.name() == name);
            let comparable =
                |run: &BaselineRun| !windowed || self.value_in_run(old_window, run).is_some();
            let value = |run: &BaselineRun| {
                added
                    .value_in_run(new, run)
                    .or_else(|| self.value_in_run(old, run).filter(|_| comparable(run)))
            };
            let values: Vec<Option<f64>> = runs.iter().map(value).collect();
            let last = runs
                .iter()
                .zip(&values)
                .rev()
                .find(|(_, value)| value.is_some())
                .map(|(run, _)| run)?;
            let newest = if added.value_in_run(new, last).is_some() {
                new
            } else {
                old
            };
            newest.map(|newest| {
                (
                    name.to_owned(),
                    Figure {
                        runs: values,
                        ..newest.clone()
                    },
                )
            })
        };
        let current = case
            .metrics
            .iter()
            .filter_map(|(name, figure)| merge(name, Some(figure)));
        let dropped = old_case
            .iter()
            .flat_map(|old| &old.metrics)
            .filter(|(name, _)| case.figure(name).is_none());
        let metrics = current
            .chain(dropped.filter_map(|(name, _)| merge(name, None)))
            .collect();
        let newest_is_added = runs
            .last()
            .is_some_and(|last| added.runs.iter().any(|run| run.run_id == last.run_id));
        let counts = old_case.filter(|_| !newest_is_added).unwrap_or(case);
        BaselineCase {
            metrics,
            ..counts.clone()
        }
    }

    /// The value of a figure of this baseline in one of its runs.
    fn value_in_run(&self, figure: Option<&Figure>, run: &BaselineRun) -> Option<f64> {
        let index = self
            .runs
            .iter()
            .position(|known| known.run_id == run.run_id)?;
        figure?.runs.get(index).copied().flatten()
    }
}

#[cfg(test)]
mod tests;
