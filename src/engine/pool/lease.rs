//! A connection, or a place on one, in the hands of a request.

use crate::engine::pool::Traffic;
use crate::engine::pool::shared::Shared;
use crate::engine::stamp::Stamp;
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use std::rc::Rc;

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
    Whole(http1::SendRequest<Full<Bytes>>),
    /// A stream of an HTTP/2 connection.
    Stream(http2::SendRequest<Full<Bytes>>, Place),
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
    pub(super) fn whole(sender: http1::SendRequest<Full<Bytes>>, stamp: Stamp, heard: Stamp) -> Lease {
        Lease { carrier: Carrier::Whole(sender), stamp, heard, reused: false }
    }

    pub(super) fn stream(shared: &Rc<Shared>, traffic: &Rc<Traffic>, reused: bool) -> Lease {
        shared.streams.set(shared.streams.get() + 1);
        let place = Place { shared: shared.clone(), traffic: traffic.clone() };
        let (stamp, heard) = (shared.stamp.clone(), shared.heard.clone());
        Lease { carrier: Carrier::Stream(shared.sender.clone(), place), stamp, heard, reused }
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
            Carrier::Stream(_, place) => place.shared.wire.has_settled(),
        }
    }

    /// Resolves when the server has shown that it speaks the version, or the connection is over.
    pub(super) async fn proof(&self) -> bool {
        let Carrier::Stream(_, Place { shared, traffic }) = &self.carrier else {
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
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match &mut self.carrier {
            Carrier::Whole(sender) => sender.send_request(request).await,
            Carrier::Stream(sender, _) => sender.send_request(request).await,
        }
    }
}
