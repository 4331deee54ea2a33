//! How long to wait between two attempts that fail.

use crate::seed::Seed;
use crate::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

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
