//! The normal distribution and Student's t, and the Kolmogorov-Smirnov test of a sample against a distribution.

use crate::stats::quantile::sort;
use statrs::distribution::{Continuous, ContinuousCDF, Normal, StudentsT};

/// The standard normal quantile: z with Φ(z) = `probability`, for 0 < probability < 1.
pub fn score(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

/// The standard normal distribution function Φ(z).
pub fn probability(score: f64) -> f64 {
    Normal::standard().cdf(score)
}

/// The standard normal density φ(z).
pub fn density(score: f64) -> f64 {
    Normal::standard().pdf(score)
}

/// Combines independent z-scores with weights: Σ w z / √Σ w² (Stouffer and others, "The American Soldier" 1, 1949;
/// weights: Liptak, 1958). With w = √n it is the score of the pooled samples. 0 without scores.
pub fn pooled(scores: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let (sum, squares) = scores
        .into_iter()
        .fold((0.0, 0.0), |(sum, squares), (z, w)| {
            (sum + w * z, squares + w * w)
        });
    if squares > 0.0 {
        sum / squares.sqrt()
    } else {
        0.0
    }
}

/// Degrees of freedom from which on Student's t is treated as normal.
const MANY: f64 = 1e6;

/// The quantile `level`, 0 < level < 1, of Student's t with `freedom` degrees of freedom; infinity is the normal
/// distribution.
pub fn t_quantile(level: f64, freedom: f64) -> f64 {
    student(freedom).map_or_else(|| score(level), |student| student.inverse_cdf(level))
}

/// P(T > `t`) for Student's t with `freedom` degrees of freedom.
pub fn t_above(t: f64, freedom: f64) -> f64 {
    student(freedom).map_or_else(|| probability(-t), |student| student.sf(t))
}

fn student(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom)
        .ok()
        .filter(|_| freedom < MANY)
}

/// The result of a Kolmogorov-Smirnov test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The maximum distance between the two distribution functions.
    pub distance: f64,
    /// The p-value: the probability of at least this distance if the sample follows the distribution.
    pub p_value: f64,
}

/// The Kolmogorov-Smirnov test of values against a continuous distribution function. None without values.
pub fn kolmogorov_smirnov(values: &[f64], cdf: impl Fn(f64) -> f64) -> Option<Fit> {
    let mut sorted = values.to_vec();
    sort(&mut sorted);
    let n = sorted.len() as f64;
    let gap = |(index, &value): (usize, &f64)| {
        let (share, below) = (cdf(value), index as f64 / n);
        (share - below).abs().max((below + 1.0 / n - share).abs())
    };
    let distance = sorted.iter().enumerate().map(gap).reduce(f64::max)?;
    Some(Fit {
        distance,
        p_value: p_value(n, distance),
    })
}

/// The limiting distribution with the small-sample correction of Stephens, Journal of the Royal Statistical Society B
/// 32 (1970), accurate from n = 4 on.
fn p_value(n: f64, distance: f64) -> f64 {
    let scaled = (n.sqrt() + 0.12 + 0.11 / n.sqrt()) * distance;
    if scaled < 0.2 {
        return 1.0; // The series converges slowly here, and the value differs from 1 by less than 1e-12.
    }
    let term = |k: i32| {
        (-2.0 * (f64::from(k) * scaled).powi(2)).exp() * if k % 2 == 1 { 2.0 } else { -2.0 }
    };
    (1..=100).map(term).sum::<f64>().clamp(0.0, 1.0)
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
        assert!(
            (t_quantile(0.975, 4.0) - 2.776445).abs() < 1e-5
                && (t_quantile(0.975, f64::INFINITY) - 1.959964).abs() < 1e-5
        );
        // R: pt(-2, 3).
        assert!(
            (t_above(2.0, 3.0) - 0.0696630).abs() < 1e-6
                && (t_above(1.959964, 1e9) - 0.025).abs() < 1e-6
        );
    }

    fn uniform(x: f64) -> f64 {
        x.clamp(0.0, 1.0)
    }

    #[test]
    fn the_distance_looks_at_both_sides_of_a_step() {
        let fit = kolmogorov_smirnov(&[0.5, 0.1], uniform).unwrap();
        assert!((fit.distance - 0.5).abs() < 1e-12);
        assert_eq!(kolmogorov_smirnov(&[], uniform), None);
    }

    #[test]
    fn the_critical_values_of_the_tables() {
        // Large samples: 1.358 / √n at 5 %, 1.628 / √n at 1 %.
        assert!((p_value(1e8, 1.3581e-4) - 0.05).abs() < 1e-4);
        assert!((p_value(1e8, 1.6276e-4) - 0.01).abs() < 1e-4);
        // n = 20 at 5 %: 0.294.
        assert!((p_value(20.0, 0.294) - 0.05).abs() < 2e-3);
        assert_eq!(p_value(100.0, 0.001), 1.0);
    }

    #[test]
    fn an_even_sample_fits_and_a_squared_one_does_not() {
        let even: Vec<f64> = (0..500).map(|k| (f64::from(k) + 0.5) / 500.0).collect();
        let squared: Vec<f64> = even.iter().map(|x| x * x).collect();
        assert!(kolmogorov_smirnov(&even, uniform).unwrap().p_value > 0.999);
        assert!(kolmogorov_smirnov(&squared, uniform).unwrap().p_value < 1e-9);
    }
}
