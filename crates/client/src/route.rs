//! The route to a target (URL, certificates, proxy), resolved once and shared by all workers.

use crate::ClientError;
use crate::tls::client_config;
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use llmscen_core::endpoint::is_loopback;
use llmscen_core::target::{HttpVersion, Target, Tls};
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::fmt;
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
    /// The proxy, if one applies.
    pub proxy: Option<Proxy>,
    /// The name of the URL in outcomes; None for the only URL of a target.
    pub endpoint: Option<Arc<str>>,
    /// Requests reach the target through a tunnel of the proxy in any case: WebSockets (RFC 6455, section 4.1).
    tunnel: bool,
    /// The latest TLS handshake with the target selected HTTP/1.1; all workers share this.
    http1: Arc<AtomicBool>,
    /// Whether the server of an http:// URL uses TLS, once that was probed.
    speaks_tls: Arc<OnceCell<bool>>,
}

impl Route {
    /// The route to `url`; `env` contains the proxy variables.
    pub fn new(url: &str, tls: &Tls, env: &BTreeMap<String, String>) -> Result<Route, ClientError> {
        let uri = parse(url)?;
        let tls = if uri.scheme_str() == Some("https") {
            Some(client_config(tls)?)
        } else {
            None
        };
        let proxy = proxy_for(&uri, env);
        Ok(Route {
            uri,
            tls,
            proxy,
            endpoint: None,
            tunnel: false,
            http1: Arc::default(),
            speaks_tls: Arc::default(),
        })
    }

    /// The routes to all URLs of a target.
    ///
    /// # Errors
    /// A URL or a certificate is invalid.
    pub fn to_target(
        target: &Target,
        env: &BTreeMap<String, String>,
    ) -> Result<Vec<Route>, ClientError> {
        let names = target.endpoint_names();
        let route = |(index, url)| {
            Ok(Route {
                endpoint: names.get(index).cloned(),
                tunnel: target.websocket,
                ..Route::new(url, &target.tls, env)?
            })
        };
        target.urls().enumerate().map(route).collect()
    }

    /// Address of the target: `127.0.0.1:8000`.
    pub fn host_and_port(&self) -> String {
        let (host, port) = host_and_port(&self.uri);
        authority(&host, port)
    }

    /// Whether only this machine reaches the target.
    pub fn is_loopback(&self) -> bool {
        self.uri.host().is_some_and(is_loopback)
    }

    /// Whether requests carry the absolute URI for a proxy: HTTP/1.1 without TLS (RFC 9112, section 3.2.2). All
    /// others use a tunnel.
    pub fn absolute_form(&self, version: HttpVersion) -> bool {
        !self.tunnel && self.proxy.is_some() && self.tls.is_none() && version != HttpVersion::Http2
    }

    /// Whether the latest TLS handshake selected HTTP/1.1.
    pub fn http1_agreed(&self) -> bool {
        self.http1.load(Ordering::Relaxed)
    }

    /// Whether the server uses TLS; the first call runs `probe`.
    pub async fn speaks_tls(&self, probe: impl Future<Output = bool>) -> bool {
        *self.speaks_tls.get_or_init(|| probe).await
    }

    /// Records the HTTP version that a TLS handshake selected.
    pub fn note_alpn(&self, h2: bool) {
        self.http1.store(!h2, Ordering::Relaxed);
    }
}

fn parse(url: &str) -> Result<Uri, ClientError> {
    let refused = |reason: String| ClientError::Url {
        url: url.to_owned(),
        reason,
    };
    let uri: Uri = url
        .parse()
        .map_err(|error: http::uri::InvalidUri| refused(error.to_string()))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(refused(
            "expected http://HOST[:PORT]/PATH or https://…".into(),
        )),
    }
}

/// The host without brackets, and the port that the URI or its scheme names.
pub fn host_and_port(uri: &Uri) -> (String, u16) {
    let host = uri
        .host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let default = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    (host.to_owned(), uri.port_u16().unwrap_or(default))
}

/// `HOST:PORT`, with an IPv6 address in brackets.
pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// The proxy for one target.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Where the proxy is.
    pub uri: Uri,
    /// Value of `Proxy-Authorization`.
    pub auth: Option<HeaderValue>,
    /// The environment variable that names it.
    pub variable: String,
}

/// `http://proxy:3128 (from HTTP_PROXY)`, without a user or a password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.uri.scheme_str().unwrap_or("http");
        let authority = self
            .uri
            .authority()
            .map_or("", |authority| authority.as_str());
        let host = authority.rsplit('@').next().unwrap_or_default();
        write!(f, "{scheme}://{host} (from {})", self.variable)
    }
}

/// The proxy for `target` according to `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case.
/// Loopback targets never use a proxy: a benchmark of this machine must not leave it.
pub fn proxy_for(target: &Uri, env: &BTreeMap<String, String>) -> Option<Proxy> {
    if is_loopback(target.host()?) {
        return None;
    }
    let variable = |name: &str| {
        env.get_key_value(name)
            .or_else(|| env.get_key_value(&name.to_lowercase()))
    };
    let exceptions = variable("NO_PROXY").map_or("", |(_, value)| value);
    let scheme_variable = if target.scheme_str() == Some("https") {
        "HTTPS_PROXY"
    } else {
        "HTTP_PROXY"
    };
    [scheme_variable, "ALL_PROXY"]
        .into_iter()
        .filter_map(variable)
        .find_map(|(variable, value)| {
            let proxy = Matcher::builder()
                .all(value.as_str())
                .no(exceptions)
                .build()
                .intercept(target)?;
            Some(Proxy {
                uri: proxy.uri().clone(),
                auth: proxy.basic_auth().cloned(),
                variable: variable.clone(),
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_scheme_or_host_is_refused_with_an_example() {
        for url in [
            "localhost:8000/v1",
            "ftp://a/b",
            "/v1/chat",
            "http://",
            "ht tp://a",
        ] {
            let error = Route::new(url, &Tls::default(), &BTreeMap::new())
                .unwrap_err()
                .to_string();
            assert!(error.contains(url), "{error}");
        }
    }

    #[test]
    fn ports_follow_the_scheme() {
        let parsed = |text: &str| host_and_port(&text.parse().unwrap());
        assert_eq!(parsed("http://a/x"), ("a".into(), 80));
        assert_eq!(parsed("https://a/x"), ("a".into(), 443));
        assert_eq!(parsed("http://[::1]:8000/x"), ("::1".into(), 8000));
    }

    fn proxy(target: &str, env: &[(&str, &str)]) -> Option<String> {
        let env = env
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        proxy_for(&target.parse().unwrap(), &env).map(|proxy| proxy.to_string())
    }

    #[test]
    fn loopback_never_goes_through_a_proxy() {
        let env = [
            ("HTTP_PROXY", "http://proxy:3128"),
            ("ALL_PROXY", "http://proxy:3128"),
        ];
        for target in [
            "http://127.0.0.1:8000/v1",
            "http://localhost/v1",
            "http://[::1]:80/",
            "http://127.9.9.9/",
            "http://a.localhost/",
        ] {
            assert_eq!(proxy(target, &env), None, "{target}");
        }
        assert_eq!(
            proxy("http://llm.example/v1", &env).as_deref(),
            Some("http://proxy:3128 (from HTTP_PROXY)")
        );
    }

    #[test]
    fn scheme_and_exceptions_select_the_proxy() {
        let env = [
            ("https_proxy", "http://secure:1"),
            ("NO_PROXY", "inner.example"),
        ];
        assert_eq!(
            proxy("https://llm.example/", &env).as_deref(),
            Some("http://secure:1 (from https_proxy)")
        );
        assert_eq!(proxy("http://llm.example/", &env), None);
        assert_eq!(proxy("https://inner.example/", &env), None);
    }

    #[test]
    fn the_variable_is_named_and_credentials_are_not() {
        let env = [
            ("ALL_PROXY", "http://u:p4ss@all:1"),
            ("HTTP_PROXY", "plain:2"),
            ("HTTPS_PROXY", ""),
        ];
        assert_eq!(
            proxy("http://h.example/", &env).as_deref(),
            Some("http://plain:2 (from HTTP_PROXY)")
        );
        assert_eq!(
            proxy("https://h.example/", &env).as_deref(),
            Some("http://all:1 (from ALL_PROXY)")
        );
    }
}
