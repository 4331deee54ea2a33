//! The correlation of the values behind a check: gaps of one request, and requests that shared a batch or a queue.

use crate::judge::evidence::{Evidence, exceeds_any_limit};
use crate::measured_requests::{MeasuredRequest, Samples};
use crate::sample::Sample;
use llmscen_core::check::{Check, RequestLimit, Subject};
use llmscen_core::stats::design::{self, Dependence, Unit};
use llmscen_core::stats::quantile::select_quantile;

/// The dependence behind the estimate `value` of a check; that of a quantile is estimated from which values exceed it.
pub(super) fn dependence(
    check: &Check,
    sample: &Sample,
    evidence: &Evidence,
    value: f64,
) -> Dependence {
    let unit: &dyn Fn(MeasuredRequest<'_>) -> Option<Unit> = match evidence {
        // The bounds of a ratio already account for it.
        Evidence::Ratio(_) | Evidence::Figure(..) => return Dependence::NONE,
        Evidence::Values(..) => &|request| beyond(check, request, value),
        Evidence::Share { .. } => &|request| hit(check, request),
    };
    if let (Evidence::Share { .. }, Subject::Goodput(limits)) = (evidence, &check.subject)
        && !check.op.is_ceiling()
        && 0.0 < check.limit
        && check.limit < 1.0
    {
        return goodput_dependence(check, sample, limits);
    }
    let (requests, units): (Vec<MeasuredRequest<'_>>, Vec<Unit>) =
        ordered_requests(sample, check.subject.tags())
            .into_iter()
            .filter_map(|request| Some((request, unit(request)?)))
            .unzip();
    dependence_of_units(&requests, units)
}

/// The dependence of the values of requests in the order of [`ordered_requests`], one unit each.
pub(super) fn dependence_of_units(
    requests: &[MeasuredRequest<'_>],
    units: Vec<Unit>,
) -> Dependence {
    let (rounds, times): (Vec<u32>, Vec<f64>) = requests
        .iter()
        .map(|request| (request.round(), request.scheduled_s()))
        .unzip();
    let parts: Vec<u32> = requests.iter().map(|request| request.part()).collect();
    let units = design::without_plan(units, &parts);
    design::dependence_over_time(&units, &rounds, &times)
}

/// Multiples of the share of requests that may break a goodput, of which the dependence is estimated.
const CLOSE: [f64; 2] = [1.0, 2.0];

/// A goodput is a quantile of how close each request is to the nearest of its limits: where few requests break them,
/// the closest ones show the dependence. With several limits, twice as many show the bursts that one hides from
/// another.
fn goodput_dependence(check: &Check, sample: &Sample, limits: &[RequestLimit]) -> Dependence {
    let requests: Vec<MeasuredRequest<'_>> = ordered_requests(sample, &[])
        .into_iter()
        .filter(|request| request.is_hit_of(&check.subject).is_some())
        .collect();
    let severities: Vec<f64> = requests
        .iter()
        .map(|&request| severity(request, limits))
        .collect();
    let dependence_beyond = |share: f64| {
        let quantile = select_quantile(&mut severities.clone(), share)?;
        let is_over = |severity: f64| {
            if quantile.is_infinite() {
                severity == quantile
            } else {
                severity > quantile
            }
        };
        let unit = |severity: &f64| Unit {
            amount: f64::from(u8::from(is_over(*severity))),
            weight: 1.0,
        };
        let units: Vec<Unit> = severities.iter().map(unit).collect();
        Some(dependence_of_units(&requests, units))
    };
    CLOSE
        .iter()
        .take(limits.len().max(1))
        .map(|times| 1.0 - times * (1.0 - check.limit))
        .filter(|share| *share > 0.0)
        .filter_map(dependence_beyond)
        .reduce(Dependence::or_greater)
        .unwrap_or(Dependence::NONE)
}

/// The greatest ratio of a request's values to its limits; infinite where it failed or lacks a value.
fn severity(request: MeasuredRequest<'_>, limits: &[RequestLimit]) -> f64 {
    let of_limit = |limit: &RequestLimit| {
        let ratio = |value: f64| {
            if limit.op.is_ceiling() {
                value / limit.limit
            } else {
                limit.limit / value
            }
        };
        let values = request.samples(limit.metric);
        match values.is_empty() {
            // Its pace is not measured.
            true if request.meets(std::slice::from_ref(limit)).is_none() => 0.0,
            true => f64::INFINITY,
            false => values.iter().map(ratio).fold(0.0, f64::max),
        }
    };
    if request.ok() {
        limits.iter().map(of_limit).fold(0.0, f64::max)
    } else {
        f64::INFINITY
    }
}

/// The requests with these tags, ordered by round and scheduled send.
pub(super) fn ordered_requests<'a>(
    sample: &'a Sample,
    tags: &[(String, String)],
) -> Vec<MeasuredRequest<'a>> {
    let mut requests: Vec<MeasuredRequest<'_>> = sample
        .requests
        .iter()
        .filter(|request| request.tags().match_all(tags))
        .collect();
    requests.sort_by(|a, b| {
        a.round()
            .cmp(&b.round())
            .then(a.scheduled_s().total_cmp(&b.scheduled_s()))
    });
    requests
}

/// How many of a request's values exceed the estimate; None where it has no value.
fn beyond(check: &Check, request: MeasuredRequest<'_>, value: f64) -> Option<Unit> {
    let Subject::Metric { metric, .. } = &check.subject else {
        return None;
    };
    let samples = if exceeds_any_limit(request, *metric, check) {
        Samples::of_value(if check.op.is_ceiling() {
            f64::INFINITY
        } else {
            f64::NEG_INFINITY
        })
    } else {
        request.samples(*metric)
    };
    // Nothing exceeds an infinite estimate; then the failed requests themselves count.
    let over = samples
        .iter()
        .filter(|sample| {
            if value.is_infinite() {
                *sample == value
            } else {
                *sample > value
            }
        })
        .count();
    (!samples.is_empty()).then_some(Unit {
        amount: over as f64,
        weight: samples.len() as f64,
    })
}

/// Whether a request counts towards the share that a check is about; None where the share does not apply to it.
fn hit(check: &Check, request: MeasuredRequest<'_>) -> Option<Unit> {
    Some(Unit {
        amount: f64::from(u8::from(request.is_hit_of(&check.subject)?)),
        weight: 1.0,
    })
}

#[cfg(test)]
mod tests;
