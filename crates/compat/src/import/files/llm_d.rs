//! Files of llm-d-benchmark (2026): workload profiles of its harnesses inference-perf, guidellm, vllm-benchmark and
//! inferencemax, experiments (a profile with treatments), and scenarios, which name a model and a profile.

use crate::import::draft::Draft;
use crate::import::files::{
    Fields, Files, Test, Tests, aiperf, guidellm, inference_perf, mistake, vllm,
};
use crate::import::vllm::translate;
use llmscen_scenario::document::{Data, Mistake, Node};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The beginning of the texts that llm-d replaces.
const PLACEHOLDER: &str = "REPLACE_ENV_";

pub(super) fn recognizes(root: &Node) -> bool {
    let has_placeholder =
        || serde_json::to_string(&root.json()).is_ok_and(|text| text.contains(PLACEHOLDER));
    root.entry("executable").is_some()
        || root.entry("treatments").is_some()
        || root
            .items_at("scenario")
            .first()
            .is_some_and(|stack| stack.entry("harness").is_some())
        || has_placeholder()
}

pub(super) fn tests(files: &mut Files<'_>, root: &Node) -> Tests {
    if root.entry("scenario").is_some() {
        return scenario(files, root);
    }
    if root.entry("treatments").is_some() {
        return experiment(files, root);
    }
    profile(files, root, "")
}

/// Fields of an experiment that describe its treatments.
const DESIGN: [&str; 5] = ["factors", "levels", "type", "name", "description"];

/// Every treatment overrides values of one profile.
fn experiment(files: &mut Files<'_>, root: &Node) -> Tests {
    let (Some(harness), Some(name)) = (
        root.get("experiment.harness"),
        root.get("experiment.profile"),
    ) else {
        return Err(mistake(
            root.at.before(),
            "no `experiment.harness` and `experiment.profile`",
            "the profile that the treatments change",
        ));
    };
    files.mark(Some(harness));
    files.mark(Some(name));
    for section in ["experiment", "design", "setup"] {
        for entry in root.entries_at(section) {
            let path = format!("{section}.{}", entry.key);
            if DESIGN.contains(&entry.key.as_str()) {
                files.drop(&path, &entry.value, "the treatments list its values");
            }
        }
    }
    for key in ["setup.treatments", "setup.constants"] {
        for node in root.items_at(key) {
            let label = node.get("name").or(node.get("key")).and_then(Node::string);
            let path = format!("{key}.{}", label.or(node.string()).unwrap_or_default());
            let why = "a deployment of llm-d: start it, and run this scenario with `labels`";
            files.lose_of_all(&path, node, why);
        }
    }
    let base = find(files, harness, name)?;
    let constants = root.items_at("design.constants");
    for constant in constants {
        files.mark(constant.get("key"));
    }
    let mut tests = Vec::new();
    for treatment in root.items_at("treatments") {
        let mut tree = base.clone();
        let constants = constants.iter().filter_map(|constant| {
            Some((
                constant.get("key")?.string()?,
                constant.get("key")?.at,
                constant.get("value")?,
            ))
        });
        let own = treatment
            .entries()
            .iter()
            .filter(|entry| entry.key != "name")
            .map(|entry| (entry.key.clone(), entry.key_at, &entry.value));
        for (path, at, value) in constants.chain(own) {
            // A profile of flags has its keys with dashes or underscores.
            let written = base
                .entries()
                .iter()
                .find(|entry| entry.key.replace('_', "-") == path.replace('_', "-"));
            let path = written.map_or(path, |entry| entry.key.clone());
            files.replaced(&path, base.get(&path));
            tree.set(&path, at, value.clone());
        }
        let name = treatment.get("name");
        files.mark(name);
        let name = name.and_then(Node::string).unwrap_or_default();
        tests.extend(profile(files, &tree, &name)?);
    }
    Ok(tests)
}

/// A deployment on Kubernetes; llmscen takes its model and its load.
fn scenario(files: &mut Files<'_>, root: &Node) -> Tests {
    for entry in root
        .entries()
        .iter()
        .filter(|entry| entry.key != "scenario")
    {
        files.drop(&entry.key, &entry.value, DEPLOYED);
    }
    let mut tests = Vec::new();
    for stack in root.items_at("scenario") {
        let (Some(harness), Some(name)) = (
            stack.get("harness.name"),
            stack.get("harness.experimentProfile"),
        ) else {
            return Err(mistake(
                stack.at.before(),
                "no `harness.name` and `harness.experimentProfile`",
                "the profile of the load",
            ));
        };
        let (named, model) = (stack.get("name"), stack.get("model.name"));
        for node in [Some(harness), Some(name), named, model] {
            files.mark(node);
        }
        for section in ["", "harness.", "model."] {
            let within = match section {
                "" => stack.entries(),
                _ => stack.entries_at(section.trim_end_matches('.')),
            };
            for entry in within {
                let path = format!("{section}{}", entry.key);
                let known = ["name", "harness", "model", "harness.name", "model.name"];
                if !known.contains(&path.as_str()) && path != "harness.experimentProfile" {
                    files.drop(&path, &entry.value, DEPLOYED);
                }
            }
        }
        let base = find(files, harness, name)?;
        let name = named.and_then(Node::string).unwrap_or_default();
        let mut own = profile(files, &base, &name)?;
        if let Some(model) = model.and_then(Node::string) {
            for test in &mut own {
                test.draft.set("target/model", model.as_str());
            }
        }
        tests.extend(own);
    }
    Ok(tests)
}

const DEPLOYED: &str = "llm-d deploys it: llmscen measures the server at `target.url`";

/// Reads a profile: it is in `workload/profiles/HARNESS` of the repository that the file is in.
fn find(files: &mut Files<'_>, harness: &Node, name: &Node) -> Result<Node, Box<Mistake>> {
    let (folder, file) = (
        harness.string().unwrap_or_default(),
        name.string().unwrap_or_default(),
    );
    let relative = Path::new("workload/profiles").join(&folder);
    let folders = files
        .folder
        .ancestors()
        .flat_map(|up| [up.join(&relative), up.join("profiles").join(&folder)]);
    let beside = [files.folder.to_path_buf()];
    let found: Option<PathBuf> = beside
        .into_iter()
        .chain(folders)
        .flat_map(|folder| [folder.join(&file), folder.join(format!("{file}.in"))])
        .find(|path| path.is_file());
    let Some(path) = found else {
        return Err(Box::new(Mistake::new(
            name.at,
            format!("the profile `{file}` was not found"),
            format!("looked beside the file and in {}", relative.display()),
        )
        .help("Import the file where it is in a copy of llm-d-benchmark, or import the profile itself.")));
    };
    let broken = |why: String| {
        mistake(
            name.at,
            format!("cannot read {}: {why}", path.display()),
            "this profile",
        )
    };
    match files.documents.read(&path) {
        Ok(Some(node)) => {
            files.read.push(node.clone());
            Ok(node)
        }
        Ok(None) => Err(broken("it is not YAML".to_owned())),
        Err(error) => Err(broken(error.to_string())),
    }
}

/// A profile, in the format of its harness. `name`: that of its tests, unless they have their own.
fn profile(files: &mut Files<'_>, root: &Node, name: &str) -> Tests {
    let (mut known, placeholders) = (root.clone(), placeholders(root));
    for path in &placeholders {
        let at = root.get(path).map_or(root.at.before(), |node| node.at);
        files.mark(root.get(path));
        known.set(path, at, Node::new(at, Data::Null));
    }
    let one = |draft: Draft| vec![Test::new("", draft)];
    let mut tests = if inference_perf::recognizes(root) {
        one(inference_perf::test(&known)?)
    } else if root.entry("executable").is_some() {
        one(bench(&known)?)
    } else if guidellm::recognizes(root) {
        guidellm::tests(files, &known)?
    } else if aiperf::is_flat(root) {
        one(aiperf::flat(&known)?)
    } else {
        return Err(mistake(
            root.at.before(),
            "a profile of a harness that is not supported",
            "expected one of inference-perf, guidellm, aiperf, vllm-benchmark or inferencemax",
        ));
    };
    let has_url = placeholders
        .iter()
        .any(|path| path.ends_with("url") || path.ends_with("target"));
    for test in &mut tests {
        if has_url {
            let url = test.draft.get("target/url").and_then(Value::as_str);
            let variable = format!("${{LLM_URL:-{}}}", url.unwrap_or_default());
            test.draft.set_variable("target/url", &variable);
        }
        if !name.is_empty() {
            let own = std::mem::take(&mut test.name);
            test.name = match own.is_empty() {
                true => name.to_owned(),
                false => format!("{name}-{own}"),
            };
            test.parts = None;
        }
    }
    Ok(tests)
}

/// The paths of texts that llm-d replaces: the URL and the model.
fn placeholders(root: &Node) -> Vec<String> {
    fn collect(prefix: &str, node: &Node, found: &mut Vec<String>) {
        for entry in node.entries() {
            let path = format!("{prefix}{}", entry.key);
            if entry
                .value
                .text()
                .is_some_and(|text| text.contains(PLACEHOLDER))
            {
                found.push(path);
            } else {
                collect(&format!("{path}."), &entry.value, found);
            }
        }
    }
    let mut found = Vec::new();
    collect("", root, &mut found);
    found
}

/// A profile of flags of `benchmark_serving.py`.
fn bench(root: &Node) -> Result<Draft, Box<Mistake>> {
    let mut fields = Fields::new(root.at);
    for entry in root.entries() {
        match entry.key.as_str() {
            "executable" => fields.dropped("executable", &entry.value, "llmscen is the client"),
            key => fields.flag(vllm::bench_serve(), &format!("--{key}"), key, &entry.value),
        }
    }
    fields.translate(translate)
}
