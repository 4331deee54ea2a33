//! Runs whose data ended before their load did.

use llmscen_core::check::Ruling;
use llmscen_core::report::{CaseReport, Report, RunVerdict};

/// What to do about it.
const HELP: &str = "Lower `load.requests`, or set `dataset.on_exhausted: cycle`.";

/// Why the data ended early, with the first case that it ended and the number of the others.
fn ended(report: &Report) -> Option<String> {
    let mut cases = report.cases.iter().filter_map(|case| Some((case, case.dataset_end?)));
    let (case, end) = cases.next()?;
    Some(match cases.count() {
        0 if report.cases.len() == 1 => end.to_string(),
        0 => format!("{end} in `{}`", case.id),
        1 => format!("{end} in `{}`, and early in 1 other case", case.id),
        more => format!("{end} in `{}`, and early in {more} other cases", case.id),
    })
}

/// Whether nothing but the end of the data keeps the run from passing.
fn decisive(report: &Report) -> bool {
    let passed = |case: &CaseReport| case.verdicts.iter().all(|verdict| verdict.ruling == Ruling::Pass);
    report.verdict == RunVerdict::Inconclusive && report.searches.is_empty() && report.cases.iter().all(passed)
}

/// The reason of a verdict with what the end of the data has to do with it. `passed`: the reason of the same run as a pass.
pub fn explain(report: &Report, reason: impl FnOnce() -> String, passed: impl FnOnce() -> String) -> String {
    match ended(report) {
        None => reason(),
        Some(ended) if decisive(report) => format!("{ended}; {} {HELP}", passed()),
        Some(ended) => format!("{} {}.", reason(), ended.replacen('t', "T", 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of};
    use crate::headline::reason;
    use llmscen_core::report::DatasetEnd;

    fn run(verdict: RunVerdict, ruling: Ruling, planned: Option<u64>) -> Report {
        let mut case = case(4);
        case.verdicts.iter_mut().for_each(|verdict| verdict.ruling = ruling);
        case.dataset_end = Some(DatasetEnd { after: 209, planned });
        report_of(vec![case], verdict, 0)
    }

    #[test]
    fn the_headline_says_where_the_data_ended() {
        let inconclusive = reason(&run(RunVerdict::Inconclusive, Ruling::Pass, Some(100_000)));
        assert!(inconclusive.starts_with("the dataset ended after 209 of 100000 requests; all 2 limits held"), "{inconclusive}");
        assert!(inconclusive.ends_with(HELP), "{inconclusive}");
        let failed = reason(&run(RunVerdict::Fail, Ruling::Fail, Some(100_000)));
        assert!(failed.ends_with(" The dataset ended after 209 of 100000 requests."), "{failed}");
        let passed = reason(&run(RunVerdict::Pass, Ruling::Pass, None));
        assert!(passed.ends_with("requests ok. The dataset ended after 209 requests."), "{passed}");
    }
}
