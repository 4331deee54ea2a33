//! Where the requests of a run go, and through which proxy, for its report.

use http::Uri;
use llmscen_client::route::proxy_for;
use llmscen_core::plan::Plan;
use llmscen_core::redact::Redactor;
use llmscen_core::target::Place;
use llmscen_core::url_secrets::shown;
use std::collections::BTreeMap;

/// Every URL of a plan without its secrets, and the proxy in front of it in words; `env` holds the proxy variables.
pub fn targets(plan: &Plan, env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let urls = plan.cases.iter().filter_map(|case| match &case.target.place {
        Place::Url(url) => Some((&case.target, url)),
        Place::Simulator { .. } | Place::Local(_) => None,
    });
    let proxy = |url: &str| proxy_for(&url.parse::<Uri>().ok()?, env).map(|proxy| format!("through the proxy {proxy}"));
    urls.map(|(target, url)| (Redactor::of(target).clean(&shown(url)), proxy(url).unwrap_or_default())).collect()
}
