//! Is the measurement itself sound? The self-audit of a case over its rounds.

use crate::model::metric::Metric;
use crate::model::plan::AuditLimits;
use crate::model::report::{Audit, Part, Vitals};
use crate::model::sample::Sample;
use crate::stats::quantile;

/// The audit of one case from its rounds' facts and its rows.
///
/// `rounds` is how many were planned. Lag comes from every measured row that was sent; the rest from what the worker threads saw of themselves, the worst
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
    audit.reasons = reasons(&audit, parts, limits);
    if parts.len() < rounds as usize {
        audit.reasons.push(format!("the run did not happen as planned: {} of {rounds} rounds ran", parts.len()));
    }
    audit.valid = audit.reasons.is_empty();
    audit
}

fn reasons(audit: &Audit, parts: &[&Part], limits: &AuditLimits) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut over = |value: Option<f64>, limit: f64, say: &dyn Fn(f64) -> String| {
        if let Some(value) = value.filter(|value| *value > limit) {
            reasons.push(say(value));
        }
    };
    over(audit.schedule_lag_ms_p99, limits.lag_p99.millis(), &|lag| {
        format!(
            "requests left {lag:.1} ms late at p99 (limit {} ms): the tool could not keep its schedule",
            limits.lag_p99.millis()
        )
    });
    over(audit.stall_ms_p99, limits.stall_p99.millis(), &|stall| {
        format!(
            "worker threads stalled {stall:.1} ms at p99 (limit {} ms): stamps are late by as much",
            limits.stall_p99.millis()
        )
    });
    over(audit.cpu_share_max, limits.cpu, &|share| {
        format!("a worker thread was busy {:.0} % of the time (limit {:.0} %)", share * 100.0, limits.cpu * 100.0)
    });
    let short = audit.achieved_over_offered.filter(|share| *share < limits.achieved);
    reasons.extend(short.map(|share| {
        let dropped = if audit.dropped > 0 {
            format!("; {} arrivals found no room under max_in_flight", audit.dropped)
        } else {
            String::new()
        };
        format!("{:.1} % of the offered rate was sent (limit {:.0} %){dropped}", share * 100.0, limits.achieved * 100.0)
    }));
    reasons.extend(
        parts.iter().filter_map(|part| part.cut_short.as_ref()).map(|why| format!("the run did not happen as planned: {why}")),
    );
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Row;
    use std::collections::BTreeMap;

    fn sample(lags: &[f64]) -> Sample {
        let row = |lag: &f64| Row { values: BTreeMap::from([(Metric::ScheduleLag, *lag)]), ..Row::default() };
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
        assert_eq!(starts, ["requests lef", "worker threa", "a worker thr", "90.0 % of th", "the run did "]);
        assert!(!audit.valid);
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
