//! Metrics of a server: its /metrics endpoint, in the text format of Prometheus.

use crate::{SampledValue, TelemetrySource};
use common::report_signals;
use flate2::read::MultiGzDecoder;
use llmscen_core::bounds;
use llmscen_core::check::PageMetric;
use llmscen_core::redact::Secret;
use llmscen_core::signal::Signal;
use llmscen_core::target::Tls;
use llmscen_core::telemetry::{Scrape, Source};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::redact_url as address;
use names::FAMILIES;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use reqwest::{Certificate, Client, Identity, Response, Url, redirect};
use std::collections::{BTreeSet, HashSet};
use std::error::Error;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use text::Page;
use tokio::runtime::{Builder, Runtime};

mod common;
mod names;
pub(crate) mod text;

/// Limit of the timeout, whatever the interval.
const MAX_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of characters of a line that a note shows.
const SHOWN: usize = 80;

/// The /metrics endpoint of a target.
///
/// Series of a known server are reported as signals, in the unit of the signal. All others, and those that were combined into
/// one signal, are reported under their names and labels, so nothing of the page is lost except values that are not finite.
/// `up` is 1 where the page was read, and 0 where not.
#[derive(Debug)]
pub struct Prometheus {
    scrape: Scrape,
    fetch: Result<Fetch, String>,
    models: Vec<String>,
    limited: Vec<PageMetric>,
    log: PageLog,
}

/// What all pages of a round contained.
#[derive(Debug, Default)]
struct PageLog {
    pages: u64,
    families: BTreeSet<usize>,
    reported: BTreeSet<Signal>,
    ambiguous: BTreeSet<&'static str>,
    /// The first invalid line, and the number of invalid lines on its page.
    invalid: Option<(String, usize)>,
}

impl Prometheus {
    /// `models` are the models that requests name. Series that objectives limit (`limited`) are reported under their names in any
    /// case. Settings that cannot be used are an error of the first sample.
    pub fn new(
        scrape: &Scrape,
        tls: &Tls,
        models: Vec<String>,
        limited: Vec<PageMetric>,
    ) -> Prometheus {
        let fetch = Fetch::new(
            &scrape.url,
            &scrape.headers,
            tls,
            scrape_timeout(scrape.interval),
        );
        let fetch = fetch.map_err(|error| error.to_string());
        Prometheus {
            scrape: scrape.clone(),
            fetch,
            models,
            limited,
            log: PageLog::default(),
        }
    }
}

/// The timeout of a request at this interval.
pub(crate) fn scrape_timeout(interval: Nanos) -> Duration {
    Duration::from_nanos(interval.0).min(MAX_TIMEOUT)
}

impl TelemetrySource for Prometheus {
    fn kind(&self) -> Source {
        Source::Prometheus
    }

    fn interval(&self) -> Nanos {
        self.scrape.interval
    }

    fn sample(
        &mut self,
        _at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        let text = self
            .fetch
            .as_ref()
            .map_err(String::clone)
            .and_then(|fetch| fetch.page().map_err(|error| error.to_string()));
        let read = text.and_then(|text| {
            let page = parse_page(&text)?;
            emit(SampledValue::plain("up", 1.0));
            self.log.record(&page, &self.models, &self.limited, emit);
            Ok(())
        });
        read.map_err(|reason| {
            emit(SampledValue::plain("up", 0.0));
            format!("{}: {reason}", address(&self.scrape.url))
        })
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log).notes(&address(&self.scrape.url))
    }
}

/// Parses a page.
///
/// # Errors
/// The page has no series.
pub(crate) fn parse_page(text: &str) -> Result<Page<'_>, String> {
    let page = Page::parse(text);
    if !page.samples.is_empty() {
        return Ok(page);
    }
    Err(match page.invalid {
        Some((line, _)) => format!("not Prometheus text: `{}`", shorten(line)),
        None => "the page is empty".to_owned(),
    })
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

/// Emits the finite values of a page that are not `used` by a signal.
pub(crate) fn report_other_series(
    page: &Page<'_>,
    used: &HashSet<usize>,
    emit: &mut dyn FnMut(SampledValue<'_>),
) {
    for (index, sample) in page.samples.iter().enumerate() {
        if sample.value.is_finite() && !used.contains(&index) && !page.is_creation_time(sample.name)
        {
            emit(SampledValue {
                name: sample.name,
                labels: sample.labels,
                device: None,
                value: sample.value,
            });
        }
    }
}

impl PageLog {
    /// Emits the values of a page, and records what it contained.
    fn record(
        &mut self,
        page: &Page<'_>,
        models: &[String],
        limited: &[PageMetric],
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) {
        let mut signals = report_signals(page, models, emit);
        let is_limited = |index: &usize| {
            let sample = page.samples.get(*index);
            sample.is_some_and(|sample| limited.iter().any(|series| series.has_name(sample.name)))
        };
        signals.used.retain(|index| !is_limited(index));
        report_other_series(page, &signals.used, emit);
        self.pages += 1;
        self.families.extend(signals.families);
        self.reported.extend(signals.reported);
        self.ambiguous.extend(signals.ambiguous);
        if let (None, Some((line, count))) = (&self.invalid, page.invalid) {
            self.invalid = Some((shorten(line), count));
        }
    }

    fn notes(&self, url: &str) -> Vec<String> {
        if self.pages == 0 {
            return Vec::new();
        }
        let mut notes = missing_signals(&self.families, &self.reported);
        if self.families.is_empty() {
            notes.push(format!(
                "{url} exports no metrics of a known server: server.* is null"
            ));
        }
        for name in &self.ambiguous {
            notes.push(format!("{url} exports `{name}` for several models, but not for `target.model`: not used for server.*"));
        }
        if let Some((line, count)) = &self.invalid {
            let lines = if *count == 1 {
                "1 line that is".to_owned()
            } else {
                format!("{count} lines that are")
            };
            notes.push(format!(
                "{url} has {lines} not Prometheus text (skipped; the first is `{line}`)"
            ));
        }
        notes
    }
}

/// Notes on the signals that servers of these [families](FAMILIES) did not export.
fn missing_signals(families: &BTreeSet<usize>, reported: &BTreeSet<Signal>) -> Vec<String> {
    let mut notes = Vec::new();
    for family in families.iter().filter_map(|&index| FAMILIES.get(index)) {
        let mut missing = Vec::new();
        let mut without_metric = Vec::new();
        for signal in Signal::ALL
            .iter()
            .filter(|signal| signal.scope() == "server" && !reported.contains(signal))
        {
            match family.signals.iter().find(|(known, _)| known == signal) {
                Some((_, formula)) => {
                    missing.push(format!("`{}` ({signal})", formula.names().join("`, `")))
                }
                None => without_metric.push(signal.name()),
            }
        }
        if !missing.is_empty() {
            notes.push(format!(
                "{} does not export {}: null",
                family.name,
                missing.join(", ")
            ));
        }
        if !without_metric.is_empty() && families.len() == 1 {
            notes.push(format!(
                "{} has no metric for {}: null",
                family.name,
                without_metric.join(", ")
            ));
        }
    }
    notes
}

/// The table of names as Markdown, for the documentation.
#[cfg(test)]
fn table() -> String {
    let mut table = String::new();
    for family in FAMILIES {
        table += &format!(
            "\n### {}\n\n| signal | series, the best first |\n|---|---|\n",
            family.name
        );
        for signal in Signal::ALL {
            let formulas = family
                .signals
                .iter()
                .filter(|(known, _)| known == signal)
                .map(|(_, formula)| formula.to_string());
            let formulas: Vec<String> = formulas.collect();
            if !formulas.is_empty() {
                table += &format!("| `{signal}` | {} |\n", formulas.join("; "));
            }
        }
    }
    table
}

/// Limit of the size of a page.
const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;
/// Redirects that are followed, only on the same host, because headers may contain secrets.
const MAX_REDIRECTS: usize = 3;

/// Why a page cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// An invalid address, header or certificate.
    #[error("{0}")]
    Settings(String),
    /// The server cannot be reached, or closed the connection.
    #[error("{0}")]
    Connection(String),
    /// The response took longer than this.
    #[error("no complete response within {} ms", .0.as_millis())]
    Late(Duration),
    /// The HTTP status.
    #[error("the server answered {0}")]
    Status(u16),
    /// The page has too many bytes.
    #[error("the page is larger than {} MiB", MAX_PAGE_BYTES / 1024 / 1024)]
    Large,
    /// The page is not UTF-8.
    #[error("the page is not text: {0}")]
    Binary(String),
}

/// A client for one endpoint.
#[derive(Debug)]
pub struct Fetch {
    url: Url,
    client: Client,
    headers: HeaderMap,
    runtime: Runtime,
    timeout: Duration,
}

impl Fetch {
    /// # Errors
    /// An invalid address, invalid headers, or a certificate that cannot be read.
    pub fn new(
        url: &str,
        headers: &[(String, Secret)],
        tls: &Tls,
        timeout: Duration,
    ) -> Result<Fetch, FetchError> {
        Fetch::at(url, headers, tls, timeout, None)
    }

    /// As [`Fetch::new`], at this address of the host if there is one.
    ///
    /// # Errors
    /// As of [`Fetch::new`].
    pub fn at(
        url: &str,
        headers: &[(String, Secret)],
        tls: &Tls,
        timeout: Duration,
        address: Option<SocketAddr>,
    ) -> Result<Fetch, FetchError> {
        let settings = |error: &dyn std::fmt::Display| FetchError::Settings(error.to_string());
        let url = Url::parse(url).map_err(|error| settings(&error))?;
        let mut all = HeaderMap::new();
        all.insert(
            ACCEPT,
            HeaderValue::from_static("text/plain;version=0.0.4, text/plain;q=0.9, */*;q=0.1"),
        );
        all.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        for (name, value) in headers {
            let name = HeaderName::try_from(name).map_err(|error| settings(&error))?;
            let mut value =
                HeaderValue::try_from(value.expose()).map_err(|error| settings(&error))?;
            value.set_sensitive(true);
            all.insert(name, value);
        }
        let client = build_client(&url, tls, timeout, address)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| settings(&error))?;
        Ok(Fetch {
            url,
            client,
            headers: all,
            runtime,
            timeout,
        })
    }

    /// Fetches the current page.
    pub fn page(&self) -> Result<String, FetchError> {
        let bytes = self.runtime.block_on(async {
            let page = async {
                let response = self
                    .client
                    .get(self.url.clone())
                    .headers(self.headers.clone())
                    .send();
                read_body(
                    response
                        .await
                        .map_err(|error| FetchError::Connection(innermost(&error)))?,
                )
                .await
            };
            tokio::time::timeout(self.timeout, page)
                .await
                .map_err(|_| FetchError::Late(self.timeout))?
        })?;
        String::from_utf8(bytes).map_err(|error| FetchError::Binary(error.utf8_error().to_string()))
    }

    /// Sends a GET, or a POST with a JSON body, and reads the response, which must have a status from 200 to 299.
    ///
    /// # Errors
    /// The server cannot be reached, answers with another status, or too late.
    pub fn call(&self, body: Option<String>) -> Result<(), FetchError> {
        self.runtime.block_on(async {
            let request = match body {
                None => self.client.get(self.url.clone()),
                Some(body) => self
                    .client
                    .post(self.url.clone())
                    .header(CONTENT_TYPE, "application/json")
                    .body(body),
            };
            let call = async {
                let response = request
                    .headers(self.headers.clone())
                    .send()
                    .await
                    .map_err(|error| FetchError::Connection(innermost(&error)))?;
                match response.status() {
                    status if status.is_success() => Ok(()),
                    status => Err(FetchError::Status(status.as_u16())),
                }
            };
            tokio::time::timeout(self.timeout, call)
                .await
                .map_err(|_| FetchError::Late(self.timeout))?
        })
    }
}

fn build_client(
    url: &Url,
    tls: &Tls,
    timeout: Duration,
    address: Option<SocketAddr>,
) -> Result<Client, FetchError> {
    let settings = |error: &dyn std::fmt::Display| FetchError::Settings(error.to_string());
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let origin = url.origin();
    let follow = redirect::Policy::custom(move |attempt| {
        if attempt.url().origin() == origin && attempt.previous().len() <= MAX_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let mut builder = Client::builder()
        .redirect(follow)
        .connect_timeout(timeout)
        .pool_max_idle_per_host(1);
    if is_loopback(url) || address.is_some() {
        builder = builder.no_proxy();
    }
    if let (Some(host), Some(address)) = (url.host_str(), address) {
        builder = builder.resolve(host, address);
    }
    let read = |path: &str| {
        bounds::read(path.as_ref(), bounds::TEXT)
            .map_err(|error| FetchError::Settings(format!("{path}: {error}")))
    };
    if let Some(path) = &tls.ca {
        let bad =
            |error: reqwest::Error| FetchError::Settings(format!("{path}: {}", innermost(&error)));
        builder = builder.tls_certs_merge(Certificate::from_pem_bundle(&read(path)?).map_err(bad)?);
    }
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        let pem = [read(cert)?, b"\n".to_vec(), read(key)?].concat();
        let bad = |error: reqwest::Error| {
            FetchError::Settings(format!("{cert}, {key}: {}", innermost(&error)))
        };
        builder = builder.identity(Identity::from_pem(&pem).map_err(bad)?);
    }
    builder
        .tls_danger_accept_invalid_certs(tls.insecure)
        .build()
        .map_err(|error| settings(&innermost(&error)))
}

/// Proxies are not used for loopback addresses.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, FetchError> {
    if response.status() != reqwest::StatusCode::OK {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    let compressed = response
        .headers()
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"gzip"));
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| FetchError::Connection(innermost(&error)))?
    {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_PAGE_BYTES {
            return Err(FetchError::Large);
        }
    }
    if compressed {
        decompress(&bytes)
    } else {
        Ok(bytes)
    }
}

fn decompress(bytes: &[u8]) -> Result<Vec<u8>, FetchError> {
    let mut plain = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes).take(MAX_PAGE_BYTES as u64 + 1);
    reader
        .read_to_end(&mut plain)
        .map_err(|error| FetchError::Binary(format!("invalid gzip: {error}")))?;
    if plain.len() > MAX_PAGE_BYTES {
        Err(FetchError::Large)
    } else {
        Ok(plain)
    }
}

/// The innermost error, which reqwest hides behind "error sending request".
fn innermost(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests;
