//! What was sampled beside the requests, over the time of each case's first round.

use crate::chart::axis::Axis;
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch, thin};
use crate::chart::pick::{Picked, pick, shown, subtitle};
use crate::chart::style::{SHADE, Stroke, category};
use llmscen_core::report::{CaseReport, Report, Series};
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;

/// Panels in one chart at the most.
const ROOM: usize = 12;
/// Points of one line at the most.
const POINTS: usize = 1000;
/// A binary gigabyte.
const GIB: f64 = 1_073_741_824.0;

/// A panel: what it shows, and the lines in it.
type Topic = (&'static str, &'static [(Signal, &'static str)]);

/// Every chart of telemetry that has data.
pub fn figures(report: &Report) -> impl Iterator<Item = Figure> {
    let server: &[Topic] = &[
        ("Requests in the server", &[(Signal::ServerRunning, "running"), (Signal::ServerWaiting, "waiting")]),
        ("KV cache in use", &[(Signal::ServerKvCacheUsage, "KV cache")]),
    ];
    let gpu: &[Topic] = &[
        ("GPU busy", &[(Signal::GpuUtilization, "processors"), (Signal::GpuMemoryUtilization, "memory interface")]),
        ("GPU memory", &[(Signal::GpuMemory, "memory, all of it"), (Signal::GpuMemoryServer, "memory of the server")]),
        ("GPU power", &[(Signal::GpuPower, "power")]),
    ];
    let machine: &[Topic] = &[
        ("CPU of the machine", &[(Signal::HostCpu, "the machine")]),
        ("CPU", &[(Signal::ProcessCpu, "the server"), (Signal::ToolCpu, "this tool")]),
        ("Memory", &[(Signal::ProcessMemory, "the server"), (Signal::ToolMemory, "this tool")]),
    ];
    [
        figure(report, ("telemetry_server", "Inside the server over time"), server),
        figure(report, ("telemetry_gpu", "GPUs over time"), gpu),
        figure(report, ("telemetry_machine", "Processors and memory over time"), machine),
    ]
    .into_iter()
    .flatten()
}

fn series<'a>(case: &'a CaseReport, signals: &[(Signal, &'static str)]) -> Vec<(&'static str, &'a Series)> {
    let own = |(signal, word): &(Signal, &'static str)| {
        Some((*word, case.telemetry.series.get(signal).filter(|points| !points.is_empty())?))
    };
    signals.iter().filter_map(own).collect()
}

/// A row of panels for each case, without the topics that no case has.
fn figure(report: &Report, (name, title): (&'static str, &str), topics: &[Topic]) -> Option<Figure> {
    let told = |(_, signals): &&Topic| report.cases.iter().any(|case| !series(case, signals).is_empty());
    let topics: Vec<Topic> = topics.iter().filter(told).copied().collect();
    if topics.is_empty() {
        return None;
    }
    let has = |case: &CaseReport| topics.iter().any(|(_, signals)| !series(case, signals).is_empty());
    let (picked, found) = pick(report, ROOM / topics.len(), has);
    let several = picked.len() > 1;
    let words = words(&topics);
    let panels: Vec<Panel> = picked
        .iter()
        .flat_map(|own| topics.iter().map(|topic| panel(own, topic, (&words, several))).collect::<Vec<_>>())
        .collect();
    let own = if several { "each panel has its own scale" } else { "" };
    Some(Figure {
        name,
        title: title.to_owned(),
        subtitle: subtitle(report, &[shown(picked.len(), found, "cases"), own.to_owned()]),
        legend: legend(&topics, &picked, (&words, &panels)),
        side: Side::Top,
        columns: topics.len(),
        panels,
    })
}

/// The words of the legend, each with a colour of its own: those of panels with several lines. Others explain themselves.
fn words(topics: &[Topic]) -> Vec<&'static str> {
    let mut words: Vec<&'static str> = Vec::new();
    for (_, word) in topics.iter().filter(|(_, signals)| signals.len() > 1).flat_map(|(_, signals)| signals.iter()) {
        if !words.contains(word) {
            words.push(word);
        }
    }
    words
}

fn panel(
    Picked { case, title, .. }: &Picked<'_>,
    (quantity, signals): &Topic,
    (words, several): (&[&'static str], bool),
) -> Panel {
    let lines = series(case, signals);
    let unit = signals.first().map_or(Unit::Count, |(signal, _)| signal.unit());
    let factor = if unit == Unit::Bytes { 1.0 / GIB } else { 1.0 };
    let scaled = |points: &Series| thin(points, POINTS).into_iter().map(|(at, value)| (at, value * factor)).collect::<Series>();
    let drawn: Vec<(&str, Series)> = lines.iter().map(|(word, points)| (*word, scaled(points))).collect();
    let values = || drawn.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
    let y = match unit {
        Unit::Share => Axis::shares(""),
        Unit::Bytes => Axis::from_zero("GiB", values()),
        Unit::Count if signals.iter().any(|(signal, _)| signal.scope() == "server") => Axis::counts("", values()),
        Unit::Count => Axis::from_zero("cores", values()),
        unit => Axis::from_zero(unit.symbol(), values()),
    };
    let (from, until) = case.timelines.measured;
    let last = drawn.iter().filter_map(|(_, points)| points.last()).map(|point| point.0).fold(until, f64::max);
    let shades = [(0.0, from), (until, last)].into_iter().filter(|(from, to)| to > from && to.is_finite());
    let marks = shades.map(|(from, to)| Mark::Band(from, to, SHADE));
    let lines = drawn.iter().map(|(word, points)| Mark::Line(points.clone(), stroke(word, words)));
    let title = if several { format!("{quantity}, {title}") } else { (*quantity).to_owned() };
    Panel { title, x: Axis::until("seconds since the start of the case", last), y, marks: marks.chain(lines).collect() }
}

fn stroke(word: &str, words: &[&str]) -> Stroke {
    let place = words.iter().position(|own| *own == word).unwrap_or(0);
    Stroke::solid(category(place, words.len().max(2))).thin()
}

/// Panels of one line explain themselves by their titles.
fn legend(topics: &[Topic], picked: &[Picked<'_>], (words, panels): (&[&'static str], &[Panel])) -> Vec<Entry> {
    let told = topics.iter().flat_map(|(_, signals)| picked.iter().flat_map(|own| series(own.case, signals)));
    let told: Vec<&str> = told.map(|(word, _)| word).collect();
    let drawn = words.iter().filter(|word| told.contains(word));
    let mut entries: Vec<Entry> = drawn.map(|word| Entry::new(*word, Swatch::Line(stroke(word, words)))).collect();
    if panels.iter().flat_map(|panel| &panel.marks).any(|mark| matches!(mark, Mark::Band(..))) {
        entries.push(Entry::new("warm-up and drain, not measured", Swatch::Shade(SHADE)));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, observed, report_of, sweep};

    fn of(cases: Vec<CaseReport>) -> Vec<Figure> {
        figures(&report_of(cases, Default::default(), 0)).collect()
    }

    #[test]
    fn only_what_was_told_has_a_panel() {
        let charts = of(vec![observed()]);
        let titles: Vec<Vec<&str>> =
            charts.iter().map(|own| own.panels.iter().map(|panel| panel.title.as_str()).collect()).collect();
        assert_eq!(
            titles,
            [
                vec!["Requests in the server", "KV cache in use"],
                vec!["GPU busy", "GPU memory", "GPU power"],
                vec!["CPU of the machine", "CPU", "Memory"],
            ]
        );
        let mut blind = observed();
        blind.telemetry.series.retain(|signal, _| *signal == Signal::GpuPower);
        let charts = of(vec![blind]);
        assert_eq!((charts.len(), charts[0].panels.len(), charts[0].name), (1, 1, "telemetry_gpu"));
        assert!(figures(&sweep(2)).next().is_none());
    }

    #[test]
    fn several_cases_have_a_row_each_and_no_more_than_there_is_room_for() {
        let charts = of(vec![observed(), case(4), observed()]);
        assert_eq!((charts[0].panels.len(), charts[0].columns), (4, 2));
        let many = of(vec![observed(); 30]);
        assert!(
            many.iter().all(|own| own.panels.len() == 12),
            "{:?}",
            many.iter().map(|own| own.panels.len()).collect::<Vec<_>>()
        );
    }
}
