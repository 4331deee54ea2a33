//! Commands after the load.

use crate::format::value;
use crate::table::{Cell, Column, Row, Table};
use llmscen_core::check::Ruling;
use llmscen_core::hooks::CommandResult;
use llmscen_core::report::Report;
use llmscen_core::units::Unit;

/// The table of the commands; empty without any.
pub(super) fn table(report: &Report) -> Table {
    let columns = vec![
        Column::text().documents("Command"),
        Column::text().documents("Verdict"),
        Column::text().documents("Result"),
        Column::text().documents("Last case"),
        Column::number().documents("Time"),
        Column::text().documents("Output"),
    ];
    let row = |result: &CommandResult| {
        let (ruling, text) = match &result.failure {
            None => (Ruling::Pass, "exit status 0"),
            Some(why) => (Ruling::Fail, why.as_str()),
        };
        Row::new(vec![
            Cell::prose(&result.name),
            Cell::ruling(ruling),
            Cell::prose(text),
            Cell::prose(&result.case),
            Cell::figure(value(result.seconds, Unit::Seconds), Some(result.seconds)),
            Cell::prose(&result.log),
        ])
    };
    Table::new(columns, report.manifest.then.iter().map(row).collect())
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
