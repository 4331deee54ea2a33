//! The per-core loop that sends the requests of every load shape.
//!
//! ```text
//! closed:  slot free ──┬─ intended          open:  schedule ──┬─ intended
//!                      │ take a request                       │ request taken before
//!                      │ quota sets its phase                 │ wait until intended
//!                      ▼                                      ▼ dropped or held if max_in_flight is reached
//!                    sent ── … ── end ── slot free          sent ── … ── end
//! ```
//! Each worker runs the loop on its own thread. Workers share a queue of rendered requests and two counters, but no
//! lock unless `max_in_flight` holds arrivals.
//!
//! What is due is written first: [`Worker::begin`] polls a request in place, up to its write, before any other task
//! of the worker runs. In a closed loop that happens in the poll in which the user's last response ended, before its
//! outcome is built.

pub(crate) mod concurrency_limit;
pub(crate) mod cooldown;
pub(crate) mod engine;
pub(crate) mod handle;
pub(crate) mod idle_limit;
pub(crate) mod in_flight_limit;
pub(crate) mod session_runner;
pub(crate) mod target_health;
#[cfg(test)]
mod tests;
pub(crate) mod timer;

use crate::run::stop::{Level, Stop};
use crate::run::worker::concurrency_limit::{BatchBarrier, ConcurrencyLimit, FreeSlot};
use crate::run::worker::cooldown::Cooldown;
use crate::run::worker::engine::{EndedCall, Engine};
use crate::run::worker::idle_limit::IdleLimit;
use crate::run::worker::in_flight_limit::InFlightLimit;
use crate::run::worker::session_runner::{Outcomes, SessionRunner, UnsentTurns};
use crate::run::worker::target_health::{TargetHealth, connect_failure};
use crate::run::worker::timer::Timer;
use async_channel::{Receiver, Sender};
use llmscen_client::clock::Clock;
use llmscen_client::http::{CompletedCall, dropped_outcome};
use llmscen_core::load::{Load, Shape};
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::request::PreparedRequest;
use llmscen_core::schedule::delays::connect_backoff;
use llmscen_core::schedule::quota::{Quota, TurnQuota};
use llmscen_core::schedule::shard::Shard;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::task::{JoinHandle, spawn_local};

/// How often a worker checks whether measuring has begun on another worker.
const MEASURING_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time limit for the last connection attempt to a target that does not respond.
const LAST_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two connections at the end of a round.
const LAST_CONNECT_INTERVAL: Duration = Duration::from_millis(250);

/// What the workers of a round share. Each worker has a clone.
#[derive(Clone)]
pub struct SharedState {
    /// Clock of the round.
    pub clock: Clock,
    /// Seed of the round.
    pub seed: Seed,
    /// What a closed loop may still send, and the end of any loop that a duration bounds.
    pub quota: Arc<Quota>,
    /// The unmeasured requests after the measured ones.
    pub cooldown: Arc<Cooldown>,
    /// `max_in_flight`.
    pub in_flight_limit: Option<Arc<InFlightLimit>>,
    /// `max_idle`.
    pub idle_limit: Option<Arc<IdleLimit>>,
    /// Barrier of a static load.
    pub barrier: Option<Arc<BatchBarrier>>,
    /// Whether the target can be reached.
    pub target_health: Arc<TargetHealth>,
    /// Pressed by the first worker of a closed loop that has nothing left to send; the others then stop waiting for a
    /// slot.
    pub exhausted: Stop,
    /// Pressed when sessions have sent as many requests as the load limits: no further turn is sent.
    pub turns_sent: Stop,
    /// Ends the round by plan or by signal: requests in flight may finish within the drain time.
    pub stop: Stop,
    /// Ends the round after a fault: requests in flight are cancelled, results are kept.
    pub halt: Stop,
    /// Whether free slots set the send times (closed loop), not the schedule.
    pub closed: bool,
    /// Whether arrivals at `max_in_flight` wait.
    pub holds: bool,
    /// Whether a duration bounds the load.
    pub timed: bool,
    /// How long requests in flight may continue after sending has ended by time or by `stop`.
    pub drain_time: Nanos,
}

impl SharedState {
    /// The state of a shard at the start of a round.
    pub fn new(
        load: &Load,
        cooldown: Cooldown,
        shard: Shard,
        seed: Seed,
        clock: Clock,
        stop: Stop,
        target_health: TargetHealth,
    ) -> SharedState {
        let in_flight_limit = |limit| Arc::new(InFlightLimit::new(limit, shard));
        SharedState {
            clock,
            seed,
            quota: Arc::new(Quota::new(load, shard)),
            cooldown: Arc::new(cooldown),
            in_flight_limit: load.max_in_flight.map(in_flight_limit),
            idle_limit: load
                .max_idle
                .map(|max| Arc::new(IdleLimit::new(max, clock))),
            barrier: if let Shape::Static { batch } = load.shape {
                Some(Arc::new(BatchBarrier::new(batch)))
            } else {
                None
            },
            target_health: Arc::new(target_health),
            exhausted: Stop::default(),
            turns_sent: Stop::default(),
            stop,
            halt: Stop::default(),
            closed: load.shape.is_closed_loop(),
            holds: load.holds(),
            timed: load.sending_duration().is_some(),
            drain_time: load.graceful_stop,
        }
    }
}

/// One worker.
pub struct Worker {
    /// What all workers share.
    pub shared: SharedState,
    /// Sends requests to the target.
    pub engine: Engine,
    /// Slots of a closed loop, and the number of requests or sessions in flight.
    pub concurrency_limit: ConcurrencyLimit,
    /// Rendered requests.
    pub queue: Receiver<PreparedRequest>,
    /// Channel to the collector.
    pub results: Sender<CompletedCall>,
    /// Timer for send times and for the end of sending.
    pub timer: Timer,
    /// Timer for changes of the number of users.
    pub ramp_timer: Timer,
    /// True cancels every request in flight.
    pub cancel: watch::Sender<bool>,
    /// Connections to each URL to open before time zero.
    pub preconnect: Vec<u64>,
    /// Runs sessions of several turns; None if the case has none.
    pub session_runner: Option<SessionRunner>,
    /// [`Worker::begin_due`] is running.
    pub beginning: Cell<bool>,
    /// When it had sent its last measured request; None while it has more.
    pub measured_until: Cell<Option<Nanos>>,
}

/// A request in flight. It ends on drop, so that the worker does not wait for it after a panic.
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
            self.0.shared.halt.press();
        }
        self.0.concurrency_limit.leave();
    }
}

/// A request that is due.
pub struct ScheduledRequest {
    /// The rendered request.
    pub call: PreparedRequest,
    /// Its scheduled send time.
    pub intended: Nanos,
    /// Its phase, and that of the session which it begins.
    pub phase: Phase,
    /// Consecutive failed connections of its user before it; 0 in an open loop, which has no users.
    pub failed_connects: u32,
}

impl Worker {
    /// Sends until the schedule, the quota, the dataset or a switch ends it, then waits for requests in flight.
    /// Returns the time at which sending ended.
    pub async fn run(self: Rc<Self>) -> Nanos {
        self.shared.target_health.enter();
        let tasks = [self.start_session_watch(), self.start_user_ramp()];
        self.engine.preconnect(&self.preconnect);
        self.timer
            .until(self.shared.clock.instant(Nanos::ZERO))
            .await;
        self.begin_due();
        while let Some(scheduled) = self.next_request().await {
            self.send(scheduled).await;
        }
        let ended = self.end_measuring();
        // Arrivals after the last request of all sessions were not due.
        if self.shared.holds && self.shared.turns_sent.level() == Level::Run {
            self.drop_due(ended).await;
        }
        self.shared.exhausted.press();
        self.drain().await;
        for task in tasks.into_iter().flatten() {
            task.abort();
        }
        self.check_target_at_end().await;
        // Sessions in progress may have sent later turns.
        self.session_runner
            .as_ref()
            .map_or(ended, |session_runner| {
                ended.max(session_runner.last_sent())
            })
    }

    async fn next_request(&self) -> Option<ScheduledRequest> {
        let scheduled = tokio::select! {
            biased;
            () = self.shared.stop.reached(Level::Drain) => None,
            () = self.shared.halt.reached(Level::Drain) => None,
            () = self.shared.turns_sent.reached(Level::Drain) => None,
            () = self.shared.cooldown.is_over() => None,
            scheduled = async {
                    if self.shared.closed { self.next_closed().await } else { self.next_open().await }
                } => scheduled,
        };
        // Tasks that wait for a switch wake one by one: a session that woke before this loop may already have freed
        // its slot.
        scheduled.filter(|_| self.may_send())
    }

    /// Whether a plan, a signal or a fault has ended the round.
    fn is_stopped(&self) -> bool {
        let is_running = |switch: &Stop| switch.level() == Level::Run;
        !is_running(&self.shared.stop) || !is_running(&self.shared.halt)
    }

    /// Whether the round goes on, and sessions have not sent all their requests.
    fn may_send(&self) -> bool {
        !self.is_stopped() && self.shared.turns_sent.level() == Level::Run
    }

    /// Sends a request, and awaits its end.
    pub(crate) async fn call(
        &self,
        call: PreparedRequest,
        intended: Nanos,
        phase: Phase,
    ) -> EndedCall<'_> {
        let _in_flight = self.shared.idle_limit.as_deref().map(IdleLimit::enter);
        self.engine
            .call(call, intended, phase, self.cancelled())
            .await
    }

    /// Shortens think times by `max_idle`; never ends.
    pub(crate) async fn limit_idle_time(&self) {
        match &self.shared.idle_limit {
            Some(limit) => limit.watch().await,
            None => std::future::pending().await,
        }
    }

    /// Whether the limit of the requests of all sessions admits one more of this phase.
    pub(crate) fn admit_turn(&self, phase: Phase) -> bool {
        if phase != Phase::Measured {
            return true;
        }
        let quota = self.shared.quota.admit_turn();
        if quota != TurnQuota::More {
            self.shared.turns_sent.press();
        }
        quota != TurnQuota::Exhausted
    }

    async fn next_closed(&self) -> Option<ScheduledRequest> {
        let ready = async {
            let slot = tokio::select! {
                biased;
                slot = self.concurrency_limit.take_slot() => slot,
                () = self.shared.exhausted.reached(Level::Drain) => return None,
            };
            Some((slot, self.queue.recv().await.ok()?))
        };
        let (
            FreeSlot {
                since: intended,
                failed_connects,
            },
            call,
        ) = tokio::select! {
            biased;
            ready = ready => ready?,
            () = self.sending_end(&self.timer) => return None,
        };
        let phase = self.admit(call.seq, intended)?;
        Some(ScheduledRequest {
            call,
            intended,
            phase,
            failed_connects,
        })
    }

    /// The phase of a request of a closed loop; None when nothing more is sent.
    fn admit(&self, seq: u64, now: Nanos) -> Option<Phase> {
        let SharedState {
            quota, cooldown, ..
        } = &self.shared;
        // Before the quota is asked: the cool-down must not end between the answer and the begin of the last measured
        // request.
        cooldown.begin();
        let phase = quota.admit(seq, now);
        if phase == Some(Phase::Measured) {
            return phase;
        }
        cooldown.end();
        if phase.is_some() {
            return phase;
        }
        self.measured_until
            .set(self.measured_until.get().or(Some(now)));
        (cooldown.starts() && quota.admit_cooldown()).then_some(Phase::Cooldown)
    }

    /// Records that this worker has sent its last measured request. Returns when.
    fn end_measuring(&self) -> Nanos {
        let ended = self.measured_until.get();
        if ended.is_none() && !self.shared.closed {
            self.shared.cooldown.end();
        }
        let ended = ended.unwrap_or_else(|| self.shared.clock.now());
        self.measured_until.set(Some(ended));
        ended
    }

    async fn next_open(&self) -> Option<ScheduledRequest> {
        let call = self.queue.recv().await.ok()?;
        let (intended, phase) = call.due?;
        match phase {
            Phase::Measured => self.shared.cooldown.begin(),
            Phase::Cooldown => {
                self.end_measuring();
            }
            Phase::Warmup => {}
        }
        tokio::select! {
            biased;
            () = self.timer.until(self.shared.clock.instant(intended)) => {}
            () = self.cooldown_deadline(), if phase == Phase::Cooldown => return None,
        }
        if phase == Phase::Measured {
            self.shared.quota.begin(intended);
        }
        Some(ScheduledRequest {
            call,
            intended,
            phase,
            failed_connects: 0,
        })
    }

    /// Resolves at the end of the drain time after a duration, which ends the cool-down too; never if none ends the
    /// sending.
    async fn cooldown_deadline(&self) {
        match self.shared.quota.deadline().filter(|_| self.shared.timed) {
            Some(end) => {
                let over = self.shared.clock.instant(end + self.shared.drain_time);
                tokio::time::sleep_until(over.into()).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Resolves when a duration ends the sending; never if none does.
    pub(crate) async fn sending_end(&self, timer: &Timer) {
        let SharedState { quota, clock, .. } = &self.shared;
        if !self.shared.timed {
            return std::future::pending().await;
        }
        while !quota.is_final() {
            if quota.deadline().is_some_and(|end| clock.now() >= end) {
                return;
            }
            tokio::time::sleep(MEASURING_POLL_INTERVAL).await;
        }
        match quota.deadline() {
            Some(end) => timer.until(clock.instant(end)).await,
            None => std::future::pending().await,
        }
    }

    /// Closed loop: begins a request for each free user, as far as requests are rendered. The loop of [`Worker::run`]
    /// sends the rest. A request that ends at once frees its slot for this loop, not for one inside it.
    fn begin_due(self: &Rc<Self>) {
        if !self.shared.closed || self.beginning.replace(true) {
            return;
        }
        while self.may_send()
            && self.shared.exhausted.level() == Level::Run
            && let Some(slot) = self.concurrency_limit.try_take_slot()
        {
            let Ok(call) = self.queue.try_recv() else {
                self.concurrency_limit.put_back(slot);
                break;
            };
            let Some(phase) = self.admit(call.seq, slot.since) else {
                self.shared.exhausted.press();
                break;
            };
            self.begin(ScheduledRequest {
                call,
                intended: slot.since,
                phase,
                failed_connects: slot.failed_connects,
            });
        }
        self.beginning.set(false);
    }

    /// Begins a request, or drops it at `max_in_flight`.
    async fn send(self: &Rc<Self>, mut scheduled: ScheduledRequest) {
        if let Some(in_flight_limit) = &self.shared.in_flight_limit {
            let free_since = tokio::select! {
                biased;
                () = self.holding_over() => None,
                free_since = in_flight_limit.enter(scheduled.call.seq) => free_since,
            };
            match free_since {
                None if self.shared.turns_sent.level() != Level::Run => return,
                Some(since) if self.shared.holds => {
                    scheduled.call.held_until = Some(since.max(scheduled.intended));
                }
                Some(_) => {}
                None => return self.drop_at_limit(scheduled, in_flight_limit).await,
            }
        }
        self.begin(scheduled);
    }

    /// Resolves when held arrivals may no longer be sent: as requests in flight, they may continue for the drain time
    /// after the end of a duration, but not after a stop. Never without arrivals that are held.
    async fn holding_over(&self) {
        if !self.shared.holds {
            return std::future::pending().await;
        }
        tokio::select! {
            biased;
            () = self.shared.stop.reached(Level::Drain) => {}
            () = self.shared.halt.reached(Level::Drain) => {}
            () = self.shared.turns_sent.reached(Level::Drain) => {}
            () = self.drain_time_over() => {}
        }
    }

    /// Resolves at the end of the drain time after a duration ended the sending; never if none does.
    async fn drain_time_over(&self) {
        self.sending_end(&self.timer).await;
        self.cooldown_deadline().await;
    }

    /// Records a request that found no free slot.
    async fn drop_at_limit(&self, scheduled: ScheduledRequest, limit: &InFlightLimit) {
        let ScheduledRequest {
            mut call,
            intended,
            phase,
            ..
        } = scheduled;
        self.end_measured(phase);
        let limit = limit.limit;
        let (at, why) = if self.shared.holds {
            let now = self.shared.clock.now();
            call.held_until = Some(now);
            (
                now,
                format!("held at max_in_flight of {limit} until sending ended"),
            )
        } else {
            (intended, format!("max_in_flight of {limit} was reached"))
        };
        let mut first = dropped_outcome(&call, call.phase_in(phase), intended, &why);
        first.timeline.end = at;
        let rest = UnsentTurns::new(&call, phase).drop_later(intended, &why);
        let mut outcomes = rest.after(CompletedCall::bare(first));
        // Arrivals that a stop kept from being sent show nothing of the server, as requests that it cancels.
        if self.shared.holds && self.is_stopped() {
            outcomes.set_kind(FailureKind::Cancelled);
        }
        self.deliver_all(outcomes).await;
    }

    /// Records the arrivals that were due by `ended` and waited behind a held one.
    async fn drop_due(&self, ended: Nanos) {
        let Some(limit) = &self.shared.in_flight_limit else {
            return;
        };
        loop {
            let call = tokio::select! {
                biased;
                () = self.shared.stop.reached(Level::Now) => return,
                () = self.shared.halt.reached(Level::Drain) => return,
                call = self.queue.recv() => call,
                // The dataset may be slow.
                () = tokio::time::sleep(self.shared.drain_time.into()) => return,
            };
            let Ok(call) = call else { return };
            let Some((intended, phase)) = call.due.filter(|(intended, _)| *intended <= ended)
            else {
                return;
            };
            let scheduled = ScheduledRequest {
                call,
                intended,
                phase,
                failed_connects: 0,
            };
            self.drop_at_limit(scheduled, limit).await;
        }
    }

    /// Begins a request or session. If a connection is open, the request is written before this returns.
    fn begin(self: &Rc<Self>, scheduled: ScheduledRequest) {
        let this = self.clone();
        let in_flight = InFlightGuard::new(self.clone());
        let mut task = Box::pin(async move {
            this.run_request(scheduled).await;
            // Last: the worker ends when nothing is in flight, and an outcome may still wait for a full channel.
            drop(in_flight);
        });
        // The budget of the task that runs now must not keep the request from being written. Its own task polls it
        // again, so no wake-up is lost.
        let mut cx = Context::from_waker(Waker::noop());
        if Pin::new(&mut unconstrained(task.as_mut()))
            .poll(&mut cx)
            .is_pending()
        {
            spawn_local(task);
        }
    }

    async fn run_request(self: &Rc<Self>, scheduled: ScheduledRequest) {
        let ScheduledRequest {
            call,
            intended,
            phase,
            failed_connects,
        } = scheduled;
        if let Some(session_runner) = &self.session_runner
            && call.is_session
        {
            let first = ScheduledRequest {
                call,
                intended,
                phase,
                failed_connects,
            };
            let last_outcomes = session_runner.run_session(self, first).await;
            self.end_measured(phase);
            return self.conclude(last_outcomes, failed_connects).await;
        }
        if self.session_runner.is_some() && !self.admit_turn(phase) {
            self.end_measured(phase);
            return self.release(self.shared.clock.now(), 0);
        }
        let ended = self.call(call, intended, phase).await;
        self.end_measured(phase);
        let Some(over_at) = ended.over_at() else {
            return self
                .conclude(ended.complete().into(), failed_connects)
                .await;
        };
        self.release(over_at, 0);
        let_ready_tasks_run().await;
        self.deliver(ended.complete()).await;
    }

    /// Counts the end of a request or session of this phase, before its slot is free for the next one.
    fn end_measured(&self, phase: Phase) {
        if phase == Phase::Measured {
            self.shared.cooldown.end();
        }
    }

    /// Frees the slot of a request or session that was over at `at`, and begins what is due. `failed_connects`:
    /// consecutive failed connections of its user.
    fn release(self: &Rc<Self>, at: Nanos, failed_connects: u32) {
        if let Some(in_flight_limit) = &self.shared.in_flight_limit {
            in_flight_limit.leave(at);
        }
        match &self.shared.barrier {
            Some(barrier) => {
                self.concurrency_limit.wait_for_batch(failed_connects);
                barrier.request_ended(at);
            }
            None => {
                self.concurrency_limit.free_slot(at, failed_connects);
                self.begin_due();
            }
        }
    }

    /// Resolves when requests in flight are cancelled.
    pub(crate) async fn cancelled(&self) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self
            .cancel
            .subscribe()
            .wait_for(|cancelled| *cancelled)
            .await;
    }

    pub(crate) async fn deliver_all(&self, outcomes: Outcomes) {
        for finished in outcomes {
            self.deliver(finished).await;
        }
    }

    pub(crate) async fn deliver(&self, finished: CompletedCall) {
        self.shared.target_health.record(&finished.outcome);
        self.pass_on(finished).await;
    }

    async fn pass_on(&self, finished: CompletedCall) {
        // The collector outlives the workers. Without it, its error is reported, and nothing more can be recorded.
        if self.results.send(finished).await.is_err() {
            self.shared.halt.press();
        }
    }

    /// Waits for requests in flight: up to the drain time after sending ended by time, by `stop` or by the end of the
    /// cool-down, else without limit.
    async fn drain(&self) {
        let drain_time_over = async {
            tokio::select! {
                () = self.drain_time_over() => {}
                () = async {
                    tokio::select! {
                        () = self.shared.stop.reached(Level::Drain) => {}
                        () = self.shared.cooldown.is_over() => {}
                    }
                    tokio::time::sleep(self.shared.drain_time.into()).await;
                } => {}
            }
        };
        tokio::select! {
            biased;
            () = self.concurrency_limit.none_in_flight() => return,
            () = self.shared.stop.reached(Level::Now) => {}
            () = self.shared.halt.reached(Level::Drain) => {}
            () = drain_time_over => {}
        }
        self.cancel.send_replace(true);
        self.concurrency_limit.none_in_flight().await;
    }

    /// Delivers the last outcomes of a request or session and frees its slot. In a closed loop, a user whose
    /// connection failed waits before its slot is free; `failed_connects` counts its consecutive failures before this
    /// one. An open loop keeps its schedule.
    async fn conclude(self: &Rc<Self>, outcomes: Outcomes, failed_connects: u32) {
        let Some(failed) = outcomes
            .first()
            .and_then(|finished| FailedConnect::new(&finished.outcome))
        else {
            // A failure may end the round: then no further request is sent.
            if let Some(first) = outcomes.first() {
                self.shared.target_health.record(&first.outcome);
            }
            self.release(self.shared.clock.now(), 0);
            for finished in outcomes {
                self.pass_on(finished).await;
            }
            return;
        };
        let SharedState { closed, seed, .. } = self.shared;
        if !closed {
            self.release(self.shared.clock.now(), 0);
        }
        self.deliver_all(outcomes).await;
        self.check_target(&failed).await;
        if closed {
            let failed_connects = failed_connects.saturating_add(failed.attempts);
            let seed = seed
                .child("reconnect")
                .child(failed.seq)
                .child(u64::from(failed.turn));
            tokio::select! {
                () = tokio::time::sleep(connect_backoff(failed_connects, seed).into()) => {}
                () = self.shared.exhausted.reached(Level::Drain) => {}
            }
            self.release(self.shared.clock.now(), failed_connects);
        }
    }

    /// Opens one more connection to each URL if all have failed for long: if these fail too, the target is lost.
    async fn check_target(&self, failed: &FailedConnect) {
        let target_health = &self.shared.target_health;
        if target_health.must_check(failed.at) {
            let why = self.engine.why_unreachable(LAST_CONNECT_TIMEOUT).await;
            let why = why.map(|_| failed.message.as_str());
            target_health.conclude_check(self.shared.clock.now(), why);
        }
    }

    /// Checks at the end of the round whether the target was lost too late for [`Worker::check_target`].
    async fn check_target_at_end(&self) {
        let SharedState {
            target_health,
            stop,
            halt,
            clock,
            ..
        } = &self.shared;
        let Some(until) = target_health.leave() else {
            return;
        };
        loop {
            let why = self.engine.why_unreachable(LAST_CONNECT_TIMEOUT).await;
            let is_running = stop.level() == Level::Run && halt.level() == Level::Run;
            if why.is_none() || clock.now() >= until || !is_running {
                let why = why.filter(|_| is_running);
                return target_health.conclude_check(clock.now(), why.as_deref());
            }
            tokio::time::sleep(LAST_CONNECT_INTERVAL).await;
        }
    }

    /// Starts the task that ends sessions when sending ends; None without sessions of several turns.
    fn start_session_watch(self: &Rc<Self>) -> Option<JoinHandle<()>> {
        self.session_runner.as_ref()?;
        let this = self.clone();
        Some(spawn_local(async move {
            if let Some(session_runner) = &this.session_runner {
                session_runner.watch_for_end(&this).await;
            }
        }))
    }

    /// Starts the task that changes the number of users, or that opens the batches of a static load.
    fn start_user_ramp(self: &Rc<Self>) -> Option<JoinHandle<()>> {
        let this = self.clone();
        if let Some(barrier) = &self.shared.barrier {
            let mut openings = barrier.openings();
            return Some(spawn_local(async move {
                while openings.changed().await.is_ok() {
                    let opened = *openings.borrow_and_update();
                    this.concurrency_limit.open_batch(opened);
                    this.begin_due();
                }
            }));
        }
        self.concurrency_limit.next_change()?;
        Some(spawn_local(async move {
            while let Some(at) = this.concurrency_limit.next_change() {
                this.ramp_timer.until(this.shared.clock.instant(at)).await;
                this.concurrency_limit.apply_changes(at);
                this.begin_due();
            }
        }))
    }
}

/// Lets every task run first that is ready now: users of single requests whose responses end together all send their
/// next requests before the outcome of any of them is built.
async fn let_ready_tasks_run() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        // Not `yield_now`: that waits for the next look at the sockets, too.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A request that did not reach the target.
struct FailedConnect {
    seq: u64,
    turn: u32,
    at: Nanos,
    attempts: u32,
    message: String,
}

impl FailedConnect {
    fn new(outcome: &Outcome) -> Option<FailedConnect> {
        let message = connect_failure(outcome)?.message.clone();
        let Outcome {
            seq,
            turn,
            attempts,
            ..
        } = *outcome;
        Some(FailedConnect {
            seq,
            turn,
            at: outcome.timeline.end,
            attempts: attempts.max(1),
            message,
        })
    }
}
