//! Waits for absolute instants to within tens of microseconds; tokio's own wheel is a millisecond coarse.

use std::io;
use std::time::Instant;

/// A timer of one lane. Each wait names an absolute instant, so lateness never adds up.
pub struct Timer(imp::Timer);

impl Timer {
    /// A timer; must be made on the lane that waits on it.
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
}
