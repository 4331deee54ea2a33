//! Random quantities of a scenario: lengths in tokens, and times in nanoseconds.
//!
//! One type serves both, so that the same words work wherever a scenario draws a value. Bounds truncate: values
//! follow the distribution on condition that they are within the bounds; no value is moved to a bound.

use crate::stage::six_digits;
use crate::stats::distributions::{density, probability, score};
use crate::units::Nanos;
use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, Exp1};
use statrs::distribution::{ContinuousCDF, Gamma};
use std::sync::Arc;

/// More tokens than any context has: a limit for lengths in scenarios.
pub const MAX_TOKENS: u64 = 10_000_000;

/// Minimum share of a distribution within its bounds: below it, the inverse of the distribution function loses its
/// digits.
const MIN_MASS: f64 = 1e-9;
/// Lengths up to this one are summed one by one for a mean; beyond it the rounding to whole tokens no longer changes
/// the mean.
const SUMMED_TOKENS: u32 = 1024;

/// A distribution of values in tokens or nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    family: Family,
    /// Bounds of values; only families with a density have any, the others are cut when they are built.
    min: f64,
    max: f64,
}

/// A family of distributions with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Family {
    /// Constant.
    Fixed(f64),
    /// Uniform over the integers from `low` to `high`, inclusive.
    Uniform {
        /// Minimum.
        low: f64,
        /// Maximum.
        high: f64,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        sd: f64,
    },
    /// Lognormal with this mean and standard deviation of the values (not of their logarithms).
    Lognormal {
        /// Mean of the values.
        mean: f64,
        /// Standard deviation of the values.
        sd: f64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// Gamma.
    Gamma {
        /// Mean.
        mean: f64,
        /// Standard deviation divided by the mean.
        cv: f64,
    },
    /// Pareto: P(X > x) = (low / x)^alpha.
    Pareto {
        /// Minimum (scale).
        low: f64,
        /// Tail index; the mean is infinite up to 1.
        alpha: f64,
    },
    /// One of these distributions, by weight.
    Mixture(Weighted<Distribution>),
    /// One of these ranges, by weight: the values of a file, or the bins of a histogram.
    Table(Weighted<Bin>),
}

/// A range of a table, uniform between its ends; a single value where both are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The unit of values, for texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Tokens, or another count.
    Tokens,
    /// Nanoseconds.
    Time,
}

/// Why there is no such distribution.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// No value is within the bounds.
    #[error("no value of the distribution is within its bounds")]
    Empty,
    /// The mean is infinite.
    #[error("the mean is infinite: `alpha` is {0}, and a finite mean needs more than 1")]
    InfiniteMean(f64),
    /// A parameter is not a number, or out of its range.
    #[error("the parameters are out of range")]
    Parameters,
}

/// Items with weights, in order. Copies share the items.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighted<T> {
    items: Arc<[T]>,
    /// Sums of the weights up to each item, divided by the total.
    cumulative: Arc<[f64]>,
}

impl<T> Weighted<T> {
    /// Items by weight; None without a weight above 0, or with one that is negative or not finite.
    pub fn new(rows: Vec<(f64, T)>) -> Option<Weighted<T>> {
        let valid = rows.iter().all(|(weight, _)| *weight >= 0.0);
        let total: f64 = rows.iter().map(|(weight, _)| weight).sum();
        if !valid || total <= 0.0 || !total.is_finite() {
            return None;
        }
        let used = || rows.iter().filter(|(weight, _)| *weight > 0.0);
        let cumulative = used().scan(0.0, |sum, (weight, _)| {
            *sum += weight / total;
            Some(*sum)
        });
        Some(Weighted {
            cumulative: cumulative.collect(),
            items: rows
                .into_iter()
                .filter(|(weight, _)| *weight > 0.0)
                .map(|(_, item)| item)
                .collect(),
        })
    }

    /// Draws an item.
    pub fn draw(&self, rng: &mut impl Rng) -> &T {
        let drawn = rng.random::<f64>();
        let index = self.cumulative.partition_point(|sum| *sum <= drawn);
        &self.items[index.min(self.items.len() - 1)]
    }

    /// The items with their shares.
    pub fn shares(&self) -> impl Iterator<Item = (f64, &T)> {
        let before = std::iter::once(&0.0).chain(self.cumulative.iter());
        self.cumulative
            .iter()
            .zip(before)
            .map(|(sum, before)| sum - before)
            .zip(self.items.iter())
    }

    /// The mean of a number over the items.
    fn mean(&self, number: impl Fn(&T) -> f64) -> f64 {
        self.shares()
            .map(|(share, item)| share * number(item))
            .sum()
    }
}

impl Distribution {
    /// The family on condition that its values are from `min` to `max`, inclusive.
    ///
    /// # Errors
    /// A parameter is out of its range, no value is within the bounds, or the mean is infinite.
    pub fn new(
        family: Family,
        min: Option<f64>,
        max: Option<f64>,
    ) -> Result<Distribution, DistributionError> {
        let distribution = Distribution::part(family, min, max)?;
        distribution.check_mean()?;
        Ok(distribution)
    }

    /// As [`Distribution::new`] for a part of a mixture: its mean may be infinite, since the mixture may have bounds.
    ///
    /// # Errors
    /// A parameter is out of its range, or no value is within the bounds.
    pub fn part(
        family: Family,
        min: Option<f64>,
        max: Option<f64>,
    ) -> Result<Distribution, DistributionError> {
        let min = min.unwrap_or(f64::NEG_INFINITY);
        let max = max.unwrap_or(f64::INFINITY);
        if !family.is_valid() {
            return Err(DistributionError::Parameters);
        }
        Ok(cut(family, min, max)?.0)
    }

    /// A constant.
    pub fn fixed(value: f64) -> Distribution {
        unbounded(Family::Fixed(value))
    }

    /// A constant time.
    pub fn time(span: Nanos) -> Distribution {
        Distribution::fixed(span.0 as f64)
    }

    /// Uniform over the integers from `low` to `high`, inclusive; `low` if it is above `high`.
    pub fn uniform(low: u64, high: u64) -> Distribution {
        unbounded(Family::Uniform {
            low: low as f64,
            high: high.max(low) as f64,
        })
    }

    /// The family with its parameters.
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// The minimum and maximum of values.
    pub fn range(&self) -> (f64, f64) {
        let hull = |ranges: &mut dyn Iterator<Item = (f64, f64)>| {
            ranges.fold((f64::INFINITY, f64::NEG_INFINITY), |all, range| {
                (all.0.min(range.0), all.1.max(range.1))
            })
        };
        match &self.family {
            Family::Fixed(value) => (*value, *value),
            Family::Uniform { low, high } => (*low, *high),
            Family::Normal { .. } => (self.min, self.max),
            Family::Lognormal { .. } | Family::Exponential { .. } | Family::Gamma { .. } => {
                (self.min.max(0.0), self.max)
            }
            Family::Pareto { low, .. } => (self.min.max(*low), self.max),
            Family::Mixture(parts) => hull(&mut parts.items.iter().map(Distribution::range)),
            Family::Table(bins) => hull(&mut bins.items.iter().map(|bin| (bin.low, bin.high))),
        }
    }

    /// Whether `min` or `max` cuts the family.
    fn is_cut(&self) -> bool {
        self.min > f64::NEG_INFINITY || self.max < f64::INFINITY
    }

    /// Draws a value, not rounded.
    pub fn sample(&self, rng: &mut impl Rng) -> f64 {
        match &self.family {
            Family::Fixed(value) => *value,
            Family::Uniform { low, high } => rng.random_range(*low as u64..=*high as u64) as f64,
            Family::Mixture(parts) => parts.draw(rng).sample(rng),
            Family::Table(bins) => {
                let bin = bins.draw(rng);
                bin.low + (bin.high - bin.low) * rng.random::<f64>()
            }
            family if self.is_cut() => self.sample_within(family, rng),
            Family::Normal { mean, sd } => {
                rand_distr::Normal::new(*mean, *sd).map_or(*mean, |normal| normal.sample(rng))
            }
            Family::Lognormal { mean, sd } => {
                let (log_mean, log_sd) = lognormal(*mean, *sd);
                rand_distr::LogNormal::new(log_mean, log_sd)
                    .map_or(*mean, |lognormal| lognormal.sample(rng))
            }
            Family::Exponential { mean } => {
                let times: f64 = Exp1.sample(rng);
                mean * times
            }
            Family::Gamma { mean, cv } => rand_distr::Gamma::new(cv.powi(-2), mean * cv * cv)
                .map_or(*mean, |gamma| gamma.sample(rng)),
            Family::Pareto { low, alpha } => {
                rand_distr::Pareto::new(*low, *alpha).map_or(*low, |pareto| pareto.sample(rng))
            }
        }
    }

    /// Inversion of the distribution function between the bounds (Devroye, "Non-uniform random variate generation",
    /// 1986, II.2.1). It works with P(X > x) in the upper half, where 1 - P(X <= x) would lose digits.
    fn sample_within(&self, family: &Family, rng: &mut impl Rng) -> f64 {
        let above = (family.survival(self.min), family.survival(self.max));
        let value = if above.0 < 0.5 {
            family.quantile_above(above.1 + (above.0 - above.1) * rng.random::<f64>())
        } else {
            let below = (family.below(self.min), family.below(self.max));
            family.quantile_below(below.0 + (below.1 - below.0) * rng.random::<f64>())
        };
        value.clamp(self.min, self.max)
    }

    /// Draws a length in whole tokens, at least 1.
    pub fn sample_length(&self, rng: &mut impl Rng) -> u64 {
        round_length(self.sample(rng))
    }

    /// The mean of lengths, as they are drawn: rounded, and at least 1.
    pub fn mean_length(&self) -> f64 {
        match &self.family {
            Family::Fixed(value) => round_length(*value) as f64,
            Family::Mixture(parts) => parts.mean(Distribution::mean_length),
            Family::Table(bins) => bins.mean(|bin| match bin.low == bin.high {
                true => round_length(bin.low) as f64,
                false => mean_rounded(|x| bin.survival(x), |x| bin.area(x)),
            }),
            _ => mean_rounded(|x| self.survival(x), |x| self.area(x)),
        }
    }

    /// The mean of times, as they are drawn: at least 0.
    pub fn mean_time(&self) -> f64 {
        match &self.family {
            Family::Mixture(parts) => parts.mean(Distribution::mean_time),
            Family::Table(bins) => bins.mean(|bin| (bin.low + bin.high) / 2.0),
            _ => self.area(0.0),
        }
    }

    /// P(X >= x), of a family with bounds.
    fn survival(&self, x: f64) -> f64 {
        if x <= self.min {
            return 1.0;
        }
        if x > self.max {
            return 0.0;
        }
        let beyond = self.family.survival(self.max);
        (self.family.survival(x) - beyond) / self.family.mass(self.min, self.max)
    }

    /// The integral of P(X >= t) from x on, which is E[max(X - x, 0)].
    fn area(&self, x: f64) -> f64 {
        if x >= self.max {
            return 0.0;
        }
        if x < self.min {
            return self.min - x + self.area(self.min);
        }
        let beyond = match self.max.is_finite() {
            true => (self.max - x) * self.family.survival(self.max),
            false => 0.0,
        };
        (self.family.area(x, self.max) - beyond) / self.family.mass(self.min, self.max)
    }

    /// Checks that the mean is finite.
    ///
    /// # Errors
    /// [`DistributionError::InfiniteMean`].
    pub fn check_mean(&self) -> Result<(), DistributionError> {
        match &self.family {
            Family::Pareto { alpha, .. } if *alpha <= 1.0 && self.max == f64::INFINITY => {
                Err(DistributionError::InfiniteMean(*alpha))
            }
            Family::Mixture(parts) => parts.items.iter().try_for_each(Distribution::check_mean),
            _ => Ok(()),
        }
    }

    /// The distribution in words, with its mean as drawn: `lognormal mean 500 sd 300, 10..2000 (mean 478)`.
    pub fn describe(&self, measure: Measure) -> String {
        let mean = match measure {
            Measure::Tokens => self.mean_length(),
            Measure::Time => self.mean_time(),
        };
        match self.family {
            Family::Fixed(_) => self.words(measure),
            _ => format!("{} (mean {})", self.words(measure), measure.text(mean)),
        }
    }

    fn words(&self, measure: Measure) -> String {
        let text = |value: f64| measure.text(value);
        let range = |(low, high): (f64, f64)| format!("{}..{}", text(low), text(high));
        let words = match &self.family {
            Family::Fixed(value) => return text(*value),
            Family::Uniform { low, high } => return format!("uniform {}", range((*low, *high))),
            Family::Normal { mean, sd } => format!("normal mean {} sd {}", text(*mean), text(*sd)),
            Family::Lognormal { mean, sd } => {
                format!("lognormal mean {} sd {}", text(*mean), text(*sd))
            }
            Family::Exponential { mean } => format!("exponential mean {}", text(*mean)),
            Family::Gamma { mean, cv } => {
                format!("gamma mean {} cv {}", text(*mean), six_digits(*cv))
            }
            Family::Pareto { low, alpha } => {
                format!("pareto from {} alpha {}", text(*low), six_digits(*alpha))
            }
            Family::Mixture(parts) => {
                let part = |(share, part): (f64, &Distribution)| {
                    format!("{}% {}", round_to(share * 100.0, 3), part.words(measure))
                };
                let parts: Vec<String> = parts.shares().map(part).collect();
                return format!("mixture of {}", parts.join(" and "));
            }
            Family::Table(bins) => {
                let kind = match bins.items.iter().all(|bin| bin.low == bin.high) {
                    true => "values",
                    false => "bins",
                };
                let count = bins.items.len();
                return format!("table of {count} {kind}, {}", range(self.range()));
            }
        };
        match (self.min.is_finite(), self.max.is_finite()) {
            (true, true) => format!("{words}, {}", range((self.min, self.max))),
            (true, false) => format!("{words}, at least {}", text(self.min)),
            (false, true) => format!("{words}, at most {}", text(self.max)),
            (false, false) => words,
        }
    }
}

/// Cuts a family to bounds. Returns also the share of the family that is within them.
fn cut(family: Family, min: f64, max: f64) -> Result<(Distribution, f64), DistributionError> {
    let mass = match &family {
        Family::Fixed(value) => f64::from(u8::from((min..=max).contains(value))),
        Family::Uniform { low, high } => {
            let (from, to) = (low.max(min.ceil()), high.min(max.floor()));
            let mass = (to - from + 1.0).max(0.0) / (high - low + 1.0);
            return within(
                unbounded(Family::Uniform {
                    low: from,
                    high: to,
                }),
                mass,
            );
        }
        Family::Normal { mean, sd: 0.0 } | Family::Lognormal { mean, sd: 0.0 }
            if min > f64::NEG_INFINITY || max < f64::INFINITY =>
        {
            return cut(Family::Fixed(*mean), min, max);
        }
        Family::Mixture(parts) => {
            let cut_part = |(share, part): (f64, &Distribution)| {
                let within = (part.min.max(min), part.max.min(max));
                let (kept, mass) = cut(part.family.clone(), within.0, within.1).ok()?;
                // The share is that of the part as it was, which may have had bounds already.
                let known = part.family.mass(part.min, part.max);
                Some((share * mass / known, kept))
            };
            return from_rows(parts.shares().filter_map(cut_part).collect(), |parts| {
                Family::Mixture(parts)
            });
        }
        Family::Table(bins) => {
            let cut_bin = |(share, bin): (f64, &Bin)| {
                let (low, high) = (bin.low.max(min), bin.high.min(max));
                let kept = match bin.low == bin.high {
                    true => 1.0,
                    false => (high - low) / (bin.high - bin.low),
                };
                (low <= high && kept > 0.0).then_some((share * kept, Bin { low, high }))
            };
            return from_rows(bins.shares().filter_map(cut_bin).collect(), Family::Table);
        }
        family => family.mass(min, max),
    };
    let distribution = match family {
        Family::Fixed(_) => unbounded(family),
        family => Distribution { family, min, max },
    };
    within(distribution, mass)
}

fn within(distribution: Distribution, mass: f64) -> Result<(Distribution, f64), DistributionError> {
    (mass >= MIN_MASS)
        .then_some((distribution, mass))
        .ok_or(DistributionError::Empty)
}

fn from_rows<T>(
    rows: Vec<(f64, T)>,
    family: impl FnOnce(Weighted<T>) -> Family,
) -> Result<(Distribution, f64), DistributionError> {
    let mass: f64 = rows.iter().map(|(share, _)| share).sum();
    let weighted = Weighted::new(rows).ok_or(DistributionError::Empty)?;
    within(unbounded(family(weighted)), mass)
}

fn unbounded(family: Family) -> Distribution {
    Distribution {
        family,
        min: f64::NEG_INFINITY,
        max: f64::INFINITY,
    }
}

impl Family {
    fn is_valid(&self) -> bool {
        let above = |value: f64, limit: f64| value > limit && value.is_finite();
        match self {
            Family::Fixed(value) => value.is_finite(),
            Family::Uniform { low, high } => *low >= 0.0 && low <= high && high.is_finite(),
            Family::Normal { mean, sd } => mean.is_finite() && *sd >= 0.0 && sd.is_finite(),
            Family::Lognormal { mean, sd } => above(*mean, 0.0) && *sd >= 0.0 && sd.is_finite(),
            Family::Exponential { mean } => above(*mean, 0.0),
            Family::Gamma { mean, cv } => above(*mean, 0.0) && above(*cv, 0.0),
            Family::Pareto { low, alpha } => above(*low, 0.0) && above(*alpha, 0.0),
            Family::Mixture(_) => true,
            Family::Table(bins) => bins
                .items
                .iter()
                .all(|bin| bin.low.is_finite() && bin.high.is_finite() && bin.low <= bin.high),
        }
    }

    /// P(min <= X <= max).
    fn mass(&self, min: f64, max: f64) -> f64 {
        if min > max {
            return 0.0;
        }
        if self.survival(min) < 0.5 {
            self.survival(min) - self.survival(max)
        } else {
            self.below(max) - self.below(min)
        }
    }

    /// P(X <= x) of a family with a density.
    fn below(&self, x: f64) -> f64 {
        match *self {
            Family::Normal { mean, sd } => normal_below(x, mean, sd),
            Family::Lognormal { mean, sd } if x > 0.0 => {
                let (log_mean, log_sd) = lognormal(mean, sd);
                normal_below(x.ln(), log_mean, log_sd)
            }
            Family::Exponential { mean } if x > 0.0 => -(-x / mean).exp_m1(),
            Family::Gamma { mean, cv } if x > 0.0 => match x.is_finite() {
                true => gamma(mean, cv).map_or(0.0, |gamma| gamma.cdf(x)),
                false => 1.0,
            },
            Family::Lognormal { .. } | Family::Exponential { .. } | Family::Gamma { .. } => 0.0,
            _ => 1.0 - self.survival(x),
        }
    }

    /// P(X > x); for a family without a density, P(X >= x).
    fn survival(&self, x: f64) -> f64 {
        match *self {
            Family::Fixed(value) => f64::from(u8::from(x <= value)),
            // The integers are the middles of unit intervals.
            Family::Uniform { low, high } => {
                ((high + 0.5 - x) / (high - low + 1.0)).clamp(0.0, 1.0)
            }
            Family::Normal { mean, sd } => normal_below(-x, -mean, sd),
            Family::Lognormal { mean, sd } if x > 0.0 => {
                let (log_mean, log_sd) = lognormal(mean, sd);
                normal_below(-x.ln(), -log_mean, log_sd)
            }
            Family::Exponential { mean } if x > 0.0 => (-x / mean).exp(),
            Family::Gamma { mean, cv } if x > 0.0 => match x.is_finite() {
                true => gamma(mean, cv).map_or(0.0, |gamma| gamma.sf(x)),
                false => 0.0,
            },
            Family::Pareto { low, alpha } if x > low => (low / x).powf(alpha),
            Family::Lognormal { .. }
            | Family::Exponential { .. }
            | Family::Gamma { .. }
            | Family::Pareto { .. } => 1.0,
            // These are cut when they are built.
            Family::Mixture(_) | Family::Table(_) => f64::from(u8::from(x == f64::NEG_INFINITY)),
        }
    }

    /// The value with P(X <= value) = `share`, of a family with a density.
    fn quantile_below(&self, share: f64) -> f64 {
        match *self {
            Family::Normal { mean, sd } => mean + sd * score(share),
            Family::Lognormal { mean, sd } => {
                let (log_mean, log_sd) = lognormal(mean, sd);
                (log_mean + log_sd * score(share)).exp()
            }
            Family::Exponential { mean } => -mean * (-share).ln_1p(),
            Family::Gamma { mean, cv } => {
                gamma(mean, cv).map_or(mean, |gamma| gamma.inverse_cdf(share))
            }
            _ => self.quantile_above(1.0 - share),
        }
    }

    /// The value with P(X > value) = `share`, of a family with a density.
    fn quantile_above(&self, share: f64) -> f64 {
        match *self {
            Family::Normal { mean, sd } => mean - sd * score(share),
            Family::Lognormal { mean, sd } => {
                let (log_mean, log_sd) = lognormal(mean, sd);
                (log_mean - log_sd * score(share)).exp()
            }
            Family::Exponential { mean } => -mean * share.ln(),
            Family::Pareto { low, alpha } => low * share.powf(-1.0 / alpha),
            _ => self.quantile_below(1.0 - share),
        }
    }

    /// The integral of P(X > t) from `from` to `to`.
    fn area(&self, from: f64, to: f64) -> f64 {
        match *self {
            Family::Pareto { low, alpha } => {
                let flat = (low.min(to) - from).max(0.0);
                let start = from.max(low);
                if to <= start {
                    return flat;
                }
                flat + if alpha == 1.0 {
                    low * (to / start).ln()
                } else {
                    low / (alpha - 1.0)
                        * ((low / start).powf(alpha - 1.0) - (low / to).powf(alpha - 1.0))
                }
            }
            _ => self.excess(from) - self.excess(to),
        }
    }

    /// E[max(X - x, 0)], the integral of P(X > t) from x on: the stop-loss transform of actuarial science (Klugman,
    /// Panjer and Willmot, "Loss Models", 4th ed., 2012, ch. 3 and appendix A).
    fn excess(&self, x: f64) -> f64 {
        if x == f64::INFINITY {
            return 0.0;
        }
        match *self {
            Family::Fixed(value) => (value - x).max(0.0),
            Family::Uniform { low, high } => {
                let (from, to) = (low - 0.5, high + 0.5);
                if x < from {
                    (from + to) / 2.0 - x
                } else {
                    (to - x).max(0.0).powi(2) / 2.0 / (to - from)
                }
            }
            Family::Normal { mean, sd: 0.0 } | Family::Lognormal { mean, sd: 0.0 } => {
                (mean - x).max(0.0)
            }
            Family::Normal { mean, sd } => {
                let z = (x - mean) / sd;
                sd * density(z) + (mean - x) * probability(-z)
            }
            Family::Lognormal { mean, .. }
            | Family::Exponential { mean }
            | Family::Gamma { mean, .. }
                if x <= 0.0 =>
            {
                mean - x
            }
            Family::Lognormal { mean, sd } => {
                let (log_mean, log_sd) = lognormal(mean, sd);
                let z = (log_mean - x.ln()) / log_sd;
                mean * probability(z + log_sd) - x * probability(z)
            }
            Family::Exponential { mean } => mean * (-x / mean).exp(),
            Family::Gamma { mean, cv } => {
                let shape = cv.powi(-2);
                let larger = Gamma::new(shape + 1.0, shape / mean).map_or(0.0, |gamma| gamma.sf(x));
                mean * larger - x * self.survival(x)
            }
            Family::Pareto { .. } => self.area(x, f64::INFINITY),
            Family::Mixture(_) | Family::Table(_) => 0.0,
        }
    }
}

impl Bin {
    fn survival(&self, x: f64) -> f64 {
        ((self.high - x) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn area(&self, x: f64) -> f64 {
        if x < self.low {
            (self.low + self.high) / 2.0 - x
        } else {
            (self.high - x).max(0.0).powi(2) / 2.0 / (self.high - self.low)
        }
    }
}

impl Measure {
    fn text(self, value: f64) -> String {
        match self {
            Measure::Tokens => round_to(value, 4),
            Measure::Time => {
                let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
                let unit = units.iter().find(|(size, _)| value >= *size);
                let (size, unit) = unit.copied().unwrap_or((1e9, "s"));
                format!("{}{unit}", round_to(value / size, 4))
            }
        }
    }
}

/// A number with at least this many significant digits; whole numbers keep all of their digits.
fn round_to(value: f64, digits: i32) -> String {
    if !value.is_finite() || value == 0.0 || value.fract() == 0.0 {
        return six_digits(value).to_string();
    }
    let step = 10f64.powi((digits - 1 - value.abs().log10().floor() as i32).max(0));
    six_digits((value * step).round() / step).to_string()
}

/// Rounds a length, to at least one token.
fn round_length(length: f64) -> u64 {
    length.round().max(1.0) as u64
}

/// The mean of max(1, round(X)): 1 + Σ P(X >= k + 1/2) over k >= 1, of which the terms beyond [`SUMMED_TOKENS`] are
/// the integral.
fn mean_rounded(survival: impl Fn(f64) -> f64, area: impl Fn(f64) -> f64) -> f64 {
    let summed: f64 = (1..SUMMED_TOKENS)
        .map(|length| survival(f64::from(length) + 0.5))
        .sum();
    1.0 + summed + area(f64::from(SUMMED_TOKENS))
}

fn normal_below(x: f64, mean: f64, sd: f64) -> f64 {
    if sd == 0.0 {
        return f64::from(u8::from(x >= mean));
    }
    probability((x - mean) / sd)
}

/// Mean and standard deviation of the logarithms, from the mean m and standard deviation s of the values: σ² = ln(1 +
/// s²/m²), µ = ln m − σ²/2 (Johnson, Kotz and Balakrishnan, "Continuous Univariate Distributions", vol. 1, ch. 14,
/// solved for µ and σ).
fn lognormal(mean: f64, sd: f64) -> (f64, f64) {
    let variance = (1.0 + (sd / mean).powi(2)).ln();
    (mean.ln() - variance / 2.0, variance.sqrt())
}

/// Shape 1/cv² and rate 1/(cv² mean).
fn gamma(mean: f64, cv: f64) -> Option<Gamma> {
    let shape = cv.powi(-2);
    Gamma::new(shape, shape / mean).ok()
}

#[cfg(test)]
mod tests;
