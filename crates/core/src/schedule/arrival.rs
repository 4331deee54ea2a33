//! Arrival processes: infinite, never decreasing sequences of scheduled times.

use crate::load::Arrival;
use crate::seed::Seed;
use crate::units::Nanos;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, Gamma};

/// The scheduled times of an open loop, counted from the start of the case.
///
/// Times do not depend on when earlier requests were sent, so send delays cannot lower the rate. A Poisson sequence
/// is not rescaled to end at n / rate.
pub struct Arrivals {
    gaps: Gaps,
    index: u64,
    seconds: f64,
}

enum Gaps {
    Equal { rate: f64 },
    Exponential { rate: f64, rng: ChaCha8Rng },
    Gamma { gamma: Gamma<f64>, rng: ChaCha8Rng },
}

impl Arrivals {
    /// Arrivals at `rate` per second on average; `rate` is finite and above zero, and so is a gamma's burstiness.
    ///
    /// A gamma gap has shape `burstiness` and scale `1 / (rate × burstiness)`: mean 1 / rate, and a squared
    /// coefficient of variation of 1 / burstiness. An invalid shape falls back to Poisson; scenario validation
    /// rejects it before.
    pub fn new(rate: f64, arrival: Arrival, seed: Seed) -> Arrivals {
        let rng = ChaCha8Rng::seed_from_u64(seed.child("arrivals").0);
        let gaps = match arrival {
            Arrival::Constant => Gaps::Equal { rate },
            Arrival::Poisson => Gaps::Exponential { rate, rng },
            Arrival::Gamma { burstiness } => {
                match Gamma::new(burstiness, 1.0 / (rate * burstiness)) {
                    Ok(gamma) => Gaps::Gamma { gamma, rng },
                    Err(_) => Gaps::Exponential { rate, rng },
                }
            }
        };
        Arrivals {
            gaps,
            index: 0,
            seconds: 0.0,
        }
    }

    /// The next scheduled time in seconds. The first constant arrival is at zero, the first random one after its
    /// first gap.
    pub(super) fn seconds(&mut self) -> f64 {
        match &mut self.gaps {
            Gaps::Equal { rate } => self.seconds = self.index as f64 / *rate,
            Gaps::Exponential { rate, rng } => {
                let gap: f64 = Exp1.sample(rng);
                self.seconds += gap / *rate;
            }
            Gaps::Gamma { gamma, rng } => self.seconds += gamma.sample(rng),
        }
        self.index += 1;
        self.seconds
    }
}

impl Iterator for Arrivals {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        Some(Nanos::from_secs_f64(self.seconds()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(rate: f64, arrival: Arrival, seed: u64, n: usize) -> Vec<f64> {
        let due: Vec<Nanos> = Arrivals::new(rate, arrival, Seed(seed)).take(n).collect();
        std::iter::once(&Nanos::ZERO)
            .chain(&due)
            .zip(&due)
            .map(|(a, b)| b.since(*a).secs())
            .collect()
    }

    /// D_n × √n of the gaps against the exponential of this rate; 2.03 is the 0.05 % point (Kolmogorov),
    /// which makes 20 seeds together a test at the 1 % level.
    fn kolmogorov(mut gaps: Vec<f64>, rate: f64) -> f64 {
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let distance = gaps.iter().enumerate().map(|(i, gap)| {
            let cdf = 1.0 - (-rate * gap).exp();
            (cdf - i as f64 / n)
                .abs()
                .max(((i + 1) as f64 / n - cdf).abs())
        });
        distance.fold(0.0, f64::max) * n.sqrt()
    }

    #[test]
    fn poisson_gaps_are_exponential_and_gamma_ones_are_not() {
        for seed in 1..=20 {
            assert!(
                kolmogorov(gaps(200.0, Arrival::Poisson, seed, 2000), 200.0) < 2.03,
                "seed {seed}"
            );
            assert!(
                kolmogorov(
                    gaps(200.0, Arrival::Gamma { burstiness: 0.3 }, seed, 2000),
                    200.0
                ) > 3.0,
                "seed {seed}"
            );
        }
    }

    #[test]
    fn ten_seconds_at_200_a_second_hold_about_2000_arrivals() {
        let counts = (1..=50).map(|seed| {
            Arrivals::new(200.0, Arrival::Poisson, Seed(seed))
                .take_while(|due| *due < Nanos::from_millis(10_000))
                .count()
        });
        let counts: Vec<usize> = counts.collect();
        assert!(
            counts.iter().all(|&n| (1800..2200).contains(&n)),
            "{counts:?}"
        );
        let mean = counts.iter().sum::<usize>() as f64 / 50.0;
        assert!((mean - 2000.0).abs() < 20.0, "{mean}");
        assert!(
            counts.iter().any(|&n| n != 2000),
            "a Poisson count varies: nothing is rescaled"
        );
    }

    #[test]
    fn constant_is_constant_and_does_not_drift() {
        let due: Vec<Nanos> = Arrivals::new(3.0, Arrival::Constant, Seed(1))
            .take(3_000_001)
            .collect();
        assert_eq!(due[0], Nanos::ZERO);
        assert_eq!(due[3_000_000], Nanos::from_millis(1_000_000_000));
    }

    #[test]
    fn gamma_gaps_have_the_requested_mean_and_variation() {
        for burstiness in [0.25, 1.0, 4.0] {
            let gaps = gaps(10.0, Arrival::Gamma { burstiness }, 7, 100_000);
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance =
                gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((mean - 0.1).abs() < 0.002, "{mean}");
            assert!((variance / mean.powi(2) * burstiness - 1.0).abs() < 0.05);
        }
    }

    #[test]
    fn a_seed_repeats_and_times_never_decrease() {
        let draw = |seed| {
            Arrivals::new(50.0, Arrival::Poisson, Seed(seed))
                .take(500)
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(1).is_sorted());
    }
}
