//! Watches a probe of a search while it runs, and says when nothing can save it any more.

use llmscen_analysis::{Builder, CaseFacts, judge, sample_case};
use llmscen_core::check::{Check, Confidence};
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::plan::Case;
use llmscen_core::stats::sequential::Looks;
use std::collections::BTreeMap;

/// A probe that holds is given up with this probability at the most, over all its limits and looks.
const ALPHA: f64 = 0.001;
/// The first look, at so many measured requests; each later one is at twice as many.
const FIRST: u64 = 16;

/// The watch over one probe. Looks are few, for each makes a table of all rows so far.
pub struct FutilityStop {
    case: Case,
    checks: Vec<Check>,
    looks: Vec<Looks>,
    /// Requests that are over, by number, beyond the first one that is not, and whether they are measured; the number of that
    /// one; and the measured ones before it.
    ahead: BTreeMap<u64, bool>,
    first_out: u64,
    known: u64,
    next: u64,
    hopeless: bool,
}

impl FutilityStop {
    /// A watch over a probe of this case.
    pub fn new(case: &Case) -> FutilityStop {
        let sure = |check: &&Check| matches!(check.confidence, Confidence::Level(_));
        let checks: Vec<Check> = case.checks.iter().filter(sure).cloned().collect();
        let looks = vec![Looks::new(ALPHA / checks.len().max(1) as f64); checks.len()];
        FutilityStop {
            case: case.clone(),
            checks,
            looks,
            ahead: BTreeMap::new(),
            first_out: 0,
            known: 0,
            next: FIRST,
            hopeless: false,
        }
    }

    /// Looks where it is time, at the rows so far of which that of `last` is new; true once, when the probe is hopeless. Requests
    /// count in the order of their numbers, not of their ends: those that fail at once end first, and say nothing of the rest.
    pub fn look(&mut self, last: &Outcome, rows: &Builder) -> bool {
        if last.turn + 1 >= last.turns {
            self.ahead.insert(last.seq, last.phase == Phase::Measured);
        }
        while let Some(measured) = self.ahead.remove(&self.first_out) {
            self.first_out += 1;
            self.known += u64::from(measured);
        }
        if self.hopeless || self.checks.is_empty() || self.known < self.next {
            return false;
        }
        self.next *= 2;
        let facts = CaseFacts { case: &self.case, parts: &[], until: None };
        let seen = sample_case(&rows.before(self.first_out), &facts);
        self.hopeless = judge::is_futile(&self.checks, &seen, &mut self.looks);
        self.hopeless
    }

    /// Whether the probe was found hopeless.
    pub fn hopeless(&self) -> bool {
        self.hopeless
    }
}
