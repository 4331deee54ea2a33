//! The YAML text as a tree that remembers where every piece of it stands.

use llmscen_core::labels::Scalar;
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// A range of bytes in one of the texts that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Span {
    /// Index of the text.
    pub file: usize,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The bytes.
    pub fn range(self) -> Range<usize> {
        self.start..self.end
    }

    /// The empty span in front of it: the place of what is not written.
    pub fn before(self) -> Span {
        Span { end: self.start, ..self }
    }
}

impl Entry {
    /// Whether the file has it; a default has an empty span.
    pub fn is_written(&self) -> bool {
        self.key_at.start < self.key_at.end
    }
}

/// A piece of a text that was put together from variables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// Text as it stands.
    Literal(String),
    /// The value of an environment variable that is set.
    Env {
        /// Its name.
        name: String,
        /// What it held.
        value: String,
    },
    /// A reference to a swept field: its value differs from case to case.
    Ref(String),
}

/// A value, where it stands, and what it was put together from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// Where.
    pub at: Span,
    /// What.
    pub data: Data,
    /// The pieces, where variables were replaced in it.
    pub parts: Option<Arc<[Part]>>,
}

/// The kinds of value that YAML knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    /// `null`, `~` or nothing at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in the order of the text; its keys are unique.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Key.
    pub key: String,
    /// Where the key stands.
    pub key_at: Span,
    /// Value.
    pub value: Node,
}

impl Data {
    /// An unquoted scalar by the YAML 1.2 core schema: `yes` and `012` hold no surprises.
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
        let hexadecimal = text.strip_prefix("0x").filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit()));
        if let Some(Ok(value)) = hexadecimal.map(|digits| i64::from_str_radix(digits, 16)) {
            return Data::Int(value);
        }
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let numeric =
            digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && digits.contains(|c: char| c.is_ascii_digit());
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
    /// A value that stands at `at`.
    pub fn new(at: Span, data: Data) -> Node {
        Node { at, data, parts: None }
    }

    /// What it is, for a sentence such as "found a list".
    pub fn noun(&self) -> &'static str {
        match self.data {
            Data::Null => "nothing",
            Data::Bool(_) => "true or false",
            Data::Int(_) | Data::Float(_) => "a number",
            Data::Text(_) => "text",
            Data::List(_) => "a list",
            Data::Map(_) => "a mapping",
        }
    }

    /// Whether there is nothing.
    pub fn is_null(&self) -> bool {
        self.data == Data::Null
    }

    /// Whether it waits for the value of a swept field.
    pub fn is_open(&self) -> bool {
        self.parts.iter().any(|parts| parts.iter().any(|part| matches!(part, Part::Ref(_))))
    }

    /// The text; a number that a variable held counts as text too, for nobody could have quoted it.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match &self.data {
            Data::Text(text) => Some(Cow::Borrowed(text)),
            Data::List(_) | Data::Map(_) | Data::Null => None,
            _ => self.parts.as_ref().map(|parts| Cow::Owned(joined(parts))),
        }
    }

    /// The text, owned.
    pub fn string(&self) -> Option<String> {
        self.text().map(Cow::into_owned)
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        if let Data::Bool(value) = self.data { Some(value) } else { None }
    }

    /// The whole number.
    pub fn whole(&self) -> Option<i64> {
        if let Data::Int(value) = self.data { Some(value) } else { None }
    }

    /// The number.
    pub fn number(&self) -> Option<f64> {
        match self.data {
            Data::Int(value) => Some(value as f64),
            Data::Float(value) => Some(value),
            _ => None,
        }
    }

    /// The value of a swept field.
    pub fn scalar(&self) -> Option<Scalar> {
        match &self.data {
            Data::Bool(value) => Some(Scalar::Bool(*value)),
            Data::Int(value) => Some(Scalar::Int(*value)),
            Data::Float(value) => Some(Scalar::Float(*value)),
            Data::Text(value) => Some(Scalar::Text(value.clone())),
            Data::Null | Data::List(_) | Data::Map(_) => None,
        }
    }

    /// The entries; none where it is not a mapping.
    pub fn entries(&self) -> &[Entry] {
        if let Data::Map(entries) = &self.data { entries } else { &[] }
    }

    /// The items; none where it is not a list.
    pub fn items(&self) -> &[Node] {
        if let Data::List(items) = &self.data { items } else { &[] }
    }

    /// The entry of that key, `null` or not.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The value as JSON.
    pub fn json(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Int(value) => Value::from(*value),
            Data::Float(value) => Number::from_f64(*value).map_or(Value::Null, Value::Number),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => Value::Array(items.iter().map(Node::json).collect()),
            Data::Map(entries) => Value::Object(entries.iter().map(|e| (e.key.clone(), e.value.json())).collect::<Map<_, _>>()),
        }
    }

    /// The item of a list that has that name, or else that index.
    fn item(&self, name: &str) -> Option<usize> {
        let own = |item: &Node| item.entry("name").and_then(|entry| entry.value.text()).as_deref() == Some(name);
        let index = || name.parse().ok().filter(|&index: &usize| index < self.items().len());
        self.items().iter().position(own).or_else(index)
    }

    /// The entry at a dotted path, where it holds something; an item of a list is named by its `name` or its index.
    pub fn entry_at(&self, path: &str) -> Option<&Entry> {
        if let (Data::List(items), Some((head, rest))) = (&self.data, path.split_once('.')) {
            return items.get(self.item(head)?)?.entry_at(rest);
        }
        let found = match path.split_once('.') {
            None => self.entry(path),
            Some((head, rest)) => self.entry(head).and_then(|entry| entry.value.entry_at(rest)),
        };
        found.filter(|entry| !entry.value.is_null())
    }

    /// The value at a dotted path; `null` is absent.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.entry_at(path).map(|entry| &entry.value)
    }

    /// The value at a dotted path, as `parse` reads it.
    pub fn read<T>(&self, path: &str, parse: impl FnOnce(&Node) -> Option<T>) -> Option<T> {
        self.get(path).and_then(parse)
    }

    /// The entries at a dotted path; none where there is no mapping.
    pub fn entries_at(&self, path: &str) -> &[Entry] {
        self.get(path).map(Node::entries).unwrap_or_default()
    }

    /// The items at a dotted path; none where there is no list.
    pub fn items_at(&self, path: &str) -> &[Node] {
        self.get(path).map(Node::items).unwrap_or_default()
    }

    /// The entries that are texts.
    pub fn string_pairs(&self) -> impl Iterator<Item = (String, String)> {
        self.entries().iter().filter_map(|entry| Some((entry.key.clone(), entry.value.string()?)))
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let Data::Map(entries) = &mut self.data else { return None };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index))
    }

    /// Puts a value at a dotted path; what stands in the way is replaced by mappings, but for the items of a list: there is
    /// none where it has no such item.
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
            None => self.put(path, key_at, value),
            Some((head, rest)) => {
                if self.entry(head).is_none() {
                    self.put(head, key_at, Node::new(key_at, Data::Null));
                }
                if let Data::Map(entries) = &mut self.data {
                    let inner = entries.iter_mut().filter(|entry| entry.key == head);
                    inner.for_each(|entry| entry.value.set(rest, key_at, value.clone()));
                }
            }
        }
    }

    /// Puts a value at a key, dots and all.
    pub fn put(&mut self, key: &str, key_at: Span, value: Node) {
        let entry = Entry { key: key.to_owned(), key_at, value };
        match &mut self.data {
            Data::Map(entries) => match entries.iter().position(|own| own.key == key) {
                Some(index) => entries[index] = entry,
                None => entries.push(entry),
            },
            other => *other = Data::Map(vec![entry]),
        }
    }
}

/// The last segment of a dotted path.
pub(crate) fn last_segment(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The text that the parts make; a reference stays as it was written.
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
    fn setting_a_path_replaces_what_stands_in_its_way() {
        let at = Span::default();
        let mut node = Node::new(at, Data::Map(Vec::new()));
        node.set("load.rate", at, Node::new(at, Data::Text("8/s".into())));
        node.set("load.rate.deep", at, Node::new(at, Data::Int(1)));
        assert_eq!(node.json(), serde_json::json!({ "load": { "rate": { "deep": 1 } } }));
        assert_eq!(node.get("load.rate.deep").and_then(Node::whole), Some(1));
        assert_eq!(node.get("load.rate.other"), None);
    }

    #[test]
    fn items_of_a_list_are_reached_by_name_and_by_index() {
        let at = Span::default();
        let item = |name: &str| {
            let mut item = Node::new(at, Data::Map(Vec::new()));
            item.put("name", at, Node::new(at, Data::Text(name.into())));
            item
        };
        let mut node = Node::new(at, Data::Map(Vec::new()));
        node.put("mix", at, Node::new(at, Data::List(vec![item("a"), item("b")])));
        for (path, weight) in [("mix.b.weight", 3), ("mix.0.weight", 2), ("mix.c.weight", 9), ("mix.2.weight", 9)] {
            node.set(path, at, Node::new(at, Data::Int(weight)));
        }
        let known = serde_json::json!({ "mix": [{ "name": "a", "weight": 2 }, { "name": "b", "weight": 3 }] });
        assert_eq!((node.json(), node.get("mix.1.weight").and_then(Node::whole)), (known, Some(3)));
        assert_eq!((node.get("mix.c.weight"), node.get("mix.2.name")), (None, None));
    }
}
