mod quantile {
    use super::super::*;
    use crate::judge::fixture::check;
    use llmscen_core::check::{Op, Ruling};
    use llmscen_core::metric::{Metric, Stat};
    use llmscen_core::stats::design::Dependence;
    use proptest::prelude::*;

    /// At 95 %, of values that are independent.
    fn judge_quantile(check: &Check, values: Vec<f64>, p: f64) -> Assessment {
        let samples = Samples::new(values.len() as u64, Dependence::NONE, 0.95);
        super::super::judge_quantile(check, values, p, (samples, 0.95))
    }

    fn p99(op: Op, limit: f64) -> Check {
        check(Metric::Ttft, Some(Stat::Quantile(0.99)), op, limit)
    }

    fn ascending(n: u32) -> Vec<f64> {
        (1..=n).map(f64::from).collect()
    }

    #[test]
    fn a_ceiling_needs_299_samples_and_then_holds_at_the_greatest() {
        let seen = judge_quantile(&p99(Op::Less, 300.0), ascending(299), 0.99);
        assert_eq!(
            (seen.ruling, seen.observed, seen.bound, seen.n),
            (Ruling::Pass, Some(297.0), Some(299.0), 299)
        );
        let short = judge_quantile(&p99(Op::Less, 300.0), ascending(298), 0.99);
        assert_eq!(
            (short.ruling, short.bound, short.need),
            (Ruling::Inconclusive, None, Some(299))
        );
        let strict = judge_quantile(&p99(Op::Less, 299.0), ascending(299), 0.99);
        assert_eq!(
            (strict.ruling, strict.need.is_some()),
            (Ruling::Inconclusive, true)
        );
    }

    #[test]
    fn too_many_over_the_limit_is_a_failure() {
        let seen = judge_quantile(&p99(Op::AtMost, 90.0), ascending(100), 0.99);
        assert_eq!(
            (seen.ruling, seen.observed, seen.need),
            (Ruling::Fail, Some(99.0), None)
        );
    }

    #[test]
    fn a_floor_mirrors_a_ceiling() {
        let floor = check(Metric::DecodeTps, Some(Stat::Quantile(0.01)), Op::More, 0.5);
        let seen = judge_quantile(&floor, ascending(299), 0.01);
        assert_eq!(
            (seen.ruling, seen.observed, seen.bound),
            (Ruling::Pass, Some(3.0), Some(1.0))
        );
        assert_eq!(
            judge_quantile(&floor, ascending(298), 0.01).ruling,
            Ruling::Inconclusive
        );
    }

    proptest! {
        #[test]
        fn it_passes_exactly_where_the_bound_holds(
            values in prop::collection::vec(0.0..100.0f64, 1..400), p in 0.5..0.999f64,
                limit in 0.0..110.0f64, up: bool,
        ) {
            let op = if up { Op::AtLeast } else { Op::Less };
            let seen = judge_quantile(&p99(op, limit), values.clone(), if up { 1.0 - p } else { p });
            prop_assert_eq!(seen.ruling == Ruling::Pass, seen.bound.is_some_and(|bound| op.holds(bound, limit)));
            if seen.ruling == Ruling::Pass {
                prop_assert!(op.holds(seen.observed.unwrap(), limit));
            }
        }

        #[test]
        fn a_laxer_limit_is_never_judged_worse(
            values in prop::collection::vec(0.0..100.0f64, 1..400), p in 0.5..0.99f64,
                limit in 0.0..100.0f64, more in 0.0..50.0f64,
        ) {
            let score = |limit| match judge_quantile(&p99(Op::Less, limit), values.clone(), p).ruling {
                Ruling::Pass => 2,
                Ruling::Inconclusive => 1,
                Ruling::Fail | Ruling::Invalid => 0,
            };
            prop_assert!(score(limit) <= score(limit + more));
        }
    }
}

mod share {
    use super::super::*;
    use crate::judge::fixture::check;
    use llmscen_core::check::{Op, Ruling};
    use llmscen_core::metric::Metric;
    use llmscen_core::stats::design::Dependence;

    fn errors(op: Op, limit: f64, hits: u64, n: u64) -> Assessment {
        judge_share(
            &check(Metric::ErrorRate, None, op, limit),
            hits,
            None,
            (Samples::new(n, Dependence::NONE, 0.95), 0.95),
        )
    }

    #[test]
    fn zero_errors_in_a_few_requests_prove_nothing() {
        let seen = errors(Op::Less, 0.01, 0, 100);
        assert_eq!(
            (seen.ruling, seen.observed, seen.need),
            (Ruling::Inconclusive, Some(0.0), Some(299))
        );
        assert!((seen.bound.unwrap() - 0.02951).abs() < 1e-4);
        assert_eq!(errors(Op::Less, 0.01, 0, 299).ruling, Ruling::Pass);
    }

    #[test]
    fn many_errors_are_a_failure() {
        assert_eq!(errors(Op::Less, 0.01, 5, 100).ruling, Ruling::Fail);
        assert_eq!(errors(Op::More, 0.5, 100, 100).ruling, Ruling::Pass);
        assert_eq!(errors(Op::More, 0.5, 0, 100).ruling, Ruling::Fail);
    }
}
