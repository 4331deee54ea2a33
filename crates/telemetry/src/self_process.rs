//! This process.

use crate::cpu_usage::Pace;
use crate::proc::{Proc, disk, first, resident};
use crate::source::{Source, Told};
use llmscen_core::telemetry::Teller;
use llmscen_core::units::Nanos;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Instant;

/// This process, and whatever runs in it: a simulator or a model of the run too.
pub struct Tool {
    proc: Proc,
    interval: Nanos,
    cpu: Pace,
}

impl Tool {
    /// This process.
    pub fn new(interval: Nanos) -> Tool {
        Tool { proc: Proc::under(Path::new("/")), interval, cpu: Pace::default() }
    }

    fn memory(&mut self, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), String> {
        let bytes = resident(&self.proc.read("self/status")?).ok_or("`/proc/self/status` has no `VmRSS`")?;
        tell(Told::plain("tool.memory", bytes));
        Ok(())
    }

    fn disk(&mut self, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), String> {
        let (read, written) = disk(&self.proc.read("self/io")?).ok_or("`/proc/self/io` has no `read_bytes`")?;
        tell(Told::plain("tool.disk_read", read as f64));
        tell(Told::plain("tool.disk_write", written as f64));
        Ok(())
    }
}

impl Source for Tool {
    fn teller(&self) -> Teller {
        Teller::Tool
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(&mut self, at: Instant, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), String> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        if let Some(cores) = self.cpu.since(at, cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9) {
            tell(Told::plain("tool.cpu", cores));
        }
        first([self.memory(tell), self.disk(tell)])
    }
}

#[cfg(test)]
mod tests {
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
