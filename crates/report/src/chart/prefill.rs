//! TTFT against the length of the prompt: what prefill costs.

use crate::chart::axis::Axis;
use crate::chart::figure::{Entry, Figure, Mark, Side, Swatch};
use crate::chart::limit::{SpanUnit, scaled};
use crate::chart::pick::{Picture, multiples};
use crate::chart::pick::{columns, subtitle};
use crate::chart::style::{FAN, INK, Stroke};
use crate::format::millis;
use llmscen_core::report::{CaseReport, Report, Series};
use llmscen_core::stats::trend::line as fit;

/// The longest prompt must be this many times the shortest, or there is no line through them.
const SPREAD: f64 = 1.2;
/// Dots of all panels together, about.
const DOTS: usize = 6000;

/// The chart; None where prompts are as good as equally long.
pub fn figure(report: &Report) -> Option<Figure> {
    let (panels, remark) = multiples(report, "TTFT from sending", differ, picture);
    let own = if panels.len() > 1 { "each panel has its own scale" } else { "" };
    (!panels.is_empty()).then(|| Figure {
        name: "ttft_by_prompt",
        title: "Time to first token by the length of the prompt".to_owned(),
        subtitle: subtitle(
            report,
            &[remark, own.to_owned(), "trend per 1000 tokens (1k): median slope of all pairs (Theil–Sen)".to_owned()],
        ),
        legend: vec![Entry::new("a request", Swatch::Dot(FAN[2])), Entry::new("trend", Swatch::Line(Stroke::solid(INK)))],
        side: Side::Top,
        columns: columns(panels.len()),
        panels,
    })
}

fn differ(case: &CaseReport) -> bool {
    let lengths = || case.pictures.prefill.iter().map(|point| point.0).filter(|length| length.is_finite());
    let (least, most) = (lengths().fold(f64::INFINITY, f64::min), lengths().fold(0.0, f64::max));
    least.is_finite() && most > least && most >= least * SPREAD
}

fn picture(case: &CaseReport, panels: usize) -> Option<Picture> {
    let all = &case.pictures.prefill;
    let step = all.len().div_ceil((DOTS / panels.max(1)).max(1)).max(1);
    let some: Series = all.iter().copied().step_by(step).collect();
    let (slope, start) = fit(all)?;
    let unit = SpanUnit::of(some.iter().map(|point| point.1));
    let points = scaled(&some, 1.0, unit.factor);
    let (from, to) =
        some.iter().fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), point| (low.min(point.0), high.max(point.0)));
    // Where the line would fall under zero it ends.
    let line = [from, to].map(|length| (length, (start + slope * length).max(0.0) * unit.factor)).to_vec();
    let values: Vec<f64> = points.iter().map(|point| point.1).collect();
    // The slope stands in the head of the panel: nowhere in the plot is room for certain.
    let per = if columns(panels) > 2 { "/1k" } else { " per 1000 tokens" };
    let y = Axis::from_zero(format!("{} · {}{per}", unit.name, millis(slope * 1e3)), values);
    let line = Mark::Line(line, Stroke::solid(INK));
    Some(Picture { x: Axis::from_zero("prompt tokens", [to]), y, marks: vec![Mark::Dots(points, FAN[2], 1.75), line] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{no_data, report_of, sweep};

    #[test]
    fn the_trend_is_told_in_numbers() {
        let mut report = sweep(1);
        report.cases[0].pictures.prefill = (1..=50).map(|k| (f64::from(k) * 100.0, 20.0 + f64::from(k) * 3.0)).collect();
        let figure = figure(&report).unwrap();
        assert_eq!(figure.panels[0].y.title, "ms · 30 ms per 1000 tokens");
        let Mark::Line(line, _) = &figure.panels[0].marks[1] else { panic!() };
        assert!((line[0].1 - 23.0).abs() < 1e-9 && (line[1].1 - 170.0).abs() < 1e-9, "{line:?}");
    }

    #[test]
    fn equal_prompts_have_no_chart() {
        let mut report = sweep(1);
        report.cases[0].pictures.prefill = vec![(512.0, 20.0), (520.0, 30.0)];
        assert_eq!(figure(&report), None);
        assert_eq!(figure(&report_of(vec![no_data()], Default::default(), 3)), None);
        assert_eq!(figure(&sweep(100)).unwrap().panels.len(), 12);
    }
}
