//! All descendants of a process: the managed server, below the process that watches over it.

use crate::proc::{GrowthRate, Proc, Stat, parse_io, parse_kib, parse_stat};
use crate::source::{SampledValue, TelemetrySource};
use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Ticks of a second: what Linux tells programs, whatever it counts by itself.
const TICKS: f64 = 100.0;

/// The processes of a tree that were alive at its last sample, for sources that know processes by their number.
#[derive(Clone, Debug, Default)]
pub struct Members(Arc<Mutex<HashSet<u32>>>);

impl Members {
    /// Whether it is one.
    pub fn has(&self, pid: u32) -> bool {
        self.0.lock().is_ok_and(|alive| alive.contains(&pid))
    }

    fn are(&self, alive: impl Iterator<Item = u32>) {
        if let Ok(mut members) = self.0.lock() {
            members.clear();
            members.extend(alive);
        }
    }
}

/// All descendants of a process without itself, those among them whose parents have ended. The process is the subreaper of them
/// all and is waited for after the last sample, so that its number stands for no other one.
pub struct Tree {
    proc: Proc,
    interval: Nanos,
    root: u32,
    family: BTreeMap<u32, Member>,
    /// Processes that are known to belong to somebody else: what starts later is looked at, and nothing twice.
    others: HashSet<u32>,
    members: Members,
    ticks: Sum,
    read: Sum,
    written: Sum,
    cpu: GrowthRate,
}

/// What one process stood at.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    started: u64,
    ticks: u64,
    read: u64,
    written: u64,
    resident: u64,
}

impl Tree {
    /// All descendants of the process of that number.
    pub fn of(root: u32, interval: Nanos) -> Tree {
        Tree::under(Path::new("/"), root, interval)
    }

    fn under(folder: &Path, root: u32, interval: Nanos) -> Tree {
        let [ticks, read, written] = [Sum::default(); 3];
        let (family, others, members) = (BTreeMap::new(), HashSet::new(), Members::default());
        let (proc, cpu) = (Proc::under(folder), GrowthRate::default());
        Tree { proc, interval, root, family, others, members, ticks, read, written, cpu }
    }

    /// Who belongs to it, as of its last sample.
    pub fn members(&self) -> Members {
        self.members.clone()
    }

    /// Takes in the descendants that started since the last sample.
    fn adopt(&mut self) -> Result<(), String> {
        let folder = self.proc.folder();
        let listed = std::fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
        let there: HashSet<u32> = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        self.others.retain(|pid| there.contains(pid));
        let unknown = there.iter().filter(|pid| !self.family.contains_key(*pid) && !self.others.contains(*pid));
        let mut strangers: HashMap<u32, Stat> = HashMap::new();
        for pid in unknown {
            if let Some(stat) = self.proc.read(&format!("{pid}/stat")).ok().and_then(|text| parse_stat(&text)) {
                strangers.insert(*pid, stat);
            }
        }
        loop {
            let related = |stat: &Stat| stat.parent == self.root || self.family.contains_key(&stat.parent);
            let own: Vec<u32> = strangers.iter().filter(|(_, stat)| related(stat)).map(|(pid, _)| *pid).collect();
            if own.is_empty() {
                break;
            }
            for pid in own {
                if let Some(stat) = strangers.remove(&pid) {
                    self.family.insert(pid, Member { started: stat.started, ..Member::default() });
                }
            }
        }
        // One whose parent ended between the two looks may be anybody's: it is looked at again.
        let known = |parent: u32| parent == 0 || self.others.contains(&parent) || strangers.contains_key(&parent);
        let others: Vec<u32> = strangers.iter().filter(|(_, stat)| known(stat.parent)).map(|(pid, _)| *pid).collect();
        self.others.extend(others);
        Ok(())
    }

    /// Reads every member, and lets go of those that have ended. An error where nobody may know what they read and wrote.
    fn visit(&mut self) -> Result<(), String> {
        let mut denied = Ok(());
        let mut counted = false;
        let mut gone = Vec::new();
        for (&pid, member) in &mut self.family {
            let found = self.proc.read(&format!("{pid}/stat")).ok().and_then(|text| parse_stat(&text));
            let Some(found) = found.filter(|found| found.started == member.started) else {
                gone.push(pid);
                continue;
            };
            member.ticks = found.ticks;
            // One that has ended and is not waited for yet has no memory.
            let status = self.proc.read(&format!("{pid}/status"));
            member.resident = status.ok().and_then(|text| parse_kib(&text, "VmRSS")).unwrap_or(0);
            match self.proc.read(&format!("{pid}/io")).map(|text| parse_io(&text)) {
                Ok(Some((read, written))) => {
                    (member.read, member.written) = (read, written);
                    counted = true;
                }
                Ok(None) => {}
                Err(error) => denied = Err(error),
            }
        }
        self.family.retain(|pid, _| !gone.contains(pid));
        if counted { Ok(()) } else { denied }
    }

    fn tell(&mut self, at: Instant, before: &BTreeMap<u32, Member>, disk: bool, tell: &mut dyn FnMut(SampledValue<'_>)) {
        let family = &self.family;
        let grow = |sum: &mut Sum, count: fn(&Member) -> u64| {
            let all = |members: &BTreeMap<u32, Member>| members.values().map(count).sum();
            let living = before.iter().filter(|(pid, _)| family.contains_key(pid)).map(|(_, member)| count(member)).sum();
            sum.grow(all(family), all(before), living)
        };
        let ticks = grow(&mut self.ticks, |member| member.ticks);
        let (read, written) = (grow(&mut self.read, |member| member.read), grow(&mut self.written, |member| member.written));
        if let Some(cores) = self.cpu.since(at, ticks as f64).map(|ticks| ticks / TICKS) {
            tell(SampledValue::plain("process.cpu", cores));
        }
        tell(SampledValue::plain("process.memory", family.values().map(|member| member.resident).sum::<u64>() as f64));
        if disk {
            tell(SampledValue::plain("process.disk_read", read as f64));
            tell(SampledValue::plain("process.disk_write", written as f64));
        }
    }
}

impl TelemetrySource for Tree {
    fn kind(&self) -> Source {
        Source::Process
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(&mut self, at: Instant, tell: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let before = self.family.clone();
        self.adopt()?;
        let counted = self.visit();
        self.members.are(self.family.keys().copied());
        if self.family.is_empty() {
            return Err("the managed server has ended".to_owned());
        }
        self.tell(at, &before, counted.is_ok(), tell);
        counted
    }
}

/// What the processes of a tree counted together, from the first sample on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds what was counted since the last sample: `now` is what those alive stand at, `before` what those alive then stood
    /// at, and `living` the part of it of those that still are.
    ///
    /// A process that ended and was waited for is counted by its parent from then on. One that nobody waits for takes its
    /// count with it; then what the others did is added, and what it did last is lost.
    pub fn grow(&mut self, now: u64, before: u64, living: u64) -> u64 {
        self.0 += now.checked_sub(before).unwrap_or_else(|| now.saturating_sub(living));
        self.0
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod sum_tests {
    use super::*;

    #[test]
    fn it_never_falls() {
        let mut sum = Sum::default();
        assert_eq!(sum.grow(100, 0, 0), 100, "the first sample: all so far");
        assert_eq!(sum.grow(130, 100, 100), 130);
        assert_eq!(sum.grow(140, 130, 70), 140, "60 were waited for by somebody who counts them now");
        assert_eq!(sum.grow(75, 140, 70), 145, "70 went unseen, the rest did 5");
        assert_eq!(sum.grow(10, 75, 20), 145);
    }
}
