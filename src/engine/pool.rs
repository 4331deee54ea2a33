//! The kept-alive connections of one lane.

use crate::engine::dial::{Dialer, Line};
use crate::engine::stamp::Stamp;
use crate::model::outcome::{Failure, FailureKind};
use crate::model::target::Pool as Policy;
use crate::model::units::Nanos;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;

/// A connection for the use of one request at a time.
pub struct Lease {
    /// Sends a request on it.
    pub sender: SendRequest<Full<Bytes>>,
    /// When bytes last arrived on it.
    pub stamp: Stamp,
    /// When bytes of an answer last arrived on it.
    pub heard: Stamp,
    /// It has carried a request before.
    pub reused: bool,
}

/// Connections that wait for their next request, the most recently used on top.
pub struct Pool {
    idle: RefCell<Vec<Lease>>,
    dialer: Dialer,
    policy: Policy,
    connect_timeout: Nanos,
}

impl Pool {
    /// An empty pool.
    pub fn new(dialer: Dialer, policy: Policy, connect_timeout: Nanos) -> Pool {
        Pool { idle: RefCell::default(), dialer, policy, connect_timeout }
    }

    /// An idle connection that is still open.
    pub fn take(&self) -> Option<Lease> {
        let mut idle = self.idle.borrow_mut();
        std::iter::from_fn(|| idle.pop()).find(|lease| lease.sender.is_ready())
    }

    /// A new connection. Must be called on a lane: the connection becomes a task of its own there.
    pub async fn open(&self) -> Result<Lease, Failure> {
        let limit = self.connect_timeout.into();
        let late = |_| Failure::new(FailureKind::TimeoutConnect, format!("no connection within {limit:?}")).at("connecting");
        let Line { transport, stamp, heard } = tokio::time::timeout(limit, self.dialer.dial()).await.map_err(late)??;
        let shaken = Builder::new().handshake(TokioIo::new(transport)).await;
        let (sender, connection) =
            shaken.map_err(|error| Failure::new(FailureKind::Connect, error.to_string()).at("connecting"))?;
        tokio::task::spawn_local(async move {
            // What ends a connection is seen by the request on it.
            let _ = connection.await;
        });
        Ok(Lease { sender, stamp, heard, reused: false })
    }

    /// Takes a connection back for the next request, where connections are kept and this one is still open.
    pub fn give_back(&self, mut lease: Lease) {
        if self.policy == Policy::KeepAlive && !lease.sender.is_closed() {
            lease.reused = true;
            self.idle.borrow_mut().push(lease);
        }
    }
}
