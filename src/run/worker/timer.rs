//! Timers for absolute times with a precision of tens of microseconds, and many deadlines on one timer. Tokio's
//! timers have a precision of one millisecond.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;
use tokio::sync::{Notify, oneshot};

/// A timer of one worker. Each wait ends at an absolute time, so delays do not add up.
pub struct Timer(imp::Timer);

impl Timer {
    /// Must be called on the thread of the worker.
    pub fn new() -> io::Result<Timer> {
        imp::Timer::new().map(Timer)
    }

    /// Resolves at `instant`, or at once if that has passed.
    pub async fn until(&self, instant: Instant) {
        if instant > Instant::now() {
            self.0.until(instant).await;
        }
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
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
            #[expect(
                deprecated,
                reason = "its successor is unsafe for types that swap their descriptor; an OwnedFd cannot"
            )]
            AsyncFd::with_interest(fd, Interest::READABLE).map(Timer)
        }

        pub async fn until(&self, instant: Instant) {
            loop {
                let left = instant.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                let value = Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: i64::from(left.subsec_nanos()),
                };
                let zero = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                let once = Itimerspec {
                    it_interval: zero,
                    it_value: value,
                };
                // Neither call is expected to fail; if one does, the coarse timer is used.
                let armed =
                    timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once).is_ok();
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

    /// More than the resolution of tokio's timers; the rest is waited for by yielding.
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

/// Waits for any number of absolute times at once. [`Deadlines::wake_due`] must run at the same time.
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
    /// Deadlines on `timer`, which no other task uses.
    pub fn new(timer: Timer) -> Deadlines {
        Deadlines {
            timer,
            waiting: RefCell::default(),
            set: Notify::new(),
        }
    }

    /// Resolves at `instant`, or at once if that has passed.
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
        // The wakers live as long as self, so this cannot fail.
        let _ = woken.await;
    }

    /// Wakes every wait when it is due; never ends.
    pub async fn wake_due(&self) {
        loop {
            let next = self
                .waiting
                .borrow()
                .wakers
                .keys()
                .next()
                .map(|(instant, _)| *instant);
            let Some(next) = next else {
                self.set.notified().await;
                continue;
            };
            tokio::select! {
                () = self.timer.until(next) => self.wake_until(Instant::now()),
                () = self.set.notified() => {}
            }
        }
    }

    fn wake_until(&self, now: Instant) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(first) = waiting
            .wakers
            .first_entry()
            .filter(|first| first.key().0 <= now)
        {
            // The receiver may have been cancelled.
            let _ = first.remove().send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn it_never_fires_early_and_a_past_time_is_due_at_once() {
        let timer = Timer::new().unwrap();
        for micros in [1, 300, 1500] {
            let due = Instant::now() + Duration::from_micros(micros);
            timer.until(due).await;
            assert!(Instant::now() >= due);
        }
        timer.until(Instant::now() - Duration::from_secs(1)).await;
    }

    #[tokio::test]
    async fn a_cancelled_wait_does_not_disturb_the_next() {
        let timer = Timer::new().unwrap();
        let long = timer.until(Instant::now() + Duration::from_secs(60));
        assert!(
            tokio::time::timeout(Duration::from_millis(2), long)
                .await
                .is_err()
        );
        let due = Instant::now() + Duration::from_millis(5);
        timer.until(due).await;
        let late = due.elapsed();
        assert!(late < Duration::from_secs(30), "{late:?}");
    }

    #[tokio::test]
    async fn waits_end_in_the_order_of_their_times_and_none_early() {
        let deadlines = Deadlines::new(Timer::new().unwrap());
        let start = Instant::now();
        let order = RefCell::new(Vec::new());
        let wait = async |millis: u64| {
            let due = start + Duration::from_millis(millis);
            deadlines.until(due).await;
            assert!(Instant::now() >= due);
            order.borrow_mut().push(millis);
        };
        let cancelled = tokio::time::timeout(Duration::from_millis(1), wait(30));
        tokio::select! {
            () = deadlines.wake_due() => {}
            _ = async { tokio::join!(wait(0), wait(20), wait(40), wait(60), cancelled) } => {}
        }
        assert_eq!(*order.borrow(), [0, 20, 40, 60]);
    }
}
