use super::*;
use crate::judge::fixture::{check, conditions, ok, sample};
use crate::judge::rule;
use llmscen_core::check::relative::{CaseReference, ReferenceKind, Relative};
use llmscen_core::check::{Op, Ruling, Verdict};
use llmscen_core::metric::{Metric, Stat};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn round(value: f64) -> Sample {
    sample((0..20).map(|_| ok(Metric::Ttft, value)).collect())
}

fn rounds(values: &[f64]) -> Vec<Option<Sample>> {
    values.iter().map(|value| Some(round(*value))).collect()
}

/// `ttft.mean <= factor * case(variant=base)`.
fn limit(factor: f64) -> Check {
    let relative = Relative {
        case: Some(CaseReference::default()),
        ..Relative::new(ReferenceKind::Case, factor, None)
    };
    Check {
        relative: Some(relative),
        ..check(Metric::Ttft, Some(Stat::Mean), Op::AtMost, f64::NAN)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn known(factor: f64, own: &[f64], other: &[f64], design: RoundDesign) -> ReferenceValue {
    let (all_own, all_other) = (round(mean(own)), round(mean(other)));
    let (own, other) = (rounds(own), rounds(other));
    let samples = (
        CaseSamples {
            all: &all_own,
            rounds: &own,
        },
        CaseSamples {
            all: &all_other,
            rounds: &other,
        },
    );
    value_of_other_case(&limit(factor), factor, samples, design).unwrap()
}

fn ruled(factor: f64, own: &[f64], other: &[f64], design: RoundDesign) -> Verdict {
    let relative = Relative {
        known: Some(known(factor, own, other, design)),
        ..limit(factor).relative.unwrap()
    };
    let check = Check {
        limit: relative.limit(),
        relative: Some(relative),
        ..limit(factor)
    };
    rule(&check, &round(mean(own)), &conditions(true))
}

#[test]
fn alternating_rounds_are_compared_in_pairs() {
    // The machine slows down by 60 %; each pair differs by 10 %, give or take 1 %.
    let base = [100.0, 110.0, 120.0, 130.0, 145.0, 160.0];
    let ratios = [1.10, 1.11, 1.09, 1.10, 1.11, 1.09];
    let own: Vec<f64> = base
        .iter()
        .zip(ratios)
        .map(|(base, ratio)| base * ratio)
        .collect();
    let spread = known(1.0, &own, &base, RoundDesign::Alternating)
        .spread
        .unwrap();
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let center = mean(&logs);
    let squares: f64 = logs.iter().map(|log| (log - center).powi(2)).sum();
    // t(0.95; 5) = 2.015048.
    let reach = 2.015_048 * (squares / 5.0 / 6.0).sqrt();
    assert!((spread.reach - reach).abs() < 1e-6, "{spread:?} {reach}");
    assert_eq!((spread.runs, spread.of), (6, Replicates::Pairs));
    let of = |factor, design| ruled(factor, &own, &base, design).ruling;
    assert_eq!(of(1.05, RoundDesign::Alternating), Ruling::Fail);
    assert_eq!(of(1.15, RoundDesign::Alternating), Ruling::Pass);
    assert_eq!(of(1.05, RoundDesign::Restarted), Ruling::Inconclusive);
    let open = ruled(1.10, &own, &base, RoundDesign::Alternating);
    let note = "the 6 pairs of rounds show differences above 0.7 %; more rounds show less";
    assert_eq!(
        (open.ruling, open.note.as_deref()),
        (Ruling::Inconclusive, Some(note))
    );
}

#[test]
fn too_few_rounds_leave_the_decision_to_the_requests() {
    let of = |own: &[f64], other: &[f64], design| known(1.0, own, other, design).spread;
    assert_eq!(of(&[1.0; 4], &[1.0; 4], RoundDesign::Alternating), None);
    assert_eq!(of(&[1.0; 2], &[1.0; 2], RoundDesign::Restarted), None);
    assert_eq!(of(&[1.0; 9], &[1.0; 9], RoundDesign::Pooled), None);
    let restarted = of(&[1.0, 1.1, 1.2], &[1.0, 1.1, 1.2], RoundDesign::Restarted).unwrap();
    assert_eq!((restarted.runs, restarted.of), (3, Replicates::Rounds));
}

/// Shares of FAIL of `ttft.mean <= 1.0 * case(…)`, in pairs and one case after the other, on a machine whose speed is
/// a random walk of 2 % per block and whose blocks differ by 1 %.
fn failed(slowdown: f64, pairs: usize, tests: usize) -> [f64; 2] {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut normal = move || {
        let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
    };
    let mut failed = [0; 2];
    for _ in 0..tests {
        let mut level: f64 = 0.0;
        let mut block = || {
            level += 0.02 * normal();
            100.0 * (level + 0.01 * normal()).exp()
        };
        let blocks: Vec<f64> = (0..2 * pairs).map(|_| block()).collect();
        let halves = |own: Vec<f64>, base: Vec<f64>, design| {
            let own: Vec<f64> = own.iter().map(|value| value * slowdown).collect();
            ruled(1.0, &own, &base, design).ruling == Ruling::Fail
        };
        // ABBA: the order alternates.
        let first = |pair: &[f64], at: usize| pair.get(at).copied().unwrap_or_default();
        let paired = |candidate: bool| {
            let pick =
                |(at, pair): (usize, &[f64])| first(pair, usize::from((at % 2 == 0) == candidate));
            blocks.chunks(2).enumerate().map(pick).collect::<Vec<f64>>()
        };
        failed[0] += usize::from(halves(
            paired(true),
            paired(false),
            RoundDesign::Alternating,
        ));
        let (before, after) = blocks.split_at(pairs);
        failed[1] += usize::from(halves(
            after.to_vec(),
            before.to_vec(),
            RoundDesign::Restarted,
        ));
    }
    failed.map(|count| count as f64 / tests as f64)
}

#[test]
fn pairs_keep_their_error_rate_on_a_machine_that_drifts() {
    let [paired, apart] = failed(1.0, 10, 1000);
    assert!((0.03..=0.07).contains(&paired), "{paired}");
    assert!(
        apart > 0.15,
        "one case after the other takes the drift for a change: {apart}"
    );
    let [found, _] = failed(1.05, 10, 300);
    assert!(found > 0.95, "{found}");
}
