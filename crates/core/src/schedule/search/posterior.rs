//! The posterior distribution of the pass/fail boundary over the grid.
//!
//! Position `k` means that the first `k` grid values pass and the others fail. The outcome of a probe depends on its
//! distance from the boundary (`edge`): its score z, from n requests, is normal with mean `s √n ln(edge / load)`, the
//! model of probit analysis (Finney, "Probit Analysis", 3rd edition, 1971). The steepness `s` is unknown, and so is
//! the standard deviation of z: probes of one load differ by more than their own requests show if queues are
//! correlated for longer than a probe. Both are averaged over, as in Kontsevich and Tyler, "Bayesian adaptive
//! estimation of psychometric slope and threshold", Vision Research 39 (1999), so that contradictory probes widen the
//! interval, and many weak probes near a flat transition do not add up to certainty.

use crate::search::Evidence;
use crate::stats::distributions::{density, pooled, probability, score};

/// Score of [`super::PASSES`], rounded down so that a probe of exactly that probability passes. Beyond it only the
/// side counts: far from the boundary a share is limited by 0, and the model ends.
const CERTAIN: f64 = 1.6448536;
/// Probability that a probe is an outlier, whatever its number of requests.
const LAPSE: f64 = 0.02;
/// Maximum absolute score of one probe.
const MOST: f64 = 4.0;
/// Steepness of the transition, in scores per √request and factor e of the load: `SLOPES` doublings from the flattest.
const FLATTEST: f64 = 0.1;
const SLOPES: i32 = 11;
/// Standard deviations of the scores of probes at one load. Independent requests imply 1; 1.2 to 2.4 was measured.
const SPREADS: [f64; 3] = [1.25, 2.5, 5.0];
/// Width of the positions beyond both ends of the range: one doubling.
const OUTSIDE: f64 = std::f64::consts::LN_2;

/// The posterior density and the probes.
#[derive(Clone, Debug)]
pub(super) struct Posterior {
    /// Logarithms of the grid values, and of the boundary at each position.
    loads: Vec<f64>,
    edges: Vec<f64>,
    /// Logarithm of the joint density: a row of positions for each pair of steepness and standard deviation.
    joint: Vec<Vec<f64>>,
    weights: Vec<f64>,
    /// The probes of each grid value: score and √requests.
    probes: Vec<Vec<(f64, f64)>>,
    /// The largest load at each position.
    upper: Vec<f64>,
}

impl Posterior {
    /// The prior: uniform over the logarithms of load, steepness and standard deviation.
    pub(super) fn new(grid: &[f64], whole: bool) -> Posterior {
        let loads: Vec<f64> = grid.iter().map(|value| value.ln()).collect();
        let ends = loads
            .first()
            .copied()
            .zip(loads.last().copied())
            .unwrap_or_default();
        let bounds: Vec<f64> = [ends.0 - OUTSIDE]
            .into_iter()
            .chain(loads.iter().copied())
            .chain([ends.1 + OUTSIDE])
            .collect();
        let widths = bounds.windows(2).map(|pair| (pair[1] - pair[0]).ln());
        let row: Vec<f64> = widths.collect();
        let below = |next: &f64| if whole { next - 1.0 } else { *next };
        let mut posterior = Posterior {
            edges: bounds
                .windows(2)
                .map(|pair| (pair[0] + pair[1]) / 2.0)
                .collect(),
            joint: vec![row; laws().count()],
            weights: Vec::new(),
            probes: vec![Vec::new(); grid.len()],
            upper: grid.iter().map(below).chain(grid.last().copied()).collect(),
            loads,
        };
        posterior.normalize();
        posterior
    }

    /// Adds a probe.
    pub(super) fn update(&mut self, index: usize, evidence: Evidence) {
        let surest = probability(MOST);
        let z = score(evidence.pass_probability.clamp(1.0 - surest, surest));
        let root = (evidence.requests.max(1) as f64).sqrt();
        self.probes[index].push((z, root));
        let load = self.loads[index];
        for (row, (slope, spread)) in self.joint.iter_mut().zip(laws()) {
            for (log, edge) in row.iter_mut().zip(&self.edges) {
                *log += likelihood(z, slope * root * (edge - load), spread).ln();
            }
        }
        self.normalize();
    }

    /// Number of probes at a grid value.
    pub(super) fn probes(&self, index: usize) -> usize {
        self.probes[index].len()
    }

    /// Whether a grid value was probed.
    pub(super) fn probed(&self, index: usize) -> bool {
        self.probes(index) > 0
    }

    /// Probability that a grid value passes, by its own probes pooled into one sample.
    pub(super) fn pass_probability(&self, index: usize) -> f64 {
        probability(pooled(self.probes[index].iter().copied()))
    }

    /// Whether a probe of a grid value passed, and all of its probes together do.
    pub(super) fn passes(&self, index: usize) -> bool {
        let probes = &self.probes[index];
        probes.iter().any(|(z, _)| *z >= CERTAIN) && pooled(probes.iter().copied()) >= CERTAIN
    }

    /// Whether the probes of a grid value fail together.
    pub(super) fn fails(&self, index: usize) -> bool {
        pooled(self.probes[index].iter().copied()) <= -CERTAIN
    }

    fn normalize(&mut self) {
        let top = self
            .joint
            .iter()
            .flatten()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        let raw: Vec<f64> = (0..self.edges.len())
            .map(|place| self.joint.iter().map(|row| (row[place] - top).exp()).sum())
            .collect();
        let total: f64 = raw.iter().sum();
        self.weights = raw.into_iter().map(|weight| weight / total).collect();
    }

    /// The position at which the cumulative probability reaches `share`.
    fn quantile(&self, share: f64) -> usize {
        let mut sum = 0.0;
        let reached = self.weights.iter().position(|weight| {
            sum += weight;
            sum >= share
        });
        reached.unwrap_or(self.weights.len() - 1)
    }

    /// The median number of passing grid values.
    pub(super) fn answer(&self) -> usize {
        self.quantile(0.5)
    }

    /// The grid index whose probe halves the density best.
    pub(super) fn middle(&self) -> usize {
        let place = self.answer();
        let below: f64 = self.weights[..place].iter().sum();
        // A probe of grid value i separates the positions up to i from those after it.
        let (left, right) = (0.5 - below, below + self.weights[place] - 0.5);
        let index = if left <= right && place > 0 {
            place - 1
        } else {
            place
        };
        index.min(self.probes.len() - 1)
    }

    /// The central interval with probability of at least `mass`.
    pub(super) fn interval(&self, mass: f64) -> (usize, usize) {
        let out = (1.0 - mass) / 2.0;
        (self.quantile(out), self.quantile(1.0 - out))
    }

    /// The largest load at a position.
    pub(super) fn upper(&self, place: usize) -> f64 {
        self.upper[place.min(self.upper.len() - 1)]
    }
}

/// All pairs of steepness and standard deviation.
fn laws() -> impl Iterator<Item = (f64, f64)> {
    (0..SLOPES).flat_map(|power| SPREADS.map(|spread| (FLATTEST * 2f64.powi(power), spread)))
}

/// Distance in standard deviations beyond which the density is 0.
const APART: f64 = 6.0;

/// The likelihood of score `z` for expectation `mean`, including outliers.
fn likelihood(z: f64, mean: f64, spread: f64) -> f64 {
    let apart = |from: f64| (from - mean).abs() > APART * spread;
    let (law, luck) = match z {
        z if z >= CERTAIN && apart(CERTAIN) => (f64::from(u8::from(mean > 0.0)), 0.5),
        z if z <= -CERTAIN && apart(-CERTAIN) => (f64::from(u8::from(mean < 0.0)), 0.5),
        z if z.abs() < CERTAIN && apart(z) => (0.0, 0.5 / CERTAIN),
        z if z >= CERTAIN => (probability((mean - CERTAIN) / spread), 0.5),
        z if z <= -CERTAIN => (probability((-mean - CERTAIN) / spread), 0.5),
        z => (density((z - mean) / spread) / spread, 0.5 / CERTAIN),
    };
    (1.0 - LAPSE) * law + LAPSE * luck
}
