//! The cases of a run that could not be measured to their end.

use crate::format::plain;
use llmscen_core::report::Report;

/// Why cases failed, each reason once with the cases that it is about; of a run of one case, the reason alone.
pub(super) fn failures(report: &Report) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for failed in &report.manifest.failed {
        let case = format!("`{}`", failed.case);
        match reasons.iter_mut().find(|(why, _)| *why == failed.why) {
            Some((_, cases)) => cases.push(case),
            None => reasons.push((failed.why.as_str(), vec![case])),
        }
    }
    let alone = report.cases.iter().filter(|case| !case.is_stage()).count() == 1;
    let text = |(why, cases): (&str, Vec<String>)| {
        let why = plain(why);
        let why = why.trim_end_matches('.');
        if alone { why.to_owned() } else { format!("{}: {why}", cases.join(", ")) }
    };
    reasons.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use crate::fixture::{case, failing, no_data, report_of};
    use crate::headline::reason;
    use llmscen_core::manifest::FailedCase;
    use llmscen_core::report::RunVerdict;

    #[test]
    fn every_case_that_failed_is_explained_and_one_alone_is_not_named() {
        let failed = |case: &str, why: &str| FailedCase { case: case.into(), why: why.into() };
        let refused = "stopped after 20 of 5000 requests: every one failed with HTTP 401 (Unauthorized)";
        let mut report = report_of(vec![no_data()], RunVerdict::Error, 3);
        report.manifest.failed = vec![failed("base", refused)];
        report.manifest.error = Some(refused.into());
        report.hints = vec!["help: set a key".into()];
        assert_eq!(reason(&report), format!("{refused}. help: set a key"));
        report.hints.clear();
        report.cases = vec![case(1), case(4), failing()];
        report.manifest.failed = vec![failed("a", "the server ended"), failed("b", refused), failed("c", "the server ended")];
        assert_eq!(reason(&report), format!("`a`, `c`: the server ended; `b`: {refused}."));
        report.manifest.error = Some("the disk is full".into());
        assert_eq!(reason(&report), format!("the run stopped: the disk is full; `a`, `c`: the server ended; `b`: {refused}."));
        report.manifest.failed.clear();
        assert_eq!(reason(&report), "the run stopped: the disk is full.");
    }
}
