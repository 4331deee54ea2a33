mod sample {
    use super::super::*;
    use crate::columns::TaggedOutcome;
    use crate::fixture::{case, facts, failed, outcome, sample_case, stream, table, warmup};
    use crate::sample::failure_examples;
    use llmscen_core::distribution::Distribution;
    use llmscen_core::early_stop::EarlyStop;
    use llmscen_core::load::Shape;
    use llmscen_core::manifest::Part;
    use llmscen_core::outcome::{Failure, Outcome};
    use llmscen_core::quantity::Quantity;
    use llmscen_core::request::Cancel;
    use llmscen_core::units::Nanos;

    #[test]
    fn every_scheduled_request_is_counted_once() {
        let rows = [
            warmup(failed(0, FailureKind::Connect)),
            outcome(1),
            failed(2, FailureKind::Dropped),
            failed(3, FailureKind::Cancelled),
            failed(4, FailureKind::Dropped),
        ];
        let seen = sample_case(
            &table("a", &rows),
            &facts(&case(Shape::Closed { users: 1 })),
        );
        let failures = BTreeMap::from([(FailureKind::Cancelled, 1), (FailureKind::Dropped, 2)]);
        let known = Counts {
            scheduled: 4,
            ok: 1,
            failed: 1,
            dropped: 2,
            arrivals: 4,
            failures,
            warmup: 1,
            ..Counts::default()
        };
        assert_eq!((seen.counts, seen.requests.len()), (known, 4));
    }

    #[test]
    fn what_a_round_that_ended_itself_gave_up_is_no_failure() {
        let rows = [
            outcome(0),
            failed(1, FailureKind::Cancelled),
            failed(2, FailureKind::TimeoutTotal),
        ];
        let (table, case) = (table("a", &rows), case(Shape::Closed { users: 1 }));
        let seen = |ending: Option<EarlyStop>| {
            let parts = [Part {
                case: "a".into(),
                ending,
                ..Part::default()
            }];
            let facts = CaseFacts {
                case: &case,
                parts: &parts,
                until: None,
            };
            let seen = sample_case(&table, &facts);
            let kinds: Vec<_> = failure_examples(&table, &facts)
                .iter()
                .map(|one| one.kind)
                .collect();
            (
                seen.counts.failed,
                seen.scalars[&Metric::ErrorRate],
                kinds.len(),
            )
        };
        assert_eq!(seen(None), (2, 2.0 / 3.0, 2));
        assert_eq!(
            seen(Some(EarlyStop::Aborted(Default::default()))),
            (1, 0.5, 1)
        );
        assert_eq!(
            seen(Some(EarlyStop::Saturated(Default::default()))),
            (1, 0.5, 1)
        );
    }

    #[test]
    fn requests_without_a_file_are_told_apart_from_those_that_the_server_refused() {
        let refused = |seq, why: &str| Outcome {
            end: Err(Failure::new(FailureKind::Connect, why)),
            ..failed(seq, FailureKind::Connect)
        };
        let why = format!("127.0.0.1:80: {}", Failure::NO_FILES);
        let rows = [
            warmup(refused(0, &why)),
            refused(1, &why),
            refused(2, "connection refused"),
            outcome(3),
        ];
        let seen = sample_case(
            &table("a", &rows),
            &facts(&case(Shape::Closed { users: 1 })),
        );
        assert_eq!((seen.without_file, seen.counts.failed), (2, 2));
    }

    #[test]
    fn distributions_are_over_what_succeeded() {
        let mut rows = vec![stream(0, 0, &[10, 30]), stream(1, 0, &[20, 60, 60])];
        rows.push(failed(2, FailureKind::Truncated));
        let seen = sample_case(
            &table("a", &rows),
            &facts(&case(Shape::Closed { users: 1 })),
        );
        let of = |metric| &seen.distributions[&metric];
        assert_eq!(
            (
                of(Metric::Ttft).n,
                of(Metric::Ttft).min,
                of(Metric::Ttft).max
            ),
            (2, 10.0, 20.0)
        );
        assert_eq!(
            (
                of(Metric::Itl).n,
                of(Metric::Itl).mean,
                of(Metric::ScheduleLag).max
            ),
            (3, 20.0, 0.0)
        );
        assert!(!seen.distributions.contains_key(&Metric::CachedTokens));
    }

    #[test]
    fn users_who_leave_are_counted_apart_and_bias_nothing() {
        let left = Outcome {
            attempts: 3,
            end: failed(1, FailureKind::Abandoned).end,
            ..stream(1, 0, &[30, 40])
        };
        let rows = [
            stream(0, 0, &[10, 20]),
            left,
            failed(2, FailureKind::Connect),
        ];
        let seen = |when: CancelWhen| {
            let mut case = case(Shape::Closed { users: 1 });
            case.request.cancel = Some(Cancel { share: 0.5, when });
            sample_case(&table("a", &rows), &facts(&case))
        };
        let by_tokens = seen(CancelWhen::Tokens(Quantity::fixed(2)));
        let counts = &by_tokens.counts;
        assert_eq!(
            (counts.scheduled, counts.ok, counts.failed, counts.abandoned),
            (3, 1, 1, 1)
        );
        assert_eq!(
            (counts.retries, counts.retried, counts.failures.len()),
            (2, 1, 1)
        );
        assert_eq!(by_tokens.scalars[&Metric::ErrorRate], 0.5);
        let n = |sample: &Sample| {
            [Metric::Ttft, Metric::E2e, Metric::Itl].map(|metric| sample.distributions[&metric].n)
        };
        assert_eq!(n(&by_tokens), [2, 1, 1]);
        assert_eq!(
            n(&seen(CancelWhen::After(Distribution::time(Nanos(1))))),
            [1, 1, 1]
        );
    }

    #[test]
    fn cases_do_not_mix_and_a_lost_round_has_no_window() {
        let (a, b) = (outcome(0), outcome(1));
        let rows = [("b", 0, &a), ("a", 2, &b)].map(|(case, round, outcome)| TaggedOutcome {
            case,
            round,
            shard: 0,
            outcome,
        });
        let seen = sample_case(&Table::build(rows).unwrap(), &facts(&case(Shape::Burst)));
        assert_eq!(
            (
                seen.windows,
                seen.requests.len(),
                seen.requests.iter().next().unwrap().round()
            ),
            (vec![0.0, 0.0, 0.082], 1, 2)
        );
    }
}

mod distribution {
    use super::super::*;

    #[test]
    fn the_numbers_of_one_to_a_thousand() {
        let seen = distribution((1..=1000).rev().map(f64::from).collect()).unwrap();
        assert_eq!(
            (seen.n, seen.mean, seen.min, seen.max),
            (1000, 500.5, 1.0, 1000.0)
        );
        assert_eq!(
            seen.quantiles,
            [
                10.0, 50.0, 100.0, 250.0, 500.0, 660.0, 750.0, 800.0, 900.0, 950.0, 980.0, 990.0,
                999.0
            ]
        );
        assert!((seen.sd.unwrap() - 288.819436).abs() < 1e-6);
    }

    #[test]
    fn one_value_has_no_deviation_and_none_no_distribution() {
        assert_eq!(
            distribution(vec![4.0]).map(|seen| (seen.sd, seen.quantiles)),
            Some((None, vec![4.0; 13]))
        );
        assert_eq!(distribution(Vec::new()), None);
    }
}

mod failures {
    use super::super::*;
    use crate::fixture::{case, facts, failed, outcome, table, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::Failure;

    #[test]
    fn the_most_frequent_comes_first_with_its_first_words() {
        let mut second = failed(3, FailureKind::Http429);
        second.end = Err(Failure::new(FailureKind::Http429, "later words"));
        let rows = [
            warmup(failed(0, FailureKind::Tls)),
            failed(1, FailureKind::Connect),
            failed(2, FailureKind::Http429),
            second,
            outcome(4),
        ];
        let seen = failure_examples(&table("a", &rows), &facts(&case(Shape::Burst)));
        let words: Vec<_> = seen
            .iter()
            .map(|one| (one.kind, one.count, one.message.as_str(), one.at.as_str()))
            .collect();
        let at = "after headers";
        assert_eq!(
            words,
            [
                (FailureKind::Http429, 2, "no luck", at),
                (FailureKind::Connect, 1, "no luck", at)
            ]
        );
    }
}
