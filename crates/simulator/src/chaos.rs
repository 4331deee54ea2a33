//! Fault injection: which fault a request gets, determined by the seed and the request number.

use llmscen_core::seed::Seed;
use llmscen_core::simulator::Faults;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A fault. A request gets at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strike {
    /// An error status instead of a response.
    Error,
    /// The connection is reset.
    Reset,
    /// A pause; then the response continues.
    Stall,
    /// The stream ends properly, but early.
    Truncate,
    /// An error event in the stream.
    StreamError,
}

/// The fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// The fault, if any.
    pub(super) strike: Option<Strike>,
    /// Number of tokens sent before the fault: at least 1, and fewer than all; 0 for a response with one token.
    pub(super) after: u64,
}

/// The fault of request `number`, whose response has `output` tokens.
pub(super) fn fate(faults: &Faults, seed: Seed, number: u64, output: u64) -> Fate {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.child("chaos").child(number).0);
    let mut draw: f64 = rng.random();
    let shares = [
        (faults.error, Strike::Error),
        (faults.reset, Strike::Reset),
        (faults.stall, Strike::Stall),
        (faults.truncate, Strike::Truncate),
        (faults.stream_error, Strike::StreamError),
    ];
    let hit = shares.into_iter().find(|(share, _)| {
        let hit = draw < *share;
        draw -= share;
        hit
    });
    let after = if output > 1 {
        rng.random_range(1..output)
    } else {
        0
    };
    Fate {
        strike: hit.map(|(_, strike)| strike),
        after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(faults: &Faults, seed: u64, strike: Option<Strike>) -> usize {
        (0..10_000)
            .filter(|&number| fate(faults, Seed(seed), number, 10).strike == strike)
            .count()
    }

    #[test]
    fn each_fault_strikes_its_share_and_they_exclude_one_another() {
        let faults = Faults {
            error: 0.1,
            reset: 0.05,
            stall: 0.2,
            truncate: 0.15,
            stream_error: 0.3,
            ..Faults::default()
        };
        let shares = [
            (Some(Strike::Error), 0.1),
            (Some(Strike::Reset), 0.05),
            (Some(Strike::Stall), 0.2),
            (Some(Strike::Truncate), 0.15),
            (Some(Strike::StreamError), 0.3),
            (None, 0.2),
        ];
        for (strike, share) in shares {
            let seen = count(&faults, 5, strike) as f64 / 10_000.0;
            assert!((seen - share).abs() < 0.015, "{strike:?}: {seen}");
        }
        assert_eq!(count(&Faults::default(), 5, None), 10_000);
        assert_eq!(
            count(
                &Faults {
                    reset: 1.0,
                    ..Faults::default()
                },
                5,
                Some(Strike::Reset)
            ),
            10_000
        );
    }

    #[test]
    fn fate_depends_on_seed_and_number_alone() {
        let faults = Faults {
            reset: 0.5,
            ..Faults::default()
        };
        let all = |seed| {
            (0..200)
                .map(|number| fate(&faults, Seed(seed), number, 50))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert!(all(1).iter().all(|fate| (1..50).contains(&fate.after)));
        assert_eq!(fate(&faults, Seed(1), 0, 1).after, 0);
    }
}
