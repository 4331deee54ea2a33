//! Comparison of two groups: Welch's test on replicates (one value per run), effect sizes, and adjustment for
//! multiple tests.

use crate::stats::design::inflation;
use crate::stats::distributions::{t_above, t_quantile};
use crate::stats::moments::mean;
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// The difference of two means (first − second) with bounds and a two-sided p-value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The estimate.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Two-sided p-value.
    pub p: f64,
}

/// Summary of replicate values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Number of values.
    pub n: usize,
    /// Mean.
    pub mean: f64,
    /// Sample variance; None for fewer than two values.
    pub variance: Option<f64>,
}

/// The center of several values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Center {
    /// The arithmetic mean.
    #[default]
    Mean,
    /// The median, which a few outliers do not move.
    Median,
}

impl Center {
    /// The center of values; None without values.
    pub fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Center::Mean => mean(values),
            Center::Median => {
                let mut sorted = values.to_vec();
                sorted.sort_by(f64::total_cmp);
                let (low, high) = ((sorted.len().checked_sub(1)?) / 2, sorted.len() / 2);
                Some(f64::midpoint(*sorted.get(low)?, *sorted.get(high)?))
            }
        }
    }

    /// The variance of the center of n normal values, times n, for a variance of 1. For the median the limit π/2,
    /// which is above the value of any finite n (Kenney and Keeping, "Mathematics of Statistics", part 2, section
    /// 10.9).
    fn variance(self) -> f64 {
        match self {
            Center::Mean => 1.0,
            Center::Median => std::f64::consts::FRAC_PI_2,
        }
    }
}

impl Group {
    /// Summarizes values; None without values.
    pub fn from_values(values: &[f64]) -> Option<Group> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Group {
            n,
            mean,
            variance: (n > 1).then(|| squares / (n as f64 - 1.0)),
        })
    }

    /// Bounds of the mean, each at one-sided confidence `level`; None for fewer than two values.
    pub fn ends(&self, level: f64) -> Option<(f64, f64)> {
        let half_width =
            t_quantile(level, self.n as f64 - 1.0) * (self.variance? / self.n as f64).sqrt();
        Some((self.mean - half_width, self.mean + half_width))
    }

    /// Half-width of the prediction interval for one more replicate around the `center`, at one-sided confidence
    /// `level`: t·s·√(1 + c/n) with c = 1 for the mean and π/2 for the median (Hahn and Meeker, "Statistical
    /// Intervals", section 4.7). It is that of the random-effects model value = level + run + noise, because both
    /// terms are in s. None for fewer than two values.
    pub fn prediction_half_width(&self, level: f64, center: Center) -> Option<f64> {
        let spread = (self.variance? * (1.0 + center.variance() / self.n as f64)).sqrt();
        Some(t_quantile(level, self.n as f64 - 1.0) * spread)
    }

    /// Two-sided p-value of the mean of new replicates, if they are like these: Student's t = (mean − new mean) ÷
    /// (s·√(1/n + 1/k)) for k new ones, with s from these alone. For one value, the test belongs to
    /// [`Group::prediction_half_width`]. The standard deviation is at least `least`. None for fewer than two values,
    /// or without new ones.
    pub fn p_of_new_mean(&self, new: &[f64], least: f64) -> Option<f64> {
        let distance = (mean(new)? - self.mean).abs();
        let scale = (1.0 / self.n as f64 + 1.0 / new.len() as f64).sqrt();
        let error = self.variance?.sqrt().max(least) * scale;
        Some(match () {
            () if distance == 0.0 => 1.0,
            () if error > 0.0 => (2.0 * t_above(distance / error, self.n as f64 - 1.0)).min(1.0),
            () => 0.0,
        })
    }
}

/// Standard error of the difference of two means and its degrees of freedom (Welch, Biometrika 34, 1947). A group
/// with a single value gets the variance of the other group, which yields the prediction interval for one more
/// replicate. None if both groups have a single value.
fn error(a: Group, b: Group) -> Option<(f64, f64)> {
    let part = |group: Group, variance: f64| variance / group.n as f64;
    match (a.variance, b.variance) {
        (Some(variance_a), Some(variance_b)) => {
            let (left, right) = (part(a, variance_a), part(b, variance_b));
            let parts = left.powi(2) / (a.n as f64 - 1.0) + right.powi(2) / (b.n as f64 - 1.0);
            let freedom = if parts > 0.0 {
                (left + right).powi(2) / parts
            } else {
                (a.n + b.n) as f64 - 2.0
            };
            Some(((left + right).sqrt(), freedom))
        }
        (Some(variance), None) | (None, Some(variance)) => Some((
            (part(a, variance) + part(b, variance)).sqrt(),
            (a.n + b.n) as f64 - 2.0,
        )),
        (None, None) => None,
    }
}

/// The difference `a` − `b` with bounds at one-sided confidence `level` each; the standard error is at least `least`.
/// None if both groups have a single value.
pub fn difference(a: Group, b: Group, level: f64, least: f64) -> Option<Difference> {
    let (error, freedom) = error(a, b)?;
    let (value, error) = (a.mean - b.mean, error.max(least));
    let half_width = t_quantile(level, freedom) * error;
    let p = match () {
        () if value == 0.0 => 1.0,
        () if error > 0.0 => (2.0 * t_above(value.abs() / error, freedom)).min(1.0),
        () => 0.0,
    };
    Some(Difference {
        value,
        low: value - half_width,
        high: value + half_width,
        p,
    })
}

/// The smallest difference that `runs` replicates per side with standard deviation `sd` detect with probability
/// `power` at one-sided confidence `level`; None for fewer than two.
pub fn detectable(sd: f64, runs: usize, level: f64, power: f64) -> Option<f64> {
    let freedom = 2.0 * runs as f64 - 2.0;
    let reach = || t_quantile(level, freedom) + t_quantile(power, freedom);
    (runs > 1).then(|| reach() * sd * (2.0 / runs as f64).sqrt())
}

/// The smallest difference that one additional replicate detects beside `runs` others with standard deviation `sd`.
pub fn detectable_by_one(sd: f64, runs: usize, level: f64, power: f64) -> Option<f64> {
    let freedom = runs as f64 - 1.0;
    let reach = || t_quantile(level, freedom) + t_quantile(power, freedom);
    (runs > 1).then(|| reach() * sd * (1.0 + 1.0 / runs as f64).sqrt())
}

/// Cliff's delta of ascending values: P(b > a) − P(b < a) for a random pair, from −1 to 1 (Cliff, "Dominance
/// statistics: ordinal analyses to answer ordinal questions", Psychological Bulletin 114, 1993). None if either is
/// empty.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mut under = 0;
    let mut upto = 0;
    let mut sum = 0.0;
    for value in b {
        under += a.get(under..)?.iter().take_while(|x| *x < value).count();
        upto = upto.max(under);
        upto += a.get(upto..)?.iter().take_while(|x| *x <= value).count();
        // `under` values of `a` are below, `a.len() - upto` above.
        sum += under as f64 - (a.len() - upto) as f64;
    }
    Some(sum / (a.len() as f64 * b.len() as f64))
}

/// Cohen's h for two shares: 2 asin √b − 2 asin √a (Cohen, "Statistical power analysis for the behavioral sciences",
/// 2nd edition, 1988, chapter 6).
pub fn cohens_h(a: f64, b: f64) -> f64 {
    2.0 * (b.sqrt().asin() - a.sqrt().asin())
}

/// p-values adjusted by Holm's method, in the order of `p`: bounds the probability of at least one false alarm (Holm,
/// "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979).
pub fn holm(p: &[f64]) -> Vec<f64> {
    let m = p.len();
    let mut worst: f64 = 0.0;
    adjust_in_order(p, ascending_order(p), |place, value| {
        worst = worst.max(value * (m - place) as f64).min(1.0);
        worst
    })
}

/// p-values adjusted by the method of Benjamini and Hochberg, in the order of `p`: bounds the expected share of false
/// alarms among the alarms ("Controlling the false discovery rate", Journal of the Royal Statistical Society B 57,
/// 1995).
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let m = p.len();
    let mut least: f64 = 1.0;
    let falling = ascending_order(p).into_iter().rev().collect();
    adjust_in_order(p, falling, |place, value| {
        least = least.min(value * m as f64 / (m - place) as f64);
        least
    })
}

fn ascending_order(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p.get(a).unwrap_or(&1.0).total_cmp(p.get(b).unwrap_or(&1.0)));
    order
}

fn adjust_in_order(
    p: &[f64],
    order: Vec<usize>,
    mut adjusted: impl FnMut(usize, f64) -> f64,
) -> Vec<f64> {
    let mut all = vec![1.0; p.len()];
    for (place, index) in order.into_iter().enumerate() {
        if let (Some(slot), Some(&value)) = (all.get_mut(index), p.get(index)) {
            *slot = adjusted(place, value);
        }
    }
    all
}

/// p-value of the hypothesis that all groups have the same distribution, by ranks with midranks for ties (Kruskal and
/// Wallis, "Use of ranks in one-criterion variance analysis", JASA 47, 1952). Each group is in time order: H is
/// divided by the variance inflation of its ranks ([`inflation`]), since consecutive requests are correlated. None
/// with fewer than two groups that have values, or if all values are equal.
pub fn kruskal_wallis(groups: &[Vec<f64>]) -> Option<f64> {
    let ranks = ranks(groups);
    let h = h_statistic(&ranks)? / inflation(&ranks).times;
    let freedom = ranks.len() as f64 - 1.0;
    Some(1.0 - ChiSquared::new(freedom).ok()?.cdf(h))
}

/// The midranks of all values, without empty groups.
fn ranks(groups: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut sorted = groups.concat();
    sorted.sort_by(f64::total_cmp);
    let midrank = |value: &f64| {
        let below = sorted.partition_point(|other| other.total_cmp(value).is_lt());
        let up_to = sorted.partition_point(|other| other.total_cmp(value).is_le());
        (below + up_to + 1) as f64 / 2.0
    };
    let of_group = |group: &Vec<f64>| group.iter().map(midrank).collect();
    groups
        .iter()
        .filter(|group| !group.is_empty())
        .map(of_group)
        .collect()
}

/// H with its correction for ties: (n − 1) × the share of the ranks' variance that lies between groups.
fn h_statistic(ranks: &[Vec<f64>]) -> Option<f64> {
    let n = ranks.iter().map(Vec::len).sum::<usize>() as f64;
    let middle = (n + 1.0) / 2.0;
    let squares = |values: &mut dyn Iterator<Item = f64>| -> f64 {
        values.map(|off| (off - middle).powi(2)).sum()
    };
    let total = squares(&mut ranks.iter().flatten().copied());
    let between: f64 = ranks
        .iter()
        .filter_map(|group| Some(group.len() as f64 * (mean(group)? - middle).powi(2)))
        .sum();
    (ranks.len() > 1 && total > 0.0).then(|| (n - 1.0) * between / total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(values: &[f64]) -> Group {
        Group::from_values(values).unwrap()
    }

    #[test]
    fn welch_has_the_known_degrees_of_freedom() {
        // Variances 1 and 13: standard error √(14/3), 2.305882 degrees of freedom; Student's t integrated numerically.
        let seen =
            difference(group(&[1.0, 2.0, 3.0]), group(&[2.0, 4.0, 9.0]), 0.975, 0.0).unwrap();
        assert!(
            (seen.value + 3.0).abs() < 1e-12 && (seen.p - 0.283834).abs() < 1e-5,
            "{seen:?}"
        );
        assert!(
            (seen.low + 11.207702).abs() < 1e-4 && (seen.high - 5.207702).abs() < 1e-4,
            "{seen:?}"
        );
    }

    #[test]
    fn one_beside_many_is_the_prediction_interval() {
        let many = group(&[98.0, 99.0, 100.0, 101.0, 102.0]);
        // t(0.975; 4) · √2.5 · √1.2.
        let reach = 2.776445 * 2.5f64.sqrt() * 1.2f64.sqrt();
        assert!((many.prediction_half_width(0.975, Center::Mean).unwrap() - reach).abs() < 1e-4);
        assert!((many.p_of_new_mean(&[100.0 + reach], 0.0).unwrap() - 0.05).abs() < 1e-5);
        let edge = difference(group(&[100.0 + reach]), many, 0.975, 0.0).unwrap();
        assert!(
            (edge.p - 0.05).abs() < 1e-5 && edge.low.abs() < 1e-4,
            "{edge:?}"
        );
        assert_eq!(
            difference(many, group(&[100.0 - reach]), 0.975, 0.0).map(|own| own.value > 0.0),
            Some(true)
        );
        assert_eq!(
            (
                difference(group(&[1.0]), group(&[2.0]), 0.975, 0.0),
                Group::from_values(&[])
            ),
            (None, None)
        );
    }

    #[test]
    fn equal_replicates_differ_by_nothing_or_surely() {
        let p = |b: f64, least| {
            difference(group(&[1.0; 3]), group(&[b; 3]), 0.975, least)
                .unwrap()
                .p
        };
        assert_eq!((p(1.0, 0.0), p(2.0, 0.0)), (1.0, 0.0));
        assert!(
            p(2.0, 1.0) > 0.3,
            "a least error holds where the replicates show none"
        );
    }

    #[test]
    fn more_runs_show_less() {
        let of = |runs| detectable(0.02, runs, 0.975, 0.8).unwrap();
        // (t(0.975; 4) + t(0.8; 4)) · 0.02 · √(2/3) = (2.7764 + 0.9410) · 0.01633.
        assert!(
            (of(3) - 0.0607).abs() < 1e-4 && of(3) > of(5) && of(5) > of(20),
            "{}",
            of(3)
        );
        assert_eq!(
            (
                detectable(0.02, 1, 0.975, 0.8),
                detectable_by_one(0.02, 1, 0.975, 0.8)
            ),
            (None, None)
        );
        // (2.2622 + 0.8834) · 0.02 · √1.1.
        assert!((detectable_by_one(0.02, 10, 0.975, 0.8).unwrap() - 0.06598).abs() < 1e-4);
    }

    #[test]
    fn known_deltas() {
        assert_eq!(cliffs_delta(&[1.0, 2.0, 3.0], &[4.0, 5.0]), Some(1.0));
        assert_eq!(cliffs_delta(&[4.0, 5.0], &[1.0, 2.0, 3.0]), Some(-1.0));
        assert_eq!(cliffs_delta(&[1.0, 1.0], &[1.0]), Some(0.0));
        assert_eq!(cliffs_delta(&[1.0, 2.0, 2.0, 3.0], &[2.0]), Some(0.0));
        assert_eq!(cliffs_delta(&[], &[2.0]), None);
    }

    #[test]
    fn the_distance_of_shares_is_that_of_their_arcs() {
        // Cohen, table 6.2.2: φ(0.50) = 1.571, φ(0.30) = 1.159.
        assert!((cohens_h(0.3, 0.5) - (1.571 - 1.159)).abs() < 1e-3);
        assert_eq!(cohens_h(0.2, 0.2), 0.0);
    }

    proptest! {
        #[test]
        fn it_is_the_mean_over_all_pairs(mut a in prop::collection::vec(0u8..9, 1..30),
            mut b in prop::collection::vec(0u8..9, 1..30)) {
            a.sort();
            b.sort();
            let signs = b.iter().flat_map(|y| a.iter().map(move |x| f64::from(i8::from(y > x) - i8::from(y < x))));
            let mean = signs.sum::<f64>() / (a.len() * b.len()) as f64;
            let [a, b] = [a, b].map(|own| own.into_iter().map(f64::from).collect::<Vec<_>>());
            prop_assert!((cliffs_delta(&a, &b).unwrap() - mean).abs() < 1e-12);
        }
    }

    fn near(seen: &[f64], known: &[f64]) {
        assert!(
            seen.len() == known.len() && seen.iter().zip(known).all(|(a, b)| (a - b).abs() < 1e-12),
            "{seen:?} {known:?}"
        );
    }

    #[test]
    fn the_published_examples() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm"), and "BH".
        near(&holm(&[0.01, 0.04, 0.03, 0.005]), &[0.03, 0.06, 0.06, 0.02]);
        near(
            &benjamini_hochberg(&[0.01, 0.04, 0.03, 0.005]),
            &[0.02, 0.04, 0.04, 0.02],
        );
    }

    #[test]
    fn one_test_needs_no_adjustment_and_none_is_over_one() {
        near(&holm(&[0.04]), &[0.04]);
        near(&benjamini_hochberg(&[0.04]), &[0.04]);
        near(&holm(&[0.9, 0.8]), &[1.0, 1.0]);
        near(&holm(&[]), &[]);
    }

    #[test]
    fn groups_are_compared_by_ranks() {
        let h = |groups: &[Vec<f64>]| h_statistic(&ranks(groups));
        let close = |actual: Option<f64>, expected: f64| {
            assert!(
                actual.is_some_and(|actual| (actual - expected).abs() < 1e-9),
                "{actual:?} instead of {expected}"
            );
        };
        // Without and with ties, as scipy.stats.kruskal documents them.
        let odd_and_even = [
            vec![1.0, 3.0, 5.0, 7.0, 9.0],
            vec![2.0, 4.0, 6.0, 8.0, 10.0],
        ];
        close(h(&odd_and_even), 3.0 / 11.0);
        // Growing values are correlated, so the p-value is above that for independent ones, 0.6015.
        close(kruskal_wallis(&odd_and_even), 0.758_288_758_433_210_8);
        let tied = [vec![1.0; 3], vec![], vec![2.0; 3], vec![2.0; 2]];
        close(h(&tied), 7.0);
        close(kruskal_wallis(&tied), 0.030_197_383_422_318_5);
        assert_eq!(kruskal_wallis(&[vec![1.0, 2.0]]), None);
        assert_eq!(kruskal_wallis(&[vec![1.0], vec![1.0]]), None);
    }

    #[test]
    fn correlated_values_do_not_make_groups_differ() {
        // Two groups of 20 and 20 runs of ten equal values: as independent values they would differ.
        let runs = |from: u32| -> Vec<f64> {
            (0..200)
                .map(|at| f64::from((at / 10 * 7 + from) % 23))
                .collect()
        };
        let groups = [runs(0), runs(3)];
        let ranks = ranks(&groups);
        let times = inflation(&ranks).times;
        assert!((5.0..20.0).contains(&times), "{times}");
        let independent = 1.0
            - ChiSquared::new(1.0)
                .unwrap()
                .cdf(h_statistic(&ranks).unwrap());
        assert!(kruskal_wallis(&groups).unwrap() > independent.max(0.05));
    }
}
