//! Estimates with their confidence intervals, and what two of them say about their ratio.

use crate::stats::claim::allowed;
use crate::stats::normal::{probability, score};
use crate::stats::quantile::nearest_rank;

/// An estimate between two one-sided bounds, each at the same confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl Interval {
    /// An exact value.
    pub fn exact(value: f64) -> Interval {
        Interval { value, low: value, high: value }
    }

    /// The same estimate with every bound as many times as far away: for samples that are worth fewer than they are.
    pub fn widened(self, times: f64) -> Interval {
        let value = self.value;
        Interval { value, low: value - (value - self.low) * times, high: value + (self.high - value) * times }
    }
}

/// The quantile `p`, 0 < p < 1, of ascending values, between order statistics that bound it at confidence `level` each (Conover,
/// "Practical Nonparametric Statistics", 3rd edition, section 3.2). None where the values are too few for either bound.
pub fn quantile(sorted: &[f64], p: f64, level: f64) -> Option<Interval> {
    let n = sorted.len() as u64;
    // So many may lie above the upper bound, and so many below the lower one.
    let (over, under) = (allowed(n, 1.0 - p, level)?, allowed(n, p, level)?);
    let at = |index: u64| sorted.get(usize::try_from(index).ok()?).copied();
    Some(Interval { value: nearest_rank(sorted, p)?, low: at(under)?, high: at(n.checked_sub(over + 1)?)? })
}

/// The ratio `a / b` of two independent estimates with its bounds at the confidence of theirs: the method of variance
/// estimates recovery on the logarithms, which keeps the two sides of a skewed interval apart (Zou and Donner, "Construction of
/// confidence limits about effect measures: a general approach", Statistics in Medicine 27, 2008). None unless every bound is
/// above 0.
pub fn ratio(a: Interval, b: Interval) -> Option<Interval> {
    let positive = [a.value, a.low, a.high, b.value, b.low, b.high].iter().all(|&value| value > 0.0 && value.is_finite());
    if !positive {
        return None;
    }
    let centre = (a.value / b.value).ln();
    let [down, up] = arms(a, b);
    Some(Interval { value: a.value / b.value, low: (centre - down).exp(), high: (centre + up).exp() })
}

/// How far the logarithm of the ratio reaches down and up.
fn arms(a: Interval, b: Interval) -> [f64; 2] {
    let down = (a.value / a.low).ln().hypot((b.high / b.value).ln());
    let up = (a.high / a.value).ln().hypot((b.value / b.low).ln());
    [down, up]
}

/// The two-sided probability of a ratio at least so far from `to` if `to` were the truth, from intervals whose bounds hold at
/// `level` each: the arm that reaches towards `to` is taken for so many standard errors. None unless every bound is above 0;
/// 1 for equal exact values, 0 for other exact ones.
pub fn p_value(a: Interval, b: Interval, to: f64, level: f64) -> Option<f64> {
    let found = ratio(a, b)?;
    let (off, [down, up]) = ((found.value / to).ln(), arms(a, b));
    let arm = if off > 0.0 { down } else { up };
    if off == 0.0 {
        return Some(1.0);
    }
    let z = off.abs() / arm * score(level);
    Some(if arm > 0.0 { 2.0 * probability(-z) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn of(value: f64, low: f64, high: f64) -> Interval {
        Interval { value, low, high }
    }

    fn sample(rng: &mut ChaCha8Rng, n: usize, scale: f64) -> Vec<f64> {
        let mut values: Vec<f64> = (0..n).map(|_| scale * (0.5 - (1.0 - rng.random::<f64>()).ln())).collect();
        crate::stats::quantile::sort(&mut values);
        values
    }

    #[test]
    fn bounds_of_a_quantile_are_order_statistics() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        // P[Binomial(100, 0.5) <= 41] = 0.044, <= 42 = 0.067.
        assert_eq!(quantile(&values, 0.5, 0.95), Some(of(50.0, 42.0, 59.0)));
        assert_eq!(quantile(&values, 0.99, 0.95), None, "299 are needed");
        let many: Vec<f64> = (1..=299).map(f64::from).collect();
        assert_eq!(quantile(&many, 0.99, 0.95).map(|bound| bound.high), Some(299.0));
        assert_eq!(quantile(&[], 0.5, 0.95), None);
    }

    #[test]
    fn a_ratio_with_an_exact_side_keeps_the_other_sides_bounds() {
        let seen = ratio(of(10.0, 8.0, 15.0), Interval::exact(5.0)).unwrap();
        assert!((seen.value - 2.0).abs() < 1e-12 && (seen.low - 1.6).abs() < 1e-12 && (seen.high - 3.0).abs() < 1e-12);
        let turned = ratio(Interval::exact(5.0), of(10.0, 8.0, 15.0)).unwrap();
        assert!((turned.low - 1.0 / 3.0).abs() < 1e-12 && (turned.high - 0.625).abs() < 1e-12);
        assert_eq!(ratio(of(1.0, 0.0, 2.0), Interval::exact(1.0)), None);
    }

    #[test]
    fn p_is_that_of_the_normal_law_for_symmetric_arms() {
        let z = score(0.95);
        let a = of(2.0, 2.0 * (-z * 0.1f64).exp(), 2.0 * (z * 0.1f64).exp());
        let p = p_value(a, Interval::exact(2.0 * (0.196f64).exp()), 1.0, 0.95).unwrap();
        assert!((p - 2.0 * probability(-1.96)).abs() < 1e-9, "{p}");
        assert_eq!(p_value(Interval::exact(1.0), Interval::exact(1.0), 1.0, 0.95), Some(1.0));
        assert_eq!(p_value(Interval::exact(1.0), Interval::exact(2.0), 1.0, 0.95), Some(0.0));
    }

    #[test]
    fn the_bounds_of_a_ratio_hold_as_often_as_they_say() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (mut over, mut under) = (0, 0);
        for _ in 0..500 {
            let (a, b) = (sample(&mut rng, 400, 1.3), sample(&mut rng, 200, 1.0));
            let bounds = ratio(quantile(&a, 0.9, 0.95).unwrap(), quantile(&b, 0.9, 0.95).unwrap()).unwrap();
            over += u32::from(bounds.low > 1.3);
            under += u32::from(bounds.high < 1.3);
        }
        // Nominally 25 each; the order statistics are somewhat on the safe side.
        assert!((3..=40).contains(&over) && (3..=40).contains(&under), "{over} {under}");
    }

    #[test]
    fn widening_moves_the_bounds_and_not_the_estimate() {
        assert_eq!(of(10.0, 8.0, 11.0).widened(2.0), of(10.0, 6.0, 12.0));
    }
}
