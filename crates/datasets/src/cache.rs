//! The cache of downloaded files.
//!
//! Each file has a `<file>.sha256` in the format of `sha256sum`, written at the first download, when the digest is
//! compared with that of the hub where it sends one. Small files are checked at every use. A file that has changed is
//! downloaded again and must have the same digest, so a dataset stays the same as long as its digest file exists.

use super::Progress;
use super::fetch::{Download, FetchError, Problem, Purpose, Received, hex};
use llmscen_core::model_hub::HuggingFace;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The default hub.
pub const DEFAULT_HUB: &str = "https://www.modelscope.cn/datasets";

/// The folder of downloads, and the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheDir {
    /// The folder; created when first needed.
    pub dir: PathBuf,
    /// Base address of the hub's datasets: [`DEFAULT_HUB`], `https://huggingface.co/datasets`, or a mirror of either.
    pub hub: String,
    /// Address and token of the Hugging Face hub, and its cache.
    pub hugging_face: HuggingFace,
}

/// A file on a hub.
pub struct Remote {
    /// Its path in the cache.
    pub file: &'static str,
    /// Its paths under the base address of a hub, which differ between hubs. The first one that exists is used.
    pub hub_paths: &'static [&'static str],
}

/// A file from the cache.
#[derive(Debug)]
pub struct Cached {
    pub path: PathBuf,
    /// Note for the report.
    pub note: Option<String>,
}

/// Returns the file from the cache if it is intact, otherwise downloads it.
pub fn obtain(
    remote: &Remote,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
) -> Result<Cached, FetchError> {
    let urls = remote
        .hub_paths
        .iter()
        .map(|path| format!("{}/{path}", cache.hub.trim_end_matches('/')))
        .collect();
    let path = cache.dir.join(remote.file);
    obtain_file(
        &CachedFile::new(&path, urls, Purpose::Dataset),
        cache,
        progress,
    )
}

/// A file of the cache and its origin.
pub struct CachedFile<'a> {
    pub path: &'a Path,
    /// Its addresses; the first one that exists is used.
    pub urls: Vec<String>,
    pub purpose: Purpose,
    /// Its SHA-256 in the plan.
    pub pinned: Option<&'a str>,
}

impl<'a> CachedFile<'a> {
    pub fn new(path: &'a Path, urls: Vec<String>, purpose: Purpose) -> CachedFile<'a> {
        CachedFile {
            path,
            urls,
            purpose,
            pinned: None,
        }
    }

    fn download<'d>(&'d self, cache: &'d CacheDir) -> Download<'d> {
        Download {
            urls: &self.urls,
            hugging_face: &cache.hugging_face,
            pinned: self.pinned,
        }
    }

    fn error(&self, url: String, damaged: bool, problem: Problem) -> FetchError {
        FetchError {
            url,
            file: self.path.to_owned(),
            damaged,
            problem,
            purpose: self.purpose,
        }
    }
}

/// Returns the file from the cache if it is intact, otherwise downloads it.
pub fn obtain_file(
    file: &CachedFile<'_>,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
) -> Result<Cached, FetchError> {
    let path = file.path.to_owned();
    let known = recorded_digest(&path);
    let present = std::fs::read(&path).ok();
    let damaged = present.is_some() && known.is_some();
    if let (Some(bytes), Some(digest)) = (present, &known)
        && sha256(&bytes) == *digest
    {
        return Ok(Cached { path, note: None });
    }
    let urls = || file.urls.join(" or ");
    let mut bytes = Vec::new();
    let digest = file
        .download(cache)
        .run(&mut bytes, progress)
        .map_err(|(url, problem)| file.error(url, damaged, problem))?;
    if let Some(known) = known.filter(|known| *known != digest) {
        return Err(file.error(urls(), damaged, Problem::Changed { known, digest }));
    }
    store(&path, &bytes, &digest)
        .map_err(|error| file.error(urls(), damaged, Problem::Disk(error)))?;
    let note = damaged.then(|| damage_note(&path));
    Ok(Cached { path, note })
}

fn damage_note(path: &Path) -> String {
    format!(
        "{} was damaged and has been downloaded again",
        path.display()
    )
}

/// As [`obtain_file`] for a large file: it is streamed to disk and checked only then. What an interrupted download
/// left is used.
pub fn obtain_large_file(
    file: &CachedFile<'_>,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
) -> Result<(), FetchError> {
    let is_complete = || is_recorded(file.path) && file.path.exists();
    if is_complete() {
        return Ok(());
    }
    let disk_error = |error| file.error(file.urls.join(" or "), false, Problem::Disk(error));
    let folder = file.path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(disk_error)?;
    // Another process may download the same file. Without locks each process writes its own part.
    let lock = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
    if is_complete() {
        return Ok(());
    }
    let part = match lock {
        Ok(_) => append_suffix(file.path, ".part"),
        Err(_) => part_path(file.path),
    };
    let mut sink = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&part)
        .map_err(disk_error)?;
    let fetched = file
        .download(cache)
        .run(&mut sink, progress)
        .map_err(|(url, problem)| file.error(url, false, problem));
    let known = recorded_digest(file.path).filter(|_| file.pinned.is_none());
    let stored = fetched.and_then(|digest| match known.filter(|known| *known != digest) {
        Some(known) => Err(file.error(
            file.urls.join(" or "),
            false,
            Problem::Changed { known, digest },
        )),
        None => write_digest(file.path, &digest)
            .and_then(|()| std::fs::rename(&part, file.path))
            .map_err(disk_error),
    });
    let resumable = matches!(
        &stored,
        Err(error) if !matches!(
            error.problem,
            Problem::Digest { .. } | Problem::Pinned { .. } | Problem::Changed { .. } | Problem::Page
        )
    );
    let is_empty = || std::fs::metadata(&part).is_ok_and(|part| part.len() == 0);
    if stored.is_err() && (lock.is_err() || !resumable || is_empty()) {
        let _ = std::fs::remove_file(&part);
    }
    stored
}

/// As [`obtain_large_file`] for a file whose digest the plan has. The file in the cache is compared with it.
pub fn obtain_pinned_file(
    file: &CachedFile<'_>,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
) -> Result<Cached, FetchError> {
    let damaged = file.path.exists();
    let cached = |note| {
        Ok(Cached {
            path: file.path.to_owned(),
            note,
        })
    };
    if damaged {
        if file_digest(file.path).ok().as_deref() == file.pinned {
            return cached(None);
        }
        std::fs::remove_file(file.path)
            .map_err(|error| file.error(file.urls.join(" or "), true, Problem::Disk(error)))?;
    }
    obtain_large_file(file, cache, progress)?;
    cached(damaged.then(|| damage_note(file.path)))
}

/// The SHA-256 of a file.
pub fn file_digest(path: &Path) -> std::io::Result<String> {
    Ok(Received::read(&mut File::open(path)?)?.sha256())
}

/// Whether a file was downloaded to this path.
pub fn is_recorded(path: &Path) -> bool {
    recorded_digest(path).is_some()
}

fn append_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn digest_path(path: &Path) -> PathBuf {
    append_suffix(path, ".sha256")
}

fn recorded_digest(path: &Path) -> Option<String> {
    let line = std::fs::read_to_string(digest_path(path)).ok()?;
    line.split_whitespace().next().map(str::to_owned)
}

/// Writes both files atomically, the digest first, so a file without a digest is never trusted.
fn store(path: &Path, bytes: &[u8], digest: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    write_digest(path, digest)?;
    replace(path, bytes)
}

fn write_digest(path: &Path, digest: &str) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    replace(&digest_path(path), format!("{digest}  {name}\n").as_bytes())
}

fn part_path(path: &Path) -> PathBuf {
    append_suffix(path, &format!(".{}.part", std::process::id()))
}

/// Writes a file at once.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let part = part_path(path);
    let written = std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests;
