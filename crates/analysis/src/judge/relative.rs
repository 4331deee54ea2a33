//! Limits relative to a baseline or a reference, with the uncertainty of both sides.

use crate::judge::assessment::Assessment;
use crate::judge::evidence::Evidence;
use crate::judge::figure::ends;
use crate::judge::requirement::required_samples;
use llmscen_core::check::relative::{ReferenceValue, Relative, Replicates, Spread};
use llmscen_core::check::{Check, Confidence, Ruling};
use llmscen_core::stats::design::Dependence;
use llmscen_core::stats::interval::{
    Compared, Interval, Relation, compare_with_multiple, predicted,
};

/// Judges the estimate `observed` of `n` correlated samples.
pub(super) fn judge_relative(
    check: &Check,
    relative: &Relative,
    evidence: Evidence,
    (observed, n, dependence): (f64, u64, Dependence),
) -> Assessment {
    let counts = !matches!(evidence, Evidence::Ratio(_) | Evidence::Figure(..));
    let point = Assessment::point(check.op.holds(observed, check.limit), observed, n);
    let Some(known) = relative.known else {
        let note = format!("not judged: no {} value for this case", relative.name());
        return Assessment {
            ruling: Ruling::Inconclusive,
            ..point
        }
        .with_note(Some(note));
    };
    let Confidence::Level(level) = check.confidence else {
        return point;
    };
    let effect = dependence.effect(level);
    let point = Assessment {
        effective_n: counts.then_some(n as f64 / effect),
        ..point
    };
    let share = matches!(evidence, Evidence::Share { .. });
    let estimate = match ends(evidence, dependence, &[level]).and_then(|ends| ends.first().copied())
    {
        Some((low, high)) => interval(observed, low, high),
        None => Interval::exact(observed),
    };
    let base = interval(known.value, known.low, known.high);
    let relation = if relative.is_same_case() {
        Relation::Unknown
    } else {
        Relation::Independent
    };
    let compared = compare_with_runs(estimate, base, (known, relative.factor), share, relation);
    let interval = compared.interval;
    let (worst, best) = if check.op.is_ceiling() {
        (interval.high, interval.low)
    } else {
        (interval.low, interval.high)
    };
    let ruling = match () {
        () if check.op.holds(worst, check.limit) => Ruling::Pass,
        () if !check.op.holds(best, check.limit) => Ruling::Fail,
        () => Ruling::Inconclusive,
    };
    let open = ruling == Ruling::Inconclusive;
    let need = (open && known.spread.is_none())
        .then(|| {
            compared
                .needed(n)
                .or_else(|| required_correlated(check, effect).filter(|need| *need > n))
        })
        .flatten();
    let undecidable = (open && need.is_none() && compared.is_undecidable()).then(|| {
        let by_requests = || {
            format!(
                "more requests will not decide this: the uncertainty of the {} is larger than the \
                distance to the limit",
                relative.name()
            )
        };
        known
            .spread
            .map_or_else(by_requests, |spread| undecidable_by_one_run(spread, share))
    });
    // No metric is negative.
    let bound = Some(worst.max(0.0)).filter(|_| worst.is_finite());
    Assessment {
        ruling,
        bound,
        need,
        ..point
    }
    .with_note(undecidable)
}

/// Correlated samples that carry the required information.
fn required_correlated(check: &Check, effect: f64) -> Option<u64> {
    Some((required_samples(check)? as f64 * effect).ceil() as u64)
}

/// A missing bound is the limit of the metric's range.
fn interval(value: f64, low: Option<f64>, high: Option<f64>) -> Interval {
    let minimum = if value < 0.0 { f64::NEG_INFINITY } else { 0.0 };
    Interval {
        value,
        low: low.unwrap_or(minimum),
        high: high.unwrap_or(f64::INFINITY),
    }
}

// A baseline of several runs: one more run is compared with the variance between them.

/// Compares an estimate with `base`, whose bounds are those of `known`. `share`: both are shares.
pub(super) fn compare_with_runs(
    estimate: Interval,
    base: Interval,
    (known, factor): (ReferenceValue, f64),
    share: bool,
    relation: Relation,
) -> Compared {
    let by_requests = || compare_with_multiple(estimate, base, factor, share, relation);
    match known.spread {
        // Runs without any failure do not differ; then the requests give the wider interval.
        Some(spread) if share => by_requests().widen_to(spread.reach * factor.max(1.0)),
        Some(spread) if estimate.value > 0.0 && estimate.value.is_finite() => {
            predicted(estimate.value, known.value, spread.reach, factor)
        }
        Some(_) | None => by_requests(),
    }
}

/// The note that one more run cannot decide.
pub(super) fn undecidable_by_one_run(spread: Spread, share: bool) -> String {
    let reach = if share {
        spread.reach
    } else {
        spread.reach.exp_m1()
    };
    let reach = if share {
        format!("{:.2} pp", reach * 100.0)
    } else {
        format!("{:.1} %", reach * 100.0)
    };
    match spread.of {
        Replicates::Runs => format!(
            "one run cannot decide this: the {} runs of the baseline vary too much, a single run \
             only shows differences above {reach}; `llmscen baseline doctor` shows how many runs \
             are needed for less",
            spread.runs
        ),
        of => format!(
            "the {} {} show differences above {reach}; more rounds show less",
            spread.runs,
            of.noun()
        ),
    }
}

#[cfg(test)]
mod tests;
