//! The free slots of one worker, and its requests in flight.

use llmscen_core::schedule::users::Change;
use llmscen_core::units::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Notify, watch};

/// Slots are instants: each is the time at which it became free, which is a closed-loop request's `intended`.
///
/// ```text
///            ┌── slot ── request ── free ──┐        a user who is to go leaves when a request ends:
///  a user ───┘◄────────────────────────────┘        the slot is not free again, and nothing is cancelled
///  comes: at that instant
/// ```
#[derive(Default)]
pub struct ConcurrencyLimit {
    free: RefCell<VecDeque<FreeSlot>>,
    /// Static load: the failed connections in a row of users that wait for the next batch.
    waiting: RefCell<Vec<u32>>,
    freed: Notify,
    in_flight: Cell<usize>,
    idle: Notify,
    /// Users who are still to come or go.
    changes: RefCell<VecDeque<Change>>,
    /// Slots that there are, free or not, and slots that there should be.
    slots: Cell<usize>,
    wanted: Cell<usize>,
}

/// A user who may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSlot {
    /// Since when.
    pub since: Nanos,
    /// Its connections in a row that failed.
    pub failed: u32,
}

impl ConcurrencyLimit {
    /// A concurrency limit whose users come and go like this; those who are there at the start of the case have free slots by now.
    pub fn new(changes: Vec<Change>) -> ConcurrencyLimit {
        let concurrency_limit = ConcurrencyLimit { changes: RefCell::new(changes.into()), ..ConcurrencyLimit::default() };
        concurrency_limit.pass(Nanos::ZERO);
        concurrency_limit
    }

    /// When the next user comes or goes.
    pub fn next_change(&self) -> Option<Nanos> {
        self.changes.borrow().front().map(|change| change.at)
    }

    /// Lets users come and go whose instant has come by `now`.
    pub fn pass(&self, now: Nanos) {
        loop {
            let due = self.changes.borrow_mut().pop_front_if(|change| change.at <= now);
            let Some(Change { at, more }) = due else { return };
            let wanted = self.wanted.get();
            self.wanted.set(if more { wanted + 1 } else { wanted.saturating_sub(1) });
            if self.slots.get() < self.wanted.get() {
                self.slots.set(self.slots.get() + 1);
                self.offer(at, 0);
            } else if self.slots.get() > self.wanted.get() && self.free.borrow_mut().pop_back().is_some() {
                self.slots.set(self.slots.get() - 1);
            }
        }
    }

    /// Every user sends again, all at `at`.
    pub fn refill(&self, at: Nanos) {
        let mut failed = self.waiting.take().into_iter();
        (0..self.wanted.get()).for_each(|_| self.offer(at, failed.next().unwrap_or(0)));
    }

    /// A user waits for the next batch, after so many connections in a row that failed.
    pub fn wait(&self, failed: u32) {
        self.waiting.borrow_mut().push(failed);
    }

    fn offer(&self, since: Nanos, failed: u32) {
        self.free.borrow_mut().push_back(FreeSlot { since, failed });
        self.freed.notify_one();
    }

    /// The slot that has been free for longest; waits for one.
    pub async fn slot(&self) -> FreeSlot {
        loop {
            // The borrow ends before the wait: nothing else may hold the queue then.
            let slot = self.free.borrow_mut().pop_front();
            match slot {
                Some(slot) => return slot,
                None => self.freed.notified().await,
            }
        }
    }

    /// A request leaves.
    pub fn enter(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// A request has ended: its slot is free since `at`, unless its user goes. `failed`: its connections in a row that failed.
    pub fn free(&self, at: Nanos, failed: u32) {
        self.pass(at);
        if self.slots.get() > self.wanted.get() {
            self.slots.set(self.slots.get() - 1);
        } else {
            self.offer(at, failed);
        }
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

/// The round that is under way, shared by all workers.
pub struct BatchBarrier {
    batch: u64,
    left: AtomicU64,
    latest: AtomicU64,
    /// When the round after this one began, for every round that did.
    opened: watch::Sender<Nanos>,
}

impl BatchBarrier {
    /// BatchBarrier of so many requests; the first one begins at zero.
    pub fn new(batch: u32) -> BatchBarrier {
        let batch = u64::from(batch);
        BatchBarrier { batch, left: AtomicU64::new(batch), latest: AtomicU64::new(0), opened: watch::Sender::new(Nanos::ZERO) }
    }

    /// A request of this round ended at `at`. The last one opens the next round at the latest of those instants, one
    /// reading of the clock for all of it.
    pub fn ended(&self, at: Nanos) {
        // Whoever is last sees every instant: each is written before its count is released.
        self.latest.fetch_max(at.0, Ordering::Relaxed);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.left.store(self.batch, Ordering::Relaxed);
            self.opened.send_replace(Nanos(self.latest.load(Ordering::Relaxed)));
        }
    }

    /// A view of the openings. No worker can miss one: the next round cannot end without that worker's requests.
    pub fn openings(&self) -> watch::Receiver<Nanos> {
        self.opened.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn more(at: u64) -> Change {
        Change { at: Nanos(at), more: true }
    }

    fn less(at: u64) -> Change {
        Change { at: Nanos(at), more: false }
    }

    fn free(concurrency_limit: &ConcurrencyLimit) -> Vec<u64> {
        concurrency_limit.free.borrow_mut().drain(..).map(|slot| slot.since.0).collect()
    }

    #[test]
    fn a_user_comes_at_its_instant_and_goes_when_a_request_ends() {
        let concurrency_limit = ConcurrencyLimit::new(vec![more(0), more(0), more(10), less(20), less(20), more(40)]);
        assert_eq!((free(&concurrency_limit), concurrency_limit.next_change()), (vec![0, 0], Some(Nanos(10))));
        concurrency_limit.pass(Nanos(15));
        assert_eq!(free(&concurrency_limit), [10]);
        concurrency_limit.free(Nanos(19), 0);
        assert_eq!(free(&concurrency_limit), [19]);
        // Three in flight, one wanted: the next two that end are not refilled, whatever ran the changes.
        concurrency_limit.free(Nanos(25), 0);
        concurrency_limit.free(Nanos(26), 0);
        assert_eq!((free(&concurrency_limit), concurrency_limit.slots.get()), (vec![], 1));
        concurrency_limit.free(Nanos(27), 0);
        concurrency_limit.pass(Nanos(50));
        assert_eq!((free(&concurrency_limit), concurrency_limit.next_change()), (vec![27, 40], None));
    }

    #[test]
    fn an_idle_user_goes_at_once_and_one_who_stays_too_long_is_not_replaced() {
        let idle = ConcurrencyLimit::new(vec![more(0), more(0), less(5)]);
        idle.pass(Nanos(5));
        assert_eq!(free(&idle), [0]);
        let busy = ConcurrencyLimit::new(vec![more(0), less(5), more(8)]);
        assert_eq!(free(&busy), [0]);
        busy.pass(Nanos(8));
        assert_eq!((free(&busy), busy.slots.get()), (vec![], 1));
        busy.free(Nanos(9), 0);
        assert_eq!(free(&busy), [9]);
    }

    #[tokio::test]
    async fn a_slot_carries_the_instant_at_which_it_became_free() {
        let concurrency_limit = Rc::new(ConcurrencyLimit::new(vec![more(0)]));
        assert_eq!(concurrency_limit.slot().await, FreeSlot { since: Nanos::ZERO, failed: 0 });
        concurrency_limit.enter();
        let local = tokio::task::LocalSet::new();
        let waiting = concurrency_limit.clone();
        let slot = local.run_until(async move {
            let waiter = tokio::task::spawn_local({
                let concurrency_limit = waiting.clone();
                async move { concurrency_limit.slot().await }
            });
            tokio::task::yield_now().await;
            waiting.free(Nanos(7), 3);
            let slot = waiter.await.unwrap();
            waiting.leave();
            waiting.empty().await;
            slot
        });
        assert_eq!(slot.await, FreeSlot { since: Nanos(7), failed: 3 });
    }

    #[test]
    fn a_user_of_a_static_load_keeps_its_failed_connections_over_the_batch() {
        let concurrency_limit = ConcurrencyLimit::new(vec![more(0), more(0)]);
        assert_eq!(free(&concurrency_limit), [0, 0]);
        concurrency_limit.wait(2);
        concurrency_limit.wait(0);
        concurrency_limit.refill(Nanos(9));
        let slots: Vec<(u64, u32)> =
            concurrency_limit.free.borrow_mut().drain(..).map(|slot| (slot.since.0, slot.failed)).collect();
        assert_eq!(slots, [(9, 2), (9, 0)]);
        concurrency_limit.refill(Nanos(12));
        assert!(concurrency_limit.free.borrow().iter().all(|slot| slot.failed == 0));
    }

    #[test]
    fn the_last_to_end_opens_the_next_round_at_the_latest_instant() {
        let rounds = BatchBarrier::new(3);
        let mut openings = rounds.openings();
        [9, 30].into_iter().for_each(|at| rounds.ended(Nanos(at)));
        assert!(!openings.has_changed().unwrap());
        rounds.ended(Nanos(29));
        assert_eq!(*openings.borrow_and_update(), Nanos(30));
        [31, 32, 33].into_iter().for_each(|at| rounds.ended(Nanos(at)));
        assert_eq!(*openings.borrow_and_update(), Nanos(33));
    }

    #[test]
    fn every_round_opens_once_however_many_threads_end_its_requests() {
        let rounds = BatchBarrier::new(8);
        let mut openings = rounds.openings();
        for round in 1..=200u64 {
            std::thread::scope(|scope| {
                for worker in 0..4 {
                    let rounds = &rounds;
                    scope.spawn(move || (0..2).for_each(|k| rounds.ended(Nanos(round * 100 + worker * 2 + k))));
                }
            });
            assert!(openings.has_changed().unwrap());
            assert_eq!(*openings.borrow_and_update(), Nanos(round * 100 + 7));
        }
    }
}
