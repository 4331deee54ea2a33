//! Objectives of a case whose rounds ran on restarted servers: the variance between starts counts, too.

use crate::judge::compare::is_comparable;
use crate::judge::figure::figure;
use crate::sample::Sample;
use llmscen_core::check::{Check, Confidence, RequestSet, Ruling, Subject, Verdict};
use llmscen_core::compare::Measure;
use llmscen_core::stats::comparison::Group;
use llmscen_core::stats::distributions::t_quantile;

/// Rounds up to which the required number is searched.
const MAX_ROUNDS: usize = 1000;

/// Confirms a verdict by the rounds, of which each is one value: a pass or a failure must also follow from their mean
/// by Student's t, on logarithms where all values are positive and no shares. Otherwise it becomes inconclusive.
pub fn confirm_by_rounds(verdict: Verdict, rounds: &[Sample]) -> Verdict {
    let Verdict { check, ruling, .. } = &verdict;
    let (Confidence::Level(level), Ruling::Pass | Ruling::Fail) = (check.confidence, ruling) else {
        return verdict;
    };
    if check.relative.is_some() || !is_replicable(check) {
        return verdict;
    }
    let values: Vec<f64> = rounds
        .iter()
        .filter_map(|round| Some(figure(check, round, &[])?.value))
        .collect();
    let missing = rounds.len() - values.len();
    if missing > 0 && *ruling == Ruling::Pass {
        let note = format!(
            "{missing} of the {} restarted servers gave no value for this objective",
            rounds.len()
        );
        return Verdict {
            ruling: Ruling::Inconclusive,
            bound: None,
            need: None,
            note: Some(note),
            ..verdict
        };
    }
    if missing > 0 && check.of == RequestSet::Scheduled {
        return verdict;
    }
    let share = check.subject.is_share();
    let logs = !share && values.iter().all(|value| *value > 0.0);
    let scaled: Vec<f64> = values
        .iter()
        .map(|value| if logs { value.ln() } else { *value })
        .collect();
    let Some((group, ends)) =
        Group::from_values(&scaled).and_then(|group| Some((group, group.ends(level)?)))
    else {
        return verdict;
    };
    let back = |value: f64| if logs { value.exp() } else { value };
    let (low, high) = (back(ends.0), back(ends.1));
    let (worst, best) = if check.op.is_ceiling() {
        (high, low)
    } else {
        (low, high)
    };
    let is_confirmed = if *ruling == Ruling::Pass {
        check.op.holds(worst, check.limit)
    } else {
        !check.op.holds(best, check.limit)
    };
    if is_confirmed {
        let farther = |bound: f64| {
            if check.op.is_ceiling() {
                bound.max(worst)
            } else {
                bound.min(worst)
            }
        };
        return Verdict {
            bound: verdict.bound.map(farther),
            ..verdict
        };
    }
    let sd = group.variance.unwrap_or_default().sqrt();
    let differ = if logs {
        format!("{:.1} %", sd.exp_m1() * 100.0)
    } else {
        format!("{sd:.3}")
    };
    let limit = if logs { check.limit.ln() } else { check.limit };
    let more = required_rounds(sd, (limit - group.mean).abs(), level)
        .map(|count| format!(": set rounds.count: {count}"))
        .unwrap_or_default();
    let note = format!(
        "the {} restarted servers differ by {differ} (standard deviation), too much for a verdict{more}",
        group.n
    );
    Verdict {
        ruling: Ruling::Inconclusive,
        bound: Some(worst),
        need: None,
        note: Some(note),
        ..verdict
    }
}

/// Whether each round has a value of the check's subject that more rounds make more precise.
fn is_replicable(check: &Check) -> bool {
    match &check.subject {
        Subject::Goodput(_) | Subject::Finish { .. } => true,
        Subject::Metric { metric, stat, .. } => {
            is_comparable(Measure {
                metric: *metric,
                stat: *stat,
            }) || metric.cost_basis().is_some()
        }
        Subject::Signal { .. } | Subject::PageMetric(_) => false,
    }
}

/// Rounds with which a mean at this distance from the limit would be decided.
fn required_rounds(sd: f64, distance: f64, level: f64) -> Option<usize> {
    let reach = |count: usize| t_quantile(level, count as f64 - 1.0) * sd / (count as f64).sqrt();
    // Student's t is slow: double first.
    let above = std::iter::successors(Some(3), |count| Some(count * 2))
        .take_while(|count| *count <= MAX_ROUNDS)
        .find(|count| reach(*count) <= distance)?;
    (above / 2..=above)
        .filter(|count| *count > 2)
        .find(|count| reach(*count) <= distance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, failed, ok, sample};
    use llmscen_core::check::Op;
    use llmscen_core::metric::{Metric, Stat};

    fn rounds(values: &[f64]) -> Vec<Sample> {
        values
            .iter()
            .map(|value| sample((0..20).map(|_| ok(Metric::Ttft, *value)).collect()))
            .collect()
    }

    fn verdict(check: Check, ruling: Ruling, bound: Option<f64>) -> Verdict {
        Verdict {
            check,
            ruling,
            observed: Some(100.0),
            bound,
            n: 60,
            effective_n: None,
            need: None,
            note: None,
        }
    }

    fn ruled(ruling: Ruling, limit: f64, values: &[f64]) -> Verdict {
        let check = check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::Less, limit);
        confirm_by_rounds(verdict(check, ruling, Some(101.0)), &rounds(values))
    }

    #[test]
    fn a_verdict_stands_only_where_the_restarts_agree() {
        let logs = [-0.02f64, 0.0, 0.02].map(|log| 100.0 * log.exp());
        // t(0.95; 2) · 0.02 / √3 = 2.919986 · 0.011547 = 0.033717.
        let pass = ruled(Ruling::Pass, 104.0, &logs);
        assert_eq!(pass.ruling, Ruling::Pass);
        assert!(
            (pass.bound.unwrap() - 100.0 * 0.033717f64.exp()).abs() < 1e-3,
            "{pass:?}"
        );
        let open = ruled(Ruling::Pass, 103.0, &logs);
        let note = "the 3 restarted servers differ by 2.0 % (standard deviation), too much for a \
        verdict: set rounds.count: 4";
        assert_eq!(
            (open.ruling, open.note.as_deref()),
            (Ruling::Inconclusive, Some(note))
        );
        assert_eq!(
            (
                ruled(Ruling::Fail, 96.0, &logs).ruling,
                ruled(Ruling::Fail, 98.0, &logs).ruling
            ),
            { (Ruling::Fail, Ruling::Inconclusive) }
        );
    }

    #[test]
    fn a_round_without_a_finite_value_is_no_reason_to_pass() {
        let limit = check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::Less, 500.0);
        let limit = Check {
            of: RequestSet::Scheduled,
            ..limit
        };
        let mut all = rounds(&[98.0, 100.0, 102.0]);
        all.push(sample(vec![failed(); 20]));
        let of = |ruling| confirm_by_rounds(verdict(limit.clone(), ruling, Some(102.0)), &all);
        let open = of(Ruling::Pass);
        let note = "1 of the 4 restarted servers gave no value for this objective";
        assert_eq!(
            (open.ruling, open.bound, open.note.as_deref()),
            (Ruling::Inconclusive, None, Some(note))
        );
        assert_eq!(of(Ruling::Fail).ruling, Ruling::Fail);
    }

    #[test]
    fn what_rounds_do_not_replicate_stays() {
        let max = check(Metric::Ttft, Some(Stat::Max), Op::Less, 100.5);
        let verdict = verdict(max, Ruling::Fail, None);
        assert_eq!(
            confirm_by_rounds(verdict.clone(), &rounds(&[98.0, 100.0, 102.0])),
            verdict
        );
        let one = ruled(Ruling::Pass, 100.5, &[100.0]);
        assert_eq!(
            (one.ruling, one.bound),
            (Ruling::Pass, Some(101.0)),
            "one round shows nothing of how they differ"
        );
        assert_eq!(
            ruled(Ruling::Inconclusive, 104.0, &[98.0, 100.0, 102.0]).ruling,
            Ruling::Inconclusive
        );
    }
}
