//! A minimal HTTP/1.1 server, because fault injection needs the raw socket: reads requests, writes response heads and
//! chunks.

use crate::socket::Socket;
use serde_json::Value;
use std::cell::RefCell;
use std::io;
use std::io::Write;
use std::rc::Rc;

/// Maximum size of request line and headers, bytes.
const MAX_HEAD: usize = 64 << 10;
/// Maximum size of a request body, bytes.
const MAX_BODY: usize = 64 << 20;
/// Maximum number of request headers.
const MAX_HEADERS: usize = 128;
/// The content type of responses that are not streamed.
pub(super) const JSON: &str = "application/json";

/// A complete request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// The path, without the query.
    pub(super) path: String,
    /// The client requests to close the connection after the response.
    pub(super) close: bool,
    /// Names in lower case, and values; values that are not UTF-8 are omitted.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// It is a message on a WebSocket, with the headers of the handshake.
    pub(super) websocket: bool,
    /// The items of the conversation that the server keeps, the reply to this request included.
    pub(super) conversation: Conversation,
}

/// The items of a conversation, shared with the reply that is added to them.
pub(super) type Conversation = Rc<RefCell<Vec<Value>>>;

impl Request {
    /// A header's value, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.trim())
    }
}

/// Why no request could be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The client has disconnected.
    Disconnected,
    /// The request is rejected with this status and message, and the connection is closed.
    Refused(u16, &'static str),
}

impl From<io::Error> for Unread {
    fn from(_: io::Error) -> Unread {
        Unread::Disconnected
    }
}

/// How the length of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// By `content-length`, in bytes.
    Length(usize),
    /// By chunked transfer encoding.
    Chunked,
}

/// The header with which a request goes to the replica of an earlier response.
pub(super) const SESSION_TOKEN: &str = "x-session-token";

/// What the head of a response says besides its content.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct About<'a> {
    /// Response id.
    pub(super) id: Option<&'a str>,
    /// The connection is closed after the response.
    pub(super) close: bool,
    /// The engine that answered, if there are several.
    pub(super) replica: Option<usize>,
}

impl<'a> From<(Option<&'a str>, bool)> for About<'a> {
    fn from((id, close): (Option<&'a str>, bool)) -> About<'a> {
        About {
            id,
            close,
            replica: None,
        }
    }
}

struct Head {
    request: Request,
    framing: Framing,
    /// Size of the head, bytes.
    length: usize,
    expects_continue: bool,
}

/// Reads the next request of a connection; `buffer` has bytes that were read and not used yet.
pub(super) async fn read(socket: &Socket, buffer: &mut Vec<u8>) -> Result<Request, Unread> {
    let head = loop {
        let head = parse(buffer)?;
        if head.as_ref().map_or(buffer.len(), |head| head.length) > MAX_HEAD {
            return Err(Unread::Refused(431, "the request's headers exceed 64 KiB"));
        }
        match head {
            Some(head) => break head,
            None => fill(socket, buffer).await?,
        }
    };
    let Head {
        mut request,
        framing,
        length,
        expects_continue,
    } = head;
    buffer.drain(..length);
    if framing_exceeds(framing) {
        return Err(TOO_LARGE);
    }
    if expects_continue && framing != Framing::Length(0) {
        socket.send(b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    request.body = match framing {
        Framing::Length(length) => read_exactly(socket, buffer, length).await?,
        Framing::Chunked => read_chunks(socket, buffer).await?,
    };
    Ok(request)
}

const TOO_LARGE: Unread = Unread::Refused(413, "the request's body exceeds 64 MiB");

fn framing_exceeds(framing: Framing) -> bool {
    matches!(framing, Framing::Length(length) if length > MAX_BODY)
}

fn parse(buffer: &[u8]) -> Result<Option<Head>, Unread> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Unread::Refused(
                431,
                "the request has more than 128 headers",
            ));
        }
        Err(_) => return Err(Unread::Refused(400, "the request is not HTTP/1.1")),
    };
    if parsed.version != Some(1) {
        return Err(Unread::Refused(505, "the simulator supports HTTP/1.1 only"));
    }
    let path = parsed
        .path
        .unwrap_or("/")
        .split('?')
        .next()
        .unwrap_or("/")
        .to_owned();
    let method = parsed.method.unwrap_or("").to_owned();
    let close = has(parsed.headers, "connection", "close");
    let expects_continue = has(parsed.headers, "expect", "100-continue");
    let framing = framing(parsed.headers)?;
    let text = |header: &httparse::Header<'_>| {
        Some((
            header.name.to_ascii_lowercase(),
            std::str::from_utf8(header.value).ok()?.to_owned(),
        ))
    };
    let headers = parsed.headers.iter().filter_map(text).collect();
    Ok(Some(Head {
        request: Request {
            method,
            path,
            close,
            headers,
            body: Vec::new(),
            websocket: false,
            conversation: Conversation::default(),
        },
        framing,
        length,
        expects_continue,
    }))
}

fn framing(headers: &[httparse::Header<'_>]) -> Result<Framing, Unread> {
    if has(headers, "transfer-encoding", "chunked") {
        return Ok(Framing::Chunked);
    }
    let Some(length) = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
    else {
        return Ok(Framing::Length(0));
    };
    let length = std::str::from_utf8(length.value)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    length
        .map(Framing::Length)
        .ok_or(Unread::Refused(400, "the Content-Length is not a number"))
}

fn has(headers: &[httparse::Header<'_>], name: &str, token: &str) -> bool {
    let is = |item: &[u8]| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes());
    headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case(name))
        .any(|header| header.value.split(|&b| b == b',').any(is))
}

async fn fill(socket: &Socket, buffer: &mut Vec<u8>) -> Result<(), Unread> {
    match socket.read(buffer).await? {
        0 => Err(Unread::Disconnected),
        _ => Ok(()),
    }
}

async fn read_exactly(
    socket: &Socket,
    buffer: &mut Vec<u8>,
    length: usize,
) -> Result<Vec<u8>, Unread> {
    while buffer.len() < length {
        fill(socket, buffer).await?;
    }
    let rest = buffer.split_off(length);
    Ok(std::mem::replace(buffer, rest))
}

async fn read_chunks(socket: &Socket, buffer: &mut Vec<u8>) -> Result<Vec<u8>, Unread> {
    let mut body = Vec::new();
    loop {
        let size = chunk_size(socket, buffer).await?;
        if size == 0 {
            break;
        }
        if body.len() + size > MAX_BODY {
            return Err(TOO_LARGE);
        }
        let chunk = read_exactly(socket, buffer, size + 2).await?;
        body.extend_from_slice(&chunk[..size]);
    }
    // Skip trailers up to the empty line.
    while !line(socket, buffer).await?.is_empty() {}
    Ok(body)
}

async fn chunk_size(socket: &Socket, buffer: &mut Vec<u8>) -> Result<usize, Unread> {
    let mut line = line(socket, buffer).await?;
    line.extend_from_slice(b"\r\n");
    match httparse::parse_chunk_size(&line) {
        // Capped just above the limit, so that `read_chunks` rejects it.
        Ok(httparse::Status::Complete((_, size))) => Ok(size.min(MAX_BODY as u64 + 1) as usize),
        _ => Err(Unread::Refused(400, "the body's chunks are malformed")),
    }
}

/// Reads a line without its end.
async fn line(socket: &Socket, buffer: &mut Vec<u8>) -> Result<Vec<u8>, Unread> {
    loop {
        if let Some(end) = buffer.windows(2).position(|pair| pair == b"\r\n") {
            let line = buffer[..end].to_vec();
            buffer.drain(..end + 2);
            return Ok(line);
        }
        if buffer.len() > MAX_HEAD {
            return Err(Unread::Refused(400, "the body's chunks are malformed"));
        }
        fill(socket, buffer).await?;
    }
}

/// Appends the status line and headers of a response. `about` is the response id, if any, and whether the connection
/// is closed.
pub(super) fn head<'a>(
    to: &mut Vec<u8>,
    status: u16,
    content_type: &str,
    framing: &Framing,
    about: impl Into<About<'a>>,
) {
    let About { id, close, replica } = about.into();
    let framing = match framing {
        Framing::Length(length) => format!("content-length: {length}"),
        Framing::Chunked => "transfer-encoding: chunked".to_owned(),
    };
    let id = id
        .map(|id| format!("x-request-id: {id}\r\n"))
        .unwrap_or_default();
    let replica = replica
        .map(|replica| {
            format!("x-inference-pod: sim-{replica}\r\n{SESSION_TOKEN}: sim-{replica}\r\n")
        })
        .unwrap_or_default();
    let close = if close { "connection: close\r\n" } else { "" };
    let reason = ::http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Fault");
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: {content_type}\r\n{framing}\r\n{id}{replica}{close}\r\n"
    );
    to.extend_from_slice(head.as_bytes());
}

/// Appends a response with a JSON body.
pub(super) fn json<'a>(to: &mut Vec<u8>, status: u16, body: &str, about: impl Into<About<'a>>) {
    head(to, status, JSON, &Framing::Length(body.len()), about);
    to.extend_from_slice(body.as_bytes());
}

/// Appends one HTTP chunk with the concatenated pieces.
pub(super) fn chunk<T: AsRef<[u8]>>(to: &mut Vec<u8>, pieces: &[T]) {
    let length: usize = pieces.iter().map(|piece| piece.as_ref().len()).sum();
    // Writing to a vector cannot fail.
    let _ = write!(to, "{length:x}\r\n");
    pieces
        .iter()
        .for_each(|piece| to.extend_from_slice(piece.as_ref()));
    to.extend_from_slice(b"\r\n");
}

/// Appends a comment of an event stream, which clients must ignore.
pub(super) fn comment(to: &mut Vec<u8>) {
    chunk(to, &[": keep-alive\n\n"]);
}

/// Appends the end of the HTTP body.
pub(super) fn last_chunk(to: &mut Vec<u8>) {
    to.extend_from_slice(b"0\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_its_length_in_hex_and_its_bytes() {
        let mut bytes = Vec::new();
        chunk(&mut bytes, &["data: ", "[DONE]", "\n\n"]);
        last_chunk(&mut bytes);
        assert_eq!(bytes, b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    }
}
