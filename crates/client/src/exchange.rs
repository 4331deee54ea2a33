//! One request and its response on a connection: timestamps, and the kind of each failure.

use crate::ClientError;
use crate::audio::AudioReceiver;
use crate::body_capture::{CapturedBody, CapturedHeads};
use crate::clock::Clock;
use crate::content_encoding::ContentDecoder;
use crate::counters::LiveCounters;
pub use crate::exchange::failure::redact_location;
use crate::exchange::failure::{body_failure, classify_no_response, describe_redirect};
use crate::headers::{RequestHeaders, RequestTarget};
use crate::http1::ReadStatus;
use crate::pool::{Lease, Pool, SessionTurn};
use crate::retry::parse_retry_after;
use crate::stalls::{Moment, Overrun, StallAwareLimit, fired, overrun, timeout_failure};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, Method, Request, Response, Version};
use llmscen_core::outcome::{Anomaly, AnomalyKind, Failure, FailureKind, Finish, Timeline};
use llmscen_core::request::Framing;
use llmscen_core::target::Timeouts;
use llmscen_core::units::Nanos;
use llmscen_protocols::{
    DecodeOptions, Decoder, Events, Protocol, Reply, error_message, sniff_framing,
};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::Sleep;

mod failure;

#[cfg(test)]
pub(super) mod tests;

/// Bytes of an error body that are read for its message.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// Compressed bytes of an error body that are decoded at a time.
const ERROR_CHUNK: usize = 1024;

/// What all exchanges of one worker with one target share.
pub(super) struct TargetContext {
    pub protocol: Arc<dyn Protocol>,
    pub request_target: Rc<RequestTarget>,
    pub headers: Rc<RequestHeaders>,
    pub pool: Rc<Pool>,
    pub timeouts: Timeouts,
    pub clock: Clock,
    pub gauges: Arc<LiveCounters>,
    pub decode_options: DecodeOptions,
    pub keep_bodies: bool,
    pub response_headers: ResponseHeaders,
}

/// The response headers that are read: of `target.keep_headers` and of `target.session_token`.
#[derive(Default)]
pub(super) struct ResponseHeaders {
    pub keep: Vec<HeaderName>,
    pub token: Option<HeaderName>,
}

/// Maximum length of a kept value, bytes.
const MAX_KEPT: usize = 200;

impl ResponseHeaders {
    /// The kept headers of a response, each as a line `name: value`; None without any. Values that are no text are
    /// left out.
    fn kept(&self, headers: &HeaderMap) -> Option<String> {
        let line = |name: &HeaderName| {
            let value = headers.get(name)?.to_str().ok()?;
            let value: String = value.chars().take(MAX_KEPT).collect();
            Some(format!("{name}: {}", value.trim()))
        };
        let lines: Vec<String> = self.keep.iter().filter_map(line).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn token(&self, headers: &HeaderMap) -> Option<String> {
        Some(headers.get(self.token.as_ref()?)?.to_str().ok()?.to_owned())
    }
}

/// Facts of a call so far, whether or not it succeeds.
#[derive(Default)]
pub(super) struct AttemptTrace {
    pub timeline: Timeline,
    pub end: Option<Nanos>,
    /// When the connection was ready for another request, or was closed, if that was after the end of the response.
    pub kept_at: Option<Nanos>,
    pub status: Option<u16>,
    pub reads: u32,
    pub bytes_in: u64,
    pub reconnects: u32,
    pub attempts: u32,
    pub request_id: Option<String>,
    /// The kept headers of the response.
    pub kept_headers: Option<String>,
    /// The token of the session in the response.
    pub session_token: Option<String>,
    /// `retry-after` of an error response.
    pub retry_after: Option<Nanos>,
    pub streamed: Option<bool>,
    /// The body is compressed.
    pub compressed: bool,
    /// The decoded reply; None before its end. Boxed: a waiting call has none.
    pub reply: Option<Box<Reply>>,
    /// The reply was complete and had no content.
    pub empty: bool,
    /// The audio of the response, if it has any.
    pub audio: Option<Box<AudioReceiver>>,
    /// The response body, if bodies are kept.
    pub response: CapturedBody,
    /// The heads, if bodies are kept.
    pub heads: Option<Box<CapturedHeads>>,
}

impl AttemptTrace {
    /// Resets the trace for another attempt.
    pub fn begin_retry(&mut self, at: Nanos) {
        let Timeline { intended, sent, .. } = self.timeline;
        let timeline = Timeline {
            intended,
            sent,
            last_sent: Some(at),
            ..Timeline::default()
        };
        *self = AttemptTrace {
            timeline,
            attempts: self.attempts,
            reconnects: self.reconnects,
            // The headers of the attempt have it already.
            request_id: self.request_id.take(),
            ..AttemptTrace::default()
        };
    }

    /// Moves the send time of this attempt to `at`.
    fn restamp(&mut self, at: Nanos) {
        let timeline = &mut self.timeline;
        let sent = match timeline.last_sent {
            Some(_) => &mut timeline.last_sent,
            None => &mut timeline.sent,
        };
        *sent = Some(at);
    }

    /// Whether content of the response may have arrived.
    pub fn may_have_content(&self, failure: &Failure) -> bool {
        let unary_body = self.streamed == Some(false) && self.bytes_in > 0;
        !self.timeline.tokens.is_empty() || unary_body && failure.kind != FailureKind::Empty
    }
}

pub(super) struct Exchange<'a> {
    pub target: &'a TargetContext,
    pub trace: &'a mut AttemptTrace,
    /// Token events after which the client cancels.
    pub token_limit: Option<u64>,
    /// Token events after which the reply is endless.
    pub event_limit: u64,
    /// How long the audio of the request takes to send at playback speed.
    pub playback: Nanos,
    /// The turn that is sent, if its session has a WebSocket of its own.
    pub turn: Option<SessionTurn>,
}

impl Exchange<'_> {
    /// Sends the request and reads the response to its end, or until `stop` resolves. Bytes that arrived before
    /// `stop` are still read.
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
        self.trace.timeline.headers = Some(lease.socket_read.latest());
        self.trace.status = Some(response.status().as_u16());
        let of_response = &self.target.response_headers;
        self.trace.kept_headers = of_response.kept(response.headers());
        self.trace.session_token = of_response.token(response.headers());
        if let Some(heads) = &mut self.trace.heads {
            if let Some(sent) = lease.handshake() {
                heads.sent = sent.clone();
            }
            heads.reply = Some((
                response.version(),
                response.status(),
                response.headers().clone(),
            ));
        }
        let reader = if lease.reads_messages() {
            self.message_reader()?
        } else {
            if lease.is_refused() && response.status().is_success() {
                let why = format!(
                    "the server answered with status {} instead of opening a WebSocket; check `target.url`",
                    response.status()
                );
                return Err(Failure::new(FailureKind::Decode, why));
            }
            if !response.status().is_success() {
                return Err(tokio::select! {
                    biased;
                    failure = Box::pin(self.read_error_response(lease, response)) => failure,
                    failure = stop => failure,
                });
            }
            let content_type = response
                .headers()
                .get(CONTENT_TYPE)
                .and_then(|value| value.to_str().ok());
            let declared = self.target.protocol.framing(content_type, streamed);
            let content_decoder = ContentDecoder::from_headers(response.headers())?;
            self.trace.compressed = !content_decoder.is_plain();
            let decoding = match self.target.protocol.has_fixed_framing() {
                true => Decoding::start(self.target, declared),
                false => Decoding::Undecided {
                    declared,
                    beginning: Vec::new(),
                    may_be_lines: streamed && self.target.protocol.streams_lines(),
                },
            };
            self.body_reader(content_decoder, decoding)
        };
        self.receive_body(lease, reader, stop).await
    }

    /// Reads the messages of a WebSocket: each one is an event.
    fn message_reader(&mut self) -> Result<Box<BodyReader>, Failure> {
        let plain = ContentDecoder::from_headers(&HeaderMap::new())?;
        let decoding = Decoding::start(self.target, Ok(Framing::Ndjson));
        let mut reader = self.body_reader(plain, decoding);
        reader.messages = true;
        Ok(reader)
    }

    /// Boxed: a waiting call would hold it more than once.
    fn body_reader(&self, content_decoder: ContentDecoder, decoding: Decoding) -> Box<BodyReader> {
        Box::new(BodyReader {
            content_decoder,
            decoding,
            wrong_content_type: false,
            messages: false,
            events: Events::default(),
            captured: self.target.keep_bodies.then(CapturedBody::default),
        })
    }

    /// Sends the request and returns the response head. If a reused connection turns out to be closed, or the server
    /// refuses the stream, the request is sent once more on a new connection, which the trace counts.
    async fn send(
        &mut self,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Lease, Response<()>), Failure> {
        let open = self.target.pool.lease_open(self.turn)?;
        // Opening a connection is part of sending: then the time before it counts.
        let mut sent_at_write = open.is_some();
        let mut lease = match open {
            Some(lease) => lease,
            None => self.target.pool.lease().await?,
        };
        // A new connection would not have the conversation so far.
        let mut resent = self.target.pool.keeps_conversation();
        loop {
            let last_read = lease.data_read.latest();
            let began = Instant::now();
            // Bytes for other streams of the connection do not restart the read timeout of this request.
            let socket_read = lease.is_exclusive().then(|| lease.socket_read.clone());
            let since = || {
                socket_read.as_ref().map_or(began, |read| {
                    began.max(self.target.clock.instant(read.latest()))
                })
            };
            let request = self
                .request(headers.clone(), body.clone(), lease.version())
                .map_err(ClientError::into_failure)?;
            let restamp = std::mem::take(&mut sent_at_write);
            let sending = lease.send(request, || {
                if restamp {
                    self.trace.restamp(self.target.clock.now());
                }
            });
            let sent = tokio::select! {
                biased;
                sent = sending => sent,
                overrun = overrun(&self.target.gauges.stalls,
                    (self.target.timeouts.read + self.playback).into(),
                    since) => return Err(self.target.read_timeout(overrun)),
            };
            let error = match sent {
                Ok(response) => return Ok((lease, response)),
                Err(error) => error,
            };
            let lost = classify_no_response(&lease, last_read, &error);
            if !lost.resend || resent {
                // Boxed: this future is rare and large, and would enlarge every waiting call.
                return Err(Box::pin(self.target.pool.explain_failure(lost.failure)).await);
            }
            resent = true;
            self.trace.reconnects += 1;
            drop(lease);
            lease = self.target.pool.lease_fresh().await?;
        }
    }

    /// The session that keeps the connection.
    fn session(&self) -> Option<u64> {
        self.turn.map(|turn| turn.session)
    }

    fn request(
        &self,
        headers: HeaderMap,
        body: Bytes,
        version: Version,
    ) -> Result<Request<Bytes>, ClientError> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        self.target.request_target.apply(&mut request, version)?;
        Ok(request)
    }

    /// The failure of a response with an error status, with the message of its body.
    async fn read_error_response(&mut self, mut lease: Lease, response: Response<()>) -> Failure {
        let status = response.status().as_u16();
        let retry = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        self.trace.retry_after = retry
            .as_deref()
            .and_then(|value| parse_retry_after(value, SystemTime::now()));
        let retry = retry.map_or_else(String::new, |value| format!(" (retry-after: {value})"));
        let redirect = describe_redirect(&response);
        let content_decoder = ContentDecoder::from_headers(response.headers());
        let (bytes, complete) = self.read_error_body(&mut lease).await;
        if complete {
            self.target.pool.give_back(lease, self.session());
        }
        let message = match content_decoder {
            Ok(content_decoder) => {
                let plain = decode_error_body(content_decoder, &bytes);
                if self.target.keep_bodies {
                    self.trace.response.add(&plain);
                }
                error_message(status, &plain)
            }
            Err(failure) => failure.message,
        };
        let message = match FailureKind::from_status(status) {
            FailureKind::Decode => format!("{status} is not an HTTP status: {message}"),
            _ => format!("{status}: {}{retry}", redirect.unwrap_or(message)),
        };
        Failure::new(FailureKind::from_status(status), message)
    }

    /// The beginning of an error body, and whether it is complete.
    async fn read_error_body(&mut self, lease: &mut Lease) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let mut complete = false;
        while bytes.len() < MAX_ERROR_BODY {
            let mut keep = |data: &[u8]| bytes.extend_from_slice(data);
            let began = Instant::now();
            let status = tokio::select! {
                biased;
                status = lease.read_body(&mut keep) => status,
                _ = overrun(&self.target.gauges.stalls, self.target.timeouts.read.into(), || began) => break,
            };
            match status {
                Ok(ReadStatus::End) => {
                    complete = true;
                    break;
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.trace.bytes_in += bytes.len() as u64;
        (bytes, complete)
    }
}

/// The content of an error body, or what can be decoded of it.
fn decode_error_body(mut decoder: ContentDecoder, bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    // In small pieces, since a few compressed bytes may decode to many.
    for piece in bytes.chunks(ERROR_CHUNK) {
        let mut keep = |bytes: &[u8]| {
            plain.extend_from_slice(&bytes[..bytes.len().min(MAX_ERROR_BODY - plain.len())])
        };
        if decoder.push(piece, &mut keep).is_err() || plain.len() == MAX_ERROR_BODY {
            break;
        }
    }
    plain
}

/// After the end marker of the API, a call waits this long for the end of the body. Then a background task reads it,
/// so that the worker's slot is free.
const BODY_END_WAIT: Duration = Duration::from_millis(2);

/// How a body is decoded.
enum Decoding {
    /// Its first bytes have not shown its framing.
    Undecided {
        /// The framing by its `content-type`.
        declared: Result<Framing, Failure>,
        beginning: Vec<u8>,
        /// It may be lines of JSON.
        may_be_lines: bool,
    },
    /// By this decoder.
    Decoder {
        decoder: Box<dyn Decoder>,
        /// Its events are decoded as they arrive.
        streamed: bool,
    },
    /// Not at all: it is no response of the API.
    Refused(Failure),
}

impl Decoding {
    fn start(target: &TargetContext, framing: Result<Framing, Failure>) -> Decoding {
        match framing {
            Ok(framing) => Decoding::Decoder {
                decoder: target.protocol.decoder(framing, &target.decode_options),
                streamed: matches!(framing, Framing::Sse | Framing::Ndjson),
            },
            Err(failure) => Decoding::Refused(failure),
        }
    }

    /// Starts with the first bytes of the body.
    fn start_with(
        target: &TargetContext,
        framing: Result<Framing, Failure>,
        beginning: &[u8],
        events: &mut Events,
    ) -> Decoding {
        let mut decoding = Decoding::start(target, framing);
        if let Decoding::Decoder { decoder, .. } = &mut decoding {
            decoder.push(beginning, events);
        }
        decoding
    }

    /// The number of events so far that carried something.
    fn progress(&self) -> u32 {
        match self {
            Decoding::Decoder { decoder, .. } => decoder.progress(),
            Decoding::Undecided { .. } | Decoding::Refused(_) => 0,
        }
    }

    /// Whether its events are decoded as they arrive; None before its framing is known.
    fn is_streamed(&self) -> Option<bool> {
        match self {
            Decoding::Decoder { streamed, .. } => Some(*streamed),
            Decoding::Undecided { .. } | Decoding::Refused(_) => None,
        }
    }
}

/// Turns the bytes of a body into events.
struct BodyReader {
    content_decoder: ContentDecoder,
    decoding: Decoding,
    /// The first bytes showed another framing than the `content-type`.
    wrong_content_type: bool,
    /// Each read is a message of a WebSocket, which becomes a line.
    messages: bool,
    events: Events,
    /// The body, if bodies are kept.
    captured: Option<CapturedBody>,
}

impl Exchange<'_> {
    /// Reads the body to its end, or until `stop` resolves, and returns a reusable connection to the pool.
    async fn receive_body(
        &mut self,
        mut lease: Lease,
        mut reader: Box<BodyReader>,
        stop: Pin<&mut impl Future<Output = Failure>>,
    ) -> Result<Finish, Failure> {
        let (broken, unfinished) = match self.read_events(&mut lease, &mut reader, stop).await {
            BodyEnd::Marker => (None, Some(lease)),
            BodyEnd::Failed => (None, None),
            BodyEnd::Body => {
                self.target.pool.give_back(lease, self.session());
                (reader.content_decoder.finish().err(), None)
            }
            BodyEnd::Broken(failure) => (Some(failure), None),
        };
        let end = self.finish_decoding(*reader, broken);
        // The result is final: this wait only decides about the connection.
        if let Some(lease) = unfinished {
            self.trace.kept_at = self.target.finish_body(lease, self.session()).await;
        }
        end
    }

    /// Ends the decoder and records the results of the response.
    fn finish_decoding(
        &mut self,
        reader: BodyReader,
        broken: Option<Failure>,
    ) -> Result<Finish, Failure> {
        let BodyReader {
            decoding,
            mut events,
            captured,
            mut wrong_content_type,
            ..
        } = reader;
        self.trace.response = captured.unwrap_or_default();
        // A body that ended within its first line is one document; before its first bytes showed anything, what its
        // `content-type` says.
        let decoding = match decoding {
            Decoding::Undecided {
                declared,
                beginning,
                ..
            } => {
                let shown = sniff_framing(&declared, &beginning, false);
                wrong_content_type = shown.as_ref().is_some_and(|shown| *shown != declared);
                let framing = shown.unwrap_or(declared);
                Decoding::start_with(self.target, framing, &beginning, &mut events)
            }
            decided => decided,
        };
        self.trace.streamed = decoding.is_streamed();
        if self.trace.streamed == Some(false) && self.trace.timeline.first_chunk.is_none() {
            self.trace.timeline.first_chunk = self.trace.end;
        }
        let decoder = match decoding {
            Decoding::Decoder { decoder, .. } => decoder,
            Decoding::Refused(failure) => {
                // A refused page has no events: it is shown as one body.
                self.trace.response.reads.clear();
                return Err(failure);
            }
            Decoding::Undecided { .. } => return Ok(Finish::default()),
        };
        // Events that the end of the body completes arrived with its last read.
        let before = events.content;
        let mut reply = Box::new(decoder.finish(&mut events, broken));
        self.record_events(&events, before, self.trace.end);
        self.record_audio(&events, self.trace.end);
        if wrong_content_type {
            let anomaly = Anomaly::bare(AnomalyKind::ContentType);
            reply.facts.anomalies.push(anomaly);
        }
        let end = std::mem::replace(&mut reply.end, Ok(Finish::default()));
        self.trace.empty = end.is_ok() && reply.silent;
        self.trace.reply = Some(reply);
        // Kept to the end of the run, so the copy drops excess capacity; `shrink_to_fit` need not free any.
        self.trace.timeline.tokens = self.trace.timeline.tokens.as_slice().into();
        self.trace.timeline.choices = events.choices;
        self.trace.timeline.weights = events.weights;
        self.trace.timeline.reasoning = events.reasoning;
        end
    }

    /// Reads and decodes the body until it ends.
    async fn read_events(
        &mut self,
        lease: &mut Lease,
        reader: &mut BodyReader,
        mut stop: Pin<&mut impl Future<Output = Failure>>,
    ) -> BodyEnd {
        let target = self.target;
        let exclusive = lease.is_exclusive();
        let socket_read = lease.socket_read.clone();
        let mut read_timer = ReadTimer::new(&target.timeouts);
        // The end of the last read with progress, once there is content.
        let mut last_event = None;
        let mut progress = 0;
        loop {
            // On a shared connection, only bytes for this request restart its read timeout.
            let last_own_read = self
                .trace
                .end
                .max(self.trace.timeline.headers)
                .unwrap_or_default();
            let last_read = || {
                if exclusive {
                    socket_read.latest()
                } else {
                    last_own_read
                }
            };
            let mut decoded = Ok(());
            let mut received = Received {
                content_events_before: reader.events.content,
                bytes: 0,
            };
            let mut sink = |data: &[u8]| {
                received.bytes += data.len() as u64;
                if decoded.is_ok() {
                    decoded = reader.decode(target, data);
                }
            };
            let status = tokio::select! {
                biased;
                status = lease.read_body(&mut sink) => status,
                failure = read_timer.expire(target, last_read, last_event) => return BodyEnd::Broken(failure),
                failure = stop.as_mut() => return BodyEnd::Broken(failure),
            };
            let at = socket_read.latest();
            self.trace.streamed = reader.decoding.is_streamed();
            self.record_read(at, &reader.events, received);
            let has_begun = !self.trace.timeline.tokens.is_empty() || self.trace.audio.is_some();
            if reader.decoding.progress() != progress && has_begun {
                progress = reader.decoding.progress();
                if last_event.replace(at).is_none() {
                    read_timer.start_events();
                }
            }
            if let Some(captured) = &mut reader.captured {
                captured.mark(at);
            }
            if reader.events.done {
                return BodyEnd::Marker;
            }
            if reader.is_over() {
                return BodyEnd::Failed;
            }
            match (decoded, status) {
                (Err(failure), _) => return BodyEnd::Broken(failure),
                (_, Err(error)) => return BodyEnd::Broken(body_failure(&error)),
                (_, Ok(ReadStatus::End)) => return BodyEnd::Body,
                (_, Ok(ReadStatus::Some)) => {}
                // Other streams of the worker run before the next bytes of this one.
                (_, Ok(ReadStatus::Full)) => tokio::task::yield_now().await,
            }
            if let Some(failure) = self.limit_reached() {
                return BodyEnd::Broken(failure);
            }
        }
    }

    /// The failure of a call that the client cancels after its number of token events, or whose reply is endless.
    fn limit_reached(&self) -> Option<Failure> {
        let events = self.trace.timeline.tokens.len() as u64;
        if let Some(limit) = self.token_limit.filter(|limit| events >= *limit) {
            let why = format!("cancelled by `request.cancel.tokens` after {limit} token events");
            return Some(Failure::new(FailureKind::Abandoned, why));
        }
        let why = || {
            let limit = self.event_limit;
            format!("the reply has more than {limit} token events, so it was ended")
        };
        (events > self.event_limit).then(|| Failure::new(FailureKind::TooLong, why()))
    }

    /// Records one read: all events in it have its timestamp.
    fn record_read(&mut self, at: Nanos, events: &Events, received: Received) {
        if received.bytes == 0 {
            return;
        }
        if self.trace.end != Some(at) {
            self.trace.reads += 1;
            self.trace.end = Some(at);
        }
        self.trace.bytes_in += received.bytes;
        if self.trace.streamed == Some(false) {
            self.trace.timeline.first_chunk.get_or_insert(at);
        }
        self.record_events(events, received.content_events_before, Some(at));
        self.record_audio(events, Some(at));
        self.target.gauges.receive(
            received.bytes,
            u64::from(events.content - received.content_events_before),
        );
    }

    /// Passes the audio received so far to its playback.
    fn record_audio(&mut self, events: &Events, at: Option<Nanos>) {
        if let (Some(audio), Some(at)) = (&events.audio, at) {
            self.trace.audio.get_or_insert_default().receive(*audio, at);
        }
    }

    /// Gives the content events after the first `before` the timestamp `at`.
    fn record_events(&mut self, events: &Events, before: u32, at: Option<Nanos>) {
        let Some(at) = at else { return };
        let timeline = &mut self.trace.timeline;
        if events.total > 0 {
            timeline.first_chunk.get_or_insert(at);
        }
        timeline
            .tokens
            .extend(std::iter::repeat_n(at, (events.content - before) as usize));
    }
}

/// Counts of one read.
struct Received {
    content_events_before: u32,
    bytes: u64,
}

impl BodyReader {
    fn decode(&mut self, target: &TargetContext, data: &[u8]) -> Result<(), Failure> {
        let BodyReader {
            content_decoder,
            decoding,
            wrong_content_type,
            messages,
            events,
            captured,
        } = self;
        let mut push = |plain: &[u8]| {
            if let Some(captured) = captured {
                captured.add(plain);
            }
            match decoding {
                Decoding::Decoder { decoder, .. } => decoder.push(plain, events),
                Decoding::Undecided {
                    declared,
                    beginning,
                    may_be_lines,
                } => {
                    beginning.extend_from_slice(plain);
                    if let Some(framing) = sniff_framing(declared, beginning, *may_be_lines) {
                        *wrong_content_type = framing != *declared;
                        *decoding = Decoding::start_with(target, framing, beginning, events);
                    }
                }
                Decoding::Refused(_) => {}
            }
        };
        if !*messages {
            return content_decoder.push(data, &mut push);
        }
        // A line break in JSON is white space between tokens.
        let mut lines = data.split(|byte| matches!(byte, b'\n' | b'\r'));
        lines.next().into_iter().for_each(&mut push);
        for line in lines {
            push(b" ");
            push(line);
        }
        push(b"\n");
        Ok(())
    }

    /// Whether the rest of the body is not needed. The page of a login or a proxy is read where bodies are kept, to
    /// find out what responded.
    fn is_over(&self) -> bool {
        match &self.decoding {
            Decoding::Decoder { decoder, .. } => self.messages && decoder.has_failed(),
            Decoding::Refused(_) => self
                .captured
                .as_ref()
                .is_none_or(|captured| captured.bytes.len() >= MAX_ERROR_BODY),
            Decoding::Undecided { .. } => false,
        }
    }
}

/// How reading a body ended.
enum BodyEnd {
    /// The end marker of the API.
    Marker,
    /// The end of the body.
    Body,
    /// An error, or what cannot be decoded: nothing of the response needs to follow.
    Failed,
    /// The transport failed, or the call was cancelled.
    Broken(Failure),
}

/// The limits on silence in a body: one timer, reset only when it fires.
struct ReadTimer {
    byte: StallAwareLimit,
    event: Option<(StallAwareLimit, Duration)>,
    timer: Pin<Box<Sleep>>,
}

impl ReadTimer {
    fn new(timeouts: &Timeouts) -> ReadTimer {
        let read = Duration::from(timeouts.read);
        let event = timeouts.event.map(Duration::from);
        ReadTimer {
            byte: StallAwareLimit::new(read),
            event: event.map(|limit| (StallAwareLimit::new(limit), limit)),
            timer: Box::pin(tokio::time::sleep(read)),
        }
    }

    /// Starts the limit on silence between events.
    fn start_events(&mut self) {
        if let Some((_, limit)) = &self.event {
            let deadline = self.timer.deadline();
            let due = tokio::time::Instant::now() + *limit;
            self.timer.as_mut().reset(due.min(deadline));
        }
    }

    /// Resolves when a limit has passed since `last_read` or `last_event`, not counting stalls of the worker.
    async fn expire(
        &mut self,
        target: &TargetContext,
        last_read: impl Fn() -> Nanos,
        last_event: Option<Nanos>,
    ) -> Failure {
        let stalls = &target.gauges.stalls;
        loop {
            fired(self.timer.as_mut()).await;
            let now = Moment::now();
            let last_read = last_read();
            let since = |at: Nanos| target.clock.instant(at);
            let mut remaining = match self.byte.remaining(stalls, since(last_read), now) {
                Ok(remaining) => remaining,
                Err(overrun) => return target.read_timeout(overrun),
            };
            if let (Some((event, limit)), Some(at)) = (&mut self.event, last_event) {
                match event.remaining(stalls, since(at), now) {
                    Ok(left) => remaining = remaining.min(left),
                    Err(overrun) => {
                        return event_timeout(overrun, *limit, at < last_read);
                    }
                }
            }
            self.timer.as_mut().reset((now.at + remaining).into());
        }
    }
}

/// The failure of a stream without an event for `limit`; `heartbeats`: other bytes arrived.
fn event_timeout(overrun: Overrun, limit: Duration, heartbeats: bool) -> Failure {
    let heartbeats = if heartbeats { " (only heartbeats)" } else { "" };
    let why = format!("no event for {limit:?}{heartbeats}");
    timeout_failure(overrun, FailureKind::TimeoutRead, &why)
}

impl TargetContext {
    fn read_timeout(&self, overrun: Overrun) -> Failure {
        let limit = Duration::from(self.timeouts.read);
        timeout_failure(
            overrun,
            FailureKind::TimeoutRead,
            &format!("no byte for {limit:?}"),
        )
    }

    /// After the end marker, waits briefly for the end of the body, so that the connection can carry the next
    /// request. Returns when the wait was over; None if there was none.
    async fn finish_body(&self, mut lease: Lease, session: Option<u64>) -> Option<Nanos> {
        if lease.is_done() {
            self.pool.give_back(lease, session);
            return None;
        }
        if tokio::time::timeout(BODY_END_WAIT, read_to_end(&mut lease))
            .await
            .is_ok_and(|complete| complete)
        {
            let at = lease.socket_read.latest();
            self.pool.give_back(lease, session);
            return Some(at);
        }
        let pool = self.pool.clone();
        let limit = self.timeouts.read.into();
        tokio::task::spawn_local(async move {
            if tokio::time::timeout(limit, read_to_end(&mut lease))
                .await
                .is_ok_and(|complete| complete)
            {
                pool.give_back(lease, session);
            }
        });
        Some(self.clock.now())
    }
}

/// Reads a body to its end, and returns whether it was complete.
async fn read_to_end(lease: &mut Lease) -> bool {
    loop {
        match lease.read_body(&mut |_| {}).await {
            Ok(ReadStatus::End) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}
