//! Halvings over simulated servers of known capacity.

use super::*;
use crate::label::Labels;
use crate::search::{Goal, SearchSpec};
use crate::stats::distributions::probability;
use crate::units::Nanos;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal};

/// Requests of a whole probe.
const REQUESTS: f64 = 200.0;
/// Steepness of the transition: ten percent above the capacity, a probe of 200 requests has a score of about -2.
const SLOPE: f64 = 1.5;
/// Seconds of a whole probe.
const SECONDS: f64 = 40.0;

fn searches(count: usize, confirm: u32) -> Vec<CapacitySearch> {
    let spec = SearchSpec {
        vary: "load.concurrency".to_owned(),
        low: 1.0,
        high: 512.0,
        start: 16.0,
        integer: true,
        precision: 0.05,
        confirm,
        goal: Goal::Slo,
        drain: Nanos::ZERO,
    };
    let search = |_| CapacitySearch {
        group: 0,
        grid: spec.grid(),
        spec: spec.clone(),
        labels: Labels::default(),
        first: 0,
    };
    (0..count).map(search).collect()
}

fn probes(count: u32) -> Option<HalvingSpec> {
    Some(HalvingSpec {
        budget: Budget::Probes(count),
        factor: 2,
    })
}

/// A simulated server; a capacity of 0 does not start.
fn run(halving: &mut Halving, capacities: &[f64], noise: f64, seed: u64) -> Vec<usize> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let law = Normal::new(0.0, noise).unwrap();
    let mut order = Vec::new();
    while let Some((candidate, probe)) = halving.next_probe() {
        let capacity = capacities[candidate];
        if capacity == 0.0 {
            halving.fail(candidate, "out of memory".to_owned());
            continue;
        }
        order.push(candidate);
        let requests = REQUESTS * probe.length;
        let z = SLOPE * requests.sqrt() * (capacity / probe.load).ln() + law.sample(&mut rng);
        let evidence = Evidence {
            pass_probability: probability(z),
            requests: requests as u64,
            goodput: (0.0, 0.0),
        };
        halving.record_probe(
            candidate,
            probe.index,
            Some(evidence),
            SECONDS * probe.length,
        );
    }
    order
}

/// Number of starts of a server that each candidate has for itself.
fn starts(order: &[usize]) -> usize {
    1 + order.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

fn fates(halving: &Halving, count: usize) -> Vec<&Fate> {
    (0..count)
        .map(|one| halving.fate(one).expect("every candidate has a fate"))
        .collect()
}

fn best(halving: &Halving, count: usize) -> Option<usize> {
    (0..count).find(|one| halving.fate(*one) == Some(&Fate::Best))
}

#[test]
fn rungs_share_the_budget_equally_and_halve_the_candidates() {
    let rungs = |candidates, factor| {
        let budget = Budget::Probes(90);
        let spec = HalvingSpec { budget, factor };
        let rungs = spec.rungs(candidates).into_iter();
        rungs
            .map(|rung| (rung.candidates, rung.each))
            .collect::<Vec<_>>()
    };
    assert_eq!(rungs(6, 2), [(6, 5.0), (3, 10.0), (2, 15.0)]);
    assert_eq!(rungs(6, 3), [(6, 7.0), (2, 22.0)]);
    assert_eq!(rungs(2, 2), [(2, 45.0)]);
    assert_eq!(rungs(1, 2), [(1, 90.0)]);
    let spec = HalvingSpec {
        budget: Budget::Time(Nanos::from_millis(7_200_000)),
        factor: 2,
    };
    assert_eq!(
        spec.rungs(8)
            .iter()
            .map(|rung| rung.each)
            .collect::<Vec<_>>(),
        [300.0, 600.0, 1200.0]
    );
}

#[test]
fn without_a_budget_one_search_runs_in_full() {
    let searches = searches(1, 2);
    let mut halving = Halving::new(None, &searches, None);
    run(&mut halving, &[100.0], 1.0, 1);
    let found = halving.finding(0).unwrap();
    assert!(found.converged && found.confirmed == 2, "{found:?}");
    assert_eq!(halving.fate(0), None);
}

#[test]
fn clearly_different_candidates_are_halved_as_planned() {
    let capacities = [8.0, 200.0, 15.0, 60.0, 100.0, 20.0];
    let searches = searches(6, 1);
    let mut halving = Halving::new(probes(90), &searches, None);
    let order = run(&mut halving, &capacities, 0.0, 0);
    assert!(order.len() <= 90, "{}", order.len());
    assert_eq!(best(&halving, 6), Some(1));
    let rungs: Vec<usize> = (0..6).map(|one| halving.standings(one).len()).collect();
    assert_eq!(rungs, [1, 3, 1, 2, 3, 1]);
    assert!(starts(&order) <= 6 + 3 + 2, "{}", starts(&order));
    let found = halving.finding(1).unwrap();
    // Without noise no probe close to the capacity is certain.
    assert!(
        (180.0..=210.0).contains(&found.answer.unwrap()),
        "{found:?}"
    );
    let Fate::Dropped { tied: false, kept } = halving.fate(0).unwrap() else {
        panic!("{:?}", halving.fate(0));
    };
    assert!(kept.low > halving.standings(0)[0].score.high, "{kept:?}");
    assert_eq!(halving.fate(4), Some(&Fate::NotBest { tied: false }));
}

#[test]
fn a_rung_begins_with_the_server_that_runs() {
    let searches = searches(4, 1);
    let mut halving = Halving::new(probes(60), &searches, None);
    let order = run(&mut halving, &[10.0, 20.0, 300.0, 150.0], 0.0, 0);
    let mut turns = order.clone();
    turns.dedup();
    assert_eq!(turns, [0, 1, 2, 3, 2], "candidate 3 is in both rungs");
}

#[test]
fn a_candidate_that_does_not_start_costs_only_itself() {
    let searches = searches(5, 1);
    let mut halving = Halving::new(probes(80), &searches, None);
    let order = run(&mut halving, &[0.0, 40.0, 0.0, 90.0, 0.0], 0.0, 0);
    assert!(order.iter().all(|one| [1, 3].contains(one)));
    assert_eq!(best(&halving, 5), Some(3));
    assert_eq!(
        halving.fate(2),
        Some(&Fate::Failed("out of memory".to_owned()))
    );
    let rungs: Vec<usize> = halving.standings(1).iter().map(|one| one.rung).collect();
    assert_eq!(rungs, [1, 3], "two candidates are left for the last rung");
    assert!(!halving.has_failed());

    let mut none = Halving::new(probes(80), &searches, None);
    assert!(run(&mut none, &[0.0; 5], 0.0, 0).is_empty() && none.has_failed());
}

#[test]
fn ties_are_kept_while_the_budget_has_room_for_them() {
    let searches = searches(4, 1);
    let capacities = [100.0, 100.0, 100.0, 20.0];
    let finalists = |budget| {
        let mut halving = Halving::new(probes(budget), &searches, None);
        run(&mut halving, &capacities, 0.0, 0);
        let last = (0..4).filter(|one| halving.standings(*one).len() == 2);
        (last.count(), halving)
    };
    let (count, halving) = finalists(100);
    assert_eq!(count, 3);
    let fates = fates(&halving, 4);
    assert_eq!(
        (
            &fates[..3],
            matches!(fates[3], Fate::Dropped { tied: false, .. })
        ),
        (
            &[
                &Fate::Best,
                &Fate::NotBest { tied: true },
                &Fate::NotBest { tied: true }
            ][..],
            true
        )
    );
    let (count, halving) = finalists(24);
    assert_eq!(count, 2);
    assert!(matches!(
        halving.fate(2),
        Some(Fate::Dropped { tied: true, .. })
    ));
}

#[test]
fn scores_are_per_gpu_where_the_numbers_are_known() {
    let searches = searches(2, 1);
    let mut halving = Halving::new(probes(40), &searches, Some(&[8.0, 1.0]));
    run(&mut halving, &[160.0, 40.0], 0.0, 0);
    assert_eq!(best(&halving, 2), Some(1));
    let score = halving.standings(0)[0].score;
    assert!((19.0..=21.0).contains(&score.value), "{score:?}");
}

#[test]
fn a_search_whose_probes_are_all_invalid_is_given_up() {
    let searches = searches(2, 1);
    let mut halving = Halving::new(probes(40), &searches, None);
    let mut invalid = 0;
    while let Some((candidate, probe)) = halving.next_probe() {
        let evidence = Evidence {
            pass_probability: f64::from(u8::from(probe.load <= 50.0)),
            requests: 100,
            goodput: (0.0, 0.0),
        };
        invalid += usize::from(candidate == 0);
        halving.record_probe(
            candidate,
            probe.index,
            (candidate == 1).then_some(evidence),
            1.0,
        );
    }
    assert_eq!((invalid, best(&halving, 2)), (MAX_INVALID_PROBES, Some(1)));
    assert!(matches!(halving.fate(0), Some(Fate::Failed(_))));
}

#[test]
fn the_budget_holds_whatever_the_noise() {
    let capacities = [30.0, 40.0, 50.0, 64.0, 80.0, 100.0];
    let searches = searches(6, 2);
    for seed in 0..40 {
        for budget in [18, 45, 90] {
            let mut halving = Halving::new(probes(budget), &searches, None);
            let order = run(&mut halving, &capacities, 1.5, seed);
            assert!(
                order.len() <= budget as usize,
                "{} of {budget}",
                order.len()
            );
            assert!(starts(&order) <= 6 * 3, "{}", starts(&order));
            assert!(best(&halving, 6).is_some());
        }
        let hour = HalvingSpec {
            budget: Budget::Time(Nanos::from_millis(3_600_000)),
            factor: 2,
        };
        let mut halving = Halving::new(Some(hour), &searches, None);
        run(&mut halving, &capacities, 1.5, seed);
        assert!(halving.spent <= 3600.0, "{}", halving.spent);
    }
}

/// The share of seeds in which the best candidate wins, and the mean loss of capacity of the winner.
fn rates(capacities: &[f64], budget: u32, factor: usize, noise: f64, seeds: u64) -> (f64, f64) {
    let searches = searches(capacities.len(), 2);
    let top = capacities.iter().copied().fold(0.0, f64::max);
    let (mut hits, mut loss) = (0.0, 0.0);
    for seed in 0..seeds {
        let spec = HalvingSpec {
            budget: Budget::Probes(budget),
            factor,
        };
        let mut halving = Halving::new(Some(spec), &searches, None);
        run(&mut halving, capacities, noise, seed);
        let won = best(&halving, capacities.len()).map_or(0.0, |best| capacities[best]);
        hits += f64::from(u8::from(won == top));
        loss += 1.0 - won / top;
    }
    (hits / seeds as f64, loss / seeds as f64)
}

/// Steps of a quarter, in an order in which the best is neither first nor last.
const CANDIDATES: [f64; 6] = [50.0, 33.0, 98.0, 63.0, 26.0, 79.0];

#[test]
fn the_best_of_six_survives_in_most_seeds() {
    let (hits, loss) = rates(&CANDIDATES, 60, 2, 1.5, 60);
    assert!(hits >= 0.9 && loss <= 0.03, "{hits} {loss}");
}

#[test]
#[expect(clippy::print_stdout, reason = "the rates are the result")]
#[ignore = "prints the rates of docs/explanation/capacity-search.md"]
fn print_rates() {
    // The best is in the middle: equal estimates are ranked in the order of the plan.
    let steps = |count: u32, ratio: f64| -> Vec<f64> {
        let power = |at: u32| (at * 5 + 3) % count;
        (0..count)
            .map(|at| 98.0 * ratio.powi(power(at) as i32))
            .collect()
    };
    for (name, capacities) in [
        ("6, steps of 20 %", steps(6, 0.8)),
        ("6, steps of 5 %", steps(6, 0.95)),
        ("18, steps of 10 %", steps(18, 0.9)),
    ] {
        for each in [3, 6, 12] {
            let budget = each * capacities.len() as u32;
            for factor in [2, 3] {
                let (hits, loss) = rates(&capacities, budget, factor, 1.5, 100);
                println!(
                    "| {name} | {budget} | 1/{factor} | {:.0} % | {:.1} % |",
                    100.0 * hits,
                    100.0 * loss
                );
            }
        }
    }
}
