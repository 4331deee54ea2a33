//! The exact one-sided bounds of a share.
//!
//! Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26
//! (1934). Unlike the bootstrap it knows that zero failures in ten requests do not make a rate of zero.

use crate::stats::binomial_tail::{at_least, at_most};

/// The upper end at confidence `level` of the share behind `hits` of `n`: 1 without samples. Real arguments are effective sample
/// sizes.
pub fn upper(hits: f64, n: f64, level: f64) -> f64 {
    if hits >= n { 1.0 } else { boundary(|share| at_most(n, share, hits) > 1.0 - level) }
}

/// The lower end: 0 without samples.
pub fn lower(hits: f64, n: f64, level: f64) -> f64 {
    if hits <= 0.0 || n <= 0.0 { 0.0 } else { boundary(|share| at_least(n, share, hits) <= 1.0 - level) }
}

/// The fewest hits of `n` of which chance is no explanation at confidence `level`: their lower end is above `share`. None
/// where `n` are too few for that.
pub fn decisive(n: u64, share: f64, level: f64) -> Option<u64> {
    let first = (share * n as f64) as u64 + 1;
    (first..=n).find(|&hits| at_least(n as f64, share, hits as f64) < 1.0 - level)
}

/// Where on 0..=1 a condition that is true at the left turns false.
fn boundary(left: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if left(middle) { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::quantile_bound::{Decision, decide};
    use proptest::prelude::*;

    #[test]
    fn the_rule_of_three() {
        assert!((upper(0.0, 100.0, 0.95) - (1.0 - 0.05f64.powf(0.01))).abs() < 1e-12);
        assert!((lower(100.0, 100.0, 0.95) - 0.05f64.powf(0.01)).abs() < 1e-12);
        assert_eq!(
            (upper(10.0, 10.0, 0.95), lower(0.0, 10.0, 0.95), upper(0.0, 0.0, 0.95), lower(0.0, 0.0, 0.95)),
            (1.0, 0.0, 1.0, 0.0)
        );
    }

    #[test]
    fn the_published_interval() {
        // 10 of 100, two-sided 95 %: 4.900 % to 17.622 % (R: binom.test(10, 100)).
        assert!((lower(10.0, 100.0, 0.975) - 0.049005).abs() < 1e-6);
        assert!((upper(10.0, 100.0, 0.975) - 0.176223).abs() < 1e-6);
    }

    #[test]
    fn so_few_of_a_sample_are_no_chance() {
        // 1 − 0.99^n is 5 % at n = 5.1; of 50 and of 1000 the tails are R's pbinom(k − 1, n, 0.01, lower.tail = FALSE).
        let of = |n| decisive(n, 0.01, 0.95);
        assert_eq!([of(0), of(1), of(5), of(6), of(50), of(1000)], [None, Some(1), Some(1), Some(2), Some(3), Some(16)]);
        assert_eq!(decisive(3, 0.5, 0.95), None, "three of three are one in eight");
        for n in [1, 14, 99, 100, 700] {
            let (fewest, all) = (of(n).unwrap() as f64, n as f64);
            assert!(lower(fewest, all, 0.95) > 0.01 && lower(fewest - 1.0, all, 0.95) <= 0.01, "{n}");
        }
    }

    proptest! {
        #[test]
        fn a_bound_under_the_limit_is_a_claim_that_holds(n in 1u64..500, part in 0.0..=1.0f64, limit in 0.01..0.99f64) {
            let (hits, n) = ((part * n as f64).floor(), n as f64);
            prop_assert_eq!(upper(hits, n, 0.95) <= limit, decide(n, hits, limit, 0.95) == Decision::Holds);
            prop_assert_eq!(lower(hits, n, 0.95) >= limit, decide(n, hits, limit, 0.95) == Decision::Broken);
        }
    }
}
