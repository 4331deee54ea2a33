//! The verdict on a whole run, and its exit code.

use llmscen_core::check::Ruling;
use llmscen_core::report::{CaseReport, RunVerdict};
use llmscen_core::search::{Extent, SearchReport};

/// The worst verdict of all cases: error, invalid, fail, inconclusive, pass. It is an error where no request of the run
/// succeeded, or none of a case with scheduled requests and without a check (a stage counts with its case). A case
/// without a check is invalid where its self-audit failed or it was never reached.
pub fn run_verdict(cases: &[CaseReport]) -> RunVerdict {
    let has_failed = |case: &CaseReport| case.counts.ok + case.counts.abandoned == 0;
    let is_unchecked = |case: &CaseReport| {
        has_failed(case)
            && case.counts.scheduled > 0
            && case.verdicts.is_empty()
            && !case.is_stage()
    };
    if cases.iter().all(has_failed) || cases.iter().any(is_unchecked) {
        return RunVerdict::Error;
    }
    let rulings = cases
        .iter()
        .flat_map(|case| &case.verdicts)
        .map(|verdict| verdict_of_ruling(verdict.ruling));
    let unjudged = |case: &&CaseReport| case.verdicts.is_empty() && !case.is_stage();
    let audits = cases
        .iter()
        .filter(unjudged)
        .filter(|case| case.is_invalid())
        .map(|_| RunVerdict::Invalid);
    let is_short =
        |case: &CaseReport| !case.verdicts.is_empty() && case.dataset_shortfall().is_some();
    // Objectives that are met over fewer requests than planned must not pass a gate.
    let short = cases
        .iter()
        .any(is_short)
        .then_some(RunVerdict::Inconclusive);
    rulings
        .chain(audits)
        .chain(short)
        .max_by_key(|&verdict| severity(verdict))
        .unwrap_or_default()
}

/// The verdict on a run of capacity searches; of a successive halving, on the search of its best candidate. It passes
/// where each has a confirmed result, fails where the lowest load fails or a cost is too high at the result, is
/// inconclusive where the probes did not suffice, invalid where repeated invalid probes stopped a search, and an
/// error where no request succeeded.
pub fn search_verdict(searches: &[SearchReport], cases: &[CaseReport]) -> RunVerdict {
    if cases.iter().all(|case| case.counts.ok == 0) {
        return RunVerdict::Error;
    }
    let verdict = |search: &SearchReport| match search.finding.extent {
        _ if !search.finding.converged
            && search
                .probes
                .last()
                .is_some_and(|probe| probe.pass_probability.is_none()) =>
        {
            RunVerdict::Invalid
        }
        _ if !search.finding.converged => RunVerdict::Inconclusive,
        Extent::Nothing => RunVerdict::Fail,
        Extent::Within | Extent::AtLeast => search
            .easier_objectives()
            .iter()
            .map(|verdict| verdict_of_ruling(verdict.ruling))
            .max_by_key(|&verdict| severity(verdict))
            .unwrap_or_default(),
    };
    // A halving without a best candidate ended early.
    let group = |search: &SearchReport| search.candidacy.as_ref().map(|one| one.group);
    let has_best = |search: &SearchReport| {
        let same = searches
            .iter()
            .filter(|other| group(other) == group(search));
        same.into_iter().any(SearchReport::is_result)
    };
    let unfinished = searches.iter().any(|search| !has_best(search));
    searches
        .iter()
        .filter(|search| search.is_result())
        .map(verdict)
        .chain(unfinished.then_some(RunVerdict::Inconclusive))
        .max_by_key(|&verdict| severity(verdict))
        .unwrap_or_default()
}

fn verdict_of_ruling(ruling: Ruling) -> RunVerdict {
    match ruling {
        Ruling::Pass => RunVerdict::Pass,
        Ruling::Fail => RunVerdict::Fail,
        Ruling::Inconclusive => RunVerdict::Inconclusive,
        Ruling::Invalid => RunVerdict::Invalid,
    }
}

fn severity(verdict: RunVerdict) -> u8 {
    match verdict {
        RunVerdict::Pass => 0,
        RunVerdict::Inconclusive => 1,
        RunVerdict::Fail => 2,
        RunVerdict::Invalid => 3,
        RunVerdict::Error => 4,
    }
}

/// The exit code of a run; 130 where it was interrupted, whatever the verdict. 2 is for errors in a scenario or a
/// command line, where there is no verdict.
pub fn exit_code(verdict: RunVerdict, interrupted: bool) -> u8 {
    match verdict {
        _ if interrupted => 130,
        RunVerdict::Pass => 0,
        RunVerdict::Fail => 1,
        RunVerdict::Error => 3,
        RunVerdict::Invalid => 4,
        RunVerdict::Inconclusive => 5,
    }
}

#[cfg(test)]
mod tests;
