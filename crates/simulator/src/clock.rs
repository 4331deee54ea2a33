//! The simulator's clock, and a timer with a finer resolution than tokio's 1 ms.

use llmscen_core::units::Nanos;
use std::io;
use std::time::Instant;

/// Nanoseconds since an origin that is shared with the client, so that its timestamps and the truth log are comparable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(super) fn since(origin: Instant) -> Clock {
        Clock { origin }
    }

    pub(super) fn now(self) -> Nanos {
        Nanos::from(self.origin.elapsed())
    }
}

/// Waits until instants of a [`Clock`]. A past deadline still yields once to other tasks.
#[cfg(target_os = "linux")]
pub(super) struct Timer {
    clock: Clock,
    fd: tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>,
}

#[cfg(target_os = "linux")]
impl Timer {
    /// A timer with a file descriptor; requires a tokio runtime.
    pub(super) fn new(clock: Clock) -> io::Result<Timer> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that swap their descriptor; an OwnedFd cannot"
        )]
        let fd = tokio::io::unix::AsyncFd::with_interest(fd, tokio::io::Interest::READABLE)?;
        Ok(Timer { clock, fd })
    }

    /// Returns at `deadline` or slightly later.
    pub(super) async fn until(&self, deadline: Nanos) -> io::Result<()> {
        let left = deadline.since(self.clock.now());
        if left == Nanos::ZERO {
            tokio::task::yield_now().await;
            return Ok(());
        }
        self.arm(left)?;
        loop {
            let mut ready = self.fd.readable().await?;
            let read = ready.try_io(|fd| {
                rustix::io::read(fd.get_ref(), &mut [0u8; 8]).map_err(io::Error::from)
            });
            if let Ok(fired) = read {
                return fired.map(drop);
            }
        }
    }

    fn arm(&self, left: Nanos) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let once = Timespec {
            tv_sec: (left.0 / 1_000_000_000) as i64,
            tv_nsec: (left.0 % 1_000_000_000) as _,
        };
        timerfd_settime(
            self.fd.get_ref(),
            TimerfdTimerFlags::empty(),
            &Itimerspec {
                it_interval: zero,
                it_value: once,
            },
        )?;
        Ok(())
    }
}

/// Sleeps until 2 ms before the deadline, and yields for the rest.
#[cfg(not(target_os = "linux"))]
pub(super) struct Timer {
    clock: Clock,
}

#[cfg(not(target_os = "linux"))]
impl Timer {
    pub(super) fn new(clock: Clock) -> io::Result<Timer> {
        Ok(Timer { clock })
    }

    pub(super) async fn until(&self, deadline: Nanos) -> io::Result<()> {
        let coarse = deadline
            .since(self.clock.now())
            .since(Nanos::from_millis(2));
        if coarse > Nanos::ZERO {
            tokio::time::sleep(coarse.into()).await;
        }
        tokio::task::yield_now().await;
        while self.clock.now() < deadline {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn it_never_fires_early_and_passed_deadlines_return_at_once() {
        let clock = Clock::since(Instant::now());
        let timer = Timer::new(clock).unwrap();
        for step in 1..=20 {
            let deadline = Nanos(step * 300_000);
            timer.until(deadline).await.unwrap();
            assert!(clock.now() >= deadline);
        }
        let before = clock.now();
        timer.until(Nanos::ZERO).await.unwrap();
        assert!(clock.now().since(before) < Nanos::from_millis(1_000));
    }
}
