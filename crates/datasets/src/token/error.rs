//! Errors of tokenizers.

use std::path::PathBuf;

/// Why a tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the tokenizer {path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The folder has no tokenizer.json.
    #[error(
        "{path} has no tokenizer.json; set it to the file itself, or to a model folder in the Hugging Face format (a \
         sentencepiece tokenizer.model alone is not enough)"
    )]
    NotThere {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The file is not a tokenizer.json, or not a tokenizer_config.json.
    #[error("{path} is not a {what}: {reason}")]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Expected file.
        what: &'static str,
        /// Error of the parser.
        reason: String,
    },
    /// The tokenizer in a GGUF file is not supported.
    #[error(
        "the tokenizer in {path} is not supported: {reason}; add the tokenizer.json of the model to its folder"
    )]
    Embedded {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The chat template is invalid.
    #[error("invalid chat template in {path}: {reason}")]
    Template {
        /// Path of the file.
        path: PathBuf,
        /// Error of the template engine.
        reason: String,
    },
    /// The chat template rejects these messages.
    #[error("the chat template rejects the messages: {reason}")]
    Refused {
        /// Error of the template.
        reason: String,
    },
    /// Some text cannot be tokenized.
    #[error(
        "the tokenizer {path} cannot tokenize every text ({reason}); its unknown token may be missing"
    )]
    Partial {
        /// Path of the file.
        path: PathBuf,
        /// Error of the tokenizer.
        reason: String,
    },
    /// No text of that length was found.
    #[error(
        "no text of exactly {wanted} tokens was found with this tokenizer; the nearest had {nearest}"
    )]
    NoFit {
        /// Requested tokens.
        wanted: u64,
        /// Tokens of the nearest text.
        nearest: u64,
    },
}
