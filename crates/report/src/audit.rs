//! The self-audit of every case, and the objectives whose verdict it could have flipped.

use crate::format::{ABSENT, against, bytes, millis, number, optional, percent, title};
use crate::table::{Cell, Column, Emphasis, Row, Table};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::report::{CaseReport, ObjectiveAudit, Report};
use llmscen_core::units::Unit;

/// The self-audit of these cases.
pub(crate) fn audit<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
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
        Column::number().documents("CPU of a core"),
        Column::number().documents("Memory"),
        Column::number().documents("Events/s"),
        Column::number().documents("In/s"),
        Column::number().documents("Dropped"),
        Column::text().documents("Reasons"),
    ];
    Table::new(columns, cases.map(|(index, case)| audit_row(index, case)).collect())
}

fn audit_row(index: usize, case: &CaseReport) -> Row {
    let audit = &case.audit;
    let millis = |value, stat| Cell::figure(optional(value, Unit::Millis), value).of("audit", stat);
    let share = |value, stat| Cell::figure(optional(value, Unit::Share), value).of("audit", stat);
    let size = |value: Option<f64>, stat| Cell::figure(value.map_or_else(|| ABSENT.to_owned(), bytes), value).of("audit", stat);
    let verdicts = match audited_verdicts(case) {
        (text, false) => Cell::judgement(&text, Emphasis::Pass).in_markdown(text),
        (text, true) => Cell::judgement(&text, Emphasis::Invalid).in_markdown(format!("**{text}**")),
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
        size(audit.memory_peak.map(|memory| memory as f64), "memory_peak"),
        Cell::figure(audit.events_per_s.map_or_else(|| ABSENT.to_owned(), number), audit.events_per_s)
            .of("audit", "events_per_s"),
        size(audit.bytes_in_per_s, "bytes_in_per_s"),
        Cell::count(audit.dropped).of("audit", "dropped"),
        Cell::prose(&audit.reasons.join("; ")),
    ];
    Row::new(cells).case(&case.id)
}

/// What the audit means for the verdicts of a case, and whether any is INVALID.
fn audited_verdicts(case: &CaseReport) -> (String, bool) {
    let invalid = case.verdicts.iter().filter(|verdict| verdict.ruling == Ruling::Invalid).count();
    match (case.verdicts.len(), invalid) {
        (0, _) if !case.is_invalid() => ("no objective".to_owned(), false),
        (0, _) => ("INVALID".to_owned(), true),
        (_, 0) => ("all valid".to_owned(), false),
        (all, invalid) => (format!("{invalid} of {all} INVALID"), true),
    }
}

/// What the self-audits accept.
pub(crate) fn accepted_limits(report: &Report) -> String {
    let limits = &report.audit;
    format!(
        "at least {} of the offered rate sent, users idle for at most {} of their time, workers stalled for at most {} of the time, \
         at most {} of a core, at most {} of unique prompts cached. Send delays up to {} at p99 and stalls up to {} do not count",
        percent(limits.achieved),
        percent(limits.idle),
        percent(limits.stalled),
        percent(limits.cpu),
        percent(limits.cache),
        millis(limits.lag_p99.millis()),
        millis(limits.stall_p99.millis())
    )
}

/// The objectives that are INVALID, or whose verdict is not the same with the server as slow and as fast as the load
/// generator's stalls and delays allow.
pub(crate) fn doubtful_objectives(report: &Report) -> Table {
    let columns = ["Case", "Objective", "As measured", "Slowest possible", "Fastest possible", "Why it is INVALID"];
    let all = report.cases.iter().enumerate().flat_map(|(index, case)| {
        let judged = case.audit.objectives.iter().zip(&case.verdicts);
        judged.map(move |(audit, verdict)| (index, case, audit, verdict))
    });
    let doubtful = all.filter(|(_, _, audit, _)| !audit.reasons.is_empty() || flips(audit));
    let row = |(index, case, audit, verdict): (usize, &CaseReport, &ObjectiveAudit, &Verdict)| {
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
            Cell::code(&title(&verdict.check)),
            judged(Some(audit.measured), measured),
            judged(audit.slow, slow),
            judged(audit.fast, fast),
            Cell::prose(&audit.reasons.join("; ")),
        ];
        Row::new(cells).case(&case.id)
    };
    Table::new(columns.map(|head| Column::text().documents(head)).to_vec(), doubtful.map(row).collect())
}

fn flips(audit: &ObjectiveAudit) -> bool {
    [audit.slow, audit.fast].into_iter().flatten().any(|ruling| ruling != audit.measured)
}

/// How many objectives were judged at both ends too, where any were.
pub(crate) fn judged_three_times(report: &Report) -> Option<String> {
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
