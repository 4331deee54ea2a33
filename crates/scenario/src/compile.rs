//! The passes of compilation, in the order in which they run:
//!
//! ```text
//! Source ─read─▶ Tree ─merge─▶ Merged ─check─▶ Checked ─resolve─▶ Resolved ─plan─▶ Plan
//! ```
//!
//! A scenario with variants and workloads is a tree per combination of the two: `check` and `resolve` run for the
//! scenario itself, where keys may be missing, and for each combination that the matrix has.

use crate::fault::{Faults, Review};
use crate::patch_names::{self, PatchNames};
use crate::sections::baseline::BaselineState;
use crate::sections::scenario::SCENARIO;
use crate::sections::{baseline, local, mix, remote_data, search, server, simulator, slo, target};
use crate::settings::settings;
use crate::tree::{Data, Node};
use crate::vars::Variables;
use crate::{
    Input, Loaded, defaults, expand, files, merge, patches, redactions, resolve, sweep, validate,
    values,
};
use llmscen_core::api::Api;
use llmscen_core::api_key::ApiKey;
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
struct Checked {
    root: Node,
    /// The paths that cases set.
    swept: BTreeSet<String>,
}

/// A tree with all defaults.
struct Resolved {
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
        .and_then(|merged| {
            let checked = check(&merged, env, &mut review);
            let resolved = match patch_names::are_declared(&merged.root) {
                true => resolve_shared(&checked),
                false => resolve(checked, &mut review),
            };
            plan(&merged, &resolved, env, &mut review)
        });
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
    patches::normalize(&mut root);
    if review.sources.stored && source.objectives.is_none() {
        slo::default_limit::keep_stored(&mut root);
    }
    Merged { root }
}

/// Checks every key and value, and what all cases share.
fn check(merged: &Merged, env: &BTreeMap<String, String>, review: &mut Review) -> Checked {
    let mut swept = sweep::paths(&merged.root);
    swept.extend(search::path(&merged.root));
    swept.extend(patch_names::paths(&merged.root));
    // A variant or a workload may have the keys that are missing.
    let partial = review.partial;
    review.partial |= patch_names::are_declared(&merged.root);
    let mut root = check_tree(&merged.root, &swept, env, review);
    review.partial = partial;
    patches::check(&root, review);
    // The matrix is last, because it is checked against all other tables.
    sweep::spell_out(&mut root, &SCENARIO, review);
    sweep::check(&root, &SCENARIO, review);
    search::check_server(&root, review);
    slo::expand(&mut root, review);
    baseline::normalize(&mut root, review);
    Checked { root, swept }
}

/// Replaces variables, checks every key and value against the schema table, and puts templates and presets in place.
fn check_tree(
    root: &Node,
    swept: &BTreeSet<String>,
    env: &BTreeMap<String, String>,
    review: &mut Review,
) -> Node {
    let variables = Variables::new(env, root, swept);
    let mut root = variables.scenario(review);
    simulator::expand_api(&mut root);
    local::normalize(&mut root);
    server::normalize(&mut root, &review.sources);
    validate::scenario(&root, &SCENARIO, review);
    let entries = root.get("mix").map_or(0, |mix| mix.items().len());
    for (key, kind) in [
        ("template", &files::BODY),
        ("expect.json_schema", &files::SCHEMA),
    ] {
        let path = format!("request.{key}");
        if !swept.iter().any(|swept| swept.starts_with(&path)) {
            inline_file(&mut root, &path, kind, &variables, review);
        }
        for index in 0..entries {
            let path = format!("mix.{index}.request.{key}");
            inline_file(&mut root, &path, kind, &variables, review);
        }
    }
    root
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

/// Fills in the defaults of what all variants and workloads share. The other sections stay as they are written,
/// because defaults depend on keys that a variant or workload may change.
fn resolve_shared(Checked { root, swept }: &Checked) -> Resolved {
    let mut filled = root.clone();
    defaults::fill(&mut filled, &SCENARIO, &|path| swept.contains(path));
    values::number::draw(&mut filled, swept);
    for section in patches::sections() {
        filled.remove(section);
        if let Some(entry) = root.entry(section) {
            filled.set_key(section, entry.key_at, entry.value.clone());
        }
    }
    Resolved { root: filled }
}

/// The tree of the cases with this variant and workload.
fn combine(
    merged: &Merged,
    Resolved { root }: &Resolved,
    names: &PatchNames,
    env: &BTreeMap<String, String>,
    review: &mut Review,
) -> Node {
    let known = review.count();
    let combined = patches::combine(&merged.root, names);
    let mut swept = sweep::paths(&combined);
    swept.extend(search::path(&combined));
    let mut combined = check_tree(&combined, &swept, env, review);
    // All cases share the seeds that are drawn for the run.
    for seed in ["seed", "cache_seed"] {
        if let Some(entry) = root.entry(seed) {
            combined.set_key(seed, entry.key_at, entry.value.clone());
        }
    }
    let resolved = resolve(
        Checked {
            root: combined,
            swept,
        },
        review,
    );
    review.explain_since(known, &format!("Found in: {}.", names.describe()));
    resolved.root
}

/// Expands the matrix into cases and writes the resolved scenario.
fn plan(
    merged: &Merged,
    scenario: &Resolved,
    env: &BTreeMap<String, String>,
    review: &mut Review,
) -> Option<Plan> {
    let root = &scenario.root;
    let combined = |names: &PatchNames, review: &mut Review| match patch_names::are_declared(root) {
        true => combine(merged, scenario, names, env, review),
        false => root.clone(),
    };
    let (mut plan, ground) = expand::plan(root, &combined, env, review)?;
    let pins = remote_data::pin(root, &mut plan, env, review);
    let root = &remote_data::with_pins(with_gpu_of_machine(root, review), &pins);
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
    share_keys(&mut plan);
    Some(plan)
}

/// The tree with the name of the GPUs of this machine, if a condition used it: a report of the run may be made on
/// another machine.
fn with_gpu_of_machine(root: &Node, review: &Review) -> Node {
    let mut root = root.clone();
    let path = "target.hardware.gpu";
    if let (Some(Some(gpu)), None) = (&review.machine_gpu, root.get(path)) {
        let at = root.at.before();
        root.set(path, at, Node::new(at, Data::Text(gpu.clone())));
    }
    root
}

/// Targets with the same source of their key share the keys that are obtained from it.
fn share_keys(plan: &mut Plan) {
    let mut known: Vec<ApiKey> = Vec::new();
    for case in &mut plan.cases {
        let Some(key) = &mut case.target.api_key else {
            continue;
        };
        match known.iter().find(|known| *known == key) {
            Some(known) => *key = known.clone(),
            None => known.push(key.clone()),
        }
    }
}

/// Warns if the baseline was recorded with other targets, requests, data or loads.
fn compare_baseline(state: &BaselineState, resolved: &str, review: &mut Review) {
    let BaselineState::Loaded(loaded) = state else {
        return;
    };
    if let Some(difference) = loaded
        .baseline
        .describe_plan_differences(&settings(resolved))
    {
        review.warn(
            loaded.at,
            format!("the baseline was recorded with a different scenario: {difference}"),
        );
    }
}

/// Protocols that generate no text are not streamed by default.
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

/// Replaces the name of a file by its content, so that the resolved plan holds the mapping itself.
fn inline_file(
    root: &mut Node,
    path: &str,
    kind: &files::MappingKind,
    variables: &Variables<'_>,
    review: &mut Review,
) {
    let Some(entry) = root.entry_at(path).cloned() else {
        return;
    };
    review.section = path.split('.').next().unwrap_or(path).to_owned();
    if let (Data::Text(_), Some(body)) = (
        &entry.value.data,
        files::mapping(&entry.value, kind, review),
    ) {
        root.set(path, entry.key_at, variables.body(&body, review));
    }
    review.section.clear();
}
