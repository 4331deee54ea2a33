//! Engines under the same load: a bar per engine.

use crate::chart::axis::{Axis, TimeUnit};
use crate::chart::figure::{Cell, Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{CaseNames, sample_sizes, shown, subtitle, token_remark};
use crate::chart::style::{MUTED, category};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};

/// The panels: a quantile of a latency, or a rate.
const TOPICS: [(&str, Metric, Option<f64>); 6] = [
    ("TTFT p50", Metric::Ttft, Some(0.50)),
    ("TTFT p99", Metric::Ttft, Some(0.99)),
    ("TPOT p50", Metric::Tpot, Some(0.50)),
    ("E2E p50", Metric::E2e, Some(0.50)),
    ("Output tokens", Metric::OutputTps, None),
    ("Successful requests", Metric::RequestThroughput, None),
];
/// The most engines of a panel.
const MAX_ENGINES: usize = 8;
/// The most groups of engines of a panel.
const MAX_GROUPS: usize = 6;
/// The share of a group's width filled by bars.
const FILLED_SHARE: f64 = 0.8;

/// The chart; None if the load varies or fewer than two engines are compared.
pub fn figure(report: &Report) -> Option<Figure> {
    let cases: Vec<&CaseReport> = report
        .cases
        .iter()
        .filter(|case| case.counts.ok > 0 && !case.is_stage())
        .collect();
    if cases
        .windows(2)
        .any(|pair| pair[0].load_value != pair[1].load_value)
    {
        return None;
    }
    let engine_names = CaseNames::new(&cases).engines();
    let group_names = CaseNames::new(&cases).without_engines();
    let mut engines = unique_names(&cases, |case| engine_names.legend(case));
    let mut groups = unique_names(&cases, |case| group_names.title(case));
    if engines.len() < 2 {
        return None;
    }
    let all_engines = engines.len();
    let all_groups = groups.len();
    engines.truncate(MAX_ENGINES);
    groups.truncate(MAX_GROUPS);
    let bar = |case| {
        let engine = engines
            .iter()
            .position(|name| *name == engine_names.legend(case))?;
        let group = groups
            .iter()
            .position(|name| *name == group_names.title(case))?;
        Some(Bar {
            engine,
            group,
            case,
        })
    };
    let bars: Vec<Bar> = cases.iter().copied().filter_map(bar).collect();
    let panels: Vec<Panel> = TOPICS
        .iter()
        .filter_map(|topic| panel(topic, &bars, engines.len(), &groups))
        .collect();
    let entry = |(index, name): (usize, &String)| {
        Entry::new(name, Swatch::Shade(category(index, engines.len())))
    };
    let invalid = bars
        .iter()
        .any(|bar| bar.case.is_invalid())
        .then(|| Entry::new("invalid case", Swatch::Shade(MUTED)));
    let remarks = [
        shown(engines.len(), all_engines, "engines"),
        shown(groups.len(), all_groups, "groups"),
        sample_sizes(bars.iter().map(|bar| bar.case), Metric::E2e),
        token_remark(report),
    ];
    (!panels.is_empty()).then(|| Figure {
        name: "engine_comparison",
        title: "Engine comparison".to_owned(),
        subtitle: subtitle(report, &remarks),
        legend: engines
            .iter()
            .enumerate()
            .map(entry)
            .chain(invalid)
            .collect(),
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

fn unique_names(cases: &[&CaseReport], name: impl Fn(&CaseReport) -> String) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in cases.iter().map(|case| name(case)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn panel(
    topic: &(&str, Metric, Option<f64>),
    bars: &[Bar],
    engines: usize,
    groups: &[String],
) -> Option<Panel> {
    let &(title, metric, share) = topic;
    let value = |case: &CaseReport| match share {
        Some(share) => case.distributions.get(&metric)?.quantile(share),
        None => case.scalars.get(&metric).copied(),
    };
    let values: Vec<(&Bar, f64)> = bars
        .iter()
        .filter_map(|bar| Some((bar, value(bar.case).filter(|value| value.is_finite())?)))
        .collect();
    let unit = if share.is_some() {
        TimeUnit::for_values(values.iter().map(|(_, value)| *value))
    } else {
        TimeUnit {
            name: metric.unit().symbol(),
            factor: 1.0,
        }
    };
    let width = FILLED_SHARE / engines as f64;
    let cell = |(bar, value): &(&Bar, f64)| {
        let left = bar.group as f64 + (1.0 - FILLED_SHARE) / 2.0 + bar.engine as f64 * width;
        let color = if bar.case.is_invalid() {
            MUTED
        } else {
            category(bar.engine, engines)
        };
        Cell {
            x: (left, left + width * 0.94),
            y: (0.0, value * unit.factor),
            color,
        }
    };
    let ticks = groups
        .iter()
        .enumerate()
        .map(|(index, name)| (index as f64 + 0.5, name.clone()))
        .collect();
    let x = Axis {
        title: String::new(),
        low: 0.0,
        high: groups.len() as f64,
        log: false,
        ticks,
    };
    let y = Axis::from_zero(
        unit.name,
        values.iter().map(|(_, value)| value * unit.factor),
    );
    let marks = vec![Mark::Cells(values.iter().map(cell).collect())];
    (!values.is_empty()).then(|| Panel {
        title: title.to_owned(),
        x,
        y,
        marks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, engines, report_of, sweep};
    use llmscen_core::label::Scalar;

    fn heights(figure: &Figure, panel: usize) -> Vec<f64> {
        let Mark::Cells(cells) = &figure.panels[panel].marks[0] else {
            panic!()
        };
        cells.iter().map(|cell| cell.y.1).collect()
    }

    #[test]
    fn a_bar_per_engine_in_each_panel() {
        let report = engines(3);
        let figure = figure(&report).unwrap();
        let titles: Vec<&str> = figure
            .panels
            .iter()
            .map(|panel| panel.title.as_str())
            .collect();
        assert_eq!(
            titles,
            [
                "TTFT p50",
                "TTFT p99",
                "TPOT p50",
                "E2E p50",
                "Output tokens",
                "Successful requests"
            ]
        );
        let names: Vec<&str> = figure
            .legend
            .iter()
            .map(|entry| entry.label.as_str())
            .collect();
        assert_eq!(names, ["10.0.0.7:8000", "10.0.0.7:8001", "10.0.0.7:8002"]);
        let known: Vec<f64> = report
            .cases
            .iter()
            .map(|case| case.distributions[&Metric::Ttft].quantile(0.99).unwrap())
            .collect();
        assert_eq!(heights(&figure, 1), known);
    }

    #[test]
    fn other_swept_keys_form_groups_of_bars() {
        let mut report = engines(2);
        let mut longer = report.cases.clone();
        for (cases, tokens) in [(&mut report.cases, 128), (&mut longer, 512)] {
            cases.iter_mut().for_each(|case| {
                case.labels
                    .0
                    .push(("request.max_tokens".into(), Scalar::Int(tokens)))
            });
        }
        report.cases.extend(longer);
        let figure = figure(&report).unwrap();
        let groups: Vec<&str> = figure.panels[0]
            .x
            .ticks
            .iter()
            .map(|(_, name)| name.as_str())
            .collect();
        assert_eq!(
            (groups, figure.legend.len()),
            (vec!["max_tokens=128", "max_tokens=512"], 2)
        );
        assert_eq!(heights(&figure, 0).len(), 4);
    }

    #[test]
    fn it_is_not_drawn_over_a_load_or_without_engines() {
        assert_eq!(figure(&sweep(4)), None);
        assert_eq!(
            figure(&report_of(vec![case(4), case(4)], Default::default(), 0)),
            None
        );
    }
}
