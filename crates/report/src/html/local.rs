//! The tables of models in this process, and that of a `speed_benchmark`.

use crate::html::cells::{Cell, Row, Table};
use crate::html::tables::anchor;
use crate::local::{BATCHES, MODELS, SPEEDS, batch_cells, model_cells, speed_cells};
use llmscen_analysis::worked;
use llmscen_core::report::{CaseReport, Report};
use serde::Serialize;

/// All of them.
#[derive(Serialize)]
pub struct Tables {
    models: Table,
    batches: Table,
    speeds: Table,
}

/// The tables of a report.
pub fn tables(report: &Report) -> Tables {
    Tables { models: models(report), batches: batches(report), speeds: speeds(report) }
}

fn link(index: usize, case: &CaseReport) -> Cell {
    Cell::code(&case.id).leading(anchor(index))
}

fn row((index, case): (usize, &CaseReport), cells: impl Iterator<Item = Cell>) -> Row {
    Row { case: Some(case.id.clone()), cells: [link(index, case)].into_iter().chain(cells).collect(), ..Row::default() }
}

/// The models, one row for each case.
fn models(report: &Report) -> Table {
    let rows = report.cases.iter().enumerate().filter_map(|own| {
        let cells = model_cells(&own.1.local.first()?.loaded);
        let cells = cells.into_iter().zip(MODELS.iter().skip(1)).map(|(text, head)| match head.starts_with('>') {
            true => Cell::figure(text, None),
            false => Cell::prose(&text),
        });
        Some(row(own, cells))
    });
    Table::new(&MODELS, rows.collect())
}

/// What they did, one row for each case.
fn batches(report: &Report) -> Table {
    let rows = report.cases.iter().enumerate().filter_map(|own| {
        let cells = batch_cells(&worked(&own.1.local)?);
        Some(row(own, cells.into_iter().map(|(shown, raw)| Cell::figure(shown, raw))))
    });
    Table::new(&BATCHES, rows.collect())
}

/// The speeds of a `speed_benchmark`, one row for each case and length.
fn speeds(report: &Report) -> Table {
    let all = report.cases.iter().enumerate().flat_map(|own| own.1.speed.iter().map(move |speed| (own, speed)));
    let rows = all.map(|(own, speed)| row(own, speed_cells(speed).into_iter().map(|(shown, raw)| Cell::figure(shown, raw))));
    Table::new(&SPEEDS, rows.collect())
}
