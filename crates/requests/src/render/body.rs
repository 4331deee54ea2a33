//! A compiled body, its variables in a request, and access to fields by dotted path.

use crate::render::speech::Dialog;
use crate::render::values::{self, Leaf};
use llmscen_core::dataset::Prompt;
use minijinja::Value as Jinja;
use minijinja::value::Serde;
use serde_json::{Map, Value, json};
use std::cell::OnceCell;

/// Why a text of a body cannot be rendered.
pub(super) struct TextError {
    /// Dotted path of the text.
    pub at: String,
    pub message: String,
}

/// A JSON value with compiled texts.
pub(super) enum Body {
    /// Without variables.
    Constant(Value),
    /// A text with variables, and its path.
    Leaf(Leaf, String),
    List(Vec<Body>),
    Map(Vec<(String, Body)>),
}

impl Body {
    /// Compiles a value at `path`.
    pub fn compile(value: &Value, path: &str) -> Result<Body, TextError> {
        let below = |key: &str| {
            if path.is_empty() {
                key.to_owned()
            } else {
                format!("{path}.{key}")
            }
        };
        let body = match value {
            Value::String(text) => match values::compile(text) {
                Ok(Leaf::Constant(text)) => Body::Constant(Value::String(text)),
                Ok(leaf) => Body::Leaf(leaf, path.to_owned()),
                Err(error) => {
                    return Err(TextError {
                        at: path.to_owned(),
                        message: error.message,
                    });
                }
            },
            Value::Array(items) => {
                let items = items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| Body::compile(item, &below(&index.to_string())));
                Body::List(items.collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let pairs = map
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), Body::compile(value, &below(key))?)));
                Body::Map(pairs.collect::<Result<_, _>>()?)
            }
            constant => Body::Constant(constant.clone()),
        };
        Ok(body)
    }

    /// Evaluates it for one request. With `sparse`, fields without a value are omitted.
    pub fn eval(&self, scope: &Scope<'_>, sparse: bool) -> Result<Value, TextError> {
        match self {
            Body::Constant(value) => Ok(value.clone()),
            Body::Leaf(leaf, at) => {
                let value = leaf.eval(|path| scope.lookup(path), || scope.context());
                value.map_err(|error| TextError {
                    at: at.clone(),
                    message: error.message,
                })
            }
            Body::List(items) => Ok(Value::Array(
                items
                    .iter()
                    .map(|item| item.eval(scope, sparse))
                    .collect::<Result<_, _>>()?,
            )),
            Body::Map(pairs) => {
                let mut map = Map::new();
                for (key, body) in pairs {
                    let value = body.eval(scope, sparse)?;
                    if !(sparse && value.is_null()) {
                        map.insert(key.clone(), value);
                    }
                }
                Ok(Value::Object(map))
            }
        }
    }
}

/// The variables of one request.
pub(super) struct Scope<'a> {
    pub model: &'a str,
    pub seq: u64,
    pub max_tokens: Option<u64>,
    pub prompt: &'a Prompt,
    pub labels: &'a Map<String, Value>,
    pub dialog: Dialog<'a>,
    /// All variables, built when an expression needs them.
    pub context: OnceCell<Jinja>,
}

impl Scope<'_> {
    fn lookup(&self, path: &[String]) -> Option<Value> {
        let (root, rest) = path.split_first()?;
        let found = match (root.as_str(), rest.split_first()) {
            ("model", _) => json!(self.model),
            ("prompt", _) => self.prompt_value(),
            ("messages", _) => self.dialog.messages(),
            ("system", _) => self.dialog.system(),
            ("dialog", _) => self.dialog.others(),
            ("seq", _) => json!(self.seq),
            ("item", Some((field, deeper))) => {
                return deeper
                    .iter()
                    .try_fold(self.prompt.fields.get(field)?, |value, key| value.get(key))
                    .cloned();
            }
            ("item", None) => Value::Object((*self.prompt.fields).clone()),
            ("case", Some((key, _))) => return self.case().get(key).cloned(),
            ("case", None) => Value::Object(self.case()),
            _ => return None,
        };
        rest.is_empty().then_some(found)
    }

    /// The text of the prompt, or its token ids.
    fn prompt_value(&self) -> Value {
        match &self.prompt.token_ids {
            Some(ids) => json!(ids),
            None => json!(self.prompt.text),
        }
    }

    fn case(&self) -> Map<String, Value> {
        let mut case = self.labels.clone();
        if let Some(max_tokens) = self.max_tokens {
            case.insert("max_tokens".to_owned(), json!(max_tokens));
        }
        case
    }

    fn context(&self) -> Jinja {
        let make = || {
            let all = json!({ "model": self.model, "prompt": self.prompt_value(), "messages": self.dialog.messages(),
                "system": self.dialog.system(), "dialog": self.dialog.others(),
                    "item": *self.prompt.fields, "case": self.case(), "seq": self.seq });
            Jinja::from(Serde(&all))
        };
        self.context.get_or_init(make).clone()
    }
}

/// The value at a dotted path.
pub(super) fn get_field<'a>(body: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => body.get(path),
        Some((head, rest)) => get_field(body.get(head)?.as_object()?, rest),
    }
}

/// Sets a dotted path where nothing is set; a scalar on the way is left alone.
pub(super) fn fill_field(body: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => _ = body.entry(path).or_insert(value),
        Some((head, rest)) => {
            if let Value::Object(inner) = body
                .entry(head)
                .or_insert_with(|| Value::Object(Map::new()))
            {
                fill_field(inner, rest, value);
            }
        }
    }
}

/// Sets a dotted path; a scalar on the way is left alone.
pub(super) fn set_field(body: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => _ = body.insert(path.to_owned(), value),
        Some((head, rest)) => {
            if let Value::Object(inner) = body
                .entry(head)
                .or_insert_with(|| Value::Object(Map::new()))
            {
                set_field(inner, rest, value);
            }
        }
    }
}

/// Merges `over` into `body`: mappings merge, `null` removes, everything else replaces.
pub(super) fn merge_fields(body: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (body.get_mut(&key), value) {
            (_, Value::Null) => _ = body.shift_remove(&key),
            (Some(Value::Object(inner)), Value::Object(value)) => merge_fields(inner, value),
            (_, Value::Object(value)) => {
                let mut fresh = Map::new();
                merge_fields(&mut fresh, value);
                body.insert(key, Value::Object(fresh));
            }
            (_, value) => _ = body.insert(key, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_missing_fields_are_filled_in() {
        let Value::Object(mut body) = json!({ "options": { "seed": 1 }, "parameters": "x" }) else {
            panic!()
        };
        for path in [
            "options.seed",
            "options.top_k",
            "parameters.n",
            "a.b.c",
            "n",
        ] {
            fill_field(&mut body, path, json!(7));
        }
        let filled = json!({ "options": { "seed": 1, "top_k": 7 }, "parameters": "x",
            "a": { "b": { "c": 7 } }, "n": 7 });
        assert_eq!(get_field(&body, "a.b.c"), Some(&json!(7)));
        assert_eq!(
            (get_field(&body, "parameters.n"), get_field(&body, "a.x.c")),
            (None, None)
        );
        assert_eq!(Value::Object(body), filled);
    }
}
