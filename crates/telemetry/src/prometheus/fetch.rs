//! A page over HTTP, again and again on one connection.

use flate2::read::MultiGzDecoder;
use llmscen_core::bounds;
use llmscen_core::target::{Secret, Tls};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Identity, Response, Url, redirect};
use std::error::Error;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Bytes of a page at the most.
pub const LIMIT: usize = 16 * 1024 * 1024;
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
    #[error("the page is larger than {} MiB", LIMIT / 1024 / 1024)]
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
        if bytes.len() > LIMIT {
            return Err(FetchError::Large);
        }
    }
    if packed { unpacked(&bytes) } else { Ok(bytes) }
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, FetchError> {
    let mut plain = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes).take(LIMIT as u64 + 1);
    reader.read_to_end(&mut plain).map_err(|error| FetchError::Binary(format!("its gzip cannot be read: {error}")))?;
    if plain.len() > LIMIT { Err(FetchError::Large) } else { Ok(plain) }
}

/// The innermost reason, which reqwest hides behind "error sending request".
fn cause(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
