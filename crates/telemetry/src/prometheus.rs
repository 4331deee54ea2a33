//! Metrics of a server: its /metrics endpoint, or those of its workers, in the text format of Prometheus.

use crate::prometheus::dcgm_fields::report_gpus;
use crate::sampler::failed_samples_note;
use crate::{SampledValue, TelemetrySource};
use common::report_signals;
use flate2::read::MultiGzDecoder;
use llmscen_core::bounds;
use llmscen_core::check::PageMetric;
use llmscen_core::endpoint::is_loopback;
use llmscen_core::redact::Secret;
use llmscen_core::signal::Signal;
use llmscen_core::target::Tls;
use llmscen_core::telemetry::{Scrape, Source, WorkerLabels};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::redact_url;
use names::FAMILIES;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    RETRY_AFTER,
};
use reqwest::{Certificate, Client, Identity, RequestBuilder, Response, Url, redirect};
use std::collections::{BTreeSet, HashSet};
use std::error::Error;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::{Page, raw_pairs};
use tokio::runtime::{Builder, Runtime};

pub mod address;
mod common;
pub(crate) mod dcgm_fields;
mod names;
pub mod query;
pub(crate) mod text;

/// Limit of the timeout, whatever the interval.
const MAX_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of characters of a line that a note shows.
const SHOWN: usize = 80;
/// The beginning of the names of a DCGM exporter.
const DCGM_PREFIX: &str = "DCGM_FI_";

/// A page that is read.
#[derive(Clone, Debug)]
pub struct PageLocation {
    /// The endpoint.
    pub scrape: Scrape,
    /// This address of its host; None: any.
    pub address: Option<SocketAddr>,
    /// Host and port for the label `worker`; None: the samples have no such label.
    pub worker: Option<String>,
    /// The role of the worker.
    pub role: Option<String>,
}

/// The metrics pages of a target. All of them are read at the same time.
///
/// Series of a known server are reported as signals, in the unit of the signal. All others, and those that were
/// combined into one signal, are reported under their names and labels, so nothing of the page is lost except values
/// that are not finite. `up` is 1 where the page was read, and 0 where not. A page with the series of a DCGM exporter
/// has the signals of its GPUs.
#[derive(Debug)]
pub struct Prometheus {
    interval: Nanos,
    runtime: Result<Runtime, String>,
    pages: Vec<PageReader>,
    models: Vec<String>,
    limited: Vec<PageMetric>,
}

#[derive(Debug)]
struct PageReader {
    endpoint: Result<Arc<Endpoint>, String>,
    /// Its URL, and its address if that has several, for notes.
    name: String,
    /// The labels that all its samples get.
    labels: String,
    log: PageLog,
    samples: u64,
    failed: u64,
    first_error: String,
}

/// What one page contained during a round.
#[derive(Debug, Default)]
struct PageLog {
    pages: u64,
    families: BTreeSet<usize>,
    reported: BTreeSet<Signal>,
    ambiguous: BTreeSet<&'static str>,
    /// The first invalid line, and the number of invalid lines on its page.
    invalid: Option<(String, usize)>,
    /// Series of a page that were not stored.
    left_out: usize,
}

impl Prometheus {
    /// `models` are the models that requests name. Series that objectives limit (`limited`) are reported under their
    /// names in any case. Settings that cannot be used are an error of the first sample. All pages have the interval
    /// of the first one.
    pub fn new(
        pages: &[PageLocation],
        tls: &Tls,
        models: Vec<String>,
        limited: Vec<PageMetric>,
    ) -> Prometheus {
        let interval = pages
            .first()
            .map_or(Nanos::ZERO, |page| page.scrape.interval);
        Prometheus {
            interval,
            runtime: new_runtime().map_err(|error| error.to_string()),
            pages: pages
                .iter()
                .map(|page| PageReader::new(page, tls))
                .collect(),
            models,
            limited,
        }
    }

    /// The texts of all pages, requested at the same time.
    fn fetch(&self) -> Vec<Result<String, String>> {
        let runtime = match &self.runtime {
            Ok(runtime) => runtime,
            Err(error) => return self.pages.iter().map(|_| Err(error.clone())).collect(),
        };
        runtime.block_on(async {
            let start = |page: &PageReader| {
                let endpoint = page.endpoint.clone()?;
                Ok(tokio::spawn(async move { endpoint.page().await }))
            };
            let mut texts = Vec::new();
            for request in self.pages.iter().map(start).collect::<Vec<_>>() {
                texts.push(match request {
                    Ok(request) => request
                        .await
                        .map_err(|error| error.to_string())
                        .and_then(|page| page.map_err(|error| error.to_string())),
                    Err(error) => Err(error),
                });
            }
            texts
        })
    }
}

impl PageReader {
    fn new(page: &PageLocation, tls: &Tls) -> PageReader {
        let scrape = &page.scrape;
        let timeout = scrape_timeout(scrape.interval);
        let endpoint = Endpoint::new(&scrape.url, &scrape.headers, tls, timeout, page.address);
        let at = |address: SocketAddr| format!(" at {address}");
        let labels = page.worker.as_deref().map(|worker| WorkerLabels {
            worker,
            role: page.role.as_deref(),
        });
        PageReader {
            endpoint: endpoint.map(Arc::new).map_err(|error| error.to_string()),
            name: redact_url(&scrape.url) + &page.address.map_or(String::new(), at),
            labels: labels.map_or(String::new(), |labels| labels.to_string()),
            log: PageLog::default(),
            samples: 0,
            failed: 0,
            first_error: String::new(),
        }
    }

    fn note_of_failures(&self) -> Option<String> {
        let left_out = if self.failed == self.samples {
            "Its values are missing in the sums of the target."
        } else {
            "At these times the target has no sums."
        };
        failed_samples_note(
            Source::Prometheus,
            self.failed,
            self.samples,
            &self.first_error,
        )
        .map(|note| format!("{note}. {left_out}"))
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
        self.interval
    }

    fn sample(
        &mut self,
        _at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        let texts = self.fetch();
        let is_single = self.pages.len() == 1;
        let mut buffer = String::new();
        for (page, text) in self.pages.iter_mut().zip(texts) {
            let mut emit_labelled = |value: SampledValue<'_>| {
                buffer.clear();
                add_labels(&page.labels, value.labels, &mut buffer);
                emit(SampledValue {
                    labels: &buffer,
                    ..value
                });
            };
            page.samples += 1;
            let read = text.and_then(|text| {
                let parsed = parse_page(&text)?;
                emit_labelled(SampledValue::plain("up", 1.0));
                page.log
                    .record(&parsed, &self.models, &self.limited, &mut emit_labelled);
                Ok(())
            });
            if let Err(reason) = read {
                emit_labelled(SampledValue::plain("up", 0.0));
                let error = format!("{}: {reason}", page.name);
                if is_single {
                    return Err(error);
                }
                page.failed += 1;
                if page.first_error.is_empty() {
                    page.first_error = error;
                }
            }
        }
        Ok(())
    }

    fn notes(&mut self) -> Vec<String> {
        let mut notes: Vec<String> = self
            .pages
            .iter()
            .filter_map(PageReader::note_of_failures)
            .collect();
        let logs = || self.pages.iter().map(|page| &page.log);
        let families = logs().flat_map(|log| &log.families).copied().collect();
        let reported = logs().flat_map(|log| &log.reported).copied().collect();
        notes.extend(missing_signals(&families, &reported));
        for page in &mut self.pages {
            let log = std::mem::take(&mut page.log);
            notes.extend(log.notes(&page.name, families.is_empty()));
        }
        notes
    }
}

/// Writes the labels of a page and those of one of its series. Where both have one of these names, that of the series
/// becomes `exported_NAME`, as in Prometheus.
fn add_labels(page: &str, series: &str, buffer: &mut String) {
    buffer.push_str(page);
    if page.is_empty() || series.is_empty() {
        return buffer.push_str(series);
    }
    for (name, value) in raw_pairs(series) {
        let is_taken = ["worker", "role"].contains(&name);
        let exported = if is_taken { "exported_" } else { "" };
        buffer.extend([",", exported, name, "=\"", value, "\""]);
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

/// Whether a page has series of a DCGM exporter, but none of an engine: it is not the page of a worker.
pub fn has_only_gpus(text: &str) -> bool {
    let page = Page::parse(text);
    let is_of_engine = || FAMILIES.iter().any(|family| page.has_prefix(family.prefix));
    page.has_prefix(DCGM_PREFIX) && !is_of_engine()
}

/// Maximum number of stored series of a page that neither a signal nor an objective uses, and of those that signals
/// combine. vLLM exports about 300 in total.
const MAX_OTHER_SERIES: usize = 10_000;

/// Emits the finite values of a page that are not `used` by a signal: those that are limited by an objective, the first
/// ones that a signal combines (`merged`), and the first others. Returns the number of those that are left out.
pub(crate) fn report_other_series(
    page: &Page<'_>,
    used: &HashSet<usize>,
    merged: &HashSet<usize>,
    is_limited: impl Fn(&str) -> bool,
    emit: &mut dyn FnMut(SampledValue<'_>),
) -> usize {
    let mut counts = [0usize; 2];
    for (index, sample) in page.samples.iter().enumerate() {
        if !sample.value.is_finite() || used.contains(&index) || page.is_creation_time(sample.name)
        {
            continue;
        }
        if !is_limited(sample.name) {
            let count = &mut counts[usize::from(merged.contains(&index))];
            *count += 1;
            if *count > MAX_OTHER_SERIES {
                continue;
            }
        }
        emit(SampledValue {
            name: sample.name,
            labels: sample.labels,
            device: None,
            value: sample.value,
        });
    }
    let left_out = counts
        .iter()
        .map(|count| count.saturating_sub(MAX_OTHER_SERIES));
    left_out.sum()
}

/// The note on series that were left out.
pub(crate) fn note_left_out(url: &str, left_out: usize) -> Option<String> {
    (left_out > 0).then(|| {
        format!(
            "{url} has too many series: {left_out} of its page are not stored, those after \
        the first {MAX_OTHER_SERIES}"
        )
    })
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
        self.pages += 1;
        let mut signals = report_signals(page, models, emit);
        if page.has_prefix(DCGM_PREFIX) {
            let gpus = report_gpus(page, emit);
            signals.used.extend(gpus.used);
            signals.reported.extend(gpus.reported);
        }
        let is_limited = |name: &str| limited.iter().any(|series| series.has_name(name));
        signals.used.retain(|index| {
            let sample = page.samples.get(*index);
            !sample.is_some_and(|sample| is_limited(sample.name))
        });
        let left_out = report_other_series(page, &signals.used, &signals.merged, is_limited, emit);
        self.left_out = self.left_out.max(left_out);
        self.families.extend(signals.families);
        self.reported.extend(signals.reported);
        self.ambiguous.extend(signals.ambiguous);
        if let (None, Some((line, count))) = (&self.invalid, page.invalid) {
            self.invalid = Some((shorten(line), count));
        }
    }

    /// `is_unknown`: no page of the target is that of a known server.
    fn notes(&self, url: &str, is_unknown: bool) -> Vec<String> {
        let mut notes = Vec::new();
        let has_gpus = self.reported.iter().any(|signal| signal.scope() == "gpu");
        if self.pages > 0 && self.families.is_empty() && !has_gpus {
            let null = if is_unknown { ": server.* is null" } else { "" };
            notes.push(format!("{url} exports no metrics of a known server{null}"));
        }
        for name in &self.ambiguous {
            notes.push(format!(
                "{url} exports `{name}` for several models, but not for \
            `target.model`: not used for server.*"
            ));
        }
        notes.extend(note_left_out(url, self.left_out));
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
/// Maximum wait for the body of the reply to a call: the status is known by then.
const BODY_WAIT: Duration = Duration::from_secs(2);
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

/// A client for one URL.
#[derive(Debug)]
struct Endpoint {
    url: Url,
    client: Client,
    headers: HeaderMap,
    timeout: Duration,
}

impl Endpoint {
    /// At this address of the host, if there is one.
    fn new(
        url: &str,
        headers: &[(String, Secret)],
        tls: &Tls,
        timeout: Duration,
        address: Option<SocketAddr>,
    ) -> Result<Endpoint, FetchError> {
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
        Ok(Endpoint {
            client: build_client(&url, tls, timeout, address)?,
            url,
            headers: all,
            timeout,
        })
    }

    /// Fetches the current page.
    async fn page(&self) -> Result<String, FetchError> {
        self.in_time(async {
            let response = self.respond(self.client.get(self.url.clone())).await?;
            match response.status().as_u16() {
                200 => read_text(response).await,
                status => Err(FetchError::Status(status)),
            }
        })
        .await
    }

    async fn respond(&self, request: RequestBuilder) -> Result<Response, FetchError> {
        let sent = request.headers(self.headers.clone()).send().await;
        sent.map_err(|error| FetchError::Connection(innermost(&error)))
    }

    async fn in_time<T>(
        &self,
        exchange: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FetchError> {
        tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| FetchError::Late(self.timeout))?
    }
}

fn new_runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// A client for one URL, with a runtime.
#[derive(Debug)]
pub struct Fetch {
    endpoint: Endpoint,
    runtime: Runtime,
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
        Ok(Fetch {
            endpoint: Endpoint::new(url, headers, tls, timeout, address)?,
            runtime: new_runtime().map_err(|error| FetchError::Settings(error.to_string()))?,
        })
    }

    /// Fetches the current page.
    ///
    /// # Errors
    /// The server cannot be reached, answers with another status than 200, too late, or not with text.
    pub fn page(&self) -> Result<String, FetchError> {
        self.runtime.block_on(self.endpoint.page())
    }

    /// Sends a GET, or a POST with a JSON body. The reply may have any status.
    ///
    /// # Errors
    /// The server cannot be reached, or answers too late.
    pub fn call(&self, body: Option<String>) -> Result<CallReply, FetchError> {
        let Endpoint { client, url, .. } = &self.endpoint;
        let request = match body {
            None => client.get(url.clone()),
            Some(body) => client
                .post(url.clone())
                .header(CONTENT_TYPE, "application/json")
                .body(body),
        };
        let exchange = async {
            let response = self.endpoint.respond(request).await?;
            let status = response.status();
            let header = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
            let retry_after = header(RETRY_AFTER);
            let is_json = header(CONTENT_TYPE).is_some_and(|kind| kind.contains("json"));
            // The body of a success may be a stream without an end.
            let body = match !status.is_success() || is_json {
                true => tokio::time::timeout(BODY_WAIT, read_body(response)).await,
                false => Ok(Ok(Vec::new())),
            };
            Ok(CallReply {
                status: status.as_u16(),
                retry_after,
                body: body.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default(),
            })
        };
        self.runtime.block_on(self.endpoint.in_time(exchange))
    }
}

/// The reply to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallReply {
    /// The HTTP status.
    pub status: u16,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
    /// The body of an error, or a JSON body; otherwise empty.
    pub body: Vec<u8>,
}

impl CallReply {
    /// # Errors
    /// The status is not one from 200 to 299.
    pub fn require_success(&self) -> Result<(), FetchError> {
        match self.status {
            200..=299 => Ok(()),
            status => Err(FetchError::Status(status)),
        }
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
    // Proxies are not used for loopback addresses.
    if url.host_str().is_some_and(is_loopback) || address.is_some() {
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

async fn read_text(response: Response) -> Result<String, FetchError> {
    String::from_utf8(read_body(response).await?)
        .map_err(|error| FetchError::Binary(error.utf8_error().to_string()))
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, FetchError> {
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
