//! The files beside a tokenizer.json.

use super::chat::ChatTemplate;
use super::error::TokenError;
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::path::Path;

/// The tokenizer itself.
pub const TOKENIZER: &str = "tokenizer.json";
/// Names of special tokens, and in most models the chat template.
pub const CONFIG: &str = "tokenizer_config.json";
/// The chat template of newer models; it wins over that of the configuration.
pub const TEMPLATE: &str = "chat_template.jinja";

/// The chat template of the model that `tokenizer` belongs to. A file under another name stands for itself alone.
pub fn chat_template(tokenizer: &Path) -> Result<Option<ChatTemplate>, TokenError> {
    if tokenizer.file_name().is_none_or(|name| name != TOKENIZER) {
        return Ok(None);
    }
    let (config, own) = (tokenizer.with_file_name(CONFIG), tokenizer.with_file_name(TEMPLATE));
    let fields: Map<String, Value> = match read(&config)? {
        Some(text) => serde_json::from_str(&text).map_err(|error| TokenError::Malformed {
            path: config.clone(),
            what: CONFIG,
            reason: error.to_string(),
        })?,
        None => Map::new(),
    };
    let (path, source) = match read(&own)? {
        Some(source) => (own, Some(source)),
        None => (config, fields.get("chat_template").and_then(named).map(str::to_owned)),
    };
    let Some(source) = source else { return Ok(None) };
    ChatTemplate::new(&source, &fields).map(Some).map_err(|reason| TokenError::Template { path, reason })
}

/// A template, or of a list of named ones `default`.
fn named(value: &Value) -> Option<&str> {
    match value {
        Value::Array(all) => {
            let default = all.iter().find(|each| each.get("name").is_some_and(|name| name == "default"))?;
            default.get("template")?.as_str()
        }
        one => one.as_str(),
    }
}

/// None where there is no such file.
fn read(path: &Path) -> Result<Option<String>, TokenError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TokenError::Read { path: path.to_owned(), source }),
    }
}
