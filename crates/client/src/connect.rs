//! Opens connections: DNS, TCP, proxy, TLS. Each step fails with a message of its own.

use crate::arrival::ArrivalSocket;
use crate::clock::{Clock, ReadTimestamp, TimestampedTransport};
use crate::connect::tcp::connect;
use crate::route::{Proxy, Route, authority, host_and_port};
use crate::tls::client_config;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::target::{HttpVersion, Tls};
use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, InvalidMessage,
};
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

/// ALPN names (RFC 7301).
const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";
/// The remedy for a server without HTTP/2.
pub(super) const HTTP2_REMEDY: &str = "set `target.http.version` to `auto`";

/// A connected transport.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Transport for T {}

/// A new connection and the timestamps of its reads.
pub struct OpenConnection {
    /// The connection.
    pub transport: Box<dyn Transport>,
    /// When bytes last arrived on the socket.
    pub socket_read: ReadTimestamp,
    /// When bytes of a response last arrived: records of TLS itself, such as its close alert, do not count.
    pub data_read: ReadTimestamp,
    /// HTTP/2, not HTTP/1.1.
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
    /// The latest TLS handshake has not ended yet.
    handshake_pending: AtomicBool,
}

impl Dialer {
    /// A dialer for the target of `route`.
    pub fn new(route: Route, version: HttpVersion, clock: Clock) -> Dialer {
        let (host, port) = host_and_port(&route.uri);
        let tls = route.tls.as_ref().map(|tls| {
            let mut tls = ClientConfig::clone(tls);
            tls.alpn_protocols = alpn_protocols(version);
            Arc::new(tls)
        });
        Dialer {
            route,
            tls,
            version,
            host,
            port,
            clock,
            handshake_pending: AtomicBool::new(false),
        }
    }

    /// Whether several requests may share the next connection (HTTP/2).
    pub fn may_share(&self) -> bool {
        match (self.version, &self.tls) {
            (HttpVersion::Http2, _) => true,
            (HttpVersion::Auto, Some(_)) => !self.route.http1_agreed(),
            (HttpVersion::Auto, None) | (HttpVersion::Http1, _) => false,
        }
    }

    /// Opens a connection. It sets no time limit; the caller does.
    pub async fn dial(&self) -> Result<OpenConnection, Failure> {
        self.handshake_pending.store(false, Ordering::Relaxed);
        let (host, port) = match &self.route.proxy {
            Some(proxy) if proxy.uri.scheme_str() != Some("http") => {
                let why = format!("unsupported proxy {proxy}: only http:// proxies are supported");
                return Err(Failure::new(FailureKind::Connect, why).at("connecting"));
            }
            Some(proxy) => host_and_port(&proxy.uri),
            None => (self.host.clone(), self.port),
        };
        let socket = connect(&host, port)
            .await
            .map_err(|failure| self.name_proxy(failure, &host, port))?;
        let (socket, socket_read) =
            TimestampedTransport::new(ArrivalSocket::new(socket), self.clock);
        let socket = match self
            .route
            .proxy
            .as_ref()
            .filter(|_| !self.route.absolute_form(self.version))
        {
            Some(proxy) => open_tunnel(socket, proxy, &authority(&self.host, self.port)).await?,
            None => socket,
        };
        let Some(tls) = &self.tls else {
            let h2 = self.version == HttpVersion::Http2;
            return Ok(OpenConnection {
                transport: Box::new(socket),
                data_read: socket_read.clone(),
                socket_read,
                h2,
            });
        };
        self.handshake_pending.store(true, Ordering::Relaxed);
        let session = handshake(tls, &self.host, self.port, socket).await;
        self.handshake_pending.store(false, Ordering::Relaxed);
        let session = session?;
        let h2 = session.get_ref().1.alpn_protocol() == Some(H2);
        if self.version == HttpVersion::Http2 && !h2 {
            let why = format!("the server does not offer HTTP/2 (ALPN); {HTTP2_REMEDY}");
            return Err(Failure::new(FailureKind::Tls, why).at("TLS handshake"));
        }
        self.route.note_alpn(h2);
        let (session, data_read) = TimestampedTransport::new(session, self.clock);
        Ok(OpenConnection {
            transport: Box::new(session),
            socket_read,
            data_read,
            h2,
        })
    }

    /// A hint for a connection that timed out: many servers without TLS wait for more bytes than a TLS client hello.
    pub fn timeout_hint(&self) -> String {
        match self.handshake_pending.load(Ordering::Relaxed) {
            true => format!(
                ": if {} does not support TLS, use http://",
                authority(&self.host, self.port)
            ),
            false => String::new(),
        }
    }

    /// Names the proxy in the failure of a connection to it.
    fn name_proxy(&self, failure: Failure, host: &str, port: u16) -> Failure {
        let Some(proxy) = &self.route.proxy else {
            return failure;
        };
        let why = failure
            .message
            .strip_prefix(&format!("{}: ", authority(host, port)))
            .unwrap_or(&failure.message);
        Failure {
            message: format!("cannot connect to the proxy {proxy}: {why}"),
            ..failure
        }
    }

    /// Explains the failure of a request without an HTTP response when the cause is plain HTTP on a TLS port. The
    /// server is probed once per target.
    pub async fn explain_failure(&self, failure: Failure) -> Failure {
        let plain =
            self.tls.is_none() && self.route.proxy.is_none() && self.version != HttpVersion::Http2;
        let no_response = matches!(failure.kind, FailureKind::Connect | FailureKind::Decode);
        if !plain
            || !no_response
            || !self
                .route
                .speaks_tls(speaks_tls(&self.host, self.port))
                .await
        {
            return failure;
        }
        Failure::new(
            FailureKind::Tls,
            format!(
                "{} uses TLS: use https://",
                authority(&self.host, self.port)
            ),
        )
    }
}

fn alpn_protocols(version: HttpVersion) -> Vec<Vec<u8>> {
    let names: &[&[u8]] = match version {
        HttpVersion::Auto => &[H2, HTTP_1_1],
        HttpVersion::Http1 => &[HTTP_1_1],
        HttpVersion::Http2 => &[H2],
    };
    names.iter().map(|name| name.to_vec()).collect()
}

async fn handshake<T: Transport>(
    tls: &Arc<ClientConfig>,
    host: &str,
    port: u16,
    socket: T,
) -> Result<TlsStream<T>, Failure> {
    let failed = |why: String| Failure::new(FailureKind::Tls, why).at("TLS handshake");
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    let connecting = TlsConnector::from(tls.clone()).connect(name, socket);
    connecting.await.map_err(|error| {
        failed(describe_handshake_error(
            &error,
            host,
            &authority(host, port),
        ))
    })
}

/// Time limit for the first bytes of the server's handshake.
const TLS_PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Content type (alert, handshake) and major version at the front of a TLS record (RFC 8446, section 5.1).
const TLS_RECORDS: [[u8; 2]; 2] = [[21, 3], [22, 3]];

/// Whether the server answers a TLS client hello with TLS. Many TLS servers close the connection without a byte when
/// they get plain HTTP, so only this detects them.
async fn speaks_tls(host: &str, port: u16) -> bool {
    let reply = tokio::time::timeout(TLS_PROBE_TIMEOUT, reply_to_client_hello(host, port)).await;
    reply
        .ok()
        .flatten()
        .is_some_and(|first| TLS_RECORDS.contains(&first))
}

async fn reply_to_client_hello(host: &str, port: u16) -> Option<[u8; 2]> {
    let config = client_config(&Tls {
        insecure: true,
        ..Tls::default()
    })
    .ok()?;
    let mut hello = Vec::new();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    ClientConnection::new(config, name)
        .ok()?
        .write_tls(&mut hello)
        .ok()?;
    let mut socket = connect(host, port).await.ok()?;
    socket.write_all(&hello).await.ok()?;
    let mut first = [0; 2];
    socket.read_exact(&mut first).await.ok()?;
    Some(first)
}

/// Opens a CONNECT tunnel through the proxy at the other end of `socket` to `authority` (RFC 9110, section 9.3.6).
async fn open_tunnel<T: Transport + 'static>(
    socket: T,
    proxy: &Proxy,
    authority: &str,
) -> Result<T, Failure> {
    let refused = |why: String| {
        Failure::new(FailureKind::Connect, format!("the proxy {proxy} {why}")).at("connecting")
    };
    let failed = |error: &dyn std::fmt::Display| refused(format!("failed: {error}"));
    let mut request = Request::connect(authority).header(header::HOST, authority);
    if let Some(auth) = &proxy.auth {
        request = request.header(header::PROXY_AUTHORIZATION, auth);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|error| failed(&error))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed(&error))?;
    let sending = async {
        let status = sender
            .send_request(request)
            .await
            .map_err(|error| failed(&error))?
            .status();
        match status.is_success() {
            true => Ok(()),
            false => Err(refused(format!(
                "refused CONNECT {authority} with status {status}; set NO_PROXY to connect directly"
            ))),
        }
    };
    let forwarding = async {
        connection
            .without_shutdown()
            .await
            .map_err(|error| failed(&error))
    };
    // A proxy that refuses may keep the connection open: the refusal ends the wait.
    let ((), parts) = tokio::try_join!(sending, forwarding)?;
    Ok(parts.io.into_inner())
}

/// Why the TLS handshake with `host` failed. A server without TLS answers with bytes that are not a TLS record.
fn describe_handshake_error(error: &io::Error, host: &str, address: &str) -> String {
    match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>())
    {
        Some(Error::InvalidCertificate(why)) => format!(
            "the certificate of {host} {}",
            describe_certificate_error(why, host)
        ),
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            format!("{address} does not support TLS: use http://")
        }
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            format!("the server supports none of the offered HTTP versions (ALPN); {HTTP2_REMEDY}")
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!(
                "{address} closed the connection during the TLS handshake: if it does not support TLS, use http://"
            )
        }
        _ => error.to_string(),
    }
}

fn describe_certificate_error(why: &CertificateError, host: &str) -> String {
    use CertificateError as Why;
    match why {
        Why::UnknownIssuer => "is signed by an unknown authority: set target.tls.ca".to_owned(),
        Why::Expired | Why::ExpiredContext { .. } => {
            "has expired: renew it, or check the clock of this host".to_owned()
        }
        Why::NotValidYet | Why::NotValidYetContext { .. } => {
            "is not valid yet: check the clock of this host".to_owned()
        }
        Why::NotValidForName => {
            format!("does not name {host}: use a name of the certificate in target.url")
        }
        Why::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!("names no host: use a certificate that names {host}")
        }
        Why::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented.iter().map(|name| dns_name(name)).collect();
            format!(
                "names {}, not {host}: use a name of the certificate in target.url",
                names.join(", ")
            )
        }
        Why::Revoked => "is revoked: renew it".to_owned(),
        // webpki refuses a CA certificate as a server certificate, even if the CA is trusted.
        Why::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "is self-signed as an authority: use a certificate that is not a CA, or set \
            target.tls.insecure: true"
                .to_owned()
        }
        other => format!("cannot be used: {other}"),
    }
}

/// `a.example` of `DnsName("a.example")`, which is how rustls presents it.
fn dns_name(presented: &str) -> &str {
    presented
        .split_once("(\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or(presented, |(name, _)| name)
}
