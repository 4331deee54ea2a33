//! Correlation of the values of a run: the design effect (how many values carry the information of one independent
//! value) and the effective sample size.
//!
//! Gaps of one request are correlated, and so are requests that share a batch or a queue. Means and rates are ratios
//! of sums over units: means are sums over counts, throughputs are sums over time.

use crate::stats::distributions::{score, t_quantile};
use crate::stats::moments::mean;
use std::collections::BTreeMap;

/// One term of a ratio of sums: a request, or a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Its contribution to the numerator.
    pub amount: f64,
    /// Its contribution to the denominator.
    pub weight: f64,
}

/// Σ amount / Σ weight; zero without weight.
pub fn ratio<'a>(units: impl IntoIterator<Item = &'a Unit>) -> f64 {
    let (amount, weight) = units.into_iter().fold((0.0, 0.0), |sum, unit| {
        (sum.0 + unit.amount, sum.1 + unit.weight)
    });
    if weight > 0.0 { amount / weight } else { 0.0 }
}

/// Units of a planned level of the load from which on its ratio is known well enough to be removed, and the most
/// levels.
const PLANNED: usize = 20;
const MOST_LEVELS: usize = 8;

/// The units without what differs between the planned levels of the load, of which each unit has one: the amounts of
/// each level are moved so that its ratio is that of all. Both sums stay. What is left varies within the levels
/// (stratification: Cochran, "Sampling techniques", 3rd edition, section 5.3). Levels take degrees of freedom from
/// the batches of a variance, so what is left is × √((k − 1) ÷ (k − levels)) for k = 10 batches.
pub fn without_plan(units: Vec<Unit>, levels: &[u32]) -> Vec<Unit> {
    let Some(first) = levels.first().filter(|_| levels.len() == units.len()) else {
        return units;
    };
    if levels.iter().all(|level| level == first) {
        return units;
    }
    let mut of_levels: BTreeMap<u32, (usize, f64, f64)> = BTreeMap::new();
    for (unit, level) in units.iter().zip(levels) {
        let sum = of_levels.entry(*level).or_default();
        *sum = (sum.0 + 1, sum.1 + unit.amount, sum.2 + unit.weight);
    }
    let known: BTreeMap<u32, f64> = of_levels
        .into_iter()
        .filter(|(_, (count, _, weight))| *count >= PLANNED && *weight > 0.0)
        .map(|(level, (_, amount, weight))| (level, amount / weight))
        .collect();
    if !(2..=MOST_LEVELS).contains(&known.len()) {
        return units;
    }
    let batches = BATCHES[1] as f64;
    let wider = ((batches - 1.0) / (batches - known.len() as f64)).sqrt();
    // Of the levels that are moved, so that their sums stay.
    let moved = units
        .iter()
        .zip(levels)
        .filter(|(_, level)| known.contains_key(level));
    let common = ratio(moved.map(|(unit, _)| unit));
    let shift = |(unit, level): (Unit, &u32)| match known.get(level) {
        Some(own) => Unit {
            amount: common * unit.weight + wider * (unit.amount - own * unit.weight),
            ..unit
        },
        None => unit,
    };
    units.into_iter().zip(levels).map(shift).collect()
}

/// Numbers of batches for at least [`MANY`] units: many batches detect short correlations, few batches long ones.
/// Fewer units use the last one.
const BATCHES: [usize; 2] = [20, 10];
const MANY: usize = 200;
/// Numbers of batches where requests arrive in bursts: a batch is to be longer than the cycle of the bursts.
const BURST_BATCHES: [usize; 2] = [10, 5];
/// Number of units below which their dependence cannot be estimated.
const FEW: usize = 20;
/// Number of rounds from which on the variation between rounds is used too.
const ROUNDS: usize = 5;
/// The share of a round over which correlated values are too long for its estimates.
const LONG: usize = 10;
/// Number of rounds from which on each round is a batch.
const ROUND_BATCHES: usize = 10;

/// The dependence of the values of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dependence {
    estimates: [Estimate; 3],
    /// Values are correlated over at least a tenth of the run: the run is too short to estimate the dependence.
    pub long: bool,
}

/// Kish's design effect ("Survey sampling", 1965, section 8.2) by one estimate of the variance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    times: f64,
    /// Degrees of freedom of its groups; infinite without groups.
    freedom: f64,
}

impl Dependence {
    /// Independent values.
    pub const NONE: Dependence = Dependence {
        estimates: [Estimate {
            times: 1.0,
            freedom: f64::INFINITY,
        }; 3],
        long: false,
    };

    /// The larger of both, per estimate.
    pub fn or_greater(self, other: Dependence) -> Dependence {
        if other == Dependence::NONE {
            return self;
        }
        if self == Dependence::NONE {
            return other;
        }
        let mut estimates = self.estimates;
        for (estimate, other) in estimates.iter_mut().zip(other.estimates) {
            if other.times > estimate.times {
                *estimate = other;
            }
        }
        Dependence {
            estimates,
            long: self.long || other.long,
        }
    }

    /// The estimated design effect, at least 1.
    pub fn times(&self) -> f64 {
        self.estimates
            .iter()
            .fold(1.0, |most, own| own.times.max(most))
    }

    /// The design effect for a bound at confidence `level`, at least 1. A variance of few batches is itself
    /// uncertain, which the factor of Korn and Graubard (Survey Methodology 24, 1998) covers by Student's t.
    pub fn effect(&self, level: f64) -> f64 {
        let factor = |own: &Estimate| (t_quantile(level, own.freedom) / score(level)).powi(2);
        self.estimates
            .iter()
            .fold(1.0, |most, own| (own.times * factor(own)).max(most))
    }
}

/// The dependence of values for the share Σ amount ÷ Σ weight. A unit is a request: `amount` of its `weight` values
/// count towards the share. Units are in time order, and `rounds` has the round of each.
///
/// The design effect is the largest of several variance estimates ÷ the variance of as many independent values: by
/// requests, as a ratio over clusters by linearization (Cochran, "Sampling techniques", 3rd edition, section 3.12),
/// times the inflation by autocorrelation (Geyer, [`inflation`]); by 20 and by 10 batch means (Law, "Simulation
/// modeling and analysis", 5th edition, section 9.5.3); and by rounds if there are 5 or more. Neither batches nor
/// lags cross rounds.
pub fn dependence(units: &[Unit], rounds: &[u32]) -> Dependence {
    dependence_over_time(units, rounds, &[])
}

/// The dependence of values that arrived at `times`. Where they arrived in bursts, batches of equally many are short
/// beside the cycle of the bursts, so batches are equal parts of the time.
pub fn dependence_over_time(units: &[Unit], rounds: &[u32], times: &[f64]) -> Dependence {
    let (share, weight) = (
        ratio(units),
        units.iter().map(|unit| unit.weight).sum::<f64>(),
    );
    // A single request does not show how its gaps are correlated.
    if let [only] = units {
        let [_, b, c] = Dependence::NONE.estimates;
        return Dependence {
            estimates: [
                Estimate {
                    times: only.weight.max(1.0),
                    freedom: f64::INFINITY,
                },
                b,
                c,
            ],
            long: false,
        };
    }
    of_residuals(
        &residuals(units, share),
        (rounds, times),
        share * (1.0 - share) * weight,
        units.iter().all(|unit| unit.weight == 1.0),
    )
}

/// The dependence of flags, one per request of one round.
pub fn flag_dependence(flags: &[bool]) -> Dependence {
    let units: Vec<Unit> = flags
        .iter()
        .map(|flag| Unit {
            amount: f64::from(u8::from(*flag)),
            weight: 1.0,
        })
        .collect();
    dependence(&units, &[])
}

fn residuals(units: &[Unit], ratio: f64) -> Vec<f64> {
    units
        .iter()
        .map(|unit| unit.amount - ratio * unit.weight)
        .collect()
}

/// `single`: a unit is one value, so that its variance does not depend on clusters.
fn of_residuals(
    residuals: &[f64],
    (rounds, times): (&[u32], &[f64]),
    independent: f64,
    single: bool,
) -> Dependence {
    let n = residuals.len();
    if independent <= 0.0 || single && n < FEW {
        return Dependence::NONE;
    }
    let own = by_round(residuals, rounds);
    let times = by_round(times, rounds);
    let series: Vec<Vec<f64>> = own.iter().map(|round| round.to_vec()).collect();
    let neighbours = inflation(&series);
    let by_unit: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let whole = || {
        own.iter()
            .map(|round| round.iter().sum())
            .collect::<Vec<f64>>()
    };
    let (most, fewer) = match n {
        _ if own.len() >= ROUND_BATCHES => (whole(), Vec::new()),
        n if n < FEW => (batches(&own, &[], n), Vec::new()),
        _ if times.iter().any(|times| has_bursts(times)) => (
            batches(&own, &times, BURST_BATCHES[0]),
            batches(&own, &times, BURST_BATCHES[1]),
        ),
        n if n < MANY => (batches(&own, &[], BATCHES[1]), Vec::new()),
        _ => (
            batches(&own, &[], BATCHES[0]),
            batches(&own, &[], BATCHES[1]),
        ),
    };
    let by_round = if own.len() >= ROUNDS {
        whole()
    } else {
        Vec::new()
    };
    let estimate = |squares: f64, groups: &[f64]| Estimate {
        times: squares / independent,
        freedom: if groups.len() > 1 {
            groups.len() as f64 - 1.0
        } else {
            f64::INFINITY
        },
    };
    Dependence {
        estimates: [
            estimate(
                (by_unit * neighbours.times)
                    .max(squares(&most))
                    .max(independent),
                &most,
            ),
            estimate(squares(&fewer), &fewer),
            estimate(squares(&by_round), &by_round),
        ],
        long: is_long(&neighbours, &series, LONG),
    }
}

/// Whether values are correlated over a share of the longest series, and over at least 10 lags.
pub fn is_long(inflation: &Inflation, series: &[Vec<f64>], share: usize) -> bool {
    let longest = series.iter().map(Vec::len).max().unwrap_or_default();
    inflation.lag >= (longest / share).max(10)
}

/// The variance of a total from the sums of its k groups: k ÷ (k − 1) × Σ sum²; 0 for fewer than two.
pub(super) fn squares(sums: &[f64]) -> f64 {
    let k = sums.len() as f64;
    if k > 1.0 {
        sums.iter().map(|sum| sum * sum).sum::<f64>() * k / (k - 1.0)
    } else {
        0.0
    }
}

/// Splits the residuals by round; a single part if `rounds` is empty.
pub(super) fn by_round<'a>(residuals: &'a [f64], rounds: &[u32]) -> Vec<&'a [f64]> {
    if rounds.is_empty() {
        return vec![residuals];
    }
    let mut at = 0;
    let own = |round: &[u32]| {
        at += round.len();
        residuals.get(at - round.len()..at)
    };
    rounds.chunk_by(|a, b| a == b).filter_map(own).collect()
}

/// Slices of a round by whose counts bursts are detected, and the dispersion of the counts of bursts (variance ÷
/// mean). Random arrivals have more in one of 150 runs.
const SLICES: usize = 20;
const BURSTS: f64 = 2.0;

/// The slice of each time, of so many equal ones.
fn slices(times: &[f64], count: usize) -> impl Iterator<Item = usize> {
    let first = times.iter().copied().fold(f64::INFINITY, f64::min);
    let last = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let place = move |time: &f64| ((time - first) / (last - first) * count as f64) as usize;
    times.iter().map(move |time| place(time).min(count - 1))
}

fn has_bursts(times: &[f64]) -> bool {
    let mut counts = [0.0; SLICES];
    for slice in slices(times, SLICES) {
        counts
            .get_mut(slice)
            .into_iter()
            .for_each(|count| *count += 1.0);
    }
    let mean = times.len() as f64 / SLICES as f64;
    let squares: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
    // Requests that all arrive at once have no cycle.
    let takes_time = times.first() != times.last();
    takes_time && times.len() >= FEW && squares / (SLICES as f64 - 1.0) > BURSTS * mean
}

/// Sums over about `wanted` consecutive batches that do not cross rounds, of nearly equal size, or of equal time
/// where the values of the round arrived in bursts.
fn batches(rounds: &[&[f64]], times: &[&[f64]], wanted: usize) -> Vec<f64> {
    let n: usize = rounds.iter().map(|round| round.len()).sum();
    let cut = |(index, round): (usize, &&[f64])| {
        let (length, count) = (
            round.len(),
            ((wanted * round.len()) as f64 / n as f64).round().max(1.0) as usize,
        );
        let batch = |index: usize| {
            round
                .get(index * length / count..(index + 1) * length / count)
                .unwrap_or_default()
                .iter()
                .sum()
        };
        if let Some(times) = times.get(index).filter(|times| has_bursts(times)) {
            let mut sums = vec![0.0; count];
            for (slice, residual) in slices(times, count).zip(*round) {
                sums.get_mut(slice)
                    .into_iter()
                    .for_each(|sum| *sum += residual);
            }
            return sums;
        }
        (0..count).map(batch).collect::<Vec<f64>>()
    };
    rounds.iter().enumerate().flat_map(cut).collect()
}

/// Maximum number of values for the autocovariance; more values are averaged in consecutive groups first.
const MOST: usize = 8192;

/// The effective sample size of all values for their mean: n · variance ÷ long-run variance. The latter by the
/// initial monotone sequence of Geyer, "Practical Markov chain Monte Carlo", Statistical Science 7 (1992), section
/// 3.3: twice the sum of the autocovariances, in pairs of lags, as long as the pairs are positive, each at most the
/// previous one.
///
/// Series are in time order, with separate means and a common autocovariance. The result is between 1 and n; negative
/// correlation yields n, as do equal values.
pub fn effective(series: &[Vec<f64>]) -> f64 {
    let n = series.iter().map(Vec::len).sum::<usize>() as f64;
    if n > 0.0 {
        n / inflation(series).times
    } else {
        0.0
    }
}

/// The inflation of the variance of a mean by autocorrelation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inflation {
    /// The variance relative to that of as many independent values, at least 1.
    pub times: f64,
    /// The last lag with a positive correlation.
    pub lag: usize,
}

/// The inflation of the variance of the mean of all values; see [`effective`].
pub fn inflation(series: &[Vec<f64>]) -> Inflation {
    let n = series.iter().map(Vec::len).sum::<usize>();
    let freedom = n as f64 - series.iter().filter(|own| !own.is_empty()).count() as f64;
    let variance = around(series)
        .iter()
        .flatten()
        .map(|off| off * off)
        .sum::<f64>()
        / freedom;
    let size = n.div_ceil(MOST).max(1);
    let means: Vec<Vec<f64>> = series
        .iter()
        .map(|own| own.chunks_exact(size).filter_map(mean).collect())
        .collect();
    let (long_run, lag) = long_run(&around(&means));
    let known = variance > 0.0 && long_run > 0.0;
    let times = if known {
        (long_run * size as f64 / variance).clamp(1.0, n as f64)
    } else {
        1.0
    };
    Inflation {
        times,
        lag: lag * size,
    }
}

/// Deviations of each series from its mean.
fn around(series: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let off = |own: &Vec<f64>| {
        mean(own).map_or_else(Vec::new, |middle| {
            own.iter().map(|value| value - middle).collect()
        })
    };
    series.iter().map(off).collect()
}

/// The long-run variance, and the last lag used.
///
/// Subtracting the mean of each of r series with n values in total reduces each autocovariance by r V ÷ n, with V the
/// long-run variance. Over all lags from −l to l that is (2 l + 1) r ÷ n of V, so the sum is divided by the rest, at
/// least one half.
fn long_run(off: &[Vec<f64>]) -> (f64, usize) {
    let n = off.iter().map(Vec::len).sum::<usize>() as f64;
    let product = |own: &Vec<f64>, lag: usize| {
        own.iter()
            .zip(own.iter().skip(lag))
            .map(|(a, b)| a * b)
            .sum::<f64>()
    };
    let at = |lag: usize| off.iter().map(|own| product(own, lag)).sum::<f64>() / n;
    let longest = off.iter().map(Vec::len).max().unwrap_or_default();
    let mut sum = 0.0;
    let mut before = f64::INFINITY;
    let mut last = 0;
    for lag in (0..longest / 2).step_by(2) {
        let pair = at(lag) + at(lag + 1);
        if pair <= 0.0 {
            break;
        }
        before = pair.min(before);
        sum += before;
        last = lag + 1;
    }
    let series = off.iter().filter(|own| !own.is_empty()).count() as f64;
    let left = (1.0 - (2 * last + 1) as f64 * series / n).max(0.5);
    // The first pair includes the variance (lag 0), which must not be doubled.
    ((2.0 * sum - at(0)) / left, last)
}

#[cfg(test)]
mod tests;
