//! Probabilities as standard scores, and how several of them make one.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

/// The score z with Φ(z) = `probability`, for 0 < probability < 1.
pub fn score(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

/// Φ(z).
pub fn probability(score: f64) -> f64 {
    Normal::standard().cdf(score)
}

/// φ(z).
pub fn density(score: f64) -> f64 {
    Normal::standard().pdf(score)
}

/// One score of several independent ones, each with its weight: Σ w z / √Σ w² (Stouffer and others, "The American Soldier" 1,
/// 1949, with the weights of Liptak, 1958). With w = √n it is the score that the pooled samples would have given. 0 for none.
pub fn pooled(scores: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let (sum, squares) = scores.into_iter().fold((0.0, 0.0), |(sum, squares), (z, w)| (sum + w * z, squares + w * w));
    if squares > 0.0 { sum / squares.sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_and_probabilities_are_inverse() {
        assert!((score(0.975) - 1.959964).abs() < 1e-6);
        assert!((probability(score(0.2)) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn equal_samples_grow_by_the_root_of_their_number() {
        assert!((pooled([(1.0, 3.0), (1.0, 3.0)]) - 2f64.sqrt()).abs() < 1e-12);
        assert!((pooled([(1.0, 2.0), (-2.0, 1.0)])).abs() < 1e-12);
        assert_eq!(pooled([]), 0.0);
    }
}
