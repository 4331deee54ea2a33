//! Hostile input from seeded generators: damaged files, servers and scenarios.

mod folders;
mod scenarios;
mod servers;
mod sessions;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Number of trials of a campaign: `default` times the number in `LLMSCEN_HOSTILE`.
pub fn trials(default: usize) -> usize {
    let factor = std::env::var("LLMSCEN_HOSTILE")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    default.saturating_mul(factor)
}

/// The generator of a campaign.
pub fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}
