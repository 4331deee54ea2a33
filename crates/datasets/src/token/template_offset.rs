//! The place of a text in what a model reads.
//!
//! Token counts are not additive: a text may have another count after the text of a template than by itself. So a
//! text is always counted in its place. Only the text nearby is tokenized again; this is valid if the tokens at its
//! far ends are unchanged.

use super::{TokenError, Tokenizer};
use serde_json::json;

/// Placeholder of the text in messages from which a [`Slot`] is made.
pub const MARK: &str = "Slot7f3a9c";
/// Bytes around a text that are tokenized with it.
const NEAR: usize = 400;
/// Number of offsets at which a part may begin that are tried before the whole text is used.
const STARTS: usize = 8;
/// Tokens at the end of the part after a text that must be unchanged.
const TAIL: usize = 8;

/// The place of a text in what a model reads. [`Slot::default`] has no other text and no special tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub(super) before: String,
    pub(super) after: String,
    /// Tokens before `before` and after `after`, with special ones.
    omitted: u64,
    /// Ids with which the counted part must begin.
    lead: Vec<u32>,
    /// Ids with which it must end.
    tail: Vec<u32>,
}

impl Slot {
    /// The same place without the text after it.
    pub fn front(&self) -> Slot {
        Slot {
            before: self.before.clone(),
            ..Slot::default()
        }
    }

    /// The place after `words`, which follow `before`.
    pub fn behind(&self, words: &str) -> Slot {
        Slot {
            before: [&self.before, words].concat(),
            ..self.clone()
        }
    }

    /// Whether no other text follows.
    pub(super) fn is_end(&self) -> bool {
        self.after.is_empty() && self.tail.is_empty()
    }

    /// The place after words with these `ids`. Up to there are this number of `tokens`, besides those that this slot
    /// leaves out.
    pub(super) fn after_counted(&self, words: &str, ids: Vec<u32>, tokens: u64) -> Option<Slot> {
        Some(Slot {
            before: format!("{words} "),
            after: self.after.clone(),
            omitted: (self.omitted + tokens).checked_sub(ids.len() as u64)?,
            lead: ids,
            tail: self.tail.clone(),
        })
    }

    /// Tokens outside the counted part.
    pub(super) fn omitted(&self) -> u64 {
        self.omitted
    }
}

impl Tokenizer {
    /// The place of [`MARK`] in a conversation.
    ///
    /// # Errors
    /// [`TokenError::Refused`]: the chat template rejects such messages, or does not contain the mark exactly once.
    pub fn slot(&self, messages: &[serde_json::Value]) -> Result<Slot, TokenError> {
        let whole = self.chat(messages, None)?;
        let parts: Vec<&str> = whole.split(MARK).collect();
        match parts.as_slice() {
            [before, after] => Ok(Slot {
                before: (*before).to_owned(),
                after: (*after).to_owned(),
                ..self.plain_text_slot()
            }),
            _ => Err(TokenError::Refused {
                reason: "its output does not contain the user's text unchanged".into(),
            }),
        }
    }

    /// The place of [`MARK`] in a message of the user after a reply, without what is before the end of the reply.
    ///
    /// # Errors
    /// As of [`Tokenizer::slot`].
    pub fn slot_after_reply(&self) -> Result<Slot, TokenError> {
        const REPLY: &str = "Reply5e1b8d";
        let message = |role: &str, content: &str| json!({ "role": role, "content": content });
        let whole = self.chat(
            &[
                message("user", "a"),
                message("assistant", REPLY),
                message("user", MARK),
            ],
            None,
        )?;
        let after_reply = whole.rsplit_once(REPLY).map(|(_, after)| after);
        match after_reply.and_then(|after| after.split_once(MARK)) {
            Some((before, after)) => Ok(Slot {
                before: before.to_owned(),
                after: after.to_owned(),
                ..Slot::default()
            }),
            None => Err(TokenError::Refused {
                reason: "its output does not contain the texts of a conversation unchanged".into(),
            }),
        }
    }

    /// The place of a prompt without other text.
    pub fn plain_text_slot(&self) -> Slot {
        Slot {
            omitted: self.prompt_special,
            ..Slot::default()
        }
    }

    /// Number of tokens that the model reads with `text` in this place. None where the tokenizer rejects it, or where
    /// tokens at the far ends change.
    pub fn measure(&self, slot: &Slot, text: &str) -> Option<u64> {
        let ids = self.ids(&[&slot.before, text, &slot.after].concat())?;
        (ids.starts_with(&slot.lead) && ids.ends_with(&slot.tail))
            .then_some(ids.len() as u64 + slot.omitted)
    }

    /// Number of tokens of a slot without a text. A blank before the text belongs to the text.
    pub fn count_without_text(&self, slot: &Slot) -> u64 {
        let before = slot.before.strip_suffix(' ').unwrap_or(&slot.before);
        self.count(&[before, &slot.after].concat()).unwrap_or(0) + slot.omitted
    }

    /// Number of tokens that a system message and the chat template add, besides the special tokens of plain text.
    pub fn count_template(&self, slot: &Slot) -> u64 {
        self.count_without_text(slot)
            .saturating_sub(self.plain_text_special)
    }

    /// The place after `prefix`, whose tokens must not depend on the text after it.
    pub fn behind(&self, slot: &Slot, prefix: &str) -> Option<Slot> {
        let head = [&slot.before, prefix].concat();
        let ids = self.ids(&head)?;
        let (start, kept) = self.window(&head, &ids);
        let omitted = slot.omitted + (ids.len() - kept) as u64;
        Some(Slot {
            before: format!("{} ", &head[start..]),
            after: slot.after.clone(),
            omitted,
            lead: ids[ids.len() - kept..].to_vec(),
            tail: slot.tail.clone(),
        })
    }

    /// The place before `rest`. With the text `sample` there, the model reads `total` tokens.
    pub fn ahead(&self, slot: &Slot, sample: &str, rest: &str, total: u64) -> Option<Slot> {
        let near = rest.floor_char_boundary(NEAR);
        let part = match rest[..near].rfind(' ') {
            Some(end) if near < rest.len() => &rest[..end],
            _ => {
                return Some(Slot {
                    after: [rest, &slot.after].concat(),
                    ..slot.clone()
                });
            }
        };
        let ids = self.ids(&[&slot.before, sample, part].concat())?;
        let tail = ids[ids.len().saturating_sub(TAIL)..].to_vec();
        let omitted = total.checked_sub(ids.len() as u64)?;
        Some(Slot {
            before: slot.before.clone(),
            after: part.to_owned(),
            omitted,
            lead: slot.lead.clone(),
            tail,
        })
    }

    /// The ids of a text without special tokens. None where the tokenizer rejects it.
    pub fn ids(&self, text: &str) -> Option<Vec<u32>> {
        self.inner
            .encode_fast(text, false)
            .ok()
            .map(|encoding| encoding.get_ids().to_vec())
    }

    /// The place after `head`, which has these `ids`; the last ones may change.
    pub(super) fn after_tokens(&self, slot: &Slot, head: &str, ids: &[u32]) -> Slot {
        let (start, kept) = self.window(head, ids);
        let left_out = ids.len() - kept;
        Slot {
            before: head[start..].to_owned(),
            after: slot.after.clone(),
            omitted: slot.omitted + left_out as u64,
            lead: ids[left_out..left_out + kept / 2].to_vec(),
            tail: slot.tail.clone(),
        }
    }

    /// Where the part of `head` begins that is enough to tokenize again, and how many of its `ids` that part has.
    fn window(&self, head: &str, ids: &[u32]) -> (usize, usize) {
        let near = head.floor_char_boundary(head.len().saturating_sub(NEAR));
        let blanks = head[near..]
            .match_indices(' ')
            .take(STARTS)
            .map(|(at, _)| near + at);
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
    use serde_json::Value;

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
        assert_eq!(
            (slot.before.as_str(), slot.after.as_str()),
            ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
        );
        assert_eq!(
            tokenizer.measure(&slot, "the sky"),
            tokenizer.count_messages(&messages("the sky"))
        );
        let twice = tokenizer
            .slot(&[messages(MARK), messages(MARK)].concat())
            .unwrap_err();
        assert!(matches!(twice, TokenError::Refused { .. }), "{twice}");
    }

    #[test]
    fn the_tokens_of_a_prefix_stay_what_they_are_and_the_part_nearby_counts_for_the_whole() {
        for chat in &CHATS {
            for (kind, _) in ALL.iter() {
                let tokenizer = chat.over(kind);
                let slot = tokenizer.slot(&messages(MARK)).unwrap();
                let bare = Slot {
                    before: slot.before.clone(),
                    ..Slot::default()
                };
                let prefix = tokenizer
                    .random_text(
                        tokenizer.count_without_text(&bare) + 500,
                        &bare,
                        &mut rng(1),
                    )
                    .unwrap();
                let lead = tokenizer
                    .ids(&[&slot.before, prefix.as_str()].concat())
                    .unwrap();
                let behind = tokenizer.behind(&slot, &prefix).unwrap();
                assert!(
                    behind.before.len() < 1000,
                    "{} {kind}: all of {} bytes are measured",
                    chat.name,
                    behind.before.len()
                );
                for seed in 0..10 {
                    let n = lead.len() as u64 + 60 + seed;
                    let text = format!(
                        "{prefix} {}",
                        tokenizer.random_text(n, &behind, &mut rng(seed)).unwrap()
                    );
                    let all = tokenizer
                        .ids(&tokenizer.chat(&messages(&text), None).unwrap())
                        .unwrap();
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
        let glued = Slot {
            before: "the sky is bl".into(),
            ..behind.clone()
        };
        assert_eq!(
            (
                tokenizer.measure(&glued, "ue"),
                tokenizer.measure(&glued, " day").is_some()
            ),
            (None, true)
        );
    }

    #[test]
    fn a_beginning_can_be_exchanged_without_looking_at_the_end() {
        for (kind, tokenizer) in ALL.iter() {
            let draw = |n, seed| {
                tokenizer
                    .random_text(n, &Slot::default(), &mut rng(seed))
                    .unwrap()
            };
            let (sample, rest) = (draw(20, 1), format!("\n{}", draw(900, 2)));
            let total = tokenizer.count(&[sample.as_str(), &rest].concat()).unwrap();
            let ahead = tokenizer
                .ahead(&Slot::default(), &sample, &rest, total)
                .unwrap();
            assert!(ahead.after.len() < rest.len() / 4, "{kind}");
            for seed in 3..13 {
                let other = tokenizer
                    .random_text(total, &ahead, &mut rng(seed))
                    .unwrap();
                assert_eq!(
                    tokenizer.count(&[other.as_str(), &rest].concat()),
                    Some(total),
                    "{kind}: {other}"
                );
            }
        }
    }
}
