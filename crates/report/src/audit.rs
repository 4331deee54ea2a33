//! The self-audit of the load generator, and the objectives whose verdict it may have changed.

use crate::format::{ABSENT, against, check_title, millis, optional, percent};
use crate::table::{Cell, Column, Columns, Emphasis, Table};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::report::{Audit, CaseReport, InvalidReason, ObjectiveAudit, Report};
use llmscen_core::units::Unit;

/// The self-audit of the cases.
pub(crate) fn audit_table<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    type Indexed<'a> = (usize, &'a CaseReport);
    let figure = |unit: Unit, stat: &'static str, of: fn(&Audit) -> Option<f64>| {
        move |(_, case): &Indexed<'_>| {
            let value = of(&case.audit);
            Cell::figure(optional(value, unit), value).with_stat("audit", stat)
        }
    };
    let millis = |stat, of| figure(Unit::Millis, stat, of);
    let share = |stat, of| figure(Unit::Share, stat, of);
    let shown = |head: &str| Column::number().documents(head);
    Columns::<Indexed<'_>>::new()
        .add_case(Column::text().documents("Case"))
        .add(
            Column::text().documents("Verdicts"),
            |(_, case)| match count_invalid_verdicts(case) {
                (text, false) => Cell::verdict(&text, Emphasis::Pass).in_markdown(text),
                (text, true) => {
                    Cell::verdict(&text, Emphasis::Invalid).in_markdown(format!("**{text}**"))
                }
            },
        )
        .add(
            shown("Send delay p50"),
            millis("schedule_lag_ms_p50", |audit| audit.schedule_lag_ms_p50),
        )
        .add(
            shown("Send delay p99"),
            millis("schedule_lag_ms_p99", |audit| audit.schedule_lag_ms_p99),
        )
        .add(
            shown("Send delay max"),
            millis("schedule_lag_ms_max", |audit| audit.schedule_lag_ms_max),
        )
        .add(
            shown("Achieved / offered"),
            share("achieved_over_offered", |audit| audit.achieved_over_offered),
        )
        .add(shown("Users idle"), share("idle", |audit| audit.idle))
        .add(
            shown("Workers stalled"),
            share("stalled", |audit| audit.stalled),
        )
        .add(
            shown("Stall max"),
            millis("stall_ms_max", |audit| audit.stall_ms_max),
        )
        .add(
            shown("CPU per core"),
            share("cpu_share_max", |audit| audit.cpu_share_max),
        )
        .add(shown("Dropped"), |(_, case)| {
            Cell::count(case.audit.dropped).with_stat("audit", "dropped")
        })
        .add(shown("Held"), |(_, case)| {
            Cell::count(case.audit.held).with_stat("audit", "held")
        })
        .add(Column::text().documents("Reasons"), |(_, case)| {
            Cell::prose(&InvalidReason::joined(&case.audit.reasons))
        })
        .table_by_case(cases)
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
    type Doubtful<'a> = (usize, &'a CaseReport, (&'a ObjectiveAudit, &'a Verdict));
    let doubtful = report.cases.iter().enumerate().flat_map(|(index, case)| {
        let audited = case.audit.objectives.iter().zip(&case.verdicts);
        let doubtful = audited.filter(|(audit, _)| !audit.reasons.is_empty() || is_doubtful(audit));
        doubtful.map(move |audited| (index, case, audited))
    });
    let judged = |verdict: &Verdict, ruling: Option<Ruling>, observed: Option<f64>| match ruling {
        Some(ruling) => {
            let value = against(observed, verdict.check.limit, verdict.check.subject.unit());
            Cell::prose(&format!("{} {value}", ruling.name().to_uppercase()))
        }
        None => Cell::prose(ABSENT),
    };
    let shown = |head: &str| Column::text().documents(head);
    Columns::<Doubtful<'_>>::new()
        .add_case(shown("Case"))
        .add(shown("Objective"), |(.., (_, verdict))| {
            Cell::code(&check_title(&verdict.check))
        })
        .add(shown("As measured"), |(.., (audit, verdict))| {
            judged(verdict, Some(audit.measured), audit.observed[0])
        })
        .add(shown("Slowest possible"), |(.., (audit, verdict))| {
            judged(verdict, audit.slow, audit.observed[1])
        })
        .add(shown("Fastest possible"), |(.., (audit, verdict))| {
            judged(verdict, audit.fast, audit.observed[2])
        })
        .add(shown("Reason"), |(.., (audit, _))| {
            Cell::prose(&InvalidReason::joined(&audit.reasons))
        })
        .table_by_case(doubtful)
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
