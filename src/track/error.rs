//! Why a tracker does not know of a run.

use std::path::PathBuf;

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
