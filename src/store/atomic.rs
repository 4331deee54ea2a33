//! Atomic writes of files and links.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

/// Removes a file if it exists.
pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Writes a temporary file in the same folder, syncs it and renames it to `path`. Creates the folder.
pub fn replace(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = temporary_path(path);
    let written = File::create(&temporary).and_then(|file| {
        let mut out = BufWriter::new(file);
        fill(&mut out)?;
        out.into_inner()?.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// The same for a file that `make` creates by path. A file at `path` can be read meanwhile.
pub fn replace_by<E: From<io::Error>>(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let temporary = temporary_path(path);
    remove_if_exists(&temporary)?;
    let written = make(&temporary).and_then(|()| Ok(File::open(&temporary)?.sync_all()?));
    let done = written.and_then(|()| Ok(fs::rename(&temporary, path)?));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// Makes `link` a relative symlink to `target`, atomically.
pub fn point_link(link: &Path, target: &str) -> io::Result<()> {
    let temporary = temporary_path(link);
    remove_if_exists(&temporary)?;
    std::os::unix::fs::symlink(target, &temporary)?;
    fs::rename(&temporary, link)
}

/// Whether this is the name of a temporary file of [`replace`].
pub fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".part")
}

/// A temporary name in the same folder that no other process uses.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_link_moves_atomically() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("latest");
        for target in ["one", "two"] {
            point_link(&link, target).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("charts/a.png");
        replace(&path, |out| out.write_all(b"old")).unwrap();
        let failing = |out: &mut BufWriter<File>| {
            out.write_all(b"half")?;
            Err(io::Error::other("no more"))
        };
        assert_eq!(replace(&path, failing).unwrap_err().to_string(), "no more");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path().join("charts")).unwrap().count(), 1);
    }
}
