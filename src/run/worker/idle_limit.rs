//! `load.max_idle`: while no session has a request in flight, the think times of all of them end earlier.
//!
//! ```text
//! requests   ██████                      ██
//! waits            ├─────────────────────────────┤ due
//!                  ├─ max_idle ─┤├─skipped─┤
//! ```
//! The time that is skipped is the same for all sessions, so their order and the gaps between their turns stay as
//! they are.

use crate::run::worker::timer::Deadlines;
use llmscen_client::clock::Clock;
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Time between two checks while nothing waits.
const RETRY: Duration = Duration::from_millis(50);

/// The longest time without a request in flight, over all workers of a shard.
pub struct IdleLimit {
    max: Nanos,
    clock: Clock,
    state: Mutex<IdleState>,
    /// By how much think times were shortened so far.
    skipped: watch::Sender<Nanos>,
}

#[derive(Default)]
struct IdleState {
    in_flight: u64,
    idle_since: Nanos,
    /// When the turns that wait would be due without any skipped time, and their numbers.
    due: BTreeSet<(Nanos, u64)>,
    number: u64,
}

impl IdleLimit {
    /// A limit with nothing in flight.
    pub fn new(max: Nanos, clock: Clock) -> IdleLimit {
        IdleLimit {
            max,
            clock,
            state: Mutex::default(),
            skipped: watch::Sender::default(),
        }
    }

    /// Counts a request as in flight until the guard is dropped.
    pub fn enter(&self) -> InFlight<'_> {
        self.lock().in_flight += 1;
        InFlight(self)
    }

    /// The time that was skipped so far.
    pub fn skipped(&self) -> Nanos {
        *self.skipped.borrow()
    }

    /// Waits for the end of a think time, `due` if nothing is skipped until then. Returns when the turn is due.
    pub async fn wait(&self, due: Nanos, deadlines: &Deadlines) -> Nanos {
        let mut skipped = self.skipped.subscribe();
        let place = Waiting::new(self, due + *skipped.borrow_and_update());
        loop {
            let due = place.due.0 - *skipped.borrow_and_update();
            tokio::select! {
                () = deadlines.until(self.clock.instant(due)) => return due,
                // The sender lives in self.
                _ = skipped.changed() => {}
            }
        }
    }

    /// Skips time whenever nothing was in flight for the limit; never ends. Several workers may run it at once.
    pub async fn watch(&self) {
        loop {
            let now = self.clock.now();
            let next = self.skip(now);
            // With a limit of zero, the loop must not spin.
            let wait = Duration::from(next.since(now)).max(Duration::from_micros(100));
            tokio::time::sleep(wait).await;
        }
    }

    /// Skips time if the limit is reached. Returns when it may be reached next.
    fn skip(&self, now: Nanos) -> Nanos {
        let state = self.lock();
        if state.in_flight > 0 {
            return now + self.max;
        }
        let over = state.idle_since + self.max;
        let skipped = self.skipped();
        match state.due.first() {
            _ if now < over => over,
            Some((due, _)) if *due > now + skipped => {
                self.skipped.send_replace(due.since(now));
                now + self.max
            }
            _ => now + Nanos::from(RETRY),
        }
    }

    /// A panic of another worker ends the round, and leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, IdleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in flight.
pub struct InFlight<'a>(&'a IdleLimit);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let now = self.0.clock.now();
        let mut state = self.0.lock();
        state.in_flight -= 1;
        state.idle_since = state.idle_since.max(now);
    }
}

/// A turn that waits.
struct Waiting<'a> {
    limit: &'a IdleLimit,
    due: (Nanos, u64),
}

impl Waiting<'_> {
    fn new(limit: &IdleLimit, due: Nanos) -> Waiting<'_> {
        let mut state = limit.lock();
        state.number += 1;
        let due = (due, state.number);
        state.due.insert(due);
        Waiting { limit, due }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.limit.lock().due.remove(&self.due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::worker::timer::Timer;
    use std::time::Instant;

    fn ms(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    #[test]
    fn time_is_skipped_after_the_limit_without_a_request() {
        let limit = IdleLimit::new(ms(10), Clock::new(Instant::now()));
        let first = Waiting::new(&limit, ms(1_000));
        let _second = Waiting::new(&limit, ms(1_500));
        let request = limit.enter();
        assert_eq!(
            (limit.skip(ms(5)), limit.skipped()),
            (ms(15), ms(0)),
            "a request is in flight"
        );
        drop(request);
        limit.lock().idle_since = ms(20);
        assert_eq!(
            (limit.skip(ms(25)), limit.skipped()),
            (ms(30), ms(0)),
            "not idle for long enough"
        );
        limit.skip(ms(30));
        assert_eq!(limit.skipped(), ms(970), "the first one is due at 30 ms");
        drop(first);
        limit.skip(ms(45));
        assert_eq!(limit.skipped(), ms(1_455), "the second one 15 ms later");
        limit.skip(ms(45));
        assert_eq!(
            limit.skipped(),
            ms(1_455),
            "what is due is not skipped again"
        );
    }

    #[tokio::test]
    async fn a_wait_ends_when_its_rest_is_skipped() {
        let clock = Clock::new(Instant::now());
        let limit = IdleLimit::new(ms(1), clock);
        let deadlines = Deadlines::new(Timer::new().unwrap());
        let due = tokio::select! {
            due = limit.wait(ms(3_600_000), &deadlines) => due,
            () = limit.watch() => unreachable!(),
            () = deadlines.wake_due() => unreachable!(),
        };
        assert!(
            due >= ms(1) && due < ms(3_600_000) && due <= clock.now(),
            "{due:?}"
        );
    }
}
