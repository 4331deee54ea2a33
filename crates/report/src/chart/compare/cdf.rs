//! The distributions of a case in every run, one over the other, a panel a case.

use crate::chart::axis::Axis;
use crate::chart::compare::{ROOM, cases, color, legend, subtitle, title};
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::limit::{Limit, SpanUnit, limits, scaled};
use crate::chart::style::{ALARM, Stroke};
use llmscen_core::compare::Comparison;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};

const TOPICS: [(&str, Metric, &str, &str); 3] = [
    ("compare_ttft", Metric::Ttft, "Time to first token, run by run", "share of requests"),
    ("compare_itl", Metric::Itl, "Inter-token latency, run by run", "share of gaps"),
    ("compare_e2e", Metric::E2e, "End-to-end latency, run by run", "share of requests"),
];

/// A chart for each of the metrics that two runs have values of in one case.
pub fn figures(comparison: &Comparison) -> impl Iterator<Item = Figure> + '_ {
    TOPICS.iter().filter_map(|topic| figure(comparison, *topic))
}

fn curve(case: &CaseReport, metric: Metric) -> Option<&Vec<(f64, f64)>> {
    case.cdfs.get(&metric).filter(|points| points.iter().all(|(x, _)| x.is_finite()) && !points.is_empty())
}

/// The case in each run that has it, with the run's index.
fn twins<'a>(comparison: &'a Comparison, id: &'a str) -> impl Iterator<Item = (usize, &'a CaseReport)> {
    let of = move |report: &'a Report| report.cases.iter().find(|case| case.id == id);
    comparison.runs.iter().enumerate().filter_map(move |(index, run)| Some((index, of(&run.report)?)))
}

fn figure(comparison: &Comparison, (name, metric, title, y): (&'static str, Metric, &str, &'static str)) -> Option<Figure> {
    let base = comparison.runs.first()?;
    let drawn = |id: &str| twins(comparison, id).filter(|(_, case)| curve(case, metric).is_some()).count() > 1;
    let ids: Vec<String> = base.report.cases.iter().map(|case| case.id.clone()).filter(|id| drawn(id)).collect();
    if ids.is_empty() {
        return None;
    }
    let (kept, remark) = cases(comparison, &ids, ROOM);
    let mut known: Vec<Limit> = comparison.runs.iter().flat_map(|run| limits(&run.report, metric)).collect();
    known.dedup_by(|a, b| a.label == b.label);
    let mut unique: Vec<Limit> = Vec::new();
    known.into_iter().for_each(|limit| {
        if !unique.iter().any(|own| own.label == limit.label) {
            unique.push(limit)
        }
    });
    unique.truncate(3);
    let only = kept.len() == 1;
    let all = kept.iter().flat_map(|id| twins(comparison, id)).filter_map(|(_, case)| curve(case, metric)).flatten();
    let unit = SpanUnit::of(all.map(|(x, _)| *x));
    let panels: Vec<Panel> = kept.iter().map(|id| panel(comparison, (id, only.then_some(y)), metric, &unique, unit)).collect();
    let share = if only { String::new() } else { y.to_owned() };
    let marked = unique.iter().map(|limit| Entry::new(&limit.label, Swatch::Line(Stroke::dashed(ALARM))));
    Some(Figure {
        name,
        title: title.to_owned(),
        subtitle: subtitle(comparison, &[remark, share]),
        legend: legend(comparison).into_iter().chain(marked).collect(),
        side: Side::Top,
        columns: match panels.len() {
            count @ 1..=3 => count,
            4 => 2,
            5..=6 => 3,
            _ => 4,
        },
        panels,
    })
}

/// A panel of a case; the only one has the axis' title above it, others have their case there.
fn panel(comparison: &Comparison, (id, y): (&str, Option<&str>), metric: Metric, limits: &[Limit], unit: SpanUnit) -> Panel {
    let curves: Vec<_> = twins(comparison, id).filter_map(|(run, case)| Some((run, curve(case, metric)?))).collect();
    let values: Vec<f64> = curves.iter().flat_map(|(_, points)| points.iter().map(|(x, _)| *x)).collect();
    let greatest = values.iter().copied().fold(0.0, f64::max);
    // A limit far beyond all values would press the curves into a corner.
    let near: Vec<&Limit> = limits.iter().filter(|limit| limit.value <= greatest * 3.0).collect();
    let all: Vec<f64> = values.iter().copied().chain(near.iter().map(|limit| limit.value)).map(|x| x * unit.factor).collect();
    let mut marks: Vec<Mark> = near.iter().map(|limit| Mark::Upright(limit.value * unit.factor, Stroke::dashed(ALARM))).collect();
    for (run, points) in curves {
        let risen = points.first().map(|(x, _)| (*x, 0.0)).into_iter().chain(points.iter().copied()).collect::<Vec<_>>();
        marks.push(Mark::Steps(scaled(&risen, unit.factor, 1.0), Stroke::solid(color(comparison, run))));
    }
    let x = Axis::fit(format!("{} ({})", metric.name().to_uppercase(), unit.name), &all, 30.0);
    let title = if y.is_some() { String::new() } else { title(comparison, id) };
    Panel { title, x, y: Axis::shares(y.unwrap_or_default()), marks }
}
