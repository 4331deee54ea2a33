//! What can go wrong with a run folder.

use std::path::PathBuf;

/// Why a run cannot be kept or read back.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder belongs to another run.
    #[error("{path} holds another run; name another folder (`run --force` overwrites it)")]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// Another process writes to the folder.
    #[error("{path} is in use: another llmscen{owner} is writing to this folder; wait until it ends, or name another folder")]
    InUse {
        /// The folder.
        path: PathBuf,
        /// ` (process N)`, where that is known.
        owner: String,
    },
    /// A file is not what it was when it was written.
    #[error("{path} is damaged: {why}; restore it from a copy, or delete {sums} to read the folder without checks")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How that is known.
        why: &'static str,
        /// The list of checksums.
        sums: PathBuf,
    },
    /// Something cannot be written.
    #[error("cannot write {path}: {source}; name a folder that can be written with --output or `report.dir`")]
    Write {
        /// File or folder.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// Something cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The folder is not that of a run.
    #[error("{path} is not the folder of a run: {missing}")]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// What it lacks.
        missing: String,
    },
    /// The manifest does not parse.
    #[error("{path} is not a manifest of this version of llmscen: {reason}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// The file is not a journal.
    #[error("{path} is not a journal of llmscen")]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The journal was written by another version.
    #[error("{path} is a journal of version {found}, this llmscen reads version {known}; use the llmscen that wrote it")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The one that is read.
        known: u32,
    },
    /// The bodies that wait for requests.db are not of this version.
    #[error("{path} holds no bodies that this llmscen reads: {reason}; move it away, or use the llmscen that wrote it")]
    Spool {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        reason: String,
    },
    /// A record cannot be encoded.
    #[error("a record cannot be written to the journal: {reason}")]
    Encode {
        /// What the encoder said.
        reason: String,
    },
    /// The database cannot be written or read.
    #[error("{path}: {reason}")]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
}
