//! Waits until a server that the run does not start, or all of its workers, are ready.

use crate::run::api_keys::request_headers;
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::{Event, Preparing};
use crate::run::stop::{Level, Stop};
use crate::run::telemetry::queries;
use llmscen_core::schedule::shard::Shard;
use llmscen_core::target::{Awaited, Target, TargetLocation};
use llmscen_core::telemetry::MetricsSource;
use llmscen_core::url_secrets::redact_url;
use llmscen_telemetry::prometheus::address::{addresses, system_resolver};
use llmscen_telemetry::prometheus::{Fetch, FetchError, has_only_gpus};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of one request.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a signal is noticed.
const POLL: Duration = Duration::from_millis(50);

/// Waits for the targets that have conditions, each once.
///
/// # Errors
/// A target is not ready in time: [`RunError::NotReady`]; or a signal came.
pub(crate) fn wait_for_targets<'a>(
    targets: impl Iterator<Item = &'a Target>,
    context: &Context,
) -> Result<(), RunError> {
    let mut ready: Vec<(&TargetLocation, &Awaited)> = Vec::new();
    for target in targets {
        let Some(awaited) = &target.ready else {
            continue;
        };
        if !ready.contains(&(&target.location, awaited)) {
            wait(target, awaited, context)?;
            ready.push((&target.location, awaited));
        }
    }
    Ok(())
}

fn wait(target: &Target, awaited: &Awaited, context: &Context) -> Result<(), RunError> {
    let started = Instant::now();
    let timeout: Duration = awaited.timeout.into();
    let redactor = target.redactor();
    let mut noted = false;
    loop {
        let missing: Vec<String> = missing(target, awaited)
            .into_iter()
            .map(|why| redactor.redact(why))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        if started.elapsed() >= timeout {
            return Err(RunError::NotReady {
                seconds: timeout.as_secs_f64(),
                missing,
            });
        }
        if !std::mem::replace(&mut noted, true) {
            let text = format!("waiting until the target is ready: {}", missing.join("; "));
            let _ = context.events.send(Event::Note(text));
        }
        let next = Instant::now() + INTERVAL.min(timeout.saturating_sub(started.elapsed()));
        while Instant::now() < next {
            if context.stop.level() > Level::Run {
                return Err(RunError::Interrupted);
            }
            sleep(POLL.min(next.saturating_duration_since(Instant::now())));
        }
        let _ = context.events.send(Event::Preparing(Preparing {
            what: "waiting for",
            unit: "s",
            done: started.elapsed().as_secs(),
            total: None,
        }));
    }
}

/// What is not ready, one line each.
fn missing(target: &Target, awaited: &Awaited) -> Vec<String> {
    let mut missing = Vec::new();
    for url in &awaited.urls {
        if let Err(why) = fetch(target, url).and_then(|fetch| fetch.call(None)?.require_success()) {
            missing.push(format!("GET {url}: {why}"));
        }
    }
    if !awaited.models.is_empty() {
        missing.extend(missing_models(target, &awaited.models));
    }
    if let Some(pages) = awaited.pages {
        missing.extend(missing_pages(target, pages));
    }
    missing
}

/// A client for a URL, with the headers of the target.
fn fetch(target: &Target, url: &str) -> Result<Fetch, FetchError> {
    let headers = request_headers(target, "GET", url, "")?;
    Fetch::new(url, &headers, &target.tls, ATTEMPT_TIMEOUT)
}

/// `/v1/models` beside the path that requests are posted to.
fn models_url(url: &str) -> String {
    let root = url.find("/v1/").and_then(|at| url.get(..at));
    let origin = || {
        let authority = url.find("://").map_or(0, |at| at + 3);
        let end = url.get(authority..).and_then(|rest| rest.find('/'));
        end.and_then(|end| url.get(..authority + end))
            .unwrap_or(url)
    };
    format!("{}/v1/models", root.unwrap_or_else(origin))
}

fn missing_models(target: &Target, models: &[String]) -> Vec<String> {
    let of_url = |url: &str| missing_models_at(target, &models_url(url), models);
    target.urls().flat_map(of_url).collect()
}

fn missing_models_at(target: &Target, url: &str, models: &[String]) -> Vec<String> {
    let page = match fetch(target, url).and_then(|fetch| fetch.page()) {
        Ok(page) => page,
        Err(why) => return vec![format!("GET {url}: {why}")],
    };
    let list: Value = serde_json::from_str(&page).unwrap_or_default();
    let ids = list["data"].as_array().into_iter().flatten();
    let ids: Vec<&str> = ids.filter_map(|model| model["id"].as_str()).collect();
    let missing = models.iter().filter(|model| !ids.contains(&model.as_str()));
    missing
        .map(|model| format!("{url} does not list the model `{model}`"))
        .collect()
}

fn missing_pages(target: &Target, count: u32) -> Vec<String> {
    let mut missing = Vec::new();
    let mut known = 0;
    let mut urls = Vec::new();
    for page in target.pages() {
        let url = &page.scrape.url;
        urls.push(url.as_str());
        let addresses = match addresses(url, system_resolver) {
            Ok(addresses) => addresses,
            Err(why) => {
                missing.push(format!("{url}: {why}"));
                continue;
            }
        };
        for address in addresses {
            let headers = &page.scrape.headers;
            let text = Fetch::at(url, headers, &target.tls, ATTEMPT_TIMEOUT, Some(address))
                .and_then(|fetch| fetch.page());
            match text {
                Ok(text) => known += u32::from(!has_only_gpus(&text)),
                Err(why) => missing.push(format!("the metrics page of {address}: {why}")),
            }
        }
    }
    if known < count && missing.is_empty() {
        let urls = urls.join(", ");
        missing.push(format!("{known} of {count} workers answer at {urls}"));
    }
    missing
}

/// Evaluates each query of a Prometheus server once, on the shard that samples.
///
/// # Errors
/// A query is refused, or its server cannot be reached; or a signal came.
pub(crate) fn check_queries<'a>(
    targets: impl Iterator<Item = &'a Target>,
    shard: Shard,
    stop: &Stop,
) -> Result<(), RunError> {
    let mut known: Vec<&MetricsSource> = Vec::new();
    for target in targets.filter(|_| shard.is_first()) {
        let sources = target.metrics.iter().filter(|source| !source.is_page());
        for (source, (query, place)) in sources.zip(queries(target)) {
            if known.contains(&source) {
                continue;
            }
            if stop.level() > Level::Run {
                return Err(RunError::Interrupted);
            }
            known.push(source);
            query.check().map_err(|why| RunError::Query {
                place: place.to_owned(),
                url: redact_url(&source.scrape.url),
                why: target.redactor().redact(why),
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::Input;
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::path::Path;

    /// Serves one page to one request that has this header; 401 otherwise.
    fn serve(page: &'static str, header: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..read]);
            let is_allowed = request.contains(header) && !request.contains("sk-secret");
            let status = if is_allowed {
                "200 OK"
            } else {
                "401 Unauthorized"
            };
            let length = page.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            stream.write_all((head + page).as_bytes()).unwrap();
        });
        address
    }

    fn target(metrics: &str) -> Target {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: 'http://h/v1/chat/completions', model: m, \
             api_key: sk-secret, metrics: [{metrics}] }}\ndataset: {{ kind: prompt, text: x \
             }}\nload: {{ concurrency: 1, requests: 1 }}\n"
        );
        let input = Input {
            path: Path::new("t.yaml"),
            text: Some(text),
            env: &BTreeMap::new(),
            set: &[],
        };
        let loaded = llmscen_scenario::load(&input);
        let plan = loaded
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        plan.cases[0].target.clone()
    }

    #[test]
    fn queries_are_checked_by_the_first_shard_until_a_signal_comes() {
        // Nothing listens there.
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let target = target(&format!(
            "{{ prometheus: 'http://{closed}', query: up, name: x }}"
        ));
        let check = |index, stop: &Stop| {
            check_queries([&target].into_iter(), Shard { index, count: 2 }, stop)
        };
        let stop = Stop::default();
        assert!(matches!(check(0, &stop), Err(RunError::Query { .. })));
        assert!(matches!(check(1, &stop), Ok(())));
        stop.press();
        assert!(matches!(check(0, &stop), Err(RunError::Interrupted)));
    }

    #[test]
    fn a_worker_is_a_page_without_gpus_alone_and_is_read_with_its_own_headers() {
        let engine = serve(
            "vllm:num_requests_running 1\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 1\n",
            "x-page: a",
        );
        let exporter = serve("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 1\n", "x-page: b");
        let target = target(&format!(
            "{{ url: 'http://{engine}/m', headers: {{ X-Page: a }} }}, {{ url: \
            'http://{exporter}/m', headers: {{ X-Page: b }} }}"
        ));
        assert_eq!(
            missing_pages(&target, 2),
            [format!(
                "1 of 2 workers answer at http://{engine}/m, http://{exporter}/m"
            )]
        );
    }

    #[test]
    fn models_are_listed_beside_the_path_of_requests() {
        for (url, expected) in [
            ("http://h:1/v1/chat/completions", "http://h:1/v1/models"),
            (
                "http://h/openai/v1/chat/completions",
                "http://h/openai/v1/models",
            ),
            ("http://h:1/generate", "http://h:1/v1/models"),
            ("http://h:1", "http://h:1/v1/models"),
        ] {
            assert_eq!(models_url(url), expected);
        }
    }
}
