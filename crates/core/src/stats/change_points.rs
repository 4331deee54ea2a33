//! Changes of level in a series of runs.
//!
//! [`change_points`] finds where the level changed: binary segmentation (Vostrikova, "Detecting disorder in
//! multidimensional random processes", Soviet Mathematics Doklady 24, 1981). A segment is split at the greatest
//! standardized rank sum, Tₙ = maxₖ |Σᵢ≤ₖ (rᵢ − r̄)| ÷ √(k·(n − k)) over midranks r (the maximally selected rank
//! statistic: Pettitt, "A non-parametric approach to the change-point problem", Applied Statistics 28, 1979; Lausen
//! and Schumacher, Biometrics 48, 1992), if its permutation p-value is at most the level (Antoch and Hušková,
//! "Permutation tests in change point analysis", Statistics & Probability Letters 53, 2001). Ranks keep a single
//! outlier from looking like a change. A series without any change has a false alarm with a probability of at most
//! the level, because it has one only if the first test has one, whatever the distribution of its values. The runs
//! must be exchangeable, though: noise that is correlated from run to run looks like changes.
//!
//! The last runs cannot be tested so: a change in the last run is one of n equally likely orders. [`latest_change`]
//! compares them with the runs before, as a prediction interval does.

use crate::seed::Seed;
use crate::stats::comparison::Group;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// The least number of runs between two changes.
pub const MIN_SEGMENT: usize = 3;
/// A permutation test ends at this many exceedances: its p-value is surely above any level of interest (Besag and
/// Clifford, "Sequential Monte Carlo p-values", Biometrika 78, 1991).
const EXCEEDANCES: u32 = 20;
/// Permutations per reciprocal of the level, so that a handful of exceedances are compatible with a significant
/// p-value.
const PERMUTATIONS_PER_LEVEL: f64 = 5.0;
/// Least and greatest number of permutations. The greatest limits how small a p-value can be.
const PERMUTATIONS: (f64, f64) = (999.0, 99_999.0);

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value of the new level.
    pub index: usize,
    /// p-value of the test that found it.
    pub p: f64,
}

/// The changes in a series, ascending, each found by a test at this level. The same values, level and seed give the
/// same changes.
pub fn change_points(values: &[f64], level: f64, seed: Seed) -> Vec<ChangePoint> {
    let mut found = Vec::new();
    let mut segments = vec![(0, values.len())];
    while let Some((from, until)) = segments.pop() {
        let segment = values.get(from..until).unwrap_or_default();
        let Some((size, p)) = split(segment, level, seed.child(from as u64)) else {
            continue;
        };
        if p <= level {
            let index = from + size;
            found.push(ChangePoint { index, p });
            segments.extend([(from, index), (index, until)]);
        }
    }
    found.sort_by_key(|change| change.index);
    repartition(values, found, level, seed)
}

/// Tests each change again between its neighbors, because the first splits were placed while the other changes were
/// unknown (Bai, "Estimating multiple breaks one at a time", Econometric Theory 13, 1997). This moves and removes
/// changes, and adds none.
fn repartition(
    values: &[f64],
    mut found: Vec<ChangePoint>,
    level: f64,
    seed: Seed,
) -> Vec<ChangePoint> {
    let mut place = 0;
    while let Some(change) = found.get(place).copied() {
        let before = place.checked_sub(1).and_then(|place| found.get(place));
        let from = before.map_or(0, |change| change.index);
        let until = found.get(place + 1).map_or(values.len(), |next| next.index);
        let segment = values.get(from..until).unwrap_or_default();
        match split(
            segment,
            level,
            seed.child("again").child(change.index as u64),
        ) {
            Some((size, p)) if p <= level => {
                found.splice(
                    place..=place,
                    [ChangePoint {
                        index: from + size,
                        p,
                    }],
                );
                place += 1;
            }
            // Without it, the segments of the changes beside it are longer.
            _ => {
                found.remove(place);
                place = place.saturating_sub(1);
            }
        }
    }
    found
}

/// The best split of a segment, as the size of its first part, with its permutation p-value. None if the segment is
/// too short, or all values are equal.
fn split(values: &[f64], level: f64, seed: Seed) -> Option<(usize, f64)> {
    let mut ranks = centered_ranks(values);
    let weights: Vec<f64> = (1..ranks.len())
        .map(|k| 1.0 / (k as f64 * (ranks.len() - k) as f64).sqrt())
        .collect();
    let (size, observed) = statistic(&ranks, &weights).filter(|(_, observed)| *observed > 0.0)?;
    // A permutation that gives the same sums in another order counts as an exceedance.
    let observed = observed * (1.0 - 1e-9);
    let permutations =
        (PERMUTATIONS_PER_LEVEL / level).clamp(PERMUTATIONS.0, PERMUTATIONS.1) as u32;
    let mut random = ChaCha8Rng::seed_from_u64(seed.0);
    let mut exceedances = 0;
    for count in 1..=permutations {
        ranks.shuffle(&mut random);
        if statistic(&ranks, &weights).is_some_and(|(_, value)| value >= observed) {
            exceedances += 1;
        }
        if exceedances == EXCEEDANCES {
            return Some((size, f64::from(exceedances) / f64::from(count)));
        }
    }
    let p = f64::from(exceedances + 1) / f64::from(permutations + 1);
    Some((size, p))
}

/// The size of the first part with the greatest statistic, and the statistic; None for fewer than two segments.
fn statistic(ranks: &[f64], weights: &[f64]) -> Option<(usize, f64)> {
    let mut sum = 0.0;
    let mut best: Option<(usize, f64)> = None;
    let last = ranks.len().checked_sub(MIN_SEGMENT)?;
    for (index, (rank, weight)) in ranks.iter().zip(weights).take(last).enumerate() {
        sum += rank;
        let value = sum.abs() * weight;
        if index + 1 >= MIN_SEGMENT && best.is_none_or(|(_, best)| value > best) {
            best = Some((index + 1, value));
        }
    }
    best
}

/// Midranks minus their mean.
fn centered_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    for tied in order.chunk_by(|a, b| a.1 == b.1) {
        let rank = below as f64 + (tied.len() as f64 + 1.0) / 2.0;
        for (index, _) in tied {
            if let Some(own) = ranks.get_mut(*index) {
                *own = rank - (values.len() as f64 + 1.0) / 2.0;
            }
        }
        below += tied.len();
    }
    ranks
}

/// A change in the last values: the number of them that differ from those before, at most `longest`, for which the
/// p-value of
/// [`Group::p_of_new_mean`] is smallest. The p-value is multiplied by the number of tests (Bonferroni), so that a
/// series without a change has a false alarm with a probability of at most `level`. At least `fewest` values are left
/// to compare with, and their standard deviation counts as at least `least`.
pub fn latest_change(
    values: &[f64],
    level: f64,
    longest: usize,
    fewest: usize,
    least: f64,
) -> Option<ChangePoint> {
    let tests = longest.min(values.len().saturating_sub(fewest));
    let test = |count: usize| {
        let index = values.len() - count;
        let (old, new) = values.split_at_checked(index)?;
        let p = Group::from_values(old)?.p_of_new_mean(new, least)? * tests as f64;
        (p <= level).then_some(ChangePoint { index, p })
    };
    (1..=tests)
        .filter_map(test)
        .min_by(|a, b| a.p.total_cmp(&b.p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::share::{lower, upper};
    use rand_distr::{Distribution, Normal};

    const SERIES: u64 = 300;
    /// The standard deviation between runs.
    const NOISE: f64 = 0.03;

    /// Logarithms of a series whose level rises by `shift` from `index` on.
    fn series(seed: u64, runs: usize, index: usize, shift: f64) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(Seed(seed).child("series").0);
        let noise = Normal::new(0.0, NOISE).unwrap();
        let level = |run| if run < index { 0.0 } else { (1.0 + shift).ln() };
        (0..runs)
            .map(|run| level(run) + noise.sample(&mut random))
            .collect()
    }

    /// Whether so many alarms in [`SERIES`] series are compatible with the nominal rate, by exact binomial bounds at
    /// 99.9 %.
    fn is_nominal(alarms: usize, rate: f64) -> bool {
        let (hits, n) = (alarms as f64, SERIES as f64);
        lower(hits, n, 0.999) <= rate && rate <= upper(hits, n, 0.999)
    }

    fn count(has_alarm: impl Fn(u64) -> bool) -> usize {
        (0..SERIES).filter(|seed| has_alarm(*seed)).count()
    }

    #[test]
    fn stationary_noise_has_false_alarms_at_the_nominal_rate() {
        for runs in [12, 20, 60] {
            let alarms = count(|seed| {
                !change_points(&series(seed, runs, 0, 0.0), 0.05, Seed(seed)).is_empty()
            });
            assert!(
                is_nominal(alarms, 0.05),
                "{alarms} of {SERIES}, {runs} runs"
            );
        }
    }

    #[test]
    fn the_latest_runs_have_false_alarms_at_most_at_the_nominal_rate() {
        let alarm = |seed, longest| {
            latest_change(&series(seed, 20, 0, 0.0), 0.05, longest, 5, 0.0).is_some()
        };
        let one = count(|seed| alarm(seed, 1));
        assert!(is_nominal(one, 0.05), "{one}");
        // The lengths share their runs, so five of them have fewer alarms than five separate tests.
        let five = count(|seed| alarm(seed, 5));
        assert!(
            five > 0 && lower(five as f64, SERIES as f64, 0.999) <= 0.05,
            "{five}"
        );
    }

    #[test]
    fn a_shift_of_10_percent_in_the_middle_of_20_runs_is_found_where_it_is() {
        let indices: Vec<Option<usize>> = (0..SERIES)
            .map(|seed| {
                let found = change_points(&series(seed, 20, 10, 0.10), 0.05, Seed(seed));
                found.first().map(|change| change.index)
            })
            .collect();
        let found: Vec<usize> = indices.into_iter().flatten().collect();
        let near = found.iter().filter(|index| index.abs_diff(10) <= 1).count();
        assert!(found.len() as f64 >= 0.9 * SERIES as f64, "{}", found.len());
        assert!(
            near as f64 >= 0.9 * found.len() as f64,
            "{near} of {}",
            found.len()
        );
    }

    #[test]
    fn a_regression_of_the_last_runs_is_found_before_a_permutation_can() {
        for (new, least) in [(1, 0.5), (2, 0.75), (3, 0.9)] {
            let found = count(|seed| {
                latest_change(&series(seed, 20, 20 - new, 0.10), 0.05, 5, 5, 0.0).is_some()
            });
            assert!(
                found as f64 >= least * SERIES as f64,
                "{found} with {new} new runs"
            );
        }
    }

    #[test]
    fn several_changes_are_found_and_an_outlier_is_none() {
        let mut values = series(1, 30, 15, 0.2);
        values.extend(series(2, 15, 0, 0.0));
        let found = change_points(&values, 0.01, Seed(1));
        let indices: Vec<usize> = found.iter().map(|change| change.index).collect();
        assert_eq!(indices, [15, 30]);
        let mut outlier = series(3, 30, 0, 0.0);
        outlier[12] = 5.0;
        assert_eq!(change_points(&outlier, 0.05, Seed(1)), []);
    }

    #[test]
    fn equal_values_and_short_series_have_no_change() {
        assert_eq!(change_points(&[0.0; 40], 0.05, Seed(1)), []);
        assert_eq!(change_points(&[1.0, 1.0, 1.0, 9.0, 9.0], 0.05, Seed(1)), []);
        assert_eq!(change_points(&[], 0.05, Seed(1)), []);
        assert_eq!(latest_change(&[1.0; 20], 0.05, 5, 5, 0.0), None);
        assert_eq!(latest_change(&[1.0, 9.0], 0.05, 5, 5, 0.0), None);
        let mut step = vec![1.0; 20];
        step.push(1.01);
        assert!(latest_change(&step, 0.05, 5, 5, 0.0).is_some());
        assert_eq!(
            latest_change(&step, 0.05, 5, 5, 0.01),
            None,
            "within the least noise"
        );
    }

    #[test]
    fn the_same_series_has_the_same_changes() {
        let values = series(9, 500, 250, 0.02);
        assert_eq!(
            change_points(&values, 0.01, Seed(4)),
            change_points(&values, 0.01, Seed(4))
        );
    }
}
