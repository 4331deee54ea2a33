//! The chart of a series as SVG: a point per run with a link to its report, the levels, and the changes.

use crate::format::value;
use crate::history::{finding, size};
use llmscen_core::history::{History, HistoryRun, Point, Series};
use minijinja::HtmlEscape;
use std::fmt::Write;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 150.0;
/// Left, right, top and bottom margins.
const MARGINS: [f64; 4] = [58.0, 8.0, 16.0, 18.0];
/// The least span of the vertical axis, as a share of the values: noise must not look like changes.
const MIN_SPAN: f64 = 0.2;
/// With more points on the page, they are a line without links: the list of runs has the links.
const MAX_POINTS: usize = 20_000;

/// Whether the page has few enough points for a link on each.
pub(super) fn fits(history: &History) -> bool {
    let points: usize = history.series.iter().map(|it| it.points.len()).sum();
    points <= MAX_POINTS
}

/// Positions of values.
struct Scale {
    runs: usize,
    low: f64,
    high: f64,
}

impl Scale {
    fn new(history: &History, points: &[Point]) -> Scale {
        let values = || {
            let both = |it: &Point| [Some(it.value), it.bound];
            points.iter().flat_map(both).flatten()
        };
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        let middle = (low + high) / 2.0;
        let half = ((high - low) / 2.0 * 1.1).max(middle.abs() * MIN_SPAN / 2.0);
        // An error rate without errors.
        let half = if half > 0.0 { half } else { 0.005 };
        Scale {
            runs: history.runs.len(),
            low: if low >= 0.0 {
                (middle - half).max(0.0)
            } else {
                middle - half
            },
            high: middle + half,
        }
    }

    fn x(&self, run: f64) -> f64 {
        let [left, right, ..] = MARGINS;
        left + (run + 0.5) / self.runs.max(1) as f64 * (WIDTH - left - right)
    }

    fn y(&self, value: f64) -> f64 {
        let [.., top, bottom] = MARGINS;
        let share = (value - self.low) / (self.high - self.low);
        HEIGHT - bottom - share * (HEIGHT - top - bottom)
    }
}

/// The chart of a series.
pub(super) fn svg(history: &History, series: &Series, has_links: bool) -> String {
    let scale = Scale::new(history, &series.points);
    let mut svg = format!(
        "<svg class=\"trend\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"group\" aria-label=\"{} over the runs\">",
        series.measure
    );
    draw_axes(&mut svg, history, series, &scale);
    draw_points(&mut svg, history, series, &scale, has_links);
    draw_changes(&mut svg, series, &scale);
    svg + "</svg>"
}

fn draw_axes(svg: &mut String, history: &History, series: &Series, scale: &Scale) {
    let [left, right, ..] = MARGINS;
    let unit = series.measure.metric.unit();
    for number in [scale.low, (scale.low + scale.high) / 2.0, scale.high] {
        let y = scale.y(number);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text \
            x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - right,
            left - 5.0,
            y + 4.0,
            HtmlEscape(&value(number, unit))
        );
    }
    let day = |run: Option<&HistoryRun>| {
        run.map(|it| it.date().get(..10).unwrap_or_default().to_owned())
            .unwrap_or_default()
    };
    let mut tick = |x: f64, anchor: &str, text: String| {
        let _ = write!(
            svg,
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>",
            HEIGHT - 4.0,
            HtmlEscape(&text)
        );
    };
    tick(left, "start", day(history.runs.first()));
    if history.runs.len() > 1 {
        tick(WIDTH - right, "end", day(history.runs.last()));
    }
}

fn draw_points(
    svg: &mut String,
    history: &History,
    series: &Series,
    scale: &Scale,
    has_links: bool,
) {
    let valid = series.points.iter().filter(|it| it.valid);
    let line: Vec<String> = valid
        .map(|it| format!("{:.1},{:.1}", scale.x(it.run as f64), scale.y(it.value)))
        .collect();
    let _ = write!(
        svg,
        "<polyline class=\"line\" points=\"{}\"/>",
        line.join(" ")
    );
    for (first, last, level) in series.levels() {
        let y = scale.y(level);
        let _ = write!(
            svg,
            "<line class=\"level\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            scale.x(first as f64 - 0.5),
            scale.x(last as f64 + 0.5)
        );
    }
    let radius = (120.0 / scale.runs as f64).clamp(1.2, 3.0);
    for point in series.points.iter().filter(|_| has_links) {
        draw_point(svg, history, series, point, scale, radius);
    }
}

fn draw_point(
    svg: &mut String,
    history: &History,
    series: &Series,
    point: &Point,
    scale: &Scale,
    radius: f64,
) {
    let Some(run) = history.runs.get(point.run) else {
        return;
    };
    let (x, y) = (scale.x(point.run as f64), scale.y(point.value));
    if let Some(bound) = point.bound {
        let _ = write!(
            svg,
            "<line class=\"bound\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{:.1}\"/>",
            scale.y(bound)
        );
    }
    let labels = run.results.labels.iter();
    let labels: String = labels
        .map(|(name, own)| format!(", {name} {own}"))
        .collect();
    let invalid = if point.valid { "" } else { ", invalid" };
    let title = format!(
        "{}: {}{invalid}{labels}",
        run.date(),
        value(point.value, series.measure.metric.unit())
    );
    let title = HtmlEscape(&title).to_string();
    let class = if point.valid { "" } else { " class=\"out\"" };
    let circle = format!(
        "<circle{class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>{title}</title></circle>"
    );
    let _ = match &run.link {
        Some(link) => write!(
            svg,
            "<a href=\"{}\" aria-label=\"{title}\">{circle}</a>",
            HtmlEscape(link)
        ),
        None => write!(svg, "{circle}"),
    };
}

fn draw_changes(svg: &mut String, series: &Series, scale: &Scale) {
    let [left, right, top, bottom] = MARGINS;
    for change in &series.changes {
        let x = scale.x((change.last + change.first) as f64 / 2.0);
        let room = (left + 24.0, WIDTH - right - 24.0);
        let _ = write!(
            svg,
            "<g class=\"{}\"><line class=\"change\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" \
            y2=\"{:.0}\"/><text class=\"mark\" x=\"{:.1}\" y=\"{:.0}\" \
            text-anchor=\"middle\">{}</text></g>",
            finding(series, change).1.class(),
            HEIGHT - bottom,
            x.clamp(room.0, room.1),
            top - 5.0,
            size(series, change)
        );
    }
}
