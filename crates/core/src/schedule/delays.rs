//! Random delays between requests: think time between the turns of a session, and backoff after a failed attempt.

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

/// The pause of a user after the first connection that failed, at most; later pauses double up to `LONGEST`. So short that a user
/// is back soon after a restart, so long that no three seconds have more than five connections, 100 a minute.
const FIRST: Nanos = Nanos(250_000_000);
const LONGEST: Nanos = Nanos(5_000_000_000);

/// A pause that doubles with every attempt, up to `longest`: drawn between a half and the whole of that, so that requests
/// refused together do not come back together.
pub fn doubling(first: Nanos, longest: Nanos, attempts: u32, seed: Seed) -> Nanos {
    let factor = 1u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
    let most = first.0.saturating_mul(factor).min(longest.0);
    Nanos(ChaCha8Rng::seed_from_u64(seed.0).random_range(most / 2..=most))
}

/// How long a user of a closed loop waits after so many connections in a row that failed.
pub fn after_failed_connects(failed: u32, seed: Seed) -> Nanos {
    doubling(FIRST, LONGEST, failed, seed)
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

    /// The instants at which a user connects in a minute of virtual time to a server that refuses at once.
    fn connects(user: u64) -> Vec<Nanos> {
        let mut now = Nanos::ZERO;
        let mut all = Vec::new();
        while now < Nanos::from_millis(60_000) {
            all.push(now);
            let failed = all.len() as u32;
            now = now + after_failed_connects(failed, Seed(user).child(u64::from(failed)));
        }
        all
    }

    #[test]
    fn a_user_sends_few_connections_a_minute_to_a_server_that_refuses() {
        for user in 0..200 {
            let all = connects(user);
            assert!((15..=30).contains(&all.len()), "{}", all.len());
            // Never more than 100 a minute, not even at first; and a server that restarts is found again soon.
            assert!(all[5] >= Nanos::from_millis(3000), "{:?}", all[5]);
            assert!(all[3] <= Nanos::from_millis(1750), "{:?}", all[3]);
        }
    }

    #[test]
    fn pauses_double_from_a_quarter_of_a_second_to_five_seconds_and_repeat() {
        for seed in 0..100 {
            let pause = |failed| after_failed_connects(failed, Seed(seed)).millis();
            for failed in 1..=5 {
                let most = f64::from(250 << (failed - 1));
                assert!((most / 2.0..=most).contains(&pause(failed)), "{failed}: {}", pause(failed));
            }
            assert!([6, 100, u32::MAX].iter().all(|&failed| (2500.0..=5000.0).contains(&pause(failed))));
            assert_eq!(pause(3), pause(3));
        }
        assert_ne!(after_failed_connects(1, Seed(1)), after_failed_connects(1, Seed(2)));
    }
}
