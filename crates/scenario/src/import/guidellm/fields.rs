//! `kind=constant,rate=10` and the same as a JSON object: options with fields of their own.

use crate::import::ImportError;
use crate::import::draft::Draft;
use serde_json::{Map, Value};

/// The fields of one option; whatever nobody asks for is told in the end.
pub(super) struct Fields {
    flag: &'static str,
    fields: Map<String, Value>,
}

impl Fields {
    /// The fields of a flag; none where it was not given. A text without any is the field `sole`.
    pub fn of(draft: &Draft, flag: &'static str, sole: &str) -> Result<Fields, ImportError> {
        match draft.text(flag) {
            Some(text) => Fields::parse(draft, flag, &text, sole),
            None => Ok(Fields { flag, fields: Map::new() }),
        }
    }

    /// Likewise of a text. A value runs to the next `,KEY=`, so that `streams=1,2,4` is one.
    pub fn parse(draft: &Draft, flag: &'static str, text: &str, sole: &str) -> Result<Fields, ImportError> {
        if text.trim_start().starts_with('{') {
            let fields = serde_json::from_str(text).map_err(|_| draft.wrong(flag, text, "a JSON object or KEY=VALUE,…"))?;
            return Ok(Fields { flag, fields });
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
        Ok(Fields { flag, fields })
    }

    /// Whether a field is there.
    pub fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Takes a field as a text.
    pub fn text(&mut self, field: &str) -> Option<String> {
        self.fields.shift_remove(field).map(|value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }

    /// Takes a field as a number.
    pub fn number(&mut self, draft: &Draft, field: &str) -> Result<Option<f64>, ImportError> {
        Ok(self.numbers(draft, field)?.and_then(|numbers| numbers.first().copied()))
    }

    /// Takes a field as numbers: `[1, 2]`, `1,2` or one alone.
    pub fn numbers(&mut self, draft: &Draft, field: &str) -> Result<Option<Vec<f64>>, ImportError> {
        let Some(text) = self.text(field) else { return Ok(None) };
        let words = text.trim_start_matches('[').trim_end_matches(']').split(',').map(str::trim).filter(|word| !word.is_empty());
        let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok().filter(|value: &f64| value.is_finite())).collect();
        numbers
            .filter(|numbers| !numbers.is_empty())
            .map(Some)
            .ok_or_else(|| draft.wrong(self.flag, &format!("{field}={text}"), "numbers"))
    }

    /// Accounts for the option: these keys say it now, and these fields were not carried over.
    pub fn done(self, draft: &mut Draft, keys: &[&str]) {
        draft.account(self.flag, keys);
        if !self.fields.is_empty() {
            let names: Vec<&str> = self.fields.keys().map(String::as_str).collect();
            draft.note(self.flag, format!("not carried over: {}", names.join(", ")));
        }
    }
}
