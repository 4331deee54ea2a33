//! The body of a response: every frame stamped, unpacked and decoded, up to its end.

use crate::body_capture::Copied;
use crate::content_encoding::Unpacker;
use crate::exchange::broken::body_failure;
use crate::exchange::{Exchange, Line};
use crate::http1::Pulled;
use crate::pool::Lease;
use crate::stalls::{Allowance, Moment, Overrun, fired};
use llmscen_core::outcome::{Failure, FailureKind, Finish};
use llmscen_core::units::Nanos;
use llmscen_protocols::{Decoder, Events};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Sleep;

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
                self.line.pool.give_back(lease);
                (reading.unpacker.finish().err(), None)
            }
            Ending::Broken(failure) => (Some(failure), None),
        };
        let end = self.close(reading, broken);
        // What is known by now stays so: this waits for the connection alone, and nothing cuts it short.
        if let Some(lease) = unsettled {
            self.line.settle(lease).await;
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
        let (line, alone, stamp) = (self.line, lease.alone(), lease.stamp.clone());
        let mut watch = Watch::new(line.timeouts.read);
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
                overrun = watch.silence(line, heard) => return Ending::Broken(self.silence(overrun)),
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
                (_, Ok(Pulled::End)) => return Ending::Body,
                (_, Ok(Pulled::Some)) => {}
                // Other streams of the lane have their turn before the next bytes of this one.
                (_, Ok(Pulled::Full)) => tokio::task::yield_now().await,
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
        self.line.gauges.receive(brought.bytes, u64::from(reading.events.content - brought.events));
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
    async fn silence(&mut self, line: &Line, heard: impl Fn() -> Nanos) -> Overrun {
        loop {
            fired(self.timer.as_mut()).await;
            let now = Moment::now();
            match self.allowance.left(&line.gauges.stalls, line.clock.instant(heard()), now) {
                Ok(left) => self.timer.as_mut().reset((now.at + left).into()),
                Err(overrun) => return overrun,
            }
        }
    }
}

impl Line {
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
            Ok(Pulled::End) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}
