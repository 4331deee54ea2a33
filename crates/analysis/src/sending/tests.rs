mod sending {
    use super::super::*;
    use crate::fixture::{case, failed, outcome, stream, table, warmup};
    use crate::sample::sample_case;
    use llmscen_core::load::{Arrival, Load};
    use llmscen_core::manifest::Part;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::{FailureKind, Outcome};
    use llmscen_core::units::Nanos;

    const MS: u64 = 1_000_000;

    /// The window in milliseconds.
    fn window(
        rows: &[Outcome],
        shape: Shape,
        change: impl FnOnce(&mut Load),
        part: Part,
    ) -> Option<(u64, u64)> {
        let (table, mut case) = (table("a", rows), case(shape));
        change(&mut case.load);
        let rows = table.rows_of_case("a");
        let parts = [Part {
            case: "a".into(),
            ..part
        }];
        let facts = CaseFacts {
            case: &case,
            parts: &parts,
            until: None,
        };
        throughput_window(&rounds(&rows, &facts)[0], &facts)
            .map(|own| (own.start / MS, own.end / MS))
    }

    fn plain(rows: &[Outcome], shape: Shape) -> Option<(u64, u64)> {
        window(rows, shape, |_| {}, Part::default())
    }

    const TWO: Shape = Shape::Closed { users: 2 };
    const OPEN: Shape = Shape::Open {
        rate: 10.0,
        arrival: Arrival::Constant,
    };

    #[test]
    fn a_closed_loop_counts_while_all_users_are_busy() {
        // The last request goes out at 70 ms; the first user without another one is free at 90 ms.
        let rows = [
            stream(0, 0, &[20, 40]),
            stream(1, 0, &[30, 70]),
            stream(2, 40, &[50, 90]),
            stream(3, 70, &[80, 150]),
        ];
        assert_eq!(plain(&rows, TWO), Some((40, 90)));
        assert_eq!(
            plain(&rows[..2], TWO),
            None,
            "nobody sent twice, so that the window has no length"
        );
        assert_eq!(plain(&rows[..1], Shape::Closed { users: 1 }), None);
        assert_eq!(
            plain(
                &[warmup(stream(0, 0, &[20, 40])), stream(1, 40, &[60, 80])],
                Shape::Closed { users: 1 }
            ),
            Some((40, 80))
        );
        let late = [
            failed(0, FailureKind::Decode),
            failed(1, FailureKind::Decode),
        ];
        assert_eq!(
            plain(&late, Shape::Closed { users: 1 }),
            Some((0, 182)),
            "without any success all of the time counts"
        );
    }

    #[test]
    fn time_and_what_cuts_it_short_end_a_closed_loop() {
        let rows = [
            stream(0, 0, &[20, 40]),
            stream(1, 40, &[60, 80]),
            stream(2, 80, &[90, 200]),
        ];
        let timed = |load: &mut Load| load.duration = Some(Nanos::from_millis(100));
        let one = Shape::Closed { users: 1 };
        assert_eq!(
            window(&rows, one.clone(), timed, Part::default()),
            Some((40, 100))
        );
        let cut = Part {
            cut_short: Some("interrupted".into()),
            sending_until_ns: Some(90 * MS),
            ..Part::default()
        };
        assert_eq!(window(&rows, one.clone(), timed, cut), Some((40, 90)));
        let ended = Part {
            dataset_ended: true,
            ..Part::default()
        };
        assert_eq!(
            window(&rows, one, timed, ended),
            Some((40, 200)),
            "the data ended first, with the last request"
        );
    }

    #[test]
    fn an_open_loop_counts_until_its_arrivals_end() {
        let rows: Vec<_> = (0..5)
            .map(|k| stream(k, k * 100, &[k * 100 + 60, k * 100 + 250]))
            .collect();
        assert_eq!(
            plain(&rows, OPEN),
            Some((250, 500)),
            "one gap more than from the first to the last"
        );
        assert_eq!(
            plain(&rows, Shape::Burst),
            Some((0, 650)),
            "a burst is over with its last end"
        );
        assert_eq!(
            plain(&rows[..2], OPEN),
            None,
            "nothing had ended when the sending stopped"
        );
    }

    #[test]
    fn tokens_count_when_they_arrive_and_replies_without_a_stream_at_their_end() {
        // The window is from 82 to 182 ms: the last request is sent at 102.
        let mut left = stream(9, 0, &[85, 90]);
        left.end = failed(1, FailureKind::Abandoned).end;
        let rows = [
            warmup(stream(0, 0, &[50, 90, 100, 190])),
            outcome(0),
            outcome(1),
            left,
        ];
        let (table, case) = (table("a", &rows), case(Shape::Closed { users: 3 }));
        let rows = table.rows_of_case("a");
        let facts = CaseFacts {
            case: &case,
            parts: &[],
            until: None,
        };
        let rounds = rounds(&rows, &facts);
        assert_eq!(
            throughput_window(&rounds[0], &facts),
            Some(82 * MS..182 * MS)
        );
        let sum = flows(&rounds, &facts)
            .iter()
            .flat_map(|flow| flow.bins.values())
            .fold(Amounts::default(), |mut sum, own| {
                sum.add(*own);
                sum
            });
        // Two of four tokens of the stream, whose prompt was read before; 4 and 10 of the whole reply; one user left.
        assert_eq!(
            sum,
            Amounts {
                ended: 2.0,
                requests: 1.0,
                items: 0.0,
                audio: 0.0,
                output: 6.0,
                input: 10.0,
                total: 16.0,
                billed: 6.0,
                billed_total: 16.0
            }
        );
        let seen = sample_case(&table, &facts).scalars;
        let of = |metric| seen[&metric];
        assert_eq!(
            [
                Metric::OutputTps,
                Metric::TotalTps,
                Metric::RequestThroughput
            ]
            .map(of),
            [60.0, 160.0, 10.0]
        );
        assert_eq!(
            (of(Metric::ThroughputWindow), of(Metric::OutputTpsWithDrain)),
            (0.1, 8.0 / 0.182)
        );
    }

    #[test]
    fn a_drain_of_more_than_one_percent_is_told() {
        let actual = |last: u64| {
            let rows = [
                stream(0, 0, &[50, 1000]),
                stream(1, 0, &[70, last]),
                stream(2, 1000, &[1100, 2000]),
            ];
            let (table, case) = (table("a", &rows), case(TWO));
            drain_note(
                &table,
                &CaseFacts {
                    case: &case,
                    parts: &[],
                    until: None,
                },
            )
        };
        assert_eq!(actual(2020), None);
        let words = "The drain took 0.500 s after sending stopped, 20.0 % of the run. Throughputs exclude it; the metrics \
                     `…_with_drain` include it.";
        assert_eq!(actual(2500).as_deref(), Some(words));
    }

    #[test]
    fn the_parts_of_a_window_hold_their_ends() {
        let window = 0..2400;
        assert_eq!(
            [0, 1, 10, 11, 2400, 2401].map(|at| bin(at, &window)),
            [None, Some(0), Some(0), Some(1), Some(239), None]
        );
    }
}

mod rates {
    use super::super::*;
    use crate::fixture::{case, failed, stream, table};
    use crate::round::rounds;
    use llmscen_core::load::{Arrival, Load};
    use llmscen_core::outcome::{FailureKind, Outcome};

    fn open_loop(secs: Option<u64>) -> Load {
        let shape = Shape::Open {
            rate: 100.0,
            arrival: Arrival::Constant,
        };
        Load {
            duration: secs.map(|secs| Nanos::from_millis(secs * 1000)),
            ..case(shape).load
        }
    }

    fn rates_of(rows: &[Outcome], load: Load, part: Option<Part>) -> (Option<f64>, Option<f64>) {
        let (table, mut case) = (table("a", rows), case(load.shape.clone()));
        case.load = load.clone();
        let parts: Vec<Part> = part.into_iter().collect();
        let rows = table.rows_of_case("a");
        let facts = CaseFacts {
            case: &case,
            parts: &parts,
            until: None,
        };
        let rates = rates(&rounds(&rows, &facts), &facts);
        (
            rates.get(&Metric::RateOffered).copied(),
            rates.get(&Metric::RateAchieved).copied(),
        )
    }

    /// Due every 10 ms, sent every `step` ms.
    fn add_arrivals(n: u64, step: u64) -> Vec<Outcome> {
        let sent = |k: u64| {
            let mut row = stream(k, k * step, &[k * step + 5]);
            row.timeline.intended = Nanos::from_millis(k * 10);
            row
        };
        (0..n).map(sent).collect()
    }

    #[test]
    fn a_sender_that_keeps_up_achieves_what_is_offered() {
        assert_eq!(
            rates_of(&add_arrivals(100, 10), open_loop(None), None),
            (Some(100.0), Some(100.0))
        );
        assert_eq!(
            rates_of(&add_arrivals(100, 10), open_loop(Some(1)), None),
            (Some(100.0), Some(100.0))
        );
        assert_eq!(
            rates_of(&add_arrivals(1, 10), open_loop(None), None),
            (None, None)
        );
    }

    #[test]
    fn a_mean_gap_of_no_whole_nanoseconds_is_not_cut() {
        let mut rows = add_arrivals(4, 10);
        rows[3].timeline.intended = Nanos(20_000_002);
        // Three gaps of 6 666 667.33 ns, four of which are 26 666 669.33.
        assert_eq!(
            rates_of(&rows, open_loop(None), None).0,
            Some(4.0 / 0.026_666_669)
        );
    }

    #[test]
    fn a_sender_that_falls_behind_shows() {
        let (offered, achieved) = rates_of(&add_arrivals(101, 20), open_loop(None), None);
        assert_eq!((offered, achieved), (Some(100.0), Some(50.5)));
    }

    #[test]
    fn dropped_arrivals_were_offered_and_not_achieved() {
        let mut rows = add_arrivals(100, 10);
        for (seq, row) in rows.iter_mut().enumerate().filter(|(seq, _)| seq % 2 == 1) {
            let intended = row.timeline.intended;
            *row = failed(seq as u64, FailureKind::Dropped);
            row.timeline.intended = intended;
        }
        assert_eq!(
            rates_of(&rows, open_loop(Some(1)), None),
            (Some(100.0), Some(50.0))
        );
    }

    #[test]
    fn a_cut_ends_the_plan_there() {
        let part = Part {
            case: "a".into(),
            cut_short: Some("ctrl-c".into()),
            sending_until_ns: Some(500_000_000),
            ..Part::default()
        };
        assert_eq!(
            rates_of(&add_arrivals(50, 10), open_loop(Some(10)), Some(part)),
            (Some(100.0), Some(100.0))
        );
    }

    #[test]
    fn a_closed_loop_offers_nothing() {
        let load = case(Shape::Closed { users: 1 }).load;
        assert_eq!(
            rates_of(&[stream(0, 0, &[500]), stream(1, 500, &[1000])], load, None),
            (None, Some(2.0))
        );
    }
}
