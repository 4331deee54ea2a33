//! Uploads a run to experiment trackers: parameters, metrics, files.
//!
//! A tracker that cannot be reached does not change the result of a run: everything is in the run folder by then, and
//! `llmscen report RUN_DIR --track` uploads it again.

mod mlflow;
mod wandb;

use llmscen_core::artifacts::{Trackers, UploadFiles};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use llmscen_core::report::{CaseReport, Report, RunVerdict};
use llmscen_core::sample::SummaryStatistics;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Uploads a run to every tracker. Returns the location of the run in each, or an error.
pub fn send_to_trackers(
    track: &Trackers,
    summary: &RunSummary,
    folder: &Path,
) -> Vec<Result<String, TrackError>> {
    let mlflow = track
        .mlflow
        .as_ref()
        .map(|spec| mlflow::send_to_mlflow(spec, summary, folder));
    let wandb = track
        .wandb
        .as_ref()
        .map(|spec| wandb::send_to_wandb(spec, summary, folder));
    mlflow.into_iter().chain(wandb).collect()
}

/// Why an upload failed. The run folder is not affected.
#[derive(Debug, thiserror::Error)]
pub enum TrackError {
    /// The server cannot be reached, or the connection broke.
    #[error("MLflow at {url} cannot be reached: {reason}")]
    Unreachable {
        /// URL of the server, without secrets.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server responded with an error.
    #[error("MLflow refused {what}: {status} {message}")]
    Refused {
        /// The request.
        what: String,
        /// HTTP status.
        status: u16,
        /// Message of the server.
        message: String,
    },
    /// The response does not follow the protocol.
    #[error(
        "unexpected response of MLflow to {what}; check that report.track.mlflow.url is the address of an MLflow server"
    )]
    Answer {
        /// The request.
        what: String,
    },
    /// The server stores files where only the MLflow client can write.
    #[error(
        "MLflow stores files at {0}, where only its own client can write; start the server with --serve-artifacts"
    )]
    Store(String),
    /// A file of the run folder cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The interpreter cannot be started.
    #[error(
        "cannot start `{python}` for Weights & Biases: {source}; name another in `report.track.wandb.python`"
    )]
    Python {
        /// The interpreter.
        python: String,
        /// Why.
        source: std::io::Error,
    },
    /// The client of Weights & Biases failed.
    #[error("Weights & Biases: {0}")]
    Client(String),
    /// The upload could not be set up.
    #[error("cannot upload to the tracker: {0}")]
    Setup(String),
}

/// Files with data per request.
const REQUEST_FILES: [&str; 6] = [
    "requests.parquet",
    "requests.db",
    "telemetry.parquet",
    "histograms.hlog",
    "server.log",
    "journal.bin",
];
/// Folders of other tools.
const FOREIGN_FOLDERS: [&str; 1] = ["wandb"];

/// The files of a run folder by relative name, sorted.
fn list_files(folder: &Path, files: UploadFiles) -> Result<Vec<(String, PathBuf)>, TrackError> {
    let mut found = Vec::new();
    if files != UploadFiles::Nothing {
        walk(folder, "", &mut found)?;
    }
    found.retain(|(name, _)| files == UploadFiles::All || !REQUEST_FILES.contains(&name.as_str()));
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, PathBuf)>) -> Result<(), TrackError> {
    let failed = |source| TrackError::File {
        path: folder.to_owned(),
        source,
    };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || prefix.is_empty() && FOREIGN_FOLDERS.contains(&name.as_str()) {
            continue;
        }
        let inner = format!("{prefix}{name}");
        if kind.is_dir() {
            walk(&entry.path(), &format!("{inner}/"), found)?;
        } else if kind.is_file() {
            found.push((inner, entry.path()));
        }
    }
    Ok(())
}

/// Name, parameters and metrics of the run or of one case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseSummary {
    /// Name.
    pub name: String,
    /// Parameters.
    pub params: Vec<(String, String)>,
    /// Metrics, named as the columns of cases.csv, with units.
    pub metrics: Vec<(String, f64)>,
}

/// A run as it is uploaded to a tracker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSummary {
    /// Unique id of the run.
    pub run_id: String,
    /// Start, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// End, milliseconds since the Unix epoch.
    pub ended_ms: u64,
    /// `pass`, `fail`, `inconclusive`, `invalid` or `error`.
    pub verdict: &'static str,
    /// Whether the run finished.
    pub finished: bool,
    /// The run; with a single case, also the metrics of that case.
    pub run: CaseSummary,
    /// The cases, if there are several.
    pub cases: Vec<CaseSummary>,
}

impl RunSummary {
    /// The summary of a run.
    pub fn new(plan: &Plan, report: &Report) -> RunSummary {
        let manifest = &report.manifest;
        let started_ms = manifest.started_unix_ns / 1_000_000;
        let elapsed_ms = (manifest.elapsed_s.unwrap_or(0.0) * 1e3) as u64;
        let mut run = CaseSummary {
            name: format!("{} {}", manifest.name, manifest.started_at),
            ..CaseSummary::default()
        };
        let param = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        run.params = vec![
            param("scenario", &manifest.name),
            param("plan_id", &manifest.plan_id),
            param("seed", &manifest.seed.to_string()),
            param("tool_version", &manifest.tool_version),
            param("host", &manifest.machine.host),
        ];
        let mut cases: Vec<CaseSummary> = report
            .cases
            .iter()
            .map(|case| summarize_case(plan, case))
            .collect();
        if let [only] = cases.as_mut_slice() {
            run.params.append(&mut only.params);
            run.metrics.append(&mut only.metrics);
            cases.clear();
        }
        let passed = |case: &CaseReport| {
            case.verdicts
                .iter()
                .filter(|verdict| verdict.ruling.name() == "pass")
                .count() as f64
        };
        run.metrics.push((
            "limits".into(),
            report
                .cases
                .iter()
                .map(|case| case.verdicts.len() as f64)
                .sum(),
        ));
        run.metrics
            .push(("limits_held".into(), report.cases.iter().map(passed).sum()));
        run.metrics
            .push(("exit_code".into(), f64::from(report.exit_code)));
        RunSummary {
            run_id: manifest.run_id.clone(),
            started_ms,
            ended_ms: started_ms + elapsed_ms,
            verdict: verdict_name(report.verdict),
            finished: !manifest.interrupted && manifest.error.is_none(),
            run,
            cases,
        }
    }

    /// The same without secrets in names and parameters.
    pub fn redacted(mut self, redactor: &Redactor) -> RunSummary {
        for entry in self.cases.iter_mut().chain([&mut self.run]) {
            entry.name = redactor.redact(std::mem::take(&mut entry.name));
            entry
                .params
                .iter_mut()
                .for_each(|(_, value)| *value = redactor.redact(std::mem::take(value)));
        }
        self
    }
}

fn verdict_name(verdict: RunVerdict) -> &'static str {
    match verdict {
        RunVerdict::Pass => "pass",
        RunVerdict::Fail => "fail",
        RunVerdict::Inconclusive => "inconclusive",
        RunVerdict::Invalid => "invalid",
        RunVerdict::Error => "error",
    }
}

fn summarize_case(plan: &Plan, case: &CaseReport) -> CaseSummary {
    let mut params = vec![
        ("case".to_owned(), case.id.clone()),
        ("load".to_owned(), case.load.clone()),
    ];
    if let Some(planned) = plan.cases.iter().find(|planned| planned.id == case.id) {
        params.extend(target_params(planned));
    }
    params.extend(
        case.labels
            .0
            .iter()
            .map(|(path, value)| (path.clone(), value.to_string())),
    );
    let mut metrics: Vec<(String, f64)> = case
        .scalars
        .iter()
        .map(|(metric, &value)| (metric.column().to_owned(), value))
        .collect();
    for (metric, distribution) in &case.distributions {
        metrics.extend(distribution_metrics(metric.column(), distribution));
    }
    let counts = &case.counts;
    for (name, count) in [
        ("scheduled", counts.scheduled),
        ("ok", counts.ok),
        ("failed", counts.failed),
        ("dropped", counts.dropped),
    ] {
        metrics.push((format!("requests_{name}"), count as f64));
    }
    metrics.push(("audit_valid".into(), f64::from(u8::from(case.audit.valid))));
    metrics.retain(|(_, value)| value.is_finite());
    let mut known = BTreeSet::new();
    // A swept model is both a label and a parameter of the target, but trackers accept a name once.
    params.retain(|(name, _)| known.insert(name.clone()));
    CaseSummary {
        name: case.id.clone(),
        params,
        metrics,
    }
}

fn target_params(case: &Case) -> Vec<(String, String)> {
    let models: Vec<&str> = case
        .target
        .models
        .iter()
        .map(|share| share.name.as_str())
        .collect();
    vec![
        ("target.api".to_owned(), case.target.api.name().to_owned()),
        ("target.model".to_owned(), models.join(", ")),
    ]
}

fn distribution_metrics<'a>(
    column: &'a str,
    distribution: &'a SummaryStatistics,
) -> impl Iterator<Item = (String, f64)> + 'a {
    let metric = move |stat: &str, value: f64| (format!("{column}_{stat}"), value);
    let quantiles = SummaryStatistics::SHARES
        .iter()
        .zip(&distribution.quantiles);
    let quantiles = quantiles
        .map(move |(share, &value)| (format!("{column}_p{}", (share * 1e5).round() / 1e3), value));
    [
        metric("mean", distribution.mean),
        metric("min", distribution.min),
        metric("max", distribution.max),
    ]
    .into_iter()
    .chain(quantiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_exclude_files_with_data_per_request() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "report.md",
            "requests.parquet",
            "charts/a.png",
            "wandb/run/x",
            ".hidden",
        ] {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let names = |files| {
            list_files(folder.path(), files)
                .unwrap()
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(UploadFiles::Reports), ["charts/a.png", "report.md"]);
        assert_eq!(
            names(UploadFiles::All),
            ["charts/a.png", "report.md", "requests.parquet"]
        );
        assert!(names(UploadFiles::Nothing).is_empty());
    }
}
