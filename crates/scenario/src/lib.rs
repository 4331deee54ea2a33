//! A YAML text becomes a plan, or a list of everything that is wrong with it.
//!
//! `compile` names the passes in the order in which they run. Every pass files what it finds in one [`fault::Review`] and goes
//! on, so that all mistakes are reported at once. The tables of `sections` declare each key once: its kind, its default, its
//! rules, its help.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod check;
pub(crate) mod compile;
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

use crate::compile::Source;
use crate::fault::Review;
use crate::tree::Data;
use llmscen_core::plan::Plan;
use std::collections::BTreeMap;
use std::path::Path;

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
    compile::compile(&Source::new(input), Review::default())
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
    compile::compile(&Source::new(input), review)
}

/// The error that a text of the request body cannot be rendered, at its place in the scenario: `at` is its path in the body.
/// None where the scenario no longer has such a text.
pub fn template_fault(input: &Input<'_>, at: &str, message: &str) -> Option<Faults> {
    let mut review = Review::default();
    let source = Source::new(input);
    let tree = compile::read(&source, &mut review)?;
    let root = compile::merge(tree, &source, &mut review).root;
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
    compile::compile(&Source::new(input), review)
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
            compile::compile(&Source { objectives: Some(objectives), ..Source::new(input) }, review).map(Some)
        }
        None if review.is_clean() => Ok(None),
        None => Err(review.faults()),
    }
}

#[cfg(test)]
mod tests;
