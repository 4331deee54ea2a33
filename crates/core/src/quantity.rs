//! Lengths in tokens.

use crate::distribution::{Distribution, Family};

/// A length in tokens: drawn, or from the dataset.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    /// Drawn, rounded, and at least 1.
    Drawn(Distribution),
    /// A field of the dataset row, such as `output_tokens`.
    Item(String),
}

impl Quantity {
    /// A constant.
    pub fn fixed(tokens: u64) -> Quantity {
        Quantity::Drawn(Distribution::fixed(tokens as f64))
    }

    /// Uniform over the integers from `low` to `high`, inclusive.
    pub fn uniform(low: u64, high: u64) -> Quantity {
        Quantity::Drawn(Distribution::uniform(low, high))
    }

    /// The constant; None if lengths differ.
    pub fn constant(&self) -> Option<u64> {
        match self {
            Quantity::Drawn(drawn) => match drawn.family() {
                Family::Fixed(tokens) => Some(*tokens as u64),
                _ => None,
            },
            Quantity::Item(_) => None,
        }
    }

    /// Maximum length; None without one.
    pub fn max(&self) -> Option<u64> {
        match self {
            Quantity::Drawn(drawn) => Some(drawn.range().1)
                .filter(|max| max.is_finite())
                .map(|max| max.round() as u64),
            Quantity::Item(_) => None,
        }
    }
}
