//! The files of a scenario: the chain of `extends`, their merge, and the settings of the command line.

use crate::fault::{Mistake, Review};
use crate::parse::parse;
use crate::patch_names::each_patch;
use crate::schema_table::{Block, Kind};
use crate::sections::scenario::SCENARIO;
use crate::source::{COMMAND_LINE, scenarios_near};
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Entry, Node, Span};
use crate::values::distribution::family_of;
use crate::vars::Variables;
use crate::{Input, files, sweep};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Reads the scenario and the files that it extends, base files first. None where it is not a scenario.
pub(crate) fn read_layers(input: &Input<'_>, review: &mut Review) -> Option<Vec<Node>> {
    let name = input.path.display().to_string();
    let file = match &input.text {
        Some(text) => {
            let folder = input
                .path
                .parent()
                .map(Path::to_path_buf)
                .unwrap_or_default();
            review.sources.add(name.as_str(), text.as_str(), folder)
        }
        None => read_first(input.path, &name, review)?,
    };
    let mut chain = vec![(
        input
            .path
            .canonicalize()
            .unwrap_or_else(|_| input.path.to_path_buf()),
        name,
    )];
    let mut layers = Vec::new();
    let read = add_layer(file, input.env, &mut chain, &mut layers, review);
    if read.is_none() || input.text.is_none() && is_own_output(&layers) {
        if input.text.is_none() && (review.is_clean() || is_foreign(input.path)) {
            let named = argument_span(&input.path.display().to_string(), review);
            let mistake = Mistake::new(
                named,
                format!("{} is not a scenario", input.path.display()),
                "named here",
            );
            review.clear_errors();
            review.push(mistake.help(suggest_file(input.path)));
        }
        return None;
    }
    Some(layers)
}

/// Merges the files; later ones override earlier ones.
pub(crate) fn merge_layers(layers: Vec<Node>) -> Node {
    let nothing = Node::new(Span::default(), Data::Null);
    layers.into_iter().reduce(merge_nodes).unwrap_or(nothing)
}

fn read_first(path: &Path, name: &str, review: &mut Review) -> Option<usize> {
    let at = argument_span(name, review);
    if path.try_exists().is_ok_and(|exists| !exists) {
        let mistake = Mistake::new(at, format!("scenario file not found: {name}"), "named here");
        review.push(mistake.help(suggest_file(path)));
        return None;
    }
    files::load(at, path, name, review)
}

/// The span of a path given on the command line.
fn argument_span(name: &str, review: &mut Review) -> Span {
    Span {
        file: review.sources.add(COMMAND_LINE, name, PathBuf::new()),
        start: 0,
        end: name.len(),
    }
}

/// Suggests a scenario file in place of one that is missing or something else.
fn suggest_file(path: &Path) -> String {
    let files = scenarios_near(path);
    let meant = nearest(stem(path), files.iter().map(|file| stem(Path::new(file))));
    let meant = files
        .iter()
        .find(|file| meant == Some(stem(Path::new(file))));
    match (meant, files.len()) {
        (Some(meant), _) => format!("did you mean {meant}?"),
        (None, 0) => "write a first scenario with: llmscen init".to_owned(),
        (None, ..=MOST_NAMED) => format!("existing scenarios: {}", files.join(", ")),
        (None, all) => format!(
            "existing scenarios: {} and {} more",
            files[..MOST_NAMED].join(", "),
            all - MOST_NAMED
        ),
    }
}

/// The file name without its extension.
fn stem(path: &Path) -> &str {
    path.file_stem()
        .and_then(std::ffi::OsStr::to_str)
        .unwrap_or_default()
}

/// Scenarios that a suggestion lists.
const MOST_NAMED: usize = 8;

/// Whether the extension is not that of YAML or JSON, as in README.md.
fn is_foreign(path: &Path) -> bool {
    path.extension().is_some_and(|ending| {
        !["yaml", "yml", "json"]
            .iter()
            .any(|known| ending.eq_ignore_ascii_case(known))
    })
}

/// Whether the file is results.json or a baseline.
fn is_own_output(layers: &[Node]) -> bool {
    let schema = layers.iter().rev().find_map(|layer| layer.get("schema"));
    schema
        .and_then(Node::text)
        .is_some_and(|schema| schema.starts_with("llmscen/"))
}

/// Adds a file to `layers`, after those that it extends. None where it is not a scenario.
fn add_layer(
    file: usize,
    env: &BTreeMap<String, String>,
    chain: &mut Vec<(PathBuf, String)>,
    layers: &mut Vec<Node>,
    review: &mut Review,
) -> Option<()> {
    let text = review.sources.text(file);
    let mut node = parse(file, 0, &text, review)?;
    let start = Span {
        file,
        start: 0,
        end: text.chars().next().map_or(0, char::len_utf8),
    };
    if !matches!(node.data, Data::Map(_)) {
        let mistake = match node.data {
            Data::Null => Mistake::new(start, "this file is empty", "expected a scenario"),
            _ => Mistake::new(
                start,
                "a scenario must be a mapping",
                format!("this file contains {}", node.noun()),
            ),
        };
        review.push(
            mistake.help("The minimum is `version`, `name`, `target`, `dataset` and `load`."),
        );
        return None;
    }
    spell_out_paths(&mut node);
    spell_out(&mut node, &SCENARIO);
    if let Some(extends) = node.remove("extends")
        && add_base(&extends, env, chain, layers, review).is_none()
    {
        review.partial = true;
    }
    layers.push(node);
    Some(())
}

/// Maximum length of the chain of `extends`.
const MOST_LAYERS: usize = 32;

fn add_base(
    extends: &Entry,
    env: &BTreeMap<String, String>,
    chain: &mut Vec<(PathBuf, String)>,
    layers: &mut Vec<Node>,
    review: &mut Review,
) -> Option<()> {
    let at = extends.value.at;
    let nothing = Node::new(at, Data::Null);
    let none = BTreeSet::new();
    let variables = Variables::new(env, &nothing, &none);
    let value = variables.text(&extends.value, review);
    let Some(named) = value.text() else {
        let label = format!("expected a file name, found {}", extends.value.noun());
        review.push(Mistake::new(at, "`extends` must be text", label));
        return None;
    };
    let path = files::find_file(at, &named, review)?;
    let display_name = review.sources.display_path(at.file, &named, &path);
    if let Some(first) = chain.iter().position(|(earlier, _)| *earlier == path) {
        let names: Vec<&str> = chain[first..]
            .iter()
            .map(|(_, name)| name.as_str())
            .chain([display_name.as_str()])
            .collect();
        let mistake = Mistake::new(at, "circular `extends`", "extends a file that extends it");
        review.push(mistake.help(names.join(" → ")));
        return None;
    }
    if chain.len() > MOST_LAYERS {
        let message = format!("more than {MOST_LAYERS} files extend each other");
        review.push(Mistake::new(at, message, "one too many"));
        return None;
    }
    let file = files::load(at, &path, &display_name, review)?;
    chain.push((path, display_name));
    add_layer(file, env, chain, layers, review)
}

/// Keys that a file of objectives may override.
const OBJECTIVES: [&str; 5] = ["slo", "slo_defaults", "presets", "baseline", "reference"];
/// Keys that only a scenario has.
const SCENARIOS_OWN: [&str; 5] = ["extends", "target", "dataset", "load", "mix"];

/// The objectives of a file, as a mapping. None where it is a scenario, or where an error was reported.
pub(crate) fn objectives(path: &Path, review: &mut Review) -> Option<Node> {
    let file = read_first(path, &path.display().to_string(), review)?;
    let text = review.sources.text(file);
    let node = parse(file, 0, &text, review)?;
    let at = node.at.before();
    match &node.data {
        Data::List(_) => {
            let entry = Entry {
                key: "slo".to_owned(),
                key_at: at,
                value: node,
            };
            Some(Node::new(at, Data::Map(vec![entry])))
        }
        Data::Map(entries)
            if entries
                .iter()
                .any(|entry| SCENARIOS_OWN.contains(&entry.key.as_str())) =>
        {
            None
        }
        Data::Map(entries) => {
            for entry in entries
                .iter()
                .filter(|entry| !OBJECTIVES.contains(&entry.key.as_str()))
            {
                let mistake = Mistake::new(
                    entry.key_at,
                    format!("unknown key `{}`", entry.key),
                    "not a key of a file of SLOs",
                );
                review.push(mistake.help(format!(
                    "Keys of a file of SLOs are {}.",
                    list(OBJECTIVES, "and")
                )));
            }
            review.is_clean().then_some(node)
        }
        _ => {
            let found = if node.is_null() {
                "this file is empty".to_owned()
            } else {
                format!("this file contains {}", node.noun())
            };
            let first = Span {
                end: at.start + text.chars().next().map_or(0, char::len_utf8),
                ..at
            };
            let mistake = Mistake::new(first, found, "expected a list of SLOs, or a scenario");
            review.push(mistake.help("For example `[\"ttft.p95 < 500ms\"]`."));
            None
        }
    }
}

/// Replaces entries of `root` by those of `over`.
pub(crate) fn replace(root: &mut Node, over: Node) {
    if let Data::Map(entries) = over.data {
        for entry in entries {
            root.remove(&entry.key);
            root.set_key(&entry.key, entry.key_at, entry.value);
        }
    }
    spell_out(root, &SCENARIO);
}

/// Whether two mappings are distributions of different families. A distribution is one value.
fn is_other_distribution(base: &[Entry], over: &[Entry]) -> bool {
    let families = family_of(base).zip(family_of(over));
    families.is_some_and(|(base, over)| base != over)
}

/// Merges mappings; everything else is replaced.
pub(crate) fn merge_nodes(base: Node, over: Node) -> Node {
    match (base.data, over.data) {
        (Data::Map(entries), Data::Map(over_entries))
            if is_other_distribution(&entries, &over_entries) =>
        {
            Node {
                data: Data::Map(over_entries),
                at: over.at,
                parts: over.parts,
            }
        }
        (Data::Map(mut entries), Data::Map(over_entries)) => {
            let index: HashMap<String, usize> = entries
                .iter()
                .enumerate()
                .map(|(at, entry)| (entry.key.clone(), at))
                .collect();
            for entry in over_entries {
                match index.get(&entry.key).copied() {
                    Some(index) => {
                        let known = std::mem::replace(
                            &mut entries[index].value,
                            Node::new(over.at, Data::Null),
                        );
                        entries[index] = Entry {
                            // A body is one value.
                            value: match entry.key.as_str() {
                                "template" => entry.value,
                                _ => merge_nodes(known, entry.value),
                            },
                            ..entry
                        };
                    }
                    None => entries.push(entry),
                }
            }
            Node {
                data: Data::Map(entries),
                at: over.at,
                parts: None,
            }
        }
        (_, data) => Node {
            data,
            at: over.at,
            parts: over.parts,
        },
    }
}

/// Turns keys of patches that are paths into mappings: `target.gpus: 8` is `target: { gpus: 8 }`.
fn spell_out_paths(layer: &mut Node) {
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

/// Expands short forms before the merge: `dataset: openqa` becomes `dataset: { kind: openqa }`.
fn spell_out(node: &mut Node, table: &'static Block) {
    let Data::Map(entries) = &mut node.data else {
        return;
    };
    for entry in entries {
        match table
            .fields
            .iter()
            .find(|field| field.name == entry.key)
            .map(|field| &field.kind)
        {
            Some(Kind::Block(block) | Kind::Over(block)) => spell_out_one(&mut entry.value, block),
            Some(Kind::List(Kind::Block(block))) => spell_out_items(&mut entry.value, block),
            Some(Kind::OneOrMore(block)) if matches!(entry.value.data, Data::List(_)) => {
                spell_out_items(&mut entry.value, block);
            }
            Some(Kind::OneOrMore(block)) => spell_out_one(&mut entry.value, block),
            Some(Kind::Map(Kind::List(Kind::Block(block)))) => {
                if let Data::Map(lists) = &mut entry.value.data {
                    lists
                        .iter_mut()
                        .for_each(|list| spell_out_items(&mut list.value, block));
                }
            }
            Some(Kind::Map(Kind::Over(block))) => {
                if let Data::Map(parts) = &mut entry.value.data {
                    parts
                        .iter_mut()
                        .for_each(|part| spell_out_one(&mut part.value, block));
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
        node.data = Data::Map(vec![Entry {
            key: key.to_owned(),
            key_at: at,
            value,
        }]);
    }
    spell_out(node, block);
}

pub(crate) fn set(root: &mut Node, settings: &[(String, String)], review: &mut Review) {
    for (path, value) in settings {
        let file = review
            .sources
            .add("--set", format!("{path}={value}"), PathBuf::new());
        let at = Span {
            file,
            start: 0,
            end: path.len(),
        };
        if !is_settable(path) {
            let paths: Vec<String> = SCENARIO
                .scalar_paths()
                .into_iter()
                .map(|(path, _)| path)
                .collect();
            let near = nearest(path, paths.iter().map(String::as_str));
            let label = meant_or(near, "does not exist");
            review.push(
                Mistake::new(at, format!("unknown path `{path}`"), label)
                    .help("Usage: --set PATH=VALUE, for example --set load.concurrency=4"),
            );
            continue;
        }
        let shift = path.len() + 1;
        let text = is_literal(path, value).then(|| {
            let at = Span {
                file,
                start: shift,
                end: shift + value.len(),
            };
            Node::new(at, Data::Text(value.clone()))
        });
        let Some(value) = text.or_else(|| parse(file, shift, value, review)) else {
            continue;
        };
        match path.strip_prefix("matrix.") {
            Some(axis) => {
                let mut matrix = root
                    .remove("matrix")
                    .map_or(Node::new(at, Data::Null), |entry| entry.value);
                matrix.set_key(axis, at, value);
                root.set_key("matrix", at, matrix);
            }
            None => {
                sweep::override_axis(root, path, &value);
                review.fixed.push(path.clone());
                let something = !value.is_null();
                root.set(path, at, value);
                if something && root.get(path).is_none() {
                    let mistake =
                        Mistake::new(at, format!("`{path}` does not exist"), "no such item");
                    review.push(
                        mistake
                            .help("Items of a list are addressed by `name`, or by index from 0."),
                    );
                }
            }
        }
    }
    spell_out(root, &SCENARIO);
}

/// Whether the value of a setting is plain text. The shell has already removed quotes, so it is YAML only where YAML
/// reads all of it: `@file`, `*`, `a: b` and `a #b` are text where the field takes text.
fn is_literal(path: &str, value: &str) -> bool {
    let written = value.trim();
    if written.is_empty()
        || written.starts_with(['"', '\'', '[', '{']) && !written.starts_with("{{")
    {
        return false;
    }
    let mut trial = Review::default();
    let file = trial.sources.add("--set", value, PathBuf::new());
    let Some(node) = parse(file, 0, value, &mut trial).filter(|_| trial.is_clean()) else {
        return true;
    };
    match node.data {
        Data::List(_) | Data::Map(_) => matches!(
            SCENARIO.kind_at(path),
            Some(
                Kind::Text
                    | Kind::Secret
                    | Kind::File
                    | Kind::Data
                    | Kind::Hub
                    | Kind::Template
                    | Kind::Leaf(_)
            )
        ),
        _ => value.get(node.at.range()) != Some(written),
    }
}

fn is_settable(path: &str) -> bool {
    path.starts_with("matrix.")
        || (path != "extends"
            && SCENARIO
                .kind_at(path)
                .is_some_and(|kind| !matches!(kind, Kind::Planned)))
}
