//! Values of a Prometheus server: queries in PromQL, evaluated over a round when it has ended.

use super::{Endpoint, FetchError, MAX_TIMEOUT, new_runtime, read_text};
use crate::{SampledValue, TelemetrySource};
use llmscen_core::target::Tls;
use llmscen_core::telemetry::{Scrape, Source};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::redact_url;
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;

/// Maximum number of values per series in one response; Prometheus has a limit of 11 000.
const MAX_POINTS: u128 = 10_000;

/// A query whose result becomes values of the round.
#[derive(Debug)]
pub struct PrometheusQuery {
    scrape: Scrape,
    server: Result<Server, String>,
    name: String,
    role: Option<String>,
    promql: String,
    error: Option<String>,
}

/// The HTTP API of a Prometheus server.
#[derive(Debug)]
struct Server {
    endpoint: Endpoint,
    runtime: Runtime,
}

/// `data` of a successful response.
#[derive(Debug, Default, Deserialize)]
struct QueryResult {
    result: Vec<Series>,
}

#[derive(Debug, Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    /// Times in seconds, and values as text.
    values: Vec<(f64, String)>,
}

#[derive(Deserialize)]
struct ApiResponse<T> {
    data: Option<T>,
    error: Option<String>,
}

impl PrometheusQuery {
    /// `name` is that of the values, which get a label for the role. Settings that cannot be used are noted after the
    /// round.
    pub fn new(
        scrape: &Scrape,
        tls: &Tls,
        (name, promql): (&str, &str),
        role: Option<&str>,
    ) -> PrometheusQuery {
        PrometheusQuery {
            scrape: scrape.clone(),
            server: Server::new(scrape, tls).map_err(|error| error.to_string()),
            name: name.to_owned(),
            role: role.map(str::to_owned),
            promql: promql.to_owned(),
            error: None,
        }
    }

    /// Evaluates the query once, now.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the query; its reason.
    pub fn check(&self) -> Result<(), String> {
        let server = self.server.as_ref().map_err(String::clone)?;
        let parameters = [("query", self.promql.as_str())];
        server
            .ask::<serde_json::Value>("query", &parameters)
            .map(|_| ())
    }

    /// The values from `since` to `until`, in steps of the interval.
    fn range(&self, since: SystemTime, until: SystemTime) -> Result<Vec<Series>, String> {
        let server = self.server.as_ref().map_err(String::clone)?;
        let step = Duration::from(self.scrape.interval).max(Duration::from_millis(1));
        let seconds = |at: SystemTime| {
            let unix = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            format!("{:.3}", unix.as_secs_f64())
        };
        let mut all = Vec::new();
        let mut from = since;
        while from <= until {
            let length = step.saturating_mul(MAX_POINTS as u32 - 1);
            let to = from.checked_add(length).map_or(until, |to| to.min(until));
            let parameters = [
                ("query", self.promql.clone()),
                ("start", seconds(from)),
                ("end", seconds(to)),
                ("step", step.as_secs_f64().to_string()),
            ];
            let result: QueryResult = server.ask(
                "query_range",
                &parameters
                    .each_ref()
                    .map(|(key, value)| (*key, value.as_str())),
            )?;
            all.extend(result.result);
            let Some(next) = to.checked_add(step) else {
                break;
            };
            from = next;
        }
        Ok(all)
    }

    /// The labels of a series, as on a page.
    fn labels(&self, metric: &BTreeMap<String, String>) -> String {
        let escape = |value: &str| {
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        };
        let own = self.role.iter().map(|role| format!("role=\"{role}\""));
        let label = |(name, value): (&String, &String)| {
            let is_taken = name == "role" && self.role.is_some();
            let prefix = if is_taken { "exported_" } else { "" };
            (name != "__name__").then(|| format!("{prefix}{name}=\"{}\"", escape(value)))
        };
        own.chain(metric.iter().filter_map(label))
            .collect::<Vec<_>>()
            .join(",")
    }
}

impl Server {
    fn new(scrape: &Scrape, tls: &Tls) -> Result<Server, FetchError> {
        Ok(Server {
            endpoint: Endpoint::new(&scrape.url, &scrape.headers, tls, MAX_TIMEOUT, None)?,
            runtime: new_runtime().map_err(|error| FetchError::Settings(error.to_string()))?,
        })
    }

    /// Sends a request to `/api/v1/PATH`. A server that refuses POST, which has no limit of the length of a query,
    /// gets a GET.
    fn ask<T: Default + for<'de> Deserialize<'de>>(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Result<T, String> {
        let mut url = self.endpoint.url.clone();
        url.set_path(&format!(
            "{}/api/v1/{path}",
            url.path().trim_end_matches('/')
        ));
        let mut with_query = url.clone();
        with_query.query_pairs_mut().extend_pairs(parameters);
        let mut form = Url::clone(&url);
        form.set_query(None);
        form.query_pairs_mut().extend_pairs(parameters);
        let form = form.query().unwrap_or_default().to_owned();
        let client = &self.endpoint.client;
        let post = client
            .post(url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        let answer = self.runtime.block_on(self.endpoint.in_time(async {
            let mut response = self.endpoint.respond(post).await?;
            if response.status().as_u16() == 405 {
                response = self.endpoint.respond(client.get(with_query)).await?;
            }
            let status = response.status().as_u16();
            Ok((status, read_text(response).await?))
        }));
        let (status, text) = answer.map_err(|error| error.to_string())?;
        let parsed: Result<ApiResponse<T>, _> = serde_json::from_str(&text);
        match parsed {
            Ok(ApiResponse {
                error: Some(error), ..
            }) => Err(error),
            Ok(ApiResponse {
                data: Some(data), ..
            }) if status == 200 => Ok(data),
            Err(error) if status == 200 => {
                Err(format!("the response is not that of Prometheus: {error}"))
            }
            _ => Err(FetchError::Status(status).to_string()),
        }
    }
}

impl TelemetrySource for PrometheusQuery {
    fn kind(&self) -> Source {
        Source::Query
    }

    fn interval(&self) -> Nanos {
        self.scrape.interval
    }

    /// Nothing during the round: the server stores what the query needs.
    fn sample(
        &mut self,
        _at: Instant,
        _emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        Ok(())
    }

    fn past_samples(&mut self, since: Instant, emit: &mut dyn FnMut(Instant, SampledValue<'_>)) {
        let now = SystemTime::now();
        let Some(begin) = now.checked_sub(since.elapsed()) else {
            return;
        };
        let series = match self.range(begin, now) {
            Ok(series) => series,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        let begin = begin.duration_since(UNIX_EPOCH).unwrap_or_default();
        for series in &series {
            let labels = self.labels(&series.metric);
            for (at, value) in &series.values {
                // Times have milliseconds, so the first may be just before the begin.
                let after =
                    Duration::try_from_secs_f64(at - begin.as_secs_f64()).unwrap_or_default();
                let Ok(value) = value.parse() else {
                    continue;
                };
                let sample = SampledValue {
                    labels: &labels,
                    ..SampledValue::plain(&self.name, value)
                };
                emit(since + after, sample);
            }
        }
    }

    fn notes(&mut self) -> Vec<String> {
        let note = |error| {
            format!(
                "`{}`: the query of {} failed: {error}",
                self.name,
                redact_url(&self.scrape.url)
            )
        };
        self.error.take().map(note).into_iter().collect()
    }
}
