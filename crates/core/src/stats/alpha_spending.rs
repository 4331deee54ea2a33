//! Looking at a sample while it grows, without being fooled by looking often.

use crate::stats::binomial_tail::at_least;

/// The first look.
const FIRST: u64 = 16;

/// Looks at doubling sample sizes, for a claim that can be given up early.
///
/// The k-th look, at 16 · 2ᵏ samples, may be wrong with probability α / 2ᵏ⁺¹ by the exact binomial test of [`super::quantile_bound`]. All
/// looks together are wrong with α at the most, whatever their number, by Boole's inequality: Σ α / 2ᵏ⁺¹ ≤ α. (Bonferroni's
/// spending with geometric shares; Jennison and Turnbull, "Group Sequential Methods", 2000, chapter 7.)
#[derive(Clone, Debug)]
pub struct Looks {
    alpha: f64,
    next: u64,
}

impl Looks {
    /// Looks that are wrong with probability `alpha` at the most, 0 < alpha < 1.
    pub fn new(alpha: f64) -> Looks {
        Looks { alpha: alpha / 2.0, next: FIRST }
    }

    /// Whether the claim that a share `tail` at the most breaks the limit is refuted, by `breaking` of `n` samples. Between
    /// two looks it never is.
    pub fn refute(&mut self, n: u64, breaking: u64, tail: f64) -> bool {
        if n < self.next {
            return false;
        }
        let refuted = at_least(n as f64, tail, breaking as f64) <= self.alpha;
        while self.next <= n {
            self.next *= 2;
            self.alpha /= 2.0;
        }
        refuted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    fn refuted_at(share: f64, tail: f64, most: u64, rng: &mut rand_chacha::ChaCha8Rng) -> Option<u64> {
        let (mut looks, mut breaking) = (Looks::new(0.01), 0);
        (1..=most).find(|&n| {
            breaking += u64::from(rng.random_range(0.0..1.0) < share);
            looks.refute(n, breaking, tail)
        })
    }

    #[test]
    fn a_claim_that_holds_is_refuted_no_more_often_than_allowed() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let wrong = (0..3000).filter(|_| refuted_at(0.05, 0.05, 1024, &mut rng).is_some()).count();
        assert!((1..=30).contains(&wrong), "{wrong} of 3000, where 30 are allowed");
    }

    #[test]
    fn a_hopeless_one_is_given_up_at_the_first_look() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let early = (0..100).filter(|_| refuted_at(0.9, 0.05, 1024, &mut rng) == Some(16)).count();
        assert_eq!(early, 100);
        assert_eq!(refuted_at(1.0, 0.05, 15, &mut rng), None, "no look, no ruling");
    }
}
