//! Many waits on one timer: the think times of one lane.

use crate::run::timer::Timer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;
use tokio::sync::{Notify, oneshot};

/// Waits for absolute instants, any number at once; [`Alarms::ring`] must run beside them.
pub struct Alarms {
    timer: Timer,
    waiting: RefCell<Waiting>,
    set: Notify,
}

#[derive(Default)]
struct Waiting {
    bells: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    number: u64,
}

impl Alarms {
    /// Alarms on a timer of their own, which must have been made on the lane that waits.
    pub fn new(timer: Timer) -> Alarms {
        Alarms { timer, waiting: RefCell::default(), set: Notify::new() }
    }

    /// Resolves at `instant`, or at once where that has passed.
    pub async fn until(&self, instant: Instant) {
        if instant <= Instant::now() {
            return;
        }
        let (bell, rung) = oneshot::channel();
        {
            let mut waiting = self.waiting.borrow_mut();
            waiting.number += 1;
            let key = (instant, waiting.number);
            waiting.bells.insert(key, bell);
        }
        self.set.notify_one();
        // The bells live as long as self: the only answer is a ring.
        let _ = rung.await;
    }

    /// Wakes every wait at its instant; never ends.
    pub async fn ring(&self) {
        loop {
            let next = self.waiting.borrow().bells.keys().next().map(|(instant, _)| *instant);
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
        while let Some(first) = waiting.bells.first_entry().filter(|first| first.key().0 <= now) {
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
    async fn a_wait_set_last_but_due_first_rings_first_and_none_rings_early() {
        let alarms = Alarms::new(Timer::new().unwrap());
        let start = Instant::now();
        let order = RefCell::new(Vec::new());
        let wait = async |millis: u64| {
            let due = start + Duration::from_millis(millis);
            alarms.until(due).await;
            assert!(Instant::now() >= due);
            order.borrow_mut().push(millis);
        };
        let given_up = tokio::time::timeout(Duration::from_millis(1), wait(30));
        tokio::select! {
            () = alarms.ring() => {}
            _ = async { tokio::join!(wait(60), wait(20), wait(40), wait(0), given_up) } => {}
        }
        assert_eq!(*order.borrow(), [0, 20, 40, 60]);
    }
}
