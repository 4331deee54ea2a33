//! The files of `evalscope perf`: benchmark_summary.json and benchmark_percentile.json.
//!
//! EvalScope renamed its keys in 2026 (`Average latency (s)` became `Avg Latency (s)`, `TTFT (s)` became `TTFT
//! (ms)`). The files have both names, so that older and newer dashboards can read them. Quantiles are by nearest
//! rank.

use crate::export::measured::{SortedValues, rounded};
use crate::export::{Export, ExportError, File, Measured, Names, slug};
use llmscen_analysis::TimedRequest;
use llmscen_core::metric::Metric;
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};

/// Two files per case.
#[derive(Debug, Default)]
pub(super) struct Evalscope {
    names: Names,
}

impl Export for Evalscope {
    fn case(&mut self, case: &Measured<'_>) -> Result<Vec<File>, ExportError> {
        let folder = self.names.unique(&folder(case));
        let mut files = vec![file(
            &folder,
            "benchmark_summary.json",
            &Value::Object(summary(case)),
        )?];
        let percentiles = percentiles(case);
        if !percentiles.is_empty() {
            files.push(file(
                &folder,
                "benchmark_percentile.json",
                &json!(percentiles),
            )?);
        }
        Ok(files)
    }

    fn end(&mut self) -> Result<Vec<File>, ExportError> {
        Ok(Vec::new())
    }
}

fn file(folder: &str, name: &str, value: &Value) -> Result<File, ExportError> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(
        &mut bytes,
        PrettyFormatter::with_indent(b"    "),
    ))?;
    Ok(File {
        name: format!("{folder}/{name}"),
        bytes,
    })
}

/// `NAME/parallel_16_number_500` or `NAME/rate_8.0_number_500`, the folder names that EvalScope expects. NAME is the
/// model with the other swept values.
fn folder(case: &Measured<'_>) -> String {
    let is_in_name = |path: &str| {
        matches!(
            path,
            "load.concurrency" | "load.rate" | "load.requests" | "target.model"
        )
    };
    let others = case
        .case
        .labels
        .0
        .iter()
        .filter(|(path, _)| !is_in_name(path));
    let others =
        others.map(|(path, value)| format!(",{}={value}", path.rsplit('.').next().unwrap_or(path)));
    let name = slug(&format!("{}{}", case.model(), others.collect::<String>()));
    let number = case.rows.len();
    match users(case) {
        Some(users) => format!("{name}/parallel_{users}_number_{number}"),
        None => format!(
            "{name}/rate_{:?}_number_{number}",
            case.rate().unwrap_or(-1.0)
        ),
    }
}

/// The users of a closed loop (`--parallel`).
fn users(case: &Measured<'_>) -> Option<u32> {
    case.case.load.shape.users()
}

fn mean(values: Vec<f64>) -> Option<f64> {
    SortedValues::new(values).map(|spread| spread.mean())
}

/// TPOT as EvalScope defines it, in milliseconds.
fn tpots(case: &Measured<'_>) -> Vec<f64> {
    case.ok()
        .filter_map(|row| row.pace_ms(row.get(Metric::E2eService)))
        .collect()
}

/// The values under their new and old keys; old keys have seconds where new ones have milliseconds. Missing values
/// are absent.
#[derive(Default)]
struct Summary {
    new_keys: Map<String, Value>,
    old_keys: Map<String, Value>,
}

impl Summary {
    fn count(&mut self, new: &str, old: &str, value: i64) {
        self.new_keys.insert(new.to_owned(), json!(value));
        if !old.is_empty() {
            self.old_keys.insert(old.to_owned(), json!(value));
        }
    }

    fn figure(&mut self, new: &str, old: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.new_keys
                .insert(new.to_owned(), json!(rounded(value, 4)));
            if !old.is_empty() {
                self.old_keys
                    .insert(old.to_owned(), json!(rounded(value, 4)));
            }
        }
    }

    fn millis(&mut self, new: &str, old: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.new_keys
                .insert(new.to_owned(), json!(rounded(value, 2)));
            if !old.is_empty() {
                self.old_keys
                    .insert(old.to_owned(), json!(rounded(value / 1e3, 4)));
            }
        }
    }
}

fn summary(case: &Measured<'_>) -> Map<String, Value> {
    let mut out = Summary::default();
    let time = case.duration(|row| row.sent().is_some(), |row| row.end());
    let over = |amount: Option<f64>| amount.zip(time).map(|(amount, time)| amount / time);
    let (input, output) = (
        case.total(Metric::PromptTokens),
        case.total(Metric::BilledTokens),
    );
    let streamed = case.ok().filter(|row| row.first_token().is_some()).count() as i64;
    out.figure("Test Duration (s)", "Time taken for tests (s)", time);
    out.count(
        "Concurrency",
        "Number of concurrency",
        users(case).map_or(-1, i64::from),
    );
    out.figure(
        "Request Rate (req/s)",
        "Request rate (req/s)",
        Some(case.rate().unwrap_or(-1.0)),
    );
    out.count("Total Requests", "Total requests", case.rows.len() as i64);
    out.count(
        "Success Requests",
        "Succeed requests",
        case.completed() as i64,
    );
    out.count("Failed Requests", "Failed requests", case.failed() as i64);
    let streams = if case.case.request.stream && case.case.target.api.generates() {
        case.rows.len() as i64
    } else {
        streamed
    };
    out.count("Stream Requests", "", streams);
    out.count("Non-Stream Requests", "", case.rows.len() as i64 - streams);
    out.figure(
        "Req Throughput (req/s)",
        "Request throughput (req/s)",
        over(Some(case.completed() as f64)),
    );
    out.figure(
        "Avg Latency (s)",
        "Average latency (s)",
        mean(case.values(Metric::E2eService)).map(|millis| millis / 1e3),
    );
    out.figure(
        "Avg Input Tokens",
        "Average input tokens per request",
        mean(case.values(Metric::PromptTokens)),
    );
    if case.case.target.api.generates() {
        out.figure(
            "Output Throughput (tok/s)",
            "Output token throughput (tok/s)",
            over(output),
        );
        let total = input.zip(output).map(|(input, output)| input + output);
        out.figure(
            "Total Throughput (tok/s)",
            "Total token throughput (tok/s)",
            over(total),
        );
        out.millis(
            "Avg TTFT (ms)",
            "Average time to first token (s)",
            mean(case.values(Metric::TtftService)),
        );
        out.millis(
            "Avg TPOT (ms)",
            "Average time per output token (s)",
            mean(tpots(case)),
        );
        out.millis(
            "Avg ITL (ms)",
            "Average inter-token latency (s)",
            mean(case.gaps()),
        );
        out.figure(
            "Avg Output Tokens",
            "Average output tokens per request",
            mean(case.values(Metric::BilledTokens)),
        );
        add_conversation_metrics(case, &mut out);
    } else {
        let busy = case.total(Metric::E2eService).map(|millis| millis / 1e3);
        out.figure(
            "Input Throughput (tok/s)",
            "Input token throughput (tok/s)",
            input.zip(busy).map(|(input, busy)| input / busy),
        );
    }
    out.new_keys.extend(out.old_keys);
    out.new_keys
}

/// The values about conversations, caches and speculative decoding.
fn add_conversation_metrics(case: &Measured<'_>, out: &mut Summary) {
    let conversations = || case.ok().filter(|row| row.turns() > 1);
    let first = |row: &&TimedRequest<'_>| row.turn() == 0;
    out.figure(
        "Avg Turns/Request",
        "",
        mean(
            conversations()
                .map(|row| f64::from(row.turn()) + 1.0)
                .collect(),
        ),
    );
    let cached: Vec<_> = case
        .ok()
        .filter_map(|row| row.get(Metric::CachedTokens).zip(row.prompt_tokens()))
        .collect();
    let (hits, all) = cached
        .iter()
        .fold((0.0, 0.0), |(hits, all), (hit, prompt)| {
            (hits + hit, all + prompt)
        });
    out.figure(
        "KV Cache Hit Rate (%)",
        "",
        (all > 0.0).then(|| hits * 100.0 / all),
    );
    let ttft = |row: &TimedRequest<'_>| row.get(Metric::TtftService);
    out.millis(
        "Avg First-Turn TTFT (ms)",
        "",
        mean(conversations().filter(first).filter_map(ttft).collect()),
    );
    out.millis(
        "Avg Subsequent-Turn TTFT (ms)",
        "",
        mean(
            conversations()
                .filter(|row| !first(row))
                .filter_map(ttft)
                .collect(),
        ),
    );
    let tokens_per_step = |row: &TimedRequest<'_>| {
        let steps = row.events().checked_sub(1).filter(|&steps| steps > 0)? as f64;
        row.output_tokens()
            .map(|tokens| (tokens - 1.0) / steps)
            .filter(|&tokens| tokens > 1.0)
    };
    out.figure(
        "Avg Decoded Tok/Iter",
        "",
        mean(case.ok().filter_map(tokens_per_step).collect()),
    );
}

/// The columns of the percentile table: name, factor, values.
fn columns(case: &Measured<'_>) -> Vec<(&'static str, f64, SortedValues)> {
    let per_s = |amount: fn(&TimedRequest<'_>) -> Option<f64>| {
        let rate = |row: &TimedRequest<'_>| {
            Some(
                amount(row)? * 1e3
                    / row
                        .get(Metric::E2eService)
                        .filter(|&latency| latency > 0.0)?,
            )
        };
        case.ok().filter_map(rate).collect::<Vec<_>>()
    };
    let both = |row: &TimedRequest<'_>| Some(row.prompt_tokens()? + row.output_tokens()?);
    let generates = case.case.target.api.generates();
    let columns = match generates {
        true => vec![
            ("Latency (s)", 1e-3, case.values(Metric::E2eService)),
            ("TTFT (ms)", 1.0, case.values(Metric::TtftService)),
            ("TTFT (s)", 1e-3, case.values(Metric::TtftService)),
            ("ITL (ms)", 1.0, case.gaps()),
            ("ITL (s)", 1e-3, case.gaps()),
            ("TPOT (ms)", 1.0, tpots(case)),
            ("TPOT (s)", 1e-3, tpots(case)),
            ("Input tokens", 1.0, case.values(Metric::PromptTokens)),
            ("Output tokens", 1.0, case.values(Metric::BilledTokens)),
            ("Output (tok/s)", 1.0, per_s(|row| row.output_tokens())),
            ("Total (tok/s)", 1.0, per_s(both)),
            (
                "Decode (tok/s)",
                1.0,
                tpots(case)
                    .into_iter()
                    .filter(|&tpot| tpot > 0.0)
                    .map(|tpot| 1e3 / tpot)
                    .collect(),
            ),
        ],
        false => vec![
            ("Latency (s)", 1e-3, case.values(Metric::E2eService)),
            ("Input tokens", 1.0, case.values(Metric::PromptTokens)),
            ("Input (tok/s)", 1.0, per_s(|row| row.prompt_tokens())),
        ],
    };
    columns
        .into_iter()
        .filter_map(|(name, scale, values)| Some((name, scale, SortedValues::new(values)?)))
        .collect()
}

/// A row per percentile of old and new files.
fn percentiles(case: &Measured<'_>) -> Vec<Map<String, Value>> {
    const PERCENTS: [f64; 14] = [
        0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 100.0,
    ];
    let columns = columns(case);
    let row = |percent: f64| {
        let label = match percent {
            0.0 => "min".to_owned(),
            100.0 => "max".to_owned(),
            percent => format!("{percent}%"),
        };
        let cells = columns.iter().map(|(name, scale, spread)| {
            (*name, json!(rounded(spread.nearest(percent) * scale, 4)))
        });
        std::iter::once(("Percentiles", json!(label)))
            .chain(cells)
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    };
    if columns.is_empty() {
        Vec::new()
    } else {
        PERCENTS.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::texts;
    use llmscen_core::artifacts::ExportFormat;

    fn read(name: &str) -> Value {
        let files = texts(ExportFormat::Evalscope);
        let (_, text) = files
            .iter()
            .find(|(path, _)| path == &format!("org_m-7b/parallel_2_number_6/{name}"))
            .unwrap();
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_summary_has_old_and_new_keys() {
        let summary = read("benchmark_summary.json");
        let number = |key: &str| summary[key].as_f64().unwrap();
        assert_eq!(
            ["Test Duration (s)", "Time taken for tests (s)"].map(number),
            [1.002; 2]
        );
        assert_eq!(
            [
                "Total Requests",
                "Success Requests",
                "Failed Requests",
                "Succeed requests"
            ]
            .map(number),
            [6.0, 4.0, 2.0, 4.0]
        );
        assert_eq!(
            ["Req Throughput (req/s)", "Request throughput (req/s)"].map(number),
            [3.992; 2]
        );
        assert_eq!(
            [
                "Output Throughput (tok/s)",
                "Total token throughput (tok/s)"
            ]
            .map(number),
            [9.98, 49.9002]
        );
        assert_eq!(
            [
                "Avg Latency (s)",
                "Average latency (s)",
                "Avg Output Tokens"
            ]
            .map(number),
            [0.112, 0.112, 2.5]
        );
        assert_eq!(
            ["Avg TTFT (ms)", "Avg TPOT (ms)", "Avg ITL (ms)"].map(number),
            [70.0, 24.0, 26.67]
        );
        assert_eq!(
            [
                "Average time to first token (s)",
                "Average inter-token latency (s)"
            ]
            .map(number),
            [0.07, 0.0267]
        );
        assert_eq!(
            (
                number("Request Rate (req/s)"),
                number("Number of concurrency")
            ),
            (-1.0, 2.0)
        );
        assert!(
            summary.get("KV Cache Hit Rate (%)").is_none()
                && summary.get("Avg Turns/Request").is_none()
        );
    }

    #[test]
    fn percentiles_are_measured_values() {
        let rows = read("benchmark_percentile.json");
        let labels: Vec<_> = rows
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["Percentiles"].as_str().unwrap())
            .collect();
        assert_eq!(
            labels.join(" "),
            "min 1% 5% 10% 25% 50% 66% 75% 80% 90% 95% 98% 99% max"
        );
        let (median, tail) = (&rows[5], &rows[12]);
        assert_eq!(
            (
                &median["TTFT (ms)"],
                &median["TTFT (s)"],
                &median["Latency (s)"]
            ),
            (&json!(50.0), &json!(0.05), &json!(0.102))
        );
        assert_eq!(
            (&tail["TTFT (ms)"], &tail["ITL (ms)"], &tail["TPOT (s)"]),
            (&json!(100.0), &json!(60.0), &json!(0.034))
        );
        // 10 and 4 tokens in 192 ms; 1000 / 26 ms.
        assert_eq!(
            (&rows[13]["Total (tok/s)"], &median["Decode (tok/s)"]),
            (&json!(230.7692), &json!(38.4615))
        );
    }
}
