//! NVIDIA GPUs, sampled with NVML. The library is part of the driver and is loaded at run time.

use crate::gpu::{GpuLog, GpuSample, VisibleGpus, count_names};
use crate::tree::Members;
use crate::{SampledValue, TelemetrySource};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// Reasons for throttling: power, heat or a fault. An idle GPU or a clock set by the user is not throttled.
const THROTTLE_REASONS: [(ThrottleReasons, &str); 6] = [
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
    /// Loads the library, and finds the visible GPUs.
    ///
    /// # Errors
    /// There is no driver, or no visible GPU.
    pub fn find(visible: &VisibleGpus) -> Result<Nvidia, String> {
        let nvml = Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) => {
                "no NVIDIA driver is installed (no libnvidia-ml.so.1)".to_owned()
            }
            error => format!("NVIDIA driver: {error}"),
        })?;
        let count = nvml
            .device_count()
            .map_err(|error| format!("NVIDIA driver: {error}"))?;
        let uuid = |index| {
            nvml.device_by_index(index)
                .and_then(|device| device.uuid())
                .unwrap_or_default()
        };
        let devices: Vec<u32> = (0..count)
            .filter(|index| visible.contains(*index, &uuid(*index)))
            .collect();
        match (devices.is_empty(), visible.variable()) {
            (false, _) => Ok(Nvidia {
                nvml: Arc::new(nvml),
                devices,
            }),
            (true, "") => Err("the NVIDIA driver lists no GPU".into()),
            (true, name) => Err(format!("`{name}` selects none of the {count} NVIDIA GPUs")),
        }
    }

    /// Number of visible GPUs.
    pub fn count(&self) -> usize {
        self.devices.len()
    }

    /// The names of the visible GPUs, each with its number: `8 x NVIDIA H200`.
    pub fn describe(&self) -> Option<String> {
        count_names(self.names())
    }

    /// The names of the visible GPUs.
    pub(super) fn names(&self) -> Vec<String> {
        let name = |index: &u32| self.nvml.device_by_index(*index)?.name();
        let names = self.devices.iter().map(name);
        names.filter_map(Result::ok).collect()
    }

    /// Version of the driver.
    pub fn driver_version(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }

    /// The CUDA version that the driver supports: `12.8`.
    pub fn cuda_version(&self) -> Option<String> {
        let version = self.nvml.sys_cuda_driver_version().ok()?;
        Some(format!(
            "{}.{}",
            cuda_driver_version_major(version),
            cuda_driver_version_minor(version)
        ))
    }

    /// The clock of the cores that the driver is set to, which `nvidia-smi -ac` changes: `1980 MHz`; None if no GPU
    /// reports it.
    pub fn application_clock(&self) -> Option<String> {
        let clock = |index: &u32| {
            let gpu = self.nvml.device_by_index(*index)?;
            gpu.applications_clock(Clock::SM)
        };
        let clocks: BTreeSet<u32> = self
            .devices
            .iter()
            .map(clock)
            .filter_map(Result::ok)
            .collect();
        let (low, high) = (clocks.first()?, clocks.last()?);
        Some(match low == high {
            true => format!("{low} MHz"),
            false => format!("{low} to {high} MHz"),
        })
    }

    /// The source with this interval. It also reports the GPU memory of the processes of `server`.
    pub fn source(&self, interval: Nanos, server: Option<Members>) -> Box<dyn TelemetrySource> {
        Box::new(NvidiaSource {
            gpus: self.clone(),
            interval,
            server,
            log: GpuLog::default(),
        })
    }
}

struct NvidiaSource {
    gpus: Nvidia,
    interval: Nanos,
    server: Option<Members>,
    log: GpuLog,
}

impl TelemetrySource for NvidiaSource {
    fn kind(&self) -> Source {
        Source::Nvml
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(
        &mut self,
        _at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        let mut result = Ok(());
        for &index in &self.gpus.devices {
            let device = self.gpus.nvml.device_by_index(index);
            match device.and_then(|device| sample_device(&device, self.server.as_ref())) {
                Ok(sample) => self.log.record(index, &sample, emit),
                Err(error) => result = Err(format!("GPU {index}: {error}")),
            }
        }
        result
    }

    fn notes(&mut self) -> Vec<String> {
        self.log.notes(self.server.is_some())
    }
}

fn sample_device(device: &Device<'_>, server: Option<&Members>) -> Result<GpuSample, NvmlError> {
    let mut sample = GpuSample::default();
    let used = available(device.utilization_rates())?;
    sample.push(
        Signal::GpuUtilization,
        used.as_ref().map(|used| f64::from(used.gpu) / 100.0),
    );
    sample.push(
        Signal::GpuMemoryUtilization,
        used.as_ref().map(|used| f64::from(used.memory) / 100.0),
    );
    sample.push(
        Signal::GpuMemory,
        available(device.memory_info())?.map(|memory| memory.used as f64),
    );
    if let Some(server) = server {
        let processes = available(device.running_compute_processes())?;
        let memory =
            processes.and_then(|processes| sum_memory(&processes, |pid| server.contains(pid)));
        sample.push(Signal::GpuMemoryServer, memory);
    }
    sample.push(
        Signal::GpuPower,
        available(device.power_usage())?.map(|milliwatts| f64::from(milliwatts) / 1e3),
    );
    sample.push(
        Signal::GpuClock,
        available(device.clock_info(Clock::SM))?.map(f64::from),
    );
    sample.push(
        Signal::GpuMemoryClock,
        available(device.clock_info(Clock::Memory))?.map(f64::from),
    );
    sample.push(
        Signal::GpuTemperature,
        available(device.temperature(TemperatureSensor::Gpu))?.map(f64::from),
    );
    sample.energy =
        available(device.total_energy_consumption())?.map(|millijoules| millijoules as f64 / 1e3);
    sample.throttle_reasons = available(device.current_throttle_reasons())?.map(throttle_reasons);
    Ok(sample)
}

/// None where the GPU, the driver or the permissions do not provide the value; an error where the GPU failed.
fn available<T>(result: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match result {
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

/// GPU memory of the included processes, in bytes; None where none is listed. In a container, the driver lists them
/// under other numbers.
fn sum_memory(processes: &[ProcessInfo], includes: impl Fn(u32) -> bool) -> Option<f64> {
    let used = processes
        .iter()
        .filter(|process| includes(process.pid))
        .filter_map(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes as f64),
            UsedGpuMemory::Unavailable => None,
        });
    used.reduce(|sum, bytes| sum + bytes)
}

fn throttle_reasons(reasons: ThrottleReasons) -> Vec<&'static str> {
    THROTTLE_REASONS
        .iter()
        .filter(|(reason, _)| reasons.contains(*reason))
        .map(|(_, name)| *name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_gpu_is_not_throttled() {
        assert_eq!(
            throttle_reasons(
                ThrottleReasons::GPU_IDLE | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING
            ),
            Vec::<&str>::new()
        );
        let hot = ThrottleReasons::GPU_IDLE
            | ThrottleReasons::HW_THERMAL_SLOWDOWN
            | ThrottleReasons::HW_SLOWDOWN;
        assert_eq!(
            throttle_reasons(hot),
            ["hardware_slowdown", "hardware_thermal"]
        );
    }

    #[test]
    fn the_servers_processes_are_summed_and_unknown_ones_are_not_zero() {
        let process = |pid, used_gpu_memory| ProcessInfo {
            pid,
            used_gpu_memory,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let all = [
            (7, UsedGpuMemory::Used(100)),
            (8, UsedGpuMemory::Used(20)),
            (9, UsedGpuMemory::Used(3)),
            (10, UsedGpuMemory::Unavailable),
        ];
        let all = all.map(|(pid, used)| process(pid, used));
        assert_eq!(sum_memory(&all, |pid| pid != 8), Some(103.0));
        assert_eq!(
            (
                sum_memory(&all, |pid| pid == 1),
                sum_memory(&all, |pid| pid == 10)
            ),
            (None, None)
        );
    }

    #[test]
    fn what_a_gpu_does_not_have_is_missing_and_a_lost_gpu_is_an_error() {
        assert!(matches!(
            available::<u32>(Err(NvmlError::NotSupported)),
            Ok(None)
        ));
        assert!(matches!(available(Ok(1)), Ok(Some(1))));
        assert!(matches!(
            available::<u32>(Err(NvmlError::GpuLost)),
            Err(NvmlError::GpuLost)
        ));
    }
}
