//! The body of a response: every frame stamped, unpacked and decoded, up to its end.

use crate::engine::coding::Unpacker;
use crate::engine::exchange::broken::body_failure;
use crate::engine::exchange::{Exchange, Line};
use crate::engine::pool::Lease;
use crate::model::outcome::{Failure, FailureKind, Finish};
use crate::model::units::Nanos;
use crate::wire::{Decoder, Events};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// After the protocol's own end marker, how long a call waits for the end of the body before it leaves the connection to
/// a task of its own: the slot must not wait for it.
const TAIL: Duration = Duration::from_millis(2);

/// What the bytes of a body become.
pub(super) struct Reading {
    pub unpacker: Unpacker,
    pub decoder: Box<dyn Decoder>,
    pub events: Events,
}

impl Exchange<'_> {
    /// Takes the body to its end, or until `stop` resolves, and gives the connection back where it can be used again.
    pub(super) async fn receive(
        &mut self,
        lease: Lease,
        mut body: Incoming,
        mut reading: Reading,
        stop: Pin<&mut impl Future<Output = Failure>>,
    ) -> Result<Finish, Failure> {
        let (broken, unsettled) = match self.drain(&lease, &mut body, &mut reading, stop).await {
            Ending::Marker => (None, Some((lease, body))),
            Ending::Body => {
                self.line.pool.give_back(lease);
                (reading.unpacker.finish().err(), None)
            }
            Ending::Broken(failure) => (Some(failure), None),
        };
        let end = self.close(reading, broken);
        // What is known by now stays so: this waits for the connection alone, and nothing cuts it short.
        if let Some((lease, body)) = unsettled {
            self.line.settle(lease, body).await;
        }
        end
    }

    /// Ends the decoder, whatever ended the body, and notes what the response came to.
    fn close(&mut self, reading: Reading, broken: Option<Failure>) -> Result<Finish, Failure> {
        let Reading { decoder, mut events, .. } = reading;
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

    async fn drain(
        &mut self,
        lease: &Lease,
        body: &mut Incoming,
        reading: &mut Reading,
        mut stop: Pin<&mut impl Future<Output = Failure>>,
    ) -> Ending {
        let mut watch = Watch::new(self.line.timeouts.read);
        loop {
            // Where others hear from the server on the same connection, only what this request got breaks its silence.
            let own = self.trace.end.max(self.trace.timeline.headers).unwrap_or_default();
            let heard = || if lease.alone() { lease.stamp.latest() } else { own };
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = watch.silence(self.line, heard) => return Ending::Broken(self.silence()),
                failure = stop.as_mut() => return Ending::Broken(failure),
            };
            let taken = match frame {
                Some(Ok(frame)) => frame.into_data().map_or(Ok(()), |data| self.take(&data, lease.stamp.latest(), reading)),
                Some(Err(error)) => Err(body_failure(&error)),
                None => return Ending::Body,
            };
            if reading.events.done {
                return Ending::Marker;
            }
            if let Some(failure) = taken.err().or_else(|| self.satisfied()) {
                return Ending::Broken(failure);
            }
        }
    }

    /// Why a user who wants no more than some tokens leaves now.
    fn satisfied(&self) -> Option<Failure> {
        let enough = self.enough.filter(|enough| self.trace.timeline.tokens.len() as u64 >= *enough)?;
        Some(Failure::new(FailureKind::Abandoned, format!("its user left: {enough} token events were enough")))
    }

    /// One body frame: everything in it carries the stamp of the socket read that completed it.
    fn take(&mut self, data: &[u8], at: Nanos, reading: &mut Reading) -> Result<(), Failure> {
        if self.trace.end != Some(at) {
            self.trace.reads += 1;
            self.trace.end = Some(at);
        }
        self.trace.bytes_in += data.len() as u64;
        if self.trace.streamed == Some(false) {
            self.trace.timeline.first_chunk.get_or_insert(at);
        }
        let Reading { unpacker, decoder, events } = reading;
        let before = events.content;
        let unpacked = unpacker.push(data, &mut |plain| decoder.push(plain, events));
        self.record(events, before, Some(at));
        self.line.gauges.receive(data.len() as u64, u64::from(events.content - before));
        unpacked
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
    limit: Nanos,
    timer: Pin<Box<Sleep>>,
}

impl Watch {
    fn new(limit: Nanos) -> Watch {
        Watch { limit, timer: Box::pin(tokio::time::sleep(limit.into())) }
    }

    /// Resolves when the last bytes were heard the limit ago.
    async fn silence(&mut self, line: &Line, heard: impl Fn() -> Nanos) {
        loop {
            self.timer.as_mut().await;
            let quiet = line.clock.now().since(heard());
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
