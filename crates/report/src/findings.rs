//! Findings: what the measured values say about failures, saturation, queues, hardware and certainty, one line each.
//!
//! A finding names a cause only where its own measurement supports it; two things that only happened together are
//! joined by "while".

use crate::format::{against, check_title, counted, number, optional, percent, value};
use crate::notes;
use crate::table::Emphasis;
use llmscen_core::check::{Ruling, Subject, Verdict};
use llmscen_core::label::{Labels, describe};
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::report::{CaseReport, InvalidReason, OutputLengths, Report};
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use std::collections::BTreeMap;

/// One finding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// A sentence with names in backticks.
    pub(crate) text: String,
    /// Its severity.
    pub(crate) tone: Emphasis,
    /// The case that shows it best, by index.
    pub(crate) case: Option<usize>,
}

/// Requests that wait in the server are a queue from this mean on.
const QUEUED: f64 = 0.5;
/// From this share of the mean TTFT on, the queue is its cause.
const QUEUE_SHARE: f64 = 0.5;
/// A KV cache that is this full limits the number of running requests.
const FULL_CACHE: f64 = 0.95;
/// A host is busy from this mean CPU share on.
const BUSY_HOST: f64 = 0.9;
/// Throughput has stopped growing if no higher load exceeds it by more than this share.
const GROWTH: f64 = 0.05;
/// The highest load must be this multiple of the load where throughput stops growing.
const MORE_LOAD: f64 = 1.5;
/// Failures within this share of the measured time happened together.
const BURST: f64 = 0.25;
/// Effective sample sizes below this share of the samples are reported.
const CORRELATED: f64 = 0.5;
/// A sentence names at most this many cases or groups.
const NAMED: usize = 3;

/// Every finding, the most severe first.
pub(crate) fn findings(report: &Report) -> Vec<Finding> {
    let mut all: Vec<Finding> = invalid(report).into_iter().collect();
    // The probes of a search are expected to fail.
    if report.searches.is_empty() {
        all.extend(failed_objectives(report));
    }
    all.extend(failed_requests(report));
    all.extend(silent_endpoints(report));
    all.extend(short_replies(report));
    all.extend(saturation(report));
    all.extend(full_cache(report));
    all.extend(throttling(report));
    all.extend(busy_host(report));
    if report.searches.is_empty() {
        all.extend(inconclusive(report));
    }
    all.extend(correlated(report));
    all
}

/// The telemetry that findings would need and no case has, as a sentence; None if all is there or no case ran.
pub(crate) fn unmeasured(report: &Report) -> Option<String> {
    let has = |signals: &[Signal]| {
        let of = |case: &CaseReport| signals.iter().any(|signal| mean(case, *signal).is_some());
        report.cases.iter().any(of)
    };
    let groups: [(&[Signal], &str); 3] = [
        (
            &[
                Signal::ServerWaiting,
                Signal::ServerRunning,
                Signal::ServerKvCacheUsage,
            ],
            "server queue and KV cache (set `target.metrics`)",
        ),
        (&[Signal::GpuUtilization], "GPU"),
        (&[Signal::HostCpu], "host CPU"),
    ];
    let missing: Vec<&str> = groups
        .iter()
        .filter(|(signals, _)| !has(signals))
        .map(|(_, name)| *name)
        .collect();
    (!missing.is_empty() && !report.cases.is_empty())
        .then(|| format!("Not measured: {}.", missing.join(", ")))
}

/// How many times its limit an observed value is; above 1 it exceeds it. None without a ratio.
pub(crate) fn limit_ratio(verdict: &Verdict) -> Option<f64> {
    use llmscen_core::check::Op;
    let (observed, limit) = (verdict.observed?, verdict.check.limit);
    let ratio = match verdict.check.op {
        Op::Less | Op::AtMost => observed / limit,
        Op::More | Op::AtLeast => limit / observed,
        Op::Equal | Op::Unequal => return None,
    };
    (limit > 0.0 && observed >= 0.0 && !ratio.is_nan()).then_some(ratio)
}

/// The relative distance between the observed value and the limit; missing data counts as infinite.
pub(crate) fn distance(verdict: &Verdict) -> f64 {
    match verdict.observed {
        None => f64::INFINITY,
        Some(_) if verdict.check.limit == 0.0 => f64::MAX,
        Some(observed) => ((observed - verdict.check.limit) / verdict.check.limit).abs(),
    }
}

/// `8.2x the limit`; for a lower limit `0.42x the limit`. None without a ratio, or if it rounds to 1.
pub(crate) fn excess(verdict: &Verdict) -> Option<String> {
    let ratio = limit_ratio(verdict)?;
    let shown = if verdict.check.op.is_ceiling() {
        ratio
    } else {
        1.0 / ratio
    };
    let text = factor(shown)?;
    Some(format!("{text} the limit"))
}

/// `8.2x`; None if it is infinite, or rounds to 1.
pub(crate) fn factor(ratio: f64) -> Option<String> {
    let text = match ratio {
        _ if !ratio.is_finite() => return None,
        ratio if ratio >= 100.0 => format!("{ratio:.0}x"),
        ratio if ratio >= 2.0 => format!("{ratio:.1}x"),
        ratio => format!("{ratio:.2}x"),
    };
    (text != "1.00x").then_some(text)
}

fn warn(text: String, tone: Emphasis, case: Option<usize>) -> Finding {
    Finding { text, tone, case }
}

fn index(report: &Report, case: &CaseReport) -> Option<usize> {
    report
        .cases
        .iter()
        .position(|other| std::ptr::eq(other, case))
}

fn mean(case: &CaseReport, signal: Signal) -> Option<f64> {
    case.telemetry.signals.get(&signal)?.mean
}

fn maximum(case: &CaseReport, signal: Signal) -> Option<f64> {
    case.telemetry.signals.get(&signal)?.max
}

/// Where something holds, with a leading space: ` in 5 of 12 cases`, ` from concurrency 32 on`; empty for a report of
/// one case.
fn place(report: &Report, cases: &[&CaseReport]) -> String {
    let all = report.cases.len();
    if all == 1 {
        return String::new();
    }
    if let Some(from) = first_load(report, cases) {
        return from;
    }
    match cases {
        [only] => format!(" in `{}`", only.id),
        cases if cases.len() == all => format!(" in all {all} cases"),
        cases => format!(" in {} of {all} cases", cases.len()),
    }
}

/// ` from concurrency 32 on`, if the cases are exactly those with the highest loads.
fn first_load(report: &Report, cases: &[&CaseReport]) -> Option<String> {
    let axis = report.cases.first()?.load_axis;
    let load = |case: &CaseReport| case.load_value.filter(|_| case.load_axis == axis);
    let all: Option<Vec<f64>> = report.cases.iter().map(load).collect();
    let all = all?;
    let from = cases
        .iter()
        .filter_map(|case| load(case))
        .reduce(f64::min)?;
    let at_least = all.iter().filter(|load| **load >= from).count();
    let is_tail = at_least == cases.len() && at_least < all.len();
    let unit = if axis == "rate" { " requests/s" } else { "" };
    is_tail.then(|| format!(" from {axis} {}{unit} on", number(from)))
}

/// The distinct reasons of invalid cases are merged into one line, as they differ in their numbers.
fn invalid(report: &Report) -> Option<Finding> {
    let cases: Vec<&CaseReport> = report
        .cases
        .iter()
        .filter(|case| case.is_invalid())
        .collect();
    let first = cases.first()?;
    let noted = |case: &&CaseReport| {
        let mut verdicts = case
            .verdicts
            .iter()
            .filter(|verdict| verdict.ruling == Ruling::Invalid);
        verdicts.find_map(|verdict| verdict.note.clone())
    };
    let why = first
        .audit
        .reasons
        .first()
        .map(InvalidReason::to_string)
        .or_else(|| noted(first));
    let why = why.unwrap_or_else(|| "the self-audit failed".to_owned());
    let verdicts = cases
        .iter()
        .flat_map(|case| &case.verdicts)
        .filter(|verdict| verdict.ruling == Ruling::Invalid)
        .count();
    let subject = match verdicts {
        0 => counted(cases.len(), "case"),
        count => counted(count, "objective"),
    };
    let is = if subject.starts_with("1 ") {
        "is"
    } else {
        "are"
    };
    let example = if cases.len() == 1 {
        String::new()
    } else {
        format!(". In `{}`", first.id)
    };
    let text = format!(
        "{subject} {is} INVALID{}{example}: {}.",
        place(report, &cases),
        why.trim_end_matches('.')
    );
    Some(warn(text, Emphasis::Invalid, index(report, first)))
}

/// A line for each failed objective: where it fails, by how much, and whether requests queued meanwhile.
fn failed_objectives(report: &Report) -> Vec<Finding> {
    let mut titles: Vec<String> = Vec::new();
    for verdict in report.cases.iter().flat_map(|case| &case.verdicts) {
        let title = check_title(&verdict.check);
        if verdict.ruling == Ruling::Fail && !titles.contains(&title) {
            titles.push(title);
        }
    }
    titles
        .iter()
        .filter_map(|title| failed_objective(report, title))
        .collect()
}

fn failed_objective(report: &Report, title: &str) -> Option<Finding> {
    let failing = |case: &'_ CaseReport| {
        let mut failed = case
            .verdicts
            .iter()
            .filter(|verdict| verdict.ruling == Ruling::Fail);
        failed.any(|verdict| check_title(&verdict.check) == title)
    };
    let cases: Vec<&CaseReport> = report.cases.iter().filter(|case| failing(case)).collect();
    let verdicts = cases.iter().flat_map(|case| {
        let own = case
            .verdicts
            .iter()
            .filter(|verdict| verdict.ruling == Ruling::Fail);
        own.filter(|verdict| check_title(&verdict.check) == title)
            .map(move |verdict| (*case, verdict))
    });
    let severity = |verdict: &Verdict| limit_ratio(verdict).unwrap_or(f64::INFINITY);
    let (case, worst) = verdicts.max_by(|a, b| severity(a.1).total_cmp(&severity(b.1)))?;
    let seen = match worst.observed {
        None => "no data".to_owned(),
        Some(_) => {
            let seen = against(
                worst.observed,
                worst.check.limit,
                worst.check.subject.unit(),
            );
            excess(worst).map_or(seen.clone(), |factor| format!("{seen}, {factor}"))
        }
    };
    let queue = match &worst.check.subject {
        Subject::Metric {
            metric: metric @ (Metric::Ttft | Metric::E2e),
            ..
        } => queue(case, *metric),
        _ => None,
    };
    let observed = if cases.len() == 1 {
        seen
    } else {
        format!("worst in `{}`: {seen}", case.id)
    };
    let text = match queue {
        Some(queue) => format!(
            "`{title}` fails{} {queue} ({observed}).",
            place(report, &cases)
        ),
        None => format!("`{title}` fails{} ({observed}).", place(report, &cases)),
    };
    Some(warn(text, Emphasis::Fail, index(report, case)))
}

/// `because requests queue in the server: …` where the server's own queue time is most of the TTFT, `while …` where
/// requests only waited at the same time; None without a queue.
fn queue(case: &CaseReport, metric: Metric) -> Option<String> {
    let time = mean(case, Signal::ServerQueueTime);
    let total = case.distributions.get(&metric).map(|values| values.mean);
    let share = time
        .zip(total)
        .map(|(queue, total)| queue / total)
        .filter(|share| share.is_finite());
    let waiting = mean(case, Signal::ServerWaiting);
    let is_cause = share.is_some_and(|share| share >= QUEUE_SHARE);
    if !is_cause && waiting.is_none_or(|waiting| waiting < QUEUED) {
        return None;
    }
    let mut facts = Vec::new();
    facts.extend(share.filter(|_| is_cause).map(|share| {
        format!(
            "queue time is {} of the mean {}",
            percent(share.min(1.0)),
            name(metric)
        )
    }));
    facts.extend(waiting.map(|waiting| format!("server waiting {} on average", count(waiting))));
    facts.extend(
        maximum(case, Signal::ServerRunning).map(|most| format!("at most {} running", count(most))),
    );
    facts.extend(
        maximum(case, Signal::ServerKvCacheUsage)
            .map(|most| format!("KV cache up to {}", percent(most))),
    );
    let word = if is_cause { "because" } else { "while" };
    Some(format!(
        "{word} requests queue in the server: {}",
        facts.join(", ")
    ))
}

fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Ttft => "TTFT",
        Metric::E2e => "E2E latency",
        other => other.name(),
    }
}

/// A mean of counts, whole from 10 on.
fn count(mean: f64) -> String {
    if mean >= 10.0 {
        format!("{mean:.0}")
    } else {
        number(mean)
    }
}

/// Failed requests by kind, and when they failed.
fn failed_requests(report: &Report) -> Option<Finding> {
    // The requests of a stage are also those of its case.
    let cases = || report.cases.iter().filter(|case| !case.is_stage());
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, count) in cases().flat_map(|case| &case.counts.failures) {
        *kinds.entry(kind.name()).or_default() += count;
    }
    let failed: u64 = kinds.values().sum();
    let scheduled: u64 = cases().map(|case| case.counts.scheduled).sum();
    if failed == 0 {
        return None;
    }
    let mut kinds: Vec<(&str, u64)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let listed: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| format!("{count} `{kind}`"))
        .collect();
    let affected: Vec<&CaseReport> = cases()
        .filter(|case| !case.counts.failures.is_empty())
        .collect();
    let most = affected
        .iter()
        .max_by_key(|case| case.counts.failures.values().sum::<u64>())?;
    let spread = if affected.len() > 1 {
        let own: u64 = most.counts.failures.values().sum();
        format!("; most in `{}`: {own}", most.id)
    } else {
        failure_times(most).unwrap_or_default()
    };
    let text = format!(
        "{failed} of {scheduled} requests failed{}: {}{spread}.",
        place(report, &affected),
        listed.join(", ")
    );
    Some(warn(text, Emphasis::Fail, index(report, most)))
}

/// A line for each URL that answered none of its requests.
fn silent_endpoints(report: &Report) -> Vec<Finding> {
    let mut lines: Vec<(String, Vec<&CaseReport>)> = Vec::new();
    for case in report.cases.iter().filter(|case| !case.is_stage()) {
        for line in notes::silent_endpoints(case) {
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, cases)) => cases.push(case),
                None => lines.push((line, vec![case])),
            }
        }
    }
    let finding = |(line, cases): (String, Vec<&CaseReport>)| {
        let text = format!("{}{}.", line.trim_end_matches('.'), place(report, &cases));
        let first = cases.first().and_then(|case| index(report, case));
        warn(text, Emphasis::Fail, first)
    };
    lines.into_iter().map(finding).collect()
}

/// Replies that are shorter than their requests ask for.
fn short_replies(report: &Report) -> Option<Finding> {
    let short = |case: &&CaseReport| {
        let lengths = case.output_lengths.filter(OutputLengths::are_ignored);
        !case.is_stage() && lengths.is_some()
    };
    let cases: Vec<&CaseReport> = report.cases.iter().filter(short).collect();
    let lengths = || cases.iter().filter_map(|case| case.output_lengths);
    let sum = |count: fn(OutputLengths) -> u64| lengths().map(count).sum::<u64>();
    let first = cases.first()?;
    let text = format!(
        "{} of {} replies have fewer output tokens than requested{}: the server may ignore the requested length.",
        sum(|it| it.shorter),
        sum(|it| it.n),
        place(report, &cases)
    );
    Some(warn(text, Emphasis::Fail, index(report, first)))
}

/// When the requests of a case failed; None for several rounds, whose failures are not all known by time.
fn failure_times(case: &CaseReport) -> Option<String> {
    let times = || case.timelines.failures.iter().map(|point| point.0);
    let (from, until) = (times().reduce(f64::min)?, times().reduce(f64::max)?);
    let (begin, end) = case.timelines.measured;
    let seconds = |at: f64| value(at, Unit::Seconds);
    if case.rounds != 1 || times().count() < 2 {
        return None;
    }
    Some(if until - from <= BURST * (end - begin) {
        format!(
            "; all between {} and {} of the run",
            seconds(from),
            seconds(until)
        )
    } else {
        format!("; spread from {} to {}", seconds(from), seconds(until))
    })
}

/// Cases that differ only in their load, by rising load, with what they have in common.
fn by_load(report: &Report) -> Vec<(String, Vec<&CaseReport>)> {
    let mut groups: Vec<(String, Vec<&CaseReport>)> = Vec::new();
    let is_load = |path: &str| matches!(path, "load.concurrency" | "load.rate");
    let common = |labels: &Labels| {
        let others = labels.0.iter().filter(|(path, _)| !is_load(path));
        let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        others
            .map(|(path, value)| describe(&last(path), value))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for case in report
        .cases
        .iter()
        .filter(|case| !case.is_stage() && case.load_value.is_some())
    {
        let key = common(&case.labels);
        match groups
            .iter_mut()
            .find(|(known, cases)| *known == key && cases[0].load_axis == case.load_axis)
        {
            Some((_, cases)) => cases.push(case),
            None => groups.push((key, vec![case])),
        }
    }
    for (_, cases) in &mut groups {
        cases.sort_by(|a, b| {
            a.load_value
                .unwrap_or(0.0)
                .total_cmp(&b.load_value.unwrap_or(0.0))
        });
    }
    groups
}

/// The load from which on throughput does not grow, and the highest load, of cases by rising load. None if it grows
/// to the end.
pub(crate) fn saturated_from<'a>(
    cases: &[&'a CaseReport],
) -> Option<(&'a CaseReport, &'a CaseReport)> {
    let rate = |case: &CaseReport| {
        case.scalars
            .get(&Metric::OutputTps)
            .or_else(|| case.scalars.get(&Metric::RequestThroughput))
            .copied()
    };
    let known: Vec<(&CaseReport, f64)> = cases
        .iter()
        .filter_map(|case| Some((*case, rate(case)?)))
        .collect();
    let (last, _) = *known.last()?;
    let stops = |at: usize| {
        known[at..]
            .iter()
            .all(|(_, rate)| *rate <= known[at].1 * (1.0 + GROWTH))
    };
    let at = (0..known.len()).find(|at| stops(*at))?;
    let first = known[at].0;
    let grew = last.load_value? >= MORE_LOAD * first.load_value?;
    grew.then_some((first, last))
}

fn saturation(report: &Report) -> Option<Finding> {
    if !report.searches.is_empty() {
        return None;
    }
    let groups = by_load(report);
    let found: Vec<(&str, &CaseReport, &CaseReport)> = groups
        .iter()
        .filter_map(|(name, cases)| {
            saturated_from(cases).map(|(first, last)| (name.as_str(), first, last))
        })
        .collect();
    let load = |case: &CaseReport| {
        let unit = if case.load_axis == "rate" {
            " requests/s"
        } else {
            ""
        };
        format!("{}{unit}", number(case.load_value.unwrap_or(0.0)))
    };
    let speed = |case: &CaseReport| {
        let metric = if case.scalars.contains_key(&Metric::OutputTps) {
            Metric::OutputTps
        } else {
            Metric::RequestThroughput
        };
        optional(case.scalars.get(&metric).copied(), metric.unit())
    };
    let (_, first, _) = *found.first()?;
    let text = if let [(_, first, last)] = found[..]
        && groups.len() == 1
    {
        let p95 = |case: &CaseReport| {
            case.distributions
                .get(&Metric::Ttft)
                .and_then(|ttft| ttft.quantile(0.95))
        };
        let latency = match (p95(first), p95(last)) {
            (Some(before), Some(after)) => format!(
                ", while TTFT p95 changes from {} to {}",
                value(before, Unit::Millis),
                value(after, Unit::Millis)
            ),
            _ => String::new(),
        };
        format!(
            "Throughput stops increasing at {} {}: {} there, {} at {}{latency}.",
            first.load_axis,
            load(first),
            speed(first),
            speed(last),
            load(last)
        )
    } else {
        let each: Vec<String> = found
            .iter()
            .take(NAMED)
            .map(|(name, first, _)| {
                format!(
                    "`{name}` at {} {} ({})",
                    first.load_axis,
                    load(first),
                    speed(first)
                )
            })
            .collect();
        let more = match found.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        format!(
            "Throughput stops increasing within {} of {}: {}{more}.",
            found.len(),
            counted(groups.len(), "sweep"),
            each.join(", ")
        )
    };
    Some(warn(text, Emphasis::Inconclusive, index(report, first)))
}

/// The cases where a statistic of a signal reaches a level, the highest first.
fn reaching(
    report: &Report,
    of: impl Fn(&CaseReport) -> Option<f64>,
    level: f64,
) -> Vec<(&CaseReport, f64)> {
    let mut found: Vec<(&CaseReport, f64)> = report
        .cases
        .iter()
        .filter_map(|case| Some((case, of(case).filter(|seen| *seen >= level)?)))
        .collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}

fn full_cache(report: &Report) -> Option<Finding> {
    let found = reaching(
        report,
        |case| maximum(case, Signal::ServerKvCacheUsage),
        FULL_CACHE,
    );
    let (case, most) = *found.first()?;
    let cases: Vec<&CaseReport> = found.iter().map(|(case, _)| *case).collect();
    let preempted = cases
        .iter()
        .filter_map(|case| mean(case, Signal::ServerPreemptions))
        .reduce(f64::max);
    let preempted = match preempted.filter(|rate| *rate > 0.0) {
        Some(rate) => format!("; the server preempts up to {} requests/s", number(rate)),
        None => String::new(),
    };
    let text = format!(
        "KV cache usage reaches {}{}{preempted}.",
        percent(most),
        place(report, &cases)
    );
    Some(warn(text, Emphasis::Inconclusive, index(report, case)))
}

fn throttling(report: &Report) -> Option<Finding> {
    let found = reaching(
        report,
        |case| maximum(case, Signal::GpuThrottled),
        f64::MIN_POSITIVE,
    );
    let (case, _) = *found.first()?;
    let cases: Vec<&CaseReport> = found.iter().map(|(case, _)| *case).collect();
    let share = mean(case, Signal::GpuThrottled)
        .map(percent)
        .unwrap_or_default();
    let clock = case.telemetry.signals.get(&Signal::GpuClock);
    let clock = clock
        .and_then(|clock| clock.min.zip(clock.max))
        .filter(|(least, most)| least < most)
        .map(|(least, most)| {
            format!(
                ", core clock {} to {}",
                value(least, Unit::Megahertz),
                value(most, Unit::Megahertz)
            )
        });
    let text = format!(
        "GPUs are throttled{}: on average {share} of them{}.",
        place(report, &cases),
        clock.unwrap_or_default()
    );
    Some(warn(text, Emphasis::Inconclusive, index(report, case)))
}

/// A busy host, and how much of it the load generator and the managed server use.
fn busy_host(report: &Report) -> Option<Finding> {
    let found = reaching(report, |case| mean(case, Signal::HostCpu), BUSY_HOST);
    let (case, share) = *found.first()?;
    let cases: Vec<&CaseReport> = found.iter().map(|(case, _)| *case).collect();
    let cores = report.manifest.machine.cores as f64;
    let (tool, server) = (mean(case, Signal::ToolCpu), mean(case, Signal::ProcessCpu));
    let used = match tool {
        Some(tool) if cores > 0.0 => {
            let others = (share * cores - tool - server.unwrap_or(0.0)).max(0.0);
            let server = server.map(|server| format!(", the managed server {}", number(server)));
            format!(
                " Of {}, the load generator uses {}{}, other processes {}.",
                counted(cores as usize, "core"),
                number(tool),
                server.unwrap_or_default(),
                number(others)
            )
        }
        _ => String::new(),
    };
    let text = format!(
        "Host CPU is {}{}.{used}",
        percent(share),
        place(report, &cases)
    );
    Some(warn(text, Emphasis::Inconclusive, index(report, case)))
}

fn inconclusive(report: &Report) -> Option<Finding> {
    let open = |case: &'_ CaseReport| {
        case.verdicts
            .iter()
            .any(|verdict| verdict.ruling == Ruling::Inconclusive)
    };
    let cases: Vec<&CaseReport> = report.cases.iter().filter(|case| open(case)).collect();
    let verdicts = || {
        cases
            .iter()
            .flat_map(|case| case.verdicts.iter().map(move |verdict| (*case, verdict)))
            .filter(|(_, verdict)| verdict.ruling == Ruling::Inconclusive)
    };
    let total = verdicts().count();
    let (case, _) = verdicts().next()?;
    let is = if total == 1 { "is" } else { "are" };
    let need = verdicts()
        .filter_map(|(case, verdict)| Some((verdict.need?, case, verdict)))
        .max_by_key(|(need, ..)| *need);
    let need = match need {
        Some((need, case, verdict)) => {
            let whose = if total == 1 {
                String::new()
            } else {
                format!(
                    " The largest: `{}` in `{}`.",
                    check_title(&verdict.check),
                    case.id
                )
            };
            format!(
                " About {need} requests are needed, {} measured.{whose}",
                verdict.n
            )
        }
        None => String::new(),
    };
    let text = format!(
        "{} {is} INCONCLUSIVE{}.{need}",
        counted(total, "objective"),
        place(report, &cases)
    );
    Some(warn(text, Emphasis::Inconclusive, index(report, case)))
}

/// Correlated samples, merged over cases and objectives: the metrics, and the worst case.
fn correlated(report: &Report) -> Option<Finding> {
    // Case, metric, number of samples with its noun, effective sample size.
    let mut found: Vec<(&CaseReport, String, u64, &str, f64)> = Vec::new();
    for case in &report.cases {
        let judged = |metric: Metric| {
            case.verdicts.iter().any(|verdict| {
                verdict.effective_n.is_some() && verdict.check.subject.metric() == Some(metric)
            })
        };
        for verdict in &case.verdicts {
            let Some(effective) = verdict
                .effective_n
                .filter(|n| *n < CORRELATED * verdict.n as f64)
            else {
                continue;
            };
            let is_gap = verdict
                .check
                .subject
                .metric()
                .is_some_and(|metric| metric.per() == Scope::Gap);
            let noun = if is_gap { "token gaps" } else { "requests" };
            found.push((
                case,
                verdict.check.figure_name(),
                verdict.n,
                noun,
                effective,
            ));
        }
        for repeat in case.repeats.iter().filter(|repeat| !judged(repeat.metric)) {
            if let Some(effective) = repeat.reported_effective_n() {
                found.push((
                    case,
                    format!("mean {}", repeat.metric),
                    repeat.n,
                    "requests",
                    effective,
                ));
            }
        }
    }
    let share = |effective: f64, n: u64| effective / n as f64;
    let (case, _, n, noun, effective) = found
        .iter()
        .min_by(|a, b| share(a.4, a.2).total_cmp(&share(b.4, b.2)))?;
    let (mut names, mut cases): (Vec<String>, Vec<&CaseReport>) = (Vec::new(), Vec::new());
    for (case, name, ..) in &found {
        let name = format!("`{name}`");
        if !names.contains(&name) {
            names.push(name);
        }
        if !cases.iter().any(|known| std::ptr::eq(*known, *case)) {
            cases.push(case);
        }
    }
    let example = if cases.len() > 1 {
        format!(" In `{}`,", case.id)
    } else {
        String::new()
    };
    let text = format!(
        "Consecutive requests are correlated{} ({}).{example} {n} {noun} carry the information of \
        about {effective:.0} independent ones.",
        place(report, &cases),
        names.join(", ")
    );
    Some(warn(text, Emphasis::None, index(report, case)))
}

#[cfg(test)]
mod tests;
