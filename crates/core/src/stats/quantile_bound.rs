//! The exact test of "at most this share of samples exceeds the limit", which decides every objective on a quantile
//! or a share.
//!
//! A quantile p is below a limit exactly if at most 1 − p of all requests exceed it, so the order-statistic interval
//! for a quantile (Conover, "Practical Nonparametric Statistics", 3rd edition, section 3.2) and the exact interval
//! for a share (Clopper and Pearson, Biometrika 26, 1934) are one binomial test.

use crate::stats::distributions::score;
use crate::stats::share::{at_least, at_most};

/// Upper limit of the search for a sample size.
const MOST: f64 = 1e7;

/// The decision on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The claim is confirmed at the level.
    Holds,
    /// The claim is refuted at the level.
    Broken,
    /// Undecided.
    Open,
}

/// Decides, at confidence `level`, the claim that at most a share `tail` exceeds the limit, after `breaking` of `n`
/// samples did. Non-integer arguments are effective sample sizes (Korn and Graubard, "Confidence intervals for
/// proportions with small expected number of positive counts estimated from survey data", Survey Methodology 24,
/// 1998).
pub fn decide(n: f64, breaking: f64, tail: f64, level: f64) -> Decision {
    match () {
        () if at_most(n, tail, breaking) <= 1.0 - level => Decision::Holds,
        () if at_least(n, tail, breaking) <= 1.0 - level => Decision::Broken,
        () => Decision::Open,
    }
}

/// Probability that at most a share `tail` exceeds the limit, after `breaking` of `n` samples did: the posterior
/// under Jeffreys' prior, Beta(breaking + ½, n − breaking + ½) (Brown, Cai and DasGupta, "Interval estimation for a
/// binomial proportion", Statistical Science 16, 2001). ½ without samples. Non-integer arguments are effective sample
/// sizes.
pub fn chance(n: f64, breaking: f64, tail: f64) -> f64 {
    if n > 0.0 {
        at_least(n, tail, breaking + 0.5)
    } else {
        0.5
    }
}

/// The maximum number of `n` samples that may exceed the limit while the claim is confirmed. `effect` is the design
/// effect. None if not even zero suffices.
pub fn allowed(n: u64, effect: f64, tail: f64, level: f64) -> Option<u64> {
    let holds = |t: u64| at_most(n as f64 / effect, tail, t as f64 / effect) <= 1.0 - level;
    if n == 0 || !holds(0) {
        return None;
    }
    let (mut good, mut bad) = (0, n);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle) {
            good = middle
        } else {
            bad = middle
        }
    }
    Some(good)
}

/// The smallest n that confirms the claim with `breaking` samples over the limit. None if there is no such n.
pub fn needed(tail: f64, level: f64, breaking: u64) -> Option<u64> {
    let t = breaking as f64;
    least(t + 1.0, 0.0, |n| at_most(n, tail, t) <= 1.0 - level)
}

/// The smallest integer from `n` on that decides the claim if the observed `share` of samples over the limit
/// persists. None if that share equals the claimed one.
pub fn needed_to_decide(n: f64, share: f64, tail: f64, level: f64) -> Option<u64> {
    // Normal approximation, since each exact test of millions of samples is slow.
    let guess = (score(level) / (share - tail)).powi(2) * tail * (1.0 - tail);
    if share < tail {
        least(n, guess, |n| at_most(n, tail, share * n) <= 1.0 - level)
    } else {
        least(n, guess, |n| {
            share > tail && at_least(n, tail, share * n) <= 1.0 - level
        })
    }
}

/// The smallest integer from `start` on that fulfills a monotone condition; `guess` speeds up the search.
fn least(start: f64, guess: f64, enough: impl Fn(f64) -> bool) -> Option<u64> {
    // Bisection of integers terminates.
    let start = start.max(1.0).ceil();
    let (mut low, mut high) = (start - 1.0, start.max((guess / 2.0).floor()));
    if high > MOST {
        return None;
    }
    while !enough(high) {
        (low, high) = (high, high * 2.0);
        if high > MOST {
            return None;
        }
    }
    while high - low > 1.0 {
        let middle = ((low + high) / 2.0).floor();
        if enough(middle) {
            high = middle
        } else {
            low = middle
        }
    }
    Some(high as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn the_known_sample_sizes() {
        let sizes = |p: f64, over| [0.95, 0.99].map(|level| needed(1.0 - p, level, over).unwrap());
        assert_eq!(sizes(0.90, 0), [29, 44]);
        assert_eq!(sizes(0.95, 0), [59, 90]);
        assert_eq!(sizes(0.99, 0), [299, 459]);
        assert_eq!(sizes(0.99, 1), [473, 662]);
        assert_eq!(needed(0.0, 0.95, 0), None);
    }

    #[test]
    fn one_sample_less_leaves_it_open() {
        assert_eq!(decide(299.0, 0.0, 0.01, 0.95), Decision::Holds);
        assert_eq!(decide(298.0, 0.0, 0.01, 0.95), Decision::Open);
        assert_eq!(decide(473.0, 1.0, 0.01, 0.95), Decision::Holds);
        assert_eq!(decide(472.0, 1.0, 0.01, 0.95), Decision::Open);
        assert_eq!(
            (
                allowed(298, 1.0, 0.01, 0.95),
                allowed(299, 1.0, 0.01, 0.95),
                allowed(473, 1.0, 0.01, 0.95)
            ),
            (None, Some(0), Some(1))
        );
        // 1 − 0.99⁵ = 0.049: a single slow one of five already refutes p99.
        assert_eq!(
            (decide(5.0, 1.0, 0.01, 0.95), decide(6.0, 1.0, 0.01, 0.95)),
            (Decision::Broken, Decision::Open)
        );
        assert_eq!(decide(0.0, 0.0, 0.01, 0.95), Decision::Open);
    }

    #[test]
    fn needed_samples_follow_from_the_observed_share() {
        assert_eq!(needed_to_decide(100.0, 0.0, 0.01, 0.95), Some(299));
        assert_eq!(needed_to_decide(100.0, 0.01, 0.01, 0.95), None);
        let more = needed_to_decide(100.0, 0.05, 0.10, 0.95).unwrap();
        assert!(
            decide(more as f64, (more / 20) as f64, 0.10, 0.95) == Decision::Holds && more > 100,
            "{more}"
        );
        let worse = needed_to_decide(40.0, 0.15, 0.10, 0.95).unwrap();
        assert!(
            decide(worse as f64, (worse * 6).div_ceil(40) as f64, 0.10, 0.95) == Decision::Broken
                && worse > 40,
            "{worse}"
        );
    }

    #[test]
    fn the_search_for_a_number_ends_wherever_it_begins() {
        for start in 0..2000 {
            let n = 20.0 + f64::from(start) * 0.0371;
            for share in [0.0, 0.03, 0.049, 0.051, 0.08] {
                let more = needed_to_decide(n, share, 0.05, 0.95).unwrap() as f64;
                let decided = |n: f64| decide(n, share * n, 0.05, 0.95) != Decision::Open;
                assert!(
                    more >= n && decided(more) && (more - 1.0 < n || !decided(more - 1.0)),
                    "{n} {share}: {more}"
                );
            }
        }
    }

    #[test]
    fn the_chance_of_a_claim_lies_between_its_two_exact_tests() {
        for (n, t) in [
            (59.0, 0.0),
            (200.0, 9.0),
            (200.0, 10.0),
            (200.0, 15.0),
            (40.0, 40.0),
        ] {
            let chance = chance(n, t, 0.05);
            let (lower, upper) = (at_least(n, 0.05, t + 1.0), at_least(n, 0.05, t));
            assert!(
                lower <= chance && chance <= upper,
                "{n} {t}: {lower} {chance} {upper}"
            );
        }
        // The density of Beta(9.5, 191.5) summed from 0 to 0.05 by the midpoint rule.
        assert!(
            (chance(200.0, 9.0, 0.05) - 0.610072).abs() < 1e-6,
            "{}",
            chance(200.0, 9.0, 0.05)
        );
        assert_eq!(chance(0.0, 0.0, 0.05), 0.5);
    }

    #[test]
    fn a_false_claim_passes_no_more_often_than_allowed() {
        // True share 10 %, claimed to be at most 10 % less a hair: the worst case for both errors.
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        let mut wrong = [0; 2];
        for _ in 0..2000 {
            let t = (0..150)
                .filter(|_| rng.random_range(0.0..1.0) < 0.1)
                .count() as f64;
            let decision = decide(150.0, t, 0.1, 0.95);
            wrong[0] += u32::from(decision == Decision::Holds);
            wrong[1] += u32::from(decision == Decision::Broken);
        }
        // 5 % of 2000 is 100; three standard deviations are 29.
        assert!(
            wrong.iter().all(|&count| (30..=129).contains(&count)),
            "{wrong:?}"
        );
    }

    proptest! {
        #[test]
        fn allowed_agrees_with_decide(
            n in 1u64..2000, effect in 1.0..9.0f64, tail in 0.001..0.5f64, level in 0.6..0.999f64,
        ) {
            let most = allowed(n, effect, tail, level);
            let holds = |t: u64| decide(n as f64 / effect, t as f64 / effect, tail, level) == Decision::Holds;
            prop_assert_eq!(most.is_none(), !holds(0));
            if let Some(most) = most {
                prop_assert!(holds(most) && !holds(most + 1));
            }
        }
    }
}
