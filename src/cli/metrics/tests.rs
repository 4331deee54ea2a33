use super::metric_registry::render_exposition;
use super::{MetricRegistry, respond};
use crate::run::event::Event;
use crate::run::progress::{Buckets, LiveTotals, Progress};
use http_body_util::BodyExt;
use hyper::{Method, Request, StatusCode};
use llmscen_core::outcome::Phase;
use llmscen_core::plan::Plan;
use llmscen_core::units::Nanos;
use llmscen_scenario::Input;
use std::collections::BTreeMap;
use std::path::Path;

fn plan() -> Plan {
    let text = "version: 1\nname: a\ntarget: { api: simulator, model: 'm \"x\"' }\ndataset: { kind: prompt, text: x }\n\
                load: { concurrency: 2, requests: 9 }\nmatrix: { load.concurrency: [2, 4] }\nrounds: 2\n";
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text.into()),
        env: &BTreeMap::new(),
        set: &[],
    };
    llmscen_scenario::load(&input)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan
}

fn started(case: &str, round: u32) -> Event {
    Event::CaseStarted {
        case: case.into(),
        round,
        part: 0,
        parts: 4,
        total: Some(9),
        seconds: None,
    }
}

fn progress(ok: u64) -> Progress {
    let mut e2e = Buckets::default();
    (0..ok).for_each(|_| e2e.record(Nanos::from_millis(40)));
    let outcomes = [
        ((Phase::Warmup, "ok"), 1),
        ((Phase::Measured, "ok"), ok),
        ((Phase::Measured, "http_5xx"), 1),
    ]
    .into();
    let totals = LiveTotals {
        outcomes,
        events: 10 * ok,
        output_tokens: 12 * ok,
        e2e,
        ..LiveTotals::default()
    };
    Progress {
        in_flight: 2,
        totals,
        ..Progress::default()
    }
}

/// A finished round of a case, and a running one.
fn registry() -> MetricRegistry {
    let registry = MetricRegistry::default();
    registry.start_run(&plan());
    registry.record(&started("concurrency=2", 0));
    registry.record(&Event::Progress(progress(4)));
    registry.record(&Event::CaseEnded(progress(9)));
    registry.record(&started("concurrency=2", 1));
    registry.record(&Event::Progress(progress(3)));
    registry
}

fn value(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series))
        .unwrap_or_else(|| panic!("no {series} in\n{text}"));
    line.trim().parse().unwrap()
}

#[test]
fn totals_include_finished_and_running_rounds() {
    let text = render_exposition(registry().snapshot()).unwrap();
    let labels = "run=\"1\",scenario=\"a\",case=\"concurrency=2\"";
    for (series, expected) in [
        (
            format!("llmscen_requests_total{{{labels},phase=\"measured\",outcome=\"ok\"}}"),
            12.0,
        ),
        (
            format!("llmscen_requests_total{{{labels},phase=\"measured\",outcome=\"http_5xx\"}}"),
            2.0,
        ),
        (
            format!("llmscen_requests_total{{{labels},phase=\"warmup\",outcome=\"ok\"}}"),
            2.0,
        ),
        (
            format!("llmscen_tokens_total{{{labels},kind=\"output\"}}"),
            144.0,
        ),
        (format!("llmscen_token_events_total{{{labels}}}"), 120.0),
        (format!("llmscen_in_flight{{{labels}}}"), 2.0),
        (format!("llmscen_case_running{{{labels}}}"), 1.0),
        (
            format!("llmscen_request_latency_seconds_count{{{labels}}}"),
            12.0,
        ),
        (
            format!("llmscen_request_latency_seconds_bucket{{le=\"0.03\",{labels}}}"),
            0.0,
        ),
        (
            format!("llmscen_request_latency_seconds_bucket{{le=\"0.05\",{labels}}}"),
            12.0,
        ),
        (
            format!("llmscen_request_latency_seconds_bucket{{le=\"+Inf\",{labels}}}"),
            12.0,
        ),
        ("llmscen_parts{run=\"1\",scenario=\"a\"}".to_owned(), 4.0),
        (
            "llmscen_parts_ended_total{run=\"1\",scenario=\"a\"}".to_owned(),
            1.0,
        ),
    ] {
        assert_eq!(value(&text, &series), expected, "{series}");
    }
    assert!(
        text.contains("load=\"concurrency 2\",api=\"openai-chat\",model=\"m \\\"x\\\"\"} 1\n"),
        "{text}"
    );
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
}

#[test]
fn between_rounds_nothing_is_in_flight() {
    let registry = registry();
    registry.record(&Event::CaseEnded(progress(9)));
    let text = render_exposition(registry.snapshot()).unwrap();
    let labels = "run=\"1\",scenario=\"a\",case=\"concurrency=2\"";
    assert_eq!(value(&text, &format!("llmscen_in_flight{{{labels}}}")), 0.0);
    assert_eq!(
        value(
            &text,
            &format!("llmscen_requests_total{{{labels},phase=\"measured\",outcome=\"ok\"}}")
        ),
        18.0
    );
    assert!(
        render_exposition(MetricRegistry::default().snapshot())
            .unwrap()
            .ends_with("# EOF\n")
    );
}

#[test]
fn scenarios_of_the_same_name_have_separate_series() {
    let registry = registry();
    registry.record(&Event::CaseEnded(progress(9)));
    registry.start_run(&plan());
    registry.record(&started("concurrency=2", 0));
    registry.record(&Event::Progress(progress(5)));
    let text = render_exposition(registry.snapshot()).unwrap();
    for (run, ok) in [(1, 18.0), (2, 5.0)] {
        let labels = format!(
            "run=\"{run}\",scenario=\"a\",case=\"concurrency=2\",phase=\"measured\",outcome=\"ok\""
        );
        assert_eq!(
            value(&text, &format!("llmscen_requests_total{{{labels}}}")),
            ok,
            "{text}"
        );
    }
    let mut series: Vec<&str> = text
        .lines()
        .filter_map(|line| line.rsplit_once(' ').map(|(series, _)| series))
        .collect();
    series.retain(|line| !line.starts_with('#'));
    let count = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), count, "duplicate series: {text}");
}

#[tokio::test]
async fn only_get_and_head_of_metrics_are_served() {
    let registry = registry();
    for (method, path, status, expected) in [
        (Method::GET, "/metrics", StatusCode::OK, true),
        (Method::GET, "/metrics?a=b", StatusCode::OK, true),
        (Method::HEAD, "/metrics", StatusCode::OK, false),
        (
            Method::POST,
            "/metrics",
            StatusCode::METHOD_NOT_ALLOWED,
            false,
        ),
        (Method::GET, "/", StatusCode::NOT_FOUND, false),
        (Method::GET, "/metrics/x", StatusCode::NOT_FOUND, false),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(())
            .unwrap();
        let (response, is_scrape) = respond(&request, &registry);
        assert_eq!((response.status(), is_scrape), (status, expected), "{path}");
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert_eq!(
            kind.starts_with("application/openmetrics-text; version=1.0.0"),
            status == StatusCode::OK,
            "{kind}"
        );
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(!body.is_empty());
    }
}
