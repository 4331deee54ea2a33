//! Time spans in nanoseconds, the units of metrics, and their text forms.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};
use std::time::Duration;

/// An instant or a span on the monotonic clock, in nanoseconds.
///
/// As an instant it counts from the start of its case; `Nanos(0)` is that start.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The start of the case.
    pub const ZERO: Nanos = Nanos(0);

    /// Whole milliseconds as a span.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// Seconds as a span; negative values and NaN become zero.
    pub fn from_secs_f64(secs: f64) -> Nanos {
        Nanos((secs * 1e9).round() as u64)
    }

    /// This span in milliseconds.
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// This span in seconds.
    pub fn secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span from `earlier` to `self`, or zero if `earlier` is later.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.since(other)
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl From<Duration> for Nanos {
    fn from(span: Duration) -> Nanos {
        Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The unit a metric is measured in and a limit may be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Milliseconds; limits may also be written in `ns us ms s m h`.
    Millis,
    /// A share, stored as 0..=1 and written in `%`.
    Share,
    /// Tokens per second.
    TokensPerSecond,
    /// Requests per second.
    RequestsPerSecond,
    /// Inputs or results per second: texts embedded, documents ranked, images generated.
    ItemsPerSecond,
    /// Sessions per second.
    SessionsPerSecond,
    /// Sessions per hour.
    SessionsPerHour,
    /// A count of tokens.
    Tokens,
    /// A plain number.
    Count,
    /// Seconds.
    Seconds,
    /// A count per second.
    PerSecond,
    /// Bytes; limits may also be written in `KB MB GB KiB MiB GiB`.
    Bytes,
    /// Bytes per second; limits may also be written in `KB/s` and so on.
    BytesPerSecond,
    /// Watts.
    Watts,
    /// Joules.
    Joules,
    /// Money, in the currency of `target.cost`.
    Cost,
    /// Megahertz.
    Megahertz,
    /// Degrees Celsius.
    Celsius,
}

impl Unit {
    /// Formats a threshold with its unit, in scenario syntax.
    pub fn threshold(self, value: f64) -> String {
        let number = if self == Unit::Share {
            to_percent(value)
        } else {
            value
        };
        let space = if self.symbol().contains('/') || self == Unit::Tokens {
            " "
        } else {
            ""
        };
        format!("{number}{space}{}", self.symbol())
    }

    /// The symbol after a number, empty for plain counts.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::Millis => "ms",
            Unit::Share => "%",
            Unit::TokensPerSecond => "tok/s",
            Unit::RequestsPerSecond => "req/s",
            Unit::ItemsPerSecond => "items/s",
            Unit::SessionsPerSecond => "sessions/s",
            Unit::SessionsPerHour => "sessions/h",
            Unit::Tokens => "tok",
            Unit::Count => "",
            Unit::Seconds => "s",
            Unit::PerSecond => "/s",
            Unit::Bytes => "B",
            Unit::BytesPerSecond => "B/s",
            Unit::Watts => "W",
            Unit::Joules => "J",
            Unit::Cost => "",
            Unit::Megahertz => "MHz",
            Unit::Celsius => "°C",
        }
    }
}

/// Duration units and their lengths in nanoseconds.
pub const DURATION_UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration, a sum of numbers with units: `30s`, `1m30s`.
pub fn parse_duration(text: &str) -> Option<Nanos> {
    let mut rest = text.trim();
    let mut sum = if rest.is_empty() {
        None
    } else {
        Some(Nanos::ZERO)
    };
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let number: f64 = number.parse().ok()?;
        sum = sum.map(|sum| sum + Nanos((number * scale as f64).round() as u64));
        rest = tail.trim_start();
    }
    sum
}

/// Converts a share to percent by moving the decimal point in its text, so that no digit changes.
pub fn to_percent(share: f64) -> f64 {
    let text = format!("{share:e}");
    let moved = text.split_once('e').and_then(|(digits, power)| {
        format!("{digits}e{}", power.parse::<i32>().ok()? + 2)
            .parse()
            .ok()
    });
    moved.unwrap_or(share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_never_negative() {
        assert_eq!(Nanos(3).since(Nanos(5)), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(-1.0), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(f64::NAN), Nanos::ZERO);
    }

    #[test]
    fn a_millisecond_is_a_million_nanoseconds() {
        assert_eq!(Nanos::from_millis(2), Nanos(2_000_000));
        assert_eq!(Nanos(1_500_000).millis(), 1.5);
        assert_eq!(Nanos::from_secs_f64(0.25), Nanos(250_000_000));
    }
}
