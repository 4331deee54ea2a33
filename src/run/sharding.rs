//! The shards of a distributed run as a group: they join, start each round at a common time zero, watch each other, and deliver
//! their records to shard 0. They communicate through small objects in a shared store, and never while a request waits for them.

pub mod clock;
pub mod error;
pub mod messages;
pub mod plan_digest;

pub use crate::run::sharding::clock::{
    ClockOffset, ClockReading, GroupClock, OffsetSource, SystemClock,
};
pub use crate::run::sharding::error::ShardingError;
pub use crate::run::sharding::messages::{
    HostFacts, NextRound, ObjectiveCounts, RoundCounts, RunEnd, StopReason,
};
pub use crate::run::sharding::plan_digest::{ComparedRequest, PlanDigest, compared_numbers};

use crate::run::execution::stop::Stop;
use crate::store::shared_store::Objects;
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::manifest::Part;
use llmscen_core::schedule::shard::Shard;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a shard needs to join its group.
pub struct GroupSettings {
    /// This shard.
    pub shard: Shard,
    /// The objects of the run.
    pub store: Arc<dyn Objects>,
    /// `--wait`: the longest wait for the other shards.
    pub wait: Duration,
    /// A random text that identifies this process.
    pub nonce: String,
    /// The clock of the run.
    pub clock: Arc<dyn GroupClock>,
    /// Ends the run.
    pub stop: Stop,
    /// This machine.
    pub hello: HostFacts,
    /// The plan and its first requests.
    pub plan: PlanDigest,
}

/// When a round starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundStart {
    /// Number of the round over all cases, from 0.
    pub number: u32,
    /// Time zero on the clock of this shard.
    pub zero: Nanos,
    /// It is too near to open the connections: send nothing in this round.
    pub late: bool,
}

/// Decides on shard 0 whether a round ends early, from the newest counts of all shards.
pub type Decide = Box<dyn FnMut(&BTreeMap<u32, RoundCounts>) -> Option<EarlyStop> + Send>;

/// What a shard delivers after a round.
pub struct RoundOutput {
    /// Files with their names in the store: `rows`, `telemetry`, `bodies`.
    pub files: Vec<(String, PathBuf)>,
    /// Number of rows.
    pub row_count: u64,
    /// Greatest request number.
    pub greatest: Option<u64>,
    /// First unused dataset row of each traffic class.
    pub row_marks: Vec<u64>,
    /// The record of the round.
    pub part: Part,
}

/// A round, gathered from all shards.
#[derive(Debug, Default)]
pub struct GroupRound {
    /// The shards that delivered, ordered by number.
    pub done: Vec<ShardDone>,
    /// The others.
    pub missing: Vec<MissingShard>,
    /// Why the round ended early.
    pub stops: Vec<StopReason>,
}

/// What one shard delivered.
#[derive(Debug)]
pub struct ShardDone {
    /// The shard.
    pub index: u32,
    /// Its host.
    pub host: String,
    /// Its record of the round.
    pub part: Part,
    /// Number of its rows.
    pub row_count: u64,
    /// Its greatest request number.
    pub greatest: Option<u64>,
    /// First unused dataset row of each traffic class.
    pub row_marks: Vec<u64>,
    /// Local copies of its files, by name.
    pub files: Vec<(String, PathBuf)>,
    /// Its clock.
    pub offset: ClockOffset,
    /// Whether it read time zero too late, and therefore sent nothing.
    pub late: bool,
    /// By how much its clock stepped during the round, nanoseconds.
    pub clock_step_ns: Option<i64>,
}

/// A shard whose records are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingShard {
    /// The shard.
    pub index: u32,
    /// Its host.
    pub host: String,
    /// Why, as a sentence that names the shard.
    pub reason: String,
}

/// The newest state of all shards.
#[derive(Clone, Debug, Default)]
pub struct GroupView {
    /// Number of shards.
    pub count: u32,
    /// Newest counts of the round, by shard.
    pub counts: BTreeMap<u32, RoundCounts>,
    /// Shards without a heartbeat.
    pub lost: Vec<u32>,
}

/// A shard and its connection to the others.
pub struct ShardGroup {
    settings: GroupSettings,
}

impl ShardGroup {
    /// Joins the group: waits for all shards and checks that they run the same thing. Heartbeats begin here.
    ///
    /// # Errors
    /// Shards are missing, differ, failed to prepare or were started twice; a signal came; or the store cannot be used.
    pub fn join(settings: GroupSettings) -> Result<ShardGroup, ShardingError> {
        Ok(ShardGroup { settings })
    }

    /// Reports that this shard could not prepare, so that the others end at once. For a shard that has not joined.
    pub fn report_failure(settings: &GroupSettings, reason: &str) {
        let _ = (settings, reason);
    }

    /// Agrees on the next round: shard 0 passes it, or None if the run is over; the others pass None. Returns None if the run is over,
    /// also because it was stopped ([`ShardGroup::stop_reasons`]).
    ///
    /// # Errors
    /// Shard 0 was lost or ended with an error, or the store cannot be used.
    pub fn agree_on_next(
        &mut self,
        next: Option<NextRound>,
    ) -> Result<Option<NextRound>, ShardingError> {
        Ok(next)
    }

    /// The barrier: waits until all shards have prepared the round. `lead_time`: time to open the connections of this shard.
    ///
    /// # Errors
    /// A shard is missing or lost, the run was stopped, or the store cannot be used.
    pub fn start_round(&mut self, lead_time: Duration) -> Result<RoundStart, ShardingError> {
        let _ = lead_time;
        Err(ShardingError::Interrupted)
    }

    /// From now on heartbeats carry `counts`, and a stop of the round or the run on any shard presses `stop`. `decide`: on shard 0.
    pub fn watch_round(
        &self,
        stop: Stop,
        counts: Arc<Mutex<RoundCounts>>,
        decide: Option<Decide>,
    ) {
        let _ = (stop, counts, decide);
    }

    /// The newest state of all shards.
    pub fn view(&self) -> GroupView {
        GroupView::default()
    }

    /// Delivers the records of the round. Retries for up to `--wait`.
    ///
    /// # Errors
    /// The store cannot be used; the records remain in the local folder.
    pub fn finish_round(&mut self, output: &RoundOutput) -> Result<(), ShardingError> {
        let _ = output;
        Ok(())
    }

    /// On shard 0: waits until all shards have delivered the round and copies their files to `folder`, as `rows-3.parquet`.
    /// None on the other shards.
    ///
    /// # Errors
    /// The store or the folder cannot be used.
    pub fn gather_round(&mut self, folder: &Path) -> Result<Option<GroupRound>, ShardingError> {
        let _ = folder;
        Ok(None)
    }

    /// Why rounds or the run ended early, so far.
    pub fn stop_reasons(&self) -> Vec<StopReason> {
        Vec::new()
    }

    /// Host of a shard.
    pub fn host(&self, index: u32) -> &str {
        let _ = index;
        ""
    }

    /// Whether the shards run on several hosts.
    pub fn spans_hosts(&self) -> bool {
        false
    }

    /// Notes for the report.
    pub fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends the group. On shard 0, the others end too.
    pub fn leave(self, end: RunEnd) {
        drop((self.settings, end));
    }
}
