//! Mean and standard deviation.

/// The arithmetic mean. None without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample standard deviation, with n − 1 below the line, in two passes so that nothing cancels. None for n < 2.
pub fn sd(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_the_samples_not_the_populations() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), Some(5.0));
        assert_eq!(sd(&values), Some((32.0f64 / 7.0).sqrt()));
    }

    #[test]
    fn a_large_offset_does_not_drown_the_deviation() {
        assert_eq!(sd(&[1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0]), Some(1.0));
    }

    #[test]
    fn too_few_values_have_none() {
        assert_eq!((mean(&[]), sd(&[]), sd(&[3.0])), (None, None, None));
    }
}
