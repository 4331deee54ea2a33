//! Latency against throughput over a sweep: the curve of each run in one plot.

use crate::chart::axis::Axis;
use crate::chart::compare::{color, legend, subtitle};
use crate::chart::figure::{Figure, Mark, Panel, Side};
use crate::chart::limit::SpanUnit;
use crate::chart::style::Stroke;
use crate::chart::sweep::{Group, Sweep};
use llmscen_core::compare::Comparison;
use llmscen_core::metric::Metric;

const METRICS: [(Metric, &str); 3] = [(Metric::Ttft, "TTFT p95"), (Metric::Tpot, "TPOT p95"), (Metric::E2e, "E2E p95")];
const SHARE: f64 = 0.95;
/// Groups of cases that are drawn; each has a row of its own.
const GROUPS: usize = 4;

/// The chart; None where fewer than two runs have a sweep over load.
pub fn figure(comparison: &Comparison) -> Option<Figure> {
    let sweeps: Vec<(usize, Sweep)> =
        comparison.runs.iter().enumerate().filter_map(|(run, own)| Some((run, Sweep::of(&own.report)?))).collect();
    let mut groups: Vec<&Group> = Vec::new();
    for group in sweeps.iter().flat_map(|(_, sweep)| &sweep.groups) {
        let twins = sweeps.iter().filter(|(_, sweep)| sweep.groups.iter().any(|own| own.key == group.key)).count();
        if twins > 1 && groups.iter().all(|own| own.key != group.key) {
            groups.push(group);
        }
    }
    let found = groups.len();
    groups.truncate(GROUPS);
    let metrics: Vec<(Metric, &str)> =
        METRICS.into_iter().filter(|(metric, _)| lines(&sweeps, None, *metric).len() > 1).collect();
    let panels: Vec<Panel> = groups
        .iter()
        .flat_map(|group| metrics.iter().map(move |(metric, title)| (*group, *metric, *title)))
        .map(|(group, metric, title)| panel(comparison, &sweeps, (group, metric, title), found))
        .collect();
    let remark = crate::chart::pick::shown(groups.len(), found, "groups");
    (!panels.is_empty()).then(|| Figure {
        name: "compare_curves",
        title: "Latency against throughput, as the load rises".to_owned(),
        subtitle: subtitle(comparison, &["a dot is a load; right and down is better".to_owned(), remark]),
        legend: legend(comparison),
        side: Side::Top,
        columns: metrics.len(),
        panels,
    })
}

/// Points (output tokens per second, latency in ms) of each run, by rising load; of one group, or of all.
fn lines(sweeps: &[(usize, Sweep)], key: Option<&str>, metric: Metric) -> Vec<(usize, Vec<(f64, f64)>)> {
    let of = |(run, sweep): &(usize, Sweep)| {
        let groups = sweep.groups.iter().filter(|group| key.is_none_or(|key| group.key == key));
        let points: Vec<(f64, f64)> = groups
            .flat_map(|group| group.cases.iter())
            .filter_map(|case| {
                let rate = case.scalars.get(&Metric::OutputTps).or_else(|| case.scalars.get(&Metric::RequestThroughput))?;
                Some((*rate, case.distributions.get(&metric)?.quantile(SHARE)?))
            })
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect();
        (!points.is_empty()).then_some((*run, points))
    };
    sweeps.iter().filter_map(of).collect()
}

fn panel(
    comparison: &Comparison,
    sweeps: &[(usize, Sweep)],
    (group, metric, title): (&Group, Metric, &str),
    groups: usize,
) -> Panel {
    let lines = lines(sweeps, Some(&group.key), metric);
    let all = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let unit = SpanUnit::of(all().map(|(_, y)| y));
    let tokens = sweeps.iter().any(|(_, sweep)| sweep.cases().any(|case| case.scalars.contains_key(&Metric::OutputTps)));
    let x = Axis::from_zero(if tokens { "output tok/s" } else { "req/s" }, all().map(|(x, _)| x));
    let heights: Vec<f64> = all().map(|(_, y)| y * unit.factor).collect();
    let y = Axis::fit(unit.name, &heights, 30.0);
    let marks = lines.iter().flat_map(|(run, points)| {
        let (color, points) = (color(comparison, *run), points.iter().map(|(x, y)| (*x, y * unit.factor)).collect::<Vec<_>>());
        [Mark::Line(points.clone(), Stroke::solid(color)), Mark::Dots(points, color, 3.5)]
    });
    let marks = marks.collect();
    let title = if groups > 1 { format!("{title}, {}", group.label) } else { title.to_owned() };
    Panel { title, x, y, marks }
}
