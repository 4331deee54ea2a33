//! Either search behind one door: for the edge of what holds, or for the top of the goodput.

use crate::schedule::search::peak::Peak;
use crate::schedule::search::{Probe, Search};
use crate::search::{Evidence, Finding, Goal, SearchSpec};

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
