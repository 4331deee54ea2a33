//! Notes about compared runs: invalid and interrupted runs, differences between plans, hosts and verdicts.

use crate::compare::labels;
use crate::environment::{self, EnvironmentChange};
use crate::format::{counted, shorten, value};
use crate::objectives::worst_ruling;
use llmscen_core::check::Ruling;
use llmscen_core::compare::{Comparison, Difference, Run};
use llmscen_core::report::{CaseReport, InvalidReason};

/// The longest value of a plan in a note, in characters.
const MAX_VALUE: usize = 60;
/// A note names at most this many cases.
const MAX_NAMED: usize = 5;

/// `load.concurrency: 4 → 8`.
pub fn differs(difference: &Difference) -> String {
    let side = |value: &Option<String>| {
        value
            .as_ref()
            .map_or_else(|| "not set".to_owned(), |text| shorten(text, MAX_VALUE))
    };
    format!(
        "{}: {} → {}",
        difference.path,
        side(&difference.base),
        side(&difference.other)
    )
}

/// The notes, one line each: interrupted and invalid runs, differences between plans, seeds, versions and hosts,
/// cases of one run only, changed verdicts, and contrasts that were not tested.
pub fn notes(comparison: &Comparison) -> Vec<String> {
    let Some((base, others)) = comparison.runs.split_first() else {
        return Vec::new();
    };
    let mut notes: Vec<String> = comparison.runs.iter().flat_map(validity_notes).collect();
    for (other, differences) in others.iter().zip(&comparison.differences) {
        notes.extend(same_run(base, other));
        notes.extend(
            differences
                .iter()
                .map(|it| format!("plan of {}: {}", other.label, differs(it))),
        );
        notes.extend(environment_changes(base, other));
        notes.extend(verdict_changes(base, other));
    }
    notes.extend(labels::single_run_warning(comparison));
    notes.extend(unmatched_cases(comparison));
    notes.extend(untested(comparison));
    notes.extend(comparison.notes.iter().cloned());
    notes
}

fn validity_notes(run: &Run) -> Vec<String> {
    let (label, report) = (&run.label, &run.report);
    let mut notes = Vec::new();
    if report.manifest.interrupted {
        notes.push(format!(
            "{label} was interrupted; the comparison uses its results so far"
        ));
    }
    notes.extend(
        report
            .manifest
            .error
            .iter()
            .map(|error| format!("{label} stopped with an error: {error}")),
    );
    let invalid: Vec<&CaseReport> = report
        .cases
        .iter()
        .filter(|case| !case.audit.valid)
        .collect();
    let note = |case: &&CaseReport| {
        format!(
            "{label}, {}: invalid measurement: {}",
            case.id,
            InvalidReason::joined(&case.audit.reasons)
        )
    };
    notes.extend(invalid.iter().take(MAX_NAMED).map(note));
    if let Some(more) = invalid
        .len()
        .checked_sub(MAX_NAMED)
        .filter(|more| *more > 0)
    {
        notes.push(format!("{label}: {more} more cases are invalid"));
    }
    for search in report.searches.iter().filter(|search| search.is_result()) {
        let result = search
            .finding
            .answer
            .map_or_else(|| "none".to_owned(), |load| load.to_string());
        notes.push(format!("{label} is a capacity search (result: {result}); loads probed in both runs are compared"));
    }
    notes
}

fn same_run(base: &Run, other: &Run) -> Option<String> {
    let same = !base.report.manifest.run_id.is_empty()
        && base.report.manifest.run_id == other.report.manifest.run_id;
    same.then(|| format!("{} and {} are the same run", base.label, other.label))
}

fn environment_changes(base: &Run, other: &Run) -> Vec<String> {
    let (a, b) = (&base.report.manifest, &other.report.manifest);
    let seeds =
        (a.seed != b.seed).then(|| format!("seed of {}: {} → {}", other.label, a.seed, b.seed));
    let changes = environment::changes(&a.into(), &b.into());
    let line = |it: &EnvironmentChange| {
        let EnvironmentChange {
            what,
            at,
            before,
            after,
        } = it;
        format!("{what} of {}{at}: {before} → {after}", other.label)
    };
    seeds.into_iter().chain(changes.iter().map(line)).collect()
}

/// Cases whose worst verdict changed.
fn verdict_changes(base: &Run, other: &Run) -> Vec<String> {
    let verdict = |ruling: Option<Ruling>| ruling.map_or("none", Ruling::name);
    let mut notes = Vec::new();
    for case in &other.report.cases {
        let Some(base_case) = base
            .report
            .cases
            .iter()
            .find(|base_case| base_case.id == case.id)
        else {
            continue;
        };
        let before = worst_ruling(base_case);
        let now = worst_ruling(case);
        if before != now {
            let change = format!(
                "verdict {} in {}, {} in {}",
                verdict(before),
                base.label,
                verdict(now),
                other.label
            );
            notes.push(format!("{}: {change}", case.id));
        }
    }
    notes
}

/// Cases that only one side has.
fn unmatched_cases(comparison: &Comparison) -> Vec<String> {
    let note = |side: &String| {
        let ids: Vec<&str> = comparison
            .unmatched_cases
            .iter()
            .filter(|(label, _)| label == side)
            .map(|(_, id)| id.as_str())
            .collect();
        let verb = if ids.len() == 1 { "exists" } else { "exist" };
        (!ids.is_empty()).then(|| {
            format!(
                "{} {verb} only in {side}: {}",
                counted(ids.len(), "case"),
                ids.join("  ")
            )
        })
    };
    comparison.sides.iter().filter_map(note).collect()
}

/// Why contrasts were not tested: each reason with its first cases.
fn untested(comparison: &Comparison) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for contrast in &comparison.contrasts {
        let Some(note) = contrast.note.as_deref() else {
            continue;
        };
        let name = format!(
            "{} of {} in {}",
            contrast.measure,
            contrast.case,
            labels::label(comparison, contrast.run)
        );
        match reasons.iter_mut().find(|(reason, _)| *reason == note) {
            Some((_, names)) => names.push(name),
            None => reasons.push((note, vec![name])),
        }
    }
    let note = |(reason, names): (&str, Vec<String>)| {
        let more = names
            .len()
            .checked_sub(MAX_NAMED)
            .filter(|more| *more > 0)
            .map(|more| format!(" and {more} more"));
        let named: Vec<String> = names.into_iter().take(MAX_NAMED).collect();
        format!("{}{}: {reason}", named.join(", "), more.unwrap_or_default())
    };
    reasons.into_iter().map(note).collect()
}

/// What a case measured: `300 of 300 ok, 12.4 req/s`.
pub(super) fn describe_case(case: &CaseReport) -> String {
    use llmscen_core::metric::Metric::RequestThroughput;
    let rate = case
        .scalars
        .get(&RequestThroughput)
        .map(|rate| format!(", {}", value(*rate, RequestThroughput.unit())));
    format!(
        "{} of {} ok{}",
        case.counts.ok,
        case.counts.scheduled,
        rate.unwrap_or_default()
    )
}
