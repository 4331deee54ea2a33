//! Shares: exact one-sided bounds, the binomial tails behind them, and the exact test of two shares.
//!
//! Bounds: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
//! Biometrika 26 (1934). Unlike resampling, they do not conclude a rate of zero from zero failures in ten requests.
//!
//! Tails: P[Binomial(n, q) ≤ t] = I₁₋q(n − t, t + 1), the regularised incomplete beta function, by its continued
//! fraction in the modified Lentz form (Press et al., "Numerical Recipes", 3rd edition, section 6.4). The fixed depth
//! of library implementations is insufficient beyond some ten thousand trials, and gaps between tokens are counted in
//! millions.

use statrs::function::gamma::ln_gamma;

/// The upper bound at confidence `level` of the share, after `hits` of `n`: 1 without samples. Non-integer arguments
/// are effective sample sizes.
pub fn upper(hits: f64, n: f64, level: f64) -> f64 {
    if hits >= n {
        1.0
    } else {
        boundary(|share| at_most(n, share, hits) > 1.0 - level)
    }
}

/// The lower bound at confidence `level` of the share, after `hits` of `n`: 0 without samples.
pub fn lower(hits: f64, n: f64, level: f64) -> f64 {
    if hits <= 0.0 || n <= 0.0 {
        0.0
    } else {
        boundary(|share| at_least(n, share, hits) <= 1.0 - level)
    }
}

/// The smallest number of hits of `n` whose lower bound at confidence `level` is above `share`. None if `n` is too
/// small.
pub fn decisive(n: u64, share: f64, level: f64) -> Option<u64> {
    let first = (share * n as f64) as u64 + 1;
    (first..=n).find(|&hits| at_least(n as f64, share, hits as f64) < 1.0 - level)
}

/// The point in 0..=1 at which a condition that is true on the left turns false.
fn boundary(left: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if left(middle) {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

/// Maximum number of terms: about √n are needed, so this suffices for n = 10¹¹.
const DEPTH: u32 = 400_000;
const TINY: f64 = 1e-300;

/// P[Binomial(n, q) ≤ t]. Non-integer arguments interpolate.
pub fn at_most(n: f64, q: f64, t: f64) -> f64 {
    match () {
        () if t < 0.0 => 0.0,
        () if t >= n => 1.0,
        () => beta(n - t, t + 1.0, 1.0 - q),
    }
}

/// P[Binomial(n, q) ≥ t].
pub fn at_least(n: f64, q: f64, t: f64) -> f64 {
    match () {
        () if t <= 0.0 => 1.0,
        () if t > n => 0.0,
        () => beta(t, n - t + 1.0, q),
    }
}

/// The regularised incomplete beta function I_x(a, b), for a, b > 0.
fn beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return f64::from(u8::from(x >= 1.0));
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * continued_fraction(a, b, x) / a
    } else {
        1.0 - front * continued_fraction(b, a, 1.0 - x) / b
    }
}

/// Its continued fraction, in the modified Lentz form.
fn continued_fraction(a: f64, b: f64, x: f64) -> f64 {
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut h = d;
    for m in (1..DEPTH).map(f64::from) {
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = h;
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            h *= d * c;
        }
        if (h - before).abs() <= 1e-15 * h.abs() {
            break;
        }
    }
    h
}

/// Tolerance within which two tables count as equally likely, against floating-point error.
const TOLERANCE: f64 = 1e-7;

/// Fisher's exact test, two-sided: the p-value for equal shares after `(hits, n)` on each side, the sum over all
/// tables with the same margins that are at most as likely as the observed one (Fisher, "The logic of inductive
/// inference", Journal of the Royal Statistical Society 98, 1935). 1 without samples.
pub fn fisher_exact(a: (u64, u64), b: (u64, u64)) -> f64 {
    let (hits, n) = (a.0 + b.0, a.1 + b.1);
    let choose = |n: u64, k: u64| {
        ln_gamma(n as f64 + 1.0) - ln_gamma(k as f64 + 1.0) - ln_gamma((n - k) as f64 + 1.0)
    };
    let all = choose(n, hits);
    let ln_likelihood = |k: u64| choose(a.1, k) + choose(b.1, hits - k) - all;
    let (least, most) = (hits.saturating_sub(b.1), hits.min(a.1));
    let observed = ln_likelihood(a.0.clamp(least, most)) + TOLERANCE;
    (least..=most)
        .map(ln_likelihood)
        .filter(|table| *table <= observed)
        .map(f64::exp)
        .sum::<f64>()
        .min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::quantile_bound::{Decision, decide};
    use proptest::prelude::*;
    use statrs::distribution::{Binomial, DiscreteCDF};

    #[test]
    fn the_rule_of_three() {
        assert!((upper(0.0, 100.0, 0.95) - (1.0 - 0.05f64.powf(0.01))).abs() < 1e-12);
        assert!((lower(100.0, 100.0, 0.95) - 0.05f64.powf(0.01)).abs() < 1e-12);
        assert_eq!(
            (
                upper(10.0, 10.0, 0.95),
                lower(0.0, 10.0, 0.95),
                upper(0.0, 0.0, 0.95),
                lower(0.0, 0.0, 0.95)
            ),
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
        assert_eq!(
            [of(0), of(1), of(5), of(6), of(50), of(1000)],
            [None, Some(1), Some(1), Some(2), Some(3), Some(16)]
        );
        assert_eq!(
            decisive(3, 0.5, 0.95),
            None,
            "three of three are one in eight"
        );
        for n in [1, 14, 99, 100, 700] {
            let (fewest, all) = (of(n).unwrap() as f64, n as f64);
            assert!(
                lower(fewest, all, 0.95) > 0.01 && lower(fewest - 1.0, all, 0.95) <= 0.01,
                "{n}"
            );
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

    #[test]
    fn small_cases_are_exact() {
        assert!((at_most(4.0, 0.5, 1.0) - 5.0 / 16.0).abs() < 1e-14);
        assert!((at_least(4.0, 0.5, 3.0) - 5.0 / 16.0).abs() < 1e-14);
        assert!((at_most(29.0, 0.1, 0.0) - 0.9f64.powi(29)).abs() < 1e-14);
        assert_eq!((at_most(5.0, 0.0, 0.0), at_most(5.0, 1.0, 4.0)), (1.0, 0.0));
        assert_eq!(
            (at_least(5.0, 0.0, 1.0), at_least(5.0, 1.0, 5.0)),
            (0.0, 1.0)
        );
        assert_eq!(
            (at_least(5.0, 0.3, 0.0), at_most(5.0, 0.3, 5.0)),
            (1.0, 1.0)
        );
    }

    #[test]
    fn millions_of_trials_approach_the_normal_law() {
        // One standard deviation (489.9 hits) under the mean of 240,000; half a hit of continuity.
        let tail = at_most(24e6, 0.01, 239_512.0);
        assert!((tail - 0.159).abs() < 5e-4, "{tail}");
        assert!((at_most(24e6, 0.01, 240_000.0) - 0.5).abs() < 1e-3);
    }

    proptest! {
        #[test]
        fn agrees_with_the_library_where_it_is_deep_enough(n in 1u64..400, q in 0.001..0.999f64, part in 0.0..=1.0f64) {
            let t = (part * n as f64) as u64;
            let known = Binomial::new(q, n).unwrap();
            prop_assert!((at_most(n as f64, q, t as f64) - known.cdf(t)).abs() < 1e-9);
            let both = at_most(n as f64, q, t as f64) + at_least(n as f64, q, t as f64 + 1.0);
            prop_assert!((both - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_published_tables() {
        // R: fisher.test(matrix(c(3, 1, 1, 3), 2)) is 0.4857; of (1, 9, 11, 3) 0.002759; of (0, 100, 5, 95) 0.05905.
        assert!((fisher_exact((3, 4), (1, 4)) - 0.485714).abs() < 1e-6);
        assert!((fisher_exact((1, 12), (9, 12)) - 0.002759).abs() < 1e-6);
        assert!((fisher_exact((0, 100), (5, 100)) - 0.059383).abs() < 1e-5);
    }

    #[test]
    fn equal_shares_and_no_samples_have_a_p_value_of_one() {
        assert!((fisher_exact((5, 50), (5, 50)) - 1.0).abs() < 1e-9);
        assert!((fisher_exact((0, 50), (0, 70)) - 1.0).abs() < 1e-9);
        assert!((fisher_exact((0, 0), (0, 0)) - 1.0).abs() < 1e-9);
        assert!((fisher_exact((50, 50), (70, 70)) - 1.0).abs() < 1e-9);
    }
}
