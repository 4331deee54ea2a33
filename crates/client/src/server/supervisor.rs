//! The supervisor (`llmscen guard`): the process between llmscen and a managed server. It stops the server when
//! llmscen ends, for whatever reason.

use super::{KILL_WAIT, ServerCommand, SupervisorEvent, monotonic_ns};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Interval between checks of a server that stops: at first, and at most.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Inputs of the supervisor.
enum Input {
    /// Stop the server: requested, or llmscen has ended.
    Stop,
    /// Kill the server.
    Kill,
    /// A descendant ended.
    Ended { pid: Pid, how: String, at_ns: u64 },
    /// No descendant is left.
    NoChildren,
}

/// Supervises one server: reads its [`ServerCommand`] from `input`, reports events on `output`, and stops it on
/// request or when `input` ends.
///
/// # Errors
/// There is no valid order, or no thread can be started.
pub fn guard(
    mut input: impl BufRead + Send + 'static,
    mut output: impl Write,
) -> std::io::Result<()> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let order: ServerCommand = serde_json::from_str(&line)?;
    // Orphaned descendants become children of this process, so none escapes by starting its own session.
    set_child_subreaper(Some(getpid()))?;
    let asked_ns = monotonic_ns();
    let pid = match spawn(&order) {
        Ok(pid) => pid,
        Err(error) => {
            send_event(
                &mut output,
                &SupervisorEvent::Failed {
                    why: error.to_string(),
                },
            );
            return Ok(());
        }
    };
    send_event(
        &mut output,
        &SupervisorEvent::Spawned {
            pid: pid_number(pid),
            asked_ns,
            at_ns: monotonic_ns(),
        },
    );
    let (sender, inputs) = channel();
    listen(input, sender.clone())?;
    reap(sender)?;
    loop {
        match inputs.recv() {
            Ok(Input::Ended {
                pid: ended,
                how,
                at_ns,
            }) if ended == pid => {
                send_event(&mut output, &SupervisorEvent::Exited { how, at_ns });
                break;
            }
            Ok(Input::Ended { .. }) => {}
            Ok(Input::Stop | Input::Kill | Input::NoChildren) | Err(_) => break,
        }
    }
    let pids = stop(pid, Duration::from_nanos(order.grace_ns), &inputs);
    send_event(&mut output, &SupervisorEvent::Left { pids });
    Ok(())
}

/// Errors are ignored: if llmscen is gone, the server must still be stopped.
fn send_event(output: &mut impl Write, event: &SupervisorEvent) {
    let line = serde_json::to_string(event).unwrap_or_default();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

fn spawn(order: &ServerCommand) -> std::io::Result<Pid> {
    let (program, arguments) = order
        .command
        .split_first()
        .ok_or(std::io::ErrorKind::InvalidInput)?;
    let log = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&order.log)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(order.env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &order.cwd {
        command.current_dir(cwd);
    }
    // A separate process group, so that Ctrl-C in the terminal reaches only llmscen.
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    let id = command.spawn()?.id();
    i32::try_from(id)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| std::io::ErrorKind::Other.into())
}

/// Reads requests on a separate thread.
fn listen(input: impl BufRead + Send + 'static, sender: Sender<Input>) -> std::io::Result<()> {
    let work = move || {
        for line in input.lines().map_while(Result::ok) {
            let _ = sender.send(if line == "kill" {
                Input::Kill
            } else {
                Input::Stop
            });
        }
        let _ = sender.send(Input::Stop);
    };
    std::thread::Builder::new()
        .name("orders".into())
        .spawn(work)
        .map(drop)
}

/// Waits for descendants on a separate thread.
fn reap(sender: Sender<Input>) -> std::io::Result<()> {
    let work = move || {
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => {
                    let _ = sender.send(Input::Ended {
                        pid,
                        how: describe_status(status),
                        at_ns: monotonic_ns(),
                    });
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let _ = sender.send(Input::NoChildren);
    };
    std::thread::Builder::new()
        .name("reaper".into())
        .spawn(work)
        .map(drop)
}

fn describe_status(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit status {code}"),
        (None, None) => "unknown exit status".to_owned(),
    }
}

/// Sends SIGTERM to the server and its descendants, SIGKILL after `grace`, and returns the processes that survive.
fn stop(server: Pid, grace: Duration, inputs: &Receiver<Input>) -> Vec<u32> {
    let _ = kill_process_group(server, Signal::TERM);
    let began = Instant::now();
    let mut grace = grace;
    let mut terminated = BTreeSet::new();
    let mut interval = POLL_INTERVAL;
    loop {
        let left = descendants(std::process::id());
        let kill = began.elapsed() >= grace;
        if kill {
            let _ = kill_process_group(server, Signal::KILL);
            signal(left.iter().copied(), Signal::KILL);
        } else {
            // Once per process: many servers abort their shutdown on a second SIGTERM.
            signal(
                left.iter()
                    .copied()
                    .filter(|pid| terminated.insert(*pid) && *pid != pid_number(server)),
                Signal::TERM,
            );
        }
        if began.elapsed() >= grace + KILL_WAIT {
            return left.into_iter().collect();
        }
        let wait = if kill {
            interval
        } else {
            interval.min(grace.saturating_sub(began.elapsed()))
        };
        match inputs.recv_timeout(wait) {
            Ok(Input::NoChildren) => return Vec::new(),
            Ok(Input::Kill) => grace = grace.min(began.elapsed()),
            Ok(Input::Stop | Input::Ended { .. }) | Err(RecvTimeoutError::Timeout) => {
                interval = (interval * 3 / 2).min(MAX_POLL_INTERVAL)
            }
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(interval),
        }
    }
}

fn pid_number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// The running descendants of `root`, without `root` itself.
pub(super) fn descendants(root: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<(u32, bool)>> = BTreeMap::new();
    for (pid, Stat { parent, running }) in processes() {
        children.entry(parent).or_default().push((pid, running));
    }
    let mut found = BTreeSet::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for (pid, running) in children.remove(&parent).unwrap_or_default() {
            next.push(pid);
            if running {
                found.insert(pid);
            }
        }
    }
    found
}

/// Whether the process exists and has not ended.
pub(super) fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|line| parse_stat(&line))
        .is_some_and(|stat| stat.running)
}

/// Sends a signal to each process; those that have ended are ignored.
pub(super) fn signal(pids: impl IntoIterator<Item = u32>, signal: Signal) {
    for pid in pids
        .into_iter()
        .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    {
        let _ = kill_process(pid, signal);
    }
}

/// Fields of `/proc/PID/stat` (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Neither zombie nor dead.
    running: bool,
}

/// All processes by id.
fn processes() -> impl Iterator<Item = (u32, Stat)> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = parse_stat(&std::fs::read_to_string(entry.path().join("stat")).ok()?)?;
            Some((pid, stat))
        })
}

/// The process name in the line may contain anything, including brackets and spaces.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let running = !matches!(fields.next()?, "Z" | "X");
    Some(Stat {
        parent: fields.next()?.parse().ok()?,
        running,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_contain_brackets() {
        assert_eq!(
            parse_stat("17 (a) b) S 4 17 17 0"),
            Some(Stat {
                parent: 4,
                running: true
            })
        );
        assert_eq!(
            parse_stat("17 (sh) Z 1 17 17 0"),
            Some(Stat {
                parent: 1,
                running: false
            })
        );
        assert_eq!(parse_stat("17 (sh"), None);
    }

    #[test]
    fn grandchildren_are_found_and_ended_processes_are_not() {
        let this = std::process::id();
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .spawn()
            .unwrap();
        let grandchild = loop {
            if let Some(found) = descendants(child.id()).first() {
                break *found;
            }
        };
        let all = descendants(this);
        assert!(all.contains(&child.id()) && all.contains(&grandchild) && !all.contains(&this));
        signal([child.id(), grandchild], Signal::KILL);
        while is_running(child.id()) {}
        assert!(!descendants(this).contains(&child.id()));
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }
}
