//! Quantiles by nearest rank: always a value that was measured, never one between two.
//!
//! Hyndman and Fan, "Sample quantiles in statistical packages", The American Statistician 50 (1996), definition 1.

/// Sorts values ascending; NaN, which no row holds, would come last.
pub fn sort(values: &mut [f64]) {
    values.sort_unstable_by(f64::total_cmp);
}

/// The position ⌈p·n⌉ of the quantile, counted from 1; 1 for p = 0. `n` must be above zero.
pub fn rank(n: usize, p: f64) -> usize {
    // 0.07 × 100 is a hair above 7 in binary: such a hair must not move the rank.
    let position = (p * n as f64 * (1.0 - 1e-12)).ceil() as usize;
    position.clamp(1, n.max(1))
}

/// The quantile `p`, 0..=1, of ascending values. None without values.
pub fn nearest_rank(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(rank(sorted.len(), p).saturating_sub(1).min(last)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rank_is_the_ceiling_of_p_n() {
        let positions = [0.0, 0.01, 0.5, 0.501, 0.99, 0.999, 1.0].map(|p| rank(100, p));
        assert_eq!(positions, [1, 1, 50, 51, 99, 100, 100]);
        assert_eq!((rank(1, 0.999), rank(3, 1.0 / 3.0), rank(10_000, 0.999)), (1, 1, 9990));
    }

    #[test]
    fn whole_percents_land_on_whole_ranks() {
        for percent in 1..=100usize {
            assert_eq!(rank(100, percent as f64 / 100.0), percent);
            assert_eq!(rank(24_000_000, percent as f64 / 100.0), percent * 240_000);
        }
    }

    #[test]
    fn a_quantile_of_nothing_does_not_exist() {
        assert_eq!(nearest_rank(&[], 0.5), None);
        assert_eq!(nearest_rank(&[7.0], 0.0), Some(7.0));
        assert_eq!(nearest_rank(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.0));
    }

    proptest! {
        #[test]
        fn at_least_p_of_the_values_are_at_or_under_the_quantile(mut xs in prop::collection::vec(-1e6..1e6f64, 1..200), p in 0.0..=1.0f64) {
            sort(&mut xs);
            let q = nearest_rank(&xs, p).unwrap();
            let under = xs.iter().filter(|&&x| x <= q).count() as f64;
            let below = xs.iter().filter(|&&x| x < q).count() as f64;
            prop_assert!(under >= p * xs.len() as f64 - 1e-6);
            prop_assert!(below <= p * xs.len() as f64 || below == 0.0);
        }
    }
}
