//! The files of `guidellm benchmark`: benchmarks.json (report version 2) and benchmarks.csv, with one benchmark per
//! case.

mod distribution;
mod metrics;
mod requests;
mod table;

use crate::export::measured::SortedValues;
use crate::export::{Export, ExportError, File, Measured};
use llmscen_core::load::{Arrival, Shape};
use llmscen_core::metric::Metric;
use llmscen_core::target::TargetLocation;
use llmscen_core::url_secrets::redact_url;
pub(super) use metrics::totals;
use metrics::{Clock, NamedMetric, metrics, totals_json};
use requests::{requests, scheduler_state};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use table::Table;

/// Two files with all cases.
#[derive(Debug, Default)]
pub(super) struct Guidellm {
    head: Option<(Value, Value)>,
    benchmarks: Vec<Box<RawValue>>,
    table: Table,
}

/// The report.
#[derive(Serialize)]
struct Report<'a> {
    metadata: &'a Value,
    config: &'a Value,
    benchmarks: &'a [Box<RawValue>],
    conclusions: [(); 0],
}

/// One benchmark.
#[derive(Serialize)]
struct Benchmark<'a> {
    type_: &'static str,
    config: Value,
    scheduler_state: Value,
    scheduler_metrics: Value,
    metrics: Value,
    requests: requests::Requests<'a>,
    warnings: [(); 0],
    start_time: f64,
    end_time: f64,
    duration: f64,
    warmup_duration: f64,
    cooldown_duration: f64,
}

impl Export for Guidellm {
    fn case(&mut self, case: &Measured<'_>) -> Result<Vec<File>, ExportError> {
        let (metrics, clock) = (metrics(case), Clock::new(case));
        let (metadata, scenario) = self
            .head
            .get_or_insert_with(|| (metadata(case), scenario(case)));
        self.table.add(
            case,
            &metrics,
            &clock,
            &config(case, self.benchmarks.len()),
            metadata,
            scenario,
        );
        let from = case.bounds().map_or(0.0, |(from, _)| case.unix_s(from));
        let benchmark = Benchmark {
            type_: "generative_benchmark",
            config: config(case, self.benchmarks.len()),
            scheduler_state: scheduler_state(case, totals(case)),
            scheduler_metrics: scheduler_metrics(case, &clock),
            metrics: metrics_json(case, &metrics),
            requests: requests(case),
            warnings: [],
            start_time: from,
            end_time: from + clock.length,
            duration: clock.length,
            warmup_duration: 0.0,
            cooldown_duration: 0.0,
        };
        self.benchmarks
            .push(serde_json::value::to_raw_value(&benchmark)?);
        Ok(Vec::new())
    }

    fn end(&mut self) -> Result<Vec<File>, ExportError> {
        let Some((metadata, config)) = &self.head else {
            return Ok(Vec::new());
        };
        let report = Report {
            metadata,
            config,
            benchmarks: &self.benchmarks,
            conclusions: [],
        };
        let json = File {
            name: "benchmarks.json".into(),
            bytes: serde_json::to_vec(&report)?,
        };
        Ok(vec![
            json,
            File {
                name: "benchmarks.csv".into(),
                bytes: self.table.bytes()?,
            },
        ])
    }
}

/// The required metadata, with the version of llmscen in place of GuideLLM's.
fn metadata(case: &Measured<'_>) -> Value {
    json!({
        "version": 2,
        "guidellm_version": format!("llmscen {}", case.manifest.tool_version),
        "python_version": "none",
        "platform": case.manifest.machine.os,
    })
}

/// The required scenario: backend, profile and data of the first case.
fn scenario(case: &Measured<'_>) -> Value {
    json!({
        "metadata": { "labels": { "name": case.manifest.name } },
        "spec": {
            "backend": { "kind": "openai_http", "target": url(case), "model": case.model() },
            "profile": profile(case),
            "data": [{ "kind": "huggingface", "source": case.case.dataset.path.as_deref().unwrap_or("llmscen") }],
        },
    })
}

fn url(case: &Measured<'_>) -> String {
    match &case.case.target.location {
        TargetLocation::Urls(endpoints) => {
            let urls: Vec<String> = endpoints.urls().map(redact_url).collect();
            urls.join(", ")
        }
        TargetLocation::Simulator { .. } => "simulator".to_owned(),
        TargetLocation::Local(_) => "local".to_owned(),
    }
}

fn profile(case: &Measured<'_>) -> Value {
    match (case.case.load.shape.users(), case.rate(), case.arrival()) {
        (Some(users), ..) => json!({ "kind": "concurrent", "streams": [users] }),
        (None, Some(rate), Some(Arrival::Constant)) => {
            json!({ "kind": "constant", "rate": [rate] })
        }
        (None, Some(rate), _) => json!({ "kind": "poisson", "rate": [rate] }),
        (None, None, _) => json!({ "kind": "throughput", "max_concurrency": case.concurrency() }),
    }
}

/// The strategy closest to the load.
fn strategy(case: &Measured<'_>) -> Value {
    let max_in_flight = case.case.load.max_in_flight.map(|limit| limit.of);
    match (&case.case.load.shape, case.rate(), case.arrival()) {
        (Shape::Closed { users } | Shape::Static { batch: users }, ..) => {
            json!({ "type_": "concurrent", "streams": users })
        }
        (Shape::Users { .. }, ..) => {
            json!({ "type_": "concurrent", "streams": case.concurrency() })
        }
        (Shape::Replay { speed }, ..) => {
            json!({ "type_": "trace", "time_scale": 1.0 / speed, "max_concurrency": max_in_flight })
        }
        (_, Some(rate), Some(Arrival::Constant)) => {
            json!({ "type_": "constant", "rate": rate, "max_concurrency": max_in_flight })
        }
        (_, Some(rate), Some(_)) => json!({
            "type_": "poisson", "rate": rate, "max_concurrency": max_in_flight, "random_seed": case.manifest.seed,
        }),
        _ => json!({ "type_": "throughput", "max_concurrency": max_in_flight }),
    }
}

fn config(case: &Measured<'_>, index: usize) -> Value {
    let labels: Map<String, Value> = case
        .case
        .labels
        .0
        .iter()
        .map(|(path, value)| (path.clone(), json!(value)))
        .collect();
    json!({
        "id_": format!("{}/{}", case.manifest.run_id, case.case.id),
        "run_id": case.manifest.run_id,
        "run_index": index,
        "strategy": strategy(case),
        "constraints": {},
        "confidence": null,
        "profile": profile(case),
        "requests": { "case": case.case.id, "labels": labels },
        "backend": { "target": url(case), "model": case.model(), "api": case.case.target.api.name() },
        "environment": { "host": case.manifest.machine.host, "cpu": case.manifest.machine.cpu },
    })
}

/// Times and counts. Delays of GuideLLM's scheduler are -1, its value for a missing delay.
fn scheduler_metrics(case: &Measured<'_>, clock: &Clock) -> Value {
    let (from, to) = case.bounds().unwrap_or_default();
    let from = case.unix_s(from);
    let to = case.unix_s(to);
    let mean = |metric: Metric| {
        SortedValues::new(case.values(metric)).map_or(-1.0, |spread| spread.mean() / 1e3)
    };
    json!({
        "start_time": from,
        "request_start_time": from,
        "measure_start_time": from,
        "measure_end_time": from + clock.length,
        "request_end_time": from + clock.length,
        "end_time": to,
        "requests_made": totals_json(case),
        "queued_time_avg": -1.0,
        "resolve_start_delay_avg": -1.0,
        "resolve_targeted_start_delay_avg": -1.0,
        "request_start_delay_avg": -1.0,
        "request_targeted_start_delay_avg": mean(Metric::ScheduleLag),
        "request_time_avg": mean(Metric::E2eService),
        "resolve_end_delay_avg": -1.0,
        "resolve_time_avg": -1.0,
        "finalized_delay_avg": -1.0,
        "processed_delay_avg": -1.0,
    })
}

fn metrics_json(case: &Measured<'_>, metrics: &[NamedMetric]) -> Value {
    const NOT_MEASURED: [&str; 3] = [
        "time_to_first_output_token_ms",
        "time_to_last_round_trip_ms",
        "avg_round_trip_time_ms",
    ];
    let mut out: Map<String, Value> = metrics
        .iter()
        .map(|(key, .., split)| ((*key).to_owned(), split.json()))
        .collect();
    out.insert("request_totals".into(), totals_json(case));
    let empty = distribution::Dist::default().json();
    for key in NOT_MEASURED {
        let none =
            json!({ "successful": empty, "errored": empty, "incomplete": empty, "total": empty });
        out.insert(key.to_owned(), none);
    }
    let of = |key: &str| out.get(key).cloned().unwrap_or_default();
    let tokens = json!({
        "input": of("prompt_token_count"),
        "input_per_second": of("prompt_tokens_per_second"),
        "input_concurrency": null,
        "output": of("output_token_count"),
        "output_per_second": of("output_tokens_per_second"),
        "output_concurrency": null,
        "total": of("total_token_count"),
        "total_per_second": of("tokens_per_second"),
        "total_concurrency": null,
    });
    out.insert(
        "text".into(),
        json!({ "tokens": tokens, "words": null, "characters": null }),
    );
    out.insert(
        "image".into(),
        json!({ "tokens": null, "images": null, "pixels": null, "bytes": null }),
    );
    out.insert(
        "video".into(),
        json!({ "tokens": null, "frames": null, "seconds": null, "bytes": null }),
    );
    out.insert(
        "audio".into(),
        json!({ "tokens": null, "samples": null, "seconds": null, "bytes": null }),
    );
    out.insert(
        "tool_call".into(),
        json!({ "tokens": null, "mixed_tokens": null, "count": null }),
    );
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::texts;
    use llmscen_core::artifacts::ExportFormat;

    #[test]
    fn metrics_are_weighted_by_tokens_and_time() {
        let [(name, text), _] = <[_; 2]>::try_from(texts(ExportFormat::Guidellm)).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        let metrics = &report["benchmarks"][0]["metrics"];
        let of = |metric: &str, stat: &str| {
            let value = metrics[metric]["successful"]
                .pointer(stat)
                .and_then(Value::as_f64)
                .unwrap();
            (value * 1e6).round() / 1e6
        };
        assert_eq!(
            (name.as_str(), report["metadata"]["version"].as_u64()),
            ("benchmarks.json", Some(2))
        );
        assert_eq!(
            (
                of("request_latency", "/mean"),
                of("request_latency", "/percentiles/p50")
            ),
            (0.112, 0.102)
        );
        assert_eq!(
            (
                of("time_to_first_token_ms", "/mean"),
                of("time_to_first_token_ms", "/median")
            ),
            (70.0, 50.0)
        );
        // (100 + 190 + 50 + 100) ms over 10 tokens; (50 + 100 + 10) ms over 6 tokens.
        assert_eq!(
            (
                of("time_per_output_token_ms", "/mean"),
                of("inter_token_latency_ms", "/mean")
            ),
            (44.0, 26.666667)
        );
        assert_eq!(
            (
                of("requests_per_second", "/mean"),
                of("output_tokens_per_second", "/count")
            ),
            (3.992016, 10.0)
        );
        assert_eq!(
            metrics["request_totals"],
            json!({ "successful": 4, "errored": 2, "incomplete": 0, "total": 6 })
        );
        assert_eq!(
            report["benchmarks"][0]["requests"]["successful"]
                .as_array()
                .map(Vec::len),
            Some(4)
        );
        assert_eq!(
            report["benchmarks"][0]["config"]["strategy"],
            json!({ "type_": "concurrent", "streams": 2 })
        );
    }

    #[test]
    fn the_table_has_three_lines_of_header() {
        let [_, (name, text)] = <[_; 2]>::try_from(texts(ExportFormat::Guidellm)).unwrap();
        let mut reader = ::csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(text.as_bytes());
        let lines: Vec<Vec<String>> = reader
            .records()
            .map(|line| line.unwrap().iter().map(str::to_owned).collect())
            .collect();
        let cell = |head: [&str; 3]| {
            let column = (0..lines[0].len())
                .find(|&at| (0..3).all(|row| lines[row][at] == head[row]))
                .unwrap();
            lines[3][column].clone()
        };
        assert_eq!((name.as_str(), lines.len()), ("benchmarks.csv", 4));
        assert_eq!(
            cell(["Time to First Token", "Successful ms", "Mean"]),
            "70.0"
        );
        assert_eq!(cell(["Request Counts", "Errored", ""]), "2");
        let points =
            "[0.052, 0.052, 0.052, 0.052, 0.052, 0.052, 0.102, 0.192, 0.192, 0.192, 0.192]";
        assert_eq!(
            cell(["Request Latency", "Successful Sec", "Percentiles"]),
            points
        );
        assert_eq!(cell(["Timings", "Start Time", ""]), "2026-01-02 03:04:05");
    }
}
