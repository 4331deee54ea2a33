//! Estimates with their confidence intervals, and what two of them say about their ratio.

use crate::stats::quantile::nearest_rank;
use crate::stats::quantile_bound::allowed;
use crate::stats::student;

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

    /// The same estimate with every bound as many times as far away: for samples that are worth fewer than they are. On the
    /// logarithms where everything is above 0, so that it stays so and a ratio to others can be taken.
    pub fn widened(self, times: f64) -> Interval {
        let value = self.value;
        if self.low > 0.0 && value > 0.0 && self.high.is_finite() {
            let moved = |bound: f64| value * (bound / value).powf(times);
            return Interval { value, low: moved(self.low), high: moved(self.high) };
        }
        Interval { value, low: value - (value - self.low) * times, high: value + (self.high - value) * times }
    }
}

/// The quantile `p`, 0 < p < 1, of ascending values, between order statistics that bound it at confidence `level` each (Conover,
/// "Practical Nonparametric Statistics", 3rd edition, section 3.2). None where the values are too few for either bound.
pub fn quantile(sorted: &[f64], p: f64, level: f64) -> Option<Interval> {
    let n = sorted.len() as u64;
    // So many may lie above the upper bound, and so many below the lower one.
    let (over, under) = (allowed(n, 1.0, 1.0 - p, level)?, allowed(n, 1.0, p, level)?);
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
    let [down, up] = arms(a, b).map(|[own, other]| own.hypot(other));
    Some(Interval { value: a.value / b.value, low: (centre - down).exp(), high: (centre + up).exp() })
}

/// How far the logarithm of the ratio reaches down and up, by a and by b.
fn arms(a: Interval, b: Interval) -> [[f64; 2]; 2] {
    let down = [(a.value / a.low).ln(), (b.high / b.value).ln()];
    let up = [(a.high / a.value).ln(), (b.value / b.low).ln()];
    [down, up]
}

/// Two estimates whose bounds, at `level` each, are so many of their standard errors away as Student's t with their degrees of
/// `freedom` says: of a and of b, infinite for the normal law.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// One-sided confidence of each bound.
    pub level: f64,
    /// Degrees of freedom behind either estimate.
    pub freedom: [f64; 2],
}

impl Scale {
    /// Arms of a and of b as one standard error, with its degrees of freedom (Welch, "The generalization of 'Student's' problem when
    /// several different population variances are involved", Biometrika 34, 1947).
    fn joined(&self, arms: [f64; 2]) -> (f64, f64) {
        let [a, b] = self.freedom.map(|freedom| student::quantile(self.level, freedom));
        let errors = [arms[0] / a, arms[1] / b];
        let error = errors[0].hypot(errors[1]);
        let parts = (errors[0] / error).powi(4) / self.freedom[0] + (errors[1] / error).powi(4) / self.freedom[1];
        (error, if parts > 0.0 { 1.0 / parts } else { f64::INFINITY })
    }

    fn reach(&self, arms: [f64; 2]) -> f64 {
        let (error, freedom) = self.joined(arms);
        error * student::quantile(self.level, freedom)
    }

    /// The two-sided probability to be `off` by so much: 1 where it is 0, and else 0 where there are no arms.
    fn p(&self, off: f64, arms: [f64; 2]) -> f64 {
        let (error, freedom) = self.joined(arms);
        match () {
            () if off == 0.0 => 1.0,
            () if error > 0.0 => (2.0 * student::above(off.abs() / error, freedom)).min(1.0),
            () => 0.0,
        }
    }
}

/// The ratio `a / b` as [`ratio`] has it, and the two-sided probability of one at least so far from 1 if 1 were the truth: the arm
/// that reaches towards 1 is taken for so many standard errors. The probability is below 2 (1 − level) exactly where 1 lies outside the
/// bounds. None unless every bound is above 0.
pub fn change(a: Interval, b: Interval, scale: Scale) -> Option<(Interval, f64)> {
    let value = ratio(a, b)?.value;
    let (off, [down, up]) = (value.ln(), arms(a, b));
    let bounds = Interval { value, low: (off - scale.reach(down)).exp(), high: (off + scale.reach(up)).exp() };
    Some((bounds, scale.p(off, if off > 0.0 { down } else { up })))
}

/// The two-sided probability of the difference a − b, for an a of 0 beside a b above it: that has no logarithm.
pub fn p_of_difference(a: Interval, b: Interval, scale: Scale) -> f64 {
    let off = a.value - b.value;
    let arms = if off > 0.0 { [a.value - a.low, b.high - b.value] } else { [a.high - a.value, b.value - b.low] };
    scale.p(off, arms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::normal::{probability, score};
    use crate::stats::welch::Group;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

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

    const NORMAL: Scale = Scale { level: 0.95, freedom: [f64::INFINITY; 2] };

    #[test]
    fn p_is_that_of_the_normal_law_for_symmetric_arms() {
        let z = score(0.95);
        let a = of(2.0, 2.0 * (-z * 0.1f64).exp(), 2.0 * (z * 0.1f64).exp());
        let (_, p) = change(a, Interval::exact(2.0 * (0.196f64).exp()), NORMAL).unwrap();
        assert!((p - 2.0 * probability(-1.96)).abs() < 1e-9, "{p}");
        let exact = |b| change(Interval::exact(1.0), Interval::exact(b), NORMAL).map(|seen| seen.1);
        assert_eq!((exact(1.0), exact(2.0)), (Some(1.0), Some(0.0)));
    }

    #[test]
    fn few_degrees_of_freedom_have_the_tails_of_student() {
        // Arms of t(0.975; 4) = 2.776445 standard errors of 0.1; the difference is 0.4 = 2.828427 of √2 · 0.1, at 8 degrees.
        let own = |value: f64| of(value, value * (-0.2776445f64).exp(), value * 0.2776445f64.exp());
        let scale = Scale { level: 0.975, freedom: [4.0; 2] };
        let (seen, p) = change(own(0.4f64.exp()), own(1.0), scale).unwrap();
        // R: 2 * pt(-2.828427, 8) = 0.02219; qt(0.975, 8) = 2.306004.
        assert!((p - 0.02219).abs() < 2e-5, "{p}");
        assert!((seen.low.ln() - (0.4 - 2.306004 * 0.02f64.sqrt())).abs() < 1e-5, "{seen:?}");
    }

    #[test]
    fn a_fall_to_nothing_is_told_by_its_difference() {
        let none = of(0.0, 0.0, 0.0);
        assert_eq!(change(none, of(100.0, 95.0, 105.0), NORMAL), None);
        // 100 is twenty arms of 1.645 standard errors away.
        assert!(p_of_difference(none, of(100.0, 95.0, 105.0), NORMAL) < 1e-100);
        let near = p_of_difference(none, of(100.0, 100.0 - score(0.95) * 50.0, 200.0), NORMAL);
        assert!((near - 2.0 * probability(-2.0)).abs() < 1e-9, "{near}");
    }

    #[test]
    fn rounds_without_a_difference_raise_no_more_alarms_than_many_tests_allow() {
        // Five rounds a side, 40,000 pairs: at .05, and at what Holm leaves of it for the first of 13 and of 104 tests.
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let mut side = || {
            let values: Vec<f64> = (0..5).map(|_| 100.0 + Distribution::<f64>::sample(&StandardNormal, &mut rng)).collect();
            let group = Group::of(&values).unwrap();
            let arm = (group.ends(0.975).unwrap().1 - group.mean) / group.mean;
            of(group.mean, group.mean * (-arm).exp(), group.mean * arm.exp())
        };
        let scale = Scale { level: 0.975, freedom: [4.0; 2] };
        let p: Vec<f64> = (0..40_000).map(|_| change(side(), side(), scale).unwrap().1).collect();
        let alarms = [0.05, 0.05 / 13.0, 0.05 / 104.0].map(|alpha| p.iter().filter(|own| **own < alpha).count());
        // Nominally 2000, 154 and 19.
        assert!(alarms[0] <= 2100 && alarms[1] <= 185 && alarms[2] <= 30, "{alarms:?}");
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
        let seen = of(10.0, 8.0, 11.0).widened(2.0);
        assert!(seen.value == 10.0 && (seen.low - 6.4).abs() < 1e-12 && (seen.high - 12.1).abs() < 1e-12, "{seen:?}");
        assert!(of(10.0, 2.0, 30.0).widened(4.0).low > 0.0, "a ratio can still be taken");
        assert_eq!(of(0.0, -2.0, 1.0).widened(2.0), of(0.0, -4.0, 2.0));
    }
}
