use super::*;
use crate::token::trained::{ALL, CHATML, CHATS};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn messages(text: &str) -> Vec<Value> {
    vec![json!({ "role": "user", "content": text })]
}

#[test]
fn the_slot_is_what_the_template_puts_around_the_text() {
    let tokenizer = CHATML.over("byte-level");
    let slot = tokenizer.slot(&messages(MARK)).unwrap();
    assert_eq!((slot.before.as_str(), slot.after.as_str()), ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"));
    assert_eq!(tokenizer.measure(&slot, "the sky"), tokenizer.count_messages(&messages("the sky")));
    let twice = tokenizer.slot(&[messages(MARK), messages(MARK)].concat()).unwrap_err();
    assert!(matches!(twice, TokenError::Refused { .. }), "{twice}");
}

#[test]
fn the_tokens_of_a_prefix_stay_what_they_are_and_the_part_nearby_counts_for_the_whole() {
    for chat in &CHATS {
        for (kind, _) in ALL.iter() {
            let tokenizer = chat.over(kind);
            let slot = tokenizer.slot(&messages(MARK)).unwrap();
            let bare = Slot { before: slot.before.clone(), ..Slot::default() };
            let prefix = tokenizer.exactly(tokenizer.alone(&bare) + 500, &bare, &mut rng(1)).unwrap();
            let lead = tokenizer.ids(&[&slot.before, prefix.as_str()].concat()).unwrap();
            let behind = tokenizer.behind(&slot, &prefix).unwrap();
            assert!(behind.before.len() < 1000, "{} {kind}: all of {} bytes are measured", chat.name, behind.before.len());
            for seed in 0..10 {
                let n = lead.len() as u64 + 60 + seed;
                let text = format!("{prefix} {}", tokenizer.exactly(n, &behind, &mut rng(seed)).unwrap());
                let all = tokenizer.ids(&tokenizer.chat(&messages(&text), None).unwrap()).unwrap();
                assert!(all.starts_with(&lead), "{} {kind}", chat.name);
                assert_eq!(all.len() as u64, n, "{} {kind}", chat.name);
            }
        }
    }
}

#[test]
fn a_text_that_would_change_the_prefix_does_not_count() {
    let tokenizer = Tokenizer::builtin();
    let behind = tokenizer.behind(&Slot::default(), "the sky is bl").unwrap();
    let glued = Slot { before: "the sky is bl".into(), ..behind.clone() };
    assert_eq!((tokenizer.measure(&glued, "ue"), tokenizer.measure(&glued, " day").is_some()), (None, true));
}

#[test]
fn a_beginning_can_be_exchanged_without_looking_at_the_end() {
    for (kind, tokenizer) in ALL.iter() {
        let draw = |n, seed| tokenizer.exactly(n, &Slot::default(), &mut rng(seed)).unwrap();
        let (sample, rest) = (draw(20, 1), format!("\n{}", draw(900, 2)));
        let total = tokenizer.count(&[sample.as_str(), &rest].concat()).unwrap();
        let ahead = tokenizer.ahead(&Slot::default(), &sample, &rest, total).unwrap();
        assert!(ahead.after.len() < rest.len() / 4, "{kind}");
        for seed in 3..13 {
            let other = tokenizer.exactly(total, &ahead, &mut rng(seed)).unwrap();
            assert_eq!(tokenizer.count(&[other.as_str(), &rest].concat()), Some(total), "{kind}: {other}");
        }
    }
}
