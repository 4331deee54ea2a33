//! Writes the results in the form of other tools: compat/TOOL/….

use crate::run::error::RunError;
use crate::run::publish::Results;
use llmscen_analysis::CaseFacts;
use llmscen_core::plan::Case;
use llmscen_core::report::CaseReport;
use llmscen_report::compat::{Export, File, Measured, export};

/// The folder of all of them.
const FOLDER: &str = "compat";

/// Writes what `report.compat` asks for. A case that never ran leaves nothing; a stage is part of its case.
pub fn compat(results: &Results<'_>) -> Result<(), RunError> {
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
