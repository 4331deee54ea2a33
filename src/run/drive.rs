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

use crate::run::contact::Contact;
use crate::run::gate::{Gate, Slot};
use crate::run::rounds::Rounds;
use crate::run::stop::{Level, Stop};
use crate::run::target::Engine;
use crate::run::timer::Timer;
use crate::run::visit::{Unsent, Visits, unsent};
use async_channel::{Receiver, Sender};
use llmscen_client::clock::Clock;
use llmscen_client::http::{Finished, dropped};
use llmscen_core::call::Call;
use llmscen_core::outcome::Phase;
use llmscen_core::schedule::quota::Quota;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// A load whose measuring has not begun on any lane looks this often whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// The room that an open loop has, over all lanes: for requests in flight, and for sessions from their first turn to their
/// last.
pub struct Room {
    /// Requests or sessions in flight.
    pub taken: AtomicU64,
    /// The most of them.
    pub most: u64,
}

impl Room {
    /// Takes a place, where there is one.
    fn enter(&self) -> bool {
        let one_more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

/// What one lane drives.
pub struct Drive {
    /// Speaks to the target.
    pub engine: Engine,
    /// Slots (closed loop), and requests or sessions in flight.
    pub gate: Gate,
    /// The barrier of a static load.
    pub rounds: Option<Arc<Rounds>>,
    /// Pressed by the first lane of a closed loop that has nothing more to send: none waits for a slot from then on.
    pub spent: Stop,
    /// Rendered calls.
    pub queue: Receiver<Call>,
    /// What a closed loop may still send, and when the time of any loop is up.
    pub quota: Arc<Quota>,
    /// Whether the slots decide when a request leaves, or the plan does.
    pub closed: bool,
    /// Whether the target can be reached, as all lanes see it.
    pub contact: Arc<Contact>,
    /// The round's seed.
    pub seed: Seed,
    /// `max_in_flight`.
    pub room: Option<Arc<Room>>,
    /// Where outcomes go.
    pub results: Sender<Finished>,
    /// The run's switch.
    pub stop: Stop,
    /// Pressed by whatever cannot go on, on any lane or behind them: the round is given up at once, and kept.
    pub halt: Stop,
    /// The case's clock.
    pub clock: Clock,
    /// Absolute deadlines.
    pub timer: Timer,
    /// Instants at which users come or go.
    pub changes: Timer,
    /// How long requests in flight may go on once sending has ended by time or by the switch.
    pub grace: Nanos,
    /// Whether time bounds the case.
    pub timed: bool,
    /// True gives up every request in flight.
    pub cancel: watch::Sender<bool>,
    /// Connections that will be needed at time zero.
    pub ahead: u64,
    /// Sessions of several turns; None where the case has none.
    pub visits: Option<Visits>,
}

/// A request in flight; over when dropped, so that not even a panic leaves the lane waiting for it.
struct Flight(Rc<Drive>);

impl Flight {
    fn new(drive: Rc<Drive>) -> Flight {
        drive.gate.enter();
        Flight(drive)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.halt.press();
        }
        self.0.gate.leave();
    }
}

/// A call whose instant has come.
pub struct Departure {
    /// The call.
    pub call: Call,
    /// Its instant.
    pub intended: Nanos,
    /// Its phase, and that of the session which it begins.
    pub phase: Phase,
    /// Connections in a row that failed for its user before it; 0 in an open loop, which has no users.
    pub failed: u32,
}

impl Drive {
    /// Sends until plan, quota, data or switch end it; then waits for what is in flight. Returns when sending ended.
    pub async fn run(self: Rc<Self>) -> Nanos {
        let this = self.clone();
        let attending = self.visits.is_some().then(|| {
            tokio::task::spawn_local(async move {
                if let Some(visits) = &this.visits {
                    this.attend(visits).await;
                }
            })
        });
        let staffing = self.staff();
        self.engine.open_ahead(self.ahead);
        self.timer.until(self.clock.instant(Nanos::ZERO)).await;
        while let Some(departure) = self.next().await {
            self.clone().send(departure).await;
        }
        let ended = self.clock.now();
        self.spent.press();
        self.wind_down().await;
        for task in [attending, staffing].into_iter().flatten() {
            task.abort();
        }
        // Sessions that had begun may have sent on.
        self.visits.as_ref().map_or(ended, |visits| ended.max(visits.last_sent()))
    }

    async fn next(&self) -> Option<Departure> {
        let departure = tokio::select! {
            biased;
            () = self.stop.reached(Level::Drain) => None,
            () = self.halt.reached(Level::Drain) => None,
            departure = async { if self.closed { self.next_closed().await } else { self.next_open().await } } => departure,
        };
        // Those that wait for a switch are told one after the other: a session that heard of it first may have freed its slot.
        let goes_on = |switch: &Stop| switch.level() == Level::Run;
        departure.filter(|_| goes_on(&self.stop) && goes_on(&self.halt))
    }

    async fn next_closed(&self) -> Option<Departure> {
        let ready = async {
            let slot = tokio::select! {
                biased;
                slot = self.gate.slot() => slot,
                () = self.spent.reached(Level::Drain) => return None,
            };
            Some((slot, self.queue.recv().await.ok()?))
        };
        let (Slot { since: intended, failed }, call) = tokio::select! {
            biased;
            ready = ready => ready?,
            () = self.deadline(&self.timer) => return None,
        };
        let phase = self.quota.admit(call.seq, intended)?;
        Some(Departure { call, intended, phase, failed })
    }

    async fn next_open(&self) -> Option<Departure> {
        let call = self.queue.recv().await.ok()?;
        let (intended, phase) = call.due?;
        self.timer.until(self.clock.instant(intended)).await;
        if phase == Phase::Measured {
            self.quota.begin(intended);
        }
        Some(Departure { call, intended, phase, failed: 0 })
    }

    /// Resolves when a duration ends the sending; never, where none does.
    pub(super) async fn deadline(&self, timer: &Timer) {
        if !self.timed {
            return std::future::pending().await;
        }
        while !self.quota.settled() {
            if self.quota.deadline().is_some_and(|end| self.clock.now() >= end) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        match self.quota.deadline() {
            Some(end) => timer.until(self.clock.instant(end)).await,
            None => std::future::pending().await,
        }
    }

    async fn send(self: Rc<Self>, departure: Departure) {
        if let Some(room) = &self.room
            && !room.enter()
        {
            let Departure { call, intended, phase, .. } = departure;
            let why = format!("max_in_flight of {} was reached", room.most);
            let first = Finished::bare(dropped(&call, phase, intended, &why));
            self.deliver(first).await;
            return self.deliver_all(unsent(&Unsent::of(&call, phase), 1, intended, &why)).await;
        }
        let flight = Flight::new(self.clone());
        tokio::task::spawn_local(async move {
            let failed = departure.failed;
            let left = match &self.visits {
                Some(visits) if departure.call.turns > 1 => self.visit(visits, departure).await,
                _ => {
                    let Departure { call, intended, phase, .. } = departure;
                    vec![self.engine.call(call, intended, phase, self.given_up()).await]
                }
            };
            self.conclude(left, failed).await;
            // Only now: the lane ends when nothing is in flight, and a full channel must not cost an outcome then.
            drop(flight);
        });
    }

    /// Makes room for what comes next. `failed`: connections in a row that failed for the user who is free now.
    fn release(&self, failed: u32) {
        if let Some(room) = &self.room {
            room.taken.fetch_sub(1, Ordering::Relaxed);
        }
        let now = self.clock.now();
        match &self.rounds {
            Some(rounds) => {
                self.gate.wait(failed);
                rounds.ended(now);
            }
            None => self.gate.free(now, failed),
        }
    }

    /// Resolves when requests in flight are given up.
    pub(super) async fn given_up(&self) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self.cancel.subscribe().wait_for(|given_up| *given_up).await;
    }

    async fn deliver_all(&self, left: Vec<Finished>) {
        for finished in left {
            self.deliver(finished).await;
        }
    }

    pub(super) async fn deliver(&self, finished: Finished) {
        self.contact.see(&finished.outcome);
        // The collector outlives the lanes; were it gone, its own error says why, and there is nothing left to send for.
        if self.results.send(finished).await.is_err() {
            self.halt.press();
        }
    }

    /// Waits for what is in flight: for the grace once the time is up or the switch is pressed, else without a bound.
    async fn wind_down(&self) {
        let grace = async {
            tokio::select! {
                () = self.deadline(&self.timer) => {}
                () = self.stop.reached(Level::Drain) => {}
            }
            tokio::time::sleep(self.grace.into()).await;
        };
        tokio::select! {
            biased;
            () = self.gate.empty() => return,
            () = self.stop.reached(Level::Now) => {}
            () = self.halt.reached(Level::Drain) => {}
            () = grace => {}
        }
        self.cancel.send_replace(true);
        self.gate.empty().await;
    }
}

mod reconnect;
mod staff;
#[cfg(test)]
mod tests;
