//! What can be wrong with a dataset.

use super::fetch::FetchError;
use crate::token::TokenError;
use llmscen_parquet::ParquetError;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a dataset cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The file cannot be read.
    #[error("cannot read the dataset {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The file cannot be read as the table that it begins as.
    #[error("cannot read the dataset {path}: {source}")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ParquetError,
    },
    /// The file cannot be unpacked.
    #[error("cannot unpack the dataset {path} into a temporary file: {source}; TMPDIR names another folder for it")]
    Spool {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The file holds nothing.
    #[error("the dataset {path} is empty")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is in a format that is not read.
    #[error("the dataset {path} is {format}, which is not read; convert it to {instead}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What it is.
        format: &'static str,
        /// What to convert it to.
        instead: &'static str,
    },
    /// The command cannot be started.
    #[error("cannot start the command of the dataset in {cwd}: {source} (`dataset.command: {command}`)")]
    NoCommand {
        /// The command.
        command: String,
        /// Its folder.
        cwd: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// The command failed.
    #[error("the command of the dataset failed with {how} (`dataset.command: {command}`){stderr}")]
    Command {
        /// The command.
        command: String,
        /// How it ended.
        how: String,
        /// The end of its stderr, each line on a line of its own.
        stderr: String,
    },
    /// The command prints no row.
    #[error(
        "the command of the dataset printed no row within {seconds} s; raise `dataset.timeout` (`dataset.command: {command}`)"
    )]
    Silent {
        /// The command.
        command: String,
        /// How long it had.
        seconds: f64,
    },
    /// The file is not text.
    #[error("the dataset {path} is not UTF-8: line {line}, byte {byte} of the file; convert it with `iconv -t utf-8`")]
    Utf8 {
        /// The file.
        path: PathBuf,
        /// Line of the first bad byte, from 1.
        line: usize,
        /// Its offset in the file (uncompressed), from 0.
        byte: usize,
    },
    /// A row has the wrong shape.
    #[error("{path}:{line}: {problem}; expected {expected}")]
    Row {
        /// The file.
        path: PathBuf,
        /// Line where the row begins, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
        /// What was expected.
        expected: &'static str,
    },
    /// Nothing is left to send.
    #[error("the dataset {path} has no usable row: {why}")]
    NoRows {
        /// The file.
        path: PathBuf,
        /// Rows that were left out.
        dropped: u64,
        /// Why they were.
        why: String,
    },
    /// The kind reads a file, and none is named.
    #[error("a `{kind}` dataset needs a `path`")]
    NoPath {
        /// The kind.
        kind: &'static str,
    },
    /// `path: builtin` for a kind that ships without data.
    #[error(
        "no `{kind}` data ships with this tool; `path: builtin` is for openqa, messages, sharegpt, embeddings, rerank and trace"
    )]
    NoBuiltin {
        /// The kind.
        kind: &'static str,
    },
    /// The one prompt does not fit the filter.
    #[error("the prompt has {tokens} tokens, outside `prompt_tokens`")]
    Filtered {
        /// Its tokens.
        tokens: u64,
    },
    /// A prompt length that cannot be drawn.
    #[error("`tokens` of a {kind} dataset: {reason}")]
    Length {
        /// The kind.
        kind: &'static str,
        /// Why not.
        reason: String,
    },
    /// Groups of prompts that cannot be made.
    #[error("`prefix`: {reason}")]
    Groups {
        /// Why not.
        reason: String,
    },
    /// Pictures that cannot be made or read.
    #[error("`images`: {reason}")]
    Images {
        /// Why not.
        reason: String,
    },
    /// The system gives no thread to read with.
    #[error("cannot start a thread that reads the dataset: {0}")]
    Thread(std::io::Error),
    /// A thread ended by a defect of this program or of a library that reads the file.
    #[error("reading the dataset {path} ended unexpectedly; the file may be damaged, or this is a defect of llmscen")]
    Panicked {
        /// The file.
        path: PathBuf,
    },
    /// What was found while the rows were read ahead.
    #[error(transparent)]
    Shared(Arc<PromptError>),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenError),
    /// The download failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}
