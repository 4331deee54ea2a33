//! `target.metrics`: the server's own page of Prometheus text.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field};
use crate::sections::Draft;
use crate::sections::target::{SIMULATOR, headers, simulator_path};
use crate::values::address::no_address;
use crate::values::duration::{SPAN, duration};
use llmscen_core::telemetry::Scrape;
use llmscen_core::units::Nanos;

/// Asking more often would be a load of its own.
const SHORTEST: Nanos = Nanos::from_millis(10);

/// The keys of `target.metrics`.
pub(crate) static METRICS: Block = Block {
    doc: "The server's own metrics, as Prometheus text, read through the run. A plain text is the `url`.",
    short: Some("url"),
    fields: &[
        field(
            "url",
            Kind::Text,
            "The URL of the page, often the server's with the path `/metrics`; or `simulator` for that of the built-in server.",
        )
        .required()
        .example("http://127.0.0.1:8000/metrics"),
        field("interval", Kind::Leaf(&SPAN), "Between two readings, and how long one is waited for, 5 s at the most.")
            .default("1s")
            .example("500ms"),
        field("headers", Kind::Map(&Kind::Secret), "Headers that the page is asked for with; never printed, never stored.")
            .example("{ Authorization: \"Bearer ${METRICS_TOKEN}\" }"),
    ],
};

/// The page of a checked scenario; None where none is asked for. Files an address that is none, and readings too close together.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<Scrape> {
    let entry = draft.entry("target.metrics.url")?;
    let url = entry.value.text()?.into_owned();
    if url == SIMULATOR {
        let elsewhere =
            draft.entry("target.url").filter(|own| own.value.text().is_some_and(|url| simulator_path(&url).is_none()));
        if let Some(own) = elsewhere.filter(|_| !draft.swept("target.url")) {
            let mistake = Mistake::new(entry.value.at, "`metrics: simulator` without the simulator", "this server does not run");
            let mistake = mistake.also(own.value.at, "this one does");
            review.push(mistake.help("Write the whole URL of its page, for example http://127.0.0.1:8000/metrics."));
        }
    } else if let Some(wanted) = no_address(&url) {
        let mistake = Mistake::new(entry.value.at, "this is not a URL", wanted);
        review.push(mistake.help("Write the whole URL of the page, for example http://127.0.0.1:8000/metrics."));
    }
    let node = draft.get("target.metrics.interval")?;
    let interval = duration(node)?;
    if interval < SHORTEST {
        let mistake = Mistake::new(node.at, "the metrics would be read more than 100 times a second", "at least 10ms");
        review.push(mistake.help("Each reading is work for the server that is measured; `1s` is usual."));
    }
    Some(Scrape { url, interval, headers: headers(draft, "target.metrics.headers", review) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, load};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn metrics(section: &str) -> (Option<Scrape>, String) {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: simulator{section} }}\ndataset: {{ kind: prompt, text: x }}\n\
             load: {{ concurrency: 1, requests: 1 }}\n"
        );
        let env = BTreeMap::from([("TOKEN".to_owned(), "s3cret".to_owned())]);
        let plan = load(&Input { path: Path::new("t.yaml"), text: Some(text), env: &env, set: &[] }).unwrap().plan;
        assert!(!plan.resolved.contains("s3cret"));
        let secrets = plan.cases[0].target.secrets().map(|secret| secret.expose()).collect();
        (plan.cases[0].target.metrics.clone(), secrets)
    }

    #[test]
    fn a_text_is_the_url_and_none_is_none() {
        assert_eq!(metrics(""), (None, String::new()));
        let scrape = |url: &str, millis| Scrape { url: url.into(), interval: Nanos::from_millis(millis), headers: Vec::new() };
        assert_eq!(metrics(", metrics: simulator").0, Some(scrape("simulator", 1000)));
        assert_eq!(metrics(", metrics: { url: \"http://a:1/m\", interval: 250ms }").0, Some(scrape("http://a:1/m", 250)));
    }

    #[test]
    fn a_header_is_a_secret() {
        let (page, secrets) = metrics(", metrics: { url: \"http://a:1/m\", headers: { X-Token: \"${TOKEN}\" } }");
        let headers = page.unwrap().headers;
        assert_eq!((headers[0].0.as_str(), headers[0].1.expose(), secrets.as_str()), ("X-Token", "s3cret", "s3cret"));
    }
}
