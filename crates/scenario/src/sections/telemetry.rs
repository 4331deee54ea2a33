//! `telemetry`: what is sampled during the run; `target.metrics`: the metrics endpoint of the server.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, Leaf, field, only_with};
use crate::sections::Draft;
use crate::tree::{Data, Node};
use crate::values::describe_actual;
use crate::values::expect;
use crate::values::target::{SIMULATOR, url_error};
use crate::values::time::{DURATION, SPAN, duration};
use llmscen_core::telemetry::{Scrape, TelemetrySpec};
use llmscen_core::units::Nanos;
use serde_json::json;
use std::borrow::Cow;

const OFF: &str = "off";
/// The shortest interval: the kernel counts in steps of 10 ms.
const LEAST: Nanos = Nanos::from_millis(100);

/// For the whole run, so no matrix sets it.
static INTERVAL: Leaf = Leaf {
    expected: "a duration such as `1s`, or `off`",
    sweepable: false,
    schema: interval_schema,
    check: check_interval,
};
static SWITCH: Leaf = Leaf {
    expected: "`true` or `false`",
    sweepable: false,
    schema: || json!({ "type": "boolean" }),
    check: check_switch,
};
static ADDRESS: Leaf = Leaf {
    expected: "a URL such as `http://gpu-node:9400/metrics`",
    sweepable: false,
    schema: || json!({ "type": "string", "pattern": "^https?://" }),
    check: check_address,
};

pub(crate) static TELEMETRY: Block = Block {
    doc: "What is sampled during the run: the hardware, llmscen, and a managed server.",
    short: None,
    fields: &[
        field(
            "interval",
            Kind::Leaf(&INTERVAL),
            "Time between two samples, at least 100ms. `off` samples only `target.metrics`, which has its own interval.",
        )
        .default("1s")
        .example("500ms"),
        field(
            "gpu",
            Kind::Leaf(&SWITCH),
            "Sample the GPUs of this host, with NVIDIA's library or AMD's command. If there are none, a run with `target.gpus` or an objective that needs them notes that once.",
        )
        .default("true")
        .example("false"),
        field("host", Kind::Leaf(&SWITCH), "Sample CPU, memory, network and disks of llmscen, the managed server, and the host.")
            .default("true")
            .example("false"),
        field(
            "dcgm",
            Kind::Leaf(&ADDRESS),
            "The URL of a DCGM exporter, if the GPUs are in another host; those of this host are not sampled then.",
        )
        .example("http://gpu-node:9400/metrics"),
    ],
};

pub(crate) fn decode(draft: &Draft<'_>) -> Option<TelemetrySpec> {
    let interval = draft.read("telemetry.interval", read_interval)?;
    let dcgm = draft.text("telemetry.dcgm").map(Cow::into_owned);
    Some(TelemetrySpec {
        interval,
        gpu: draft.flag("telemetry.gpu")?,
        host: draft.flag("telemetry.host")?,
        dcgm,
    })
}

fn read_interval(node: &Node) -> Option<Nanos> {
    if node.text().is_some_and(|text| text == OFF) {
        Some(Nanos::ZERO)
    } else {
        duration(node)
    }
}

fn check_interval(node: &Node, review: &mut Review) {
    match read_interval(node) {
        None => (DURATION.check)(node, review),
        Some(span) if span > Nanos::ZERO && span < LEAST => {
            expect(node, "100ms or longer, or `off`", "`500ms`", review);
        }
        Some(_) => {}
    }
}

fn check_switch(node: &Node, review: &mut Review) {
    if !matches!(node.data, Data::Bool(_)) {
        let message = format!("`{}` must be `true` or `false`", review.key);
        review.push(Mistake::new(
            node.at,
            message,
            describe_actual(node, "`true` or `false`"),
        ));
    }
}

fn check_address(node: &Node, review: &mut Review) {
    let Some(error) = node
        .text()
        .map_or(Some(ADDRESS.expected), |url| url_error(&url))
    else {
        return;
    };
    let mistake = Mistake::new(node.at, "this is not a URL", error);
    review
        .push(mistake.help(
            "Write the whole URL of the exporter, for example http://gpu-node:9400/metrics.",
        ));
}

fn interval_schema() -> serde_json::Value {
    json!({ "anyOf": [(DURATION.schema)(), { "const": OFF }] })
}

/// More frequent requests would be a load on the server.
const SHORTEST: Nanos = Nanos::from_millis(10);

pub(crate) static METRICS: Block = Block {
    doc: "The server's metrics, as Prometheus text, scraped during the run. A plain text is the `url`.",
    short: Some("url"),
    fields: &[
        field(
            "url",
            Kind::Text,
            "The URL of the /metrics endpoint; `simulator` for that of the built-in server.",
        )
        .required()
        .example("http://127.0.0.1:8000/metrics")
        .rules(&[only_with(&["target.url"], &["simulator*"])
            .when("simulator")
            .message("`metrics: simulator` needs `target.url: simulator`")
            .reason("this server is not used")
            .beside("this server is used")
            .help("Write the whole URL, for example http://127.0.0.1:8000/metrics.")]),
        field(
            "interval",
            Kind::Leaf(&SPAN),
            "Scrape interval; also the scrape timeout, up to 5 s.",
        )
        .default("1s")
        .example("500ms"),
        field(
            "headers",
            Kind::Map(&Kind::Secret),
            "Headers of the scrape requests; never printed, never stored.",
        )
        .example("{ Authorization: \"Bearer ${METRICS_TOKEN}\" }"),
    ],
};

/// The metrics endpoint. Reports an invalid URL, and an interval that is too short.
pub(crate) fn decode_metrics(draft: &Draft<'_>, review: &mut Review) -> Option<Scrape> {
    let entry = draft.entry("target.metrics.url")?;
    let url = entry.value.string()?;
    if let Some(error) = url_error(&url).filter(|_| url != SIMULATOR) {
        let mistake = Mistake::new(entry.value.at, "this is not a URL", error);
        review
            .push(mistake.help("Write the whole URL, for example http://127.0.0.1:8000/metrics."));
    }
    let node = draft.get("target.metrics.interval")?;
    let interval = duration(node)?;
    if interval < SHORTEST {
        let mistake = Mistake::new(
            node.at,
            "the metrics would be scraped more than 100 times per second",
            "at least 10ms",
        );
        review.push(mistake.help("Each scrape is work for the server under test; `1s` is usual."));
    }
    Some(Scrape {
        url,
        interval,
        headers: draft.headers("target.metrics.headers", review),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::load_with;

    use llmscen_core::telemetry::TelemetrySpec;
    use llmscen_core::units::Nanos;

    fn telemetry(section: &str) -> Result<TelemetrySpec, String> {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: simulator }}\ndataset: {{ kind: prompt, text: x }}\n\
             load: {{ concurrency: 1, requests: 1 }}\n{section}"
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
            "version: 1\nname: t\ntarget: {{ url: simulator{section} }}\ndataset: {{ kind: prompt, text: x }}\n\
             load: {{ concurrency: 1, requests: 1 }}\n"
        );
        let plan = load_with(&text, &[("TOKEN", "s3cret")], &[]).unwrap().plan;
        assert!(!plan.resolved.contains("s3cret"));
        let secrets = plan.cases[0]
            .target
            .secrets()
            .map(|secret| secret.expose())
            .collect();
        (plan.cases[0].target.metrics.clone(), secrets)
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
}
