//! The scenario as it grows, and the account of the flags it comes from.

mod finish;

use super::line::{Given, Line, is_secret, variable};
use super::text::seconds;
use super::{ImportError, number};
use serde_json::{Map, Value, json};

/// What is said of a flag that had no part in the translation of this line.
pub(super) const UNTOLD: &str = "it says nothing beside the other flags";

/// A scenario in the making.
pub(super) struct Draft {
    line: Line,
    tree: Map<String, Value>,
    /// Keys that hold a default of the tool.
    filled: Vec<&'static str>,
}

impl Draft {
    /// A draft of nothing.
    pub fn new(line: Line) -> Draft {
        Draft { line, tree: Map::new(), filled: Vec::new() }
    }

    fn last(&self, flag: &str) -> Option<&Given> {
        self.line.given.iter().rev().find(|given| given.flag.names.contains(&flag))
    }

    /// Whether the flag was given.
    pub fn has(&self, flag: &str) -> bool {
        self.last(flag).is_some()
    }

    /// The value of a variable set in front of the command.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.line.variables.iter().rev().find(|own| own.name == name).map(|own| own.value.as_str())
    }

    /// The value of a flag; of several the last.
    pub fn text(&self, flag: &str) -> Option<String> {
        self.last(flag).and_then(|given| given.values.last()).cloned()
    }

    /// The values of a flag, over every time it was given; those of a list in one word are told apart by commas.
    pub fn texts(&self, flag: &str) -> Vec<String> {
        let own = self.line.given.iter().filter(|given| given.flag.names.contains(&flag));
        own.flat_map(|given| given.values.iter().cloned()).collect()
    }

    /// Whether a switch is on: given without a value, or with a word of truth.
    pub fn truth(&self, flag: &str) -> bool {
        self.last(flag).is_some_and(|given| given.values.last().is_none_or(|value| value != "false"))
    }

    /// The value of a flag as a number.
    pub fn number(&self, flag: &str) -> Result<Option<f64>, ImportError> {
        Ok(self.numbers(flag)?.last().copied())
    }

    /// The values of a flag as numbers; commas part them too.
    pub fn numbers(&self, flag: &str) -> Result<Vec<f64>, ImportError> {
        let texts = self.texts(flag);
        let words = texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty());
        words
            .map(|word| {
                word.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| self.wrong(flag, word, "a number"))
            })
            .collect()
    }

    /// The value of a flag as JSON.
    pub fn json(&self, flag: &str) -> Result<Option<Value>, ImportError> {
        let parse = |text: String| serde_json::from_str(&text).map_err(|_| self.wrong(flag, &text, "JSON"));
        self.text(flag).map(parse).transpose()
    }

    /// The error of a value.
    pub fn wrong(&self, flag: &str, value: &str, expected: &'static str) -> ImportError {
        let written = self.last(flag).map_or(flag, |given| given.written.as_str());
        ImportError::Value { flag: written.to_owned(), value: value.to_owned(), expected }
    }

    /// Sets a key; `/` parts the keys of a path. Texts that would be read as variables are escaped.
    pub fn put(&mut self, path: &str, value: impl Into<Value>) {
        set(&mut self.tree, path, escaped(value.into()));
    }

    /// Sets a key to what must not be escaped: a reference to a variable.
    pub fn refer(&mut self, path: &str, text: &str) {
        set(&mut self.tree, path, Value::from(text));
    }

    /// Sets a key to the tool's default, which the head lists; nothing where the flag was given.
    pub fn fill(&mut self, flag: &str, path: &'static str, value: impl Into<Value>) {
        if !self.has(flag) {
            self.put(path, value);
            self.filled.push(path);
        }
    }

    /// Likewise a value: a template, whose texts have variables of their own.
    pub fn refer_value(&mut self, path: &str, value: Value) {
        set(&mut self.tree, path, value);
    }

    /// What stands under a key.
    pub fn get(&self, path: &str) -> Option<&Value> {
        let mut keys = path.split('/');
        let first = self.tree.get(keys.next()?)?;
        keys.try_fold(first, |value, key| value.get(key))
    }

    /// Adds a limit.
    pub fn limit(&mut self, expr: String) {
        self.objective(Value::from(expr));
    }

    /// Adds an objective that is judged by its point estimate, as the tool judges it.
    pub fn limit_point(&mut self, expr: String) {
        self.objective(json!({ "expr": expr, "confidence": "point" }));
    }

    fn objective(&mut self, item: Value) {
        if let Value::Array(list) = self.tree.entry("slo").or_insert_with(|| json!([])) {
            list.push(item);
        }
    }

    /// Says that these keys are what a flag said; a `/` in a key is shown as a dot.
    pub fn account(&mut self, flag: &str, keys: &[&str]) {
        for given in self.line.given.iter_mut().filter(|given| given.flag.names.contains(&flag)) {
            let new = keys.iter().map(|key| key.replace('/', ".")).filter(|key| !given.keys.contains(key)).collect::<Vec<_>>();
            given.keys.extend(new);
        }
    }

    /// Says what differs of a flag, or why nothing stands for it.
    pub fn note(&mut self, flag: &str, note: impl Into<String>) {
        let note = note.into();
        for given in self.line.given.iter_mut().filter(|given| given.flag.names.contains(&flag)) {
            given.note = Some(match given.note.take() {
                Some(said) if said != note => format!("{said}; {note}"),
                _ => note.clone(),
            });
        }
    }

    /// Puts a flag's value under a key, if it was given.
    pub fn carry(&mut self, flag: &str, path: &str) {
        if let Some(text) = self.text(flag) {
            self.put(path, text);
            self.account(flag, &[path]);
        }
    }

    /// Likewise as a number.
    pub fn carry_number(&mut self, flag: &str, path: &str) -> Result<(), ImportError> {
        if let Some(value) = self.number(flag)? {
            self.put(path, number(value));
            self.account(flag, &[path]);
        }
        Ok(())
    }

    /// Likewise as a number of seconds.
    pub fn carry_seconds(&mut self, flag: &str, path: &str) -> Result<(), ImportError> {
        if let Some(value) = self.number(flag)? {
            self.put(path, seconds(value));
            self.account(flag, &[path]);
        }
        Ok(())
    }

    /// The key of the target: never the value itself, but the variable that shall hold it.
    pub fn api_key(&mut self, flag: &str) {
        if self.has(flag) {
            self.refer("target/api_key", "${OPENAI_API_KEY}");
            self.account(flag, &["target/api_key"]);
            self.note(flag, "the value is not written down: set OPENAI_API_KEY");
        }
    }

    /// Headers `NAME=VALUE` or `NAME:VALUE`.
    pub fn headers(&mut self, flag: &str) -> Result<(), ImportError> {
        for text in self.texts(flag) {
            let (name, value) = text.split_once([':', '=']).ok_or_else(|| self.wrong(flag, &text, "NAME=VALUE"))?;
            let (name, path) = (name.trim(), format!("target/headers/{}", name.trim()));
            if is_secret(name) {
                let variable = variable(name);
                self.refer(&path, &format!("${{{variable}}}"));
                self.note(flag, format!("the value is not written down: set {variable}"));
            } else {
                self.put(&path, value.trim());
            }
            self.account(flag, &[&path]);
        }
        Ok(())
    }

    /// Merges a JSON object into `request.extra`.
    pub fn extra(&mut self, flag: &str) -> Result<(), ImportError> {
        let Some(value) = self.json(flag)? else { return Ok(()) };
        let Value::Object(fields) = value else { return Err(self.wrong(flag, "", "a JSON object")) };
        self.merge_extra(fields);
        self.account(flag, &["request/extra"]);
        Ok(())
    }

    /// Merges fields into `request.extra`, whatever their names hold.
    pub fn merge_extra(&mut self, fields: Map<String, Value>) {
        let mut extra = match self.get("request/extra") {
            Some(Value::Object(own)) => own.clone(),
            _ => Map::new(),
        };
        extra.extend(fields.into_iter().map(|(key, value)| (key, escaped(value))));
        if !extra.is_empty() {
            set(&mut self.tree, "request/extra", Value::Object(extra));
        }
    }

    /// Several values become an axis of the matrix, one stands where it belongs.
    pub fn one_or_axis(&mut self, path: &str, values: Vec<Value>) {
        let axis = format!("matrix/{}", path.replace('/', "."));
        match <[Value; 1]>::try_from(values) {
            Ok([value]) => self.put(path, value),
            Err(values) if values.is_empty() => {}
            Err(mut values) => {
                values.dedup();
                // A case of the matrix is the scenario with another value in its place.
                self.put(path, values.first().cloned().unwrap_or_default());
                self.put(&axis, values);
            }
        }
    }
}

fn set(tree: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('/') {
        None => {
            tree.insert(path.to_owned(), value);
        }
        Some((key, rest)) => {
            let inner = tree.entry(key).or_insert_with(|| json!({}));
            if !inner.is_object() {
                *inner = json!({});
            }
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// A value whose texts stand for themselves: neither `${…}` nor `{{ … }}` in them is anything else.
fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) => Value::from(text.replace("${", "$${").replace("{{", "{{ '{{' }}")),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(key, value)| (key, escaped(value))).collect()),
        other => other,
    }
}
