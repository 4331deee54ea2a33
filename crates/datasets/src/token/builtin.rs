//! The stand-in tokenizer: a byte-level BPE in the manner of GPT-2, embedded as its merges.
//!
//! `builtin.merges` holds one merge a line, best first, and nothing else is needed: the vocabulary is the 256 byte
//! letters in order, then the result of each merge. It was trained with tokenizers 0.23 (`BpeTrainer`, 8192 tokens,
//! no special ones) on the prose of the Rust documentation (MIT OR Apache-2.0) and on the glosses of WordNet 3.0
//! (WordNet 3.0 Copyright 2006 by Princeton University; its licence allows any use), lines outside Latin script left
//! out.

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

const MERGES: &str = include_str!("builtin.merges");

/// Builds the stand-in.
pub fn tokenizer() -> tokenizers::Tokenizer {
    let merges: Merges = MERGES.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.into(), b.into())).collect();
    let mut letters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    letters.sort_unstable();
    let tokens = letters.into_iter().map(String::from).chain(merges.iter().map(|(a, b)| format!("{a}{b}")));
    let vocab: Vocab = tokens.zip(0u32..).collect();
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::new(vocab, merges));
    let bytes = ByteLevel::new(false, true, true);
    tokenizer.with_pre_tokenizer(Some(bytes));
    tokenizer.with_decoder(Some(bytes));
    tokenizer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Tokenizer;

    #[test]
    fn it_has_8192_tokens_and_splits_as_it_was_trained_to() {
        let tokenizer = tokenizer();
        assert_eq!(tokenizer.get_vocab_size(true), 8192);
        let split = tokenizer.encode("What would you cook on a rainy evening?", false).unwrap();
        assert_eq!(split.get_tokens(), ["Wh", "at", "Ġwould", "Ġyou", "Ġcook", "Ġon", "Ġa", "Ġra", "iny", "Ġevening", "?"]);
    }

    #[test]
    fn any_text_counts_and_comes_back() {
        let tokenizer = Tokenizer::builtin();
        assert!(tokenizer.approximate());
        assert_eq!(tokenizer.count(""), Some(0));
        for text in ["naïve 中文 🙂\u{0}", " two  spaces\n\n", "don't"] {
            let ids = tokenizer.inner.encode_fast(text, false).unwrap();
            assert_eq!(tokenizer.inner.decode(ids.get_ids(), false).unwrap(), text);
        }
    }
}
