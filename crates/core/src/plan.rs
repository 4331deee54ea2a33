//! The plan: a compiled scenario as a list of cases, each with the labels of its sweep.

use crate::artifacts::{Bodies, ExportFormat, Store, Trackers};
use crate::check::Check;
use crate::dataset::{DatasetSpec, TraceSpec};
use crate::load::{Load, Warmup};
use crate::mix::MixEntry;
use crate::redact::{DISTINCT, Redactor};
use crate::request::RequestSpec;
use crate::search::CapacitySearch;
use crate::seed::Seed;
use crate::target::{Secret, Target};
use crate::telemetry::TelemetrySpec;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Thresholds of the self-audit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditLimits {
    /// Send delays are ignored if their p99 is at most this.
    pub lag_p99: Nanos,
    /// Minimum share of the offered rate that must be achieved.
    pub achieved: f64,
    /// Maximum share of a core that a worker thread may use.
    pub cpu: f64,
    /// Stalls of a worker thread of at most this length are ignored.
    pub stall_p99: Nanos,
    /// Maximum share of time that users of a closed loop may wait for the load generator.
    pub idle: f64,
    /// Maximum share of time that a worker thread may be stalled.
    pub stalled: f64,
    /// Maximum share of the tokens of unique prompts that may come from the server's prefix cache.
    pub cache: f64,
}

impl Default for AuditLimits {
    fn default() -> AuditLimits {
        let accepted = Nanos::from_millis(1);
        AuditLimits { lag_p99: accepted, achieved: 0.98, cpu: 0.90, stall_p99: accepted, idle: 0.10, stalled: 0.05, cache: 0.01 }
    }
}

/// A report format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// report.md
    Md,
    /// report.html
    Html,
    /// charts/*.png
    Png,
    /// charts/*.svg
    Svg,
    /// junit.xml
    Junit,
    /// cases.csv
    Csv,
    /// results.json; always written
    Json,
}

/// Which reports are written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportSpec {
    /// Formats; results.json and requests.parquet are always written.
    pub formats: Vec<Format>,
    /// Parent folder of the run folders.
    pub dir: String,
    /// Formats of the per-request records; includes SQLite if bodies are stored.
    pub store: Vec<Store>,
    /// Which bodies are stored.
    pub bodies: Bodies,
    /// Result file formats of other tools to write as well.
    pub compat: Vec<ExportFormat>,
    /// Trackers that the run is uploaded to.
    pub track: Trackers,
}

/// A baseline file or run folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineFile {
    /// Path.
    pub path: String,
    /// The text of the baseline, copied to the run folder; None if the file no longer exists.
    pub text: Option<String>,
}

/// A separate trace file with arrival times.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    /// The file.
    pub path: String,
    /// How it is read.
    pub spec: TraceSpec,
}

/// One point of the sweep: one target, one workload, one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Stable, readable, unique in the plan: `concurrency=16,max_tokens=128`; `base` without a matrix.
    pub id: String,
    /// Swept values.
    pub labels: Labels,
    /// The server under test.
    pub target: Target,
    /// The request; for a mix, that of its first traffic class.
    pub request: RequestSpec,
    /// The prompts; for a mix, those of its first traffic class.
    pub dataset: DatasetSpec,
    /// The traffic classes of a mix; empty: no mix.
    pub mix: Vec<MixEntry>,
    /// The load.
    pub load: Load,
    /// The file of `load.trace`; None: a replay uses the arrivals of the dataset.
    pub trace: Option<TraceFile>,
    /// The objectives of this case.
    pub checks: Vec<Check>,
    /// The objectives of its stages, selected by their `when`.
    pub stage_checks: Vec<Check>,
}

/// The label of a stage within its case, from 1; `all` is the case itself.
pub const STAGE: &str = "load.stage";

/// One stage of a case: reported as a separate case, but not run separately.
#[derive(Clone, Debug, PartialEq)]
pub struct StageSlice {
    /// The stage as a case: id `ID/stage=2`, with its label, load and objectives.
    pub case: Case,
    /// Its requests are those scheduled at or after this …
    pub from: Nanos,
    /// … and before this.
    pub until: Nanos,
}

impl Case {
    /// The stages that send requests, in order. Pauses and stages after the end of `duration` are left out.
    pub fn stages(&self) -> Vec<StageSlice> {
        let start = match self.load.warmup {
            Warmup::Span(span) => Some(span),
            Warmup::Requests(0) => Some(Nanos::ZERO),
            Warmup::Requests(_) => None,
        };
        let cut = self.load.sending_end(start).unwrap_or_default();
        let reached = self.load.shape.stages().into_iter().enumerate().take_while(|(_, (from, _))| *from < cut);
        reached
            .filter_map(|(index, (from, until))| Some(StageSlice { case: self.stage(index)?, from, until: until.min(cut) }))
            .collect()
    }

    fn stage(&self, index: usize) -> Option<Case> {
        let shape = self.load.shape.stage(index).filter(|shape| !shape.is_pause())?;
        let labels = self.labels.with(STAGE, Scalar::Int(index as i64 + 1));
        let applies = |check: &&Check| labels.covers(&check.when);
        let checks = self.stage_checks.iter().filter(applies).cloned().collect();
        let load = Load { shape, requests: None, duration: None, warmup: Warmup::Requests(0), ..self.load.clone() };
        let id = format!("{}/stage={}", self.id, index + 1);
        Some(Case { id, labels, load, checks, stage_checks: Vec::new(), ..self.clone() })
    }
}

/// A compiled scenario: defaults filled in, cases expanded.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Hex digest of the resolved scenario: equal plans have equal ids.
    pub id: String,
    /// Name of the scenario.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// Seed of every random choice.
    pub seed: Seed,
    /// The cases, in the order in which they run.
    pub cases: Vec<Case>,
    /// Capacity searches. If there are any, the cases are their possible probes and run only on demand.
    pub searches: Vec<CapacitySearch>,
    /// Number of rounds per case; the rounds of all cases are interleaved.
    pub rounds: u32,
    /// Whether the managed server is restarted before each round after the first.
    pub restart: bool,
    /// Pause between cases.
    pub pause: Nanos,
    /// Thresholds of the self-audit.
    pub audit: AuditLimits,
    /// Telemetry settings.
    pub telemetry: TelemetrySpec,
    /// Report settings.
    pub report: ReportSpec,
    /// The baseline of relative limits.
    pub baseline: Option<BaselineFile>,
    /// The resolved scenario as YAML, secrets as `${NAME}`; running it repeats the run.
    pub resolved: String,
    /// Secrets of the scenario: environment variables, URLs, headers, keys.
    pub secrets: Arc<[Secret]>,
}

impl Plan {
    /// A redactor for the secrets of this plan.
    pub fn redactor(&self) -> Redactor {
        Redactor::from_texts(self.secrets.iter().map(Secret::expose), DISTINCT)
    }

    /// Keeps the cases whose id contains one of these texts, and the searches that have such a case with all their cases.
    pub fn select_cases(&mut self, texts: &[String]) {
        let chosen = |case: &Case| texts.is_empty() || texts.iter().any(|text| case.id.contains(text.as_str()));
        if self.searches.is_empty() {
            return self.cases.retain(chosen);
        }
        let mut cases = Vec::new();
        self.searches.retain_mut(|quest| {
            let own = self.cases.get(quest.first..quest.first + quest.grid.len()).unwrap_or_default();
            quest.first = cases.len();
            let kept = own.iter().any(chosen);
            cases.extend(own.iter().filter(|_| kept).cloned());
            kept
        });
        self.cases = cases;
    }
}

/// One value of a swept field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text, including rates such as `8/s`.
    Text(String),
}

impl Scalar {
    /// The value as a number; `8/s` is 8.
    pub fn number(&self) -> Option<f64> {
        match self {
            Scalar::Bool(_) => None,
            Scalar::Int(value) => Some(*value as f64),
            Scalar::Float(value) => Some(*value),
            Scalar::Text(text) => text.trim_end_matches("/s").trim().parse().ok(),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value}"),
            Scalar::Text(value) => f.write_str(value),
        }
    }
}

/// The swept fields of one case and their values, in the order of the matrix: `load.concurrency` → 16.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(pub Vec<(String, Scalar)>);

impl Labels {
    /// The value of one swept field.
    pub fn get(&self, path: &str) -> Option<&Scalar> {
        self.0.iter().find(|(key, _)| key == path).map(|(_, value)| value)
    }

    /// Returns the labels with one added.
    pub fn with(&self, path: &str, value: Scalar) -> Labels {
        Labels(self.0.iter().cloned().chain([(path.to_owned(), value)]).collect())
    }

    /// Whether these labels include every pair of `subset`; numbers compare by value.
    pub fn covers(&self, subset: &Labels) -> bool {
        subset.0.iter().all(|(path, value)| {
            self.get(path).is_some_and(|found| found == value || (found.number().is_some() && found.number() == value.number()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_compares_numbers_as_numbers() {
        let labels = Labels(vec![("load.concurrency".into(), Scalar::Int(16)), ("load.rate".into(), Scalar::Text("8/s".into()))]);
        assert!(labels.covers(&Labels(vec![("load.concurrency".into(), Scalar::Float(16.0))])));
        assert!(labels.covers(&Labels(vec![("load.rate".into(), Scalar::Int(8))])));
        assert!(!labels.covers(&Labels(vec![("load.concurrency".into(), Scalar::Int(4))])));
        assert!(!labels.covers(&Labels(vec![("seed".into(), Scalar::Int(4))])));
        assert!(labels.covers(&Labels::default()));
    }
}
