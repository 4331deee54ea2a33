//! Tokenizers: from the disk, or by a model's name from the hub.

use super::Progress;
use super::cache::{self, CacheDir};
use super::error::PromptError;
use super::fetch::{FetchError, Problem, What};
use crate::token::Tokenizer;
use llmscen_core::bounds;
use llmscen_core::model_hub::{CONFIG, INDEX, WHOLE, cache_dir, snapshot};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The file that makes it a tokenizer. It is fetched last: where it lies in the cache, all there is lies beside it.
const TOKENIZER: &str = "tokenizer.json";
/// What not every model has.
const BESIDE: [&str; 2] = ["tokenizer_config.json", "chat_template.jinja"];

/// The tokenizer at a path, or of the model of that name on the hub.
pub fn tokenizer(
    name: &str,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
    notes: &mut Vec<String>,
) -> Result<Tokenizer, PromptError> {
    let path = Path::new(name);
    let Some((owner, model)) = named(name).filter(|_| !path.exists()) else { return Ok(Tokenizer::load(path)?) };
    let folder = cache.dir.join("tokenizers").join(format!("{owner}--{model}"));
    let known = folder.join(TOKENIZER).exists();
    for file in BESIDE.into_iter().chain([TOKENIZER]) {
        let path = folder.join(file);
        if known && !cache::recorded(&path) {
            continue;
        }
        match cache::keep_of(&path, homes(&cache.hub, owner, model, file), What::Tokenizer, progress) {
            Ok(cached) => notes.extend(cached.note),
            Err(error) if file != TOKENIZER && matches!(error.problem, Problem::Status(404)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Tokenizer::load(&folder)?)
}

/// What not every model's folder has.
const OPTIONAL: [&str; 3] = ["generation_config.json", "tokenizer_config.json", "chat_template.jinja"];

/// The folder of the model of that name on the hub: in the Hugging Face cache of `env`, or downloaded into `cache`. None where the
/// name is a path, or not a hub's.
pub fn model(
    name: &str,
    cache: &CacheDir,
    env: &BTreeMap<String, String>,
    progress: &dyn Fn(Progress),
) -> Result<Option<PathBuf>, PromptError> {
    let Some((owner, model)) = named(name).filter(|_| !Path::new(name).exists()) else { return Ok(None) };
    if let Some(folder) = cache_dir(env).and_then(|hugging_face| snapshot(&hugging_face, name)) {
        return Ok(Some(folder));
    }
    let folder = cache.dir.join("models").join(format!("{owner}--{model}"));
    // It is fetched last: where it is, all the others are.
    if folder.join(CONFIG).exists() && cache::recorded(&folder.join(CONFIG)) {
        return Ok(Some(folder));
    }
    let get = |file: &str| cache::keep_large(&folder.join(file), &homes(&cache.hub, owner, model, file), What::Model, progress);
    let absent = |error: &FetchError| matches!(error.problem, Problem::Status(404));
    get(TOKENIZER)?;
    match get(INDEX) {
        Ok(()) => shards(&folder.join(INDEX)).iter().try_for_each(|file| get(file))?,
        Err(error) if absent(&error) => get(WHOLE)?,
        Err(error) => return Err(error.into()),
    }
    for file in OPTIONAL {
        if let Err(error) = get(file)
            && !absent(&error)
        {
            return Err(error.into());
        }
    }
    get(CONFIG)?;
    Ok(Some(folder))
}

/// The files that an index names; never one outside its folder. A text that is not an index names none, and loading says so.
fn shards(index: &Path) -> BTreeSet<String> {
    let text = bounds::read_text(index, bounds::CONFIG).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let names = value.get("weight_map").and_then(Value::as_object).into_iter().flat_map(|map| map.values());
    let plain = |name: &&str| Path::new(name).file_name().is_some_and(|file| file == *name);
    names.filter_map(Value::as_str).filter(plain).map(str::to_owned).collect()
}

/// Owner and name, where it can be a model's on a hub.
fn named(name: &str) -> Option<(&str, &str)> {
    let (owner, model) = name.split_once('/')?;
    let word = |part: &str| {
        let letters = part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        letters && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    (word(owner) && word(model) && !model.ends_with(".json")).then_some((owner, model))
}

/// Where a hub has a model's file. The hub is known by the base address of its datasets; of a mirror that could be of
/// either kind, both places are tried.
fn homes(hub: &str, owner: &str, model: &str, file: &str) -> Vec<String> {
    let hub = hub.trim_end_matches('/');
    let base = hub.strip_suffix("/datasets").unwrap_or(hub);
    let modelscope = format!("{base}/models/{owner}/{model}/resolve/master/{file}");
    let hugging_face = format!("{base}/{owner}/{model}/resolve/main/{file}");
    match base {
        _ if base.contains("modelscope") => vec![modelscope],
        _ if base.contains("huggingface") => vec![hugging_face],
        _ => vec![hugging_face, modelscope],
    }
}

#[cfg(test)]
mod tests;
