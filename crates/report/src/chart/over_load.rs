//! Latency and throughput over load.

use crate::chart::axis::{Axis, TimeUnit, scaled};
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{sample_sizes, subtitle, token_remark};
use crate::chart::style::{ALARM, FAN, INK, MAIN, MUTED, Stroke};
use crate::chart::sweep::{Group, Sweep};
use crate::chart::verdict;
use crate::chart::verdict::{Limit, limits};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report, Series};
use plotters::style::RGBColor;

/// The latencies drawn over load and over throughput.
pub const LATENCIES: [(Metric, &str); 3] = [
    (Metric::Ttft, "TTFT"),
    (Metric::Itl, "ITL"),
    (Metric::E2e, "E2E"),
];

/// The latencies drawn over load: TPOT in place of ITL where only TPOT is limited.
fn latencies(report: &Report) -> [(Metric, &'static str); 3] {
    let is_limited = |metric| !limits(report, metric).is_empty();
    let mut all = LATENCIES;
    if is_limited(Metric::Tpot) && !is_limited(Metric::Itl) {
        all[1] = (Metric::Tpot, "TPOT");
    }
    all
}
/// The percentile bands, the widest first.
const BANDS: [(f64, f64, &str); 3] = [
    (0.05, 0.99, "p5 to p99"),
    (0.10, 0.90, "p10 to p90"),
    (0.25, 0.75, "p25 to p75"),
];
/// A limit beyond this multiple of the data would flatten the curves, so it is omitted.
pub const MAX_LIMIT_RATIO: f64 = 3.0;

/// TTFT, ITL and E2E over load: percentile bands for one group of cases, otherwise a line per group. None without a
/// sweep over load.
pub fn latency_over_load(report: &Report) -> Option<Figure> {
    let sweep = Sweep::from_report(report)?;
    let drawn: Vec<(Panel, Vec<Limit>)> = latencies(report)
        .into_iter()
        .filter_map(|latency| latency_panel(report, &sweep, latency))
        .collect();
    let limits = drawn.iter().flat_map(|(panel, limits)| {
        limits
            .iter()
            .map(|limit| (panel.title.clone(), limit.label.clone()))
    });
    let legend = latency_legend(&sweep, &limits.collect::<Vec<_>>());
    let panels: Vec<Panel> = drawn.into_iter().map(|(panel, _)| panel).collect();
    let sizes = sample_sizes(sweep.cases(), Metric::E2e);
    (!panels.is_empty()).then(|| Figure {
        name: "latency_over_load",
        title: "Latency over load".to_owned(),
        subtitle: subtitle(report, &[sweep.remark.clone(), sizes]),
        legend,
        side: Side::Top,
        columns: panels.len(),
        panels,
    })
}

fn latency_panel(
    report: &Report,
    sweep: &Sweep,
    (metric, title): (Metric, &str),
) -> Option<(Panel, Vec<Limit>)> {
    let mut limits = limits(report, metric);
    let share = main_share(sweep, &limits);
    let shares: &[f64] = if sweep.groups.len() == 1 {
        &[0.05, 0.50, 0.99]
    } else {
        &[0.50, share]
    };
    let quantiles = |group: &Group| {
        shares
            .iter()
            .flat_map(|share| group.quantile(metric, *share))
            .collect::<Series>()
    };
    let observed: Vec<f64> = sweep
        .groups
        .iter()
        .flat_map(quantiles)
        .map(|(_, value)| value)
        .collect();
    let greatest = observed.iter().copied().reduce(f64::max)?;
    limits.retain(|limit| limit.share == share && limit.value <= greatest * MAX_LIMIT_RATIO);
    let values = observed
        .iter()
        .copied()
        .chain(limits.iter().map(|limit| limit.value));
    let unit = TimeUnit::for_values(values.clone());
    let values: Vec<f64> = values.map(|value| value * unit.factor).collect();
    let mut marks = match sweep.groups.as_slice() {
        [only] => percentile_bands(only, metric, unit, share),
        _ => group_lines(sweep, metric, unit, share),
    };
    // Verdicts and confidence bounds are marked at the percentile that an objective limits.
    for (index, group) in sweep.groups.iter().enumerate() {
        let value = |case: &CaseReport| {
            case.distributions
                .get(&metric)?
                .quantile(share)
                .map(|value| value * unit.factor)
        };
        marks.push(whiskers(
            group,
            metric,
            share,
            unit,
            sweep.stroke(index).color,
        ));
        marks.extend(verdict::verdict_marks(group, |case| {
            case.load_value.zip(value(case))
        }));
        let highest = group.max_load().and_then(|at| group.cases.get(at));
        let highest = highest.and_then(|case| case.load_value.zip(value(case)));
        marks.push(max_mark(highest));
    }
    marks.extend(
        limits
            .iter()
            .map(|limit| Mark::HorizontalLine(limit.value * unit.factor, Stroke::limit())),
    );
    Some((
        Panel {
            title: title.to_owned(),
            x: sweep.x(),
            y: Axis::fit(unit.name, &values, 30.0),
            marks,
        },
        limits,
    ))
}

/// The percentile that verdicts are about: that of the first objective, else the median of bands or the p99 of groups.
fn main_share(sweep: &Sweep, limits: &[Limit]) -> f64 {
    let default = if sweep.groups.len() == 1 { 0.50 } else { 0.99 };
    limits.first().map_or(default, |limit| limit.share)
}

/// The confidence bounds of an objective on this percentile.
fn whiskers(group: &Group, metric: Metric, share: f64, unit: TimeUnit, color: RGBColor) -> Mark {
    let whisker = |case: &&CaseReport| {
        let mut verdicts = case.verdicts.iter();
        let verdict =
            verdicts.find(|it| verdict::quantile_of(&it.check.subject, metric) == Some(share))?;
        let ends = (
            verdict.observed? * unit.factor,
            verdict.bound? * unit.factor,
        );
        (ends.0.is_finite() && ends.1.is_finite()).then_some((case.load_value?, ends.0, ends.1))
    };
    Mark::Whiskers(group.cases.iter().filter_map(whisker).collect(), color)
}

/// A mark at the highest load up to which every objective passes.
fn max_mark(at: Option<(f64, f64)>) -> Mark {
    Mark::Rings(at.into_iter().collect(), INK, 9.0)
}

const MAX_LABEL: &str = "highest load up to which every objective passes";

/// Percentile bands around the median, and the line of a limited percentile.
fn percentile_bands(group: &Group, metric: Metric, unit: TimeUnit, share: f64) -> Vec<Mark> {
    let quantile = |share| scaled(&group.quantile(metric, share), 1.0, unit.factor);
    let band = |((low, high, _), color): (&(f64, f64, &str), _)| {
        let points = quantile(*low)
            .into_iter()
            .zip(quantile(*high))
            .map(|((x, low), (_, high))| (x, low, high))
            .collect();
        Mark::Area(points, color)
    };
    let median = with_dots(quantile(0.50), Stroke::solid(MAIN), group.cases.len());
    let limited =
        (share != 0.50).then(|| with_dots(quantile(share), Stroke::solid(INK), group.cases.len()));
    let bands = BANDS.iter().zip(FAN).map(band);
    bands
        .chain(median)
        .chain(limited.into_iter().flatten())
        .collect()
}

fn group_lines(sweep: &Sweep, metric: Metric, unit: TimeUnit, share: f64) -> Vec<Mark> {
    let lines = |(index, group): (usize, &Group)| {
        let stroke = sweep.stroke(index);
        [(share, stroke), (0.50, faint(stroke))].map(|(share, stroke)| {
            with_dots(
                scaled(&group.quantile(metric, share), 1.0, unit.factor),
                stroke,
                sweep.cases().count(),
            )
        })
    };
    sweep
        .groups
        .iter()
        .enumerate()
        .flat_map(lines)
        .flatten()
        .collect()
}

/// A line, with a dot at each value unless there are many.
pub fn with_dots(points: Series, stroke: Stroke, cases: usize) -> impl Iterator<Item = Mark> {
    let dots = (cases <= 40).then(|| Mark::Dots(points.clone(), stroke.color, 3.0));
    std::iter::once(Mark::Line(points, stroke)).chain(dots)
}

fn faint(stroke: Stroke) -> Stroke {
    Stroke {
        width: 1.5,
        dash: Some((4.0, 3.0)),
        ..stroke
    }
}

fn latency_legend(sweep: &Sweep, limits: &[(String, String)]) -> Vec<Entry> {
    let line = |label: &str, stroke| Entry::new(label, Swatch::Line(stroke));
    let mut entries: Vec<Entry> = if sweep.groups.len() == 1 {
        let bands = BANDS
            .iter()
            .zip(FAN)
            .rev()
            .map(|((_, _, label), color)| Entry::new(*label, Swatch::Shade(color)));
        std::iter::once(line("median", Stroke::solid(MAIN)))
            .chain(bands)
            .collect()
    } else {
        let groups = sweep
            .groups
            .iter()
            .enumerate()
            .map(|(index, group)| line(&group.label, sweep.stroke(index)));
        let solid = if limits.is_empty() {
            "p99"
        } else {
            "percentile of the objective, or p99"
        };
        groups
            .chain([
                line(solid, Stroke::solid(MUTED)),
                line("p50", faint(Stroke::solid(MUTED))),
            ])
            .collect()
    };
    if sweep.groups.len() == 1 && !limits.is_empty() {
        entries.push(line("percentile of the objective", Stroke::solid(INK)));
    }
    entries.extend(verdict::verdict_legend(sweep, true));
    if !limits.is_empty() {
        entries.push(Entry::new(
            "confidence bound of the objective",
            Swatch::Whisker(MUTED),
        ));
    }
    entries.extend(max_entry(sweep));
    let limit =
        |(panel, label): &(String, String)| line(&format!("{panel} {label}"), Stroke::limit());
    entries.extend(limits.iter().map(limit));
    entries
}

/// The legend of [`max_mark`].
fn max_entry(sweep: &Sweep) -> Option<Entry> {
    let has_max = sweep.groups.iter().any(|group| group.max_load().is_some());
    has_max.then(|| Entry::new(MAX_LABEL, Swatch::Ring(INK)))
}

const THROUGHPUTS: [(Metric, &str, &str); 3] = [
    (Metric::OutputTps, "Output tokens", "tok/s"),
    (Metric::RequestThroughput, "Successful requests", "req/s"),
    (Metric::GoodputRate, "Goodput", "req/s"),
];

/// Tokens and requests per second over load; None without a sweep over load.
pub fn throughput_over_load(report: &Report) -> Option<Figure> {
    let sweep = Sweep::from_report(report)?;
    let panels: Vec<Panel> = THROUGHPUTS
        .iter()
        .filter_map(|(metric, title, unit)| throughput_panel(&sweep, *metric, (title, unit)))
        .collect();
    (!panels.is_empty()).then(|| Figure {
        name: "throughput_over_load",
        title: "Throughput over load".to_owned(),
        subtitle: subtitle(report, &[sweep.remark.clone(), token_remark(report)]),
        legend: throughput_legend(&sweep),
        side: Side::Top,
        columns: panels.len(),
        panels,
    })
}

fn throughput_panel(sweep: &Sweep, metric: Metric, (title, unit): (&str, &str)) -> Option<Panel> {
    let lines: Vec<_> = sweep
        .groups
        .iter()
        .map(|group| group.points(|case| case.scalars.get(&metric).copied()))
        .collect();
    let greatest = lines.iter().flatten().map(|(_, y)| *y).reduce(f64::max)?;
    let mut marks = Vec::new();
    if is_open_loop(sweep) && metric == Metric::RequestThroughput {
        let offered =
            sweep.groups[0].points(|case| case.load_value.filter(|rate| *rate <= greatest * 1.5));
        marks.push(Mark::Line(offered, Stroke::dashed(MUTED)));
    }
    let reach = marks.iter().filter_map(|mark| {
        if let Mark::Line(points, _) = mark {
            points.last()
        } else {
            None
        }
    });
    let y = Axis::from_zero(
        unit,
        reach.map(|(_, y)| *y).chain([greatest]).collect::<Vec<_>>(),
    );
    for (index, points) in lines.into_iter().enumerate() {
        let stroke = sweep.stroke(index);
        marks.push(Mark::Line(points.clone(), stroke));
        if sweep.cases().count() <= 40 {
            marks.push(Mark::Dots(points, stroke.color, 3.0));
        }
    }
    for group in &sweep.groups {
        marks.extend(
            verdict::verdict_marks(group, |case| {
                case.load_value.zip(case.scalars.get(&metric).copied())
            })
            .into_iter()
            .filter(is_not_failure_ring),
        );
        let highest = group.max_load().and_then(|at| group.cases.get(at));
        let value = |case: &CaseReport| case.scalars.get(&metric).copied();
        marks.push(max_mark(
            highest.and_then(|case| case.load_value.zip(value(case))),
        ));
    }
    Some(Panel {
        title: title.to_owned(),
        x: sweep.x(),
        y,
        marks,
    })
}

/// Failed objectives are rarely about throughput, so only invalid cases are marked.
fn is_not_failure_ring(mark: &Mark) -> bool {
    !matches!(mark, Mark::Rings(_, color, _) if *color == ALARM)
}

/// An open loop has an offered rate, which is drawn for comparison.
fn is_open_loop(sweep: &Sweep) -> bool {
    sweep.axis == "rate"
}

fn throughput_legend(sweep: &Sweep) -> Vec<Entry> {
    let mut entries: Vec<Entry> = match sweep.groups.len() {
        1 => Vec::new(),
        _ => sweep
            .groups
            .iter()
            .enumerate()
            .map(|(index, group)| Entry::new(&group.label, Swatch::Line(sweep.stroke(index))))
            .collect(),
    };
    if is_open_loop(sweep) {
        entries.push(Entry::new(
            "offered rate",
            Swatch::Line(Stroke::dashed(MUTED)),
        ));
    }
    entries.extend(verdict::verdict_legend(sweep, false));
    entries.extend(max_entry(sweep));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{grid, sweep};

    #[test]
    fn one_group_has_percentile_bands_of_three_metrics() {
        let figure = latency_over_load(&sweep(12)).unwrap();
        let titles: Vec<&str> = figure
            .panels
            .iter()
            .map(|panel| panel.title.as_str())
            .collect();
        assert_eq!(titles, ["TTFT", "ITL", "E2E"]);
        let bands: Vec<&Vec<(f64, f64, f64)>> = figure.panels[0]
            .marks
            .iter()
            .filter_map(|mark| {
                if let Mark::Area(p, _) = mark {
                    Some(p)
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(
            bands.iter().map(|band| band.len()).collect::<Vec<_>>(),
            [12, 12, 12]
        );
        assert!(
            bands[0]
                .iter()
                .zip(bands[2])
                .all(|(wide, narrow)| wide.1 <= narrow.1 && narrow.2 <= wide.2)
        );
        assert_eq!(figure.panels[2].y.title, "s");
        assert_eq!(
            figure.subtitle,
            "chat  ·  12 cases  ·  n = 240 requests per case"
        );
    }

    #[test]
    fn a_limit_is_drawn_in_the_panel_of_its_metric_if_it_is_near_the_data() {
        let level = |panel: &Panel| {
            panel
                .marks
                .iter()
                .any(|mark| *mark == Mark::HorizontalLine(500.0, Stroke::limit()))
        };
        let near = latency_over_load(&sweep(12)).unwrap();
        assert_eq!(
            near.panels.iter().map(level).collect::<Vec<_>>(),
            [true, false, false]
        );
        assert_eq!(near.legend.last().unwrap().label, "TTFT SLO p99 < 500 ms");
        let far = latency_over_load(&sweep(2)).unwrap();
        assert!(!far.panels.iter().any(level) && far.legend.len() == 4);
    }

    #[test]
    fn groups_are_lines_of_two_quantiles() {
        let figure = latency_over_load(&grid(2)).unwrap();
        let lines = figure.panels[1]
            .marks
            .iter()
            .filter(|mark| matches!(mark, Mark::Line(..)))
            .count();
        assert_eq!(
            (lines, figure.legend[1].label.as_str()),
            (4, "max_tokens=256")
        );
    }

    #[test]
    fn it_is_not_drawn_without_a_sweep() {
        assert_eq!(latency_over_load(&sweep(1)), None);
    }

    #[test]
    fn an_open_loop_shows_the_offered_rate() {
        let mut report = sweep(12);
        assert_eq!(throughput_over_load(&report).unwrap().legend, []);
        for case in &mut report.cases {
            case.load_axis = "rate";
        }
        let figure = throughput_over_load(&report).unwrap();
        assert_eq!(figure.legend.len(), 1);
        assert_eq!(figure.panels[1].x.title, "offered rate (req/s)");
        let Mark::Line(offered, stroke) = &figure.panels[1].marks[0] else {
            panic!()
        };
        assert!(offered.iter().all(|(x, y)| x == y) && stroke.dash.is_some());
    }
}
