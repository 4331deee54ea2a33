use super::*;
use crate::fixture::{case, failing, no_data, report_of, searched, sweep, two_groups};
use llmscen_core::report::{Cause, RunVerdict};

fn shown(report: &Report, width: Option<usize>) -> String {
    let options = ScreenOptions {
        width,
        location: "reports/chat/x/report.html",
        ..ScreenOptions::default()
    };
    screen(report, &options)
}

/// A report of cases that all passed.
fn passed() -> Report {
    let mut passing = case(4);
    for verdict in &mut passing.verdicts {
        verdict.ruling = Ruling::Pass;
    }
    report_of(vec![passing], RunVerdict::Pass, 0)
}

#[test]
fn every_verdict_has_its_screen() {
    let mut invalid = case(4);
    invalid.audit.valid = false;
    invalid.audit.reasons = vec![Cause::LoadGenerator.reason("host CPU was 100%")];
    invalid.verdicts[0].ruling = Ruling::Invalid;
    let error = Report {
        hints: vec!["help: set target.api_key".to_owned()],
        ..report_of(vec![no_data()], RunVerdict::Error, 3)
    };
    let reports = [
        passed(),
        report_of(vec![failing()], RunVerdict::Fail, 1),
        sweep(12),
        report_of(vec![invalid], RunVerdict::Invalid, 4),
        error,
        searched(),
    ];
    let screens = reports.map(|report| shown(&report, Some(100)));
    insta::assert_snapshot!(screens.join(&format!("\n{}\n\n", "=".repeat(100))));
}

#[test]
fn a_hundred_cases_fit_a_screen_of_40_lines_and_80_columns() {
    let text = shown(&sweep(100), Some(80));
    assert!(text.lines().count() <= 40, "{text}");
    for line in text.lines().filter(|line| !line.contains("Report: ")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.contains("… 88 more cases in the report"), "{text}");
}

#[test]
fn the_factor_of_the_limit_shows_the_sign_of_a_small_difference() {
    let (_, mut verdict) = (case(4), case(4).verdicts[0].clone());
    let mut of = |observed: f64| {
        verdict.observed = Some(observed);
        of_limit(&verdict)
    };
    // The limit is 500 ms.
    assert_eq!(of(4100.0), "8.2x");
    assert_eq!(of(501.0), "+0.2%");
    assert_eq!(of(499.0), "-0.2%");
    assert_eq!(of(250.0), "0.50x");
    verdict.observed = None;
    assert_eq!(of_limit(&verdict), "");
}

#[test]
fn failures_are_annotations_and_the_worst_is_first() {
    let lines = annotations(&report_of(vec![failing()], RunVerdict::Fail, 1));
    assert!(!lines.is_empty() && lines.len() <= 10);
    assert!(lines.iter().all(|(is_error, _)| *is_error), "{lines:?}");
    assert!(lines[0].1.starts_with("FAIL: "), "{lines:?}");
    assert_eq!(annotations(&passed()), []);
    let undecided = annotations(&sweep(12));
    assert!(
        undecided.iter().any(|(is_error, _)| !is_error),
        "{undecided:?}"
    );
}

#[test]
fn the_title_counts_the_groups_that_have_a_best_candidate() {
    let mut report = two_groups();
    assert_eq!(counts(&report, 80), "2 of 2 groups have a best candidate");
    if let Some(candidacy) = &mut report.searches[2].candidacy {
        candidacy.fate = None;
    }
    assert_eq!(counts(&report, 80), "1 of 2 groups have a best candidate");
    report.searches.truncate(2);
    assert_eq!(
        counts(&report, 80),
        "best of 2: tokens=100, max_num_seqs=16: highest goodput at concurrency 16 (between 15 and 17)"
    );
    report.searches.remove(1);
    report.searches.push(report.searches[0].clone());
    assert_eq!(counts(&report, 80), "2 candidates, none the best");
}
