//! TTFT, ITL and E2E against load.

use crate::model::metric::Metric;
use crate::model::report::Report;
use crate::view::chart::axis::Axis;
use crate::view::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::view::chart::limit::{SpanUnit, scaled};
use crate::view::chart::pick::subtitle;
use crate::view::chart::style::{MUTED, QUANTILES, Stroke};
use crate::view::chart::sweep::{Group, Sweep};

const METRICS: [(Metric, &str); 3] = [(Metric::Ttft, "TTFT"), (Metric::Itl, "ITL"), (Metric::E2e, "E2E")];
const SHARES: [(f64, &str); 3] = [(0.50, "p50"), (0.90, "p90"), (0.99, "p99")];
/// With several groups the colour tells the group, so only two quantiles are told apart, by the dash.
const PAIR: [(f64, &str); 2] = [(0.99, "p99"), (0.50, "p50")];

/// The chart; None where there is no sweep over load.
pub fn figure(report: &Report) -> Option<Figure> {
    let sweep = Sweep::of(report)?;
    let panels: Vec<Panel> = METRICS.iter().filter_map(|(metric, title)| panel(&sweep, *metric, title)).collect();
    let (legend, side) = legend(&sweep);
    (!panels.is_empty()).then(|| Figure {
        name: "latency_over_load",
        title: "Latency over load".to_owned(),
        subtitle: subtitle(report, std::slice::from_ref(&sweep.remark)),
        legend,
        side,
        columns: panels.len(),
        panels,
    })
}

fn lines(sweep: &Sweep, metric: Metric) -> Vec<(Vec<(f64, f64)>, Stroke)> {
    if let [only] = sweep.groups.as_slice() {
        return SHARES
            .iter()
            .zip(QUANTILES)
            .map(|((share, _), color)| (only.quantile(metric, *share), Stroke::solid(color)))
            .collect();
    }
    let both = |(index, group): (usize, &Group)| {
        let stroke = sweep.stroke(index);
        PAIR.map(|(share, name)| (group.quantile(metric, share), if name == "p99" { stroke } else { faint(stroke) }))
    };
    sweep.groups.iter().enumerate().flat_map(both).collect()
}

fn faint(stroke: Stroke) -> Stroke {
    Stroke { width: 1.5, dash: Some((4.0, 3.0)), ..stroke }
}

fn panel(sweep: &Sweep, metric: Metric, title: &str) -> Option<Panel> {
    let lines = lines(sweep, metric);
    let values: Vec<f64> = lines.iter().flat_map(|(points, _)| points.iter().map(|(_, y)| *y)).collect();
    if values.is_empty() {
        return None;
    }
    let unit = SpanUnit::of(values.iter().copied());
    let values: Vec<f64> = values.iter().map(|value| value * unit.factor).collect();
    let mut marks = Vec::new();
    for (points, stroke) in lines {
        let points = scaled(&points, 1.0, unit.factor);
        marks.push(Mark::Line(points.clone(), stroke));
        if sweep.cases().count() <= 40 {
            marks.push(Mark::Dots(points, stroke.color, 3.0));
        }
    }
    Some(Panel { title: title.to_owned(), x: sweep.x(), y: Axis::fit(unit.name, &values, 30.0), marks })
}

fn legend(sweep: &Sweep) -> (Vec<Entry>, Side) {
    if sweep.groups.len() == 1 {
        let entry = |((_, name), color): (&(f64, &str), _)| Entry::new(*name, Swatch::Line(Stroke::solid(color)));
        return (SHARES.iter().zip(QUANTILES).map(entry).collect(), Side::Top);
    }
    let groups =
        sweep.groups.iter().enumerate().map(|(index, group)| Entry::new(&group.label, Swatch::Line(sweep.stroke(index))));
    let key =
        [Entry::new("p99", Swatch::Line(Stroke::solid(MUTED))), Entry::new("p50", Swatch::Line(faint(Stroke::solid(MUTED))))];
    (groups.chain(key).collect(), Side::Top)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixture::sweep;

    #[test]
    fn three_quantiles_of_three_metrics_over_each_load() {
        let figure = figure(&sweep(12)).unwrap();
        let titles: Vec<&str> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
        assert_eq!(titles, ["TTFT", "ITL", "E2E"]);
        let lines: Vec<usize> = figure.panels[0]
            .marks
            .iter()
            .filter_map(|mark| if let Mark::Line(p, _) = mark { Some(p.len()) } else { None })
            .collect();
        assert_eq!(lines, [12, 12, 12]);
        assert_eq!(figure.panels[2].y.title, "s");
    }

    #[test]
    fn it_is_not_drawn_without_a_sweep() {
        assert_eq!(figure(&sweep(1)), None);
    }
}
