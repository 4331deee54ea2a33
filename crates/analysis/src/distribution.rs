//! Values to a distribution in numbers.

use llmscen_core::sample::Distribution;
use llmscen_core::stats::{moments, quantile};

/// The distribution of these values; None where there are none. Each column is sorted once, here.
pub(super) fn of(mut values: Vec<f64>) -> Option<Distribution> {
    quantile::sort(&mut values);
    Some(Distribution {
        n: values.len() as u64,
        mean: moments::mean(&values)?,
        sd: moments::sd(&values),
        min: *values.first()?,
        max: *values.last()?,
        quantiles: Distribution::SHARES.iter().filter_map(|&share| quantile::quantile(&values, share, quantile::Method::NearestRank)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_one_to_a_thousand() {
        let seen = of((1..=1000).rev().map(f64::from).collect()).unwrap();
        assert_eq!((seen.n, seen.mean, seen.min, seen.max), (1000, 500.5, 1.0, 1000.0));
        assert_eq!(seen.quantiles, [10.0, 50.0, 100.0, 250.0, 500.0, 660.0, 750.0, 800.0, 900.0, 950.0, 980.0, 990.0, 999.0]);
        assert!((seen.sd.unwrap() - 288.819436).abs() < 1e-6);
    }

    #[test]
    fn one_value_has_no_deviation_and_none_no_distribution() {
        assert_eq!(of(vec![4.0]).map(|seen| (seen.sd, seen.quantiles)), Some((None, vec![4.0; 13])));
        assert_eq!(of(Vec::new()), None);
    }
}
