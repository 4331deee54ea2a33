//! A server's own metrics: its page of Prometheus text, read through the run.

use crate::source::{SampledValue, TelemetrySource};
use common::common;
use flate2::read::MultiGzDecoder;
use llmscen_core::bounds;
use llmscen_core::signal::Signal;
use llmscen_core::target::{Secret, Tls};
use llmscen_core::telemetry::{Scrape, Source};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::shown as address;
use names::FAMILIES;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Identity, Response, Url, redirect};
use std::collections::{BTreeSet, HashSet};
use std::error::Error;
use std::io::Read;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use text::Page;
use tokio::runtime::{Builder, Runtime};

mod common;
pub mod names;
pub(super) mod text;

/// The longest that a page is waited for, whatever the interval.
const PATIENCE: Duration = Duration::from_secs(5);
/// Characters of a line that a note shows.
const SHOWN: usize = 80;

/// The metrics page of a target.
///
/// Series with a common name are told under it, in the signal's unit. All others, and those of which several became one, are
/// told under their own name with their labels as they were written; so nothing of the page is lost. What is no number is not
/// told. `up` is 1 where the page was read, and 0 where not.
#[derive(Debug)]
pub struct Prometheus {
    scrape: Scrape,
    fetch: Result<Fetch, String>,
    asked: Vec<String>,
    seen: Seen,
}

/// What all pages together had.
#[derive(Debug, Default)]
struct Seen {
    pages: u64,
    families: BTreeSet<usize>,
    told: BTreeSet<Signal>,
    unclear: BTreeSet<&'static str>,
    unread: Option<(String, usize)>,
}

impl Prometheus {
    /// The page of a target with these certificates, whose requests name the models `asked`. Settings that cannot be used show
    /// when it is asked.
    pub fn new(scrape: &Scrape, tls: &Tls, asked: Vec<String>) -> Prometheus {
        let fetch = Fetch::new(&scrape.url, &scrape.headers, tls, patience(scrape.interval));
        let fetch = fetch.map_err(|error| error.to_string());
        Prometheus { scrape: scrape.clone(), fetch, asked, seen: Seen::default() }
    }
}

/// How long a page of that interval is waited for.
pub(super) fn patience(interval: Nanos) -> Duration {
    Duration::from_nanos(interval.0).min(PATIENCE)
}

impl TelemetrySource for Prometheus {
    fn kind(&self) -> Source {
        Source::Prometheus
    }

    fn interval(&self) -> Nanos {
        self.scrape.interval
    }

    fn sample(&mut self, _at: Instant, tell: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let text = self.fetch.as_ref().map_err(String::clone).and_then(|fetch| fetch.page().map_err(|error| error.to_string()));
        let read = text.and_then(|text| {
            let page = series(&text)?;
            tell(SampledValue::plain("up", 1.0));
            self.seen.page(&page, &self.asked, tell);
            Ok(())
        });
        read.map_err(|reason| {
            tell(SampledValue::plain("up", 0.0));
            format!("{}: {reason}", address(&self.scrape.url))
        })
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.seen).notes(&address(&self.scrape.url))
    }
}

/// The page, if it has any series.
///
/// # Errors
/// What stands there instead.
pub(super) fn series(text: &str) -> Result<Page<'_>, String> {
    let page = Page::read(text);
    if !page.samples.is_empty() {
        return Ok(page);
    }
    Err(match page.unread {
        Some((line, _)) => format!("this is no Prometheus text: `{}`", shown(line)),
        None => "the page is empty".to_owned(),
    })
}

fn shown(line: &str) -> String {
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

/// Tells everything of a page that has no common name, and that is a number.
pub(super) fn others(page: &Page<'_>, whole: &HashSet<usize>, tell: &mut dyn FnMut(SampledValue<'_>)) {
    for (place, sample) in page.samples.iter().enumerate() {
        if sample.value.is_finite() && !whole.contains(&place) && !page.is_birthday(sample.name) {
            tell(SampledValue { name: sample.name, labels: sample.labels, device: None, value: sample.value });
        }
    }
}

impl Seen {
    /// Tells a page and keeps what was on it.
    fn page(&mut self, page: &Page<'_>, asked: &[String], tell: &mut dyn FnMut(SampledValue<'_>)) {
        let common = common(page, asked, tell);
        others(page, &common.whole, tell);
        self.pages += 1;
        self.families.extend(common.families);
        self.told.extend(common.told);
        self.unclear.extend(common.unclear);
        if let (None, Some((line, count))) = (&self.unread, page.unread) {
            self.unread = Some((shown(line), count));
        }
    }

    fn notes(&self, url: &str) -> Vec<String> {
        if self.pages == 0 {
            return Vec::new();
        }
        let mut notes = missing(&self.families, &self.told);
        if self.families.is_empty() {
            notes.push(format!("{url} has none of the names that are known: its series stand under their own, server.* is null"));
        }
        notes.extend(self.unclear.iter().map(|name| {
            format!("{url} tells `{name}` of several models, and of none that is asked for: it stands under its own name")
        }));
        notes.extend(self.unread.iter().map(|(line, count)| {
            let lines = if *count == 1 { "a line that is" } else { "lines that are" };
            format!("{url} has {lines} no Prometheus text ({count} of them, the first `{line}`): passed over")
        }));
        notes
    }
}

/// What the servers of these [families](FAMILIES) did not tell: by name, where it has one there.
pub fn missing(families: &BTreeSet<usize>, told: &BTreeSet<Signal>) -> Vec<String> {
    let mut notes = Vec::new();
    for family in families.iter().filter_map(|&place| FAMILIES.get(place)) {
        let (mut absent, mut unknown) = (Vec::new(), Vec::new());
        for signal in Signal::ALL.iter().filter(|signal| signal.scope() == "server" && !told.contains(signal)) {
            match family.ways.iter().find(|(own, _)| own == signal) {
                Some((_, how)) => absent.push(format!("`{}` ({signal})", how.names().join("`, `"))),
                None => unknown.push(signal.name()),
            }
        }
        if !absent.is_empty() {
            notes.push(format!("{}'s page has no {}: null", family.name, absent.join(", no ")));
        }
        if !unknown.is_empty() && families.len() == 1 {
            notes.push(format!("{} does not tell {}: null", family.name, unknown.join(", ")));
        }
    }
    notes
}

/// The table of names as Markdown, for the documentation.
pub fn table() -> String {
    let mut table = String::new();
    for family in FAMILIES {
        table += &format!("\n### {}\n\n| signal | series, the best first |\n|---|---|\n", family.name);
        for signal in Signal::ALL {
            let ways = family.ways.iter().filter(|(own, _)| own == signal).map(|(_, how)| how.to_string());
            let ways: Vec<String> = ways.collect();
            if !ways.is_empty() {
                table += &format!("| `{signal}` | {} |\n", ways.join("; "));
            }
        }
    }
    table
}

/// Bytes of a page at the most.
pub const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;
/// Redirects followed, and only on the same host: headers may hold secrets.
const HOPS: usize = 3;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The settings or the address cannot be used.
    #[error("{0}")]
    Settings(String),
    /// No connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// It took too long.
    #[error("no whole page within {} ms", .0.as_millis())]
    Late(Duration),
    /// The server answered, but not with a page.
    #[error("the server answered {0}")]
    Status(u16),
    /// The page does not end.
    #[error("the page is larger than {} MiB", MAX_PAGE_BYTES / 1024 / 1024)]
    Large,
    /// Something else than text.
    #[error("the page is not text: {0}")]
    Binary(String),
}

/// A client for one address.
#[derive(Debug)]
pub struct Fetch {
    url: Url,
    client: Client,
    headers: HeaderMap,
    runtime: Runtime,
    patience: Duration,
}

impl Fetch {
    /// A client with these headers and the target's certificates, that waits so long for a page.
    ///
    /// # Errors
    /// An address that is none, headers that HTTP does not allow, a certificate that cannot be read.
    pub fn new(url: &str, headers: &[(String, Secret)], tls: &Tls, patience: Duration) -> Result<Fetch, FetchError> {
        let settings = |error: &dyn std::fmt::Display| FetchError::Settings(error.to_string());
        let url = Url::parse(url).map_err(|error| settings(&error))?;
        let mut all = HeaderMap::new();
        all.insert(ACCEPT, HeaderValue::from_static("text/plain;version=0.0.4, text/plain;q=0.9, */*;q=0.1"));
        all.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        for (name, value) in headers {
            let name = HeaderName::try_from(name).map_err(|error| settings(&error))?;
            let mut value = HeaderValue::try_from(value.expose()).map_err(|error| settings(&error))?;
            value.set_sensitive(true);
            all.insert(name, value);
        }
        let client = client(&url, tls, patience)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| settings(&error))?;
        Ok(Fetch { url, client, headers: all, runtime, patience })
    }

    /// The page as it is now.
    ///
    /// # Errors
    /// Why there is none.
    pub fn page(&self) -> Result<String, FetchError> {
        let bytes = self.runtime.block_on(async {
            let page = async {
                let answer = self.client.get(self.url.clone()).headers(self.headers.clone()).send();
                body(answer.await.map_err(|error| FetchError::Connection(cause(&error)))?).await
            };
            tokio::time::timeout(self.patience, page).await.map_err(|_| FetchError::Late(self.patience))?
        })?;
        String::from_utf8(bytes).map_err(|error| FetchError::Binary(error.utf8_error().to_string()))
    }
}

fn client(url: &Url, tls: &Tls, patience: Duration) -> Result<Client, FetchError> {
    let settings = |error: &dyn std::fmt::Display| FetchError::Settings(error.to_string());
    // The error says that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let own = url.origin();
    let follow = redirect::Policy::custom(move |attempt| {
        if attempt.url().origin() == own && attempt.previous().len() <= HOPS { attempt.follow() } else { attempt.stop() }
    });
    let mut builder = Client::builder().redirect(follow).connect_timeout(patience).pool_max_idle_per_host(1);
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    let read =
        |path: &str| bounds::read(path.as_ref(), bounds::TEXT).map_err(|error| FetchError::Settings(format!("{path}: {error}")));
    if let Some(path) = &tls.ca {
        let bad = |error: reqwest::Error| FetchError::Settings(format!("{path}: {}", cause(&error)));
        builder = builder.tls_certs_merge(Certificate::from_pem_bundle(&read(path)?).map_err(bad)?);
    }
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        let pem = [read(cert)?, b"\n".to_vec(), read(key)?].concat();
        let bad = |error: reqwest::Error| FetchError::Settings(format!("{cert}, {key}: {}", cause(&error)));
        builder = builder.identity(Identity::from_pem(&pem).map_err(bad)?);
    }
    builder.tls_danger_accept_invalid_certs(tls.insecure).build().map_err(|error| settings(&cause(&error)))
}

/// Proxy variables are meant for the world outside.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.ends_with(".localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

async fn body(mut answer: Response) -> Result<Vec<u8>, FetchError> {
    if answer.status() != reqwest::StatusCode::OK {
        return Err(FetchError::Status(answer.status().as_u16()));
    }
    let packed = answer.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"gzip"));
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| FetchError::Connection(cause(&error)))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_PAGE_BYTES {
            return Err(FetchError::Large);
        }
    }
    if packed { unpacked(&bytes) } else { Ok(bytes) }
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, FetchError> {
    let mut plain = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes).take(MAX_PAGE_BYTES as u64 + 1);
    reader.read_to_end(&mut plain).map_err(|error| FetchError::Binary(format!("its gzip cannot be read: {error}")))?;
    if plain.len() > MAX_PAGE_BYTES { Err(FetchError::Large) } else { Ok(plain) }
}

/// The innermost reason, which reqwest hides behind "error sending request".
fn cause(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests;
