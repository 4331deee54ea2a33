//! Distributions of latency: cumulative (CDF), and percentile plots that stretch the tail.

use crate::chart::axis::{Axis, TimeUnit, scaled};
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::over_load::MAX_LIMIT_RATIO;
use crate::chart::pick::{ShownCase, sample_sizes, select_cases, subtitle};
use crate::chart::style::{ALARM, GRID, Stroke};
use crate::chart::verdict::{Limit, limits};
use llmscen_core::metric::Metric;
use llmscen_core::report::{Report, Series};

/// The most cases of one chart: each has a hue of its own.
const MAX_CASES: usize = 6;
/// A cumulative curve covers at most this range: gaps between tokens of one read are thousands of times shorter than
/// the others.
const MAX_RANGE: f64 = 100.0;

/// A chart of one metric.
struct Topic {
    name: &'static str,
    metric: Metric,
    title: &'static str,
    x: &'static str,
    y: &'static str,
}

const TOPICS: [Topic; 3] = [
    Topic {
        name: "cdf_ttft",
        metric: Metric::Ttft,
        title: "TTFT distribution",
        x: "TTFT",
        y: "cumulative share of requests",
    },
    Topic {
        name: "cdf_itl",
        metric: Metric::Itl,
        title: "Inter-token latency distribution",
        x: "ITL",
        y: "cumulative share of gaps",
    },
    Topic {
        name: "cdf_e2e",
        metric: Metric::E2e,
        title: "End-to-end latency distribution",
        x: "E2E",
        y: "cumulative share of requests",
    },
];

/// The cumulative distribution (CDF) of each metric with data.
pub fn cumulative_figures(report: &Report) -> impl Iterator<Item = Figure> + '_ {
    TOPICS
        .iter()
        .filter_map(|topic| cumulative_figure(report, topic))
}

fn cumulative_figure(report: &Report, topic: &Topic) -> Option<Figure> {
    let (picked, remark) = select_cases(report, MAX_CASES, |case| {
        case.cdfs
            .get(&topic.metric)
            .is_some_and(|points| !points.is_empty())
    });
    let limits = limits(report, topic.metric);
    let panel = cumulative_panel(&picked, &limits, topic)?;
    let remarks = [
        remark,
        sample_sizes(picked.iter().map(|picked| picked.case), topic.metric),
    ];
    Some(Figure {
        name: topic.name,
        title: topic.title.to_owned(),
        subtitle: subtitle(report, &remarks),
        legend: cumulative_legend(&picked, &limits),
        side: Side::Right,
        panels: vec![panel],
        columns: 1,
    })
}

fn cumulative_panel(picked: &[ShownCase], limits: &[Limit], topic: &Topic) -> Option<Panel> {
    let curves = picked
        .iter()
        .filter_map(|picked| Some((picked.case.cdfs.get(&topic.metric)?, picked.color)));
    let values: Vec<f64> = curves
        .clone()
        .flat_map(|(points, _)| points.iter().map(|(x, _)| *x))
        .collect();
    let greatest = values.iter().copied().fold(0.0, f64::max);
    let least = greatest / MAX_RANGE;
    let all: Vec<f64> = values
        .iter()
        .map(|value| value.max(least))
        .chain(limits.iter().map(|limit| limit.value))
        .collect();
    let unit = (!values.is_empty()).then(|| TimeUnit::for_values(all.iter().copied()))?;
    let all: Vec<f64> = all.iter().map(|value| value * unit.factor).collect();
    let x = Axis::fit(format!("{} ({})", topic.x, unit.name), &all, 30.0);
    let mut marks: Vec<Mark> = x
        .ticks
        .iter()
        .map(|(tick, _)| Mark::VerticalLine(*tick, Stroke::solid(GRID).hair()))
        .collect();
    marks.extend(
        limits
            .iter()
            .map(|limit| Mark::VerticalLine(limit.value * unit.factor, Stroke::limit())),
    );
    marks.extend(curves.map(|(points, color)| {
        // A shorter latency is at the left end, where the curve has the share of all of them.
        let points: Series = points
            .iter()
            .map(|(value, share)| (value.max(least), *share))
            .collect();
        Mark::Steps(
            from_zero(&scaled(&points, unit.factor, 1.0)),
            Stroke::solid(color),
        )
    }));
    let limit_points = limits
        .iter()
        .map(|limit| (limit.value * unit.factor, limit.share))
        .collect::<Vec<_>>();
    if !limit_points.is_empty() {
        marks.push(Mark::Dots(limit_points, ALARM, 4.5));
    }
    Some(Panel {
        title: String::new(),
        x,
        y: Axis::shares(topic.y),
        marks,
    })
}

/// The curve with a first point at zero.
pub fn from_zero(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points
        .first()
        .map(|(x, _)| (*x, 0.0))
        .into_iter()
        .chain(points.iter().copied())
        .collect()
}

fn cumulative_legend(picked: &[ShownCase], limits: &[Limit]) -> Vec<Entry> {
    let cases = picked
        .iter()
        .map(|picked| Entry::new(&picked.label, Swatch::Line(Stroke::solid(picked.color))));
    let limits = limits
        .iter()
        .map(|limit| Entry::new(&limit.label, Swatch::Line(Stroke::limit())));
    cases.chain(limits).collect()
}

const METRICS: [(Metric, &str); 4] = [
    (Metric::Ttft, "TTFT"),
    (Metric::Itl, "ITL"),
    (Metric::Tpot, "TPOT"),
    (Metric::E2e, "E2E"),
];

/// The percentile plot of the latencies; None without data.
pub fn percentile_plot(report: &Report) -> Option<Figure> {
    let (picked, remark) = select_cases(report, MAX_CASES, |case| {
        METRICS
            .iter()
            .any(|(metric, _)| case.chart_data.spectra.contains_key(metric))
    });
    let drawn: Vec<(Panel, Vec<Limit>)> = METRICS
        .iter()
        .filter_map(|metric| percentile_panel(report, &picked, *metric))
        .collect();
    let limits = drawn.iter().flat_map(|(panel, limits)| {
        limits
            .iter()
            .map(|limit| format!("{} {}", panel.title, limit.label))
    });
    let remarks = [
        remark,
        sample_sizes(picked.iter().map(|picked| picked.case), Metric::E2e),
    ];
    let legend = percentile_legend(&picked, limits);
    let panels: Vec<Panel> = drawn.into_iter().map(|(panel, _)| panel).collect();
    (!panels.is_empty()).then(|| Figure {
        name: "percentile_spectrum",
        title: "Percentile plot of latencies".to_owned(),
        subtitle: subtitle(report, &remarks),
        legend,
        side: if picked.len() > 1 {
            Side::Right
        } else {
            Side::Top
        },
        columns: panels.len().min(2),
        panels,
    })
}

/// The position of a share on a logarithmic axis: 1 / (share above it).
fn tail_position(share: f64) -> f64 {
    1.0 / (1.0 - share).max(1e-12)
}

fn percentile_panel(
    report: &Report,
    picked: &[ShownCase],
    (metric, title): (Metric, &str),
) -> Option<(Panel, Vec<Limit>)> {
    let curves = || {
        picked
            .iter()
            .filter_map(|picked| Some((picked.case.chart_data.spectra.get(&metric)?, picked.color)))
    };
    let points = || curves().flat_map(|(points, _)| points.iter().copied());
    let last = points()
        .map(|(share, _)| tail_position(share))
        .filter(|position| position.is_finite())
        .reduce(f64::max)?;
    let mut limits = limits(report, metric);
    let greatest = points().map(|(_, value)| value).fold(0.0, f64::max);
    limits.retain(|limit| {
        tail_position(limit.share) <= last && limit.value <= greatest * MAX_LIMIT_RATIO
    });
    let values = points()
        .map(|(_, value)| value)
        .chain(limits.iter().map(|limit| limit.value));
    let unit = TimeUnit::for_values(values.clone());
    let values: Vec<f64> = values.map(|value| value * unit.factor).collect();
    let x = percentile_axis(last);
    let mut marks: Vec<Mark> = x
        .ticks
        .iter()
        .map(|(tick, _)| Mark::VerticalLine(*tick, Stroke::solid(GRID).hair()))
        .collect();
    marks.extend(
        limits
            .iter()
            .map(|limit| Mark::HorizontalLine(limit.value * unit.factor, Stroke::limit())),
    );
    for (points, color) in curves() {
        let points: Series = points
            .iter()
            .map(|(share, value)| (tail_position(*share), value * unit.factor))
            .collect();
        marks.push(Mark::Line(points, Stroke::solid(color)));
    }
    let limit_points: Series = limits
        .iter()
        .map(|limit| (tail_position(limit.share), limit.value * unit.factor))
        .collect();
    if !limit_points.is_empty() {
        marks.push(Mark::Dots(limit_points, ALARM, 4.5));
    }
    Some((
        Panel {
            title: title.to_owned(),
            x,
            y: Axis::fit(unit.name, &values, 30.0),
            marks,
        },
        limits,
    ))
}

/// Ticks at 0 %, 50 %, 90 %, 99 %, 99.9 % … up to `last`.
fn percentile_axis(last: f64) -> Axis {
    let nines = |power: i32| {
        let label = if power == 2 {
            "99%".to_owned()
        } else {
            format!("99.{}%", "9".repeat(power as usize - 2))
        };
        (10f64.powi(power), label)
    };
    let first = [
        (1.0, "0%".to_owned()),
        (2.0, "50%".to_owned()),
        (10.0, "90%".to_owned()),
    ];
    let high = last.max(2.0) * 1.05;
    let ticks = first
        .into_iter()
        .chain((2..=12).map(nines))
        .filter(|(position, _)| *position <= high)
        .collect();
    Axis {
        title: "percentile (ITL: of token gaps)".to_owned(),
        low: 1.0,
        high,
        log: true,
        ticks,
    }
}

fn percentile_legend(picked: &[ShownCase], limits: impl Iterator<Item = String>) -> Vec<Entry> {
    let cases = picked.iter().filter(|_| picked.len() > 1);
    let cases =
        cases.map(|picked| Entry::new(&picked.label, Swatch::Line(Stroke::solid(picked.color))));
    cases
        .chain(limits.map(|limit| Entry::new(limit, Swatch::Line(Stroke::limit()))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{no_data, report_of, sweep};

    #[test]
    fn a_hundred_cases_are_six_curves_with_a_remark() {
        let report = sweep(100);
        let all: Vec<Figure> = cumulative_figures(&report).collect();
        assert_eq!(
            all.iter().map(|figure| figure.name).collect::<Vec<_>>(),
            ["cdf_ttft", "cdf_itl", "cdf_e2e"]
        );
        assert_eq!((all[0].legend.len(), all[1].legend.len()), (7, 6));
        assert!(
            all[0]
                .subtitle
                .ends_with("6 of 100 cases shown, failed ones first  ·  n = 240 requests per case"),
            "{}",
            all[0].subtitle
        );
    }

    #[test]
    fn a_limit_is_drawn_at_its_value_and_its_share() {
        let figure = cumulative_figures(&sweep(1)).next().unwrap();
        assert!(
            figure.panels[0]
                .marks
                .contains(&Mark::VerticalLine(500.0, Stroke::limit()))
        );
        assert!(
            figure.panels[0]
                .marks
                .contains(&Mark::Dots(vec![(500.0, 0.99)], ALARM, 4.5))
        );
        assert!(figure.panels[0].x.high >= 500.0);
    }

    #[test]
    fn without_data_there_is_no_chart() {
        assert_eq!(
            cumulative_figures(&report_of(vec![no_data()], Default::default(), 3)).count(),
            0
        );
    }

    #[test]
    fn ticks_are_nines() {
        let labels = |last| {
            percentile_axis(last)
                .ticks
                .into_iter()
                .map(|(_, label)| label)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            labels(24_000.0),
            ["0%", "50%", "90%", "99%", "99.9%", "99.99%"]
        );
        assert_eq!(labels(3.0), ["0%", "50%"]);
        let axis = percentile_axis(1000.0);
        assert!(
            (axis.position(tail_position(0.99)) - 2.0 * axis.position(tail_position(0.9))).abs()
                < 1e-9
        );
    }

    #[test]
    fn every_latency_that_exists_has_a_panel() {
        let figure = percentile_plot(&sweep(5)).unwrap();
        assert_eq!(
            figure
                .panels
                .iter()
                .map(|panel| panel.title.as_str())
                .collect::<Vec<_>>(),
            ["TTFT", "ITL", "TPOT", "E2E"]
        );
        assert_eq!(figure.legend.last().unwrap().label, "TTFT SLO p99 < 500 ms");
        assert!(figure.panels[0].marks.contains(&Mark::Dots(
            vec![(tail_position(0.99), 500.0)],
            ALARM,
            4.5
        )));
        assert!(
            super::percentile_plot(&sweep(100))
                .unwrap()
                .subtitle
                .contains("6 of 100 cases shown")
        );
        assert_eq!(
            super::percentile_plot(&report_of(vec![no_data()], Default::default(), 3)),
            None
        );
    }
}
