//! The time between a reply and the next turn of its session.

use crate::dataset::Wait;
use crate::seed::Seed;
use crate::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};

/// The wait before turn `turn` of session `seq`: the same seed and numbers give the same one, whatever the server does.
pub fn wait(wait: Wait, seed: Seed, seq: u64, turn: u32) -> Nanos {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.child("think_time").child(seq).child(u64::from(turn)).0);
    match wait {
        Wait::Fixed(span) => span,
        Wait::Uniform(low, high) => Nanos(rng.random_range(low.0..=high.0.max(low.0))),
        Wait::Exponential(mean) => {
            let times: f64 = Exp1.sample(&mut rng);
            Nanos((mean.0 as f64 * times).round() as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: Nanos = Nanos::from_millis(200);

    fn mean(of: Wait) -> f64 {
        (0..20_000).map(|seq| wait(of, Seed(7), seq, 1).millis()).sum::<f64>() / 20_000.0
    }

    #[test]
    fn each_kind_has_the_mean_it_names() {
        assert_eq!(wait(Wait::Fixed(MEAN), Seed(7), 3, 1), MEAN);
        assert!((mean(Wait::Uniform(Nanos::ZERO, MEAN)) - 100.0).abs() < 2.0);
        assert!((mean(Wait::Exponential(MEAN)) - 200.0).abs() < 5.0);
        let uniform = Wait::Uniform(Nanos(5), Nanos(7));
        assert!((0..100).all(|seq| (5..=7).contains(&wait(uniform, Seed(7), seq, 1).0)));
        assert_eq!(wait(Wait::Uniform(MEAN, MEAN), Seed(7), 3, 1), MEAN);
    }

    #[test]
    fn a_wait_belongs_to_its_session_and_turn() {
        let of = |seed, seq, turn| wait(Wait::Exponential(MEAN), Seed(seed), seq, turn);
        assert_eq!(of(1, 2, 3), of(1, 2, 3));
        let others = [of(2, 2, 3), of(1, 3, 3), of(1, 2, 4)];
        assert!(others.iter().all(|other| *other != of(1, 2, 3)));
    }
}
