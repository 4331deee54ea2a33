use super::*;
use http::header::HOST;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

fn pair() -> (DuplexStream, Connection) {
    let (server, client) = tokio::io::duplex(1 << 16);
    (
        server,
        Connection::new(Box::new(client), ReadBuffer::default()),
    )
}

fn request(body: &'static [u8]) -> Request<Bytes> {
    Request::post("/v1")
        .header(HOST, "h")
        .body(Bytes::from_static(body))
        .unwrap()
}

/// The status and body of a response that arrives in pieces of `step` bytes, or the error; and whether another
/// request may follow.
async fn exchange(bytes: &[u8], step: usize) -> (Result<(u16, String), String>, bool) {
    let (mut server, mut client) = pair();
    let serve = async {
        server.read_exact(&mut [0; 52]).await.unwrap();
        for piece in bytes.chunks(step) {
            server.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        server.shutdown().await.unwrap();
    };
    let call = async {
        let response = client.send(request(b"abc"), || {}).await?;
        let mut body = Vec::new();
        while client
            .read_body(&mut |data| body.extend_from_slice(data))
            .await?
            != ReadStatus::End
        {}
        Ok::<_, Http1Error>((response.status().as_u16(), String::from_utf8(body).unwrap()))
    };
    let (_, result) = tokio::join!(serve, call);
    (result.map_err(|error| error.to_string()), client.is_free())
}

#[tokio::test]
async fn a_request_is_head_and_body_with_its_length() {
    let (mut server, mut client) = pair();
    let mut bytes = [0; 52];
    let sent = tokio::time::timeout(
        Duration::from_millis(5),
        client.send(request(b"abc"), || {}),
    );
    let (_, read) = tokio::join!(sent, server.read_exact(&mut bytes));
    assert_eq!(
        String::from_utf8_lossy(&bytes[..read.unwrap()]),
        "POST /v1 HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc"
    );
}

#[tokio::test]
async fn the_time_of_sending_is_taken_right_before_the_first_byte() {
    let (server, mut client) = pair();
    let server = RefCell::new(server);
    let received = || {
        let mut server = server.borrow_mut();
        let mut cx = Context::from_waker(Waker::noop());
        let mut bytes = [0; 100];
        let mut buffer = ReadBuf::new(&mut bytes);
        let _ = Pin::new(&mut *server).poll_read(&mut cx, &mut buffer);
        buffer.filled().len()
    };
    let mut at_write = Vec::new();
    {
        let sending = client.send(request(b"abc"), || at_write.push(received()));
        let mut sending = std::pin::pin!(sending);
        assert_eq!(received(), 0, "nothing is sent before the first poll");
        let mut cx = Context::from_waker(Waker::noop());
        assert!(sending.as_mut().poll(&mut cx).is_pending());
        assert_eq!(received(), 52, "the first poll sends all of it");
        assert!(sending.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(at_write, [0], "once, and before the first byte");
}

#[tokio::test]
async fn each_framing_ends_the_body() {
    let ok = |body: &str| Ok((200, body.to_owned()));
    for (response, expected, free) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            ok("hello"),
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello and more",
            ok("hello"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: x, Close\r\n\r\nhello",
            ok("hello"),
            false,
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ok(""), true),
        ("HTTP/1.1 200 OK\r\n\r\nto the end", ok("to the end"), false),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
            ok("hi"),
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nhi",
            ok("hi"),
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
            ok("abc0123456789"),
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: , Chunked,\r\n\r\n1 \r\na\r\n0\r\nx: y\r\nz: \r\n\r\n",
            ok("a"),
            true,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            Ok((204, String::new())),
            true,
        ),
    ] {
        for step in [1, 2, 7, 1000] {
            assert_eq!(
                exchange(response.as_bytes(), step).await,
                (expected.clone(), free),
                "{response} by {step}"
            );
        }
    }
}

#[tokio::test]
async fn each_malformed_response_is_described() {
    let closed = "connection closed before the response was complete";
    for (response, expected) in [
        ("", closed),
        ("HTTP/1.1 200", closed),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", closed),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab",
            closed,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            closed,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n",
            "a chunk has no line end",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
            "a chunk has no size",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1x\r\n",
            "a chunk size is not a number",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1000000000000000\r\n",
            "a chunk size is too large",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "invalid content-length",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "invalid content-length",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\n",
            "invalid content-length",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "the server switched protocols (101), which is not supported",
        ),
        ("SSH-2.0-OpenSSH_9.6\r\n", "invalid HTTP version"),
    ] {
        for step in [1, 1000] {
            assert_eq!(
                exchange(response.as_bytes(), step).await,
                (Err(expected.to_owned()), false),
                "{response} by {step}"
            );
        }
    }
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(MAX_HEAD_BYTES));
    assert_eq!(
        exchange(endless.as_bytes(), 9000).await.0,
        Err("the head is too large".to_owned())
    );
    let extras = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;{}\r\na",
        "x".repeat(20_000)
    );
    assert_eq!(
        exchange(extras.as_bytes(), 9000).await.0,
        Err("too many chunk extensions or trailers".to_owned())
    );
}

#[tokio::test]
async fn unsupported_and_ambiguous_framings_are_refused() {
    for coding in [
        "gzip",
        "identity",
        "chunked, gzip",
        "gzip, chunked",
        "chunked, chunked",
        "chunked;q=1",
        "\u{fffd}",
        "",
    ] {
        let response =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n1\r\na\r\n0\r\n\r\n");
        let why = format!(
            "unsupported response framing: `transfer-encoding: {coding}`; only `chunked` is supported"
        );
        assert_eq!(
            exchange(response.as_bytes(), 1000).await.0,
            Err(why),
            "{coding}"
        );
    }
    let why = |shown: &str| Err(format!("unsupported response framing: {shown}"));
    let twice = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n\r\n";
    let shown = why("`transfer-encoding: chunked, gzip`; only `chunked` is supported");
    assert_eq!(exchange(twice.as_bytes(), 1000).await.0, shown);
    let both = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n1\r\na\r\n0\r\n\r\n";
    assert_eq!(
        exchange(both.as_bytes(), 1000).await.0,
        why("both `transfer-encoding` and `content-length`")
    );
}

#[tokio::test]
async fn interim_responses_are_limited() {
    let responses = |count: usize| {
        [
            b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count),
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na".to_vec(),
        ]
        .concat()
    };
    assert_eq!(
        exchange(&responses(1000), 9000).await,
        (Ok((200, "a".to_owned())), true)
    );
    assert_eq!(
        exchange(&responses(1001), 9000).await.0,
        Err("more than 1000 interim responses".to_owned())
    );
}

#[tokio::test]
async fn a_response_may_arrive_before_the_request_is_sent() {
    let (mut server, client) = tokio::io::duplex(64);
    let mut client = Connection::new(Box::new(client), ReadBuffer::default());
    server
        .write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        .await
        .unwrap();
    let response = client
        .send(
            Request::post("/v1").body(vec![b'x'; 1000].into()).unwrap(),
            || {},
        )
        .await
        .unwrap();
    assert_eq!(response.status(), 413);
    let mut body = Vec::new();
    assert_eq!(
        client
            .read_body(&mut |data| body.extend_from_slice(data))
            .await
            .unwrap(),
        ReadStatus::Some
    );
    assert_eq!(
        (&body[..], client.is_done(), client.is_free()),
        (&b"no"[..], true, false)
    );
}

#[tokio::test]
async fn a_free_connection_is_open_until_the_server_closes_it_or_sends() {
    let (server, mut client) = pair();
    assert!(client.is_free() && client.is_open());
    drop(server);
    assert!(client.is_free() && !client.is_open());
    let (mut server, mut client) = pair();
    server.write_all(b"x").await.unwrap();
    assert!(!client.is_open());
}

#[tokio::test]
async fn a_waiting_stream_holds_no_buffer() {
    let (mut server, mut client) = pair();
    server
        .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        .await
        .unwrap();
    client.send(request(b"abc"), || {}).await.unwrap();
    assert_eq!(
        client.read_body(&mut |_| {}).await.unwrap(),
        ReadStatus::Some
    );
    assert!(
        tokio::time::timeout(Duration::from_millis(5), client.read_body(&mut |_| {}))
            .await
            .is_err()
    );
    assert!(client.unsent.is_none());
    assert_eq!(client.early.capacity(), 0);
}
