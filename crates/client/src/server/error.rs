//! Why a server under management does not serve.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

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
