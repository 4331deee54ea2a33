//! The guard: the process between this program and a server, which ends the server when this program ends, however that does.

use super::{HARD, Order, Word, monotonic_ns};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, set_child_subreaper, wait,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Between two looks at what is left of a server that is to end: at first, and at the most.
const LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// What a guard hears.
enum Heard {
    /// The server is to end, or whoever asked for it has ended.
    Stop,
    /// It is to end at once.
    Kill,
    /// A process below this one ended.
    Ended { pid: Pid, how: String, at_ns: u64 },
    /// No process below this one is left.
    Alone,
}

/// Stands guard over one server: reads its [`Order`] from `input`, says on `output` what becomes of it, and ends it when a
/// line says so or `input` ends.
///
/// # Errors
/// There was no order, or its log cannot be written.
pub fn guard(mut input: impl BufRead + Send + 'static, mut output: impl Write) -> std::io::Result<()> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line)?;
    // What its descendants leave behind becomes this process's: nothing gets away by a session of its own.
    set_child_subreaper(Some(getpid()))?;
    let asked_ns = monotonic_ns();
    let pid = match spawn(&order) {
        Ok(pid) => pid,
        Err(error) => {
            tell(&mut output, &Word::Failed { why: error.to_string() });
            return Ok(());
        }
    };
    tell(&mut output, &Word::Spawned { pid: raw(pid), asked_ns, at_ns: monotonic_ns() });
    let (sender, heard) = channel();
    listen(input, sender.clone())?;
    reap(sender)?;
    loop {
        match heard.recv() {
            Ok(Heard::Ended { pid: own, how, at_ns }) if own == pid => {
                tell(&mut output, &Word::Exited { how, at_ns });
                break;
            }
            Ok(Heard::Ended { .. }) => {}
            Ok(Heard::Stop | Heard::Kill | Heard::Alone) | Err(_) => break,
        }
    }
    let pids = end(pid, Duration::from_nanos(order.grace_ns), &heard);
    tell(&mut output, &Word::Left { pids });
    Ok(())
}

/// Whoever listens may be gone; what is to be done is done all the same.
fn tell(output: &mut impl Write, word: &Word) {
    let line = serde_json::to_string(word).unwrap_or_default();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

fn spawn(order: &Order) -> std::io::Result<Pid> {
    let (program, arguments) = order.command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let log = std::fs::OpenOptions::new().append(true).create(true).open(&order.log)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(order.env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &order.cwd {
        command.current_dir(cwd);
    }
    // A group of its own: Ctrl-C in the terminal is for the tool to hear and to act on.
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let id = command.spawn()?.id();
    i32::try_from(id).ok().and_then(Pid::from_raw).ok_or_else(|| std::io::ErrorKind::Other.into())
}

/// Hears what is asked on a thread of its own.
fn listen(input: impl BufRead + Send + 'static, sender: Sender<Heard>) -> std::io::Result<()> {
    let work = move || {
        for line in input.lines().map_while(Result::ok) {
            let _ = sender.send(if line == "kill" { Heard::Kill } else { Heard::Stop });
        }
        let _ = sender.send(Heard::Stop);
    };
    std::thread::Builder::new().name("orders".into()).spawn(work).map(drop)
}

/// Waits for every process below this one on a thread of its own.
fn reap(sender: Sender<Heard>) -> std::io::Result<()> {
    let work = move || {
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => {
                    let _ = sender.send(Heard::Ended { pid, how: in_words(status), at_ns: monotonic_ns() });
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let _ = sender.send(Heard::Alone);
    };
    std::thread::Builder::new().name("reaper".into()).spawn(work).map(drop)
}

fn in_words(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit status {code}"),
        (None, None) => "for an unknown reason".to_owned(),
    }
}

/// Asks the server and all below it to end, kills them after `grace`, and returns what not even that ended.
fn end(server: Pid, grace: Duration, heard: &Receiver<Heard>) -> Vec<u32> {
    let _ = kill_process_group(server, Signal::TERM);
    let (began, mut grace, mut asked) = (Instant::now(), grace, BTreeSet::new());
    let mut look = LOOK;
    loop {
        let left = descendants(std::process::id());
        let hard = began.elapsed() >= grace;
        if hard {
            let _ = kill_process_group(server, Signal::KILL);
            signal(left.iter().copied(), Signal::KILL);
        } else {
            // A second request to end makes many a server give up what it was about to save.
            signal(left.iter().copied().filter(|pid| asked.insert(*pid) && *pid != raw(server)), Signal::TERM);
        }
        if began.elapsed() >= grace + HARD {
            return left.into_iter().collect();
        }
        let until_hard = if hard { look } else { look.min(grace.saturating_sub(began.elapsed())) };
        match heard.recv_timeout(until_hard) {
            Ok(Heard::Alone) => return Vec::new(),
            Ok(Heard::Kill) => grace = grace.min(began.elapsed()),
            Ok(Heard::Stop | Heard::Ended { .. }) | Err(RecvTimeoutError::Timeout) => look = (look * 3 / 2).min(LONGEST_LOOK),
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(look),
        }
    }
}

fn raw(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// The living processes whose parent, or parent's parent, …, is `root`; `root` itself is none of them.
pub(super) fn descendants(root: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<(u32, bool)>> = BTreeMap::new();
    for (pid, parent, alive) in processes() {
        children.entry(parent).or_default().push((pid, alive));
    }
    let (mut found, mut next) = (BTreeSet::new(), vec![root]);
    while let Some(parent) = next.pop() {
        for (pid, alive) in children.remove(&parent).unwrap_or_default() {
            next.push(pid);
            if alive {
                found.insert(pid);
            }
        }
    }
    found
}

/// Whether there is a process of that id that has not ended yet.
pub(super) fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|stat| fields(&stat)).is_some_and(|(_, alive)| alive)
}

/// Sends a signal to each; one that has ended meanwhile needs none.
pub(super) fn signal(pids: impl IntoIterator<Item = u32>, signal: Signal) {
    for pid in pids.into_iter().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
        let _ = kill_process(pid, signal);
    }
}

/// Every process: its id, its parent's, and whether it still runs.
fn processes() -> impl Iterator<Item = (u32, u32, bool)> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let (parent, alive) = fields(&std::fs::read_to_string(entry.path().join("stat")).ok()?)?;
        Some((pid, parent, alive))
    })
}

/// Parent and state of a line of `/proc/PID/stat`; the name in it may hold anything, a bracket and a space too.
fn fields(stat: &str) -> Option<(u32, bool)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let alive = !matches!(fields.next()?, "Z" | "X");
    Some((fields.next()?.parse().ok()?, alive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_no_parent() {
        assert_eq!(fields("17 (a) b) S 4 17 17 0"), Some((4, true)));
        assert_eq!(fields("17 (sh) Z 1 17 17 0"), Some((1, false)));
        assert_eq!(fields("17 (sh"), None);
    }

    #[test]
    fn children_of_children_are_found_and_the_dead_are_not() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let grandchild = loop {
            if let Some(found) = descendants(child.id()).first() {
                break *found;
            }
        };
        let all = descendants(own);
        assert!(all.contains(&child.id()) && all.contains(&grandchild) && !all.contains(&own));
        signal([child.id(), grandchild], Signal::KILL);
        while lives(child.id()) {}
        assert!(!descendants(own).contains(&child.id()));
        child.wait().unwrap();
        assert!(!lives(child.id()));
    }
}
