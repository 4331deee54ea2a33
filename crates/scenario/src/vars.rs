//! Replaces `${ENV}`, `${ENV:-default}` and `{{ vars.x }}` in all texts.
//!
//! `$${` is a literal `${` and `{{ "{{" }}` a literal `{{`. A text that is a single variable gets the type of its
//! value. In request bodies only `{{ vars.x }}` and fields of the scenario (`{{ target.model }}`) are replaced; the
//! renderer evaluates the rest. A reference to a swept field is replaced when its case is created.

mod interpolation;

use crate::fault::{Mistake, Review};
use crate::patch_names::PATCHES;
use crate::suggest::{meant_or, nearest};
use crate::tree::{Data, Entry, Node, Part, Span, joined};
use crate::vars::interpolation::{Meaning, Piece};
use llmscen_core::bounds;
use llmscen_core::url_secrets::is_secret_name;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum length of a chain of references; longer ones are circular.
const MOST_STEPS: usize = 16;

/// Maximum size of the replaced variables in bytes; each value counts as [`VALUE`].
const MOST_BYTES: usize = 64 << 20;
const VALUE: usize = 64;
/// Maximum depth of all references that are followed at once.
const DEEPEST: usize = 150;

/// Sections that a file of objectives may override in a stored plan.
const JUDGING: [&str; 4] = ["slo", "presets", "baseline", "reference"];

/// Replaces variables.
pub(crate) struct Variables<'a> {
    pub env: &'a BTreeMap<String, String>,
    /// The scenario that references read.
    pub root: &'a Node,
    pub swept: &'a BTreeSet<String>,
    vars: OnceCell<HashMap<String, usize>>,
}

/// A piece of the text of a node.
#[derive(Clone, Copy)]
struct Site<'a> {
    node: &'a Node,
    text: &'a str,
    piece: &'a Piece,
}

impl Site<'_> {
    fn span(&self, review: &Review) -> Span {
        review
            .sources
            .part(self.node, self.text, self.piece.range.clone())
    }
}

/// The syntax of a text.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// `{{ … }}` is a reference to the scenario.
    Plain,
    /// `{{ … }}` is evaluated by the renderer, except for references to the scenario.
    Body,
}

impl<'a> Variables<'a> {
    pub fn new(
        env: &'a BTreeMap<String, String>,
        root: &'a Node,
        swept: &'a BTreeSet<String>,
    ) -> Variables<'a> {
        Variables {
            env,
            root,
            swept,
            vars: OnceCell::new(),
        }
    }

    /// Replaces the variables in all sections except `vars`.
    pub fn scenario(&self, review: &mut Review) -> Node {
        let mut root = self.root.clone();
        review.expanded.bytes = 0;
        if let Data::Map(entries) = &mut root.data {
            for entry in entries.iter_mut().filter(|entry| entry.key != "vars") {
                review.section.clone_from(&entry.key);
                *entry = self.entry(entry, "", review);
            }
        }
        review.section.clear();
        root
    }

    /// Replaces references to the scenario in a request body.
    pub fn body(&self, node: &Node, review: &mut Review) -> Node {
        self.node(node, Mode::Body, 0, review)
    }

    pub fn text(&self, node: &Node, review: &mut Review) -> Node {
        self.node(node, Mode::Plain, 0, review)
    }

    fn entry(&self, entry: &Entry, prefix: &str, review: &mut Review) -> Entry {
        let path = format!("{prefix}{}", entry.key);
        let is_body = |path: &str| {
            let path = path
                .strip_prefix("mix.")
                .and_then(|rest| rest.split_once('.'))
                .map_or(path, |(_, rest)| rest);
            path.starts_with("request.template") || path.starts_with("request.extra")
        };
        let value = match &entry.value.data {
            Data::Map(_) if path == "request" || path == "matrix" => self.entries(
                &entry.value,
                if path == "request" { "request." } else { "" },
                review,
            ),
            // A patch has the paths of the scenario.
            Data::Map(patches) if PATCHES.iter().any(|kind| kind.section == path) => {
                let inner = |patch: &Entry| Entry {
                    value: self.entries(&patch.value, "", review),
                    ..patch.clone()
                };
                Node {
                    data: Data::Map(patches.iter().map(inner).collect()),
                    ..entry.value.clone()
                }
            }
            Data::List(items) if path == "mix" => {
                let items = items
                    .iter()
                    .map(|item| self.entries(item, "", review))
                    .collect();
                Node {
                    data: Data::List(items),
                    ..entry.value.clone()
                }
            }
            _ => self.node(
                &entry.value,
                if is_body(&path) {
                    Mode::Body
                } else {
                    Mode::Plain
                },
                0,
                review,
            ),
        };
        Entry {
            value,
            ..entry.clone()
        }
    }

    /// Replaces variables in a mapping whose keys have a prefix.
    fn entries(&self, node: &Node, prefix: &str, review: &mut Review) -> Node {
        if !matches!(node.data, Data::Map(_)) {
            return self.node(node, Mode::Plain, 0, review);
        }
        let entries = node
            .entries()
            .iter()
            .map(|inner| self.entry(inner, prefix, review))
            .collect();
        Node {
            data: Data::Map(entries),
            ..node.clone()
        }
    }

    fn node(&self, node: &Node, mode: Mode, step: usize, review: &mut Review) -> Node {
        if self.spend(VALUE, node.at, review) || review.expanded.depth == DEEPEST {
            if review.expanded.depth == DEEPEST {
                let message = format!("references with more than {DEEPEST} levels of nesting");
                review.push(Mistake::new(node.at, message, "nested too deep here"));
            }
            return Node::new(node.at, Data::Null);
        }
        review.expanded.depth += 1;
        let expanded = self.below(node, mode, step, review);
        review.expanded.depth -= 1;
        expanded
    }

    /// Adds `bytes` to the size of the replaced variables; returns whether it exceeds the maximum, which is reported
    /// once.
    fn spend(&self, bytes: usize, at: Span, review: &mut Review) -> bool {
        review.expanded.bytes = review.expanded.bytes.saturating_add(bytes);
        let spent = review.expanded.bytes > MOST_BYTES;
        if spent && !std::mem::replace(&mut review.expanded.is_reported, true) {
            let message = format!(
                "the variables of this scenario expand to more than {}",
                bounds::size(MOST_BYTES as u64)
            );
            review.push(Mistake::new(at, message, "one too many"));
        }
        spent
    }

    fn below(&self, node: &Node, mode: Mode, step: usize, review: &mut Review) -> Node {
        let data = match &node.data {
            Data::List(items) => Data::List(
                items
                    .iter()
                    .map(|item| self.node(item, mode, step, review))
                    .collect(),
            ),
            Data::Map(entries) => {
                let inner = |entry: &Entry| Entry {
                    value: self.node(&entry.value, mode, step, review),
                    ..entry.clone()
                };
                Data::Map(entries.iter().map(inner).collect())
            }
            Data::Text(text) => return self.leaf(node, text, mode, step, review),
            _ => return node.clone(),
        };
        Node {
            data,
            ..node.clone()
        }
    }

    fn leaf(&self, node: &Node, text: &str, mode: Mode, step: usize, review: &mut Review) -> Node {
        let pieces = match &node.parts {
            Some(parts) => interpolation::from_parts(parts),
            None => interpolation::from_text(text, mode == Mode::Body),
        };
        if let [
            Piece {
                meaning: Meaning::Ref(path),
                ..
            },
        ] = pieces.as_slice()
            && !self.swept.contains(path)
        {
            let found = self.refer(
                path,
                Site {
                    node,
                    text,
                    piece: &pieces[0],
                },
                step,
                review,
            );
            return found.map_or(node.clone(), |found| Node {
                at: node.at,
                ..found
            });
        }
        if node.parts.is_none() && pieces.iter().all(|piece| piece.meaning == Meaning::AsIs) {
            return node.clone();
        }
        let alone = matches!(
            pieces.as_slice(),
            [Piece {
                meaning: Meaning::Env { .. },
                ..
            }]
        );
        let mut parts: Vec<Part> = Vec::new();
        for piece in &pieces {
            let replaced = self.parts(Site { node, text, piece }, step, review);
            if self.spend(replaced.iter().map(length).sum(), node.at, review) {
                break;
            }
            parts.extend(replaced);
        }
        let text = joined(&parts);
        let data = if alone {
            Data::plain(&text)
        } else {
            Data::Text(text)
        };
        Node {
            at: node.at,
            data,
            parts: Some(parts.into()),
        }
    }

    fn parts(&self, site: Site<'_>, step: usize, review: &mut Review) -> Vec<Part> {
        match &site.piece.meaning {
            Meaning::AsIs => vec![Part::Literal(
                site.text[site.piece.range.clone()].to_owned(),
            )],
            Meaning::Literal(text) => vec![Part::Literal(text.clone())],
            Meaning::Known(part) => vec![part.clone()],
            Meaning::Wrong(message, help) => {
                let at = site.span(review);
                review.push(
                    Mistake::new(at, message.clone(), "cannot be replaced").help(help.clone()),
                );
                Vec::new()
            }
            Meaning::Env { name, default } => {
                self.variable(name, default.as_deref(), site, step, review)
            }
            Meaning::Ref(path) if self.swept.contains(path) => vec![Part::Ref(path.clone())],
            Meaning::Ref(path) => {
                let found = self.refer(path, site, step, review);
                found.map_or(Vec::new(), |found| self.inline(path, found, site, review))
            }
        }
    }

    /// The default also applies to an empty variable, as in a shell and in Compose.
    fn variable(
        &self,
        name: &str,
        default: Option<&str>,
        site: Site<'_>,
        step: usize,
        review: &mut Review,
    ) -> Vec<Part> {
        // A stored plan keeps the name of a variable, whatever its value is now. Objectives may come from another file.
        let by_name = review.sources.stored
            && default.is_none()
            && !is_secret_name(name)
            && !JUDGING.contains(&&*review.section);
        let value = self
            .env
            .get(name)
            .filter(|value| !by_name && (default.is_none() || !value.is_empty()));
        if let Some(value) = value {
            return vec![Part::Env {
                name: name.to_owned(),
                value: value.clone(),
            }];
        }
        if let Some(default) = default {
            if step == MOST_STEPS {
                let message = format!("more than {MOST_STEPS} nested defaults");
                review.push(Mistake::new(site.node.at, message, "too deep"));
                return Vec::new();
            }
            let inner = Node::new(site.node.at, Data::Text(default.to_owned()));
            let inner = self.leaf(&inner, default, Mode::Body, step + 1, review);
            return inner
                .parts
                .map_or(vec![Part::Literal(default.to_owned())], |parts| {
                    parts.to_vec()
                });
        }
        if review.sources.stored {
            return vec![Part::Env {
                name: name.to_owned(),
                value: format!("${{{name}}}"),
            }];
        }
        let at = site.span(review);
        let known = self
            .env
            .keys()
            .map(String::as_str)
            .filter(|_| !review.is_flooded());
        let label = meant_or(
            nearest(name, known).filter(|near| *near != name),
            "is not set",
        );
        let mistake = Mistake::new(
            at,
            format!("environment variable `{name}` is not set"),
            label,
        );
        review.lacks(
            site.node.at,
            name,
            mistake.help(format!("Set it, or give a default: ${{{name}:-…}}.")),
        );
        Vec::new()
    }

    fn refer(&self, path: &str, site: Site<'_>, step: usize, review: &mut Review) -> Option<Node> {
        let at = site.span(review);
        if step == MOST_STEPS {
            review.push(Mistake::new(
                at,
                format!("`{path}` refers to itself"),
                "a circular reference",
            ));
            return None;
        }
        if let Some(found) = self.find(path) {
            let value = self.node(found, Mode::Plain, step + 1, review);
            review.inherit(found.at, site.node.at);
            return Some(value);
        }
        let names = if review.is_flooded() {
            Vec::new()
        } else {
            self.names()
        };
        let label = meant_or(
            nearest(path, names.iter().map(String::as_str)),
            "does not exist",
        );
        let mistake = Mistake::new(at, format!("unknown reference `{path}`"), label);
        review.push(mistake.help(
            "A text may refer to `vars` and to fields that this file sets; \
        {{ \"{{\" }} is two braces.",
        ));
        None
    }

    /// The value at a path. `vars` may have thousands of entries, so they are indexed by name.
    fn find(&self, path: &str) -> Option<&Node> {
        let (section, name) = path.split_once('.').unwrap_or((path, ""));
        if section != "vars" || name.is_empty() || name.contains('.') {
            return self.root.get(path);
        }
        let vars = self.vars.get_or_init(|| {
            let entries = self
                .root
                .entry("vars")
                .map(|vars| vars.value.entries())
                .unwrap_or_default();
            entries
                .iter()
                .enumerate()
                .map(|(at, entry)| (entry.key.clone(), at))
                .collect()
        });
        let entry = self
            .root
            .entry("vars")?
            .value
            .entries()
            .get(*vars.get(name)?)?;
        (!entry.value.is_null()).then_some(&entry.value)
    }

    fn names(&self) -> Vec<String> {
        let names = self.root.entries().iter().flat_map(|section| {
            let inner = section
                .value
                .entries()
                .iter()
                .map(|entry| format!("{}.{}", section.key, entry.key));
            inner
                .chain(std::iter::once(section.key.clone()))
                .collect::<Vec<_>>()
        });
        names.collect()
    }

    fn inline(&self, path: &str, found: Node, site: Site<'_>, review: &mut Review) -> Vec<Part> {
        match (found.parts, found.data) {
            (_, Data::List(_) | Data::Map(_)) => {
                let at = site.span(review);
                review.push(Mistake::new(
                    at,
                    format!("`{path}` cannot be inserted into a text"),
                    "is a list or a mapping",
                ));
                Vec::new()
            }
            (Some(parts), _) => parts.to_vec(),
            (None, Data::Text(text)) => vec![Part::Literal(text)],
            (None, data) => vec![Part::Literal(
                Node::new(site.node.at, data).json().to_string(),
            )],
        }
    }
}

fn length(part: &Part) -> usize {
    match part {
        Part::Literal(text) | Part::Env { value: text, .. } | Part::Ref(text) => text.len(),
    }
}
