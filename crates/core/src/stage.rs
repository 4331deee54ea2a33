//! Stages of a load that changes during a case.
//!
//! The rate of an open loop over time is r(t) ≥ 0. The area under it, Λ(t) = ∫₀ᵗ r(s) ds: is the expected number of
//! arrivals up to t. For a stage of length d and 0 ≤ t ≤ d:
//!
//! | course | r(t) | Λ(t) |
//! |---|---|---|
//! | flat | a | a·t |
//! | ramp | a + (b − a)·t/d | a·t + (b − a)·t²/(2d) |
//! | sine | m + A·sin(2πt/P), A ≤ m | m·t + A·P/(2π)·(1 − cos(2πt/P)) |

use crate::units::Nanos;
use std::f64::consts::TAU;
use std::fmt;

/// The rate within a stage, in arrivals per second, never negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RateProfile {
    /// Constant.
    Flat(f64),
    /// Linear.
    Ramp {
        /// Rate at the beginning.
        from: f64,
        /// Rate at the end.
        to: f64,
    },
    /// A sine wave that starts at its mean and rises.
    Sine {
        /// Mean rate.
        mean: f64,
        /// Amplitude, at most the mean.
        amplitude: f64,
        /// Period.
        period: Nanos,
    },
}

/// A stage of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStage {
    /// Rate.
    pub rate: RateProfile,
    /// Length, above zero.
    pub span: Nanos,
}

/// A stage of a closed loop: the number of users changes linearly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserStage {
    /// Users at the beginning.
    pub from: u32,
    /// Users at the end.
    pub to: u32,
    /// Length, above zero.
    pub span: Nanos,
}

impl RateStage {
    /// Expected arrivals in the first `seconds` of the stage: Λ of the table above.
    pub fn area(&self, seconds: f64) -> f64 {
        let (t, d) = (seconds.clamp(0.0, self.span.secs()), self.span.secs());
        match self.rate {
            RateProfile::Flat(rate) => rate * t,
            RateProfile::Ramp { from, to } => from * t + (to - from) * t * t / (2.0 * d),
            RateProfile::Sine {
                mean,
                amplitude,
                period,
            } => {
                let p = period.secs();
                mean * t + amplitude * p / TAU * (1.0 - (TAU * t / p).cos())
            }
        }
    }

    /// Expected arrivals in the stage.
    pub fn total(&self) -> f64 {
        self.area(self.span.secs())
    }
}

/// Begin and end of consecutive spans, from zero.
pub fn bounds(spans: impl Iterator<Item = Nanos>) -> impl Iterator<Item = (Nanos, Nanos)> {
    spans.scan(Nanos::ZERO, |end, span| {
        let from = *end;
        *end = from + span;
        Some((from, *end))
    })
}

impl fmt::Display for RateStage {
    /// `1/s for 30 s`, `1/s → 20/s over 2 min`, `10/s ± 5/s every 30 s for 2 min`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = HumanSpan(self.span);
        match self.rate {
            RateProfile::Flat(rate) => write!(f, "{}/s for {span}", six_digits(rate)),
            RateProfile::Ramp { from, to } => write!(
                f,
                "{}/s → {}/s over {span}",
                six_digits(from),
                six_digits(to)
            ),
            RateProfile::Sine {
                mean,
                amplitude,
                period,
            } => {
                write!(
                    f,
                    "{}/s ± {}/s every {} for {span}",
                    six_digits(mean),
                    six_digits(amplitude),
                    HumanSpan(period)
                )
            }
        }
    }
}

impl fmt::Display for UserStage {
    /// `4 for 30 s`, `4 → 64 over 1 min`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UserStage { from, to, span } = *self;
        if from == to {
            write!(f, "{from} for {}", HumanSpan(span))
        } else {
            write!(f, "{from} → {to} over {}", HumanSpan(span))
        }
    }
}

/// Formats a span for people: `2 min`, `30 s`, `250 ms`.
pub(super) struct HumanSpan(pub(super) Nanos);

impl fmt::Display for HumanSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0 {
            nanos if nanos > 0 && nanos % 60_000_000_000 == 0 => {
                write!(f, "{} min", nanos / 60_000_000_000)
            }
            nanos if nanos >= 1_000_000_000 => write!(f, "{} s", self.0.secs()),
            _ => write!(f, "{} ms", self.0.millis()),
        }
    }
}

/// Rounds a rate to six significant digits: `100/m` is 1.66667 per second.
pub(super) fn six_digits(rate: f64) -> f64 {
    if rate == 0.0 {
        return rate;
    }
    let scale = 10f64.powi(5 - rate.log10().floor() as i32);
    if scale.is_finite() && scale > 0.0 {
        (rate * scale).round() / scale
    } else {
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(rate: RateProfile, secs: u64) -> RateStage {
        RateStage {
            rate,
            span: Nanos::from_millis(secs * 1000),
        }
    }

    #[test]
    fn areas_are_those_of_the_table() {
        let ramp = stage(
            RateProfile::Ramp {
                from: 1.0,
                to: 20.0,
            },
            120,
        );
        assert_eq!(
            (ramp.total(), ramp.area(60.0), ramp.area(999.0)),
            (1260.0, 345.0, 1260.0)
        );
        let sine = stage(
            RateProfile::Sine {
                mean: 10.0,
                amplitude: 5.0,
                period: Nanos::from_millis(30_000),
            },
            120,
        );
        assert!(
            (sine.total() - 1200.0).abs() < 1e-9,
            "whole waves have the mean's area: {}",
            sine.total()
        );
        let half = 150.0 + 5.0 * 30.0 / TAU * 2.0;
        assert!((sine.area(15.0) - half).abs() < 1e-9);
        assert_eq!(stage(RateProfile::Flat(0.0), 9).total(), 0.0);
    }

    #[test]
    fn stages_print_as_text() {
        let sine = RateProfile::Sine {
            mean: 10.0,
            amplitude: 5.0,
            period: Nanos::from_millis(500),
        };
        assert_eq!(
            stage(
                RateProfile::Ramp {
                    from: 1.0,
                    to: 20.0
                },
                120
            )
            .to_string(),
            "1/s → 20/s over 2 min"
        );
        assert_eq!(
            stage(RateProfile::Flat(100.0 / 60.0), 90).to_string(),
            "1.66667/s for 90 s"
        );
        assert_eq!(
            stage(sine, 61).to_string(),
            "10/s ± 5/s every 500 ms for 61 s"
        );
        assert_eq!(
            stage(RateProfile::Ramp { from: 0.0, to: 0.5 }, 1).to_string(),
            "0/s → 0.5/s over 1 s"
        );
        let users = |from, to| {
            UserStage {
                from,
                to,
                span: Nanos::from_millis(1500),
            }
            .to_string()
        };
        assert_eq!(
            (users(4, 64), users(4, 4)),
            ("4 → 64 over 1.5 s".into(), "4 for 1.5 s".into())
        );
    }

    #[test]
    fn stages_follow_one_another() {
        let spans = [3, 1, 2].map(Nanos).into_iter();
        assert_eq!(
            bounds(spans).collect::<Vec<_>>(),
            [
                (Nanos(0), Nanos(3)),
                (Nanos(3), Nanos(4)),
                (Nanos(4), Nanos(6))
            ]
        );
    }
}
