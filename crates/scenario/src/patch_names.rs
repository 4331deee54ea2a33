//! The names of `variants` and `workloads`: where a scenario declares them, and how a cell of the matrix selects them.

use crate::fault::{Mistake, Review};
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Entry, Node, Span};
use llmscen_core::label::{VARIANT, WORKLOAD};
use std::collections::BTreeSet;

/// A section of named patches, and the axis of the matrix that selects one of them.
pub(crate) struct PatchKind {
    pub section: &'static str,
    pub axis: &'static str,
}

/// The kinds, in the order in which they are merged and vary in the matrix.
pub(crate) const PATCHES: [PatchKind; 2] = [
    PatchKind {
        section: "variants",
        axis: VARIANT,
    },
    PatchKind {
        section: "workloads",
        axis: WORKLOAD,
    },
];

/// The kind that an axis of the matrix selects.
pub(crate) fn kind_of_axis(axis: &str) -> Option<&'static PatchKind> {
    PATCHES.iter().find(|kind| kind.axis == axis)
}

impl PatchKind {
    /// The names that a scenario declares.
    pub fn names<'a>(&self, root: &'a Node) -> impl Iterator<Item = &'a str> {
        root.entries_at(self.section)
            .iter()
            .map(|entry| entry.key.as_str())
    }

    /// Reports a name that is not declared.
    pub fn check_name(&self, name: &str, at: Span, root: &Node, review: &mut Review) {
        let PatchKind { section, axis } = self;
        if self.names(root).any(|known| known == name) {
            return;
        }
        let mistake = Mistake::new(
            at,
            format!("unknown {axis} `{name}`"),
            meant_or(nearest(name, self.names(root)), "does not exist"),
        );
        review.push(if self.names(root).next().is_none() {
            mistake.help(format!(
                "Declare it, for example `{section}: {{ {name}: {{}} }}`."
            ))
        } else {
            mistake.help(format!(
                "Names in `{section}` are {}.",
                list(self.names(root), "and")
            ))
        });
    }
}

/// The contents of all patches.
pub(crate) fn nodes(root: &Node) -> impl Iterator<Item = &Node> {
    let patches = |kind: &'static PatchKind| root.entries_at(kind.section).iter();
    PATCHES.iter().flat_map(patches).map(|patch| &patch.value)
}

/// Whether a scenario has variants or workloads.
pub(crate) fn are_declared(root: &Node) -> bool {
    PATCHES.iter().any(|kind| kind.names(root).next().is_some())
}

/// Calls `act` for each patch of a scenario.
pub(crate) fn each_patch(root: &mut Node, mut act: impl FnMut(&PatchKind, &mut Entry)) {
    for kind in &PATCHES {
        if let Some(Data::Map(patches)) = root
            .entry_mut(kind.section)
            .map(|section| &mut section.value.data)
        {
            patches.iter_mut().for_each(|patch| act(kind, patch));
        }
    }
}

/// The path of a setting of a patch within the scenario: `variants.base.target.url` is `target.url`. Other paths are
/// unchanged.
pub(crate) fn path_in_patch(path: &str) -> &str {
    let inner = |kind: &PatchKind| {
        let rest = path.strip_prefix(kind.section)?.strip_prefix('.')?;
        Some(rest.split_once('.')?.1)
    };
    PATCHES.iter().find_map(inner).unwrap_or(path)
}

/// The paths that any patch sets, at every level.
pub(crate) fn paths(root: &Node) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    nodes(root).for_each(|patch| collect_paths(patch, "", &mut found));
    found
}

fn collect_paths(node: &Node, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in node.entries() {
        let path = format!("{prefix}{}", entry.key);
        collect_paths(&entry.value, &format!("{path}."), found);
        found.insert(path);
    }
}

/// The variant and the workload of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PatchNames(pub [Option<String>; 2]);

impl PatchNames {
    /// As text for messages: "variant `mtp3`, workload `chat`".
    pub fn describe(&self) -> String {
        let each = PATCHES
            .iter()
            .zip(&self.0)
            .filter_map(|(kind, name)| Some(format!("{} `{}`", kind.axis, name.as_ref()?)));
        each.collect::<Vec<_>>().join(", ")
    }
}
