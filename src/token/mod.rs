//! Floor 1. Tokenizers: counting, and text of an exact length.
//!
//! This is the door to the `tokenizers` crate: nothing else imports it.

mod builtin;
mod fit;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Why a tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the tokenizer {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The folder holds no tokenizer.json.
    #[error(
        "{path} holds no tokenizer.json; name the file itself, or a model folder in the Hugging Face format (a \
         sentencepiece tokenizer.model alone is not enough)"
    )]
    NotThere {
        /// The folder.
        path: PathBuf,
    },
    /// The file is not a tokenizer.json.
    #[error("{path} is not a tokenizer.json: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// Some text cannot be tokenized, so that counts would have holes.
    #[error("the tokenizer {path} cannot tokenize every text ({reason}); does it lack its unknown token?")]
    Partial {
        /// The file.
        path: PathBuf,
        /// What the tokenizer said.
        reason: String,
    },
    /// No text of that length was found.
    #[error("no text of exactly {wanted} tokens was found with this tokenizer; the nearest had {nearest}")]
    NoFit {
        /// Tokens asked for.
        wanted: u64,
        /// Tokens of the nearest text.
        nearest: u64,
    },
}

/// A tokenizer, shared freely between threads.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    approximate: bool,
    /// What random text is drawn from; made on first use, for it walks the whole vocabulary.
    pool: OnceLock<fit::Pool>,
}

/// Scripts and symbols that a vocabulary without an unknown token or byte fallback trips over.
const PROBE: &str = "The quick brown fox. naïve 中文 \u{10400} \u{12000} 🙂";

impl Tokenizer {
    /// Reads a tokenizer.json, or the folder that holds one.
    ///
    /// # Errors
    /// Names the file and the reason: not there, unreadable, not a tokenizer.json, or unable to tokenize every text.
    pub fn load(path: &Path) -> Result<Tokenizer, TokenError> {
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        if path.is_dir() && !file.exists() {
            return Err(TokenError::NotThere { path: path.to_owned() });
        }
        let bytes = std::fs::read(&file).map_err(|source| TokenError::Read { path: file.clone(), source })?;
        let inner = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|error| TokenError::Malformed { path: file.clone(), reason: error.to_string() })?;
        let tokenizer = Tokenizer::over(inner, false);
        match tokenizer.inner.encode_fast(PROBE, false) {
            Ok(_) => Ok(tokenizer),
            Err(error) => Err(TokenError::Partial { path: file, reason: error.to_string() }),
        }
    }

    /// The stand-in that ships with the project: a byte-level BPE of 8192 tokens for English text. Its counts are
    /// approximate for any other model.
    pub fn builtin() -> Tokenizer {
        Tokenizer::over(builtin::tokenizer(), true)
    }

    fn over(mut inner: tokenizers::Tokenizer, approximate: bool) -> Tokenizer {
        // Many files carry the truncation and padding of a training run: counts would stop at 512, or never fall below.
        inner.with_padding(None);
        if inner.get_truncation().is_some() {
            // Clearing cannot fail; only a stride that does not fit a length can.
            let _ = inner.with_truncation(None);
        }
        Tokenizer { inner, approximate, pool: OnceLock::new() }
    }

    /// Tokens of `text`, special tokens not added. None where the tokenizer refuses the text, which [`Tokenizer::load`]
    /// makes unlikely by a probe.
    pub fn count(&self, text: &str) -> Option<u64> {
        self.inner.encode_fast(text, false).ok().map(|encoding| encoding.len() as u64)
    }

    /// Whether this is the stand-in and not the model's own tokenizer.
    pub fn approximate(&self) -> bool {
        self.approximate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(name: &str, json: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, json).unwrap();
        (dir, file)
    }

    fn word_level(unknown: &str, truncation: &str) -> String {
        format!(
            r#"{{"version":"1.0","truncation":{truncation},"padding":null,"added_tokens":[],"normalizer":null,
            "pre_tokenizer":{{"type":"Whitespace"}},"post_processor":null,"decoder":null,
            "model":{{"type":"WordLevel","vocab":{{"a":0,"b":1,"[UNK]":2}},"unk_token":"{unknown}"}}}}"#
        )
    }

    #[test]
    fn a_file_and_its_folder_are_the_same_tokenizer() {
        let (dir, file) = saved("tokenizer.json", &word_level("[UNK]", "null"));
        for path in [dir.path(), &file] {
            let tokenizer = Tokenizer::load(path).unwrap();
            assert_eq!(tokenizer.count("a b a zebra"), Some(4));
            assert!(!tokenizer.approximate());
        }
    }

    #[test]
    fn truncation_saved_in_the_file_does_not_cap_the_count() {
        let cut = r#"{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0}"#;
        let (_dir, file) = saved("tokenizer.json", &word_level("[UNK]", cut));
        assert_eq!(Tokenizer::load(&file).unwrap().count("a b a b a"), Some(5));
    }

    #[test]
    fn errors_name_the_file_and_the_reason() {
        let (dir, file) = saved("other.json", "{}");
        let text = |path: &Path| Tokenizer::load(path).unwrap_err().to_string();
        assert!(text(dir.path()).starts_with(&format!("{} holds no tokenizer.json", dir.path().display())));
        assert!(text(&file).starts_with(&format!("{} is not a tokenizer.json: ", file.display())));
        let gone = dir.path().join("gone.json");
        assert!(text(&gone).starts_with(&format!("cannot read the tokenizer {}: No such file", gone.display())));
    }

    #[test]
    fn a_vocabulary_with_holes_is_refused_at_load() {
        let (_dir, file) = saved("tokenizer.json", &word_level("[MISSING]", "null"));
        assert!(matches!(Tokenizer::load(&file), Err(TokenError::Partial { .. })));
    }
}
