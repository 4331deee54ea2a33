//! junit.xml: a test suite per case, a test case per objective.
//!
//! | verdict | JUnit |
//! |---|---|
//! | pass | a success |
//! | fail | a `failure` of type `fail` |
//! | inconclusive | a `failure` of type `inconclusive`, or `skipped` with `--inconclusive=pass` |
//! | invalid | an `error` of type `invalid` |
//!
//! A suite has the duration of its case, and its main metrics as properties; its test cases have no duration. The
//! text of a failure is in both its message and its body, because viewers show one or the other.
//!
//! Three more test cases exist for problems that belong to no objective: `self-audit` for an invalid case without
//! objectives, `dataset` (inconclusive) for a dataset that ended before `load.requests`, and the suite `run` for a
//! run that was interrupted or failed. That suite also has the commands after the load (`then`).

use crate::format::{against, check_title, plain, value};
use crate::objectives::{limit_text, subject_mark};
use crate::{ReportError, headline};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, InvalidReason, Report, RunVerdict};
use quick_junit::{NonSuccessKind, Report as Document, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;

/// The JUnit status of an inconclusive verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inconclusive {
    /// A failure of type `inconclusive`.
    #[default]
    Failure,
    /// A skipped test, with `--inconclusive=pass`.
    Skipped,
}

/// junit.xml of a report.
///
/// # Errors
/// [`ReportError::Junit`] if the XML cannot be serialized.
pub fn junit(report: &Report, inconclusive: Inconclusive) -> Result<String, ReportError> {
    let mut document = Document::new(format!("llmscen {}", report.manifest.name));
    document.timestamp = report.manifest.started_at.parse().ok();
    document.time = report
        .manifest
        .elapsed_s
        .and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    // Probes of a search are expected to fail, so the result of the search is the test case.
    if report.searches.is_empty() {
        document.add_test_suites(
            report
                .cases
                .iter()
                .map(|case| case_suite(&report.manifest.name, case, inconclusive)),
        );
    } else {
        document.add_test_suite(search_suite(report, inconclusive));
    }
    document.add_test_suites(run_suite(report));
    Ok(document.to_string()?)
}

fn case_suite(scenario: &str, case: &CaseReport, inconclusive: Inconclusive) -> TestSuite {
    let mut suite = TestSuite::new(plain(&case.id));
    let class = plain(&format!("{scenario}.{}", case.id));
    suite.set_time(
        case.scalars
            .get(&Metric::Window)
            .and_then(|secs| Duration::try_from_secs_f64(*secs).ok())
            .unwrap_or_default(),
    );
    suite.add_properties(properties(case));
    for verdict in &case.verdicts {
        suite.add_test_case(test(
            plain(&check_title(&verdict.check)),
            &class,
            verdict_status(case, verdict, inconclusive),
        ));
    }
    if case.verdicts.is_empty() && case.is_invalid() {
        let status = failed_status(
            NonSuccessKind::Error,
            "invalid",
            &InvalidReason::joined(&case.audit.reasons),
        );
        suite.add_test_case(test("self-audit".to_owned(), &class, status));
    }
    if let Some(end) = case
        .dataset_shortfall()
        .filter(|_| !case.verdicts.is_empty())
    {
        suite.add_test_case(test(
            "dataset".to_owned(),
            &class,
            inconclusive_status(inconclusive, &end.to_string()),
        ));
    }
    suite
}

fn test(name: String, class: &str, status: TestCaseStatus) -> TestCase {
    let mut test = TestCase::new(name, status);
    test.set_classname(class).set_time(Duration::ZERO);
    test
}

/// The load, the swept values and the main metrics of a case.
fn properties(case: &CaseReport) -> Vec<(String, String)> {
    let labels = case
        .labels
        .0
        .iter()
        .map(|(path, value)| (path.clone(), value.to_string()));
    let scalar = |metric: Metric| {
        Some((
            metric.column().to_owned(),
            value(*case.scalars.get(&metric)?, metric.unit()),
        ))
    };
    let quantile = |metric: Metric, share: f64, name: &str| {
        let quantile = case.distributions.get(&metric)?.quantile(share)?;
        Some((
            format!("{}.{name}", metric.name()),
            value(quantile, metric.unit()),
        ))
    };
    let load = ("load".to_owned(), case.load.clone());
    let counts = (
        "ok".to_owned(),
        format!("{}/{}", case.counts.ok, case.counts.scheduled),
    );
    let metrics = [
        scalar(Metric::RequestThroughput),
        scalar(Metric::OutputTps),
        quantile(Metric::Ttft, 0.50, "p50"),
        quantile(Metric::Ttft, 0.99, "p99"),
        quantile(Metric::Itl, 0.99, "p99"),
        quantile(Metric::E2e, 0.99, "p99"),
    ];
    let all = [load]
        .into_iter()
        .chain(labels)
        .chain([counts])
        .chain(metrics.into_iter().flatten());
    all.map(|(name, value)| (plain(&name), plain(&value)))
        .collect()
}

fn search_suite(report: &Report, inconclusive: Inconclusive) -> TestSuite {
    let mut suite = TestSuite::new("search");
    let status = match (report.verdict, inconclusive) {
        (RunVerdict::Pass, _) => TestCaseStatus::success(),
        (RunVerdict::Error, _) => {
            failed_status(NonSuccessKind::Error, "error", &headline::reason(report))
        }
        (RunVerdict::Inconclusive, Inconclusive::Skipped) => TestCaseStatus::skipped(),
        (RunVerdict::Invalid, _) => {
            failed_status(NonSuccessKind::Error, "invalid", &headline::reason(report))
        }
        (RunVerdict::Inconclusive, _) => failed_status(
            NonSuccessKind::Failure,
            "inconclusive",
            &headline::reason(report),
        ),
        (RunVerdict::Fail, _) => {
            failed_status(NonSuccessKind::Failure, "fail", &headline::reason(report))
        }
    };
    suite.add_properties([("answer".to_owned(), plain(&headline::reason(report)))]);
    suite.add_test_case(test(
        "converged".to_owned(),
        &class_name(report, "search"),
        status,
    ));
    suite
}

fn verdict_status(
    case: &CaseReport,
    verdict: &Verdict,
    inconclusive: Inconclusive,
) -> TestCaseStatus {
    let message = verdict_message(case, verdict);
    match (verdict.ruling, inconclusive) {
        (Ruling::Pass, _) => TestCaseStatus::success(),
        (Ruling::Fail, _) => failed_status(NonSuccessKind::Failure, "fail", &message),
        (Ruling::Invalid, _) => {
            let reasons = case.audit.reasons.iter().map(InvalidReason::text);
            let all: Vec<&str> = std::iter::once(message.as_str()).chain(reasons).collect();
            let why = all.join("; ");
            failed_status(NonSuccessKind::Error, "invalid", &why)
        }
        (Ruling::Inconclusive, how) => inconclusive_status(how, &message),
    }
}

fn inconclusive_status(how: Inconclusive, message: &str) -> TestCaseStatus {
    match how {
        Inconclusive::Failure => failed_status(NonSuccessKind::Failure, "inconclusive", message),
        Inconclusive::Skipped => {
            let mut status = TestCaseStatus::skipped();
            status.set_type("inconclusive").set_message(plain(message));
            status
        }
    }
}

fn failed_status(kind: NonSuccessKind, name: &str, message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status
        .set_type(name)
        .set_message(plain(message))
        .set_description(plain(message));
    status
}

fn verdict_message(case: &CaseReport, verdict: &Verdict) -> String {
    let (limit, unit, mark) = (
        verdict.check.limit,
        verdict.check.subject.unit(),
        subject_mark(case, verdict),
    );
    let observed = format!(
        "observed {}{}",
        verdict.observed.map_or("", |_| mark),
        against(verdict.observed, limit, unit)
    );
    let bound = verdict
        .bound
        .map(|bound| format!("bound {mark}{}", against(Some(bound), limit, unit)));
    let limit = format!("limit {}, n {}", limit_text(verdict), verdict.n);
    let need = verdict
        .need
        .map(|need| format!("needs about {need} samples"));
    let parts = [
        Some(observed),
        bound,
        Some(limit),
        need,
        verdict.note.clone(),
    ];
    plain(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn class_name(report: &Report, suite: &str) -> String {
    plain(&format!("{}.{suite}", report.manifest.name))
}

fn run_suite(report: &Report) -> Option<TestSuite> {
    let mut suite = TestSuite::new("run");
    if let Some(text) = headline::interruption(report) {
        let status = failed_status(NonSuccessKind::Error, "interrupted", &text);
        suite.add_test_case(test(
            "not interrupted".to_owned(),
            &class_name(report, "run"),
            status,
        ));
    }
    if report.verdict == RunVerdict::Error {
        let text = headline::reason(report);
        let status = failed_status(NonSuccessKind::Error, "error", &text);
        suite.add_test_case(test(
            "completed".to_owned(),
            &class_name(report, "run"),
            status,
        ));
    }
    for result in &report.manifest.then {
        let status = match &result.failure {
            None => TestCaseStatus::success(),
            Some(why) => failed_status(NonSuccessKind::Failure, "fail", &plain(why)),
        };
        let name = plain(&format!("{} after {}", result.name, result.case));
        suite.add_test_case(test(name, &class_name(report, "run"), status));
    }
    (suite.tests > 0).then_some(suite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failing, no_data, report_of, sweep};
    use llmscen_core::check::{Op, RequestLimit, RequestSet, Subject};
    use llmscen_core::report::{Cause, TokenSource};

    #[test]
    fn checks_over_ok_and_scheduled_requests_have_different_names() {
        let mut case = failing();
        case.verdicts[1] = case.verdicts[0].clone();
        case.verdicts[1].check.of = RequestSet::Scheduled;
        let document = parsed(
            &report_of(vec![case], RunVerdict::Fail, 1),
            Inconclusive::Failure,
        );
        let names: Vec<String> = document.test_suites[0]
            .test_cases
            .iter()
            .map(|test| test.name.to_string())
            .collect();
        assert_eq!(names, ["ttft.p99 < 500ms", "ttft.p99 < 500ms of scheduled"]);
    }

    #[test]
    fn an_invalid_verdict_has_the_reasons_of_the_audit() {
        let mut case = failing();
        case.verdicts[0].ruling = Ruling::Invalid;
        case.audit.reasons =
            vec![Cause::LoadGenerator.reason("a worker thread was busy 99 % of the time")];
        let text = junit(
            &report_of(vec![case], RunVerdict::Invalid, 4),
            Inconclusive::Failure,
        )
        .unwrap();
        assert!(
            text.contains("; a worker thread was busy 99 % of the time\" type=\"invalid\""),
            "{text}"
        );
    }

    fn parsed(report: &Report, inconclusive: Inconclusive) -> Document {
        Document::deserialize_from_str(&junit(report, inconclusive).unwrap()).unwrap()
    }

    fn types(document: &Document) -> Vec<String> {
        let cases = document
            .test_suites
            .iter()
            .flat_map(|suite| &suite.test_cases);
        let status = |test: &TestCase| match &test.status {
            TestCaseStatus::Success { .. } => "success".to_owned(),
            TestCaseStatus::NonSuccess { kind, ty, .. } => {
                format!("{kind:?} {}", ty.as_deref().unwrap_or_default())
            }
            TestCaseStatus::Skipped { ty, .. } => {
                format!("skipped {}", ty.as_deref().unwrap_or_default())
            }
        };
        cases.map(status).collect()
    }

    #[test]
    fn each_verdict_has_its_element() {
        let mut report = report_of(vec![failing(), no_data()], RunVerdict::Fail, 1);
        report.cases[0].verdicts[1].ruling = Ruling::Inconclusive;
        let document = parsed(&report, Inconclusive::Failure);
        assert_eq!(
            types(&document),
            ["Failure fail", "Failure inconclusive", "Failure fail"]
        );
        assert_eq!(
            (document.tests, document.failures, document.errors),
            (3, 3, 0)
        );
        assert_eq!(
            types(&parsed(&report, Inconclusive::Skipped))[1],
            "skipped inconclusive"
        );
        // A case without an objective has only its audit.
        report.cases[1].verdicts.clear();
        assert_eq!(
            types(&parsed(&report, Inconclusive::Failure))[2],
            "Error invalid"
        );
        assert_eq!(
            types(&parsed(&sweep(1), Inconclusive::Skipped)),
            ["success", "skipped inconclusive"]
        );
    }

    #[test]
    fn a_failure_has_the_observed_value_and_the_needed_samples() {
        let xml = junit(&sweep(1), Inconclusive::Failure).unwrap();
        let line = r#"<failure message="observed 0%, bound 1.24%, limit 1%, n 240, needs about 299 samples" type="inconclusive">observed 0%, bound 1.24%, limit 1%, n 240, needs about 299 samples</failure>"#;
        assert!(xml.contains(line), "{xml}");
        assert!(
            xml.contains(r#"<testcase name="ttft.p99 &lt; 500ms" classname="chat.concurrency=1"#),
            "{xml}"
        );
        assert!(
            xml.contains(r#"timestamp="2026-01-02T03:04:05.000+00:00""#),
            "{xml}"
        );
    }

    #[test]
    fn a_suite_has_the_duration_and_the_metrics_of_its_case() {
        let report = sweep(1);
        let window = report.cases[0].scalars[&Metric::Window];
        let document = parsed(&report, Inconclusive::Failure);
        let suite = &document.test_suites[0];
        assert!((suite.time.unwrap().as_secs_f64() - window).abs() < 0.001);
        assert!(
            suite
                .test_cases
                .iter()
                .all(|test| test.time == Some(Duration::ZERO) && test.classname.is_some())
        );
        let known = suite
            .properties
            .iter()
            .map(|property| (property.name.as_str(), property.value.as_str()))
            .collect::<Vec<_>>();
        assert_eq!(
            known[..3],
            [
                ("load", "concurrency 1"),
                ("load.concurrency", "1"),
                ("ok", "240/240")
            ]
        );
        let names: Vec<&str> = known[3..].iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            [
                "request_throughput",
                "output_tps",
                "ttft.p50",
                "ttft.p99",
                "itl.p99",
                "e2e.p99"
            ]
        );
    }

    #[test]
    fn token_counts_from_events_are_marked() {
        let mut case = failing();
        case.token_source = Some(TokenSource::Events);
        let limit = RequestLimit {
            metric: Metric::Tpot,
            op: Op::Less,
            limit: 40.0,
        };
        case.verdicts[0].check.subject = Subject::Goodput(vec![limit]);
        let report = report_of(vec![case], RunVerdict::Fail, 1);
        let xml = junit(&report, Inconclusive::Failure).unwrap();
        assert!(
            xml.contains("observed ~") && xml.contains("bound ~"),
            "{xml}"
        );
        assert!(
            headline::reason(&report).contains("observed ~"),
            "{}",
            headline::reason(&report)
        );
    }

    #[test]
    fn hostile_text_stays_well_formed() {
        let mut report = report_of(vec![failing()], RunVerdict::Fail, 1);
        report.cases[0].id = "a\u{0}<&\"'\u{1b}[31m\u{fffe}\u{8}]]>".into();
        report.cases[0].verdicts[0].note = Some("\u{1}\u{b}]]><x>\n& \u{ffff}".into());
        let document = parsed(&report, Inconclusive::Failure);
        assert_eq!(document.test_suites[0].name.as_str(), "a <&\"' [31m ]]>");
    }

    #[test]
    fn an_interrupted_run_is_an_error_of_the_run() {
        let mut report = report_of(vec![no_data()], RunVerdict::Error, 3);
        report.manifest.interrupted = true;
        let document = parsed(&report, Inconclusive::Failure);
        assert_eq!(document.test_suites[1].name.as_str(), "run");
        assert_eq!(types(&document)[1..], ["Error interrupted", "Error error"]);
        assert_eq!(
            parsed(
                &report_of(Vec::new(), RunVerdict::Pass, 0),
                Inconclusive::Failure
            )
            .tests,
            0
        );
    }
}
