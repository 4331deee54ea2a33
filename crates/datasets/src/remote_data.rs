//! Datasets that are downloaded: files of the hub, and single files by their URL. A URL is downloaded once; the plan
//! has the SHA-256.

use super::Progress;
use super::cache::{self, CacheDir, CachedFile};
use super::fetch::{FetchError, Purpose, hex};
use super::hub_data::Repository;
use crate::remote_files::{RemoteFiles, digest_of};
use llmscen_core::remote_data::{DataPin, PinError, RemoteData, RemoteReference};
use reqwest::Url;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// Looks up the exact files of a reference.
///
/// # Errors
/// The server cannot be reached, or the reference does not name data.
pub fn pin(reference: &RemoteReference, cache: &CacheDir) -> Result<DataPin, PinError> {
    match reference {
        RemoteReference::Hub(reference) => Repository { reference, cache }.pin(),
        RemoteReference::Url(url) => UrlFile::new(url, cache).pin(),
    }
}

/// Downloads the files of a dataset that are not on this machine.
pub fn obtain(
    data: &RemoteData,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
) -> Result<RemoteFiles, FetchError> {
    let pin = data.pin.as_ref();
    match &data.reference {
        RemoteReference::Hub(reference) => Repository { reference, cache }.obtain(pin, progress),
        RemoteReference::Url(url) => UrlFile::new(url, cache).obtain(pin, progress),
    }
}

/// The file of a URL, and where it is on this machine.
struct UrlFile<'a> {
    url: &'a str,
    name: String,
    cache: &'a CacheDir,
}

impl UrlFile<'_> {
    fn new<'a>(url: &'a str, cache: &'a CacheDir) -> UrlFile<'a> {
        let parsed = Url::parse(url).ok();
        let last = parsed
            .as_ref()
            .and_then(|url| url.path_segments()?.next_back());
        UrlFile {
            url,
            name: last
                .filter(|name| !name.is_empty())
                .unwrap_or("data")
                .to_owned(),
            cache,
        }
    }

    /// In a folder of its own, because the last part of a URL, whose end shows the format, is not unique.
    fn path(&self) -> PathBuf {
        let folder = hex(&Sha256::digest(self.url))[..16].to_owned();
        self.cache
            .dir
            .join("datasets/url")
            .join(folder)
            .join(&self.name)
    }

    fn pin(&self) -> Result<DataPin, PinError> {
        self.obtain(None, &|_| ())
            .map_err(|error| PinError::Failed(error.to_string()))?;
        Ok(DataPin {
            commit: None,
            files: vec![(self.name.clone(), digest_of(&self.path())?)],
        })
    }

    fn obtain(
        &self,
        pin: Option<&DataPin>,
        progress: &dyn Fn(Progress),
    ) -> Result<RemoteFiles, FetchError> {
        let path = self.path();
        let urls = vec![self.url.to_owned()];
        let pinned = pin.and_then(|pin| pin.files.first());
        let file = CachedFile {
            pinned: pinned.map(|(_, digest)| digest.as_str()),
            ..CachedFile::new(&path, urls, Purpose::UrlData)
        };
        let note = match file.pinned {
            Some(_) => cache::obtain_pinned_file(&file, self.cache, progress)?.note,
            None => {
                cache::obtain_large_file(&file, self.cache, progress)?;
                None
            }
        };
        Ok(RemoteFiles {
            name: self.url.split(['?', '#']).next().unwrap_or(self.url).into(),
            paths: vec![path],
            notes: note.into_iter().collect(),
        })
    }
}
