//! Virtual time for threads: it advances when all threads sleep, and one thread runs at a time, so that a test has
//! one outcome.

use crate::run::sharding::clock::{ClockReading, GroupClock};
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// A test that runs for longer has an endless wait.
const END: u64 = 36_000_000_000_000;
/// Unix time at the start, nanoseconds.
const EPOCH: u64 = 1_800_000_000_000_000_000;

#[derive(Default)]
pub struct World(Mutex<Order>);

#[derive(Default)]
struct Order {
    now: u64,
    next: u64,
    /// Sleeping threads by the time at which they wake, then by the order of their calls.
    sleeping: BTreeMap<(u64, u64), Thread>,
    running: Option<u64>,
}

impl World {
    pub fn now(&self) -> u64 {
        self.0.lock().unwrap().now
    }

    /// Adds a thread. It runs from [`World::start`], or when its creator sleeps.
    pub fn spawn<T: Send + 'static>(
        self: &Arc<World>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let mut order = self.0.lock().unwrap();
        let ticket = order.next;
        order.next += 1;
        let world = self.clone();
        let handle = thread::spawn(move || {
            world.await_turn(ticket);
            let _turn = Turn(world);
            work()
        });
        let now = order.now;
        order
            .sleeping
            .insert((now, ticket), handle.thread().clone());
        handle
    }

    pub fn start(&self) {
        self.wake_next();
    }

    pub fn sleep_until(&self, wake: u64) {
        let ticket = {
            let mut order = self.0.lock().unwrap();
            let ticket = order.next;
            order.next += 1;
            let wake = wake.max(order.now);
            order.sleeping.insert((wake, ticket), thread::current());
            ticket
        };
        self.wake_next();
        self.await_turn(ticket);
    }

    fn wake_next(&self) {
        let mut order = self.0.lock().unwrap();
        let next = order.sleeping.pop_first();
        order.running = next.as_ref().map(|((_, ticket), _)| *ticket);
        if let Some(((wake, _), thread)) = next {
            order.now = wake;
            thread.unpark();
        }
    }

    fn await_turn(&self, ticket: u64) {
        loop {
            let order = self.0.lock().unwrap();
            assert!(order.now < END, "a wait has no end");
            if order.running == Some(ticket) {
                return;
            }
            drop(order);
            thread::park();
        }
    }
}

/// Lets the next thread run when this one ends.
struct Turn(Arc<World>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.wake_next();
    }
}

/// The clocks of one process in the world.
pub struct VirtualClock {
    pub world: Arc<World>,
    /// World time minus the time of this process, nanoseconds.
    pub started: i64,
    /// What the kernel's monotonic clock is ahead of the world.
    pub kernel: u64,
    /// What the wall clock is ahead of the world's.
    pub skew: AtomicI64,
    pub error_ns: Option<u64>,
    /// The process stands still until then.
    pub paused_until: AtomicU64,
    pub dead: AtomicBool,
}

impl VirtualClock {
    pub fn new(world: &Arc<World>, started: i64) -> VirtualClock {
        VirtualClock {
            world: world.clone(),
            started,
            kernel: 5_000_000_000,
            skew: AtomicI64::new(0),
            error_ns: None,
            paused_until: AtomicU64::new(0),
            dead: AtomicBool::new(false),
        }
    }

    /// World time of a time of this process.
    pub fn in_world(&self, time: Nanos) -> i64 {
        time.0 as i64 + self.started
    }
}

impl GroupClock for VirtualClock {
    fn now(&self) -> Nanos {
        Nanos((self.world.now() as i64 - self.started) as u64)
    }

    fn sleep(&self, span: Duration) {
        let wake = self.world.now() + span.as_nanos() as u64;
        self.world
            .sleep_until(wake.max(self.paused_until.load(Ordering::Relaxed)));
        let paused_until = self.paused_until.load(Ordering::Relaxed);
        if paused_until > self.world.now() {
            self.world.sleep_until(paused_until);
        }
        if self.dead.load(Ordering::Relaxed) {
            // Ends the thread without a message.
            resume_unwind(Box::new(()));
        }
    }

    fn read(&self) -> ClockReading {
        let unix = (EPOCH + self.world.now()) as i64 + self.skew.load(Ordering::Relaxed);
        ClockReading {
            now: self.now(),
            monotonic_ns: self.world.now() + self.kernel,
            unix_ns: unix as u64,
            error_ns: self.error_ns,
        }
    }

    fn spawn(&self, _: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        Ok(self.world.spawn(work))
    }
}
