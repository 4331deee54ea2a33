//! Is the measurement itself sound? The self-audit of a case over its rounds.

use crate::model::ending::Ending;
use crate::model::manifest::{Part, Vitals};
use crate::model::metric::Metric;
use crate::model::outcome::{Failure, FailureKind};
use crate::model::plan::AuditLimits;
use crate::model::report::{Audit, OFF_PLAN};
use crate::model::sample::Sample;
use crate::model::units::Unit;
use crate::stats::{quantile, share};
use crate::view::format::{against, millis};

/// From so many milliseconds on, and from this share of the spans that were measured, a valid case's stall is spoken of.
const NOTED_STALL: f64 = 1.0;
const NOTED_SHARE: f64 = 0.25;

/// The share of requests, or of ticks, that may be later than the limit, and how sure it must be that more were.
const LATE: (f64, f64) = (0.01, 0.95);
/// So many late ones at the least decide something, where there are as many at all: one hiccup makes a few of them.
const FEW: u64 = 3;

/// How many of `n` must be late for more than a hundredth to be late: of less than a hundred the p99 is the greatest, and one
/// would decide.
pub(super) fn many(n: u64) -> Option<u64> {
    share::decisive(n, LATE.0, LATE.1).map(|many| many.max(FEW.min(n)))
}

/// The audit of one case from its rounds' facts and its rows.
///
/// `rounds` is how many were planned; a case that was given up needs no more of them. Lag comes from every measured row that was sent; the rest from what the worker threads saw of themselves, the worst
/// round counting.
pub fn audit(parts: &[&Part], rounds: u32, sample: &Sample, limits: &AuditLimits) -> Audit {
    let mut lags: Vec<f64> = sample.rows.iter().filter_map(|row| row.values.get(&Metric::ScheduleLag).copied()).collect();
    quantile::sort(&mut lags);
    let at = |share: f64| quantile::nearest_rank(&lags, share);
    let offered = sample.scalars.get(&Metric::RateOffered).filter(|offered| **offered > 0.0);
    let achieved = sample.scalars.get(&Metric::RateAchieved);
    let worst =
        |value: fn(&Vitals) -> f64| parts.iter().filter_map(|part| part.vitals.as_ref()).map(value).max_by(f64::total_cmp);
    let mut audit = Audit {
        valid: true,
        schedule_lag_ms_p50: at(0.50),
        schedule_lag_ms_p99: at(0.99),
        schedule_lag_ms_max: lags.last().copied(),
        achieved_over_offered: offered.zip(achieved).map(|(offered, achieved)| achieved / offered),
        stall_ms_p99: worst(|vitals| vitals.stall_ms_p99),
        stall_ms_max: worst(|vitals| vitals.stall_ms_max),
        cpu_share_max: worst(|vitals| vitals.cpu_shares.iter().copied().fold(0.0, f64::max)),
        memory_peak: parts.iter().filter_map(|part| part.vitals.as_ref()).map(|vitals| vitals.memory_peak).max(),
        events_per_s: worst(|vitals| vitals.events_per_s),
        bytes_in_per_s: worst(|vitals| vitals.bytes_in_per_s),
        bytes_out_per_s: worst(|vitals| vitals.bytes_out_per_s),
        dropped: sample.counts.dropped,
        reasons: Vec::new(),
    };
    // Where it is not known what is sure, p99 is the best that there is.
    let late = many(lags.len() as u64).and_then(|many| lags.get(lags.len() - many as usize).copied());
    let stalled = worst(|vitals| vitals.stall_ms_sure.unwrap_or(vitals.stall_ms_p99));
    audit.reasons = match parts.iter().any(|part| part.local.is_some()) {
        false => reasons(&audit, [late, stalled], limits),
        // The stamps of a model in this process are its own thread's, and the cores are there for it: what a worker thread was
        // late by, or busy with, is in none of them. When requests left counts as ever.
        true => reasons(&Audit { cpu_share_max: None, ..audit.clone() }, [late, None], limits),
    };
    audit.reasons.extend(short_rate(&audit, sample.counts.scheduled, limits.achieved));
    audit.reasons.extend(without_file(sample.without_file));
    audit.reasons.extend(stalled_requests(sample.counts.failures.get(&FailureKind::ToolStall).copied().unwrap_or(0)));
    audit.reasons.extend(parts.iter().filter_map(|part| part.cut_short.as_ref()).map(|why| format!("{OFF_PLAN}{why}")));
    let given_up = parts.iter().any(|part| part.ending.as_ref().is_some_and(Ending::ends_case));
    if parts.len() < rounds as usize && !given_up {
        audit.reasons.push(format!("{OFF_PLAN}{} of {rounds} rounds ran", parts.len()));
    }
    audit.valid = audit.reasons.is_empty();
    audit
}

/// By how much enough requests left late, and enough ticks came late, decides; told is the p99, which is as much or more.
/// Limits are printed with as many digits as tell them from what broke them.
fn reasons(audit: &Audit, [late, stalled]: [Option<f64>; 2], limits: &AuditLimits) -> Vec<String> {
    let p99 = |sure: Option<f64>, limit: f64, p99: Option<f64>| sure.filter(|sure| *sure > limit).and(p99);
    let mut reasons = Vec::new();
    let mut over = |value: Option<f64>, limit: f64, unit: Unit, say: &dyn Fn(&str) -> String| {
        if let Some(value) = value.filter(|value| *value > limit) {
            let limit_text = against(Some(limit), limit, unit);
            reasons.push(say(&format!("{} (limit {limit_text})", against(Some(value), limit, unit))));
        }
    };
    let limit = limits.lag_p99.millis();
    over(p99(late, limit, audit.schedule_lag_ms_p99), limit, Unit::Millis, &|lag| {
        format!("requests left late by {lag} at p99: the tool could not keep its schedule")
    });
    let limit = limits.stall_p99.millis();
    over(p99(stalled, limit, audit.stall_ms_p99), limit, Unit::Millis, &|stall| {
        format!("worker threads stalled for {stall} at p99: stamps are late by as much")
    });
    over(audit.cpu_share_max, limits.cpu, Unit::Share, &|share| format!("a worker thread was busy for {share} of the time"));
    reasons
}

/// What was not sent for want of a file is the tool's failure, whatever the rows say.
fn without_file(requests: u64) -> Option<String> {
    let failed = format!("requests failed since {}: {requests}", Failure::NO_FILES);
    (requests > 0).then(|| format!("{failed}; raise the limit (`ulimit -n`), or bound the load by `max_in_flight`"))
}

/// Whether these requests would have failed is not known.
fn stalled_requests(requests: u64) -> Option<String> {
    let why = "requests reached a timeout while the load generator stalled repeatedly (`tool_stall`)";
    (requests > 0).then(|| format!("{why}: {requests}; free CPU on this machine, or lower the load"))
}

/// Too little of the offered rate was sent. Where arrivals without room explain it, the tool kept up and the server did not.
fn short_rate(audit: &Audit, scheduled: u64, limit: f64) -> Option<String> {
    let share = audit.achieved_over_offered.filter(|share| *share < limit)?;
    let (seen, limit_text) = (against(Some(share), limit, Unit::Share), against(Some(limit), limit, Unit::Share));
    let sent = format!("{seen} of the offered rate was sent (limit {limit_text})");
    if audit.dropped == 0 {
        return Some(sent);
    }
    let kept_up = share + audit.dropped as f64 / scheduled.max(1) as f64 >= limit;
    let why = if kept_up { OFF_PLAN } else { "" };
    Some(format!("{why}{sent}; {} of {scheduled} arrivals found no room under `max_in_flight`", audit.dropped))
}

/// A stall within its limit is no reason to reject a case, but short spans are then partly the tool's own.
pub fn caution(audit: &Audit, sample: &Sample) -> Option<String> {
    let of = |metric| sample.distributions.get(&metric).and_then(|seen| seen.quantile(0.99)).map(|span| (metric, span));
    let (metric, span) = of(Metric::Itl).filter(|itl| itl.1 > 0.0).or_else(|| of(Metric::Ttft))?;
    let stall = audit.stall_ms_p99.filter(|stall| audit.valid && *stall > NOTED_STALL && *stall > NOTED_SHARE * span)?;
    Some(format!(
        "Worker threads were up to {} late at p99, {:.0} % of `{metric}` p99: the tail of short spans is partly the tool's own.",
        millis(stall),
        stall / span * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::{Counts, Distribution, Row};
    use std::collections::BTreeMap;

    fn sample(lags: &[f64]) -> Sample {
        let row = |lag: &f64| Row { values: [(Metric::ScheduleLag, *lag)].into(), ..Row::default() };
        Sample { rows: lags.iter().map(row).collect(), ..Sample::default() }
    }

    fn part(vitals: Vitals) -> Part {
        Part { vitals: Some(vitals), ..Part::default() }
    }

    #[test]
    fn a_healthy_run_is_valid() {
        let part = part(Vitals { stall_ms_p99: 0.4, cpu_shares: vec![0.2, 0.5], ..Vitals::default() });
        let audit = audit(&[&part], 1, &sample(&[0.1, 0.2, 4.9]), &AuditLimits::default());
        assert!(audit.valid, "{:?}", audit.reasons);
        assert_eq!((audit.schedule_lag_ms_p50, audit.schedule_lag_ms_max), (Some(0.2), Some(4.9)));
        assert_eq!(audit.cpu_share_max, Some(0.5));
    }

    #[test]
    fn every_threshold_gives_its_own_reason() {
        let part = Part {
            cut_short: Some("interrupted".into()),
            ..part(Vitals { stall_ms_p99: 9.0, cpu_shares: vec![0.95], ..Vitals::default() })
        };
        let mut late = sample(&[6.0]);
        late.scalars = BTreeMap::from([(Metric::RateOffered, 100.0), (Metric::RateAchieved, 90.0)]);
        let audit = audit(&[&part], 1, &late, &AuditLimits::default());
        let starts: Vec<&str> = audit.reasons.iter().map(|reason| &reason[..12]).collect();
        assert_eq!(starts, ["requests lef", "worker threa", "a worker thr", "90% of the o", "the run did "]);
        assert!(!audit.valid);
    }

    #[test]
    fn one_hiccup_does_not_decide_a_short_case_and_lasting_lateness_does() {
        let of = |late: usize, n: usize| {
            let lags: Vec<f64> = (0..n).map(|place| if place < late { 30.0 } else { 0.1 }).collect();
            let reasons = audit(&[&Part::default()], 1, &sample(&lags), &AuditLimits::default()).reasons;
            let known = "requests left late by 30 ms (limit 5 ms) at p99: the tool could not keep its schedule";
            assert!(reasons.is_empty() || reasons == [known], "{reasons:?}");
            reasons.len()
        };
        assert_eq!([of(1, 14), of(2, 14), of(2, 50), of(15, 1000)], [0; 4]);
        assert_eq!([of(1, 1), of(2, 2), of(3, 14), of(3, 50), of(16, 1000), of(14, 14)], [1; 6]);
    }

    #[test]
    fn few_late_ticks_are_told_and_decide_nothing() {
        let of = |sure| part(Vitals { stall_ms_p99: 30.0, stall_ms_sure: sure, ..Vitals::default() });
        let seen = |sure| audit(&[&of(sure)], 1, &sample(&[0.1]), &AuditLimits::default());
        assert_eq!((seen(Some(4.0)).valid, seen(Some(4.0)).stall_ms_p99), (true, Some(30.0)));
        let known = "worker threads stalled for 30 ms (limit 5 ms) at p99: stamps are late by as much";
        assert_eq!([seen(Some(6.0)), seen(None)].map(|audit| audit.reasons), [[known], [known]]);
    }

    #[test]
    fn what_breaks_a_threshold_never_looks_equal_to_it() {
        let part = part(Vitals { stall_ms_p99: 5.004, cpu_shares: vec![0.9004], ..Vitals::default() });
        let mut late = sample(&[5.0004]);
        late.scalars = BTreeMap::from([(Metric::RateOffered, 1000.0), (Metric::RateAchieved, 979.6)]);
        let known = [
            "requests left late by 5.0004 ms (limit 5 ms) at p99: the tool could not keep its schedule",
            "worker threads stalled for 5.004 ms (limit 5 ms) at p99: stamps are late by as much",
            "a worker thread was busy for 90.04% (limit 90%) of the time",
            "97.96% of the offered rate was sent (limit 98%)",
        ];
        assert_eq!(audit(&[&part], 1, &late, &AuditLimits::default()).reasons, known);
    }

    #[test]
    fn a_stall_within_its_limit_is_told_where_spans_are_short() {
        let gaps = |p99| {
            let itl = Distribution { n: 9, mean: p99, sd: None, min: p99, max: p99, quantiles: vec![p99; 13] };
            Sample { distributions: BTreeMap::from([(Metric::Itl, itl)]), ..Sample::default() }
        };
        let stalled = |stall| Audit { valid: true, stall_ms_p99: Some(stall), ..Audit::default() };
        let said = caution(&stalled(3.8), &gaps(8.0)).unwrap();
        assert!(said.starts_with("Worker threads were up to 3.80 ms late at p99, 48 % of `itl` p99"), "{said}");
        assert_eq!([caution(&stalled(0.9), &gaps(1.0)), caution(&stalled(3.8), &gaps(20.0))], [None, None]);
    }

    #[test]
    fn arrivals_without_room_are_not_the_tools_slowness() {
        let mut full = sample(&[0.1]);
        full.scalars = BTreeMap::from([(Metric::RateOffered, 100.0), (Metric::RateAchieved, 60.0)]);
        full.counts = Counts { scheduled: 200, dropped: 80, ..Counts::default() };
        let reason = |sample: &Sample| audit(&[&Part::default()], 1, sample, &AuditLimits::default()).reasons.concat();
        let known = "60% of the offered rate was sent (limit 98%); 80 of 200 arrivals found no room under `max_in_flight`";
        assert_eq!(reason(&full), format!("{OFF_PLAN}{known}"));
        full.counts.dropped = 40;
        assert!(reason(&full).starts_with("60% of the offered rate"), "{}", reason(&full));
    }

    #[test]
    fn a_model_in_this_process_stamps_its_tokens_itself() {
        let busy = Vitals { stall_ms_p99: 50.0, cpu_shares: vec![0.99], ..Vitals::default() };
        let part = Part { local: Some(Default::default()), ..part(busy) };
        let own = |lag| audit(&[&part], 1, &sample(&[lag]), &AuditLimits::default());
        assert_eq!((own(0.1).valid, own(0.1).stall_ms_p99), (true, Some(50.0)));
        assert_eq!(own(9.0).reasons, ["requests left late by 9 ms (limit 5 ms) at p99: the tool could not keep its schedule"]);
    }

    #[test]
    fn a_request_without_a_file_is_the_tools_own_failure() {
        let short = Sample { without_file: 3, ..sample(&[0.1]) };
        let known = "requests failed since this process may open no more files: 3; raise the limit (`ulimit -n`), or bound \
            the load by `max_in_flight`";
        assert_eq!(audit(&[&Part::default()], 1, &short, &AuditLimits::default()).reasons, [known]);
    }

    #[test]
    fn a_timeout_in_a_stall_of_the_tool_makes_the_case_invalid() {
        let mut stalled = sample(&[0.1]);
        stalled.counts.failures = BTreeMap::from([(FailureKind::ToolStall, 2), (FailureKind::TimeoutRead, 1)]);
        let known = "requests reached a timeout while the load generator stalled repeatedly (`tool_stall`): 2; free CPU on this \
            machine, or lower the load";
        assert_eq!(audit(&[&Part::default()], 1, &stalled, &AuditLimits::default()).reasons, [known]);
    }

    #[test]
    fn a_case_that_never_ran_is_not_valid() {
        let audit = audit(&[], 1, &sample(&[]), &AuditLimits::default());
        assert_eq!(audit.reasons, ["the run did not happen as planned: 0 of 1 rounds ran"]);
    }

    #[test]
    fn one_bad_round_is_not_averaged_away() {
        let good = part(Vitals { stall_ms_p99: 0.1, ..Vitals::default() });
        let bad = part(Vitals { stall_ms_p99: 50.0, ..Vitals::default() });
        assert!(!audit(&[&good, &bad], 2, &sample(&[0.0]), &AuditLimits::default()).valid);
    }
}
