//! Opens connections: name, TCP, proxy, TLS, each told apart when it fails.

use crate::clock::Clock;
use crate::clock::{Stamp, Stamped};
use crate::connect::tcp::connect;
use crate::route::Proxy;
use crate::route::Route;
use crate::tls::client_config;
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::target::{HttpVersion, Tls};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, InvalidMessage};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

mod tcp;

#[cfg(test)]
mod tests;

/// The names of HTTP/2 and HTTP/1.1 in ALPN (RFC 7301).
const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";
/// What to do about a server without HTTP/2.
pub(super) const REMEDY: &str = "set `target.http.version` to `auto`";

/// A connected transport.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Transport for T {}

/// A new connection and what is known of its reads.
pub struct OpenConnection {
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
    pub async fn dial(&self) -> Result<OpenConnection, Failure> {
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
            Some(proxy) => open_tunnel(socket, proxy, &format!("{}:{}", bracketed(&self.host), self.port)).await?,
            None => socket,
        };
        let Some(tls) = &self.tls else {
            let h2 = self.version == HttpVersion::Http2;
            return Ok(OpenConnection { transport: Box::new(socket), heard: stamp.clone(), stamp, h2 });
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
        Ok(OpenConnection { transport: Box::new(session), stamp, heard, h2 })
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
        if !plain || !unanswered || !self.route.speaks_tls(speaks_tls(&self.host, self.port)).await {
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

/// How long the server has for the first bytes of a handshake.
const LIMIT: Duration = Duration::from_secs(1);
/// The first byte of a TLS record that is an alert or a part of a handshake, and its major version (RFC 8446, section 5.1).
const RECORDS: [[u8; 2]; 2] = [[21, 3], [22, 3]];

/// Whether the server answers the beginning of a TLS handshake with TLS. Many close the connection without a byte when they
/// get plain HTTP, so that only this tells.
pub(super) async fn speaks_tls(host: &str, port: u16) -> bool {
    tokio::time::timeout(LIMIT, answered(host, port)).await.ok().flatten().is_some_and(|first| RECORDS.contains(&first))
}

async fn answered(host: &str, port: u16) -> Option<[u8; 2]> {
    let config = client_config(&Tls { insecure: true, ..Tls::default() }).ok()?;
    let mut hello = Vec::new();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    ClientConnection::new(config, name).ok()?.write_tls(&mut hello).ok()?;
    let mut socket = connect(host, port).await.ok()?;
    socket.write_all(&hello).await.ok()?;
    let mut first = [0; 2];
    socket.read_exact(&mut first).await.ok()?;
    Some(first)
}

/// Asks the proxy at the other end of `socket` to pass everything through to `authority` (RFC 9110, section 9.3.6).
pub(super) async fn open_tunnel<T: Transport + 'static>(socket: T, proxy: &Proxy, authority: &str) -> Result<T, Failure> {
    let refused = |why: String| Failure::new(FailureKind::Connect, format!("the proxy {proxy}: {why}")).at("connecting");
    let mut request = Request::connect(authority).header(header::HOST, authority);
    if let Some(auth) = &proxy.auth {
        request = request.header(header::PROXY_AUTHORIZATION, auth);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| refused(error.to_string()))?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
    let (mut sender, connection) = shaken.map_err(|error| refused(error.to_string()))?;
    let sending = async {
        let status = sender.send_request(request).await.map_err(|error| refused(error.to_string()))?.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(refused(format!("answered {status} to CONNECT {authority}"))),
        }
    };
    let passing = async { connection.without_shutdown().await.map_err(|error| refused(error.to_string())) };
    // A proxy that refuses may keep the connection open: the refusal ends the wait.
    let ((), parts) = tokio::try_join!(sending, passing)?;
    Ok(parts.io.into_inner())
}

/// Why the handshake with `host` failed. A server that does not speak TLS answers with bytes that no TLS library can name.
pub(super) fn in_words(error: &io::Error, host: &str, address: &str) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(why)) => format!("the certificate of {host} {}", certificate(why, host)),
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => format!("{address} does not speak TLS: use http://"),
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            format!("the server did not agree on the HTTP version that was offered (ALPN); {REMEDY}")
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("{address} closed the connection during the TLS handshake: if it does not speak TLS, use http://")
        }
        _ => error.to_string(),
    }
}

fn certificate(why: &CertificateError, host: &str) -> String {
    use CertificateError as Why;
    match why {
        Why::UnknownIssuer => "is signed by an unknown authority: set target.tls.ca".to_owned(),
        Why::Expired | Why::ExpiredContext { .. } => "has expired: renew it, or check the clock of this host".to_owned(),
        Why::NotValidYet | Why::NotValidYetContext { .. } => "is not valid yet: check the clock of this host".to_owned(),
        Why::NotValidForName => format!("does not name {host}: use a name of the certificate in target.url"),
        Why::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!("names no host: use one that names {host}")
        }
        Why::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
            format!("names {}, not {host}: use a name of the certificate in target.url", names.join(", "))
        }
        Why::Revoked => "is revoked: renew it".to_owned(),
        // webpki refuses the certificate of an authority as that of a server, even where the authority is trusted.
        Why::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "is self-signed as an authority: use a certificate that is not a CA, or set target.tls.insecure: true".to_owned()
        }
        other => format!("cannot be used: {other}"),
    }
}

/// `DnsName("a.example")` as `a.example`.
fn plain(presented: &str) -> &str {
    presented.split_once("(\"").and_then(|(_, rest)| rest.split_once('"')).map_or(presented, |(name, _)| name)
}

#[cfg(test)]
mod words_tests {
    use super::*;
    use rustls::pki_types::{ServerName, UnixTime};
    use std::time::Duration;

    fn told(why: CertificateError) -> String {
        in_words(&io::Error::other(Error::InvalidCertificate(why)), "h.example", "h.example:443")
    }

    #[test]
    fn a_server_that_hangs_up_is_named() {
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof");
        let words = "h.example:443 closed the connection during the TLS handshake: if it does not speak TLS, use http://";
        assert_eq!(in_words(&error, "h.example", "h.example:443"), words);
    }

    #[test]
    fn certificates_are_refused_in_words() {
        let at = |secs| UnixTime::since_unix_epoch(Duration::from_secs(secs));
        let unknown = "the certificate of h.example is signed by an unknown authority: set target.tls.ca";
        assert_eq!(told(CertificateError::UnknownIssuer), unknown);
        let expired = "the certificate of h.example has expired: renew it, or check the clock of this host";
        assert_eq!(told(CertificateError::ExpiredContext { time: at(9), not_after: at(1) }), expired);
        let early = "the certificate of h.example is not valid yet: check the clock of this host";
        assert_eq!(told(CertificateError::NotValidYet), early);
        let named = |presented: &[&str]| {
            let presented = presented.iter().map(|name| (*name).to_owned()).collect();
            told(CertificateError::NotValidForNameContext { expected: ServerName::try_from("h.example").unwrap(), presented })
        };
        let other = "the certificate of h.example names a.example, *.b.example, not h.example: use a name of the certificate in target.url";
        assert_eq!(named(&["DnsName(\"a.example\")", "*.b.example"]), other);
        assert_eq!(named(&[]), "the certificate of h.example names no host: use one that names h.example");
        assert!(told(CertificateError::BadSignature).starts_with("the certificate of h.example cannot be used: "));
    }
}
