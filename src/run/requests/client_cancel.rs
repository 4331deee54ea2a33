//! Users who cancel their requests (`request.cancel`).

use crate::run::requests::traffic_class::RequestPosition;
use llmscen_core::request::{Cancel, CancelWhen, ClientCancel, sample_length};
use llmscen_core::schedule::delays::sample_think_time;
use llmscen_core::seed::Seed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};

/// When the user of a request cancels it; None: never. The same seed and number within the class give the same
/// result. `fields`: the dataset row; without a token count in it, the request is not cancelled.
pub fn draw_client_cancel(
    cancel: Option<&Cancel>,
    seed: Seed,
    position: RequestPosition,
    fields: &Map<String, Value>,
) -> Option<ClientCancel> {
    let Cancel { share, when } = cancel?;
    let seed = seed.child("cancel");
    let mut rng = ChaCha8Rng::seed_from_u64(
        seed.child(position.number)
            .child(u64::from(position.turn))
            .0,
    );
    if !rng.random_bool(share.clamp(0.0, 1.0)) {
        return None;
    }
    match when {
        CancelWhen::After(time) => Some(ClientCancel::After(sample_think_time(
            time,
            seed,
            position.number,
            position.turn,
        ))),
        CancelWhen::Tokens(quantity) => sample_length(quantity, fields, &mut rng)
            .filter(|n| *n >= 1)
            .map(ClientCancel::Tokens),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::distribution::Distribution;
    use llmscen_core::quantity::Quantity;
    use llmscen_core::units::Nanos;

    fn drawn(share: f64, when: CancelWhen, seed: u64) -> Vec<Option<ClientCancel>> {
        let cancel = Cancel { share, when };
        let at = |number| {
            draw_client_cancel(
                Some(&cancel),
                Seed(seed),
                RequestPosition {
                    number,
                    turns: 1,
                    ..RequestPosition::default()
                },
                &Map::new(),
            )
        };
        (0..20_000).map(at).collect()
    }

    #[test]
    fn the_share_cancels_and_the_same_seed_draws_the_same() {
        let when = || CancelWhen::Tokens(Quantity::uniform(3, 9));
        let left = drawn(0.05, when(), 1);
        let share = left.iter().flatten().count() as f64 / left.len() as f64;
        assert!((share - 0.05).abs() < 0.005, "{share}");
        assert!(
            left.iter()
                .flatten()
                .all(|leave| matches!(leave, ClientCancel::Tokens(3..=9)))
        );
        assert!(left == drawn(0.05, when(), 1) && left != drawn(0.05, when(), 2));
        assert!(
            drawn(0.0, when(), 1).iter().all(Option::is_none)
                && drawn(1.0, when(), 1).iter().all(Option::is_some)
        );
    }

    #[test]
    fn times_are_drawn_and_a_row_without_its_token_count_is_not_cancelled() {
        let span = Nanos::from_millis(20);
        assert_eq!(
            drawn(1.0, CancelWhen::After(Distribution::time(span)), 1)[7],
            Some(ClientCancel::After(span))
        );
        let drawn_for = |fields: Value| {
            let cancel = Cancel {
                share: 1.0,
                when: CancelWhen::Tokens(Quantity::Item("read".into())),
            };
            draw_client_cancel(
                Some(&cancel),
                Seed(1),
                RequestPosition {
                    turns: 1,
                    ..RequestPosition::default()
                },
                fields.as_object().unwrap(),
            )
        };
        assert_eq!(
            drawn_for(serde_json::json!({ "read": 12 })),
            Some(ClientCancel::Tokens(12))
        );
        assert_eq!(
            (
                drawn_for(serde_json::json!({ "read": 0 })),
                drawn_for(serde_json::json!({}))
            ),
            (None, None)
        );
    }
}
