//! The evidence of one case of one run for each measure.

use crate::judge::design_effect::{dependence_of_units, ordered_requests};
use crate::judge::ratio::{self, Units};
use crate::measured_requests::MeasuredRequest;
use crate::sample::{Sample, values};
use llmscen_core::compare::{Measure, Reading};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::seed::Seed;
use llmscen_core::stats::design::Unit;
use llmscen_core::stats::quantile::{order_statistic, select_quantile, sort};
use llmscen_core::stats::quantile_bound::allowed;
use llmscen_core::stats::share;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// Maximum number of values that an effect size is computed from, which is then accurate to about 0.01; more are
/// thinned.
const MAX_VALUES: usize = 20_000;

/// The evidence of one case of one run, small enough to keep while the next run is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Case id.
    pub case: String,
    /// One reading per measure.
    pub(super) readings: Vec<Reading>,
    /// For shares, `(hits, requests)` in effective samples.
    pub(super) shares: Vec<Option<(u64, u64)>>,
    /// Degrees of freedom of the bounds; infinite where they do not come from Student's t.
    pub(super) freedom: Vec<f64>,
    /// Thinned ascending values of the metrics that have a distribution.
    pub(super) values: BTreeMap<Metric, Vec<f64>>,
}

/// Whether a measure has a confidence interval, by which a difference can be tested: quantiles, means, throughputs
/// and shares of requests.
pub fn is_comparable(measure: Measure) -> bool {
    match (measure.metric.per(), measure.stat) {
        (Scope::Case, None) => {
            let metric = measure.metric;
            metric.is_rate() || metric.is_request_share() || metric == Metric::OutputTpsPerUser
        }
        (Scope::Request | Scope::Gap, Some(Stat::Quantile(p))) => p > 0.0 && p < 1.0,
        (Scope::Request | Scope::Gap, Some(Stat::Mean)) => true,
        _ => false,
    }
}

/// Summarizes a case of a run for a comparison, with bounds at confidence `level`. `seed` thins the values for effect
/// sizes.
pub fn summarize_side(
    case: &str,
    sample: &Sample,
    measures: &[Measure],
    level: f64,
    seed: Seed,
) -> Side {
    let requests = ordered_requests(sample, &[]);
    let mut side = Side {
        case: case.to_owned(),
        readings: Vec::new(),
        shares: Vec::new(),
        freedom: Vec::new(),
        values: BTreeMap::new(),
    };
    // Measures of one metric are consecutive, so its values are collected once.
    let mut pooled_metric = None;
    let mut pooled = Vec::new();
    for measure in measures {
        let metric = measure.metric;
        if measure.stat.is_some() && pooled_metric != Some(metric) {
            pooled_metric = Some(metric);
            pooled = values(&requests, metric);
            side.values.insert(metric, thin(&pooled, seed));
        }
        let mut share = None;
        let mut freedom = f64::INFINITY;
        let mut long_run = |units: &Units| {
            freedom = units
                .long_run
                .as_ref()
                .map_or(f64::INFINITY, |run| run.deciding(level).freedom);
            ratio_reading(units, level)
        };
        let reading = match measure.stat {
            Some(Stat::Quantile(p)) => quantile_reading(&requests, metric, &mut pooled, p, level),
            Some(_) => long_run(&ratio::mean_units(&requests, metric)),
            None if metric.is_request_share() => {
                let (reading, effective) = share_reading(&requests, metric, level);
                share = effective;
                reading
            }
            None => long_run(
                &ratio::throughput_units(&requests, metric, sample, &[]).unwrap_or_default(),
            ),
        };
        side.readings.push(reading);
        side.shares.push(share);
        side.freedom.push(freedom);
    }
    side
}

/// A random one of every k consecutive values: the k-th would be the same gap of each request where k is a multiple
/// of its gaps.
fn thin(values: &[f64], seed: Seed) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.0);
    let pick = |chunk: &[f64]| {
        chunk
            .get(rng.random_range(0..chunk.len().max(1) as u32) as usize)
            .copied()
    };
    let mut picked: Vec<f64> = values
        .chunks(values.len().div_ceil(MAX_VALUES).max(1))
        .filter_map(pick)
        .collect();
    sort(&mut picked);
    picked
}

/// A quantile with order statistics as bounds (Woodruff, "Confidence intervals for medians and other position
/// measures", Journal of the American Statistical Association 47, 1952): exact binomial bounds at the effective
/// sample size, since values of one request and of consecutive requests are correlated.
fn quantile_reading<'a>(
    requests: &[MeasuredRequest<'a>],
    metric: Metric,
    values: &mut [f64],
    p: f64,
    level: f64,
) -> Reading {
    let n = values.len() as u64;
    let Some(value) = select_quantile(values, p).filter(|_| n > 0) else {
        return Reading::default();
    };
    let over = |request: &MeasuredRequest<'a>| {
        let samples = request.samples(metric);
        let amount = samples.iter().filter(|sample| *sample > value).count() as f64;
        let weight = samples.len() as f64;
        (!samples.is_empty()).then_some((*request, Unit { amount, weight }))
    };
    let (with_value, units): (Vec<MeasuredRequest<'_>>, Vec<Unit>) =
        requests.iter().filter_map(over).unzip();
    let design = dependence_of_units(&with_value, units).times();
    let effective = ((n as f64 / design) as u64).max(1);
    Reading {
        value: Some(value),
        bounds: quantile_bounds(values, p, effective, level),
        n,
        design,
        ..Reading::default()
    }
}

fn quantile_bounds(values: &mut [f64], p: f64, effective: u64, level: f64) -> Option<(f64, f64)> {
    let n = values.len();
    let scaled = |count: u64| (count as f64 * n as f64 / effective as f64) as usize;
    let over = allowed(effective, 1.0, 1.0 - p, level)?;
    let under = allowed(effective, 1.0, p, level)?;
    order_statistic(values, scaled(under) + 1)
        .zip(order_statistic(values, n.checked_sub(scaled(over))?))
}

/// A mean or a throughput, by batch means and rounds with Student's t.
fn ratio_reading(units: &Units, level: f64) -> Reading {
    let Some(value) = units.observed else {
        return Reading::default();
    };
    let design = units.long_run.as_ref().map_or(1.0, |run| run.effect);
    Reading {
        value: Some(value),
        bounds: units.long_run.as_ref().map(|run| run.ends(level)),
        is_of_whole_run: units.whole.is_some(),
        n: units.n,
        design,
        replicates: 0,
    }
}

/// A share of the requests with exact bounds at the effective sample size, since failures occur in bursts; and that
/// share in effective samples.
fn share_reading(
    requests: &[MeasuredRequest<'_>],
    metric: Metric,
    level: f64,
) -> (Reading, Option<(u64, u64)>) {
    let (requests, units): (Vec<MeasuredRequest<'_>>, Vec<Unit>) = requests
        .iter()
        .filter_map(|request| {
            let unit = Unit {
                amount: f64::from(u8::from(request.is_hit(metric)?)),
                weight: 1.0,
            };
            Some((*request, unit))
        })
        .unzip();
    let hits = units.iter().map(|unit| unit.amount).sum::<f64>();
    let n = units.len() as f64;
    if n == 0.0 {
        return (Reading::default(), None);
    }
    let design = dependence_of_units(&requests, units).times();
    let effective_hits = (hits / design).round();
    let effective_n = (n / design).round().max(1.0);
    let bounds = (
        share::lower(effective_hits, effective_n, level),
        share::upper(effective_hits, effective_n, level),
    );
    let reading = Reading {
        value: Some(hits / n),
        bounds: Some(bounds),
        n: n as u64,
        design,
        ..Reading::default()
    };
    (reading, Some((effective_hits as u64, effective_n as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_takes_any_gap_of_a_request_and_few_values_whole() {
        // Forty gaps of each of 20,000 requests: every fortieth would be the first of each.
        let gaps: Vec<f64> = (0..800_000).map(|index| f64::from(index % 40)).collect();
        let some = thin(&gaps, Seed(1));
        let mean = some.iter().sum::<f64>() / some.len() as f64;
        assert!(
            some.len() == MAX_VALUES && (mean - 19.5).abs() < 0.5,
            "{} {mean}",
            some.len()
        );
        assert_eq!(
            (
                thin(&gaps, Seed(1)) == some,
                thin(&[3.0, 1.0], Seed(1)),
                thin(&[], Seed(1))
            ),
            (true, vec![1.0, 3.0], vec![])
        );
    }
}
