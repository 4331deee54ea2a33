//! Media files of a folder: images, sounds, videos.

use super::Setting;
use super::error::PromptError;
use llmscen_core::bounds;
use llmscen_core::dataset::Order;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};

/// A media file.
pub(super) struct MediaFile<T> {
    pub path: PathBuf,
    /// Media type, such as `image/png`.
    pub media: &'static str,
    /// What is known about its content.
    pub facts: T,
}

/// The media files of a folder, or one file.
pub(super) struct MediaFiles<T>(Vec<MediaFile<T>>);

/// How files of a kind are recognized.
pub(super) struct MediaKind<T> {
    /// Kind of the dataset.
    pub kind: &'static str,
    /// File extensions in lower case, and their media types.
    pub extensions: &'static [(&'static str, &'static str)],
    /// Reads what is to be known about a file; an error says why it is no such file.
    pub probe: fn(&Path) -> Result<T, String>,
}

impl<T> MediaKind<T> {
    pub fn error(&self, reason: String) -> PromptError {
        PromptError::Media {
            kind: self.kind,
            reason,
        }
    }

    fn media(&self, path: &Path) -> Option<&'static str> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        let mut known = self.extensions.iter();
        Some(known.find(|(known, _)| *known == extension)?.1)
    }
}

impl<T> MediaFiles<T> {
    /// The files at the path of the dataset by name, or shuffled, and why files with such a name are no such files.
    ///
    /// # Errors
    /// The folder cannot be read, or has no file with such a name.
    pub fn list(
        kind: &MediaKind<T>,
        setting: &Setting<'_>,
    ) -> Result<(MediaFiles<T>, Vec<String>), PromptError> {
        let path = setting.spec.path.as_deref().map(Path::new);
        let path = path.ok_or(PromptError::NoPath { kind: kind.kind })?;
        let failed = |source| PromptError::Read {
            path: path.to_owned(),
            source,
        };
        let mut paths = vec![path.to_owned()];
        if std::fs::metadata(path).map_err(failed)?.is_dir() {
            let entries = std::fs::read_dir(path).map_err(failed)?;
            let entries = entries.map(|entry| entry.map(|entry| entry.path()));
            paths = entries.collect::<Result<_, _>>().map_err(failed)?;
        }
        paths.sort();
        let (mut files, mut rejected) = (Vec::new(), Vec::new());
        for path in paths {
            let Some(media) = kind.media(&path) else {
                continue;
            };
            match (kind.probe)(&path) {
                Ok(facts) => files.push(MediaFile { path, media, facts }),
                Err(reason) => rejected.push(format!("{} {reason}", path.display())),
            }
        }
        if files.is_empty() && rejected.is_empty() {
            let names: Vec<&str> = kind.extensions.iter().map(|(name, _)| *name).collect();
            let reason = format!(
                "{} has no file with one of the extensions {}",
                path.display(),
                names.join(", ")
            );
            return Err(kind.error(reason));
        }
        if setting.spec.order == Order::Shuffle {
            files.shuffle(&mut ChaCha8Rng::seed_from_u64(
                setting.seed.child("order").0,
            ));
        }
        Ok((MediaFiles(files), rejected))
    }

    /// All files.
    pub fn all(&self) -> &[MediaFile<T>] {
        &self.0
    }

    /// Number of files.
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Reads a file by its number; after the last one they start again. A file that was deleted during the run is
    /// replaced by the next one.
    pub fn read(&self, number: u64) -> Option<(&MediaFile<T>, Vec<u8>)> {
        let count = self.len();
        let mut candidates = (0..count).filter_map(|later| {
            self.0
                .get((number.wrapping_add(later) % count.max(1)) as usize)
        });
        candidates.find_map(|file| Some((file, bounds::read(&file.path, bounds::MEDIA).ok()?)))
    }
}
