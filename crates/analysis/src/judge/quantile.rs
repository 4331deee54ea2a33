//! Limits on quantiles, by order statistics.

use crate::judge::assessment::Opinion;
use crate::judge::counted::{Claim, Samples, nearer, stricter};
use llmscen_core::check::Check;
use llmscen_core::stats::quantile::rank;
use llmscen_core::stats::quantile_bound::allowed;

/// Judges the quantile `p`, 0 < p < 1, of at least one value, at confidence `level`.
pub(super) fn judge(check: &Check, mut values: Vec<f64>, p: f64, (samples, level): (Samples, f64)) -> Opinion {
    let (op, n, ceiling) = (check.op, samples.n, check.op.is_ceiling());
    let claim = Claim { tail: if ceiling { 1.0 - p } else { p }, level };
    let breaking = |limit: f64| values.iter().filter(|&&value| !op.holds(value, limit)).count() as u64;
    let strict = samples.margin().map(|margin| breaking(stricter(op, check.limit, margin)));
    let judged = samples.judge(breaking(check.limit), strict, claim);
    let place = rank(values.len(), p);
    let observed = at(&mut values, place);
    let mut end = |effect: f64| {
        let spare = allowed(n, effect, claim.tail, level)?;
        at(&mut values, if ceiling { n - spare } else { spare + 1 } as usize)
    };
    let own = if samples.too_few() { None } else { end(samples.effect) };
    let by_margin = samples.margin().and_then(|margin| Some(if ceiling { end(1.0)? * margin } else { end(1.0)? / margin }));
    Opinion { observed, bound: nearer(op, own, by_margin), ..judged }
}

/// The value at a position of the ascending order, counted from 1, without sorting millions of them.
pub(super) fn at(values: &mut [f64], position: usize) -> Option<f64> {
    let index = position.checked_sub(1).filter(|&index| index < values.len())?;
    Some(*values.select_nth_unstable_by(index, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::check;
    use llmscen_core::check::{Op, Ruling};
    use llmscen_core::metric::{Metric, Stat};
    use llmscen_core::stats::design::Dependence;
    use proptest::prelude::*;

    /// At 95 %, of values that are independent.
    fn judge(check: &Check, values: Vec<f64>, p: f64) -> Opinion {
        let samples = Samples::new(values.len() as u64, Dependence::NONE, 0.95);
        super::judge(check, values, p, (samples, 0.95))
    }

    fn p99(op: Op, limit: f64) -> Check {
        check(Metric::Ttft, Some(Stat::Quantile(0.99)), op, limit)
    }

    fn ascending(n: u32) -> Vec<f64> {
        (1..=n).map(f64::from).collect()
    }

    #[test]
    fn a_ceiling_needs_299_samples_and_then_holds_at_the_greatest() {
        let seen = judge(&p99(Op::Less, 300.0), ascending(299), 0.99);
        assert_eq!((seen.ruling, seen.observed, seen.bound, seen.n), (Ruling::Pass, Some(297.0), Some(299.0), 299));
        let short = judge(&p99(Op::Less, 300.0), ascending(298), 0.99);
        assert_eq!((short.ruling, short.bound, short.need), (Ruling::Inconclusive, None, Some(299)));
        let strict = judge(&p99(Op::Less, 299.0), ascending(299), 0.99);
        assert_eq!((strict.ruling, strict.need.is_some()), (Ruling::Inconclusive, true));
    }

    #[test]
    fn too_many_over_the_limit_is_a_failure() {
        let seen = judge(&p99(Op::AtMost, 90.0), ascending(100), 0.99);
        assert_eq!((seen.ruling, seen.observed, seen.need), (Ruling::Fail, Some(99.0), None));
    }

    #[test]
    fn a_floor_mirrors_a_ceiling() {
        let floor = check(Metric::DecodeTps, Some(Stat::Quantile(0.01)), Op::More, 0.5);
        let seen = judge(&floor, ascending(299), 0.01);
        assert_eq!((seen.ruling, seen.observed, seen.bound), (Ruling::Pass, Some(3.0), Some(1.0)));
        assert_eq!(judge(&floor, ascending(298), 0.01).ruling, Ruling::Inconclusive);
    }

    proptest! {
        #[test]
        fn it_passes_exactly_where_the_bound_holds(
            values in prop::collection::vec(0.0..100.0f64, 1..400), p in 0.5..0.999f64, limit in 0.0..110.0f64, up: bool,
        ) {
            let op = if up { Op::AtLeast } else { Op::Less };
            let seen = judge(&p99(op, limit), values.clone(), if up { 1.0 - p } else { p });
            prop_assert_eq!(seen.ruling == Ruling::Pass, seen.bound.is_some_and(|bound| op.holds(bound, limit)));
            if seen.ruling == Ruling::Pass {
                prop_assert!(op.holds(seen.observed.unwrap(), limit));
            }
        }

        #[test]
        fn a_laxer_limit_is_never_judged_worse(
            values in prop::collection::vec(0.0..100.0f64, 1..400), p in 0.5..0.99f64, limit in 0.0..100.0f64, more in 0.0..50.0f64,
        ) {
            let score = |limit| match judge(&p99(Op::Less, limit), values.clone(), p).ruling {
                Ruling::Pass => 2,
                Ruling::Inconclusive => 1,
                Ruling::Fail | Ruling::Invalid => 0,
            };
            prop_assert!(score(limit) <= score(limit + more));
        }
    }
}
