//! Opens connections: name, TCP, proxy, TLS, each told apart when it fails.

mod probe;
mod tcp;
mod tunnel;
mod words;

#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::connect::tcp::connect;
use crate::connect::words::in_words;
use crate::read_timestamp::{Stamp, Stamped};
use crate::route::Route;
use http::Uri;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::target::HttpVersion;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The names of HTTP/2 and HTTP/1.1 in ALPN (RFC 7301).
const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";
/// What to do about a server without HTTP/2.
pub(super) const REMEDY: &str = "set `target.http.version` to `auto`";

/// A connected transport.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Transport for T {}

/// A new connection and what is known of its reads.
pub struct Line {
    /// The connection.
    pub transport: Box<dyn Transport>,
    /// When bytes last arrived at the socket.
    pub stamp: Stamp,
    /// When bytes of an answer last arrived: those that TLS needs for itself, such as its farewell, are none.
    pub heard: Stamp,
    /// HTTP/2 is spoken on it, not HTTP/1.1.
    pub h2: bool,
}

/// Opens connections to one target.
pub struct Dialer {
    route: Route,
    tls: Option<Arc<ClientConfig>>,
    version: HttpVersion,
    host: String,
    port: u16,
    clock: Clock,
    /// A TLS handshake has begun and none has ended since.
    shaking: AtomicBool,
}

impl Dialer {
    /// A dialer of the target at the end of `route`.
    pub fn new(route: Route, version: HttpVersion, clock: Clock) -> Dialer {
        let (host, port) = host_and_port(&route.uri);
        let tls = route.tls.as_ref().map(|tls| {
            let mut tls = ClientConfig::clone(tls);
            tls.alpn_protocols = offered(version);
            Arc::new(tls)
        });
        Dialer { route, tls, version, host, port, clock, shaking: AtomicBool::new(false) }
    }

    /// Whether the next connection may turn out to be one that several requests can share.
    pub fn may_share(&self) -> bool {
        match (self.version, &self.tls) {
            (HttpVersion::Http2, _) => true,
            (HttpVersion::Auto, Some(_)) => !self.route.http1_agreed(),
            (HttpVersion::Auto, None) | (HttpVersion::Http1, _) => false,
        }
    }

    /// A new connection. Without a bound in time: the caller sets one.
    pub async fn dial(&self) -> Result<Line, Failure> {
        self.shaking.store(false, Ordering::Relaxed);
        let (host, port) = match &self.route.proxy {
            Some(proxy) if proxy.uri.scheme_str() != Some("http") => {
                let why = format!("the proxy {proxy} cannot be used: only proxies by http:// are supported");
                return Err(Failure::new(FailureKind::Connect, why).at("connecting"));
            }
            Some(proxy) => host_and_port(&proxy.uri),
            None => (self.host.clone(), self.port),
        };
        let socket = connect(&host, port).await.map_err(|failure| self.unproxied(failure, (&host, port)))?;
        let (socket, stamp) = Stamped::new(socket, self.clock);
        let socket = match self.route.proxy.as_ref().filter(|_| !self.route.absolute_form(self.version)) {
            Some(proxy) => tunnel::through(socket, proxy, &format!("{}:{}", bracketed(&self.host), self.port)).await?,
            None => socket,
        };
        let Some(tls) = &self.tls else {
            let h2 = self.version == HttpVersion::Http2;
            return Ok(Line { transport: Box::new(socket), heard: stamp.clone(), stamp, h2 });
        };
        self.shaking.store(true, Ordering::Relaxed);
        let session = handshake(tls, (&self.host, self.port), socket).await;
        self.shaking.store(false, Ordering::Relaxed);
        let session = session?;
        let h2 = session.get_ref().1.alpn_protocol() == Some(H2);
        if self.version == HttpVersion::Http2 && !h2 {
            let why = format!("the server did not agree on HTTP/2 (ALPN); {REMEDY}");
            return Err(Failure::new(FailureKind::Tls, why).at("TLS handshake"));
        }
        self.route.agreed(h2);
        let (session, heard) = Stamped::new(session, self.clock);
        Ok(Line { transport: Box::new(session), stamp, heard, h2 })
    }

    /// What may be the reason where a connection took too long: many servers without TLS wait for more than a TLS greeting.
    pub fn doubt(&self) -> String {
        match self.shaking.load(Ordering::Relaxed) {
            true => format!(": if {} does not speak TLS, use http://", authority((&self.host, self.port))),
            false => String::new(),
        }
    }

    /// The failure of a connection to `address`, which names the proxy where it is the proxy's address.
    fn unproxied(&self, failure: Failure, address: (&str, u16)) -> Failure {
        let Some(proxy) = &self.route.proxy else { return failure };
        let why = failure.message.strip_prefix(&format!("{}: ", authority(address))).unwrap_or(&failure.message);
        Failure { message: format!("cannot connect to the proxy {proxy}: {why}"), ..failure }
    }

    /// The failure of a request that got no HTTP back: plain HTTP at a port for TLS is named. The server is asked once per
    /// target.
    pub async fn named(&self, failure: Failure) -> Failure {
        let plain = self.tls.is_none() && self.route.proxy.is_none() && self.version != HttpVersion::Http2;
        let unanswered = matches!(failure.kind, FailureKind::Connect | FailureKind::Decode);
        if !plain || !unanswered || !self.route.speaks_tls(probe::speaks_tls(&self.host, self.port)).await {
            return failure;
        }
        Failure::new(FailureKind::Tls, format!("{} speaks TLS: use https://", authority((&self.host, self.port))))
    }
}

fn offered(version: HttpVersion) -> Vec<Vec<u8>> {
    let names: &[&[u8]] = match version {
        HttpVersion::Auto => &[H2, HTTP_1_1],
        HttpVersion::Http1 => &[HTTP_1_1],
        HttpVersion::Http2 => &[H2],
    };
    names.iter().map(|name| name.to_vec()).collect()
}

/// The host without brackets, and the port that the URI or its scheme names.
pub fn host_and_port(uri: &Uri) -> (String, u16) {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    (host.to_owned(), uri.port_u16().unwrap_or(usual))
}

/// A host as it stands in an authority: an IPv6 address in brackets.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// `HOST:PORT`.
fn authority((host, port): (&str, u16)) -> String {
    format!("{}:{port}", bracketed(host))
}

async fn handshake<T: Transport>(tls: &Arc<ClientConfig>, address: (&str, u16), socket: T) -> Result<TlsStream<T>, Failure> {
    let failed = |why: String| Failure::new(FailureKind::Tls, why).at("TLS handshake");
    let name = ServerName::try_from(address.0.to_owned()).map_err(|error| failed(error.to_string()))?;
    let connecting = TlsConnector::from(tls.clone()).connect(name, socket);
    connecting.await.map_err(|error| failed(in_words(&error, address.0, &authority(address))))
}
