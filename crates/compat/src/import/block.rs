//! The fields within one option or one field: a JSON object, or `KEY=VALUE,…`. What a translation does not take is
//! named.

use crate::import::draft::Draft;
use crate::import::flags::ImportError;
use serde_json::{Map, Value};

/// The fields that are not taken yet.
pub(super) struct Block {
    flag: String,
    fields: Map<String, Value>,
}

impl Block {
    pub fn new(flag: &str, fields: Map<String, Value>) -> Block {
        Block {
            flag: flag.to_owned(),
            fields,
        }
    }

    /// The fields of a flag; empty where it was not given. A text without fields is the value of the field `sole`.
    pub fn from_flag(draft: &Draft, flag: &str, sole: &str) -> Result<Block, ImportError> {
        match draft.text(flag) {
            Some(text) => Block::parse(draft, flag, &text, sole),
            None => Ok(Block::new(flag, Map::new())),
        }
    }

    /// The fields of each value of a flag.
    pub fn all_from_flag(draft: &Draft, flag: &str, sole: &str) -> Result<Vec<Block>, ImportError> {
        let texts = draft.texts(flag).into_iter();
        texts
            .map(|text| Block::parse(draft, flag, &text, sole))
            .collect()
    }

    /// Parses the fields of a text. A value extends to the next `,KEY=`, so `streams=1,2,4` is one field.
    pub fn parse(draft: &Draft, flag: &str, text: &str, sole: &str) -> Result<Block, ImportError> {
        if text.trim_start().starts_with('{') {
            let fields = serde_json::from_str(text)
                .map_err(|_| draft.invalid(flag, text, "a JSON object or KEY=VALUE,…"))?;
            return Ok(Block::new(flag, fields));
        }
        let mut fields = Map::new();
        let mut open: Option<(String, String)> = None;
        for word in text.split(',') {
            match (word.split_once('='), &mut open) {
                (Some((key, value)), last) => {
                    fields.extend(last.take().map(|(key, value)| (key, Value::from(value))));
                    open = Some((key.trim().to_owned(), value.trim().to_owned()));
                }
                (None, Some((_, value))) => value.push_str(&format!(",{}", word.trim())),
                (None, last @ None) => *last = Some((sole.to_owned(), word.trim().to_owned())),
            }
        }
        fields.extend(open.map(|(key, value)| (key, Value::from(value))));
        Ok(Block::new(flag, fields))
    }

    /// Whether a field has a value.
    pub fn has(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|value| !value.is_null())
    }

    /// Whether a field is this text.
    pub fn is_text(&self, field: &str, text: &str) -> bool {
        self.fields.get(field).and_then(Value::as_str) == Some(text)
    }

    /// Takes a field.
    pub fn value(&mut self, field: &str) -> Option<Value> {
        self.fields.shift_remove(field)
    }

    /// Takes a field that is an object.
    pub fn block(&mut self, field: &str) -> Option<Block> {
        match self.fields.get(field) {
            Some(Value::Object(_)) => match self.value(field) {
                Some(Value::Object(fields)) => Some(Block::new(&self.flag, fields)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Puts back what a block within this one did not take.
    pub fn keep(&mut self, field: &str, inner: Block) {
        for (name, value) in inner.fields {
            self.fields.insert(format!("{field}.{name}"), value);
        }
    }

    /// Takes a field as text.
    pub fn text(&mut self, field: &str) -> Option<String> {
        self.value(field).map(|value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }

    /// Takes a field as a number.
    pub fn number(&mut self, draft: &Draft, field: &str) -> Result<Option<f64>, ImportError> {
        match self.numbers(draft, field)?.as_deref() {
            None => Ok(None),
            Some([one]) => Ok(Some(*one)),
            Some(_) => Err(draft.invalid(&self.flag, field, "one number")),
        }
    }

    /// Takes a field, and returns its numbers: `[1, 2]`, `1,2` or a single one.
    pub fn numbers(&mut self, draft: &Draft, field: &str) -> Result<Option<Vec<f64>>, ImportError> {
        let Some(text) = self.text(field).filter(|text| text != "null") else {
            return Ok(None);
        };
        let words = text
            .trim_start_matches('[')
            .trim_end_matches(']')
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        let numbers: Option<Vec<f64>> = words
            .map(|word| word.parse().ok().filter(|value: &f64| value.is_finite()))
            .collect();
        numbers
            .filter(|numbers| !numbers.is_empty())
            .map(Some)
            .ok_or_else(|| draft.invalid(&self.flag, &format!("{field}={text}"), "numbers"))
    }

    /// Records the keys that hold the fields, and the fields that were not taken.
    pub fn done(self, draft: &mut Draft, keys: &[&str]) {
        draft.account(&self.flag, keys);
        let left = self
            .fields
            .into_iter()
            .filter(|(_, value)| !value.is_null());
        let names: Vec<String> = left.map(|(name, _)| name).collect();
        if !names.is_empty() {
            draft.lose(&self.flag, format!("not understood: {}", names.join(", ")));
        }
    }
}
