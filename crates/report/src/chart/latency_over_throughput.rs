//! What throughput costs: latency against throughput, from load to load, with the knee.

use crate::chart::axis::Axis;
use crate::chart::figure::{Corner, Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::latency_over_load::{METRICS, with_dots};
use crate::chart::limit::{SpanUnit, scaled};
use crate::chart::pick::{sizes, subtitle, token_remark};
use crate::chart::style::{INK, QUANTILES, Stroke};
use crate::chart::sweep::{Group, Sweep};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report, Series};
use llmscen_core::stats::knee::knee;

/// The quantiles of a single line of loads; of several groups, the first alone.
const SHARES: [(f64, &str); 3] = [(0.50, "p50"), (0.90, "p90"), (0.99, "p99")];
/// Fewer loads make no curve.
const FEWEST: usize = 3;

/// The chart; None where fewer than three loads lie on one axis.
pub fn figure(report: &Report) -> Option<Figure> {
    let sweep = Sweep::of(report).filter(|sweep| sweep.groups.iter().any(|group| group.cases.len() >= FEWEST))?;
    let known = |metric: Metric| sweep.cases().all(|case| case.scalars.contains_key(&metric));
    let throughput = if known(Metric::OutputTps) { Metric::OutputTps } else { Metric::RequestThroughput };
    let drawn: Vec<(Panel, usize)> = METRICS.iter().filter_map(|own| panel(&sweep, *own, throughput)).collect();
    let knees = drawn.iter().any(|(_, knees)| *knees > 0);
    let remark = if knees { "knee: where the p50 lies deepest under its chord (Kneedle)" } else { "" };
    let counted = if throughput == Metric::OutputTps { token_remark(report) } else { String::new() };
    let panels: Vec<Panel> = drawn.into_iter().map(|(panel, _)| panel).collect();
    let remarks = [sweep.remark.clone(), sizes(sweep.cases(), Metric::E2e), remark.to_owned(), counted];
    (!panels.is_empty()).then(|| Figure {
        name: "latency_over_throughput",
        title: "Latency over throughput".to_owned(),
        subtitle: subtitle(report, &remarks),
        legend: legend(&sweep, knees),
        side: Side::Top,
        columns: panels.len(),
        panels,
    })
}

/// By rising load.
fn curve(group: &Group, (metric, share): (Metric, f64), throughput: Metric) -> Vec<(f64, (f64, f64))> {
    let point = |case: &&CaseReport| {
        let latency = case.distributions.get(&metric)?.quantile(share)?;
        Some((case.load_value?, (case.scalars.get(&throughput).copied()?, latency)))
    };
    group.cases.iter().filter_map(point).collect()
}

/// The load and the place of the knee, looked for while throughput still grows with load.
fn bend(curve: &[(f64, (f64, f64))]) -> Option<(f64, (f64, f64))> {
    let mut rising: Vec<(f64, (f64, f64))> = Vec::new();
    for point in curve {
        if rising.last().is_none_or(|last| point.1.0 > last.1.0) {
            rising.push(*point);
        }
    }
    let points: Series = rising.iter().map(|(_, point)| *point).collect();
    knee(&points).and_then(|at| rising.get(at)).copied()
}

/// A panel, and how many knees it shows.
fn panel(sweep: &Sweep, (metric, title): (Metric, &str), throughput: Metric) -> Option<(Panel, usize)> {
    let shares = if sweep.groups.len() == 1 { SHARES.as_slice() } else { &SHARES[..1] };
    let of = |group: &Group, share| curve(group, (metric, share), throughput);
    let all = || sweep.groups.iter().flat_map(|group| shares.iter().flat_map(move |(share, _)| of(group, *share)));
    let (reach, unit) = (all().map(|(_, point)| point.0).reduce(f64::max)?, SpanUnit::of(all().map(|(_, point)| point.1)));
    let values: Vec<f64> = all().map(|(_, point)| point.1 * unit.factor).collect();
    let (mut marks, mut knees, mut words, mut head) = (Vec::new(), Vec::new(), Vec::new(), unit.name.to_owned());
    for (index, group) in sweep.groups.iter().enumerate() {
        for ((share, _), color) in shares.iter().zip(QUANTILES) {
            let stroke = if sweep.groups.len() == 1 { Stroke::solid(color) } else { sweep.stroke(index) };
            let points: Series = of(group, *share).into_iter().map(|(_, point)| point).collect();
            let points = scaled(&points, 1.0, unit.factor);
            marks.extend(with_dots(points, stroke, sweep.cases().count()));
        }
        let medians = of(group, SHARES[0].0);
        let bend = bend(&medians);
        knees.extend(bend.map(|(_, (x, y))| (x, y * unit.factor)));
        // Of several lines the words would cover each other.
        if sweep.groups.len() == 1 {
            // Beside the knee the lines of the loads beyond it would cross the words.
            bend.iter().for_each(|(load, _)| head += &format!(" · knee at {load}"));
            words.extend(medians.last().map(|(load, (x, y))| (*x, y * unit.factor, load.to_string())));
        }
    }
    let found = knees.len();
    marks.extend([Mark::Rings(knees, INK, 7.0), Mark::Words(words, Corner::Below)]);
    let x = match throughput {
        Metric::OutputTps => "output tokens per second",
        _ => "successful requests per second",
    };
    let x = Axis::from_zero(x, [reach]);
    Some((Panel { title: title.to_owned(), x, y: Axis::fit(head, &values, 30.0), marks }, found))
}

fn legend(sweep: &Sweep, knees: bool) -> Vec<Entry> {
    let line = |label: &str, stroke| Entry::new(label, Swatch::Line(stroke));
    let what = if sweep.axis == "rate" { "offered rate, req/s" } else { "concurrency" };
    let told = if sweep.groups.len() == 1 { format!("knee, at its {what}") } else { "knee".to_owned() };
    let knee = knees.then(|| Entry::new(told, Swatch::Ring(INK)));
    let lines: Vec<Entry> = match sweep.groups.len() {
        1 => SHARES.iter().zip(QUANTILES).map(|((_, name), color)| line(name, Stroke::solid(color))).collect(),
        _ => {
            let groups = sweep.groups.iter().enumerate();
            groups.map(|(index, group)| line(&format!("{}, p50", group.label), sweep.stroke(index))).collect()
        }
    };
    lines.into_iter().chain(knee).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{grid, sweep};

    fn knees(figure: &Figure) -> Vec<usize> {
        let rings = |mark: &Mark| if let Mark::Rings(points, ..) = mark { Some(points.len()) } else { None };
        figure.panels.iter().filter_map(|panel| panel.marks.iter().find_map(rings)).collect()
    }

    #[test]
    fn the_knee_is_marked_where_the_server_saturates() {
        let figure = figure(&sweep(12)).unwrap();
        assert_eq!(knees(&figure), [1, 1, 1]);
        assert_eq!(figure.panels[0].y.title, "ms · knee at 48");
        assert!(figure.subtitle.ends_with("(Kneedle)"), "{}", figure.subtitle);
    }

    #[test]
    fn it_is_sought_only_while_throughput_grows() {
        let curve = [(1.0, (10.0, 1.0)), (2.0, (20.0, 1.0)), (4.0, (30.0, 1.5)), (8.0, (32.0, 9.0)), (16.0, (5.0, 90.0))];
        assert_eq!(bend(&curve), Some((4.0, (30.0, 1.5))));
        assert_eq!(bend(&curve[..3]), None);
    }

    #[test]
    fn groups_have_a_line_each_and_few_loads_no_chart() {
        let figure = super::figure(&grid(2)).unwrap();
        assert_eq!(figure.panels[0].marks.iter().filter(|mark| matches!(mark, Mark::Line(..))).count(), 2);
        assert_eq!(super::figure(&sweep(2)), None);
    }
}
