//! The text of a baseline: for version control, one statistic a line, in an order that never changes, numbers of six digits.

use crate::ViewError;
use llmscen_core::baseline::{BASELINE_SCHEMA, Baseline, BaselineCase, BaselineRun, Figure};
use serde_json::{Value, json};
use std::fmt::Write;

/// Significant digits of a number.
const DIGITS: usize = 6;

/// A baseline as JSON with a final newline. Equal baselines give equal bytes.
///
/// # Errors
/// [`ViewError::Json`] where a value cannot be written.
pub fn baseline(of: &Baseline) -> Result<String, ViewError> {
    let head = json!({ "schema": BASELINE_SCHEMA, "name": of.name, "plan": of.plan, "confidences": of.confidences });
    let head = serde_json::to_string_pretty(&head)?;
    let head = head.trim_end_matches('}').trim_end();
    // Three levels are read at a glance, in one line.
    let levels = serde_json::to_string_pretty(&of.confidences)?.replace('\n', "\n  ");
    let head = head.replace(&format!("\"confidences\": {levels}"), &format!("\"confidences\": {}", row(&of.confidences)));
    let cases = of.cases.iter().map(case).collect::<Result<Vec<_>, _>>()?;
    let cases = if cases.is_empty() { String::new() } else { format!("\n{}\n  ", cases.join(",\n")) };
    let runs = of.runs.iter().map(run).collect::<Result<Vec<_>, _>>()?.join(",");
    Ok(format!("{head},\n  \"runs\": [{runs}\n  ],\n  \"cases\": [{cases}]\n}}\n"))
}

/// A run on a line of its own, so that one more is one more line.
fn run(run: &BaselineRun) -> Result<String, ViewError> {
    Ok(format!("\n    {}", serde_json::to_string(run)?))
}

fn case(case: &BaselineCase) -> Result<String, ViewError> {
    let mut text = format!("    {{\n      \"id\": {},\n", serde_json::to_string(&case.id)?);
    let labels = serde_json::to_string(&case.labels)?;
    let (rounds, scheduled, ok) = (case.rounds, case.scheduled, case.ok);
    // Writing to a String cannot fail.
    let _ = write!(text, "      \"labels\": {labels},\n      \"rounds\": {rounds},\n      \"scheduled\": {scheduled},\n");
    let _ = write!(text, "      \"ok\": {ok},\n      \"metrics\": {{");
    for (index, (name, figure)) in case.metrics.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}\n        {}: {}", serde_json::to_string(name)?, line(figure));
    }
    let close = if case.metrics.is_empty() { "}" } else { "\n      }" };
    Ok(text + close + "\n    }")
}

fn line(figure: &Figure) -> String {
    let list = |values: &[Option<f64>]| {
        let texts = values.iter().map(|value| value.map_or("null".to_owned(), |value| rounded(value).to_string()));
        format!("[{}]", texts.collect::<Vec<_>>().join(", "))
    };
    let mut text = format!("\"value\": {}, \"n\": {}", rounded(figure.value), figure.n);
    // Writing to a String cannot fail.
    if figure.bounded() {
        let _ = write!(text, ", \"low\": {}, \"high\": {}", list(&figure.low), list(&figure.high));
    }
    if figure.runs.len() > 1 {
        let _ = write!(text, ", \"runs\": {}", list(&figure.runs));
    }
    format!("{{ {text} }}")
}

fn row(values: &[f64]) -> String {
    format!("[{}]", values.iter().map(f64::to_string).collect::<Vec<_>>().join(", "))
}

/// The number rounded to [`DIGITS`] significant digits; what measuring cannot tell apart makes no difference in a diff.
fn rounded(value: f64) -> Value {
    let digits = DIGITS - 1;
    json!(format!("{value:.digits$e}").parse::<f64>().unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::baseline::LEVELS;
    use llmscen_core::labels::Scalar;

    fn sample() -> Baseline {
        let bounds = |value: f64| vec![Some(value * 0.9876543), None, Some(value)];
        let figure = |value: f64| Figure { value, n: 400, low: bounds(value), high: bounds(value), runs: vec![Some(value)] };
        let point = Figure { value: 12_345_678.9, n: 400, runs: vec![Some(12_345_678.9)], ..Figure::default() };
        let case = |id: &str| BaselineCase {
            id: id.to_owned(),
            labels: [("load.concurrency".to_owned(), Scalar::Int(4))].into(),
            rounds: 1,
            scheduled: 400,
            ok: 399,
            metrics: vec![
                ("ttft.p95".into(), figure(12.3456789)),
                ("ttft.p5".into(), figure(1.0)),
                ("ttft.max".into(), point.clone()),
            ],
        };
        let run = BaselineRun {
            run_id: "r".into(),
            started_at: "2026-01-02T03:04:05Z".into(),
            tool_version: "0.1.0".into(),
            plan_id: "p".into(),
            seed: u64::MAX,
            machine: "bench-1".into(),
        };
        Baseline {
            name: "chat".into(),
            runs: vec![run],
            plan: [("load.concurrency".to_owned(), "4".to_owned())].into(),
            confidences: LEVELS.to_vec(),
            cases: vec![case("a"), case("b \"quoted\"")],
        }
    }

    #[test]
    fn a_statistic_is_a_line_with_the_digits_that_mean_something() {
        let text = baseline(&sample()).unwrap();
        let line = "        \"ttft.p95\": { \"value\": 12.3457, \"n\": 400, \"low\": [12.1933, null, 12.3457], \"high\": [12.1933, null, 12.3457] },\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("        \"ttft.max\": { \"value\": 12345700.0, \"n\": 400 }\n"), "{text}");
        assert!(text.contains("  \"confidences\": [0.9, 0.95, 0.99],\n  \"runs\": [\n    {\"run_id\":\"r\","), "{text}");
        assert!(text.ends_with("    }\n  ]\n}\n"), "{text}");
    }

    #[test]
    fn it_reads_back_and_writes_the_same_bytes() {
        for made in [sample(), Baseline { cases: Vec::new(), ..sample() }] {
            let text = baseline(&made).unwrap();
            let read: Baseline = serde_json::from_str(&text).unwrap();
            assert_eq!(baseline(&read).unwrap(), text);
            assert_eq!(read.cases.len(), made.cases.len());
        }
        let read: Baseline = serde_json::from_str(&baseline(&sample()).unwrap()).unwrap();
        let names: Vec<&str> = read.cases[1].metrics.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, read.runs[0].seed), (vec!["ttft.p95", "ttft.p5", "ttft.max"], u64::MAX));
    }

    #[test]
    fn a_further_run_is_one_more_line_and_one_more_value() {
        let later = |id: &str, start: &str| {
            let mut own = sample();
            (own.runs[0].run_id, own.runs[0].started_at) = (id.to_owned(), start.to_owned());
            own
        };
        let two = sample().with(later("s", "2026-01-03T03:04:05Z"));
        let text = baseline(&two).unwrap();
        assert!(text.contains("\"high\": [12.1933, null, 12.3457], \"runs\": [12.3457, 12.3457] },\n"), "{text}");
        assert!(
            text.contains("\"ttft.max\": { \"value\": 12345700.0, \"n\": 400, \"runs\": [12345700.0, 12345700.0] }\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), baseline(&sample()).unwrap().lines().count() + 1);
        let read: Baseline = serde_json::from_str(&text).unwrap();
        assert_eq!((read.runs.len(), baseline(&read).unwrap()), (2, text));
    }
}
