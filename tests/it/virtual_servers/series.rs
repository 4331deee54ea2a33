//! Requests without a server: log-normal waits whose neighbours are alike by a known correlation, and failures that come in bursts
//! by the same. Their long-run truth is known by formula.

use super::Served;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// An autoregression of first order under a log-normal marginal (a Gaussian copula).
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// Correlation of neighbours.
    pub rho: f64,
}

/// Median and spread of the TTFT and of the gaps, and the score from which on a request fails: one in fifty.
const WAIT: (f64, f64) = (200.0, 0.5);
const GAP: (f64, f64) = (20.0, 0.4);
const FAILS: f64 = 2.053_748_910_631_823;
/// Part of the variance of a gap's logarithm that all gaps of its request share.
const SHARED: f64 = 0.3;
const GAPS: usize = 20;
const PACE_MS: f64 = 100.0;

/// The truth of an objective, whatever the correlation.
pub fn truth(objective: &str) -> Option<f64> {
    const P95: f64 = 1.644_853_626_951_472_6;
    const P99: f64 = 2.326_347_874_040_841;
    let at = |(median, spread): (f64, f64), z: f64| median * (spread * z).exp();
    Some(match objective {
        "ttft.p50" => at(WAIT, 0.0),
        "ttft.p95" => at(WAIT, P95),
        "ttft.p99" => at(WAIT, P99),
        "ttft.mean" => at(WAIT, WAIT.1 / 2.0),
        "itl.p50" => at(GAP, 0.0),
        "itl.p95" => at(GAP, P95),
        "itl.p99" => at(GAP, P99),
        "error_rate" => 0.02,
        _ => return None,
    })
}

/// The requests, in order.
pub fn serve(series: &Series, n: usize, seed: u64) -> Vec<Served> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = move || -> f64 { StandardNormal.sample(&mut rng) };
    let fresh = (1.0 - series.rho * series.rho).sqrt();
    let mut at = [draw(), draw(), draw()];
    let mut rows = Vec::with_capacity(n);
    for place in 0..n {
        for own in &mut at {
            *own = series.rho * *own + fresh * draw();
        }
        let [wait, pace, luck] = at;
        let mut gap =
            || GAP.0 * (GAP.1 * (SHARED.sqrt() * pace + (1.0 - SHARED).sqrt() * draw())).exp();
        let gaps: Vec<f64> = (0..GAPS).map(|_| gap()).collect();
        let ttft_ms = WAIT.0 * (WAIT.1 * wait).exp();
        let e2e_ms = ttft_ms + gaps.iter().sum::<f64>();
        let scheduled_s = place as f64 * PACE_MS / 1e3;
        let (ok, tokens) = (luck < FAILS, GAPS as u32 + 1);
        rows.push(Served {
            scheduled_s,
            ttft_ms,
            e2e_ms,
            ok,
            measured: true,
            prompt: 100,
            tokens,
            gaps,
        });
    }
    rows
}
