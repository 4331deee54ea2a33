//! The search for the maximum load that passes, as a state machine: probe results go in, the next load to probe comes
//! out.
//!
//! ```text
//! start ──pass──▶ twice the load ──pass──▶ … ──fail──▶┐              each probe updates the posterior; the next
//!   └────fail───▶ half the load ──fail──▶ … ──pass──▶────┴▶ refine ◀─┐  one halves the remaining interval
//!                                                            │      │
//!                           interval within the precision ──┴▶ confirm ──fail──┘
//! ```
//! The refinement is the probabilistic bisection of Waeber, Frazier and Henderson, "Bisection search with noisy
//! responses", SIAM Journal on Control and Optimization 51 (2013): a density over the position of the pass/fail
//! boundary is queried at its median, and updated with the probability that the answer was right. There, that
//! probability is the same for all answers; here, each probe has a separate one, so that weak evidence changes the
//! density little.

use crate::search::{
    Evidence, Extent, Finding, Goal, LoadVerdict, Probed, Purpose, Score, SearchSpec,
};
use peak::Peak;
use posterior::Posterior;

mod peak;
mod posterior;
#[cfg(test)]
mod tests;

/// Maximum number of probes, per probe that plain bisection would need.
const PROBES_PER_BISECTION: u32 = 4;
/// Probability mass of the interval that must lie within the precision, and of the interval of a goodput.
pub const MASS: f64 = 0.9;
/// Factor between two loads of the bracket phase.
const STRIDE: f64 = 2.0;
/// Probability from which on a probe passes; it fails from the complement on.
pub const PASSES: f64 = 0.95;
/// Probability from which on further probes of a load may confirm it.
const WORTH_CONFIRMING: f64 = 0.8;
/// Probability from which on a load passes, or fails, significantly.
const SIGNIFICANT: f64 = 0.99;
/// Lengths of probes in the bracket and the refinement phase, relative to the scenario's sample. A few long probes
/// are more informative than many short ones, because each has a ramp-up, and short ones show less of the correlation
/// of requests.
const BRACKET_LENGTH: f64 = 0.25;
const REFINE_LENGTH: f64 = 1.5;
/// Relative length of the last confirming probe, which detects slow degradation.
const LAST_CONFIRM_LENGTH: f64 = 4.0;

/// The next probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Index of the load in the grid.
    pub index: usize,
    /// The load.
    pub load: f64,
    /// The phase of the search.
    pub purpose: Purpose,
    /// Length relative to the scenario's sample, > 0.
    pub length: f64,
}

/// The state of a search for the maximum load that passes.
#[derive(Clone, Debug)]
pub struct Search {
    grid: Vec<f64>,
    start: usize,
    precision: f64,
    whole: bool,
    confirm: u32,
    /// Number of probes of a plain bisection with its confirmation.
    bisection: usize,
    max_probes: usize,
    posterior: Posterior,
    probes: Vec<Probed>,
    /// The load that is being confirmed, and how often it has passed.
    confirming: Option<usize>,
    confirmed: u32,
}

impl Search {
    /// A search over an ascending grid of values > 0; see [`SearchSpec::grid`].
    pub fn new(spec: &SearchSpec, grid: &[f64]) -> Search {
        let halvings = (grid.len().max(2) as f64).log2().ceil() as u32;
        Search {
            grid: grid.to_vec(),
            start: start_index(spec, grid),
            precision: spec.precision,
            whole: spec.integer,
            confirm: spec.confirm,
            bisection: (halvings + spec.confirm) as usize,
            max_probes: (PROBES_PER_BISECTION * halvings + spec.confirm) as usize,
            posterior: Posterior::new(grid, spec.integer),
            probes: Vec::new(),
            confirming: None,
            confirmed: 0,
        }
    }

    /// The next probe; None when the search is over.
    pub fn next(&self) -> Option<Probe> {
        if self.grid.is_empty() || self.probes.len() >= self.max_probes || self.settled() {
            return None;
        }
        let (index, purpose) = self.purpose();
        let part = match purpose {
            Purpose::Bracket => BRACKET_LENGTH,
            Purpose::Narrow => REFINE_LENGTH,
            Purpose::Confirm if self.confirmed + 1 == self.confirm => LAST_CONFIRM_LENGTH,
            Purpose::Confirm => 1.0,
        };
        Some(Probe {
            index,
            load: self.grid[index],
            purpose,
            length: part,
        })
    }

    /// Adds the result of a probe at grid index `index`, which need not be the requested one.
    pub fn record_probe(&mut self, index: usize, evidence: Evidence) {
        let Some(&load) = self.grid.get(index) else {
            return;
        };
        let (requested, purpose) = self.purpose();
        let purpose = if requested == index {
            purpose
        } else {
            Purpose::Narrow
        };
        let nothing = self.posterior.answer() == 0;
        self.posterior.update(index, evidence);
        self.probes.push(Probed {
            load,
            purpose,
            evidence,
        });
        // The last confirming probe is the longest, and completes the evidence of the load.
        let is_shown = self.confirmed + 1 < self.confirm
            || match nothing {
                true => self.posterior.fails(index),
                false => self.posterior.passes(index),
            };
        let agrees = (evidence.pass_probability >= 0.5) != nothing
            && (self.posterior.answer() == 0) == nothing
            && is_shown;
        match purpose {
            // Only probes of a load confirm that load.
            Purpose::Confirm if agrees && self.near(index) => {
                self.confirmed = if self.confirming == Some(index) {
                    self.confirmed + 1
                } else {
                    1
                };
                self.confirming = Some(index);
            }
            Purpose::Confirm => (self.confirming, self.confirmed) = (None, 0),
            Purpose::Bracket | Purpose::Narrow
                if self.confirming.is_some_and(|index| !self.near(index)) =>
            {
                (self.confirming, self.confirmed) = (None, 0);
            }
            Purpose::Bracket | Purpose::Narrow => {}
        }
    }

    /// Every probe so far.
    pub fn probes(&self) -> &[Probed] {
        &self.probes
    }

    /// Probability that a load passes, by its own probes pooled; ½ without probes.
    fn pass_probability(&self, index: usize) -> f64 {
        self.posterior.pass_probability(index)
    }

    fn settled(&self) -> bool {
        let is_shown = match self.confirming {
            _ if self.posterior.answer() == 0 => self.posterior.fails(0),
            Some(index) => self.near(index) && self.posterior.passes(index),
            None => self.confirm == 0 && self.passing_near().is_some(),
        };
        self.narrow() && self.confirmed >= self.confirm && is_shown
    }

    /// The loads that may be the result, in descending order: from the median down to half of the precision below it,
    /// or one integer step.
    fn nearby(&self) -> impl Iterator<Item = usize> {
        let count = self.posterior.answer();
        let least = self.value(count).unwrap_or_default() / (1.0 + self.precision / 2.0);
        let is_close = move |index: &usize| {
            self.near(*index) && (self.grid[*index] >= least || self.whole && index + 2 >= count)
        };
        (0..count).rev().take_while(is_close)
    }

    /// The largest load close to the median that passes.
    fn passing_near(&self) -> Option<usize> {
        self.nearby().find(|index| self.posterior.passes(*index))
    }

    /// The load to confirm. Half of the probes of a load at the boundary fail, so a smaller load follows one that
    /// probably fails.
    fn to_confirm(&self) -> usize {
        let may_pass = |index: &usize| match self.posterior.probed(*index) {
            true => self.pass_probability(*index) >= WORTH_CONFIRMING,
            false => true,
        };
        let confirming = self.confirming.filter(|&index| self.near(index));
        confirming
            .or_else(|| self.nearby().find(may_pass))
            .or_else(|| self.nearby().last())
            .unwrap_or_else(|| self.posterior.answer().saturating_sub(1))
    }

    fn purpose(&self) -> (usize, Purpose) {
        match self.next_bracket() {
            Some(index) => (index, Purpose::Bracket),
            None if self.narrow() => (self.to_confirm(), Purpose::Confirm),
            None => (self.narrowing(), Purpose::Narrow),
        }
    }

    /// The load that halves the density best, or a load at the distance of the precision: no number of probes decides
    /// a load at the boundary itself, and its neighbours show how steep the transition is.
    fn narrowing(&self) -> usize {
        let middle = self.posterior.middle();
        let ratio = |index: &usize| self.grid[*index] / self.grid[middle];
        let below = (0..middle)
            .rev()
            .find(|index| ratio(index) * (1.0 + self.precision) <= 1.0);
        let above =
            (middle + 1..self.grid.len()).find(|index| ratio(index) >= 1.0 + self.precision);
        [Some(middle), below, above]
            .into_iter()
            .flatten()
            .min_by_key(|&index| self.posterior.probes(index))
            .unwrap_or(middle)
    }

    /// The next load outside of the probed range, while all its loads pass or all fail.
    fn next_bracket(&self) -> Option<usize> {
        let probed = || (0..self.grid.len()).filter(|&index| self.posterior.probed(index));
        let Some((least, greatest)) = probed().next().zip(probed().next_back()) else {
            return Some(self.start);
        };
        let last = self.grid.len() - 1;
        if probed().all(|index| self.pass_probability(index) >= 0.5) && greatest < last {
            return Some(above(&self.grid, greatest));
        }
        if probed().all(|index| self.pass_probability(index) < 0.5) && least > 0 {
            return Some(below(&self.grid, least));
        }
        None
    }

    /// Whether a load is not above the interval, and within the precision of the median or one integer step.
    fn near(&self, index: usize) -> bool {
        let (_, high) = self.posterior.interval(MASS);
        let answer = self.posterior.answer().saturating_sub(1);
        let within = (self.grid[index] / self.grid[answer]).ln().abs() <= self.precision.ln_1p();
        index < high.max(1) && (within || self.whole && index.abs_diff(answer) <= 1)
    }

    /// The grid index of the result: the confirmed load, else the largest one in or below the interval that passes.
    fn answer(&self) -> Option<usize> {
        let (_, high) = self.posterior.interval(MASS);
        match self.settled() {
            true if self.posterior.answer() == 0 => None,
            true => self.confirming.or_else(|| self.passing_near()),
            false => (0..high.min(self.grid.len()))
                .rev()
                .find(|index| self.posterior.passes(*index)),
        }
    }

    /// What is known of the next load above the result that does not pass.
    fn above(&self, answer: Option<usize>) -> Option<(f64, LoadVerdict)> {
        let first = answer.map_or(0, |answer| answer + 1);
        let is_open =
            |index: &usize| self.posterior.probed(*index) && !self.posterior.passes(*index);
        if let Some(index) = (first..self.grid.len()).find(is_open) {
            let shown = match self.posterior.fails(index) {
                true => LoadVerdict::Failed,
                false => LoadVerdict::Inconclusive,
            };
            return Some((self.grid[index], shown));
        }
        let (_, high) = self.posterior.interval(MASS);
        let end = self.posterior.upper(high).max(*self.grid.get(first)?);
        answer.map(|_| (end, LoadVerdict::NotMeasured))
    }

    /// Whether the interval lies within the precision of the result, or within one integer step.
    fn narrow(&self) -> bool {
        let (low, high) = self.posterior.interval(MASS);
        let answer = self.posterior.answer();
        if low == high || self.whole && low > 0 && high - low == 1 {
            return true;
        }
        let Some(value) = self.value(answer) else {
            return false;
        };
        let near = |bound: f64| (bound / value - 1.0).abs() <= self.precision;
        self.value(low).is_some_and(near) && near(self.posterior.upper(high))
    }

    /// The maximum load if the first `count` grid values pass; None for 0.
    fn value(&self, count: usize) -> Option<f64> {
        count
            .checked_sub(1)
            .and_then(|index| self.grid.get(index))
            .copied()
    }

    /// The result so far.
    pub fn finding(&self) -> Finding {
        let (low, high) = self.posterior.interval(MASS);
        let answer = self.answer();
        let extent = match answer {
            None if self.posterior.answer() == 0 && self.posterior.fails(0) => Extent::Nothing,
            Some(index) if index + 1 == self.grid.len() => Extent::AtLeast,
            _ => Extent::Within,
        };
        Finding {
            answer: answer.map(|index| self.grid[index]),
            above: self.above(answer),
            interval: (self.value(low), self.posterior.upper(high)),
            mass: Some(MASS),
            extent,
            converged: !self.probes.is_empty() && self.settled(),
            confirmed: self.confirmed,
            non_monotone: self.contrary(),
        }
    }

    /// A load that fails significantly, and the largest load above it that passes significantly.
    fn contrary(&self) -> Option<(f64, f64)> {
        let significant = |holds: bool| {
            let sure = move |p: f64| {
                if holds {
                    p >= SIGNIFICANT
                } else {
                    p <= 1.0 - SIGNIFICANT
                }
            };
            (0..self.grid.len()).filter(move |&index| {
                self.posterior.probed(index) && sure(self.posterior.pass_probability(index))
            })
        };
        let fails = significant(false).next()?;
        let holds = significant(true).next_back()?;
        (fails < holds).then(|| (self.grid[fails], self.grid[holds]))
    }
}

/// Length of the first probe of a search, relative to the scenario's sample. No probe is shorter.
pub fn first_probe_length(goal: Goal) -> f64 {
    match goal {
        Goal::Slo => BRACKET_LENGTH,
        Goal::Goodput => peak::REFINE_LENGTH,
    }
}

/// The grid index at which a search begins.
fn start_index(spec: &SearchSpec, grid: &[f64]) -> usize {
    grid.partition_point(|value| *value < spec.start)
        .min(grid.len().saturating_sub(1))
}

/// The grid index one stride above `from`, which is not the last.
fn above(grid: &[f64], from: usize) -> usize {
    let aim = grid[from] * STRIDE;
    grid.partition_point(|value| *value <= aim)
        .saturating_sub(1)
        .max(from + 1)
}

/// The grid index one stride below `from`, which is not the first.
fn below(grid: &[f64], from: usize) -> usize {
    let aim = grid[from] / STRIDE;
    grid.partition_point(|value| *value < aim).min(from - 1)
}

/// The state of a search, for either goal.
#[derive(Clone, Debug)]
pub enum SearchState {
    /// The maximum load that passes.
    Edge(Search),
    /// The load of the highest goodput.
    Top(Peak),
}

impl SearchState {
    /// Starts the search of a specification, over its grid.
    pub fn new(spec: &SearchSpec, grid: &[f64]) -> SearchState {
        match spec.goal {
            Goal::Slo => SearchState::Edge(Search::new(spec, grid)),
            Goal::Goodput => SearchState::Top(Peak::new(spec, grid)),
        }
    }

    /// The next probe; None when the search is over.
    pub fn next(&self) -> Option<Probe> {
        match self {
            SearchState::Edge(search) => search.next(),
            SearchState::Top(peak) => peak.next(),
        }
    }

    /// Adds the result of a probe at grid index `index`.
    pub fn record_probe(&mut self, index: usize, evidence: Evidence) {
        match self {
            SearchState::Edge(search) => search.record_probe(index, evidence),
            SearchState::Top(peak) => peak.record_probe(index, evidence),
        }
    }

    /// The result so far.
    pub fn finding(&self) -> Finding {
        match self {
            SearchState::Edge(search) => search.finding(),
            SearchState::Top(peak) => peak.finding(),
        }
    }

    /// By what it is compared with other searches: the capacity, or the highest goodput.
    pub fn score(&self) -> Score {
        match self {
            SearchState::Edge(search) => {
                let (low, high) = search.finding().interval;
                let median = search.value(search.posterior.answer());
                Score {
                    low: low.unwrap_or_default(),
                    value: median.unwrap_or_default(),
                    high,
                }
            }
            SearchState::Top(peak) => peak.score(),
        }
    }

    /// The number of probes of a search that is never misled.
    pub fn probes_of_a_full_search(&self) -> usize {
        match self {
            SearchState::Edge(search) => search.bisection,
            SearchState::Top(peak) => peak.bisection(),
        }
    }
}
