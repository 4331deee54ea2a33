//! Tails of the binomial distribution, for any number of trials.
//!
//! P[Binomial(n, q) ≤ t] = I₁₋q(n − t, t + 1), the regularised incomplete beta function, by its continued fraction in the
//! modified Lentz form (Press et al., "Numerical Recipes", 3rd edition, section 6.4). A fraction of fixed depth, as
//! libraries have it, is too shallow beyond some ten thousand trials; gaps between tokens come in millions.

use statrs::function::gamma::ln_gamma;

/// Terms of the fraction: it needs about √n of them, so this is enough for n = 10¹¹.
const DEPTH: u32 = 400_000;
const TINY: f64 = 1e-300;

/// P[Binomial(n, q) ≤ t]. Real arguments interpolate, so that a sample size can be searched for.
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
    if x < (a + 1.0) / (a + b + 2.0) { front * fraction(a, b, x) / a } else { 1.0 - front * fraction(b, a, 1.0 - x) / b }
}

fn fraction(a: f64, b: f64, x: f64) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use statrs::distribution::{Binomial, DiscreteCDF};

    #[test]
    fn small_cases_are_exact() {
        assert!((at_most(4.0, 0.5, 1.0) - 5.0 / 16.0).abs() < 1e-14);
        assert!((at_least(4.0, 0.5, 3.0) - 5.0 / 16.0).abs() < 1e-14);
        assert!((at_most(29.0, 0.1, 0.0) - 0.9f64.powi(29)).abs() < 1e-14);
        assert_eq!((at_most(5.0, 0.0, 0.0), at_most(5.0, 1.0, 4.0)), (1.0, 0.0));
        assert_eq!((at_least(5.0, 0.0, 1.0), at_least(5.0, 1.0, 5.0)), (0.0, 1.0));
        assert_eq!((at_least(5.0, 0.3, 0.0), at_most(5.0, 0.3, 5.0)), (1.0, 1.0));
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
}
