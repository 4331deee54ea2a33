//! The machine that produces the load.

use llmscen_core::manifest::Machine;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// What the system tells of itself; what it keeps to itself is `unknown`.
pub fn machine() -> Machine {
    let wanted = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()).with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(wanted);
    let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
    Machine {
        host: known(System::host_name()),
        os: known(System::long_os_version()),
        kernel: known(System::kernel_version()),
        cpu: known(system.cpus().first().map(|cpu| cpu.brand().trim().to_owned()).filter(|brand| !brand.is_empty())),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory: system.total_memory(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_cores_and_memory() {
        let machine = machine();
        assert!(machine.cores >= 1 && machine.memory > 1 << 20, "{machine:?}");
    }
}
