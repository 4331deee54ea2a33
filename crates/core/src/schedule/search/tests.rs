//! Searches on simulated servers with a known boundary.

use super::*;
use crate::schedule::search::Search;
use crate::search::Goal;
use crate::stats::distributions::{probability, score};
use crate::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn spec(low: f64, high: f64, start: f64, whole: bool) -> SearchSpec {
    let (vary, goal, drain) = ("load.rate".to_owned(), Goal::Slo, Nanos::ZERO);
    SearchSpec {
        vary,
        low,
        high,
        start,
        integer: whole,
        precision: 0.05,
        confirm: 2,
        goal,
        drain,
    }
}

/// Searches a server given by the probability that each load passes.
fn search(spec: &SearchSpec, server: impl Fn(f64) -> f64) -> Search {
    let mut search = Search::new(spec, &spec.grid());
    while let Some(probe) = search.next() {
        search.record_probe(
            probe.index,
            Evidence {
                pass_probability: server(probe.load),
                requests: 100,
                goodput: (0.0, 0.0),
            },
        );
    }
    search
}

#[test]
fn a_sharp_boundary_is_found_on_integers() {
    for (edge, start) in [
        (1.0, 16.0),
        (15.0, 16.0),
        (16.0, 16.0),
        (37.0, 1.0),
        (37.0, 1024.0),
        (900.0, 1.0),
    ] {
        let spec = spec(1.0, 1024.0, start, true);
        let done = search(&spec, |load| f64::from(load <= edge));
        let found = done.finding();
        let near = |load: f64| (load / edge - 1.0).abs() <= 0.05;
        assert!(
            found.answer.is_some_and(near) && found.converged && found.monotone(),
            "{edge} from {start}: {found:?}"
        );
        assert!(
            found.interval.0.unwrap() <= edge && edge <= found.interval.1,
            "{edge} from {start}: {found:?}"
        );
        assert!(done.probes().len() <= 25, "{} probes", done.probes().len());
    }
}

#[test]
fn integers_converge_within_one_step() {
    // Five users pass, seven fail, and six are at the boundary, which no number of probes decides.
    let server = |load: f64| {
        if load < 6.0 {
            0.98
        } else {
            f64::from(load < 7.0) * 0.5 + 0.01
        }
    };
    let found = search(&spec(1.0, 64.0, 4.0, true), server).finding();
    assert!(
        found.converged && found.answer.is_some_and(|load| (5.0..=6.0).contains(&load)),
        "{found:?}"
    );
    assert!(
        found.interval.1 - found.interval.0.unwrap() <= 1.0,
        "{found:?}"
    );
}

#[test]
fn the_bracket_goes_up_while_loads_pass_and_down_while_they_fail() {
    let bracket = |edge: f64, start| {
        let done = search(&spec(1.0, 1024.0, start, true), |load| {
            f64::from(load <= edge)
        });
        let outer = done
            .probes()
            .iter()
            .take_while(|probe| probe.purpose == Purpose::Bracket);
        outer.map(|probe| probe.load).collect::<Vec<_>>()
    };
    assert_eq!(bracket(100.0, 16.0), [16.0, 32.0, 64.0, 127.0]);
    assert_eq!(bracket(3.0, 16.0), [16.0, 8.0, 4.0, 2.0]);
}

#[test]
fn ranges_that_pass_or_fail_throughout_are_reported() {
    let all = search(&spec(1.0, 64.0, 8.0, true), |_| 1.0).finding();
    assert_eq!(
        (all.answer, all.extent, all.converged),
        (Some(64.0), Extent::AtLeast, true)
    );
    let none = search(&spec(1.0, 64.0, 8.0, true), |_| 0.0).finding();
    assert_eq!(
        (none.answer, none.extent, none.converged),
        (None, Extent::Nothing, true)
    );
    let one = search(&spec(5.0, 5.0, 5.0, true), |_| 1.0).finding();
    assert_eq!((one.answer, one.extent), (Some(5.0), Extent::AtLeast));
}

#[test]
fn one_lucky_probe_does_not_decide() {
    let spec = spec(1.0, 1024.0, 16.0, true);
    let mut search = Search::new(&spec, &spec.grid());
    let mut lied = false;
    while let Some(probe) = search.next() {
        // The first probe of an overloaded server passes by chance.
        let lie = probe.load > 100.0 && !lied;
        lied |= lie;
        search.record_probe(
            probe.index,
            Evidence {
                pass_probability: f64::from(probe.load <= 100.0 || lie),
                requests: 100,
                goodput: (0.0, 0.0),
            },
        );
    }
    let found = search.finding();
    assert!(
        lied && found.converged
            && found
                .answer
                .is_some_and(|load| (95.0..=105.0).contains(&load)),
        "{found:?}"
    );
}

#[test]
fn a_failed_confirmation_continues_the_search() {
    let spec = spec(1.0, 1024.0, 16.0, true);
    let mut search = Search::new(&spec, &spec.grid());
    let mut refuted = None;
    while let Some(probe) = search.next() {
        // From the first confirmation on, the server handles half of the load.
        if probe.purpose == Purpose::Confirm {
            refuted.get_or_insert(search.probes().len());
        }
        let edge = if refuted.is_some() { 50.0 } else { 100.0 };
        search.record_probe(
            probe.index,
            Evidence {
                pass_probability: f64::from(probe.load <= edge),
                requests: 100,
                goodput: (0.0, 0.0),
            },
        );
    }
    let after = &search.probes()[refuted.unwrap() + 1..];
    assert!(
        after.iter().any(|probe| probe.purpose == Purpose::Narrow),
        "{after:?}"
    );
    assert!(
        search.finding().answer.unwrap() < 97.0,
        "{:?}",
        search.finding()
    );
}

#[test]
fn only_probes_of_a_load_confirm_it() {
    let spec = spec(1.0, 1024.0, 16.0, true);
    let mut search = Search::new(&spec, &spec.grid());
    let mut confirms: Vec<(f64, bool)> = Vec::new();
    while let Some(probe) = search.next() {
        // The first and the third confirmation fail, whatever the load.
        let unlucky = probe.purpose == Purpose::Confirm && matches!(confirms.len(), 0 | 2);
        let holds = probe.load <= 100.0 && !unlucky;
        if probe.purpose == Purpose::Confirm {
            confirms.push((probe.load, holds));
        }
        search.record_probe(
            probe.index,
            Evidence {
                pass_probability: f64::from(holds),
                requests: 100,
                goodput: (0.0, 0.0),
            },
        );
    }
    let found = search.finding();
    assert!(
        found.converged && found.confirmed == 2 && confirms.len() >= 4,
        "{confirms:?} {found:?}"
    );
    let last: Vec<&(f64, bool)> = confirms.iter().rev().take(2).collect();
    assert!(
        last.iter()
            .all(|(load, holds)| *holds && Some(*load) == found.answer),
        "{confirms:?} {found:?}"
    );
}

#[test]
fn convergence_requires_a_passing_probe_of_four_times_the_length() {
    let spec = spec(1.0, 1024.0, 16.0, true);
    let mut search = Search::new(&spec, &spec.grid());
    let mut confirms = Vec::new();
    while let Some(probe) = search.next() {
        // Short probes pass up to 100, long ones up to 80 only.
        let edge = if probe.length > 2.0 { 80.0 } else { 100.0 };
        if probe.purpose == Purpose::Confirm {
            confirms.push((probe.length, probe.load <= edge));
        }
        let requests = (probe.length * 100.0) as u64;
        search.record_probe(
            probe.index,
            Evidence {
                pass_probability: f64::from(probe.load <= edge),
                requests,
                goodput: (0.0, 0.0),
            },
        );
    }
    assert_eq!(confirms[..2], [(1.0, true), (4.0, false)], "{confirms:?}");
    assert!(
        !search.finding().converged && confirms.iter().all(|(part, holds)| (*part < 2.0) == *holds),
        "{confirms:?}"
    );
}

#[test]
fn the_interval_covers_the_boundary_if_probes_are_overdispersed() {
    let spec = SearchSpec {
        precision: 0.2,
        ..spec(1.0, 64.0, 4.0, false)
    };
    // Twice the standard deviation of independent requests.
    let server = Drawn {
        edge: 20.0,
        requests: 100.0,
        slope: 1.0,
        spread: 2.0,
    };
    let covered = (0..60).filter(|&seed| {
        let (low, high) = searched(&spec, server, seed).finding().interval;
        low.is_none_or(|low| low <= server.edge) && server.edge <= high
    });
    let covered = covered.count();
    assert!(covered >= 54, "{covered} of 60, where 90 % are claimed");
}

#[test]
fn there_is_no_result_before_the_first_probe() {
    let spec = spec(1.0, 1024.0, 16.0, true);
    let found = Search::new(&spec, &spec.grid()).finding();
    assert_eq!(
        (found.answer, found.converged, found.extent),
        (None, false, Extent::Within)
    );
}

#[test]
fn a_server_that_recovers_under_more_load_is_not_monotone() {
    let hole = |load: f64| f64::from(!(10.0..20.0).contains(&load) && load <= 200.0);
    let spec = spec(1.0, 1024.0, 12.0, true);
    let mut search = Search::new(&spec, &spec.grid());
    let grid = spec.grid();
    let at = |load: f64| grid.iter().position(|value| *value == load).unwrap();
    for load in [12.0, 40.0] {
        (0..2).for_each(|_| {
            search.record_probe(
                at(load),
                Evidence {
                    pass_probability: hole(load),
                    requests: 100,
                    goodput: (0.0, 0.0),
                },
            )
        });
    }
    assert_eq!(search.finding().non_monotone, Some((12.0, 40.0)));
    assert!(!search.finding().monotone());
}

#[test]
fn an_undecidable_search_ends_without_convergence() {
    let done = search(&spec(1.0, 1024.0, 16.0, true), |_| 0.5);
    assert!(!done.finding().converged);
    assert!(done.probes().len() <= 60, "{}", done.probes().len());
    assert_eq!(done.next(), None);
}

/// What many searches of a server came to, of 40.
#[derive(Debug, Default, PartialEq)]
struct Rates {
    converged: u32,
    /// A probe of the answer passed.
    passed: u32,
    /// The answer is within the precision.
    near: u32,
    probes: usize,
}

/// A server whose probes have drawn scores.
#[derive(Clone, Copy)]
struct Drawn {
    /// The boundary.
    edge: f64,
    /// Requests of a probe of length 1.
    requests: f64,
    /// Steepness of the scores per √request, and their standard deviation.
    slope: f64,
    spread: f64,
}

/// The search of a server to its end.
fn searched(spec: &SearchSpec, server: Drawn, seed: u64) -> Search {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut search = Search::new(spec, &spec.grid());
    while let Some(probe) = search.next() {
        let requests = (probe.length * server.requests) as u64;
        let luck = server.spread * score(rng.random_range(1e-9..1.0));
        let mean = server.slope * (requests as f64).sqrt() * (server.edge / probe.load).ln();
        search.record_probe(
            probe.index,
            Evidence {
                pass_probability: probability(mean + luck),
                requests,
                goodput: (0.0, 0.0),
            },
        );
    }
    search
}

/// Searches a server whose probes have scores of this steepness, per √request, and this spread.
fn rates(spec: &SearchSpec, edge: f64, (slope, spread): (f64, f64)) -> Rates {
    let server = Drawn {
        edge,
        requests: 400.0,
        slope,
        spread,
    };
    let mut sum = Rates::default();
    for seed in 0..40 {
        let search = searched(spec, server, seed);
        let found = search.finding();
        let passed = |probe: &Probed| {
            Some(probe.load) == found.answer && probe.evidence.pass_probability >= PASSES
        };
        let near = |load: f64| (load / edge).ln().abs() <= spec.precision.ln_1p();
        sum.converged += u32::from(found.converged);
        sum.passed += u32::from(search.probes().iter().any(passed));
        sum.near += u32::from(found.answer.is_some_and(near));
        sum.probes += search.probes().len();
    }
    sum
}

#[test]
fn the_probe_of_the_answer_passed_and_the_answer_is_within_the_precision() {
    for (integer, edge, start) in [(true, 60.0, 4.0), (false, 16.4, 5.0), (false, 0.4, 0.9)] {
        let spec = spec(edge / 40.0, edge * 9.0, start, integer);
        for law in [(2.0, 1.5), (5.0, 1.5)] {
            let rates = rates(&spec, edge, law);
            assert_eq!(
                (rates.passed, rates.converged),
                (40, 40),
                "{edge} {law:?} {rates:?}"
            );
            assert!(rates.near >= 36, "{edge} {law:?} {rates:?}");
        }
        // Where probes differ by more than the boundary is wide, fewer searches converge, and none to a load that
        // never passed.
        let rates = rates(&spec, edge, (0.5, 1.5));
        assert_eq!(rates.passed, 40, "{edge} {rates:?}");
    }
}

#[test]
fn probes_of_exactly_the_least_probability_pass() {
    let spec = spec(1.0, 64.0, 4.0, true);
    let mut search = Search::new(&spec, &spec.grid());
    while let Some(probe) = search.next() {
        let passes = probe.load <= 20.0;
        let evidence = Evidence {
            pass_probability: if passes { PASSES } else { 1.0 - PASSES },
            requests: 100,
            goodput: (0.0, 0.0),
        };
        search.record_probe(probe.index, evidence);
    }
    let found = search.finding();
    assert!(found.converged, "{found:?}");
    assert!((18.0..=20.0).contains(&found.answer.unwrap()), "{found:?}");
}

#[test]
fn the_answer_is_a_load_whose_probes_passed() {
    let spec = spec(1.0, 8.0, 4.0, true);
    let grid = spec.grid();
    let found = |probes: &[(f64, f64)]| {
        let mut search = Search::new(&spec, &grid);
        for (load, pass_probability) in probes {
            let index = grid.iter().position(|value| value == load).unwrap();
            search.record_probe(
                index,
                Evidence {
                    pass_probability: *pass_probability,
                    requests: 100,
                    goodput: (0.0, 0.0),
                },
            );
        }
        let found = search.finding();
        (found.answer, found.above, found.converged)
    };
    let fails = Some((8.0, LoadVerdict::Failed));
    assert_eq!(
        found(&[(4.0, 0.99), (8.0, 0.01)]),
        (Some(4.0), fails, false)
    );
    let unclear = [(4.0, 0.99), (8.0, 0.3), (8.0, 0.4), (8.0, 0.3)];
    assert_eq!(
        found(&unclear),
        (Some(4.0), Some((8.0, LoadVerdict::Inconclusive)), false)
    );
    assert_eq!(
        found(&[(4.0, 0.99)]),
        (Some(4.0), Some((8.0, LoadVerdict::NotMeasured)), false)
    );
    assert_eq!(found(&[(8.0, 0.99)]), (Some(8.0), None, false));
    assert_eq!(
        found(&[(4.0, 0.6)]),
        (None, Some((4.0, LoadVerdict::Inconclusive)), false)
    );
    assert_eq!(found(&[(4.0, 0.6), (8.0, 0.6), (8.0, 0.6)]).0, None);
}
