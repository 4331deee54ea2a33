//! The change of every measure with its interval, a panel a case: what crosses the line at no change may be noise.

use crate::chart::axis::Axis;
use crate::chart::compare::NAMES;
use crate::chart::compare::{ROOM, cases, subtitle, title};
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::style::{ALARM, INK, MUTED, Stroke, category};
use crate::format::percent;
use llmscen_core::compare::{Comparison, Contrast, Finding, Span};
use plotters::style::RGBColor;

/// Rows that a panel has height for.
const ROWS: usize = 14;
/// The farthest that the axis reaches: four times as much, or as little.
const REACH: f64 = 4.0;
/// Ratios that get a tick, where they lie on the axis.
const TICKS: [f64; 17] = [0.25, 0.333_333_333, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1.6, 2.0, 3.0, 4.0];

/// The chart of a run against the base; None where nothing has an interval.
pub fn figure(comparison: &Comparison, run: usize) -> Option<Figure> {
    let own: Vec<(&Contrast, Span)> = comparison
        .contrasts
        .iter()
        .filter(|own| own.run == run)
        .filter_map(|own| Some((own, own.ratio.filter(sound)?)))
        .collect();
    let mut ids: Vec<String> = own.iter().map(|(own, _)| own.case.clone()).collect();
    ids.dedup();
    let (kept, remark) = cases(comparison, &ids, ROOM);
    let drawn = || own.iter().filter(|(own, _)| kept.contains(&own.case));
    let x = axis(comparison, drawn().map(|(_, span)| *span))?;
    let of = |id: &String| own.iter().filter(|(own, _)| own.case == *id).take(ROWS).copied().collect::<Vec<_>>();
    let panels: Vec<Panel> = kept.iter().map(|id| panel(comparison, id, &of(id), &x, kept.len())).collect();
    let left = kept.iter().any(|id| own.iter().filter(|(own, _)| own.case == *id).count() > ROWS);
    let left = if left { format!("the first {ROWS} measures of each case") } else { String::new() };
    let arrows =
        if drawn().any(|(_, span)| beyond(span, &x)) { "an arrow: it goes on beyond the edge".to_owned() } else { String::new() };
    let label = comparison.sides.get(run).map(String::as_str).unwrap_or_default();
    Some(Figure {
        name: NAMES.get(run - 1).copied()?,
        title: format!("Change of {label} against A, with its {} interval", percent(comparison.confidence)),
        subtitle: subtitle(comparison, &[remark, left, arrows]),
        legend: legend(comparison),
        side: Side::Top,
        columns: panels.len().clamp(1, 3),
        panels,
    })
}

fn sound(span: &Span) -> bool {
    [span.low, span.value, span.high].iter().all(|own| own.is_finite() && *own > 0.0)
}

/// Logarithmic around no change, so that half and double are equally far; in its ticks the change.
fn axis(comparison: &Comparison, spans: impl Iterator<Item = Span>) -> Option<Axis> {
    let limits = [1.0 - comparison.max_regression, 1.0 + comparison.max_regression];
    let all: Vec<f64> = spans.flat_map(|own| [own.low, own.high]).collect();
    let reach = |value: f64| value.max(1e-9).ln().abs();
    let far = all.iter().copied().map(reach).reduce(f64::max)?.max(reach(limits[1])).clamp(0.03, REACH.ln()) * 1.08;
    let (low, high) = ((-far).exp(), far.exp());
    let ticks = TICKS.iter().filter(|tick| (low..=high).contains(*tick)).map(|&tick| (tick, told(tick)));
    Some(Axis { title: "change".into(), low, high, log: true, ticks: ticks.collect() })
}

fn told(ratio: f64) -> String {
    match ((ratio - 1.0) * 100.0).round() {
        0.0 => "0".to_owned(),
        change => format!("{change:+.0}%"),
    }
}

/// An interval and its value at a height; an arrow at each edge beyond which it goes on.
fn interval(span: &Span, y: f64, x: &Axis, color: RGBColor) -> Vec<Mark> {
    let within = |value: f64| value.clamp(x.low, x.high);
    let mut marks = vec![Mark::Line(vec![(within(span.low), y), (within(span.high), y)], Stroke::solid(color))];
    if (x.low..=x.high).contains(&span.value) {
        marks.push(Mark::Dots(vec![(span.value, y)], color, 4.0));
    }
    let depth = (x.high / x.low).powf(0.025);
    let arrow = |at: f64, back: f64| Mark::Line(vec![(back, y + 0.2), (at, y), (back, y - 0.2)], Stroke::solid(color));
    marks.extend((span.low < x.low).then(|| arrow(x.low, x.low * depth)));
    marks.extend((span.high > x.high).then(|| arrow(x.high, x.high / depth)));
    marks
}

/// Whether an interval goes on beyond the axis.
fn beyond(span: &Span, x: &Axis) -> bool {
    span.low < x.low || span.high > x.high
}

fn panel(comparison: &Comparison, id: &str, own: &[(&Contrast, Span)], x: &Axis, panels: usize) -> Panel {
    let rows = own.len() as f64;
    let at = |index: usize| rows - index as f64 - 0.5;
    let mut ticks: Vec<(f64, String)> =
        own.iter().enumerate().map(|(index, (own, _))| (at(index), own.measure.to_string())).collect();
    ticks.reverse();
    let mut marks = vec![Mark::Upright(1.0, Stroke::solid(INK).thin())];
    let limit = comparison.max_regression;
    if limit > 0.0 && limit < 1.0 {
        marks.extend([1.0 - limit, 1.0 + limit].map(|at| Mark::Upright(at, Stroke::dashed(MUTED))));
    }
    for (index, (own, span)) in own.iter().enumerate() {
        let (y, color) = (at(index), tint(own.finding));
        marks.extend(interval(span, y, x, color));
    }
    let title = if panels == 1 && id == "base" { String::new() } else { title(comparison, id) };
    Panel { title, x: x.clone(), y: Axis { title: String::new(), low: 0.0, high: rows.max(1.0), log: false, ticks }, marks }
}

fn tint(finding: Finding) -> RGBColor {
    match finding {
        Finding::Regression => ALARM,
        Finding::Within => category(1, 6),
        Finding::Better => category(2, 6),
        Finding::Noise | Finding::Unknown => MUTED,
    }
}

fn legend(comparison: &Comparison) -> Vec<Entry> {
    let there = |finding: &Finding| comparison.count(*finding) > 0;
    let of = |finding: Finding| {
        let word = if finding == Finding::Noise { "no more than noise" } else { finding.name() };
        Entry::new(word.to_lowercase(), Swatch::Dot(tint(finding)))
    };
    let all = [Finding::Regression, Finding::Within, Finding::Better, Finding::Noise];
    let limit = Entry::new(format!("{} either way", percent(comparison.max_regression)), Swatch::Line(Stroke::dashed(MUTED)));
    let limit = (comparison.max_regression > 0.0 && comparison.max_regression < 1.0).then_some(limit);
    all.into_iter().filter(there).map(of).chain(limit).collect()
}
