//! What was read beside the requests: its file, and what becomes of it.
//!
//! Statistics are over the measured window of each round, the one that throughputs are over. Of several tellers of one signal
//! the first in their order is taken: a DCGM exporter is named for a target, and a driver on this machine is not.

mod codec;
mod energy;
mod histogram;
mod line;
mod notes;
mod others;
mod points;
#[cfg(test)]
mod tests;

pub use codec::{read, write};

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::sample::given_up;
use crate::table::Table;
use line::Line;
use llmscen_core::report::Series;
use llmscen_core::signal::{Form, Signal};
use llmscen_core::telemetry::{Recorded, SignalStat, Telemetry, Teller};
use std::collections::{BTreeMap, BTreeSet};

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
    let all: Vec<RequestRow<'_>> = table.rows_of_case(&facts.case.id).into_iter().filter(|fact| !given_up(fact, facts)).collect();
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
    for (&signal, tellers) in &chosen {
        let Some(&teller) = tellers.first() else { continue };
        match of_signal(signal, teller, rounds) {
            Ok((stat, note)) => {
                told.signals.insert(signal, stat);
                told.notes.extend(note.map(|note| format!("{signal}: {note}")));
            }
            Err(why) => told.notes.extend(why.map(|why| format!("n/a: {signal}: {why}."))),
        }
        let series = rounds.first().map(|own| series(signal, teller, own)).unwrap_or_default();
        if !series.is_empty() {
            told.series.insert(signal, series);
        }
    }
    told.notes = notes::gathered(told.notes, &chosen, &told.signals);
    told
}

/// The signals that exist, over the windows of these rounds.
pub(super) fn signals(rounds: &[Watched<'_>]) -> BTreeMap<Signal, SignalStat> {
    let stat =
        |(signal, tellers): (Signal, BTreeSet<Teller>)| Some((signal, of_signal(signal, *tellers.first()?, rounds).ok()?.0));
    chosen(rounds).into_iter().filter_map(stat).collect()
}

/// Who told each signal.
fn chosen(rounds: &[Watched<'_>]) -> BTreeMap<Signal, BTreeSet<Teller>> {
    let mut chosen: BTreeMap<Signal, BTreeSet<Teller>> = BTreeMap::new();
    for reading in rounds.iter().flat_map(|own| &own.recorded.readings) {
        if let Some(signal) = Signal::parse(&reading.name) {
            chosen.entry(signal).or_default().insert(reading.teller);
        }
    }
    chosen
}

/// A statistic and what is to be known of it; or why there is none, where that is news.
type Found = Result<(SignalStat, Option<String>), Option<String>>;

/// The statistic of a signal.
fn of_signal(signal: Signal, teller: Teller, rounds: &[Watched<'_>]) -> Found {
    let lines = rounds.iter().map(|own| (Line::of(own.recorded, signal, teller), own.window));
    match signal.form() {
        Form::Histogram => histogram::stat(&lines.collect::<Vec<_>>()).map_err(|why| Some(why.to_owned())),
        _ => points::stat(signal, &lines.collect::<Vec<_>>()).map(|stat| (stat, None)),
    }
}

/// The samples of a round over its time.
fn series(signal: Signal, teller: Teller, own: &Watched<'_>) -> Series {
    if signal.form() == Form::Histogram {
        return Series::new();
    }
    let line = Line::of(own.recorded, signal, teller);
    let shown = points::of(signal, &line).into_iter().filter(|point| point.at >= 0);
    shown.filter_map(|point| Some((point.at as f64 / 1e9, point.value()?))).collect()
}

/// Joules that the GPUs took over the windows; None where some of it was not read.
pub(super) fn energy(rounds: &[Watched<'_>], all: usize) -> Option<f64> {
    let teller = *chosen(rounds).get(&Signal::GpuPower)?.first()?;
    let of = |own: &Watched<'_>| {
        let line = Line::of(own.recorded, Signal::GpuPower, teller);
        let power: Vec<(i64, f64)> =
            points::of(Signal::GpuPower, &line).iter().filter_map(|point| Some((point.at, point.value()?))).collect();
        energy::integral(&power, own.window)
    };
    // A round without readings is energy that nobody knows of.
    (rounds.len() == all).then(|| rounds.iter().map(of).sum::<Option<f64>>()).flatten()
}
