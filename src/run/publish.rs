//! Writes everything a run leaves: rows first, then what is recomputed from them.

use crate::frame::{Table, cases_csv};
use crate::model::plan::{Format, Plan};
use crate::model::report::{Manifest, Report};
use crate::run::error::RunError;
use crate::run::reckon::reckon;
use crate::store::{RunDir, journal, manifest};
use crate::view::{self, Inconclusive};

/// Reckons the report of a run and writes it into its folder. When all is written the journal goes.
pub fn publish(
    plan: &Plan,
    table: &Table,
    facts: &Manifest,
    folder: &RunDir,
    inconclusive: Inconclusive,
) -> Result<Report, RunError> {
    let mut rows = Vec::new();
    table.write_parquet(&mut rows)?;
    folder.write("requests.parquet", &rows)?;
    manifest::write(folder, facts)?;
    let report = reckon(plan, table, facts)?;
    render(plan, &report, folder, inconclusive)?;
    folder.remove(journal::FILE)?;
    Ok(report)
}

/// Renders the formats that the plan asks for. `inconclusive`: what such a ruling is in junit.xml.
pub fn render(plan: &Plan, report: &Report, folder: &RunDir, inconclusive: Inconclusive) -> Result<(), RunError> {
    let wanted = |format| plan.report.formats.contains(&format);
    folder.write("results.json", view::json(report)?.as_bytes())?;
    let charts = if wanted(Format::Png) { view::charts(report)? } else { Vec::new() };
    for chart in &charts {
        folder.write(&format!("charts/{}.png", chart.name), &chart.png)?;
    }
    if wanted(Format::Md) {
        folder.write("report.md", view::markdown(report, &charts)?.as_bytes())?;
    }
    if wanted(Format::Junit) {
        folder.write("junit.xml", view::junit(report, inconclusive)?.as_bytes())?;
    }
    if wanted(Format::Csv) {
        let mut csv = Vec::new();
        cases_csv(&report.cases, &mut csv)?;
        folder.write("cases.csv", &csv)?;
    }
    Ok(())
}
