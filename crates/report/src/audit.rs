//! The self-audit of the load generator, and the objectives whose verdict it may have changed.

use crate::format::{ABSENT, against, check_title, millis, optional, percent};
use crate::table::{Cell, Column, Emphasis, Row, Table};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::report::{CaseReport, ObjectiveAudit, Report};
use llmscen_core::units::Unit;

/// The self-audit of the cases.
pub(crate) fn audit_table<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::text().documents("Verdicts"),
        Column::number().documents("Send delay p50"),
        Column::number().documents("Send delay p99"),
        Column::number().documents("Send delay max"),
        Column::number().documents("Achieved / offered"),
        Column::number().documents("Users idle"),
        Column::number().documents("Workers stalled"),
        Column::number().documents("Stall max"),
        Column::number().documents("CPU per core"),
        Column::number().documents("Dropped"),
        Column::number().documents("Held"),
        Column::text().documents("Reasons"),
    ];
    Table::new(
        columns,
        cases.map(|(index, case)| audit_row(index, case)).collect(),
    )
}

fn audit_row(index: usize, case: &CaseReport) -> Row {
    let audit = &case.audit;
    let millis =
        |value, stat| Cell::figure(optional(value, Unit::Millis), value).with_stat("audit", stat);
    let share =
        |value, stat| Cell::figure(optional(value, Unit::Share), value).with_stat("audit", stat);
    let verdicts = match count_invalid_verdicts(case) {
        (text, false) => Cell::verdict(&text, Emphasis::Pass).in_markdown(text),
        (text, true) => Cell::verdict(&text, Emphasis::Invalid).in_markdown(format!("**{text}**")),
    };
    let cells = vec![
        Cell::case(index, &case.id),
        verdicts,
        millis(audit.schedule_lag_ms_p50, "schedule_lag_ms_p50"),
        millis(audit.schedule_lag_ms_p99, "schedule_lag_ms_p99"),
        millis(audit.schedule_lag_ms_max, "schedule_lag_ms_max"),
        share(audit.achieved_over_offered, "achieved_over_offered"),
        share(audit.idle, "idle"),
        share(audit.stalled, "stalled"),
        millis(audit.stall_ms_max, "stall_ms_max"),
        share(audit.cpu_share_max, "cpu_share_max"),
        Cell::count(audit.dropped).with_stat("audit", "dropped"),
        Cell::count(audit.held).with_stat("audit", "held"),
        Cell::prose(&audit.reasons.join("; ")),
    ];
    Row::new(cells).case(&case.id)
}

/// How many verdicts of a case the audit invalidates, and whether it invalidates any.
fn count_invalid_verdicts(case: &CaseReport) -> (String, bool) {
    let invalid = case
        .verdicts
        .iter()
        .filter(|verdict| verdict.ruling == Ruling::Invalid)
        .count();
    match (case.verdicts.len(), invalid) {
        (0, _) if !case.is_invalid() => ("no objective".to_owned(), false),
        (0, _) => ("INVALID".to_owned(), true),
        (_, 0) => ("all valid".to_owned(), false),
        (all, invalid) => (format!("{invalid} of {all} INVALID"), true),
    }
}

/// The thresholds of the self-audit.
pub(crate) fn audit_limits(report: &Report) -> String {
    let limits = &report.audit;
    format!(
        "achieved rate at least {} of the offered rate, users idle at most {} of the time, \
         workers stalled at most {} of the time, CPU at most {} of a core, unique prompts cached \
         at most {}. Send delays up to {} at p99 and stalls up to {} are ignored",
        percent(limits.achieved),
        percent(limits.idle),
        percent(limits.stalled),
        percent(limits.cpu),
        percent(limits.cache),
        millis(limits.lag_p99.millis()),
        millis(limits.stall_p99.millis())
    )
}

/// The objectives that are INVALID, or whose verdict depends on how much of the latency the load generator caused:
/// one row compares the measured verdict with those for the slowest and the fastest server that its stalls and delays
/// allow.
pub(crate) fn doubtful_objectives(report: &Report) -> Table {
    let columns = [
        "Case",
        "Objective",
        "As measured",
        "Slowest possible",
        "Fastest possible",
        "Reason",
    ];
    let mut rows = Vec::new();
    for (index, case) in report.cases.iter().enumerate() {
        let audited = case.audit.objectives.iter().zip(&case.verdicts);
        let doubtful = audited.filter(|(audit, _)| !audit.reasons.is_empty() || is_doubtful(audit));
        rows.extend(doubtful.map(|(audit, verdict)| doubtful_row(index, case, audit, verdict)));
    }
    Table::new(
        columns.map(|head| Column::text().documents(head)).to_vec(),
        rows,
    )
}

fn doubtful_row(index: usize, case: &CaseReport, audit: &ObjectiveAudit, verdict: &Verdict) -> Row {
    let judged = |ruling: Option<Ruling>, observed: Option<f64>| match ruling {
        Some(ruling) => {
            let value = against(observed, verdict.check.limit, verdict.check.subject.unit());
            Cell::prose(&format!("{} {value}", ruling.name().to_uppercase()))
        }
        None => Cell::prose(ABSENT),
    };
    let [measured, slow, fast] = audit.observed;
    let cells = vec![
        Cell::case(index, &case.id),
        Cell::code(&check_title(&verdict.check)),
        judged(Some(audit.measured), measured),
        judged(audit.slow, slow),
        judged(audit.fast, fast),
        Cell::prose(&audit.reasons.join("; ")),
    ];
    Row::new(cells).case(&case.id)
}

fn is_doubtful(audit: &ObjectiveAudit) -> bool {
    [audit.slow, audit.fast]
        .into_iter()
        .flatten()
        .any(|ruling| ruling != audit.measured)
}

/// How many objectives were also judged for the slowest and fastest possible server; None if none was.
pub(crate) fn judged_three_times(report: &Report) -> Option<String> {
    let judged = report
        .cases
        .iter()
        .flat_map(|case| &case.audit.objectives)
        .filter(|audit| audit.slow.is_some());
    let (all, same) = judged.fold((0, 0), |(all, same), audit| {
        (all + 1, same + usize::from(!is_doubtful(audit)))
    });
    let plural = if all == 1 {
        "objective was"
    } else {
        "objectives were"
    };
    (all > 0).then(|| {
        format!(
            "{all} {plural} judged three times: as measured, and for the slowest and the fastest \
             server that the load generator's stalls and delays allow. {same} of {all} had the \
             same verdict each time."
        )
    })
}
