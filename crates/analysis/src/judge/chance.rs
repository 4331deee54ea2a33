//! The probability that a case passes, by which a capacity search weighs its probes.

use crate::judge::evidence::Evidence;
use crate::judge::{Conditions, LoadKind, rule};
use crate::sample::Sample;
use llmscen_core::check::{Check, Confidence, Ruling, Subject};
use llmscen_core::metric::Stat;
use llmscen_core::stats::design::flag_dependence;
use llmscen_core::stats::quantile_bound;
use llmscen_core::stats::sequential::AlphaSpending;

/// Confidence levels for a limit that is judged by batch means: the highest one that decides it gives the probability.
const LEVELS: [f64; 5] = [0.6, 0.75, 0.9, 0.95, 0.99];
/// The probability assigned to a comparison of point estimates.
const POINT: f64 = 0.95;

/// Probability that every check passes, 0..=1. All checks are about the same requests and fail together as the load
/// grows, so it is that of the least likely one: the probability of all is never above that of one.
pub fn pass_probability(checks: &[Check], sample: &Sample) -> f64 {
    checks
        .iter()
        .map(|check| pass_probability_of_check(check, sample))
        .fold(1.0, f64::min)
}

fn pass_probability_of_check(check: &Check, sample: &Sample) -> f64 {
    let counted =
        breaking_flags(check, sample).filter(|_| matches!(check.confidence, Confidence::Level(_)));
    if let Some((flags, tail)) = counted.filter(|(flags, _)| !flags.is_empty()) {
        // Requests in one queue are correlated.
        let effect = flag_dependence(&flags).effect(POINT);
        let breaking = flags.iter().filter(|breaks| **breaks).count() as f64;
        return quantile_bound::chance(flags.len() as f64 / effect, breaking / effect, tail);
    }
    let conditions = Conditions::of(sample, LoadKind::Other);
    let ruling = |confidence| {
        rule(
            &Check {
                confidence,
                ..check.clone()
            },
            sample,
            &conditions,
        )
        .ruling
    };
    match check.confidence {
        Confidence::Point => probability(ruling(Confidence::Point), POINT),
        Confidence::Level(_) => {
            let deciding = LEVELS
                .iter()
                .rev()
                .map(|level| (ruling(Confidence::Level(*level)), *level));
            let decided = deciding
                .into_iter()
                .find(|(ruling, _)| *ruling != Ruling::Inconclusive);
            decided.map_or(0.5, |(ruling, level)| probability(ruling, level))
        }
    }
}

fn probability(ruling: Ruling, level: f64) -> f64 {
    match ruling {
        Ruling::Pass => level,
        Ruling::Fail => 1.0 - level,
        Ruling::Inconclusive | Ruling::Invalid => 0.5,
    }
}

/// Which samples break a limit on a quantile or a share, in the order of their requests, and the share that may; None
/// for other checks.
fn breaking_flags(check: &Check, sample: &Sample) -> Option<(Vec<bool>, f64)> {
    let ceiling = check.op.is_ceiling();
    let (flags, tail): (Vec<bool>, f64) = match &check.subject {
        subject if subject.is_share() => {
            let selected = sample
                .requests
                .iter()
                .filter(|request| request.tags().match_all(subject.tags()));
            let hits = selected.filter_map(|request| request.is_hit_of(subject));
            let flags = hits.map(|hit| hit == ceiling);
            (
                flags.collect(),
                if ceiling {
                    check.limit
                } else {
                    1.0 - check.limit
                },
            )
        }
        Subject::Metric {
            stat: Some(Stat::Quantile(p)),
            ..
        } => match Evidence::collect(check, sample) {
            Evidence::Values(values, _) => {
                let flags = values
                    .iter()
                    .map(|value| !check.op.holds(*value, check.limit));
                (flags.collect(), if ceiling { 1.0 - p } else { *p })
            }
            _ => return None,
        },
        _ => return None,
    };
    (0.0 < tail && tail < 1.0).then_some((flags, tail))
}

/// Whether a check on a quantile or a share can no longer pass, by a group-sequential test on a growing sample;
/// `looks` has one test per check.
///
/// Requests in flight are missing, and they are the slow ones: a limit that fails without them would fail with them.
pub fn is_futile(checks: &[Check], sample: &Sample, looks: &mut [AlphaSpending]) -> bool {
    let mut is_futile = false;
    for (check, looks) in checks.iter().zip(looks) {
        if let Some((flags, tail)) = breaking_flags(check, sample) {
            let effect = flag_dependence(&flags).times();
            let breaking = flags.iter().filter(|breaks| **breaks).count() as f64;
            is_futile |= looks.is_refuted(
                (flags.len() as f64 / effect) as u64,
                (breaking / effect) as u64,
                tail,
            );
        }
    }
    is_futile
}

#[cfg(test)]
mod tests;
