//! What earlier runs, or a table in the scenario, say about a figure; and the limits that rest on it.
//!
//! A baseline file (`llmscen/baseline/2`) holds, for each case, each statistic of each metric: its value in each of the runs, and of
//! the newest run the samples behind it and its one-sided bounds at the levels of `confidences`. A check at another level takes
//! those of the next higher one, which is on the safe side; `docs/baselines.md` describes the file.

mod history;

use crate::labels::Scalar;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The format's name and version, the value of `schema`.
pub const BASELINE_SCHEMA: &str = "llmscen/baseline/2";

/// The format before it, of a single run; it is still read.
pub const SINGLE_SCHEMA: &str = "llmscen/baseline/1";

/// Runs that a baseline keeps at most, the newest ones.
pub const KEPT: usize = 20;

/// Runs from which on an objective is decided by how they vary.
pub const SPREAD: usize = 5;

/// The levels at which a baseline holds bounds.
pub const LEVELS: [f64; 3] = [0.90, 0.95, 0.99];

/// What a limit is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// An earlier run.
    Baseline,
    /// A table in the scenario.
    Reference,
}

impl Against {
    /// The word in limits.
    pub fn name(self) -> &'static str {
        match self {
            Against::Baseline => "baseline",
            Against::Reference => "reference",
        }
    }
}

/// A figure that is known, between one-sided bounds that hold at a check's confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// The figure, in its metric's unit.
    pub value: f64,
    /// Its lower bound; None where the samples were too few for one.
    pub low: Option<f64>,
    /// Its upper bound, likewise.
    pub high: Option<f64>,
    /// Samples behind it; None where unknown.
    pub n: Option<u64>,
    /// How it varied from run to run; None where the runs were too few for that.
    #[serde(default)]
    pub spread: Option<Spread>,
}

/// How a figure varied from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Runs.
    pub runs: u32,
    /// How far one more run may lie from their mean: t·s·√(1 + 1/runs) at the check's confidence, of the logarithms, or of shares
    /// themselves.
    pub reach: f64,
}

/// The right side of a limit such as `<= 1.10 * baseline`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relative {
    /// What it is a multiple of.
    pub to: Against,
    /// The multiple, above 0.
    pub factor: f64,
    /// What is multiplied, in the case that the check is about; None where it is not there (yet).
    pub known: Option<Known>,
}

impl Relative {
    /// The limit as an absolute number, without the dust of the multiplication; NaN where nothing is known.
    pub fn limit(&self) -> f64 {
        let product = self.known.map_or(f64::NAN, |known| known.value * self.factor);
        format!("{product:.12e}").parse().unwrap_or(product)
    }
}

/// A baseline.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Stored")]
pub struct Baseline {
    /// Name of the scenario.
    pub name: String,
    /// What the plan said about target, requests, data and load: dotted path → value as text.
    pub plan: BTreeMap<String, String>,
    /// The levels of the bounds, ascending.
    pub confidences: Vec<f64>,
    /// The runs that it was taken from, the oldest first.
    pub runs: Vec<BaselineRun>,
    /// The cases, in plan order.
    pub cases: Vec<BaselineCase>,
}

/// A run of a baseline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BaselineRun {
    /// Its id.
    pub run_id: String,
    /// Its start, RFC 3339.
    pub started_at: String,
    /// Version of the tool that made it.
    pub tool_version: String,
    /// Digest of its plan.
    pub plan_id: String,
    /// Its seed.
    pub seed: u64,
    /// The machine that produced the load: host, processor, cores.
    pub machine: String,
}

/// A baseline as a file has it: of a single run, which `run` is then, or of several.
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
        let Stored { name, run, plan, confidences, runs, mut cases } = stored;
        let runs = if runs.is_empty() { run.into_iter().collect() } else { runs };
        if runs.len() == 1 {
            let figures = cases.iter_mut().flat_map(|case| &mut case.metrics).map(|(_, figure)| figure);
            figures.filter(|figure| figure.runs.is_empty()).for_each(|figure| figure.runs = vec![Some(figure.value)]);
        }
        Baseline { name, plan, confidences, runs, cases }
    }
}

/// One case of a baseline.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BaselineCase {
    /// Case id.
    pub id: String,
    /// Its swept values.
    pub labels: BTreeMap<String, Scalar>,
    /// Rounds that ran.
    pub rounds: u32,
    /// Requests scheduled.
    pub scheduled: u64,
    /// Requests that succeeded.
    pub ok: u64,
    /// `ttft.p95`, `output_tps`, `goodput(ttft < 500ms)` → its figures.
    #[serde(deserialize_with = "in_order")]
    pub metrics: Vec<(String, Figure)>,
}

/// One statistic of one metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The value, in the metric's unit; a share 0..=1. It, its samples and its bounds are of the newest run that has it.
    pub value: f64,
    /// Samples behind it.
    pub n: u64,
    /// Its lower bounds, one for each of `confidences`; empty where a statistic has none at any number of samples.
    #[serde(default)]
    pub low: Vec<Option<f64>>,
    /// Its upper bounds, likewise.
    #[serde(default)]
    pub high: Vec<Option<f64>>,
    /// The value in each run of the baseline, the oldest first; None for a run without it.
    #[serde(default)]
    pub runs: Vec<Option<f64>>,
}

/// A mapping in the order of the text.
fn in_order<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Figure)>, D::Error> {
    let map = Map::<String, Value>::deserialize(from)?;
    let figure = |(key, value): (String, Value)| {
        let figure = serde_json::from_value(value).map_err(|why| D::Error::custom(format!("`{key}`: {why}")))?;
        Ok((key, figure))
    };
    map.into_iter().map(figure).collect()
}

impl Baseline {
    /// The place of the bounds for a level: the least of `confidences` that is no lower. None above the highest.
    pub fn level(&self, level: f64) -> Option<usize> {
        self.confidences.iter().position(|own| *own >= level - 1e-9)
    }
}

impl Baseline {
    /// What no run can have measured, in words; None: it may all be true.
    pub fn flaw(&self) -> Option<String> {
        let levels = &self.confidences;
        let ascending = levels.windows(2).all(|pair| pair.first() < pair.last());
        if !ascending || !levels.iter().all(|level| 0.0 < *level && *level < 1.0) {
            return Some("its `confidences` are not levels in ascending order".to_owned());
        }
        let twin =
            self.cases.iter().enumerate().find(|(place, own)| self.cases.iter().take(*place).any(|one| one.labels == own.labels));
        if let Some((_, own)) = twin {
            return Some(format!("it has the case `{}` twice", own.id));
        }
        if self.runs.is_empty() {
            return Some("it names no run".to_owned());
        }
        let all = self.cases.iter().flat_map(|case| case.metrics.iter().map(move |(name, figure)| (case, name, figure)));
        let mut wrong = all.filter_map(|(case, name, figure)| Some((case, name, figure.flaw(levels.len(), self.runs.len())?)));
        wrong.next().map(|(case, name, why)| format!("`{name}` of `{}` {why}", case.id))
    }
}

impl BaselineCase {
    /// The figure of that name.
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.metrics.iter().find(|(own, _)| own == name).map(|(_, figure)| figure)
    }
}

impl Figure {
    /// What is wrong with it beside so many levels and runs.
    fn flaw(&self, levels: usize, runs: usize) -> Option<&'static str> {
        let fits = |bounds: &[Option<f64>]| bounds.is_empty() || bounds.len() == levels;
        let holds = |bounds: &[Option<f64>], under: bool| {
            bounds
                .iter()
                .flatten()
                .all(|bound| bound.is_finite() && if under { *bound <= self.value } else { *bound >= self.value })
        };
        match () {
            () if !self.value.is_finite() || self.value < 0.0 => Some("is no measured value"),
            () if self.runs.iter().flatten().any(|value| !value.is_finite() || *value < 0.0) => Some("is no measured value"),
            () if self.runs.len() != runs => Some("has not one value for each of `runs`"),
            () if !fits(&self.low) || !fits(&self.high) => Some("has not one bound for each of `confidences`"),
            () if !holds(&self.low, true) || !holds(&self.high, false) => Some("does not lie between its bounds"),
            () => None,
        }
    }

    /// Whether it has bounds at all.
    pub fn bounded(&self) -> bool {
        !self.low.is_empty() || !self.high.is_empty()
    }

    /// The figure with its bounds at a place of `confidences`; None: as a point.
    pub fn known(&self, place: Option<usize>) -> Known {
        let at = |bounds: &[Option<f64>]| place.and_then(|place| bounds.get(place).copied().flatten());
        Known { value: self.value, low: at(&self.low), high: at(&self.high), n: Some(self.n), spread: None }
    }
}

/// The figures that are shown of every case; those of its own objectives follow.
pub const USUAL: [&str; 9] =
    ["ttft.p50", "ttft.p95", "ttft.p99", "tpot.p50", "tpot.p95", "e2e.p95", "request_throughput", "output_tps", "error_rate"];

/// One figure of one case. Sizes are shares of the base, or of all requests where the figure is a share itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// Case id.
    pub case: String,
    /// `ttft.p95`, `goodput(ttft < 500ms)`.
    #[serde(rename = "metric")]
    pub figure: String,
    /// Whether it is a share: its sizes are then percentage points.
    pub share: bool,
    /// Runs that have it.
    pub runs: usize,
    /// Its mean over the runs, in the metric's unit: geometric, unless it is a share.
    pub mean: f64,
    /// Standard deviation between the runs.
    pub sd: f64,
    /// The least change that one run more shows beside those runs, in four of five cases.
    #[serde(rename = "least_change_1_run")]
    pub one: Option<f64>,
    /// The same for three runs a side.
    #[serde(rename = "least_change_3_runs")]
    pub three: Option<f64>,
    /// The same for five runs a side.
    #[serde(rename = "least_change_5_runs")]
    pub five: Option<f64>,
    /// Runs a side that show a change of 5 %; None: more than 100.
    #[serde(rename = "runs_for_5_percent")]
    pub needed: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_takes_the_bounds_of_the_next_higher_one() {
        let baseline = Baseline { confidences: LEVELS.to_vec(), ..Baseline::default() };
        assert_eq!([0.6, 0.9, 0.92, 0.95, 0.99, 0.995].map(|level| baseline.level(level)), {
            [Some(0), Some(0), Some(1), Some(1), Some(2), None]
        });
        let figure = Figure { value: 5.0, n: 9, low: vec![Some(4.0), None], high: vec![Some(6.0), Some(7.0)], runs: Vec::new() };
        assert_eq!(figure.known(Some(1)), Known { value: 5.0, low: None, high: Some(7.0), n: Some(9), spread: None });
        assert_eq!(figure.known(None), Known { value: 5.0, low: None, high: None, n: Some(9), spread: None });
    }

    #[test]
    fn what_nobody_can_have_measured_is_found() {
        let flaw = |levels: &[f64], value: f64, low: f64, twice: bool| {
            let figure = Figure { value, n: 9, low: vec![Some(low)], high: vec![None], runs: vec![Some(value)] };
            let case = BaselineCase {
                id: "a".into(),
                labels: BTreeMap::new(),
                rounds: 1,
                scheduled: 9,
                ok: 9,
                metrics: vec![("ttft.p50".into(), figure)],
            };
            let text = serde_json::json!({
                "schema": SINGLE_SCHEMA, "name": "", "run_id": "", "started_at": "", "tool_version": "", "plan_id": "",
                "seed": 0, "machine": "", "plan": {}, "confidences": levels, "cases": [],
            });
            let baseline: Baseline = serde_json::from_value(text).unwrap();
            let cases = if twice { vec![case.clone(), case] } else { vec![case] };
            Baseline { cases, ..baseline }.flaw().unwrap_or_default()
        };
        assert_eq!(flaw(&[0.95], 5.0, 4.0, false), "");
        assert_eq!(flaw(&[0.95], 5.0, 6.0, false), "`ttft.p50` of `a` does not lie between its bounds");
        assert_eq!(flaw(&[0.95], -5.0, -6.0, false), "`ttft.p50` of `a` is no measured value");
        assert_eq!(flaw(&[0.9, 0.95], 5.0, 4.0, false), "`ttft.p50` of `a` has not one bound for each of `confidences`");
        assert_eq!(flaw(&[0.95, 0.9], 5.0, 4.0, false), "its `confidences` are not levels in ascending order");
        assert_eq!(flaw(&[0.95], 5.0, 4.0, true), "it has the case `a` twice");
    }

    #[test]
    fn a_multiple_has_no_dust() {
        let known = Some(Known { value: 512.0, low: None, high: None, n: None, spread: None });
        assert_eq!(Relative { to: Against::Baseline, factor: 1.1, known }.limit(), 563.2);
        assert!(Relative { to: Against::Baseline, factor: 1.1, known: None }.limit().is_nan());
    }
}
