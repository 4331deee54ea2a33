use super::*;
use crate::fixture::{case, failing, no_data, report_of, sweep};
use llmscen_core::label::{Labels, STAGE, Scalar};
use llmscen_core::manifest::{FailedCase, Part};
use llmscen_core::report::{Cause, DatasetEnd};

#[test]
fn validity_counts_the_invalid_cases() {
    let mut report = sweep(2);
    assert_eq!(
        validity(&report).unwrap().1,
        "Measurement: valid (send delay p99 410 µs, event-loop stall p99 300 µs)."
    );
    report.cases[0].verdicts[0].ruling = Ruling::Invalid;
    assert!(
        validity(&report)
            .unwrap()
            .1
            .starts_with("Measurement: INVALID in 1 of 2 cases")
    );
}

#[test]
fn without_a_success_nothing_is_valid_or_invalid() {
    let mut report = sweep(1);
    report.cases.iter_mut().for_each(|case| case.counts.ok = 0);
    assert_eq!(
        validity(&report).unwrap().1,
        "Measurement: no request succeeded, so nothing is known of latencies (send delay p99 \
        410 µs, event-loop stall p99 300 µs)."
    );
}

#[test]
fn each_verdict_has_a_reason() {
    let pass = |ruling| {
        let mut case = case(4);
        case.verdicts
            .iter_mut()
            .for_each(|verdict| verdict.ruling = ruling);
        case
    };
    let table = [
        (
            report_of(vec![pass(Ruling::Pass)], RunVerdict::Pass, 0),
            "all 2 objectives met: 1 case, 240 of 240 requests succeeded.",
        ),
        (
            report_of(vec![case(4), failing()], RunVerdict::Fail, 1),
            "2 of 4 objectives failed. Worst: `ttft.p99 < 500ms` in `concurrency=64`, \
            observed 1.33 s, 2.7x the limit.",
        ),
        (
            sweep(1),
            "1 of 2 objectives is inconclusive. `error_rate < 1%` in `concurrency=1` has 240 \
            of about 299 samples; increase `load.requests` or `load.duration`.",
        ),
        (
            report_of(vec![no_data()], RunVerdict::Invalid, 4),
            "the load generator was the bottleneck in 1 of 1 case, so their numbers are not \
            the server's. `base`: schedule lag p99 8.1 ms is over 5 ms. Run llmscen on an \
            idle machine or with more CPU cores, or lower the load.",
        ),
        (
            report_of(vec![no_data()], RunVerdict::Error, 3),
            "no request succeeded: 8 of 8 in `base` failed with `connect`: connection refused.",
        ),
        (report_of(vec![], RunVerdict::Pass, 0), "no case ran."),
        (
            report_of(vec![no_data()], RunVerdict::Fail, 1),
            "1 of 1 objective failed: `ttft.p99 < 500ms` in `base`, no data.",
        ),
    ];
    for (report, line) in table {
        assert_eq!(reason(&report), line);
    }
}

#[test]
fn a_request_of_a_stage_is_not_counted_twice() {
    let labels = Labels::default().with(STAGE, Scalar::Int(1));
    let stages = [case(4), case(4)].map(|stage| CaseReport {
        labels: labels.clone(),
        ..stage
    });
    let report = report_of([vec![case(4)], stages.into()].concat(), RunVerdict::Pass, 0);
    assert_eq!(
        extent(&report),
        "1 case in 2 stages, 240 of 240 requests succeeded"
    );
}

#[test]
fn a_deviation_from_the_plan_is_not_blamed_on_the_load_generator() {
    let mut cut = no_data();
    cut.audit.reasons = vec![Cause::OffPlan.reason("interrupted")];
    let line = reason(&report_of(vec![cut], RunVerdict::Invalid, 4));
    assert_eq!(
        line,
        "1 of 1 case deviated from the plan. `base`: interrupted."
    );
}

#[test]
fn a_verdict_that_could_have_flipped_is_named_with_its_reason() {
    use llmscen_core::report::ObjectiveAudit;
    let mut report = sweep(1);
    report.verdict = RunVerdict::Invalid;
    let case = &mut report.cases[0];
    let (expr, none) = ("x".to_owned(), [None; 3]);
    let audit = ObjectiveAudit {
        expr,
        measured: Ruling::Fail,
        slow: None,
        fast: None,
        observed: none,
        reasons: vec![Cause::LoadGenerator.reason("y")],
    };
    case.audit.objectives = vec![audit];
    (case.verdicts[0].ruling, case.verdicts[0].note) =
        (Ruling::Invalid, Some("a worker thread was stalled".into()));
    let known = "1 of 2 objectives: the load generator may have caused the result. `ttft.p99 \
        < 500ms` in `concurrency=1`: a worker thread was stalled. Run llmscen on an idle \
        machine or with more CPU cores, or lower the load.";
    assert_eq!(reason(&report), known);
    report.cases[0].audit.reasons = vec![Cause::PrefixCache.reason("93% of the prompt tokens")];
    let known = "1 of 1 case measured the server's prefix cache. `concurrency=1`: 93% of the prompt tokens.";
    assert_eq!(reason(&report), known);
    report.cases[0].audit.reasons = vec![Cause::IdleServer.reason("1 of the 2 workers")];
    let known =
        "1 of 1 case did not measure all of the server. `concurrency=1`: 1 of the 2 workers.";
    assert_eq!(reason(&report), known);
}

#[test]
fn an_interruption_has_its_cause() {
    let mut report = sweep(1);
    assert_eq!(interruption(&report), None);
    report.manifest.interrupted = true;
    report.manifest.parts = vec![Part {
        cut_short: Some("Ctrl-C".into()),
        ..Part::default()
    }];
    let text = interruption(&report).unwrap();
    assert_eq!(
        text,
        "Run interrupted (Ctrl-C). Results cover only the requests that finished."
    );
    report.verdict = RunVerdict::Invalid;
    let why =
        "interrupted after 1 case, 240 of 240 requests succeeded; unfinished cases are not judged.";
    assert_eq!(reason(&report), why);
    report.verdict = RunVerdict::Fail;
    assert_ne!(reason(&report), why, "a failed objective takes precedence");
}

#[test]
fn the_remedy_for_dropped_requests_is_max_in_flight() {
    let mut report = report_of(vec![no_data()], RunVerdict::Invalid, 4);
    report.cases[0].audit.dropped = 3;
    assert!(
        reason(&report).ends_with("Raise `load.max_in_flight`, or lower the rate."),
        "{}",
        reason(&report)
    );
}

#[test]
fn the_last_line_is_the_verdict_and_its_reason() {
    let report = report_of(vec![no_data()], RunVerdict::Error, 3);
    let reason =
        "no request succeeded: 8 of 8 in `base` failed with `connect`: connection refused.\n";
    assert_eq!(verdict_line(&report, false), format!("ERROR: {reason}"));
    assert_eq!(
        verdict_line(&report, true),
        format!("\u{1b}[31mERROR\u{1b}[0m: {reason}")
    );
}

fn run_with_dataset_end(verdict: RunVerdict, ruling: Ruling, planned: Option<u64>) -> Report {
    let mut case = case(4);
    case.verdicts
        .iter_mut()
        .for_each(|verdict| verdict.ruling = ruling);
    case.dataset_end = Some(DatasetEnd {
        after: 209,
        planned,
    });
    report_of(vec![case], verdict, 0)
}

#[test]
fn the_headline_names_the_end_of_the_dataset() {
    let inconclusive = reason(&run_with_dataset_end(
        RunVerdict::Inconclusive,
        Ruling::Pass,
        Some(100_000),
    ));
    assert!(
        inconclusive
            .starts_with("the dataset ended after 209 of 100000 requests; all 2 objectives met"),
        "{inconclusive}"
    );
    assert!(inconclusive.ends_with(DATASET_HELP), "{inconclusive}");
    let failed = reason(&run_with_dataset_end(
        RunVerdict::Fail,
        Ruling::Fail,
        Some(100_000),
    ));
    assert!(
        failed.ends_with(" The dataset ended after 209 of 100000 requests."),
        "{failed}"
    );
    let passed = reason(&run_with_dataset_end(RunVerdict::Pass, Ruling::Pass, None));
    assert!(
        passed.ends_with("requests succeeded. The dataset ended after 209 requests."),
        "{passed}"
    );
}

#[test]
fn every_failed_case_is_explained_and_a_single_one_is_not_named() {
    let failed = |case: &str, why: &str| FailedCase {
        case: case.into(),
        round: 0,
        why: why.into(),
    };
    let refused =
        "stopped after 20 of 5000 requests: every one failed with HTTP 401 (Unauthorized)";
    let mut report = report_of(vec![no_data()], RunVerdict::Error, 3);
    report.manifest.failed = vec![failed("base", refused)];
    report.manifest.error = Some(refused.into());
    report.hints = vec!["help: set a key".into()];
    assert_eq!(reason(&report), format!("{refused}. help: set a key"));
    report.hints.clear();
    report.cases = vec![case(1), case(4), failing()];
    report.manifest.failed = vec![
        failed("a", "the server ended"),
        failed("b", refused),
        failed("c", "the server ended"),
    ];
    assert_eq!(
        reason(&report),
        format!("`a`, `c`: the server ended; `b`: {refused}.")
    );
    report.manifest.error = Some("the disk is full".into());
    assert_eq!(
        reason(&report),
        format!("the run stopped: the disk is full; `a`, `c`: the server ended; `b`: {refused}.")
    );
    report.manifest.failed.clear();
    assert_eq!(reason(&report), "the run stopped: the disk is full.");
}
