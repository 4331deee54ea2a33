//! Texts and ids, for a model that runs here.

use super::{TokenError, Tokenizer};
use std::path::Path;

/// What a decoder makes of a letter whose bytes are not all there.
const UNFINISHED: char = '\u{fffd}';

impl Tokenizer {
    /// The ids of a text, with the special tokens that a server puts around plain text where `special`. None where the
    /// tokenizer refuses it.
    pub fn encode(&self, text: &str, special: bool) -> Option<Vec<u32>> {
        self.inner.encode_fast(text, special).ok().map(|encoding| encoding.get_ids().to_vec())
    }

    /// The text of tokens, special ones left out. None where the tokenizer refuses them.
    pub fn decode(&self, ids: &[u32]) -> Option<String> {
        self.inner.decode(ids, true).ok()
    }

    /// Tokens that it knows.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// A tokenizer.json that lies in memory, with no chat template; `path` is what errors name.
    pub(super) fn parsed(path: &Path, bytes: &[u8]) -> Result<Tokenizer, TokenError> {
        let malformed = |reason| TokenError::Malformed { path: path.to_owned(), what: super::config::TOKENIZER, reason };
        let inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| malformed(error.to_string()))?;
        match inner.encode_fast(super::PROBE, false) {
            Ok(_) => Ok(Tokenizer::over(inner, false)),
            Err(error) => Err(TokenError::Partial { path: path.to_owned(), reason: error.to_string() }),
        }
    }
}

/// Text that grows by a token at a time. Only the last few tokens are decoded again: those since the end of a letter, behind
/// those before, for blanks between tokens hang on their neighbours.
#[derive(Clone, Debug, Default)]
pub struct Growing {
    ids: Vec<u32>,
    /// Where the tokens begin that are decoded again, and where those end whose text is told.
    from: usize,
    told: usize,
    text: String,
}

impl Growing {
    /// Adds a token; says how many bytes of whole letters it brought.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> usize {
        self.ids.push(id);
        let decoded = |ids: &[u32]| tokenizer.decode(ids).unwrap_or_default();
        let before = decoded(self.ids.get(self.from..self.told).unwrap_or_default());
        let after = decoded(self.ids.get(self.from..).unwrap_or_default());
        let Some(new) = after.strip_prefix(&before).filter(|new| !new.is_empty() && !new.ends_with(UNFINISHED)) else { return 0 };
        self.text.push_str(new);
        (self.from, self.told) = (self.told, self.ids.len());
        new.len()
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::super::trained::ALL;
    use super::*;

    #[test]
    fn text_that_grows_is_the_text_of_the_whole() {
        let text = "The cook's naïve 中文 menu 🙂, two  blanks and an end.";
        for (name, tokenizer) in ALL.iter() {
            let ids = tokenizer.encode(text, false).unwrap();
            let mut growing = Growing::default();
            let brought: usize = ids.iter().map(|id| growing.push(tokenizer, *id)).sum();
            assert_eq!(growing.text(), tokenizer.decode(&ids).unwrap(), "{name}");
            assert_eq!(brought, growing.text().len());
        }
    }

    #[test]
    fn half_a_letter_is_not_told() {
        let builtin = Tokenizer::builtin();
        let ids = builtin.encode("🙂", false).unwrap();
        assert!(ids.len() > 1);
        let mut growing = Growing::default();
        let brought: Vec<usize> = ids.iter().map(|id| growing.push(&builtin, *id)).collect();
        assert_eq!(brought.iter().rev().skip(1).sum::<usize>(), 0);
        assert_eq!((brought.last(), growing.text()), (Some(&4), "🙂"));
    }
}
