//! Limits on means and throughputs, by batch means with Student's t.

use crate::judge::assessment::Assessment;
use crate::measured_requests::MeasuredRequest;
use crate::sample::Sample;
use crate::scalars::exists;
use crate::sending::{Amounts, Flow, WholeReason};
use llmscen_core::check::{Check, Ruling, Subject};
use llmscen_core::metric::Metric;
use llmscen_core::stats::design::{Unit, ratio, without_plan};
use llmscen_core::stats::long_run::{self, Arrivals, BINS, LEAST, LongRun, ROUNDS};
use llmscen_core::stats::quantile::select_quantile;

/// Judges a ratio with the point estimate `observed`, at confidence `level`.
pub(super) fn judge_ratio(check: &Check, units: &Units, observed: f64, level: f64) -> Assessment {
    let open = Assessment {
        ruling: Ruling::Inconclusive,
        ..Assessment::point(false, observed, units.n)
    };
    let Some(long_run) = &units.long_run else {
        return too_few_for_bound(check, units, open);
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

fn too_few_for_bound(check: &Check, units: &Units, open: Assessment) -> Assessment {
    let missing = (LEAST as u64).saturating_sub(units.counted);
    let noun = match check.subject {
        Subject::Metric { metric, .. } if metric.is_session_rate() => "session",
        _ => "request",
    };
    let (s, is) = if units.counted == 1 {
        ("", "is")
    } else {
        ("s", "are")
    };
    let ended = if units.counted == units.n {
        ""
    } else {
        " that ended before sending stopped"
    };
    let what = format!("{noun}{s}{ended} {is}");
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
    /// Number of requests or sessions.
    pub n: u64,
    /// Requests or sessions that the bound is based on: for a throughput those that ended in its window, else all.
    pub counted: u64,
    /// Whether the variance between rounds counts, too.
    pub by_round: bool,
    /// The estimate; None without data.
    pub observed: Option<f64>,
    /// The estimate with its standard errors; None with too few requests.
    pub long_run: Option<LongRun>,
    /// Why a throughput is over whole rounds, of which no long-run value is known.
    pub whole: Option<WholeReason>,
}

/// The mean of a metric over ok requests. The gaps of a request form one unit.
pub(super) fn mean_units(requests: &[MeasuredRequest<'_>], metric: Metric) -> Units {
    let unit = |request: &MeasuredRequest<'_>| {
        let values = request.samples(metric);
        (!values.is_empty()).then(|| Unit {
            amount: values.iter().sum(),
            weight: values.len() as f64,
        })
    };
    mean_of_units(requests, unit)
}

/// A throughput, the mean per-user throughput, or the cached share, over the requests that `tags` selects; None for
/// other metrics.
pub(super) fn throughput_units(
    requests: &[MeasuredRequest<'_>],
    metric: Metric,
    sample: &Sample,
    tags: &[(String, String)],
) -> Option<Units> {
    let scale = match metric {
        Metric::OutputTpsPerUser => {
            let unit = |request: &MeasuredRequest<'_>| {
                Some(Unit {
                    amount: request.user_tps()?,
                    weight: 1.0,
                })
            };
            return Some(mean_of_units(requests, unit));
        }
        Metric::CachedShare => {
            // Servers omit a count of 0.
            let unit = |request: &MeasuredRequest<'_>| {
                let unit = Unit {
                    amount: request.value(Metric::CachedTokens).unwrap_or(0.0),
                    weight: request.value(Metric::PromptTokens)?,
                };
                Some(unit).filter(|_| request.ok())
            };
            if !sample.scalars.contains_key(&metric) {
                return Some(Units::default());
            }
            return Some(mean_of_units(requests, unit));
        }
        metric if metric.is_rate() => multiple_of_undivided(metric, sample),
        _ => return None,
    };
    let window = sample.throughput_window(metric);
    let is_of_case = match metric.undivided() {
        Metric::GoodputRate | Metric::SessionThroughput => sample.scalars.contains_key(&metric),
        _ => true,
    };
    let known = is_of_case && exists(requests, metric, window.total());
    if !known || scale <= 0.0 {
        return Some(Units::default());
    }
    let flows: Vec<&Flow> = sample
        .flows
        .iter()
        .filter(|flow| flow.tags().match_all(tags))
        .collect();
    let ended = |amounts: &Amounts| match metric.is_session_rate() {
        true => amounts.sessions,
        false => amounts.ended,
    };
    let ended: f64 = flows
        .iter()
        .flat_map(|flow| flow.bins.values())
        .map(ended)
        .sum();
    let arrivals = arrivals(&flows, &window.seconds, |bin| bin.amount(metric));
    let rate = long_run::rate(&arrivals, request_seconds(sample)).map(|rate| rate.scaled(scale));
    let is_enough = ended >= long_run::LEAST as f64 && window.whole.is_none();
    Some(Units {
        n: match metric.is_session_rate() {
            true => requests.iter().filter(|one| one.begins_session()).count() as u64,
            false => requests.len() as u64,
        },
        counted: ended as u64,
        by_round: arrivals.len() >= ROUNDS,
        observed: rate.as_ref().map(|rate| rate.value),
        long_run: rate.filter(|_| is_enough),
        whole: window.whole,
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
pub(super) fn request_seconds(sample: &Sample) -> f64 {
    let mut took: Vec<f64> = sample
        .requests
        .iter()
        .filter(|request| request.ok())
        .map(|request| request.busy_ms() / 1e3)
        .collect();
    select_quantile(&mut took, 0.5).unwrap_or(0.0)
}

/// The factor from [`Metric::undivided`]: one over the number of GPUs, or 3600 per hour; 0 where it is unknown.
fn multiple_of_undivided(metric: Metric, sample: &Sample) -> f64 {
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

/// `unit`: that of a request; None where it has none.
fn mean_of_units(
    requests: &[MeasuredRequest<'_>],
    unit: impl Fn(&MeasuredRequest<'_>) -> Option<Unit>,
) -> Units {
    let known = requests.iter().filter_map(|request| {
        let strata = (request.round(), request.part());
        Some((strata, unit(request)?))
    });
    let (strata, units): (Vec<(u32, u32)>, Vec<Unit>) = known.unzip();
    let (rounds, parts): (Vec<u32>, Vec<u32>) = strata.into_iter().unzip();
    let units = without_plan(units, &parts);
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
        whole: None,
    }
}

#[cfg(test)]
mod tests;
