use super::*;
use llmscen_client::http::dropped_outcome;
use llmscen_core::outcome::{Failure, Finish};
use llmscen_core::plan::Plan;
use llmscen_core::request::PreparedRequest;
use llmscen_core::units::Nanos;
use llmscen_scenario::Input;
use std::path::Path;

fn plan(load: &str, slo: &str) -> Plan {
    let text = format!(
        "version: 1\nname: t\ntarget: {{ url: \"http://h/v1/chat/completions\", model: m }}\n\
         dataset: {{ kind: prompt, text: x }}\nload: {load}\nslo: [{slo}]\n"
    );
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    llmscen_scenario::load(&input)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan
}

fn early_stop(load: &str, slo: &str) -> EarlyStopMonitor {
    let case = &plan(load, slo).cases[0];
    EarlyStopMonitor::over(case, 0, case.load.planned(), Shard::default()).unwrap()
}

/// Request `seq`, due at 10 ms × seq, with a response after `wait` ms.
fn reply(seq: u64, wait: u64) -> Outcome {
    let mut outcome = dropped_outcome(
        &PreparedRequest {
            seq,
            turns: 1,
            ..PreparedRequest::default()
        },
        Phase::Measured,
        Nanos::from_millis(10 * seq),
        "",
    );
    outcome.timeline.sent = Some(outcome.timeline.intended);
    outcome.timeline.end = outcome.timeline.intended + Nanos::from_millis(wait);
    outcome.end = Ok(Finish {
        reason: "stop".into(),
    });
    outcome
}

fn failure(seq: u64, kind: FailureKind) -> Outcome {
    Outcome {
        end: Err(Failure::new(kind, "no")),
        ..reply(seq, 1)
    }
}

const CLOSED: &str = "{ concurrency: 4, requests: 400, warmup: 8 }";
const ERRORS: &str = "{ expr: 'error_rate < 10%', abort: { min_samples: 20 } }";

#[test]
fn a_case_without_a_reason_to_end_early_is_not_checked() {
    let case = &plan(CLOSED, "'e2e.p95 < 1s'").cases[0];
    assert!(EarlyStopMonitor::over(case, 0, None, Shard::default()).is_none());
    let closed = &plan("{ rate: 5/s, requests: 9 }", "").cases[0];
    assert!(EarlyStopMonitor::over(closed, 0, None, Shard::default()).is_none());
}

#[test]
fn a_failed_objective_is_returned_once_with_its_evidence() {
    let slo = "'e2e.p95 < 1s', { expr: 'e2e.p95 < 20ms', abort: { min_samples: 50 } }";
    let mut early_stop = early_stop(CLOSED, slo);
    let warm = |seq| Outcome {
        phase: Phase::Warmup,
        ..reply(seq, 900)
    };
    assert!(
        (0..8).all(|seq| early_stop.see(&warm(seq), || 4).is_none()),
        "warm-up is not judged"
    );
    let endings: Vec<EarlyStop> = (8..108)
        .filter_map(|seq| early_stop.see(&reply(seq, 30), || 4))
        .collect();
    let [EarlyStop::Aborted(lost)] = endings.as_slice() else {
        panic!("{endings:?}")
    };
    assert_eq!(
        (lost.check, lost.after, lost.n, lost.breaking, lost.planned),
        (1, 50, 50, 50, Some(400))
    );
    assert_eq!((lost.expr.as_str(), lost.alpha), ("e2e.p95 < 20ms", 0.01));
    assert_eq!(
        lost.at_s, 0.6,
        "request 57 is the fiftieth measured one, and ends 30 ms after its time"
    );
    assert!((lost.allowed - 0.05).abs() < 1e-12);
}

#[test]
fn failures_that_end_before_slow_replies_do_not_end_the_round() {
    let mut early_stop = early_stop(CLOSED, ERRORS);
    let failed = |seq: &u64| seq.is_multiple_of(20);
    // One of twenty requests fails at once, the others take long: in the order of their ends, forty failures would be
    // first.
    let mut early: Vec<u64> = (0..800).filter(failed).collect();
    early.extend((0..800).filter(|seq| !failed(seq)));
    for seq in early {
        let outcome = if failed(&seq) {
            failure(seq, FailureKind::Http5xx)
        } else {
            reply(seq, 500)
        };
        assert_eq!(early_stop.see(&outcome, || 4), None, "{seq}");
    }
}

#[test]
fn cancelled_requests_are_not_failures_of_the_server() {
    let mut early_stop = early_stop(CLOSED, ERRORS);
    assert!((0..60).all(|seq| {
        early_stop
            .see(&failure(seq, FailureKind::Cancelled), || 4)
            .is_none()
    }));
    assert!((60..120).any(|seq| {
        early_stop
            .see(&failure(seq, FailureKind::Http5xx), || 4)
            .is_some()
    }));
}

#[test]
fn a_request_that_hangs_does_not_delay_the_end() {
    let mut early_stop = early_stop(CLOSED, ERRORS);
    let warm = |seq| Outcome {
        phase: Phase::Warmup,
        ..reply(seq, 1)
    };
    assert!((0..8).all(|seq| early_stop.see(&warm(seq), || 4).is_none()));
    // Request 8 hangs; 9 ends at 91 ms, and waits for it until 110 ends at 1101 ms.
    let mut see = |seq| {
        Some((
            seq,
            early_stop.see(&failure(seq, FailureKind::Http5xx), || 4)?,
        ))
    };
    let endings: Vec<(u64, EarlyStop)> = (9..400).filter_map(&mut see).collect();
    let [(110, EarlyStop::Aborted(lost))] = endings.as_slice() else {
        panic!("{endings:?}")
    };
    assert_eq!(
        (lost.n, lost.breaking),
        (20, 19),
        "the one that hangs counts as kept"
    );
}

#[test]
fn a_request_that_is_passed_over_counts_once_and_as_met() {
    let mut order = Order::default();
    let mut add = |seq, at, took| {
        let ended = Ended {
            turns: 1,
            at: Nanos::from_millis(at),
            flags: vec![Some(true)],
        };
        order.add((seq, 0), ended, Nanos::from_millis(took));
        std::iter::from_fn(|| order.next())
            .flatten()
            .flatten()
            .collect::<Vec<_>>()
    };
    assert!(
        [(2, 10), (3, 20), (5, 1500)]
            .iter()
            .all(|&(seq, at)| add(seq, at, 200).is_empty())
    );
    // Eight times 200 ms behind the end of request 2, the two before it are passed over; request 5 has not waited as
    // long.
    assert_eq!(add(6, 1620, 200), [false, false, true, true]);
    assert!(add(1, 1612, 1600).is_empty(), "it has counted");
    assert_eq!(add(4, 1613, 100), [true, true, true]);
    assert!(add(0, 1614, 1600).is_empty());
}

#[test]
fn turns_of_a_session_are_waited_for() {
    let mut order = Order::default();
    let mut add = |seq, turn, turns| {
        let ended = Ended {
            turns,
            at: Nanos::ZERO,
            flags: vec![Some(turn > 0)],
        };
        order.add((seq, turn), ended, Nanos::ZERO);
        std::iter::from_fn(|| order.next())
            .flatten()
            .flatten()
            .collect::<Vec<_>>()
    };
    assert!(add(1, 0, 1).is_empty());
    assert_eq!(add(0, 0, 2), [false]);
    assert!(add(2, 0, 1).is_empty());
    assert_eq!(
        add(0, 1, 2),
        [true, false, false],
        "then what waited for them"
    );
    assert_eq!(
        add(0, 1, 2),
        [true],
        "what comes behind its turn is taken at once"
    );
}

#[test]
fn a_saturated_open_loop_is_detected_with_its_start() {
    let mut early_stop = early_stop(
        "{ rate: 100/s, requests: 9000, stop_when_saturated: true }",
        "",
    );
    let ending =
        (0..2000).find_map(|seq| early_stop.see(&reply(seq, 5 * seq + seq % 7), || seq / 2));
    let Some(EarlyStop::Saturated(seen)) = ending else {
        panic!("{ending:?}")
    };
    // One reply every 15 ms, each 5 ms slower than the one before.
    assert!(
        (seen.ttft_slope - 1000.0 / 3.0).abs() < 5.0
            && (seen.in_flight_slope - 100.0 / 3.0).abs() < 1.0,
        "{seen:?}"
    );
    assert!(
        seen.from_s > 1.5 && seen.from_s < 2.5 && seen.at_s > 7.0 && seen.at_s < 8.0,
        "{seen:?}"
    );
    assert!(
        (0..2000).all(|seq| early_stop.see(&reply(seq, 5 * seq), || seq).is_none()),
        "once is enough"
    );
}

#[test]
fn a_closed_loop_is_not_checked_for_saturation() {
    let case = &plan("{ concurrency: 4, requests: 400 }", "").cases[0];
    assert!(EarlyStopMonitor::over(case, 0, None, Shard::default()).is_none());
}

#[test]
fn the_sums_of_shards_end_a_round_as_late_as_ten_heartbeats() {
    let plan = plan(CLOSED, ERRORS);
    let case = &plan.cases[0];
    let shard = |index| Shard { index, count: 4 };
    let mut shards: Vec<EarlyStopMonitor> = (0..4)
        .map(|index| EarlyStopMonitor::over(case, 0, Some(400), shard(index)).unwrap())
        .collect();
    let mut decide = GroupDecide::new(case, Some(400)).unwrap();
    let mut ended = Vec::new();
    for beat in 1..=12u64 {
        let mut counts = BTreeMap::new();
        for (index, own) in (0u32..).zip(&mut shards) {
            for seq in 0..8 {
                let failed = failure(seq, FailureKind::Http5xx);
                let outcome = if seq < 2 { failed } else { reply(seq, 5) };
                assert_eq!(own.see(&outcome, || 4), None, "shard 0 decides");
            }
            let counts_of_shard = RoundCounts {
                in_flight: 1,
                objectives: own.counts(),
                at: Nanos::from_millis(2000 * beat + u64::from(index)),
                ..RoundCounts::default()
            };
            counts.insert(index, counts_of_shard);
        }
        let ending = decide.decide(&counts);
        assert_eq!(
            decide.decide(&counts),
            None,
            "the same counts are no new batch"
        );
        ended.extend(ending.map(|ending| (beat, ending)));
    }
    let (beat, EarlyStop::Aborted(aborted)) = &ended[0] else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (*beat, aborted.n, aborted.breaking, aborted.planned),
        (10, 320, 80, Some(392))
    );
    assert_eq!((aborted.allowed, aborted.at_s), (0.1, 20.003));
}

#[test]
fn shards_without_a_watched_objective_decide_nothing() {
    let case = &plan(CLOSED, "'e2e.p95 < 1s'").cases[0];
    assert!(GroupDecide::new(case, None).is_none());
}
