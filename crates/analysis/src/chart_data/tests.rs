mod chart_data {
    use super::super::*;
    use crate::fixture::{case, facts, failed, outcome, stream, table, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::{FailureKind, Outcome};

    fn drawn(rows: &[Outcome]) -> ChartData {
        super::super::chart_data(&table("a", rows), &facts(&case(Shape::Closed { users: 1 })))
    }

    #[test]
    fn measured_requests_stand_in_the_waterfall_in_the_order_in_which_they_were_due() {
        let seen = drawn(&[
            warmup(outcome(0)),
            stream(2, 200, &[350]),
            stream(1, 50, &[150, 400]),
            failed(3, FailureKind::Decode),
        ]);
        assert_eq!(
            seen.waterfall.iter().map(|bar| bar.seq).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        let bar = seen.waterfall[0];
        assert_eq!(
            (bar.intended, bar.first_token, bar.end, bar.failure),
            (0.05, Some(0.15), 0.4, None)
        );
        assert_eq!(seen.waterfall[2].failure, Some(FailureKind::Decode));
    }

    #[test]
    fn of_many_requests_some_are_picked_evenly() {
        let rows: Vec<Outcome> = (0..1000)
            .map(|k| stream(k, k * 10, &[k * 10 + 5]))
            .collect();
        let seqs: Vec<u64> = drawn(&rows).waterfall.iter().map(|bar| bar.seq).collect();
        assert_eq!(seqs, (0..200).map(|k| k * 5).collect::<Vec<u64>>());
    }

    #[test]
    fn only_what_succeeded_has_a_place_in_the_other_pictures() {
        let broken = Outcome {
            end: failed(3, FailureKind::Truncated).end,
            ..stream(3, 300, &[999, 1999])
        };
        let seen = drawn(&[
            warmup(stream(0, 0, &[50, 900])),
            stream(1, 100, &[150, 400]),
            stream(2, 200, &[230, 240]),
            broken,
        ]);
        let ends = |metric| {
            seen.spectra
                .get(&metric)
                .map(|points| (points[0].1, points[points.len() - 1]))
        };
        assert_eq!(ends(Metric::Ttft), Some((30.0, (0.5, 50.0))));
        assert_eq!(ends(Metric::Itl), Some((10.0, (0.5, 250.0))));
        assert_eq!(ends(Metric::E2e), Some((40.0, (0.5, 300.0))));
        assert_eq!(seen.prefill, [(10.0, 50.0), (10.0, 30.0)]);
        assert_eq!(
            seen.by_token
                .iter()
                .map(|band| (band.from, band.n))
                .collect::<Vec<_>>(),
            [(2.0, 2)]
        );
        let heat = seen.heat.unwrap();
        assert_eq!(
            (heat.times[0], heat.times[heat.times.len() - 1]),
            (0.1, 0.2)
        );
        assert_eq!(heat.counts.iter().flatten().sum::<u32>(), 2);
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(drawn(&[]), ChartData::default());
    }
}

mod timelines {
    use super::super::*;
    use crate::fixture::{case, facts, failed, stream, table, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::{FailureKind, Outcome};

    fn drawn(rows: &[Outcome]) -> Timelines {
        timelines(&table("a", rows), &facts(&case(Shape::Closed { users: 1 })))
    }

    #[test]
    fn a_short_round_is_drawn_whole() {
        let seen = drawn(&[
            warmup(stream(0, 0, &[50])),
            stream(1, 50, &[150, 400]),
            failed(3, FailureKind::Decode),
        ]);
        assert_eq!(
            seen.in_flight,
            [(0.0, 1.0), (0.302, 2.0), (0.382, 1.0), (0.4, 0.0)]
        );
        assert_eq!(
            seen.output_tps,
            [
                (0.05, 10.0),
                (0.15000000000000002, 10.0),
                (0.25, 0.0),
                (0.35000000000000003, 10.0)
            ]
        );
        assert_eq!(seen.ttft_ms, [(0.0, 50.0), (0.05, 100.0)]);
        assert_eq!(
            (seen.failures, seen.measured),
            (vec![(0.382, 1.0)], (0.05, 0.4))
        );
    }

    #[test]
    fn the_area_under_the_bins_is_the_tokens() {
        let rows: Vec<_> = (0..300)
            .map(|k| stream(k, k * 100, &[k * 100 + 30, k * 100 + 90]))
            .collect();
        let seen = drawn(&rows).output_tps;
        let width = seen[1].0 - seen[0].0;
        assert_eq!(seen.len(), MAX_BINS);
        assert!((seen.iter().map(|point| point.1 * width).sum::<f64>() - 600.0).abs() < 1e-6);
    }

    #[test]
    fn many_steps_keep_their_peak_and_their_end() {
        let mut steps: Vec<(u64, u32)> = (0..10_000).map(|k| (k, u32::from(k % 2 == 0))).collect();
        steps[7777].1 = 9;
        let thin = thin_steps(&InFlight(steps));
        assert!(thin.len() <= MAX_STEPS + 1 && thin.iter().any(|step| step.1 == 9.0));
        assert_eq!(thin.last(), Some(&(secs(9999), 0.0)));
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(drawn(&[]), Timelines::default());
    }
}

mod heat {
    use super::super::*;

    #[test]
    fn every_point_lies_in_the_cell_of_its_time_and_latency() {
        let seen = heat_map(&[(0.0, 1.0), (1.0, 10.0), (2.0, 100.0), (4.0, 100.0)]).unwrap();
        assert_eq!(seen.times, [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(seen.levels.len(), 3);
        assert!(
            seen.levels
                .iter()
                .zip([1.0, 10.0, 100.0])
                .all(|(seen, known)| (seen - known).abs() < 1e-9)
        );
        assert_eq!(seen.counts, [[1, 0], [0, 1], [0, 1], [0, 1]]);
    }

    #[test]
    fn it_stays_small_and_loses_nothing() {
        let points: Vec<(f64, f64)> = (0..100_000)
            .map(|k| (f64::from(k), f64::from(k % 977 + 1)))
            .collect();
        let seen = heat_map(&points).unwrap();
        assert_eq!((seen.counts.len(), seen.counts[0].len()), (80, 40));
        assert_eq!(seen.counts.iter().flatten().sum::<u32>(), 100_000);
    }

    #[test]
    fn equal_latencies_have_a_row_and_one_instant_a_column() {
        let seen = heat_map(&[(0.0, 5.0), (1.0, 5.0)]).unwrap();
        assert!(seen.levels[0] < 5.0 && *seen.levels.last().unwrap() > 5.0);
        assert_eq!(seen.counts.iter().flatten().sum::<u32>(), 2);
        let seen = heat_map(&[(1.0, 5.0), (1.0, 6.0), (1.0, 6.0), (1.0, 50.0)]).unwrap();
        assert_eq!(
            (seen.times, seen.counts),
            (vec![1.0, 1.001], vec![vec![3, 1]])
        );
        assert_eq!(heat_map(&[(1.0, 5.0)]), None);
        assert!(heat_map(&[(0.0, 0.0), (1.0, 5.0)]).unwrap().levels[0] > 0.0);
    }
}

mod spectrum {
    use super::super::*;
    use llmscen_core::stats::quantile::{Method, quantile, sort};

    #[test]
    fn every_point_is_a_quantile_and_the_last_is_the_maximum() {
        // A multiplier prime to the length shuffles 1 to 10 000.
        let mut values: Vec<f64> = (0..10_000)
            .map(|k| f64::from(k * 7919 % 10_000 + 1))
            .collect();
        let seen = spectrum(&mut values);
        let mut sorted = values.clone();
        sort(&mut sorted);
        let (end, inner) = seen.split_last().unwrap();
        assert_eq!((seen[0], *end), ((0.0, 1.0), (1.0 - 1e-4, 10_000.0)));
        assert!(
            inner.iter().all(
                |&(share, value)| quantile(&sorted, share, Method::NearestRank) == Some(value)
            )
        );
        assert!(
            seen.windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1)
        );
        assert!((60..=120).contains(&seen.len()), "{}", seen.len());
        let at = |share: f64| {
            inner
                .iter()
                .find(|point| (point.0 - share).abs() < 1e-9)
                .map(|point| point.1)
        };
        assert_eq!(
            (at(0.9), at(0.99), at(0.999)),
            (Some(9000.0), Some(9900.0), Some(9990.0))
        );
    }

    #[test]
    fn few_values_are_their_own_spectrum() {
        assert_eq!(spectrum(&mut []), []);
        assert_eq!(spectrum(&mut [7.0]), [(0.0, 7.0)]);
        let two = spectrum(&mut [9.0, 7.0]);
        assert_eq!((two[0], two.last()), ((0.0, 7.0), Some(&(0.5, 9.0))));
        assert!(two[..two.len() - 1].iter().all(|point| point.1 == 7.0));
    }
}

mod by_token {
    use super::super::*;
    use crate::fixture::{stream, table};
    use llmscen_core::outcome::Outcome;

    fn bands(rows: &[Outcome]) -> Vec<QuantileBand> {
        let table = table("a", rows);
        let facts = table.rows_of_case("a");
        Gaps::collect(facts.iter()).bands()
    }

    #[test]
    fn the_first_gap_is_that_before_the_second_token() {
        let seen = bands(&[
            stream(0, 0, &[10, 40, 50]),
            stream(1, 0, &[10, 30]),
            stream(2, 0, &[9]),
        ]);
        let known = [
            QuantileBand {
                from: 2.0,
                to: 2.0,
                n: 2,
                p50: 20.0,
                p90: 30.0,
                p99: 30.0,
            },
            QuantileBand {
                from: 3.0,
                to: 3.0,
                n: 1,
                p50: 10.0,
                p90: 10.0,
                p99: 10.0,
            },
        ];
        assert_eq!(seen, known);
        assert_eq!(bands(&[stream(0, 0, &[10])]), []);
    }

    #[test]
    fn each_choice_counts_its_own_tokens() {
        let mut reply = stream(0, 0, &[50, 60, 70, 80, 90, 120]);
        reply.timeline.choices = vec![0, 1, 0, 1, 0, 1];
        let seen: Vec<_> = bands(&[reply])
            .iter()
            .map(|band| (band.from, band.n, band.p50, band.p99))
            .collect();
        assert_eq!(seen, [(2.0, 2, 20.0, 20.0), (3.0, 2, 20.0, 40.0)]);
    }

    #[test]
    fn long_replies_are_cut_finely_at_their_start() {
        for longest in [0, 1, 2, 65, 66, 1000, 8192, 1_000_000] {
            let edges = position_edges(longest);
            assert!(
                edges.len() <= MAX_POSITION_STEPS + 1,
                "{longest}: {}",
                edges.len()
            );
            assert!(edges.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!((edges[0], *edges.last().unwrap()), (2, longest.max(1) + 1));
        }
        assert_eq!(position_edges(1000)[..4], [2, 3, 4, 5]);
    }

    #[test]
    fn nothing_is_lost_when_they_are_pooled() {
        let table = table("a", &[stream(0, 0, &[10, 40, 50]), stream(1, 0, &[10, 30])]);
        let facts = table.rows_of_case("a");
        let mut all = Gaps::collect(facts.iter()).pooled();
        all.sort_by(f64::total_cmp);
        assert_eq!(all, [10.0, 20.0, 30.0]);
    }
}

mod cdf {
    use super::super::*;
    use crate::fixture::TestRequest;

    #[test]
    fn few_values_are_all_drawn() {
        assert_eq!(cdf(vec![3.0, 1.0]), [(1.0, 0.5), (3.0, 1.0)]);
        assert_eq!(cdf(vec![7.0]), [(7.0, 1.0)]);
        assert_eq!(cdf(Vec::new()), []);
    }

    #[test]
    fn many_values_keep_their_ends() {
        let drawn = cdf((1..=12_345).rev().map(f64::from).collect());
        assert_eq!(
            (drawn.len(), drawn[0], drawn[399]),
            (400, (1.0, 1.0 / 12_345.0), (12_345.0, 1.0))
        );
        assert!(
            drawn
                .iter()
                .all(|&(value, share)| (share - value / 12_345.0).abs() < 1e-12)
        );
        assert!(drawn.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn only_what_exists_has_a_curve() {
        let row = TestRequest {
            ok: true,
            gaps: vec![1.0, 2.0],
            ..TestRequest::default()
        };
        let drawn = cdfs(&crate::fixture::sample_of([row]));
        assert_eq!(drawn.into_keys().collect::<Vec<_>>(), [Metric::Itl]);
    }
}
