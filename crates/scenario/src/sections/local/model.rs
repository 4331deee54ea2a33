//! The model that `target.model` names with `api: local`.

use crate::fault::{Mistake, Review};
use crate::sections::Draft;
use crate::validate::no_file;
use crate::values::models::models;
use llmscen_core::api::Api;
use llmscen_core::model_hub;
use llmscen_core::target::ModelShare;
use std::path::{Path, PathBuf};

/// What models with random weights are called.
const RANDOM: &str = "random:";
/// Those that there are.
const TINY: &str = "random:tiny";

/// The absolute path of the model that a text in `file` names, or its name on a hub; None where it is neither.
pub(crate) fn found(file: usize, named: &str, review: &Review) -> Option<String> {
    if named.starts_with(RANDOM) { None } else { review.sources.find_or_hub(file, named) }
}

/// The folder or file of what [`found`] gives; None for a model that is still to be downloaded.
fn on_disk(found: &str, review: &Review) -> Option<PathBuf> {
    let path = PathBuf::from(found);
    if path.is_absolute() { Some(path) } else { model_hub::snapshot(review.hugging_face.as_ref()?, found) }
}

/// The one model, with the absolute path where it is a file. Files what is not there.
pub(crate) fn model(draft: &Draft<'_>, review: &mut Review) -> Option<Vec<ModelShare>> {
    const KINDS: &str = "A Hugging Face folder (config.json, safetensors, tokenizer.json), its name on the hub (`org/name`), a .gguf \
                         file, or `random:tiny`.";
    let Some(node) = draft.get("target.model") else {
        let mistake = Mistake::new(draft.place("target"), "`target` needs `model`", "`model` is missing");
        review.push(mistake.help(KINDS));
        return None;
    };
    let shares = models(node)?;
    let ([ModelShare { name, .. }], Some(_)) = (shares.as_slice(), node.text()) else {
        let mistake = Mistake::new(node.at, "one model at a time is in this process", "names several");
        review.push(mistake.help("Sweep them: `matrix: { target.model: [a, b] }`."));
        return None;
    };
    let one = |name: String| Some(vec![ModelShare { name, weight: 1.0 }]);
    if name.starts_with(RANDOM) {
        if name != TINY {
            review.push(Mistake::new(node.at, format!("there is no `{name}`"), format!("did you mean `{TINY}`?")).help(KINDS));
        }
        return one(name.clone());
    }
    let Some(path) = found(node.at.file, name, review) else {
        let mistake = no_file(node.at, name, review);
        review.push(
            mistake.help(format!("{KINDS} A path is relative to the file that names it, or else to the working directory.")),
        );
        return None;
    };
    if let Some(own) = on_disk(&path, review).filter(|_| !review.sources.stored) {
        if let Some(why) = unlike(&own) {
            review.push(Mistake::new(node.at, format!("`{name}` is not a model"), why).help(KINDS));
        } else if let Some(Err(why)) = review.supports.map(|supports| supports(&own)) {
            let mistake = Mistake::new(node.at, format!("`{name}` cannot be run in this process"), why);
            review.push(mistake.help("Name another model, or measure a server that runs this one."));
        }
    }
    one(path)
}

/// Why what lies there is no model.
fn unlike(path: &Path) -> Option<&'static str> {
    let gguf = || path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    match path.is_dir() {
        true => (!path.join("config.json").exists()).then_some("a folder without config.json"),
        false => (!gguf()).then_some("a file, and none that ends in .gguf"),
    }
}

/// The tokenizer of a model in this process: of a folder with one, or of the random model.
pub(crate) fn tokenizer(draft: &Draft<'_>, review: &Review) -> Option<String> {
    let node = draft.get("target.model").filter(|_| draft.api() == Some(Api::Local))?;
    if node.text().as_deref() == Some(TINY) {
        return Some(TINY.to_owned());
    }
    let found = found(node.at.file, &node.text()?, review)?;
    match on_disk(&found, review) {
        Some(path) => path.join("tokenizer.json").exists().then(|| path.display().to_string()),
        None => Some(found),
    }
}
