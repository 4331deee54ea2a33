//! TTFT, ITL and E2E against load: a fan of percentiles where one line of loads was measured, else a line a group.

use crate::chart::axis::Axis;
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::limit::{Limit, SpanUnit, limits, scaled};
use crate::chart::pick::{sizes, subtitle};
use crate::chart::style::{ALARM, FAN, MAIN, MUTED, Stroke};
use crate::chart::sweep::{Group, Sweep};
use crate::chart::verdict;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report, Series};

/// The latencies that are drawn over load and over throughput.
pub const METRICS: [(Metric, &str); 3] = [(Metric::Ttft, "TTFT"), (Metric::Itl, "ITL"), (Metric::E2e, "E2E")];
/// The bands of the fan, the widest first.
const BANDS: [(f64, f64, &str); 3] = [(0.05, 0.99, "p5 to p99"), (0.10, 0.90, "p10 to p90"), (0.25, 0.75, "p25 to p75")];
/// With several groups the colour tells the group, so only two quantiles are told apart, by the dash.
const PAIR: [(f64, &str); 2] = [(0.99, "p99"), (0.50, "p50")];
/// A limit so many times over all that was seen would press the curves flat, so it is left out.
pub const OUT_OF_SIGHT: f64 = 3.0;

/// The chart; None where there is no sweep over load.
pub fn figure(report: &Report) -> Option<Figure> {
    let sweep = Sweep::of(report)?;
    let drawn: Vec<(Panel, Vec<Limit>)> =
        METRICS.iter().filter_map(|(metric, title)| panel(report, &sweep, (*metric, title))).collect();
    let limits = drawn.iter().flat_map(|(panel, limits)| limits.iter().map(|limit| (panel.title.clone(), limit.label.clone())));
    let legend = legend(&sweep, &limits.collect::<Vec<_>>());
    let panels: Vec<Panel> = drawn.into_iter().map(|(panel, _)| panel).collect();
    let sizes = sizes(sweep.cases(), Metric::E2e);
    (!panels.is_empty()).then(|| Figure {
        name: "latency_over_load",
        title: "Latency over load".to_owned(),
        subtitle: subtitle(report, &[sweep.remark.clone(), sizes]),
        legend,
        side: Side::Top,
        columns: panels.len(),
        panels,
    })
}

fn panel(report: &Report, sweep: &Sweep, (metric, title): (Metric, &str)) -> Option<(Panel, Vec<Limit>)> {
    let shares: &[f64] = if sweep.groups.len() == 1 { &[0.05, 0.50, 0.99] } else { &[0.50, 0.99] };
    let quantiles = |group: &Group| shares.iter().flat_map(|share| group.quantile(metric, *share)).collect::<Series>();
    let seen: Vec<f64> = sweep.groups.iter().flat_map(quantiles).map(|(_, value)| value).collect();
    let greatest = seen.iter().copied().reduce(f64::max)?;
    let mut limits = limits(report, metric);
    limits.retain(|limit| limit.value <= greatest * OUT_OF_SIGHT);
    let values = seen.iter().copied().chain(limits.iter().map(|limit| limit.value));
    let unit = SpanUnit::of(values.clone());
    let values: Vec<f64> = values.map(|value| value * unit.factor).collect();
    let mut marks = match sweep.groups.as_slice() {
        [only] => fan(only, metric, unit),
        _ => lines(sweep, metric, unit),
    };
    // Of a fan the median is marked, of several lines the upper ones.
    let share = if sweep.groups.len() == 1 { 0.50 } else { 0.99 };
    for group in &sweep.groups {
        let value = |case: &CaseReport| case.distributions.get(&metric)?.quantile(share).map(|value| value * unit.factor);
        marks.extend(verdict::marks(group, |case| case.load_value.zip(value(case))));
    }
    marks.extend(limits.iter().map(|limit| Mark::Level(limit.value * unit.factor, Stroke::dashed(ALARM))));
    Some((Panel { title: title.to_owned(), x: sweep.x(), y: Axis::fit(unit.name, &values, 30.0), marks }, limits))
}

/// Bands around the median.
fn fan(group: &Group, metric: Metric, unit: SpanUnit) -> Vec<Mark> {
    let quantile = |share| scaled(&group.quantile(metric, share), 1.0, unit.factor);
    let band = |((low, high, _), color): (&(f64, f64, &str), _)| {
        let points = quantile(*low).into_iter().zip(quantile(*high)).map(|((x, low), (_, high))| (x, low, high)).collect();
        Mark::Area(points, color)
    };
    let median = with_dots(quantile(0.50), Stroke::solid(MAIN), group.cases.len());
    BANDS.iter().zip(FAN).map(band).chain(median).collect()
}

fn lines(sweep: &Sweep, metric: Metric, unit: SpanUnit) -> Vec<Mark> {
    let both = |(index, group): (usize, &Group)| {
        let stroke = sweep.stroke(index);
        PAIR.map(|(share, name)| {
            let stroke = if name == "p99" { stroke } else { faint(stroke) };
            with_dots(scaled(&group.quantile(metric, share), 1.0, unit.factor), stroke, sweep.cases().count())
        })
    };
    sweep.groups.iter().enumerate().flat_map(both).flatten().collect()
}

/// A line, and a dot at each value where they do not run into each other.
pub fn with_dots(points: Series, stroke: Stroke, cases: usize) -> impl Iterator<Item = Mark> {
    let dots = (cases <= 40).then(|| Mark::Dots(points.clone(), stroke.color, 3.0));
    std::iter::once(Mark::Line(points, stroke)).chain(dots)
}

fn faint(stroke: Stroke) -> Stroke {
    Stroke { width: 1.5, dash: Some((4.0, 3.0)), ..stroke }
}

fn legend(sweep: &Sweep, limits: &[(String, String)]) -> Vec<Entry> {
    let line = |label: &str, stroke| Entry::new(label, Swatch::Line(stroke));
    let mut entries: Vec<Entry> = if sweep.groups.len() == 1 {
        let bands = BANDS.iter().zip(FAN).rev().map(|((_, _, label), color)| Entry::new(*label, Swatch::Shade(color)));
        std::iter::once(line("median", Stroke::solid(MAIN))).chain(bands).collect()
    } else {
        let groups = sweep.groups.iter().enumerate().map(|(index, group)| line(&group.label, sweep.stroke(index)));
        groups.chain([line("p99", Stroke::solid(MUTED)), line("p50", faint(Stroke::solid(MUTED)))]).collect()
    };
    entries.extend(verdict::legend(sweep, true));
    let limit = |(panel, label): &(String, String)| line(&format!("{panel} {label}"), Stroke::dashed(ALARM));
    entries.extend(limits.iter().map(limit));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{grid, sweep};

    #[test]
    fn a_fan_of_three_metrics_over_each_load() {
        let figure = figure(&sweep(12)).unwrap();
        let titles: Vec<&str> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
        assert_eq!(titles, ["TTFT", "ITL", "E2E"]);
        let bands: Vec<&Vec<(f64, f64, f64)>> =
            figure.panels[0].marks.iter().filter_map(|mark| if let Mark::Area(p, _) = mark { Some(p) } else { None }).collect();
        assert_eq!(bands.iter().map(|band| band.len()).collect::<Vec<_>>(), [12, 12, 12]);
        assert!(bands[0].iter().zip(bands[2]).all(|(wide, narrow)| wide.1 <= narrow.1 && narrow.2 <= wide.2));
        assert_eq!(figure.panels[2].y.title, "s");
        assert_eq!(figure.subtitle, "chat  ·  12 cases  ·  n = 240 requests per case");
    }

    #[test]
    fn the_limit_stands_in_the_panel_of_its_metric_unless_it_is_out_of_sight() {
        let level = |panel: &Panel| panel.marks.iter().any(|mark| *mark == Mark::Level(500.0, Stroke::dashed(ALARM)));
        let near = figure(&sweep(12)).unwrap();
        assert_eq!(near.panels.iter().map(level).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(near.legend.last().unwrap().label, "TTFT SLO p99 < 500 ms");
        let far = figure(&sweep(2)).unwrap();
        assert!(!far.panels.iter().any(level) && far.legend.len() == 4);
    }

    #[test]
    fn groups_are_lines_of_two_quantiles() {
        let figure = figure(&grid(2)).unwrap();
        let lines = figure.panels[1].marks.iter().filter(|mark| matches!(mark, Mark::Line(..))).count();
        assert_eq!((lines, figure.legend[1].label.as_str()), (4, "max_tokens=256"));
    }

    #[test]
    fn it_is_not_drawn_without_a_sweep() {
        assert_eq!(figure(&sweep(1)), None);
    }
}
