//! HTTP/1.1 (RFC 9112) on one connection, for the one kind of exchange that is timed here: a request goes out, its response
//! is read where it arrives.
//!
//! A client library hands a body on through a channel, from a task of its own, frame by frame: that costs more than all the
//! rest of an event. Here a socket read is taken apart in place, in a buffer that all connections of a lane share, so that a
//! stream that waits holds no buffer at all.

mod body;
mod head;

#[cfg(test)]
mod tests;

use crate::connect::Transport;
use crate::http1::body::Framing;
use crate::http1::head::{Head, MOST, request_head, response_head};
use bytes::{Buf, Bytes};
use http::{Request, Response};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
pub enum Pulled {
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
    pub async fn pull(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<Pulled, Fault> {
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

    fn poll_body(&mut self, cx: &mut Context<'_>, sink: &mut dyn FnMut(&[u8])) -> Poll<Result<Pulled, Fault>> {
        self.poll_unsent(cx);
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            if self.take(&early, sink)? {
                return Poll::Ready(Ok(Pulled::Some));
            }
        }
        let scratch = self.scratch.0.clone();
        let mut scratch = scratch.borrow_mut();
        loop {
            if self.framing == Framing::Done {
                return Poll::Ready(Ok(Pulled::End));
            }
            let read = match ready!(poll_read(&mut self.transport, &mut scratch, cx))? {
                0 if self.framing == Framing::Close => {
                    self.framing = Framing::Done;
                    return Poll::Ready(Ok(Pulled::End));
                }
                0 => return Poll::Ready(Err(Fault::Closed)),
                read => read,
            };
            if self.take(&scratch[..read], sink)? {
                return Poll::Ready(Ok(if read == scratch.len() { Pulled::Full } else { Pulled::Some }));
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
