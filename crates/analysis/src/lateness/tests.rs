use super::*;
use crate::columns::TaggedOutcome;
use crate::fixture::{TestRequest, case, failed, sample_case, sample_of, stream, table};
use llmscen_core::load::Shape;
use llmscen_core::manifest::{Part, ShardPart, WorkerStalls};
use llmscen_core::outcome::{Failure, Outcome};

const MS: u64 = 1_000_000;

/// A part whose workers stalled over these spans, in milliseconds.
fn part(workers: &[&[(u64, u64)]]) -> Part {
    let stall = |(from, to): &(u64, u64)| Stall {
        from: from * MS,
        to: to * MS,
        ..Stall::default()
    };
    let worker = |own: &&[(u64, u64)]| WorkerStalls {
        longest: own.iter().map(stall).collect(),
        ..WorkerStalls::default()
    };
    let stalls = Some(workers.iter().map(worker).collect());
    Part {
        case: "a".into(),
        vitals: Some(Vitals {
            stalls,
            ..Vitals::default()
        }),
        ..Part::default()
    }
}

/// The values of the only request of a case: slow, as measured and fast.
fn ends(outcome: &Outcome, workers: &[&[(u64, u64)]], accepted: Accepted) -> Option<[Sample; 3]> {
    let (table, case, parts) = (
        table("a", std::slice::from_ref(outcome)),
        case(Shape::Closed { users: 1 }),
        [part(workers)],
    );
    let facts = CaseFacts {
        case: &case,
        parts: &parts,
        until: None,
    };
    let own = sample_case(&table, &facts);
    let late = measure_lateness(&table, &facts, accepted)?;
    let [slow, fast] = [End::Slow, End::Fast].map(|end| late.shift(&own, end, 0.0, 0.0).unwrap());
    Some([slow, own, fast])
}

/// Due at 0, sent at 4; tokens at 50, 60 and 100 ms, which is the end.
fn request() -> Outcome {
    let mut own = stream(0, 4, &[50, 60, 100]);
    own.timeline.intended = Nanos::ZERO;
    own.timeline.first_chunk = Some(Nanos::from_millis(40));
    own
}

fn only(sample: &Sample) -> MeasuredRequest<'_> {
    sample.requests.iter().next().unwrap()
}

fn values(samples: &[Sample; 3], metric: Metric) -> [f64; 3] {
    [0, 1, 2].map(|place| (only(&samples[place]).value(metric).unwrap() * 1e6).round() / 1e6)
}

#[test]
fn every_metric_has_its_exact_ends() {
    // The first chunk is read after a stall of 3 ms and 10 ms into one of 20 ms, the first token after that one, the
    // end after one of 8 ms, and the request left after one of 2 ms.
    let samples = ends(
        &request(),
        &[&[(2, 4), (37, 40), (30, 50), (92, 100)]],
        Accepted::default(),
    )
    .unwrap();
    let known = [
        (Metric::Ttft, [50.0, 50.0, 26.0]),
        (Metric::TtftService, [46.0, 46.0, 24.0]),
        (Metric::Ttfc, [36.0, 36.0, 24.0]),
        (Metric::E2e, [100.0, 100.0, 88.0]),
        (Metric::E2eService, [96.0, 96.0, 86.0]),
        // Two steps in 50 ms: the first token may be 20 ms early, the last 8 ms.
        (Metric::Tpot, [35.0, 25.0, 21.0]),
        (Metric::DecodeTps, [28.571429, 40.0, 47.619048]),
        (Metric::Ntpot, [33.333333, 33.333333, 29.333333]),
        (Metric::PrefillTps, [217.391304, 217.391304, 416.666667]),
        (Metric::OutputTpsPerRequest, [30.0, 30.0, 34.090909]),
        (Metric::TotalTpsPerRequest, [130.0, 130.0, 147.727273]),
        (Metric::TtftPerPromptToken, [5.0, 5.0, 2.6]),
        (Metric::ScheduleLag, [4.0, 4.0, 4.0]),
        (Metric::OutputTokens, [3.0, 3.0, 3.0]),
    ];
    for (metric, ends) in known {
        assert_eq!(values(&samples, metric), ends, "{metric}");
    }
    assert_eq!(
        samples.each_ref().map(|own| only(own).gaps()),
        [[30.0, 40.0], [10.0, 40.0], [10.0, 32.0]]
    );
}

#[test]
fn a_timestamp_in_a_stall_or_right_after_it_is_late_by_at_most_the_time_since_its_begin() {
    let stalls = Stalls {
        stalls: [
            [10, 20, 0, 0],
            [30, 60, 5, 0],
            [55, 59, 0, 0],
            [100, 110, 0, 3],
        ]
        .map(|own| own.map(|ms| ms * MS).into())
        .into(),
        longest: 30 * MS,
        after: 3 * MS + AFTER_STALL,
    };
    let mut sorted = stalls;
    sorted.stalls.sort_by_key(|stall: &Stall| stall.to);
    let at = |ms: f64| sorted.at((ms * 1e6) as u64);
    assert_eq!(
        [5.0, 10.0, 15.0, 19.9].map(at),
        [0.0, 0.0, 5.0, 9.9],
        "bytes that arrived before may have been read with these"
    );
    assert_eq!([20.0, 20.9, 21.1].map(at), [10.0, 10.0, 0.0]);
    assert_eq!(
        [110.0, 113.9, 114.1].map(at),
        [10.0, 10.0, 0.0],
        "it worked for 3 ms on what was waiting"
    );
    assert_eq!(
        [29.0, 54.0, 57.5, 60.0, 61.0, 61.1].map(at),
        [0.0, 24.0, 27.5, 30.0, 30.0, 0.0]
    );
}

#[test]
fn what_is_accepted_does_not_count_and_nothing_is_done_where_nothing_is_late() {
    let accepted = Accepted {
        stall: Nanos::from_millis(20),
        delay: Nanos(u64::MAX),
        timestamps: false,
    };
    assert!(ends(&request(), &[&[(30, 50)], &[(92, 100)]], accepted).is_none());
    let samples = ends(&request(), &[&[(29, 50)], &[(92, 100)]], accepted).unwrap();
    assert_eq!(
        (
            values(&samples, Metric::Ttft),
            values(&samples, Metric::E2e)
        ),
        ([50.0, 50.0, 29.0], [100.0; 3])
    );
    assert!(
        ends(
            &request(),
            &[&[(29, 50)]],
            Accepted {
                timestamps: true,
                ..accepted
            }
        )
        .is_none()
    );
    let far = ends(
        &request(),
        &[&[(200, 300)]],
        Accepted {
            delay: Nanos(u64::MAX),
            ..Accepted::default()
        },
    );
    assert!(far.is_none(), "a stall that touched nothing");
    let delayed = |accepted_ms| {
        let accepted = Accepted {
            delay: Nanos::from_millis(accepted_ms),
            ..Accepted::default()
        };
        ends(&request(), &[], accepted).map(|samples| values(&samples, Metric::Ttft))
    };
    assert_eq!([delayed(4), delayed(3)], [None, Some([50.0, 50.0, 46.0])]);
}

#[test]
fn a_failure_of_the_load_generator_may_have_been_a_success() {
    let message = |text: &str| Outcome {
        end: Err(Failure::new(FailureKind::Connect, text)),
        ..failed(0, FailureKind::Connect)
    };
    let ok = |outcome: &Outcome, stalls: &[(u64, u64)]| {
        let accepted = Accepted {
            delay: Nanos(u64::MAX),
            ..Accepted::default()
        };
        ends(outcome, &[stalls], accepted)
            .map(|[_, _, fast]| (only(&fast).ok(), only(&fast).value(Metric::Ttft)))
    };
    assert_eq!(
        ok(&message(Failure::NO_FILES), &[]),
        Some((true, Some(MIN_LATENCY)))
    );
    assert_eq!(
        ok(&message(Failure::NO_PORTS), &[]),
        Some((true, Some(MIN_LATENCY)))
    );
    assert_eq!(
        ok(&failed(0, FailureKind::ToolStall), &[]),
        Some((true, Some(MIN_LATENCY)))
    );
    assert_eq!(ok(&message("connection refused"), &[]), None);
    let slow = failed(0, FailureKind::TimeoutTotal);
    assert_eq!(
        (ok(&slow, &[]), ok(&slow, &[(20, 82)]).map(|own| own.0)),
        (None, Some(true)),
        "it ended at 82 ms"
    );
    assert_eq!(
        ok(&failed(0, FailureKind::Truncated), &[(20, 82)]).map(|own| own.0),
        Some(false)
    );
}

#[test]
fn a_server_may_have_been_faster_by_the_load_that_was_not_there() {
    let (table, case, parts) = (
        table("a", &[request()]),
        case(Shape::Closed { users: 1 }),
        [part(&[&[(30, 50)]])],
    );
    let facts = CaseFacts {
        case: &case,
        parts: &parts,
        until: None,
    };
    let mut own = sample_case(&table, &facts);
    // One request has no throughput.
    own.requests_window.seconds = vec![0.1];
    own.scalars.insert(Metric::OutputTps, 30.0);
    let late = measure_lateness(&table, &facts, Accepted::default()).unwrap();
    let (slow, fast) = (
        late.shift(&own, End::Slow, 0.2, 0.0).unwrap(),
        late.shift(&own, End::Fast, 0.2, 0.0).unwrap(),
    );
    let of = |sample: &Sample| {
        (
            sample.scalars[&Metric::OutputTps],
            sample.windows[0],
            sample.requests_window.seconds[0],
        )
    };
    assert_eq!(
        [&slow, &own, &fast].map(of),
        [(30.0, 0.1, 0.1), (30.0, 0.1, 0.1), (37.5, 0.08, 0.08)]
    );
    // 3 tokens in 100 ms; in 96 ms, as it was sent 4 ms late.
    assert_eq!(
        (
            slow.scalars[&Metric::OutputTpsPerUser],
            fast.scalars[&Metric::OutputTpsPerUser]
        ),
        (30.0, 31.25)
    );
}

#[test]
fn stalls_of_a_shard_delay_only_its_own_requests() {
    let outcome = |seq| Outcome { seq, ..request() };
    let outcomes = [outcome(0), outcome(1)];
    let rows = (0..).zip(&outcomes).map(|(shard, outcome)| TaggedOutcome {
        case: "a",
        round: 0,
        shard,
        outcome,
    });
    let (table, case) = (
        Table::build(rows).unwrap(),
        case(Shape::Closed { users: 2 }),
    );
    // The merged part has the stalls of both shards.
    let stalled = part(&[&[(30, 50)]]);
    let shard = |index, part: &Part| ShardPart {
        index,
        vitals: part.vitals.clone(),
        ..ShardPart::default()
    };
    let parts = [Part {
        shards: vec![shard(0, &part(&[])), shard(1, &stalled)],
        ..stalled
    }];
    let facts = CaseFacts {
        case: &case,
        parts: &parts,
        until: None,
    };
    let late = measure_lateness(
        &table,
        &facts,
        Accepted {
            delay: Nanos(u64::MAX),
            ..Accepted::default()
        },
    )
    .unwrap();
    let sample = sample_case(&table, &facts);
    let fast = late.shift(&sample, End::Fast, 0.0, 0.0).unwrap();
    let ttft: Vec<f64> = fast.requests.values(Metric::Ttft).collect();
    assert_eq!(ttft, [50.0, 30.0]);
}

#[test]
fn some_of_the_requests_are_slowed_down_as_all_are() {
    let all = sample_of((1..=4).map(|n| TestRequest {
        ok: true,
        busy_ms: 100.0,
        values: vec![(Metric::Tpot, f64::from(n))],
        gaps: vec![f64::from(n)],
        ..TestRequest::default()
    }));
    let of = |sample: &Sample| {
        let slowed = slow_down(sample, 0.5).unwrap().requests;
        let values: Vec<f64> = slowed.values(Metric::Tpot).collect();
        let gaps: Vec<f64> = slowed
            .iter()
            .flat_map(|request| request.gaps().to_vec())
            .collect();
        (values, gaps)
    };
    let numbers = |from: u32| (from..=4).map(|n| f64::from(n) * 4.0).collect::<Vec<f64>>();
    assert_eq!(of(&all), (numbers(1), numbers(1)));
    let some = |sample: &Sample, above: f64| {
        let is_kept = |request: MeasuredRequest<'_>| request.value(Metric::Tpot) > Some(above);
        sample.with_requests(sample.requests.select(is_kept))
    };
    assert_eq!(of(&some(&all, 1.0)), (numbers(2), numbers(2)));
    assert_eq!(of(&some(&some(&all, 1.0), 2.0)), (numbers(3), numbers(3)));
    assert_eq!(of(&Sample::default()), (Vec::new(), Vec::new()));
}
