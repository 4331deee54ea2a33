//! Tokenizers and models from a path, or downloaded by the name of the model.

use super::Progress;
use super::cache::{self, CacheDir, CachedFile};
use super::error::PromptError;
use super::fetch::{FetchError, Problem, Purpose};
use crate::token::Tokenizer;
use llmscen_core::bounds;
use llmscen_core::model_hub::{CONFIG, SINGLE_WEIGHTS, WEIGHTS_INDEX, cache_dir, snapshot};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Downloaded last: if it is in the cache, all other files are there too.
const TOKENIZER: &str = "tokenizer.json";
/// Files of a tokenizer that not every model has.
const TOKENIZER_OPTIONAL: [&str; 2] = ["tokenizer_config.json", "chat_template.jinja"];

/// Opens the tokenizer at a path, or of a model on the hub.
pub fn tokenizer(
    name: &str,
    cache: &CacheDir,
    progress: &dyn Fn(Progress),
    notes: &mut Vec<String>,
) -> Result<Tokenizer, PromptError> {
    let path = Path::new(name);
    let Some((owner, model)) = parse_model_name(name).filter(|_| !path.exists()) else {
        return Ok(Tokenizer::load(path)?);
    };
    let folder = cache
        .dir
        .join("tokenizers")
        .join(format!("{owner}--{model}"));
    let complete = folder.join(TOKENIZER).exists();
    for file in TOKENIZER_OPTIONAL.into_iter().chain([TOKENIZER]) {
        let path = folder.join(file);
        if complete && !cache::is_recorded(&path) {
            continue;
        }
        let urls = file_urls(&cache.hub, owner, model, file);
        let cached = CachedFile::new(&path, urls, Purpose::Tokenizer);
        match cache::obtain_file(&cached, cache, progress) {
            Ok(cached) => notes.extend(cached.note),
            Err(error) if file != TOKENIZER && matches!(error.problem, Problem::Status(404)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Tokenizer::load(&folder)?)
}

/// Files of a model that not every model has.
const MODEL_OPTIONAL: [&str; 3] = [
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];

/// The folder of a model on the hub: in the Hugging Face cache of `env`, or downloaded into `cache`. None where the
/// name is a path, or cannot be a model on a hub.
pub fn model(
    name: &str,
    cache: &CacheDir,
    env: &BTreeMap<String, String>,
    progress: &dyn Fn(Progress),
) -> Result<Option<PathBuf>, PromptError> {
    let Some((owner, model)) = parse_model_name(name).filter(|_| !Path::new(name).exists()) else {
        return Ok(None);
    };
    if let Some(folder) = cache_dir(env).and_then(|hugging_face| snapshot(&hugging_face, name)) {
        return Ok(Some(folder));
    }
    let folder = cache.dir.join("models").join(format!("{owner}--{model}"));
    // Downloaded last: if it is there, all other files are.
    if folder.join(CONFIG).exists() && cache::is_recorded(&folder.join(CONFIG)) {
        return Ok(Some(folder));
    }
    let get = |file: &str| {
        let path = folder.join(file);
        let urls = file_urls(&cache.hub, owner, model, file);
        cache::obtain_large_file(
            &CachedFile::new(&path, urls, Purpose::Model),
            cache,
            progress,
        )
    };
    let is_missing = |error: &FetchError| matches!(error.problem, Problem::Status(404));
    get(TOKENIZER)?;
    match get(WEIGHTS_INDEX) {
        Ok(()) => shard_files(&folder.join(WEIGHTS_INDEX))
            .iter()
            .try_for_each(|file| get(file))?,
        Err(error) if is_missing(&error) => get(SINGLE_WEIGHTS)?,
        Err(error) => return Err(error.into()),
    }
    for file in MODEL_OPTIONAL {
        if let Err(error) = get(file)
            && !is_missing(&error)
        {
            return Err(error.into());
        }
    }
    get(CONFIG)?;
    Ok(Some(folder))
}

/// The files that an index lists, only inside its folder. An invalid index lists none; loading the model reports it.
fn shard_files(index: &Path) -> BTreeSet<String> {
    let text = bounds::read_text(index, bounds::CONFIG).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let names = value
        .get("weight_map")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|map| map.values());
    let is_file_name = |name: &&str| {
        Path::new(name)
            .file_name()
            .is_some_and(|file| file == *name)
    };
    names
        .filter_map(Value::as_str)
        .filter(is_file_name)
        .map(str::to_owned)
        .collect()
}

/// Owner and name, if it can be a model on a hub.
fn parse_model_name(name: &str) -> Option<(&str, &str)> {
    let (owner, model) = name.split_once('/')?;
    let word = |part: &str| {
        let letters = part
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        letters && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    (word(owner) && word(model) && !model.ends_with(".json")).then_some((owner, model))
}

/// The addresses of a file of a model. The hub is given by the base address of its datasets; for a mirror of an
/// unknown hub, the addresses of both hubs are tried.
fn file_urls(hub: &str, owner: &str, model: &str, file: &str) -> Vec<String> {
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
mod tests {
    use super::*;
    use crate::open;
    use crate::testing::{hub, reply};
    use crate::token::trained::CHATML;
    use llmscen_core::dataset::{DatasetSpec, Source};
    use llmscen_core::seed::Seed;
    use std::net::TcpListener;

    fn cache(hub: &str) -> (tempfile::TempDir, CacheDir) {
        let dir = tempfile::tempdir().unwrap();
        let cache = CacheDir {
            dir: dir.path().join("cache"),
            hub: hub.to_owned(),
            ..CacheDir::default()
        };
        (dir, cache)
    }

    fn files() -> (String, String) {
        let folder = CHATML.folder("byte-level");
        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        (read("tokenizer.json"), read("tokenizer_config.json"))
    }

    #[test]
    fn the_tokenizer_of_a_model_is_downloaded_once_with_its_template() {
        let (tokens, config) = files();
        let (address, asked) = hub(move |path| match path {
            "/org/model-1.5/resolve/main/tokenizer.json" => reply("200 OK", "", &tokens),
            "/models/org/model-1.5/resolve/master/tokenizer_config.json" => {
                reply("200 OK", "", &config)
            }
            _ => reply("404 Not Found", "", ""),
        });
        let (_dir, cache) = cache(&address);
        let spec = DatasetSpec {
            tokenizer: Some("org/model-1.5".into()),
            ..DatasetSpec::new(Source::Prompt("Why?".into()))
        };
        let opened = open(&spec, Seed(1), 0, &cache, &|_| ()).unwrap();
        let tokenizer = opened.tokenizer.unwrap();
        assert!(tokenizer.chat_template().is_some() && !tokenizer.approximate());
        let first = asked.lock().unwrap().len();
        assert_eq!(
            *asked.lock().unwrap(),
            [
                "/org/model-1.5/resolve/main/tokenizer_config.json",
                "/models/org/model-1.5/resolve/master/tokenizer_config.json",
                "/org/model-1.5/resolve/main/chat_template.jinja",
                "/models/org/model-1.5/resolve/master/chat_template.jinja",
                "/org/model-1.5/resolve/main/tokenizer.json",
            ]
        );
        assert!(open(&spec, Seed(1), 0, &cache, &|_| ()).is_ok());
        assert_eq!(
            asked.lock().unwrap().len(),
            first,
            "the second time nothing is requested"
        );
        assert!(
            cache
                .dir
                .join("tokenizers/org--model-1.5/tokenizer.json.sha256")
                .exists()
        );
    }

    #[test]
    fn a_damaged_template_is_fetched_again() {
        let (tokens, config) = files();
        let (address, _) = hub(move |path| match path.rsplit('/').next().unwrap() {
            "tokenizer.json" => reply("200 OK", "", &tokens),
            "tokenizer_config.json" => reply("200 OK", "", &config),
            _ => reply("404 Not Found", "", ""),
        });
        let (_dir, cache) = cache(&address);
        let mut notes = Vec::new();
        tokenizer("org/model", &cache, &|_| (), &mut notes).unwrap();
        let config = cache
            .dir
            .join("tokenizers/org--model/tokenizer_config.json");
        std::fs::write(&config, "damaged").unwrap();
        assert!(
            tokenizer("org/model", &cache, &|_| (), &mut notes)
                .unwrap()
                .chat_template()
                .is_some()
        );
        assert_eq!(
            notes,
            [format!(
                "{} was damaged and has been downloaded again",
                config.display()
            )]
        );
    }

    #[test]
    fn failures_name_the_address_the_file_and_the_reason() {
        let (address, _) = hub(|_| reply("401 Unauthorized", "", ""));
        let (_dir, cache) = cache(&address);
        let error = |name: &str, cache: &CacheDir| {
            tokenizer(name, cache, &|_| (), &mut Vec::new())
                .unwrap_err()
                .to_string()
        };
        let gated = error("org/gated", &cache);
        let base = address.trim_end_matches("/datasets/");
        let file = cache
            .dir
            .join("tokenizers/org--gated/tokenizer_config.json");
        let start = format!(
            "cannot download {base}/org/gated/resolve/main/tokenizer_config.json to {}: the server answered 401",
            file.display()
        );
        assert!(
            gated.starts_with(&start)
                && gated.contains("dataset.tokenizer")
                && gated.contains("LLMSCEN_HUB"),
            "{gated}"
        );

        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let offline = CacheDir {
            hub: format!("http://127.0.0.1:{port}/datasets"),
            ..cache.clone()
        };
        assert!(error("org/model", &offline).contains("Connection refused"));
        let (nothing, _) = hub(|_| reply("404 Not Found", "", ""));
        let nothing = CacheDir {
            hub: nothing,
            ..cache.clone()
        };
        assert!(error("org/none", &nothing).contains("tokenizer.json: the server answered 404"));
        for path in [
            "/nowhere/model",
            "./models/qwen",
            "models/qwen/tokenizer.json",
            "qwen",
            "models/tokenizer.json",
        ] {
            assert!(
                error(path, &nothing)
                    .starts_with(&format!("cannot read the tokenizer {path}: No such file")),
                "{path}"
            );
        }
    }

    #[test]
    fn each_hub_has_its_own_addresses() {
        let urls = |hub| file_urls(hub, "org", "m", "f");
        assert_eq!(
            urls("https://www.modelscope.cn/datasets"),
            ["https://www.modelscope.cn/models/org/m/resolve/master/f"]
        );
        assert_eq!(
            urls("https://huggingface.co/datasets/"),
            ["https://huggingface.co/org/m/resolve/main/f"]
        );
        assert_eq!(
            urls("https://hf.example"),
            [
                "https://hf.example/org/m/resolve/main/f",
                "https://hf.example/models/org/m/resolve/master/f"
            ]
        );
    }
}
