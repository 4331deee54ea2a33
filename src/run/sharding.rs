//! The shards of a distributed run as a group: they join, start each round at a common time zero, watch each other,
//! and deliver their records to shard 0. They communicate through small objects in a shared store, and never while a
//! request waits for them.

mod access;
mod barrier;
pub mod clock;
pub(crate) mod delivery;
pub mod error;
mod exchange;
mod heartbeat;
pub(crate) mod join;
pub mod messages;
pub mod plan_digest;
#[cfg(test)]
mod tests;

pub use crate::run::sharding::clock::{
    ClockOffset, ClockReading, GroupClock, OffsetSource, SystemClock,
};
pub use crate::run::sharding::error::ShardingError;
pub use crate::run::sharding::messages::{
    HostFacts, NextRound, ObjectiveCounts, RoundCounts, RunEnd, StopReason,
};
pub use crate::run::sharding::plan_digest::{ComparedRequest, PlanDigest, compared_numbers};

use crate::run::sharding::access::StoreAccess;
use crate::run::sharding::clock::OffsetInterval;
use crate::run::sharding::heartbeat::Monitor;
use crate::run::sharding::messages::Member;
use crate::run::stop::Stop;
use crate::store::shared_store::Objects;
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::manifest::Part;
use llmscen_core::schedule::shard::Shard;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
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

/// When a round starts for all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStart {
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

/// Reads the newest counts of the round, by shard.
pub type GroupViewer = Arc<dyn Fn() -> BTreeMap<u32, RoundCounts> + Send + Sync>;

/// A shard and its connection to the others.
pub struct ShardGroup {
    access: StoreAccess,
    monitor: Arc<Monitor>,
    thread: Option<JoinHandle<()>>,
    /// All shards; empty until they have joined.
    members: Vec<Member>,
    /// Number of the next round.
    next: u32,
    /// The round was announced, but has not started.
    announced: bool,
    /// The reason that ended the run is part of a round's record.
    is_stop_recorded: bool,
    /// The group has ended, as far as this shard is concerned.
    ended: bool,
    round: Option<RunningRound>,
    /// Rounds in which a shard read time zero too late.
    late_rounds: u32,
    notes: Vec<String>,
}

/// The round that was started last.
#[derive(Clone, Copy, Debug)]
struct RunningRound {
    number: u32,
    late: bool,
    offset: ClockOffset,
    /// Result of the exchange of messages before the round.
    interval: OffsetInterval,
    /// The clocks of this shard at the barrier.
    clock: ClockReading,
}

impl ShardGroup {
    /// Joins the group: waits for all shards and checks that they run the same thing. Heartbeats begin here.
    ///
    /// # Errors
    /// Shards are missing, differ, failed to prepare or were started twice; a signal came; or the store cannot be used.
    pub fn join(settings: GroupSettings) -> Result<ShardGroup, ShardingError> {
        join::join(settings)
    }

    /// Reports that this shard could not prepare, so that the others end at once. For a shard that has not joined.
    pub fn report_failure(settings: &GroupSettings, reason: &str) {
        join::report_failure(settings, reason);
    }

    /// Agrees on the next round: shard 0 passes it, or None if the run is over; the others pass None. Returns None if
    /// the run is over, also because it was stopped.
    ///
    /// # Errors
    /// Shard 0 was lost or ended with an error, or the store cannot be used.
    pub fn agree_on_next(
        &mut self,
        next: Option<NextRound>,
    ) -> Result<Option<NextRound>, ShardingError> {
        if self.access.settings.shard.is_first() {
            self.announce_next(next)
        } else {
            self.await_next()
        }
    }

    /// The barrier: waits until all shards have prepared the round. `lead_time`: time to open the connections of this
    /// shard.
    ///
    /// # Errors
    /// A shard is missing or lost, the run was stopped, or the store cannot be used.
    pub fn start_round(&mut self, lead_time: Duration) -> Result<GroupStart, ShardingError> {
        self.pass_barrier(lead_time)
    }

    /// From now on heartbeats carry `counts`, and a stop of the round or the run on any shard presses `stop`.
    /// `decide`: on shard 0, called after each collection of heartbeats with the counts of all shards, its own
    /// included.
    pub fn watch_round(&self, stop: Stop, counts: Arc<Mutex<RoundCounts>>, decide: Option<Decide>) {
        self.monitor.watch(stop, counts, decide);
    }

    /// The newest counts of the round, for another thread.
    pub fn viewer(&self) -> GroupViewer {
        let monitor = self.monitor.clone();
        Arc::new(move || monitor.counts())
    }

    /// Delivers the records of the round. Retries for up to `--wait`.
    ///
    /// # Errors
    /// The store cannot be used; the records remain in the local folder.
    pub fn finish_round(&mut self, output: &RoundOutput) -> Result<(), ShardingError> {
        self.monitor.end_watch();
        match &self.round {
            Some(round) => self.deliver_or_explain(round, output),
            None => Ok(()),
        }
    }

    /// On shard 0: waits until all shards have delivered the round and copies their files to `folder`, as
    /// `rows-3.parquet`. None on the other shards. A shard whose records are missing ends the run.
    ///
    /// # Errors
    /// The store or the folder cannot be used.
    pub fn gather_round(&mut self, folder: &Path) -> Result<Option<GroupRound>, ShardingError> {
        let Some(round) = self.round.filter(|_| self.access.settings.shard.is_first()) else {
            return Ok(None);
        };
        let gathered = self.gather(&round, folder)?;
        if gathered.done.iter().any(|shard| shard.late) {
            self.late_rounds += 1;
        }
        let ends_run = |stop: &StopReason| stop.early_stop.is_none();
        self.is_stop_recorded |=
            !gathered.missing.is_empty() || gathered.stops.iter().any(ends_run);
        if let Some(missing) = gathered.missing.first()
            && self.monitor.run_stop().is_none()
        {
            self.monitor.stop_run(&missing.reason);
        }
        Ok(Some(gathered))
    }

    /// Why this shard drained the round before its end, unless by an early stop.
    pub fn interruption(&self) -> Option<String> {
        self.monitor.interruption()
    }

    /// Whether the shards run on several hosts.
    pub fn spans_hosts(&self) -> bool {
        let mut hosts = self.members.iter().map(|member| &member.facts.host);
        let first = hosts.next();
        hosts.any(|host| Some(host) != first)
    }

    /// Notes for the report.
    pub fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Ends the group. On shard 0, the others end too; on another one, only if it failed.
    pub fn leave(mut self, end: RunEnd) {
        self.end(&end);
    }

    fn end(&mut self, end: &RunEnd) {
        if self.access.settings.shard.is_first() {
            self.announce_end(end);
        } else if !end.success && !self.ended && self.monitor.check_stop().is_ok() {
            self.monitor.stop_run(&end.reason);
        }
        self.ended = true;
        if let Some(thread) = self.thread.take()
            && self.monitor.leave()
        {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }

    /// Number of shards that exchange messages with shard 0.
    fn exchanging_shards(&self) -> usize {
        let source = |member: &Member| self.source_of(member);
        let exchanges = |member: &&Member| source(member) == OffsetSource::Exchange;
        self.members.iter().skip(1).filter(exchanges).count()
    }

    /// How the clock of a shard is related to that of shard 0.
    fn source_of(&self, member: &Member) -> OffsetSource {
        match self.members.first() {
            Some(first) => OffsetSource::between(first, member),
            None => OffsetSource::Exchange,
        }
    }
}

impl Drop for ShardGroup {
    /// An error on this shard ends the run for the others.
    fn drop(&mut self) {
        if !self.ended {
            self.end(&RunEnd {
                success: false,
                reason: "it ended with an error".into(),
            });
        }
    }
}
