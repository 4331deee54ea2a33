//! How likely a limit holds: not a ruling, but what a search weighs its probes by.

use crate::judge::evidence::{Evidence, goodput_flags};
use crate::judge::{Conditions, LoadKind, rule};
use llmscen_core::check::{Check, Confidence, Ruling, Subject};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::sample::Sample;
use llmscen_core::stats::sequential::Looks;
use llmscen_core::stats::design::of_flags;
use llmscen_core::stats::quantile_bound;

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
            let flags = goodput_flags(&sample.rows, limits);
            (flags.into_iter().map(|good| good == ceiling).collect(), if ceiling { check.limit } else { 1.0 - check.limit })
        }
        Subject::Metric { metric: Metric::ErrorRate, tags, stat: None } if tags.is_empty() => {
            let flags = sample.rows.iter().map(|row| row.ok != ceiling);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, failed, goodput, ok, sample};
    use llmscen_core::check::Op;
    use llmscen_core::check::RequestLimit;

    fn of(check: &Check, waits: &[f64]) -> f64 {
        chance(std::slice::from_ref(check), &sample(waits.iter().map(|wait| ok(Metric::Ttft, *wait)).collect()))
    }

    #[test]
    fn a_quantile_is_as_likely_as_its_counts_say() {
        let p90 = check(Metric::Ttft, Some(Stat::Quantile(0.9)), Op::Less, 5.0);
        assert_eq!(of(&p90, &[1.0; 29]), quantile_bound::chance(29.0, 0.0, 0.1));
        assert!(of(&p90, &[1.0; 29]) > 0.97 && of(&p90, &[9.0; 29]) < 1e-6);
        let floor = check(Metric::Ttft, Some(Stat::Quantile(0.1)), Op::More, 5.0);
        assert!(of(&floor, &[9.0; 29]) > 0.97 && of(&floor, &[1.0; 29]) < 1e-6);
    }

    #[test]
    fn shares_count_their_own_kind_and_the_least_likely_limit_speaks() {
        let errors = check(Metric::ErrorRate, None, Op::Less, 0.1);
        let good = goodput(vec![RequestLimit { metric: Metric::Ttft, op: Op::Less, limit: 5.0 }], Op::AtLeast, 0.9);
        let rows =
            |bad: usize| sample((0..60).map(|i| if i * 7 % 60 < bad { failed() } else { ok(Metric::Ttft, 1.0) }).collect());
        let both = |bad| chance(&[errors.clone(), good.clone()], &rows(bad));
        assert!(both(0) > 0.99 && both(30) < 1e-6, "{} {}", both(0), both(30));
        let slow = check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::Less, 0.5);
        assert!(chance(&[errors, slow], &rows(0)) < 1e-6);
    }

    #[test]
    fn means_and_points_are_believed_as_far_as_they_are_ruled_on() {
        let mean = check(Metric::Ttft, Some(Stat::Mean), Op::Less, 5.0);
        let waits: Vec<f64> = (0..50).map(|i| f64::from(i % 5)).collect();
        assert_eq!((of(&mean, &waits), of(&Check { limit: 1.0, ..mean }, &waits)), (0.99, 1.0 - 0.99));
        let most = check(Metric::Ttft, Some(Stat::Max), Op::Less, 5.0);
        assert_eq!(of(&Check { confidence: Confidence::Point, ..most }, &waits), POINT);
    }

    #[test]
    fn a_lost_limit_is_given_up_at_a_look_and_a_good_one_is_not() {
        let p90 = check(Metric::Ttft, Some(Stat::Quantile(0.9)), Op::Less, 5.0);
        let lost = |n: usize, wait: f64| {
            let seen = sample(vec![ok(Metric::Ttft, wait); n]);
            hopeless(std::slice::from_ref(&p90), &seen, &mut [Looks::new(0.001)])
        };
        assert_eq!((lost(15, 9.0), lost(16, 9.0), lost(16, 1.0)), (false, true, false));
    }
}
