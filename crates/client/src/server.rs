//! Servers under management: started, watched and stopped with all that they started, whatever becomes of this process.
//!
//! ```text
//! llmscen ── stdin: the order, then "stop", or the end of llmscen ──▶ llmscen guard ──▶ the server and its descendants
//!         ◀─ stdout: spawned, exited, left ─────────────────────────        (their subreaper)
//! ```
//! The guard is this program again, as a process of its own: it outlives a panic or a SIGKILL of the other one by just as long as
//! stopping the server takes.

mod error;
mod handle;
mod log;
mod ready;
pub mod supervisor;
mod tree;

pub use error::ServerError;
pub use handle::{Ended, Server};
pub use log::{redact as redact_log, tail};
pub use ready::{Came, Not, Wanted, answers, ready};

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Killed processes are waited for as long at the most: one that a broken disk or driver holds must not hold the run.
const HARD: Duration = Duration::from_secs(5);

/// What a guard is told first, as one line of JSON on its stdin: never as arguments, which anybody may read.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables over those of the guard.
    pub env: Vec<(String, String)>,
    /// Its working folder.
    pub cwd: Option<String>,
    /// The file that its output is appended to.
    pub log: PathBuf,
    /// How long it may take to end, in nanoseconds.
    pub grace_ns: u64,
}

/// What a guard says, one line of JSON each. Instants are those of the system's monotonic clock, which all processes share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    /// The server has its process: its id, when the system was asked for it, and when it was there.
    Spawned { pid: u32, asked_ns: u64, at_ns: u64 },
    /// It has none, and why.
    Failed { why: String },
    /// It ended: how, and when.
    Exited { how: String, at_ns: u64 },
    /// The guard's work is over; processes that not even SIGKILL ended.
    Left { pids: Vec<u32> },
}

/// The monotonic clock.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The instant of a reading of the monotonic clock.
fn instant(at_ns: u64) -> Instant {
    let (now, now_ns) = (Instant::now(), monotonic_ns());
    now.checked_sub(Duration::from_nanos(now_ns.saturating_sub(at_ns))).unwrap_or(now)
}
