//! A small line in a tile: the values over rising load, or over time in a run of one case.

use crate::chart::sweep::Sweep;
use llmscen_core::check::{Subject, Verdict};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};
use std::fmt::Write;

/// The least number of values of a line.
const FEWEST: usize = 3;
/// Bins of a line over time.
const BINS: usize = 30;

/// The observed values of an objective, or its metric over time; empty with fewer than three.
pub(super) fn of_objective(report: &Report, verdict: &Verdict) -> String {
    if let [case] = report.cases.as_slice() {
        return match verdict.check.subject {
            Subject::Metric { metric, .. } => over_time(case, metric),
            _ => String::new(),
        };
    }
    over_load(report, |case| {
        let mut verdicts = case.verdicts.iter();
        let own = verdicts.find(|own| own.check.subject == verdict.check.subject)?;
        own.observed
    })
}

/// A metric with one value per case; empty with fewer than three values.
pub(super) fn of_metric(report: &Report, metric: Metric) -> String {
    match report.cases.as_slice() {
        [case] => over_time(case, metric),
        _ => over_load(report, |case| case.scalars.get(&metric).copied()),
    }
}

/// Only cases that differ in nothing but their load are on a line.
fn over_load(report: &Report, value: impl Fn(&CaseReport) -> Option<f64>) -> String {
    let sweep = Sweep::from_report(report).filter(|sweep| sweep.groups.len() == 1);
    let points = sweep.and_then(|sweep| Some(sweep.groups.first()?.points(value)));
    let values: Vec<f64> = points
        .unwrap_or_default()
        .iter()
        .map(|point| point.1)
        .collect();
    svg(&values, "over rising load")
}

/// The medians of equal bins of the measured window.
fn over_time(case: &CaseReport, metric: Metric) -> String {
    let series = match metric {
        Metric::Ttft => &case.timelines.ttft_ms,
        Metric::OutputTps => &case.timelines.output_tps,
        _ => return String::new(),
    };
    let (from, until) = case.timelines.measured;
    let mut bins: Vec<Vec<f64>> = vec![Vec::new(); BINS];
    for (at, value) in series.iter().filter(|(at, _)| (from..until).contains(at)) {
        let bin = (at - from) / (until - from) * BINS as f64;
        bins.get_mut(bin as usize)
            .into_iter()
            .for_each(|bin| bin.push(*value));
    }
    let medians = bins.into_iter().filter_map(|mut bin| {
        bin.sort_by(f64::total_cmp);
        bin.get(bin.len() / 2).copied()
    });
    svg(&medians.collect::<Vec<_>>(), "over time")
}

/// The line begins at zero, so that a small change looks small.
fn svg(values: &[f64], label: &str) -> String {
    let largest = values.iter().copied().fold(0.0, f64::max);
    if values.len() < FEWEST || !largest.is_finite() || largest <= 0.0 {
        return String::new();
    }
    let mut points = String::new();
    for (index, value) in values.iter().enumerate() {
        let x = 100.0 * index as f64 / (values.len() - 1) as f64;
        let _ = write!(points, "{x:.1},{:.1} ", 24.0 - 24.0 * value / largest);
    }
    format!(
        "<svg viewBox=\"0 0 100 24\" preserveAspectRatio=\"none\" role=\"img\" \
        aria-label=\"{label}\"><polyline points=\"{}\"/></svg>",
        points.trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of, sweep};

    #[test]
    fn a_line_begins_at_zero_and_ends_at_the_largest_value() {
        let line = svg(&[1.0, 2.0, 4.0], "over time");
        assert!(
            line.contains("points=\"0.0,18.0 50.0,12.0 100.0,0.0\""),
            "{line}"
        );
        assert_eq!(
            (svg(&[1.0, 2.0], ""), svg(&[0.0; 5], "")),
            Default::default()
        );
    }

    #[test]
    fn cases_are_on_a_line_if_they_differ_in_load_only() {
        let line = of_metric(&sweep(5), Metric::OutputTps);
        assert_eq!(line.matches(',').count(), 5, "{line}");
        assert_eq!(of_metric(&crate::fixture::grid(2), Metric::OutputTps), "");
    }

    #[test]
    fn one_case_has_its_medians_over_time() {
        let mut only = case(4);
        only.timelines.measured = (0.0, 30.0);
        only.timelines.ttft_ms = vec![
            (0.5, 10.0),
            (0.6, 20.0),
            (0.7, 90.0),
            (1.5, 40.0),
            (29.9, 5.0),
            (30.1, 999.0),
        ];
        let report = report_of(vec![only], Default::default(), 0);
        let line = over_time(&report.cases[0], Metric::Ttft);
        assert!(
            line.contains("points=\"0.0,12.0 50.0,0.0 100.0,21.0\""),
            "{line}"
        );
    }
}
