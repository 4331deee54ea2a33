//! The free slots of one lane, and its requests in flight.

use crate::model::units::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use tokio::sync::Notify;

/// Slots are instants: each is the time at which it became free, which is a closed-loop request's `intended`.
#[derive(Default)]
pub struct Gate {
    free: RefCell<VecDeque<Nanos>>,
    freed: Notify,
    in_flight: Cell<usize>,
    idle: Notify,
}

impl Gate {
    /// A gate with so many slots, all free since the start of the case.
    pub fn new(slots: usize) -> Gate {
        Gate { free: RefCell::new(VecDeque::from(vec![Nanos::ZERO; slots])), ..Gate::default() }
    }

    /// The slot that has been free for longest; waits for one.
    pub async fn slot(&self) -> Nanos {
        loop {
            // The borrow ends before the wait: nothing else may hold the queue then.
            let slot = self.free.borrow_mut().pop_front();
            match slot {
                Some(since) => return since,
                None => self.freed.notified().await,
            }
        }
    }

    /// A request leaves.
    pub fn enter(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// A request has ended: its slot is free since `at`.
    pub fn free(&self, at: Nanos) {
        self.free.borrow_mut().push_back(at);
        self.freed.notify_one();
    }

    /// A request is over, its outcome in the collector's hands.
    pub fn leave(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
        if self.in_flight.get() == 0 {
            self.idle.notify_one();
        }
    }

    /// Resolves when nothing is in flight.
    pub async fn empty(&self) {
        while self.in_flight.get() > 0 {
            self.idle.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[tokio::test]
    async fn a_slot_carries_the_instant_at_which_it_became_free() {
        let gate = Rc::new(Gate::new(1));
        assert_eq!(gate.slot().await, Nanos::ZERO);
        gate.enter();
        let local = tokio::task::LocalSet::new();
        let waiting = gate.clone();
        let slot = local.run_until(async move {
            let waiter = tokio::task::spawn_local({
                let gate = waiting.clone();
                async move { gate.slot().await }
            });
            tokio::task::yield_now().await;
            waiting.free(Nanos(7));
            let slot = waiter.await.unwrap();
            waiting.leave();
            waiting.empty().await;
            slot
        });
        assert_eq!(slot.await, Nanos(7));
    }
}
