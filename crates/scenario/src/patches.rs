//! `variants` and `workloads`: named patches of the scenario. A cell of the matrix merges its variant and then its
//! workload into the scenario, as a file is merged into the one that it extends.

use crate::fault::{Mistake, Review};
use crate::merge::merge_nodes;
use crate::patch_names::{PATCHES, PatchKind, PatchNames, each_patch};
use crate::sections::patch::PATCH;
use crate::sweep;
use crate::tree::{Data, Entry, Node, Span};

/// The sections that patches are merged into.
pub(crate) fn sections() -> impl Iterator<Item = &'static str> {
    PATCH.names().filter(|section| *section != "slo")
}

/// Moves the objectives of patches to `slo`, with a condition on the name, and puts the axes of variants and
/// workloads first in the matrix, where they need not be written, unless they are candidates of a search.
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

/// The axis of a kind in the matrix, as a list of names; all names where it is not written. None where the scenario
/// has none, or `zip` has it.
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
