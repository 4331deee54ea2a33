//! Rows of a batch beside the same rows alone.

use super::*;

/// Rows of unequal length, greedy and sampled, in one batch and each by itself.
fn same_as_alone(model: &mut Model, asks: &[Ask]) {
    let together = work(model, asks);
    for (row, (ask, together)) in asks.iter().zip(together).enumerate() {
        let alone = work(model, std::slice::from_ref(ask)).remove(0);
        assert_eq!(together.tokens, alone.tokens, "row {row}");
        assert_eq!((together.text, together.ended), (alone.text, alone.ended));
    }
}

fn sampled(prompt: Vec<u32>, seed: u64) -> Ask {
    let sampling = Sampling { temperature: 0.8, top_k: 50, top_p: 0.95, min_p: 0.01, repetition_penalty: 1.1, seed };
    Ask { sampling, ..greedy(prompt, 24) }
}

#[test]
fn a_row_says_what_it_says_alone() {
    let mut model = tiny();
    let lengths = [5, 37, 1, 37, 18];
    let asks: Vec<Ask> = lengths.iter().zip(0..).map(|(length, seed)| greedy(prompt(*length, seed), 24)).collect();
    same_as_alone(&mut model, &asks);
    let asks: Vec<Ask> = lengths.iter().zip(0..).map(|(length, seed)| sampled(prompt(*length, seed), u64::from(seed))).collect();
    same_as_alone(&mut model, &asks);
    let even: Vec<Ask> = (0..4).map(|seed| sampled(prompt(9, seed), u64::from(seed))).collect();
    same_as_alone(&mut model, &even);
}

#[test]
fn the_seed_of_a_row_is_what_its_draws_hang_on() {
    let mut model = tiny();
    let of = |model: &mut Model, seeds: &[u64]| {
        let asks: Vec<Ask> = seeds.iter().map(|seed| sampled(prompt(9, 0), *seed)).collect();
        work(model, &asks).into_iter().map(|told| told.tokens).collect::<Vec<_>>()
    };
    let [a, b, c] = &of(&mut model, &[1, 2, 1])[..] else { panic!() };
    assert_eq!(a, c);
    assert_ne!(a, b);
    assert_eq!(of(&mut model, &[2]), std::slice::from_ref(b));
}

#[test]
fn rows_that_ended_do_not_change_the_others() {
    let mut model = tiny();
    let asks = [greedy(prompt(12, 0), 3), greedy(prompt(4, 1), 30), greedy(prompt(7, 2), 1)];
    let worked = model.work(&asks, &ticking(), &|_| true).unwrap();
    let counts: Vec<usize> = worked.rows.iter().map(|row| row.tokens.len()).collect();
    assert_eq!((counts, worked.steps.len(), worked.padded_to), (vec![3, 30, 1], 29, 12));
    same_as_alone(&mut model, &asks);
}

#[test]
fn a_prompt_in_pieces_is_the_same_prompt() {
    let mut model = tiny();
    // Short and long rows end in different pieces, and not in the order in which they stand.
    let asks: Vec<Ask> = [90, 3, 41].iter().zip(0..).map(|(length, seed)| greedy(prompt(*length, seed), 8)).collect();
    let whole: Vec<Vec<u32>> = work(&mut model, &asks).into_iter().map(|told| told.tokens).collect();
    let plenty = std::mem::replace(&mut model.intermediate, 1 << 24);
    assert_eq!(work(&mut model, &asks).into_iter().map(|told| told.tokens).collect::<Vec<_>>(), whole);
    model.intermediate = plenty;
}

#[test]
fn the_room_grows_under_a_long_reply() {
    let mut model = tiny();
    let asks = [greedy(prompt(250, 0), 280), greedy(prompt(200, 1), 280)];
    let grown: Vec<Vec<u32>> = work(&mut model, &asks).into_iter().map(|told| told.tokens).collect();
    let sure = asks.clone().map(|ask| Ask { ignore_eos: true, ..ask });
    model.cache = None;
    assert_eq!(work(&mut model, &sure).into_iter().map(|told| told.tokens).collect::<Vec<_>>(), grown);
}
