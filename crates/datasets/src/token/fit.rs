//! Random text of exactly N tokens.
//!
//! Encoding a decoded text may give other tokens: neighbors merge, spaces move, normalizers change characters. So
//! random words are drawn, decoded and counted as the server counts them, and words are added or removed until the
//! count is exact.

use super::template_offset::Slot;
use super::{TokenError, Tokenizer};
use rand::{Rng, RngExt};

/// Number of texts that are tried.
const ATTEMPTS: usize = 12;
/// Number of corrections of a text.
const ROUNDS: usize = 12;
/// Limit of the characters that are cut from the end of a text if words do not lead to the length.
const CUTS: usize = 48;
/// Least number of whole words in a vocabulary. With fewer, all printable tokens are used.
pub(super) const MIN_WORDS: usize = 64;

/// The tokens of random text.
#[derive(Debug)]
pub struct Pool(Vec<u32>);

impl Pool {
    /// Whole words if the vocabulary has enough: tokens that decode to a space and letters after another token.
    /// Otherwise all tokens that decode to printable text. Never special and added tokens.
    fn new(tokenizer: &Tokenizer) -> Pool {
        let added = tokenizer.inner.get_added_tokens_decoder();
        let mut ids: Vec<u32> = tokenizer
            .inner
            .get_vocab(false)
            .into_values()
            .filter(|id| !added.contains_key(id))
            .collect();
        ids.sort_unstable();
        let decoded = |ids: &[u32]| tokenizer.inner.decode(ids, false).unwrap_or_default();
        let unknown = tokenizer.unknown_token();
        ids.retain(|&id| Some(id) != unknown && printable(&decoded(&[id])));
        let anchor = ids
            .iter()
            .copied()
            .find(|&id| decoded(&[id]).chars().all(char::is_alphanumeric));
        let words: Vec<u32> = match anchor {
            None => Vec::new(),
            Some(anchor) => {
                let head = decoded(&[anchor]);
                let is_word = |id: &u32| {
                    decoded(&[anchor, *id])
                        .strip_prefix(&head)
                        .is_some_and(spaced_word)
                };
                ids.iter().copied().filter(is_word).collect()
            }
        };
        Pool(if words.len() >= MIN_WORDS { words } else { ids })
    }

    pub(super) fn ids(&self) -> &[u32] {
        &self.0
    }

    fn draw(&self, n: usize, rng: &mut impl Rng) -> Vec<u32> {
        (0..n)
            .map(|_| self.0[rng.random_range(0..self.0.len())])
            .collect()
    }
}

fn printable(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(|c: char| c.is_control() || c == '\u{fffd}')
}

fn spaced_word(text: &str) -> bool {
    text.strip_prefix(' ')
        .is_some_and(|word| !word.is_empty() && word.chars().all(char::is_alphabetic))
}

impl Tokenizer {
    pub(super) fn pool(&self) -> &Pool {
        self.pool.get_or_init(|| Pool::new(self))
    }

    /// Random ids of ordinary tokens; empty where the vocabulary has none.
    pub fn random_ids(&self, n: usize, rng: &mut impl Rng) -> Vec<u32> {
        let pool = self.pool();
        if pool.0.is_empty() {
            return Vec::new();
        }
        pool.draw(n, rng)
    }

    /// Random text with which the model reads exactly `n` tokens in total, including its [`Slot`]. It has neither
    /// control characters nor blanks at its ends, which chat templates trim. Equal generators give equal text.
    ///
    /// # Errors
    /// [`TokenError::NoFit`] where no such text was found in a limited number of tries, or the slot has `n` tokens
    /// without text.
    pub fn random_text(
        &self,
        n: u64,
        slot: &Slot,
        rng: &mut impl Rng,
    ) -> Result<String, TokenError> {
        let pool = self.pool();
        let base = self.count_without_text(slot);
        if let Some(text) = self.long_text(n, base, slot, rng) {
            return Ok(text);
        }
        if n == base && n == 0 {
            return Ok(String::new());
        }
        let mut nearest = base;
        if n > base && !pool.0.is_empty() {
            for _ in 0..ATTEMPTS {
                match self.try_random_text(n, base, slot, rng) {
                    Ok(text) => return Ok(text),
                    Err(count) if count.abs_diff(n) < nearest.abs_diff(n) => nearest = count,
                    Err(_) => {}
                }
            }
        }
        Err(TokenError::NoFit { wanted: n, nearest })
    }

    /// Draws one text and corrects it. The error is its length.
    fn try_random_text(
        &self,
        n: u64,
        base: u64,
        slot: &Slot,
        rng: &mut impl Rng,
    ) -> Result<String, u64> {
        let pool = self.pool();
        let mut ids = pool.draw((n - base) as usize, rng);
        for _ in 0..ROUNDS {
            let (text, count) = self.decode_and_count(&ids, slot).ok_or(0u64)?;
            if count == n {
                return Ok(text);
            }
            let off = count.abs_diff(n) as usize;
            if count < n {
                ids.extend(pool.draw(off, rng));
            } else {
                // A word may have several tokens: remove words in proportion to the excess.
                let surplus = (off * ids.len() / count.saturating_sub(base).max(1) as usize).max(1);
                ids.truncate(ids.len().saturating_sub(surplus).max(1));
            }
        }
        ids.extend(pool.draw(2, rng));
        let (text, count) = self.decode_and_count(&ids, slot).ok_or(0u64)?;
        self.shorten(&text, n, slot).ok_or(count)
    }

    /// The longest beginning of `text` with which there are `n` tokens, if the cut is near its end.
    fn shorten(&self, text: &str, n: u64, slot: &Slot) -> Option<String> {
        let ends = text
            .char_indices()
            .rev()
            .take(CUTS)
            .map(|(end, _)| text[..end].trim_end());
        ends.filter(|head| !head.is_empty())
            .find(|head| self.measure(slot, head) == Some(n))
            .map(str::to_owned)
    }

    fn decode_and_count(&self, ids: &[u32], slot: &Slot) -> Option<(String, u64)> {
        let text = self.inner.decode(ids, false).ok()?.trim().to_owned();
        let count = self.measure(slot, &text)?;
        Some((text, count))
    }

    /// The id of the unknown token, which is not drawn because it decodes to its name.
    fn unknown_token(&self) -> Option<u32> {
        use tokenizers::ModelWrapper;
        match self.inner.get_model() {
            ModelWrapper::BPE(model) => model
                .unk_token
                .as_ref()
                .and_then(|name| self.inner.token_to_id(name)),
            ModelWrapper::WordPiece(model) => self.inner.token_to_id(&model.unk_token),
            ModelWrapper::WordLevel(model) => self.inner.token_to_id(&model.unk_token),
            ModelWrapper::Unigram(_) => self.inner.token_to_id("<unk>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trained::ALL;
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use tokenizers::Tokenizer as Inner;
    fn rng(seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed)
    }

    #[test]
    fn whole_words_are_drawn_where_there_are_any() {
        let words: Vec<usize> = ALL
            .iter()
            .map(|(_, tokenizer)| Pool::new(tokenizer).0.len())
            .collect();
        for ((name, tokenizer), words) in ALL.iter().zip(words) {
            let text = tokenizer
                .random_text(40, &Slot::default(), &mut rng(1))
                .unwrap();
            assert!(words >= MIN_WORDS, "{name}: {words}");
            assert!(
                text.chars().all(|c| c == ' ' || c.is_alphabetic()),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn equal_generators_give_equal_text_and_others_do_not() {
        let builtin = Tokenizer::builtin();
        assert_eq!(
            builtin
                .random_text(0, &Slot::default(), &mut rng(1))
                .unwrap(),
            ""
        );
        let [a, b, c] = [1, 1, 2].map(|seed| {
            builtin
                .random_text(32, &Slot::default(), &mut rng(seed))
                .unwrap()
        });
        assert_eq!(a, b);
        assert_ne!(a, c);
    }

    #[test]
    fn a_vocabulary_that_cannot_fit_says_how_near_it_came() {
        let vocab = [("ab".to_owned(), 0), ("[UNK]".to_owned(), 1)];
        let model = tokenizers::models::wordlevel::WordLevel::builder()
            .vocab(vocab.into())
            .unk_token("[UNK]".into())
            .build()
            .unwrap();
        let single = Tokenizer::wrap(Inner::new(model), false);
        assert_eq!(
            single
                .random_text(1, &Slot::default(), &mut rng(1))
                .unwrap(),
            "ab"
        );
        let error = single
            .random_text(3, &Slot::default(), &mut rng(1))
            .unwrap_err();
        assert!(
            matches!(
                error,
                TokenError::NoFit {
                    wanted: 3,
                    nearest: 1
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn plain_text_is_as_long_as_a_server_that_frames_it_reads_it() {
        let (_, plain) = ALL.iter().find(|(name, _)| *name == "wordpiece").unwrap();
        let mut inner = plain.inner.clone();
        let mark = ("[CLS]".to_owned(), inner.token_to_id("[CLS]").unwrap());
        inner.with_post_processor(Some(tokenizers::processors::bert::BertProcessing::new(
            mark.clone(),
            mark,
        )));
        let read = |text: &str| inner.encode_fast(text, true).unwrap().len() as u64;
        let tokenizer = Tokenizer::wrap(inner.clone(), false).for_plain_text();
        let messages = [serde_json::json!({ "role": "user", "content": crate::token::MARK })];
        for slot in [
            tokenizer.plain_text_slot(),
            tokenizer.slot(&messages).unwrap(),
        ] {
            let text = tokenizer.random_text(40, &slot, &mut rng(1)).unwrap();
            assert_eq!(
                (
                    read(&text),
                    tokenizer.count_prompt(&text),
                    tokenizer.count(&text)
                ),
                (40, Some(40), Some(38))
            );
            let cut = tokenizer.truncate_text(12, &slot, &text).unwrap();
            assert_eq!(read(&cut), 12);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn the_text_has_exactly_as_many_tokens_as_asked(n in 1u64..300, seed: u64) {
            for (name, tokenizer) in ALL.iter() {
                let text = tokenizer.random_text(n, &Slot::default(), &mut rng(seed)).unwrap();
                prop_assert_eq!(tokenizer.count(&text), Some(n), "{}: {}", name, &text);
                prop_assert_eq!(text.trim(), &text);
                prop_assert!(printable(&text), "{}: {}", name, &text);
            }
        }
    }
}
