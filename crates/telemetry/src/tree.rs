//! The managed server: all descendants of the process that supervises it.

use crate::proc::{GrowthRate, Proc, Stat, parse_io, parse_kib, parse_stat};
use crate::{SampledValue, TelemetrySource};
use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The unit of CPU times in `/proc` (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// The processes of a tree that were alive at its last sample.
#[derive(Clone, Debug, Default)]
pub struct Members(Arc<Mutex<HashSet<u32>>>);

impl Members {
    /// Whether a process belongs to the tree.
    pub fn contains(&self, pid: u32) -> bool {
        self.0.lock().is_ok_and(|alive| alive.contains(&pid))
    }

    fn set(&self, alive: impl Iterator<Item = u32>) {
        if let Ok(mut members) = self.0.lock() {
            members.clear();
            members.extend(alive);
        }
    }
}

/// All descendants of a process, without the process itself. It is the subreaper of them all, so it is the parent of
/// those whose own parent has ended, and it is waited for after the last sample, so its number is not reused.
pub struct ProcessTree {
    proc: Proc,
    interval: Nanos,
    root: u32,
    descendants: BTreeMap<u32, Counters>,
    /// Processes outside the tree, which are not read again.
    others: HashSet<u32>,
    members: Members,
    ticks: TreeTotal,
    read: TreeTotal,
    written: TreeTotal,
    cpu: GrowthRate,
}

/// The counters of a process at its last sample.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    started: u64,
    ticks: u64,
    read: u64,
    written: u64,
    resident: u64,
}

impl ProcessTree {
    /// The descendants of the process `root`.
    pub fn new(root: u32, interval: Nanos) -> ProcessTree {
        ProcessTree::with_proc(Proc::new(Path::new("/")), root, interval)
    }

    fn with_proc(proc: Proc, root: u32, interval: Nanos) -> ProcessTree {
        ProcessTree {
            proc,
            interval,
            root,
            descendants: BTreeMap::new(),
            others: HashSet::new(),
            members: Members::default(),
            ticks: TreeTotal::default(),
            read: TreeTotal::default(),
            written: TreeTotal::default(),
            cpu: GrowthRate::default(),
        }
    }

    /// The processes of the tree, updated by every sample.
    pub fn members(&self) -> Members {
        self.members.clone()
    }

    /// Adds the descendants that started since the last sample.
    fn find_descendants(&mut self) -> Result<(), String> {
        let folder = self.proc.folder();
        let listed = std::fs::read_dir(folder)
            .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
        let running: HashSet<u32> = listed
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        self.others.retain(|pid| running.contains(pid));
        let unknown = running
            .iter()
            .filter(|pid| !self.descendants.contains_key(*pid) && !self.others.contains(*pid));
        let mut candidates: HashMap<u32, Stat> = HashMap::new();
        for pid in unknown {
            if let Some(stat) = self
                .proc
                .read(&format!("{pid}/stat"))
                .ok()
                .and_then(|text| parse_stat(&text))
            {
                candidates.insert(*pid, stat);
            }
        }
        loop {
            let is_descendant = |stat: &Stat| {
                stat.parent == self.root || self.descendants.contains_key(&stat.parent)
            };
            let found: Vec<u32> = candidates
                .iter()
                .filter(|(_, stat)| is_descendant(stat))
                .map(|(pid, _)| *pid)
                .collect();
            if found.is_empty() {
                break;
            }
            for pid in found {
                if let Some(stat) = candidates.remove(&pid) {
                    self.descendants.insert(
                        pid,
                        Counters {
                            started: stat.started,
                            ..Counters::default()
                        },
                    );
                }
            }
        }
        // A process whose parent ended meanwhile may belong to the tree: it is read again at the next sample.
        let known = |parent: u32| {
            parent == 0 || self.others.contains(&parent) || candidates.contains_key(&parent)
        };
        let others: Vec<u32> = candidates
            .iter()
            .filter(|(_, stat)| known(stat.parent))
            .map(|(pid, _)| *pid)
            .collect();
        self.others.extend(others);
        Ok(())
    }

    /// Reads the counters of every descendant, and removes those that have ended. An error where the disk counters of
    /// all of them are denied.
    fn read_counters(&mut self) -> Result<(), String> {
        let mut denied = Ok(());
        let mut any_counted = false;
        let mut gone = Vec::new();
        for (&pid, process) in &mut self.descendants {
            let found = self
                .proc
                .read(&format!("{pid}/stat"))
                .ok()
                .and_then(|text| parse_stat(&text));
            let Some(found) = found.filter(|found| found.started == process.started) else {
                gone.push(pid);
                continue;
            };
            process.ticks = found.ticks;
            // A zombie process has no memory.
            let status = self.proc.read(&format!("{pid}/status"));
            process.resident = status
                .ok()
                .and_then(|text| parse_kib(&text, "VmRSS"))
                .unwrap_or(0);
            match self
                .proc
                .read(&format!("{pid}/io"))
                .map(|text| parse_io(&text))
            {
                Ok(Some((read, written))) => {
                    (process.read, process.written) = (read, written);
                    any_counted = true;
                }
                Ok(None) => {}
                Err(error) => denied = Err(error),
            }
        }
        self.descendants.retain(|pid, _| !gone.contains(pid));
        if any_counted { Ok(()) } else { denied }
    }

    fn emit(
        &mut self,
        at: Instant,
        before: &BTreeMap<u32, Counters>,
        disk: bool,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) {
        let descendants = &self.descendants;
        let update = |total: &mut TreeTotal, count: fn(&Counters) -> u64| {
            let sum = |processes: &BTreeMap<u32, Counters>| processes.values().map(count).sum();
            let still_alive = before
                .iter()
                .filter(|(pid, _)| descendants.contains_key(pid))
                .map(|(_, process)| count(process))
                .sum();
            total.update(sum(descendants), sum(before), still_alive)
        };
        let ticks = update(&mut self.ticks, |process| process.ticks);
        let read = update(&mut self.read, |process| process.read);
        let written = update(&mut self.written, |process| process.written);
        if let Some(cores) = self
            .cpu
            .update(at, ticks as f64)
            .map(|ticks| ticks / TICKS_PER_SECOND)
        {
            emit(SampledValue::plain("process.cpu", cores));
        }
        emit(SampledValue::plain(
            "process.memory",
            descendants
                .values()
                .map(|process| process.resident)
                .sum::<u64>() as f64,
        ));
        if disk {
            emit(SampledValue::plain("process.disk_read", read as f64));
            emit(SampledValue::plain("process.disk_write", written as f64));
        }
    }
}

impl TelemetrySource for ProcessTree {
    fn kind(&self) -> Source {
        Source::Process
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(
        &mut self,
        at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        let before = self.descendants.clone();
        self.find_descendants()?;
        let counted = self.read_counters();
        self.members.set(self.descendants.keys().copied());
        if self.descendants.is_empty() {
            return Err("the managed server exited".to_owned());
        }
        self.emit(at, &before, counted.is_ok(), emit);
        counted
    }
}

/// A counter of all processes of a tree. It never decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TreeTotal(u64);

impl TreeTotal {
    /// Adds the growth since the last sample. `now` is the sum over the running processes, `before` the last sum, and
    /// `still_alive` the part of `before` of processes that still run.
    ///
    /// The parent of a process that ended and was waited for includes its count from then on. Where no one waited for
    /// it, its count is missing in `now`: then the growth of the others is added.
    fn update(&mut self, now: u64, before: u64, still_alive: u64) -> u64 {
        self.0 += now
            .checked_sub(before)
            .unwrap_or_else(|| now.saturating_sub(still_alive));
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    const SECOND: Nanos = Nanos::from_millis(1000);

    /// Writes a process: its parent, its ticks and when it started.
    fn process(root: &Path, pid: u32, (parent, ticks, started): (u32, u64, u64), kib: u32) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        let stat = format!(
            "{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {started} 0 0\n"
        );
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(
            folder.join("status"),
            format!("Name:\tx\nVmRSS:\t{kib} kB\n"),
        )
        .unwrap();
        fs::write(
            folder.join("io"),
            format!("read_bytes: {}\nwrite_bytes: {ticks}\n", ticks * 10),
        )
        .unwrap();
    }

    fn ended(root: &Path, pid: u32) {
        fs::remove_dir_all(root.join(format!("proc/{pid}"))).unwrap();
    }

    fn sample(tree: &mut ProcessTree, at: Instant) -> Result<BTreeMap<String, f64>, String> {
        let mut values = BTreeMap::new();
        tree.sample(at, &mut |value| {
            values.insert(value.name.to_owned(), value.value);
        })?;
        Ok(values)
    }

    fn figures(values: &BTreeMap<String, f64>) -> [Option<f64>; 4] {
        ["cpu", "memory", "disk_read", "disk_write"]
            .map(|name| values.get(&format!("process.{name}")).copied())
    }

    #[test]
    fn the_total_never_decreases() {
        let mut total = TreeTotal::default();
        assert_eq!(total.update(100, 0, 0), 100, "the first sample");
        assert_eq!(total.update(130, 100, 100), 130);
        assert_eq!(
            total.update(140, 130, 70),
            140,
            "60 are counted by the parent now"
        );
        assert_eq!(
            total.update(75, 140, 70),
            145,
            "70 are lost, the others grew by 5"
        );
        assert_eq!(total.update(10, 75, 20), 145);
    }

    #[test]
    fn descendants_are_found_whatever_their_numbers_and_candidates_are_not() {
        let (folder, begin) = (tempfile::tempdir().unwrap(), Instant::now());
        let (root, at) = (folder.path(), |s| begin + Duration::from_secs(s));
        process(root, 1, (0, 9999, 1), 9);
        process(root, 45, (1, 8888, 6), 9);
        process(root, 50, (45, 100, 7), 1);
        process(root, 30, (20, 5, 8), 2);
        process(root, 20, (50, 5, 8), 4);
        process(root, 40, (1, 7777, 7), 9);
        let mut tree = ProcessTree::with_proc(Proc::new(root), 45, SECOND);
        let members = tree.members();
        assert_eq!(
            figures(&sample(&mut tree, at(0)).unwrap()),
            [None, Some(7.0 * 1024.0), Some(1100.0), Some(110.0)]
        );
        assert_eq!(
            [50, 30, 20, 40, 1, 45].map(|pid| members.contains(pid)),
            [true, true, true, false, false, false]
        );
        // 20 ends and is waited for, its child goes to 1; another starts and works.
        ended(root, 20);
        process(root, 50, (45, 110, 7), 1);
        process(root, 30, (1, 25, 8), 2);
        process(root, 60, (30, 30, 9), 8);
        let values = sample(&mut tree, at(1)).unwrap();
        assert_eq!(
            figures(&values),
            [Some(0.55), Some(11.0 * 1024.0), Some(1650.0), Some(165.0)]
        );
        assert_eq!(
            [30, 20, 60].map(|pid| members.contains(pid)),
            [true, false, true]
        );
    }

    #[test]
    fn one_whose_parent_ended_before_the_first_look_is_counted() {
        let (folder, begin) = (tempfile::tempdir().unwrap(), Instant::now());
        let root = folder.path();
        process(root, 45, (1, 8888, 6), 9);
        process(root, 50, (45, 1, 7), 1);
        // Its parent 49 has gone, and it has gone to 45, which is values only by the second look.
        process(root, 70, (49, 2, 8), 16);
        process(root, 80, (45, 3, 8), 32);
        let mut tree = ProcessTree::with_proc(Proc::new(root), 45, SECOND);
        assert_eq!(
            sample(&mut tree, begin).unwrap()["process.memory"],
            33.0 * 1024.0
        );
        process(root, 70, (45, 2, 8), 16);
        assert_eq!(
            sample(&mut tree, begin).unwrap()["process.memory"],
            49.0 * 1024.0
        );
        assert!(
            tree.members().contains(70)
                && tree.members().contains(80)
                && !tree.members().contains(45)
        );
    }

    #[test]
    fn a_number_that_comes_again_is_another_process_and_a_tree_that_has_ended_says_so() {
        let (folder, begin) = (tempfile::tempdir().unwrap(), Instant::now());
        let root = folder.path();
        process(root, 50, (45, 100, 7), 1);
        let mut tree = ProcessTree::with_proc(Proc::new(root), 45, SECOND);
        sample(&mut tree, begin).unwrap();
        process(root, 50, (1, 900, 1000), 1);
        assert_eq!(
            sample(&mut tree, begin),
            Err("the managed server exited".into())
        );
        assert!(!tree.members().contains(50));
        assert!(
            sample(&mut tree, begin).is_err(),
            "nor is it taken for it later"
        );
    }

    #[test]
    fn what_a_server_of_another_user_read_and_wrote_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        process(folder.path(), 50, (45, 100, 7), 1);
        fs::remove_file(folder.path().join("proc/50/io")).unwrap();
        let mut values = Vec::new();
        let result = ProcessTree::with_proc(Proc::new(folder.path()), 45, SECOND)
            .sample(Instant::now(), &mut |value| {
                values.push(value.name.to_owned())
            });
        assert_eq!(values, ["process.memory"]);
        assert!(result.unwrap_err().contains("50/io: No such file"));
    }

    struct KillOnDrop(Child);

    impl Drop for KillOnDrop {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_real_tree_works_ends_and_is_counted() {
        // A child that works for a while and is waited for, and one that sleeps.
        let script = "sleep 60 & (i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done); echo done; \
        read line; kill $!; wait";
        let mut command = Command::new("sh");
        command
            .args(["-c", "sh -c \"$0\"; :", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut server = KillOnDrop(command.spawn().unwrap());
        let mut tree = ProcessTree::new(server.0.id(), SECOND);
        while sample(&mut tree, Instant::now()).is_err() {}
        let mut tree = ProcessTree::new(server.0.id(), SECOND);
        let begin = Instant::now();
        assert_eq!(figures(&sample(&mut tree, begin).unwrap())[0], None);
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(server.0.stdout.take().unwrap()),
            &mut line,
        )
        .unwrap();
        let values = sample(&mut tree, begin + Duration::from_secs(1)).unwrap();
        assert!(
            figures(&values)[0].unwrap() >= 0.02,
            "a loop of 200,000 turns takes more than two ticks: {values:?}"
        );
        assert!(values["process.memory"] > 100_000.0, "{values:?}");
        assert!(
            tree.descendants.len() >= 2 && !tree.members().contains(server.0.id()),
            "the inner shell and its sleep: {:?}",
            tree.descendants
        );
        drop(server.0.stdin.take());
        server.0.wait().unwrap();
        assert!(sample(&mut tree, begin + Duration::from_secs(2)).is_err());
    }
}
