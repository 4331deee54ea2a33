//! YAML as a tree with the position of every node.

use llmscen_core::label::Scalar;
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// A byte range in one of the texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Index of the text.
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn range(self) -> Range<usize> {
        self.start..self.end
    }

    /// The empty span at its start: the place of something that is not written.
    pub fn before(self) -> Span {
        Span {
            end: self.start,
            ..self
        }
    }
}

impl Entry {
    /// Whether it is in the file; a default has an empty span.
    pub(crate) fn is_written(&self) -> bool {
        self.key_at.start < self.key_at.end
    }
}

/// A piece of a text with variables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Literal(String),
    /// The value of an environment variable.
    Env {
        name: String,
        value: String,
    },
    /// A reference to a swept field, whose value differs between cases.
    Ref(String),
}

/// A value with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its place.
    pub at: Span,
    /// Its value.
    pub data: Data,
    /// The pieces, if it contained variables.
    pub(crate) parts: Option<Arc<[Part]>>,
}

/// A value of one of the YAML types.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in the order of the text, with unique keys.
    Map(Vec<Entry>),
}

/// An entry of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// The place of its key.
    pub key_at: Span,
    /// Its value.
    pub value: Node,
}

impl Data {
    /// Parses an unquoted scalar by the YAML 1.2 core schema, in which `yes` is text and `012` is twelve.
    pub fn plain(text: &str) -> Data {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Data::Null,
            "true" | "True" | "TRUE" => return Data::Bool(true),
            "false" | "False" | "FALSE" => return Data::Bool(false),
            ".inf" | ".Inf" | ".INF" | "+.inf" => return Data::Float(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => return Data::Float(f64::NEG_INFINITY),
            ".nan" | ".NaN" | ".NAN" => return Data::Float(f64::NAN),
            _ => {}
        }
        let hexadecimal = text
            .strip_prefix("0x")
            .filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit()));
        if let Some(Ok(value)) = hexadecimal.map(|digits| i64::from_str_radix(digits, 16)) {
            return Data::Int(value);
        }
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && digits.contains(|c: char| c.is_ascii_digit());
        if let Some(value) = numeric.then(|| text.parse().ok()).flatten() {
            return Data::Int(value);
        }
        match text.parse() {
            Ok(value) if numeric => Data::Float(value),
            _ => Data::Text(text.to_owned()),
        }
    }
}

impl Node {
    /// A value at a place.
    pub fn new(at: Span, data: Data) -> Node {
        Node {
            at,
            data,
            parts: None,
        }
    }

    /// Its type, for messages such as "found a list".
    pub(crate) fn noun(&self) -> &'static str {
        match self.data {
            Data::Null => "nothing",
            Data::Bool(_) => "true or false",
            Data::Int(_) | Data::Float(_) => "a number",
            Data::Text(_) => "text",
            Data::List(_) => "a list",
            Data::Map(_) => "a mapping",
        }
    }

    /// Whether it is `null` or nothing.
    pub fn is_null(&self) -> bool {
        self.data == Data::Null
    }

    /// Whether it refers to a swept field whose value is not known yet.
    pub(crate) fn is_open(&self) -> bool {
        self.parts
            .iter()
            .any(|parts| parts.iter().any(|part| matches!(part, Part::Ref(_))))
    }

    /// The text. A number from a variable counts as text too, because it could not be quoted.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match &self.data {
            Data::Text(text) => Some(Cow::Borrowed(text)),
            Data::List(_) | Data::Map(_) | Data::Null => None,
            _ => self.parts.as_ref().map(|parts| Cow::Owned(joined(parts))),
        }
    }

    /// [`Node::text`] as a string.
    pub fn string(&self) -> Option<String> {
        self.text().map(Cow::into_owned)
    }

    /// The value of `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        if let Data::Bool(value) = self.data {
            Some(value)
        } else {
            None
        }
    }

    /// The value of a whole number.
    pub fn integer(&self) -> Option<i64> {
        if let Data::Int(value) = self.data {
            Some(value)
        } else {
            None
        }
    }

    /// The value of a number.
    pub fn number(&self) -> Option<f64> {
        match self.data {
            Data::Int(value) => Some(value as f64),
            Data::Float(value) => Some(value),
            _ => None,
        }
    }

    /// The value as a label.
    pub fn scalar(&self) -> Option<Scalar> {
        match &self.data {
            Data::Bool(value) => Some(Scalar::Bool(*value)),
            Data::Int(value) => Some(Scalar::Int(*value)),
            Data::Float(value) => Some(Scalar::Float(*value)),
            Data::Text(value) => Some(Scalar::Text(value.clone())),
            Data::Null | Data::List(_) | Data::Map(_) => None,
        }
    }

    /// The items of a list, or the value itself, which may be an empty list.
    pub(crate) fn one_or_more(&self) -> &[Node] {
        match &self.data {
            Data::List(items) if !items.is_empty() => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// The entries; empty if it is not a mapping.
    pub fn entries(&self) -> &[Entry] {
        if let Data::Map(entries) = &self.data {
            entries
        } else {
            &[]
        }
    }

    /// The items; empty if it is not a list.
    pub fn items(&self) -> &[Node] {
        if let Data::List(items) = &self.data {
            items
        } else {
            &[]
        }
    }

    /// The entry of a key, also one with `null`.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The entries, to change them; empty if it is not a mapping.
    pub(crate) fn entries_mut(&mut self) -> &mut [Entry] {
        match &mut self.data {
            Data::Map(entries) => entries,
            _ => &mut [],
        }
    }

    /// The entry of a key, to change it.
    pub(crate) fn entry_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries_mut().iter_mut().find(|entry| entry.key == key)
    }

    /// The value as JSON; numbers that JSON lacks are null.
    pub fn json(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Int(value) => Value::from(*value),
            Data::Float(value) => Number::from_f64(*value).map_or(Value::Null, Value::Number),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => Value::Array(items.iter().map(Node::json).collect()),
            Data::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|e| (e.key.clone(), e.value.json()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }

    /// The index of the item with that name, or of that index.
    fn item(&self, name: &str) -> Option<usize> {
        let has_name = |item: &Node| {
            item.entry("name")
                .and_then(|entry| entry.value.text())
                .as_deref()
                == Some(name)
        };
        let index = || {
            name.parse()
                .ok()
                .filter(|&index: &usize| index < self.items().len())
        };
        self.items().iter().position(has_name).or_else(index)
    }

    /// The entry at a dotted path, unless it is null. Items of a list are addressed by `name` or index.
    pub fn entry_at(&self, path: &str) -> Option<&Entry> {
        if let (Data::List(items), Some((head, rest))) = (&self.data, path.split_once('.')) {
            return items.get(self.item(head)?)?.entry_at(rest);
        }
        let found = match path.split_once('.') {
            None => self.entry(path),
            Some((head, rest)) => self
                .entry(head)
                .and_then(|entry| entry.value.entry_at(rest)),
        };
        found.filter(|entry| !entry.value.is_null())
    }

    /// The value at a dotted path, unless it is null.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.entry_at(path).map(|entry| &entry.value)
    }

    /// Parses the value at a dotted path.
    pub(crate) fn read<T>(&self, path: &str, parse: impl FnOnce(&Node) -> Option<T>) -> Option<T> {
        self.get(path).and_then(parse)
    }

    /// The entries at a dotted path; empty if there is no mapping.
    pub fn entries_at(&self, path: &str) -> &[Entry] {
        self.get(path).map(Node::entries).unwrap_or_default()
    }

    /// The items at a dotted path; empty if there is no list.
    pub fn items_at(&self, path: &str) -> &[Node] {
        self.get(path).map(Node::items).unwrap_or_default()
    }

    /// The entries whose values are texts.
    pub(crate) fn string_pairs(&self) -> impl Iterator<Item = (String, String)> {
        self.entries()
            .iter()
            .filter_map(|entry| Some((entry.key.clone(), entry.value.string()?)))
    }

    /// Removes the entry of a key.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let Data::Map(entries) = &mut self.data else {
            return None;
        };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index))
    }

    /// Sets the value at a dotted path. Scalars on the way are replaced by mappings; an item that a list does not
    /// have is ignored.
    pub fn set(&mut self, path: &str, key_at: Span, value: Node) {
        if let (Data::List(_), Some((head, rest))) = (&self.data, path.split_once('.')) {
            let index = self.item(head);
            if let (Data::List(items), Some(index)) = (&mut self.data, index)
                && let Some(item) = items.get_mut(index)
            {
                item.set(rest, key_at, value);
            }
            return;
        }
        match path.split_once('.') {
            None => self.set_key(path, key_at, value),
            Some((head, rest)) => {
                if self.entry(head).is_none() {
                    self.set_key(head, key_at, Node::new(key_at, Data::Null));
                }
                if let Data::Map(entries) = &mut self.data {
                    let inner = entries.iter_mut().filter(|entry| entry.key == head);
                    inner.for_each(|entry| entry.value.set(rest, key_at, value.clone()));
                }
            }
        }
    }

    /// Sets the value of a key, which may contain dots.
    pub fn set_key(&mut self, key: &str, key_at: Span, value: Node) {
        let entry = Entry {
            key: key.to_owned(),
            key_at,
            value,
        };
        match &mut self.data {
            Data::Map(entries) => match entries.iter().position(|entry| entry.key == key) {
                Some(index) => entries[index] = entry,
                None => entries.push(entry),
            },
            other => *other = Data::Map(vec![entry]),
        }
    }
}

pub(crate) fn last_segment(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The text of the parts; references stay as written.
pub(crate) fn joined(parts: &[Part]) -> String {
    parts
        .iter()
        .map(|part| match part {
            Part::Literal(text) | Part::Env { value: text, .. } => Cow::Borrowed(text.as_str()),
            Part::Ref(path) => Cow::Owned(format!("{{{{ {path} }}}}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        for (text, data) in [
            ("yes", Data::Text("yes".into())),
            ("True", Data::Bool(true)),
            ("012", Data::Int(12)),
            ("0x1F", Data::Int(31)),
            ("0x+0", Data::Text("0x+0".into())),
            ("-3", Data::Int(-3)),
            ("1e3", Data::Float(1000.0)),
            (".5", Data::Float(0.5)),
            ("1_000", Data::Text("1_000".into())),
            ("8/s", Data::Text("8/s".into())),
            ("inf", Data::Text("inf".into())),
            ("nan", Data::Text("nan".into())),
            ("-", Data::Text("-".into())),
            ("~", Data::Null),
        ] {
            assert_eq!(Data::plain(text), data, "{text}");
        }
    }

    #[test]
    fn setting_a_path_replaces_scalars_on_the_way() {
        let at = Span::default();
        let mut node = Node::new(at, Data::Map(Vec::new()));
        node.set("load.rate", at, Node::new(at, Data::Text("8/s".into())));
        node.set("load.rate.deep", at, Node::new(at, Data::Int(1)));
        assert_eq!(
            node.json(),
            serde_json::json!({ "load": { "rate": { "deep": 1 } } })
        );
        assert_eq!(node.get("load.rate.deep").and_then(Node::integer), Some(1));
        assert_eq!(node.get("load.rate.other"), None);
    }

    #[test]
    fn list_items_are_addressed_by_name_and_index() {
        let at = Span::default();
        let item = |name: &str| {
            let mut item = Node::new(at, Data::Map(Vec::new()));
            item.set_key("name", at, Node::new(at, Data::Text(name.into())));
            item
        };
        let mut node = Node::new(at, Data::Map(Vec::new()));
        node.set_key(
            "mix",
            at,
            Node::new(at, Data::List(vec![item("a"), item("b")])),
        );
        for (path, weight) in [
            ("mix.b.weight", 3),
            ("mix.0.weight", 2),
            ("mix.c.weight", 9),
            ("mix.2.weight", 9),
        ] {
            node.set(path, at, Node::new(at, Data::Int(weight)));
        }
        let known = serde_json::json!({ "mix": [{ "name": "a", "weight": 2 }, { "name": "b", "weight": 3 }] });
        assert_eq!(
            (
                node.json(),
                node.get("mix.1.weight").and_then(Node::integer)
            ),
            (known, Some(3))
        );
        assert_eq!(
            (node.get("mix.c.weight"), node.get("mix.2.name")),
            (None, None)
        );
    }
}
