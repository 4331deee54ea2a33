//! The verdict on a run and its reason, in one line.

use crate::findings::distance;
use crate::format::{against, capitalize, check_title, counted, millis, plain};
use crate::objectives::{limit_text, subject_mark};
use crate::table::Emphasis;
use crate::{commands, findings, search};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::metric::Metric;
use llmscen_core::outcome::FailureKind;
use llmscen_core::report::{CaseReport, Cause, InvalidReason, Report, RunVerdict};

/// The name of the verdict, in capitals.
pub(crate) fn verdict_name(verdict: RunVerdict) -> &'static str {
    match verdict {
        RunVerdict::Pass => "PASS",
        RunVerdict::Fail => "FAIL",
        RunVerdict::Inconclusive => "INCONCLUSIVE",
        RunVerdict::Invalid => "INVALID",
        RunVerdict::Error => "ERROR",
    }
}

/// The verdict on the run and its reason, in one line.
pub fn verdict_line(report: &Report, color: bool) -> String {
    let verdict = verdict_name(report.verdict);
    let verdict = if color {
        Emphasis::from(report.verdict).paint(verdict)
    } else {
        verdict.to_owned()
    };
    format!("{verdict}: {}\n", reason(report))
}

/// The reason of the verdict, and hints for failed requests.
pub fn reason(report: &Report) -> String {
    let mut text = explain_dataset_end(report, || verdict_reason(report), || pass_reason(report));
    for hint in &report.hints {
        text += &format!(" {}", plain(hint));
    }
    text
}

/// What a screen says below its table: why a run has no results, is invalid or inconclusive, and what to do. None
/// where the counts of objectives say everything.
pub(crate) fn paragraphs(report: &Report) -> Vec<String> {
    let is_counted = match report.verdict {
        RunVerdict::Pass => true,
        RunVerdict::Fail => !verdicts_with(report, Ruling::Fail).is_empty(),
        RunVerdict::Inconclusive => only_dataset_end(report),
        RunVerdict::Invalid | RunVerdict::Error => false,
    };
    let is_complete = is_counted && report.searches.is_empty() && !report.cases.is_empty();
    // Each of several searches has its result above its probes.
    let is_table = report.searches.len() > 1 && report.verdict != RunVerdict::Error;
    let why = (!is_complete && !is_table).then(|| match report.verdict {
        RunVerdict::Inconclusive if report.searches.is_empty() => inconclusive_action(report),
        _ => capitalize(&verdict_reason(report)),
    });
    let ended = dataset_ended(report).map(|text| match only_dataset_end(report) {
        true => format!("{} {DATASET_HELP}", capitalize(&format!("{text}."))),
        false => capitalize(&format!("{text}.")),
    });
    let hints = report.hints.iter().map(|hint| plain(hint));
    why.into_iter().chain(ended).chain(hints).collect()
}

/// How many requests would decide the inconclusive objectives.
fn inconclusive_action(report: &Report) -> String {
    let open = verdicts_with(report, Ruling::Inconclusive);
    let count = counted(open.len(), "objective");
    // Samples are requests, gaps or rounds; the load grows by the same factor. Conversations are counted whole.
    let needed = open.iter().filter_map(|(case, verdict)| {
        verdict.need?;
        let (unit, sent) = match case.scalars.contains_key(&Metric::SessionThroughput) {
            true => ("sessions", case.counts.arrivals),
            false => ("requests", case.counts.scheduled),
        };
        Some(((sent as f64 * needed_factor(verdict)).ceil() as u64, unit))
    });
    match needed.max() {
        Some((needed, unit)) => format!(
            "Inconclusive: about {needed} {unit} per case would decide {count}; set `load.{unit}: \
            {needed}` or a longer `load.duration`."
        ),
        None => format!("Inconclusive: {}", inconclusive_reason(report)),
    }
}

fn verdict_reason(report: &Report) -> String {
    if report.cases.is_empty() {
        return "no case ran.".to_owned();
    }
    let results = || search::results(report).join("; ") + ".";
    match report.verdict {
        RunVerdict::Invalid if !report.searches.is_empty() && !report.manifest.interrupted => {
            format!("{} {}", results(), capitalize(&invalid_reason(report)))
        }
        verdict if !report.searches.is_empty() && verdict != RunVerdict::Error => results(),
        RunVerdict::Invalid if report.manifest.interrupted => interrupted_reason(report),
        RunVerdict::Error if report.manifest.interrupted && only_cancelled(report) => {
            interrupted_reason(report)
        }
        RunVerdict::Pass if verdicts(report).next().is_none() => {
            format!("{}; no objective was set.", extent(report))
        }
        RunVerdict::Pass => pass_reason(report),
        RunVerdict::Fail => fail_reason(report),
        RunVerdict::Inconclusive => inconclusive_reason(report),
        RunVerdict::Invalid => invalid_reason(report),
        RunVerdict::Error => error_reason(report),
    }
}

fn pass_reason(report: &Report) -> String {
    let met = match verdicts(report).count() {
        1 => "1 objective met".to_owned(),
        count => format!("all {count} objectives met"),
    };
    format!("{met}: {}.", extent(report))
}

fn verdicts(report: &Report) -> impl Iterator<Item = (&CaseReport, &Verdict)> {
    report
        .cases
        .iter()
        .flat_map(|case| case.verdicts.iter().map(move |verdict| (case, verdict)))
}

fn verdicts_with(report: &Report, ruling: Ruling) -> Vec<(&CaseReport, &Verdict)> {
    verdicts(report)
        .filter(|(_, verdict)| verdict.ruling == ruling)
        .collect()
}

/// How much was measured: `2 cases, 480 of 480 requests succeeded`.
fn extent(report: &Report) -> String {
    // The requests of a stage are also those of its case.
    let cases = || report.cases.iter().filter(|case| !case.is_stage());
    let ok: u64 = cases().map(|case| case.counts.ok).sum();
    let scheduled: u64 = cases().map(|case| case.counts.scheduled).sum();
    let stages = match report.cases.len() - cases().count() {
        0 => String::new(),
        stages => format!(" in {}", counted(stages, "stage")),
    };
    format!(
        "{}{stages}, {ok} of {scheduled} requests succeeded",
        counted(cases().count(), "case")
    )
}

fn fail_reason(report: &Report) -> String {
    let failed = verdicts_with(report, Ruling::Fail);
    let Some((case, verdict)) = failed
        .iter()
        .max_by(|a, b| distance(a.1).total_cmp(&distance(b.1)))
    else {
        return match commands::failed(report) {
            Some(failed) => format!("{failed} {}.", capitalize(&extent(report))),
            None => format!(
                "{}; the run failed although every judged objective passed.",
                extent(report)
            ),
        };
    };
    let (check, unit) = (&verdict.check, verdict.check.subject.unit());
    let observed = match verdict.observed {
        Some(_) => {
            let limit = check
                .relative
                .as_ref()
                .map(|_| format!(", limit {}", limit_text(verdict)))
                .unwrap_or_default();
            format!(
                "observed {}{}{limit}",
                subject_mark(case, verdict),
                against(verdict.observed, check.limit, unit)
            )
        }
        None if verdict.n > 0 => verdict.note.clone().unwrap_or_default(),
        None => "no data".to_owned(),
    };
    let factor = findings::excess(verdict).map_or_else(String::new, |factor| format!(", {factor}"));
    let colon = if failed.len() > 1 { ". Worst: " } else { ": " };
    let total = counted(verdicts(report).count(), "objective");
    format!(
        "{} of {total} failed{colon}`{}` in `{}`, {observed}{factor}.",
        failed.len(),
        check_title(check),
        case.id
    )
}

/// How many times its samples an objective needs.
fn needed_factor(verdict: &Verdict) -> f64 {
    verdict
        .need
        .map_or(0.0, |need| need as f64 / verdict.n.max(1) as f64)
}

fn inconclusive_reason(report: &Report) -> String {
    let open = verdicts_with(report, Ruling::Inconclusive);
    let Some((case, verdict)) = open
        .iter()
        .max_by(|a, b| needed_factor(a.1).total_cmp(&needed_factor(b.1)))
    else {
        return format!("{}; not enough samples to decide.", extent(report));
    };
    let (have, name) = (verdict.n, check_title(&verdict.check));
    let advice = match verdict.need {
        Some(need) => format!(
            "has {have} of about {need} samples; increase `load.requests` or `load.duration`"
        ),
        None if verdict.note.is_some() => {
            format!(
                "is inconclusive: {}",
                verdict.note.as_deref().unwrap_or_default()
            )
        }
        None => format!("has only {have} samples; increase `load.requests` or `load.duration`"),
    };
    let total = verdicts(report).count();
    let are = if open.len() == 1 { "is" } else { "are" };
    format!(
        "{} of {} {are} inconclusive. `{name}` in `{}` {advice}.",
        open.len(),
        counted(total, "objective"),
        case.id
    )
}

/// Whether every failed request was cancelled by the interruption.
fn only_cancelled(report: &Report) -> bool {
    report
        .cases
        .iter()
        .flat_map(|case| &case.failures)
        .all(|failure| failure.kind == FailureKind::Cancelled)
}

fn interrupted_reason(report: &Report) -> String {
    format!(
        "interrupted after {}; unfinished cases are not judged.",
        extent(report)
    )
}

fn invalid_reason(report: &Report) -> String {
    let mut invalid: Vec<&CaseReport> = report
        .cases
        .iter()
        .filter(|case| case.is_invalid())
        .collect();
    if invalid.is_empty() {
        invalid = report
            .cases
            .iter()
            .filter(|case| !case.audit.valid)
            .collect();
    }
    let Some(first) = invalid.first() else {
        return "the run deviated from its plan; see Notes.".to_owned();
    };
    let why = first.audit.reasons.first();
    let count = invalid.len();
    let all = counted(report.cases.len(), "case");
    let what = why.and_then(|why| match why.cause {
        Cause::OffPlan => Some("deviated from the plan"),
        Cause::PrefixCache => Some("measured the server's prefix cache"),
        Cause::AnswerCache => Some("measured a cache of answers"),
        Cause::IdleServer => Some("did not measure all of the server"),
        Cause::NoFiles | Cause::LoadGenerator => None,
    });
    if let Some((what, why)) = what.zip(why) {
        return format!(
            "{count} of {all} {what}. `{}`: {}.",
            first.id,
            plain(why.what()).trim_end_matches('.')
        );
    }
    let affected = verdicts_with(report, Ruling::Invalid);
    if let Some((case, verdict)) = affected
        .iter()
        .find(|(case, _)| !case.audit.objectives.is_empty())
    {
        let note = plain(verdict.note.as_deref().unwrap_or_default());
        return format!(
            "{} of {}: the load generator may have caused the result. `{}` in `{}`: {}.{}",
            affected.len(),
            counted(verdicts(report).count(), "objective"),
            check_title(&verdict.check),
            case.id,
            note.trim_end_matches('.'),
            remedy(case),
        );
    }
    format!(
        "the load generator was the bottleneck in {count} of {all}, so their numbers are not the \
        server's. `{}`: {}.{}",
        first.id,
        plain(why.map_or("no reason was given", InvalidReason::text)).trim_end_matches('.'),
        remedy(first),
    )
}

/// What to do about an invalid case, with a leading space; empty if the reason names the remedy.
fn remedy(invalid: &CaseReport) -> &'static str {
    match invalid.audit.dropped {
        0 if invalid
            .audit
            .reasons
            .iter()
            .any(|why| why.cause == Cause::NoFiles) =>
        {
            ""
        }
        0 => " Run llmscen on an idle machine or with more CPU cores, or lower the load.",
        _ => " Raise `load.max_in_flight`, or lower the rate.",
    }
}

fn error_reason(report: &Report) -> String {
    let failed = &report.manifest.failed;
    let stopped = report
        .manifest
        .error
        .as_ref()
        .filter(|why| failed.iter().all(|case| case.why != **why));
    if stopped.is_some() || !failed.is_empty() {
        let stopped =
            stopped.map(|why| format!("the run stopped: {}", plain(why).trim_end_matches('.')));
        let all = stopped
            .into_iter()
            .chain(failed_case_reasons(report))
            .collect::<Vec<_>>()
            .join("; ");
        let end = if all.ends_with('?') { "" } else { "." };
        return format!("{all}{end}");
    }
    let failed_case = report
        .cases
        .iter()
        .find(|case| case.counts.ok == 0)
        .and_then(|case| Some((case, case.failures.first()?)));
    match failed_case {
        Some((case, failure)) => format!(
            "no request succeeded: {} of {} in `{}` failed with `{}`: {}.",
            failure.count,
            case.counts.scheduled,
            case.id,
            failure.kind,
            plain(&failure.message).trim_end_matches('.')
        ),
        None => format!("no request succeeded: {}.", extent(report)),
    }
}

/// Whether the measurement is valid, in one sentence.
pub(crate) fn validity(report: &Report) -> Option<(Emphasis, String)> {
    let cases = || report.cases.iter();
    cases().next()?;
    let invalid = cases().filter(|case| case.is_invalid()).count();
    let delayed = cases().filter(|case| !case.audit.valid).count();
    let most = |of: fn(&CaseReport) -> Option<f64>| cases().filter_map(of).reduce(f64::max);
    let delay = most(|case| case.audit.schedule_lag_ms_p99)
        .map(|it| format!("send delay p99 {}", millis(it)));
    let stall = most(|case| case.audit.stall_ms_p99)
        .map(|it| format!("event-loop stall p99 {}", millis(it)));
    let facts: Vec<String> = delay.into_iter().chain(stall).collect();
    let facts = match facts.len() {
        0 => String::new(),
        _ => format!(" ({})", facts.join(", ")),
    };
    let all = report.cases.len();
    Some(match (invalid, delayed) {
        (0, _) if cases().all(|case| case.counts.ok == 0) => (
            Emphasis::Muted,
            format!("Measurement: no request succeeded, so nothing is known of latencies{facts}."),
        ),
        (0, 0) => (Emphasis::Pass, format!("Measurement: valid{facts}.")),
        (0, _) => (
            Emphasis::Pass,
            format!(
                "Measurement: every verdict is valid{facts}. In {} the load generator was late, \
                but too little to change a verdict.",
                if all == 1 {
                    "places".to_owned()
                } else {
                    format!("{delayed} of {}", counted(all, "case"))
                }
            ),
        ),
        _ if all == 1 => (Emphasis::Invalid, format!("Measurement: INVALID{facts}.")),
        _ => (
            Emphasis::Invalid,
            format!(
                "Measurement: INVALID in {invalid} of {}{facts}.",
                counted(all, "case")
            ),
        ),
    })
}

/// A warning that the run was interrupted; None if it was not.
pub fn interruption(report: &Report) -> Option<String> {
    let cause = report
        .manifest
        .parts
        .iter()
        .find_map(|part| part.cut_short.as_deref());
    let why = cause
        .map(|why| format!(" ({})", plain(why)))
        .unwrap_or_default();
    report
        .manifest
        .interrupted
        .then(|| format!("Run interrupted{why}. Results cover only the requests that finished."))
}

/// What to do about a dataset that ended early.
const DATASET_HELP: &str = "Lower `load.requests`, or set `dataset.on_exhausted: cycle`.";

/// A sentence about the first case whose dataset ended early, and the number of the others.
fn dataset_ended(report: &Report) -> Option<String> {
    let mut cases = report
        .cases
        .iter()
        .filter_map(|case| Some((case, case.dataset_end?)));
    let (case, end) = cases.next()?;
    Some(match cases.count() {
        0 if report.cases.len() == 1 => end.to_string(),
        0 => format!("{end} in `{}`", case.id),
        1 => format!("{end} in `{}`, and early in 1 other case", case.id),
        more => format!("{end} in `{}`, and early in {more} other cases", case.id),
    })
}

/// Whether the run would have passed had its dataset not ended early.
fn only_dataset_end(report: &Report) -> bool {
    let passed = |case: &CaseReport| {
        case.verdicts
            .iter()
            .all(|verdict| verdict.ruling == Ruling::Pass)
    };
    report.verdict == RunVerdict::Inconclusive
        && report.searches.is_empty()
        && report.cases.iter().all(passed)
}

/// The reason of a verdict, and whether the dataset ended early. `passed`: the reason that the same run would have as
/// a PASS.
fn explain_dataset_end(
    report: &Report,
    reason: impl FnOnce() -> String,
    passed: impl FnOnce() -> String,
) -> String {
    match dataset_ended(report) {
        None => reason(),
        Some(ended) if only_dataset_end(report) => format!("{ended}; {} {DATASET_HELP}", passed()),
        Some(ended) => format!("{} {}.", reason(), ended.replacen('t', "T", 1)),
    }
}

/// Why cases failed: each reason once with its cases; without them if the run has one case.
fn failed_case_reasons(report: &Report) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for failed in &report.manifest.failed {
        let case = format!("`{}`", failed.case);
        match reasons.iter_mut().find(|(why, _)| *why == failed.why) {
            Some((_, cases)) => cases.push(case),
            None => reasons.push((failed.why.as_str(), vec![case])),
        }
    }
    let is_single_case = report.cases.iter().filter(|case| !case.is_stage()).count() == 1;
    let text = |(why, cases): (&str, Vec<String>)| {
        let why = plain(why);
        let why = why.trim_end_matches('.');
        if is_single_case {
            why.to_owned()
        } else {
            format!("{}: {why}", cases.join(", "))
        }
    };
    reasons.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests;
