//! The self-audit of one objective: could the load generator have flipped its verdict?

use crate::run::audit::Findings;
use llmscen_core::check::{Check, Confidence, Op, Ruling, Subject, Verdict};
use llmscen_core::metric::{Sensitivity, Stat};
use llmscen_core::report::ObjectiveAudit;
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
        let more: Vec<String> = findings
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
        .chain(cause)
        .cloned()
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
fn conditions(measured: &Verdict, readings: &Readings, findings: &Findings) -> Vec<String> {
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
fn hidden_queue(check: &Check, findings: &Findings) -> Option<String> {
    let (delay, shard) = findings.delay_p99.as_ref()?;
    let limit = millis(check.limit / 10.0);
    let name = shard
        .iter()
        .map(|name| format!("{name}: "))
        .collect::<String>();
    (*delay > check.limit / 10.0).then(|| {
        format!(
            "{name}send delay p99 was {}, over a tenth of the limit ({limit}): waiting may hide before the send",
            millis(*delay)
        )
    })
}

/// The end with a different verdict.
fn flip(measured: &Verdict, [slow, fast]: &[Verdict; 2]) -> Option<String> {
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
    Some(format!(
        "{} as measured, {} {how}",
        describe(measured),
        describe(other)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::audit::tests::{check, of_subject};
    use llmscen_core::metric::Metric;
    use llmscen_core::signal::Signal;

    const P95: Option<Stat> = Some(Stat::Quantile(0.95));

    fn verdict(check: Check, ruling: Ruling, observed: f64) -> Verdict {
        Verdict {
            check,
            ruling,
            observed: Some(observed),
            bound: None,
            n: 100,
            effective_n: None,
            need: None,
            note: None,
        }
    }

    /// All findings at once.
    fn bad() -> Findings {
        Findings {
            not_offered: vec!["load".into()],
            stalled: Some("stalled".into()),
            busy: Some("busy".into()),
            delay_p99: Some((12.0, None)),
            ..Findings::default()
        }
    }

    fn reasons(check: &Check, ruling: Ruling) -> Vec<String> {
        let reasons = audit_verdict(
            verdict(check.clone(), ruling, 1.0),
            Readings::default(),
            &bad(),
        )
        .1
        .reasons;
        reasons
            .iter()
            .map(|why| why.split(' ').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn each_claim_needs_its_own_conditions() {
        use Ruling::{Fail, Inconclusive, Pass};
        let of = |metric, stat, op, limit| {
            let check = check(metric, stat, op, limit);
            [reasons(&check, Pass), reasons(&check, Fail)]
        };
        let sets = |pass: &[&str], fail: &[&str]| {
            [pass, fail].map(|reasons| {
                reasons
                    .iter()
                    .map(|why| (*why).to_owned())
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(
            of(Metric::Ttft, P95, Op::Less, 100.0),
            sets(&["load"], &["stalled", "busy"])
        );
        assert_eq!(
            of(Metric::Ttft, P95, Op::AtLeast, 100.0),
            sets(&["stalled", "busy"], &["load"]),
            "a floor claims the opposite"
        );
        assert_eq!(
            of(Metric::E2eService, P95, Op::Less, 100.0),
            sets(&["load", "send"], &["stalled", "busy"])
        );
        assert_eq!(
            of(Metric::E2eService, P95, Op::Less, 120.0),
            sets(&["load"], &["stalled", "busy"]),
            "a tenth is enough"
        );
        assert_eq!(
            of(Metric::Itl, P95, Op::Less, 100.0),
            sets(&["load"], &["busy"])
        );
        assert_eq!(
            of(
                Metric::DecodeTps,
                Some(Stat::Quantile(0.05)),
                Op::AtLeast,
                9.0
            ),
            sets(&["load"], &["busy"])
        );
        assert_eq!(
            of(Metric::ErrorRate, None, Op::Less, 0.1),
            sets(&["load"], &["busy"])
        );
        assert_eq!(
            of(Metric::OutputTps, None, Op::AtLeast, 9.0),
            sets(&["busy"], &["busy"]),
            "what was achieved can be achieved"
        );
        assert_eq!(
            of(Metric::ConcurrencyMean, None, Op::Less, 9.0),
            sets(&["stalled", "busy"], &["load", "stalled"])
        );
        assert_eq!(of(Metric::PromptTokens, P95, Op::Less, 9.0), sets(&[], &[]));
        assert_eq!(of(Metric::Startup, None, Op::Less, 9.0), sets(&[], &[]));
        let goodput = of_subject(Subject::Goodput(Vec::new()), Op::AtLeast, 0.99);
        assert_eq!(
            [reasons(&goodput, Pass), reasons(&goodput, Fail)],
            sets(&["load"], &["stalled", "busy"])
        );
        let signal = of_subject(
            Subject::Signal {
                signal: Signal::ServerWaiting,
                stat: Stat::Max,
                role: None,
            },
            Op::Less,
            9.0,
        );
        assert_eq!(
            [reasons(&signal, Pass), reasons(&signal, Fail)],
            sets(&["load", "stalled"], &["stalled", "busy"])
        );
        assert_eq!(
            reasons(&check(Metric::Ttft, Some(Stat::Sd), Op::Less, 9.0), Pass),
            ["load", "stalled"],
            "spread has no order"
        );
        assert_eq!(
            reasons(&check(Metric::Ttft, P95, Op::Less, 9.0), Inconclusive),
            ["load", "stalled", "busy"],
            "more requests would not help"
        );
    }

    #[test]
    fn stalls_do_not_explain_a_failure_that_remains_with_a_margin() {
        use Ruling::{Fail, Inconclusive, Invalid, Pass};
        let of = |check: &Check, measured: Ruling, reading: Ruling| {
            let findings = Findings {
                stalled: Some("stalled".into()),
                ..Findings::default()
            };
            let readings = Readings {
                with_margin: Some(verdict(check.clone(), reading, 1.0)),
                ..Readings::default()
            };
            let measured = verdict(check.clone(), measured, 1.0);
            audit_verdict(measured, readings, &findings).0.ruling
        };
        let ttft = check(Metric::Ttft, P95, Op::Less, 10.0);
        assert_eq!(
            [Fail, Inconclusive, Pass].map(|reading| of(&ttft, Fail, reading)),
            [Fail, Invalid, Invalid]
        );
        // Stalls may be why it is open, and more requests would not help.
        assert_eq!(of(&ttft, Inconclusive, Inconclusive), Invalid);
        let goodput = of_subject(Subject::Goodput(Vec::new()), Op::AtLeast, 0.99);
        assert_eq!(of(&goodput, Fail, Fail), Fail);
        let sd = check(Metric::Ttft, Some(Stat::Sd), Op::Less, 10.0);
        assert_eq!(of(&sd, Fail, Fail), Invalid, "spread has no order");
        let figure = check(Metric::ConcurrencyMean, None, Op::Less, 9.0);
        assert_eq!(of(&figure, Pass, Pass), Invalid, "no range");
    }

    #[test]
    fn idle_users_do_not_explain_a_pass_that_remains_under_load() {
        use Ruling::{Fail, Inconclusive, Invalid, Pass};
        let of = |measured: Ruling, under_load: Option<Ruling>| {
            let findings = Findings {
                idle: Some("idle".into()),
                ..Findings::default()
            };
            let itl = check(Metric::Itl, P95, Op::Less, 10.0);
            let readings = Readings {
                under_load: under_load.map(|ruling| verdict(itl.clone(), ruling, 1.0)),
                ..Readings::default()
            };
            let measured = verdict(itl.clone(), measured, 1.0);
            audit_verdict(measured, readings, &findings).0.ruling
        };
        assert_eq!(
            [Some(Pass), Some(Inconclusive), Some(Fail), None].map(|reading| of(Pass, reading)),
            [Pass, Invalid, Invalid, Invalid]
        );
        assert_eq!(of(Fail, Some(Fail)), Fail, "less load makes nothing slower");
    }

    #[test]
    fn failures_increase_with_the_load_and_other_figures_have_no_bound() {
        let limit = |check: &Check, times_out| {
            under_load(check, 1.5625, times_out).map(|check| (check.limit * 1e6).round() / 1e6)
        };
        let errors = check(Metric::ErrorRate, None, Op::Less, 0.05);
        assert_eq!(limit(&errors, false), Some(0.032));
        assert_eq!(limit(&errors, true), None, "a timeout is a failure");
        let ttft = check(Metric::Ttft, P95, Op::Less, 10.0);
        assert_eq!(limit(&ttft, true), Some(10.0), "its values are longer");
        for metric in [Metric::ConcurrencyMean, Metric::OutputTps] {
            assert_eq!(limit(&check(metric, None, Op::Less, 9.0), false), None);
        }
    }

    #[test]
    fn a_verdict_is_valid_if_both_ends_agree() {
        use Ruling::{Fail, Inconclusive, Invalid, Pass};
        let objective = check(Metric::Itl, P95, Op::Less, 10.0);
        let of = |[measured, slow, fast]: [Ruling; 3]| {
            let ends = [
                verdict(objective.clone(), slow, 14.0),
                verdict(objective.clone(), fast, 7.0),
            ];
            let (verdict, audit) = audit_verdict(
                verdict(objective.clone(), measured, 9.0),
                Readings {
                    ends: Some(ends),
                    ..Readings::default()
                },
                &Findings::default(),
            );
            assert_eq!(
                (audit.measured, audit.slow, audit.fast),
                (measured, Some(slow), Some(fast))
            );
            assert_eq!(audit.observed, [Some(9.0), Some(14.0), Some(7.0)]);
            (verdict.ruling, verdict.note)
        };
        assert_eq!([of([Pass; 3]), of([Fail; 3])], [(Pass, None), (Fail, None)]);
        assert_eq!(of([Inconclusive; 3]), (Inconclusive, None));
        let (ruling, note) = of([Inconclusive, Inconclusive, Pass]);
        let known = "INCONCLUSIVE (9 ms) as measured, PASS (7 ms) without the load generator's \
        stalls, delays and failures";
        assert_eq!((ruling, note.as_deref()), (Invalid, Some(known)));
        let (ruling, note) = of([Pass, Fail, Pass]);
        let known =
            "PASS (9 ms) as measured, FAIL (14 ms) with every stall counted against the server";
        assert_eq!((ruling, note.as_deref()), (Invalid, Some(known)));
        let (ruling, note) = of([Fail, Fail, Inconclusive]);
        let known = "FAIL (9 ms) as measured, INCONCLUSIVE (7 ms) without the load generator's \
        stalls, delays and failures";
        assert_eq!((ruling, note.as_deref()), (Invalid, Some(known)));
    }

    #[test]
    fn an_invalid_verdict_names_reason_and_cause() {
        let findings = Findings {
            cause: Some("host CPU was 100%".into()),
            ..bad()
        };
        let final_verdict = audit_verdict(
            verdict(check(Metric::Ttft, P95, Op::Less, 100.0), Ruling::Pass, 1.0),
            Readings::default(),
            &findings,
        )
        .0;
        assert_eq!(
            (final_verdict.ruling, final_verdict.note.as_deref()),
            (Ruling::Invalid, Some("load; host CPU was 100%"))
        );
        let none = Verdict {
            observed: None,
            ..verdict(check(Metric::Ttft, P95, Op::Less, 1.0), Ruling::Fail, 1.0)
        };
        assert_eq!(
            audit_verdict(none, Readings::default(), &findings).0.ruling,
            Ruling::Invalid,
            "a load that was not there gives no data"
        );
    }
}
