use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// After how many of `most` requests each of `runs` with this true share was refuted.
fn stops(share: f64, allowed: f64, least: u64, (runs, most): (u64, u64)) -> Vec<u64> {
    let run = |seed| {
        let (mut rng, mut test) = (
            ChaCha8Rng::seed_from_u64(seed),
            Sequential::new(allowed, 0.01, least),
        );
        (1..=most).find(|_| test.observe(rng.random::<f64>() < share))
    };
    (0..runs).filter_map(run).collect()
}

#[test]
fn the_evidence_is_the_mixture_of_likelihood_ratios() {
    // By the midpoint rule over the cut prior, for b = 19 and for b = 1.
    for (allowed, flags) in [
        (0.05, [true, false, false, true]),
        (0.5, [true, true, true, false]),
    ] {
        let mut test = Sequential::new(allowed, 0.01, 1);
        let b = f64::max((1.0 - allowed) / allowed, 1.0);
        let (steps, mut mass, mut mixed) = (200_000, 0.0, 0.0);
        for step in 0..steps {
            let q: f64 = allowed + (1.0 - allowed) * (f64::from(step) + 0.5) / f64::from(steps);
            let (density, odds) = (
                (1.0 - q).powf(b - 1.0),
                [(1.0 - q) / (1.0 - allowed), q / allowed],
            );
            mass += density;
            mixed += density
                * flags
                    .iter()
                    .map(|&flag| odds[usize::from(flag)])
                    .product::<f64>();
        }
        flags.iter().for_each(|&flag| _ = test.observe(flag));
        assert!(
            (test.evidence() - (mixed / mass).ln()).abs() < 1e-6,
            "{} {}",
            test.evidence(),
            (mixed / mass).ln()
        );
    }
    assert!(Sequential::new(0.05, 0.01, 1).evidence().abs() < 1e-12);
}

#[test]
fn at_the_limit_of_the_claim_at_most_one_percent_is_refuted() {
    // The true share is exactly what may break the limit, and every request is looked at from the first one on.
    for (allowed, most) in [(0.01, 1000), (0.05, 500), (0.5, 100)] {
        let false_aborts = stops(allowed, allowed, 1, (10_000, most)).len();
        assert!(false_aborts <= 100, "{false_aborts} of 10000 at {allowed}");
    }
}

#[test]
fn a_clear_failure_is_detected_early() {
    // Median and slowest of 400 stops, of a plan of 5000 requests, where 5 % may exceed the limit and these
    // shares do.
    let seen = [0.10, 0.20, 0.50, 1.0].map(|share| {
        let mut stops = stops(share, 0.05, 30, (400, 5000));
        stops.sort_unstable();
        assert_eq!(stops.len(), 400, "every lost run is given up");
        (stops[200], stops[399])
    });
    assert_eq!(seen, [(336, 1264), (111, 296), (30, 56), (30, 30)]);
}

#[test]
fn correlated_requests_are_not_refuted_more_often() {
    // Ten neighbours alike: the evidence alone ends two runs of five at the edge of the claim.
    let (mut alone, mut ended) = (0, 0);
    for seed in 0..300 {
        let (mut rng, mut test) = (
            ChaCha8Rng::seed_from_u64(seed),
            Sequential::new(0.1, 0.01, 200),
        );
        let (mut by_evidence, mut last) = (false, false);
        let mut step = |place: u32| {
            last = if place.is_multiple_of(10) {
                rng.random::<f64>() < 0.1
            } else {
                last
            };
            let ends = test.observe(last);
            by_evidence |= test.counts().0 >= 200 && test.evidence() >= 100f64.ln();
            ends
        };
        let by_both = (0..1000).filter(|place| step(*place)).count() > 0;
        (alone, ended) = (alone + u32::from(by_evidence), ended + u32::from(by_both));
    }
    assert!(
        alone > 60 && ended <= 9,
        "{alone} by the evidence alone, {ended} of 300"
    );
}

/// A closed loop of `SHARDS` shards with two users each, whose requests fail at once or take about a second:
/// after how many heartbeats of two seconds, at most `most`, is the claim refuted? `luck`: the probability to
/// fail at a time, for all shards.
fn stop_of_shards(
    seed: u64,
    most: u64,
    mut luck: impl FnMut(u64, &mut ChaCha8Rng) -> f64,
) -> Option<u64> {
    const SHARDS: usize = 16;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut test = Sequential::new(0.05, 0.01, 30);
    let mut users = vec![0.0; SHARDS * 2];
    let mut done = [(0.0, false); SHARDS * 2];
    (1..=most).find(|beat| {
        let theta = luck(*beat, &mut rng);
        let (mut samples, mut breaking) = (0, 0);
        for (at, pending) in users.iter_mut().zip(&mut done) {
            // Each shard sends its heartbeat at its own moment.
            let now = 2.0 * *beat as f64 + rng.random::<f64>() * 0.2;
            loop {
                if pending.0 <= *at {
                    let fails = rng.random::<f64>() < theta;
                    let took = if fails {
                        0.01
                    } else {
                        0.5 + rng.random::<f64>()
                    };
                    *pending = (*at + took, fails);
                }
                if pending.0 > now {
                    break;
                }
                samples += 1;
                breaking += u64::from(pending.1);
                *at = pending.0;
            }
        }
        test.observe_batch(samples, breaking, users.len() as u64)
    })
}

#[test]
fn sums_of_shards_refute_a_true_claim_no_more_often_than_allowed() {
    let steady = |seed: &u64| stop_of_shards(*seed, 30, |_, _| 0.05).is_some();
    let false_aborts = (0..500).filter(steady).count();
    assert!(false_aborts <= 5, "{false_aborts} of 500");
    // All shards meet the same good and bad spells of the server, three heartbeats long. Failures are fast, so
    // that a bad spell has more requests than a good one: 5 % of all requests fail.
    let spells = |seed: &u64| {
        let mut theta = 0.0;
        let stop = stop_of_shards(*seed, 60, |beat, rng| {
            if beat % 3 == 1 {
                theta = if rng.random::<f64>() < 0.21 { 0.2 } else { 0.0 };
            }
            theta
        });
        stop.is_some()
    };
    let false_aborts = (0..200).filter(spells).count();
    assert!(false_aborts <= 6, "{false_aborts} of 200 with spells");
}

#[test]
fn sums_of_shards_refute_a_false_claim_within_a_few_heartbeats() {
    let mut stops: Vec<u64> = (0..200)
        .filter_map(|seed| stop_of_shards(seed, 60, |_, _| 0.2))
        .collect();
    stops.sort_unstable();
    assert_eq!((stops.len(), stops[180]), (200, LEAST_BATCHES as u64));
}

#[test]
fn a_pending_request_counts_as_one_within_the_limit() {
    let test = |pending| {
        let mut test = Sequential::new(0.05, 0.01, 1);
        let refuted = (1..=10).filter(|_| test.observe_batch(20, 4, pending));
        (refuted.count(), test.evidence_at(200 + pending))
    };
    let [(decided, all), (_, with_one), (undecided, most)] = [0, 1, 1800].map(test);
    assert_eq!(
        (decided, undecided),
        (1, 0),
        "the tenth batch is the first that decides"
    );
    assert!(all > with_one && with_one > most);
    let mut single = Sequential::new(0.05, 0.01, 1);
    (0..40).for_each(|_| _ = single.observe(true));
    (0..160).for_each(|_| _ = single.observe(false));
    assert_eq!(single.evidence(), all, "the order does not matter");
}

#[test]
fn what_none_may_break_is_lost_with_one_request() {
    let mut none = Sequential::new(0.0, 0.01, 3);
    assert_eq!(
        [
            none.observe(false),
            none.observe(true),
            none.observe(false),
            none.observe(false)
        ],
        [false, false, true, false]
    );
    assert_eq!((none.counts(), none.observe(true)), ((4, 1), true));
}

#[test]
fn millions_of_requests_leave_it_exact() {
    let mut test = Sequential {
        n: 10_000_000,
        breaking: 100_000,
        ..Sequential::new(0.01, 0.01, 1)
    };
    // At the claimed share itself, evidence falls with the root of n.
    assert!(
        (-12.0..0.0).contains(&test.evidence()),
        "{}",
        test.evidence()
    );
    test.breaking = 102_000;
    assert!(
        test.evidence() > 4.6,
        "6 standard deviations: {}",
        test.evidence()
    );
}

fn refuted_at(share: f64, tail: f64, most: u64, rng: &mut rand_chacha::ChaCha8Rng) -> Option<u64> {
    let (mut looks, mut breaking) = (AlphaSpending::new(0.01), 0);
    (1..=most).find(|&n| {
        breaking += u64::from(rng.random_range(0.0..1.0) < share);
        looks.is_refuted(n, breaking, tail)
    })
}

#[test]
fn a_claim_that_holds_is_refuted_no_more_often_than_allowed() {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
    let wrong = (0..3000)
        .filter(|_| refuted_at(0.05, 0.05, 1024, &mut rng).is_some())
        .count();
    assert!(
        (1..=30).contains(&wrong),
        "{wrong} of 3000, where 30 are allowed"
    );
}

#[test]
fn a_hopeless_claim_is_refuted_at_the_first_look() {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
    let early = (0..100)
        .filter(|_| refuted_at(0.9, 0.05, 1024, &mut rng) == Some(16))
        .count();
    assert_eq!(early, 100);
    assert_eq!(
        refuted_at(1.0, 0.05, 15, &mut rng),
        None,
        "no look, no ruling"
    );
}
