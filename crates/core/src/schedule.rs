//! The schedule of requests: arrival times, phases and quotas, computed from seeds. No clock and no runtime: the
//! current time is an argument.

use crate::load::{Load, Shape, Warmup};
use crate::outcome::Phase;
use crate::plan::Case;
use crate::schedule::arrival::Arrivals;
use crate::schedule::mix::MergedArrivals;
use crate::schedule::rates::Staged;
use crate::seed::Seed;
use crate::units::Nanos;
use std::sync::Arc;

pub mod arrival;
pub mod delays;
pub mod halving;
pub mod mix;
pub mod quota;
pub mod rates;
pub mod search;
pub mod shard;
pub mod users;

/// One scheduled request of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledRequest {
    /// Request number, from 0, warm-up included.
    pub seq: u64,
    /// Scheduled send time.
    pub at: Nanos,
    /// Phase.
    pub phase: Phase,
    /// The traffic class of the arrival; None if the classes share one load.
    pub entry: Option<usize>,
}

/// The arrivals of an open loop as an iterator, limited by `requests` and `duration`.
pub struct Schedule {
    arrivals: Box<dyn Iterator<Item = (Nanos, Option<usize>)> + Send>,
    load: Load,
    seq: u64,
    measured: u64,
    measured_from: Option<Nanos>,
    cools_down: bool,
    cooldown: u64,
}

impl Schedule {
    /// The schedule of a load; None for a closed loop, which has no scheduled times. `logged` are the arrivals of a
    /// replay, never decreasing.
    pub fn new(load: &Load, seed: Seed, logged: Option<&Arc<[Nanos]>>) -> Option<Schedule> {
        let arrivals: Box<dyn Iterator<Item = Nanos> + Send> = match &load.shape {
            // The arrivals of classes are those of a case.
            Shape::Closed { .. }
            | Shape::Users { .. }
            | Shape::Static { .. }
            | Shape::Classes { .. } => return None,
            shape @ (Shape::Open { .. } | Shape::Rates { .. }) => of_rates(shape, seed)?,
            Shape::Burst => Box::new(std::iter::repeat(Nanos::ZERO)),
            Shape::Replay { speed } => {
                Box::new(replay(logged.cloned().unwrap_or_default(), *speed))
            }
        };
        Some(Schedule::of_arrivals(
            load,
            Box::new(arrivals.map(|at| (at, None))),
        ))
    }

    fn of_arrivals(
        load: &Load,
        arrivals: Box<dyn Iterator<Item = (Nanos, Option<usize>)> + Send>,
    ) -> Schedule {
        Schedule {
            arrivals,
            load: load.clone(),
            seq: 0,
            measured: 0,
            measured_from: None,
            cools_down: false,
            cooldown: 0,
        }
    }

    /// Continues the arrivals after the limits, as [`Phase::Cooldown`]: at most as many as were measured.
    pub fn with_cooldown(mut self) -> Schedule {
        self.cools_down = true;
        self
    }

    /// The schedule of a case: that of its load, or the merged schedules of its traffic classes.
    pub fn for_case(case: &Case, seed: Seed, logged: Option<&Arc<[Nanos]>>) -> Option<Schedule> {
        match case.entry_arrivals() {
            Some(classes) => Some(Schedule::of_arrivals(
                &case.load,
                Box::new(MergedArrivals::new(&classes, seed)),
            )),
            None => Schedule::new(&case.load, seed, logged),
        }
    }

    /// The number of arrivals and the time of the last one. None without arrivals, or without an end: a burst without
    /// `requests`.
    pub fn extent(self) -> Option<(u64, Nanos)> {
        if self.load.shape == Shape::Burst && self.load.most_measured().is_none() {
            return None;
        }
        self.last().map(|due| (due.seq + 1, due.at))
    }

    /// The end of sending set by a duration, which starts at the end of the warm-up span, or at the first measured
    /// arrival after warm-up requests.
    fn end(&self) -> Option<Nanos> {
        Some(self.measured_from? + self.load.duration?)
    }
}

/// The arrivals of an open loop with a rate; None for another shape.
fn of_rates(shape: &Shape, seed: Seed) -> Option<Box<dyn Iterator<Item = Nanos> + Send>> {
    match shape {
        Shape::Open { rate, arrival } => Some(Box::new(Arrivals::new(*rate, *arrival, seed))),
        Shape::Rates { stages, arrival } => {
            Some(Box::new(Staged::new(stages.clone(), *arrival, seed)))
        }
        _ => None,
    }
}

/// Logged arrivals at `speed` times the original speed.
fn replay(logged: Arc<[Nanos]>, speed: f64) -> impl Iterator<Item = Nanos> + Send {
    (0..logged.len()).map(move |index| Nanos((logged[index].0 as f64 / speed).round() as u64))
}

impl Iterator for Schedule {
    type Item = ScheduledRequest;

    fn next(&mut self) -> Option<ScheduledRequest> {
        let (at, entry) = self.arrivals.next()?;
        let mut phase = match self.load.warmup {
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
            let is_over = self
                .load
                .most_measured()
                .is_some_and(|most| self.measured >= most)
                || self.end().is_some_and(|end| at >= end);
            match is_over {
                false => self.measured += 1,
                true if self.cools_down && self.cooldown < self.measured => {
                    self.cooldown += 1;
                    phase = Phase::Cooldown;
                }
                true => return None,
            }
        }
        let due = ScheduledRequest {
            seq: self.seq,
            at,
            phase,
            entry,
        };
        self.seq += 1;
        Some(due)
    }
}

/// The extent of one round of a case, as far as load or arrivals fix it; exact for an open loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundExtent {
    /// Number of sessions.
    pub sessions: Option<u64>,
    /// Send time of the last session.
    pub last_due: Option<Nanos>,
}

impl RoundExtent {
    /// `arrivals`: those that the case replays.
    pub fn new(case: &Case, seed: Seed, arrivals: Option<&Arc<[Nanos]>>) -> RoundExtent {
        match Schedule::for_case(case, seed, arrivals) {
            Some(schedule) => {
                let (sessions, last_due) = schedule.extent().unzip();
                RoundExtent { sessions, last_due }
            }
            None => RoundExtent {
                sessions: case.load.planned(),
                last_due: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Arrival;

    fn load(requests: Option<u64>, millis: Option<u64>, warmup: Warmup) -> Load {
        let shape = Shape::Open {
            rate: 10.0,
            arrival: Arrival::Constant,
        };
        let duration = millis.map(Nanos::from_millis);
        Load {
            requests,
            duration,
            warmup,
            ..Load::new(shape)
        }
    }

    fn count(load: &Load) -> (usize, usize) {
        let due: Vec<ScheduledRequest> = Schedule::new(load, Seed(1), None).unwrap().collect();
        assert!(due.iter().enumerate().all(|(i, due)| due.seq == i as u64));
        let warm = due.iter().filter(|due| due.phase == Phase::Warmup).count();
        (warm, due.len() - warm)
    }

    #[test]
    fn the_first_limit_reached_ends_it() {
        assert_eq!(count(&load(Some(7), None, Warmup::Requests(3))), (3, 7));
        assert_eq!(count(&load(None, Some(1000), Warmup::Requests(0))), (0, 10));
        assert_eq!(count(&load(None, Some(1000), Warmup::Requests(3))), (3, 10));
        assert_eq!(
            count(&load(
                None,
                Some(1000),
                Warmup::Span(Nanos::from_millis(500))
            )),
            (5, 10)
        );
        assert_eq!(
            count(&load(
                Some(4),
                Some(1000),
                Warmup::Span(Nanos::from_millis(500))
            )),
            (5, 4)
        );
        assert_eq!(
            count(&load(Some(50), Some(1000), Warmup::Requests(0))),
            (0, 10)
        );
    }

    #[test]
    fn a_cooldown_continues_the_arrivals() {
        let counts = |load: &Load| {
            let due = Schedule::new(load, Seed(1), None).unwrap().with_cooldown();
            let due: Vec<ScheduledRequest> = due.collect();
            let last = due.last().map(|due| due.at.0 / 1_000_000);
            let phases = [Phase::Warmup, Phase::Measured, Phase::Cooldown];
            assert!(due.is_sorted_by_key(|due| due.phase));
            (
                phases.map(|phase| due.iter().filter(|due| due.phase == phase).count()),
                last,
            )
        };
        let by_count = load(Some(7), None, Warmup::Requests(3));
        assert_eq!(counts(&by_count), ([3, 7, 7], Some(1600)));
        let by_time = load(None, Some(1000), Warmup::Span(Nanos::from_millis(500)));
        assert_eq!(counts(&by_time), ([5, 10, 10], Some(2400)));
    }

    #[test]
    fn a_burst_is_due_at_zero() {
        let burst = Load {
            shape: Shape::Burst,
            ..load(Some(5), None, Warmup::Requests(0))
        };
        let due: Vec<Nanos> = Schedule::new(&burst, Seed(1), None)
            .unwrap()
            .map(|due| due.at)
            .collect();
        assert_eq!(due, [Nanos::ZERO; 5]);
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        let closed = Load {
            shape: Shape::Closed { users: 2 },
            ..load(Some(5), None, Warmup::Requests(0))
        };
        assert!(Schedule::new(&closed, Seed(1), None).is_none());
    }

    fn replayed(speed: f64, limits: &Load) -> Vec<(u64, bool)> {
        let log: Arc<[Nanos]> = [0, 1_000, 1_000, 4_000, 9_000]
            .map(Nanos::from_millis)
            .into();
        let load = Load {
            shape: Shape::Replay { speed },
            ..limits.clone()
        };
        let due = Schedule::new(&load, Seed(1), Some(&log)).unwrap();
        due.map(|due| (due.at.0 / 1_000_000, due.phase == Phase::Measured))
            .collect()
    }

    #[test]
    fn a_replay_follows_its_log_and_ends_with_it() {
        let all = load(Some(100), None, Warmup::Requests(0));
        let at = |speed| {
            replayed(speed, &all)
                .into_iter()
                .map(|(at, _)| at)
                .collect::<Vec<_>>()
        };
        assert_eq!(at(1.0), [0, 1000, 1000, 4000, 9000]);
        assert_eq!(at(2.0), [0, 500, 500, 2000, 4500]);
        assert_eq!(at(0.5), [0, 2000, 2000, 8000, 18000]);
        let limited =
            |requests, millis| replayed(1.0, &load(requests, millis, Warmup::Requests(1)));
        assert_eq!(
            limited(Some(2), None),
            [(0, false), (1000, true), (1000, true)]
        );
        assert_eq!(
            limited(None, Some(3000)),
            [(0, false), (1000, true), (1000, true)]
        );
        let none = Schedule::new(
            &Load {
                shape: Shape::Replay { speed: 1.0 },
                ..all
            },
            Seed(1),
            None,
        )
        .unwrap();
        assert_eq!(none.count(), 0);
    }

    #[test]
    fn the_extent_of_a_schedule_is_exact() {
        let extent = |load: &Load| Schedule::new(load, Seed(1), None).unwrap().extent();
        assert_eq!(
            extent(&load(Some(7), None, Warmup::Requests(3))),
            Some((10, Nanos::from_millis(900)))
        );
        let burst = |requests| Load {
            shape: Shape::Burst,
            ..load(requests, Some(1), Warmup::Requests(0))
        };
        assert_eq!(
            (extent(&burst(Some(5))), extent(&burst(None))),
            (Some((5, Nanos::ZERO)), None)
        );
        assert_eq!(
            extent(&Load {
                shape: Shape::Replay { speed: 1.0 },
                ..load(Some(1), None, Warmup::Requests(0))
            }),
            None
        );
    }
}
