//! How likely a limit holds: not a ruling, but what a search weighs its probes by; and how many samples a check needs.

use crate::judge::evidence::{Evidence, goodput_flags};
use crate::judge::relative::tail;
use crate::judge::{Conditions, LoadKind, rule};
use crate::sample::Sample;
use llmscen_core::check::{Check, Confidence, Op, Ruling, Subject};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::stats::design::of_flags;
use llmscen_core::stats::long_run::LEAST;
use llmscen_core::stats::quantile_bound;
use llmscen_core::stats::sequential::Looks;

/// Levels at which a limit is ruled on that is judged by batch means; the last one that decides is the probability.
const LEVELS: [f64; 5] = [0.6, 0.75, 0.9, 0.95, 0.99];
/// What the comparison of two points is believed.
const POINT: f64 = 0.95;

/// Probability that every limit holds, 0..=1, by this sample. All limits are about the same requests under the same load and
/// fail together as it grows, so the least likely one speaks for all: the probability of all is never above that of one.
pub fn chance(checks: &[Check], sample: &Sample) -> f64 {
    checks.iter().map(|check| one(check, sample)).fold(1.0, f64::min)
}

fn one(check: &Check, sample: &Sample) -> f64 {
    let counted = breaking(check, sample).filter(|_| matches!(check.confidence, Confidence::Level(_)));
    if let Some((flags, tail)) = counted.filter(|(flags, _)| !flags.is_empty()) {
        // Requests of one queue wait together.
        let (n, over) = (flags.len() as f64, flags.iter().filter(|own| **own).count() as f64);
        let effect = of_flags(&flags).effect(POINT);
        return quantile_bound::chance(n / effect, over / effect, tail);
    }
    let conditions = Conditions { valid: true, load: LoadKind::Other };
    let ruled = |confidence| rule(&Check { confidence, ..check.clone() }, sample, &conditions).ruling;
    match check.confidence {
        Confidence::Point => believed(ruled(Confidence::Point), POINT),
        Confidence::Level(_) => {
            let deciding = LEVELS.iter().rev().map(|level| (ruled(Confidence::Level(*level)), *level));
            let decided = deciding.into_iter().find(|(ruling, _)| *ruling != Ruling::Inconclusive);
            decided.map_or(0.5, |(ruling, level)| believed(ruling, level))
        }
    }
}

fn believed(ruling: Ruling, level: f64) -> f64 {
    match ruling {
        Ruling::Pass => level,
        Ruling::Fail => 1.0 - level,
        Ruling::Inconclusive | Ruling::Invalid => 0.5,
    }
}

/// Which samples break a limit on a quantile or a share, in the order of their requests, and the share that may; None for the
/// other kinds of limit.
fn breaking(check: &Check, sample: &Sample) -> Option<(Vec<bool>, f64)> {
    let ceiling = check.op.is_ceiling();
    let inner = |tail: f64| 0.0 < tail && tail < 1.0;
    let (flags, tail): (Vec<bool>, f64) = match &check.subject {
        Subject::Goodput(limits) => {
            let flags = goodput_flags(&sample.requests, limits);
            (flags.into_iter().map(|good| good == ceiling).collect(), if ceiling { check.limit } else { 1.0 - check.limit })
        }
        Subject::Metric { metric: Metric::ErrorRate, tags, stat: None } if tags.is_empty() => {
            let flags = sample.requests.iter().map(|request| request.ok() != ceiling);
            (flags.collect(), if ceiling { check.limit } else { 1.0 - check.limit })
        }
        Subject::Metric { stat: Some(Stat::Quantile(p)), .. } => match Evidence::of(check, sample) {
            Evidence::Values(values, _) => {
                let flags = values.iter().map(|value| !check.op.holds(*value, check.limit));
                (flags.collect(), if ceiling { 1.0 - p } else { *p })
            }
            _ => return None,
        },
        Subject::Metric { .. } | Subject::Signal { .. } => return None,
    };
    inner(tail).then_some((flags, tail))
}

/// The looks at a growing sample by which a limit on a quantile or a share is given up; one for each check.
///
/// Requests that are still in flight are missing, and they are the slow ones: what is refuted without them would be with them.
pub fn hopeless(checks: &[Check], sample: &Sample, looks: &mut [Looks]) -> bool {
    let mut lost = false;
    for (check, looks) in checks.iter().zip(looks) {
        if let Some((flags, tail)) = breaking(check, sample) {
            let effect = of_flags(&flags).times();
            let over = flags.iter().filter(|own| **own).count() as f64;
            lost |= looks.refute((flags.len() as f64 / effect) as u64, (over / effect) as u64, tail);
        }
    }
    lost
}

// How many samples a check needs, known before the run.

/// The least number of independent requests at which a check can pass, every one of them within its limit. None where any number
/// will do, and for gaps between tokens, whose number no plan knows.
pub fn needed(check: &Check) -> Option<u64> {
    let Confidence::Level(level) = check.confidence else { return None };
    let exact = |ceiling_tail: f64| {
        let tail = if check.op.is_ceiling() { ceiling_tail } else { 1.0 - ceiling_tail };
        (0.0 < tail && tail < 1.0).then(|| quantile_bound::needed(tail, level, 0)).flatten()
    };
    let shares = matches!(&check.subject, Subject::Goodput(_) | Subject::Metric { metric: Metric::ErrorRate, .. });
    if let Some(relative) = check.relative.filter(|_| shares) {
        let tail = tail(check, &relative.known?, relative.factor)?;
        return (tail < 1.0).then(|| quantile_bound::needed(tail, level, 0)).flatten();
    }
    match &check.subject {
        _ if matches!(check.op, Op::Equal | Op::Unequal) => None,
        Subject::Goodput(_) | Subject::Metric { metric: Metric::ErrorRate, .. } => exact(check.limit),
        Subject::Metric { metric, .. } if metric.per() == Scope::Gap => None,
        Subject::Metric { stat: Some(Stat::Quantile(p)), .. } => exact(1.0 - p),
        Subject::Metric { stat: Some(Stat::Mean), .. } => Some(LEAST as u64),
        Subject::Metric { metric, stat: None, .. } => is_throughput(*metric).then_some(LEAST as u64),
        Subject::Metric { .. } | Subject::Signal { .. } => None,
    }
}

/// The usual design effect of a check's samples under a load, before anything was measured.
pub fn usual_effect(check: &Check, closed: bool) -> f64 {
    match &check.subject {
        // The bounds have the dependence in them.
        Subject::Metric { stat: Some(Stat::Mean), .. } => 1.0,
        Subject::Metric { metric, stat: None, .. } if is_throughput(*metric) => 1.0,
        Subject::Metric { metric: Metric::Tpot | Metric::Ntpot | Metric::DecodeTps, .. } => 5.0,
        _ if closed => 1.0,
        _ => 3.0,
    }
}

fn is_throughput(metric: Metric) -> bool {
    use Metric::{OutputTps, OutputTpsPerGpu, OutputTpsPerUser, RequestThroughput, TotalTps};
    matches!(metric, RequestThroughput | OutputTps | TotalTps | OutputTpsPerGpu | OutputTpsPerUser)
}

#[cfg(test)]
mod tests;
