//! GuideLLM's scenario files: those of its release 0.8 (`spec` and `benchmarks`), and the older ones with the options
//! of `guidellm benchmark`.

use crate::import::Tool;
use crate::import::command::Command;
use crate::import::files::{Fields, Files, Test, Tests, label, no_place, replace, value_at};
use crate::import::guidellm::translate;
use crate::import::tools::Places;
use llmscen_scenario::document::{Mistake, Node};

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

pub(super) fn tests(files: &mut Files<'_>, root: &Node) -> Tests {
    if root.get("spec").is_none() {
        return Ok(vec![flat(root.get("args").unwrap_or(root))?]);
    }
    let places = Places::parse(include_str!("../../../tools/guidellm-spec.yaml"));
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
        fields.table(command(), &places, "", &tree);
        tests.push(Test::unnamed(name.join(","), fields.translate(translate)?));
    }
    Ok(tests)
}

/// A file whose fields are options of `guidellm benchmark`.
pub(super) fn flat(root: &Node) -> Result<Test, Box<Mistake>> {
    let mut fields = Fields::new(root.at);
    let places = Places::parse(include_str!("../../../tools/guidellm-flat.yaml"));
    for entry in root.entries() {
        let flag = format!("--{}", entry.key);
        let place = places.get(&entry.key).unwrap_or(&flag);
        fields.place(command(), place, &entry.key, &entry.value);
    }
    Ok(Test::new(String::new(), fields.translate(translate)?))
}
