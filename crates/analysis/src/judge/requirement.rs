//! What a check requires in order to pass, known before the run.

use llmscen_core::check::relative::{ReferenceKind, ReferenceValue};
use llmscen_core::check::{Check, Confidence, Op, Subject};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::stats::long_run::LEAST;
use llmscen_core::stats::quantile_bound;

/// The minimum number of independent requests with which a check can pass if all of them are within its limit. None
/// where any number is enough, and for gaps between tokens, whose number is not planned.
pub fn required_samples(check: &Check) -> Option<u64> {
    let Confidence::Level(level) = check.confidence else {
        return None;
    };
    let exact = |ceiling_tail: f64| {
        let tail = if check.op.is_ceiling() {
            ceiling_tail
        } else {
            1.0 - ceiling_tail
        };
        (0.0 < tail && tail < 1.0)
            .then(|| quantile_bound::needed(tail, level, 0))
            .flatten()
    };
    let shares = check.subject.is_share();
    if let Some(relative) = check.relative.as_ref().filter(|_| shares) {
        let tail = breaking_share(check, &relative.known?, relative.factor)?;
        return (tail < 1.0)
            .then(|| quantile_bound::needed(tail, level, 0))
            .flatten();
    }
    match &check.subject {
        _ if matches!(check.op, Op::Equal | Op::Unequal) => None,
        _ if shares => exact(check.limit),
        Subject::Metric { metric, .. } if metric.per() == Scope::Gap => None,
        Subject::Metric {
            stat: Some(Stat::Quantile(p)),
            ..
        } => exact(1.0 - p),
        Subject::Metric {
            stat: Some(Stat::Mean),
            ..
        } => Some(LEAST as u64),
        Subject::Metric {
            metric, stat: None, ..
        } => is_throughput(*metric).then_some(LEAST as u64),
        Subject::Goodput(_)
        | Subject::Finish { .. }
        | Subject::Metric { .. }
        | Subject::Signal { .. }
        | Subject::PageMetric(_) => None,
    }
}

/// The quantile from which on a closed loop is expected to have the greater design effect.
const FAR_QUANTILE: f64 = 0.99;

/// The design effect to expect of a check's samples under a load, before anything was measured.
pub fn usual_design_effect(check: &Check, closed: bool) -> f64 {
    match &check.subject {
        // Batch means already account for the correlation.
        Subject::Metric {
            stat: Some(Stat::Mean),
            ..
        } => 1.0,
        Subject::Metric {
            metric, stat: None, ..
        } if is_throughput(*metric) => 1.0,
        Subject::Metric {
            metric: Metric::Tpot | Metric::Ntpot | Metric::DecodeTps,
            ..
        } => 5.0,
        _ if !closed => 3.0,
        // Of the few requests in a far tail, more share a moment.
        Subject::Metric {
            stat: Some(Stat::Quantile(share)),
            ..
        } => usual_closed_effect(*share),
        Subject::Goodput(_) => usual_closed_effect(check.limit),
        _ => 1.0,
    }
}

fn usual_closed_effect(share: f64) -> f64 {
    let is_far = share.max(1.0 - share) >= FAR_QUANTILE;
    if is_far { 3.0 } else { 2.0 }
}

fn is_throughput(metric: Metric) -> bool {
    metric.is_rate() || metric == Metric::OutputTpsPerUser
}

/// The share that may break a relative limit on a share if no request of this run breaks it; None where no number of
/// requests is enough to pass.
pub(super) fn breaking_share(check: &Check, known: &ReferenceValue, factor: f64) -> Option<f64> {
    let (margin, other) = if check.op.is_ceiling() {
        (
            factor * known.value,
            factor * (known.value - known.low.unwrap_or(0.0)),
        )
    } else {
        (
            1.0 - factor * known.value,
            factor * (known.high.unwrap_or(1.0) - known.value),
        )
    };
    let square = margin * margin - other * other;
    (margin > 0.0 && square > 0.0).then(|| square.sqrt().min(1.0))
}

/// Why a relative limit can never pass with any number of requests; None where it can.
pub fn never_passes(check: &Check) -> Option<String> {
    let relative = check.relative.as_ref()?;
    let to = relative.name();
    let Some(known) = relative.known else {
        return Some(match relative.to {
            // The other case is measured in the same run.
            ReferenceKind::Case => return None,
            ReferenceKind::Baseline => {
                "no baseline yet; create one with `llmscen baseline update RUN_DIR --to FILE`"
                    .to_owned()
            }
            ReferenceKind::Reference => "there is no reference".to_owned(),
        });
    };
    if !matches!(check.confidence, Confidence::Level(_)) {
        return None;
    }
    let shares = check.subject.is_share();
    if shares {
        let zero = known.value == 0.0 && check.op.is_ceiling();
        let why = if zero {
            "is 0, as is any multiple of it".to_owned()
        } else {
            "is too uncertain for this multiple".to_owned()
        };
        let advice = "; write the limit as a number";
        return breaking_share(check, &known, relative.factor)
            .is_none()
            .then(|| format!("the {to} {why}{advice}"));
    }
    let bound = if check.op.is_ceiling() {
        known.low
    } else {
        known.high
    };
    let size = known
        .n
        .map(|n| format!(" of {n} samples"))
        .unwrap_or_default();
    bound.is_none().then(|| {
        format!(
            "the {to}{size} has no bound on that side at this confidence; \
    record it with more requests"
        )
    })
}

#[cfg(test)]
mod tests;
