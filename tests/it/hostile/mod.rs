//! Hostile input from seeded generators: damaged files, servers and scenarios.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

mod folders;

/// How many trials a campaign makes: `default`, times `LLMSCEN_HOSTILE` where that is set.
pub fn trials(default: usize) -> usize {
    default * std::env::var("LLMSCEN_HOSTILE").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

/// The random numbers of a trial.
pub fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}
