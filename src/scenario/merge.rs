//! One tree from many: the chain of `extends`, and the settings of the command line on top.

use crate::scenario::block::{Block, Kind};
use crate::scenario::fault::{Mistake, Review};
use crate::scenario::near::near;
use crate::scenario::sections::scenario::SCENARIO;
use crate::scenario::sweep;
use crate::scenario::template;
use crate::scenario::tree::{Data, Entry, Node, Span};
use crate::scenario::vars::World;
use crate::scenario::{Input, parse::parse};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The scenario of an input, with what it extends and with its settings. None where there is nothing to look at.
pub(crate) fn gather(input: &Input<'_>, review: &mut Review) -> Option<Node> {
    let name = input.path.display().to_string();
    let file = match &input.text {
        Some(text) => {
            let folder = input.path.parent().map(Path::to_path_buf).unwrap_or_default();
            review.sources.add(name.as_str(), text.as_str(), folder)
        }
        None => read_first(input.path, &name, review)?,
    };
    let mut chain = vec![(input.path.canonicalize().unwrap_or_else(|_| input.path.to_path_buf()), name)];
    let mut root = layer(file, input.env, &mut chain, review)?;
    set(&mut root, input.set, review);
    Some(root)
}

fn read_first(path: &Path, name: &str, review: &mut Review) -> Option<usize> {
    let line = review.sources.add("command line", name, PathBuf::new());
    template::load(Span { file: line, start: 0, end: name.len() }, path, name, review)
}

fn layer(file: usize, env: &BTreeMap<String, String>, chain: &mut Vec<(PathBuf, String)>, review: &mut Review) -> Option<Node> {
    let text = review.sources.text(file);
    let mut node = parse(file, 0, &text, review)?;
    let start = Span { file, start: 0, end: text.chars().next().map_or(0, char::len_utf8) };
    if !matches!(node.data, Data::Map(_)) {
        let mistake = match node.data {
            Data::Null => Mistake::new(start, "this file is empty", "expected a scenario"),
            _ => Mistake::new(start, "a scenario is a mapping", format!("this file holds {}", node.noun())),
        };
        review.push(mistake.help("The smallest one has `version`, `name`, `target`, `dataset` and `load`."));
        return None;
    }
    spell_out(&mut node, &SCENARIO);
    let Some(extends) = node.remove("extends") else { return Some(node) };
    let base = base(&extends, env, chain, review);
    Some(match base {
        Some(base) => merge(base, node),
        None => {
            review.partial = true;
            node
        }
    })
}

fn base(
    extends: &Entry,
    env: &BTreeMap<String, String>,
    chain: &mut Vec<(PathBuf, String)>,
    review: &mut Review,
) -> Option<Node> {
    let at = extends.value.at;
    let world = World { env, root: &Node::new(at, Data::Null), swept: &BTreeSet::new() };
    let value = world.text(&extends.value, review);
    let Some(named) = value.text() else {
        let label = format!("expected a file name, found {}", extends.value.noun());
        review.push(Mistake::new(at, "`extends` is text", label));
        return None;
    };
    let Some(path) = review.sources.find(at.file, &named) else {
        let mistake = crate::scenario::shape::no_file(at, &named, review);
        review.push(mistake);
        return None;
    };
    let shown = review.sources.shown(at.file, &named, &path);
    if let Some(first) = chain.iter().position(|(own, _)| *own == path) {
        let names: Vec<&str> = chain[first..].iter().map(|(_, name)| name.as_str()).chain([shown.as_str()]).collect();
        let mistake = Mistake::new(at, "`extends` goes round in a circle", "leads back to a file above");
        review.push(mistake.help(names.join(" → ")));
        return None;
    }
    let file = template::load(at, &path, &shown, review)?;
    chain.push((path, shown));
    layer(file, env, chain, review)
}

/// Mappings merge, everything else is replaced.
fn merge(base: Node, over: Node) -> Node {
    match (base.data, over.data) {
        (Data::Map(mut entries), Data::Map(own)) => {
            for entry in own {
                match entries.iter().position(|known| known.key == entry.key) {
                    Some(index) => {
                        let known = std::mem::replace(&mut entries[index].value, Node::new(over.at, Data::Null));
                        entries[index] = Entry { value: merge(known, entry.value), ..entry };
                    }
                    None => entries.push(entry),
                }
            }
            Node { data: Data::Map(entries), at: over.at, parts: None }
        }
        (_, data) => Node { data, at: over.at, parts: over.parts },
    }
}

/// `dataset: openqa` becomes `dataset: { kind: openqa }`, before anything is merged into it.
fn spell_out(node: &mut Node, table: &'static Block) {
    let Data::Map(entries) = &mut node.data else { return };
    for entry in entries {
        match table.fields.iter().find(|field| field.name == entry.key).map(|field| &field.kind) {
            Some(Kind::Block(block) | Kind::Over(block)) => spell_out_one(&mut entry.value, block),
            Some(Kind::List(Kind::Block(block))) => spell_out_items(&mut entry.value, block),
            Some(Kind::Map(Kind::List(Kind::Block(block)))) => {
                if let Data::Map(lists) = &mut entry.value.data {
                    lists.iter_mut().for_each(|own| spell_out_items(&mut own.value, block));
                }
            }
            _ => {}
        }
    }
}

fn spell_out_items(list: &mut Node, block: &'static Block) {
    if let Data::List(items) = &mut list.data {
        items.iter_mut().for_each(|item| spell_out_one(item, block));
    }
}

fn spell_out_one(node: &mut Node, block: &'static Block) {
    if let (Some(key), Data::Text(_)) = (block.short, &node.data) {
        let at = node.at;
        let value = std::mem::replace(node, Node::new(at, Data::Null));
        node.data = Data::Map(vec![Entry { key: key.to_owned(), key_at: at, value }]);
    }
    spell_out(node, block);
}

fn set(root: &mut Node, settings: &[(String, String)], review: &mut Review) {
    for (path, value) in settings {
        let file = review.sources.add("--set", format!("{path}={value}"), PathBuf::new());
        let at = Span { file, start: 0, end: path.len() };
        if !known(path) {
            let paths: Vec<String> = SCENARIO.scalar_paths().into_iter().map(|(path, _)| path).collect();
            let near = near(path, paths.iter().map(String::as_str));
            let label = near.map_or("does not exist".to_owned(), |near| format!("did you mean `{near}`?"));
            review.push(
                Mistake::new(at, format!("unknown path `{path}`"), label)
                    .help("A setting is a path into the scenario and its value."),
            );
            continue;
        }
        let shift = path.len() + 1;
        let text = literal(path, value).then(|| {
            let at = Span { file, start: shift, end: shift + value.len() };
            Node::new(at, Data::Text(value.clone()))
        });
        let Some(value) = text.or_else(|| parse(file, shift, value, review)) else { continue };
        match path.strip_prefix("matrix.") {
            Some(axis) => {
                let mut matrix = root.remove("matrix").map_or(Node::new(at, Data::Null), |entry| entry.value);
                matrix.put(axis, at, value);
                root.put("matrix", at, matrix);
            }
            None => {
                sweep::fix(root, path, &value);
                review.fixed.push(path.clone());
                let something = !value.is_null();
                root.set(path, at, value);
                if something && root.get(path).is_none() {
                    let mistake = Mistake::new(at, format!("`{path}` leads nowhere"), "there is no such item");
                    review.push(mistake.help("The item of a list is named by its `name`, or by its index from 0."));
                }
            }
        }
    }
    spell_out(root, &SCENARIO);
}

/// Whether the value of a setting is text as it is. The shell has quoted it already, so it is YAML only where YAML reads all of
/// it: `@file`, `*`, `a: b` and `a #b` are text where the scenario takes text.
fn literal(path: &str, value: &str) -> bool {
    let written = value.trim();
    if written.is_empty() || written.starts_with(['"', '\'', '[', '{']) && !written.starts_with("{{") {
        return false;
    }
    let mut trial = Review::default();
    let file = trial.sources.add("--set", value, PathBuf::new());
    let Some(node) = parse(file, 0, value, &mut trial).filter(|_| trial.is_clean()) else { return true };
    match node.data {
        Data::List(_) | Data::Map(_) => matches!(
            SCENARIO.kind_at(path),
            Some(Kind::Text | Kind::Secret | Kind::File | Kind::Hub | Kind::Template | Kind::Leaf(_))
        ),
        _ => value.get(node.at.range()) != Some(written),
    }
}

fn known(path: &str) -> bool {
    path.starts_with("matrix.")
        || (path != "extends" && SCENARIO.kind_at(path).is_some_and(|kind| !matches!(kind, Kind::Planned)))
}
