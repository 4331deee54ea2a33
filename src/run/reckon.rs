//! From rows to a report: everything that is said is recomputed from what is kept.

use crate::frame::{self, CaseFacts, Table};
use crate::judge;
use crate::model::check::Verdict;
use crate::model::load::Shape;
use crate::model::plan::{Case, Plan};
use crate::model::report::{CaseReport, Manifest, Part, Report, RunVerdict};
use crate::run::audit::{audit, caution};
use crate::run::error::RunError;
use crate::run::search;

/// The report of a run from its rows and its manifest. The same input gives the same report.
pub fn reckon(plan: &Plan, table: &Table, manifest: &Manifest) -> Result<Report, RunError> {
    let searches = search::reports(plan, table, manifest)?;
    // A search probes some of the loads that it could have probed; the others are no cases of the run.
    let ran = |case: &&Case| plan.quests.is_empty() || manifest.parts.iter().any(|part| part.case == case.id);
    let cases = plan.cases.iter().filter(ran).map(|case| reckon_case(plan, case, table, manifest));
    let cases = cases.collect::<Result<Vec<_>, _>>()?;
    let verdict = match &manifest.error {
        Some(_) => RunVerdict::Error,
        None if searches.is_empty() => judge::overall(&cases),
        None => judge::found(&searches, &cases),
    };
    let exit_code = judge::exit_code(verdict, manifest.interrupted);
    Ok(Report {
        description: plan.description.clone(),
        manifest: manifest.clone(),
        verdict,
        exit_code,
        audit: plan.audit,
        cases,
        searches,
    })
}

fn reckon_case(plan: &Plan, case: &Case, table: &Table, manifest: &Manifest) -> Result<CaseReport, RunError> {
    let parts: Vec<&Part> = manifest.parts.iter().filter(|part| part.case == case.id).collect();
    let facts = CaseFacts { case, parts: &manifest.parts };
    let sample = frame::sample(table, &facts)?;
    let rounds = if plan.quests.is_empty() { plan.rounds } else { parts.len() as u32 };
    let audit = audit(&parts, rounds, &sample, &plan.audit);
    let verdicts: Vec<Verdict> = case
        .checks
        .iter()
        .map(|check| judge::rule(check, &sample, audit.valid, plan.seed.child(case.id.as_str()).child(check.expr.as_str())))
        .collect();
    let (load_value, load_axis) = load_axis(case);
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

/// The load as a number for the horizontal axis, and what that number is.
fn load_axis(case: &Case) -> (Option<f64>, &'static str) {
    match case.load.shape {
        Shape::Closed { users } => (Some(f64::from(users)), "concurrency"),
        Shape::Open { rate, .. } => (Some(rate), "rate"),
        Shape::Replay { speed } => (Some(speed), "speed"),
        Shape::Burst => (None, "rate"),
    }
}
