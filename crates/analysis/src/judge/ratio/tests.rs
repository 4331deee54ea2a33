mod ratio {
    use super::super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, ok, sample};
    use crate::judge::ratio::mean_units;
    use llmscen_core::check::Op;
    use llmscen_core::metric::{Metric, Stat};

    fn judged(op: Op, limit: f64, values: impl IntoIterator<Item = (u32, f64)>) -> Assessment {
        let row = |(round, value)| TestRequest {
            round,
            ..ok(Metric::Ttft, value)
        };
        let sample = sample(values.into_iter().map(row).collect());
        let units = mean_units(&sample.requests.iter().collect::<Vec<_>>(), Metric::Ttft);
        judge_ratio(
            &check(Metric::Ttft, Some(Stat::Mean), op, limit),
            &units,
            units.observed.unwrap(),
            0.95,
        )
    }

    /// 0 to 99, neighbours unlike.
    fn spread() -> impl Iterator<Item = (u32, f64)> {
        (0..100).map(|place| (0, f64::from(place * 37 % 100)))
    }

    #[test]
    fn far_limits_are_decided_and_near_ones_are_not() {
        // Mean 49.5, standard error 2.9.
        assert_eq!(judged(Op::Less, 60.0, spread()).ruling, Ruling::Pass);
        assert_eq!(judged(Op::Less, 40.0, spread()).ruling, Ruling::Fail);
        assert_eq!(judged(Op::AtLeast, 40.0, spread()).ruling, Ruling::Pass);
        assert_eq!(judged(Op::AtLeast, 60.0, spread()).ruling, Ruling::Fail);
        let near = judged(Op::Less, 50.5, spread());
        assert_eq!(
            (near.ruling, near.observed, near.n),
            (Ruling::Inconclusive, Some(49.5), 100)
        );
        // The bound is 5.6 off, the limit 1.0: about 31 times the samples.
        assert!((2500..3800).contains(&near.need.unwrap()), "{near:?}");
    }

    /// Of ten batches of ten: sums of their offsets from the mean, 10 / 9 of their squares, the root over 100; or of
    /// single values.
    fn seen_error() -> f64 {
        let values: Vec<f64> = spread().map(|own| own.1 - 49.5).collect();
        let squares = |sums: Vec<f64>| {
            let n = sums.len() as f64;
            sums.iter().map(|sum| sum * sum).sum::<f64>() * n / (n - 1.0)
        };
        squares(values.chunks(10).map(|own| own.iter().sum()).collect())
            .max(squares(values.clone()))
            .sqrt()
            / 100.0
    }

    #[test]
    fn the_bound_is_the_end_that_the_verdict_rests_on() {
        // Student's t of 9 degrees of freedom, 1.8331, times 29.011 / 10, on the logarithm.
        let arm: f64 = seen_error() * 1.833_112_9 / 49.5;
        let (under, over) = (
            judged(Op::Less, 60.0, spread()),
            judged(Op::More, 40.0, spread()),
        );
        let near = |bound: Option<f64>, known: f64| (bound.unwrap() - known).abs() < 1e-4;
        assert!(
            near(under.bound, 49.5 * arm.exp()) && near(over.bound, 49.5 * (-arm).exp()),
            "{under:?} {over:?}"
        );
    }

    #[test]
    fn neighbours_that_are_alike_decide_less() {
        let sorted = |limit| judged(Op::Less, limit, (0..100).map(|place| (0, f64::from(place))));
        assert_eq!(
            (judged(Op::Less, 60.0, spread()).ruling, sorted(60.0).ruling),
            (Ruling::Pass, Ruling::Inconclusive)
        );
    }

    #[test]
    fn too_few_samples_decide_nothing() {
        let seen = judged(Op::Less, 60.0, [(0, 1.0); 19]);
        assert_eq!(
            (seen.ruling, seen.bound, seen.need),
            (Ruling::Inconclusive, None, Some(20))
        );
        assert_eq!(
            seen.note.unwrap(),
            "19 requests are too few for a bound; at least 20 are required"
        );
        assert_eq!(judged(Op::Less, 60.0, [(0, 1.0); 20]).ruling, Ruling::Pass);
        assert_eq!(judged(Op::Less, f64::NAN, spread()).ruling, Ruling::Fail);
    }

    #[test]
    fn rounds_that_differ_are_what_decides() {
        let seen = judged(
            Op::Less,
            60.0,
            (0..100).map(|place| (place / 20, f64::from(place / 20 * 20))),
        );
        assert_eq!(
            seen.note.unwrap(),
            "the bound comes from the variance between rounds; increase `rounds`"
        );
    }
}

mod resampling_units {
    use super::super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{ok, sample};
    use crate::sending::ThroughputWindow;

    fn reply(round: u32, took: f64, tokens: f64) -> TestRequest {
        TestRequest {
            round,
            output_tokens: Some(tokens),
            busy_ms: took,
            ..ok(Metric::E2e, took)
        }
    }

    /// Requests of 10 tokens that end evenly over rounds of 10 s, so many in each.
    fn steady(each: &[u16]) -> Sample {
        let flow = |(round, ends): (usize, &u16)| Flow {
            round: round as u32,
            bins: (0..*ends)
                .map(|end| {
                    (
                        end * (240 / ends),
                        Amounts {
                            ended: 1.0,
                            requests: 1.0,
                            output: 10.0,
                            ..Amounts::default()
                        },
                    )
                })
                .collect(),
            ..Flow::default()
        };
        let rows = each
            .iter()
            .enumerate()
            .flat_map(|(round, ends)| vec![reply(round as u32, 500.0, 10.0); usize::from(*ends)]);
        let flows = each.iter().enumerate().map(flow).collect();
        Sample {
            requests_window: ThroughputWindow::of_lengths(vec![10.0; each.len()]),
            flows,
            ..sample(rows.collect())
        }
    }

    fn of(sample: &Sample, metric: Metric) -> Units {
        throughput_units(
            &sample.requests.iter().collect::<Vec<_>>(),
            metric,
            sample,
            &[],
        )
        .unwrap()
    }

    #[test]
    fn a_throughput_is_what_arrived_over_all_windows() {
        let seen = of(&steady(&[60, 120]), Metric::OutputTps);
        assert_eq!(
            (seen.observed, seen.n, seen.counted, seen.by_round),
            (Some(90.0), 180, 180, false)
        );
        assert_eq!(
            of(&steady(&[60, 120]), Metric::RequestThroughput).observed,
            Some(9.0)
        );
        assert_eq!(of(&steady(&[]), Metric::RequestThroughput).observed, None);
    }

    #[test]
    fn fewer_than_twenty_ends_have_a_figure_and_no_bound() {
        let (few, enough) = (
            of(&steady(&[15]), Metric::OutputTps),
            of(&steady(&[20]), Metric::OutputTps),
        );
        assert_eq!(
            (few.observed, few.long_run, few.counted),
            (Some(15.0), None, 15)
        );
        assert!(enough.long_run.is_some());
    }

    #[test]
    fn five_rounds_differ_as_they_do() {
        let seen = of(&steady(&[60, 120, 60, 120, 60]), Metric::RequestThroughput);
        let errors = seen.long_run.unwrap().errors;
        // 6 and 12 a second, 8.4 in all: 24, 36, 24, 36 and 24 requests off; 5 / 4 of their squares, over 50 s.
        assert!(
            seen.by_round && (errors[1].size - (5.0 / 4.0 * 4320.0f64).sqrt() / 50.0).abs() < 1e-12,
            "{errors:?}"
        );
        assert_eq!(errors[1].freedom, 4.0);
    }

    #[test]
    fn tags_leave_out_what_others_brought() {
        let sample = steady(&[60, 120]);
        let requests: Vec<MeasuredRequest<'_>> = sample
            .requests
            .iter()
            .filter(|request| request.round() == 1)
            .collect();
        let seen = throughput_units(
            &requests,
            Metric::OutputTps,
            &sample,
            &[("round".into(), "1".into())],
        )
        .unwrap();
        assert_eq!(
            (seen.observed, seen.n),
            (Some(60.0), 120),
            "over the windows of the case"
        );
    }

    #[test]
    fn unknown_tokens_are_no_data_and_gpus_divide() {
        let bare = Sample {
            requests_window: ThroughputWindow::of_lengths(vec![10.0]),
            ..sample(vec![ok(Metric::E2e, 500.0); 60])
        };
        assert_eq!(of(&bare, Metric::OutputTps), Units::default());
        let mut sample = steady(&[60]);
        let failed = TestRequest::default();
        sample.requests = vec![reply(0, 500.0, 10.0); 60]
            .into_iter()
            .chain([failed])
            .collect();
        sample
            .scalars
            .extend([(Metric::OutputTps, 60.0), (Metric::OutputTpsPerGpu, 15.0)]);
        let requests: Vec<MeasuredRequest<'_>> = sample.requests.iter().collect();
        assert_eq!(of(&sample, Metric::OutputTpsPerGpu).observed, Some(15.0));
        assert_eq!(of(&sample, Metric::OutputTpsPerUser).observed, Some(20.0));
        assert_eq!(
            throughput_units(&requests, Metric::ConcurrencyMean, &sample, &[]),
            None
        );
    }
}
