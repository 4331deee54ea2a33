mod relative {
    use super::super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, conditions, failed, goodput, ok, sample};
    use crate::judge::{never_passes, rule};
    use llmscen_core::check::relative::ReferenceKind;
    use llmscen_core::check::{Op, RequestSet, Verdict};
    use llmscen_core::metric::{Metric, Stat};

    fn to(check: Check, factor: f64, known: Option<ReferenceValue>) -> Check {
        let relative = Relative::new(ReferenceKind::Baseline, factor, known);
        Check {
            limit: relative.limit(),
            relative: Some(relative),
            ..check
        }
    }

    fn known(value: f64, low: f64, high: f64) -> Option<ReferenceValue> {
        Some(ReferenceValue {
            value,
            low: Some(low),
            high: Some(high),
            n: Some(400),
            spread: None,
        })
    }

    fn p50(factor: f64, known: Option<ReferenceValue>) -> Check {
        to(
            check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::AtMost, 0.0),
            factor,
            known,
        )
    }

    fn ruled(check: &Check, rows: Vec<TestRequest>) -> Verdict {
        rule(check, &sample(rows), &conditions(true))
    }

    fn waits(n: u32) -> Vec<TestRequest> {
        // From 90 to 110, neighbours unlike.
        (0..n)
            .map(|i| {
                ok(
                    Metric::Ttft,
                    90.0 + 20.0 * f64::from(i * 7919 % n) / f64::from(n),
                )
            })
            .collect()
    }

    #[test]
    fn both_sides_must_leave_room() {
        // p50 is 99.95 of 400; its bounds are some 0.9 off.
        let exact = ruled(&p50(1.05, known(100.0, 100.0, 100.0)), waits(400));
        assert_eq!((exact.ruling, exact.check.limit), (Ruling::Pass, 105.0));
        assert!(exact.bound.unwrap() < 102.0, "{exact:?}");
        let vague = ruled(&p50(1.05, known(100.0, 90.0, 110.0)), waits(400));
        assert_eq!((vague.ruling, vague.need), (Ruling::Inconclusive, None));
        assert!(
            vague.bound.unwrap() > 110.0
                && vague
                    .note
                    .unwrap()
                    .starts_with("more requests will not decide this")
        );
        assert_eq!(
            ruled(&p50(0.90, known(100.0, 99.0, 101.0)), waits(400)).ruling,
            Ruling::Fail
        );
    }

    #[test]
    fn few_samples_are_told_how_many_are_needed() {
        let seen = ruled(&p50(1.05, known(100.0, 99.9, 100.1)), waits(12));
        assert_eq!(seen.ruling, Ruling::Inconclusive);
        let need = seen.need.unwrap();
        assert!((13..200).contains(&need), "{need}");
        let p99 = to(
            check(Metric::Ttft, Some(Stat::Quantile(0.99)), Op::AtMost, 0.0),
            1.5,
            known(100.0, 99.0, 101.0),
        );
        let none = ruled(&p99, waits(100));
        assert_eq!(
            (none.ruling, none.need, none.bound),
            (Ruling::Inconclusive, Some(376), None)
        );
    }

    #[test]
    fn a_value_among_the_failed_fails_only_by_what_both_sides_know() {
        // The lower bound of p95 is still a wait, some 109; the value and what lies above it are failed requests.
        let rows = || {
            (0..1000)
                .map(|i| {
                    if i % 19 == 0 {
                        failed()
                    } else {
                        ok(Metric::Ttft, 100.0 + f64::from(i % 10))
                    }
                })
                .collect()
        };
        let wanted = check(Metric::Ttft, Some(Stat::Quantile(0.95)), Op::AtMost, 0.0);
        let scheduled = |known| {
            to(
                Check {
                    of: RequestSet::Scheduled,
                    ..wanted.clone()
                },
                1.05,
                known,
            )
        };
        let sure = ruled(&scheduled(known(100.0, 99.0, 101.0)), rows());
        assert_eq!(
            (sure.ruling, sure.observed),
            (Ruling::Fail, Some(f64::INFINITY))
        );
        assert_eq!(
            sure.note.as_deref(),
            Some(
                "this value falls on a failed request; failed requests exceed any limit (`of: scheduled`)"
            )
        );
        let vague = ruled(&scheduled(known(100.0, 90.0, 110.0)), rows());
        assert_eq!((vague.ruling, vague.bound), (Ruling::Inconclusive, None));
        assert!(vague.note.unwrap().contains("failed requests"));
    }

    #[test]
    fn a_floor_mirrors_a_ceiling_and_points_are_points() {
        let floor = to(
            check(Metric::Ttft, Some(Stat::Mean), Op::AtLeast, 0.0),
            0.95,
            known(100.0, 99.0, 101.0),
        );
        let seen = ruled(&floor, waits(400));
        assert_eq!((seen.ruling, seen.check.limit), (Ruling::Pass, 95.0));
        assert!(
            seen.bound.unwrap() > 97.0 && seen.bound.unwrap() < 100.0,
            "{seen:?}"
        );
        let point = Check {
            confidence: Confidence::Point,
            ..p50(1.0, known(99.0, 1.0, 500.0))
        };
        assert_eq!(
            (
                ruled(&point, waits(400)).ruling,
                ruled(&point, waits(400)).bound
            ),
            (Ruling::Fail, None)
        );
    }

    #[test]
    fn without_a_baseline_nothing_is_decided() {
        let seen = ruled(&p50(1.1, None), waits(400));
        assert_eq!(
            (seen.ruling, seen.note.as_deref()),
            (
                Ruling::Inconclusive,
                Some("not judged: no baseline value for this case")
            )
        );
        assert!(
            seen.observed.is_some()
                && never_passes(&p50(1.1, None))
                    .unwrap()
                    .starts_with("no baseline yet")
        );
    }

    #[test]
    fn shares_with_zeros_are_decided_by_their_difference() {
        let rows = |bad: usize| {
            (0..640)
                .map(|i| {
                    if i * 37 % 640 < bad {
                        failed()
                    } else {
                        ok(Metric::Ttft, 1.0)
                    }
                })
                .collect::<Vec<_>>()
        };
        let good = to(
            goodput(Vec::new(), Op::AtLeast, 0.0),
            0.98,
            known(1.0, 0.9953, 1.0),
        );
        assert_eq!(
            (ruled(&good, rows(0)).ruling, ruled(&good, rows(60)).ruling),
            (Ruling::Pass, Ruling::Fail)
        );
        let errors = to(
            check(Metric::ErrorRate, None, Op::AtMost, 0.0),
            1.1,
            known(0.0, 0.0, 0.0047),
        );
        assert_eq!(
            (
                ruled(&errors, rows(0)).ruling,
                ruled(&errors, rows(60)).ruling
            ),
            (Ruling::Inconclusive, Ruling::Fail)
        );
        assert_eq!(
            never_passes(&errors).unwrap(),
            "the baseline is 0, as is any multiple of it; write the limit as a number"
        );
        assert_eq!(
            (never_passes(&good), required_samples(&good)),
            (None, Some(149)),
            "1 − 0.98 leaves 2 % to be shown: 0.98^149 < 5 %"
        );
    }

    #[test]
    fn a_baseline_of_too_few_samples_is_reported_before_the_run() {
        let few = p50(
            1.1,
            Some(ReferenceValue {
                value: 5.0,
                low: None,
                high: Some(9.0),
                n: Some(3),
                spread: None,
            }),
        );
        assert!(
            never_passes(&few)
                .unwrap()
                .starts_with("the baseline of 3 samples has no bound"),
            "{:?}",
            never_passes(&few)
        );
        assert_eq!(never_passes(&p50(1.1, known(5.0, 4.0, 6.0))), None);
    }
}

mod prediction {
    use super::super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, conditions, failed, goodput, ok, sample};
    use crate::judge::rule;
    use llmscen_core::check::relative::ReferenceKind;
    use llmscen_core::check::{Check, Confidence, Op, Ruling, Verdict};
    use llmscen_core::metric::{Metric, Stat};
    use llmscen_core::stats::comparison::{Center, Group};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn known(value: f64, reach: f64) -> ReferenceValue {
        let (low, high) = (value * (-reach).exp(), value * reach.exp());
        ReferenceValue {
            value,
            low: Some(low),
            high: Some(high),
            n: Some(400),
            spread: Some(Spread {
                runs: 10,
                reach,
                of: Replicates::Runs,
            }),
        }
    }

    fn ruled(check: Check, factor: f64, known: ReferenceValue, rows: Vec<TestRequest>) -> Verdict {
        let relative = Relative::new(ReferenceKind::Baseline, factor, Some(known));
        let check = Check {
            limit: relative.limit(),
            relative: Some(relative),
            ..check
        };
        rule(&check, &sample(rows), &conditions(true))
    }

    fn waits(value: f64) -> Vec<TestRequest> {
        (0..400).map(|_| ok(Metric::Ttft, value)).collect()
    }

    #[test]
    fn runs_that_vary_decide_and_not_the_requests_of_one() {
        let p50 = || check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::AtMost, 0.0);
        let of = |value, factor, reach| ruled(p50(), factor, known(100.0, reach), waits(value));
        // 104 · e^0.05 = 109.3 under 1.10 · 100, and 104 · e^−0.05 = 98.9.
        let seen = of(104.0, 1.10, 0.05);
        assert_eq!((seen.ruling, seen.check.limit), (Ruling::Pass, 110.0));
        assert!(
            (seen.bound.unwrap() - 104.0 * 0.05f64.exp()).abs() < 1e-6,
            "{seen:?}"
        );
        assert_eq!(
            (of(104.0, 1.0, 0.02).ruling, of(104.0, 1.0, 0.05).ruling),
            (Ruling::Fail, Ruling::Inconclusive)
        );
        let open = of(104.0, 1.0, 0.05);
        assert_eq!(open.need, None);
        let note = open.note.unwrap();
        assert!(
            note.starts_with(
                "one run cannot decide this: the 10 runs of the baseline vary too much"
            ) && note.contains("5.1 %"),
            "{note}"
        );
    }

    /// Shares of FAIL, in percent, of `ttft.p50 <= 1.0 * baseline` against ten runs that vary by 3 %, where the run
    /// is as fast as the baseline, and 10 % slower.
    fn failed_gates(confidence: f64, baselines: u32) -> [f64; 2] {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut run = move || {
            let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
            4.6 + 0.03 * radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
        };
        let mut failed = [0; 2];
        for _ in 0..baselines {
            let logs: Vec<f64> = (0..10).map(|_| run()).collect();
            let group = Group::from_values(&logs).unwrap();
            let reach = group.prediction_half_width(confidence, Center::Mean);
            let today = run();
            for (slower, failed) in [1.0, 1.1].into_iter().zip(&mut failed) {
                let check = Check {
                    confidence: Confidence::Level(confidence),
                    ..check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::AtMost, 0.0)
                };
                let rows = (0..40).map(|_| ok(Metric::Ttft, today.exp() * slower));
                let baseline = known(group.mean.exp(), reach.unwrap());
                let verdict = ruled(check, 1.0, baseline, rows.collect());
                *failed += u32::from(verdict.ruling == Ruling::Fail);
            }
        }
        failed.map(|count| f64::from(count) * 100.0 / f64::from(baselines))
    }

    #[test]
    fn a_gate_against_ten_runs_keeps_its_error_rate() {
        let [false_95, found_95] = failed_gates(0.95, 2000);
        let [false_90, found_90] = failed_gates(0.90, 2000);
        // Four standard errors of 2,000 draws around the rates of Student's t and its noncentral form.
        assert!((3.0..=7.0).contains(&false_95), "{false_95}");
        assert!((7.3..=12.7).contains(&false_90), "{false_90}");
        assert!((85.0..=91.0).contains(&found_95), "{found_95}");
        assert!((93.0..=97.0).contains(&found_90), "{found_90}");
    }

    #[test]
    fn shares_are_decided_by_the_wider_of_both() {
        // Failures far from one another: those in a row carry less information.
        let fails = |i: usize, bad: usize| i * bad / 640 != (i + 1) * bad / 640;
        let rows = |bad: usize| {
            (0..640)
                .map(|i| {
                    if fails(i, bad) {
                        failed()
                    } else {
                        ok(Metric::Ttft, 1.0)
                    }
                })
                .collect::<Vec<_>>()
        };
        let share = |reach| ReferenceValue {
            low: Some(0.9953),
            high: Some(1.0),
            ..known(1.0, reach)
        };
        let ruling = |reach, bad| {
            ruled(
                goodput(Vec::new(), Op::AtLeast, 0.0),
                0.98,
                share(reach),
                rows(bad),
            )
            .ruling
        };
        assert_eq!(
            (ruling(0.0, 0), ruling(0.0, 60)),
            (Ruling::Pass, Ruling::Fail),
            "as its requests say"
        );
        assert_eq!(
            (ruling(0.03, 0), ruling(0.03, 60)),
            (Ruling::Inconclusive, Ruling::Fail),
            "runs vary by more than that"
        );
        assert_eq!(ruling(0.10, 60), Ruling::Inconclusive);
    }
}
