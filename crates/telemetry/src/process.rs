//! This process: its CPU time, memory, limits and priority.

use crate::proc::{GrowthRate, Proc, first_error, parse_io, parse_kib};
use crate::{SampledValue, TelemetrySource};
use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Instant;

/// Niceness of the threads that prepare requests and record outcomes.
const BACKGROUND_NICENESS: i32 = 10;

/// Lowers the priority of this thread below those that send requests and take timestamps, whose work cannot wait.
pub fn lower_thread_priority() {
    // On Linux the niceness is per thread. Where it cannot be set, the order is left to the scheduler.
    let _ = setpriority_process(Some(gettid()), BACKGROUND_NICENESS);
}

/// Resets [`memory_peak`]. False where the system cannot: only Linux can (proc_pid_clear_refs(5)).
pub fn reset_memory_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Peak resident memory since the start or [`reset_memory_peak`], in bytes; 0 where the system does not report it.
pub fn memory_peak() -> u64 {
    read_status("VmHWM").unwrap_or(0)
}

/// Resident memory now, in bytes; 0 where the system does not report it.
pub fn memory_now() -> u64 {
    read_status("VmRSS").unwrap_or(0)
}

/// Memory that is mapped for this process now, in bytes, used or not; None where the system does not report it.
/// Linux counts private writable mappings (`VmData`): those of the allocator, and the stacks of threads.
pub fn memory_reserved() -> Option<u64> {
    read_status("VmData")
}

fn read_status(name: &str) -> Option<u64> {
    parse_kib(&std::fs::read_to_string("/proc/self/status").ok()?, name)
}

/// Raises the limit on open files of this process to `count`, as far as the system permits. Returns the resulting
/// limit.
pub fn allow_open_files(count: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let now = limit.current.unwrap_or(u64::MAX);
    if now >= count {
        return now;
    }
    let raised = count.min(limit.maximum.unwrap_or(u64::MAX));
    match setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(raised),
            maximum: limit.maximum,
        },
    ) {
        Ok(()) => raised,
        Err(_) => now,
    }
}

/// This process, including a simulator or a local model of the run.
pub struct SelfProcess {
    proc: Proc,
    interval: Nanos,
    cpu: GrowthRate,
}

impl SelfProcess {
    /// The source with this interval.
    pub fn new(interval: Nanos) -> SelfProcess {
        SelfProcess {
            proc: Proc::new(Path::new("/")),
            interval,
            cpu: GrowthRate::default(),
        }
    }

    fn sample_memory(&mut self, emit: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let bytes = parse_kib(&self.proc.read("self/status")?, "VmRSS")
            .ok_or("`/proc/self/status` has no `VmRSS`")?;
        emit(SampledValue::plain("tool.memory", bytes as f64));
        Ok(())
    }

    fn sample_disk(&mut self, emit: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let (read, written) =
            parse_io(&self.proc.read("self/io")?).ok_or("`/proc/self/io` has no `read_bytes`")?;
        emit(SampledValue::plain("tool.disk_read", read as f64));
        emit(SampledValue::plain("tool.disk_write", written as f64));
        Ok(())
    }
}

impl TelemetrySource for SelfProcess {
    fn kind(&self) -> Source {
        Source::Tool
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(
        &mut self,
        at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        if let Some(cores) = self
            .cpu
            .update(at, cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9)
        {
            emit(SampledValue::plain("tool.cpu", cores));
        }
        first_error([self.sample_memory(emit), self.sample_disk(emit)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_limit_on_open_files_is_never_lowered() {
        let now = allow_open_files(0);
        assert!(allow_open_files(now) >= now);
        assert_eq!(allow_open_files(1), now);
    }

    #[test]
    fn memory_and_disk_are_reported_at_once_and_cpu_from_the_second_sample_on() {
        let begin = Instant::now();
        let mut process = SelfProcess::new(Nanos::from_millis(1000));
        let mut sample = |at| {
            let mut values = Vec::new();
            process
                .sample(at, &mut |value| {
                    values.push((value.name.to_owned(), value.value))
                })
                .unwrap();
            values
        };
        let names = |values: &[(String, f64)]| {
            values
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        let rest = ["tool.memory", "tool.disk_read", "tool.disk_write"];
        let one = sample(begin);
        assert_eq!(names(&one), rest);
        assert!(one[0].1 > f64::from(1 << 20), "{one:?}");
        let two = sample(begin + Duration::from_secs(1));
        assert_eq!(names(&two), [["tool.cpu"].as_slice(), &rest].concat());
        assert!(two[0].1 >= 0.0 && two[0].1 < 60.0, "{two:?}");
    }
}
