//! Limits relative to a baseline or a reference: decided by the uncertainty of both sides.

use crate::judge::assessment::Opinion;
use crate::judge::evidence::Evidence;
use crate::judge::figure::ends;
use crate::judge::prediction;
use crate::judge::required_samples::needed;
use llmscen_core::baseline::{Against, Known, Relative};
use llmscen_core::check::{Check, Confidence, Ruling, Subject};
use llmscen_core::metric::Metric;
use llmscen_core::stats::design::Dependence;
use llmscen_core::stats::interval::Interval;

/// Judges the estimate `observed` of `n` samples that depend on one another.
pub(super) fn judge(
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
    let seen = prediction::seen(own, base, (known, *relative), share);
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
        known.spread.map_or_else(few, |spread| prediction::vague(spread, share))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, conditions, failed, goodput, ok, sample};
    use crate::judge::rule;
    use llmscen_core::check::{Of, Op, Verdict};
    use llmscen_core::metric::Stat;
    use llmscen_core::sample::Row;

    fn to(check: Check, factor: f64, known: Option<Known>) -> Check {
        let relative = Relative { to: Against::Baseline, factor, known };
        Check { limit: relative.limit(), relative: Some(relative), ..check }
    }

    fn known(value: f64, low: f64, high: f64) -> Option<Known> {
        Some(Known { value, low: Some(low), high: Some(high), n: Some(400), spread: None })
    }

    fn p50(factor: f64, known: Option<Known>) -> Check {
        to(check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::AtMost, 0.0), factor, known)
    }

    fn ruled(check: &Check, rows: Vec<Row>) -> Verdict {
        rule(check, &sample(rows), &conditions(true))
    }

    fn waits(n: u32) -> Vec<Row> {
        // From 90 to 110, neighbours unlike.
        (0..n).map(|i| ok(Metric::Ttft, 90.0 + 20.0 * f64::from(i * 7919 % n) / f64::from(n))).collect()
    }

    #[test]
    fn both_sides_must_leave_room() {
        // p50 is 99.95 of 400; its bounds are some 0.9 off.
        let exact = ruled(&p50(1.05, known(100.0, 100.0, 100.0)), waits(400));
        assert_eq!((exact.ruling, exact.check.limit), (Ruling::Pass, 105.0));
        assert!(exact.bound.unwrap() < 102.0, "{exact:?}");
        let vague = ruled(&p50(1.05, known(100.0, 90.0, 110.0)), waits(400));
        assert_eq!((vague.ruling, vague.need), (Ruling::Inconclusive, None));
        assert!(vague.bound.unwrap() > 110.0 && vague.note.unwrap().starts_with("more requests alone"));
        assert_eq!(ruled(&p50(0.90, known(100.0, 99.0, 101.0)), waits(400)).ruling, Ruling::Fail);
    }

    #[test]
    fn few_samples_are_told_how_many_are_needed() {
        let seen = ruled(&p50(1.05, known(100.0, 99.9, 100.1)), waits(12));
        assert_eq!(seen.ruling, Ruling::Inconclusive);
        let need = seen.need.unwrap();
        assert!((13..200).contains(&need), "{need}");
        let p99 = to(check(Metric::Ttft, Some(Stat::Quantile(0.99)), Op::AtMost, 0.0), 1.5, known(100.0, 99.0, 101.0));
        let none = ruled(&p99, waits(100));
        assert_eq!((none.ruling, none.need, none.bound), (Ruling::Inconclusive, Some(376), None));
    }

    #[test]
    fn a_value_among_the_failed_fails_only_by_what_both_sides_know() {
        // The lower bound of p95 is still a wait, some 109; the value and what lies above it are failed requests.
        let rows =
            || (0..1000).map(|i| if i % 19 == 0 { failed() } else { ok(Metric::Ttft, 100.0 + f64::from(i % 10)) }).collect();
        let wanted = check(Metric::Ttft, Some(Stat::Quantile(0.95)), Op::AtMost, 0.0);
        let scheduled = |known| to(Check { of: Of::Scheduled, ..wanted.clone() }, 1.05, known);
        let sure = ruled(&scheduled(known(100.0, 99.0, 101.0)), rows());
        assert_eq!((sure.ruling, sure.observed), (Ruling::Fail, Some(f64::INFINITY)));
        assert_eq!(sure.note.as_deref(), Some("the value lies among the failed requests, which break any limit"));
        let vague = ruled(&scheduled(known(100.0, 90.0, 110.0)), rows());
        assert_eq!((vague.ruling, vague.bound), (Ruling::Inconclusive, None));
        assert!(vague.note.unwrap().contains("failed requests"));
    }

    #[test]
    fn a_floor_mirrors_a_ceiling_and_points_are_points() {
        let floor = to(check(Metric::Ttft, Some(Stat::Mean), Op::AtLeast, 0.0), 0.95, known(100.0, 99.0, 101.0));
        let seen = ruled(&floor, waits(400));
        assert_eq!((seen.ruling, seen.check.limit), (Ruling::Pass, 95.0));
        assert!(seen.bound.unwrap() > 97.0 && seen.bound.unwrap() < 100.0, "{seen:?}");
        let point = Check { confidence: Confidence::Point, ..p50(1.0, known(99.0, 1.0, 500.0)) };
        assert_eq!((ruled(&point, waits(400)).ruling, ruled(&point, waits(400)).bound), (Ruling::Fail, None));
    }

    #[test]
    fn without_a_baseline_nothing_is_decided() {
        let seen = ruled(&p50(1.1, None), waits(400));
        assert_eq!((seen.ruling, seen.note.as_deref()), (Ruling::Inconclusive, Some("there is no baseline to hold it against")));
        assert!(seen.observed.is_some() && never(&p50(1.1, None)).unwrap().starts_with("there is no baseline yet"));
    }

    #[test]
    fn shares_with_zeros_are_decided_by_their_difference() {
        let rows =
            |bad: usize| (0..640).map(|i| if i * 37 % 640 < bad { failed() } else { ok(Metric::Ttft, 1.0) }).collect::<Vec<_>>();
        let good = to(goodput(Vec::new(), Op::AtLeast, 0.0), 0.98, known(1.0, 0.9953, 1.0));
        assert_eq!((ruled(&good, rows(0)).ruling, ruled(&good, rows(60)).ruling), (Ruling::Pass, Ruling::Fail));
        let errors = to(check(Metric::ErrorRate, None, Op::AtMost, 0.0), 1.1, known(0.0, 0.0, 0.0047));
        assert_eq!((ruled(&errors, rows(0)).ruling, ruled(&errors, rows(60)).ruling), (Ruling::Inconclusive, Ruling::Fail));
        assert_eq!(never(&errors).unwrap(), "the baseline is 0, and so is any multiple of it; write the limit as a number");
        assert_eq!((never(&good), needed(&good)), (None, Some(149)), "1 − 0.98 leaves 2 % to be shown: 0.98^149 < 5 %");
    }

    #[test]
    fn a_baseline_of_too_few_samples_is_told_before_the_run() {
        let few = p50(1.1, Some(Known { value: 5.0, low: None, high: Some(9.0), n: Some(3), spread: None }));
        assert!(never(&few).unwrap().starts_with("the baseline, of 3 samples, has no bound"), "{:?}", never(&few));
        assert_eq!(never(&p50(1.1, known(5.0, 4.0, 6.0))), None);
    }
}
