use super::*;
use crate::check::relative::{ReferenceKind, Relative};

#[test]
fn a_level_takes_the_bounds_of_the_next_higher_one() {
    let baseline = Baseline {
        confidences: LEVELS.to_vec(),
        ..Baseline::default()
    };
    assert_eq!(
        [0.6, 0.9, 0.92, 0.95, 0.99, 0.995].map(|level| baseline.level(level)),
        { [Some(0), Some(0), Some(1), Some(1), Some(2), None] }
    );
    let figure = Figure {
        value: 5.0,
        n: 9,
        low: vec![Some(4.0), None],
        high: vec![Some(6.0), Some(7.0)],
        runs: Vec::new(),
    };
    assert_eq!(
        figure.reference_value(Some(1)),
        ReferenceValue {
            value: 5.0,
            low: None,
            high: Some(7.0),
            n: Some(9),
            spread: None
        }
    );
    assert_eq!(
        figure.reference_value(None),
        ReferenceValue {
            value: 5.0,
            low: None,
            high: None,
            n: Some(9),
            spread: None
        }
    );
}

#[test]
fn what_nobody_can_have_measured_is_found() {
    let flaw = |levels: &[f64], value: f64, low: f64, twice: bool| {
        let figure = Figure {
            value,
            n: 9,
            low: vec![Some(low)],
            high: vec![None],
            runs: vec![Some(value)],
        };
        let case = BaselineCase {
            id: "a".into(),
            labels: BTreeMap::new(),
            rounds: 1,
            scheduled: 9,
            ok: 9,
            answers: None,
            metrics: vec![("ttft.p50".into(), figure)],
        };
        let text = serde_json::json!({
            "schema": SINGLE_SCHEMA, "name": "", "run_id": "", "started_at": "", "tool_version": "", "plan_id": "",
            "seed": 0, "machine": "", "plan": {}, "confidences": levels, "cases": [],
        });
        let baseline: Baseline = serde_json::from_value(text).unwrap();
        let cases = if twice {
            vec![case.clone(), case]
        } else {
            vec![case]
        };
        Baseline { cases, ..baseline }
            .find_inconsistency()
            .unwrap_or_default()
    };
    assert_eq!(flaw(&[0.95], 5.0, 4.0, false), "");
    assert_eq!(
        flaw(&[0.95], 5.0, 6.0, false),
        "`ttft.p50` of `a` does not lie between its bounds"
    );
    assert_eq!(
        flaw(&[0.95], -5.0, -6.0, false),
        "`ttft.p50` of `a` is no measured value"
    );
    assert_eq!(
        flaw(&[0.9, 0.95], 5.0, 4.0, false),
        "`ttft.p50` of `a` has not one bound for each of `confidences`"
    );
    assert_eq!(
        flaw(&[0.95, 0.9], 5.0, 4.0, false),
        "its `confidences` are not levels in ascending order"
    );
    assert_eq!(flaw(&[0.95], 5.0, 4.0, true), "it has the case `a` twice");
}

#[test]
fn a_multiple_has_no_dust() {
    let known = Some(ReferenceValue {
        value: 512.0,
        low: None,
        high: None,
        n: None,
        spread: None,
    });
    assert_eq!(
        Relative::new(ReferenceKind::Baseline, 1.1, known).limit(),
        563.2
    );
    assert!(
        Relative::new(ReferenceKind::Baseline, 1.1, None)
            .limit()
            .is_nan()
    );
}

/// A baseline of one run that started at hour `number`.
fn run(number: u32, figures: &[(&str, f64)]) -> Baseline {
    let figure = |value: f64| Figure {
        value,
        n: u64::from(number),
        runs: vec![Some(value)],
        ..Figure::default()
    };
    let metrics = figures
        .iter()
        .map(|(name, value)| ((*name).to_owned(), figure(*value)))
        .collect();
    let labels = BTreeMap::new();
    let case = BaselineCase {
        id: "base".into(),
        labels,
        rounds: 1,
        scheduled: 9,
        ok: 9,
        answers: None,
        metrics,
    };
    let started_at = format!("2026-01-02T{number:02}:00:00Z");
    let own = BaselineRun {
        run_id: format!("r{number}"),
        started_at,
        ..BaselineRun::default()
    };
    Baseline {
        runs: vec![own],
        cases: vec![case],
        ..Baseline::default()
    }
}

fn ids(baseline: &Baseline) -> Vec<&str> {
    baseline
        .runs
        .iter()
        .map(|run| run.run_id.as_str())
        .collect()
}

#[test]
fn runs_are_added_in_their_order_and_each_once() {
    let two = run(1, &[("ttft.p95", 10.0)]).with(run(3, &[("ttft.p95", 12.0)]));
    let three = two.with(run(2, &[("ttft.p95", 11.0)]));
    let figure = three.cases[0].figure("ttft.p95").unwrap();
    assert_eq!(
        (ids(&three), &figure.runs),
        (
            vec!["r1", "r2", "r3"],
            &vec![Some(10.0), Some(11.0), Some(12.0)]
        )
    );
    assert_eq!(
        (figure.value, figure.n),
        (12.0, 3),
        "the bounds are those of the newest run, not of the one that came last"
    );
    assert_eq!(
        three.with(run(2, &[("ttft.p95", 11.0)])),
        three,
        "the same run again changes nothing"
    );
    assert_eq!(three.newest().map(|own| own.run_id.as_str()), Some("r3"));
}

#[test]
fn the_newest_twenty_stay_and_a_figure_may_be_missing() {
    let all = (1..=23).fold(run(0, &[("a", 1.0), ("b", 1.0)]), |all, number| {
        all.with(run(number, &[("a", f64::from(number))]))
    });
    assert_eq!((all.runs.len(), ids(&all)[0]), (MAX_RUNS, "r4"));
    assert_eq!(all.cases[0].metrics.len(), 1, "no run that is left has `b`");
    let gap = run(1, &[("a", 1.0), ("b", 5.0)])
        .with(run(2, &[("a", 2.0)]))
        .with(run(3, &[("a", 3.0), ("b", 7.0)]));
    let figure = gap.cases[0].figure("b").unwrap();
    assert_eq!(
        (&figure.runs, figure.value),
        (&vec![Some(5.0), None, Some(7.0)], 7.0)
    );
}

#[test]
fn plans_are_compared_path_by_path() {
    let plan = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
            .collect()
    };
    let own = Baseline {
        plan: plan(&[("load.requests", "1"), ("seed", "42")]),
        ..Baseline::default()
    };
    assert_eq!(
        own.describe_plan_differences(&plan(&[("load.requests", "1"), ("seed", "7")])),
        None,
        "another seed is the same plan"
    );
    assert_eq!(
        own.describe_plan_differences(&plan(&[("load.requests", "2")]))
            .as_deref(),
        Some("`load.requests` was 1, is 2")
    );
    assert_eq!(
        own.describe_plan_differences(&plan(&[])).as_deref(),
        Some("`load.requests` was 1, is nothing")
    );
}
