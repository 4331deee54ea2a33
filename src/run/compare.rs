//! Loads stored runs for a comparison. Each is reduced to what the comparison needs before the next one is read.

use crate::run::error::RunError;
use crate::run::outputs::between_cases::with_other_cases;
use crate::run::outputs::recover::recover;
use crate::run::outputs::search_results::search_reports;
use crate::run::outputs::summarize::{
    Judged, build_report, cases_that_ran, judge_case, mark_judged_elsewhere, with_stages,
};
use crate::store::RunDir;
use llmscen_analysis::judge::compare::{Side, summarize_side};
use llmscen_analysis::{CaseFacts, Sample, Table, TableError};
use llmscen_core::compare::{Measure, Run};
use llmscen_core::manifest::Part;
use llmscen_core::plan::Plan;
use llmscen_core::report::{CaseReport, InvalidReason};

/// What to compare, and with what confidence.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonSpec<'a> {
    /// The measures.
    pub measures: &'a [Measure],
    /// One-sided confidence level of each bound.
    pub level: f64,
}

/// Loads a stored run: the report, reduced to what a comparison shows, and the evidence of each case. `side`: number
/// of the compared side.
///
/// # Errors
/// The folder cannot be read.
pub fn load_run(
    plan: &mut Plan,
    folder: &RunDir,
    label: String,
    side: usize,
    spec: ComparisonSpec<'_>,
) -> Result<(Run, Vec<Side>), RunError> {
    let (table, manifest) = recover(plan, folder)?;
    let mut cases = Vec::new();
    let mut sides = Vec::new();
    for case in cases_that_ran(plan, &manifest) {
        let resolved = with_other_cases(plan, case, &table, &manifest)?;
        let mut reports = with_stages(
            resolved.as_ref(),
            &table,
            &manifest,
            |table, facts, case_evidence: Option<&CaseEvidence>| {
                let reasons: &[InvalidReason] =
                    case_evidence.map_or(&[], |(report, _)| &report.audit.reasons);
                collect_evidence(plan, table, facts, reasons, spec)
            },
        )?;
        mark_judged_elsewhere(reports.iter_mut().map(|(report, _)| report));
        for (report, evidence) in reports {
            cases.push(report);
            sides.extend(evidence);
        }
    }
    let searches = search_reports(plan, &table, &manifest)?;
    let report = build_report(plan, manifest, cases, searches);
    Ok((
        Run {
            label,
            side,
            folder: folder.path().display().to_string(),
            report,
        },
        sides,
    ))
}

/// A case and its evidence: one per round if the server was restarted for each, else one.
type CaseEvidence = (CaseReport, Vec<Side>);

/// The evidence of a case, or of a stage; `inherited`: why the case of the stage is invalid.
fn collect_evidence(
    plan: &Plan,
    table: &Table,
    facts: &CaseFacts<'_>,
    inherited: &[InvalidReason],
    spec: ComparisonSpec<'_>,
) -> Result<CaseEvidence, TableError> {
    let case = facts.case;
    let Judged {
        sample,
        audit,
        verdicts,
        ..
    } = judge_case(plan, table, facts, inherited)?;
    let seed = plan.seed.child("compare").child(case.id.as_str());
    let evidence =
        |sample: &Sample| summarize_side(&case.id, sample, spec.measures, spec.level, seed);
    let restarted = Part::restarted(facts.parts);
    let round = |part: &Part| {
        let sample = llmscen_analysis::sample_round(table, facts, part.round)?;
        Ok(evidence(&sample))
    };
    let sides = if restarted {
        let rounds = facts.parts.iter().map(round);
        rounds.collect::<Result<_, TableError>>()?
    } else {
        vec![evidence(&sample)]
    };
    let (load_value, load_axis) = case.load.shape.size();
    let report = CaseReport {
        id: case.id.clone(),
        labels: case.labels.clone(),
        load: case.describe_load(),
        load_value,
        load_axis,
        rounds: facts.parts.len() as u32,
        restarted,
        cdfs: llmscen_analysis::cdfs(&sample),
        token_source: llmscen_analysis::token_source(table, &case.id),
        verdicts,
        counts: sample.counts,
        scalars: sample.scalars,
        distributions: sample.distributions,
        audit,
        ..CaseReport::default()
    };
    Ok((report, sides))
}
