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
        not_offered: vec![Cause::LoadGenerator.reason("load")],
        stalled: Some(Cause::LoadGenerator.reason("stalled")),
        busy: Some(Cause::LoadGenerator.reason("busy")),
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
        .map(|why| why.text().split(' ').next().unwrap().to_owned())
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
            stalled: Some(Cause::LoadGenerator.reason("stalled")),
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
            idle: Some(Cause::LoadGenerator.reason("idle")),
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
    let known = "PASS (9 ms) as measured, FAIL (14 ms) with every stall counted against the server";
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
