//! The exact one-sided bounds of a share.
//!
//! Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26
//! (1934). Unlike the bootstrap it knows that zero failures in ten requests do not make a rate of zero.

use crate::stats::tail::{at_least, at_most};

/// The upper end at confidence `level` of the share behind `hits` of `n`: 1 without samples.
pub fn upper(hits: u64, n: u64, level: f64) -> f64 {
    if hits >= n { 1.0 } else { boundary(|share| at_most(n as f64, share, hits as f64) > 1.0 - level) }
}

/// The lower end: 0 without samples.
pub fn lower(hits: u64, n: u64, level: f64) -> f64 {
    if hits == 0 || n == 0 { 0.0 } else { boundary(|share| at_least(n as f64, share, hits as f64) <= 1.0 - level) }
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
    use crate::stats::claim::{Decision, decide};
    use proptest::prelude::*;

    #[test]
    fn the_rule_of_three() {
        assert!((upper(0, 100, 0.95) - (1.0 - 0.05f64.powf(0.01))).abs() < 1e-12);
        assert!((lower(100, 100, 0.95) - 0.05f64.powf(0.01)).abs() < 1e-12);
        assert_eq!((upper(10, 10, 0.95), lower(0, 10, 0.95), upper(0, 0, 0.95), lower(0, 0, 0.95)), (1.0, 0.0, 1.0, 0.0));
    }

    #[test]
    fn the_published_interval() {
        // 10 of 100, two-sided 95 %: 4.900 % to 17.622 % (R: binom.test(10, 100)).
        assert!((lower(10, 100, 0.975) - 0.049005).abs() < 1e-6);
        assert!((upper(10, 100, 0.975) - 0.176223).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn a_bound_under_the_limit_is_a_claim_that_holds(n in 1u64..500, part in 0.0..=1.0f64, limit in 0.01..0.99f64) {
            let hits = (part * n as f64) as u64;
            prop_assert_eq!(upper(hits, n, 0.95) <= limit, decide(n, hits, limit, 0.95) == Decision::Holds);
            prop_assert_eq!(lower(hits, n, 0.95) >= limit, decide(n, hits, limit, 0.95) == Decision::Broken);
        }
    }
}
