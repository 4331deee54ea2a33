//! Sample quantiles, by the definitions of Hyndman and Fan, "Sample quantiles in statistical packages", The American
//! Statistician 50 (1996).

/// The definition of a sample quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The value at position ⌈p·n⌉ (definition 1): always a measured value. Used for all metrics.
    NearestRank,
    /// The same, but the mean of two neighbours if p·n is an integer (definition 2): the usual median.
    Averaged,
    /// Linear interpolation at position p·(n − 1), counted from 0 (definition 7): the default of numpy, for files in
    /// the format of other tools.
    Linear,
}

/// Sorts values ascending, NaN last.
pub fn sort(values: &mut [f64]) {
    values.sort_unstable_by(f64::total_cmp);
}

/// The position ⌈p·n⌉ of the quantile, counted from 1; 1 for p = 0. `n` must be above zero.
pub fn rank(n: usize, p: f64) -> usize {
    // 0.07 × 100 is slightly above 7 in binary, which must not change the rank.
    let position = (p * n as f64 * (1.0 - 1e-12)).ceil() as usize;
    position.clamp(1, n.max(1))
}

/// The quantile `p`, 0..=1, of ascending values. None without values.
pub fn quantile(sorted: &[f64], p: f64, method: Method) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = |index: usize| sorted.get(index.min(last)).copied();
    let nearest = rank(sorted.len(), p) - 1;
    match method {
        Method::NearestRank => at(nearest),
        Method::Averaged if rank(sorted.len(), p) as f64 == p * sorted.len() as f64 => {
            Some((at(nearest)? + at(nearest + 1)?) / 2.0)
        }
        Method::Averaged => at(nearest),
        Method::Linear => {
            let position = p * last as f64;
            let below = at(position.floor() as usize)?;
            let above = at(position.ceil() as usize)?;
            let step = above - below;
            let fraction = position - position.floor();
            // From the nearer end, like numpy, so that rounding never leaves the interval.
            Some(if fraction < 0.5 {
                below + step * fraction
            } else {
                above - step * (1.0 - fraction)
            })
        }
    }
}

/// The value at a rank of the ascending order, counted from 1, by selection: far cheaper than a sort for millions of
/// values, whose order changes. None for a rank that does not exist.
pub fn order_statistic(values: &mut [f64], rank: usize) -> Option<f64> {
    let index = rank.checked_sub(1).filter(|&index| index < values.len())?;
    Some(*values.select_nth_unstable_by(index, f64::total_cmp).1)
}

/// [`Method::NearestRank`] of values in any order, without sorting them.
pub fn select_quantile(values: &mut [f64], p: f64) -> Option<f64> {
    order_statistic(values, rank(values.len(), p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rank_is_the_ceiling_of_p_n() {
        let positions = [0.0, 0.01, 0.5, 0.501, 0.99, 0.999, 1.0].map(|p| rank(100, p));
        assert_eq!(positions, [1, 1, 50, 51, 99, 100, 100]);
        assert_eq!(
            (rank(1, 0.999), rank(3, 1.0 / 3.0), rank(10_000, 0.999)),
            (1, 1, 9990)
        );
    }

    #[test]
    fn integer_percents_yield_exact_ranks() {
        for percent in 1..=100usize {
            assert_eq!(rank(100, percent as f64 / 100.0), percent);
            assert_eq!(rank(24_000_000, percent as f64 / 100.0), percent * 240_000);
        }
    }

    #[test]
    fn a_quantile_of_nothing_does_not_exist() {
        assert_eq!(quantile(&[], 0.5, Method::NearestRank), None);
        assert_eq!(quantile(&[7.0], 0.0, Method::NearestRank), Some(7.0));
        assert_eq!(
            quantile(&[1.0, 2.0, 3.0, 4.0], 0.5, Method::NearestRank),
            Some(2.0)
        );
    }

    #[test]
    fn linear_quantiles_are_those_of_numpy() {
        // numpy.percentile([1, 2, 4, 8, 16], [0, 10, 50, 75, 90, 99, 100])
        let values = [1.0, 2.0, 4.0, 8.0, 16.0];
        let found = [0.0, 0.1, 0.5, 0.75, 0.9, 0.99, 1.0]
            .map(|p| quantile(&values, p, Method::Linear).unwrap());
        assert_eq!(found, [1.0, 1.4, 4.0, 8.0, 12.8, 15.68, 16.0]);
        assert_eq!(
            (
                quantile(&[3.0], 0.99, Method::Linear),
                quantile(&[], 0.5, Method::Linear)
            ),
            (Some(3.0), None)
        );
    }

    #[test]
    fn the_usual_median_is_between_the_middle_two() {
        let median = |values: &[f64]| quantile(values, 0.5, Method::Averaged);
        assert_eq!(
            (median(&[1.0, 2.0, 4.0, 8.0]), median(&[1.0, 2.0, 4.0])),
            (Some(3.0), Some(2.0))
        );
        assert_eq!((median(&[5.0]), median(&[])), (Some(5.0), None));
    }

    proptest! {
        #[test]
        fn at_least_p_of_the_values_are_at_or_under_the_quantile(
            mut xs in prop::collection::vec(-1e6..1e6f64, 1..200), p in 0.0..=1.0f64
        ) {
            sort(&mut xs);
            let q = quantile(&xs, p, Method::NearestRank).unwrap();
            prop_assert_eq!(select_quantile(&mut xs.clone(), p), Some(q));
            let under = xs.iter().filter(|&&x| x <= q).count() as f64;
            let below = xs.iter().filter(|&&x| x < q).count() as f64;
            prop_assert!(under >= p * xs.len() as f64 - 1e-6);
            prop_assert!(below <= p * xs.len() as f64 || below == 0.0);
        }
    }
}
