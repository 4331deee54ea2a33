//! Writes the resolved plan, which is a scenario that repeats the run: with all defaults, variables replaced,
//! absolute file names, and `${NAME}` in place of secrets.

use crate::fault::Review;
use crate::schema_table::{Block, Kind, Leaf};
use crate::secrets::{
    TextSyntax, USUAL_HEADERS, behind_flags, by_name, by_variable, escape_text, from_env,
    is_hidden, keeps_name, looks_secret, write_part, write_text,
};
use crate::sections::local;
use crate::tree::{Data, Node, Part, joined, last_segment};
use crate::values::command::{ARGUMENT, COMMAND, command};
use crate::values::distribution::inline_files;
use crate::{patch_names, yaml};
use llmscen_core::redact::is_distinct;
use llmscen_core::url_secrets::{is_secret_name, is_url, needs_placeholder, secret_ranges};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Writes a tree; counts secrets without a variable.
struct Writer<'r> {
    review: &'r mut Review,
    unnamed: usize,
    /// Whether model names may be files.
    local: bool,
    /// Secrets that may occur in a command.
    known: Vec<String>,
}

/// Whether the value of a header may be a secret, whatever its name; that of an objective of a gateway is none.
fn is_secret_header(name: &str, value: &Node) -> bool {
    let name = name.to_lowercase();
    !USUAL_HEADERS.contains(&name.as_str())
        && !name.ends_with("-objective")
        && value.text().is_some_and(|text| is_distinct(&text))
}

pub(crate) fn resolve(root: &Node, table: &'static Block, review: &mut Review) -> String {
    let mut writer = Writer {
        review,
        unnamed: 0,
        local: local::is_possible(root),
        known: known_secrets(root),
    };
    let value = Value::Object(writer.block(root, table));
    yaml::write(&value)
}

/// The id of a plan: 16 hex digits of SHA-256. Labels describe what is measured, not how, so they are not part of it.
pub(crate) fn plan_id(resolved: &str) -> String {
    let mut is_label = false;
    let lines = resolved.split_inclusive('\n').filter(|line| {
        if !line.starts_with(' ') {
            is_label = line.starts_with("labels:");
        }
        !is_label
    });
    hex_digest(&lines.collect::<String>(), 8)
}

/// The first bytes of a text's SHA-256, in hex.
pub(crate) fn hex_digest(text: &str, bytes: usize) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .take(bytes)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Writer<'_> {
    fn block(&mut self, node: &Node, table: &'static Block) -> Map<String, Value> {
        let mut mapping = Map::new();
        for field in table
            .fields
            .iter()
            .filter(|field| !["extends", "vars"].contains(&field.name))
        {
            if let Some(entry) = node.entry_at(field.name) {
                let value = self.value(&entry.value, &field.kind, field.name);
                mapping.insert(field.name.to_owned(), value);
            }
        }
        mapping
    }

    /// Keys that override another block; `null` removes one.
    fn over(&mut self, node: &Node, table: &'static Block) -> Map<String, Value> {
        let mut mapping = self.block(node, table);
        let nothing = node.entries().iter().filter(|entry| entry.value.is_null());
        mapping.extend(nothing.map(|entry| (entry.key.clone(), Value::Null)));
        mapping
    }

    fn value(&mut self, node: &Node, kind: &'static Kind, name: &str) -> Value {
        match kind {
            Kind::Text if name == "url" => self.address(node),
            Kind::Text | Kind::File | Kind::Data | Kind::Hub | Kind::Leaf(_)
                if name != "text" && node.text().is_some_and(|text| is_url(&text)) =>
            {
                self.address(node)
            }
            Kind::Block(table) => Value::Object(self.block(node, table)),
            Kind::Over(table) => Value::Object(self.over(node, table)),
            Kind::OneOrMore(table) if node.items().is_empty() => {
                Value::Object(self.block(node, table))
            }
            Kind::OneOrMore(table) => Value::Array(
                node.items()
                    .iter()
                    .map(|item| Value::Object(self.block(item, table)))
                    .collect(),
            ),
            Kind::List(kind) => Value::Array(
                node.items()
                    .iter()
                    .map(|item| self.value(item, kind, name))
                    .collect(),
            ),
            Kind::Map(kind) => self.map(node, kind, name),
            Kind::Matrix => self.matrix(node),
            Kind::File | Kind::Data => self.file(node),
            Kind::Hub => self.hub(node),
            Kind::SecretOr(table) if node.text().is_none() => {
                Value::Object(self.block(node, table))
            }
            Kind::Secret | Kind::SecretOr(_) => self.secret(node, name),
            Kind::Leaf(leaf) if is_command_leaf(leaf) => self.words(node, name),
            Kind::Leaf(_) if name == "model" && self.local => self.model(node),
            Kind::Leaf(leaf) => inline_files(node, leaf, self.review)
                .unwrap_or_else(|| self.free(node, TextSyntax::Text)),
            Kind::Text if name == "system" => self.by_reference(node),
            Kind::Text if name == "text" => self.prompt(node),
            Kind::Text => self.text(node),
            Kind::Template if node.text().is_some() => self.file(node),
            Kind::Json | Kind::Template => self.free(node, TextSyntax::Body),
            _ => self.free(node, TextSyntax::Text),
        }
    }

    /// A mapping with free keys, such as headers. The key decides whether a value is a secret.
    fn map(&mut self, node: &Node, kind: &'static Kind, name: &str) -> Value {
        let entry = |writer: &mut Self, key: &str, value: &Node| match kind {
            Kind::Secret
                if !(is_secret_name(key)
                    || from_env(value)
                    || name == "headers" && is_secret_header(key, value)) =>
            {
                writer.text(value)
            }
            Kind::Json if is_hidden(key, value) => writer.secret(value, key),
            kind => writer.value(value, kind, key),
        };
        let pairs = node.entries().iter().map(|own_entry| {
            (
                own_entry.key.clone(),
                entry(self, &own_entry.key, &own_entry.value),
            )
        });
        Value::Object(pairs.collect())
    }

    fn matrix(&mut self, node: &Node) -> Value {
        let pairs = node.entries().iter().map(|entry| {
            let value = match (entry.key.as_str(), &entry.value.data) {
                ("zip", Data::Map(_)) => self.matrix(&entry.value),
                ("zip" | "include" | "exclude" | "only", Data::List(rows)) => {
                    Value::Array(rows.iter().map(|row| self.matrix(row)).collect())
                }
                (path, Data::List(items)) => {
                    Value::Array(items.iter().map(|item| self.swept(item, path)).collect())
                }
                (path, _) => self.swept(&entry.value, path),
            };
            (entry.key.clone(), value)
        });
        Value::Object(pairs.collect())
    }

    fn swept(&mut self, node: &Node, path: &str) -> Value {
        match crate::sections::scenario::SCENARIO.kind_at(path) {
            _ if is_hidden(last_segment(path), node) => self.secret(node, last_segment(path)),
            Some(Kind::Template) => self.file(node),
            Some(kind) => self.value(node, kind, last_segment(path)),
            None => self.free(node, TextSyntax::Text),
        }
    }

    fn free(&mut self, node: &Node, syntax: TextSyntax) -> Value {
        match &node.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::from(*value),
            Data::Int(value) if !keeps_name(node, syntax) => Value::from(*value),
            Data::Float(value) if !keeps_name(node, syntax) => Value::from(*value),
            Data::List(items) => {
                Value::Array(items.iter().map(|item| self.free(item, syntax)).collect())
            }
            Data::Map(entries) => {
                let pairs = entries.iter().map(|entry| {
                    let value = if is_hidden(&entry.key, &entry.value) {
                        self.secret(&entry.value, &entry.key)
                    } else {
                        self.free(&entry.value, syntax)
                    };
                    (entry.key.clone(), value)
                });
                Value::Object(pairs.collect())
            }
            // A setting such as `target.url` may be one URL or a list of them.
            Data::Text(text) if syntax == TextSyntax::Text && is_url(text) => self.address(node),
            _ => Value::from(write_text(node, syntax)),
        }
    }

    fn text(&mut self, node: &Node) -> Value {
        Value::from(write_text(node, TextSyntax::Text))
    }

    fn file(&mut self, node: &Node) -> Value {
        let found = node
            .text()
            .and_then(|named| self.review.sources.find(node.at.file, &named));
        found.map_or_else(
            || self.text(node),
            |path| Value::from(escape_text(&path.display().to_string(), TextSyntax::Text)),
        )
    }

    fn model(&mut self, node: &Node) -> Value {
        let found = node
            .text()
            .and_then(|named| local::locate(node.at.file, &named, self.review));
        found.map_or_else(
            || self.free(node, TextSyntax::Text),
            |path| Value::from(escape_text(&path, TextSyntax::Text)),
        )
    }

    fn hub(&mut self, node: &Node) -> Value {
        let found = node
            .text()
            .and_then(|named| self.review.sources.find_or_hub(node.at.file, &named));
        found.map_or_else(
            || self.text(node),
            |name| Value::from(escape_text(&name, TextSyntax::Text)),
        )
    }

    fn prompt(&mut self, node: &Node) -> Value {
        let found = node.text().and_then(|text| {
            self.review
                .sources
                .find(node.at.file, text.strip_prefix('@')?)
        });
        found.map_or_else(
            || self.by_reference(node),
            |path| {
                Value::from(escape_text(
                    &format!("@{}", path.display()),
                    TextSyntax::Text,
                ))
            },
        )
    }

    /// A text that is sent to the server: long values of variables are written by name.
    fn by_reference(&mut self, node: &Node) -> Value {
        let Some(parts) = &node.parts else {
            return self.text(node);
        };
        let one = |part: &Part| match part {
            Part::Env { value, .. } if needs_placeholder(value) => by_name(part),
            part => write_part(part, TextSyntax::Text),
        };
        Value::from(parts.iter().map(one).collect::<String>())
    }

    /// Writes a secret by the name of its variable; a literal secret gets a generated name.
    fn secret(&mut self, node: &Node, name: &str) -> Value {
        if let Some(text) = node.parts.as_deref().and_then(by_variable) {
            return Value::from(text);
        }
        let variable = self.name(node, name);
        Value::from(variable)
    }

    fn name(&mut self, node: &Node, name: &str) -> String {
        self.unnamed += 1;
        let variable = format!("LLMSCEN_SECRET_{}", self.unnamed);
        let what = match name == "url" || is_secret_name(name) {
            true => format!("`{name}` holds a secret in plain text"),
            false => format!("the value of `{name}` may be a secret and is not stored"),
        };
        self.review.warn(
            node.at,
            format!("{what}; the stored plan uses ${{{variable}}}"),
        );
        format!("${{{variable}}}")
    }

    /// Writes a URL without its password and secret parameters.
    fn address(&mut self, node: &Node) -> Value {
        let Some(text) = node.text() else {
            return self.free(node, TextSyntax::Text);
        };
        let hidden = secret_ranges(&text);
        let literal_parts = [Part::Literal(text.to_string())];
        let mut masked = String::new();
        let mut start = 0;
        for part in node.parts.as_deref().unwrap_or(&literal_parts) {
            let length = joined(std::slice::from_ref(part)).len();
            let range_of_part = start..start + length;
            start += length;
            let touches = hidden
                .iter()
                .any(|range| range.start < range_of_part.end && range_of_part.start < range.end);
            masked += &match part {
                Part::Env { .. } if touches => by_name(part),
                Part::Literal(text) if touches => {
                    self.hide(node, text, range_of_part.start, &hidden)
                }
                part => write_part(part, TextSyntax::Text),
            };
        }
        Value::from(masked)
    }

    /// Replaces secrets in the part of a URL that starts at byte `start`.
    fn hide(&mut self, node: &Node, text: &str, start: usize, hidden: &[Range<usize>]) -> String {
        let mut masked = String::new();
        let mut done = 0;
        for range in hidden
            .iter()
            .filter(|range| range.start < start + text.len() && start < range.end)
        {
            let from = range.start.saturating_sub(start);
            let to = (range.end - start).min(text.len());
            masked += &escape_text(&text[done..from], TextSyntax::Text);
            masked += &self.name(node, "url");
            done = to;
        }
        masked + &escape_text(&text[done..], TextSyntax::Text)
    }

    /// Writes a command or an argument.
    fn words(&mut self, node: &Node, name: &str) -> Value {
        match &node.data {
            Data::List(items) => {
                Value::Array(items.iter().map(|item| self.words(item, name)).collect())
            }
            Data::Text(_) if is_secret_name(name) => self.secret(node, name),
            Data::Int(_) | Data::Float(_)
                if is_secret_name(name) && looks_secret(&node.json().to_string()) =>
            {
                self.secret(node, name)
            }
            _ => self.veiled_words(node, name),
        }
    }

    fn veiled_words(&mut self, node: &Node, name: &str) -> Value {
        let text = node.string().unwrap_or_default();
        let words = if name == "command" {
            command(node).unwrap_or_default()
        } else {
            Vec::new()
        };
        let mut secrets: Vec<String> = behind_flags(&words)
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        let spelled_otherwise = secrets.iter().any(|secret| !text.contains(secret.as_str()));
        secrets.extend(
            self.known
                .iter()
                .filter(|secret| text.contains(secret.as_str()))
                .cloned(),
        );
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        if secrets.is_empty() {
            return self.free(node, TextSyntax::Text);
        }
        let literal_parts = [Part::Literal(text)];
        let parts = node.parts.as_deref().unwrap_or(&literal_parts);
        let within = |secret: &String, part: &Part| match part {
            Part::Literal(text) => text.contains(secret.as_str()),
            Part::Env { value, .. } => value.contains(secret.as_str()),
            Part::Ref(_) => false,
        };
        if spelled_otherwise
            || secrets
                .iter()
                .any(|secret| !parts.iter().any(|part| within(secret, part)))
        {
            return Value::from(self.name(node, name));
        }
        let literal = |part: &Part| matches!(part, Part::Literal(_));
        let mut names: Vec<(String, String)> = Vec::new();
        for secret in &secrets {
            let covered = names
                .iter()
                .any(|(longer, _)| longer.contains(secret.as_str()));
            if !covered
                && parts
                    .iter()
                    .any(|part| literal(part) && within(secret, part))
            {
                let variable = self.name(node, name);
                names.push((secret.clone(), variable));
            }
        }
        let one = |part: &Part| match part {
            Part::Literal(text) => hide_in_text(text, &names),
            Part::Env { .. } if secrets.iter().any(|secret| within(secret, part)) => by_name(part),
            part => write_part(part, TextSyntax::Text),
        };
        Value::from(parts.iter().map(one).collect::<String>())
    }
}

/// Whether values of this kind are words of a command.
fn is_command_leaf(leaf: &'static Leaf) -> bool {
    std::ptr::eq(leaf, &COMMAND) || std::ptr::eq(leaf, &ARGUMENT)
}

/// All secrets of a target, longest first.
fn known_secrets(root: &Node) -> Vec<String> {
    let mut all: Vec<String> = std::iter::once(root)
        .chain(patch_names::nodes(root))
        .flat_map(secrets_of_tree)
        .collect();
    all.sort();
    all.dedup();
    all
}

/// The secrets of a scenario or of a patch.
fn secrets_of_tree(root: &Node) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut take = |node: &Node| match &node.data {
        Data::List(items) => all.extend(items.iter().filter_map(|item| item.string())),
        _ => all.extend(node.string()),
    };
    root.entry_at("target.api_key")
        .iter()
        .for_each(|entry| take(&entry.value));
    for path in ["target.headers", "target.server.env", "target.server.args"] {
        let entries = root
            .entry_at(path)
            .map(|entry| entry.value.entries())
            .unwrap_or_default();
        entries
            .iter()
            .filter(|entry| is_secret_name(&entry.key))
            .for_each(|entry| take(&entry.value));
    }
    let words = root
        .entry_at("target.server.command")
        .and_then(|entry| command(&entry.value))
        .unwrap_or_default();
    all.extend(behind_flags(&words).into_iter().map(|(_, value)| value));
    // The last word of `Bearer sk-1` is a secret too.
    all.extend(
        all.clone()
            .iter()
            .filter_map(|value| Some(value.rsplit_once(' ')?.1.to_owned())),
    );
    all.retain(|value| looks_secret(value));
    all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    all.dedup();
    all
}

/// Replaces secrets in a text by variables.
fn hide_in_text(text: &str, names: &[(String, String)]) -> String {
    let Some(((secret, variable), rest)) = names.split_first() else {
        return escape_text(text, TextSyntax::Text);
    };
    text.split(secret.as_str())
        .map(|piece| hide_in_text(piece, rest))
        .collect::<Vec<_>>()
        .join(variable)
}

#[cfg(test)]
mod tests;
