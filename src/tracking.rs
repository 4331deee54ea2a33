//! Sends a run to experiment trackers: parameters, metrics, files.
//!
//! A tracker that cannot be reached never changes what a run says: everything lies in the run folder by then, and
//! `llmscen report RUN_DIR --track` sends it again.

mod mlflow;
pub mod run_summary;
mod wandb;

use llmscen_core::track::{Files, Track};
pub use run_summary::{CaseSummary, RunSummary};
use std::fs;
use std::path::{Path, PathBuf};

/// Sends a run to every tracker; returns where each keeps it, or why it does not.
pub fn send_to_trackers(track: &Track, summary: &RunSummary, folder: &Path) -> Vec<Result<String, TrackError>> {
    let mlflow = track.mlflow.as_ref().map(|own| mlflow::send_to_mlflow(own, summary, folder));
    let wandb = track.wandb.as_ref().map(|own| wandb::send_to_wandb(own, summary, folder));
    mlflow.into_iter().chain(wandb).collect()
}

/// What went wrong. The run itself is whole.
#[derive(Debug, thiserror::Error)]
pub enum TrackError {
    /// It is not there, or the connection broke.
    #[error("MLflow at {url} cannot be reached: {reason}")]
    Unreachable {
        /// Its address, without what may be secret in it.
        url: String,
        /// Why.
        reason: String,
    },
    /// It answered with an error.
    #[error("MLflow refused {what}: {status} {message}")]
    Refused {
        /// What it was asked.
        what: String,
        /// The status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// It answered something else than its protocol says.
    #[error("MLflow answered {what} with something that is not its protocol")]
    Answer {
        /// What it was asked.
        what: String,
    },
    /// Its files lie where this client cannot write.
    #[error("MLflow keeps the files of runs at {0}, which only its own client can write; start it with --serve-artifacts")]
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
    #[error("cannot start `{python}` for Weights & Biases: {source}; name another in `report.track.wandb.python`")]
    Python {
        /// The interpreter.
        python: String,
        /// Why.
        source: std::io::Error,
    },
    /// The client said no.
    #[error("Weights & Biases: {0}")]
    Client(String),
    /// What a run needs could not be set up.
    #[error("cannot tell the tracker: {0}")]
    Setup(String),
}

/// Files with a row or more for every request.
const ROWS: [&str; 6] = ["requests.parquet", "requests.db", "telemetry.parquet", "histograms.hlog", "server.log", "journal.bin"];
/// Folders that are other tools' own.
const ALIEN: [&str; 1] = ["wandb"];

/// The files below a run folder by their names in it, in order of name.
fn list_files(folder: &Path, wanted: Files) -> Result<Vec<(String, PathBuf)>, TrackError> {
    let mut found = Vec::new();
    if wanted != Files::Nothing {
        walk(folder, "", &mut found)?;
    }
    found.retain(|(name, _)| wanted == Files::All || !ROWS.contains(&name.as_str()));
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, PathBuf)>) -> Result<(), TrackError> {
    let failed = |source| TrackError::File { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, name) = (entry.file_type().map_err(failed)?, entry.file_name().to_string_lossy().into_owned());
        if name.starts_with('.') || prefix.is_empty() && ALIEN.contains(&name.as_str()) {
            continue;
        }
        let inner = format!("{prefix}{name}");
        match () {
            () if kind.is_dir() => walk(&entry.path(), &format!("{inner}/"), found)?,
            () if kind.is_file() => found.push((inner, entry.path())),
            () => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_leave_the_rows_behind() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["report.md", "requests.parquet", "charts/a.png", "wandb/run/x", ".hidden"] {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let names = |wanted| list_files(folder.path(), wanted).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(Files::Reports), ["charts/a.png", "report.md"]);
        assert_eq!(names(Files::All), ["charts/a.png", "report.md", "requests.parquet"]);
        assert!(names(Files::Nothing).is_empty());
    }
}
