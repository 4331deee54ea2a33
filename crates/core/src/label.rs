//! Labels of a case: the swept fields and their values.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Bound, RangeBounds};

/// The label of a named variant of the server.
pub const VARIANT: &str = "variant";

/// The label of a named workload.
pub const WORKLOAD: &str = "workload";

/// The label of a stage within its case, from 1; `all` is the case itself.
pub const STAGE: &str = "load.stage";

/// One value of a swept field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text, including rates such as `8/s`.
    Text(String),
}

impl Scalar {
    /// The value as a number; `8/s` and `480/m` are 8.
    pub fn number(&self) -> Option<f64> {
        match self {
            Scalar::Bool(_) => None,
            Scalar::Int(value) => Some(*value as f64),
            Scalar::Float(value) => Some(*value),
            Scalar::Text(text) => {
                per_second(text).or_else(|| text.trim_end_matches("/s").trim().parse().ok())
            }
        }
    }

    /// Whether the value meets a condition: an equal value, where numbers compare by value; a band such as `64..256`
    /// or `>= 64`; or a text in which `*` stands for any characters.
    pub fn meets(&self, condition: &Scalar) -> bool {
        let same_number = || self.number().is_some() && self.number() == condition.number();
        if self == condition || same_number() || self.to_string() == condition.to_string() {
            return true;
        }
        let Scalar::Text(pattern) = condition else {
            return false;
        };
        match (Band::parse(pattern), self.number(), self) {
            (Some(band), Some(number), _) => band.contains(number),
            (None, _, Scalar::Text(text)) => matches_pattern(text, pattern),
            _ => false,
        }
    }
}

/// Units of rates, and their seconds.
const RATE_UNITS: [(&str, f64); 3] = [("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// A rate such as `8/s`, `480/m` or `28800/h`, per second.
pub fn per_second(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once('/')?;
    let known = RATE_UNITS.iter().find(|(name, _)| *name == unit.trim());
    Some(number.trim().parse::<f64>().ok()? / known?.1)
}

/// The one text of a rate: in the first unit in which it has at most six digits, else per second. So `1.0/s` and
/// `60/m` are `1/s`.
pub fn rate_text(per_second: f64) -> String {
    let text = |(unit, seconds): &(&str, f64)| {
        let number = per_second * seconds;
        let short: f64 = format!("{number:.5e}").parse().ok()?;
        ((short / number - 1.0).abs() < 1e-12).then(|| format!("{short}/{unit}"))
    };
    let mut texts = RATE_UNITS.iter().filter_map(text);
    texts.next().unwrap_or_else(|| format!("{per_second}/s"))
}

/// A range of numbers. `64..256` includes both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    low: Bound<f64>,
    high: Bound<f64>,
}

impl Band {
    /// Parses `64..256`, `64..`, `..256`, `>= 64`, `> 64`, `<= 64` or `< 64`; None for other texts.
    pub fn parse(text: &str) -> Option<Band> {
        let number = |text: &str| Scalar::Text(text.to_owned()).number();
        if let Some((low, high)) = text.split_once("..") {
            let end = |text: &str| match text.trim() {
                "" => Some(Bound::Unbounded),
                text => number(text).map(Bound::Included),
            };
            let band = Band {
                low: end(low)?,
                high: end(high)?,
            };
            let is_open = |bound: &Bound<f64>| matches!(bound, Bound::Unbounded);
            return (!is_open(&band.low) || !is_open(&band.high)).then_some(band);
        }
        type Kind = fn(f64) -> Bound<f64>;
        let above = |kind: Kind, rest: &str| {
            Some(Band {
                low: kind(number(rest)?),
                high: Bound::Unbounded,
            })
        };
        let below = |kind: Kind, rest: &str| {
            Some(Band {
                low: Bound::Unbounded,
                high: kind(number(rest)?),
            })
        };
        if let Some(rest) = text.strip_prefix(">=") {
            above(Bound::Included, rest)
        } else if let Some(rest) = text.strip_prefix('>') {
            above(Bound::Excluded, rest)
        } else if let Some(rest) = text.strip_prefix("<=") {
            below(Bound::Included, rest)
        } else {
            below(Bound::Excluded, text.strip_prefix('<')?)
        }
    }

    fn contains(&self, number: f64) -> bool {
        (self.low, self.high).contains(&number)
    }
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn matches_pattern(text: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return text == pattern;
    };
    let Some(text) = text.strip_prefix(first) else {
        return false;
    };
    text.char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .any(|at| matches_pattern(&text[at..], rest))
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value}"),
            Scalar::Text(value) => f.write_str(value),
        }
    }
}

/// A label as text: `concurrency=16`; of a variant or workload the name alone, since it says what it is.
pub fn describe(name: &str, value: impl fmt::Display) -> String {
    match name {
        VARIANT | WORKLOAD => value.to_string(),
        name => format!("{name}={value}"),
    }
}

/// The swept fields of one case and their values, in the order of the matrix: `load.concurrency` → 16.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(pub Vec<(String, Scalar)>);

impl Labels {
    /// The value of one swept field.
    pub fn get(&self, path: &str) -> Option<&Scalar> {
        self.0
            .iter()
            .find(|(key, _)| key == path)
            .map(|(_, value)| value)
    }

    /// Returns the labels with one added.
    pub fn with(&self, path: &str, value: Scalar) -> Labels {
        Labels(
            self.0
                .iter()
                .cloned()
                .chain([(path.to_owned(), value)])
                .collect(),
        )
    }

    /// Whether these labels meet every condition of `subset`, as [`Scalar::meets`].
    pub fn covers(&self, subset: &Labels) -> bool {
        subset
            .0
            .iter()
            .all(|(path, condition)| self.get(path).is_some_and(|value| value.meets(condition)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_compares_numbers_as_numbers() {
        let labels = Labels(vec![
            ("load.concurrency".into(), Scalar::Int(16)),
            ("load.rate".into(), Scalar::Text("8/s".into())),
        ]);
        assert!(labels.covers(&Labels(vec![(
            "load.concurrency".into(),
            Scalar::Float(16.0)
        )])));
        assert!(labels.covers(&Labels(vec![("load.rate".into(), Scalar::Int(8))])));
        assert!(!labels.covers(&Labels(vec![("load.concurrency".into(), Scalar::Int(4))])));
        assert!(!labels.covers(&Labels(vec![("seed".into(), Scalar::Int(4))])));
        assert!(labels.covers(&Labels::default()));
    }

    #[test]
    fn a_rate_has_one_text() {
        let one = |text: &str| rate_text(per_second(text).unwrap());
        assert_eq!(
            ["1/s", "1.0/s", "60/m", "3600 / h", "0.50/s", "30/m"].map(one),
            ["1/s", "1/s", "1/s", "1/s", "0.5/s", "0.5/s"]
        );
        assert_eq!(
            ["100/m", "6000/h", "7/h", "0.0123456789/s", "250/s"].map(one),
            ["100/m", "100/m", "7/h", "0.0123456789/s", "250/s"]
        );
        assert_eq!(
            [per_second("8"), per_second("8/d"), per_second("x/s")],
            [None; 3]
        );
        assert_eq!(Scalar::Text("480/m".into()).number(), Some(8.0));
    }

    #[test]
    fn conditions_are_values_bands_and_patterns() {
        let text = |text: &str| Scalar::Text(text.to_owned());
        for (value, condition, expected) in [
            (Scalar::Int(64), "64..256", true),
            (Scalar::Int(256), "64..256", true),
            (Scalar::Int(257), "64..256", false),
            (Scalar::Int(64), ">= 64", true),
            (Scalar::Int(64), "> 64", false),
            (Scalar::Int(8), "<64", true),
            (Scalar::Int(65), "<= 64", false),
            (Scalar::Int(5), "..8", true),
            (Scalar::Int(5), "8..", false),
            (text("8/s"), "4/s..8/s", true),
            (text("MI355X"), "MI3*", true),
            (text("NVIDIA H200"), "*H2*0", true),
            (text("NVIDIA H200"), "H200", false),
            (Scalar::Bool(true), "true*", false),
            (text("x"), "..", false),
        ] {
            assert_eq!(
                value.meets(&text(condition)),
                expected,
                "{value} {condition}"
            );
        }
    }
}
