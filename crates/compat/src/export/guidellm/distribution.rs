//! Distributions as GuideLLM summarizes them: weighted values, and rates and concurrency weighted by time.

use serde_json::{Map, Value, json};

/// The quantiles of a distribution.
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

/// A distribution of weighted values. Without values everything is 0, as in GuideLLM.
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
    /// The distribution of values with equal weights.
    pub(super) fn new(values: Vec<f64>) -> Dist {
        Dist::weighted(values.into_iter().map(|value| (value, 1.0)).collect(), None)
    }

    /// The distribution of values with weights; `count`: the number of values, if it is not the sum of the weights.
    pub(super) fn weighted(mut values: Vec<(f64, f64)>, count: Option<u64>) -> Dist {
        let total: f64 = values.iter().map(|(_, weight)| weight).sum();
        let count = count.unwrap_or(total.round() as u64);
        values.retain(|(_, weight)| *weight > 0.0);
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (Some((min, _)), Some((max, _))) = (values.first().copied(), values.last().copied())
        else {
            return Dist {
                count,
                ..Dist::default()
            };
        };
        let mean = values
            .iter()
            .map(|(value, weight)| value * weight / total)
            .sum::<f64>();
        let variance = values
            .iter()
            .map(|(value, weight)| (value - mean).powi(2) * weight / total)
            .sum();
        Dist {
            mean,
            mode: mode(&values),
            variance,
            min,
            max,
            count,
            sum: mean * count as f64,
            quantiles: quantiles(&values, total),
        }
    }

    /// The median by nearest rank.
    pub(super) fn median(&self) -> f64 {
        self.quantiles[5]
    }

    /// The standard deviation.
    pub(super) fn sd(&self) -> f64 {
        self.variance.sqrt()
    }

    /// The distribution as JSON.
    pub(super) fn json(&self) -> Value {
        let quantiles = SHARES
            .iter()
            .zip(self.quantiles)
            .map(|((name, _), value)| ((*name).to_owned(), json!(value)));
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

/// The value with the greatest weight; the least of several.
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
fn quantiles(sorted: &[(f64, f64)], total: f64) -> [f64; 11] {
    let mut out = [0.0; 11];
    let mut next = 0;
    let mut reached = 0.0;
    let last = sorted.last().map_or(0.0, |(value, _)| *value);
    for (value, weight) in sorted {
        reached += weight;
        while let Some((quantile, (_, share))) = out.get_mut(next).zip(SHARES.get(next)) {
            // Allows for rounding errors of the sum.
            if reached < share * total * (1.0 - 1e-12) {
                break;
            }
            *quantile = *value;
            next += 1;
        }
    }
    out.iter_mut()
        .skip(next)
        .for_each(|quantile| *quantile = last);
    out
}

/// Events within this many seconds count as simultaneous.
const SIMULTANEOUS: f64 = 1e-4;

/// Events per second from 0 to `until` seconds, weighted by time: each event covers the time nearest to it.
pub(super) fn rate_over_time(mut events: Vec<(f64, f64)>, until: f64) -> Dist {
    events.retain(|(at, _)| (0.0..=until).contains(at));
    events.extend([(0.0, 0.0), (until, 0.0)]);
    let events = merge_simultaneous(events);
    if events.len() < 2 {
        return Dist {
            count: events.len() as u64,
            ..Dist::default()
        };
    }
    let count: f64 = events.iter().map(|(_, weight)| weight).sum();
    let mut from = events.first().map_or(0.0, |(at, _)| *at);
    let mut rates = Vec::with_capacity(events.len());
    for pair in events.windows(2) {
        if let [(at, weight), (next, _)] = pair {
            let to = (at + next) / 2.0;
            rates.push((weight / (to - from), to - from));
            from = to;
        }
    }
    if let Some((at, weight)) = events.last() {
        let span = (at - from).max(1e-6);
        rates.push((weight / span, span));
    }
    Dist::weighted(rates, Some(count.round() as u64))
}

/// The number of overlapping spans from 0 to `until` seconds, weighted by time.
pub(super) fn concurrency_over_time(spans: &[(f64, f64)], until: f64) -> Dist {
    let spans = spans
        .iter()
        .filter(|(from, to)| *to >= 0.0 && *from <= until);
    let mut changes: Vec<(f64, f64)> = spans
        .clone()
        .flat_map(|&(from, to)| [(from.max(0.0), 1.0), (to, -1.0)])
        .collect();
    let count = spans.count() as u64;
    changes.retain(|(at, _)| *at <= until);
    changes.push((until, 0.0));
    let mut level = 0.0;
    let changes = merge_simultaneous(changes);
    let levels = changes.windows(2).filter_map(|pair| match pair {
        [(at, step), (next, _)] => {
            level += step;
            Some((f64::max(level, 0.0), next - at))
        }
        _ => None,
    });
    Dist::weighted(levels.collect(), Some(count))
}

/// Sorts events and adds up those within [`SIMULTANEOUS`] of the first of a group.
fn merge_simultaneous(mut events: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut out: Vec<(f64, f64)> = Vec::with_capacity(events.len());
    for (at, weight) in events {
        match out.last_mut() {
            Some((first, sum)) if at - *first <= SIMULTANEOUS => *sum += weight,
            _ => out.push((at, weight)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_weighted() {
        let dist = Dist::weighted(vec![(3.0, 1.0), (1.0, 3.0), (9.0, 0.0)], None);
        assert_eq!(
            (dist.mean, dist.variance, dist.mode, dist.median()),
            (1.5, 0.75, 1.0, 1.0)
        );
        assert_eq!(
            (dist.min, dist.max, dist.count, dist.sum, dist.quantiles[7]),
            (1.0, 3.0, 4, 6.0, 3.0)
        );
    }

    #[test]
    fn quantiles_are_measured_values() {
        let dist = Dist::new((1..=100).rev().map(f64::from).collect());
        assert_eq!(
            dist.quantiles,
            [
                1.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0
            ]
        );
        assert_eq!((dist.mean, dist.count), (50.5, 100));
        assert_eq!(Dist::new(Vec::new()), Dist::default());
    }

    #[test]
    fn the_mean_rate_is_events_over_time() {
        let dist = rate_over_time(vec![(1.0, 1.0), (2.0, 1.0), (4.0, 2.0)], 4.0);
        assert_eq!(
            (dist.mean, dist.count, dist.min, dist.max),
            (1.0, 4, 0.0, 2.0)
        );
        assert_eq!(rate_over_time(Vec::new(), 0.0).count, 1);
    }

    #[test]
    fn concurrency_is_weighted_by_time() {
        let dist = concurrency_over_time(&[(0.0, 2.0), (1.0, 4.0)], 4.0);
        assert_eq!(
            (dist.mean, dist.max, dist.count, dist.median()),
            (1.25, 2.0, 2, 1.0)
        );
    }
}
