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
    let dialer = Dialer::new(route, HttpVersion::Auto, Clock::starting(Instant::now()));
    let (dialled, _socket) = tokio::join!(dialer.dial(), answer);
    let failure = dialled.err().unwrap();
    assert_eq!(failure.kind, FailureKind::Tls);
    let address = listener.local_addr().unwrap();
    assert_eq!(failure.message, format!("{address} does not speak TLS: use http://"));
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let route = Route::new(&format!("http://{free}/"), &Default::default(), &Default::default()).unwrap();
    let dialer = Dialer::new(route, HttpVersion::Auto, Clock::starting(Instant::now()));
    let failure = dialer.dial().await.err().unwrap();
    assert_eq!((failure.kind, failure.message), (FailureKind::Connect, format!("{free}: connection refused")));
}

#[tokio::test]
async fn a_proxy_of_another_kind_is_named() {
    for kind in ["https", "socks5"] {
        let env = [("ALL_PROXY".to_owned(), format!("{kind}://user:pass@127.0.0.1:1"))].into();
        let route = Route::new("http://llm.example/", &Default::default(), &env).unwrap();
        let failure = Dialer::new(route, HttpVersion::Auto, Clock::starting(Instant::now())).dial().await.err().unwrap();
        let proxy = format!("{kind}://127.0.0.1:1 (from ALL_PROXY)");
        let message = format!("the proxy {proxy} cannot be used: only proxies by http:// are supported");
        assert_eq!((failure.kind, failure.message), (FailureKind::Connect, message));
    }
}

#[tokio::test]
async fn a_dead_proxy_is_named_with_its_variable_and_without_its_password() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let env = [("http_proxy".to_owned(), format!("http://user:p4ss@{free}"))].into();
    let route = Route::new("http://llm.example/", &Default::default(), &env).unwrap();
    let failure = Dialer::new(route, HttpVersion::Auto, Clock::starting(Instant::now())).dial().await.err().unwrap();
    let message = format!("cannot connect to the proxy http://{free} (from http_proxy): connection refused");
    assert_eq!((failure.kind, failure.message), (FailureKind::Connect, message));
}

#[tokio::test]
async fn a_proxy_that_refuses_and_keeps_the_connection_is_not_waited_for() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let env = [("HTTPS_PROXY".to_owned(), format!("http://{proxy}"))].into();
    let route = Route::new("https://llm.example/", &Default::default(), &env).unwrap();
    let dialer = Dialer::new(route, HttpVersion::Auto, Clock::starting(Instant::now()));
    let answer = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 1024]).await;
        socket.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        socket
    };
    let dialling = tokio::time::timeout(std::time::Duration::from_secs(20), dialer.dial());
    let (dialled, _socket) = tokio::join!(dialling, answer);
    let failure = dialled.expect("the refusal ends the wait").err().unwrap();
    let message = format!(
        "the proxy http://{proxy} (from HTTPS_PROXY): answered 407 Proxy Authentication Required to CONNECT llm.example:443"
    );
    assert_eq!((failure.kind, failure.message), (FailureKind::Connect, message));
}
