//! Commands after the load.

use crate::format::value;
use crate::table::{Cell, Column, Columns, Table};
use llmscen_core::check::Ruling;
use llmscen_core::hooks::CommandResult;
use llmscen_core::report::Report;
use llmscen_core::units::Unit;

/// The table of the commands; empty without any.
pub(super) fn table(report: &Report) -> Table {
    let text = |head: &str| Column::text().documents(head);
    Columns::new()
        .add(text("Command"), |result: &&CommandResult| {
            Cell::prose(&result.name)
        })
        .add(text("Verdict"), |result| {
            Cell::ruling(match result.failure {
                None => Ruling::Pass,
                Some(_) => Ruling::Fail,
            })
        })
        .add(text("Result"), |result| {
            Cell::prose(result.failure.as_deref().unwrap_or("exit status 0"))
        })
        .add(text("Last case"), |result| Cell::prose(&result.case))
        .add(Column::number().documents("Time"), |result| {
            Cell::figure(value(result.seconds, Unit::Seconds), Some(result.seconds))
        })
        .add(text("Output"), |result| Cell::prose(&result.log))
        .table(&report.manifest.then)
}

/// The failed commands as a sentence; None if none failed.
pub(crate) fn failed(report: &Report) -> Option<String> {
    let failed = report.manifest.then.iter().filter_map(|result| {
        let why = result.failure.as_ref()?;
        Some(format!(
            "`{}` after `{}` failed: {why}",
            result.name, result.case
        ))
    });
    let failed: Vec<String> = failed.collect();
    (!failed.is_empty()).then(|| format!("{}.", failed.join("; ")))
}
