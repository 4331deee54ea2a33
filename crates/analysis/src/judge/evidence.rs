//! The values of a sample that a check is judged by, and their point estimate.

use crate::judge::ratio::{self, Units};
use crate::measured_requests::{MeasuredRequest, MeasuredRequests};
use crate::sample::{Sample, values};
use llmscen_core::check::{Check, Op, RequestLimit, RequestSet, Subject};
use llmscen_core::metric::{Metric, Sensitivity, Stat};
use llmscen_core::stats::{moments, quantile};
use llmscen_core::telemetry::{SignalStat, StatValue};

/// The evidence for a check.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Evidence {
    /// Unordered values with the statistic that the check limits.
    Values(Vec<f64>, Stat),
    /// A share of requests.
    Share {
        /// Requests that count towards the share.
        hits: u64,
        /// Requests.
        n: u64,
    },
    /// A ratio of sums.
    Ratio(Units),
    /// A value of the whole case, None where it does not exist, and the number of requests.
    Figure(Option<f64>, u64),
}

impl Evidence {
    pub(super) fn collect(check: &Check, sample: &Sample) -> Evidence {
        match &check.subject {
            Subject::Signal { signal, stat, role } => {
                signal_evidence(sample.signal(*signal, role.as_deref()), *stat)
            }
            Subject::PageMetric(metric) => {
                let (value, n) = sample.page.get(metric).copied().unzip();
                Evidence::Figure(value, n.unwrap_or_default())
            }
            subject if subject.is_share() => share_evidence(subject, sample),
            Subject::Goodput(_) | Subject::Finish { .. } => Evidence::Figure(None, 0),
            Subject::Metric { metric, stat, tags } => {
                let requests: Vec<MeasuredRequest<'_>> = sample
                    .requests
                    .iter()
                    .filter(|request| request.tags().match_all(tags))
                    .collect();
                match (metric, stat) {
                    // With a failed request, which counts as infinite, there is no finite mean.
                    (_, Some(Stat::Mean))
                        if check.of == RequestSet::Ok
                            || requests
                                .iter()
                                .all(|request| request.ok() || request.left()) =>
                    {
                        Evidence::Ratio(ratio::mean_units(&requests, *metric))
                    }
                    (_, Some(stat)) => {
                        Evidence::Values(limited_values(&requests, *metric, check), *stat)
                    }
                    (metric, None) => figure(&requests, *metric, sample, tags),
                }
            }
        }
    }
}

/// A statistic of a signal. It has no bound: samples of a signal are correlated.
fn signal_evidence(seen: Option<&SignalStat>, stat: Stat) -> Evidence {
    let Some(seen) = seen else {
        return Evidence::Figure(None, 0);
    };
    Evidence::Figure(seen.at(stat).and_then(StatValue::value), seen.n)
}

/// The bound that a histogram gives of a statistic where it does not give its value, and the histogram's count.
pub(super) fn histogram_bound(check: &Check, sample: &Sample) -> Option<(StatValue, u64)> {
    let Subject::Signal { signal, stat, role } = &check.subject else {
        return None;
    };
    let signal = sample.signal(*signal, role.as_deref())?;
    let seen = signal.at(*stat)?;
    seen.value().is_none().then_some((seen, signal.n))
}

/// Whether each request is ok and meets every limit, in the order of the requests, without those that the client
/// cancelled and those for which it is not measured.
pub fn goodput_flags(requests: &MeasuredRequests, limits: &[RequestLimit]) -> Vec<bool> {
    kept(requests.iter())
        .filter_map(|request| request.meets(limits))
        .collect()
}

/// The requests that the client did not cancel.
fn kept<'a>(
    requests: impl Iterator<Item = MeasuredRequest<'a>>,
) -> impl Iterator<Item = MeasuredRequest<'a>> {
    requests.filter(|request| !request.left())
}

/// The share of the requests that a check selects. A server that sends no finish reason at all has no shares of them.
fn share_evidence(subject: &Subject, sample: &Sample) -> Evidence {
    let selected = || {
        let requests = sample.requests.iter();
        requests.filter(|request| request.tags().match_all(subject.tags()))
    };
    let is_known = !matches!(subject, Subject::Finish { .. })
        || selected().any(|request| request.finish_reason().is_some());
    let flags = selected().filter_map(|request| request.is_hit_of(subject).filter(|_| is_known));
    let (hits, n) = flags.fold((0, 0), |(hits, n), flag| (hits + u64::from(flag), n + 1));
    Evidence::Share { hits, n }
}

/// Whether a request without a value exceeds any limit of this check.
pub(super) fn exceeds_any_limit(
    request: MeasuredRequest<'_>,
    metric: Metric,
    check: &Check,
) -> bool {
    // Only a quantile does not depend on how long they would have waited.
    let is_quantile = matches!(
        check.subject,
        Subject::Metric {
            stat: Some(Stat::Quantile(_)),
            ..
        }
    );
    let never_answered = metric == Metric::TimeToFirstAnswer && request.reasoning_alone();
    never_answered
        || !request.ok()
            && !request.left()
            && (check.of == RequestSet::Scheduled
                || is_quantile
                    && metric.sensitivity() == Sensitivity::Latency
                    && request.was_held_to_the_end())
}

/// Values of ok requests; with `of: scheduled` also of failed ones, which exceed any limit. So do arrivals that were
/// held until sending ended: they waited longer than those that were sent.
fn limited_values(requests: &[MeasuredRequest<'_>], metric: Metric, check: &Check) -> Vec<f64> {
    let mut values = values(requests, metric);
    let worst = if check.op.is_ceiling() {
        f64::INFINITY
    } else {
        f64::NEG_INFINITY
    };
    values.extend(
        requests
            .iter()
            .filter(|request| exceeds_any_limit(**request, metric, check))
            .map(|_| worst),
    );
    values
}

fn figure(
    requests: &[MeasuredRequest<'_>],
    metric: Metric,
    sample: &Sample,
    tags: &[(String, String)],
) -> Evidence {
    let known = sample.scalars.get(&metric).copied();
    match ratio::throughput_units(requests, metric, sample, tags) {
        Some(units) => Evidence::Ratio(units),
        // Other values belong to the case as a whole and not to selected requests.
        None => Evidence::Figure(known.filter(|_| tags.is_empty()), requests.len() as u64),
    }
}

/// The point estimate, None without data, and the number of samples. Reorders the values.
pub(super) fn estimate(evidence: &mut Evidence) -> (Option<f64>, u64) {
    match evidence {
        Evidence::Values(values, stat) => (statistic(values, *stat), values.len() as u64),
        Evidence::Share { hits, n } => ((*n > 0).then(|| *hits as f64 / *n as f64), *n),
        Evidence::Ratio(units) => (units.observed, units.n),
        Evidence::Figure(figure, n) => (*figure, *n),
    }
}

fn statistic(values: &mut [f64], stat: Stat) -> Option<f64> {
    match stat {
        _ if values.is_empty() => None,
        Stat::Quantile(p) => quantile::select_quantile(values, p),
        Stat::Mean => moments::mean(values),
        Stat::Min => values.iter().copied().reduce(f64::min),
        Stat::Max => values.iter().copied().reduce(f64::max),
        Stat::Count => Some(values.len() as f64),
        // Failed requests count as infinite.
        Stat::Sd => values
            .iter()
            .copied()
            .find(|value| value.is_infinite())
            .or_else(|| moments::sd(values)),
    }
}

/// Why a check with a confidence level is only compared as a point estimate; None where it has a test.
pub(super) fn point_only_reason(check: &Check, evidence: &Evidence) -> Option<&'static str> {
    let is_inner = |share: f64| 0.0 < share && share < 1.0;
    match evidence {
        _ if matches!(check.op, Op::Equal | Op::Unequal) => {
            Some("point estimate only: equality cannot be tested at a confidence level")
        }
        _ if matches!(
            check.subject,
            Subject::Signal { .. } | Subject::PageMetric(_)
        ) =>
        {
            Some(
                "point estimate only: telemetry samples are correlated, so no confidence bound is given",
            )
        }
        Evidence::Values(_, Stat::Quantile(p)) if is_inner(*p) => None,
        Evidence::Values(_, Stat::Quantile(_) | Stat::Min | Stat::Max) => {
            Some("point estimate only: a minimum or maximum has no confidence bound")
        }
        Evidence::Values(..) => Some("point estimate only: this statistic has no confidence bound"),
        Evidence::Share { .. } if is_inner(check.limit) => None,
        Evidence::Share { .. } => {
            Some("point estimate only: no number of samples proves a share of 0 % or 100 %")
        }
        Evidence::Ratio(_) => None,
        Evidence::Figure(..) => Some("point estimate only: a case has one such value"),
    }
}

#[cfg(test)]
mod tests;
