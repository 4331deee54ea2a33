//! Whether the ends of a run decide a verdict: a cache that is cold, a server that fills up, users that all send at
//! once, or a drain.

use crate::judge::assessment::Assessment;
use crate::judge::design_effect::ordered_requests;
use crate::judge::requirement::required_samples;
use crate::judge::rule::LoadKind;
use crate::measured_requests::MeasuredRequest;
use crate::sample::Sample;
use crate::settle::between_differing_ends;
use llmscen_core::check::{Check, Confidence, Op, Ruling, Subject};
use llmscen_core::metric::Stat;
use llmscen_core::stats::moments::mean;
use std::collections::BTreeMap;
use std::fmt;

/// The verdict, or INCONCLUSIVE if it does not hold without the start and the end of each round, where those differ
/// significantly from the rest on the metric of the check. `judge`: the verdict by other requests.
pub(super) fn without_ends(
    (check, sample): (&Check, &Sample),
    load: LoadKind,
    judged: Assessment,
    judge: impl Fn(&Sample) -> Assessment,
) -> Assessment {
    let is_steady = matches!(load, LoadKind::FixedUsers | LoadKind::Arrivals);
    let is_decided = matches!(judged.ruling, Ruling::Pass | Ruling::Fail);
    if !(is_steady && is_decided && has_interval(check)) {
        return judged;
    }
    let Some(ends) = Ends::find(check, sample) else {
        return judged;
    };
    // Only ends that are worse explain a failure, and only better ones a pass.
    let is_worse = (ends.mean > ends.mean_of_rest) == check.op.is_ceiling();
    if is_worse != (judged.ruling == Ruling::Fail) {
        return judged;
    }
    let rest = judge(&ends.rest(sample));
    // As many requests like the rest would pass.
    let is_small = required_samples(check).is_some_and(|least| rest.n < least)
        || rest.need.is_some_and(|need| need <= judged.n);
    let holds = |value: f64| check.op.holds(value, check.limit);
    let stands = rest.ruling == judged.ruling
        || judged.ruling == Ruling::Pass && is_small && rest.observed.is_some_and(holds);
    match stands {
        true => judged,
        false => judged.undecided(ends.to_string()),
    }
}

/// Whether a check is on a quantile, a mean or a goodput that is judged by an interval.
fn has_interval(check: &Check) -> bool {
    let is_inner = |share: f64| 0.0 < share && share < 1.0;
    let has_order = !matches!(check.op, Op::Equal | Op::Unequal) && !check.limit.is_nan();
    let has_level = matches!(check.confidence, Confidence::Level(_)) && check.relative.is_none();
    let is_estimate = match &check.subject {
        Subject::Metric {
            stat: Some(Stat::Quantile(p)),
            ..
        } => is_inner(*p),
        Subject::Metric { stat, .. } => *stat == Some(Stat::Mean),
        Subject::Goodput(_) => is_inner(check.limit),
        _ => false,
    };
    has_order && has_level && is_estimate
}

/// The start and the end of the rounds of a sample.
#[derive(Default)]
struct Ends {
    /// The scheduled sends of the last request of the start and of the first one of the end, by round.
    outer: BTreeMap<u32, (f64, f64)>,
    /// Requests of the starts, and of the ends.
    first: usize,
    last: usize,
    /// Mean of the metric over their requests, and over the others.
    mean: f64,
    mean_of_rest: f64,
    /// The mean is a share of requests.
    is_share: bool,
}

impl Ends {
    fn find(check: &Check, sample: &Sample) -> Option<Ends> {
        let value = |request: &MeasuredRequest<'_>| match &check.subject {
            Subject::Metric { metric, .. } => request.samples(*metric).mean(),
            subject @ Subject::Goodput(_) => request
                .is_hit_of(subject)
                .map(|good| f64::from(u8::from(good))),
            _ => None,
        };
        let mut ends = Ends {
            is_share: check.subject.is_share(),
            ..Ends::default()
        };
        let requests = ordered_requests(sample, check.subject.tags());
        let known = requests.iter().filter_map(|one| Some((one, value(one)?)));
        let known: Vec<(&MeasuredRequest<'_>, f64)> = known.collect();
        for round in known.chunk_by(|a, b| a.0.round() == b.0.round()) {
            let values: Vec<f64> = round.iter().map(|(_, value)| *value).collect();
            let mut kept = between_differing_ends(&values);
            // A cache that fills changes the values long after the difference is no longer significant.
            kept.start += (2 * kept.start).min(kept.len() * 2 / 3);
            let at = |place: usize| round.get(place).map(|(one, _)| one.scheduled_s());
            let start = kept.start.checked_sub(1).and_then(at);
            let outer = (
                start.unwrap_or(f64::NEG_INFINITY),
                at(kept.end).unwrap_or(f64::INFINITY),
            );
            if let Some((first, _)) = round.first() {
                ends.outer.insert(first.round(), outer);
            }
        }
        let (kept, cut): (Vec<_>, Vec<_>) = known.into_iter().partition(|(one, _)| ends.keeps(one));
        let is_first = |(one, _): &&(&MeasuredRequest<'_>, f64)| {
            let outer = ends.outer.get(&one.round());
            outer.is_some_and(|outer| one.scheduled_s() <= outer.0)
        };
        ends.first = cut.iter().filter(is_first).count();
        ends.last = cut.len() - ends.first;
        let mean_of = |some: &[(&MeasuredRequest<'_>, f64)]| {
            mean(&some.iter().map(|(_, value)| *value).collect::<Vec<f64>>())
        };
        (ends.mean, ends.mean_of_rest) = mean_of(&cut).zip(mean_of(&kept))?;
        Some(ends)
    }

    /// Whether a request is neither of the start nor of the end.
    fn keeps(&self, request: &MeasuredRequest<'_>) -> bool {
        let outer = self.outer.get(&request.round());
        let at = request.scheduled_s();
        outer.is_none_or(|(start, end)| *start < at && at < *end)
    }

    /// The sample without them.
    fn rest(&self, sample: &Sample) -> Sample {
        sample.with_requests(sample.requests.select(|request| self.keeps(&request)))
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match (self.first, self.last) {
            (first, 0) => format!("the first {first} requests"),
            (0, last) => format!("the last {last} requests"),
            (first, last) => format!("the first {first} and the last {last} requests"),
        };
        let share = (self.mean / self.mean_of_rest - 1.0).abs() * 100.0;
        let how = match self.mean > self.mean_of_rest {
            _ if self.is_share => format!(
                "{:.0} % of them are good, and {:.0} % of the others",
                self.mean * 100.0,
                self.mean_of_rest * 100.0
            ),
            true if share.is_infinite() => "their mean is above that of the others".to_owned(),
            true => format!("their mean is {share:.0} % above that of the others"),
            false => format!("their mean is {share:.0} % below that of the others"),
        };
        let remedy = match self.first {
            0 => "Measure",
            _ => "Set `load.warmup`, or measure",
        };
        write!(f, "{which} decide it: {how}. {remedy} for longer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, goodput, ok, sample};
    use crate::judge::{Conditions, rule};
    use llmscen_core::check::{RequestLimit, Verdict};
    use llmscen_core::metric::Metric;

    const P95: Option<Stat> = Some(Stat::Quantile(0.95));

    /// 400 requests with values of about 100 ms, of which the first 60 take about this long.
    fn starting(early: u32) -> Sample {
        let row = |k: u32| TestRequest {
            scheduled_s: f64::from(k),
            ..ok(
                Metric::Ttft,
                f64::from(if k < 60 { early } else { 100 } + k * 7 % 5),
            )
        };
        sample((0..400).map(row).collect())
    }

    fn ruled(check: &Check, sample: &Sample, load: LoadKind) -> Verdict {
        rule(check, sample, &Conditions::of(sample, load))
    }

    #[test]
    fn a_verdict_that_the_start_decides_is_inconclusive() {
        let slow = starting(900);
        let wanted = check(Metric::Ttft, P95, Op::Less, 200.0);
        let seen = ruled(&wanted, &slow, LoadKind::FixedUsers);
        assert_eq!(
            (seen.ruling, seen.bound, seen.need),
            (Ruling::Inconclusive, None, None)
        );
        let note = "the first 180 requests decide it: their mean is 261 % above that of the \
                    others. Set `load.warmup`, or measure for longer";
        assert_eq!(seen.note.as_deref(), Some(note));
        let changing = ruled(&wanted, &slow, LoadKind::Other);
        assert_eq!(changing.ruling, Ruling::Fail, "a load that changes by plan");
        let limit = RequestLimit {
            metric: Metric::Ttft,
            op: Op::Less,
            limit: 200.0,
        };
        let good = goodput(vec![limit], Op::AtLeast, 0.95);
        let seen = ruled(&good, &slow, LoadKind::FixedUsers);
        let note = "the first 180 requests decide it: 67 % of them are good, and 100 % of the \
                    others. Set `load.warmup`, or measure for longer";
        assert_eq!(
            (seen.ruling, seen.note.as_deref()),
            (Ruling::Inconclusive, Some(note))
        );
    }

    #[test]
    fn a_start_that_changes_nothing_and_one_like_the_rest_leave_the_verdict() {
        let of = |early: u32, limit: f64| {
            let wanted = check(Metric::Ttft, P95, Op::Less, limit);
            ruled(&wanted, &starting(early), LoadKind::FixedUsers).ruling
        };
        assert_eq!(of(900, 50.0), Ruling::Fail, "the rest fails, too");
        assert_eq!(of(20, 200.0), Ruling::Pass, "the rest passes, too");
        assert_eq!(of(100, 200.0), Ruling::Pass);
        let mean = |early: u32, limit: f64| {
            let wanted = check(Metric::Ttft, Some(Stat::Mean), Op::Less, limit);
            ruled(&wanted, &starting(early), LoadKind::FixedUsers).ruling
        };
        assert_eq!(mean(900, 1000.0), Ruling::Pass, "a slow start passes");
        assert_eq!(
            mean(20, 101.0),
            Ruling::Inconclusive,
            "a fast start decides"
        );
    }
}
