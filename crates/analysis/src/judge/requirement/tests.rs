use super::*;
use crate::judge::fixture::{check, conditions, goodput, ok, sample};
use crate::judge::rule;
use llmscen_core::check::Ruling;

fn quantile(metric: Metric, p: f64, op: Op) -> Check {
    check(metric, Some(Stat::Quantile(p)), op, 5.0)
}

#[test]
fn the_known_sizes() {
    assert_eq!(
        required_samples(&quantile(Metric::Ttft, 0.95, Op::Less)),
        Some(59)
    );
    assert_eq!(
        required_samples(&Check {
            confidence: Confidence::Level(0.99),
            ..quantile(Metric::Ttft, 0.9, Op::Less)
        }),
        Some(44)
    );
    assert_eq!(
        required_samples(&quantile(Metric::DecodeTps, 0.05, Op::AtLeast)),
        Some(59)
    );
    assert_eq!(
        required_samples(&check(Metric::ErrorRate, None, Op::Less, 0.01)),
        Some(299)
    );
    assert_eq!(
        required_samples(&goodput(Vec::new(), Op::AtLeast, 0.99)),
        Some(299)
    );
    assert_eq!(
        required_samples(&check(Metric::OutputTps, None, Op::AtLeast, 5.0)),
        Some(20)
    );
    let mean = check(Metric::Ttft, Some(Stat::Mean), Op::Less, 5.0);
    assert_eq!(
        required_samples(&Check {
            confidence: Confidence::Level(0.99),
            ..mean
        }),
        Some(20)
    );
}

#[test]
fn points_need_no_number() {
    assert_eq!(
        required_samples(&Check {
            confidence: Confidence::Point,
            ..quantile(Metric::Ttft, 0.95, Op::Less)
        }),
        None
    );
    assert_eq!(
        required_samples(&quantile(Metric::Ttft, 0.95, Op::Equal)),
        None
    );
    assert_eq!(
        required_samples(&quantile(Metric::Ttft, 1.0, Op::Less)),
        None
    );
    assert_eq!(
        required_samples(&quantile(Metric::Itl, 0.99, Op::Less)),
        None
    );
    assert_eq!(
        required_samples(&check(Metric::ErrorRate, None, Op::AtMost, 0.0)),
        None
    );
    assert_eq!(
        required_samples(&check(Metric::ConcurrencyMax, None, Op::AtMost, 8.0)),
        None
    );
}

#[test]
fn it_is_the_number_at_which_the_ruling_turns() {
    let ruling = |wanted: &Check, n: usize| {
        rule(
            wanted,
            &sample(vec![ok(Metric::Ttft, 1.0); n]),
            &conditions(true),
        )
        .ruling
    };
    let (p95, mean) = (
        quantile(Metric::Ttft, 0.95, Op::Less),
        check(Metric::Ttft, Some(Stat::Mean), Op::Less, 5.0),
    );
    assert_eq!(
        (ruling(&p95, 58), ruling(&p95, 59)),
        (Ruling::Inconclusive, Ruling::Pass)
    );
    assert_eq!(
        (ruling(&mean, 19), ruling(&mean, 20)),
        (Ruling::Inconclusive, Ruling::Pass)
    );
}
