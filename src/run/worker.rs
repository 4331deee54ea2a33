//! The per-core loop that sends the requests of every load shape.
//!
//! ```text
//! closed:  slot free ──┬─ intended          open:  plan says ──┬─ intended
//!                      │ take a call                           │ call taken before
//!                      │ quota: which phase?                   │ wait for the instant
//!                      ▼                                       ▼ room under max_in_flight? else dropped
//!                    sent ── … ── end ── slot free           sent ── … ── end
//! ```
//! A worker runs it on its own thread; what workers share is a queue of rendered calls and two counters, never a lock.

pub(crate) mod concurrency_limit;
pub(crate) mod engine;
pub(crate) mod handle;
pub(crate) mod session_runner;
pub(crate) mod target_health;
#[cfg(test)]
mod tests;
pub(crate) mod timer;

use crate::run::execution::stop::{Level, Stop};
use crate::run::worker::concurrency_limit::{BatchBarrier, ConcurrencyLimit, FreeSlot};
use crate::run::worker::engine::Engine;
use crate::run::worker::session_runner::{SessionRunner, Unsent, drop_unsent_turns};
use crate::run::worker::target_health::{TargetHealth, connect_failure};
use crate::run::worker::timer::Timer;
use async_channel::{Receiver, Sender};
use llmscen_client::clock::Clock;
use llmscen_client::http::{Finished, dropped};
use llmscen_core::call::Call;
use llmscen_core::outcome::Phase;
use llmscen_core::schedule::backoff::after_failed_connects;
use llmscen_core::schedule::quota::Quota;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};

/// A load whose measuring has not begun on any worker looks this often whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// The last connection to a target that may be lost takes so long at most.
const LAST: Duration = Duration::from_secs(3);

/// `max_in_flight` of an open loop, over all workers: requests in flight, and sessions from their first turn to their last.
pub struct InFlightLimit {
    /// Requests or sessions in flight.
    pub taken: AtomicU64,
    /// The most of them.
    pub most: u64,
}

impl InFlightLimit {
    /// Takes a place, where there is one.
    fn enter(&self) -> bool {
        let one_more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

/// The state of one worker.
pub struct Worker {
    /// Sends requests to the target.
    pub engine: Engine,
    /// Slots (closed loop), and requests or sessions in flight.
    pub concurrency_limit: ConcurrencyLimit,
    /// The barrier of a static load.
    pub barrier: Option<Arc<BatchBarrier>>,
    /// Pressed by the first worker of a closed loop that has nothing more to send: none waits for a slot from then on.
    pub spent: Stop,
    /// Rendered calls.
    pub queue: Receiver<Call>,
    /// What a closed loop may still send, and when the time of any loop is up.
    pub quota: Arc<Quota>,
    /// Whether the slots decide when a request leaves, or the plan does.
    pub closed: bool,
    /// Whether the target can be reached, as all workers see it.
    pub target_health: Arc<TargetHealth>,
    /// The round's seed.
    pub seed: Seed,
    /// `max_in_flight`.
    pub in_flight_limit: Option<Arc<InFlightLimit>>,
    /// Where outcomes go.
    pub results: Sender<Finished>,
    /// The run's switch.
    pub stop: Stop,
    /// Pressed by whatever cannot go on, on any worker or behind them: the round is given up at once, and kept.
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
    pub session_runner: Option<SessionRunner>,
}

/// A request in flight; over when dropped, so that not even a panic leaves the worker waiting for it.
struct InFlightGuard(Rc<Worker>);

impl InFlightGuard {
    fn new(worker: Rc<Worker>) -> InFlightGuard {
        worker.concurrency_limit.enter();
        InFlightGuard(worker)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.halt.press();
        }
        self.0.concurrency_limit.leave();
    }
}

/// A call whose instant has come.
pub struct ScheduledRequest {
    /// The call.
    pub call: Call,
    /// Its instant.
    pub intended: Nanos,
    /// Its phase, and that of the session which it begins.
    pub phase: Phase,
    /// Connections in a row that failed for its user before it; 0 in an open loop, which has no users.
    pub failed: u32,
}

impl Worker {
    /// Sends until plan, quota, data or switch end it; then waits for what is in flight. Returns when sending ended.
    pub async fn run(self: Rc<Self>) -> Nanos {
        let this = self.clone();
        let session_watch = self.session_runner.is_some().then(|| {
            tokio::task::spawn_local(async move {
                if let Some(session_runner) = &this.session_runner {
                    session_runner.watch_for_end(&this).await;
                }
            })
        });
        let ramping = self.start_user_ramp();
        self.engine.open_ahead(self.ahead);
        self.timer.until(self.clock.instant(Nanos::ZERO)).await;
        while let Some(scheduled) = self.next().await {
            self.clone().send(scheduled).await;
        }
        let ended = self.clock.now();
        self.spent.press();
        self.wind_down().await;
        for task in [session_watch, ramping].into_iter().flatten() {
            task.abort();
        }
        // Sessions that had begun may have sent on.
        self.session_runner.as_ref().map_or(ended, |session_runner| ended.max(session_runner.last_sent()))
    }

    async fn next(&self) -> Option<ScheduledRequest> {
        let scheduled = tokio::select! {
            biased;
            () = self.stop.reached(Level::Drain) => None,
            () = self.halt.reached(Level::Drain) => None,
            scheduled = async { if self.closed { self.next_closed().await } else { self.next_open().await } } => scheduled,
        };
        // Those that wait for a switch are told one after the other: a session that heard of it first may have freed its slot.
        let goes_on = |switch: &Stop| switch.level() == Level::Run;
        scheduled.filter(|_| goes_on(&self.stop) && goes_on(&self.halt))
    }

    async fn next_closed(&self) -> Option<ScheduledRequest> {
        let ready = async {
            let slot = tokio::select! {
                biased;
                slot = self.concurrency_limit.slot() => slot,
                () = self.spent.reached(Level::Drain) => return None,
            };
            Some((slot, self.queue.recv().await.ok()?))
        };
        let (FreeSlot { since: intended, failed }, call) = tokio::select! {
            biased;
            ready = ready => ready?,
            () = self.deadline(&self.timer) => return None,
        };
        let phase = self.quota.admit(call.seq, intended)?;
        Some(ScheduledRequest { call, intended, phase, failed })
    }

    async fn next_open(&self) -> Option<ScheduledRequest> {
        let call = self.queue.recv().await.ok()?;
        let (intended, phase) = call.due?;
        self.timer.until(self.clock.instant(intended)).await;
        if phase == Phase::Measured {
            self.quota.begin(intended);
        }
        Some(ScheduledRequest { call, intended, phase, failed: 0 })
    }

    /// Resolves when a duration ends the sending; never, where none does.
    pub(crate) async fn deadline(&self, timer: &Timer) {
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

    async fn send(self: Rc<Self>, scheduled: ScheduledRequest) {
        if let Some(in_flight_limit) = &self.in_flight_limit
            && !in_flight_limit.enter()
        {
            let ScheduledRequest { call, intended, phase, .. } = scheduled;
            let why = format!("max_in_flight of {} was reached", in_flight_limit.most);
            let first = Finished::bare(dropped(&call, phase, intended, &why));
            self.deliver(first).await;
            return self.deliver_all(drop_unsent_turns(&Unsent::of(&call, phase), 1, intended, &why)).await;
        }
        let flight = InFlightGuard::new(self.clone());
        tokio::task::spawn_local(async move {
            let failed = scheduled.failed;
            let left = match &self.session_runner {
                Some(session_runner) if scheduled.call.turns > 1 => session_runner.run_session(&self, scheduled).await,
                _ => {
                    let ScheduledRequest { call, intended, phase, .. } = scheduled;
                    vec![self.engine.call(call, intended, phase, self.given_up()).await]
                }
            };
            self.conclude(left, failed).await;
            // Only now: the worker ends when nothing is in flight, and a full channel must not cost an outcome then.
            drop(flight);
        });
    }

    /// Frees the place of a request or session that is over. `failed`: connections in a row that failed for the user who is free now.
    fn release(&self, failed: u32) {
        if let Some(in_flight_limit) = &self.in_flight_limit {
            in_flight_limit.taken.fetch_sub(1, Ordering::Relaxed);
        }
        let now = self.clock.now();
        match &self.barrier {
            Some(barrier) => {
                self.concurrency_limit.wait(failed);
                barrier.ended(now);
            }
            None => self.concurrency_limit.free(now, failed),
        }
    }

    /// Resolves when requests in flight are given up.
    pub(crate) async fn given_up(&self) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self.cancel.subscribe().wait_for(|given_up| *given_up).await;
    }

    async fn deliver_all(&self, left: Vec<Finished>) {
        for finished in left {
            self.deliver(finished).await;
        }
    }

    pub(crate) async fn deliver(&self, finished: Finished) {
        self.target_health.see(&finished.outcome);
        // The collector outlives the workers; were it gone, its own error says why, and there is nothing left to send for.
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
            () = self.concurrency_limit.empty() => return,
            () = self.stop.reached(Level::Now) => {}
            () = self.halt.reached(Level::Drain) => {}
            () = grace => {}
        }
        self.cancel.send_replace(true);
        self.concurrency_limit.empty().await;
    }

    /// Hands over the last rows of a request or session, and frees its place. In a closed loop a user whose
    /// connection failed waits before that; `failed` counts its failures in a row before this one. An open loop keeps its
    /// schedule.
    async fn conclude(&self, left: Vec<Finished>, failed: u32) {
        let failure = left.first().map(|finished| &finished.outcome).and_then(|own| {
            let why = connect_failure(own)?.message.clone();
            Some((own.seq, own.turn, own.timeline.end, own.attempts, why))
        });
        let Some((seq, turn, at, attempts, why)) = failure else {
            self.release(0);
            return self.deliver_all(left).await;
        };
        let failed = failed.saturating_add(attempts.max(1));
        if !self.closed {
            self.release(0);
        }
        self.deliver_all(left).await;
        if self.target_health.suspects(at) {
            let reached = tokio::time::timeout(LAST, self.engine.reach()).await;
            let gone = !matches!(reached, Ok(Ok(())));
            self.target_health.conclude(self.clock.now(), gone.then_some(why.as_str()));
        }
        if self.closed {
            let seed = self.seed.child("reconnect").child(seq).child(u64::from(turn));
            tokio::select! {
                () = tokio::time::sleep(after_failed_connects(failed, seed).into()) => {}
                () = self.spent.reached(Level::Drain) => {}
            }
            self.release(failed);
        }
    }

    /// Starts what lets users come and go, or opens the rounds of a static load, beside the loop that sends.
    fn start_user_ramp(self: &Rc<Self>) -> Option<JoinHandle<()>> {
        let this = self.clone();
        if let Some(barrier) = &self.barrier {
            let mut openings = barrier.openings();
            return Some(spawn_local(async move {
                while openings.changed().await.is_ok() {
                    let opened = *openings.borrow_and_update();
                    this.concurrency_limit.refill(opened);
                }
            }));
        }
        self.concurrency_limit.next_change()?;
        Some(spawn_local(async move {
            while let Some(at) = this.concurrency_limit.next_change() {
                this.changes.until(this.clock.instant(at)).await;
                this.concurrency_limit.pass(at);
            }
        }))
    }
}
