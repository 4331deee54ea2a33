//! The table of the objectives and their verdicts.

use crate::cases::mark;
use crate::format::{ABSENT, against, check_title, value};
use crate::table::{Cell, Column, Columns, Screen, Table};
use llmscen_core::check::relative::Relative;
use llmscen_core::check::{Check, Ruling, Subject, Verdict};
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::units::Unit;
use serde_json::{Value, json};

/// A verdict with its case and the index of the case.
type Judged<'a> = (usize, &'a CaseReport, &'a Verdict);

/// The verdicts that `is_shown` selects, in the order of the plan.
pub(crate) fn objectives(report: &Report, is_shown: impl Fn(&Verdict) -> bool) -> Table {
    table(
        report,
        all_verdicts(report)
            .filter(|(.., verdict)| is_shown(verdict))
            .collect(),
    )
}

/// The verdicts of the case at this index.
pub(crate) fn objectives_of_case(report: &Report, index: usize) -> Table {
    table(
        report,
        all_verdicts(report)
            .filter(|(case, ..)| *case == index)
            .collect(),
    )
}

/// The order in which verdicts are shown: failed, invalid, inconclusive, passed.
pub(crate) fn severity(ruling: Ruling) -> u8 {
    match ruling {
        Ruling::Fail => 0,
        Ruling::Invalid => 1,
        Ruling::Inconclusive => 2,
        Ruling::Pass => 3,
    }
}

/// The worst verdict of a case in that order; INVALID also for a case without objectives that the audit rejects. None
/// for a valid case without objectives.
pub(crate) fn worst_ruling(case: &CaseReport) -> Option<Ruling> {
    let rejected = (case.verdicts.is_empty() && case.is_invalid()).then_some(Ruling::Invalid);
    let rulings = case.verdicts.iter().map(|verdict| verdict.ruling);
    rulings
        .chain(rejected)
        .min_by_key(|ruling| severity(*ruling))
}

fn all_verdicts(report: &Report) -> impl Iterator<Item = Judged<'_>> {
    let cases = report.cases.iter().enumerate();
    cases.flat_map(|(index, case)| {
        case.verdicts
            .iter()
            .map(move |verdict| (index, case, verdict))
    })
}

fn table(report: &Report, verdicts: Vec<Judged<'_>>) -> Table {
    let figure = |(_, case, verdict): &Judged<'_>, value: Option<f64>, stat: &str| {
        let unit = verdict.check.subject.unit();
        let text = match value {
            Some(_) => {
                let mark = subject_mark(case, verdict);
                format!("{mark}{}", against(value, verdict.check.limit, unit))
            }
            None => ABSENT.to_owned(),
        };
        Cell::figure(text, value).with_stat("", stat)
    };
    let text = Column::text;
    let number = Column::number;
    Columns::<Judged<'_>>::new()
        .add(text().terminal("VERDICT", 0), |(.., verdict)| {
            Cell::ruling(verdict.ruling)
        })
        .add(text().key("scenario"), |_| {
            Cell::prose(&report.manifest.name)
        })
        .add_case(text().documents("Case").terminal("CASE", 1).key("case"))
        .add(
            text()
                .documents("SLO")
                .terminal("SLO", 0)
                .at_least(24)
                .key("slo"),
            |(.., verdict)| Cell::code(&check_title(&verdict.check)),
        )
        .add(
            text().documents("Verdict").key("verdict"),
            |(.., verdict)| Cell::ruling(verdict.ruling),
        )
        .add(
            number()
                .documents("Observed")
                .terminal("OBSERVED", 0)
                .key("observed"),
            |judged| {
                let verdict = judged.2;
                figure(judged, verdict.observed, "observed").emphasized(verdict.ruling.into())
            },
        )
        .add(
            number()
                .documents("Bound")
                .terminal("BOUND", 4)
                .key("bound"),
            |judged| figure(judged, judged.2.bound, "bound"),
        )
        .add(number().documents("Limit").key("limit"), |(.., verdict)| {
            Cell::figure(limit_text(verdict), verdict.check.limit).with_stat("", "limit")
        })
        .add(text().key("unit"), |(.., verdict)| {
            Cell::raw(json!(unit_name(verdict)))
        })
        .add(
            number().documents("n").terminal("N", 3).key("n"),
            |(.., verdict)| Cell::count(verdict.n).with_stat("", "n"),
        )
        .add(number().key("need"), |(.., verdict)| {
            Cell::raw(json!(verdict.need))
        })
        .add(
            text().documents("Note").terminal("NOTE", 2).key("note"),
            |(.., verdict)| {
                let remark = remark(verdict);
                let shown = Some(remark.clone()).filter(|remark| !remark.is_empty());
                let notes = multiple(&verdict.check).into_iter().chain(shown);
                Cell::prose(&remark).in_terminal(notes.collect::<Vec<_>>().join("; "))
            },
        )
        .table_with(verdicts, |(_, case, verdict), row| {
            row.case(&case.id).objective(&verdict.check.expr)
        })
        .sortable()
}

/// The unit of the subject of a verdict.
fn unit_name(verdict: &Verdict) -> &'static str {
    match verdict.check.subject.unit() {
        Unit::Share => "share",
        unit => unit.symbol(),
    }
}

/// Every verdict, one per line. `width`: of the terminal in characters; None: not a terminal.
pub fn slo_table(report: &Report, width: Option<usize>, color: bool) -> String {
    objectives(report, |_| true).terminal(Screen { width, color })
}

/// `~` if the verdict depends on tokens counted from streamed events.
pub(crate) fn subject_mark(case: &CaseReport, verdict: &Verdict) -> &'static str {
    match &verdict.check.subject {
        Subject::Metric { metric, .. } => mark(case, *metric),
        Subject::Goodput(limits) => limits
            .iter()
            .map(|limit| mark(case, limit.metric))
            .max()
            .unwrap_or(""),
        Subject::Finish { .. } | Subject::Signal { .. } | Subject::PageMetric(_) => "",
    }
}

/// The samples that a decision needs, and the note of the verdict.
fn remark(verdict: &Verdict) -> String {
    let need = verdict.need.map(|need| format!("needs {need} samples"));
    need.into_iter()
        .chain(verdict.note.clone())
        .collect::<Vec<_>>()
        .join("; ")
}

/// A relative limit as a multiple of its reference and its bounds: `1.10 × baseline (512 ms, 498 ms to 530 ms)`.
pub(crate) fn multiple(check: &Check) -> Option<String> {
    let relative = check.relative.as_ref()?;
    let (to, unit) = (relative.name(), check.subject.unit());
    let factor = format!("{:.2}", relative.factor);
    let factor = if factor.parse() == Ok(relative.factor) {
        factor
    } else {
        relative.factor.to_string()
    };
    let Some(known) = relative.known else {
        return Some(format!("{factor} × {to} (no value)"));
    };
    let ends = match (known.low, known.high) {
        (Some(low), Some(high)) if low == high => String::new(),
        (Some(low), Some(high)) => format!(", {} to {}", value(low, unit), value(high, unit)),
        (Some(low), None) => format!(", {} or more", value(low, unit)),
        (None, Some(high)) => format!(", {} or less", value(high, unit)),
        (None, None) => String::new(),
    };
    let runs = known
        .spread
        .map(|spread| format!(", {} {}", spread.runs, spread.of.noun()))
        .unwrap_or_default();
    Some(format!(
        "{factor} × {to} ({}{ends}{runs})",
        value(known.value, unit)
    ))
}

/// The limit as a number, and what it is a multiple of.
pub(crate) fn limit_text(verdict: &Verdict) -> String {
    let limit = verdict.check.limit;
    let number = against(Some(limit), limit, verdict.check.subject.unit());
    match multiple(&verdict.check) {
        Some(multiple) if limit.is_nan() => multiple,
        Some(multiple) => format!("{number} = {multiple}"),
        None => number,
    }
}

/// An entry of `slo`.
pub(crate) fn slo_json(verdict: &Verdict) -> Value {
    json!({
        "expr": verdict.check.expr,
        "default": verdict.check.is_default,
        "verdict": verdict.ruling,
        "observed": verdict.observed,
        "bound": verdict.bound,
        "limit": verdict.check.limit,
        "relative": verdict.check.relative.as_ref().map(relative_json),
        "unit": unit_name(verdict),
        "n": verdict.n,
        "effective_n": verdict.effective_n,
        "need": verdict.need,
        "note": verdict.note,
    })
}

/// The reference of a relative limit.
fn relative_json(relative: &Relative) -> Value {
    let known = relative.known;
    json!({
        "to": relative.to,
        "case": relative.case.as_ref().map(|case| &case.id),
        "factor": relative.factor,
        "value": known.map(|known| known.value),
        "low": known.and_then(|known| known.low),
        "high": known.and_then(|known| known.high),
        "n": known.and_then(|known| known.n),
        "runs": known.and_then(|known| known.spread).map(|spread| spread.runs),
        "replicates": known.and_then(|known| known.spread).map(|spread| spread.of),
    })
}

/// The distinct objectives, in the order of the plan.
pub(crate) fn titles(report: &Report) -> Vec<String> {
    let mut titles: Vec<String> = Vec::new();
    for verdict in report.cases.iter().flat_map(|case| &case.verdicts) {
        let title = check_title(&verdict.check);
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    titles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failing, no_data, report_of, sweep};
    use llmscen_core::check::relative::{ReferenceKind, ReferenceValue, Relative};
    use llmscen_core::report::RunVerdict;

    #[test]
    fn verdicts_in_a_wide_terminal() {
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
    fn an_objective_stays_readable_in_a_narrow_terminal() {
        let mut case = failing();
        case.id = "concurrency=64,temperature=0.5".into();
        let report = report_of(vec![case], RunVerdict::Fail, 1);
        for width in [70, 80] {
            let table = slo_table(&report, Some(width), false);
            assert!(
                table.contains("ttft.p99 < 500ms") && table.contains("error_rate < 1%"),
                "{table}"
            );
        }
    }

    #[test]
    fn no_line_exceeds_the_terminal() {
        let report = sweep(12);
        for width in 60..=160 {
            for table in [
                slo_table(&report, Some(width), false),
                crate::case_table(&report, Some(width), false),
            ] {
                assert!(
                    table.lines().all(|line| line.chars().count() <= width),
                    "{width}\n{table}"
                );
            }
        }
        assert!(slo_table(&report, Some(80), true).contains("\u{1b}[32mPASS\u{1b}[0m"));
    }

    #[test]
    fn no_data_is_n_a() {
        let table = objectives(&report_of(vec![no_data()], Default::default(), 1), |_| true);
        let row = [
            "`base`",
            "`ttft.p99 < 500ms`",
            "❌ fail",
            "n/a",
            "n/a",
            "500 ms",
            "0",
            "no data",
        ];
        assert_eq!(table.markdown_rows(), [row.map(str::to_owned).to_vec()]);
    }

    fn relative_verdict(factor: f64, known: Option<ReferenceValue>) -> Verdict {
        let verdict = case(4).verdicts[0].clone();
        let relative = Relative::new(ReferenceKind::Baseline, factor, known);
        Verdict {
            check: Check {
                limit: relative.limit(),
                relative: Some(relative),
                ..verdict.check.clone()
            },
            ..verdict
        }
    }

    fn known(low: Option<f64>, high: Option<f64>) -> Option<ReferenceValue> {
        Some(ReferenceValue {
            value: 512.0,
            low,
            high,
            n: Some(400),
            spread: None,
        })
    }

    #[test]
    fn a_relative_limit_shows_its_multiple_and_bounds() {
        let both = relative_verdict(1.1, known(Some(498.0), Some(530.0)));
        assert_eq!(
            limit_text(&both),
            "563 ms = 1.10 × baseline (512 ms, 498 ms to 530 ms)"
        );
        assert_eq!(
            multiple(&relative_verdict(1.125, known(None, Some(530.0))).check).unwrap(),
            "1.125 × baseline (512 ms, 530 ms or less)"
        );
        assert_eq!(
            multiple(&relative_verdict(1.0, known(Some(512.0), Some(512.0))).check).unwrap(),
            "1.00 × baseline (512 ms)"
        );
        assert_eq!(
            limit_text(&relative_verdict(1.1, None)),
            "1.10 × baseline (no value)"
        );
        assert_eq!(limit_text(&case(4).verdicts[0]), "500 ms");
    }
}
