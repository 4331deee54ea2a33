//! Whether a text is a secret, and what is written in its place.

use crate::tree::{Data, Node, Part};
use llmscen_core::url_secrets::{is_secret_name, needs_placeholder};

/// The syntax of a text, which decides the meaning of braces.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum TextSyntax {
    /// Braces are references to the scenario.
    Text,
    /// Braces are evaluated by the renderer.
    Body,
}

/// A part with the name of its variable instead of the value.
pub(crate) fn by_name(part: &Part) -> String {
    match part {
        Part::Literal(text) => escape_text(text, TextSyntax::Text),
        Part::Env { name, .. } => format!("${{{name}}}"),
        Part::Ref(path) => format!("{{{{ {path} }}}}"),
    }
}

/// A text with the names of its variables, if there is nothing else but a scheme such as `Bearer`.
pub(crate) fn by_variable(parts: &[Part]) -> Option<String> {
    let scheme = |text: &str| {
        ["", "bearer", "basic", "token", "apikey", "digest"]
            .contains(&text.trim().to_lowercase().as_str())
    };
    let bare = parts
        .iter()
        .all(|part| !matches!(part, Part::Literal(text) if !scheme(text)));
    (bare
        && parts
            .iter()
            .any(|part| matches!(part, Part::Env { .. } | Part::Ref(_))))
    .then(|| parts.iter().map(by_name).collect())
}

/// Whether it contains an environment variable.
pub(crate) fn from_env(node: &Node) -> bool {
    node.parts
        .iter()
        .any(|parts| parts.iter().any(|part| matches!(part, Part::Env { .. })))
}

/// Whether a number is written as a variable: one with a secret name, or a long one in a request body.
pub(crate) fn keeps_name(node: &Node, syntax: TextSyntax) -> bool {
    let keeps = |part: &Part| match part {
        Part::Env { name, value } => {
            is_secret_name(name) || syntax == TextSyntax::Body && needs_placeholder(value)
        }
        _ => false,
    };
    node.parts.iter().any(|parts| parts.iter().any(keeps))
}

/// A value as escaped text, secrets by name.
pub(crate) fn write_text(node: &Node, syntax: TextSyntax) -> String {
    match (&node.parts, &node.data) {
        (Some(parts), _) => parts.iter().map(|part| write_part(part, syntax)).collect(),
        (None, Data::Text(text)) => text.clone(),
        (None, _) => node.json().to_string(),
    }
}

pub(crate) fn write_part(part: &Part, syntax: TextSyntax) -> String {
    match part {
        Part::Literal(text) => escape_text(text, syntax),
        Part::Env { name, value }
            if is_secret_name(name) || syntax == TextSyntax::Body && needs_placeholder(value) =>
        {
            by_name(part)
        }
        Part::Env { value, .. } => escape_text(value, syntax),
        Part::Ref(_) => by_name(part),
    }
}

/// Escapes a text, so that it is read back unchanged.
pub(crate) fn escape_text(text: &str, syntax: TextSyntax) -> String {
    let text = text.replace("${", "$${");
    if syntax == TextSyntax::Text {
        text.replace("{{", "{{ \"{{\" }}")
    } else {
        text
    }
}

/// Secrets in a command, each with its flag or variable: `--api-key X`, `--hf-token=X`, `HF_TOKEN=X`. Words that are
/// commands themselves, as in `sh -c`, are searched too.
pub fn behind_flags(words: &[String]) -> Vec<(String, String)> {
    let split = |word: &String| {
        shell_words::split(word)
            .ok()
            .filter(|_| word.contains(char::is_whitespace))
    };
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = words
            .get(at + 1)
            .filter(|_| word.starts_with('-') && is_secret_name(word) && !word.contains('='));
        found.extend(next.map(|value| (word.clone(), value.clone())));
        let single = word.starts_with('-') || !word.contains(char::is_whitespace);
        let within = word
            .split_once('=')
            .filter(|(name, _)| single && is_secret_name(name));
        found.extend(within.map(|(name, value)| (name.to_owned(), value.to_owned())));
        found.extend(
            split(word)
                .map(|inner| behind_flags(&inner))
                .unwrap_or_default(),
        );
    }
    found.retain(|(_, value)| looks_secret(value));
    found
}

/// Whether a text may be a secret: not a flag, a shell variable or a small number.
pub(crate) fn looks_secret(value: &str) -> bool {
    let size = value.len() < 8 && value.parse::<f64>().is_ok();
    value.len() >= 4 && !value.starts_with(['-', '$']) && !size
}

/// Whether a value of a request body is a secret by its key; `max_tokens` is not.
pub(crate) fn is_hidden(key: &str, value: &Node) -> bool {
    let key = key.to_lowercase().replace('-', "_");
    let secret = [
        "api_key",
        "apikey",
        "access_token",
        "auth_token",
        "secret",
        "password",
        "authorization",
    ]
    .contains(&key.as_str());
    secret && matches!(value.data, Data::Text(_) | Data::Int(_))
}

/// Common headers whose values are not secrets.
pub(crate) const USUAL_HEADERS: [&str; 12] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "cache-control",
    "connection",
    "content-type",
    "http-referer",
    "openai-beta",
    "user-agent",
    "x-title",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_has_no_variable() {
        assert_eq!(
            escape_text("${A} {{ b }}", TextSyntax::Text),
            "$${A} {{ \"{{\" }} b }}"
        );
        assert_eq!(
            escape_text("${A} {{ b }}", TextSyntax::Body),
            "$${A} {{ b }}"
        );
    }
}
