//! The files of downloaded data.

use super::cache;
use llmscen_core::remote_data::PinError;
use std::path::{Path, PathBuf};

/// The files of downloaded data.
pub struct RemoteFiles {
    /// Name of the first file, for errors.
    pub name: PathBuf,
    /// The files on this machine, in the order in which they are read.
    pub paths: Vec<PathBuf>,
    pub notes: Vec<String>,
}

/// The SHA-256 of a file on this machine.
pub fn digest_of(path: &Path) -> Result<String, PinError> {
    cache::file_digest(path)
        .map_err(|error| PinError::Failed(format!("cannot read {}: {error}", path.display())))
}
