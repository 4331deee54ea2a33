//! The exact test of two shares.

use statrs::function::gamma::ln_gamma;

/// Tables less likely than the seen one by a hair count as equally likely: the arithmetic of floats must not decide.
const HAIR: f64 = 1e-7;

/// The two-sided probability of two shares at least so far apart, `hits` of `n` each, if they were equal: the sum over all
/// tables of the same margins that are no likelier than this one (Fisher, "The logic of inductive inference", Journal of the
/// Royal Statistical Society 98, 1935). 1 without samples.
pub fn exact(a: (u64, u64), b: (u64, u64)) -> f64 {
    let (hits, n) = (a.0 + b.0, a.1 + b.1);
    let choose = |n: u64, k: u64| ln_gamma(n as f64 + 1.0) - ln_gamma(k as f64 + 1.0) - ln_gamma((n - k) as f64 + 1.0);
    let all = choose(n, hits);
    let likely = |own: u64| choose(a.1, own) + choose(b.1, hits - own) - all;
    let (least, most) = (hits.saturating_sub(b.1), hits.min(a.1));
    let seen = likely(a.0.clamp(least, most)) + HAIR;
    (least..=most).map(likely).filter(|own| *own <= seen).map(f64::exp).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_tables() {
        // R: fisher.test(matrix(c(3, 1, 1, 3), 2)) is 0.4857; of (1, 9, 11, 3) 0.002759; of (0, 100, 5, 95) 0.05905.
        assert!((exact((3, 4), (1, 4)) - 0.485714).abs() < 1e-6);
        assert!((exact((1, 12), (9, 12)) - 0.002759).abs() < 1e-6);
        assert!((exact((0, 100), (5, 100)) - 0.059383).abs() < 1e-5);
    }

    #[test]
    fn equal_shares_and_no_samples_tell_nothing() {
        assert!((exact((5, 50), (5, 50)) - 1.0).abs() < 1e-9);
        assert!((exact((0, 50), (0, 70)) - 1.0).abs() < 1e-9);
        assert!((exact((0, 0), (0, 0)) - 1.0).abs() < 1e-9);
        assert!((exact((50, 50), (70, 70)) - 1.0).abs() < 1e-9);
    }
}
