use super::*;
use crate::judge::fixture::{check, conditions, ok, sample};
use crate::judge::{figure, rule};
use llmscen_core::check::relative::ReferenceKind;
use llmscen_core::check::{Op, Ruling, Verdict};
use llmscen_core::metric::Metric;

const COST: Metric = Metric::CostPerMillionOutputTokens;

/// A throughput of about 40 tokens per second, in requests of 10 tokens each quarter of a second, at 0.001 per second.
fn priced() -> Sample {
    let mut sample = sample((0..200).map(|_| ok(Metric::Ttft, 1.0)).collect());
    sample
        .scalars
        .extend([(Metric::BilledTps, 40.0), (COST, 25.0)]);
    sample
}

fn limit(op: Op, limit: f64) -> Check {
    check(COST, None, op, limit)
}

#[test]
fn a_ceiling_of_a_cost_is_a_floor_of_its_throughput() {
    let sample = priced();
    let inverted = CostLimit::of(&limit(Op::AtMost, 50.0), &sample).unwrap();
    let expected = check(Metric::BilledTps, None, Op::AtLeast, 20.0);
    assert_eq!(
        (
            inverted.check.op,
            inverted.check.limit,
            &inverted.check.subject
        ),
        (expected.op, expected.limit, &expected.subject)
    );
    let throughput = Assessment {
        bound: Some(32.0),
        ..Assessment::point(true, 40.0, 200)
    };
    let cost = inverted.to_cost(throughput);
    assert_eq!(
        (cost.observed, cost.bound, cost.ruling),
        (Some(25.0), Some(31.25), Ruling::Pass)
    );
    let figure = inverted.to_cost_figure(Figure {
        value: 40.0,
        low: vec![Some(32.0)],
        high: vec![Some(50.0)],
        ..Figure::default()
    });
    assert_eq!(
        (figure.value, figure.low, figure.high),
        (25.0, vec![Some(20.0)], vec![Some(31.25)])
    );
}

#[test]
fn a_relative_limit_is_inverted_with_its_reference() {
    let known = ReferenceValue {
        value: 20.0,
        low: Some(16.0),
        high: Some(25.0),
        n: None,
        spread: None,
    };
    let check = Check {
        relative: Some(Relative::new(ReferenceKind::Baseline, 1.25, Some(known))),
        ..limit(Op::AtMost, 25.0)
    };
    let inverted = CostLimit::of(&check, &priced()).unwrap().check;
    let relative = inverted.relative.unwrap();
    let known = relative.known.unwrap();
    assert_eq!(
        (
            inverted.op,
            relative.factor,
            known.value,
            known.low,
            known.high
        ),
        (Op::AtLeast, 0.8, 50.0, Some(40.0), Some(62.5))
    );
}

#[test]
fn without_a_price_there_is_no_cost() {
    let mut sample = priced();
    sample.scalars.remove(&COST);
    assert!(CostLimit::of(&limit(Op::AtMost, 50.0), &sample).is_none());
    assert!(figure(&limit(Op::AtMost, 50.0), &sample, &[]).is_none());
    let Verdict { ruling, note, .. } = rule(&limit(Op::AtMost, 50.0), &sample, &conditions(true));
    assert_eq!((ruling, note.as_deref()), (Ruling::Fail, Some("no data")));
}
