//! Long random text in time linear in its length, without tokenizing all of it.
//!
//! If no token of the vocabulary continues over the blank after a word, the tokens of a word do not depend on its
//! neighbors. So words that are one token each are drawn, and only the ends of the text are tokenized in their place.

use super::Tokenizer;
use super::fit::{MIN_WORDS, Pool};
use super::template_offset::Slot;
use rand::{Rng, RngExt};
use std::collections::HashSet;

/// Least number of tokens of a long text.
const LONG: u64 = 64;
/// Tokens at the beginning and at the end of a long text that are found by tokenizing them.
const MEASURED: u64 = 16;
/// Words before a place that are tokenized again with the text in it.
const LAST_WORDS: usize = 8;
/// Largest number of different words.
const MAX_WORDS: usize = 8192;

/// Words of ASCII letters, each one token where it follows a word.
#[derive(Debug)]
pub struct Words(Vec<String>);

impl Words {
    /// None where the tokens of a word may depend on its neighbors, or where the vocabulary has too few words.
    pub(super) fn new(tokenizer: &Tokenizer, pool: &Pool) -> Option<Words> {
        let added = tokenizer.inner.get_added_tokens_decoder();
        let vocabulary = tokenizer.inner.get_vocab(false);
        let own = vocabulary.iter().filter(|(_, id)| !added.contains_key(*id));
        // Most added tokens have letters that no word has, so that they are never found in text of words.
        let is_text = |text: &&str| text.chars().all(|c| c == ' ' || c.is_alphabetic());
        let added = added
            .values()
            .map(|token| token.content.as_str())
            .filter(is_text);
        if own
            .map(|(token, _)| token.as_str())
            .chain(added)
            .any(continues_over_blank)
        {
            return None;
        }
        let stride = pool.ids().len().div_ceil(MAX_WORDS).max(1);
        let decoded = pool
            .ids()
            .iter()
            .step_by(stride)
            .filter_map(|id| tokenizer.inner.decode(&[*id], false).ok());
        let mut known = HashSet::new();
        let mut text = "a".to_owned();
        let mut words = Vec::new();
        for word in decoded {
            let word = word.trim();
            if is_word(word) && known.insert(word.to_owned()) {
                text.extend([" ", word]);
                words.push((word.to_owned(), text.len()));
            }
        }
        let encoding = tokenizer.inner.encode(text, false).ok()?;
        let ends: Vec<usize> = encoding.get_offsets().iter().map(|(_, end)| *end).collect();
        let mut before = 1;
        words.retain(|(_, end)| {
            let own =
                ends.partition_point(|own| own <= end) - ends.partition_point(|own| *own <= before);
            before = *end;
            own == 1
        });
        let words: Vec<String> = words.into_iter().map(|(word, _)| word).collect();
        (words.len() >= MIN_WORDS && ends.is_sorted()).then_some(Words(words))
    }

    /// Appends `n` words, the first one without a blank if the text is empty.
    fn append(&self, n: u64, text: &mut String, rng: &mut impl Rng) {
        for _ in 0..n {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&self.0[rng.random_range(0..self.0.len())]);
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Whether a token of a vocabulary has a blank after anything but white space. Byte-level vocabularies write a blank
/// as `Ġ` and the other white space as `Ċ`, `ĉ` and `č`, SentencePiece writes a blank as `▁`.
fn continues_over_blank(token: &str) -> bool {
    let is_blank = |c: char| matches!(c, ' ' | '▁' | 'Ġ');
    let is_space = |c: char| is_blank(c) || c.is_whitespace() || matches!(c, 'Ċ' | 'ĉ' | 'č');
    let pairs = token.chars().zip(token.chars().skip(1));
    pairs
        .into_iter()
        .any(|(one, next)| is_blank(next) && !is_space(one))
}

impl Tokenizer {
    /// Whether a text consists of words whose tokens do not depend on their neighbors.
    pub fn is_of_independent_words(&self, text: &str) -> bool {
        text.chars().all(|c| c == ' ' || c.is_alphabetic()) && self.words().is_some()
    }

    /// Random text with which the model reads exactly `n` tokens in this slot, which has `base` tokens without text.
    /// None where the text is short, or must be tokenized.
    pub(super) fn long_text(
        &self,
        n: u64,
        base: u64,
        slot: &Slot,
        rng: &mut impl Rng,
    ) -> Option<String> {
        if n < base + LONG {
            return None;
        }
        let words = self.words()?;
        let mut text = String::new();
        let before = slot.before.strip_suffix(' ').unwrap_or_default();
        let mut tokens = match before.ends_with(char::is_alphabetic) {
            true => self.count(before)?,
            false => {
                let front = slot.front();
                let tokens = self.count_without_text(&front) + MEASURED;
                text = self.random_text(tokens, &front, rng).ok()?;
                tokens
            }
        };
        // The text after the slot is tokenized with the end of this one.
        let is_end = slot.is_end();
        let rest = (n - base).checked_sub(if text.is_empty() { 0 } else { MEASURED })?;
        let count = rest.checked_sub(if is_end { 0 } else { MEASURED })?;
        words.append(count, &mut text, rng);
        tokens += count;
        if !is_end {
            let place = self.after_words(slot, &text, tokens)?;
            let end = self.random_text(n, &place, rng).ok()?;
            text.extend([" ", &end]);
        }
        Some(text)
    }

    /// The place after `text`, with which the slot has this number of `tokens` up to there, besides those that the
    /// slot leaves out. None where it does not end with independent words.
    pub fn after_words(&self, slot: &Slot, text: &str, tokens: u64) -> Option<Slot> {
        let (start, _) = text.rmatch_indices(' ').nth(LAST_WORDS - 1)?;
        let last = &text[start + 1..];
        if !self.is_of_independent_words(last) {
            return None;
        }
        slot.after_counted(last, self.ids(last)?, tokens)
    }

    fn words(&self) -> Option<&Words> {
        let pool = self.pool();
        let words = self.words.get_or_init(|| Words::new(self, pool));
        words.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::trained::{ALL, CHATS};
    use super::*;
    use crate::token::MARK;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use serde_json::json;

    #[test]
    fn tokens_that_continue_over_a_blank_are_found() {
        for token in ["a b", "Ġof▁the", "ofĠthe", "x▁", ". ", "ÃĠ"] {
            assert!(continues_over_blank(token), "{token}");
        }
        for token in ["Ġof", "▁of", "ĊĠĠ", "▁▁", "word", "Ġ."] {
            assert!(!continues_over_blank(token), "{token}");
        }
        let vocab = [("of the", 0u32), ("of", 1), ("the", 2), ("[UNK]", 3)];
        let model = tokenizers::models::wordlevel::WordLevel::builder()
            .vocab(vocab.map(|(token, id)| (token.to_owned(), id)).into())
            .unk_token("[UNK]".into())
            .build()
            .unwrap();
        let joined = Tokenizer::wrap(tokenizers::Tokenizer::new(model), false);
        assert!(joined.words().is_none());
    }

    #[test]
    fn every_trained_tokenizer_has_words() {
        for (name, tokenizer) in ALL.iter() {
            assert!(tokenizer.words().is_some(), "{name}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn long_text_has_exactly_as_many_tokens_as_asked(n in 200u64..3000, seed: u64) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut long_text = |tokenizer: &Tokenizer, n, slot: &Slot| {
                tokenizer.long_text(n, tokenizer.count_without_text(slot), slot, &mut rng).unwrap()
            };
            for chat in &CHATS {
                for (kind, _) in ALL.iter() {
                    let tokenizer = chat.over(kind);
                    let slot = tokenizer.slot(&[json!({ "role": "user", "content": MARK })]).unwrap();
                    for slot in [Slot::default(), slot] {
                        let text = long_text(&tokenizer, n, &slot);
                        prop_assert_eq!(tokenizer.measure(&slot, &text), Some(n), "{} {}", chat.name, kind);
                        let front = slot.front();
                        let base = tokenizer.count_without_text(&front);
                        let block = long_text(&tokenizer, base + n, &front);
                        let after = tokenizer.after_words(&slot, &block, base + n).unwrap();
                        let rest = long_text(&tokenizer, n + base + n, &after);
                        let all = tokenizer.measure(&slot, &format!("{block} {rest}"));
                        prop_assert_eq!(all, Some(n + base + n), "{} {}", chat.name, kind);
                    }
                }
            }
        }
    }
}
