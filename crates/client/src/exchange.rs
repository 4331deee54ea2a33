//! One request and its response on a connection: what is stamped, and how each way of failing is told apart.

mod body;
mod broken;
mod redirect;

#[cfg(test)]
pub(super) mod tests;

use crate::address::Address;
use crate::body_capture::{Copied, Heads};
use crate::clock::Clock;
use crate::content_encoding::Unpacker;
use crate::counters::Gauges;
use crate::error::EngineError;
use crate::exchange::body::Reading;
use crate::exchange::broken::unanswered;
use crate::exchange::redirect::redirected;
pub use crate::exchange::redirect::shown_location;
use crate::headers::Headers;
use crate::http::late;
use crate::http1::Pulled;
use crate::pool::{Lease, Pool};
use crate::retry::retry_after;
use crate::stalls::{Overrun, overrun};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, Version};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Timeline, Usage};
use llmscen_core::target::Timeouts;
use llmscen_core::units::Nanos;
use llmscen_protocols::{Events, Message, Protocol, Shape, error_message};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Bytes of an error's body that are read for its words.
const ERROR_BODY: usize = 64 * 1024;
/// Bytes of it that are unpacked at a time.
const ERROR_PIECE: usize = 1024;

/// What all exchanges of one lane with one target have in common.
pub(super) struct Line {
    pub protocol: Arc<dyn Protocol>,
    pub address: Address,
    pub headers: Headers,
    pub pool: Rc<Pool>,
    pub timeouts: Timeouts,
    pub clock: Clock,
    pub gauges: Arc<Gauges>,
    pub keep_text: bool,
    pub keep_bodies: bool,
}

/// What has been seen of a call, whether or not its exchange came to a good end.
#[derive(Default)]
pub(super) struct Trace {
    pub timeline: Timeline,
    pub end: Option<Nanos>,
    pub status: Option<u16>,
    pub reads: u32,
    pub bytes_in: u64,
    pub reconnects: u32,
    pub attempts: u32,
    pub request_id: Option<String>,
    /// What a refusal asks to wait before another attempt.
    pub retry_after: Option<Nanos>,
    pub streamed: Option<bool>,
    /// The body is compressed.
    pub packed: bool,
    pub usage: Usage,
    pub response_id: Option<String>,
    pub text: Option<String>,
    /// The reply was complete and had no content.
    pub silent: bool,
    pub message: Option<Message>,
    pub server: ServerTimes,
    pub items: Option<u64>,
    /// The response's body as it came, where bodies are kept.
    pub copied: Copied,
    /// The heads, where bodies are kept.
    pub heads: Option<Heads>,
}

impl Trace {
    /// Begins another attempt, of which nothing has been seen yet.
    pub fn again(&mut self, at: Nanos) {
        let Timeline { intended, sent, .. } = self.timeline;
        let timeline = Timeline { intended, sent, last_sent: Some(at), ..Timeline::default() };
        *self = Trace { timeline, attempts: self.attempts, reconnects: self.reconnects, ..Trace::default() };
    }

    /// Whether any of the answer's content may have come.
    pub fn answered(&self, failure: &Failure) -> bool {
        let whole = self.streamed == Some(false) && self.bytes_in > 0;
        !self.timeline.tokens.is_empty() || whole && failure.kind != FailureKind::Empty
    }
}

pub(super) struct Exchange<'a> {
    pub line: &'a Line,
    pub trace: &'a mut Trace,
    /// Token events after which the user leaves.
    pub enough: Option<u64>,
}

impl Exchange<'_> {
    /// Sends the request and takes the response to its end, or until `stop` resolves: what came before that is read all the
    /// same.
    pub async fn run(
        &mut self,
        headers: HeaderMap,
        body: Bytes,
        streamed: bool,
        mut stop: Pin<&mut impl Future<Output = Failure>>,
    ) -> Result<Finish, Failure> {
        let (lease, response) = tokio::select! {
            biased;
            head = self.send(headers, body) => head?,
            failure = stop.as_mut() => return Err(failure),
        };
        self.trace.timeline.headers = Some(lease.stamp.latest());
        self.trace.status = Some(response.status().as_u16());
        if let Some(heads) = &mut self.trace.heads {
            heads.reply = Some((response.version(), response.status(), response.headers().clone()));
        }
        if !response.status().is_success() {
            return Err(tokio::select! {
                biased;
                failure = Box::pin(self.refusal(lease, response)) => failure,
                failure = stop => failure,
            });
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let shape = match self.line.protocol.shape(content_type, streamed) {
            Ok(shape) => shape,
            // The page of a login or a proxy, for those who look at it.
            Err(failure) if self.line.keep_bodies => {
                return Err(tokio::select! {
                    biased;
                    _ = Box::pin(self.refusal(lease, response)) => failure,
                    failure = stop => failure,
                });
            }
            Err(failure) => return Err(failure),
        };
        self.trace.streamed = Some(!matches!(shape, Shape::Whole));
        let unpacker = Unpacker::of(response.headers())?;
        self.trace.packed = !unpacker.is_plain();
        let decoder = self.line.protocol.decoder(shape, self.line.keep_text);
        let copied = self.line.keep_bodies.then(Copied::default);
        let reading = Reading { unpacker, decoder, events: Events::default(), copied };
        self.receive(lease, reading, stop).await
    }

    /// The response's head. A connection that was used before may turn out to be closed before any byte of an answer: then,
    /// and where a server takes no further stream, the request goes out once more on a new one, and the trace says so.
    async fn send(&mut self, headers: HeaderMap, body: Bytes) -> Result<(Lease, Response<()>), Failure> {
        let mut lease = self.line.pool.lease().await?;
        let mut resent = false;
        loop {
            let before = lease.heard.latest();
            let (began, heard) = (Instant::now(), lease.alone().then(|| lease.stamp.clone()));
            // What others get on the same connection does not break this request's silence.
            let since = || heard.as_ref().map_or(began, |heard| began.max(self.line.clock.instant(heard.latest())));
            let sending = lease.send(self.request(headers.clone(), body.clone(), lease.version()).map_err(unsent)?);
            let sent = tokio::select! {
                biased;
                sent = sending => sent,
                overrun = overrun(&self.line.gauges.stalls, self.line.timeouts.read.into(), since) => return Err(self.silence(overrun)),
            };
            let error = match sent {
                Ok(response) => return Ok((lease, response)),
                Err(error) => error,
            };
            let lost = unanswered(&lease, before, &error);
            if !lost.again || resent {
                // Rare, and large: a call that waits for its tokens must not carry it along.
                return Err(Box::pin(self.line.pool.named(lost.failure)).await);
            }
            (resent, self.trace.reconnects) = (true, self.trace.reconnects + 1);
            drop(lease);
            lease = self.line.pool.lease_fresh().await?;
        }
    }

    fn request(&self, headers: HeaderMap, body: Bytes, version: Version) -> Result<Request<Bytes>, EngineError> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        self.line.address.write(&mut request, version)?;
        Ok(request)
    }

    /// The server's own words of refusal.
    async fn refusal(&mut self, mut lease: Lease, response: Response<()>) -> Failure {
        let status = response.status().as_u16();
        let retry = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        self.trace.retry_after = retry.as_deref().and_then(|value| retry_after(value, SystemTime::now()));
        let retry = retry.map_or_else(String::new, |value| format!(" (retry-after: {value})"));
        let redirected = redirected(&response);
        let unpacker = Unpacker::of(response.headers());
        let (packed, whole) = self.refusing(&mut lease).await;
        if whole {
            self.line.pool.give_back(lease);
        }
        let words = match unpacker {
            Ok(unpacker) => {
                let plain = unpacked(unpacker, &packed);
                if self.line.keep_bodies {
                    self.trace.copied.add(&plain);
                }
                error_message(status, &plain)
            }
            Err(failure) => failure.message,
        };
        let message = match FailureKind::of_status(status) {
            FailureKind::Decode => format!("{status} is not an HTTP status: {words}"),
            _ => format!("{status}: {}{retry}", redirected.unwrap_or(words)),
        };
        Failure::new(FailureKind::of_status(status), message)
    }

    /// The beginning of an error's body, and whether it is all of it.
    async fn refusing(&mut self, lease: &mut Lease) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let mut whole = false;
        while bytes.len() < ERROR_BODY {
            let mut keep = |data: &[u8]| bytes.extend_from_slice(data);
            let began = Instant::now();
            let pulled = tokio::select! {
                biased;
                pulled = lease.pull(&mut keep) => pulled,
                _ = overrun(&self.line.gauges.stalls, self.line.timeouts.read.into(), || began) => break,
            };
            match pulled {
                Ok(Pulled::End) => {
                    whole = true;
                    break;
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.trace.bytes_in += bytes.len() as u64;
        (bytes, whole)
    }

    fn silence(&self, overrun: Overrun) -> Failure {
        let limit = Duration::from(self.line.timeouts.read);
        late(overrun, FailureKind::TimeoutRead, &format!("no byte for {limit:?}"))
    }
}

/// The failure of a request that cannot be written down.
pub(super) fn unsent(error: EngineError) -> Failure {
    Failure::new(FailureKind::Cancelled, error.to_string()).at("before sending")
}

/// What an error's body says; of a broken one, what can be read.
fn unpacked(mut unpacker: Unpacker, packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    // In pieces, for a few bytes may come to many.
    for piece in packed.chunks(ERROR_PIECE) {
        let mut keep = |bytes: &[u8]| plain.extend_from_slice(&bytes[..bytes.len().min(ERROR_BODY - plain.len())]);
        if unpacker.push(piece, &mut keep).is_err() || plain.len() == ERROR_BODY {
            break;
        }
    }
    plain
}
