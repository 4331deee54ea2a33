use super::*;
use crate::stats::comparison::Group;
use crate::stats::distributions::{probability, score};
use crate::stats::share::{lower, upper};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

fn of(value: f64, low: f64, high: f64) -> Interval {
    Interval { value, low, high }
}

fn compare_with_multiple(a: Interval, b: Interval, factor: f64, share: bool) -> Compared {
    super::compare_with_multiple(a, b, factor, share, Relation::Independent)
}

#[test]
fn uncertainties_of_one_measurement_add_up_and_both_decrease_with_its_length() {
    let a = of(100.0, 80.0, 125.0);
    let b = of(200.0, 160.0, 250.0);
    let seen = super::compare_with_multiple(a, b, 0.6, false, Relation::Unknown);
    assert!(
        (seen.interval.high - 100.0 * 1.25 * 1.25).abs() < 1e-9,
        "{seen:?}"
    );
    assert!(
        (seen.interval.low - 100.0 / 1.25 / 1.25).abs() < 1e-9,
        "{seen:?}"
    );
    // (2 ln 1.25 / ln 1.2)² = 5.99
    assert_eq!(
        (seen.needed(100), seen.is_undecidable()),
        (Some(600), false)
    );
    let shares = super::compare_with_multiple(
        of(0.10, 0.08, 0.13),
        of(0.20, 0.15, 0.26),
        1.0,
        true,
        Relation::Unknown,
    );
    assert!((shares.interval.high - (0.10 + 0.03 + 0.05)).abs() < 1e-12);
}

fn sample(rng: &mut ChaCha8Rng, n: usize, scale: f64) -> Vec<f64> {
    let mut values: Vec<f64> = (0..n)
        .map(|_| scale * (0.5 - (1.0 - rng.random::<f64>()).ln()))
        .collect();
    crate::stats::quantile::sort(&mut values);
    values
}

#[test]
fn bounds_of_a_quantile_are_order_statistics() {
    let values: Vec<f64> = (1..=100).map(f64::from).collect();
    // P[Binomial(100, 0.5) <= 41] = 0.044, <= 42 = 0.067.
    assert_eq!(quantile(&values, 0.5, 0.95), Some(of(50.0, 42.0, 59.0)));
    assert_eq!(quantile(&values, 0.99, 0.95), None, "299 are needed");
    let many: Vec<f64> = (1..=299).map(f64::from).collect();
    assert_eq!(
        quantile(&many, 0.99, 0.95).map(|bound| bound.high),
        Some(299.0)
    );
    assert_eq!(quantile(&[], 0.5, 0.95), None);
}

#[test]
fn a_ratio_with_an_exact_side_keeps_the_other_sides_bounds() {
    let seen = ratio(of(10.0, 8.0, 15.0), Interval::exact(5.0)).unwrap();
    assert!(
        (seen.value - 2.0).abs() < 1e-12
            && (seen.low - 1.6).abs() < 1e-12
            && (seen.high - 3.0).abs() < 1e-12
    );
    let turned = ratio(Interval::exact(5.0), of(10.0, 8.0, 15.0)).unwrap();
    assert!((turned.low - 1.0 / 3.0).abs() < 1e-12 && (turned.high - 0.625).abs() < 1e-12);
    assert_eq!(ratio(of(1.0, 0.0, 2.0), Interval::exact(1.0)), None);
}

const NORMAL: Scale = Scale {
    level: 0.95,
    freedom: [f64::INFINITY; 2],
};

#[test]
fn p_is_that_of_the_normal_law_for_symmetric_arms() {
    let z = score(0.95);
    let a = of(2.0, 2.0 * (-z * 0.1f64).exp(), 2.0 * (z * 0.1f64).exp());
    let (_, p) = change(a, Interval::exact(2.0 * (0.196f64).exp()), NORMAL).unwrap();
    assert!((p - 2.0 * probability(-1.96)).abs() < 1e-9, "{p}");
    let exact = |b| change(Interval::exact(1.0), Interval::exact(b), NORMAL).map(|seen| seen.1);
    assert_eq!((exact(1.0), exact(2.0)), (Some(1.0), Some(0.0)));
}

#[test]
fn few_degrees_of_freedom_have_the_tails_of_student() {
    // Arms of t(0.975; 4) = 2.776445 standard errors of 0.1; the difference is 0.4 = 2.828427 of √2 · 0.1, at 8
    // degrees.
    let own = |value: f64| {
        of(
            value,
            value * (-0.2776445f64).exp(),
            value * 0.2776445f64.exp(),
        )
    };
    let scale = Scale {
        level: 0.975,
        freedom: [4.0; 2],
    };
    let (seen, p) = change(own(0.4f64.exp()), own(1.0), scale).unwrap();
    // R: 2 * pt(-2.828427, 8) = 0.02219; qt(0.975, 8) = 2.306004.
    assert!((p - 0.02219).abs() < 2e-5, "{p}");
    assert!(
        (seen.low.ln() - (0.4 - 2.306004 * 0.02f64.sqrt())).abs() < 1e-5,
        "{seen:?}"
    );
}

#[test]
fn a_change_to_zero_is_tested_by_the_difference() {
    let none = of(0.0, 0.0, 0.0);
    assert_eq!(change(none, of(100.0, 95.0, 105.0), NORMAL), None);
    // 100 is twenty arms of 1.645 standard errors away.
    assert!(difference_p_value(none, of(100.0, 95.0, 105.0), NORMAL) < 1e-100);
    let near = difference_p_value(none, of(100.0, 100.0 - score(0.95) * 50.0, 200.0), NORMAL);
    assert!((near - 2.0 * probability(-2.0)).abs() < 1e-9, "{near}");
}

#[test]
fn rounds_without_a_difference_raise_no_more_alarms_than_many_tests_allow() {
    // Five rounds a side, 40,000 pairs: at .05, and at what Holm leaves of it for the first of 13 and of 104 tests.
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut side = || {
        let values: Vec<f64> = (0..5)
            .map(|_| 100.0 + Distribution::<f64>::sample(&StandardNormal, &mut rng))
            .collect();
        let group = Group::from_values(&values).unwrap();
        let arm = (group.ends(0.975).unwrap().1 - group.mean) / group.mean;
        of(
            group.mean,
            group.mean * (-arm).exp(),
            group.mean * arm.exp(),
        )
    };
    let scale = Scale {
        level: 0.975,
        freedom: [4.0; 2],
    };
    let p: Vec<f64> = (0..40_000)
        .map(|_| change(side(), side(), scale).unwrap().1)
        .collect();
    let alarms =
        [0.05, 0.05 / 13.0, 0.05 / 104.0].map(|alpha| p.iter().filter(|own| **own < alpha).count());
    // Nominally 2000, 154 and 19.
    assert!(
        alarms[0] <= 2100 && alarms[1] <= 185 && alarms[2] <= 30,
        "{alarms:?}"
    );
}

#[test]
fn the_bounds_of_a_ratio_hold_as_often_as_they_say() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut over, mut under) = (0, 0);
    for _ in 0..500 {
        let (a, b) = (sample(&mut rng, 400, 1.3), sample(&mut rng, 200, 1.0));
        let bounds = ratio(
            quantile(&a, 0.9, 0.95).unwrap(),
            quantile(&b, 0.9, 0.95).unwrap(),
        )
        .unwrap();
        over += u32::from(bounds.low > 1.3);
        under += u32::from(bounds.high < 1.3);
    }
    // Nominally 25 each; the order statistics are somewhat on the safe side.
    assert!(
        (3..=40).contains(&over) && (3..=40).contains(&under),
        "{over} {under}"
    );
}

#[test]
fn widening_moves_the_bounds_and_not_the_estimate() {
    let seen = of(10.0, 8.0, 11.0).widened(2.0);
    assert!(
        seen.value == 10.0 && (seen.low - 6.4).abs() < 1e-12 && (seen.high - 12.1).abs() < 1e-12,
        "{seen:?}"
    );
    assert!(
        of(10.0, 2.0, 30.0).widened(4.0).low > 0.0,
        "a ratio can still be taken"
    );
    assert_eq!(of(0.0, -2.0, 1.0).widened(2.0), of(0.0, -4.0, 2.0));
}

fn between(value: f64, low: f64, high: f64) -> Interval {
    Interval { value, low, high }
}

fn share(hits: u64, n: u64) -> Interval {
    between(
        hits as f64 / n as f64,
        lower(hits as f64, n as f64, 0.95),
        upper(hits as f64, n as f64, 0.95),
    )
}

#[test]
fn positive_figures_are_compared_by_their_ratio() {
    let seen = compare_with_multiple(
        between(110.0, 100.0, 121.0),
        Interval::exact(100.0),
        1.1,
        false,
    );
    assert!(
        (seen.interval.low - 100.0).abs() < 1e-9
            && (seen.interval.high - 121.0).abs() < 1e-9
            && seen.limit == 110.00000000000001
    );
    let both = compare_with_multiple(
        between(100.0, 90.0, 110.0),
        between(100.0, 90.0, 110.0),
        1.5,
        false,
    );
    // ln(1.1) and ln(100/90), square and add.
    let up = (1.1f64.ln().hypot((100.0f64 / 90.0).ln())).exp() * 100.0;
    assert!((both.interval.high - up).abs() < 1e-9, "{both:?}");
}

#[test]
fn zeros_have_a_difference_where_they_have_no_ratio() {
    let none = compare_with_multiple(share(0, 1000), share(0, 1000), 1.1, true);
    assert!(
        none.limit == 0.0 && none.interval.high > 0.0 && none.interval.low <= 0.0,
        "no errors in both prove no ratio"
    );
    let perfect = compare_with_multiple(share(640, 640), share(640, 640), 0.98, true);
    assert!(perfect.interval.low > perfect.limit, "{perfect:?}");
    let broken = compare_with_multiple(share(60, 640), share(0, 640), 1.1, true);
    assert!(broken.interval.low > broken.limit);
}

#[test]
fn missing_bounds_decide_nothing_on_their_side() {
    let few = compare_with_multiple(
        between(5.0, 0.0, f64::INFINITY),
        between(100.0, 0.0, f64::INFINITY),
        1.1,
        false,
    );
    assert_eq!(
        (few.interval.low, few.interval.high),
        (f64::NEG_INFINITY, f64::INFINITY)
    );
    let lost = compare_with_multiple(
        between(f64::INFINITY, f64::INFINITY, f64::INFINITY),
        Interval::exact(5.0),
        1.1,
        false,
    );
    assert!(lost.interval.low > lost.limit);
    let open = compare_with_multiple(
        between(f64::INFINITY, 4.0, f64::INFINITY),
        Interval::exact(5.0),
        1.1,
        false,
    );
    assert!(open.interval.low < open.limit);
}

#[test]
fn a_value_among_the_failed_is_held_against_what_is_known_of_the_other_side() {
    let lost = |low| between(f64::INFINITY, low, f64::INFINITY);
    let low = |b| {
        compare_with_multiple(lost(120.0), b, 1.1, false)
            .interval
            .low
    };
    assert_eq!(low(Interval::exact(100.0)), 120.0, "above 110");
    assert_eq!(
        (
            low(between(100.0, 80.0, 125.0)),
            low(between(100.0, 80.0, f64::INFINITY))
        ),
        (96.0, 0.0),
        "the base may be 125, or more"
    );
    assert_eq!(
        compare_with_multiple(
            lost(f64::INFINITY),
            between(100.0, 0.0, f64::INFINITY),
            1.1,
            false
        )
        .interval
        .low,
        0.0
    );
    let floor = |b| {
        compare_with_multiple(
            between(f64::NEG_INFINITY, f64::NEG_INFINITY, 80.0),
            b,
            0.9,
            false,
        )
        .interval
        .high
    };
    assert_eq!(
        (
            floor(between(100.0, 80.0, 125.0)),
            floor(between(100.0, 0.0, 125.0))
        ),
        (100.0, f64::INFINITY)
    );
}

#[test]
fn more_samples_reduce_only_the_uncertainty_of_a() {
    // Exact base: the own arm of 20 % must come under ln(1.1): (ln 1.2 / ln 1.1)² = 3.66 times the samples.
    let alone = compare_with_multiple(
        between(100.0, 80.0, 120.0),
        Interval::exact(100.0),
        1.1,
        false,
    );
    assert_eq!(
        (alone.needed(100), alone.is_undecidable()),
        (Some(366), false)
    );
    let vague = compare_with_multiple(
        between(100.0, 80.0, 120.0),
        between(100.0, 80.0, 120.0),
        1.1,
        false,
    );
    assert_eq!((vague.needed(100), vague.is_undecidable()), (None, true));
}

#[test]
fn an_equal_pair_is_called_worse_no_more_often_than_allowed() {
    // Shares of 3 % against shares of 3 %: `<= 1 * baseline` is exactly at the truth, the worst case for both
    // errors.
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut draw = |n: u64| {
        share(
            (0..n).filter(|_| rng.random::<f64>() < 0.03).count() as u64,
            n,
        )
    };
    let (mut over, mut under) = (0, 0);
    for _ in 0..400 {
        let seen = compare_with_multiple(draw(500), draw(400), 1.0, true);
        over += u32::from(seen.interval.low > seen.limit);
        under += u32::from(seen.interval.high < seen.limit);
    }
    // Nominally 20 each of 400; exact bounds are on the safe side.
    assert!(
        (1..=30).contains(&over) && (1..=30).contains(&under),
        "{over} {under}"
    );
}

#[test]
fn a_quantile_has_the_ends_that_its_values_reach() {
    let values: Vec<f64> = (1..=100).map(f64::from).collect();
    assert_eq!(
        quantile_ends(&values, 0.5, 0.95, 1.0),
        (Some(42.0), Some(59.0))
    );
    assert_eq!(
        quantile_ends(&values, 0.99, 0.95, 1.0).1,
        None,
        "299 are needed"
    );
    assert!(
        quantile_ends(&values, 0.99, 0.95, 1.0)
            .0
            .is_some_and(|low| low > 90.0)
    );
    // P[Binomial(20, 0.5) <= 5] = 0.021, <= 5.8 = 0.048, <= 6 = 0.058: 29 values at either end.
    assert_eq!(
        quantile_ends(&values, 0.5, 0.95, 5.0),
        (Some(30.0), Some(71.0))
    );
    assert_eq!(quantile_ends(&values, 0.5, 0.95, 25.0), (None, None));
}
