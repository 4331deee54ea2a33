//! Engines side by side where the load is the same: a bar per engine.

use crate::chart::axis::{Axis, SpanUnit};
use crate::chart::figure::{Cell, Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{Names, shown, sizes, subtitle, token_remark};
use crate::chart::style::{MUTED, category};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};

/// What is drawn: a quantile of a latency, or a rate.
const TOPICS: [(&str, Metric, Option<f64>); 6] = [
    ("TTFT p50", Metric::Ttft, Some(0.50)),
    ("TTFT p99", Metric::Ttft, Some(0.99)),
    ("TPOT p50", Metric::Tpot, Some(0.50)),
    ("E2E p50", Metric::E2e, Some(0.50)),
    ("Output tokens", Metric::OutputTps, None),
    ("Successful requests", Metric::RequestThroughput, None),
];
/// Engines and groups of them that a panel has room for.
const ROOM: (usize, usize) = (8, 6);
/// Part of a group's width that its bars take.
const FILLED: f64 = 0.8;

/// The chart; None where the load varies, or where no swept name tells cases apart.
pub fn figure(report: &Report) -> Option<Figure> {
    let cases: Vec<&CaseReport> = report.cases.iter().filter(|case| case.counts.ok > 0 && !case.is_stage()).collect();
    if cases.windows(2).any(|pair| pair[0].load_value != pair[1].load_value) {
        return None;
    }
    let (names, others) = (Names::of(&cases).engines(), Names::of(&cases).without_engines());
    let (mut engines, mut groups) = (unique(&cases, |case| names.legend(case)), unique(&cases, |case| others.title(case)));
    if engines.len() < 2 {
        return None;
    }
    let found = (engines.len(), groups.len());
    engines.truncate(ROOM.0);
    groups.truncate(ROOM.1);
    let place = |case: &CaseReport| {
        let engine = engines.iter().position(|own| *own == names.legend(case))?;
        Some((engine, groups.iter().position(|own| *own == others.title(case))?))
    };
    let placed = cases.iter().copied().filter_map(|case| Some((place(case)?, case)));
    let bars: Vec<Bar> = placed.map(|((engine, group), case)| Bar { engine, group, case }).collect();
    let panels: Vec<Panel> = TOPICS.iter().filter_map(|topic| panel(*topic, &bars, (engines.len(), &groups))).collect();
    let entry = |(index, name): (usize, &String)| Entry::new(name, Swatch::Shade(category(index, engines.len())));
    let invalid = bars.iter().any(|bar| bar.case.is_invalid()).then(|| Entry::new("invalid case", Swatch::Shade(MUTED)));
    let remarks = [
        shown(engines.len(), found.0, "engines"),
        shown(groups.len(), found.1, "groups"),
        sizes(bars.iter().map(|bar| bar.case), Metric::E2e),
        token_remark(report),
    ];
    (!panels.is_empty()).then(|| Figure {
        name: "engine_comparison",
        title: "Engines side by side".to_owned(),
        subtitle: subtitle(report, &remarks),
        legend: engines.iter().enumerate().map(entry).chain(invalid).collect(),
        side: Side::Top,
        columns: 3,
        panels,
    })
}

struct Bar<'a> {
    engine: usize,
    group: usize,
    case: &'a CaseReport,
}

fn unique(cases: &[&CaseReport], name: impl Fn(&CaseReport) -> String) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in cases.iter().map(|case| name(case)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn panel(
    (title, metric, share): (&str, Metric, Option<f64>),
    bars: &[Bar],
    (engines, groups): (usize, &[String]),
) -> Option<Panel> {
    let value = |case: &CaseReport| match share {
        Some(share) => case.distributions.get(&metric)?.quantile(share),
        None => case.scalars.get(&metric).copied(),
    };
    let seen: Vec<(&Bar, f64)> =
        bars.iter().filter_map(|bar| Some((bar, value(bar.case).filter(|own| own.is_finite())?))).collect();
    let unit = if share.is_some() {
        SpanUnit::of(seen.iter().map(|own| own.1))
    } else {
        SpanUnit { name: metric.unit().symbol(), factor: 1.0 }
    };
    let width = FILLED / engines as f64;
    let cell = |(bar, value): &(&Bar, f64)| {
        let left = bar.group as f64 + (1.0 - FILLED) / 2.0 + bar.engine as f64 * width;
        let color = if bar.case.is_invalid() { MUTED } else { category(bar.engine, engines) };
        Cell { x: (left, left + width * 0.94), y: (0.0, value * unit.factor), color }
    };
    let ticks = groups.iter().enumerate().map(|(index, name)| (index as f64 + 0.5, name.clone())).collect();
    let x = Axis { title: String::new(), low: 0.0, high: groups.len() as f64, log: false, ticks };
    let y = Axis::from_zero(unit.name, seen.iter().map(|own| own.1 * unit.factor));
    let marks = vec![Mark::Cells(seen.iter().map(cell).collect())];
    (!seen.is_empty()).then(|| Panel { title: title.to_owned(), x, y, marks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, engines, report_of, sweep};
    use llmscen_core::labels::Scalar;

    fn heights(figure: &Figure, panel: usize) -> Vec<f64> {
        let Mark::Cells(cells) = &figure.panels[panel].marks[0] else { panic!() };
        cells.iter().map(|cell| cell.y.1).collect()
    }

    #[test]
    fn a_bar_per_engine_in_each_panel() {
        let report = engines(3);
        let figure = figure(&report).unwrap();
        let titles: Vec<&str> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
        assert_eq!(titles, ["TTFT p50", "TTFT p99", "TPOT p50", "E2E p50", "Output tokens", "Successful requests"]);
        let names: Vec<&str> = figure.legend.iter().map(|entry| entry.label.as_str()).collect();
        assert_eq!(names, ["10.0.0.7:8000", "10.0.0.7:8001", "10.0.0.7:8002"]);
        let known: Vec<f64> = report.cases.iter().map(|case| case.distributions[&Metric::Ttft].quantile(0.99).unwrap()).collect();
        assert_eq!(heights(&figure, 1), known);
    }

    #[test]
    fn bars_of_other_swept_fields_stand_in_groups() {
        let mut report = engines(2);
        let mut longer = report.cases.clone();
        for (cases, tokens) in [(&mut report.cases, 128), (&mut longer, 512)] {
            cases.iter_mut().for_each(|case| case.labels.0.push(("request.max_tokens".into(), Scalar::Int(tokens))));
        }
        report.cases.extend(longer);
        let figure = figure(&report).unwrap();
        let groups: Vec<&str> = figure.panels[0].x.ticks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!((groups, figure.legend.len()), (vec!["max_tokens=128", "max_tokens=512"], 2));
        assert_eq!(heights(&figure, 0).len(), 4);
    }

    #[test]
    fn it_is_not_drawn_over_a_load_or_without_engines() {
        assert_eq!(figure(&sweep(4)), None);
        assert_eq!(figure(&report_of(vec![case(4), case(4)], Default::default(), 0)), None);
    }
}
