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
mod tests;
