//! Ends a probe of a capacity search once its objectives cannot be met.

use llmscen_analysis::{Builder, CaseFacts, judge, sample_case};
use llmscen_core::check::{Check, Confidence};
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::plan::Case;
use llmscen_core::stats::sequential::AlphaSpending;
use std::collections::BTreeMap;

/// Maximum probability to end a probe that meets its objectives, over all objectives and interim analyses.
const ALPHA: f64 = 0.001;
/// Measured requests at the first interim analysis; the number doubles for each later one.
const FIRST_ANALYSIS: u64 = 16;

/// The check of one probe. Interim analyses are few, since each builds a table of all rows so far.
pub struct FutilityStop {
    case: Case,
    checks: Vec<Check>,
    looks: Vec<AlphaSpending>,
    /// Finished requests after the first unfinished one, by number, and whether each is measured.
    ahead: BTreeMap<u64, bool>,
    /// Number of the first unfinished request.
    first_unfinished: u64,
    /// Measured requests before that one.
    measured: u64,
    /// Measured requests at the next interim analysis.
    next: u64,
    hopeless: bool,
}

impl FutilityStop {
    /// The check of a probe of this case.
    pub fn new(case: &Case) -> FutilityStop {
        let has_confidence = |check: &&Check| matches!(check.confidence, Confidence::Level(_));
        let checks: Vec<Check> = case.checks.iter().filter(has_confidence).cloned().collect();
        let looks = vec![AlphaSpending::new(ALPHA / checks.len().max(1) as f64); checks.len()];
        FutilityStop {
            case: case.clone(),
            checks,
            looks,
            ahead: BTreeMap::new(),
            first_unfinished: 0,
            measured: 0,
            next: FIRST_ANALYSIS,
            hopeless: false,
        }
    }

    /// Runs an interim analysis if one is due. `last`: the new row among `rows`. True once, when the objectives cannot be met any
    /// more. Requests count in the order of their numbers, not of their ends, since fast failures end first.
    pub fn check(&mut self, last: &Outcome, rows: &Builder) -> bool {
        if last.turn + 1 >= last.turns {
            self.ahead.insert(last.seq, last.phase == Phase::Measured);
        }
        while let Some(measured) = self.ahead.remove(&self.first_unfinished) {
            self.first_unfinished += 1;
            self.measured += u64::from(measured);
        }
        if self.hopeless || self.checks.is_empty() || self.measured < self.next {
            return false;
        }
        self.next *= 2;
        let facts = CaseFacts {
            case: &self.case,
            parts: &[],
            until: None,
        };
        let sample = sample_case(&rows.before(self.first_unfinished), &facts);
        self.hopeless = judge::is_futile(&self.checks, &sample, &mut self.looks);
        self.hopeless
    }

    /// Whether the objectives of the probe cannot be met.
    pub fn is_hopeless(&self) -> bool {
        self.hopeless
    }
}
