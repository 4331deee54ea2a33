//! This process: its share of the machine, its limits and its priority.

use crate::proc::{GrowthRate, Proc, first_error, parse_io, parse_kib};
use crate::source::{SampledValue, TelemetrySource};
use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Instant;

/// Niceness of the threads that prepare requests and keep their rows.
const BEHIND: i32 = 10;

/// Puts this thread behind those that send and stamp, where they share a core: its work can wait, an instant cannot.
pub fn stand_behind() {
    // Linux has a niceness for each thread. A system that refuses leaves the order to its scheduler.
    let _ = setpriority_process(Some(gettid()), BEHIND);
}

/// Resets the highest resident memory that [`memory_peak`] gives. False where the system has no such reset: only Linux has one
/// (proc_pid_clear_refs(5)).
pub fn memory_anew() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Resident memory at its highest so far, or since [`memory_anew`], in bytes; 0 where the system does not report it.
pub fn memory_peak() -> u64 {
    own_status("VmHWM").unwrap_or(0)
}

/// Resident memory now, in bytes; 0 where the system does not report it.
pub fn memory_now() -> u64 {
    own_status("VmRSS").unwrap_or(0)
}

/// Memory that the allocator has mapped for this process now, in bytes, used or not; None where the system does not report it.
/// Linux counts private writable mappings (`VmData`): the allocator's, and the stacks of threads.
pub fn memory_reserved() -> Option<u64> {
    own_status("VmData")
}

fn own_status(name: &str) -> Option<u64> {
    parse_kib(&std::fs::read_to_string("/proc/self/status").ok()?, name)
}

/// Raises this process's limit on open files to `wanted`, as far as the system lets it; returns what the limit is then.
pub fn allow_open_files(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let now = limit.current.unwrap_or(u64::MAX);
    if now >= wanted {
        return now;
    }
    let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }) {
        Ok(()) => raised,
        Err(_) => now,
    }
}

/// This process, and whatever runs in it: a simulator or a model of the run too.
pub struct Tool {
    proc: Proc,
    interval: Nanos,
    cpu: GrowthRate,
}

impl Tool {
    /// This process.
    pub fn new(interval: Nanos) -> Tool {
        Tool { proc: Proc::under(Path::new("/")), interval, cpu: GrowthRate::default() }
    }

    fn memory(&mut self, tell: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let bytes = parse_kib(&self.proc.read("self/status")?, "VmRSS").ok_or("`/proc/self/status` has no `VmRSS`")?;
        tell(SampledValue::plain("tool.memory", bytes as f64));
        Ok(())
    }

    fn disk(&mut self, tell: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let (read, written) = parse_io(&self.proc.read("self/io")?).ok_or("`/proc/self/io` has no `read_bytes`")?;
        tell(SampledValue::plain("tool.disk_read", read as f64));
        tell(SampledValue::plain("tool.disk_write", written as f64));
        Ok(())
    }
}

impl TelemetrySource for Tool {
    fn kind(&self) -> Source {
        Source::Tool
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(&mut self, at: Instant, tell: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        if let Some(cores) = self.cpu.since(at, cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9) {
            tell(SampledValue::plain("tool.cpu", cores));
        }
        first_error([self.memory(tell), self.disk(tell)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_open_files_is_never_lowered() {
        let now = allow_open_files(0);
        assert!(allow_open_files(now) >= now);
        assert_eq!(allow_open_files(1), now);
    }
}

#[cfg(test)]
mod self_process_tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn this_process_tells_its_memory_and_disk_at_once_and_its_cpu_from_the_second_sample_on() {
        let (mut tool, begin) = (Tool::new(Nanos::from_millis(1000)), Instant::now());
        let mut sample = |at| {
            let mut told = Vec::new();
            tool.sample(at, &mut |own| told.push((own.name.to_owned(), own.value))).unwrap();
            told
        };
        let names = |told: &[(String, f64)]| told.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let rest = ["tool.memory", "tool.disk_read", "tool.disk_write"];
        let one = sample(begin);
        assert_eq!(names(&one), rest);
        assert!(one[0].1 > f64::from(1 << 20), "{one:?}");
        let two = sample(begin + Duration::from_secs(1));
        assert_eq!(names(&two), [["tool.cpu"].as_slice(), &rest].concat());
        assert!(two[0].1 >= 0.0 && two[0].1 < 60.0, "{two:?}");
    }
}
