//! The Hugging Face hub: how it is reached, and the local cache of what other programs have downloaded.

use crate::bounds;
use crate::redact::Secret;
use crate::remote_data::is_path;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// File name of a model's configuration.
pub const CONFIG: &str = "config.json";
/// File name of weights in a single file.
pub const SINGLE_WEIGHTS: &str = "model.safetensors";
/// File name of the index of weights in several files.
pub const WEIGHTS_INDEX: &str = "model.safetensors.index.json";

/// The default address of the hub.
pub const ENDPOINT: &str = "https://huggingface.co";

/// How the hub is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HuggingFace {
    /// Base address (`HF_ENDPOINT`), without a slash at its end.
    pub endpoint: String,
    /// Token for gated and private repositories, which is sent to the endpoint only: `HF_TOKEN`, or the content of
    /// `HF_TOKEN_PATH` or of `token` in `HF_HOME`.
    pub token: Option<Secret>,
    /// `HF_HUB_OFFLINE`: only files on this machine are used.
    pub offline: bool,
    /// The cache of other programs.
    pub cache: Option<PathBuf>,
}

impl HuggingFace {
    /// The settings of the environment.
    pub fn from_env(env: &BTreeMap<String, String>) -> HuggingFace {
        let set = |name: &str| {
            env.get(name)
                .map(|value| value.trim())
                .filter(|value| !value.is_empty())
        };
        let file = set("HF_TOKEN_PATH")
            .map(PathBuf::from)
            .or_else(|| Some(home_dir(env)?.join("token")));
        let stored = || {
            let text = bounds::read_text(&file?, bounds::TEXT).ok()?;
            Some(text.trim().to_owned()).filter(|token| !token.is_empty())
        };
        HuggingFace {
            endpoint: set("HF_ENDPOINT")
                .unwrap_or(ENDPOINT)
                .trim_end_matches('/')
                .to_owned(),
            token: set("HF_TOKEN")
                .or_else(|| set("HUGGING_FACE_HUB_TOKEN"))
                .map(str::to_owned)
                .or_else(stored)
                .map(Secret::new),
            offline: set("HF_HUB_OFFLINE").is_some_and(|value| {
                ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str())
            }),
            cache: cache_dir(env),
        }
    }
}

fn set_path(env: &BTreeMap<String, String>, name: &str) -> Option<PathBuf> {
    env.get(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// `HF_HOME`, default `~/.cache/huggingface`.
fn home_dir(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    set_path(env, "HF_HOME").or_else(|| {
        Some(
            set_path(env, "XDG_CACHE_HOME")
                .or_else(|| Some(set_path(env, "HOME")?.join(".cache")))?
                .join("huggingface"),
        )
    })
}

/// The cache folder: `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`, or `hub` in `HF_HOME` (default `~/.cache/huggingface`).
pub fn cache_dir(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    set_path(env, "HF_HUB_CACHE")
        .or_else(|| set_path(env, "HUGGINGFACE_HUB_CACHE"))
        .or_else(|| Some(home_dir(env)?.join("hub")))
}

/// The folder of a commit of the dataset `name` (`org/name`) in the cache. `revision`: a branch, tag or commit.
pub fn dataset_snapshot(cache: &Path, name: &str, revision: &str) -> Option<(String, PathBuf)> {
    if !is_path(revision) {
        return None;
    }
    let folder = cache.join(format!("datasets--{}", name.replace('/', "--")));
    let commit = bounds::read_text(&folder.join("refs").join(revision), bounds::TEXT)
        .map_or_else(|_| revision.to_owned(), |commit| commit.trim().to_owned());
    let snapshot = folder.join("snapshots").join(&commit);
    snapshot.is_dir().then_some((commit, snapshot))
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
    fn tokens_come_from_the_usual_places() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().display().to_string();
        let token = |pairs: &[(&str, &str)]| {
            HuggingFace::from_env(&env(pairs))
                .token
                .map(|token| token.expose().to_owned())
        };
        assert_eq!(token(&[("HF_HOME", &home)]), None);
        std::fs::write(dir.path().join("token"), "hf_file\n").unwrap();
        std::fs::write(dir.path().join("other"), "hf_other").unwrap();
        let other = format!("{home}/other");
        assert_eq!(token(&[("HF_HOME", &home)]).as_deref(), Some("hf_file"));
        let path = [("HF_HOME", home.as_str()), ("HF_TOKEN_PATH", &other)];
        assert_eq!(token(&path).as_deref(), Some("hf_other"));
        let variable = [("HF_TOKEN_PATH", other.as_str()), ("HF_TOKEN", " hf_env ")];
        assert_eq!(token(&variable).as_deref(), Some("hf_env"));
        let settings = HuggingFace::from_env(&env(&[
            ("HF_TOKEN", "hf_env"),
            ("HF_ENDPOINT", "http://mirror/"),
            ("HF_HUB_OFFLINE", "1"),
        ]));
        assert_eq!(
            (settings.endpoint.as_str(), settings.offline),
            ("http://mirror", true)
        );
        assert!(!format!("{settings:?}").contains("hf_env"));
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
