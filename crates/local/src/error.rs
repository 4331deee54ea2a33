//! Why a model in this process cannot be used.

use llmscen_datasets::token::TokenError;
use std::path::PathBuf;
use thiserror::Error;

/// Why a model cannot be loaded, or does not work on what it is asked.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The name is neither a folder, a GGUF file nor a random model.
    #[error(
        "the model `{name}` is not there: name a Hugging Face folder (config.json, safetensors, tokenizer.json), its name on the hub \
         (`org/name`), a .gguf file, or `random:tiny`"
    )]
    NotThere {
        /// What the scenario names.
        name: String,
    },
    /// A model of the hub that cannot be downloaded.
    #[error("{reason}")]
    Download {
        /// What failed, and what to do.
        reason: String,
    },
    /// A random model of a size that is not known.
    #[error("there is no random model `{name}`; `random:tiny` is known")]
    Random {
        /// What the scenario names.
        name: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// A file is not what its name says.
    #[error("{path} cannot be used: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where it helps what to do.
        reason: String,
    },
    /// A model of another family.
    #[error("{path}: the architecture `{architecture}` is not known; known are llama, mistral, qwen2 and qwen3")]
    Architecture {
        /// The file that says so.
        path: PathBuf,
        /// Its name there.
        architecture: String,
    },
    /// A key of the configuration that is missing or has a value that the engine does not compute with.
    #[error("{path}: `{key}` {reason}")]
    Key {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenError),
    /// The device cannot be had.
    #[error("the device {device} cannot be used: {reason}")]
    Device {
        /// Which.
        device: String,
        /// Why, and what to do.
        reason: String,
    },
    /// An ask that no model could work on.
    #[error("row {row} of the batch cannot be worked on: {reason}")]
    Ask {
        /// Its place in the batch, from 0.
        row: usize,
        /// Why.
        reason: String,
    },
    /// The library or the device failed.
    #[error("the model stopped while it computed: {reason}")]
    Compute {
        /// Its words.
        reason: String,
    },
}
