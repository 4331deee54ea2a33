//! How many independent values a series is worth whose neighbours are alike.

use crate::stats::moments::mean;

/// Values up to which every one is taken by itself; of more, means of neighbours are taken instead.
const MOST: usize = 8192;

/// The effective sample size of all values together, for their mean: n · variance ÷ the variance that the mean of ever more values
/// has, times their number. The latter by the initial monotone sequence of Geyer, "Practical Markov chain Monte Carlo",
/// Statistical Science 7 (1992), section 3.3: twice the sum of the autocovariances, in pairs of lags, as long as the pairs are
/// positive, none greater than the one before.
///
/// Several series, each in the order of its time, have their own means and one autocovariance. At least 1 and at most n: values
/// whose neighbours differ more than chance has them are worth n. n where all are equal, or none has a neighbour.
pub fn effective(series: &[Vec<f64>]) -> f64 {
    let n = series.iter().map(Vec::len).sum::<usize>() as f64;
    if n > 0.0 { n / inflation(series).times } else { 0.0 }
}

/// What the correlation of neighbours does to the variance of a mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inflation {
    /// By how much the variance is greater than that of as many independent values, at least 1.
    pub times: f64,
    /// The last lag at which neighbours still show a correlation.
    pub lag: usize,
}

/// The same as how many values carry the information of an independent one.
pub fn inflation(series: &[Vec<f64>]) -> Inflation {
    let n = series.iter().map(Vec::len).sum::<usize>();
    let freedom = n as f64 - series.iter().filter(|own| !own.is_empty()).count() as f64;
    let variance = around(series).iter().flatten().map(|off| off * off).sum::<f64>() / freedom;
    let size = n.div_ceil(MOST).max(1);
    let means: Vec<Vec<f64>> = series.iter().map(|own| own.chunks_exact(size).filter_map(mean).collect()).collect();
    let (long_run, lag) = long_run(&around(&means));
    let known = variance > 0.0 && long_run > 0.0;
    let times = if known { (long_run * size as f64 / variance).clamp(1.0, n as f64) } else { 1.0 };
    Inflation { times, lag: lag * size }
}

/// Each series less its mean.
fn around(series: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let off = |own: &Vec<f64>| mean(own).map_or_else(Vec::new, |middle| own.iter().map(|value| value - middle).collect());
    series.iter().map(off).collect()
}

/// The variance of the mean of ever more values, times their number, and the last lag that counts.
///
/// Deviations are from the mean of their own series, which takes its part of the long-run variance V out of each autocovariance: V ÷ n
/// with one series of n values, r V ÷ n with r of them. Over all lags from −l to l that is (2 l + 1) r ÷ n of V, so the sum is divided by what is
/// left, at least one half.
fn long_run(off: &[Vec<f64>]) -> (f64, usize) {
    let n = off.iter().map(Vec::len).sum::<usize>() as f64;
    let product = |own: &Vec<f64>, lag: usize| own.iter().zip(own.iter().skip(lag)).map(|(a, b)| a * b).sum::<f64>();
    let at = |lag: usize| off.iter().map(|own| product(own, lag)).sum::<f64>() / n;
    let longest = off.iter().map(Vec::len).max().unwrap_or_default();
    let (mut sum, mut before, mut last) = (0.0, f64::INFINITY, 0);
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
    // The variance of one value is in the first pair and is counted twice.
    ((2.0 * sum - at(0)) / left, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// A first-order autoregression with this correlation of neighbours, worth n (1 − φ) ÷ (1 + φ).
    fn autoregression(n: usize, phi: f64, seed: u64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut last = 0.0;
        let mut step = || {
            last = phi * last + (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            last
        };
        (0..n + 100).map(|_| step()).skip(100).collect()
    }

    #[test]
    fn known_series_are_worth_what_theory_says() {
        for (phi, n) in [(0.0, 1000), (0.5, 1000), (0.9, 4000), (0.9, 20_000)] {
            let known = n as f64 * (1.0 - phi) / (1.0 + phi);
            let mut seen: Vec<f64> = (0..11).map(|seed| effective(&[autoregression(n, phi, seed)]) / known).collect();
            seen.sort_by(f64::total_cmp);
            assert!((0.85..1.15).contains(&seen[5]), "phi {phi}, n {n}: median {} of what is known", seen[5]);
        }
    }

    #[test]
    fn independent_values_are_hardly_ever_taken_for_half_of_themselves() {
        for (n, series) in [(200, 1u64), (40, 5), (2000, 1)] {
            let draw = |seed| (0..series).map(|own| autoregression(n, 0.0, seed * series + own)).collect::<Vec<_>>();
            let low = (0..500).filter(|&seed| effective(&draw(seed)) < n as f64 * series as f64 / 2.0).count();
            assert!(low <= 10, "{low} of 500 at {series} times n = {n}");
        }
    }

    #[test]
    fn a_series_by_hand() {
        // Autocovariances 1.25, 0.78125, 0.3125, −0.03125 at the lags 0 to 3, half of the 8.
        let values = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0];
        let pairs = [1.25 + 0.781_25, 0.3125 - 0.031_25];
        let variance = 10.0 / 7.0;
        // Seven of the eight lags, so the variance is taken twice.
        let known = variance / (2.0 * (2.0 * (pairs[0] + pairs[1]) - 1.25) / 8.0);
        let seen = effective(&[values.to_vec()]);
        assert!((seen - known).abs() < 1e-12, "{seen} {known}");
    }

    #[test]
    fn no_series_is_worth_more_than_it_has() {
        let turns: Vec<f64> = (0..100).map(|place| f64::from(place % 2)).collect();
        assert_eq!(
            [vec![turns], vec![vec![3.0; 50]], vec![vec![1.0], vec![2.0]], vec![]].map(|own| effective(&own)),
            [100.0, 50.0, 2.0, 0.0]
        );
    }
}
