//! Percentile spectra: each latency against the share of requests under it, the tail spread out.

use crate::chart::axis::Axis;
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::latency_over_load::OUT_OF_SIGHT;
use crate::chart::limit::{Limit, SpanUnit, limits};
use crate::chart::pick::{Picked, pick, shown, sizes, subtitle};
use crate::chart::style::{ALARM, GRID, Stroke};
use llmscen_core::metric::Metric;
use llmscen_core::report::{Report, Series};

/// Cases in one chart at the most.
const ROOM: usize = 12;
const METRICS: [(Metric, &str); 4] = [(Metric::Ttft, "TTFT"), (Metric::Itl, "ITL"), (Metric::Tpot, "TPOT"), (Metric::E2e, "E2E")];

/// The chart; None without data.
pub fn figure(report: &Report) -> Option<Figure> {
    let (picked, found) = pick(report, ROOM, |case| METRICS.iter().any(|(metric, _)| case.pictures.spectra.contains_key(metric)));
    let drawn: Vec<(Panel, Vec<Limit>)> = METRICS.iter().filter_map(|own| panel(report, &picked, *own)).collect();
    let limits = drawn.iter().flat_map(|(panel, limits)| limits.iter().map(|limit| format!("{} {}", panel.title, limit.label)));
    let remarks = [shown(picked.len(), found, "cases"), sizes(picked.iter().map(|picked| picked.case), Metric::E2e)];
    let legend = legend(&picked, limits);
    let panels: Vec<Panel> = drawn.into_iter().map(|(panel, _)| panel).collect();
    (!panels.is_empty()).then(|| Figure {
        name: "percentile_spectrum",
        title: "Percentile spectrum of latencies".to_owned(),
        subtitle: subtitle(report, &remarks),
        legend,
        side: if picked.len() > 1 { Side::Right } else { Side::Top },
        columns: panels.len().min(2),
        panels,
    })
}

/// Where a share lies: the tail above it, from all down to one of n, on a logarithmic axis.
fn place(share: f64) -> f64 {
    1.0 / (1.0 - share).max(1e-12)
}

fn panel(report: &Report, picked: &[Picked], (metric, title): (Metric, &str)) -> Option<(Panel, Vec<Limit>)> {
    let curves = || picked.iter().filter_map(|picked| Some((picked.case.pictures.spectra.get(&metric)?, picked.color)));
    let seen = || curves().flat_map(|(points, _)| points.iter().copied());
    let reach = seen().map(|(share, _)| place(share)).filter(|place| place.is_finite()).reduce(f64::max)?;
    let mut limits = limits(report, metric);
    let greatest = seen().map(|(_, value)| value).fold(0.0, f64::max);
    limits.retain(|limit| place(limit.share) <= reach && limit.value <= greatest * OUT_OF_SIGHT);
    let values = seen().map(|(_, value)| value).chain(limits.iter().map(|limit| limit.value));
    let unit = SpanUnit::of(values.clone());
    let values: Vec<f64> = values.map(|value| value * unit.factor).collect();
    let x = axis(reach);
    let mut marks: Vec<Mark> = x.ticks.iter().map(|(tick, _)| Mark::Upright(*tick, Stroke::solid(GRID).hair())).collect();
    marks.extend(limits.iter().map(|limit| Mark::Level(limit.value * unit.factor, Stroke::dashed(ALARM))));
    for (points, color) in curves() {
        let points: Series = points.iter().map(|(share, value)| (place(*share), value * unit.factor)).collect();
        marks.push(Mark::Line(points, Stroke::solid(color)));
    }
    let knots: Series = limits.iter().map(|limit| (place(limit.share), limit.value * unit.factor)).collect();
    if !knots.is_empty() {
        marks.push(Mark::Dots(knots, ALARM, 4.5));
    }
    Some((Panel { title: title.to_owned(), x, y: Axis::fit(unit.name, &values, 30.0), marks }, limits))
}

/// 0 %, 50 %, 90 %, 99 %, 99.9 % … as far as there are values.
fn axis(reach: f64) -> Axis {
    let nines = |power: i32| {
        let label = if power == 2 { "99%".to_owned() } else { format!("99.{}%", "9".repeat(power as usize - 2)) };
        (10f64.powi(power), label)
    };
    let first = [(1.0, "0%".to_owned()), (2.0, "50%".to_owned()), (10.0, "90%".to_owned())];
    let high = reach.max(2.0) * 1.05;
    let ticks = first.into_iter().chain((2..=12).map(nines)).filter(|(place, _)| *place <= high).collect();
    Axis { title: "share of requests (ITL: of gaps) at or under".to_owned(), low: 1.0, high, log: true, ticks }
}

fn legend(picked: &[Picked], limits: impl Iterator<Item = String>) -> Vec<Entry> {
    let cases = picked.iter().filter(|_| picked.len() > 1);
    let cases = cases.map(|picked| Entry::new(&picked.label, Swatch::Line(Stroke::solid(picked.color))));
    cases.chain(limits.map(|limit| Entry::new(limit, Swatch::Line(Stroke::dashed(ALARM))))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{no_data, report_of, sweep};

    #[test]
    fn the_tail_is_spread_by_its_nines() {
        let labels = |reach| axis(reach).ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(24_000.0), ["0%", "50%", "90%", "99%", "99.9%", "99.99%"]);
        assert_eq!(labels(3.0), ["0%", "50%"]);
        let axis = axis(1000.0);
        assert!((axis.place(place(0.99)) - 2.0 * axis.place(place(0.9))).abs() < 1e-9);
    }

    #[test]
    fn every_latency_that_exists_has_a_panel() {
        let figure = figure(&sweep(5)).unwrap();
        assert_eq!(figure.panels.iter().map(|panel| panel.title.as_str()).collect::<Vec<_>>(), ["TTFT", "ITL", "TPOT", "E2E"]);
        assert_eq!(figure.legend.last().unwrap().label, "TTFT SLO p99 < 500 ms");
        assert!(figure.panels[0].marks.contains(&Mark::Dots(vec![(place(0.99), 500.0)], ALARM, 4.5)));
        assert!(super::figure(&sweep(100)).unwrap().subtitle.contains("12 of 100 cases shown"));
        assert_eq!(super::figure(&report_of(vec![no_data()], Default::default(), 3)), None);
    }
}
