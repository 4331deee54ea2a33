//! The benchmark report of llm-d-benchmark, version 0.2 (llmd-benchmark-report 0.2.1), as JSON.
//!
//! Latencies are in seconds and start at the actual send time; quantiles are interpolated linearly.

use crate::export::guidellm::totals;
use crate::export::measured::SortedValues;
use crate::export::{Export, ExportError, File, Measured, Names, slug};
use llmscen_analysis::TimedRequest;
use llmscen_core::dataset::Source;
use llmscen_core::distribution::Family;
use llmscen_core::metric::Metric;
use llmscen_core::quantity::Quantity;
use serde_json::{Map, Value, json};

/// A report per case.
#[derive(Debug, Default)]
pub(super) struct LlmD {
    names: Names,
}

impl Export for LlmD {
    fn case(&mut self, case: &Measured<'_>) -> Result<Vec<File>, ExportError> {
        let name = self.names.unique(&slug(&case.case.id));
        Ok(vec![File {
            name: format!("benchmark_report_v0.2,_{name}.json"),
            bytes: serde_json::to_vec_pretty(&report(case))?,
        }])
    }

    fn end(&mut self) -> Result<Vec<File>, ExportError> {
        Ok(Vec::new())
    }
}

fn report(case: &Measured<'_>) -> Value {
    without_nulls(json!({
        "version": "0.2",
        "run": {
            "uid": format!("{}/{}", case.manifest.run_id, case.case.id),
            "eid": case.manifest.run_id,
            "time": time(case),
            "description": case.manifest.name,
        },
        "scenario": load(case).map(|load| json!({ "load": load })),
        "results": { "request_performance": { "aggregate": {
            "requests": requests(case),
            "latency": latency(case),
            "throughput": throughput(case),
        } } },
    }))
}

fn time(case: &Measured<'_>) -> Option<Value> {
    let (from, to) = case.bounds()?;
    let date = |at| case.timestamp(at) + "Z";
    let duration = case.window().map(|window| format!("PT{window}S"));
    Some(json!({ "start": date(from), "end": date(to), "duration": duration }))
}

/// The load. The format requires a prompt length: that of the dataset, else the measured mean; None without either.
fn load(case: &Measured<'_>) -> Option<Value> {
    let (source, prompt) = match &case.case.dataset.source {
        Source::Random { tokens, .. } => ("random", length(tokens)),
        Source::Prefix {
            prefix_tokens,
            tokens,
            ..
        } => {
            let total = tokens.constant().map(|tokens| prefix_tokens + tokens);
            (
                "random",
                total.and_then(|total| length(&Quantity::fixed(total))),
            )
        }
        _ => ("sampled", None),
    };
    let measured = || {
        let mean = SortedValues::new(case.values(Metric::PromptTokens))?.mean();
        Some(json!({ "distribution": "other", "value": mean }))
    };
    // The format has an output length only where it is enforced.
    let enforced = case.case.request.sampling.get("ignore_eos") == Some(&json!(true));
    let output = case.case.request.max_tokens.as_ref();
    Some(json!({
        "metadata": { "schema_version": "0.0.1", "cfg_id": case.manifest.plan_id, "description": case.case.id },
        "standardized": {
            "tool": "llmscen",
            "tool_version": case.manifest.tool_version,
            "source": source,
            "input_seq_len": prompt.or_else(measured)?,
            "output_seq_len": output.filter(|_| enforced).and_then(length),
            "rate_qps": case.rate(),
            "concurrency": case.concurrency(),
        },
        "native": {},
    }))
}

/// A length; None where the rows of the dataset define it. Distributions that the format has no name for have their
/// mean.
fn length(length: &Quantity) -> Option<Value> {
    let Quantity::Drawn(drawn) = length else {
        return None;
    };
    let (min, max) = drawn.range();
    Some(match drawn.family() {
        Family::Fixed(tokens) => json!({ "distribution": "fixed", "value": *tokens as u64 }),
        Family::Uniform { low, high } => {
            let middle = (low + high) / 2.0;
            json!({ "distribution": "uniform", "value": middle, "min": *low as u64, "max": *high as u64 })
        }
        Family::Normal { mean, sd } if (min, max) == (f64::NEG_INFINITY, f64::INFINITY) => {
            json!({ "distribution": "gaussian", "value": mean, "std_dev": sd })
        }
        Family::Lognormal { mean, sd } if min <= 0.0 && max == f64::INFINITY => {
            json!({ "distribution": "other", "value": mean, "std_dev": sd })
        }
        _ => json!({ "distribution": "other", "value": drawn.mean_length() }),
    })
}

fn requests(case: &Measured<'_>) -> Value {
    let [_, incomplete, failures] = totals(case);
    json!({
        "total": case.rows.len(),
        "failures": failures,
        "incomplete": incomplete,
        "input_length": statistics(case.values(Metric::PromptTokens), "count"),
        "output_length": statistics(case.values(Metric::BilledTokens), "count"),
    })
}

fn latency(case: &Measured<'_>) -> Value {
    let per_request = |get: &dyn Fn(&TimedRequest<'_>) -> Option<f64>| {
        case.ok().filter_map(get).collect::<Vec<f64>>()
    };
    let tpot = per_request(&|row| row.pace_ms(row.get(Metric::E2eService)));
    let normalized = per_request(&|row| {
        let tokens = row.output_tokens().filter(|tokens| *tokens > 0.0)?;
        Some(row.get(Metric::E2eService)? / tokens)
    });
    let seconds = |millis: Vec<f64>, unit| {
        statistics(
            millis.into_iter().map(|millis| millis / 1e3).collect(),
            unit,
        )
    };
    json!({
        "time_to_first_token": seconds(case.values(Metric::TtftService), "s"),
        "time_per_output_token": seconds(tpot, "s/token"),
        "normalized_time_per_output_token": seconds(normalized, "s/token"),
        "inter_token_latency": seconds(case.gaps(), "s/token"),
        "request_latency": seconds(case.values(Metric::E2eService), "s"),
    })
}

fn throughput(case: &Measured<'_>) -> Value {
    let rate = |amount: Option<f64>, unit: &str| {
        let per_second = amount? / case.window().filter(|window| *window > 0.0)?;
        Some(json!({ "units": unit, "mean": per_second }))
    };
    let (input, output) = (
        case.total(Metric::PromptTokens),
        case.total(Metric::BilledTokens),
    );
    let total = input.zip(output).map(|(input, output)| input + output);
    json!({
        "input_token_rate": rate(input, "tokens/s"),
        "output_token_rate": rate(output, "tokens/s"),
        "total_token_rate": rate(total, "tokens/s"),
        "request_rate": rate(Some(case.completed() as f64), "queries/s"),
    })
}

/// The percentiles of the format.
const PERCENTILES: [(&str, f64); 11] = [
    ("p0p1", 0.1),
    ("p1", 1.0),
    ("p5", 5.0),
    ("p10", 10.0),
    ("p25", 25.0),
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99p9", 99.9),
];

fn statistics(values: Vec<f64>, unit: &str) -> Option<Value> {
    let sorted = SortedValues::new(values)?;
    let mut all = Map::from_iter([
        ("units".to_owned(), json!(unit)),
        ("mean".to_owned(), json!(sorted.mean())),
        ("stddev".to_owned(), json!(sorted.sd())),
        ("min".to_owned(), json!(sorted.min())),
        ("max".to_owned(), json!(sorted.max())),
    ]);
    all.extend(PERCENTILES.map(|(name, percent)| (name.to_owned(), json!(sorted.linear(percent)))));
    Some(Value::Object(all))
}

/// A value that is not known is absent.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::{case, files, rows, texts};
    use llmscen_core::artifacts::ExportFormat;
    use llmscen_core::load::Shape;

    #[test]
    fn the_report_has_the_measured_values_in_seconds() {
        let [(name, text)] = <[_; 1]>::try_from(texts(ExportFormat::LlmD)).unwrap();
        assert_eq!(name, "benchmark_report_v0.2,_concurrency=2.json");
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["version"], "0.2");
        let all = &report["results"]["request_performance"]["aggregate"];
        assert_eq!(
            (&all["requests"]["total"], &all["requests"]["failures"]),
            (&json!(6), &json!(2))
        );
        // numpy: mean and percentile(…, 99) of [0.05, 0.09, 0.04, 0.1].
        let ttft = &all["latency"]["time_to_first_token"];
        assert_eq!(ttft["units"], "s");
        assert!((ttft["mean"].as_f64().unwrap() - 0.07).abs() < 1e-12);
        assert!((ttft["p99"].as_f64().unwrap() - 0.0997).abs() < 1e-12);
        assert_eq!(all["throughput"]["output_token_rate"]["mean"], 5.0);
        assert_eq!(all["throughput"]["total_token_rate"]["mean"], 25.0);
        let load = &report["scenario"]["load"]["standardized"];
        assert_eq!(
            (&load["concurrency"], &load["source"]),
            (&json!(2), &json!("sampled"))
        );
        assert_eq!(
            load["input_seq_len"],
            json!({ "distribution": "other", "value": 10.0 })
        );
        assert!(!text.contains("null"), "{text}");
    }

    #[test]
    fn a_dataset_with_lengths_is_described_by_them() {
        let mut case = case(Shape::Closed { users: 2 });
        case.dataset.source = Source::Random {
            tokens: Quantity::uniform(10, 20),
            shared_prefix: 0,
        };
        case.request.max_tokens = Some(Quantity::fixed(3));
        case.request.sampling = Map::from_iter([("ignore_eos".into(), json!(true))]);
        let file = files(ExportFormat::LlmD, &case, rows()).remove(0);
        let report: Value = serde_json::from_slice(&file.bytes).unwrap();
        let load = &report["scenario"]["load"]["standardized"];
        assert_eq!(
            load["input_seq_len"],
            json!({ "distribution": "uniform", "value": 15.0, "min": 10, "max": 20 })
        );
        assert_eq!(
            load["output_seq_len"],
            json!({ "distribution": "fixed", "value": 3 })
        );
    }
}
