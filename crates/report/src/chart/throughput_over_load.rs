//! Tokens and requests per second against load.

use crate::chart::axis::Axis;
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{subtitle, token_remark};
use crate::chart::style::{ALARM, MUTED, Stroke};
use crate::chart::sweep::Sweep;
use crate::chart::verdict;
use llmscen_core::metric::Metric;
use llmscen_core::report::Report;

const METRICS: [(Metric, &str, &str); 2] =
    [(Metric::OutputTps, "Output tokens", "tok/s"), (Metric::RequestThroughput, "Successful requests", "req/s")];

/// The chart; None where there is no sweep over load.
pub fn figure(report: &Report) -> Option<Figure> {
    let sweep = Sweep::of(report)?;
    let panels: Vec<Panel> = METRICS.iter().filter_map(|(metric, title, unit)| panel(&sweep, *metric, (title, unit))).collect();
    (!panels.is_empty()).then(|| Figure {
        name: "throughput_over_load",
        title: "Throughput over load".to_owned(),
        subtitle: subtitle(report, &[sweep.remark.clone(), token_remark(report)]),
        legend: legend(&sweep),
        side: Side::Top,
        columns: panels.len(),
        panels,
    })
}

fn panel(sweep: &Sweep, metric: Metric, (title, unit): (&str, &str)) -> Option<Panel> {
    let lines: Vec<_> = sweep.groups.iter().map(|group| group.points(|case| case.scalars.get(&metric).copied())).collect();
    let greatest = lines.iter().flatten().map(|(_, y)| *y).reduce(f64::max)?;
    let mut marks = Vec::new();
    if offers(sweep) && metric == Metric::RequestThroughput {
        let ideal = sweep.groups[0].points(|case| case.load_value.filter(|rate| *rate <= greatest * 1.5));
        marks.push(Mark::Line(ideal, Stroke::dashed(MUTED)));
    }
    let reach = marks.iter().filter_map(|mark| if let Mark::Line(points, _) = mark { points.last() } else { None });
    let y = Axis::from_zero(unit, reach.map(|(_, y)| *y).chain([greatest]).collect::<Vec<_>>());
    for (index, points) in lines.into_iter().enumerate() {
        let stroke = sweep.stroke(index);
        marks.push(Mark::Line(points.clone(), stroke));
        if sweep.cases().count() <= 40 {
            marks.push(Mark::Dots(points, stroke.color, 3.0));
        }
    }
    for group in &sweep.groups {
        marks.extend(
            verdict::marks(group, |case| case.load_value.zip(case.scalars.get(&metric).copied())).into_iter().filter(hollow),
        );
    }
    Some(Panel { title: title.to_owned(), x: sweep.x(), y, marks })
}

/// A failed objective is seldom about a throughput, so only invalid cases are marked.
fn hollow(mark: &Mark) -> bool {
    !matches!(mark, Mark::Rings(_, color, _) if *color == ALARM)
}

/// An open loop offers a rate, and what is answered can be held against it.
fn offers(sweep: &Sweep) -> bool {
    sweep.axis == "rate"
}

fn legend(sweep: &Sweep) -> Vec<Entry> {
    let mut entries: Vec<Entry> = match sweep.groups.len() {
        1 => Vec::new(),
        _ => sweep
            .groups
            .iter()
            .enumerate()
            .map(|(index, group)| Entry::new(&group.label, Swatch::Line(sweep.stroke(index))))
            .collect(),
    };
    if offers(sweep) {
        entries.push(Entry::new("offered", Swatch::Line(Stroke::dashed(MUTED))));
    }
    entries.extend(verdict::legend(sweep, false));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::sweep;

    #[test]
    fn an_open_loop_shows_what_was_offered() {
        let mut report = sweep(12);
        assert_eq!(figure(&report).unwrap().legend, []);
        for case in &mut report.cases {
            case.load_axis = "rate";
        }
        let figure = figure(&report).unwrap();
        assert_eq!(figure.legend.len(), 1);
        assert_eq!(figure.panels[1].x.title, "offered rate (req/s)");
        let Mark::Line(offered, stroke) = &figure.panels[1].marks[0] else { panic!() };
        assert!(offered.iter().all(|(x, y)| x == y) && stroke.dash.is_some());
    }
}
