//! Stored forms of a run for other programs, besides the reports.

use serde::{Deserialize, Serialize};

/// A form in which the rows of a run are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// requests.parquet; always written, since reports are made from it.
    Parquet,
    /// requests.db, an SQLite database.
    Sqlite,
    /// histograms.hlog, an HdrHistogram log.
    Hlog,
}

/// Whose bodies are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bodies {
    /// Nobody's.
    #[default]
    None,
    /// Those of some requests: the first, the failed, and some that are drawn.
    Sample,
    /// Those of every request that failed.
    Failed,
    /// Those of every request that was sent.
    All,
}
