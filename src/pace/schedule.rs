//! The arrival plan of an open loop: which request is due when, and in which phase.

use crate::model::load::{Load, Shape, Warmup};
use crate::model::outcome::Phase;
use crate::model::seed::Seed;
use crate::model::units::Nanos;
use crate::pace::arrival::Arrivals;

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The request's number, from 0, warm-up included.
    pub seq: u64,
    /// Its instant.
    pub at: Nanos,
    /// Its phase.
    pub phase: Phase,
}

/// The whole plan of an open loop as an iterator; it ends where `requests` or `duration` does.
pub struct Schedule {
    arrivals: Box<dyn Iterator<Item = Nanos> + Send>,
    load: Load,
    seq: u64,
    measured: u64,
    measured_from: Option<Nanos>,
}

impl Schedule {
    /// The plan of this load; None for a closed loop, which has no due times.
    pub fn new(load: &Load, seed: Seed) -> Option<Schedule> {
        let arrivals: Box<dyn Iterator<Item = Nanos> + Send> = match load.shape {
            Shape::Closed { .. } => return None,
            Shape::Open { rate, arrival } => Box::new(Arrivals::new(rate, arrival, seed)),
            Shape::Burst => Box::new(std::iter::repeat(Nanos::ZERO)),
            Shape::Replay { .. } => Box::new(std::iter::empty()),
        };
        Some(Schedule { arrivals, load: *load, seq: 0, measured: 0, measured_from: None })
    }

    /// The end of sending, where a duration sets one: it counts from the end of the warm-up span, or from the first
    /// measured arrival after warm-up requests.
    fn end(&self) -> Option<Nanos> {
        Some(self.measured_from? + self.load.duration?)
    }
}

impl Iterator for Schedule {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        let at = self.arrivals.next()?;
        let phase = match self.load.warmup {
            Warmup::Requests(n) if self.seq < n => Phase::Warmup,
            Warmup::Span(span) if at < span => Phase::Warmup,
            _ => Phase::Measured,
        };
        if phase == Phase::Measured {
            let start = match self.load.warmup {
                Warmup::Span(span) => span,
                Warmup::Requests(0) => Nanos::ZERO,
                Warmup::Requests(_) => at,
            };
            self.measured_from.get_or_insert(start);
            self.measured += 1;
            if self.load.requests.is_some_and(|most| self.measured > most) || self.end().is_some_and(|end| at >= end) {
                return None;
            }
        }
        let due = Due { seq: self.seq, at, phase };
        self.seq += 1;
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::load::Arrival;

    fn load(requests: Option<u64>, millis: Option<u64>, warmup: Warmup) -> Load {
        let shape = Shape::Open { rate: 10.0, arrival: Arrival::Constant };
        let duration = millis.map(Nanos::from_millis);
        Load { shape, requests, duration, warmup, graceful_stop: Nanos::ZERO, max_in_flight: None }
    }

    fn count(load: &Load) -> (usize, usize) {
        let due: Vec<Due> = Schedule::new(load, Seed(1)).unwrap().collect();
        assert!(due.iter().enumerate().all(|(i, due)| due.seq == i as u64));
        let warm = due.iter().filter(|due| due.phase == Phase::Warmup).count();
        (warm, due.len() - warm)
    }

    #[test]
    fn the_first_limit_reached_ends_it() {
        assert_eq!(count(&load(Some(7), None, Warmup::Requests(3))), (3, 7));
        assert_eq!(count(&load(None, Some(1000), Warmup::Requests(0))), (0, 10));
        assert_eq!(count(&load(None, Some(1000), Warmup::Requests(3))), (3, 10));
        assert_eq!(count(&load(None, Some(1000), Warmup::Span(Nanos::from_millis(500)))), (5, 10));
        assert_eq!(count(&load(Some(4), Some(1000), Warmup::Span(Nanos::from_millis(500)))), (5, 4));
        assert_eq!(count(&load(Some(50), Some(1000), Warmup::Requests(0))), (0, 10));
    }

    #[test]
    fn a_burst_is_due_at_zero() {
        let burst = Load { shape: Shape::Burst, ..load(Some(5), None, Warmup::Requests(0)) };
        let due: Vec<Nanos> = Schedule::new(&burst, Seed(1)).unwrap().map(|due| due.at).collect();
        assert_eq!(due, [Nanos::ZERO; 5]);
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        let closed = Load { shape: Shape::Closed { users: 2 }, ..load(Some(5), None, Warmup::Requests(0)) };
        assert!(Schedule::new(&closed, Seed(1)).is_none());
    }
}
