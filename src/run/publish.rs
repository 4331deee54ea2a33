//! Writes everything a run leaves: rows first, then what is recomputed from them.

use crate::run::compat::compat;
use crate::run::data::{database, histograms};
use crate::run::error::RunError;
use crate::run::readings;
use crate::run::reckon::reckon;
use crate::store::{ROWS, RunDir, journal, manifest};
use llmscen_analysis::{Table, cases_csv};
use llmscen_core::manifest::Manifest;
use llmscen_core::plan::{Format, Plan};
use llmscen_core::report::Report;
use llmscen_report::{Chart, Inconclusive};
use std::io;

/// What every output is made of.
pub struct Results<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The rows.
    pub table: &'a Table,
    /// What is said of them.
    pub report: &'a Report,
    /// The charts, where the plan wants them.
    pub charts: &'a [Chart],
    /// Where it is written.
    pub folder: &'a RunDir,
    /// What an inconclusive ruling is in junit.xml.
    pub inconclusive: Inconclusive,
}

/// Writes one output, if the plan asks for it.
type Output = fn(&Results<'_>) -> Result<(), RunError>;

/// Every output, in the order in which they are written.
// The database comes last: it takes the bodies over from the spool.
const OUTPUTS: &[Output] = &[results_json, charts, report_md, report_html, junit_xml, cases_table, compat, histograms, database];

/// Reckons the report of a run and writes it into its folder. The journal goes once the rows and what is known of them are
/// there: whatever is made of those can be made again.
pub fn publish(
    plan: &Plan,
    table: &Table,
    facts: &Manifest,
    folder: &RunDir,
    inconclusive: Inconclusive,
) -> Result<Report, RunError> {
    folder.write_with(ROWS, |out| table.write_parquet(out).map_err(io::Error::other))?;
    readings::write(folder, table.recorded())?;
    manifest::write(folder, facts)?;
    folder.seal()?;
    folder.remove(journal::FILE)?;
    let report = reckon(plan, table, facts)?;
    render(plan, table, &report, folder, inconclusive)?;
    Ok(report)
}

/// Renders everything that the plan asks for. `inconclusive`: what such a ruling is in junit.xml.
pub fn render(plan: &Plan, table: &Table, report: &Report, folder: &RunDir, inconclusive: Inconclusive) -> Result<(), RunError> {
    let charts = llmscen_report::charts(report, &plan.report.formats)?;
    let results = Results { plan, table, report, charts: &charts, folder, inconclusive };
    // One that cannot be written takes no other with it.
    let faults: Vec<RunError> = OUTPUTS.iter().filter_map(|write| write(&results).err()).collect();
    faults.into_iter().next().map_or(Ok(()), Err)
}

impl Results<'_> {
    fn wants(&self, format: Format) -> bool {
        self.plan.report.formats.contains(&format)
    }
}

fn results_json(results: &Results<'_>) -> Result<(), RunError> {
    Ok(results.folder.write("results.json", llmscen_report::json(results.report)?.as_bytes())?)
}

fn charts(results: &Results<'_>) -> Result<(), RunError> {
    let pngs = results.charts.iter().map(|chart| (format!("{}.png", chart.name), chart.png.as_slice()));
    let svgs = results.charts.iter().map(|chart| (format!("{}.svg", chart.name), chart.svg.as_bytes()));
    Ok(results.folder.write_charts(&pngs.chain(svgs).filter(|(_, bytes)| !bytes.is_empty()).collect::<Vec<_>>())?)
}

fn report_md(results: &Results<'_>) -> Result<(), RunError> {
    if results.wants(Format::Md) {
        results.folder.write("report.md", llmscen_report::markdown(results.report, results.charts)?.as_bytes())?;
    }
    Ok(())
}

fn report_html(results: &Results<'_>) -> Result<(), RunError> {
    if results.wants(Format::Html) {
        results.folder.write("report.html", llmscen_report::html(results.report, &results.plan.resolved)?.as_bytes())?;
    }
    Ok(())
}

fn junit_xml(results: &Results<'_>) -> Result<(), RunError> {
    if results.wants(Format::Junit) {
        results.folder.write("junit.xml", llmscen_report::junit(results.report, results.inconclusive)?.as_bytes())?;
    }
    Ok(())
}

fn cases_table(results: &Results<'_>) -> Result<(), RunError> {
    if results.wants(Format::Csv) {
        let mut csv = Vec::new();
        cases_csv(&results.report.cases, &mut csv)?;
        results.folder.write("cases.csv", &csv)?;
    }
    Ok(())
}
