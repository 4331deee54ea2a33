//! The case table of wide terminals.

use super::*;
use crate::fixture::{failing, report_of};

#[test]
fn a_wide_terminal_has_means_the_duration_and_tokens_per_request() {
    let report = report_of(vec![failing()], RunVerdict::Fail, 1);
    let heads = |width: usize| {
        let table = case_table(&report, Some(width), false);
        table
            .lines()
            .next()
            .unwrap_or_default()
            .split("  ")
            .map(str::trim)
            .filter(|head| !head.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let narrow = ["CASE", "OK", "ERRORS", "REQ/S", "OUT TOK/S", "TTFT P50", "TTFT P99", "ITL P99"];
    assert_eq!(heads(80), narrow);
    let added = ["TIME", "TTFT MEAN", "E2E MEAN"];
    assert!(added.iter().all(|head| heads(120).iter().any(|own| own == head)), "{:?}", heads(120));
    assert_eq!(heads(200).len(), CASES.len());
    let wide = case_table(&report, Some(200), false);
    let case = &report.cases[0];
    let cells = wide.lines().nth(2).unwrap();
    let window = value(case.scalars[&Metric::Window], Unit::Seconds);
    let mean = millis(case.distributions[&Metric::Ttft].mean);
    assert!(cells.contains(&window) && cells.contains(&mean) && cells.contains("   512      128  "), "{wide}");
}
