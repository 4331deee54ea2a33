//! Two groups of replicates: a value of each run, and the runs differ.

use crate::stats::student;

/// The difference of two means, the first minus the second, between bounds, and its two-sided probability without a cause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The estimate.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// The probability.
    pub p: f64,
}

/// Values of replicates in short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Their number.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their sample variance; None for fewer than two.
    pub variance: Option<f64>,
}

impl Group {
    /// Of these values; None of none.
    pub fn of(values: &[f64]) -> Option<Group> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Group { n, mean, variance: (n > 1).then(|| squares / (n as f64 - 1.0)) })
    }

    /// The two ends between which the mean lies, each at confidence `level`; None for fewer than two values.
    pub fn ends(&self, level: f64) -> Option<(f64, f64)> {
        let arm = student::quantile(level, self.n as f64 - 1.0) * (self.variance? / self.n as f64).sqrt();
        Some((self.mean - arm, self.mean + arm))
    }

    /// How far one more replicate lies from the mean at most, at one-sided confidence `level`: t·s·√(1 + 1/n). None for fewer than
    /// two values.
    pub fn reach(&self, level: f64) -> Option<f64> {
        let spread = (self.variance? * (1.0 + 1.0 / self.n as f64)).sqrt();
        Some(student::quantile(level, self.n as f64 - 1.0) * spread)
    }
}

/// Standard error of the difference of two means and its degrees of freedom: Welch's (Biometrika 34, 1947) where both groups have
/// two values or more. A single value has the variance of the other group, which makes it the prediction interval of one more
/// replicate. None for one value each.
fn error(a: Group, b: Group) -> Option<(f64, f64)> {
    let part = |own: Group, variance: f64| variance / own.n as f64;
    match (a.variance, b.variance) {
        (Some(of_a), Some(of_b)) => {
            let (left, right) = (part(a, of_a), part(b, of_b));
            let parts = left.powi(2) / (a.n as f64 - 1.0) + right.powi(2) / (b.n as f64 - 1.0);
            let freedom = if parts > 0.0 { (left + right).powi(2) / parts } else { (a.n + b.n) as f64 - 2.0 };
            Some(((left + right).sqrt(), freedom))
        }
        (Some(of_many), None) | (None, Some(of_many)) => {
            Some(((part(a, of_many) + part(b, of_many)).sqrt(), (a.n + b.n) as f64 - 2.0))
        }
        (None, None) => None,
    }
}

/// The difference `a` − `b`, its bounds at one-sided confidence `level` each, with a standard error of at least `least`. None for one
/// value each.
pub fn difference(a: Group, b: Group, level: f64, least: f64) -> Option<Difference> {
    let (error, freedom) = error(a, b)?;
    let (value, error) = (a.mean - b.mean, error.max(least));
    let arm = student::quantile(level, freedom) * error;
    let p = match () {
        () if value == 0.0 => 1.0,
        () if error > 0.0 => (2.0 * student::above(value.abs() / error, freedom)).min(1.0),
        () => 0.0,
    };
    Some(Difference { value, low: value - arm, high: value + arm, p })
}

/// The least difference that `runs` replicates on each side, of standard deviation `sd`, show with probability `power`, at one-sided
/// confidence `level`; None for fewer than two.
pub fn detectable(sd: f64, runs: usize, level: f64, power: f64) -> Option<f64> {
    let freedom = 2.0 * runs as f64 - 2.0;
    let reach = || student::quantile(level, freedom) + student::quantile(power, freedom);
    (runs > 1).then(|| reach() * sd * (2.0 / runs as f64).sqrt())
}

/// The same of one replicate beside `runs` others, whose standard deviation is `sd`.
pub fn detectable_by_one(sd: f64, runs: usize, level: f64, power: f64) -> Option<f64> {
    let freedom = runs as f64 - 1.0;
    let reach = || student::quantile(level, freedom) + student::quantile(power, freedom);
    (runs > 1).then(|| reach() * sd * (1.0 + 1.0 / runs as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(values: &[f64]) -> Group {
        Group::of(values).unwrap()
    }

    #[test]
    fn welch_has_the_known_degrees_of_freedom() {
        // Variances 1 and 13: standard error √(14/3), 2.305882 degrees of freedom; Student's t integrated numerically.
        let seen = difference(group(&[1.0, 2.0, 3.0]), group(&[2.0, 4.0, 9.0]), 0.975, 0.0).unwrap();
        assert!((seen.value + 3.0).abs() < 1e-12 && (seen.p - 0.283834).abs() < 1e-5, "{seen:?}");
        assert!((seen.low + 11.207702).abs() < 1e-4 && (seen.high - 5.207702).abs() < 1e-4, "{seen:?}");
    }

    #[test]
    fn one_beside_many_is_the_prediction_interval() {
        let many = group(&[98.0, 99.0, 100.0, 101.0, 102.0]);
        // t(0.975; 4) · √2.5 · √1.2.
        let reach = 2.776445 * 2.5f64.sqrt() * 1.2f64.sqrt();
        assert!((many.reach(0.975).unwrap() - reach).abs() < 1e-4);
        let edge = difference(group(&[100.0 + reach]), many, 0.975, 0.0).unwrap();
        assert!((edge.p - 0.05).abs() < 1e-5 && edge.low.abs() < 1e-4, "{edge:?}");
        assert_eq!(difference(many, group(&[100.0 - reach]), 0.975, 0.0).map(|own| own.value > 0.0), Some(true));
        assert_eq!((difference(group(&[1.0]), group(&[2.0]), 0.975, 0.0), Group::of(&[])), (None, None));
    }

    #[test]
    fn equal_replicates_differ_by_nothing_or_surely() {
        let p = |b: f64, least| difference(group(&[1.0; 3]), group(&[b; 3]), 0.975, least).unwrap().p;
        assert_eq!((p(1.0, 0.0), p(2.0, 0.0)), (1.0, 0.0));
        assert!(p(2.0, 1.0) > 0.3, "a least error holds where the replicates show none");
    }

    #[test]
    fn more_runs_show_less() {
        let of = |runs| detectable(0.02, runs, 0.975, 0.8).unwrap();
        // (t(0.975; 4) + t(0.8; 4)) · 0.02 · √(2/3) = (2.7764 + 0.9410) · 0.01633.
        assert!((of(3) - 0.0607).abs() < 1e-4 && of(3) > of(5) && of(5) > of(20), "{}", of(3));
        assert_eq!((detectable(0.02, 1, 0.975, 0.8), detectable_by_one(0.02, 1, 0.975, 0.8)), (None, None));
        // (2.2622 + 0.8834) · 0.02 · √1.1.
        assert!((detectable_by_one(0.02, 10, 0.975, 0.8).unwrap() - 0.06598).abs() < 1e-4);
    }
}
