//! Datasets for tests.

use super::{CacheDir, Opened, PromptError, open};
use llmscen_core::dataset::{DatasetSpec, Source, Turns};
use llmscen_core::prompt::Prompt;
use llmscen_core::seed::Seed;
use std::path::PathBuf;

/// A file of that name, and the folder that goes with it.
pub fn file(name: &str, bytes: impl AsRef<[u8]>) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (dir, path.display().to_string())
}

/// A dataset at a path.
pub fn spec(source: Source, path: &str) -> DatasetSpec {
    DatasetSpec { path: Some(path.to_owned()), ..DatasetSpec::of(source) }
}

/// The same as conversations.
pub fn talks(source: Source, path: &str) -> DatasetSpec {
    DatasetSpec { turns: Some(Turns::default()), ..spec(source, path) }
}

/// Opened without a hub.
pub fn opened(spec: &DatasetSpec) -> Result<Opened, PromptError> {
    open(spec, Seed(42), 0, &CacheDir { dir: PathBuf::from("unused"), hub: String::new() }, &|_| ())
}

/// The sessions of a dataset until it ends.
pub fn all(spec: &DatasetSpec) -> Vec<Vec<Prompt>> {
    let spec = DatasetSpec { on_exhausted: llmscen_core::dataset::OnExhausted::Stop, ..spec.clone() };
    let prompts = opened(&spec).unwrap().prompts;
    (0..).map_while(|seq| prompts.session(seq)).map(|session| session.turns).collect()
}

/// The texts of the first turns.
pub fn texts(spec: &DatasetSpec) -> Vec<String> {
    all(spec).into_iter().map(|turns| turns[0].text.clone()).collect()
}
