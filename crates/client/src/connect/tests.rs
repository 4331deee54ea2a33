use super::*;
use rustls::pki_types::UnixTime;
use std::time::Instant;
use tokio::net::TcpListener;

#[tokio::test]
async fn a_server_without_tls_is_distinguished_from_a_bad_certificate() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let answer = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        socket
    };
    let route = Route::new(&url, &Default::default(), &Default::default()).unwrap();
    let dialer = Dialer::new(route, HttpVersion::Auto, Clock::new(Instant::now()));
    let (dialled, _socket) = tokio::join!(dialer.dial(), answer);
    let failure = dialled.err().unwrap();
    assert_eq!(failure.kind, FailureKind::Tls);
    let address = listener.local_addr().unwrap();
    assert_eq!(
        failure.message,
        format!("{address} does not support TLS: use http://")
    );
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let route = Route::new(
        &format!("http://{free}/"),
        &Default::default(),
        &Default::default(),
    )
    .unwrap();
    let dialer = Dialer::new(route, HttpVersion::Auto, Clock::new(Instant::now()));
    let failure = dialer.dial().await.err().unwrap();
    assert_eq!(
        (failure.kind, failure.message),
        (FailureKind::Connect, format!("{free}: connection refused"))
    );
}

#[tokio::test]
async fn an_unsupported_proxy_scheme_is_named() {
    for kind in ["https", "socks5"] {
        let env = [(
            "ALL_PROXY".to_owned(),
            format!("{kind}://user:pass@127.0.0.1:1"),
        )]
        .into();
        let route = Route::new("http://llm.example/", &Default::default(), &env).unwrap();
        let failure = Dialer::new(route, HttpVersion::Auto, Clock::new(Instant::now()))
            .dial()
            .await
            .err()
            .unwrap();
        let proxy = format!("{kind}://127.0.0.1:1 (from ALL_PROXY)");
        let message = format!("unsupported proxy {proxy}: only http:// proxies are supported");
        assert_eq!(
            (failure.kind, failure.message),
            (FailureKind::Connect, message)
        );
    }
}

#[tokio::test]
async fn a_dead_proxy_is_named_with_its_variable_and_without_its_password() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let env = [("http_proxy".to_owned(), format!("http://user:p4ss@{free}"))].into();
    let route = Route::new("http://llm.example/", &Default::default(), &env).unwrap();
    let failure = Dialer::new(route, HttpVersion::Auto, Clock::new(Instant::now()))
        .dial()
        .await
        .err()
        .unwrap();
    let message =
        format!("cannot connect to the proxy http://{free} (from http_proxy): connection refused");
    assert_eq!(
        (failure.kind, failure.message),
        (FailureKind::Connect, message)
    );
}

#[tokio::test]
async fn a_proxy_that_refuses_and_keeps_the_connection_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let env = [("HTTPS_PROXY".to_owned(), format!("http://{proxy}"))].into();
    let route = Route::new("https://llm.example/", &Default::default(), &env).unwrap();
    let dialer = Dialer::new(route, HttpVersion::Auto, Clock::new(Instant::now()));
    let answer = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 1024]).await;
        socket
            .write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        socket
    };
    let dialling = tokio::time::timeout(Duration::from_secs(20), dialer.dial());
    let (dialled, _socket) = tokio::join!(dialling, answer);
    let failure = dialled.expect("the refusal ends the wait").err().unwrap();
    let message = format!(
        "the proxy http://{proxy} (from HTTPS_PROXY) refused CONNECT llm.example:443 with status \
         407 Proxy Authentication Required; set NO_PROXY to connect directly"
    );
    assert_eq!(
        (failure.kind, failure.message),
        (FailureKind::Connect, message)
    );
}

fn describe(why: CertificateError) -> String {
    describe_handshake_error(
        &io::Error::other(Error::InvalidCertificate(why)),
        "h.example",
        "h.example:443",
    )
}

#[test]
fn a_server_that_closes_the_connection_is_named() {
    let error = io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof");
    let expected = "h.example:443 closed the connection during the TLS handshake: if it does not \
    support TLS, use http://";
    assert_eq!(
        describe_handshake_error(&error, "h.example", "h.example:443"),
        expected
    );
}

#[test]
fn refused_certificates_have_a_reason_and_a_remedy() {
    let at = |secs| UnixTime::since_unix_epoch(Duration::from_secs(secs));
    let unknown =
        "the certificate of h.example is signed by an unknown authority: set target.tls.ca";
    assert_eq!(describe(CertificateError::UnknownIssuer), unknown);
    let expired =
        "the certificate of h.example has expired: renew it, or check the clock of this host";
    assert_eq!(
        describe(CertificateError::ExpiredContext {
            time: at(9),
            not_after: at(1)
        }),
        expired
    );
    let early = "the certificate of h.example is not valid yet: check the clock of this host";
    assert_eq!(describe(CertificateError::NotValidYet), early);
    let presenting = |presented: &[&str]| {
        let presented = presented.iter().map(|name| (*name).to_owned()).collect();
        describe(CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("h.example").unwrap(),
            presented,
        })
    };
    let other = "the certificate of h.example names a.example, *.b.example, not h.example: use a \
    name of the certificate in target.url";
    assert_eq!(
        presenting(&["DnsName(\"a.example\")", "*.b.example"]),
        other
    );
    assert_eq!(
        presenting(&[]),
        "the certificate of h.example names no host: use a certificate that names h.example"
    );
    assert!(
        describe(CertificateError::BadSignature)
            .starts_with("the certificate of h.example cannot be used: ")
    );
}
