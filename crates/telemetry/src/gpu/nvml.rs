//! NVIDIA's GPUs, by its management library, which the driver brings along: it is opened while the program runs.

use crate::gpu::Visible;
use crate::gpu::{Card, Fleet};
use crate::source::{SampledValue, TelemetrySource};
use crate::tree::Members;
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use std::sync::Arc;
use std::time::Instant;

/// Why a GPU may run slower than it could, for power, heat or a fault. That it has nothing to do, or that somebody has set its
/// clock, is no such reason.
const BRAKES: [(ThrottleReasons, &str); 6] = [
    (ThrottleReasons::SW_POWER_CAP, "power_cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware_slowdown"),
    (ThrottleReasons::SYNC_BOOST, "sync_boost"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hardware_thermal"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power_brake"),
];

/// The NVIDIA GPUs of this machine.
#[derive(Clone)]
pub struct Nvidia {
    nvml: Arc<Nvml>,
    devices: Vec<u32>,
}

impl Nvidia {
    /// Opens the library, and finds the GPUs that are visible.
    ///
    /// # Errors
    /// There is no driver, or no such GPU; in words.
    pub fn find(visible: &Visible) -> Result<Nvidia, String> {
        let nvml = Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) => "no NVIDIA driver is installed (no libnvidia-ml.so.1)".to_owned(),
            error => format!("NVIDIA's driver says that {error}"),
        })?;
        let count = nvml.device_count().map_err(|error| format!("NVIDIA's driver says that {error}"))?;
        let uuid = |index| nvml.device_by_index(index).and_then(|device| device.uuid()).unwrap_or_default();
        let devices: Vec<u32> = (0..count).filter(|index| visible.shows(*index, &uuid(*index))).collect();
        match (devices.is_empty(), visible.name()) {
            (false, _) => Ok(Nvidia { nvml: Arc::new(nvml), devices }),
            (true, "") => Err("NVIDIA's driver knows no GPU".into()),
            (true, name) => Err(format!("`{name}` names none of the {count} NVIDIA GPUs")),
        }
    }

    /// Samples them; what the processes of `server` use of their memory, too.
    pub fn source(&self, interval: Nanos, server: Option<Members>) -> Box<dyn TelemetrySource> {
        Box::new(Sampled { gpus: self.clone(), interval, server, fleet: Fleet::default() })
    }
}

struct Sampled {
    gpus: Nvidia,
    interval: Nanos,
    server: Option<Members>,
    fleet: Fleet,
}

impl TelemetrySource for Sampled {
    fn kind(&self) -> Source {
        Source::Nvml
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(&mut self, _at: Instant, tell: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let mut answer = Ok(());
        for &index in &self.gpus.devices {
            let device = self.gpus.nvml.device_by_index(index);
            match device.and_then(|device| card(&device, self.server.as_ref())) {
                Ok(card) => self.fleet.tell(index, &card, tell),
                Err(error) => answer = Err(format!("GPU {index}: {error}")),
            }
        }
        answer
    }

    fn notes(&mut self) -> Vec<String> {
        self.fleet.notes(self.server.is_some())
    }
}

fn card(device: &Device<'_>, server: Option<&Members>) -> Result<Card, NvmlError> {
    let mut card = Card::default();
    let used = known(device.utilization_rates())?;
    card.put(Signal::GpuUtilization, used.as_ref().map(|used| f64::from(used.gpu) / 100.0));
    card.put(Signal::GpuMemoryUtilization, used.as_ref().map(|used| f64::from(used.memory) / 100.0));
    card.put(Signal::GpuMemory, known(device.memory_info())?.map(|memory| memory.used as f64));
    if let Some(server) = server {
        let processes = known(device.running_compute_processes())?;
        card.put(Signal::GpuMemoryServer, processes.and_then(|all| memory_of(&all, |pid| server.has(pid))));
    }
    card.put(Signal::GpuPower, known(device.power_usage())?.map(|milliwatts| f64::from(milliwatts) / 1e3));
    card.put(Signal::GpuClock, known(device.clock_info(Clock::SM))?.map(f64::from));
    card.put(Signal::GpuMemoryClock, known(device.clock_info(Clock::Memory))?.map(f64::from));
    card.put(Signal::GpuTemperature, known(device.temperature(TemperatureSensor::Gpu))?.map(f64::from));
    card.energy = known(device.total_energy_consumption())?.map(|millijoules| millijoules as f64 / 1e3);
    card.held = known(device.current_throttle_reasons())?.map(brakes);
    Ok(card)
}

/// None where this GPU, driver or user cannot have it; an error where the GPU itself is in trouble.
fn known<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(
            NvmlError::NotSupported
            | NvmlError::NoPermission
            | NvmlError::NoData
            | NvmlError::FunctionNotFound
            | NvmlError::InvalidArg
            | NvmlError::FailedToLoadSymbol(_),
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes that these processes use of a GPU; None where it lists none of them, which may be for want of a common numbering:
/// a container has its own.
fn memory_of(processes: &[ProcessInfo], own: impl Fn(u32) -> bool) -> Option<f64> {
    let used = processes.iter().filter(|process| own(process.pid)).filter_map(|process| match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes as f64),
        UsedGpuMemory::Unavailable => None,
    });
    used.reduce(|sum, bytes| sum + bytes)
}

fn brakes(reasons: ThrottleReasons) -> Vec<&'static str> {
    BRAKES.iter().filter(|(reason, _)| reasons.contains(*reason)).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_is_no_brake() {
        assert_eq!(brakes(ThrottleReasons::GPU_IDLE | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING), Vec::<&str>::new());
        let hot = ThrottleReasons::GPU_IDLE | ThrottleReasons::HW_THERMAL_SLOWDOWN | ThrottleReasons::HW_SLOWDOWN;
        assert_eq!(brakes(hot), ["hardware_slowdown", "hardware_thermal"]);
    }

    #[test]
    fn the_servers_processes_are_summed_and_unknown_ones_are_not_zero() {
        let process =
            |pid, used_gpu_memory| ProcessInfo { pid, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None };
        let all = [
            (7, UsedGpuMemory::Used(100)),
            (8, UsedGpuMemory::Used(20)),
            (9, UsedGpuMemory::Used(3)),
            (10, UsedGpuMemory::Unavailable),
        ];
        let all = all.map(|(pid, used)| process(pid, used));
        assert_eq!(memory_of(&all, |pid| pid != 8), Some(103.0));
        assert_eq!((memory_of(&all, |pid| pid == 1), memory_of(&all, |pid| pid == 10)), (None, None));
    }

    #[test]
    fn what_a_gpu_does_not_have_is_missing_and_a_lost_gpu_is_an_error() {
        assert!(matches!(known::<u32>(Err(NvmlError::NotSupported)), Ok(None)));
        assert!(matches!(known(Ok(1)), Ok(Some(1))));
        assert!(matches!(known::<u32>(Err(NvmlError::GpuLost)), Err(NvmlError::GpuLost)));
    }
}
