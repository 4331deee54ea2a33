//! Data that is shorter than the load.

use crate::run::error::RunError;
use llmscen_core::dataset::{DatasetSpec, OnExhausted, Source};
use llmscen_core::plan::Plan;
use llmscen_datasets::CacheDir;

/// One line for each case whose data is known to end before its requests do.
pub(super) fn short(plan: &Plan, cache: &CacheDir) -> Result<Vec<String>, RunError> {
    let mut known: Vec<(&DatasetSpec, Option<u64>)> = Vec::new();
    let mut lines = Vec::new();
    // Entries of a mix share rows in a way that only a run can count.
    let ends = plan.cases.iter().filter(|case| case.mix.is_empty() && case.dataset.on_exhausted != OnExhausted::Cycle);
    // How much a command prints is known when it ends.
    let ends = ends.filter(|case| !matches!(case.dataset.source, Source::Command(_)));
    for case in ends {
        let Some(requests) = case.load.requests else { continue };
        let rows = match known.iter().find(|(spec, _)| *spec == &case.dataset) {
            Some((_, rows)) => *rows,
            None => {
                let rows = llmscen_datasets::open(&case.dataset, plan.seed, 0, cache, &|_| {})?.prompts.len();
                known.push((&case.dataset, rows));
                rows
            }
        };
        if let Some(rows) = rows.filter(|rows| *rows < case.load.planned().unwrap_or(requests)) {
            let what = if case.dataset.on_exhausted == OnExhausted::Fail { "fails" } else { "ends" };
            lines.push(format!(
                "the dataset of `{}` has {rows} usable rows, `load.requests` is {requests}: the case {what} after {rows} requests; \
                 lower `load.requests`, or set `dataset.on_exhausted: cycle`",
                case.id
            ));
        }
    }
    Ok(lines)
}
