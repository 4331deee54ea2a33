//! Opens connections: name, TCP, proxy, TLS, each told apart when it fails.

use crate::engine::clock::Clock;
use crate::engine::proxy::Proxy;
use crate::engine::route::Route;
use crate::engine::stamp::{Stamp, Stamped};
use crate::model::outcome::{Failure, FailureKind};
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

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
}

/// Opens connections to one target.
pub struct Dialer {
    route: Route,
    host: String,
    port: u16,
    clock: Clock,
}

impl Dialer {
    /// A dialer of the target at the end of `route`.
    pub fn new(route: Route, clock: Clock) -> Dialer {
        let (host, port) = host_and_port(&route.uri);
        Dialer { route, host, port, clock }
    }

    /// A new connection. Without a bound in time: the caller sets one.
    pub async fn dial(&self) -> Result<Line, Failure> {
        let (host, port) = match &self.route.proxy {
            Some(proxy) => host_and_port(&proxy.uri),
            None => (self.host.clone(), self.port),
        };
        let socket = connect(&host, port).await?;
        let (socket, stamp) = Stamped::new(socket, self.clock);
        let Some(tls) = &self.route.tls else {
            return Ok(Line { transport: Box::new(socket), heard: stamp.clone(), stamp });
        };
        let socket = match &self.route.proxy {
            Some(proxy) => self.tunnel(socket, proxy).await?,
            None => socket,
        };
        let (socket, heard) = Stamped::new(handshake(tls, &self.host, socket).await?, self.clock);
        Ok(Line { transport: Box::new(socket), stamp, heard })
    }

    /// Asks the proxy to pass everything through to the target (RFC 9110, section 9.3.6).
    async fn tunnel(&self, socket: Stamped<TcpStream>, proxy: &Proxy) -> Result<Stamped<TcpStream>, Failure> {
        let refused = |why: String| Failure::new(FailureKind::Connect, format!("proxy {}: {why}", proxy.uri)).at("connecting");
        let authority = format!("{}:{}", self.host, self.port);
        let mut request = Request::connect(&authority).header(header::HOST, &authority);
        if let Some(auth) = &proxy.auth {
            request = request.header(header::PROXY_AUTHORIZATION, auth);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| refused(error.to_string()))?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
        let (mut sender, connection) = shaken.map_err(|error| refused(error.to_string()))?;
        let (response, parts) = tokio::join!(sender.send_request(request), connection.without_shutdown());
        let status = response.map_err(|error| refused(error.to_string()))?.status();
        if !status.is_success() {
            return Err(refused(format!("answered {status} to CONNECT {authority}")));
        }
        Ok(parts.map_err(|error| refused(error.to_string()))?.io.into_inner())
    }
}

/// The host without brackets, and the port that the URI or its scheme names.
pub fn host_and_port(uri: &Uri) -> (String, u16) {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    (host.to_owned(), uri.port_u16().unwrap_or(usual))
}

/// Tries each address of the name in turn; the failure names every one that was tried.
async fn connect(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let failed = |why: String| Failure::new(FailureKind::Connect, why).at("connecting");
    let found = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> = found.map_err(|error| failed(format!("cannot resolve {host}: {error}")))?.collect();
    let mut tried = Vec::new();
    for address in addresses {
        match TcpStream::connect(address).await.and_then(without_delay) {
            Ok(socket) => return Ok(socket),
            Err(error) => tried.push(format!("{address}: {}", plain(&error))),
        }
    }
    Err(failed(if tried.is_empty() { format!("{host} has no address") } else { tried.join("; ") }))
}

fn without_delay(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// An I/O error without the number that the system gives it.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

async fn handshake<T: Transport>(tls: &Arc<ClientConfig>, host: &str, socket: T) -> Result<impl Transport + use<T>, Failure> {
    let failed = |why: String| Failure::new(FailureKind::Tls, why).at("TLS handshake");
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    TlsConnector::from(tls.clone()).connect(name, socket).await.map_err(|error| failed(in_words(&error)))
}

/// What a person can act on: a server that speaks no TLS answers with bytes that no TLS library can name.
fn in_words(error: &io::Error) -> String {
    use rustls::{Error, InvalidMessage};
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the server does not speak TLS; is the url http:// instead of https://?".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn ports_follow_the_scheme() {
        let of = |text: &str| host_and_port(&text.parse().unwrap());
        assert_eq!(of("http://a/x"), ("a".into(), 80));
        assert_eq!(of("https://a/x"), ("a".into(), 443));
        assert_eq!(of("http://[::1]:8000/x"), ("::1".into(), 8000));
    }

    #[tokio::test]
    async fn a_server_without_tls_is_told_from_one_with_a_bad_certificate() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let answer = async {
            use tokio::io::AsyncWriteExt;
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            socket
        };
        let route = Route::new(&url, &Default::default(), &Default::default()).unwrap();
        let dialer = Dialer::new(route, Clock::starting(Instant::now()));
        let (dialled, _socket) = tokio::join!(dialer.dial(), answer);
        let failure = dialled.err().unwrap();
        assert_eq!(failure.kind, FailureKind::Tls);
        assert!(failure.message.contains("http:// instead of https://"), "{}", failure.message);
    }

    #[tokio::test]
    async fn a_refused_connection_names_the_address() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let route = Route::new(&format!("http://{free}/"), &Default::default(), &Default::default()).unwrap();
        let dialer = Dialer::new(route, Clock::starting(Instant::now()));
        let failure = dialer.dial().await.err().unwrap();
        assert_eq!((failure.kind, failure.message), (FailureKind::Connect, format!("{free}: connection refused")));
    }
}
