//! The maximum of a noisy function that rises and then falls: the load of the highest goodput.
//!
//! ```text
//!            ● best            a and c are the probed neighbours of the best one; the next probe goes into the wider of the
//!      a ●       ● c           two gaps, a golden section from the best (Kiefer, "Sequential minimax search for a maximum",
//!   ●               ●          Proceedings of the AMS 4, 1953). Neighbours that noise may have put in the wrong order are
//!  ─────────────────────▶ ln   probed again first, so that no one lucky probe leads away.
//! ```

use crate::schedule::search::{Probe, above, below, start_index};
use crate::search::{Evidence, Extent, Finding, Purpose, Score, SearchSpec};

/// Maximum number of probes.
const MOST: usize = 60;
/// The smaller part of a golden section: 2 − φ.
const GOLDEN: f64 = 0.381_966_011_250_105;
/// Standard errors between two distinguishable values, and maximum number of probes of one load to distinguish them.
const APART: f64 = 2.0;
const TRIES: usize = 3;
/// Standard errors on either side of a mean of which 90 % are between.
const CENTRAL: f64 = 1.644_853_6;
/// Length of a probe before confirmation, relative to the scenario's sample.
pub(super) const REFINE_LENGTH: f64 = 0.5;

/// The state of a search for the highest goodput.
#[derive(Clone, Debug)]
pub struct Peak {
    grid: Vec<f64>,
    start: usize,
    precision: f64,
    confirm: u32,
    /// The measured values at each grid index, and their standard errors.
    probes: Vec<Vec<(f64, f64)>>,
    confirmed: u32,
}

impl Peak {
    pub(super) fn new(spec: &SearchSpec, grid: &[f64]) -> Peak {
        let start = start_index(spec, grid);
        let probes = vec![Vec::new(); grid.len()];
        let (precision, confirm) = (spec.precision, spec.confirm);
        Peak {
            grid: grid.to_vec(),
            start,
            precision,
            confirm,
            probes,
            confirmed: 0,
        }
    }

    pub(super) fn next(&self) -> Option<Probe> {
        if self.grid.is_empty() || self.probed() >= MOST || self.settled() {
            return None;
        }
        let (index, purpose) = self.aim();
        let part = if purpose == Purpose::Confirm {
            1.0
        } else {
            REFINE_LENGTH
        };
        Some(Probe {
            index,
            load: self.grid[index],
            purpose,
            length: part,
        })
    }

    pub(super) fn record_probe(&mut self, index: usize, evidence: Evidence) {
        if index >= self.grid.len() {
            return;
        }
        let (requested, purpose) = self.aim();
        let purpose = if requested == index {
            purpose
        } else {
            Purpose::Narrow
        };
        self.probes[index].push(evidence.goodput);
        // A confirmation does not count if another load is better now.
        let confirms = purpose == Purpose::Confirm && self.best() == Some(index);
        self.confirmed = if confirms { self.confirmed + 1 } else { 0 };
    }

    fn probed(&self) -> usize {
        self.probes.iter().map(Vec::len).sum()
    }

    pub(super) fn finding(&self) -> Finding {
        let best = self.best();
        let at = |index: usize| self.grid[index];
        let (low, high) = best.map_or((0, self.grid.len().saturating_sub(1)), |best| {
            self.neighbours(best)
        });
        let last = self.grid.len().saturating_sub(1);
        Finding {
            answer: best.map(at),
            above: None,
            interval: (
                best.map(|_| at(low)),
                self.grid.get(high).copied().unwrap_or_default(),
            ),
            mass: None,
            extent: if best == Some(last) {
                Extent::AtLeast
            } else {
                Extent::Within
            },
            converged: best.is_some() && self.settled(),
            confirmed: self.confirmed,
            non_monotone: None,
        }
    }

    /// The highest goodput, with its 90 % interval; from 0 to infinity without a probe.
    pub(super) fn score(&self) -> Score {
        let (mean, error) = self
            .best()
            .and_then(|best| self.mean(best))
            .unwrap_or((0.0, f64::INFINITY));
        Score {
            low: (mean - CENTRAL * error).max(0.0),
            value: mean,
            high: mean + CENTRAL * error,
        }
    }

    /// The number of probes that a golden section over the grid needs, with its confirmation.
    pub(super) fn bisection(&self) -> usize {
        let steps = (self.grid.len().max(2) as f64).ln() / -(1.0 - GOLDEN).ln();
        steps.ceil() as usize + self.confirm as usize
    }

    fn settled(&self) -> bool {
        self.confirmed >= self.confirm && self.aim().1 == Purpose::Confirm
    }

    /// The mean at a grid index and its standard error.
    fn mean(&self, index: usize) -> Option<(f64, f64)> {
        let probes = self.probes.get(index).filter(|probes| !probes.is_empty())?;
        let n = probes.len() as f64;
        let mean = probes.iter().map(|(value, _)| value).sum::<f64>() / n;
        Some((
            mean,
            probes
                .iter()
                .map(|(_, error)| error * error)
                .sum::<f64>()
                .sqrt()
                / n,
        ))
    }

    fn best(&self) -> Option<usize> {
        let means = (0..self.grid.len()).filter_map(|index| Some((index, self.mean(index)?.0)));
        means
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(index, _)| index)
    }

    /// The nearest probed grid indices on both sides; `best` itself if there is none.
    fn neighbours(&self, best: usize) -> (usize, usize) {
        let probed = |index: &usize| !self.probes[*index].is_empty();
        (
            (0..best).rev().find(probed).unwrap_or(best),
            (best + 1..self.grid.len()).find(probed).unwrap_or(best),
        )
    }

    /// The grid index to probe in the wider gap beside the best one; None if both gaps are within the precision.
    fn gap(&self, best: usize) -> Option<usize> {
        let (low, high) = self.neighbours(best);
        let width = |a: usize, b: usize| self.grid[b] / self.grid[a] - 1.0;
        let sides = [(low, width(low, best)), (high, width(best, high))];
        let (end, _) = sides
            .into_iter()
            .filter(|(end, width)| *width > self.precision && end.abs_diff(best) > 1)
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        let aim = (self.grid[best].ln() * (1.0 - GOLDEN) + self.grid[end].ln() * GOLDEN).exp();
        let nearest = self.grid.partition_point(|value| *value < aim);
        Some(nearest.clamp(best.min(end) + 1, best.max(end) - 1))
    }

    fn aim(&self) -> (usize, Purpose) {
        let Some(best) = self.best() else {
            return (self.start, Purpose::Bracket);
        };
        let (low, high) = self.neighbours(best);
        let last = self.grid.len() - 1;
        if high == best && best < last {
            return (above(&self.grid, best), Purpose::Bracket);
        }
        if low == best && best > 0 {
            return (below(&self.grid, best), Purpose::Bracket);
        }
        match (self.doubtful(best, [low, high]), self.gap(best)) {
            (Some(again), _) => (again, Purpose::Narrow),
            (None, Some(index)) => (index, Purpose::Narrow),
            (None, None) => (best, Purpose::Confirm),
        }
    }

    /// The grid index to probe again, of the best one and neighbours that are not distinguished from it: the one with
    /// the fewest probes.
    fn doubtful(&self, best: usize, neighbours: [usize; 2]) -> Option<usize> {
        let (best_mean, best_error) = self.mean(best)?;
        let close = |other: &usize| {
            let (mean, error) = self.mean(*other).unwrap_or((f64::NEG_INFINITY, 0.0));
            *other != best
                && best_mean - mean < APART * (best_error * best_error + error * error).sqrt()
        };
        let pairs = neighbours
            .into_iter()
            .filter(close)
            .flat_map(|other| [other, best]);
        pairs
            .filter(|index| self.probes[*index].len() < TRIES)
            .min_by_key(|index| self.probes[*index].len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Goal;
    use crate::units::Nanos;
    use rand::SeedableRng;
    use rand_distr::{Distribution, Normal};

    fn spec(start: f64) -> SearchSpec {
        let (vary, drain) = ("load.rate".to_owned(), Nanos::ZERO);
        let (low, high, whole, precision, confirm) = (1.0, 1024.0, false, 0.1, 2);
        SearchSpec {
            vary,
            low,
            high,
            start,
            integer: whole,
            precision,
            confirm,
            goal: Goal::Goodput,
            drain,
        }
    }

    /// A goodput that follows the load up to 100 and then falls as the square.
    fn goodput(load: f64) -> f64 {
        if load <= 100.0 {
            load
        } else {
            100.0 * (100.0 / load).powi(2)
        }
    }

    fn climb(start: f64, confirm: u32, noise: f64, seed: u64) -> Peak {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let law = Normal::new(0.0, noise).unwrap();
        let spec = SearchSpec {
            confirm,
            ..spec(start)
        };
        let mut peak = Peak::new(&spec, &spec.grid());
        while let Some(probe) = peak.next() {
            let value = goodput(probe.load) + law.sample(&mut rng);
            peak.record_probe(
                probe.index,
                Evidence {
                    pass_probability: 0.5,
                    requests: 100,
                    goodput: (value, noise),
                },
            );
        }
        peak
    }

    #[test]
    fn the_maximum_is_found_from_both_sides() {
        for start in [1.0, 90.0, 1024.0] {
            let found = climb(start, 2, 0.0, 1).finding();
            let near = (found.answer.unwrap() / 100.0 - 1.0).abs() <= 0.1;
            assert!(
                near && found.converged && found.confirmed >= 2,
                "{start}: {found:?}"
            );
            assert!(
                found.interval.0.unwrap() <= 100.0 && found.interval.1 >= 100.0,
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_search_without_confirmation_has_a_probe_on_both_sides_of_the_best() {
        for start in [1.0, 90.0, 100.0, 1024.0] {
            let found = climb(start, 0, 0.0, 1).finding();
            let answer = found.answer.unwrap();
            assert!(
                found.converged
                    && found.interval.0.unwrap() < answer
                    && answer < found.interval.1
                    && (answer / 100.0 - 1.0).abs() <= 0.1,
                "{start}: {found:?}"
            );
        }
    }

    #[test]
    fn noise_rarely_leads_to_a_wrong_maximum() {
        let good = (0..100).filter(|&seed| {
            let answer = climb(8.0, 2, 3.0, seed).finding().answer.unwrap();
            goodput(answer) >= 90.0
        });
        assert!(good.count() >= 95);
        assert!((0..100).all(|seed| climb(8.0, 2, 3.0, seed).probed() <= MOST));
    }
}
