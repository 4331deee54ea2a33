//! NVIDIA's DCGM exporter: GPUs over HTTP.
//!
//! Fields as in its `default-counters.csv` and NVIDIA's list of field identifiers (exporter 2 to 4).

use super::prometheus::text::{Page, Sample};
use super::prometheus::{Fetch, others, patience, series};
use crate::source::{SampledValue, TelemetrySource};
use llmscen_core::signal::Signal::{self, *};
use llmscen_core::target::Tls;
use llmscen_core::telemetry::{Scrape, Source};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::shown as address;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

/// A field of DCGM, the signal that it tells, and how many of the signal's unit one of the field's is.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The signal.
    pub signal: Signal,
    /// The factor.
    pub scale: f64,
}

const fn field(name: &'static str, signal: Signal, scale: f64) -> Field {
    Field { name, signal, scale }
}

/// The fields that tell a common signal; the first of a signal that a page has is taken.
pub const FIELDS: &[Field] = &[
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

/// Reasons for slow clocks that count: software power cap, hardware slowdown, keeping step with other GPUs, software and hardware
/// thermal slowdown, power brake. The others are idleness and settings of the user.
const SLOWED: u64 = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80;

/// A DCGM exporter. Its other series are told under their own names.
#[derive(Debug)]
pub struct Dcgm {
    scrape: Scrape,
    fetch: Result<Fetch, String>,
    pages: u64,
    told: BTreeSet<Signal>,
}

impl Dcgm {
    /// The exporter at that address. Settings that cannot be used show when it is asked.
    pub fn new(scrape: &Scrape) -> Dcgm {
        let fetch = Fetch::new(&scrape.url, &scrape.headers, &Tls::default(), patience(scrape.interval));
        let fetch = fetch.map_err(|error| error.to_string());
        Dcgm { scrape: scrape.clone(), fetch, pages: 0, told: BTreeSet::new() }
    }
}

impl TelemetrySource for Dcgm {
    fn kind(&self) -> Source {
        Source::Dcgm
    }

    fn interval(&self) -> Nanos {
        self.scrape.interval
    }

    fn sample(&mut self, _at: Instant, tell: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let text = self.fetch.as_ref().map_err(String::clone).and_then(|fetch| fetch.page().map_err(|error| error.to_string()));
        let read = text.and_then(|text| {
            let page = series(&text)?;
            tell(SampledValue { name: "up", labels: "", device: None, value: 1.0 });
            self.told.extend(gpus(&page, tell));
            self.pages += 1;
            Ok(())
        });
        read.map_err(|reason| {
            tell(SampledValue { name: "up", labels: "", device: None, value: 0.0 });
            format!("{}: {reason}", address(&self.scrape.url))
        })
    }

    fn notes(&mut self) -> Vec<String> {
        let mut absent: Vec<String> = Vec::new();
        let mut named = BTreeSet::new();
        for field in FIELDS.iter().filter(|field| !self.told.contains(&field.signal)) {
            if named.insert(field.signal) {
                absent.push(format!("`{}` ({})", field.name, field.signal));
            }
        }
        if absent.is_empty() || self.pages == 0 {
            return Vec::new();
        }
        vec![format!("{} has no {}: null", address(&self.scrape.url), absent.join(", no "))]
    }
}

/// Tells the GPUs of a page, and then all that has no common name.
fn gpus(page: &Page<'_>, tell: &mut dyn FnMut(SampledValue<'_>)) -> BTreeSet<Signal> {
    let (mut told, mut whole) = (BTreeSet::new(), HashSet::new());
    for field in FIELDS {
        let samples: Vec<_> =
            page.places(field.name).iter().filter_map(|&place| Some((place, page.samples.get(place)?))).collect();
        if samples.is_empty() || told.contains(&field.signal) {
            continue;
        }
        // A GPU that is divided has a series for each part: memory is added, all else is the same of them.
        let mut devices: BTreeMap<u32, f64> = BTreeMap::new();
        for (place, sample) in samples {
            let Some(device) = device(sample).filter(|_| sample.value.is_finite()) else { continue };
            let known = devices.get(&device).copied();
            let value = match (known, field.signal) {
                (Some(known), GpuMemory) => known + sample.value,
                (Some(known), _) => known,
                (None, _) => sample.value,
            };
            devices.insert(device, value);
            if known.is_none() {
                whole.insert(place);
            }
        }
        for (device, value) in devices {
            let value = match field.signal {
                GpuThrottled => f64::from(u8::from(value as u64 & SLOWED != 0)),
                _ => value * field.scale,
            };
            tell(SampledValue { name: field.signal.name(), labels: "", device: Some(device), value });
            told.insert(field.signal);
        }
    }
    others(page, &whole, tell);
    told
}

fn device(sample: &Sample<'_>) -> Option<u32> {
    sample.label("gpu")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<(String, Option<u32>, f64)> {
        let mut all = Vec::new();
        gpus(&Page::read(text), &mut |told| all.push((format!("{}{}", told.name, told.labels), told.device, told.value)));
        all
    }

    #[test]
    fn fields_become_signals_in_their_units_each_gpu_by_itself() {
        let text = "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n\
        DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA H100\"} 97\n\
        DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-b\"} 3\nDCGM_FI_DEV_FB_USED{gpu=\"0\"} 2\n\
        DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"0\"} 1\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"1\"} 36\n\
        DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} 351.5\nDCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} 0\nDCGM_FI_DEV_GPU_TEMP{gpu=\"1\"} nan\n";
        let own = |name: &str, device, value| (name.to_owned(), Some(device), value);
        assert_eq!(
            told(text),
            [
                own("gpu.utilization", 0, 0.97),
                own("gpu.utilization", 1, 0.03),
                own("gpu.memory", 0, 2.0 * 1024.0 * 1024.0),
                own("gpu.power", 0, 351.5),
                own("gpu.throttled", 0, 0.0),
                own("gpu.throttled", 1, 1.0),
                ("DCGM_FI_DEV_XID_ERRORSgpu=\"0\"".to_owned(), None, 0.0),
            ]
        );
    }

    #[test]
    fn the_memory_of_the_parts_of_a_divided_gpu_is_added() {
        let text = "DCGM_FI_DEV_FB_USED{gpu=\"3\",GPU_I_ID=\"1\"} 1\nDCGM_FI_DEV_FB_USED{gpu=\"3\",GPU_I_ID=\"2\"} 2\n\
        DCGM_FI_DEV_POWER_USAGE{gpu=\"3\",GPU_I_ID=\"1\"} 90\nDCGM_FI_DEV_POWER_USAGE{gpu=\"3\",GPU_I_ID=\"2\"} 90\n";
        let rows = told(text);
        assert_eq!(rows[0], ("gpu.memory".to_owned(), Some(3), 3.0 * 1024.0 * 1024.0));
        assert_eq!(rows[1], ("gpu.power".to_owned(), Some(3), 90.0));
    }
}
