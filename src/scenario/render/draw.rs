//! What differs from request to request by chance: lengths and models, each from the seed and the request's number alone.

use crate::model::request::Quantity;
use crate::model::seed::Seed;
use crate::model::target::ModelShare;
use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal, Normal};
use serde_json::{Map, Value};

/// A length, never below 1. None where it is to come from a field that `fields` does not hold as a number.
pub(crate) fn length(quantity: &Quantity, seed: Seed, fields: &Map<String, Value>) -> Option<u64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed.0);
    let drawn = match quantity {
        Quantity::Fixed(value) => return Some(*value),
        Quantity::Uniform { low, high } => return Some(random.random_range(*low..=*high)),
        Quantity::Item(name) => return fields.get(name)?.as_f64().filter(|n| *n >= 1.0).map(|n| n.round() as u64),
        Quantity::Normal { mean, sd } => Normal::new(*mean, *sd).ok()?.sample(&mut random),
        Quantity::Lognormal { mean, sd } => lognormal(*mean, *sd)?.sample(&mut random),
    };
    Some(drawn.round().max(1.0) as u64)
}

/// The lognormal distribution whose own mean and standard deviation are given:
/// σ² = ln(1 + sd²/mean²), μ = ln(mean) − σ²/2 (Johnson, Kotz, Balakrishnan, "Continuous Univariate Distributions" 1, ch. 14).
fn lognormal(mean: f64, sd: f64) -> Option<LogNormal<f64>> {
    let variance = (1.0 + (sd / mean).powi(2)).ln();
    LogNormal::new(mean.ln() - variance / 2.0, variance.sqrt()).ok()
}

/// One of the models, by weight.
pub(crate) fn model(models: &[ModelShare], seed: Seed) -> &str {
    let total: f64 = models.iter().map(|share| share.weight).sum();
    let mut left = ChaCha8Rng::seed_from_u64(seed.0).random::<f64>() * total;
    for share in models {
        left -= share.weight;
        if left < 0.0 {
            return &share.name;
        }
    }
    models.last().map_or("", |share| &share.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(quantity: &Quantity) -> (f64, f64) {
        let draws: Vec<f64> =
            (0..20_000u64).map(|seq| length(quantity, Seed(1).child(seq), &Map::new()).unwrap() as f64).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn lengths_have_the_moments_that_were_asked_for() {
        // Standard errors at 20 000 draws: sd / 141 for the mean.
        let (mean, sd) = moments(&Quantity::Lognormal { mean: 200.0, sd: 100.0 });
        assert!((mean - 200.0).abs() < 3.0 && (sd - 100.0).abs() < 6.0, "{mean} {sd}");
        let (mean, sd) = moments(&Quantity::Normal { mean: 200.0, sd: 20.0 });
        assert!((mean - 200.0).abs() < 0.6 && (sd - 20.0).abs() < 0.6, "{mean} {sd}");
        let (mean, _) = moments(&Quantity::Uniform { low: 1, high: 9 });
        assert!((mean - 5.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn a_field_must_be_there_as_a_number() {
        let fields = serde_json::json!({ "n": 12, "text": "12" });
        let from = |name: &str| length(&Quantity::Item(name.into()), Seed(1), fields.as_object().unwrap());
        assert_eq!((from("n"), from("text"), from("none")), (Some(12), None, None));
    }

    #[test]
    fn models_are_drawn_by_weight() {
        let models = [ModelShare { name: "a".into(), weight: 3.0 }, ModelShare { name: "b".into(), weight: 1.0 }];
        let first = (0..10_000u64).filter(|seq| model(&models, Seed(1).child(*seq)) == "a").count();
        assert!((7_400..7_600).contains(&first), "{first}");
        assert_eq!(model(&models, Seed(5)), model(&models, Seed(5)));
    }
}
