use super::*;
use crate::run::audit::tests::case;
use crate::run::audit::tests::texts;
use llmscen_core::load::{AtLimit, MaxInFlight};
use llmscen_core::manifest::Stall;
use llmscen_core::sample::Counts;
use llmscen_core::units::Nanos;

const SKEW: AuditLimits = AuditLimits {
    lag_p99: Nanos(1_000_000),
    achieved: 0.98,
    cpu: 0.9,
    stall_p99: Nanos(1_000_000),
    idle: 0.1,
    stalled: 0.05,
    cache: 0.01,
    skew: Some(Nanos(50_000_000)),
    repeats_wanted: false,
};

fn shard(index: u32) -> ShardPart {
    ShardPart {
        index,
        host: format!("host-{index}"),
        bound_ns: 300_000,
        offset_source: "exchange".into(),
        ..ShardPart::default()
    }
}

/// Four shards with 400 requests each, without delays.
fn samples() -> BTreeMap<u32, ShardSample> {
    let own = ShardSample {
        without_file: 0,
        requests: 400,
        ok: 400,
        dropped: 0,
        send_delays_ms: vec![0.1; 400],
        ttft_ms: (0..400).map(|at| f64::from(at * 7 % 40) + 80.0).collect(),
    };
    (0..4).map(|index| (index, own.clone())).collect()
}

fn audited(shards: Vec<ShardPart>, samples: &BTreeMap<u32, ShardSample>) -> ShardAudit {
    let part = Part {
        shards,
        ..Part::default()
    };
    audit_shards(
        &case("http://x"),
        &[part],
        samples,
        &Sample::default(),
        &SKEW,
    )
}

fn four(change: impl Fn(&mut ShardPart)) -> Vec<ShardPart> {
    let mut shards: Vec<ShardPart> = (0..4).map(shard).collect();
    change(&mut shards[2]);
    shards
}

#[test]
fn healthy_shards_have_records_and_no_reason() {
    assert_eq!(
        audited(Vec::new(), &samples()),
        ShardAudit::default(),
        "a plain run has no shards"
    );
    let seen = audited(four(|_| ()), &samples());
    assert!(seen.records.iter().all(|one| one.reasons.is_empty()) && seen.notes.is_empty());
    let one = &seen.records[2];
    assert_eq!(
        (
            one.name(),
            one.requests,
            one.ok,
            one.send_delay_ms_p99,
            one.bound_ms
        ),
        ("shard 2 (host-2)".into(), 400, 400, Some(0.1), 0.3)
    );
    assert_eq!(
        (one.ttft_ms_p50, one.ttft_ms_p99),
        (Some(99.0), Some(119.0))
    );
    assert_eq!(seen.p_value, Some(1.0), "equal shards");
}

#[test]
fn a_shard_that_was_lost_late_or_behind_is_named() {
    let reasons = |change: &dyn Fn(&mut ShardPart)| {
        let mut seen = audited(four(change), &samples());
        seen.records.swap_remove(2).reasons
    };
    let off_plan =
        |text: &str| vec![Cause::OffPlan.reason(format_args!("shard 2 (host-2): {text}"))];
    let lost =
        "shard 2 was lost 41 s into the round; its last rows are missing: the load was below plan";
    assert_eq!(
        reasons(&|shard| shard.lost = Some(lost.into())),
        [Cause::OffPlan.reason(lost)]
    );
    assert_eq!(
        reasons(&|shard| shard.clock_step_ns = Some(12_000_000)),
        off_plan("its clock stepped by 12 ms during the round; check its time synchronization")
    );
    assert!(
        reasons(&|shard| shard.late = true)[0]
            .text()
            .contains("too late to open its connections")
    );
    let vitals = |shut: f64, cpu: f64| Vitals {
        cpu_shares: vec![0.2, cpu],
        stalls: Some(vec![WorkerStalls {
            shut,
            ticks: 1000,
            count: 1,
            longest: vec![Stall {
                from: 0,
                to: 3_000_000_000,
                busy: 0,
                after: 0,
            }],
            ..WorkerStalls::default()
        }]),
        ..Vitals::default()
    };
    assert_eq!(
        texts(&reasons(&|shard| shard.vitals = Some(vitals(0.3, 0.95)))),
        [
            "shard 2 (host-2): one worker thread was stalled for 30% of the time (limit 5%, `audit.stalled`)",
            "shard 2 (host-2): one worker thread used 95% of a CPU core (limit 90%, `audit.cpu`)"
        ]
    );
    let mut late = samples();
    late.get_mut(&2).unwrap().send_delays_ms = (0..400).map(|at| f64::from(at) / 10.0).collect();
    let seen = audited(four(|_| ()), &late);
    let known = "shard 2 (host-2): send delay p99 is 39.5 ms (limit 1 ms, `audit.lag_p99`)";
    assert_eq!(texts(&seen.records[2].reasons), [known]);
    let delayed = DelayedShard {
        name: "shard 2 (host-2)".into(),
        p99_ms: 39.5,
        reason: Some(Cause::LoadGenerator.reason(known)),
    };
    assert_eq!((seen.delayed, seen.invalidating), (Some(delayed), vec![]));
    late.get_mut(&2).unwrap().send_delays_ms = vec![0.1; 400];
    late.get_mut(&2).unwrap().send_delays_ms[399] = 3000.0;
    assert!(
        audited(four(|_| ()), &late).delayed.is_none(),
        "one late request is no p99"
    );
}

#[test]
fn clocks_are_compared_with_the_limit() {
    let seen = |shape: Shape, offset: i64, bound: u64| {
        let mut case = case("http://x");
        case.load.shape = shape;
        let change = |shard: &mut ShardPart| {
            (shard.offset_ns, shard.bound_ns) = (offset * 1_000_000, bound * 1_000_000);
        };
        let part = Part {
            shards: four(change),
            ..Part::default()
        };
        let audit = audit_shards(&case, &[part], &samples(), &Sample::default(), &SKEW);
        (audit.invalidating.len(), !audit.notes.is_empty())
    };
    let open = |arrival| Shape::Open { rate: 9.0, arrival };
    assert_eq!(seen(open(Arrival::Constant), 0, 60), (1, false));
    assert_eq!(seen(Shape::Burst, 0, 60), (1, false));
    assert_eq!(seen(open(Arrival::Poisson), 0, 60), (0, true));
    assert_eq!(seen(Shape::Closed { users: 4 }, 0, 60), (0, true));
    assert_eq!(seen(open(Arrival::Constant), 0, 40), (0, false));
    assert_eq!(
        seen(open(Arrival::Poisson), -200, 1),
        (1, false),
        "known to be off"
    );
    assert_eq!(
        seen(open(Arrival::Poisson), 52, 4),
        (0, false),
        "corrected, and perhaps below"
    );
}

#[test]
fn dropped_arrivals_of_a_split_limit_deviate_from_the_plan() {
    let mut case = case("http://x");
    case.load.max_in_flight = Some(MaxInFlight {
        of: 8,
        then: AtLimit::Drop,
    });
    let counts = Counts {
        dropped: 31,
        ..Counts::default()
    };
    let sample = Sample {
        counts,
        ..Sample::default()
    };
    let part = Part {
        shards: four(|_| ()),
        ..Part::default()
    };
    let audit = audit_shards(&case, &[part], &samples(), &sample, &SKEW);
    assert_eq!(
        audit.invalidating,
        [Cause::OffPlan.reason(
            "31 arrivals were dropped at `load.max_in_flight`, which is split over 4 shards; raise it"
        )]
    );
}

#[test]
fn a_shard_with_another_ttft_is_noted() {
    let mut far = samples();
    let ttfts = &mut far.get_mut(&3).unwrap().ttft_ms;
    ttfts.iter_mut().for_each(|ttft| *ttft += 18.0);
    let (far, near) = (
        audited(four(|_| ()), &far),
        audited(four(|_| ()), &samples()),
    );
    let notes = ttft_notes(&[
        (&near.records, near.p_value),
        (&near.records, None),
        (&far.records, far.p_value),
    ]);
    let note = "shard 3 (host-3): TTFT 18 ms higher than the median of the other shards.";
    assert_eq!(notes, [vec![], vec![], vec![note.to_owned()]]);
}
