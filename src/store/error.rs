//! Errors of the run folder.

use std::path::PathBuf;

/// Why a run folder cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder contains another run.
    #[error(
        "{path} already contains a run; choose another folder, or pass --force to overwrite it"
    )]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// Another process writes to the folder.
    #[error(
        "{path} is in use: another llmscen{owner} is writing to this folder; wait until it ends, \
        or choose another folder"
    )]
    InUse {
        /// The folder.
        path: PathBuf,
        /// ` (process N)`, if known.
        owner: String,
    },
    /// A file has changed since it was written.
    #[error(
        "{path} is damaged: {why}; restore it from a copy, or delete {sums} to read the folder without checks"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How it differs.
        why: &'static str,
        /// The list of checksums.
        sums: PathBuf,
    },
    /// A file or folder cannot be written.
    #[error(
        "cannot write {path}: {source}; choose a writable folder with --output or `report.dir`"
    )]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The folder is not a run folder.
    #[error("{path} is not a run folder: {missing}; pass a folder such as reports/chat/latest")]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// What is missing.
        missing: String,
    },
    /// The manifest does not parse.
    #[error("{path} is not a manifest of this version of llmscen: {reason}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Error of the parser.
        reason: String,
    },
    /// The file is not a journal.
    #[error("{path} is not an llmscen journal")]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The journal was written by another version.
    #[error(
        "{path} is a journal of version {found}, this llmscen reads version {known}; use the llmscen that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The supported version.
        known: u32,
    },
    /// The spool of bodies is of another version.
    #[error(
        "{path} has no bodies that this llmscen can read: {reason}; move it away, or use the llmscen that wrote it"
    )]
    Spool {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A record cannot be encoded.
    #[error("a record cannot be written to the journal: {reason}")]
    Encode {
        /// Error of the encoder.
        reason: String,
    },
    /// The database cannot be written or read.
    #[error("{path}: {reason}")]
    Database {
        /// The file.
        path: PathBuf,
        /// Error of SQLite.
        reason: String,
    },
}
