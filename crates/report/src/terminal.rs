//! What a run prints in the end, and a plan before it: tables for a terminal, plain lines elsewhere.

use crate::format::{ABSENT, against, millis, percent, title, unit_of, value};
use crate::headline;
use crate::missing_values::mark;
use crate::relative;
use crate::search::planned;
use crate::sheet::{remark, subject_mark};
use crate::table::{Cell, Column, Screen, Tint, render};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::load::{Load, Warmup};
use llmscen_core::metric::Metric;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::{CaseReport, Report, RunVerdict};
use llmscen_core::sample::Distribution;
use llmscen_core::units::Unit;
use std::collections::BTreeMap;

const SLO: [Column; 7] = [
    Column::words("VERDICT", 0),
    Column::words("CASE", 1),
    Column::words("SLO", 0).at_least(24),
    Column::numbers("OBSERVED", 0),
    Column::numbers("BOUND", 4),
    Column::numbers("N", 3),
    Column::words("NOTE", 2),
];

const CASES: [Column; 18] = [
    Column::words("CASE", 0),
    Column::numbers("OK", 0),
    Column::numbers("ERRORS", 2),
    Column::numbers("TIME", 8),
    Column::numbers("REQ/S", 3),
    Column::numbers("OUT TOK/S", 0),
    Column::numbers("IN TOK", 9),
    Column::numbers("OUT TOK", 10),
    Column::numbers("TTFT MEAN", 6),
    Column::numbers("TTFT P50", 4),
    Column::numbers("TTFT P99", 0),
    Column::numbers("ITL P50", 11),
    Column::numbers("ITL P99", 1),
    Column::numbers("TPOT MEAN", 14),
    Column::numbers("TPOT P50", 13),
    Column::numbers("E2E MEAN", 7),
    Column::numbers("E2E P50", 12),
    Column::numbers("E2E P99", 5),
];

const PLAN: [Column; 5] = [
    Column::words("CASE", 0),
    Column::words("LOAD", 0),
    Column::numbers("REQUESTS", 0),
    Column::numbers("WARM-UP", 1),
    Column::numbers("SLOS", 2),
];

/// Every ruling, one a line. `width`: columns of the terminal, None where there is none.
pub fn slo_table(report: &Report, width: Option<usize>, color: bool) -> String {
    let all = report.cases.iter().flat_map(|case| case.verdicts.iter().map(move |verdict| slo_row(case, verdict)));
    render(&SLO, &all.collect::<Vec<_>>(), Screen { width, color })
}

/// The verdict on the run and what it rests on, in one line.
pub fn verdict_line(report: &Report, color: bool) -> String {
    let word = match report.verdict {
        RunVerdict::Pass => Tint::Green,
        RunVerdict::Fail | RunVerdict::Error => Tint::Red,
        RunVerdict::Inconclusive | RunVerdict::Invalid => Tint::Yellow,
    };
    let shown = headline::word(report.verdict);
    let shown = if color { word.wrap(shown) } else { shown.to_owned() };
    format!("{shown}: {}\n", headline::reason(report))
}

fn slo_row(case: &CaseReport, verdict: &Verdict) -> Vec<Cell> {
    let (limit, unit, mark) = (verdict.check.limit, unit_of(verdict), subject_mark(case, verdict));
    let figure =
        |value: Option<f64>| value.map_or_else(|| ABSENT.to_owned(), |_| format!("{mark}{}", against(value, limit, unit)));
    vec![
        (verdict.ruling.name().to_uppercase(), tint(verdict.ruling)),
        dull(case.id.clone()),
        dull(title(&verdict.check)),
        (figure(verdict.observed), tint(verdict.ruling)),
        dull(figure(verdict.bound)),
        dull(verdict.n.to_string()),
        dull(
            relative::words(&verdict.check)
                .into_iter()
                .chain(Some(remark(verdict)).filter(|own| !own.is_empty()))
                .collect::<Vec<_>>()
                .join("; "),
        ),
    ]
}

fn tint(ruling: Ruling) -> Tint {
    match ruling {
        Ruling::Pass => Tint::Green,
        Ruling::Fail => Tint::Red,
        Ruling::Inconclusive | Ruling::Invalid => Tint::Yellow,
    }
}

fn dull(text: String) -> Cell {
    (text, Tint::None)
}

/// Every case, one a line, and below it the entries of its mix. `width`: columns of the terminal, None where there is none.
pub fn case_table(report: &Report, width: Option<usize>, color: bool) -> String {
    let rows = report.cases.iter().flat_map(|case| std::iter::once(case_row(case)).chain(entry_rows(case)));
    render(&CASES, &rows.collect::<Vec<_>>(), Screen { width, color })
}

fn case_row(case: &CaseReport) -> Vec<Cell> {
    let figures = (&case.scalars, &case.distributions);
    row(case, (case.id.clone(), format!("{}/{}", case.counts.ok, case.counts.scheduled)), figures)
}

fn entry_rows(case: &CaseReport) -> impl Iterator<Item = Vec<Cell>> {
    let entries = case.groups.iter().filter(|group| group.entry);
    entries.map(move |own| {
        let figures = (&own.scalars, &own.distributions);
        row(case, (format!("{}: {}", case.id, own.name), format!("{}/{}", own.ok, own.scheduled)), figures)
    })
}

/// The figures of a case or of a part of it.
type Figures<'a> = (&'a BTreeMap<Metric, f64>, &'a BTreeMap<Metric, Distribution>);

fn row(case: &CaseReport, (name, counts): (String, String), (scalars, distributions): Figures<'_>) -> Vec<Cell> {
    let show = |metric: Metric, found: Option<f64>| {
        let text = |found| {
            format!(
                "{}{}",
                mark(case, metric),
                value(found, metric.unit()).replace(" tok/s", "").replace(" req/s", "").replace(" tok", "")
            )
        };
        dull(found.map_or_else(|| ABSENT.to_owned(), text))
    };
    let scalar = |metric| show(metric, scalars.get(&metric).copied());
    let quantile = |metric, share| show(metric, distributions.get(&metric).and_then(|own| own.quantile(share)));
    let mean = |metric| show(metric, distributions.get(&metric).map(|own| own.mean));
    let window = scalars.get(&Metric::Window).or_else(|| case.scalars.get(&Metric::Window)).copied();
    let errors = scalars.get(&Metric::ErrorRate).copied();
    let bad = if errors.unwrap_or(0.0) > 0.0 { Tint::Red } else { Tint::None };
    vec![
        dull(name),
        dull(counts),
        (errors.map_or_else(|| ABSENT.to_owned(), percent), bad),
        show(Metric::Window, window),
        scalar(Metric::RequestThroughput),
        scalar(Metric::OutputTps),
        mean(Metric::PromptTokens),
        mean(Metric::OutputTokens),
        mean(Metric::Ttft),
        quantile(Metric::Ttft, 0.50),
        quantile(Metric::Ttft, 0.99),
        quantile(Metric::Itl, 0.50),
        quantile(Metric::Itl, 0.99),
        mean(Metric::Tpot),
        quantile(Metric::Tpot, 0.50),
        mean(Metric::E2e),
        quantile(Metric::E2e, 0.50),
        quantile(Metric::E2e, 0.99),
    ]
}

/// The cases of a plan, one a line; of a search, the one with the least load. `width`: columns of the terminal, None where there is none.
pub fn plan_table(plan: &Plan, width: Option<usize>, color: bool) -> String {
    let begins = |index: &usize| plan.quests.is_empty() || plan.quests.iter().any(|quest| quest.first == *index);
    let rows = (0..plan.cases.len()).filter(begins).filter_map(|index| Some(plan_row(plan.cases.get(index)?)));
    let table = render(&PLAN, &rows.collect::<Vec<_>>(), Screen { width, color });
    match plan.quests.first() {
        Some(quest) => table + &planned(quest, plan.quests.len()),
        None => table,
    }
}

fn plan_row(case: &Case) -> Vec<Cell> {
    let load = [Some(load_words(&case.load)), case.mix_words()].into_iter().flatten().collect::<Vec<_>>().join("; ");
    let cells = [case.id.clone(), load, extent(&case.load), warmup(&case.load), case.checks.len().to_string()];
    cells.map(dull).to_vec()
}

fn load_words(load: &Load) -> String {
    let cap = load.max_in_flight.map(|cap| format!(", at most {cap} in flight")).unwrap_or_default();
    let spread = if load.spread.0 == 0 { String::new() } else { format!(", started over {}", millis(load.spread.millis())) };
    format!("{}{spread}{cap}", load.shape)
}

/// How much is measured: a count, a span, or the first of both.
fn extent(load: &Load) -> String {
    let count = load.requests.map(|count| count.to_string());
    let span = load.lasts().map(|span| millis(span.millis()));
    count.into_iter().chain(span).collect::<Vec<_>>().join(" or ")
}

fn warmup(load: &Load) -> String {
    match load.warmup {
        Warmup::Requests(count) => count.to_string(),
        Warmup::Span(span) => value(span.secs(), Unit::Seconds),
    }
}

#[cfg(test)]
mod wide;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failing, no_data, report_of, sweep};
    use llmscen_core::load::{Arrival, Shape};
    use llmscen_core::units::Nanos;

    #[test]
    fn rulings_in_a_wide_terminal() {
        let report = report_of(vec![failing(), no_data()], RunVerdict::Fail, 1);
        insta::assert_snapshot!(slo_table(&report, Some(120), false), @r"
        VERDICT  CASE            SLO               OBSERVED   BOUND    N  NOTE
        ───────────────────────────────────────────────────────────────────────────────────
        FAIL     concurrency=64  ttft.p99 < 500ms    1.33 s  1.41 s  240
        FAIL     concurrency=64  error_rate < 1%         0%   1.24%  240  needs 299 samples
        FAIL     base            ttft.p99 < 500ms       n/a     n/a    0  no data
        ");
    }

    #[test]
    fn a_limit_stays_readable_in_a_narrow_terminal() {
        let mut case = failing();
        case.id = "concurrency=64,temperature=0.5".into();
        let report = report_of(vec![case], RunVerdict::Fail, 1);
        for width in [70, 80] {
            let table = slo_table(&report, Some(width), false);
            assert!(table.contains("ttft.p99 < 500ms") && table.contains("error_rate < 1%"), "{table}");
        }
    }

    #[test]
    fn cases_elsewhere_than_in_a_terminal() {
        let report = report_of(vec![failing(), no_data()], RunVerdict::Fail, 1);
        insta::assert_snapshot!(case_table(&report, None, false), @r"
        CASE                 OK  ERRORS    TIME  REQ/S  OUT TOK/S  IN TOK  OUT TOK  TTFT MEAN  TTFT P50  TTFT P99  ITL P50  ITL P99  TPOT MEAN  TPOT P50  E2E MEAN  E2E P50  E2E P99
        concurrency=64  229/240   4.58%  20.8 s   11.5       1475     512      128     728 ms    703 ms    1.33 s  37.0 ms  56.8 ms    38.0 ms   37.0 ms    5.55 s   5.42 s   7.95 s
        base                0/8    100%     n/a    n/a        n/a     n/a      n/a        n/a       n/a       n/a      n/a      n/a        n/a       n/a       n/a      n/a      n/a
        ");
    }

    #[test]
    fn every_width_is_kept() {
        let report = sweep(12);
        for width in 60..=160 {
            for table in [slo_table(&report, Some(width), false), case_table(&report, Some(width), false)] {
                assert!(table.lines().all(|line| line.chars().count() <= width), "{width}\n{table}");
            }
        }
        assert!(slo_table(&report, Some(80), true).contains("\u{1b}[32mPASS\u{1b}[0m"));
    }

    #[test]
    fn the_last_line_is_the_verdict_and_its_reason() {
        let report = report_of(vec![no_data()], RunVerdict::Error, 3);
        let reason = "no request succeeded: 8 of 8 in `base` failed with `connect`: connection refused.\n";
        assert_eq!(verdict_line(&report, false), format!("ERROR: {reason}"));
        assert_eq!(verdict_line(&report, true), format!("\u{1b}[31mERROR\u{1b}[0m: {reason}"));
    }

    #[test]
    fn a_load_says_how_much_and_how_long() {
        let shape = Shape::Open { rate: 8.0, arrival: Arrival::Poisson };
        let load = Load {
            shape,
            requests: Some(200),
            duration: Some(Nanos::from_millis(60_000)),
            warmup: Warmup::Span(Nanos::from_millis(5000)),
            graceful_stop: Nanos::ZERO,
            max_in_flight: Some(64),
            stop_when_saturated: false,
            spread: Nanos::ZERO,
        };
        assert_eq!(
            (load_words(&load), extent(&load), warmup(&load)),
            ("8/s poisson, at most 64 in flight".into(), "200 or 60 s".into(), "5 s".into())
        );
        let closed = Load { shape: Shape::Burst, duration: None, warmup: Warmup::Requests(16), max_in_flight: None, ..load };
        assert_eq!((load_words(&closed), extent(&closed), warmup(&closed)), ("burst".into(), "200".into(), "16".into()));
    }
}
