//! A YAML text becomes a plan, or a list of everything that is wrong with it.
//!
//! ```text
//! text ─parse─▶ tree ─merge─▶ one tree ─vars─▶ values ─shape─▶ sound ─fill─▶ defaults ─sweep─▶ points ─expand─▶ cases
//! ```
//!
//! Every step files what it finds in one [`fault::Review`] and goes on, so a reader learns of all his mistakes at once. What may
//! stand in a file is said once, in the tables of `sections`.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod check;
pub(crate) mod defaults;
pub mod diff;
pub(crate) mod expand;
pub mod fault;
pub mod import;
pub(crate) mod merge;
pub(crate) mod parse;
pub(crate) mod reference;
pub mod render;
pub(crate) mod resolve;
pub(crate) mod rules;
pub mod schema;
pub(crate) mod schema_table;
pub(crate) mod secrets;
pub(crate) mod sections;
pub(crate) mod settings;
pub(crate) mod source;
pub(crate) mod suggest;
pub(crate) mod sweep;
pub(crate) mod tree;
pub(crate) mod validate;
pub(crate) mod values;
pub(crate) mod vars;
pub(crate) mod yaml;

pub use fault::{Fault, Faults, Figures, Supports, Warning};
pub use reference::markdown;
pub use schema::json_schema;
pub use secrets::behind_flags;
pub use settings::{Setting, setting_named, settings};

use crate::fault::Review;
use crate::secrets::from_env;
use crate::sections::scenario::SCENARIO;
use crate::sections::target::{SIMULATOR, simulator_path};
use crate::tree::{Data, Node, Span};
use crate::vars::Variables;
use llmscen_core::api::Api;
use llmscen_core::plan::Plan;
use llmscen_core::target::Secret;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// A scenario and what it is read with.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The file; paths in it are relative to its folder, or else to the working directory.
    pub path: &'a Path,
    /// Its text, where it is not to be read from the file.
    pub text: Option<String>,
    /// The environment, for `${NAME}`.
    pub env: &'a BTreeMap<String, String>,
    /// Settings by dotted path, values in YAML; they win over everything.
    pub set: &'a [(String, String)],
}

/// A scenario that is sound.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The plan.
    pub plan: Plan,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Warning>,
}

/// Reads a scenario and compiles it to a plan.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load(input: &Input<'_>) -> Result<Loaded, Faults> {
    compile(input, None, Review::default())
}

/// The same for a scenario whose baseline may be a run folder: `figures` makes the text of a baseline of one, or says why not.
/// `supports` says why a local model cannot be computed with.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load_with(input: &Input<'_>, figures: Figures, supports: Supports) -> Result<Loaded, Faults> {
    let mut review = Review::default();
    review.figures = Some(figures);
    review.supports = Some(supports);
    compile(input, None, review)
}

/// The error that a text of the request body cannot be rendered, at its place in the scenario: `at` is its path in the body.
/// None where the scenario no longer has such a text.
pub fn template_fault(input: &Input<'_>, at: &str, message: &str) -> Option<Faults> {
    let mut review = Review::default();
    let root = merge::gather(input, &mut review)?;
    let entries = root.get("mix").map_or(0, |mix| mix.items().len());
    let mixed = (0..entries).flat_map(|index| ["template", "extra"].map(|key| format!("mix.{index}.request.{key}")));
    let places = ["request.template".to_owned(), "request.extra".to_owned()].into_iter().chain(mixed);
    let node = places.filter_map(|place| root.get(&place).cloned()).find_map(|node| {
        let body = source::body(&node, &mut review)?;
        let found = body.get(at).filter(|found| matches!(&found.data, Data::Text(text) if text.contains(['{', '%'])));
        found.cloned()
    })?;
    review.push(fault::Mistake::new(node.at, "this template cannot be rendered with the first row of the data", message));
    Some(review.faults())
}

/// Reads the stored plan of a run in order to report on it: variables that are not set and files that are gone are no faults,
/// for nothing will be sent.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn reload(input: &Input<'_>) -> Result<Loaded, Faults> {
    let mut review = Review::default();
    review.sources.stored = true;
    compile(input, None, review)
}

/// The stored plan of a run with the objectives of the file `slo`: a list of them, or a mapping of `slo` and what it refers to.
/// None where that file is a scenario of its own.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn reload_with_slo(input: &Input<'_>, slo: &Path) -> Result<Option<Loaded>, Faults> {
    let mut review = Review::default();
    match merge::objectives(slo, &mut review) {
        Some(objectives) => {
            review.sources.stored = true;
            compile(input, Some(objectives), review).map(Some)
        }
        None if review.is_clean() => Ok(None),
        None => Err(review.faults()),
    }
}

fn compile(input: &Input<'_>, over: Option<Node>, mut review: Review) -> Result<Loaded, Faults> {
    review.hugging_face = llmscen_core::model_hub::cache_dir(input.env);
    let plan = merge::gather(input, &mut review).and_then(|mut tree| {
        over.into_iter().for_each(|over| merge::replace(&mut tree, over));
        let root = normalize(&tree, input.env, &mut review);
        let (plan, baseline) = expand::plan(&root, input.env, &mut review)?;
        let resolved = resolve::resolve(&root, &SCENARIO, &mut review);
        sections::baseline::compare(&baseline, &resolved, &mut review);
        let secrets: Arc<[Secret]> = secrets::secrets(&root, &plan, input.env).into();
        let mut plan = Plan { id: resolve::digest(&resolved), resolved, secrets, ..plan };
        plan.cases.iter_mut().for_each(|case| case.target.of_scenario = plan.secrets.clone());
        Some(plan)
    });
    match plan.filter(|_| review.is_clean()) {
        Some(plan) => Ok(Loaded { plan, warnings: review.into_warnings() }),
        None => Err(review.faults()),
    }
}

/// Variables replaced, the template in place, held against the tables, defaults spelled out.
fn normalize(tree: &Node, env: &BTreeMap<String, String>, review: &mut Review) -> Node {
    let mut swept = sweep::paths(tree);
    swept.extend(sections::search::path(tree));
    let variables = Variables::new(env, tree, &swept);
    let mut root = variables.scenario(review);
    simulate(&mut root);
    sections::local::normalize(&mut root);
    sections::server::normalize(&mut root, &review.sources);
    validate::scenario(&root, &SCENARIO, review);
    if !swept.iter().any(|path| path.starts_with("request.template")) {
        inline(&mut root, "request.template", &variables, review);
    }
    sections::slo::expand(&mut root, review);
    sections::baseline::normalize(&mut root, review);
    for index in 0..root.get("mix").map_or(0, |mix| mix.items().len()) {
        inline(&mut root, &format!("mix.{index}.request.template"), &variables, review);
    }
    sections::mix::normalize(&mut root, &|path| swept.contains(path));
    simulated(&mut root, &swept);
    whole(&mut root, &swept);
    defaults::fill(&mut root, &SCENARIO, &|path| swept.contains(path));
    sections::target::url::complete(&mut root, &swept, review);
    values::number::draw(&mut root, &swept);
    root
}

/// `api: simulator` is another way to say `url: simulator`.
fn simulate(root: &mut Node) {
    let Some(api) = root.entry_at("target.api").filter(|api| api.value.text().as_deref() == Some(SIMULATOR)).cloned() else {
        return;
    };
    let url = root.get("target.url").and_then(Node::text);
    if url.as_deref().is_none_or(|url| simulator_path(url).is_some()) {
        let protocol = Node::new(api.value.at, Data::Text(Api::OpenaiChat.name().to_owned()));
        if url.is_none() {
            root.set("target.url", api.key_at, api.value);
        }
        root.set("target.api", api.key_at, protocol);
    }
}

/// What the built-in server needs besides the defaults of the tables: its block, and a model to answer to. Where a variable
/// named another server, as in `${LLM_URL:-simulator}`, the block was for the case that it does not.
fn simulated(root: &mut Node, swept: &BTreeSet<String>) {
    let url = root.get("target.url").filter(|_| !swept.contains("target.url"));
    let always = url.and_then(Node::text).is_some_and(|url| simulator_path(&url).is_some());
    if !always && url.is_some_and(from_env) {
        root.set("target.simulator", root.at, Node::new(root.at, Data::Null));
    }
    let at = Span { end: root.at.start, ..root.at };
    if (always || swept.contains("target.url")) && root.get("target.simulator").is_none() {
        root.set("target.simulator", at, Node::new(at, Data::Map(Vec::new())));
    }
    if always && root.get("target.model").is_none() && !swept.contains("target.model") {
        root.set("target.model", at, Node::new(at, Data::Text("sim".to_owned())));
    }
}

/// Replies that are not generated are not streamed, whatever the default.
fn whole(root: &mut Node, swept: &BTreeSet<String>) {
    let api = root.get("target.api").and_then(Node::text).and_then(|name| Api::parse(&name));
    let fixed = ["target.api", "request.stream"].iter().all(|path| !swept.contains(*path));
    if fixed && api.is_some_and(|api| !api.generates()) && root.get("request.stream").is_none() {
        let at = Span { end: root.at.start, ..root.at };
        root.set("request.stream", at, Node::new(at, Data::Bool(false)));
    }
}

/// Reads the file of the template at a path into the tree, so that the resolved plan holds the template itself.
fn inline(root: &mut Node, path: &str, variables: &Variables<'_>, review: &mut Review) {
    let Some(entry) = root.entry_at(path).cloned() else { return };
    review.section = path.split('.').next().unwrap_or(path).to_owned();
    if let (Data::Text(_), Some(body)) = (&entry.value.data, source::body(&entry.value, review)) {
        root.set(path, entry.key_at, variables.body(&body, review));
    }
    review.section.clear();
}

#[cfg(test)]
mod tests;
