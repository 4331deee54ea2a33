//! The verdict on a run as one line that a person can act on.

use crate::format::{against, plain, title};
use crate::objectives::{limit_text, subject_mark};
use crate::search::sentence;
use crate::table::Emphasis;
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::report::{CACHED, CaseReport, OFF_PLAN, Report, RunVerdict};

/// The verdict as a word, in capitals.
pub fn word(verdict: RunVerdict) -> &'static str {
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
    let emphasis = match report.verdict {
        RunVerdict::Pass => Emphasis::Pass,
        RunVerdict::Fail | RunVerdict::Error => Emphasis::Fail,
        RunVerdict::Inconclusive => Emphasis::Inconclusive,
        RunVerdict::Invalid => Emphasis::Invalid,
    };
    let verdict = word(report.verdict);
    let verdict = if color { emphasis.paint(verdict) } else { verdict.to_owned() };
    format!("{verdict}: {}\n", reason(report))
}

/// What it rests on, and what to do about what went wrong.
pub fn reason(report: &Report) -> String {
    let sentences = explain_dataset_end(report, || verdict_reason(report), || passed(report));
    let hints = report.hints.iter().map(|hint| format!(" {}", plain(hint)));
    std::iter::once(sentences).chain(hints).collect()
}

fn verdict_reason(report: &Report) -> String {
    if report.cases.is_empty() {
        return "no case ran.".to_owned();
    }
    let found = || report.searches.iter().map(|search| sentence(report, search)).collect::<Vec<_>>().join("; ") + ".";
    match report.verdict {
        RunVerdict::Invalid if !report.searches.is_empty() && !report.manifest.interrupted => {
            format!("{} {}", found(), capital(&invalid(report)))
        }
        verdict if !report.searches.is_empty() && verdict != RunVerdict::Error => found(),
        RunVerdict::Invalid if report.manifest.interrupted => cut_short(report),
        RunVerdict::Error if report.manifest.interrupted && given_up(report) => cut_short(report),
        RunVerdict::Pass if rulings(report).next().is_none() => format!("{}; no limit was set.", extent(report)),
        RunVerdict::Pass => passed(report),
        RunVerdict::Fail => failed(report),
        RunVerdict::Inconclusive => undecided(report),
        RunVerdict::Invalid => invalid(report),
        RunVerdict::Error => error(report),
    }
}

fn passed(report: &Report) -> String {
    format!("{} held over {}.", limits(rulings(report).count()), extent(report))
}

fn rulings(report: &Report) -> impl Iterator<Item = (&CaseReport, &Verdict)> {
    report.cases.iter().flat_map(|case| case.verdicts.iter().map(move |verdict| (case, verdict)))
}

fn of_ruling(report: &Report, ruling: Ruling) -> Vec<(&CaseReport, &Verdict)> {
    rulings(report).filter(|(_, verdict)| verdict.ruling == ruling).collect()
}

fn limits(count: usize) -> String {
    if count == 1 { "the one limit".to_owned() } else { format!("all {count} limits") }
}

fn extent(report: &Report) -> String {
    let whole = || report.cases.iter().filter(|case| !case.is_stage());
    let ok: u64 = whole().map(|case| case.counts.ok).sum();
    let scheduled: u64 = whole().map(|case| case.counts.scheduled).sum();
    let number = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let cases = number(whole().count(), "case");
    let stages = match report.cases.len() - whole().count() {
        0 => String::new(),
        stages => format!(" in {}", number(stages, "stage")),
    };
    format!("{cases}{stages}, {ok} of {scheduled} requests ok")
}

fn failed(report: &Report) -> String {
    let broken = of_ruling(report, Ruling::Fail);
    let Some((case, verdict)) = broken.iter().max_by(|a, b| excess(a.1).total_cmp(&excess(b.1))) else {
        return format!("{}; the run failed without a broken limit.", extent(report));
    };
    let (check, unit) = (&verdict.check, verdict.check.subject.unit());
    let seen = match verdict.observed {
        Some(_) => {
            let limit = check.relative.map(|_| format!(", limit {}", limit_text(verdict))).unwrap_or_default();
            format!("observed {}{}{limit}", subject_mark(case, verdict), against(verdict.observed, check.limit, unit))
        }
        None if verdict.n > 0 => verdict.note.clone().unwrap_or_default(),
        None => "there is no data for it".to_owned(),
    };
    let others = if broken.len() > 1 { "; worst: " } else { ": " };
    format!("{} of {} limits broken{others}`{}` at `{}`, {seen}.", broken.len(), rulings(report).count(), title(check), case.id)
}

/// By how much a limit is missed, as a ratio; missing data is the worst of all.
fn excess(verdict: &Verdict) -> f64 {
    match verdict.observed {
        None => f64::INFINITY,
        Some(_) if verdict.check.limit == 0.0 => f64::MAX,
        Some(seen) => ((seen - verdict.check.limit) / verdict.check.limit).abs(),
    }
}

/// How many times its samples an objective needs.
fn times(verdict: &Verdict) -> f64 {
    verdict.need.map_or(0.0, |need| need as f64 / verdict.n.max(1) as f64)
}

fn undecided(report: &Report) -> String {
    let open = of_ruling(report, Ruling::Inconclusive);
    let Some((case, verdict)) = open.iter().max_by(|a, b| times(a.1).total_cmp(&times(b.1))) else {
        return format!("{}; too little data to rule.", extent(report));
    };
    let (have, name) = (verdict.n, title(&verdict.check));
    let advice = match verdict.need {
        Some(need) => format!("has {have} samples and needs about {need}: measure more (`load.requests` or `load.duration`)"),
        None if verdict.note.is_some() => {
            format!("is open: {}", verdict.note.as_deref().unwrap_or_default())
        }
        None => format!("has {have} samples, too few to say: measure more (`load.requests` or `load.duration`)"),
    };
    format!("{} of {} limits undecided; `{name}` at `{}` {advice}.", open.len(), rulings(report).count(), case.id)
}

/// Whether the interruption alone made requests fail.
fn given_up(report: &Report) -> bool {
    report.cases.iter().flat_map(|case| &case.failures).all(|failure| failure.kind == FailureKind::Cancelled)
}

fn cut_short(report: &Report) -> String {
    format!("interrupted after {}; unfinished cases are not judged.", extent(report))
}

fn invalid(report: &Report) -> String {
    let mut unsound: Vec<&CaseReport> = report.cases.iter().filter(|case| case.is_invalid()).collect();
    if unsound.is_empty() {
        unsound = report.cases.iter().filter(|case| !case.audit.valid).collect();
    }
    let Some(first) = unsound.first() else {
        return "the run deviated from its plan; see Notes.".to_owned();
    };
    let why = first.audit.reasons.first().map_or("no reason was given", String::as_str);
    let (count, all) = (unsound.len(), report.cases.len());
    for (kind, what) in [(OFF_PLAN, "deviated from the plan"), (CACHED, "measured the server's prefix cache")] {
        if let Some(why) = why.strip_prefix(kind) {
            return format!("{count} of {all} cases {what}. `{}`: {}.", first.id, plain(why).trim_end_matches('.'));
        }
    }
    if let Some((case, verdict)) =
        of_ruling(report, Ruling::Invalid).into_iter().find(|(case, _)| !case.audit.objectives.is_empty())
    {
        let (count, all) = (of_ruling(report, Ruling::Invalid).len(), rulings(report).count());
        let note = plain(verdict.note.as_deref().unwrap_or_default());
        let (name, note) = (title(&verdict.check), note.trim_end_matches('.'));
        let remedy = remedy(case).map(|remedy| format!(" {remedy}")).unwrap_or_default();
        let how = "the load generator may have caused the result";
        return format!("{count} of {all} objectives: {how}. `{name}` at `{}`: {note}.{remedy}", case.id);
    }
    let remedy = remedy(first).map(|remedy| format!(" {remedy}")).unwrap_or_default();
    format!(
        "the load generator was the bottleneck in {count} of {all} cases, so their numbers are not the server's. `{}`: {}.{remedy}",
        first.id,
        plain(why).trim_end_matches('.'),
    )
}

/// A sentence that follows another one.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// What to do; None where the reason says so itself.
fn remedy(unsound: &CaseReport) -> Option<&'static str> {
    match unsound.audit.dropped {
        0 if unsound.audit.reasons.iter().any(|why| why.contains(Failure::NO_FILES)) => None,
        0 => Some("Run llmscen on an idle machine or with more CPU cores, or lower the load."),
        _ => Some("Raise `load.max_in_flight`, or lower the rate."),
    }
}

fn error(report: &Report) -> String {
    let failed = &report.manifest.failed;
    let stopped = report.manifest.error.as_ref().filter(|why| failed.iter().all(|own| own.why != **why));
    if stopped.is_some() || !failed.is_empty() {
        let stopped = stopped.map(|why| format!("the run stopped: {}", plain(why).trim_end_matches('.')));
        let all = stopped.into_iter().chain(failures(report)).collect::<Vec<_>>().join("; ");
        let end = if all.ends_with('?') { "" } else { "." };
        return format!("{all}{end}");
    }
    let dead = report.cases.iter().find(|case| case.counts.ok == 0).and_then(|case| Some((case, case.failures.first()?)));
    match dead {
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

/// The first lines of a report: that it was cut short, where it was.
pub fn interruption(report: &Report) -> Option<String> {
    let cut = report.manifest.parts.iter().filter_map(|part| part.cut_short.as_deref()).next();
    let why = cut.map(|why| format!(" ({})", plain(why))).unwrap_or_default();
    report.manifest.interrupted.then(|| format!("Run interrupted{why}. Results cover only the requests that finished."))
}

/// What to do about a dataset that ended early.
const DATASET_HELP: &str = "Lower `load.requests`, or set `dataset.on_exhausted: cycle`.";

/// Why the data ended early, with the first case that it ended and the number of the others.
fn dataset_ended(report: &Report) -> Option<String> {
    let mut cases = report.cases.iter().filter_map(|case| Some((case, case.dataset_end?)));
    let (case, end) = cases.next()?;
    Some(match cases.count() {
        0 if report.cases.len() == 1 => end.to_string(),
        0 => format!("{end} in `{}`", case.id),
        1 => format!("{end} in `{}`, and early in 1 other case", case.id),
        more => format!("{end} in `{}`, and early in {more} other cases", case.id),
    })
}

/// Whether nothing but the end of the data keeps the run from passing.
fn only_dataset_end(report: &Report) -> bool {
    let passed = |case: &CaseReport| case.verdicts.iter().all(|verdict| verdict.ruling == Ruling::Pass);
    report.verdict == RunVerdict::Inconclusive && report.searches.is_empty() && report.cases.iter().all(passed)
}

/// The reason of a verdict with what the end of the data has to do with it. `passed`: the reason of the same run as a pass.
fn explain_dataset_end(report: &Report, reason: impl FnOnce() -> String, passed: impl FnOnce() -> String) -> String {
    match dataset_ended(report) {
        None => reason(),
        Some(ended) if only_dataset_end(report) => format!("{ended}; {} {DATASET_HELP}", passed()),
        Some(ended) => format!("{} {}.", reason(), ended.replacen('t', "T", 1)),
    }
}

/// Why cases failed, each reason once with the cases that it is about; of a run of one case, the reason alone.
fn failures(report: &Report) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for failed in &report.manifest.failed {
        let case = format!("`{}`", failed.case);
        match reasons.iter_mut().find(|(why, _)| *why == failed.why) {
            Some((_, cases)) => cases.push(case),
            None => reasons.push((failed.why.as_str(), vec![case])),
        }
    }
    let alone = report.cases.iter().filter(|case| !case.is_stage()).count() == 1;
    let text = |(why, cases): (&str, Vec<String>)| {
        let why = plain(why);
        let why = why.trim_end_matches('.');
        if alone { why.to_owned() } else { format!("{}: {why}", cases.join(", ")) }
    };
    reasons.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failing, no_data, report_of, sweep};
    use llmscen_core::labels::{Labels, Scalar};
    use llmscen_core::manifest::{FailedCase, Part};
    use llmscen_core::plan::STAGE;
    use llmscen_core::report::DatasetEnd;

    #[test]
    fn each_verdict_says_what_to_look_at() {
        let pass = |ruling| {
            let mut case = case(4);
            case.verdicts.iter_mut().for_each(|verdict| verdict.ruling = ruling);
            case
        };
        let table = [
            (report_of(vec![pass(Ruling::Pass)], RunVerdict::Pass, 0), "all 2 limits held over 1 case, 240 of 240 requests ok."),
            (
                report_of(vec![case(4), failing()], RunVerdict::Fail, 1),
                "2 of 4 limits broken; worst: `ttft.p99 < 500ms` at `concurrency=64`, observed 1.33 s.",
            ),
            (
                sweep(1),
                "1 of 2 limits undecided; `error_rate < 1%` at `concurrency=1` has 240 samples and needs about 299: measure more (`load.requests` or `load.duration`).",
            ),
            (
                report_of(vec![no_data()], RunVerdict::Invalid, 4),
                "the load generator was the bottleneck in 1 of 1 cases, so their numbers are not the server's. `base`: schedule lag p99 8.1 ms is over 5 ms. Run llmscen on an idle machine or with more CPU cores, or lower the load.",
            ),
            (
                report_of(vec![no_data()], RunVerdict::Error, 3),
                "no request succeeded: 8 of 8 in `base` failed with `connect`: connection refused.",
            ),
            (report_of(vec![], RunVerdict::Pass, 0), "no case ran."),
            (
                report_of(vec![no_data()], RunVerdict::Fail, 1),
                "1 of 1 limits broken: `ttft.p99 < 500ms` at `base`, there is no data for it.",
            ),
        ];
        for (report, line) in table {
            assert_eq!(reason(&report), line);
        }
    }

    #[test]
    fn a_request_of_a_stage_is_not_counted_twice() {
        let labels = Labels::default().with(STAGE, Scalar::Int(1));
        let stages = [case(4), case(4)].map(|stage| CaseReport { labels: labels.clone(), ..stage });
        let report = report_of([vec![case(4)], stages.into()].concat(), RunVerdict::Pass, 0);
        assert_eq!(extent(&report), "1 case in 2 stages, 240 of 240 requests ok");
    }

    #[test]
    fn a_run_off_its_plan_does_not_blame_the_tool() {
        let mut cut = no_data();
        cut.audit.reasons = vec![format!("{OFF_PLAN}interrupted")];
        let line = reason(&report_of(vec![cut], RunVerdict::Invalid, 4));
        assert_eq!(line, "1 of 1 cases deviated from the plan. `base`: interrupted.");
    }

    #[test]
    fn a_verdict_that_could_have_flipped_is_named_with_its_reason() {
        use llmscen_core::report::ObjectiveAudit;
        let mut report = sweep(1);
        report.verdict = RunVerdict::Invalid;
        let case = &mut report.cases[0];
        let (expr, none) = ("x".to_owned(), [None; 3]);
        let audit =
            ObjectiveAudit { expr, measured: Ruling::Fail, slow: None, fast: None, observed: none, reasons: vec!["y".into()] };
        case.audit.objectives = vec![audit];
        (case.verdicts[0].ruling, case.verdicts[0].note) = (Ruling::Invalid, Some("a worker thread was stalled".into()));
        let known = "1 of 2 objectives: the load generator may have caused the result. `ttft.p99 < 500ms` at `concurrency=1`: a worker \
            thread was stalled. Run llmscen on an idle machine or with more CPU cores, or lower the load.";
        assert_eq!(reason(&report), known);
        report.cases[0].audit.reasons = vec![format!("{CACHED}93% of the prompt tokens")];
        let known = "1 of 1 cases measured the server's prefix cache. `concurrency=1`: 93% of the prompt tokens.";
        assert_eq!(reason(&report), known);
    }

    #[test]
    fn an_interrupted_run_says_why() {
        let mut report = sweep(1);
        assert_eq!(interruption(&report), None);
        report.manifest.interrupted = true;
        report.manifest.parts = vec![Part { cut_short: Some("Ctrl-C".into()), ..Part::default() }];
        let text = interruption(&report).unwrap();
        assert_eq!(text, "Run interrupted (Ctrl-C). Results cover only the requests that finished.");
        report.verdict = RunVerdict::Invalid;
        let why = "interrupted after 1 case, 240 of 240 requests ok; unfinished cases are not judged.";
        assert_eq!(reason(&report), why);
        report.verdict = RunVerdict::Fail;
        assert_ne!(reason(&report), why, "a limit that is broken by what there is stays the news");
    }

    #[test]
    fn arrivals_without_room_are_no_matter_of_cores() {
        let mut report = report_of(vec![no_data()], RunVerdict::Invalid, 4);
        report.cases[0].audit.dropped = 3;
        assert!(reason(&report).ends_with("Raise `load.max_in_flight`, or lower the rate."), "{}", reason(&report));
    }

    #[test]
    fn the_last_line_is_the_verdict_and_its_reason() {
        let report = report_of(vec![no_data()], RunVerdict::Error, 3);
        let reason = "no request succeeded: 8 of 8 in `base` failed with `connect`: connection refused.\n";
        assert_eq!(verdict_line(&report, false), format!("ERROR: {reason}"));
        assert_eq!(verdict_line(&report, true), format!("\u{1b}[31mERROR\u{1b}[0m: {reason}"));
    }

    fn ended_run(verdict: RunVerdict, ruling: Ruling, planned: Option<u64>) -> Report {
        let mut case = case(4);
        case.verdicts.iter_mut().for_each(|verdict| verdict.ruling = ruling);
        case.dataset_end = Some(DatasetEnd { after: 209, planned });
        report_of(vec![case], verdict, 0)
    }

    #[test]
    fn the_headline_says_where_the_data_ended() {
        let inconclusive = reason(&ended_run(RunVerdict::Inconclusive, Ruling::Pass, Some(100_000)));
        assert!(inconclusive.starts_with("the dataset ended after 209 of 100000 requests; all 2 limits held"), "{inconclusive}");
        assert!(inconclusive.ends_with(DATASET_HELP), "{inconclusive}");
        let failed = reason(&ended_run(RunVerdict::Fail, Ruling::Fail, Some(100_000)));
        assert!(failed.ends_with(" The dataset ended after 209 of 100000 requests."), "{failed}");
        let passed = reason(&ended_run(RunVerdict::Pass, Ruling::Pass, None));
        assert!(passed.ends_with("requests ok. The dataset ended after 209 requests."), "{passed}");
    }

    #[test]
    fn every_case_that_failed_is_explained_and_one_alone_is_not_named() {
        let failed = |case: &str, why: &str| FailedCase { case: case.into(), why: why.into() };
        let refused = "stopped after 20 of 5000 requests: every one failed with HTTP 401 (Unauthorized)";
        let mut report = report_of(vec![no_data()], RunVerdict::Error, 3);
        report.manifest.failed = vec![failed("base", refused)];
        report.manifest.error = Some(refused.into());
        report.hints = vec!["help: set a key".into()];
        assert_eq!(reason(&report), format!("{refused}. help: set a key"));
        report.hints.clear();
        report.cases = vec![case(1), case(4), failing()];
        report.manifest.failed = vec![failed("a", "the server ended"), failed("b", refused), failed("c", "the server ended")];
        assert_eq!(reason(&report), format!("`a`, `c`: the server ended; `b`: {refused}."));
        report.manifest.error = Some("the disk is full".into());
        assert_eq!(reason(&report), format!("the run stopped: the disk is full; `a`, `c`: the server ended; `b`: {refused}."));
        report.manifest.failed.clear();
        assert_eq!(reason(&report), "the run stopped: the disk is full.");
    }
}
