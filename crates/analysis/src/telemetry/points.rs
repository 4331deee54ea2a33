//! Gauges, rates and ratios: samples, and their statistics over the windows.

use super::Window;
use super::line::{Line, Moment};
use llmscen_core::signal::{Form, Signal};
use llmscen_core::stats::moments;
use llmscen_core::telemetry::SignalStat;

/// One sample: a value at an instant, or the growth between two neighbouring ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Where it begins: `at` of a gauge, the earlier reading of a pair.
    pub from: i64,
    pub at: i64,
    /// What is above the line: the value of a gauge, the growth of a count.
    part: f64,
    /// What is below it: 1, seconds, or the growth of the other count.
    whole: f64,
}

impl Point {
    /// None where nothing is below the line.
    pub fn value(&self) -> Option<f64> {
        (self.whole > 0.0).then(|| self.part / self.whole)
    }
}

/// The samples of a signal in a round, those outside of its window among them.
pub(super) fn of(signal: Signal, line: &Line<'_>) -> Vec<Point> {
    match signal.form() {
        Form::Gauge => line.whole().into_iter().filter_map(|instant| gauge(instant.at, combined(signal, instant))).collect(),
        Form::Rate => pairs(&line.whole()).filter_map(|(a, b)| rate(a, b)).collect(),
        Form::Ratio => ratios(line),
        Form::Histogram => Vec::new(),
    }
}

fn gauge(at: i64, value: Option<f64>) -> Option<Point> {
    value.map(|value| Point { from: at, at, part: value, whole: 1.0 })
}

fn pairs<'l, 'a>(instants: &'l [&'l Moment<'a>]) -> impl Iterator<Item = (&'l Moment<'a>, &'l Moment<'a>)> {
    instants.windows(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?)))
}

/// Several devices, or engines, as one value.
fn combined(signal: Signal, instant: &Moment<'_>) -> Option<f64> {
    let values = || instant.values.values().copied();
    match signal {
        Signal::GpuClock | Signal::GpuMemoryClock => values().reduce(f64::min),
        Signal::GpuTemperature => values().reduce(f64::max),
        Signal::GpuUtilization | Signal::GpuMemoryUtilization | Signal::GpuThrottled | Signal::ServerKvCacheUsage => {
            moments::mean(&values().collect::<Vec<_>>())
        }
        _ => values().reduce(|a, b| a + b),
    }
}

/// The growth of all counts between two readings; None where one fell, since it began anew, or is not in both.
fn rate(a: &Moment<'_>, b: &Moment<'_>) -> Option<Point> {
    let grown = b.values.iter().map(|(key, after)| a.values.get(key).map(|before| after - before).filter(|grown| *grown >= 0.0));
    let part = grown.sum::<Option<f64>>()?;
    Some(Point { from: a.at, at: b.at, part, whole: (b.at - a.at) as f64 / 1e9 })
}

/// Of counts, or of a server that tells the share itself.
fn ratios(line: &Line<'_>) -> Vec<Point> {
    let both = |own: &&Moment<'_>| own.labelled("part").is_some() && own.labelled("whole").is_some();
    let counted: Vec<&Moment<'_>> = line.0.iter().filter(both).collect();
    if counted.is_empty() {
        return line.0.iter().filter_map(|own| gauge(own.at, own.labelled("value"))).collect();
    }
    let grown =
        |label: &str, a: &Moment<'_>, b: &Moment<'_>| Some(b.labelled(label)? - a.labelled(label)?).filter(|own| *own >= 0.0);
    let point = |(a, b): (&Moment<'_>, &Moment<'_>)| {
        Some(Point { from: a.at, at: b.at, part: grown("part", a, b)?, whole: grown("whole", a, b)? })
    };
    pairs(&counted).filter_map(point).collect()
}

/// Why there is no sample within the windows; None where nobody could have expected one.
fn lacking(signal: Signal, lines: &[(Line<'_>, Window)], points: &[Point]) -> Option<String> {
    // A server that does not speculate counts no draft.
    let drafts = || lines.iter().flat_map(|(line, _)| &line.0).any(|own| own.labelled("whole").is_none_or(|whole| whole > 0.0));
    if signal == Signal::ServerSpecAcceptRate && !drafts() {
        return None;
    }
    if signal.form() == Form::Ratio && !points.is_empty() {
        return Some("nothing that it is a share of grew in the measured windows".to_owned());
    }
    let within =
        |(line, window): &(Line<'_>, Window)| line.0.iter().filter(|own| (window.from..=window.until).contains(&own.at)).count();
    if lines.iter().any(|own| within(own) > 1) {
        return Some("too few readings lie within the measured windows".to_owned());
    }
    let longest = lines.iter().map(|(_, window)| window.until - window.from).max().unwrap_or(0) as f64 / 1e9;
    let longest = (longest * 1000.0).round() / 1000.0;
    let what = format!("the longest measured window, of {longest} s, holds fewer than two readings");
    Some(format!("{what}: lower `target.metrics.interval` or `telemetry.interval`, or measure longer"))
}

/// Over the samples that lie within the windows, pairs with both of their ends. The mean of a rate, or of a ratio, is the growth
/// of all pairs over their time, or over the growth of the other count, so that pairs of unequal weight do not mislead. Without
/// a sample, why; None where that is no news.
pub(super) fn stat(signal: Signal, lines: &[(Line<'_>, Window)]) -> Result<SignalStat, Option<String>> {
    let inside = |(line, window): &(Line<'_>, Window)| {
        let within = |point: &Point| point.from >= window.from && point.at <= window.until;
        of(signal, line).into_iter().filter(within).collect::<Vec<_>>()
    };
    let points: Vec<Point> = lines.iter().flat_map(inside).collect();
    let values: Vec<f64> = points.iter().filter_map(Point::value).collect();
    let whole: f64 = points.iter().map(|point| point.whole).sum();
    if values.is_empty() {
        return Err(lacking(signal, lines, &points));
    }
    Ok(SignalStat {
        n: values.len() as u64,
        mean: Some(points.iter().map(|point| point.part).sum::<f64>() / whole),
        min: values.iter().copied().reduce(f64::min),
        max: values.iter().copied().reduce(f64::max),
        sd: moments::sd(&values),
        values,
        buckets: Vec::new(),
    })
}
