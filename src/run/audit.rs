//! The self-audit of a case over its rounds: delays and failures of the load generator that could affect a verdict.
//!
//! [`Audited::examine`] covers the case as a whole, [`Audited::verdicts`] each objective: whether the load generator
//! could have flipped the verdict. The rules are in docs/explanation/self-audit.md.

mod cache;
mod objective;
mod shards;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use shards::{ShardAudit, audit_shards, ttft_notes};

use http::Uri;
use llmscen_analysis::{
    Accepted, CaseFacts, End, Sample, Table, TableError, idle_factor, judge, slow_down,
};
use llmscen_core::check::Verdict;
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::endpoint::is_loopback;
use llmscen_core::manifest::{Part, Vitals, WorkerStalls};
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::plan::{AuditLimits, Case};
use llmscen_core::report::{Audit, Cause, InvalidReason, ObjectiveAudit};
use llmscen_core::sample::Counts;
use llmscen_core::seed::Seed;
use llmscen_core::signal::Signal;
use llmscen_core::stats::{quantile, share};
use llmscen_core::target::TargetLocation;
use llmscen_core::units::{Nanos, Unit};
use llmscen_report::format::{against, millis, percent};
use std::collections::BTreeSet;

/// A stall is noted in the report above this length in milliseconds, and above this share of the measured time spans.
const MIN_NOTED_STALL: f64 = 1.0;
const MIN_NOTED_SHARE: f64 = 0.25;
/// Confidence that a worker thread was stalled for more than the limit.
const STALL_CONFIDENCE: f64 = 0.95;

/// Stalls do not explain a latency that exceeds its limit by this multiple of their mean lateness.
const FROZEN_MARGIN: f64 = 10.0;

/// The input of a self-audit.
#[derive(Clone, Copy)]
pub(crate) struct Audited<'a> {
    /// The case.
    pub case: &'a Case,
    /// Its rounds.
    pub parts: &'a [&'a Part],
    /// Number of planned rounds; an aborted case may have fewer.
    pub rounds: u32,
    /// Its requests.
    pub sample: &'a Sample,
    /// Limits of the audit.
    pub limits: &'a AuditLimits,
    /// The seed of the run.
    pub seed: Seed,
    /// The audit of its shards.
    pub shards: &'a ShardAudit,
}

/// The findings of a self-audit, by the verdicts they affect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// The run did not happen as planned, or measured something else: every verdict is invalid.
    pub invalidating: Vec<InvalidReason>,
    /// The load was lower than planned: no verdict that the server is good enough is valid.
    not_offered: Vec<InvalidReason>,
    /// Users of a closed loop were idle for too large a share of their time.
    idle: Option<InvalidReason>,
    /// Worker threads were stalled for too large a share of the time.
    stalled: Option<InvalidReason>,
    /// Mean lateness of a worker thread in milliseconds, of stalls that count.
    frozen_ms: f64,
    /// Repeated prompts were answered from a cache: no verdict that the server is fast enough is valid.
    answers_cached: Option<InvalidReason>,
    /// A worker thread used all of its CPU core.
    busy: Option<InvalidReason>,
    /// Share of the planned load that was missing.
    missing_load: f64,
    /// Send delay p99 in milliseconds, if above the limit, and the shard that it is of.
    delay_p99: Option<(f64, Option<String>)>,
    /// Accepted delays.
    accepted: Accepted,
    /// Probable cause of the delays.
    cause: Option<String>,
    /// Whether requests failed for lack of file descriptors or ports.
    own_failures: bool,
}

impl<'a> Audited<'a> {
    /// The audit of the case as a whole. Send delays are those of all sent measured requests; other values are
    /// measured by the worker threads, and the worst round counts.
    pub fn examine(&self) -> (Audit, Findings) {
        let Audited {
            case,
            parts,
            sample,
            limits,
            ..
        } = *self;
        let mut delays: Vec<f64> = sample.requests.values(Metric::ScheduleLag).collect();
        quantile::sort(&mut delays);
        let delay_at =
            |share: f64| quantile::quantile(&delays, share, quantile::Method::NearestRank);
        let offered = sample
            .scalars
            .get(&Metric::RateOffered)
            .filter(|offered| **offered > 0.0);
        let achieved = sample.scalars.get(&Metric::RateAchieved);
        let worst = |value: fn(&Vitals) -> f64| {
            parts
                .iter()
                .filter_map(|part| part.vitals.as_ref())
                .map(value)
                .max_by(f64::total_cmp)
        };
        let cached = cache::cached(case, parts, sample);
        let mut audit = Audit {
            schedule_lag_ms_p50: delay_at(0.50),
            schedule_lag_ms_p99: delay_at(0.99),
            schedule_lag_ms_max: delays.last().copied(),
            achieved_over_offered: offered
                .zip(achieved)
                .filter(|_| !is_closed_loop(&sample.counts, limits.achieved))
                .map(|(offered, achieved)| achieved / offered),
            stall_ms_p99: worst(|vitals| vitals.stall_ms_p99),
            stall_ms_max: worst(|vitals| vitals.stall_ms_max),
            cached: cached.share,
            cached_unique: cached.unique,
            cpu_share_max: worst(|vitals| {
                vitals
                    .cpu_shares
                    .iter()
                    .copied()
                    .fold(0.0, f64::max)
                    .min(1.0)
            }),
            memory_peak: parts
                .iter()
                .filter_map(|part| part.vitals.as_ref())
                .map(|vitals| vitals.memory_peak)
                .max(),
            events_per_s: worst(|vitals| vitals.events_per_s),
            bytes_in_per_s: worst(|vitals| vitals.bytes_in_per_s),
            bytes_out_per_s: worst(|vitals| vitals.bytes_out_per_s),
            dropped: sample.counts.dropped,
            held: sample.counts.held,
            ..Audit::default()
        };
        // A local model takes its own timestamps, and may use all cores.
        let local = parts.iter().any(|part| part.local.is_some());
        let is_old = parts
            .iter()
            .filter_map(|part| part.vitals.as_ref())
            .any(|vitals| vitals.stalls.is_none());
        let mut findings = if is_old {
            self.check_old_run(&audit, &delays, local)
        } else {
            self.check_delays(&mut audit, local)
        };
        findings
            .invalidating
            .splice(0..0, self.shards.invalidating.clone());
        let short = short_rate(&audit, sample.counts.scheduled, limits.achieved);
        match short {
            Some(why) if is_old || why.cause == Cause::OffPlan => findings.invalidating.push(why),
            short => findings.not_offered.extend(short),
        }
        if !is_old {
            findings.missing_load = audit
                .achieved_over_offered
                .map_or(findings.missing_load, |share| (1.0 - share).max(0.0));
        }
        let without_file = without_file(sample.without_file);
        findings.own_failures = without_file.is_some();
        let stalled = sample
            .counts
            .failures
            .get(&FailureKind::ToolStall)
            .copied()
            .unwrap_or(0);
        let without_file = match self.shards.without_file.as_slice() {
            [] => without_file.into_iter().collect(),
            named => named.to_vec(),
        };
        let failures = without_file.into_iter().chain(stalled_requests(stalled));
        if is_old {
            &mut findings.invalidating
        } else {
            &mut findings.not_offered
        }
        .extend(failures);
        findings
            .invalidating
            .extend(cache::reason(cached, limits.cache, case, self.seed.0));
        findings.answers_cached = cache::repeated_reason(case, sample, limits);
        findings
            .invalidating
            .extend(unsent_held(&sample.counts, limits.achieved));
        findings.invalidating.extend(idle_engines(sample));
        findings.invalidating.extend(self.off_plan());
        audit.reasons = findings
            .invalidating
            .iter()
            .chain(&findings.answers_cached)
            .chain(&findings.not_offered)
            .chain(&findings.idle)
            .chain(&findings.stalled)
            .chain(&findings.busy)
            .cloned()
            .collect();
        audit.valid = audit.reasons.is_empty();
        audit.cause = findings.cause.clone().filter(|_| !audit.valid);
        (audit, findings)
    }

    /// The rules for a run that was stored without a list of stalls. `delays`: sorted send delays.
    fn check_old_run(&self, audit: &Audit, delays: &[f64], local: bool) -> Findings {
        let late = decisive_late_count(delays.len() as u64)
            .and_then(|count| delays.get(delays.len() - count as usize).copied());
        let vitals = self.parts.iter().filter_map(|part| part.vitals.as_ref());
        // Without the decisive stall, p99 is the best estimate.
        let stalled = vitals
            .map(|vitals| vitals.stall_ms_sure.unwrap_or(vitals.stall_ms_p99))
            .max_by(f64::total_cmp);
        let invalidating = match local {
            false => reasons_without_stalls(audit, [late, stalled], self.limits),
            true => reasons_without_stalls(
                &Audit {
                    cpu_share_max: None,
                    ..audit.clone()
                },
                [late, None],
                self.limits,
            ),
        };
        // Every delay below the limits is accepted.
        let accepted = Accepted {
            delay: Nanos(u64::MAX),
            timestamps: true,
            ..Accepted::default()
        };
        let shards = self.shards;
        let delayed = shards
            .delayed
            .iter()
            .filter_map(|shard| shard.reason.clone());
        let of_shards = delayed
            .chain(shards.stalled.clone())
            .chain(shards.busy.clone());
        Findings {
            invalidating: invalidating.into_iter().chain(of_shards).collect(),
            accepted,
            ..Findings::default()
        }
    }

    /// Checks stalls, CPU use and send delays.
    fn check_delays(&self, audit: &mut Audit, local: bool) -> Findings {
        let (sample, limits) = (self.sample, self.limits);
        let vitals = self.parts.iter().filter_map(|part| part.vitals.as_ref());
        let workers: Vec<&WorkerStalls> = vitals
            .filter_map(|vitals| vitals.stalls.as_ref())
            .flatten()
            .collect();
        let longest = workers
            .iter()
            .flat_map(|worker| &worker.longest)
            .map(|stall| stall.to.saturating_sub(stall.from))
            .max();
        let counts = longest.is_some_and(|longest| longest > limits.stall_p99.0) && !local;
        let worst = |value: fn(&WorkerStalls) -> f64| {
            workers
                .iter()
                .map(|worker| value(worker))
                .max_by(f64::total_cmp)
        };
        if !workers.is_empty() && !local {
            audit.stalls = Some(workers.iter().map(|worker| worker.count).sum());
            (audit.stalled, audit.frozen_ms) = (
                worst(|worker| worker.shut),
                worst(|worker| worker.frozen_ms),
            );
        }
        let delay_p99 = audit
            .schedule_lag_ms_p99
            .filter(|lag| *lag > limits.lag_p99.millis())
            .map(|p99| (p99, None));
        // The requests of a shard have its delays, however few they are of all.
        let delayed = self.shards.delayed.as_ref();
        let delay_p99 = delayed
            .map(|shard| (shard.p99_ms, Some(shard.name.clone())))
            .or(delay_p99);
        let delays_accepted = delay_p99.is_none();
        let stall_ms = audit.frozen_ms.filter(|_| counts).unwrap_or(0.0);
        audit.idle = idle_share(
            sample,
            stall_ms,
            audit.stalled.unwrap_or(0.0),
            delays_accepted,
        )
        .filter(|_| audit.achieved_over_offered.is_none());
        let exceeds =
            |share: Option<f64>, limit: f64, key: &str, describe: &dyn Fn(&str) -> String| {
                let share = share.filter(|share| *share > limit)?;
                let reason = describe(&against(Some(share), limit, Unit::Share));
                Some(Cause::LoadGenerator.reason(format_args!(
                    "{reason} (limit {}, `audit.{key}`)",
                    against(Some(limit), limit, Unit::Share)
                )))
            };
        let idle = exceeds(audit.idle, limits.idle, "idle", &|share| {
            format!("users waited for the load generator for {share} of their time")
        });
        let stalled_share = workers
            .iter()
            .copied()
            .filter(|worker| is_significant_stall(worker, limits.stalled))
            .map(|worker| worker.shut)
            .max_by(f64::total_cmp);
        let stalled = exceeds(
            stalled_share.filter(|_| counts),
            limits.stalled,
            "stalled",
            &|share| format!("one worker thread was stalled for {share} of the time"),
        );
        let busy = exceeds(
            audit.cpu_share_max.filter(|_| !local),
            limits.cpu,
            "cpu",
            &|share| format!("one worker thread used {share} of a CPU core"),
        );
        let named = |own: Option<InvalidReason>, shard: &Option<InvalidReason>| {
            own.map(|own| shard.clone().unwrap_or(own))
        };
        let stalled = named(stalled, &self.shards.stalled);
        let busy = named(busy, &self.shards.busy);
        let delayed = delayed.and_then(|shard| Some(shard.reason.as_ref()?.to_string()));
        let causes: Vec<String> = delayed
            .into_iter()
            .chain(lateness_cause(self.case, sample))
            .collect();
        Findings {
            idle,
            stalled,
            frozen_ms: stall_ms,
            busy,
            missing_load: audit.idle.unwrap_or(0.0),
            delay_p99,
            accepted: Accepted {
                stall: limits.stall_p99,
                // A maximum may rest on one delay, however few there are.
                delay: match delays_accepted {
                    true => limits.lag_p99,
                    false => Nanos::default(),
                },
                timestamps: local,
            },
            cause: (!causes.is_empty()).then(|| causes.join("; ")),
            ..Findings::default()
        }
    }

    /// Deviations from the plan.
    fn off_plan(&self) -> Vec<InvalidReason> {
        let cut = self.parts.iter().filter_map(|part| part.cut_short.as_ref());
        let mut reasons: Vec<InvalidReason> = cut.map(|why| Cause::OffPlan.reason(why)).collect();
        let aborted = self
            .parts
            .iter()
            .any(|part| part.ending.as_ref().is_some_and(EarlyStop::ends_case));
        if self.parts.len() < self.rounds as usize && !aborted {
            reasons.push(Cause::OffPlan.reason(format_args!(
                "{} of {} rounds ran",
                self.parts.len(),
                self.rounds
            )));
        }
        reasons
    }

    /// The verdicts on the objectives of the case, with their audits. A verdict that the load generator could have
    /// flipped is INVALID.
    pub fn verdicts(
        &self,
        table: &Table,
        facts: &CaseFacts<'_>,
        findings: &Findings,
    ) -> Result<(Vec<Verdict>, Vec<ObjectiveAudit>), TableError> {
        let checks = &self.case.checks;
        let load = judge::LoadKind::of_shape(&self.case.load.shape);
        let rule = |sample: &Sample, valid: bool| -> Vec<Verdict> {
            let mut conditions = judge::Conditions::of(sample, load);
            conditions.valid = valid;
            let rule = |check| judge::rule(check, sample, &conditions);
            checks.iter().map(rule).collect()
        };
        if let Some(why) = findings.invalidating.first() {
            let explained = |verdict: Verdict| match verdict.note.as_deref() {
                Some(judge::REJECTED) => Verdict {
                    note: Some(format!("{} ({why})", judge::REJECTED)),
                    ..verdict
                },
                _ => verdict,
            };
            let rejected = rule(self.sample, false).into_iter().map(explained);
            return Ok((rejected.collect(), Vec::new()));
        }
        let late = if checks.is_empty() {
            None
        } else {
            llmscen_analysis::measure_lateness(table, facts, findings.accepted)
        };
        let needs_ends = findings.missing_load > 0.0 && checks.iter().any(objective::is_throughput);
        let has_ends = late.is_some() || needs_ends;
        let late = late.unwrap_or_default();
        let shift = |end, margin_ms| late.shift(self.sample, end, findings.missing_load, margin_ms);
        let nothing = || vec![None; checks.len()];
        let read = |sample: &Sample| -> Vec<Option<Verdict>> {
            rule(sample, true).into_iter().map(Some).collect()
        };
        let slowest = (has_ends || findings.idle.is_some()).then(|| shift(End::Slow, 0.0));
        let slowest = slowest.transpose()?;
        let slow = slowest
            .as_ref()
            .filter(|_| has_ends)
            .map_or_else(nothing, read);
        let fast = has_ends.then(|| shift(End::Fast, 0.0)).transpose()?;
        let fast = fast.as_ref().map_or_else(nothing, read);
        let margin_ms = FROZEN_MARGIN * findings.frozen_ms;
        let fastest = findings
            .stalled
            .is_some()
            .then(|| shift(End::Fast, margin_ms))
            .transpose()?;
        let with_margin = fastest.as_ref().map_or_else(nothing, read);
        let under_load = slowest
            .filter(|_| findings.idle.is_some())
            .map(|slow| self.rule_under_load(&slow, findings.missing_load));
        let under_load = under_load.transpose()?.unwrap_or_else(nothing);
        let readings = slow.into_iter().zip(fast).zip(with_margin).zip(under_load);
        let audited = rule(self.sample, true).into_iter().zip(readings);
        let audited = audited.map(|(measured, (((slow, fast), with_margin), under_load))| {
            let readings = objective::Readings {
                ends: slow.zip(fast).map(|(slow, fast)| [slow, fast]),
                with_margin,
                under_load,
            };
            objective::audit_verdict(measured, readings, findings)
        });
        Ok(audited.unzip())
    }

    /// The verdicts if users that were idle for this share of their time had not been; None for objectives whose
    /// value no factor bounds.
    fn rule_under_load(
        &self,
        slow: &Sample,
        idle: f64,
    ) -> Result<Vec<Option<Verdict>>, TableError> {
        let factor = idle_factor(idle);
        let slowed = slow_down(slow, idle)?;
        let timeout = self.case.target.timeouts.total.millis();
        let mut waits = slowed.requests.values(Metric::E2eService);
        let times_out = waits.any(|wait| wait >= timeout);
        let load = judge::LoadKind::of_shape(&self.case.load.shape);
        let conditions = judge::Conditions::of(&slowed, load);
        let rule = |check| {
            let check = objective::under_load(check, factor, times_out)?;
            Some(judge::rule(&check, &slowed, &conditions))
        };
        Ok(self.case.checks.iter().map(rule).collect())
    }
}

/// Whether a worker thread was stalled for more than this share: a few late ticks of a short run are no evidence.
fn is_significant_stall(worker: &WorkerStalls, limit: f64) -> bool {
    let late = (worker.shut * worker.ticks as f64).round() as u64;
    share::decisive(worker.ticks, limit, STALL_CONFIDENCE).is_some_and(|count| late >= count)
}

/// The share of their time that the users of a closed loop wait for the load generator: before a send, and before a
/// reply is read. A stall adds `stall_ms` on average at both ends of a request, but at most `stalled_share` of the
/// time.
fn idle_share(
    sample: &Sample,
    stall_ms: f64,
    stalled_share: f64,
    delays_accepted: bool,
) -> Option<f64> {
    let sent = sample
        .requests
        .iter()
        .filter_map(|request| Some((request.busy_ms(), request.value(Metric::ScheduleLag)?)));
    let mut n = 0.0;
    let mut busy = 0.0;
    let mut delay = 0.0;
    for (request_busy, request_delay) in sent {
        n += 1.0;
        busy += request_busy;
        delay += request_delay;
    }
    let cycle = (busy + delay) / n;
    let delayed = if delays_accepted {
        0.0
    } else {
        delay / n / cycle
    };
    (n > 0.0 && cycle > 0.0)
        .then(|| (delayed + (2.0 * stall_ms / cycle).min(stalled_share)).min(1.0))
}

/// Requests that were not sent for lack of a file descriptor or port are failures of the load generator.
fn without_file(requests: u64) -> Option<InvalidReason> {
    let why = Failure::NO_FILES;
    (requests > 0).then(|| {
        Cause::NoFiles.reason(format_args!(
            "{requests} requests failed: {why}, or has no free port; raise `ulimit -n` or set \
            `load.max_in_flight`"
        ))
    })
}

/// Maximum probability that chance explains an idle engine.
const IDLE_BY_CHANCE: f64 = 0.01;

/// Engines, or workers of a role, that generated no token although others did: the case did not measure all of the
/// server. If each of n sessions goes to one of k engines of a role at random, the probability that an engine gets
/// none is at most k (1 − 1/k)ⁿ.
fn idle_engines(sample: &Sample) -> Vec<InvalidReason> {
    let all = &sample.engine_tokens;
    // Turns of a session may be sent to the same engine on purpose.
    let sessions = sample.requests.ok_sessions();
    let roles: BTreeSet<Option<&str>> = all.iter().map(|engine| engine.role.as_deref()).collect();
    let reason = |role: Option<&str>| {
        let of_role = || all.iter().filter(|engine| engine.role.as_deref() == role);
        let (idle, busy): (Vec<_>, Vec<_>) = of_role().partition(|engine| engine.tokens == 0.0);
        let engines = (idle.len() + busy.len()) as f64;
        let by_chance = engines * (1.0 - 1.0 / engines).powf(sessions as f64);
        if idle.is_empty() || busy.is_empty() || by_chance >= IDLE_BY_CHANCE {
            return None;
        }
        let noun = if of_role().any(|engine| engine.engine.is_some()) {
            "engines"
        } else {
            "workers"
        };
        let of = role.map_or_else(
            || "of the server".to_owned(),
            |role| format!("with the role {role}"),
        );
        let names: Vec<String> = idle.iter().map(|engine| engine.name()).collect();
        let (count, names) = (idle.len(), names.join(", "));
        Some(Cause::IdleServer.reason(format_args!(
            "{count} of the {engines} {noun} {of} generated no token ({names})"
        )))
    };
    roles.into_iter().filter_map(reason).collect()
}

/// It is unknown whether these requests would have failed without the stalls.
fn stalled_requests(requests: u64) -> Option<InvalidReason> {
    let why =
        "requests reached a timeout while the load generator stalled repeatedly (`tool_stall`)";
    (requests > 0).then(|| {
        Cause::LoadGenerator.reason(format_args!(
            "{requests} {why}; free CPU on this machine, or lower the load"
        ))
    })
}

/// The achieved rate is below the limit. If dropped arrivals explain it, the server is the reason, not the load
/// generator.
fn short_rate(audit: &Audit, scheduled: u64, limit: f64) -> Option<InvalidReason> {
    let share = audit.achieved_over_offered.filter(|share| *share < limit)?;
    let achieved = against(Some(share), limit, Unit::Share);
    let limit_text = against(Some(limit), limit, Unit::Share);
    let reason =
        format!("achieved {achieved} of the offered rate (limit {limit_text}, `audit.achieved`)");
    if audit.dropped == 0 {
        return Some(Cause::LoadGenerator.reason(reason));
    }
    let explained = share + audit.dropped as f64 / scheduled.max(1) as f64 >= limit;
    let cause = match explained {
        true => Cause::OffPlan,
        false => Cause::LoadGenerator,
    };
    Some(cause.reason(format_args!(
        "{reason}; {} of {scheduled} arrivals were dropped at `load.max_in_flight`",
        audit.dropped
    )))
}

/// Whether so many arrivals were held that the server sets the rate, as in a closed loop: then `idle` audits it.
fn is_closed_loop(counts: &Counts, limit: f64) -> bool {
    counts.held as f64 > (1.0 - limit) * counts.arrivals as f64
}

/// Arrivals that were held until the end have no latency: without many of them, the latencies are not those of the
/// plan.
fn unsent_held(counts: &Counts, limit: f64) -> Option<InvalidReason> {
    let (unsent, arrivals) = (counts.held_unsent, counts.arrivals);
    (unsent as f64 > (1.0 - limit) * arrivals as f64).then(|| {
        Cause::OffPlan.reason(format_args!(
            "{unsent} of {arrivals} arrivals were held at `load.max_in_flight` until \
             sending ended, and never sent (limit {}, `audit.achieved`)",
            against(Some(1.0 - limit), 1.0 - limit, Unit::Share)
        ))
    })
}

/// A note on stalls that affect no verdict, but a part of the measured latencies.
pub fn note_stall(audit: &Audit, sample: &Sample) -> Option<String> {
    let p99 = |metric| {
        sample
            .distributions
            .get(&metric)
            .and_then(|distribution| distribution.quantile(0.99))
            .map(|p99| (metric, p99))
    };
    let (metric, span) = p99(Metric::Itl)
        .filter(|(_, itl)| *itl > 0.0)
        .or_else(|| p99(Metric::Ttft))?;
    let stall = audit.stall_ms_p99.filter(|stall| {
        audit.valid && *stall > MIN_NOTED_STALL && *stall > MIN_NOTED_SHARE * span
    })?;
    Some(format!(
        "Event-loop stalls reached {} at p99, {} of `{metric}` p99; part of the `{metric}` tail \
        is the load generator's.",
        millis(stall),
        percent(stall / span)
    ))
}

/// A note that cache hits of unique prompts cannot be detected.
pub fn note_unknown_cache(audit: &Audit, case: &Case) -> Option<String> {
    // The simulator reports the hits of its cache, if it has one.
    let known = audit.cached.is_some()
        || matches!(
            case.target.location,
            TargetLocation::Simulator { .. } | TargetLocation::Local(_)
        );
    let note =
        "Prefix cache hits are not visible: the server reports no cached tokens and no hit rate.";
    (!known && cache::has_unique_prompts(case)).then(|| note.to_owned())
}

/// CPU use of the host above which it counts as the cause of delays.
const FULL_CPU: f64 = 0.9;

/// CPU use of the host and of llmscen, and whether the server shares the cores.
pub(crate) fn lateness_cause(case: &Case, sample: &Sample) -> Option<String> {
    let mean = |signal| sample.signals.get(&signal).and_then(|signal| signal.mean);
    let shared = match &case.target.location {
        TargetLocation::Simulator { .. } => {
            Some("the built-in simulator and the load generator share the cores of this machine")
        }
        TargetLocation::Urls(endpoints) => endpoints
            .urls()
            .any(on_this_machine)
            .then_some("the server and the load generator share the cores of this machine"),
        TargetLocation::Local(_) => None,
    };
    let cpu = mean(Signal::HostCpu)
        .zip(mean(Signal::ToolCpu))
        .map(|(host, tool)| {
            let used = format!(
                "host CPU was {}, llmscen used {} of one core",
                percent(host),
                percent(tool)
            );
            match (host >= FULL_CPU, shared) {
                (true, Some(shared)) => format!("{used}; {shared}"),
                (true, None) if tool < 0.5 => format!("{used}: other processes"),
                _ => used,
            }
        });
    cpu.or(shared.map(str::to_owned))
}

fn on_this_machine(url: &str) -> bool {
    url.parse::<Uri>()
        .is_ok_and(|uri| uri.host().is_some_and(is_loopback))
}

/// Share of requests or ticks that may be later than the limit, and the confidence that more were.
const LATE_SHARE: f64 = 0.01;
const LATE_CONFIDENCE: f64 = 0.95;
/// Minimum number of late ones: a single stall delays a few.
const MIN_LATE: u64 = 3;

/// How many of `n` must be late to conclude that more than [`LATE_SHARE`] are.
pub(crate) fn decisive_late_count(n: u64) -> Option<u64> {
    share::decisive(n, LATE_SHARE, LATE_CONFIDENCE).map(|count| count.max(MIN_LATE.min(n)))
}

/// The reasons by the rules for old runs. The decisive delay and stall are compared with the limits; the reason names
/// the p99, which is at least as high. Values have enough digits to show their difference from the limit.
fn reasons_without_stalls(
    audit: &Audit,
    [late, stalled]: [Option<f64>; 2],
    limits: &AuditLimits,
) -> Vec<InvalidReason> {
    let p99 = |decisive: Option<f64>, limit: f64, p99: Option<f64>| {
        decisive.filter(|decisive| *decisive > limit).and(p99)
    };
    let mut reasons = Vec::new();
    let mut check =
        |value: Option<f64>, limit: f64, unit: Unit, describe: &dyn Fn(&str) -> String| {
            if let Some(value) = value.filter(|value| *value > limit) {
                let limit_text = against(Some(limit), limit, unit);
                let value = against(Some(value), limit, unit);
                let why = describe(&format!("{value} (limit {limit_text})"));
                reasons.push(Cause::LoadGenerator.reason(why));
            }
        };
    let limit = limits.lag_p99.millis();
    check(
        p99(late, limit, audit.schedule_lag_ms_p99),
        limit,
        Unit::Millis,
        &|lag| format!("send delay was {lag} at p99: the load generator fell behind its schedule"),
    );
    let limit = limits.stall_p99.millis();
    check(
        p99(stalled, limit, audit.stall_ms_p99),
        limit,
        Unit::Millis,
        &|stall| {
            format!(
                "event loop stalled for {stall} at p99; latencies may be overstated by up to that much"
            )
        },
    );
    check(audit.cpu_share_max, limits.cpu, Unit::Share, &|share| {
        format!("one worker thread used {share} of a CPU core")
    });
    reasons
}
