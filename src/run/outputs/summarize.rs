//! From rows to a report: everything that is said is recomputed from what is kept.

use crate::run::audit::{Audited, caution, unseen_cache};
use crate::run::outputs::hints::hints;
use crate::run::search;
use llmscen_analysis::{CaseFacts, Sample, Table, judge};
use llmscen_core::chart_data::Pictures;
use llmscen_core::check::Verdict;
use llmscen_core::early_stop::{Aborted, Ending, Saturated};
use llmscen_core::local::LocalPart;
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::{Case, Excerpt, Plan};
use llmscen_core::report::{Audit, CaseReport, DatasetEnd, Discarded, OFF_PLAN, Report, RunVerdict, Timelines};
use llmscen_core::search::SearchReport;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Cases that are summarized at the same time at the most: each holds the gaps between all of its tokens, several times over.
const AT_ONCE: usize = 4;

/// The report of a run from its rows and its manifest. The same input gives the same report.
pub fn summarize(plan: &Plan, table: &Table, manifest: &Manifest) -> Report {
    let searches = search::reports(plan, table, manifest);
    let cases = side_by_side(&cases_that_ran(plan, manifest), |case| summarize_with_stages(plan, case, table, manifest));
    conclude(plan, manifest.clone(), cases.into_iter().flatten().collect(), searches)
}

/// The cases of a run: a search probes some of the loads that it could have probed, and the others are none.
pub(crate) fn cases_that_ran<'a>(plan: &'a Plan, manifest: &Manifest) -> Vec<&'a Case> {
    let ran = |case: &&Case| plan.quests.is_empty() || manifest.parts.iter().any(|part| part.case == case.id);
    plan.cases.iter().filter(ran).collect()
}

/// The report of these cases and searches, with the verdict on all of them.
pub(crate) fn conclude(plan: &Plan, manifest: Manifest, mut cases: Vec<CaseReport>, searches: Vec<SearchReport>) -> Report {
    let verdict = match &manifest.error {
        Some(_) => RunVerdict::Error,
        None if searches.is_empty() => judge::run_verdict(&cases),
        None => judge::search_verdict(&searches, &cases),
    };
    if verdict == RunVerdict::Error && !manifest.interrupted {
        cases.iter_mut().for_each(without_success);
    }
    let exit_code = judge::exit_code(verdict, manifest.interrupted);
    let hints = hints(plan, &manifest, &cases, verdict);
    Report { description: plan.description.clone(), manifest, verdict, exit_code, audit: plan.audit, cases, searches, hints }
}

/// What `work` makes of each item, in their order, on several threads. No item knows of another one, so how many there are changes
/// nothing but the time.
fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(AT_ONCE).min(items.len());
    let next = AtomicUsize::new(0);
    let taken = || std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|place| *place < items.len()));
    let some = || taken().filter_map(|place| Some((place, work(items.get(place)?)))).collect::<Vec<_>>();
    let mut done = std::thread::scope(|scope| {
        // Where the system gives no thread, those that there are do its work.
        let spawned = (1..threads).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, some).ok());
        let running: Vec<_> = spawned.collect();
        let mut done = some();
        for thread in running {
            done.extend(thread.join().unwrap_or_else(|broken| std::panic::resume_unwind(broken)));
        }
        done
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

/// What `work` makes of a case, and then of each of its stages; for a stage it gets the result of the case.
pub(crate) fn with_stages<T>(
    case: &Case,
    table: &Table,
    manifest: &Manifest,
    work: impl Fn(&Table, &CaseFacts<'_>, Option<&T>) -> T,
) -> Vec<T> {
    let parts: Vec<Part> = manifest.parts.iter().filter(|part| part.case == case.id).cloned().collect();
    let whole = work(table, &CaseFacts { case, parts: &parts, until: None }, None);
    let stages: Vec<T> = case
        .stages()
        .into_iter()
        .map(|stage| {
            let parts: Vec<Part> = parts.iter().map(|part| restrict_to_stage(part, &stage)).collect();
            let facts = CaseFacts { case: &stage.case, parts: &parts, until: Some(stage.until) };
            work(&table.stage_rows(&case.id, &stage), &facts, Some(&whole))
        })
        .collect();
    std::iter::once(whole).chain(stages).collect()
}

fn summarize_with_stages(plan: &Plan, case: &Case, table: &Table, manifest: &Manifest) -> Vec<CaseReport> {
    let mut reports = with_stages(case, table, manifest, |table, facts, whole: Option<&CaseReport>| {
        summarize_case(plan, table, facts, whole.map_or(&[], |whole| &whole.audit.reasons))
    });
    mark_judged_elsewhere(reports.iter_mut());
    match failure(plan, case, manifest) {
        Some(failure) => failure.applied(case, reports),
        None => reports,
    }
}

/// Marks those of a case and its stages that have no objectives where another one has some.
pub(crate) fn mark_judged_elsewhere<'a>(reports: impl Iterator<Item = &'a mut CaseReport>) {
    let mut all: Vec<&mut CaseReport> = reports.collect();
    if all.iter().any(|own| !own.verdicts.is_empty()) {
        all.iter_mut().for_each(|own| own.judged_elsewhere = own.verdicts.is_empty());
    }
}

/// A part of a case as one of its stage.
fn restrict_to_stage(part: &Part, stage: &Excerpt) -> Part {
    Part {
        case: stage.case.id.clone(),
        measured_from_ns: part.measured_from_ns.max(stage.from.0),
        ending: part.ending.as_ref().and_then(|ending| ending.within(stage.until)),
        ..part.clone()
    }
}

/// A case, or a stage, as it was measured and what was ruled of it.
pub(crate) struct Judged {
    pub sample: Sample,
    pub audit: Audit,
    pub verdicts: Vec<Verdict>,
    pub aborted: Option<Aborted>,
    pub saturated: Option<Saturated>,
}

/// Judges a case, or a stage, which did not happen as planned where the `whole` did not.
pub(crate) fn judge_case(plan: &Plan, table: &Table, facts: &CaseFacts<'_>, whole: &[String]) -> Judged {
    let (case, parts) = (facts.case, facts.parts.iter().collect::<Vec<_>>());
    let sample = llmscen_analysis::sample_case(table, facts);
    let rounds = if plan.quests.is_empty() { plan.rounds } else { parts.len() as u32 };
    let audited = Audited { case, parts: &parts, rounds, sample: &sample, limits: &plan.audit, seed: plan.seed };
    let (mut audit, mut findings) = audited.examine();
    let off_plan = whole.iter().filter(|reason| reason.starts_with(OFF_PLAN) && !audit.reasons.contains(reason));
    let inherited: Vec<String> = off_plan.cloned().collect();
    findings.all.extend(inherited.iter().cloned());
    audit.reasons.extend(inherited);
    audit.valid = audit.reasons.is_empty();
    let each = |part: &Part| llmscen_analysis::sample_round(table, facts, part.round);
    let restarted = Part::restarted(facts.parts);
    let rounds = if restarted { facts.parts.iter().map(each).collect() } else { Vec::new() };
    let verdicts: Vec<Verdict>;
    (verdicts, audit.objectives) = audited.verdicts((table, facts), &findings);
    let verdicts = verdicts.into_iter().map(|verdict| judge::confirm_by_rounds(verdict, &rounds)).collect();
    let (aborted, saturated) = endings(&parts);
    let verdicts = match &aborted {
        Some(lost) => judge::aborted_verdicts(verdicts, lost),
        None => verdicts,
    };
    Judged { sample, audit, verdicts, aborted, saturated }
}

/// The report of a case, or of a stage; `whole`: why the case that it is a stage of is not sound.
fn summarize_case(plan: &Plan, table: &Table, facts: &CaseFacts<'_>, whole: &[String]) -> CaseReport {
    let (case, parts) = (facts.case, facts.parts.iter().collect::<Vec<_>>());
    let Judged { sample, audit, verdicts, aborted, saturated } = judge_case(plan, table, facts, whole);
    let (load_value, load_axis) = case.load.shape.size();
    let repeats = llmscen_analysis::round_variances(&sample, &case.load.shape);
    let groups = llmscen_analysis::group_reports(case, &sample);
    let local: Vec<LocalPart> = parts.iter().filter_map(|part| part.local.clone()).collect();
    // The stamps of a model in this process are its own thread's: no stall of a worker thread is in them.
    let caution = caution(&audit, &sample).filter(|_| local.is_empty());
    let unseen = unseen_cache(&audit, case).filter(|_| facts.until.is_none());
    let discarded = llmscen_analysis::discarded_start(table, &case.id);
    let dataset_end = dataset_end(facts, &sample, discarded);
    let ended = dataset_end.map(|end| format!("{}.", end.to_string().replacen('t', "T", 1)));
    let start = discarded.map(|own| {
        let (requests, seconds) = (own.requests, own.seconds);
        format!(
            "The first {requests} requests ({seconds:.1} s) are not measured: the server started empty (MSER-5). Set `load.warmup` to \
             choose the start."
        )
    });
    let told =
        ended.into_iter().chain(start).chain(notes(table, facts, &parts)).chain(llmscen_report::repeats::remarks(&repeats));
    CaseReport {
        judged_elsewhere: false,
        id: case.id.clone(),
        labels: case.labels.clone(),
        load: case.load_words(),
        load_value,
        load_axis,
        rounds: parts.len() as u32,
        restarted: Part::restarted(facts.parts),
        cdfs: llmscen_analysis::cdfs(&sample),
        speed: llmscen_analysis::speed_table(case, &groups, &local),
        groups,
        token_source: llmscen_analysis::token_source(table, &case.id),
        prompt_lengths: llmscen_analysis::prompt_lengths(table, &case.id),
        failures: llmscen_analysis::failure_examples(table, facts),
        // What a stage looks like over time is seen in the whole.
        timelines: if facts.until.is_some() { Timelines::default() } else { llmscen_analysis::timelines(table, facts) },
        pictures: if facts.until.is_some() { Pictures::default() } else { llmscen_analysis::chart_data(table, facts) },
        notes: told.chain(caution).chain(unseen).collect(),
        repeats,
        counts: sample.counts,
        scalars: sample.scalars,
        distributions: sample.distributions,
        telemetry: llmscen_analysis::telemetry::summarize(table, facts),
        startups: parts.iter().filter_map(|part| part.startup.clone()).collect(),
        server_ends: parts.iter().filter_map(|part| Some((part.round, part.server_end.clone()?))).collect(),
        local,
        dataset_end,
        discarded,
        audit,
        aborted,
        saturated,
        verdicts,
    }
}

/// Where the data ended a case before the requests that its load asks for. A stage's case has that.
fn dataset_end(facts: &CaseFacts<'_>, sample: &Sample, discarded: Option<Discarded>) -> Option<DatasetEnd> {
    let measured = sample.requests.iter().filter(|request| request.turn() == 0).count() as u64;
    let after = measured + discarded.map_or(0, |own| own.requests);
    let planned = facts.case.load.requests.map(|requests| requests * facts.parts.len() as u64);
    let ended = facts.until.is_none() && facts.parts.iter().any(|part| part.dataset_ended);
    (ended && planned.is_none_or(|planned| after < planned)).then_some(DatasetEnd { after, planned })
}

/// The limit by whose loss a case was given up, and where its arrivals outran the server: the first of each.
fn endings(parts: &[&Part]) -> (Option<Aborted>, Option<Saturated>) {
    let all = || parts.iter().filter_map(|part| part.ending.as_ref());
    let aborted = all().find_map(|ending| if let Ending::Aborted(lost) = ending { Some(lost.clone()) } else { None });
    let saturated = all().find_map(|ending| if let Ending::Saturated(seen) = ending { Some(seen.clone()) } else { None });
    (aborted, saturated)
}

/// Why rounds ended as they did, and what is to be known of the counts.
fn notes(table: &Table, facts: &CaseFacts<'_>, parts: &[&Part]) -> Vec<String> {
    let said = |part: &&Part| match part.ending.as_ref()? {
        Ending::Aborted(lost) => {
            Some(format!("`{}`: {lost}. Requests that were cut off then are no part of any figure.", lost.expr))
        }
        Ending::Saturated(seen) => Some(format!("{seen}. Arrivals that were not sent then are no part of any figure.")),
        Ending::TargetLost(lost) => Some(format!("{lost}. Requests that were cancelled then are not part of any metric.")),
        Ending::AllFailed(failed) => Some(format!("{failed}. Requests that were cancelled then are not part of any metric.")),
    };
    parts.iter().filter_map(said).chain(llmscen_analysis::token_notes(table, facts)).collect()
}

/// Why a case was not measured to its end.
pub struct Failure<'a> {
    why: &'a str,
    /// When the case ended by its own decision, in seconds after the start of its only round: stages that were over by then
    /// are whole.
    ended_s: Option<f64>,
}

/// Why this case was not measured to its end, where something other than a signal is the reason.
pub fn failure<'a>(plan: &Plan, case: &Case, manifest: &'a Manifest) -> Option<Failure<'a>> {
    let own: Vec<&Part> = manifest.parts.iter().filter(|part| part.case == case.id).collect();
    let decided = |part: &&Part| part.ending.as_ref().is_some_and(Ending::ends_case);
    let cut = own.iter().any(|part| part.cut_short.is_some());
    let short = plan.quests.is_empty() && own.len() < plan.rounds as usize && !own.iter().any(decided);
    let named = manifest.failed.iter().find(|failed| failed.case == case.id).map(|failed| failed.why.as_str());
    let why = named.or(manifest.error.as_deref().filter(|_| (cut || short) && !manifest.interrupted))?;
    let ended_s = match own.as_slice() {
        [Part { ending: Some(Ending::TargetLost(lost)), .. }] => Some(lost.at_s),
        [Part { ending: Some(Ending::AllFailed(failed)), .. }] => Some(failed.at_s),
        _ => None,
    };
    Some(Failure { why, ended_s: ended_s.filter(|_| plan.rounds == 1) })
}

impl Failure<'_> {
    /// The reports of the case and of its stages, without verdicts on what was not measured whole.
    pub fn applied(&self, case: &Case, mut reports: Vec<CaseReport>) -> Vec<CaseReport> {
        let until = case.stages().into_iter().map(|stage| stage.until.secs());
        let whole = until.map(|until| self.ended_s.is_some_and(|ended| until <= ended));
        for (report, whole) in reports.iter_mut().zip(std::iter::once(false).chain(whole)) {
            if !whole {
                reject(report, self.why);
            }
        }
        reports
    }
}

/// The report of a case without a single success, in a run that failed by it; a reason that was found before stays.
pub fn without_success(report: &mut CaseReport) {
    let explained = |verdict: &Verdict| verdict.note.as_deref().is_some_and(|note| note.starts_with("not measured: "));
    let dead = report.counts.scheduled > 0 && report.counts.ok + report.counts.abandoned == 0;
    if dead && !report.verdicts.iter().any(explained) {
        reject(report, "no request succeeded");
    }
}

fn reject(report: &mut CaseReport, why: &str) {
    let some = report.counts.ok + report.counts.abandoned > 0;
    report.verdicts = judge::unmeasured_verdicts(std::mem::take(&mut report.verdicts), some, why);
    // The headline names the reason, and it is not a fault of the load generator.
    report.audit.reasons.retain(|reason| !reason.starts_with(OFF_PLAN));
    report.audit.valid = report.audit.reasons.is_empty();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::audit::tests::check;
    use llmscen_core::check::{Op, Ruling};
    use llmscen_core::metric::Metric;

    #[test]
    fn a_case_whose_stages_are_judged_is_not_invalid_itself() {
        let case = |verdicts| CaseReport { verdicts, audit: Audit { valid: false, ..Audit::default() }, ..CaseReport::default() };
        let verdict = Verdict {
            check: check(Metric::Ttft, None, Op::Less, 1.0),
            ruling: Ruling::Pass,
            observed: Some(1.0),
            bound: None,
            n: 1,
            effective_n: None,
            need: None,
            note: None,
        };
        let mut judged = [case(Vec::new()), case(vec![verdict])];
        mark_judged_elsewhere(judged.iter_mut());
        assert_eq!(judged.map(|own| (own.judged_elsewhere, own.is_invalid())), [(true, false), (false, false)]);
        let mut unjudged = [case(Vec::new()), case(Vec::new())];
        mark_judged_elsewhere(unjudged.iter_mut());
        assert_eq!(unjudged.map(|own| own.is_invalid()), [true; 2]);
    }
}
