mod in_flight {

    use super::super::*;
    use crate::fixture::{failed, stream, table};
    use llmscen_core::outcome::FailureKind;

    const MS: u64 = 1_000_000;

    fn flight(rows: &[(u64, u64)]) -> InFlight {
        let rows: Vec<_> = rows
            .iter()
            .enumerate()
            .map(|(seq, &(sent, end))| stream(seq as u64, sent, &[end]))
            .collect();
        InFlight::count(&table("a", &rows).rows_of_case("a"))
    }

    #[test]
    fn the_level_steps_with_every_send_and_end() {
        let flight = flight(&[(0, 10), (2, 6), (6, 8)]);
        assert_eq!(flight.0, [(0, 1), (2 * MS, 2), (8 * MS, 1), (10 * MS, 0)]);
        // Over 10 ms: 1 for 4 ms, 2 for 6 ms; a hand-off at 6 ms is no third one.
        let all = (0, 10 * MS);
        assert_eq!(
            (flight.area(all), flight.max(all), flight.median(all)),
            (16e6, 2, 2)
        );
        assert_eq!(
            [0, 2 * MS - 1, 2 * MS, 10 * MS].map(|at| flight.level(at)),
            [1, 1, 2, 0]
        );
        assert_eq!(
            (
                flight.max((8 * MS, 20 * MS)),
                flight.median((7 * MS, 20 * MS))
            ),
            (1, 0)
        );
    }

    #[test]
    fn what_was_never_sent_was_never_in_flight() {
        let table = table("a", &[failed(0, FailureKind::Dropped)]);
        assert_eq!(InFlight::count(&table.rows_of_case("a")).0, [(0, 0)]);
    }

    #[test]
    fn spans_are_clipped_to_the_window() {
        let spans: Vec<_> = flight(&[(1, 4)]).spans((2 * MS, 6 * MS)).collect();
        assert_eq!(
            spans,
            [
                Span {
                    from: 2 * MS,
                    to: 4 * MS,
                    level: 1
                },
                Span {
                    from: 4 * MS,
                    to: 6 * MS,
                    level: 0
                }
            ]
        );
        assert_eq!(flight(&[(1, 4)]).spans((5, 5)).count(), 0);
    }
}

mod steady {
    use super::super::*;
    use crate::fixture::{case, facts, stream, table};
    use crate::round::rounds;
    use crate::sending::sending_end;
    use llmscen_core::load::Arrival;
    use llmscen_core::outcome::Outcome;
    use llmscen_core::stage::{RateStage, UserStage};
    use llmscen_core::units::Nanos;

    fn steady_of(rows: &[Outcome], shape: Shape) -> Steady {
        let (table, case) = (table("a", rows), case(shape.clone()));
        let rows = table.rows_of_case("a");
        let round = rounds(&rows, &facts(&case))[0];
        steady_state(&round, &InFlight::count(round.rows), &shape)
    }

    fn extent(
        round: &Round<'_, '_>,
        in_flight: &InFlight,
        facts: &CaseFacts<'_>,
    ) -> Option<(u64, u64)> {
        steady_extent(round, in_flight, facts, sending_end(round, facts))
    }

    #[test]
    fn only_tokens_of_the_plateau_count() {
        // Two users; both in flight from 10 to 40 ms. Events at 10 (made before), 20, 30, 40 of one, 30, 50 of the
        // other.
        let rows = [stream(0, 0, &[10, 20, 30, 40]), stream(1, 10, &[30, 50])];
        let seen = steady_of(&rows, Shape::Closed { users: 2 });
        assert_eq!(
            seen,
            Steady {
                tokens: 4.0,
                seconds: 0.030
            }
        );
    }

    #[test]
    fn the_plateau_begins_with_its_first_span_and_ends_with_its_last() {
        // Two users: both in flight from 10 to 40 and from 60 to 70 ms, one before, between and after.
        let rows = [
            stream(0, 0, &[20, 40]),
            stream(1, 10, &[30, 70]),
            stream(2, 60, &[80, 90]),
        ];
        let (table, case) = (table("a", &rows), case(Shape::Closed { users: 2 }));
        let rows = table.rows_of_case("a");
        let round = rounds(&rows, &facts(&case))[0];
        let of = |shape: &Shape, duration: Option<u64>| {
            let mut case = case.clone();
            case.load.shape = shape.clone();
            case.load.duration = duration.map(Nanos::from_millis);
            extent(&round, &InFlight::count(round.rows), &facts(&case))
        };
        let (closed, open) = (
            Shape::Closed { users: 2 },
            Shape::Open {
                rate: 9.0,
                arrival: Arrival::Poisson,
            },
        );
        assert_eq!(of(&closed, Some(80)), Some((10_000_000, 70_000_000)));
        assert_eq!(
            of(&closed, Some(65)),
            Some((10_000_000, 65_000_000)),
            "then nothing was sent"
        );
        assert_eq!(
            of(&closed, None),
            Some((10_000_000, 70_000_000)),
            "the first user without a further request is free at 70 ms"
        );
        // The level is 1 for 50 of 90 ms, so that is an open loop's plateau.
        assert_eq!(of(&open, Some(90)), Some((0, 90_000_000)));
        assert_eq!(of(&Shape::Burst, None), Some((0, 60_000_000)));
        assert_eq!(extent(&round, &InFlight(vec![(0, 0)]), &facts(&case)), None);
    }

    #[test]
    fn a_load_that_changes_by_plan_or_only_piles_up_has_no_steady_state() {
        let of = |shape: &Shape, wait: fn(u64) -> u64| {
            let rows: Vec<_> = (0..2000)
                .map(|seq| stream(seq, 10 * seq, &[10 * seq + wait(seq)]))
                .collect();
            let (table, case) = (table("a", &rows), case(shape.clone()));
            let rows = table.rows_of_case("a");
            extent(
                &rounds(&rows, &facts(&case))[0],
                &InFlight::count(&rows),
                &facts(&case),
            )
            .is_some()
        };
        let open = Shape::Open {
            rate: 100.0,
            arrival: Arrival::Constant,
        };
        assert!(of(&open, |seq| 50 + seq % 7) && !of(&open, |seq| 50 + 5 * seq + seq % 7));
        let span = Nanos::from_millis(9);
        let users = |to| {
            [(5, 5), (5, to)]
                .map(|(from, to)| UserStage { from, to, span })
                .into()
        };
        assert_eq!(
            [5, 6].map(|to| of(&Shape::Users { stages: users(to) }, |_| 50)),
            [true, false]
        );
        let rates = |rate| {
            [RateProfile::Flat(9.0), rate]
                .map(|rate| RateStage { rate, span })
                .into()
        };
        let staged = |rate| {
            of(
                &Shape::Rates {
                    stages: rates(rate),
                    arrival: Arrival::Constant,
                },
                |_| 50,
            )
        };
        let ramp = RateProfile::Ramp {
            from: 9.0,
            to: 20.0,
        };
        assert_eq!(
            [RateProfile::Flat(9.0), RateProfile::Flat(8.0), ramp].map(staged),
            [true, false, false]
        );
    }

    #[test]
    fn fewer_requests_than_users_have_the_plateau_they_reached() {
        let seen = steady_of(&[stream(0, 0, &[10, 20])], Shape::Closed { users: 64 });
        assert_eq!(
            seen,
            Steady {
                tokens: 2.0,
                seconds: 0.020
            }
        );
    }

    #[test]
    fn an_event_weighs_the_tokens_it_carries() {
        let mut rows = [stream(0, 0, &[10, 20])];
        rows[0].usage.output = Some(6);
        assert_eq!(steady_of(&rows, Shape::Closed { users: 1 }).tokens, 6.0);
    }

    #[test]
    fn spans_that_touch_are_one() {
        assert_eq!(
            merge_adjacent([(0, 5), (5, 9), (12, 13)].into_iter()),
            [(0, 9), (12, 13)]
        );
    }
}
