//! Errors of the group of shards.

use crate::store::shared_store::SharedStoreError;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Why the shards of a run cannot start or go on together. All of them end the run with exit code 3.
#[derive(Clone, Debug, Error)]
pub enum ShardingError {
    /// Shards did not arrive in time.
    #[error("{} of {count} shards {what} within {}; missing: {}\n  help: start them, or check \
    that {url} is one store shared by all hosts", count - missing.len() as u32, format_wait(*wait),
        join_numbers(missing))]
    Missing {
        /// What the others did: `joined`, or `were ready for round 2`.
        what: String,
        /// Number of shards.
        count: u32,
        /// Shards that did not.
        missing: Vec<u32>,
        /// `--wait`.
        wait: Duration,
        /// The store.
        url: String,
    },
    /// Two processes have the same shard number.
    #[error(
        "shard {index} was started twice\n  help: start each shard once; use another `--run` for each attempt"
    )]
    StartedTwice {
        /// The shard.
        index: u32,
    },
    /// Shards do not run the same thing.
    #[error("the shards differ in {what}: {}\n  help: {help}", join_groups(groups))]
    Unequal {
        /// In what.
        what: &'static str,
        /// Each value with the shards and hosts that have it.
        groups: Vec<(String, String)>,
        /// What to do.
        help: &'static str,
    },
    /// A shard could not prepare.
    #[error("shard {index} ({host}) could not prepare: {reason}")]
    Preparation {
        /// The shard.
        index: u32,
        /// Its host.
        host: String,
        /// Why.
        reason: String,
    },
    /// A signal came on this shard while it waited.
    #[error("interrupted while waiting for the other shards")]
    Interrupted,
    /// The run was stopped on another shard.
    #[error("shard {index} ({host}) ended the run: {reason}")]
    Stopped {
        /// The shard.
        index: u32,
        /// Its host.
        host: String,
        /// Why.
        reason: String,
    },
    /// A shard has no heartbeat.
    #[error("shard {index} ({host}) was lost: no heartbeat for {} s{}", silence.as_secs(),
        help_without_first(*index, url))]
    Lost {
        /// The shard.
        index: u32,
        /// Its host.
        host: String,
        /// Time without a heartbeat.
        silence: Duration,
        /// The store.
        url: String,
    },
    /// The records of this shard could not be stored.
    #[error(
        "cannot store the records of shard {index} at {url} within {}: {why}\n  help: they are in \
        {}; once the store works: `llmscen merge {url} --rows {}`", format_wait(*wait), folder.display(),
            folder.display()
    )]
    NotDelivered {
        /// The shard.
        index: u32,
        /// The store.
        url: String,
        /// The last error.
        why: String,
        /// Where they are.
        folder: PathBuf,
        /// `--wait`.
        wait: Duration,
    },
    /// A file of this shard cannot be read or written.
    #[error("cannot access {path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// An object has no readable content.
    #[error(
        "cannot read {key} at {url}: {why}\n  help: use the same llmscen build for all shards, \
        and another `--run` for each attempt"
    )]
    Unreadable {
        /// The object.
        key: String,
        /// The store.
        url: String,
        /// Why.
        why: String,
    },
    /// The store cannot be used.
    #[error("{0}")]
    Store(String),
    /// An error that shard 0 found for all.
    #[error("{0}")]
    FoundByFirst(String),
    /// Shard 0 ended with an error.
    #[error("shard 0 ended the run: {0}")]
    EndedByFirst(String),
    /// The system provides no thread.
    #[error("cannot start a thread for the heartbeats: {0}")]
    Thread(String),
}

impl ShardingError {
    /// The same error, with the records in this folder.
    pub fn in_folder(mut self, records: &Path) -> ShardingError {
        if let ShardingError::NotDelivered { folder, .. } = &mut self {
            *folder = records.to_owned();
        }
        self
    }
}

impl From<SharedStoreError> for ShardingError {
    fn from(error: SharedStoreError) -> ShardingError {
        ShardingError::Store(error.to_string())
    }
}

/// `10 min`, `1.5 min`, `30 s`.
pub(super) fn format_wait(wait: Duration) -> String {
    let seconds = wait.as_secs_f64();
    if seconds >= 60.0 {
        format!("{} min", (seconds / 6.0).round() / 10.0)
    } else {
        format!("{} s", (seconds * 10.0).round() / 10.0)
    }
}

pub(super) fn join_numbers(numbers: &[u32]) -> String {
    let texts: Vec<String> = numbers.iter().map(u32::to_string).collect();
    texts.join(", ")
}

fn join_groups(groups: &[(String, String)]) -> String {
    let mut text = String::new();
    for (number, (value, members)) in groups.iter().enumerate() {
        let separator = if number == 0 { "" } else { "; " };
        let _ = write!(text, "{separator}{value} on {members}");
    }
    text
}

fn help_without_first(index: u32, url: &str) -> String {
    if index == 0 {
        format!("\n  help: the records are stored; `llmscen merge {url}` makes the report")
    } else {
        String::new()
    }
}
