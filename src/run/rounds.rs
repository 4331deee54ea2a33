//! The barrier of a static load: a round begins when every request of the one before has ended, on whatever lane.

use llmscen_core::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// The round that is under way, shared by all lanes.
pub struct Rounds {
    batch: u64,
    left: AtomicU64,
    latest: AtomicU64,
    /// When the round after this one began, for every round that did.
    opened: watch::Sender<Nanos>,
}

impl Rounds {
    /// Rounds of so many requests; the first one begins at zero.
    pub fn new(batch: u32) -> Rounds {
        let batch = u64::from(batch);
        Rounds { batch, left: AtomicU64::new(batch), latest: AtomicU64::new(0), opened: watch::Sender::new(Nanos::ZERO) }
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

    /// A view of the openings. No lane can miss one: the next round cannot end without that lane's requests.
    pub fn openings(&self) -> watch::Receiver<Nanos> {
        self.opened.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_end_opens_the_next_round_at_the_latest_instant() {
        let rounds = Rounds::new(3);
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
        let rounds = Rounds::new(8);
        let mut openings = rounds.openings();
        for round in 1..=200u64 {
            std::thread::scope(|scope| {
                for lane in 0..4 {
                    let rounds = &rounds;
                    scope.spawn(move || (0..2).for_each(|k| rounds.ended(Nanos(round * 100 + lane * 2 + k))));
                }
            });
            assert!(openings.has_changed().unwrap());
            assert_eq!(*openings.borrow_and_update(), Nanos(round * 100 + 7));
        }
    }
}
