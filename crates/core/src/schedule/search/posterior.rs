//! Where the edge lies: a probability for each place that it can have on the grid.
//!
//! Place `k` says that the first `k` values of the grid hold and the others do not. How surely a probe passes or fails depends
//! on how far from the edge it is: its score z, taken from its n requests, is normal with mean `s √n ln(edge / load)`, the law
//! of probit analysis (Finney, "Probit Analysis", 3rd edition, 1971). How steep the server is, `s`, is not known, nor is the
//! spread of z: probes of one load differ by more than their own requests show where a queue remembers for longer than a probe
//! lasts. Both are averaged over, as in Kontsevich and Tyler, "Bayesian adaptive estimation of psychometric slope and
//! threshold", Vision Research 39 (1999), so that probes which contradict each other widen the interval. So many probes that prove
//! little beside a flat edge make no certainty, as they would if each multiplied the odds of its side.

use crate::search::Evidence;
use crate::stats::distributions::{density, pooled, probability, score};

/// Beyond this score only the side counts: far from the edge a share cannot fall below 0, and the law ends.
const CERTAIN: f64 = 1.6448536;
/// Share of probes that may be lucky or unlucky as a whole, however many requests they have.
const LAPSE: f64 = 0.02;
/// Greatest and least score that one probe can have for itself.
const MOST: f64 = 4.0;
/// Steepness of the edge, in scores per root of a request and doubling of the load by e: from flat to a step.
const FLATTEST: f64 = 0.1;
const SLOPES: i32 = 11;
/// Standard deviation of the scores of probes at one load. 1 would be what their own requests promise; 1.2 to 2.4 was measured.
const SPREADS: [f64; 3] = [1.25, 2.5, 5.0];
/// Width that the places beyond both ends of the range count for: one doubling.
const OUTSIDE: f64 = std::f64::consts::LN_2;

/// The density, and what it rests on.
#[derive(Clone, Debug)]
pub(super) struct Posterior {
    /// The logarithm of the load at each grid value, and of the edge at each place.
    loads: Vec<f64>,
    edges: Vec<f64>,
    /// The logarithm of the joint density: a row of places for each law.
    joint: Vec<Vec<f64>>,
    weights: Vec<f64>,
    /// The probes of each grid value: scores, weighted by the root of their requests.
    seen: Vec<Vec<(f64, f64)>>,
    /// The greatest load that each place stands for.
    upper: Vec<f64>,
}

impl Posterior {
    /// Even over the logarithms of the load, of the steepness and of the spread.
    pub(super) fn new(grid: &[f64], whole: bool) -> Posterior {
        let loads: Vec<f64> = grid.iter().map(|value| value.ln()).collect();
        let ends = loads.first().copied().zip(loads.last().copied()).unwrap_or_default();
        let bounds: Vec<f64> = [ends.0 - OUTSIDE].into_iter().chain(loads.iter().copied()).chain([ends.1 + OUTSIDE]).collect();
        let widths = bounds.windows(2).map(|pair| (pair[1] - pair[0]).ln());
        let row: Vec<f64> = widths.collect();
        let below = |next: &f64| if whole { next - 1.0 } else { *next };
        let mut own = Posterior {
            edges: bounds.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect(),
            joint: vec![row; laws().count()],
            weights: Vec::new(),
            seen: vec![Vec::new(); grid.len()],
            upper: grid.iter().map(below).chain(grid.last().copied()).collect(),
            loads,
        };
        own.weigh();
        own
    }

    /// Takes in a probe.
    pub(super) fn update(&mut self, index: usize, evidence: Evidence) {
        let surest = probability(MOST);
        let z = score(evidence.holds.clamp(1.0 - surest, surest));
        let root = (evidence.requests.max(1) as f64).sqrt();
        self.seen[index].push((z, root));
        let load = self.loads[index];
        for (row, (slope, spread)) in self.joint.iter_mut().zip(laws()) {
            for (log, edge) in row.iter_mut().zip(&self.edges) {
                *log += likelihood(z, slope * root * (edge - load), spread).ln();
            }
        }
        self.weigh();
    }

    /// How many probes were there.
    pub(super) fn probes(&self, index: usize) -> usize {
        self.seen[index].len()
    }

    /// Whether a probe was there.
    pub(super) fn probed(&self, index: usize) -> bool {
        self.probes(index) > 0
    }

    /// Probability that a value holds by its own probes alone. Those of one load are one larger sample, and count as such.
    pub(super) fn seen(&self, index: usize) -> f64 {
        probability(pooled(self.seen[index].iter().copied()))
    }

    fn weigh(&mut self) {
        let top = self.joint.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let raw: Vec<f64> =
            (0..self.edges.len()).map(|place| self.joint.iter().map(|row| (row[place] - top).exp()).sum()).collect();
        let total: f64 = raw.iter().sum();
        self.weights = raw.into_iter().map(|weight| weight / total).collect();
    }

    /// The place at which the cumulated probability reaches `share`.
    fn quantile(&self, share: f64) -> usize {
        let mut sum = 0.0;
        let reached = self.weights.iter().position(|weight| {
            sum += weight;
            sum >= share
        });
        reached.unwrap_or(self.weights.len() - 1)
    }

    /// The median: how many values hold.
    pub(super) fn answer(&self) -> usize {
        self.quantile(0.5)
    }

    /// The value whose probe halves the density best.
    pub(super) fn middle(&self) -> usize {
        let place = self.answer();
        let below: f64 = self.weights[..place].iter().sum();
        // A probe of value i separates the places up to i from those after it.
        let (left, right) = (0.5 - below, below + self.weights[place] - 0.5);
        let index = if left <= right && place > 0 { place - 1 } else { place };
        index.min(self.seen.len() - 1)
    }

    /// The interval that leaves out the same on both sides, of probability `mass` at least.
    pub(super) fn interval(&self, mass: f64) -> (usize, usize) {
        let out = (1.0 - mass) / 2.0;
        (self.quantile(out), self.quantile(1.0 - out))
    }

    /// The greatest load that a place stands for.
    pub(super) fn upper(&self, place: usize) -> f64 {
        self.upper[place.min(self.upper.len() - 1)]
    }
}

/// Every steepness with every spread.
fn laws() -> impl Iterator<Item = (f64, f64)> {
    (0..SLOPES).flat_map(|power| SPREADS.map(|spread| (FLATTEST * 2f64.powi(power), spread)))
}

/// Scores so many spreads apart have nothing in common.
const APART: f64 = 6.0;

/// How likely a score is where this one is expected; one that is lucky as a whole may be anything.
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
