use super::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn build(family: Family, min: Option<f64>, max: Option<f64>) -> Distribution {
    Distribution::new(family, min, max).unwrap()
}

fn table(rows: &[(f64, f64, f64)]) -> Family {
    let bin = |&(weight, low, high): &(f64, f64, f64)| (weight, Bin { low, high });
    Family::Table(Weighted::new(rows.iter().map(bin).collect()).unwrap())
}

fn mixture(parts: Vec<(f64, Distribution)>) -> Family {
    Family::Mixture(Weighted::new(parts).unwrap())
}

fn sample(distribution: &Distribution, n: usize) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    (0..n)
        .map(|_| distribution.sample_length(&mut rng) as f64)
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn families() -> Vec<Family> {
    let normal = build(
        Family::Normal {
            mean: 900.0,
            sd: 200.0,
        },
        None,
        None,
    );
    let far = build(
        Family::Pareto {
            low: 2000.0,
            alpha: 3.5,
        },
        None,
        Some(9000.0),
    );
    vec![
        Family::Fixed(700.0),
        Family::Uniform {
            low: 3.0,
            high: 2500.0,
        },
        Family::Normal {
            mean: 500.0,
            sd: 300.0,
        },
        Family::Lognormal {
            mean: 500.0,
            sd: 400.0,
        },
        Family::Exponential { mean: 600.0 },
        Family::Gamma {
            mean: 500.0,
            cv: 1.2,
        },
        Family::Gamma {
            mean: 500.0,
            cv: 0.4,
        },
        Family::Pareto {
            low: 100.0,
            alpha: 2.6,
        },
        mixture(vec![(3.0, normal), (1.0, far)]),
        table(&[(1.0, 30.0, 30.0), (2.0, 800.0, 800.0), (3.0, 900.0, 1800.0)]),
    ]
}

/// Every family, with and without bounds: the stated mean is that of draws within four standard errors, and bounds
/// are kept.
#[test]
fn draws_have_the_stated_mean_and_stay_within_the_bounds() {
    const N: usize = 40_000;
    for family in families() {
        for (min, max) in [
            (None, None),
            (Some(200.0), None),
            (None, Some(1200.0)),
            (Some(650.0), Some(1100.0)),
        ] {
            let drawn = build(family.clone(), min, max);
            let values = sample(&drawn, N);
            let (low, high) = (min.unwrap_or(1.0), max.unwrap_or(f64::INFINITY));
            assert!(
                values.iter().all(|value| (low..=high).contains(value)),
                "{family:?} {min:?} {max:?}"
            );
            let center = mean(&values);
            let deviation = mean(
                &values
                    .iter()
                    .map(|value| (value - center).powi(2))
                    .collect::<Vec<_>>(),
            )
            .sqrt();
            let error = 4.0 * deviation / (N as f64).sqrt() + 1e-9;
            assert!(
                (drawn.mean_length() - center).abs() <= error,
                "{family:?} {min:?} {max:?}: {} and {center}",
                drawn.mean_length()
            );
        }
    }
}

#[test]
fn means_are_exact_where_they_are_known() {
    let cases = [
        (build(Family::Fixed(5000.0), None, None), 5000.0),
        (
            build(
                Family::Uniform {
                    low: 3.0,
                    high: 6.0,
                },
                None,
                None,
            ),
            4.5,
        ),
        (
            build(
                Family::Uniform {
                    low: 1.0,
                    high: 10.0,
                },
                Some(4.2),
                Some(6.9),
            ),
            5.5,
        ),
        // Rounded exponential of mean m, at least 1: 1 + Σ e^(-(k + 1/2) / m).
        (
            build(Family::Exponential { mean: 2.0 }, None, None),
            1.0 + (-0.75f64).exp() / (1.0 - (-0.5f64).exp()),
        ),
        (
            build(table(&[(1.0, 10.0, 10.0), (3.0, 50.0, 50.0)]), None, None),
            40.0,
        ),
        (
            build(
                table(&[(1.0, 10.0, 10.0), (3.0, 50.0, 50.0)]),
                Some(20.0),
                None,
            ),
            50.0,
        ),
        (
            build(
                table(&[(30.0, 0.0, 100.0), (70.0, 100.0, 500.0)]),
                Some(100.0),
                None,
            ),
            300.0,
        ),
        (
            build(
                mixture(vec![
                    (3.0, Distribution::fixed(100.0)),
                    (1.0, Distribution::uniform(1, 399)),
                ]),
                None,
                None,
            ),
            125.0,
        ),
    ];
    for (drawn, expected) in cases {
        assert!(
            (drawn.mean_length() - expected).abs() < 1e-6,
            "{drawn:?}: {}",
            drawn.mean_length()
        );
    }
    // E[X | X <= b] of a Pareto distribution without a mean: αl/(1 - α) · (b^(1-α) l^(α-1) - 1) / (1 - (l/b)^α).
    let heavy = build(
        Family::Pareto {
            low: 1e9,
            alpha: 0.5,
        },
        None,
        Some(4e9),
    );
    assert!(
        (heavy.mean_time() - 2e9).abs() < 1.0,
        "{}",
        heavy.mean_time()
    );
    let lognormal = build(Family::Lognormal { mean: 2e9, sd: 1e9 }, None, None);
    assert!((lognormal.mean_time() - 2e9).abs() < 1.0);
}

/// A mixture is cut as a whole: its parts keep the shares that they have within the bounds.
#[test]
fn bounds_of_a_mixture_change_the_shares_of_its_parts() {
    let parts = vec![
        (1.0, Distribution::uniform(1, 100)),
        (1.0, Distribution::uniform(1, 1000)),
    ];
    let cut = build(mixture(parts), None, Some(100.0));
    let Family::Mixture(kept) = cut.family() else {
        panic!("{cut:?}")
    };
    let shares: Vec<f64> = kept.shares().map(|(share, _)| share).collect();
    assert!((shares[0] - 10.0 / 11.0).abs() < 1e-12, "{shares:?}");
}

/// Without bounds the draws are those of the plain generators, so that plans of earlier versions keep their lengths.
#[test]
fn draws_without_bounds_are_those_of_the_plain_generators() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut drawn = |family| build(family, None, None).sample(&mut rng);
    let values = [
        drawn(Family::Uniform {
            low: 3.0,
            high: 5000.0,
        }),
        drawn(Family::Normal {
            mean: 500.0,
            sd: 50.0,
        }),
        drawn(Family::Lognormal {
            mean: 500.0,
            sd: 50.0,
        }),
        drawn(Family::Exponential { mean: 500.0 }),
    ];
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let variance = 1.01f64.ln();
    let lognormal = rand_distr::LogNormal::new(500f64.ln() - variance / 2.0, variance.sqrt());
    let plain = [
        rng.random_range(3..=5000u64) as f64,
        rand_distr::Normal::new(500.0, 50.0)
            .unwrap()
            .sample(&mut rng),
        lognormal.unwrap().sample(&mut rng),
        500.0 * rand_distr::Distribution::<f64>::sample(&Exp1, &mut rng),
    ];
    assert_eq!(values, plain);
}

#[test]
fn impossible_distributions_are_errors() {
    let normal = Family::Normal {
        mean: 100.0,
        sd: 1.0,
    };
    let heavy = Family::Pareto {
        low: 5.0,
        alpha: 0.9,
    };
    for (family, min, max, error) in [
        (
            normal.clone(),
            Some(9.0),
            Some(8.0),
            DistributionError::Empty,
        ),
        (normal.clone(), Some(200.0), None, DistributionError::Empty),
        (
            Family::Fixed(5.0),
            Some(6.0),
            None,
            DistributionError::Empty,
        ),
        (
            table(&[(1.0, 5.0, 5.0)]),
            None,
            Some(4.0),
            DistributionError::Empty,
        ),
        (
            mixture(vec![(1.0, Distribution::fixed(5.0))]),
            Some(6.0),
            None,
            DistributionError::Empty,
        ),
        (
            heavy.clone(),
            Some(9.0),
            None,
            DistributionError::InfiniteMean(0.9),
        ),
        (
            Family::Normal {
                mean: 5.0,
                sd: f64::NAN,
            },
            None,
            None,
            DistributionError::Parameters,
        ),
        (
            Family::Lognormal { mean: 0.0, sd: 1.0 },
            None,
            None,
            DistributionError::Parameters,
        ),
        (
            Family::Exponential { mean: 0.0 },
            None,
            None,
            DistributionError::Parameters,
        ),
    ] {
        assert_eq!(Distribution::new(family, min, max), Err(error));
    }
    assert!(Distribution::new(heavy.clone(), None, Some(9.0)).is_ok());
    // The bounds of a mixture are those of its parts.
    let mixed = || {
        let part = Distribution::part(heavy.clone(), None, None).unwrap();
        mixture(vec![(1.0, Distribution::fixed(5.0)), (1.0, part)])
    };
    assert!(Distribution::new(mixed(), None, Some(9.0)).is_ok());
    assert_eq!(
        Distribution::new(mixed(), None, None),
        Err(DistributionError::InfiniteMean(0.9))
    );
    for weights in [[0.0, 0.0], [-1.0, 2.0], [f64::NAN, 1.0]] {
        assert_eq!(
            Weighted::new(weights.map(|weight| (weight, ())).to_vec()),
            None
        );
    }
}

#[test]
fn descriptions_state_the_mean_as_drawn() {
    let lognormal = Family::Lognormal {
        mean: 500.0,
        sd: 300.0,
    };
    let cut = build(lognormal, Some(10.0), Some(2000.0));
    assert_eq!(
        cut.describe(Measure::Tokens),
        "lognormal mean 500 sd 300, 10..2000 (mean 494.8)"
    );
    let wait = build(Family::Exponential { mean: 2e9 }, None, Some(10e9));
    assert_eq!(
        wait.describe(Measure::Time),
        "exponential mean 2s, at most 10s (mean 1.932s)"
    );
    let parts = vec![
        (3.0, Distribution::fixed(100.0)),
        (1.0, Distribution::uniform(1, 399)),
    ];
    assert_eq!(
        build(mixture(parts), None, None).describe(Measure::Tokens),
        "mixture of 75% 100 and 25% uniform 1..399 (mean 125)"
    );
}
