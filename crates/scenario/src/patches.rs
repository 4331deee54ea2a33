//! `variants` and `workloads`: named patches of the scenario. A cell of the matrix merges its variant and then its workload into
//! the scenario, as a file is merged into the one that it extends.

use crate::fault::{Mistake, Review};
use crate::merge::merge_nodes;
use crate::schema_table::{Block, Kind, field};
use crate::sections::{dataset, load, mix, request, slo, target};
use crate::suggest::{list, meant_or, nearest};
use crate::sweep;
use crate::tree::{Data, Entry, Node, Span};
use llmscen_core::label::{VARIANT, WORKLOAD};
use std::collections::BTreeSet;

/// The sections that a patch may change.
pub(crate) static PATCH: Block = Block {
    doc: "A part of a scenario that is merged into it: mappings are merged, lists are replaced, `null` removes a key. A key may be a path such as `target.server.args`.",
    short: None,
    fields: &[
        field(
            "target",
            Kind::Over(&target::TARGET),
            "Merged into `target`.",
        )
        .example("{ server: { args: { speculative_tokens: 3 } }, gpus: 8 }"),
        field(
            "request",
            Kind::Over(&request::REQUEST),
            "Merged into `request`.",
        )
        .example("{ max_tokens: 256 }"),
        field(
            "dataset",
            Kind::Over(&dataset::DATASET),
            "Merged into `dataset`.",
        )
        .example("{ kind: random, tokens: 1024 }"),
        field(
            "mix",
            Kind::List(&Kind::Block(&mix::MIX)),
            "Replaces `mix`.",
        )
        .example("[{ name: chat, weight: 3 }, { name: batch, weight: 1 }]"),
        field("load", Kind::Over(&load::LOAD), "Merged into `load`.").example("{ requests: 10x }"),
        field(
            "slo",
            Kind::List(&Kind::Block(&slo::SLO)),
            "Added to `slo`, for the cells of this variant or workload.",
        )
        .example("[\"ttft.p95 < 2s\"]"),
    ],
};

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

/// The sections that patches are merged into.
pub(crate) fn sections() -> impl Iterator<Item = &'static str> {
    PATCH.names().filter(|section| *section != "slo")
}

/// Whether a scenario has variants or workloads.
pub(crate) fn are_declared(root: &Node) -> bool {
    PATCHES.iter().any(|kind| kind.names(root).next().is_some())
}

/// Turns keys of patches that are paths into mappings: `target.gpus: 8` is `target: { gpus: 8 }`.
pub(crate) fn spell_out_paths(layer: &mut Node) {
    each_patch(layer, |_, patch| {
        if patch.value.is_null() {
            patch.value.data = Data::Map(Vec::new());
        }
        let Data::Map(entries) = &mut patch.value.data else {
            return;
        };
        let nothing = Node::new(patch.value.at, Data::Map(Vec::new()));
        let spelled = std::mem::take(entries).into_iter().map(|entry| {
            let mut single = nothing.clone();
            match entry.key.contains('.') {
                true => single.set(&entry.key, entry.key_at, entry.value),
                false => single.set_key(&entry.key, entry.key_at, entry.value),
            }
            single
        });
        if let Data::Map(merged) = spelled.fold(nothing.clone(), merge_nodes).data {
            *entries = merged;
        }
    });
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

/// Moves the objectives of patches to `slo`, with a condition on the name, and puts the axes of variants and workloads first in
/// the matrix, where they need not be written, unless they are candidates of a search.
pub(crate) fn normalize(root: &mut Node) {
    move_objectives(root);
    let (candidates, others): (Vec<&PatchKind>, Vec<&PatchKind>) = PATCHES
        .iter()
        .partition(|kind| has_axis(root.get(sweep::OVER), kind));
    let over = |kind: &PatchKind| written_axis(kind, root, root.get(sweep::OVER)?);
    let axes = candidates.into_iter().filter_map(over).collect();
    if let Some(matrix) = sweep::matrix_mut(root, sweep::OVER) {
        put_axes(matrix, axes);
    }
    let axes: Vec<Entry> = others
        .into_iter()
        .filter_map(|kind| axis_entry(kind, root))
        .collect();
    if axes.is_empty() {
        return;
    }
    let at = root.at.before();
    let mut matrix = root.remove("matrix").unwrap_or(Entry {
        key: "matrix".to_owned(),
        key_at: at,
        value: Node::new(at, Data::Map(Vec::new())),
    });
    if matrix.value.is_null() {
        matrix.value.data = Data::Map(Vec::new());
    }
    put_axes(&mut matrix.value, axes);
    root.set_key("matrix", matrix.key_at, matrix.value);
}

/// Puts axes of variants and workloads first.
fn put_axes(matrix: &mut Node, axes: Vec<Entry>) {
    if let Data::Map(entries) = &mut matrix.data {
        let is_replaced = |entry: &Entry| axes.iter().any(|axis| axis.key == entry.key);
        entries.retain(|entry| !is_replaced(entry));
        entries.splice(0..0, axes);
    }
}

/// Whether a matrix names the variants or workloads of its cases.
fn has_axis(matrix: Option<&Node>, kind: &PatchKind) -> bool {
    let groups = matrix.and_then(|matrix| matrix.entry("zip"));
    let groups = groups.map(|zip| sweep::zip_groups(&zip.value));
    let mut groups = groups.into_iter().flatten().chain(matrix);
    groups.any(|group| group.entry(kind.axis).is_some())
}

/// The axis of a kind in the matrix, as a list of names; all names where it is not written. None where the scenario has none, or
/// `zip` has it.
fn axis_entry(kind: &PatchKind, root: &Node) -> Option<Entry> {
    let matrix = root.entry("matrix").map(|entry| &entry.value);
    if let Some(written) = matrix.and_then(|matrix| written_axis(kind, root, matrix)) {
        return Some(written);
    }
    let at = root.entry(kind.section)?.key_at;
    (!has_axis(matrix, kind) && kind.names(root).next().is_some()).then(|| Entry {
        key: kind.axis.to_owned(),
        key_at: at,
        value: all_names(kind, root, at),
    })
}

/// The axis of a kind as a matrix has it, as a list of names.
fn written_axis(kind: &PatchKind, root: &Node, matrix: &Node) -> Option<Entry> {
    let entry = matrix.entry(kind.axis)?;
    let value = match entry.value.text() {
        Some(word) if word == "all" && kind.names(root).next().is_some() => {
            all_names(kind, root, entry.value.at)
        }
        Some(_) => Node::new(entry.value.at, Data::List(vec![entry.value.clone()])),
        None => entry.value.clone(),
    };
    Some(Entry {
        value,
        ..entry.clone()
    })
}

fn all_names(kind: &PatchKind, root: &Node, at: Span) -> Node {
    let name = |name: &str| Node::new(at, Data::Text(name.to_owned()));
    Node::new(at, Data::List(kind.names(root).map(name).collect()))
}

fn move_objectives(root: &mut Node) {
    let mut moved = Vec::new();
    each_patch(root, |kind, patch| {
        let Some(entry) = patch.value.remove("slo") else {
            return;
        };
        let Data::List(items) = entry.value.data else {
            // Its type is reported when the patch is checked.
            patch.value.set_key("slo", entry.key_at, entry.value);
            return;
        };
        for mut item in items {
            if matches!(item.data, Data::Map(_)) {
                let name = Node::new(patch.key_at, Data::Text(patch.key.clone()));
                item.set(&format!("when.{}", kind.axis), patch.key_at, name);
            }
            moved.push(item);
        }
    });
    if moved.is_empty() {
        return;
    }
    let at = moved[0].at;
    let mut slo = root.remove("slo").unwrap_or(Entry {
        key: "slo".to_owned(),
        key_at: at,
        value: Node::new(at, Data::List(Vec::new())),
    });
    if let Data::List(items) = &mut slo.value.data {
        items.extend(moved);
    }
    root.set_key("slo", slo.key_at, slo.value);
}

/// The path of a setting of a patch within the scenario: `variants.base.target.url` is `target.url`. Other paths are unchanged.
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

/// The scenario of the cells that have these patches.
pub(crate) fn combine(root: &Node, names: &PatchNames) -> Node {
    let mut combined = root.clone();
    for (kind, name) in PATCHES.iter().zip(&names.0) {
        combined.remove(kind.section);
        let patch = name
            .as_ref()
            .and_then(|name| root.get(kind.section)?.entry(name));
        if let Some(patch) = patch {
            combined = merge_nodes(combined, patch.value.clone());
        }
    }
    combined
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

/// Reports names that case ids and paths cannot hold, and sections that are empty.
pub(crate) fn check(root: &Node, review: &mut Review) {
    for kind in &PATCHES {
        let Some(section) = root.entry(kind.section) else {
            continue;
        };
        review.section = kind.section.to_owned();
        if section.value.is_null()
            || matches!(&section.value.data, Data::Map(all) if all.is_empty())
        {
            let mistake = Mistake::new(
                section.key_at,
                format!("`{}` is empty", kind.section),
                "has no names",
            );
            review.push(mistake.help(format!(
                "For example `{}: {{ base: {{}}, large: {{ load.requests: 500 }} }}`.",
                kind.section
            )));
        }
        for patch in section.value.entries() {
            let is_name = |text: &str| {
                let part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(part)
            };
            if !is_name(&patch.key) || patch.key == "all" {
                let mistake = Mistake::new(
                    patch.key_at,
                    format!("`{}` is not a name of a {}", patch.key, kind.axis),
                    "becomes part of case ids",
                );
                review.push(
                    mistake.help("A name has letters, digits, `.`, `_` and `-`, and is not `all`."),
                );
            }
        }
    }
    review.section.clear();
}
