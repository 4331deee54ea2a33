//! The processes below another one, as the system tells them, and signals to all of them.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};

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
