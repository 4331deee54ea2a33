//! The local Hugging Face cache: models that other programs have downloaded.

use crate::bounds;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// File name of a model's configuration.
pub const CONFIG: &str = "config.json";
/// File name of weights in a single file.
pub const SINGLE_WEIGHTS: &str = "model.safetensors";
/// File name of the index of weights in several files.
pub const WEIGHTS_INDEX: &str = "model.safetensors.index.json";

/// The cache folder: `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`, or `hub` in `HF_HOME` (default `~/.cache/huggingface`).
pub fn cache_dir(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let set = |name: &str| {
        env.get(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = || {
        set("HF_HOME").or_else(|| {
            Some(
                set("XDG_CACHE_HOME")
                    .or_else(|| Some(set("HOME")?.join(".cache")))?
                    .join("huggingface"),
            )
        })
    };
    set("HF_HUB_CACHE")
        .or_else(|| set("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| Some(home()?.join("hub")))
}

/// The folder of the model `name` (`org/name`) in the cache: branch `main`, if configuration and weights exist.
pub fn snapshot(cache: &Path, name: &str) -> Option<PathBuf> {
    let folder = cache.join(format!("models--{}", name.replace('/', "--")));
    let revision = bounds::read_text(&folder.join("refs/main"), bounds::TEXT).ok()?;
    let folder = folder.join("snapshots").join(revision.trim());
    let complete = folder.join(CONFIG).exists()
        && (folder.join(SINGLE_WEIGHTS).exists() || folder.join(WEIGHTS_INDEX).exists());
    complete.then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_cache_follows_the_environment() {
        let dir =
            |pairs: &[(&str, &str)]| cache_dir(&env(pairs)).map(|path| path.display().to_string());
        assert_eq!(
            dir(&[("HOME", "/h")]).as_deref(),
            Some("/h/.cache/huggingface/hub")
        );
        assert_eq!(
            dir(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).as_deref(),
            Some("/x/huggingface/hub")
        );
        assert_eq!(
            dir(&[("HOME", "/h"), ("HF_HOME", "/f")]).as_deref(),
            Some("/f/hub")
        );
        let both = [
            ("HF_HOME", "/f"),
            ("HUGGINGFACE_HUB_CACHE", "/c"),
            ("HF_HUB_CACHE", ""),
        ];
        assert_eq!(dir(&both).as_deref(), Some("/c"));
        assert_eq!(dir(&[]), None);
    }

    #[test]
    fn a_snapshot_is_that_of_main_with_its_weights() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("models--org--name");
        let snapshot_of = || snapshot(dir.path(), "org/name");
        std::fs::create_dir_all(model.join("refs")).unwrap();
        std::fs::create_dir_all(model.join("snapshots/abc")).unwrap();
        std::fs::write(model.join("refs/main"), "abc\n").unwrap();
        std::fs::write(model.join("snapshots/abc/config.json"), "{}").unwrap();
        assert_eq!(snapshot_of(), None, "the cache may hold only the tokenizer");
        std::fs::write(model.join("snapshots/abc/model.safetensors"), "").unwrap();
        assert_eq!(snapshot_of(), Some(model.join("snapshots/abc")));
        assert_eq!(snapshot(dir.path(), "org/other"), None);
    }
}
