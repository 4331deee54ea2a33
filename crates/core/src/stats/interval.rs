//! Confidence intervals: of one estimate, of the ratio of two, and of one compared with a multiple of another.
//!
//! Both sides of a comparison are uncertain. If all values are above 0, the ratio is bounded on the logarithms
//! ([`ratio`]). For shares and values that may be 0, the difference a − f·b is bounded by the same method on the
//! plain scale, because a ratio with zeros has no bound (Zou and Donner, Statistics in Medicine 27, 2008; for shares,
//! Newcombe, "Interval estimation for the difference between independent proportions", Statistics in Medicine 17,
//! 1998).

use crate::stats::distributions::{t_above, t_quantile};
use crate::stats::quantile::{Method, quantile as nearest};
use crate::stats::quantile_bound::allowed;

/// An estimate with two one-sided bounds at the same confidence.
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
        Interval {
            value,
            low: value,
            high: value,
        }
    }

    /// Widens both bounds by a factor, for correlated samples. On the logarithms if all values are above 0, so that
    /// they remain so and ratios are possible.
    pub fn widened(self, times: f64) -> Interval {
        let value = self.value;
        if self.low > 0.0 && value > 0.0 && self.high.is_finite() {
            let moved = |bound: f64| value * (bound / value).powf(times);
            return Interval {
                value,
                low: moved(self.low),
                high: moved(self.high),
            };
        }
        Interval {
            value,
            low: value - (value - self.low) * times,
            high: value + (self.high - value) * times,
        }
    }
}

/// The quantile `p`, 0 < p < 1, of ascending values, with order statistics as bounds at confidence `level` each
/// (Conover, "Practical Nonparametric Statistics", 3rd edition, section 3.2). None if there are too few values for
/// either bound.
pub fn quantile(sorted: &[f64], p: f64, level: f64) -> Option<Interval> {
    let n = sorted.len() as u64;
    // Number of values that may lie above the upper bound, and below the lower one.
    let (over, under) = (allowed(n, 1.0, 1.0 - p, level)?, allowed(n, 1.0, p, level)?);
    let at = |index: u64| sorted.get(usize::try_from(index).ok()?).copied();
    Some(Interval {
        value: nearest(sorted, p, Method::NearestRank)?,
        low: at(under)?,
        high: at(n.checked_sub(over + 1)?)?,
    })
}

/// How two estimates depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They are of separate measurements: their uncertainties add up as variances.
    Independent,
    /// They are of the same measurement, with an unknown correlation: their uncertainties add up as they are. That is
    /// the largest possible sum, since the standard error of a difference is at most the sum of the standard errors
    /// (correlation −1).
    Unknown,
}

impl Relation {
    fn add(self, a: f64, b: f64) -> f64 {
        match self {
            Relation::Independent => a.hypot(b),
            Relation::Unknown => a + b,
        }
    }

    /// The part of the uncertainties of a and b that decreases with more samples of a, and the rest: a longer
    /// measurement has more samples of both.
    fn split(self, a: f64, b: f64) -> (f64, f64) {
        match self {
            Relation::Independent => (a, b),
            Relation::Unknown => (a + b, 0.0),
        }
    }
}

/// The ratio `a / b` of two independent estimates with bounds at their confidence: the method of variance estimates
/// recovery (MOVER) on the logarithms, which preserves skewed intervals (Zou and Donner, "Construction of confidence
/// limits about effect measures: a general approach", Statistics in Medicine 27, 2008). None unless every bound is
/// above 0.
pub fn ratio(a: Interval, b: Interval) -> Option<Interval> {
    related_ratio(a, b, Relation::Independent)
}

fn related_ratio(a: Interval, b: Interval, relation: Relation) -> Option<Interval> {
    let positive = [a.value, a.low, a.high, b.value, b.low, b.high]
        .iter()
        .all(|&value| value > 0.0 && value.is_finite());
    if !positive {
        return None;
    }
    let center = (a.value / b.value).ln();
    let [down, up] = arms(a, b).map(|[own, other]| relation.add(own, other));
    Some(Interval {
        value: a.value / b.value,
        low: (center - down).exp(),
        high: (center + up).exp(),
    })
}

/// Distances of the lower and the upper bound of the log ratio from its value, as caused by a and by b.
fn arms(a: Interval, b: Interval) -> [[f64; 2]; 2] {
    let down = [(a.value / a.low).ln(), (b.high / b.value).ln()];
    let up = [(a.high / a.value).ln(), (b.value / b.low).ln()];
    [down, up]
}

/// How the bounds of two estimates a and b relate to standard errors: by Student's t at `level`, with the degrees of
/// `freedom` of a and of b, infinite for the normal distribution.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// One-sided confidence of each bound.
    pub level: f64,
    /// Degrees of freedom of both estimates.
    pub freedom: [f64; 2],
}

impl Scale {
    /// Combines the bound distances of a and b into one standard error with its degrees of freedom (Welch, "The
    /// generalization of 'Student's' problem when several different population variances are involved", Biometrika
    /// 34, 1947).
    fn joined(&self, arms: [f64; 2]) -> (f64, f64) {
        let [a, b] = self.freedom.map(|freedom| t_quantile(self.level, freedom));
        let errors = [arms[0] / a, arms[1] / b];
        let error = errors[0].hypot(errors[1]);
        let parts = (errors[0] / error).powi(4) / self.freedom[0]
            + (errors[1] / error).powi(4) / self.freedom[1];
        (
            error,
            if parts > 0.0 {
                1.0 / parts
            } else {
                f64::INFINITY
            },
        )
    }

    fn reach(&self, arms: [f64; 2]) -> f64 {
        let (error, freedom) = self.joined(arms);
        error * t_quantile(self.level, freedom)
    }

    /// The two-sided p-value of a deviation `off`: 1 if it is 0; otherwise 0 if the standard error is 0.
    fn p(&self, off: f64, arms: [f64; 2]) -> f64 {
        let (error, freedom) = self.joined(arms);
        match () {
            () if off == 0.0 => 1.0,
            () if error > 0.0 => (2.0 * t_above(off.abs() / error, freedom)).min(1.0),
            () => 0.0,
        }
    }
}

/// The ratio `a / b` as in [`ratio`], and the two-sided p-value of the hypothesis that it is 1, with the standard
/// error from the bound towards 1. The p-value is below 2 (1 − level) exactly if 1 lies outside the bounds. None
/// unless every bound is above 0.
pub fn change(a: Interval, b: Interval, scale: Scale) -> Option<(Interval, f64)> {
    let value = ratio(a, b)?.value;
    let off = value.ln();
    let [down, up] = arms(a, b);
    let bounds = Interval {
        value,
        low: (off - scale.reach(down)).exp(),
        high: (off + scale.reach(up)).exp(),
    };
    Some((bounds, scale.p(off, if off > 0.0 { down } else { up })))
}

/// The two-sided p-value of the difference a − b, for a = 0, which has no logarithm.
pub fn difference_p_value(a: Interval, b: Interval, scale: Scale) -> f64 {
    let off = a.value - b.value;
    let arms = if off > 0.0 {
        [a.value - a.low, b.high - b.value]
    } else {
        [a.high - a.value, b.value - b.low]
    };
    scale.p(off, arms)
}

/// An estimate `a` compared with a multiple of another: the bounds include the uncertainty of both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// `a` with bounds that can be compared with `limit` as if it were exact.
    pub interval: Interval,
    /// The multiple.
    pub limit: f64,
    /// On one scale: distance of `a` from `limit`, and the uncertainty towards it of `a` and of the other estimate.
    towards: (f64, f64, f64),
}

/// Compares `a` with `factor` times `b`; bounds are one-sided at the same confidence. `share`: both are shares.
pub fn compare_with_multiple(
    a: Interval,
    b: Interval,
    factor: f64,
    share: bool,
    relation: Relation,
) -> Compared {
    let limit = factor * b.value;
    let under = a.value <= limit;
    if let Some(found) = related_ratio(a, b, relation).filter(|_| !share) {
        let seen = Interval {
            value: a.value,
            low: found.low * b.value,
            high: found.high * b.value,
        };
        let (own, other) = if under {
            (a.high / a.value, b.value / b.low)
        } else {
            (a.value / a.low, b.high / b.value)
        };
        let (own, other) = relation.split(own.ln(), other.ln());
        return Compared {
            interval: seen,
            limit,
            towards: ((a.value / limit).ln().abs(), own, other),
        };
    }
    if a.value.is_infinite() {
        return Compared {
            interval: among_failed(a, b),
            limit,
            towards: (0.0, 0.0, 0.0),
        };
    }
    let down = relation.add(a.value - a.low, factor * (b.high - b.value));
    let up = relation.add(a.high - a.value, factor * (b.value - b.low));
    let seen = Interval {
        value: a.value,
        low: a.value - down,
        high: a.value + up,
    };
    let (own, other) = if under {
        (a.high - a.value, b.value - b.low)
    } else {
        (a.value - a.low, b.high - b.value)
    };
    let (own, other) = relation.split(own, factor * other);
    Compared {
        interval: seen,
        limit,
        towards: ((a.value - limit).abs(), own, other),
    }
}

/// Compares a single new value `a` with `factor` times `b`, the mean of several runs. `reach` is the half-width of
/// the prediction interval on the logarithms. Both values are above 0.
pub fn predicted(a: f64, b: f64, reach: f64, factor: f64) -> Compared {
    let limit = factor * b;
    let seen = Interval {
        value: a,
        low: a * (-reach).exp(),
        high: a * reach.exp(),
    };
    Compared {
        interval: seen,
        limit,
        towards: ((a / limit).ln().abs(), 0.0, reach),
    }
}

/// For an infinite estimate (a quantile among failed requests), only one bound exists, and only if the other estimate
/// has one. The bound distances add up, because one of them is 0.
fn among_failed(a: Interval, b: Interval) -> Interval {
    let known = b.value > 0.0 && b.value.is_finite();
    if a.value > 0.0 {
        let low = if known && b.high.is_finite() {
            a.low.max(0.0) * b.value / b.high
        } else {
            0.0
        };
        return Interval {
            value: a.value,
            low,
            high: a.value,
        };
    }
    let high = if known && b.low > 0.0 {
        a.high * b.value / b.low
    } else {
        f64::INFINITY
    };
    Interval {
        value: a.value,
        low: a.value,
        high,
    }
}

impl Compared {
    /// Widens the bounds to at least `reach`, on the plain scale.
    pub fn widen_to(self, reach: f64) -> Compared {
        let Interval { value, low, high } = self.interval;
        let (away, own, other) = self.towards;
        let seen = Interval {
            value,
            low: low.min(value - reach),
            high: high.max(value + reach),
        };
        Compared {
            interval: seen,
            towards: (away, own, other.max(reach)),
            ..self
        }
    }

    /// Total number of samples of `a` (which has `n`) for a decision. The uncertainty of `a` decreases with √n, that
    /// of the other estimate stays. None if no number suffices.
    pub fn needed(&self, n: u64) -> Option<u64> {
        let (away, own, other) = self.towards;
        let remaining = away * away - other * other;
        let times = own * own / remaining;
        (remaining > 0.0 && times.is_finite())
            .then(|| ((n as f64 * times).ceil() as u64).max(n + 1))
    }

    /// Whether the uncertainty of the other estimate alone prevents a decision.
    pub fn is_undecidable(&self) -> bool {
        let (away, _, other) = self.towards;
        other >= away
    }
}

/// The order statistics that bound the quantile `p` of ascending values at confidence `level` each. `effect` is the
/// design effect. None for a bound with too few values.
pub fn quantile_ends(
    sorted: &[f64],
    p: f64,
    level: f64,
    effect: f64,
) -> (Option<f64>, Option<f64>) {
    let n = sorted.len();
    let low =
        allowed(n as u64, effect, p, level).and_then(|under| sorted.get(under as usize).copied());
    let above = allowed(n as u64, effect, 1.0 - p, level);
    (
        low,
        above.and_then(|over| sorted.get(n.checked_sub(over as usize + 1)?).copied()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::comparison::Group;
    use crate::stats::distributions::{probability, score};
    use crate::stats::share::{lower, upper};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    fn of(value: f64, low: f64, high: f64) -> Interval {
        Interval { value, low, high }
    }

    fn compare_with_multiple(a: Interval, b: Interval, factor: f64, share: bool) -> Compared {
        super::compare_with_multiple(a, b, factor, share, Relation::Independent)
    }

    #[test]
    fn uncertainties_of_one_measurement_add_up_and_both_decrease_with_its_length() {
        let a = of(100.0, 80.0, 125.0);
        let b = of(200.0, 160.0, 250.0);
        let seen = super::compare_with_multiple(a, b, 0.6, false, Relation::Unknown);
        assert!(
            (seen.interval.high - 100.0 * 1.25 * 1.25).abs() < 1e-9,
            "{seen:?}"
        );
        assert!(
            (seen.interval.low - 100.0 / 1.25 / 1.25).abs() < 1e-9,
            "{seen:?}"
        );
        // (2 ln 1.25 / ln 1.2)² = 5.99
        assert_eq!(
            (seen.needed(100), seen.is_undecidable()),
            (Some(600), false)
        );
        let shares = super::compare_with_multiple(
            of(0.10, 0.08, 0.13),
            of(0.20, 0.15, 0.26),
            1.0,
            true,
            Relation::Unknown,
        );
        assert!((shares.interval.high - (0.10 + 0.03 + 0.05)).abs() < 1e-12);
    }

    fn sample(rng: &mut ChaCha8Rng, n: usize, scale: f64) -> Vec<f64> {
        let mut values: Vec<f64> = (0..n)
            .map(|_| scale * (0.5 - (1.0 - rng.random::<f64>()).ln()))
            .collect();
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
        assert_eq!(
            quantile(&many, 0.99, 0.95).map(|bound| bound.high),
            Some(299.0)
        );
        assert_eq!(quantile(&[], 0.5, 0.95), None);
    }

    #[test]
    fn a_ratio_with_an_exact_side_keeps_the_other_sides_bounds() {
        let seen = ratio(of(10.0, 8.0, 15.0), Interval::exact(5.0)).unwrap();
        assert!(
            (seen.value - 2.0).abs() < 1e-12
                && (seen.low - 1.6).abs() < 1e-12
                && (seen.high - 3.0).abs() < 1e-12
        );
        let turned = ratio(Interval::exact(5.0), of(10.0, 8.0, 15.0)).unwrap();
        assert!((turned.low - 1.0 / 3.0).abs() < 1e-12 && (turned.high - 0.625).abs() < 1e-12);
        assert_eq!(ratio(of(1.0, 0.0, 2.0), Interval::exact(1.0)), None);
    }

    const NORMAL: Scale = Scale {
        level: 0.95,
        freedom: [f64::INFINITY; 2],
    };

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
        // Arms of t(0.975; 4) = 2.776445 standard errors of 0.1; the difference is 0.4 = 2.828427 of √2 · 0.1, at 8
        // degrees.
        let own = |value: f64| {
            of(
                value,
                value * (-0.2776445f64).exp(),
                value * 0.2776445f64.exp(),
            )
        };
        let scale = Scale {
            level: 0.975,
            freedom: [4.0; 2],
        };
        let (seen, p) = change(own(0.4f64.exp()), own(1.0), scale).unwrap();
        // R: 2 * pt(-2.828427, 8) = 0.02219; qt(0.975, 8) = 2.306004.
        assert!((p - 0.02219).abs() < 2e-5, "{p}");
        assert!(
            (seen.low.ln() - (0.4 - 2.306004 * 0.02f64.sqrt())).abs() < 1e-5,
            "{seen:?}"
        );
    }

    #[test]
    fn a_change_to_zero_is_tested_by_the_difference() {
        let none = of(0.0, 0.0, 0.0);
        assert_eq!(change(none, of(100.0, 95.0, 105.0), NORMAL), None);
        // 100 is twenty arms of 1.645 standard errors away.
        assert!(difference_p_value(none, of(100.0, 95.0, 105.0), NORMAL) < 1e-100);
        let near = difference_p_value(none, of(100.0, 100.0 - score(0.95) * 50.0, 200.0), NORMAL);
        assert!((near - 2.0 * probability(-2.0)).abs() < 1e-9, "{near}");
    }

    #[test]
    fn rounds_without_a_difference_raise_no_more_alarms_than_many_tests_allow() {
        // Five rounds a side, 40,000 pairs: at .05, and at what Holm leaves of it for the first of 13 and of 104 tests.
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let mut side = || {
            let values: Vec<f64> = (0..5)
                .map(|_| 100.0 + Distribution::<f64>::sample(&StandardNormal, &mut rng))
                .collect();
            let group = Group::from_values(&values).unwrap();
            let arm = (group.ends(0.975).unwrap().1 - group.mean) / group.mean;
            of(
                group.mean,
                group.mean * (-arm).exp(),
                group.mean * arm.exp(),
            )
        };
        let scale = Scale {
            level: 0.975,
            freedom: [4.0; 2],
        };
        let p: Vec<f64> = (0..40_000)
            .map(|_| change(side(), side(), scale).unwrap().1)
            .collect();
        let alarms = [0.05, 0.05 / 13.0, 0.05 / 104.0]
            .map(|alpha| p.iter().filter(|own| **own < alpha).count());
        // Nominally 2000, 154 and 19.
        assert!(
            alarms[0] <= 2100 && alarms[1] <= 185 && alarms[2] <= 30,
            "{alarms:?}"
        );
    }

    #[test]
    fn the_bounds_of_a_ratio_hold_as_often_as_they_say() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (mut over, mut under) = (0, 0);
        for _ in 0..500 {
            let (a, b) = (sample(&mut rng, 400, 1.3), sample(&mut rng, 200, 1.0));
            let bounds = ratio(
                quantile(&a, 0.9, 0.95).unwrap(),
                quantile(&b, 0.9, 0.95).unwrap(),
            )
            .unwrap();
            over += u32::from(bounds.low > 1.3);
            under += u32::from(bounds.high < 1.3);
        }
        // Nominally 25 each; the order statistics are somewhat on the safe side.
        assert!(
            (3..=40).contains(&over) && (3..=40).contains(&under),
            "{over} {under}"
        );
    }

    #[test]
    fn widening_moves_the_bounds_and_not_the_estimate() {
        let seen = of(10.0, 8.0, 11.0).widened(2.0);
        assert!(
            seen.value == 10.0
                && (seen.low - 6.4).abs() < 1e-12
                && (seen.high - 12.1).abs() < 1e-12,
            "{seen:?}"
        );
        assert!(
            of(10.0, 2.0, 30.0).widened(4.0).low > 0.0,
            "a ratio can still be taken"
        );
        assert_eq!(of(0.0, -2.0, 1.0).widened(2.0), of(0.0, -4.0, 2.0));
    }

    fn between(value: f64, low: f64, high: f64) -> Interval {
        Interval { value, low, high }
    }

    fn share(hits: u64, n: u64) -> Interval {
        between(
            hits as f64 / n as f64,
            lower(hits as f64, n as f64, 0.95),
            upper(hits as f64, n as f64, 0.95),
        )
    }

    #[test]
    fn positive_figures_are_compared_by_their_ratio() {
        let seen = compare_with_multiple(
            between(110.0, 100.0, 121.0),
            Interval::exact(100.0),
            1.1,
            false,
        );
        assert!(
            (seen.interval.low - 100.0).abs() < 1e-9
                && (seen.interval.high - 121.0).abs() < 1e-9
                && seen.limit == 110.00000000000001
        );
        let both = compare_with_multiple(
            between(100.0, 90.0, 110.0),
            between(100.0, 90.0, 110.0),
            1.5,
            false,
        );
        // ln(1.1) and ln(100/90), square and add.
        let up = (1.1f64.ln().hypot((100.0f64 / 90.0).ln())).exp() * 100.0;
        assert!((both.interval.high - up).abs() < 1e-9, "{both:?}");
    }

    #[test]
    fn zeros_have_a_difference_where_they_have_no_ratio() {
        let none = compare_with_multiple(share(0, 1000), share(0, 1000), 1.1, true);
        assert!(
            none.limit == 0.0 && none.interval.high > 0.0 && none.interval.low <= 0.0,
            "no errors in both prove no ratio"
        );
        let perfect = compare_with_multiple(share(640, 640), share(640, 640), 0.98, true);
        assert!(perfect.interval.low > perfect.limit, "{perfect:?}");
        let broken = compare_with_multiple(share(60, 640), share(0, 640), 1.1, true);
        assert!(broken.interval.low > broken.limit);
    }

    #[test]
    fn missing_bounds_decide_nothing_on_their_side() {
        let few = compare_with_multiple(
            between(5.0, 0.0, f64::INFINITY),
            between(100.0, 0.0, f64::INFINITY),
            1.1,
            false,
        );
        assert_eq!(
            (few.interval.low, few.interval.high),
            (f64::NEG_INFINITY, f64::INFINITY)
        );
        let lost = compare_with_multiple(
            between(f64::INFINITY, f64::INFINITY, f64::INFINITY),
            Interval::exact(5.0),
            1.1,
            false,
        );
        assert!(lost.interval.low > lost.limit);
        let open = compare_with_multiple(
            between(f64::INFINITY, 4.0, f64::INFINITY),
            Interval::exact(5.0),
            1.1,
            false,
        );
        assert!(open.interval.low < open.limit);
    }

    #[test]
    fn a_value_among_the_failed_is_held_against_what_is_known_of_the_other_side() {
        let lost = |low| between(f64::INFINITY, low, f64::INFINITY);
        let low = |b| {
            compare_with_multiple(lost(120.0), b, 1.1, false)
                .interval
                .low
        };
        assert_eq!(low(Interval::exact(100.0)), 120.0, "above 110");
        assert_eq!(
            (
                low(between(100.0, 80.0, 125.0)),
                low(between(100.0, 80.0, f64::INFINITY))
            ),
            (96.0, 0.0),
            "the base may be 125, or more"
        );
        assert_eq!(
            compare_with_multiple(
                lost(f64::INFINITY),
                between(100.0, 0.0, f64::INFINITY),
                1.1,
                false
            )
            .interval
            .low,
            0.0
        );
        let floor = |b| {
            compare_with_multiple(
                between(f64::NEG_INFINITY, f64::NEG_INFINITY, 80.0),
                b,
                0.9,
                false,
            )
            .interval
            .high
        };
        assert_eq!(
            (
                floor(between(100.0, 80.0, 125.0)),
                floor(between(100.0, 0.0, 125.0))
            ),
            (100.0, f64::INFINITY)
        );
    }

    #[test]
    fn more_samples_reduce_only_the_uncertainty_of_a() {
        // Exact base: the own arm of 20 % must come under ln(1.1): (ln 1.2 / ln 1.1)² = 3.66 times the samples.
        let alone = compare_with_multiple(
            between(100.0, 80.0, 120.0),
            Interval::exact(100.0),
            1.1,
            false,
        );
        assert_eq!(
            (alone.needed(100), alone.is_undecidable()),
            (Some(366), false)
        );
        let vague = compare_with_multiple(
            between(100.0, 80.0, 120.0),
            between(100.0, 80.0, 120.0),
            1.1,
            false,
        );
        assert_eq!((vague.needed(100), vague.is_undecidable()), (None, true));
    }

    #[test]
    fn an_equal_pair_is_called_worse_no_more_often_than_allowed() {
        // Shares of 3 % against shares of 3 %: `<= 1 * baseline` is exactly at the truth, the worst case for both
        // errors.
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut draw = |n: u64| {
            share(
                (0..n).filter(|_| rng.random::<f64>() < 0.03).count() as u64,
                n,
            )
        };
        let (mut over, mut under) = (0, 0);
        for _ in 0..400 {
            let seen = compare_with_multiple(draw(500), draw(400), 1.0, true);
            over += u32::from(seen.interval.low > seen.limit);
            under += u32::from(seen.interval.high < seen.limit);
        }
        // Nominally 20 each of 400; exact bounds are on the safe side.
        assert!(
            (1..=30).contains(&over) && (1..=30).contains(&under),
            "{over} {under}"
        );
    }

    #[test]
    fn a_quantile_has_the_ends_that_its_values_reach() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            quantile_ends(&values, 0.5, 0.95, 1.0),
            (Some(42.0), Some(59.0))
        );
        assert_eq!(
            quantile_ends(&values, 0.99, 0.95, 1.0).1,
            None,
            "299 are needed"
        );
        assert!(
            quantile_ends(&values, 0.99, 0.95, 1.0)
                .0
                .is_some_and(|low| low > 90.0)
        );
        // P[Binomial(20, 0.5) <= 5] = 0.021, <= 5.8 = 0.048, <= 6 = 0.058: 29 values at either end.
        assert_eq!(
            quantile_ends(&values, 0.5, 0.95, 5.0),
            (Some(30.0), Some(71.0))
        );
        assert_eq!(quantile_ends(&values, 0.5, 0.95, 25.0), (None, None));
    }
}
