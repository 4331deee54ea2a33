//! What this process takes of the machine.

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::gettid;

/// Niceness of what prepares requests and keeps their rows.
const BEHIND: i32 = 10;

/// Puts this thread behind those that send and stamp, where they share a core: its work can wait, an instant cannot.
pub fn stand_behind() {
    // Linux has a niceness for each thread. A system that refuses leaves the order to its scheduler.
    let _ = setpriority_process(Some(gettid()), BEHIND);
}

/// Forgets how high resident memory was, so that [`memory_peak`] is of what comes. False where the system does not let it:
/// Linux alone does (proc_pid_clear_refs(5)).
pub fn memory_anew() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Resident memory at its highest so far, or since [`memory_anew`], in bytes; 0 where the system does not tell.
pub fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    peak_in(&status).unwrap_or(0)
}

/// Resident memory now, in bytes; 0 where the system does not tell.
pub fn memory_now() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    line_of(&status, "VmRSS:").unwrap_or(0)
}

/// Memory that the allocator has mapped for this process now, in bytes, used or not; None where the system does not report it.
/// Linux counts private writable mappings (`VmData`): the allocator's, and the stacks of threads.
pub fn memory_reserved() -> Option<u64> {
    line_of(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmData:")
}

/// Raises this process's limit on open files to `wanted`, as far as the system lets it; returns what it is then.
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

/// The `VmHWM` line of a Linux process status.
fn peak_in(status: &str) -> Option<u64> {
    line_of(status, "VmHWM:")
}

/// The bytes that a line of a Linux process status tells.
fn line_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
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

    #[test]
    fn the_high_water_mark_is_read_in_kib() {
        assert_eq!(peak_in("Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(peak_in("Name:\tx\n"), None);
    }
}
