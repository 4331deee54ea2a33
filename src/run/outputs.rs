//! Writes everything a run leaves: rows first, then what is recomputed from them.

pub(crate) mod baseline;
pub(crate) mod hints;
pub(crate) mod recover;
pub(crate) mod summarize;

use crate::run::error::RunError;
use crate::run::outputs::summarize::summarize;
use crate::run::round::telemetry;
use crate::store::bodies::spool;
use crate::store::sqlite::{self, Content};
use crate::store::{ROWS, RunDir, StoreError, hlog, journal, manifest};
use llmscen_analysis::{CaseFacts, Table, cases_csv};
use llmscen_core::artifacts::Store;
use llmscen_core::manifest::Manifest;
use llmscen_core::plan::{Case, Format, Plan};
use llmscen_core::report::{CaseReport, Report};
use llmscen_report::compat::{Export, File, Measured, export};
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
const OUTPUTS: &[Output] =
    &[results_json, charts, report_md, report_html, junit_xml, cases_table, write_compat, write_histograms, write_database];

/// Makes the report of a run and writes it into its folder. The journal goes once the rows and what is known of them are
/// there: whatever is made of those can be made again.
pub fn publish(
    plan: &Plan,
    table: &Table,
    facts: &Manifest,
    folder: &RunDir,
    inconclusive: Inconclusive,
) -> Result<Report, RunError> {
    folder.write_with(ROWS, |out| table.write_parquet(out).map_err(io::Error::other))?;
    telemetry::write_telemetry(folder, table.recorded())?;
    manifest::write(folder, facts)?;
    folder.seal()?;
    folder.remove(journal::FILE)?;
    let report = summarize(plan, table, facts);
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

/// The folder of all of them.
const FOLDER: &str = "compat";

/// Writes what `report.compat` asks for. A case that never ran leaves nothing; a stage is part of its case.
pub fn write_compat(results: &Results<'_>) -> Result<(), RunError> {
    let mut exports: Vec<(&str, Box<dyn Export>)> =
        results.plan.report.compat.iter().map(|&peer| (peer.name(), export(peer))).collect();
    if exports.is_empty() {
        return Ok(());
    }
    for report in results.report.cases.iter().filter(|report| !report.is_stage()) {
        let Some(measured) = measured(results, report)? else { continue };
        for (tool, export) in &mut exports {
            write(results, tool, export.case(&measured)?)?;
        }
    }
    exports.iter_mut().try_for_each(|(tool, export)| write(results, tool, export.end()?))
}

fn measured<'a>(results: &Results<'a>, report: &'a CaseReport) -> Result<Option<Measured<'a>>, RunError> {
    let own = |case: &&Case| case.id == report.id;
    let (plan, manifest) = (results.plan, &results.report.manifest);
    let Some(case) = plan.cases.iter().find(own) else { return Ok(None) };
    let rows = llmscen_analysis::timed_requests(results.table, &CaseFacts { case, parts: &manifest.parts, until: None });
    Ok((!rows.is_empty()).then_some(Measured { manifest, case, report, rows }))
}

fn write(results: &Results<'_>, tool: &str, files: Vec<File>) -> Result<(), RunError> {
    files.iter().try_for_each(|file| Ok(results.folder.write(&format!("{FOLDER}/{tool}/{}", file.name), &file.bytes)?))
}

/// requests.db. What lies in the spool goes into it, and then the spool goes. One that the plan does not ask for is removed,
/// unless it holds bodies: those are nowhere else.
pub fn write_database(results: &Results<'_>) -> Result<(), RunError> {
    let folder = results.folder;
    if results.plan.report.store.contains(&Store::Sqlite) {
        sqlite::write(folder, &Content { plan: results.plan, table: results.table, report: results.report })?;
    } else if folder.file(sqlite::FILE).exists() && !sqlite::holds_bodies(folder)? {
        sqlite::remove(folder)?;
    }
    Ok(folder.remove(spool::FILE)?)
}

/// histograms.hlog; one that the plan does not ask for is removed.
pub fn write_histograms(results: &Results<'_>) -> Result<(), RunError> {
    if !results.plan.report.store.contains(&Store::Hlog) {
        return Ok(results.folder.remove(hlog::FILE)?);
    }
    let mut log = Vec::new();
    hlog::write(results.table, &results.report.manifest, &mut log)
        .map_err(|error| StoreError::Write { path: results.folder.file(hlog::FILE), source: std::io::Error::other(error) })?;
    Ok(results.folder.write(hlog::FILE, &log)?)
}
