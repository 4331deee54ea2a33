//! How hard a case pushes, and for how long.

use crate::stage::{Course, RateStage, UserStage, bounds, six_digits};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// How open-loop arrivals are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// Exponential gaps: independent users.
    Poisson,
    /// Equal gaps.
    Constant,
    /// Gamma gaps of the same mean. Burstiness is the shape: 1 is Poisson, below 1 clumps, above 1 evens out.
    Gamma {
        /// The gamma distribution's shape; the gaps' squared coefficient of variation is its inverse.
        burstiness: f64,
    },
}

/// The shape of the load.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Closed loop: so many users, each sending its next request when the last one ended.
    Closed {
        /// Requests in flight at once.
        users: u32,
    },
    /// Open loop: requests leave when the arrival plan says, whatever the server does.
    Open {
        /// Mean arrivals per second.
        rate: f64,
        /// Their spacing.
        arrival: Arrival,
    },
    /// Open loop, everything due at time zero.
    Burst,
    /// Open loop, arrivals as a trace has them.
    Replay {
        /// How much faster than the trace.
        speed: f64,
    },
    /// Open loop whose rate changes, stage by stage from time zero on; it ends with the last one.
    Rates {
        /// The stages, at least one.
        stages: Arc<[RateStage]>,
        /// The spacing of arrivals where the rate stands still; time runs faster for it where the rate is higher.
        arrival: Arrival,
    },
    /// Closed loop whose users come and go, stage by stage from time zero on; it ends with the last one.
    Users {
        /// The stages, at least one.
        stages: Arc<[UserStage]>,
    },
    /// So many requests leave together, and the next ones when all of them are back.
    Static {
        /// Requests of a round.
        batch: u32,
    },
}

impl Shape {
    /// Whether a request leaves because another one ended, and not because a plan says so.
    pub fn closed(&self) -> bool {
        match self {
            Shape::Closed { .. } | Shape::Users { .. } | Shape::Static { .. } => true,
            Shape::Open { .. } | Shape::Burst | Shape::Replay { .. } | Shape::Rates { .. } => false,
        }
    }

    /// Maximum number of requests in flight at once, where the shape itself bounds them.
    pub fn users(&self) -> Option<u32> {
        match self {
            Shape::Closed { users } | Shape::Static { batch: users } => Some(*users),
            Shape::Users { stages } => stages.iter().map(|stage| stage.from.max(stage.to)).max(),
            Shape::Open { .. } | Shape::Burst | Shape::Replay { .. } | Shape::Rates { .. } => None,
        }
    }

    /// Where each stage begins and ends; empty for a shape without stages.
    pub fn stages(&self) -> Vec<(Nanos, Nanos)> {
        match self {
            Shape::Rates { stages, .. } => bounds(stages.iter().map(|stage| stage.span)).collect(),
            Shape::Users { stages } => bounds(stages.iter().map(|stage| stage.span)).collect(),
            _ => Vec::new(),
        }
    }

    /// The stage of that index as a shape of its own.
    pub fn stage(&self, index: usize) -> Option<Shape> {
        match self {
            Shape::Rates { stages, arrival } => Some(Shape::Rates { stages: [*stages.get(index)?].into(), arrival: *arrival }),
            Shape::Users { stages } => Some(Shape::Users { stages: [*stages.get(index)?].into() }),
            _ => None,
        }
    }

    /// When the last stage ends, counted from time zero; None for a shape without stages.
    pub fn end(&self) -> Option<Nanos> {
        let sum = |spans: &mut dyn Iterator<Item = Nanos>| spans.reduce(|sum, span| sum + span);
        match self {
            Shape::Rates { stages, .. } => sum(&mut stages.iter().map(|stage| stage.span)),
            Shape::Users { stages } => sum(&mut stages.iter().map(|stage| stage.span)),
            _ => None,
        }
    }

    /// Arrivals expected in the first `span`, where a rate says.
    pub fn expected(&self, span: Nanos) -> Option<f64> {
        match self {
            Shape::Open { rate, .. } => Some(rate * span.secs()),
            Shape::Rates { stages, .. } => {
                let starts = self.stages().into_iter().zip(stages.iter());
                Some(starts.map(|((from, _), stage)| stage.area(span.since(from).secs())).sum())
            }
            Shape::Closed { .. } | Shape::Burst | Shape::Replay { .. } | Shape::Users { .. } | Shape::Static { .. } => None,
        }
    }

    /// Whether stages send nothing at all: a rate or a number of users that stays at 0.
    pub fn is_pause(&self) -> bool {
        self.users() == Some(0) || self.end().and_then(|end| self.expected(end)) == Some(0.0)
    }

    /// The load as one number: users, arrivals per second, or the speed of a trace; and which of them. None where it has
    /// no single one.
    pub fn size(&self) -> (Option<f64>, &'static str) {
        match self {
            Shape::Closed { users } | Shape::Static { batch: users } => (Some(f64::from(*users)), "concurrency"),
            Shape::Users { stages } => match &**stages {
                [only] if only.from == only.to => (Some(f64::from(only.to)), "concurrency"),
                _ => (None, "concurrency"),
            },
            Shape::Open { rate, .. } => (Some(*rate), "rate"),
            Shape::Rates { stages, .. } => match &**stages {
                [RateStage { rate: Course::Flat(rate), .. }] => (Some(*rate), "rate"),
                _ => (None, "rate"),
            },
            Shape::Replay { speed } => (Some(*speed), "speed"),
            Shape::Burst => (None, "rate"),
        }
    }
}

impl fmt::Display for Shape {
    /// The load in words: `concurrency 16`, `8/s poisson`, `8/s gamma 0.5`, `burst`, `1/s → 20/s over 2 min, poisson`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Closed { users } => write!(f, "concurrency {users}"),
            Shape::Open { rate, arrival } => write!(f, "{}/s {arrival}", six_digits(*rate)),
            Shape::Burst => f.write_str("burst"),
            Shape::Replay { speed: 1.0 } => f.write_str("trace"),
            Shape::Replay { speed } => write!(f, "trace at {speed}x"),
            Shape::Rates { stages, arrival } => {
                some_of(stages, f)?;
                write!(f, ", {arrival}")
            }
            Shape::Users { stages } => {
                f.write_str("concurrency ")?;
                some_of(stages, f)
            }
            Shape::Static { batch } => write!(f, "batches of {batch}"),
        }
    }
}

/// The stages one after the other; of many, the first ones and their number.
fn some_of(stages: &[impl fmt::Display], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SHOWN: usize = 4;
    for (index, stage) in stages.iter().take(SHOWN).enumerate() {
        write!(f, "{}{stage}", if index == 0 { "" } else { ", " })?;
    }
    if stages.len() > SHOWN { write!(f, ", … ({} stages)", stages.len()) } else { Ok(()) }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrival::Poisson => f.write_str("poisson"),
            Arrival::Constant => f.write_str("constant"),
            Arrival::Gamma { burstiness } => write!(f, "gamma {burstiness}"),
        }
    }
}

/// What is sent before measuring begins; the measured requests follow without a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmup {
    /// So many requests, on top of the measured ones.
    Requests(u64),
    /// Everything due in this first span.
    Span(Nanos),
}

/// The load of a case. At least one of `requests`, `duration` and stages stands; the first one reached ends it.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Shape.
    pub shape: Shape,
    /// Measured requests at most.
    pub requests: Option<u64>,
    /// Length of the sending phase, warm-up left out.
    pub duration: Option<Nanos>,
    /// Warm-up.
    pub warmup: Warmup,
    /// How long requests in flight may go on after sending ends by time or by a signal.
    pub graceful_stop: Nanos,
    /// Open loop: requests in flight at most; an arrival over it is `dropped`.
    pub max_in_flight: Option<u32>,
    /// Open loop: sending ends once the server is known to fall behind.
    pub stop_when_saturated: bool,
    /// Closed loop: users start evenly over this span, the first one at zero.
    pub spread: Nanos,
}

impl Load {
    /// Requests that will be scheduled, warm-up included, where the scenario fixes or the rate implies the number.
    pub fn planned(&self) -> Option<u64> {
        let by_count = self.requests.and_then(|n| match self.warmup {
            Warmup::Requests(extra) => Some(n + extra),
            Warmup::Span(span) => self.due_within(span).map(|extra| n + extra),
        });
        let by_time = self.duration.and_then(|duration| match self.warmup {
            Warmup::Span(span) => self.due_within(span + duration),
            Warmup::Requests(extra) => self.due_within(duration).map(|n| n + extra),
        });
        let by_stages = self.shape.end().and_then(|end| self.due_within(end));
        [by_count, by_time, by_stages].into_iter().flatten().min()
    }

    /// Length of the sending phase where time bounds it: of the measured one where `duration` does, of all of it where
    /// stages do.
    pub fn lasts(&self) -> Option<Nanos> {
        self.duration.into_iter().chain(self.shape.end()).min()
    }

    /// When sending ends at the latest, counted from time zero, once measuring has begun at `from`.
    pub fn until(&self, from: Option<Nanos>) -> Option<Nanos> {
        let by_duration = from.zip(self.duration).map(|(from, duration)| from + duration);
        by_duration.into_iter().chain(self.shape.end()).min()
    }

    /// The whole number of arrivals expected in the first `span`.
    fn due_within(&self, span: Nanos) -> Option<u64> {
        let due = self.shape.expected(span)?;
        let whole = match &self.shape {
            // The first of equal gaps is due at once; what a sum of floats adds to a whole number is none of them.
            Shape::Rates { arrival: Arrival::Constant, .. } => (due - due.max(1.0) * 1e-9).ceil(),
            _ => due.round(),
        };
        Some(whole as u64)
    }
}

impl Load {
    /// A load of this shape, without end, warm-up or grace.
    pub fn bare(shape: Shape) -> Load {
        Load {
            shape,
            requests: None,
            duration: None,
            warmup: Warmup::Requests(0),
            graceful_stop: Nanos::ZERO,
            max_in_flight: None,
            spread: Nanos::ZERO,
            stop_when_saturated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(shape: Shape, requests: Option<u64>, secs: Option<u64>, warmup: Warmup) -> Load {
        let duration = secs.map(|s| Nanos::from_millis(s * 1000));
        Load { requests, duration, warmup, ..Load::bare(shape) }
    }

    #[test]
    fn a_shape_reads_as_words() {
        let open = |arrival| Shape::Open { rate: 0.5, arrival }.to_string();
        assert_eq!(Shape::Closed { users: 16 }.to_string(), "concurrency 16");
        assert_eq!((open(Arrival::Poisson), open(Arrival::Constant)), ("0.5/s poisson".into(), "0.5/s constant".into()));
        assert_eq!(
            (open(Arrival::Gamma { burstiness: 0.25 }), Shape::Burst.to_string()),
            ("0.5/s gamma 0.25".into(), "burst".into())
        );
        for (rate, text) in [(100.0 / 60.0, "1.66667/s"), (0.1 / 60.0, "0.00166667/s"), (1234.5, "1234.5/s"), (1e6, "1000000/s")]
        {
            assert_eq!(Shape::Open { rate, arrival: Arrival::Constant }.to_string(), format!("{text} constant"));
        }
    }

    #[test]
    fn the_planned_count_is_the_first_limit_reached() {
        let open = Shape::Open { rate: 10.0, arrival: Arrival::Poisson };
        assert_eq!(load(open.clone(), Some(500), Some(20), Warmup::Requests(5)).planned(), Some(205));
        assert_eq!(load(open.clone(), Some(50), Some(20), Warmup::Requests(5)).planned(), Some(55));
        assert_eq!(load(open, None, Some(20), Warmup::Span(Nanos::from_millis(1000))).planned(), Some(210));
        let closed = Shape::Closed { users: 4 };
        assert_eq!(load(closed.clone(), None, Some(20), Warmup::Requests(0)).planned(), None);
        assert_eq!(load(closed.clone(), Some(100), Some(20), Warmup::Requests(8)).planned(), Some(108));
        let second = Warmup::Span(Nanos::from_millis(1000));
        assert_eq!(load(closed, Some(100), None, second).planned(), None, "how many fit into the warm-up is the server's secret");
    }

    fn staged(arrival: Arrival) -> Shape {
        let stage = |rate, secs: u64| RateStage { rate, span: Nanos::from_millis(secs * 1000) };
        let ramp = Course::Ramp { from: 1.0, to: 20.0 };
        Shape::Rates { stages: [stage(Course::Flat(1.0), 30), stage(ramp, 120)].into(), arrival }
    }

    #[test]
    fn stages_bound_a_load() {
        let whole = load(staged(Arrival::Constant), None, None, Warmup::Requests(0));
        assert_eq!((whole.planned(), whole.lasts()), (Some(1290), Some(Nanos::from_millis(150_000))));
        let cut = load(staged(Arrival::Constant), None, Some(40), Warmup::Span(Nanos::from_millis(10_000)));
        // 30 of the first stage, and 20·1 + 19·20²/240 = 51.67 of the 20 s after it.
        assert_eq!((cut.planned(), cut.until(Some(Nanos::from_millis(10_000)))), (Some(82), Some(Nanos::from_millis(50_000))));
        assert_eq!(cut.until(None), Some(Nanos::from_millis(150_000)));
    }

    #[test]
    fn every_shape_says_what_it_is() {
        assert_eq!(staged(Arrival::Poisson).to_string(), "1/s for 30 s, 1/s → 20/s over 2 min, poisson");
        assert_eq!(staged(Arrival::Poisson).stage(1).unwrap().to_string(), "1/s → 20/s over 2 min, poisson");
        let four = UserStage { from: 4, to: 4, span: Nanos::from_millis(1000) };
        let users = |n| Shape::Users { stages: vec![four; n].into() };
        assert_eq!((users(1).to_string(), users(1).size()), ("concurrency 4 for 1 s".into(), (Some(4.0), "concurrency")));
        assert!(users(6).to_string().ends_with("4 for 1 s, 4 for 1 s, … (6 stages)"));
        assert_eq!((users(6).users(), users(6).end()), (Some(4), Some(Nanos::from_millis(6000))));
        assert_eq!(Shape::Static { batch: 16 }.to_string(), "batches of 16");
    }
}
