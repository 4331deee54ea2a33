//! Stored runs side by side: each is read, reduced to what a comparison needs, and let go before the next one is read.

use crate::run::error::RunError;
use crate::run::outputs::recover::recover;
use crate::run::outputs::summarize::{Judged, cases_that_ran, conclude, judge_case, mark_judged_elsewhere, with_stages};
use crate::run::search;
use crate::store::RunDir;
use llmscen_analysis::judge::compare::{Side, summarize_side};
use llmscen_analysis::{CaseFacts, Sample, Table};
use llmscen_core::compare::{Measure, Run};
use llmscen_core::manifest::Part;
use llmscen_core::plan::Plan;
use llmscen_core::report::CaseReport;

/// What is compared, and how surely.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The measures.
    pub measures: &'a [Measure],
    /// Confidence of each bound, one-sided.
    pub level: f64,
}

/// A stored run: its cases as far as a comparison draws and tells of them, and the evidence of each.
///
/// # Errors
/// The folder cannot be read.
pub fn load_run(
    plan: &mut Plan,
    folder: &RunDir,
    (label, side): (String, usize),
    wanted: Wanted<'_>,
) -> Result<(Run, Vec<Side>), RunError> {
    let (table, manifest) = recover(plan, folder)?;
    let (mut cases, mut sides) = (Vec::new(), Vec::new());
    for case in cases_that_ran(plan, &manifest) {
        let mut reports = with_stages(case, &table, &manifest, |table, facts, whole: Option<&CaseEvidence>| {
            let reasons: &[String] = whole.map_or(&[], |(whole, _)| &whole.audit.reasons);
            collect_evidence(plan, table, facts, reasons, wanted)
        });
        mark_judged_elsewhere(reports.iter_mut().map(|(report, _)| report));
        for (report, evidence) in reports {
            cases.push(report);
            sides.extend(evidence);
        }
    }
    let searches = search::reports(plan, &table, &manifest);
    let report = conclude(plan, manifest, cases, searches);
    Ok((Run { label, side, folder: folder.path().display().to_string(), report }, sides))
}

/// A case, and its evidence: once, or once for each of the rounds that ran on restarted servers.
type CaseEvidence = (CaseReport, Vec<Side>);

/// A case, or a stage, which is not sound for any reason for which the `whole` is not.
fn collect_evidence(plan: &Plan, table: &Table, facts: &CaseFacts<'_>, whole: &[String], wanted: Wanted<'_>) -> CaseEvidence {
    let case = facts.case;
    let Judged { sample, audit, verdicts, .. } = judge_case(plan, table, facts, whole);
    let seed = plan.seed.child("compare").child(case.id.as_str());
    let of = |sample: &Sample| summarize_side(&case.id, sample, wanted.measures, wanted.level, seed);
    let restarted = Part::restarted(facts.parts);
    let round = |part: &Part| of(&llmscen_analysis::sample_round(table, facts, part.round));
    let sides = if restarted { facts.parts.iter().map(round).collect() } else { vec![of(&sample)] };
    let (load_value, load_axis) = case.load.shape.size();
    let report = CaseReport {
        id: case.id.clone(),
        labels: case.labels.clone(),
        load: case.load_words(),
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
    (report, sides)
}
