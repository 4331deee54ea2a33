//! An HTTP/2 connection: several requests share it, each on a stream of its own.

use crate::connect::{Line, Transport};
use crate::read_timestamp::Stamp;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

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

type Carrying = Connection<TokioIo<Box<dyn Transport>>, Full<Bytes>, Lane>;

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
    pub async fn begin(line: Line, number: u64, settled: impl FnOnce(&Wire) + 'static) -> hyper::Result<Shared> {
        let shaken = Builder::new(Lane)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(UNSETTLED)
            .handshake(TokioIo::new(line.transport))
            .await;
        let (sender, connection) = shaken?;
        let Line { stamp, heard, .. } = line;
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
        self.connection.borrow().as_ref().map(Connection::current_max_send_streams)
    }
}
