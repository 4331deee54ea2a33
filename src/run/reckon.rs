//! From rows to a report: everything that is said is recomputed from what is kept.

use crate::frame::{self, CaseFacts, Table};
use crate::judge;
use crate::model::check::Verdict;
use crate::model::plan::{Case, Plan};
use crate::model::report::{CaseReport, Manifest, Part, Report, RunVerdict};
use crate::run::audit::{audit, caution};
use crate::run::error::RunError;

/// The report of a run from its rows and its manifest. The same input gives the same report.
pub fn reckon(plan: &Plan, table: &Table, manifest: &Manifest) -> Result<Report, RunError> {
    let cases = plan.cases.iter().map(|case| reckon_case(plan, case, table, manifest)).collect::<Result<Vec<_>, _>>()?;
    let verdict = if manifest.error.is_some() { RunVerdict::Error } else { judge::overall(&cases) };
    let exit_code = judge::exit_code(verdict, manifest.interrupted);
    Ok(Report { description: plan.description.clone(), manifest: manifest.clone(), verdict, exit_code, audit: plan.audit, cases })
}

fn reckon_case(plan: &Plan, case: &Case, table: &Table, manifest: &Manifest) -> Result<CaseReport, RunError> {
    let parts: Vec<&Part> = manifest.parts.iter().filter(|part| part.case == case.id).collect();
    let facts = CaseFacts { case, parts: &manifest.parts };
    let sample = frame::sample(table, &facts)?;
    let audit = audit(&parts, plan.rounds, &sample, &plan.audit);
    let verdicts: Vec<Verdict> = case
        .checks
        .iter()
        .map(|check| judge::rule(check, &sample, audit.valid, plan.seed.child(case.id.as_str()).child(check.expr.as_str())))
        .collect();
    let (load_value, load_axis) = case.load.shape.size();
    Ok(CaseReport {
        id: case.id.clone(),
        labels: case.labels.clone(),
        load: case.load.shape.to_string(),
        load_value,
        load_axis,
        rounds: parts.len() as u32,
        cdfs: frame::cdfs(&sample),
        groups: frame::groups(&sample),
        token_source: frame::token_source(table, &case.id)?,
        failures: frame::failures(table, &case.id)?,
        timelines: frame::timelines(table, &facts)?,
        notes: frame::notes(table, &facts)?.into_iter().chain(caution(&audit, &sample)).collect(),
        counts: sample.counts,
        scalars: sample.scalars,
        distributions: sample.distributions,
        audit,
        verdicts,
    })
}
