//! One request and its response on a connection: what is stamped, and how each way of failing is told apart.

use crate::body_capture::{Copied, Heads};
use crate::clock::Clock;
use crate::content_encoding::Unpacker;
use crate::counters::Gauges;
use crate::error::EngineError;
pub use crate::exchange::failure::shown_location;
use crate::exchange::failure::{body_failure, redirected, unanswered};
use crate::headers::Address;
use crate::headers::Headers;
use crate::http::late;
use crate::http1::ReadStatus;
use crate::pool::{Lease, Pool};
use crate::retry::retry_after;
use crate::stalls::{Allowance, Moment, Overrun, fired, overrun};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, Version};
use llmscen_core::outcome::{Failure, FailureKind, Finish, ServerTimes, Timeline, Usage};
use llmscen_core::request::Framing;
use llmscen_core::target::Timeouts;
use llmscen_core::units::Nanos;
use llmscen_protocols::{Decoder, Events, Message, Protocol, error_message};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::Sleep;

mod failure;

#[cfg(test)]
pub(super) mod tests;

/// Bytes of an error's body that are read for its words.
const ERROR_BODY: usize = 64 * 1024;
/// Bytes of it that are unpacked at a time.
const ERROR_PIECE: usize = 1024;

/// What all exchanges of one lane with one target have in common.
pub(super) struct TargetContext {
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
pub(super) struct AttemptTrace {
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

impl AttemptTrace {
    /// Begins another attempt, of which nothing has been seen yet.
    pub fn again(&mut self, at: Nanos) {
        let Timeline { intended, sent, .. } = self.timeline;
        let timeline = Timeline { intended, sent, last_sent: Some(at), ..Timeline::default() };
        *self = AttemptTrace { timeline, attempts: self.attempts, reconnects: self.reconnects, ..AttemptTrace::default() };
    }

    /// Whether any of the answer's content may have come.
    pub fn answered(&self, failure: &Failure) -> bool {
        let whole = self.streamed == Some(false) && self.bytes_in > 0;
        !self.timeline.tokens.is_empty() || whole && failure.kind != FailureKind::Empty
    }
}

pub(super) struct Exchange<'a> {
    pub target: &'a TargetContext,
    pub trace: &'a mut AttemptTrace,
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
        let framing = match self.target.protocol.framing(content_type, streamed) {
            Ok(framing) => framing,
            // The page of a login or a proxy, for those who look at it.
            Err(failure) if self.target.keep_bodies => {
                return Err(tokio::select! {
                    biased;
                    _ = Box::pin(self.refusal(lease, response)) => failure,
                    failure = stop => failure,
                });
            }
            Err(failure) => return Err(failure),
        };
        self.trace.streamed = Some(!matches!(framing, Framing::Json));
        let unpacker = Unpacker::of(response.headers())?;
        self.trace.packed = !unpacker.is_plain();
        let decoder = self.target.protocol.decoder(framing, self.target.keep_text);
        let copied = self.target.keep_bodies.then(Copied::default);
        let reading = Reading { unpacker, decoder, events: Events::default(), copied };
        self.receive(lease, reading, stop).await
    }

    /// The response's head. A connection that was used before may turn out to be closed before any byte of an answer: then,
    /// and where a server takes no further stream, the request goes out once more on a new one, and the trace says so.
    async fn send(&mut self, headers: HeaderMap, body: Bytes) -> Result<(Lease, Response<()>), Failure> {
        let mut lease = self.target.pool.lease().await?;
        let mut resent = false;
        loop {
            let before = lease.heard.latest();
            let (began, heard) = (Instant::now(), lease.alone().then(|| lease.stamp.clone()));
            // What others get on the same connection does not break this request's silence.
            let since = || heard.as_ref().map_or(began, |heard| began.max(self.target.clock.instant(heard.latest())));
            let sending = lease.send(self.request(headers.clone(), body.clone(), lease.version()).map_err(unsent)?);
            let sent = tokio::select! {
                biased;
                sent = sending => sent,
                overrun = overrun(&self.target.gauges.stalls, self.target.timeouts.read.into(), since) => return Err(self.silence(overrun)),
            };
            let error = match sent {
                Ok(response) => return Ok((lease, response)),
                Err(error) => error,
            };
            let lost = unanswered(&lease, before, &error);
            if !lost.again || resent {
                // Rare, and large: a call that waits for its tokens must not carry it along.
                return Err(Box::pin(self.target.pool.named(lost.failure)).await);
            }
            (resent, self.trace.reconnects) = (true, self.trace.reconnects + 1);
            drop(lease);
            lease = self.target.pool.lease_fresh().await?;
        }
    }

    fn request(&self, headers: HeaderMap, body: Bytes, version: Version) -> Result<Request<Bytes>, EngineError> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        self.target.address.write(&mut request, version)?;
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
            self.target.pool.give_back(lease);
        }
        let words = match unpacker {
            Ok(unpacker) => {
                let plain = unpacked(unpacker, &packed);
                if self.target.keep_bodies {
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
                _ = overrun(&self.target.gauges.stalls, self.target.timeouts.read.into(), || began) => break,
            };
            match pulled {
                Ok(ReadStatus::End) => {
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
        let limit = Duration::from(self.target.timeouts.read);
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

/// After the protocol's own end marker, how long a call waits for the end of the body before it leaves the connection to
/// a task of its own: the slot must not wait for it.
const TAIL: Duration = Duration::from_millis(2);

/// What the bytes of a body become.
pub(super) struct Reading {
    pub unpacker: Unpacker,
    pub decoder: Box<dyn Decoder>,
    pub events: Events,
    /// The body as it came; None where bodies are not kept.
    pub copied: Option<Copied>,
}

impl Exchange<'_> {
    /// Takes the body to its end, or until `stop` resolves, and gives the connection back where it can be used again.
    pub(super) async fn receive(
        &mut self,
        mut lease: Lease,
        mut reading: Reading,
        stop: Pin<&mut impl Future<Output = Failure>>,
    ) -> Result<Finish, Failure> {
        let (broken, unsettled) = match self.drain(&mut lease, &mut reading, stop).await {
            Ending::Marker => (None, Some(lease)),
            Ending::Body => {
                self.target.pool.give_back(lease);
                (reading.unpacker.finish().err(), None)
            }
            Ending::Broken(failure) => (Some(failure), None),
        };
        let end = self.close(reading, broken);
        // What is known by now stays so: this waits for the connection alone, and nothing cuts it short.
        if let Some(lease) = unsettled {
            self.target.settle(lease).await;
        }
        end
    }

    /// Ends the decoder, whatever ended the body, and notes what the response came to.
    fn close(&mut self, reading: Reading, broken: Option<Failure>) -> Result<Finish, Failure> {
        let Reading { decoder, mut events, copied, .. } = reading;
        self.trace.copied = copied.unwrap_or_default();
        // What the body still held when it ended arrived with its last read.
        let before = events.content;
        let reply = decoder.finish(&mut events, broken);
        self.record(&events, before, self.trace.end);
        self.trace.usage = reply.usage;
        self.trace.silent = reply.end.is_ok() && reply.silent;
        self.trace.response_id = reply.id;
        self.trace.text = reply.text;
        self.trace.message = reply.message;
        self.trace.server = reply.server;
        self.trace.items = reply.items;
        // It grew by doubling, and is kept to the end of the run. A copy is exact; shrinking in place need not free anything.
        self.trace.timeline.tokens = self.trace.timeline.tokens.as_slice().into();
        self.trace.timeline.choices = events.choices;
        self.trace.timeline.weights = events.weights;
        self.trace.timeline.reasoning = events.reasoning;
        reply.end
    }

    async fn drain(
        &mut self,
        lease: &mut Lease,
        reading: &mut Reading,
        mut stop: Pin<&mut impl Future<Output = Failure>>,
    ) -> Ending {
        let (target, alone, stamp) = (self.target, lease.alone(), lease.stamp.clone());
        let mut watch = Watch::new(target.timeouts.read);
        loop {
            // Where others hear from the server on the same connection, only what this request got breaks its silence.
            let own = self.trace.end.max(self.trace.timeline.headers).unwrap_or_default();
            let heard = || if alone { stamp.latest() } else { own };
            let (mut taken, mut before) = (Ok(()), Brought { events: reading.events.content, bytes: 0 });
            let mut take = |data: &[u8]| {
                before.bytes += data.len() as u64;
                if taken.is_ok() {
                    taken = reading.take(data);
                }
            };
            let pulled = tokio::select! {
                biased;
                pulled = lease.pull(&mut take) => pulled,
                overrun = watch.silence(target, heard) => return Ending::Broken(self.silence(overrun)),
                failure = stop.as_mut() => return Ending::Broken(failure),
            };
            let at = stamp.latest();
            self.note(at, reading, before);
            if let Some(copied) = &mut reading.copied {
                copied.mark(at);
            }
            if reading.events.done {
                return Ending::Marker;
            }
            match (taken, pulled) {
                (Err(failure), _) => return Ending::Broken(failure),
                (_, Err(error)) => return Ending::Broken(body_failure(&error)),
                (_, Ok(ReadStatus::End)) => return Ending::Body,
                (_, Ok(ReadStatus::Some)) => {}
                // Other streams of the lane have their turn before the next bytes of this one.
                (_, Ok(ReadStatus::Full)) => tokio::task::yield_now().await,
            }
            if let Some(failure) = self.satisfied() {
                return Ending::Broken(failure);
            }
        }
    }

    /// Why a user who wants no more than some tokens leaves now.
    fn satisfied(&self) -> Option<Failure> {
        let enough = self.enough.filter(|enough| self.trace.timeline.tokens.len() as u64 >= *enough)?;
        Some(Failure::new(FailureKind::Abandoned, format!("its user left: {enough} token events were enough")))
    }

    /// What one read brought: everything in it carries the stamp of that read.
    fn note(&mut self, at: Nanos, reading: &Reading, brought: Brought) {
        if brought.bytes == 0 {
            return;
        }
        if self.trace.end != Some(at) {
            self.trace.reads += 1;
            self.trace.end = Some(at);
        }
        self.trace.bytes_in += brought.bytes;
        if self.trace.streamed == Some(false) {
            self.trace.timeline.first_chunk.get_or_insert(at);
        }
        self.record(&reading.events, brought.events, Some(at));
        self.target.gauges.receive(brought.bytes, u64::from(reading.events.content - brought.events));
    }

    /// Stamps the events that came since there were `before` with content.
    fn record(&mut self, events: &Events, before: u32, at: Option<Nanos>) {
        let Some(at) = at else { return };
        let timeline = &mut self.trace.timeline;
        if events.seen > 0 {
            timeline.first_chunk.get_or_insert(at);
        }
        timeline.tokens.extend(std::iter::repeat_n(at, (events.content - before) as usize));
    }
}

/// What one read brought: the bytes of it, and the events with content that there were before it.
struct Brought {
    events: u32,
    bytes: u64,
}

impl Reading {
    fn take(&mut self, data: &[u8]) -> Result<(), Failure> {
        let Reading { unpacker, decoder, events, copied } = self;
        unpacker.push(data, &mut |plain| {
            if let Some(copied) = copied {
                copied.add(plain);
            }
            decoder.push(plain, events)
        })
    }
}

/// How the body of a response came to its end.
enum Ending {
    /// The protocol's own end marker.
    Marker,
    /// The end of the body.
    Body,
    /// Neither: the transport failed, or the call was given up.
    Broken(Failure),
}

/// The read timeout of a body: one timer for the whole of it, set again only when it fires.
struct Watch {
    allowance: Allowance,
    timer: Pin<Box<Sleep>>,
}

impl Watch {
    fn new(limit: Nanos) -> Watch {
        Watch { allowance: Allowance::new(limit.into()), timer: Box::pin(tokio::time::sleep(limit.into())) }
    }

    /// Resolves when the last bytes were heard the limit ago, without the stalls of the lane since then.
    async fn silence(&mut self, target: &TargetContext, heard: impl Fn() -> Nanos) -> Overrun {
        loop {
            fired(self.timer.as_mut()).await;
            let now = Moment::now();
            match self.allowance.left(&target.gauges.stalls, target.clock.instant(heard()), now) {
                Ok(left) => self.timer.as_mut().reset((now.at + left).into()),
                Err(overrun) => return overrun,
            }
        }
    }
}

impl TargetContext {
    /// After the end marker: waits a moment for the end of the body, so that the connection can carry the next request.
    async fn settle(&self, mut lease: Lease) {
        if lease.is_done() || tokio::time::timeout(TAIL, rest(&mut lease)).await.is_ok_and(|clean| clean) {
            return self.pool.give_back(lease);
        }
        let (pool, limit) = (self.pool.clone(), self.timeouts.read.into());
        tokio::task::spawn_local(async move {
            if tokio::time::timeout(limit, rest(&mut lease)).await.is_ok_and(|clean| clean) {
                pool.give_back(lease);
            }
        });
    }
}

/// Reads a body to its end; false where it breaks.
async fn rest(lease: &mut Lease) -> bool {
    loop {
        match lease.pull(&mut |_| {}).await {
            Ok(ReadStatus::End) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}
