//! Sampling of the next token from the logits.
//!
//! The steps are those of [`Sampling`] in order: repetition penalty, temperature, `top_k`, `top_p`, `min_p`. Then
//! exactly one random number is drawn, so that the numbers of a row depend only on its seed and step. Equal logits
//! are ordered by id.

use crate::generation_params::Sampling;
use rand::Rng;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Number of most likely tokens that are sorted first for `top_p`.
const FIRST: usize = 64;

/// The token with the highest logit; the first of several.
pub fn greedy(logits: &[f32]) -> u32 {
    // Separate lanes, so that the compiler vectorizes the comparison.
    let mut lanes = [f32::NEG_INFINITY; 16];
    let chunks = logits.chunks_exact(lanes.len());
    let mut best = chunks
        .remainder()
        .iter()
        .copied()
        .fold(f32::NEG_INFINITY, f32::max);
    for chunk in chunks {
        for (lane, logit) in lanes.iter_mut().zip(chunk) {
            *lane = if *logit > *lane { *logit } else { *lane };
        }
    }
    best = lanes.into_iter().fold(best, f32::max);
    logits.iter().position(|logit| *logit == best).unwrap_or(0) as u32
}

/// Samples a token. `previous` are the tokens of the prompt and the reply. Overwrites the logits.
pub fn sample_token(
    logits: &mut [f32],
    sampling: &Sampling,
    previous: &BTreeSet<u32>,
    rng: &mut impl Rng,
) -> u32 {
    apply_penalty(logits, sampling.repetition_penalty, previous);
    if sampling.temperature <= 0.0 {
        return greedy(logits);
    }
    let random = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    to_weights(logits, sampling.temperature);
    let candidates = filter_tokens(logits, sampling);
    select(&candidates, random)
}

/// Divides positive and multiplies negative logits of previous tokens.
fn apply_penalty(logits: &mut [f32], penalty: f32, previous: &BTreeSet<u32>) {
    if penalty == 1.0 {
        return;
    }
    for id in previous {
        if let Some(logit) = logits.get_mut(*id as usize) {
            *logit = if *logit > 0.0 {
                *logit / penalty
            } else {
                *logit * penalty
            };
        }
    }
}

/// Converts logits to weights: probabilities as shares of the highest one.
fn to_weights(logits: &mut [f32], temperature: f32) {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for logit in logits {
        *logit = ((*logit - best) / temperature).exp();
    }
}

/// The tokens that pass the filters, with their weights: sorted by weight where `top_k` or `top_p` removed some,
/// otherwise by id, because sorting the whole vocabulary would be slow.
fn filter_tokens(weights: &[f32], sampling: &Sampling) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0u32..).zip(weights.iter().copied()).collect();
    let top = usize::try_from(sampling.top_k).unwrap_or(usize::MAX);
    if top > 0 && top < all.len() {
        all.select_nth_unstable_by(top - 1, by_weight);
        all.truncate(top);
        all.sort_unstable_by(by_weight);
    }
    if sampling.top_p < 1.0 {
        nucleus(&mut all, sampling.top_p);
    }
    // The most likely weighs 1.
    all.retain(|(_, weight)| *weight >= sampling.min_p);
    all
}

/// Leaves the fewest that sum to `share`, one at the least. Only as many are sorted as are needed.
fn nucleus(all: &mut Vec<(u32, f32)>, share: f32) {
    let enough = f64::from(share)
        * all
            .iter()
            .map(|(_, weight)| f64::from(*weight))
            .sum::<f64>();
    let mut sorted = FIRST;
    loop {
        let end = sorted.min(all.len());
        if end < all.len() {
            all.select_nth_unstable_by(end, by_weight);
        }
        let head = all.get_mut(..end).unwrap_or_default();
        head.sort_unstable_by(by_weight);
        let mut sum = 0.0;
        let found = head.iter().position(|(_, weight)| {
            sum += f64::from(*weight);
            sum >= enough
        });
        match found {
            Some(last) => return all.truncate(last + 1),
            None if end == all.len() => return,
            None => sorted *= 8,
        }
    }
}

fn by_weight(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// The token at the share `random` (0 to below 1) of the sum of all weights.
fn select(candidates: &[(u32, f32)], random: f64) -> u32 {
    let total: f64 = candidates
        .iter()
        .map(|(_, weight)| f64::from(*weight))
        .sum();
    let mut left = random * total;
    for (id, weight) in candidates {
        left -= f64::from(*weight);
        if left < 0.0 {
            return *id;
        }
    }
    candidates.last().map_or(0, |(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// Logits whose weights are 1/2, 1, 1/4, 1/8 and 1/8 of the most likely.
    fn logits() -> Vec<f32> {
        [0.5f32, 1.0, 0.25, 0.125, 0.125]
            .iter()
            .map(|weight| weight.ln() + 3.0)
            .collect()
    }

    fn left(sampling: Sampling) -> Vec<u32> {
        let mut weights = logits();
        to_weights(&mut weights, 1.0);
        filter_tokens(&weights, &sampling)
            .into_iter()
            .map(|(id, _)| id)
            .collect()
    }

    #[test]
    fn of_equal_logits_the_first_is_the_highest() {
        assert_eq!(greedy(&[1.0, 3.0, 3.0, 2.0]), 1);
        let mut many = vec![-1.0; 100];
        (many[77], many[99], many[18]) = (4.0, 4.0, 3.5);
        assert_eq!(greedy(&many), 77);
        many[99] = 5.0;
        assert_eq!(greedy(&many), 99);
        assert_eq!(greedy(&[f32::NEG_INFINITY, -2.0]), 1);
    }

    #[test]
    fn the_penalty_divides_what_is_positive_and_multiplies_what_is_negative() {
        let mut logits = vec![2.0, -2.0, 4.0, -4.0];
        apply_penalty(&mut logits, 2.0, &BTreeSet::from([0, 1, 9]));
        assert_eq!(logits, [1.0, -4.0, 4.0, -4.0]);
        let strict = Sampling {
            repetition_penalty: 4.0,
            ..Sampling::default()
        };
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        assert_eq!(
            sample_token(&mut [3.0, 1.0], &strict, &BTreeSet::from([0]), &mut rng),
            1,
            "greedy reads penalised logits"
        );
    }

    #[test]
    fn the_temperature_spreads_the_weights() {
        let mut weights = logits();
        to_weights(&mut weights, 0.5);
        let truth = [0.25, 1.0, 1.0 / 16.0, 1.0 / 64.0, 1.0 / 64.0];
        assert!(
            weights
                .iter()
                .zip(truth)
                .all(|(weight, truth)| (weight - truth).abs() < 1e-6),
            "{weights:?}"
        );
    }

    #[test]
    fn filters_leave_what_they_say() {
        let of = |top_k, top_p, min_p| {
            left(Sampling {
                top_k,
                top_p,
                min_p,
                ..Sampling::default()
            })
        };
        assert_eq!(of(0, 1.0, 0.0), [0, 1, 2, 3, 4]);
        assert_eq!(of(2, 1.0, 0.0), [1, 0]);
        assert_eq!(
            of(4, 1.0, 0.0),
            [1, 0, 2, 3],
            "the first of two that are as likely"
        );
        // The shares are 1/2, 1/4, 1/8, 1/16 and 1/16.
        assert_eq!(of(0, 0.45, 0.0), [1]);
        assert_eq!(of(0, 0.74, 0.0), [1, 0]);
        assert_eq!(of(0, 0.76, 0.0), [1, 0, 2]);
        assert_eq!(of(0, 0.0, 0.0), [1]);
        // Of the first two alone they are 2/3 and 1/3.
        assert_eq!(of(2, 0.6, 0.0), [1]);
        assert_eq!(of(0, 1.0, 0.24), [0, 1, 2]);
        assert_eq!(of(0, 0.7, 0.6), [1]);
    }

    #[test]
    fn a_nucleus_among_many_is_found_a_part_at_a_time() {
        let mut weights = vec![1.0f32; 5000];
        weights[4999] = 1.5;
        let some = filter_tokens(
            &weights,
            &Sampling {
                top_p: 0.5,
                ..Sampling::default()
            },
        );
        // 1.5 and 2499 more are 2500.5 of 5000.5; half of it is 2500.25.
        assert_eq!(some.len(), 2500);
        assert_eq!((some[0].0, some[1].0, some[2499].0), (4999, 0, 2498));
    }

    #[test]
    fn the_draw_falls_where_the_weights_say() {
        let candidates = [(7, 1.0), (3, 0.5), (5, 0.5)];
        assert_eq!(
            [0.0, 0.49, 0.5, 0.74, 0.75, 0.999_999].map(|random| select(&candidates, random)),
            [7, 7, 3, 3, 5, 5]
        );
    }

    #[test]
    fn draws_repeat_and_come_as_often_as_they_are_likely() {
        let sampling = Sampling {
            temperature: 1.0,
            ..Sampling::default()
        };
        let run = || {
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            (0..4000)
                .map(|_| sample_token(&mut logits(), &sampling, &BTreeSet::new(), &mut rng))
                .collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
        let share = run().iter().filter(|id| **id == 1).count() as f64 / 4000.0;
        assert!((share - 0.5).abs() < 0.03, "{share}");
    }
}
