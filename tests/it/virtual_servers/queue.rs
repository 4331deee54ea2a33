//! M/G/k: Poisson arrivals, k equal servers, log-normal service, first come first served.

use super::Served;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

/// A queue that starts empty.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    pub servers: usize,
    /// Share of the time that each server works.
    pub busy: f64,
}

/// Mean of the service in milliseconds, and the spread of its logarithm.
const SERVICE: (f64, f64) = (1000.0, 0.8);
/// Part of the service before the first token, and tokens.
const FIRST: f64 = 0.1;
const TOKENS: u32 = 10;

/// Arrivals per second.
pub fn rate(queue: &Queue) -> f64 {
    queue.busy * queue.servers as f64 * 1e3 / SERVICE.0
}

/// The requests, in the order of their arrival.
pub fn serve(queue: &Queue, n: usize, seed: u64) -> Vec<Served> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut free = vec![0.0f64; queue.servers];
    let mut now = 0.0;
    let median = SERVICE.0 * (-SERVICE.1 * SERVICE.1 / 2.0).exp();
    let mut one = || {
        let gap: f64 = Exp1.sample(&mut rng);
        now += gap * 1e3 / rate(queue);
        let z: f64 = StandardNormal.sample(&mut rng);
        let service = median * (SERVICE.1 * z).exp();
        let first = (0..free.len())
            .min_by(|&a, &b| free[a].total_cmp(&free[b]))
            .unwrap_or_default();
        let start = free[first].max(now);
        free[first] = start + service;
        let (ttft_ms, e2e_ms) = (start + FIRST * service - now, start + service - now);
        let gaps = vec![(1.0 - FIRST) * service / f64::from(TOKENS - 1); TOKENS as usize - 1];
        Served {
            scheduled_s: now / 1e3,
            ttft_ms,
            e2e_ms,
            ok: true,
            measured: true,
            prompt: 100,
            tokens: TOKENS,
            gaps,
        }
    };
    (0..n).map(|_| one()).collect()
}
