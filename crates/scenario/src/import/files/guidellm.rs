//! GuideLLM's scenario files: those of its release 0.8 (`spec` and `benchmarks`), and the older ones with the options of
//! `guidellm benchmark`.

use crate::fault::Mistake;
use crate::import::Tool;
use crate::import::command::Command;
use crate::import::files::{Fields, Files, Table, Test, Tests, label, no_place, replace, value_at};
use crate::import::guidellm::translate;
use crate::tree::Node;

fn command() -> &'static Command {
    &Tool::Guidellm.spec().commands[0]
}

pub(super) fn recognizes(root: &Node) -> bool {
    let flat = root.get("args").unwrap_or(root);
    root.get("spec.data").is_some()
        || root.get("spec.profile").is_some()
        || flat.entry("data").is_some()
            && ["profile", "rate-type", "rate_type", "rate"]
                .iter()
                .any(|key| flat.entry(key).is_some())
}

/// The fields of `spec`, and of the file around it.
const SPEC: Table = &[
    ("spec.backend", "--backend"),
    ("spec.profile", "--profile"),
    ("spec.constraints", "--constraint"),
    ("spec.tokenizer", "--tokenizer"),
    ("spec.data", "--data"),
    ("spec.seed", "--seed"),
    ("spec.data_column_mapper", "--data-column-mapper"),
    ("spec.data_preprocessors", "--data-preprocessor"),
    ("spec.data_finalizer", "--data-finalizer"),
    ("spec.data_loader", "--data-loader"),
    ("spec.outputs", "--output"),
    ("spec.metrics", "--metrics"),
    ("metadata version", "`description` can hold it"),
];

/// The options of the older files.
const FLAT: Table = &[
    ("data", "--data"),
    ("description", "`description` can hold it"),
    ("max_error_rate max-error-rate", "--max-error-rate"),
];

pub(super) fn tests(files: &mut Files<'_>, root: &Node) -> Tests {
    if root.get("spec").is_none() {
        return Ok(vec![flat(root.get("args").unwrap_or(root))?]);
    }
    let overrides = root.items_at("benchmarks");
    let mut tests = Vec::new();
    for index in 0..overrides.len().max(1) {
        let mut tree = root.clone();
        tree.remove("benchmarks");
        let mut name = Vec::new();
        let test = overrides.get(index);
        for entry in test.map(Node::entries).unwrap_or_default() {
            name.extend(label(&entry.key, &entry.value));
            let path = format!("spec.{}", entry.key);
            if !replace(&mut tree, &path, entry.key_at, &entry.value) {
                return Err(no_place(entry.key_at, &entry.key));
            }
            files.mark(Some(&entry.value));
            files.replaced(&path, value_at(root, &path));
        }
        let mut fields = Fields::new(test.unwrap_or(root).at);
        fields.table(command(), SPEC, "", &tree);
        tests.push(Test::unnamed(name.join(","), fields.translate(translate)?));
    }
    Ok(tests)
}

/// A file whose fields are options of `guidellm benchmark`.
pub(super) fn flat(root: &Node) -> Result<Test, Box<Mistake>> {
    let mut fields = Fields::new(root.at);
    for entry in root.entries() {
        match FLAT
            .iter()
            .find(|(keys, _)| keys.split(' ').any(|key| key == entry.key))
        {
            Some((_, reason)) if !reason.starts_with("--") => {
                fields.dropped(&entry.key, &entry.value, *reason);
            }
            _ => {
                let flag = format!("--{}", entry.key);
                fields.flag(command(), &flag, &entry.key, &entry.value);
            }
        }
    }
    Ok(Test::new(String::new(), fields.translate(translate)?))
}
