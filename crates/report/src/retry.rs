//! Requests that were tried more than once, and users who left.

use crate::escape::code;
use crate::format::percent;
use crate::sheet::Sheet;
use llmscen_core::report::{CaseReport, Report};

/// The cases in which there were any.
pub fn manners(report: &Report) -> Sheet {
    let heads = ["Case", ">Retries", ">Requests tried again", ">Share", ">Abandoned", ">Share"];
    let some = report.cases.iter().filter(|case| case.counts.retries + case.counts.abandoned > 0);
    Sheet::new(&heads, some.map(row).collect())
}

fn row(case: &CaseReport) -> Vec<String> {
    let counts = &case.counts;
    let share = |part: u64| percent(part as f64 / counts.scheduled.max(1) as f64);
    let [again, left] = [counts.retried, counts.abandoned].map(share);
    vec![code(&case.id), counts.retries.to_string(), counts.retried.to_string(), again, counts.abandoned.to_string(), left]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of};
    use llmscen_core::report::RunVerdict;
    use llmscen_core::sample::Counts;

    #[test]
    fn only_cases_with_something_to_tell_have_a_row() {
        let mut told = case(2);
        told.counts = Counts { scheduled: 200, retries: 7, retried: 5, abandoned: 10, ..Counts::default() };
        let sheet = manners(&report_of(vec![case(1), told], RunVerdict::Pass, 0));
        assert_eq!(sheet.rows, [["`concurrency=2`", "7", "5", "2.5%", "10", "5%"]]);
    }
}
