//! A lease: the connection, or the stream of a shared connection, that one request uses.

use crate::clock::ReadTimestamp;
use crate::connect::{OpenConnection, Transport};
use crate::http1::{Connection, Http1Error, ReadStatus};
use crate::websocket::{WebSocket, WebSocketError};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
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
use tokio::sync::Notify;

/// The right to send one request on a connection.
pub struct Lease {
    pub(super) carrier: Carrier,
    /// When bytes last arrived on the socket.
    pub socket_read: ReadTimestamp,
    /// When bytes of a response last arrived.
    pub data_read: ReadTimestamp,
    /// The connection has carried a request before.
    pub reused: bool,
}

pub(super) enum Carrier {
    /// A connection that no other request uses.
    Http1(Connection),
    /// A WebSocket that no other request uses.
    WebSocket(Box<WebSocket>),
    /// The response of a server that refused to open a WebSocket.
    Refused(Box<(Connection, Response<()>)>),
    /// A stream of a shared connection, and the response body on it.
    Http2 {
        sender: SendRequest<Full<Bytes>>,
        slot: StreamSlot,
        body: Option<Incoming>,
    },
}

/// Why an exchange failed.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// HTTP/1.1.
    #[error(transparent)]
    Http1(#[from] Http1Error),
    /// WebSocket.
    #[error(transparent)]
    WebSocket(#[from] WebSocketError),
    /// HTTP/2.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

/// A stream of a shared connection; released when dropped.
pub(super) struct StreamSlot {
    pub connection: Rc<SharedConnection>,
    /// Notified when the stream is released or the settings of the server arrive.
    changed: Rc<Notify>,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.connection
            .streams
            .set(self.connection.streams.get().saturating_sub(1));
        self.changed.notify_waiters();
    }
}

impl Lease {
    pub(super) fn http2(
        connection: &Rc<SharedConnection>,
        changed: &Rc<Notify>,
        reused: bool,
    ) -> Lease {
        connection.streams.set(connection.streams.get() + 1);
        let slot = StreamSlot {
            connection: connection.clone(),
            changed: changed.clone(),
        };
        Lease {
            carrier: Carrier::Http2 {
                sender: connection.sender.clone(),
                slot,
                body: None,
            },
            socket_read: connection.socket_read.clone(),
            data_read: connection.data_read.clone(),
            reused,
        }
    }

    /// The HTTP version.
    pub fn version(&self) -> Version {
        match self.carrier {
            Carrier::Http2 { .. } => Version::HTTP_2,
            _ => Version::HTTP_11,
        }
    }

    /// Whether all bytes on the connection are for this request.
    pub fn is_exclusive(&self) -> bool {
        !matches!(self.carrier, Carrier::Http2 { .. })
    }

    /// Whether each read is a message of a WebSocket.
    pub fn reads_messages(&self) -> bool {
        matches!(self.carrier, Carrier::WebSocket(_))
    }

    /// Whether the server refused to open a WebSocket.
    pub fn is_refused(&self) -> bool {
        matches!(self.carrier, Carrier::Refused(..))
    }

    /// The headers with which the WebSocket was opened.
    pub fn handshake(&self) -> Option<&HeaderMap> {
        match &self.carrier {
            Carrier::WebSocket(socket) => Some(&socket.sent),
            _ => None,
        }
    }

    /// Whether the server has confirmed the HTTP version; only a response confirms HTTP/1.1, so that is assumed.
    pub fn is_version_confirmed(&self) -> bool {
        match &self.carrier {
            Carrier::Http2 { slot, .. } => slot.connection.driver.has_settings(),
            _ => true,
        }
    }

    /// Waits until the server has confirmed the version or the connection has ended; whether it was confirmed.
    pub(super) async fn confirm_version(&self) -> bool {
        let Carrier::Http2 {
            slot: StreamSlot {
                connection,
                changed,
            },
            ..
        } = &self.carrier
        else {
            return true;
        };
        loop {
            let change = changed.notified();
            if connection.driver.has_settings() || connection.is_closed() {
                return connection.driver.has_settings();
            }
            change.await;
        }
    }

    /// Sends the request and waits for the response head. `on_write` is called just before it is written.
    pub async fn send(
        &mut self,
        request: Request<Bytes>,
        on_write: impl FnOnce(),
    ) -> Result<Response<()>, ExchangeError> {
        match &mut self.carrier {
            Carrier::Http1(connection) => Ok(connection.send(request, on_write).await?),
            Carrier::WebSocket(socket) => {
                // Boxed, so that requests over HTTP do not hold this future.
                Box::pin(socket.send(request.into_body(), on_write)).await?;
                Ok(socket.response.clone())
            }
            Carrier::Refused(refused) => Ok(refused.1.clone()),
            Carrier::Http2 { sender, body, .. } => {
                on_write();
                let (head, incoming) = sender
                    .send_request(request.map(Full::new))
                    .await?
                    .into_parts();
                *body = Some(incoming);
                Ok(Response::from_parts(head, ()))
            }
        }
    }

    /// Passes the next bytes of the response body to `sink`, in slices. Cancelling loses no bytes.
    pub async fn read_body(
        &mut self,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<ReadStatus, ExchangeError> {
        match &mut self.carrier {
            Carrier::Http1(connection) => Ok(connection.read_body(sink).await?),
            Carrier::Refused(refused) => Ok(Box::pin(refused.0.read_body(sink)).await?),
            Carrier::WebSocket(socket) => {
                Box::pin(socket.read(sink)).await?;
                Ok(ReadStatus::Some)
            }
            Carrier::Http2 { body: None, .. } => Ok(ReadStatus::End),
            Carrier::Http2 {
                body: Some(body), ..
            } => match body.frame().await {
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

    /// Whether the response body is known to be complete.
    pub fn is_done(&self) -> bool {
        match &self.carrier {
            Carrier::Http1(connection) => connection.is_done(),
            // After the last message of a response, nothing of it follows.
            Carrier::WebSocket(_) => true,
            Carrier::Refused(..) | Carrier::Http2 { .. } => false,
        }
    }

    /// Whether the connection can be returned to the pool for another request.
    pub(super) fn is_free(&self) -> bool {
        match &self.carrier {
            Carrier::Http1(connection) => connection.is_free(),
            Carrier::WebSocket(_) => true,
            Carrier::Refused(..) | Carrier::Http2 { .. } => false,
        }
    }

    /// Whether the server still keeps the idle connection open.
    pub(super) fn is_open(&mut self) -> bool {
        match &mut self.carrier {
            Carrier::Http1(connection) => connection.is_open(),
            Carrier::WebSocket(socket) => socket.is_open(),
            Carrier::Refused(..) | Carrier::Http2 { .. } => false,
        }
    }

    /// Begins a time without a request.
    pub(super) fn start_idle(&mut self) {
        if let Carrier::WebSocket(socket) = &mut self.carrier {
            socket.start_idle();
        }
    }
}

/// Requests that share a connection at most, even if the server allows more: too many streams per read blur their
/// timestamps, and RFC 9113 (section 6.5.2) recommends that servers allow at least 100.
pub const STREAMS: usize = 100;
/// Flow-control windows: more than any response sends per round trip, so that no stream waits for a window update.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// Stream limit before the server's settings arrive: a value that no server can send.
const NO_SETTINGS: usize = usize::MAX - 1;

/// Runs hyper's tasks on the thread of the requests.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(async move { drop(task.await) });
    }
}

type Http2Connection = http2::Connection<TokioIo<Box<dyn Transport>>, Full<Bytes>, LocalExecutor>;

/// An HTTP/2 connection. It closes when this and all leases on it are dropped.
pub(super) struct SharedConnection {
    pub sender: SendRequest<Full<Bytes>>,
    pub socket_read: ReadTimestamp,
    pub data_read: ReadTimestamp,
    /// Sequence number among the connections of its pool.
    pub number: u64,
    /// Current requests.
    pub streams: Cell<usize>,
    pub driver: Rc<Http2Driver>,
}

/// Drives the I/O of an HTTP/2 connection, and reads the limits of its server.
pub(super) struct Http2Driver {
    data_read: ReadTimestamp,
    settings_arrived: Cell<bool>,
    /// `None` after its end.
    connection: RefCell<Option<Http2Connection>>,
}

impl SharedConnection {
    /// Starts HTTP/2 on a new connection, driven by a separate task. `on_settings` is called when the server's
    /// settings arrive or the connection ends without them.
    pub async fn start(
        open: OpenConnection,
        number: u64,
        on_settings: impl FnOnce(&Http2Driver) + 'static,
    ) -> hyper::Result<SharedConnection> {
        let OpenConnection {
            transport,
            socket_read,
            data_read,
            ..
        } = open;
        let (sender, connection) = Builder::new(LocalExecutor)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(NO_SETTINGS)
            .handshake(TokioIo::new(transport))
            .await?;
        let driver = Rc::new(Http2Driver {
            data_read: data_read.clone(),
            settings_arrived: Cell::new(false),
            connection: RefCell::new(Some(connection)),
        });
        tokio::task::spawn_local(driver.clone().run(on_settings));
        Ok(SharedConnection {
            sender,
            socket_read,
            data_read,
            number,
            streams: Cell::new(0),
            driver,
        })
    }

    /// Whether it accepts no more requests.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Http2Driver {
    async fn run(self: Rc<Http2Driver>, on_settings: impl FnOnce(&Http2Driver)) {
        let drive = self.drive();
        tokio::pin!(drive);
        let ended = tokio::select! {
            () = &mut drive => true,
            () = self.wait_for_settings() => false,
        };
        on_settings(&self);
        if !ended {
            drive.await;
        }
    }

    /// Drives the connection to its end. Its requests see the cause.
    async fn drive(&self) {
        poll_fn(|cx| match self.connection.borrow_mut().as_mut() {
            Some(connection) => Pin::new(connection).poll(cx).map(drop),
            None => Poll::Ready(()),
        })
        .await;
        // Remembered, since the limit cannot be read from a dropped connection.
        self.has_settings();
        // Dropping the connection notifies its requests and its sender.
        drop(self.connection.take());
    }

    async fn wait_for_settings(&self) {
        loop {
            let arrival = self.data_read.arrival();
            if self.has_settings() {
                return;
            }
            arrival.await;
        }
    }

    /// Whether the server's settings have arrived, which proves that it supports HTTP/2.
    pub fn has_settings(&self) -> bool {
        if !self.settings_arrived.get() {
            self.settings_arrived.set(
                self.max_streams()
                    .is_some_and(|streams| streams != NO_SETTINGS),
            );
        }
        self.settings_arrived.get()
    }

    /// Requests that may share the connection now; 0 before the server's settings arrive.
    pub fn limit(&self) -> usize {
        self.max_streams()
            .filter(|streams| *streams != NO_SETTINGS)
            .map_or(0, |streams| streams.min(STREAMS))
    }

    fn max_streams(&self) -> Option<usize> {
        self.connection
            .borrow()
            .as_ref()
            .map(http2::Connection::current_max_send_streams)
    }
}
