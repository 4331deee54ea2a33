//! `load.max_in_flight`: the limit of an open loop, over all workers of a shard.

use llmscen_core::load::{AtLimit, MaxInFlight};
use llmscen_core::schedule::shard::Shard;
use llmscen_core::units::Nanos;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// This shard's share of `max_in_flight`. It counts requests, and sessions from their first turn to their last.
pub struct InFlightLimit {
    /// The share of this shard.
    pub limit: u64,
    slots: Slots,
}

enum Slots {
    /// Requests in flight; an arrival above the limit is dropped.
    Drop(AtomicU64),
    /// Free slots and arrivals that wait for one. The lock is taken when a request begins and when it ends.
    Hold(Mutex<HoldState>),
}

#[derive(Default)]
struct HoldState {
    /// When each free slot became free, longest ago first.
    free: VecDeque<Nanos>,
    /// The arrivals that wait, by request number, which is the order in which they were due.
    waiting: BTreeMap<u64, Waker>,
}

impl HoldState {
    /// Wakes the arrival that was due first, if there is a slot for it.
    fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.first_key_value()
            && !self.free.is_empty()
        {
            first.wake_by_ref();
        }
    }
}

impl InFlightLimit {
    /// The limit of a shard.
    pub fn new(limit: MaxInFlight, shard: Shard) -> InFlightLimit {
        let share = shard.share(u64::from(limit.of));
        let slots = match limit.then {
            AtLimit::Drop => Slots::Drop(AtomicU64::new(0)),
            AtLimit::Hold => Slots::Hold(Mutex::new(HoldState {
                free: (0..share).map(|_| Nanos::ZERO).collect(),
                waiting: BTreeMap::new(),
            })),
        };
        InFlightLimit {
            limit: share,
            slots,
        }
    }

    /// Takes a slot for request `seq`: at once, or where arrivals are held once every arrival that was due before has
    /// one. Returns when the slot became free; None: the request must be dropped. If the future is dropped, it takes
    /// no slot.
    pub async fn enter(&self, seq: u64) -> Option<Nanos> {
        let held = match &self.slots {
            Slots::Drop(in_flight) => {
                let one_more = |in_flight| (in_flight < self.limit).then_some(in_flight + 1);
                return in_flight
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                    .is_ok()
                    .then_some(Nanos::ZERO);
            }
            Slots::Hold(held) => held,
        };
        let place = WaitingPlace { held, seq };
        let slot = poll_fn(|cx| {
            let mut state = lock(held);
            let is_first = state
                .waiting
                .first_key_value()
                .is_none_or(|(first, _)| *first >= seq);
            if is_first && let Some(slot) = state.free.pop_front() {
                return Poll::Ready(slot);
            }
            state.waiting.insert(seq, cx.waker().clone());
            Poll::Pending
        });
        let slot = slot.await;
        drop(place);
        Some(slot)
    }

    /// Frees the slot of a request or session that was over at `at`.
    pub fn leave(&self, at: Nanos) {
        match &self.slots {
            Slots::Drop(in_flight) => {
                in_flight.fetch_sub(1, Ordering::Relaxed);
            }
            Slots::Hold(held) => {
                let mut state = lock(held);
                state.free.push_back(at);
                state.wake_first();
            }
        }
    }
}

/// A panic of another worker ends the round, and leaves the state whole.
fn lock(held: &Mutex<HoldState>) -> MutexGuard<'_, HoldState> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of an arrival among those that wait. When it ends, the next one may have been woken in vain, or may go
/// too.
struct WaitingPlace<'a> {
    held: &'a Mutex<HoldState>,
    seq: u64,
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let mut state = lock(self.held);
        state.waiting.remove(&self.seq);
        state.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};
    use std::task::Context;

    fn limit(of: u32, then: AtLimit) -> InFlightLimit {
        InFlightLimit::new(MaxInFlight { of, then }, Shard::default())
    }

    fn poll(future: Pin<&mut impl Future<Output = Option<Nanos>>>) -> Poll<Option<Nanos>> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_arrival_above_a_limit_that_drops_is_dropped() {
        let limit = limit(1, AtLimit::Drop);
        assert_eq!(poll(pin!(limit.enter(0))), Poll::Ready(Some(Nanos::ZERO)));
        assert_eq!(poll(pin!(limit.enter(1))), Poll::Ready(None));
        limit.leave(Nanos(5));
        assert!(poll(pin!(limit.enter(2))).is_ready());
    }

    #[test]
    fn held_arrivals_take_slots_in_the_order_in_which_they_were_due() {
        let limit = limit(2, AtLimit::Hold);
        for seq in [0, 1] {
            assert_eq!(poll(pin!(limit.enter(seq))), Poll::Ready(Some(Nanos::ZERO)));
        }
        let (mut third, mut second) = (pin!(limit.enter(3)), pin!(limit.enter(2)));
        assert!(poll(third.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        limit.leave(Nanos(7));
        assert!(poll(third.as_mut()).is_pending(), "2 was due before 3");
        assert!(poll(pin!(limit.enter(4))).is_pending());
        assert_eq!(poll(second.as_mut()), Poll::Ready(Some(Nanos(7))));
        limit.leave(Nanos(9));
        assert_eq!(poll(third.as_mut()), Poll::Ready(Some(Nanos(9))));
    }

    #[test]
    fn an_arrival_that_stops_to_wait_leaves_its_slot_to_the_next() {
        let limit = limit(1, AtLimit::Hold);
        assert!(poll(pin!(limit.enter(0))).is_ready());
        let mut next = pin!(limit.enter(2));
        assert!(poll(next.as_mut()).is_pending());
        {
            let mut first = pin!(limit.enter(1));
            assert!(poll(first.as_mut()).is_pending());
            limit.leave(Nanos(3));
            assert!(poll(next.as_mut()).is_pending());
        }
        assert_eq!(poll(next.as_mut()), Poll::Ready(Some(Nanos(3))));
    }
}
