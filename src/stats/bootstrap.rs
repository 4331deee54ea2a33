//! A percentile bootstrap of a ratio of sums: means are sums over counts, throughputs sums over time.
//!
//! Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979); the percentiles are widened
//! for small samples as in Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69
//! (2015), section 4.1, since the plain ones of five rounds would cover far less than they claim.

use crate::model::seed::Seed;
use crate::stats::quantile::{nearest_rank, sort};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Draws in all: 2000 resamples of 10,000 units, fewer of more.
const DRAWS: usize = 20_000_000;
const RESAMPLES: (usize, usize) = (400, 2000);

/// What is drawn as one: a request, or a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// What it adds above the line.
    pub amount: f64,
    /// What it adds below the line.
    pub weight: f64,
}

/// Σ amount / Σ weight; zero without weight.
pub fn ratio<'a>(units: impl IntoIterator<Item = &'a Unit>) -> f64 {
    let (amount, weight) = units.into_iter().fold((0.0, 0.0), |sum, unit| (sum.0 + unit.amount, sum.1 + unit.weight));
    if weight > 0.0 { amount / weight } else { 0.0 }
}

/// The one-sided ends `(lower, upper)`, each at confidence `level`, of the ratio. Equal seeds give equal ends. None for
/// fewer units than are [`needed`].
pub fn ends(units: &[Unit], level: f64, seed: Seed) -> Option<(f64, f64)> {
    ends_at(units, &[level], seed).first().copied().flatten()
}

/// The same at several levels, from one set of resamples.
pub fn ends_at(units: &[Unit], levels: &[f64], seed: Seed) -> Vec<Option<(f64, f64)>> {
    let tails: Vec<Option<f64>> = levels.iter().map(|level| widened(units.len(), *level)).collect();
    if tails.iter().all(Option::is_none) {
        return vec![None; levels.len()];
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed.0);
    let mut ratios: Vec<f64> = (0..resamples(units.len())).map(|_| ratio(draw(units, &mut rng))).collect();
    sort(&mut ratios);
    let ends = |tail: f64| nearest_rank(&ratios, tail).zip(nearest_rank(&ratios, 1.0 - tail));
    tails.into_iter().map(|tail| tail.and_then(ends)).collect()
}

/// The fewest units whose ends can hold at confidence `level`, 0 < level < 1. No resample leaves the range of the units, and all n
/// lie on one side of the truth with probability ½ⁿ where that is their median: it must not be above 1 − level.
pub fn needed(level: f64) -> u64 {
    // A hair for levels such as 0.75, whose complement is a power of ½ in decimals and not quite one in binary.
    ((1.0 - level).log(0.5) - 1e-9).ceil().max(2.0) as u64
}

fn draw<'a>(units: &'a [Unit], rng: &mut ChaCha8Rng) -> impl Iterator<Item = &'a Unit> {
    // 32 bits, so that a 64-bit machine and a 32-bit one draw the same.
    let last = u32::try_from(units.len() - 1).unwrap_or(u32::MAX);
    units.iter().filter_map(move |_| units.get(rng.random_range(0..=last) as usize))
}

fn resamples(units: usize) -> usize {
    (DRAWS / units.max(1)).clamp(RESAMPLES.0, RESAMPLES.1)
}

/// The share of resamples left out at each end: Φ(−√(n/(n−1)) · t), t the level's quantile of Student's t with n − 1
/// degrees of freedom.
fn widened(n: usize, level: f64) -> Option<f64> {
    if (n as u64) < needed(level) {
        return None;
    }
    let (n, freedom) = (n as f64, n as f64 - 1.0);
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(level);
    Some(Normal::standard().cdf(-(n / freedom).sqrt() * student))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(values: impl IntoIterator<Item = f64>) -> Vec<Unit> {
        values.into_iter().map(|amount| Unit { amount, weight: 1.0 }).collect()
    }

    #[test]
    fn no_confidence_is_claimed_that_so_few_units_cannot_have() {
        assert_eq!([0.5, 0.75, 0.9, 0.95, 0.975, 0.99].map(needed), [2, 2, 4, 5, 6, 7]);
        assert_eq!(ends(&values([1.0, 3.0]), 0.95, Seed(1)), None);
        assert_eq!(ends(&values([3.0; 4]), 0.95, Seed(1)), None);
        assert_eq!(ends(&values([3.0; 5]), 0.95, Seed(1)), Some((3.0, 3.0)));
        let some = ends_at(&values([3.0; 6]), &[0.9, 0.975, 0.99], Seed(1));
        assert_eq!(some, [Some((3.0, 3.0)), Some((3.0, 3.0)), None], "each level by itself");
    }

    #[test]
    fn the_same_seed_gives_the_same_ends() {
        let units = values((0..50).map(f64::from));
        assert_eq!(ends(&units, 0.95, Seed(3)), ends(&units, 0.95, Seed(3)));
        assert_ne!(ends(&units, 0.95, Seed(3)), ends(&units, 0.95, Seed(4)));
    }

    #[test]
    fn the_ends_are_those_of_the_normal_law_for_many_units() {
        // 0..=999: mean 499.5, standard error 9.13; 1.645 of those at 95 %.
        let (low, high) = ends(&values((0..1000).map(f64::from)), 0.95, Seed(5)).unwrap();
        assert!((low - (499.5 - 15.0)).abs() < 1.5 && (high - (499.5 + 15.0)).abs() < 1.5, "{low} {high}");
    }

    #[test]
    fn a_ratio_weighs_and_an_empty_one_is_zero() {
        let units = [Unit { amount: 10.0, weight: 1.0 }, Unit { amount: 20.0, weight: 4.0 }];
        assert_eq!(ratio(&units), 6.0);
        assert_eq!(ratio(&[Unit { amount: 1.0, weight: 0.0 }]), 0.0);
    }

    #[test]
    fn the_upper_end_falls_short_no_more_often_than_claimed() {
        // Exponential values of mean 1, 30 at a time: skewed, so somewhat over 5 % must be granted.
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut short = 0;
        for trial in 0..200 {
            let sample = values((0..30).map(|_| -(1.0f64 - rng.random_range(0.0..1.0)).ln()));
            let (_, high) = ends(&sample, 0.95, Seed(trial)).unwrap();
            short += u32::from(high < 1.0);
        }
        assert!((4..=24).contains(&short), "{short} of 200");
    }

    #[test]
    fn many_units_take_fewer_resamples() {
        assert_eq!([10, 10_000, 20_000, 1_000_000].map(resamples), [2000, 2000, 1000, 400]);
    }
}
