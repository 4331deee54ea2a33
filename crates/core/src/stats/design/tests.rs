use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn a_ratio_weighs_and_an_empty_one_is_zero() {
    let units = [
        Unit {
            amount: 10.0,
            weight: 1.0,
        },
        Unit {
            amount: 20.0,
            weight: 4.0,
        },
    ];
    assert_eq!(ratio(&units), 6.0);
    assert_eq!(
        ratio(&[Unit {
            amount: 1.0,
            weight: 0.0
        }]),
        0.0
    );
}

#[test]
fn the_ratio_of_each_level_becomes_that_of_all() {
    let unit = |place: u32| Unit {
        amount: f64::from(place / 30),
        weight: 1.0,
    };
    let units: Vec<Unit> = (0..100).map(unit).collect();
    let levels: Vec<u32> = (0..100).map(|place| place / 30).collect();
    let moved = without_plan(units.clone(), &levels);
    // Levels of 30 with 0, 1 and 2; the last one has 10 units and stays.
    assert!(
        moved[..90]
            .iter()
            .all(|unit| (unit.amount - 1.0).abs() < 1e-12)
    );
    assert!(moved[90..].iter().all(|unit| unit.amount == 3.0));
    assert!((ratio(&moved) - ratio(&units)).abs() < 1e-12);
    assert_eq!(without_plan(units.clone(), &[7; 100]), units);
    let one_each: Vec<u32> = (0..100).collect();
    assert_eq!(without_plan(units.clone(), &one_each), units);
    // What differs within two levels is × √(9 ÷ 8).
    let halves: Vec<u32> = (0..100).map(|place| place % 2).collect();
    let moved = without_plan(units.clone(), &halves);
    let wider = (moved[0].amount - ratio(&units)) / (units[0].amount - ratio(&units));
    assert!((wider - (9.0f64 / 8.0).sqrt()).abs() < 1e-12);
}

fn drawn(clusters: usize, size: usize, alike: bool) -> Vec<Unit> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
    let mut one = || f64::from(u8::from(rng.random_range(0.0..1.0) < 0.1));
    let mut amount = || {
        if alike {
            one() * size as f64
        } else {
            (0..size).map(|_| one()).sum()
        }
    };
    (0..clusters)
        .map(|_| Unit {
            amount: amount(),
            weight: size as f64,
        })
        .collect()
}

#[test]
fn equal_values_in_a_request_count_as_one() {
    let of = |alike| dependence(&drawn(2000, 20, alike), &[]).times();
    let (alike, free) = (of(true), of(false));
    assert!(
        (17.0..30.0).contains(&alike) && (1.0..2.2).contains(&free),
        "{alike} {free}"
    );
}

/// Flags as requests of one value each.
fn flags(n: usize, flag: impl FnMut(usize) -> bool) -> Vec<bool> {
    (0..n).map(flag).collect()
}

#[test]
fn known_effects_of_known_flags() {
    // Computed again with numpy and scipy; Student's factors are 0.904894 for 20 batches and 0.805149 for 10.
    let block = flag_dependence(&flags(200, |k| k < 20));
    assert!(
        (block.effect(0.95) - 27.600148287193).abs() < 1e-9,
        "{block:?}"
    );
    let bursts = flag_dependence(&flags(1000, |k| k % 200 < 10));
    assert!(
        (bursts.effect(0.95) - 10.821996465449).abs() < 1e-9,
        "{bursts:?}"
    );
    let few = flag_dependence(&flags(100, |k| k / 5 % 10 == 0));
    assert!((few.effect(0.95) - 6.401218661462).abs() < 1e-9, "{few:?}");
    // Evenly spread flags keep nothing but Student's factor.
    let even = flag_dependence(&flags(200, |k| k % 10 == 0));
    assert!(
        (even.effect(0.95) - 1.105101555606).abs() < 1e-9 && !even.long,
        "{even:?}"
    );
    assert_eq!(
        [
            flag_dependence(&[true; 500]),
            flag_dependence(&flags(19, |k| k < 5))
        ],
        [Dependence::NONE; 2]
    );
}

#[test]
fn batches_of_bursts_are_parts_of_the_time() {
    // Ten bursts of 20 requests in a hundredth of every second, of which every other burst breaks the limit.
    let flag = |k: usize| f64::from(u8::from((k / 20).is_multiple_of(2)));
    let unit = |k: usize| Unit {
        amount: flag(k),
        weight: 1.0,
    };
    let units: Vec<Unit> = (0..200).map(unit).collect();
    let times: Vec<f64> = (0..200)
        .map(|k| (k / 20) as f64 + (k % 20) as f64 / 2000.0)
        .collect();
    let even: Vec<f64> = (0..200u32).map(f64::from).collect();
    assert!(has_bursts(&times) && !has_bursts(&even));
    let by_time = batches(&[&[1.0; 200]], &[&times], 20);
    let by_count = batches(&[&[1.0; 200]], &[&even], 20);
    assert_eq!(by_count, [10.0; 20]);
    assert_eq!((by_time.len(), by_time.iter().sum::<f64>()), (20, 200.0));
    assert_eq!(by_time.iter().filter(|sum| **sum == 20.0).count(), 10);
    let effect = |times: &[f64]| dependence_over_time(&units, &[], times).times();
    assert_eq!(effect(&[]), dependence(&units, &[]).times());
}

#[test]
fn gaps_of_a_request_share_its_luck() {
    let units = |n: usize| {
        (0..n)
            .map(|k| Unit {
                amount: if k % 10 == 0 { 40.0 } else { 0.0 },
                weight: 40.0,
            })
            .collect::<Vec<_>>()
    };
    assert!((dependence(&units(100), &[]).effect(0.95) - 49.680266916948).abs() < 1e-9);
    // Five requests are five batches: 5/4 of 40, with 4 degrees of freedom.
    assert!((dependence(&units(5), &[]).effect(0.95) - 96.756455009853).abs() < 1e-9);
}

#[test]
fn neither_batches_nor_lags_cross_rounds() {
    let own = |k: usize| Unit {
        amount: f64::from(u8::from(k % 100 < 5)),
        weight: 1.0,
    };
    let units: Vec<Unit> = (0..200).map(own).collect();
    let rounds: Vec<u32> = (0..200).map(|k| k / 100).collect();
    assert!((dependence(&units, &rounds).effect(0.95) - 6.126941818019).abs() < 1e-9);
}

#[test]
fn independent_values_lose_little() {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(11);
    let mut effects: Vec<f64> = (0..300)
        .map(|_| flag_dependence(&flags(1000, |_| rng.random_range(0.0..1.0) < 0.05)).effect(0.95))
        .collect();
    effects.sort_by(f64::total_cmp);
    assert!(
        effects[150] < 1.35 && effects[285] < 2.4,
        "{} {}",
        effects[150],
        effects[285]
    );
}

#[test]
fn a_long_memory_shows() {
    assert!(
        flag_dependence(&flags(400, |k| k < 100)).long
            && !flag_dependence(&flags(400, |k| k % 20 == 0)).long
    );
}

#[test]
fn what_the_requests_of_a_round_have_in_common_counts_from_five_rounds_on() {
    // Sums of ±5 around the mean in six rounds of ten, alike within: 6/5 · 150 against 60/4.
    let rounds: Vec<u32> = (0..60).map(|index| index / 10).collect();
    let units: Vec<Unit> = rounds
        .iter()
        .map(|round| Unit {
            amount: f64::from(round % 2),
            weight: 1.0,
        })
        .collect();
    assert!((dependence(&units, &rounds).times() - 180.0 / 15.0).abs() < 1e-9);
    // Four rounds are too few.
    assert!(dependence(&units[..40], &rounds[..40]).times() < 12.0);
}

/// A first-order autoregression with this correlation of neighbours, worth n (1 − φ) ÷ (1 + φ).
fn autoregression(n: usize, phi: f64, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut last = 0.0;
    let mut step = || {
        last = phi * last + (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        last
    };
    (0..n + 100).map(|_| step()).skip(100).collect()
}

#[test]
fn known_series_are_worth_what_theory_says() {
    for (phi, n) in [(0.0, 1000), (0.5, 1000), (0.9, 4000), (0.9, 20_000)] {
        let known = n as f64 * (1.0 - phi) / (1.0 + phi);
        let mut seen: Vec<f64> = (0..11)
            .map(|seed| effective(&[autoregression(n, phi, seed)]) / known)
            .collect();
        seen.sort_by(f64::total_cmp);
        assert!(
            (0.85..1.15).contains(&seen[5]),
            "phi {phi}, n {n}: median {} of what is known",
            seen[5]
        );
    }
}

#[test]
fn independent_values_are_hardly_ever_taken_for_half_of_themselves() {
    for (n, series) in [(200, 1u64), (40, 5), (2000, 1)] {
        let draw = |seed| {
            (0..series)
                .map(|own| autoregression(n, 0.0, seed * series + own))
                .collect::<Vec<_>>()
        };
        let low = (0..500)
            .filter(|&seed| effective(&draw(seed)) < n as f64 * series as f64 / 2.0)
            .count();
        assert!(low <= 10, "{low} of 500 at {series} times n = {n}");
    }
}

#[test]
fn a_series_by_hand() {
    // Autocovariances 1.25, 0.78125, 0.3125, −0.03125 at the lags 0 to 3, half of the 8.
    let values = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0];
    let pairs = [1.25 + 0.781_25, 0.3125 - 0.031_25];
    let variance = 10.0 / 7.0;
    // Seven of the eight lags, so the variance is taken twice.
    let known = variance / (2.0 * (2.0 * (pairs[0] + pairs[1]) - 1.25) / 8.0);
    let seen = effective(&[values.to_vec()]);
    assert!((seen - known).abs() < 1e-12, "{seen} {known}");
}

#[test]
fn the_effective_sample_size_is_at_most_n() {
    let turns: Vec<f64> = (0..100).map(|place| f64::from(place % 2)).collect();
    assert_eq!(
        [
            vec![turns],
            vec![vec![3.0; 50]],
            vec![vec![1.0], vec![2.0]],
            vec![]
        ]
        .map(|own| effective(&own)),
        [100.0, 50.0, 2.0, 0.0]
    );
}
