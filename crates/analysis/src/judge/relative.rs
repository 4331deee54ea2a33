//! Limits relative to a baseline or a reference: decided by the uncertainty of both sides.

use crate::judge::chance::needed;
use crate::judge::evidence::Evidence;
use crate::judge::figure::ends;
use crate::judge::rule::Opinion;
use llmscen_core::baseline::{Against, Known, Relative, Spread};
use llmscen_core::check::{Check, Confidence, Ruling, Subject};
use llmscen_core::metric::Metric;
use llmscen_core::stats::design::Dependence;
use llmscen_core::stats::interval::Interval;
use llmscen_core::stats::interval::{Compared, against, predicted};

/// Judges the estimate `observed` of `n` samples that depend on one another.
pub(super) fn judge_relative(
    check: &Check,
    relative: &Relative,
    evidence: Evidence,
    (observed, n, dependence): (f64, u64, Dependence),
) -> Opinion {
    let counts = !matches!(evidence, Evidence::Ratio(_) | Evidence::Figure(..));
    let compared = Opinion::point(check.op.holds(observed, check.limit), observed, n);
    let Some(known) = relative.known else {
        let note = format!("there is no {} to hold it against", relative.to.name());
        return Opinion { ruling: Ruling::Inconclusive, ..compared }.noted(Some(note));
    };
    let Confidence::Level(level) = check.confidence else { return compared };
    let effect = dependence.effect(level);
    let compared = Opinion { effective_n: counts.then_some(n as f64 / effect), ..compared };
    let share = matches!(evidence, Evidence::Share { .. });
    let own = ends(evidence, dependence, &[level]).and_then(|ends| ends.first().copied());
    let own = match own {
        Some((low, high)) => interval(observed, low, high),
        None => Interval::exact(observed),
    };
    let base = interval(known.value, known.low, known.high);
    let seen = compare_with_runs(own, base, (known, *relative), share);
    let (worst, best) = if check.op.is_ceiling() { (seen.seen.high, seen.seen.low) } else { (seen.seen.low, seen.seen.high) };
    let ruling = match () {
        () if check.op.holds(worst, check.limit) => Ruling::Pass,
        () if !check.op.holds(best, check.limit) => Ruling::Fail,
        () => Ruling::Inconclusive,
    };
    let open = ruling == Ruling::Inconclusive;
    let need = (open && known.spread.is_none())
        .then(|| seen.needed(n).or_else(|| independent(check, effect).filter(|need| *need > n)))
        .flatten();
    let vague = (open && need.is_none() && seen.hopeless()).then(|| {
        let few = || {
            format!("more requests alone decide nothing: the {} is as uncertain as it is far from the limit", relative.to.name())
        };
        known.spread.map_or_else(few, |spread| vague_runs(spread, share))
    });
    // No metric is negative, and a bound below 0 says no more than 0.
    let bound = Some(worst.max(0.0)).filter(|_| worst.is_finite());
    Opinion { ruling, bound, need, ..compared }.noted(vague)
}

/// Correlated samples that carry the information that the check needs.
fn independent(check: &Check, effect: f64) -> Option<u64> {
    Some((needed(check)? as f64 * effect).ceil() as u64)
}

/// A side without a bound may be anything that a metric may be.
fn interval(value: f64, low: Option<f64>, high: Option<f64>) -> Interval {
    let (least, most) = (if value < 0.0 { f64::NEG_INFINITY } else { 0.0 }, f64::INFINITY);
    Interval { value, low: low.unwrap_or(least), high: high.unwrap_or(most) }
}

/// The share that may break a relative limit on a share in the best of cases, no request breaking it: what takes a number of
/// requests to show. None where no number would do.
pub(super) fn tail(check: &Check, known: &Known, factor: f64) -> Option<f64> {
    let (room, other) = if check.op.is_ceiling() {
        (factor * known.value, factor * (known.value - known.low.unwrap_or(0.0)))
    } else {
        (1.0 - factor * known.value, factor * (known.high.unwrap_or(1.0) - known.value))
    };
    let square = room * room - other * other;
    (room > 0.0 && square > 0.0).then(|| square.sqrt().min(1.0))
}

/// Why a relative limit can never pass, however many requests there are; None where it can.
pub fn never(check: &Check) -> Option<String> {
    let relative = check.relative?;
    let to = relative.to.name();
    let Some(known) = relative.known else {
        return Some(match relative.to {
            Against::Baseline => "there is no baseline yet; `llmscen baseline update` makes one of a run".to_owned(),
            Against::Reference => "there is no reference".to_owned(),
        });
    };
    if !matches!(check.confidence, Confidence::Level(_)) {
        return None;
    }
    let shares = matches!(&check.subject, Subject::Goodput(_) | Subject::Metric { metric: Metric::ErrorRate, .. });
    if shares {
        let zero = known.value == 0.0 && check.op.is_ceiling();
        let why =
            if zero { "is 0, and so is any multiple of it".to_owned() } else { "leaves no room for its own doubt".to_owned() };
        let advice = "; write the limit as a number";
        return tail(check, &known, relative.factor).is_none().then(|| format!("the {to} {why}{advice}"));
    }
    let bound = if check.op.is_ceiling() { known.low } else { known.high };
    let few = known.n.map(|n| format!(", of {n} samples,")).unwrap_or_default();
    bound.is_none().then(|| format!("the {to}{few} has no bound on that side at this confidence; make it of more requests"))
}

// An estimate beside a baseline of several runs: one more run is compared with how those vary.

/// What is known of the estimate `own` beside `base`, which lies between the bounds of `known`. `share`: both are shares.
pub(super) fn compare_with_runs(own: Interval, base: Interval, (known, relative): (Known, Relative), share: bool) -> Compared {
    let by_requests = || against(own, base, relative.factor, share);
    match known.spread {
        // Runs without one failure do not differ, and then their requests say more.
        Some(spread) if share => by_requests().reaching(spread.reach * relative.factor.max(1.0)),
        Some(spread) if own.value > 0.0 && own.value.is_finite() => {
            predicted(own.value, known.value, spread.reach, relative.factor)
        }
        Some(_) | None => by_requests(),
    }
}

/// Why one more run decides nothing.
pub(super) fn vague_runs(spread: Spread, share: bool) -> String {
    let reach = if share { spread.reach } else { spread.reach.exp_m1() };
    format!(
        "one run cannot decide this: the {} runs of the baseline vary so much that a single run shows differences above {}; \
         `llmscen baseline doctor` says how many runs show less",
        spread.runs,
        if share { format!("{:.2} pp", reach * 100.0) } else { format!("{:.1} %", reach * 100.0) }
    )
}

#[cfg(test)]
mod tests;
