//! The place of a text in what a model reads.
//!
//! Tokens do not add up: a text has another count behind a template's words than alone. So a text is always measured
//! where it will be. Where much text surrounds it, only the part nearby is tokenized again; that this may be done is
//! seen from its tokens, which must be those of the whole at the far ends.

use super::{TokenError, Tokenizer};

/// Stands for the text in messages that a [`Slot`] is made of.
pub const MARK: &str = "Slot7f3a9c";
/// Bytes of the surroundings that are tokenized again with a text.
const NEAR: usize = 400;
/// Places where a part may begin, tried before all of it is taken.
const STARTS: usize = 8;
/// Tokens at the end of the part behind a text by which it is known to be unchanged.
const TAIL: usize = 8;

/// The place of a text in what a model reads. [`Slot::default`] is a text alone, without special tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub(super) before: String,
    pub(super) after: String,
    /// Tokens of what is left out in front of `before` and behind `after`, special ones among them.
    beyond: u64,
    /// Ids that the measured part must begin with: text whose tokens must not change.
    lead: Vec<u32>,
    /// Ids that it must end with.
    tail: Vec<u32>,
}

impl Slot {
    /// The same place with nothing behind it.
    pub fn front(&self) -> Slot {
        Slot { before: self.before.clone(), ..Slot::default() }
    }

    /// The place behind `words` in it.
    pub fn behind(&self, words: &str) -> Slot {
        Slot { before: [&self.before, words].concat(), ..self.clone() }
    }

    /// Tokens of what is left out of the part that is measured.
    pub(super) fn beyond(&self) -> u64 {
        self.beyond
    }
}

impl Tokenizer {
    /// The place that [`MARK`] has in a conversation.
    ///
    /// # Errors
    /// [`TokenError::Refused`]: the chat template does not take such messages, or does not hold the mark once and as it
    /// stands.
    pub fn slot(&self, messages: &[serde_json::Value]) -> Result<Slot, TokenError> {
        let whole = self.chat(messages, None)?;
        let parts: Vec<&str> = whole.split(MARK).collect();
        match parts.as_slice() {
            [before, after] => {
                Ok(Slot { before: (*before).to_owned(), after: (*after).to_owned(), ..self.place_of_plain_text() })
            }
            _ => Err(TokenError::Refused { reason: "the user's text does not stand in what it makes of them".into() }),
        }
    }

    /// The place of a prompt that is nothing but its text.
    pub fn place_of_plain_text(&self) -> Slot {
        Slot { beyond: self.around, ..Slot::default() }
    }

    /// Tokens of all that the model reads with `text` in its place. None where the tokenizer refuses it, or where tokens
    /// would change that must not.
    pub fn measure(&self, slot: &Slot, text: &str) -> Option<u64> {
        let ids = self.ids(&[&slot.before, text, &slot.after].concat())?;
        (ids.starts_with(&slot.lead) && ids.ends_with(&slot.tail)).then_some(ids.len() as u64 + slot.beyond)
    }

    /// Tokens of a slot without a text. A blank in front of the text is the text's.
    pub fn alone(&self, slot: &Slot) -> u64 {
        let before = slot.before.strip_suffix(' ').unwrap_or(&slot.before);
        self.count(&[before, &slot.after].concat()).unwrap_or(0) + slot.beyond
    }

    /// Tokens around a text in its place beyond those that the same text has around it as a prompt of its own: what a system
    /// message and the chat template add.
    pub fn around(&self, slot: &Slot) -> u64 {
        self.alone(slot).saturating_sub(self.special)
    }

    /// The place behind `prefix`, whose tokens, like all before them, stay what they are whatever follows.
    pub fn behind(&self, slot: &Slot, prefix: &str) -> Option<Slot> {
        let head = [&slot.before, prefix].concat();
        let ids = self.ids(&head)?;
        let (start, kept) = self.window(&head, &ids);
        let beyond = slot.beyond + (ids.len() - kept) as u64;
        Some(Slot {
            before: format!("{} ", &head[start..]),
            after: slot.after.clone(),
            beyond,
            lead: ids[ids.len() - kept..].to_vec(),
            tail: slot.tail.clone(),
        })
    }

    /// The place in front of `rest`, where now `sample` is and makes `total` tokens of all.
    pub fn ahead(&self, slot: &Slot, sample: &str, rest: &str, total: u64) -> Option<Slot> {
        let near = rest.floor_char_boundary(NEAR);
        let part = match rest[..near].rfind(' ') {
            Some(end) if near < rest.len() => &rest[..end],
            _ => return Some(Slot { after: [rest, &slot.after].concat(), ..slot.clone() }),
        };
        let ids = self.ids(&[&slot.before, sample, part].concat())?;
        let tail = ids[ids.len().saturating_sub(TAIL)..].to_vec();
        let beyond = total.checked_sub(ids.len() as u64)?;
        Some(Slot { before: slot.before.clone(), after: part.to_owned(), beyond, lead: slot.lead.clone(), tail })
    }

    /// The ids of a text, special tokens not added. None where the tokenizer refuses it.
    pub fn ids(&self, text: &str) -> Option<Vec<u32>> {
        self.inner.encode_fast(text, false).ok().map(|encoding| encoding.get_ids().to_vec())
    }

    /// The place behind `head`, which is text of this tokenizer with these `ids`; the last of them may change.
    pub(super) fn joined(&self, slot: &Slot, head: &str, ids: &[u32]) -> Slot {
        let (start, kept) = self.window(head, ids);
        let left_out = ids.len() - kept;
        Slot {
            before: head[start..].to_owned(),
            after: slot.after.clone(),
            beyond: slot.beyond + left_out as u64,
            lead: ids[left_out..left_out + kept / 2].to_vec(),
            tail: slot.tail.clone(),
        }
    }

    /// Where the part of `head` begins that is enough to tokenize again, and how many of its `ids` that part has.
    fn window(&self, head: &str, ids: &[u32]) -> (usize, usize) {
        let near = head.floor_char_boundary(head.len().saturating_sub(NEAR));
        let blanks = head[near..].match_indices(' ').take(STARTS).map(|(at, _)| near + at);
        // Some tokenizers make a word's blank a part of it, others drop it.
        let mut starts = blanks.flat_map(|at| [at, at + 1]).filter(|_| near > 0);
        let found = starts.find_map(|start| {
            let part = self.ids(&head[start..])?;
            (!part.is_empty() && ids.ends_with(&part)).then_some((start, part.len()))
        });
        found.unwrap_or((0, ids.len()))
    }
}

#[cfg(test)]
mod tests {
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
}
