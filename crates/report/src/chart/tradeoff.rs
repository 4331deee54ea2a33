//! What throughput costs: latency over throughput, and per-user over total throughput.

use crate::chart::axis::{Axis, TimeUnit, scaled};
use crate::chart::figure::{Corner, Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::over_load::{LATENCIES, with_dots};
use crate::chart::pick::{sample_sizes, subtitle, token_remark};
use crate::chart::style::{INK, MUTED, QUANTILES, Stroke};
use crate::chart::sweep::{Group, Sweep};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report, Series};
use llmscen_core::stats::trend::knee;

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
/// The quantile of TPOT that the interactivity is computed from.
const INTERACTIVITY: f64 = 0.5;

/// Cases of one color: by rising load, if the loads differ.
pub(super) struct ParetoGroup<'a> {
    pub(super) label: String,
    pub(super) stroke: Stroke,
    pub(super) cases: Vec<&'a CaseReport>,
}

/// Throughput over interactivity, a line for each group of cases that differ only in their load.
pub fn pareto(report: &Report) -> Option<Figure> {
    let sweep = Sweep::from_report(report)?;
    let groups = sweep.groups.iter().enumerate();
    let groups = groups.map(|(index, group)| ParetoGroup {
        label: match group.label.as_str() {
            "" => "all cases".to_owned(),
            label => label.to_owned(),
        },
        stroke: sweep.stroke(index),
        cases: group.cases.clone(),
    });
    let mut figure = pareto_figure(&groups.collect::<Vec<_>>(), sweep.axis)?;
    let remarks = [
        sweep.remark.clone(),
        figure.subtitle,
        sample_sizes(sweep.cases(), Metric::Tpot),
        token_remark(report),
    ];
    figure.subtitle = subtitle(report, &remarks);
    Some(figure)
}

/// Tokens per second of one user: 1000 ÷ the median TPOT in ms.
fn interactivity(case: &CaseReport) -> Option<f64> {
    let tpot = case
        .distributions
        .get(&Metric::Tpot)?
        .quantile(INTERACTIVITY)?;
    Some(1e3 / tpot).filter(|speed| speed.is_finite())
}

/// The front of all groups; the subtitle counts its cases. None with fewer than three cases.
pub(super) fn pareto_figure(groups: &[ParetoGroup], load_axis: &str) -> Option<Figure> {
    let cases = || groups.iter().flat_map(|group| &group.cases);
    let has = |metric: Metric| cases().all(|case| case.scalars.contains_key(&metric));
    let (metrics, unit) = if has(Metric::OutputTpsPerGpu) {
        let metrics = [
            (Metric::OutputTpsPerGpu, "Output"),
            (Metric::TotalTpsPerGpu, "Input and output"),
        ];
        (metrics, "tok/s per GPU")
    } else {
        let metrics = [
            (Metric::OutputTps, "Output"),
            (Metric::TotalTps, "Input and output"),
        ];
        (metrics, "tok/s")
    };
    let drawn = metrics.into_iter().filter(|(metric, _)| has(*metric));
    let panels: Vec<(Panel, usize, usize)> = drawn
        .filter_map(|(metric, title)| pareto_panel(groups, metric, title, unit))
        .collect();
    let (_, on_front, all) = panels.first()?;
    let subtitle = format!("{on_front} of {all} cases are not dominated in output");
    let panels: Vec<Panel> = panels.into_iter().map(|(panel, ..)| panel).collect();
    Some(Figure {
        name: "pareto",
        title: "Throughput over interactivity".to_owned(),
        subtitle,
        legend: pareto_legend(groups, load_axis),
        side: Side::Top,
        columns: panels.len(),
        panels,
    })
}

/// A panel, the number of cases on the front, and of all.
fn pareto_panel(
    groups: &[ParetoGroup],
    metric: Metric,
    title: &str,
    unit: &str,
) -> Option<(Panel, usize, usize)> {
    let point = |case: &CaseReport| {
        let total = case.scalars.get(&metric).copied();
        interactivity(case).zip(total.filter(|speed| speed.is_finite()))
    };
    let cases = groups.iter().flat_map(|group| &group.cases);
    let all: Series = cases.filter_map(|case| point(case)).collect();
    if all.len() < FEWEST_CASES {
        return None;
    }
    let front = pareto_front(&all);
    let panel = Panel {
        title: title.to_owned(),
        x: Axis::from_zero(
            "interactivity: tok/s per user (1000 ÷ TPOT p50 in ms)",
            all.iter().map(|point| point.0),
        ),
        y: Axis::from_zero(unit, all.iter().map(|point| point.1)),
        marks: pareto_marks(groups, &front, point),
    };
    Some((panel, front.len(), all.len()))
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

/// A line for each group, the front, dots on it with their loads, and rings off it, in the color of their group. A
/// label that would cover another is left out, first those of rings.
fn pareto_marks(
    groups: &[ParetoGroup],
    front: &Series,
    point: impl Fn(&CaseReport) -> Option<(f64, f64)>,
) -> Vec<Mark> {
    let mut marks = vec![Mark::Line(front.clone(), Stroke::dashed(MUTED))];
    let (mut labels, mut others) = (Vec::new(), Vec::new());
    for group in groups {
        let cases = group.cases.iter();
        let points: Vec<LoadPoint> = cases
            .filter_map(|case| Some((case.load_value?, point(case)?)))
            .collect();
        // A group of several sweeps is not a line.
        if points.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            let line = points.iter().map(|(_, point)| *point).collect();
            marks.push(Mark::Line(line, group.stroke));
        }
        let (on_front, dominated): (Vec<LoadPoint>, Vec<LoadPoint>) = points
            .into_iter()
            .partition(|(_, point)| front.contains(point));
        let points = |of: &[LoadPoint]| of.iter().map(|(_, point)| *point).collect();
        marks.push(Mark::Rings(points(&dominated), group.stroke.color, 3.0));
        marks.push(Mark::Dots(points(&on_front), group.stroke.color, 4.5));
        let label = |(load, (x, y)): &LoadPoint| (*x, *y, load.to_string());
        labels.extend(on_front.iter().map(label));
        // The labels of many dominated points would be a mess.
        if groups.len() <= LABELED_GROUPS {
            others.extend(dominated.iter().map(label));
        }
    }
    labels.extend(others);
    marks.push(Mark::Labels(labels, Corner::Above));
    marks
}

/// With more groups, only the loads on the front are labeled.
const LABELED_GROUPS: usize = 3;

fn pareto_legend(groups: &[ParetoGroup], load_axis: &str) -> Vec<Entry> {
    let groups = groups
        .iter()
        .map(|group| Entry::new(&group.label, Swatch::Line(group.stroke)));
    let load = if load_axis == "rate" {
        "Pareto front (labels: offered rate)"
    } else {
        "Pareto front (labels: concurrency)"
    };
    let key = [
        Entry::new(load, Swatch::Line(Stroke::dashed(MUTED))),
        Entry::new("dominated", Swatch::Ring(INK)),
    ];
    groups.chain(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{grid, sweep, variants};

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
    fn a_pareto_front_is_drawn_for_each_kind_of_throughput() {
        let figure = pareto(&grid(2)).unwrap();
        assert!(
            figure
                .subtitle
                .contains(" of 12 cases are not dominated in output"),
            "{}",
            figure.subtitle
        );
        let titles = |figure: &Figure| -> Vec<String> {
            let panels = figure.panels.iter();
            panels.map(|panel| panel.y.title.clone()).collect()
        };
        assert_eq!(titles(&figure)[0], "tok/s");
        assert!(super::pareto(&sweep(12)).is_some());
        assert_eq!(super::pareto(&sweep(2)), None);
        let mut gpus = grid(2);
        gpus.cases.iter_mut().for_each(|case| {
            let both = [Metric::OutputTpsPerGpu, Metric::TotalTpsPerGpu];
            case.scalars.extend(both.map(|metric| (metric, 7.0)));
        });
        assert_eq!(
            titles(&super::pareto(&gpus).unwrap()),
            ["tok/s per GPU", "tok/s per GPU"]
        );
    }

    #[test]
    fn interactivity_is_a_thousand_by_the_median_tpot() {
        let report = variants(2, 8);
        let case = &report.cases[3];
        let tpot = case.distributions[&Metric::Tpot].quantile(0.5).unwrap();
        assert_eq!(interactivity(case), Some(1e3 / tpot));
        let figure = pareto(&report).unwrap();
        let lines = |mark: &&Mark| {
            matches!(mark, Mark::Line(points,
            stroke) if points.len() == 8 && stroke.dash.is_none())
        };
        assert_eq!(figure.panels[0].marks.iter().filter(lines).count(), 2);
    }
}
