//! A distribution as tools on numpy state it: quantiles between values, the deviation of a population.

use llmscen_core::stats::moments;
use llmscen_core::stats::quantile::{Method, quantile, sort};

/// Values, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread(Vec<f64>);

impl Spread {
    /// Of these values; None without any.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Spread> {
        sort(&mut values);
        (!values.is_empty()).then_some(Spread(values))
    }

    /// Their number.
    pub(super) fn n(&self) -> usize {
        self.0.len()
    }

    /// Their sum.
    pub(super) fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Their mean.
    pub(super) fn mean(&self) -> f64 {
        moments::mean(&self.0).unwrap_or_default()
    }

    /// Their deviation, with n below the line.
    pub(super) fn sd(&self) -> f64 {
        moments::population_sd(&self.0).unwrap_or_default()
    }

    /// The least.
    pub(super) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or_default()
    }

    /// The greatest.
    pub(super) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }

    /// The quantile of that percent, between its neighbours.
    pub(super) fn linear(&self, percent: f64) -> f64 {
        quantile(&self.0, percent / 100.0, Method::Linear).unwrap_or_default()
    }

    /// The quantile of that percent by nearest rank.
    pub(super) fn nearest(&self, percent: f64) -> f64 {
        quantile(&self.0, percent / 100.0, Method::NearestRank).unwrap_or_default()
    }
}

/// A number with so many decimals at the most.
pub(super) fn rounded(value: f64, decimals: usize) -> f64 {
    format!("{value:.decimals$}").parse().unwrap_or(value)
}

/// Milliseconds as seconds, whole nanoseconds.
pub(super) fn secs(millis: f64) -> f64 {
    (millis * 1e6).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kinds_of_quantiles() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.linear(50.0), spread.nearest(50.0), spread.linear(99.0)), (2.5, 2.0, 3.9699999999999998));
        assert_eq!((spread.n(), spread.sum(), spread.mean(), spread.min(), spread.max()), (4, 10.0, 2.5, 1.0, 4.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn numbers_are_rounded_as_they_print() {
        assert_eq!((rounded(1.00005, 4), rounded(-0.5, 4), rounded(2.675, 2)), (1.0001, -0.5, 2.67));
        assert_eq!((secs(12.345678), secs(0.1)), (0.012345678, 0.0001));
    }
}
