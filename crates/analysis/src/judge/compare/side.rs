//! What one case of one run says about each measure, without any other run.

use crate::judge::ratio::{self, Units};
use crate::measured_requests::MeasuredRequest;
use crate::sample::{Sample, values};
use llmscen_core::compare::{Measure, Reading};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::seed::Seed;
use llmscen_core::stats::design::Unit;
use llmscen_core::stats::quantile::{order_statistic, select_quantile, sort};
use llmscen_core::stats::quantile_bound::allowed;
use llmscen_core::stats::{design, share};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// Values that an effect size is taken from at the most: one of every k of more. It is then sure to about one hundredth.
const ROOM: usize = 20_000;

/// The evidence of one case of one run, small enough to keep while the next run is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Case id.
    pub case: String,
    /// In the order of the measures.
    pub(super) readings: Vec<Reading>,
    /// Of shares, `(hits, requests)` as far as they are independent.
    pub(super) shares: Vec<Option<(u64, u64)>>,
    /// Degrees of freedom behind the bounds; infinite where these are no Student's t.
    pub(super) freedom: Vec<f64>,
    /// Ascending values of the metrics that have a distribution, thinned.
    pub(super) values: BTreeMap<Metric, Vec<f64>>,
}

/// Whether a measure has an interval that could tell a difference from noise: quantiles and means, throughputs, and the rate
/// of errors.
pub fn comparable(measure: Measure) -> bool {
    use Metric::{ErrorRate, OutputTps, OutputTpsPerGpu, OutputTpsPerUser, RequestThroughput, TotalTps};
    match (measure.metric.per(), measure.stat) {
        (Scope::Case, None) => {
            [ErrorRate, OutputTps, OutputTpsPerGpu, OutputTpsPerUser, RequestThroughput, TotalTps].contains(&measure.metric)
        }
        (Scope::Request | Scope::Gap, Some(Stat::Quantile(p))) => p > 0.0 && p < 1.0,
        (Scope::Request | Scope::Gap, Some(Stat::Mean)) => true,
        _ => false,
    }
}

/// The side of a case, bounds at confidence `level` each. `seed`: of the values that an effect size is taken from.
pub fn side(case: &str, sample: &Sample, measures: &[Measure], level: f64, seed: Seed) -> Side {
    let requests: Vec<MeasuredRequest<'_>> = sample.requests.iter().collect();
    let mut side =
        Side { case: case.to_owned(), readings: Vec::new(), shares: Vec::new(), freedom: Vec::new(), values: BTreeMap::new() };
    // Measures of one metric stand together, so that its values are gathered once.
    let mut pool: (Option<Metric>, Vec<f64>) = (None, Vec::new());
    for measure in measures {
        let metric = measure.metric;
        if measure.stat.is_some() && pool.0 != Some(metric) {
            pool = (Some(metric), values(&requests, metric));
            side.values.insert(metric, thinned(&pool.1, seed));
        }
        let (mut share, mut freedom) = (None, f64::INFINITY);
        let mut long_run = |units: &Units| {
            freedom = units.long_run.as_ref().map_or(f64::INFINITY, |own| own.deciding(level).freedom);
            ratio(units, level)
        };
        let reading = match measure.stat {
            Some(Stat::Quantile(p)) => quantile(&requests, metric, &mut pool.1, p, level),
            Some(_) => long_run(&ratio::mean_units(&requests, metric)),
            None if metric == Metric::ErrorRate => {
                let (reading, worth) = errors(&requests, level);
                share = worth;
                reading
            }
            None => long_run(&ratio::throughput_units(&requests, metric, sample, &[]).unwrap_or_default()),
        };
        side.readings.push(reading);
        side.shares.push(share);
        side.freedom.push(freedom);
    }
    side
}

/// One of every k neighbours by chance: every k-th would be the same gap of each request where k is a multiple of its gaps.
fn thinned(values: &[f64], seed: Seed) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.0);
    let one = |of: &[f64]| of.get(rng.random_range(0..of.len().max(1) as u32) as usize).copied();
    let mut some: Vec<f64> = values.chunks(values.len().div_ceil(ROOM).max(1)).filter_map(one).collect();
    sort(&mut some);
    some
}

/// A quantile between order statistics (Woodruff, "Confidence intervals for medians and other position measures", Journal of
/// the American Statistical Association 47, 1952): the exact binomial bounds of as many values as these are worth, where
/// those of one request and of neighbours are not independent.
fn quantile(requests: &[MeasuredRequest<'_>], metric: Metric, values: &mut [f64], p: f64, level: f64) -> Reading {
    let n = values.len() as u64;
    let Some(value) = select_quantile(values, p).filter(|_| n > 0) else { return Reading::default() };
    let over = |request: &MeasuredRequest<'_>| {
        let samples = request.samples(metric);
        let amount = samples.iter().filter(|sample| **sample > value).count() as f64;
        (!samples.is_empty()).then_some((request.round(), Unit { amount, weight: samples.len() as f64 }))
    };
    let (rounds, units): (Vec<u32>, Vec<Unit>) = requests.iter().filter_map(over).unzip();
    let design = design::dependence(&units, &rounds).times();
    let worth = ((n as f64 / design) as u64).max(1);
    Reading { value: Some(value), bounds: bounds(values, p, worth, level), n, design, replicates: 0 }
}

fn bounds(values: &mut [f64], p: f64, worth: u64, level: f64) -> Option<(f64, f64)> {
    let n = values.len();
    let scaled = |count: u64| (count as f64 * n as f64 / worth as f64) as usize;
    let (over, under) = (allowed(worth, 1.0, 1.0 - p, level)?, allowed(worth, 1.0, p, level)?);
    order_statistic(values, scaled(under) + 1).zip(order_statistic(values, n.checked_sub(scaled(over))?))
}

/// A mean or a throughput, by batches and rounds with Student's t.
fn ratio(units: &Units, level: f64) -> Reading {
    let Some(value) = units.observed else { return Reading::default() };
    let design = units.long_run.as_ref().map_or(1.0, |own| own.effect);
    Reading { value: Some(value), bounds: units.long_run.as_ref().map(|own| own.ends(level)), n: units.n, design, replicates: 0 }
}

/// The share of requests that failed, by the exact bounds of as many as these are worth: failures come in bursts.
fn errors(requests: &[MeasuredRequest<'_>], level: f64) -> (Reading, Option<(u64, u64)>) {
    let kept = requests.iter().filter(|request| !request.left());
    let (rounds, units): (Vec<u32>, Vec<Unit>) =
        kept.map(|request| (request.round(), Unit { amount: f64::from(u8::from(!request.ok())), weight: 1.0 })).unzip();
    let (hits, n) = (units.iter().map(|unit| unit.amount).sum::<f64>(), units.len() as f64);
    if n == 0.0 {
        return (Reading::default(), None);
    }
    let design = design::dependence(&units, &rounds).times();
    let worth = ((hits / design).round() as u64, (n / design).round().max(1.0) as u64);
    let bounds = {
        let (hits, n) = (worth.0 as f64, worth.1 as f64);
        (share::lower(hits, n, level), share::upper(hits, n, level))
    };
    (Reading { value: Some(hits / n), bounds: Some(bounds), n: n as u64, design, replicates: 0 }, Some(worth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_takes_any_gap_of_a_request_and_few_values_whole() {
        // Forty gaps of each of 20,000 requests: every fortieth would be the first of each.
        let gaps: Vec<f64> = (0..800_000).map(|index| f64::from(index % 40)).collect();
        let some = thinned(&gaps, Seed(1));
        let mean = some.iter().sum::<f64>() / some.len() as f64;
        assert!(some.len() == ROOM && (mean - 19.5).abs() < 0.5, "{} {mean}", some.len());
        assert_eq!(
            (thinned(&gaps, Seed(1)) == some, thinned(&[3.0, 1.0], Seed(1)), thinned(&[], Seed(1))),
            (true, vec![1.0, 3.0], vec![])
        );
    }
}
