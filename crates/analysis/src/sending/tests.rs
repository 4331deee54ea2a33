mod sending {
    use super::super::*;
    use crate::fixture::{case, failed, outcome, sample_case, stream, table, warmup};
    use crate::judge::fixture::{check, conditions};
    use crate::judge::rule;
    use crate::round::rounds;
    use crate::sample::Sample;
    use crate::window_notes;
    use llmscen_core::check::{Op, Ruling};
    use llmscen_core::dataset::Turns;
    use llmscen_core::load::{Arrival, Load};
    use llmscen_core::manifest::Part;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::{FailureKind, Outcome};
    use llmscen_core::units::Nanos;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const MS: u64 = 1_000_000;

    /// The window of steady sending of requests.
    fn steady_of(round: &Round<'_, '_>, facts: &CaseFacts<'_>) -> Option<Range<u64>> {
        steady_window(round, &flights(round, facts, Unit::Request), facts)
    }

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
        steady_of(&rounds(&rows, &facts)[0], &facts).map(|own| (own.start / MS, own.end / MS))
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
        let steady = steady_of(&rounds[0], &facts);
        assert_eq!(steady, Some(82 * MS..182 * MS));
        let window = ThroughputWindow {
            spans: vec![steady],
            ..ThroughputWindow::default()
        };
        let windows = Windows {
            requests: &window,
            sessions: &window,
        };
        let sum = flows(&rounds, &windows, &facts)
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
                output: 6.0,
                input: 10.0,
                billed: 6.0,
                ..Amounts::default()
            }
        );
        assert_eq!(sum.amount(Metric::TotalTps), 16.0);
    }

    #[test]
    fn a_window_of_fewer_than_three_durations_is_the_whole_run() {
        // 50 users, 75 requests of a second: the window of steady sending is the millisecond of the second wave.
        let row = |k: u64| {
            let sent = k / 50 * 1000 + k % 50 / 49;
            stream(k, sent, &[sent + 500, sent + 1000])
        };
        let of = |n: u64, users: u32| {
            let rows: Vec<Outcome> = (0..n).map(row).collect();
            let case = case(Shape::Closed { users });
            sample_case(&table("a", &rows), &crate::fixture::facts(&case))
        };
        let seen = of(75, 50);
        let WholeReason::TooShort {
            seconds, duration, ..
        } = seen.requests_window.whole.unwrap()
        else {
            panic!("{seen:?}");
        };
        assert!(seconds <= 0.001 && duration == 1.0);
        let rate = |seen: &Sample, metric| seen.scalars[&metric];
        for (metric, with_drain) in [
            (
                Metric::RequestThroughput,
                Metric::RequestThroughputWithDrain,
            ),
            (Metric::OutputTps, Metric::OutputTpsWithDrain),
            (Metric::TotalTps, Metric::TotalTpsWithDrain),
        ] {
            assert_eq!(rate(&seen, metric), rate(&seen, with_drain), "{metric}");
        }
        assert_eq!(rate(&seen, Metric::RequestThroughput), 75.0 / 2.0);
        // Four and a half waves: the window has three whole ones.
        let seen = of(225, 50);
        assert_eq!(seen.requests_window.whole, None);
        assert_eq!(rate(&seen, Metric::RequestThroughput), 50.0);
    }

    #[test]
    fn sessions_count_from_the_first_complete_one() {
        // One user, ten sessions of two turns of a second each: the first ends after two seconds, its first turn
        // after one.
        let turn = |k: u64| Outcome {
            seq: k / 2,
            turn: (k % 2) as u32,
            turns: 2,
            ..stream(k / 2, k * 1000, &[k * 1000 + 500, k * 1000 + 1000])
        };
        let of = |n: u64| {
            let rows: Vec<Outcome> = (0..n).map(turn).collect();
            let mut case = case(Shape::Closed { users: 1 });
            case.dataset.turns = Some(Turns::default());
            sample_case(&table("a", &rows), &crate::fixture::facts(&case))
        };
        let seen = of(20);
        assert_eq!(seen.sessions_window.seconds, [18.0]);
        assert_eq!(seen.scalars[&Metric::SessionThroughput], 0.5);
        assert_eq!(seen.scalars[&Metric::RequestThroughput], 1.0);
        // Two more sessions are two durations.
        let seen = of(6);
        let whole = WholeReason::TooShort {
            unit: Unit::Session,
            seconds: 4.0,
            duration: 2.0,
        };
        assert_eq!(seen.sessions_window.whole, Some(whole));
        assert_eq!(seen.requests_window.whole, None);
        assert_eq!(seen.scalars[&Metric::SessionThroughput], 3.0 / 6.0);
        let words = "Sessions per hour are over the whole run, start and drain included. Sending \
                     was steady for 2.0 mean durations of a session, and 3 are required: measure \
                     for longer; users need at least 10 sessions each.";
        assert_eq!(window_notes(&seen), [words]);
    }

    /// A closed loop of requests with these durations in milliseconds; where `refused`, every third is refused within
    /// one.
    fn closed_loop(users: usize, durations: &[u64], refused: bool) -> Vec<Outcome> {
        let mut free = vec![0; users];
        let send = |(k, took): (usize, &u64)| {
            let user = (0..users).min_by_key(|user| free[*user]).unwrap();
            let sent = free[user];
            let is_refused = refused && k % 3 == 2;
            free[user] += if is_refused { 1 } else { *took };
            let row = stream(k as u64, sent, &[sent + took / 2, sent + took]);
            if !is_refused {
                return row;
            }
            let mut lost = failed(k as u64, FailureKind::Http5xx);
            lost.timeline = row.timeline;
            lost.timeline.end = Nanos::from_millis(sent + 1);
            lost
        };
        durations.iter().enumerate().map(send).collect()
    }

    #[test]
    fn no_throughput_is_above_what_the_users_can_have() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for users in [8, 64, 256] {
            for tenths in [10, 15, 20, 30, 45, 50, 73, 100, 500] {
                for (drawn, refused) in [(false, false), (true, false), (false, true), (true, true)]
                {
                    let n = users * tenths / 10;
                    let mut draw = || match drawn {
                        true => rng.random_range(100..1900),
                        false => rng.random_range(990..1010),
                    };
                    let durations: Vec<u64> = (0..n).map(|_| draw()).collect();
                    let rows = closed_loop(users, &durations, refused);
                    let took = |row: &Outcome| {
                        (row.timeline.end.0 - row.timeline.sent.unwrap().0) as f64 / 1e9
                    };
                    let ok: Vec<f64> = rows
                        .iter()
                        .filter(|row| row.end.is_ok())
                        .map(took)
                        .collect();
                    let ceiling = users as f64 / mean(&ok).unwrap();
                    let case = case(Shape::Closed {
                        users: users as u32,
                    });
                    let seen = sample_case(&table("a", &rows), &crate::fixture::facts(&case));
                    let rate = seen.scalars[&Metric::RequestThroughput];
                    let at = format!(
                        "{users} users, {tenths} ÷ 10 each, drawn {drawn}, refused {refused}"
                    );
                    assert!(rate <= 1.05 * ceiling, "{at}: {rate} of {ceiling}");
                    let least = match (drawn, tenths) {
                        (_, 0..=20) => 0.3,
                        (true, _) => 0.5,
                        (false, _) => 0.8,
                    };
                    assert!(rate >= least * ceiling, "{at}: {rate} of {ceiling}");
                    let floor = check(Metric::RequestThroughput, None, Op::AtLeast, 1.06 * ceiling);
                    let ruling = rule(&floor, &seen, &conditions(true)).ruling;
                    assert_ne!(ruling, Ruling::Pass, "{at}");
                }
            }
        }
    }

    #[test]
    fn a_throughput_against_littles_law_is_that_of_the_whole_run() {
        // One user: long replies at first, then short ones, of which the window has more than the mean duration allows.
        let mut at = 0;
        let mut row = |k: u64| {
            let took = if k < 2 { 4000 } else { 100 };
            at += took;
            stream(k, at - took, &[at - took + 50, at])
        };
        let rows: Vec<Outcome> = (0..60).map(&mut row).collect();
        let case = case(Shape::Closed { users: 1 });
        let seen = sample_case(&table("a", &rows), &crate::fixture::facts(&case));
        // 59 in 9.8 s, of 0.23 s on average: 1.38 in flight.
        assert_eq!(seen.requests_window.whole, Some(WholeReason::AboveLittle));
        assert_eq!(seen.scalars[&Metric::RequestThroughput], 60.0 / 13.8);
    }

    #[test]
    fn a_drain_of_more_than_one_percent_is_told() {
        // Two users, twelve requests of a second; the last one takes longer.
        let actual = |last: u64| {
            let row = |k: u64| {
                let sent = k / 2 * 1000;
                let end = if k == 11 { last } else { sent + 1000 };
                stream(k, sent, &[sent + 50, end])
            };
            let rows: Vec<Outcome> = (0..12).map(row).collect();
            let (table, case) = (table("a", &rows), case(TWO));
            window_notes(&sample_case(
                &table,
                &CaseFacts {
                    case: &case,
                    parts: &[],
                    until: None,
                },
            ))
        };
        assert_eq!(actual(6020), [""; 0]);
        let words = "The drain took 0.500 s after sending stopped, 7.7 % of the run. Throughputs \
                     exclude it; the metrics `…_with_drain` include it.";
        assert_eq!(actual(6500), [words]);
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
