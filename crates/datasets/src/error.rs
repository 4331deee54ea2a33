//! Errors of datasets.

use super::fetch::FetchError;
use crate::token::TokenError;
use llmscen_parquet::ParquetError;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a dataset cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The file cannot be read.
    #[error("cannot read the dataset {path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The Parquet file is invalid.
    #[error("cannot read the dataset {path}: {source}")]
    Parquet {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        source: ParquetError,
    },
    /// The file cannot be unpacked.
    #[error(
        "cannot unpack the dataset {path} into a temporary file: {source}; set TMPDIR to another folder"
    )]
    Spool {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file is empty.
    #[error("the dataset {path} is empty")]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
    /// The format is not supported.
    #[error("the dataset {path} is {format}, which is not supported; convert it to {instead}")]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Format of the file.
        format: &'static str,
        /// A supported format.
        instead: &'static str,
    },
    /// The files of a split have different columns.
    #[error(
        "the first line of {path} differs from that of {first}; name one of the files in `dataset.path`"
    )]
    Header {
        /// Path of the file.
        path: PathBuf,
        /// The first file.
        first: PathBuf,
    },
    /// The command cannot be started.
    #[error(
        "cannot start the command of the dataset in {cwd}: {source} (`dataset.command: {command}`)"
    )]
    NoCommand {
        /// The command.
        command: String,
        /// Its folder.
        cwd: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The command failed.
    #[error("the command of the dataset failed with {how} (`dataset.command: {command}`){stderr}")]
    Command {
        /// The command.
        command: String,
        /// Exit status or signal.
        how: String,
        /// The end of its stderr, with a line break before each line.
        stderr: String,
    },
    /// The command printed no row in time.
    #[error(
        "the command of the dataset printed no row within {seconds} s; raise `dataset.timeout` \
        (`dataset.command: {command}`)"
    )]
    Silent {
        /// The command.
        command: String,
        /// Timeout.
        seconds: f64,
    },
    /// The file is not text.
    #[error(
        "the dataset {path} is not UTF-8: line {line}, byte {byte} of the file; convert it with `iconv -t utf-8`"
    )]
    Utf8 {
        /// Path of the file.
        path: PathBuf,
        /// Line of the first bad byte, from 1.
        line: usize,
        /// Its offset in the file (uncompressed), from 0.
        byte: usize,
    },
    /// A row is invalid.
    #[error("{path}:{line}: {problem}; expected {expected}")]
    Row {
        /// Path of the file.
        path: PathBuf,
        /// Line where the row begins, from 1.
        line: usize,
        /// Problem with the row.
        problem: String,
        /// Description of a valid row.
        expected: &'static str,
    },
    /// No row is usable.
    #[error("the dataset {path} has no usable row: {why}")]
    NoRows {
        /// Path of the file.
        path: PathBuf,
        /// Rows that were left out.
        dropped: u64,
        /// Reasons.
        why: String,
    },
    /// The sessions of a log do not match the settings.
    #[error("the log {path}: {why}")]
    Sessions {
        /// Path of the file.
        path: PathBuf,
        /// Reasons, and what to do.
        why: &'static str,
    },
    /// The dataset needs a path.
    #[error("a `{kind}` dataset needs a `path`")]
    NoPath {
        /// Kind of the dataset.
        kind: &'static str,
    },
    /// `path: builtin` for a kind without built-in data.
    #[error(
        "`{kind}` has no built-in data; `path: builtin` is for openqa, messages, sharegpt, \
        embeddings, rerank and trace"
    )]
    NoBuiltin {
        /// Kind of the dataset.
        kind: &'static str,
    },
    /// The only prompt is outside `prompt_tokens`.
    #[error("the prompt has {tokens} tokens, outside `prompt_tokens`")]
    Filtered {
        /// Its tokens.
        tokens: u64,
    },
    /// The prompt lengths are invalid.
    #[error("`tokens` of a {kind} dataset: {reason}")]
    Length {
        /// Kind of the dataset.
        kind: &'static str,
        /// Reason.
        reason: String,
    },
    /// The groups of a `prefix` dataset are invalid.
    #[error("`prefix`: {reason}")]
    Groups {
        /// Reason.
        reason: String,
    },
    /// The images, sounds or videos cannot be generated or read.
    #[error("`{kind}`: {reason}")]
    Media {
        /// Kind of the dataset.
        kind: &'static str,
        /// Reason.
        reason: String,
    },
    /// The system cannot start a thread.
    #[error("cannot start a thread to read the dataset: {0}")]
    Thread(std::io::Error),
    /// The reader thread panicked.
    #[error(
        "reading the dataset {path} stopped unexpectedly; the file may be damaged, or this is a bug in llmscen"
    )]
    Panicked {
        /// Path of the file.
        path: PathBuf,
    },
    /// An error of the reader thread.
    #[error(transparent)]
    Shared(Arc<PromptError>),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenError),
    /// The download failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}
