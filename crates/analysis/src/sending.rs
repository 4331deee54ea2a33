//! The throughput window, what arrived in it, and the offered and achieved rates.
//!
//! ```text
//! first send   first success           sending stops     last end
//!     |  start      |<---- throughputs ---->|    drain      |
//! ```
//! During the drain fewer and fewer requests are in flight, and before the first success none can have ended: both would make a
//! throughput depend on the length of the run.

use crate::CaseFacts;
use crate::measured_requests::Tags;
use crate::request_row::RequestRow;
use crate::round::{Round, cancelled_by_stop, rounds};
use crate::table::Table;
use llmscen_core::load::Shape;
use llmscen_core::manifest::Part;
use llmscen_core::metric::Metric;
use llmscen_core::stats::long_run::BINS;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// From the first success, or the first measured scheduled send where that is later, until sending stops, in nanoseconds. The start
/// is exclusive, since what arrives then was generated earlier; the end is inclusive. None where it is empty.
pub(super) fn throughput_window(
    round: &Round<'_, '_>,
    facts: &CaseFacts<'_>,
) -> Option<Range<u64>> {
    let (first, last) = round.window?;
    let window = match facts.case.load.shape {
        // Requests are scheduled at once, or batch after batch: the work lasts until the last end.
        Shape::Burst | Shape::Static { .. } => first..last,
        Shape::Open { .. } | Shape::Replay { .. } | Shape::Rates { .. } | Shape::Classes { .. } => {
            window_start(round, first)..sent_until(round, facts)?
        }
        Shape::Closed { .. } | Shape::Users { .. } => {
            window_start(round, first)..closed_loop_end(round, facts)?
        }
    };
    (!window.is_empty()).then_some(window)
}

/// The first success of the round, warm-up included. Without one the whole window counts: the throughput is 0.
fn window_start(round: &Round<'_, '_>, first: u64) -> u64 {
    let succeeded = round
        .rows
        .iter()
        .filter(|row| row.ok())
        .map(|row| row.end())
        .min();
    succeeded.map_or(first, |end| end.max(first))
}

/// When a closed loop stops keeping all users busy: at the end of its duration, or when the first user has no more requests.
fn closed_loop_end(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<u64> {
    if let Some((_, until)) =
        by_time(round, facts).filter(|_| !round.part.is_some_and(|part| part.dataset_ended))
    {
        return Some(until);
    }
    let started = round
        .measured()
        .filter(|row| row.begins_session())
        .filter_map(|row| row.sent())
        .max()?;
    // A user is busy with a conversation until its last turn has ended.
    let sessions = round.rows.chunk_by(|a, b| a.seq() == b.seq());
    let ends = sessions.filter_map(|turns| {
        turns
            .iter()
            .filter(|row| row.sent().is_some())
            .map(|row| row.end())
            .max()
    });
    Some(ends.filter(|end| *end > started).min().unwrap_or(started))
}

/// Length of each round's throughput window in seconds, by round number; 0 for a round without one.
pub(super) fn window_lengths(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> Vec<f64> {
    let mut lengths = vec![0.0; rounds.last().map_or(0, |round| round.number() as usize + 1)];
    for round in rounds {
        if let Some((length, window)) = lengths
            .get_mut(round.number() as usize)
            .zip(throughput_window(round, facts))
        {
            *length = (window.end - window.start) as f64 / 1e9;
        }
    }
    lengths
}

/// Share of the run above which a drain has a note.
const MAX_DRAIN: f64 = 0.01;

/// A note about the drain, where it is long.
pub(super) fn drain_note(table: &Table, facts: &CaseFacts<'_>) -> Option<String> {
    let rows: Vec<RequestRow<'_>> = table
        .rows_of_case(&facts.case.id)
        .into_iter()
        .filter(|row| !cancelled_by_stop(row, facts))
        .collect();
    let rounds = rounds(&rows, facts);
    let seconds = |round: &Round<'_, '_>| {
        Some(
            round
                .window?
                .1
                .saturating_sub(throughput_window(round, facts)?.end) as f64
                / 1e9,
        )
    };
    let drain: f64 = rounds.iter().filter_map(seconds).sum();
    let share = drain / rounds.iter().map(Round::length).sum::<f64>();
    (share > MAX_DRAIN).then(|| {
        format!(
            "The drain took {drain:.3} s after sending stopped, {:.1} % of the run. Throughputs exclude it; the metrics \
             `…_with_drain` include it.",
            share * 100.0
        )
    })
}

/// What arrived in the throughput window of one round, of the requests that share all tags. Warm-up requests are included:
/// they load the server like any other request.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Round of the case, from 0.
    pub round: u32,
    /// Turn in the session, from 0.
    pub turn: u32,
    /// Group of the prompt, where the dataset has groups.
    pub group: Option<Arc<str>>,
    /// Model.
    pub model: Arc<str>,
    /// The URL that they were sent to, where the target has several.
    pub endpoint: Option<Arc<str>>,
    /// The kept headers of their responses.
    pub kept_headers: Option<Arc<str>>,
    /// By the bins that a window is divided into; those in which nothing arrived are absent.
    pub bins: BTreeMap<u16, Amounts>,
}

impl Flow {
    pub(super) fn tags(&self) -> Tags<'_> {
        Tags {
            round: self.round,
            turn: self.turn,
            group: self.group.as_deref(),
            model: &self.model,
            endpoint: self.endpoint.as_deref(),
            kept_headers: self.kept_headers.as_deref(),
        }
    }
}

/// What arrived in one bin of a round's window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Requests that ended, whatever the result.
    pub ended: f64,
    /// Requests that succeeded.
    pub requests: f64,
    /// Their inputs or results.
    pub items: f64,
    /// Their seconds of audio.
    pub audio: f64,
    /// Output tokens.
    pub output: f64,
    /// Prompt tokens.
    pub input: f64,
    /// Prompt and output tokens.
    pub total: f64,
    /// Billed output tokens.
    pub billed: f64,
    /// Prompt and billed output tokens.
    pub billed_total: f64,
}

impl Amounts {
    /// Adds the amounts of another bin.
    pub fn add(&mut self, other: Amounts) {
        self.ended += other.ended;
        self.requests += other.requests;
        self.items += other.items;
        self.audio += other.audio;
        self.output += other.output;
        self.input += other.input;
        self.total += other.total;
        self.billed += other.billed;
        self.billed_total += other.billed_total;
    }

    /// What counts towards this throughput; 0 for every other metric.
    pub(super) fn amount(&self, throughput: Metric) -> f64 {
        match throughput.undivided() {
            Metric::RequestThroughput => self.requests,
            Metric::ItemThroughput => self.items,
            Metric::Rtfx => self.audio,
            Metric::InputTps => self.input,
            Metric::OutputTps => self.output,
            Metric::TotalTps => self.total,
            Metric::BilledTps => self.billed,
            Metric::BilledTotalTps => self.billed_total,
            _ => 0.0,
        }
    }
}

/// What arrived in the throughput windows, by the tags of the requests.
pub(super) fn flows(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> Vec<Flow> {
    let mut flows: BTreeMap<_, BTreeMap<u16, Amounts>> = BTreeMap::new();
    for (round, window) in rounds
        .iter()
        .filter_map(|round| Some((round, throughput_window(round, facts)?)))
    {
        for row in round.rows.iter().filter(|row| row.sent().is_some()) {
            let mut arrived = Vec::new();
            add_arrivals(row, &window, &mut |bin, amounts| {
                arrived.push((bin, amounts))
            });
            if arrived.is_empty() {
                continue;
            }
            let bins = flows
                .entry((
                    row.round(),
                    row.group(),
                    row.model(),
                    row.endpoint(),
                    row.kept_headers(),
                    row.turn(),
                ))
                .or_default();
            arrived
                .into_iter()
                .for_each(|(bin, amounts)| bins.entry(bin).or_default().add(amounts));
        }
    }
    let flows = flows.into_iter();
    flows
        .map(
            |((round, group, model, endpoint, kept_headers, turn), bins)| Flow {
                round,
                turn,
                group: group.cloned(),
                model: model.into(),
                endpoint: endpoint.cloned(),
                kept_headers: kept_headers.cloned(),
                bins,
            },
        )
        .collect()
}

/// Tokens count when they arrive, prompt tokens with the first output token; a reply that is not streamed counts at its end.
fn add_arrivals(row: &RequestRow<'_>, window: &Range<u64>, add: &mut impl FnMut(u16, Amounts)) {
    let events = row.events();
    let output = row.output_tokens().map(|tokens| tokens as f64);
    let prompt = row.prompt_tokens().map(|tokens| tokens as f64);
    // Without one of the two, a request has no total tokens.
    let counts_total = if prompt.is_some() { 1.0 } else { 0.0 };
    let prompt_tokens = prompt.filter(|_| output.is_some()).unwrap_or(0.0);
    let billed = row.billed_tokens().map_or(0.0, |tokens| tokens as f64);
    let hidden = (billed - output.unwrap_or(0.0)).max(0.0);
    if let Some(bin) = bin(row.end(), window) {
        let at_end = output.filter(|_| events.is_empty()).unwrap_or(0.0);
        let billed_at_end = if events.is_empty() { billed } else { 0.0 };
        let prompt_at_end = if events.is_empty() {
            prompt_tokens
        } else {
            0.0
        };
        let ok = Amounts {
            ended: 1.0,
            requests: 1.0,
            items: row.items().map_or(0.0, |items| items as f64),
            audio: row.audio_seconds().unwrap_or(0.0),
            output: at_end,
            input: prompt.filter(|_| events.is_empty()).unwrap_or(0.0),
            total: at_end * counts_total + prompt_at_end,
            billed: billed_at_end,
            billed_total: billed_at_end * counts_total + prompt_at_end,
        };
        add(
            bin,
            if row.ok() {
                ok
            } else {
                Amounts {
                    ended: 1.0,
                    ..Amounts::default()
                }
            },
        );
    }
    if !row.ok() {
        return;
    }
    if let Some(bin) = events.first().and_then(|first| bin(*first, window)) {
        add(
            bin,
            Amounts {
                input: prompt.unwrap_or(0.0),
                total: prompt_tokens,
                billed: hidden,
                billed_total: prompt_tokens + hidden * counts_total,
                ..Amounts::default()
            },
        );
    }
    if output.is_none() {
        return;
    }
    let event_tokens = row.event_tokens();
    let mut from = events.partition_point(|event| *event <= window.start);
    while let Some(bin_of_event) = events.get(from).and_then(|event| bin(*event, window)) {
        let until = from
            + events
                .get(from..)
                .unwrap_or_default()
                .partition_point(|event| bin(*event, window) == Some(bin_of_event));
        let tokens = event_tokens.sum(from..until);
        add(
            bin_of_event,
            Amounts {
                output: tokens,
                total: tokens * counts_total,
                billed: tokens,
                billed_total: tokens * counts_total,
                ..Amounts::default()
            },
        );
        from = until;
    }
}

/// The bin of the window that contains an instant.
fn bin(at: u64, window: &Range<u64>) -> Option<u16> {
    let is_inside = at > window.start && at <= window.end;
    let index = || {
        (u128::from(at - window.start) * BINS as u128 - 1) / u128::from(window.end - window.start)
    };
    is_inside.then(|| u16::try_from(index()).ok()).flatten()
}

// The offered rate is the plan's, the achieved rate that of the sends, each over its own duration: where sending falls behind, it
// takes longer than planned, so the achieved rate is lower.

/// A count over a duration in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    count: f64,
    seconds: f64,
}

/// `rate_offered` of an open loop and `rate_achieved`, where they exist.
pub(super) fn rates(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> BTreeMap<Metric, f64> {
    let shape = &facts.case.load.shape;
    let (offered, achieved): (Vec<_>, Vec<_>) = rounds
        .iter()
        .map(|round| rates_of_round(round, facts))
        .unzip();
    let offered =
        pool_rates(&offered).filter(|_| !shape.is_closed_loop() && *shape != Shape::Burst);
    let rates = [
        (Metric::RateOffered, offered),
        (Metric::RateAchieved, pool_rates(&achieved)),
    ];
    rates
        .into_iter()
        .filter_map(|(metric, rate)| Some((metric, rate?)))
        .collect()
}

fn pool_rates(rates: &[Rate]) -> Option<f64> {
    let seconds: f64 = rates.iter().map(|rate| rate.seconds).sum();
    (seconds > 0.0).then(|| rates.iter().map(|rate| rate.count).sum::<f64>() / seconds)
}

fn rates_of_round(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> (Rate, Rate) {
    match facts.case.load.shape {
        Shape::Open { .. } | Shape::Replay { .. } | Shape::Rates { .. } | Shape::Classes { .. } => {
            open_loop_rates(round, facts)
        }
        Shape::Closed { .. } | Shape::Burst | Shape::Users { .. } | Shape::Static { .. } => {
            let sent = round.measured().filter(|row| row.sent().is_some()).count() as f64;
            (
                Rate::default(),
                Rate {
                    count: sent,
                    seconds: round.length(),
                },
            )
        }
    }
}

/// What arrives in an open loop is a session: its later turns follow their replies.
fn open_loop_rates(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> (Rate, Rate) {
    let Some((start, until)) = planned_span(round, facts) else {
        return Default::default();
    };
    let sent = sessions(round).filter(|row| row.sent().is_some()).count() as f64;
    let planned = sessions(round)
        .filter(|row| row.intended() <= until)
        .count();
    let taken = until.max(last_sent(round)) - start;
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    (
        Rate {
            count: planned as f64,
            seconds: seconds(until - start),
        },
        Rate {
            count: sent,
            seconds: seconds(taken),
        },
    )
}

fn sessions<'a, 'f>(
    round: &Round<'a, 'f>,
) -> impl Iterator<Item = &'f RequestRow<'a>> + use<'a, 'f> {
    round.measured().filter(|row| row.begins_session())
}

fn last_sent(round: &Round<'_, '_>) -> u64 {
    sessions(round)
        .filter_map(|row| row.sent())
        .max()
        .unwrap_or_default()
}

/// When an open loop stopped sending: by its plan, or with its last request where that was late.
fn sent_until(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<u64> {
    Some(planned_span(round, facts)?.1.max(last_sent(round)))
}

/// The planned start and end of sending of an open loop.
fn planned_span(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<(u64, u64)> {
    let first = round.window?.0;
    let last = sessions(round).map(|row| row.intended()).max()?;
    let arrivals = sessions(round).count() as u64;
    // n arrivals span n − 1 gaps; the gap after the last one belongs to the span, too.
    let by_count =
        (last - first) as f64 / arrivals.saturating_sub(1).max(1) as f64 * arrivals as f64;
    Some(by_time(round, facts).unwrap_or((first, first + by_count.round() as u64)))
}

/// The planned start and end of a load that ends by time and not by a number of requests.
fn by_time(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<(u64, u64)> {
    let load = &facts.case.load;
    let first = round.window?.0;
    let begun = round
        .part
        .map_or(first, |part| part.measured_from_ns.min(first));
    let until = facts.until.or(load.sending_end(Some(Nanos(begun))))?;
    // The discarded start precedes the first measured request, and belongs to the plan.
    let settling = round
        .rows
        .iter()
        .filter(|row| row.settling() && row.begins_session())
        .count() as u64;
    let ends_by_count = load
        .requests
        .is_some_and(|most| sessions(round).count() as u64 + settling >= most);
    let start = if settling > 0 { first } else { begun };
    (!ends_by_count).then(|| {
        (
            start,
            until
                .0
                .min(stopped_at(round).unwrap_or(u64::MAX))
                .max(start),
        )
    })
}

/// When sending was stopped before the end of its plan: what was not scheduled any more was not offered.
fn stopped_at(round: &Round<'_, '_>) -> Option<u64> {
    let stopped_early = |part: &&Part| {
        part.cut_short.is_some()
            || part.ending.is_some()
            || part.probe.is_some_and(|probe| probe.hopeless)
    };
    round.part.filter(stopped_early)?.sending_until_ns
}

#[cfg(test)]
mod tests;
