//! Hostile input from seeded generators: damaged files, servers and scenarios.

mod scenarios;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// How many trials a campaign has: a small number in CI, more with `LLMSCEN_HOSTILE`.
pub fn trials(default: usize) -> usize {
    let factor = std::env::var("LLMSCEN_HOSTILE").ok().and_then(|factor| factor.parse().ok());
    default * factor.unwrap_or(1)
}

/// The same random numbers for the same seed.
pub fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}
