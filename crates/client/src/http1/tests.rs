use super::*;
use http::header::HOST;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

fn pair() -> (DuplexStream, Connection) {
    let (far, near) = tokio::io::duplex(1 << 16);
    (far, Connection::new(Box::new(near), Scratch::default()))
}

fn request(body: &'static [u8]) -> Request<Bytes> {
    Request::post("/v1").header(HOST, "h").body(Bytes::from_static(body)).unwrap()
}

/// What a connection makes of these bytes, which come so many at a time: head and body, or the fault; and whether another
/// request may follow.
async fn answered(bytes: &[u8], step: usize) -> (Result<(u16, String), String>, bool) {
    let (mut far, mut near) = pair();
    let served = async {
        far.read_exact(&mut [0; 52]).await.unwrap();
        for piece in bytes.chunks(step) {
            far.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        far.shutdown().await.unwrap();
    };
    let read = async {
        let response = near.send(request(b"abc")).await?;
        let mut body = Vec::new();
        while near.pull(&mut |data| body.extend_from_slice(data)).await? != ReadStatus::End {}
        Ok::<_, Fault>((response.status().as_u16(), String::from_utf8(body).unwrap()))
    };
    let (_, read) = tokio::join!(served, read);
    (read.map_err(|fault| fault.to_string()), near.is_free())
}

#[tokio::test]
async fn a_request_is_written_as_it_stands() {
    let (mut far, mut near) = pair();
    let mut bytes = [0; 52];
    let sent = tokio::time::timeout(Duration::from_millis(5), near.send(request(b"abc")));
    let (_, read) = tokio::join!(sent, far.read_exact(&mut bytes));
    assert_eq!(String::from_utf8_lossy(&bytes[..read.unwrap()]), "POST /v1 HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc");
}

#[tokio::test]
async fn each_framing_ends_where_it_says() {
    let ok = |body: &str| Ok((200, body.to_owned()));
    for (response, expected, free) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", ok("hello"), true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello and more", ok("hello"), false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: x, Close\r\n\r\nhello", ok("hello"), false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ok(""), true),
        ("HTTP/1.1 200 OK\r\n\r\nto the end", ok("to the end"), false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", ok("hi"), false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nhi", ok("hi"), true),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
            ok("abc0123456789"),
            true,
        ),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: , Chunked,\r\n\r\n1 \r\na\r\n0\r\nx: y\r\nz: \r\n\r\n", ok("a"), true),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            Ok((204, String::new())),
            true,
        ),
    ] {
        for step in [1, 2, 7, 1000] {
            assert_eq!(answered(response.as_bytes(), step).await, (expected.clone(), free), "{response} by {step}");
        }
    }
}

#[tokio::test]
async fn each_way_of_breaking_off_is_told() {
    let closed = "connection closed before the response was complete";
    for (response, expected) in [
        ("", closed),
        ("HTTP/1.1 200", closed),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", closed),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab", closed),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", closed),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n", "a chunk without its line end"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", "a chunk without its size"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1x\r\n", "a chunk's size is no number"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1000000000000000\r\n", "a chunk's size is too large"),
        ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "invalid content-length"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "invalid content-length"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\n", "invalid content-length"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "the server changes to another protocol"),
        ("SSH-2.0-OpenSSH_9.6\r\n", "invalid HTTP version"),
    ] {
        for step in [1, 1000] {
            assert_eq!(answered(response.as_bytes(), step).await, (Err(expected.to_owned()), false), "{response} by {step}");
        }
    }
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(MOST));
    assert_eq!(answered(endless.as_bytes(), 9000).await.0, Err("the head is too large".to_owned()));
    let extras = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;{}\r\na", "x".repeat(20_000));
    assert_eq!(answered(extras.as_bytes(), 9000).await.0, Err("too many chunk extensions or trailers".to_owned()));
}

#[tokio::test]
async fn a_body_is_framed_in_one_known_way() {
    for coding in ["gzip", "identity", "chunked, gzip", "gzip, chunked", "chunked, chunked", "chunked;q=1", "\u{fffd}", ""] {
        let response = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n1\r\na\r\n0\r\n\r\n");
        let why = format!("unsupported framing of the response: `transfer-encoding: {coding}`; only `chunked` is supported");
        assert_eq!(answered(response.as_bytes(), 1000).await.0, Err(why), "{coding}");
    }
    let why = |shown: &str| Err(format!("unsupported framing of the response: {shown}"));
    let twice = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n\r\n";
    let shown = why("`transfer-encoding: chunked, gzip`; only `chunked` is supported");
    assert_eq!(answered(twice.as_bytes(), 1000).await.0, shown);
    let both = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n1\r\na\r\n0\r\n\r\n";
    assert_eq!(answered(both.as_bytes(), 1000).await.0, why("both `transfer-encoding` and `content-length`"));
}

#[tokio::test]
async fn interim_responses_have_an_end() {
    let all = |count: usize| {
        [b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count), b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na".to_vec()].concat()
    };
    assert_eq!(answered(&all(1000), 9000).await, (Ok((200, "a".to_owned())), true));
    assert_eq!(answered(&all(1001), 9000).await.0, Err("more than 1000 interim responses".to_owned()));
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_is_all_out() {
    let (mut far, near) = tokio::io::duplex(64);
    let mut near = Connection::new(Box::new(near), Scratch::default());
    far.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
    let response = near.send(Request::post("/v1").body(vec![b'x'; 1000].into()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 413);
    let mut body = Vec::new();
    assert_eq!(near.pull(&mut |data| body.extend_from_slice(data)).await.unwrap(), ReadStatus::Some);
    assert_eq!((&body[..], near.is_done(), near.is_free()), (&b"no"[..], true, false));
}

#[tokio::test]
async fn a_free_connection_is_open_until_it_is_closed_or_spoken_on() {
    let (far, mut near) = pair();
    assert!(near.is_free() && near.is_open());
    drop(far);
    assert!(near.is_free() && !near.is_open());
    let (mut far, mut near) = pair();
    far.write_all(b"x").await.unwrap();
    assert!(!near.is_open());
}

#[tokio::test]
async fn a_waiting_stream_holds_no_buffer() {
    let (mut far, mut near) = pair();
    far.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n").await.unwrap();
    near.send(request(b"abc")).await.unwrap();
    assert_eq!(near.pull(&mut |_| {}).await.unwrap(), ReadStatus::Some);
    assert!(tokio::time::timeout(Duration::from_millis(5), near.pull(&mut |_| {})).await.is_err());
    assert!(near.unsent.is_none());
    assert_eq!(near.early.capacity(), 0);
}
