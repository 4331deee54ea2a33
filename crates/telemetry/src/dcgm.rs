//! NVIDIA's DCGM exporter: GPUs over HTTP.
//!
//! Fields as in its `default-counters.csv` and NVIDIA's list of field identifiers (exporter 2 to 4).

use super::prometheus::{Fetch, note_left_out, parse_page, report_other_series, scrape_timeout};
use crate::prometheus::dcgm_fields::{FIELDS, report_gpus};
use crate::{SampledValue, TelemetrySource};
use llmscen_core::signal::Signal::{self};
use llmscen_core::target::Tls;
use llmscen_core::telemetry::{Scrape, Source};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::redact_url as address;
use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

/// A DCGM exporter. Series without a common signal are reported under their exporter names.
#[derive(Debug)]
pub struct Dcgm {
    scrape: Scrape,
    fetch: Result<Fetch, String>,
    pages: u64,
    reported: BTreeSet<Signal>,
    /// Series of a page that were not stored.
    left_out: usize,
}

impl Dcgm {
    /// Settings that cannot be used are an error of the first sample.
    pub fn new(scrape: &Scrape) -> Dcgm {
        let fetch = Fetch::new(
            &scrape.url,
            &scrape.headers,
            &Tls::default(),
            scrape_timeout(scrape.interval),
        );
        let fetch = fetch.map_err(|error| error.to_string());
        Dcgm {
            scrape: scrape.clone(),
            fetch,
            pages: 0,
            reported: BTreeSet::new(),
            left_out: 0,
        }
    }
}

impl TelemetrySource for Dcgm {
    fn kind(&self) -> Source {
        Source::Dcgm
    }

    fn interval(&self) -> Nanos {
        self.scrape.interval
    }

    fn sample(
        &mut self,
        _at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        let text = self
            .fetch
            .as_ref()
            .map_err(String::clone)
            .and_then(|fetch| fetch.page().map_err(|error| error.to_string()));
        let read = text.and_then(|text| {
            let page = parse_page(&text)?;
            emit(SampledValue {
                name: "up",
                labels: "",
                device: None,
                value: 1.0,
            });
            let gpus = report_gpus(&page, emit);
            let left_out = report_other_series(&page, &gpus.used, &HashSet::new(), |_| false, emit);
            self.left_out = self.left_out.max(left_out);
            self.reported.extend(gpus.reported);
            self.pages += 1;
            Ok(())
        });
        read.map_err(|reason| {
            emit(SampledValue {
                name: "up",
                labels: "",
                device: None,
                value: 0.0,
            });
            format!("{}: {reason}", address(&self.scrape.url))
        })
    }

    fn notes(&mut self) -> Vec<String> {
        let mut missing: Vec<String> = Vec::new();
        let mut signals = BTreeSet::new();
        for field in FIELDS
            .iter()
            .filter(|field| !self.reported.contains(&field.signal))
        {
            if signals.insert(field.signal) {
                missing.push(format!("`{}` ({})", field.name, field.signal));
            }
        }
        let url = address(&self.scrape.url);
        let lacks = !missing.is_empty() && self.pages > 0;
        let lacking = lacks.then(|| format!("{url} has no {}: null", missing.join(", no ")));
        let left_out = note_left_out(&url.to_string(), self.left_out);
        lacking.into_iter().chain(left_out).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::dcgm_fields::report_gpus;
    use crate::prometheus::text::Page;

    fn report(text: &str) -> Vec<(String, Option<u32>, f64)> {
        let mut all = Vec::new();
        let page = Page::parse(text);
        let mut push = |value: SampledValue<'_>| {
            all.push((
                format!("{}{}", value.name, value.labels),
                value.device,
                value.value,
            ));
        };
        let gpus = report_gpus(&page, &mut push);
        report_other_series(&page, &gpus.used, &HashSet::new(), |_| false, &mut push);
        all
    }

    #[test]
    fn fields_become_signals_in_their_units_each_gpu_by_itself() {
        let text = "# TYPE DCGM_FI_DEV_GPU_UTIL \
        gauge\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA H100\"} \
        97\nDCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-b\"} 3\nDCGM_FI_DEV_FB_USED{gpu=\"0\"} \
        2\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"0\"} \
        1\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"1\"} 36\nDCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} \
        351.5\nDCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} 0\nDCGM_FI_DEV_GPU_TEMP{gpu=\"1\"} nan\n";
        let row = |name: &str, device, value| (name.to_owned(), Some(device), value);
        assert_eq!(
            report(text),
            [
                row("gpu.utilization", 0, 0.97),
                row("gpu.utilization", 1, 0.03),
                row("gpu.memory", 0, 2.0 * 1024.0 * 1024.0),
                row("gpu.power", 0, 351.5),
                row("gpu.throttled", 0, 0.0),
                row("gpu.throttled", 1, 1.0),
                ("DCGM_FI_DEV_XID_ERRORSgpu=\"0\"".to_owned(), None, 0.0),
            ]
        );
    }

    #[test]
    fn the_memory_of_the_instances_of_a_gpu_is_added() {
        let text = "DCGM_FI_DEV_FB_USED{gpu=\"3\",GPU_I_ID=\"1\"} \
        1\nDCGM_FI_DEV_FB_USED{gpu=\"3\",GPU_I_ID=\"2\"} \
        2\nDCGM_FI_DEV_POWER_USAGE{gpu=\"3\",GPU_I_ID=\"1\"} \
        90\nDCGM_FI_DEV_POWER_USAGE{gpu=\"3\",GPU_I_ID=\"2\"} 90\n";
        let rows = report(text);
        assert_eq!(
            rows[0],
            ("gpu.memory".to_owned(), Some(3), 3.0 * 1024.0 * 1024.0)
        );
        assert_eq!(rows[1], ("gpu.power".to_owned(), Some(3), 90.0));
    }
}
