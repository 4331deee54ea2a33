//! The one loop that drives every load shape.
//!
//! ```text
//! closed:  slot free ──┬─ intended          open:  plan says ──┬─ intended
//!                      │ take a call                           │ call taken before
//!                      │ quota: which phase?                   │ wait for the instant
//!                      ▼                                       ▼ room under max_in_flight? else dropped
//!                    sent ── … ── end ── slot free           sent ── … ── end
//! ```
//! A lane runs it on its own thread; what lanes share is a queue of rendered calls and two counters, never a lock.

use crate::engine::clock::Clock;
use crate::engine::http::{Finished, Http, dropped};
use crate::model::call::Call;
use crate::model::outcome::Phase;
use crate::model::units::Nanos;
use crate::pace::quota::Quota;
use crate::run::gate::Gate;
use crate::run::stop::{Level, Stop};
use crate::run::timer::Timer;
use async_channel::{Receiver, Sender};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// A closed loop whose measuring has not begun on any lane looks this often whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// The room that an open loop has for requests in flight, over all lanes.
pub struct Room {
    /// Requests in flight.
    pub taken: AtomicU64,
    /// Requests in flight at the most.
    pub most: u64,
}

/// What one lane drives.
pub struct Drive {
    /// Speaks to the target.
    pub engine: Http,
    /// Slots (closed loop) and requests in flight.
    pub gate: Gate,
    /// Rendered calls.
    pub queue: Receiver<Call>,
    /// What a closed loop may still send; None: an open loop.
    pub quota: Option<Arc<Quota>>,
    /// `max_in_flight`.
    pub room: Option<Arc<Room>>,
    /// Where outcomes go.
    pub results: Sender<Finished>,
    /// The run's switch.
    pub stop: Stop,
    /// The case's clock.
    pub clock: Clock,
    /// Absolute deadlines.
    pub timer: Timer,
    /// How long requests in flight may go on once sending has ended by time or by the switch.
    pub grace: Nanos,
    /// Whether time bounds the case.
    pub timed: bool,
    /// True gives up every request in flight.
    pub cancel: watch::Sender<bool>,
}

/// A call whose instant has come.
struct Departure {
    call: Call,
    intended: Nanos,
    phase: Phase,
}

impl Drive {
    /// Sends until plan, quota, data or switch end it; then waits for what is in flight. Returns when sending ended.
    pub async fn run(self: Rc<Self>) -> Nanos {
        self.timer.until(self.clock.instant(Nanos::ZERO)).await;
        while let Some(departure) = self.next().await {
            self.clone().send(departure).await;
        }
        let ended = self.clock.now();
        self.wind_down().await;
        ended
    }

    async fn next(&self) -> Option<Departure> {
        tokio::select! {
            biased;
            () = self.stop.reached(Level::Drain) => None,
            departure = async {
                match &self.quota {
                    Some(quota) => self.next_closed(quota).await,
                    None => self.next_open().await,
                }
            } => departure,
        }
    }

    async fn next_closed(&self, quota: &Quota) -> Option<Departure> {
        let intended = tokio::select! {
            biased;
            slot = self.gate.slot() => slot,
            () = self.deadline(quota) => return None,
        };
        let call = self.queue.recv().await.ok()?;
        let phase = quota.admit(call.seq, intended)?;
        Some(Departure { call, intended, phase })
    }

    async fn next_open(&self) -> Option<Departure> {
        let call = self.queue.recv().await.ok()?;
        let (intended, phase) = call.due?;
        self.timer.until(self.clock.instant(intended)).await;
        Some(Departure { call, intended, phase })
    }

    /// Resolves when a duration ends the sending of a closed loop; never, where none does.
    async fn deadline(&self, quota: &Quota) {
        if !self.timed {
            return std::future::pending().await;
        }
        loop {
            match quota.deadline() {
                Some(end) => return self.timer.until(self.clock.instant(end)).await,
                None => tokio::time::sleep(LOOK).await,
            }
        }
    }

    async fn send(self: Rc<Self>, departure: Departure) {
        let Departure { call, intended, phase } = departure;
        if let Some(room) = &self.room
            && room.taken.fetch_add(1, Ordering::Relaxed) >= room.most
        {
            room.taken.fetch_sub(1, Ordering::Relaxed);
            let outcome = dropped(&call, phase, intended, &format!("max_in_flight of {} was reached", room.most));
            return self.deliver(Finished { outcome, text: None }).await;
        }
        self.gate.enter();
        tokio::task::spawn_local(async move {
            let mut cancel = self.cancel.subscribe();
            let cancelled = async {
                let _ = cancel.wait_for(|given_up| *given_up).await;
            };
            let finished = self.engine.call(call, intended, phase, cancelled).await;
            if let Some(room) = &self.room {
                room.taken.fetch_sub(1, Ordering::Relaxed);
            }
            self.gate.leave(self.clock.now());
            self.deliver(finished).await;
        });
    }

    async fn deliver(&self, finished: Finished) {
        // The collector outlives the lanes; were it gone, its own error says why.
        let _ = self.results.send(finished).await;
    }

    /// Waits for what is in flight: without a bound after a counted case, for the grace after a timed or stopped one.
    async fn wind_down(&self) {
        let grace = async {
            if !self.timed {
                self.stop.reached(Level::Drain).await;
            }
            tokio::time::sleep(self.grace.into()).await;
        };
        tokio::select! {
            biased;
            () = self.gate.empty() => return,
            () = self.stop.reached(Level::Now) => {}
            () = grace => {}
        }
        self.cancel.send_replace(true);
        self.gate.empty().await;
    }
}
