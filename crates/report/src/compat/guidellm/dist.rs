//! A distribution of weighted values as GuideLLM summarises it: quantiles by nearest rank over the weights, the deviation of a
//! population.

use serde_json::{Map, Value, json};

/// The quantiles of every summary.
const SHARES: [(&str, f64); 11] = [
    ("p001", 0.001),
    ("p01", 0.01),
    ("p05", 0.05),
    ("p10", 0.10),
    ("p25", 0.25),
    ("p50", 0.50),
    ("p75", 0.75),
    ("p90", 0.90),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p999", 0.999),
];

/// A summary. Without values every figure is 0, as theirs is: a count of 0 says so.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Dist {
    pub mean: f64,
    pub mode: f64,
    pub variance: f64,
    pub min: f64,
    pub max: f64,
    pub count: u64,
    pub sum: f64,
    pub quantiles: [f64; 11],
}

impl Dist {
    /// Of values, each counted once.
    pub(super) fn of(values: Vec<f64>) -> Dist {
        Dist::weighted(values.into_iter().map(|value| (value, 1.0)).collect(), None)
    }

    /// Of values and their weights; `count` where the weights do not tell how many there are.
    pub(super) fn weighted(mut values: Vec<(f64, f64)>, count: Option<u64>) -> Dist {
        let all: f64 = values.iter().map(|(_, weight)| weight).sum();
        let count = count.unwrap_or(all.round() as u64);
        values.retain(|(_, weight)| *weight > 0.0);
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (Some((min, _)), Some((max, _))) = (values.first().copied(), values.last().copied()) else {
            return Dist { count, ..Dist::default() };
        };
        let mean = values.iter().map(|(value, weight)| value * weight / all).sum::<f64>();
        let variance = values.iter().map(|(value, weight)| (value - mean).powi(2) * weight / all).sum();
        let (mode, quantiles) = (mode(&values), quantiles(&values, all));
        Dist { mean, mode, variance, min, max, count, sum: mean * count as f64, quantiles }
    }

    /// The median, by nearest rank too.
    pub(super) fn median(&self) -> f64 {
        self.quantiles[5]
    }

    /// The deviation.
    pub(super) fn sd(&self) -> f64 {
        self.variance.sqrt()
    }

    /// The summary as JSON.
    pub(super) fn json(&self) -> Value {
        let quantiles = SHARES.iter().zip(self.quantiles).map(|((name, _), value)| ((*name).to_owned(), json!(value)));
        json!({
            "mean": self.mean,
            "median": self.median(),
            "mode": self.mode,
            "variance": self.variance,
            "std_dev": self.sd(),
            "min": self.min,
            "max": self.max,
            "count": self.count,
            "total_sum": self.sum,
            "percentiles": quantiles.collect::<Map<_, _>>(),
            "pdf": null,
            "mean_ci": null,
            "percentile_cis": null,
        })
    }
}

/// The value of the greatest weight; of several, the least.
fn mode(sorted: &[(f64, f64)]) -> f64 {
    let mut best = (0.0, 0.0);
    for same in sorted.chunk_by(|a, b| a.0 == b.0) {
        let weight: f64 = same.iter().map(|(_, weight)| weight).sum();
        if let Some((value, _)) = same.first().filter(|_| weight > best.1) {
            best = (*value, weight);
        }
    }
    best.0
}

/// The first value at which the weights reach each share.
fn quantiles(sorted: &[(f64, f64)], all: f64) -> [f64; 11] {
    let (mut out, mut next, mut reached) = ([0.0; 11], 0, 0.0);
    let last = sorted.last().map_or(0.0, |(value, _)| *value);
    for (value, weight) in sorted {
        reached += weight;
        while let Some((place, (_, share))) = out.get_mut(next).zip(SHARES.get(next)) {
            // What a sum of floats lacks is no rank.
            if reached < share * all * (1.0 - 1e-12) {
                break;
            }
            *place = *value;
            next += 1;
        }
    }
    out.iter_mut().skip(next).for_each(|place| *place = last);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_count() {
        let seen = Dist::weighted(vec![(3.0, 1.0), (1.0, 3.0), (9.0, 0.0)], None);
        assert_eq!((seen.mean, seen.variance, seen.mode, seen.median()), (1.5, 0.75, 1.0, 1.0));
        assert_eq!((seen.min, seen.max, seen.count, seen.sum, seen.quantiles[7]), (1.0, 3.0, 4, 6.0, 3.0));
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let seen = Dist::of((1..=100).rev().map(f64::from).collect());
        assert_eq!(seen.quantiles, [1.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0]);
        assert_eq!((seen.mean, seen.count), (50.5, 100));
        assert_eq!(Dist::of(Vec::new()), Dist::default());
    }
}
