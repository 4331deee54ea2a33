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
    /// Requests and sessions after the first unfinished one, by number, as far as their outcomes are known.
    ahead: BTreeMap<u64, SeenOutcomes>,
    /// Number of the first unfinished request.
    first_unfinished: u64,
    /// Measured requests before that one.
    measured: u64,
    /// Measured requests at the next interim analysis.
    next: u64,
    hopeless: bool,
}

/// The outcomes of a request or session so far.
#[derive(Default)]
struct SeenOutcomes {
    count: u32,
    expected: u32,
    measured: bool,
}

impl SeenOutcomes {
    fn add(&mut self, outcome: &Outcome) {
        // A turn before the first measured one only fills the prefix cache.
        self.count += u32::from(outcome.turn >= outcome.first_turn);
        self.expected = outcome.turns.saturating_sub(outcome.first_turn).max(1);
        self.measured |= outcome.phase == Phase::Measured;
    }

    fn is_over(&self) -> bool {
        self.count >= self.expected
    }
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

    /// Runs an interim analysis if one is due. `last`: the new row among `rows`. True once, when the objectives
    /// cannot be met any more. Requests count in the order of their numbers, not of their ends, since fast failures
    /// end first.
    pub fn check(&mut self, last: &Outcome, rows: &mut Builder) -> bool {
        let session = self.ahead.entry(last.seq).or_default();
        session.add(last);
        while let Some(session) = self.ahead.get(&self.first_unfinished)
            && session.is_over()
        {
            self.measured += u64::from(session.measured);
            self.ahead.remove(&self.first_unfinished);
            self.first_unfinished += 1;
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
        // `Builder::finish` returns an error of the rows; the judgement of the probe returns one of the sample.
        let before = rows.before(self.first_unfinished);
        let Ok(sample) = before.and_then(|before| sample_case(&before, &facts)) else {
            return false;
        };
        self.hopeless = judge::is_futile(&self.checks, &sample, &mut self.looks);
        self.hopeless
    }

    /// Whether the objectives of the probe cannot be met.
    pub fn is_hopeless(&self) -> bool {
        self.hopeless
    }
}
