//! `matrix`: the product of lists of values, `zip` for lists that go in step, `exclude` and `include` as in GitHub Actions.

pub(crate) mod case_labels;
pub(crate) mod check;
pub(crate) mod points;

pub(crate) use case_labels::Called;
pub(crate) use check::check;
pub(crate) use points::{Point, Setting, points};

use crate::tree::{Data, Entry, Node};
use std::collections::BTreeSet;

/// The axes that go in step: `zip` is one mapping, or a list of them.
fn groups(zip: &Node) -> Vec<&Node> {
    match &zip.data {
        Data::List(items) => items.iter().collect(),
        _ => vec![zip],
    }
}

/// The keys of `matrix` that are no axes.
const WORDS: [&str; 3] = ["zip", "include", "exclude"];

/// The paths that the matrix sets.
pub(crate) fn paths(root: &Node) -> BTreeSet<String> {
    let Some(matrix) = root.get("matrix") else { return BTreeSet::new() };
    let axes = matrix.entries().iter().filter(|entry| !WORDS.contains(&entry.key.as_str())).map(|entry| entry.key.clone());
    let nested = ["zip", "include"].into_iter().filter_map(|word| matrix.entry(word)).flat_map(|entry| groups(&entry.value));
    axes.chain(nested.flat_map(|group| group.entries().iter().map(|entry| entry.key.clone()))).collect()
}

/// A setting of the command line wins over the matrix: an axis of that path keeps this one value.
pub(crate) fn fix(root: &mut Node, path: &str, value: &Node) {
    let Data::Map(sections) = &mut root.data else { return };
    let Some(matrix) = sections.iter_mut().find(|entry| entry.key == "matrix") else { return };
    let only = Node::new(value.at, Data::List(vec![value.clone()]));
    let mut zipped = false;
    let Data::Map(entries) = &mut matrix.value.data else { return };
    for entry in entries.iter_mut() {
        match entry.key.as_str() {
            "zip" => zipped |= each_group(&mut entry.value, &mut |group| group.remove(path).is_some()),
            "include" => {
                each_group(&mut entry.value, &mut |group| {
                    let own = group.entry(path).is_some();
                    if own {
                        group.put(path, value.at, value.clone());
                    }
                    own
                });
            }
            key if key == path => entry.value = only.clone(),
            _ => {}
        }
    }
    entries.retain(|entry| entry.key != "zip" || !groups(&entry.value).iter().all(|group| group.entries().is_empty()));
    if zipped {
        entries.push(Entry { key: path.to_owned(), key_at: value.at, value: only });
    }
}

fn each_group(node: &mut Node, act: &mut dyn FnMut(&mut Node) -> bool) -> bool {
    match &mut node.data {
        Data::List(items) => items.iter_mut().fold(false, |any, item| act(item) | any),
        _ => act(node),
    }
}
