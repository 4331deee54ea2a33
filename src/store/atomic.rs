//! Files and links that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

/// Removes a file; one that is not there is no error.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Writes a file beside its place and renames it there, once it is on the disk. Its folder is made.
pub fn replace(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = beside(path);
    let written = File::create(&part).and_then(|file| {
        let mut out = BufWriter::new(file);
        fill(&mut out)?;
        out.into_inner()?.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&part, path));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

/// The same for a file that `make` makes by its path. What lies at the place itself can be read meanwhile.
pub fn replace_by<E: From<io::Error>>(path: &Path, make: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
    let part = beside(path);
    remove_if_there(&part)?;
    let written = make(&part).and_then(|()| Ok(File::open(&part)?.sync_all()?));
    let done = written.and_then(|()| Ok(fs::rename(&part, path)?));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

/// Makes `link` a relative symlink to `target`, in one step.
pub fn point_link(link: &Path, target: &str) -> io::Result<()> {
    let part = beside(link);
    remove_if_there(&part)?;
    std::os::unix::fs::symlink(target, &part)?;
    fs::rename(&part, link)
}

/// Whether a file of this name is one that [`replace`] has not finished.
pub fn is_unfinished(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".part")
}

/// A name in the same folder that no other process takes.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_link_moves_in_one_step() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("latest");
        for target in ["one", "two"] {
            point_link(&link, target).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_write_that_fails_changes_nothing() {
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
