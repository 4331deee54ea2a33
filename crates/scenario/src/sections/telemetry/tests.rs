use super::*;
use crate::tests::load_with;

use llmscen_core::telemetry::TelemetrySpec;
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;

fn telemetry(section: &str) -> Result<TelemetrySpec, String> {
    let text = format!(
        "version: 1\nname: t\ntarget: {{ url: simulator }}\ndataset: {{ kind: \
         prompt, text: x }}\nload: {{ concurrency: 1, requests: 1 }}\n{section}"
    );
    let loaded = load_with(&text, &[], &[]);
    let plan = loaded.map_err(|faults| faults.render(false, 120))?.plan;
    assert_eq!(
        crate::tests::plan(&plan.resolved).telemetry,
        plan.telemetry,
        "the resolved plan says the same"
    );
    Ok(plan.telemetry)
}

#[test]
fn telemetry_section_is_optional() {
    let spec = |millis, gpu, host| {
        Ok(TelemetrySpec {
            interval: Nanos::from_millis(millis),
            gpu,
            host,
            dcgm: None,
        })
    };
    assert_eq!(telemetry(""), spec(1000, true, true));
    assert_eq!(
        telemetry("telemetry: { interval: 100ms, gpu: false }"),
        spec(100, false, true)
    );
    assert_eq!(
        telemetry("telemetry: { interval: off, host: false }"),
        spec(0, true, false)
    );
    assert_eq!(
        telemetry("telemetry: { interval: 0s }"),
        spec(0, true, true)
    );
    let dcgm = Some("http://gpu-node:9400/metrics".to_owned());
    let there = telemetry("telemetry: { dcgm: \"http://gpu-node:9400/metrics\" }");
    assert_eq!(
        there,
        spec(1000, true, true).map(|spec| TelemetrySpec { dcgm, ..spec })
    );
}

#[test]
fn invalid_telemetry_is_an_error() {
    for (section, expected) in [
        (
            "telemetry: { interval: 99ms }",
            "`interval` must be 100ms or longer, or `off`",
        ),
        ("telemetry: { interval: 5 }", "Add a unit: `5s` is seconds"),
        (
            "telemetry: { gpu: maybe }",
            "`gpu` must be `true` or `false`",
        ),
        ("telemetry: { dcgm: 9400 }", "this is not a URL"),
        (
            "telemetry: { dcgm: \"gpu-node:9400\" }",
            "expected `http://…`",
        ),
        (
            "matrix: { telemetry.dcgm: [\"http://a/\", \"http://b/\"] }",
            "cannot be swept",
        ),
        ("telemetry: { cpu: true }", "unknown key `cpu`"),
        (
            "matrix: { telemetry.interval: [1s, 2s] }",
            "cannot be swept",
        ),
        (
            "matrix: { telemetry.gpu: [true, false] }",
            "cannot be swept",
        ),
    ] {
        let error = telemetry(section).unwrap_err();
        assert!(error.contains(expected), "{section}: {error}");
    }
}

fn metrics(section: &str) -> (Option<Scrape>, String) {
    let text = format!(
        "version: 1\nname: t\ntarget: {{ url: simulator{section} }}\ndataset: {{ \
         kind: prompt, text: x }}\nload: {{ concurrency: 1, requests: 1 }}\n"
    );
    let plan = load_with(&text, &[("TOKEN", "s3cret")], &[]).unwrap().plan;
    assert!(!plan.resolved.contains("s3cret"));
    let secrets = plan.cases[0]
        .target
        .secrets()
        .map(|secret| secret.expose())
        .collect();
    let mut sources = plan.cases[0].target.metrics.clone();
    (sources.pop().map(|source| source.scrape), secrets)
}

#[test]
fn metrics_may_be_a_plain_url() {
    assert_eq!(metrics(""), (None, String::new()));
    let scrape = |url: &str, millis| Scrape {
        url: url.into(),
        interval: Nanos::from_millis(millis),
        headers: Vec::new(),
    };
    assert_eq!(
        metrics(", metrics: simulator").0,
        Some(scrape("simulator", 1000))
    );
    assert_eq!(
        metrics(", metrics: { url: \"http://a:1/m\", interval: 250ms }").0,
        Some(scrape("http://a:1/m", 250))
    );
}

#[test]
fn metrics_headers_are_secrets() {
    let (page, secrets) =
        metrics(", metrics: { url: \"http://a:1/m\", headers: { X-Token: \"${TOKEN}\" } }");
    let headers = page.unwrap().headers;
    assert_eq!(
        (
            headers[0].0.as_str(),
            headers[0].1.expose(),
            secrets.as_str()
        ),
        ("X-Token", "s3cret", "s3cret")
    );
}

#[test]
fn a_list_has_pages_with_roles_and_queries() {
    let target = |list: &str, gpus: &str| {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: 'http://h/v1/chat/completions', model: \
             m{gpus}, metrics: [{list}] }}\ndataset: {{ kind: prompt, text: x }}\nload: {{ \
             concurrency: 1, requests: 1 }}\n"
        );
        let plan = load_with(&text, &[], &[])
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        let again = crate::tests::plan(&plan.resolved);
        assert_eq!(again.cases[0].target.gpus, plan.cases[0].target.gpus);
        assert_eq!(
            again.cases[0].target.metrics.len(),
            plan.cases[0].target.metrics.len()
        );
        plan.cases[0].target.clone()
    };
    let list = "'http://a/m', { url: 'http://b/m', role: decode, gpus: 8, \
                addresses: all }, { prometheus: 'http://p:9090', query: up, name: \
                rate, role: prefill, interval: 5s }";
    let all = target(list, "");
    let found: Vec<_> = all
        .metrics
        .iter()
        .map(|source| {
            (
                source.scrape.url.as_str(),
                source.role.as_deref(),
                &source.kind,
            )
        })
        .collect();
    let query = MetricsKind::Query {
        name: "rate".to_owned(),
        promql: "up".to_owned(),
        place: "t.yaml:3".to_owned(),
    };
    let page = |all_addresses| MetricsKind::Page { all_addresses };
    assert_eq!(
        found,
        [
            ("http://a/m", None, &page(false)),
            ("http://b/m", Some("decode"), &page(true)),
            ("http://p:9090", Some("prefill"), &query),
        ]
    );
    assert_eq!(all.roles(), BTreeSet::from(["decode"]));
    assert_eq!(all.gpus_of_role(Some("decode")), Some(8));
    assert_eq!(all.gpus, None, "the first page has no GPUs");
    let two = "{ url: 'http://a/m', role: prefill, gpus: 4 }, { url: \
    'http://b/m', role: decode, gpus: 8 }";
    assert_eq!(target(two, "").gpus, Some(12));
    assert_eq!(target(two, ", gpus: 12").gpus, Some(12));
    let exporter = format!("{two}, {{ url: 'http://b:9400/m', role: decode, gpus: 0 }}");
    let with_exporter = target(&exporter, "");
    assert_eq!(with_exporter.gpus, Some(12));
    assert_eq!(with_exporter.gpus_of_role(Some("decode")), Some(8));
    assert!(target(two, "").has_workers());
    assert!(!target("'http://a/m'", "").has_workers());
    assert!(target("{ url: 'http://127.0.0.1/m', addresses: all }", "").has_workers());
}
