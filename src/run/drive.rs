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
    pub engine: Http,
    /// Slots (closed loop) and requests in flight.
    pub gate: Gate,
    /// Rendered calls.
    pub queue: Receiver<Call>,
    /// What a closed loop may still send, and when the time of any loop is up.
    pub quota: Arc<Quota>,
    /// Whether the slots decide when a request leaves, or the plan does.
    pub closed: bool,
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
    /// How long requests in flight may go on once sending has ended by time or by the switch.
    pub grace: Nanos,
    /// Whether time bounds the case.
    pub timed: bool,
    /// True gives up every request in flight.
    pub cancel: watch::Sender<bool>,
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
            () = self.halt.reached(Level::Drain) => None,
            departure = async { if self.closed { self.next_closed().await } else { self.next_open().await } } => departure,
        }
    }

    async fn next_closed(&self) -> Option<Departure> {
        let ready = async {
            let intended = self.gate.slot().await;
            Some((intended, self.queue.recv().await.ok()?))
        };
        let (intended, call) = tokio::select! {
            biased;
            ready = ready => ready?,
            () = self.deadline() => return None,
        };
        let phase = self.quota.admit(call.seq, intended)?;
        Some(Departure { call, intended, phase })
    }

    async fn next_open(&self) -> Option<Departure> {
        let call = self.queue.recv().await.ok()?;
        let (intended, phase) = call.due?;
        self.timer.until(self.clock.instant(intended)).await;
        if phase == Phase::Measured {
            self.quota.begin(intended);
        }
        Some(Departure { call, intended, phase })
    }

    /// Resolves when a duration ends the sending; never, where none does.
    async fn deadline(&self) {
        if !self.timed {
            return std::future::pending().await;
        }
        loop {
            match self.quota.deadline() {
                Some(end) => return self.timer.until(self.clock.instant(end)).await,
                None => tokio::time::sleep(LOOK).await,
            }
        }
    }

    async fn send(self: Rc<Self>, departure: Departure) {
        let Departure { call, intended, phase } = departure;
        if let Some(room) = &self.room
            && !room.enter()
        {
            let outcome = dropped(&call, phase, intended, &format!("max_in_flight of {} was reached", room.most));
            return self.deliver(Finished { outcome, text: None, message: None }).await;
        }
        let flight = Flight::new(self.clone());
        tokio::task::spawn_local(async move {
            let mut cancel = self.cancel.subscribe();
            let cancelled = async {
                let _ = cancel.wait_for(|given_up| *given_up).await;
            };
            let finished = self.engine.call(call, intended, phase, cancelled).await;
            if let Some(room) = &self.room {
                room.taken.fetch_sub(1, Ordering::Relaxed);
            }
            self.gate.free(self.clock.now());
            self.deliver(finished).await;
            // Only now: the lane ends when nothing is in flight, and a full channel must not cost an outcome then.
            drop(flight);
        });
    }

    async fn deliver(&self, finished: Finished) {
        // The collector outlives the lanes; were it gone, its own error says why, and there is nothing left to send for.
        if self.results.send(finished).await.is_err() {
            self.halt.press();
        }
    }

    /// Waits for what is in flight: for the grace once the time is up or the switch is pressed, else without a bound.
    async fn wind_down(&self) {
        let grace = async {
            tokio::select! {
                () = self.deadline() => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::gauges::{Gauges, Reading};
    use crate::engine::http::Setting;
    use crate::engine::route::Route;
    use crate::model::api::Api;
    use crate::model::load::{Load, Shape, Warmup};
    use crate::model::target::{Place, Pool, Target, Timeouts, Tls};
    use async_channel::bounded;
    use std::net::TcpListener;

    const MINUTE: Nanos = Nanos(60_000_000_000);

    fn drive(url: &str, calls: u64, (results, gauges): (Sender<Finished>, Arc<Gauges>), stop: Stop) -> Drive {
        let clock = Clock::starting(std::time::Instant::now());
        let target = Target {
            api: Api::OpenaiChat,
            place: Place::Url(url.to_owned()),
            models: Vec::new(),
            api_key: None,
            headers: Vec::new(),
            timeouts: Timeouts { connect: MINUTE, read: MINUTE, total: MINUTE },
            tls: Tls::default(),
            pool: Pool::KeepAlive,
            version: Default::default(),
            compression: Default::default(),
            gpus: None,
        };
        let route = Route::new(url, &target.tls, &Default::default()).unwrap();
        let shape = Shape::Closed { users: calls as u32 };
        let warmup = Warmup::Requests(0);
        let load = Load { shape, requests: Some(calls), duration: None, warmup, graceful_stop: MINUTE, max_in_flight: None };
        let (sender, queue) = bounded(calls as usize);
        (0..calls).for_each(|seq| sender.try_send(Call { seq, ..Call::default() }).unwrap());
        Drive {
            engine: Http::new(
                &target,
                &route,
                Setting { clock, gauges, protocol: crate::wire::protocol(Api::OpenaiChat, None).unwrap(), keep_text: false },
            )
            .unwrap(),
            gate: Gate::new(calls as usize),
            queue,
            quota: Arc::new(Quota::new(&load)),
            closed: true,
            room: None,
            results,
            stop,
            halt: Stop::default(),
            clock,
            timer: Timer::new().unwrap(),
            grace: load.graceful_stop,
            timed: false,
            cancel: watch::Sender::new(false),
        }
    }

    #[test]
    fn a_full_channel_costs_no_outcome_when_all_is_given_up() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let (stop, gauges) = (Stop::default(), Arc::<Gauges>::default());
        let (sender, results) = bounded(1);
        let collector = std::thread::spawn({
            let (stop, gauges) = (stop.clone(), gauges.clone());
            move || {
                while gauges.add_to(Reading::default()).in_flight < 20 {
                    std::thread::yield_now();
                }
                stop.press();
                stop.press();
                // Behind the lane: its requests end meanwhile, and all but one outcome wait for room.
                std::thread::sleep(Duration::from_millis(300));
                std::iter::from_fn(|| results.recv_blocking().ok()).count()
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            Rc::new(drive(&url, 20, (sender, gauges), stop)).run().await;
        });
        assert_eq!(collector.join().unwrap(), 20);
    }
}
