//! The self-audit of the shards of a distributed run: lost and late shards, clocks, and shards whose load generator
//! fell behind.

use crate::run::audit::{decisive_late_count, is_significant_stall, without_file};
use llmscen_analysis::{Sample, ShardSample};
use llmscen_core::load::{Arrival, Shape};
use llmscen_core::manifest::{Part, ShardPart, Vitals, WorkerStalls};
use llmscen_core::metric::Metric;
use llmscen_core::plan::{AuditLimits, Case};
use llmscen_core::report::{Cause, InvalidReason, ShardRecord};
use llmscen_core::stats::comparison::{holm, kruskal_wallis};
use llmscen_core::stats::quantile::{self, Method, quantile, sort};
use llmscen_core::units::Unit;
use llmscen_report::format::{against, millis};
use llmscen_report::shards::MIN_TTFT_SHARE;
use std::collections::BTreeMap;

/// Send delays of a shard that are at most this share of the median latency change no result.
const MIN_DELAY_SHARE: f64 = 0.1;
/// A shard with another TTFT is noted if the test is significant at this level, and the difference is above
/// [`MIN_TTFT_SHARE`].
const SIGNIFICANCE: f64 = 0.05;

/// The shards of one case.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ShardAudit {
    /// One record per shard, by number.
    pub records: Vec<ShardRecord>,
    /// Why every verdict of the case is invalid.
    pub invalidating: Vec<InvalidReason>,
    /// Requests that a shard had no file or port for.
    pub without_file: Vec<InvalidReason>,
    /// The shard with the highest send delay p99 above `audit.lag_p99`.
    pub delayed: Option<DelayedShard>,
    /// The shard with the most stalled worker thread, and the one with the busiest.
    pub stalled: Option<InvalidReason>,
    pub busy: Option<InvalidReason>,
    /// Notes on the clocks and on arrivals that were held.
    pub notes: Vec<String>,
    /// p-value of the test whether the TTFT depends on the shard.
    pub p_value: Option<f64>,
}

/// A shard with send delays.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DelayedShard {
    /// `shard 2 (host-b)`.
    pub name: String,
    /// Its send delay p99 in milliseconds.
    pub p99_ms: f64,
    /// Why it is noted; None if its delays are a small part of the latencies.
    pub reason: Option<InvalidReason>,
}

/// What the load generator of one shard did, by the verdicts that it affects.
#[derive(Default)]
struct ShardFindings {
    invalidating: Vec<InvalidReason>,
    without_file: Option<InvalidReason>,
    delayed: Option<DelayedShard>,
    /// With the share of the time.
    stalled: Option<(f64, InvalidReason)>,
    busy: Option<(f64, InvalidReason)>,
}

/// Audits the shards of a case; empty for a run of one process.
pub(crate) fn audit_shards(
    case: &Case,
    parts: &[Part],
    samples: &BTreeMap<u32, ShardSample>,
    sample: &Sample,
    limits: &AuditLimits,
) -> ShardAudit {
    let mut by_index: BTreeMap<u32, Vec<&ShardPart>> = BTreeMap::new();
    for shard in parts.iter().flat_map(|part| &part.shards) {
        by_index.entry(shard.index).or_default().push(shard);
    }
    if by_index.is_empty() {
        return ShardAudit::default();
    }
    let none = ShardSample::default();
    let median = [Metric::Ttft, Metric::E2e]
        .iter()
        .find_map(|metric| sample.distributions.get(metric)?.quantile(0.5));
    let of_shards = by_index.into_iter().map(|(index, rounds)| {
        let of_shard = samples.get(&index).unwrap_or(&none);
        record_of(&rounds, of_shard, limits, median)
    });
    let (records, of_shards): (Vec<ShardRecord>, Vec<ShardFindings>) = of_shards.unzip();
    let skew = audit_skew(case, &records, limits);
    let (skew_reason, skew_note) = match skew {
        Some(text) if needs_equal_clocks(&case.load.shape) => (Some(text), None),
        skew => (None, skew.map(|text| format!("{text}."))),
    };
    let held_note = (records.len() > 1 && sample.counts.held > 0).then(|| {
        format!(
            "`load.max_in_flight` is split over {} shards: a shard may hold an arrival while \
             another one has a free slot, so held times are at least those of one process.",
            records.len()
        )
    });
    let worst = |finding: fn(&ShardFindings) -> &Option<(f64, InvalidReason)>| {
        let found = of_shards
            .iter()
            .filter_map(|of_shard| finding(of_shard).as_ref());
        let worst = found.max_by(|a, b| a.0.total_cmp(&b.0));
        worst.map(|(_, reason)| reason.clone())
    };
    let (stalled, busy) = (worst(|own| &own.stalled), worst(|own| &own.busy));
    let delayed = of_shards.iter().filter_map(|own| own.delayed.clone());
    let delayed = delayed.max_by(|a, b| a.p99_ms.total_cmp(&b.p99_ms));
    let without_file = of_shards
        .iter()
        .filter_map(|own| own.without_file.clone())
        .collect();
    let invalidating = of_shards.into_iter().flat_map(|own| own.invalidating);
    let invalidating = invalidating
        .chain(split_limit(case, sample, records.len()))
        .chain(skew_reason.map(|why| Cause::LoadGenerator.reason(why)))
        .collect();
    let ttfts: Vec<Vec<f64>> = samples.values().map(|own| own.ttft_ms.clone()).collect();
    ShardAudit {
        p_value: kruskal_wallis(&ttfts),
        records,
        invalidating,
        without_file,
        delayed,
        stalled,
        busy,
        notes: skew_note.into_iter().chain(held_note).collect(),
    }
}

/// The record of one shard over its rounds, and its findings.
fn record_of(
    rounds: &[&ShardPart],
    sample: &ShardSample,
    limits: &AuditLimits,
    median: Option<f64>,
) -> (ShardRecord, ShardFindings) {
    let worst = |value: fn(&Vitals) -> f64| {
        let vitals = rounds.iter().filter_map(|shard| shard.vitals.as_ref());
        vitals.map(value).max_by(f64::total_cmp)
    };
    let clock = rounds
        .iter()
        .max_by_key(|shard| shard.offset_ns.unsigned_abs().max(shard.bound_ns));
    let mut delays = sample.send_delays_ms.clone();
    sort(&mut delays);
    let mut ttfts = sample.ttft_ms.clone();
    sort(&mut ttfts);
    let at = |sorted: &[f64], share| quantile(sorted, share, Method::NearestRank);
    let last = rounds.last();
    let mut record = ShardRecord {
        index: last.map_or(0, |shard| shard.index),
        host: last.map(|shard| shard.host.clone()).unwrap_or_default(),
        requests: sample.requests,
        ok: sample.ok,
        dropped: sample.dropped,
        send_delay_ms_p99: at(&delays, 0.99),
        stall_ms_p99: worst(|vitals| vitals.stall_ms_p99),
        cpu_share: worst(|vitals| {
            vitals
                .cpu_shares
                .iter()
                .copied()
                .fold(0.0, f64::max)
                .min(1.0)
        }),
        offset_ms: clock.map_or(0.0, |shard| shard.offset_ns as f64 / 1e6),
        bound_ms: clock.map_or(0.0, |shard| shard.bound_ns as f64 / 1e6),
        offset_source: clock
            .map(|shard| shard.offset_source.clone())
            .unwrap_or_default(),
        late: rounds.iter().any(|shard| shard.late),
        ttft_ms_p50: at(&ttfts, 0.50),
        ttft_ms_p99: at(&ttfts, 0.99),
        reasons: Vec::new(),
    };
    let name = record.name();
    let delay = record.send_delay_ms_p99;
    let delay = delay.filter(|p99| *p99 > limits.lag_p99.millis());
    let findings = ShardFindings {
        invalidating: deviations(&name, rounds)
            .into_iter()
            .chain(known_skew(&name, rounds, limits))
            .collect(),
        without_file: without_file(sample.without_file)
            .map(|why| why.cause.reason(format_args!("{name}: {}", why.what()))),
        delayed: delay.map(|p99_ms| DelayedShard {
            reason: delays_behind(&record, &delays, limits, median),
            name: name.clone(),
            p99_ms,
        }),
        stalled: stalled_worker(&name, rounds, limits),
        busy: busy_worker(&record, limits),
    };
    let delayed = findings
        .delayed
        .iter()
        .filter_map(|own| own.reason.as_ref());
    let shares = findings.stalled.iter().chain(&findings.busy);
    record.reasons = findings
        .invalidating
        .iter()
        .chain(&findings.without_file)
        .chain(delayed)
        .chain(shares.map(|(_, reason)| reason))
        .cloned()
        .collect();
    (record, findings)
}

/// Rounds that a shard did not run as planned.
fn deviations(name: &str, rounds: &[&ShardPart]) -> Vec<InvalidReason> {
    let mut reasons = Vec::new();
    for shard in rounds {
        if let Some(why) = &shard.lost {
            reasons.push(Cause::OffPlan.reason(why));
        }
        if shard.late {
            reasons.push(Cause::OffPlan.reason(format_args!(
                "{name}: it read the start time too late to open its connections, and sent nothing"
            )));
        }
        if let Some(step) = shard.clock_step_ns {
            let step = millis(step as f64 / 1e6);
            reasons.push(Cause::OffPlan.reason(format_args!(
                "{name}: its clock stepped by {step} during the round; check its time synchronization"
            )));
        }
    }
    reasons.dedup();
    reasons
}

/// A clock that is certainly further off than `audit.skew` in some round.
fn known_skew(name: &str, rounds: &[&ShardPart], limits: &AuditLimits) -> Option<InvalidReason> {
    let limit = limits.skew?.millis();
    let certain = |shard: &&&ShardPart| {
        shard
            .offset_ns
            .unsigned_abs()
            .saturating_sub(shard.bound_ns)
    };
    let worst = rounds.iter().max_by_key(certain)?;
    (certain(&worst) as f64 / 1e6 > limit).then(|| {
        Cause::LoadGenerator.reason(format_args!(
            "{name}: its clock is off by {} ± {} (limit {}, `audit.skew`)",
            millis(worst.offset_ns as f64 / 1e6),
            millis(worst.bound_ns as f64 / 1e6),
            millis(limit)
        ))
    })
}

/// Send delays above `audit.lag_p99` that are a considerable part of the latencies.
fn delays_behind(
    record: &ShardRecord,
    sorted: &[f64],
    limits: &AuditLimits,
    median: Option<f64>,
) -> Option<InvalidReason> {
    let count = decisive_late_count(sorted.len() as u64)?;
    let decisive = *sorted.get(sorted.len().checked_sub(count as usize)?)?;
    let of_median = median.map_or(0.0, |median| MIN_DELAY_SHARE * median);
    let accepted = limits.lag_p99.millis();
    let (limit, source) = if of_median > accepted {
        (of_median, "a tenth of the median latency")
    } else {
        (accepted, "`audit.lag_p99`")
    };
    let p99 = record.send_delay_ms_p99.filter(|_| decisive > limit)?;
    Some(Cause::LoadGenerator.reason(format_args!(
        "{}: send delay p99 is {} (limit {}, {source})",
        record.name(),
        against(Some(p99), limit, Unit::Millis),
        against(Some(limit), limit, Unit::Millis)
    )))
}

/// The share of the time for which a worker thread was stalled, if it is too large.
fn stalled_worker(
    name: &str,
    rounds: &[&ShardPart],
    limits: &AuditLimits,
) -> Option<(f64, InvalidReason)> {
    let is_long = |worker: &&WorkerStalls| {
        let mut lengths = worker
            .longest
            .iter()
            .map(|stall| stall.to.saturating_sub(stall.from));
        lengths.any(|length| length > limits.stall_p99.0)
    };
    let shut = rounds
        .iter()
        .filter_map(|shard| shard.vitals.as_ref()?.stalls.as_ref())
        .flatten()
        .filter(is_long)
        .filter(|worker| is_significant_stall(worker, limits.stalled))
        .map(|worker| worker.shut)
        .filter(|shut| *shut > limits.stalled)
        .max_by(f64::total_cmp)?;
    let [share, limit] = of_limit(shut, limits.stalled);
    Some((
        shut,
        Cause::LoadGenerator.reason(format_args!(
            "{name}: one worker thread was stalled for {share} of the time (limit {limit}, `audit.stalled`)"
        )),
    ))
}

/// The share of a CPU core that a worker thread used, if it is too large.
fn busy_worker(record: &ShardRecord, limits: &AuditLimits) -> Option<(f64, InvalidReason)> {
    let used = record.cpu_share.filter(|share| *share > limits.cpu)?;
    let [share, limit] = of_limit(used, limits.cpu);
    let name = record.name();
    Some((
        used,
        Cause::LoadGenerator.reason(format_args!(
            "{name}: one worker thread used {share} of a CPU core (limit {limit}, `audit.cpu`)"
        )),
    ))
}

fn of_limit(share: f64, limit: f64) -> [String; 2] {
    [share, limit].map(|share| against(Some(share), limit, Unit::Share))
}

/// A limit that is split drops more than one limit for all would.
fn split_limit(case: &Case, sample: &Sample, shards: usize) -> Option<InvalidReason> {
    let dropped = sample.counts.dropped;
    let split =
        shards > 1 && case.load.max_in_flight.is_some() && !case.load.holds() && dropped > 0;
    let arrivals = if dropped == 1 {
        "arrival was"
    } else {
        "arrivals were"
    };
    split.then(|| {
        Cause::OffPlan.reason(format_args!(
            "{dropped} {arrivals} dropped at `load.max_in_flight`, which is split over \
            {shards} shards; raise it"
        ))
    })
}

/// The clocks may be further apart than `audit.skew`.
fn audit_skew(case: &Case, records: &[ShardRecord], limits: &AuditLimits) -> Option<String> {
    let limit = limits.skew?.millis();
    let worst = records
        .iter()
        .max_by(|a, b| a.skew_ms().total_cmp(&b.skew_ms()))?;
    (worst.skew_ms() > limit).then(|| {
        let effect = if needs_equal_clocks(&case.load.shape) {
            "the arrivals of the shards may not interleave as planned"
        } else {
            "the arrivals of the shards may interleave differently"
        };
        format!(
            "{}: the clocks are known to be within {} only (limit {}, `audit.skew`), so {effect}",
            worst.name(),
            millis(worst.skew_ms()),
            millis(limit)
        )
    })
}

/// Whether arrivals of different shards have a planned distance.
fn needs_equal_clocks(shape: &Shape) -> bool {
    match shape {
        Shape::Burst => true,
        Shape::Open { arrival, .. } | Shape::Rates { arrival, .. } => *arrival == Arrival::Constant,
        Shape::Classes { classes } => classes.iter().any(needs_equal_clocks),
        Shape::Closed { .. }
        | Shape::Replay { .. }
        | Shape::Users { .. }
        | Shape::Static { .. } => false,
    }
}

/// Which shards have another TTFT than the others, per case. `cases`: the records and the p-value of each case.
pub(crate) fn ttft_notes(cases: &[(&[ShardRecord], Option<f64>)]) -> Vec<Vec<String>> {
    let tested: Vec<f64> = cases.iter().filter_map(|case| case.1).collect();
    let mut adjusted = holm(&tested).into_iter();
    cases
        .iter()
        .map(|(records, p_value)| {
            let p_value = p_value.and_then(|_| adjusted.next());
            if p_value.is_none_or(|p_value| p_value >= SIGNIFICANCE) {
                return Vec::new();
            }
            let note = |record: &ShardRecord| ttft_note(record, records);
            records.iter().filter_map(note).collect()
        })
        .collect()
}

/// `shard 3 (zone-b): TTFT 18 ms higher`, by medians.
fn ttft_note(record: &ShardRecord, records: &[ShardRecord]) -> Option<String> {
    let mut others: Vec<f64> = records
        .iter()
        .filter(|other| other.index != record.index)
        .filter_map(|other| other.ttft_ms_p50)
        .collect();
    let median = quantile::select_quantile(&mut others, 0.5)?;
    let difference = record.ttft_ms_p50? - median;
    let direction = if difference > 0.0 { "higher" } else { "lower" };
    (difference.abs() > MIN_TTFT_SHARE * median).then(|| {
        format!(
            "{}: TTFT {} {direction} than the median of the other shards.",
            record.name(),
            millis(difference.abs())
        )
    })
}

#[cfg(test)]
mod tests;
