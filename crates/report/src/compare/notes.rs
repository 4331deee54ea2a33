//! What a reader must know of runs that are compared.

use crate::compare::labels;
use crate::format::{shorten, value};
use llmscen_core::check::Ruling;
use llmscen_core::compare::{Comparison, Difference, Run};
use llmscen_core::report::CaseReport;

/// The longest that a value of a plan is told.
const ROOM: usize = 60;
/// Cases of one kind that are named.
const NAMED: usize = 5;

/// `load.concurrency: 4 → 8`.
pub fn differs(difference: &Difference) -> String {
    let side = |value: &Option<String>| value.as_ref().map_or_else(|| "not set".to_owned(), |text| shorten(text, ROOM));
    format!("{}: {} → {}", difference.path, side(&difference.base), side(&difference.other))
}

/// Everything that is to be said beside the figures, one line each: runs that are not sound, plans, seeds, tools and machines that
/// differ, cases that stand alone, verdicts that changed, figures that are unknown.
pub fn notes(comparison: &Comparison) -> Vec<String> {
    let Some((base, others)) = comparison.runs.split_first() else { return Vec::new() };
    let mut notes: Vec<String> = comparison.runs.iter().flat_map(unsound).collect();
    for (other, differences) in others.iter().zip(&comparison.differences) {
        notes.extend(twins(base, other));
        notes.extend(differences.iter().map(|own| format!("plan of {}: {}", other.label, differs(own))));
        notes.extend(circumstances(base, other));
        notes.extend(turned(base, other));
    }
    notes.extend(labels::single(comparison));
    notes.extend(alone(comparison));
    notes.extend(unknown(comparison));
    notes.extend(comparison.notes.iter().cloned());
    notes
}

fn unsound(run: &Run) -> Vec<String> {
    let (label, report) = (&run.label, &run.report);
    let mut notes = Vec::new();
    if report.manifest.interrupted {
        notes.push(format!("{label} was interrupted: what there is of it is compared"));
    }
    notes.extend(report.manifest.error.iter().map(|error| format!("{label} could not go on: {error}")));
    let invalid: Vec<&CaseReport> = report.cases.iter().filter(|case| !case.audit.valid).collect();
    let told = |case: &&CaseReport| format!("{label}, {}: not sound: {}", case.id, case.audit.reasons.join("; "));
    notes.extend(invalid.iter().take(NAMED).map(told));
    if let Some(more) = invalid.len().checked_sub(NAMED).filter(|more| *more > 0) {
        notes.push(format!("{label}: {more} more cases are not sound"));
    }
    let answer = |own: &llmscen_core::search::SearchReport| {
        let answer = own.finding.answer.map_or_else(|| "nothing".to_owned(), |answer| answer.to_string());
        format!("{label}: a search, which found {answer}; its probes are compared where both have the same")
    };
    notes.extend(report.searches.iter().map(answer));
    notes
}

fn twins(base: &Run, other: &Run) -> Option<String> {
    let same = !base.report.manifest.run_id.is_empty() && base.report.manifest.run_id == other.report.manifest.run_id;
    same.then(|| format!("{} and {} are the same run", base.label, other.label))
}

fn circumstances(base: &Run, other: &Run) -> Vec<String> {
    let (a, b) = (&base.report.manifest, &other.report.manifest);
    let machine = |own: &llmscen_core::manifest::Manifest| {
        let machine = &own.machine;
        format!("{} ({}, {} cores, {} {})", machine.host, machine.cpu, machine.cores, machine.os, machine.kernel)
    };
    let facts = [
        ("seed", a.seed.to_string(), b.seed.to_string()),
        ("version of llmscen", a.tool_version.clone(), b.tool_version.clone()),
        ("machine", machine(a), machine(b)),
    ];
    let differ = facts.into_iter().filter(|(_, a, b)| a != b);
    let mut notes: Vec<String> = differ.map(|(what, a, b)| format!("{what} of {}: {a} → {b}", other.label)).collect();
    for (url, told) in &b.targets {
        if let Some(before) = a.targets.get(url).filter(|before| *before != told) {
            notes.push(format!("server of {} at {url}: {before} → {told}", other.label));
        }
    }
    notes
}

/// Cases whose limits are ruled otherwise than before.
fn turned(base: &Run, other: &Run) -> Vec<String> {
    let twin = |case: &CaseReport| base.report.cases.iter().find(|own| own.id == case.id).map(worst);
    let turned = other.report.cases.iter().filter_map(|case| {
        let (before, now) = (twin(case)?, worst(case));
        (before != now)
            .then(|| format!("{}: verdict {} in {}, {} in {}", case.id, word(before), base.label, word(now), other.label))
    });
    turned.collect()
}

fn word(ruling: Option<Ruling>) -> &'static str {
    ruling.map_or("none", Ruling::name)
}

fn worst(case: &CaseReport) -> Option<Ruling> {
    let severity = |ruling: &Ruling| match ruling {
        Ruling::Pass => 0,
        Ruling::Inconclusive => 1,
        Ruling::Fail => 2,
        Ruling::Invalid => 3,
    };
    let audit = (case.verdicts.is_empty() && case.is_invalid()).then_some(Ruling::Invalid);
    case.verdicts.iter().map(|verdict| verdict.ruling).chain(audit).max_by_key(severity)
}

fn alone(comparison: &Comparison) -> Vec<String> {
    let of = |side: &String| {
        let ids: Vec<&str> = comparison.alone.iter().filter(|(label, _)| label == side).map(|(_, id)| id.as_str()).collect();
        let count = if ids.len() == 1 {
            "a case without a counterpart".to_owned()
        } else {
            format!("{} cases without a counterpart", ids.len())
        };
        (!ids.is_empty()).then(|| format!("{side} has {count}: {}", ids.join("  ")))
    };
    comparison.sides.iter().filter_map(of).collect()
}

/// Why a figure is unknown, by reason and with the first cases.
fn unknown(comparison: &Comparison) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for contrast in &comparison.contrasts {
        let Some(note) = contrast.note.as_deref() else { continue };
        let name = format!("{} of {} in {}", contrast.measure, contrast.case, labels::label(comparison, contrast.run));
        match reasons.iter_mut().find(|(reason, _)| *reason == note) {
            Some((_, names)) => names.push(name),
            None => reasons.push((note, vec![name])),
        }
    }
    let told = |(reason, names): (&str, Vec<String>)| {
        let more = names.len().checked_sub(NAMED).filter(|more| *more > 0).map(|more| format!(" and {more} more"));
        let named: Vec<String> = names.into_iter().take(NAMED).collect();
        format!("{}{}: {reason}", named.join(", "), more.unwrap_or_default())
    };
    reasons.into_iter().map(told).collect()
}

/// What a case measured, in short: `300 of 300 ok, 12.4 req/s`.
pub(super) fn scope(case: &CaseReport) -> String {
    use llmscen_core::metric::Metric::RequestThroughput;
    let rate = case.scalars.get(&RequestThroughput).map(|rate| format!(", {}", value(*rate, RequestThroughput.unit())));
    format!("{} of {} ok{}", case.counts.ok, case.counts.scheduled, rate.unwrap_or_default())
}
