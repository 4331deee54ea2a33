//! Baselines: their JSON file, their table, and the output of `baseline doctor`.

use crate::ReportError;
use crate::format::{ABSENT, optional, value};
use crate::table::{Cell, Column, Columns, Screen};
use llmscen_core::baseline::{
    BASELINE_SCHEMA, Baseline, BaselineCase, BaselineRun, DEFAULT_STATISTICS, Figure, RunVariation,
};
use llmscen_core::check::relative::ReferenceValue;
use llmscen_core::metric::Metric;
use llmscen_core::units::Unit;
use serde_json::{Value, json};
use std::fmt::Write;

/// Significant digits of a number.
const DIGITS: usize = 6;

/// A baseline as JSON for version control: one statistic per line in a fixed order, with a final newline. Equal
/// baselines give equal bytes.
///
/// # Errors
/// [`ReportError::Json`] if a value cannot be serialized.
pub fn baseline(baseline: &Baseline) -> Result<String, ReportError> {
    let head = json!({ "schema": BASELINE_SCHEMA, "name": baseline.name, "plan": baseline.plan,
        "confidences": baseline.confidences });
    let head = serde_json::to_string_pretty(&head)?;
    let head = head.trim_end_matches('}').trim_end();
    // The confidence levels are joined into one line.
    let levels = serde_json::to_string_pretty(&baseline.confidences)?.replace('\n', "\n  ");
    let head = head.replace(
        &format!("\"confidences\": {levels}"),
        &format!("\"confidences\": {}", number_list(&baseline.confidences)),
    );
    let cases = baseline
        .cases
        .iter()
        .map(case_json)
        .collect::<Result<Vec<_>, _>>()?;
    let cases = if cases.is_empty() {
        String::new()
    } else {
        format!("\n{}\n  ", cases.join(",\n"))
    };
    let runs = baseline
        .runs
        .iter()
        .map(run_json)
        .collect::<Result<Vec<_>, _>>()?
        .join(",");
    Ok(format!(
        "{head},\n  \"runs\": [{runs}\n  ],\n  \"cases\": [{cases}]\n}}\n"
    ))
}

/// A run on one line, so that another run adds one line to the diff.
fn run_json(run: &BaselineRun) -> Result<String, ReportError> {
    Ok(format!("\n    {}", serde_json::to_string(run)?))
}

fn case_json(case: &BaselineCase) -> Result<String, ReportError> {
    let mut text = format!(
        "    {{\n      \"id\": {},\n",
        serde_json::to_string(&case.id)?
    );
    let labels = serde_json::to_string(&case.labels)?;
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "      \"labels\": {labels},\n      \"rounds\": {},\n      \"scheduled\": {},\n",
        case.rounds, case.scheduled
    );
    let _ = writeln!(text, "      \"ok\": {},", case.ok);
    if let Some(answers) = &case.answers {
        let answers = serde_json::to_string(answers)?;
        let _ = writeln!(text, "      \"answers\": {answers},");
    }
    text += "      \"metrics\": {";
    for (index, (name, figure)) in case.metrics.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(
            text,
            "{comma}\n        {}: {}",
            serde_json::to_string(name)?,
            figure_json(figure)
        );
    }
    let close = if case.metrics.is_empty() {
        "}"
    } else {
        "\n      }"
    };
    Ok(text + close + "\n    }")
}

fn figure_json(figure: &Figure) -> String {
    let list = |values: &[Option<f64>]| {
        let texts = values
            .iter()
            .map(|value| value.map_or("null".to_owned(), |value| rounded(value).to_string()));
        format!("[{}]", texts.collect::<Vec<_>>().join(", "))
    };
    let mut text = format!("\"value\": {}, \"n\": {}", rounded(figure.value), figure.n);
    // Writing to a String cannot fail.
    if figure.bounded() {
        let _ = write!(
            text,
            ", \"low\": {}, \"high\": {}",
            list(&figure.low),
            list(&figure.high)
        );
    }
    if figure.runs.len() > 1 {
        let _ = write!(text, ", \"runs\": {}", list(&figure.runs));
    }
    format!("{{ {text} }}")
}

fn number_list(values: &[f64]) -> String {
    format!(
        "[{}]",
        values
            .iter()
            .map(f64::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// The number rounded to [`DIGITS`] significant digits, so that differences below the measurement error do not appear
/// in a diff.
fn rounded(value: f64) -> Value {
    let digits = DIGITS - 1;
    json!(format!("{value:.digits$e}").parse::<f64>().unwrap_or(value))
}

/// The main metrics of a baseline with 95 % confidence bounds. `width`: of the terminal in characters; None: not a
/// terminal.
pub fn baseline_table(baseline: &Baseline, width: Option<usize>, color: bool) -> String {
    type Known<'a> = (&'a BaselineCase, &'a str, &'a Figure);
    let level = baseline.level(0.95);
    let figures = baseline.cases.iter().flat_map(|case| {
        let usual = DEFAULT_STATISTICS
            .iter()
            .filter_map(|name| Some((*name, case.figure(name)?)));
        let metrics = case.metrics.iter();
        let of_objectives = metrics.filter(|(name, _)| name.contains(['(', '{', ' ']));
        let of_objectives = of_objectives.map(|(name, figure)| (name.as_str(), figure));
        let all = usual.chain(of_objectives);
        all.map(move |(name, figure)| (case, name, figure))
    });
    let value = |of: fn(ReferenceValue) -> Option<f64>| {
        move |(_, name, figure): &Known<'_>| {
            let number = of(figure.reference_value(level));
            Cell::figure(optional(number, figure_unit(name)), number)
        }
    };
    Columns::<Known<'_>>::new()
        .add(Column::text().terminal("CASE", 0), |(case, ..)| {
            Cell::prose(&case.id)
        })
        .add(
            Column::text().terminal("METRIC", 0).at_least(20),
            |(_, name, _)| Cell::prose(name),
        )
        .add(
            Column::number().terminal("VALUE", 0),
            value(|known| Some(known.value)),
        )
        .add(
            Column::number().terminal("FROM", 1),
            value(|known| known.low),
        )
        .add(
            Column::number().terminal("TO", 1),
            value(|known| known.high),
        )
        .add(Column::number().terminal("N", 2), |(.., figure)| {
            Cell::count(figure.n)
        })
        .table(figures)
        .terminal(Screen { width, color })
}

/// The unit of a metric by its name, such as `ttft.p95`.
fn figure_unit(name: &str) -> Unit {
    let metric = name.split(['.', '{', ' ']).next().and_then(Metric::parse);
    metric.map_or(Unit::Share, Metric::unit)
}

/// The format's name and version, the value of `schema`.
pub const NOISE_SCHEMA: &str = "llmscen/baseline-doctor/1";

/// The smallest change of each metric that runs can detect. `width`: of the terminal in characters; None: not a
/// terminal.
pub fn noise_table(all: &[RunVariation], width: Option<usize>, color: bool) -> String {
    let size = |noise: &RunVariation, size: f64| match noise.share {
        true => format!("{:.2} pp", size * 100.0),
        false => format!("{:.1}%", size * 100.0),
    };
    let change = |of: fn(&RunVariation) -> Option<f64>| {
        move |noise: &&RunVariation| {
            let change = of(noise);
            let text = change.map_or_else(|| ABSENT.to_owned(), |change| size(noise, change));
            Cell::figure(text, change)
        }
    };
    let number = |head: &str, rank| Column::number().terminal(head, rank);
    Columns::new()
        .add(
            Column::text().terminal("CASE", 0),
            |noise: &&RunVariation| Cell::prose(&noise.case),
        )
        .add(Column::text().terminal("METRIC", 0).at_least(14), |noise| {
            Cell::prose(&noise.figure)
        })
        .add(number("MEAN", 3), |noise| {
            Cell::figure(value(noise.mean, figure_unit(&noise.figure)), noise.mean)
        })
        .add(number("RUNS", 2), |noise| {
            Cell::figure(noise.runs.to_string(), None::<f64>)
        })
        .add(number("SPREAD", 0), change(|noise| Some(noise.sd)))
        .add(number("1 RUN", 0), change(|noise| noise.one))
        .add(number("3 PER SIDE", 0), change(|noise| noise.three))
        .add(number("5 PER SIDE", 1), change(|noise| noise.five))
        .add(number("RUNS FOR 5%", 0), |noise| {
            let needed = noise.needed.map(|runs| runs.to_string());
            Cell::figure(needed.unwrap_or_else(|| "> 100".to_owned()), None::<f64>)
        })
        .table(all)
        .terminal(Screen { width, color })
}

/// The legend of that table.
pub const NOISE_KEY: &str = "SPREAD: standard deviation between runs. 1 RUN, 3 PER SIDE, 5 PER \
     SIDE: smallest change that one run compared with this baseline, or that many runs per side, \
     detect with 80 % probability (two-sided test, 5 % significance). RUNS FOR 5%: runs per side \
     that detect a change of 5 %. pp: percentage points.";

/// The same as JSON, indented, with a final newline.
///
/// # Errors
/// [`ReportError::Json`] if a value cannot be serialized.
pub fn noise_json(baseline: &Baseline, all: &[RunVariation]) -> Result<String, ReportError> {
    let document = json!({
        "schema": NOISE_SCHEMA,
        "name": baseline.name,
        "runs": baseline.runs,
        "confidence": 0.95,
        "power": 0.8,
        "metrics": all,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

#[cfg(test)]
mod tests;
