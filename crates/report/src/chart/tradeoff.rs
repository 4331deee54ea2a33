//! What throughput costs: latency over throughput, and per-user over total throughput.

use crate::chart::axis::{Axis, TimeUnit, scaled};
use crate::chart::figure::{Corner, Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::over_load::{LATENCIES, with_dots};
use crate::chart::pick::{sample_sizes, subtitle, token_remark};
use crate::chart::style::{FRAME, INK, QUANTILES, Stroke};
use crate::chart::sweep::{Group, Sweep};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report, Series};
use llmscen_core::stats::trend::knee;
use plotters::style::RGBColor;

/// The quantiles drawn for one group; with several groups only the first.
const SHARES: [(f64, &str); 3] = [(0.50, "p50"), (0.90, "p90"), (0.99, "p99")];
/// The least number of loads for a curve.
const FEWEST_LOADS: usize = 3;

/// Latency over throughput, with the knee; None with fewer than three loads on one axis.
pub fn latency_over_throughput(report: &Report) -> Option<Figure> {
    let sweep = Sweep::from_report(report).filter(|sweep| {
        sweep
            .groups
            .iter()
            .any(|group| group.cases.len() >= FEWEST_LOADS)
    })?;
    let known = |metric: Metric| sweep.cases().all(|case| case.scalars.contains_key(&metric));
    let throughput = if known(Metric::OutputTps) {
        Metric::OutputTps
    } else {
        Metric::RequestThroughput
    };
    let drawn: Vec<(Panel, usize)> = LATENCIES
        .iter()
        .filter_map(|latency| curve_panel(&sweep, *latency, throughput))
        .collect();
    let knees = drawn.iter().any(|(_, knees)| *knees > 0);
    let remark = if knees {
        "knee detected by the Kneedle method on p50"
    } else {
        ""
    };
    let token_counts = if throughput == Metric::OutputTps {
        token_remark(report)
    } else {
        String::new()
    };
    let panels: Vec<Panel> = drawn.into_iter().map(|(panel, _)| panel).collect();
    let remarks = [
        sweep.remark.clone(),
        sample_sizes(sweep.cases(), Metric::E2e),
        remark.to_owned(),
        token_counts,
    ];
    (!panels.is_empty()).then(|| Figure {
        name: "latency_over_throughput",
        title: "Latency over throughput".to_owned(),
        subtitle: subtitle(report, &remarks),
        legend: curve_legend(&sweep, knees),
        side: Side::Top,
        columns: panels.len(),
        panels,
    })
}

/// A load with its throughput and latency.
type LoadPoint = (f64, (f64, f64));

/// The points of a group by rising load.
fn curve(group: &Group, metric: Metric, share: f64, throughput: Metric) -> Vec<LoadPoint> {
    let point = |case: &&CaseReport| {
        let latency = case.distributions.get(&metric)?.quantile(share)?;
        Some((
            case.load_value?,
            (case.scalars.get(&throughput).copied()?, latency),
        ))
    };
    group.cases.iter().filter_map(point).collect()
}

/// The knee, searched among the loads up to which throughput grows.
fn find_knee(curve: &[LoadPoint]) -> Option<LoadPoint> {
    let mut rising: Vec<LoadPoint> = Vec::new();
    for point in curve {
        if rising.last().is_none_or(|last| point.1.0 > last.1.0) {
            rising.push(*point);
        }
    }
    let points: Series = rising.iter().map(|(_, point)| *point).collect();
    knee(&points).and_then(|at| rising.get(at)).copied()
}

/// A panel, and how many knees it shows.
fn curve_panel(
    sweep: &Sweep,
    (metric, title): (Metric, &str),
    throughput: Metric,
) -> Option<(Panel, usize)> {
    let shares = if sweep.groups.len() == 1 {
        SHARES.as_slice()
    } else {
        &SHARES[..1]
    };
    let points_of = |group: &Group, share| curve(group, metric, share, throughput);
    let all = || {
        sweep.groups.iter().flat_map(|group| {
            shares
                .iter()
                .flat_map(move |(share, _)| points_of(group, *share))
        })
    };
    let max_throughput = all().map(|(_, point)| point.0).reduce(f64::max)?;
    let unit = TimeUnit::for_values(all().map(|(_, point)| point.1));
    let values: Vec<f64> = all().map(|(_, point)| point.1 * unit.factor).collect();
    let mut marks = Vec::new();
    let mut knees = Vec::new();
    let mut labels = Vec::new();
    let mut head = unit.name.to_owned();
    for (index, group) in sweep.groups.iter().enumerate() {
        for ((share, _), color) in shares.iter().zip(QUANTILES) {
            let stroke = if sweep.groups.len() == 1 {
                Stroke::solid(color)
            } else {
                sweep.stroke(index)
            };
            let points: Series = points_of(group, *share)
                .into_iter()
                .map(|(_, point)| point)
                .collect();
            let points = scaled(&points, 1.0, unit.factor);
            marks.extend(with_dots(points, stroke, sweep.cases().count()));
        }
        let medians = points_of(group, SHARES[0].0);
        let knee = find_knee(&medians);
        knees.extend(knee.map(|(_, (x, y))| (x, y * unit.factor)));
        // Labels of several lines would cover each other.
        if sweep.groups.len() == 1 {
            // The load of the knee is in the head, since a label beside the knee would be crossed by the curve.
            knee.iter()
                .for_each(|(load, _)| head += &format!(" · knee at {load}"));
            labels.extend(
                medians
                    .last()
                    .map(|(load, (x, y))| (*x, y * unit.factor, load.to_string())),
            );
        }
    }
    let found = knees.len();
    marks.extend([
        Mark::Rings(knees, INK, 7.0),
        Mark::Labels(labels, Corner::Below),
    ]);
    let x = match throughput {
        Metric::OutputTps => "output tokens per second",
        _ => "successful requests per second",
    };
    let x = Axis::from_zero(x, [max_throughput]);
    Some((
        Panel {
            title: title.to_owned(),
            x,
            y: Axis::fit(head, &values, 30.0),
            marks,
        },
        found,
    ))
}

fn curve_legend(sweep: &Sweep, knees: bool) -> Vec<Entry> {
    let line = |label: &str, stroke| Entry::new(label, Swatch::Line(stroke));
    let axis = if sweep.axis == "rate" {
        "offered rate, req/s"
    } else {
        "concurrency"
    };
    let label = if sweep.groups.len() == 1 {
        format!("knee ({axis})")
    } else {
        "knee".to_owned()
    };
    let knee = knees.then(|| Entry::new(label, Swatch::Ring(INK)));
    let lines: Vec<Entry> = match sweep.groups.len() {
        1 => SHARES
            .iter()
            .zip(QUANTILES)
            .map(|((_, name), color)| line(name, Stroke::solid(color)))
            .collect(),
        _ => {
            let groups = sweep.groups.iter().enumerate();
            groups
                .map(|(index, group)| line(&format!("{}, p50", group.label), sweep.stroke(index)))
                .collect()
        }
    };
    lines.into_iter().chain(knee).collect()
}

/// The least number of cases for a Pareto front.
const FEWEST_CASES: usize = 3;

/// Cases of one color.
pub(super) struct ParetoGroup<'a> {
    pub(super) label: String,
    pub(super) color: RGBColor,
    pub(super) cases: Vec<&'a CaseReport>,
}

/// The Pareto front of per-user and total throughput, if cases differ in more than their load: for one group, latency over throughput
/// shows the same.
pub fn pareto(report: &Report) -> Option<Figure> {
    let sweep = Sweep::from_report(report).filter(|sweep| sweep.groups.len() > 1)?;
    let groups = sweep.groups.iter().enumerate();
    let groups = groups.map(|(index, group)| ParetoGroup {
        label: group.label.clone(),
        color: sweep.stroke(index).color,
        cases: group.cases.clone(),
    });
    let mut figure = pareto_figure(&groups.collect::<Vec<_>>(), sweep.axis)?;
    let remarks = [
        sweep.remark.clone(),
        figure.subtitle,
        sample_sizes(sweep.cases(), Metric::E2e),
        token_remark(report),
    ];
    figure.subtitle = subtitle(report, &remarks);
    Some(figure)
}

/// The front of all groups; the subtitle counts its cases. None with fewer than three cases.
pub(super) fn pareto_figure(groups: &[ParetoGroup], load_axis: &str) -> Option<Figure> {
    let cases = || groups.iter().flat_map(|group| &group.cases);
    let per_gpu = cases().all(|case| case.scalars.contains_key(&Metric::OutputTpsPerGpu));
    let (total, y, title) = if per_gpu {
        (Metric::OutputTpsPerGpu, "tok/s per GPU", "Output")
    } else {
        (Metric::OutputTps, "tok/s", "Total output")
    };
    let point = |case: &CaseReport| {
        let speed = |metric| {
            let speed = case.scalars.get(&metric).copied();
            speed.filter(|speed: &f64| speed.is_finite())
        };
        speed(Metric::OutputTpsPerUser).zip(speed(total))
    };
    let all: Series = cases().filter_map(|case| point(case)).collect();
    if all.len() < FEWEST_CASES {
        return None;
    }
    let front = pareto_front(&all);
    let panel = Panel {
        title: title.to_owned(),
        x: Axis::from_zero(
            "output tokens/s per user (mean)",
            all.iter().map(|point| point.0),
        ),
        y: Axis::from_zero(y, all.iter().map(|point| point.1)),
        marks: pareto_marks(groups, &front, point),
    };
    Some(Figure {
        name: "pareto",
        title: "Pareto front: per-user vs. total throughput".to_owned(),
        subtitle: format!("{} of {} cases are not dominated", front.len(), all.len()),
        legend: pareto_legend(groups, load_axis),
        side: Side::Right,
        panels: vec![panel],
        columns: 1,
    })
}

/// The points that no other point dominates, by rising x; equal points once.
fn pareto_front(points: &[(f64, f64)]) -> Series {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let mut best = f64::NEG_INFINITY;
    sorted.retain(|point| {
        let is_on_front = point.1 > best;
        best = best.max(point.1);
        is_on_front
    });
    sorted.reverse();
    sorted
}

/// The front as dots with their loads, and dominated points as rings, in the color of their group.
fn pareto_marks(
    groups: &[ParetoGroup],
    front: &Series,
    point: impl Fn(&CaseReport) -> Option<(f64, f64)>,
) -> Vec<Mark> {
    let mut marks = vec![Mark::Line(front.clone(), Stroke::solid(FRAME).thin())];
    let mut labels = Vec::new();
    for group in groups {
        let cases = group.cases.iter();
        let loads_and_points = cases.filter_map(|case| Some((case.load_value?, point(case)?)));
        let (on_front, dominated): (Vec<LoadPoint>, Vec<LoadPoint>) =
            loads_and_points.partition(|(_, point)| front.contains(point));
        let points = |of: &[LoadPoint]| of.iter().map(|(_, point)| *point).collect();
        marks.push(Mark::Rings(points(&dominated), group.color, 3.0));
        marks.push(Mark::Dots(points(&on_front), group.color, 4.5));
        labels.extend(
            on_front
                .iter()
                .map(|(load, (x, y))| (*x, *y, load.to_string())),
        );
    }
    marks.push(Mark::Labels(labels, Corner::Above));
    marks
}

fn pareto_legend(groups: &[ParetoGroup], load_axis: &str) -> Vec<Entry> {
    let groups = groups
        .iter()
        .map(|group| Entry::new(&group.label, Swatch::Dot(group.color)));
    let load = if load_axis == "rate" {
        "front (labels: offered rate)"
    } else {
        "front (labels: concurrency)"
    };
    let key = [
        Entry::new(load, Swatch::Line(Stroke::solid(FRAME).thin())),
        Entry::new("dominated", Swatch::Ring(INK)),
    ];
    groups.chain(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{grid, sweep};

    fn knees(figure: &Figure) -> Vec<usize> {
        let rings = |mark: &Mark| {
            if let Mark::Rings(points, ..) = mark {
                Some(points.len())
            } else {
                None
            }
        };
        figure
            .panels
            .iter()
            .filter_map(|panel| panel.marks.iter().find_map(rings))
            .collect()
    }

    #[test]
    fn the_knee_is_marked() {
        let figure = latency_over_throughput(&sweep(12)).unwrap();
        assert_eq!(knees(&figure), [1, 1, 1]);
        assert_eq!(figure.panels[0].y.title, "ms · knee at 48");
        assert!(
            figure.subtitle.ends_with("Kneedle method on p50"),
            "{}",
            figure.subtitle
        );
    }

    #[test]
    fn the_knee_is_searched_only_while_throughput_grows() {
        let curve = [
            (1.0, (10.0, 1.0)),
            (2.0, (20.0, 1.0)),
            (4.0, (30.0, 1.5)),
            (8.0, (32.0, 9.0)),
            (16.0, (5.0, 90.0)),
        ];
        assert_eq!(find_knee(&curve), Some((4.0, (30.0, 1.5))));
        assert_eq!(find_knee(&curve[..3]), None);
    }

    #[test]
    fn groups_have_a_line_each_and_few_loads_no_chart() {
        let figure = super::latency_over_throughput(&grid(2)).unwrap();
        assert_eq!(
            figure.panels[0]
                .marks
                .iter()
                .filter(|mark| matches!(mark, Mark::Line(..)))
                .count(),
            2
        );
        assert_eq!(super::latency_over_throughput(&sweep(2)), None);
    }

    #[test]
    fn the_front_has_the_points_that_none_dominates() {
        let points = [
            (1.0, 9.0),
            (2.0, 8.0),
            (1.5, 7.0),
            (3.0, 8.0),
            (3.0, 1.0),
            (1.0, 9.0),
        ];
        assert_eq!(pareto_front(&points), [(1.0, 9.0), (3.0, 8.0)]);
        assert_eq!(pareto_front(&[]), []);
    }

    #[test]
    fn a_pareto_front_needs_a_sweep_over_more_than_load() {
        let figure = pareto(&grid(2)).unwrap();
        assert!(
            figure.subtitle.contains(" of 12 cases are not dominated"),
            "{}",
            figure.subtitle
        );
        assert_eq!(figure.panels[0].y.title, "tok/s");
        assert_eq!(super::pareto(&sweep(12)), None);
        let mut gpus = grid(2);
        gpus.cases
            .iter_mut()
            .for_each(|case| case.scalars.extend([(Metric::OutputTpsPerGpu, 7.0)]));
        assert_eq!(
            super::pareto(&gpus).unwrap().panels[0].y.title,
            "tok/s per GPU"
        );
    }
}
