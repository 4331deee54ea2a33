//! Labels of a case: the swept fields and their values.

use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// The value as a number; `8/s` is 8.
    pub fn number(&self) -> Option<f64> {
        match self {
            Scalar::Bool(_) => None,
            Scalar::Int(value) => Some(*value as f64),
            Scalar::Float(value) => Some(*value),
            Scalar::Text(text) => text.trim_end_matches("/s").trim().parse().ok(),
        }
    }
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

    /// Whether these labels include every pair of `subset`; numbers compare by value.
    pub fn covers(&self, subset: &Labels) -> bool {
        subset.0.iter().all(|(path, value)| {
            self.get(path).is_some_and(|found| {
                found == value || (found.number().is_some() && found.number() == value.number())
            })
        })
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
}
