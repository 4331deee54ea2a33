//! The free slots of one worker and its requests in flight, and the barrier of a static load.

use llmscen_core::schedule::users::Change;
use llmscen_core::units::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Notify, watch};

/// The slots of one worker. A slot is the time at which it became free, which is the `intended` time of the next
/// closed-loop request.
///
/// ```text
///               ┌── slot ── request ── free ──┐     a user leaves when its request ends:
///  user added ──┘◄────────────────────────────┘     the slot is not freed, and nothing is cancelled
/// ```
#[derive(Default)]
pub struct ConcurrencyLimit {
    free: RefCell<VecDeque<FreeSlot>>,
    /// Static load: consecutive failed connections of each user that waits for the next batch.
    waiting: RefCell<Vec<u32>>,
    freed: Notify,
    in_flight: Cell<usize>,
    idle: Notify,
    /// Future changes of the number of users.
    changes: RefCell<VecDeque<Change>>,
    /// Slots, free or in use.
    slots: Cell<usize>,
    /// Slots that the load asks for at this time.
    target_slots: Cell<usize>,
}

/// A user who may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSlot {
    /// When the slot became free.
    pub since: Nanos,
    /// Consecutive failed connections of the user.
    pub failed_connects: u32,
}

impl ConcurrencyLimit {
    /// A limit that follows these changes of the number of users; users present at time zero have a free slot.
    pub fn new(changes: Vec<Change>) -> ConcurrencyLimit {
        let concurrency_limit = ConcurrencyLimit {
            changes: RefCell::new(changes.into()),
            ..ConcurrencyLimit::default()
        };
        concurrency_limit.apply_changes(Nanos::ZERO);
        concurrency_limit
    }

    /// Time of the next change of the number of users.
    pub fn next_change(&self) -> Option<Nanos> {
        self.changes.borrow().front().map(|change| change.at)
    }

    /// Applies the changes due by `now`.
    pub fn apply_changes(&self, now: Nanos) {
        loop {
            let due = self
                .changes
                .borrow_mut()
                .pop_front_if(|change| change.at <= now);
            let Some(Change { at, more }) = due else {
                return;
            };
            let target = self.target_slots.get();
            self.target_slots.set(if more {
                target + 1
            } else {
                target.saturating_sub(1)
            });
            if self.slots.get() < self.target_slots.get() {
                self.slots.set(self.slots.get() + 1);
                self.add_free_slot(at, 0);
            } else if self.slots.get() > self.target_slots.get()
                && self.free.borrow_mut().pop_back().is_some()
            {
                self.slots.set(self.slots.get() - 1);
            }
        }
    }

    /// Frees the slots of all users at `at`, for the next batch of a static load.
    pub fn open_batch(&self, at: Nanos) {
        let mut failed_connects = self.waiting.take().into_iter();
        (0..self.target_slots.get())
            .for_each(|_| self.add_free_slot(at, failed_connects.next().unwrap_or(0)));
    }

    /// Keeps a user waiting for the next batch of a static load.
    pub fn wait_for_batch(&self, failed_connects: u32) {
        self.waiting.borrow_mut().push(failed_connects);
    }

    fn add_free_slot(&self, since: Nanos, failed_connects: u32) {
        self.free.borrow_mut().push_back(FreeSlot {
            since,
            failed_connects,
        });
        self.freed.notify_one();
    }

    /// Takes the slot that has been free for longest; None if all are in use.
    pub fn try_take_slot(&self) -> Option<FreeSlot> {
        self.free.borrow_mut().pop_front()
    }

    /// As [`ConcurrencyLimit::try_take_slot`], but waits until there is one.
    pub async fn take_slot(&self) -> FreeSlot {
        loop {
            match self.try_take_slot() {
                Some(slot) => return slot,
                None => self.freed.notified().await,
            }
        }
    }

    /// Puts back a slot that could not be used yet, and wakes [`ConcurrencyLimit::take_slot`].
    pub fn put_back(&self, slot: FreeSlot) {
        self.free.borrow_mut().push_front(slot);
        self.freed.notify_one();
    }

    /// Counts a request in flight.
    pub fn enter(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// Frees the slot of a request that ended at `at`, unless its user leaves.
    pub fn free_slot(&self, at: Nanos, failed_connects: u32) {
        self.apply_changes(at);
        if self.slots.get() > self.target_slots.get() {
            self.slots.set(self.slots.get() - 1);
        } else {
            self.add_free_slot(at, failed_connects);
        }
    }

    /// Counts a request as over, once its outcome is delivered.
    pub fn leave(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
        if self.in_flight.get() == 0 {
            self.idle.notify_one();
        }
    }

    /// Resolves when nothing is in flight.
    pub async fn none_in_flight(&self) {
        while self.in_flight.get() > 0 {
            self.idle.notified().await;
        }
    }
}

/// The current batch of a static load, shared by all workers.
pub struct BatchBarrier {
    batch: u64,
    /// Requests of the batch that have not ended.
    left: AtomicU64,
    /// Time of the latest end.
    latest: AtomicU64,
    /// Time at which the latest batch was opened.
    opened: watch::Sender<Nanos>,
}

impl BatchBarrier {
    /// A barrier for batches of this size; the first batch is open from time zero.
    pub fn new(batch: u32) -> BatchBarrier {
        let batch = u64::from(batch);
        BatchBarrier {
            batch,
            left: AtomicU64::new(batch),
            latest: AtomicU64::new(0),
            opened: watch::Sender::new(Nanos::ZERO),
        }
    }

    /// Counts a request of this batch that ended at `at`. The last one opens the next batch at the latest of these
    /// times.
    pub fn request_ended(&self, at: Nanos) {
        // The last one sees every time: each is written before its count is released.
        self.latest.fetch_max(at.0, Ordering::Relaxed);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.left.store(self.batch, Ordering::Relaxed);
            self.opened
                .send_replace(Nanos(self.latest.load(Ordering::Relaxed)));
        }
    }

    /// The times at which batches open. A worker cannot miss one: the next batch cannot end without its requests.
    pub fn openings(&self) -> watch::Receiver<Nanos> {
        self.opened.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn more(at: u64) -> Change {
        Change {
            at: Nanos(at),
            more: true,
        }
    }

    fn less(at: u64) -> Change {
        Change {
            at: Nanos(at),
            more: false,
        }
    }

    fn free(concurrency_limit: &ConcurrencyLimit) -> Vec<u64> {
        concurrency_limit
            .free
            .borrow_mut()
            .drain(..)
            .map(|slot| slot.since.0)
            .collect()
    }

    #[test]
    fn a_user_is_added_on_time_and_leaves_when_a_request_ends() {
        let concurrency_limit = ConcurrencyLimit::new(vec![
            more(0),
            more(0),
            more(10),
            less(20),
            less(20),
            more(40),
        ]);
        assert_eq!(
            (free(&concurrency_limit), concurrency_limit.next_change()),
            (vec![0, 0], Some(Nanos(10)))
        );
        concurrency_limit.apply_changes(Nanos(15));
        assert_eq!(free(&concurrency_limit), [10]);
        concurrency_limit.free_slot(Nanos(19), 0);
        assert_eq!(free(&concurrency_limit), [19]);
        // Three in flight, one target slot: the next two slots that end are not freed, whichever call applies the
        // changes.
        concurrency_limit.free_slot(Nanos(25), 0);
        concurrency_limit.free_slot(Nanos(26), 0);
        assert_eq!(
            (free(&concurrency_limit), concurrency_limit.slots.get()),
            (vec![], 1)
        );
        concurrency_limit.free_slot(Nanos(27), 0);
        concurrency_limit.apply_changes(Nanos(50));
        assert_eq!(
            (free(&concurrency_limit), concurrency_limit.next_change()),
            (vec![27, 40], None)
        );
    }

    #[test]
    fn an_idle_user_leaves_at_once_and_a_late_one_is_not_replaced() {
        let idle = ConcurrencyLimit::new(vec![more(0), more(0), less(5)]);
        idle.apply_changes(Nanos(5));
        assert_eq!(free(&idle), [0]);
        let busy = ConcurrencyLimit::new(vec![more(0), less(5), more(8)]);
        assert_eq!(free(&busy), [0]);
        busy.apply_changes(Nanos(8));
        assert_eq!((free(&busy), busy.slots.get()), (vec![], 1));
        busy.free_slot(Nanos(9), 0);
        assert_eq!(free(&busy), [9]);
    }

    #[tokio::test]
    async fn a_slot_has_the_time_at_which_it_became_free() {
        let concurrency_limit = Rc::new(ConcurrencyLimit::new(vec![more(0)]));
        assert_eq!(
            concurrency_limit.take_slot().await,
            FreeSlot {
                since: Nanos::ZERO,
                failed_connects: 0
            }
        );
        concurrency_limit.enter();
        let local = tokio::task::LocalSet::new();
        let waiting = concurrency_limit.clone();
        let slot = local.run_until(async move {
            let waiter = tokio::task::spawn_local({
                let concurrency_limit = waiting.clone();
                async move { concurrency_limit.take_slot().await }
            });
            tokio::task::yield_now().await;
            waiting.free_slot(Nanos(7), 3);
            let slot = waiter.await.unwrap();
            waiting.leave();
            waiting.none_in_flight().await;
            slot
        });
        assert_eq!(
            slot.await,
            FreeSlot {
                since: Nanos(7),
                failed_connects: 3
            }
        );
    }

    #[test]
    fn a_user_of_a_static_load_keeps_its_failed_connections_over_the_batch() {
        let concurrency_limit = ConcurrencyLimit::new(vec![more(0), more(0)]);
        assert_eq!(free(&concurrency_limit), [0, 0]);
        concurrency_limit.wait_for_batch(2);
        concurrency_limit.wait_for_batch(0);
        concurrency_limit.open_batch(Nanos(9));
        let slots: Vec<(u64, u32)> = concurrency_limit
            .free
            .borrow_mut()
            .drain(..)
            .map(|slot| (slot.since.0, slot.failed_connects))
            .collect();
        assert_eq!(slots, [(9, 2), (9, 0)]);
        concurrency_limit.open_batch(Nanos(12));
        assert!(
            concurrency_limit
                .free
                .borrow()
                .iter()
                .all(|slot| slot.failed_connects == 0)
        );
    }

    #[test]
    fn the_last_request_opens_the_next_batch_at_the_latest_end() {
        let barrier = BatchBarrier::new(3);
        let mut openings = barrier.openings();
        [9, 30]
            .into_iter()
            .for_each(|at| barrier.request_ended(Nanos(at)));
        assert!(!openings.has_changed().unwrap());
        barrier.request_ended(Nanos(29));
        assert_eq!(*openings.borrow_and_update(), Nanos(30));
        [31, 32, 33]
            .into_iter()
            .for_each(|at| barrier.request_ended(Nanos(at)));
        assert_eq!(*openings.borrow_and_update(), Nanos(33));
    }

    #[test]
    fn every_batch_opens_once_whatever_the_number_of_threads() {
        let barrier = BatchBarrier::new(8);
        let mut openings = barrier.openings();
        for round in 1..=200u64 {
            std::thread::scope(|scope| {
                for worker in 0..4 {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        (0..2).for_each(|k| {
                            barrier.request_ended(Nanos(round * 100 + worker * 2 + k))
                        })
                    });
                }
            });
            assert!(openings.has_changed().unwrap());
            assert_eq!(*openings.borrow_and_update(), Nanos(round * 100 + 7));
        }
    }
}
