//! What can be wrong with a tokenizer.

use std::path::PathBuf;

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
    /// The file is not a tokenizer.json, or not a tokenizer_config.json.
    #[error("{path} is not a {what}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// What the parser said.
        reason: String,
    },
    /// A tokenizer inside a model file that is not built from there.
    #[error("the tokenizer inside {path} cannot be used: {reason}; put the model's tokenizer.json beside it")]
    Embedded {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The chat template is not one.
    #[error("the chat template in {path} cannot be used: {reason}")]
    Template {
        /// The file.
        path: PathBuf,
        /// What the template engine said.
        reason: String,
    },
    /// The chat template does not take these messages, as a server with it would not.
    #[error("the tokenizer's chat template refuses the messages: {reason}")]
    Refused {
        /// What the template said.
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
        /// Requested tokens.
        wanted: u64,
        /// Tokens of the nearest text.
        nearest: u64,
    },
}
