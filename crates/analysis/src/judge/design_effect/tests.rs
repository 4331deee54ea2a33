use super::*;
use crate::fixture::TestRequest;
use crate::judge::fixture::{check, conditions, failed, goodput, ok, sample};
use crate::judge::{figure, rule};
use llmscen_core::check::relative::{ReferenceKind, ReferenceValue, Relative};
use llmscen_core::check::{Op, RequestSet, Ruling};
use llmscen_core::metric::{Metric, Stat};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

fn of(check: &Check, rows: Vec<TestRequest>, value: f64) -> f64 {
    let sample = sample(rows);
    dependence(check, &sample, &Evidence::collect(check, &sample), value).times()
}

/// Log-normal waits around 200 ms, neighbours correlated by `rho`.
fn queue(rng: &mut ChaCha8Rng, n: usize, rho: f64) -> Vec<TestRequest> {
    let mut at: f64 = StandardNormal.sample(rng);
    let mut step = || {
        let fresh: f64 = StandardNormal.sample(rng);
        at = rho * at + (1.0 - rho * rho).sqrt() * fresh;
        ok(Metric::Ttft, 200.0 * (0.4 * at).exp())
    };
    (0..n).map(|_| step()).collect()
}

#[test]
fn gaps_of_one_request_and_failures_in_a_burst_say_less() {
    let row = |index: u32| TestRequest {
        gaps: vec![f64::from(index * 7919 % 100); 40],
        ..ok(Metric::Ttft, 1.0)
    };
    let p50 = check(Metric::Itl, Some(Stat::Quantile(0.5)), Op::Less, 0.0);
    assert!((39.9..80.0).contains(&of(&p50, (0..100).map(row).collect(), 50.0)));
    let bursts = || {
        (0..1000)
            .map(|k| {
                if k % 200 < 10 {
                    failed()
                } else {
                    ok(Metric::Ttft, 1.0)
                }
            })
            .collect::<Vec<_>>()
    };
    let (errors, good) = (
        check(Metric::ErrorRate, None, Op::Less, 0.1),
        goodput(Vec::new(), Op::AtLeast, 0.9),
    );
    assert!(of(&errors, bursts(), 0.05) > 4.0 && of(&good, bursts(), 0.95) > 4.0);
    let all = Check {
        of: RequestSet::Scheduled,
        ..check(Metric::Ttft, Some(Stat::Quantile(0.97)), Op::Less, 5.0)
    };
    assert!(
        of(&all, bursts(), f64::INFINITY) > 4.0,
        "among the failed, they are what is counted"
    );
}

#[test]
fn a_goodput_without_a_bad_moment_depends_as_its_latencies_do() {
    let rows = || queue(&mut ChaCha8Rng::seed_from_u64(3), 1000, 0.9);
    let limit = RequestLimit {
        metric: Metric::Ttft,
        op: Op::Less,
        limit: 1e6,
    };
    let good = goodput(vec![limit], Op::AtLeast, 0.9);
    let p90 = check(Metric::Ttft, Some(Stat::Quantile(0.9)), Op::Less, 1e6);
    let observed = crate::judge::rule(&p90, &sample(rows()), &conditions(true))
        .observed
        .unwrap();
    assert_eq!(of(&good, rows(), 1.0), of(&p90, rows(), observed));
    assert!(of(&good, rows(), 1.0) > 3.0);
}

#[test]
fn the_bounds_of_alike_requests_are_farther_off() {
    for stat in [Stat::Quantile(0.5), Stat::Mean] {
        let width = |rho: f64| {
            let rows = sample(queue(&mut ChaCha8Rng::seed_from_u64(3), 2000, rho));
            let seen = figure(
                &check(Metric::Ttft, Some(stat), Op::Less, 0.0),
                &rows,
                &[0.95],
            )
            .unwrap();
            (seen.high[0].unwrap() / seen.low[0].unwrap()).ln()
        };
        // At 0.8 nine requests say as much as one, for the mean of their logarithms.
        assert!(
            (1.8..4.5).contains(&(width(0.8) / width(0.0))),
            "{stat}: {} {}",
            width(0.8),
            width(0.0)
        );
    }
}

#[test]
fn a_relative_limit_at_the_truth_is_decided_no_more_often_than_it_may() {
    let mut rng = ChaCha8Rng::seed_from_u64(29);
    for (p, rho) in [(0.5, 0.6), (0.95, 0.6)] {
        let (mut failed, mut passed) = (0, 0);
        for _ in 0..300 {
            let wanted = check(Metric::Ttft, Some(Stat::Quantile(p)), Op::AtMost, 0.0);
            let base = figure(&wanted, &sample(queue(&mut rng, 400, rho)), &[0.95]).unwrap();
            let known = ReferenceValue {
                value: base.value,
                low: base.low[0],
                high: base.high[0],
                n: Some(base.n),
                spread: None,
            };
            let relative = Relative::new(ReferenceKind::Baseline, 1.0, Some(known));
            let wanted = Check {
                limit: relative.limit(),
                relative: Some(relative),
                ..wanted
            };
            let seen = rule(
                &wanted,
                &sample(queue(&mut rng, 400, rho)),
                &conditions(true),
            )
            .ruling;
            failed += u32::from(seen == Ruling::Fail);
            passed += u32::from(seen == Ruling::Pass);
        }
        // Nominally 15 each; chance makes it 21.
        assert!(
            (2..=21).contains(&failed) && (2..=21).contains(&passed),
            "{p}: {failed} {passed} of 300"
        );
    }
}

/// Verdicts on correlated requests.
mod verdicts {
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, failed, goodput, ok, sample};
    use crate::judge::{Conditions, LoadKind, rule};
    use llmscen_core::check::{Check, Op, RequestLimit, RequestSet, Ruling, Verdict};
    use llmscen_core::metric::{Metric, Stat};
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Independent numbers from 0 to 1000.
    fn mixed(n: usize) -> impl Iterator<Item = f64> {
        ChaCha8Rng::seed_from_u64(n as u64)
            .random_iter()
            .take(n)
            .map(|share: f64| share * 1000.0)
    }

    /// Each value so many times in a row.
    fn alike(values: impl IntoIterator<Item = f64>, times: usize) -> Vec<TestRequest> {
        values
            .into_iter()
            .flat_map(|value| vec![ok(Metric::Ttft, value); times])
            .collect()
    }

    fn ruled(check: &Check, rows: Vec<TestRequest>, load: LoadKind) -> Verdict {
        let sample = sample(rows);
        rule(check, &sample, &Conditions::of(&sample, load))
    }

    fn p90(limit: f64) -> Check {
        check(Metric::Ttft, Some(Stat::Quantile(0.9)), Op::Less, limit)
    }

    #[test]
    fn correlated_requests_decide_less_and_say_why() {
        // All 800 are under the limit, but they are 20 independent values.
        let seen = ruled(&p90(1001.0), alike(mixed(20), 40), LoadKind::Other);
        assert_eq!(
            (seen.ruling, seen.n, seen.bound),
            (Ruling::Inconclusive, 800, None)
        );
        let note = seen.note.unwrap();
        assert!(
            note.starts_with("800 correlated samples carry the information of about "),
            "{note}"
        );
        assert!(
            note.ends_with("; a verdict needs 20") && seen.need.unwrap() > 1000,
            "{note} {:?}",
            seen.need
        );
        assert!(seen.effective_n.unwrap() < 20.0);
        let free = ruled(&p90(980.0), alike(mixed(800), 1), LoadKind::Other);
        assert_eq!((free.ruling, free.note), (Ruling::Pass, None));
        assert!(
            (400.0..=730.0).contains(&free.effective_n.unwrap()),
            "{:?}",
            free.effective_n
        );
    }

    #[test]
    fn a_wide_margin_passes_where_users_bound_the_queue_and_nowhere_else() {
        // 60 stretches of ten: about 60 independent values, of which none is beyond two thirds of the limit.
        let rows = || alike(mixed(60), 10);
        let of = |limit, load| {
            ruled(
                &check(Metric::Ttft, Some(Stat::Quantile(0.95)), Op::Less, limit),
                rows(),
                load,
            )
        };
        let [closed, open, near] = [
            (1600.0, LoadKind::FixedUsers),
            (1600.0, LoadKind::Arrivals),
            (1100.0, LoadKind::FixedUsers),
        ]
        .map(|(limit, load)| of(limit, load));
        assert_eq!(
            [closed.ruling, open.ruling, near.ruling],
            [Ruling::Pass, Ruling::Inconclusive, Ruling::Inconclusive]
        );
        assert!(
            closed
                .bound
                .is_some_and(|bound| bound < 1600.0 && bound > 1200.0),
            "{closed:?}"
        );
        // The same as a goodput, whose inner limits have the margin.
        let limits = vec![RequestLimit {
            metric: Metric::Ttft,
            op: Op::Less,
            limit: 1600.0,
        }];
        let good = goodput(limits, Op::AtLeast, 0.95);
        let rulings = [LoadKind::FixedUsers, LoadKind::Arrivals]
            .map(|load| ruled(&good, rows(), load).ruling);
        assert_eq!(rulings, [Ruling::Pass, Ruling::Inconclusive]);
    }

    #[test]
    fn an_open_loop_that_forgets_quickly_has_the_margin_too() {
        // 400 independent values of which the greatest come in stretches of four: about 100 values of the tail.
        let tail = |at: usize, value: f64| {
            if (at / 4).is_multiple_of(25) {
                950.0 + value / 20.0
            } else {
                value * 0.9
            }
        };
        let rows = || {
            mixed(400)
                .enumerate()
                .map(|(at, value)| ok(Metric::Ttft, tail(at, value)))
                .collect::<Vec<TestRequest>>()
        };
        let p99 = |limit| check(Metric::Ttft, Some(Stat::Quantile(0.99)), Op::Less, limit);
        let of = |limit, load| ruled(&p99(limit), rows(), load).ruling;
        let rulings = [
            of(1600.0, LoadKind::Arrivals),
            of(1600.0, LoadKind::Other),
            of(1100.0, LoadKind::Arrivals),
        ];
        assert_eq!(
            rulings,
            [Ruling::Pass, Ruling::Inconclusive, Ruling::Inconclusive]
        );
    }

    #[test]
    fn an_open_loop_with_a_long_memory_is_too_short_but_an_overload_fails() {
        let slow = |k: u32| {
            ok(
                Metric::Ttft,
                if k < 150 { 10.0 } else { 100.0 } + f64::from(k % 7),
            )
        };
        let rows = || (0..300).map(slow).collect::<Vec<_>>();
        let p50 = |limit| check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::Less, limit);
        let seen = ruled(&p50(500.0), rows(), LoadKind::Arrivals);
        assert_eq!(
            (seen.ruling, seen.need, seen.bound),
            (Ruling::Inconclusive, None, None)
        );
        assert!(
            seen.note
                .unwrap()
                .starts_with("the run is too short for the server's memory")
        );
        let grows = (0..300u32)
            .map(|k| ok(Metric::Ttft, f64::from(k)))
            .collect();
        let p95 = check(Metric::Ttft, Some(Stat::Quantile(0.95)), Op::Less, 30.0);
        assert_eq!(ruled(&p95, grows, LoadKind::Arrivals).ruling, Ruling::Fail);
    }

    #[test]
    fn failures_in_bursts_say_less() {
        let rows = || {
            (0..1000)
                .map(|k| {
                    if k % 200 < 10 {
                        failed()
                    } else {
                        ok(Metric::Ttft, 1.0)
                    }
                })
                .collect::<Vec<TestRequest>>()
        };
        let limits = vec![RequestLimit {
            metric: Metric::Ttft,
            op: Op::Less,
            limit: 5.0,
        }];
        let all = Check {
            of: RequestSet::Scheduled,
            ..check(Metric::Ttft, Some(Stat::Quantile(0.93)), Op::Less, 5.0)
        };
        for wanted in [
            check(Metric::ErrorRate, None, Op::Less, 0.07),
            goodput(limits, Op::AtLeast, 0.93),
            all,
        ] {
            let seen = ruled(&wanted, rows(), LoadKind::FixedUsers);
            assert_eq!(seen.ruling, Ruling::Inconclusive, "{seen:?}");
        }
        // 1000 ÷ 10.8220, by numpy and scipy.
        let seen = ruled(
            &check(Metric::ErrorRate, None, Op::Less, 0.2),
            rows(),
            LoadKind::FixedUsers,
        );
        assert!(
            (seen.effective_n.unwrap() - 92.404391665870).abs() < 1e-9
                && seen.ruling == Ruling::Pass,
            "{seen:?}"
        );
    }

    #[test]
    fn requests_are_taken_in_the_order_of_their_schedule() {
        // Stretches of ten in the order of time, actual in another order.
        let mut rows: Vec<TestRequest> = alike(mixed(60), 10);
        rows.iter_mut()
            .enumerate()
            .for_each(|(at, row)| row.scheduled_s = at as f64);
        let mut other = rows.clone();
        other.sort_by_key(|row| row.scheduled_s as u64 * 7919 % 600);
        let of = |rows| ruled(&p90(950.0), rows, LoadKind::Other);
        assert_eq!(of(rows).effective_n, of(other).effective_n);
    }

    #[test]
    fn gaps_of_a_request_count_together() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut row = |same: bool| {
            let luck: f64 = rng.random();
            let gaps = (0..40)
                .map(|_| 100.0 * if same { luck } else { rng.random() })
                .collect();
            TestRequest {
                gaps,
                ..ok(Metric::Ttft, 1.0)
            }
        };
        let [same, free] =
            [true, false].map(|same| (0..300).map(|_| row(same)).collect::<Vec<TestRequest>>());
        let p90 = check(Metric::Itl, Some(Stat::Quantile(0.9)), Op::Less, 91.5);
        let [same, free] = [same, free].map(|rows| ruled(&p90, rows, LoadKind::FixedUsers));
        assert_eq!(
            (free.ruling, free.n, same.ruling),
            (Ruling::Pass, 12_000, Ruling::Inconclusive),
            "{same:?}"
        );
        let [same, free] = [same, free].map(|seen| seen.effective_n.unwrap());
        assert!(
            (150.0..=300.0).contains(&same) && free > 5000.0,
            "{same} {free}"
        );
    }

    proptest! {
        #[test]
        fn a_laxer_limit_is_never_judged_worse(
            seed in 0u64..1000, n in 20usize..120, times in 1usize..8, p in 0.5..0.97f64,
                limit in 0.0..1000.0f64, more in 0.0..800.0f64,
            load in prop::sample::select(vec![LoadKind::FixedUsers, LoadKind::Arrivals, LoadKind::Other]),
        ) {
            let shares = ChaCha8Rng::seed_from_u64(seed).random_iter().take(n);
        let values: Vec<f64> = shares.map(|share: f64| share * 1000.0).collect();
            let score = |limit| {
                let wanted = check(Metric::Ttft, Some(Stat::Quantile(p)), Op::Less, limit);
                let seen = ruled(&wanted, alike(values.iter().copied(), times), load);
                assert_eq!(seen.ruling == Ruling::Pass, seen.bound.is_some_and(|bound| bound < limit), "{seen:?}");
                match seen.ruling {
                    Ruling::Pass => 2,
                    Ruling::Inconclusive => 1,
                    Ruling::Fail | Ruling::Invalid => 0,
                }
            };
            prop_assert!(score(limit) <= score(limit + more));
        }
    }
}

/// Three stages of 200 requests each, whose waits differ by plan. `parts`: whether the plan is known.
fn staged(rho: f64, parts: bool) -> Vec<TestRequest> {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let rows = queue(&mut rng, 600, rho);
    let in_stage = |(place, row): (usize, TestRequest)| {
        let stage = place as u32 / 200;
        let wait = row.value(Metric::Ttft).unwrap() * f64::from(1 + 2 * stage);
        TestRequest {
            part: if parts { stage } else { 0 },
            scheduled_s: place as f64,
            ..ok(Metric::Ttft, wait)
        }
    };
    rows.into_iter().enumerate().map(in_stage).collect()
}

#[test]
fn planned_stages_are_no_correlation() {
    let p75 = check(Metric::Ttft, Some(Stat::Quantile(0.75)), Op::Less, 1600.0);
    let mean = check(Metric::Ttft, Some(Stat::Mean), Op::Less, 800.0);
    let effect = |rows: Vec<TestRequest>| of(&p75, rows, 900.0);
    assert!(effect(staged(0.0, false)) > 50.0 && effect(staged(0.0, true)) < 2.0);
    // That of requests within a stage stays.
    assert!(effect(staged(0.95, true)) > 4.0);
    for own in [&p75, &mean] {
        let ruling = |rows| rule(own, &sample(rows), &conditions(true)).ruling;
        assert_eq!(ruling(staged(0.0, true)), Ruling::Pass);
        assert_eq!(ruling(staged(0.0, false)), Ruling::Inconclusive);
    }
}
