use super::*;
use crate::fixture::TestRequest;
use crate::judge::fixture::{check, goodput, ok, sample};
use crate::judge::{Conditions, LoadKind, rule};
use llmscen_core::check::{Op, RequestLimit, Ruling, Verdict};
use llmscen_core::metric::Stat;

const P95: Option<Stat> = Some(Stat::Quantile(0.95));

/// 400 arrivals, one in each second, of which one ends in `step` seconds. TTFT does not show the growing queue.
fn served(step: f64) -> Sample {
    let row = |k: u32| TestRequest {
        scheduled_s: f64::from(k),
        values: vec![
            (Metric::Ttft, 1000.0 + f64::from(k * 37 % 101)),
            (
                Metric::E2e,
                3000.0 + f64::from(k) * (step - 1.0) * 1e3 + f64::from(k * 53 % 211),
            ),
            (Metric::Tpot, 10.0 + f64::from(k * 11 % 7)),
        ],
        ..ok(Metric::ErrorRate, 0.0)
    };
    Sample {
        scalars: [(Metric::RateOffered, 1.0)].into(),
        ..sample((0..400).map(row).collect())
    }
}

fn overloaded() -> Sample {
    served(4.0 / 3.0)
}

fn ruled(check: &Check, sample: &Sample) -> Verdict {
    rule(check, sample, &Conditions::of(sample, LoadKind::Arrivals))
}

#[test]
fn no_limit_on_waits_passes_in_an_overload() {
    let overloaded = overloaded();
    let limit = RequestLimit {
        metric: Metric::E2e,
        op: Op::Less,
        limit: 1e6,
    };
    for wanted in [
        check(Metric::Ttft, P95, Op::Less, 1e6),
        check(Metric::E2e, P95, Op::Less, 1e6),
        check(Metric::E2e, Some(Stat::Mean), Op::Less, 1e6),
        check(Metric::E2e, Some(Stat::Max), Op::Less, 1e6),
        goodput(vec![limit], Op::AtLeast, 0.9),
    ] {
        let seen = ruled(&wanted, &overloaded);
        assert_eq!(
            (seen.ruling, seen.bound, seen.need, seen.note.as_deref()),
            (
                Ruling::Inconclusive,
                None,
                None,
                Some("the server completed 75 % of the offered rate; its queue grows")
            ),
            "{wanted:?}"
        );
    }
    let rulings = [
        (Metric::E2e, P95, Op::Less, 10.0),
        (Metric::Ttft, P95, Op::More, 10.0),
        (Metric::Tpot, P95, Op::Less, 1e6),
    ]
    .map(|(metric, stat, op, limit)| ruled(&check(metric, stat, op, limit), &overloaded).ruling);
    assert_eq!(rulings, [Ruling::Fail, Ruling::Pass, Ruling::Pass]);
}

#[test]
fn a_server_that_keeps_up_or_has_sessions_is_not_overloaded() {
    let e2e = check(Metric::E2e, P95, Op::Less, 1e6);
    assert_eq!(ruled(&e2e, &served(1.0)).ruling, Ruling::Pass);
    let share = Queue::of(&served(1.25)).completed_share(0.95).unwrap();
    assert!((share - 0.8).abs() < 0.01, "{share}");
    let later = TestRequest {
        turn: 1,
        scheduled_s: 240.0,
        ..ok(Metric::E2e, 3000.0)
    };
    let sessions = Sample {
        requests: sample(vec![later]).requests,
        ..overloaded()
    };
    assert_eq!(Queue::of(&sessions).completed_share(0.95), None);
}

#[test]
fn waits_that_grow_leave_every_latency_open() {
    // The lengths of replies hide the growth in E2E.
    let row = |k: u32| TestRequest {
        scheduled_s: f64::from(k),
        values: vec![
            (Metric::Ttft, 10.0 * f64::from(k)),
            (
                Metric::E2e,
                10.0 * f64::from(k) + f64::from(k * 7919 % 30_011),
            ),
            (Metric::Tpot, f64::from(k * 7919 % 31)),
        ],
        ..ok(Metric::ErrorRate, 0.0)
    };
    let grows = sample((0..300).map(row).collect());
    let mean = Some(Stat::Mean);
    let seen = |metric, stat, limit| {
        let seen = ruled(&check(metric, stat, Op::Less, limit), &grows);
        (seen.ruling, seen.need)
    };
    assert_eq!(
        [
            seen(Metric::E2e, P95, 1e9),
            seen(Metric::E2e, mean, 1e9),
            seen(Metric::Tpot, P95, 1e9),
            seen(Metric::E2e, mean, 10.0)
        ],
        [
            (Ruling::Inconclusive, None),
            (Ruling::Inconclusive, None),
            (Ruling::Pass, None),
            (Ruling::Fail, None)
        ]
    );
}
