//! Managed servers: started, supervised and stopped together with their child processes, even if llmscen is killed.
//!
//! ```text
//! llmscen ── stdin: ServerCommand, then "stop" or "kill", or end of file ──▶ llmscen guard ──▶ the server and its descendants
//!         ◀─ stdout: SupervisorEvent, one per line ────────────────        (subreaper)
//! ```
//! The supervisor is a second process of this program. It survives a panic or SIGKILL of the first one for as long as
//! stopping the server takes.

pub use handle::{Server, ServerExit};
pub use log::{log_tail, redact as redact_log};
pub use ready::{NotReady, ReadinessProbe, ReadyTimes, find_listener, wait_until_ready};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;

mod handle;
mod log;
mod ready;
pub mod supervisor;

/// Time limit for killed processes to end: one that hangs in a disk or a driver must not block the run.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// What the supervisor runs: the first line of its stdin, as JSON. Not arguments, which any user can read.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment variables, in addition to those of the supervisor.
    pub env: Vec<(String, String)>,
    /// Working folder.
    pub cwd: Option<String>,
    /// The log file to which its output is appended.
    pub log: PathBuf,
    /// Time between SIGTERM and SIGKILL, in nanoseconds.
    pub grace_ns: u64,
}

/// Events of the supervisor, one line of JSON each. Times are those of the monotonic clock, which all processes share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SupervisorEvent {
    /// The server process was started: its id, and the times before and after the system call.
    Spawned { pid: u32, asked_ns: u64, at_ns: u64 },
    /// The server process could not be started.
    Failed { why: String },
    /// The server exited.
    Exited { how: String, at_ns: u64 },
    /// The supervisor is done; `pids` survived SIGKILL.
    Left { pids: Vec<u32> },
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The instant of a time of the monotonic clock.
fn instant(at_ns: u64) -> Instant {
    let (now, now_ns) = (Instant::now(), monotonic_ns());
    now.checked_sub(Duration::from_nanos(now_ns.saturating_sub(at_ns)))
        .unwrap_or(now)
}

/// Why a managed server is not available. Log lines have no secrets.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The supervisor process cannot be started.
    #[error("cannot start the supervisor process of the server: {0}")]
    Supervisor(io::Error),
    /// The log file cannot be written.
    #[error("cannot write the server's log {path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error(
        "cannot start the server `{program}`: {why}\n  help: check `target.server.command`, and \
        that the program is on PATH"
    )]
    Start {
        /// The program.
        program: String,
        /// Why.
        why: String,
    },
    /// Another process listens at the address of the server.
    #[error(
        "{address} is already in use, so the managed server cannot bind it\n  help: stop the \
        other process or change the port in `target.url`"
    )]
    AddressInUse {
        /// The address.
        address: String,
    },
    /// The server exited before it was ready.
    #[error("the server exited {} after its start, before it was ready: {how}{}",
        format_seconds(*after_s), format_log(log, file))]
    ExitedEarly {
        /// Exit status or signal.
        how: String,
        /// Seconds from start to exit.
        after_s: f64,
        /// The last lines of its log.
        log: Vec<String>,
        /// The log file.
        file: PathBuf,
    },
    /// The server was not ready in time.
    #[error(
        "server not ready after {}: {what}\n  help: raise `target.server.ready.timeout`{}",
        format_seconds(*timeout_s), format_log(log, file)
    )]
    NotReady {
        /// The condition, and what was observed instead.
        what: String,
        /// Time limit in seconds.
        timeout_s: f64,
        /// The last lines of its log.
        log: Vec<String>,
        /// The log file.
        file: PathBuf,
    },
    /// The server exited during a case.
    #[error(
        "the managed server exited during case `{case}`: {how}{}",
        format_log(log, file)
    )]
    Exited {
        /// The case.
        case: String,
        /// Exit status or signal.
        how: String,
        /// The last lines of its log.
        log: Vec<String>,
        /// The log file.
        file: PathBuf,
    },
}

/// A short duration: `12 ms`, `0.7 s`, `30 s`.
fn format_seconds(secs: f64) -> String {
    if secs < 0.1 {
        return format!("{:.0} ms", secs * 1e3);
    }
    let text = format!("{secs:.1}");
    format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
}

fn format_log(log: &[String], file: &std::path::Path) -> String {
    if log.is_empty() {
        return format!("\n  its log {} is empty", file.display());
    }
    let lines: String = log.iter().map(|line| format!("\n  | {line}")).collect();
    format!("\n  end of its log {}:{lines}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_durations_are_in_milliseconds() {
        assert_eq!(
            [0.012, 0.7, 1.0, 1800.04].map(format_seconds),
            ["12 ms", "0.7 s", "1 s", "1800 s"]
        );
    }
}
