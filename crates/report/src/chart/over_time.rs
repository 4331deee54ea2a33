//! What happened while a case ran: a panel a case, each with its own scale.

use crate::chart::axis::{Axis, SpanUnit, scaled};
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch, thin};
use crate::chart::pick::{Picked, columns, pick, shown, subtitle, token_remark};
use crate::chart::style::{ALARM, INK, MAIN, SHADE, Stroke};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};

/// Panels in one chart at the most.
const ROOM: usize = 12;
/// Points in one panel at the most.
const POINTS: usize = 1000;

/// What such a chart shows.
struct Topic {
    name: &'static str,
    title: &'static str,
    /// What the vertical axis shows; it heads the panel of a single case.
    quantity: &'static str,
    main: Entry,
    remark: String,
    has: fn(&CaseReport) -> bool,
    panel: fn(&CaseReport) -> (Axis, Vec<Mark>),
}

/// Requests in flight over time; None without data.
pub fn in_flight(report: &Report) -> Option<Figure> {
    grid(
        report,
        Topic {
            name: "in_flight",
            title: "Requests in flight over time",
            quantity: "Requests in flight",
            main: Entry::new("requests in flight", Swatch::Line(Stroke::solid(MAIN))),
            remark: String::new(),
            has: |case| !case.timelines.in_flight.is_empty(),
            panel: |case| {
                let points = thin(&case.timelines.in_flight, POINTS);
                (Axis::counts("", points.iter().map(|point| point.1)), vec![Mark::Steps(points, Stroke::solid(MAIN).thin())])
            },
        },
    )
}

/// Output tokens per second over time; None without data.
pub fn tokens_per_second(report: &Report) -> Option<Figure> {
    grid(
        report,
        Topic {
            name: "tokens_per_second",
            title: "Output tokens per second over time",
            quantity: "Output tokens",
            main: Entry::new("output tokens per second", Swatch::Line(Stroke::solid(MAIN))),
            remark: token_remark(report),
            has: |case| !case.timelines.output_tps.is_empty(),
            panel: |case| {
                let points = thin(&case.timelines.output_tps, POINTS);
                let mean = case.scalars.get(&Metric::OutputTps).copied();
                let y = Axis::from_zero("tok/s", points.iter().map(|point| point.1).chain(mean));
                let level = mean.map(|mean| Mark::Level(mean, Stroke::dashed(INK).thin()));
                (y, [Mark::Line(points, Stroke::solid(MAIN).thin())].into_iter().chain(level).collect())
            },
        },
    )
}

/// TTFT of each request over time, failures marked; None without data.
pub fn ttft(report: &Report) -> Option<Figure> {
    grid(
        report,
        Topic {
            name: "ttft_over_time",
            title: "Time to first token over time",
            quantity: "TTFT",
            main: Entry::new("TTFT of a request, at its intended time", Swatch::Dot(MAIN)),
            remark: String::new(),
            has: |case| !case.timelines.ttft_ms.is_empty() || !case.timelines.failures.is_empty(),
            panel: |case| {
                let points = thin(&case.timelines.ttft_ms, POINTS);
                let unit = SpanUnit::of(points.iter().map(|point| point.1));
                let points = scaled(&points, 1.0, unit.factor);
                let values: Vec<f64> = points.iter().map(|point| point.1).collect();
                let failures = thin(&case.timelines.failures, POINTS).iter().map(|point| point.0).collect();
                (Axis::fit(unit.name, &values, 30.0), vec![Mark::Dots(points, MAIN, 1.75), Mark::Crosses(failures, ALARM)])
            },
        },
    )
}

fn grid(report: &Report, topic: Topic) -> Option<Figure> {
    let (picked, found) = pick(report, ROOM, topic.has);
    let mut panels: Vec<Panel> = picked.iter().map(|picked| panel(picked, &topic)).collect();
    if let [only] = panels.as_mut_slice() {
        only.title = topic.quantity.to_owned();
    }
    let own = if panels.len() > 1 { "each panel has its own scale" } else { "" };
    let remarks = [shown(panels.len(), found, "cases"), own.to_owned(), topic.remark.clone()];
    (!panels.is_empty()).then(|| Figure {
        name: topic.name,
        title: topic.title.to_owned(),
        subtitle: subtitle(report, &remarks),
        legend: legend(topic.main, &panels),
        side: Side::Top,
        columns: columns(panels.len()),
        panels,
    })
}

fn panel(Picked { case, title, .. }: &Picked<'_>, topic: &Topic) -> Panel {
    let (y, mut marks) = (topic.panel)(case);
    let end = marks.iter().flat_map(times).fold(case.timelines.measured.1, f64::max);
    if case.timelines.measured.0 > 0.0 {
        marks.insert(0, Mark::Band(0.0, case.timelines.measured.0, SHADE));
    }
    Panel { title: title.clone(), x: Axis::until("seconds since the start of the case", end), y, marks }
}

fn times(mark: &Mark) -> Vec<f64> {
    match mark {
        Mark::Line(points, _)
        | Mark::Steps(points, _)
        | Mark::Dots(points, ..)
        | Mark::Rings(points, ..)
        | Mark::Saltires(points, _) => points.iter().map(|point| point.0).collect(),
        Mark::Crosses(times, _) => times.clone(),
        _ => Vec::new(),
    }
}

fn legend(main: Entry, panels: &[Panel]) -> Vec<Entry> {
    let any = |wanted: fn(&Mark) -> bool| panels.iter().any(|panel| panel.marks.iter().any(wanted));
    let level = any(|mark| matches!(mark, Mark::Level(..)))
        .then(|| Entry::new("mean over the window", Swatch::Line(Stroke::dashed(INK).thin())));
    let failed = any(|mark| matches!(mark, Mark::Crosses(times, _) if !times.is_empty()))
        .then(|| Entry::new("failed request, at its end", Swatch::Cross(ALARM)));
    let warm = any(|mark| matches!(mark, Mark::Band(..))).then(|| Entry::new("warm-up, not measured", Swatch::Shade(SHADE)));
    [Some(main), level, failed, warm].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failing, no_data, report_of, sweep};

    #[test]
    fn failures_and_warm_up_are_marked_and_named() {
        let figure = ttft(&report_of(vec![failing()], Default::default(), 1)).unwrap();
        let words: Vec<&str> = figure.legend.iter().map(|entry| entry.label.as_str()).collect();
        assert_eq!(words, ["TTFT of a request, at its intended time", "failed request, at its end", "warm-up, not measured"]);
        let crosses = figure.panels[0]
            .marks
            .iter()
            .find_map(|mark| if let Mark::Crosses(times, _) = mark { Some(times.len()) } else { None });
        assert_eq!(crosses, Some(11));
    }

    #[test]
    fn many_cases_become_twelve_panels() {
        let report = sweep(100);
        for figure in [in_flight(&report), tokens_per_second(&report), ttft(&report)].into_iter().flatten() {
            assert_eq!((figure.panels.len(), figure.columns), (12, 4), "{}", figure.name);
            assert!(figure.subtitle.contains("12 of 100 cases shown"));
        }
    }

    #[test]
    fn a_case_without_a_series_has_no_panel() {
        assert_eq!(tokens_per_second(&report_of(vec![no_data()], Default::default(), 3)), None);
        let mixed = report_of(vec![no_data(), failing()], Default::default(), 1);
        assert_eq!(in_flight(&mixed).unwrap().panels.len(), 1);
    }
}
