//! Telemetry over time, of the first round of each case.

use crate::chart::axis::Axis;
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch, downsample};
use crate::chart::pick::{SHARED_SCALE, ShownCase, select_cases, subtitle};
use crate::chart::style::{SHADE, Stroke, category};
use llmscen_core::report::{CaseReport, Report, Series};
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;

/// The most panels of one chart.
const MAX_PANELS: usize = 12;
/// The most points of one line.
const MAX_POINTS: usize = 1000;
/// The least samples of a line.
pub const MIN_SAMPLES: usize = 5;
/// Bytes of a gibibyte.
const GIB: f64 = 1_073_741_824.0;

/// A panel: its title, and its signals with their labels.
type Topic = (&'static str, &'static [(Signal, &'static str)]);

/// The charts of telemetry with data.
pub fn figures(report: &Report) -> impl Iterator<Item = Figure> {
    let server: &[Topic] = &[
        (
            "Requests in the server",
            &[
                (Signal::ServerRunning, "running"),
                (Signal::ServerWaiting, "waiting"),
            ],
        ),
        (
            "KV cache usage",
            &[(Signal::ServerKvCacheUsage, "KV cache")],
        ),
    ];
    let gpu: &[Topic] = &[
        (
            "GPU utilization",
            &[
                (Signal::GpuUtilization, "compute"),
                (Signal::GpuMemoryUtilization, "memory interface"),
            ],
        ),
        (
            "GPU memory",
            &[
                (Signal::GpuMemory, "total memory"),
                (Signal::GpuMemoryServer, "server memory"),
            ],
        ),
        ("GPU power", &[(Signal::GpuPower, "power")]),
    ];
    let host: &[Topic] = &[
        ("Host CPU", &[(Signal::HostCpu, "host")]),
        (
            "CPU",
            &[
                (Signal::ProcessCpu, "server"),
                (Signal::ToolCpu, "load generator"),
            ],
        ),
        (
            "Memory",
            &[
                (Signal::ProcessMemory, "server"),
                (Signal::ToolMemory, "load generator"),
            ],
        ),
    ];
    [
        figure(
            report,
            "telemetry_server",
            "Server metrics over time",
            server,
        ),
        figure(report, "telemetry_gpu", "GPU metrics over time", gpu),
        figure(
            report,
            "telemetry_machine",
            "CPU and memory over time",
            host,
        ),
    ]
    .into_iter()
    .flatten()
}

fn series<'a>(
    case: &'a CaseReport,
    signals: &[(Signal, &'static str)],
) -> Vec<(&'static str, &'a Series)> {
    let points = |(signal, label): &(Signal, &'static str)| {
        Some((
            *label,
            case.telemetry
                .series
                .get(signal)
                .filter(|points| points.len() >= MIN_SAMPLES)?,
        ))
    };
    signals.iter().filter_map(points).collect()
}

/// A row of panels for each case, without topics that no case has data for.
fn figure(report: &Report, name: &'static str, title: &str, topics: &[Topic]) -> Option<Figure> {
    let has_series = |(_, signals): &&Topic| {
        report
            .cases
            .iter()
            .any(|case| !series(case, signals).is_empty())
    };
    let topics: Vec<Topic> = topics.iter().filter(has_series).copied().collect();
    if topics.is_empty() {
        return None;
    }
    let has_data = |case: &CaseReport| {
        topics
            .iter()
            .any(|(_, signals)| !series(case, signals).is_empty())
    };
    let (picked, remark) = select_cases(report, MAX_PANELS / topics.len(), has_data);
    let several = picked.len() > 1;
    let labels = labels_with_color(&topics);
    let mut panels: Vec<Panel> = picked
        .iter()
        .flat_map(|shown| {
            topics
                .iter()
                .map(|topic| panel(shown, topic, &labels, several))
                .collect::<Vec<_>>()
        })
        .collect();
    // The panels of a column show the same quantity.
    for topic in 0..topics.len() {
        let column = || panels.iter().skip(topic).step_by(topics.len());
        let highest = column().max_by(|a, b| a.y.high.total_cmp(&b.y.high));
        if let Some(y) = highest.map(|panel| panel.y.clone()) {
            let same = panels.iter_mut().skip(topic).step_by(topics.len());
            same.for_each(|panel| panel.y = y.clone());
        }
    }
    let scales = if several { SHARED_SCALE } else { "" };
    Some(Figure {
        name,
        title: title.to_owned(),
        subtitle: subtitle(report, &[remark, scales.to_owned()]),
        legend: legend(&topics, &picked, &labels, &panels),
        side: Side::Top,
        columns: topics.len(),
        panels,
    })
}

/// The labels of panels with several lines, each of which gets its own color.
fn labels_with_color(topics: &[Topic]) -> Vec<&'static str> {
    let mut labels: Vec<&'static str> = Vec::new();
    for (_, label) in topics
        .iter()
        .filter(|(_, signals)| signals.len() > 1)
        .flat_map(|(_, signals)| signals.iter())
    {
        if !labels.contains(label) {
            labels.push(label);
        }
    }
    labels
}

fn panel(
    ShownCase { case, title, .. }: &ShownCase<'_>,
    (quantity, signals): &Topic,
    labels: &[&'static str],
    several: bool,
) -> Panel {
    let lines = series(case, signals);
    let unit = signals
        .first()
        .map_or(Unit::Count, |(signal, _)| signal.unit());
    let factor = if unit == Unit::Bytes { 1.0 / GIB } else { 1.0 };
    let scaled = |points: &Series| {
        downsample(points, MAX_POINTS)
            .into_iter()
            .map(|(at, value)| (at, value * factor))
            .collect::<Series>()
    };
    let drawn: Vec<(&str, Series)> = lines
        .iter()
        .map(|(label, points)| (*label, scaled(points)))
        .collect();
    let values = || {
        drawn
            .iter()
            .flat_map(|(_, points)| points.iter().map(|point| point.1))
    };
    let y = match unit {
        Unit::Share => Axis::shares(""),
        Unit::Bytes => Axis::from_zero("GiB", values()),
        Unit::Count if signals.iter().any(|(signal, _)| signal.scope() == "server") => {
            Axis::counts("", values())
        }
        Unit::Count => Axis::from_zero("cores", values()),
        unit => Axis::from_zero(unit.symbol(), values()),
    };
    let (from, until) = case.timelines.measured;
    let last = drawn
        .iter()
        .filter_map(|(_, points)| points.last())
        .map(|point| point.0)
        .fold(until, f64::max);
    let shades = [(0.0, from), (until, last)]
        .into_iter()
        .filter(|(from, to)| to > from && to.is_finite());
    let marks = shades.map(|(from, to)| Mark::Band(from, to, SHADE));
    let lines = drawn
        .iter()
        .map(|(label, points)| Mark::Line(points.clone(), stroke(label, labels)));
    let title = if several {
        format!("{quantity}, {title}")
    } else {
        (*quantity).to_owned()
    };
    Panel {
        title,
        x: Axis::until("time since start of case (s)", last),
        y,
        marks: marks.chain(lines).collect(),
    }
}

fn stroke(label: &str, labels: &[&str]) -> Stroke {
    let index = labels.iter().position(|other| *other == label).unwrap_or(0);
    Stroke::solid(category(index, labels.len().max(2))).thin()
}

/// The legend of the panels with several lines; others need none.
fn legend(
    topics: &[Topic],
    picked: &[ShownCase<'_>],
    labels: &[&'static str],
    panels: &[Panel],
) -> Vec<Entry> {
    let lines = topics
        .iter()
        .flat_map(|(_, signals)| picked.iter().flat_map(|shown| series(shown.case, signals)));
    let with_data: Vec<&str> = lines.map(|(label, _)| label).collect();
    let drawn = labels.iter().filter(|label| with_data.contains(label));
    let mut entries: Vec<Entry> = drawn
        .map(|label| Entry::new(*label, Swatch::Line(stroke(label, labels))))
        .collect();
    if panels
        .iter()
        .flat_map(|panel| &panel.marks)
        .any(|mark| matches!(mark, Mark::Band(..)))
    {
        entries.push(Entry::new(
            "warm-up and drain, not measured",
            Swatch::Shade(SHADE),
        ));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, observed, report_of, sweep};

    fn figures_of(cases: Vec<CaseReport>) -> Vec<Figure> {
        figures(&report_of(cases, Default::default(), 0)).collect()
    }

    #[test]
    fn only_signals_with_data_have_a_panel() {
        let charts = figures_of(vec![observed()]);
        let titles: Vec<Vec<&str>> = charts
            .iter()
            .map(|figure| {
                figure
                    .panels
                    .iter()
                    .map(|panel| panel.title.as_str())
                    .collect()
            })
            .collect();
        assert_eq!(
            titles,
            [
                vec!["Requests in the server", "KV cache usage"],
                vec!["GPU utilization", "GPU memory", "GPU power"],
                vec!["Host CPU", "CPU", "Memory"],
            ]
        );
        let mut power_only = observed();
        power_only
            .telemetry
            .series
            .retain(|signal, _| *signal == Signal::GpuPower);
        let charts = figures_of(vec![power_only]);
        assert_eq!(
            (charts.len(), charts[0].panels.len(), charts[0].name),
            (1, 1, "telemetry_gpu")
        );
        assert!(figures(&sweep(2)).next().is_none());
    }

    #[test]
    fn several_cases_have_a_row_each_up_to_the_most_panels() {
        let charts = figures_of(vec![observed(), case(4), observed()]);
        assert_eq!((charts[0].panels.len(), charts[0].columns), (4, 2));
        let many = figures_of(vec![observed(); 30]);
        assert!(
            many.iter().all(|figure| figure.panels.len() == 12),
            "{:?}",
            many.iter()
                .map(|figure| figure.panels.len())
                .collect::<Vec<_>>()
        );
    }
}
