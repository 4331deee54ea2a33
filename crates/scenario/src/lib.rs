//! Compiles a YAML text to a plan, or to a list of all its errors.
//!
//! `compile` lists the passes in the order in which they run. Every pass reports errors to one [`fault::Review`] and
//! continues, so that all errors are reported at once. The tables in `sections` declare each key once: kind, default,
//! rules, help.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub(crate) mod case_labels;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod defaults;
pub mod diff;
pub mod document;
pub(crate) mod draft;
pub(crate) mod expand;
pub(crate) mod fault;
pub(crate) mod files;
pub(crate) mod masked;
pub(crate) mod merge;
pub(crate) mod parse;
pub(crate) mod patch_names;
pub(crate) mod patches;
pub(crate) mod redactions;
pub(crate) mod reference;
pub(crate) mod remote_use;
pub(crate) mod resolve;
pub(crate) mod rules;
pub(crate) mod schema;
pub(crate) mod schema_table;
pub(crate) mod secrets;
pub(crate) mod sections;
pub(crate) mod setting_names;
pub(crate) mod settings;
pub(crate) mod source;
pub(crate) mod suggest;
pub(crate) mod sweep;
pub(crate) mod tree;
pub(crate) mod validate;
pub(crate) mod values;
pub(crate) mod vars;
pub(crate) mod yaml;

pub use fault::{BaselineText, Fault, Faults, Figures, FindGpu, Supports, Warning};
pub use reference::{FieldHelp, field_help, markdown};
pub use schema::json_schema;
pub use secrets::behind_flags;
pub use setting_names::Setting;
pub use settings::settings;
pub use values::number::parse_size;

use crate::compile::Source;
use crate::fault::Review;
use crate::sections::scenario::SCENARIO;
use crate::tree::{Data, Node};
use llmscen_core::expect::MissingTruth;
use llmscen_core::plan::Plan;
use llmscen_core::remote_data::PinData;
use llmscen_requests::render::RenderError;
use std::collections::BTreeMap;
use std::path::Path;

/// The setting whose path, or its last segment, is `name`; the one with the shortest path first; `-` and `_` are
/// equal. With `fuzzy` also a similar one.
pub fn setting_named(name: &str, fuzzy: bool) -> Option<Setting> {
    setting_names::setting_named(name, fuzzy, &SCENARIO)
}

/// A scenario file with its environment and settings.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The file; paths in it are relative to its folder, then to the working directory.
    pub path: &'a Path,
    /// Its text, if it is not read from the file.
    pub text: Option<String>,
    /// The environment, for `${NAME}`.
    pub env: &'a BTreeMap<String, String>,
    /// Settings by dotted path, with YAML values; they override everything.
    pub set: &'a [(String, String)],
}

/// A valid scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The plan.
    pub plan: Plan,
    /// Warnings and notes.
    pub warnings: Vec<Warning>,
}

/// Reads a scenario and compiles it to a plan.
///
/// # Errors
/// All errors at once.
pub fn load(input: &Input<'_>) -> Result<Loaded, Faults> {
    compile::compile(&Source::new(input), Review::default())
}

/// What a scenario may need of the machine and the files on it.
#[derive(Clone, Copy, Debug)]
pub struct Lookups {
    /// Converts a run folder to a baseline.
    pub figures: Figures,
    /// Checks a local model.
    pub supports: Supports,
    /// Finds the GPUs of this machine.
    pub find_gpu: FindGpu,
    /// Looks up data of the hub; None: the plan names them without their checksums.
    pub pin_data: Option<PinData>,
}

/// Like [`load`], with what the machine has.
///
/// # Errors
/// All errors at once.
pub fn load_with(input: &Input<'_>, lookups: Lookups) -> Result<Loaded, Faults> {
    let mut review = Review::default();
    review.figures = Some(lookups.figures);
    review.supports = Some(lookups.supports);
    review.find_gpu = Some(lookups.find_gpu);
    review.pin_data = lookups.pin_data;
    compile::compile(&Source::new(input), review)
}

/// The place of an error with the first row of the data: a text of the request body, or a field that a check of the
/// answer reads. None where the scenario has no such text any more.
pub fn render_fault(input: &Input<'_>, error: &RenderError) -> Option<Faults> {
    let mut review = Review::default();
    let source = Source::new(input);
    let tree = compile::read(&source, &mut review)?;
    let root = compile::merge(tree, &source, &mut review).root;
    let entries = root.get("mix").map_or(0, |mix| mix.items().len());
    let sections: Vec<&Node> = std::iter::once("request".to_owned())
        .chain((0..entries).map(|index| format!("mix.{index}.request")))
        .filter_map(|place| root.get(&place))
        .collect();
    let mistake = match error {
        RenderError::Leaf { at, message } => {
            let mut bodies = sections
                .into_iter()
                .flat_map(|section| ["template", "extra"].map(|key| section.get(key)));
            let node = bodies.by_ref().flatten().find_map(|node| {
                let body = files::mapping(node, &files::BODY, &mut review)?;
                let found = body.get(at).filter(
                    |found| matches!(&found.data, Data::Text(text) if text.contains(['{', '%'])),
                );
                found.cloned()
            })?;
            let what = "this template cannot be rendered with the first row of the data";
            fault::Mistake::new(node.at, what, message)
        }
        RenderError::Truth(MissingTruth { check, field }) => {
            let place = format!("expect.{check}");
            let written = format!("item.{field}");
            let node = sections
                .into_iter()
                .filter_map(|section| section.get(&place))
                .find(|node| node.text().is_some_and(|text| *text == written))?;
            let what = format!("the first row of the data has no text `{field}`");
            fault::Mistake::new(node.at, what, "read here")
                .help("It is a text, a number, or a list of them. `dataset.columns` gives fields their names.")
        }
        RenderError::Length(_)
        | RenderError::Shape
        | RenderError::Audio(_)
        | RenderError::NoItems => return None,
    };
    review.push(mistake);
    Some(review.faults())
}

/// Reads the stored plan of a run to report on it. Missing variables and files are not errors, since no request is
/// sent.
///
/// # Errors
/// All errors at once.
pub fn reload(input: &Input<'_>) -> Result<Loaded, Faults> {
    let mut review = Review::default();
    review.sources.stored = true;
    compile::compile(&Source::new(input), review)
}

/// Reads the stored plan of a run with the objectives of the file `slo`: a list, or a mapping of `slo` and what it
/// refers to. None where that file is a scenario. `gpu`: the name of the GPUs that the run recorded.
///
/// # Errors
/// All errors at once.
pub fn reload_with_slo(
    input: &Input<'_>,
    slo: &Path,
    gpu: Option<String>,
) -> Result<Option<Loaded>, Faults> {
    let mut review = Review::default();
    review.machine_gpu = Some(gpu);
    match merge::objectives(slo, &mut review) {
        Some(objectives) => {
            review.sources.stored = true;
            compile::compile(
                &Source {
                    objectives: Some(objectives),
                    ..Source::new(input)
                },
                review,
            )
            .map(Some)
        }
        None if review.is_clean() => Ok(None),
        None => Err(review.faults()),
    }
}

#[cfg(test)]
mod tests;
