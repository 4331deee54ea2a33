//! Arrivals at a changing rate: a process of rate 1 with rescaled time.
//!
//! Let u₁ ≤ u₂ ≤ … be arrivals of mean rate 1 (Poisson, equal gaps or gamma, as [`Arrivals`] draws them) and Λ(t) =
//! ∫₀ᵗ r(s) ds the area under the rate. The arrivals tₖ = Λ⁻¹(uₖ) then have the rate r(t): between t and t + dt the
//! unit process passes through r(t)·dt of its own time. For a Poisson process this is the time-rescaling theorem: the
//! tₖ are an inhomogeneous Poisson process of rate r, and the Λ(tₖ) − Λ(tₖ₋₁) are independent and exponential of mean
//! 1.
//!
//! Λ never decreases and is defined piecewise per stage, so it is inverted within the stage that contains u, for v =
//! u − Λ(start):
//!
//! * flat: t = v / a
//! * ramp, slope s = (b − a)/d: the root of a·t + s·t²/2 = v within the stage is t = 2v / (a + √(a² + 2sv)). The
//!   usual form (−a + √…)/s would subtract nearly equal numbers for small s and divide by zero for s = 0. The
//!   radicand is r(t)² ≥ 0, up to rounding.
//! * sine: Λ has no closed inverse. It lies between m·t and m·t + A·P/π, which brackets the root; a Newton step (v −
//!   Λ(t))/r(t) is used if it stays inside the bracket, otherwise a bisection.
//!
//! Where Λ is constant because the rate is 0, the inverse is the end of that interval. An arrival at the boundary of
//! two stages belongs to the later one, as in a count over `[from, until)`.

use crate::load::Arrival;
use crate::schedule::arrival::Arrivals;
use crate::seed::Seed;
#[cfg(test)]
use crate::stage::bounds;
use crate::stage::{RateProfile, RateStage};
use crate::units::Nanos;
use std::f64::consts::{PI, TAU};
use std::sync::Arc;

/// Bisections that determine a root to less than a nanosecond, even for a bracket of a thousand years.
const HALVINGS: u32 = 90;

/// The scheduled times of an open loop with stages, counted from the start of the case, up to the end of the last
/// stage.
pub struct Staged {
    unit: Arrivals,
    stages: Arc<[RateStage]>,
    /// The current stage: its index, its start, and Λ at its start.
    at: (usize, Nanos, f64),
}

impl Staged {
    /// The arrivals of these stages.
    pub fn new(stages: Arc<[RateStage]>, arrival: Arrival, seed: Seed) -> Staged {
        Staged {
            unit: Arrivals::new(1.0, arrival, seed),
            stages,
            at: (0, Nanos::ZERO, 0.0),
        }
    }
}

impl Iterator for Staged {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        let due = self.unit.seconds();
        loop {
            let (index, from, area) = self.at;
            let stage = self.stages.get(index)?;
            let total = stage.total();
            // A time that rounds to the end of the stage belongs to the next stage.
            let within = (due < area + total)
                .then(|| Nanos::from_secs_f64(inverse(stage, (due - area).max(0.0))));
            match within.filter(|&within| within < stage.span) {
                Some(within) => return Some(from + within),
                None => self.at = (index + 1, from + stage.span, area + total),
            }
        }
    }
}

/// The time t in seconds at which Λ(t) = `v` within a stage, for 0 ≤ `v` < its total.
fn inverse(stage: &RateStage, v: f64) -> f64 {
    let length = stage.span.secs();
    match stage.rate {
        _ if v == 0.0 => 0.0,
        RateProfile::Flat(rate) => v / rate,
        RateProfile::Ramp { from, to } => {
            let slope = (to - from) / length;
            2.0 * v / (from + (from * from + 2.0 * slope * v).max(0.0).sqrt())
        }
        RateProfile::Sine {
            mean,
            amplitude,
            period,
        } => {
            let rate = |t: f64| mean + amplitude * (TAU * t / period.secs()).sin();
            let lowest = (v - amplitude * period.secs() / PI) / mean;
            root(v, lowest.max(0.0), (v / mean).min(length), |t| {
                (stage.area(t), rate(t))
            })
        }
    }
}

/// Solves f(t) = `v` within the bracket `low..high`. `function` returns the value and the slope of an increasing f.
fn root(v: f64, mut low: f64, mut high: f64, function: impl Fn(f64) -> (f64, f64)) -> f64 {
    let mut t = 0.5 * (low + high);
    for _ in 0..HALVINGS {
        let (value, slope) = function(t);
        if value < v {
            low = t
        } else {
            high = t
        }
        let newton = t + (v - value) / slope;
        let next = if newton > low && newton < high {
            newton
        } else {
            0.5 * (low + high)
        };
        // A tenth of a nanosecond is below the rounding of the result.
        if (next - t).abs() < 1e-10 {
            return next;
        }
        t = next;
    }
    t
}

/// Λ at an instant: the arrivals expected before it.
#[cfg(test)]
fn area(stages: &[RateStage], at: Nanos) -> f64 {
    bounds(stages.iter().map(|stage| stage.span))
        .zip(stages)
        .map(|((from, _), stage)| stage.area(at.since(from).secs()))
        .sum()
}

#[cfg(test)]
mod tests;
