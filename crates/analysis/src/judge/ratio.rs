//! Limits on means and throughputs, by batch means with Student's t.

use crate::judge::assessment::Assessment;
use crate::measured_requests::MeasuredRequest;
use crate::sample::Sample;
use crate::sending::{Amounts, Flow};
use llmscen_core::check::{Check, Ruling};
use llmscen_core::metric::Metric;
use llmscen_core::stats::design::{Unit, ratio};
use llmscen_core::stats::long_run::{self, Arrivals, BINS, LEAST, LongRun, ROUNDS};
use llmscen_core::stats::quantile::select_quantile;

/// Judges a ratio with the point estimate `observed`, at confidence `level`.
pub(super) fn judge_ratio(check: &Check, units: &Units, observed: f64, level: f64) -> Assessment {
    let open = Assessment {
        ruling: Ruling::Inconclusive,
        ..Assessment::point(false, observed, units.n)
    };
    let Some(long_run) = &units.long_run else {
        return too_few_for_bound(units, open);
    };
    let (low, high) = long_run.ends(level);
    let (worst, best) = if check.op.is_ceiling() {
        (high, low)
    } else {
        (low, high)
    };
    let ruling = match () {
        () if check.op.holds(worst, check.limit) => Ruling::Pass,
        () if !check.op.holds(best, check.limit) => Ruling::Fail,
        () => Ruling::Inconclusive,
    };
    let end = if check.op.holds(observed, check.limit) {
        worst
    } else {
        best
    };
    let need = (ruling == Ruling::Inconclusive)
        .then(|| required(units.n, observed, end, check.limit))
        .flatten();
    let more = if ruling == Ruling::Inconclusive {
        "; increase `rounds`"
    } else {
        ""
    };
    let by_rounds = units.by_round && long_run.errors.last() == Some(&long_run.deciding(level));
    let note = by_rounds.then(|| format!("the bound comes from the variance between rounds{more}"));
    Assessment {
        ruling,
        bound: Some(worst),
        need,
        ..open
    }
    .with_note(note)
}

fn too_few_for_bound(units: &Units, open: Assessment) -> Assessment {
    let missing = (LEAST as u64).saturating_sub(units.counted);
    let what = match (units.counted == units.n, units.counted == 1) {
        (true, true) => "request is",
        (true, false) => "requests are",
        (false, true) => "request that ended before sending stopped is",
        (false, false) => "requests that ended before sending stopped are",
    };
    let note = format!(
        "{} {what} too few for a bound; at least {LEAST} are required",
        units.counted
    );
    Assessment {
        need: Some(units.n + missing),
        ..open
    }
    .with_note(Some(note))
}

/// The n at which the bound reaches the limit: its distance shrinks with the square root of n.
fn required(n: u64, observed: f64, end: f64, limit: f64) -> Option<u64> {
    let times = ((end - observed) / (limit - observed)).powi(2);
    times
        .is_finite()
        .then(|| ((n as f64 * times).ceil() as u64).max(n + 1))
}

// The estimate of a mean or a throughput with its standard errors.

/// A mean, or a throughput.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Units {
    /// Number of requests.
    pub n: u64,
    /// Requests that the bound is based on: for a throughput those that ended in its window, else all.
    pub counted: u64,
    /// Whether the variance between rounds counts, too.
    pub by_round: bool,
    /// The estimate; None without data.
    pub observed: Option<f64>,
    /// The estimate with its standard errors; None with too few requests.
    pub long_run: Option<LongRun>,
}

/// The mean of a metric over ok requests. The gaps of a request form one unit.
pub(super) fn mean_units(requests: &[MeasuredRequest<'_>], metric: Metric) -> Units {
    let unit = |request: &MeasuredRequest<'_>| {
        let values = request.samples(metric);
        (!values.is_empty()).then(|| {
            (
                request.round(),
                Unit {
                    amount: values.iter().sum(),
                    weight: values.len() as f64,
                },
            )
        })
    };
    mean_of_units(requests.iter().filter_map(unit).unzip())
}

/// A throughput, or the mean per-user throughput, over the requests that `tags` selects; None for other metrics.
pub(super) fn throughput_units(
    requests: &[MeasuredRequest<'_>],
    metric: Metric,
    sample: &Sample,
    tags: &[(String, String)],
) -> Option<Units> {
    let scale = match metric {
        Metric::OutputTpsPerUser => {
            let unit = |request: &MeasuredRequest<'_>| {
                Some((
                    request.round(),
                    Unit {
                        amount: request.user_tps()?,
                        weight: 1.0,
                    },
                ))
            };
            return Some(mean_of_units(requests.iter().filter_map(unit).unzip()));
        }
        metric if metric.is_rate() => share_of_gpus(metric, sample),
        _ => return None,
    };
    let known = requests
        .iter()
        .any(|request| request.ok() && request.credit(metric).is_some())
        || metric == Metric::RequestThroughput;
    if !known || scale <= 0.0 {
        return Some(Units::default());
    }
    let flows: Vec<&Flow> = sample
        .flows
        .iter()
        .filter(|flow| flow.tags().match_all(tags))
        .collect();
    let ended: f64 = flows
        .iter()
        .flat_map(|flow| flow.bins.values())
        .map(|amounts| amounts.ended)
        .sum();
    let arrivals = arrivals(&flows, &sample.sending, |bin| bin.amount(metric));
    let rate = long_run::rate(&arrivals, request_seconds(sample)).map(|rate| rate.scaled(scale));
    Some(Units {
        n: requests.len() as u64,
        counted: ended as u64,
        by_round: arrivals.len() >= ROUNDS,
        observed: rate.as_ref().map(|rate| rate.value),
        long_run: rate.filter(|_| ended >= long_run::LEAST as f64),
    })
}

/// What arrived in each round that has a throughput window.
fn arrivals(flows: &[&Flow], sending: &[f64], amount: impl Fn(&Amounts) -> f64) -> Vec<Arrivals> {
    let of_round = |(round, seconds): (usize, &f64)| {
        let mut bins = vec![0.0; BINS];
        for (bin, amounts) in flows
            .iter()
            .filter(|flow| flow.round as usize == round)
            .flat_map(|flow| &flow.bins)
        {
            if let Some(sum) = bins.get_mut(usize::from(*bin)) {
                *sum += amount(amounts);
            }
        }
        Arrivals {
            seconds: *seconds,
            bins,
        }
    };
    sending
        .iter()
        .enumerate()
        .filter(|(_, seconds)| **seconds > 0.0)
        .map(of_round)
        .collect()
}

/// Median duration of the ok requests in seconds; 0 where none succeeded.
fn request_seconds(sample: &Sample) -> f64 {
    let mut took: Vec<f64> = sample
        .requests
        .iter()
        .filter(|request| request.ok())
        .map(|request| request.busy_ms() / 1e3)
        .collect();
    select_quantile(&mut took, 0.5).unwrap_or(0.0)
}

/// One over the number of GPUs for a throughput per GPU, 0 where the number is unknown; 1 for other throughputs.
fn share_of_gpus(metric: Metric, sample: &Sample) -> f64 {
    if metric == metric.undivided() {
        return 1.0;
    }
    let scalar = |metric| {
        sample
            .scalars
            .get(&metric)
            .copied()
            .filter(|&value| value > 0.0)
    };
    scalar(metric)
        .zip(scalar(metric.undivided()))
        .map_or(0.0, |(one, all)| one / all)
}

fn mean_of_units((rounds, units): (Vec<u32>, Vec<Unit>)) -> Units {
    let n = units.len() as u64;
    let observed = units
        .iter()
        .any(|unit| unit.weight > 0.0)
        .then(|| ratio(&units));
    let by_round = rounds.chunk_by(|a, b| a == b).count() >= ROUNDS;
    Units {
        n,
        counted: n,
        by_round,
        observed,
        long_run: long_run::mean(&units, &rounds),
    }
}

#[cfg(test)]
mod tests;
