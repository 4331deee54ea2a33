//! The fields of NVIDIA's DCGM exporter on a page.

use crate::SampledValue;
use crate::prometheus::text::{Page, Sample};
use llmscen_core::signal::Signal::{self, *};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A field of DCGM that carries a signal.
#[derive(Debug)]
pub(crate) struct Field {
    pub name: &'static str,
    pub signal: Signal,
    /// Factor from the unit of the field to the unit of the signal.
    scale: f64,
}

const fn field(name: &'static str, signal: Signal, scale: f64) -> Field {
    Field {
        name,
        signal,
        scale,
    }
}

/// The fields of common signals. Of several fields for a signal, the first one on the page is used.
pub(crate) const FIELDS: &[Field] = &[
    field("DCGM_FI_DEV_GPU_UTIL", GpuUtilization, 0.01),
    field("DCGM_FI_DEV_MEM_COPY_UTIL", GpuMemoryUtilization, 0.01),
    field("DCGM_FI_DEV_FB_USED", GpuMemory, 1024.0 * 1024.0),
    field("DCGM_FI_DEV_POWER_USAGE", GpuPower, 1.0),
    field("DCGM_FI_DEV_SM_CLOCK", GpuClock, 1.0),
    field("DCGM_FI_DEV_MEM_CLOCK", GpuMemoryClock, 1.0),
    field("DCGM_FI_DEV_GPU_TEMP", GpuTemperature, 1.0),
    field("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", GpuThrottled, 1.0),
    // Until DCGM 3.2.
    field("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", GpuThrottled, 1.0),
];

/// The bits of clock event reasons that count as throttling: software power cap, hardware slowdown, sync boost,
/// software and hardware thermal slowdown, power brake. The others are idleness and settings of the user.
const THROTTLED: u64 = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80;

/// The signals of the GPUs of a page.
#[derive(Debug, Default)]
pub(crate) struct GpuSignals {
    /// The signals that were emitted.
    pub reported: BTreeSet<Signal>,
    /// Indices of the samples that they contain.
    pub used: HashSet<usize>,
}

/// Emits the signals of each GPU.
pub(crate) fn report_gpus(page: &Page<'_>, emit: &mut dyn FnMut(SampledValue<'_>)) -> GpuSignals {
    let GpuSignals {
        mut reported,
        mut used,
    } = GpuSignals::default();
    for field in FIELDS {
        let samples: Vec<_> = page
            .indices(field.name)
            .iter()
            .filter_map(|&index| Some((index, page.samples.get(index)?)))
            .collect();
        if samples.is_empty() || reported.contains(&field.signal) {
            continue;
        }
        // A partitioned GPU (MIG) has a series per instance: memory is added, all other values are those of the whole
        // GPU.
        let mut devices: BTreeMap<u32, f64> = BTreeMap::new();
        for (index, sample) in samples {
            let Some(device) = device(sample).filter(|_| sample.value.is_finite()) else {
                continue;
            };
            let known = devices.get(&device).copied();
            let value = match (known, field.signal) {
                (Some(known), GpuMemory) => known + sample.value,
                (Some(known), _) => known,
                (None, _) => sample.value,
            };
            devices.insert(device, value);
            if known.is_none() {
                used.insert(index);
            }
        }
        for (device, value) in devices {
            let value = match field.signal {
                GpuThrottled => f64::from(u8::from(value as u64 & THROTTLED != 0)),
                _ => value * field.scale,
            };
            emit(SampledValue {
                name: field.signal.name(),
                labels: "",
                device: Some(device),
                value,
            });
            reported.insert(field.signal);
        }
    }
    GpuSignals { reported, used }
}

fn device(sample: &Sample<'_>) -> Option<u32> {
    sample.label("gpu")?.parse().ok()
}
