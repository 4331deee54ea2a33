use super::*;
use crate::token::MARK;
use crate::token::trained::{ALL, CHATS};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::sync::LazyLock;

const PROSE: &str = include_str!("../../../data/openqa.jsonl");

static CHATTING: LazyLock<Vec<(String, Tokenizer)>> = LazyLock::new(|| {
    let all = CHATS.iter().flat_map(|chat| ALL.iter().map(move |(kind, _)| (format!("{} {kind}", chat.name), chat.over(kind))));
    all.collect()
});

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn messages(text: &str) -> Vec<Value> {
    vec![json!({ "role": "system", "content": "Be terse." }), json!({ "role": "user", "content": text })]
}

/// The row as it is, with what continues it.
fn own(text: &str) -> Text<'_> {
    Text { text, more: text, from: 0 }
}

/// A part of the prose, a few letters of other scripts in it.
fn part(from: usize, len: usize) -> String {
    let from = PROSE.ceil_char_boundary(from % PROSE.len());
    let to = PROSE.floor_char_boundary((from + len).min(PROSE.len()));
    format!("{} naïve 中文 🙂", &PROSE[from..to.max(from)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn shaped_text_has_exactly_as_many_tokens_as_asked(n in 6u64..260, from: usize, len in 0usize..2500, seed: u64) {
        let text = part(from, len);
        for (name, tokenizer) in ALL.iter() {
            let fitted = tokenizer.fitted(n, &Slot::default(), own(&text), &mut rng(seed)).unwrap();
            prop_assert_eq!(tokenizer.count(&fitted), Some(n), "{}: {}", name, &fitted);
            prop_assert_eq!(fitted.trim(), &fitted);
        }
    }

    #[test]
    fn shaped_text_is_exact_after_the_chat_template(n in 6u64..260, from: usize, len in 0usize..2500, seed: u64) {
        let text = part(from, len);
        for (name, tokenizer) in CHATTING.iter() {
            let slot = tokenizer.slot(&messages(MARK)).unwrap();
            let all = n + tokenizer.alone(&slot);
            let fitted = tokenizer.fitted(all, &slot, own(&text), &mut rng(seed)).unwrap();
            prop_assert_eq!(tokenizer.count_messages(&messages(&fitted)), Some(all), "{}: {}", name, &fitted);
            let drawn = tokenizer.exactly(all, &slot, &mut rng(seed)).unwrap();
            prop_assert_eq!(tokenizer.count_messages(&messages(&drawn)), Some(all), "{}: {}", name, &drawn);
        }
    }

    #[test]
    fn a_cap_cuts_what_is_longer_and_touches_nothing_else(n in 6u64..260, from: usize, len in 0usize..2500) {
        let text = part(from, len);
        for (name, tokenizer) in ALL.iter() {
            let (capped, before) = (tokenizer.capped(n, &Slot::default(), &text).unwrap(), tokenizer.count(&text).unwrap());
            let after = tokenizer.count(&capped).unwrap();
            if before <= n {
                prop_assert_eq!(&capped, &text);
            } else {
                // A picture and its blank are five tokens, which go together.
                let near = after + 4 >= n || capped == text.trim();
                prop_assert!(after <= n && near, "{}: {} of {}: {}", name, after, n, &capped);
                prop_assert!(text.trim_start().starts_with(&capped));
            }
        }
    }
}

#[test]
fn a_text_that_fits_because_of_the_blank_in_front_of_it_is_left_alone() {
    let tokenizer = Tokenizer::builtin();
    let text = " zero an even number?";
    let n = tokenizer.count(text).unwrap();
    assert!(tokenizer.count(text.trim()).unwrap() > n);
    assert_eq!(tokenizer.capped(n, &Slot::default(), text).unwrap(), text);
}

#[test]
fn a_long_text_is_cut_to_its_own_beginning() {
    let tokenizer = Tokenizer::builtin();
    let fitted = tokenizer.fitted(1000, &Slot::default(), own(PROSE), &mut rng(1)).unwrap();
    assert_eq!(tokenizer.count(&fitted), Some(1000));
    assert!(PROSE.starts_with(&fitted));
}

#[test]
fn a_short_text_goes_on_with_itself_or_with_another_from_the_next_word_on() {
    let tokenizer = Tokenizer::builtin();
    let slot = Slot::default();
    let again = tokenizer.fitted(13, &slot, own(" The sky is blue. "), &mut rng(1)).unwrap();
    assert_eq!(again, "The sky is blue.\nThe sky is blue.\nThe");
    let other = Text { text: "The sky is blue.", more: "one two three", from: 1 };
    assert_eq!(tokenizer.fitted(12, &slot, other, &mut rng(1)).unwrap(), "The sky is blue.\ntwo three\none two");
}

#[test]
fn a_slot_that_is_too_long_already_is_an_error_with_its_length() {
    let tokenizer = CHATS[0].over("builtin");
    let slot = tokenizer.slot(&messages(MARK)).unwrap();
    let alone = tokenizer.alone(&slot);
    let error = tokenizer.fitted(alone, &slot, own("The sky"), &mut rng(1)).unwrap_err();
    assert!(matches!(error, TokenError::NoFit { nearest, .. } if nearest == alone), "{error}");
    assert!(tokenizer.capped(alone - 1, &slot, "The sky").is_err());
}
