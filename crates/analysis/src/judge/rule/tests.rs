mod rule {
    use super::super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, conditions, failed, goodput, ok, sample};
    use crate::sending::{Amounts, Flow, ThroughputWindow, Unit, WholeReason};
    use llmscen_core::check::Op;
    use llmscen_core::signal::Signal;
    use llmscen_core::telemetry::SignalStat;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};

    const P99: Option<Stat> = Some(Stat::Quantile(0.99));

    #[test]
    fn a_throughput_over_whole_rounds_is_not_decided() {
        let rows = latencies([9.0; 40]);
        let ended = Amounts {
            ended: 20.0,
            requests: 20.0,
            ..Amounts::default()
        };
        let flow = Flow {
            bins: [(3, ended), (200, ended)].into(),
            ..Flow::default()
        };
        let seen = |whole| {
            let mut seen = sample(rows.clone());
            seen.flows = vec![flow.clone()];
            seen.requests_window = ThroughputWindow::of_lengths(vec![2.0]);
            seen.requests_window.whole = whole;
            seen
        };
        let of = |seen: &Sample, confidence| {
            let floor = check(Metric::RequestThroughput, None, Op::AtLeast, 1.0);
            rule(
                &Check {
                    confidence,
                    ..floor
                },
                seen,
                &conditions(true),
            )
        };
        let level = Confidence::Level(0.95);
        let verdict = of(&seen(None), level);
        assert_eq!(
            (verdict.ruling, verdict.observed),
            (Ruling::Pass, Some(20.0))
        );
        let whole = WholeReason::TooShort {
            unit: Unit::Request,
            seconds: 2.0,
            duration: 1.0,
        };
        let verdict = of(&seen(Some(whole)), level);
        assert_eq!(
            (
                verdict.ruling,
                verdict.observed,
                verdict.bound,
                verdict.need
            ),
            (Ruling::Inconclusive, Some(20.0), None, None)
        );
        assert_eq!(
            verdict.note.unwrap(),
            "the value is over the whole run, start and drain included. Sending was steady for \
             2.0 mean durations of a request, and 3 are required: measure for longer; users need \
             at least 10 requests each"
        );
        let point = of(&seen(Some(whole)), Confidence::Point);
        assert_eq!(point.ruling, Ruling::Pass, "a point estimate as asked for");
    }

    #[test]
    fn a_failed_default_names_its_key() {
        let rows = |bad: usize| [vec![failed(); bad], latencies([9.0; 99])].concat();
        let wanted = Check {
            confidence: Confidence::Point,
            no_data: NoData::Pass,
            is_default: true,
            ..check(Metric::ErrorRate, None, Op::Less, 0.01)
        };
        let healthy = ruled(&wanted, rows(0));
        assert_eq!((healthy.ruling, healthy.note), (Ruling::Pass, None));
        let verdict = ruled(&wanted, rows(1));
        assert_eq!(
            (verdict.ruling, verdict.observed),
            (Ruling::Fail, Some(0.01))
        );
        let note = verdict.note.unwrap();
        assert!(note.contains("`slo_defaults.error_rate`"), "{note}");
        assert_eq!(ruled(&wanted, Vec::new()).ruling, Ruling::Pass);
    }

    #[test]
    fn a_p99_of_fewer_than_a_thousand_samples_says_on_how_many_it_rests() {
        let note = |p: f64, n: u32| {
            let wanted = check(Metric::Ttft, Some(Stat::Quantile(p)), Op::Less, 1e9);
            ruled(
                &wanted,
                latencies((0..n).map(f64::from).map(|value| (value * 617.0) % 1009.0)),
            )
            .note
        };
        assert_eq!(
            [note(0.99, 999), note(0.99, 700), note(0.995, 1000)],
            [
                "p99 rests on the 9 slowest requests",
                "p99 rests on the 7 slowest requests",
                "p99.5 rests on the 5 slowest requests"
            ]
            .map(|note| Some(note.to_owned()))
        );
        assert_eq!(
            [note(0.99, 1000), note(0.95, 999), note(0.99, 298)],
            [None, None, None]
        );
    }

    fn ruled(check: &Check, rows: Vec<TestRequest>) -> Verdict {
        rule(check, &sample(rows), &conditions(true))
    }

    fn latencies(values: impl IntoIterator<Item = f64>) -> Vec<TestRequest> {
        values
            .into_iter()
            .map(|value| ok(Metric::Ttft, value))
            .collect()
    }

    #[test]
    fn the_point_is_compared_where_the_check_says_so() {
        let wanted = Check {
            confidence: Confidence::Point,
            ..check(Metric::Ttft, P99, Op::Less, 10.0)
        };
        let seen = ruled(&wanted, latencies([9.0]));
        assert_eq!(
            (seen.ruling, seen.observed, seen.bound, seen.note),
            (Ruling::Pass, Some(9.0), None, None)
        );
        let sure = ruled(&check(Metric::Ttft, P99, Op::Less, 10.0), latencies([9.0]));
        assert_eq!((sure.ruling, sure.need), (Ruling::Inconclusive, Some(299)));
    }

    #[test]
    fn missing_cached_tokens_name_the_option_of_the_server() {
        let wanted = check(Metric::CachedShare, None, Op::AtLeast, 0.5);
        let note = |requests| ruled(&wanted, requests).note.unwrap();
        assert!(note(latencies([9.0])).contains("`--enable-prompt-tokens-details`"));
        assert_eq!(note(vec![failed()]), "no data");
    }

    #[test]
    fn extremes_and_equalities_say_that_they_are_points() {
        let seen = ruled(
            &check(Metric::Ttft, Some(Stat::Max), Op::Less, 10.0),
            latencies([9.0]),
        );
        assert_eq!(
            seen.note.as_deref(),
            Some("point estimate only: a minimum or maximum has no confidence bound")
        );
        let seen = ruled(
            &check(Metric::ErrorRate, None, Op::Equal, 0.0),
            latencies([9.0]),
        );
        assert_eq!((seen.ruling, seen.observed), (Ruling::Pass, Some(0.0)));
    }

    #[test]
    fn a_signal_is_compared_as_a_point_whatever_the_confidence() {
        let subject = Subject::Signal {
            signal: Signal::ServerWaiting,
            stat: Stat::Quantile(0.99),
            role: None,
        };
        let wanted = Check {
            subject,
            ..check(Metric::Ttft, P99, Op::Less, 10.0)
        };
        assert_eq!(
            ruled(&wanted, latencies([9.0])).note.as_deref(),
            Some("no data")
        );
        let mut seen = sample(latencies([9.0]));
        let actual = SignalStat {
            n: 3,
            mean: Some(5.0),
            values: vec![1.0, 12.0, 2.0],
            ..SignalStat::default()
        };
        seen.signals.insert(Signal::ServerWaiting, actual);
        let verdict = rule(&wanted, &seen, &conditions(true));
        assert_eq!(
            (verdict.ruling, verdict.observed, verdict.bound, verdict.n),
            (Ruling::Fail, Some(12.0), None, 3)
        );
        assert_eq!(
            verdict.note.as_deref(),
            Some(
                "point estimate only: telemetry samples are correlated, so no confidence bound is given"
            )
        );
    }

    #[test]
    fn the_gaps_of_one_request_prove_nothing() {
        let rows = vec![TestRequest {
            gaps: vec![1.0; 1000],
            ..ok(Metric::Ttft, 1.0)
        }];
        let seen = ruled(&check(Metric::Itl, P99, Op::Less, 10.0), rows);
        let note = "1000 correlated samples carry the information of about 1; a verdict needs 20";
        assert_eq!(
            (seen.ruling, seen.n, seen.note.as_deref()),
            (Ruling::Inconclusive, 1000, Some(note))
        );
    }

    #[test]
    fn a_failed_audit_invalidates_but_keeps_the_numbers() {
        let wanted = check(Metric::ErrorRate, None, Op::Less, 0.5);
        let seen = rule(&wanted, &sample(latencies([1.0; 40])), &conditions(false));
        assert_eq!(
            (seen.ruling, seen.observed, seen.n),
            (Ruling::Invalid, Some(0.0), 40)
        );
        assert_eq!(seen.note.as_deref(), Some(REJECTED));
        let mut none = sample(Vec::new());
        let note = |none: &Sample| rule(&wanted, none, &conditions(false)).note.unwrap();
        assert_eq!(note(&none), "did not run");
        none.counts.warmup = 1;
        assert_eq!(note(&none), REJECTED);
    }

    #[test]
    fn the_start_of_the_server_is_judged_whatever_the_load_generator_did() {
        let mut seen = sample(latencies([1.0; 40]));
        let wanted = check(Metric::Startup, None, Op::Less, 5.0);
        assert_eq!(
            rule(&wanted, &seen, &conditions(false)).ruling,
            Ruling::Invalid,
            "no start was measured"
        );
        seen.scalars.insert(Metric::Startup, 7.0);
        let verdict = rule(&wanted, &seen, &conditions(false));
        assert_eq!(
            (verdict.ruling, verdict.observed),
            (Ruling::Fail, Some(7.0))
        );
    }

    #[test]
    fn no_check_passes_without_data_unless_it_was_told_to() {
        for &metric in Metric::ALL {
            let stats: &[Option<Stat>] = match metric.per() {
                Scope::Case => &[None],
                _ => &[
                    P99,
                    Some(Stat::Mean),
                    Some(Stat::Min),
                    Some(Stat::Max),
                    Some(Stat::Count),
                    Some(Stat::Sd),
                ],
            };
            for (&stat, op) in stats
                .iter()
                .flat_map(|stat| [Op::Less, Op::AtLeast, Op::Unequal].map(|op| (stat, op)))
            {
                for confidence in [Confidence::Point, Confidence::Level(0.95)] {
                    let wanted = Check {
                        confidence,
                        ..check(metric, stat, op, 0.5)
                    };
                    assert_eq!(
                        ruled(&wanted, Vec::new()).ruling,
                        Ruling::Fail,
                        "{metric} {stat:?} {op}"
                    );
                    let lax = Check {
                        no_data: NoData::Inconclusive,
                        ..wanted
                    };
                    assert_eq!(ruled(&lax, Vec::new()).ruling, Ruling::Inconclusive);
                }
            }
        }
        let actual = Check {
            no_data: NoData::Pass,
            ..check(Metric::Ttft, P99, Op::Less, 1.0)
        };
        assert_eq!(
            ruled(&actual, vec![failed()]).note.as_deref(),
            Some("no data; passes because the objective sets `no_data: pass`")
        );
    }

    #[test]
    fn nothing_passes_a_limit_that_is_no_number() {
        for op in [
            Op::Less,
            Op::AtMost,
            Op::More,
            Op::AtLeast,
            Op::Equal,
            Op::Unequal,
        ] {
            for (metric, stat) in [
                (Metric::Ttft, P99),
                (Metric::Ttft, Some(Stat::Mean)),
                (Metric::ErrorRate, None),
            ] {
                let seen = ruled(
                    &check(metric, stat, op, f64::NAN),
                    latencies((0..500).map(f64::from)),
                );
                assert_eq!(seen.ruling, Ruling::Fail, "{metric} {op}");
            }
        }
    }

    #[test]
    fn the_quantile_among_the_failed_is_beyond_any_limit() {
        let wanted = Check {
            of: RequestSet::Scheduled,
            ..check(Metric::Ttft, P99, Op::Less, 10.0)
        };
        let seen = ruled(
            &wanted,
            (0..100)
                .map(|k| {
                    if k % 10 == 3 {
                        failed()
                    } else {
                        ok(Metric::Ttft, 1.0)
                    }
                })
                .collect(),
        );
        assert_eq!(
            (seen.ruling, seen.observed),
            (Ruling::Fail, Some(f64::INFINITY))
        );
        assert!(seen.note.unwrap().contains("failed requests"));
    }

    #[test]
    fn the_case_figures_are_points() {
        let mut sample = sample(latencies([1.0]));
        sample.scalars.insert(Metric::ConcurrencyMean, 7.0);
        let seen = rule(
            &check(Metric::ConcurrencyMean, None, Op::More, 6.0),
            &sample,
            &conditions(true),
        );
        assert_eq!(
            (seen.ruling, seen.observed, seen.n),
            (Ruling::Pass, Some(7.0), 1)
        );
    }

    #[test]
    fn a_limit_at_the_true_quantile_passes_no_more_often_than_allowed() {
        // Exponential values: the true p95 is −ln 0.05. Standing exactly there, a limit is wrongly passed or failed.
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        let wanted = check(
            Metric::Ttft,
            Some(Stat::Quantile(0.95)),
            Op::Less,
            -(0.05f64.ln()),
        );
        let mut wrong = [0; 2];
        for _ in 0..2000 {
            let draw = latencies((0..120).map(|_| -(1.0 - rng.random_range(0.0..1.0f64)).ln()));
            let ruling = ruled(&wanted, draw).ruling;
            wrong[0] += u32::from(ruling == Ruling::Pass);
            wrong[1] += u32::from(ruling == Ruling::Fail);
        }
        assert!(
            wrong.iter().all(|&count| (5..=129).contains(&count)),
            "{wrong:?} of 2000"
        );
    }

    proptest! {
        #[test]
        fn goodput_and_the_quantile_over_all_scheduled_agree(
            values in prop::collection::vec(prop::option::weighted(0.97, 0.0..100.0f64), 1..600),
                limit in 50.0..120.0f64,
            percent in prop::sample::select(vec![50.0, 90.0, 95.0, 99.0, 99.9, 100.0]),
        ) {
            let share = percent / 100.0;
            let rows = sample(values.into_iter().map(|value| value.map_or_else(failed,
                |value| ok(Metric::Ttft, value))).collect());
            let by_quantile = Check { of: RequestSet::Scheduled, ..check(Metric::Ttft,
                Some(Stat::Quantile(share)), Op::Less, limit) };
            let by_goodput = goodput(vec![RequestLimit { metric: Metric::Ttft, op: Op::Less, limit }],
                Op::AtLeast, share);
            let verdicts = [by_quantile, by_goodput].map(|check| rule(&check, &rows, &conditions(true)));
            prop_assert_eq!(verdicts[0].ruling, verdicts[1].ruling);
            prop_assert_eq!(verdicts[0].need, verdicts[1].need);
        }

        #[test]
        fn a_verdict_repeats(values in prop::collection::vec(0.0..100.0f64, 2..40), limit in 0.0..100.0f64) {
            let wanted = check(Metric::Ttft, Some(Stat::Mean), Op::Less, limit);
            prop_assert_eq!(ruled(&wanted, latencies(values.clone())), ruled(&wanted, latencies(values)));
        }
    }
}

mod not_measured {
    use super::super::*;
    use crate::judge::fixture::{check, conditions, ok, sample};
    use crate::judge::rule;
    use llmscen_core::check::Op;

    fn notes(valid: bool, some: bool, why: &str) -> Vec<(Ruling, Option<String>)> {
        let mut seen = sample(vec![ok(Metric::Ttft, 1.0); 40]);
        seen.scalars.insert(Metric::Startup, 2.0);
        let wanted = [
            check(Metric::ErrorRate, None, Op::Less, 0.5),
            check(Metric::Startup, None, Op::Less, 9.0),
        ];
        let verdicts = wanted
            .iter()
            .map(|check| rule(check, &seen, &conditions(valid)))
            .collect();
        unmeasured_verdicts(verdicts, some, why)
            .into_iter()
            .map(|verdict| (verdict.ruling, verdict.note))
            .collect()
    }

    #[test]
    fn nothing_is_decided_but_the_start_of_the_server() {
        let open = |note: &str| (Ruling::Inconclusive, Some(note.to_owned()));
        let start = (
            Ruling::Pass,
            Some("point estimate only: a case has one such value".to_owned()),
        );
        for valid in [true, false] {
            let why = "target lost after 3.1 s: 127.0.0.1:8000: connection refused";
            assert_eq!(
                notes(valid, true, why),
                [open("not judged: target lost after 3.1 s"), start.clone()]
            );
            let why =
                "stopped after 20 of 5000 requests: every one failed with HTTP 401 (Unauthorized)";
            assert_eq!(
                notes(valid, false, why),
                [
                    open("not measured: stopped after 20 of 5000 requests"),
                    start.clone()
                ]
            );
            assert_eq!(
                notes(valid, false, "not run: target lost"),
                [open("not run: target lost"), start.clone()]
            );
        }
    }
}

mod aborted {
    use super::super::*;
    use crate::judge::fixture::{check, conditions, ok, sample};
    use crate::judge::rule;
    use llmscen_core::check::Op;
    use llmscen_core::metric::{Metric, Stat};

    fn rulings(valid: bool) -> Vec<(Ruling, Option<String>)> {
        let rows = sample(vec![ok(Metric::Ttft, 1.0); 400]);
        let wanted = check(Metric::Ttft, Some(Stat::Quantile(0.95)), Op::Less, 5.0);
        let verdicts = vec![rule(&wanted, &rows, &conditions(valid)); 2];
        let lost = Aborted {
            check: 1,
            expr: "x".into(),
            after: 400,
            n: 400,
            breaking: 60,
            allowed: 0.05,
            ..Aborted::default()
        };
        aborted_verdicts(verdicts, &lost)
            .into_iter()
            .map(|verdict| (verdict.ruling, verdict.note))
            .collect()
    }

    #[test]
    fn the_failed_check_fails_and_others_are_inconclusive() {
        let known = "aborted after 400 requests: 60 of 400 exceeded the limit (5 % allowed)";
        let other = "not judged: the case was aborted by `x`";
        assert_eq!(
            rulings(true),
            [
                (Ruling::Inconclusive, Some(other.into())),
                (Ruling::Fail, Some(known.into()))
            ]
        );
    }

    #[test]
    fn an_unsound_measurement_decides_nothing() {
        assert!(
            rulings(false)
                .iter()
                .all(|(ruling, note)| *ruling == Ruling::Invalid && note.is_some())
        );
    }
}

mod bounded {
    use super::super::*;
    use crate::judge::fixture::{check, conditions, ok, sample};
    use crate::judge::rule;
    use Ruling::{Fail, Inconclusive, Pass};
    use llmscen_core::check::{Confidence, Verdict};
    use llmscen_core::metric::{Metric, Stat};
    use llmscen_core::signal::Signal;
    use llmscen_core::telemetry::SignalStat;

    /// Of ten, six up to 300 ms, and four beyond 10 s.
    fn ruled(share: f64, op: Op, limit: f64) -> Verdict {
        let subject = Subject::Signal {
            signal: Signal::ServerQueueTime,
            stat: Stat::Quantile(share),
            role: None,
        };
        let confidence = Confidence::Level(0.95);
        let wanted = Check {
            subject,
            confidence,
            ..check(Metric::Ttft, Some(Stat::Quantile(0.99)), op, limit)
        };
        let mut seen = sample(vec![ok(Metric::Ttft, 1.0)]);
        let buckets = vec![(300.0, 6.0), (10_000.0, 6.0), (f64::INFINITY, 10.0)];
        seen.signals.insert(
            Signal::ServerQueueTime,
            SignalStat {
                n: 10,
                buckets,
                ..SignalStat::default()
            },
        );
        rule(&wanted, &seen, &conditions(true))
    }

    #[test]
    fn in_the_first_bucket_only_what_holds_for_all_of_it_is_decided() {
        for (op, limit, ruling) in [
            (Op::Less, 300.0, Inconclusive),
            (Op::Less, 300.1, Pass),
            (Op::AtMost, 300.0, Pass),
            (Op::AtMost, 299.9, Inconclusive),
            (Op::More, 300.0, Fail),
            (Op::More, 299.9, Inconclusive),
            (Op::AtLeast, 300.0, Inconclusive),
            (Op::AtLeast, 300.1, Fail),
            (Op::Equal, 300.0, Inconclusive),
            (Op::Equal, 300.1, Fail),
            (Op::Unequal, 300.1, Pass),
            (Op::Unequal, 1.0, Inconclusive),
            (Op::Less, f64::NAN, Fail),
        ] {
            let seen = ruled(0.5, op, limit);
            assert_eq!(
                (seen.ruling, seen.observed, seen.n),
                (ruling, None, 10),
                "{op} {limit}"
            );
        }
        let note = ruled(0.5, Op::Less, 300.0).note.unwrap();
        assert_eq!(
            note,
            "the server's histogram only shows that the value is ≤ 300 ms (it falls in the first bucket)"
        );
    }

    #[test]
    fn in_the_last_bucket_it_is_the_mirror() {
        for (op, limit, ruling) in [
            (Op::More, 10_000.0, Inconclusive),
            (Op::More, 9999.0, Pass),
            (Op::AtLeast, 10_000.0, Pass),
            (Op::AtLeast, 10_001.0, Inconclusive),
            (Op::Less, 10_000.0, Fail),
            (Op::Less, 10_001.0, Inconclusive),
            (Op::AtMost, 10_000.0, Inconclusive),
            (Op::AtMost, 9999.0, Fail),
            (Op::Equal, 9999.0, Fail),
            (Op::Unequal, 9999.0, Pass),
            (Op::Equal, 10_000.0, Inconclusive),
        ] {
            assert_eq!(ruled(0.9, op, limit).ruling, ruling, "{op} {limit}");
        }
        let note = ruled(0.9, Op::Less, 1.0).note.unwrap();
        assert_eq!(
            note,
            "the server's histogram only shows that the value is ≥ 10000 ms (it falls in the last bucket)"
        );
    }
}

mod unanswered {
    use super::super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, conditions, goodput, ok, sample};
    use llmscen_core::check::Op;
    use llmscen_core::metric::Stat;

    #[test]
    fn a_reply_of_reasoning_alone_answers_at_an_unknown_time() {
        let answered = |value: f64| ok(Metric::TimeToFirstAnswer, value);
        let alone = TestRequest {
            ok: true,
            reasoning_alone: true,
            ..TestRequest::default()
        };
        let judged = |slow: usize, alone_count: usize, stat: Stat| {
            // Each kind is spread over the run.
            let rows = (0..1000).map(|request| match request * 619 % 1000 {
                place if place < alone_count => alone.clone(),
                place if place < alone_count + slow => answered(9.0),
                _ => answered(1.0),
            });
            let check = check(Metric::TimeToFirstAnswer, Some(stat), Op::Less, 5.0);
            let verdict = rule(&check, &sample(rows.collect()), &conditions(true));
            let is_measured = verdict
                .note
                .is_none_or(|note| !note.starts_with("not measured: "));
            (verdict.ruling, is_measured)
        };
        let p95 = Stat::Quantile(0.95);
        assert_eq!(judged(0, 0, p95), (Ruling::Pass, true));
        assert_eq!(judged(0, 5, p95), (Ruling::Pass, true), "few, however late");
        assert_eq!(judged(0, 300, p95), (Ruling::Inconclusive, false));
        assert_eq!(
            judged(200, 5, p95),
            (Ruling::Fail, true),
            "slow without them"
        );
        assert_eq!(judged(0, 1000, p95), (Ruling::Inconclusive, false));
        assert_eq!(judged(0, 1, Stat::Mean), (Ruling::Inconclusive, false));
        assert_eq!(judged(0, 1, Stat::Max), (Ruling::Inconclusive, false));
    }

    #[test]
    fn a_goodput_leaves_out_replies_without_a_pace() {
        let paced = |pace: f64| TestRequest {
            values: vec![(Metric::Ttft, 1.0), (Metric::Tpot, pace)],
            ..ok(Metric::Ttft, 1.0)
        };
        let judged = |slow: usize, without: usize, n: usize| {
            // Each kind is spread over the run.
            let rows = (0..n).map(|request| match request * 619 % n {
                place if place < without => ok(Metric::Ttft, 1.0),
                place if place < without + slow => paced(9.0),
                _ => paced(1.0),
            });
            let limit = RequestLimit {
                metric: Metric::Tpot,
                op: Op::Less,
                limit: 5.0,
            };
            let check = goodput(vec![limit], Op::AtLeast, 0.95);
            let verdict = rule(&check, &sample(rows.collect()), &conditions(true));
            (verdict.ruling, verdict.observed, verdict.n, verdict.note)
        };
        assert_eq!(judged(0, 0, 1000), (Ruling::Pass, Some(1.0), 1000, None));
        // 20 more bad ones would not turn it, 300 would.
        assert_eq!(judged(0, 20, 1000), (Ruling::Pass, Some(1.0), 980, None));
        let note = Some("not measured: 300 replies have no pace".to_owned());
        let open = (Ruling::Inconclusive, Some(1.0), 700, note);
        assert_eq!(judged(0, 300, 1000), open);
        assert_eq!(judged(200, 20, 1000).0, Ruling::Fail);
        // Too few requests are the reason where they are.
        let few = judged(0, 1, 50);
        assert_eq!((few.0, few.3), (Ruling::Inconclusive, None));
        let none = judged(0, 1000, 1000);
        assert_eq!((none.0, none.1, none.2), (Ruling::Fail, None, 0));
    }
}
