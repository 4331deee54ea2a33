//! Latency by length: ITL by output position, TTFT by prompt length.

use crate::chart::axis::{Axis, TimeUnit, scaled};
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{
    MAX_PANELS, PanelContent, SHARED_SCALE, columns, sample_sizes, select_cases, small_multiples,
    subtitle,
};
use crate::chart::style::{FAN, INK, QUANTILES, Stroke};
use crate::format::millis;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, QuantileBand, Report, Series};
use llmscen_core::stats::trend::fit_line as fit;

/// A quantile, its name, and the least number of gaps for which it differs from the maximum.
type QuantileLine = (fn(&QuantileBand) -> f64, &'static str, u64);
const LINES: [QuantileLine; 3] = [
    (|band| band.p50, "p50", 1),
    (|band| band.p90, "p90", 10),
    (|band| band.p99, "p99", 100),
];
/// A chart needs at least this many output positions.
const MIN_POSITIONS: usize = 4;

/// Inter-token latency by output position; None if responses are too short.
pub fn itl_by_position(report: &Report) -> Option<Figure> {
    let has_data = |case: &CaseReport| case.chart_data.by_token.len() >= MIN_POSITIONS;
    let (picked, _) = select_cases(report, MAX_PANELS, has_data);
    let values: Vec<f64> = picked
        .iter()
        .flat_map(|shown| quantile_lines(shown.case))
        .flatten()
        .map(|point| point.1)
        .collect();
    let unit = TimeUnit::for_values(values.iter().copied());
    let values: Vec<f64> = values.iter().map(|value| value * unit.factor).collect();
    let y = Axis::fit(unit.name, &values, 30.0);
    let (panels, remark) = small_multiples(report, "ITL", MAX_PANELS, has_data, |case, _| {
        itl_picture(case, unit, &y)
    });
    let scales = if panels.len() > 1 { SHARED_SCALE } else { "" };
    let sizes = sample_sizes(report.cases.iter(), Metric::Itl);
    (!panels.is_empty()).then(|| Figure {
        name: "itl_by_token",
        title: "Inter-token latency by output position".to_owned(),
        subtitle: subtitle(report, &[remark, scales.to_owned(), sizes]),
        legend: itl_legend(&panels),
        side: Side::Top,
        columns: columns(panels.len()),
        panels,
    })
}

/// Each quantile over the positions that have enough gaps for it.
fn quantile_lines(case: &CaseReport) -> [Series; 3] {
    let bands = &case.chart_data.by_token;
    let line = |(value, _, least): &QuantileLine| -> Series {
        let enough = bands.iter().filter(|band| band.n >= *least);
        enough
            .map(|band| ((band.from + band.to) / 2.0, value(band)))
            .collect()
    };
    LINES.map(|quantile| line(&quantile))
}

fn itl_picture(case: &CaseReport, unit: TimeUnit, y: &Axis) -> Option<PanelContent> {
    let lines = quantile_lines(case);
    let drawn = lines
        .iter()
        .zip(QUANTILES)
        .filter(|(points, _)| points.len() > 1);
    let marks = drawn
        .map(|(points, color)| {
            Mark::Line(
                scaled(points, 1.0, unit.factor),
                Stroke::solid(color).thin(),
            )
        })
        .rev();
    let x = Axis::until("output token index", case.chart_data.by_token.last()?.to);
    Some(PanelContent {
        x,
        y: y.clone(),
        marks: marks.collect(),
    })
}

/// The quantiles that any panel shows.
fn itl_legend(panels: &[Panel]) -> Vec<Entry> {
    let shows = |color| {
        let is_line = |mark: &Mark| matches!(mark, Mark::Line(_, stroke) if stroke.color == color);
        panels.iter().any(|panel| panel.marks.iter().any(is_line))
    };
    let entry = |((_, name, _), color): (&QuantileLine, _)| {
        Entry::new(*name, Swatch::Line(Stroke::solid(color).thin()))
    };
    LINES
        .iter()
        .zip(QUANTILES)
        .filter(|(_, color)| shows(*color))
        .map(entry)
        .collect()
}

/// A trend needs a longest prompt of at least this many times the shortest.
const MIN_LENGTH_RATIO: f64 = 1.2;
/// Approximate number of dots in all panels together.
const MAX_DOTS: usize = 6000;

/// TTFT by prompt length with its trend; None if prompts have about the same length.
pub fn ttft_by_prompt_length(report: &Report) -> Option<Figure> {
    let (panels, remark) = small_multiples(
        report,
        "TTFT (from send)",
        MAX_PANELS,
        lengths_differ,
        ttft_picture,
    );
    let scales = if panels.len() > 1 {
        "each panel has its own scale"
    } else {
        ""
    };
    (!panels.is_empty()).then(|| Figure {
        name: "ttft_by_prompt",
        title: "TTFT by prompt length".to_owned(),
        subtitle: subtitle(
            report,
            &[
                remark,
                scales.to_owned(),
                "trend per 1000 tokens (1k): median slope of all pairs (Theil–Sen)".to_owned(),
            ],
        ),
        legend: vec![
            Entry::new("request", Swatch::Dot(FAN[2])),
            Entry::new("trend", Swatch::Line(Stroke::solid(INK))),
        ],
        side: Side::Top,
        columns: columns(panels.len()),
        panels,
    })
}

fn lengths_differ(case: &CaseReport) -> bool {
    let lengths = || {
        case.chart_data
            .prefill
            .iter()
            .map(|point| point.0)
            .filter(|length| length.is_finite())
    };
    let (least, most) = (
        lengths().fold(f64::INFINITY, f64::min),
        lengths().fold(0.0, f64::max),
    );
    least.is_finite() && most > least && most >= least * MIN_LENGTH_RATIO
}

fn ttft_picture(case: &CaseReport, panels: usize) -> Option<PanelContent> {
    let all = &case.chart_data.prefill;
    let step = all.len().div_ceil((MAX_DOTS / panels.max(1)).max(1)).max(1);
    let some: Series = all.iter().copied().step_by(step).collect();
    let (slope, start) = fit(all)?;
    let unit = TimeUnit::for_values(some.iter().map(|point| point.1));
    let points = scaled(&some, 1.0, unit.factor);
    let (from, to) = some
        .iter()
        .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), point| {
            (low.min(point.0), high.max(point.0))
        });
    // The line is cut at zero.
    let line = [from, to]
        .map(|length| (length, (start + slope * length).max(0.0) * unit.factor))
        .to_vec();
    let values: Vec<f64> = points.iter().map(|point| point.1).collect();
    // The slope is in the head of the panel, where it covers no data.
    let per = if columns(panels) > 2 {
        "/1k"
    } else {
        " per 1000 tokens"
    };
    let y = Axis::from_zero(
        format!("{} · {}{per}", unit.name, millis(slope * 1e3)),
        values,
    );
    let line = Mark::Line(line, Stroke::solid(INK));
    Some(PanelContent {
        x: Axis::from_zero("prompt tokens", [to]),
        y,
        marks: vec![Mark::Dots(points, FAN[2], 1.75), line],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{no_data, report_of, sweep};

    #[test]
    fn a_quantile_is_drawn_if_there_are_enough_gaps() {
        let mut report = sweep(1);
        let labels = |report: &Report| {
            itl_by_position(report)
                .unwrap()
                .legend
                .into_iter()
                .map(|entry| entry.label)
                .collect::<Vec<_>>()
        };
        assert_eq!(labels(&report), ["p50", "p90", "p99"]);
        report.cases[0]
            .chart_data
            .by_token
            .iter_mut()
            .for_each(|band| band.n = 99);
        assert_eq!(labels(&report), ["p50", "p90"]);
    }

    #[test]
    fn short_responses_and_no_data_have_no_chart() {
        let mut report = sweep(1);
        report.cases[0].chart_data.by_token.truncate(3);
        assert_eq!(itl_by_position(&report), None);
        assert_eq!(
            itl_by_position(&report_of(vec![no_data()], Default::default(), 3)),
            None
        );
        assert_eq!(itl_by_position(&sweep(100)).unwrap().panels.len(), 12);
    }

    #[test]
    fn the_head_shows_the_slope() {
        let mut report = sweep(1);
        report.cases[0].chart_data.prefill = (1..=50)
            .map(|k| (f64::from(k) * 100.0, 20.0 + f64::from(k) * 3.0))
            .collect();
        let figure = ttft_by_prompt_length(&report).unwrap();
        assert_eq!(figure.panels[0].y.title, "ms · 30 ms per 1000 tokens");
        let Mark::Line(line, _) = &figure.panels[0].marks[1] else {
            panic!()
        };
        assert!(
            (line[0].1 - 23.0).abs() < 1e-9 && (line[1].1 - 170.0).abs() < 1e-9,
            "{line:?}"
        );
    }

    #[test]
    fn equal_prompts_have_no_chart() {
        let mut report = sweep(1);
        report.cases[0].chart_data.prefill = vec![(512.0, 20.0), (520.0, 30.0)];
        assert_eq!(ttft_by_prompt_length(&report), None);
        assert_eq!(
            ttft_by_prompt_length(&report_of(vec![no_data()], Default::default(), 3)),
            None
        );
        assert_eq!(ttft_by_prompt_length(&sweep(100)).unwrap().panels.len(), 12);
    }
}
