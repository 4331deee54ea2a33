//! Axes: positions of values, and ticks at round numbers.

use crate::format::thousands;
use llmscen_core::report::Series;

/// An axis extends at least this factor beyond the greatest value, so that no line runs along the edge.
const HEADROOM: f64 = 1.04;

/// One axis of a panel, in data units.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Title with the unit.
    pub title: String,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Whether the scale is logarithmic.
    pub log: bool,
    /// Values with a grid line and their labels, ascending.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero to a round number above the greatest value.
    pub fn from_zero(title: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Axis {
        let greatest = values
            .into_iter()
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max);
        let span = if greatest > 0.0 { greatest } else { 1.0 };
        let step = round_step(span, 5);
        let count = (span / step - 1e-9).ceil().max(1.0) as u32;
        let ticks = (0..=count)
            .map(|index| tick(f64::from(index) * step))
            .collect();
        let high = (f64::from(count) * step).max(span * HEADROOM);
        Axis {
            title: title.into(),
            low: 0.0,
            high,
            log: false,
            ticks,
        }
    }

    /// As [`Axis::from_zero`], with ticks at whole numbers only.
    pub fn counts(title: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Axis {
        let mut axis = Axis::from_zero(title, values.into_iter().chain([1.0]));
        axis.ticks
            .retain(|(value, _)| (value - value.round()).abs() < 1e-9);
        axis
    }

    /// From zero to slightly more than `high`, for time.
    pub fn until(title: impl Into<String>, high: f64) -> Axis {
        let mut axis = Axis::from_zero(title, [high]);
        axis.high = if high > 0.0 && high.is_finite() {
            high * 1.01
        } else {
            axis.high
        };
        axis.ticks
            .retain(|(value, _)| *value <= axis.high * (1.0 + 1e-9));
        axis
    }

    /// Shares from 0 to 100 %.
    pub fn shares(title: impl Into<String>) -> Axis {
        let ticks = (0..=4)
            .map(|quarter| (f64::from(quarter) * 0.25, format!("{}%", quarter * 25)))
            .collect();
        Axis {
            title: title.into(),
            low: 0.0,
            high: 1.0,
            log: false,
            ticks,
        }
    }

    /// Values in order, each in the middle of its step.
    pub fn categories(title: &str, values: &[String]) -> Axis {
        let label = |(index, value): (usize, &String)| (index as f64 + 0.5, value.clone());
        Axis {
            title: title.to_owned(),
            low: 0.0,
            high: values.len().max(1) as f64,
            log: false,
            ticks: values.iter().enumerate().map(label).collect(),
        }
    }

    /// Logarithmic if the positive values span a factor of at least `spread`, otherwise from zero.
    pub fn fit(title: impl Into<String>, values: &[f64], spread: f64) -> Axis {
        let positive = || {
            values
                .iter()
                .copied()
                .filter(|value| value.is_finite() && *value > 0.0)
        };
        let (low, high) = (
            positive().fold(f64::INFINITY, f64::min),
            positive().fold(0.0, f64::max),
        );
        if low.is_finite() && high / low >= spread {
            Axis::log(title, low, high)
        } else {
            Axis::from_zero(title, [high])
        }
    }

    /// A logarithmic axis.
    pub fn log(title: impl Into<String>, low: f64, high: f64) -> Axis {
        // Ticks within each power of ten; more of them for a shorter axis.
        let steps: &[f64] = match high / low {
            1000.0.. => &[1.0],
            6.0.. => &[1.0, 2.0, 5.0],
            _ => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
        };
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        let all: Vec<f64> = (first..=last)
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .collect();
        let below = all
            .iter()
            .rposition(|value| *value <= low * (1.0 + 1e-9))
            .unwrap_or(0);
        let above = all
            .iter()
            .position(|value| *value >= high * (1.0 - 1e-9))
            .unwrap_or(all.len() - 1);
        let ticks: Vec<(f64, String)> = all[below..=above.max(below)]
            .iter()
            .map(|value| tick(*value))
            .collect();
        let pad = (high / low).powf(0.03).max(1.01);
        let axis = Axis {
            title: title.into(),
            low: low / pad,
            high: high * pad,
            log: true,
            ticks,
        }
        .trimmed();
        if axis.ticks.len() > 1 {
            axis
        } else {
            axis.with_even_ticks()
        }
    }

    /// Ticks in equal steps, for an axis that is too short for powers of ten.
    pub fn with_even_ticks(mut self) -> Axis {
        let step = round_step(self.high - self.low, 4);
        let first = (self.low / step).ceil();
        self.ticks = (0..=5)
            .map(|index| tick((first + f64::from(index)) * step))
            .collect();
        self.trimmed()
    }

    /// An axis of loads: up to 12 loads are the ticks; logarithmic if they span a factor of at least 8.
    pub fn loads(title: impl Into<String>, values: &[f64]) -> Axis {
        let mut loads: Vec<f64> = values
            .iter()
            .copied()
            .filter(|value| value.is_finite())
            .collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        let (low, high) = (
            loads.first().copied().unwrap_or(0.0),
            loads.last().copied().unwrap_or(1.0),
        );
        let log = low > 0.0 && high / low >= 8.0;
        let mut axis = if log {
            Axis::log(title, low, high)
        } else {
            Axis::from_zero(title, [high])
        };
        if !log && high > low {
            let pad = (high - low) * 0.06;
            (axis.low, axis.high) = (low - pad, high + pad);
        }
        if loads.len() <= 12 {
            axis.ticks = loads.iter().map(|value| tick(*value)).collect();
        }
        axis.trimmed()
    }

    /// The position of a value, 0 at the lower and 1 at the upper end; values outside are clamped.
    pub fn position(&self, value: f64) -> f64 {
        let position = match self.log {
            true if value <= 0.0 => 0.0,
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        if position.is_finite() {
            position.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Removes ticks outside the axis.
    pub fn trimmed(mut self) -> Axis {
        let (low, high) = (self.low * (1.0 - 1e-9), self.high * (1.0 + 1e-9));
        self.ticks.retain(|(value, _)| (low..=high).contains(value));
        self
    }
}

/// The unit of durations: milliseconds, or seconds for long ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeUnit {
    /// `ms` or `s`.
    pub name: &'static str,
    /// Converts milliseconds to the unit.
    pub factor: f64,
}

impl TimeUnit {
    /// The unit for values in milliseconds.
    pub fn for_values(values: impl IntoIterator<Item = f64>) -> TimeUnit {
        let greatest = values.into_iter().fold(0.0, f64::max);
        if greatest >= 5000.0 {
            TimeUnit {
                name: "s",
                factor: 1e-3,
            }
        } else {
            TimeUnit {
                name: "ms",
                factor: 1.0,
            }
        }
    }
}

/// The points with their coordinates multiplied by `x` and `y`.
pub fn scaled(points: &[(f64, f64)], x: f64, y: f64) -> Series {
    points.iter().map(|(a, b)| (a * x, b * y)).collect()
}

fn tick(value: f64) -> (f64, String) {
    let rounded = (value * 1e9).round() / 1e9;
    let text = if rounded.fract() == 0.0 && rounded.abs() < 10_000.0 {
        format!("{rounded}")
    } else {
        short_label(rounded)
    };
    (value, text)
}

fn short_label(value: f64) -> String {
    match value.abs() < 10_000.0 {
        true => format!("{}", (value * 1e6).round() / 1e6),
        false if value % 1000.0 == 0.0 => format!("{}k", value / 1000.0),
        false => thousands(value),
    }
}

/// The least of 1, 2, 2.5, 5 times a power of ten that divides `span` into at most `parts` steps.
fn round_step(span: f64, parts: u32) -> f64 {
    let raw = span / f64::from(parts);
    let power = 10f64.powi(raw.log10().floor() as i32);
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= raw * (1.0 - 1e-9))
        .unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(
            labels(&Axis::from_zero("", [87.0])),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(&Axis::from_zero("", [0.9])),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
        assert_eq!(
            labels(&Axis::from_zero("", [24_000.0])),
            ["0", "5000", "10k", "15k", "20k", "25k"]
        );
        assert_eq!(
            labels(&Axis::from_zero("", [])),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
        assert_eq!(labels(&Axis::log("", 3.0, 4_000.0)), ["10", "100", "1000"]);
        assert_eq!(
            labels(&Axis::log("", 30.0, 1_500.0)),
            ["50", "100", "200", "500", "1000"]
        );
        assert_eq!(labels(&Axis::log("", 12.0, 90.0)), ["20", "50"]);
        assert_eq!(
            labels(&Axis::until("", 83.0)),
            ["0", "20", "40", "60", "80"]
        );
    }

    #[test]
    fn few_loads_are_the_ticks() {
        let axis = Axis::loads("", &[64.0, 1.0, 16.0, 16.0]);
        assert_eq!((labels(&axis), axis.log), (vec!["1", "16", "64"], true));
        let many: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            labels(&Axis::loads("", &many)),
            ["1", "2", "5", "10", "20", "50", "100"]
        );
        assert!(!Axis::loads("", &[2.0, 4.0]).log);
    }

    #[test]
    fn a_wide_range_is_logarithmic() {
        assert!(Axis::fit("", &[0.0, 1.0, 40.0], 30.0).log);
        assert!(!Axis::fit("", &[0.0, 2.0, 40.0], 30.0).log);
        assert!(!Axis::fit("", &[0.0], 30.0).log);
    }

    #[test]
    fn long_spans_are_seconds() {
        assert_eq!(
            (
                TimeUnit::for_values([20.0, 4999.0]).name,
                TimeUnit::for_values([5000.0]).name,
                TimeUnit::for_values([]).name
            ),
            ("ms", "s", "ms")
        );
    }

    proptest! {
        #[test]
        fn every_value_keeps_its_order_on_the_axis(mut values in proptest::collection::vec(1e-3f64..1e6, 2..40)) {
            values.sort_by(f64::total_cmp);
            for axis in [Axis::fit("", &values, 30.0), Axis::from_zero("", values.clone()), Axis::loads("", &values)] {
                let positions: Vec<f64> = values.iter().map(|value| axis.position(*value)).collect();
                prop_assert!(positions.windows(2).all(|pair| pair[0] <= pair[1]));
                prop_assert!(axis.low <= values[0] && values[values.len() - 1] <= axis.high * (1.0 + 1e-9));
                prop_assert!((2..=13).contains(&axis.ticks.len()) || axis.log, "{axis:?}");
            }
        }
    }
}
