//! The resolved plan: what was run, as a scenario that runs it again. Every default stands there, every variable is replaced,
//! files are named by absolute paths; what must stay secret is `${NAME}`.

use crate::scenario::block::{Block, Kind};
use crate::scenario::fault::Review;
use crate::scenario::tree::{Data, Node, Part};
use serde_yaml::{Mapping, Value};
use sha2::{Digest, Sha256};

/// Writes a tree; counts the secrets that had no name of their own.
struct Writer<'r> {
    review: &'r mut Review,
    unnamed: usize,
}

/// What a text is, besides text.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// A text of the scenario: braces are references.
    Text,
    /// A text of a request body: braces are the renderer's.
    Body,
}

/// The resolved plan of a scenario that is sound.
pub(crate) fn resolve(root: &Node, table: &'static Block, review: &mut Review) -> String {
    let mut writer = Writer { review, unnamed: 0 };
    let value = Value::Mapping(writer.block(root, table));
    serde_yaml::to_string(&value).unwrap_or_default()
}

/// The first 16 hex digits of a text's SHA-256.
pub(crate) fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl Writer<'_> {
    fn block(&mut self, node: &Node, table: &'static Block) -> Mapping {
        let mut mapping = Mapping::new();
        for field in table.fields.iter().filter(|field| !["extends", "vars"].contains(&field.name)) {
            if let Some(entry) = node.entry_at(field.name) {
                let value = self.value(&entry.value, &field.kind, field.name);
                mapping.insert(field.name.into(), value);
            }
        }
        mapping
    }

    fn value(&mut self, node: &Node, kind: &'static Kind, name: &str) -> Value {
        match kind {
            Kind::Block(table) => Value::Mapping(self.block(node, table)),
            Kind::List(kind) => Value::Sequence(node.items().iter().map(|item| self.value(item, kind, name)).collect()),
            Kind::Map(kind) => self.map(node, kind),
            Kind::Matrix => self.matrix(node),
            Kind::File => self.file(node),
            Kind::Secret => self.secret(node, name),
            Kind::Text if name == "url" => self.address(node),
            Kind::Text if name == "text" => self.prompt(node),
            Kind::Text => self.text(node),
            Kind::Json | Kind::Template => self.free(node, Place::Body),
            _ => self.free(node, Place::Text),
        }
    }

    /// Values of free keys: headers, bodies. What a key calls a secret is one.
    fn map(&mut self, node: &Node, kind: &'static Kind) -> Value {
        let entry = |writer: &mut Self, key: &str, value: &Node| match kind {
            Kind::Secret if !is_secret_name(key) && !from_env(value) => writer.text(value),
            kind => writer.value(value, kind, key),
        };
        let pairs = node.entries().iter().map(|own| (Value::from(own.key.as_str()), entry(self, &own.key, &own.value)));
        Value::Mapping(pairs.collect())
    }

    fn matrix(&mut self, node: &Node) -> Value {
        let pairs = node.entries().iter().map(|own| {
            let value = match (own.key.as_str(), &own.value.data) {
                ("zip", Data::Map(_)) => self.matrix(&own.value),
                ("zip" | "include" | "exclude", Data::List(rows)) => {
                    Value::Sequence(rows.iter().map(|row| self.matrix(row)).collect())
                }
                (path, Data::List(items)) => Value::Sequence(items.iter().map(|item| self.swept(item, path)).collect()),
                (path, _) => self.swept(&own.value, path),
            };
            (Value::from(own.key.as_str()), value)
        });
        Value::Mapping(pairs.collect())
    }

    fn swept(&mut self, node: &Node, path: &str) -> Value {
        match crate::scenario::sections::scenario::SCENARIO.kind_at(path) {
            Some(Kind::Template) => self.file(node),
            Some(kind) => self.value(node, kind, path.rsplit('.').next().unwrap_or(path)),
            None => self.free(node, Place::Text),
        }
    }

    fn free(&mut self, node: &Node, place: Place) -> Value {
        match &node.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::from(*value),
            Data::Int(value) if !keeps_name(node) => Value::from(*value),
            Data::Float(value) if !keeps_name(node) => Value::from(*value),
            Data::List(items) => Value::Sequence(items.iter().map(|item| self.free(item, place)).collect()),
            Data::Map(entries) => {
                let pairs = entries.iter().map(|own| {
                    let hidden = is_secret_key(&own.key) && matches!(own.value.data, Data::Text(_) | Data::Int(_));
                    let value = if hidden { self.secret(&own.value, &own.key) } else { self.free(&own.value, place) };
                    (Value::from(own.key.as_str()), value)
                });
                Value::Mapping(pairs.collect())
            }
            _ => Value::from(written(node, place)),
        }
    }

    fn text(&mut self, node: &Node) -> Value {
        Value::from(written(node, Place::Text))
    }

    fn file(&mut self, node: &Node) -> Value {
        let found = node.text().and_then(|named| self.review.sources.find(node.at.file, &named));
        found.map_or_else(|| self.text(node), |path| Value::from(escaped(&path.display().to_string(), Place::Text)))
    }

    fn prompt(&mut self, node: &Node) -> Value {
        let found = node.text().and_then(|text| self.review.sources.find(node.at.file, text.strip_prefix('@')?));
        found.map_or_else(|| self.text(node), |path| Value::from(escaped(&format!("@{}", path.display()), Place::Text)))
    }

    /// A secret by its variable's name; one that stands in the file itself gets a name, for the plan must not repeat it.
    fn secret(&mut self, node: &Node, name: &str) -> Value {
        if let Some(text) = node.parts.as_deref().and_then(named) {
            return Value::from(text);
        }
        let variable = self.name(node, name);
        Value::from(variable)
    }

    fn name(&mut self, node: &Node, name: &str) -> String {
        self.unnamed += 1;
        let variable = format!("LLMSCEN_SECRET_{}", self.unnamed);
        self.review.warn(node.at, format!("`{name}` holds a secret in plain text; the stored plan calls it ${{{variable}}}"));
        format!("${{{variable}}}")
    }

    /// A URL with what is before `@`, and parameters such as `key=`, hidden.
    fn address(&mut self, node: &Node) -> Value {
        let Some(text) = node.text() else { return self.free(node, Place::Text) };
        if let Some([Part::Env { name, .. }]) = node.parts.as_deref().filter(|_| hides(&text).next().is_some()) {
            return Value::from(format!("${{{name}}}"));
        }
        if let Some(named) = node.parts.as_deref().and_then(named_credentials) {
            return Value::from(named);
        }
        let mut shown = String::new();
        let mut done = 0;
        for range in hides(&text).collect::<Vec<_>>() {
            shown += &escaped(&text[done..range.start], Place::Text);
            shown += &self.name(node, "url");
            done = range.end;
        }
        let rest = if done == 0 { written(node, Place::Text) } else { escaped(&text[done..], Place::Text) };
        Value::from(shown + &rest)
    }
}

/// Byte ranges of a URL that must not be shown.
fn hides(url: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
    let user = url[start..end].rfind('@').map(|at| start..start + at).filter(|range| !range.is_empty());
    let query = url.find('?').map_or(url.len(), |at| at + 1);
    let mut at = query;
    let mut ranges: Vec<_> = user.into_iter().collect();
    for pair in url[query..].split('&') {
        if let Some((name, value)) = pair.split_once('=').filter(|(name, value)| is_secret_name(name) && !value.is_empty()) {
            ranges.push(at + name.len() + 1..at + name.len() + 1 + value.len());
        }
        at += pair.len() + 1;
    }
    ranges.into_iter()
}

/// A URL put together from variables, where its secret ranges are variables and nothing else.
fn named_credentials(parts: &[Part]) -> Option<String> {
    let literal: String = parts.iter().map(|part| if let Part::Literal(text) = part { text.as_str() } else { "" }).collect();
    let holds_env = parts.iter().any(|part| matches!(part, Part::Env { .. }));
    let bare = hides(&literal).all(|range| literal[range].chars().all(|c| c == ':'));
    (holds_env && bare).then(|| parts.iter().map(by_name).collect())
}

fn by_name(part: &Part) -> String {
    match part {
        Part::Literal(text) => escaped(text, Place::Text),
        Part::Env { name, .. } => format!("${{{name}}}"),
        Part::Ref(path) => format!("{{{{ {path} }}}}"),
    }
}

/// A text by its variables, where nothing but a scheme such as `Bearer` stands beside them.
fn named(parts: &[Part]) -> Option<String> {
    let scheme = |text: &str| ["", "bearer", "basic", "token", "apikey", "digest"].contains(&text.trim().to_lowercase().as_str());
    let bare = parts.iter().all(|part| !matches!(part, Part::Literal(text) if !scheme(text)));
    (bare && parts.iter().any(|part| matches!(part, Part::Env { .. } | Part::Ref(_))))
        .then(|| parts.iter().map(by_name).collect())
}

fn from_env(node: &Node) -> bool {
    node.parts.iter().any(|parts| parts.iter().any(|part| matches!(part, Part::Env { .. })))
}

/// Whether a variable in it is called a secret, so that its name is written and not its value.
fn keeps_name(node: &Node) -> bool {
    node.parts.iter().any(|parts| parts.iter().any(|part| matches!(part, Part::Env { name, .. } if is_secret_name(name))))
}

fn written(node: &Node, place: Place) -> String {
    let part = |part: &Part| match part {
        Part::Literal(text) => escaped(text, place),
        Part::Env { name, .. } if is_secret_name(name) => by_name(part),
        Part::Env { value, .. } => escaped(value, place),
        Part::Ref(_) => by_name(part),
    };
    match (&node.parts, &node.data) {
        (Some(parts), _) => parts.iter().map(part).collect(),
        (None, Data::Text(text)) => text.clone(),
        (None, _) => node.json().to_string(),
    }
}

/// A text that is read back as it stands.
fn escaped(text: &str, place: Place) -> String {
    let text = text.replace("${", "$${");
    if place == Place::Text { text.replace("{{", "{{ \"{{\" }}") } else { text }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    ["authorization", "key", "token", "secret", "passw", "cookie", "credential", "signature"]
        .iter()
        .any(|word| name.contains(word))
}

/// Keys of a request body: `max_tokens` is no secret there.
fn is_secret_key(key: &str) -> bool {
    let key = key.to_lowercase().replace('-', "_");
    ["api_key", "apikey", "access_token", "auth_token", "secret", "password", "authorization"].contains(&key.as_str())
}
