//! A connection, or a place on one, in the hands of a request.

use crate::clock::Stamp;
use crate::connect::{OpenConnection, Transport};
use crate::http1::{Connection, Fault, ReadStatus};
use crate::pool::Traffic;
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use thiserror::Error;

/// The right to send one request.
pub struct Lease {
    pub(super) carrier: Carrier,
    /// When bytes last arrived on the connection.
    pub stamp: Stamp,
    /// When bytes of an answer last arrived on it.
    pub heard: Stamp,
    /// It has carried a request before.
    pub reused: bool,
}

pub(super) enum Carrier {
    /// A whole HTTP/1.1 connection.
    Whole(Connection),
    /// A stream of an HTTP/2 connection, and the body on it.
    Stream(http2::SendRequest<Full<Bytes>>, Place, Option<Incoming>),
}

/// Why an exchange broke, in the words of the version that was spoken.
#[derive(Debug, Error)]
pub enum Broken {
    /// HTTP/1.1.
    #[error(transparent)]
    Whole(#[from] Fault),
    /// HTTP/2.
    #[error(transparent)]
    Stream(#[from] hyper::Error),
}

/// A place on a shared connection; free again when dropped.
pub(super) struct Place {
    pub shared: Rc<Shared>,
    traffic: Rc<Traffic>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.streams.set(self.shared.streams.get().saturating_sub(1));
        self.traffic.changed.notify_waiters();
    }
}

impl Lease {
    pub(super) fn whole(connection: Connection, stamp: Stamp, heard: Stamp) -> Lease {
        Lease { carrier: Carrier::Whole(connection), stamp, heard, reused: false }
    }

    pub(super) fn stream(shared: &Rc<Shared>, traffic: &Rc<Traffic>, reused: bool) -> Lease {
        shared.streams.set(shared.streams.get() + 1);
        let place = Place { shared: shared.clone(), traffic: traffic.clone() };
        let (stamp, heard) = (shared.stamp.clone(), shared.heard.clone());
        Lease { carrier: Carrier::Stream(shared.sender.clone(), place, None), stamp, heard, reused }
    }

    /// The HTTP that is spoken.
    pub fn version(&self) -> Version {
        match self.carrier {
            Carrier::Whole(_) => Version::HTTP_11,
            Carrier::Stream(..) => Version::HTTP_2,
        }
    }

    /// Whether what arrives on the connection is for this request alone.
    pub fn alone(&self) -> bool {
        matches!(self.carrier, Carrier::Whole(_))
    }

    /// Whether the server is known to speak the version; of HTTP/1.1 only its answer can tell.
    pub fn proven(&self) -> bool {
        match &self.carrier {
            Carrier::Whole(_) => true,
            Carrier::Stream(_, place, _) => place.shared.wire.has_settled(),
        }
    }

    /// Resolves when the server has shown that it speaks the version, or the connection is over.
    pub(super) async fn proof(&self) -> bool {
        let Carrier::Stream(_, Place { shared, traffic }, _) = &self.carrier else {
            return true;
        };
        loop {
            let change = traffic.changed.notified();
            if shared.wire.has_settled() || shared.is_over() {
                return shared.wire.has_settled();
            }
            change.await;
        }
    }

    /// Sends the request and waits for the head of its response.
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<Response<()>, Broken> {
        match &mut self.carrier {
            Carrier::Whole(connection) => Ok(connection.send(request).await?),
            Carrier::Stream(sender, _, body) => {
                let (head, incoming) = sender.send_request(request.map(Full::new)).await?.into_parts();
                *body = Some(incoming);
                Ok(Response::from_parts(head, ()))
            }
        }
    }

    /// Hands on what arrives next of the response's body, in slices. Nothing is lost where it is given up.
    pub async fn pull(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<ReadStatus, Broken> {
        match &mut self.carrier {
            Carrier::Whole(connection) => Ok(connection.pull(sink).await?),
            Carrier::Stream(_, _, None) => Ok(ReadStatus::End),
            Carrier::Stream(_, _, Some(body)) => match body.frame().await {
                Some(frame) => {
                    if let Some(data) = frame?.data_ref() {
                        sink(data);
                    }
                    Ok(ReadStatus::Some)
                }
                None => Ok(ReadStatus::End),
            },
        }
    }

    /// Whether the response's body is known to have ended.
    pub fn is_done(&self) -> bool {
        matches!(&self.carrier, Carrier::Whole(connection) if connection.is_done())
    }

    /// Whether it is a connection that can carry another request.
    pub(super) fn is_free(&self) -> bool {
        matches!(&self.carrier, Carrier::Whole(connection) if connection.is_free())
    }

    /// Whether it is one that the other side still holds open.
    pub(super) fn is_open(&mut self) -> bool {
        match &mut self.carrier {
            Carrier::Whole(connection) => connection.is_open(),
            Carrier::Stream(..) => false,
        }
    }
}

/// Requests that share a connection at the most, even where the server would take more: its reads are stamped one by one,
/// and 100 is what RFC 9113 (section 6.5.2) asks servers to allow at least.
pub const STREAMS: usize = 100;
/// What may be on its way to this side without its leave, on one stream and on all of a connection: more than a round
/// trip's worth of any answer, so that no stream ever waits for a window.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// Stands for the server's limit until its settings are here. No server can name it.
const UNSETTLED: usize = usize::MAX - 1;

/// hyper's own tasks go where the requests are: the lane's thread.
#[derive(Clone, Copy)]
struct Lane;

impl<F: Future + 'static> Executor<F> for Lane {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(async move { drop(task.await) });
    }
}

type Carrying = http2::Connection<TokioIo<Box<dyn Transport>>, Full<Bytes>, Lane>;

/// A connection that takes several requests at a time. It closes when this and all leases on it are gone.
pub(super) struct Shared {
    pub sender: SendRequest<Full<Bytes>>,
    pub stamp: Stamp,
    pub heard: Stamp,
    /// Its number among the connections of its pool.
    pub number: u64,
    /// Requests on it now.
    pub streams: Cell<usize>,
    pub wire: Rc<Wire>,
}

/// What carries a connection, and knows what its server allows.
pub(super) struct Wire {
    heard: Stamp,
    settled: Cell<bool>,
    /// None: over.
    connection: RefCell<Option<Carrying>>,
}

impl Shared {
    /// Speaks HTTP/2 on a new line. What drives it is a task of its own; `settled` is called when the server's settings
    /// are here, or the connection is over without them.
    pub async fn begin(line: OpenConnection, number: u64, settled: impl FnOnce(&Wire) + 'static) -> hyper::Result<Shared> {
        let shaken = Builder::new(Lane)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(UNSETTLED)
            .handshake(TokioIo::new(line.transport))
            .await;
        let (sender, connection) = shaken?;
        let OpenConnection { stamp, heard, .. } = line;
        let connection = RefCell::new(Some(connection));
        let wire = Rc::new(Wire { heard: heard.clone(), settled: Cell::new(false), connection });
        tokio::task::spawn_local(wire.clone().carry(settled));
        Ok(Shared { sender, stamp, heard, number, streams: Cell::new(0), wire })
    }

    /// Whether it takes no more requests.
    pub fn is_over(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Wire {
    async fn carry(self: Rc<Wire>, settled: impl FnOnce(&Wire)) {
        let over = self.drive();
        tokio::pin!(over);
        let early = tokio::select! {
            () = &mut over => true,
            () = self.settling() => false,
        };
        settled(&self);
        if !early {
            over.await;
        }
    }

    /// Carries the connection to its end. What ends it is seen by the requests on it.
    async fn drive(&self) {
        poll_fn(|cx| match self.connection.borrow_mut().as_mut() {
            Some(connection) => Pin::new(connection).poll(cx).map(drop),
            None => Poll::Ready(()),
        })
        .await;
        self.has_settled();
        // Its requests and its sender learn of the end when it is dropped.
        drop(self.connection.take());
    }

    /// Resolves when the server's settings are here.
    async fn settling(&self) {
        loop {
            let arrival = self.heard.arrival();
            if self.has_settled() {
                return;
            }
            arrival.await;
        }
    }

    /// Whether the server's settings are here, or were before the end: whether it speaks HTTP/2 at all.
    pub fn has_settled(&self) -> bool {
        if !self.settled.get() {
            self.settled.set(self.allowed().is_some_and(|allowed| allowed != UNSETTLED));
        }
        self.settled.get()
    }

    /// Requests that may share it now; none before the server's settings are here.
    pub fn limit(&self) -> usize {
        self.allowed().filter(|allowed| *allowed != UNSETTLED).map_or(0, |allowed| allowed.min(STREAMS))
    }

    fn allowed(&self) -> Option<usize> {
        self.connection.borrow().as_ref().map(http2::Connection::current_max_send_streams)
    }
}
