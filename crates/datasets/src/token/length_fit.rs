//! Given text, cut or continued to a given length.
//!
//! The text is cut after the token with which the length is reached. A cut changes tokens, so it is corrected by the
//! difference, then by characters. If no cut gives the length, the text ends with a few random words. Only the last
//! part is tokenized for each cut, and the whole text once at the end.

use super::template_offset::Slot;
use super::{TokenError, Tokenizer};
use rand::Rng;

/// Bytes per token that are tokenized at first.
const BYTES_PER_TOKEN: usize = 6;
/// Number of times that this is doubled.
const DOUBLINGS: usize = 10;
/// Number of corrections of a cut.
const ROUNDS: usize = 12;
/// Characters before and after a cut that are tried if no token boundary gives the length.
const CHARACTERS: usize = 24;
/// Tokens before a cut that are tokenized again.
const NEAR: usize = 64;
/// Tokens that are replaced by random words; the second number is tried if the first fails.
const WORDS: [usize; 2] = [8, 24];

/// A text, and its continuation.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The text, which is trimmed.
    pub text: &'a str,
    /// Repeated after the text; may be empty.
    pub more: &'a str,
    /// Byte offset in `more` at which the continuation begins, rounded up to the next word.
    pub from: usize,
}

impl Text<'_> {
    /// At most the first `bytes`, and whether this is the complete text.
    fn take(&self, bytes: usize) -> (String, bool) {
        let text = self.text.trim();
        let more = self.more.trim();
        if bytes < text.len() {
            return (
                text[..text.floor_char_boundary(bytes)]
                    .trim_end()
                    .to_owned(),
                false,
            );
        }
        let mut taken = text.to_owned();
        let mut from = more.ceil_char_boundary(self.from % more.len().max(1));
        if from > 0 {
            from = more[from..]
                .find(char::is_whitespace)
                .map_or(0, |blank| from + blank);
        }
        while taken.len() < bytes && !more.is_empty() {
            if !taken.is_empty() {
                taken.push('\n');
            }
            let rest = more[from..].trim_start();
            taken.push_str(
                &rest[..rest.floor_char_boundary(bytes.saturating_sub(taken.len()).max(4))],
            );
            from = 0;
        }
        (taken.trim_end().to_owned(), more.is_empty())
    }
}

/// The tokens of a text in its slot.
struct Tokens {
    /// Ids of slot and text.
    ids: Vec<u32>,
    /// Number of tokens before the text.
    first: usize,
    /// The end of each token of the text, in bytes.
    ends: Vec<usize>,
}

impl Tokens {
    fn end(&self, tokens: usize) -> usize {
        tokens
            .checked_sub(1)
            .and_then(|last| self.ends.get(last))
            .copied()
            .unwrap_or(0)
    }
}

/// A text cut near the right length.
struct Cut {
    /// A text of exactly this length.
    exact: Option<String>,
    /// The longest shorter text.
    below: Option<String>,
    /// Number of tokens before the last cut.
    at: usize,
}

impl Tokenizer {
    /// The text, cut or continued so that the model reads exactly `n` tokens in total.
    ///
    /// # Errors
    /// [`TokenError::NoFit`] where no such text was found.
    pub fn fit_text(
        &self,
        n: u64,
        slot: &Slot,
        text: Text<'_>,
        rng: &mut impl Rng,
    ) -> Result<String, TokenError> {
        let no_fit = |nearest| TokenError::NoFit { wanted: n, nearest };
        let (raw, count) = self
            .take_enough(n, slot, text)
            .ok_or_else(|| no_fit(self.count_without_text(slot)))?;
        if count <= n {
            return if count == n {
                Ok(raw)
            } else {
                self.end_with_random_words(n, slot, &raw, rng)
            };
        }
        let tokens = self.tokenize(slot, &raw).ok_or_else(|| no_fit(count))?;
        for near in [NEAR, usize::MAX] {
            let Some(cut) = self.cut_near(n, slot, &raw, &tokens, near) else {
                continue;
            };
            let heads = WORDS
                .iter()
                .map(|&words| raw[..tokens.end(cut.at.saturating_sub(words))].trim_end());
            let with_random_words =
                heads.filter_map(|head| self.end_with_random_words(n, slot, head, rng).ok());
            if let Some(found) = cut
                .exact
                .into_iter()
                .chain(with_random_words)
                .find(|text| self.measure(slot, text) == Some(n))
            {
                return Ok(found);
            }
        }
        Err(no_fit(self.count_without_text(slot)))
    }

    /// The text, cut so that the model reads at most `n` tokens in total.
    ///
    /// # Errors
    /// [`TokenError::NoFit`] where the slot has more tokens without text.
    pub fn truncate_text(&self, n: u64, slot: &Slot, text: &str) -> Result<String, TokenError> {
        let no_fit = || TokenError::NoFit {
            wanted: n,
            nearest: self.count_without_text(slot),
        };
        let (raw, count) = self
            .take_enough(
                n,
                slot,
                Text {
                    text,
                    more: "",
                    from: 0,
                },
            )
            .ok_or_else(no_fit)?;
        let complete = raw.len() == text.trim().len();
        // Blanks at the ends may change the count in either direction.
        if complete && self.measure(slot, text).is_some_and(|count| count <= n) {
            return Ok(text.to_owned());
        }
        if count <= n {
            return Ok(raw);
        }
        let tokens = self.tokenize(slot, &raw).ok_or_else(no_fit)?;
        let fits = |text: &String| self.measure(slot, text).is_some_and(|count| count <= n);
        let cuts = [NEAR, usize::MAX]
            .into_iter()
            .filter_map(|near| self.cut_near(n, slot, &raw, &tokens, near));
        cuts.flat_map(|cut| [cut.exact, cut.below])
            .flatten()
            .find(fits)
            .ok_or_else(no_fit)
    }

    /// A beginning of a text with at least `n` tokens, or the complete text, and its number of tokens.
    fn take_enough(&self, n: u64, slot: &Slot, text: Text<'_>) -> Option<(String, u64)> {
        let mut bytes = (n as usize)
            .saturating_mul(BYTES_PER_TOKEN)
            .saturating_add(64);
        for _ in 0..DOUBLINGS {
            let (raw, complete) = text.take(bytes);
            let count = self.measure(slot, &raw)?;
            if count >= n || complete {
                return Some((raw, count));
            }
            bytes = bytes.saturating_mul(2);
        }
        None
    }

    fn tokenize(&self, slot: &Slot, raw: &str) -> Option<Tokens> {
        let place = slot.before.len()..slot.before.len() + raw.len();
        let encoding = self
            .inner
            .encode([&slot.before, raw, &slot.after].concat(), false)
            .ok()?;
        let offsets = encoding.get_offsets();
        let first = offsets
            .iter()
            .position(|&(start, end)| start >= place.start && end > place.start)?;
        let ends = offsets[first..]
            .iter()
            .take_while(|(_, end)| *end <= place.end);
        let ends = ends
            .map(|(_, end)| raw.floor_char_boundary(end - place.start))
            .collect();
        Some(Tokens {
            ids: encoding.get_ids().to_vec(),
            first,
            ends,
        })
    }

    /// Finds a cut in the `near` tokens before the length. None: these cannot be tokenized separately.
    fn cut_near(
        &self,
        n: u64,
        slot: &Slot,
        raw: &str,
        tokens: &Tokens,
        near: usize,
    ) -> Option<Cut> {
        let excess = (tokens.ids.len() as u64 + slot.omitted()).saturating_sub(n) as usize;
        let mut cut = Cut {
            exact: None,
            below: None,
            at: tokens.ends.len().saturating_sub(excess).max(1),
        };
        let anchor = cut.at.saturating_sub(near);
        let start = tokens.end(anchor);
        let place = match anchor {
            0 => slot.clone(),
            _ => self.after_tokens(
                slot,
                &[&slot.before, &raw[..start]].concat(),
                &tokens.ids[..tokens.first + anchor],
            ),
        };
        let mut longest = 0;
        let mut try_cut = |cut: &mut Cut, end: usize| {
            let piece = raw[start..end.max(start)].trim_end();
            let count = self.measure(&place, piece)?;
            let text = || [&raw[..start], piece].concat();
            if count == n && !piece.is_empty() {
                cut.exact = Some(text());
            } else if (longest..n).contains(&count) && !piece.is_empty() {
                longest = count;
                cut.below = Some(text());
            }
            Some(count)
        };
        for _ in 0..ROUNDS {
            let end = tokens.end(cut.at);
            let count = try_cut(&mut cut, end)?;
            if cut.exact.is_some() {
                return Some(cut);
            }
            let next = (cut.at as u64 + n).saturating_sub(count) as usize;
            cut.at = next.clamp(anchor + 1, tokens.ends.len().max(anchor + 1));
        }
        let end = tokens.end(cut.at);
        for end in character_ends(raw, end) {
            try_cut(&mut cut, end)?;
            if cut.exact.is_some() {
                break;
            }
        }
        Some(cut)
    }

    /// `head`, followed by random words up to `n` tokens.
    fn end_with_random_words(
        &self,
        n: u64,
        slot: &Slot,
        head: &str,
        rng: &mut impl Rng,
    ) -> Result<String, TokenError> {
        if head.is_empty() {
            return self.random_text(n, slot, rng);
        }
        let place = slot.behind(&format!("{head} "));
        Ok([head, " ", &self.random_text(n, &place, rng)?].concat())
    }
}

/// The offsets of characters around an offset, the last one first.
fn character_ends(text: &str, around: usize) -> impl Iterator<Item = usize> {
    let ahead = text[around..]
        .char_indices()
        .map(|(at, _)| around + at)
        .take(CHARACTERS);
    let behind = text[..around]
        .char_indices()
        .rev()
        .map(|(at, _)| at)
        .take(CHARACTERS);
    let mut ends: Vec<usize> = ahead.chain(behind).collect();
    ends.sort_unstable();
    ends.into_iter().rev()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::MARK;
    use crate::token::trained::{ALL, CHATS};
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use serde_json::{Value, json};
    use std::sync::LazyLock;

    const PROSE: &str = include_str!("../../data/openqa.jsonl");

    static CHATTING: LazyLock<Vec<(String, Tokenizer)>> = LazyLock::new(|| {
        let all = CHATS.iter().flat_map(|chat| {
            ALL.iter()
                .map(move |(kind, _)| (format!("{} {kind}", chat.name), chat.over(kind)))
        });
        all.collect()
    });

    fn rng(seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed)
    }

    fn messages(text: &str) -> Vec<Value> {
        vec![
            json!({ "role": "system", "content": "Be terse." }),
            json!({ "role": "user", "content": text }),
        ]
    }

    /// The row as it is, with what continues it.
    fn own(text: &str) -> Text<'_> {
        Text {
            text,
            more: text,
            from: 0,
        }
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
        fn shaped_text_has_exactly_as_many_tokens_as_asked(n in 6u64..260, from: usize,
            len in 0usize..2500, seed: u64) {
            let text = part(from, len);
            for (name, tokenizer) in ALL.iter() {
                let fitted = tokenizer.fit_text(n, &Slot::default(), own(&text), &mut rng(seed)).unwrap();
                prop_assert_eq!(tokenizer.count(&fitted), Some(n), "{}: {}", name, &fitted);
                prop_assert_eq!(fitted.trim(), &fitted);
            }
        }

        #[test]
        fn shaped_text_is_exact_after_the_chat_template(n in 6u64..260, from: usize, len in 0usize..2500, seed: u64) {
            let text = part(from, len);
            for (name, tokenizer) in CHATTING.iter() {
                let slot = tokenizer.slot(&messages(MARK)).unwrap();
                let all = n + tokenizer.count_without_text(&slot);
                let fitted = tokenizer.fit_text(all, &slot, own(&text), &mut rng(seed)).unwrap();
                prop_assert_eq!(tokenizer.count_messages(&messages(&fitted)), Some(all), "{}: {}", name, &fitted);
                let drawn = tokenizer.random_text(all, &slot, &mut rng(seed)).unwrap();
                prop_assert_eq!(tokenizer.count_messages(&messages(&drawn)), Some(all), "{}: {}", name, &drawn);
            }
        }

        #[test]
        fn a_cap_cuts_what_is_longer_and_touches_nothing_else(n in 6u64..260, from: usize, len in 0usize..2500) {
            let text = part(from, len);
            for (name, tokenizer) in ALL.iter() {
                let (capped, before) = (tokenizer.truncate_text(n, &Slot::default(), &text).unwrap(),
                    tokenizer.count(&text).unwrap());
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
        assert_eq!(
            tokenizer.truncate_text(n, &Slot::default(), text).unwrap(),
            text
        );
    }

    #[test]
    fn a_long_text_is_cut_to_its_own_beginning() {
        let tokenizer = Tokenizer::builtin();
        let fitted = tokenizer
            .fit_text(1000, &Slot::default(), own(PROSE), &mut rng(1))
            .unwrap();
        assert_eq!(tokenizer.count(&fitted), Some(1000));
        assert!(PROSE.starts_with(&fitted));
    }

    #[test]
    fn a_short_text_goes_on_with_itself_or_with_another_from_the_next_word_on() {
        let tokenizer = Tokenizer::builtin();
        let slot = Slot::default();
        let again = tokenizer
            .fit_text(13, &slot, own(" The sky is blue. "), &mut rng(1))
            .unwrap();
        assert_eq!(again, "The sky is blue.\nThe sky is blue.\nThe");
        let other = Text {
            text: "The sky is blue.",
            more: "one two three",
            from: 1,
        };
        assert_eq!(
            tokenizer.fit_text(12, &slot, other, &mut rng(1)).unwrap(),
            "The sky is blue.\ntwo three\none two"
        );
    }

    #[test]
    fn a_slot_that_is_too_long_already_is_an_error_with_its_length() {
        let tokenizer = CHATS[0].over("builtin");
        let slot = tokenizer.slot(&messages(MARK)).unwrap();
        let alone = tokenizer.count_without_text(&slot);
        let error = tokenizer
            .fit_text(alone, &slot, own("The sky"), &mut rng(1))
            .unwrap_err();
        assert!(
            matches!(error, TokenError::NoFit { nearest, .. } if nearest == alone),
            "{error}"
        );
        assert!(
            tokenizer
                .truncate_text(alone - 1, &slot, "The sky")
                .is_err()
        );
    }
}
