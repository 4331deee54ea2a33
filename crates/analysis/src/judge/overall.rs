//! The verdict on a whole run, and its exit code.

use llmscen_core::check::Ruling;
use llmscen_core::report::{CaseReport, RunVerdict};
use llmscen_core::search::{Extent, SearchReport};

/// The worst of all cases: an error where no request of the run succeeded, or none of a case that was sent some and has no
/// check to say so (of a stage its case says so); else invalid, fail, inconclusive, pass. A case without a check is invalid where its audit found its
/// values not to be the server's; so is one that was never reached.
pub fn overall(cases: &[CaseReport]) -> RunVerdict {
    let lost = |case: &CaseReport| case.counts.ok + case.counts.abandoned == 0;
    let unsaid = |case: &CaseReport| lost(case) && case.counts.scheduled > 0 && case.verdicts.is_empty() && !case.is_stage();
    if cases.iter().all(lost) || cases.iter().any(unsaid) {
        return RunVerdict::Error;
    }
    let rulings = cases.iter().flat_map(|case| &case.verdicts).map(|verdict| of_ruling(verdict.ruling));
    let unjudged = |case: &&CaseReport| case.verdicts.is_empty() && !case.is_stage();
    let audits = cases.iter().filter(unjudged).filter(|case| case.is_invalid()).map(|_| RunVerdict::Invalid);
    let short = |case: &CaseReport| !case.verdicts.is_empty() && case.unreached().is_some();
    // Objectives that hold over fewer requests than the scenario asks for must not pass a gate in silence.
    let data = cases.iter().any(short).then_some(RunVerdict::Inconclusive);
    rulings.chain(audits).chain(data).max_by_key(|&verdict| severity(verdict)).unwrap_or_default()
}

/// The verdict on a run of searches. That some loads fail is what a search is for: it passes where each has an answer that was
/// confirmed, fails where not even the least load holds, and is inconclusive where its probes did not suffice. As elsewhere it
/// is an error where no request succeeded, and invalid where the tool was measured so often in a row that the search was given
/// up.
pub fn found(searches: &[SearchReport], cases: &[CaseReport]) -> RunVerdict {
    if cases.iter().all(|case| case.counts.ok == 0) {
        return RunVerdict::Error;
    }
    let one = |search: &SearchReport| match search.finding.extent {
        _ if !search.finding.settled && search.probes.last().is_some_and(|probe| probe.holds.is_none()) => RunVerdict::Invalid,
        _ if !search.finding.settled => RunVerdict::Inconclusive,
        Extent::Nothing => RunVerdict::Fail,
        Extent::Within | Extent::AtLeast => RunVerdict::Pass,
    };
    searches.iter().map(one).max_by_key(|&verdict| severity(verdict)).unwrap_or_default()
}

fn of_ruling(ruling: Ruling) -> RunVerdict {
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

/// The exit code of a run: 130 where it was interrupted, whatever was ruled on what there is. 2 belongs to a scenario or a
/// command line that is wrong, and then there is no verdict.
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
mod tests {
    use super::*;
    use crate::judge::fixture::{check, conditions, ok, sample};
    use crate::judge::rule;
    use llmscen_core::check::{Op, Verdict};
    use llmscen_core::labels::{Labels, Scalar};
    use llmscen_core::metric::Metric;
    use llmscen_core::plan::STAGE;
    use llmscen_core::report::{Audit, DatasetEnd};
    use llmscen_core::sample::Counts;

    fn case(rulings: &[Ruling], valid: bool, succeeded: u64) -> CaseReport {
        let wanted = check(Metric::ErrorRate, None, Op::Less, 0.5);
        let verdict = rule(&wanted, &sample(vec![ok(Metric::Ttft, 1.0)]), &conditions(true));
        CaseReport {
            verdicts: rulings.iter().map(|&ruling| Verdict { ruling, ..verdict.clone() }).collect(),
            audit: Audit { valid, ..Audit::default() },
            counts: Counts { scheduled: 5, ok: succeeded, ..Counts::default() },
            ..CaseReport::default()
        }
    }

    #[test]
    fn the_worst_wins() {
        use Ruling::{Fail, Inconclusive, Invalid, Pass};
        let of = |rulings: &[Ruling]| overall(&[case(&[Pass], true, 5), case(rulings, true, 5)]);
        let all = [of(&[]), of(&[Pass]), of(&[Inconclusive, Pass]), of(&[Fail, Inconclusive]), of(&[Fail, Invalid, Pass])];
        let known = [RunVerdict::Pass, RunVerdict::Pass, RunVerdict::Inconclusive, RunVerdict::Fail, RunVerdict::Invalid];
        assert_eq!(all, known);
    }

    #[test]
    fn a_dataset_that_ends_early_passes_no_gate() {
        let of = |planned, rulings: &[Ruling]| {
            let end = DatasetEnd { after: 209, planned };
            overall(&[CaseReport { dataset_end: Some(end), ..case(rulings, true, 5) }])
        };
        assert_eq!(of(Some(100_000), &[Ruling::Pass]), RunVerdict::Inconclusive);
        assert_eq!(of(Some(100_000), &[Ruling::Fail]), RunVerdict::Fail);
        assert_eq!([of(None, &[Ruling::Pass]), of(Some(100_000), &[])], [RunVerdict::Pass; 2], "nothing was asked for, or set");
    }

    #[test]
    fn an_audit_that_failed_decides_where_no_verdict_does() {
        assert_eq!(overall(&[case(&[], false, 5)]), RunVerdict::Invalid);
        assert_eq!(overall(&[case(&[Ruling::Pass], false, 5)]), RunVerdict::Pass, "the verdict is valid");
        let stage = |rulings: &[Ruling]| {
            let labels = Labels::default().with(STAGE, Scalar::Int(1));
            CaseReport { labels, ..case(rulings, false, 5) }
        };
        let elsewhere = |case: CaseReport| CaseReport { judged_elsewhere: true, ..case };
        assert_eq!(overall(&[elsewhere(case(&[], false, 5)), stage(&[Ruling::Pass])]), RunVerdict::Pass);
        assert_eq!(overall(&[case(&[Ruling::Pass], false, 5), elsewhere(stage(&[]))]), RunVerdict::Pass);
        assert_eq!(overall(&[case(&[], false, 5), stage(&[])]), RunVerdict::Invalid);
    }

    #[test]
    fn a_run_without_one_success_could_not_be_carried_out() {
        let lost = case(&[Ruling::Fail], true, 0);
        assert_eq!(overall(&[lost.clone(), lost.clone()]), RunVerdict::Error);
        assert_eq!(overall(&[]), RunVerdict::Error);
        assert_eq!(overall(&[lost, case(&[], true, 1)]), RunVerdict::Fail);
        assert_eq!(overall(&[case(&[], true, 0), case(&[], true, 1)]), RunVerdict::Error);
        let labels = Labels::default().with(STAGE, Scalar::Int(2));
        assert_eq!(overall(&[case(&[], true, 1), CaseReport { labels, ..case(&[], true, 0) }]), RunVerdict::Pass);
        let never_reached = CaseReport { counts: Counts::default(), ..case(&[], false, 0) };
        assert_eq!(overall(&[case(&[], true, 1), never_reached]), RunVerdict::Invalid);
    }

    #[test]
    fn every_verdict_has_its_code() {
        use RunVerdict::{Error, Fail, Inconclusive, Invalid, Pass};
        assert_eq!([Pass, Fail, Error, Invalid, Inconclusive].map(|verdict| exit_code(verdict, false)), [0, 1, 3, 4, 5]);
        assert_eq!([Pass, Fail, Error].map(|verdict| exit_code(verdict, true)), [130; 3]);
    }
}
