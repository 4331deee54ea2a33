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
mod tests;
