//! What a run is given from outside.

use crate::run::event::Event;
use crate::run::stop::Stop;
use crate::store::shared_store::Objects;
use llmscen_core::plan::CaseFilter;
use llmscen_core::schedule::shard::Shard;
use llmscen_datasets::CacheDir;
use llmscen_report::Inconclusive;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// What a run is given from outside: no code below reads the environment or the wall clock.
pub struct Context {
    /// Environment variables, for proxies and credentials of AWS.
    pub env: BTreeMap<String, String>,
    /// Source and cache of datasets.
    pub cache: CacheDir,
    /// This program, which also runs as the supervisor of managed servers.
    pub tool: PathBuf,
    /// `--output`: the run folder.
    pub output: Option<PathBuf>,
    /// `--only` and `--skip`, for the manifest: the plan already holds only these cases.
    pub filter: CaseFilter,
    /// `--continue`: the folder of the run that goes on.
    pub continued: Option<PathBuf>,
    /// `--shard`: which requests of the plan this process sends.
    pub shard: Shard,
    /// Overwrite a folder that contains another run.
    pub force: bool,
    /// `--keep-going`: continue a case even if its first requests all fail with the same HTTP status.
    pub keep_going: bool,
    /// How junit.xml shows an inconclusive verdict.
    pub inconclusive: Inconclusive,
    /// The shard that this process is, and where it meets the others; None for a run of one process.
    pub shared: Option<SharedRun>,
    /// Start of the run on the monotonic clock.
    pub origin: Instant,
    /// The same time on the wall clock, in nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// Ends the run.
    pub stop: Stop,
    /// Receives the events of the run.
    pub events: mpsc::Sender<Event>,
}

impl Context {
    /// The same for a round of one process that no display shows.
    pub(crate) fn without_events(&self) -> Context {
        Context {
            env: self.env.clone(),
            cache: self.cache.clone(),
            tool: self.tool.clone(),
            output: self.output.clone(),
            filter: self.filter.clone(),
            continued: self.continued.clone(),
            shard: self.shard,
            force: self.force,
            keep_going: self.keep_going,
            inconclusive: self.inconclusive,
            shared: None,
            origin: self.origin,
            wall_ns: self.wall_ns,
            stop: self.stop.clone(),
            events: mpsc::channel().0,
        }
    }
}

/// Where the shards of a run meet.
#[derive(Clone)]
pub struct SharedRun {
    /// What all shards read and write.
    pub store: Arc<dyn Objects>,
    /// Longest wait for the others.
    pub wait: Duration,
    /// Differs between any two processes.
    pub nonce: String,
    /// Whether `llmscen merge` makes the report, instead of shard 0.
    pub merge_later: bool,
}

impl SharedRun {
    /// Whether this shard makes the report of the run.
    pub fn reports(&self, shard: Shard) -> bool {
        shard.is_first() && !self.merge_later
    }
}
