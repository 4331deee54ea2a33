//! GuideLLM's scenario files: those of its release 0.8 (`spec` and `benchmarks`), and the older ones with the options of
//! `guidellm benchmark`.

use crate::fault::Mistake;
use crate::import::Tool;
use crate::import::command::Command;
use crate::import::files::{Fields, Files, Table, Test, Tests};
use crate::import::guidellm::translate;
use crate::tree::{Data, Entry, Node};

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
        for entry in overrides.get(index).map(Node::entries).unwrap_or_default() {
            name.extend(
                entry
                    .value
                    .scalar()
                    .map(|value| format!("{}={value}", entry.key)),
            );
            replace(&mut tree, &format!("spec.{}", entry.key), entry);
        }
        let mut fields = Fields::new(overrides.get(index).unwrap_or(root).at);
        for entry in overrides.get(index).map(Node::entries).unwrap_or_default() {
            fields.mark(Some(&entry.value));
            let path = format!("spec.{}", entry.key);
            files.replaced(&path, root.get(&path));
        }
        fields.table(command(), SPEC, "", &tree);
        tests.push(Test::unnamed(name.join(","), fields.translate(translate)?));
    }
    Ok(tests)
}

/// Sets a value at a path in which `[2]` selects an item of a list.
fn replace(node: &mut Node, path: &str, entry: &Entry) {
    let Some((list, rest)) = path.split_once('[') else {
        return node.set(path, entry.key_at, entry.value.clone());
    };
    let Some((index, rest)) = rest.split_once(']') else {
        return;
    };
    let whole = node.get(list).map(|node| (node.at, node.items().to_vec()));
    let (Some((at, mut items)), Ok(index)) = (whole, index.parse::<usize>()) else {
        return;
    };
    if let Some(item) = items.get_mut(index) {
        match rest.strip_prefix('.') {
            Some(rest) => replace(item, rest, entry),
            None => *item = entry.value.clone(),
        }
    }
    node.set(list, entry.key_at, Node::new(at, Data::List(items)));
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
