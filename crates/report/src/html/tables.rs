//! The tables over all cases.

use crate::doubt;
use crate::format::{ABSENT, against, bytes, number, optional, percent, title, unit_of, value};
use crate::html::cells::{Cell, Row, Table, quantile, scalar};
use crate::server;
use crate::sheet::{AUDIT, remark, subject_mark};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, FailureExample, Report};
use llmscen_core::server::Startup;
use llmscen_core::units::{Nanos, Unit};

/// The fragment of a case's section.
pub fn anchor(index: usize) -> String {
    format!("case-{index}")
}

fn link(index: usize, case: &CaseReport) -> Cell {
    Cell::code(&case.id).leading(anchor(index))
}

fn row(case: &CaseReport, cells: Vec<Cell>) -> Row {
    Row { case: Some(case.id.clone()), cells, ..Row::default() }
}

/// The rulings that pass `wanted`, in the order of the plan; or the gravest first.
pub fn slo(report: &Report, gravest_first: bool, wanted: impl Fn(&Verdict) -> bool) -> Table {
    let heads = ["Case", "SLO", "Verdict", ">Observed", ">Bound", ">Limit", ">n", "Note"];
    let all = report.cases.iter().enumerate();
    let all = all.flat_map(|(index, case)| case.verdicts.iter().map(move |verdict| (index, case, verdict)));
    let mut chosen: Vec<_> = all.filter(|(.., verdict)| wanted(verdict)).collect();
    if gravest_first {
        chosen.sort_by_key(|(.., verdict)| GRAVEST.iter().position(|ruling| *ruling == verdict.ruling));
    }
    Table::new(&heads, chosen.into_iter().map(|(index, case, verdict)| slo_row(index, case, verdict)).collect()).sorting()
}

/// Rulings, the gravest first.
const GRAVEST: [Ruling; 4] = [Ruling::Invalid, Ruling::Fail, Ruling::Inconclusive, Ruling::Pass];

fn slo_row(index: usize, case: &CaseReport, verdict: &Verdict) -> Row {
    let (limit, unit, mark) = (verdict.check.limit, unit_of(verdict), subject_mark(case, verdict));
    let figure = |value: Option<f64>, stat: &str| {
        let text = value.map_or_else(|| ABSENT.to_owned(), |_| format!("{mark}{}", against(value, limit, unit)));
        Cell::figure(text, value).of("", stat)
    };
    let cells = vec![
        link(index, case),
        Cell::code(&title(&verdict.check)),
        Cell::prose(&format!("{} {}", sign(verdict.ruling), verdict.ruling.name())).toned(verdict.ruling.name()),
        figure(verdict.observed, "observed"),
        figure(verdict.bound, "bound"),
        Cell::figure(against(Some(limit), limit, unit), Some(limit)).of("", "limit"),
        count(verdict.n, "", "n"),
        Cell::prose(&remark(verdict)),
    ];
    Row { slo: Some(verdict.check.expr.clone()), ..row(case, cells) }
}

/// A sign that needs no colour.
pub fn sign(ruling: Ruling) -> &'static str {
    match ruling {
        Ruling::Pass => "✓",
        Ruling::Fail => "✗",
        Ruling::Inconclusive => "?",
        Ruling::Invalid => "⚠",
    }
}

/// A whole number.
pub fn count(value: u64, metric: &str, stat: &str) -> Cell {
    Cell::figure(value.to_string(), Some(value as f64)).of(metric, stat)
}

/// One row per case.
pub fn cases(report: &Report) -> Table {
    let heads = [
        "Case",
        "Load",
        "SLOs",
        ">Requests",
        ">ok",
        ">Errors",
        ">req/s",
        ">Output tok/s",
        ">TTFT p50, ms",
        ">TTFT p95, ms",
        ">TTFT p99, ms",
        ">ITL p50, ms",
        ">ITL p99, ms",
        ">TPOT p50, ms",
        ">E2E p50, ms",
        ">E2E p99, ms",
    ];
    let rows = report.cases.iter().enumerate().map(|(index, case)| case_row(index, case)).collect();
    Table::new(&heads, rows).sorting()
}

fn case_row(index: usize, case: &CaseReport) -> Row {
    let errors = case.scalars.get(&Metric::ErrorRate).copied();
    let error_cell = Cell::figure(errors.map_or_else(|| ABSENT.to_owned(), percent), errors).of("error_rate", "");
    let mut cells = vec![link(index, case), Cell::prose(&case.load), rulings(case)];
    cells.extend([count(case.counts.scheduled, "counts", "scheduled"), count(case.counts.ok, "counts", "ok")]);
    cells.push(if case.counts.ok < case.counts.scheduled { error_cell.toned("fail") } else { error_cell });
    cells.extend([scalar(case, Metric::RequestThroughput), scalar(case, Metric::OutputTps)]);
    let quantiles = [
        (Metric::Ttft, 0.50),
        (Metric::Ttft, 0.95),
        (Metric::Ttft, 0.99),
        (Metric::Itl, 0.50),
        (Metric::Itl, 0.99),
        (Metric::Tpot, 0.50),
        (Metric::E2e, 0.50),
        (Metric::E2e, 0.99),
    ];
    cells.extend(quantiles.map(|(metric, share)| quantile(case, metric, share)));
    row(case, cells)
}

/// How many limits of a case hold, in the colour of the worst.
fn rulings(case: &CaseReport) -> Cell {
    let (all, of) = (case.verdicts.len(), |ruling| case.verdicts.iter().filter(|own| own.ruling == ruling).count());
    let passed = of(Ruling::Pass);
    let worst = GRAVEST.into_iter().find(|ruling| *ruling != Ruling::Pass && of(*ruling) > 0);
    match worst {
        _ if all == 0 => Cell::prose("none"),
        None => Cell::prose(&format!("{} {passed} / {all}", sign(Ruling::Pass))).toned("pass"),
        Some(worst) => Cell::prose(&format!("{} {passed} / {all}", sign(worst))).toned(worst.name()),
    }
}

/// Failures by kind, an example each.
pub fn failures<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let heads = ["Case", "Kind", ">Count", "First message", "Where"];
    let rows = cases.flat_map(|(index, case)| case.failures.iter().map(move |failure| failure_row(index, case, failure)));
    Table::new(&heads, rows.collect())
}

fn failure_row(index: usize, case: &CaseReport, failure: &FailureExample) -> Row {
    let kind = failure.kind.name();
    let seen = count(failure.count, "failures", kind);
    row(
        case,
        vec![link(index, case), Cell::code(kind).toned("fail"), seen, Cell::code(&failure.message), Cell::prose(&failure.at)],
    )
}

/// Requests that were tried again and users who left, of the cases in which there were any.
pub fn manners(report: &Report) -> Table {
    let heads = ["Case", ">Retries", ">Requests tried again", ">Abandoned", ">Requests"];
    let some = report.cases.iter().enumerate().filter(|(_, case)| case.counts.retries + case.counts.abandoned > 0);
    let cells = |(index, case): (usize, &CaseReport)| {
        let counts = &case.counts;
        let figures = [("retries", counts.retries), ("retried", counts.retried), ("abandoned", counts.abandoned)];
        let figures = figures.into_iter().chain([("scheduled", counts.scheduled)]);
        let figures = figures.map(|(stat, value)| count(value, "counts", stat));
        row(case, [link(index, case)].into_iter().chain(figures).collect())
    };
    Table::new(&heads, some.map(cells).collect())
}

/// The starts of servers under management.
pub fn servers(report: &Report) -> Table {
    let cells = |(index, case, own): (usize, &CaseReport, &Startup)| {
        let figure = |(name, span): (&'static str, Option<Nanos>)| {
            Cell::figure(server::span(span), span.map(Nanos::secs)).of("startup", name)
        };
        let pid = count(u64::from(own.pid), "startup", "pid");
        let words = [Cell::prose(&own.log), Cell::code(&own.command)];
        row(case, [link(index, case), pid].into_iter().chain(server::spans(own).map(figure)).chain(words).collect())
    };
    Table::new(&server::HEADS, server::starts(report).map(cells).collect())
}

/// The self-audit of these cases.
pub fn audit<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    Table::new(&AUDIT, cases.map(|(index, case)| audit_row(index, case)).collect())
}

fn audit_row(index: usize, case: &CaseReport) -> Row {
    let audit = &case.audit;
    let figure = |text: String, raw, stat: &str| Cell::figure(text, raw).of("audit", stat);
    let span = |raw, stat| figure(optional(raw, Unit::Millis), raw, stat);
    let share = |raw, stat| figure(optional(raw, Unit::Share), raw, stat);
    let size = |raw: Option<f64>, stat| figure(raw.map_or_else(|| ABSENT.to_owned(), bytes), raw, stat);
    let events = audit.events_per_s.map_or_else(|| ABSENT.to_owned(), number);
    let (sound, tone) = match doubt::standing(case) {
        (text, false) => (format!("✓ {text}"), "pass"),
        (text, true) => (format!("⚠ {text}"), "invalid"),
    };
    let cells = vec![
        link(index, case),
        Cell::prose(&sound).toned(tone),
        span(audit.schedule_lag_ms_p50, "schedule_lag_ms_p50"),
        span(audit.schedule_lag_ms_p99, "schedule_lag_ms_p99"),
        span(audit.schedule_lag_ms_max, "schedule_lag_ms_max"),
        share(audit.achieved_over_offered, "achieved_over_offered"),
        share(audit.idle, "idle"),
        share(audit.stalled, "stalled"),
        span(audit.stall_ms_max, "stall_ms_max"),
        share(audit.cpu_share_max, "cpu_share_max"),
        size(audit.memory_peak.map(|memory| memory as f64), "memory_peak"),
        figure(events, audit.events_per_s, "events_per_s"),
        size(audit.bytes_in_per_s, "bytes_in_per_s"),
        count(audit.dropped, "audit", "dropped"),
        Cell::prose(&audit.reasons.join("; ")),
    ];
    row(case, cells)
}

/// The objectives that the load generator could have flipped.
pub fn doubts(report: &Report) -> Table {
    let row = |own: doubt::Doubt<'_>| {
        let ends = own.ends.iter().map(|end| Cell::prose(end));
        let cells = [Cell::code(&own.case.id), Cell::code(&own.objective)].into_iter().chain(ends).chain([Cell::prose(&own.why)]);
        row(own.case, cells.collect())
    };
    Table::new(&doubt::HEADS, doubt::doubts(report).into_iter().map(row).collect())
}

/// What the run was, in pairs of a name and its value.
pub fn environment(report: &Report) -> Table {
    let (manifest, machine) = (&report.manifest, &report.manifest.machine);
    let elapsed = manifest.elapsed_s.map(|secs| value(secs, Unit::Seconds)).unwrap_or_default();
    let size =
        if machine.cores > 0 { format!("{} cores, {}", machine.cores, bytes(machine.memory as f64)) } else { String::new() };
    let seed = manifest.seed.to_string();
    let pairs = [
        ("Run", &manifest.run_id),
        ("Started", &manifest.started_at),
        ("Took", &elapsed),
        ("Seed", &seed),
        ("Plan hash", &manifest.plan_id),
        ("llmscen", &manifest.tool_version),
        ("Host", &machine.host),
        ("System", &machine.os),
        ("Kernel", &machine.kernel),
        ("CPU", &machine.cpu),
        ("Size", &size),
    ];
    let pair = |name: &str, cell: Cell| Row { cells: vec![Cell::prose(name), cell], ..Row::default() };
    let known = pairs.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| pair(name, Cell::code(text)));
    let targets = manifest.targets.iter().map(|(url, what)| pair("Target", Cell::code(format!("{url} {what}").trim_end())));
    let only = manifest.only.iter().map(|text| pair("Only cases with", Cell::code(text)));
    Table::new(&["What", "Value"], known.chain(targets).chain(only).collect())
}
