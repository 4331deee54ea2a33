//! `when`: the cases that an objective or an action is for.

use crate::fault::{Mistake, Review};
use crate::sections::hooks;
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Entry, Node};
use crate::values::expect;
use llmscen_core::label::{Labels, Scalar};
use llmscen_core::plan::Case;
use llmscen_core::target::Target;
use std::collections::BTreeSet;

/// The condition on the name of the GPUs of the target.
const GPU: &str = "hardware.gpu";

/// A decoded `when`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    /// Values of the matrix.
    pub labels: Labels,
    /// The name of the GPUs, or a pattern of it.
    pub gpu: Option<Scalar>,
}

impl Condition {
    /// The `when` of an objective or an action.
    pub fn decode(
        node: &Node,
        swept_paths: &BTreeSet<String>,
        review: &mut Review,
    ) -> Option<Condition> {
        let mut condition = Condition::default();
        for entry in node.get("when").map(Node::entries).unwrap_or_default() {
            let Some(value) = entry.value.scalar() else {
                review.key.clone_from(&entry.key);
                expect(&entry.value, "one value of the matrix", "", review);
                return None;
            };
            if entry.key == GPU {
                condition.gpu = Some(value);
                continue;
            }
            if !swept_paths.contains(&entry.key) {
                report_not_swept(entry, swept_paths, review);
                return None;
            }
            condition.labels.0.push((entry.key.clone(), value));
        }
        Some(condition)
    }

    /// Whether a case with these labels and this target meets the condition.
    pub fn is_met(&self, labels: &Labels, target: &Target) -> bool {
        labels.covers(&self.labels) && self.is_met_by_gpu(target)
    }

    /// Reports a condition that no case meets.
    pub fn report_unmet(&self, when: &Entry, cases: &[Case], review: &mut Review) {
        let is_fixed = |entry: &Entry| review.fixed.contains(&entry.key);
        if when.value.entries().iter().any(is_fixed) {
            return review.warn(
                when.value.at,
                "no case matches this condition, because a setting \
            of the command line replaced an axis",
            );
        }
        if self.gpu.is_some() && cases.iter().any(|case| case.labels.covers(&self.labels)) {
            return review.note(
                when.value.at,
                "no case matches this condition, because its GPUs differ",
            );
        }
        let mistake = Mistake::new(
            when.value.at,
            "this `when` matches no case",
            "no case has these values",
        );
        let stages = |case: &Case| -> Vec<String> {
            let stages = case.stages().into_iter();
            stages.map(|stage| stage.case.id).collect()
        };
        let names: Vec<String> = cases
            .iter()
            .flat_map(|case| [vec![case.id.clone()], stages(case)].concat())
            .take(12)
            .collect();
        let names = list(names.iter().map(String::as_str), "and");
        review.push(mistake.help(format!("Cases are {names}.")));
    }

    fn is_met_by_gpu(&self, target: &Target) -> bool {
        let Some(pattern) = &self.gpu else {
            return true;
        };
        let Some(gpu) = &target.gpu else {
            return false;
        };
        // `MI3*` also means `AMD Instinct MI300X`: a name begins with its manufacturer.
        let starts = gpu.match_indices(' ').map(|(at, _)| at + 1);
        std::iter::once(0)
            .chain(starts)
            .any(|at| Scalar::Text(gpu[at..].to_owned()).meets(pattern))
    }
}

fn report_not_swept(entry: &Entry, swept_paths: &BTreeSet<String>, review: &mut Review) {
    let paths = || swept_paths.iter().map(String::as_str);
    let label = meant_or(nearest(&entry.key, paths().chain([GPU])), "is not swept");
    let mistake = Mistake::new(entry.key_at, format!("`{}` is not swept", entry.key), label);
    review.push(mistake.help(format!(
        "Keys of `when` are `{GPU}`, paths of the matrix, and stages; here {}.",
        list(paths(), "and")
    )));
}

/// The key of the first condition on the GPUs, of an objective or an action.
fn gpu_condition(root: &Node) -> Option<&Entry> {
    let conditions = hooks::ITEMS
        .iter()
        .chain(&["slo"])
        .flat_map(|path| root.items_at(path));
    conditions
        .filter_map(|item| item.get("when"))
        .flat_map(Node::entries)
        .find(|entry| entry.key == GPU)
}

/// The name of the GPUs of a target: `declared`, or that of this machine, if the server runs on it and a condition
/// needs the name.
pub(crate) fn gpu_of_target(
    declared: Option<String>,
    root: &Node,
    is_on_this_machine: bool,
    review: &mut Review,
) -> Option<String> {
    let condition = gpu_condition(root).filter(|_| declared.is_none());
    let Some(entry) = condition else {
        return declared;
    };
    if let Some(gpu) = review.gpu_of_machine().filter(|_| is_on_this_machine) {
        return Some(gpu);
    }
    if is_on_this_machine && !review.sources.stored {
        review.warn(
            entry.key_at,
            "this machine has no GPU with a driver: what is for some GPUs alone is left out",
        );
        return Some("none".to_owned());
    }
    let label = match is_on_this_machine {
        true => "the run recorded none",
        false => "the server may run on another machine",
    };
    let mistake = Mistake::new(entry.key_at, "the GPUs of the target are not known", label);
    review.push(mistake.help("Set `target.hardware.gpu`, for example to `\"${GPU:-none}\"`."));
    None
}

#[cfg(test)]
mod tests;
