//! The plan: a compiled scenario as a list of cases, each with the labels of its sweep.

use crate::artifacts::{Bodies, Peer, Store, Track};
use crate::check::Check;
use crate::dataset::{DatasetSpec, TraceSpec};
use crate::load::{Load, Warmup};
use crate::mix::Entry;
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

/// What the self-audit accepts, and from where on it doubts a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditLimits {
    /// Send delays do not count where their p99 is at most this.
    pub lag_p99: Nanos,
    /// Least share of the offered rate that must be sent.
    pub achieved: f64,
    /// Greatest share of a core that a worker thread may use.
    pub cpu: f64,
    /// Stalls of a worker thread that are at most this long do not count.
    pub stall_p99: Nanos,
    /// Greatest share of their time that the users of a closed loop may wait for the load generator.
    pub idle: f64,
    /// Greatest share of the time in which a worker thread may be stalled.
    pub stalled: f64,
    /// Greatest share of unique prompts that may come from the server's cache.
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
    /// Folder of all runs.
    pub dir: String,
    /// Forms in which the rows are stored; SQLite is among them where bodies are kept.
    pub store: Vec<Store>,
    /// Whose bodies are kept.
    pub bodies: Bodies,
    /// Tools in whose form the results are written as well.
    pub compat: Vec<Peer>,
    /// Trackers that the run is reported to.
    pub track: Track,
}

/// The file, or run folder, of a baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineFile {
    /// Its path.
    pub path: String,
    /// The text of the baseline, of which the run folder keeps a copy; None where it has gone.
    pub text: Option<String>,
}

/// A log of arrivals in a file of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    /// The file.
    pub path: String,
    /// How it is read.
    pub spec: TraceSpec,
}

/// One point of the sweep: one target under one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Stable, readable, unique in the plan: `concurrency=16,max_tokens=128`; `base` without a matrix.
    pub id: String,
    /// Its swept values.
    pub labels: Labels,
    /// Who is measured.
    pub target: Target,
    /// The prompts; of a mix, by its first entry.
    pub request: RequestSpec,
    /// The prompts; of a mix, those of its first entry.
    pub dataset: DatasetSpec,
    /// What is mixed; empty: nothing, all requests are alike.
    pub mix: Vec<Entry>,
    /// The load.
    pub load: Load,
    /// `load.trace` with a file of its own; None: a replay takes the dataset's arrivals.
    pub trace: Option<TraceFile>,
    /// The assertions that are about this case.
    pub checks: Vec<Check>,
    /// The assertions that are about stages of it; their conditions say about which.
    pub stage_checks: Vec<Check>,
}

/// The label that distinguishes the stages of a case, counted from 1; `all` is the case as a whole.
pub const STAGE: &str = "load.stage";

/// One stage of a case: reported as a case of its own, but never run by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Excerpt {
    /// The stage as a case: `ID/stage=2`, with its label, its load and the assertions about it.
    pub case: Case,
    /// Its rows are those that were due from here on …
    pub from: Nanos,
    /// … and before this.
    pub until: Nanos,
}

impl Case {
    /// Its stages that send requests, in order, each with its number among all stages. Pauses and stages that a duration
    /// cuts off are left out.
    pub fn stages(&self) -> Vec<Excerpt> {
        let start = match self.load.warmup {
            Warmup::Span(span) => Some(span),
            Warmup::Requests(0) => Some(Nanos::ZERO),
            Warmup::Requests(_) => None,
        };
        let cut = self.load.until(start).unwrap_or_default();
        let run = self.load.shape.stages().into_iter().enumerate().take_while(|(_, (from, _))| *from < cut);
        run.filter_map(|(index, (from, until))| Some(Excerpt { case: self.stage(index)?, from, until: until.min(cut) })).collect()
    }

    fn stage(&self, index: usize) -> Option<Case> {
        let shape = self.load.shape.stage(index).filter(|shape| !shape.is_pause())?;
        let labels = self.labels.with(STAGE, Scalar::Int(index as i64 + 1));
        let about = |check: &&Check| labels.covers(&check.when);
        let checks = self.stage_checks.iter().filter(about).cloned().collect();
        let load = Load { shape, requests: None, duration: None, warmup: Warmup::Requests(0), ..self.load.clone() };
        let id = format!("{}/stage={}", self.id, index + 1);
        Some(Case { id, labels, load, checks, stage_checks: Vec::new(), ..self.clone() })
    }
}

/// A scenario, compiled: every default spelled out, every case expanded.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Hex digest of the resolved scenario: equal plans have equal ids.
    pub id: String,
    /// Name of the scenario.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Seed of every random choice.
    pub seed: Seed,
    /// The cases, in the order in which they run.
    pub cases: Vec<Case>,
    /// Searches, whose probes are the cases: then a case runs only where its search wants to know of it.
    pub quests: Vec<CapacitySearch>,
    /// Times that each case runs, interleaved.
    pub rounds: u32,
    /// Whether each round after the first begins with a new start of the managed server.
    pub restart: bool,
    /// Rest between cases.
    pub pause: Nanos,
    /// When a measurement is not sound.
    pub audit: AuditLimits,
    /// What is sampled beside the requests.
    pub telemetry: TelemetrySpec,
    /// Reports.
    pub report: ReportSpec,
    /// The baseline that its limits are relative to.
    pub baseline: Option<BaselineFile>,
    /// The resolved scenario as YAML, secrets as `${NAME}`: running it again repeats the run.
    pub resolved: String,
    /// Secrets by where they came from: environment variables, URLs, headers, keys.
    pub secrets: Arc<[Secret]>,
}

impl Plan {
    /// What strikes the secrets of this plan from any text.
    pub fn redactor(&self) -> Redactor {
        Redactor::of_texts(self.secrets.iter().map(Secret::expose), DISTINCT)
    }

    /// Keeps the cases whose id holds one of these texts; of searches, those with such a case, whole.
    pub fn only(&mut self, texts: &[String]) {
        let chosen = |case: &Case| texts.is_empty() || texts.iter().any(|text| case.id.contains(text.as_str()));
        if self.quests.is_empty() {
            return self.cases.retain(chosen);
        }
        let mut cases = Vec::new();
        self.quests.retain_mut(|quest| {
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
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text, a rate such as `8/s` among it.
    Text(String),
}

impl Scalar {
    /// The value as a number; a rate such as `8/s` counts as its number.
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

    /// These and one more.
    pub fn with(&self, path: &str, value: Scalar) -> Labels {
        Labels(self.0.iter().cloned().chain([(path.to_owned(), value)]).collect())
    }

    /// Whether every pair of `wanted` stands here too; numbers compare as numbers.
    pub fn covers(&self, wanted: &Labels) -> bool {
        wanted.0.iter().all(|(path, value)| {
            self.get(path).is_some_and(|own| own == value || (own.number().is_some() && own.number() == value.number()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_compares_numbers_as_numbers() {
        let own = Labels(vec![("load.concurrency".into(), Scalar::Int(16)), ("load.rate".into(), Scalar::Text("8/s".into()))]);
        assert!(own.covers(&Labels(vec![("load.concurrency".into(), Scalar::Float(16.0))])));
        assert!(own.covers(&Labels(vec![("load.rate".into(), Scalar::Int(8))])));
        assert!(!own.covers(&Labels(vec![("load.concurrency".into(), Scalar::Int(4))])));
        assert!(!own.covers(&Labels(vec![("seed".into(), Scalar::Int(4))])));
        assert!(own.covers(&Labels::default()));
    }
}
