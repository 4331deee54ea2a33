use super::*;
use crate::judge::fixture::{check, conditions, ok, sample};
use crate::judge::rule;
use llmscen_core::check::{Op, Verdict};
use llmscen_core::label::{Labels, STAGE, Scalar};
use llmscen_core::metric::Metric;
use llmscen_core::report::{Audit, DatasetEnd};
use llmscen_core::sample::Counts;
use llmscen_core::search::{Finding, Goal, ProbeReport, Purpose, SearchSpec};
use llmscen_core::units::Nanos;

fn case(rulings: &[Ruling], valid: bool, succeeded: u64) -> CaseReport {
    let wanted = check(Metric::ErrorRate, None, Op::Less, 0.5);
    let verdict = rule(
        &wanted,
        &sample(vec![ok(Metric::Ttft, 1.0)]),
        &conditions(true),
    );
    CaseReport {
        verdicts: rulings
            .iter()
            .map(|&ruling| Verdict {
                ruling,
                ..verdict.clone()
            })
            .collect(),
        audit: Audit {
            valid,
            ..Audit::default()
        },
        counts: Counts {
            scheduled: 5,
            ok: succeeded,
            ..Counts::default()
        },
        ..CaseReport::default()
    }
}

#[test]
fn the_worst_wins() {
    use Ruling::{Fail, Inconclusive, Invalid, Pass};
    let of = |rulings: &[Ruling]| run_verdict(&[case(&[Pass], true, 5), case(rulings, true, 5)]);
    let all = [
        of(&[]),
        of(&[Pass]),
        of(&[Inconclusive, Pass]),
        of(&[Fail, Inconclusive]),
        of(&[Fail, Invalid, Pass]),
    ];
    let known = [
        RunVerdict::Pass,
        RunVerdict::Pass,
        RunVerdict::Inconclusive,
        RunVerdict::Fail,
        RunVerdict::Invalid,
    ];
    assert_eq!(all, known);
}

#[test]
fn a_dataset_that_ends_early_passes_no_gate() {
    let of = |planned, rulings: &[Ruling]| {
        let end = DatasetEnd {
            after: 209,
            planned,
        };
        run_verdict(&[CaseReport {
            dataset_end: Some(end),
            ..case(rulings, true, 5)
        }])
    };
    assert_eq!(of(Some(100_000), &[Ruling::Pass]), RunVerdict::Inconclusive);
    assert_eq!(of(Some(100_000), &[Ruling::Fail]), RunVerdict::Fail);
    assert_eq!(
        [of(None, &[Ruling::Pass]), of(Some(100_000), &[])],
        [RunVerdict::Pass; 2],
        "nothing was asked for, or set"
    );
}

#[test]
fn an_audit_that_failed_decides_where_no_verdict_does() {
    assert_eq!(run_verdict(&[case(&[], false, 5)]), RunVerdict::Invalid);
    assert_eq!(
        run_verdict(&[case(&[Ruling::Pass], false, 5)]),
        RunVerdict::Pass,
        "the verdict is valid"
    );
    let stage = |rulings: &[Ruling]| {
        let labels = Labels::default().with(STAGE, Scalar::Int(1));
        CaseReport {
            labels,
            ..case(rulings, false, 5)
        }
    };
    let elsewhere = |case: CaseReport| CaseReport {
        judged_elsewhere: true,
        ..case
    };
    assert_eq!(
        run_verdict(&[elsewhere(case(&[], false, 5)), stage(&[Ruling::Pass])]),
        RunVerdict::Pass
    );
    assert_eq!(
        run_verdict(&[case(&[Ruling::Pass], false, 5), elsewhere(stage(&[]))]),
        RunVerdict::Pass
    );
    assert_eq!(
        run_verdict(&[case(&[], false, 5), stage(&[])]),
        RunVerdict::Invalid
    );
}

#[test]
fn a_run_without_one_success_could_not_be_carried_out() {
    let lost = case(&[Ruling::Fail], true, 0);
    assert_eq!(
        run_verdict(&[lost.clone(), lost.clone()]),
        RunVerdict::Error
    );
    assert_eq!(run_verdict(&[]), RunVerdict::Error);
    assert_eq!(run_verdict(&[lost, case(&[], true, 1)]), RunVerdict::Fail);
    assert_eq!(
        run_verdict(&[case(&[], true, 0), case(&[], true, 1)]),
        RunVerdict::Error
    );
    let labels = Labels::default().with(STAGE, Scalar::Int(2));
    assert_eq!(
        run_verdict(&[
            case(&[], true, 1),
            CaseReport {
                labels,
                ..case(&[], true, 0)
            }
        ]),
        RunVerdict::Pass
    );
    let never_reached = CaseReport {
        counts: Counts::default(),
        ..case(&[], false, 0)
    };
    assert_eq!(
        run_verdict(&[case(&[], true, 1), never_reached]),
        RunVerdict::Invalid
    );
}

/// A search that converged without confirmation at 10, with the rulings on a cost at these loads.
fn search_with_costs(costs: &[(f64, Ruling)]) -> SearchReport {
    let wanted = check(Metric::CostPerThousandRequests, None, Op::Less, 2.0);
    let verdict = rule(
        &wanted,
        &sample(vec![ok(Metric::Ttft, 1.0)]),
        &conditions(true),
    );
    let probe = |(load, ruling): &(f64, Ruling)| ProbeReport {
        case: format!("concurrency={load}"),
        round: 0,
        load: *load,
        purpose: Purpose::Bracket,
        pass_probability: Some(0.5),
        requests: 100,
        futile: false,
        verdicts: vec![Verdict {
            ruling: *ruling,
            ..verdict.clone()
        }],
        per_user_tps: None,
        total_tps: None,
        goodput: None,
        dominated: false,
    };
    SearchReport {
        spec: SearchSpec {
            vary: "load.concurrency".to_owned(),
            low: 1.0,
            high: 64.0,
            start: 8.0,
            integer: true,
            precision: 0.05,
            confirm: 0,
            goal: Goal::Slo,
            drain: Nanos::ZERO,
        },
        labels: Labels::default(),
        finding: Finding {
            answer: Some(10.0),
            above: None,
            interval: (Some(10.0), 11.0),
            mass: Some(0.9),
            extent: Extent::Within,
            converged: true,
            confirmed: 0,
            non_monotone: None,
        },
        probes: costs.iter().map(probe).collect(),
        candidacy: None,
    }
}

#[test]
fn a_cost_is_judged_at_the_result_by_its_longest_complete_probe() {
    use Ruling::{Fail, Inconclusive, Invalid, Pass};
    let of = |search| search_verdict(&[search], &[case(&[], true, 5)]);
    let at_result = |ruling| {
        of(search_with_costs(&[
            (8.0, Fail),
            (10.0, ruling),
            (16.0, Pass),
        ]))
    };
    assert_eq!(
        [Pass, Fail, Inconclusive, Invalid].map(at_result),
        [
            RunVerdict::Pass,
            RunVerdict::Fail,
            RunVerdict::Inconclusive,
            RunVerdict::Invalid
        ]
    );
    let mut twice = search_with_costs(&[(10.0, Fail), (10.0, Pass)]);
    twice.probes[1].requests = 400;
    assert_eq!(of(twice.clone()), RunVerdict::Pass);
    twice.probes[1].futile = true;
    assert_eq!(of(twice), RunVerdict::Fail);
}

#[test]
fn every_verdict_has_its_code() {
    use RunVerdict::{Error, Fail, Inconclusive, Invalid, Pass};
    assert_eq!(
        [Pass, Fail, Error, Invalid, Inconclusive].map(|verdict| exit_code(verdict, false)),
        [0, 1, 3, 4, 5]
    );
    assert_eq!(
        [Pass, Fail, Error].map(|verdict| exit_code(verdict, true)),
        [130; 3]
    );
}
