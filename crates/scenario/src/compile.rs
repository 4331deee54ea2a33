//! The passes of compilation, in the order in which they run:
//!
//! ```text
//! Source ─read─▶ Tree ─merge─▶ Merged ─check─▶ Checked ─resolve─▶ Resolved ─plan─▶ Plan
//! ```

use crate::fault::{Faults, Review};
use crate::sections::baseline::BaselineState;
use crate::sections::scenario::SCENARIO;
use crate::sections::{baseline, local, mix, search, server, simulator, slo, target};
use crate::settings::settings;
use crate::tree::{Data, Node};
use crate::vars::Variables;
use crate::{
    Input, Loaded, defaults, expand, files, merge, redactions, resolve, sweep, validate, values,
};
use llmscen_core::api::Api;
use llmscen_core::plan::Plan;
use llmscen_core::redact::Secret;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The input: a scenario file with its environment and settings.
pub(crate) struct Source<'a> {
    pub input: &'a Input<'a>,
    /// Objectives of `--slo`, in place of those of the scenario.
    pub objectives: Option<Node>,
}

/// The parsed files.
pub(crate) struct Tree {
    /// Base files first, the scenario last.
    pub layers: Vec<Node>,
}

/// The files as one tree, with the settings of the command line.
pub(crate) struct Merged {
    pub root: Node,
}

/// A tree that passed the schema table, with variables, templates and presets replaced.
pub(crate) struct Checked {
    root: Node,
    swept: BTreeSet<String>,
}

/// A tree with all defaults.
pub(crate) struct Resolved {
    root: Node,
}

impl<'a> Source<'a> {
    pub fn new(input: &'a Input<'a>) -> Source<'a> {
        Source {
            input,
            objectives: None,
        }
    }
}

/// Runs all passes. A pass returns None where later passes could only report consequences of known errors.
pub(crate) fn compile(source: &Source<'_>, mut review: Review) -> Result<Loaded, Faults> {
    let env = source.input.env;
    review.hugging_face = llmscen_core::model_hub::cache_dir(env);
    let plan = read(source, &mut review)
        .map(|tree| merge(tree, source, &mut review))
        .map(|merged| check(&merged, env, &mut review))
        .map(|checked| resolve(checked, &mut review))
        .and_then(|resolved| plan(&resolved, env, &mut review));
    match plan.filter(|_| review.is_clean()) {
        Some(plan) => Ok(Loaded {
            plan,
            warnings: review.into_warnings(),
        }),
        None => Err(review.faults()),
    }
}

/// Parses the scenario and the files that it extends.
pub(crate) fn read(source: &Source<'_>, review: &mut Review) -> Option<Tree> {
    merge::read_layers(source.input, review).map(|layers| Tree { layers })
}

/// Merges the files, the settings of the command line, and the objectives of `--slo`.
pub(crate) fn merge(tree: Tree, source: &Source<'_>, review: &mut Review) -> Merged {
    let mut root = merge::merge_layers(tree.layers);
    merge::set(&mut root, source.input.set, review);
    if let Some(objectives) = source.objectives.clone() {
        merge::replace(&mut root, objectives);
    }
    Merged { root }
}

/// Replaces variables, checks every key and value against the schema table, and puts templates and presets in place.
fn check(merged: &Merged, env: &BTreeMap<String, String>, review: &mut Review) -> Checked {
    let mut swept = sweep::paths(&merged.root);
    swept.extend(search::path(&merged.root));
    let variables = Variables::new(env, &merged.root, &swept);
    let mut root = variables.scenario(review);
    simulator::expand_api(&mut root);
    local::normalize(&mut root);
    server::normalize(&mut root, &review.sources);
    validate::scenario(&root, &SCENARIO, review);
    // The matrix is last, because it is checked against all other tables.
    if let Some(matrix) = root.get("matrix") {
        review.section = "matrix".to_owned();
        sweep::check(matrix, &SCENARIO, review);
        review.section.clear();
    }
    if !swept
        .iter()
        .any(|path| path.starts_with("request.template"))
    {
        inline_template(&mut root, "request.template", &variables, review);
    }
    slo::expand(&mut root, review);
    baseline::normalize(&mut root, review);
    for index in 0..root.get("mix").map_or(0, |mix| mix.items().len()) {
        inline_template(
            &mut root,
            &format!("mix.{index}.request.template"),
            &variables,
            review,
        );
    }
    Checked { root, swept }
}

/// Fills in defaults, the path of a base URL, and seeds that are drawn for the run.
fn resolve(Checked { mut root, swept }: Checked, review: &mut Review) -> Resolved {
    let is_swept = |path: &str| swept.contains(path);
    mix::normalize(&mut root, &is_swept);
    simulator::add_block(&mut root, &swept);
    without_stream(&mut root, &swept);
    defaults::fill(&mut root, &SCENARIO, &is_swept);
    target::url::complete(&mut root, &swept, review);
    values::number::draw(&mut root, &swept);
    Resolved { root }
}

/// Expands the matrix into cases and writes the resolved scenario.
fn plan(
    Resolved { root }: &Resolved,
    env: &BTreeMap<String, String>,
    review: &mut Review,
) -> Option<Plan> {
    let (plan, ground) = expand::plan(root, env, review)?;
    let resolved = resolve::resolve(root, &SCENARIO, review);
    compare_baseline(&ground, &resolved, review);
    let secrets: Arc<[Secret]> = redactions::secrets(root, &plan, env).into();
    let mut plan = Plan {
        id: resolve::plan_id(&resolved),
        resolved,
        secrets,
        ..plan
    };
    plan.cases
        .iter_mut()
        .for_each(|case| case.target.scenario_secrets = plan.secrets.clone());
    Some(plan)
}

/// Warns if the baseline was recorded with other targets, requests, data or loads.
fn compare_baseline(state: &BaselineState, resolved: &str, review: &mut Review) {
    let BaselineState::Loaded(baseline, at) = state else {
        return;
    };
    if let Some(difference) = baseline.describe_plan_differences(&settings(resolved)) {
        review.warn(
            *at,
            format!("the baseline was recorded with a different scenario: {difference}"),
        );
    }
}

/// Protocols that generate nothing are not streamed by default.
fn without_stream(root: &mut Node, swept: &BTreeSet<String>) {
    let api = root
        .get("target.api")
        .and_then(Node::text)
        .and_then(|name| Api::parse(&name));
    let fixed = ["target.api", "request.stream"]
        .iter()
        .all(|path| !swept.contains(*path));
    if fixed && api.is_some_and(|api| !api.generates()) && root.get("request.stream").is_none() {
        let at = root.at.before();
        root.set("request.stream", at, Node::new(at, Data::Bool(false)));
    }
}

/// Replaces the file name of a template by its content, so that the resolved plan holds the template itself.
fn inline_template(root: &mut Node, path: &str, variables: &Variables<'_>, review: &mut Review) {
    let Some(entry) = root.entry_at(path).cloned() else {
        return;
    };
    review.section = path.split('.').next().unwrap_or(path).to_owned();
    if let (Data::Text(_), Some(body)) = (&entry.value.data, files::body(&entry.value, review)) {
        root.set(path, entry.key_at, variables.body(&body, review));
    }
    review.section.clear();
}
