//! Stored runs side by side: each is read, reduced to what a comparison needs, and let go before the next one is read.

use crate::frame::{self, CaseFacts, Table};
use crate::judge;
use crate::judge::compare::{Side, side};
use crate::model::check::{Check, Verdict};
use crate::model::compare::{Measure, Run};
use crate::model::ending::Ending;
use crate::model::manifest::{Manifest, Part};
use crate::model::plan::{Case, Plan};
use crate::model::report::{CaseReport, Report, RunVerdict};
use crate::model::sample::Sample;
use crate::run::audit::audit;
use crate::run::error::RunError;
use crate::run::reckon::of_stage;
use crate::run::recover::recover;
use crate::run::search;
use crate::store::RunDir;

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
pub fn take(plan: &mut Plan, folder: &RunDir, label: String, wanted: Wanted<'_>) -> Result<(Run, Vec<Side>), RunError> {
    let (table, manifest) = recover(plan, folder)?;
    let ran = |case: &&Case| plan.quests.is_empty() || manifest.parts.iter().any(|part| part.case == case.id);
    let (mut cases, mut sides) = (Vec::new(), Vec::new());
    for case in plan.cases.iter().filter(ran) {
        for (report, side) in with_stages(plan, case, (&table, &manifest), wanted)? {
            cases.push(report);
            sides.push(side);
        }
    }
    let searches = search::reports(plan, &table, &manifest)?;
    let verdict = match &manifest.error {
        Some(_) => RunVerdict::Error,
        None if searches.is_empty() => judge::overall(&cases),
        None => judge::found(&searches, &cases),
    };
    let exit_code = judge::exit_code(verdict, manifest.interrupted);
    let (description, audit) = (plan.description.clone(), plan.audit);
    let report = Report { description, manifest, verdict, exit_code, cases, searches, audit };
    Ok((Run { label, folder: folder.path().display().to_string(), report }, sides))
}

type Taken = (CaseReport, Side);

/// A case as a whole, and each of its stages.
fn with_stages(plan: &Plan, case: &Case, run: (&Table, &Manifest), wanted: Wanted<'_>) -> Result<Vec<Taken>, RunError> {
    let parts: Vec<Part> = run.1.parts.iter().filter(|part| part.case == case.id).cloned().collect();
    let whole = taken(plan, run.0, &CaseFacts { case, parts: &parts, until: None }, &[], wanted)?;
    let stages = case.stages().into_iter().map(|stage| {
        let parts: Vec<Part> = parts.iter().map(|part| of_stage(part, &stage)).collect();
        let facts = CaseFacts { case: &stage.case, parts: &parts, until: Some(stage.until) };
        taken(plan, &run.0.excerpt(&case.id, &stage)?, &facts, &whole.0.audit.reasons, wanted)
    });
    let stages = stages.collect::<Result<Vec<_>, RunError>>()?;
    Ok(std::iter::once(whole).chain(stages).collect())
}

/// A case, or a stage, which is not sound for any reason for which the `whole` is not.
fn taken(plan: &Plan, table: &Table, facts: &CaseFacts<'_>, whole: &[String], wanted: Wanted<'_>) -> Result<Taken, RunError> {
    let (case, parts) = (facts.case, facts.parts.iter().collect::<Vec<_>>());
    let sample = frame::sample(table, facts)?;
    let rounds = if plan.quests.is_empty() { plan.rounds } else { parts.len() as u32 };
    let mut audit = audit(&parts, rounds, &sample, &plan.audit);
    let inherited: Vec<String> = whole.iter().filter(|reason| !audit.reasons.contains(reason)).cloned().collect();
    audit.reasons.extend(inherited);
    audit.valid = audit.reasons.is_empty();
    let seed = plan.seed.child("compare").child(case.id.as_str());
    let side = side(&case.id, &sample, wanted.measures, wanted.level, seed);
    let (load_value, load_axis) = case.load.shape.size();
    let report = CaseReport {
        id: case.id.clone(),
        labels: case.labels.clone(),
        load: case.load_words(),
        load_value,
        load_axis,
        rounds: parts.len() as u32,
        cdfs: frame::cdfs(&sample),
        token_source: frame::token_source(table, &case.id)?,
        verdicts: verdicts(plan, facts, &sample, audit.valid),
        counts: sample.counts,
        scalars: sample.scalars,
        distributions: sample.distributions,
        audit,
        ..CaseReport::default()
    };
    Ok((report, side))
}

/// What the run itself ruled.
fn verdicts(plan: &Plan, facts: &CaseFacts<'_>, sample: &Sample, valid: bool) -> Vec<Verdict> {
    let seed = |check: &Check| plan.seed.child(facts.case.id.as_str()).child(check.expr.as_str());
    let ruled = facts.case.checks.iter().map(|check| judge::rule(check, sample, valid, seed(check))).collect();
    let lost = |part: &Part| if let Some(Ending::Aborted(lost)) = &part.ending { Some(lost.clone()) } else { None };
    match facts.parts.iter().find_map(lost) {
        Some(lost) => judge::given_up(ruled, &lost),
        None => ruled,
    }
}
