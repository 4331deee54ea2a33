//! Objectives whose verdict the load generator's stalls and delays could have flipped.

use crate::format::{ABSENT, against, title, unit_of};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::report::{CaseReport, ObjectiveAudit, Report};

/// The heads of the table.
pub const HEADS: [&str; 6] = ["Case", "Objective", "As measured", "Slowest possible", "Fastest possible", "Why it is INVALID"];

/// One objective in doubt.
pub struct Doubt<'a> {
    /// Its case.
    pub case: &'a CaseReport,
    /// The objective.
    pub objective: String,
    /// Verdict and value as measured, with the server as slow as the measurement allows, and as fast.
    pub ends: [String; 3],
    /// Why its verdict does not stand; empty where it does.
    pub why: String,
}

/// The objectives whose verdict is not the same at both ends, or does not stand.
pub fn doubts(report: &Report) -> Vec<Doubt<'_>> {
    let all = report.cases.iter().flat_map(|case| case.audit.objectives.iter().zip(&case.verdicts).map(move |own| (case, own)));
    all.filter(|(_, (audit, _))| !audit.reasons.is_empty() || flips(audit)).map(|(case, own)| doubt(case, own)).collect()
}

fn flips(audit: &ObjectiveAudit) -> bool {
    [audit.slow, audit.fast].into_iter().flatten().any(|ruling| ruling != audit.measured)
}

fn doubt<'a>(case: &'a CaseReport, (audit, verdict): (&ObjectiveAudit, &Verdict)) -> Doubt<'a> {
    let said = |ruling: Option<Ruling>, observed: Option<f64>| match ruling {
        Some(ruling) => format!("{} {}", ruling.name().to_uppercase(), against(observed, verdict.check.limit, unit_of(verdict))),
        None => ABSENT.to_owned(),
    };
    let [measured, slow, fast] = audit.observed;
    let ends = [said(Some(audit.measured), measured), said(audit.slow, slow), said(audit.fast, fast)];
    Doubt { case, objective: title(&verdict.check), ends, why: audit.reasons.join("; ") }
}

/// What the audit means for the verdicts of a case, and whether it spoils any.
pub fn standing(case: &CaseReport) -> (String, bool) {
    let invalid = case.verdicts.iter().filter(|verdict| verdict.ruling == Ruling::Invalid).count();
    match (case.verdicts.len(), invalid) {
        (0, _) if !case.is_invalid() => ("no objective".to_owned(), false),
        (0, _) => ("INVALID".to_owned(), true),
        (_, 0) => ("all valid".to_owned(), false),
        (all, invalid) => (format!("{invalid} of {all} INVALID"), true),
    }
}

/// How many objectives were judged at both ends too, where any were.
pub fn extent(report: &Report) -> Option<String> {
    let twice = report.cases.iter().flat_map(|case| &case.audit.objectives).filter(|audit| audit.slow.is_some());
    let (all, same) = twice.fold((0, 0), |(all, same), audit| (all + 1, same + usize::from(!flips(audit))));
    let plural = if all == 1 { "objective was" } else { "objectives were" };
    (all > 0).then(|| {
        format!(
            "{all} {plural} judged three times: as measured, and with the server as slow and as fast as the load generator's \
             stalls and delays allow. {same} of {all} had the same verdict each time."
        )
    })
}
