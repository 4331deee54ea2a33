//! Runs side by side: a table for a terminal, values for a spreadsheet, Markdown, HTML and JSON.

mod labels;
mod notes;
mod pages;
mod tables;

pub use labels::ended;
pub use notes::{differs, notes};
pub use pages::{html, markdown};
pub use tables::{separated, table};

use crate::ViewError;
use llmscen_core::compare::{Comparison, Contrast, Reading, Run};
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// The format's name and version, the value of `schema`.
pub const COMPARISON_SCHEMA: &str = "llmscen/comparison/1";

/// compare.json, indented, with a final newline.
///
/// # Errors
/// [`ViewError::Json`] where a value cannot be written.
pub fn json(comparison: &Comparison) -> Result<String, ViewError> {
    let document = json!({
        "schema": COMPARISON_SCHEMA,
        "verdict": labels::verdict(comparison).to_lowercase().replace(' ', "_"),
        "correction": comparison.correction,
        "tests": comparison.tests,
        "confidence": comparison.confidence,
        "max_regression": comparison.max_regression,
        "sides": comparison.sides.iter().enumerate().map(|(index, label)| side(comparison, index, label)).collect::<Vec<_>>(),
        "runs": comparison.runs.iter().map(run).collect::<Vec<_>>(),
        "differences": comparison.differences,
        "alone": comparison.alone.iter().map(|(run, case)| json!({ "run": run, "case": case })).collect::<Vec<_>>(),
        "notes": notes(comparison),
        "comparisons": comparison.contrasts.iter().map(|own| contrast(comparison, own)).collect::<Vec<_>>(),
        "signals": tables::signals_json(comparison),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn side(comparison: &Comparison, index: usize, label: &str) -> Value {
    let runs: Vec<&str> = comparison.runs.iter().filter(|run| run.side == index).map(|run| run.label.as_str()).collect();
    json!({ "label": label, "runs": runs })
}

fn run(run: &Run) -> Value {
    let manifest = &run.report.manifest;
    json!({
        "label": run.label,
        "folder": run.folder,
        "run_id": manifest.run_id,
        "name": manifest.name,
        "started_at": manifest.started_at,
        "tool_version": manifest.tool_version,
        "plan_id": manifest.plan_id,
        "seed": manifest.seed,
        "machine": manifest.machine,
        "verdict": run.report.verdict,
        "interrupted": manifest.interrupted,
        "sound": !run.unsound(),
    })
}

fn contrast(comparison: &Comparison, own: &Contrast) -> Value {
    json!({
        "case": own.case,
        "metric": own.measure.to_string(),
        "unit": own.measure.metric.unit(),
        "better": if own.measure.metric.higher_is_better() { "higher" } else { "lower" },
        "run": labels::label(comparison, own.run),
        "base": reading(&own.base),
        "other": reading(&own.other),
        "ratio": own.ratio,
        "difference": own.difference,
        "p": own.p,
        "p_adjusted": own.p_adjusted,
        "effect": own.effect.map(|effect| json!({
            "kind": effect.name(), "value": effect.value(), "magnitude": effect.magnitude(),
        })),
        "finding": own.finding,
        "note": own.note,
    })
}

fn reading(own: &Reading) -> Value {
    json!({
        "value": own.value,
        "low": own.bounds.map(|bounds| bounds.0),
        "high": own.bounds.map(|bounds| bounds.1),
        "n": own.n,
        "replicates": own.replicates.max(1),
        "design_effect": own.value.map(|_| own.design),
    })
}
