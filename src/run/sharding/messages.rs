//! The objects by which shards communicate: small JSON, read by other builds too, so that unknown fields are ignored.

use crate::run::sharding::ShardDone;
use crate::run::sharding::clock::{ClockOffset, ClockReading};
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::manifest::{Machine, Part};
use llmscen_core::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The resolved plan, written by shard 0.
pub const PLAN: &str = "plan.yaml";
/// The baseline that objectives of the plan refer to, written by shard 0.
pub const BASELINE: &str = "baseline.json";
/// The manifest at the start of the run, written by shard 0.
pub const MANIFEST: &str = "manifest.json";

/// The facts of a shard's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Host name.
    pub host: String,
    /// Id of the running kernel and its clocks; None where the system has none.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// Cores that this process may use.
    pub cores: usize,
}

impl HostFacts {
    /// The facts of this machine.
    pub fn read(machine: &Machine) -> HostFacts {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        // Containers can have monotonic clocks of their own (time_namespaces(7)).
        let clocks = fs::read_link("/proc/self/ns/time").unwrap_or_default();
        HostFacts {
            host: machine.host.clone(),
            boot_id: boot.map(|boot| format!("{} {}", boot.trim(), clocks.display())),
            cores: machine.cores,
        }
    }
}

/// `hello/I`: shard I has started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub nonce: String,
    pub shards: u32,
    pub version: String,
    pub plan_id: String,
    pub digest: String,
    pub facts: HostFacts,
    pub clock: ClockReading,
    /// Why it could not prepare.
    #[serde(default)]
    pub failed: Option<String>,
}

/// `members`: what shard 0 found in all hellos.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Members {
    pub nonce: String,
    /// By shard; empty after an error.
    pub members: Vec<Member>,
    #[serde(default)]
    pub error: Option<String>,
}

/// A shard of the group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its machine.
    pub facts: HostFacts,
    /// Its clocks when it joined.
    pub(super) clock: ClockReading,
}

/// The round that the group runs next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NextRound {
    /// Index of the case in the plan.
    pub case: usize,
    /// Round of the case, from 0.
    pub round: u32,
    /// Size of a probe: its share of the full length; None outside searches.
    #[serde(default)]
    pub probe_share: Option<f64>,
    /// First dataset row of each traffic class.
    #[serde(default)]
    pub row_marks: Vec<u64>,
}

/// How a run ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Every round ran, or the run was stopped as requested.
    pub success: bool,
    /// Why it ended, for the other shards.
    #[serde(default)]
    pub reason: String,
}

/// `next/K`: shard 0 announces round K, or the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Next {
    pub nonce: String,
    #[serde(default)]
    pub round: Option<NextRound>,
    #[serde(default)]
    pub end: Option<RunEnd>,
}

/// `ready/K/I`: shard I has prepared round K.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ready {
    pub nonce: String,
    /// Time to open its connections.
    pub lead_time: Nanos,
    /// When this was written, on the clock of shard 0.
    #[serde(default)]
    pub sent: Nanos,
}

/// `go/K`: shard 0 starts round K, or ends the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Go {
    pub nonce: String,
    /// Time zero on the clock of shard 0.
    #[serde(default)]
    pub zero: Nanos,
    /// That clock.
    #[serde(default)]
    pub clock: ClockReading,
    #[serde(default)]
    pub end: Option<RunEnd>,
}

/// `clock/K/I/J`: the J-th message of shard I to shard 0, and `clock/answer/K/I/J`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClockMessage {
    /// When it was sent, on the sender's clock.
    pub sent: Nanos,
    /// In an answer: when the message was received, on the clock of shard 0.
    #[serde(default)]
    pub received: Nanos,
    /// The sender's clocks.
    pub clock: ClockReading,
}

/// Counts of one shard in the current round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundCounts {
    /// Requests that ended.
    pub done: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Token events received.
    pub events: u64,
    /// Counts of each watched objective, in the order of the case.
    pub objectives: Vec<ObjectiveCounts>,
    /// Time of the counts since time zero.
    pub at: Nanos,
}

impl RoundCounts {
    /// The sums over shards.
    pub fn sum<'a>(counts: impl IntoIterator<Item = &'a RoundCounts>) -> RoundCounts {
        counts
            .into_iter()
            .fold(RoundCounts::default(), |sum, counts| RoundCounts {
                done: sum.done + counts.done,
                errors: sum.errors + counts.errors,
                in_flight: sum.in_flight + counts.in_flight,
                events: sum.events + counts.events,
                objectives: Vec::new(),
                at: sum.at.max(counts.at),
            })
    }
}

/// Counts of one objective, since the start of the round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectiveCounts {
    /// Requests that the objective was checked on.
    pub samples: u64,
    /// Those of them beyond its threshold.
    pub breaking: u64,
}

/// `heartbeat/I`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Heartbeat {
    pub nonce: String,
    /// Number of the heartbeat: a shard is alive if it changes.
    pub number: u64,
    /// The round that the shard is running.
    #[serde(default)]
    pub round: Option<u32>,
    #[serde(default)]
    pub counts: RoundCounts,
}

/// `stop/K/I`: why a round, or the run, ends early.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopReason {
    /// The shard that ends it.
    pub index: u32,
    /// Its host.
    pub host: String,
    /// The reason in words.
    pub reason: String,
    /// An early stop of this round; any other reason ends the run.
    pub early_stop: Option<EarlyStop>,
    /// A shard that was lost.
    pub lost: Option<u32>,
    /// Whether a signal interrupted the shard.
    pub interrupted: bool,
}

/// `done/K/I`: shard I has delivered round K.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// The shard's process.
    pub nonce: String,
    /// Its host.
    pub host: String,
    /// Its record of the round.
    pub part: Part,
    /// Number of its rows.
    pub row_count: u64,
    /// Its files, by name (`rows`).
    pub files: BTreeMap<String, DeliveredFile>,
    /// Its clock.
    pub offset: ClockOffset,
    /// Whether it read time zero too late, and therefore sent nothing.
    #[serde(default)]
    pub late: bool,
    /// By how much its clock stepped during the round.
    #[serde(default)]
    pub clock_step_ns: Option<i64>,
}

impl Delivery {
    /// What shard `index` delivered, with local copies of its files.
    pub fn received(self, index: u32, files: Vec<(String, PathBuf)>) -> ShardDone {
        ShardDone {
            index,
            host: self.host,
            part: self.part,
            row_count: self.row_count,
            files,
            offset: self.offset,
            late: self.late,
            clock_step_ns: self.clock_step_ns,
        }
    }
}

/// A file of a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredFile {
    /// Its object.
    pub key: String,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}
