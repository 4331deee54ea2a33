//! What cannot go on in a run, and why.

use crate::run::error::RunError;
use llmscen_core::manifest::FailedCase;
use llmscen_core::plan::Case;

/// The failures of a run in progress.
#[derive(Default)]
pub(crate) struct Failures {
    /// Why the run cannot go on.
    pub fault: Option<RunError>,
    /// Why the rows of this shard are not where the report is made.
    pub undelivered: Option<RunError>,
    /// Whether failed cases are a result of the run instead of a fault: candidates of a search that could not be
    /// measured.
    pub case_failures_are_results: bool,
    /// Cases that cannot go on while others can: their server did not start, or every request failed alike.
    cases: Vec<FailedRound>,
}

/// Why a case cannot go on.
struct FailedRound {
    case: String,
    round: u32,
    fault: RunError,
}

impl Failures {
    /// Whether the run cannot go on.
    pub fn has_ended_run(&self) -> bool {
        self.fault.is_some() || self.undelivered.is_some()
    }

    /// Whether a case cannot go on.
    pub fn has_failed(&self, case: &Case) -> bool {
        self.cases.iter().any(|failed| failed.case == case.id)
    }

    /// Records that a case cannot go on from this round, while others can.
    pub fn fail_case(&mut self, case: &Case, round: u32, fault: RunError) {
        self.cases.push(FailedRound {
            case: case.id.clone(),
            round,
            fault,
        });
    }

    /// Records why a round failed.
    pub fn record(&mut self, case: &Case, round: u32, fault: RunError) {
        match fault {
            RunError::Interrupted => {}
            fault if fault.affects_one_target() => self.fail_case(case, round, fault),
            fault => self.fault = Some(fault),
        }
    }

    /// Why a case failed; empty if it did not.
    pub fn why_failed(&self, case: &Case) -> String {
        let mut failed = self.cases.iter();
        failed
            .find(|failed| failed.case == case.id)
            .map_or_else(String::new, |failed| failed.fault.brief_with_log())
    }

    /// The failed cases for the manifest.
    pub fn failed_cases(&self) -> Vec<FailedCase> {
        let failed = self.cases.iter().map(|failed| FailedCase {
            case: failed.case.clone(),
            round: failed.round,
            why: failed.fault.brief_with_log(),
        });
        failed.collect()
    }

    /// The fault of the run: what ended it, or why its first failed case failed.
    pub fn into_fault(self) -> Option<RunError> {
        let mut failed = self.cases.into_iter();
        let first = failed.next().filter(|_| !self.case_failures_are_results);
        self.fault.or(first.map(|failed| failed.fault))
    }
}
