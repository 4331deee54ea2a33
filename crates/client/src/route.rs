//! The way to a target, settled once and shared by all lanes.

use crate::connect::{bracketed, host_and_port};
use crate::error::EngineError;
use crate::proxy::{Proxy, proxy_for};
use crate::tls::client_config;
use http::Uri;
use llmscen_core::target::{HttpVersion, Tls};
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::OnceCell;

/// URL, certificates and proxy of one target.
#[derive(Clone, Debug)]
pub struct Route {
    /// Where requests are posted to.
    pub uri: Uri,
    /// For https targets.
    pub tls: Option<Arc<ClientConfig>>,
    /// The proxy in front of it.
    pub proxy: Option<Proxy>,
    /// The latest TLS handshake with the target agreed on HTTP/1.1; lanes learn it from one another.
    http1: Arc<AtomicBool>,
    /// Whether the server at a URL without TLS speaks it, once that was tried.
    secure: Arc<OnceCell<bool>>,
}

impl Route {
    /// The way to `url`; `env` holds the proxy variables.
    pub fn new(url: &str, tls: &Tls, env: &BTreeMap<String, String>) -> Result<Route, EngineError> {
        let uri = parse(url)?;
        let tls = if uri.scheme_str() == Some("https") { Some(client_config(tls)?) } else { None };
        let proxy = proxy_for(&uri, env);
        Ok(Route { uri, tls, proxy, http1: Arc::default(), secure: Arc::default() })
    }

    /// Where connections to the target end: `127.0.0.1:8000`.
    pub fn host_and_port(&self) -> String {
        let (host, port) = host_and_port(&self.uri);
        format!("{}:{port}", bracketed(&host))
    }

    /// Whether requests must carry the whole URI, for a proxy to read: those of HTTP/1.1 without TLS. All others go through
    /// a tunnel.
    pub fn absolute_form(&self, version: HttpVersion) -> bool {
        self.proxy.is_some() && self.tls.is_none() && version != HttpVersion::Http2
    }

    /// Whether the target is known to speak no HTTP/2 over TLS.
    pub fn http1_agreed(&self) -> bool {
        self.http1.load(Ordering::Relaxed)
    }

    /// Whether the server speaks TLS; `probe` finds out, the first time.
    pub async fn speaks_tls(&self, probe: impl Future<Output = bool>) -> bool {
        *self.secure.get_or_init(|| probe).await
    }

    /// Notes what a TLS handshake agreed on.
    pub fn agreed(&self, h2: bool) {
        self.http1.store(!h2, Ordering::Relaxed);
    }
}

fn parse(url: &str) -> Result<Uri, EngineError> {
    let refused = |reason: String| EngineError::Url { url: url.to_owned(), reason };
    let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| refused(error.to_string()))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(refused("expected http://HOST[:PORT]/PATH or https://…".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_scheme_or_host_is_refused_with_an_example() {
        for url in ["localhost:8000/v1", "ftp://a/b", "/v1/chat", "http://", "ht tp://a"] {
            let error = Route::new(url, &Tls::default(), &BTreeMap::new()).unwrap_err().to_string();
            assert!(error.contains(url), "{error}");
        }
    }
}
