//! Computes the report of a run from its rows and its manifest.

use crate::run::audit::{
    Audited, ShardAudit, audit_shards, note_stall, note_unknown_cache, ttft_notes,
};
use crate::run::outputs::between_cases::{reject_by_other_cases, with_other_cases};
use crate::run::outputs::hints::hints;
use crate::run::outputs::search_results::search_reports;
use llmscen_analysis::{CaseFacts, Sample, Table, TableError, judge};
use llmscen_core::check::Verdict;
use llmscen_core::early_stop::{Aborted, EarlyStop, Saturated};
use llmscen_core::local::LocalRound;
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::{Case, Plan, StageSlice};
use llmscen_core::report::{
    Audit, CaseReport, Cause, ChartData, DatasetEnd, Discarded, InvalidReason, Report, RunVerdict,
    Timelines,
};
use llmscen_core::search::SearchReport;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of cases that are summarized at the same time: each needs several times the memory of its token gaps.
const MAX_PARALLEL_CASES: usize = 4;

/// The report of a run from its rows and its manifest. The same input gives the same report.
///
/// # Errors
/// A frame could not be built.
pub fn summarize(plan: &Plan, table: &Table, manifest: &Manifest) -> Result<Report, TableError> {
    let searches = search_reports(plan, table, manifest)?;
    let cases = map_in_parallel(&cases_that_ran(plan, manifest), |case| {
        summarize_with_stages(plan, case, table, manifest)
    });
    let cases = cases.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(build_report(
        plan,
        manifest.clone(),
        cases.into_iter().flatten().collect(),
        searches,
    ))
}

/// The cases of a run. In a capacity search, these are the probed loads.
pub(crate) fn cases_that_ran<'a>(plan: &'a Plan, manifest: &Manifest) -> Vec<&'a Case> {
    let ran = |case: &&Case| {
        plan.searches.is_empty() || manifest.parts.iter().any(|part| part.case == case.id)
    };
    plan.cases.iter().filter(ran).collect()
}

/// The report of a run from those of its cases and searches.
pub(crate) fn build_report(
    plan: &Plan,
    manifest: Manifest,
    mut cases: Vec<CaseReport>,
    searches: Vec<SearchReport>,
) -> Report {
    reject_by_other_cases(&mut cases);
    let verdict = match &manifest.error {
        Some(_) => RunVerdict::Error,
        None if searches.is_empty() => judge::run_verdict(&cases),
        None => judge::search_verdict(&searches, &cases),
    };
    let has_failed = manifest.then.iter().any(|result| result.failure.is_some());
    let verdict = match verdict {
        RunVerdict::Error => verdict,
        _ if has_failed => RunVerdict::Fail,
        verdict => verdict,
    };
    if verdict == RunVerdict::Error && !manifest.interrupted {
        cases.iter_mut().for_each(reject_without_success);
    }
    note_ttft_of_shards(&mut cases);
    let exit_code = judge::exit_code(verdict, manifest.interrupted);
    let hints = hints(plan, &manifest, &cases, verdict);
    Report {
        description: plan.description.clone(),
        manifest,
        verdict,
        exit_code,
        audit: plan.audit,
        cases,
        searches,
        hints,
    }
}

/// Notes the shards whose TTFT differs; the test is adjusted for the number of cases.
fn note_ttft_of_shards(cases: &mut [CaseReport]) {
    let tested: Vec<_> = cases
        .iter()
        .map(|case| (&case.shards[..], case.shards_p_value))
        .collect();
    let notes = ttft_notes(&tested);
    for (case, notes) in cases.iter_mut().zip(notes) {
        case.notes.extend(notes);
    }
}

/// Maps the items on several threads. The order of the results is that of the items.
fn map_in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_PARALLEL_CASES)
        .min(items.len());
    let next = AtomicUsize::new(0);
    let work_on_items = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return results;
            };
            results.push((index, work(item)));
        }
    };
    let mut results = std::thread::scope(|scope| {
        // If the system provides no more threads, the existing ones do the work.
        let spawned = (1..threads).map_while(|_| {
            std::thread::Builder::new()
                .spawn_scoped(scope, work_on_items)
                .ok()
        });
        let running: Vec<_> = spawned.collect();
        let mut results = work_on_items();
        for thread in running {
            results.extend(
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        results
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Calls `work` for a case and then for each of its stages; for a stage, with the result of the case.
///
/// # Errors
/// A frame could not be built.
pub(crate) fn with_stages<T>(
    case: &Case,
    table: &Table,
    manifest: &Manifest,
    work: impl Fn(&Table, &CaseFacts<'_>, Option<&T>) -> Result<T, TableError>,
) -> Result<Vec<T>, TableError> {
    let parts: Vec<Part> = manifest
        .parts
        .iter()
        .filter(|part| part.case == case.id)
        .cloned()
        .collect();
    let case_result = work(
        table,
        &CaseFacts {
            case,
            parts: &parts,
            until: None,
        },
        None,
    )?;
    let stages: Vec<T> = case
        .stages()
        .into_iter()
        .map(|stage| {
            let parts: Vec<Part> = parts
                .iter()
                .map(|part| restrict_to_stage(part, &stage))
                .collect();
            let facts = CaseFacts {
                case: &stage.case,
                parts: &parts,
                until: Some(stage.until),
            };
            let rows = table.stage_rows(&case.id, &stage)?;
            work(&rows, &facts, Some(&case_result))
        })
        .collect::<Result<_, TableError>>()?;
    Ok(std::iter::once(case_result).chain(stages).collect())
}

fn summarize_with_stages(
    plan: &Plan,
    case: &Case,
    table: &Table,
    manifest: &Manifest,
) -> Result<Vec<CaseReport>, TableError> {
    let resolved = with_other_cases(plan, case, table, manifest)?;
    let case = resolved.as_ref();
    let mut reports = with_stages(
        case,
        table,
        manifest,
        |table, facts, case_report: Option<&CaseReport>| {
            summarize_case(
                plan,
                table,
                facts,
                case_report.map_or(&[], |report| &report.audit.reasons),
            )
        },
    )?;
    mark_judged_elsewhere(reports.iter_mut());
    if let Some(failure) = CaseFailure::find(plan, case, manifest) {
        failure.reject_unfinished(case, &mut reports);
    }
    Ok(reports)
}

/// Marks the reports without objectives among those of a case and its stages, if another one has objectives.
pub(crate) fn mark_judged_elsewhere<'a>(reports: impl Iterator<Item = &'a mut CaseReport>) {
    let mut reports: Vec<&mut CaseReport> = reports.collect();
    if reports.iter().any(|report| !report.verdicts.is_empty()) {
        reports
            .iter_mut()
            .for_each(|report| report.judged_elsewhere = report.verdicts.is_empty());
    }
}

/// A part of a case, restricted to one of its stages.
fn restrict_to_stage(part: &Part, stage: &StageSlice) -> Part {
    Part {
        case: stage.case.id.clone(),
        measured_from_ns: part.measured_from_ns.max(stage.from.0),
        ending: part
            .ending
            .as_ref()
            .and_then(|ending| ending.within(stage.until)),
        ..part.clone()
    }
}

/// A case or a stage with its sample, audit and verdicts.
pub(crate) struct Judged {
    pub sample: Sample,
    pub audit: Audit,
    pub verdicts: Vec<Verdict>,
    pub aborted: Option<Aborted>,
    pub saturated: Option<Saturated>,
    pub shards: ShardAudit,
}

/// Judges a case or a stage. `inherited`: for a stage, why its case is invalid; deviations from the plan apply to the
/// stage too.
pub(crate) fn judge_case(
    plan: &Plan,
    table: &Table,
    facts: &CaseFacts<'_>,
    inherited: &[InvalidReason],
) -> Result<Judged, TableError> {
    let parts: Vec<&Part> = facts.parts.iter().collect();
    let sample = llmscen_analysis::sample_case(table, facts)?;
    let rounds = if plan.searches.is_empty() {
        plan.rounds
    } else {
        parts.len() as u32
    };
    let (audit, verdicts, shards) = judge_sample(plan, table, facts, (&sample, rounds), inherited)?;
    let restarted = Part::restarted(facts.parts);
    let round_sample = |part: &Part| llmscen_analysis::sample_round(table, facts, part.round);
    let round_samples = if restarted {
        facts
            .parts
            .iter()
            .map(round_sample)
            .collect::<Result<_, _>>()?
    } else {
        Vec::new()
    };
    let mut verdicts: Vec<Verdict> = verdicts
        .into_iter()
        .map(|verdict| judge::confirm_by_rounds(verdict, &round_samples))
        .collect();
    let aborted = first_ending(&parts, |ending| {
        if let EarlyStop::Aborted(aborted) = ending {
            Some(aborted)
        } else {
            None
        }
    });
    let saturated = first_ending(&parts, |ending| {
        if let EarlyStop::Saturated(saturated) = ending {
            Some(saturated)
        } else {
            None
        }
    });
    if let Some(aborted) = &aborted {
        verdicts = judge::aborted_verdicts(verdicts, aborted);
    }
    Ok(Judged {
        sample,
        audit,
        verdicts,
        aborted,
        saturated,
        shards,
    })
}

/// Audits and judges the requests of a case, a stage, or a probe of a search. `rounds`: how many of its rounds were
/// planned.
pub(crate) fn judge_sample(
    plan: &Plan,
    table: &Table,
    facts: &CaseFacts<'_>,
    (sample, rounds): (&Sample, u32),
    inherited: &[InvalidReason],
) -> Result<(Audit, Vec<Verdict>, ShardAudit), TableError> {
    let shards = shards_of_case(plan, table, facts, sample);
    let parts: Vec<&Part> = facts.parts.iter().collect();
    let audited = Audited {
        case: facts.case,
        parts: &parts,
        rounds,
        sample,
        limits: &plan.audit,
        seed: plan.seed,
        shards: &shards,
    };
    let (mut audit, mut findings) = audited.examine();
    let is_new =
        |reason: &&InvalidReason| reason.cause == Cause::OffPlan && !audit.reasons.contains(reason);
    let off_plan: Vec<InvalidReason> = inherited.iter().filter(is_new).cloned().collect();
    findings.invalidating.extend(off_plan.iter().cloned());
    audit.reasons.extend(off_plan);
    audit.valid = audit.reasons.is_empty();
    let (verdicts, objectives) = audited.verdicts(table, facts, &findings)?;
    audit.objectives = objectives;
    Ok((audit, verdicts, shards))
}

/// The audit of the shards of a case, or of those rounds that `facts` has; empty for a run of one process.
fn shards_of_case(
    plan: &Plan,
    table: &Table,
    facts: &CaseFacts<'_>,
    sample: &Sample,
) -> ShardAudit {
    if facts.parts.iter().all(|part| part.shards.is_empty()) {
        return ShardAudit::default();
    }
    let samples = llmscen_analysis::shard_samples(table, facts);
    audit_shards(facts.case, facts.parts, &samples, sample, &plan.audit)
}

/// The report of a case or of a stage. `inherited`: for a stage, why its case is invalid.
fn summarize_case(
    plan: &Plan,
    table: &Table,
    facts: &CaseFacts<'_>,
    inherited: &[InvalidReason],
) -> Result<CaseReport, TableError> {
    let case = facts.case;
    let parts: Vec<&Part> = facts.parts.iter().collect();
    let is_stage = facts.until.is_some();
    let Judged {
        sample,
        audit,
        verdicts,
        aborted,
        saturated,
        shards,
    } = judge_case(plan, table, facts, inherited)?;
    let (load_value, load_axis) = case.load.shape.size();
    let repeats = llmscen_analysis::round_variances(&sample, &case.load.shape);
    let groups = llmscen_analysis::group_reports(case, &sample);
    let local: Vec<LocalRound> = parts.iter().filter_map(|part| part.local.clone()).collect();
    let discarded = llmscen_analysis::discarded_start(table, &case.id);
    let dataset_end = dataset_end(facts, &sample, discarded);
    let mut notes: Vec<String> = dataset_end
        .map(|end| format!("{}.", capitalize(&end.to_string())))
        .into_iter()
        .collect();
    notes.extend(discarded.as_ref().map(note_discarded));
    notes.extend(
        parts
            .iter()
            .filter_map(|part| note_ending(part.ending.as_ref()?)),
    );
    notes.extend(llmscen_analysis::window_notes(&sample));
    notes.extend(llmscen_analysis::token_notes(table, facts));
    notes.extend(llmscen_report::repeats::remarks(&repeats));
    // A local model takes its own timestamps, which stalls of worker threads do not affect.
    notes.extend(note_stall(&audit, &sample).filter(|_| local.is_empty()));
    notes.extend(note_unknown_cache(&audit, case).filter(|_| !is_stage));
    notes.extend(shards.notes.into_iter().filter(|_| !is_stage));
    Ok(CaseReport {
        judged_elsewhere: false,
        id: case.id.clone(),
        labels: case.labels.clone(),
        load: case.describe_load(),
        load_value,
        load_axis,
        rounds: parts.len() as u32,
        restarted: Part::restarted(facts.parts),
        cdfs: llmscen_analysis::cdfs(&sample),
        speed: llmscen_analysis::speed_table(case, &groups, &local),
        groups,
        endpoints: llmscen_analysis::endpoint_reports(case, &sample),
        headers: llmscen_analysis::header_reports(case, &sample),
        token_source: llmscen_analysis::token_source(table, &case.id),
        account: llmscen_analysis::reply_account(table, &case.id),
        prompt_lengths: llmscen_analysis::prompt_lengths(table, &case.id),
        output_lengths: llmscen_analysis::output_lengths(table, facts),
        finish_reasons: llmscen_analysis::finish_reasons(table, &case.id),
        failures: llmscen_analysis::failure_examples(table, facts),
        answers: llmscen_analysis::answers_report(table, facts, &sample),
        // The report of the case shows stages over time.
        timelines: if is_stage {
            Timelines::default()
        } else {
            llmscen_analysis::timelines(table, facts)
        },
        chart_data: if is_stage {
            ChartData::default()
        } else {
            llmscen_analysis::chart_data(table, facts)
        },
        notes,
        repeats,
        throughput_is_whole: sample.requests_window.whole.is_some(),
        counts: sample.counts,
        scalars: sample.scalars,
        distributions: sample.distributions,
        telemetry: llmscen_analysis::telemetry::summarize(table, facts),
        startups: parts
            .iter()
            .filter_map(|part| part.startup.clone())
            .collect(),
        server_ends: parts
            .iter()
            .filter_map(|part| Some((part.round, part.server_end.clone()?)))
            .collect(),
        local,
        dataset_end,
        discarded,
        audit,
        // The report of the case has the shards of all its stages.
        shards: if is_stage { Vec::new() } else { shards.records },
        shards_p_value: shards.p_value.filter(|_| !is_stage),
        aborted,
        saturated,
        verdicts,
    })
}

/// The end of the dataset, if it came before the end of the load. Reported for the case, not for its stages.
fn dataset_end(
    facts: &CaseFacts<'_>,
    sample: &Sample,
    discarded: Option<Discarded>,
) -> Option<DatasetEnd> {
    let measured = sample
        .requests
        .iter()
        .filter(|request| request.begins_session())
        .count() as u64;
    let after = measured + discarded.map_or(0, |discarded| discarded.requests);
    let rounds = facts.parts.len() as u64;
    let planned = facts.case.load.requests.map(|requests| requests * rounds);
    let turns_sent =
        facts.case.load.turn_limit.is_some_and(|limit| {
            sample.requests.iter().count() as u64 >= limit.saturating_mul(rounds)
        });
    let has_ended = facts.parts.iter().any(|part| part.dataset_ended);
    let ended = facts.until.is_none() && has_ended && !turns_sent;
    (ended && planned.is_none_or(|planned| after < planned))
        .then_some(DatasetEnd { after, planned })
}

/// The first ending of a part that `select` accepts.
fn first_ending<T: Clone>(parts: &[&Part], select: impl Fn(&EarlyStop) -> Option<&T>) -> Option<T> {
    parts
        .iter()
        .filter_map(|part| part.ending.as_ref())
        .find_map(select)
        .cloned()
}

fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map(|first| first.to_uppercase().chain(characters).collect())
        .unwrap_or_default()
}

fn note_discarded(discarded: &Discarded) -> String {
    let Discarded {
        requests, seconds, ..
    } = discarded;
    format!(
        "The first {requests} requests ({seconds:.1} s) are not measured: the server started \
         empty (MSER-5). Set `load.warmup` to choose the start."
    )
}

/// Why a round ended early, and which requests the metrics exclude.
fn note_ending(ending: &EarlyStop) -> Option<String> {
    let cancelled = "Requests that were cancelled then are not part of any metric.";
    Some(match ending {
        EarlyStop::Aborted(aborted) => format!("`{}`: {aborted}. {cancelled}", aborted.expr),
        EarlyStop::Saturated(saturated) => {
            format!(
                "{saturated}. Arrivals that were not sent after that are not part of any metric."
            )
        }
        EarlyStop::TargetLost(lost) => format!("{lost}. {cancelled}"),
        EarlyStop::AllFailed(failed) => format!("{failed}. {cancelled}"),
    })
}

/// Why a case did not finish, other than by a signal.
struct CaseFailure<'a> {
    why: &'a str,
    /// End of its only round in seconds, if the round itself decided to end: stages that were over by then are
    /// complete.
    ended_s: Option<f64>,
}

impl<'a> CaseFailure<'a> {
    fn find(plan: &Plan, case: &Case, manifest: &'a Manifest) -> Option<CaseFailure<'a>> {
        let parts: Vec<&Part> = manifest
            .parts
            .iter()
            .filter(|part| part.case == case.id)
            .collect();
        let ends_case = |part: &&Part| part.ending.as_ref().is_some_and(EarlyStop::ends_case);
        let is_cut = parts.iter().any(|part| part.cut_short.is_some());
        let lacks_rounds = plan.searches.is_empty()
            && parts.len() < plan.rounds as usize
            && !parts.iter().any(ends_case);
        let failed = manifest
            .failed
            .iter()
            .find(|failed| failed.case == case.id)
            .map(|failed| failed.why.as_str());
        let run_error = manifest
            .error
            .as_deref()
            .filter(|_| (is_cut || lacks_rounds) && !manifest.interrupted);
        let ended_s = match parts.as_slice() {
            [
                Part {
                    ending: Some(EarlyStop::TargetLost(lost)),
                    ..
                },
            ] => Some(lost.at_s),
            [
                Part {
                    ending: Some(EarlyStop::AllFailed(failed)),
                    ..
                },
            ] => Some(failed.at_s),
            _ => None,
        };
        Some(CaseFailure {
            why: failed.or(run_error)?,
            ended_s: ended_s.filter(|_| plan.rounds == 1),
        })
    }

    /// Removes the verdicts of the case and of its unfinished stages.
    fn reject_unfinished(&self, case: &Case, reports: &mut [CaseReport]) {
        let stage_ends = case.stages().into_iter().map(|stage| stage.until.secs());
        let is_finished = stage_ends.map(|end| self.ended_s.is_some_and(|ended| end <= ended));
        for (report, is_finished) in reports
            .iter_mut()
            .zip(std::iter::once(false).chain(is_finished))
        {
            if !is_finished {
                reject(report, self.why);
            }
        }
    }
}

/// Removes the verdicts of a case without any success, in a run that failed by it. An earlier reason stays.
fn reject_without_success(report: &mut CaseReport) {
    let has_reason = |verdict: &Verdict| {
        verdict
            .note
            .as_deref()
            .is_some_and(|note| note.starts_with("not measured: "))
    };
    let no_success = report.counts.scheduled > 0 && report.counts.ok + report.counts.abandoned == 0;
    if no_success && !report.verdicts.iter().any(has_reason) {
        reject(report, "no request succeeded");
    }
}

fn reject(report: &mut CaseReport, why: &str) {
    let has_success = report.counts.ok + report.counts.abandoned > 0;
    report.verdicts =
        judge::unmeasured_verdicts(std::mem::take(&mut report.verdicts), has_success, why);
    // The headline names the reason, which is not a fault of the load generator.
    report
        .audit
        .reasons
        .retain(|reason| reason.cause != Cause::OffPlan);
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
        let case = |verdicts| CaseReport {
            verdicts,
            audit: Audit {
                valid: false,
                ..Audit::default()
            },
            ..CaseReport::default()
        };
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
        assert_eq!(
            judged.map(|report| (report.judged_elsewhere, report.is_invalid())),
            [(true, false), (false, false)]
        );
        let mut unjudged = [case(Vec::new()), case(Vec::new())];
        mark_judged_elsewhere(unjudged.iter_mut());
        assert_eq!(unjudged.map(|report| report.is_invalid()), [true; 2]);
    }
}
