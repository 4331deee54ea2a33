mod figure {
    use super::super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, failed, goodput, ok, sample};
    use llmscen_core::check::Op;
    use llmscen_core::metric::Metric;

    fn of(check: &Check, rows: Vec<TestRequest>) -> Option<Figure> {
        figure(check, &sample(rows), &[0.9, 0.95])
    }

    fn waits() -> Vec<TestRequest> {
        // 1 to 100, neighbours unlike.
        (0..100)
            .map(|index| ok(Metric::Ttft, f64::from(index * 37 % 100 + 1)))
            .collect()
    }

    #[test]
    fn a_quantile_lies_between_order_statistics() {
        let seen = of(
            &check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::Less, 0.0),
            waits(),
        )
        .unwrap();
        assert_eq!(
            (seen.value, seen.n, seen.low[1], seen.high[1]),
            (50.0, 100, Some(40.0), Some(61.0)),
            "42 and 59 but for Student's factor of ten batches"
        );
        let tail = of(
            &check(Metric::Ttft, Some(Stat::Quantile(0.99)), Op::Less, 0.0),
            waits(),
        )
        .unwrap();
        assert_eq!(
            (tail.value, tail.high),
            (99.0, vec![None, None]),
            "299 would be needed at 95 %"
        );
    }

    #[test]
    fn shares_are_exact_and_means_have_an_end_on_either_side() {
        let rows = || {
            (0..19)
                .map(|i| {
                    if i < 2 {
                        failed()
                    } else {
                        ok(Metric::Ttft, f64::from(i))
                    }
                })
                .collect::<Vec<_>>()
        };
        let share = of(&goodput(Vec::new(), Op::AtLeast, 0.0), rows()).unwrap();
        assert_eq!((share.value, share.n), (17.0 / 19.0, 19));
        assert!((share.low[1].unwrap() - lower(17.0, 19.0, 0.95)).abs() < 1e-12);
        let mean = of(
            &check(Metric::Ttft, Some(Stat::Mean), Op::Less, 0.0),
            waits(),
        )
        .unwrap();
        assert!(
            mean.value == 50.5 && mean.low[1] < mean.low[0] && mean.high[1] > mean.high[0],
            "{mean:?}"
        );
    }

    #[test]
    fn extremes_have_no_bounds_and_nothing_has_no_figure() {
        let most = check(Metric::Ttft, Some(Stat::Max), Op::Less, 0.0);
        assert_eq!(
            of(&most, waits()).map(|seen| (seen.value, seen.bounded())),
            Some((100.0, false))
        );
        assert_eq!(of(&most, Vec::new()), None);
    }
}

mod noise {
    use super::super::*;
    use llmscen_core::baseline::BaselineCase;

    fn baseline(figures: &[(&str, &[f64])]) -> Baseline {
        let figure = |values: &[f64]| Figure {
            runs: values.iter().copied().map(Some).collect(),
            ..Figure::default()
        };
        let metrics = figures
            .iter()
            .map(|(name, values)| ((*name).to_owned(), figure(values)))
            .collect();
        let case = BaselineCase {
            id: "base".into(),
            labels: Default::default(),
            rounds: 1,
            scheduled: 1,
            ok: 1,
            answers: None,
            metrics,
        };
        Baseline {
            cases: vec![case],
            ..Baseline::default()
        }
    }

    #[test]
    fn the_spread_says_which_change_can_be_seen() {
        // Logarithms 0.02 apart: sd 0.02.
        let values = [-0.02f64, 0.0, 0.02].map(|log| 100.0 * log.exp());
        let seen = baseline_noise(&baseline(&[
            ("ttft.p95", &values),
            ("ttft.p98", &values),
            ("output_tps", &values[..2]),
        ]));
        let [own] = seen.as_slice() else {
            panic!("{seen:?}")
        };
        assert!(
            (own.figure == "ttft.p95" && own.runs == 3 && !own.share)
                && (own.mean - 100.0).abs() < 1e-9,
            "{own:?}"
        );
        assert!(
            (own.sd - 0.02f64.exp_m1()).abs() < 1e-9
                && (own.three.unwrap() - 0.0607f64.exp_m1()).abs() < 2e-4,
            "{own:?}"
        );
        // (t(0.975; 2) + t(0.8; 2)) · 0.02 · √(4/3) = (4.3027 + 1.0607) · 0.023094.
        assert!(
            (own.one.unwrap() - 0.12386f64.exp_m1()).abs() < 2e-4 && own.five < own.three,
            "{own:?}"
        );
        assert_eq!(
            own.needed,
            Some(4),
            "0.0607 with 3 runs a side, 0.0474 with 4, and ln 1.05 is 0.0488"
        );
    }

    #[test]
    fn shares_vary_in_points_and_those_that_do_not_are_left_out() {
        let seen = baseline_noise(&baseline(&[
            ("error_rate", &[0.1, 0.1, 0.1]),
            ("goodput(ttft < 500ms)", &[0.90, 0.92, 0.94]),
        ]));
        let [good] = seen.as_slice() else {
            panic!("{seen:?}")
        };
        assert!(
            good.share
                && (good.sd - 0.02).abs() < 1e-9
                && (good.three.unwrap() - 0.0607).abs() < 2e-4,
            "{good:?}"
        );
        let wild = baseline_noise(&baseline(&[("ttft.p50", &[1.0, 10.0, 100.0])]));
        assert_eq!(wild[0].needed, None);
    }
}
