//! Servers under management: started, watched and stopped with all that they started, whatever becomes of this process.
//!
//! ```text
//! llmscen ── stdin: the order, then "stop", or the end of llmscen ──▶ llmscen guard ──▶ the server and its descendants
//!         ◀─ stdout: spawned, exited, left ─────────────────────────        (their subreaper)
//! ```
//! The guard is this program again, as a process of its own: it outlives a panic or a SIGKILL of the other one by just as long as
//! stopping the server takes.

pub use handle::{Ended, Server};
pub use log::{redact as redact_log, tail};
pub use ready::{NotReady, ReadinessProbe, ReadyTimes, answers, ready};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;

mod handle;
mod log;
mod ready;
pub mod supervisor;

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

/// Why a server under management does not serve. Log lines are those of its log, secrets removed.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The process that watches over it cannot be had.
    #[error("cannot start the process that watches over the server: {0}")]
    Guard(io::Error),
    /// Its log cannot be written.
    #[error("cannot write the server's log {path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its program cannot be started.
    #[error("cannot start the server `{program}`: {why}\n  is `target.server.command` right, and the program in the PATH?")]
    Start {
        /// The program.
        program: String,
        /// Why.
        why: String,
    },
    /// Somebody else is there.
    #[error(
        "something answers already at {address}, where `target.server` is to listen: the run would measure that\n  stop it, or take another port"
    )]
    Taken {
        /// The address.
        address: String,
    },
    /// It ended before it was ready.
    #[error("the server ended {} after its start, before it was ready: {how}{}", seconds(*after_s), said(log, file))]
    Early {
        /// How it ended.
        how: String,
        /// Seconds that it lived.
        after_s: f64,
        /// The last lines of its log.
        log: Vec<String>,
        /// Its log.
        file: PathBuf,
    },
    /// It was not ready in time.
    #[error(
        "the server was not ready within {}: {what}; `target.server.ready.timeout` says how long it may take{}",
        seconds(*timeout_s), said(log, file)
    )]
    Late {
        /// What was waited for, and what came instead.
        what: String,
        /// Seconds that it had.
        timeout_s: f64,
        /// The last lines of its log.
        log: Vec<String>,
        /// Its log.
        file: PathBuf,
    },
    /// It ended while it was needed.
    #[error("the server exited during the case `{case}`: {how}{}", said(log, file))]
    Ended {
        /// The case.
        case: String,
        /// How it ended.
        how: String,
        /// The last lines of its log.
        log: Vec<String>,
        /// Its log.
        file: PathBuf,
    },
}

/// A span as short as it can be: `12 ms`, `0.7 s`, `30 s`.
fn seconds(secs: f64) -> String {
    if secs < 0.1 {
        return format!("{:.0} ms", secs * 1e3);
    }
    let text = format!("{secs:.1}");
    format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
}

fn said(log: &[String], file: &std::path::Path) -> String {
    if log.is_empty() {
        return format!("\n  its log {} is empty", file.display());
    }
    let lines: String = log.iter().map(|line| format!("\n  | {line}")).collect();
    format!("\n  the end of its log {}:{lines}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_the_unit_that_fits() {
        assert_eq!([0.012, 0.7, 1.0, 1800.04].map(seconds), ["12 ms", "0.7 s", "1 s", "1800 s"]);
    }
}
