//! The normal distribution as standard scores, and Student's t for few values, whose own spread is all that is known of theirs.

use statrs::distribution::{Continuous, ContinuousCDF, Normal, StudentsT};

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

/// Degrees of freedom from which on it equals the normal distribution.
const MANY: f64 = 1e6;

/// The quantile `level`, 0 < level < 1, with so many degrees of `freedom`; infinite ones are the normal law.
pub fn t_quantile(level: f64, freedom: f64) -> f64 {
    student(freedom).map_or_else(|| score(level), |own| own.inverse_cdf(level))
}

/// The probability of more than `t`.
pub fn t_above(t: f64, freedom: f64) -> f64 {
    student(freedom).map_or_else(|| probability(-t), |own| own.sf(t))
}

fn student(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok().filter(|_| freedom < MANY)
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

    #[test]
    fn the_tabled_values() {
        assert!((t_quantile(0.975, 4.0) - 2.776445).abs() < 1e-5 && (t_quantile(0.975, f64::INFINITY) - 1.959964).abs() < 1e-5);
        // R: pt(-2, 3).
        assert!((t_above(2.0, 3.0) - 0.0696630).abs() < 1e-6 && (t_above(1.959964, 1e9) - 0.025).abs() < 1e-6);
    }
}
