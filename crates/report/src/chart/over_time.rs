//! Requests in flight, output tokens per second and TTFT over time: a panel per case.

use crate::chart::axis::{Axis, TimeUnit, scaled};
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch, downsample};
use crate::chart::pick::{
    MAX_PANELS, SHARED_SCALE, ShownCase, columns, select_cases, subtitle, token_remark,
};
use crate::chart::style::{ALARM, INK, MAIN, SHADE, Stroke};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};

/// The most points of one series.
const MAX_POINTS: usize = 1000;

/// The content of a chart over time.
struct Topic {
    name: &'static str,
    title: &'static str,
    /// The quantity of the vertical axis, and the title of a single panel.
    quantity: &'static str,
    main: Entry,
    remark: String,
    has_data: fn(&CaseReport) -> bool,
    /// The marks of a panel, latencies in this unit.
    marks: fn(&CaseReport, TimeUnit) -> Vec<Mark>,
    /// The vertical axis of all panels, from their values.
    axis: fn(&[f64], TimeUnit) -> Axis,
}

/// Requests in flight over time; None without data.
pub fn in_flight(report: &Report) -> Option<Figure> {
    figure(
        report,
        Topic {
            name: "in_flight",
            title: "Requests in flight over time",
            quantity: "Requests in flight",
            main: Entry::new("requests in flight", Swatch::Line(Stroke::solid(MAIN))),
            remark: String::new(),
            has_data: |case| !case.timelines.in_flight.is_empty(),
            marks: |case, _| {
                let points = downsample(&case.timelines.in_flight, MAX_POINTS);
                vec![Mark::Steps(points, Stroke::solid(MAIN).thin())]
            },
            axis: |values, _| Axis::counts("", values.iter().copied()),
        },
    )
}

/// Output tokens per second over time; None without data.
pub fn tokens_per_second(report: &Report) -> Option<Figure> {
    figure(
        report,
        Topic {
            name: "tokens_per_second",
            title: "Output tokens per second over time",
            quantity: "Output tokens",
            main: Entry::new(
                "output tokens per second",
                Swatch::Line(Stroke::solid(MAIN)),
            ),
            remark: token_remark(report),
            has_data: |case| !case.timelines.output_tps.is_empty(),
            marks: |case, _| {
                let points = downsample(&case.timelines.output_tps, MAX_POINTS);
                let mean = case.scalars.get(&Metric::OutputTps).copied();
                let mean_line =
                    mean.map(|mean| Mark::HorizontalLine(mean, Stroke::dashed(INK).thin()));
                [Mark::Line(points, Stroke::solid(MAIN).thin())]
                    .into_iter()
                    .chain(mean_line)
                    .collect()
            },
            axis: |values, _| Axis::from_zero("tok/s", values.iter().copied()),
        },
    )
}

/// TTFT of each request over time, failures marked; None without data.
pub fn ttft(report: &Report) -> Option<Figure> {
    figure(
        report,
        Topic {
            name: "ttft_over_time",
            title: "TTFT over time",
            quantity: "TTFT",
            main: Entry::new("TTFT by scheduled send time", Swatch::Dot(MAIN)),
            remark: String::new(),
            has_data: |case| {
                !case.timelines.ttft_ms.is_empty() || !case.timelines.failures.is_empty()
            },
            marks: |case, unit| {
                let points = downsample(&case.timelines.ttft_ms, MAX_POINTS);
                let failures = downsample(&case.timelines.failures, MAX_POINTS)
                    .iter()
                    .map(|point| point.0)
                    .collect();
                vec![
                    Mark::Dots(scaled(&points, 1.0, unit.factor), MAIN, 1.75),
                    Mark::EdgeCrosses(failures, ALARM),
                ]
            },
            axis: |values, unit| Axis::fit(unit.name, values, 30.0),
        },
    )
}

fn figure(report: &Report, topic: Topic) -> Option<Figure> {
    let (picked, remark) = select_cases(report, MAX_PANELS, topic.has_data);
    let latencies = picked
        .iter()
        .flat_map(|shown| &shown.case.timelines.ttft_ms);
    let unit = TimeUnit::for_values(latencies.map(|point| point.1));
    let marks: Vec<Vec<Mark>> = picked
        .iter()
        .map(|shown| (topic.marks)(shown.case, unit))
        .collect();
    let values: Vec<f64> = marks.iter().flatten().flat_map(heights).collect();
    let y = (topic.axis)(&values, unit);
    let panels = picked.iter().zip(marks);
    let mut panels: Vec<Panel> = panels
        .map(|(shown, marks)| panel(shown, &y, marks))
        .collect();
    if let [only] = panels.as_mut_slice() {
        only.title = topic.quantity.to_owned();
    }
    let scales = if panels.len() > 1 { SHARED_SCALE } else { "" };
    let remarks = [remark, scales.to_owned(), topic.remark.clone()];
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

fn panel(ShownCase { case, title, .. }: &ShownCase<'_>, y: &Axis, mut marks: Vec<Mark>) -> Panel {
    let end = marks
        .iter()
        .flat_map(times)
        .fold(case.timelines.measured.1, f64::max);
    if case.timelines.measured.0 > 0.0 {
        marks.insert(0, Mark::Band(0.0, case.timelines.measured.0, SHADE));
    }
    Panel {
        title: title.clone(),
        x: Axis::until("time since start of case (s)", end),
        y: y.clone(),
        marks,
    }
}

fn heights(mark: &Mark) -> Vec<f64> {
    match mark {
        Mark::Line(points, _) | Mark::Steps(points, _) | Mark::Dots(points, ..) => {
            points.iter().map(|point| point.1).collect()
        }
        Mark::HorizontalLine(height, _) => vec![*height],
        _ => Vec::new(),
    }
}

fn times(mark: &Mark) -> Vec<f64> {
    match mark {
        Mark::Line(points, _)
        | Mark::Steps(points, _)
        | Mark::Dots(points, ..)
        | Mark::Rings(points, ..)
        | Mark::DiagonalCrosses(points, _) => points.iter().map(|point| point.0).collect(),
        Mark::EdgeCrosses(times, _) => times.clone(),
        _ => Vec::new(),
    }
}

fn legend(main: Entry, panels: &[Panel]) -> Vec<Entry> {
    let any =
        |is_kind: fn(&Mark) -> bool| panels.iter().any(|panel| panel.marks.iter().any(is_kind));
    let mean = any(|mark| matches!(mark, Mark::HorizontalLine(..))).then(|| {
        Entry::new(
            "mean of the measured window",
            Swatch::Line(Stroke::dashed(INK).thin()),
        )
    });
    let failed = any(|mark| matches!(mark, Mark::EdgeCrosses(times, _) if !times.is_empty()))
        .then(|| Entry::new("failed request, by end time", Swatch::Cross(ALARM)));
    let warm = any(|mark| matches!(mark, Mark::Band(..)))
        .then(|| Entry::new("warm-up, not measured", Swatch::Shade(SHADE)));
    [Some(main), mean, failed, warm]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failing, no_data, report_of, sweep};

    #[test]
    fn failures_and_warm_up_are_marked() {
        let figure = ttft(&report_of(vec![failing()], Default::default(), 1)).unwrap();
        let labels: Vec<&str> = figure
            .legend
            .iter()
            .map(|entry| entry.label.as_str())
            .collect();
        assert_eq!(
            labels,
            [
                "TTFT by scheduled send time",
                "failed request, by end time",
                "warm-up, not measured"
            ]
        );
        let crosses = figure.panels[0].marks.iter().find_map(|mark| {
            if let Mark::EdgeCrosses(times, _) = mark {
                Some(times.len())
            } else {
                None
            }
        });
        assert_eq!(crosses, Some(11));
    }

    #[test]
    fn many_cases_become_twelve_panels() {
        let report = sweep(100);
        for figure in [
            in_flight(&report),
            tokens_per_second(&report),
            ttft(&report),
        ]
        .into_iter()
        .flatten()
        {
            assert_eq!(
                (figure.panels.len(), figure.columns),
                (12, 3),
                "{}",
                figure.name
            );
            assert!(figure.subtitle.contains("12 of 100 cases shown"));
        }
    }

    #[test]
    fn a_case_without_a_series_has_no_panel() {
        assert_eq!(
            tokens_per_second(&report_of(vec![no_data()], Default::default(), 3)),
            None
        );
        let mixed = report_of(vec![no_data(), failing()], Default::default(), 1);
        assert_eq!(in_flight(&mixed).unwrap().panels.len(), 1);
    }
}
