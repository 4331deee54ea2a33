//! The load of a case: its shape, length and warm-up.

use crate::stage::{RateProfile, RateStage, UserStage, bounds, six_digits};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// How open-loop arrivals are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// Exponential gaps (independent users).
    Poisson,
    /// Equal gaps.
    Constant,
    /// Gamma gaps of the same mean. Burstiness 1 is Poisson; below 1 arrivals are burstier, above 1 more regular.
    Gamma {
        /// The gamma distribution's shape; the gaps' squared coefficient of variation is its inverse.
        burstiness: f64,
    },
}

/// The shape of the load.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Closed loop: each user sends its next request when the previous one has ended.
    Closed {
        /// Number of users, which is the number of requests in flight.
        users: u32,
    },
    /// Open loop: requests are sent at scheduled times, independent of the server.
    Open {
        /// Mean arrivals per second.
        rate: f64,
        /// Distribution of the gaps.
        arrival: Arrival,
    },
    /// Open loop: all requests are scheduled at time zero.
    Burst,
    /// Open loop: arrivals of a trace.
    Replay {
        /// Speed relative to the trace.
        speed: f64,
    },
    /// Open loop whose rate changes from stage to stage; ends with the last stage.
    Rates {
        /// The stages, at least one.
        stages: Arc<[RateStage]>,
        /// Distribution of the gaps at a constant rate; a changing rate rescales time.
        arrival: Arrival,
    },
    /// Open loop: the merged arrivals of traffic classes, of which the arrival processes differ or a rate changes.
    Classes {
        /// [`Shape::Open`] or [`Shape::Rates`] of each class, at least one.
        classes: Arc<[Shape]>,
    },
    /// Closed loop whose number of users changes from stage to stage; ends with the last stage.
    Users {
        /// The stages, at least one.
        stages: Arc<[UserStage]>,
    },
    /// Batches of requests that are sent together; the next batch starts when all have ended.
    Static {
        /// Requests per batch.
        batch: u32,
    },
}

impl Shape {
    /// Whether a request is sent because another one ended, and not at a scheduled time.
    pub fn is_closed_loop(&self) -> bool {
        match self {
            Shape::Closed { .. } | Shape::Users { .. } | Shape::Static { .. } => true,
            Shape::Open { .. }
            | Shape::Burst
            | Shape::Replay { .. }
            | Shape::Rates { .. }
            | Shape::Classes { .. } => false,
        }
    }

    /// Maximum number of requests in flight, if the shape bounds it.
    pub fn users(&self) -> Option<u32> {
        match self {
            Shape::Closed { users } | Shape::Static { batch: users } => Some(*users),
            Shape::Users { stages } => stages.iter().map(|stage| stage.from.max(stage.to)).max(),
            Shape::Open { .. }
            | Shape::Burst
            | Shape::Replay { .. }
            | Shape::Rates { .. }
            | Shape::Classes { .. } => None,
        }
    }

    /// Begin and end of each stage; empty for a shape without stages.
    pub fn stages(&self) -> Vec<(Nanos, Nanos)> {
        match self {
            Shape::Rates { stages, .. } => bounds(stages.iter().map(|stage| stage.span)).collect(),
            Shape::Users { stages } => bounds(stages.iter().map(|stage| stage.span)).collect(),
            _ => Vec::new(),
        }
    }

    /// One stage as a shape.
    pub fn stage(&self, index: usize) -> Option<Shape> {
        match self {
            Shape::Rates { stages, arrival } => Some(Shape::Rates {
                stages: [*stages.get(index)?].into(),
                arrival: *arrival,
            }),
            Shape::Users { stages } => Some(Shape::Users {
                stages: [*stages.get(index)?].into(),
            }),
            _ => None,
        }
    }

    /// End of the last stage, counted from time zero; None for a shape without stages.
    pub fn end(&self) -> Option<Nanos> {
        let sum = |spans: &mut dyn Iterator<Item = Nanos>| spans.reduce(|sum, span| sum + span);
        match self {
            Shape::Rates { stages, .. } => sum(&mut stages.iter().map(|stage| stage.span)),
            Shape::Users { stages } => sum(&mut stages.iter().map(|stage| stage.span)),
            // Without the end of one class, the arrivals have none.
            Shape::Classes { classes } => {
                let ends: Option<Vec<Nanos>> = classes.iter().map(Shape::end).collect();
                ends?.into_iter().max()
            }
            _ => None,
        }
    }

    /// The mean rate of an open loop, if it does not change over time.
    pub fn constant_rate(&self) -> Option<f64> {
        match self {
            Shape::Open { rate, .. } => Some(*rate),
            Shape::Classes { classes } => classes.iter().map(Shape::constant_rate).sum(),
            _ => None,
        }
    }

    /// Whether it has random arrivals, so that the number of requests within a duration is random.
    pub fn has_random_arrivals(&self) -> bool {
        match self {
            Shape::Open { arrival, .. } | Shape::Rates { arrival, .. } => {
                *arrival != Arrival::Constant
            }
            // The constant arrivals of several classes do not end at the same time.
            Shape::Classes { .. } => true,
            _ => false,
        }
    }

    /// Expected number of arrivals in the first `span`; None for a shape without a rate.
    pub fn expected(&self, span: Nanos) -> Option<f64> {
        match self {
            Shape::Open { rate, .. } => Some(rate * span.secs()),
            Shape::Rates { stages, .. } => {
                let starts = self.stages().into_iter().zip(stages.iter());
                Some(
                    starts
                        .map(|((from, _), stage)| stage.area(span.since(from).secs()))
                        .sum(),
                )
            }
            Shape::Classes { classes } => classes.iter().map(|class| class.expected(span)).sum(),
            Shape::Closed { .. }
            | Shape::Burst
            | Shape::Replay { .. }
            | Shape::Users { .. }
            | Shape::Static { .. } => None,
        }
    }

    /// The expected number of arrivals in the first `span`, rounded.
    fn due_within(&self, span: Nanos) -> Option<u64> {
        if let Shape::Classes { classes } = self {
            return classes.iter().map(|class| class.due_within(span)).sum();
        }
        let due = self.expected(span)?;
        let whole = match self {
            // Constant arrivals start at zero, so the count is rounded up; the tolerance absorbs floating-point error.
            Shape::Rates {
                arrival: Arrival::Constant,
                ..
            } => (due - due.max(1.0) * 1e-9).ceil(),
            _ => due.round(),
        };
        Some(whole as u64)
    }

    /// Whether the stages send nothing: a rate or number of users that stays at 0.
    pub fn is_pause(&self) -> bool {
        self.users() == Some(0) || self.end().and_then(|end| self.expected(end)) == Some(0.0)
    }

    /// The load as one number (users, arrivals per second, or the speed of a trace), and the name of that quantity.
    /// None if it varies.
    pub fn size(&self) -> (Option<f64>, &'static str) {
        match self {
            Shape::Closed { users } | Shape::Static { batch: users } => {
                (Some(f64::from(*users)), "concurrency")
            }
            Shape::Users { stages } => match &**stages {
                [only] if only.from == only.to => (Some(f64::from(only.to)), "concurrency"),
                _ => (None, "concurrency"),
            },
            Shape::Open { rate, .. } => (Some(*rate), "rate"),
            Shape::Rates { stages, .. } => match &**stages {
                [
                    RateStage {
                        rate: RateProfile::Flat(rate),
                        ..
                    },
                ] => (Some(*rate), "rate"),
                _ => (None, "rate"),
            },
            Shape::Classes { .. } => (self.constant_rate(), "rate"),
            Shape::Replay { speed } => (Some(*speed), "speed"),
            Shape::Burst => (None, "rate"),
        }
    }
}

impl fmt::Display for Shape {
    /// The load as text: `concurrency 16`, `8/s poisson`, `8/s gamma 0.5`, `burst`, `1/s → 20/s over 2 min, poisson`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Closed { users } => write!(f, "concurrency {users}"),
            Shape::Open { rate, arrival } => write!(f, "{}/s {arrival}", six_digits(*rate)),
            Shape::Burst => f.write_str("burst"),
            Shape::Replay { speed: 1.0 } => f.write_str("trace"),
            Shape::Replay { speed } => write!(f, "trace at {speed}x"),
            Shape::Rates { stages, arrival } => {
                write_stages(stages, f)?;
                write!(f, ", {arrival}")
            }
            Shape::Users { stages } => {
                f.write_str("concurrency ")?;
                write_stages(stages, f)
            }
            Shape::Static { batch } => write!(f, "batches of {batch}"),
            Shape::Classes { classes } => match self.constant_rate() {
                Some(rate) => write!(f, "{}/s of {} classes", six_digits(rate), classes.len()),
                None => write!(f, "arrivals of {} classes", classes.len()),
            },
        }
    }
}

/// Writes the stages, or the first ones and the number of all.
fn write_stages(stages: &[impl fmt::Display], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SHOWN: usize = 4;
    for (index, stage) in stages.iter().take(SHOWN).enumerate() {
        write!(f, "{}{stage}", if index == 0 { "" } else { ", " })?;
    }
    if stages.len() > SHOWN {
        write!(f, ", … ({} stages)", stages.len())
    } else {
        Ok(())
    }
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

/// The warm-up before measuring; measured requests follow without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmup {
    /// A number of requests, in addition to the measured ones.
    Requests(u64),
    /// All requests scheduled in this initial span.
    Span(Nanos),
}

/// A limit of the requests in flight of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxInFlight {
    /// Maximum number of requests, or sessions, in flight.
    pub of: u32,
    /// What happens to an arrival above it.
    pub then: AtLimit,
}

/// What happens to an arrival at [`MaxInFlight`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// It is not sent: `dropped`.
    #[default]
    Drop,
    /// It waits until a request ends. Its latency counts from its scheduled time.
    Hold,
}

/// The load of a case. At least one of `requests`, `turn_limit`, `duration` and stages is set; the first one reached
/// ends it.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Shape.
    pub shape: Shape,
    /// Maximum number of measured requests; of sessions, if the case has them.
    pub requests: Option<u64>,
    /// Maximum number of measured requests of all sessions: the sessions in progress end with it.
    pub turn_limit: Option<u64>,
    /// Length of the sending phase without warm-up.
    pub duration: Option<Nanos>,
    /// Warm-up.
    pub warmup: Warmup,
    /// How long requests in flight may continue after sending ends by time or by a signal.
    pub graceful_stop: Nanos,
    /// Open loop: limit of the requests in flight.
    pub max_in_flight: Option<MaxInFlight>,
    /// Open loop: stop sending when the server falls behind.
    pub stop_when_saturated: bool,
    /// Closed loop: users start evenly spaced over this span, the first at zero.
    pub spread: Nanos,
    /// Closed loop of sessions: longest time without a request in flight; the think times of all sessions then end
    /// earlier.
    pub max_idle: Option<Nanos>,
}

impl Load {
    /// Number of scheduled requests, warm-up included, if the scenario sets it or the rate implies it.
    pub fn planned(&self) -> Option<u64> {
        let by_count = self.requests.and_then(|n| match self.warmup {
            Warmup::Requests(extra) => Some(n + extra),
            Warmup::Span(span) => self.shape.due_within(span).map(|extra| n + extra),
        });
        let by_time = self.duration.and_then(|duration| match self.warmup {
            Warmup::Span(span) => self.shape.due_within(span + duration),
            Warmup::Requests(extra) => self.shape.due_within(duration).map(|n| n + extra),
        });
        let by_stages = self.shape.end().and_then(|end| self.shape.due_within(end));
        [by_count, by_time, by_stages].into_iter().flatten().min()
    }

    /// Maximum number of measured requests or sessions: each session has at least one request.
    pub fn most_measured(&self) -> Option<u64> {
        self.requests.into_iter().chain(self.turn_limit).min()
    }

    /// Whether unmeasured requests follow the measured ones until the last of these has ended. Without them the last
    /// requests of an open loop meet a server that gets emptier, and so do the last turns of sessions. The users of
    /// single requests need none: the throughput window ends before the first of them is idle. `sessions`: whether
    /// the case has sessions of several turns; a duration cuts them.
    pub fn cools_down(&self, sessions: bool) -> bool {
        let is_cut = sessions && (self.sending_duration().is_some() || self.turn_limit.is_some());
        let has_more = match self.shape {
            Shape::Open { .. } | Shape::Replay { .. } => true,
            Shape::Classes { .. } => self.shape.constant_rate().is_some(),
            // The number of a session decides whether it is measured.
            Shape::Closed { .. } => sessions && matches!(self.warmup, Warmup::Requests(_)),
            Shape::Burst | Shape::Rates { .. } | Shape::Users { .. } | Shape::Static { .. } => {
                false
            }
        };
        has_more && !is_cut && !self.holds()
    }

    /// Whether arrivals at `max_in_flight` wait.
    pub fn holds(&self) -> bool {
        self.max_in_flight
            .is_some_and(|limit| limit.then == AtLimit::Hold)
    }

    /// Length of the sending phase if time bounds it: without warm-up for `duration`, with warm-up for stages.
    pub fn sending_duration(&self) -> Option<Nanos> {
        self.duration.into_iter().chain(self.shape.end()).min()
    }

    /// Latest end of sending, counted from time zero, if measuring begins at `from`.
    pub fn sending_end(&self, from: Option<Nanos>) -> Option<Nanos> {
        let by_duration = from
            .zip(self.duration)
            .map(|(from, duration)| from + duration);
        by_duration.into_iter().chain(self.shape.end()).min()
    }
}

impl Load {
    /// A load of this shape without end, warm-up and drain time.
    pub fn new(shape: Shape) -> Load {
        Load {
            shape,
            requests: None,
            turn_limit: None,
            duration: None,
            warmup: Warmup::Requests(0),
            graceful_stop: Nanos::ZERO,
            max_in_flight: None,
            spread: Nanos::ZERO,
            max_idle: None,
            stop_when_saturated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(shape: Shape, requests: Option<u64>, secs: Option<u64>, warmup: Warmup) -> Load {
        let duration = secs.map(|s| Nanos::from_millis(s * 1000));
        Load {
            requests,
            duration,
            warmup,
            ..Load::new(shape)
        }
    }

    #[test]
    fn a_shape_prints_as_text() {
        let open = |arrival| Shape::Open { rate: 0.5, arrival }.to_string();
        assert_eq!(Shape::Closed { users: 16 }.to_string(), "concurrency 16");
        assert_eq!(
            (open(Arrival::Poisson), open(Arrival::Constant)),
            ("0.5/s poisson".into(), "0.5/s constant".into())
        );
        assert_eq!(
            (
                open(Arrival::Gamma { burstiness: 0.25 }),
                Shape::Burst.to_string()
            ),
            ("0.5/s gamma 0.25".into(), "burst".into())
        );
        for (rate, text) in [
            (100.0 / 60.0, "1.66667/s"),
            (0.1 / 60.0, "0.00166667/s"),
            (1234.5, "1234.5/s"),
            (1e6, "1000000/s"),
        ] {
            assert_eq!(
                Shape::Open {
                    rate,
                    arrival: Arrival::Constant
                }
                .to_string(),
                format!("{text} constant")
            );
        }
    }

    #[test]
    fn the_planned_count_is_the_first_limit_reached() {
        let open = Shape::Open {
            rate: 10.0,
            arrival: Arrival::Poisson,
        };
        assert_eq!(
            load(open.clone(), Some(500), Some(20), Warmup::Requests(5)).planned(),
            Some(205)
        );
        assert_eq!(
            load(open.clone(), Some(50), Some(20), Warmup::Requests(5)).planned(),
            Some(55)
        );
        assert_eq!(
            load(open, None, Some(20), Warmup::Span(Nanos::from_millis(1000))).planned(),
            Some(210)
        );
        let closed = Shape::Closed { users: 4 };
        assert_eq!(
            load(closed.clone(), None, Some(20), Warmup::Requests(0)).planned(),
            None
        );
        assert_eq!(
            load(closed.clone(), Some(100), Some(20), Warmup::Requests(8)).planned(),
            Some(108)
        );
        let second = Warmup::Span(Nanos::from_millis(1000));
        assert_eq!(
            load(closed, Some(100), None, second).planned(),
            None,
            "the number of requests in the warm-up depends on the server"
        );
    }

    fn staged(arrival: Arrival) -> Shape {
        let stage = |rate, secs: u64| RateStage {
            rate,
            span: Nanos::from_millis(secs * 1000),
        };
        let ramp = RateProfile::Ramp {
            from: 1.0,
            to: 20.0,
        };
        Shape::Rates {
            stages: [stage(RateProfile::Flat(1.0), 30), stage(ramp, 120)].into(),
            arrival,
        }
    }

    #[test]
    fn stages_bound_a_load() {
        let whole = load(staged(Arrival::Constant), None, None, Warmup::Requests(0));
        assert_eq!(
            (whole.planned(), whole.sending_duration()),
            (Some(1290), Some(Nanos::from_millis(150_000)))
        );
        let cut = load(
            staged(Arrival::Constant),
            None,
            Some(40),
            Warmup::Span(Nanos::from_millis(10_000)),
        );
        // 30 of the first stage, and 20·1 + 19·20²/240 = 51.67 of the 20 s after it.
        assert_eq!(
            (
                cut.planned(),
                cut.sending_end(Some(Nanos::from_millis(10_000)))
            ),
            (Some(82), Some(Nanos::from_millis(50_000)))
        );
        assert_eq!(cut.sending_end(None), Some(Nanos::from_millis(150_000)));
    }

    #[test]
    fn every_shape_prints_its_stages() {
        assert_eq!(
            staged(Arrival::Poisson).to_string(),
            "1/s for 30 s, 1/s → 20/s over 2 min, poisson"
        );
        assert_eq!(
            staged(Arrival::Poisson).stage(1).unwrap().to_string(),
            "1/s → 20/s over 2 min, poisson"
        );
        let four = UserStage {
            from: 4,
            to: 4,
            span: Nanos::from_millis(1000),
        };
        let users = |n| Shape::Users {
            stages: vec![four; n].into(),
        };
        assert_eq!(
            (users(1).to_string(), users(1).size()),
            ("concurrency 4 for 1 s".into(), (Some(4.0), "concurrency"))
        );
        assert!(
            users(6)
                .to_string()
                .ends_with("4 for 1 s, 4 for 1 s, … (6 stages)")
        );
        assert_eq!(
            (users(6).users(), users(6).end()),
            (Some(4), Some(Nanos::from_millis(6000)))
        );
        assert_eq!(Shape::Static { batch: 16 }.to_string(), "batches of 16");
    }
}
