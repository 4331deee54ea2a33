mod facts {
    use super::super::*;
    use crate::fixture::{failed, outcome, stream, table};

    #[test]
    fn columns_contain_the_outcomes() {
        let rows = [
            outcome(0),
            stream(1, 100, &[150, 150, 170]),
            failed(2, FailureKind::Truncated),
        ];
        let table = table("a", &rows);
        let facts = table.rows_of_case("a");
        assert_eq!(facts[1].events(), [150_000_000, 150_000_000, 170_000_000]);
        assert_eq!((facts[0].events(), facts[0].ok()), (&[] as &[u64], true));
        let failed = (facts[2].failure(), facts[2].message(), facts[2].failed_at());
        assert_eq!(
            failed,
            (Some(FailureKind::Truncated), "no luck", "after headers")
        );
        assert!(table.rows_of_case("b").is_empty());
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_row() {
        let words = column_of::<Text>(s::OUTCOME, [Some("ok"), Some("fine")]);
        let error = check_words(&words, 0).unwrap_err().to_string();
        assert_eq!(
            error,
            "row 1 of column `outcome` has the value `fine`, which is not a valid value of this column"
        );
    }
}

mod derive {
    use super::super::*;
    use crate::fixture::{failed, frame, outcome, stream, table};
    use llmscen_core::outcome::{Counted, FailureKind, Outcome, Usage};

    fn metrics(outcome: Outcome, metrics: &[Metric]) -> Vec<Option<f64>> {
        let table = table("a", &[outcome]);
        let facts = table.rows_of_case("a");
        metrics
            .iter()
            .map(|&metric| facts[0].metric(metric))
            .collect()
    }

    #[test]
    fn a_stream_has_every_metric() {
        // Due at 98 ms, sent at 100, four tokens at 150, 160, 180, 190, ended at 190.
        let mut late = stream(0, 100, &[150, 160, 180, 190]);
        late.timeline.intended = llmscen_core::units::Nanos::from_millis(98);
        use Metric::*;
        let all = [
            Ttft,
            TtftService,
            Ttfc,
            TokensPerEvent,
            Tpot,
            Ntpot,
            E2e,
            E2eService,
            ScheduleLag,
            PrefillTps,
            TtftPerPromptToken,
        ];
        let known = [
            52.0,
            50.0,
            1.0,
            1.0,
            40.0 / 3.0,
            23.0,
            92.0,
            90.0,
            2.0,
            200.0,
            5.2,
        ];
        assert_eq!(metrics(late.clone(), &all), known.map(Some));
        assert!((metrics(late.clone(), &[DecodeTps])[0].unwrap() - 75.0).abs() < 1e-9);
        assert_eq!(
            metrics(
                late,
                &[PromptTokens, OutputTokens, ReasoningTokens, CachedTokens]
            ),
            [Some(10.0), Some(4.0), None, None]
        );
    }

    #[test]
    fn the_first_answer_comes_after_the_reasoning() {
        let of = |reasoning: u32, counted: Option<u64>| {
            let mut row = stream(0, 100, &[150, 160, 180, 190]);
            (row.timeline.reasoning, row.usage.reasoning) = (reasoning, counted);
            metrics(row, &[Metric::Ttft, Metric::TimeToFirstAnswer])
        };
        assert_eq!(of(2, None), [Some(50.0), Some(80.0)]);
        assert_eq!(
            of(0, None),
            [Some(50.0), None],
            "without reasoning it is the TTFT, and not shown twice"
        );
        assert_eq!(
            of(0, Some(7)),
            [Some(50.0), Some(50.0)],
            "reasoning that the server counts and does not stream"
        );
        assert_eq!(of(0, Some(0)), [Some(50.0), None]);
        assert_eq!(of(4, Some(4)), [Some(50.0), None], "all of it is reasoning");
    }

    #[test]
    fn token_rates_of_a_request_are_over_its_whole_latency() {
        use Metric::*;
        // Scheduled at 98 ms, ended at 190: 4 output and 10 prompt tokens in 92 ms.
        let mut late = stream(0, 100, &[150, 160, 180, 190]);
        late.timeline.intended = llmscen_core::units::Nanos::from_millis(98);
        let rates = metrics(late.clone(), &[OutputTpsPerRequest, TotalTpsPerRequest]);
        let near = |rate: Option<f64>, known: f64| (rate.unwrap() - known).abs() < 1e-9;
        assert!(
            near(rates[0], 4.0 / 0.092) && near(rates[1], 14.0 / 0.092),
            "{rates:?}"
        );
        late.usage.prompt = None;
        assert_eq!(
            metrics(late, &[TotalTpsPerRequest]),
            [None],
            "without a count of the prompt there is no total"
        );
        assert_eq!(
            metrics(
                failed(0, FailureKind::Truncated),
                &[OutputTpsPerRequest, TotalTpsPerRequest]
            ),
            [None, None]
        );
    }

    #[test]
    fn what_was_not_streamed_has_no_first_token() {
        let seen = metrics(
            outcome(0),
            &[
                Metric::Ttft,
                Metric::Tpot,
                Metric::TokensPerEvent,
                Metric::E2e,
                Metric::Ntpot,
            ],
        );
        assert_eq!(seen, [None, None, None, Some(82.0), Some(20.5)]);
    }

    #[test]
    fn what_failed_keeps_only_its_lag_and_first_byte() {
        let all = [
            Metric::Ttft,
            Metric::E2e,
            Metric::E2eService,
            Metric::Ntpot,
            Metric::ScheduleLag,
            Metric::Ttfc,
        ];
        assert_eq!(
            metrics(failed(0, FailureKind::Truncated), &all),
            [None, None, None, None, Some(2.0), Some(79.0)]
        );
        assert_eq!(metrics(failed(0, FailureKind::Dropped), &all), [None; 6]);
    }

    #[test]
    fn one_token_and_one_read_have_no_pace() {
        let pace = [Metric::Tpot, Metric::DecodeTps];
        assert_eq!(metrics(stream(0, 0, &[50]), &pace), [None, None]);
        assert_eq!(metrics(stream(0, 0, &[50, 50, 50]), &pace), [None, None]);
        let mut none = stream(0, 0, &[50, 60]);
        none.usage.output = Some(0);
        assert_eq!(
            metrics(none, &[Metric::Tpot, Metric::Ntpot, Metric::TokensPerEvent]),
            [Some(10.0), Some(30.0), Some(1.0)],
            "a count of 0 beside events is not used"
        );
    }

    #[test]
    fn counts_come_from_the_server_then_the_tokenizer_then_the_events() {
        let mut reply = stream(0, 0, &[50, 60]);
        reply.usage = Usage {
            output: Some(9),
            ..Usage::default()
        };
        reply.counted = Counted {
            prompt: Some(7),
            output: Some(8),
            approximate: false,
        };
        let counts =
            |reply: &Outcome| metrics(reply.clone(), &[Metric::PromptTokens, Metric::OutputTokens]);
        assert_eq!(counts(&reply), [Some(7.0), Some(9.0)]);
        reply.usage = Usage::default();
        assert_eq!(counts(&reply), [Some(7.0), Some(8.0)]);
        reply.counted = Counted::default();
        assert_eq!(counts(&reply), [None, Some(2.0)]);
        reply.timeline.tokens.clear();
        assert_eq!(counts(&reply), [None, None]);
    }

    #[test]
    fn gaps_in_one_read_are_zero_and_stay() {
        let table = table("a", &[stream(0, 0, &[50, 50, 80]), stream(1, 0, &[50])]);
        let facts = table.rows_of_case("a");
        assert_eq!(facts[0].gaps(), [0.0, 30.0]);
        let frame = frame(&table);
        let column = frame.column("itl_ms").unwrap().list().unwrap();
        assert_eq!(
            (
                column.get_as_series(0).unwrap().len(),
                column.get_as_series(1)
            ),
            (2, None)
        );
    }
}

mod live {
    use crate::fixture::{failed, outcome, stream, table};
    use crate::measured_requests::{MeasuredRequest, RequestsBuilder, with_live_request};
    use crate::output_lengths;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::{FailureKind, ServerTimes};
    use llmscen_core::units::Nanos;

    #[test]
    fn a_live_request_equals_the_stored_one() {
        let mut paced = stream(1, 100, &[150, 160, 190]);
        (paced.timeline.choices, paced.timeline.weights) = (vec![0, 1, 0], vec![2, 1, 4]);
        paced.server = ServerTimes {
            queue: Some(Nanos(5)),
            total: Some(Nanos(9)),
            ..ServerTimes::default()
        };
        let mut whole = stream(2, 200, &[250, 260]);
        whole.streamed = false;
        let rows = [
            outcome(0),
            paced,
            whole,
            failed(3, FailureKind::Truncated),
            failed(4, FailureKind::Dropped),
        ];
        let table = table("a", &rows);
        let mut stored = RequestsBuilder::default();
        for row in table.rows_of_case("a") {
            let applies = |metric| output_lengths::applies(metric, &row, None);
            stored.push_row(&row, (0.0, 0), applies);
        }
        let stored = stored.finish().unwrap();
        let read = |request: MeasuredRequest<'_>| {
            let values: Vec<Option<f64>> =
                Metric::ALL.iter().map(|&it| request.value(it)).collect();
            format!("{:?} {values:?} {:?}", request.fields(), request.gaps())
        };
        let live = rows
            .iter()
            .map(|outcome| with_live_request(outcome, 0, None, read));
        assert_eq!(
            live.collect::<Vec<_>>(),
            stored.iter().map(read).collect::<Vec<_>>()
        );
    }
}
