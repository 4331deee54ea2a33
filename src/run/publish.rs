//! Writes everything a run leaves: rows first, then what is recomputed from them.

use crate::frame::{Table, cases_csv};
use crate::model::plan::{Format, Plan};
use crate::model::report::{Manifest, Report};
use crate::run::error::RunError;
use crate::run::reckon::reckon;
use crate::store::rundir::RunDir;
use crate::view;

/// Reckons the report of a run and writes it into its folder. When all is written the journal goes.
pub fn publish(plan: &Plan, table: &Table, manifest: &Manifest, folder: &RunDir) -> Result<Report, RunError> {
    let mut rows = Vec::new();
    table.write_parquet(&mut rows)?;
    folder.write("requests.parquet", &rows)?;
    folder.write_manifest(manifest)?;
    let report = reckon(plan, table, manifest)?;
    render(plan, &report, folder)?;
    folder.remove_journal()?;
    Ok(report)
}

/// Renders the formats that the plan asks for.
pub fn render(plan: &Plan, report: &Report, folder: &RunDir) -> Result<(), RunError> {
    let wanted = |format| plan.report.formats.contains(&format);
    folder.write("results.json", view::json::render(report).as_bytes())?;
    let charts = if wanted(Format::Png) { view::chart::charts(report)? } else { Vec::new() };
    for chart in &charts {
        folder.write(&format!("charts/{}.png", chart.name), &chart.png)?;
    }
    if wanted(Format::Md) {
        folder.write("report.md", view::markdown::render(report, &charts)?.as_bytes())?;
    }
    if wanted(Format::Junit) {
        folder.write("junit.xml", view::junit::render(report)?.as_bytes())?;
    }
    if wanted(Format::Csv) {
        let mut csv = Vec::new();
        cases_csv(&report.cases, &mut csv)?;
        folder.write("cases.csv", &csv)?;
    }
    Ok(())
}
