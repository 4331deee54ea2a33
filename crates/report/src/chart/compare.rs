//! Charts of a comparison of runs. A chart without data is omitted.

#[cfg(test)]
mod tests;

use crate::ReportError;
use crate::chart::axis::{Axis, TimeUnit, scaled};
use crate::chart::distribution::from_zero;
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::over_load::MAX_LIMIT_RATIO;
use crate::chart::pick::{CaseNames, evenly_spaced, shown};
use crate::chart::style::{ALARM, INK, MUTED, Stroke, category};
use crate::chart::sweep::{Group, Sweep};
use crate::chart::tradeoff::{ParetoGroup, pareto_figure};
use crate::chart::verdict::{Limit, limits};
use crate::chart::{Chart, render};
use crate::format::{percent, short_folder};
use llmscen_core::compare::{Comparison, Contrast, Finding, Span};
use llmscen_core::metric::Metric;
use llmscen_core::plan::Format;
use llmscen_core::report::{CaseReport, Report};
use plotters::style::RGBColor;

/// The file stems of all charts that a comparison may have.
pub const CHART_NAMES: [&str; 12] = [
    "forest_b",
    "forest_c",
    "forest_d",
    "forest_e",
    "forest_f",
    "forest_g",
    "forest_h",
    "compare_curves",
    "compare_pareto",
    "compare_ttft",
    "compare_itl",
    "compare_e2e",
];

/// Every chart that the comparison has data for.
///
/// # Errors
/// [`ReportError::Chart`] if drawing fails, which is a bug.
pub fn comparison_charts(comparison: &Comparison) -> Result<Vec<Chart>, ReportError> {
    figures(comparison)
        .iter()
        .map(|figure| render(figure, None, &[Format::Png, Format::Svg]))
        .collect()
}

fn figures(comparison: &Comparison) -> Vec<Figure> {
    let forests = (1..comparison.sides.len()).filter_map(|run| forest_figure(comparison, run));
    latency_curves(comparison)
        .into_iter()
        .chain(pareto(comparison))
        .chain(forests)
        .chain(distribution_figures(comparison))
        .collect()
}

/// The most cases of one chart.
const MAX_CASES: usize = 12;

/// At most `max` of the cases in their order, and a remark about the omitted ones. Cases with the greatest
/// regressions are selected first, then evenly spaced ones.
fn select_cases(comparison: &Comparison, ids: &[String], max: usize) -> (Vec<String>, String) {
    let worst = |id: &String| {
        let is_regression = |it: &&Contrast| it.case == *id && it.finding == Finding::Regression;
        comparison
            .contrasts
            .iter()
            .filter(is_regression)
            .filter_map(Contrast::worsening)
            .fold(0.0, f64::max)
    };
    let mut worsened: Vec<usize> = (0..ids.len()).filter(|&at| worst(&ids[at]) > 0.0).collect();
    worsened.sort_by(|&a, &b| worst(&ids[b]).total_cmp(&worst(&ids[a])));
    worsened.truncate(max);
    let rest: Vec<usize> = (0..ids.len()).filter(|at| !worsened.contains(at)).collect();
    let others = evenly_spaced(rest.len(), max - worsened.len())
        .into_iter()
        .map(|at| rest[at]);
    let mut kept: Vec<usize> = worsened.iter().copied().chain(others).collect();
    kept.sort_unstable();
    (
        kept.iter().map(|&at| ids[at].clone()).collect(),
        shown(kept.len(), ids.len(), "cases"),
    )
}

/// The title of a case's panel: the values that distinguish it, or its id.
fn panel_title(comparison: &Comparison, id: &str) -> String {
    let cases: Vec<&CaseReport> = comparison
        .runs
        .first()
        .map(|run| run.report.cases.iter().collect())
        .unwrap_or_default();
    let title = cases
        .iter()
        .find(|case| case.id == id)
        .map(|case| CaseNames::new(&cases).title(case));
    title
        .filter(|title| !title.is_empty())
        .unwrap_or_else(|| id.to_owned())
}

/// The color of a run: that of its side.
fn run_color(comparison: &Comparison, run: usize) -> RGBColor {
    side_color(
        comparison,
        comparison.runs.get(run).map_or(run, |run| run.side),
    )
}

fn side_color(comparison: &Comparison, side: usize) -> RGBColor {
    category(side, comparison.sides.len())
}

/// A legend entry for each side: `A  before`, or `A  3 runs`.
fn side_legend(comparison: &Comparison) -> Vec<Entry> {
    let entry = |(side, label): (usize, &String)| {
        let runs: Vec<_> = comparison
            .runs
            .iter()
            .filter(|run| run.side == side)
            .collect();
        let source = if let [run] = runs.as_slice() {
            short_folder(&run.folder)
        } else {
            format!("{} runs", runs.len())
        };
        Entry::new(
            format!("{label}  {source}"),
            Swatch::Line(Stroke::solid(side_color(comparison, side))),
        )
    };
    comparison.sides.iter().enumerate().map(entry).collect()
}

/// The legend of a run: `B  chat/20260101T000000Z`.
fn run_legend(comparison: &Comparison, index: usize) -> String {
    let Some(run) = comparison.runs.get(index) else {
        return String::new();
    };
    format!("{}  {}", run.label, short_folder(&run.folder))
}

/// The line under the title: scenario and remarks.
fn subtitle(comparison: &Comparison, remarks: &[String]) -> String {
    let name = comparison
        .runs
        .first()
        .map(|run| run.report.manifest.name.clone())
        .unwrap_or_default();
    let parts = std::iter::once(name)
        .chain(remarks.iter().cloned())
        .filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("  ·  ")
}

/// The most rows of a panel.
const MAX_ROWS: usize = 14;
/// The axis covers at most changes by this factor.
const MAX_FACTOR: f64 = 4.0;
/// Candidate ticks of the axis.
const TICKS: [f64; 17] = [
    0.25,
    0.333_333_333,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    1.0,
    1.05,
    1.1,
    1.2,
    1.4,
    1.6,
    2.0,
    3.0,
    4.0,
];

/// The forest plot of a side: the change of every measure against the base with its interval, a panel per case. None
/// without intervals.
pub fn forest_figure(comparison: &Comparison, run: usize) -> Option<Figure> {
    let contrasts: Vec<(&Contrast, Span)> = comparison
        .contrasts
        .iter()
        .filter(|contrast| contrast.run == run)
        .filter_map(|contrast| Some((contrast, contrast.ratio.filter(is_drawable)?)))
        .collect();
    let mut ids: Vec<String> = contrasts
        .iter()
        .map(|(contrast, _)| contrast.case.clone())
        .collect();
    ids.dedup();
    let (kept, remark) = select_cases(comparison, &ids, MAX_CASES);
    let drawn = || {
        contrasts
            .iter()
            .filter(|(contrast, _)| kept.contains(&contrast.case))
    };
    let x = ratio_axis(comparison, drawn().map(|(_, span)| *span))?;
    let rows_of = |id: &str| {
        contrasts
            .iter()
            .filter(|(contrast, _)| contrast.case == id)
            .copied()
            .collect::<Vec<_>>()
    };
    let panels: Vec<Panel> = kept
        .iter()
        .map(|id| forest_panel(comparison, id, &rows_of(id), &x, kept.len()))
        .collect();
    let is_cut = kept.iter().any(|id| rows_of(id).len() > MAX_ROWS);
    let cut = if is_cut {
        format!("the first {MAX_ROWS} measures of each case")
    } else {
        String::new()
    };
    let arrows = if drawn().any(|(_, span)| extends_beyond(span, &x)) {
        "arrow: interval extends beyond the axis".to_owned()
    } else {
        String::new()
    };
    let label = comparison
        .sides
        .get(run)
        .map(String::as_str)
        .unwrap_or_default();
    Some(Figure {
        name: CHART_NAMES.get(run - 1).copied()?,
        title: format!(
            "Change of {label} relative to A, with {} interval",
            percent(comparison.confidence)
        ),
        subtitle: subtitle(comparison, &[remark, cut, arrows]),
        legend: forest_legend(comparison),
        side: Side::Top,
        columns: panels.len().clamp(1, 3),
        panels,
    })
}

/// Whether the span is finite and positive, as a logarithmic axis needs.
fn is_drawable(span: &Span) -> bool {
    [span.low, span.value, span.high]
        .iter()
        .all(|value| value.is_finite() && *value > 0.0)
}

/// A logarithmic axis of ratios, symmetric around no change, with changes as tick labels.
fn ratio_axis(comparison: &Comparison, spans: impl Iterator<Item = Span>) -> Option<Axis> {
    let limits = [
        1.0 - comparison.max_regression,
        1.0 + comparison.max_regression,
    ];
    let all: Vec<f64> = spans.flat_map(|span| [span.low, span.high]).collect();
    let distance = |value: f64| value.max(1e-9).ln().abs();
    let extent = all
        .iter()
        .copied()
        .map(distance)
        .reduce(f64::max)?
        .max(distance(limits[1]))
        .clamp(0.03, MAX_FACTOR.ln())
        * 1.08;
    let (low, high) = ((-extent).exp(), extent.exp());
    let ticks = TICKS
        .iter()
        .filter(|tick| (low..=high).contains(*tick))
        .map(|&tick| (tick, change_label(tick)));
    Some(Axis {
        title: "change".into(),
        low,
        high,
        log: true,
        ticks: ticks.collect(),
    })
}

fn change_label(ratio: f64) -> String {
    match ((ratio - 1.0) * 100.0).round() {
        0.0 => "0".to_owned(),
        change => format!("{change:+.0}%"),
    }
}

/// An interval with its value at height `y`, and an arrow at each end that is beyond the axis.
fn interval_marks(span: &Span, y: f64, x: &Axis, color: RGBColor) -> Vec<Mark> {
    let within = |value: f64| value.clamp(x.low, x.high);
    let mut marks = vec![Mark::Line(
        vec![(within(span.low), y), (within(span.high), y)],
        Stroke::solid(color),
    )];
    if (x.low..=x.high).contains(&span.value) {
        marks.push(Mark::Dots(vec![(span.value, y)], color, 4.0));
    }
    let depth = (x.high / x.low).powf(0.025);
    let arrow = |at: f64, back: f64| {
        Mark::Line(
            vec![(back, y + 0.2), (at, y), (back, y - 0.2)],
            Stroke::solid(color),
        )
    };
    marks.extend((span.low < x.low).then(|| arrow(x.low, x.low * depth)));
    marks.extend((span.high > x.high).then(|| arrow(x.high, x.high / depth)));
    marks
}

/// Whether an interval extends beyond the axis.
fn extends_beyond(span: &Span, x: &Axis) -> bool {
    span.low < x.low || span.high > x.high
}

fn forest_panel(
    comparison: &Comparison,
    id: &str,
    contrasts: &[(&Contrast, Span)],
    x: &Axis,
    panels: usize,
) -> Panel {
    let shown = &contrasts[..contrasts.len().min(MAX_ROWS)];
    let rows = shown.len() as f64;
    let height = |index: usize| rows - index as f64 - 0.5;
    let mut ticks: Vec<(f64, String)> = shown
        .iter()
        .enumerate()
        .map(|(index, (contrast, _))| (height(index), contrast.measure.to_string()))
        .collect();
    ticks.reverse();
    let mut marks = vec![Mark::VerticalLine(1.0, Stroke::solid(INK).thin())];
    let limit = comparison.max_regression;
    if limit > 0.0 && limit < 1.0 {
        marks.extend(
            [1.0 - limit, 1.0 + limit].map(|at| Mark::VerticalLine(at, Stroke::dashed(MUTED))),
        );
    }
    for (index, (contrast, span)) in shown.iter().enumerate() {
        marks.extend(interval_marks(
            span,
            height(index),
            x,
            finding_color(contrast.finding),
        ));
    }
    let title = if panels == 1 && id == "base" {
        String::new()
    } else {
        panel_title(comparison, id)
    };
    Panel {
        title,
        x: x.clone(),
        y: Axis {
            title: String::new(),
            low: 0.0,
            high: rows.max(1.0),
            log: false,
            ticks,
        },
        marks,
    }
}

fn finding_color(finding: Finding) -> RGBColor {
    match finding {
        Finding::Regression => ALARM,
        Finding::Within => category(1, 6),
        Finding::Better => category(2, 6),
        Finding::Noise | Finding::Unknown => MUTED,
    }
}

fn forest_legend(comparison: &Comparison) -> Vec<Entry> {
    let is_present = |finding: &Finding| comparison.count(*finding) > 0;
    let entry = |finding: Finding| {
        let label = if finding == Finding::Noise {
            "not significant"
        } else {
            finding.name()
        };
        Entry::new(label.to_lowercase(), Swatch::Dot(finding_color(finding)))
    };
    let all = [
        Finding::Regression,
        Finding::Within,
        Finding::Better,
        Finding::Noise,
    ];
    let limit = Entry::new(
        format!("±{}", percent(comparison.max_regression)),
        Swatch::Line(Stroke::dashed(MUTED)),
    );
    let limit =
        (comparison.max_regression > 0.0 && comparison.max_regression < 1.0).then_some(limit);
    all.into_iter()
        .filter(is_present)
        .map(entry)
        .chain(limit)
        .collect()
}

const CURVES: [(Metric, &str); 3] = [
    (Metric::Ttft, "TTFT p95"),
    (Metric::Tpot, "TPOT p95"),
    (Metric::E2e, "E2E p95"),
];
/// The quantile of the latencies.
const QUANTILE: f64 = 0.95;
/// The most groups of cases; each has a row of panels.
const MAX_GROUPS: usize = 4;

/// Latency over throughput of each run; None if fewer than two runs have a sweep over load.
pub fn latency_curves(comparison: &Comparison) -> Option<Figure> {
    let sweeps: Vec<(usize, Sweep)> = comparison
        .runs
        .iter()
        .enumerate()
        .filter_map(|(index, run)| Some((index, Sweep::from_report(&run.report)?)))
        .collect();
    let mut groups: Vec<&Group> = Vec::new();
    for group in sweeps.iter().flat_map(|(_, sweep)| &sweep.groups) {
        let runs = sweeps
            .iter()
            .filter(|(_, sweep)| sweep.groups.iter().any(|other| other.key == group.key))
            .count();
        if runs > 1 && groups.iter().all(|other| other.key != group.key) {
            groups.push(group);
        }
    }
    let found = groups.len();
    groups.truncate(MAX_GROUPS);
    let metrics: Vec<(Metric, &str)> = CURVES
        .into_iter()
        .filter(|(metric, _)| curve_points(&sweeps, None, *metric).len() > 1)
        .collect();
    let panels: Vec<Panel> = groups
        .iter()
        .flat_map(|group| {
            metrics
                .iter()
                .map(move |(metric, title)| (*group, *metric, *title))
        })
        .map(|(group, metric, title)| {
            curve_panel(comparison, &sweeps, (group, metric, title), found)
        })
        .collect();
    let remark = crate::chart::pick::shown(groups.len(), found, "groups");
    (!panels.is_empty()).then(|| Figure {
        name: "compare_curves",
        title: "Latency over throughput by run".to_owned(),
        subtitle: subtitle(
            comparison,
            &[
                "one point per load level; lower right is better".to_owned(),
                remark,
            ],
        ),
        legend: side_legend(comparison),
        side: Side::Top,
        columns: metrics.len(),
        panels,
    })
}

/// The Pareto front of all runs, per GPU where every run has their number; None unless two runs have a sweep over the
/// same load.
pub fn pareto(comparison: &Comparison) -> Option<Figure> {
    let sweeps: Vec<Option<Sweep>> = comparison
        .runs
        .iter()
        .map(|run| Sweep::from_report(&run.report))
        .collect();
    let axis = sweeps.iter().flatten().next()?.axis;
    let runs = sweeps.iter().enumerate().filter_map(|(index, sweep)| {
        let sweep = sweep.as_ref().filter(|sweep| sweep.axis == axis)?;
        Some((index, sweep))
    });
    let groups: Vec<ParetoGroup> = runs
        .map(|(index, sweep)| ParetoGroup {
            label: run_legend(comparison, index),
            stroke: Stroke::solid(run_color(comparison, index)),
            cases: sweep.cases().collect(),
        })
        .collect();
    if groups.len() < 2 {
        return None;
    }
    let figure = pareto_figure(&groups, axis)?;
    Some(Figure {
        name: "compare_pareto",
        subtitle: subtitle(comparison, &[figure.subtitle]),
        ..figure
    })
}

/// Points (output tokens per second, latency in ms) of each run by rising load, of one group or of all.
fn curve_points(
    sweeps: &[(usize, Sweep)],
    key: Option<&str>,
    metric: Metric,
) -> Vec<(usize, Vec<(f64, f64)>)> {
    let points = |(run, sweep): &(usize, Sweep)| {
        let groups = sweep
            .groups
            .iter()
            .filter(|group| key.is_none_or(|key| group.key == key));
        let points: Vec<(f64, f64)> = groups
            .flat_map(|group| group.cases.iter())
            .filter_map(|case| {
                let rate = case
                    .scalars
                    .get(&Metric::OutputTps)
                    .or_else(|| case.scalars.get(&Metric::RequestThroughput))?;
                Some((*rate, case.distributions.get(&metric)?.quantile(QUANTILE)?))
            })
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect();
        (!points.is_empty()).then_some((*run, points))
    };
    sweeps.iter().filter_map(points).collect()
}

fn curve_panel(
    comparison: &Comparison,
    sweeps: &[(usize, Sweep)],
    (group, metric, title): (&Group, Metric, &str),
    groups: usize,
) -> Panel {
    let lines = curve_points(sweeps, Some(&group.key), metric);
    let all = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let unit = TimeUnit::for_values(all().map(|(_, y)| y));
    let tokens = sweeps.iter().any(|(_, sweep)| {
        sweep
            .cases()
            .any(|case| case.scalars.contains_key(&Metric::OutputTps))
    });
    let x = Axis::from_zero(
        if tokens { "output tok/s" } else { "req/s" },
        all().map(|(x, _)| x),
    );
    let heights: Vec<f64> = all().map(|(_, y)| y * unit.factor).collect();
    let y = Axis::fit(unit.name, &heights, 30.0);
    let marks = lines.iter().flat_map(|(run, points)| {
        let (color, points) = (
            run_color(comparison, *run),
            points
                .iter()
                .map(|(x, y)| (*x, y * unit.factor))
                .collect::<Vec<_>>(),
        );
        [
            Mark::Line(points.clone(), Stroke::solid(color)),
            Mark::Dots(points, color, 3.5),
        ]
    });
    let marks = marks.collect();
    let title = if groups > 1 {
        format!("{title}, {}", group.label)
    } else {
        title.to_owned()
    };
    Panel { title, x, y, marks }
}

const TOPICS: [(&str, Metric, &str, &str); 3] = [
    (
        "compare_ttft",
        Metric::Ttft,
        "TTFT distribution by run",
        "cumulative share of requests",
    ),
    (
        "compare_itl",
        Metric::Itl,
        "Inter-token latency distribution by run",
        "cumulative share of gaps",
    ),
    (
        "compare_e2e",
        Metric::E2e,
        "End-to-end latency distribution by run",
        "cumulative share of requests",
    ),
];

/// The distributions of each case in every run: a chart for each metric with values in at least two runs.
pub fn distribution_figures(comparison: &Comparison) -> impl Iterator<Item = Figure> + '_ {
    TOPICS
        .iter()
        .filter_map(|topic| distribution_figure(comparison, *topic))
}

fn curve(case: &CaseReport, metric: Metric) -> Option<&Vec<(f64, f64)>> {
    case.cdfs
        .get(&metric)
        .filter(|points| points.iter().all(|(x, _)| x.is_finite()) && !points.is_empty())
}

/// The case in each run that has it, with the run's index.
fn cases_by_run<'a>(
    comparison: &'a Comparison,
    id: &'a str,
) -> impl Iterator<Item = (usize, &'a CaseReport)> {
    let find = move |report: &'a Report| report.cases.iter().find(|case| case.id == id);
    comparison
        .runs
        .iter()
        .enumerate()
        .filter_map(move |(index, run)| Some((index, find(&run.report)?)))
}

fn distribution_figure(
    comparison: &Comparison,
    (name, metric, title, y): (&'static str, Metric, &str, &'static str),
) -> Option<Figure> {
    let base = comparison.runs.first()?;
    let drawn = |id: &str| {
        cases_by_run(comparison, id)
            .filter(|(_, case)| curve(case, metric).is_some())
            .count()
            > 1
    };
    let ids: Vec<String> = base
        .report
        .cases
        .iter()
        .map(|case| case.id.clone())
        .filter(|id| drawn(id))
        .collect();
    if ids.is_empty() {
        return None;
    }
    let (kept, remark) = select_cases(comparison, &ids, MAX_CASES);
    let mut unique: Vec<Limit> = Vec::new();
    for limit in comparison
        .runs
        .iter()
        .flat_map(|run| limits(&run.report, metric))
    {
        if !unique.iter().any(|other| other.label == limit.label) {
            unique.push(limit);
        }
    }
    unique.truncate(3);
    let is_single = kept.len() == 1;
    let all = kept
        .iter()
        .flat_map(|id| cases_by_run(comparison, id))
        .filter_map(|(_, case)| curve(case, metric))
        .flatten();
    let unit = TimeUnit::for_values(all.map(|(x, _)| *x));
    let panels: Vec<Panel> = kept
        .iter()
        .map(|id| {
            distribution_panel(
                comparison,
                (id, is_single.then_some(y)),
                metric,
                &unique,
                unit,
            )
        })
        .collect();
    let share = if is_single {
        String::new()
    } else {
        y.to_owned()
    };
    let limit_entries = unique
        .iter()
        .map(|limit| Entry::new(&limit.label, Swatch::Line(Stroke::limit())));
    Some(Figure {
        name,
        title: title.to_owned(),
        subtitle: subtitle(comparison, &[remark, share]),
        legend: side_legend(comparison)
            .into_iter()
            .chain(limit_entries)
            .collect(),
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

/// The panel of a case. A single panel has the title of its vertical axis, others have their case instead.
fn distribution_panel(
    comparison: &Comparison,
    (id, y): (&str, Option<&str>),
    metric: Metric,
    limits: &[Limit],
    unit: TimeUnit,
) -> Panel {
    let curves: Vec<_> = cases_by_run(comparison, id)
        .filter_map(|(run, case)| Some((run, curve(case, metric)?)))
        .collect();
    let values: Vec<f64> = curves
        .iter()
        .flat_map(|(_, points)| points.iter().map(|(x, _)| *x))
        .collect();
    let greatest = values.iter().copied().fold(0.0, f64::max);
    // A limit far beyond the data would compress the curves, so it is omitted.
    let near: Vec<&Limit> = limits
        .iter()
        .filter(|limit| limit.value <= greatest * MAX_LIMIT_RATIO)
        .collect();
    let all: Vec<f64> = values
        .iter()
        .copied()
        .chain(near.iter().map(|limit| limit.value))
        .map(|x| x * unit.factor)
        .collect();
    let mut marks: Vec<Mark> = near
        .iter()
        .map(|limit| Mark::VerticalLine(limit.value * unit.factor, Stroke::limit()))
        .collect();
    for (run, points) in curves {
        marks.push(Mark::Steps(
            scaled(&from_zero(points), unit.factor, 1.0),
            Stroke::solid(run_color(comparison, run)),
        ));
    }
    let x = Axis::fit(
        format!("{} ({})", metric.name().to_uppercase(), unit.name),
        &all,
        30.0,
    );
    let title = if y.is_some() {
        String::new()
    } else {
        panel_title(comparison, id)
    };
    Panel {
        title,
        x,
        y: Axis::shares(y.unwrap_or_default()),
        marks,
    }
}
