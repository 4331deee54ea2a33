//! A length drawn from its distribution.

use crate::request::Quantity;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal, Normal};
use serde_json::{Map, Value};

/// Draws a length in tokens. `fields` is the dataset's row, for [`Quantity::Item`].
///
/// None where the row has no such number, or the distribution does not exist (a negative or non-finite deviation, a
/// lognormal mean that is not positive, an empty range).
pub fn draw(quantity: &Quantity, fields: &Map<String, Value>, rng: &mut impl Rng) -> Option<u64> {
    match *quantity {
        Quantity::Fixed(n) => Some(n),
        Quantity::Uniform { low, high } => (low <= high).then(|| rng.random_range(low..=high)),
        Quantity::Normal { mean, sd } => Some(whole(Normal::new(mean, sd).ok()?.sample(rng))),
        Quantity::Lognormal { mean, sd } => Some(whole(lognormal(mean, sd)?.sample(rng))),
        Quantity::Item(ref name) => match fields.get(name)? {
            Value::Number(n) => n.as_u64().or_else(|| n.as_f64().filter(|n| *n >= 0.0).map(|n| n.round() as u64)),
            _ => None,
        },
    }
}

/// Rounded, never below one token.
fn whole(length: f64) -> u64 {
    length.round().max(1.0) as u64
}

/// From the mean m and deviation s of the lengths themselves: σ² = ln(1 + s²/m²), µ = ln m − σ²/2
/// (Johnson, Kotz and Balakrishnan, "Continuous Univariate Distributions", vol. 1, ch. 14, solved for µ and σ).
fn lognormal(mean: f64, sd: f64) -> Option<LogNormal<f64>> {
    let variance = (1.0 + (sd / mean).powi(2)).ln();
    (mean > 0.0 && sd >= 0.0).then(|| LogNormal::new(mean.ln() - variance / 2.0, variance.sqrt()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn many(quantity: Quantity) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        (0..20_000).map(|_| draw(&quantity, &Map::new(), &mut rng).unwrap() as f64).collect()
    }

    fn moments(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt())
    }

    #[test]
    fn the_draws_have_the_mean_and_deviation_that_were_asked_for() {
        for quantity in [Quantity::Normal { mean: 500.0, sd: 50.0 }, Quantity::Lognormal { mean: 500.0, sd: 50.0 }] {
            let (mean, sd) = moments(&many(quantity.clone()));
            assert!((mean - 500.0).abs() < 2.0 && (sd - 50.0).abs() < 1.5, "{quantity:?}: {mean} ± {sd}");
        }
    }

    #[test]
    fn a_uniform_length_takes_both_ends() {
        let values = many(Quantity::Uniform { low: 3, high: 5 });
        for end in [3.0, 4.0, 5.0] {
            let share = values.iter().filter(|v| **v == end).count() as f64 / values.len() as f64;
            assert!((share - 1.0 / 3.0).abs() < 0.02, "{end}: {share}");
        }
    }

    #[test]
    fn lengths_never_fall_below_one_token() {
        assert_eq!(many(Quantity::Normal { mean: 1.0, sd: 20.0 }).into_iter().fold(f64::MAX, f64::min), 1.0);
    }

    #[test]
    fn a_length_comes_from_the_row_or_does_not_exist() {
        let row = serde_json::json!({ "output_tokens": 12, "half": 2.5, "text": "9", "minus": -1 });
        let fields = row.as_object().unwrap();
        let of = |name: &str| draw(&Quantity::Item(name.into()), fields, &mut ChaCha8Rng::seed_from_u64(1));
        assert_eq!(["output_tokens", "half", "text", "minus", "gone"].map(of), [Some(12), Some(3), None, None, None]);
    }

    #[test]
    fn impossible_distributions_draw_nothing() {
        let impossible = [
            Quantity::Uniform { low: 5, high: 3 },
            Quantity::Normal { mean: 5.0, sd: f64::NAN },
            Quantity::Lognormal { mean: 0.0, sd: 1.0 },
            Quantity::Lognormal { mean: 5.0, sd: -1.0 },
        ];
        for quantity in impossible {
            assert_eq!(draw(&quantity, &Map::new(), &mut ChaCha8Rng::seed_from_u64(1)), None, "{quantity:?}");
        }
    }
}
