//! The gap before each token by its place in the reply: how the pace changes as the context grows.

use crate::chart::axis::Axis;
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::limit::{SpanUnit, scaled};
use crate::chart::pick::{Picture, multiples};
use crate::chart::pick::{columns, sizes, subtitle};
use crate::chart::style::{QUANTILES, Stroke};
use llmscen_core::chart_data::Band;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report, Series};

/// A quantile, its name, and the gaps that it takes to be told apart from the greatest one.
type Line = (fn(&Band) -> f64, &'static str, u64);
const LINES: [Line; 3] = [(|band| band.p50, "p50", 1), (|band| band.p90, "p90", 10), (|band| band.p99, "p99", 100)];
/// Steps of one place below which there is nothing to see.
const FEWEST: usize = 4;

/// The chart; None where replies are too short to have a course.
pub fn figure(report: &Report) -> Option<Figure> {
    let (panels, remark) = multiples(report, "ITL", |case| case.pictures.by_token.len() >= FEWEST, |case, _| picture(case));
    let own = if panels.len() > 1 { "each panel has its own scale" } else { "" };
    let sizes = sizes(report.cases.iter(), Metric::Itl);
    (!panels.is_empty()).then(|| Figure {
        name: "itl_by_token",
        title: "Inter-token latency by the place of the token".to_owned(),
        subtitle: subtitle(report, &[remark, own.to_owned(), sizes]),
        legend: legend(&panels),
        side: Side::Top,
        columns: columns(panels.len()),
        panels,
    })
}

fn picture(case: &CaseReport) -> Option<Picture> {
    let bands = &case.pictures.by_token;
    let line = |(value, _, least): &Line| -> Series {
        let told = bands.iter().filter(|band| band.n >= *least);
        told.map(|band| ((band.from + band.to) / 2.0, value(band))).collect()
    };
    let lines = LINES.map(|own| line(&own));
    let unit = SpanUnit::of(lines.iter().flatten().map(|point| point.1));
    let values: Vec<f64> = lines.iter().flatten().map(|point| point.1 * unit.factor).collect();
    let drawn = lines.iter().zip(QUANTILES).filter(|(points, _)| points.len() > 1);
    let marks = drawn.map(|(points, color)| Mark::Line(scaled(points, 1.0, unit.factor), Stroke::solid(color).thin())).rev();
    let x = Axis::until("token of the reply", bands.last()?.to);
    Some(Picture { x, y: Axis::fit(unit.name, &values, 30.0), marks: marks.collect() })
}

/// The quantiles that some panel shows.
fn legend(panels: &[Panel]) -> Vec<Entry> {
    let shows = |color| {
        let own = |mark: &Mark| matches!(mark, Mark::Line(_, stroke) if stroke.color == color);
        panels.iter().any(|panel| panel.marks.iter().any(own))
    };
    let entry = |((_, name, _), color): (&Line, _)| Entry::new(*name, Swatch::Line(Stroke::solid(color).thin()));
    LINES.iter().zip(QUANTILES).filter(|(_, color)| shows(*color)).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{no_data, report_of, sweep};

    #[test]
    fn a_quantile_is_drawn_where_enough_gaps_tell_it() {
        let mut report = sweep(1);
        let labels = |report: &Report| figure(report).unwrap().legend.into_iter().map(|entry| entry.label).collect::<Vec<_>>();
        assert_eq!(labels(&report), ["p50", "p90", "p99"]);
        report.cases[0].pictures.by_token.iter_mut().for_each(|band| band.n = 99);
        assert_eq!(labels(&report), ["p50", "p90"]);
    }

    #[test]
    fn short_replies_and_no_data_have_no_chart() {
        let mut report = sweep(1);
        report.cases[0].pictures.by_token.truncate(3);
        assert_eq!(figure(&report), None);
        assert_eq!(figure(&report_of(vec![no_data()], Default::default(), 3)), None);
        assert_eq!(figure(&sweep(100)).unwrap().panels.len(), 12);
    }
}
