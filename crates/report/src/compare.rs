//! Comparison of runs: terminal table, CSV, Markdown, HTML and JSON.

pub(crate) mod labels;
mod notes;
mod pages;
mod summary;
mod tables;

pub use notes::{differs, notes};
pub use pages::{html, markdown};
pub use tables::{separated, table};

use crate::ReportError;
use llmscen_core::compare::{Comparison, Contrast, Reading, Run};
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// The format's name and version, the value of `schema`.
pub const COMPARISON_SCHEMA: &str = "llmscen/comparison/1";

/// compare.json, indented, with a final newline. Every key is always present; a missing value is null. Shares are
/// 0..=1.
///
/// # Errors
/// [`ReportError::Json`] if a value cannot be serialized.
pub fn json(comparison: &Comparison) -> Result<String, ReportError> {
    let document = json!({
        "schema": COMPARISON_SCHEMA,
        "verdict": labels::verdict(comparison).to_lowercase().replace(' ', "_"),
        "correction": comparison.correction,
        "tests": comparison.tests,
        "confidence": comparison.confidence,
        "max_regression": comparison.max_regression,
        "sides": comparison.sides.iter().enumerate().map(|(index, label)| side_json(comparison, index,
            label)).collect::<Vec<_>>(),
        "runs": comparison.runs.iter().map(run_json).collect::<Vec<_>>(),
        "differences": comparison.differences,
        "alone": comparison.unmatched_cases.iter().map(|(run, case)| json!({ "run": run,
            "case": case })).collect::<Vec<_>>(),
        "notes": notes(comparison),
        "comparisons": comparison.contrasts.iter().map(|contrast| contrast_json(comparison,
            contrast)).collect::<Vec<_>>(),
        "signals": tables::signals_json(comparison),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn side_json(comparison: &Comparison, index: usize, label: &str) -> Value {
    let runs: Vec<&str> = comparison
        .runs
        .iter()
        .filter(|run| run.side == index)
        .map(|run| run.label.as_str())
        .collect();
    json!({ "label": label, "runs": runs })
}

fn run_json(run: &Run) -> Value {
    let manifest = &run.report.manifest;
    json!({
        "label": run.label,
        "folder": run.folder,
        "run_id": manifest.run_id,
        "name": manifest.name,
        "started_at": manifest.started_at,
        "tool_version": manifest.tool_version,
        "labels": manifest.labels,
        "plan_id": manifest.plan_id,
        "seed": manifest.seed,
        "machine": manifest.machine,
        "verdict": run.report.verdict,
        "interrupted": manifest.interrupted,
        "sound": !run.is_invalid(),
    })
}

fn contrast_json(comparison: &Comparison, contrast: &Contrast) -> Value {
    json!({
        "case": contrast.case,
        "metric": contrast.measure.to_string(),
        "unit": contrast.measure.metric.unit(),
        "better": if contrast.measure.metric.higher_is_better() { "higher" } else { "lower" },
        "run": labels::label(comparison, contrast.run),
        "base": reading_json(&contrast.base),
        "other": reading_json(&contrast.other),
        "ratio": contrast.ratio,
        "difference": contrast.difference,
        "p": contrast.p,
        "p_adjusted": contrast.p_adjusted,
        "effect": contrast.effect.map(|effect| json!({
            "kind": effect.name(), "value": effect.value(), "magnitude": effect.magnitude(),
        })),
        "finding": contrast.finding,
        "note": contrast.note,
    })
}

fn reading_json(reading: &Reading) -> Value {
    json!({
        "value": reading.value,
        "low": reading.bounds.map(|bounds| bounds.0),
        "high": reading.bounds.map(|bounds| bounds.1),
        "n": reading.n,
        "replicates": reading.replicates.max(1),
        "design_effect": reading.value.map(|_| reading.design),
    })
}
