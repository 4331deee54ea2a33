//! Random delays between requests: think time between the turns of a session, and backoff after a failed attempt.

use crate::distribution::Distribution;
use crate::seed::Seed;
use crate::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The think time before turn `turn` of session `seq`; determined by the arguments.
pub fn sample_think_time(time: &Distribution, seed: Seed, seq: u64, turn: u32) -> Nanos {
    let mut rng =
        ChaCha8Rng::seed_from_u64(seed.child("think_time").child(seq).child(u64::from(turn)).0);
    // The conversion turns negative values into zero.
    Nanos(time.sample(&mut rng).round() as u64)
}

/// Maximum pause of a user after the first failed connection; it doubles up to `LONGEST`. Short enough to resume soon
/// after a restart, long enough for at most five connections in three seconds, which is 100 per minute.
const FIRST: Nanos = Nanos(250_000_000);
const LONGEST: Nanos = Nanos(5_000_000_000);

/// Exponential backoff with jitter: `first` doubles with every attempt up to `longest`, and the pause is uniform
/// between half of that and all of it, so that requests refused together are not retried together.
pub fn exponential_backoff(first: Nanos, longest: Nanos, attempts: u32, seed: Seed) -> Nanos {
    let factor = 1u64
        .checked_shl(attempts.saturating_sub(1))
        .unwrap_or(u64::MAX);
    let maximum = first.0.saturating_mul(factor).min(longest.0);
    Nanos(ChaCha8Rng::seed_from_u64(seed.0).random_range(maximum / 2..=maximum))
}

/// The pause of a closed-loop user after `failed` consecutive failed connections.
pub fn connect_backoff(failed: u32, seed: Seed) -> Nanos {
    exponential_backoff(FIRST, LONGEST, failed, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Family;

    const MEAN: Nanos = Nanos::from_millis(200);

    fn exponential() -> Distribution {
        let mean = MEAN.0 as f64;
        Distribution::new(Family::Exponential { mean }, None, None).unwrap()
    }

    fn mean(delay: &Distribution) -> f64 {
        (0..20_000)
            .map(|seq| sample_think_time(delay, Seed(7), seq, 1).millis())
            .sum::<f64>()
            / 20_000.0
    }

    #[test]
    fn each_distribution_has_its_mean() {
        let fixed = Distribution::time(MEAN);
        assert_eq!(sample_think_time(&fixed, Seed(7), 3, 1), MEAN);
        assert!((mean(&Distribution::uniform(0, MEAN.0)) - 100.0).abs() < 2.0);
        assert!((mean(&exponential()) - 200.0).abs() < 5.0);
        let uniform = Distribution::uniform(5, 7);
        assert!(
            (0..100).all(|seq| (5..=7).contains(&sample_think_time(&uniform, Seed(7), seq, 1).0))
        );
        assert_eq!(
            sample_think_time(&Distribution::uniform(MEAN.0, MEAN.0), Seed(7), 3, 1),
            MEAN
        );
    }

    #[test]
    fn think_times_are_determined_by_seed_session_and_turn() {
        let sample = |seed, seq, turn| sample_think_time(&exponential(), Seed(seed), seq, turn);
        assert_eq!(sample(1, 2, 3), sample(1, 2, 3));
        let others = [sample(2, 2, 3), sample(1, 3, 3), sample(1, 2, 4)];
        assert!(others.iter().all(|other| *other != sample(1, 2, 3)));
    }

    /// The connection times of a user within one minute, to a server that refuses at once.
    fn connects(user: u64) -> Vec<Nanos> {
        let mut now = Nanos::ZERO;
        let mut all = Vec::new();
        while now < Nanos::from_millis(60_000) {
            all.push(now);
            let failed = all.len() as u32;
            now = now + connect_backoff(failed, Seed(user).child(u64::from(failed)));
        }
        all
    }

    #[test]
    fn a_user_opens_few_connections_per_minute_to_a_refusing_server() {
        for user in 0..200 {
            let all = connects(user);
            assert!((15..=30).contains(&all.len()), "{}", all.len());
            // At most 100 per minute, even at first; and a restarted server is retried soon.
            assert!(all[5] >= Nanos::from_millis(3000), "{:?}", all[5]);
            assert!(all[3] <= Nanos::from_millis(1750), "{:?}", all[3]);
        }
    }

    #[test]
    fn pauses_double_from_a_quarter_of_a_second_to_five_seconds_and_repeat() {
        for seed in 0..100 {
            let pause = |failed| connect_backoff(failed, Seed(seed)).millis();
            for failed in 1..=5 {
                let most = f64::from(250 << (failed - 1));
                assert!(
                    (most / 2.0..=most).contains(&pause(failed)),
                    "{failed}: {}",
                    pause(failed)
                );
            }
            assert!(
                [6, 100, u32::MAX]
                    .iter()
                    .all(|&failed| (2500.0..=5000.0).contains(&pause(failed)))
            );
            assert_eq!(pause(3), pause(3));
        }
        assert_ne!(connect_backoff(1, Seed(1)), connect_backoff(1, Seed(2)));
    }
}
