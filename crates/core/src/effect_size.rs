//! How much a difference matters.

use serde::Serialize;

/// How much an effect is, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Magnitude {
    /// Hardly there.
    Negligible,
    /// Small.
    Small,
    /// Medium.
    Medium,
    /// Large.
    Large,
}

impl Magnitude {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Magnitude::Negligible => "negligible",
            Magnitude::Small => "small",
            Magnitude::Medium => "medium",
            Magnitude::Large => "large",
        }
    }
}

/// An effect size; positive where the other run's values are the greater ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Of two distributions: P[other > base] − P[other < base] of a random pair of requests.
    CliffsDelta(f64),
    /// Of two shares.
    CohensH(f64),
}

impl Effect {
    /// The number.
    pub fn value(self) -> f64 {
        match self {
            Effect::CliffsDelta(value) | Effect::CohensH(value) => value,
        }
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Effect::CliffsDelta(_) => "cliffs_delta",
            Effect::CohensH(_) => "cohens_h",
        }
    }

    /// In words. Delta by Romano, Kromrey, Coraggio and Skowronek, "Appropriate statistics for ordinal level data" (2006):
    /// 0.147, 0.33, 0.474; h by Cohen (1988): 0.2, 0.5, 0.8.
    pub fn magnitude(self) -> Magnitude {
        let [small, medium, large] = match self {
            Effect::CliffsDelta(_) => [0.147, 0.33, 0.474],
            Effect::CohensH(_) => [0.2, 0.5, 0.8],
        };
        match self.value().abs() {
            size if size >= large => Magnitude::Large,
            size if size >= medium => Magnitude::Medium,
            size if size >= small => Magnitude::Small,
            _ => Magnitude::Negligible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_at_the_published_sizes() {
        use Magnitude::{Large, Medium, Negligible, Small};
        let delta = [0.146, -0.147, 0.33, -0.474].map(|size| Effect::CliffsDelta(size).magnitude());
        let h = [0.19, -0.2, 0.5, -0.8].map(|size| Effect::CohensH(size).magnitude());
        assert_eq!((delta, h), ([Negligible, Small, Medium, Large], [Negligible, Small, Medium, Large]));
    }
}
