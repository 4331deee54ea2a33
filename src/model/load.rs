//! How hard a case pushes, and for how long.

use crate::model::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;

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
#[derive(Clone, Copy, Debug, PartialEq)]
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
}

impl fmt::Display for Shape {
    /// The load in words: `concurrency 16`, `8/s poisson`, `8/s gamma 0.5`, `burst`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Closed { users } => write!(f, "concurrency {users}"),
            Shape::Open { rate, arrival: Arrival::Poisson } => write!(f, "{}/s poisson", six_digits(*rate)),
            Shape::Open { rate, arrival: Arrival::Constant } => write!(f, "{}/s constant", six_digits(*rate)),
            Shape::Open { rate, arrival: Arrival::Gamma { burstiness } } => {
                write!(f, "{}/s gamma {burstiness}", six_digits(*rate))
            }
            Shape::Burst => f.write_str("burst"),
            Shape::Replay { speed: 1.0 } => f.write_str("trace"),
            Shape::Replay { speed } => write!(f, "trace at {speed}x"),
        }
    }
}

/// A rate to six significant digits: `100/m` reads as 1.66667 a second.
fn six_digits(rate: f64) -> f64 {
    let scale = 10f64.powi(5 - rate.log10().floor() as i32);
    if scale.is_finite() && scale > 0.0 { (rate * scale).round() / scale } else { rate }
}

/// What is sent before measuring begins; the measured requests follow without a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmup {
    /// So many requests, on top of the measured ones.
    Requests(u64),
    /// Everything due in this first span.
    Span(Nanos),
}

/// The load of a case. At least one of `requests` and `duration` stands; the first one reached ends it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Shape.
    pub shape: Shape,
    /// Measured requests at the most.
    pub requests: Option<u64>,
    /// Length of the sending phase, warm-up left out.
    pub duration: Option<Nanos>,
    /// Warm-up.
    pub warmup: Warmup,
    /// How long requests in flight may go on after sending ends by time or by a signal.
    pub graceful_stop: Nanos,
    /// Open loop: requests in flight at the most; an arrival over it is `dropped`.
    pub max_in_flight: Option<u32>,
    /// Open loop: sending ends once the server is known to fall behind.
    pub stop_when_saturated: bool,
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
        match (by_count, by_time) {
            (Some(count), Some(time)) => Some(count.min(time)),
            (count, time) => count.or(time),
        }
    }

    fn due_within(&self, span: Nanos) -> Option<u64> {
        match self.shape {
            Shape::Open { rate, .. } => Some((rate * span.secs()).round() as u64),
            Shape::Closed { .. } | Shape::Burst | Shape::Replay { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(shape: Shape, requests: Option<u64>, secs: Option<u64>, warmup: Warmup) -> Load {
        let duration = secs.map(|s| Nanos::from_millis(s * 1000));
        Load { shape, requests, duration, warmup, graceful_stop: Nanos::ZERO, max_in_flight: None, stop_when_saturated: false }
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
        assert_eq!(load(open, Some(500), Some(20), Warmup::Requests(5)).planned(), Some(205));
        assert_eq!(load(open, Some(50), Some(20), Warmup::Requests(5)).planned(), Some(55));
        assert_eq!(load(open, None, Some(20), Warmup::Span(Nanos::from_millis(1000))).planned(), Some(210));
        let closed = Shape::Closed { users: 4 };
        assert_eq!(load(closed, None, Some(20), Warmup::Requests(0)).planned(), None);
        assert_eq!(load(closed, Some(100), Some(20), Warmup::Requests(8)).planned(), Some(108));
        let second = Warmup::Span(Nanos::from_millis(1000));
        assert_eq!(load(closed, Some(100), None, second).planned(), None, "how many fit into the warm-up is the server's secret");
    }
}
