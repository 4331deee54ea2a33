//! Successive halving over capacity searches, as a state machine: results of probes go in, the next probe of a
//! candidate comes out.
//!
//! ```text
//! rung 1: every candidate, few probes ──▶ rung 2: the better half, more probes each ──▶ … ──▶ the last rung: full searches
//! ```
//! Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013: every rung gets the same
//! part of the budget. Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
//! optimization", AISTATS 2016: what a candidate has learned in a rung is continued in the next. Here, that is the
//! density of its search. Different from both, a candidate whose interval overlaps that of the last kept one is kept
//! where the budget allows it.

use crate::schedule::search::{Probe, SearchState};
use crate::search::{
    Budget, CapacitySearch, Evidence, Fate, Finding, HalvingSpec, Purpose, Score, Standing,
};
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Consecutive invalid probes after which a candidate is dropped: the load generator is the bottleneck, not the server.
const MAX_INVALID_PROBES: usize = 3;

/// A search and what its group knows of it.
#[derive(Clone, Debug)]
struct Candidate {
    search: SearchState,
    /// By which its score is divided.
    gpus: f64,
    /// Probes in this rung.
    probes: usize,
    /// Consecutive invalid probes.
    invalid: usize,
    /// Time of its probes in seconds, and their length relative to the scenario's sample.
    seconds: f64,
    length: f64,
    standings: Vec<Standing>,
    fate: Option<Fate>,
}

/// The state of a successive halving. Without a specification, its only candidate is searched in full.
#[derive(Clone, Debug)]
pub struct Halving {
    spec: Option<HalvingSpec>,
    candidates: Vec<Candidate>,
    /// Planned number of candidates of each rung.
    sizes: Vec<usize>,
    /// The rung, from 0.
    rung: usize,
    /// The candidates of the rung, and those of them that still have probes to come, the current one first.
    entrants: Vec<usize>,
    queue: VecDeque<usize>,
    /// What the rung may cost, what the current candidate may cost in it, and what both have cost.
    rung_budget: f64,
    allowance: f64,
    rung_spent: f64,
    candidate_spent: f64,
    spent: f64,
    /// Number of probes of all candidates.
    probes: usize,
    /// The candidate of the latest probe.
    latest: Option<usize>,
}

impl Halving {
    /// Starts the searches of one group. `gpus`: of each, where that is known of all.
    pub fn new(
        spec: Option<HalvingSpec>,
        searches: &[CapacitySearch],
        gpus: Option<&[f64]>,
    ) -> Halving {
        let candidate = |(index, search): (usize, &CapacitySearch)| Candidate {
            search: SearchState::new(&search.spec, &search.grid),
            gpus: gpus
                .and_then(|gpus| gpus.get(index).copied())
                .unwrap_or(1.0),
            probes: 0,
            invalid: 0,
            seconds: 0.0,
            length: 0.0,
            standings: Vec::new(),
            fate: None,
        };
        let rungs = spec.map(|spec| spec.rungs(searches.len()));
        let sizes = rungs.map_or(vec![searches.len()], |rungs| {
            rungs.into_iter().map(|rung| rung.candidates).collect()
        });
        let mut halving = Halving {
            spec,
            candidates: searches.iter().enumerate().map(candidate).collect(),
            sizes,
            rung: 0,
            entrants: Vec::new(),
            queue: VecDeque::new(),
            rung_budget: 0.0,
            allowance: 0.0,
            rung_spent: 0.0,
            candidate_spent: 0.0,
            spent: 0.0,
            probes: 0,
            latest: None,
        };
        halving.start_rung(0, (0..searches.len()).collect());
        halving
    }

    /// The next probe and its candidate; None when all is over.
    pub fn next_probe(&mut self) -> Option<(usize, Probe)> {
        loop {
            let Some(&candidate) = self.queue.front() else {
                if !self.finish_rung() {
                    return None;
                }
                continue;
            };
            match self.affordable_probe(candidate) {
                Some(probe) => return Some((candidate, probe)),
                None => {
                    self.queue.pop_front();
                    self.start_candidate();
                }
            }
        }
    }

    /// Adds the result of a probe at grid index `index` of a candidate; None if it was invalid.
    pub fn record_probe(
        &mut self,
        candidate: usize,
        index: usize,
        evidence: Option<Evidence>,
        seconds: f64,
    ) {
        let Some(state) = self.candidates.get_mut(candidate) else {
            return;
        };
        let length = state.search.next().map_or(1.0, |probe| probe.length);
        state.probes += 1;
        state.seconds += seconds;
        state.length += length;
        match evidence {
            Some(evidence) => {
                state.invalid = 0;
                state.search.record_probe(index, evidence);
            }
            // An invalid probe is no evidence: the same load is probed again.
            None => state.invalid += 1,
        }
        if state.invalid == MAX_INVALID_PROBES && self.spec.is_some() {
            let why = format!(
                "{MAX_INVALID_PROBES} probes in a row measured the load generator, not the server"
            );
            state.fate = Some(Fate::Failed(why));
        }
        let price = match self.spec.map(|spec| spec.budget) {
            Some(Budget::Time(_)) => seconds,
            _ => 1.0,
        };
        self.candidate_spent += price;
        self.rung_spent += price;
        self.spent += price;
        self.probes += 1;
        self.latest = Some(candidate);
    }

    /// Gives up a candidate that cannot be measured.
    pub fn fail(&mut self, candidate: usize, why: String) {
        if let Some(state) = self.candidates.get_mut(candidate) {
            state.fate = Some(Fate::Failed(why));
        }
    }

    /// The next probe of a candidate's search, whatever the budget.
    pub fn next_of(&self, candidate: usize) -> Option<Probe> {
        self.candidates.get(candidate)?.search.next()
    }

    /// The result of a candidate's search so far.
    pub fn finding(&self, candidate: usize) -> Option<Finding> {
        Some(self.candidates.get(candidate)?.search.finding())
    }

    /// What was known of a candidate after each of its rungs.
    pub fn standings(&self, candidate: usize) -> &[Standing] {
        let state = self.candidates.get(candidate);
        state.map_or(&[], |state| &state.standings)
    }

    /// How a candidate left; None if it has not.
    pub fn fate(&self, candidate: usize) -> Option<&Fate> {
        self.candidates.get(candidate)?.fate.as_ref()
    }

    /// Whether no candidate could be measured.
    pub fn has_failed(&self) -> bool {
        let is_failed = |state: &Candidate| matches!(state.fate, Some(Fate::Failed(_)));
        self.candidates.iter().all(is_failed)
    }

    fn is_last_rung(&self) -> bool {
        self.rung + 1 == self.sizes.len()
    }

    /// The next probe of a candidate, unless its part of the budget is used up.
    fn affordable_probe(&self, candidate: usize) -> Option<Probe> {
        let state = &self.candidates[candidate];
        if state.fate.is_some() || state.invalid == MAX_INVALID_PROBES {
            return None;
        }
        let probe = state.search.next()?;
        // A result that may not last is not confirmed.
        if !self.is_last_rung() && probe.purpose == Purpose::Confirm {
            return None;
        }
        let Some(spec) = self.spec else {
            return Some(probe);
        };
        let price = match spec.budget {
            Budget::Probes(_) => 1.0,
            // The time of a probe is known only of a candidate that had one. A rung has at least one of each.
            Budget::Time(_) if state.probes == 0 && self.allowance > 0.0 => 0.0,
            Budget::Time(_) => probe.length * state.seconds / state.length.max(f64::MIN_POSITIVE),
        };
        (self.candidate_spent + price <= self.allowance).then_some(probe)
    }

    fn start_rung(&mut self, rung: usize, entrants: Vec<usize>) {
        self.rung = rung;
        self.rung_spent = 0.0;
        let rungs_left = (self.sizes.len() - rung) as f64;
        self.rung_budget = self.spec.map_or(f64::INFINITY, |spec| {
            (spec.budget.amount() - self.spent).max(0.0) / rungs_left
        });
        for candidate in &entrants {
            self.candidates[*candidate].probes = 0;
        }
        self.queue = entrants.iter().copied().collect();
        // The server that runs is not started again.
        if let Some(latest) = self.latest
            && let Some(at) = entrants.iter().position(|entrant| *entrant == latest)
        {
            self.queue.remove(at);
            self.queue.push_front(latest);
        }
        self.entrants = entrants;
        self.start_candidate();
    }

    /// Sets what the candidate at the head of the queue may cost. What one leaves over in the last rung is for those
    /// after it, and in another rung for the next rungs.
    fn start_candidate(&mut self) {
        self.candidate_spent = 0.0;
        let part = match self.is_last_rung() {
            true => (self.rung_budget - self.rung_spent) / self.queue.len().max(1) as f64,
            false => self.rung_budget / self.entrants.len().max(1) as f64,
        };
        self.allowance = match self.spec.map(|spec| spec.budget) {
            // Rounding errors must not cost a probe.
            Some(Budget::Probes(_)) => (part + 1e-9).floor(),
            _ => part,
        };
    }

    /// Ranks the candidates of a rung and starts the next one. False after the last.
    fn finish_rung(&mut self) -> bool {
        let rung = self.rung + 1;
        let mut ranked: Vec<(usize, Score)> = Vec::new();
        for &candidate in &self.entrants {
            let state = &mut self.candidates[candidate];
            if state.fate.is_some() {
                continue;
            }
            let Finding {
                answer, interval, ..
            } = state.search.finding();
            let score = state.search.score().per(state.gpus);
            state.standings.push(Standing {
                rung,
                probes: state.probes,
                answer,
                interval,
                score,
            });
            ranked.push((candidate, score));
        }
        let Some(spec) = self.spec else {
            return false;
        };
        ranked.sort_by(|(_, a), (_, b)| b.value.total_cmp(&a.value).then(b.low.total_cmp(&a.low)));
        self.entrants.clear();
        let Some(&(best, best_score)) = ranked.first() else {
            return false;
        };
        if self.is_last_rung() {
            for (candidate, score) in &ranked {
                let tied = score.high >= best_score.low;
                self.candidates[*candidate].fate = Some(Fate::NotBest { tied });
            }
            self.candidates[best].fate = Some(Fate::Best);
            return false;
        }
        let planned = self.sizes[rung].min(ranked.len());
        let last_kept = ranked[planned - 1].1;
        let overlaps = |(_, score): &(usize, Score)| score.high >= last_kept.low;
        let ties = ranked[planned..].iter().filter(|one| overlaps(one)).count();
        // Ties are at the top of the others, except for those with a wide interval and a low estimate.
        let mut kept: Vec<usize> = ranked[..planned].iter().map(|(one, _)| *one).collect();
        let room = self.room(&spec).saturating_sub(planned).min(ties);
        let tied = ranked[planned..].iter().filter(|one| overlaps(one));
        kept.extend(tied.take(room).map(|(candidate, _)| *candidate));
        for one in &ranked {
            if !kept.contains(&one.0) {
                let tied = overlaps(one);
                self.candidates[one.0].fate = Some(Fate::Dropped {
                    tied,
                    kept: last_kept,
                });
            }
        }
        kept.sort_unstable();
        // Failed candidates may make rungs superfluous.
        let last = self.sizes.len() - 1;
        let next = match kept.len() <= self.sizes[last] {
            true => last,
            false => rung,
        };
        self.start_rung(next, kept);
        true
    }

    /// The number of candidates that the next rung has a budget for: as much for each as in this rung, or a full
    /// search if it is the last.
    fn room(&self, spec: &HalvingSpec) -> usize {
        let rungs_left = self.sizes.len() - self.rung - 1;
        let budget = (spec.budget.amount() - self.spent).max(0.0) / rungs_left as f64;
        let each = if rungs_left > 1 {
            self.rung_budget / self.sizes[self.rung] as f64
        } else {
            let full = self
                .candidates
                .iter()
                .map(|state| state.search.probes_of_a_full_search())
                .max();
            let price = match spec.budget {
                Budget::Probes(_) => 1.0,
                Budget::Time(_) => self.spent / self.probes.max(1) as f64,
            };
            full.unwrap_or(1) as f64 * price
        };
        (budget / each.max(f64::MIN_POSITIVE)) as usize
    }
}

impl Score {
    fn per(self, gpus: f64) -> Score {
        Score {
            low: self.low / gpus,
            value: self.value / gpus,
            high: self.high / gpus,
        }
    }
}
