//! The window that throughputs are over, and what arrived in it.
//!
//! ```text
//! first send   first success           sending stops     last end
//!     |  start      |<---- throughputs ---->|    drain      |
//! ```
//! The drain has ever fewer requests in flight, and before the first success none can have ended: both would make a throughput
//! depend on how long the run is.

use crate::CaseFacts;
use crate::rates;
use crate::request_row::RequestRow;
use crate::round::{Round, rounds};
use crate::sample::given_up;
use crate::table::Table;
use llmscen_core::load::Shape;
use llmscen_core::sample::{Amounts, Flow, Row};
use llmscen_core::stats::long_run::BINS;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// From the first success, or the first measured `intended` where that is later, until sending stops, in nanoseconds. What
/// arrives at its beginning was made before it and is left out; what arrives at its end is in it. None without length.
pub(super) fn sending(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<Range<u64>> {
    let (first, last) = round.window?;
    let sending = match facts.case.load.shape {
        // All is due at once, or batch after batch, each with its own end: the work is what lasts until the last end.
        Shape::Burst | Shape::Static { .. } => first..last,
        Shape::Open { .. } | Shape::Replay { .. } | Shape::Rates { .. } => begins(round, first)..rates::sent_until(round, facts)?,
        Shape::Closed { .. } | Shape::Users { .. } => begins(round, first)..last_user(round, facts)?,
    };
    (!sending.is_empty()).then_some(sending)
}

/// The first success of the round, warm-up among them. Where there is none, all of the time counts: the throughput is 0.
fn begins(round: &Round<'_, '_>, first: u64) -> u64 {
    let succeeded = round.rows.iter().filter(|fact| fact.ok()).map(|fact| fact.end()).min();
    succeeded.map_or(first, |end| end.max(first))
}

/// When a closed loop stops to keep all of its users busy: at the end of its time, or when the first user finds nothing more to
/// send.
fn last_user(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<u64> {
    if let Some((_, until)) = rates::by_time(round, facts).filter(|_| !round.part.is_some_and(|part| part.dataset_ended)) {
        return Some(until);
    }
    let started = round.measured().filter(|fact| fact.turn() == 0).filter_map(|fact| fact.sent()).max()?;
    // A user is busy with a conversation until its last turn has ended.
    let sessions = round.rows.chunk_by(|a, b| a.seq() == b.seq());
    let ends = sessions.filter_map(|turns| turns.iter().filter(|fact| fact.sent().is_some()).map(|fact| fact.end()).max());
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
    let all: Vec<RequestRow<'_>> = table.rows_of_case(&facts.case.id).into_iter().filter(|fact| !given_up(fact, facts)).collect();
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

type Tags = (u32, Option<Arc<str>>, Arc<str>, u32);

/// What arrived in the windows, by the tags of the requests.
pub(super) fn flows(rounds: &[Round<'_, '_>], facts: &CaseFacts<'_>) -> Vec<Flow> {
    let mut flows: BTreeMap<Tags, BTreeMap<u16, Amounts>> = BTreeMap::new();
    for (round, window) in rounds.iter().filter_map(|round| Some((round, sending(round, facts)?))) {
        for fact in round.rows.iter().filter(|fact| fact.sent().is_some()) {
            let mut own = Vec::new();
            arrivals(fact, &window, &mut |bin, amounts| own.push((bin, amounts)));
            if own.is_empty() {
                continue;
            }
            let bins = flows.entry((fact.round(), fact.group().cloned(), fact.model(), fact.turn())).or_default();
            own.into_iter().for_each(|(bin, amounts)| bins.entry(bin).or_default().add(amounts));
        }
    }
    let flow = |((round, group, model, turn), bins): (Tags, _)| Flow {
        like: Row { round, place: (0, turn), group, model, ..Row::default() },
        bins,
    };
    flows.into_iter().map(flow).collect()
}

/// Tokens count when they arrive, prompt tokens with the first of them; a reply that is not streamed counts at its end.
fn arrivals(fact: &RequestRow<'_>, window: &Range<u64>, put: &mut impl FnMut(u16, Amounts)) {
    let events = fact.events();
    let (output, prompt) = (fact.output_tokens().map(|tokens| tokens as f64), fact.prompt_tokens().map(|tokens| tokens as f64));
    // Where one of the two is unknown, so is their sum.
    let (made, read) = (if prompt.is_some() { 1.0 } else { 0.0 }, prompt.filter(|_| output.is_some()).unwrap_or(0.0));
    if let Some(bin) = bin(fact.end(), window) {
        let whole = output.filter(|_| events.is_empty()).unwrap_or(0.0);
        let ok = Amounts {
            ended: 1.0,
            requests: 1.0,
            items: fact.items().map_or(0.0, |items| items as f64),
            output: whole,
            total: whole * made + if events.is_empty() { read } else { 0.0 },
        };
        put(bin, if fact.ok() { ok } else { Amounts { ended: 1.0, ..Amounts::default() } });
    }
    if !fact.ok() || output.is_none() {
        return;
    }
    if let Some(bin) = events.first().and_then(|first| bin(*first, window)) {
        put(bin, Amounts { total: read, ..Amounts::default() });
    }
    let mut from = events.partition_point(|event| *event <= window.start);
    while let Some(own) = events.get(from).and_then(|event| bin(*event, window)) {
        let until = from + events.get(from..).unwrap_or_default().partition_point(|event| bin(*event, window) == Some(own));
        let tokens = fact.tokens_in(from..until);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failed, outcome, stream, table, warmup};
    use crate::sample::sample;
    use llmscen_core::load::{Arrival, Load};
    use llmscen_core::manifest::Part;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::{FailureKind, Outcome};
    use llmscen_core::units::Nanos;

    const MS: u64 = 1_000_000;

    /// The window in milliseconds.
    fn window(rows: &[Outcome], shape: Shape, change: impl FnOnce(&mut Load), part: Part) -> Option<(u64, u64)> {
        let (table, mut case) = (table("a", rows), case(shape));
        change(&mut case.load);
        let rows = table.rows_of_case("a");
        let parts = [Part { case: "a".into(), ..part }];
        let facts = CaseFacts { case: &case, parts: &parts, until: None };
        sending(&rounds(&rows, &facts)[0], &facts).map(|own| (own.start / MS, own.end / MS))
    }

    fn plain(rows: &[Outcome], shape: Shape) -> Option<(u64, u64)> {
        window(rows, shape, |_| {}, Part::default())
    }

    const TWO: Shape = Shape::Closed { users: 2 };
    const OPEN: Shape = Shape::Open { rate: 10.0, arrival: Arrival::Constant };

    #[test]
    fn a_closed_loop_counts_while_all_users_are_busy() {
        // The last request goes out at 70 ms; the first user without another one is free at 90 ms.
        let rows = [stream(0, 0, &[20, 40]), stream(1, 0, &[30, 70]), stream(2, 40, &[50, 90]), stream(3, 70, &[80, 150])];
        assert_eq!(plain(&rows, TWO), Some((40, 90)));
        assert_eq!(plain(&rows[..2], TWO), None, "nobody sent twice, so that the window has no length");
        assert_eq!(plain(&rows[..1], Shape::Closed { users: 1 }), None);
        assert_eq!(
            plain(&[warmup(stream(0, 0, &[20, 40])), stream(1, 40, &[60, 80])], Shape::Closed { users: 1 }),
            Some((40, 80))
        );
        let late = [failed(0, FailureKind::Decode), failed(1, FailureKind::Decode)];
        assert_eq!(plain(&late, Shape::Closed { users: 1 }), Some((0, 182)), "without any success all of the time counts");
    }

    #[test]
    fn time_and_what_cuts_it_short_end_a_closed_loop() {
        let rows = [stream(0, 0, &[20, 40]), stream(1, 40, &[60, 80]), stream(2, 80, &[90, 200])];
        let timed = |load: &mut Load| load.duration = Some(Nanos::from_millis(100));
        let one = Shape::Closed { users: 1 };
        assert_eq!(window(&rows, one.clone(), timed, Part::default()), Some((40, 100)));
        let cut = Part { cut_short: Some("interrupted".into()), sending_until_ns: Some(90 * MS), ..Part::default() };
        assert_eq!(window(&rows, one.clone(), timed, cut), Some((40, 90)));
        let ended = Part { dataset_ended: true, ..Part::default() };
        assert_eq!(window(&rows, one, timed, ended), Some((40, 200)), "the data ended first, with the last request");
    }

    #[test]
    fn an_open_loop_counts_until_its_arrivals_end() {
        let rows: Vec<_> = (0..5).map(|k| stream(k, k * 100, &[k * 100 + 60, k * 100 + 250])).collect();
        assert_eq!(plain(&rows, OPEN), Some((250, 500)), "one gap more than from the first to the last");
        assert_eq!(plain(&rows, Shape::Burst), Some((0, 650)), "a burst is over with its last end");
        assert_eq!(plain(&rows[..2], OPEN), None, "nothing had ended when the sending stopped");
    }

    #[test]
    fn tokens_count_when_they_arrive_and_replies_without_a_stream_at_their_end() {
        // The window is from 82 to 182 ms: the last request is sent at 102.
        let mut left = stream(9, 0, &[85, 90]);
        left.end = failed(1, FailureKind::Abandoned).end;
        let rows = [warmup(stream(0, 0, &[50, 90, 100, 190])), outcome(0), outcome(1), left];
        let (table, case) = (table("a", &rows), case(Shape::Closed { users: 3 }));
        let rows = table.rows_of_case("a");
        let facts = CaseFacts { case: &case, parts: &[], until: None };
        let rounds = rounds(&rows, &facts);
        assert_eq!(sending(&rounds[0], &facts), Some(82 * MS..182 * MS));
        let sum = flows(&rounds, &facts).iter().flat_map(|flow| flow.bins.values()).fold(Amounts::default(), |mut sum, own| {
            sum.add(*own);
            sum
        });
        // Two of four tokens of the stream, whose prompt was read before; 4 and 10 of the whole reply; one user left.
        assert_eq!(sum, Amounts { ended: 2.0, requests: 1.0, items: 0.0, output: 6.0, total: 16.0 });
        let seen = sample(&table, &facts).scalars;
        let of = |metric| seen[&metric];
        assert_eq!([Metric::OutputTps, Metric::TotalTps, Metric::RequestThroughput].map(of), [60.0, 160.0, 10.0]);
        assert_eq!((of(Metric::ThroughputWindow), of(Metric::OutputTpsWithDrain)), (0.1, 8.0 / 0.182));
    }

    #[test]
    fn a_drain_of_more_than_one_percent_is_told() {
        let told = |last: u64| {
            let rows = [stream(0, 0, &[50, 1000]), stream(1, 0, &[70, last]), stream(2, 1000, &[1100, 2000])];
            let (table, case) = (table("a", &rows), case(TWO));
            drain(&table, &CaseFacts { case: &case, parts: &[], until: None })
        };
        assert_eq!(told(2020), None);
        let words = "Requests in flight took 0.500 s to end after sending had stopped, 20.0 % of the run. This drain is in no \
                     throughput; the figures `…_with_drain` have it.";
        assert_eq!(told(2500).as_deref(), Some(words));
    }

    #[test]
    fn the_parts_of_a_window_hold_their_ends() {
        let window = 0..2400;
        assert_eq!([0, 1, 10, 11, 2400, 2401].map(|at| bin(at, &window)), [None, Some(0), Some(0), Some(1), Some(239), None]);
    }
}
