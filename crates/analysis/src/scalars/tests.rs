mod scalars {
    use super::super::startup_seconds;
    use crate::columns::TaggedOutcome;
    use crate::fixture::{case, facts, failed, outcome, sample_case, stream, table, warmup};
    use crate::table::Table;
    use llmscen_core::check::{Check, Confidence, NoData, Op, RequestLimit, RequestSet, Subject};
    use llmscen_core::label::Labels;
    use llmscen_core::load::Shape;
    use llmscen_core::manifest::Part;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::FailureKind;
    use llmscen_core::target::Startup;
    use llmscen_core::units::Nanos;

    fn goodput_check() -> Check {
        Check {
            expr: "goodput(ttft < 60ms) >= 50%".into(),
            subject: Subject::Goodput(vec![RequestLimit {
                metric: Metric::Ttft,
                op: Op::Less,
                limit: 60.0,
            }]),
            op: Op::AtLeast,
            limit: 0.5,
            confidence: Confidence::Point,
            when: Labels::default(),
            of: RequestSet::Ok,
            no_data: NoData::Fail,
            relative: None,
            abort: None,
            is_default: false,
        }
    }

    #[test]
    fn one_round_in_numbers() {
        // Two users over 0 to 400 ms; the failed row is due at 300 and ends at 382, in the window.
        let rows = [
            stream(0, 0, &[50, 100, 200]),
            stream(1, 0, &[70, 400]),
            stream(2, 200, &[250, 300]),
            failed(3, FailureKind::Decode),
        ];
        let mut case = case(Shape::Closed { users: 2 });
        case.checks.push(goodput_check());
        case.target.gpus = Some(2);
        let seen = sample_case(&table("a", &rows), &facts(&case)).scalars;
        let of = |metric| {
            seen.get(&metric)
                .copied()
                .map(|value| (value * 1e6_f64).round() / 1e6)
        };
        assert_eq!(of(Metric::Window), Some(0.4));
        assert_eq!(of(Metric::RequestThroughputWithDrain), Some(7.5));
        assert_eq!(
            (
                of(Metric::OutputTpsWithDrain),
                of(Metric::TotalTpsWithDrain)
            ),
            (Some(17.5), Some(92.5))
        );
        // Steady from the first end, at 200 ms, until a user finds nothing more to send, at 382: too short, so the
        // whole run counts.
        assert_eq!(
            (of(Metric::ThroughputWindow), of(Metric::RequestThroughput)),
            (Some(0.4), Some(7.5))
        );
        assert_eq!(
            (of(Metric::OutputTps), of(Metric::OutputTpsPerGpu)),
            (Some(17.5), Some(8.75))
        );
        assert_eq!(of(Metric::TotalTps), Some(92.5));
        assert_eq!(
            (of(Metric::InputTps), of(Metric::TotalTpsPerGpu)),
            (Some(75.0), Some(46.25))
        );
        // 3 / 0.2 s, 2 / 0.4 s, 2 / 0.1 s.
        assert_eq!(of(Metric::OutputTpsPerUser), Some(13.333333));
        assert_eq!(
            (of(Metric::ErrorRate), of(Metric::GoodputRate)),
            (Some(0.25), Some(5.0))
        );
        // 200 + 400 + 100 + 80 ms of flight over 400.
        assert_eq!(
            (of(Metric::ConcurrencyMean), of(Metric::ConcurrencyMax)),
            (Some(1.95), Some(2.0))
        );
        assert_eq!(
            (of(Metric::RateOffered), of(Metric::RateAchieved)),
            (None, Some(10.0))
        );
    }

    #[test]
    fn goodput_counts_each_request_by_its_own_latency() {
        // The scheduled order is 1, 2, 0; the first is good.
        let rows = [
            stream(0, 200, &[250, 300]),
            stream(1, 0, &[70, 150]),
            stream(2, 0, &[390, 400]),
        ];
        let mut case = case(Shape::Closed { users: 2 });
        case.checks.push(goodput_check());
        let scalars = sample_case(&table("a", &rows), &facts(&case)).scalars;
        assert_eq!(scalars[&Metric::ThroughputWindow], 0.4);
        assert_eq!(scalars[&Metric::GoodputRate], 1.0 / 0.4);
    }

    #[test]
    fn rounds_pool_totals_and_windows() {
        let slow = [stream(0, 0, &[100, 300]), stream(1, 300, &[400, 700])];
        let fast = [stream(0, 0, &[50, 100]), stream(1, 100, &[150, 200])];
        let rows = [(0, &slow), (1, &fast)]
            .into_iter()
            .flat_map(|(round, rows)| rows.iter().map(move |own| (round, own)));
        let rows = rows.map(|(round, outcome)| TaggedOutcome {
            case: "a",
            round,
            shard: 0,
            outcome,
        });
        let case = case(Shape::Closed { users: 1 });
        let seen = sample_case(&Table::build(rows).unwrap(), &facts(&case));
        assert_eq!(
            (seen.windows, seen.requests_window.seconds),
            (vec![0.7, 0.2], vec![0.7, 0.2])
        );
        // 4 in 0.9 s; the mean of the rates would be 6.43.
        assert_eq!(
            (
                seen.scalars[&Metric::RequestThroughput],
                seen.scalars[&Metric::OutputTps]
            ),
            (4.0 / (0.7 + 0.2), 8.0 / (0.7 + 0.2))
        );
        assert_eq!(
            seen.scalars[&Metric::RequestThroughputWithDrain],
            4.0 / (0.7 + 0.2)
        );
    }

    #[test]
    fn warmup_fills_the_server_but_not_the_figures() {
        let case = case(Shape::Closed { users: 2 });
        let rows = [warmup(stream(0, 0, &[100, 300])), stream(1, 100, &[200])];
        let seen = sample_case(&table("a", &rows), &facts(&case));
        assert_eq!((seen.requests.len(), seen.counts.warmup), (1, 1));
        assert_eq!(
            (
                seen.scalars[&Metric::ConcurrencyMean],
                seen.scalars[&Metric::Window]
            ),
            (2.0, 0.1)
        );
        assert_eq!(seen.scalars[&Metric::OutputTpsWithDrain], 10.0);
    }

    #[test]
    fn a_case_without_a_start_of_its_own_has_that_of_its_server() {
        let part = |own: Option<u64>| {
            let startup = own.map(|ready| Startup {
                ready: Nanos::from_millis(ready),
                ..Startup::default()
            });
            Part {
                startup,
                served_ready: Some(Nanos::from_millis(own.unwrap_or(900))),
                ..Part::default()
            }
        };
        assert_eq!(startup_seconds(&[part(None), part(None)]), Some(0.9));
        assert_eq!(
            startup_seconds(&[part(Some(100)), part(None), part(Some(300))]),
            Some(0.2)
        );
        assert_eq!(startup_seconds(&[Part::default()]), None);
    }

    #[test]
    fn what_does_not_exist_is_absent() {
        let case = case(Shape::Closed { users: 1 });
        let none = sample_case(&table("a", &[]), &facts(&case));
        assert!(none.scalars.is_empty() && none.distributions.is_empty());
        let lost = sample_case(
            &table("a", &[failed(0, FailureKind::Connect)]),
            &facts(&case),
        )
        .scalars;
        assert_eq!(
            (
                lost.get(&Metric::ErrorRate),
                lost.get(&Metric::RequestThroughput)
            ),
            (Some(&1.0), Some(&0.0))
        );
        assert_eq!(
            (lost.get(&Metric::OutputTps), lost.get(&Metric::GoodputRate)),
            (None, None)
        );
        let whole = sample_case(&table("a", &[outcome(0)]), &facts(&case)).scalars;
        assert_eq!(
            (
                whole.get(&Metric::OutputTpsSteady),
                whole.contains_key(&Metric::OutputTpsWithDrain)
            ),
            (None, true)
        );
        assert_eq!(
            whole.get(&Metric::OutputTps),
            whole.get(&Metric::OutputTpsWithDrain),
            "one request has no time before its drain"
        );
    }
}

mod hardware {
    use super::super::*;
    use crate::Sample;
    use crate::fixture::{case, facts, sample_case, stream, table};
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::Outcome;
    use llmscen_core::plan::Case;
    use llmscen_core::signal::Signal;
    use llmscen_core::telemetry::{Source, TelemetryRecord, TelemetrySample};

    fn with(gpus: Option<u32>, hardware: Option<Hardware>) -> Case {
        let mut case = case(Shape::Closed { users: 2 });
        (case.target.gpus, case.target.hardware) = (gpus, hardware);
        case
    }

    const GPU: Hardware = Hardware {
        parameters: 1e9,
        weight_bytes: 2e9,
        kv_bytes_per_token: 0.0,
        peak_flops: Some(1e12),
        peak_bandwidth: Some(1e12),
    };

    fn seen(case: &Case, rows: &[Outcome]) -> Sample {
        sample_case(&table("a", rows), &facts(case))
    }

    #[test]
    fn one_request_is_the_formula_of_its_source() {
        // 10 prompt and 5 output tokens in 500 ms; a token each 100 ms, so that the weights are read 10 times a second.
        let rows = [stream(0, 0, &[100, 200, 300, 400, 500])];
        let scalars = seen(&with(Some(2), Some(GPU)), &rows).scalars;
        assert_eq!(
            (scalars[&Metric::Mfu], scalars[&Metric::Mbu]),
            (2e9 * 30.0 / 2e12, 2e9 * 10.0 / 2e12)
        );
        // Four steps over contexts of 11, 12, 13 and 14 tokens: 50 in 0.4 s.
        let cached = Hardware {
            kv_bytes_per_token: 1e6,
            ..GPU
        };
        let scalars = seen(&with(Some(1), Some(cached)), &rows).scalars;
        assert_eq!(scalars[&Metric::Mbu], (2e10 + 1e6 * 50.0 / 0.4) / 1e12);
    }

    #[test]
    fn a_batch_reads_the_weights_once_and_each_cache_for_itself() {
        let hardware = Hardware {
            kv_bytes_per_token: 1e6,
            ..GPU
        };
        let rows = [0, 1].map(|seq| stream(seq, 0, &[100, 200, 300, 400, 500]));
        let scalars = seen(&with(Some(1), Some(hardware)), &rows).scalars;
        assert_eq!(scalars[&Metric::Mbu], (2e10 + 1e6 * 100.0 / 0.4) / 1e12);
    }

    #[test]
    fn tokens_from_the_cache_took_no_operations() {
        let mut row = stream(0, 0, &[100, 500]);
        row.usage.cached = Some(8);
        let scalars = seen(&with(Some(1), Some(GPU)), &[row]).scalars;
        assert_eq!(scalars[&Metric::Mfu], 2e9 * (2.0 + 2.0) / 0.5 / 1e12);
    }

    #[test]
    fn what_is_unknown_gives_no_figure() {
        let rows = [stream(0, 0, &[100, 500])];
        let none = |gpus, hardware| {
            let scalars = seen(&with(gpus, hardware), &rows).scalars;
            [Metric::Mfu, Metric::Mbu, Metric::EnergyPerToken]
                .map(|metric| scalars.contains_key(&metric))
        };
        assert_eq!(none(None, Some(GPU)), [false; 3]);
        assert_eq!(none(Some(1), None), [false; 3]);
        assert_eq!(
            none(
                Some(1),
                Some(Hardware {
                    peak_flops: None,
                    ..GPU
                })
            ),
            [false, true, false]
        );
        let mut unknown = stream(0, 0, &[100, 500]);
        unknown.usage.prompt = None;
        let hardware = Hardware {
            kv_bytes_per_token: 1.0,
            ..GPU
        };
        assert!(
            !seen(&with(Some(1), Some(hardware)), &[unknown])
                .scalars
                .contains_key(&Metric::Mbu)
        );
    }

    #[test]
    fn energy_is_power_over_the_window_by_the_tokens_of_it() {
        // The window is from 0 to 2 s; 100 W at −1 s, 300 W at 1 s and 3 s: 200 to 300 W in the first second, 300 W
        // in the next.
        let power = |at_s: i64, value: f64| TelemetrySample {
            at_ns: at_s * 1_000_000_000,
            source: Source::Nvml,
            name: Signal::GpuPower.name().into(),
            labels: "".into(),
            device: Some(0),
            value,
        };
        let readings = vec![power(-1, 100.0), power(1, 300.0), power(3, 300.0)];
        let recorded = TelemetryRecord {
            case: "a".into(),
            round: 0,
            readings,
        };
        let table = table("a", &[stream(0, 0, &[500, 2000])]).with_telemetry(vec![recorded]);
        let scalars = sample_case(&table, &facts(&with(None, None))).scalars;
        assert_eq!(scalars[&Metric::EnergyPerToken], (250.0 + 300.0) / 2.0);
    }
}
