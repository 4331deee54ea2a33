//! Writes the results of a run: rows first, then everything that is computed from them.

pub(crate) mod baseline;
pub(crate) mod between_cases;
pub(crate) mod hints;
pub(crate) mod recover;
pub(crate) mod search_results;
pub(crate) mod summarize;

use crate::run::error::RunError;
use crate::run::outputs::summarize::summarize;
use crate::run::telemetry;
use crate::store::bodies::spool;
use crate::store::sqlite::{self, Content};
use crate::store::{DATABASE, EARLIER, FACTS, ROWS, RunDir, StoreError, hlog, journal, manifest};
use llmscen_analysis::{CaseFacts, Table, cases_csv};
use llmscen_compat::export::{Export, File, Measured, export};
use llmscen_core::artifacts::Store;
use llmscen_core::manifest::Manifest;
use llmscen_core::plan::{Case, Format, Plan};
use llmscen_core::report::{CaseReport, Report};
use llmscen_report::{Chart, Inconclusive};
use std::io;

/// The results of a run, from which every output is rendered.
struct Results<'a> {
    /// The plan.
    plan: &'a Plan,
    /// The rows.
    table: &'a Table,
    /// The report.
    report: &'a Report,
    /// The charts, if the plan asks for them.
    charts: &'a [Chart],
    /// Run folder.
    folder: &'a RunDir,
    /// How junit.xml shows an inconclusive verdict.
    inconclusive: Inconclusive,
}

/// Writes one output, if the plan asks for it.
type Output = fn(&Results<'_>) -> Result<(), RunError>;

/// Every output, in the order in which they are written.
// The database is last, since it removes the spool of bodies.
const OUTPUTS: &[Output] = &[
    write_json,
    write_charts,
    write_markdown,
    write_html,
    write_junit,
    write_csv,
    write_compat,
    write_histograms,
    write_database,
];

/// Writes the rows and facts of a run, then its report and all other outputs. The journal is removed once rows and
/// facts are written, since everything else can be computed from them again.
pub fn publish(
    plan: &Plan,
    table: &Table,
    manifest: &Manifest,
    folder: &RunDir,
    inconclusive: Inconclusive,
) -> Result<Report, RunError> {
    folder.write_with(ROWS, |out| {
        table.write_parquet(out).map_err(io::Error::other)
    })?;
    telemetry::write_telemetry(folder, table.recorded())?;
    manifest::write(folder, manifest)?;
    folder.seal()?;
    folder.remove(journal::FILE)?;
    folder.remove(EARLIER)?;
    // A run that did not finish may go on.
    if manifest.error.is_none() && !manifest.interrupted {
        folder.remove(FACTS)?;
    }
    let report = summarize(plan, table, manifest)?;
    render(plan, table, &report, folder, inconclusive)?;
    Ok(report)
}

/// Renders all outputs of a plan. An output that cannot be written does not prevent the others; the first error is
/// returned.
pub fn render(
    plan: &Plan,
    table: &Table,
    report: &Report,
    folder: &RunDir,
    inconclusive: Inconclusive,
) -> Result<(), RunError> {
    let charts = llmscen_report::charts(report, &plan.report.formats)?;
    let results = Results {
        plan,
        table,
        report,
        charts: &charts,
        folder,
        inconclusive,
    };
    let faults: Vec<RunError> = OUTPUTS
        .iter()
        .filter_map(|write| write(&results).err())
        .collect();
    faults.into_iter().next().map_or(Ok(()), Err)
}

impl Results<'_> {
    fn has_format(&self, format: Format) -> bool {
        self.plan.report.formats.contains(&format)
    }
}

fn write_json(results: &Results<'_>) -> Result<(), RunError> {
    Ok(results.folder.write(
        "results.json",
        llmscen_report::json(results.report)?.as_bytes(),
    )?)
}

fn write_charts(results: &Results<'_>) -> Result<(), RunError> {
    let pngs = results
        .charts
        .iter()
        .map(|chart| (format!("{}.png", chart.name), chart.png.as_slice()));
    let svgs = results
        .charts
        .iter()
        .map(|chart| (format!("{}.svg", chart.name), chart.svg.as_bytes()));
    Ok(results.folder.write_charts(
        &pngs
            .chain(svgs)
            .filter(|(_, bytes)| !bytes.is_empty())
            .collect::<Vec<_>>(),
    )?)
}

fn write_markdown(results: &Results<'_>) -> Result<(), RunError> {
    if results.has_format(Format::Md) {
        results.folder.write(
            "report.md",
            llmscen_report::markdown(results.report, results.charts)?.as_bytes(),
        )?;
    }
    Ok(())
}

fn write_html(results: &Results<'_>) -> Result<(), RunError> {
    if results.has_format(Format::Html) {
        results.folder.write(
            "report.html",
            llmscen_report::html(results.report, &results.plan.resolved)?.as_bytes(),
        )?;
    }
    Ok(())
}

fn write_junit(results: &Results<'_>) -> Result<(), RunError> {
    if results.has_format(Format::Junit) {
        results.folder.write(
            "junit.xml",
            llmscen_report::junit(results.report, results.inconclusive)?.as_bytes(),
        )?;
    }
    Ok(())
}

fn write_csv(results: &Results<'_>) -> Result<(), RunError> {
    if results.has_format(Format::Csv) {
        let mut csv = Vec::new();
        cases_csv(&results.report.cases, &mut csv)?;
        results.folder.write("cases.csv", &csv)?;
    }
    Ok(())
}

/// The folder of all exports for other tools.
const COMPAT_FOLDER: &str = "compat";

/// Writes the exports of `report.compat`. Cases that did not run are left out; a stage is part of its case.
fn write_compat(results: &Results<'_>) -> Result<(), RunError> {
    let mut exports: Vec<(&str, Box<dyn Export>)> = results
        .plan
        .report
        .compat
        .iter()
        .map(|&format| (format.name(), export(format)))
        .collect();
    if exports.is_empty() {
        return Ok(());
    }
    for report in results
        .report
        .cases
        .iter()
        .filter(|report| !report.is_stage())
    {
        let Some(measured) = measured_case(results, report)? else {
            continue;
        };
        for (tool, export) in &mut exports {
            write_export(results, tool, export.case(&measured)?)?;
        }
    }
    exports
        .iter_mut()
        .try_for_each(|(tool, export)| write_export(results, tool, export.end()?))
}

fn measured_case<'a>(
    results: &Results<'a>,
    report: &'a CaseReport,
) -> Result<Option<Measured<'a>>, RunError> {
    let manifest = &results.report.manifest;
    let has_id = |case: &&Case| case.id == report.id;
    let Some(case) = results.plan.cases.iter().find(has_id) else {
        return Ok(None);
    };
    let rows = llmscen_analysis::timed_requests(
        results.table,
        &CaseFacts {
            case,
            parts: &manifest.parts,
            until: None,
        },
    );
    Ok((!rows.is_empty()).then_some(Measured {
        manifest,
        case,
        report,
        rows,
    }))
}

fn write_export(results: &Results<'_>, tool: &str, files: Vec<File>) -> Result<(), RunError> {
    files.iter().try_for_each(|file| {
        Ok(results.folder.write(
            &format!("{COMPAT_FOLDER}/{tool}/{}", file.name),
            &file.bytes,
        )?)
    })
}

/// Writes requests.db and removes the spool of bodies. A database that the plan does not ask for is removed, unless
/// it has bodies, which are stored nowhere else.
fn write_database(results: &Results<'_>) -> Result<(), RunError> {
    let folder = results.folder;
    if results.plan.report.store.contains(&Store::Sqlite) {
        sqlite::write(
            folder,
            &Content {
                plan: results.plan,
                table: results.table,
                report: results.report,
            },
        )?;
    } else if folder.file(DATABASE).exists() && !sqlite::holds_bodies(folder)? {
        sqlite::remove(folder)?;
    }
    Ok(folder.remove(spool::FILE)?)
}

/// Writes histograms.hlog. A log that the plan does not ask for is removed.
fn write_histograms(results: &Results<'_>) -> Result<(), RunError> {
    if !results.plan.report.store.contains(&Store::Hlog) {
        return Ok(results.folder.remove(hlog::FILE)?);
    }
    let mut log = Vec::new();
    hlog::write(results.table, &results.report.manifest, &mut log).map_err(|error| {
        StoreError::Write {
            path: results.folder.file(hlog::FILE),
            source: std::io::Error::other(error),
        }
    })?;
    Ok(results.folder.write(hlog::FILE, &log)?)
}
