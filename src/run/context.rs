//! What a run is given from outside.

use crate::run::event::Event;
use crate::run::stop::Stop;
use llmscen_datasets::CacheDir;
use llmscen_report::Inconclusive;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;

/// What a run is given from outside: nothing below reads the environment or the wall clock.
pub struct Context {
    /// Environment variables, for proxies.
    pub env: BTreeMap<String, String>,
    /// Where datasets are downloaded from and kept.
    pub cache: CacheDir,
    /// This program, which watches over servers under management as a process of its own.
    pub tool: PathBuf,
    /// `--output`: the run folder itself.
    pub output: Option<PathBuf>,
    /// `--only`, for the record: the plan holds the chosen cases alone.
    pub only: Vec<String>,
    /// Write into a folder that holds another run.
    pub force: bool,
    /// `--keep-going`: a case goes on though its first requests all fail with the same HTTP status.
    pub keep_going: bool,
    /// What an inconclusive ruling is in junit.xml.
    pub inconclusive: Inconclusive,
    /// The run's start on the monotonic clock.
    pub origin: Instant,
    /// The same instant on the wall clock, nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// The switch.
    pub stop: Stop,
    /// Who watches.
    pub events: mpsc::Sender<Event>,
}
