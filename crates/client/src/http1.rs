//! HTTP/1.1 (RFC 9112) on one connection, for the one kind of exchange that is timed here: a request goes out, its response
//! is read where it arrives.
//!
//! A client library hands a body on through a channel, from a task of its own, frame by frame: that costs more than all the
//! rest of an event. Here a socket read is taken apart in place, in a buffer that all connections of a lane share, so that a
//! stream that waits holds no buffer at all.

use crate::connect::Transport;
use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
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

/// Bytes that are read at a time: a few hundred events, and never so many that other streams would wait for long.
const READ: usize = 64 << 10;

/// Interim responses (RFC 9110, section 15.2) before the answer at most: a server that sends them without end answers nothing.
const INTERIM: u32 = 1000;

/// What the connections of a lane read into, one at a time.
#[derive(Clone)]
pub struct Scratch(Rc<RefCell<Box<[u8]>>>);

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch(Rc::new(RefCell::new(vec![0; READ].into_boxed_slice())))
    }
}

/// Why an exchange broke.
#[derive(Debug, Error)]
pub enum Fault {
    /// The other side ended the connection.
    #[error("connection closed before the response was complete")]
    Closed,
    /// The connection failed.
    #[error("connection error: {0}")]
    Io(#[from] io::Error),
    /// What came is no response.
    #[error("{0}")]
    Unreadable(&'static str),
    /// Its body is framed in a way that is not supported, or in two ways at once (RFC 9112, section 6).
    #[error("unsupported framing of the response: {0}")]
    Framing(String),
}

/// What one read brought of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStatus {
    /// Bytes, and there may be more at once.
    Full,
    /// Bytes, all there were.
    Some,
    /// The body has ended.
    End,
}

/// A connection that carries one exchange at a time.
pub struct Connection {
    transport: Box<dyn Transport>,
    scratch: Scratch,
    /// What has not been sent of the request.
    unsent: Option<Unsent>,
    /// What came of a head, and later what came with it of the body.
    early: Vec<u8>,
    framing: Framing,
    /// The other side will take another request.
    keep: bool,
    /// Interim responses to the present request.
    interim: u32,
}

struct Unsent {
    head: Bytes,
    body: Bytes,
    /// Why no more of it can be sent.
    fault: Option<io::Error>,
}

impl Connection {
    /// A connection on which nothing was sent yet.
    pub fn new(transport: Box<dyn Transport>, scratch: Scratch) -> Connection {
        Connection { transport, scratch, unsent: None, early: Vec::new(), framing: Framing::Done, keep: true, interim: 0 }
    }

    /// Whether the last exchange is over, and another one may follow.
    pub fn is_free(&self) -> bool {
        self.keep && self.is_done() && self.early.is_empty() && self.unsent.is_none()
    }

    /// Whether the body of the response has come to its end.
    pub fn is_done(&self) -> bool {
        self.framing == Framing::Done && self.early.is_empty()
    }

    /// Whether the other side still holds a free connection open; what it sends unasked ends that too.
    pub fn is_open(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let scratch = self.scratch.0.clone();
        self.is_free() && poll_read(&mut self.transport, &mut scratch.borrow_mut(), &mut cx).is_pending()
    }

    /// Sends the request and waits for the head of its response. A response may come before the request is all out.
    ///
    /// # Errors
    /// There is no response, or it cannot be read.
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<Response<()>, Fault> {
        let (head, body) = request_head(request);
        (self.keep, self.framing, self.interim) = (false, Framing::Done, 0);
        self.unsent = Some(Unsent { head, body, fault: None });
        poll_fn(|cx| self.poll_head(cx)).await
    }

    /// Hands on what the next read brings of the body, in slices. Nothing is lost where it is given up.
    ///
    /// # Errors
    /// The body broke off. Everything before the fault was handed on.
    pub async fn pull(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<ReadStatus, Fault> {
        poll_fn(|cx| self.poll_body(cx, sink)).await
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, Fault>> {
        self.poll_unsent(cx);
        let scratch = self.scratch.0.clone();
        let mut scratch = scratch.borrow_mut();
        loop {
            let read = match ready!(poll_read(&mut self.transport, &mut scratch, cx)) {
                Ok(0) => return Poll::Ready(Err(self.why(Fault::Closed))),
                Ok(read) => read,
                Err(error) => return Poll::Ready(Err(self.why(Fault::Io(error)))),
            };
            self.early.extend_from_slice(&scratch[..read]);
            let mut read = 0;
            while let Some((head, length)) = response_head(&self.early[read..])? {
                read += length;
                match head {
                    Head::Interim if self.interim == INTERIM => {
                        return Poll::Ready(Err(Fault::Unreadable("more than 1000 interim responses")));
                    }
                    Head::Interim => self.interim += 1,
                    Head::Final { response, framing, keep } => {
                        self.early = self.early.split_off(read);
                        (self.framing, self.keep) = (framing, keep);
                        return Poll::Ready(Ok(response));
                    }
                }
            }
            self.early.drain(..read);
            if self.early.len() > MOST {
                return Poll::Ready(Err(Fault::Unreadable("the head is too large")));
            }
        }
    }

    /// What could not be sent is the reason before what could not be read.
    fn why(&mut self, fault: Fault) -> Fault {
        self.unsent.as_mut().and_then(|unsent| unsent.fault.take()).map_or(fault, Fault::Io)
    }

    /// Sends what can be sent now. A fault waits for what the other side may have said before.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) {
        let Some(unsent) = self.unsent.as_mut().filter(|unsent| unsent.fault.is_none()) else { return };
        match unsent.poll(&mut self.transport, cx) {
            Poll::Ready(Ok(())) => self.unsent = None,
            Poll::Ready(Err(error)) => unsent.fault = Some(error),
            Poll::Pending => {}
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, sink: &mut dyn FnMut(&[u8])) -> Poll<Result<ReadStatus, Fault>> {
        self.poll_unsent(cx);
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            if self.take(&early, sink)? {
                return Poll::Ready(Ok(ReadStatus::Some));
            }
        }
        let scratch = self.scratch.0.clone();
        let mut scratch = scratch.borrow_mut();
        loop {
            if self.framing == Framing::Done {
                return Poll::Ready(Ok(ReadStatus::End));
            }
            let read = match ready!(poll_read(&mut self.transport, &mut scratch, cx))? {
                0 if self.framing == Framing::Close => {
                    self.framing = Framing::Done;
                    return Poll::Ready(Ok(ReadStatus::End));
                }
                0 => return Poll::Ready(Err(Fault::Closed)),
                read => read,
            };
            if self.take(&scratch[..read], sink)? {
                return Poll::Ready(Ok(if read == scratch.len() { ReadStatus::Full } else { ReadStatus::Some }));
            }
        }
    }

    /// Whether there were bytes of the body among these. What follows the body was not asked for.
    fn take(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
        let mut any = false;
        let used = self.framing.take(bytes, &mut |data| {
            any = true;
            sink(data);
        })?;
        self.keep &= used == bytes.len();
        Ok(any)
    }
}

impl Unsent {
    fn poll(&mut self, transport: &mut Box<dyn Transport>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.head.has_remaining() || self.body.has_remaining() {
            let parts = [io::IoSlice::new(&self.head), io::IoSlice::new(&self.body)];
            let parts = if self.head.is_empty() { &parts[1..] } else { &parts[..] };
            let written = ready!(Pin::new(&mut *transport).poll_write_vectored(cx, parts))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = written.min(self.head.len());
            self.head.advance(of_head);
            self.body.advance((written - of_head).min(self.body.len()));
        }
        Pin::new(transport).poll_flush(cx)
    }
}

fn poll_read(transport: &mut Box<dyn Transport>, bytes: &mut [u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(bytes);
    ready!(Pin::new(transport).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Bytes of chunk extensions and trailers of one response, at the most: they mean nothing here.
const EXTRAS: u32 = 16 << 10;

/// What frames a body, and how much of it is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// So many bytes are left; never none.
    Length(u64),
    /// Chunks (RFC 9112, section 7.1).
    Chunked(Place, u32),
    /// The end of the connection ends it.
    Close,
    /// Nothing is left.
    Done,
}

/// Where in a chunked body the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the size of a chunk, after so many digits.
    Size(u64, u8),
    /// After the size, in what may follow it on its line.
    Extension(u64),
    /// At the line feed behind the size.
    SizeEnd(u64),
    /// In the data, of which so many bytes are left.
    Data(u64),
    /// At the line end behind the data.
    DataReturn,
    DataEnd,
    /// At the beginning of a trailer line, and within one.
    Trailer,
    InTrailer,
    /// At the last line feed of all.
    End,
}

impl Framing {
    /// A body of so many bytes.
    pub fn of_length(length: u64) -> Framing {
        if length == 0 { Framing::Done } else { Framing::Length(length) }
    }

    /// A body in chunks.
    pub fn chunked() -> Framing {
        Framing::Chunked(Place::Size(0, 0), 0)
    }

    /// Hands on what of these bytes belongs to the body; how many of them belong to the response.
    ///
    /// # Errors
    /// They are no chunks. Everything before the fault was handed on.
    pub fn take(&mut self, bytes: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<usize, Fault> {
        match *self {
            Framing::Done => Ok(0),
            Framing::Close => {
                sink(bytes);
                Ok(bytes.len())
            }
            Framing::Length(left) => {
                let used = left.min(bytes.len() as u64) as usize;
                sink(&bytes[..used]);
                *self = Framing::of_length(left - used as u64);
                Ok(used)
            }
            Framing::Chunked(mut place, mut extras) => {
                let mut used = 0;
                while let Some((&byte, rest)) = bytes.get(used..).and_then(<[u8]>::split_first) {
                    if let Place::Data(left) = place {
                        let here = left.min(rest.len() as u64 + 1) as usize;
                        sink(&bytes[used..used + here]);
                        used += here;
                        place = if left == here as u64 { Place::DataReturn } else { Place::Data(left - here as u64) };
                        continue;
                    }
                    used += 1;
                    let Some(further) = next(place, byte, &mut extras)? else {
                        *self = Framing::Done;
                        return Ok(used);
                    };
                    place = further;
                }
                *self = Framing::Chunked(place, extras);
                Ok(used)
            }
        }
    }
}

/// The place after a byte that is no data; None: that was the last byte of all.
fn next(place: Place, byte: u8, extras: &mut u32) -> Result<Option<Place>, Fault> {
    let mut extra = |place| {
        *extras += 1;
        if *extras > EXTRAS { Err(Fault::Unreadable("too many chunk extensions or trailers")) } else { Ok(Some(place)) }
    };
    match (place, byte) {
        (Place::Size(size, digits), byte) if byte.is_ascii_hexdigit() => {
            let digit = (byte as char).to_digit(16).unwrap_or_default();
            // Fifteen digits are an exabyte.
            match digits {
                15 => Err(Fault::Unreadable("a chunk's size is too large")),
                _ => Ok(Some(Place::Size(size << 4 | u64::from(digit), digits + 1))),
            }
        }
        (Place::Size(_, 0), _) => Err(Fault::Unreadable("a chunk without its size")),
        (Place::Size(size, _) | Place::Extension(size), b'\r') => Ok(Some(Place::SizeEnd(size))),
        (Place::Size(size, _), b' ' | b'\t' | b';') => extra(Place::Extension(size)),
        (Place::Size(..), _) => Err(Fault::Unreadable("a chunk's size is no number")),
        (Place::Extension(_), b'\n') => Err(Fault::Unreadable("a bare line feed behind a chunk's size")),
        (Place::Extension(size), _) => extra(Place::Extension(size)),
        (Place::SizeEnd(0), b'\n') => Ok(Some(Place::Trailer)),
        (Place::SizeEnd(size), b'\n') => Ok(Some(Place::Data(size))),
        (Place::DataReturn, b'\r') => Ok(Some(Place::DataEnd)),
        (Place::DataEnd, b'\n') => Ok(Some(Place::Size(0, 0))),
        (Place::Trailer, b'\r') => Ok(Some(Place::End)),
        (Place::InTrailer, b'\n') => extra(Place::Trailer),
        (Place::Trailer | Place::InTrailer, _) => extra(Place::InTrailer),
        (Place::End, b'\n') => Ok(None),
        _ => Err(Fault::Unreadable("a chunk without its line end")),
    }
}

/// Bytes of a head at the most, and headers in it.
const MOST: usize = 64 << 10;
const HEADERS: usize = 100;
/// Characters of a transfer coding that an error shows.
const SHOWN: usize = 60;

/// The head of a response.
enum Head {
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
    let _ = write!(head, "content-length: {}\r\n\r\n", body.len());
    (head.into(), body)
}

/// The head at the front of `bytes` and its length; None where it is not complete.
///
/// # Errors
/// It is none.
fn response_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Fault> {
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
