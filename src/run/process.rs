//! Waits for the commands of a scenario.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval at which a running command is checked.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Why a command did not end by itself.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// The run is over.
    Interrupted,
    /// The time limit.
    Late,
    /// Its status cannot be read.
    Lost(io::Error),
}

/// Waits until a command in its own process group ends. It is killed with the group after `timeout`, and when
/// `is_over`.
pub(crate) fn wait_for(
    child: &mut Child,
    timeout: Duration,
    mut is_over: impl FnMut() -> bool,
) -> Result<ExitStatus, Unfinished> {
    let group = Pid::from_child(child);
    let started = Instant::now();
    let unfinished = loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => break Unfinished::Lost(error),
        }
        if is_over() {
            break Unfinished::Interrupted;
        }
        if started.elapsed() > timeout {
            break Unfinished::Late;
        }
        sleep(POLL);
    };
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    Err(unfinished)
}

/// How a command ended: `exit status 1`.
pub(crate) fn describe_status(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    }
}
