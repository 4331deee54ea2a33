//! Limits of the scenario on a chart, and the unit in which spans are drawn.

use crate::format::millis;
use llmscen_core::check::{Op, Subject};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::{Report, Series};

/// Limits drawn in one chart at the most.
const ROOM: usize = 3;

/// Milliseconds, or seconds where the values are long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpanUnit {
    /// `ms` or `s`.
    pub name: &'static str,
    /// From milliseconds to the unit.
    pub factor: f64,
}

impl SpanUnit {
    /// The unit for values in milliseconds.
    pub fn of(values: impl IntoIterator<Item = f64>) -> SpanUnit {
        let greatest = values.into_iter().fold(0.0, f64::max);
        if greatest >= 5000.0 { SpanUnit { name: "s", factor: 1e-3 } } else { SpanUnit { name: "ms", factor: 1.0 } }
    }
}

/// Points with both coordinates multiplied.
pub fn scaled(points: &[(f64, f64)], x: f64, y: f64) -> Series {
    points.iter().map(|(a, b)| (a * x, b * y)).collect()
}

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

/// The different upper limits on quantiles of this metric, at most three.
pub fn limits(report: &Report, metric: Metric) -> Vec<Limit> {
    let mut found: Vec<Limit> = Vec::new();
    let checks = report.cases.iter().flat_map(|case| case.verdicts.iter().map(|verdict| &verdict.check));
    for check in checks {
        let Some(share) = quantile(&check.subject, metric) else { continue };
        let label = format!("SLO {} {} {}", Stat::Quantile(share), symbol(check.op), millis(check.limit));
        if check.op.is_ceiling() && check.limit.is_finite() && !found.iter().any(|limit| limit.label == label) {
            found.push(Limit { share, value: check.limit, label });
        }
    }
    found.truncate(ROOM);
    found
}

fn quantile(subject: &Subject, wanted: Metric) -> Option<f64> {
    match subject {
        Subject::Metric { metric, stat: Some(Stat::Quantile(share)), tags } if *metric == wanted && tags.is_empty() => {
            Some(*share)
        }
        _ => None,
    }
}

fn symbol(op: Op) -> &'static str {
    if op == Op::AtMost { "≤" } else { op.symbol() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::sweep;

    #[test]
    fn equal_limits_of_many_cases_are_one() {
        let limit = Limit { share: 0.99, value: 500.0, label: "SLO p99 < 500 ms".to_owned() };
        assert_eq!(limits(&sweep(12), Metric::Ttft), [limit]);
        assert_eq!(limits(&sweep(12), Metric::Itl), []);
    }

    #[test]
    fn long_spans_are_seconds() {
        assert_eq!((SpanUnit::of([20.0, 4999.0]).name, SpanUnit::of([5000.0]).name, SpanUnit::of([]).name), ("ms", "s", "ms"));
    }
}
