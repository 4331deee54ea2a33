//! What was read beside the requests: its file, and what becomes of it.
//!
//! Statistics are over the measured window of each round, the one that throughputs are over. Of several sources of one signal
//! the first in their order is taken: a DCGM exporter is named for a target, and a driver on this machine is not.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::sample::given_up;
use crate::table::Table;
use llmscen_core::report::Series;
use llmscen_core::signal::{Form, Signal};
use llmscen_core::stats::moments;
use llmscen_core::telemetry::{Recorded, SignalStat, Source, Telemetry};
use std::collections::{BTreeMap, BTreeSet};

mod codec;
mod histogram;
mod others;

pub use codec::{read, write};

/// The measured window of a round, in nanoseconds after its time zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub from: i64,
    pub until: i64,
}

/// The readings of one round of a case, and its window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched<'a> {
    pub recorded: &'a Recorded,
    pub window: Window,
}

/// What the telemetry of a case says, or of one of its stages.
pub fn telemetry(table: &Table, facts: &CaseFacts<'_>) -> Telemetry {
    let all: Vec<RequestRow<'_>> = table.rows_of_case(&facts.case.id).into_iter().filter(|row| !given_up(row, facts)).collect();
    let watched = watched(table, facts, &rounds(&all, facts));
    let mut told = summarise(&watched);
    if facts.until.is_some() {
        // What a stage looks like over time is seen in the whole.
        told.series.clear();
    }
    let mut notes: Vec<String> = Vec::new();
    for note in facts.parts.iter().filter(|part| part.case == facts.case.id).flat_map(|part| &part.untold).chain(&told.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    Telemetry { notes, ..told }
}

/// The rounds that have both readings and a window.
pub(super) fn watched<'a>(table: &'a Table, facts: &CaseFacts<'_>, rounds: &[Round<'_, '_>]) -> Vec<Watched<'a>> {
    let own = |round: &Round<'_, '_>| {
        let (from, until) = round.window?;
        let of_round = |own: &&Recorded| own.case == facts.case.id && own.round == round.number();
        let recorded = table.recorded().iter().find(of_round)?;
        Some(Watched { recorded, window: Window { from: i64::try_from(from).ok()?, until: i64::try_from(until).ok()? } })
    };
    rounds.iter().filter_map(own).collect()
}

/// The signals of these rounds over their windows, the first round's over its time, and what has no common name.
pub(super) fn summarise(rounds: &[Watched<'_>]) -> Telemetry {
    let mut told = Telemetry { others: others::others(rounds), ..Telemetry::default() };
    let chosen = chosen(rounds);
    for (&signal, sources) in &chosen {
        let Some(&source) = sources.first() else { continue };
        match of_signal(signal, source, rounds) {
            Ok((stat, note)) => {
                told.signals.insert(signal, stat);
                told.notes.extend(note.map(|note| format!("{signal}: {note}")));
            }
            Err(why) => told.notes.extend(why.map(|why| format!("n/a: {signal}: {why}."))),
        }
        let series = rounds.first().map(|own| series(signal, source, own)).unwrap_or_default();
        if !series.is_empty() {
            told.series.insert(signal, series);
        }
    }
    told.notes = gather_notes(told.notes, &chosen, &told.signals);
    told
}

/// The signals that exist, over the windows of these rounds.
pub(super) fn signals(rounds: &[Watched<'_>]) -> BTreeMap<Signal, SignalStat> {
    let stat =
        |(signal, sources): (Signal, BTreeSet<Source>)| Some((signal, of_signal(signal, *sources.first()?, rounds).ok()?.0));
    chosen(rounds).into_iter().filter_map(stat).collect()
}

/// Who told each signal.
fn chosen(rounds: &[Watched<'_>]) -> BTreeMap<Signal, BTreeSet<Source>> {
    let mut chosen: BTreeMap<Signal, BTreeSet<Source>> = BTreeMap::new();
    for reading in rounds.iter().flat_map(|own| &own.recorded.readings) {
        if let Some(signal) = Signal::parse(&reading.name) {
            chosen.entry(signal).or_default().insert(reading.source);
        }
    }
    chosen
}

/// A statistic and what is to be known of it; or why there is none, where that is news.
type Found = Result<(SignalStat, Option<String>), Option<String>>;

/// The statistic of a signal.
fn of_signal(signal: Signal, source: Source, rounds: &[Watched<'_>]) -> Found {
    let lines = rounds.iter().map(|own| (Line::of(own.recorded, signal, source), own.window));
    match signal.form() {
        Form::Histogram => histogram::stat(&lines.collect::<Vec<_>>()).map_err(|why| Some(why.to_owned())),
        _ => sample_stat(signal, &lines.collect::<Vec<_>>()).map(|stat| (stat, None)),
    }
}

/// The samples of a round over its time.
fn series(signal: Signal, source: Source, own: &Watched<'_>) -> Series {
    if signal.form() == Form::Histogram {
        return Series::new();
    }
    let line = Line::of(own.recorded, signal, source);
    let shown = sample_points(signal, &line).into_iter().filter(|point| point.at >= 0);
    shown.filter_map(|point| Some((point.at as f64 / 1e9, point.value()?))).collect()
}

/// Joules that the GPUs took over the windows; None where some of it was not read.
pub(super) fn energy(rounds: &[Watched<'_>], all: usize) -> Option<f64> {
    let source = *chosen(rounds).get(&Signal::GpuPower)?.first()?;
    let of = |own: &Watched<'_>| {
        let line = Line::of(own.recorded, Signal::GpuPower, source);
        let power: Vec<(i64, f64)> =
            sample_points(Signal::GpuPower, &line).iter().filter_map(|point| Some((point.at, point.value()?))).collect();
        integral(&power, own.window)
    };
    // A round without readings is energy that nobody knows of.
    (rounds.len() == all).then(|| rounds.iter().map(of).sum::<Option<f64>>()).flatten()
}

// The readings of one signal in one round, instant by instant.

/// What tells the readings of one signal apart: labels, and the GPU.
pub(super) type Key<'a> = (&'a str, Option<u32>);

/// What was read at one instant. A source reads all of its values at one and the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Moment<'a> {
    pub at: i64,
    pub values: BTreeMap<Key<'a>, f64>,
}

/// The instants in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line<'a>(pub Vec<Moment<'a>>);

impl<'a> Line<'a> {
    /// The readings of a signal that this source made. What is no number is none of them.
    pub fn of(recorded: &'a Recorded, signal: Signal, source: Source) -> Line<'a> {
        let own = recorded.readings.iter().filter(|own| own.source == source && *own.name == *signal.name());
        let mut by_instant: BTreeMap<i64, BTreeMap<Key<'a>, f64>> = BTreeMap::new();
        for reading in own.filter(|own| own.value.is_finite()) {
            by_instant.entry(reading.at_ns).or_default().insert((&reading.labels, reading.device), reading.value);
        }
        Line(by_instant.into_iter().map(|(at, values)| Moment { at, values }).collect())
    }

    /// The instants at which everything was told that this round tells at any: a sum without one of its parts is none.
    pub fn whole(&self) -> Vec<&Moment<'a>> {
        let parts = self.0.iter().map(|instant| instant.values.len()).max().unwrap_or(0);
        self.0.iter().filter(|instant| instant.values.len() == parts).collect()
    }
}

impl Moment<'_> {
    /// The value under a label.
    pub fn labelled(&self, label: &str) -> Option<f64> {
        self.values.iter().find(|((own, _), _)| *own == label).map(|(_, value)| *value)
    }
}

// Gauges, rates and ratios: samples, and their statistics over the windows.

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
pub(super) fn sample_points(signal: Signal, line: &Line<'_>) -> Vec<Point> {
    match signal.form() {
        Form::Gauge => {
            line.whole().into_iter().filter_map(|instant| gauge_point(instant.at, combined(signal, instant))).collect()
        }
        Form::Rate => pairs(&line.whole()).filter_map(|(a, b)| rate_point(a, b)).collect(),
        Form::Ratio => ratio_points(line),
        Form::Histogram => Vec::new(),
    }
}

fn gauge_point(at: i64, value: Option<f64>) -> Option<Point> {
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
fn rate_point(a: &Moment<'_>, b: &Moment<'_>) -> Option<Point> {
    let grown = b.values.iter().map(|(key, after)| a.values.get(key).map(|before| after - before).filter(|grown| *grown >= 0.0));
    let part = grown.sum::<Option<f64>>()?;
    Some(Point { from: a.at, at: b.at, part, whole: (b.at - a.at) as f64 / 1e9 })
}

/// Of counts, or of a server that tells the share itself.
fn ratio_points(line: &Line<'_>) -> Vec<Point> {
    let both = |own: &&Moment<'_>| own.labelled("part").is_some() && own.labelled("whole").is_some();
    let counted: Vec<&Moment<'_>> = line.0.iter().filter(both).collect();
    if counted.is_empty() {
        return line.0.iter().filter_map(|own| gauge_point(own.at, own.labelled("value"))).collect();
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
        return Some("its denominator did not increase in the measured windows".to_owned());
    }
    let within =
        |(line, window): &(Line<'_>, Window)| line.0.iter().filter(|own| (window.from..=window.until).contains(&own.at)).count();
    if lines.iter().any(|own| within(own) > 1) {
        return Some("too few samples in the measured windows".to_owned());
    }
    let longest = lines.iter().map(|(_, window)| window.until - window.from).max().unwrap_or(0) as f64 / 1e9;
    let longest = (longest * 1000.0).round() / 1000.0;
    let what = format!("the longest measured window, of {longest} s, contains fewer than two samples");
    Some(format!("{what}: lower `target.metrics.interval` or `telemetry.interval`, or measure longer"))
}

/// Over the samples that lie within the windows, pairs with both of their ends. The mean of a rate, or of a ratio, is the growth
/// of all pairs over their time, or over the growth of the other count, so that pairs of unequal weight do not mislead. Without
/// a sample, why; None where that is no news.
pub(super) fn sample_stat(signal: Signal, lines: &[(Line<'_>, Window)]) -> Result<SignalStat, Option<String>> {
    let inside = |(line, window): &(Line<'_>, Window)| {
        let within = |point: &Point| point.from >= window.from && point.at <= window.until;
        sample_points(signal, line).into_iter().filter(within).collect::<Vec<_>>()
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

// Energy: power over time.

/// The area under a line through the samples, in seconds times their unit, over the window. At an edge without a sample beyond
/// it the nearest value stands, for no longer than the widest gap between two samples; None where more than that is missing.
pub(super) fn integral(samples: &[(i64, f64)], window: Window) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let gap = samples.windows(2).filter_map(|pair| Some(pair.last()?.0 - pair.first()?.0)).max()?;
    if first.0 - window.from > gap || window.until - last.0 > gap {
        return None;
    }
    let ends = ((window.from.min(first.0), first.1), (window.until.max(last.0), last.1));
    let all: Vec<(i64, f64)> = [ends.0].into_iter().chain(samples.iter().copied()).chain([ends.1]).collect();
    Some(all.windows(2).filter_map(|pair| Some(piece(*pair.first()?, *pair.last()?, window))).sum())
}

/// The part of a trapezoid that lies in the window.
fn piece(a: (i64, f64), b: (i64, f64), window: Window) -> f64 {
    let (from, until) = (a.0.max(window.from), b.0.min(window.until));
    if until <= from {
        return 0.0;
    }
    let at = |time: i64| a.1 + (b.1 - a.1) * ((time - a.0) as f64 / (b.0 - a.0) as f64);
    (at(from) + at(until)) / 2.0 * (until - from) as f64 / 1e9
}

// Notes.

/// Notes of several signals for one reason as one; and of which sources only one was believed.
pub(super) fn gather_notes(
    notes: Vec<String>,
    chosen: &BTreeMap<Signal, BTreeSet<Source>>,
    found: &BTreeMap<Signal, SignalStat>,
) -> Vec<String> {
    let mut by_reason: Vec<(String, Vec<String>)> = Vec::new();
    for note in notes {
        let lacks = note.starts_with("n/a: ");
        let plain = note.strip_prefix("n/a: ").unwrap_or(&note);
        let (signal, why) = plain.split_once(": ").unwrap_or((plain, ""));
        let why = if lacks { format!("n/a: {why}") } else { why.to_owned() };
        match by_reason.iter_mut().find(|(known, _)| *known == why) {
            Some((_, signals)) => signals.push(signal.to_owned()),
            None => by_reason.push((why, vec![signal.to_owned()])),
        }
    }
    let told = by_reason.into_iter().map(|(why, signals)| match why.strip_prefix("n/a: ") {
        Some(why) => format!("n/a: {}: {why}", list_signals(&signals, chosen)),
        None => format!("{}: {why}.", list_signals(&signals, chosen)),
    });
    told.chain(name_several_sources(chosen, found)).collect()
}

/// Their names; where they are all that were told of a scope, and several, that scope's.
fn list_signals(signals: &[String], chosen: &BTreeMap<Signal, BTreeSet<Source>>) -> String {
    let mut names: Vec<String> = Vec::new();
    for signal in signals {
        let scope = signal.split('.').next().unwrap_or_default();
        let told: Vec<&str> = chosen.keys().filter(|own| own.scope() == scope).map(|own| own.name()).collect();
        let whole = told.len() > 1 && told.iter().all(|own| signals.iter().any(|named| named == own));
        let name = if whole { format!("{scope}.*") } else { signal.clone() };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

fn name_several_sources(chosen: &BTreeMap<Signal, BTreeSet<Source>>, found: &BTreeMap<Signal, SignalStat>) -> Vec<String> {
    let mut by_sources: BTreeMap<&BTreeSet<Source>, Vec<&str>> = BTreeMap::new();
    for (signal, sources) in chosen.iter().filter(|(signal, sources)| sources.len() > 1 && found.contains_key(signal)) {
        by_sources.entry(sources).or_default().push(signal.name());
    }
    let line = |(sources, signals): (&BTreeSet<Source>, Vec<&str>)| {
        let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
        let first = names.first().copied().unwrap_or_default();
        format!("{}: reported by {}; the values of {first} are used.", signals.join(", "), names.join(" and "))
    };
    by_sources.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
