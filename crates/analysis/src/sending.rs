//! The window that throughputs are over, what arrived in it, and the rates of sending.
//!
//! ```text
//! first send   first success           sending stops     last end
//!     |  start      |<---- throughputs ---->|    drain      |
//! ```
//! The drain has ever fewer requests in flight, and before the first success none can have ended: both would make a throughput
//! depend on how long the run is.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::sample::{Amounts, Flow, given_up};
use crate::table::Table;
use llmscen_core::load::Shape;
use llmscen_core::manifest::Part;
use llmscen_core::metric::Metric;
use llmscen_core::stats::long_run::BINS;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::ops::Range;

/// From the first success, or the first measured `intended` where that is later, until sending stops, in nanoseconds. What
/// arrives at its beginning was made before it and is left out; what arrives at its end is in it. None without length.
pub(super) fn sending(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<Range<u64>> {
    let (first, last) = round.window?;
    let sending = match facts.case.load.shape {
        // All is due at once, or batch after batch, each with its own end: the work is what lasts until the last end.
        Shape::Burst | Shape::Static { .. } => first..last,
        Shape::Open { .. } | Shape::Replay { .. } | Shape::Rates { .. } => begins(round, first)..sent_until(round, facts)?,
        Shape::Closed { .. } | Shape::Users { .. } => begins(round, first)..last_user(round, facts)?,
    };
    (!sending.is_empty()).then_some(sending)
}

/// The first success of the round, warm-up among them. Where there is none, all of the time counts: the throughput is 0.
fn begins(round: &Round<'_, '_>, first: u64) -> u64 {
    let succeeded = round.rows.iter().filter(|row| row.ok()).map(|row| row.end()).min();
    succeeded.map_or(first, |end| end.max(first))
}

/// When a closed loop stops to keep all of its users busy: at the end of its time, or when the first user finds nothing more to
/// send.
fn last_user(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<u64> {
    if let Some((_, until)) = by_time(round, facts).filter(|_| !round.part.is_some_and(|part| part.dataset_ended)) {
        return Some(until);
    }
    let started = round.measured().filter(|row| row.turn() == 0).filter_map(|row| row.sent()).max()?;
    // A user is busy with a conversation until its last turn has ended.
    let sessions = round.rows.chunk_by(|a, b| a.seq() == b.seq());
    let ends = sessions.filter_map(|turns| turns.iter().filter(|row| row.sent().is_some()).map(|row| row.end()).max());
    Some(ends.filter(|end| *end > started).min().unwrap_or(started))
}

/// Length of each round's window in seconds, one per round number; 0 for a round without one.
pub(super) fn lengths(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> Vec<f64> {
    let mut lengths = vec![0.0; rounds.last().map_or(0, |round| round.number() as usize + 1)];
    for round in rounds {
        if let Some((length, own)) = lengths.get_mut(round.number() as usize).zip(sending(round, facts)) {
            *length = (own.end - own.start) as f64 / 1e9;
        }
    }
    lengths
}

/// A drain longer than this share of the run has a note.
const SHORT: f64 = 0.01;

/// How long requests in flight took after sending had stopped, where that is more than 1 % of the run.
pub(super) fn drain(table: &Table, facts: &CaseFacts<'_>) -> Option<String> {
    let all: Vec<RequestRow<'_>> = table.rows_of_case(&facts.case.id).into_iter().filter(|row| !given_up(row, facts)).collect();
    let rounds = rounds(&all, facts);
    let of_round = |round: &Round<'_, '_>| Some(round.window?.1.saturating_sub(sending(round, facts)?.end) as f64 / 1e9);
    let drain: f64 = rounds.iter().filter_map(of_round).sum();
    let share = drain / rounds.iter().map(Round::length).sum::<f64>();
    (share > SHORT).then(|| {
        format!(
            "Requests in flight took {drain:.3} s to end after sending had stopped, {:.1} % of the run. This drain is in no \
             throughput; the figures `…_with_drain` have it.",
            share * 100.0
        )
    })
}

/// What arrived in the windows, by the tags of the requests.
pub(super) fn flows(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> Vec<Flow> {
    let mut flows: BTreeMap<_, BTreeMap<u16, Amounts>> = BTreeMap::new();
    for (round, window) in rounds.iter().filter_map(|round| Some((round, sending(round, facts)?))) {
        for row in round.rows.iter().filter(|row| row.sent().is_some()) {
            let mut own = Vec::new();
            arrivals(row, &window, &mut |bin, amounts| own.push((bin, amounts)));
            if own.is_empty() {
                continue;
            }
            let bins = flows.entry((row.round(), row.group(), row.model(), row.turn())).or_default();
            own.into_iter().for_each(|(bin, amounts)| bins.entry(bin).or_default().add(amounts));
        }
    }
    let flows = flows.into_iter();
    flows
        .map(|((round, group, model, turn), bins)| Flow { round, turn, group: group.cloned(), model: model.into(), bins })
        .collect()
}

/// Tokens count when they arrive, prompt tokens with the first of them; a reply that is not streamed counts at its end.
fn arrivals(row: &RequestRow<'_>, window: &Range<u64>, put: &mut impl FnMut(u16, Amounts)) {
    let events = row.events();
    let (output, prompt) = (row.output_tokens().map(|tokens| tokens as f64), row.prompt_tokens().map(|tokens| tokens as f64));
    // Where one of the two is unknown, so is their sum.
    let (made, read) = (if prompt.is_some() { 1.0 } else { 0.0 }, prompt.filter(|_| output.is_some()).unwrap_or(0.0));
    if let Some(bin) = bin(row.end(), window) {
        let whole = output.filter(|_| events.is_empty()).unwrap_or(0.0);
        let ok = Amounts {
            ended: 1.0,
            requests: 1.0,
            items: row.items().map_or(0.0, |items| items as f64),
            output: whole,
            total: whole * made + if events.is_empty() { read } else { 0.0 },
        };
        put(bin, if row.ok() { ok } else { Amounts { ended: 1.0, ..Amounts::default() } });
    }
    if !row.ok() || output.is_none() {
        return;
    }
    if let Some(bin) = events.first().and_then(|first| bin(*first, window)) {
        put(bin, Amounts { total: read, ..Amounts::default() });
    }
    let mut from = events.partition_point(|event| *event <= window.start);
    while let Some(own) = events.get(from).and_then(|event| bin(*event, window)) {
        let until = from + events.get(from..).unwrap_or_default().partition_point(|event| bin(*event, window) == Some(own));
        let tokens = row.tokens_of_events(from..until);
        put(own, Amounts { output: tokens, total: tokens * made, ..Amounts::default() });
        from = until;
    }
}

/// The part of the window in which this instant lies.
fn bin(at: u64, window: &Range<u64>) -> Option<u16> {
    let inside = at > window.start && at <= window.end;
    let place = || (u128::from(at - window.start) * BINS as u128 - 1) / u128::from(window.end - window.start);
    inside.then(|| u16::try_from(place()).ok()).flatten()
}

// Arrivals per second: what the plan asked for, and what was sent. Both are counts over their own length of sending: where a
// sender falls behind, its sends take longer than the plan, so the achieved rate is lower than the offered one.

/// A count and the seconds it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    count: f64,
    seconds: f64,
}

/// `rate_offered` of an open loop and `rate_achieved`, where they exist.
pub(super) fn rates(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> BTreeMap<Metric, f64> {
    let shape = &facts.case.load.shape;
    let (offered, achieved): (Vec<_>, Vec<_>) = rounds.iter().map(|round| rates_of_round(round, facts)).unzip();
    let offered = pooled(&offered).filter(|_| !shape.closed() && *shape != Shape::Burst);
    let named = [(Metric::RateOffered, offered), (Metric::RateAchieved, pooled(&achieved))];
    named.into_iter().filter_map(|(metric, rate)| Some((metric, rate?))).collect()
}

fn pooled(rates: &[Rate]) -> Option<f64> {
    let seconds: f64 = rates.iter().map(|rate| rate.seconds).sum();
    (seconds > 0.0).then(|| rates.iter().map(|rate| rate.count).sum::<f64>() / seconds)
}

fn rates_of_round(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> (Rate, Rate) {
    match facts.case.load.shape {
        Shape::Open { .. } | Shape::Replay { .. } | Shape::Rates { .. } => open_loop_rates(round, facts),
        Shape::Closed { .. } | Shape::Burst | Shape::Users { .. } | Shape::Static { .. } => {
            let sent = round.measured().filter(|row| row.sent().is_some()).count() as f64;
            (Rate::default(), Rate { count: sent, seconds: round.length() })
        }
    }
}

/// What arrives in an open loop is a session: later turns follow their replies.
fn open_loop_rates(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> (Rate, Rate) {
    let Some((start, until)) = planned(round, facts) else { return Default::default() };
    let sent = arrived(round).filter(|row| row.sent().is_some()).count() as f64;
    let planned = arrived(round).filter(|row| row.intended() <= until).count();
    let taken = until.max(last_sent(round)) - start;
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    (Rate { count: planned as f64, seconds: seconds(until - start) }, Rate { count: sent, seconds: seconds(taken) })
}

fn arrived<'a, 'f>(round: &Round<'a, 'f>) -> impl Iterator<Item = &'f RequestRow<'a>> + use<'a, 'f> {
    round.measured().filter(|row| row.turn() == 0)
}

fn last_sent(round: &Round<'_, '_>) -> u64 {
    arrived(round).filter_map(|row| row.sent()).max().unwrap_or_default()
}

/// When the sending of an open loop was over: by its plan, or with its last request where that was late.
pub(super) fn sent_until(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<u64> {
    Some(planned(round, facts)?.1.max(last_sent(round)))
}

/// From when to when an open loop is to send.
fn planned(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<(u64, u64)> {
    let (first, last) = (round.window?.0, arrived(round).map(|row| row.intended()).max()?);
    let arrivals = arrived(round).count() as u64;
    // n arrivals span n − 1 gaps; the one after the last belongs to the sending too.
    let by_count = (last - first) as f64 / arrivals.saturating_sub(1).max(1) as f64 * arrivals as f64;
    Some(by_time(round, facts).unwrap_or((first, first + by_count.round() as u64)))
}

/// From when to when a load is to send that ends by time and not by a number of requests.
pub(super) fn by_time(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<(u64, u64)> {
    let (load, first) = (&facts.case.load, round.window?.0);
    let begun = round.part.map_or(first, |part| part.measured_from_ns.min(first));
    let until = facts.until.or(load.until(Some(Nanos(begun))))?;
    // What was discarded as the start was due before the first measured request, and belongs to what the plan asked for.
    let settling = round.rows.iter().filter(|row| row.settling() && row.turn() == 0).count() as u64;
    let counted = load.requests.is_some_and(|most| arrived(round).count() as u64 + settling >= most);
    let start = if settling > 0 { first } else { begun };
    (!counted).then(|| (start, until.0.min(cut_at(round).unwrap_or(u64::MAX)).max(start)))
}

/// When sending ended, where that was before its plan was done: what was not to be sent any more was not offered.
fn cut_at(round: &Round<'_, '_>) -> Option<u64> {
    let early =
        |part: &&Part| part.cut_short.is_some() || part.ending.is_some() || part.probe.is_some_and(|probe| probe.hopeless);
    round.part.filter(early)?.sending_until_ns
}

#[cfg(test)]
mod tests;
