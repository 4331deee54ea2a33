//! Is this a matrix? Paths that exist, lists of values that fit them, lists of equal length where they go in step.

use super::{WORDS, groups};
use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind};
use crate::suggest::near;
use crate::tree::{Data, Entry, Node};
use crate::validate::{found, value};
use std::collections::BTreeSet;

/// Files what is wrong with a matrix.
pub(crate) fn check(matrix: &Node, table: &'static Block, review: &mut Review) {
    let Data::Map(entries) = &matrix.data else {
        let help = "For example `load.concurrency: [1, 8, 64]`.";
        return review.push(Mistake::new(matrix.at, "`matrix` must be a mapping", found(matrix, "a mapping")).help(help));
    };
    for entry in entries {
        match entry.key.as_str() {
            "zip" => groups(&entry.value).into_iter().for_each(|group| in_step(group, table, review)),
            "include" | "exclude" => rows(entry, table, review),
            _ => axis(entry, table, review),
        }
    }
    twice(entries, review);
}

fn axis(entry: &Entry, table: &'static Block, review: &mut Review) {
    let Some(kind) = kind(entry, table, review) else { return };
    if !matches!(entry.value.data, Data::List(_)) {
        let mistake =
            Mistake::new(entry.value.at, format!("`{}` must be a list of values here", entry.key), found(&entry.value, "a list"));
        return review.push(match entry.value.scalar() {
            Some(one) => mistake.help(format!("For one value set `{}: {one}` outside of the matrix.", entry.key)),
            None => mistake,
        });
    }
    if entry.value.items().is_empty() {
        review.push(Mistake::new(entry.value.at, "an axis without values", "is empty"));
    }
    for item in entry.value.items() {
        cell(&Entry { key: entry.key.clone(), key_at: entry.key_at, value: item.clone() }, kind, review);
    }
}

fn kind(entry: &Entry, table: &'static Block, review: &mut Review) -> Option<&'static Kind> {
    let kind = table.kind_at(&entry.key);
    if let Some(kind) = kind.filter(|kind| kind.is_scalar()) {
        return Some(kind);
    }
    let paths = if review.is_flooded() { Vec::new() } else { table.scalar_paths() };
    let paths: Vec<String> = paths.into_iter().map(|(path, _)| path).collect();
    let label = match (kind, near(&entry.key, paths.iter().map(String::as_str).chain(WORDS))) {
        (Some(_), _) => "cannot be swept: it is not one value".to_owned(),
        (None, Some(meant)) => format!("did you mean `{meant}`?"),
        (None, None) => "does not exist".to_owned(),
    };
    let help = "A key of `matrix` is the path of a value, such as `load.concurrency`, or `zip`, `include`, `exclude`.";
    review.push(Mistake::new(entry.key_at, format!("`{}` is no path to sweep", entry.key), label).help(help));
    None
}

fn cell(entry: &Entry, kind: &'static Kind, review: &mut Review) {
    match entry.value.data {
        Data::List(_) | Data::Map(_) | Data::Null => {
            review.push(Mistake::new(
                entry.value.at,
                "a swept value must be text, a number, `true` or `false`",
                found(&entry.value, "one value"),
            ));
        }
        _ => value(entry, kind, review),
    }
}

fn in_step(group: &Node, table: &'static Block, review: &mut Review) {
    if !matches!(group.data, Data::Map(_)) {
        return review.push(Mistake::new(group.at, "`zip` must be a mapping, or a list of mappings", found(group, "a mapping")));
    }
    group.entries().iter().for_each(|entry| axis(entry, table, review));
    let Some(first) = group.entries().first() else { return };
    let length = first.value.items().len();
    for other in group.entries().iter().skip(1).filter(|other| other.value.items().len() != length) {
        let values = |n: usize| if n == 1 { "1 value".to_owned() } else { format!("{n} values") };
        let own = values(other.value.items().len());
        let mistake = Mistake::new(other.value.at, "zipped lists of unequal length", own).also(first.value.at, values(length));
        review.push(mistake.help("Lists under `zip` go in step: the first value with the first, the second with the second."));
    }
}

fn rows(list: &Entry, table: &'static Block, review: &mut Review) {
    let Data::List(items) = &list.value.data else {
        let message = format!("`{}` must be a list of mappings", list.key);
        return review.push(Mistake::new(list.value.at, message, found(&list.value, "a list")));
    };
    for item in items {
        if item.entries().is_empty() {
            review.push(Mistake::new(item.at, format!("an empty row of `{}`", list.key), "expected paths and their values"));
        }
        for entry in item.entries() {
            if let Some(kind) = kind(entry, table, review) {
                cell(entry, kind, review);
            }
        }
    }
}

fn twice(entries: &[Entry], review: &mut Review) {
    let mut seen: BTreeSet<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    for group in entries.iter().filter(|entry| entry.key == "zip").flat_map(|entry| groups(&entry.value)) {
        for entry in group.entries().iter().filter(|entry| !seen.insert(&entry.key)) {
            review.push(Mistake::new(entry.key_at, format!("`{}` is swept twice", entry.key), "a second axis for the same path"));
        }
    }
}
