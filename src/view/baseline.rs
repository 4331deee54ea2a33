//! The text of a baseline: for version control, one statistic a line, in an order that never changes, numbers of six digits.

use crate::model::baseline::{Baseline, BaselineCase, Figure};
use crate::view::ViewError;
use serde_json::{Value, json};
use std::fmt::Write;

/// Significant digits of a number.
const DIGITS: usize = 6;

/// A baseline as JSON with a final newline. Equal baselines give equal bytes.
///
/// # Errors
/// [`ViewError::Json`] where a value cannot be written.
pub fn baseline(of: &Baseline) -> Result<String, ViewError> {
    let head = json!({
        "schema": of.schema,
        "name": of.name,
        "run_id": of.run_id,
        "started_at": of.started_at,
        "tool_version": of.tool_version,
        "plan_id": of.plan_id,
        "seed": of.seed,
        "machine": of.machine,
        "plan": of.plan,
        "confidences": of.confidences,
    });
    let head = serde_json::to_string_pretty(&head)?;
    let head = head.trim_end_matches('}').trim_end();
    // Three levels are read at a glance, in one line.
    let levels = serde_json::to_string_pretty(&of.confidences)?.replace('\n', "\n  ");
    let head = head.replace(&format!("\"confidences\": {levels}"), &format!("\"confidences\": {}", row(&of.confidences)));
    let cases = of.cases.iter().map(case).collect::<Result<Vec<_>, _>>()?;
    let cases = if cases.is_empty() { String::new() } else { format!("\n{}\n  ", cases.join(",\n")) };
    Ok(format!("{head},\n  \"cases\": [{cases}]\n}}\n"))
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
    let head = format!("\"value\": {}, \"n\": {}", rounded(figure.value), figure.n);
    if !figure.bounded() {
        return format!("{{ {head} }}");
    }
    let ends = |ends: &[Option<f64>]| {
        let ends: Vec<String> = ends.iter().map(|end| end.map_or("null".to_owned(), |end| rounded(end).to_string())).collect();
        format!("[{}]", ends.join(", "))
    };
    format!("{{ {head}, \"low\": {}, \"high\": {} }}", ends(&figure.low), ends(&figure.high))
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
    use crate::model::baseline::{BASELINE_SCHEMA, LEVELS};
    use crate::model::labels::Scalar;

    fn sample() -> Baseline {
        let bounds = |value: f64| vec![Some(value * 0.9876543), None, Some(value)];
        let figure = |value: f64| Figure { value, n: 400, low: bounds(value), high: bounds(value) };
        let point = Figure { value: 12_345_678.9, n: 400, low: Vec::new(), high: Vec::new() };
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
        Baseline {
            schema: BASELINE_SCHEMA.into(),
            name: "chat".into(),
            run_id: "r".into(),
            started_at: "2026-01-02T03:04:05Z".into(),
            tool_version: "0.1.0".into(),
            plan_id: "p".into(),
            seed: u64::MAX,
            machine: "bench-1".into(),
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
        assert!(text.contains("  \"confidences\": [0.9, 0.95, 0.99],\n  \"cases\": [\n    {\n      \"id\": \"a\",\n"), "{text}");
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
        assert_eq!((names, read.seed), (vec!["ttft.p95", "ttft.p5", "ttft.max"], u64::MAX));
    }
}
