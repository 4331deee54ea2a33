//! The run manifest (`manifest.json`): what is recorded of a run besides its requests.

use crate::early_stop::EarlyStop;
use crate::hooks::{CommandResult, ProfiledCase};
use crate::local::LocalRound;
use crate::plan::CaseFilter;
use crate::schedule::shard::Shard;
use crate::search::Part as ProbePart;
use crate::target::{ServerEnd, Startup};
use crate::units::Nanos;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The load generator's machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Operating system and release.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// The GPUs that were sampled: `8 x NVIDIA H200`; None if there were none.
    #[serde(default)]
    pub gpu: Option<String>,
    /// Version of their driver.
    #[serde(default)]
    pub gpu_driver: Option<String>,
    /// The CUDA version that the driver supports.
    #[serde(default)]
    pub cuda: Option<String>,
    /// The application clock of their cores: `1980 MHz`, or the lowest and the highest if they differ.
    #[serde(default)]
    pub gpu_clock: Option<String>,
}

/// What is recorded of a run besides its requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Unique id of the run.
    pub run_id: String,
    /// Version of llmscen.
    pub tool_version: String,
    /// Name of the scenario.
    pub name: String,
    /// `labels` of the scenario.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Hex digest of the plan.
    pub plan_id: String,
    /// Seed.
    pub seed: u64,
    /// Start in RFC 3339, UTC: the only reading of the wall clock.
    pub started_at: String,
    /// The same instant in nanoseconds since the Unix epoch, for joining requests with server logs.
    pub started_unix_ns: u64,
    /// End minus start on the monotonic clock, seconds; None while running or after a crash.
    pub elapsed_s: Option<f64>,
    /// The machine.
    pub machine: Machine,
    /// Server header and version reported by each target, by target URL.
    pub targets: BTreeMap<String, String>,
    /// The cases that ran.
    #[serde(flatten)]
    pub filter: CaseFilter,
    /// The shard whose records these are; None if they are those of all shards, or of a run of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Random id of the process of this shard, which its records in the store have too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// Ctrl-C, SIGTERM or a crash interrupted the run.
    pub interrupted: bool,
    /// The error that ended the run.
    pub error: Option<String>,
    /// Cases that failed while others could be measured.
    #[serde(default)]
    pub failed: Vec<FailedCase>,
    /// Names of the served models, by target URL; queried after a 404 response.
    #[serde(default)]
    pub served: BTreeMap<String, Vec<String>>,
    /// The rounds of all cases, in the order in which they ran.
    pub parts: Vec<Part>,
    /// The commands after the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<CommandResult>,
    /// The cases that were sent once more with the profiler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiled: Vec<ProfiledCase>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A case that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailedCase {
    /// Case id.
    pub case: String,
    /// The round that failed or could not begin, from 0.
    #[serde(default)]
    pub round: u32,
    /// The error, in one line.
    pub why: String,
}

/// The record of one round of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Case id.
    pub case: String,
    /// Round, from 0.
    pub round: u32,
    /// Time zero of the round, nanoseconds since the start of the run.
    pub origin_ns: u64,
    /// Start of measuring, nanoseconds since `origin_ns`.
    pub measured_from_ns: u64,
    /// End of sending, nanoseconds since `origin_ns`; None after a crash.
    pub sending_until_ns: Option<u64>,
    /// Why it was interrupted, if it was.
    pub cut_short: Option<String>,
    /// Why it was stopped early; an early stop is not an interruption.
    #[serde(default)]
    pub ending: Option<EarlyStop>,
    /// Dataset rows skipped by `prompt_tokens` or as unusable.
    pub rows_dropped: u64,
    /// Prompts that the run had sent before, because the dataset was exhausted; a session counts once.
    #[serde(default)]
    pub rows_repeated: u64,
    /// The dataset was exhausted before the load ended (`on_exhausted: stop`), and every request until then was sent.
    #[serde(default)]
    pub dataset_ended: bool,
    /// The probe of a capacity search that the round was; None outside of searches.
    #[serde(default)]
    pub probe: Option<ProbePart>,
    /// Health of the worker threads; None after a crash.
    pub vitals: Option<Vitals>,
    /// Startup of the managed server, if it was started for this round.
    #[serde(default)]
    pub startup: Option<Startup>,
    /// Startup time of the managed server that the round ran on, even if it was started for an earlier round.
    #[serde(default)]
    pub served_ready: Option<Nanos>,
    /// Number of the managed server's start that the round ran on, from 1 over the run; None without a managed
    /// server, and in older runs.
    #[serde(default)]
    pub server_start: Option<u32>,
    /// How the managed server exited by itself, if it did.
    #[serde(default)]
    pub server_end: Option<ServerEnd>,
    /// The record of the local model.
    #[serde(default)]
    pub local: Option<LocalRound>,
    /// Why expected telemetry is missing.
    #[serde(default, rename = "untold")]
    pub missing_telemetry: Vec<String>,
    /// The shards that sent the round, ordered by number; empty for a run of one process.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "shards_of_manifest"
    )]
    pub shards: Vec<ShardPart>,
}

/// The journal, which is not human-readable, has no such field: a shard's journal describes that shard alone.
fn shards_of_manifest<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ShardPart>, D::Error> {
    if from.is_human_readable() {
        Vec::deserialize(from)
    } else {
        Ok(Vec::new())
    }
}

/// What one shard of a distributed run contributes to a round, besides its requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardPart {
    /// Number of the shard, from 0.
    pub index: u32,
    /// Name of its host.
    pub host: String,
    /// Its clock minus that of shard 0, as far as known, nanoseconds.
    pub offset_ns: i64,
    /// Bound on the error of `offset_ns`, nanoseconds.
    pub bound_ns: u64,
    /// Source of the offset: `boot id`, `kernel` or `exchange`.
    pub offset_source: String,
    /// Whether it read time zero too late to open its connections, and therefore sent nothing.
    pub late: bool,
    /// By how much its clock stepped during the round against that of shard 0, if it did, nanoseconds.
    pub clock_step_ns: Option<i64>,
    /// Requests that it sent or dropped, warm-up included.
    pub requests: u64,
    /// Health of its worker threads; None if the shard was lost.
    pub vitals: Option<Vitals>,
    /// Why its rows are missing, if they are.
    pub lost: Option<String>,
}

impl Part {
    /// Whether there are several rounds, each on a separate start of the managed server.
    pub fn restarted(parts: &[Part]) -> bool {
        let starts: BTreeSet<u32> = parts.iter().filter_map(|part| part.server_start).collect();
        parts.len() > 1 && starts.len() == parts.len()
    }
}

/// Health of the load generator during one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vitals {
    /// Lateness of the 10 ms ticks over all worker threads, p99, milliseconds.
    pub stall_ms_p99: f64,
    /// The maximum, milliseconds.
    pub stall_ms_max: f64,
    /// Lower 95 % confidence bound of that p99, milliseconds; None for too few ticks, and in older runs.
    pub stall_ms_sure: Option<f64>,
    /// The stalls of each worker thread; None in older runs.
    #[serde(default)]
    pub stalls: Option<Vec<WorkerStalls>>,
    /// CPU time of each worker thread ÷ wall time, 0..=1.
    pub cpu_shares: Vec<f64>,
    /// Peak resident memory, bytes: since the start of the process, or over the batches of a round with a local model.
    pub memory_peak: u64,
    /// Token events per second of wall time.
    pub events_per_s: f64,
    /// Bytes received per second of wall time.
    pub bytes_in_per_s: f64,
    /// Bytes sent per second of wall time.
    pub bytes_out_per_s: f64,
}

/// The stalls of one worker thread during one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStalls {
    /// Mean lateness at a random instant, milliseconds: Σ length² / 2 over all stalls ÷ time.
    pub frozen_ms: f64,
    /// Share of the time in which the thread was stalled: Σ length ÷ time.
    pub shut: f64,
    /// Ticks that both are computed from.
    pub ticks: u64,
    /// Stalls of 1 ms or more.
    pub count: u64,
    /// The longest of them, at most [`WorkerStalls::KEPT`], ordered by end.
    pub longest: Vec<Stall>,
}

impl WorkerStalls {
    /// Maximum number of recorded stalls per worker; the sums cover all.
    pub const KEPT: usize = 1000;
}

/// A span in which a worker thread read nothing. Nanoseconds since the round's time zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub struct Stall {
    /// Begin.
    pub from: u64,
    /// End: the next tick.
    pub to: u64,
    /// CPU time of the thread up to the end of the stall, in which it may have read waiting data.
    pub busy: u64,
    /// CPU time from the end of the stall to the first tick that was on time, in which it may still have read waiting
    /// data.
    pub after: u64,
}

impl From<[u64; 4]> for Stall {
    fn from([from, to, busy, after]: [u64; 4]) -> Stall {
        Stall {
            from,
            to,
            busy,
            after,
        }
    }
}

impl From<Stall> for [u64; 4] {
    fn from(stall: Stall) -> [u64; 4] {
        [stall.from, stall.to, stall.busy, stall.after]
    }
}
