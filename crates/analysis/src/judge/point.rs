//! Point estimates, why a limit is judged by one, and limits on figures of which only a bound is known.

use crate::judge::evidence::Evidence;
use crate::judge::rule::Opinion;
use llmscen_core::check::{Check, Op, Ruling, Subject};
use llmscen_core::metric::Stat;
use llmscen_core::stats::{moments, quantile};
use llmscen_core::telemetry::Seen;

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
        Stat::Quantile(p) => quantile::select_quantile(values, p),
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

// Figures of which a server's histogram knows a bound alone.

/// What holds whatever the figure is within its bound, and what is broken whatever it is; all else is open. `n`: what the
/// histogram counted.
pub(super) fn judge_bounded(check: &Check, seen: Seen, n: u64) -> Opinion {
    let (ruling, place) = match seen {
        Seen::Value(value) => return Opinion::point(check.op.holds(value, check.limit), value, n),
        Seen::AtMost(most) => (ruling_of_bound(check, most, check.op.is_ceiling(), check.limit > most), "first"),
        Seen::AtLeast(least) => (ruling_of_bound(check, least, is_floor(check.op), check.limit < least), "last"),
    };
    let unit = match &check.subject {
        Subject::Signal { signal, .. } => signal.unit().symbol(),
        Subject::Metric { .. } | Subject::Goodput(_) => "",
    };
    let known = format!("{}{} {unit}", seen.sign(), seen.number());
    let note = format!("known only to be {}: it lies in the {place} bucket of the server's histogram", known.trim_end());
    Opinion { ruling, observed: None, bound: None, n, effective_n: None, need: None, note: Some(note) }
}

/// `towards`: the limit bounds the figure on the side on which its bound lies, so that what holds for the bound holds for all.
/// `beyond`: the limit lies where the figure cannot be.
fn ruling_of_bound(check: &Check, bound: f64, towards: bool, beyond: bool) -> Ruling {
    let holds = check.op.holds(bound, check.limit);
    match check.op {
        _ if check.limit.is_nan() => Ruling::Fail,
        Op::Equal if beyond => Ruling::Fail,
        Op::Unequal if beyond => Ruling::Pass,
        Op::Equal | Op::Unequal => Ruling::Inconclusive,
        _ if towards && holds => Ruling::Pass,
        _ if !towards && !holds => Ruling::Fail,
        _ => Ruling::Inconclusive,
    }
}

fn is_floor(op: Op) -> bool {
    matches!(op, Op::More | Op::AtLeast)
}

#[cfg(test)]
mod tests;
