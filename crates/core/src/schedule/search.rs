//! The search for the largest load that holds, as a state machine: what was seen goes in, the next load comes out.
//!
//! ```text
//! start ──holds──▶ twice as much ──holds──▶ … ──fails──▶┐            each probe moves the posterior by as much as it
//!   └────fails───▶ half as much ──fails──▶ … ──holds──▶─┴▶ narrow ◀─┐ proves; the next one halves what is left of it
//!                                                            │      │
//!                            interval within the precision ──┴▶ confirm ──refuted──┘
//! ```
//! The narrowing is the probabilistic bisection of Waeber, Frazier and Henderson, "Bisection search with noisy responses",
//! SIAM Journal on Control and Optimization 51 (2013): a density over where the edge lies, queried at its median, and updated
//! with the probability that the answer was right. Theirs is one probability for all answers; here each probe brings its own,
//! so that one which proves little moves little.

use crate::search::{Evidence, Extent, Finding, Goal, Probed, Purpose, SearchSpec};
use peak::Peak;
use posterior::Posterior;

mod peak;
mod posterior;
#[cfg(test)]
mod tests;

/// Maximum number of probes of one search, for each one that halving alone would take.
const PATIENCE: u32 = 4;
/// Probability of the interval that must lie within the precision.
const MASS: f64 = 0.9;
/// Each step of the bracket goes this much further than the one before.
const STRIDE: f64 = 2.0;
/// From this probability on a load holds, or fails, beyond doubt.
const BEYOND_DOUBT: f64 = 0.99;
/// A whole sample times this is what a probe of the bracket takes, and one that narrows: few long probes say more than many short
/// ones, for each has a start of its own, and short ones show less of how their requests depend on each other.
const GLANCE: f64 = 0.25;
const LOOK: f64 = 1.5;
/// The last probe that confirms is so many times as long as the others: what shows only in the long run shows there.
const LONG: f64 = 4.0;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Index of the load in the grid.
    pub index: usize,
    /// The load.
    pub load: f64,
    /// Why there.
    pub purpose: Purpose,
    /// How many whole samples it takes, > 0.
    pub part: f64,
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    grid: Vec<f64>,
    start: usize,
    precision: f64,
    whole: bool,
    confirm: u32,
    most: usize,
    posterior: Posterior,
    probes: Vec<Probed>,
    /// The load that is being confirmed, and how often it held by now.
    standing: Option<usize>,
    confirmed: u32,
}

impl Search {
    /// A search over an ascending grid of values > 0, as [`SearchSpec::grid`] has it.
    pub fn new(spec: &SearchSpec, grid: &[f64]) -> Search {
        let halvings = (grid.len().max(2) as f64).log2().ceil() as u32;
        Search {
            grid: grid.to_vec(),
            start: beginning(spec, grid),
            precision: spec.precision,
            whole: spec.whole,
            confirm: spec.confirm,
            most: (PATIENCE * halvings + spec.confirm) as usize,
            posterior: Posterior::new(grid, spec.whole),
            probes: Vec::new(),
            standing: None,
            confirmed: 0,
        }
    }

    /// Where to look next; None when the search is over.
    pub fn next(&self) -> Option<Probe> {
        if self.grid.is_empty() || self.probes.len() >= self.most || self.settled() {
            return None;
        }
        let (index, purpose) = self.purpose();
        let part = match purpose {
            Purpose::Bracket => GLANCE,
            Purpose::Narrow => LOOK,
            Purpose::Confirm if self.confirmed + 1 < self.confirm => 1.0,
            Purpose::Confirm => LONG,
        };
        Some(Probe { index, load: self.grid[index], purpose, part })
    }

    /// Takes in what a probe at grid value `index` showed; it need not be the requested one.
    pub fn tell(&mut self, index: usize, evidence: Evidence) {
        let Some(&load) = self.grid.get(index) else { return };
        let (asked, purpose) = self.purpose();
        let purpose = if asked == index { purpose } else { Purpose::Narrow };
        let nothing = self.posterior.answer() == 0;
        self.posterior.update(index, evidence);
        self.probes.push(Probed { load, purpose, evidence });
        let agrees = (evidence.holds >= 0.5) != nothing && (self.posterior.answer() == 0) == nothing;
        match purpose {
            // Only what was seen at one load confirms that load.
            Purpose::Confirm if agrees && self.near(index) => {
                self.confirmed = if self.standing == Some(index) { self.confirmed + 1 } else { 1 };
                self.standing = Some(index);
            }
            Purpose::Confirm => (self.standing, self.confirmed) = (None, 0),
            Purpose::Bracket | Purpose::Narrow if self.standing.is_some_and(|standing| !self.near(standing)) => {
                (self.standing, self.confirmed) = (None, 0);
            }
            Purpose::Bracket | Purpose::Narrow => {}
        }
    }

    /// Every probe so far.
    pub fn probes(&self) -> &[Probed] {
        &self.probes
    }

    /// Whether a load holds by the probes at it: pooled, 0..=1; ½ where there was none.
    fn holds(&self, index: usize) -> f64 {
        self.posterior.seen(index)
    }

    fn settled(&self) -> bool {
        self.narrow() && self.confirmed >= self.confirm
    }

    fn purpose(&self) -> (usize, Purpose) {
        match self.beyond() {
            Some(index) => (index, Purpose::Bracket),
            None if self.narrow() => {
                let standing = self.standing.filter(|&standing| self.near(standing));
                (standing.unwrap_or_else(|| self.posterior.answer().saturating_sub(1)), Purpose::Confirm)
            }
            None => (self.narrowing(), Purpose::Narrow),
        }
    }

    /// The load that halves the density best, or one that is the precision away from it: no number of probes decides a load at the
    /// edge itself, and only what is beside it shows how steep the server is.
    fn narrowing(&self) -> usize {
        let middle = self.posterior.middle();
        let ratio = |index: &usize| self.grid[*index] / self.grid[middle];
        let below = (0..middle).rev().find(|index| ratio(index) * (1.0 + self.precision) <= 1.0);
        let above = (middle + 1..self.grid.len()).find(|index| ratio(index) >= 1.0 + self.precision);
        [Some(middle), below, above].into_iter().flatten().min_by_key(|&index| self.posterior.probes(index)).unwrap_or(middle)
    }

    /// The next load outside of what was seen, while it all holds or all fails.
    fn beyond(&self) -> Option<usize> {
        let seen = || (0..self.grid.len()).filter(|&index| self.posterior.probed(index));
        let Some((least, greatest)) = seen().next().zip(seen().next_back()) else { return Some(self.start) };
        let last = self.grid.len() - 1;
        if seen().all(|index| self.holds(index) >= 0.5) && greatest < last {
            return Some(above(&self.grid, greatest));
        }
        if seen().all(|index| self.holds(index) < 0.5) && least > 0 {
            return Some(below(&self.grid, least));
        }
        None
    }

    /// Whether a load lies in the interval, within the precision of the answer or one step of whole numbers.
    fn near(&self, index: usize) -> bool {
        let (low, high) = self.posterior.interval(MASS);
        let answer = self.posterior.answer().saturating_sub(1);
        let within = (self.grid[index] / self.grid[answer] - 1.0).abs() <= self.precision;
        (low..=high.max(1)).contains(&(index + 1)) && (within || self.whole && index.abs_diff(answer) <= 1)
    }

    /// How many grid values hold: up to the load that was confirmed, or as far as is known.
    fn answer(&self) -> usize {
        match self.standing {
            Some(standing) if self.settled() && self.posterior.answer() > 0 => standing + 1,
            _ => self.posterior.answer(),
        }
    }

    /// Whether the interval lies within the precision of the answer, or within one step: no whole number lies between.
    fn narrow(&self) -> bool {
        let (low, high) = self.posterior.interval(MASS);
        let answer = self.posterior.answer();
        if low == high || self.whole && low > 0 && high - low == 1 {
            return true;
        }
        let Some(value) = self.value(answer) else { return false };
        let near = |bound: f64| (bound / value - 1.0).abs() <= self.precision;
        self.value(low).is_some_and(near) && near(self.posterior.upper(high))
    }

    /// The load that an edge after `count` grid values stands for; None where not even the least holds.
    fn value(&self, count: usize) -> Option<f64> {
        count.checked_sub(1).and_then(|index| self.grid.get(index)).copied()
    }

    /// What is known by now.
    pub fn finding(&self) -> Finding {
        let (low, high) = self.posterior.interval(MASS);
        let (seen, answer) = (!self.probes.is_empty(), self.answer());
        let extent = match answer {
            0 => Extent::Nothing,
            all if all == self.grid.len() && self.posterior.probed(all - 1) => Extent::AtLeast,
            _ => Extent::Within,
        };
        Finding {
            answer: self.value(answer).filter(|_| seen),
            interval: (self.value(low), self.posterior.upper(high)),
            mass: Some(MASS),
            extent: if seen { extent } else { Extent::Within },
            settled: seen && self.settled(),
            confirmed: self.confirmed,
            contrary: self.contrary(),
        }
    }

    /// The greatest load that holds beyond doubt above one that fails beyond doubt.
    fn contrary(&self) -> Option<(f64, f64)> {
        let beyond_doubt = |holds: bool| {
            let sure = move |p: f64| if holds { p >= BEYOND_DOUBT } else { p <= 1.0 - BEYOND_DOUBT };
            (0..self.grid.len()).filter(move |&index| self.posterior.probed(index) && sure(self.posterior.seen(index)))
        };
        let fails = beyond_doubt(false).next()?;
        let holds = beyond_doubt(true).next_back()?;
        (fails < holds).then(|| (self.grid[fails], self.grid[holds]))
    }
}

/// The place of a grid at which a search begins.
fn beginning(spec: &SearchSpec, grid: &[f64]) -> usize {
    grid.partition_point(|value| *value < spec.start).min(grid.len().saturating_sub(1))
}

/// The place a stride above one that is not the last.
fn above(grid: &[f64], from: usize) -> usize {
    let aim = grid[from] * STRIDE;
    grid.partition_point(|value| *value <= aim).saturating_sub(1).max(from + 1)
}

/// The place a stride below one that is not the first.
fn below(grid: &[f64], from: usize) -> usize {
    let aim = grid[from] / STRIDE;
    grid.partition_point(|value| *value < aim).min(from - 1)
}

/// A search for either goal.
#[derive(Clone, Debug)]
pub enum Hunt {
    /// The largest load that holds.
    Edge(Search),
    /// The load of the highest goodput.
    Top(Peak),
}

impl Hunt {
    /// The search of a specification, over its grid.
    pub fn new(spec: &SearchSpec, grid: &[f64]) -> Hunt {
        match spec.goal {
            Goal::Slo => Hunt::Edge(Search::new(spec, grid)),
            Goal::Goodput => Hunt::Top(Peak::new(spec, grid)),
        }
    }

    /// Where to look next; None when the search is over.
    pub fn next(&self) -> Option<Probe> {
        match self {
            Hunt::Edge(search) => search.next(),
            Hunt::Top(peak) => peak.next(),
        }
    }

    /// Takes in what a probe at grid value `index` showed.
    pub fn tell(&mut self, index: usize, evidence: Evidence) {
        match self {
            Hunt::Edge(search) => search.tell(index, evidence),
            Hunt::Top(peak) => peak.tell(index, evidence),
        }
    }

    /// What is known by now.
    pub fn finding(&self) -> Finding {
        match self {
            Hunt::Edge(search) => search.finding(),
            Hunt::Top(peak) => peak.finding(),
        }
    }
}
