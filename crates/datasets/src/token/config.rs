//! The files beside a tokenizer.json.

use super::chat::ChatTemplate;
use super::error::TokenError;
use llmscen_core::bounds;
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The tokenizer itself.
pub const TOKENIZER: &str = "tokenizer.json";
/// Names of special tokens, and in most models the chat template.
pub const CONFIG: &str = "tokenizer_config.json";
/// The chat template of newer models; it wins over that of the configuration.
pub const TEMPLATE: &str = "chat_template.jinja";

/// The settings of tokenizer_config.json beside `tokenizer`; none where the file is missing. A file under another name
/// has no settings.
pub fn fields(tokenizer: &Path) -> Result<Map<String, Value>, TokenError> {
    let config = tokenizer.with_file_name(CONFIG);
    let text = if is_of_a_model(tokenizer) { read(&config)? } else { None };
    let malformed =
        |error: serde_json::Error| TokenError::Malformed { path: config.clone(), what: CONFIG, reason: error.to_string() };
    text.map_or_else(|| Ok(Map::new()), |text| serde_json::from_str(&text).map_err(malformed))
}

fn is_of_a_model(tokenizer: &Path) -> bool {
    tokenizer.file_name().is_some_and(|name| name == TOKENIZER)
}

/// The chat template of the model that `tokenizer` belongs to, and its file.
pub fn chat_template(tokenizer: &Path) -> Result<Option<(ChatTemplate, PathBuf)>, TokenError> {
    if !is_of_a_model(tokenizer) {
        return Ok(None);
    }
    let (config, own) = (tokenizer.with_file_name(CONFIG), tokenizer.with_file_name(TEMPLATE));
    let fields = fields(tokenizer)?;
    let (path, source) = match read(&own)? {
        Some(source) => (own, Some(source)),
        None => (config, fields.get("chat_template").and_then(named).map(str::to_owned)),
    };
    let Some(source) = source else { return Ok(None) };
    match ChatTemplate::new(&source, &fields) {
        Ok(template) => Ok(Some((template, path))),
        Err(reason) => Err(TokenError::Template { path, reason }),
    }
}

/// The BOS token that a tokenizer_config.json names.
pub fn bos(fields: &Map<String, Value>) -> Option<&str> {
    let named = fields.get("bos_token")?;
    named.get("content").unwrap_or(named).as_str()
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
    match bounds::read_text(path, bounds::CONFIG) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TokenError::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Tokenizer;
    use crate::token::trained::CHATML;
    use serde_json::json;

    /// The folder of a model whose configuration is this, and what its tokenizer makes of a message.
    fn read_by(config: &str, own: Option<&str>) -> Result<Option<String>, String> {
        let folder = CHATML.folder("byte-level");
        std::fs::write(folder.path().join(CONFIG), config).unwrap();
        if let Some(own) = own {
            std::fs::write(folder.path().join(TEMPLATE), own).unwrap();
        }
        let name = folder.path().display().to_string();
        let tokenizer = Tokenizer::load(folder.path()).map_err(|error| error.to_string().replace(&name, "."))?;
        let message = json!({ "role": "user", "content": "x" });
        Ok(tokenizer.chat_template().map(|template| template.render(&[message], None).unwrap()))
    }

    #[test]
    fn a_template_is_a_text_the_default_of_a_list_or_a_file_of_its_own() {
        let list = |name: &str| {
            let other = json!({ "name": "tool_use", "template": "tools" });
            json!({ "bos_token": "<b>", "chat_template": [other, { "name": name, "template": "{{ bos_token }}list" }] })
                .to_string()
        };
        assert_eq!(read_by(r#"{"chat_template": "text"}"#, None), Ok(Some("text".into())));
        assert_eq!(read_by(&list("default"), None), Ok(Some("<b>list".into())));
        assert_eq!(read_by(&list("other"), None), Ok(None));
        assert_eq!(read_by(&list("default"), Some("{{ bos_token }}own")), Ok(Some("<b>own".into())));
        assert_eq!(read_by("{}", None), Ok(None));
    }

    #[test]
    fn special_tokens_are_named_as_texts_or_objects() {
        let config = r#"{"chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}", "bos_token": {"content": "<b>"}, "eos_token": "<e>", "pad_token": null}"#;
        assert_eq!(read_by(config, None), Ok(Some("<b><e>".into())));
    }

    #[test]
    fn what_is_wrong_is_named_by_file_and_reason() {
        let error = read_by("{", None).unwrap_err();
        assert_eq!(
            error,
            "./tokenizer_config.json is not a tokenizer_config.json: EOF while parsing an object at line 1 column 1"
        );
        let error = read_by(r#"{"chat_template": "{% if %}"}"#, None).unwrap_err();
        assert!(
            error.starts_with("the chat template in ./tokenizer_config.json cannot be used: ") && error.ends_with("(line 1)")
        );
        let error = read_by("{}", Some("{{")).unwrap_err();
        assert!(error.starts_with("the chat template in ./chat_template.jinja cannot be used: "), "{error}");
    }

    #[test]
    fn a_file_of_another_name_stands_for_itself_alone() {
        let folder = CHATML.folder("byte-level");
        let other = folder.path().join("other.json");
        std::fs::copy(folder.path().join(TOKENIZER), &other).unwrap();
        assert!(Tokenizer::load(&other).unwrap().chat_template().is_none());
        assert!(Tokenizer::load(&folder.path().join(TOKENIZER)).unwrap().chat_template().is_some());
    }
}
