//! Opens connections: name, TCP, proxy, TLS, each told apart when it fails.

mod connect;
mod tunnel;

#[cfg(test)]
mod tests;

use crate::engine::clock::Clock;
use crate::engine::dial::connect::connect;
use crate::engine::route::Route;
use crate::engine::stamp::{Stamp, Stamped};
use crate::model::outcome::{Failure, FailureKind};
use crate::model::target::HttpVersion;
use http::Uri;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
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
        Dialer { route, tls, version, host, port, clock }
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
        let (host, port) = match &self.route.proxy {
            Some(proxy) if proxy.uri.scheme_str() != Some("http") => {
                let why = format!("proxy {}: only proxies by http:// are spoken to", proxy.uri);
                return Err(Failure::new(FailureKind::Connect, why).at("connecting"));
            }
            Some(proxy) => host_and_port(&proxy.uri),
            None => (self.host.clone(), self.port),
        };
        let (socket, stamp) = Stamped::new(connect(&host, port).await?, self.clock);
        let socket = match self.route.proxy.as_ref().filter(|_| !self.route.absolute_form(self.version)) {
            Some(proxy) => tunnel::through(socket, proxy, &format!("{}:{}", bracketed(&self.host), self.port)).await?,
            None => socket,
        };
        let Some(tls) = &self.tls else {
            let h2 = self.version == HttpVersion::Http2;
            return Ok(Line { transport: Box::new(socket), heard: stamp.clone(), stamp, h2 });
        };
        let session = handshake(tls, &self.host, socket).await?;
        let h2 = session.get_ref().1.alpn_protocol() == Some(H2);
        if self.version == HttpVersion::Http2 && !h2 {
            let why = format!("the server did not agree on HTTP/2 (ALPN); {REMEDY}");
            return Err(Failure::new(FailureKind::Tls, why).at("TLS handshake"));
        }
        self.route.agreed(h2);
        let (session, heard) = Stamped::new(session, self.clock);
        Ok(Line { transport: Box::new(session), stamp, heard, h2 })
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

async fn handshake<T: Transport>(tls: &Arc<ClientConfig>, host: &str, socket: T) -> Result<TlsStream<T>, Failure> {
    let failed = |why: String| Failure::new(FailureKind::Tls, why).at("TLS handshake");
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    TlsConnector::from(tls.clone()).connect(name, socket).await.map_err(|error| failed(in_words(&error)))
}

/// What a person can act on: a server that speaks no TLS answers with bytes that no TLS library can name.
fn in_words(error: &io::Error) -> String {
    use rustls::{AlertDescription, Error, InvalidMessage};
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the server does not speak TLS; is the url http:// instead of https://?".to_owned()
        }
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            format!("the server did not agree on the HTTP version that was offered (ALPN); {REMEDY}")
        }
        _ => error.to_string(),
    }
}
