//! The `/metrics` endpoint: Prometheus text with the metric names of vLLM.

use crate::engine::Occupancy;
use crate::generation::Finish;
use llmscen_core::units::Nanos;
use std::fmt::Write;

const TTFT: [f64; 15] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0,
];
const GAPS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5,
];
const E2E: [f64; 12] = [
    0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];

/// A histogram over fixed bounds, in seconds.
#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    /// Number of values per bucket; the last bucket has those above all bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    fn observe(&mut self, value: Nanos) {
        self.counts[self.bounds.partition_point(|&bound| bound < value.secs())] += 1;
        self.sum += value.secs();
    }

    fn write(&self, to: &mut String, name: &str, help: &str) {
        let mut total = 0;
        header(to, name, help, "histogram");
        for (index, count) in self.counts.iter().enumerate() {
            total += count;
            let bound = self
                .bounds
                .get(index)
                .map_or("+Inf".to_owned(), f64::to_string);
            line(
                to,
                &format!("{name}_bucket{{model_name=\"sim\",le=\"{bound}\"}}"),
                total as f64,
            );
        }
        line(to, &format!("{name}_sum{{model_name=\"sim\"}}"), self.sum);
        line(
            to,
            &format!("{name}_count{{model_name=\"sim\"}}"),
            total as f64,
        );
    }
}

/// Metrics that the engine does not count. Times are engine times since receipt of the request.
#[derive(Debug)]
pub(super) struct Meters {
    ttft: Histogram,
    gaps: Histogram,
    e2e: Histogram,
    stopped: u64,
    capped: u64,
    /// Tokens of embeddings and scores, which are not text.
    pooled: u64,
    profile: Profile,
}

/// What the profiler would have recorded. The page has it once the profiler was started.
#[derive(Clone, Copy, Debug, Default)]
struct Profile {
    was_started: bool,
    is_running: bool,
    /// Profiles that were started and stopped.
    complete: u64,
    /// Requests that ended while the profiler was running.
    requests: u64,
}

impl Default for Meters {
    fn default() -> Meters {
        let [ttft, gaps, e2e] = [&TTFT[..], &GAPS, &E2E].map(Histogram::new);
        Meters {
            ttft,
            gaps,
            e2e,
            stopped: 0,
            capped: 0,
            pooled: 0,
            profile: Profile::default(),
        }
    }
}

impl Meters {
    /// Records a token at `at`; `before` is the time of the previous token, or of receipt for the first one.
    pub(super) fn token(&mut self, at: Nanos, before: Nanos, first: bool) {
        if first {
            &mut self.ttft
        } else {
            &mut self.gaps
        }
        .observe(at.since(before));
    }

    /// Records a token of embeddings or scores.
    pub(super) fn pooled(&mut self) {
        self.pooled += 1;
    }

    /// Starts the profiler.
    pub(super) fn start_profile(&mut self) {
        self.profile.was_started = true;
        self.profile.is_running = true;
    }

    /// Stops the profiler.
    pub(super) fn stop_profile(&mut self) {
        self.profile.complete += u64::from(std::mem::take(&mut self.profile.is_running));
    }

    /// Records a completed request.
    pub(super) fn served(&mut self, took: Nanos, finish: Finish) {
        self.profile.requests += u64::from(self.profile.is_running);
        self.e2e.observe(took);
        *if finish == Finish::Length {
            &mut self.capped
        } else {
            &mut self.stopped
        } += 1;
    }

    /// The text of the endpoint.
    pub(super) fn page(&self, now: Occupancy, kv_blocks: u32) -> String {
        let mut page = String::new();
        let generated = now.generation_tokens.saturating_sub(self.pooled);
        let usage = now.blocks as f64 / f64::from(kv_blocks.max(1));
        let plain = [
            (
                "num_requests_running",
                "gauge",
                "Requests in the batch.",
                now.running as f64,
            ),
            (
                "num_requests_waiting",
                "gauge",
                "Requests that wait for admission to the batch.",
                now.waiting as f64,
            ),
            (
                "kv_cache_usage_perc",
                "gauge",
                "KV cache in use, 1 for all of it.",
                usage,
            ),
            (
                "num_preemptions_total",
                "counter",
                "Preemptions.",
                now.preemptions as f64,
            ),
            (
                "prompt_tokens_total",
                "counter",
                "Prefilled prompt tokens.",
                now.prompt_tokens as f64,
            ),
            (
                "generation_tokens_total",
                "counter",
                "Generated tokens.",
                generated as f64,
            ),
        ];
        let profile = [
            (
                "profiles_total",
                "Complete profiles.",
                self.profile.complete,
            ),
            (
                "profiled_requests_total",
                "Requests that ended while the profiler was running.",
                self.profile.requests,
            ),
        ];
        for (name, help, value) in profile.into_iter().filter(|_| self.profile.was_started) {
            let name = format!("simulator:{name}");
            header(&mut page, &name, help, "counter");
            line(&mut page, &name, value as f64);
        }
        for (name, kind, help, value) in plain {
            header(&mut page, &format!("vllm:{name}"), help, kind);
            line(
                &mut page,
                &format!("vllm:{name}{{model_name=\"sim\"}}"),
                value,
            );
        }
        header(
            &mut page,
            "vllm:request_success_total",
            "Requests served in full.",
            "counter",
        );
        for (reason, value) in [("stop", self.stopped), ("length", self.capped)] {
            let series = format!(
                "vllm:request_success_total{{model_name=\"sim\",finished_reason=\"{reason}\"}}"
            );
            line(&mut page, &series, value as f64);
        }
        self.ttft.write(
            &mut page,
            "vllm:time_to_first_token_seconds",
            "From receipt to the first token.",
        );
        self.gaps.write(
            &mut page,
            "vllm:inter_token_latency_seconds",
            "Between two tokens of a request.",
        );
        self.e2e.write(
            &mut page,
            "vllm:e2e_request_latency_seconds",
            "From receipt to the last token.",
        );
        page
    }
}

fn header(to: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(to, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(to: &mut String, series: &str, value: f64) {
    let _ = writeln!(to, "{series} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_reports_what_was_observed() {
        let mut meters = Meters::default();
        meters.token(Nanos::from_millis(10), Nanos::ZERO, true);
        meters.token(Nanos::from_millis(3_010), Nanos::from_millis(10), false);
        meters.served(Nanos::from_millis(3_010), Finish::Length);
        meters.pooled();
        let now = Occupancy {
            running: 2,
            waiting: 3,
            blocks: 4,
            preemptions: 5,
            prompt_tokens: 6,
            generation_tokens: 7,
        };
        let page = meters.page(now, 16);
        for line in [
            "# TYPE vllm:kv_cache_usage_perc gauge",
            "vllm:kv_cache_usage_perc{model_name=\"sim\"} 0.25",
            "vllm:num_requests_running{model_name=\"sim\"} 2",
            "vllm:num_requests_waiting{model_name=\"sim\"} 3",
            "vllm:num_preemptions_total{model_name=\"sim\"} 5",
            "vllm:prompt_tokens_total{model_name=\"sim\"} 6",
            "vllm:generation_tokens_total{model_name=\"sim\"} 6",
            "vllm:request_success_total{model_name=\"sim\",finished_reason=\"stop\"} 0",
            "vllm:request_success_total{model_name=\"sim\",finished_reason=\"length\"} 1",
            "vllm:time_to_first_token_seconds_bucket{model_name=\"sim\",le=\"0.005\"} 0",
            "vllm:time_to_first_token_seconds_bucket{model_name=\"sim\",le=\"0.01\"} 1",
            "vllm:time_to_first_token_seconds_bucket{model_name=\"sim\",le=\"+Inf\"} 1",
            "vllm:inter_token_latency_seconds_bucket{model_name=\"sim\",le=\"2.5\"} 0",
            "vllm:inter_token_latency_seconds_sum{model_name=\"sim\"} 3",
            "vllm:e2e_request_latency_seconds_count{model_name=\"sim\"} 1",
        ] {
            assert!(
                page.lines().any(|own| own == line),
                "{line} is not in\n{page}"
            );
        }
    }
}
