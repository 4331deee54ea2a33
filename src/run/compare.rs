//! Stored runs side by side: each is read, reduced to what a comparison needs, and let go before the next one is read.

use crate::run::error::RunError;
use crate::run::outputs::recover::recover;
use crate::run::outputs::summarize::{Judged, cases_that_ran, conclude, judge_case, mark_judged_elsewhere, restrict_to_stage};
use crate::run::search;
use crate::store::RunDir;
use llmscen_analysis::judge::compare::{Side, side};
use llmscen_analysis::{CaseFacts, Table};
use llmscen_core::compare::{Measure, Run};
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::CaseReport;
use llmscen_core::sample::Sample;

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
/// The folder cannot be read, or its rows cannot be analysed.
pub fn load_run(
    plan: &mut Plan,
    folder: &RunDir,
    (label, side): (String, usize),
    wanted: Wanted<'_>,
) -> Result<(Run, Vec<Side>), RunError> {
    let (table, manifest) = recover(plan, folder)?;
    let (mut cases, mut sides) = (Vec::new(), Vec::new());
    for case in cases_that_ran(plan, &manifest) {
        for (report, evidence) in with_stages(plan, case, (&table, &manifest), wanted)? {
            cases.push(report);
            sides.extend(evidence);
        }
    }
    let searches = search::reports(plan, &table, &manifest)?;
    let report = conclude(plan, manifest, cases, searches);
    Ok((Run { label, side, folder: folder.path().display().to_string(), report }, sides))
}

/// A case, and its evidence: once, or once for each of the rounds that ran on restarted servers.
type Taken = (CaseReport, Vec<Side>);

/// A case as a whole, and each of its stages.
fn with_stages(plan: &Plan, case: &Case, run: (&Table, &Manifest), wanted: Wanted<'_>) -> Result<Vec<Taken>, RunError> {
    let parts: Vec<Part> = run.1.parts.iter().filter(|part| part.case == case.id).cloned().collect();
    let whole = taken(plan, run.0, &CaseFacts { case, parts: &parts, until: None }, &[], wanted)?;
    let stages = case.stages().into_iter().map(|stage| {
        let parts: Vec<Part> = parts.iter().map(|part| restrict_to_stage(part, &stage)).collect();
        let facts = CaseFacts { case: &stage.case, parts: &parts, until: Some(stage.until) };
        taken(plan, &run.0.excerpt(&case.id, &stage), &facts, &whole.0.audit.reasons, wanted)
    });
    let stages = stages.collect::<Result<Vec<_>, RunError>>()?;
    let mut all: Vec<Taken> = std::iter::once(whole).chain(stages).collect();
    mark_judged_elsewhere(all.iter_mut().map(|own| &mut own.0));
    Ok(all)
}

/// A case, or a stage, which is not sound for any reason for which the `whole` is not.
fn taken(plan: &Plan, table: &Table, facts: &CaseFacts<'_>, whole: &[String], wanted: Wanted<'_>) -> Result<Taken, RunError> {
    let case = facts.case;
    let Judged { sample, audit, verdicts, .. } = judge_case(plan, table, facts, whole)?;
    let seed = plan.seed.child("compare").child(case.id.as_str());
    let of = |sample: &Sample| side(&case.id, sample, wanted.measures, wanted.level, seed);
    let restarted = Part::restarted(facts.parts);
    let round = |part: &Part| Ok::<Side, RunError>(of(&llmscen_analysis::round_sample(table, facts, part.round)?));
    let sides = if restarted { facts.parts.iter().map(round).collect::<Result<_, _>>()? } else { vec![of(&sample)] };
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
        token_source: llmscen_analysis::token_source(table, &case.id)?,
        verdicts,
        counts: sample.counts,
        scalars: sample.scalars,
        distributions: sample.distributions,
        audit,
        ..CaseReport::default()
    };
    Ok((report, sides))
}
