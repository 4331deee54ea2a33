//! CPU, memory, network and disks of this machine, from `/proc` and `/sys`.

use crate::proc::{MIN_INTERVAL, Proc, first_error, parse_kib};
use crate::{SampledValue, TelemetrySource};
use llmscen_core::manifest::Machine;
use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// Bytes of a sector in `/proc/diskstats`, whatever the sector size of the disk.
const SECTOR: f64 = 512.0;

/// The machine, also from inside a container, where only the network is that of the container.
pub struct Host {
    proc: Proc,
    interval: Nanos,
    /// Physical disks. Partitions, RAID and volumes count the same bytes again.
    disks: BTreeSet<String>,
    before: Option<(Instant, Ticks)>,
}

/// CPU time of all cores since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    busy: f64,
    all: f64,
}

impl Host {
    /// The source with this interval.
    pub fn new(interval: Nanos) -> Host {
        Host::with_root(Path::new("/"), interval)
    }

    fn with_root(root: &Path, interval: Nanos) -> Host {
        Host {
            proc: Proc::new(root),
            interval,
            disks: find_disks(&root.join("sys/block")),
            before: None,
        }
    }

    fn sample_cpu(
        &mut self,
        at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        let now = parse_ticks(&self.proc.read("stat")?).ok_or("`/proc/stat` has no `cpu` line")?;
        let Some((from, before)) = self.before else {
            self.before = Some((at, now));
            return Ok(());
        };
        let all = now.all - before.all;
        if all > 0.0 && at.saturating_duration_since(from) >= MIN_INTERVAL {
            emit(SampledValue::plain(
                "host.cpu",
                ((now.busy - before.busy) / all).clamp(0.0, 1.0),
            ));
            self.before = Some((at, now));
        }
        Ok(())
    }

    fn sample_memory(&mut self, emit: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let used = parse_used_memory(&self.proc.read("meminfo")?)
            .ok_or("`/proc/meminfo` has no `MemTotal` and `MemAvailable`")?;
        emit(SampledValue::plain("host.memory", used));
        Ok(())
    }

    fn sample_network(&mut self, emit: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let (received, sent) = parse_network(&self.proc.read("net/dev")?);
        emit(SampledValue::plain("host.net_in", received));
        emit(SampledValue::plain("host.net_out", sent));
        Ok(())
    }

    fn sample_disks(&mut self, emit: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        if !self.disks.is_empty() {
            let (read, written) = parse_sectors(&self.proc.read("diskstats")?, &self.disks);
            emit(SampledValue::plain("host.disk_read", read * SECTOR));
            emit(SampledValue::plain("host.disk_write", written * SECTOR));
        }
        Ok(())
    }
}

impl TelemetrySource for Host {
    fn kind(&self) -> Source {
        Source::Host
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(
        &mut self,
        at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        first_error([
            self.sample_cpu(at, emit),
            self.sample_memory(emit),
            self.sample_network(emit),
            self.sample_disks(emit),
        ])
    }

    fn notes(&mut self) -> Vec<String> {
        let note = self
            .disks
            .is_empty()
            .then(|| "telemetry of host: no disk is listed in /sys/block".into());
        note.into_iter().collect()
    }
}

/// The disks that have a device. Loop devices, memory disks, RAID and volumes have none.
fn find_disks(block: &Path) -> BTreeSet<String> {
    let listed = std::fs::read_dir(block).into_iter().flatten().flatten();
    let is_physical = |path: &PathBuf| path.join("device").exists();
    listed
        .map(|entry| entry.path())
        .filter(is_physical)
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect()
}

/// The `cpu` line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; user and nice include guests.
/// Stolen time counts as busy, because this machine could not use it.
fn parse_ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let counts: Vec<f64> = line
        .split_whitespace()
        .take(8)
        .map_while(|count| count.parse().ok())
        .collect();
    let all: f64 = counts.iter().sum();
    let idle: f64 = counts.iter().skip(3).take(2).sum();
    (counts.len() >= 4).then_some(Ticks {
        busy: all - idle,
        all,
    })
}

/// Used memory in bytes: total minus available.
fn parse_used_memory(meminfo: &str) -> Option<f64> {
    Some(parse_kib(meminfo, "MemTotal")? as f64 - parse_kib(meminfo, "MemAvailable")? as f64)
}

/// Bytes received and sent over all interfaces except the loopback.
fn parse_network(dev: &str) -> (f64, f64) {
    let mut sum = (0.0, 0.0);
    for (_, rest) in dev
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.trim() != "lo")
    {
        let mut counts = rest.split_whitespace();
        if let (Some(Ok(received)), Some(Ok(sent))) = (
            counts.next().map(str::parse::<f64>),
            counts.nth(7).map(str::parse::<f64>),
        ) {
            sum = (sum.0 + received, sum.1 + sent);
        }
    }
    sum
}

/// Sectors read from and written to these disks.
fn parse_sectors(diskstats: &str, disks: &BTreeSet<String>) -> (f64, f64) {
    let mut sum = (0.0, 0.0);
    for line in diskstats.lines() {
        let mut words = line.split_whitespace().skip(2);
        let known = words.next().is_some_and(|name| disks.contains(name));
        // Reads, merged, sectors, time; writes, merged, sectors, time.
        if let (true, Some(Ok(read)), Some(Ok(written))) = (
            known,
            words.nth(2).map(str::parse::<f64>),
            words.nth(3).map(str::parse::<f64>),
        ) {
            sum = (sum.0 + read, sum.1 + written);
        }
    }
    sum
}

/// The machine and its operating system; `unknown` where the system does not provide a value.
pub fn machine() -> Machine {
    let requested = RefreshKind::nothing()
        .with_cpu(CpuRefreshKind::nothing())
        .with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(requested);
    let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
    Machine {
        host: known(System::host_name()),
        os: known(System::long_os_version()),
        kernel: known(System::kernel_version()),
        cpu: known(
            system
                .cpus()
                .first()
                .map(|cpu| cpu.brand().trim().to_owned())
                .filter(|brand| !brand.is_empty()),
        ),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory: system.total_memory(),
        ..Machine::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NET: &str = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame \
        compressed multicast|bytes packets\nlo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0\n  eth0: 100 \
        1 0 0 0 0 0 0 30 1 0 0 0 0 0 0\n  eth1:7 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n";
    const DISKS: &str = "   7       0 loop0 5 0 100 0 5 0 100 0 0 0 0\n 254       0 vda 10 2 40 6 20 4 80 7 0 0 0\n\
        \x20254       1 vda1 10 2 40 6 20 4 80 7 0 0 0\n 259       0 nvme0n1 1 0 2 0 1 0 3 0 0 0 0 0 0 0 0 0 0\n";

    fn write_machine(root: &Path, stat: &str) {
        fs::create_dir_all(root.join("proc/net")).unwrap();
        for disk in ["vda/device", "nvme0n1/device", "loop0", "dm-0"] {
            fs::create_dir_all(root.join("sys/block").join(disk)).unwrap();
        }
        let meminfo = "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    250 kB\n";
        for (name, text) in [
            ("stat", stat),
            ("meminfo", meminfo),
            ("net/dev", NET),
            ("diskstats", DISKS),
        ] {
            fs::write(root.join("proc").join(name), text).unwrap();
        }
    }

    fn sample(host: &mut Host, at: Instant) -> (Vec<(String, f64)>, Result<(), String>) {
        let mut values = Vec::new();
        let result = host.sample(at, &mut |value| {
            values.push((value.name.to_owned(), value.value))
        });
        (values, result)
    }

    #[test]
    fn a_machine_is_read_as_linux_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        write_machine(
            folder.path(),
            "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1\n",
        );
        let mut host = Host::with_root(folder.path(), Nanos::from_millis(1000));
        let counts = [
            ("host.memory", 750.0 * 1024.0),
            ("host.net_in", 107.0),
            ("host.net_out", 35.0),
        ];
        let disk = [
            ("host.disk_read", 42.0 * 512.0),
            ("host.disk_write", 83.0 * 512.0),
        ];
        let named = |all: &[(&str, f64)]| {
            all.iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect::<Vec<_>>()
        };
        let without: Vec<_> = named(&counts).into_iter().chain(named(&disk)).collect();
        let begin = Instant::now();
        assert_eq!(
            sample(&mut host, begin),
            (without.clone(), Ok(())),
            "a share needs two samples"
        );
        assert_eq!(
            sample(&mut host, begin + MIN_INTERVAL).0,
            without,
            "and a tick between them"
        );
        // 40 ticks later: 10 user, 5 irq, 5 stolen; 15 idle, 5 waiting for a disk.
        write_machine(folder.path(), "cpu  110 0 100 715 105 5 0 5 0 0\n");
        assert_eq!(
            sample(&mut host, begin + MIN_INTERVAL / 2).0,
            without,
            "that are not too near"
        );
        let (values, _) = sample(&mut host, begin + MIN_INTERVAL);
        assert_eq!(
            values,
            named(&[("host.cpu", 0.5)])
                .into_iter()
                .chain(without)
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_cannot_be_read_is_named_and_the_rest_is_read() {
        let folder = tempfile::tempdir().unwrap();
        write_machine(folder.path(), "cpu  1 2 3 4 5 6 7 8\n");
        fs::remove_file(folder.path().join("proc/net/dev")).unwrap();
        let mut host = Host::with_root(folder.path(), Nanos::from_millis(1000));
        let (values, result) = sample(&mut host, Instant::now());
        assert_eq!(values.len(), 3);
        assert!(
            result
                .unwrap_err()
                .ends_with("proc/net/dev: No such file or directory (os error 2)")
        );
        assert!(host.notes().is_empty());
        fs::remove_dir_all(folder.path().join("sys")).unwrap();
        let mut bare = Host::with_root(folder.path(), Nanos::from_millis(1000));
        assert_eq!(
            (
                sample(&mut bare, Instant::now()).0.len(),
                bare.notes().len()
            ),
            (1, 1)
        );
    }

    #[test]
    fn every_machine_has_cores_and_memory() {
        let machine = super::machine();
        assert!(
            machine.cores >= 1 && machine.memory > 1 << 20,
            "{machine:?}"
        );
    }
}
