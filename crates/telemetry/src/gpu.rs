//! What the sources of GPU telemetry share.

use crate::SampledValue;
use llmscen_core::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub mod amd;
pub mod nvml;

/// The signals that every GPU is expected to report.
const SIGNALS: [Signal; 9] = [
    Signal::GpuUtilization,
    Signal::GpuMemoryUtilization,
    Signal::GpuMemory,
    Signal::GpuMemoryServer,
    Signal::GpuPower,
    Signal::GpuClock,
    Signal::GpuMemoryClock,
    Signal::GpuTemperature,
    Signal::GpuThrottled,
];
/// Energy since the driver was loaded, in joules. Energy per token is computed from the power, which every GPU reports.
const ENERGY: &str = "gpu.energy_joules";
/// Whether a reason for throttling is active, 0 or 1, by `reason`.
const THROTTLE_REASON: &str = "gpu.throttle_reason";

/// One sample of one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
struct GpuSample {
    /// Values in the unit of their signal.
    values: Vec<(Signal, f64)>,
    /// Energy used so far, in joules.
    energy: Option<f64>,
    /// The active reasons for throttling; None where they are unknown.
    throttle_reasons: Option<Vec<&'static str>>,
}

impl GpuSample {
    fn push(&mut self, signal: Signal, value: Option<f64>) {
        self.values.extend(value.map(|value| (signal, value)));
    }
}

/// What the GPUs of a round have reported so far, by device.
#[derive(Debug, Default)]
struct GpuLog {
    devices: BTreeMap<u32, DeviceLog>,
}

#[derive(Debug, Default)]
struct DeviceLog {
    samples: u64,
    reported: BTreeSet<Signal>,
    throttled_samples: u64,
    /// Samples by reason.
    reasons: BTreeMap<&'static str, u64>,
}

impl GpuLog {
    fn record(&mut self, device: u32, sample: &GpuSample, emit: &mut dyn FnMut(SampledValue<'_>)) {
        let log = self.devices.entry(device).or_default();
        log.samples += 1;
        let mut emit_value = |name: &str, labels: &str, value: f64| {
            emit(SampledValue {
                name,
                labels,
                device: Some(device),
                value,
            })
        };
        for (signal, value) in &sample.values {
            log.reported.insert(*signal);
            emit_value(signal.name(), "", *value);
        }
        if let Some(energy) = sample.energy {
            emit_value(ENERGY, "", energy);
        }
        let Some(active) = &sample.throttle_reasons else {
            return;
        };
        log.reported.insert(Signal::GpuThrottled);
        log.throttled_samples += u64::from(!active.is_empty());
        emit_value(
            Signal::GpuThrottled.name(),
            "",
            if active.is_empty() { 0.0 } else { 1.0 },
        );
        for reason in active {
            *log.reasons.entry(reason).or_default() += 1;
        }
        for reason in log.reasons.keys() {
            emit_value(
                THROTTLE_REASON,
                &format!("reason={reason}"),
                f64::from(u8::from(active.contains(reason))),
            );
        }
    }

    /// The signals that were never reported, and the throttling. `managed_server`: the memory of the server is
    /// expected.
    fn notes(&self, managed_server: bool) -> Vec<String> {
        let mut devices_by_missing: BTreeMap<Vec<&str>, Vec<String>> = BTreeMap::new();
        for (device, log) in &self.devices {
            let expected = SIGNALS
                .iter()
                .filter(|signal| managed_server || **signal != Signal::GpuMemoryServer);
            let missing: Vec<&str> = expected
                .filter(|signal| !log.reported.contains(signal))
                .map(|signal| signal.name())
                .collect();
            devices_by_missing
                .entry(missing)
                .or_default()
                .push(device.to_string());
        }
        let mut notes = Vec::new();
        for (missing, devices) in devices_by_missing
            .into_iter()
            .filter(|(missing, _)| !missing.is_empty())
        {
            notes.push(format!(
                "GPU {} does not report {}",
                devices.join(", "),
                missing.join(", ")
            ));
        }
        for (device, log) in self
            .devices
            .iter()
            .filter(|(_, log)| log.throttled_samples > 0)
        {
            let reasons: Vec<String> = log
                .reasons
                .iter()
                .map(|(reason, samples)| format!("{reason} ({samples})"))
                .collect();
            let reasons = reasons.join(", ");
            notes.push(format!(
                "GPU {device} was throttled in {} of {} samples: {reasons}",
                log.throttled_samples, log.samples
            ));
        }
        notes
    }
}

/// The name of the GPUs of this machine, such as `NVIDIA H200` or `AMD Instinct MI300X OAM`; None without a GPU or
/// its driver. Of several kinds the first.
pub fn name_of_machine() -> Option<String> {
    let nvidia = nvml::Nvidia::find(&VisibleGpus::default()).ok();
    let name = nvidia.and_then(|gpus| gpus.names().into_iter().next());
    name.or_else(|| amd::product_names(Path::new(amd::CARDS)).into_iter().next())
}

/// Names with their number: `8 x NVIDIA H200`; None without any.
fn count_names(names: Vec<String>) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let described = counts
        .iter()
        .map(|(name, count)| format!("{count} x {name}"));
    Some(described.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// The GPUs that `CUDA_VISIBLE_DEVICES` or a similar variable selects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VisibleGpus {
    /// Empty: no variable is set, and all GPUs are visible.
    variable: String,
    devices: Vec<String>,
}

impl VisibleGpus {
    /// Reads the first of these variables that is set. As in CUDA, the list ends at the first entry that is not a
    /// GPU, such as `-1`.
    pub fn from_env(env: &BTreeMap<String, String>, names: &[&str]) -> VisibleGpus {
        let found = names.iter().find_map(|name| Some((*name, env.get(*name)?)));
        let Some((variable, list)) = found else {
            return VisibleGpus::default();
        };
        let valid = |entry: &&str| {
            entry.parse::<u32>().is_ok() || entry.starts_with("GPU-") || entry.starts_with("MIG-")
        };
        let devices = list
            .split(',')
            .map(str::trim)
            .take_while(valid)
            .map(str::to_owned)
            .collect();
        VisibleGpus {
            variable: variable.to_owned(),
            devices,
        }
    }

    /// Whether a GPU is visible: by its number, or by the beginning of its UUID. The GPU of a MIG instance is
    /// unknown, so every GPU may be it.
    pub fn contains(&self, index: u32, uuid: &str) -> bool {
        let matches = |device: &String| match device.parse::<u32>() {
            Ok(number) => number == index,
            Err(_) => device.starts_with("MIG-") || uuid.starts_with(device.as_str()),
        };
        self.variable.is_empty() || self.devices.iter().any(matches)
    }

    /// The environment variable; empty where none is set.
    pub fn variable(&self) -> &str {
        &self.variable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(log: &mut GpuLog, device: u32, sample: &GpuSample) -> Vec<String> {
        let mut all = Vec::new();
        log.record(device, sample, &mut |value| {
            let labels = if value.labels.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", value.labels)
            };
            all.push(format!(
                "{}{labels}@{}={}",
                value.name,
                value.device.unwrap(),
                value.value
            ));
        });
        all
    }

    #[test]
    fn missing_signals_and_throttling_are_noted() {
        let mut log = GpuLog::default();
        let values = SIGNALS
            .iter()
            .filter(|signal| **signal != Signal::GpuThrottled)
            .map(|signal| (*signal, 1.0))
            .collect();
        let throttled = GpuSample {
            values,
            energy: Some(7.5),
            throttle_reasons: Some(vec!["power_cap"]),
        };
        let all = record(&mut log, 0, &throttled);
        assert_eq!(all.len(), 11);
        assert_eq!(
            &all[8..],
            [
                "gpu.energy_joules@0=7.5",
                "gpu.throttled@0=1",
                "gpu.throttle_reason{reason=power_cap}@0=1"
            ]
        );
        let free = GpuSample {
            throttle_reasons: Some(Vec::new()),
            ..GpuSample::default()
        };
        assert_eq!(
            record(&mut log, 0, &free),
            [
                "gpu.throttled@0=0",
                "gpu.throttle_reason{reason=power_cap}@0=0"
            ]
        );
        assert_eq!(
            record(&mut log, 3, &free),
            ["gpu.throttled@3=0"],
            "only reasons that were active once are reported"
        );
        record(&mut log, 5, &free);
        let rest = "gpu.memory, gpu.power, gpu.clock, gpu.memory_clock, gpu.temperature";
        let missing =
            format!("GPU 3, 5 does not report gpu.utilization, gpu.memory_utilization, {rest}");
        let throttling = "GPU 0 was throttled in 1 of 2 samples: power_cap (1)".to_owned();
        assert_eq!(log.notes(false), [missing.clone(), throttling]);
        assert_eq!(
            log.notes(true)[0],
            missing.replace("gpu.memory,", "gpu.memory, gpu.memory_server,")
        );
    }

    #[test]
    fn gpus_are_named_by_number_or_uuid_up_to_the_first_that_is_none() {
        let visible = |list: &str| {
            VisibleGpus::from_env(
                &BTreeMap::from([("CUDA_VISIBLE_DEVICES".into(), list.into())]),
                &["X", "CUDA_VISIBLE_DEVICES"],
            )
        };
        let shown = |list: &str| {
            (0..4)
                .filter(|index| visible(list).contains(*index, &format!("GPU-{index}ab-cd")))
                .collect::<Vec<_>>()
        };
        for (list, expected) in [
            ("0, 2", vec![0, 2]),
            ("GPU-3ab,1", vec![1, 3]),
            ("1,-1,2", vec![1]),
            ("", vec![]),
            ("-1", vec![]),
            ("MIG-5f0b2d-1", vec![0, 1, 2, 3]),
        ] {
            assert_eq!(shown(list), expected, "{list:?}");
        }
        assert!(
            VisibleGpus::from_env(&BTreeMap::new(), &["CUDA_VISIBLE_DEVICES"]).contains(7, "GPU-7"),
            "without the variable all are"
        );
        assert_eq!(visible("0").variable(), "CUDA_VISIBLE_DEVICES");
    }
}
