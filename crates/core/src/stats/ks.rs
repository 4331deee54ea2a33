//! The Kolmogorov-Smirnov test of a sample against a distribution.

use crate::stats::quantile::sort;

/// The outcome of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The greatest distance between the sample's distribution and the other one.
    pub distance: f64,
    /// The probability of a distance at least as great where the sample does follow that distribution.
    pub p_value: f64,
}

/// Tests values against a continuous cumulative distribution function. None without values.
pub fn test(values: &[f64], cdf: impl Fn(f64) -> f64) -> Option<Fit> {
    let mut sorted = values.to_vec();
    sort(&mut sorted);
    let n = sorted.len() as f64;
    let gap = |(index, &value): (usize, &f64)| {
        let (share, below) = (cdf(value), index as f64 / n);
        (share - below).abs().max((below + 1.0 / n - share).abs())
    };
    let distance = sorted.iter().enumerate().map(gap).reduce(f64::max)?;
    Some(Fit { distance, p_value: p_value(n, distance) })
}

/// The limiting distribution with the correction for small samples of Stephens, Journal of the Royal Statistical Society
/// B 32 (1970): good from n = 4 on.
fn p_value(n: f64, distance: f64) -> f64 {
    let scaled = (n.sqrt() + 0.12 + 0.11 / n.sqrt()) * distance;
    if scaled < 0.2 {
        return 1.0; // The series converges slowly there, and the value differs from 1 by less than 1e-12.
    }
    let term = |k: i32| (-2.0 * (f64::from(k) * scaled).powi(2)).exp() * if k % 2 == 1 { 2.0 } else { -2.0 };
    (1..=100).map(term).sum::<f64>().clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(x: f64) -> f64 {
        x.clamp(0.0, 1.0)
    }

    #[test]
    fn the_distance_looks_at_both_sides_of_a_step() {
        let fit = test(&[0.5, 0.1], uniform).unwrap();
        assert!((fit.distance - 0.5).abs() < 1e-12);
        assert_eq!(test(&[], uniform), None);
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
        assert!(test(&even, uniform).unwrap().p_value > 0.999);
        assert!(test(&squared, uniform).unwrap().p_value < 1e-9);
    }
}
