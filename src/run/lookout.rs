//! Watches a probe of a search while it runs, and says when nothing can save it any more.

use crate::frame::{CaseFacts, Table, Tagged, sample};
use crate::judge;
use crate::model::check::{Check, Confidence};
use crate::model::outcome::{Outcome, Phase};
use crate::model::plan::Case;
use crate::stats::looks::Looks;

/// A probe that holds is given up with this probability at the most, over all its limits and looks.
const ALPHA: f64 = 0.001;
/// The first look, at so many measured requests; each later one is at twice as many.
const FIRST: u64 = 16;

/// The watch over one probe. Looks are few, for each makes a table of all rows so far.
pub struct Lookout {
    case: Case,
    checks: Vec<Check>,
    looks: Vec<Looks>,
    measured: u64,
    next: u64,
    hopeless: bool,
}

impl Lookout {
    /// A watch over a probe of this case.
    pub fn new(case: &Case) -> Lookout {
        let sure = |check: &&Check| matches!(check.confidence, Confidence::Level(_));
        let checks: Vec<Check> = case.checks.iter().filter(sure).cloned().collect();
        let looks = vec![Looks::new(ALPHA / checks.len().max(1) as f64); checks.len()];
        Lookout { case: case.clone(), checks, looks, measured: 0, next: FIRST, hopeless: false }
    }

    /// Looks where it is time, at the outcomes so far of which the last one is new; true once, when the probe is hopeless.
    pub fn look(&mut self, outcomes: &[Outcome]) -> bool {
        self.measured += u64::from(outcomes.last().is_some_and(|last| last.phase == Phase::Measured));
        if self.hopeless || self.checks.is_empty() || self.measured < self.next {
            return false;
        }
        self.next *= 2;
        let rows = outcomes.iter().map(|outcome| Tagged { case: &self.case.id, round: 0, shard: 0, outcome });
        let facts = CaseFacts { case: &self.case, parts: &[], until: None };
        // A table that cannot be made ends no probe; the report will say why it could not.
        let seen = Table::build(rows).and_then(|table| sample(&table, &facts));
        self.hopeless = seen.is_ok_and(|seen| judge::hopeless(&self.checks, &seen, &mut self.looks));
        self.hopeless
    }

    /// Whether the probe was found hopeless.
    pub fn hopeless(&self) -> bool {
        self.hopeless
    }
}
