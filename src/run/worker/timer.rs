//! Timers for absolute instants, exact to tens of microseconds, and many deadlines on one timer. Tokio's own timers are exact to
//! a millisecond only.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;
use tokio::sync::{Notify, oneshot};

/// A timer of one worker. Each wait names an absolute instant, so lateness never adds up.
pub struct Timer(imp::Timer);

impl Timer {
    /// A timer; must be made on the worker that waits on it.
    pub fn new() -> io::Result<Timer> {
        imp::Timer::new().map(Timer)
    }

    /// Resolves at `instant`, or at once where that has passed.
    pub async fn until(&self, instant: Instant) {
        if instant > Instant::now() {
            self.0.until(instant).await;
        }
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Instant;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    pub struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        pub fn new() -> io::Result<Timer> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            #[expect(deprecated, reason = "its successor is unsafe for types that swap their descriptor; an OwnedFd cannot")]
            AsyncFd::with_interest(fd, Interest::READABLE).map(Timer)
        }

        pub async fn until(&self, instant: Instant) {
            loop {
                let left = instant.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                let value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
                let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
                let once = Itimerspec { it_interval: zero, it_value: value };
                // Neither call can fail on a timer of our own; if one did, the coarse timer still gets there.
                let armed = timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once).is_ok();
                match self.0.readable().await {
                    Ok(mut ready) if armed => {
                        let _ = rustix::io::read(self.0.get_ref(), &mut [0u8; 8]);
                        ready.clear_ready();
                    }
                    _ => tokio::time::sleep(left).await,
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::time::{Duration, Instant};

    /// The wheel's granularity, with room: the rest is waited out by yielding.
    const COARSE: Duration = Duration::from_millis(2);

    pub struct Timer;

    impl Timer {
        pub fn new() -> io::Result<Timer> {
            Ok(Timer)
        }

        pub async fn until(&self, instant: Instant) {
            if let Some(early) = instant.checked_sub(COARSE) {
                tokio::time::sleep_until(early.into()).await;
            }
            while Instant::now() < instant {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Waits for absolute instants, any number at once; [`Deadlines::ring`] must run beside them.
pub struct Deadlines {
    timer: Timer,
    waiting: RefCell<Waiting>,
    set: Notify,
}

#[derive(Default)]
struct Waiting {
    wakers: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    number: u64,
}

impl Deadlines {
    /// Deadlines on a timer of their own, which must have been made on the worker that waits.
    pub fn new(timer: Timer) -> Deadlines {
        Deadlines { timer, waiting: RefCell::default(), set: Notify::new() }
    }

    /// Resolves at `instant`, or at once where that has passed.
    pub async fn until(&self, instant: Instant) {
        if instant <= Instant::now() {
            return;
        }
        let (waker, woken) = oneshot::channel();
        {
            let mut waiting = self.waiting.borrow_mut();
            waiting.number += 1;
            let key = (instant, waiting.number);
            waiting.wakers.insert(key, waker);
        }
        self.set.notify_one();
        // The wakers live as long as self: the only answer is a ring.
        let _ = woken.await;
    }

    /// Wakes every wait at its instant; never ends.
    pub async fn wake_due(&self) {
        loop {
            let next = self.waiting.borrow().wakers.keys().next().map(|(instant, _)| *instant);
            let Some(next) = next else {
                self.set.notified().await;
                continue;
            };
            tokio::select! {
                () = self.timer.until(next) => self.ring_due(Instant::now()),
                () = self.set.notified() => {}
            }
        }
    }

    fn ring_due(&self, now: Instant) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(first) = waiting.wakers.first_entry().filter(|first| first.key().0 <= now) {
            // Whoever waited may have given up.
            let _ = first.remove().send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn it_never_fires_early_and_the_past_is_now() {
        let timer = Timer::new().unwrap();
        for micros in [1, 300, 1500] {
            let due = Instant::now() + Duration::from_micros(micros);
            timer.until(due).await;
            assert!(Instant::now() >= due);
        }
        timer.until(Instant::now() - Duration::from_secs(1)).await;
    }

    #[tokio::test]
    async fn a_wait_that_was_given_up_does_not_disturb_the_next() {
        let timer = Timer::new().unwrap();
        let long = timer.until(Instant::now() + Duration::from_secs(60));
        assert!(tokio::time::timeout(Duration::from_millis(2), long).await.is_err());
        let due = Instant::now() + Duration::from_millis(5);
        timer.until(due).await;
        let late = due.elapsed();
        assert!(late < Duration::from_secs(30), "{late:?}");
    }

    #[tokio::test]
    async fn a_wait_set_last_but_due_first_rings_first_and_none_rings_early() {
        let deadlines = Deadlines::new(Timer::new().unwrap());
        let start = Instant::now();
        let order = RefCell::new(Vec::new());
        let wait = async |millis: u64| {
            let due = start + Duration::from_millis(millis);
            deadlines.until(due).await;
            assert!(Instant::now() >= due);
            order.borrow_mut().push(millis);
        };
        let given_up = tokio::time::timeout(Duration::from_millis(1), wait(30));
        tokio::select! {
            () = deadlines.wake_due() => {}
            _ = async { tokio::join!(wait(60), wait(20), wait(40), wait(0), given_up) } => {}
        }
        assert_eq!(*order.borrow(), [0, 20, 40, 60]);
    }
}
