//! The files next to a tokenizer.json.

use super::chat::ChatTemplate;
use super::error::TokenError;
use llmscen_core::bounds;
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub const TOKENIZER: &str = "tokenizer.json";
/// Special tokens, and in most models the chat template.
pub const CONFIG: &str = "tokenizer_config.json";
/// The chat template of newer models, which is preferred to that of the configuration.
pub const TEMPLATE: &str = "chat_template.jinja";

/// The tokenizer_config.json next to `tokenizer`; empty where it is missing, or `tokenizer` has another name than
/// tokenizer.json.
pub fn read_config(tokenizer: &Path) -> Result<Map<String, Value>, TokenError> {
    let config = tokenizer.with_file_name(CONFIG);
    let text = if is_tokenizer_json(tokenizer) {
        read_optional(&config)?
    } else {
        None
    };
    let malformed = |error: serde_json::Error| TokenError::Malformed {
        path: config.clone(),
        what: CONFIG,
        reason: error.to_string(),
    };
    text.map_or_else(
        || Ok(Map::new()),
        |text| serde_json::from_str(&text).map_err(malformed),
    )
}

fn is_tokenizer_json(tokenizer: &Path) -> bool {
    tokenizer.file_name().is_some_and(|name| name == TOKENIZER)
}

/// The chat template next to `tokenizer`, and its file.
pub fn read_chat_template(tokenizer: &Path) -> Result<Option<(ChatTemplate, PathBuf)>, TokenError> {
    if !is_tokenizer_json(tokenizer) {
        return Ok(None);
    }
    let template_file = tokenizer.with_file_name(TEMPLATE);
    let fields = read_config(tokenizer)?;
    let (path, source) = match read_optional(&template_file)? {
        Some(source) => (template_file, Some(source)),
        None => (
            tokenizer.with_file_name(CONFIG),
            fields
                .get("chat_template")
                .and_then(default_template)
                .map(str::to_owned),
        ),
    };
    let Some(source) = source else {
        return Ok(None);
    };
    match ChatTemplate::new(&source, &fields) {
        Ok(template) => Ok(Some((template, path))),
        Err(reason) => Err(TokenError::Template { path, reason }),
    }
}

/// The BOS token of a tokenizer_config.json.
pub fn bos_token(fields: &Map<String, Value>) -> Option<&str> {
    let token = fields.get("bos_token")?;
    token.get("content").unwrap_or(token).as_str()
}

/// The template, or `default` of a list of named ones.
fn default_template(value: &Value) -> Option<&str> {
    match value {
        Value::Array(all) => {
            let default = all
                .iter()
                .find(|each| each.get("name").is_some_and(|name| name == "default"))?;
            default.get("template")?.as_str()
        }
        one => one.as_str(),
    }
}

/// None where the file does not exist.
fn read_optional(path: &Path) -> Result<Option<String>, TokenError> {
    match bounds::read_text(path, bounds::CONFIG) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TokenError::Read {
            path: path.to_owned(),
            source,
        }),
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
        let tokenizer = Tokenizer::load(folder.path())
            .map_err(|error| error.to_string().replace(&name, "."))?;
        let message = json!({ "role": "user", "content": "x" });
        Ok(tokenizer
            .chat_template()
            .map(|template| template.render(&[message], None).unwrap()))
    }

    #[test]
    fn a_template_is_a_text_the_default_of_a_list_or_a_file_of_its_own() {
        let list = |name: &str| {
            let other = json!({ "name": "tool_use", "template": "tools" });
            json!({ "bos_token": "<b>", "chat_template": [other, { "name": name, "template": "{{ bos_token }}list" }] })
                .to_string()
        };
        assert_eq!(
            read_by(r#"{"chat_template": "text"}"#, None),
            Ok(Some("text".into()))
        );
        assert_eq!(read_by(&list("default"), None), Ok(Some("<b>list".into())));
        assert_eq!(read_by(&list("other"), None), Ok(None));
        assert_eq!(
            read_by(&list("default"), Some("{{ bos_token }}own")),
            Ok(Some("<b>own".into()))
        );
        assert_eq!(read_by("{}", None), Ok(None));
    }

    #[test]
    fn special_tokens_are_named_as_texts_or_objects() {
        let config = r#"{"chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}", "bos_token": {"content": "<b>"}, "eos_token": "<e>", "pad_token": null}"#;
        assert_eq!(read_by(config, None), Ok(Some("<b><e>".into())));
    }

    #[test]
    fn errors_have_the_file_and_the_reason() {
        let error = read_by("{", None).unwrap_err();
        assert_eq!(
            error,
            "./tokenizer_config.json is not a tokenizer_config.json: EOF while parsing an object at line 1 column 1"
        );
        let error = read_by(r#"{"chat_template": "{% if %}"}"#, None).unwrap_err();
        assert!(
            error.starts_with("invalid chat template in ./tokenizer_config.json: ")
                && error.ends_with("(line 1)")
        );
        let error = read_by("{}", Some("{{")).unwrap_err();
        assert!(
            error.starts_with("invalid chat template in ./chat_template.jinja: "),
            "{error}"
        );
    }

    #[test]
    fn a_file_of_another_name_has_no_configuration() {
        let folder = CHATML.folder("byte-level");
        let other = folder.path().join("other.json");
        std::fs::copy(folder.path().join(TOKENIZER), &other).unwrap();
        assert!(Tokenizer::load(&other).unwrap().chat_template().is_none());
        assert!(
            Tokenizer::load(&folder.path().join(TOKENIZER))
                .unwrap()
                .chat_template()
                .is_some()
        );
    }
}
