//! The cumulative distribution of TTFT, ITL and E2E.

use crate::chart::axis::Axis;
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::limit::{Limit, SpanUnit, limits, scaled};
use crate::chart::pick::{Picked, pick, shown, sizes, subtitle};
use crate::chart::style::{ALARM, GRID, Stroke};
use llmscen_core::metric::Metric;
use llmscen_core::report::Report;

/// Cases in one chart at the most.
const ROOM: usize = 12;

/// What one such chart is about.
struct Topic {
    name: &'static str,
    metric: Metric,
    title: &'static str,
    x: &'static str,
    y: &'static str,
}

const TOPICS: [Topic; 3] = [
    Topic {
        name: "cdf_ttft",
        metric: Metric::Ttft,
        title: "Time to first token, distribution",
        x: "TTFT",
        y: "share of requests",
    },
    Topic { name: "cdf_itl", metric: Metric::Itl, title: "Inter-token latency, distribution", x: "ITL", y: "share of gaps" },
    Topic { name: "cdf_e2e", metric: Metric::E2e, title: "End-to-end latency, distribution", x: "E2E", y: "share of requests" },
];

/// A chart for each of the three metrics that has data.
pub fn figures(report: &Report) -> impl Iterator<Item = Figure> + '_ {
    TOPICS.iter().filter_map(|topic| figure(report, topic))
}

fn figure(report: &Report, topic: &Topic) -> Option<Figure> {
    let (picked, found) = pick(report, ROOM, |case| case.cdfs.get(&topic.metric).is_some_and(|points| !points.is_empty()));
    let limits = limits(report, topic.metric);
    let panel = panel(&picked, &limits, topic)?;
    let remarks = [shown(picked.len(), found, "cases"), sizes(picked.iter().map(|picked| picked.case), topic.metric)];
    Some(Figure {
        name: topic.name,
        title: topic.title.to_owned(),
        subtitle: subtitle(report, &remarks),
        legend: legend(&picked, &limits),
        side: Side::Right,
        panels: vec![panel],
        columns: 1,
    })
}

fn panel(picked: &[Picked], limits: &[Limit], topic: &Topic) -> Option<Panel> {
    let curves = picked.iter().filter_map(|picked| Some((picked.case.cdfs.get(&topic.metric)?, picked.color)));
    let values: Vec<f64> = curves.clone().flat_map(|(points, _)| points.iter().map(|(x, _)| *x)).collect();
    let all: Vec<f64> = values.iter().copied().chain(limits.iter().map(|limit| limit.value)).collect();
    let unit = (!values.is_empty()).then(|| SpanUnit::of(all.iter().copied()))?;
    let all: Vec<f64> = all.iter().map(|value| value * unit.factor).collect();
    let x = Axis::fit(format!("{} ({})", topic.x, unit.name), &all, 30.0);
    let mut marks: Vec<Mark> = x.ticks.iter().map(|(tick, _)| Mark::Upright(*tick, Stroke::solid(GRID).hair())).collect();
    marks.extend(limits.iter().map(|limit| Mark::Upright(limit.value * unit.factor, Stroke::dashed(ALARM))));
    marks.extend(curves.map(|(points, color)| Mark::Steps(risen(&scaled(points, unit.factor, 1.0)), Stroke::solid(color))));
    let knots = limits.iter().map(|limit| (limit.value * unit.factor, limit.share)).collect::<Vec<_>>();
    if !knots.is_empty() {
        marks.push(Mark::Dots(knots, ALARM, 4.5));
    }
    Some(Panel { title: String::new(), x, y: Axis::shares(topic.y), marks })
}

/// A distribution function starts at zero.
fn risen(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.first().map(|(x, _)| (*x, 0.0)).into_iter().chain(points.iter().copied()).collect()
}

fn legend(picked: &[Picked], limits: &[Limit]) -> Vec<Entry> {
    let cases = picked.iter().map(|picked| Entry::new(&picked.label, Swatch::Line(Stroke::solid(picked.color))));
    let limits = limits.iter().map(|limit| Entry::new(&limit.label, Swatch::Line(Stroke::dashed(ALARM))));
    cases.chain(limits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{no_data, report_of, sweep};

    #[test]
    fn a_hundred_cases_are_twelve_curves_and_say_so() {
        let report = sweep(100);
        let all: Vec<Figure> = figures(&report).collect();
        assert_eq!(all.iter().map(|figure| figure.name).collect::<Vec<_>>(), ["cdf_ttft", "cdf_itl", "cdf_e2e"]);
        assert_eq!((all[0].legend.len(), all[1].legend.len()), (13, 12));
        assert!(all[0].subtitle.ends_with("12 of 100 cases shown  ·  n = 240 requests per case"), "{}", all[0].subtitle);
    }

    #[test]
    fn the_limit_stands_at_its_value_and_its_knot_at_its_share() {
        let figure = figures(&sweep(1)).next().unwrap();
        assert!(figure.panels[0].marks.contains(&Mark::Upright(500.0, Stroke::dashed(ALARM))));
        assert!(figure.panels[0].marks.contains(&Mark::Dots(vec![(500.0, 0.99)], ALARM, 4.5)));
        assert!(figure.panels[0].x.high >= 500.0);
    }

    #[test]
    fn without_data_there_is_no_chart() {
        assert_eq!(figures(&report_of(vec![no_data()], Default::default(), 3)).count(), 0);
    }
}
