//! The files of `aiperf profile`: profile_export_aiperf.json (schema 1.4), profile_export_aiperf.csv,
//! profile_export.jsonl.
//!
//! Latencies start at the actual send time and end at the last token. Quantiles are interpolated linearly, standard
//! deviations are those of a population.

use crate::export::measured::SortedValues;
use crate::export::{Export, ExportError, File, Measured, Names, csv, slug};
use llmscen_analysis::TimedRequest;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::FailureKind;
use serde_json::{Map, Value, json};

/// The percentiles of both summaries.
const PERCENTS: [f64; 9] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0];

/// Three files per case.
#[derive(Debug, Default)]
pub(super) struct Aiperf {
    names: Names,
}

impl Export for Aiperf {
    fn case(&mut self, case: &Measured<'_>) -> Result<Vec<File>, ExportError> {
        let folder = self.names.unique(&slug(&case.case.id));
        let figures = figures(case);
        let file = |name: &str, bytes: Vec<u8>| File {
            name: format!("{folder}/{name}"),
            bytes,
        };
        Ok(vec![
            file(
                "profile_export_aiperf.json",
                serde_json::to_vec_pretty(&summary(case, &figures))?,
            ),
            file("profile_export_aiperf.csv", table(&figures)?),
            file("profile_export.jsonl", request_records(case)?),
        ])
    }

    fn end(&mut self) -> Result<Vec<File>, ExportError> {
        Ok(Vec::new())
    }
}

fn summary(case: &Measured<'_>, figures: &[Tagged]) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("schema_version", json!("1.4"));
    put(
        "benchmark_id",
        json!(format!("{}/{}", case.manifest.run_id, case.case.id)),
    );
    for figure in figures {
        put(figure.tag, figure_json(figure));
    }
    let (concurrency, rate) = (case.concurrency(), case.rate());
    put(
        "input_config",
        json!({
            "models": { "items": [{ "name": case.model() }] },
            "phases": [{ "name": "profiling", "concurrency": concurrency, "rate": rate, "requests": case.rows.len() }],
        }),
    );
    let labels: Map<String, Value> = case
        .case
        .labels
        .0
        .iter()
        .map(|(path, value)| (path.clone(), json!(value)))
        .collect();
    put(
        "run_info",
        json!({
            "benchmark_id": format!("{}/{}", case.manifest.run_id, case.case.id),
            "random_seed": case.manifest.seed,
            "run_label": case.case.id,
            "variation_label": case.case.id,
            "variation_values": labels,
        }),
    );
    put("was_cancelled", json!(case.manifest.interrupted));
    put(
        "is_complete",
        json!(
            !case.manifest.interrupted
                && case.manifest.error.is_none()
                && case.report.aborted.is_none()
        ),
    );
    put("error_summary", json!(error_summary(case)));
    if let Some((from, to)) = case.bounds() {
        put("start_time", json!(case.timestamp(from)));
        put("end_time", json!(case.timestamp(to)));
    }
    out
}

/// A metric as JSON; a single value has only `avg`.
fn figure_json(figure: &Tagged) -> Value {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("unit", json!(figure.unit));
    match &figure.figure {
        Figure::Count(count) => drop(put("avg", json!(*count as f64))),
        Figure::Number(value) => drop(put("avg", json!(value))),
        Figure::Distribution(spread) => {
            put("avg", json!(spread.mean()));
            for percent in PERCENTS {
                put(&format!("p{percent}"), json!(spread.linear(percent)));
            }
            put("min", json!(spread.min()));
            put("max", json!(spread.max()));
            put("std", json!(spread.sd()));
            put("count", json!(spread.n()));
            put("sum", json!(spread.sum()));
        }
    }
    Value::Object(out)
}

/// Failures by kind and message.
fn error_summary(case: &Measured<'_>) -> Vec<Value> {
    let one = |failure: &llmscen_core::report::FailureExample| {
        let details = json!({ "type": failure.kind.name(), "message": failure.message });
        json!({ "error_details": details, "count": failure.count })
    };
    case.report.failures.iter().map(one).collect()
}

/// Two sections, each in the order of the tags: metrics with percentiles, then single values.
fn table(figures: &[Tagged]) -> Result<Vec<u8>, ExportError> {
    let mut sorted: Vec<&Tagged> = figures.iter().collect();
    sorted.sort_by_key(|figure| figure.tag);
    let line = |cells: &[&str]| {
        cells
            .iter()
            .map(|&cell| cell.to_owned())
            .collect::<Vec<_>>()
    };
    let distributions = sorted.iter().filter_map(|figure| match &figure.figure {
        Figure::Distribution(spread) => Some(distribution_line(figure, spread)),
        Figure::Count(_) | Figure::Number(_) => None,
    });
    let single = sorted.iter().filter_map(|figure| match &figure.figure {
        Figure::Distribution(_) => None,
        Figure::Count(count) => Some(vec![figure.title(), count.to_string()]),
        Figure::Number(value) => Some(vec![figure.title(), format!("{value:.2}")]),
    });
    let (distributions, single): (Vec<_>, Vec<_>) = (distributions.collect(), single.collect());
    let mut bytes = Vec::new();
    if !distributions.is_empty() {
        let head = [
            "Metric", "avg", "min", "max", "sum", "p1", "p5", "p10", "p25", "p50", "p75", "p90",
            "p95", "p99", "std",
        ];
        bytes.extend(csv(&[vec![line(&head)], distributions].concat())?);
        // An empty record, which the csv crate would quote.
        bytes.extend(b"\r\n");
    }
    bytes.extend(csv(&[vec![line(&["Metric", "Value"])], single].concat())?);
    Ok(bytes)
}

fn distribution_line(figure: &Tagged, spread: &SortedValues) -> Vec<String> {
    let percentiles = PERCENTS.map(|percent| spread.linear(percent));
    let numbers = [spread.mean(), spread.min(), spread.max(), spread.sum()]
        .into_iter()
        .chain(percentiles)
        .chain([spread.sd()]);
    std::iter::once(figure.title())
        .chain(numbers.map(|number| format!("{number:.2}")))
        .collect()
}

/// A metric with its value.
#[derive(Clone, Debug, PartialEq)]
struct Tagged {
    /// Key in JSON.
    tag: &'static str,
    /// Name in the CSV.
    header: &'static str,
    unit: &'static str,
    figure: Figure,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
enum Figure {
    /// The values of requests.
    Distribution(SortedValues),
    /// A single whole number.
    Count(usize),
    /// A single number.
    Number(f64),
}

impl Tagged {
    /// The name with the unit.
    fn title(&self) -> String {
        match self.unit {
            "requests" => self.header.to_owned(),
            unit => format!("{} ({unit})", self.header),
        }
    }
}

/// A metric per request: tag, name, unit, and its value for a request.
type PerRequest = (
    &'static str,
    &'static str,
    &'static str,
    fn(&TimedRequest<'_>) -> Option<f64>,
);

/// The metrics per request, except the list of gaps. Only requests that succeeded have them.
const PER_REQUEST: [PerRequest; 11] = [
    ("request_latency", "Request Latency", "ms", |row| {
        row.answer_ms()
    }),
    ("time_to_first_token", "Time to First Token", "ms", |row| {
        row.get(Metric::TtftService)
    }),
    (
        "time_to_second_token",
        "Time to Second Token",
        "ms",
        |row| row.gaps().first().copied(),
    ),
    (
        "inter_token_latency",
        "Inter Token Latency",
        "ms",
        time_per_token,
    ),
    (
        "output_token_throughput_per_user",
        "Output Token Throughput Per User",
        "tokens/sec/user",
        |row| per_s(1.0, time_per_token(row)),
    ),
    (
        "e2e_output_token_throughput",
        "E2E Output Token Throughput",
        "tokens/sec/user",
        |row| per_s(row.output_tokens()?, row.answer_ms()),
    ),
    (
        "prefill_throughput_per_user",
        "Prefill Throughput Per User",
        "tokens/sec/user",
        |row| per_s(row.prompt_tokens()?, row.get(Metric::TtftService)),
    ),
    (
        "output_sequence_length",
        "Output Sequence Length",
        "tokens",
        |row| row.output_tokens(),
    ),
    (
        "input_sequence_length",
        "Input Sequence Length",
        "tokens",
        |row| row.prompt_tokens(),
    ),
    (
        "output_token_count",
        "Output Token Count",
        "tokens",
        |row| Some(row.output_tokens()? - row.get(Metric::ReasoningTokens).unwrap_or(0.0)),
    ),
    (
        "reasoning_token_count",
        "Reasoning Token Count",
        "tokens",
        |row| row.get(Metric::ReasoningTokens),
    ),
];

fn time_per_token(row: &TimedRequest<'_>) -> Option<f64> {
    row.pace_ms(row.answer_ms())
}

fn per_s(amount: f64, millis: Option<f64>) -> Option<f64> {
    millis
        .filter(|&millis| millis > 0.0)
        .map(|millis| amount * 1e3 / millis)
}

/// All metrics of a case that have values.
fn figures(case: &Measured<'_>) -> Vec<Tagged> {
    let spread = |(tag, header, unit, get): PerRequest| {
        let figure = Figure::Distribution(SortedValues::new(case.ok().filter_map(get).collect())?);
        Some(Tagged {
            tag,
            header,
            unit,
            figure,
        })
    };
    let mut figures: Vec<Tagged> = PER_REQUEST.into_iter().filter_map(spread).collect();
    if let Some(gaps) = SortedValues::new(case.gaps()) {
        let figure = Figure::Distribution(gaps);
        figures.push(Tagged {
            tag: "inter_chunk_latency",
            header: "Inter Chunk Latency",
            unit: "ms",
            figure,
        });
    }
    figures.extend(single_values(case));
    figures
}

/// The metrics with a single value.
fn single_values(case: &Measured<'_>) -> Vec<Tagged> {
    let time = case.duration(|row| row.ok(), |row| row.last_token().unwrap_or(row.end()));
    let over = |amount: Option<f64>| amount.zip(time).map(|(amount, time)| amount / time);
    let sum = |tag: &str| {
        let (.., get) = PER_REQUEST.into_iter().find(|metric| metric.0 == tag)?;
        Some(SortedValues::new(case.ok().filter_map(get).collect())?.sum())
    };
    let (input, output) = (sum("input_sequence_length"), sum("output_sequence_length"));
    let (ok, failed) = (case.completed(), case.failed());
    let good = case.good_requests();
    let mut out = Vec::new();
    let mut put = |tag, header, unit, figure: Option<Figure>| {
        out.extend(figure.map(|figure| Tagged {
            tag,
            header,
            unit,
            figure,
        }));
    };
    let number = |value: Option<f64>| value.map(Figure::Number);
    let tokens = |value: Option<f64>| value.map(|value| Figure::Count(value as usize));
    put(
        "request_count",
        "Request Count",
        "requests",
        (ok > 0).then_some(Figure::Count(ok)),
    );
    put(
        "error_request_count",
        "Error Request Count",
        "requests",
        (failed > 0).then_some(Figure::Count(failed)),
    );
    let share = (ok + failed > 0).then(|| 100.0 * failed as f64 / (ok + failed) as f64);
    put(
        "request_error_rate",
        "Request Error Rate",
        "%",
        number(share),
    );
    put(
        "request_throughput",
        "Request Throughput",
        "requests/sec",
        number(over(Some(ok as f64))),
    );
    put(
        "output_token_throughput",
        "Output Token Throughput",
        "tokens/sec",
        number(over(output)),
    );
    put(
        "input_token_throughput",
        "Input Token Throughput",
        "tokens/sec",
        number(over(input)),
    );
    let total = input.zip(output).map(|(input, output)| input + output);
    put(
        "total_token_throughput",
        "Total Token Throughput",
        "tokens/sec",
        number(over(total)),
    );
    put(
        "benchmark_duration",
        "Benchmark Duration",
        "sec",
        number(time),
    );
    put(
        "total_isl",
        "Total Input Sequence Length",
        "tokens",
        tokens(input),
    );
    put(
        "total_osl",
        "Total Output Sequence Length",
        "tokens",
        tokens(output),
    );
    put(
        "total_output_tokens",
        "Total Output Tokens",
        "tokens",
        tokens(sum("output_token_count")),
    );
    put(
        "total_reasoning_tokens",
        "Total Reasoning Tokens",
        "tokens",
        tokens(sum("reasoning_token_count")),
    );
    put(
        "good_request_count",
        "Good Request Count",
        "requests",
        good.map(Figure::Count),
    );
    put(
        "goodput",
        "Goodput",
        "requests/sec",
        number(over(good.map(|good| good as f64))),
    );
    out
}

/// The names of worker and record processor, which a record requires.
const WORKER: &str = "llmscen";

/// profile_export.jsonl: a line per request that was sent.
fn request_records(case: &Measured<'_>) -> Result<Vec<u8>, ExportError> {
    let mut out = Vec::new();
    for (row, sent) in case.rows.iter().filter_map(|row| Some((row, row.sent()?))) {
        serde_json::to_writer(&mut out, &request_record(case, row, case.unix_ns(sent)))?;
        out.push(b'\n');
    }
    Ok(out)
}

fn request_record(case: &Measured<'_>, row: &TimedRequest<'_>, start: u64) -> Value {
    let mut metrics = Map::new();
    if row.ok() {
        for (tag, _, unit, get) in PER_REQUEST {
            metrics.extend(
                get(row).map(|value| (tag.to_owned(), json!({ "value": value, "unit": unit }))),
            );
        }
        let gaps = row.gaps();
        if !gaps.is_empty() {
            metrics.insert(
                "inter_chunk_latency".into(),
                json!({ "value": gaps, "unit": "ms" }),
            );
        }
    }
    let cancelled = matches!(
        row.failure(),
        Some(FailureKind::Cancelled | FailureKind::Abandoned)
    );
    let mut record = json!({
        "metadata": {
            "session_num": row.seq(),
            "conversation_id": format!("{}-{}", row.round(), row.seq()),
            "turn_index": row.turn(),
            "credit_issued_ns": case.unix_ns(row.intended()),
            "request_start_ns": start,
            "request_end_ns": case.unix_ns(row.end()),
            "worker_id": WORKER,
            "record_processor_id": WORKER,
            "benchmark_phase": "profiling",
            "was_cancelled": cancelled,
        },
        "metrics": metrics,
    });
    if let (Some(kind), Some(record)) = (row.failure(), record.as_object_mut()) {
        record.insert(
            "error".into(),
            json!({ "type": kind.name(), "message": row.message() }),
        );
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::texts;
    use llmscen_core::artifacts::ExportFormat;

    fn read(name: &str) -> String {
        texts(ExportFormat::Aiperf)
            .into_iter()
            .find(|(path, _)| *path == format!("concurrency=2/{name}"))
            .unwrap()
            .1
    }

    #[test]
    fn statistics_are_those_of_numpy() {
        let summary: Value = serde_json::from_str(&read("profile_export_aiperf.json")).unwrap();
        let number = |tag: &str, stat: &str| summary[tag][stat].as_f64().unwrap();
        // numpy over [100, 190, 50, 100], and over [50, 90, 40, 100].
        assert_eq!(
            ["avg", "p50", "max", "count", "sum"].map(|stat| number("request_latency", stat)),
            [110.0, 100.0, 190.0, 4.0, 440.0]
        );
        assert_eq!(
            ["p99", "std", "min"].map(|stat| number("time_to_first_token", stat)),
            [99.7, 25.495097567963924, 40.0]
        );
        assert_eq!(
            (
                number("inter_token_latency", "p50"),
                number("inter_chunk_latency", "count")
            ),
            (25.0, 6.0)
        );
        assert_eq!(
            (
                number("benchmark_duration", "avg"),
                number("request_throughput", "avg")
            ),
            (1.0, 4.0)
        );
        assert_eq!(
            (
                number("output_token_throughput", "avg"),
                number("total_token_throughput", "avg")
            ),
            (10.0, 50.0)
        );
        assert_eq!(
            (
                number("request_count", "avg"),
                number("error_request_count", "avg"),
                number("total_isl", "avg")
            ),
            (4.0, 2.0, 40.0)
        );
        assert_eq!(
            (
                &summary["request_throughput"]["unit"],
                &summary["start_time"]
            ),
            (&json!("requests/sec"), &json!("2026-01-02T03:04:05.350000"))
        );
        assert!(
            summary["request_throughput"].get("p50").is_none() && summary.get("goodput").is_none()
        );
        assert_eq!(
            summary["error_summary"][0]["error_details"]["type"],
            "http_5xx"
        );
    }

    #[test]
    fn the_table_has_two_sections() {
        let text = read("profile_export_aiperf.csv");
        let (distributions, single) = text.split_once("\r\n\r\n").unwrap();
        let head = "Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std";
        assert_eq!(distributions.lines().next(), Some(head));
        let ttft = "Time to First Token \
        (ms),70.00,40.00,100.00,280.00,40.30,41.50,43.00,47.50,70.00,92.50,97.00,98.50,99.70,25.50";
        assert!(
            distributions.lines().any(|line| line == ttft),
            "{distributions}"
        );
        assert!(
            single.starts_with(
                "Metric,Value\r\nBenchmark Duration (sec),1.00\r\nError Request Count,2\r\n"
            ),
            "{single}"
        );
    }

    #[test]
    fn every_sent_request_has_a_record() {
        let records: Vec<Value> = read("profile_export.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(records.len(), 5);
        assert_eq!(
            records[0]["metadata"]["request_start_ns"],
            1_767_323_045_350_000_000u64
        );
        assert_eq!(
            records[0]["metrics"]["time_to_first_token"],
            json!({ "value": 50.0, "unit": "ms" })
        );
        assert_eq!(
            records[1]["metrics"]["inter_chunk_latency"]["value"],
            json!([20.0, 20.0, 60.0])
        );
        assert_eq!(
            (&records[3]["error"]["type"], &records[3]["metrics"]),
            (&json!("http_5xx"), &json!({}))
        );
    }
}
