use super::*;
use crate::run::audit::tests::{check, of_subject};
use llmscen_core::metric::Metric;
use llmscen_core::signal::Signal;

const P95: Option<Stat> = Some(Stat::Quantile(0.95));

fn verdict(check: Check, ruling: Ruling, observed: f64) -> Verdict {
    Verdict { check, ruling, observed: Some(observed), bound: None, n: 100, effective_n: None, need: None, note: None }
}

/// Everything is wrong at once.
fn bad() -> Findings {
    Findings {
        not_offered: vec!["load".into()],
        stalled: Some("stalled".into()),
        busy: Some("busy".into()),
        delay_p99: Some(12.0),
        ..Findings::default()
    }
}

fn reasons(check: &Check, ruling: Ruling) -> Vec<String> {
    let own = audited(verdict(check.clone(), ruling, 1.0), None, &bad()).1.reasons;
    own.iter().map(|why| why.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn each_claim_needs_its_own_conditions() {
    use Ruling::{Fail, Inconclusive, Pass};
    let of = |metric, stat, op, limit| {
        let own = check(metric, stat, op, limit);
        [reasons(&own, Pass), reasons(&own, Fail)]
    };
    let sets = |pass: &[&str], fail: &[&str]| [pass, fail].map(|own| own.iter().map(|why| (*why).to_owned()).collect::<Vec<_>>());
    assert_eq!(of(Metric::Ttft, P95, Op::Less, 100.0), sets(&["load"], &["stalled", "busy"]));
    assert_eq!(of(Metric::Ttft, P95, Op::AtLeast, 100.0), sets(&["stalled", "busy"], &["load"]), "a floor claims the opposite");
    assert_eq!(of(Metric::E2eService, P95, Op::Less, 100.0), sets(&["load", "send"], &["stalled", "busy"]));
    assert_eq!(of(Metric::E2eService, P95, Op::Less, 120.0), sets(&["load"], &["stalled", "busy"]), "a tenth is enough");
    assert_eq!(of(Metric::Itl, P95, Op::Less, 100.0), sets(&["load"], &["busy"]));
    assert_eq!(of(Metric::DecodeTps, Some(Stat::Quantile(0.05)), Op::AtLeast, 9.0), sets(&["load"], &["busy"]));
    assert_eq!(of(Metric::ErrorRate, None, Op::Less, 0.1), sets(&["load"], &["busy"]));
    assert_eq!(of(Metric::OutputTps, None, Op::AtLeast, 9.0), sets(&["busy"], &["busy"]), "what was achieved can be achieved");
    assert_eq!(of(Metric::ConcurrencyMean, None, Op::Less, 9.0), sets(&["stalled", "busy"], &["load", "stalled"]));
    assert_eq!(of(Metric::PromptTokens, P95, Op::Less, 9.0), sets(&[], &[]));
    assert_eq!(of(Metric::Startup, None, Op::Less, 9.0), sets(&[], &[]));
    let goodput = of_subject(Subject::Goodput(Vec::new()), Op::AtLeast, 0.99);
    assert_eq!([reasons(&goodput, Pass), reasons(&goodput, Fail)], sets(&["load"], &["stalled", "busy"]));
    let signal = of_subject(Subject::Signal { signal: Signal::ServerWaiting, stat: Stat::Max }, Op::Less, 9.0);
    assert_eq!([reasons(&signal, Pass), reasons(&signal, Fail)], sets(&["load", "stalled"], &["stalled", "busy"]));
    assert_eq!(reasons(&check(Metric::Ttft, Some(Stat::Sd), Op::Less, 9.0), Pass), ["load", "stalled"], "spread has no order");
    assert_eq!(
        reasons(&check(Metric::Ttft, P95, Op::Less, 9.0), Inconclusive),
        ["load", "stalled", "busy"],
        "more requests would not help"
    );
}

#[test]
fn a_verdict_stands_where_both_ends_agree() {
    use Ruling::{Fail, Inconclusive, Invalid, Pass};
    let wanted = check(Metric::Itl, P95, Op::Less, 10.0);
    let of = |[measured, slow, fast]: [Ruling; 3]| {
        let ends = [verdict(wanted.clone(), slow, 14.0), verdict(wanted.clone(), fast, 7.0)];
        let (own, audit) = audited(verdict(wanted.clone(), measured, 9.0), Some(ends), &Findings::default());
        assert_eq!((audit.measured, audit.slow, audit.fast), (measured, Some(slow), Some(fast)));
        assert_eq!(audit.observed, [Some(9.0), Some(14.0), Some(7.0)]);
        (own.ruling, own.note)
    };
    assert_eq!([of([Pass; 3]), of([Fail; 3])], [(Pass, None), (Fail, None)]);
    assert_eq!(of([Inconclusive; 3]), (Inconclusive, None));
    let (ruling, note) = of([Inconclusive, Inconclusive, Pass]);
    let known = "INCONCLUSIVE (9 ms) as measured, PASS (7 ms) without the load generator's stalls, delays and failures";
    assert_eq!((ruling, note.as_deref()), (Invalid, Some(known)));
    let (ruling, note) = of([Pass, Fail, Pass]);
    let known = "PASS (9 ms) as measured, FAIL (14 ms) with every stall counted against the server";
    assert_eq!((ruling, note.as_deref()), (Invalid, Some(known)));
    let (ruling, note) = of([Fail, Fail, Inconclusive]);
    let known = "FAIL (9 ms) as measured, INCONCLUSIVE (7 ms) without the load generator's stalls, delays and failures";
    assert_eq!((ruling, note.as_deref()), (Invalid, Some(known)));
}

#[test]
fn an_invalid_verdict_names_the_reason_and_its_cause() {
    let findings = Findings { cause: Some("host CPU was 100%".into()), ..bad() };
    let own = audited(verdict(check(Metric::Ttft, P95, Op::Less, 100.0), Ruling::Pass, 1.0), None, &findings).0;
    assert_eq!((own.ruling, own.note.as_deref()), (Ruling::Invalid, Some("load; host CPU was 100%")));
    let none = Verdict { observed: None, ..verdict(check(Metric::Ttft, P95, Op::Less, 1.0), Ruling::Fail, 1.0) };
    assert_eq!(audited(none, None, &findings).0.ruling, Ruling::Invalid, "a load that was not there gives no data");
}
