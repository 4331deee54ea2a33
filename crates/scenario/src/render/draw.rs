//! What differs from request to request by chance: lengths and models, each from the seed and the request's number alone.

use llmscen_core::request::Quantity;
use llmscen_core::seed::Seed;
use llmscen_core::stats::length_distribution::draw;
use llmscen_core::target::ModelShare;
use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};

/// A length, never below 1. None where it is to come from a field that `fields` does not hold as a number.
pub(crate) fn length(quantity: &Quantity, seed: Seed, fields: &Map<String, Value>) -> Option<u64> {
    draw(quantity, fields, &mut ChaCha8Rng::seed_from_u64(seed.0)).filter(|n| *n >= 1)
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

    #[test]
    fn a_length_is_the_same_for_the_same_request() {
        let of = |seq: u64| length(&Quantity::Uniform { low: 1, high: 9 }, Seed(1).child(seq), &Map::new());
        assert!((0..100).all(|seq| of(seq) == of(seq) && of(seq).is_some_and(|n| (1..=9).contains(&n))));
        assert!((0..100).any(|seq| of(seq) != of(0)));
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
