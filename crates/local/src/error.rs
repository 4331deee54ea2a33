//! Errors of local models.

use llmscen_datasets::token::TokenError;
use std::path::PathBuf;
use thiserror::Error;

/// Why a local model cannot be loaded or computed.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The name is neither a folder, a GGUF file nor a random model.
    #[error(
        "model `{name}` not found; set `target.model` to a Hugging Face folder (config.json, \
         safetensors, tokenizer.json), its name on the hub (`org/name`), a .gguf file, or \
         `random:tiny`"
    )]
    NotThere {
        /// Name in the scenario.
        name: String,
    },
    /// The model cannot be downloaded.
    #[error("{reason}")]
    Download {
        /// Reason and action.
        reason: String,
    },
    /// An unknown random model.
    #[error("unknown random model `{name}`; use `random:tiny`")]
    Random {
        /// Name in the scenario.
        name: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file is invalid.
    #[error("invalid file {path}: {reason}")]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Reason and action.
        reason: String,
    },
    /// The architecture is not supported.
    #[error(
        "{path}: unsupported architecture `{architecture}`; supported are llama, mistral, qwen2 and qwen3"
    )]
    Architecture {
        /// Path of the file.
        path: PathBuf,
        /// Name in the file.
        architecture: String,
    },
    /// A key of the configuration is missing or has an unsupported value.
    #[error("{path}: `{key}` {reason}")]
    Key {
        /// Path of the file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Problem with the value.
        reason: String,
    },
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenError),
    /// The device is not available.
    #[error("device {device} is not available: {reason}")]
    Device {
        /// Name of the device.
        device: String,
        /// Reason and action.
        reason: String,
    },
    /// An invalid row of a batch.
    #[error("row {row} of the batch is invalid: {reason}")]
    Ask {
        /// Index in the batch, from 0.
        row: usize,
        /// Reason.
        reason: String,
    },
    /// The library or the device failed.
    #[error("the model failed: {reason}")]
    Compute {
        /// Error of the library.
        reason: String,
    },
}
