//! Datasets of the Hugging Face hub by name: which files a reference means, and their download.
//!
//! A reference is looked up once, when the plan is made: the revision becomes a commit, and each file gets its SHA-256. Later steps
//! use this pin alone. The listing of a revision is stored in the cache, for the offline mode.

mod glob;
mod splits;

use super::Progress;
use super::cache::{self, CacheDir, CachedFile};
use super::fetch::{Download, FetchError, Problem, Purpose};
use llmscen_core::bounds;
use llmscen_core::hub_data::{HubData, HubPin, HubReference, PREFIX, PinError, is_path};
use llmscen_core::model_hub::dataset_snapshot;
use reqwest::Url;
use serde_json::Value;
use splits::Config;
use std::path::{Path, PathBuf};

/// The branch that is used by default.
const MAIN: &str = "main";
/// The branch to which the hub converts datasets, as `SUBSET/SPLIT/FILE.parquet`.
const CONVERTED: &str = "refs/convert/parquet";

/// The files of one commit of a repository.
struct Listing {
    commit: String,
    files: Vec<ListedFile>,
    /// The subsets that the dataset card declares.
    configs: Vec<Config>,
    /// The files are those of [`CONVERTED`].
    converted: bool,
}

struct ListedFile {
    path: String,
    /// None: the hub does not have it, because the file is small.
    sha256: Option<String>,
}

/// The files of pinned data.
pub struct HubFiles {
    /// Name of the first file, for errors.
    pub name: PathBuf,
    /// The files on this machine, in the order in which they are read.
    pub paths: Vec<PathBuf>,
    pub notes: Vec<String>,
}

/// Looks up the commit and the files of a reference.
///
/// # Errors
/// The hub cannot be reached, or the reference does not name data.
pub fn pin(reference: &HubReference, cache: &CacheDir) -> Result<HubPin, PinError> {
    let listing = list(
        reference,
        reference.revision.as_deref().unwrap_or(MAIN),
        cache,
    )?;
    match select(reference, &listing, cache) {
        // Datasets that are produced by a script have no data files of their own.
        Err(PinError::NoData { available }) if reference.revision.is_none() => {
            let Ok(converted) = list(reference, CONVERTED, cache) else {
                return Err(PinError::NoData { available });
            };
            select(reference, &converted, cache)
        }
        found => found,
    }
}

fn select(
    reference: &HubReference,
    listing: &Listing,
    cache: &CacheDir,
) -> Result<HubPin, PinError> {
    let paths: Vec<&str> = listing
        .files
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    let selected = match &reference.file {
        Some(file) => paths
            .iter()
            .find(|path| *path == file)
            .map(|path| vec![(*path).to_owned()])
            .ok_or_else(|| PinError::Unknown {
                part: "file",
                value: file.clone(),
                available: splits::data_files(&paths),
            })?,
        None => splits::select(reference, &listing.configs, &paths, listing.converted)?,
    };
    let digest = |path: String| {
        let listed = listing.files.iter().find(|file| file.path == path);
        let digest = match listed.and_then(|file| file.sha256.clone()) {
            Some(digest) => digest,
            None => small_file_digest(reference, &listing.commit, &path, cache)?,
        };
        Ok((path, digest))
    };
    let files = selected.into_iter().map(digest);
    Ok(HubPin {
        commit: listing.commit.clone(),
        files: files.collect::<Result<_, PinError>>()?,
    })
}

/// Downloads the files of a dataset that are not on this machine.
pub fn obtain(
    data: &HubData,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
) -> Result<HubFiles, FetchError> {
    let reference = &data.reference;
    let pin = match &data.pin {
        Some(pin) => pin.clone(),
        None => pin(reference, cache).map_err(|error| FetchError {
            url: reference.to_string(),
            file: repository_folder(reference, cache),
            damaged: false,
            problem: Problem::Client(describe(&error)),
            purpose: Purpose::HubData,
        })?,
    };
    let mut files = HubFiles {
        name: PathBuf::from(format!("{PREFIX}{}", reference.repo)),
        paths: Vec::new(),
        notes: Vec::new(),
    };
    if let Some((first, _)) = pin.files.first() {
        files.name.push(first);
    }
    for (path, digest) in &pin.files {
        if let Some(found) = in_hugging_face_cache(reference, &pin.commit, path, cache)
            .filter(|found| cache::file_digest(found).is_ok_and(|found| found == *digest))
        {
            files.paths.push(found);
            continue;
        }
        let local = cached_path(reference, &pin.commit, path, cache);
        let file = CachedFile {
            pinned: Some(digest),
            ..CachedFile::new(
                &local,
                vec![file_url(reference, &pin.commit, path, cache)],
                Purpose::HubData,
            )
        };
        let cached = cache::obtain_pinned_file(&file, cache, progress)?;
        files.paths.push(cached.path);
        files.notes.extend(cached.note);
    }
    Ok(files)
}

/// An error without a place in a scenario.
fn describe(error: &PinError) -> String {
    let list = |values: &[String]| values.join(", ");
    match error {
        PinError::Unknown {
            part,
            value,
            available,
        } => format!("no {part} `{value}`; available: {}", list(available)),
        PinError::Ambiguous { part, available } => {
            format!("set `{part}` to one of: {}", list(available))
        }
        PinError::NoData { available } => {
            format!("no data files among: {}", list(available))
        }
        PinError::Failed(why) => why.clone(),
    }
}

/// The SHA-256 of a file for which the hub has none: it is small, so it is downloaded at once.
fn small_file_digest(
    reference: &HubReference,
    commit: &str,
    path: &str,
    cache: &CacheDir,
) -> Result<String, PinError> {
    let found = in_hugging_face_cache(reference, commit, path, cache);
    let path = match found {
        Some(found) => found,
        None => {
            let local = cached_path(reference, commit, path, cache);
            let urls = vec![file_url(reference, commit, path, cache)];
            let file = CachedFile::new(&local, urls, Purpose::HubData);
            cache::obtain_file(&file, cache, &|_| ())
                .map_err(|error| PinError::Failed(error.to_string()))?
                .path
        }
    };
    cache::file_digest(&path)
        .map_err(|error| PinError::Failed(format!("cannot read {}: {error}", path.display())))
}

/// The listing of a revision: from the hub, or from this machine in the offline mode.
fn list(reference: &HubReference, revision: &str, cache: &CacheDir) -> Result<Listing, PinError> {
    let stored = repository_folder(reference, cache)
        .join("revisions")
        .join(format!("{}.json", revision.replace('/', "--")));
    let converted = revision == CONVERTED;
    let parse = |bytes: &[u8]| parse_listing(bytes, converted);
    let is_commit = revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_commit || cache.hugging_face.offline {
        let known = bounds::read(&stored, bounds::DATA).ok();
        if let Some(listing) = known.and_then(|bytes| parse(&bytes)) {
            return Ok(listing);
        }
    }
    if cache.hugging_face.offline
        && let Some(listing) = list_snapshot(reference, revision, cache)
    {
        return Ok(listing);
    }
    let mut url = api_url(reference, &["revision", revision], cache);
    url.push_str("?blobs=true");
    let bytes = match query(&url, cache) {
        Ok(bytes) => bytes,
        Err((_, Problem::Status(404))) => return Err(missing_revision(reference, revision, cache)),
        Err((url, problem)) => return Err(failed(&url, &problem)),
    };
    let listing = parse(&bytes)
        .ok_or_else(|| PinError::Failed(format!("{url} did not answer with a list of files")))?;
    // A listing that cannot be stored is only missing in the offline mode.
    let _ = stored
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| cache::replace(&stored, &bytes));
    Ok(listing)
}

fn query(url: &str, cache: &CacheDir) -> Result<Vec<u8>, (String, Problem)> {
    let mut bytes = Vec::new();
    let download = Download {
        urls: &[url.to_owned()],
        hugging_face: &cache.hugging_face,
        pinned: None,
    };
    download.run(&mut bytes, &|_| ()).map(|_| bytes)
}

fn failed(url: &str, problem: &Problem) -> PinError {
    PinError::Failed(format!("cannot read {url}: {problem}"))
}

/// The error of a revision that the hub does not have: the names that exist, or else that the repository does not exist.
fn missing_revision(reference: &HubReference, revision: &str, cache: &CacheDir) -> PinError {
    let names = |refs: &Value, kind: &str| -> Vec<String> {
        let list = refs.get(kind).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.get("name")?.as_str()?.to_owned()))
            .collect()
    };
    let refs = query(&api_url(reference, &["refs"], cache), cache)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    match refs {
        Some(refs) => PinError::Unknown {
            part: "revision",
            value: revision.to_owned(),
            available: [names(&refs, "branches"), names(&refs, "tags")].concat(),
        },
        None => PinError::Failed(format!(
            "{} has no dataset `{}`",
            cache.hugging_face.endpoint, reference.repo
        )),
    }
}

fn parse_listing(bytes: &[u8], converted: bool) -> Option<Listing> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let file = |sibling: &Value| {
        let path = sibling.get("rfilename")?.as_str()?;
        // A path outside of the folder of the repository would be written there.
        is_path(path).then(|| ListedFile {
            path: path.to_owned(),
            sha256: sibling
                .pointer("/lfs/sha256")
                .and_then(Value::as_str)
                .map(str::to_lowercase),
        })
    };
    let commit = value.get("sha")?.as_str()?.to_owned();
    let siblings = value.get("siblings")?.as_array()?;
    let mut files: Vec<ListedFile> = siblings.iter().filter_map(file).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let is_commit = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then_some(Listing {
        commit,
        files,
        configs: match converted {
            true => Vec::new(),
            false => Config::list(value.pointer("/cardData/configs")),
        },
        converted,
    })
}

/// The files of a revision that other programs have downloaded.
fn list_snapshot(reference: &HubReference, revision: &str, cache: &CacheDir) -> Option<Listing> {
    let folder = cache.hugging_face.cache.as_ref()?;
    let (commit, folder) = dataset_snapshot(folder, &reference.repo, revision)?;
    let mut files = Vec::new();
    add_files(&folder, "", &mut files);
    files.sort();
    Some(Listing {
        commit,
        files: files
            .into_iter()
            .map(|path| ListedFile { path, sha256: None })
            .collect(),
        configs: Vec::new(),
        converted: revision == CONVERTED,
    })
}

fn add_files(folder: &Path, prefix: &str, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if path.is_dir() {
            add_files(&path, &format!("{name}/"), files);
        } else {
            files.push(name);
        }
    }
}

fn in_hugging_face_cache(
    reference: &HubReference,
    commit: &str,
    path: &str,
    cache: &CacheDir,
) -> Option<PathBuf> {
    let folder = cache.hugging_face.cache.as_ref()?;
    let (_, snapshot) = dataset_snapshot(folder, &reference.repo, commit)?;
    Some(snapshot.join(path)).filter(|path| path.is_file())
}

fn repository_folder(reference: &HubReference, cache: &CacheDir) -> PathBuf {
    cache
        .dir
        .join("datasets")
        .join(reference.repo.replace('/', "--"))
}

fn cached_path(reference: &HubReference, commit: &str, path: &str, cache: &CacheDir) -> PathBuf {
    repository_folder(reference, cache).join(commit).join(path)
}

fn api_url(reference: &HubReference, segments: &[&str], cache: &CacheDir) -> String {
    let repo = ["api", "datasets"]
        .into_iter()
        .chain(reference.repo.split('/'));
    join_url(
        &cache.hugging_face.endpoint,
        repo.chain(segments.iter().copied()),
    )
}

fn file_url(reference: &HubReference, commit: &str, path: &str, cache: &CacheDir) -> String {
    let repo = ["datasets"].into_iter().chain(reference.repo.split('/'));
    join_url(
        &cache.hugging_face.endpoint,
        repo.chain(["resolve", commit]).chain(path.split('/')),
    )
}

/// The address of a path, in which each segment is escaped. An invalid base is reported by the download.
fn join_url<'a>(base: &str, segments: impl Iterator<Item = &'a str>) -> String {
    let Ok(mut url) = Url::parse(base) else {
        return base.to_owned();
    };
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url.into()
}

#[cfg(test)]
mod tests;
