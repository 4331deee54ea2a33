//! Files of llm-d-benchmark (2026): workload profiles of its harnesses inference-perf, guidellm, vllm-benchmark and inferencemax,
//! experiments (a profile with treatments), and scenarios, which name a model and a profile.

use crate::fault::Mistake;
use crate::import::draft::Draft;
use crate::import::files::{
    Fields, Files, Test, Tests, guidellm, inference_perf, mistake, read, vllm,
};
use crate::import::vllm::translate;
use crate::tree::{Data, Node};
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
    Ok(vec![profile(root, String::new())?])
}

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
    let base = find(files, harness, name)?;
    let mut tests = Vec::new();
    for treatment in root.items_at("treatments") {
        let mut tree = base.clone();
        let constants = root
            .items_at("design.constants")
            .iter()
            .filter_map(|constant| {
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
            tree.set(&path, at, value.clone());
        }
        let name = treatment.get("name").and_then(Node::string);
        tests.push(profile(&tree, name.unwrap_or_default())?);
    }
    Ok(tests)
}

/// A deployment on Kubernetes; llmscen takes its model and its load.
fn scenario(files: &mut Files<'_>, root: &Node) -> Tests {
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
        let base = find(files, harness, name)?;
        let named = stack.get("name").and_then(Node::string);
        let mut test = profile(&base, named.unwrap_or_default())?;
        if let Some(model) = stack.get("model.name").and_then(Node::string) {
            test.draft.set("target/model", model);
        }
        tests.push(test);
    }
    Ok(tests)
}

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
    match read(&path, files.review) {
        Ok(Some(node)) => Ok(node),
        Ok(None) => Err(broken("it is not YAML".to_owned())),
        Err(error) => Err(broken(error.to_string())),
    }
}

/// A profile, in the format of its harness.
fn profile(root: &Node, name: String) -> Result<Test, Box<Mistake>> {
    let (mut known, placeholders) = (root.clone(), placeholders(root));
    for path in &placeholders {
        known.set(path, root.at, Node::new(root.at, Data::Null));
    }
    let mut draft = if inference_perf::recognizes(root) {
        inference_perf::test(&known)?
    } else if root.entry("executable").is_some() {
        bench(&known)?
    } else if guidellm::recognizes(root) {
        guidellm::flat(&known)?.draft
    } else {
        return Err(mistake(
            root.at.before(),
            "a profile of a harness that is not supported",
            "expected one of inference-perf, guidellm, vllm-benchmark or inferencemax",
        ));
    };
    if placeholders
        .iter()
        .any(|path| path.ends_with("url") || path == "target")
    {
        let url = draft.get("target/url").and_then(Value::as_str);
        let variable = format!("${{LLM_URL:-{}}}", url.unwrap_or_default());
        draft.set_variable("target/url", &variable);
    }
    Ok(Test::new(name, draft))
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
