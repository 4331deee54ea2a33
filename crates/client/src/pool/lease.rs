//! A connection, or a place on one, in the hands of a request.

use crate::http1::{Connection, Fault, Pulled};
use crate::pool::Traffic;
use crate::pool::shared::Shared;
use crate::read_timestamp::Stamp;
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use std::rc::Rc;
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
    pub async fn pull(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<Pulled, Broken> {
        match &mut self.carrier {
            Carrier::Whole(connection) => Ok(connection.pull(sink).await?),
            Carrier::Stream(_, _, None) => Ok(Pulled::End),
            Carrier::Stream(_, _, Some(body)) => match body.frame().await {
                Some(frame) => {
                    if let Some(data) = frame?.data_ref() {
                        sink(data);
                    }
                    Ok(Pulled::Some)
                }
                None => Ok(Pulled::End),
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
