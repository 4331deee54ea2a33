//! Verdicts and objectives in a chart: a ribbon if the run did not pass, marks at failed and invalid cases, and limit
//! lines.

use crate::chart::figure::{Entry, Mark, Swatch};
use crate::chart::style::{ALARM, BACKGROUND, INCONCLUSIVE, MUTED};
use crate::chart::sweep::{Group, Sweep};
use crate::format::{counted, millis};
use crate::headline;
use llmscen_core::check::{Op, Ruling, Subject};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::{CaseReport, Cause, Report, RunVerdict, Series};
use plotters::style::RGBColor;

/// A label in the upper right corner of every chart of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Ribbon {
    /// `INVALID: the load generator was the bottleneck (2 of 6 cases)`.
    pub text: String,
    /// Background color.
    pub color: RGBColor,
}

/// The ribbon of a report; None if it passed.
pub fn ribbon(report: &Report) -> Option<Ribbon> {
    let color = match report.verdict {
        RunVerdict::Pass => return None,
        RunVerdict::Fail | RunVerdict::Error => ALARM,
        RunVerdict::Inconclusive => INCONCLUSIVE,
        RunVerdict::Invalid => MUTED,
    };
    let why = if report.verdict == RunVerdict::Invalid {
        invalid_reason(report)
    } else {
        objective_count(report)
    };
    let name = headline::verdict_name(report.verdict);
    Some(Ribbon {
        text: why.map_or_else(|| name.to_owned(), |why| format!("{name}: {why}")),
        color,
    })
}

fn invalid_reason(report: &Report) -> Option<String> {
    let invalid: Vec<&CaseReport> = report
        .cases
        .iter()
        .filter(|case| case.is_invalid())
        .collect();
    let first = invalid.first()?;
    let why = match first.audit.reasons.first().map(|why| why.cause) {
        Some(Cause::OffPlan) => "the run deviated from its plan",
        Some(Cause::PrefixCache) => "the server used its prefix cache",
        Some(Cause::AnswerCache) => "answers came from a cache",
        Some(Cause::IdleServer) => "a part of the server was idle",
        Some(Cause::NoFiles | Cause::LoadGenerator) | None => {
            "the load generator may have caused it"
        }
    };
    let all = report.cases.len();
    Some(if all == 1 {
        why.to_owned()
    } else {
        format!("{why} ({} of {all} cases)", invalid.len())
    })
}

/// How many objectives have the verdict of the run. None for a search, whose probes are expected to fail.
fn objective_count(report: &Report) -> Option<String> {
    let ruling = if report.verdict == RunVerdict::Inconclusive {
        Ruling::Inconclusive
    } else {
        Ruling::Fail
    };
    let all = || report.cases.iter().flat_map(|case| &case.verdicts);
    let count = all().filter(|verdict| verdict.ruling == ruling).count();
    (report.searches.is_empty() && count > 0)
        .then(|| format!("{count} of {}", counted(all().count(), "objective")))
}

/// Whether a valid case failed an objective.
fn has_failed(case: &CaseReport) -> bool {
    !case.is_invalid()
        && case
            .verdicts
            .iter()
            .any(|verdict| verdict.ruling == Ruling::Fail)
}

/// Hollow gray marks at the points of invalid cases, and rings around those of failed ones. `point`: of a case, in
/// data units.
pub fn verdict_marks(
    group: &Group,
    point: impl Fn(&CaseReport) -> Option<(f64, f64)>,
) -> Vec<Mark> {
    let points = |is_marked: fn(&CaseReport) -> bool| -> Series {
        group
            .cases
            .iter()
            .filter(|case| is_marked(case))
            .filter_map(|case| point(case))
            .collect()
    };
    let (invalid, failed) = (points(CaseReport::is_invalid), points(has_failed));
    let mut marks = Vec::new();
    if !invalid.is_empty() {
        marks.extend([
            Mark::Dots(invalid.clone(), BACKGROUND, 4.0),
            Mark::Rings(invalid, MUTED, 4.0),
        ]);
    }
    if !failed.is_empty() {
        marks.push(Mark::Rings(failed, ALARM, 6.0));
    }
    marks
}

/// The legend of [`verdict_marks`]. `with_failed`: whether the chart marks failed cases.
pub fn verdict_legend(sweep: &Sweep, with_failed: bool) -> Vec<Entry> {
    let any = |is_marked: fn(&CaseReport) -> bool| sweep.cases().any(is_marked);
    let failed = (with_failed && any(has_failed))
        .then(|| Entry::new("failed objective", Swatch::Ring(ALARM)));
    let invalid =
        any(CaseReport::is_invalid).then(|| Entry::new("invalid case", Swatch::Ring(MUTED)));
    failed.into_iter().chain(invalid).collect()
}

/// The most limits of one chart.
const MAX_LIMITS: usize = 3;

/// A limit on a quantile.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The quantile.
    pub share: f64,
    /// The limit, milliseconds.
    pub value: f64,
    /// `SLO p99 < 500 ms`.
    pub label: String,
}

/// The distinct upper limits on quantiles of this metric, at most three.
pub fn limits(report: &Report, metric: Metric) -> Vec<Limit> {
    let mut found: Vec<Limit> = Vec::new();
    let checks = report
        .cases
        .iter()
        .flat_map(|case| case.verdicts.iter().map(|verdict| &verdict.check));
    for check in checks {
        let Some(share) = quantile_of(&check.subject, metric) else {
            continue;
        };
        let label = format!(
            "SLO {} {} {}",
            Stat::Quantile(share),
            symbol(check.op),
            millis(check.limit)
        );
        if check.op.is_ceiling()
            && check.limit.is_finite()
            && !found.iter().any(|limit| limit.label == label)
        {
            found.push(Limit {
                share,
                value: check.limit,
                label,
            });
        }
    }
    found.truncate(MAX_LIMITS);
    found
}

/// The share of an objective on a quantile of this metric over all requests.
pub fn quantile_of(subject: &Subject, limited: Metric) -> Option<f64> {
    match subject {
        Subject::Metric {
            metric,
            stat: Some(Stat::Quantile(share)),
            tags,
        } if *metric == limited && tags.is_empty() => Some(*share),
        _ => None,
    }
}

fn symbol(op: Op) -> &'static str {
    if op == Op::AtMost { "≤" } else { op.symbol() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{figures, over_load};
    use crate::fixture::{report_of, sweep};
    use llmscen_core::report::InvalidReason;

    fn invalidated(mut report: Report, index: usize, reason: InvalidReason) -> Report {
        report.verdict = RunVerdict::Invalid;
        report.cases[index].audit.valid = false;
        report.cases[index].audit.reasons = vec![reason];
        report.cases[index]
            .verdicts
            .iter_mut()
            .for_each(|verdict| verdict.ruling = Ruling::Invalid);
        report
    }

    #[test]
    fn the_ribbon_has_the_verdict_and_its_reason() {
        let text = |report: &Report| ribbon(report).map(|ribbon| ribbon.text);
        let bottleneck = invalidated(
            sweep(6),
            5,
            Cause::LoadGenerator.reason("event-loop stall p99 38 ms is over 5 ms"),
        );
        assert_eq!(
            text(&bottleneck).unwrap(),
            "INVALID: the load generator may have caused it (1 of 6 cases)"
        );
        let off_plan = invalidated(sweep(1), 0, Cause::OffPlan.reason("x"));
        assert_eq!(
            text(&off_plan).unwrap(),
            "INVALID: the run deviated from its plan"
        );
        let cached = invalidated(sweep(1), 0, Cause::PrefixCache.reason("x"));
        assert_eq!(
            text(&cached).unwrap(),
            "INVALID: the server used its prefix cache"
        );
        assert_eq!(text(&sweep(2)).unwrap(), "INCONCLUSIVE: 2 of 4 objectives");
        let mut failing = sweep(12);
        failing.verdict = RunVerdict::Fail;
        let count = failing
            .cases
            .iter()
            .flat_map(|case| &case.verdicts)
            .filter(|verdict| verdict.ruling == Ruling::Fail)
            .count();
        assert_eq!(
            text(&failing).unwrap(),
            format!("FAIL: {count} of 24 objectives")
        );
        assert_eq!(text(&report_of(Vec::new(), RunVerdict::Pass, 0)), None);
    }

    #[test]
    fn every_chart_of_a_report_that_did_not_pass_has_the_ribbon() {
        let report = invalidated(sweep(2), 0, Cause::LoadGenerator.reason("event-loop stall"));
        let ribbon = ribbon(&report);
        for figure in figures(&report) {
            let drawn = crate::chart::draw::svg(&figure, ribbon.as_ref()).unwrap();
            assert!(
                drawn.contains("INVALID: the load generator may have caused it (1 of 2 cases)"),
                "{}",
                figure.name
            );
        }
    }

    #[test]
    fn invalid_cases_are_hollow_and_failed_ones_are_ringed() {
        let report = invalidated(
            sweep(12),
            0,
            Cause::LoadGenerator.reason("event-loop stall"),
        );
        let failed: Vec<f64> = report
            .cases
            .iter()
            .filter(|case| has_failed(case))
            .filter_map(|case| case.load_value)
            .collect();
        assert!(!failed.is_empty() && !failed.contains(&1.0));
        let figure = over_load::latency_over_load(&report).unwrap();
        let ringed = |color| {
            let marks = figure.panels[0].marks.iter();
            let rings = marks.filter_map(move |mark| {
                if let Mark::Rings(points, mark_color, _) = mark {
                    Some((points, *mark_color))
                } else {
                    None
                }
            });
            rings
                .filter(|(_, mark_color)| *mark_color == color)
                .flat_map(|(points, _)| points.iter().map(|point| point.0))
                .collect::<Vec<f64>>()
        };
        assert_eq!((ringed(ALARM), ringed(MUTED)), (failed, vec![1.0]));
        let legend: Vec<&str> = figure
            .legend
            .iter()
            .map(|entry| entry.label.as_str())
            .collect();
        assert!(
            legend.contains(&"failed objective") && legend.contains(&"invalid case"),
            "{legend:?}"
        );
    }

    #[test]
    fn equal_limits_of_many_cases_are_one() {
        let limit = Limit {
            share: 0.99,
            value: 500.0,
            label: "SLO p99 < 500 ms".to_owned(),
        };
        assert_eq!(limits(&sweep(12), Metric::Ttft), [limit]);
        assert_eq!(limits(&sweep(12), Metric::Itl), []);
    }
}
