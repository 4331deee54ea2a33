//! What was sampled beside the requests, over the time of each case's first round.

use crate::model::report::{CaseReport, Report, Series};
use crate::model::signal::Signal;
use crate::model::units::Unit;
use crate::view::chart::axis::Axis;
use crate::view::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch, thin};
use crate::view::chart::pick::{Picked, pick, shown, subtitle};
use crate::view::chart::style::{SHADE, Stroke, category};

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
        ("GPU memory", &[(Signal::GpuMemory, "all"), (Signal::GpuMemoryServer, "of the server")]),
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

fn series<'a>(case: &'a CaseReport, signals: &[(Signal, &'static str)]) -> Vec<(Signal, usize, &'a Series)> {
    let own = |(place, (signal, _)): (usize, &(Signal, &'static str))| {
        Some((*signal, place, case.telemetry.series.get(signal).filter(|points| !points.is_empty())?))
    };
    signals.iter().enumerate().filter_map(own).collect()
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
    let panels: Vec<Panel> =
        picked.iter().flat_map(|own| topics.iter().map(move |topic| panel(own, topic, several))).collect();
    let own = if several { "each panel has its own scale" } else { "" };
    Some(Figure {
        name,
        title: title.to_owned(),
        subtitle: subtitle(report, &[shown(picked.len(), found, "cases"), own.to_owned()]),
        legend: legend(&topics, &picked, &panels),
        side: Side::Top,
        columns: topics.len(),
        panels,
    })
}

fn panel(Picked { case, label, .. }: &Picked<'_>, (quantity, signals): &Topic, several: bool) -> Panel {
    let lines = series(case, signals);
    let unit = signals.first().map_or(Unit::Count, |(signal, _)| signal.unit());
    let factor = if unit == Unit::Bytes { 1.0 / GIB } else { 1.0 };
    let scaled = |points: &Series| thin(points, POINTS).into_iter().map(|(at, value)| (at, value * factor)).collect::<Series>();
    let drawn: Vec<(usize, Series)> = lines.iter().map(|(_, place, points)| (*place, scaled(points))).collect();
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
    let lines = drawn.iter().map(|(place, points)| Mark::Line(points.clone(), stroke(*place, signals.len())));
    let title = if several { format!("{quantity}, {label}") } else { (*quantity).to_owned() };
    Panel { title, x: Axis::until("time, s", last), y, marks: marks.chain(lines).collect() }
}

fn stroke(place: usize, of: usize) -> Stroke {
    Stroke::solid(category(place, of.max(2))).thin()
}

/// Panels of one line explain themselves by their titles.
fn legend(topics: &[Topic], picked: &[Picked<'_>], panels: &[Panel]) -> Vec<Entry> {
    let drawn = |signal: Signal| picked.iter().any(|own| own.case.telemetry.series.contains_key(&signal));
    let mut entries: Vec<Entry> = Vec::new();
    for (_, signals) in topics.iter().filter(|(_, signals)| signals.len() > 1) {
        for (place, (_, word)) in signals.iter().enumerate().filter(|(_, (signal, _))| drawn(*signal)) {
            let entry = Entry::new(*word, Swatch::Line(stroke(place, signals.len())));
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
    }
    if panels.iter().flat_map(|panel| &panel.marks).any(|mark| matches!(mark, Mark::Band(..))) {
        entries.push(Entry::new("not measured: warm-up, drain", Swatch::Shade(SHADE)));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixture::{case, observed, report_of, sweep};

    fn of(cases: Vec<CaseReport>) -> Vec<Figure> {
        figures(&report_of(cases, Default::default(), 0)).collect()
    }

    #[test]
    fn only_what_was_told_has_a_panel() {
        let charts = of(vec![observed()]);
        let titles: Vec<Vec<&str>> =
            charts.iter().map(|own| own.panels.iter().map(|panel| panel.title.as_str()).collect()).collect();
        assert_eq!(titles, [
            vec!["Requests in the server", "KV cache in use"],
            vec!["GPU busy", "GPU memory", "GPU power"],
            vec!["CPU of the machine", "CPU", "Memory"],
        ]);
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
        assert!(many.iter().all(|own| own.panels.len() == 12), "{:?}", many.iter().map(|own| own.panels.len()).collect::<Vec<_>>());
    }
}
