//! What is known of a run besides its rows: `manifest.json`.

use crate::early_stop::Ending;
use crate::local::LocalPart;
use crate::search::Part as ProbePart;
use crate::target::{ServerEnd, Startup};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The machine that produced the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Operating system and its release.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Processor's name.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
}

/// What is known of a run besides its rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Unique id of the run.
    pub run_id: String,
    /// Version of the tool.
    pub tool_version: String,
    /// Name of the scenario.
    pub name: String,
    /// Hex digest of the plan.
    pub plan_id: String,
    /// Seed.
    pub seed: u64,
    /// Start in RFC 3339, UTC: the one reading of the wall clock.
    pub started_at: String,
    /// The same instant in nanoseconds since the Unix epoch; rows join server logs through it.
    pub started_unix_ns: u64,
    /// End minus start on the monotonic clock, seconds; None while running or after a crash.
    pub elapsed_s: Option<f64>,
    /// The machine.
    pub machine: Machine,
    /// What the target reported of itself (server header, version), by target URL.
    pub targets: BTreeMap<String, String>,
    /// `--only`: the texts that the ids of the chosen cases hold; empty: every case ran.
    #[serde(default)]
    pub only: Vec<String>,
    /// Ctrl-C, SIGTERM or a crash cut the run short.
    pub interrupted: bool,
    /// Why the run could not go on, where something else cut it short.
    pub error: Option<String>,
    /// The cases that could not be measured to their end while others could, and why.
    #[serde(default)]
    pub failed: Vec<FailedCase>,
    /// The names of the models that a target serves, by target URL; queried where a request was answered with 404.
    #[serde(default)]
    pub served: BTreeMap<String, Vec<String>>,
    /// The parts of the run, in the order in which they ran.
    pub parts: Vec<Part>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// A case that could not be measured to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailedCase {
    /// Case id.
    pub case: String,
    /// What happened, in one line.
    pub why: String,
}

/// One round of one case: when it ran, and what the tool saw of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Case id.
    pub case: String,
    /// Round, from 0.
    pub round: u32,
    /// Its time zero, in nanoseconds after the run's start.
    pub origin_ns: u64,
    /// First instant of measuring, in nanoseconds after `origin_ns`.
    pub measured_from_ns: u64,
    /// When sending ended, likewise; None after a crash.
    pub sending_until_ns: Option<u64>,
    /// Why it ended before its plan was done, if so.
    pub cut_short: Option<String>,
    /// Why it ended so by its own decision; that is no cut.
    #[serde(default)]
    pub ending: Option<Ending>,
    /// Dataset rows left out by `prompt_tokens` or as unusable.
    pub rows_dropped: u64,
    /// Prompts sent that the run had sent before, since the data is shorter: sessions count once.
    #[serde(default)]
    pub rows_repeated: u64,
    /// The dataset ended before the load did (`on_exhausted: stop`), and every request before that was sent.
    #[serde(default)]
    pub dataset_ended: bool,
    /// How it was a probe of a search; None where it was none.
    #[serde(default)]
    pub probe: Option<ProbePart>,
    /// What the worker threads saw of themselves; None after a crash.
    pub vitals: Option<Vitals>,
    /// How the managed server came up, where it was started for this part.
    #[serde(default)]
    pub startup: Option<Startup>,
    /// After how long the managed server that it was played on had been ready, whichever part that was started for.
    #[serde(default)]
    pub served_ready: Option<Nanos>,
    /// Which start of a managed server it was played on, counted over the run from 1; None without one, and in older runs.
    #[serde(default)]
    pub server_start: Option<u32>,
    /// How the managed server ended by itself, if so.
    #[serde(default)]
    pub server_end: Option<ServerEnd>,
    /// What a model in this process did.
    #[serde(default)]
    pub local: Option<LocalPart>,
    /// Why telemetry that could be expected is missing.
    #[serde(default)]
    pub untold: Vec<String>,
}

impl Part {
    /// Whether these parts of one case are several, each on a start of the managed server of its own.
    pub fn restarted(parts: &[Part]) -> bool {
        let starts: BTreeSet<u32> = parts.iter().filter_map(|part| part.server_start).collect();
        parts.len() > 1 && starts.len() == parts.len()
    }
}

/// The tool's own health during one part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vitals {
    /// Lateness of the 10 ms ticker over all worker threads, p99, milliseconds.
    pub stall_ms_p99: f64,
    /// The same, greatest.
    pub stall_ms_max: f64,
    /// What more than 1 % of the ticks are late by at 95 % confidence, milliseconds; None for too few ticks, or an earlier run.
    pub stall_ms_sure: Option<f64>,
    /// The stalls of each worker thread; None of an earlier run, which knows the figures above alone.
    #[serde(default)]
    pub stalls: Option<Vec<WorkerStalls>>,
    /// CPU time of each worker thread over wall time, 0..=1.
    pub cpu_shares: Vec<f64>,
    /// Resident memory at its highest, bytes: since the process began, or of a round with a model in this process, of its batches.
    pub memory_peak: u64,
    /// Token events per second of wall time.
    pub events_per_s: f64,
    /// Bytes received per second of wall time.
    pub bytes_in_per_s: f64,
    /// Bytes sent per second of wall time.
    pub bytes_out_per_s: f64,
}

/// The stalls of one worker thread during one part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStalls {
    /// Mean lateness at a random instant, milliseconds: the sum of length² / 2 over all stalls, per time.
    pub frozen_ms: f64,
    /// Share of the time in which it was stalled: the sum of all lengths, per time.
    pub shut: f64,
    /// Ticks that both are taken from.
    pub ticks: u64,
    /// Stalls of 1 ms or more.
    pub count: u64,
    /// The longest of them, at most [`WorkerStalls::KEPT`], in the order of their ends.
    pub longest: Vec<Stall>,
}

impl WorkerStalls {
    /// Stalls that are kept of a worker: the sums are over all.
    pub const KEPT: usize = 1000;
}

/// A span in which a worker thread read nothing. In nanoseconds after the part's time zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub struct Stall {
    /// Its begin.
    pub from: u64,
    /// Its end: when the ticker ran again.
    pub to: u64,
    /// For how long before its end the thread had the processor: it may have read what was waiting by then.
    pub busy: u64,
    /// For how long it had the processor from its end until the first tick that was on time: it may still have read it then.
    pub after: u64,
}

impl From<[u64; 4]> for Stall {
    fn from([from, to, busy, after]: [u64; 4]) -> Stall {
        Stall { from, to, busy, after }
    }
}

impl From<Stall> for [u64; 4] {
    fn from(stall: Stall) -> [u64; 4] {
        [stall.from, stall.to, stall.busy, stall.after]
    }
}
