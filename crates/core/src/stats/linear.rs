//! Quantiles between two values and the deviation of a population, as numpy has them by default. Our own figures use neither
//! (see [`crate::stats::quantile`]); files in the form of other tools do.
//!
//! Hyndman and Fan, "Sample quantiles in statistical packages", The American Statistician 50 (1996), definition 7.

use crate::stats::moments;

/// The quantile `p`, 0..=1, of ascending values: at position p·(n − 1), counted from 0, between its two neighbours. None
/// without values.
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let at = p * sorted.len().checked_sub(1)? as f64;
    let below = *sorted.get(at.floor() as usize)?;
    let above = *sorted.get(at.ceil() as usize)?;
    let (step, part) = (above - below, at - at.floor());
    // From the nearer end, as numpy does, so that rounding never leaves the interval.
    Some(if part < 0.5 { below + step * part } else { above - step * (1.0 - part) })
}

/// The standard deviation with n below the line. None without values.
pub fn sd(values: &[f64]) -> Option<f64> {
    let mean = moments::mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / values.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_numpy() {
        // numpy.percentile([1, 2, 4, 8, 16], [0, 10, 50, 75, 90, 99, 100])
        let values = [1.0, 2.0, 4.0, 8.0, 16.0];
        let seen = [0.0, 0.1, 0.5, 0.75, 0.9, 0.99, 1.0].map(|p| quantile(&values, p).unwrap());
        assert_eq!(seen, [1.0, 1.4, 4.0, 8.0, 12.8, 15.68, 16.0]);
        assert_eq!((quantile(&[3.0], 0.99), quantile(&[], 0.5)), (Some(3.0), None));
    }

    #[test]
    fn the_deviation_is_the_populations() {
        assert_eq!(sd(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), Some(2.0));
        assert_eq!((sd(&[7.0]), sd(&[])), (Some(0.0), None));
    }
}
