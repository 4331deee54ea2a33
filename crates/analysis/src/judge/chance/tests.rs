use super::*;
use crate::judge::fixture::{check, failed, goodput, ok, sample};
use llmscen_core::check::{Op, RequestLimit};
use llmscen_core::metric::Metric;

fn of(check: &Check, waits: &[f64]) -> f64 {
    pass_probability(
        std::slice::from_ref(check),
        &sample(waits.iter().map(|wait| ok(Metric::Ttft, *wait)).collect()),
    )
}

#[test]
fn a_quantile_is_as_likely_as_its_counts_say() {
    let p90 = check(Metric::Ttft, Some(Stat::Quantile(0.9)), Op::Less, 5.0);
    assert_eq!(of(&p90, &[1.0; 29]), quantile_bound::chance(29.0, 0.0, 0.1));
    assert!(of(&p90, &[1.0; 29]) > 0.97 && of(&p90, &[9.0; 29]) < 1e-6);
    let floor = check(Metric::Ttft, Some(Stat::Quantile(0.1)), Op::More, 5.0);
    assert!(of(&floor, &[9.0; 29]) > 0.97 && of(&floor, &[1.0; 29]) < 1e-6);
}

#[test]
fn shares_count_their_own_kind_and_the_least_likely_limit_speaks() {
    let errors = check(Metric::ErrorRate, None, Op::Less, 0.1);
    let good = goodput(
        vec![RequestLimit {
            metric: Metric::Ttft,
            op: Op::Less,
            limit: 5.0,
        }],
        Op::AtLeast,
        0.9,
    );
    let rows = |bad: usize| {
        sample(
            (0..60)
                .map(|i| {
                    if i * 7 % 60 < bad {
                        failed()
                    } else {
                        ok(Metric::Ttft, 1.0)
                    }
                })
                .collect(),
        )
    };
    let both = |bad| pass_probability(&[errors.clone(), good.clone()], &rows(bad));
    assert!(
        both(0) > 0.99 && both(30) < 1e-6,
        "{} {}",
        both(0),
        both(30)
    );
    let slow = check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::Less, 0.5);
    assert!(pass_probability(&[errors, slow], &rows(0)) < 1e-6);
}

#[test]
fn means_and_points_are_believed_as_far_as_they_are_ruled_on() {
    let mean = check(Metric::Ttft, Some(Stat::Mean), Op::Less, 5.0);
    let waits: Vec<f64> = (0..50).map(|i| f64::from(i % 5)).collect();
    assert_eq!(
        (of(&mean, &waits), of(&Check { limit: 1.0, ..mean }, &waits)),
        (0.99, 1.0 - 0.99)
    );
    let most = check(Metric::Ttft, Some(Stat::Max), Op::Less, 5.0);
    assert_eq!(
        of(
            &Check {
                confidence: Confidence::Point,
                ..most
            },
            &waits
        ),
        POINT
    );
}

#[test]
fn a_lost_limit_is_given_up_at_a_look_and_a_good_one_is_not() {
    let p90 = check(Metric::Ttft, Some(Stat::Quantile(0.9)), Op::Less, 5.0);
    let lost = |n: usize, wait: f64| {
        let seen = sample(vec![ok(Metric::Ttft, wait); n]);
        is_futile(
            std::slice::from_ref(&p90),
            &seen,
            &mut [AlphaSpending::new(0.001)],
        )
    };
    assert_eq!(
        (lost(15, 9.0), lost(16, 9.0), lost(16, 1.0)),
        (false, true, false)
    );
}
