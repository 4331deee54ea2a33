use super::*;
use crate::fixture;
use crate::fixture::{failing, grid, no_data, report_of, searched, sweep};
use llmscen_core::metric::Metric;
use llmscen_core::outcome::FailureKind;
use llmscen_core::report::{
    CaseReport, Cause, ChartData, FailureExample, GroupReport, HeatMap, QuantileBand, RunVerdict,
    TimelineBar,
};

const PLAN: &str =
    "version: 1\nname: chat\ntarget: { url: \"http://127.0.0.1:8000\", api_key: ${KEY} }\n";
const ATTACK: &str = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> \" ' \
    & \u{2028} --> </pre></title>";

/// A case with data for every chart.
fn case_with_all_charts(users: u32) -> CaseReport {
    let mut case = fixture::case(users);
    let ttft: Vec<(f64, f64)> = case.timelines.ttft_ms.clone();
    let mut sorted: Vec<f64> = ttft.iter().map(|point| point.1).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let spectrum: Vec<(f64, f64)> = sorted
        .iter()
        .enumerate()
        .map(|(k, value)| ((k as f64 / n).min(1.0 - 1.0 / n), *value))
        .collect();
    let end = case.timelines.measured.1;
    let cells = |column: usize| {
        (0..20)
            .map(|row: usize| (12 - (row.abs_diff(8 + column % 5)).min(12)) as u32)
            .collect()
    };
    let bar = |index: usize| {
        let (scheduled, first_ms) = ttft[index];
        let failure = (index % 23 == 7).then_some(FailureKind::Truncated);
        let (sent, first) = (
            scheduled + 0.05 * (index % 7) as f64,
            scheduled + first_ms / 1e3 + 0.3,
        );
        TimelineBar {
            seq: index as u64,
            turn: 0,
            intended: scheduled,
            sent: Some(sent),
            first_token: Some(first),
            end: first + 1.2,
            failure,
        }
    };
    let band = |step: usize| {
        let from = (step * 8 + 2) as f64;
        QuantileBand {
            from,
            to: from + 7.0,
            n: 1900,
            p50: 9.0 + from / 40.0,
            p90: 12.0 + from / 30.0,
            p99: 19.0 + from / 20.0,
        }
    };
    case.chart_data = ChartData {
        spectra: [(Metric::Ttft, spectrum)].into(),
        heat: Some(HeatMap {
            times: (0..=40).map(|k| end * f64::from(k) / 40.0).collect(),
            levels: (0..=20)
                .map(|k| 10f64.powf(1.0 + f64::from(k) / 8.0))
                .collect(),
            counts: (0..40).map(cells).collect(),
        }),
        by_token: (0..16).map(band).collect(),
        prefill: ttft
            .iter()
            .enumerate()
            .map(|(k, point)| (100.0 + (k * 37 % 900) as f64, point.1))
            .collect(),
        waterfall: (0..60).map(bar).collect(),
    };
    case
}

fn report_with_markup() -> Report {
    let mut case = failing();
    case.id = ATTACK.into();
    case.load = ATTACK.into();
    case.notes.push(ATTACK.into());
    case.failures = vec![FailureExample {
        kind: FailureKind::Http5xx,
        count: 9,
        status: None,
        message: ATTACK.into(),
        at: ATTACK.into(),
    }];
    case.groups = vec![GroupReport {
        name: ATTACK.into(),
        ..GroupReport::default()
    }];
    case.endpoints = case.groups.clone();
    case.verdicts[0].check.expr = ATTACK.into();
    case.audit.reasons.push(Cause::LoadGenerator.reason(ATTACK));
    let mut report = report_of(vec![case], RunVerdict::Fail, 1);
    report.description = Some(ATTACK.into());
    report.manifest.name = ATTACK.into();
    report.manifest.notes.push(ATTACK.into());
    report.manifest.machine.host = ATTACK.into();
    report
}

#[test]
fn text_of_a_run_never_becomes_markup_or_script() {
    let harmless = html(&report_of(vec![failing()], RunVerdict::Fail, 1), "").unwrap();
    let page = html(&report_with_markup(), ATTACK).unwrap();
    assert!(
        !page.contains("<script>alert") && !page.contains("<img"),
        "markup from a run"
    );
    for tag in ["<script", "</script", "</title", "</pre", "<!--", "-->"] {
        assert_eq!(
            page.matches(tag).count(),
            harmless.matches(tag).count(),
            "{tag}"
        );
    }
    assert!(
        page.matches("alert(1)").count() > 30,
        "shown as text everywhere"
    );
    for line in page
        .lines()
        .filter(|line| line.starts_with("<script type=\"application/json\""))
    {
        let json = line
            .split_once('>')
            .unwrap()
            .1
            .strip_suffix("</script>")
            .unwrap();
        serde_json::from_str::<Value>(json).unwrap();
    }
}

#[test]
fn the_page_loads_nothing_and_contains_the_license() {
    let page = html(&sweep(2), PLAN).unwrap();
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
    assert!(
        page.contains(policy) && page.starts_with("<!DOCTYPE html>"),
        "{}",
        &page[..300]
    );
    for foreign in [
        " src=",
        "<link",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
    ] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("The MIT License (MIT)") && page.contains("Leon Sorokin"));
    assert!(page.contains("api_key: ${KEY} }"));
}

#[test]
fn the_same_report_gives_the_same_bytes() {
    for report in [sweep(12), searched(), report_with_markup()] {
        assert_eq!(html(&report, PLAN).unwrap(), html(&report, PLAN).unwrap());
    }
}

#[test]
fn a_cell_has_its_raw_value_as_attribute() {
    let report = sweep(1);
    let page = html(&report, PLAN).unwrap();
    let p99 = serde_json::to_string(&report.cases[0].distributions[&Metric::Ttft].quantile(0.99))
        .unwrap();
    assert_eq!(
        page.matches(&format!(
            "data-metric=\"ttft_ms\" data-stat=\"p99\" data-value=\"{p99}\""
        ))
        .count(),
        2,
        "overview and percentile table"
    );
    assert_eq!(
        page.matches(&format!(" data-stat=\"p99\" data-value=\"{p99}\""))
            .count(),
        3,
        "those and the case"
    );
}

#[test]
fn cases_that_passed_are_folded_if_there_are_many() {
    let mut report = sweep(100);
    for case in &mut report.cases {
        case.verdicts.truncate(1);
    }
    let page = html(&report, PLAN).unwrap();
    let matrix = page.split("id=\"slo\"").nth(1).unwrap();
    let matrix = matrix.split("</section>").next().unwrap();
    let (open, folded) = matrix.split_once("<details>").unwrap();
    assert!(!open.contains("aria-label=\"pass\"") && !folded.contains("aria-label=\"fail\""));
    let rows = |part: &str| part.matches("<tr data-go=").count();
    assert_eq!(rows(open) + rows(folded), 100);
    assert!(folded.contains(&format!(
        "<summary>{} cases passed every objective",
        rows(folded)
    )));
}

#[test]
fn the_answer_comes_before_everything_else() {
    let mut report = sweep(12);
    report.manifest.notes = vec!["clock was read once".into()];
    let page = html(&report, PLAN).unwrap();
    let order = [
        "class=\"badge ",
        "class=\"subject\"",
        "class=\"reason\"",
        "Measurement: valid",
        "class=\"tiles\"",
        "id=\"slo\"",
        "id=\"main\"",
        "id=\"findings\"",
        "id=\"overview\"",
        "id=\"cases\"",
        "id=\"audit\"",
        "id=\"notes\"",
        "id=\"environment\"",
        "id=\"plan\"",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|part| page.find(part).unwrap_or_else(|| panic!("{part}")))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(page.contains("id=\"rerun\">llmscen run plan.yaml</code>"));
}

#[test]
fn one_case_shows_nothing_twice() {
    let mut report = report_of(vec![failing()], RunVerdict::Fail, 1);
    report.manifest.notes = vec!["clock was read once".into()];
    let page = html(&report, PLAN).unwrap();
    for once in [
        "aria-label=\"Failures\"",
        "aria-label=\"Self-audit\"",
        "aria-label=\"Objectives\"",
        "<h2>Notes</h2>",
    ] {
        assert_eq!(page.matches(once).count(), 1, "{once}");
    }
    for absent in [
        "Failures of the case",
        "Objectives of the case",
        "Objectives by case",
    ] {
        assert!(!page.contains(absent), "{absent}");
    }
}

#[test]
fn sections_without_data_are_omitted() {
    let page = html(&report_of(Vec::new(), RunVerdict::Error, 3), PLAN).unwrap();
    assert!(page.contains("No case ran.") && page.contains("No objective was set."));
    for absent in [
        "id=\"failures\"",
        "id=\"search\"",
        "id=\"notes\"",
        "id=\"cases\"",
    ] {
        assert!(!page.contains(absent), "{absent}");
    }
    let without = html(&report_of(vec![no_data()], RunVerdict::Error, 3), PLAN).unwrap();
    assert!(without.contains("connection refused") && !without.contains("<h3>Percentiles"));
}

#[test]
fn a_hundred_cases_with_every_chart_stay_small() {
    let report = report_of(
        (1..=100).map(case_with_all_charts).collect(),
        RunVerdict::Fail,
        1,
    );
    let page = html(&report, PLAN).unwrap();
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}

#[test]
#[ignore = "writes pages to look at into a temporary folder"]
fn gallery() {
    let dir = std::env::temp_dir().join("llmscen-pages");
    std::fs::create_dir_all(&dir).unwrap();
    let with_loads = |loads: &[u32]| {
        report_of(
            loads
                .iter()
                .map(|users| case_with_all_charts(*users))
                .collect(),
            RunVerdict::Inconclusive,
            5,
        )
    };
    let failures = report_of(vec![failing(), no_data()], RunVerdict::Fail, 1);
    let all: Vec<u32> = (1..=100).collect();
    let sizes = [
        ("1", with_loads(&[8])),
        ("2", with_loads(&[4, 32])),
        (
            "12",
            with_loads(&[1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128]),
        ),
        ("100", with_loads(&all)),
    ];
    let others = [
        ("failing", failures),
        ("search", searched()),
        ("grid", grid(3)),
        ("attack", report_with_markup()),
    ];
    for (name, report) in sizes.into_iter().chain(others) {
        std::fs::write(
            dir.join(format!("{name}.html")),
            html(&report, PLAN).unwrap(),
        )
        .unwrap();
    }
}
