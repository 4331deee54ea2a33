//! One writer at a time for a folder.
//!
//! The lock is the system's own (`flock`) on the folder itself: it needs no file, and it ends with the process that has it.

use super::error::StoreError;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Locks a folder until the result is dropped. None: the file system has no locks.
///
/// # Errors
/// Another process has the lock.
pub(super) fn lock(folder: &Path) -> Result<Option<File>, StoreError> {
    let Ok(file) = File::open(folder) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: folder.to_owned(), owner: owner(&file) }),
    }
}

/// Whether another process has the lock.
pub(super) fn is_locked(folder: &Path) -> bool {
    let tried = File::open(folder).map(|file| file.try_lock_shared());
    matches!(tried, Ok(Err(TryLockError::WouldBlock)))
}

/// ` (process N)` where Linux lists the lock; nothing elsewhere.
fn owner(file: &File) -> String {
    let Ok(inode) = file.metadata().map(|data| data.ino()) else { return String::new() };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    holder(&locks, inode).map_or_else(String::new, |process| format!(" (process {process})"))
}

/// The process with the lock on a file, in lines such as `1: FLOCK  ADVISORY  WRITE 4711 fd:01:2097 0 EOF`.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, process, file) = (words.next()?, words.nth(2)?, words.next()?);
        let own = file.rsplit(':').next()?.parse() == Ok(inode);
        if kind == "FLOCK" && own { process.parse().ok().filter(|process| *process > 0) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_by_its_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:01:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 fd:01:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fd:01:7 0 EOF\n3: FLOCK  ADVISORY  WRITE 14 fd:01:7 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fd:01:8 0 EOF\n";
        assert_eq!([7, 77, 8, 9].map(|inode| holder(locks, inode)), [Some(14), Some(12), None, None]);
    }

    #[test]
    fn a_folder_has_one_writer_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        assert!(first.is_some() && is_locked(dir.path()));
        let error = lock(dir.path()).unwrap_err().to_string();
        let own = format!(" (process {})", std::process::id());
        let rest = "is writing to this folder; wait until it ends, or name another folder";
        let expected = |owner: &str| format!("{} is in use: another llmscen{owner} {rest}", dir.path().display());
        assert!(error == expected(&own) || error == expected(""), "{error}");
        drop(first);
        assert!(!is_locked(dir.path()) && lock(dir.path()).unwrap().is_some());
    }
}
