//! The heads of requests and responses.

use crate::http1::Fault;
use crate::http1::body::Framing;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use std::io::Write;

/// Bytes of a head at the most, and headers in it.
pub const MOST: usize = 64 << 10;
const HEADERS: usize = 100;
/// Characters of a transfer coding that an error shows.
const SHOWN: usize = 60;

/// The head of a response.
pub enum Head {
    /// One that another follows (RFC 9110, section 15.2).
    Interim,
    /// The answer's own.
    Final {
        /// Status and headers.
        response: Response<()>,
        /// How its body is framed.
        framing: Framing,
        /// Another request may follow on the connection.
        keep: bool,
    },
}

/// A request as it is sent: its head, and its body.
pub fn request_head(request: Request<Bytes>) -> (Bytes, Bytes) {
    let (parts, body) = request.into_parts();
    let mut head = Vec::with_capacity(512);
    // Writing to memory cannot fail.
    let _ = write!(head, "{} {} HTTP/1.1\r\n", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    let _ = write!(head, "content-length: {}\r\n\r\n", body.len());
    (head.into(), body)
}

/// The head at the front of `bytes` and its length; None where it is not complete.
///
/// # Errors
/// It is none.
pub fn response_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(Fault::Unreadable(in_words(error))),
    };
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Fault::Unreadable("no status"))?;
    match status {
        StatusCode::SWITCHING_PROTOCOLS => return Err(Fault::Unreadable("the server changes to another protocol")),
        status if status.is_informational() => return Ok(Some((Head::Interim, length))),
        _ => {}
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    let old = parsed.version == Some(0);
    *response.version_mut() = if old { Version::HTTP_10 } else { Version::HTTP_11 };
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| Fault::Unreadable("invalid header name"))?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| Fault::Unreadable("invalid header value"))?;
        response.headers_mut().append(name, value);
    }
    let framing = framing(status, response.headers())?;
    let keep = kept(old, response.headers()) && framing != Framing::Close;
    Ok(Some((Head::Final { response, framing, keep }, length)))
}

fn in_words(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "invalid header name",
        httparse::Error::HeaderValue => "invalid header value",
        httparse::Error::NewLine => "invalid line end in the head",
        httparse::Error::Status => "invalid status line",
        httparse::Error::Token => "invalid token in the head",
        httparse::Error::TooManyHeaders => "more than 100 headers",
        httparse::Error::Version => "invalid HTTP version",
    }
}

/// How the body of a response is framed (RFC 9112, section 6.3).
fn framing(status: StatusCode, headers: &HeaderMap) -> Result<Framing, Fault> {
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Framing::Done);
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return transfer_coding(headers);
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(Framing::Close) };
    let digits = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|text| text.parse().ok()).filter(|_| lengths.all(|other| other == first));
    Ok(Framing::of_length(length.ok_or(Fault::Unreadable("invalid content-length"))?))
}

/// A body with a transfer coding. Only `chunked` is supported, since no request offers another one by `te`. A length beside
/// it means that the two ends may disagree on where the body ends.
fn transfer_coding(headers: &HeaderMap) -> Result<Framing, Fault> {
    let lines = headers.get_all(TRANSFER_ENCODING).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    let codings = lines.collect::<Vec<_>>().join(", ");
    let mut named = codings.split(',').map(str::trim).filter(|coding| !coding.is_empty());
    if !named.next().is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) || named.next().is_some() {
        let shown: String = codings.chars().take(SHOWN).collect();
        return Err(Fault::Framing(format!("`transfer-encoding: {shown}`; only `chunked` is supported")));
    }
    if headers.contains_key(CONTENT_LENGTH) {
        return Err(Fault::Framing("both `transfer-encoding` and `content-length`".to_owned()));
    }
    Ok(Framing::chunked())
}

/// Whether the connection outlives the exchange (RFC 9112, section 9.3).
fn kept(old: bool, headers: &HeaderMap) -> bool {
    let said = |word: &str| {
        let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
    };
    // A server of HTTP/1.0 that codes a transfer does not know what it does.
    let sound = !old || said("keep-alive") && !headers.contains_key(TRANSFER_ENCODING);
    sound && !said("close")
}
