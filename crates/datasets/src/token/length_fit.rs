//! Real text of a given length.
//!
//! The text, and what continues it, is cut behind the token that makes it as long as wanted. Cutting moves tokens as
//! joining does, so the cut is moved by what it is off, then by letters; a text that no cut brings there ends in a few
//! words drawn at random. Only the last part is tokenized again each time, and the whole once at the end.

use super::template_offset::Slot;
use super::{TokenError, Tokenizer};
use rand::Rng;

/// Bytes a token that are taken at first.
const BYTES: usize = 6;
/// Doublings of that.
const GROWTHS: usize = 10;
/// Moves of one cut.
const ROUNDS: usize = 12;
/// Letters on either side of a cut that are tried when whole tokens do not lead there.
const LETTERS: usize = 24;
/// Tokens before a cut that are tokenized again with it.
const NEAR: usize = 64;
/// Tokens that random words take the place of, the second where the first does not do.
const WORDS: [usize; 2] = [8, 24];

/// A text, and what follows where it ends.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The text. Blanks at its ends are left out.
    pub text: &'a str,
    /// What continues it, over and over; empty: nothing.
    pub more: &'a str,
    /// The byte from which that is read at first; the next word's beginning is taken.
    pub from: usize,
}

impl Text<'_> {
    /// The first `bytes` or a few less, and whether there is no more.
    fn take(&self, bytes: usize) -> (String, bool) {
        let text = self.text.trim();
        let more = self.more.trim();
        if bytes < text.len() {
            return (text[..text.floor_char_boundary(bytes)].trim_end().to_owned(), false);
        }
        let mut taken = text.to_owned();
        let mut from = more.ceil_char_boundary(self.from % more.len().max(1));
        if from > 0 {
            from = more[from..].find(char::is_whitespace).map_or(0, |blank| from + blank);
        }
        while taken.len() < bytes && !more.is_empty() {
            if !taken.is_empty() {
                taken.push('\n');
            }
            let rest = more[from..].trim_start();
            taken.push_str(&rest[..rest.floor_char_boundary(bytes.saturating_sub(taken.len()).max(4))]);
            from = 0;
        }
        (taken.trim_end().to_owned(), more.is_empty())
    }
}

/// The tokens of a text in its place.
struct Tokens {
    /// All of them, the slot's words included.
    ids: Vec<u32>,
    /// Those in front of the text.
    first: usize,
    /// Where the text's own end, in bytes of it.
    ends: Vec<usize>,
}

impl Tokens {
    fn end(&self, tokens: usize) -> usize {
        tokens.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0)
    }
}

/// A text cut near the right length.
struct Cut {
    /// Where a cut gave exactly that length.
    exact: Option<String>,
    /// The longest that was not longer.
    below: Option<String>,
    /// Tokens in front of the last cut.
    at: usize,
}

impl Tokenizer {
    /// The text, cut or continued, with which the model reads exactly `n` tokens in all.
    ///
    /// # Errors
    /// [`TokenError::NoFit`] where the slot alone has as many, or no such text was found.
    pub fn fitted(&self, n: u64, slot: &Slot, text: Text<'_>, rng: &mut impl Rng) -> Result<String, TokenError> {
        let none = |nearest| TokenError::NoFit { wanted: n, nearest };
        let (raw, seen) = self.enough(n, slot, text).ok_or_else(|| none(self.alone(slot)))?;
        if seen <= n {
            return if seen == n { Ok(raw) } else { self.ended(n, slot, &raw, rng) };
        }
        let tokens = self.tokens(slot, &raw).ok_or_else(|| none(seen))?;
        for near in [NEAR, usize::MAX] {
            let Some(cut) = self.cut_near(n, slot, (&raw, &tokens), near) else { continue };
            let heads = WORDS.iter().map(|&words| raw[..tokens.end(cut.at.saturating_sub(words))].trim_end());
            let worded = heads.filter_map(|head| self.ended(n, slot, head, rng).ok());
            if let Some(found) = cut.exact.into_iter().chain(worded).find(|text| self.measure(slot, text) == Some(n)) {
                return Ok(found);
            }
        }
        Err(none(self.alone(slot)))
    }

    /// The text, cut where the model would read more than `n` tokens in all: to `n`, or the nearest below.
    ///
    /// # Errors
    /// [`TokenError::NoFit`] where the slot alone has more.
    pub fn capped(&self, n: u64, slot: &Slot, text: &str) -> Result<String, TokenError> {
        let none = || TokenError::NoFit { wanted: n, nearest: self.alone(slot) };
        let (raw, seen) = self.enough(n, slot, Text { text, more: "", from: 0 }).ok_or_else(none)?;
        let whole = raw.len() == text.trim().len();
        // With and without the blanks around it a text may differ by a token, in either direction.
        if whole && self.measure(slot, text).is_some_and(|seen| seen <= n) {
            return Ok(text.to_owned());
        }
        if seen <= n {
            return Ok(raw);
        }
        let tokens = self.tokens(slot, &raw).ok_or_else(none)?;
        let fits = |text: &String| self.measure(slot, text).is_some_and(|seen| seen <= n);
        let cuts = [NEAR, usize::MAX].into_iter().filter_map(|near| self.cut_near(n, slot, (&raw, &tokens), near));
        cuts.flat_map(|cut| [cut.exact, cut.below]).flatten().find(fits).ok_or_else(none)
    }

    /// A beginning of a text with which there are `n` tokens or more, and how many there are; or all of it.
    fn enough(&self, n: u64, slot: &Slot, text: Text<'_>) -> Option<(String, u64)> {
        let mut bytes = (n as usize).saturating_mul(BYTES).saturating_add(64);
        for _ in 0..GROWTHS {
            let (raw, whole) = text.take(bytes);
            let seen = self.measure(slot, &raw)?;
            if seen >= n || whole {
                return Some((raw, seen));
            }
            bytes = bytes.saturating_mul(2);
        }
        None
    }

    fn tokens(&self, slot: &Slot, raw: &str) -> Option<Tokens> {
        let place = slot.before.len()..slot.before.len() + raw.len();
        let encoding = self.inner.encode([&slot.before, raw, &slot.after].concat(), false).ok()?;
        let offsets = encoding.get_offsets();
        let first = offsets.iter().position(|&(start, end)| start >= place.start && end > place.start)?;
        let ends = offsets[first..].iter().take_while(|(_, end)| *end <= place.end);
        let ends = ends.map(|(_, end)| raw.floor_char_boundary(end - place.start)).collect();
        Some(Tokens { ids: encoding.get_ids().to_vec(), first, ends })
    }

    /// Moves a cut through the last `near` tokens of what may stay. None: those cannot be looked at alone.
    fn cut_near(&self, n: u64, slot: &Slot, (raw, tokens): (&str, &Tokens), near: usize) -> Option<Cut> {
        let over = (tokens.ids.len() as u64 + slot.beyond()).saturating_sub(n) as usize;
        let mut cut = Cut { exact: None, below: None, at: tokens.ends.len().saturating_sub(over).max(1) };
        let anchor = cut.at.saturating_sub(near);
        let start = tokens.end(anchor);
        let place = match anchor {
            0 => slot.clone(),
            _ => self.joined(slot, &[&slot.before, &raw[..start]].concat(), &tokens.ids[..tokens.first + anchor]),
        };
        let mut most = 0;
        let mut tried = |cut: &mut Cut, end: usize| {
            let piece = raw[start..end.max(start)].trim_end();
            let seen = self.measure(&place, piece)?;
            let text = || [&raw[..start], piece].concat();
            if seen == n && !piece.is_empty() {
                cut.exact = Some(text());
            } else if (most..n).contains(&seen) && !piece.is_empty() {
                (most, cut.below) = (seen, Some(text()));
            }
            Some(seen)
        };
        for _ in 0..ROUNDS {
            let end = tokens.end(cut.at);
            let seen = tried(&mut cut, end)?;
            if cut.exact.is_some() {
                return Some(cut);
            }
            let next = (cut.at as u64 + n).saturating_sub(seen) as usize;
            cut.at = next.clamp(anchor + 1, tokens.ends.len().max(anchor + 1));
        }
        let end = tokens.end(cut.at);
        for end in letters(raw, end) {
            tried(&mut cut, end)?;
            if cut.exact.is_some() {
                break;
            }
        }
        Some(cut)
    }

    /// `head`, and random words behind it until there are `n` tokens.
    fn ended(&self, n: u64, slot: &Slot, head: &str, rng: &mut impl Rng) -> Result<String, TokenError> {
        if head.is_empty() {
            return self.exactly(n, slot, rng);
        }
        let place = slot.behind(&format!("{head} "));
        Ok([head, " ", &self.exactly(n, &place, rng)?].concat())
    }
}

/// The letters' ends around a place, the last one first.
fn letters(text: &str, around: usize) -> impl Iterator<Item = usize> {
    let ahead = text[around..].char_indices().map(|(at, _)| around + at).take(LETTERS);
    let behind = text[..around].char_indices().rev().map(|(at, _)| at).take(LETTERS);
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
        let all =
            CHATS.iter().flat_map(|chat| ALL.iter().map(move |(kind, _)| (format!("{} {kind}", chat.name), chat.over(kind))));
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
}
