//! HTTP/1.1 (RFC 9112) on one connection: send a request, read its response.
//!
//! A client library passes a body frame by frame through a channel from a separate task, which costs more than the
//! rest of an event. Here each socket read is parsed in place, in a buffer that all connections of a worker share, so
//! that a waiting stream holds no buffer.

use crate::connect::Transport;
use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::io::Write;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[cfg(test)]
mod tests;

/// Bytes per socket read: a few hundred events, few enough that other streams do not wait long.
const READ_SIZE: usize = 64 << 10;

/// Interim responses (RFC 9110, section 15.2) that are accepted before the final one.
const MAX_INTERIM: u32 = 1000;

/// The read buffer that all connections of a worker share; one uses it at a time.
#[derive(Clone)]
pub struct ReadBuffer(Rc<RefCell<Box<[u8]>>>);

impl Default for ReadBuffer {
    fn default() -> ReadBuffer {
        ReadBuffer(Rc::new(RefCell::new(vec![0; READ_SIZE].into_boxed_slice())))
    }
}

/// Why an exchange broke.
#[derive(Debug, Error)]
pub enum Http1Error {
    /// The other side ended the connection.
    #[error("connection closed before the response was complete")]
    Closed,
    /// The connection failed.
    #[error("connection error: {0}")]
    Io(#[from] io::Error),
    /// The bytes are not an HTTP response.
    #[error("{0}")]
    Malformed(&'static str),
    /// The framing of the body is unsupported or ambiguous (RFC 9112, section 6).
    #[error("unsupported response framing: {0}")]
    Framing(String),
}

/// Result of reading from a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStatus {
    /// Bytes that filled the read buffer: more may be available already.
    Full,
    /// Bytes; no more are available now.
    Some,
    /// The body has ended.
    End,
}

/// A connection that carries one exchange at a time.
pub struct Connection {
    transport: Box<dyn Transport>,
    buffer: ReadBuffer,
    /// The part of the request that is not sent yet.
    unsent: Option<Unsent>,
    /// Bytes of an incomplete head; then body bytes that arrived with the head.
    early: Vec<u8>,
    framing: Framing,
    /// Another request may follow on this connection.
    keep: bool,
    /// Interim responses to the current request.
    interim: u32,
    /// The current request asks for another protocol.
    upgrades: bool,
}

struct Unsent {
    head: Bytes,
    body: Bytes,
    /// Why sending failed.
    error: Option<io::Error>,
}

impl Connection {
    /// An unused connection.
    pub fn new(transport: Box<dyn Transport>, buffer: ReadBuffer) -> Connection {
        Connection {
            transport,
            buffer,
            unsent: None,
            early: Vec::new(),
            framing: Framing::Done,
            keep: true,
            interim: 0,
            upgrades: false,
        }
    }

    /// The transport, and the bytes that arrived after the response head.
    pub(super) fn into_parts(self) -> (Box<dyn Transport>, Vec<u8>) {
        (self.transport, self.early)
    }

    /// Whether the connection can carry another request.
    pub fn is_free(&self) -> bool {
        self.keep && self.is_done() && self.early.is_empty() && self.unsent.is_none()
    }

    /// Whether the response body is complete.
    pub fn is_done(&self) -> bool {
        self.framing == Framing::Done && self.early.is_empty()
    }

    /// Whether a free connection is still open. Unexpected bytes from the server make it unusable, too.
    pub fn is_open(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let buffer = self.buffer.0.clone();
        self.is_free()
            && poll_read(&mut self.transport, &mut buffer.borrow_mut(), &mut cx).is_pending()
    }

    /// Sends the request and waits for the response head, which may arrive before the request is sent completely.
    /// `on_write` is called just before the first byte is written.
    ///
    /// # Errors
    /// No response, or an invalid one.
    pub async fn send(
        &mut self,
        request: Request<Bytes>,
        on_write: impl FnOnce(),
    ) -> Result<Response<()>, Http1Error> {
        let (head, body) = request_head(request);
        self.keep = false;
        self.framing = Framing::Done;
        self.interim = 0;
        self.unsent = Some(Unsent {
            head,
            body,
            error: None,
        });
        on_write();
        poll_fn(|cx| self.poll_head(cx)).await
    }

    /// Sends a request for another protocol. After a response with status 101, the connection belongs to that protocol.
    ///
    /// # Errors
    /// As of [`Connection::send`].
    pub(super) async fn upgrade(
        &mut self,
        request: Request<Bytes>,
    ) -> Result<Response<()>, Http1Error> {
        self.upgrades = true;
        self.send(request, || {}).await
    }

    /// Passes the body bytes of the next read to `sink`, in slices. Cancelling loses no bytes.
    ///
    /// # Errors
    /// The body broke off. Everything before the fault was passed on.
    pub async fn read_body(
        &mut self,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<ReadStatus, Http1Error> {
        poll_fn(|cx| self.poll_body(cx, sink)).await
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, Http1Error>> {
        self.poll_unsent(cx);
        let buffer = self.buffer.0.clone();
        let mut buffer = buffer.borrow_mut();
        loop {
            let read = match ready!(poll_read(&mut self.transport, &mut buffer, cx)) {
                Ok(0) => return Poll::Ready(Err(self.root_cause(Http1Error::Closed))),
                Ok(read) => read,
                Err(error) => return Poll::Ready(Err(self.root_cause(Http1Error::Io(error)))),
            };
            self.early.extend_from_slice(&buffer[..read]);
            let mut read = 0;
            while let Some((head, length)) = response_head(&self.early[read..], self.upgrades)? {
                read += length;
                match head {
                    Head::Interim if self.interim == MAX_INTERIM => {
                        return Poll::Ready(Err(Http1Error::Malformed(
                            "more than 1000 interim responses",
                        )));
                    }
                    Head::Interim => self.interim += 1,
                    Head::Final {
                        response,
                        framing,
                        keep,
                    } => {
                        self.early = self.early.split_off(read);
                        self.framing = framing;
                        self.keep = keep;
                        return Poll::Ready(Ok(response));
                    }
                }
            }
            self.early.drain(..read);
            if self.early.len() > MAX_HEAD_BYTES {
                return Poll::Ready(Err(Http1Error::Malformed("the head is too large")));
            }
        }
    }

    /// The cause of a failed read: a failed write comes before it.
    fn root_cause(&mut self, error: Http1Error) -> Http1Error {
        self.unsent
            .as_mut()
            .and_then(|unsent| unsent.error.take())
            .map_or(error, Http1Error::Io)
    }

    /// Sends what the socket accepts now. An error is kept for later, since the server may have sent a response
    /// before it.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) {
        let Some(unsent) = self.unsent.as_mut().filter(|unsent| unsent.error.is_none()) else {
            return;
        };
        match unsent.poll(&mut self.transport, cx) {
            Poll::Ready(Ok(())) => self.unsent = None,
            Poll::Ready(Err(error)) => unsent.error = Some(error),
            Poll::Pending => {}
        }
    }

    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Poll<Result<ReadStatus, Http1Error>> {
        self.poll_unsent(cx);
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            if self.take_body(&early, sink)? {
                return Poll::Ready(Ok(ReadStatus::Some));
            }
        }
        let buffer = self.buffer.0.clone();
        let mut buffer = buffer.borrow_mut();
        loop {
            if self.framing == Framing::Done {
                return Poll::Ready(Ok(ReadStatus::End));
            }
            let read = match ready!(poll_read(&mut self.transport, &mut buffer, cx))? {
                0 if self.framing == Framing::Close => {
                    self.framing = Framing::Done;
                    return Poll::Ready(Ok(ReadStatus::End));
                }
                0 => return Poll::Ready(Err(Http1Error::Closed)),
                read => read,
            };
            if self.take_body(&buffer[..read], sink)? {
                return Poll::Ready(Ok(if read == buffer.len() {
                    ReadStatus::Full
                } else {
                    ReadStatus::Some
                }));
            }
        }
    }

    /// Passes on the body bytes of a read, and returns whether there were any. Bytes after the body end the connection.
    fn take_body(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<bool, Http1Error> {
        let mut has_body = false;
        let used = self.framing.take(bytes, &mut |data| {
            has_body = true;
            sink(data);
        })?;
        self.keep &= used == bytes.len();
        Ok(has_body)
    }
}

impl Unsent {
    fn poll(
        &mut self,
        transport: &mut Box<dyn Transport>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.head.has_remaining() || self.body.has_remaining() {
            let parts = [io::IoSlice::new(&self.head), io::IoSlice::new(&self.body)];
            let parts = if self.head.is_empty() {
                &parts[1..]
            } else {
                &parts[..]
            };
            let written = ready!(Pin::new(&mut *transport).poll_write_vectored(cx, parts))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let from_head = written.min(self.head.len());
            self.head.advance(from_head);
            self.body
                .advance((written - from_head).min(self.body.len()));
        }
        Pin::new(transport).poll_flush(cx)
    }
}

fn poll_read(
    transport: &mut Box<dyn Transport>,
    bytes: &mut [u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(bytes);
    ready!(Pin::new(transport).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Bytes of chunk extensions and trailers per response. Both are ignored, and limited.
const MAX_EXTRA_BYTES: u32 = 16 << 10;

/// How a body is framed, and what remains of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// Remaining bytes; never 0.
    Length(u64),
    /// Chunks (RFC 9112, section 7.1), and the bytes of extensions and trailers so far.
    Chunked(ChunkState, u32),
    /// The end of the connection ends the body.
    Close,
    /// The body is complete.
    Done,
}

/// Position of the next byte in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// In a chunk size: its value so far, and the number of digits.
    Size(u64, u8),
    /// In whitespace or extensions after the size.
    Extension(u64),
    /// At the line feed after the size.
    SizeEnd(u64),
    /// In the data: remaining bytes.
    Data(u64),
    /// At the carriage return after the data.
    DataReturn,
    /// At the line feed after the data.
    DataEnd,
    /// At the beginning of a trailer line.
    Trailer,
    /// Within a trailer line.
    InTrailer,
    /// At the final line feed.
    End,
}

impl Framing {
    fn from_length(length: u64) -> Framing {
        if length == 0 {
            Framing::Done
        } else {
            Framing::Length(length)
        }
    }

    /// Passes the body part of `bytes` to `sink`, and returns how many bytes belong to the response.
    ///
    /// # Errors
    /// Invalid chunks. Everything before the fault was passed on.
    fn take(&mut self, bytes: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<usize, Http1Error> {
        match *self {
            Framing::Done => Ok(0),
            Framing::Close => {
                sink(bytes);
                Ok(bytes.len())
            }
            Framing::Length(left) => {
                let used = left.min(bytes.len() as u64) as usize;
                sink(&bytes[..used]);
                *self = Framing::from_length(left - used as u64);
                Ok(used)
            }
            Framing::Chunked(mut state, mut extras) => {
                let mut used = 0;
                while let Some((&byte, rest)) = bytes.get(used..).and_then(<[u8]>::split_first) {
                    if let ChunkState::Data(left) = state {
                        let taken = left.min(rest.len() as u64 + 1) as usize;
                        sink(&bytes[used..used + taken]);
                        used += taken;
                        state = if left == taken as u64 {
                            ChunkState::DataReturn
                        } else {
                            ChunkState::Data(left - taken as u64)
                        };
                        continue;
                    }
                    used += 1;
                    let Some(next) = next_chunk_state(state, byte, &mut extras)? else {
                        *self = Framing::Done;
                        return Ok(used);
                    };
                    state = next;
                }
                *self = Framing::Chunked(state, extras);
                Ok(used)
            }
        }
    }
}

/// The state after a byte outside chunk data; `None` after the last byte of the body.
fn next_chunk_state(
    state: ChunkState,
    byte: u8,
    extras: &mut u32,
) -> Result<Option<ChunkState>, Http1Error> {
    let mut extra = |state| {
        *extras += 1;
        if *extras > MAX_EXTRA_BYTES {
            Err(Http1Error::Malformed(
                "too many chunk extensions or trailers",
            ))
        } else {
            Ok(Some(state))
        }
    };
    match (state, byte) {
        (ChunkState::Size(size, digits), byte) if byte.is_ascii_hexdigit() => {
            let digit = (byte as char).to_digit(16).unwrap_or_default();
            // 15 hexadecimal digits are an exabyte.
            match digits {
                15 => Err(Http1Error::Malformed("a chunk size is too large")),
                _ => Ok(Some(ChunkState::Size(
                    size << 4 | u64::from(digit),
                    digits + 1,
                ))),
            }
        }
        (ChunkState::Size(_, 0), _) => Err(Http1Error::Malformed("a chunk has no size")),
        (ChunkState::Size(size, _) | ChunkState::Extension(size), b'\r') => {
            Ok(Some(ChunkState::SizeEnd(size)))
        }
        (ChunkState::Size(size, _), b' ' | b'\t' | b';') => extra(ChunkState::Extension(size)),
        (ChunkState::Size(..), _) => Err(Http1Error::Malformed("a chunk size is not a number")),
        (ChunkState::Extension(_), b'\n') => Err(Http1Error::Malformed(
            "a chunk size ends with a bare line feed",
        )),
        (ChunkState::Extension(size), _) => extra(ChunkState::Extension(size)),
        (ChunkState::SizeEnd(0), b'\n') => Ok(Some(ChunkState::Trailer)),
        (ChunkState::SizeEnd(size), b'\n') => Ok(Some(ChunkState::Data(size))),
        (ChunkState::DataReturn, b'\r') => Ok(Some(ChunkState::DataEnd)),
        (ChunkState::DataEnd, b'\n') => Ok(Some(ChunkState::Size(0, 0))),
        (ChunkState::Trailer, b'\r') => Ok(Some(ChunkState::End)),
        (ChunkState::InTrailer, b'\n') => extra(ChunkState::Trailer),
        (ChunkState::Trailer | ChunkState::InTrailer, _) => extra(ChunkState::InTrailer),
        (ChunkState::End, b'\n') => Ok(None),
        _ => Err(Http1Error::Malformed("a chunk has no line end")),
    }
}

/// Limits of a response head.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// Characters of a transfer coding that an error shows.
const SHOWN_CHARS: usize = 60;

/// The head of a response.
enum Head {
    /// Another head follows (RFC 9110, section 15.2).
    Interim,
    /// The head of the response itself.
    Final {
        response: Response<()>,
        framing: Framing,
        /// Another request may follow on the connection.
        keep: bool,
    },
}

/// Serializes a request to its head and its body.
fn request_head(request: Request<Bytes>) -> (Bytes, Bytes) {
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
    if parts.headers.contains_key(UPGRADE) {
        head.extend_from_slice(b"\r\n");
    } else {
        let _ = write!(head, "content-length: {}\r\n\r\n", body.len());
    }
    (head.into(), body)
}

/// The head at the front of `bytes` and its length; `None` if it is incomplete.
///
/// # Errors
/// The bytes are not a response head.
fn response_head(bytes: &[u8], upgrades: bool) -> Result<Option<(Head, usize)>, Http1Error> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(Http1Error::Malformed(describe_parse_error(error))),
    };
    let status = parsed
        .code
        .and_then(|code| StatusCode::from_u16(code).ok())
        .ok_or(Http1Error::Malformed("invalid status code"))?;
    match status {
        StatusCode::SWITCHING_PROTOCOLS if !upgrades => {
            return Err(Http1Error::Malformed(
                "the server switched protocols (101), which is not supported",
            ));
        }
        StatusCode::SWITCHING_PROTOCOLS => {}
        status if status.is_informational() => return Ok(Some((Head::Interim, length))),
        _ => {}
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    let is_http10 = parsed.version == Some(0);
    *response.version_mut() = if is_http10 {
        Version::HTTP_10
    } else {
        Version::HTTP_11
    };
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|_| Http1Error::Malformed("invalid header name"))?;
        let value = HeaderValue::from_bytes(header.value)
            .map_err(|_| Http1Error::Malformed("invalid header value"))?;
        response.headers_mut().append(name, value);
    }
    let framing = body_framing(status, response.headers())?;
    let keep = is_persistent(is_http10, response.headers()) && framing != Framing::Close;
    Ok(Some((
        Head::Final {
            response,
            framing,
            keep,
        },
        length,
    )))
}

fn describe_parse_error(error: httparse::Error) -> &'static str {
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
fn body_framing(status: StatusCode, headers: &HeaderMap) -> Result<Framing, Http1Error> {
    if matches!(
        status,
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::SWITCHING_PROTOCOLS
    ) {
        return Ok(Framing::Done);
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return transfer_framing(headers);
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else {
        return Ok(Framing::Close);
    };
    let digits = first
        .to_str()
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits
        .and_then(|text| text.parse().ok())
        .filter(|_| lengths.all(|other| other == first));
    Ok(Framing::from_length(
        length.ok_or(Http1Error::Malformed("invalid content-length"))?,
    ))
}

/// The framing of a body with a transfer coding. Only `chunked` is supported: no request offers another one in `te`. An
/// additional `content-length` is refused, since server and proxies may disagree on the end of such a body.
fn transfer_framing(headers: &HeaderMap) -> Result<Framing, Http1Error> {
    let lines = headers
        .get_all(TRANSFER_ENCODING)
        .iter()
        .map(|line| String::from_utf8_lossy(line.as_bytes()));
    let codings = lines.collect::<Vec<_>>().join(", ");
    let mut named = codings
        .split(',')
        .map(str::trim)
        .filter(|coding| !coding.is_empty());
    if !named
        .next()
        .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        || named.next().is_some()
    {
        let shown: String = codings.chars().take(SHOWN_CHARS).collect();
        return Err(Http1Error::Framing(format!(
            "`transfer-encoding: {shown}`; only `chunked` is supported"
        )));
    }
    if headers.contains_key(CONTENT_LENGTH) {
        return Err(Http1Error::Framing(
            "both `transfer-encoding` and `content-length`".to_owned(),
        ));
    }
    Ok(Framing::Chunked(ChunkState::Size(0, 0), 0))
}

/// Whether the connection persists after the exchange (RFC 9112, section 9.3).
fn is_persistent(is_http10: bool, headers: &HeaderMap) -> bool {
    let has_option = |word: &str| {
        let lines = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|line| line.to_str().ok());
        lines
            .flat_map(|line| line.split(','))
            .any(|option| option.trim().eq_ignore_ascii_case(word))
    };
    // HTTP/1.0 has no transfer codings: a server that sends one is broken.
    let allowed =
        !is_http10 || has_option("keep-alive") && !headers.contains_key(TRANSFER_ENCODING);
    allowed && !has_option("close")
}
