//! An order drawn from a seed, without a list of it.

use llmscen_core::seed::Seed;

/// Rounds of the network; four make a pseudo-random permutation of a good round function (Luby and Rackoff, "How to
/// construct pseudorandom permutations from pseudorandom functions", 1988).
const ROUNDS: u64 = 4;

/// Where `index` comes in a permutation of `0..len` that is drawn from `seed`: a Feistel network over the next power of
/// four, walked until it stays inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). An `index` at
/// or above `len` is taken modulo `len`; `len` 0 gives 0.
pub fn permuted(index: u64, len: u64, seed: Seed) -> u64 {
    if len < 2 {
        return 0;
    }
    let half = (u64::BITS - (len - 1).leading_zeros()).div_ceil(2);
    let mask = (1u64 << half) - 1;
    let mut at = index % len;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (seed.child(round).child(right).0 & mask));
        }
        at = (left << half) | right;
        if at < len {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_taken_once_and_the_seed_decides() {
        for len in [1u64, 2, 3, 4, 5, 16, 17, 1000] {
            let order = |seed| (0..len).map(|index| permuted(index, len, Seed(seed))).collect::<Vec<_>>();
            let mut sorted = order(1);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..len), "{len}");
            assert_eq!(order(1), order(1));
            assert!(len < 1000 || order(1) != order(2));
        }
        let fixed = (0..1000u64).filter(|&index| permuted(index, 1000, Seed(1)) == index).count();
        assert!(fixed < 10, "{fixed} of 1000 stay where they are");
        assert!(permuted(u64::MAX, u64::MAX, Seed(1)) < u64::MAX);
    }
}
