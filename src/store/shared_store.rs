//! The store that all shards of a run share: a folder or a bucket.

use std::io;
use std::path::{Path, PathBuf};

/// The objects of one run. Keys are relative to the run, for example `hello/3`.
pub trait Objects: Send + Sync {
    /// Writes an object unless it exists.
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Creation, SharedStoreError>;
    /// Writes or replaces an object.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), SharedStoreError>;
    /// Reads an object; none if it does not exist.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SharedStoreError>;
    /// The full keys below `prefix/`, sorted.
    fn list(&self, prefix: &str) -> Result<Vec<String>, SharedStoreError>;
    /// Copies a local file of any size to the store.
    fn upload(&self, key: &str, file: &Path) -> Result<(), SharedStoreError>;
    /// Copies an object of any size to a local file, which appears when it is complete.
    fn download(&self, key: &str, file: &Path) -> Result<(), SharedStoreError>;
    /// Whether the store is a folder.
    fn is_folder(&self) -> bool;
    /// URL of the run in the store, for messages. It contains no credentials.
    fn url(&self) -> String;
}

/// What [`Objects::create`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    /// The object is new.
    Created,
    /// It existed, with this content. After a retried request this can be the content of the caller.
    Exists(Vec<u8>),
}

/// Why the shared store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SharedStoreError {
    /// The URL of the store is wrong.
    #[error(
        "`{url}` is no store: {reason}; pass file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
    )]
    Url {
        /// The URL, without credentials.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The key of the run is wrong.
    #[error("`{key}` is no run key: {reason}; pass a name such as nightly-17")]
    RunKey {
        /// The key, escaped.
        key: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The store cannot be opened with these settings.
    #[error("cannot open the store {url}: {reason}; {help}")]
    Open {
        /// URL of the store.
        url: String,
        /// Why.
        reason: String,
        /// What to do.
        help: &'static str,
    },
    /// An object cannot be written, read or listed.
    #[error("cannot {action} {object}: {reason}; {help}")]
    Access {
        /// `write`, `read` or `list`.
        action: &'static str,
        /// URL of the object.
        object: String,
        /// Why.
        reason: String,
        /// What to do.
        help: &'static str,
        /// Whether the same call may succeed later.
        transient: bool,
    },
    /// The local end of a copy cannot be read or written.
    #[error("cannot copy {path}: {source}; check that the file is readable and the disk not full")]
    LocalFile {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl SharedStoreError {
    /// Whether the same call may succeed later: the store did not respond, or could not do it now.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            SharedStoreError::Access {
                transient: true,
                ..
            }
        )
    }

}
