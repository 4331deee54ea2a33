//! How a row ends, and its output.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn stamps_are_of_the_clock_that_was_given() {
    let mut model = tiny();
    let params = [greedy(prompt(3, 0), 4), greedy(prompt(5, 1), 2)];
    let worked = model.work(&params, &ticking(), &|_| true).unwrap();
    let nanos = |from: u64, to: u64| (from..=to).map(Nanos).collect::<Vec<_>>();
    assert_eq!(
        (worked.began, worked.prefilled, worked.steps),
        (Nanos(1), Nanos(2), nanos(3, 5))
    );
    assert_eq!(
        (&worked.rows[0].stamps, &worked.rows[1].stamps),
        (&nanos(2, 5), &nanos(2, 3))
    );
}

#[test]
fn an_end_token_ends_a_row_unless_it_is_ignored() {
    let mut model = tiny();
    let params = greedy(prompt(6, 3), 12);
    let free = work(&mut model, std::slice::from_ref(&params)).remove(0);
    assert_eq!((free.tokens.len(), free.ended), (12, Ended::Length));
    let end = free.tokens[5];
    let first = free.tokens.iter().position(|token| *token == end).unwrap();
    model.eos = vec![end];
    let ended = work(&mut model, std::slice::from_ref(&params)).remove(0);
    assert_eq!(
        (ended.tokens.as_slice(), ended.ended),
        (&free.tokens[..=first], Ended::Stop)
    );
    assert_eq!(
        ended.text,
        model.tokenizer.decode(&free.tokens[..first]).unwrap()
    );
    let ignored = work(
        &mut model,
        &[GenerationParams {
            ignore_eos: true,
            ..params
        }],
    )
    .remove(0);
    assert_eq!(
        (ignored.tokens, ignored.ended),
        (free.tokens, Ended::Length)
    );
}

#[test]
fn a_stop_text_ends_a_row_and_is_not_told() {
    let mut model = tiny();
    let params = greedy(prompt(6, 4), 12);
    let free = work(&mut model, std::slice::from_ref(&params)).remove(0);
    let whole: Vec<char> = free.text.chars().collect();
    // Some letters in the middle, over the seam of tokens.
    let stop: String = whole[whole.len() / 2..whole.len() / 2 + 4].iter().collect();
    let at = free.text.find(&stop).unwrap();
    let stopped = work(
        &mut model,
        &[GenerationParams {
            stop: vec!["never said".into(), stop.clone()],
            ..params.clone()
        }],
    )
    .remove(0);
    assert_eq!(
        (stopped.text.as_str(), stopped.ended),
        (&free.text[..at], Ended::Stop)
    );
    assert!(stopped.tokens.len() < 12 && free.tokens.starts_with(&stopped.tokens));
    assert!(
        !model
            .tokenizer
            .decode(&stopped.tokens[..stopped.tokens.len() - 1])
            .unwrap()
            .contains(&stop)
    );
    let other = work(
        &mut model,
        &[GenerationParams {
            stop: vec!["never said".into()],
            ..params
        }],
    )
    .remove(0);
    assert_eq!((other.text, other.ended), (free.text, Ended::Length));
}

#[test]
fn a_row_that_nobody_waits_for_is_given_up() {
    let mut model = tiny();
    let params = [greedy(prompt(3, 0), 6), greedy(prompt(5, 1), 6)];
    // Asked before each step, and before each of the two layers.
    let asked = AtomicUsize::new(0);
    let alive = |row: usize| row == 1 || asked.fetch_add(1, Ordering::Relaxed) < 6;
    let worked = model.work(&params, &ticking(), &alive).unwrap();
    let ends: Vec<_> = worked
        .rows
        .iter()
        .map(|row| (row.tokens.len(), row.ended))
        .collect();
    assert_eq!(ends, [(2, Ended::Cancelled), (6, Ended::Length)]);
    let worked = model.work(&params, &ticking(), &|_| false).unwrap();
    assert_eq!(
        (
            worked.rows[0].ended,
            worked.rows[0].tokens.len(),
            worked.steps.len()
        ),
        (Ended::Cancelled, 0, 0)
    );
    assert_eq!((worked.began, worked.prefilled), (Nanos(1), Nanos(1)));
}

#[test]
fn what_nobody_waits_for_ends_between_two_layers() {
    let mut model = tiny();
    let params = [greedy(prompt(3, 0), 6)];
    let given_up_after = |model: &mut Model, most: usize| {
        let asked = AtomicUsize::new(0);
        let worked = model
            .work(&params, &ticking(), &|_| {
                asked.fetch_add(1, Ordering::Relaxed) < most
            })
            .unwrap();
        (
            worked.rows[0].tokens.len(),
            worked.rows[0].ended,
            worked.steps.len(),
            asked.into_inner(),
        )
    };
    assert_eq!(
        given_up_after(&mut model, 2),
        (0, Ended::Cancelled, 0, 3),
        "before the second layer of its prompt"
    );
    assert_eq!(
        given_up_after(&mut model, 5),
        (1, Ended::Cancelled, 0, 6),
        "before the second layer of its step"
    );
    assert_eq!(
        work(&mut model, &params),
        work(&mut tiny(), &params),
        "the next batch is as it would be without them"
    );
}

#[test]
fn the_context_ends_a_row() {
    let mut model = tiny();
    model.limit = 20;
    let rows = work(
        &mut model,
        &[greedy(prompt(15, 0), 50), greedy(prompt(4, 1), 50)],
    );
    let ends: Vec<_> = rows
        .iter()
        .map(|row| (row.tokens.len(), row.ended))
        .collect();
    assert_eq!(ends, [(5, Ended::Length), (16, Ended::Length)]);
    let error = |model: &mut Model, params: GenerationParams| {
        model
            .work(&[params], &ticking(), &|_| true)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(&mut model, greedy(prompt(20, 0), 1)),
        "row 0 of the batch is invalid: the prompt has 20 tokens, the limit of the model is 20 with the reply"
    );
    assert!(error(&mut model, greedy(vec![], 1)).ends_with("the prompt is empty"));
    assert!(
        error(&mut model, greedy(vec![8192], 1))
            .ends_with("the token id 8192 is not below the vocabulary size 8192")
    );
}

#[test]
fn logits_are_kept_as_they_were_before_the_filters() {
    let mut model = tiny();
    let sampling = Sampling {
        temperature: 0.7,
        top_k: 3,
        repetition_penalty: 1.3,
        ..Sampling::default()
    };
    let params = [
        GenerationParams {
            sampling,
            logits: true,
            ..greedy(prompt(5, 0), 3)
        },
        greedy(prompt(5, 0), 3),
    ];
    let rows = work(&mut model, &params);
    assert_eq!(rows[1].logits, None);
    let logits = rows[0].logits.as_ref().unwrap();
    assert_eq!(logits.len(), 3 * model.vocabulary());
    // Both rows read the same prompt; the second took the highest of it.
    assert_eq!(
        crate::sample::greedy(&logits[..model.vocabulary()]),
        rows[1].tokens[0]
    );
}
