//! The telemetry of a case: its file, and the statistics of its signals over the measured windows.
//!
//! Of several sources of a signal the first in the order of [`Source`] is used: a DCGM exporter is configured for a
//! target, the driver on this machine is not.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::{Round, cancelled_by_stop, rounds};
use crate::table::Table;
use llmscen_core::report::{Series, Telemetry};
use llmscen_core::signal::{Form, Signal};
use llmscen_core::stats::moments;
use llmscen_core::telemetry::{SignalStat, Source, TelemetryRecord, WorkerLabels};
use std::collections::{BTreeMap, BTreeSet};

mod codec;
mod histogram;
mod others;
mod workers;

pub(crate) use others::page_figure;
pub use workers::EngineTokens;
pub(crate) use workers::{engine_tokens, imbalance, roles};

pub use codec::{read, write};

/// The measured window of a round, in nanoseconds after the start of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub from: i64,
    pub until: i64,
}

/// The telemetry of one round of a case with its measured window.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTelemetry<'a> {
    pub recorded: &'a TelemetryRecord,
    pub window: Window,
}

/// Summarizes the telemetry of a case, or of one of its stages.
pub fn summarize(table: &Table, facts: &CaseFacts<'_>) -> Telemetry {
    let rows: Vec<RequestRow<'_>> = table
        .rows_of_case(&facts.case.id)
        .into_iter()
        .filter(|row| !cancelled_by_stop(row, facts))
        .collect();
    let rounds = rounds(&rows, facts);
    let of_rounds = round_telemetry(table, facts, &rounds);
    let mut summary = summarize_rounds(&of_rounds);
    summary.workers = workers::summarize_workers(&of_rounds);
    summary.roles = workers::summarize_roles(&summary.workers, &of_rounds, &rounds, facts);
    if facts.until.is_some() {
        // The case of a stage has the series.
        summary.series.clear();
    }
    let mut notes: Vec<String> = Vec::new();
    for note in facts
        .parts
        .iter()
        .filter(|part| part.case == facts.case.id)
        .flat_map(|part| &part.missing_telemetry)
        .chain(&summary.notes)
    {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    Telemetry { notes, ..summary }
}

/// The rounds with both telemetry and a measured window.
pub(super) fn round_telemetry<'a>(
    table: &'a Table,
    facts: &CaseFacts<'_>,
    rounds: &[Round<'_, '_>],
) -> Vec<RoundTelemetry<'a>> {
    let of_round = |round: &Round<'_, '_>| {
        let (from, until) = round.window?;
        let is_of_round = |recorded: &&TelemetryRecord| {
            recorded.case == facts.case.id && recorded.round == round.number()
        };
        let recorded = table.recorded().iter().find(is_of_round)?;
        Some(RoundTelemetry {
            recorded,
            window: Window {
                from: i64::try_from(from).ok()?,
                until: i64::try_from(until).ok()?,
            },
        })
    };
    rounds.iter().filter_map(of_round).collect()
}

/// The signals over the measured windows, their series in the first round, and the values that are not signals.
fn summarize_rounds(rounds: &[RoundTelemetry<'_>]) -> Telemetry {
    let mut summary = Telemetry {
        others: others::others(rounds),
        ..Telemetry::default()
    };
    let sources_of = sources_by_signal(rounds, Workers::All);
    for (&signal, sources) in &sources_of {
        let Some(&source) = sources.first() else {
            continue;
        };
        match signal_stat(signal, (source, Workers::All), rounds) {
            Ok((stat, note)) => {
                summary.signals.insert(signal, stat);
                summary
                    .notes
                    .extend(note.map(|note| format!("{signal}: {note}")));
            }
            Err(why) => summary
                .notes
                .extend(why.map(|why| format!("n/a: {signal}: {why}."))),
        }
        let series = rounds
            .first()
            .map(|round| series(signal, source, round))
            .unwrap_or_default();
        if !series.is_empty() {
            summary.series.insert(signal, series);
        }
    }
    summary.notes = merge_notes(summary.notes, &sources_of, &summary.signals);
    summary
}

/// The workers whose readings of a signal are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Workers<'a> {
    All,
    /// Those with this role, or those without one.
    WithRole(Option<&'a str>),
    One(WorkerLabels<'a>),
}

impl Workers<'_> {
    fn contain(self, worker: Option<WorkerLabels<'_>>) -> bool {
        match self {
            Workers::All => true,
            Workers::WithRole(role) => worker.is_some_and(|worker| worker.role == role),
            Workers::One(wanted) => worker == Some(wanted),
        }
    }
}

/// The statistics of the signals that exist, over the measured windows.
pub(super) fn signals(
    rounds: &[RoundTelemetry<'_>],
    workers: Workers<'_>,
) -> BTreeMap<Signal, SignalStat> {
    let stat = |(signal, sources): (Signal, BTreeSet<Source>)| {
        let source = (*sources.first()?, workers);
        Some((signal, signal_stat(signal, source, rounds).ok()?.0))
    };
    sources_by_signal(rounds, workers)
        .into_iter()
        .filter_map(stat)
        .collect()
}

/// The sources that reported each signal.
fn sources_by_signal(
    rounds: &[RoundTelemetry<'_>],
    workers: Workers<'_>,
) -> BTreeMap<Signal, BTreeSet<Source>> {
    let mut sources: BTreeMap<Signal, BTreeSet<Source>> = BTreeMap::new();
    for reading in rounds.iter().flat_map(|round| &round.recorded.readings) {
        if let Some(signal) = Signal::parse(&reading.name)
            && workers.contain(WorkerLabels::split(&reading.labels).0)
        {
            sources.entry(signal).or_default().insert(reading.source);
        }
    }
    sources
}

/// A statistic with a note; or why there is none, where that needs a note.
type StatResult = Result<(SignalStat, Option<String>), Option<String>>;

fn signal_stat(
    signal: Signal,
    source: (Source, Workers<'_>),
    rounds: &[RoundTelemetry<'_>],
) -> StatResult {
    let lines = rounds.iter().map(|round| {
        (
            SignalSeries::collect(round.recorded, signal, source),
            round.window,
        )
    });
    match signal.form() {
        Form::Histogram => {
            histogram::stat(&lines.collect::<Vec<_>>()).map_err(|why| Some(why.to_owned()))
        }
        _ => sample_stat(signal, &lines.collect::<Vec<_>>()).map(|stat| (stat, None)),
    }
}

/// The samples of a round over time.
fn series(signal: Signal, source: Source, round: &RoundTelemetry<'_>) -> Series {
    if signal.form() == Form::Histogram {
        return Series::new();
    }
    let line = SignalSeries::collect(round.recorded, signal, (source, Workers::All));
    let shown = sample_points(signal, &line)
        .into_iter()
        .filter(|point| point.at >= 0);
    shown
        .filter_map(|point| Some((point.at as f64 / 1e9, point.value()?)))
        .collect()
}

/// Joules that the GPUs used in the measured windows; None where one of `round_count` rounds has too few samples.
pub(super) fn energy(
    rounds: &[RoundTelemetry<'_>],
    round_count: usize,
    workers: Workers<'_>,
) -> Option<f64> {
    let sources = sources_by_signal(rounds, workers);
    let source = (*sources.get(&Signal::GpuPower)?.first()?, workers);
    let joules = |round: &RoundTelemetry<'_>| {
        let line = SignalSeries::collect(round.recorded, Signal::GpuPower, source);
        let power: Vec<(i64, f64)> = sample_points(Signal::GpuPower, &line)
            .iter()
            .filter_map(|point| Some((point.at, point.value()?)))
            .collect();
        integrate(&power, round.window)
    };
    // Without the telemetry of a round its energy is unknown.
    (rounds.len() == round_count)
        .then(|| rounds.iter().map(joules).sum::<Option<f64>>())
        .flatten()
}

// The readings of one signal in one round.

/// Worker, further labels and GPU of a reading.
pub(super) type Key<'a> = (Option<WorkerLabels<'a>>, &'a str, Option<u32>);

/// The values read at one time: a source reads all of its values at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scrape<'a> {
    pub at: i64,
    pub values: BTreeMap<Key<'a>, f64>,
}

/// The readings of one signal from one source in one round, ordered by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SignalSeries<'a>(pub Vec<Scrape<'a>>);

impl<'a> SignalSeries<'a> {
    /// The finite readings.
    pub fn collect(
        recorded: &'a TelemetryRecord,
        signal: Signal,
        (source, workers): (Source, Workers<'_>),
    ) -> SignalSeries<'a> {
        let of_signal = recorded
            .readings
            .iter()
            .filter(|reading| reading.source == source && *reading.name == *signal.name());
        let mut by_time: BTreeMap<i64, BTreeMap<Key<'a>, f64>> = BTreeMap::new();
        for reading in of_signal.filter(|reading| reading.value.is_finite()) {
            let (worker, labels) = WorkerLabels::split(&reading.labels);
            if workers.contain(worker) {
                by_time
                    .entry(reading.at_ns)
                    .or_default()
                    .insert((worker, labels, reading.device), reading.value);
            }
        }
        SignalSeries(
            by_time
                .into_iter()
                .map(|(at, values)| Scrape { at, values })
                .collect(),
        )
    }

    /// The scrapes with all values: a sum over devices needs every device, and a sum over workers every worker.
    pub fn complete_scrapes(&self) -> Vec<&Scrape<'a>> {
        self.complete_scrapes_of(|_| true)
    }

    /// The scrapes with all values whose labels meet a condition; none without such values.
    fn complete_scrapes_of(&self, is_meant: impl Fn(&str) -> bool) -> Vec<&Scrape<'a>> {
        let count = |scrape: &Scrape<'_>| {
            let labels = scrape.values.keys().map(|(_, label, _)| label);
            labels.filter(|label| is_meant(label)).count()
        };
        let parts = self.0.iter().map(count).max().unwrap_or(0);
        let is_complete = |scrape: &&Scrape<'_>| parts > 0 && count(scrape) == parts;
        self.0.iter().filter(is_complete).collect()
    }

    /// The readings of each worker.
    pub fn by_worker(&self) -> Vec<SignalSeries<'a>> {
        let mut all: BTreeMap<Option<WorkerLabels<'a>>, SignalSeries<'a>> = BTreeMap::new();
        for scrape in &self.0 {
            for (&key, &value) in &scrape.values {
                let SignalSeries(scrapes) = all.entry(key.0).or_default();
                match scrapes.last_mut().filter(|last| last.at == scrape.at) {
                    Some(last) => _ = last.values.insert(key, value),
                    None => scrapes.push(Scrape {
                        at: scrape.at,
                        values: BTreeMap::from([(key, value)]),
                    }),
                }
            }
        }
        all.into_values().collect()
    }
}

impl<'a> Scrape<'a> {
    /// The value with this label, of the first worker that has it.
    pub fn value_with_label(&self, label: &str) -> Option<f64> {
        self.values_with_label(label).next().map(|(_, value)| value)
    }

    fn values_with_label(&self, label: &str) -> impl Iterator<Item = (Key<'a>, f64)> {
        let with_label = self
            .values
            .iter()
            .filter(move |((_, labels, _), _)| *labels == label);
        with_label.map(|(key, value)| (*key, *value))
    }
}

// Gauges, rates and ratios: samples and their statistics over the measured windows.

/// One sample: the value at a scrape, or the increase between two consecutive ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Start: `at` for a gauge, the time of the earlier scrape of a pair.
    pub from: i64,
    pub at: i64,
    /// The value of a gauge, or the increase of a counter.
    numerator: f64,
    /// 1, seconds, or the increase of the other counter.
    denominator: f64,
}

impl Point {
    /// None where the denominator is 0.
    pub fn value(&self) -> Option<f64> {
        (self.denominator > 0.0).then(|| self.numerator / self.denominator)
    }
}

/// The samples of a signal in a round, also those outside of its measured window.
pub(super) fn sample_points(signal: Signal, line: &SignalSeries<'_>) -> Vec<Point> {
    match signal.form() {
        Form::Gauge => line
            .complete_scrapes()
            .into_iter()
            .filter_map(|scrape| gauge_point(scrape.at, combine_devices(signal, scrape)))
            .collect(),
        Form::Rate => pairs(&line.complete_scrapes())
            .filter_map(|(a, b)| rate_point(a, b))
            .collect(),
        Form::Ratio => ratio_points(line),
        Form::Histogram => Vec::new(),
    }
}

fn gauge_point(at: i64, value: Option<f64>) -> Option<Point> {
    value.map(|value| Point {
        from: at,
        at,
        numerator: value,
        denominator: 1.0,
    })
}

fn pairs<'l, 'a>(
    scrapes: &'l [&'l Scrape<'a>],
) -> impl Iterator<Item = (&'l Scrape<'a>, &'l Scrape<'a>)> {
    scrapes
        .windows(2)
        .filter_map(|pair| Some((*pair.first()?, *pair.last()?)))
}

/// One value of several devices or engines.
fn combine_devices(signal: Signal, scrape: &Scrape<'_>) -> Option<f64> {
    let values = || scrape.values.values().copied();
    match signal {
        Signal::GpuClock | Signal::GpuMemoryClock => values().reduce(f64::min),
        Signal::GpuTemperature => values().reduce(f64::max),
        Signal::GpuUtilization
        | Signal::GpuMemoryUtilization
        | Signal::GpuThrottled
        | Signal::ServerKvCacheUsage => moments::mean(&values().collect::<Vec<_>>()),
        _ => values().reduce(|a, b| a + b),
    }
}

/// The increase of all counters between two scrapes; None where one was reset, or is missing in one of them.
fn rate_point(a: &Scrape<'_>, b: &Scrape<'_>) -> Option<Point> {
    let increase =
        |before: f64, after: f64| Some(after - before).filter(|increase| *increase >= 0.0);
    let increases = b
        .values
        .iter()
        .map(|(key, after)| increase(*a.values.get(key)?, *after));
    let numerator = increases.sum::<Option<f64>>()?;
    Some(Point {
        from: a.at,
        at: b.at,
        numerator,
        denominator: (b.at - a.at) as f64 / 1e9,
    })
}

/// From two counters, or from a share that the server reports itself.
fn ratio_points(line: &SignalSeries<'_>) -> Vec<Point> {
    let counted = line.complete_scrapes_of(|label| ["part", "whole"].contains(&label));
    if counted.is_empty() {
        let mean = |scrape: &Scrape<'_>| {
            let values = scrape.values_with_label("value").map(|(_, value)| value);
            moments::mean(&values.collect::<Vec<_>>())
        };
        let scrapes = line
            .complete_scrapes_of(|label| label == "value")
            .into_iter();
        return scrapes
            .filter_map(|scrape| gauge_point(scrape.at, mean(scrape)))
            .collect();
    }
    let increase = |label: &str, a: &Scrape<'_>, b: &Scrape<'_>| {
        let of_worker = |(key, after): (Key<'_>, f64)| {
            Some(after - a.values.get(&key)?).filter(|increase| *increase >= 0.0)
        };
        b.values_with_label(label)
            .map(of_worker)
            .sum::<Option<f64>>()
    };
    let point = |(a, b): (&Scrape<'_>, &Scrape<'_>)| {
        Some(Point {
            from: a.at,
            at: b.at,
            numerator: increase("part", a, b)?,
            denominator: increase("whole", a, b)?,
        })
    };
    pairs(&counted).filter_map(point).collect()
}

/// Why there is no sample in the measured windows; None where none is expected.
fn missing_samples_reason(
    signal: Signal,
    lines: &[(SignalSeries<'_>, Window)],
    points: &[Point],
) -> Option<String> {
    // A server without speculative decoding counts no drafts.
    let drafts = || {
        lines.iter().flat_map(|(line, _)| &line.0).any(|scrape| {
            let mut drafts = scrape
                .values_with_label("whole")
                .map(|(_, drafts)| drafts)
                .peekable();
            drafts.peek().is_none() || drafts.any(|drafts| drafts > 0.0)
        })
    };
    if signal == Signal::ServerSpecAcceptRate && !drafts() {
        return None;
    }
    if signal.form() == Form::Ratio && !points.is_empty() {
        return Some("its denominator did not increase in the measured windows".to_owned());
    }
    let within = |(line, window): &(SignalSeries<'_>, Window)| {
        line.0
            .iter()
            .filter(|scrape| (window.from..=window.until).contains(&scrape.at))
            .count()
    };
    if lines.iter().any(|line| within(line) > 1) {
        return Some("too few samples in the measured windows".to_owned());
    }
    let longest = lines
        .iter()
        .map(|(_, window)| window.until - window.from)
        .max()
        .unwrap_or(0) as f64
        / 1e9;
    let longest = (longest * 1000.0).round() / 1000.0;
    let reason =
        format!("the longest measured window, {longest} s, contains fewer than two samples");
    Some(format!(
        "{reason}: lower `target.metrics.interval` or `telemetry.interval`, or measure longer"
    ))
}

/// The statistics over the samples in the measured windows; pairs need both of their ends there. The mean of a rate
/// or ratio is the total increase over the total time or the total increase of the other counter, so that pairs are
/// weighted. Without a sample, the reason.
pub(super) fn sample_stat(
    signal: Signal,
    lines: &[(SignalSeries<'_>, Window)],
) -> Result<SignalStat, Option<String>> {
    let inside = |(line, window): &(SignalSeries<'_>, Window)| {
        let within = |point: &Point| point.from >= window.from && point.at <= window.until;
        sample_points(signal, line)
            .into_iter()
            .filter(within)
            .collect::<Vec<_>>()
    };
    let points: Vec<Point> = lines.iter().flat_map(inside).collect();
    let values: Vec<f64> = points.iter().filter_map(Point::value).collect();
    let denominator: f64 = points.iter().map(|point| point.denominator).sum();
    if values.is_empty() {
        return Err(missing_samples_reason(signal, lines, &points));
    }
    Ok(SignalStat {
        n: values.len() as u64,
        mean: Some(points.iter().map(|point| point.numerator).sum::<f64>() / denominator),
        min: values.iter().copied().reduce(f64::min),
        max: values.iter().copied().reduce(f64::max),
        sd: moments::sd(&values),
        values,
        buckets: Vec::new(),
    })
}

// Energy: power over time.

/// The trapezoidal integral of the samples over the window, in seconds times their unit. Before the first and after
/// the last sample their value is used, for at most the widest gap between two samples; None where more is missing.
pub(super) fn integrate(samples: &[(i64, f64)], window: Window) -> Option<f64> {
    let first = samples.first()?;
    let last = samples.last()?;
    let gap = samples
        .windows(2)
        .filter_map(|pair| Some(pair.last()?.0 - pair.first()?.0))
        .max()?;
    if first.0 - window.from > gap || window.until - last.0 > gap {
        return None;
    }
    let start = (window.from.min(first.0), first.1);
    let end = (window.until.max(last.0), last.1);
    let extended: Vec<(i64, f64)> = [start]
        .into_iter()
        .chain(samples.iter().copied())
        .chain([end])
        .collect();
    Some(
        extended
            .windows(2)
            .filter_map(|pair| Some(trapezoid(*pair.first()?, *pair.last()?, window)))
            .sum(),
    )
}

/// The area of the part of a trapezoid in the window.
fn trapezoid(a: (i64, f64), b: (i64, f64), window: Window) -> f64 {
    let from = a.0.max(window.from);
    let until = b.0.min(window.until);
    if until <= from {
        return 0.0;
    }
    let at = |time: i64| a.1 + (b.1 - a.1) * ((time - a.0) as f64 / (b.0 - a.0) as f64);
    (at(from) + at(until)) / 2.0 * (until - from) as f64 / 1e9
}

// Notes.

/// Merges the notes of several signals with one reason, and adds which signals have several sources.
pub(super) fn merge_notes(
    notes: Vec<String>,
    sources_of: &BTreeMap<Signal, BTreeSet<Source>>,
    found: &BTreeMap<Signal, SignalStat>,
) -> Vec<String> {
    let mut by_reason: Vec<(String, Vec<String>)> = Vec::new();
    for note in notes {
        let is_missing = note.starts_with("n/a: ");
        let plain = note.strip_prefix("n/a: ").unwrap_or(&note);
        let (signal, why) = plain.split_once(": ").unwrap_or((plain, ""));
        let why = if is_missing {
            format!("n/a: {why}")
        } else {
            why.to_owned()
        };
        match by_reason.iter_mut().find(|(known, _)| *known == why) {
            Some((_, signals)) => signals.push(signal.to_owned()),
            None => by_reason.push((why, vec![signal.to_owned()])),
        }
    }
    let merged = by_reason
        .into_iter()
        .map(|(why, signals)| match why.strip_prefix("n/a: ") {
            Some(why) => format!("n/a: {}: {why}", list_signals(&signals, sources_of)),
            None => format!("{}: {why}.", list_signals(&signals, sources_of)),
        });
    merged
        .chain(several_sources_notes(sources_of, found))
        .collect()
}

/// The names of signals; several that are all signals of a scope become `scope.*`.
fn list_signals(signals: &[String], sources_of: &BTreeMap<Signal, BTreeSet<Source>>) -> String {
    let mut names: Vec<String> = Vec::new();
    for signal in signals {
        let scope = signal.split('.').next().unwrap_or_default();
        let of_scope: Vec<&str> = sources_of
            .keys()
            .filter(|known| known.scope() == scope)
            .map(|known| known.name())
            .collect();
        let all = of_scope.len() > 1
            && of_scope
                .iter()
                .all(|known| signals.iter().any(|signal| signal == known));
        let name = if all {
            format!("{scope}.*")
        } else {
            signal.clone()
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

fn several_sources_notes(
    sources_of: &BTreeMap<Signal, BTreeSet<Source>>,
    found: &BTreeMap<Signal, SignalStat>,
) -> Vec<String> {
    let mut by_sources: BTreeMap<&BTreeSet<Source>, Vec<&str>> = BTreeMap::new();
    for (signal, sources) in sources_of
        .iter()
        .filter(|(signal, sources)| sources.len() > 1 && found.contains_key(signal))
    {
        by_sources.entry(sources).or_default().push(signal.name());
    }
    let note = |(sources, signals): (&BTreeSet<Source>, Vec<&str>)| {
        let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
        let first = names.first().copied().unwrap_or_default();
        format!(
            "{}: reported by {}; the values of {first} are used.",
            signals.join(", "),
            names.join(" and ")
        )
    };
    by_sources.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests;
