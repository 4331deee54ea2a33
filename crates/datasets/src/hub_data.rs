//! Datasets of the Hugging Face hub by name: which files a reference means, and their download.
//!
//! A reference is looked up once, when the plan is made: the revision becomes a commit, and each file gets its
//! SHA-256. Later steps use this pin alone. The listing of a revision is stored in the cache, for the offline mode.

mod glob;
mod splits;

use super::Progress;
use super::cache::{self, CacheDir, CachedFile};
use super::fetch::{Download, FetchError, Problem, Purpose, Received, Sink};
use super::remote_files::{RemoteFiles, digest_of};
use llmscen_core::bounds;
use llmscen_core::model_hub::dataset_snapshot;
use llmscen_core::remote_data::{DataPin, HubReference, PREFIX, PinError, is_path};
use llmscen_core::url_secrets::redact_url;
use reqwest::Url;
use serde_json::Value;
use splits::Config;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// More numbered parts than a split has.
const MAX_PARTS: u32 = 10_000;

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

/// A repository on the hub, and where its files are on this machine.
pub struct Repository<'a> {
    pub reference: &'a HubReference,
    pub cache: &'a CacheDir,
}

impl Repository<'_> {
    pub fn pin(&self) -> Result<DataPin, PinError> {
        let revision = &self.reference.revision;
        let listing = self.list(revision.as_deref().unwrap_or(MAIN))?;
        match self.select(&listing) {
            // Datasets that are produced by a script have no data files of their own.
            Err(PinError::NoData { available }) if revision.is_none() => {
                let Ok(converted) = self.list(CONVERTED) else {
                    return Err(PinError::NoData { available });
                };
                self.select(&converted)
            }
            found => found,
        }
    }

    fn select(&self, listing: &Listing) -> Result<DataPin, PinError> {
        let paths: Vec<&str> = listing
            .files
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        let selected = match &self.reference.file {
            Some(file) if paths.contains(&file.as_str()) => vec![file.clone()],
            Some(file) => {
                return Err(PinError::Unknown {
                    part: "file",
                    value: file.clone(),
                    available: splits::data_files(&paths),
                });
            }
            None => splits::select(self.reference, &listing.configs, &paths, listing.converted)?,
        };
        if let Some(missing) = missing_part(&selected) {
            return Err(PinError::Failed(format!(
                "the listing of `{}` lacks {missing}; download the whole split",
                self.reference.repo
            )));
        }
        let digest = |path: String| {
            let listed = listing.files.iter().find(|file| file.path == path);
            let digest = match listed.and_then(|file| file.sha256.clone()) {
                Some(digest) => digest,
                None => self.small_file_digest(&listing.commit, &path)?,
            };
            Ok((path, digest))
        };
        let files = selected.into_iter().map(digest);
        Ok(DataPin {
            commit: Some(listing.commit.clone()),
            files: files.collect::<Result<_, PinError>>()?,
        })
    }

    /// Downloads the files of a pin, or of the present state of the repository, that are not on this machine.
    pub fn obtain(
        &self,
        pin: Option<&DataPin>,
        progress: &dyn Fn(Progress),
    ) -> Result<RemoteFiles, FetchError> {
        let pin = match pin {
            Some(pin) => pin.clone(),
            None => self.pin().map_err(|error| FetchError {
                url: self.reference.to_string(),
                file: self.folder(),
                damaged: false,
                problem: Problem::Client(describe(&error)),
                purpose: Purpose::HubData,
            })?,
        };
        let commit = pin.commit.as_deref().unwrap_or_default();
        let mut files = RemoteFiles {
            name: PathBuf::from(format!("{PREFIX}{}", self.reference.repo)),
            paths: Vec::new(),
            notes: Vec::new(),
        };
        if let Some((first, _)) = pin.files.first() {
            files.name.push(first);
        }
        for (path, digest) in &pin.files {
            if let Some(found) = self
                .in_hugging_face_cache(commit, path)
                .filter(|found| cache::file_digest(found).is_ok_and(|found| found == *digest))
            {
                files.paths.push(found);
                continue;
            }
            let local = self.cached_path(commit, path);
            let urls = vec![self.file_url(commit, path)];
            let file = CachedFile {
                pinned: Some(digest),
                ..CachedFile::new(&local, urls, Purpose::HubData)
            };
            let cached = cache::obtain_pinned_file(&file, self.cache, progress)?;
            files.paths.push(cached.path);
            files.notes.extend(cached.note);
        }
        Ok(files)
    }

    /// The SHA-256 of a file for which the hub has none: it is small, so it is downloaded at once.
    fn small_file_digest(&self, commit: &str, path: &str) -> Result<String, PinError> {
        let path = match self.in_hugging_face_cache(commit, path) {
            Some(found) => found,
            None => {
                let local = self.cached_path(commit, path);
                let urls = vec![self.file_url(commit, path)];
                let file = CachedFile::new(&local, urls, Purpose::HubData);
                cache::obtain_large_file(&file, self.cache, &|_| ())
                    .map_err(|error| PinError::Failed(error.to_string()))?;
                local
            }
        };
        digest_of(&path)
    }

    /// The listing of a revision: from the hub, or from this machine in the offline mode.
    fn list(&self, revision: &str) -> Result<Listing, PinError> {
        let stored = self
            .folder()
            .join("revisions")
            .join(format!("{}.json", revision.replace('/', "--")));
        let converted = revision == CONVERTED;
        let offline = self.cache.hugging_face.offline;
        if offline || is_commit(revision) {
            let known = bounds::read(&stored, bounds::DATA).ok();
            if let Some(listing) = known.and_then(|bytes| parse_listing(&bytes, converted)) {
                return Ok(listing);
            }
        }
        if offline && let Some(listing) = self.list_snapshot(revision) {
            return Ok(listing);
        }
        let url = self.api_url(&["revision", revision]) + "?blobs=true";
        let bytes = match self.query(&url) {
            Ok(bytes) => bytes,
            Err(Problem::Status(404)) => return Err(self.missing_revision(revision)),
            Err(problem) => {
                return Err(PinError::Failed(format!(
                    "cannot read {}: {problem}",
                    redact_url(&url)
                )));
            }
        };
        let listing = parse_listing(&bytes, converted).ok_or_else(|| {
            PinError::Failed(format!(
                "{} did not answer with a list of files",
                redact_url(&url)
            ))
        })?;
        // A listing that cannot be stored is only missing in the offline mode.
        let _ = stored
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| cache::replace(&stored, &bytes));
        Ok(listing)
    }

    fn query(&self, url: &str) -> Result<Vec<u8>, Problem> {
        let mut answer = Answer(Vec::new());
        let download = Download {
            urls: &[url.to_owned()],
            hugging_face: &self.cache.hugging_face,
            pinned: None,
        };
        download
            .run(&mut answer, &|_| ())
            .map_err(|(_, problem)| problem)?;
        Ok(answer.0)
    }

    /// The error of a revision that the hub does not have: the names that exist, or else that the repository does not
    /// exist.
    fn missing_revision(&self, revision: &str) -> PinError {
        let names = |refs: &Value, kind: &str| -> Vec<String> {
            let list = refs.get(kind).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.get("name")?.as_str()?.to_owned()))
                .collect()
        };
        let refs = self.query(&self.api_url(&["refs"])).ok();
        match refs.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()) {
            Some(refs) => PinError::Unknown {
                part: "revision",
                value: revision.to_owned(),
                available: [names(&refs, "branches"), names(&refs, "tags")].concat(),
            },
            None => PinError::Failed(format!(
                "{} has no dataset `{}`",
                redact_url(&self.cache.hugging_face.endpoint),
                self.reference.repo
            )),
        }
    }

    /// The files of a revision that other programs have downloaded.
    fn list_snapshot(&self, revision: &str) -> Option<Listing> {
        let (commit, folder) = self.snapshot(revision)?;
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

    /// The commit and its folder in the cache of other programs.
    fn snapshot(&self, revision: &str) -> Option<(String, PathBuf)> {
        let folder = self.cache.hugging_face.cache.as_ref()?;
        dataset_snapshot(folder, &self.reference.repo, revision)
    }

    fn in_hugging_face_cache(&self, commit: &str, path: &str) -> Option<PathBuf> {
        let (_, folder) = self.snapshot(commit)?;
        Some(folder.join(path)).filter(|path| path.is_file())
    }

    fn folder(&self) -> PathBuf {
        self.cache
            .dir
            .join("datasets")
            .join(self.reference.repo.replace('/', "--"))
    }

    fn cached_path(&self, commit: &str, path: &str) -> PathBuf {
        self.folder().join(commit).join(path)
    }

    fn api_url(&self, segments: &[&str]) -> String {
        let repo = ["api", "datasets"]
            .into_iter()
            .chain(self.reference.repo.split('/'));
        self.join_url(repo.chain(segments.iter().copied()))
    }

    fn file_url(&self, commit: &str, path: &str) -> String {
        let repo = ["datasets"]
            .into_iter()
            .chain(self.reference.repo.split('/'));
        self.join_url(repo.chain(["resolve", commit]).chain(path.split('/')))
    }

    /// The address of a path of the hub, in which each segment is escaped. The download reports an invalid address of
    /// the hub.
    fn join_url<'s>(&self, segments: impl Iterator<Item = &'s str>) -> String {
        let endpoint = &self.cache.hugging_face.endpoint;
        let Ok(mut url) = Url::parse(endpoint) else {
            return endpoint.clone();
        };
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url.into()
    }
}

/// The first file that a split in numbered parts lacks, such as `test-00001-of-00002.parquet`: other programs may
/// have downloaded only some of them.
fn missing_part(paths: &[String]) -> Option<String> {
    paths.iter().find_map(|path| {
        let (head, tail) = path.rsplit_once("-of-")?;
        let (prefix, number) = head.rsplit_once('-')?;
        let digits = tail
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (total, suffix) = tail.split_at(digits);
        let width = number.len();
        number.parse::<u32>().ok()?;
        // The names may have been written by hand.
        let total: u32 = total.parse().ok().filter(|total| *total <= MAX_PARTS)?;
        let name = |part: u32| format!("{prefix}-{part:0width$}-of-{}{suffix}", &tail[..digits]);
        (0..total).map(name).find(|name| !paths.contains(name))
    })
}

/// Whether a revision is a commit, whose files never change.
fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
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

/// An answer of the hub about a repository, of at most [`bounds::CONFIG`] bytes.
struct Answer(Vec<u8>);

impl Write for Answer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.0.len() + bytes.len()) as u64 > bounds::CONFIG {
            let limit = bounds::CONFIG >> 20;
            return Err(io::Error::other(format!(
                "the answer has more than {limit} MiB"
            )));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Answer {
    fn resume(&mut self) -> io::Result<Received> {
        self.0.resume()
    }

    fn clear(&mut self) -> io::Result<()> {
        Sink::clear(&mut self.0)
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
    is_commit(&commit).then_some(Listing {
        commit,
        files,
        configs: match converted {
            true => Vec::new(),
            false => Config::list(value.pointer("/cardData/configs")),
        },
        converted,
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

#[cfg(test)]
mod tests;
