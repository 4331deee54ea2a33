//! The seed from which every random choice of a run derives.

use serde::{Deserialize, Serialize};

/// A seed, and the root of a tree of independent streams: `seed.child("arrivals").child(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(pub u64);

/// The name of a child seed: a string for a purpose, a number for an index.
pub trait Branch {
    /// The branch as 64 bits.
    fn bits(self) -> u64;
}

impl Branch for u64 {
    fn bits(self) -> u64 {
        self
    }
}

impl Branch for &str {
    /// FNV-1a, 64 bits.
    fn bits(self) -> u64 {
        self.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

impl Seed {
    /// Derives a child seed. Equal paths give equal seeds on every machine; different paths give independent ones.
    ///
    /// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    pub fn child(self, branch: impl Branch) -> Seed {
        let mut z = self
            .0
            .wrapping_add(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(branch.bits().wrapping_mul(0xd134_2543_de82_ef95));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Seed(z ^ (z >> 31))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn branches_differ_and_repeat() {
        let root = Seed(42);
        let all: HashSet<u64> = (0..10_000u64)
            .map(|index| root.child("item").child(index).0)
            .collect();
        assert_eq!(all.len(), 10_000);
        assert_eq!(root.child("item").child(7), root.child("item").child(7));
        assert_ne!(root.child("item"), root.child("pace"));
    }
}
