//! Tokenizers: from the disk, or by a model's name from the hub.

use super::Progress;
use super::cache::{self, CacheDir};
use super::error::PromptError;
use super::fetch::{Problem, What};
use crate::token::Tokenizer;
use std::path::Path;

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
