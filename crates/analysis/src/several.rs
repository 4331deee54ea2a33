//! Requests of several choices, of several turns, of several inputs: what each figure takes from them.

use crate::fixture::{case, facts as case_facts, failed, outcome, stream, table};
use crate::sample::sample;
use llmscen_core::load::{Arrival, Shape};
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{FailureKind, Outcome, ServerTimes};
use llmscen_core::sample::Sample;
use llmscen_core::units::Nanos;

/// Two choices whose events interleave: 0 at 50, 70, 90, 1 at 60, 80, 120, three tokens each.
fn two_choices() -> Outcome {
    let mut reply = stream(0, 0, &[50, 60, 70, 80, 90, 120]);
    reply.timeline.choices = vec![0, 1, 0, 1, 0, 1];
    reply
}

fn figures(rows: &[Outcome], shape: Shape) -> Sample {
    sample(&table("a", rows), &case_facts(&case(shape)))
}

fn value(sample: &Sample, row: usize, metric: Metric) -> Option<f64> {
    sample.rows[row].values.get(&metric).copied()
}

#[test]
fn each_choice_has_its_own_pace() {
    let seen = figures(&[two_choices()], Shape::Closed { users: 1 });
    assert_eq!(seen.rows[0].gaps, [20.0, 20.0, 20.0, 40.0]);
    // 40 + 60 ms over 6 tokens of which 2 were the first of their choice.
    assert_eq!((value(&seen, 0, Metric::Ttft), value(&seen, 0, Metric::Tpot)), (Some(50.0), Some(25.0)));
    let table = table("a", &[two_choices(), stream(1, 0, &[9, 19])]).frame(0..2).unwrap();
    let list = |name: &str, row| {
        let column = table.column(name).unwrap().list().unwrap().get_as_series(row);
        column.map(|list| list.f64().unwrap().into_no_null_iter().collect::<Vec<_>>())
    };
    assert_eq!((list("choice_ttft_ms", 0), list("choice_ttlt_ms", 0)), (Some(vec![50.0, 60.0]), Some(vec![90.0, 120.0])));
    assert_eq!(list("choice_ttft_ms", 1), None);
    let choices = table.column("choices").unwrap().u32().unwrap();
    assert_eq!((choices.get(0), choices.get(1)), (Some(2), Some(1)));
}

#[test]
fn the_servers_own_count_of_an_event_is_its_weight() {
    let mut reply = stream(0, 0, &[100, 200, 300]);
    (reply.usage.output, reply.timeline.weights) = (Some(10), vec![1, 7, 2]);
    let table = table("a", &[reply]);
    let facts = table.rows_of_case("a");
    assert_eq!((0..3).map(|event| facts[0].event_weight(event)).collect::<Vec<_>>(), [1.0, 7.0, 2.0]);
    assert_eq!((facts[0].tokens_in(0..2), facts[0].tokens_in(0..0)), (8.0, 0.0));
}

#[test]
fn a_session_counts_where_every_turn_succeeded_and_arrives_once() {
    let turn = |seq, turn, outcome: Outcome| Outcome { seq, turn, turns: 2, ..outcome };
    let rows = [
        turn(0, 0, stream(0, 0, &[50, 100])),
        turn(0, 1, stream(0, 120, &[150, 190])),
        turn(1, 0, stream(1, 100, &[130, 140])),
        turn(1, 1, failed(4, FailureKind::Dropped)),
    ];
    let seen = figures(&rows, Shape::Open { rate: 10.0, arrival: Arrival::Constant });
    let ttft = |metric| seen.distributions.get(&metric).map(|spread| (spread.n, spread.max));
    assert_eq!((ttft(Metric::TtftFirstTurn), ttft(Metric::TtftLaterTurns)), (Some((2, 50.0)), Some((1, 30.0))));
    // Two sessions arrived, 100 ms apart: sending ends at 200 ms; the first turn ended at 100 ms, its session at 190.
    assert_eq!(seen.scalars[&Metric::SessionThroughput], 10.0);
    assert_eq!((seen.scalars[&Metric::RateOffered], seen.scalars[&Metric::RateAchieved]), (10.0, 10.0));
    assert_eq!((seen.counts.scheduled, seen.counts.dropped), (4, 1));
    let lonely = figures(&[stream(0, 0, &[50])], Shape::Closed { users: 1 });
    assert!(!lonely.scalars.contains_key(&Metric::SessionThroughput) && value(&lonely, 0, Metric::TtftFirstTurn).is_none());
}

#[test]
fn inputs_and_the_servers_own_times_are_told_as_reported() {
    let server = ServerTimes { load: Some(Nanos(1_500_000)), total: Some(Nanos::from_millis(40)), ..ServerTimes::default() };
    let other = |row: Outcome| Outcome { items: Some(8), ..row };
    let rows = [Outcome { server, ..other(outcome(0)) }, other(failed(1, FailureKind::Decode)), other(outcome(2))];
    let seen = figures(&rows, Shape::Closed { users: 1 });
    assert_eq!((value(&seen, 0, Metric::Items), value(&seen, 1, Metric::Items)), (Some(8.0), None));
    // From the first end, at 82 ms, to the last, at 282 ms.
    assert_eq!(seen.scalars[&Metric::ItemThroughput], 40.0);
    let told = [Metric::ServerLoad, Metric::ServerTotal, Metric::ServerDecode].map(|metric| value(&seen, 0, metric));
    assert_eq!(told, [Some(1.5), Some(40.0), None]);
}

#[test]
fn events_per_reply_are_the_token_events_of_complete_streams() {
    let mut reply = stream(0, 100, &[150, 150, 190]);
    reply.usage.output = Some(12);
    let broken = Outcome { seq: 1, end: failed(1, FailureKind::Truncated).end, ..reply.clone() };
    let seen = figures(&[reply, broken, outcome(2)], Shape::Closed { users: 1 });
    let events = [0, 1, 2].map(|row| value(&seen, row, Metric::EventsPerReply));
    assert_eq!(events, [Some(3.0), None, None]);
    assert_eq!(value(&seen, 0, Metric::TokensPerEvent), Some(4.0));
    let spread = &seen.distributions[&Metric::EventsPerReply];
    assert_eq!((spread.n, spread.max), (1, 3.0));
}
