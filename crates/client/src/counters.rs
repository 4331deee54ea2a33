//! Counters for the live display: one worker writes them, any thread reads them.

use crate::stalls::Stalls;
use std::sync::atomic::{AtomicU64, Ordering};

/// Running totals of one worker.
#[derive(Debug, Default)]
pub struct LiveCounters {
    started: AtomicU64,
    finished: AtomicU64,
    events: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    unstreamed: AtomicU64,
    /// Event-loop stalls of the worker.
    pub stalls: Stalls,
}

/// Totals of all workers at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterTotals {
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests sent so far.
    pub started: u64,
    /// Token events so far.
    pub events: u64,
    /// Body bytes received so far.
    pub bytes_in: u64,
    /// Body bytes sent so far.
    pub bytes_out: u64,
    /// Successful replies so far that were not streamed although the request set `stream: true`.
    pub unstreamed: u64,
}

impl LiveCounters {
    /// Counts a request that is sent, with a body of `bytes` bytes.
    pub fn start(&self, bytes: u64) {
        self.started.fetch_add(1, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a request that ended.
    pub fn finish(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a successful reply that was not streamed although the request set `stream: true`.
    pub fn count_unstreamed(&self) {
        self.unstreamed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts received bytes and the token events in them.
    pub fn receive(&self, bytes: u64, events: u64) {
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        if events > 0 {
            self.events.fetch_add(events, Ordering::Relaxed);
        }
    }

    /// Adds this worker's current totals to `sum`.
    pub fn add_to(&self, sum: CounterTotals) -> CounterTotals {
        let finished = self.finished.load(Ordering::Relaxed);
        let started = self.started.load(Ordering::Relaxed);
        CounterTotals {
            in_flight: sum.in_flight + started.saturating_sub(finished),
            started: sum.started + started,
            events: sum.events + self.events.load(Ordering::Relaxed),
            bytes_in: sum.bytes_in + self.bytes_in.load(Ordering::Relaxed),
            bytes_out: sum.bytes_out + self.bytes_out.load(Ordering::Relaxed),
            unstreamed: sum.unstreamed + self.unstreamed.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up() {
        let (one, two) = (LiveCounters::default(), LiveCounters::default());
        one.start(10);
        one.receive(100, 2);
        two.start(5);
        two.start(5);
        two.finish();
        let sum = two.add_to(one.add_to(CounterTotals::default()));
        assert_eq!(
            sum,
            CounterTotals {
                in_flight: 2,
                started: 3,
                events: 2,
                bytes_in: 100,
                bytes_out: 20,
                unstreamed: 0
            }
        );
    }
}
