//! Whose numbers are these? The self-audit of a case over its rounds: what the load generator did that a verdict may rest on.
//!
//! It says what is known of the case as a whole ([`audit`]), and objective by objective whether that could have flipped the
//! verdict ([`Audited::verdicts`]). docs/metrics.md, section 5, has the rules.

mod cache;
mod objective;
#[cfg(test)]
pub(crate) mod tests;

use http::Uri;
use llmscen_analysis::{Accepted, CaseFacts, End, Lateness, Sample, Table, judge};
use llmscen_client::route::is_loopback;
use llmscen_core::check::Verdict;
use llmscen_core::early_stop::Ending;
use llmscen_core::manifest::{Part, Vitals, WorkerStalls};
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::plan::{AuditLimits, Case};
use llmscen_core::report::{Audit, OFF_PLAN, ObjectiveAudit};
use llmscen_core::seed::Seed;
use llmscen_core::signal::Signal;
use llmscen_core::stats::{quantile, share};
use llmscen_core::target::Place;
use llmscen_core::units::Unit;
use llmscen_report::format::{against, millis, percent};

/// From so many milliseconds on, and from this share of the spans that were measured, the report names a stall.
const NOTED_STALL: f64 = 1.0;
const NOTED_SHARE: f64 = 0.25;
/// How sure it must be that a worker thread was stalled for more than is accepted.
const SURE: f64 = 0.95;

/// What a self-audit is about.
#[derive(Clone, Copy)]
pub struct Audited<'a> {
    /// The case.
    pub case: &'a Case,
    /// Its rounds.
    pub parts: &'a [&'a Part],
    /// How many were planned; a case that was aborted needs no more of them.
    pub rounds: u32,
    /// Its requests.
    pub sample: &'a Sample,
    /// What is accepted.
    pub limits: &'a AuditLimits,
    /// The seed of the run.
    pub seed: Seed,
}

/// What was found, by what it can flip.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The run did not happen as planned, or measured something else: no verdict stands.
    pub all: Vec<String>,
    /// Less than the plan's load was there: no claim that the server is good enough stands.
    not_offered: Vec<String>,
    /// The worker threads were stalled for long.
    stalled: Option<String>,
    /// A worker thread had no time left.
    busy: Option<String>,
    /// The share of the load that was not there.
    hole: f64,
    /// Send delay at p99, milliseconds, where it counts.
    delay_p99: Option<f64>,
    /// What counts as late.
    accepted: Accepted,
    /// Why the load generator was late.
    cause: Option<String>,
    /// Requests failed for want of files or ports, which no other process took.
    own_failures: bool,
}

/// The audit of one case.
pub fn audit(audited: &Audited<'_>) -> Audit {
    audited.examine().0
}

impl<'a> Audited<'a> {
    /// The audit of the case as a whole. Send delays come from every measured request that was sent; the rest from what the worker
    /// threads saw of themselves, the worst round counting.
    pub fn examine(&self) -> (Audit, Findings) {
        let Audited { case, parts, sample, limits, .. } = *self;
        let mut lags: Vec<f64> = sample.requests.values(Metric::ScheduleLag).collect();
        quantile::sort(&mut lags);
        let at = |share: f64| quantile::quantile(&lags, share, quantile::Method::NearestRank);
        let offered = sample.scalars.get(&Metric::RateOffered).filter(|offered| **offered > 0.0);
        let achieved = sample.scalars.get(&Metric::RateAchieved);
        let worst =
            |value: fn(&Vitals) -> f64| parts.iter().filter_map(|part| part.vitals.as_ref()).map(value).max_by(f64::total_cmp);
        let cached = cache::cached(case, parts, sample);
        let mut audit = Audit {
            schedule_lag_ms_p50: at(0.50),
            schedule_lag_ms_p99: at(0.99),
            schedule_lag_ms_max: lags.last().copied(),
            achieved_over_offered: offered.zip(achieved).map(|(offered, achieved)| achieved / offered),
            stall_ms_p99: worst(|vitals| vitals.stall_ms_p99),
            stall_ms_max: worst(|vitals| vitals.stall_ms_max),
            cached: cached.share,
            cached_unique: cached.unique,
            cpu_share_max: worst(|vitals| vitals.cpu_shares.iter().copied().fold(0.0, f64::max).min(1.0)),
            memory_peak: parts.iter().filter_map(|part| part.vitals.as_ref()).map(|vitals| vitals.memory_peak).max(),
            events_per_s: worst(|vitals| vitals.events_per_s),
            bytes_in_per_s: worst(|vitals| vitals.bytes_in_per_s),
            bytes_out_per_s: worst(|vitals| vitals.bytes_out_per_s),
            dropped: sample.counts.dropped,
            ..Audit::default()
        };
        // A model in this process takes its timestamps itself, and the cores are there for it.
        let local = parts.iter().any(|part| part.local.is_some());
        let earlier = parts.iter().filter_map(|part| part.vitals.as_ref()).any(|vitals| vitals.stalls.is_none());
        let mut findings = if earlier { self.earlier(&audit, &lags, local) } else { self.found(&mut audit, local) };
        let short = short_rate(&audit, sample.counts.scheduled, limits.achieved);
        match short {
            Some(why) if earlier || why.starts_with(OFF_PLAN) => findings.all.push(why),
            short => findings.not_offered.extend(short),
        }
        if !earlier {
            findings.hole = audit.achieved_over_offered.map_or(findings.hole, |share| (1.0 - share).max(0.0));
        }
        let own = without_file(sample.without_file);
        findings.own_failures = own.is_some();
        let stalled = sample.counts.failures.get(&FailureKind::ToolStall).copied().unwrap_or(0);
        let failures = own.into_iter().chain(stalled_requests(stalled));
        if earlier { &mut findings.all } else { &mut findings.not_offered }.extend(failures);
        findings.all.extend(cache::reason(cached, limits.cache, case, self.seed.0));
        findings.all.extend(self.off_plan());
        audit.reasons =
            findings.all.iter().chain(&findings.not_offered).chain(&findings.stalled).chain(&findings.busy).cloned().collect();
        audit.valid = audit.reasons.is_empty();
        audit.cause = findings.cause.clone().filter(|_| !audit.valid);
        (audit, findings)
    }

    /// The rule for a run that was stored without a list of stalls.
    fn earlier(&self, audit: &Audit, lags: &[f64], local: bool) -> Findings {
        let late = many(lags.len() as u64).and_then(|many| lags.get(lags.len() - many as usize).copied());
        let vitals = self.parts.iter().filter_map(|part| part.vitals.as_ref());
        // Where it is not known what is sure, p99 is the best that there is.
        let stalled = vitals.map(|vitals| vitals.stall_ms_sure.unwrap_or(vitals.stall_ms_p99)).max_by(f64::total_cmp);
        let all = match local {
            false => reasons_without_stalls(audit, [late, stalled], self.limits),
            true => reasons_without_stalls(&Audit { cpu_share_max: None, ..audit.clone() }, [late, None], self.limits),
        };
        // It accepted what it did not reject.
        let accepted = Accepted { delays: true, timestamps: true, ..Accepted::default() };
        Findings { all, accepted, ..Findings::default() }
    }

    /// What the worker threads' stalls and the send delays come to.
    fn found(&self, audit: &mut Audit, local: bool) -> Findings {
        let (sample, limits) = (self.sample, self.limits);
        let vitals = self.parts.iter().filter_map(|part| part.vitals.as_ref());
        let workers: Vec<&WorkerStalls> = vitals.filter_map(|vitals| vitals.stalls.as_ref()).flatten().collect();
        let longest = workers.iter().flat_map(|worker| &worker.longest).map(|stall| stall.to.saturating_sub(stall.from)).max();
        let counts = longest.is_some_and(|longest| longest > limits.stall_p99.0) && !local;
        let worst = |value: fn(&WorkerStalls) -> f64| workers.iter().map(|worker| value(worker)).max_by(f64::total_cmp);
        if !workers.is_empty() && !local {
            audit.stalls = Some(workers.iter().map(|worker| worker.count).sum());
            (audit.stalled, audit.frozen_ms) = (worst(|worker| worker.shut), worst(|worker| worker.frozen_ms));
        }
        let delays = audit.schedule_lag_ms_p99.is_none_or(|lag| lag <= limits.lag_p99.millis());
        let frozen = audit.frozen_ms.filter(|_| counts).unwrap_or(0.0);
        audit.idle =
            idle(sample, (frozen, audit.stalled.unwrap_or(0.0)), delays).filter(|_| audit.achieved_over_offered.is_none());
        let over = |share: Option<f64>, limit: f64, key: &str, say: &dyn Fn(&str) -> String| {
            let share = share.filter(|share| *share > limit)?;
            let said = say(&against(Some(share), limit, Unit::Share));
            Some(format!("{said} (limit {}, `audit.{key}`)", against(Some(limit), limit, Unit::Share)))
        };
        let not_offered = over(audit.idle, limits.idle, "idle", &|share| {
            format!("users waited for the load generator for {share} of their time")
        });
        // A few late ticks of a short run say little of the share.
        let sure = |worker: &&WorkerStalls| {
            let late = (worker.shut * worker.ticks as f64).round() as u64;
            share::decisive(worker.ticks, limits.stalled, SURE).is_some_and(|many| late >= many)
        };
        let lasting = workers.iter().copied().filter(sure).map(|worker| worker.shut).max_by(f64::total_cmp);
        let stalled = over(lasting.filter(|_| counts), limits.stalled, "stalled", &|share| {
            format!("a worker thread was stalled for {share} of the time")
        });
        let busy = over(audit.cpu_share_max.filter(|_| !local), limits.cpu, "cpu", &|share| {
            format!("a worker thread used {share} of its core")
        });
        Findings {
            not_offered: not_offered.into_iter().collect(),
            stalled,
            busy,
            hole: audit.idle.unwrap_or(0.0),
            delay_p99: audit.schedule_lag_ms_p99.filter(|_| !delays),
            accepted: Accepted { stall: limits.stall_p99, delays, timestamps: local },
            cause: lateness_cause(self.case, sample),
            ..Findings::default()
        }
    }

    /// Why the run did not happen as planned.
    fn off_plan(&self) -> Vec<String> {
        let cut = self.parts.iter().filter_map(|part| part.cut_short.as_ref());
        let mut reasons: Vec<String> = cut.map(|why| format!("{OFF_PLAN}{why}")).collect();
        let aborted = self.parts.iter().any(|part| part.ending.as_ref().is_some_and(Ending::ends_case));
        if self.parts.len() < self.rounds as usize && !aborted {
            reasons.push(format!("{OFF_PLAN}{} of {} rounds ran", self.parts.len(), self.rounds));
        }
        reasons
    }

    /// The verdicts on the case's objectives, those INVALID that the load generator could have flipped; and what they rest on.
    pub fn verdicts(&self, (table, facts): (&Table, &CaseFacts<'_>), findings: &Findings) -> (Vec<Verdict>, Vec<ObjectiveAudit>) {
        let checks = &self.case.checks;
        let load = judge::LoadKind::of_shape(&self.case.load.shape);
        let rule = |sample: &Sample, valid: bool| -> Vec<Verdict> {
            checks.iter().map(|check| judge::rule(check, sample, &judge::Conditions { valid, load })).collect()
        };
        if let Some(why) = findings.all.first() {
            let explained = |verdict: Verdict| match verdict.note.as_deref() {
                Some(judge::REJECTED) => Verdict { note: Some(format!("{} ({why})", judge::REJECTED)), ..verdict },
                _ => verdict,
            };
            return (rule(self.sample, false).into_iter().map(explained).collect(), Vec::new());
        }
        let late = if checks.is_empty() { None } else { llmscen_analysis::measure_lateness(table, facts, findings.accepted) };
        let late = late.or_else(|| (findings.hole > 0.0 && checks.iter().any(objective::is_throughput)).then(Lateness::default));
        let ends = late.map(|late| [End::Slow, End::Fast].map(|end| rule(&late.shift(self.sample, end, findings.hole), true)));
        let mut ends = ends.map(|ends| ends.map(Vec::into_iter));
        let audited = rule(self.sample, true).into_iter().map(|measured| {
            let own = ends.as_mut().and_then(|[slow, fast]| Some([slow.next()?, fast.next()?]));
            objective::audited(measured, own, findings)
        });
        audited.unzip()
    }
}

/// The share of their time that the users of a closed loop wait for the load generator: until it sends, and while a reply is there
/// that it has not read, at both ends of a request. Workers were not stalled for longer than they were `shut`.
fn idle(sample: &Sample, (frozen, shut): (f64, f64), accepted: bool) -> Option<f64> {
    let sent = sample.requests.iter().filter_map(|request| Some((request.busy_ms(), request.value(Metric::ScheduleLag)?)));
    let (n, busy, delay) = sent.fold((0.0, 0.0, 0.0), |(n, busy, delay), (own, lag)| (n + 1.0, busy + own, delay + lag));
    let cycle = (busy + delay) / n;
    let delayed = if accepted { 0.0 } else { delay / n / cycle };
    (n > 0.0 && cycle > 0.0).then(|| (delayed + (2.0 * frozen / cycle).min(shut)).min(1.0))
}

/// What was not sent for want of a file is the tool's failure, whatever the rows say.
fn without_file(requests: u64) -> Option<String> {
    let failed = format!("requests failed since {} (or had no free port): {requests}", Failure::NO_FILES);
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
    let sent = format!("{seen} of the offered rate was sent (limit {limit_text}, `audit.achieved`)");
    if audit.dropped == 0 {
        return Some(sent);
    }
    let kept_up = share + audit.dropped as f64 / scheduled.max(1) as f64 >= limit;
    let why = if kept_up { OFF_PLAN } else { "" };
    Some(format!("{why}{sent}; {} of {scheduled} arrivals found no room under `max_in_flight`", audit.dropped))
}

/// That no verdict is in doubt does not make each number exact: short spans are then partly the load generator's own.
pub fn caution(audit: &Audit, sample: &Sample) -> Option<String> {
    let of = |metric| sample.distributions.get(&metric).and_then(|seen| seen.quantile(0.99)).map(|span| (metric, span));
    let (metric, span) = of(Metric::Itl).filter(|itl| itl.1 > 0.0).or_else(|| of(Metric::Ttft))?;
    let stall = audit.stall_ms_p99.filter(|stall| audit.valid && *stall > NOTED_STALL && *stall > NOTED_SHARE * span)?;
    Some(format!(
        "Worker threads were up to {} late at p99, {} of `{metric}` p99: the tail of short spans is partly the load generator's own.",
        millis(stall),
        percent(stall / span)
    ))
}

/// A note that it is not visible whether unique prompts came from a cache.
pub fn unseen_cache(audit: &Audit, case: &Case) -> Option<String> {
    // The simulator reports what its cache holds, where it has one.
    let known = audit.cached.is_some() || matches!(case.target.place, Place::Simulator { .. } | Place::Local(_));
    let note = "Prefix cache hits are not visible: the server reports no cached tokens and no hit rate.";
    (!known && cache::is_unique(case)).then(|| note.to_owned())
}

/// CPU of the host from which on it is taken to be the reason.
const FULL: f64 = 0.9;

/// What the host's and llmscen's own CPU were, and who shares the cores.
pub(crate) fn lateness_cause(case: &Case, sample: &Sample) -> Option<String> {
    let mean = |signal| sample.signals.get(&signal).and_then(|own| own.mean);
    let shared = match &case.target.place {
        Place::Simulator { .. } => Some("the built-in simulator and the load generator share the cores of this machine"),
        Place::Url(url) => on_this_machine(url).then_some("the server and the load generator share the cores of this machine"),
        Place::Local(_) => None,
    };
    let cpu = mean(Signal::HostCpu).zip(mean(Signal::ToolCpu)).map(|(host, own)| {
        let used = format!("host CPU was {}, llmscen used {} of one core", percent(host), percent(own));
        match (host >= FULL, shared) {
            (true, Some(shared)) => format!("{used}; {shared}"),
            (true, None) if own < 0.5 => format!("{used}: other processes"),
            _ => used,
        }
    });
    cpu.or(shared.map(str::to_owned))
}

fn on_this_machine(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|uri| uri.host().is_some_and(is_loopback))
}

/// The share of requests, or of ticks, that may be later than the limit, and how sure it must be that more were.
const LATE: (f64, f64) = (0.01, 0.95);
/// So many late ones decide something, where there are as many at all: one hiccup makes a few of them.
const FEW: u64 = 3;

/// How many of `n` must be late for more than a hundredth to be late: of less than a hundred the p99 is the greatest, and one
/// would decide.
pub(crate) fn many(n: u64) -> Option<u64> {
    share::decisive(n, LATE.0, LATE.1).map(|many| many.max(FEW.min(n)))
}

/// By how much enough requests left late, and enough ticks came late, decides; the reason names the p99, which is as much or more.
/// Limits are printed with as many digits as tell them from what broke them.
pub(crate) fn reasons_without_stalls(audit: &Audit, [late, stalled]: [Option<f64>; 2], limits: &AuditLimits) -> Vec<String> {
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
