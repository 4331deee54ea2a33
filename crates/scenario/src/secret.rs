//! What must not be written down, and what is written in its place.

use crate::tree::{Data, Node, Part};
use llmscen_core::url_secrets::{is_secret_name, is_veiled};

/// What a text is, besides text.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Place {
    /// A text of the scenario: braces are references.
    Text,
    /// A text of a request body: braces are the renderer's.
    Body,
}

/// A part by its variable's name instead of its value.
pub(crate) fn by_name(part: &Part) -> String {
    match part {
        Part::Literal(text) => escaped(text, Place::Text),
        Part::Env { name, .. } => format!("${{{name}}}"),
        Part::Ref(path) => format!("{{{{ {path} }}}}"),
    }
}

/// A text by its variables, where nothing but a scheme such as `Bearer` stands beside them.
pub(crate) fn named(parts: &[Part]) -> Option<String> {
    let scheme = |text: &str| ["", "bearer", "basic", "token", "apikey", "digest"].contains(&text.trim().to_lowercase().as_str());
    let bare = parts.iter().all(|part| !matches!(part, Part::Literal(text) if !scheme(text)));
    (bare && parts.iter().any(|part| matches!(part, Part::Env { .. } | Part::Ref(_))))
        .then(|| parts.iter().map(by_name).collect())
}

/// Whether a variable of the environment is in it.
pub(crate) fn from_env(node: &Node) -> bool {
    node.parts.iter().any(|parts| parts.iter().any(|part| matches!(part, Part::Env { .. })))
}

/// Whether a number in it came from a variable that is called a secret, or is long and part of a request body, so that its
/// name is written and not its value.
pub(crate) fn keeps_name(node: &Node, place: Place) -> bool {
    let keeps = |part: &Part| match part {
        Part::Env { name, value } => is_secret_name(name) || place == Place::Body && is_veiled(value),
        _ => false,
    };
    node.parts.iter().any(|parts| parts.iter().any(keeps))
}

/// A value as text that is read back as it stands, secrets by name.
pub(crate) fn written(node: &Node, place: Place) -> String {
    match (&node.parts, &node.data) {
        (Some(parts), _) => parts.iter().map(|part| written_part(part, place)).collect(),
        (None, Data::Text(text)) => text.clone(),
        (None, _) => node.json().to_string(),
    }
}

/// One part of such a text.
pub(crate) fn written_part(part: &Part, place: Place) -> String {
    match part {
        Part::Literal(text) => escaped(text, place),
        Part::Env { name, value } if is_secret_name(name) || place == Place::Body && is_veiled(value) => by_name(part),
        Part::Env { value, .. } => escaped(value, place),
        Part::Ref(_) => by_name(part),
    }
}

/// A text that is read back as it stands.
pub(crate) fn escaped(text: &str, place: Place) -> String {
    let text = text.replace("${", "$${");
    if place == Place::Text { text.replace("{{", "{{ \"{{\" }}") } else { text }
}

/// What stands in a command behind flags and variables that are called secrets, by those: `--api-key X`, `--hf-token=X`,
/// `HF_TOKEN=X`; also in a word that is a command itself, as that of `sh -c`.
pub fn behind_flags(words: &[String]) -> Vec<(String, String)> {
    let split = |word: &String| shell_words::split(word).ok().filter(|_| word.contains(char::is_whitespace));
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).filter(|_| word.starts_with('-') && is_secret_name(word) && !word.contains('='));
        found.extend(next.map(|value| (word.clone(), value.clone())));
        let single = word.starts_with('-') || !word.contains(char::is_whitespace);
        let within = word.split_once('=').filter(|(name, _)| single && is_secret_name(name));
        found.extend(within.map(|(name, value)| (name.to_owned(), value.to_owned())));
        found.extend(split(word).map(|own| behind_flags(&own)).unwrap_or_default());
    }
    found.retain(|(_, value)| looks_secret(value));
    found
}

/// Whether a text may be a secret: no further flag, no variable of a shell, no number that is a size.
pub(crate) fn looks_secret(value: &str) -> bool {
    let size = value.len() < 8 && value.parse::<f64>().is_ok();
    value.len() >= 4 && !value.starts_with(['-', '$']) && !size
}

/// Whether a value of a request body is a secret by its key; `max_tokens` is none.
pub(crate) fn is_hidden(key: &str, value: &Node) -> bool {
    let key = key.to_lowercase().replace('-', "_");
    let secret =
        ["api_key", "apikey", "access_token", "auth_token", "secret", "password", "authorization"].contains(&key.as_str());
    secret && matches!(value.data, Data::Text(_) | Data::Int(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_holds_no_variable() {
        assert_eq!(escaped("${A} {{ b }}", Place::Text), "$${A} {{ \"{{\" }} b }}");
        assert_eq!(escaped("${A} {{ b }}", Place::Body), "$${A} {{ b }}");
    }
}
