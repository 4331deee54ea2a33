//! How many samples a check needs, known before the run.

use crate::judge::relative::tail;
use llmscen_core::check::{Check, Confidence, Op, Subject};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::stats::long_run::LEAST;
use llmscen_core::stats::quantile_bound;

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
mod tests {
    use super::*;
    use crate::judge::fixture::{check, conditions, goodput, ok, sample};
    use crate::judge::rule;
    use llmscen_core::check::Ruling;

    fn quantile(metric: Metric, p: f64, op: Op) -> Check {
        check(metric, Some(Stat::Quantile(p)), op, 5.0)
    }

    #[test]
    fn the_known_sizes() {
        assert_eq!(needed(&quantile(Metric::Ttft, 0.95, Op::Less)), Some(59));
        assert_eq!(needed(&Check { confidence: Confidence::Level(0.99), ..quantile(Metric::Ttft, 0.9, Op::Less) }), Some(44));
        assert_eq!(needed(&quantile(Metric::DecodeTps, 0.05, Op::AtLeast)), Some(59));
        assert_eq!(needed(&check(Metric::ErrorRate, None, Op::Less, 0.01)), Some(299));
        assert_eq!(needed(&goodput(Vec::new(), Op::AtLeast, 0.99)), Some(299));
        assert_eq!(needed(&check(Metric::OutputTps, None, Op::AtLeast, 5.0)), Some(20));
        let mean = check(Metric::Ttft, Some(Stat::Mean), Op::Less, 5.0);
        assert_eq!(needed(&Check { confidence: Confidence::Level(0.99), ..mean }), Some(20));
    }

    #[test]
    fn points_need_no_number() {
        assert_eq!(needed(&Check { confidence: Confidence::Point, ..quantile(Metric::Ttft, 0.95, Op::Less) }), None);
        assert_eq!(needed(&quantile(Metric::Ttft, 0.95, Op::Equal)), None);
        assert_eq!(needed(&quantile(Metric::Ttft, 1.0, Op::Less)), None);
        assert_eq!(needed(&quantile(Metric::Itl, 0.99, Op::Less)), None);
        assert_eq!(needed(&check(Metric::ErrorRate, None, Op::AtMost, 0.0)), None);
        assert_eq!(needed(&check(Metric::ConcurrencyMax, None, Op::AtMost, 8.0)), None);
    }

    #[test]
    fn it_is_the_number_at_which_the_ruling_turns() {
        let ruling = |wanted: &Check, n: usize| rule(wanted, &sample(vec![ok(Metric::Ttft, 1.0); n]), &conditions(true)).ruling;
        let (p95, mean) = (quantile(Metric::Ttft, 0.95, Op::Less), check(Metric::Ttft, Some(Stat::Mean), Op::Less, 5.0));
        assert_eq!((ruling(&p95, 58), ruling(&p95, 59)), (Ruling::Inconclusive, Ruling::Pass));
        assert_eq!((ruling(&mean, 19), ruling(&mean, 20)), (Ruling::Inconclusive, Ruling::Pass));
    }
}
