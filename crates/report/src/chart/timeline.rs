//! The request timeline: each request of the first round as a bar of queue, prefill and decode.

use crate::chart::axis::Axis;
use crate::chart::figure::{Cell, Entry, Figure, Mark, Side, Swatch};
use crate::chart::pick::{PanelContent, columns, small_multiples, subtitle};
use crate::chart::style::{ALARM, FRAME, MAIN, PREFILL};
use llmscen_core::report::{CaseReport, Report, TimelineBar};
use plotters::style::RGBColor;

/// The most panels.
const MAX_PANELS: usize = 6;
/// The most requests of a panel: each bar needs some pixels.
const MAX_REQUESTS: usize = 120;
const MAX_REQUESTS_OF_SEVERAL: usize = 60;

/// The chart; None without single requests.
pub fn figure(report: &Report) -> Option<Figure> {
    let has_data = |case: &CaseReport| !case.chart_data.waterfall.is_empty();
    let (panels, remark) = small_multiples(report, "Requests", MAX_PANELS, has_data, panel);
    let has_failures = panels
        .iter()
        .flat_map(|panel| &panel.marks)
        .any(|mark| matches!(mark, Mark::DiagonalCrosses(points, _) if !points.is_empty()));
    let shade = |label: &str, color| Entry::new(label, Swatch::Shade(color));
    let failed = has_failures.then(|| Entry::new("failed", Swatch::Cross(ALARM)));
    (!panels.is_empty()).then(|| Figure {
        name: "request_timeline",
        title: "Request timeline".to_owned(),
        subtitle: subtitle(
            report,
            &[
                remark,
                "first round, an even selection by scheduled send time".to_owned(),
            ],
        ),
        legend: [
            shade("client queue", FRAME),
            shade("to first token (server queue, prefill)", PREFILL),
            shade("decode", MAIN),
        ]
        .into_iter()
        .chain(failed)
        .collect(),
        side: Side::Top,
        columns: columns(panels.len()),
        panels,
    })
}

fn panel(case: &CaseReport, panels: usize) -> Option<PanelContent> {
    let most = if panels == 1 {
        MAX_REQUESTS
    } else {
        MAX_REQUESTS_OF_SEVERAL
    };
    let all = &case.chart_data.waterfall;
    let bars: Vec<&TimelineBar> = all
        .iter()
        .step_by(all.len().div_ceil(most).max(1))
        .collect();
    let rows = bars.len() as f64;
    let end = bars
        .iter()
        .map(|bar| bar.end)
        .filter(|end| end.is_finite())
        .reduce(f64::max)?;
    let (mut cells, mut failed) = (Vec::new(), Vec::new());
    for (index, bar) in bars.iter().enumerate() {
        // The first request is at the top.
        let top = rows - index as f64;
        let sent = bar.sent.unwrap_or(bar.end);
        let first = bar.first_token.unwrap_or(bar.end);
        let after = |color: RGBColor| if bar.failure.is_some() { ALARM } else { color };
        let spans = [
            (bar.intended, sent, FRAME),
            (sent, first, after(PREFILL)),
            (first, bar.end, after(MAIN)),
        ];
        let spans = spans.into_iter().filter(|(from, to, _)| to > from);
        cells.extend(spans.map(|(from, to, color)| Cell {
            x: (from, to),
            y: (top - 0.85, top),
            color,
        }));
        if bar.failure.is_some() {
            failed.push((bar.end, top - 0.4));
        }
    }
    let y = Axis {
        ticks: Vec::new(),
        high: rows,
        ..Axis::from_zero("", [rows])
    };
    Some(PanelContent {
        x: Axis::until("time since start of case (s)", end),
        y,
        marks: vec![Mark::Cells(cells), Mark::DiagonalCrosses(failed, ALARM)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of};
    use llmscen_core::outcome::FailureKind;

    #[test]
    fn a_request_is_a_bar_of_queue_prefill_and_decode() {
        let mut case = case(4);
        let bar = TimelineBar {
            intended: 0.0,
            sent: Some(0.1),
            first_token: Some(0.4),
            end: 1.0,
            ..TimelineBar::default()
        };
        let failed = TimelineBar {
            first_token: None,
            failure: Some(FailureKind::Http5xx),
            ..bar
        };
        case.chart_data.waterfall = vec![bar, failed];
        let figure = figure(&report_of(vec![case], Default::default(), 0)).unwrap();
        let [Mark::Cells(cells), Mark::DiagonalCrosses(crosses, _)] =
            figure.panels[0].marks.as_slice()
        else {
            panic!("{:?}", figure.panels[0].marks)
        };
        let spans: Vec<_> = cells.iter().map(|cell| (cell.x, cell.color)).collect();
        assert_eq!(
            spans,
            [
                ((0.0, 0.1), FRAME),
                ((0.1, 0.4), PREFILL),
                ((0.4, 1.0), MAIN),
                ((0.0, 0.1), FRAME),
                ((0.1, 1.0), ALARM)
            ]
        );
        assert_eq!(
            (crosses.len(), figure.legend.last().unwrap().label.as_str()),
            (1, "failed")
        );
    }

    #[test]
    fn without_single_requests_it_is_not_drawn() {
        let mut case = case(4);
        case.chart_data.waterfall.clear();
        assert_eq!(figure(&report_of(vec![case], Default::default(), 0)), None);
    }
}
