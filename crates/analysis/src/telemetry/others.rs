//! Values that are not signals. They are recorded only when they change.

use super::RoundTelemetry;
use llmscen_core::check::{PageMetric, PageStat};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{OtherStat, Source, TelemetrySample, WorkerLabels};
use std::collections::{BTreeMap, BTreeSet};

/// Start and end in nanoseconds after the start of the round's clock.
type Span = (i64, i64);

/// Totals of a value over the measured windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    is_counter: bool,
    /// Number of values.
    n: u64,
    min: f64,
    max: f64,
    /// Sum of each value times its seconds.
    area: f64,
    /// Increase of a counter.
    pub increase: f64,
    seconds: f64,
}

/// The first reading of a name, and all its times and values.
type NamedValues<'a> = (&'a TelemetrySample, Vec<(i64, f64)>);

/// Gauges, and counters that increased, by name with labels. A value lasts until the next one, so the mean is
/// weighted by time; a deviation or quantile of values that are recorded on change has no meaning. Histogram buckets,
/// `_info` and `_created` values are left out.
pub(super) fn others(rounds: &[RoundTelemetry<'_>]) -> BTreeMap<String, OtherStat> {
    let mut totals: BTreeMap<String, Totals> = BTreeMap::new();
    for round in rounds {
        let readings = || {
            round
                .recorded
                .readings
                .iter()
                .filter(|reading| reading.value.is_finite())
        };
        let names: BTreeSet<&str> = readings().map(|reading| &*reading.name).collect();
        let mut spans: BTreeMap<Source, Option<Span>> = BTreeMap::new();
        let mut by_name: BTreeMap<String, NamedValues<'_>> = BTreeMap::new();
        for reading in readings()
            .filter(|reading| Signal::parse(&reading.name).is_none() && is_numeric(reading))
        {
            by_name
                .entry(labelled_name(reading))
                .or_insert((reading, Vec::new()))
                .1
                .push((reading.at_ns, reading.value));
        }
        for (name, (reading, mut values)) in by_name {
            let Some(span) = *spans
                .entry(reading.source)
                .or_insert_with(|| read_span(round, reading.source))
            else {
                continue;
            };
            values.sort_by_key(|(at, _)| *at);
            let Some(new) = totals_over(&values, span, is_counter(&reading.name, &names)) else {
                continue;
            };
            totals
                .entry(name)
                .and_modify(|old| *old = add(*old, new))
                .or_insert(new);
        }
    }
    totals
        .into_iter()
        .filter_map(|(name, totals)| Some((name, summarize(totals)?)))
        .collect()
}

/// A metric of the server's page over the measured windows, and the number of its values; None without a value.
///
/// A counter that is absent from the first page of its worker and appears later was 0 until then. After the last
/// page of a worker its values are unknown.
pub(crate) fn page_figure(
    rounds: &[RoundTelemetry<'_>],
    wanted: &PageMetric,
) -> Option<(f64, u64)> {
    let is_rate = wanted.stat == PageStat::Rate;
    let mut totals: BTreeMap<&str, Totals> = BTreeMap::new();
    for round in rounds {
        let of_source = |source: Source| {
            let readings = round.recorded.readings.iter();
            readings.filter(move |reading| reading.source == source && reading.value.is_finite())
        };
        let has_query = of_source(Source::Query).any(|reading| *reading.name == *wanted.name);
        let source = if has_query {
            Source::Query
        } else {
            Source::Prometheus
        };
        let worker = |reading: &TelemetrySample| {
            WorkerLabels::split(&reading.labels)
                .0
                .map(|worker| worker.to_string())
        };
        // The time of the first page of each worker, and of the request after which no page came.
        let mut pages: BTreeMap<Option<String>, Span> = BTreeMap::new();
        let mut ups: Vec<_> = of_source(source)
            .filter(|reading| &*reading.name == "up")
            .collect();
        ups.sort_by_key(|up| up.at_ns);
        for up in ups {
            if up.value == 1.0 {
                pages.entry(worker(up)).or_insert((up.at_ns, i64::MAX)).1 = i64::MAX;
            } else if let Some((_, end)) = pages.get_mut(&worker(up)) {
                *end = (*end).min(up.at_ns);
            }
        }
        let mut series: BTreeMap<&str, Vec<(i64, f64)>> = BTreeMap::new();
        let mut pages_of: BTreeMap<&str, Span> = BTreeMap::new();
        for reading in of_source(source).filter(|reading| is_wanted(reading, wanted)) {
            let values = series.entry(&reading.labels).or_insert_with(|| {
                let span = pages.get(&worker(reading));
                pages_of.extend(span.map(|span| (&*reading.labels, *span)));
                Vec::new()
            });
            values.push((reading.at_ns, reading.value));
        }
        let Some(span) = read_span(round, source) else {
            continue;
        };
        for (labels, mut values) in series {
            values.sort_by_key(|(at, _)| *at);
            let pages = pages_of.get(labels);
            let start = pages
                .map(|(first, _)| *first)
                .filter(|first| is_rate && values.first().is_some_and(|(at, _)| at > first));
            if let Some(start) = start {
                values.insert(0, (start, 0.0));
            }
            // What a page that stopped answering would show is unknown.
            let (from, until) = span;
            let until = pages.map_or(until, |(_, end)| until.min(*end));
            let Some(new) = totals_over(&values, (from, until), is_rate) else {
                continue;
            };
            totals
                .entry(labels)
                .and_modify(|old| *old = add(*old, new))
                .or_insert(new);
        }
    }
    let all = totals.values();
    let count = all.len() as f64;
    let value = match wanted.stat {
        _ if totals.is_empty() => None,
        PageStat::Rate => all
            .map(|totals| (totals.seconds > 0.0).then(|| totals.increase / totals.seconds))
            .sum(),
        PageStat::Mean => all
            .map(mean_over_time)
            .sum::<Option<f64>>()
            .map(|sum: f64| sum / count),
        PageStat::Min => all.map(|totals| totals.min).reduce(f64::min),
        PageStat::Max => all.map(|totals| totals.max).reduce(f64::max),
    };
    Some((value?, totals.values().map(|totals| totals.n).sum()))
}

fn is_wanted(reading: &TelemetrySample, wanted: &PageMetric) -> bool {
    let has_label = |(name, value): &(String, String)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        let pair = format!("{name}=\"{value}\"");
        let starts = |at: usize| reading.labels[..at].trim_end().ends_with(',');
        reading
            .labels
            .match_indices(&pair)
            .any(|(at, _)| at == 0 || starts(at))
    };
    wanted.has_name(&reading.name) && wanted.labels.iter().all(has_label)
}

fn labelled_name(reading: &TelemetrySample) -> String {
    let device = reading.device.map(|device| format!("gpu={device}"));
    let labels: Vec<&str> = [&*reading.labels]
        .into_iter()
        .filter(|labels| !labels.is_empty())
        .chain(device.as_deref())
        .collect();
    if labels.is_empty() {
        reading.name.to_string()
    } else {
        format!("{}{{{}}}", reading.name, labels.join(","))
    }
}

/// Whether it is not a histogram bucket, a creation time or a list of labels.
fn is_numeric(reading: &TelemetrySample) -> bool {
    let (name, labels) = (&*reading.name, &*reading.labels);
    let is_bucket = labels
        .split(',')
        .any(|label| label.trim_start().starts_with("le="));
    !is_bucket
        && !["_bucket", "_info", "_created"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// Whether it is a counter: by its suffix, or as the sum or the count of a histogram or summary, which has both.
fn is_counter(name: &str, names: &BTreeSet<&str>) -> bool {
    let both = |base: &str| {
        ["_sum", "_count"]
            .iter()
            .all(|end| names.contains(format!("{base}{end}").as_str()))
    };
    name.ends_with("_total")
        || name
            .strip_suffix("_sum")
            .or_else(|| name.strip_suffix("_count"))
            .is_some_and(both)
}

/// From the first to the last scrape of a source in the window, by its signals, which are recorded at every scrape;
/// the whole window for a source without signals. None without a scrape in it.
fn read_span(round: &RoundTelemetry<'_>, source: Source) -> Option<Span> {
    let window = round.window;
    let is_signal = |reading: &&TelemetrySample| {
        reading.source == source && Signal::parse(&reading.name).is_some()
    };
    let times: BTreeSet<i64> = round
        .recorded
        .readings
        .iter()
        .filter(is_signal)
        .map(|reading| reading.at_ns)
        .collect();
    if times.is_empty() {
        return Some((window.from, window.until));
    }
    let mut within = times.range(window.from..=window.until.max(window.from));
    let first = *within.next()?;
    Some((first, within.next_back().copied().unwrap_or(first)))
}

/// The totals over a span, from the first known value; None where that is after the span.
pub(super) fn totals_over(
    values: &[(i64, f64)],
    (from, until): Span,
    is_counter: bool,
) -> Option<Totals> {
    let ends = values.iter().skip(1).map(|(at, _)| *at).chain([i64::MAX]);
    let within = values
        .iter()
        .zip(ends)
        .filter(|((at, _), end)| *at <= until && *end > from);
    let known: Vec<((i64, f64), i64)> = within.map(|(value, end)| (*value, end)).collect();
    let pieces = known.iter().map(|((at, value), end)| {
        let seconds = ((*end).min(until) - (*at).max(from)).max(0) as f64 / 1e9;
        Totals {
            is_counter,
            n: 1,
            min: *value,
            max: *value,
            area: value * seconds,
            increase: 0.0,
            seconds,
        }
    });
    // A counter that decreased was reset: its increase there is unknown.
    let steps = known
        .windows(2)
        .filter_map(|pair| Some(pair.last()?.0.1 - pair.first()?.0.1));
    // The sum of no numbers is -0.0.
    let increase = steps
        .filter(|step| *step > 0.0)
        .fold(0.0, |sum, step| sum + step);
    pieces
        .reduce(add)
        .map(|totals| Totals { increase, ..totals })
}

fn add(a: Totals, b: Totals) -> Totals {
    Totals {
        is_counter: a.is_counter,
        n: a.n + b.n,
        min: a.min.min(b.min),
        max: a.max.max(b.max),
        area: a.area + b.area,
        increase: a.increase + b.increase,
        seconds: a.seconds + b.seconds,
    }
}

/// The mean weighted by time; of values at one instant, the value if there is only one.
fn mean_over_time(totals: &Totals) -> Option<f64> {
    // Rounding must not move the mean of equal values off them.
    let mean = || {
        (totals.area / totals.seconds)
            .max(totals.min)
            .min(totals.max)
    };
    (totals.seconds > 0.0)
        .then(mean)
        .or_else(|| (totals.min == totals.max).then_some(totals.min))
}

/// None for a counter that did not increase.
fn summarize(totals: Totals) -> Option<OtherStat> {
    let per_second = |part: f64| (totals.seconds > 0.0).then(|| part / totals.seconds);
    if totals.is_counter {
        return per_second(totals.increase)
            .filter(|increase| *increase > 0.0)
            .map(OtherStat::Growth);
    }
    Some(OtherStat::Level {
        n: totals.n,
        mean: mean_over_time(&totals),
        min: totals.min,
        max: totals.max,
    })
}

#[cfg(test)]
mod tests;
