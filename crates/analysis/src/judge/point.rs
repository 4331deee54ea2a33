//! Point estimates, and why a limit is judged by one.

use crate::judge::evidence::Evidence;
use crate::judge::quantile::at;
use llmscen_core::check::{Check, Op, Subject};
use llmscen_core::metric::Stat;
use llmscen_core::stats::{moments, quantile};

/// The point estimate and the samples behind it; None without data. Values may change
/// their order.
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
        Stat::Quantile(p) => at(values, quantile::rank(values.len(), p)),
        Stat::Mean => moments::mean(values),
        Stat::Min => values.iter().copied().reduce(f64::min),
        Stat::Max => values.iter().copied().reduce(f64::max),
        Stat::Count => Some(values.len() as f64),
        // A failed request is infinitely far off, and no deviation is taken from that.
        Stat::Sd => values.iter().copied().find(|value| value.is_infinite()).or_else(|| moments::sd(values)),
    }
}

/// Why a limit that asks for a confidence can only be compared as a point; None where it can be judged.
pub(super) fn reason(check: &Check, evidence: &Evidence) -> Option<&'static str> {
    let inner = |share: f64| 0.0 < share && share < 1.0;
    match evidence {
        _ if matches!(check.op, Op::Equal | Op::Unequal) => Some("compared as a point: equality holds at no confidence"),
        _ if matches!(check.subject, Subject::Signal { .. }) => {
            Some("compared as a point: samples of a signal follow each other")
        }
        Evidence::Values(_, Stat::Quantile(p)) if inner(*p) => None,
        Evidence::Values(_, Stat::Quantile(_) | Stat::Min | Stat::Max) => {
            Some("compared as a point: no number of samples bounds an extreme")
        }
        Evidence::Values(..) => Some("compared as a point: this statistic has no confidence bound"),
        Evidence::Share { .. } if inner(check.limit) => None,
        Evidence::Share { .. } => Some("compared as a point: no number of samples proves a share of 0 % or 100 %"),
        Evidence::Ratio(_) => None,
        Evidence::Figure(..) => Some("compared as a point: the case has one such figure"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::check;
    use llmscen_core::metric::Metric;

    #[test]
    fn every_statistic_of_a_few_values() {
        let of = |stat| statistic(&mut [3.0, 1.0, 2.0, 6.0], stat);
        let stats = [Stat::Quantile(0.5), Stat::Quantile(1.0), Stat::Mean, Stat::Min, Stat::Max, Stat::Count];
        assert_eq!(stats.map(of), [2.0, 6.0, 3.0, 1.0, 6.0, 4.0].map(Some));
        let lost = [Stat::Mean, Stat::Sd, Stat::Max].map(|stat| statistic(&mut [1.0, f64::INFINITY], stat));
        assert_eq!(lost, [Some(f64::INFINITY); 3]);
        assert_eq!((statistic(&mut [1.0], Stat::Sd), statistic(&mut [], Stat::Count)), (None, None));
    }

    #[test]
    fn only_what_has_a_bound_is_judged_by_one() {
        let judged = |op, limit, evidence: &Evidence| reason(&check(Metric::ErrorRate, None, op, limit), evidence).is_none();
        let (share, quantile) = (Evidence::Share { hits: 0, n: 9 }, Evidence::Values(vec![1.0], Stat::Quantile(0.9)));
        assert!(judged(Op::Less, 0.01, &share) && judged(Op::Less, 5.0, &quantile));
        assert!(!judged(Op::AtMost, 0.0, &share) && !judged(Op::AtLeast, 1.0, &share) && !judged(Op::Equal, 5.0, &quantile));
        assert!(!judged(Op::Less, 5.0, &Evidence::Values(vec![1.0], Stat::Max)));
        assert!(!judged(Op::Less, 5.0, &Evidence::Figure(Some(1.0), 1)));
    }
}
