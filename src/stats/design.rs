//! What dependent values are worth: gaps of one request are alike, and so are requests that stood in the same queue.

use crate::stats::bootstrap::{Unit, ratio};

/// Units of fewer than this make no batches, and fewer rounds than this no variance.
const LEAST: (usize, usize) = (64, 5);

/// By how much the variance of the share Σ amount / Σ weight is greater than that of Σ weight independent values, at least 1:
/// Kish's design effect ("Survey sampling", 1965, section 8.2) with the variance of a ratio over clusters by linearisation
/// (Cochran, "Sampling techniques", 3rd edition, section 3.12). A unit is a request: how many of its values count towards the share, and how
/// many it has. They come in the order of time, and `rounds` says to which round each belongs.
pub fn effect(units: &[Unit], rounds: &[u32]) -> f64 {
    let (share, weight) = (ratio(units), units.iter().map(|unit| unit.weight).sum::<f64>());
    let independent = share * (1.0 - share) * weight;
    if independent <= 0.0 {
        return 1.0;
    }
    let own = residuals(units, share);
    (greatest(&own, rounds) / independent).max(1.0)
}

/// By how much the variance of the ratio Σ amount / Σ weight is greater than that of as many independent units, at least 1.
pub fn clumping(units: &[Unit], rounds: &[u32]) -> f64 {
    let own = residuals(units, ratio(units));
    let independent = variance(own.chunks(1));
    if independent > 0.0 { (greatest(&own, rounds) / independent).max(1.0) } else { 1.0 }
}

fn residuals(units: &[Unit], ratio: f64) -> Vec<f64> {
    units.iter().map(|unit| unit.amount - ratio * unit.weight).collect()
}

/// The variance of the sum of residuals, by units, by batches of √n neighbours (batch means: Law, "Simulation modeling and
/// analysis", 5th edition, section 9.5.3) and by rounds: the greatest of those that there are enough of.
fn greatest(residuals: &[f64], rounds: &[u32]) -> f64 {
    let mut seen = variance(residuals.chunks(1));
    if residuals.len() >= LEAST.0 {
        seen = seen.max(variance(residuals.chunks(residuals.len().isqrt())));
    }
    let mut at = 0;
    let own: Vec<&[f64]> = rounds
        .chunk_by(|a, b| a == b)
        .filter_map(|round| {
            at += round.len();
            residuals.get(at - round.len()..at)
        })
        .collect();
    if own.len() >= LEAST.1 { seen.max(variance(own.into_iter())) } else { seen }
}

/// Of g groups, g ÷ (g − 1) times the sum of the squares of their sums; 0 for fewer than two.
fn variance<'a>(groups: impl Iterator<Item = &'a [f64]>) -> f64 {
    let (count, squares) =
        groups.fold((0.0, 0.0), |(count, squares), group| (count + 1.0, squares + group.iter().sum::<f64>().powi(2)));
    if count > 1.0 { squares * count / (count - 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    fn drawn(clusters: usize, size: usize, alike: bool) -> Vec<Unit> {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let mut one = || f64::from(u8::from(rng.random_range(0.0..1.0) < 0.1));
        let mut amount = || if alike { one() * size as f64 } else { (0..size).map(|_| one()).sum() };
        (0..clusters).map(|_| Unit { amount: amount(), weight: size as f64 }).collect()
    }

    #[test]
    fn values_that_are_all_alike_in_a_request_are_worth_one() {
        let (alike, free) = (effect(&drawn(2000, 20, true), &[]), effect(&drawn(2000, 20, false), &[]));
        assert!((17.0..30.0).contains(&alike) && (1.0..1.6).contains(&free), "{alike} {free}");
    }

    #[test]
    fn a_request_of_a_single_value_is_worth_it_and_equal_ones_have_no_effect() {
        assert!((effect(&drawn(50, 1, true), &[]) - 50.0 / 49.0).abs() < 1e-12);
        assert_eq!(effect(&[Unit { amount: 3.0, weight: 3.0 }; 10], &[]), 1.0);
        assert_eq!((effect(&[], &[]), clumping(&[], &[])), (1.0, 1.0));
    }

    #[test]
    fn clumps_in_time_and_rounds_of_their_own_are_seen() {
        let unit = |amount| Unit { amount, weight: 1.0 };
        // Ten neighbours alike: ten units say as much as one.
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(6);
        let neighbours: Vec<Unit> = (0..400).flat_map(|_| [unit(rng.random_range(0.0..1.0)); 10]).collect();
        let seen = clumping(&neighbours, &[]);
        assert!((6.0..14.0).contains(&seen), "{seen}");
        // Six rounds of ten, too few for batches: sums ±10 around the mean, variance 6/5 · 600 against 60/59 · 60.
        let rounds: Vec<u32> = (0..60).map(|index| index / 10).collect();
        let units: Vec<Unit> = rounds.iter().map(|round| unit(f64::from(round % 2) * 2.0)).collect();
        assert!((clumping(&units, &rounds) - 720.0 * 59.0 / 3600.0).abs() < 1e-9);
        assert_eq!(clumping(&units, &rounds[..40]), 1.0, "four rounds are too few to tell");
    }
}
