//! One request and its response on a connection: what is stamped, and how each way of failing is told apart.

use crate::engine::clock::Clock;
use crate::engine::gauges::Gauges;
use crate::engine::pool::{Lease, Pool};
use crate::engine::stamp::Stamp;
use crate::model::outcome::{Failure, FailureKind, Finish, ServerTimes, Timeline, Usage};
use crate::model::target::Timeouts;
use crate::model::units::Nanos;
use crate::wire::{Decoder, Events, Message, Protocol, Shape, error_message};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Bytes of an error's body that are read for its words.
const ERROR_BODY: usize = 64 * 1024;
/// After the protocol's own end marker, how long a call waits for the end of the body before it leaves the connection to
/// a task of its own: the slot must not wait for it.
const TAIL: Duration = Duration::from_millis(2);

/// What all exchanges of one lane with one target have in common.
pub(super) struct Line {
    pub protocol: Arc<dyn Protocol>,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub pool: Rc<Pool>,
    pub timeouts: Timeouts,
    pub clock: Clock,
    pub gauges: Arc<Gauges>,
    pub keep_text: bool,
}

/// What has been seen of a call so far; it outlives an exchange that is given up.
#[derive(Default)]
pub(super) struct Trace {
    pub timeline: Timeline,
    pub end: Option<Nanos>,
    pub status: Option<u16>,
    pub reads: u32,
    pub bytes_in: u64,
    pub reconnects: u32,
    pub streamed: Option<bool>,
    pub usage: Usage,
    pub response_id: Option<String>,
    pub text: Option<String>,
    pub message: Option<Message>,
    pub server: ServerTimes,
    pub items: Option<u64>,
}

pub(super) struct Exchange<'a> {
    pub line: &'a Line,
    pub trace: &'a mut Trace,
}

impl Exchange<'_> {
    /// Sends the body and takes the response to its end.
    pub async fn run(&mut self, body: Bytes, streamed: bool) -> Result<Finish, Failure> {
        let (lease, response) = self.send(body).await?;
        self.trace.timeline.headers = Some(lease.stamp.latest());
        self.trace.status = Some(response.status().as_u16());
        if !response.status().is_success() {
            return Err(self.refusal(lease, response).await);
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let shape = self.line.protocol.shape(content_type, streamed)?;
        self.trace.streamed = Some(!matches!(shape, Shape::Whole));
        let decoder = self.line.protocol.decoder(shape, self.line.keep_text);
        self.receive(lease, response.into_body(), decoder).await
    }

    /// The response's head. A kept-alive connection may turn out to be closed before any byte of an answer: then, and
    /// only then, the request goes out once more on a new one, and the trace says so.
    async fn send(&mut self, body: Bytes) -> Result<(Lease, Response<Incoming>), Failure> {
        let mut lease = match self.line.pool.take() {
            Some(lease) => lease,
            None => self.line.pool.open().await?,
        };
        loop {
            let before = lease.heard.latest();
            let sending = lease.sender.send_request(self.request(body.clone()));
            let error = match tokio::time::timeout(self.line.timeouts.read.into(), sending).await {
                Ok(Ok(response)) => return Ok((lease, response)),
                Ok(Err(error)) => error,
                Err(_) => return Err(self.silence()),
            };
            let answered = lease.heard.latest() != before;
            if !lease.reused || answered {
                return Err(send_failure(&error, answered));
            }
            self.trace.reconnects += 1;
            lease = self.line.pool.open().await?;
        }
    }

    fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.line.uri.clone();
        *request.headers_mut() = self.line.headers.clone();
        request
    }

    /// The server's own words of refusal.
    async fn refusal(&mut self, lease: Lease, response: Response<Incoming>) -> Failure {
        let status = response.status().as_u16();
        let retry = retry_after(response.headers());
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        let mut whole = false;
        while bytes.len() < ERROR_BODY {
            match tokio::time::timeout(self.line.timeouts.read.into(), body.frame()).await {
                Ok(Some(Ok(frame))) => bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..])),
                Ok(None) => {
                    whole = true;
                    break;
                }
                Ok(Some(Err(_))) | Err(_) => break,
            }
        }
        self.trace.bytes_in += bytes.len() as u64;
        if whole {
            self.line.pool.give_back(lease);
        }
        let words = error_message(status, &bytes);
        Failure::new(FailureKind::of_status(status), format!("{status}: {words}{retry}"))
    }

    /// Takes the body to its end and gives the connection back where it can be used again.
    async fn receive(&mut self, lease: Lease, mut body: Incoming, mut decoder: Box<dyn Decoder>) -> Result<Finish, Failure> {
        let mut events = Events::default();
        let ending = self.drain(&lease, &mut body, decoder.as_mut(), &mut events).await;
        let broken = match ending {
            Ending::Marker => {
                self.line.settle(lease, body).await;
                None
            }
            Ending::Body => {
                self.line.pool.give_back(lease);
                None
            }
            Ending::Broken(failure) => Some(failure),
        };
        // What the body still held when it ended arrived with its last read.
        let before = events.content;
        let reply = decoder.finish(&mut events, broken);
        self.record(&events, before, self.trace.end);
        self.trace.usage = reply.usage;
        self.trace.response_id = reply.id;
        self.trace.text = reply.text;
        self.trace.message = reply.message;
        self.trace.server = reply.server;
        self.trace.items = reply.items;
        self.trace.timeline.choices = events.choices;
        self.trace.timeline.weights = events.weights;
        reply.end
    }

    async fn drain(&mut self, lease: &Lease, body: &mut Incoming, decoder: &mut dyn Decoder, events: &mut Events) -> Ending {
        let mut watch = Watch::new(self.line.timeouts.read);
        loop {
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = watch.silence(self.line, &lease.stamp) => return Ending::Broken(self.silence()),
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.take(&data, lease.stamp.latest(), decoder, events);
                    }
                }
                Some(Err(error)) => return Ending::Broken(body_failure(&error)),
                None => return Ending::Body,
            }
            if events.done {
                return Ending::Marker;
            }
        }
    }

    /// One body frame: everything in it carries the stamp of the socket read that completed it.
    fn take(&mut self, data: &[u8], at: Nanos, decoder: &mut dyn Decoder, events: &mut Events) {
        if self.trace.end != Some(at) {
            self.trace.reads += 1;
            self.trace.end = Some(at);
        }
        self.trace.bytes_in += data.len() as u64;
        if self.trace.streamed == Some(false) {
            self.trace.timeline.first_chunk.get_or_insert(at);
        }
        let before = events.content;
        decoder.push(data, events);
        self.record(events, before, Some(at));
        self.line.gauges.receive(data.len() as u64, u64::from(events.content - before));
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

    fn silence(&self) -> Failure {
        let limit = Duration::from(self.line.timeouts.read);
        Failure::new(FailureKind::TimeoutRead, format!("no byte for {limit:?}"))
    }
}

/// How the body of a response came to its end.
enum Ending {
    /// The protocol's own end marker.
    Marker,
    /// The end of the body.
    Body,
    /// Neither: the transport failed.
    Broken(Failure),
}

/// The read timeout of a body: one timer for the whole of it, set again only when it fires.
struct Watch {
    limit: Nanos,
    timer: Pin<Box<Sleep>>,
}

impl Watch {
    fn new(limit: Nanos) -> Watch {
        Watch { limit, timer: Box::pin(tokio::time::sleep(limit.into())) }
    }

    /// Resolves when nothing has arrived for the limit.
    async fn silence(&mut self, line: &Line, stamp: &Stamp) {
        loop {
            self.timer.as_mut().await;
            let quiet = line.clock.now().since(stamp.latest());
            if quiet >= self.limit {
                return;
            }
            self.timer.as_mut().reset(Instant::now() + Duration::from(self.limit.since(quiet)));
        }
    }
}

impl Line {
    /// After the end marker: waits a moment for the end of the body, so that the connection can carry the next request.
    async fn settle(&self, lease: Lease, mut body: Incoming) {
        if tokio::time::timeout(TAIL, rest(&mut body)).await.is_ok_and(|clean| clean) {
            return self.pool.give_back(lease);
        }
        let (pool, limit) = (self.pool.clone(), self.timeouts.read.into());
        tokio::task::spawn_local(async move {
            if tokio::time::timeout(limit, rest(&mut body)).await.is_ok_and(|clean| clean) {
                pool.give_back(lease);
            }
        });
    }
}

/// Reads a body to its end; false where it breaks.
async fn rest(body: &mut Incoming) -> bool {
    loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            Some(Err(_)) => return false,
            None => return true,
        }
    }
}

/// Why no response head came.
fn send_failure(error: &hyper::Error, answered: bool) -> Failure {
    let words = chain(error);
    match answered {
        _ if error.is_parse() => Failure::new(FailureKind::Decode, format!("not an HTTP response: {words}")),
        true => Failure::new(FailureKind::Truncated, format!("the connection ended inside the headers: {words}")),
        false => Failure::new(FailureKind::Connect, format!("closed before any byte of an answer: {words}")),
    }
}

fn body_failure(error: &hyper::Error) -> Failure {
    let kind = if error.is_parse() { FailureKind::Decode } else { FailureKind::Truncated };
    Failure::new(kind, format!("the connection broke: {}", chain(error)))
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}

fn retry_after(headers: &HeaderMap) -> String {
    let seconds = headers.get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    seconds.map_or_else(String::new, |value| format!(" (retry-after: {value})"))
}
