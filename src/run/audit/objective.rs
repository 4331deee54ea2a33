//! The self-audit of one objective: could the load generator have flipped its verdict?

use crate::run::audit::Findings;
use llmscen_core::check::{Check, Confidence, Op, Ruling, Subject, Verdict};
use llmscen_core::metric::{Sensitivity, Stat};
use llmscen_core::report::{Cause, InvalidReason, ObjectiveAudit};
use llmscen_report::format::{against, millis};

/// The sensitivity of an objective's subject, and whether low values of it are good.
fn sensitivity(check: &Check) -> (Sensitivity, bool) {
    let metric = match &check.subject {
        Subject::Goodput(_) => return (Sensitivity::Latency, false),
        Subject::Finish { .. } => return (Sensitivity::Fixed, true),
        Subject::Signal { .. } | Subject::PageMetric(_) => return (Sensitivity::Figure, true),
        Subject::Metric { metric, .. } => *metric,
    };
    (metric.sensitivity(), !metric.higher_is_better())
}

/// Whether an objective is judged at both ends even if no timestamp was late.
pub(crate) fn is_throughput(check: &Check) -> bool {
    sensitivity(check).0 == Sensitivity::Throughput
}

/// An objective for latencies that are this factor longer than measured, since users were idle: failures increase by
/// it, too. None if its value has no such bound. `times_out`: a request would exceed its timeout.
pub(crate) fn under_load(check: &Check, factor: f64, times_out: bool) -> Option<Check> {
    match sensitivity(check).0 {
        Sensitivity::Latency | Sensitivity::Service | Sensitivity::Pace => Some(check.clone()),
        Sensitivity::Errors if check.relative.is_none() && !times_out => Some(Check {
            limit: check.limit / factor,
            ..check.clone()
        }),
        Sensitivity::Errors
        | Sensitivity::Throughput
        | Sensitivity::Figure
        | Sensitivity::Fixed => None,
    }
}

/// The verdicts on an objective by other readings of the measured values; None for those that its audit does not need.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    /// With the server as slow, and as fast, as the measurement allows.
    pub ends: Option<[Verdict; 2]>,
    /// With the server faster still, by a multiple of the mean lateness of stalls.
    pub with_margin: Option<Verdict>,
    /// With idle users as busy as planned.
    pub under_load: Option<Verdict>,
}

/// What a verdict claims about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The server meets the objective.
    Good,
    /// The server does not.
    Bad,
    /// Its value equals or does not equal a number, or the verdict is inconclusive.
    Either,
}

fn claim(check: &Check, ruling: Ruling, low_is_good: bool) -> Option<Claim> {
    let passes = match ruling {
        Ruling::Pass => true,
        Ruling::Fail => false,
        Ruling::Inconclusive => return Some(Claim::Either),
        Ruling::Invalid => return None,
    };
    Some(match check.op {
        Op::Equal | Op::Unequal => Claim::Either,
        op if passes == (op.is_ceiling() == low_is_good) => Claim::Good,
        _ => Claim::Bad,
    })
}

/// The final verdict: that on the measured values, or INVALID if the load generator could have flipped it.
pub(crate) fn audit_verdict(
    measured: Verdict,
    readings: Readings,
    findings: &Findings,
) -> (Verdict, ObjectiveAudit) {
    let check = &measured.check;
    let mut reasons = conditions(&measured, &readings, findings);
    let ends = readings.ends;
    let flipped = ends.as_ref().and_then(|ends| flip(&measured, ends));
    if flipped.is_some() && findings.own_failures {
        let more: Vec<InvalidReason> = findings
            .not_offered
            .iter()
            .filter(|why| !reasons.contains(why))
            .cloned()
            .collect();
        reasons.extend(more);
    }
    reasons.extend(flipped);
    let [slow, fast] = ends.map_or([None, None], |ends| ends.map(Some));
    let observed = [Some(&measured), slow.as_ref(), fast.as_ref()]
        .map(|verdict| verdict.and_then(|verdict| verdict.observed));
    let ruling = |verdict: &Option<Verdict>| verdict.as_ref().map(|verdict| verdict.ruling);
    let audit = ObjectiveAudit {
        expr: check.expr.clone(),
        measured: measured.ruling,
        slow: ruling(&slow),
        fast: ruling(&fast),
        observed,
        reasons,
    };
    if audit.reasons.is_empty() {
        return (measured, audit);
    }
    let cause = findings
        .cause
        .as_ref()
        .filter(|_| !findings.own_failures)
        .into_iter();
    let note = audit
        .reasons
        .iter()
        .map(InvalidReason::text)
        .chain(cause.map(String::as_str))
        .collect::<Vec<_>>()
        .join("; ");
    (
        Verdict {
            ruling: Ruling::Invalid,
            need: None,
            note: Some(note),
            ..measured
        },
        audit,
    )
}

/// The violated conditions of the claim.
fn conditions(measured: &Verdict, readings: &Readings, findings: &Findings) -> Vec<InvalidReason> {
    let check = &measured.check;
    let (sensitivity, low_is_good) = sensitivity(check);
    let Some(claim) =
        claim(check, measured.ruling, low_is_good).filter(|_| sensitivity != Sensitivity::Fixed)
    else {
        return Vec::new();
    };
    if measured.observed.is_none() {
        // The load generator may be the reason for the lack of data.
        return if measured.ruling == Ruling::Pass {
            Vec::new()
        } else {
            let not_offered = findings.not_offered.iter().chain(&findings.idle);
            not_offered.cloned().collect()
        };
    }
    // A value that later timestamps change in both directions has no such reading.
    let agrees = |reading: &Option<Verdict>| {
        let ruling = reading.as_ref().map(|verdict| verdict.ruling);
        is_ordered(check) && ruling == Some(measured.ruling)
    };
    let mut reasons = Vec::new();
    let claims_good = claim != Claim::Bad;
    let claims_bad = claim != Claim::Good;
    let is_telemetry = matches!(
        check.subject,
        Subject::Signal { .. } | Subject::PageMetric(_)
    );
    if claims_good && sensitivity != Sensitivity::Errors && !is_telemetry {
        reasons.extend(findings.answers_cached.iter().cloned());
    }
    if claims_good && sensitivity != Sensitivity::Throughput {
        let idle = findings
            .idle
            .iter()
            .filter(|_| !agrees(&readings.under_load));
        reasons.extend(findings.not_offered.iter().chain(idle).cloned());
    }
    if claims_good && sensitivity == Sensitivity::Service && check.op.is_ceiling() {
        reasons.extend(hidden_queue(check, findings));
    }
    let needs_timestamps = match sensitivity {
        Sensitivity::Latency | Sensitivity::Service => claims_bad || !is_ordered(check),
        Sensitivity::Figure => true,
        Sensitivity::Pace | Sensitivity::Errors => !is_ordered(check),
        Sensitivity::Throughput | Sensitivity::Fixed => false,
    };
    // Each value already lies in a range for its late timestamps; `stalled` is about the effect of stalls on the
    // server, such as sends that reach it together.
    let is_latency = matches!(sensitivity, Sensitivity::Latency | Sensitivity::Service);
    // Stalls may be why a verdict is open.
    let is_safe = is_latency && claim != Claim::Either && agrees(&readings.with_margin);
    if needs_timestamps && !is_safe {
        reasons.extend(findings.stalled.iter().cloned());
    }
    if claims_bad || sensitivity == Sensitivity::Throughput {
        reasons.extend(findings.busy.iter().cloned());
    }
    reasons
}

/// Whether later timestamps can change the compared value in one direction only.
fn is_ordered(check: &Check) -> bool {
    let moves = |stat: &Option<Stat>| !matches!(stat, Some(Stat::Sd | Stat::Count));
    let ordered = |subject: &Subject| {
        if let Subject::Metric { stat, .. } = subject {
            moves(stat)
        } else {
            true
        }
    };
    !matches!(check.op, Op::Equal | Op::Unequal) && ordered(&check.subject)
}

/// A service latency excludes the time before the actual send: with long send delays, a queue may not be visible.
fn hidden_queue(check: &Check, findings: &Findings) -> Option<InvalidReason> {
    let (delay, shard) = findings.delay_p99.as_ref()?;
    let limit = millis(check.limit / 10.0);
    let name = shard
        .iter()
        .map(|name| format!("{name}: "))
        .collect::<String>();
    (*delay > check.limit / 10.0).then(|| {
        Cause::LoadGenerator.reason(format_args!(
            "{name}send delay p99 was {}, over a tenth of the limit ({limit}): waiting may hide before the send",
            millis(*delay)
        ))
    })
}

/// The end with a different verdict.
fn flip(measured: &Verdict, [slow, fast]: &[Verdict; 2]) -> Option<InvalidReason> {
    if sensitivity(&measured.check).0 == Sensitivity::Fixed || measured.ruling == Ruling::Invalid {
        return None;
    }
    let ends = [
        (slow, "with every stall counted against the server"),
        (
            fast,
            "without the load generator's stalls, delays and failures",
        ),
    ];
    let (other, how) = ends
        .into_iter()
        .find(|(end, _)| end.ruling != measured.ruling)?;
    let check = &measured.check;
    let describe = |verdict: &Verdict| {
        let bound = matches!(check.confidence, Confidence::Level(_))
            .then_some(verdict.bound)
            .flatten();
        let bound = bound.map(|bound| {
            format!(
                ", bound {}",
                against(Some(bound), check.limit, check.subject.unit())
            )
        });
        format!(
            "{} ({}{})",
            verdict.ruling.name().to_uppercase(),
            against(verdict.observed, check.limit, check.subject.unit()),
            bound.unwrap_or_default()
        )
    };
    Some(Cause::LoadGenerator.reason(format_args!(
        "{} as measured, {} {how}",
        describe(measured),
        describe(other)
    )))
}

#[cfg(test)]
mod tests;
