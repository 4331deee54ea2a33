mod compare {
    //! Small comparisons whose outcome is known.

    use super::super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{failed, ok, sample};
    use crate::sample::Sample;
    use crate::sending::{Amounts, Flow, ThroughputWindow};
    use llmscen_core::compare::{Effect, Magnitude};
    use llmscen_core::seed::Seed;

    const LEVEL: f64 = 0.975;

    fn measure(metric: Metric, stat: Option<Stat>) -> Measure {
        Measure { metric, stat }
    }

    fn median(metric: Metric) -> Measure {
        measure(metric, Some(Stat::Quantile(0.5)))
    }

    fn of(case: &str, sample: &Sample, measures: &[Measure]) -> Side {
        summarize_side(case, sample, measures, LEVEL, Seed(1))
    }

    fn one(
        base: Vec<TestRequest>,
        other: Vec<TestRequest>,
        measure: Measure,
        allowed: f64,
    ) -> Contrast {
        let runs = [base, other].map(|rows| vec![of("a", &sample(rows), &[measure])]);
        let mut all = compare_sides(&runs, &[measure], LEVEL);
        decide_findings(&mut all, Correction::Holm, 0.05, allowed);
        all.remove(0)
    }

    /// 1 … n milliseconds times `scale`, shuffled so that neighbours are unlike.
    fn spread(n: u32, scale: f64) -> Vec<TestRequest> {
        (0..n)
            .map(|index| ok(Metric::E2e, f64::from(index * 7919 % n + 1) * scale))
            .collect()
    }

    #[test]
    fn equal_runs_differ_by_nothing() {
        let seen = one(
            spread(400, 1.0),
            spread(400, 1.0),
            median(Metric::E2e),
            0.05,
        );
        assert_eq!(
            (seen.finding, seen.p, seen.effect),
            (Finding::Noise, Some(1.0), Some(Effect::CliffsDelta(0.0)))
        );
        let ratio = seen.ratio.unwrap();
        assert!(
            ratio.value == 1.0
                && (0.7..0.9).contains(&ratio.low)
                && (1.1..1.4).contains(&ratio.high),
            "{ratio:?}"
        );
        assert_eq!((seen.base.value, seen.base.n), (Some(200.0), 400));
    }

    #[test]
    fn a_great_slowdown_is_a_regression_and_a_speedup_is_better() {
        let slow = one(
            spread(400, 1.0),
            spread(400, 2.0),
            median(Metric::E2e),
            0.05,
        );
        assert_eq!(
            (slow.finding, slow.ratio.unwrap().value, slow.worsening()),
            (Finding::Regression, 2.0, Some(1.0))
        );
        assert_eq!(slow.effect.unwrap().magnitude(), Magnitude::Large);
        assert_eq!(
            one(spread(400, 1.0), spread(400, 2.0), median(Metric::E2e), 1.0).finding,
            Finding::Within,
            "it is allowed"
        );
        assert_eq!(
            one(
                spread(400, 2.0),
                spread(400, 1.0),
                median(Metric::E2e),
                0.05
            )
            .finding,
            Finding::Better
        );
    }

    #[test]
    fn too_few_values_decide_nothing_and_say_so() {
        let p99 = measure(Metric::E2e, Some(Stat::Quantile(0.99)));
        let seen = one(spread(100, 1.0), spread(100, 9.0), p99, 0.05);
        assert_eq!(
            (seen.finding, seen.p, seen.base.bounds),
            (Finding::Unknown, None, None)
        );
        assert!(
            seen.note
                .unwrap()
                .starts_with("not tested: too few independent samples (")
        );
        assert_eq!(
            (seen.base.value, seen.other.value),
            (Some(99.0), Some(891.0)),
            "the values are actual all the same"
        );
    }

    #[test]
    fn a_measure_of_one_run_alone_is_unknown_and_of_none_is_left_out() {
        let seen = one(
            spread(100, 1.0),
            vec![ok(Metric::Ttft, 1.0)],
            median(Metric::E2e),
            0.05,
        );
        assert_eq!(
            (seen.finding, seen.note.as_deref()),
            (Finding::Unknown, Some("not measured in the candidate run"))
        );
        let runs = [1, 2].map(|_| vec![of("a", &sample(spread(9, 1.0)), &[median(Metric::Ttft)])]);
        assert_eq!(compare_sides(&runs, &[median(Metric::Ttft)], LEVEL), []);
    }

    #[test]
    fn a_zero_has_no_ratio() {
        let zero = || (0..200).map(|_| ok(Metric::E2e, 0.0)).collect();
        let seen = one(zero(), spread(200, 1.0), median(Metric::E2e), 0.05);
        assert_eq!((seen.finding, seen.ratio), (Finding::Unknown, None));
        assert_eq!(
            seen.note.as_deref(),
            Some("not tested: a value or bound of 0 has no ratio")
        );
    }

    #[test]
    fn a_throughput_that_falls_to_nothing_is_a_regression() {
        let rate = measure(Metric::RequestThroughput, None);
        let side = |rows: Vec<TestRequest>| {
            let bin = |(place, row): (usize, &TestRequest)| {
                (
                    place as u16,
                    Amounts {
                        ended: 1.0,
                        requests: f64::from(u8::from(row.ok)),
                        ..Amounts::default()
                    },
                )
            };
            let flow = Flow {
                bins: rows.iter().enumerate().map(bin).collect(),
                ..Flow::default()
            };
            vec![of(
                "a",
                &Sample {
                    requests_window: ThroughputWindow::of_lengths(vec![10.0]),
                    flows: vec![flow],
                    ..sample(rows)
                },
                &[rate],
            )]
        };
        let lost = || {
            (0..200)
                .map(|_| TestRequest {
                    busy_ms: 1.0,
                    ..failed()
                })
                .collect::<Vec<_>>()
        };
        let found = |base: Vec<TestRequest>, other: Vec<TestRequest>| {
            let mut all = compare_sides(&[side(base), side(other)], &[rate], LEVEL);
            decide_findings(&mut all, Correction::Holm, 0.05, 0.05);
            all.remove(0)
        };
        let fine = || {
            (0..200)
                .map(|index| {
                    if index % 9 == 0 {
                        failed()
                    } else {
                        ok(Metric::E2e, 1.0)
                    }
                })
                .collect::<Vec<_>>()
        };
        let seen = found(fine(), lost());
        assert_eq!(
            (seen.finding, seen.worsening(), seen.note.as_deref()),
            (Finding::Regression, Some(1.0), None)
        );
        assert_eq!(
            found(lost(), fine()).finding,
            Finding::Unknown,
            "from nothing there is no share of it"
        );
    }

    #[test]
    fn a_great_slowdown_with_alike_neighbours_still_has_a_ratio() {
        // Stretches of twenty alike requests, of times that are far apart.
        let clumps = |scale: f64| {
            (0..400u32)
                .map(|index| ok(Metric::E2e, scale * 3f64.powi((index / 20 * 7 % 11) as i32)))
                .collect()
        };
        let seen = one(
            clumps(1.0),
            clumps(1000.0),
            measure(Metric::E2e, Some(Stat::Mean)),
            0.05,
        );
        assert!(
            seen.base.design > 5.0 && seen.ratio.is_some() && seen.finding == Finding::Regression,
            "{seen:?}"
        );
    }

    #[test]
    fn five_rounds_are_enough_for_bounds() {
        let rounds = |scale: f64| {
            (0..50u32)
                .map(|at| TestRequest {
                    round: at / 10,
                    ..ok(Metric::E2e, scale * f64::from(100 + at % 7))
                })
                .collect()
        };
        let seen = one(
            rounds(1.0),
            rounds(1.5),
            measure(Metric::E2e, Some(Stat::Mean)),
            0.05,
        );
        assert_eq!(
            (seen.finding, seen.p.is_some_and(|p| p < 1e-6)),
            (Finding::Regression, true)
        );
    }

    #[test]
    fn errors_are_compared_exactly_and_from_zero_any_sure_rise_is_a_regression() {
        let errors = measure(Metric::ErrorRate, None);
        // Failures far from one another: no burst.
        let rows = |bad: usize| {
            let fails = |index: usize| bad > 0 && index.is_multiple_of(200 / bad);
            (0..200)
                .map(|index| {
                    if fails(index) {
                        failed()
                    } else {
                        ok(Metric::E2e, 1.0)
                    }
                })
                .collect::<Vec<_>>()
        };
        let seen = one(rows(0), rows(10), errors, 0.05);
        // R: fisher.test(matrix(c(0, 200, 10, 190), 2)): p = 0.001741.
        assert!((seen.p.unwrap() - 0.0017405).abs() < 1e-5, "{seen:?}");
        assert_eq!(
            (seen.finding, seen.ratio, seen.difference.unwrap().value),
            (Finding::Regression, None, 0.05)
        );
        assert!(seen.difference.unwrap().low > 0.0);
        assert_eq!(one(rows(0), rows(2), errors, 0.05).finding, Finding::Noise);
        assert_eq!(
            one(rows(10), rows(0), errors, 0.05).finding,
            Finding::Better
        );
    }

    #[test]
    fn gaps_of_one_request_are_worth_less_than_as_many_requests() {
        let rows = |alike: bool| {
            let gap = move |row: u32, at: u32| {
                f64::from(
                    ((if alike { row } else { row * 40 + at }).wrapping_mul(2_654_435_761) >> 16)
                        % 4000
                        + 1,
                )
            };
            let row = move |row| TestRequest {
                gaps: (0..40).map(|at| gap(row, at)).collect(),
                ..ok(Metric::Ttft, 1.0)
            };
            sample((0..100).map(row).collect())
        };
        let [alike, free] =
            [true, false].map(|alike| of("a", &rows(alike), &[median(Metric::Itl)]).readings[0]);
        assert!(
            alike.design > 30.0 && free.design < 3.0,
            "{alike:?} {free:?}"
        );
        let width =
            |own: llmscen_core::compare::Reading| own.bounds.map(|(low, high)| high - low).unwrap();
        assert!(width(alike) > 4.0 * width(free), "{alike:?} {free:?}");
    }

    #[test]
    fn cases_are_matched_by_id_and_those_alone_are_told() {
        let sides = |ids: &[&str]| {
            ids.iter()
                .map(|id| of(id, &sample(spread(200, 1.0)), &[median(Metric::E2e)]))
                .collect::<Vec<_>>()
        };
        let runs = [sides(&["a", "b"]), sides(&["c", "b"]), sides(&["b", "a"])];
        let pairs: Vec<(String, usize)> = compare_sides(&runs, &[median(Metric::E2e)], LEVEL)
            .into_iter()
            .map(|own| (own.case, own.run))
            .collect();
        assert_eq!(pairs, [("a".into(), 2), ("b".into(), 1), ("b".into(), 2)]);
        assert_eq!(unmatched_cases(&runs), [(0, "a".into()), (1, "c".into())]);
    }

    #[test]
    fn a_correction_spares_what_chance_explains() {
        let slow = one(
            spread(400, 1.0),
            spread(400, 2.0),
            median(Metric::E2e),
            0.05,
        );
        let with = |p: f64| Contrast {
            p: Some(p),
            ..slow.clone()
        };
        let found = |correction| {
            let mut all = [
                with(0.03),
                with(0.001),
                Contrast {
                    p: None,
                    finding: Finding::Unknown,
                    ..slow.clone()
                },
                with(0.04),
            ];
            assert_eq!(decide_findings(&mut all, correction, 0.05, 0.05), 3);
            all.map(|own| own.finding)
        };
        use Finding::{Noise, Regression, Unknown};
        assert_eq!(
            found(Correction::None),
            [Regression, Regression, Unknown, Regression]
        );
        assert_eq!(
            found(Correction::Bh),
            [Regression, Regression, Unknown, Regression]
        );
        assert_eq!(found(Correction::Holm), [Noise, Regression, Unknown, Noise]);
    }

    #[test]
    fn only_what_has_an_interval_is_comparable() {
        assert!(default_measures().into_iter().all(is_comparable));
        for (metric, stat) in [
            (Metric::Ttft, Some(Stat::Max)),
            (Metric::Window, None),
            (Metric::Ttft, Some(Stat::Quantile(1.0))),
        ] {
            assert!(!is_comparable(measure(metric, stat)), "{metric}");
        }
    }

    /// Sides of one measure: each value is a run.
    fn runs(values: &[f64]) -> Vec<Side> {
        values
            .iter()
            .map(|value| of("a", &sample(spread(200, *value)), &[median(Metric::E2e)]))
            .collect()
    }

    fn between(base: &[f64], other: &[f64], allowed: f64) -> Contrast {
        let mut all = compare_sides(&[runs(base), runs(other)], &[median(Metric::E2e)], LEVEL);
        assert_eq!(all.len(), 1, "the runs of a side are one contrast");
        decide_findings(&mut all, Correction::Holm, 0.05, allowed);
        all.remove(0)
    }

    #[test]
    fn several_runs_a_side_are_one_value_each() {
        // Medians of 100 times the scale; logarithms −0.01, 0, 0.01 and 0.1 more.
        let logs = |more: f64| [-0.01f64, 0.0, 0.01].map(|log| (log + more).exp());
        let seen = between(&logs(0.0), &logs(0.1), 0.05);
        assert_eq!(
            (
                seen.finding,
                seen.base.replicates,
                seen.other.replicates,
                seen.base.n
            ),
            (Finding::Regression, 3, 3, 600)
        );
        let ratio = seen.ratio.unwrap();
        // Welch: 0.1 ± t(0.975; 4) · 0.01 · √(2/3) = 2.776445 · 0.0081650.
        let arm = 2.776445 * 0.0081650;
        assert!(
            (ratio.value.ln() - 0.1).abs() < 1e-9 && (ratio.high.ln() - (0.1 + arm)).abs() < 1e-5,
            "{ratio:?}"
        );
        assert!((seen.base.value.unwrap() - 100.0).abs() < 1e-6, "{seen:?}");
        // The requests of either run alone would call a shift of 1 % surely no noise; the runs say that it is.
        assert_eq!(
            between(&logs(0.0), &logs(0.01), 0.0).finding,
            Finding::Noise
        );
    }

    #[test]
    fn a_difference_within_tolerance_is_never_a_change() {
        let logs = |more: f64| [-0.001f64, 0.0, 0.001].map(|log| (log + more).exp());
        let found = |more: f64, allowed: f64| between(&logs(0.0), &logs(more), allowed).finding;
        assert_eq!(
            (found(0.04, 0.05), found(-0.04, 0.05)),
            (Finding::Within, Finding::Within)
        );
        assert_eq!(
            (found(0.06, 0.05), found(-0.06, 0.05)),
            (Finding::Regression, Finding::Better)
        );
        assert_eq!(
            (found(0.04, 0.0), found(-0.04, 0.0)),
            (Finding::Regression, Finding::Better)
        );
    }

    #[test]
    fn one_run_beside_many_is_one_more_of_them() {
        let many = [0.98, 0.99, 1.0, 1.01, 1.02];
        let seen = between(&many, &[1.10], 0.05);
        assert_eq!(
            (seen.finding, seen.base.replicates, seen.other.replicates),
            (Finding::Regression, 5, 0)
        );
        assert_eq!(between(&many, &[1.03], 0.0).finding, Finding::Noise);
        assert_eq!(
            between(&[1.10], &many, 0.05).finding,
            Finding::Better,
            "and the other way round"
        );
    }

    #[test]
    fn shares_of_several_runs_have_at_least_the_error_of_their_requests() {
        let errors = measure(Metric::ErrorRate, None);
        let side = |bad: &[usize]| -> Vec<Side> {
            let rows = |bad: usize| {
                (0..200)
                    .map(|index| {
                        if index * bad % 200 < bad {
                            failed()
                        } else {
                            ok(Metric::E2e, 1.0)
                        }
                    })
                    .collect()
            };
            bad.iter()
                .map(|bad| of("a", &sample(rows(*bad)), &[errors]))
                .collect()
        };
        let found = |base: &[usize], other: &[usize]| {
            let mut all = compare_sides(&[side(base), side(other)], &[errors], LEVEL);
            decide_findings(&mut all, Correction::Holm, 0.05, 0.05);
            all.remove(0)
        };
        assert_eq!(found(&[0, 0, 0], &[0, 0, 0]).finding, Finding::Noise);
        let few = found(&[0, 0, 0], &[1, 1, 1]);
        assert_eq!(
            (few.finding, few.difference.unwrap().value),
            (Finding::Noise, 0.005),
            "equal runs of few failures prove nothing"
        );
        assert_eq!(
            found(&[0, 0, 0], &[40, 40, 40]).finding,
            Finding::Regression
        );
    }

    #[test]
    fn a_contrast_with_a_reason_against_it_is_no_change() {
        let slow = one(
            spread(400, 1.0),
            spread(400, 2.0),
            median(Metric::E2e),
            0.05,
        );
        let mut all = [Contrast {
            note: Some("the cache shares differ".into()),
            ..slow
        }];
        assert_eq!(decide_findings(&mut all, Correction::Holm, 0.05, 0.05), 1);
        assert_eq!(
            (all[0].finding, all[0].p_adjusted.is_some()),
            (Finding::Unknown, true)
        );
    }
}

mod cached {
    use super::super::*;
    use crate::judge::compare::{compare_sides, decide_findings, summarize_side};
    use crate::judge::fixture::{ok, sample};
    use llmscen_core::compare::{Correction, Measure};
    use llmscen_core::metric::Stat;
    use llmscen_core::report::{Audit, CaseReport, Report};
    use llmscen_core::seed::Seed;

    /// What a comparison comes to in which the second run is ten times as fast, with these cached shares.
    fn found(cached: [Option<f64>; 2]) -> Contrast {
        let measure = Measure {
            metric: Metric::E2e,
            stat: Some(Stat::Quantile(0.5)),
        };
        let values = |scale: f64| {
            (0..400)
                .map(|index| ok(Metric::E2e, f64::from(index * 7919 % 400 + 1) * scale))
                .collect()
        };
        let sides = [10.0, 1.0].map(|scale| {
            vec![summarize_side(
                "a",
                &sample(values(scale)),
                &[measure],
                0.975,
                Seed(1),
            )]
        });
        let of = |(place, cached): (usize, Option<f64>)| {
            let case = CaseReport {
                id: "a".into(),
                audit: Audit {
                    cached,
                    ..Audit::default()
                },
                ..CaseReport::default()
            };
            let report = Report {
                cases: vec![case],
                ..Report::default()
            };
            Run {
                label: ["A", "B"][place].into(),
                side: place,
                report,
                ..Run::default()
            }
        };
        let runs: Vec<Run> = (0..).zip(cached).map(of).collect();
        let mut all = compare_sides(&sides, &[measure], 0.975);
        withdraw_cached(&mut all, &runs);
        decide_findings(&mut all, Correction::Holm, 0.05, 0.05);
        all.remove(0)
    }

    #[test]
    fn a_difference_that_a_cache_may_have_made_is_not_called_real() {
        let seen = found([Some(0.0), Some(0.93)]);
        assert_eq!(
            (seen.finding, seen.p, seen.p_adjusted),
            (Finding::Unknown, None, None)
        );
        let known = "not tested: cached prompt tokens were 0.0 % in A, 93.0 % in B (`audit.cache` \
        1.0 %); `--allow-different` tests it";
        assert_eq!(seen.note.as_deref(), Some(known));
        assert_eq!(
            found([None, Some(0.93)]).finding,
            Finding::Unknown,
            "servers report no cached tokens where there are none"
        );
        for like in [[Some(0.93), Some(0.925)], [None, Some(0.005)], [None, None]] {
            assert_eq!(found(like).finding, Finding::Better, "{like:?}");
        }
    }
}
