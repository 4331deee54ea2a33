//! What several runs a side show where the server differs from start to start: pairs of sides without a difference,
//! with one of 5 % and with one of 10 %, as `docs/explanation/comparing-runs.md` has it.

use super::*;
use llmscen_core::compare::Reading;
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::seed::Seed;
use llmscen_core::stats::share::at_least;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use std::collections::BTreeMap;

const PAIRS: u64 = 400;
const SHIFTS: [f64; 3] = [1.0, 1.05, 1.10];
const SDS: [f64; 3] = [0.01, 0.02, 0.03];
const MEASURE: Measure = Measure {
    metric: Metric::Ttft,
    stat: Some(Stat::Quantile(0.95)),
};

/// A run whose requests put narrow bounds around a value of its own.
fn run(value: f64) -> Side {
    let bounds = Some((value * 0.995, value * 1.005));
    let reading = Reading {
        value: Some(value),
        bounds,
        n: 1000,
        design: 1.0,
        ..Reading::default()
    };
    let (shares, freedom) = (vec![None], vec![f64::INFINITY]);
    Side {
        case: "a".into(),
        readings: vec![reading],
        shares,
        freedom,
        values: BTreeMap::new(),
    }
}

/// Differences called a change, for each shift: of this many runs a side whose starts differ by `sd`.
fn changes((base, other): (usize, usize), sd: f64) -> [u64; 3] {
    let mut rng = ChaCha8Rng::seed_from_u64(
        Seed(23)
            .child((base * 100 + other) as u64)
            .child((sd * 1e4) as u64)
            .0,
    );
    let mut found = [0; 3];
    for _ in 0..PAIRS {
        let mut draw = |count: usize| -> Vec<f64> {
            (0..count)
                .map(|_| {
                    200.0 * (sd * Distribution::<f64>::sample(&StandardNormal, &mut rng)).exp()
                })
                .collect()
        };
        let (own, its) = (draw(base), draw(other));
        for (shift, found) in SHIFTS.iter().zip(&mut found) {
            let side = |values: &[f64], scale: f64| {
                values
                    .iter()
                    .map(|value| run(value * scale))
                    .collect::<Vec<_>>()
            };
            let mut all = compare_sides(&[side(&own, 1.0), side(&its, *shift)], &[MEASURE], 0.975);
            decide_findings(&mut all, Correction::None, 0.05, 0.0);
            *found += u64::from(all[0].finding != Finding::Noise);
        }
    }
    found
}

/// The row of a page, and the three rates of each spread.
fn row(name: &str, runs: (usize, usize)) -> (String, [[u64; 3]; 3]) {
    let found = SDS.map(|sd| changes(runs, sd));
    let of = |shift: usize| {
        found
            .map(|own| format!("{:.1}", own[shift] as f64 * 100.0 / PAIRS as f64))
            .join(" / ")
    };
    (
        format!("| {name} | {} % | {} % | {} % |\n", of(0), of(1), of(2)),
        found,
    )
}

#[test]
fn several_runs_per_side_detect_a_change_despite_restarts() {
    let one = row("1 run a side", (1, 1));
    let rows = [
        row("3 runs a side", (3, 3)),
        row("5 runs a side", (5, 5)),
        row("1 run beside 10", (10, 1)),
    ];
    let page: String = std::iter::once(&one)
        .chain(&rows)
        .map(|own| own.0.as_str())
        .collect();
    let chance = |alarms: u64| at_least(PAIRS as f64, 0.05, alarms as f64) > 0.001;
    assert!(
        rows.iter().flat_map(|own| own.1).all(|own| chance(own[0])),
        "false changes beyond chance:\n{page}"
    );
    assert!(
        one.1[1][0] > PAIRS / 3,
        "single runs take the restart for a change:\n{page}"
    );
    // What the normal law and Student's t give, with eight points for the draws.
    let wanted = [
        [[96, 51, 26], [100, 96, 73]],
        [[100, 91, 60], [100, 100, 99]],
        [[98, 54, 28], [100, 98, 77]],
    ];
    for ((_, found), wanted) in rows.iter().zip(wanted) {
        for (at, own) in found.iter().enumerate() {
            let seen = [own[1], own[2]].map(|count| count as f64 * 100.0 / PAIRS as f64);
            let off = seen
                .iter()
                .zip([wanted[0][at], wanted[1][at]])
                .all(|(seen, wanted)| (seen - f64::from(wanted)).abs() <= 8.0);
            assert!(off, "{seen:?} beside {wanted:?}:\n{page}");
        }
    }
    assert!(
        include_str!("../../../../../docs/explanation/comparing-runs.md").contains(&page),
        "docs/explanation/comparing-runs.md has other figures than\n{page}"
    );
}
